/* SPDX-License-Identifier: Apache-2.0
 *
 * One look at the queue for everybody: its result lies in a file of the user's cache directory, so
 * ten `watch` windows of five projects ask the scheduler once a minute. The file is a cache:
 * without it there is one more look.
 *
 *   {"lf_queue":1,"t":last answer,"t_try":last question,"fails":N,"said":text,"jobs":{id: entry +
 *   "seen":t}}
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

#define CACHE_MAX_BYTES ((size_t)64 << 20)
#define KEEP_S          86400.0 /* entries of jobs that left */
#define MAX_BACKOFF     16.0    /* times poll_s, when the scheduler does not answer */

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

static json_t *empty_cache(void)
{
    return json_pack("{s:i, s:f, s:f, s:i, s:s, s:{}}", "lf_queue", 1, "t", 0.0, "t_try", 0.0,
                     "fails", 0, "said", "", "jobs");
}

/* What is not mine, or is no cache, is as good as none. */
static json_t *read_cache(const char *path)
{
    struct stat st;
    json_t *c = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()
                    ? lf_json_load_file(path, CACHE_MAX_BYTES, NULL)
                    : NULL;
    if (json_integer_value(json_object_get(c, "lf_queue")) == 1 &&
        json_is_object(json_object_get(c, "jobs")))
        return c;
    json_decref(c);
    return empty_cache();
}

static void write_cache(const char *path, const json_t *c)
{
    char *text = json_dumps(c, JSON_COMPACT);
    if (text != NULL)
        lf_io_replace(path, text, strlen(text), 0600, NULL);
    free(text);
}

/* ---- a look ---- */

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool ended(const json_t *entry)
{
    const char *what = json_string_value(json_object_get(entry, "what"));
    return what != NULL && strcmp(what, "ended") == 0;
}

static void forget_old(json_t *jobs, double now)
{
    const char *id;
    void *tmp;
    json_t *e;
    json_object_foreach_safe(jobs, tmp, id, e)
    {
        if (now - number_of(e, "seen") > KEEP_S)
            json_object_del(jobs, id);
    }
}

/* An id that was used again is another job. */
static int names_of_ids(lf_names *out, const json_t *ids, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(ids); i++) {
        const char *one = json_string_value(json_object_get(json_array_get(ids, i), "id"));
        rc = one != NULL ? lf_names_put(out, one, "", i, err) : 0;
    }
    return rc;
}

/* History knows no token: the entry is that of the job that was asked for, and keeps what was known
 * of it. */
static int complete(json_t *e, const json_t *old, const json_t *asked, lf_err *err)
{
    json_t *token = json_object_get(asked, "token");
    int rc = token != NULL ? lf_json_set_new(e, "token", json_incref(token), err) : 0;
    json_t *link =
        json_equal(json_object_get(old, "token"), token) ? json_object_get(old, "link") : NULL;
    if (rc == 0 && link != NULL)
        rc = lf_json_set_new(e, "link", json_incref(link), err);
    return rc;
}

/* asked: NULL for the queue's own list, else the ids that history was asked for. */
static int merge(json_t *jobs, const json_t *list, double now, const json_t *asked, lf_err *err)
{
    lf_names names = {NULL, 0, 0};
    int rc = names_of_ids(&names, asked, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(e, "id"));
        bool moved =
            json_is_true(json_object_get(e, "moved")); /* in no list of this server, but not gone */
        if (id == NULL ||
            (asked != NULL && !ended(e) &&
             !moved)) /* "running", says accounting, of a job that left: it does not know */
            continue;
        if (asked != NULL)
            rc = complete(e, json_object_get(jobs, id),
                          json_array_get(asked, lf_names_find(&names, id, "")), err);
        if (rc == 0)
            rc = lf_json_set_new(e, "seen", json_real(now), err);
        if (rc == 0 && (asked == NULL || moved))
            rc = lf_json_set_new(e, "listed", json_real(now), err);
        if (rc == 0)
            rc = lf_json_set_new(jobs, id, json_incref(e), err);
    }
    lf_names_fini(&names);
    return rc;
}

/* What the queue does not list any more and nobody has said an end of. */
static json_t *left(const json_t *jobs, const json_t *ids, double now)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_t *one = json_array_get(ids, i);
        const json_t *e = json_object_get(jobs, json_string_value(json_object_get(one, "id")));
        bool stale = ended(e) &&
                     number_of(e, "seen") < number_of(one, "t"); /* the id had another job before */
        if (e == NULL || stale || (number_of(e, "listed") < now && !ended(e)))
            json_array_append(out, one);
    }
    return out;
}

