/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a start: what follows is decided, written down, and then done, in this order.
 * So a wrapper that is killed in between leaves a record that says what was meant, and a job that
 * was put back finds out why.
 *
 *   1  may another segment follow (caps, progress)?  may this job be put back (state RUNNING, no
 *      cancel)?
 *   2  end.json, the end event, a strike against a node
 *   3  requeue event, scontrol requeue; refused: a successor that the waiting jobs now wait for
 *
 * Nothing here runs in a signal handler, and a job whose state is anything but RUNNING is left to
 * the scheduler: a cancelled job that is requeued comes back.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/policy.h"
#include "flow/sched/chain.h"
#include "flow/sched/submit.h"

#define LOG_LINES 8
/* patience with a controller that does not answer: giving up ends the jobs that wait for this
 * one */
#define ANSWER_S 120.0

struct plan {
    lf_next next;  /* what the next try should ask for */
    bool put_back; /* this job goes back into the queue */
    bool links;    /* the next link goes on */
};

static bool cancelled(const lf_exec *x)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/cancel.%d", x->stage_dir, x->args.attempt) == 0 &&
           lf_io_exists(path);
}

/* ---- the record ---- */

static struct lf_had asked(lf_exec *x)
{
    int64_t memory = lf_jobside_memory(&x->job), limit = x->resources.time_limit_s.v;
    double end = x->job.ops != NULL ? lf_jobside_end(&x->job, false) : 0;
    if (memory == 0)
        memory = x->resources.memory_bytes.v;
    if (limit == 0 && end > x->t_start)
        limit = (int64_t)(end - x->t_start);
    return (struct lf_had){.memory_bytes = memory,
                           .time_limit_s = limit,
                           .planned_memory_bytes = x->plan->memory_bytes.v,
                           .planned_time_limit_s = x->plan->time_limit_s.v};
}

/* The last step that is saved: a stage that stopped on request or is done has saved the one it
 * reached. */
static int64_t saved_step(const lf_exec *x, const lf_end_class *c)
{
    bool clean = strcmp(c->state, "done") == 0 || (x->ev.exited && x->ev.exit_code == 75);
    return clean && x->pace.step >= 0 ? x->pace.step : x->pace.saved;
}

static bool gained(const lf_exec *x, int64_t step)
{
    lf_stage_view s;
    if (step < 0 || lf_stage_scan(&s, x->run.dir, x->plan, NULL) < 0)
        return false;
    lf_chain_sum sum;
    lf_chain_add_up(&sum, &s, lf_wall_s());
    lf_stage_scan_fini(&s);
    return step > sum.step;
}

/* The record, and what it points to. */
struct ending {
    struct lf_end end;
    struct lf_had asked;
    struct lf_pace pace;
    struct lf_end_next next;
    char node[256];
};

static int fill(struct ending *e, lf_exec *x, const lf_end_class *c, lf_err *err)
{
    memset(e, 0, sizeof *e);
    e->asked = asked(x);
    e->end = (struct lf_end){.state = c->state,
                             .cls = c->cls,
                             .reason = c->reason,
                             .t_start = x->t_start,
                             .t_end = lf_wall_s(),
                             .exit_code = x->ev.exit_code,
                             .signal = x->ev.signal,
                             .step = saved_step(x, c),
                             .gained = -1,
                             .asked = &e->asked,
                             .ended = strcmp(c->state, "done") == 0 ? x->ended : NULL};
    if (e->end.step < 0)
        e->end.step = -1;
    else
        e->end.gained = gained(x, e->end.step);
    if (x->pace.spacing_s > 0) {
        e->pace = (struct lf_pace){.spacing_s = x->pace.spacing_s, .save_s = x->pace.save_s};
        e->end.pace = &e->pace;
    }
    if (x->job.ops != NULL) {
        e->end.jobid = x->job.id;
        if (lf_jobside_node(&x->job, e->node, sizeof e->node)[0] != '\0')
            e->end.node = e->node;
        if (strcmp(c->cls, "node") == 0)
            e->end.blame = e->end.node;
    }
    lf_end_warnings(&e->end, x->dir);
    return lf_log_lines_that_matter(&e->end.log, x->log_tail != NULL ? x->log_tail : "", LOG_LINES,
                                    err);
}

static void ending_fini(struct ending *e)
{
    lf_texts_fini(&e->end.log);
    lf_texts_fini(&e->end.warnings);
}

/* next: lent by p. */
static void add_next(struct ending *e, const struct plan *p)
{
    if (!p->put_back)
        return;
    e->next = (struct lf_end_next){.act = lf_policy_act_name(p->next.act),
                                   .exclude = p->next.exclude,
                                   .memory_bytes = p->next.memory_bytes,
                                   .time_limit_s = p->next.time_limit_s};
    e->end.next = &e->next;
}

static int write_end(lf_exec *x, const struct lf_end *end, lf_err *err)
{
    const lf_origin from = lf_exec_origin(x);
    int rc = lf_end_publish(x->dir, end, err);
    if (rc == 0 && end->blame != NULL)
        rc = lf_event_node_strike(&from, end->blame, end->reason, err);
    return rc == 0 ? lf_event_end(&from, end, err) : rc;
}

