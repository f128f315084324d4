/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process (local.h): calls of their communicators, as a transport of engine/comm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/layout/local_priv.h"

/* ---- calls ---- */

static void free_op(struct op *op)
{
    for (int k = 0; k < op->n; k++) {
        free(op->side[k].own);
        free(op->side[k].gift);
    }
    free(op);
}

static void unlink_op(struct op **list, struct op *op)
{
    while (*list != op)
        list = &(*list)->next;
    *list = op->next;
}

static struct op *new_op(struct op **list, struct group *g, int n, uint64_t seq, lf_err *err)
{
    struct op *op = lf_calloc(1, sizeof *op + (size_t)n * sizeof op->side[0], err);
    if (!op)
        return NULL;
    op->group = g;
    op->n = n;
    op->seq = seq;
    while (*list)
        list = &(*list)->next;
    return *list = op;
}

/* A side has nothing to do with it any more. */
static void leave_op(struct lf_comm_flight *f)
{
    struct op *op = f->one.handle;
    struct group *g = op->group;
    bool all = true;
    f->one.handle = NULL;
    for (int k = 0; k < op->n; k++) {
        if (op->side[k].f == f) {
            op->side[k].f = NULL;
            op->side[k].left = true;
        }
        all = all && op->side[k].left;
    }
    if (!all)
        return;
    unlink_op(lf_comm_is_message(&f->call) ? &g->msg : &g->coll, op);
    free_op(op);
}

static int join(struct world *w, struct op *op, int k, struct lf_comm_flight *f,
                enum local_fault fault, lf_err *err)
{
    struct side *s = &op->side[k];
    *s = (struct side){.f = f,
                       .call = f->call,
                       .in = f->call.in,
                       .out = f->call.out,
                       .begun = true,
                       .fault = fault};
    f->one.handle = op;
    if (w->o.late && local_hide(op, k, err))
        return LF_ENOMEM;
    if (++op->begun < op->n || op->dead)
        return 0;
    if (op->split) {
        local_differ(w, op);
        return local_failed(w, err);
    }
    local_complete(op);
    return 0;
}

static int start_collective(struct local_comm *c, struct lf_comm_flight *f, enum local_fault fault,
                            lf_err *err)
{
    struct world *w = c->rank->w;
    struct group *g = c->group;
    struct op *op = g->coll;
    while (op && op->seq != f->seq)
        op = op->next;
    if (!op && !(op = new_op(&g->coll, g, g->size, f->seq, err)))
        return LF_ENOMEM;
    for (int k = 0; k < g->size; k++)
        op->split =
            op->split || (op->side[k].begun &&
                          !local_same_call(&op->side[k].call, k, &f->call, c->base.rank, g->size));
    return join(w, op, c->base.rank, f, fault, err);
}

/* The oldest message that waits for this side of it. */
static struct op *find_message(const struct local_comm *c, const struct lf_comm_call *a)
{
    const int mine = a->what == LF_COMM_RECV;
    for (struct op *op = c->group->msg; op; op = op->next) {
        const struct side *o = &op->side[!mine];
        if (o->f && !op->side[mine].begun && o->call.peer == c->base.rank &&
            o->f->c->rank == a->peer && o->call.tag == a->tag)
            return op;
    }
    return NULL;
}

static int start_message(struct local_comm *c, struct lf_comm_flight *f, enum local_fault fault,
                         lf_err *err)
{
    struct world *w = c->rank->w;
    const int mine = f->call.what == LF_COMM_RECV;
    struct op *op = find_message(c, &f->call);
    if (op && op->side[!mine].call.n != f->call.n) {
        lf_fail(&w->err, LF_ECOMM, "rank %d and rank %d exchange a message of %zu and of %zu bytes",
                c->rank->me, c->group->world[f->call.peer], f->call.n, op->side[!mine].call.n);
        return local_failed(w, err);
    }
    if (!op && !(op = new_op(&c->group->msg, c->group, 2, f->seq, err)))
        return LF_ENOMEM;
    return join(w, op, mine, f, fault, err);
}

