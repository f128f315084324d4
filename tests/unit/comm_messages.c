/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of the test of calls that do not wait, started by tests/flow/ranks_messages.sh under a
 * launcher:
 *
 *     check     everything; rank 0 prints "bits HASH" of all results
 *     start     prints how many start-up blobs each rank has read
 *     compute   messages arrive while every rank computes and calls lf_comm_poll at its borders
 *     product   the same, with kernels of the CPU backend that call it between their tasks
 *     still     a rank that computes and calls nothing gets nothing: the two above can fail
 *
 * Nothing here looks at a clock. Files in the working directory tell ranks where the others are,
 * because a message for that would move other messages too.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/back/back.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/comm/mesh.h"
#include "tests/unit/comm_value.h"

enum { LONGEST = 3 << 20, RANKS = 8 };

static lf_err err = LF_ERR_INIT;
static lf_comm *world;
static lf_hash *results;
static int me, n_ranks, bad;

static void check_at(int line, bool good, const char *what, size_t n)
{
    if (good)
        return;
    bad++;
    fprintf(stderr, "rank %d, line %d: %s (%zu): %s\n", me, line, what, n, err.text);
    lf_err_clear(&err);
}
#define CHECK(good, what, n) check_at(__LINE__, (good), (what), (n))

static void *get(size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    if (!p)
        abort();
    return p;
}

/* ---- messages from rank to rank ---- */

static unsigned char byte_of(int from, int to, int number, size_t i)
{
    return (unsigned char)(31 * from + 7 * to + 131 * number + (int)(i % 251) + (int)(i >> 12));
}

static unsigned char *message(int from, int to, int number, size_t n)
{
    unsigned char *p = get(n);
    for (size_t i = 0; i < n; i++)
        p[i] = byte_of(from, to, number, i);
    return p;
}

static bool is_message(const unsigned char *p, int from, int to, int number, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_of(from, to, number, i))
            return false;
    return p[n] == 0;
}

