/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN for attention in mode LF_FAST, where LF_ATTN asks for it (attn_source.h). The table below
 * has the functions of libcudnn.so.9 that are called; the library is loaded at run time. Types and
 * constants restate the binary interface of its graph API (cudnn_graph.h of cuDNN 9).
 * cudnn_check.c compares them where the header is found. Every call returns a cudnnStatus_t; 0 is
 * success.
 *
 *   LF_CUDNN=FILE           another file than libcudnn.so.9
 */
#ifndef LF_KERNELS_CUDA_ATTN_CUDNN_H
#define LF_KERNELS_CUDA_ATTN_CUDNN_H

#include "kernels/cuda/queue.h"

/* The oldest version with packed lengths on every GPU, and the first version with another
 * interface. */
enum { LF_DNN_OLDEST = 91801, LF_DNN_TOO_NEW = 100000 };

enum { /* cudnnDataType_t */
       LF_DNN_F32 = 0,
       LF_DNN_F16 = 2,
       LF_DNN_I32 = 4,
       LF_DNN_BF16 = 9,
       LF_DNN_I64 = 10,
       LF_DNN_BOOL = 11
};
enum { /* cudnnBackendAttributeType_t */
       LF_DNN_T_HANDLE = 0,
       LF_DNN_T_DATA_TYPE = 1,
       LF_DNN_T_BOOL = 2,
       LF_DNN_T_INT64 = 3,
       LF_DNN_T_DOUBLE = 5,
       LF_DNN_T_POINTER = 6,
       LF_DNN_T_HEURISTIC = 8,
       LF_DNN_T_NOTE = 11,
       LF_DNN_T_POINTWISE = 14,
       LF_DNN_T_DESC = 15,
       LF_DNN_T_REDUCTION = 18,
       LF_DNN_T_CHAR = 24
};
enum { /* cudnnBackendDescriptorType_t */
       LF_DNN_POINTWISE = 0,
       LF_DNN_ENGINE = 2,
       LF_DNN_CONFIG = 3,
       LF_DNN_HEURISTIC = 4,
       LF_DNN_PLAN = 5,
       LF_DNN_OP_POINTWISE = 13,
       LF_DNN_GRAPH = 15,
       LF_DNN_PACK = 16,
       LF_DNN_TENSOR = 17,
       LF_DNN_MATMUL = 18,
       LF_DNN_OP_MATMUL = 19,
       LF_DNN_REDUCTION = 21,
       LF_DNN_OP_REDUCTION = 22,
       LF_DNN_OP_RESHAPE = 31,
       LF_DNN_DEVICE = 38
};
enum { /* cudnnBackendAttributeName_t */
       LF_DNN_POINTWISE_MODE = 0,
       LF_DNN_POINTWISE_PREC = 1,
       LF_DNN_POINTWISE_AXIS = 9,
       LF_DNN_HEURISTIC_MODE = 200,
       LF_DNN_HEURISTIC_GRAPH = 201,
       LF_DNN_HEURISTIC_RESULTS = 202,
       LF_DNN_HEURISTIC_DEVICE = 204,
       LF_DNN_CONFIG_ENGINE = 300,
       LF_DNN_PLAN_HANDLE = 400,
       LF_DNN_PLAN_CONFIG = 401,
       LF_DNN_PLAN_WORKSPACE = 402,
       LF_DNN_PLAN_DEVICE = 407,
       LF_DNN_OPP_DESC = 750,
       LF_DNN_OPP_X = 751,
       LF_DNN_OPP_B = 752,
       LF_DNN_OPP_Y = 753,
       LF_DNN_OPP_T = 758,
       LF_DNN_GRAPH_HANDLE = 800,
       LF_DNN_GRAPH_OPS = 801,
       LF_DNN_TENSOR_ALIGN = 900,
       LF_DNN_TENSOR_TYPE = 901,
       LF_DNN_TENSOR_DIMS = 902,
       LF_DNN_TENSOR_STRIDES = 903,
       LF_DNN_TENSOR_ID = 906,
       LF_DNN_TENSOR_VIRTUAL = 907,
       LF_DNN_TENSOR_BY_VALUE = 908,
       LF_DNN_TENSOR_RAGGED = 913,
       LF_DNN_PACK_IDS = 1000,
       LF_DNN_PACK_POINTERS = 1001,
       LF_DNN_PACK_WORKSPACE = 1003,
       LF_DNN_ENGINE_NOTE = 1303,
       LF_DNN_MATMUL_PREC = 1500,
       LF_DNN_MATMUL_PADDING = 1503,
       LF_DNN_OPM_A = 1520,
       LF_DNN_OPM_B = 1521,
       LF_DNN_OPM_C = 1522,
       LF_DNN_OPM_DESC = 1523,
       LF_DNN_OPM_M = 1525,
       LF_DNN_OPM_N = 1526,
       LF_DNN_OPM_K = 1527,
       LF_DNN_REDUCTION_MODE = 1600,
       LF_DNN_REDUCTION_PREC = 1601,
       LF_DNN_OPR_X = 1610,
       LF_DNN_OPR_Y = 1611,
       LF_DNN_OPR_DESC = 1612,
       LF_DNN_RESHAPE_X = 2200,
       LF_DNN_RESHAPE_Y = 2201,
       LF_DNN_DEVICE_JSON = 2702
};
/* cudnnPointwiseMode_t, cudnnReduceTensorOp_t, cudnnBackendHeurMode_t,
 * cudnnBackendNumericalNote_t */
