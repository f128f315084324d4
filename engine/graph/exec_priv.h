/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound program, which exec*.c (running), exec_bind.c (binding), exec_debug.c (checking) and
 * profile.c share.
 */
#ifndef LF_GRAPH_EXEC_PRIV_H
#define LF_GRAPH_EXEC_PRIV_H

#include "engine/graph/exec.h"
#include "engine/graph/priv.h"

struct lf_call {
    int kernel; /* enum lf_kernel_id */
    const void *args;
};

enum { LF_CAPTURED = 4 }; /* forward, backward, and the two segments of that */

struct lf_bound {          /* one chain */
    struct lf_call *calls; /* [slot][variant][node] */
    int variants;
    struct lf_captured *captured; /* [slot][variant][LF_CAPTURED] */
    int64_t live;                 /* rows that the calls compute; 0: all (exec_rows.c) */
    /* [bucket] of lf_plan_bucket_ready, for training chains of a plan for ranks; else NULL */
    size_t *ready;
    /* [slot][variant][bucket, and one for the rest] of LF_BWD_LAST */
    struct lf_captured *piece;
    struct lf_exec_req *req;  /* [window]; NULL: the chain has none */
    struct lf_captured *part; /* [slot][variant][n_parts] of a chain with windows */
    size_t n_parts;           /* events, and the ends of both segments */
    /* exec_pieces.c, of a chain in which ranks exchange while a backend records; else NULL */
    uint8_t *edge;               /* [node, and the end] */
    struct lf_captured *between; /* [slot][variant][node], of the piece that begins there */
    /* [slot][region] calls of exec_experts.c that run before another round; NULL: none */
    struct lf_call **again;
    /* [slot][node] with args: what runs in rounds behind the first in place of that in `calls` */
    struct lf_call *added;
};

enum lf_exec_tied { LF_TIED_NONE, LF_TIED_OWN, LF_TIED_LENT };

struct lf_exec {
    lf_plan *p;
    lf_back *b;
    struct lf_exec_opts o;
    lf_arena *args;    /* every argument struct */
    char *memory;      /* one block of plan->bytes.total: store, inputs, states, arena */
    char *host_memory; /* plan->bytes.offloaded bytes of the host; NULL: nothing is offloaded */
    char *inputs, *state, *arena;
    bool bound_store;
    struct lf_bound *chain;
    /* the norm, AdamW, the balancing of experts where there is one, then the 8-bit copies of
     * changed weights */
    struct lf_call *opt;
    size_t n_opt;
    /* calls before the 8-bit copies; with zero, weights of other ranks arrive behind them */
    size_t n_update;
    struct lf_captured opt_captured, made_captured;
    /* early: sums may begin in the backward pass; summing: they have, and nothing waits for them
     * yet */
    bool early, summing;
    enum lf_exec_tied tied; /* the sum of a tied tensor's gradients that has not ended */
    uint64_t held; /* version of the weights that lf_exec_hold has left; 0: none are there */
    struct lf_exec_comm comm;
    void *comm_user;
    struct lf_exchange exchange; /* what nodes of a layout call */
    struct lf_exec_req keys;     /* a gather that one of them has begun */
    struct lf_k_ranks with;      /* what kernels of a divided vocabulary do */
    struct lf_call *copies, *packs;
    size_t n_copies, n_packs;
    struct lf_opt_tensor *opt_host; /* staging of the optimizer's table */
    /* in it: what AdamW updates, [n_own], of which the first n_counted are in this rank's part of
     * the norm */
    struct lf_opt_tensor *own_host;
    size_t n_own, n_counted;
    struct lf_step_record *rec; /* backend memory */
    const struct lf_nvtx *nvtx; /* of a tool such as Nsight Systems; NULL: none */
    struct lf_prof_exec *prof;  /* profile_priv.h; NULL: no profile */
};

/* Runs one call, behind a border of tasks. Returns the kernel's code. */
static inline int lf_exec_call(const lf_exec *ex, const struct lf_call *c)
{
    if (ex->b->border)
        ex->b->border(ex->b->border_arg);
    return lf_kernel_table[c->kernel].call(ex->b->kernels, ex->b->queue, c->args);
}

int lf_exec_bind(lf_exec *ex, lf_err *err);
/* Fills the argument struct of one call again. */
int lf_exec_fill_call(lf_exec *ex, void *args, const struct lf_bind *b, const struct lf_chain *c,
                      size_t i, lf_err *err);
/* Calls fn for each call of a chain. rows_all and rows_live are those of lf_bind. */
typedef int (*lf_exec_call_fn)(lf_exec *ex, struct lf_call *call, const struct lf_bind *b,
                               const struct lf_chain *c, size_t i, lf_err *err);
int lf_exec_each_call(lf_exec *ex, size_t chain, int64_t rows_all, int64_t rows_live,
                      lf_exec_call_fn fn, lf_err *err);
/* Fills the arguments of a node in a slot of a chain with the windows that are there at node `at`;
 * with `add` its gradients are added to what is there. */
struct lf_exec_within {
    int slot;
    size_t node, at;
    bool add;
};
int lf_exec_fill_within(lf_exec *ex, void *args, const struct lf_chain *c,
                        const struct lf_exec_within *n, lf_err *err);