static const size_t sizes[] = {
    0, 1, 7, 4096, 8191, 8192, 8193, 64 << 10, (64 << 10) + 1, 300001, LONGEST - 1, LONGEST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* All pairs at once, every size, tags of two directions and two chunks, waited for from the last to
 * the first. */
static void test_pairs(void)
{
    lf_comm_req q[2 * RANKS * SIZES] = {{0}};
    unsigned char *out[RANKS][SIZES], *in[RANKS][SIZES];
    size_t n = 0;
    struct lf_comm_counts before, after;
    lf_comm_counted(world, &before);
    uint64_t bytes = 0;
    for (int r = 0; r < n_ranks; r++)
        for (int s = 0; r != me && s < SIZES; s++) {
            const int tag =
                lf_comm_tag(s % 2 ? LF_COMM_FORWARD : LF_COMM_BACKWARD, s % 4 / 2 ? 3 : 0);
            in[r][s] = get(sizes[s]);
            out[r][s] = message(me, r, s, sizes[s]);
            CHECK(lf_comm_irecv(world, in[r][s], sizes[s], r, tag, &q[n], &err) == 0, "irecv", n);
            CHECK(lf_comm_isend(world, out[r][s], sizes[s], r, tag, &q[n + 1], &err) == 0, "isend",
                  n);
            n += 2;
            bytes += sizes[s];
        }
    for (; n > 0; n--)
        CHECK(lf_comm_wait(&q[n - 1], &err) == 0 && !q[n - 1].flight, "wait", n);
    for (int r = 0; r < n_ranks; r++)
        for (int s = 0; r != me && s < SIZES; s++) {
            CHECK(is_message(in[r][s], r, me, s, sizes[s]), "content", sizes[s]);
            free(in[r][s]);
            free(out[r][s]);
        }
    lf_comm_counted(world, &after);
    const uint64_t k = (uint64_t)(n_ranks - 1) * SIZES;
    CHECK(after.message.sent - before.message.sent == k &&
              after.message.received - before.message.received == k &&
              after.message.calls - before.message.calls == 2 * k,
          "messages counted", (size_t)k);
    CHECK(after.message.bytes_sent - before.message.bytes_sent == bytes &&
              after.message.bytes_received - before.message.bytes_received == bytes,
          "bytes counted", (size_t)bytes);
    CHECK(after.collective.sent == before.collective.sent, "none of a collective", 0);
}

/* One pair, one tag: the order of the posts is the order of the messages, short ones among long
 * ones. */
static void test_order(void)
{
    enum { K = 24 };
    const int next = (me + 1) % n_ranks, last = (me + n_ranks - 1) % n_ranks;
    lf_comm_req to[K] = {{0}}, from[K] = {{0}};
    unsigned char *out[K], *in[K];
    for (int i = 0; i < K; i++) {
        const size_t n = sizes[(i * 5) % SIZES];
        in[i] = get(n);
        out[i] = message(me, next, i, n);
        CHECK(lf_comm_isend(world, out[i], n, next, 77, &to[i], &err) == 0, "isend", n);
        if (i % 2) /* half of them after the next were sent */
            for (int k = i - 1; k <= i; k++)
                CHECK(lf_comm_irecv(world, in[k], sizes[(k * 5) % SIZES], last, 77, &from[k],
                                    &err) == 0,
                      "irecv", n);
    }
    for (int i = 0; i < K; i++) { /* in an odd order, and by looking again and again */
        const int k = i * 7 % K;
        bool done = false;
        while (!done && !bad)
            CHECK(lf_comm_test(&from[k], &done, &err) == 0, "test", (size_t)k);
        CHECK(is_message(in[k], last, me, k, sizes[(k * 5) % SIZES]), "in order", (size_t)k);
    }
    CHECK(lf_comm_wait_all(to, K, &err) == 0, "wait_all", K);
    for (int i = 0; i < K; i++) {
        free(in[i]);
        free(out[i]);
    }
}

/* As many requests as there may be, one more, and again after one is done. */
static void test_bound(void)
{
    static lf_comm_req q[LF_COMM_MAX_REQUESTS + 1];
    static int in[LF_COMM_MAX_REQUESTS + 1], out[LF_COMM_MAX_REQUESTS + 1];
    const int next = (me + 1) % n_ranks, last = (me + n_ranks - 1) % n_ranks;
    for (int i = 0; i < LF_COMM_MAX_REQUESTS; i++)
        CHECK(lf_comm_irecv(world, &in[i], sizeof in[i], last, 5, &q[i], &err) == 0, "irecv",
              (size_t)i);
    lf_comm_req *more = &q[LF_COMM_MAX_REQUESTS];
    CHECK(lf_comm_irecv(world, in, sizeof in[0], last, 5, more, &err) == LF_EINVAL &&
              strstr(err.text, "1024 requests") && !more->flight,
          "one too many", 0);
    lf_err_clear(&err);
    CHECK(lf_comm_barrier(world, &err) == 0, "calls that wait need none", 0);
    for (int i = 0; i <= LF_COMM_MAX_REQUESTS; i++) {
        out[i] = 3 * i + me;
        CHECK(lf_comm_send(world, &out[i], sizeof out[i], next, 5, &err) == 0, "send", (size_t)i);
    }
    CHECK(lf_comm_wait(&q[0], &err) == 0, "wait", 0);
    CHECK(lf_comm_irecv(world, &in[LF_COMM_MAX_REQUESTS], sizeof in[0], last, 5, more, &err) == 0,
          "then there is room for one", 0);
    CHECK(lf_comm_wait_all(q, LF_COMM_MAX_REQUESTS + 1, &err) == 0, "wait_all", 0);
    for (int i = 0; i <= LF_COMM_MAX_REQUESTS; i++)
        CHECK(in[i] == 3 * i + last, "content", (size_t)i);
}

/* ---- collectives ---- */

static size_t bytes_of(enum lf_comm_type t)
{
    return t == LF_COMM_BF16 ? 2 : t == LF_COMM_F32 ? 4 : 8;
}

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u += 0x7fff + (u >> 16 & 1);
    return (uint16_t)(u >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void put(void *p, enum lf_comm_type t, size_t i, double v)
{
    if (t == LF_COMM_F32)
        ((float *)p)[i] = (float)v;
    else if (t == LF_COMM_F64)
        ((double *)p)[i] = v;
    else if (t == LF_COMM_BF16)
        ((uint16_t *)p)[i] = to_bf16((float)v);
    else
        ((int64_t *)p)[i] = (int64_t)(v * 1e9);
}

static void *values(enum lf_comm_type t, int rank, size_t first, size_t n)
{
    void *p = get(n * bytes_of(t));
    for (size_t i = 0; i < n; i++)
        put(p, t, i, comm_value(rank, first + i));
    return p;
}

/* The definition: ((T + x_0) + x_1) + ... element by element, of elements [first, first + n). */
static void *sums(enum lf_comm_type t, bool seed, size_t first, size_t n)
{
    void *p = get(n * bytes_of(t));
    for (size_t i = 0; i < n; i++) {
        float f = 0;
        double d = 0;
        int64_t w = 0;
        for (int r = seed ? -1 : 0; r < n_ranks; r++) {
            const double v = comm_value(r, first + i);
            const float x = t == LF_COMM_BF16 ? from_bf16(to_bf16((float)v)) : (float)v;
            const bool start = r == (seed ? -1 : 0);
            f = start ? x : f + x;
            d = start ? v : d + v;
            w += (int64_t)(v * 1e9);
        }
        if (t == LF_COMM_I64)
            ((int64_t *)p)[i] = w;
        else
            put(p, t, i, t == LF_COMM_F64 ? d : (double)f);
    }
    return p;
}

/* Calls of all kinds with what must come out of them. */
struct case_ {
    struct lf_comm_call call;
    size_t counts[RANKS], from[RANKS];
    void *out, *in, *seed, *want;
    size_t bytes; /* of out */
};

static void all_reduce_case(struct case_ *k, enum lf_comm_type t, size_t n)
{
    k->out = values(t, me, 0, n);
    k->want = sums(t, false, 0, n);
    k->bytes = n * bytes_of(t);
    k->call = (struct lf_comm_call){
        .what = LF_COMM_ALL_REDUCE, .type = t, .op = LF_COMM_SUM, .out = k->out, .n = n};
}

/* Uneven, none for rank 1, seeded or not. */
static void scatter_case(struct case_ *k, enum lf_comm_type t, size_t scale, bool seed)
{
    size_t total = 0, first = 0;
    for (int r = 0; r < n_ranks; r++) {
        k->counts[r] = r == 1 ? 0 : scale * (size_t)(r + 1) + (size_t)r;
        first = r == me ? total : first;
        total += k->counts[r];
    }
    const size_t n = k->counts[me];
    k->in = values(t, me, 0, total);
    k->seed = values(t, -1, first, n);
    k->out = get(n * bytes_of(t));
    if (seed && scale % 2) { /* T is where the sum goes */
        memcpy(k->out, k->seed, n * bytes_of(t));
        free(k->seed);
        k->seed = NULL;
    }
    k->want = sums(t, seed, first, n);
    k->bytes = n * bytes_of(t);
    k->call = (struct lf_comm_call){.what = LF_COMM_REDUCE_SCATTER,
                                    .type = t,
                                    .out = k->out,
                                    .in = k->in,
                                    .seed = !seed     ? NULL
                                            : k->seed ? k->seed
                                                      : k->out,
                                    .counts = k->counts};
}

static void gather_case(struct case_ *k, size_t scale)
{
    size_t at[RANKS] = {0}, total = 0;
    for (int r = 0; r < n_ranks; r++) {
        k->counts[r] = scale * (size_t)((r + 2) % 3);
        at[r] = total;
        total += k->counts[r];
    }
    unsigned char *out = get(total), *want = get(total);
    for (int r = 0; r < n_ranks; r++)
        for (size_t i = 0; i < k->counts[r]; i++) {
            want[at[r] + i] = byte_of(r, 0, 1, i);
            out[at[r] + i] = r == me ? want[at[r] + i] : 0;
        }
    k->out = out;
    k->want = want;
    k->bytes = total;
    k->call = (struct lf_comm_call){.what = LF_COMM_ALL_GATHER, .out = out, .counts = k->counts};
}

/* What rank a has for rank b: uneven, none from 0 to 1. */
static size_t block(int a, int b, size_t scale)
{
    return a == 0 && b == 1 ? 0 : scale * (size_t)((3 * a + 5 * b) % 4) + (size_t)a;
}

static void exchange_case(struct case_ *k, size_t scale)
{
    size_t to = 0, from = 0;
    for (int r = 0; r < n_ranks; r++) {
        to += k->counts[r] = block(me, r, scale);
        from += k->from[r] = block(r, me, scale);
    }
    unsigned char *in = get(to), *out = get(from), *want = get(from);
    k->in = in;
    k->out = out;
    k->want = want;
    k->bytes = from;
    for (int r = 0; r < n_ranks; r++) {
        for (size_t i = 0; i < k->counts[r]; i++)
            *in++ = byte_of(me, r, 2, i);
        for (size_t i = 0; i < k->from[r]; i++)
            *want++ = byte_of(r, me, 2, i);
    }
    k->call = (struct lf_comm_call){
        .what = LF_COMM_ALL_TO_ALL, .in = k->in, .out = out, .counts = k->counts, .from = k->from};
}

static void broadcast_case(struct case_ *k, size_t n, int root)
{
    k->out = me == root ? message(root, 0, 3, n) : get(n);
    k->want = message(root, 0, 3, n);
    k->bytes = n;
    k->call = (struct lf_comm_call){.what = LF_COMM_BROADCAST, .out = k->out, .n = n, .peer = root};
}

enum { CASES = 22 };

static void make_cases(struct case_ *k)
{
    static const size_t n[] = {0, 1, 1000, 5000, 300000, 900001};
    size_t c = 0;
    memset(k, 0, CASES * sizeof *k);
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++)
        all_reduce_case(&k[c++], (enum lf_comm_type)(i % 4), n[i]);
    for (int t = 0; t < 4; t++)
        scatter_case(&k[c++], (enum lf_comm_type)t, t % 2 ? 7 : 70000, true);
    scatter_case(&k[c++], LF_COMM_F32, 300001, false);
    scatter_case(&k[c++], LF_COMM_F32, 300001, true);
    scatter_case(&k[c++], LF_COMM_F64, 0, true);
    gather_case(&k[c++], 0);
    gather_case(&k[c++], 5);
    gather_case(&k[c++], 900000);
    exchange_case(&k[c++], 0);
    exchange_case(&k[c++], 3);
    exchange_case(&k[c++], 400000);
    broadcast_case(&k[c++], 1500001, n_ranks - 1);
    broadcast_case(&k[c++], 0, 0);
    k[c++].call.what = LF_COMM_BARRIER;
    CHECK(c == CASES, "cases", c);
}

static void end_cases(struct case_ *k, const char *what)
{
    for (int i = 0; i < CASES; i++) {
        CHECK(k[i].bytes == 0 || memcmp(k[i].out, k[i].want, k[i].bytes) == 0, what, (size_t)i);
        if (k[i].bytes)
            lf_hash_update(results, k[i].out, k[i].bytes);
        free(k[i].out);
        free(k[i].in);
        free(k[i].seed);
        free(k[i].want);
    }
}

static void call_of(const struct lf_comm_call *a)
{
    int rc = 0;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        rc = lf_comm_all_reduce(world, a->out, a->n, a->type, a->op, &err);
        break;
    case LF_COMM_REDUCE_SCATTER:
        rc = lf_comm_reduce_scatter(world, a->out, a->in, a->counts, a->type, a->seed, &err);
        break;
    case LF_COMM_ALL_GATHER:
        rc = lf_comm_all_gather(world, a->out, a->counts, &err);
        break;
    case LF_COMM_ALL_TO_ALL:
        rc = lf_comm_all_to_all(world, a->out, a->from, a->in, a->counts, &err);
        break;
    case LF_COMM_BROADCAST:
        rc = lf_comm_broadcast(world, a->out, a->n, a->peer, &err);
        break;
    default:
        rc = lf_comm_barrier(world, &err);
        break;
    }
    CHECK(rc == 0, "call that waits", (size_t)a->what);
}