enum {
    LF_DNN_ADD = 0,
    LF_DNN_MUL = 1,
    LF_DNN_DIV = 6,
    LF_DNN_SUB = 9,
    LF_DNN_EXP = 13,
    LF_DNN_LOG = 15,
    LF_DNN_GT = 302,
    LF_DNN_GE = 303,
    LF_DNN_LT = 304,
    LF_DNN_AND = 400,
    LF_DNN_INDEX = 501,
    LF_DNN_SELECT = 601,
    LF_DNN_SUM = 0,
    LF_DNN_MAX = 3,
    LF_DNN_HEUR_FALLBACK = 2,
    LF_DNN_HEUR_A = 3,
    LF_DNN_NONDETERMINISTIC = 4,
    LF_DNN_NOTES = 10
};

#define LF_DNN_LIST(X)                                                                             \
    X(Create, (void **handle))                                                                     \
    X(Destroy, (void *handle))                                                                     \
    X(SetStream, (void *handle, lf_cu_stream s))                                                   \
    X(BackendCreateDescriptor, (int type, void **d))                                               \
    X(BackendDestroyDescriptor, (void *d))                                                         \
    X(BackendSetAttribute, (void *d, int name, int type, int64_t n, const void *value))            \
    X(BackendGetAttribute, (void *d, int name, int type, int64_t most, int64_t *n, void *value))   \
    X(BackendFinalize, (void *d))                                                                  \
    X(BackendExecute, (void *handle, void *plan, void *pack))

struct lf_dnn {
#define LF_DNN_MEMBER(name, args) int(*name) args;
    LF_DNN_LIST(LF_DNN_MEMBER)
#undef LF_DNN_MEMBER
    size_t (*GetVersion)(void);
    /* handle of dlopen, or NULL; the library stays open once it has started, since it has opened
     * others */
    void *library;
};
/* Opens LF_CUDNN or libcudnn.so.9. On false why has one sentence and nothing is open. */
bool lf_cudnn_load(struct lf_dnn *out, char *why, size_t cap);

/* Opens the library for this device. Returns LF_K_EDEVICE with one sentence in why when it
 * cannot be had. */
int lf_cudnn_open(struct lf_cu_device *d, char *why, size_t cap);
/* Takes this table in place of the library's (tests). NULL: as if the library were not asked
 * for. */
