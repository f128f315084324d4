/* SPDX-License-Identifier: Apache-2.0
 *
 * One look at the queue for everybody: its result lies in a file of the user's cache directory, so
 * ten `watch` windows of five projects ask the scheduler once a minute. The file is a cache:
 * without it there is one more look (lf_queue_rec).
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

#define KEEP_S      86400.0 /* entries of jobs that left */
#define MAX_BACKOFF 16.0    /* times poll_s, when the scheduler does not answer */

/* ---- the file ---- */

static int cache_dir(char out[PATH_MAX], lf_err *err)
{
    const char *own = getenv("LF_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (own != NULL && own[0] == '/')
        return lf_path_set(out, err, "%s", own);
    if (xdg != NULL && xdg[0] == '/')
        return lf_path_set(out, err, "%s/loong-flow", xdg);
    if (home != NULL && home[0] == '/')
        return lf_path_set(out, err, "%s/.cache/loong-flow", home);
    return lf_fail(err, LF_ENOENT, "there is no HOME");
}

/* Another configuration or server is another queue. */
static int cache_path(char out[PATH_MAX], const lf_submitter *s, const lf_site *site, lf_err *err)
{
    static const char *const vars[] = {"SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT"};
    char dir[PATH_MAX], hex[LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%u", (unsigned)geteuid());
    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
        lf_buf_addf(&b, "|%s", getenv(vars[i]) != NULL ? getenv(vars[i]) : "");
    char *commands = lf_site_commands_text(site);
    lf_buf_addf(&b, "|%s", commands != NULL ? commands : "");
    free(commands);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    lf_buf_fini(&b);
    if (rc == 0)
        rc = cache_dir(dir, err);
    if (rc == 0)
        rc = lf_io_mkdirs(dir, 0700, err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    return lf_path_set(out, err, "%s/queue-%s-%.12s.json", dir, s->name, hex);
}

/* ---- a look ---- */

/* What is asked: whom, and for whom. */
struct asking {
    const lf_submitter *s;
    void *self;
    const lf_site *site;
    const lf_wanted_list *ids;
    bool now;
};

static bool is_ended(const lf_sched_job *j)
{
    return j->what != NULL && strcmp(j->what, "ended") == 0;
}

static void forget_old(lf_sched_jobs *jobs, double now)
{
    size_t kept = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        lf_sched_job j = jobs->v[i];
        if (now - j.seen > KEEP_S)
            lf_sched_job_fini(&j);
        else
            jobs->v[kept++] = j;
    }
    jobs->n = kept;
}

static int names_of_jobs(lf_names *out, const lf_sched_jobs *jobs, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < jobs->n; i++)
        rc = lf_names_put(out, jobs->v[i].id, "", i, err);
    return rc;
}

/* An id that was used again is another job. */
static int names_of_ids(lf_names *out, const lf_wanted_list *ids, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && ids != NULL && i < ids->n; i++)
        rc = lf_names_put(out, ids->v[i].id, "", i, err);
    return rc;
}

/* History knows no token: the job is the one that was asked for, and keeps what was known of it. */
static int complete(lf_sched_job *j, const lf_sched_job *old, const lf_wanted *asked, lf_err *err)
{
    if (asked->token == NULL)
        return 0;
    if (old != NULL && old->token != NULL && strcmp(old->token, asked->token) == 0 &&
        old->link != 0)
        j->link = old->link;
    return lf_text_set(&j->token, asked->token, "token", err);
}

/* Into the place of what was known of it; `list` keeps the old one. */
static int put(lf_sched_jobs *jobs, lf_names *names, lf_sched_job *j, lf_err *err)
{
    size_t at = lf_names_find(names, j->id, "");
    if (at == LF_NAMES_NONE) {
        lf_sched_job *slot = lf_rows_add(jobs, sizeof *slot, err);
        if (slot == NULL)
            return LF_ENOMEM;
        *slot = *j;
        memset(j, 0, sizeof *j);
        return lf_names_put(names, slot->id, "", jobs->n - 1, err);
    }
    lf_sched_job *slot = &jobs->v[at], old = *slot;
    *slot = *j;
    *j = old;
    char *id = slot->id; /* the table of names goes by the text of the old one */
    slot->id = j->id;
    j->id = id;
    return 0;
}

