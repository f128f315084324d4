/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.h: times against a relaxation of its own, known totals with messages and uneven pipeline
 * stages, bytes, and what is refused.
 */
#include <math.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

static double end_of(const struct lf_pipe *p, struct lf_pipe_walk_opts o)
{
    struct lf_pipe_timing t = pipe_timed(p, o);
    const double end_s = t.end_s;
    lf_pipe_timing_fini(&t);
    return end_s;
}

/* P = 8, m = 32, F = B = W = 1, messages of 0.1 F. */
static void message_times(void)
{
    static const struct {
        enum lf_pipe_kind kind;
        int chunks;
        double end_s;
    } v[] = {{LF_PIPE_1F1B, 1, 123.8}, {LF_PIPE_INTERLEAVED, 2, 109.5}, {LF_PIPE_ZB_H1, 1, 105.8}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
        pipe_equal_cost(cost, v[i].chunks, 1, 1, 1);
        const struct lf_pipe_walk_opts o = {.cost = cost, .message_s = 0.1};
        struct lf_pipe p = pipe_made(v[i].kind, 8, v[i].chunks, 32);
        struct lf_pipe q =
            pipe_sending(v[i].kind, 8, v[i].chunks, 32, (struct lf_pipe_message_opts){0});
        tap_f64(end_of(&p, o), v[i].end_s, 1e-9, lf_pipe_kind_name(v[i].kind));
        tap_f64(end_of(&q, o), v[i].end_s, 1e-9, "with messages in the lists too");
        lf_pipe_fini(&p);
        lf_pipe_fini(&q);
    }
}

/* A flow shop of equal jobs ends after the sum of all machines' times and m - 1 times the longest;
 * GPipe is one forwards, then one backwards. */
static void uneven_stages(void)
{
    static const double f[4] = {1, 3, 2, 5}, z[4] = {2.5, 4, 6, 1};
    struct lf_pipe_cost cost[4] = {{0}};
    struct lf_pipe p = pipe_made(LF_PIPE_GPIPE, 4, 1, 7);
    for (int r = 0; r < 4; r++)
        cost[r] = (struct lf_pipe_cost){.f_s = f[r], .z_s = z[r]};
    struct lf_pipe_timing t = pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost});
    tap_f64(t.end_s, 11 + 6 * 5 + 13.5 + 6 * 6, 1e-9, "GPipe over uneven pipeline stages");
    tap_f64(t.load[1].busy_s, 7 * 7, 1e-9, "one of them is busy for its own work");
    tap_f64(t.idle_share, 1 - 7 * 24.5 / (4 * 90.5), 1e-12, "the idle share is that of all ranks");
    lf_pipe_timing_fini(&t);
    /* A pipeline stage without layers passes on what it gets. */
    cost[2] = (struct lf_pipe_cost){0};
    tap_f64(end_of(&p, (struct lf_pipe_walk_opts){.cost = cost}), 9 + 6 * 5 + 7.5 + 6 * 4, 1e-9,
            "an empty pipeline stage takes no time");
    lf_pipe_fini(&p);
}

static double random_s(void)
{
    return 0.25 + 2 * pipe_random();
}

/* Every kind with other times for every chunk. */
static void random_times(void)
{
    int wrong = 0, order = 0, cases = 0;
    for (int i = 0; i < 400; i++) {
        struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
        const enum lf_pipe_kind kind = (enum lf_pipe_kind)(i % LF_PIPE_KINDS);
        const int v = kind == LF_PIPE_INTERLEAVED ? 1 + pipe_below(3) : pipe_first_chunks(kind),
                  ranks = 1 + pipe_below(6);
        struct lf_pipe p = pipe_made(kind, ranks, v, pipe_least(kind, ranks) + pipe_below(12));
        const double message_s = i % 3 ? random_s() / 4 : 0;
        for (int c = 0; c < PIPE_RANKS * PIPE_CHUNKS; c++)
            cost[c] = (struct lf_pipe_cost){
                .f_s = random_s(), .b_s = random_s(), .w_s = random_s(), .z_s = random_s()};
        for (int c = pipe_below(3); c > 0; c--) /* layers that are frozen go forwards alone */
            cost[pipe_below(PIPE_RANKS)] = (struct lf_pipe_cost){.f_s = random_s()};
        struct lf_pipe_timing t =
            pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost, .message_s = message_s});
        wrong += !(fabs(t.end_s - pipe_reference_end(&p, cost, message_s)) < 1e-9);
        for (int r = 0; r < p.spec.ranks; r++)
            for (int k = 0; k < p.list[r].n; k++)
                order += t.span[r][k].begin_s < (k ? t.span[r][k - 1].end_s : 0) ||
                         t.span[r][k].end_s > t.end_s;
        cases++;
        lf_pipe_timing_fini(&t);
        lf_pipe_fini(&p);
    }
    tap_i64(cases, 400, "random schedules");
    tap_i64(wrong, 0, "end when the relaxation says");
    tap_i64(order, 0, "items of a rank follow each other");
}

