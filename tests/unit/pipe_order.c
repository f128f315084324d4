/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe.h: the lists of each kind, printed ones and all of 8 ranks, 24 micro-batches and 4 chunks:
 * whole, in an order that can be done, with the idle time and the memory of the closed forms. And
 * the orders that hang.
 */
#include <math.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

static void check_list(enum lf_pipe_kind kind, int ranks, int chunks, int m, int rank,
                       const char *want)
{
    struct lf_pipe p = pipe_made(kind, ranks, chunks, m);
    tap_str(pipe_list(&p, rank), want, lf_pipe_kind_name(kind));
    lf_pipe_fini(&p);
}

static void printed_lists(void)
{
    check_list(LF_PIPE_GPIPE, 3, 1, 3, 1, "F0 F1 F2 Z0 Z1 Z2");
    check_list(LF_PIPE_1F1B, 4, 1, 6, 0, "F0 F1 F2 F3 Z0 F4 Z1 F5 Z2 Z3 Z4 Z5");
    check_list(LF_PIPE_1F1B, 4, 1, 6, 2, "F0 F1 Z0 F2 Z1 F3 Z2 F4 Z3 F5 Z4 Z5");
    check_list(LF_PIPE_1F1B, 4, 1, 2, 0, "F0 F1 Z0 Z1");
    check_list(LF_PIPE_ZB_H1, 4, 1, 6, 0, "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5");
    check_list(LF_PIPE_ZB_H1, 4, 1, 6, 2, "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 B5 W3 W4 W5");
    check_list(LF_PIPE_ZB_H1, 4, 1, 6, 3, "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5");
    check_list(LF_PIPE_INTERLEAVED, 2, 2, 4, 0,
               "F0.0 F1.0 F0.2 F1.2 F2.0 Z0.2 F3.0 Z1.2 F2.2 Z0.0 F3.2 Z1.0 Z2.2 Z3.2 Z2.0 Z3.0");
    check_list(LF_PIPE_INTERLEAVED, 2, 2, 4, 1,
               "F0.1 F1.1 F0.3 Z0.3 F1.3 Z1.3 F2.1 Z0.1 F3.1 Z1.1 F2.3 Z2.3 F3.3 Z3.3 Z2.1 Z3.1");
    check_list(LF_PIPE_ZB_V, 2, 2, 3, 0,
               "F0.0 F1.0 F2.0 F0.3 B0.3 W0.3 F1.3 B1.3 W1.3 B0.0 W0.0 F2.3 B2.3 W2.3 B1.0 W1.0 "
               "B2.0 W2.0");
    check_list(LF_PIPE_ZB_V, 2, 2, 3, 1,
               "F0.1 F0.2 F1.1 F1.2 B0.2 W0.2 F2.1 B0.1 W0.1 F2.2 B1.2 W1.2 B1.1 B2.2 B2.1 W1.1 "
               "W2.2 W2.1");
    check_list(LF_PIPE_ZB_V, 2, 2, 1, 1, "F0.1 F0.2 B0.2 W0.2 B0.1 W0.1");
    check_list(LF_PIPE_DUALPIPE_V, 2, 2, 4, 0,
               "F0.0 F1.0 F2.0 F0.3 B0.3 W0.3 F1.3 F3.0 Z1.3 F2.3 Z0.0 Z2.3 F3.3 Z1.0 Z3.3 B2.0 "
               "W2.0 B3.0 W3.0");
    check_list(LF_PIPE_DUALPIPE_V, 2, 2, 4, 1,
               "F0.1 F0.2 F1.1 F1.2 F2.1 Z0.2 F2.2 Z0.1 F3.1 Z1.2 F3.2 Z1.1 Z2.2 Z2.1 B3.2 B3.1 "
               "W3.2 W3.1");
    /* One chunk comes round to nobody, so that it needs no more forward passes first than 1f1b. */
    check_list(LF_PIPE_INTERLEAVED, 4, 1, 6, 2, "F0 F1 Z0 F2 Z1 F3 Z2 F4 Z3 F5 Z4 Z5");
    /* One group that is short of P goes whole through each chunk. */
    check_list(LF_PIPE_INTERLEAVED, 4, 2, 2, 3, "F0.3 F1.3 F0.7 F1.7 Z0.7 Z1.7 Z0.3 Z1.3");
}