/* One after the other, in calls that wait. */
static void test_waiting(void)
{
    struct case_ k[CASES];
    make_cases(k);
    for (int i = 0; i < CASES; i++)
        call_of(&k[i].call);
    end_cases(k, "bits of a call that waits");
}

/* All begun before any is waited for, messages and a call that waits among them; waited for from
 * the last to the first. */
static void test_together(void)
{
    struct case_ k[CASES];
    lf_comm_req q[CASES] = {{0}}, to[CASES] = {{0}}, from[CASES] = {{0}};
    const int next = (me + 1) % n_ranks, last = (me + n_ranks - 1) % n_ranks;
    unsigned char *out[CASES], *in[CASES];
    make_cases(k);
    for (int i = 0; i < CASES; i++) {
        const size_t n = sizes[i % SIZES];
        in[i] = get(n);
        out[i] = message(me, next, i, n);
        CHECK(lf_comm_start(world, &k[i].call, &q[i], &err) == 0, "start", (size_t)i);
        if (n_ranks > 1) {
            CHECK(lf_comm_irecv(world, in[i], n, last, 9, &from[i], &err) == 0, "irecv", n);
            CHECK(lf_comm_isend(world, out[i], n, next, 9, &to[i], &err) == 0, "isend", n);
        }
        if (i == CASES / 2) {
            int64_t one = 1;
            CHECK(lf_comm_all_reduce(world, &one, 1, LF_COMM_I64, LF_COMM_SUM, &err) == 0 &&
                      one == n_ranks,
                  "a call that waits behind those", 0);
        }
    }
    for (int i = CASES - 1; i >= 0; i--) {
        CHECK(lf_comm_wait(&q[i], &err) == 0, "wait", (size_t)i);
        CHECK(lf_comm_wait(&from[i], &err) == 0 && lf_comm_wait(&to[i], &err) == 0, "wait",
              (size_t)i);
        CHECK(n_ranks == 1 || is_message(in[i], last, me, i, sizes[i % SIZES]), "content",
              (size_t)i);
        free(in[i]);
        free(out[i]);
    }
    end_cases(k, "bits of a call that does not wait");
}

