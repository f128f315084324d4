/* SPDX-License-Identifier: Apache-2.0
 *
 * What a scheduler knows, laid over the states that the directories of a run give. Evidence of the
 * directory is stronger: a commit or an end record stands whatever the scheduler says; without one,
 * the end of a job is not success.
 */
#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

/* so long a claim that no look has confirmed counts for a living stage */
#define BEGUN_S 300.0
/* a record may reach this node so much later than the scheduler's word (NFS attribute
 * caches) */
#define RECORD_LAG_S 30.0

enum fate { NOTHING, QUEUED, RUNNING, ENDED, NOT_KNOWN };

/* The jobs of one attempt, as the scheduler tells. */
struct jobs {
    enum fate fate;
    /* the one that says most: running, else first queued, else last that ended; borrowed */
    const lf_sched_job *entry;
    lf_texts ids;      /* all that are known, in order of links */
    double sent, seen; /* when it was handed over; when it was known last */
};

static const char *name_of(const lf_stage_view *s)
{
    return s->plan->name;
}
static const char *word(const char *text)
{
    return text != NULL ? text : "";
}

static void say(lf_stage_view *s, enum lf_state state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(lf_stage_view *s, enum lf_state state, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    s->state = state;
    vsnprintf(s->reason, sizeof s->reason, fmt, ap);
    va_end(ap);
    lf_text_clean(s->reason);
}

/* ---- the jobs of a stage ---- */

static const lf_start *last_inc(const lf_stage_view *s)
{
    const lf_start *i = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    return i != NULL && i->attempt == (int)s->n_attempts ? i : NULL;
}

/* Is there anything that the scheduler could tell? */
static bool is_open(const lf_stage_view *s)
{
    if (!lf_attempt_is_batch(s) || s->state == LF_STATE_DONE || s->state == LF_STATE_ENDED ||
        (s->state == LF_STATE_PURGED && s->result == last_inc(s)))
        return false;
    const struct lf_end *rec = last_inc(s) != NULL ? last_inc(s)->end : NULL;
    const char *end = rec != NULL ? rec->state : NULL;
    /* One that stopped may go on in the same job or the next link, and so may one that failed when
     * its wrapper put the job back. */
    return end == NULL || strcmp(end, "stopped") == 0 || rec->next != NULL;
}

struct lf_job_rec *lf_sched_job_record(const lf_stage_view *s, int attempt)
{
    struct lf_job_rec *job = NULL;
    return lf_job_rec_load(&job, s->dir, attempt, NULL) == 0 ? job : NULL;
}

static int want(lf_wanted_list *wanted, const lf_stage_view *s, lf_err *err)
{
    struct lf_job_rec *job = lf_sched_job_record(s, (int)s->n_attempts);
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    int rc = 0;
    for (size_t i = 0; rc == 0 && job != NULL && i < job->ids.n; i++)
        rc = lf_wanted_add(wanted, job->ids.v[i], att->token, att->t, err);
    lf_job_rec_free(job);
    return rc;
}

/* The entry of an id, when it is that of this attempt and not of an earlier owner of the number. */
static const lf_sched_job *own_entry(const lf_queue *q, const char *id,
                                     const struct lf_attempt_rec *att)
{
    const lf_sched_job *e = lf_queue_find(q, id);
    if (e == NULL || e->token != NULL)
        return e != NULL && lf_text_same(e->token, att->token) ? e : NULL;
    return !e->foreign && e->seen >= att->t ? e : NULL;
}

static enum fate fate_of(const lf_sched_job *e)
{
    const char *what = word(e->what);
    if (strcmp(what, "running") == 0)
        return RUNNING;
    if (strcmp(what, "queued") == 0 || strcmp(what, "held") == 0)
        return QUEUED;
    return strcmp(what, "ended") == 0 ? ENDED : NOT_KNOWN;
}

/* Was it in the queue at the last look, as far as it says so at all? */
static bool still_there(const lf_queue *q, const lf_sched_job *e)
{
    return fate_of(e) == ENDED || e->listed >= q->t - 0.001;
}

static void weigh(struct jobs *j, const lf_queue *q, const lf_sched_job *e)
{
    enum fate f = e == NULL || !still_there(q, e) ? NOT_KNOWN : fate_of(e);
    if (e != NULL && e->seen > j->seen)
        j->seen = e->seen;
    /* running > queued > not known > ended: while one link waits the attempt goes on */
    static const int weight[] = {
        [NOTHING] = 0, [ENDED] = 1, [NOT_KNOWN] = 2, [QUEUED] = 3, [RUNNING] = 4};
    if (weight[f] > weight[j->fate] || (f == ENDED && j->fate == ENDED)) {
        j->fate = f;
        j->entry = e;
    }
}

static int find_jobs(struct jobs *j, const lf_queue *q, const lf_stage_view *s, lf_err *err)
{
    static const lf_texts none;
    const lf_sched_job *found[LF_JOBS_MOST];
    const struct lf_attempt_rec *att = lf_attempt_newest(s);
    struct lf_job_rec *job = lf_sched_job_record(s, (int)s->n_attempts);
    const lf_texts *ids = job != NULL ? &job->ids : &none;
    const size_t n = lf_queue_by_token(found, q, att->token);
    memset(j, 0, sizeof *j);
    j->ids.given = true;
    int rc = 0;
    j->sent = job != NULL ? job->t : att->t;
    j->seen = j->sent;
    for (size_t i = 0; rc == 0 && i < ids->n; i++) {
        weigh(j, q, own_entry(q, ids->v[i], att));
        rc = lf_texts_add(&j->ids, ids->v[i], err);
    }
    /* Links that are not in the record: a successor that the wrapper made, or a submission that was
     * cut short. */
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (found[i]->link <= (int)ids->n)
            continue;
        weigh(j, q, found[i]);
        rc = lf_texts_add(&j->ids, found[i]->id, err);
    }
    lf_job_rec_free(job);
    return rc;
}

