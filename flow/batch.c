/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a batch command, in the order that batch.h gives.
 */
#include "config.h"

#include "flow/batch.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/attempt.h"
#include "flow/batch_priv.h"
#include "flow/drive.h"
#include "flow/par.h"
#include "flow/pipeline_priv.h"
#include "flow/record.h"

void lf_batch_tell(const lf_batch_work *w, const char *fmt, ...)
{
    if (w->b->say == NULL)
        return;
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    w->b->say(w->b->user, text);
}

const char *lf_batch_name(const lf_batch_work *w, size_t i)
{
    return json_string_value(json_object_get(w->view.stages[i].stage, "name"));
}

/* ---- 1: look ---- */

static int load(lf_batch_work *w, lf_err *err)
{
    lf_run copy;
    memset(&copy, 0, sizeof copy);
    memcpy(copy.id, w->run->id, sizeof copy.id);
    copy.dir = lf_strdup(w->run->dir, err);
    copy.data = lf_strdup(w->run->data, err);
    copy.rev = w->run->rev;
    copy.doc = json_incref(w->run->doc);
    int rc = copy.dir == NULL || copy.data == NULL ? LF_ENOMEM : lf_view_load(&w->view, &copy, err);
    if (rc < 0)
        lf_run_fini(&copy);
    return rc;
}

static bool has_attempts(const lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->view.stages[i].n_attempts > 0)
            return true;
    return false;
}

/* A request that was sent just before the last command was killed may still be on its way. */
static double youngest_open(const lf_batch_work *w)
{
    double t = 0;
    for (size_t i = 0; i < w->view.n; i++) {
        const lf_stage_view *s = &w->view.stages[i];
        json_t *job = s->n_attempts > 0 ? lf_sched_job_record(s, (int)s->n_attempts) : NULL;
        double at = s->n_attempts > 0 ? json_number_value(json_object_get(s->attempts[s->n_attempts - 1], "t")) : 0;
        if (s->n_attempts > 0 && job == NULL && at > t)
            t = at;
        json_decref(job);
    }
    return t;
}

static int look(lf_batch_work *w, bool now, lf_err *err)
{
    if (!has_attempts(w))
        return 0;
    double settle = json_number_value(json_object_get(json_object_get(w->run->doc, "site"), "settle_s"));
    double age = lf_wall_s() - youngest_open(w);
    if (age >= 0 && age < settle)
        lf_batch_pause(settle - age);
    int rc = lf_sched_look(&w->queue, &w->view, w->b->submitter, w->self, now, err);
    if (rc < 0)
        return rc;
    w->looked = true;
    if (!w->queue.reached)
        return lf_fail(err, LF_ECOMM, "the scheduler does not answer: %s",
                       w->queue.said[0] != '\0' ? w->queue.said : "it was not asked yet");
    return lf_sched_apply(&w->view, w->b->submitter, &w->queue, err);
}

bool lf_batch_untidy(const lf_run_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const lf_stage_view *s = &v->stages[i];
        int n = (int)s->n_attempts;
        char path[PATH_MAX];
        json_t *job = n > 0 ? lf_sched_job_record(s, n) : NULL;
        bool sent = n > 0 && lf_path_set(path, NULL, "%s/script.%d", s->dir, n) == 0 && lf_io_exists(path);
        bool untidy = sent && job == NULL;
        json_decref(job);
        if (untidy)
            return true;
    }
    return false;
}

/* Ends that nobody else can write down any more. */
static int repair(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        lf_stage_view *s = &w->view.stages[i];
        size_t open = 0;
        for (size_t k = 0; k < s->n_incs; k++)
            open += s->incs[k].end == NULL;
        if (open == 0 || s->live)
            continue;
        rc = lf_stage_repair(w->run, s, err);
        if (rc == 0)
            rc = lf_view_reload(&w->view, i, err);
    }
    return rc;
}

/* ---- 3: what is wanted ---- */

