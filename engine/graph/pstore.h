/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter store holds the weights of a model, outside of any graph. A model declares logical
 * tensors (q, k, v, gate and up are separate). The store places the members of a group next to each
 * other, so that one GEMM reads the group without a copy. Graphs bind to groups by name; optimizer,
 * checkpoint and converter use logical tensors.
 *
 * Kinds of a tensor. The plan decides which exist: inference in bf16 has no masters of matrices,
 * and a frozen tensor has neither gradient nor moments.
 *
 *     LF_P_MASTER     f32         the weights
 *     LF_P_GRAD       f32         their gradient
 *     LF_P_M, LF_P_V  f32, bf16   Adam's moments
 *     LF_P_EMA        f32         an exponential moving average of the weights over steps
 *     LF_P_COPY       bf16, fp16  the weights in the compute type
 *
 * A tensor without a master (a frozen one, or with an optimizer whose masters are bf16) has its
 * weights in the copy. One that is `elsewhere` has no kind at all.
 *
 * Packed panels (inference) and 8-bit copies with their scales are derived like the copy, but only
 * the executor sees them. They follow the masters: the segment of the optimizer and every function
 * that writes weights make them again.
 *
 * Memory belongs to a backend. It exists between lf_exec_create (engine/graph/exec.h) and
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

enum lf_pkind { LF_P_MASTER = 0, LF_P_GRAD, LF_P_M, LF_P_V, LF_P_EMA, LF_P_COPY, LF_P_KINDS };
/* "weight", "grad", "adam_m", "adam_v", "ema", "copy" */
const char *lf_pkind_name(enum lf_pkind kind);
enum lf_dtype lf_pstore_type(const lf_pstore *ps, enum lf_pkind kind); /* in the finished plan */

/* How the tensor axis of a layout (layout.h) divides a logical tensor: not at all, by the last
 * dimension but one (of vectors the only one), or by the last. The rows of a vocabulary are divided
 * too, but not always evenly: all ranks but the last have equally many. */
enum lf_shard_rule { LF_SHARD_NONE = 0, LF_SHARD_ROWS, LF_SHARD_COLS, LF_SHARD_VOCABULARY };

/* LF_INIT_SINCOS: positions of a square of patches, row by row, as in MAE (He et al. 2021). A
 * matrix [T, D] with D a multiple of 4; row (r, c) has sin(c w_i), cos(c w_i), sin(r w_i) and
 * cos(r w_i), D / 4 of each, with w_i = 10000^(-4 i / D). Where T is one more than a square the
 * first row, a class token's, is zeros.
 *
 * LF_INIT_DECAY, LF_INIT_STEP: a_log and the bias of steps of a scan (kernels/scan.h) as Mamba-2
 * begins with them (Dao and Gu 2024): log(u) with u uniform in [1, 16), and the number whose
 * softplus is a step e^u with u uniform in [log 0.001, log 0.1). */
enum lf_init {
    LF_INIT_ZERO = 0,
    LF_INIT_ONE,
    LF_INIT_NORMAL,
    LF_INIT_UNIFORM,
    LF_INIT_VALUE,
    LF_INIT_SINCOS,
    LF_INIT_DECAY,
    LF_INIT_STEP
};

