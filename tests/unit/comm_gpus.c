/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank with an emulated GPU and an emulated NCCL, started by tests/flow/ranks_messages.sh:
 * messages in both directions in one group, all-to-all, sums for one rank and gathers, in equal and
 * in unequal parts, queued on the stream beside the computation; sums of parts in the order of the
 * ranks, over NCCL and through memory of the host; rows to experts of other ranks, likewise;
 * messages of a pipeline; parts of communicators.
 *
 * With an argument it makes a mistake that must be told: "order": two communicators in different
 * order, "calls": different calls, "sizes": of a message, "hang": two ranks that send before they
 * receive.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/comm/comm.h"
#include "engine/train/devcomm_priv.h"

enum { RANKS = 8, N = 100000 };

static lf_err err = LF_ERR_INIT;
static lf_comm *world, *gpus;
static lf_back *back;
static struct lf_comm_gpus on; /* on the stream beside the computation */
static int bad;

static void check_at(int line, bool good, const char *what)
{
    if (good)
        return;
    bad++;
    fprintf(stderr, "rank %d, line %d: %s: %s\n", world->rank, line, what, err.text);
    lf_err_clear(&err);
}
#define CHECK(good, what) check_at(__LINE__, (good), (what))

static float value(int from, int to, int kind, int64_t i)
{
    return (float)(1000 * from + 100 * to + 10 * kind) + (float)(i % 97) * 0.125f;
}

/* n floats on the device: a function of the arguments, or -1 each. */
static float *device(int from, int to, int kind, int64_t n)
{
    float *host = calloc((size_t)n + 1, sizeof *host),
          *d = back->ops->alloc(back, ((size_t)n + 1) * sizeof *host, &err);
    for (int64_t i = 0; i < n; i++)
        host[i] = kind < 0 ? -1 : value(from, to, kind, i);
    CHECK(d && back->ops->copy_in(back, d, host, (size_t)n * sizeof *host, &err) == 0, "copy");
    free(host);
    return d;
}

/* The n floats of d from `at` on must be value(from, to, kind, i), where from < 0 the sum of that
 * over all ranks. */
static void compare(float *d, int64_t at, int64_t n, int from, int to, int kind, const char *what)
{
    float *host = calloc((size_t)(at + n) + 1, sizeof *host);
    bool good = back->ops->copy_out(back, host, d, (size_t)(at + n) * sizeof *host, &err) == 0;
    for (int64_t i = 0; good && i < n; i++) {
        float want = 0;
        for (int r = 0; r < world->size; r++)
            if (from < 0 || r == from)
                want += value(r, to, kind, i);
        good = host[at + i] >= want && host[at + i] <= want; /* multiples of 1/8: exact */
    }
    CHECK(good, what);
    free(host);
}

static void test_messages(void)
{
    const int p = world->size, me = world->rank, next = (me + 1) % p, last = (me + p - 1) % p;
    float *out[2] = {device(me, next, 1, N), device(me, last, 2, N)},
          *in[2] = {device(0, 0, -1, N), device(0, 0, -1, N)};
    lf_comm_req q[4] = {{0}};
    const size_t bytes = N * sizeof(float);
    CHECK(back->ops->comm_begin(back, &err) == 0 && lf_comm_group_begin(gpus, &err) == 0, "begin");
    CHECK(lf_comm_isend(gpus, out[0], bytes, next, 1, &q[0], &err) == 0, "isend");
    CHECK(lf_comm_isend(gpus, out[1], bytes, last, 2, &q[1], &err) == 0, "isend");
    CHECK(lf_comm_irecv(gpus, in[0], bytes, last, 1, &q[2], &err) == 0, "irecv");
    CHECK(lf_comm_irecv(gpus, in[1], bytes, next, 2, &q[3], &err) == 0, "irecv");
    CHECK(lf_comm_group_end(gpus, &err) == 0 && lf_comm_wait_all(q, 4, &err) == 0, "end");
    CHECK(back->ops->comm_end(back, &err) == 0, "comm_end");
    compare(in[0], 0, N, last, me, 1, "from before");
    compare(in[1], 0, N, next, me, 2, "from behind");
    for (int i = 0; i < 2; i++) {
        back->ops->release(back, out[i], (N + 1) * sizeof(float));
        back->ops->release(back, in[i], (N + 1) * sizeof(float));
    }
    struct lf_comm_counts n;
    lf_comm_counted(gpus, &n);
    CHECK(n.message.sent == 2 && n.message.bytes_received == 2 * bytes, "counts");
}