static int write_want(lf_batch_work *w, lf_err *err)
{
    char path[PATH_MAX];
    json_t *names = json_array();
    int rc = names == NULL ? LF_ENOMEM : lf_path_set(path, err, "%s/" LF_RUN_WANT, w->run->dir);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++)
        if (w->selected[i])
            rc = lf_json_push_new(names, json_string(lf_batch_name(w, i)), err);
    json_t *o = rc == 0 ? json_pack("{s:i, s:O}", "lf_want", 1, "stages", names) : NULL;
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    if (rc == 0)
        rc = text == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : lf_io_replace(path, text, strlen(text), 0640, err);
    free(text);
    json_decref(o);
    json_decref(names);
    return rc;
}

/* ---- 4: attempts ---- */

static int write_attempt(void *work, size_t i, lf_err *err)
{
    lf_batch_work *w = work;
    lf_lane *l = &w->lanes[i];
    if (l->act != LF_LANE_SUBMIT)
        return 0;
    lf_stage_view *s = &w->view.stages[i];
    lf_attempt_args a = {.submitter = w->b->submitter, .run = w->run, .view = s, .resources = l->resources,
                         .accepted = w->b->accepted, .script_sha256 = l->sha, .fresh = w->b->fresh};
    int rc = 0;
    if (l->reuse) {
        const json_t *att = s->attempts[s->n_attempts - 1];
        l->attempt = (int)s->n_attempts;
        snprintf(l->token, sizeof l->token, "%s", json_string_value(json_object_get(att, "token")));
    } else {
        rc = lf_attempt_publish(&l->attempt, l->token, &a, err);
    }
    return rc == 0 ? lf_attempt_event(&a, l->attempt, l->token, NULL, err) : rc;
}

/* The attempt may be used again only when it asks for the same thing. */
static void check_reuse(lf_batch_work *w, size_t i)
{
    lf_lane *l = &w->lanes[i];
    const lf_stage_view *s = &w->view.stages[i];
    const json_t *att = s->n_attempts > 0 ? s->attempts[s->n_attempts - 1] : NULL;
    const char *sha = json_string_value(json_object_get(att, "script_sha256"));
    const json_t *accepted = json_object_get(att, "accepted");
    bool same = sha != NULL && strcmp(sha, l->sha) == 0 && json_equal(json_object_get(att, "resources"), l->resources) &&
                json_is_true(json_object_get(att, "fresh")) == w->b->fresh &&
                ((accepted == NULL && w->b->accepted == NULL) || json_equal(accepted, w->b->accepted));
    l->reuse = l->reuse && same;
}

/* ---- 6: jobs ---- */

static int publish_script(lf_batch_work *w, size_t i, char path[PATH_MAX], lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_err e = LF_ERR_INIT;
    int rc = lf_path_set(path, err, "%s/script.%d", w->view.stages[i].dir, l->attempt);
    if (rc == 0 && (rc = lf_io_publish(path, l->script.data, l->script.len, 0640, &e)) < 0)
        rc = rc == LF_EEXIST ? 0 : lf_fail(err, rc, "%s", e.text);
    return rc;
}

static json_t *found_link(const lf_lane *l, int link)
{
    for (size_t k = 0; l->act == LF_LANE_ADOPT && k < json_array_size(l->found); k++) { /* else they are an earlier attempt's */
        json_t *e = json_array_get(l->found, k);
        if (json_integer_value(json_object_get(e, "link")) == link)
            return e;
    }
    return NULL;
}