/* asked: NULL for the queue's own list, else the ids that history was asked for. */
static int merge(lf_sched_jobs *jobs, lf_sched_jobs *list, double now, const lf_wanted_list *asked,
                 lf_err *err)
{
    lf_names known = {NULL, 0, 0}, names = {NULL, 0, 0};
    int rc = names_of_jobs(&known, jobs, err);
    if (rc == 0)
        rc = names_of_ids(&names, asked, err);
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        lf_sched_job *j = &list->v[i];
        /* A moved one is in no list of this server, but not gone. "running", says accounting, of a
         * job that left: it does not know. */
        if (asked != NULL && !is_ended(j) && !j->moved)
            continue;
        size_t was = lf_names_find(&known, j->id, ""), place = lf_names_find(&names, j->id, "");
        if (asked != NULL && place != LF_NAMES_NONE)
            rc = complete(j, was != LF_NAMES_NONE ? &jobs->v[was] : NULL, &asked->v[place], err);
        j->seen = now;
        if (asked == NULL || j->moved)
            j->listed = now;
        if (rc == 0)
            rc = put(jobs, &known, j, err);
    }
    lf_names_fini(&known);
    lf_names_fini(&names);
    return rc;
}

/* What the queue does not list any more and nobody has said an end of. */
static int left(lf_wanted_list *out, const lf_sched_jobs *jobs, const lf_wanted_list *ids,
                double now, lf_err *err)
{
    lf_names names = {NULL, 0, 0};
    int rc = names_of_jobs(&names, jobs, err);
    for (size_t i = 0; rc == 0 && i < ids->n; i++) {
        const lf_wanted *one = &ids->v[i];
        size_t at = lf_names_find(&names, one->id, "");
        const lf_sched_job *j = at != LF_NAMES_NONE ? &jobs->v[at] : NULL;
        bool stale = j != NULL && is_ended(j) && j->seen < one->t; /* the id had another job */
        if (j == NULL || stale || (j->listed < now && !is_ended(j)))
            rc = lf_wanted_add(out, one->id, one->token, one->t, err);
    }
    lf_names_fini(&names);
    return rc;
}

static int ask_history(lf_queue_rec *c, const struct asking *a, double now, lf_err *e)
{
    lf_wanted_list gone = {0};
    lf_sched_jobs list = {0};
    int rc = left(&gone, &c->jobs, a->ids, now, e);
    if (rc == 0 && gone.n > 0) {
        rc = a->s->history(a->self, &gone, &list, e);
        if (rc == 0)
            rc = merge(&c->jobs, &list, now, &gone, e);
        else if (rc == LF_ENOTSUP || rc == LF_ECOMM)
            rc = 0;
    }
    lf_sched_jobs_fini(&list);
    lf_wanted_fini(&gone);
    return rc;
}

static int ask(lf_queue_rec *c, const struct asking *a, lf_err *err)
{
    lf_sched_jobs list = {0};
    double now = lf_wall_s();
    lf_err e = LF_ERR_INIT;
    c->t_try = now;
    int rc = a->s->list(a->self, &list, &e);
    if (rc == 0)
        rc = merge(&c->jobs, &list, now, NULL, &e);
    lf_sched_jobs_fini(&list);
    if (rc == 0)
        rc = ask_history(c, a, now, &e);
    if (rc == LF_ENOMEM)
        return lf_fail(err, rc, "out of memory");
    forget_old(&c->jobs, now);
    c->fails = rc == 0 ? 0 : c->fails + 1;
    if (rc == 0)
        c->t = now;
    return lf_queue_rec_say(c, rc == 0 ? "" : e.text, err);
}

/* May it be asked again? The more often it did not answer, the longer the pause. */
static bool due(const lf_queue_rec *c, const lf_site *site, double now)
{
    double poll = (double)site->poll_s.v, pause = poll;
    for (int i = c->fails; i > 0 && pause < poll * MAX_BACKOFF; i--)
        pause *= 2;
    double age = now - c->t_try;
    return age >= pause || age < -5; /* a time in the future is no time */
}

static int look_locked(lf_queue_rec *cache, const char *path, const struct asking *a, lf_err *err)
{
    double t0 = lf_wall_s();
    char lock_path[PATH_MAX];
    lf_queue_rec fresh;
    lf_lock_opts lo = {.purpose = "looking at the queue",
                       .wait_s = a->now ? 2 * lf_sched_timeout_s(a->site) : 0,
                       .ttl_s = 120};
    int rc = lf_path_set(lock_path, err, "%s.lock", path);
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &lo, NULL) : NULL;
    if (rc < 0)
        return rc;
    if (lock == NULL && !a->now)
        return 0; /* another process asks at this moment: what it finds is seen the next time */
    rc = lf_queue_rec_load(&fresh, path, err);
    bool ask_it = a->now ? fresh.t < t0 : due(&fresh, a->site, lf_wall_s());
    if (rc == 0 && ask_it)
        rc = ask(&fresh, a, err);
    if (rc == 0 && ask_it)
        lf_queue_rec_replace(path, &fresh, NULL);
    lf_lock_release(lock);
    if (rc < 0) {
        lf_queue_rec_fini(&fresh);
        return rc;
    }
    lf_queue_rec_fini(cache);
    *cache = fresh;
    return 0;
}

