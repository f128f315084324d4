/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that cuda.c (memory, captures), cuda_copy.c (staging), cuda_comm.c (streams
 * beside the main one) and cuda_time.c (stamps) share.
 */
#ifndef LF_BACK_CUDA_PRIV_H
#define LF_BACK_CUDA_PRIV_H

#include "engine/back/back.h"
#include "kernels/cuda/queue.h"

enum { LF_CUDA_PARTS = 4 };

/* Pinned memory in parts, which are used in turn. A part is free again when its event has
 * happened. */
struct lf_cuda_ring {
    char *memory;
    size_t part_bytes, used; /* used: bytes of the part in use */
    int part;
    lf_cu_event event[LF_CUDA_PARTS];
    bool busy[LF_CUDA_PARTS];
};

/* Events by number, each made when it is first used. */
struct lf_cuda_marks {
    lf_cu_event *event; /* [n], owned */
    size_t n, cap;
};

struct lf_back_cuda {
    lf_back base;
    struct lf_kernels table;
    struct lf_cu_device *dev;
    struct lf_cuda_ring in, out;
    char *late; /* LF_BACK_LATE_SLOTS of LF_BACK_LATE_BYTES, pinned */
    lf_cu_event late_event[LF_BACK_LATE_SLOTS];
    bool late_busy[LF_BACK_LATE_SLOTS];
    lf_cu_event *stamp;
    size_t n_stamps, cap_stamps;
    lf_cu_event comm_event[2]; /* begin, end */
    struct lf_cuda_marks mark; /* of the second stream */
    lf_cu_stream lane[LF_BACK_LANES];
    lf_cu_event lane_event; /* begin */
    struct lf_cuda_marks lane_mark;
    int rank;
    /* "cuda-sm_90"; the device for messages; the device for the fingerprint */
    char family[32], device[128], shown[128], uuid[40];
};

/* Returns 0, or LF_EDEVICE with the driver's words. */
int lf_cuda_check(struct lf_back_cuda *b, int result, const char *what, lf_err *err);

int lf_cuda_ring_create(struct lf_back_cuda *b, struct lf_cuda_ring *r, size_t part_bytes,
                        lf_err *err);
void lf_cuda_ring_destroy(struct lf_back_cuda *b, struct lf_cuda_ring *r);
int lf_cuda_copy_in(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
int lf_cuda_copy_out(lf_back *b, void *dst, const void *src, size_t bytes, lf_err *err);
int lf_cuda_late_create(struct lf_back_cuda *b, lf_err *err);
void lf_cuda_late_destroy(struct lf_back_cuda *b);
int lf_cuda_late_begin(lf_back *b, int slot, const void *src, size_t bytes, lf_err *err);
int lf_cuda_late_end(lf_back *b, int slot, void *dst, size_t bytes, lf_err *err);

int lf_cuda_comm_create(struct lf_back_cuda *b, lf_err *err);
void lf_cuda_comm_destroy(struct lf_back_cuda *b);
int lf_cuda_comm_begin(lf_back *b, lf_err *err);
int lf_cuda_comm_end(lf_back *b, lf_err *err);
int lf_cuda_comm_mark(lf_back *b, size_t i, lf_err *err);
int lf_cuda_comm_wait(lf_back *b, size_t i, lf_err *err);
void *lf_cuda_lane_stream(lf_back *b, size_t lane, lf_err *err);
int lf_cuda_lane_begin(lf_back *b, size_t lane, lf_err *err);
int lf_cuda_lane_mark(lf_back *b, size_t lane, size_t i, lf_err *err);
int lf_cuda_lane_wait(lf_back *b, size_t i, lf_err *err);
/* Waits for all lanes. */
int lf_cuda_lane_sync(struct lf_back_cuda *b, lf_err *err);

int lf_cuda_stamp(lf_back *b, size_t i, lf_err *err);
int lf_cuda_stamps(lf_back *b, double *seconds, size_t n, lf_err *err);
void lf_cuda_stamps_destroy(struct lf_back_cuda *b);
int lf_cuda_probe(lf_back *b, unsigned what, struct lf_back_peak *out, lf_err *err);

#endif
