/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated GPUs behind the driver's table: device memory is host memory full of NaN, kernels run through the emulator,
 * and calls complete at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/emu/run.h"
#include "kernels/cuda/fns.h"

enum { SMEM_OPTIN = 227 << 10, DEVICES = 2 };

#define DECLARE(file, name)                                                                                            \
    void lf_cu_##name(const void *args);                                                                               \
    extern const size_t lf_cu_args_##name;                                                                             \
    extern const unsigned lf_cu_threads_##name;
LF_CU_FNS(DECLARE)

struct CUfunc_st {
    const char *name;
    void (*entry)(const void *args);
    const size_t *args;
    const unsigned *threads;
};
#define ROW(file, name) {"lf_cu_" #name, lf_cu_##name, &lf_cu_args_##name, &lf_cu_threads_##name},
static struct CUfunc_st functions[] = {LF_CU_FNS(ROW)};

struct CUstream_st {
    int unused;
};
struct CUevent_st {
    int unused;
};

static int emu_Init(unsigned flags)
{
    return flags ? LF_CU_INVALID_VALUE : 0;
}
static int emu_DriverGetVersion(int *v)
{
    return *v = 13000, 0;
}
static int emu_DeviceGetCount(int *n)
{
    return *n = DEVICES, 0;
}
static int emu_DeviceGet(lf_cu_dev *d, int ordinal)
{
    *d = ordinal;
    return ordinal < DEVICES ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_DeviceGetName(char *name, int n, lf_cu_dev d)
{
    snprintf(name, (size_t)n, "emulated GPU %d", d);
    return 0;
}
static int emu_DeviceGetAttribute(int *value, int attribute, lf_cu_dev d)
{
    (void)d;
    switch (attribute) {
    case LF_CU_ATTR_CC_MAJOR:
        *value = 9;
        return 0;
    case LF_CU_ATTR_CC_MINOR:
        *value = 0;
        return 0;
    case LF_CU_ATTR_SM_COUNT:
        *value = 4;
        return 0;
    case LF_CU_ATTR_SMEM_OPTIN:
        *value = SMEM_OPTIN;
        return 0;
    default:
        return LF_CU_INVALID_VALUE;
    }
}
static int emu_DeviceTotalMem(size_t *bytes, lf_cu_dev d)
{
    (void)d;
    *bytes = (size_t)8 << 30;
    return 0;
}
static int emu_PrimaryCtxRetain(lf_cu_context *c, lf_cu_dev d)
{
    (void)d;
    *c = (lf_cu_context)functions; /* any address */
    return 0;
}
static int emu_PrimaryCtxRelease(lf_cu_dev d)
{
    (void)d;
    return 0;
}
static int emu_CtxSetCurrent(lf_cu_context c)
{
    return c ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_MemGetInfo(size_t *unused, size_t *total)
{
    return *unused = *total = (size_t)8 << 30, 0;
}

static int emu_MemAlloc(lf_cu_ptr *p, size_t bytes)
{
    void *m;
    if (!bytes)
        return LF_CU_INVALID_VALUE;
    if (posix_memalign(&m, 256, bytes))
        return LF_CU_OUT_OF_MEMORY;
    memset(m, 0xff, bytes);
    *p = (lf_cu_ptr)(uintptr_t)m;
    return 0;
}
static int emu_MemAllocManaged(lf_cu_ptr *p, size_t bytes, unsigned flags)
{
    return flags == LF_CU_MEM_ATTACH_GLOBAL ? emu_MemAlloc(p, bytes) : LF_CU_INVALID_VALUE;
}
static int emu_MemFree(lf_cu_ptr p)
{
    free((void *)(uintptr_t)p);
    return 0;
}
static int emu_MemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    *p = malloc(bytes);
    return *p ? 0 : LF_CU_OUT_OF_MEMORY;
}
static int emu_MemFreeHost(void *p)
{
    free(p);
    return 0;
}

static int copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
    return 0;
}
static int emu_MemcpyHtoDAsync(lf_cu_ptr dst, const void *src, size_t bytes, lf_cu_stream s)
{
    (void)s;
    return copy((void *)(uintptr_t)dst, src, bytes);
}
static int emu_MemcpyDtoHAsync(void *dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s)
{
    (void)s;
    return copy(dst, (void *)(uintptr_t)src, bytes);
}
static int emu_MemcpyDtoDAsync(lf_cu_ptr dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s)
{
    (void)s;
    return copy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
}
static int emu_MemsetD8Async(lf_cu_ptr dst, unsigned char v, size_t bytes, lf_cu_stream s)
{
    (void)s;
    memset((void *)(uintptr_t)dst, v, bytes);
    return 0;
}

