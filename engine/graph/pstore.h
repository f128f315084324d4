/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter store: what a model's weights are, outside any graph. A model declares logical
 * tensors (q, k, v, gate and up apart); the store places the members of a group next to each other,
 * so that one GEMM reads the group without a copy. Graphs bind to groups by name; optimizer,
 * checkpoint and converter see logical tensors.
 *
 * Kinds of a tensor. Which exist follows from the plan: inference in bf16 holds no masters of
 * matrices, a frozen tensor holds neither gradient nor moments.
 *
 *     LF_P_MASTER  f32   the weights                      LF_P_M, LF_P_V  f32, bf16   Adam's
 *                  moments
 *     LF_P_GRAD    f32   their gradient                   LF_P_COPY       bf16, fp16  what such
 *                  compute reads
 *
 * A tensor without a master (a frozen one, or with an optimizer whose masters are bf16) has its
 * weights in the copy.
 *
 * Packed panels (inference) and 8-bit copies with their scales are derived like the copy, but only
 * the executor sees them. They follow the masters: the optimizer's segment and whatever writes
 * weights make them again.
 *
 * Memory belongs to a backend; it is there between lf_exec_create (engine/graph/exec.h) and
 * lf_exec_destroy. The store must outlive every graph, plan and executor made on it.
 */
#ifndef LF_GRAPH_PSTORE_H
#define LF_GRAPH_PSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/kernels.h"

typedef struct lf_pstore lf_pstore;

enum lf_pkind { LF_P_MASTER = 0, LF_P_GRAD, LF_P_M, LF_P_V, LF_P_COPY, LF_P_KINDS };
const char *lf_pkind_name(enum lf_pkind kind); /* "weight", "grad", "adam_m", "adam_v", "copy" */

/* How a tensor parallel layout cuts a logical tensor (read by the layout pass; one rank keeps
 * everything). */
enum lf_shard_rule { LF_SHARD_NONE = 0, LF_SHARD_ROWS, LF_SHARD_COLS };

enum lf_init { LF_INIT_ZERO = 0, LF_INIT_ONE, LF_INIT_NORMAL, LF_INIT_UNIFORM };

struct lf_param_desc {
    const char *name; /* "layers.0.attn.q.weight"; copied */
    /* "layers.0.attn.qkv.weight", NULL: a group of its own under its own name; copied */
    const char *group;
    int ndim; /* 1 to 3 */
    /* [out, in] for matrices, [n] for vectors, [experts, out, in] for matrices of experts;
     * members of a group agree in everything but dims[0]. A graph sees [experts * out, in]. */
    int64_t dims[3];
    enum lf_init init;
    float init_std; /* of LF_INIT_NORMAL; LF_INIT_UNIFORM: in [-init_std, init_std) */
    bool decay;     /* weight decay applies */
    bool frozen;    /* no gradient, no update; the same for a whole group */
    /* its products are 8-bit ones where the plan has such (plan.h); matrices; the same for a
     * whole group */
    bool fp8;
    /* The tensor belongs to an adapter (adapter.h) and not to the model; files of adapters have
     * it. */
    bool adapter;
    /* With adapter: the tensor belongs to the model, is trained whole beside the adapter, and files
     * of the adapter have it. */
    bool whole;
    float lr_scale; /* 0 means 1 */
    enum lf_shard_rule shard;
    /* > 0, vectors: no optimizer, no moments; its gradient counts the load of each element in
     * the step (lf_moe_stats), and after the step it moves by this much against the load
     * (kernels.h, moe_balance) */
    float balance_rate;
};

lf_pstore *lf_pstore_create(lf_err *err);
void lf_pstore_destroy(lf_pstore *ps);

/* Declare one tensor; members of a group in the order of their rows, one after another. Returns its
 * index (>= 0) or a negative lf_rc: LF_EEXIST for a second tensor of that name, LF_EINVAL for
 * shapes that contradict the group, LF_EBUSY once memory is bound. */
int lf_pstore_add(lf_pstore *ps, const struct lf_param_desc *desc, lf_err *err);
/* Freeze (or thaw) every tensor whose name starts with prefix; before planning. Returns how many
 * matched. */
int lf_pstore_freeze(lf_pstore *ps, const char *prefix, bool frozen);

/* Like lf_pstore_freeze, for names that match a shell pattern (* ? [...]; * takes dots too). */
int lf_pstore_freeze_matching(lf_pstore *ps, const char *pattern, bool frozen);

