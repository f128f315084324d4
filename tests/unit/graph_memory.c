/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a real training step: the process grows by what the plan said, and nothing is allocated
 * between the first and the last call of a step (every way into the heap is counted by the wrappers
 * below).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "tests/unit/graph_util.h"

#ifndef LF_SANITIZERS
static long heap_calls;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_memalign(align, n);
}

static void step(struct gu *u, const struct gu_batch *b)
{
    lf_err err = LF_ERR_INIT;
    gu_record(u, b->trained, 0.001f);
    for (int m = 0; m < 2; m++) {
        gu_feed(u, u->train, 0, b);
        gu_fwd_bwd(u, 0, m == 0 ? LF_FIRST : LF_ACCUM);
    }
    if (lf_exec_run(u->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    gu_feed(u, u->valid, 0, b);
    if (lf_exec_run(u->ex, u->valid, LF_FWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
}

static void measure(enum lf_dtype compute)
{
    struct gu_model m = {.layers = 4,
                         .c = 256,
                         .heads = 8,
                         .groups = 4,
                         .d = 32,
                         .ffn = 768,
                         .vocab = 6000,
                         .max_pos = 512,
                         .rope = true,
                         .glu = true,
                         .rows = 512};
    struct gu_opts o = {.plan = {.threads = 2, .compute = compute, .mode = LF_INVARIANT},
                        .optimizer = true,
                        .valid = true};
    struct gu_batch b;
    struct gu u;
    struct lf_plan_bytes bytes;
    int64_t before = lf_rss_bytes();
    gu_open(&u, &m, &o);
    gu_batch_make(&b, &m, m.rows, 0);
    lf_plan_bytes(u.p, &bytes);
    step(&u, &b);
    double grown = (double)(lf_rss_bytes() - before), planned = (double)bytes.total;
    tap_ok(grown > 0.98 * planned - 3e6 && grown < 1.02 * planned + 3e6,
           "resident memory grew by %.1f MB, planned %.1f MB", grown / 1e6, planned / 1e6);
    long calls = heap_calls;
    step(&u, &b);
    tap_i64(heap_calls - calls, 0,
            "no heap call in two micro-batches, the optimizer and a validation pass");
    void *volatile one =
        malloc(1); /* volatile: the compiler may leave out a pair that nobody sees */
    free(one);
    tap_ok(heap_calls - calls == 1, "the counter counts");
    struct lf_step_record r = gu_result(&u);
    tap_ok(r.loss_sum > 0, "and a loss came out");
    gu_close(&u);
}

int main(void)
{
    free(malloc(1 << 16)); /* the heap exists */
    TAP(4, measure(LF_BF16));
    TAP(4, measure(LF_F32));
    return tap_done();
}
#else
int main(void)
{
    tap_skip_all("sanitizers own the heap");
}
#endif