/* With times of their own, rank 0 of a two-rank 1F1B: each span by hand. */
static void spans(void)
{
    const struct lf_pipe_cost cost[2] = {{.f_s = 2, .z_s = 3}, {.f_s = 4, .z_s = 1}};
    struct lf_pipe p = pipe_made(LF_PIPE_1F1B, 2, 1, 2);
    struct lf_pipe_timing t =
        pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost, .message_s = 0.5});
    tap_f64(t.span[1][0].begin_s, 2 + 0.5, 1e-12, "F0 of rank 1 begins behind the message");
    tap_f64(t.span[0][1].begin_s, 2, 1e-12, "F1 of rank 0 follows its F0");
    tap_f64(t.span[0][2].begin_s, 2.5 + 4 + 1 + 0.5, 1e-12, "Z0 of rank 0 waits for rank 1");
    tap_f64(t.span[0][3].begin_s, 2.5 + 4 + 1 + 4 + 1 + 0.5, 1e-12, "and Z1 for the next");
    tap_f64(t.end_s, 16, 1e-12, "the end");
    tap_f64(t.load[1].idle_s, 6, 1e-12, "rank 1 is idle for the rest");
    lf_pipe_timing_fini(&t);
    lf_pipe_fini(&p);
}

/* A message begins when it is sent and its receive is posted: a late receive makes it wait. */
static void late_receive(void)
{
    const struct lf_pipe_cost cost[2] = {{.f_s = 2, .z_s = 3}, {.f_s = 4, .z_s = 1}};
    const struct lf_pipe_walk_opts o = {.cost = cost, .message_s = 0.5};
    for (int late = 0; late < 2; late++) {
        struct lf_pipe p =
            pipe_sending(LF_PIPE_GPIPE, 2, 1, 2, (struct lf_pipe_message_opts){.late = late});
        struct lf_pipe_timing t = pipe_timed(&p, o);
        int i = 0;
        while (p.list[1].item[i].op != LF_PIPE_F || p.list[1].item[i].micro != 1)
            i++;
        /* F0 of rank 1 ends at 2 + 0.5 + 4. */
        tap_f64(t.span[1][i].begin_s, late ? 7 : 6.5, 1e-12,
                late ? "a late receive delays its message" : "an early one does not");
        lf_pipe_timing_fini(&t);
        lf_pipe_fini(&p);
    }
}