/* Jobs by id, and chains of those that have a token. */
static int index_jobs(lf_queue *q, lf_err *err)
{
    int rc = names_of_jobs(&q->by_id, &q->jobs, err);
    q->next = rc == 0 ? lf_calloc(q->jobs.n + 1, sizeof *q->next, err) : NULL;
    if (q->next == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    for (size_t i = q->jobs.n; rc == 0 && i-- > 0;) {
        const char *token = q->jobs.v[i].token;
        size_t first = token != NULL ? lf_names_find(&q->by_token, token, "") : LF_NAMES_NONE;
        q->next[i] = LF_NAMES_NONE;
        if (first != LF_NAMES_NONE) { /* behind the first: their order is that of links */
            q->next[i] = q->next[first];
            q->next[first] = i;
        } else if (token != NULL) {
            rc = lf_names_put(&q->by_token, token, "", i, err);
        }
    }
    return rc;
}

int lf_queue_look(lf_queue *out, const lf_submitter *s, void *self, const lf_site *site,
                  const lf_wanted_list *ids, bool now, lf_err *err)
{
    char path[PATH_MAX];
    const struct asking a = {.s = s, .self = self, .site = site, .ids = ids, .now = now};
    lf_err e = LF_ERR_INIT;
    /* A full or read-only HOME does not keep anybody from looking. */
    bool has_file = cache_path(path, s, site, &e) == 0;
    lf_queue_rec c;
    memset(&c, 0, sizeof c);
    memset(out, 0, sizeof *out);
    int rc = has_file ? lf_queue_rec_load(&c, path, err) : 0;
    if (rc == 0 && !has_file)
        rc = ask(&c, &a, err);
    else if (rc == 0 && (now || due(&c, site, lf_wall_s())))
        rc = look_locked(&c, path, &a, err);
    if (rc == 0) {
        out->jobs = c.jobs;
        memset(&c.jobs, 0, sizeof c.jobs);
        out->t = c.t;
        out->reached = c.fails == 0 && out->t > 0;
        snprintf(out->said, sizeof out->said, "%.290s", c.said != NULL ? c.said : "");
        rc = index_jobs(out, err);
    }
    lf_queue_rec_fini(&c);
    if (rc < 0)
        lf_queue_fini(out);
    return rc;
}

void lf_queue_fini(lf_queue *q)
{
    lf_names_fini(&q->by_id);
    lf_names_fini(&q->by_token);
    lf_sched_jobs_fini(&q->jobs);
    free(q->next);
    memset(q, 0, sizeof *q);
}

const lf_sched_job *lf_queue_find(const lf_queue *q, const char *id)
{
    size_t at = id != NULL ? lf_names_find(&q->by_id, id, "") : LF_NAMES_NONE;
    return at != LF_NAMES_NONE ? &q->jobs.v[at] : NULL;
}

static int by_link(const void *a, const void *b)
{
    const lf_sched_job *x = *(const lf_sched_job *const *)a, *y = *(const lf_sched_job *const *)b;
    return (x->link > y->link) - (x->link < y->link);
}

size_t lf_queue_by_token(const lf_sched_job *out[LF_JOBS_MOST], const lf_queue *q,
                         const char *token)
{
    size_t n = 0;
    size_t at = token != NULL ? lf_names_find(&q->by_token, token, "") : LF_NAMES_NONE;
    for (; at != LF_NAMES_NONE && n < LF_JOBS_MOST; at = q->next[at])
        out[n++] = &q->jobs.v[at];
    qsort(out, n, sizeof out[0], by_link);
    return n;
}

int lf_wanted_add(lf_wanted_list *l, const char *id, const char *token, double t, lf_err *err)
{
    lf_wanted *w = lf_rows_add(l, sizeof *w, err);
    if (w == NULL)
        return LF_ENOMEM;
    w->token = token;
    w->t = t;
    return lf_text_set(&w->id, id, "id", err);
}

void lf_wanted_fini(lf_wanted_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].id);
    free(l->v);
    memset(l, 0, sizeof *l);
}
