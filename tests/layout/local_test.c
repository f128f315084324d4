/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport of ranks in one process: what calls give, in every mode; what it says where ranks
 * do not agree or wait for ever; that late calls show a wait that is missing and memory that is
 * touched too early.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "tests/layout/local.h"
#include "tests/tap/tap.h"

enum { N = 37, RANKS = 5 };

static const struct local_opts modes[] = {{.ranks = RANKS},
                                          {.ranks = RANKS, .late = true},
                                          {.ranks = RANKS, .turns = 9},
                                          {.ranks = RANKS, .late = true, .turns = 4},
                                          {.ranks = 1},
                                          {.ranks = 1, .late = true}};
enum { MODES = sizeof modes / sizeof modes[0] };

static void fill(float *x, int rank, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(lf_rng_f64(7, (uint32_t)rank, i) - 0.5) * (rank % 2 ? 1e5f : 1.0f);
}

/* ((T + x_0) + x_1) + ... of element i. */
static float sum(const float *seed, int ranks, size_t i)
{
    float y = 0;
    for (int r = 0; r < ranks; r++) {
        float x[2 * N * RANKS];
        fill(x, r, i + 1);
        y = r == 0 && !seed ? x[i] : (r == 0 ? *seed : y) + x[i];
    }
    return y;
}

static bool is_sum(const float *y, const float *seed, int ranks, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float want = sum(seed ? &seed[i] : NULL, ranks, first + i);
        if (memcmp(&want, &y[i], sizeof want) != 0)
            return false;
    }
    return true;
}

#define WANT(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return err->rc ? err->rc : lf_fail(err, LF_EINVAL, "line %d: %s", __LINE__, #x);       \
    } while (0)

/* ---- what calls give ---- */

static int reduce_all(void *user, lf_comm *c, lf_err *err)
{
    float x[N];
    double d = c->rank == 1 ? (double)NAN : c->rank;
    int64_t most = c->rank;
    (void)user;
    fill(x, c->rank, N);
    WANT(lf_comm_all_reduce(c, x, N, LF_COMM_F32, LF_COMM_SUM, err) == 0);
    WANT(is_sum(x, NULL, c->size, 0, N));
    WANT(lf_comm_all_reduce(c, &d, 1, LF_COMM_F64, LF_COMM_MAX, err) == 0);
    WANT((isnan(d) != 0) == (c->size > 1));
    WANT(lf_comm_agree_max(c, &most, err) == 0 && most == c->size - 1);
    WANT(lf_comm_all_reduce(c, NULL, 0, LF_COMM_F32, LF_COMM_SUM, err) == 0);
    return lf_comm_barrier(c, err);
}

/* Rank r's chunk has r + 1 elements; out is that chunk of in, or elsewhere, with a seed or not. */
static int scatter_sums(void *user, lf_comm *c, lf_err *err)
{
    size_t counts[RANKS], first = 0, all = 0;
    (void)user;
    for (int r = 0; r < c->size; r++) {
        counts[r] = (size_t)r + 1;
        first += r < c->rank ? counts[r] : 0;
        all += counts[r];
    }
    const size_t n = counts[c->rank];
    for (int how = 0; how < 4; how++) {
        float x[N], before[N], seed[N], apart[N], *out = how % 2 ? x + first : apart;
        fill(x, c->rank, all);
        memcpy(before, x, sizeof before);
        fill(seed, 77, n);
        memcpy(apart, seed, sizeof apart);
        const bool seeded = how >= 2;
        WANT(lf_comm_reduce_scatter(c, out, x, counts, LF_COMM_F32,
                                    !seeded        ? NULL
                                    : out == apart ? apart
                                                   : seed,
                                    err) == 0);
        WANT(is_sum(out, seeded ? seed : NULL, c->size, first, n));
        memcpy(before + first, x + first, n * sizeof *x);
        WANT(memcmp(before, x, all * sizeof *x) == 0);
    }
    return 0;
}

