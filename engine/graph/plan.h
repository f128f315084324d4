/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: graphs in, ordered nodes with addresses out. A function of (graphs, options, target)
 * alone; it needs no device and allocates nothing on one.
 *
 * A graph becomes a **chain** of one or two segments: forward, and for a training graph backward.
 * Segments of a chain share the tensors saved from one to the other; these exist once per **slot**,
 * so slots bound the micro-batches in flight. The optimizer is a segment of its own. A **program**
 * is a list of (segment, slot, variant) that the host repeats.
 *
 *     lf_plan *p = lf_plan_create(ps, &opts, err);
 *     int train = lf_plan_add(p, train_graph,
 *                             &(struct lf_chain_opts){.train = true, .slots = 1, .eras = 1}, err);
 *     int valid = lf_plan_add(p, valid_graph, &(struct lf_chain_opts){.eras = 2}, err);
 *     lf_plan_optimizer(p, &adamw, err);
 *     lf_plan_finish(p, err);
 *     lf_plan_bytes(p, &bytes);  or  json_t *j = lf_plan_json(p, err);
 *
 * One memory plan covers all chains: chains with no common era bit are never live together and
 * share bytes.
 */
#ifndef LF_GRAPH_PLAN_H
#define LF_GRAPH_PLAN_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/graph/graph.h"

typedef struct lf_plan lf_plan;

/* Checked-in data about a machine: what the planner may assume. */
struct lf_target {
    const char *name;     /* "cpu-avx512bf16", "sm_90" */
    enum lf_isa isa;      /* of CPUs */
    int sm;               /* of GPUs: 90 is compute capability 9.0; 0: a CPU */
    size_t align;         /* bytes of every tensor's offset */
    uint32_t fuse;        /* enum lf_fuse bits */
    size_t max_workspace; /* of one node; more is an error that names it */
    /* host bytes the process needs beside the plan: code, libraries, thread stacks, pinned
     * memory */
    size_t reserved;
    size_t device_reserved; /* GPUs: bytes of the context, code and libraries beside the plan */
    /* of one weight's panels; NULL: none are made */
    size_t (*packed_bytes)(int64_t n, int64_t k, enum lf_dtype ab_type);
};
enum lf_fuse {
    LF_FUSE_ACT = 1,      /* linear + activation */
    LF_FUSE_RESIDUAL = 2, /* linear (or its dX) + add */
    LF_FUSE_NORM = 4,     /* add + norm: one pass gives sum and normed */
    LF_FUSE_NORM_BWD = 8, /* norm backward + gradient of the residual path */
    LF_FUSE_DROPOUT = 16  /* dropout + add */
};
const struct lf_target *lf_target_find(const char *name); /* NULL: unknown */
const struct lf_target *lf_target_host(void);             /* of this processor, LF_ISA respected */
/* Of the device that a stage with this setting runs on; a GPU that is not here is taken for an
 * sm_90. */
const struct lf_target *lf_target_device(enum lf_device device);
/* Table of names, NULL-terminated, for messages. */
const char *const *lf_target_names(void);

enum lf_recompute { LF_RECOMPUTE_NONE = 0, LF_RECOMPUTE_SELECTIVE, LF_RECOMPUTE_FULL };

/* 8-bit products of the weights marked for it (lf_pstore_fp8_matching): activations and weights in
 * e4m3, one scale for a tensor and gradients in e5m2; or everything in e4m3 with scales of 1 x 128
 * (activations, gradients) and 128 x 128 (weights), as in DeepSeek-V3 (2024), section 3.3. Scales
 * are those of the values themselves (kernels.h, "fp8"); sums are f32. */
enum lf_fp8 { LF_FP8_OFF = 0, LF_FP8_TENSORS, LF_FP8_BLOCKS };

struct lf_plan_opts {
    const struct lf_target *target; /* NULL: lf_target_host() */
    int threads;                    /* >= 1; workspace depends on it */
    /* LF_F32, LF_BF16 or, on GPUs, LF_F16: type of activations and of what GEMMs read */
    enum lf_dtype compute;
    enum lf_fp8 fp8; /* needs compute = LF_BF16, mode LF_FAST, on GPUs sm_89, with blocks sm_90 */
    enum lf_numeric mode;
    /* hold f32 masters although nothing here needs them (converters); an optimizer's `masters`
     * goes before */
    bool keep_master;
    bool no_reuse; /* debugging: every tensor gets bytes of its own */
};

/* A store serves one plan at a time: creating a plan forgets what an earlier one needed of it.
 * LF_EBUSY (NULL) while an executor holds the store. */
lf_plan *lf_plan_create(lf_pstore *ps, const struct lf_plan_opts *opts, lf_err *err);
void lf_plan_destroy(lf_plan *p);

struct lf_chain_opts {
    /* differentiate towards the store's trained tensors; needs lf_xent or lf_output_grad in the
     * graph */
    bool train;
    enum lf_recompute recompute;
    int slots;     /* micro-batches in flight; 0 means 1 */
    uint32_t eras; /* when it lives; 0 means all */
    /* its products stay bf16 whatever the plan has: a few rows at a time (generation) */
    bool no_fp8;
    bool packed; /* linears read panels made once per change of weights (inference) */
};
/* Takes the graph's content: the plan keeps what it needs, the graph may be destroyed afterwards
 * (its const contexts not). Returns the chain's index (>= 0). */
