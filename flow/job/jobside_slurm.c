/* SPDX-License-Identifier: Apache-2.0
 *
 * A SLURM job seen from inside: squeue for its state and end, scontrol to put it back and to change
 * what waits.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "engine/base/str.h"
#include "flow/job/jobside.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

static bool unreachable(const lf_sched_out *o)
{
    static const char *const words[] = {"unable to contact",    "socket timed out",
                                        "connection refused",   "temporarily unable",
                                        "connection timed out", "zero bytes were transmitted",
                                        "unexpected message"};
    if (o->timed_out || o->missing)
        return true;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(o->err.data, words[i]) != NULL || strcasestr(o->out.data, words[i]) != NULL)
            return true;
    return false;
}

/* "2026-11-22T07:00:00" in the site's time zone; "N/A", "NONE" and "Unknown" are 0. */
static double parse_time(const char *s)
{
    struct tm tm;
    memset(&tm, 0, sizeof tm);
    if (strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) == NULL)
        return 0;
    tm.tm_isdst = -1;
    time_t t = mktime(&tm);
    return t == (time_t)-1 ? 0 : (double)t;
}

/* Is that where we run? Unknown counts as yes: the epoch is looked at as well. */
static bool our_node(const char *batch_host)
{
    const char *me = getenv("SLURMD_NODENAME");
    return me == NULL || batch_host[0] == '\0' || strcmp(batch_host, "n/a") == 0 ||
           strpbrk(batch_host, "[,") != NULL || strcmp(batch_host, me) == 0;
}

/* Its line of squeue: state word, end and the node of its script. 1 found, 0 the scheduler does not
 * know the job, LF_ECOMM no answer. */
static int look(lf_jobside *j, double *end)
{
    lf_sched_out o;
    lf_err e = LF_ERR_INIT;
    if (lf_sched_runv(&o, j->site, j->timeout_s, &e, "squeue", "-h", "-j", j->id, "-o", "%T|%e|%B",
                      NULL) < 0)
        return LF_ECOMM;
    int rc = LF_ECOMM;
    char word[64] = "", when[64] = "", host[256] = "";
    if (o.exit == 0 && sscanf(o.out.data, " %63[A-Z_a-z]|%63[^|]|%255s", word, when, host) >= 1) {
        snprintf(j->state_word, sizeof j->state_word, "%s", our_node(host) ? word : "ELSEWHERE");
        *end = our_node(host) ? parse_time(when) : 0;
        rc = 1;
    } else if (o.exit == 0 ||
               (!unreachable(&o) && strcasestr(o.err.data, "invalid job id") != NULL)) {
        snprintf(j->state_word, sizeof j->state_word, "unknown");
        rc = 0;
    }
    lf_sched_out_fini(&o);
    return rc;
}

static double slurm_end(lf_jobside *j)
{
    double end = 0;
    /* Of a job that is being cancelled or put back it tells when that began, which is no limit of
     * ours. */
    if (look(j, &end) == 1)
        return strcmp(j->state_word, "RUNNING") == 0 ? end : 0;
    /* Set when the job was started, so it does not follow changes; better than nothing when the
     * controller is away. */
    const char *s = getenv("SLURM_JOB_END_TIME");
    int64_t v = 0;
    return j->end <= 0 && s != NULL && lf_parse_i64(&v, s, NULL) == 0 ? (double)v : 0;
}

static enum lf_jobside_state slurm_state(lf_jobside *j)
{
    double end = 0;
    int rc = look(j, &end);
    if (rc < 0)
        return LF_JOBSIDE_UNKNOWN;
    return rc == 1 && strcmp(j->state_word, "RUNNING") == 0 ? LF_JOBSIDE_RUNNING
                                                            : LF_JOBSIDE_ENDING;
}

static bool slurm_preempted(lf_jobside *j)
{
    lf_sched_out o;
    if (lf_sched_runv(&o, j->site, j->timeout_s, NULL, "scontrol", "show", "job", "-o", j->id,
                      NULL) < 0)
        return true;
    const char *p = strstr(o.out.data, "PreemptTime=");
    bool yes = o.exit != 0 || (p != NULL && p[12] >= '0' && p[12] <= '9');
    lf_sched_out_fini(&o);
    return yes;
}

/* The verdict on a command that changes something. */
static int verdict(lf_sched_out *o, int rc, lf_err *err)
{
    char said[300];
    if (rc < 0)
        return rc;
    if (o->exit != 0)
        rc = lf_fail(err, unreachable(o) ? LF_ECOMM : LF_ENOTSUP, "%s",
                     lf_sched_said(said, sizeof said, o));
    lf_sched_out_fini(o);
    return rc;
}

