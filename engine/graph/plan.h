/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan turns graphs into ordered nodes with addresses. It depends on graphs, options and target
 * alone. It needs no device and allocates nothing on one.
 *
 * A graph becomes a **chain** of one or two segments: forward, and for a training graph backward,
 * which may be two for itself: gradients of inputs, and of weights.
 * The segments of a chain share saved tensors, which exist once per **slot**; so slots bound the
 * number of micro-batches in flight. The optimizer is a segment of its own. A **program** is a list
 * of (segment, slot, variant) that the host repeats.
 *
 *     lf_plan *p = lf_plan_create(ps, &opts, err);
 *     int train = lf_plan_add(p, train_graph,
 *                             &(struct lf_chain_opts){.train = true, .slots = 1, .eras = 1}, err);
 *     int valid = lf_plan_add(p, valid_graph, &(struct lf_chain_opts){.eras = 2}, err);
 *     lf_plan_optimizer(p, &adamw, err);
 *     lf_plan_finish(p, err);
 *     lf_plan_bytes(p, &bytes);  or  json_t *j = lf_plan_json(p, err);
 *
 * One memory plan covers all chains. Chains without a common era bit are never live together and
 * share bytes.
 */
#ifndef LF_GRAPH_PLAN_H
#define LF_GRAPH_PLAN_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/graph/graph.h"
#include "engine/graph/layout.h"

typedef struct lf_plan lf_plan;

/* What the planner assumes about a machine. */
struct lf_target {
    const char *name;     /* "cpu-avx512bf16", "sm_90" */
    enum lf_isa isa;      /* of CPUs */
    int sm;               /* of GPUs: 90 is compute capability 9.0; 0: a CPU */
    size_t align;         /* bytes of every tensor's offset */
    uint32_t fuse;        /* enum lf_fuse bits */
    int64_t head_dim;     /* most channels of a head that attention takes */
    size_t max_workspace; /* of one node; more is an error that names it */
    /* host bytes that the process needs beside the plan: code, libraries, thread stacks, pinned
     * memory */
    size_t reserved;
    size_t device_reserved; /* GPUs: bytes of the context, code and libraries beside the plan */
    /* bytes of the panels of one weight; NULL: none are made */
    size_t (*packed_bytes)(int64_t n, int64_t k, enum lf_dtype ab_type);
};
enum lf_fuse {
    LF_FUSE_ACT = 1,      /* linear + activation */
    LF_FUSE_RESIDUAL = 2, /* linear (or its dX) + add */
    LF_FUSE_NORM = 4,     /* add + norm: one pass gives the sum and the normalised value */
    LF_FUSE_NORM_BWD = 8, /* norm backward + gradient of the residual path */
    LF_FUSE_DROPOUT = 16  /* dropout + add */
};
const struct lf_target *lf_target_find(const char *name); /* NULL: unknown */
/* that of this processor, as limited by LF_ISA */
const struct lf_target *lf_target_host(void);
/* The target of the device that a stage with this setting runs on. Where there is no GPU, a GPU is
 * assumed to be an sm_90. */
const struct lf_target *lf_target_device(enum lf_device device);
/* The names of all targets, NULL-terminated, for messages. */
const char *const *lf_target_names(void);

enum lf_recompute { LF_RECOMPUTE_NONE = 0, LF_RECOMPUTE_SELECTIVE, LF_RECOMPUTE_FULL };

/* 8-bit products of the weights that are marked for them (lf_pstore_fp8_matching). With
 * LF_FP8_TENSORS activations and weights are e4m3 and gradients e5m2, with one scale for a tensor.
 * With LF_FP8_BLOCKS everything is e4m3 with scales of 1 x 128 (activations, gradients) and 128 x
 * 128 (weights), as in DeepSeek-V3 (2024), section 3.3. Scales are computed from the values
 * themselves (kernels.h, "fp8"); sums are f32. */
enum lf_fp8 { LF_FP8_OFF = 0, LF_FP8_TENSORS, LF_FP8_BLOCKS };

struct lf_plan_opts {
    const struct lf_target *target; /* NULL: lf_target_host() */
    int threads;                    /* >= 1; workspace depends on it */
    /* type of activations and of operands of GEMMs: LF_F32, LF_BF16 or, on GPUs, LF_F16 */
    enum lf_dtype compute;
    /* needs compute = LF_BF16 and mode = LF_FAST; on GPUs sm_89, and sm_90 with blocks */
    enum lf_fp8 fp8;
    enum lf_numeric mode;
    /* keep f32 masters although no chain needs them and nothing trains them (converters); `masters`
     * of an optimizer takes precedence */
    bool keep_master;
    bool no_reuse; /* for debugging: every tensor gets bytes of its own */
};