/* ---- records that come late ---- */

/* Before anything is called missing the directories themselves are read, so that a network
 * filesystem asks its server. */
static int look_again(lf_run_view *v, size_t i, lf_err *err)
{
    const lf_start *inc = last_inc(&v->stages[i]);
    DIR *d = inc != NULL ? opendir(inc->dir) : NULL;
    while (d != NULL && readdir(d) != NULL)
        ;
    if (d != NULL)
        closedir(d);
    return lf_view_reload(v, i, err);
}

/* ---- judging ---- */

static const char *class_of_cause(const char *cause)
{
    static const char *const map[][2] = {{"timeout", "timeout"},     {"oom", "oom"},
                                         {"node", "node"},           {"preempted", "preempted"},
                                         {"cancelled", "cancelled"}, {"failed", "lost"},
                                         {"done", "lost"},           {"vanished", "lost"},
                                         {"dependency", "cancelled"}};
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
        if (strcmp(map[i][0], cause) == 0)
            return map[i][1];
    return "lost";
}

static void set_ended(lf_stage_view *s, const char *cls)
{
    snprintf(s->ended_class, sizeof s->ended_class, "%s", cls);
}

/* "job 12 ended: TIMEOUT, exit 1" */
static const char *end_words(char *buf, size_t cap, const lf_sched_job *e)
{
    char code[48] = "";
    if (e->signal != 0)
        snprintf(code, sizeof code, ", signal %d", e->signal);
    else if (e->exit_code > 0)
        snprintf(code, sizeof code, ", exit %d", e->exit_code);
    snprintf(buf, cap, "job %.60s ended: %.40s%s%s%.80s%s", word(e->id), word(e->word), code,
             word(e->reason)[0] != '\0' ? " (" : "", word(e->reason),
             word(e->reason)[0] != '\0' ? ")" : "");
    return buf;
}

static void judge_queued(lf_stage_view *s, const struct jobs *j)
{
    const lf_sched_job *e = j->entry;
    char at[64] = "";
    double t = e->t_start;
    if (t > lf_wall_s()) {
        char iso[21];
        snprintf(at, sizeof at, "; expected to start %s", lf_time_iso(iso, t));
    }
    bool again = last_inc(s) != NULL;
    say(s, LF_STATE_PENDING, "%s as job %.60s%s%.100s%s%s%s", again ? "queued again" : "queued",
        word(e->id), word(e->reason)[0] != '\0' ? ": " : "", word(e->reason), at,
        strcmp(word(e->what), "held") != 0 || strcmp(word(e->hold), "depend") == 0
            ? ""
            : "; held: release it",
        e->never ? "; it can never start as it is: cancel it, change what it asks for, resume"
                 : "");
    s->live = true;
}