/* All links of an attempt; those that exist already are taken. */
static int send_links(lf_batch_work *w, size_t i, const char *script_path, json_t *ids, json_t *after, json_t **cluster,
                      bool *adopted, lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_stage_view *s = &w->view.stages[i];
    int rc = 0;
    for (int k = 1; rc == 0 && k <= l->n_links; k++) {
        const json_t *e = found_link(l, k);
        json_t *job = NULL;
        bool was_there = e != NULL;
        lf_submit_req req = {.run = w->run, .stage = s->stage, .resources = l->resources, .attempt = l->attempt, .token = l->token,
                             .project = w->b->project->root, .stage_dir = s->dir, .script = script_path, .link = k,
                             .n_links = l->n_links, .prev = k > 1 ? json_string_value(json_array_get(ids, (size_t)k - 2)) : NULL,
                             .after = after};
        req.held = k == 1 && json_array_size(after) == 0 && (w->b->submitter->can & LF_CAN_HOLD) != 0;
        if (e != NULL)
            job = json_pack("{s:O}", "id", json_object_get(e, "id"));
        else
            rc = lf_batch_send(w, &req, l->script.data, &job, &was_there, err);
        *adopted = *adopted || was_there;
        if (rc == 0)
            rc = lf_json_push_new(ids, json_incref(json_object_get(job, "id")), err);
        if (rc == 0 && req.held)
            rc = lf_json_push_new(w->held, json_incref(json_object_get(job, "id")), err);
        if (rc == 0 && *cluster == NULL && json_object_get(job, "cluster") != NULL)
            *cluster = json_incref(json_object_get(job, "cluster"));
        json_decref(job);
    }
    return rc;
}

static bool is_cancelled(const lf_batch_work *w, size_t i)
{
    char path[PATH_MAX];
    return lf_path_set(path, NULL, "%s/cancel.%d", w->view.stages[i].dir, w->lanes[i].attempt) == 0 && lf_io_exists(path);
}

static int send_stage(lf_batch_work *w, size_t i, lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    char path[PATH_MAX];
    json_t *ids = json_array(), *after = lf_batch_after(w, i, err), *cluster = NULL;
    bool adopted = false;
    int rc = ids == NULL || after == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && is_cancelled(w, i))
        rc = lf_fail(err, LF_EINVAL, "cancelled meanwhile");
    if (rc == 0)
        rc = publish_script(w, i, path, err);
    if (rc == 0)
        rc = send_links(w, i, path, ids, after, &cluster, &adopted, err);
    json_t *job = rc == 0 ? json_pack("{s:O, s:O, s:O, s:O*, s:s, s:b}", "id", json_array_get(ids, 0), "ids", ids, "after", after,
                                      "cluster", cluster, "script_sha256", l->sha, "adopted", (int)adopted)
                          : NULL;
    if (rc == 0 && job == NULL)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && (rc = lf_attempt_job(job, w->b->submitter, w->run, &w->view.stages[i], l->attempt, l->token, &e)) < 0)
        rc = lf_fail(err, rc, "%s", e.text);
    if (rc == 0 && adopted)
        rc = lf_record_event(w->view.stages[i].dir, w->run->id, lf_batch_name(w, i), l->attempt, 0, "adopt",
                             json_pack("{s:O, s:O}", "jobid", json_object_get(job, "id"), "ids", ids), err);
    json_decref(ids);
    json_decref(after);
    json_decref(cluster);
    if (rc < 0) {
        json_decref(job);
        return rc;
    }
    json_decref(l->job);
    l->job = job;
    if (is_cancelled(w, i)) /* while it was sent: whoever cancels may have looked before */
        rc = w->b->submitter->cancel(w->self, json_object_get(job, "ids"), true, err);
    return rc;
}

/* The records of jobs that ended before anybody wrote them down. */
static int name_jobs(lf_batch_work *w, size_t i, lf_err *err)
{
    const lf_stage_view *s = &w->view.stages[i];
    const json_t *att = s->attempts[s->n_attempts - 1];
    const char *token = json_string_value(json_object_get(att, "token"));
    json_t *ids = json_array(), *found = w->lanes[i].found;
    int rc = ids == NULL ? LF_ENOMEM : 0;
    for (size_t k = 0; rc == 0 && k < json_array_size(found); k++)
        rc = lf_json_push_new(ids, json_incref(json_object_get(json_array_get(found, k), "id")), err);
    json_t *job = rc == 0 ? json_pack("{s:O, s:O, s:O*, s:b}", "id", json_array_get(ids, 0), "ids", ids, "script_sha256",
                                      json_object_get(att, "script_sha256"), "adopted", 1)
                          : NULL;
    if (rc == 0)
        rc = job == NULL ? lf_fail(err, LF_ENOMEM, "out of memory")
                         : lf_attempt_job(job, w->b->submitter, w->run, s, (int)s->n_attempts, token, err);
    if (rc == 0)
        rc = lf_record_event(s->dir, w->run->id, lf_batch_name(w, i), (int)s->n_attempts, 0, "adopt",
                             json_pack("{s:O}", "jobid", json_object_get(job, "id")), err);
    json_decref(job);
    json_decref(ids);
    return rc;
}