/* Creates a plan. A store serves one plan at a time: a new plan drops the requirements of an
 * earlier one. Returns NULL on failure. LF_EBUSY: an executor holds the store. */
lf_plan *lf_plan_create(lf_pstore *ps, const struct lf_plan_opts *opts, lf_err *err);
void lf_plan_destroy(lf_plan *p);

struct lf_chain_opts {
    /* differentiate with respect to the trained tensors of the store; the graph needs lf_xent or
     * lf_output_grad */
    bool train;
    bool frozen; /* with train: nothing is trained in it nor before it, so no backward pass */
    enum lf_recompute recompute;
    int slots;     /* micro-batches in flight; 0 means 1 */
    uint32_t eras; /* bits of the times at which the chain is live; 0 means all */
    /* its products stay bf16 in a plan with fp8; for chains of a few rows (generation) */
    bool no_fp8;
    bool packed; /* linears read panels, which are made once per change of weights (inference) */
    /* Pipelines: the backward pass is two segments, LF_BWD_INPUT and LF_BWD_WEIGHT (exec.h). What
     * the second one reads lives until it has run, in each slot. Node order is all that changes, so
     * no bit does. LF_ENOTSUP: with recompute = full, whose second forward pass serves both. */
    bool split;
    /* > 0: the graph is chunk number `chunk`, from 1 on, of a cut model (graph.h, lf_cut_in). A
     * plan may have several, and others run between two segments of one. So each slot keeps what it
     * saves, and all chunks of the same eras share transients. Of gradients that several of them
     * write (tied embeddings) the chunk with the highest number overwrites in the first
     * micro-batch, and the others add: it writes them before the others do, as in a backward pass.
     * What goes on (lf_cut_out) stays in its slot, activations to the end of the backward pass and
     * gradients to the next forward pass of the slot. */
    int chunk;
    /* with zero = 3: its weights are there as a whole, gathered beforehand (lf_exec_hold), so that
     * a rank may run it alone; it reads them and no panels. For chains without gradients. */
    bool whole;
};
/* Adds a graph. The plan keeps what it needs, so the graph may be destroyed afterwards; the
 * contexts of its constants must stay. Returns the index of the chain (>= 0). */
int lf_plan_add(lf_plan *p, lf_graph *g, const struct lf_chain_opts *opts, lf_err *err);

struct lf_adamw_opts {
    float beta1, beta2, eps, weight_decay;
    enum lf_dtype moments; /* type of Adam's moments: LF_F32 or LF_BF16 */
    /* type of the masters. LF_BF16 needs compute LF_BF16; tensors with a bf16 copy then have no f32
     * weights */
    enum lf_dtype masters;
    /* bf16 moments and masters are rounded at random, without bias (kernels.h, adamw); else to
     * nearest */
    bool stochastic;
    /* an exponential moving average of every weight that has moments is kept in f32 (kernels.h,
     * adamw); where the state is divided it is divided as the moments are */
    bool average;
    /* GPUs, 0 to 1: share of the elements whose moments and averages lie in the host's memory, and
     * whose masters do where compute reads copies. The same kernel updates them over the bus, so no
     * bit changes */
    double offload;
};
/* Checks the options of an optimizer. LF_EINVAL: a value is out of range or impossible with this
 * compute type; the message uses the names of the options of stages. */
int lf_adamw_opts_check(const struct lf_adamw_opts *o, enum lf_dtype compute, lf_err *err);
/* Adds global norm, clipping and AdamW over every trained tensor, once per plan. */
int lf_plan_optimizer(lf_plan *p, const struct lf_adamw_opts *opts, lf_err *err);

