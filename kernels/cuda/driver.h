/* SPDX-License-Identifier: Apache-2.0
 *
 * The thin CUDA layer: one table of the driver's functions that this project calls (libcuda.so.1,
 * loaded at run time). Host code links no CUDA library and needs no toolkit to build. Tests put an
 * emulator behind the same table (tests/cuda/emu/).
 *
 * Types and constants restate the part of the driver's binary interface that is used (CUDA Driver
 * API, cuda.h, stable since CUDA 11). driver_check.c compares them with the toolkit's header where
 * one is found. Every call returns a CUresult; 0 is success.
 */
#ifndef LF_KERNELS_CUDA_DRIVER_H
#define LF_KERNELS_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/tensor_map.h"

typedef struct CUctx_st *lf_cu_context;
typedef struct CUmod_st *lf_cu_module;
typedef struct CUfunc_st *lf_cu_function;
typedef struct CUstream_st *lf_cu_stream;
typedef struct CUevent_st *lf_cu_event;
typedef struct CUgraph_st *lf_cu_graph;
typedef struct CUgraphExec_st *lf_cu_graph_exec;
typedef unsigned long long lf_cu_ptr; /* CUdeviceptr */
typedef int lf_cu_dev;                /* CUdevice */
struct lf_cu_uuid {                   /* CUuuid */
    unsigned char bytes[16];
};

enum {
    LF_CU_SUCCESS = 0,
    LF_CU_INVALID_VALUE = 1,
    LF_CU_OUT_OF_MEMORY = 2,
    LF_CU_NO_DEVICE = 100,
    LF_CU_NOT_READY = 600,
    LF_CU_NOT_FOUND = 500,
    LF_CU_ILLEGAL_ADDRESS = 700,
    LF_CU_LAUNCH_FAILED = 719,
    LF_CU_CAPTURE_UNSUPPORTED = 900,
    LF_CU_CAPTURE_INVALIDATED = 901,
    LF_CU_CAPTURE_UNMATCHED = 903,
    LF_CU_CAPTURE_UNJOINED = 904,
    LF_CU_CAPTURE_ISOLATION = 905,
    LF_CU_CAPTURED_EVENT = 907
};
enum { /* CUdevice_attribute */
       LF_CU_ATTR_SMEM_PER_BLOCK = 8,
       LF_CU_ATTR_CLOCK_KHZ = 13,
       LF_CU_ATTR_SM_COUNT = 16,
       LF_CU_ATTR_MEMORY_CLOCK_KHZ = 36,
       LF_CU_ATTR_BUS_BITS = 37,
       LF_CU_ATTR_L2_BYTES = 38,
       LF_CU_ATTR_CC_MAJOR = 75,
       LF_CU_ATTR_CC_MINOR = 76,
       LF_CU_ATTR_SMEM_OPTIN = 97
};
enum {
    LF_CU_STREAM_NON_BLOCKING = 1,
    LF_CU_EVENT_DISABLE_TIMING = 2,
    LF_CU_MEM_ATTACH_GLOBAL = 1,
    LF_CU_CAPTURE_THREAD_LOCAL = 1
};
enum { LF_CU_FUNC_MAX_DYNAMIC_SMEM = 8 };
enum { /* CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion */
       LF_CU_TENSOR_U8 = 0,
       LF_CU_TENSOR_F16 = 6,
       LF_CU_TENSOR_BF16 = 9,
       LF_CU_TENSOR_SWIZZLE_128B = 3,
       LF_CU_TENSOR_L2_256B = 3
};

/* X(member, exported name, arguments). An exported name has the version suffix that belongs to
 * these arguments. */