static void judge_running(lf_stage_view *s, const struct jobs *j)
{
    const lf_start *inc = last_inc(s);
    const char *nodes = word(j->entry->nodes);
    s->live = true;
    if (inc != NULL && inc->end != NULL)
        say(s, LF_STATE_RUNNING, "job %.60s is ending its segment", word(j->entry->id));
    else if (s->state != LF_STATE_RUNNING)
        say(s, LF_STATE_RUNNING, "%sjob %.60s%s%.100s", inc == NULL ? "starting, " : "",
            word(j->entry->id), nodes[0] != '\0' ? " on " : "", nodes);
}

/* A job that was removed because what it waited for failed: the stage is as if it had not been
 * submitted. */
static void judge_removed(lf_stage_view *s, const lf_run_view *v, const lf_sched_job *e)
{
    const lf_stage_view *d = lf_view_undone(v, s);
    if (d != NULL) {
        say(s, LF_STATE_WAITING, "waits for %.64s; its job %.60s was removed with it", name_of(d),
            word(e->id));
        return;
    }
    say(s, LF_STATE_PENDING,
        "job %.60s was removed because of what it waited for; resume submits it again",
        word(e->id));
}

static void judge_ended(lf_stage_view *s, const lf_run_view *v, const struct jobs *j)
{
    const lf_sched_job *e = j->entry;
    const char *cause = word(e->cause);
    lf_start *inc = s->n_incs > 0 && last_inc(s) != NULL ? &s->incs[s->n_incs - 1] : NULL;
    char words[300];
    double end = e->t_end > 0 ? e->t_end : e->seen;
    s->live = false;
    if (inc != NULL &&
        inc->end !=
            NULL) { /* stopped at a good checkpoint: the directory has said so, but not why */
        if (strcmp(cause, "cancelled") == 0)
            say(s, LF_STATE_CANCELLED, "%s; stopped at a good checkpoint",
                end_words(words, sizeof words, e));
        return;
    }
    if (inc == NULL && lf_stage_skipped(s))
        return; /* it began nothing, and says why */
    if (strcmp(cause, "dependency") == 0 && inc == NULL) {
        judge_removed(s, v, e);
        return;
    }
    end_words(words, sizeof words, e);
    bool vague = strcmp(cause, "done") == 0 || strcmp(cause, "failed") == 0;
    if (vague && lf_wall_s() - end < RECORD_LAG_S && lf_wall_s() >= end) {
        say(s, LF_STATE_UNKNOWN, "%s; its own record has not come yet", words);
        s->live = true; /* the record may still say that it is done */
        return;
    }
    set_ended(s, class_of_cause(cause));
    if (strcmp(cause, "cancelled") == 0)
        say(s, LF_STATE_CANCELLED, "%s", words);
    else if (inc == NULL)
        say(s, LF_STATE_FAILED, "%s, before the stage began; %.200s/boot.%d.log may say why", words,
            s->dir, (int)s->n_attempts);
    else
        say(s, LF_STATE_FAILED, "%s, without an end record", words);
}

static void judge_unknown(lf_stage_view *s, const lf_run_view *v, const lf_queue *q,
                          const struct jobs *j)
{
    double grace = (double)v->run.plan->site.grace_lost_s.v;
    char age[64];
    double seen = j->seen, now = lf_wall_s();
    lf_fmt_duration(age, sizeof age, now > seen ? now - seen : 0);
    const lf_start *inc = last_inc(s);
    s->live = true;
    if (inc != NULL && inc->end != NULL && !q->reached)
        return;
    if (q->reached && q->t <= j->sent) /* nobody has looked since it was submitted */
        return;
    if (!q->reached) {
        say(s, LF_STATE_UNKNOWN, "the scheduler does not answer%s%.120s; last known %s ago",
            q->said[0] != '\0' ? ": " : "", q->said, age);
        return;
    }
    if (q->t - seen < grace) { /* by the time of the look: one that is old proves nothing */
        say(s, LF_STATE_UNKNOWN, "no scheduler command knows its job; last seen %s ago", age);
        return;
    }
    s->live = false;
    if (inc != NULL && inc->end != NULL)
        return;
    const lf_stage_view *d = inc == NULL ? lf_view_undone(v, s) : NULL;
    if (d !=
        /* it began nothing and could not have: schedulers remove such jobs with what they wait
         * for */
        NULL) {
        say(s, LF_STATE_WAITING, "waits for %.64s; its job is gone", name_of(d));
        return;
    }
    set_ended(s, "lost");
    say(s, LF_STATE_FAILED, "lost: its job is in no list and left no end record; last seen %s ago",
        age);
}

