/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend seam: memory, an ordered queue, copies and the kernel table of one device behind one
 * const table of functions. On the CPU calls complete before they return; a device backend queues
 * them and lf_back_sync waits, so callers sync before they look at results. Graph code does
 * arithmetic on the pointers given out here and never dereferences them.
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
    /* host -> device, ordered */
    int (*copy_in)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
    /* device -> host, waits */
    int (*copy_out)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
    int (*fill)(lf_back *b, void *dst, int byte, size_t bytes, lf_err *err); /* ordered */
    int (*sync)(lf_back *b, lf_err *err);
    void (*destroy)(lf_back *b);
    /* Optional from here on. Measure (or know) the ceilings; some 50 ms. */
    int (*probe)(lf_back *b, struct lf_back_peak *out, lf_err *err);
    /* Times in the queue, for profiles; NULL where a call is over when it returns. stamp: note the
     * time when everything queued before is done as number i (at most 65,536 of them; they are made
     * when first used). stamps: wait for numbers 0 .. n - 1 and give seconds since number 0. */
    int (*stamp)(lf_back *b, size_t i, lf_err *err);
    int (*stamps)(lf_back *b, double *seconds, size_t n, lf_err *err);

    /* Optional, all or none: kernel calls between begin and end are recorded instead of run, and
     * run again by each capture_run, in the queue's order, with the arguments they had. Nothing but
     * kernels is called in between, and each of these calls has run once before (what a first call
     * looks up or allocates must not happen in a capture). After a failure of capture_end nothing
     * was recorded and the queue is usable. *graph is freed before the backend.
     */
    int (*capture_begin)(lf_back *b, lf_err *err);
    int (*capture_end)(lf_back *b, void **graph, lf_err *err);
    int (*capture_run)(lf_back *b, void *graph, lf_err *err);
    void (*capture_free)(lf_back *b, void *graph);

    /* Optional, both or none: a copy of at most LF_BACK_LATE_BYTES to the host that is ordered like
     * copy_out but waited for later. slot < LF_BACK_LATE_SLOTS; late_end waits and frees the
     * slot. */
    int (*late_begin)(lf_back *b, int slot, const void *src, size_t bytes, lf_err *err);
    int (*late_end)(lf_back *b, int slot, void *dst, size_t bytes, lf_err *err);

    /* Optional, both or none: a second queue, comm_stream, for sums over ranks beside the
     * computation. comm_begin: calls that are queued on comm_stream from now on wait for all
     * calls that are on the main queue. comm_end: calls that are queued on the main queue from
     * now on wait for all calls that are on comm_stream. */
    int (*comm_begin)(lf_back *b, lf_err *err);
    int (*comm_end)(lf_back *b, lf_err *err);

    /* Optional: who computes matrix products in this mode: "own", or a library with its version.
     * Another one gives other bits. */
    const char *(*products)(lf_back *b, enum lf_numeric mode);
    /* Optional: who computes attention in this mode, in the same words. */
    const char *(*attention)(lf_back *b, enum lf_numeric mode);

    /* Optional, both or none: memory of the host, zeroed, that kernels and copies of the device
     * reach by the address given, over the bus. In every function above it counts as the device's
     * memory. */
    void *(*alloc_host)(lf_back *b, size_t bytes, lf_err *err);
    void (*release_host)(lf_back *b, void *p, size_t bytes);

    /* Optional: what the device said about the last failure, with its name and rank, for the end of
     * a message. */
    void (*failure)(const lf_back *b, char *text, size_t cap);
};
enum { LF_BACK_LATE_SLOTS = 4, LF_BACK_LATE_BYTES = 8192 };

/* The first member of every backend. */
struct lf_back {
    const struct lf_back_ops *ops;
    const struct lf_kernels *kernels;
    lf_queue *queue;
    int threads;
    int ordinal;        /* of a GPU */
    void *stream;       /* of a GPU: the CUstream that kernels and copies are queued on */
    void *comm_stream;  /* of a GPU: the CUstream between comm_begin and comm_end */
    const char *device; /* "NVIDIA H200, driver 13.0" for the fingerprint; NULL: a CPU */
};

/* ---- lists of calls that are recorded (capture.c) ---- */

/* One list of calls. Its first run executes them, its second records them, later ones replay the
 * record. A backend that cannot record executes them every time. */
struct lf_captured {
    bool ran;
    void *graph; /* the backend's; NULL: not recorded yet */
};
/* Queues the list's calls once: always the same ones, with the same arguments. */
typedef int (*lf_back_issue)(const void *user, lf_err *err);
int lf_back_run_captured(lf_back *b, struct lf_captured *c, lf_back_issue issue, const void *user,
                         lf_err *err);
/* Drops the record; the next run is a first one. */
void lf_back_forget_captured(lf_back *b, struct lf_captured *c);

/* CPU backend with the best instruction set up to `isa` that this processor has; threads >= 1.
 * Memory is page blocks with huge pages asked for. LF_ENOTSUP when the processor lacks isa. */
lf_back *lf_back_cpu_create(enum lf_isa isa, int threads, lf_err *err);

struct lf_cu;
struct lf_cuda_opts {
    int ordinal;                /* among the GPUs that the driver shows (CUDA_VISIBLE_DEVICES) */
    int rank;                   /* for messages */
    int threads;                /* of the host, for what it prepares */
    const struct lf_cu *driver; /* NULL: the installed one */
};
/* One GPU. Sums over ranks have a stream of their own. Copies and kernels share one: inputs are
 * some KiB that the step before still reads and the next one needs, so that a second stream would
 * wait on both sides. copy_in goes through pinned memory and returns when the caller's buffer is
 * free; it waits only when more than 24 MiB are under way. LF_CUDA_GRAPHS=0 in the environment: no
 * captures; LF_CUDA_SYNC=1: every kernel is waited for, so that one that breaks the device is
 * named. LF_EDEVICE. */
lf_back *lf_back_cuda_create(const struct lf_cuda_opts *o, lf_err *err);

/* ---- which device ---- */

enum lf_device { LF_DEVICE_AUTO = 0, LF_DEVICE_CPU, LF_DEVICE_CUDA };

/* What there is, without touching a device's memory. */
struct lf_gpus {
    int n;         /* GPUs that the driver shows; 0: none, `why` says so */
    int sm;        /* 90: compute capability 9.0 of the first */
    int driver;    /* 13000: supports CUDA 13.0 */
    bool code;     /* this build carries GPU code */
    size_t memory; /* bytes of the first */
    char name[64], why[200];
};
void lf_gpus_look(struct lf_gpus *out);
/* auto: a GPU where there is one and this build carries code for it, else the CPU. */
enum lf_device lf_device_choose(enum lf_device wish);

struct lf_device_opts {
    enum lf_device device;
    /* GPU local_rank modulo the GPUs shown: launchers may show each rank its own or all */
    int rank, local_rank;
    int threads;
};
/* The backend of a stage. */
lf_back *lf_back_create(const struct lf_device_opts *o, lf_err *err);
void lf_back_destroy(lf_back *b);

#endif