/* ---- counts ---- */

static void count_moved(struct lf_comm_count *n, uint64_t parts, size_t sent, size_t received)
{
    n->sent += parts;
    n->received += parts;
    n->bytes_sent += sent;
    n->bytes_received += received;
}

static void count_all_reduce(const lf_comm *c, const struct lf_comm_call *a,
                             struct lf_comm_count *n)
{
    const size_t p = (size_t)c->size, each = lf_comm_type_bytes(a->type);
    size_t first, mine;
    lf_comm_part(a->n, c->size, c->rank, &first, &mine);
    const size_t bytes = a->n * each <= LF_COMM_SHORT ? (p - 1) * a->n * each
                                                      : (a->n - mine + (p - 1) * mine) * each;
    count_moved(n, 2 * (p - 1), bytes, bytes);
}

static void count_collective(const lf_comm *c, const struct lf_comm_call *a,
                             struct lf_comm_count *n)
{
    const size_t p = (size_t)c->size, others = p - 1;
    switch (a->what) {
    case LF_COMM_ALL_REDUCE:
        count_all_reduce(c, a, n);
        break;
    case LF_COMM_REDUCE_SCATTER: {
        const size_t each = lf_comm_type_bytes(a->type), mine = a->counts[c->rank] * each;
        count_moved(n, others, local_total(a->counts, c->size) * each - mine, others * mine);
        break;
    }
    case LF_COMM_ALL_GATHER:
        count_moved(n, others, others * a->counts[c->rank],
                    local_total(a->counts, c->size) - a->counts[c->rank]);
        break;
    case LF_COMM_ALL_TO_ALL:
        count_moved(n, others, local_total(a->counts, c->size) - a->counts[c->rank],
                    local_total(a->from, c->size) - a->from[c->rank]);
        break;
    case LF_COMM_BROADCAST:
        count_moved(n, 1, a->peer == c->rank ? others * a->n : 0, a->peer == c->rank ? 0 : a->n);
        break;
    default: /* a barrier */
        count_moved(n, others, 0, 0);
    }
}

static void count(lf_comm *c, const struct lf_comm_call *a)
{
    struct lf_comm_count *one = &c->counts.message;
    if (a->what == LF_COMM_SEND) {
        one->sent++;
        one->bytes_sent += a->n;
    } else if (a->what == LF_COMM_RECV) {
        one->received++;
        one->bytes_received += a->n;
    } else {
        count_collective(c, a, &c->counts.collective);
        if (a->planned)
            count_collective(c, a, &c->counts.planned);
    }
}

/* ---- the transport ---- */

static enum local_fault fault_of(struct rank *r, const struct lf_comm_call *a)
{
    const struct local_plant *p = &r->w->o.plant;
    const bool typed = a->what == LF_COMM_ALL_REDUCE || a->what == LF_COMM_REDUCE_SCATTER;
    if (p->fault == LOCAL_SOUND || !r->armed || p->what != a->what ||
        (typed && p->type != a->type) || ++r->fit != p->nth)
        return LOCAL_SOUND;
    const bool of_one = p->fault == LOCAL_SKIP || p->fault == LOCAL_NO_WAIT;
    return of_one && p->rank != r->me ? LOCAL_SOUND : p->fault;
}

static bool gives_way(struct world *w)
{
    return w->o.turns && lf_rng_u32(w->o.turns, 2, w->draws++) % 2;
}

static int local_start(lf_comm *base, struct lf_comm_flight *f, lf_err *err)
{
    struct local_comm *c = local_comm_of(base);
    struct rank *r = c->rank;
    const enum local_fault fault = fault_of(r, &f->call);
    if (local_failed(r->w, err))
        return LF_ECOMM;
    if (fault == LOCAL_SKIP) {
        base->seq -= !lf_comm_is_message(&f->call);
        f->done = true;
        return 0;
    }
    r->w->quiet = 0;
    r->calls++;
    count(base, &f->call);
    const int rc = lf_comm_is_message(&f->call) ? start_message(c, f, fault, err)
                                                : start_collective(c, f, fault, err);
    if (rc == 0 && gives_way(r->w))
        local_pause(r, CAN_GO, NULL);
    return rc;
}