/* `ranks` processes run this plan on different micro-batches. Before the global norm the segment of
 * the optimizer then sums the gradients over them (lf_exec_set_comm), in buckets of about
 * bucket_bytes.
 *
 * zero is the stage of Rajbhandari et al. 2020. 0: every rank keeps everything. 1: a rank keeps the
 * moments of its part, and the masters of those weights that graphs read as copies; it updates its
 * part and then the ranks exchange the weights. 2: it keeps the gradients of its part alone; they
 * are summed layer by layer beside the backward pass of each micro-batch, T = ((T + x_0) + x_1) +
 * ... over ranks, where T is the sum so far. 3: it keeps its part of the weights alone, frozen ones
 * too; they are gathered layer by layer, one ahead, in each forward and each backward pass. No bit
 * depends on zero, but for the order of sums over several micro-batches with 2 and 3.
 *
 * Chains with `whole` read weights from one more block of the arena, which is a whole copy of them
 * while these chains run.
 *
 * Without an optimizer nothing changes, and only 3 divides anything.
 *
 * On GPUs 0 and 1 (without groups) leave the order of a sum to NCCL, which has one of its own for
 * more than two ranks. 2, 3 and groups send the parts to their owners, who add them in the order
 * above. That moves the bytes of a reduce-scatter and takes up to 32 MiB for what has arrived.
 *
 * LF_ENOTSUP: with 2 and 3 chains that are split or chunks; with 3 8-bit products, and other chains
 * that read panels; with 3 on a GPU chains with `whole`, and magnitudes of adapters; sums of parts
 * over more than 512 GPUs. */
struct lf_plan_ranks {
    int ranks, rank; /* rank of this process; without zero every rank has the same plan */
    size_t bucket_bytes;
    int zero; /* 0 to 3 */
    /* > 1: so many groups of `ranks` processes, each of which divides the state among its own;
     * after the last micro-batch of a step the gradients of a part are summed over the groups too
     * (hybrid sharding, Zhao et al. 2023) */
    int groups, group; /* group: of this process */
    /* > 1: so many ranks each have other layers of the model (lf_chain_opts.chunk). The norm is
     * that of all, and gradients of tied tensors (lf_pstore_tie) are summed first. */
    int pipeline;
};
int lf_plan_data_parallel(lf_plan *p, const struct lf_plan_ranks *r, lf_err *err);

/* Makes a finished plan that of another of its ranks, by which --plan finds the largest one. Bytes
 * and lf_pstore_own are then those of that rank; no other rank's plan differs in anything else.
 * LF_EINVAL: there is no such rank, or the plan is not finished. LF_EBUSY: an executor holds it. */
int lf_plan_take_rank(lf_plan *p, int rank, lf_err *err);
/* Bytes of what only its owner keeps (sharded state) on a rank of a finished plan, without the gaps
 * between tensors; saved: those that a checkpoint has count twice, as a copy of them is made. 0
 * where nothing is divided. Cheap: nothing is laid out for it. */
double lf_plan_own_bytes(const lf_plan *p, int rank, bool saved);

/* Adds memory that no graph uses, for kernels outside of graphs. It counts as state and is zeroed
 * when an executor binds the plan; lf_exec_state finds it by name. LF_EINVAL: bytes is 0, or the
 * name is taken. */
int lf_plan_state(lf_plan *p, const char *name, size_t bytes, lf_err *err);
/* The kernels of the plan's target, to compute the size of such memory. */
const struct lf_kernels *lf_plan_kernels(const lf_plan *p);

/* Places everything. After this nothing can be added. */
int lf_plan_finish(lf_plan *p, lf_err *err);