/* Collectives of two communicators, begun in an order that differs from rank to rank. */
static void test_two_communicators(void)
{
    enum { N = 300000 };
    lf_comm *pair = lf_comm_split(world, me / 2, 0, &err);
    CHECK(pair != NULL, "split", 0);
    if (!pair)
        return;
    float *a = values(LF_COMM_F32, me, 0, N), *want = sums(LF_COMM_F32, false, 0, N);
    int64_t b = 10 + me, want_b = pair->size == 2 ? 20 + me / 2 * 4 + 1 : 10 + me;
    const struct lf_comm_call calls[] = {
        {.what = LF_COMM_ALL_REDUCE, .type = LF_COMM_F32, .out = a, .n = N},
        {.what = LF_COMM_ALL_REDUCE, .type = LF_COMM_I64, .out = &b, .n = 1}};
    lf_comm_req q[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        const int k = (me + i) % 2;
        CHECK(lf_comm_start(k ? pair : world, &calls[k], &q[k], &err) == 0, "start", (size_t)k);
    }
    CHECK(lf_comm_wait(&q[me % 2], &err) == 0 && lf_comm_wait(&q[1 - me % 2], &err) == 0, "wait",
          0);
    CHECK(memcmp(a, want, N * sizeof *a) == 0 && b == want_b, "both", 0);
    struct lf_comm_counts n;
    lf_comm_counted(pair, &n);
    CHECK(n.collective.calls == 1 && n.collective.sent == (uint64_t)(pair->size - 1) &&
              n.collective.bytes_received == 8u * (uint64_t)(pair->size - 1) &&
              n.message.calls == 0,
          "a communicator counts its own", 0);
    free(a);
    free(want);
    lf_comm_destroy(pair);
}