/* Submitted to nobody, as far as anybody knows: attempt.N.json without job.N.json, and no job with
 * its token. */
static void judge_nothing(lf_stage_view *s, const lf_queue *q)
{
    char path[PATH_MAX];
    if (lf_stage_skipped(s)) { /* there was a job, and it said why it did not begin */
        s->live = false;
        return;
    }
    if (lf_stage_refused(s)) {
        s->live = false;
        return;
    }
    bool looked_since = q->reached && q->t > lf_attempt_newest(s)->t;
    if (lf_path_set(path, NULL, "%s/script.%d", s->dir, (int)s->n_attempts) == 0 &&
        !lf_io_exists(path)) {
        say(s, LF_STATE_PENDING, "%s",
            "its submission was cut short before the scheduler was asked; resume submits it");
        s->live = false;
    } else if (looked_since) {
        say(s, LF_STATE_PENDING, "%s",
            "its submission was cut short; the scheduler has no job of it; resume submits it");
        s->live = false;
    } else if (q->reached) {
        say(s, LF_STATE_PENDING, "%s", "being submitted, or its submission was cut short");
    } else {
        say(s, LF_STATE_UNKNOWN, "%s",
            "its submission was cut short, and the scheduler does not answer");
    }
}

static int copy(const char **out, const char *text, lf_err *err)
{
    char *c = NULL;
    int rc = lf_text_set(&c, text, "job", err);
    *out = c;
    return rc;
}

static int copy_entry(lf_job_said *o, const lf_sched_job *e, lf_err *err)
{
    o->t_submit = e->t_submit;
    o->t_start = e->t_start;
    o->t_end = e->t_end;
    o->exit_code = e->exit_code;
    o->signal = e->signal;
    o->never = e->never;
    int rc = copy(&o->id, e->id, err);
    if (rc == 0)
        rc = copy(&o->state, e->word, err);
    if (rc == 0)
        rc = copy(&o->reason, e->reason, err);
    if (rc == 0)
        rc = copy(&o->nodes, e->nodes, err);
    if (rc == 0)
        rc = copy(&o->partition, e->partition, err);
    return rc == 0 ? copy(&o->cause, e->cause, err) : rc;
}

static int set_job(lf_stage_view *s, const lf_queue *q, const struct jobs *j, lf_err *err)
{
    double now = lf_wall_s(), seen = j->entry != NULL || !q->reached ? j->seen : q->t;
    lf_job_said *o = lf_calloc(1, sizeof *o, err);
    if (o == NULL)
        return LF_ENOMEM;
    o->age_s = now > seen ? now - seen : 0.0;
    o->exit_code = -1;
    int rc = copy(&o->backend, lf_attempt_newest(s)->backend, err);
    if (rc == 0)
        rc = lf_texts_copy(&o->ids, &j->ids, err);
    if (rc == 0 && j->entry != NULL)
        rc = copy_entry(o, j->entry, err);
    else if (rc == 0 && j->ids.n > 0)
        rc = copy(&o->id, j->ids.v[j->ids.n - 1], err);
    if (rc == 0 && !q->reached)
        rc = copy(&o->unreachable, q->said, err);
    if (rc < 0) {
        lf_job_said_free(o);
        return rc;
    }
    lf_job_said_free(s->job);
    s->job = o;
    return 0;
}

/* Its processes live on this machine, or it began after the queue was looked at: it runs, whatever
 * was said before. */
static bool has_begun(const lf_stage_view *s, const lf_queue *q)
{
    const lf_start *inc = last_inc(s);
    if (inc == NULL || inc->end != NULL || inc->done != NULL)
        return false;
    double t = lf_inc_begin(inc);
    return s->state == LF_STATE_RUNNING || (t > q->t && lf_wall_s() - t < BEGUN_S);
}