/* Rank r has N / (r + 1) floats for every other. */
static void test_exchange(void)
{
    const int p = world->size, me = world->rank;
    size_t to[RANKS], from[RANKS], mine = N / (size_t)(me + 1) * sizeof(float), all = 0;
    for (int r = 0; r < p; r++) {
        to[r] = mine;
        all += from[r] = N / (size_t)(r + 1) * sizeof(float);
    }
    float *out = device(me, 0, 3, (int64_t)p * N), *in = device(0, 0, -1, (int64_t)p * N);
    for (int r = 0; r < p; r++) /* each block counts from its beginning */
        for (int64_t i = 0; i < N / (me + 1); i++) {
            const float v = value(me, r, 3, i);
            CHECK(back->ops->copy_in(back, out + (size_t)r * (mine / sizeof *out) + i, &v, sizeof v,
                                     &err) == 0,
                  "copy");
            if (i == 50) /* some are enough: the others are another rank's by their place */
                break;
        }
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(lf_comm_all_to_all(gpus, in, from, out, to, &err) == 0, "all_to_all");
    CHECK(back->ops->comm_end(back, &err) == 0, "end");
    int64_t at = 0;
    for (int r = 0; r < p; at += (int64_t)(from[r] / sizeof *in), r++)
        compare(in, at, 50, r, me, 3, "block");
    back->ops->release(back, out, ((size_t)p * N + 1) * sizeof *out);
    back->ops->release(back, in, ((size_t)p * N + 1) * sizeof *in);
}

static void test_sums(bool equal)
{
    const int p = world->size, me = world->rank;
    size_t counts[RANKS], bytes[RANKS], total = 0, first = 0;
    for (int r = 0; r < p; r++) {
        counts[r] = equal ? 97 * 300 : 97 * 100 * (size_t)r; /* value repeats every 97 */
        bytes[r] = counts[r] * sizeof(float);
        first = r == me ? total : first;
        total += counts[r];
    }
    float *in = device(me, 4, 5, (int64_t)total), *out = device(0, 0, -1, (int64_t)total);
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(lf_comm_reduce_scatter(gpus, out + first, in, counts, LF_COMM_F32, NULL, &err) == 0,
          "reduce_scatter");
    CHECK(lf_comm_all_gather(gpus, out, bytes, &err) == 0, "all_gather");
    CHECK(lf_comm_reduce_scatter(gpus, out, in, counts, LF_COMM_F32, in, &err) == LF_ENOTSUP,
          "no seed");
    lf_err_clear(&err);
    CHECK(back->ops->comm_end(back, &err) == 0, "end");
    compare(out, 0, (int64_t)total, -1, 4, 5, equal ? "equal parts" : "unequal parts");
    back->ops->release(back, in, (total + 1) * sizeof *in);
    back->ops->release(back, out, (total + 1) * sizeof *out);
}

/* ---- sums in the order of the ranks ---- */

/* Another order of such values has other sums. */
static float rough(int rank, size_t i)
{
    return (float)((i * 7919 + (size_t)rank * 104729) % 1009) * (rank % 2 ? 1e-4f : 1e3f) / 3;
}

/* Unequal parts in pieces of `stride` floats, after what was there or not; counts[r] is 0 for one
 * rank. */