struct lf_param_desc {
    const char *name; /* "layers.0.attn.q.weight"; copied */
    /* "layers.0.attn.qkv.weight"; NULL: a group of its own with the tensor's name; copied */
    const char *group;
    int ndim; /* 1 to 3 */
    /* [out, in] for matrices, [n] for vectors, [experts, out, in] for matrices of experts;
     * members of a group agree in everything but dims[0]. A graph sees [experts * out, in]. */
    int64_t dims[3];
    enum lf_init init;
    /* of LF_INIT_NORMAL; LF_INIT_UNIFORM: in [-init_std, init_std); LF_INIT_VALUE: every element */
    float init_std;
    bool decay;  /* weight decay applies */
    bool frozen; /* no gradient, no update; the same for a whole group */
    /* The tensor is of the model, but this process needs no values of it: it is frozen, has no
     * memory of any kind, and no graph may read it; the same for a whole group. Its values stay in
     * the checkpoint that it comes from. */
    bool elsewhere;
    /* its products are 8-bit where the plan has fp8 (plan.h); for matrices; the same for a whole
     * group */
    bool fp8;
    /* The tensor belongs to an adapter (adapter.h) and not to the model; files of adapters have
     * it. */
    bool adapter;
    /* With adapter: the tensor belongs to the model, is trained whole beside the adapter, and files
     * of the adapter have it. */
    bool whole;
    float lr_scale; /* 0 means 1 */
    enum lf_shard_rule shard;
    /* with a shard rule: the number of equal parts of the dimension that stay whole, such as heads;
     * 0: each element is one. Where there are fewer than ranks the tensor is refused, or, with
     * shard_shared, successive ranks have the same part: heads of keys, which several heads of
     * queries read, and whose gradients these ranks add up. Any other part that two ranks have
     * would be counted twice. */
    int64_t shard_parts;
    bool shard_shared;
    /* The first dimension counts experts, which ranks divide (layout.h); the same for a whole
     * group. */
    bool experts;
    /* > 0, for vectors: the tensor has no optimizer and no moments. Its gradient counts the load of
     * each element in the step (lf_moe_stats), and after the step it moves by this much against the
     * load (kernels.h, moe_balance) */
    float balance_rate;
};

lf_pstore *lf_pstore_create(lf_err *err);
void lf_pstore_destroy(lf_pstore *ps);

/* Declares one tensor. Members of a group are declared one after another, in the order of their
 * rows. Returns the index (>= 0) or a negative lf_rc. LF_EEXIST: the name is taken. LF_EINVAL: the
 * shape contradicts the group. LF_EBUSY: memory is bound. */
int lf_pstore_add(lf_pstore *ps, const struct lf_param_desc *desc, lf_err *err);
/* Freezes every tensor whose name starts with prefix, or makes it trained; before planning. Returns
 * the number of matches. */
int lf_pstore_freeze(lf_pstore *ps, const char *prefix, bool frozen);

/* Like lf_pstore_freeze, for names that match a shell pattern (* ? [...]; * takes dots too). */
int lf_pstore_freeze_matching(lf_pstore *ps, const char *pattern, bool frozen);

/* Freezes every tensor whose name starts with prefix and sets `elsewhere` in its description;
 * before planning. Returns the number of matches. */
int lf_pstore_leave(lf_pstore *ps, const char *prefix);

/* Learning rates of their own, as multiples, for tensors whose names match a pattern; > 0. Of
 * several that match the last one counts. */
struct lf_lr_scale {
    const char *pattern;
    double factor;
};
/* Returns the number of matches of one. */
int lf_pstore_lr_matching(lf_pstore *ps, const struct lf_lr_scale *s);
/* The same of tensor i alone. */
void lf_pstore_set_lr(lf_pstore *ps, int i, double factor);
/* Sets fp8 in the description of the model's matrices (2 dimensions, not of adapters) whose names
 * match. */
int lf_pstore_fp8_matching(lf_pstore *ps, const char *pattern, bool fp8);

int lf_pstore_count(const lf_pstore *ps);
const struct lf_param_desc *lf_pstore_desc(const lf_pstore *ps, int i); /* borrowed until destroy */
int lf_pstore_find(const lf_pstore *ps, const char *name);              /* index or LF_ENOENT */
int64_t lf_pstore_elements(const lf_pstore *ps);                        /* of all logical tensors */
int64_t lf_pstore_elements_trained(const lf_pstore *ps); /* of those that are not frozen */

/* One logical tensor of one kind in memory. */
struct lf_pview {
    const char *name;
    enum lf_pkind kind;
    enum lf_dtype dtype;
    int ndim;
    int64_t dims[3];    /* of this rank's box (layout.h), which is the whole tensor where the layout
                         * does not divide it; 1 beyond ndim */
    void *data;         /* backend memory (on the CPU: host memory); each row is contiguous */
    int64_t row_stride; /* elements from row to row: the last dimension; 1 for vectors */
    /* data has elements [first, first + count) of the flattened box: all of them, or the part
     * that this rank keeps (lf_pstore_sharded) */
    int64_t first, count;
    size_t bytes; /* of these elements */
};
/* Returns 1 with *out set when tensor i has this kind in memory, 0 when not, or LF_EINVAL for a bad
 * index. A device's memory is read with copy_out of its backend. */
