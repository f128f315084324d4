/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts that ranks divide (layout.h, the expert axis): what nodes do with each other's rows, and
 * the rounds in which they do it. Only files of engine/graph include it.
 *
 * A pair is a row and one of the k experts that it chose. Each of n ranks has P pairs, sorted by
 * (expert, row, slot), and E / n experts. Three nodes move them:
 *
 *     expert_count    [n, E] how many pairs of each rank chose each expert, known to all ranks;
 *                     folded: one row more, which says where the pairs that this rank sends begin
 *     expert_send     the pairs' rows go to the ranks of their experts, where they stand in the
 *                     order (own expert, rank that sent, its order)
 *     expert_return   what was made of them goes back, to the places of the pairs
 *
 * What a rank takes has room for `room` rows, whatever the rows choose. Each rank of experts gets
 * rows [round * room, (round + 1) * room) of its order in a round, and there are as many rounds as
 * the rank with the most rows needs. All ranks know the counts, so all know the rounds. Rows are
 * never dropped here: with a capacity (kernels.h, moe_keep) pairs that are dropped are none of the
 * P, and the room is no larger than what experts take. No sum of rows is made on the way: a rank
 * adds up what its own rows get in the order of their slots, as one rank alone does.
 *
 * Where ranks of the tensor axis are among these (lf_layout.folded), all of them have the same
 * pairs, and each sends those of its rows, which are side by side in every expert. What comes back
 * has zeros at the places of the others.
 *
 * The nodes from a send to the return behind it are a **region**: the executor runs them once for
 * each round. In the backward pass, whose send brings the gradients of what was returned, values of
 * the forward pass are there for the last round alone. With more than one round the nodes that made
 * them run again before those of each round. So more rounds cost time and no memory.
 *
 * Where the rows are not kept (recompute.c), send and return are repeated in the backward pass and
 * are a region of their own, before that of the gradients. Its counts are those of the forward
 * pass. The nodes that run again are then those of the repeated region.
 *
 * What comes back may be late: nodes that need nothing of it, such as a shared expert, run beside
 * it (late.c). Then the return begins the exchange, and the first node that reads its rows waits
 * for them before it runs. That is so in one round alone, since the next needs the workspace.
 *
 * On a GPU the host must know the counts, since they say how much goes where: it reads the offsets
 * of the pairs once for each count, folded their rows too, and waits for that. Ranks exchange the
 * counts between hosts, and each node finds its counts there (lf_k_experts.seen); what calls do
 * with rows is queued. Pairs for one rank in one round follow each other, folded those of each
 * expert, and so do their places in what is sent. Only in the room is there another order, by
 * expert first and not by rank: an index of its rows is made from the counts, and a kernel moves
 * rows by it.
 */
#ifndef LF_GRAPH_EXPERTS_H
#define LF_GRAPH_EXPERTS_H

#include "engine/graph/exec.h"
#include "engine/graph/priv.h"

struct lf_call;

/* What the nodes of an executor share. */
struct lf_experts {
    int ranks, rank;
    int64_t round, rounds; /* the one that runs, of how many; a send sets the latter */
    bool idle;             /* this rank has no micro-batch, so it gives no rows */
    /* [ranks] bytes to and from each, and where those of each begin; owned */
    size_t *to, *from, *at;
    /* As lf_comm_all_gather of equal parts, and lf_comm_all_to_all. */
    int (*gather)(void *user, void *all, size_t bytes, lf_err *err);
    int (*exchange)(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                    lf_err *err);
    void *user;
    /* Of a return that is late: these begin an exchange and end it; NULL: none is. */
    int (*begin)(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                 lf_err *err);
    int (*finish)(void *user, lf_err *err);
    struct lf_exec_req req;             /* of it */
    size_t mark;                        /* of the backend, behind it */
    bool late;                          /* the return that runs is */
    const struct lf_k_experts *pending; /* the return that has begun; NULL: none */
    size_t reader;                      /* the node that waits for it */
    /* Where the host does not see the memory of nodes (a GPU's): bytes of it to the host, which
     * waits, and to it; else NULL. exchange is of this memory then, gather of the host's. */
    int (*read)(void *user, void *host, const void *from, size_t bytes, lf_err *err);
    int (*write)(void *user, void *to, const void *host, size_t bytes, lf_err *err);
    int32_t *index;  /* then: of the host, room for a node's numbers; owned */
    int32_t *row_of; /* and folded for the rows of all pairs of a count; owned */
    int64_t *first;  /* [ranks] then: the first pair that goes to each in a round; owned */
};

/* Of so many pairs, k of a row, the most that a rank sends. */
static inline int64_t lf_experts_own(const struct lf_layout *l, int64_t pairs, int64_t k)
{
    return l->folded ? (pairs / k + l->tensor - 1) / l->tensor * k : pairs;
}
/* n pairs of a rank, k of a row, of a layer with so many experts, each of which takes `capacity`
 * pairs of a micro-batch (0: all). */
struct lf_expert_pairs {
    int64_t n, k, experts, capacity;
};
/* The most rows that a rank can get. */
int64_t lf_experts_most(const struct lf_layout *l, const struct lf_expert_pairs *p);
/* Rows that a rank takes at once. */
int64_t lf_experts_room(const struct lf_layout *l, const struct lf_expert_pairs *p);

/* kern_experts.c: the three nodes as a kernel. */
int lf_experts_call(const struct lf_kernels *k, lf_queue *q, const void *args);
int lf_experts_check(const struct lf_kernels *k, const void *args);
/* Ends the return that is late: its rows go to their places. */
int lf_experts_end(const struct lf_kernels *k, lf_queue *q, struct lf_experts *x);
size_t lf_experts_work(const struct lf_kernels *k, const void *args, int threads);

/* late.c, a pass: what needs nothing of a return comes before what does. */
int lf_late(lf_graph *g, lf_err *err);
/* The first node that needs what comes back at `node`, where others stand between and none of them
 * waits for ranks; else 0. */
int32_t lf_late_reader(const lf_graph *g, int32_t node);
/* Until which node of a chain the workspace of `node` is needed. */
int32_t lf_late_until(const struct lf_chain *c, int32_t node);

/* plan_experts.c: finds the regions of a chain, after lf_liveness, and keeps what they need for as
 * long as they run. LF_ENOTSUP: an op between sends and returns does what cannot be done once for
 * each round. */
int lf_plan_regions(lf_plan *p, struct lf_chain *c, lf_err *err);
/* exec_experts.c */
int lf_exec_experts_bind(lf_exec *ex, lf_err *err);
void lf_exec_connect_experts(lf_exec *ex);
/* Runs node i of a chain: lf_exec_call, and behind the last node of a region the rounds that are
 * left. `calls` are those of a slot and variant. Returns the kernel's code. */
int lf_exec_node(lf_exec *ex, const struct lf_chain *c, const struct lf_call *calls, size_t i);
/* The regions of nodes [from, to), by a rank without a micro-batch. */
int lf_exec_idle_experts(lf_exec *ex, int chain, const struct lf_call *calls, size_t from,
                         size_t to, lf_err *err);

#endif