/* What the header says, with T = F + B + W of a whole rank. Below 0: nothing. */
static double idle_of(const struct lf_pipe_spec *s, double f, double b, double w)
{
    const double behind = s->ranks - 1,
                 lack = s->micro_batches < s->ranks ? s->ranks - s->micro_batches : 0;
    switch (s->kind) {
    case LF_PIPE_INTERLEAVED:
        return (behind + (s->chunks - 1) * lack) * (f + b + w) / s->chunks;
    case LF_PIPE_ZB_H1:
        return behind * (f + b - w) + lack * w;
    case LF_PIPE_ZB_V:
    case LF_PIPE_DUALPIPE_V:
        return fabs(f - b) + fabs(f - w) > 0 || s->micro_batches < 2 * s->ranks - 1
                   ? -1
                   : behind * f / 2;
    default:
        return behind * (f + b + w);
    }
}

static int live_of(const struct lf_pipe_spec *s, int rank)
{
    const int behind = s->ranks - 1 - rank, m = s->micro_batches, all = m * s->chunks;
    int live = m;
    if (s->kind == LF_PIPE_ZB_V)
        return (m < s->ranks + behind ? m : s->ranks + behind) + (m < rank + 1 ? m : rank + 1);
    if (s->kind == LF_PIPE_DUALPIPE_V)
        return 2 * s->ranks + 1;
    if (s->kind == LF_PIPE_INTERLEAVED && s->chunks > 1)
        live = 2 * behind + (s->chunks - 1) * s->group + 1;
    else if (s->kind == LF_PIPE_1F1B || s->kind == LF_PIPE_INTERLEAVED)
        live = behind + 1;
    else if (s->kind == LF_PIPE_ZB_H1)
        live = s->ranks;
    return live < all ? live : all;
}

struct count {
    int cases, idle, live, busy, told;
};

static void count_case(struct count *n, const struct lf_pipe *p, const double *fbw)
{
    struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
    const double work = p->spec.micro_batches * (fbw[0] + fbw[1] + fbw[2]),
                 idle_s = idle_of(&p->spec, fbw[0], fbw[1], fbw[2]);
    pipe_equal_cost(cost, p->spec.chunks, fbw[0], fbw[1], fbw[2]);
    struct lf_pipe_timing t = pipe_timed(p, (struct lf_pipe_walk_opts){.cost = cost});
    n->cases++;
    n->told += idle_s >= 0;
    for (int r = 0; r < p->spec.ranks; r++) {
        n->idle += idle_s >= 0 && !(fabs(t.load[r].idle_s - idle_s) < 1e-9);
        n->busy += !(fabs(t.load[r].busy_s - work) < 1e-9);
        n->live += t.load[r].peak_live != live_of(&p->spec, r);
    }
    lf_pipe_timing_fini(&t);
}

static void all_lists(enum lf_pipe_kind kind, const double *fbw)
{
    const int most = pipe_most_chunks(kind);
    struct count n = {0};
    for (int ranks = 1; ranks <= PIPE_RANKS; ranks++)
        for (int m = pipe_least(kind, ranks); m <= PIPE_MICRO; m++)
            for (int v = pipe_first_chunks(kind); v <= most; v++) {
                struct lf_pipe p = pipe_made(kind, ranks, v, m);
                count_case(&n, &p, fbw);
                lf_pipe_fini(&p);
            }
    /* In a V for equal times alone, and not for few micro-batches: 2P-1 to 24 for P 1 to 8. */
    const bool equal = !(fabs(fbw[0] - fbw[1]) > 0), bent = pipe_bent(kind);
    const int cases = kind == LF_PIPE_DUALPIPE_V ? 128
                      : bent                     ? PIPE_RANKS * PIPE_MICRO
                                                 : PIPE_RANKS * PIPE_MICRO * most;
    tap_ok(n.cases == cases && n.told == (!bent                        ? cases
                                          : !equal                     ? 0
                                          : kind == LF_PIPE_DUALPIPE_V ? 128
                                                                       : 136),
           "%s: %d lists, %d with a closed form", lf_pipe_kind_name(kind), n.cases, n.told);
    tap_i64(n.idle, 0, "every rank is idle for as long as the closed form says");
    tap_i64(n.busy, 0, "and works for as long as all passes take");
    tap_i64(n.live, 0, "as many micro-batches are alive as the closed form says");
}