int lf_plan_add(lf_plan *p, lf_graph *g, const struct lf_chain_opts *opts, lf_err *err);

struct lf_adamw_opts {
    float beta1, beta2, eps, weight_decay;
    enum lf_dtype moments; /* LF_F32 or LF_BF16: what Adam's moments are kept in */
    /* LF_BF16, with compute LF_BF16: tensors that have a bf16 copy have no f32 weights beside it */
    enum lf_dtype masters;
    /* what of this is bf16 is rounded at random, without bias (kernels.h, adamw); else to
     * nearest */
    bool stochastic;
    /* GPUs, 0 to 1: share of the elements whose moments lie in the host's memory, and their
     * masters where compute reads copies; the same kernel updates them there over the bus, so no
     * bit changes */
    double offload;
};
/* LF_EINVAL, worded with the options of stages: values out of range, or that a plan of this compute
 * type has no room for. */
int lf_adamw_opts_check(const struct lf_adamw_opts *o, enum lf_dtype compute, lf_err *err);
/* Global norm, clipping and AdamW over every trained tensor; one per plan. */
int lf_plan_optimizer(lf_plan *p, const struct lf_adamw_opts *opts, lf_err *err);

/* Layout: `ranks` processes run this plan on different micro-batches. Before the global norm the
 * optimizer's segment then sums the gradients over them (lf_exec_set_reduce), in buckets of about
 * bucket_bytes. */
int lf_plan_data_parallel(lf_plan *p, int ranks, size_t bucket_bytes, lf_err *err);

/* Memory that no graph touches, for kernels that stand beside the graphs: counted and taken as
 * state, zeroed when an executor binds the plan, and found by name with lf_exec_state. LF_EINVAL:
 * no bytes, or the name is taken. */
int lf_plan_state(lf_plan *p, const char *name, size_t bytes, lf_err *err);
/* Of the plan's target, for the sizes of such memory. */
const struct lf_kernels *lf_plan_kernels(const lf_plan *p);

/* Place everything. After this nothing can be added. */
int lf_plan_finish(lf_plan *p, lf_err *err);

struct lf_plan_bytes {
    size_t params; /* masters + copies + packed panels */
    size_t grads;
    size_t optimizer;    /* moments */
    size_t saved;        /* activations that cross from forward to backward, all slots */
    size_t transient;    /* the rest of the arena */
    size_t workspace;    /* largest workspace of a node, inside the arena */
    size_t inputs;       /* inputs of all slots, constants, step record, tables */
    size_t state;        /* KV pages and the like */
    size_t arena;        /* saved + transient + workspace */
    size_t largest_live; /* lower bound of the arena: the most bytes live at one node */
    size_t total;
    size_t offloaded; /* masters and moments in the host's memory; in none of the above */
};
/* After lf_plan_finish. */
int lf_plan_bytes(const lf_plan *p, struct lf_plan_bytes *out);
/* Where a process's bytes lie. Called with host = what it needs there beside the plan; adds what
 * the target reserves. */
struct lf_plan_memory {
    double host;   /* outside of the plan */
    double device; /* of the GPU; 0 on a CPU */
    double total;  /* of the node's memory: with a CPU host and plan, with a GPU host alone */
};
void lf_plan_memory(struct lf_plan_memory *m, const struct lf_target *t, double planned);
/* What an optimizer step moves between ranks; zeros for one rank. After lf_plan_finish. */
struct lf_plan_comm {
    int ranks;
    int64_t messages;     /* collectives: buckets */
    double reduced_bytes; /* gradients that are summed */
    /* by each rank at least: 2 (P - 1) / P of them (reduce-scatter, then all-gather) */
    double sent_bytes;
    size_t largest_bytes; /* of one bucket */
};
int lf_plan_comm(const lf_plan *p, struct lf_plan_comm *out);
struct lf_plan_cost {
    /* FLOPs of one run of the chain's forward, attention counted causally or full */
    double fwd_causal, fwd_full;
    double bwd_causal, bwd_full; /* of its backward, recomputation not counted */
    double recompute;            /* FLOPs spent on recomputation, counted causally */
    double traffic_bytes;        /* memory traffic if every operand moves once */
    int nodes_fwd, nodes_bwd;
};
int lf_plan_cost(const lf_plan *p, int chain, struct lf_plan_cost *out);
const struct lf_target *lf_plan_target(const lf_plan *p);
/* {"target","compute","numeric","parameters","trained",
 * "bytes":{...},"segments":[{"name","nodes","flops_causal",...}]}; owned. */
json_t *lf_plan_json(const lf_plan *p, lf_err *err);
/* Every node, one line each with operands, types and offsets: for people and tests. Owned:
 * free(). */
char *lf_plan_text(const lf_plan *p, int chain, lf_err *err);

#endif