static int slurm_requeue(lf_jobside *j, lf_err *err)
{
    lf_sched_out o;
    int rc = lf_sched_runv(&o, j->site, j->timeout_s, err, "scontrol", "requeue", j->id, NULL);
    return verdict(&o, rc, err);
}

static int slurm_update(lf_jobside *j, const lf_jobside_ask *ask, lf_err *err)
{
    lf_sched_out o;
    lf_buf memory, time, nodes;
    lf_buf_init(&memory);
    lf_buf_init(&time);
    lf_buf_init(&nodes);
    char job[160];
    lf_texts argv = {.n = 0};
    snprintf(job, sizeof job, "JobId=%s", j->id);
    lf_buf_addf(&memory, "MinMemoryNode=%lld",
                (long long)((ask->memory_bytes + (1 << 20) - 1) >> 20));
    lf_buf_addf(&time, "TimeLimit=%lld", (long long)((ask->time_limit_s + 59) / 60));
    lf_buf_addf(&nodes, "ExcNodeList=%s", ask->exclude != NULL ? ask->exclude : "");
    int rc = lf_texts_add(&argv, "scontrol", err);
    if (rc == 0)
        rc = lf_texts_add(&argv, "update", err);
    if (rc == 0)
        rc = lf_texts_add(&argv, job, err);
    if (rc == 0 && ask->memory_bytes > 0)
        rc = lf_texts_add(&argv, memory.data, err);
    if (rc == 0 && ask->time_limit_s > 0)
        rc = lf_texts_add(&argv, time.data, err);
    if (rc == 0 && ask->exclude != NULL)
        rc = lf_texts_add(&argv, nodes.data, err);
    if (rc == 0 && argv.n > 3) {
        rc = lf_sched_run(&o, &argv, j->site, j->timeout_s, err);
        rc = verdict(&o, rc, err);
    }
    lf_texts_fini(&argv);
    lf_buf_fini(&memory);
    lf_buf_fini(&time);
    lf_buf_fini(&nodes);
    return rc;
}

bool lf_slurm_dependency_replace(lf_buf *out, const char *text, const char *from, const char *to)
{
    bool found = false;
    for (const char *p = text; *p != '\0';) {
        if (*p == '(') { /* what has become of it, not part of the syntax */
            p += strcspn(p, ")");
            p += *p == ')';
            continue;
        }
        size_t n = p > text && (p[-1] == ':' || p[-1] == ')') ? strspn(p, "0123456789_") : 0;
        if (n > 0) {
            bool same = strlen(from) == n && memcmp(p, from, n) == 0;
            if (same)
                lf_buf_adds(out, to);
            else
                lf_buf_add(out, p, n);
            found = found || same;
            p += n;
        } else {
            lf_buf_addc(out, *p++);
        }
    }
    return found;
}

static int repoint_one(lf_jobside *j, const char *child, const char *dependency, lf_err *err)
{
    lf_sched_out o;
    char job[160];
    lf_buf dep;
    lf_buf_init(&dep);
    snprintf(job, sizeof job, "JobId=%s", child);
    lf_buf_addf(&dep, "Dependency=%s", dependency);
    int rc = lf_buf_check(&dep, err);
    if (rc == 0) {
        rc = lf_sched_runv(&o, j->site, j->timeout_s, err, "scontrol", "update", job, dep.data,
                           NULL);
        rc = verdict(&o, rc, err);
    }
    lf_buf_fini(&dep);
    return rc;
}

static int slurm_repoint(lf_jobside *j, const char *id, lf_err *err)
{
    lf_sched_out o;
    int rc = lf_sched_runv(&o, j->site, j->timeout_s, err, "squeue", "--me", "-h", "-t", "PENDING",
                           "-o", "%i|%E", NULL);
    if (rc < 0)
        return rc;
    if (o.exit != 0)
        return verdict(&o, 0, err);
    char *save = NULL;
    for (char *line = strtok_r(o.out.data, "\n", &save); line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char *bar = strchr(line, '|');
        if (bar == NULL)
            continue;
        *bar = '\0';
        lf_buf dep;
        lf_buf_init(&dep);
        if (strcmp(line, id) != 0 && lf_slurm_dependency_replace(&dep, bar + 1, j->id, id))
            rc = repoint_one(j, line, dep.data, err);
        lf_buf_fini(&dep);
    }
    lf_sched_out_fini(&o);
    return rc;
}

const lf_jobside_ops lf_jobside_slurm = {.name = "slurm",
                                         .can_requeue = true,
                                         .end_time = slurm_end,
                                         .state = slurm_state,
                                         .preempted = slurm_preempted,
                                         .requeue = slurm_requeue,
                                         .update = slurm_update,
                                         .repoint = slurm_repoint};
