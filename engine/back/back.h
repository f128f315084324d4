/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a backend. One const table of functions gives memory, an ordered queue, copies
 * and the kernel table of one device. On the CPU a call is complete when it returns. On a GPU a
 * call is queued and ops->sync waits for the queue, so callers sync before they look at results.
 * Graph code computes with the pointers that a backend returns and never dereferences them.
 */
#ifndef LF_BACK_BACK_H
#define LF_BACK_BACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/kernels.h"

typedef struct lf_back lf_back;

/* Upper limits of a device, to compare times with; 0: unknown, or not asked for. */
struct lf_back_peak {
    double f32_flops, bf16_flops; /* FLOP/s of multiply-adds, by the type that is multiplied */
    double bytes_per_s;           /* of memory */
};
/* Which of them a probe must tell; it may tell others too. */
enum { LF_PEAK_F32 = 1, LF_PEAK_BF16 = 2, LF_PEAK_MEMORY = 4, LF_PEAK_ALL = 7 };

struct lf_back_ops {
    const char *name;  /* "cpu" */
    bool host_visible; /* the host may dereference device pointers after a sync */
    void *(*alloc)(lf_back *b, size_t bytes, lf_err *err); /* zeroed, at least 64-byte aligned */
    void (*release)(lf_back *b, void *p, size_t bytes);
    /* host -> device, ordered */
    int (*copy_in)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
    /* device -> host, waits */
    int (*copy_out)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
    /* device -> device, ordered; the two are apart */
    int (*move)(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
    int (*fill)(lf_back *b, void *dst, int byte, size_t bytes, lf_err *err); /* ordered */
    int (*sync)(lf_back *b, lf_err *err);
    void (*destroy)(lf_back *b);
    /* All functions from here on are optional: NULL where a device has none. Measures or knows the
     * limits of `what` (LF_PEAK_..). FLOP/s of a CPU are the best of at most 16 measurements of
     * about 0.1 ms of CPU time, with its threads and without memory; three that agree within 1 %
     * are enough. Those of a GPU are the data sheet's, or its clock times its units. LF_PEAK_MEMORY
     * takes up to 256 MiB and some 50 ms. */
    int (*probe)(lf_back *b, unsigned what, struct lf_back_peak *out, lf_err *err);
    /* Times in the queue, for profiles; NULL where a call is complete when it returns. stamp
     * records, as number i, the time at which everything queued before is done. i is below 65,536;
     * stamps are made when first used. stamps waits for numbers 0 .. n - 1 and returns seconds
     * since number 0. */
    int (*stamp)(lf_back *b, size_t i, lf_err *err);
    int (*stamps)(lf_back *b, double *seconds, size_t n, lf_err *err);

    /* All or none. Kernel calls between begin and end are recorded instead of run. Each capture_run
     * runs them again, in the queue's order and with the same arguments. Only kernels may be called
     * between begin and end. Each of these calls has run once before, because a first call may look
     * up or allocate things, which a capture forbids. After a failure of capture_end nothing is
     * recorded and the queue is usable. *graph is freed before the backend.
     */
    int (*capture_begin)(lf_back *b, lf_err *err);
    int (*capture_end)(lf_back *b, void **graph, lf_err *err);
    int (*capture_run)(lf_back *b, void *graph, lf_err *err);
    void (*capture_free)(lf_back *b, void *graph);

    /* Both or none. late_begin copies at most LF_BACK_LATE_BYTES to the host, in the order of
     * copy_out, and does not wait. late_end waits for the copy and frees the slot. slot <
     * LF_BACK_LATE_SLOTS. */
    int (*late_begin)(lf_back *b, int slot, const void *src, size_t bytes, lf_err *err);
    int (*late_end)(lf_back *b, int slot, void *dst, size_t bytes, lf_err *err);

    /* All or none. comm_stream is a second queue, for what ranks do beside the computation.
     * comm_begin: calls that are queued on comm_stream from now on wait for all calls that are on
     * the main queue. comm_end: calls that are queued on the main queue from now on wait for all
     * calls that are on comm_stream. comm_mark: mark number i, below 65,536 and made when first
     * used, stands behind all calls that are on comm_stream. comm_wait: calls that are queued on
     * the main queue from now on wait for what is before mark i where it stands now. No host waits
     * in any of these. */
    int (*comm_begin)(lf_back *b, lf_err *err);
    int (*comm_end)(lf_back *b, lf_err *err);
    int (*comm_mark)(lf_back *b, size_t i, lf_err *err);
    int (*comm_wait)(lf_back *b, size_t i, lf_err *err);

    /* All or none. Lanes are further queues, below LF_BACK_LANES and each made when it is first
     * asked for: what ranks send each other at once in several directions has one for each.
     * lane_stream returns the CUstream of a lane, or NULL with an error. lane_begin and lane_mark
     * are as comm_begin and comm_mark; marks of all lanes have one row of numbers. lane_wait: calls
     * that are queued on the main queue from now on wait for what is before mark i where it stands
     * now. */
    void *(*lane_stream)(lf_back *b, size_t lane, lf_err *err);
    int (*lane_begin)(lf_back *b, size_t lane, lf_err *err);
    int (*lane_mark)(lf_back *b, size_t lane, size_t i, lf_err *err);
    int (*lane_wait)(lf_back *b, size_t i, lf_err *err);

    /* Tells what computes matrix products in this mode: "own", or a library with its version. The
     * bits of a product depend on it. NULL: own. */
    const char *(*products)(lf_back *b, enum lf_numeric mode);
    /* Tells what computes attention in this mode, in the same words. */
    const char *(*attention)(lf_back *b, enum lf_numeric mode);

    /* Both or none. alloc_host returns zeroed memory of the host. Kernels and copies of the device
     * reach it over the bus by the same address, and every function above treats it as the device's
     * memory. */
    void *(*alloc_host)(lf_back *b, size_t bytes, lf_err *err);
    void (*release_host)(lf_back *b, void *p, size_t bytes);

    /* Gives the border of b to kernels that run while their call lasts; NULL where calls are
     * queued. */
    void (*set_border)(lf_back *b);

    /* Writes what the device said about the last failure, with its name and rank, for the end of a
     * message. */
    void (*failure)(const lf_back *b, char *text, size_t cap);
};
enum { LF_BACK_LATE_SLOTS = 4, LF_BACK_LATE_BYTES = 8192, LF_BACK_LANES = 4 };

/* The first member of every backend. */
struct lf_back {
    const struct lf_back_ops *ops;
    const struct lf_kernels *kernels;
    lf_queue *queue;
    int threads;
    int ordinal;          /* of a GPU */
    void *stream;         /* of a GPU: the CUstream that kernels and copies are queued on */
    void *comm_stream;    /* of a GPU: the CUstream between comm_begin and comm_end */
    lf_queue *comm_queue; /* of a GPU: the queue of comm_stream, for kernels there */
    const char *device;   /* "NVIDIA H200, driver 13.0" for the fingerprint; NULL: a CPU */
    /* of a GPU or a part of one: "b3c1...-...", as other tools name it behind "GPU-" or "MIG-";
     * NULL: a CPU, or unknown */
    const char *uuid;
    /* Called between kernels, and between the tasks of kernels that run while their call lasts, on
     * the thread that called them; NULL: nothing (lf_back_set_border). */
    void (*border)(void *arg);
    void *border_arg;
};

/* From now on border(arg) is called at the borders of tasks: between the kernels that an executor
 * runs, and on a CPU within them, at most some milliseconds apart. It must be cheap and must use
 * nothing of b. For messages between ranks that compute (lf_comm_poll). NULL ends it. */
void lf_back_set_border(lf_back *b, void (*border)(void *arg), void *arg);

/* ---- lists of calls that are recorded (capture.c) ---- */

/* One list of calls. The first run executes the calls, the second records them, and later runs
 * replay the record. A backend that cannot record executes them every time. */
struct lf_captured {
    bool ran;
    void *graph; /* owned by the backend; NULL: not recorded yet */
};
/* Queues the calls of the list once. They are the same calls with the same arguments every time. */
typedef int (*lf_back_issue)(const void *user, lf_err *err);
int lf_back_run_captured(lf_back *b, struct lf_captured *c, lf_back_issue issue, const void *user,
                         lf_err *err);
/* Drops the record; the next run is a first one. */
void lf_back_forget_captured(lf_back *b, struct lf_captured *c);

/* Creates a CPU backend with the best instruction set up to `isa` that this processor has; threads
 * >= 1. Its memory is page blocks, for which huge pages are requested. LF_ENOTSUP: the processor
 * lacks isa. */
lf_back *lf_back_cpu_create(enum lf_isa isa, int threads, lf_err *err);
/* Is LF_ISA of the environment the name of an instruction set, or not set? LF_EINVAL: it is another
 * word, which would limit nothing. */
int lf_back_cpu_check(lf_err *err);

struct lf_cu;
struct lf_cuda_opts {
    int ordinal;                /* among the GPUs that the driver shows (CUDA_VISIBLE_DEVICES) */
    int rank;                   /* for messages */
    int threads;                /* of the host, for its own work */
    const struct lf_cu *driver; /* NULL: the installed one */
};
/* Creates the backend of one GPU. Sums over ranks have a stream of their own; copies and kernels
 * share one. A stream for copies would gain nothing: the inputs are some KiB that the step before
 * still reads and the next step needs. copy_in goes through pinned memory and returns when the
 * caller's buffer is free; it waits only when more than 24 MiB are under way. Environment:
 * LF_CUDA_GRAPHS=0 turns captures off; LF_CUDA_SYNC=1 waits for every kernel, so that the message
 * names the one that breaks the device. LF_EDEVICE: the driver reports a failure. */
lf_back *lf_back_cuda_create(const struct lf_cuda_opts *o, lf_err *err);

/* ---- which device ---- */

enum lf_device { LF_DEVICE_AUTO = 0, LF_DEVICE_CPU, LF_DEVICE_CUDA };

/* The GPUs of this machine, found without using a device's memory. */
struct lf_gpus {
    int n;         /* GPUs that the driver shows; 0: none, `why` says so */
    int sm;        /* 90: compute capability 9.0 of the first */
    int driver;    /* 13000: supports CUDA 13.0 */
    bool code;     /* this build carries GPU code */
    size_t memory; /* bytes of the first */
    char name[64], why[200];
};
void lf_gpus_look(struct lf_gpus *out);
/* LF_DEVICE_AUTO becomes a GPU where there is one and this build carries code for it, else the
 * CPU. */
enum lf_device lf_device_choose(enum lf_device wish);

struct lf_device_opts {
    enum lf_device device;
    /* the GPU is local_rank modulo their number, as launchers show each rank all GPUs or its own */
    int rank, local_rank;
    int threads;
};
/* Creates the backend of a stage. The caller owns it (lf_back_destroy). */
lf_back *lf_back_create(const struct lf_device_opts *o, lf_err *err);
void lf_back_destroy(lf_back *b);

#endif