static int gather_all(void *user, lf_comm *c, lf_err *err)
{
    size_t bytes[RANKS], to[RANKS], from[RANKS], at = 0;
    char all[64], in[64], out[64];
    (void)user;
    for (int r = 0; r < c->size; r++)
        bytes[r] = (size_t)(r * 2 + (r != 1));
    memset(all, 0, sizeof all);
    for (int r = 0; r < c->rank; r++)
        at += bytes[r];
    memset(all + at, 'a' + c->rank, bytes[c->rank]);
    WANT(lf_comm_all_gather(c, all, bytes, err) == 0);
    for (int r = 0, i = 0; r < c->size; r++)
        for (size_t k = 0; k < bytes[r]; k++)
            WANT(all[i++] == 'a' + r);
    size_t total = 0, n = 0;
    for (int r = 0; r < c->size; r++) { /* rank a has a + b bytes for rank b */
        to[r] = from[r] = (size_t)(c->rank + r);
        memset(in + total, 'a' + c->rank, to[r]);
        total += to[r];
    }
    WANT(lf_comm_all_to_all(c, out, from, in, to, err) == 0);
    for (int r = 0; r < c->size; r++)
        for (size_t k = 0; k < from[r]; k++)
            WANT(out[n++] == 'a' + r);
    int word = c->rank == c->size - 1 ? 11 : 0;
    WANT(lf_comm_broadcast(c, &word, sizeof word, c->size - 1, err) == 0 && word == 11);
    return 0;
}

/* Every rank sends two messages of one tag and one of another to the next rank, which asks for the
 * other first. */
static int exchange(void *user, lf_comm *c, lf_err *err)
{
    const int next = (c->rank + 1) % c->size, last = (c->rank + c->size - 1) % c->size;
    int out[3] = {c->rank, 10 + c->rank, 20 + c->rank}, in[3];
    lf_comm_req q[6] = {{0}};
    bool done = false;
    (void)user;
    if (c->size == 1)
        return 0;
    for (int k = 0; k < 3; k++)
        WANT(lf_comm_isend(c, &out[k], sizeof(int), next, k / 2, &q[k], err) == 0);
    WANT(lf_comm_irecv(c, &in[2], sizeof(int), last, 1, &q[5], err) == 0);
    for (int k = 0; k < 2; k++)
        WANT(lf_comm_irecv(c, &in[k], sizeof(int), last, 0, &q[3 + k], err) == 0);
    while (!done)
        WANT(lf_comm_test(&q[3], &done, err) == 0);
    WANT(lf_comm_wait_all(q, 6, err) == 0);
    WANT(in[0] == last && in[1] == 10 + last && in[2] == 20 + last);
    struct lf_comm_counts n;
    lf_comm_counted(c, &n);
    WANT(n.message.calls == 6 && n.message.sent == 3 && n.message.bytes_received == 12);
    return 0;
}

/* Groups of ranks side by side, and one across; calls of both are under way at once. */
static int split(void *user, lf_comm *c, lf_err *err)
{
    lf_comm *part = lf_comm_split(c, c->rank % 2, -c->rank, err),
            *none = lf_comm_split(c, -1, 0, err);
    int64_t all = 1, mine = c->rank;
    lf_comm_req q[2] = {{0}};
    (void)user;
    WANT(part && !none && !err->rc);
    WANT(part->size == (c->size + !(c->rank % 2)) / 2);
    for (int k = 0; k < 2; k++)
        WANT(lf_comm_start(k ? c : part,
                           &(struct lf_comm_call){.what = LF_COMM_ALL_REDUCE,
                                                  .type = LF_COMM_I64,
                                                  .out = k ? &all : &mine,
                                                  .n = 1},
                           &q[k], err) == 0);
    WANT(lf_comm_wait(&q[1], err) == 0 && lf_comm_wait(&q[0], err) == 0);
    WANT(all == c->size);
    int64_t want = 0;
    for (int r = c->rank % 2; r < c->size; r += 2)
        want += r;
    WANT(mine == want);
    lf_comm_destroy(part);
    return 0;
}

static void test_calls(void)
{
    static const struct {
        local_fn fn;
        const char *name;
    } rows[] = {{reduce_all, "all-reduce and barrier"},
                {scatter_sums, "reduce-scatter, in place, seeded"},
                {gather_all, "all-gather, all-to-all, broadcast"},
                {exchange, "messages"},
                {split, "groups"}};
    for (int m = 0; m < MODES; m++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            lf_err err = LF_ERR_INIT;
            const int rc = local_run(&modes[m], rows[i].fn, NULL, &err);
            tap_ok(rc == 0, "%s: %d ranks%s%s", rows[i].name, modes[m].ranks,
                   modes[m].late ? ", late" : "", modes[m].turns ? ", drawn turns" : "");
            if (rc != 0)
                tap_diag("%s", err.text);
        }
}