static void test_ordered(struct lf_devcomm *d, const struct lf_exec_comm *how, size_t stride,
                         bool more)
{
    const int p = world->size, me = world->rank;
    size_t counts[RANKS] = {0}, total = 0, first = 0, wrong = 0;
    for (int r = 0; r < p; r++) {
        counts[r] = r == 1 ? 0 : 700 + 53 * (size_t)r;
        first = r == me ? total : first;
        total += counts[r];
    }
    const size_t mine = counts[me], bytes = mine * sizeof(float);
    float *data = device(0, 0, -1, (int64_t)total), *out = device(0, 0, -1, (int64_t)mine),
          *host = calloc(total + 1, sizeof *host);
    d->stride = stride;
    d->scratch = back->ops->alloc(back, stride * (size_t)p * sizeof(float), &err);
    for (size_t i = 0; i < total; i++)
        host[i] = rough(me, i);
    struct lf_exec_req q = {0};
    CHECK(back->ops->copy_in(back, data, host, total * sizeof *host, &err) == 0, "copy");
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(how->begin_sum(d, &q, out, data, counts, more, &err) == 0, "begin_sum");
    CHECK(how->finish(d, &q, &err) == 0 && back->ops->comm_end(back, &err) == 0, "finish");
    CHECK(back->ops->copy_out(back, host, out, bytes, &err) == 0, "copy");
    for (size_t i = 0; i < mine; i++) {
        float want = more ? -1 + rough(0, first + i) : rough(0, first + i);
        for (int r = 1; r < p; r++)
            want += rough(r, first + i);
        wrong += memcmp(&want, &host[i], sizeof want) != 0;
    }
    CHECK(wrong == 0, "a sum in the order of the ranks");
    back->ops->release(back, data, (total + 1) * sizeof(float));
    back->ops->release(back, out, (mine + 1) * sizeof(float));
    back->ops->release(back, d->scratch, stride * (size_t)p * sizeof(float));
    d->scratch = NULL;
    free(host);
}

static void test_parts(void)
{
    struct lf_devcomm d;
    CHECK(lf_devcomm_open(&d, &(struct lf_devcomm_axes){.data = world}, back, &err) == 0, "open");
    for (int more = 0; more < 2; more++) {
        test_ordered(&d, &lf_devcomm_gpus, 4096, more);
        test_ordered(&d, &lf_devcomm_gpus, 64, more);
        test_ordered(&d, &lf_devcomm_through, 64, more);
    }
    lf_devcomm_close(&d, false);
}

/* ---- rows to experts of other ranks ---- */

/* Rank a has so many floats for rank b; a last rank has none for anybody. */
static size_t rows_of(int a, int b, size_t n)
{
    return a == world->size - 1 ? 0 : n / (size_t)(a + 2 * b + 1);
}

/* Parts of different length, some of them empty; through the host some need several calls. */
static void test_rows(struct lf_devcomm *d, const struct lf_exec_comm *how, size_t n)
{
    const int p = world->size, me = world->rank;
    size_t to[RANKS], from[RANKS], given = 0, taken = 0, wrong = 0;
    for (int r = 0; r < p; r++) {
        given += to[r] = rows_of(me, r, n) * sizeof(float);
        taken += from[r] = rows_of(r, me, n) * sizeof(float);
    }
    float *host = calloc(given + taken + 1, 1), *at = host,
          *out = back->ops->alloc(back, given + 4, &err),
          *in = back->ops->alloc(back, taken + 4, &err);
    for (int r = 0; r < p; r++)
        for (size_t i = 0; i < rows_of(me, r, n); i++)
            *at++ = value(me, r, 7, (int64_t)i);
    CHECK(back->ops->copy_in(back, out, host, given, &err) == 0, "copy");
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(how->experts_exchange(d, in, from, out, to, &err) == 0, "exchange");
    CHECK(back->ops->comm_end(back, &err) == 0, "end");
    CHECK(back->ops->copy_out(back, at = host, in, taken, &err) == 0, "copy");
    for (int r = 0; r < p; r++)
        for (size_t i = 0; i < rows_of(r, me, n); i++, at++)
            wrong += *at < value(r, me, 7, (int64_t)i) || *at > value(r, me, 7, (int64_t)i);
    CHECK(wrong == 0, "rows of each rank, in their order");
    back->ops->release(back, out, given + 4);
    back->ops->release(back, in, taken + 4);
    free(host);
}

static void test_experts(void)
{
    struct lf_devcomm d;
    int32_t all[RANKS] = {0};
    all[world->rank] = 100 + world->rank;
    CHECK(lf_devcomm_open(&d,
                          &(struct lf_devcomm_axes){.data = world, .experts = world, .same = world},
                          back, &err) == 0,
          "open");
    CHECK(lf_devcomm_gpus.experts_gather(&d, all, sizeof *all, &err) == 0, "gather");
    for (int r = 0; r < world->size; r++)
        CHECK(all[r] == 100 + r, "numbers of the host");
    test_rows(&d, &lf_devcomm_gpus, 20000);
    test_rows(&d, &lf_devcomm_through, 1200000);
    test_rows(&d, &lf_devcomm_through, 20);
    lf_devcomm_close(&d, false);
}

