/* SPDX-License-Identifier: Apache-2.0
 *
 * An opened GPU and launching on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attn_cudnn.h"
#include "kernels/cuda/gemm_blaslt.h"
#include "kernels/cuda/queue.h"

enum { SMEM_WITHOUT_ASKING = 48 << 10 };

#define ROW(file, name) {#file, "lf_cu_" #name},
static const struct {
    const char *file, *name;
} fn_row[LF_CU_FN_COUNT] = {LF_CU_FNS(ROW)};

const char *lf_cu_fn_name(enum lf_cu_fn fn)
{
    return fn_row[fn].name + strlen("lf_cu_");
}

int lf_cu_result(lf_queue *q, int result, const char *what)
{
    if (!result)
        return LF_K_OK;
    if (!q->status) {
        q->status = result;
        q->what = what;
    }
    return LF_K_EDEVICE;
}

static int attributes(struct lf_cu_device *d, const char **what)
{
    int major = 0, minor = 0, rc;
    *what = "device attributes";
    if ((rc = d->cu.DeviceGetAttribute(&major, LF_CU_ATTR_CC_MAJOR, d->dev)) ||
        (rc = d->cu.DeviceGetAttribute(&minor, LF_CU_ATTR_CC_MINOR, d->dev)) ||
        (rc = d->cu.DeviceGetAttribute(&d->n_sm, LF_CU_ATTR_SM_COUNT, d->dev)) ||
        (rc = d->cu.DeviceGetAttribute(&d->smem_optin, LF_CU_ATTR_SMEM_OPTIN, d->dev)) ||
        (rc = d->cu.DeviceGetName(d->name, sizeof d->name, d->dev)))
        return rc;
    d->sm = 10 * major + minor;
    return 0;
}

static int start(struct lf_cu_device *d, const char **what)
{
    int rc;
    *what = "the device";
    if ((rc = d->cu.DeviceGet(&d->dev, d->ordinal)) || (rc = attributes(d, what)))
        return rc;
    *what = "its context";
    if ((rc = d->cu.PrimaryCtxRetain(&d->ctx, d->dev)) || (rc = d->cu.CtxSetCurrent(d->ctx)))
        return rc;
    return 0;
}

/* *_wgmma is code for one kind of GPU (sm_90a); others cannot load it. */
static bool loads(const char *file, int sm)
{
    return !strstr(file, "_wgmma") || sm == 90;
}

static int load_images(struct lf_cu_device *d, const char **what)
{
    d->module = calloc(d->cu.n_images + 1, sizeof *d->module);
    *what = "memory for modules";
    if (!d->module)
        return LF_CU_OUT_OF_MEMORY;
    for (size_t i = 0; i < d->cu.n_images; i++) {
        *what = d->cu.images[i].file;
        if (!loads(*what, d->sm))
            continue;
        int rc = d->cu.ModuleLoadData(&d->module[i], d->cu.images[i].data);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int lf_cu_device_open(struct lf_cu_device **out, const struct lf_cu *cu, int ordinal, char *why,
                      size_t why_bytes)
{
    int n = 0;
    const char *what = "the number of devices", *name = NULL;
    int rc = cu->DeviceGetCount(&n);
    if (rc == 0 && (ordinal < 0 || ordinal >= n)) {
        snprintf(why, why_bytes,
                 "GPU %d was asked for, the driver shows %d (CUDA_VISIBLE_DEVICES limits them)",
                 ordinal, n);
        return LF_K_EDEVICE;
    }
    struct lf_cu_device *d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(why, why_bytes, "out of memory");
        return LF_K_EDEVICE;
    }
    d->cu = *cu;
    d->ordinal = ordinal;
    if (!cu->n_images) {
        snprintf(why, why_bytes, "this build carries no GPU code (configure --with-cuda[=DIR])");
        free(d);
        return LF_K_EDEVICE;
    }
    if (rc == 0)
        rc = start(d, &what);
    if (rc == 0)
        rc = load_images(d, &what);
    if (rc != 0) {
        cu->GetErrorName(rc, &name);
        snprintf(why, why_bytes, "GPU %d: %s: %s", ordinal, what, name ? name : "unknown error");
        d->cu.library = NULL; /* still the caller's */
        lf_cu_device_close(d);
        return LF_K_EDEVICE;
    }
    *out = d;
    return LF_K_OK;
}

void lf_cu_device_close(struct lf_cu_device *d)
{
    if (!d)
        return;
    lf_blaslt_close(d);
    lf_cudnn_close(d);
    for (size_t i = 0; d->module && i < d->cu.n_images; i++)
        if (d->module[i])
            d->cu.ModuleUnload(d->module[i]);
    if (d->ctx)
        d->cu.PrimaryCtxRelease(d->dev);
    free(d->module);
    lf_cu_unload(&d->cu);
    free(d);
}

lf_queue *lf_cu_queue_create(struct lf_cu_device *d)
{
    lf_queue *q = calloc(1, sizeof *q);
    if (q && d->cu.StreamCreate(&q->stream, LF_CU_STREAM_NON_BLOCKING)) {
        free(q);
        return NULL;
    }
    if (q)
        q->dev = d;
    return q;
}

void lf_cu_queue_destroy(lf_queue *q)
{
    if (q)
        q->dev->cu.StreamDestroy(q->stream);
    free(q);
}

static int find_function(struct lf_cu_device *d, enum lf_cu_fn fn)
{
    for (size_t i = 0; i < d->cu.n_images; i++)
        if (d->module[i] && strcmp(d->cu.images[i].file, fn_row[fn].file) == 0)
            return d->cu.ModuleGetFunction(&d->fn[fn].f, d->module[i], fn_row[fn].name);
    return LF_CU_NOT_FOUND;
}

bool lf_cu_has(struct lf_cu_device *d, enum lf_cu_fn fn)
{
    return d->fn[fn].f || !find_function(d, fn);
}

static int allow_smem(struct lf_cu_device *d, enum lf_cu_fn fn, size_t smem)
{
    if (smem <= SMEM_WITHOUT_ASKING || smem <= d->fn[fn].smem)
        return 0;
    int rc = d->cu.FuncSetAttribute(d->fn[fn].f, LF_CU_FUNC_MAX_DYNAMIC_SMEM, (int)smem);
    if (rc == 0)
        d->fn[fn].smem = (unsigned)smem;
    return rc;
}

static unsigned one(unsigned n)
{
    return n ? n : 1;
}

int lf_cu_launch(lf_queue *q, enum lf_cu_fn fn, struct lf_cu_dim grid, struct lf_cu_dim block,
                 size_t smem, const void *args)
{
    struct lf_cu_device *d = q->dev;
    void *params[1];
    memcpy(params, &args, sizeof args); /* the driver reads only */
    if (!grid.x)
        return LF_K_OK;
    int rc = d->fn[fn].f ? 0 : find_function(d, fn);
    if (rc == 0)
        rc = allow_smem(d, fn, smem);
    if (rc == 0)
        rc =
            d->cu.LaunchKernel(d->fn[fn].f, grid.x, one(grid.y), one(grid.z), block.x, one(block.y),
                               one(block.z), (unsigned)smem, q->stream, params, NULL);
    if (rc == 0 && q->wait_each)
        rc = d->cu.StreamSynchronize(q->stream);
    return lf_cu_result(q, rc, lf_cu_fn_name(fn));
}