/* Runs nodes [from, to) of a chain, recorded in `captured`. */
int lf_exec_run_nodes(lf_exec *ex, int chain, const struct lf_call *calls, size_t from, size_t to,
                      struct lf_captured *captured, lf_err *err);
/* exec_sum.c: calls that are queued from now on wait for the sums under way. */
int lf_exec_sum_end(lf_exec *ex, lf_err *err);
/* What ranks do from here on sees what was computed until now; what is computed from here on sees
 * what they did. */
static inline int lf_exec_comm_begin(const lf_exec *ex, lf_err *err)
{
    return ex->b->ops->comm_begin ? ex->b->ops->comm_begin(ex->b, err) : 0;
}
static inline int lf_exec_comm_end(const lf_exec *ex, lf_err *err)
{
    return ex->b->ops->comm_end ? ex->b->ops->comm_end(ex->b, err) : 0;
}
/* exec_pieces.c */
enum {
    LF_EDGE = 1,
    LF_EDGE_ALONE = 2
}; /* a piece begins; and it is one node that is not recorded */
int lf_exec_pieces_bind(lf_exec *ex, size_t chain, lf_err *err);
void lf_exec_pieces_free(const lf_exec *ex, size_t chain);
/* Where the piece that begins with node `at` ends, `to` at the latest. */
size_t lf_exec_piece_end(const struct lf_bound *bc, size_t at, size_t to);
/* exec_tensor.c: what nodes of a layout do is that of ex->comm from here on. */
void lf_exec_connect_tensor(lf_exec *ex);
/* Sums over the ranks of the tensor axis, for the optimizer. */
int lf_exec_sum_tensor(lf_exec *ex, lf_err *err);
/* Ends the sum of a tied tensor's gradients where it is under way and this rank's part is `of`: the
 * tensor's owner, who has sent the sum, or the other, who has got it. */
int lf_exec_end_tied(lf_exec *ex, enum lf_exec_tied of, lf_err *err);
int lf_exec_add_layers(const lf_exec *ex, double *sums, lf_err *err);
/* Sums every bucket, for the optimizer. */
int lf_exec_sum(lf_exec *ex, lf_err *err);
/* With zero: the ranks add up their sums of the norm's blocks; give each other what they
 * updated. */
int lf_exec_sum_blocks(lf_exec *ex, lf_err *err);
int lf_exec_gather(lf_exec *ex, lf_err *err);
int lf_exec_sum_bind(lf_exec *ex, size_t chain, lf_err *err);
void lf_exec_sum_free(const lf_exec *ex, size_t chain);
bool lf_exec_sums_early(const lf_exec *ex, int chain);
/* Runs the backward pass in parts and begins the sum of a bucket after each part. */
int lf_exec_run_last(lf_exec *ex, int chain, int slot, int variant, lf_err *err);
/* exec_window.c: a segment of a chain with windows. */
int lf_exec_run_windows(lf_exec *ex, int chain, enum lf_segment seg, int slot, int variant,
                        lf_err *err);
int lf_exec_window_bind(lf_exec *ex, size_t chain, lf_err *err);
void lf_exec_window_free(const lf_exec *ex, size_t chain);
/* Returns the address of tensor t for a node where t is in a window; else NULL. */
void *lf_exec_window_addr(const lf_exec *ex, const struct lf_chain *c, int32_t t, size_t node);
/* Are the gradients of a node in windows? */
bool lf_exec_writes_window(const lf_exec *ex, const struct lf_chain *c, size_t node);
/* Gathers a kind of a unit to this offset of the arena. */
int lf_exec_gather_unit(lf_exec *ex, size_t unit, int kind, size_t off, lf_err *err);
/* exec_whole.c: the address of tensor t for a chain with `whole`, where ranks divide it; else
 * NULL. */
void *lf_exec_whole_addr(const lf_exec *ex, const struct lf_chain *c, int32_t t);
/* May the chain run? A chain without `whole` overwrites what is held. */
int lf_exec_check_held(lf_exec *ex, const struct lf_chain *c, lf_err *err);
/* Returns the address of tensor t of a chain for a slot; NULL for t == 0. t is in no window. */
void *lf_exec_addr(const lf_exec *ex, const struct lf_chain *c, int slot, int32_t t);
const struct lf_call *lf_exec_calls(const lf_exec *ex, int chain, int slot, int variant);
/* Checking mode: poisons what a segment of this slot writes, before it runs; runs nodes [from, to);
 * fills bytes with NaN. */
int lf_exec_poison_start(lf_exec *ex, const struct lf_chain *c, int slot, bool forward,
                         lf_err *err);
int lf_exec_run_poisoned(lf_exec *ex, int chain, size_t from, size_t to, int slot, int variant,
                         lf_err *err);
int lf_exec_poison(lf_exec *ex, char *at, size_t bytes, lf_err *err);
int lf_exec_call_failed(const lf_exec *ex, const struct lf_chain *c, size_t node, int rc,
                        lf_err *err);

/* exec_capture.c: runs a list of calls, recorded where the backend can record. issue queues the
 * calls once. */
typedef int (*lf_exec_issue)(lf_exec *ex, const void *what, lf_err *err);
int lf_exec_run_captured(lf_exec *ex, struct lf_captured *c, lf_exec_issue issue, const void *what,
                         lf_err *err);
/* Writes ": " and what the device says about a failure, or "" where it says nothing. */
void lf_exec_why(const lf_exec *ex, char *text, size_t cap);

#endif
