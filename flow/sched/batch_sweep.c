/* SPDX-License-Identifier: Apache-2.0
 *
 * max_parallel of a sweep on a batch scheduler, without a daemon and without arrays: the jobs of
 * its children lie in at most max_parallel queues, and each waits for the end, however it comes
 * (afterany), of the one before it in its queue. A job that needs the last one of a queue (afterok)
 * lies behind it anyhow.
 *
 * Which job lies behind which is decided with everything else (batch_plan.c) and written into
 * attempt.N.json as the name of a stage before anything is sent, so the next command knows the
 * queues of the jobs that are there. A new job goes to the end of the shortest queue, or begins one
 * while there are fewer than max_parallel; never between two that are there. A job whose
 * predecessor has ended is the head of its queue.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/plan/sweep.h"
#include "flow/sched/batch_priv.h"

/* The end of a queue. */
struct tail {
    size_t lane;
    size_t length;
};

struct queues {
    struct tail *v;
    size_t n, most;
};

static bool is_there(const lf_batch_work *w, size_t i)
{
    enum lf_lane_act act = w->lanes[i].act;
    return lf_sweep_is_child(lf_batch_name(w, i)) && (act == LF_LANE_KEEP || act == LF_LANE_ADOPT);
}

/* The lane that the job of lane i, which is there, lies behind; w->view.n: none that is there. */
static size_t recorded(const lf_batch_work *w, size_t i)
{
    const struct lf_attempt_rec *a = lf_attempt_newest(&w->view.stages[i]);
    size_t at = a != NULL && a->behind != NULL
                    ? lf_names_find(&w->view.run.plan->names, a->behind, "")
                    : LF_NAMES_NONE;
    return at < w->view.n && is_there(w, at) ? at : w->view.n;
}

/* The queues of the jobs that are there: their ends are those that nothing lies behind. Of more
 * than max_parallel, which an edit may leave, the shortest are known. */
static int find_queues(struct queues *q, const lf_batch_work *w, lf_err *err)
{
    const size_t n = w->view.n;
    bool *followed = lf_calloc(n + 1, sizeof *followed, err);
    if (followed == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (is_there(w, i))
            followed[recorded(w, i)] = true; /* [n]: of heads */
    for (size_t i = 0; i < n; i++) {
        if (!is_there(w, i) || followed[i])
            continue;
        struct tail t = {.lane = i, .length = 0};
        for (size_t k = i; k < n && t.length <= n; k = recorded(w, k))
            t.length++;
        if (q->n < q->most) {
            q->v[q->n++] = t;
            continue;
        }
        size_t longest = 0;
        for (size_t k = 1; k < q->n; k++)
            longest = q->v[k].length > q->v[longest].length ? k : longest;
        if (t.length < q->v[longest].length)
            q->v[longest] = t;
    }
    free(followed);
    return 0;
}

/* The queue whose end lane i needs, else a new one, else the shortest. */
static void put_behind(struct queues *q, lf_batch_work *w, size_t i)
{
    const lf_stage_view *s = &w->view.stages[i];
    struct tail *best = NULL;
    for (size_t k = 0; best == NULL && k < q->n; k++)
        for (size_t d = 0; d < s->n_deps; d++)
            if (s->deps[d] == q->v[k].lane)
                best = &q->v[k];
    if (best == NULL && q->n < q->most) {
        q->v[q->n++] = (struct tail){.lane = i, .length = 1};
        return;
    }
    const bool needs = best != NULL;
    for (size_t k = 0; !needs && k < q->n; k++)
        if (best == NULL || q->v[k].length < best->length)
            best = &q->v[k];
    w->lanes[i].behind = best->lane;
    w->lanes[i].follows = true;
    *best = (struct tail){.lane = i, .length = best->length + 1};
}

/* An attempt that was written and never sent is used again only with the place it has. */
static void check_reuse(lf_batch_work *w, size_t i)
{
    lf_lane *l = &w->lanes[i];
    const struct lf_attempt_rec *a = lf_attempt_newest(&w->view.stages[i]);
    const char *now = l->follows ? lf_batch_name(w, l->behind) : NULL;
    if (l->reuse && !lf_text_same(a != NULL ? a->behind : NULL, now))
        l->reuse = false;
}

int lf_batch_queue_children(lf_batch_work *w, lf_err *err)
{
    const lf_sweep *sweep = &w->run->plan->sweep;
    struct queues q = {.most = (size_t)sweep->max_parallel.v};
    if (!sweep->given || !sweep->max_parallel.given)
        return 0;
    q.v = lf_calloc(q.most, sizeof *q.v, err);
    int rc = q.v == NULL ? LF_ENOMEM : find_queues(&q, w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++)
        if (w->lanes[i].act == LF_LANE_SUBMIT && lf_sweep_is_child(lf_batch_name(w, i))) {
            put_behind(&q, w, i);
            check_reuse(w, i);
        }
    free(q.v);
    return rc;
}

/* The last job of a lane that is there or was sent, NULL: it has none. */
static const char *last_job(const lf_lane *l)
{
    if (l->act == LF_LANE_BLOCKED || l->act == LF_LANE_NOTHING)
        return NULL;
    if (l->job != NULL && l->job->ids.n > 0)
        return l->job->ids.v[l->job->ids.n - 1];
    return l->act == LF_LANE_ADOPT && l->n_found > 0 ? l->found[l->n_found - 1]->id : NULL;
}

int lf_batch_behind(lf_texts *out, const lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    *out = (lf_texts){.given = false};
    for (const lf_lane *l = &w->lanes[i]; l->follows; l = &w->lanes[l->behind]) {
        const char *id = last_job(&w->lanes[l->behind]);
        for (size_t d = 0; d < s->n_deps; d++)
            if (s->deps[d] == l->behind)
                return 0; /* it needs that one, which is stronger */
        if (id != NULL)
            return lf_texts_add(out, id, err);
        /* It was not taken: then what it lies behind is waited for. */
    }
    return 0;
}
