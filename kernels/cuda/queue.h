/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the CUDA backend, host side: an open device, the queue that kernels get, and how a kernel
 * is launched. A device function takes one argument struct by value. fns.h has its name.
 *
 * A kernel `name` of kernels.h provides lf_cuda_name (run), lf_cuda_name_check and
 * lf_cuda_name_work in a .c file beside its .cu. run chooses grid and block and launches. The
 * shapes alone choose them; the number of multiprocessors may not where it would change a sum.
 * Nothing here waits for the device.
 */
#ifndef LF_KERNELS_CUDA_QUEUE_H
#define LF_KERNELS_CUDA_QUEUE_H

#include "kernels/cuda/driver.h"
#include "kernels/cuda/fns.h"
#include "kernels/kernels.h"

#define LF_CU_FN_ENUM(file, name) LF_CU_FN_##name,
enum lf_cu_fn { LF_CU_FNS(LF_CU_FN_ENUM) LF_CU_FN_COUNT };

struct lf_cu_fn_state {
    lf_cu_function f; /* NULL until first used */
    unsigned smem;    /* dynamic shared memory allowed so far */
};

struct lf_blaslt; /* cuBLASLt: handle, algorithms by shape (gemm_blaslt.c) */
struct lf_cudnn;  /* cuDNN: handle, plans by shape (attn_cudnn.c) */

/* One GPU. Functions are looked up when first launched. */
struct lf_cu_device {
    struct lf_cu cu;
    lf_cu_context ctx;
    lf_cu_dev dev;
    int ordinal;
    int sm;         /* 90 for compute capability 9.0 */
    int n_sm;       /* multiprocessors; for sizing only, never for the order of sums */
    int smem_optin; /* bytes of shared memory a block may have */
    char name[64];
    lf_cu_module *module; /* n_images */
    struct lf_cu_fn_state fn[LF_CU_FN_COUNT];
    struct lf_blaslt *blaslt; /* NULL until gemm first needs it */
    struct lf_cudnn *cudnn;   /* NULL: not asked for */
    bool wgmma;               /* our own 16-bit products are those of gemm_wgmma.cu (gemm_form.h) */
    bool attn_wgmma;          /* and attention is that of attn_*_wgmma.cu (attn_source.h) */
};

/* Opens GPU `ordinal` of the loaded driver. On success the device owns the driver. On failure why
 * has one sentence. */
int lf_cu_device_open(struct lf_cu_device **out, const struct lf_cu *cu, int ordinal, char *why,
                      size_t why_bytes);
void lf_cu_device_close(struct lf_cu_device *d);

struct lf_queue {
    struct lf_cu_device *dev;
    lf_cu_stream stream;
    int status;       /* first CUresult that was not success */
    const char *what; /* the function or call it came from */
    bool wait_each;   /* debugging: every launch is waited for */
};
/* A queue on a stream of its own; NULL when the driver has none. */
lf_queue *lf_cu_queue_create(struct lf_cu_device *d);
void lf_cu_queue_destroy(lf_queue *q);

struct lf_cu_dim {
    unsigned x, y, z; /* 0 counts as 1 */
};
/* Queue one call of a device function. args is its argument struct. smem is the bytes of dynamic
 * shared memory; for more than 48 KiB the driver is asked first. An empty grid (x 0) launches
 * nothing. On LF_K_EDEVICE q->status and q->what say what the driver refused. */
int lf_cu_launch(lf_queue *q, enum lf_cu_fn fn, struct lf_cu_dim grid, struct lf_cu_dim block,
                 size_t smem, const void *args);
/* Note a failed driver call; returns LF_K_EDEVICE, or LF_K_OK for result 0. */
int lf_cu_result(lf_queue *q, int result, const char *what);
const char *lf_cu_fn_name(enum lf_cu_fn fn);
/* Whether this device has the function. Code for one kind of GPU runs only on that kind. */
bool lf_cu_has(struct lf_cu_device *d, enum lf_cu_fn fn);

static inline unsigned lf_cu_blocks(int64_t n, int64_t per)
{
    return (unsigned)((n + per - 1) / per);
}

/* The kernels of this backend. Whoever copies the table fills in family ("cuda-sm_90"). */
extern const struct lf_kernels lf_cuda_kernels;
/* Makes the checks of scans in a copy of the table refuse the shapes that do not fit the shared
 * memory of a GPU whose blocks may have so many bytes. */
void lf_cuda_scan_limit(struct lf_kernels *k, size_t block_bytes);

#define LF_CUDA_DECLARE(name)                                                                      \
    int lf_cuda_##name(lf_queue *q, const struct lf_k_##name *a);                                  \
    int lf_cuda_##name##_check(const struct lf_k_##name *a);                                       \
    size_t lf_cuda_##name##_work(const struct lf_k_##name *a, int threads);

#endif
