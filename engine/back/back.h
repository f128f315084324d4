/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend seam: memory, an ordered queue, copies and the kernel table of one device behind one const table of
 * functions. On the CPU calls complete before they return; a device backend queues them and lf_back_sync waits, so
 * callers sync before they look at results. Graph code does arithmetic on the pointers given out here and never
 * dereferences them.
 */
#ifndef LF_BACK_BACK_H
#define LF_BACK_BACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/kernels.h"

typedef struct lf_back lf_back;

/* Ceilings of a device, for judging times. */
struct lf_back_peak {
    double f32_flops, bf16_flops; /* FLOP/s of multiply-adds, by the type that is multiplied */
    double bytes_per_s;           /* of memory */
};

struct lf_back_ops {
    const char *name;  /* "cpu" */
    bool host_visible; /* device pointers may be dereferenced by the host between syncs */
    void *(*alloc)(lf_back *b, size_t bytes, lf_err *err); /* zeroed, at least 64-byte aligned */
    void (*release)(lf_back *b, void *p, size_t bytes);
    int (*copy_in)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);  /* host -> device, ordered */
    int (*copy_out)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err); /* device -> host, waits */
    int (*fill)(lf_back *b, void *dst, int byte, size_t bytes, lf_err *err);            /* ordered */
    int (*sync)(lf_back *b, lf_err *err);
    void (*destroy)(lf_back *b);
    /* Optional from here on. Measure (or know) the ceilings; some 50 ms. */
    int (*probe)(lf_back *b, struct lf_back_peak *out, lf_err *err);
    /* Times in the queue, for profiles; NULL where a call is over when it returns. stamp: note the time when everything
     * queued before is done as number i (at most 65,536 of them; they are made when first used). stamps: wait for
     * numbers 0 .. n - 1 and give seconds since number 0. */
    int (*stamp)(lf_back *b, size_t i, lf_err *err);
    int (*stamps)(lf_back *b, double *seconds, size_t n, lf_err *err);
};

/* The first member of every backend. */
struct lf_back {
    const struct lf_back_ops *ops;
    const struct lf_kernels *kernels;
    lf_queue *queue;
    int threads;
};

/* CPU backend with the best instruction set up to `isa` that this processor has; threads >= 1. Memory is page blocks
 * with huge pages asked for. LF_ENOTSUP when the processor lacks isa. */
lf_back *lf_back_cpu_create(enum lf_isa isa, int threads, lf_err *err);
void lf_back_destroy(lf_back *b);

#endif