#define LF_CU_LIST(X)                                                                              \
    X(Init, cuInit, (unsigned flags))                                                              \
    X(DriverGetVersion, cuDriverGetVersion, (int *version))                                        \
    X(DeviceGetCount, cuDeviceGetCount, (int *n))                                                  \
    X(DeviceGet, cuDeviceGet, (lf_cu_dev * d, int ordinal))                                        \
    X(DeviceGetName, cuDeviceGetName, (char *name, int n, lf_cu_dev d))                            \
    X(DeviceGetUuid, cuDeviceGetUuid_v2, (struct lf_cu_uuid * uuid, lf_cu_dev d))                  \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, lf_cu_dev d))          \
    X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, lf_cu_dev d))                          \
    X(PrimaryCtxRetain, cuDevicePrimaryCtxRetain, (lf_cu_context * c, lf_cu_dev d))                \
    X(PrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (lf_cu_dev d))                              \
    X(CtxSetCurrent, cuCtxSetCurrent, (lf_cu_context c))                                           \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t * unused, size_t * total))                              \
    X(MemAlloc, cuMemAlloc_v2, (lf_cu_ptr * p, size_t bytes))                                      \
    X(MemAllocManaged, cuMemAllocManaged, (lf_cu_ptr * p, size_t bytes, unsigned flags))           \
    X(MemFree, cuMemFree_v2, (lf_cu_ptr p))                                                        \
    X(MemHostAlloc, cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                      \
    X(MemFreeHost, cuMemFreeHost, (void *p))                                                       \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                       \
      (lf_cu_ptr dst, const void *src, size_t bytes, lf_cu_stream s))                              \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                       \
      (void *dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s))                                    \
    X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                       \
      (lf_cu_ptr dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s))                                \
    X(MemsetD8Async, cuMemsetD8Async,                                                              \
      (lf_cu_ptr dst, unsigned char v, size_t bytes, lf_cu_stream s))                              \
    X(StreamCreate, cuStreamCreate, (lf_cu_stream * s, unsigned flags))                            \
    X(StreamDestroy, cuStreamDestroy_v2, (lf_cu_stream s))                                         \
    X(StreamSynchronize, cuStreamSynchronize, (lf_cu_stream s))                                    \
    X(StreamWaitEvent, cuStreamWaitEvent, (lf_cu_stream s, lf_cu_event e, unsigned flags))         \
    X(EventCreate, cuEventCreate, (lf_cu_event * e, unsigned flags))                               \
    X(EventRecord, cuEventRecord, (lf_cu_event e, lf_cu_stream s))                                 \
    X(EventQuery, cuEventQuery, (lf_cu_event e))                                                   \
    X(EventSynchronize, cuEventSynchronize, (lf_cu_event e))                                       \
    X(EventElapsedTime, cuEventElapsedTime, (float *ms, lf_cu_event from, lf_cu_event to))         \
    X(EventDestroy, cuEventDestroy_v2, (lf_cu_event e))                                            \
    X(ModuleLoadData, cuModuleLoadData, (lf_cu_module * m, const void *image))                     \
    X(ModuleUnload, cuModuleUnload, (lf_cu_module m))                                              \
    X(ModuleGetFunction, cuModuleGetFunction,                                                      \
      (lf_cu_function * f, lf_cu_module m, const char *name))                                      \
    X(FuncSetAttribute, cuFuncSetAttribute, (lf_cu_function f, int attribute, int value))          \
    X(FuncGetAttribute, cuFuncGetAttribute, (int *value, int attribute, lf_cu_function f))         \
    X(LaunchKernel, cuLaunchKernel,                                                                \
      (lf_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,          \
       unsigned bz, unsigned smem, lf_cu_stream s, void **params, void **extra))                   \
    X(TensorMapEncodeTiled, cuTensorMapEncodeTiled,                                                \
      (struct lf_cu_tensor_map * map, int type, unsigned rank, void *address,                      \
       const uint64_t *dims, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,  \
       int interleave, int swizzle, int l2, int oob))                                              \
    X(StreamBeginCapture, cuStreamBeginCapture_v2, (lf_cu_stream s, int mode))                     \
    X(StreamEndCapture, cuStreamEndCapture, (lf_cu_stream s, lf_cu_graph * g))                     \
    X(GraphInstantiate, cuGraphInstantiateWithFlags,                                               \
      (lf_cu_graph_exec * x, lf_cu_graph g, unsigned long long flags))                             \
    X(GraphLaunch, cuGraphLaunch, (lf_cu_graph_exec x, lf_cu_stream s))                            \
    X(GraphExecDestroy, cuGraphExecDestroy, (lf_cu_graph_exec x))                                  \
    X(GraphDestroy, cuGraphDestroy, (lf_cu_graph g))                                               \
    X(GetErrorName, cuGetErrorName, (int result, const char **name))                               \
    X(GetErrorString, cuGetErrorString, (int result, const char **text))

struct lf_cu {
#define LF_CU_MEMBER(member, name, args) int(*member) args;
    LF_CU_LIST(LF_CU_MEMBER)
#undef LF_CU_MEMBER
    /* GPU code, n_images entries; those of the emulator are empty */
    const struct lf_cu_image *images;
    size_t n_images;
    void *library; /* of dlopen, or NULL */
};

/* GPU code of one .cu file: a fat binary for several architectures with PTX for later ones. */
struct lf_cu_image {
    const char *file; /* "norm" */
    const void *data;
};
/* The GPU code of this build. *n is 0 without configure --with-cuda. */
const struct lf_cu_image *lf_cu_images(size_t *n);

/* Load the driver. Returns 0, or LF_K_EDEVICE with one sentence in why. LF_CUDA_DRIVER names
 * another file than libcuda.so.1. */
int lf_cu_load(struct lf_cu *out, char *why, size_t why_bytes);
void lf_cu_unload(struct lf_cu *cu);

#endif