/* Of one forward list, with messages and without: idle time, what is alive, buffers. */
static void count_forward(struct count *n, struct lf_pipe *p, const struct lf_pipe_cost *cost)
{
    const struct lf_pipe_spec *s = &p->spec;
    const int left = s->micro_batches % s->ranks;
    const double want =
        pipe_bent(s->kind)
            ? (s->ranks - 1) * 1.25
            : (s->ranks - 1 + (left ? (s->chunks - 1) * (s->ranks - left) : 0)) * 1.25 / s->chunks;
    struct lf_pipe_timing t = pipe_timed(p, (struct lf_pipe_walk_opts){.cost = cost});
    n->cases++;
    for (int r = 0; r < s->ranks; r++) {
        n->idle += !(fabs(t.load[r].idle_s - want) < 1e-9);
        n->live += t.load[r].peak_live != 1;
        for (int c = 0; c < s->chunks; c++) {
            const int at = r * s->chunks + c;
            n->busy += p->slots[at] != 1 || p->recv_buffers[LF_PIPE_ACTIVATION][at] > 2 ||
                       p->send_buffers[LF_PIPE_ACTIVATION][at] > 2 ||
                       p->recv_buffers[LF_PIPE_GRADIENT][at] ||
                       p->send_buffers[LF_PIPE_GRADIENT][at];
        }
    }
    lf_pipe_timing_fini(&t);
}

static void all_forward(struct count *n, enum lf_pipe_kind kind, int v)
{
    struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
    pipe_equal_cost(cost, v, 1.25, 0, 0);
    for (int ranks = 1; ranks <= PIPE_RANKS; ranks++)
        for (int m = 1; m <= PIPE_MICRO; m++) {
            lf_err err = LF_ERR_INIT;
            struct lf_pipe p = pipe_forward(kind, ranks, v, m);
            count_forward(n, &p, cost);
            if (lf_pipe_add_messages(&p, NULL, &err) < 0)
                tap_bail("%s", err.text);
            count_forward(n, &p, cost);
            lf_pipe_fini(&p);
        }
}

static void forward_lists(void)
{
    struct lf_pipe p = pipe_forward(LF_PIPE_INTERLEAVED, 2, 2, 3);
    tap_str(pipe_list(&p, 1), "F0.1 F1.1 F0.3 F1.3 F2.1 F2.3", "forwards, in groups of P");
    lf_pipe_fini(&p);
    p = pipe_forward(LF_PIPE_DUALPIPE_V, 3, 2, 3);
    tap_str(pipe_list(&p, 1), "F0.1 F1.1 F0.4 F2.1 F1.4 F2.4", "forwards, chunks in turns");
    lf_pipe_fini(&p);
    struct count n = {0};
    for (int v = 1; v <= PIPE_CHUNKS; v++)
        all_forward(&n, LF_PIPE_INTERLEAVED, v);
    for (int k = 0; k < LF_PIPE_KINDS; k++)
        if (k != LF_PIPE_INTERLEAVED)
            all_forward(&n, (enum lf_pipe_kind)k, pipe_first_chunks((enum lf_pipe_kind)k));
    tap_i64(n.cases, 2 * PIPE_RANKS * PIPE_MICRO * (PIPE_CHUNKS + LF_PIPE_KINDS - 1),
            "lists that only go forwards");
    tap_i64(n.idle, 0, "every rank is idle for as long as the closed form says");
    tap_i64(n.live, 0, "one micro-batch of a rank is alive");
    tap_i64(n.busy, 0, "one slot, two buffers, and none of gradients");
}

static void printed_totals(void)
{
    static const struct {
        enum lf_pipe_kind kind;
        int ranks, chunks, m;
        double f, b, w, end_s;
        int live; /* rank 0 */
    } v[] = {
        {LF_PIPE_GPIPE, 8, 1, 32, 1, 1, 1, 117, 32},
        {LF_PIPE_1F1B, 8, 1, 32, 1, 1, 1, 117, 8},
        {LF_PIPE_INTERLEAVED, 8, 2, 32, 1, 1, 1, 106.5, 23},
        {LF_PIPE_ZB_H1, 8, 1, 32, 1, 1, 1, 103, 8},
        {LF_PIPE_ZB_H1, 8, 1, 32, 1, 1.5, 0.5, 110, 8},
        {LF_PIPE_INTERLEAVED, 8, 2, 32, 1, 1.5, 0.5, 106.5, 23},
        {LF_PIPE_ZB_V, 8, 2, 32, 1, 1, 1, 99.5, 16},
        {LF_PIPE_DUALPIPE_V, 8, 2, 32, 1, 1, 1, 99.5, 17},
        {LF_PIPE_1F1B, 4, 1, 10, 1, 1, 1, 39, 4},
        {LF_PIPE_INTERLEAVED, 4, 2, 10, 1, 1, 1, 34.5, 12},
        {LF_PIPE_INTERLEAVED, 4, 2, 6, 1, 1, 1, 22.5, 12},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
        struct lf_pipe p = pipe_made(v[i].kind, v[i].ranks, v[i].chunks, v[i].m);
        pipe_equal_cost(cost, v[i].chunks, v[i].f, v[i].b, v[i].w);
        struct lf_pipe_timing t = pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost});
        tap_f64(t.end_s, v[i].end_s, 1e-9, "total time");
        tap_i64(t.load[0].peak_live, v[i].live, "pairs of chunk and micro-batch alive on rank 0");
        lf_pipe_timing_fini(&t);
        lf_pipe_fini(&p);
    }
    struct lf_pipe_cost cost[PIPE_RANKS * PIPE_CHUNKS];
    struct lf_pipe p = pipe_grouped(4, 2, 10, 4);
    pipe_equal_cost(cost, 2, 1, 1, 1);
    struct lf_pipe_timing t = pipe_timed(&p, (struct lf_pipe_walk_opts){.cost = cost});
    tap_f64(t.end_s, 39.5, 1e-9, "with N = P and a short last group the gain is lost");
    lf_pipe_timing_fini(&t);
    lf_pipe_fini(&p);
}