static void judge_fate(lf_stage_view *s, const lf_run_view *v, const lf_queue *q,
                       const struct jobs *j)
{
    if (j->fate != RUNNING && has_begun(s, q)) {
        s->live = true;
        if (s->state != LF_STATE_RUNNING)
            say(s, LF_STATE_RUNNING, "%s", "it has just begun");
        return;
    }
    switch (j->fate) {
    case NOTHING:
        if (last_inc(s) == NULL)
            judge_nothing(s, q);
        else
            judge_unknown(s, v, q, j);
        break;
    case QUEUED:
        judge_queued(s, j);
        break;
    case RUNNING:
        judge_running(s, j);
        break;
    case ENDED:
        judge_ended(s, v, j);
        break;
    case NOT_KNOWN:
        judge_unknown(s, v, q, j);
        break;
    }
}

/* Nothing of a cancelled attempt comes back; while its job is there it has not ended either. */
static void judge_cancelled(lf_stage_view *s)
{
    char path[PATH_MAX], why[sizeof s->reason];
    if (lf_path_set(path, NULL, "%s/cancel.%d", s->dir, (int)s->n_attempts) < 0 ||
        !lf_io_exists(path))
        return;
    memcpy(why, s->reason, sizeof why);
    if (!s->live)
        say(s, LF_STATE_CANCELLED, "%s", "cancelled on request");
    else if (s->live && s->state == LF_STATE_PENDING)
        say(s, LF_STATE_PENDING, "being cancelled; %.300s", why);
}

static int judge(lf_run_view *v, size_t i, const lf_queue *q, lf_err *err)
{
    struct jobs j;
    int rc = find_jobs(&j, q, &v->stages[i], err);
    const lf_start *inc = last_inc(&v->stages[i]);
    if (rc == 0 && j.fate != RUNNING && j.fate != QUEUED && (inc == NULL || inc->end == NULL))
        rc = look_again(v, i, err);
    lf_stage_view *s = &v->stages[i];
    if (rc == 0 && is_open(s)) {
        rc = set_job(s, q, &j, err);
        judge_fate(s, v, q, &j);
        judge_cancelled(s);
    }
    lf_texts_fini(&j.ids);
    return rc;
}

/* ---- the whole run ---- */

const char *lf_sched_backend(const lf_run_view *v)
{
    for (size_t i = v->n; i-- > 0;)
        if (lf_attempt_is_batch(&v->stages[i]))
            return lf_attempt_newest(&v->stages[i])->backend;
    return NULL;
}

int lf_sched_look(lf_queue *q, const lf_run_view *v, const lf_submitter *sub, void *self, bool now,
                  lf_err *err)
{
    lf_wanted_list wanted = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        if (is_open(&v->stages[i]))
            rc = want(&wanted, &v->stages[i], err);
    if (rc == 0)
        rc = lf_queue_look(q, sub, self, &v->run.plan->site, &wanted, now, err);
    lf_wanted_fini(&wanted);
    return rc;
}

int lf_sched_apply(lf_run_view *v, const lf_submitter *sub, const lf_queue *q, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        if (is_open(&v->stages[i]) &&
            strcmp(lf_attempt_newest(&v->stages[i])->backend, sub->name) == 0)
            rc = judge(v, i, q, err);
    return rc;
}

int lf_sched_overlay(lf_run_view *v, bool now, lf_err *err)
{
    const lf_submitter *sub = NULL;
    void *self = NULL;
    lf_queue q;
    bool open = false;
    for (size_t i = 0; i < v->n; i++)
        open = open || is_open(&v->stages[i]);
    const char *backend = open ? lf_sched_backend(v) : NULL;
    if (backend == NULL)
        return 0;
    int rc = lf_submitter_find(&sub, backend, err);
    if (rc == 0)
        rc = sub->open(&self, &v->run.plan->site, err);
    if (rc < 0)
        return rc;
    lf_sched_patience(&v->run.plan->site);
    rc = lf_sched_look(&q, v, sub, self, now, err);
    lf_sched_patience(NULL);
    if (rc == 0) {
        rc = lf_sched_apply(v, sub, &q, err);
        lf_queue_fini(&q);
    }
    sub->close(self);
    return rc;
}