/* What every rank has sent, all have received. */
static void test_balance(void)
{
    struct lf_comm_counts n;
    lf_comm_counted(world, &n);
    int64_t v[] = {(int64_t)(n.collective.sent - n.collective.received),
                   (int64_t)(n.collective.bytes_sent - n.collective.bytes_received),
                   (int64_t)(n.message.bytes_sent - n.message.bytes_received)};
    CHECK(lf_comm_all_reduce(world, v, 3, LF_COMM_I64, LF_COMM_SUM, &err) == 0 && v[0] == 0 &&
              v[1] == 0 && v[2] == 0,
          "sent and received", (size_t)v[1]);
}

/* Counts that follow from the definition of an all-to-all, above and below the longest piece. */
static void test_long(void)
{
    const size_t n = ((size_t)16 << 20) + 5;
    size_t to[RANKS] = {0}, from[RANKS] = {0};
    struct lf_comm_counts a, b;
    if (n_ranks != 2)
        return;
    to[1 - me] = me == 0 ? n : 3;
    from[1 - me] = me == 0 ? 3 : n;
    unsigned char *in = message(me, 1 - me, 5, to[1 - me]), *out = get(from[1 - me]);
    lf_comm_counted(world, &a);
    CHECK(lf_comm_all_to_all(world, out, from, in, to, &err) == 0, "all_to_all", n);
    lf_comm_counted(world, &b);
    CHECK(is_message(out, 1 - me, me, 5, from[1 - me]), "content", n);
    CHECK(b.collective.bytes_sent - a.collective.bytes_sent == to[1 - me] &&
              b.collective.received - a.collective.received == (me == 0 ? 1u : 2u),
          "counted", n);
    free(in);
    free(out);
}