static void tell_sent(lf_batch_work *w, size_t i)
{
    const lf_lane *l = &w->lanes[i];
    const json_t *after = json_object_get(l->job, "after");
    lf_buf b;
    lf_buf_init(&b);
    for (size_t k = 0; k < json_array_size(after); k++)
        lf_buf_addf(&b, "%s%s", k > 0 ? ", " : " after ", json_string_value(json_array_get(after, k)));
    if (l->n_links > 1)
        lf_buf_addf(&b, ", %d links", l->n_links);
    lf_batch_tell(w, "%s: %s%s as job %s%s%s%s%s", lf_batch_name(w, i), l->act == LF_LANE_ADOPT ? "adopted" : "submitted",
                  l->attempt > 1 ? " again" : "", json_string_value(json_object_get(l->job, "id")), b.data,
                  l->why[0] != '\0' ? " (" : "", l->why, l->why[0] != '\0' ? ")" : "");
    lf_buf_fini(&b);
}

/* 1 when something that stage i waits for was not submitted. */
static bool lost_its_need(const lf_batch_work *w, size_t i)
{
    json_t *deps = json_object_get(w->view.stages[i].stage, "deps");
    for (size_t k = 0; k < json_array_size(deps); k++)
        for (size_t d = 0; d < i; d++)
            if (json_equal(json_array_get(deps, k), json_object_get(w->view.stages[d].stage, "name")) &&
                w->lanes[d].act == LF_LANE_BLOCKED && w->view.stages[d].state != LF_STATE_DONE)
                return true;
    return false;
}

static void note_failure(lf_batch_work *w, size_t i, const char *text)
{
    if (w->res.why[0] == '\0' && text[0] != '\0')
        snprintf(w->res.why, sizeof w->res.why, "stage %s: %.500s", lf_batch_name(w, i), text);
}

static int send_all(lf_batch_work *w, lf_err *err)
{
    for (size_t i = 0; i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        if (l->act == LF_LANE_KEEP && w->selected[i]) {
            w->res.kept++;
            lf_batch_tell(w, "%s: kept, job %s%s%s", lf_batch_name(w, i), json_string_value(json_object_get(l->job, "id")),
                          l->why[0] != '\0' ? ": " : "", l->why);
        }
        if (l->act != LF_LANE_SUBMIT && l->act != LF_LANE_ADOPT)
            continue;
        lf_err e = LF_ERR_INIT;
        int rc = w->res.unreachable || lost_its_need(w, i) ? LF_EINVAL : send_stage(w, i, &e);
        if (rc == 0) {
            l->act == LF_LANE_ADOPT ? w->res.adopted++ : w->res.submitted++;
            tell_sent(w, i);
            continue;
        }
        if (rc != LF_EINVAL && rc != LF_ECOMM && rc != LF_EBUSY && rc != LF_EEXIST)
            return lf_fail(err, rc, "stage %s: %s", lf_batch_name(w, i), e.text);
        w->res.failed++;
        note_failure(w, i, e.text);
        w->res.unreachable = w->res.unreachable || rc == LF_ECOMM || rc == LF_EBUSY;
        l->act = LF_LANE_BLOCKED;
        lf_batch_tell(w, "%s: not submitted%s%s", lf_batch_name(w, i), e.text[0] != '\0' ? ": " : ", what it needs was not", e.text);
    }
    return 0;
}

/* ---- 5, 7 ---- */