static int side_of(const struct op *op, const struct lf_comm_flight *f)
{
    int k = 0;
    while (op->side[k].f != f)
        k++;
    return k;
}

/* f is done: its rank sees it. */
static int finish(struct world *w, struct lf_comm_flight *f, lf_err *err)
{
    struct op *op = f->one.handle;
    const int k = side_of(op, f);
    if (w->o.late && local_show(w, op, k))
        return local_failed(w, err);
    leave_op(f);
    f->done = true;
    w->quiet = 0;
    return 0;
}

/* Does its rank go on without it? What late calls give and get is not the caller's memory. */
static bool no_wait(const struct lf_comm_flight *f)
{
    const struct op *op = f->one.handle;
    return op->side[side_of(op, f)].fault == LOCAL_NO_WAIT;
}

static int local_test(lf_comm *base, struct lf_comm_flight *f, bool wait, lf_err *err)
{
    struct rank *r = local_comm_of(base)->rank;
    struct world *w = r->w;
    if (local_failed(w, err))
        return LF_ECOMM;
    if (no_wait(f)) {
        leave_op(f);
        f->done = true;
        return 0;
    }
    while (!local_is_over(f) && wait) {
        local_pause(r, WAITS, f);
        if (local_failed(w, err))
            return LF_ECOMM;
    }
    if (!local_is_over(f)) {
        local_pause(r, ASKS, f);
        return local_failed(w, err);
    }
    return finish(w, f, err);
}

static void local_give_up(lf_comm *base, struct lf_comm_flight *f)
{
    (void)base;
    struct op *op = f->one.handle;
    if (!op)
        return;
    op->dead = op->dead || !op->done;
    leave_op(f);
}

static void free_ops(struct op *op)
{
    while (op) {
        struct op *next = op->next;
        free_op(op);
        op = next;
    }
}

static void local_destroy(lf_comm *base)
{
    struct group *g = local_comm_of(base)->group;
    struct world *w = local_comm_of(base)->rank->w;
    if (--g->refs == 0) {
        struct group **at = &w->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        free_ops(g->coll);
        free_ops(g->msg);
        free(g);
    }
    free(base);
}

static lf_comm *local_split(lf_comm *c, const int *members, int n, int me, uint32_t id,
                            lf_err *err);

static const struct lf_comm_ops local_ops = {.name = "local",
                                             .start = local_start,
                                             .test = local_test,
                                             .give_up = local_give_up,
                                             .split = local_split,
                                             .destroy = local_destroy};

static struct group *group_of(struct world *w, uint32_t id, const int *world, int n, lf_err *err)
{
    struct group *g = w->groups;
    while (g && !(g->id == id && g->world[0] == world[0]))
        g = g->next;
    if (!g) {
        if (!(g = lf_calloc(1, sizeof *g, err)))
            return NULL;
        g->id = id;
        g->size = n;
        memcpy(g->world, world, (size_t)n * sizeof *world);
        g->next = w->groups;
        w->groups = g;
    }
    g->refs++;
    return g;
}

lf_comm *local_make(struct rank *r, uint32_t id, const int *world, int n, lf_err *err)
{
    struct local_comm *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->rank = r;
    c->base.ops = &local_ops;
    c->base.host = &c->base;
    if ((c->group = group_of(r->w, id, world, n, err)))
        return &c->base;
    free(c);
    return NULL;
}

static lf_comm *local_split(lf_comm *base, const int *members, int n, int me, uint32_t id,
                            lf_err *err)
{
    int world[LOCAL_RANKS];
    (void)me;
    for (int k = 0; k < n; k++)
        world[k] = lf_comm_world_rank(base, members[k]);
    return local_make(local_comm_of(base)->rank, id, world, n, err);
}