static void test_refusals(void)
{
    lf_comm_req q = {0};
    int x = 0;
    CHECK(lf_comm_isend(world, &x, 4, me, 0, &q, &err) == LF_EINVAL && !q.flight, "to oneself", 0);
    lf_err_clear(&err);
    CHECK(lf_comm_irecv(world, &x, 4, n_ranks, 0, &q, &err) == LF_EINVAL, "nobody", 0);
    lf_err_clear(&err);
    CHECK(n_ranks == 1 || lf_comm_isend(world, &x, 4, (me + 1) % n_ranks, LF_COMM_MAX_TAG + 1, &q,
                                        &err) == LF_EINVAL,
          "a tag that is too large", 0);
    lf_err_clear(&err);
    size_t to[RANKS] = {0}, from[RANKS] = {0};
    to[me] = 1;
    CHECK(lf_comm_all_to_all(world, &x, from, &x, to, &err) == LF_EINVAL, "own parts differ", 0);
    lf_err_clear(&err);
    to[me] = SIZE_MAX;
    const struct lf_comm_call all = {.what = LF_COMM_ALL_GATHER, .out = &x, .counts = to};
    to[(me + 1) % n_ranks] += 2;
    CHECK(n_ranks == 1 || lf_comm_start(world, &all, &q, &err) == LF_EINVAL, "overflow", 0);
    lf_err_clear(&err);
    CHECK(lf_comm_tag(LF_COMM_BACKWARD, LF_COMM_MAX_CHUNK) <= LF_COMM_MAX_TAG &&
              lf_comm_tag(LF_COMM_FORWARD, 0) > lf_comm_tag(LF_COMM_PLAIN, LF_COMM_MAX_CHUNK),
          "tags", 0);
    CHECK(lf_comm_group_begin(world, &err) == 0, "group", 0);
    CHECK(lf_comm_barrier(world, &err) == LF_EINVAL, "a group waits for nothing", 0);
    lf_err_clear(&err);
    CHECK(lf_comm_group_end(world, &err) == 0 && lf_comm_barrier(world, &err) == 0, "its end", 0);
    lf_comm_poll(world); /* nothing is under way */
    lf_comm_progress(world);
}

