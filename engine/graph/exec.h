/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor binds a finished plan once to the memory and the kernels of a backend. After that it
 * only calls kernels. One training step:
 *
 *     learning rate, inverse token count, sums zero:
 *     lf_exec_record_write(ex, &rec, err);
 *     for (m = 0; m < micro; m++) {
 *         every input of the graph:
 *         lf_exec_write(ex, train, 0, "tokens", tok, bytes, err);
 *         lf_exec_run(ex, train, LF_FWD, 0, m == 0 ? LF_FIRST : LF_ACCUM, err);
 *         lf_exec_run(ex, train, LF_BWD, 0, m == 0 ? LF_FIRST : LF_ACCUM, err);
 *     }
 *     lf_exec_run(ex, LF_CHAIN_OPT, LF_OPT, 0, 0, err);
 *     loss sum, gradient norm, skip flag:
 *     lf_exec_record_read(ex, &rec, err);
 *
 * LF_FIRST overwrites gradients and LF_ACCUM adds to them. Both are bound beforehand, so there is
 * no zeroing pass and no branch. These calls allocate nothing and use no file or lock. Pointers
 * belong to the backend; the graph never dereferences them.
 */
#ifndef LF_GRAPH_EXEC_H
#define LF_GRAPH_EXEC_H

#include "engine/back/back.h"
#include "engine/graph/plan.h"

typedef struct lf_exec lf_exec;

/* LF_BWD_LAST is LF_BWD of the last micro-batch of a step. With early sums (lf_exec_set_comm)
 * it sums each bucket of gradients over the ranks as soon as the bucket is complete, beside the
 * rest of the computation, and the optimizer waits for these sums. Without early sums it is
 * LF_BWD.
 *
 * LF_BWD of a chain that is split (plan.h) may run as LF_BWD_INPUT, which makes what goes back to
 * the graph before (the B of zero-bubble schedules, Qi et al. 2024), and some time later
 * LF_BWD_WEIGHT, which makes the gradients of weights that are left (W). The first chunk of a model
 * gives nothing back: its LF_BWD_INPUT makes the gradients of all activations. */
enum lf_segment { LF_FWD = 0, LF_BWD, LF_OPT, LF_BWD_LAST, LF_BWD_INPUT, LF_BWD_WEIGHT };
enum lf_variant { LF_FIRST = 0, LF_ACCUM };
#define LF_CHAIN_OPT (-1)

struct lf_exec_opts {
    bool poison;     /* checking mode: bytes are NaN before their first and after their last use */
    bool no_refresh; /* do not refresh stale copies (tests) */
    /* collects the times of runs (profile.h); borrowed, outlives the executor; NULL: none */
    struct lf_profile *profile;
    const char *label; /* prefix of the graphs' names in the profile; NULL: none */
};

/* Binds a plan; plan, backend and store are borrowed until destroy. Parameter memory is bound here
 * and is zero. LF_EINVAL: a kernel refuses the shapes of a node; the message names the node.
 * LF_ENOMEM. */
lf_exec *lf_exec_create(lf_plan *p, lf_back *b, const struct lf_exec_opts *opts, lf_err *err);
void lf_exec_destroy(lf_exec *ex);

/* Copies host memory to the input `name` of a slot. bytes must be exactly those of the tensor. An
 * input that the graph declared and the chain does not read is accepted without effect. LF_ENOENT:
 * the name was never declared. */
int lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src, size_t bytes,
                  lf_err *err);
/* Copies an output or a state to the host, after a run. Outputs are valid until the next run of any
 * chain begins. bytes may be less than those of the tensor; then a prefix is read. f32 outputs are
 * read as f32, bf16 ones as bf16. */
int lf_exec_read(lf_exec *ex, int chain, int slot, const char *name, void *dst, size_t bytes,
                 lf_err *err);

/* Returns a pointer for direct access where the memory of the backend is that of the host; NULL
 * elsewhere and for unknown names. */