static int end_orphans(lf_batch_work *w, lf_err *err)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->lanes[i].act == LF_LANE_SUBMIT && w->lanes[i].old_jobs && w->view.stages[i].job != NULL) {
            json_t *ids = json_object_get(w->view.stages[i].job, "ids");
            for (size_t k = json_array_size(ids); k-- > 0;)
                json_array_append(w->orphans, json_array_get(ids, k));
        }
    if (json_array_size(w->orphans) == 0)
        return 0;
    lf_err e = LF_ERR_INIT;
    lf_batch_tell(w, "ending %zu job%s of attempts that were given up", json_array_size(w->orphans),
                  json_array_size(w->orphans) == 1 ? "" : "s");
    int rc = w->b->submitter->cancel(w->self, w->orphans, true, &e);
    if (rc == LF_ECOMM) {
        lf_batch_tell(w, "  %s; the next command tries again", e.text);
        return 0; /* they cannot publish, and they are found again */
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

/* Jobs that an earlier command held and did not come to let go. */
static int collect_held(lf_batch_work *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        if (w->lanes[i].act != LF_LANE_KEEP)
            continue;
        json_t *ids = json_object_get(w->lanes[i].job, "ids");
        const json_t *e = lf_queue_find(&w->queue, json_string_value(json_array_get(ids, 0)));
        const char *hold = json_string_value(json_object_get(e, "hold"));
        if (hold != NULL && strcmp(hold, "user") == 0)
            rc = lf_json_push_new(w->held, json_incref(json_array_get(ids, 0)), err);
    }
    return rc;
}

static int release(lf_batch_work *w, lf_err *err)
{
    if ((w->b->submitter->can & LF_CAN_HOLD) == 0)
        return 0;
    int rc = w->looked ? collect_held(w, err) : 0;
    if (rc < 0 || json_array_size(w->held) == 0)
        return rc;
    lf_err e = LF_ERR_INIT;
    rc = w->b->submitter->release(w->self, w->held, &e);
    if (rc == LF_ECOMM) {
        w->res.unreachable = true;
        w->res.failed++;
        lf_batch_tell(w, "the first jobs are still held: %s; the next command lets them go", e.text);
        return 0;
    }
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

/* ---- the course ---- */

static int prepare(lf_batch_work *w, lf_err *err)
{
    int rc = lf_batch_plan(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        if (l->act == LF_LANE_ADOPT) {
            const lf_stage_view *s = &w->view.stages[i];
            const json_t *att = s->attempts[s->n_attempts - 1];
            l->attempt = (int)s->n_attempts;
            l->resources = json_incref(json_object_get(att, "resources"));
            snprintf(l->token, sizeof l->token, "%s", json_string_value(json_object_get(att, "token")));
        }
        if (l->act == LF_LANE_SUBMIT || l->act == LF_LANE_ADOPT)
            rc = lf_batch_render(w, i, err);
        if (rc == 0)
            check_reuse(w, i);
    }
    return rc;
}

static int act(lf_batch_work *w, lf_err *err)
{
    int rc = w->b->automatic ? 0 : write_want(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++)
        if (w->lanes[i].unnamed && w->lanes[i].act != LF_LANE_ADOPT)
            rc = name_jobs(w, i, err);
    if (rc == 0)
        rc = lf_par_each(w->view.n, write_attempt, w, err);
    if (rc == 0)
        rc = end_orphans(w, err);
    if (rc == 0)
        rc = send_all(w, err);
    if (rc == 0)
        rc = release(w, err);
    return rc;
}

static void tell_blocked(lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->selected[i] && w->lanes[i].act == LF_LANE_BLOCKED && w->lanes[i].why[0] != '\0') {
            lf_batch_tell(w, "%s: not submitted: %s", lf_batch_name(w, i), w->lanes[i].why);
            if (!w->b->automatic)
                note_failure(w, i, w->lanes[i].why);
        }
    for (size_t i = 0; i < w->view.n && !w->b->automatic; i++)
        w->res.failed += w->selected[i] && w->lanes[i].act == LF_LANE_BLOCKED;
}