/* An all-reduce moves what lf_plan_comm says, as do its two halves. */
static int counted(void *user, lf_comm *c, lf_err *err)
{
    float x[RANKS * 4];
    size_t counts[RANKS], bytes[RANKS];
    struct lf_comm_counts n;
    (void)user;
    fill(x, c->rank, RANKS * 4);
    for (int r = 0; r < RANKS; r++) {
        counts[r] = 4;
        bytes[r] = 16;
    }
    WANT(lf_comm_all_reduce(c, x, RANKS * 4, LF_COMM_F32, LF_COMM_SUM, err) == 0);
    lf_comm_counted(c, &n);
    const uint64_t whole = (RANKS - 1) * RANKS * 16; /* a short sum: all of it to every other */
    WANT(n.collective.calls == 1 && n.collective.bytes_sent == whole);
    WANT(lf_comm_reduce_scatter(c, x + 4 * c->rank, x, counts, LF_COMM_F32, NULL, err) == 0);
    WANT(lf_comm_all_gather(c, x, bytes, err) == 0);
    lf_comm_counted(c, &n);
    WANT(n.collective.calls == 3 && n.collective.bytes_sent == whole + 2 * (RANKS - 1) * 16 &&
         n.collective.bytes_received == n.collective.bytes_sent);
    return 0;
}

/* ---- the order is fixed ---- */

struct order {
    char text[256];
    size_t n;
};