/* Mark matrices of the model (2 dimensions, no adapter's) whose names match: fp8 of their
 * descriptions. */
int lf_pstore_fp8_matching(lf_pstore *ps, const char *pattern, bool fp8);

int lf_pstore_count(const lf_pstore *ps);
const struct lf_param_desc *lf_pstore_desc(const lf_pstore *ps, int i); /* borrowed until destroy */
int lf_pstore_find(const lf_pstore *ps, const char *name);              /* index or LF_ENOENT */
int64_t lf_pstore_elements(const lf_pstore *ps);         /* over all logical tensors */
int64_t lf_pstore_elements_trained(const lf_pstore *ps); /* not frozen ones */

/* One logical tensor of one kind in memory. */
struct lf_pview {
    const char *name;
    enum lf_pkind kind;
    enum lf_dtype dtype;
    int ndim;
    int64_t dims[3]; /* 1 beyond ndim */
    void *data; /* backend memory (on the CPU: host memory), rows of the whole are contiguous */
    int64_t row_stride; /* elements; the last dimension, 1 for vectors */
    size_t bytes;
};
/* 1 and *out set when tensor i has this kind in memory, 0 when it has not, LF_EINVAL for a bad
 * index. Reading it on a device goes through lf_back_copy_out. */
int lf_pstore_view(const lf_pstore *ps, int i, enum lf_pkind kind, struct lf_pview *out);

/* Bytes of tensor i of a kind in the finished plan, bound or not; 0: it has none. */
size_t lf_pstore_planned(const lf_pstore *ps, int i, enum lf_pkind kind);
/* The kind that holds the weights of tensor i: LF_P_MASTER, or LF_P_COPY where the plan has no
 * master of it. */
enum lf_pkind lf_pstore_weights(const lf_pstore *ps, int i);

/* All tensors of a kind: one block of backend memory and (host) one of the host's for those that
 * were offloaded there, groups in order with gaps between them. *bytes is 0 when there are none in
 * memory. For moving a whole store between ranks. */
void lf_pstore_block(const lf_pstore *ps, enum lf_pkind kind, bool host, void **data,
                     size_t *bytes);

/* Give tensor i new weights from host memory: src has dtype f32 or bf16 and all its elements.
 * Master and copy are written, whichever exist (rounded to nearest even for the copy). Moments and
 * gradients are left alone. */
int lf_pstore_write(lf_pstore *ps, int i, enum lf_dtype dtype, const void *src, lf_err *err);
/* Write moments: kind LF_P_M, LF_P_V, all elements, f32 or bf16; they become what the plan keeps
 * them in, rounded to nearest even. LF_ENOENT when the plan holds none. */
int lf_pstore_write_kind(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                         const void *src, lf_err *err);
/* Read any kind into host memory as it is stored; bytes must equal the view's. */
int lf_pstore_read(const lf_pstore *ps, int i, enum lf_pkind kind, void *dst, size_t bytes,
                   lf_err *err);

/* One tensor of one kind as host memory, as lf_pstore_view has it: *data is the tensor itself where
 * the host sees it, else *copy, which is the caller's to free. */
int lf_pstore_host(const lf_pstore *ps, int i, enum lf_pkind kind, const void **data, void **copy,
                   lf_err *err);
/* Whether views' data may be read by the host. */
bool lf_pstore_on_host(const lf_pstore *ps);
/* Device memory of this store into host memory; ps as user: what lf_ckpt_tensor.fetch takes. */
int lf_pstore_fetch(void *ps, void *dst, const void *src, size_t bytes, lf_err *err);

/* Fill every tensor from its init rule: normal element e of tensor "name" is std *
 * lf_rng_normal(seed, fnv1a(name), e), uniform ones likewise with lf_rng_f64, so it depends on
 * neither order nor layout. Moments become zero. */
int lf_pstore_init(lf_pstore *ps, uint64_t seed, lf_err *err);
/* The same where weights come from elsewhere: of the tensors that given() says yes to only the
 * moments are set. */
int lf_pstore_init_rest(lf_pstore *ps, uint64_t seed,
                        bool (*given)(void *user, const struct lf_param_desc *d), void *user,
                        lf_err *err);
/* fnv1a-32 of a name: RNG site of its initial values. */
uint32_t lf_name_site(const char *name);

/* Whoever changes master or copy behind the store's back (a view's data pointer) says so, so that
 * derived copies and panels are made again before the next run. */
void lf_pstore_touch(lf_pstore *ps);

#endif
