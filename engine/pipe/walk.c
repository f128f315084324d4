/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks go through their lists, each as far as it can, until all are done or none can go on.
 * The time of an item depends on what it waits for and on nothing else, so the order in which ranks
 * are visited does not matter.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/pipe/walk_priv.h"

static double *moment(const struct lf_pipe_walker *w, double *of, const struct lf_pipe_edge *e,
                      const struct lf_pipe_item *it)
{
    return &of[(size_t)e->channel * (size_t)w->p->spec.micro_batches + (size_t)it->micro];
}

enum lf_pipe_needs lf_pipe_item_needs(struct lf_pipe_edge *e, const struct lf_pipe_walker *w,
                                      int rank, const struct lf_pipe_item *it)
{
    const struct lf_pipe_spec *s = &w->p->spec;
    switch ((enum lf_pipe_op)it->op) {
    case LF_PIPE_RECV:
        return lf_pipe_input(e, s, rank, it) && w->o->blocking_recv ? LF_PIPE_SENT
                                                                    : LF_PIPE_NOTHING;
    case LF_PIPE_WAIT_RECV:
        return lf_pipe_input(e, s, rank, it) ? LF_PIPE_SENT : LF_PIPE_NOTHING;
    case LF_PIPE_SEND:
        return lf_pipe_output(e, s, rank, it) && w->o->rendezvous ? LF_PIPE_POSTED
                                                                  : LF_PIPE_NOTHING;
    case LF_PIPE_WAIT_SEND:
        return lf_pipe_output(e, s, rank, it) ? LF_PIPE_POSTED : LF_PIPE_NOTHING;
    default: /* What is on the same rank is before the item: check.c. */
        return !w->p->messages && lf_pipe_input(e, s, rank, it) && e->rank != rank
                   ? LF_PIPE_SENT
                   : LF_PIPE_NOTHING;
    }
}

static double seconds(const struct lf_pipe_walker *w, int rank, const struct lf_pipe_item *it)
{
    static const struct lf_pipe_cost equal = {.f_s = 1, .b_s = 1, .w_s = 1, .z_s = 2};
    const struct lf_pipe_cost *c =
        w->o->cost ? &w->o->cost[lf_pipe_at(&w->p->spec, rank, it->chunk)] : &equal;
    switch ((enum lf_pipe_op)it->op) {
    case LF_PIPE_F:
        return c->f_s;
    case LF_PIPE_B:
        return c->b_s;
    case LF_PIPE_W:
        return c->w_s;
    case LF_PIPE_Z:
        return c->z_s;
    default:
        return 0;
    }
}

/* A send or receive counts from the moment when its rank comes to it, also when it waits there. */
static void arrive(struct lf_pipe_walker *w, int rank, const struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    double *t = NULL;
    if (it->op == LF_PIPE_RECV && lf_pipe_input(&e, &w->p->spec, rank, it))
        t = moment(w, w->posted_s, &e, it);
    else if (it->op == LF_PIPE_SEND && lf_pipe_output(&e, &w->p->spec, rank, it))
        t = moment(w, w->sent_s, &e, it);
    if (t && *t < 0)
        *t = w->clock_s[rank];
}

/* When what the item waits for is there. False: that is not known yet. */
static bool ready(double *when_s, const struct lf_pipe_walker *w, int rank,
                  const struct lf_pipe_item *it)
{
    struct lf_pipe_edge e;
    *when_s = w->clock_s[rank];
    if (lf_pipe_item_needs(&e, w, rank, it) == LF_PIPE_NOTHING)
        return true;
    const double sent_s = *moment(w, w->sent_s, &e, it);
    const double posted_s = w->p->messages ? *moment(w, w->posted_s, &e, it) : 0;
    if (sent_s < 0 || posted_s < 0)
        return false;
    *when_s = fmax(*when_s, fmax(sent_s, posted_s) + w->o->message_s);
    return true;
}

/* Does the next item of the rank. False: there is none, or it waits. */
static bool step(struct lf_pipe_walker *w, int rank)
{
    const struct lf_pipe_list *l = &w->p->list[rank];
    struct lf_pipe_edge e;
    double begin_s;
    if (w->at[rank] == l->n)
        return false;
    const struct lf_pipe_item *it = &l->item[w->at[rank]];
    arrive(w, rank, it);
    if (!ready(&begin_s, w, rank, it))
        return false;
    const double takes_s = seconds(w, rank, it);
    w->clock_s[rank] = begin_s + takes_s;
    w->t.load[rank].busy_s += takes_s;
    w->t.span[rank][w->at[rank]++] = (struct lf_pipe_span){begin_s, w->clock_s[rank]};
    if (lf_pipe_computes(it) && !w->p->messages && lf_pipe_output(&e, &w->p->spec, rank, it))
        *moment(w, w->sent_s, &e, it) = w->clock_s[rank];
    return true;
}

static int walk(struct lf_pipe_walker *w, lf_err *err)
{
    const int ranks = w->p->spec.ranks;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < ranks; r++)
            while (step(w, r))
                moved = true;
    }
    for (int r = 0; r < ranks; r++)
        if (w->at[r] < w->p->list[r].n)
            return lf_pipe_hang(w, err);
    return 0;
}

/* Peaks follow from the order of one list. Memory is taken when F and B begin, and given back when
 * Z and W end. */