/* ---- what follows ---- */

static bool uses_links(const lf_exec *x)
{
    return x->job.ops != NULL &&
           lf_chain_by_links(&x->resources, &x->run.plan->site,
                             LF_CAN_DEPEND | (x->job.ops->can_requeue ? LF_CAN_REQUEUE : 0));
}

/* A cap or a lack of progress turns a stop into a failure. It must be known before end.json, which
 * is written once. */
static void apply_caps(lf_end_class *c, const lf_stage_view *s, const lf_exec *x)
{
    lf_chain_sum sum;
    char why[300];
    if (strcmp(c->state, "stopped") != 0 || strcmp(c->cls, "superseded") == 0 || x->job.ops == NULL)
        return;
    lf_chain_add_up(&sum, s, lf_wall_s());
    const char *cls = lf_chain_capped(&sum, &x->resources, why, sizeof why);
    if (cls == NULL)
        return;
    c->state = "failed";
    c->cls = cls;
    snprintf(c->reason, sizeof c->reason, "%s", why);
}

/* The stage's view with this start's end in it, as every other reader will see it once it is
 * published. end: lent until view_fini. */
static int view_with(lf_stage_view *s, const lf_exec *x, struct lf_end *end, lf_err *err)
{
    int rc = lf_stage_scan(s, x->run.dir, x->plan, err);
    for (size_t i = 0; rc == 0 && i < s->n_incs; i++)
        if (s->incs[i].epoch == x->epoch) {
            lf_end_free(s->incs[i].end);
            s->incs[i].end = end;
        }
    return rc;
}

static void view_fini(lf_stage_view *s, const struct lf_end *end)
{
    for (size_t i = 0; i < s->n_incs; i++)
        if (s->incs[i].end == end)
            s->incs[i].end = NULL;
    lf_stage_scan_fini(s);
}

static bool wrapper_acts(const lf_next *n)
{
    if (!n->automatic || (lf_policy_of(n->cls)->actors & LF_ACTOR_WRAPPER) == 0)
        return false;
    return n->act != LF_POLICY_STOP && n->act != LF_POLICY_NONE;
}

/* A TERM to the job's script with the job on its way out is scancel, unless the scheduler needed
 * the node for another job. (At the beginning of a preemption's grace the job still runs.) So that
 * no command starts again what a person ended. */
static void apply_scancel(lf_end_class *c, lf_exec *x, enum lf_jobside_state st)
{
    if (strcmp(c->state, "stopped") != 0 || strcmp(c->cls, "preempted") != 0 || !x->ev.term ||
        st != LF_JOBSIDE_ENDING || x->job.ops->preempted == NULL || x->job.ops->preempted(&x->job))
        return;
    c->state = "cancelled";
    c->cls = "cancelled";
    snprintf(c->reason, sizeof c->reason, "its job was cancelled%s",
             x->ev.exited && x->ev.exit_code == 75 ? "; stopped at a good checkpoint" : "");
}

/* Caps need the view with the end as it would be without them. */
static int class_that_stands(lf_end_class *c, lf_exec *x, lf_err *err)
{
    lf_stage_view s;
    struct ending first;
    int rc = fill(&first, x, c, err);
    if (rc == 0)
        rc = view_with(&s, x, &first.end, err);
    if (rc == 0) {
        apply_caps(c, &s, x);
        view_fini(&s, &first.end);
    }
    ending_fini(&first);
    return rc;
}

/* The class may change (scancel, caps), *e is made for the class that stands. */
static int decide(struct plan *p, struct ending *e, lf_exec *x, lf_end_class *c, lf_err *err)
{
    lf_stage_view s;
    enum lf_jobside_state st = LF_JOBSIDE_UNKNOWN;
    if (strcmp(c->state, "done") != 0)
        st =
            lf_jobside_state(&x->job, x->job.ops != NULL && x->job.ops->can_requeue ? ANSWER_S : 0);
    apply_scancel(c, x, st);
    int rc = class_that_stands(c, x, err);
    if (rc == 0)
        rc = fill(e, x, c, err);
    if (rc == 0)
        rc = view_with(&s, x, &e->end, err);
    if (rc < 0)
        return rc;
    if (strcmp(c->state, "done") != 0)
        rc = lf_policy_next(&p->next, &s, err);
    const bool acts = wrapper_acts(&p->next); /* its class is a text of the view */
    view_fini(&s, &e->end);
    p->links = uses_links(x);
    p->put_back = rc == 0 && st == LF_JOBSIDE_RUNNING && x->job.ops->can_requeue && !p->links &&
                  acts && !cancelled(x) && !lf_epoch_superseded(x->stage_dir, x->epoch);
    if (rc == 0)
        add_next(e, p);
    return rc;
}

/* "n1,n2" of a list, in buf; NULL when there are none or they do not fit. */
static const char *node_list(char *buf, size_t cap, const lf_texts *hosts)
{
    size_t at = 0;
    for (size_t i = 0; i < hosts->n; i++) {
        int n = snprintf(buf + at, cap - at, "%s%s", i > 0 ? "," : "", hosts->v[i]);
        if (n < 0 || (size_t)n >= cap - at)
            return NULL;
        at += (size_t)n;
    }
    return at > 0 ? buf : NULL;
}