struct lf_plan_bytes {
    size_t params; /* masters + copies + packed panels */
    size_t grads;
    size_t optimizer;    /* moments and averages */
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
/* The memory of a process. The caller sets host to what the process needs there beside the plan;
 * lf_plan_memory adds what the target reserves. */
struct lf_plan_memory {
    double host;   /* bytes of the host outside of the plan */
    double device; /* bytes of the GPU; 0 on a CPU */
    double total;  /* bytes of the node's memory: host and plan on a CPU, host alone with a GPU */
};
void lf_plan_memory(struct lf_plan_memory *m, const struct lf_target *t, double planned);
/* The same of a process that needs nothing beside p but what it offloads; lf_plan_json says it. */
struct lf_plan_memory lf_plan_process(const lf_plan *p);
/* What this rank begins and sends: collectives, and bytes as engine/comm moves them (comm.h,
 * lf_comm_counted; of an all-reduce between GPUs 2 (P - 1) / P). */
struct lf_plan_moved {
    int64_t messages;
    double bytes;
};
/* Sums up to this length go whole to every rank (LF_COMM_SHORT). */
enum { LF_PLAN_SHORT_SUM = 16 << 10 };
/* A group of a kind of the store, in the order of a store that no ranks divide. */
struct lf_plan_piece {
    const void *data; /* backend memory: all of it, or with `cut` this rank's part */
    size_t bytes;     /* of all */
    size_t gap;       /* zero bytes behind it */
    /* [ranks + 1] rank r has bytes [cut[r], cut[r + 1]) of it; NULL: every rank has all */
    const size_t *cut;
};
/* Calls fn for every group of this kind, of those in memory of the host or of the others, until it
 * fails. So what is made of all bytes, one piece after the other, does not depend on zero. data is
 * NULL where the plan is not bound. After lf_plan_finish. */
int lf_plan_pieces(const lf_plan *p, enum lf_pkind kind, bool host,
                   int (*fn)(void *user, const struct lf_plan_piece *q, lf_err *err), void *user,
                   lf_err *err);
/* What an optimizer step moves between ranks; zero for one rank. After lf_plan_finish. */
struct lf_plan_comm {
    int ranks;
    int64_t messages;      /* once a step: those of all, within and across */
    double sent_bytes;     /* by this rank */
    double reduced_bytes;  /* gradients that are summed */
    double gathered_bytes; /* weights that ranks give each other, with zero */
    size_t largest_bytes;  /* of one bucket, or one window */
    /* By communicator: among all ranks, among those that divide the state, over the groups of
     * these. Without groups the first two are of the same ranks. */
    struct lf_plan_moved all, within, across;
    /* Beside these, for each micro-batch, with zero = 2 and 3, within. */
    int64_t micro_messages;
    double micro_bytes;
    struct lf_plan_moved hold; /* beside these, within, for each lf_exec_hold */
    /* Beside all of these, among the ranks of the tensor axis (layout.h): once a step, and for each
     * micro-batch that this rank runs. */
    struct lf_plan_moved tensor, micro_tensor;
    /* The same among the ranks of the context axis, which exchange within passes alone. */
    struct lf_plan_moved micro_context;
    double context_most; /* its bytes of the rank that sends most; calls are as many for each */
    /* Where ranks divide experts: among the ranks with the same ones once a step, and for each
     * micro-batch with zero = 2 and 3; and among those that divide them, for each pass of any of
     * them, the counts of pairs, and rows where each expert is chosen equally often. */
    struct lf_plan_moved same, micro_same, micro_counts, micro_rows;
};
int lf_plan_comm(const lf_plan *p, struct lf_plan_comm *out);
/* What one run of a chain's forward, or of its backward pass too, moves within, or among the ranks
 * with the same experts: windows. */
struct lf_plan_moved lf_plan_pass_comm(const lf_plan *p, int chain, bool backward, bool experts);
/* The same among the ranks of the tensor axis: what enters and leaves divided products, and what
 * they exchange of a divided vocabulary. And among those of the context axis: rows for heads. */
struct lf_plan_moved lf_plan_pass_axis(const lf_plan *p, enum lf_axis axis, int chain,
                                       bool backward);
/* The same among ranks that divide experts: the counts of pairs. *rows becomes what rows move in
 * one round, where each expert is chosen equally often. */
struct lf_plan_moved lf_plan_pass_experts(const lf_plan *p, int chain, bool backward,
                                          struct lf_plan_moved *rows);
struct lf_plan_cost {
    /* FLOPs of one forward run of the chain, with causal or full attention */
    double fwd_causal, fwd_full;
    double bwd_causal, bwd_full; /* of its backward, without recomputation */
    double recompute;            /* FLOPs of recomputation, with causal attention */
    double traffic_bytes;        /* memory traffic if every operand moves once */
    /* FLOPs with causal attention by the segment that computes them: the forward pass has the
     * backward pass of lf_xent, and recomputation stands where it happens. input: of LF_BWD_INPUT,
     * or of all of LF_BWD where it is not split */
    double run_fwd, run_input, run_weight;
    int nodes_fwd, nodes_bwd;
};
int lf_plan_cost(const lf_plan *p, int chain, struct lf_plan_cost *out);
const struct lf_target *lf_plan_target(const lf_plan *p);
enum lf_numeric lf_plan_mode(const lf_plan *p);
/* {"target","compute","numeric","parameters","trained",
 * "bytes":{...},"segments":[{"name","nodes","flops_causal",...}]}; owned. */
json_t *lf_plan_json(const lf_plan *p, lf_err *err);
/* Returns a line for every node with operands, types and offsets, for people and tests. The caller
 * frees it. */
char *lf_plan_text(const lf_plan *p, int chain, lf_err *err);

#endif