static int peaks(struct lf_pipe_walker *w, int rank, lf_err *err)
{
    struct lf_pipe_load *load = &w->t.load[rank];
    int live = 0, deferred = 0;
    int64_t bytes = 0;
    for (int i = 0; i < w->p->list[rank].n; i++) {
        const struct lf_pipe_item *it = &w->p->list[rank].item[i];
        const struct lf_pipe_cost none = {0},
                                  *c = w->o->cost
                                           ? &w->o->cost[lf_pipe_at(&w->p->spec, rank, it->chunk)]
                                           : &none;
        bool over = false;
        if (it->op == LF_PIPE_F) {
            live++;
            over = __builtin_add_overflow(bytes, c->slot_bytes, &bytes);
        } else if (it->op == LF_PIPE_B) {
            deferred++;
            over = __builtin_add_overflow(bytes, c->deferred_bytes, &bytes);
        }
        if (over)
            return lf_fail(err, LF_EINVAL, "the bytes of rank %d do not fit in 64 bits", rank);
        load->peak_live = live > load->peak_live ? live : load->peak_live;
        load->peak_deferred = deferred > load->peak_deferred ? deferred : load->peak_deferred;
        load->peak_bytes = bytes > load->peak_bytes ? bytes : load->peak_bytes;
        if (it->op == LF_PIPE_W || it->op == LF_PIPE_Z ||
            (it->op == LF_PIPE_F && w->p->spec.forward)) {
            live--;
            bytes -= c->slot_bytes;
        }
        if (it->op == LF_PIPE_W) {
            deferred--;
            bytes -= c->deferred_bytes;
        }
    }
    return 0;
}

static int sum_up(struct lf_pipe_walker *w, lf_err *err)
{
    const int ranks = w->p->spec.ranks;
    double idle_s = 0;
    int rc = 0;
    for (int r = 0; r < ranks; r++)
        w->t.end_s = fmax(w->t.end_s, w->clock_s[r]);
    for (int r = 0; rc == 0 && r < ranks; r++) {
        w->t.load[r].idle_s = w->t.end_s - w->t.load[r].busy_s;
        idle_s += w->t.load[r].idle_s;
        rc = peaks(w, r, err);
    }
    w->t.idle_share = w->t.end_s > 0 ? idle_s / (ranks * w->t.end_s) : 0;
    return rc;
}

static bool good_time(double s)
{
    return isfinite(s) && s >= 0;
}

static int check_opts(const struct lf_pipe *p, const struct lf_pipe_walk_opts *o, lf_err *err)
{
    bool good = good_time(o->message_s);
    for (int i = 0; o->cost && i < lf_pipe_stages(&p->spec); i++) {
        const struct lf_pipe_cost *c = &o->cost[i];
        good = good && good_time(c->f_s) && good_time(c->b_s) && good_time(c->w_s) &&
               good_time(c->z_s) && c->slot_bytes >= 0 && c->deferred_bytes >= 0;
    }
    if (!good)
        return lf_fail(err, LF_EINVAL,
                       "times and bytes of a pipeline schedule are finite and not negative");
    if (!p->messages && (o->blocking_recv || o->rendezvous))
        return lf_fail(err, LF_EINVAL, "without messages nothing of a pipeline schedule can block");
    return 0;
}

/* What the walker needs, all in one block but for the timing. */
static int prepare(struct lf_pipe_walker *w, double **block, lf_err *err)
{
    const size_t ranks = (size_t)w->p->spec.ranks;
    const size_t messages =
        (size_t)(LF_PIPE_DIRS * lf_pipe_stages(&w->p->spec)) * (size_t)w->p->spec.micro_batches;
    size_t items = 0;
    for (size_t r = 0; r < ranks; r++)
        items += (size_t)w->p->list[r].n;
    w->t.load = lf_calloc(ranks, sizeof *w->t.load, err);
    w->t.span = lf_calloc(ranks, sizeof *w->t.span, err);
    w->at = lf_calloc(ranks, sizeof *w->at, err);
    *block = lf_calloc(2 * messages + ranks, sizeof **block, err);
    struct lf_pipe_span *spans = lf_calloc(items, sizeof *spans, err);
    if (!w->t.load || !w->t.span || !w->at || !*block || !spans) {
        free(spans);
        return LF_ENOMEM;
    }
    for (size_t r = 0; r < ranks; r++) {
        w->t.span[r] = spans;
        spans += w->p->list[r].n;
    }
    w->sent_s = *block, w->posted_s = *block + messages, w->clock_s = *block + 2 * messages;
    for (size_t i = 0; i < 2 * messages; i++)
        (*block)[i] = -1;
    return 0;
}

int lf_pipe_walk(struct lf_pipe_timing *out, const struct lf_pipe *p,
                 const struct lf_pipe_walk_opts *o, lf_err *err)
{
    const struct lf_pipe_walk_opts none = {0};
    struct lf_pipe_walker w = {.p = p, .o = o ? o : &none};
    double *block = NULL;
    int rc = check_opts(p, w.o, err);
    if (rc == 0)
        rc = lf_pipe_check(p, err);
    if (rc == 0)
        rc = prepare(&w, &block, err);
    if (rc == 0)
        rc = walk(&w, err);
    if (rc == 0)
        rc = sum_up(&w, err);
    free(block);
    free(w.at);
    if (rc == 0 && out)
        *out = w.t;
    else
        lf_pipe_timing_fini(&w.t);
    return rc;
}

void lf_pipe_timing_fini(struct lf_pipe_timing *t)
{
    if (!t)
        return;
    if (t->span)
        free(t->span[0]);
    free(t->span);
    free(t->load);
    *t = (struct lf_pipe_timing){0};
}
