/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: binds a finished plan to a backend's memory and kernels once, then only calls. One
 * training step:
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
 * LF_FIRST overwrites gradients, LF_ACCUM adds to them: both are bound beforehand, so there is no
 * zeroing pass and no branch. No allocation, file or lock happens in these calls. Pointers are the
 * backend's; the graph never looks behind them.
 */
#ifndef LF_GRAPH_EXEC_H
#define LF_GRAPH_EXEC_H

#include "engine/back/back.h"
#include "engine/graph/plan.h"

typedef struct lf_exec lf_exec;

/* LF_BWD_LAST is LF_BWD of the last micro-batch of a step. With early sums (lf_exec_set_reduce)
 * it sums each bucket of gradients over the ranks as soon as the bucket is complete, beside the
 * rest of the computation, and the optimizer waits for these sums. Without early sums it is
 * LF_BWD. */
enum lf_segment { LF_FWD = 0, LF_BWD, LF_OPT, LF_BWD_LAST };
enum lf_variant { LF_FIRST = 0, LF_ACCUM };
#define LF_CHAIN_OPT (-1)

struct lf_exec_opts {
    bool poison;     /* checking mode: bytes are NaN before their first and after their last use */
    bool no_refresh; /* leave stale copies alone (tests) */
    /* borrowed, outlives the executor: collects what runs take (profile.h); NULL: none */
    struct lf_profile *profile;
    const char *label; /* in front of the graphs' names there; NULL: nothing */
};

/* Borrows plan, backend and store until destroy. Parameter memory is bound here (contents zero).
 * LF_EINVAL names a node whose kernel refuses its shapes; LF_ENOMEM. */
lf_exec *lf_exec_create(lf_plan *p, lf_back *b, const struct lf_exec_opts *opts, lf_err *err);
void lf_exec_destroy(lf_exec *ex);

/* Host -> input `name` of a slot. bytes must be exactly the tensor's. A chain that does not read an
 * input of that name (it was never used, or planned away) takes it without effect when it was
 * declared; LF_ENOENT for a name never declared. */
int lf_exec_write(lf_exec *ex, int chain, int slot, const char *name, const void *src, size_t bytes,
                  lf_err *err);
/* Output or state -> host, after a run; activations are gone when the next run of a chain of any
 * era begins. bytes at most the tensor's (a prefix is read). f32 outputs are read as f32, bf16 ones
 * as bf16. */
int lf_exec_read(lf_exec *ex, int chain, int slot, const char *name, void *dst, size_t bytes,
                 lf_err *err);

/* Pointer for direct writing/reading where the backend's memory is the host's (NULL elsewhere or
 * for unknown names). */
void *lf_exec_host_ptr(lf_exec *ex, int chain, int slot, const char *name);

/* The pointer by which the backend knows it, for kernels that are called by hand. */
void *lf_exec_ptr(lf_exec *ex, int chain, int slot, const char *name);

/* Sums n floats of backend memory over all ranks, in place and in a fixed order, so that every rank
 * ends with the same bits. lf_exec_run(LF_CHAIN_OPT) calls it for each
 * bucket; a plan for several ranks (lf_plan_data_parallel) does not run without. On a backend with
 * comm_begin it is called between that and comm_end, and what it queues belongs on comm_stream.
 * early: it only queues and waits for nothing, so that LF_BWD_LAST may call it. user is
 * borrowed. */
typedef int (*lf_exec_reduce)(void *user, float *grads, size_t n, lf_err *err);
void lf_exec_set_reduce(lf_exec *ex, lf_exec_reduce reduce, void *user, bool early);

int lf_exec_run(lf_exec *ex, int chain, enum lf_segment seg, int slot, enum lf_variant variant,
                lf_err *err);

/* From now on runs of the chain compute only the first `live` of the `all` rows of its
 * activations, rounded up to LF_LIVE_ROWS. The rows behind must be padding (no target, in no
 * document), and nobody may read them. A forward pass and its backward pass want the same
 * number. Sums over rows (gradients) have the bits of a graph with that many rows. Returns the
 * number of rows that are computed. That is `all` where fewer are not possible: on backends that
 * replay recorded runs, in checking mode, with a profile (the plan counts its operations), and
 * for graphs with other ops than a dense decoder has. */
enum { LF_LIVE_ROWS = 16 };
int64_t lf_exec_live_rows(lf_exec *ex, int chain, int64_t all, int64_t live);

/* A program: the list as data. */
struct lf_program_item {
    int chain;
    enum lf_segment seg;
    int slot;
    enum lf_variant variant;
};
int lf_exec_run_program(lf_exec *ex, const struct lf_program_item *items, size_t n, lf_err *err);

/* Memory of lf_plan_state, as the backend knows it; NULL: the plan has none of that name. */
void *lf_exec_state(lf_exec *ex, const char *name);

int lf_exec_record_write(lf_exec *ex, const struct lf_step_record *rec, lf_err *err);
int lf_exec_record_read(lf_exec *ex, struct lf_step_record *rec, lf_err *err);
/* begin queues a copy of the step record; end waits for the copy and reads it. Only on a backend
 * with late copies, and one copy at a time. */
int lf_exec_record_begin(lf_exec *ex, lf_err *err);
int lf_exec_record_end(lf_exec *ex, struct lf_step_record *rec, lf_err *err);
/* loss_limit alone, while a step's gradients are on their way. */
int lf_exec_loss_limit(lf_exec *ex, double limit, lf_err *err);
/* As the backend knows it. */
struct lf_step_record *lf_exec_record_ptr(lf_exec *ex);

/* Rebuild copies and panels whose version is behind the masters'. Runs by itself at the start of
 * lf_exec_run; cheap when nothing changed. */
int lf_exec_refresh(lf_exec *ex, lf_err *err);

/* Bytes really taken from the backend: equals lf_plan_bytes().total. */
size_t lf_exec_bytes(const lf_exec *ex);
/* {"backend","kernels","target","threads","numeric","compute","optimizer_state","plan":hash of the
 * node list; GPUs: "device","products"}: what must be equal for a bitwise continuation. Owned. */
json_t *lf_exec_fingerprint(const lf_exec *ex, lf_err *err);

#endif