/* A receive that nobody sends for is given up with its communicator; a length that differs is a
 * failure of that request. The world lives on. */
static void test_given_up(void)
{
    lf_comm *part = lf_comm_split(world, 0, 0, &err);
    CHECK(part != NULL, "split", 0);
    if (!part || n_ranks == 1) {
        lf_comm_destroy(part);
        return;
    }
    const int next = (me + 1) % n_ranks, last = (me + n_ranks - 1) % n_ranks;
    lf_comm_req q[3] = {{0}};
    char never[100] = "", out[10] = "short", in[20];
    CHECK(lf_comm_irecv(part, never, sizeof never, last, 1, &q[0], &err) == 0, "irecv", 0);
    CHECK(lf_comm_irecv(part, in, sizeof in, last, 2, &q[1], &err) == 0, "irecv", 0);
    CHECK(lf_comm_isend(part, out, sizeof out, next, 2, &q[2], &err) == 0, "isend", 0);
    CHECK(lf_comm_wait(&q[2], &err) == 0, "wait", 0);
    CHECK(lf_comm_wait(&q[1], &err) == LF_ECOMM && strstr(err.text, "of smaller length, 20 bytes"),
          "another length", 0);
    lf_err_clear(&err);
    CHECK(lf_comm_barrier(world, &err) == 0, "barrier", 0);
    lf_comm_destroy(part);
    CHECK(lf_comm_barrier(world, &err) == 0 && never[0] == 0, "the world lives on", 0);
}

static void test_everything(void)
{
    if (n_ranks > 1) {
        test_pairs();
        test_order();
        test_bound();
    }
    test_waiting();
    test_together();
    test_two_communicators();
    test_long();
    test_refusals();
    test_given_up();
    test_balance();
}

/* ---- while ranks compute ---- */

static void mark(const char *what, int rank)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, rank);
    CHECK(lf_io_write_file(name, "", 0, 0600, &err) == 0, what, (size_t)rank);
}

static bool marked(const char *what, int rank)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, rank);
    return access(name, F_OK) == 0;
}

static bool all_marked(const char *what)
{
    for (int r = 0; r < n_ranks; r++)
        if (!marked(what, r))
            return false;
    return true;
}

/* A task of some hundred microseconds. */
static void task(void)
{
    static volatile double x = 1;
    for (int i = 0; i < 100000; i++)
        x = x * 1.0000001 + 1e-9;
}

struct products {
    lf_back *back;
    struct lf_k_gemm g;
};

static void poll_world(void *arg)
{
    lf_comm_poll(arg);
}

/* One product is of some hundred milliseconds, without a border of the caller's. */
static void product(void *arg)
{
    struct products *p = arg;
    CHECK(p->back->kernels->gemm.run(p->back->queue, &p->g) == 0, "product", 0);
}