static int ask(json_t *c, const lf_submitter *s, void *self, const json_t *ids, lf_err *err)
{
    json_t *list = NULL, *jobs = json_object_get(c, "jobs");
    double now = lf_wall_s();
    lf_err e = LF_ERR_INIT;
    json_object_set_new(c, "t_try", json_real(now));
    int rc = s->list(self, &list, &e);
    if (rc == 0)
        rc = merge(jobs, list, now, NULL, err);
    json_decref(list);
    json_t *gone = rc == 0 ? left(jobs, ids, now) : NULL;
    list = NULL;
    if (rc == 0 && json_array_size(gone) > 0) {
        int hrc = s->history(self, gone, &list, &e);
        if (hrc == 0)
            rc = merge(jobs, list, now, gone, err);
        else if (hrc != LF_ENOTSUP && hrc != LF_ECOMM)
            rc = hrc;
        json_decref(list);
    }
    json_decref(gone);
    if (rc == LF_ENOMEM)
        return lf_fail(err, rc, "out of memory");
    forget_old(jobs, now);
    json_object_set_new(c, "said", json_string(rc == 0 ? "" : e.text));
    json_object_set_new(c, "fails",
                        json_integer(rc == 0 ? 0 : (json_int_t)number_of(c, "fails") + 1));
    if (rc == 0)
        json_object_set_new(c, "t", json_real(now));
    return 0;
}

/* May it be asked again? The more often it did not answer, the longer the pause. */
static bool due(const json_t *c, const lf_site *site, double now)
{
    double poll = (double)site->poll_s.v, pause = poll;
    for (int i = (int)number_of(c, "fails"); i > 0 && pause < poll * MAX_BACKOFF; i--)
        pause *= 2;
    double age = now - number_of(c, "t_try");
    return age >= pause || age < -5; /* a time in the future is no time */
}

static int look_locked(json_t **cache, const char *path, const lf_submitter *s, void *self,
                       const lf_site *site, const json_t *ids, bool now, lf_err *err)
{
    double t0 = lf_wall_s();
    char lock_path[PATH_MAX];
    lf_lock_opts lo = {.purpose = "looking at the queue",
                       .wait_s = now ? 2 * lf_sched_timeout_s(site) : 0,
                       .ttl_s = 120};
    int rc = lf_path_set(lock_path, err, "%s.lock", path);
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &lo, NULL) : NULL;
    if (rc < 0)
        return rc;
    if (lock == NULL && !now)
        return 0; /* another process asks at this moment: what it finds is seen the next time */
    json_t *fresh = read_cache(path);
    bool ask_it = now ? number_of(fresh, "t") < t0 : due(fresh, site, lf_wall_s());
    rc = fresh == NULL ? lf_fail(err, LF_ENOMEM, "out of memory")
         : ask_it      ? ask(fresh, s, self, ids, err)
                       : 0;
    if (rc == 0 && ask_it)
        write_cache(path, fresh);
    lf_lock_release(lock);
    if (rc < 0) {
        json_decref(fresh);
        return rc;
    }
    json_decref(*cache);
    *cache = fresh;
    return 0;
}

static json_t *by_token(json_t *jobs)
{
    json_t *out = json_object(), *e;
    const char *id;
    json_object_foreach(jobs, id, e)
    {
        const char *token = json_string_value(json_object_get(e, "token"));
        if (token != NULL && json_object_get(out, token) == NULL)
            json_object_set_new(out, token, json_array());
        if (token != NULL)
            json_array_append(json_object_get(out, token), e);
    }
    return out;
}

int lf_queue_look(lf_queue *out, const lf_submitter *s, void *self, const lf_site *site,
                  const json_t *ids, bool now, lf_err *err)
{
    char path[PATH_MAX];
    lf_err e = LF_ERR_INIT;
    bool has_file = cache_path(path, s, site, &e) ==
                    0; /* a full or read-only HOME does not keep anybody from looking */
    json_t *c = has_file ? read_cache(path) : empty_cache();
    int rc = c == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    if (rc == 0 && !has_file)
        rc = ask(c, s, self, ids, err);
    else if (rc == 0 && (now || due(c, site, lf_wall_s())))
        rc = look_locked(&c, path, s, self, site, ids, now, err);
    if (rc < 0) {
        json_decref(c);
        return rc;
    }
    memset(out, 0, sizeof *out);
    out->jobs = json_incref(json_object_get(c, "jobs"));
    out->by_token = by_token(out->jobs);
    out->t = number_of(c, "t");
    out->reached = number_of(c, "fails") == 0 && out->t > 0;
    snprintf(out->said, sizeof out->said, "%.290s", json_string_value(json_object_get(c, "said")));
    json_decref(c);
    return 0;
}

void lf_queue_fini(lf_queue *q)
{
    json_decref(q->jobs);
    json_decref(q->by_token);
    memset(q, 0, sizeof *q);
}

const json_t *lf_queue_find(const lf_queue *q, const char *id)
{
    return json_object_get(q->jobs, id);
}

static int by_link(const void *a, const void *b)
{
    double x = number_of(*(json_t *const *)a, "link"), y = number_of(*(json_t *const *)b, "link");
    return (x > y) - (x < y);
}

json_t *lf_queue_by_token(const lf_queue *q, const char *token)
{
    json_t *found[1024], *out = json_array();
    const json_t *list = json_object_get(q->by_token, token);
    size_t n = 0;
    for (; n < json_array_size(list) && n < sizeof found / sizeof found[0]; n++)
        found[n] = json_array_get(list, n);
    qsort(found, n, sizeof found[0], by_link);
    for (size_t i = 0; i < n; i++)
        json_array_append(out, found[i]);
    return out;
}