/* ---- messages of a pipeline ---- */

/* From this rank to its neighbour, or the other way, round where that is on the other side. */
static struct lf_devcomm_message message_of(int step, bool send, void *data, size_t mark)
{
    const int p = world->size;
    return (struct lf_devcomm_message){.send = send,
                                       .peer = (world->rank + step + p) % p,
                                       .data = data,
                                       .bytes = N * sizeof(float),
                                       .mark = mark};
}

/* All receives stand before all sends, as in lists with early receives; in both directions twice,
 * over a ring. What is sent is written again when end_message has said so, and what is received is
 * read then. */
static void test_pipeline(void)
{
    enum { ROUNDS = 2, SIDES = 2 };
    const int p = world->size, me = world->rank;
    struct lf_devcomm d;
    float *in[ROUNDS][SIDES], *out[ROUNDS][SIDES];
    CHECK(lf_devcomm_open(&d,
                          &(struct lf_devcomm_axes){.data = world, .pipeline = world, .ring = true},
                          back, &err) == 0,
          "open");
    CHECK(d.n_pairs == (p == 2 ? 1 : 2), "neighbours");
    for (size_t i = 0; i < (size_t)(ROUNDS * SIDES); i++) {
        in[i / SIDES][i % SIDES] = device(0, 0, -1, N);
        /* of two ranks the other one is on both sides: its messages come in the order they have */
        const struct lf_devcomm_message m =
            message_of(i % SIDES == 0 ? -1 : 1, false, in[i / SIDES][i % SIDES], i);
        CHECK(lf_devcomm_begin_message(&d, &m, &err) == 0, "receive");
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int side = 0; side < SIDES; side++) {
            const int step = side == 0 ? 1 : -1;
            const size_t mark = (size_t)(ROUNDS * SIDES + side);
            const struct lf_devcomm_message m = message_of(
                step, true,
                out[round][side] = device(me, (me + step + p) % p, 20 + 2 * round + side, N), mark);
            CHECK(lf_devcomm_begin_message(&d, &m, &err) == 0, "send");
            CHECK(lf_devcomm_end_message(&d, mark, &err) == 0 &&
                      back->ops->fill(back, out[round][side], 0xff, N * sizeof(float), &err) == 0,
                  "the buffer is free");
        }
    for (int round = 0; round < ROUNDS; round++)
        for (int side = 0; side < SIDES; side++) {
            CHECK(lf_devcomm_end_message(&d, (size_t)(round * SIDES + side), &err) == 0, "end");
            compare(in[round][side], 0, N, (me + (side == 0 ? -1 : 1) + p) % p, me,
                    20 + 2 * round + side, "a message of a neighbour");
        }
    for (int i = 0; i < ROUNDS * SIDES; i++) {
        back->ops->release(back, in[i / SIDES][i % SIDES], (N + 1) * sizeof(float));
        back->ops->release(back, out[i / SIDES][i % SIDES], (N + 1) * sizeof(float));
    }
    lf_devcomm_close(&d, false);
}

/* ---- parts ---- */

/* Pairs of successive ranks, and those with the same place in all pairs. */
static void test_groups(void)
{
    struct lf_devcomm d;
    const int p = world->size, me = world->rank, n = 97;
    float *x = device(me, 5, 3, n), *host = calloc((size_t)n, sizeof *host);
    CHECK(lf_devcomm_open(&d, &(struct lf_devcomm_axes){.data = world, .groups = true}, back,
                          &err) == 0 &&
              lf_devcomm_groups(&d, 2, &err) == 0,
          "open");
    CHECK(d.gpus_inner->size == 2 - (me == p - 1 && p % 2) && d.gpus_outer->size > 0, "sizes");
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(lf_comm_all_reduce(d.gpus_inner, x, (size_t)n, LF_COMM_F32, LF_COMM_SUM, &err) == 0 &&
              lf_comm_all_reduce(d.gpus_outer, x, (size_t)n, LF_COMM_F32, LF_COMM_SUM, &err) == 0,
          "sums");
    CHECK(back->ops->comm_end(back, &err) == 0, "end");
    CHECK(back->ops->copy_out(back, host, x, (size_t)n * sizeof *host, &err) == 0, "copy");
    for (int i = 0; i < n && p % 2 == 0; i++) {
        float want = 0;
        for (int r = 0; r < p; r++)
            want += value(r, 5, 3, i);
        CHECK(host[i] >= want && host[i] <= want, "both sums are that of all");
    }
    back->ops->release(back, x, ((size_t)n + 1) * sizeof *x);
    free(host);
    lf_devcomm_close(&d, false);
}