/* The next link of a chain that nobody submitted beforehand: same attempt, same token, another id.
 * It starts after this job has ended, so its record is there when it looks whether it is the
 * attempt's. */
static int succeed(lf_exec *x, lf_err *err)
{
    char id[128], script[PATH_MAX];
    const lf_submitter *s = NULL;
    int rc = lf_submitter_find(&s, x->job.ops->name, err);
    if (rc == 0)
        rc = lf_path_set(script, err, "%s/script.%d", x->stage_dir, x->args.attempt);
    lf_submit_req req = {.run = &x->run,
                         .stage = x->plan,
                         .resources = &x->resources,
                         .attempt = x->args.attempt,
                         .token = x->args.token,
                         .project = x->args.project,
                         .stage_dir = x->stage_dir,
                         .script = script,
                         .link = x->epoch + 1,
                         .n_links = 1};
    id[0] = '\0';
    if (rc == 0)
        rc = lf_jobside_succeed(&x->job, s, &req, id, sizeof id, err);
    if (id[0] == '\0')
        return rc;
    const struct lf_successor_rec s_rec = {.id = id, .after = x->job.id, .t = lf_wall_s()};
    lf_err e = LF_ERR_INIT;
    if (lf_successor_rec_publish(x->stage_dir, x->args.attempt, &s_rec, &e) < 0)
        rc = rc < 0 ? rc : lf_fail(err, LF_EIO, "%s", e.text);
    return rc;
}

/* Put the job back. What goes wrong here is said in the job's log; the next command finds a stopped
 * stage either way. */
static void put_back(lf_exec *x, const struct plan *p, const char *cause)
{
    lf_err e = LF_ERR_INIT;
    char nodes[1024];
    const lf_jobside_ask ask = {.memory_bytes = p->next.memory_bytes,
                                .time_limit_s = p->next.time_limit_s,
                                .exclude = node_list(nodes, sizeof nodes, &p->next.exclude)};
    bool other = p->next.act != LF_POLICY_CONTINUE && p->next.act != LF_POLICY_RETRY;
    if (lf_jobside_state(&x->job, ANSWER_S) != LF_JOBSIDE_RUNNING || cancelled(x))
        return; /* while the records were written */
    const lf_origin from = lf_exec_origin(x);
    int rc = lf_event_requeue(&from, cause, lf_policy_act_name(p->next.act), x->job.id, &e);
    if (rc == 0)
        rc = other ? lf_jobside_requeue_as(&x->job, &ask, &e) : lf_jobside_requeue(&x->job, &e);
    if (rc == LF_ENOTSUP && lf_jobside_state(&x->job, ANSWER_S) != LF_JOBSIDE_RUNNING)
        return; /* refused because SLURM was just doing it (preemption without grace) */
    if (rc == LF_ENOTSUP && !other) {
        lf_log(1, "job %s may not be requeued (%s); a successor follows it", x->job.id, e.text);
        lf_err_clear(&e);
        rc = succeed(x, &e);
    }
    if (rc < 0)
        lf_log(0, "job %s was not put back: %s", x->job.id, e.text);
}

static int exit_code(const lf_end_class *c, const struct plan *p)
{
    if (strcmp(c->state, "done") == 0)
        return 0;
    if (p->put_back)
        return 75;
    const lf_policy *row = lf_policy_of(c->cls);
    /* A link can go on only with the request as it is. */
    if (strcmp(c->state, "stopped") != 0)
        return p->links && (row->actors & LF_ACTOR_LINK) != 0 && p->next.automatic ? 75
               : row->exit_code == 75                                              ? 1
                                                                                   : row->exit_code;
    return row->exit_code;
}

/* The links behind this one have nothing to do any more: they shall not wait for the nodes that
 * they had asked for. */
static void shrink_links(const lf_exec *x)
{
    struct lf_job_rec *job = NULL;
    lf_err e = LF_ERR_INIT;
    lf_job_rec_load(&job, x->stage_dir, x->args.attempt, NULL);
    if (job != NULL && lf_chain_shrink_rest(job, x->job.id, &x->resources, x->job.site, &e) < 0)
        lf_log(1, "links that are left over were not made smaller: %s", e.text);
    lf_job_rec_free(job);
}

int lf_exec_end(lf_exec *x, lf_end_class *c, lf_err *err)
{
    struct plan p;
    memset(&p, 0, sizeof p);
    struct ending e;
    memset(&e, 0, sizeof e);
    int rc = decide(&p, &e, x, c, err);
    if (rc == 0)
        rc = write_end(x, &e.end, err);
    ending_fini(&e);
    if (rc == 0 && p.put_back)
        put_back(x, &p, c->cls);
    int code = rc < 0 ? rc : exit_code(c, &p);
    if (p.links && (code == 0 || code == 1))
        shrink_links(x);
    lf_next_fini(&p.next);
    return code;
}