void *lf_exec_host_ptr(lf_exec *ex, int chain, int slot, const char *name);

/* Returns the backend's pointer, for kernels that the caller runs itself. */
void *lf_exec_ptr(lf_exec *ex, int chain, int slot, const char *name);

/* The backend's pointer to what goes between graphs (graph.h, lf_cut_in): to the output of that
 * name, or to the input. *bytes becomes its size. NULL: the chain has none. */
void *lf_exec_cut(lf_exec *ex, int chain, int slot, const char *name, bool output, size_t *bytes);

/* What is under way between ranks; zeroed, or finished: nothing. */
struct lf_exec_req {
    void *p;
};

struct lf_rank_group; /* layout.h */
/* What ranks do with each other's memory. lf_exec_run(LF_CHAIN_OPT) calls these in the same order
 * on every rank; a plan for several ranks (lf_plan_data_parallel) does not run without them. Sums
 * have a fixed order, so that they have the same bits on every rank, whichever function makes them.
 * On a backend with comm_begin all are called behind comm_begin and queue their work on
 * comm_stream, or wait for it; the executor makes the computation wait for it, with comm_end or
 * marks. */
struct lf_exec_comm {
    /* Sums n floats of backend memory over all ranks, in place. */
    int (*reduce)(void *user, float *grads, size_t n, lf_err *err);
    /* The same where each rank needs its part alone: counts[r] floats of rank r, one after the
     * other. */
    int (*scatter)(void *user, float *grads, const size_t *counts, lf_err *err);
    /* Sums n doubles of backend memory, in place. */
    int (*add)(void *user, double *sums, size_t n, lf_err *err);
    /* Gives every rank the parts of all: bytes[r] bytes of rank r, one after the other, of which
     * this rank's is in place. Backend memory. */
    int (*gather)(void *user, void *data, const size_t *bytes, lf_err *err);
    /* With groups of ranks all but reduce are for those of this one's group, and this sums n floats
     * in place over the ranks that have the same part in other groups. */
    int (*across)(void *user, float *grads, size_t n, lf_err *err);
    /* Plans with zero = 2 and 3: these begin what `finish` waits for. begin_gather is gather.
     * begin_sum sums data, counts[r] floats of rank r, one after the other; out gets those of this
     * rank, added to what is there with `more`. */
    int (*begin_gather)(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                        lf_err *err);
    int (*begin_sum)(void *user, struct lf_exec_req *q, float *out, const float *data,
                     const size_t *counts, bool more, lf_err *err);
    int (*finish)(void *user, struct lf_exec_req *q, lf_err *err);
    /* Layouts that divide matrices: sums n floats of backend memory over the ranks of the tensor
     * axis, in place. Called while a segment runs, in the same order on each of them. */
    int (*tensor_sum)(void *user, float *data, size_t n, lf_err *err);
    /* Gives each of them the parts of all: `bytes` bytes of rank r at all + r * bytes, of which
     * this rank's is in place. */
    int (*tensor_gather)(void *user, void *all, size_t bytes, lf_err *err);
    /* Sums data over them, n floats of each rank, one after the other; out gets those of this
     * rank. */
    int (*tensor_scatter)(void *user, float *out, const float *data, size_t n, lf_err *err);
    /* Sums n doubles of backend memory over them, in place, for the norm. */
    int (*tensor_add)(void *user, double *sums, size_t n, lf_err *err);
    /* Layouts that divide rows: the ranks of the context axis give each other parts of `bytes`
     * bytes, one for each rank in `in`, one of each rank in `out`, both in the order of the ranks.
     * The other is tensor_gather among these ranks. */
    int (*context_swap)(void *user, void *out, const void *in, size_t bytes, lf_err *err);
    int (*context_gather)(void *user, void *all, size_t bytes, lf_err *err);
    /* The first among some of these ranks; NULL: they exchange with all alone. */
    int (*context_among)(void *user, void *out, const void *in, size_t bytes,
                         const struct lf_rank_group *g, lf_err *err);
    /* The first where parts differ: to[r] bytes for rank r, from[r] of it; NULL: no rank asks for
     * the rows of a window alone. */
    int (*context_parts)(void *user, void *out, const size_t *from, const void *in,
                         const size_t *to, lf_err *err);
    /* context_gather, begun, one at a time; `finish` waits for it. NULL: a gather waits. */
    int (*context_begin)(void *user, struct lf_exec_req *q, void *all, size_t bytes, lf_err *err);
    /* Ranks that divide experts, among these, while a segment runs: all-gather of equal parts in
     * memory of the host, and all-to-all of backend memory. */
    int (*experts_gather)(void *user, void *all, size_t bytes, lf_err *err);
    int (*experts_exchange)(void *user, void *out, const size_t *from, const void *in,
                            const size_t *to, lf_err *err);
    /* The same, begun; `finish` waits for it. NULL: an exchange waits. */
    int (*experts_begin)(void *user, struct lf_exec_req *q, void *out, const size_t *from,
                         const void *in, const size_t *to, lf_err *err);
    /* reduce, scatter and gather among the ranks of the data axis that have the same experts. */
    int (*same_reduce)(void *user, float *grads, size_t n, lf_err *err);
    int (*same_scatter)(void *user, float *grads, const size_t *counts, lf_err *err);
    int (*same_gather)(void *user, void *data, const size_t *bytes, lf_err *err);
    /* begin_gather and begin_sum among these. */
    int (*same_begin_gather)(void *user, struct lf_exec_req *q, void *data, const size_t *bytes,
                             lf_err *err);
    int (*same_begin_sum)(void *user, struct lf_exec_req *q, float *out, const float *data,
                          const size_t *counts, bool more, lf_err *err);
    /* Pipelines: sums n floats of backend memory with the rank that has the same tied tensor, in
     * place. Where the other two are there, its owner has the sum then, and the other rank has it,
     * and both may write over data, behind tied_end. tied_begin (lf_exec_begin_tied) waits for
     * nobody; tied_sum does without it. One tensor at a time. */
    int (*tied_begin)(void *user, float *data, size_t n, lf_err *err);
    int (*tied_sum)(void *user, float *data, size_t n, lf_err *err);
    int (*tied_end)(void *user, lf_err *err);
    /* Sums n doubles of the host's memory over the ranks that have other layers. */
    int (*pipeline_add)(void *user, double *sums, size_t n, lf_err *err);
    bool early; /* reduce only queues work and never waits, so that LF_BWD_LAST may call it */
};
/* user is borrowed. All but reduce serve plans with zero. */
void lf_exec_set_comm(lf_exec *ex, const struct lf_exec_comm *comm, void *user);
/* Planned backend memory for parts of gradients that other ranks of this one's group sent: a row of
 * *stride floats for each, used on comm_stream alone. NULL: such sums need none here. */