static void cyclic_orders(void)
{
    lf_err err = LF_ERR_INIT;
    int cyclic = 0, cases = 0, wrong = 0;
    for (int ranks = 1; ranks <= PIPE_RANKS; ranks++)
        for (int m = 1; m <= PIPE_MICRO; m++)
            for (int v = 2; v <= PIPE_CHUNKS; v++) {
                struct lf_pipe p = pipe_grouped(ranks, v, m, ranks);
                const bool hangs = lf_pipe_walk(NULL, &p, NULL, &err) < 0;
                const int left = m % ranks;
                cases++;
                cyclic += hangs && strstr(err.text, "is cyclic and hangs: rank ");
                wrong += hangs && (m < ranks || left < 1 || left > ranks - 3);
                lf_err_clear(&err);
                lf_pipe_fini(&p);
            }
    tap_i64(cases, 576, "groups of P");
    tap_i64(cyclic, 112, "orders are reported as cyclic");
    tap_i64(wrong, 0, "all of them have a remainder of 1 to P-3");

    struct lf_pipe p = pipe_grouped(4, 3, 5, 4);
    tap_rc(lf_pipe_walk(NULL, &p, NULL, &err), LF_EINVAL, &err,
           "rank 0, F of micro-batch 4, chunk 2 waits for rank 3, F of micro-batch 4, chunk 1; "
           "rank 3, Z of micro-batch 0, chunk 1 waits for rank 0, Z of micro-batch 0, chunk 2",
           "the message names the items of the cycle");
    lf_pipe_fini(&p);
}

static void groups(void)
{
    int wrong = 0;
    for (int ranks = 1; ranks <= PIPE_RANKS; ranks++)
        for (int m = 1; m <= 60; m++) {
            int want = ranks;
            for (int n = m; n >= ranks; n--)
                if (m % n == 0 || m % n >= ranks)
                    want = n;
            wrong += lf_pipe_group(ranks, m) != want;
        }
    tap_i64(wrong, 0, "the group is the smallest that leaves nothing or enough");
    tap_i64(lf_pipe_group(4, 10), 5, "5 for 10 micro-batches on 4 ranks");
    tap_i64(lf_pipe_group(4, 6), 6, "6 for 6");
    tap_i64(lf_pipe_group(4, 2), 4, "P for fewer than P");
    struct lf_pipe p = pipe_made(LF_PIPE_INTERLEAVED, 4, 2, 10),
                   q = pipe_made(LF_PIPE_1F1B, 4, 1, 10);
    tap_ok(p.spec.group == 5 && q.spec.group == 0, "a list tells its group");
    lf_pipe_fini(&p);
    lf_pipe_fini(&q);
}