static bool make_products(struct products *p)
{
    enum { M = 700, N = 700, K = 1500 };
    *p = (struct products){.back = lf_back_cpu_create(lf_cpu_isa_detect(), 2, &err)};
    if (!p->back)
        return false;
    p->g = (struct lf_k_gemm){.m = M,
                              .n = N,
                              .k = K,
                              .a = get(M * K * 4),
                              .lda = K,
                              .b = get(N * K * 4),
                              .ldb = K,
                              .tb = true,
                              .c = get(M * N * 4),
                              .ldc = N,
                              .ab_type = LF_F32,
                              .c_type = LF_F32};
    p->g.work_bytes = p->back->kernels->gemm.work(&p->g, 2);
    p->g.work = get(p->g.work_bytes);
    lf_back_set_border(p->back, poll_world, world);
    return true;
}

static void end_products(struct products *p)
{
    void *const mine[] = {(void *)(uintptr_t)p->g.a, (void *)(uintptr_t)p->g.b, p->g.c, p->g.work};
    for (size_t i = 0; i < 4; i++)
        free(mine[i]);
    lf_back_destroy(p->back);
}

/* 3 MB go round the ranks. A rank sends when its receiver has left every call that moves messages,
 * and computes until everybody has seen the last byte of its message in its memory, before any
 * wait. */
static void test_compute(const char *mode)
{
    const int next = (me + 1) % n_ranks, last = (me + n_ranks - 1) % n_ranks;
    unsigned char *out = message(me, next, 1, LONGEST), *in = get(LONGEST);
    const bool still = strcmp(mode, "still") == 0, products = strcmp(mode, "product") == 0;
    struct products p = {0};
    lf_comm_req q[2] = {{0}};
    bool arrived = false;
    CHECK(!products || make_products(&p), "a backend", 0);
    CHECK(lf_comm_irecv(world, in, LONGEST, last, 1, &q[0], &err) == 0, "irecv", LONGEST);
    mark("asked", me);
    while (!marked("asked", next))
        usleep(1000);
    CHECK(lf_comm_isend(world, out, LONGEST, next, 1, &q[1], &err) == 0, "isend", LONGEST);
    mark("sent", me);
    const volatile unsigned char *end = in + LONGEST - 1;
    for (long i = 0, after = 0; !bad && i < 1000000 && (still ? after < 500 : !all_marked("got"));
         i++) {
        if (products)
            product(&p);
        else
            task();
        if (!still && !products)
            lf_comm_poll(world);
        after += marked("sent", last);
        if (!arrived && *end == byte_of(last, me, 1, LONGEST - 1)) {
            arrived = true;
            mark("got", me);
        }
    }
    CHECK(arrived == !still, still ? "nothing moves by itself" : "arrived before any wait",
          LONGEST);
    while (still && !all_marked("looked")) {
        if (!marked("looked", me))
            mark("looked", me);
        usleep(1000);
    }
    CHECK(lf_comm_wait_all(q, 2, &err) == 0 && is_message(in, last, me, 1, LONGEST), "the rest", 0);
    if (products)
        end_products(&p);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    lf_boot *b = lf_boot_create(&err);
    const char *mode = argc > 1 ? argv[1] : "check";
    world = b ? lf_comm_create(b, &err) : NULL;
    results = lf_hash_create(&err);
    if (!world || !results) {
        fprintf(stderr, "%s\n", err.text);
        return 12;
    }
    me = world->rank;
    n_ranks = world->size;
    if (strcmp(mode, "start") == 0) {
        printf("%d of %d\n", lf_boot_info(b)->reads, n_ranks);
    } else if (strcmp(mode, "check") == 0) {
        test_everything();
    } else {
        test_compute(mode);
    }
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    lf_hash_final(results, digest);
    lf_hash_hex(hex, digest);
    if (me == 0 && strcmp(mode, "check") == 0)
        printf("bits %.16s transport %s\n", hex, world->ops->name);
    int64_t all_bad = bad;
    if (lf_comm_agree_max(world, &all_bad, &err))
        all_bad = 1;
    lf_hash_destroy(results);
    lf_comm_destroy(world);
    lf_boot_destroy(b);
    return all_bad ? 13 : 0;
}