float *lf_exec_scratch(const lf_exec *ex, size_t *stride);

int lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant variant,
                lf_err *err);

/* With zero = 2 and 3 every rank runs the same segments equally often, since weights are gathered
 * and gradients summed beside them; where ranks divide experts, since rows of all go to each. A
 * rank without a micro-batch calls this in place of lf_exec_run: it gives what is its own, computes
 * what its experts get of others, and counts as one whose gradients are 0. It does nothing where
 * the chain has nothing to exchange. */
int lf_exec_idle(lf_exec *ex, int chain, enum lf_segment seg, enum lf_variant variant, lf_err *err);
/* The same in this slot, whose bytes what is computed of others takes, and for any segment. */
int lf_exec_idle_slot(lf_exec *ex, int chain, enum lf_segment seg, int slot,
                      enum lf_variant variant, lf_err *err);

/* With zero = 3: gathers the weights that chains with `whole` read, which every rank may then run
 * as often as it likes, or not at all. They stay until another chain, or the optimizer, runs, or
 * weights are written; a chain with `whole` that finds them gone fails with LF_EINVAL. Collective
 * then; elsewhere it does nothing. */
int lf_exec_hold(lf_exec *ex, lf_err *err);

/* Sets every magnitude of an adapter (adapter.h) to the lengths of the rows of its weights, as the
 * graphs see them. With B zero an adapted layer then has the bits of its base. Call it after the
 * weights of the base are in place. Collective with zero = 3: each rank measures all rows, on one
 * unit of gathered weights after the other. */