static int emu_StreamCreate(lf_cu_stream *s, unsigned flags)
{
    (void)flags;
    *s = calloc(1, sizeof **s);
    return *s ? 0 : LF_CU_OUT_OF_MEMORY;
}
static int emu_StreamDestroy(lf_cu_stream s)
{
    free(s);
    return 0;
}
static int emu_StreamSynchronize(lf_cu_stream s)
{
    (void)s;
    return 0;
}
static int emu_StreamWaitEvent(lf_cu_stream s, lf_cu_event e, unsigned flags)
{
    (void)s;
    return e && !flags ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_EventCreate(lf_cu_event *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof **e);
    return *e ? 0 : LF_CU_OUT_OF_MEMORY;
}
static int emu_EventRecord(lf_cu_event e, lf_cu_stream s)
{
    (void)s;
    return e ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_EventQuery(lf_cu_event e)
{
    return e ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_EventSynchronize(lf_cu_event e)
{
    return e ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_EventElapsedTime(float *ms, lf_cu_event from, lf_cu_event to)
{
    *ms = 0.001f;
    return from && to ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_EventDestroy(lf_cu_event e)
{
    free(e);
    return 0;
}

static int emu_ModuleLoadData(lf_cu_module *m, const void *image)
{
    memcpy(m, &image, sizeof *m);
    return image ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_ModuleUnload(lf_cu_module m)
{
    return m ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_ModuleGetFunction(lf_cu_function *f, lf_cu_module m, const char *name)
{
    (void)m;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return *f = &functions[i], 0;
    return LF_CU_NOT_FOUND;
}
static int emu_FuncSetAttribute(lf_cu_function f, int attribute, int value)
{
    (void)f;
    return attribute == LF_CU_FUNC_MAX_DYNAMIC_SMEM && value <= SMEM_OPTIN ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_FuncGetAttribute(int *value, int attribute, lf_cu_function f)
{
    (void)f;
    *value = 0;
    return attribute >= 0 ? 0 : LF_CU_INVALID_VALUE;
}

static int emu_LaunchKernel(lf_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned smem, lf_cu_stream s, void **params, void **extra)
{
    (void)s;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || extra || smem > SMEM_OPTIN || bx * by * bz > *f->threads ||
        bz > 64)
        return LF_CU_INVALID_VALUE;
    void *args = malloc(*f->args); /* by value, as the driver takes them */
    if (!args)
        return LF_CU_OUT_OF_MEMORY;
    memcpy(args, params[0], *f->args);
    lf_emu_run(f->name, f->entry, args, (struct lf_emu_uint3){gx, gy, gz}, (struct lf_emu_uint3){bx, by, bz}, smem);
    free(args);
    return 0;
}

static int emu_StreamBeginCapture(lf_cu_stream s, int mode)
{
    (void)s;
    (void)mode;
    return LF_CU_INVALID_VALUE;
}
static int emu_StreamEndCapture(lf_cu_stream s, lf_cu_graph *g)
{
    (void)s;
    (void)g;
    return LF_CU_INVALID_VALUE;
}
static int emu_GraphInstantiate(lf_cu_graph_exec *x, lf_cu_graph g, unsigned long long flags)
{
    (void)x;
    (void)g;
    (void)flags;
    return LF_CU_INVALID_VALUE;
}
static int emu_GraphLaunch(lf_cu_graph_exec x, lf_cu_stream s)
{
    (void)x;
    (void)s;
    return LF_CU_INVALID_VALUE;
}
static int emu_GraphExecDestroy(lf_cu_graph_exec x)
{
    return x ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_GraphDestroy(lf_cu_graph g)
{
    return g ? 0 : LF_CU_INVALID_VALUE;
}
static int emu_GetErrorName(int result, const char **name)
{
    *name = result == LF_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == LF_CU_NOT_FOUND   ? "CUDA_ERROR_NOT_FOUND"
                                          : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
static int emu_GetErrorString(int result, const char **text)
{
    return emu_GetErrorName(result, text);
}

void lf_emu_driver(struct lf_cu *out)
{
#define IMAGE(name) {#name, #name},
    static const struct lf_cu_image images[] = {LF_CU_FILES(IMAGE)};
#define MEMBER(member, name, args) .member = emu_##member,
    *out = (struct lf_cu){LF_CU_LIST(MEMBER).images = images, .n_images = sizeof images / sizeof *images};
}