static void clear_lanes(lf_batch_work *w)
{
    for (size_t i = 0; w->lanes != NULL && i < w->view.n; i++) {
        lf_lane *l = &w->lanes[i];
        json_decref(l->resources);
        json_decref(l->job);
        json_decref(l->found);
        lf_buf_fini(&l->script);
        memset(l, 0, sizeof *l);
        lf_buf_init(&l->script);
    }
}

/* What is there and what is to be done. now: the queue is asked, however fresh what is known of it. */
static int look_and_plan(lf_batch_work *w, bool now, lf_err *err)
{
    int rc = look(w, now, err);
    if (rc == 0)
        rc = repair(w, err);
    return rc == 0 ? prepare(w, err) : rc;
}

static bool plans_to_act(const lf_batch_work *w)
{
    for (size_t i = 0; i < w->view.n; i++)
        if (w->lanes[i].act == LF_LANE_SUBMIT || w->lanes[i].act == LF_LANE_ADOPT || w->lanes[i].unnamed)
            return true;
    return json_array_size(w->orphans) > 0;
}

/* tick goes by what any process saw within the last minute; only before it acts it looks itself. */
static int look_again(lf_batch_work *w, lf_err *err)
{
    clear_lanes(w);
    json_array_clear(w->orphans);
    if (w->looked)
        lf_queue_fini(&w->queue);
    w->looked = false;
    lf_view_fini(&w->view);
    int rc = load(w, err);
    return rc == 0 ? look_and_plan(w, true, err) : rc;
}

static int run_locked(lf_batch_work *w, lf_err *err)
{
    int rc = load(w, err);
    if (rc == 0) {
        w->lanes = lf_calloc(w->view.n + 1, sizeof *w->lanes, err);
        w->selected = lf_calloc(w->view.n + 1, sizeof *w->selected, err);
        w->orphans = json_array();
        w->held = json_array();
        rc = w->lanes == NULL || w->selected == NULL ? LF_ENOMEM : 0;
    }
    clear_lanes(w);
    if (rc == 0)
        rc = lf_select_stages(w->selected, &w->view, &w->b->select, err);
    if (rc == 0)
        rc = look_and_plan(w, !w->b->automatic, err);
    if (rc == 0 && w->b->automatic && plans_to_act(w))
        rc = look_again(w, err);
    if (rc == 0) {
        tell_blocked(w);
        rc = act(w, err);
    }
    return rc;
}

/* All but the view. */
static void fini(lf_batch_work *w)
{
    clear_lanes(w);
    free(w->lanes);
    free(w->selected);
    json_decref(w->orphans);
    json_decref(w->held);
    if (w->looked)
        lf_queue_fini(&w->queue);
}