static void places(void)
{
    const struct lf_pipe_spec s = {LF_PIPE_INTERLEAVED, 3, 4, 6, 0, false};
    int wrong = 0;
    for (int stage = 0; stage < 12; stage++) {
        int rank = -1, chunk = -1;
        lf_pipe_place(&rank, &chunk, &s, stage);
        wrong += rank != stage % 3 || chunk != stage / 3 || lf_pipe_stage(&s, rank, chunk) != stage;
    }
    tap_i64(wrong, 0, "pipeline stage c P + r is chunk c of rank r");
    tap_ok(lf_pipe_goes_round(&s) && !lf_pipe_in_v(&s), "the last rank sends to the first");
    for (int k = LF_PIPE_ZB_V; k <= LF_PIPE_DUALPIPE_V; k++) {
        const struct lf_pipe_spec v = {(enum lf_pipe_kind)k, 3, 2, 6, 0, false};
        static const int want[6] = {0, 1, 2, 2, 1, 0};
        for (int stage = 0; stage < 6; stage++) {
            int rank = -1, chunk = -1;
            lf_pipe_place(&rank, &chunk, &v, stage);
            wrong += rank != want[stage] || chunk != stage / 3 ||
                     lf_pipe_stage(&v, rank, chunk) != stage;
        }
        wrong += lf_pipe_goes_round(&v) || !lf_pipe_in_v(&v);
    }
    tap_i64(wrong, 0, "in a V pipeline stages go forth and back, and never round");
}

static void names(void)
{
    lf_err err = LF_ERR_INIT;
    enum lf_pipe_kind kind = LF_PIPE_GPIPE;
    int wrong = 0;
    for (int k = 0; k < LF_PIPE_KINDS; k++)
        wrong += lf_pipe_kind_parse(&kind, lf_pipe_kind_name((enum lf_pipe_kind)k), NULL) != 0 ||
                 (int)kind != k;
    tap_i64(wrong, 0, "kinds are found by their names");
    tap_rc(lf_pipe_kind_parse(&kind, "zb-h2", &err), LF_EINVAL, &err,
           "\"zb-h2\" is no pipeline schedule (gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipe-v); "
           "do you mean \"zb-h1\"?",
           "an unknown one is told with the nearest");
    tap_rc(lf_pipe_kind_parse(&kind, "somethingelse", &err), LF_EINVAL, &err, "dualpipe-v)",
           "or without");
    tap_ok(kind == LF_PIPE_DUALPIPE_V, "and sets nothing");
}

static void refused(struct lf_pipe_spec s, const char *why)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe p = {.messages = true};
    tap_rc(lf_pipe_init(&p, &s, &err), LF_EINVAL, &err, why, why);
    tap_ok(p.messages && !p.list, "and nothing is set");
}

static void refusals(void)
{
    refused((struct lf_pipe_spec){LF_PIPE_1F1B, 0, 1, 4, 0, false},
            "0 pipeline ranks with 1 chunks");
    refused((struct lf_pipe_spec){LF_PIPE_INTERLEAVED, 2, 0, 4, 0, false}, "with 0 chunks");
    refused((struct lf_pipe_spec){LF_PIPE_1F1B, 2, 1, 0, 0, false}, "0 micro-batches");
    refused((struct lf_pipe_spec){LF_PIPE_INTERLEAVED, 2, 2, 4, -1, false}, "groups of -1");
    refused((struct lf_pipe_spec){LF_PIPE_GPIPE, 2, 2, 4, 0, false}, "gpipe has one chunk a rank");
    refused((struct lf_pipe_spec){LF_PIPE_ZB_H1, 2, 1, 4, 2, false}, "zb-h1 has one chunk a rank");
    refused((struct lf_pipe_spec){LF_PIPE_KINDS, 2, 1, 4, 0, false},
            "no pipeline schedule number 6");
    refused((struct lf_pipe_spec){LF_PIPE_ZB_V, 2, 1, 4, 0, false}, "zb-v has two chunks a rank");
    refused((struct lf_pipe_spec){LF_PIPE_DUALPIPE_V, 2, 2, 3, 0, false},
            "dualpipe-v needs 4 micro-batches on 2 ranks, and there are 3");
    refused((struct lf_pipe_spec){LF_PIPE_INTERLEAVED, 1 << 15, 2, 4, 0, false}, "are too many");
    refused((struct lf_pipe_spec){LF_PIPE_1F1B, 2, 1, 1 << 25, 0, false}, "are too many");
    lf_pipe_fini(NULL);
}

int main(void)
{
    static const double equal[] = {1, 1, 1}, longer[] = {1.25, 1.5, 0.75};
    TAP(16, printed_lists());
    for (int k = 0; k < LF_PIPE_KINDS; k++) {
        TAP(4, all_lists((enum lf_pipe_kind)k, equal));
        TAP(4, all_lists((enum lf_pipe_kind)k, longer));
    }
    TAP(6, forward_lists());
    TAP(23, printed_totals());
    TAP(4, cyclic_orders());
    TAP(5, groups());
    TAP(3, places());
    TAP(4, names());
    TAP(22, refusals());
    return tap_done();
}