/* ---- the emulation is strict ---- */

/* What a call writes is not there before the stream comes to it. */
static void test_late(void)
{
    const char *order = getenv("LF_EMU_ORDER");
    const int64_t n = 97;
    float *x = device(world->rank, 4, 6, n), *host = calloc((size_t)n, sizeof *host);
    CHECK(back->ops->comm_begin(back, &err) == 0, "begin");
    CHECK(lf_comm_all_reduce(gpus, x, (size_t)n, LF_COMM_F32, LF_COMM_SUM, &err) == 0, "sum");
    CHECK(back->ops->copy_out(back, host, x, (size_t)n * sizeof *host, &err) == 0, "copy");
    CHECK(!order || strcmp(order, "0") != 0 || host[1] - host[1] != 0,
          "whoever does not wait reads NaN");
    CHECK(back->ops->comm_end(back, &err) == 0, "end");
    compare(x, 0, n, -1, 4, 6, "whoever waits reads the sum");
    back->ops->release(back, x, ((size_t)n + 1) * sizeof *x);
    free(host);
}

/* Outside of a group a message holds those behind it. */
static void message_mistake(bool hang)
{
    const int other = 1 - world->rank;
    float *x = device(0, 0, 1, 16), *y = device(0, 0, -1, 16);
    lf_comm_req q = {0};
    if (hang || world->rank == 0)
        CHECK(lf_comm_isend(gpus, x, 32, other, 0, &q, &err) == 0, "isend");
    if (hang || world->rank == 1)
        CHECK(lf_comm_irecv(gpus, y, hang ? 32 : 36, other, 0, &q, &err) == 0, "irecv");
    back->ops->sync(back, &err);
}

static void mistake(const char *which)
{
    lf_comm *other = lf_comm_on_gpus(world, &on, &err);
    float *x = device(0, 0, 1, 16);
    const bool order = strcmp(which, "order") == 0, first = world->rank == 0;
    lf_comm *c[] = {order && !first ? other : gpus, order && !first ? gpus : other};
    const size_t n = order || first ? 8 : 9;
    CHECK(other && lf_comm_all_reduce(c[0], x, n, LF_COMM_F32, LF_COMM_SUM, &err) == 0, "one");
    CHECK(lf_comm_all_reduce(c[1], x, 8, LF_COMM_F32, LF_COMM_SUM, &err) == 0, "two");
    back->ops->sync(back, &err);
}

int main(int argc, char **argv)
{
    lf_boot *boot = lf_boot_create(&err);
    world = boot ? lf_comm_create(boot, &err) : NULL;
    const struct lf_device_opts o = {.device = LF_DEVICE_CUDA,
                                     .rank = world ? world->rank : 0,
                                     .local_rank = world ? world->local_rank : 0,
                                     .threads = 1};
    back = world ? lf_back_create(&o, &err) : NULL;
    if (back)
        on = (struct lf_comm_gpus){.device = back->ordinal, .stream = back->comm_stream};
    gpus = back ? lf_comm_on_gpus(world, &on, &err) : NULL;
    if (!gpus) {
        fprintf(stderr, "%s\n", err.text);
        return 12;
    }
    if (argc > 1 && strcmp(argv[1], "sizes") != 0 && strcmp(argv[1], "hang") != 0)
        mistake(argv[1]);
    else if (argc > 1)
        message_mistake(strcmp(argv[1], "hang") == 0);
    test_messages();
    test_exchange();
    test_sums(true);
    test_sums(false);
    test_parts();
    test_experts();
    test_pipeline();
    test_groups();
    test_late();
    CHECK(back->ops->sync(back, &err) == 0, "sync");
    int64_t all_bad = bad;
    if (lf_comm_agree_max(world, &all_bad, &err))
        all_bad = 1;
    lf_comm_on_gpus_destroy(gpus);
    lf_back_destroy(back);
    lf_comm_destroy(world);
    lf_boot_destroy(boot);
    return all_bad ? 13 : 0;
}