int lf_exec_adapter_start(lf_exec *ex, lf_err *err);

/* Pipelines: what the ends of the axis do early for the sum of a tied tensor's gradients. Every
 * rank calls it before the passes of a step (made = false), when the tensor's owner asks for what
 * the other rank will have, and behind them (made = true), when the other one gives it. It goes
 * beside what the owner still computes, and the optimizer's run waits for it. Without this call all
 * of it is done there. */
int lf_exec_begin_tied(lf_exec *ex, bool made, lf_err *err);

/* From now on runs of the chain compute only the first `live` of the `all` rows of its activations,
 * rounded up to LF_LIVE_ROWS. The rows behind must be padding (no target, in no document), and no
 * code may read them. A forward pass and its backward pass want the same number. Sums over rows
 * (gradients) have the bits of a graph with that many rows. Returns the number of rows that are
 * computed. That is `all` where fewer are not possible: on backends that replay recorded runs, in
 * checking mode, with a profile (the plan counts its operations), and for graphs with other ops
 * than a dense decoder has. */
enum { LF_LIVE_ROWS = 16 };
int64_t lf_exec_live_rows(lf_exec *ex, int chain, int64_t all, int64_t live);

/* A program: a list of runs as data. */
struct lf_program_item {
    int chain;
    enum lf_segment seg;
    int slot;
    enum lf_variant variant;
};
int lf_exec_run_program(lf_exec *ex, const struct lf_program_item *items, size_t n, lf_err *err);

/* Returns the memory of lf_plan_state as a backend pointer, or NULL when the plan has none of that
 * name. */
void *lf_exec_state(lf_exec *ex, const char *name);

int lf_exec_record_write(lf_exec *ex, const struct lf_step_record *rec, lf_err *err);
int lf_exec_record_read(lf_exec *ex, struct lf_step_record *rec, lf_err *err);
/* begin queues a copy of the step record; end waits for the copy and reads it. Only on a backend
 * with late copies, and one copy at a time. */
int lf_exec_record_begin(lf_exec *ex, lf_err *err);
int lf_exec_record_end(lf_exec *ex, struct lf_step_record *rec, lf_err *err);
/* Writes loss_limit alone, while the gradients of a step are being summed. */
int lf_exec_loss_limit(lf_exec *ex, double limit, lf_err *err);
/* The step record as a backend pointer. */
struct lf_step_record *lf_exec_record_ptr(lf_exec *ex);

/* Makes copies and panels anew whose masters have changed. lf_exec_run does this first; it is cheap
 * when nothing changed. */
int lf_exec_refresh(lf_exec *ex, lf_err *err);

/* Returns the bytes taken from the backend. They equal lf_plan_bytes().total. */
size_t lf_exec_bytes(const lf_exec *ex);
/* The fingerprint: everything that must be equal for a bitwise continuation. The caller owns it.
 *     {"backend","kernels","kernel_version","target","threads","numeric","compute",
 *      "optimizer_state","plan"}
 * "plan" is a hash of the list of nodes. GPUs add "device", "products" and "attention", CPUs
 * "products" where a library computes them. */
json_t *lf_exec_fingerprint(const lf_exec *ex, lf_err *err);

#endif