int lf_cudnn_use(struct lf_cu_device *d, const struct lf_dnn *lib, char *why, size_t cap);
void lf_cudnn_close(struct lf_cu_device *d);
/* "cudnn 91900" or "cudnn-forward 91900"; NULL: it is not open. */
const char *lf_cudnn_name(const struct lf_cu_device *d);

/* Runs a when the library is open and has a plan for its shape that gives equal bits in equal runs.
 * *done says whether it ran. If not, nothing is queued. */
int lf_cudnn_attn_fwd(lf_queue *q, const struct lf_k_attn_fwd *a, bool *done);
int lf_cudnn_attn_bwd(lf_queue *q, const struct lf_k_attn_bwd *a, bool *done);
/* Bytes of workspace that this takes; 0 when the library is not asked for or does not take the
 * shape. */
size_t lf_cudnn_attn_fwd_work(const struct lf_k_attn_fwd *a);
size_t lf_cudnn_attn_bwd_work(const struct lf_k_attn_bwd *a);

/* ---- graphs (attn_cudnn_graph.c) ---- */

/* Unique ids of the tensors of both graphs that have an address. OFF + role is the id of the role's
 * ragged offsets, i64 [docs + 1]. */
enum lf_dnn_id {
    LF_DNN_ID_Q = 1,
    LF_DNN_ID_K,
    LF_DNN_ID_V,
    LF_DNN_ID_O,
    LF_DNN_ID_LSE,
    LF_DNN_ID_DO,
    LF_DNN_ID_DQ,
    LF_DNN_ID_DK,
    LF_DNN_ID_DV,
    /* the number of tensors with offsets of their own; in the forward the first five */
    LF_DNN_ROLES = LF_DNN_ID_DV,
    LF_DNN_ID_OFF = LF_DNN_ROLES,
    LF_DNN_ID_DELTA = 2 * LF_DNN_ROLES + 1,
    LF_DNN_ID_LEN_Q,
    LF_DNN_ID_LEN_KV,
    LF_DNN_ID_SCALE, /* from here on scalars of the host */
    LF_DNN_ID_ONE,
    LF_DNN_ID_NONE_PADDED, /* -infinity, one for each mask */
    LF_DNN_ID_NONE_LATER,
    LF_DNN_ID_NONE_EARLIER,
    LF_DNN_ID_WINDOW,
    LF_DNN_IDS
};

/* Everything that a plan depends on. All members have 8 bytes, so shapes are compared as memory. */
struct lf_dnn_shape {
    int64_t backward, docs, longest, rows, heads, groups, d, type, window;
    int64_t ld[LF_DNN_ROLES + 1]; /* by id; 1 for LSE */
};
/* Whether the library takes such attention. The shape alone decides. Fills out. */
bool lf_cudnn_fits_fwd(const struct lf_k_attn_fwd *a, struct lf_dnn_shape *out);
bool lf_cudnn_fits_bwd(const struct lf_k_attn_bwd *a, struct lf_dnn_shape *out);
/* Bytes of workspace: ours (lengths, offsets, delta), and the library's. */
size_t lf_dnn_own_bytes(const struct lf_dnn_shape *s);
size_t lf_dnn_plan_bytes(const struct lf_dnn_shape *s);

/* A plan and the descriptors that were made for it. */
enum { LF_DNN_DESCRIPTORS = 256 };
struct lf_dnn_plan {
    void *plan; /* NULL: the library has none */
    int64_t work;
    uint32_t used[LF_DNN_IDS]; /* which ids the graph has */
    int n;
    void *made[LF_DNN_DESCRIPTORS];
};
/* The library's first plan for s that does not note NONDETERMINISTIC and takes at most `most` bytes
 * of workspace. It is made for `handle` or, where there is no device, for `device`, a finished
 * descriptor of one. When there is no such plan, the member plan is NULL. */
void lf_dnn_plan_make(const struct lf_dnn *lib, void *handle, void *device,
                      const struct lf_dnn_shape *s, size_t most, struct lf_dnn_plan *out);
void lf_dnn_plan_free(const struct lf_dnn *lib, struct lf_dnn_plan *p);

#endif