int lf_pstore_view(const lf_pstore *ps, int i, enum lf_pkind kind, struct lf_pview *out);

/* Returns the bytes of this kind of tensor i in the finished plan, of this rank's box and of all
 * ranks together where they keep parts of it, bound or not; 0: there are none. */
size_t lf_pstore_planned(const lf_pstore *ps, int i, enum lf_pkind kind);
/* Does each rank keep a part of this kind of tensor i (lf_plan_data_parallel with zero)? */
bool lf_pstore_sharded(const lf_pstore *ps, int i, enum lf_pkind kind);
/* Sets own to the elements [own[0], own[1]) of this kind of tensor i, flattened, that this rank
 * keeps in the finished plan, bound or not; there are none where the plan has no such kind. */
void lf_pstore_own(const lf_pstore *ps, int i, enum lf_pkind kind, int64_t own[2]);
/* Returns the kind that holds the weights of tensor i: LF_P_MASTER, or LF_P_COPY without a
 * master. */
enum lf_pkind lf_pstore_weights(const lf_pstore *ps, int i);

/* Finds all tensors of a kind: one block of backend memory, or with `host` one block of the host's
 * memory for the offloaded ones. Groups lie in order with gaps between them. *bytes is 0 when there
 * are none in memory. It serves to move a whole store between ranks. */
void lf_pstore_block(const lf_pstore *ps, enum lf_pkind kind, bool host, void **data,
                     size_t *bytes);

/* Writes new weights of tensor i from host memory. src has all elements of the logical tensor in
 * f32 or bf16, of which this rank's box is taken. Master and copy are written as far as they exist
 * and this rank keeps them; the copy is rounded to nearest even. Moments and gradients do not
 * change. */
int lf_pstore_write(lf_pstore *ps, int i, enum lf_dtype dtype, const void *src, lf_err *err);
/* Writes all elements of a moment (LF_P_M or LF_P_V) or an average (LF_P_EMA) from f32 or bf16,
 * rounded to nearest even to the type of the plan. LF_ENOENT: the plan has none of this tensor. */
int lf_pstore_write_kind(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                         const void *src, lf_err *err);
/* Writes elements [range[0], range[1]) of the flattened box of a tensor's weights (LF_P_MASTER) or
 * of a moment or an average, which src has; else as the two above. What this rank does not keep of
 * them is passed over. */
int lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                         const void *src, const int64_t range[2], lf_err *err);
/* Reads any kind to host memory as it is stored. bytes must equal those of the view. */
int lf_pstore_read(const lf_pstore *ps, int i, enum lf_pkind kind, void *dst, size_t bytes,
                   lf_err *err);

/* Gives one kind of one tensor in host memory. *data is the tensor itself where the host can read
 * it, and otherwise *copy, which the caller frees. */
int lf_pstore_host(const lf_pstore *ps, int i, enum lf_pkind kind, const void **data, void **copy,
                   lf_err *err);
/* May the host read the data of views? */
bool lf_pstore_on_host(const lf_pstore *ps);
/* Copies device memory of this store to host memory. It is a function for lf_ckpt_tensor.fetch,
 * with ps as user. */
int lf_pstore_fetch(void *ps, void *dst, const void *src, size_t bytes, lf_err *err);

/* Fills every tensor by its init rule. Element e of a normal tensor "name" is std *
 * lf_rng_normal(seed, fnv1a(name), e); uniform ones use lf_rng_f64. So values depend neither on
 * order nor on layout. Moments become zero. */
int lf_pstore_init(lf_pstore *ps, uint64_t seed, lf_err *err);
/* The same where some weights come from elsewhere: of the tensors for which given() is true only
 * the moments are set. */
int lf_pstore_init_rest(lf_pstore *ps, uint64_t seed,
                        bool (*given)(void *user, const struct lf_param_desc *d), void *user,
                        lf_err *err);
/* Sets every average (LF_P_EMA) to the weights as they are. */
int lf_pstore_average_begin(lf_pstore *ps, lf_err *err);
/* Returns the fnv1a-32 of a name, which is the RNG site of its initial values. */
uint32_t lf_name_site(const char *name);

/* Says that master or copy were changed through the pointer of a view, so that derived copies and
 * panels are made again before the next run. */
void lf_pstore_touch(lf_pstore *ps);

#endif