static void bytes(void)
{
    struct lf_pipe_cost cost[4];
    struct lf_pipe p = pipe_made(LF_PIPE_ZB_H1, 4, 1, 8);
    for (int r = 0; r < 4; r++)
        cost[r] = (struct lf_pipe_cost){.slot_bytes = 100 * (r + 1), .deferred_bytes = 7};
    struct lf_pipe_timing t = pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost});
    /* Rank 0: F0 F1 F2 F3 B0; rank 3: F0 B0 F1 B1 F2 B2 F3 B3. */
    tap_i64(t.load[0].peak_deferred, 1, "rank 0 puts off nothing behind its own B");
    tap_i64(t.load[0].peak_bytes, 4 * 100 + 7, "bytes of rank 0");
    tap_i64(t.load[3].peak_deferred, 4, "rank 3 puts off three and has one more");
    tap_i64(t.load[3].peak_bytes, 4 * 400 + 4 * 7, "bytes of rank 3");
    lf_pipe_timing_fini(&t);
    lf_pipe_fini(&p);

    /* Chunks of one rank with bytes of their own: F0.0 F1.0 F0.1 F1.1 F2.0 Z0.1 .. of rank 0. */
    struct lf_pipe_cost two[4] = {{.slot_bytes = 1000}, {.slot_bytes = 1}};
    p = pipe_made(LF_PIPE_INTERLEAVED, 2, 2, 4);
    t = pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = two});
    tap_i64(t.load[0].peak_live, 5, "five pairs are alive");
    tap_i64(t.load[0].peak_bytes, 4001, "their bytes are largest later, at F3.0");
    lf_pipe_timing_fini(&t);
    lf_pipe_fini(&p);

    p = pipe_made(LF_PIPE_GPIPE, 1, 1, 3);
    cost[0].slot_bytes = INT64_MAX / 2;
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_pipe_walk(NULL, &p, &(struct lf_pipe_walk_opts){.cost = cost}, &err), LF_EINVAL, &err,
           "the bytes of rank 0 do not fit", "a sum beyond 64 bits is refused");
    lf_pipe_fini(&p);
}

static void refused(const struct lf_pipe *p, struct lf_pipe_walk_opts o, const char *why)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe_timing t = {.end_s = 5};
    tap_rc(lf_pipe_walk(&t, p, &o, &err), LF_EINVAL, &err, why, why);
    tap_ok(t.end_s == 5 && !t.load, "and nothing is set");
}

static void refusals(void)
{
    static const char why[] = "times and bytes of a pipeline schedule are finite and not negative";
    struct lf_pipe p = pipe_made(LF_PIPE_1F1B, 2, 1, 2);
    struct lf_pipe_cost c[2] = {{0}};
    const struct lf_pipe_walk_opts o = {.cost = c};
    refused(&p, (struct lf_pipe_walk_opts){.message_s = NAN}, why);
    c[1].f_s = -1;
    refused(&p, o, why);
    c[1] = (struct lf_pipe_cost){.b_s = INFINITY};
    refused(&p, o, why);
    c[1] = (struct lf_pipe_cost){.w_s = NAN};
    refused(&p, o, why);
    c[1] = (struct lf_pipe_cost){.z_s = -1e-9};
    refused(&p, o, why);
    c[1] = (struct lf_pipe_cost){.slot_bytes = -1};
    refused(&p, o, why);
    c[1] = (struct lf_pipe_cost){.deferred_bytes = -1};
    refused(&p, o, why);
    refused(&p, (struct lf_pipe_walk_opts){.blocking_recv = true}, "without messages nothing");
    refused(&p, (struct lf_pipe_walk_opts){.rendezvous = true}, "without messages nothing");
    lf_pipe_fini(&p);
    lf_pipe_timing_fini(NULL);
}

/* Rank 0 begins with what comes round last: every rank waits for the one before it. */
static void long_cycle(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p = pipe_made(LF_PIPE_INTERLEAVED, 8, 2, 1);
    const struct lf_pipe_item first = p.list[0].item[0];
    p.list[0].item[0] = p.list[0].item[1];
    p.list[0].item[1] = first;
    const int rc = lf_pipe_walk(NULL, &p, NULL, &err);
    tap_ok(strstr(err.text,
                  "rank 0, F of micro-batch 0, chunk 1 waits for rank 7, F of micro-batch "
                  "0, chunk 0; rank 7, F of micro-batch 0, chunk 0 waits for rank 6"),
           "a cycle of eight begins at rank 0");
    tap_rc(rc, LF_EINVAL, &err, "; and 3 ranks more", "and is cut where the message is full");
    lf_pipe_fini(&p);
}

int main(void)
{
    TAP(6, message_times());
    TAP(4, uneven_stages());
    TAP(3, random_times());
    TAP(6, spans());
    TAP(2, late_receive());
    TAP(7, bytes());
    TAP(18, refusals());
    TAP(2, long_cycle());
    return tap_done();
}