int lf_batch_run(const lf_batch *b, const lf_run *run, lf_batch_result *res, lf_err *err)
{
    lf_batch_work w;
    char path[PATH_MAX];
    memset(&w, 0, sizeof w);
    w.b = b;
    w.run = run;
    int rc = lf_run_check_owner(run, err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/driver.lock", run->dir);
    if (rc < 0)
        return rc;
    lf_lock_opts lo = {.purpose = b->automatic ? "loong-flow tick" : "loong-flow submit", .wait_s = b->automatic ? 0 : 30, .ttl_s = 0};
    lf_lock *lock = lf_lock_acquire(path, &lo, err);
    if (lock == NULL)
        return lf_err_prefix(err, "run %s is in another loong-flow's hands", run->id);
    char cancel[PATH_MAX];
    if (!b->automatic && lf_path_set(cancel, NULL, "%s/" LF_RUN_CANCEL, run->dir) == 0)
        unlink(cancel); /* it was for those before us */
    rc = b->submitter->open(&w.self, json_object_get(run->doc, "site"), err);
    if (rc == 0) {
        rc = run_locked(&w, err);
        b->submitter->close(w.self);
    }
    *res = w.res;
    fini(&w);
    lf_view_fini(&w.view);
    lf_lock_release(lock);
    lf_err e = LF_ERR_INIT;
    if (lf_sync(b->project, run->data, run->id, &e) < 0)
        lf_batch_tell(&w, "note: the ledger was not updated: %s", e.text);
    return rc;
}

/* ---- looking only ---- */

static int dry_stage(json_t *rows, lf_batch_work *w, size_t i, lf_err *err)
{
    lf_lane *l = &w->lanes[i];
    lf_stage_view *s = &w->view.stages[i];
    char path[PATH_MAX], id[128] = "", dir[PATH_MAX];
    int n = (int)s->n_attempts + 1;
    int rc = lf_path_set(dir, err, "%s/%s", w->run->dir, lf_batch_name(w, i));
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/script.%d", dir, n);
    json_t *after = rc == 0 ? lf_batch_after(w, i, err) : NULL, *commands = json_array();
    for (int k = 1; rc == 0 && after != NULL && k <= l->n_links; k++) {
        json_t *argv = NULL;
        lf_submit_req req = {.run = w->run, .stage = s->stage, .resources = l->resources, .attempt = n, .token = "TOKEN",
                             .project = w->b->project->root, .stage_dir = dir, .script = path, .link = k, .n_links = l->n_links,
                             .prev = k > 1 ? id : NULL, .after = after};
        req.held = k == 1 && json_array_size(after) == 0 && (w->b->submitter->can & LF_CAN_HOLD) != 0;
        rc = w->b->submitter->command(w->self, &req, l->script.data, &argv, err);
        if (rc == 0)
            rc = lf_json_push_new(commands, argv, err);
        if (k < l->n_links || l->n_links > 1)
            snprintf(id, sizeof id, "JOB(%s.%d)", lf_batch_name(w, i), k);
        else
            snprintf(id, sizeof id, "JOB(%s)", lf_batch_name(w, i));
    }
    if (rc == 0 && after == NULL)
        rc = err != NULL && err->rc != 0 ? err->rc : LF_ENOMEM;
    if (rc == 0)
        l->job = json_pack("{s:[s]}", "ids", id);
    if (rc == 0)
        rc = lf_json_push_new(rows, json_pack("{s:s, s:O, s:s, s:s, s:O}", "stage", lf_batch_name(w, i), "commands", commands,
                                              "script", l->script.data, "script_sha256", l->sha, "after", after), err);
    json_decref(after);
    json_decref(commands);
    return rc;
}

static int dry(json_t *rows, lf_batch_work *w, lf_err *err)
{
    int rc = lf_select_stages(w->selected, &w->view, &w->b->select, err);
    clear_lanes(w);
    if (rc == 0)
        rc = lf_batch_plan(w, err);
    for (size_t i = 0; rc == 0 && i < w->view.n; i++) {
        if (w->lanes[i].act != LF_LANE_SUBMIT)
            continue;
        rc = lf_batch_render(w, i, err);
        if (rc == 0)
            rc = dry_stage(rows, w, i, err);
    }
    return rc;
}

int lf_batch_dry_run(json_t **out, const lf_batch *b, const lf_run_view *view, bool run_exists, lf_err *err)
{
    lf_batch_work w;
    lf_run run = view->run;
    char name[] = "RUN";
    json_t *rows = json_array();
    memset(&w, 0, sizeof w);
    if (!run_exists) {
        run.dir = name;
        run.rev = 1;
    }
    w.b = b;
    w.run = &run;
    w.view = *view; /* borrowed: not released here */
    w.lanes = lf_calloc(view->n + 1, sizeof *w.lanes, err);
    w.selected = lf_calloc(view->n + 1, sizeof *w.selected, err);
    w.orphans = json_array();
    int rc = rows == NULL || w.lanes == NULL || w.selected == NULL ? LF_ENOMEM : 0;
    if (rc == 0)
        rc = b->submitter->open(&w.self, json_object_get(run.doc, "site"), err);
    if (rc == 0) {
        rc = dry(rows, &w, err);
        b->submitter->close(w.self);
    }
    fini(&w);
    if (rc < 0)
        json_decref(rows);
    else
        *out = rows;
    return rc;
}