static int write_order(void *user, lf_comm *c, lf_err *err)
{
    struct order *o = user;
    for (int k = 0; k < 4; k++) {
        o->text[o->n++] = (char)('0' + c->rank);
        const int rc = lf_comm_barrier(c, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void test_order(void)
{
    lf_err err = LF_ERR_INIT;
    struct order a = {0}, b[2] = {{{0}, 0}, {{0}, 0}};
    tap_rc(local_run(&(struct local_opts){.ranks = 3}, write_order, &a, &err), 0, &err, NULL,
           "three ranks write down their turns");
    tap_str(a.text, "012201120012", "a rank goes on until it must wait, then the next one does");
    for (int k = 0; k < 2; k++)
        local_run(&(struct local_opts){.ranks = 3, .turns = 5}, write_order, &b[k], &err);
    tap_ok(strcmp(b[0].text, b[1].text) == 0 && strcmp(b[0].text, a.text) != 0,
           "drawn turns are others, and the same each time: %s", b[0].text);
}

/* ---- ranks that do not agree ---- */

static int skip_one(void *user, lf_comm *c, lf_err *err)
{
    float x[4] = {0};
    double d = 0;
    (void)user;
    int rc = c->rank == 1 ? 0 : lf_comm_all_reduce(c, x, 4, LF_COMM_F32, LF_COMM_SUM, err);
    return rc != 0 ? rc : lf_comm_all_reduce(c, &d, 1, LF_COMM_F64, LF_COMM_SUM, err);
}

static int skip_last(void *user, lf_comm *c, lf_err *err)
{
    (void)user;
    int rc = lf_comm_barrier(c, err);
    return rc != 0 || c->rank == 1 ? rc : lf_comm_barrier(c, err);
}

static int other_order(void *user, lf_comm *c, lf_err *err)
{
    int64_t x = 0;
    (void)user;
    if (c->rank == 2)
        return lf_comm_barrier(c, err);
    return lf_comm_agree_max(c, &x, err);
}

static int other_size(void *user, lf_comm *c, lf_err *err)
{
    size_t bytes[3] = {4, 4, c->rank == 2 ? 8 : 4};
    char all[16] = {0};
    (void)user;
    return lf_comm_all_gather(c, all, bytes, err);
}

static int ring_of_receives(void *user, lf_comm *c, lf_err *err)
{
    int x = 0;
    (void)user;
    return lf_comm_recv(c, &x, sizeof x, (c->rank + 1) % c->size, 7, err);
}

static int other_length(void *user, lf_comm *c, lf_err *err)
{
    char x[8] = {0};
    (void)user;
    if (c->rank == 2)
        return 0;
    return c->rank ? lf_comm_recv(c, x, 8, 0, 1, err) : lf_comm_send(c, x, 4, 1, 1, err);
}

static int ask_for_ever(void *user, lf_comm *c, lf_err *err)
{
    int x = 0;
    lf_comm_req q = {0};
    bool done = false;
    (void)user;
    if (c->rank == 2)
        return 0;
    int rc = lf_comm_irecv(c, &x, sizeof x, 2, 0, &q, err);
    while (rc == 0 && !done)
        rc = lf_comm_test(&q, &done, err);
    return rc;
}

static int fail_alone(void *user, lf_comm *c, lf_err *err)
{
    (void)user;
    return c->rank == 1 ? lf_fail(err, LF_EIO, "the disk is full") : lf_comm_barrier(c, err);
}

static void test_disagree(void)
{
    static const struct {
        local_fn fn;
        const char *says, *name;
        int rc;
    } rows[] = {
        {skip_one,
         "rank 1 begins all_reduce (sum) of 1 f64, where others are in all_reduce (sum) of 4 f32, "
         "call 1 of communicator 0, begun by 0 1 2",
         "a rank that leaves a call out", LF_ECOMM},
        {skip_last,
         "rank 0 waits in barrier, call 2 of communicator 0, begun by 0 2; rank 1 has ended after "
         "1 calls; rank 2 waits in",
         "the last one", LF_ECOMM},
        {other_order, "rank 2 begins barrier, where others are in all_reduce (max) of 1 i64",
         "another order", LF_ECOMM},
        {other_size,
         "rank 2 begins all_gather of 16 bytes, where others are in all_gather of 12 bytes",
         "other sizes", LF_ECOMM},
        {ring_of_receives,
         "no rank can go on; rank 0 waits in recv of 4 bytes from rank 1 with tag 7; rank 1 waits",
         "ranks that wait for each other", LF_ECOMM},
        {other_length, "rank 1 and rank 0 exchange a message of 8 and of 4 bytes",
         "a message of two lengths", LF_ECOMM},
        {ask_for_ever, "rank 0 asks for recv of 4 bytes from rank 2",
         "ranks that ask again and again", LF_ECOMM},
        {fail_alone, "the disk is full", "a rank that fails by itself", LF_EIO}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_err err = LF_ERR_INIT;
        tap_rc(local_run(&(struct local_opts){.ranks = 3}, rows[i].fn, NULL, &err), rows[i].rc,
               &err, rows[i].says, rows[i].name);
    }
}

/* ---- late ---- */

enum touch { WAITS_FIRST, READS_FIRST, WRITES_FIRST, CHANGES_IN };

static int touch_early(void *user, lf_comm *c, lf_err *err)
{
    const enum touch how = *(enum touch *)user;
    float in[2] = {1, 2}, out[2] = {0, 0};
    const size_t counts[2] = {1, 1};
    lf_comm_req q = {0};
    WANT(lf_comm_start(c,
                       &(struct lf_comm_call){.what = LF_COMM_REDUCE_SCATTER,
                                              .type = LF_COMM_F32,
                                              .in = in,
                                              .out = out,
                                              .counts = counts},
                       &q, err) == 0);
    WANT(lf_comm_barrier(c, err) == 0); /* it has happened */
    float seen = out[0];
    if (how == WRITES_FIRST && c->rank == 1)
        out[0] = 5;
    if (how == CHANGES_IN && c->rank == 1)
        in[0] = 5;
    const int rc = lf_comm_wait(&q, err);
    if (rc != 0)
        return rc;
    seen = how == READS_FIRST ? seen : out[0];
    return seen == (float)(2 * (c->rank + 1))
               ? 0
               : lf_fail(err, LF_ENUMERIC, "it computes with %g", (double)seen);
}

static void test_late(void)
{
    static const struct {
        enum touch how;
        const char *says, *name;
        int rc;
    } rows[] = {
        {WAITS_FIRST, NULL, "who waits has what was sent", 0},
        {READS_FIRST, "it computes with", "who does not has NaN", LF_ENUMERIC},
        {WRITES_FIRST,
         "rank 1, reduce_scatter of 2 f32, call 1 of communicator 0: what it gives was written to "
         "before it was done",
         "what a call gives is not written to before", LF_ECOMM},
        {CHANGES_IN, "what it reads was changed before it was done", "nor what it reads",
         LF_ECOMM}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_err err = LF_ERR_INIT;
        enum touch how = rows[i].how;
        tap_rc(local_run(&(struct local_opts){.ranks = 2, .late = true}, touch_early, &how, &err),
               rows[i].rc, &err, rows[i].says, rows[i].name);
    }
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    TAP(5 * MODES, test_calls());
    tap_rc(local_run(&(struct local_opts){.ranks = RANKS}, counted, NULL, &err), 0, &err, NULL,
           "what is moved is counted");
    TAP(3, test_order());
    TAP(8, test_disagree());
    TAP(4, test_late());
    return tap_done();
}
