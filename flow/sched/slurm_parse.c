/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking apart the output of SLURM's commands.
 */
#include "config.h"

#include "flow/sched/slurm_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record/record.h"
#include "flow/sched/submit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- sbatch ---- */

bool lf_slurm_parse_id(char *id, size_t id_cap, char *cluster, size_t cluster_cap, const char *out)
{
    bool found = false;
    for (const char *p = out; *p != '\0';) {
        size_t n = strcspn(p, "\n"), d = strspn(p, "0123456789");
        if (d > 0 && d < id_cap && (d == n || p[d] == ';')) {
            size_t c = d == n ? 0 : n - d - 1;
            if (c < cluster_cap) {
                memcpy(id, p, d);
                id[d] = '\0';
                memcpy(cluster, p + d + (c > 0), c);
                cluster[c] = '\0';
                found = true;
            }
        }
        p += n + (p[n] == '\n');
    }
    return found;
}

static bool says(const char *text, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasestr(text, parts[i]) != NULL)
            return true;
    return false;
}

int lf_slurm_refusal(const char *said)
{
    static const char *const away[] = {"socket timed out",
                                       "unable to contact slurm",
                                       "connection refused",
                                       "timed out",
                                       "connection reset",
                                       "communication connection failure",
                                       "zero bytes were transmitted",
                                       "not responding",
                                       "transport endpoint",
                                       "no route to host",
                                       "broken pipe",
                                       "unexpected message received",
                                       "protocol authentication error",
                                       "munge"};
    static const char *const busy[] = {"temporarily unable",
                                       "temporarily unavailable",
                                       "maxsubmit",
                                       "job submit limit",
                                       "try again",
                                       "rate limit",
                                       "too many",
                                       "slurmctld is in standby",
                                       "maxjobs"};
    if (says(said, away, COUNT(away)))
        return LF_ECOMM;
    return says(said, busy, COUNT(busy)) ? LF_EBUSY : LF_EINVAL;
}

bool lf_slurm_no_cluster(const char *said)
{
    static const char *const words[] = {"configuration source", "dns srv lookup failed",
                                        "unable to process configuration file"};
    return says(said, words, COUNT(words));
}

bool lf_slurm_no_accounting(const char *said)
{
    static const char *const words[] = {"accounting storage is disabled", "accounting_storage/none",
                                        "not completely set up"};
    return says(said, words, COUNT(words));
}

bool lf_slurm_unknown_id(const char *said)
{
    return strcasestr(said, "invalid job id") != NULL;
}

/* ---- states ---- */

static const struct state {
    const char *word, *what, *cause;
} states[] = {
    {"PENDING", "queued", NULL},        {"REQUEUED", "queued", NULL},
    {"REQUEUE_FED", "queued", NULL},    {"REQUEUE_HOLD", "held", NULL},
    {"SPECIAL_EXIT", "held", NULL},     {"RESV_DEL_HOLD", "held", NULL},
    {"RUNNING", "running", NULL},       {"CONFIGURING", "running", NULL},
    {"COMPLETING", "running", NULL},    {"SUSPENDED", "running", NULL},
    {"STOPPED", "running", NULL},       {"SIGNALING", "running", NULL},
    {"RESIZING", "running", NULL},      {"STAGE_OUT", "running", NULL},
    {"COMPLETED", "ended", "done"},     {"CANCELLED", "ended", "cancelled"},
    {"REVOKED", "ended", "cancelled"},  {"FAILED", "ended", "failed"},
    {"TIMEOUT", "ended", "timeout"},    {"DEADLINE", "ended", "timeout"},
    {"OUT_OF_MEMORY", "ended", "oom"},  {"NODE_FAIL", "ended", "node"},
    {"BOOT_FAIL", "ended", "node"},     {"LAUNCH_FAILED", "ended", "node"},
    {"RECONFIG_FAIL", "ended", "node"}, {"PREEMPTED", "ended", "preempted"},
};

static const struct state *find_state(const char *word)
{
    size_t n = strlen(word);
    bool cut = n > 3 && word[n - 1] == '+';
    const struct state *found = NULL;
    for (size_t i = 0; i < COUNT(states); i++)
        if (cut ? strncmp(states[i].word, word, n - 1) == 0 : strcmp(states[i].word, word) == 0) {
            if (found != NULL && cut)
                return NULL; /* it could be either */
            found = &states[i];
        }
    return found;
}

/* Reasons for which a job will wait for ever unless somebody changes it. */
static bool never(const char *reason)
{
    static const char *const words[] = {
        "DependencyNeverSatisfied", "BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit",
        "InvalidAccount",           "InvalidQOS",     "PartitionConfig",    "AssociationNodeLimit"};
    for (size_t i = 0; i < COUNT(words); i++)
        if (strcmp(reason, words[i]) == 0)
            return true;
    return false;
}

static int set_state(lf_sched_job *j, const char *text, const char *reason, lf_err *err)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, " "), text);
    const struct state *s = find_state(word);
    bool held = s != NULL && strcmp(s->what, "queued") == 0 && strncmp(reason, "JobHeld", 7) == 0;
    const char *cause = s != NULL ? s->cause : NULL;
    if (cause != NULL && strcmp(cause, "cancelled") == 0 && strncmp(reason, "Dependency", 10) == 0)
        cause = "dependency";
    j->never = never(reason) && cause == NULL;
    int rc = lf_text_set(&j->word, word, "word", err);
    if (rc == 0)
        rc = lf_text_set(&j->what, s == NULL ? "unknown" : held ? "held" : s->what, "what", err);
    if (rc == 0)
        rc = lf_text_set(&j->cause, cause, "cause", err);
    if (rc == 0 && reason[0] != '\0' && strcmp(reason, "None") != 0)
        rc = lf_text_set(&j->reason, reason, "reason", err);
    return rc;
}

/* "2026-11-22T06:20:05", local time; anything else ("N/A", "Unknown") is not known. */
static double time_of(const char *text)
{
    struct tm tm;
    int n = 0;
    memset(&tm, 0, sizeof tm);
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &n) != 6 ||
        text[n] != '\0')
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    tm.tm_isdst = -1;
    time_t t = mktime(&tm);
    return t > 0 ? (double)t : 0;
}

static int set_text(char **out, const char *text, lf_err *err)
{
    return text[0] != '\0' && strcmp(text, "(null)") != 0 ? lf_text_set(out, text, "squeue", err)
                                                          : 0;
}

static void set_exit(lf_sched_job *j, const char *text)
{
    int code = 0, sig = 0;
    if (sscanf(text, "%d:%d", &code, &sig) != 2)
        return;
    j->exit_code = code;
    j->signal = sig;
}

/* ---- squeue ---- */

/* Cut a line at n - 1 bars; the last field keeps its bars. */
static bool split(char **f, size_t n, char *line)
{
    for (size_t i = 0; i < n; i++) {
        f[i] = line;
        char *bar = i + 1 < n ? strchr(line, '|') : NULL;
        if (i + 1 < n && bar == NULL)
            return false;
        if (bar != NULL) {
            *bar = '\0';
            line = bar + 1;
        }
    }
    return true;
}

static bool plain_id(const char *id)
{
    return id[0] != '\0' && id[strspn(id, "0123456789")] == '\0';
}

static int squeue_row(lf_sched_jobs *jobs, char **f, lf_err *err)
{
    char token[LF_TOKEN_SIZE];
    int link = 1;
    lf_sched_job *j = lf_sched_jobs_add(jobs, f[0], err);
    int rc = j == NULL ? LF_ENOMEM : set_state(j, f[1], f[2], err);
    if (rc < 0)
        return rc;
    j->t_start = time_of(f[3]);
    j->t_end = time_of(f[4]);
    j->t_submit = time_of(f[5]);
    rc = set_text(&j->partition, f[6], err);
    if (rc == 0 && strcmp(j->what, "queued") != 0)
        rc = set_text(&j->nodes, f[7], err);
    if (rc < 0)
        return rc;
    if (lf_submit_parse_name(f[8], token, &link) ||
        (strncmp(f[9], "loong-flow:", 11) == 0 && lf_submit_parse_name(f[9], token, &link))) {
        j->link = link;
        return lf_text_set(&j->token, token, "token", err);
    }
    j->foreign = true;
    return 0;
}

int lf_slurm_parse_squeue(lf_sched_jobs *jobs, const char *text, lf_err *err)
{
    char *copy = lf_strdup(text, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
    for (char *line = rc == 0 ? strtok_r(copy, "\n", &save) : NULL; line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char *f[10];
        while (*line == ' ')
            line++;
        if (!isdigit((unsigned char)line[0]))
            continue; /* a site's chatter */
        if (!split(f, COUNT(f), line))
            rc = lf_fail(err, LF_ECOMM, "squeue printed a line that is not understood: %.100s",
                         line);
        else if (plain_id(f[0]))
            rc = squeue_row(jobs, f, err);
    }
    free(copy);
    return rc;
}

/* ---- sacct, scontrol ---- */

#define REUSE_S 600.0 /* clocks differ; nobody reuses an id so soon */

static bool is_wanted(const lf_wanted_list *wanted, const lf_sched_job *j)
{
    for (size_t i = 0; i < wanted->n; i++)
        if (strcmp(wanted->v[i].id, j->id) == 0)
            return j->t_submit <= 0 || j->t_submit > wanted->v[i].t - REUSE_S;
    return false;
}

/* Past events only: what accounting calls running or pending, and the queue does not have, is not
 * known. The last of jobs goes when nobody asked for it. */
static int keep(lf_sched_jobs *jobs, const lf_wanted_list *wanted, lf_err *err)
{
    lf_sched_job *j = &jobs->v[jobs->n - 1];
    if (!is_wanted(wanted, j)) {
        lf_sched_job_fini(j);
        jobs->n--;
        return 0;
    }
    return strcmp(j->what, "ended") != 0 ? lf_text_set(&j->what, "unknown", "what", err) : 0;
}

static int sacct_row(lf_sched_jobs *jobs, char **f, const lf_wanted_list *wanted, lf_err *err)
{
    lf_sched_job *j = lf_sched_jobs_add(jobs, f[0], err);
    int rc = j == NULL ? LF_ENOMEM : set_state(j, f[1], "", err);
    if (rc < 0)
        return rc;
    set_exit(j, f[2]);
    j->t_submit = time_of(f[3]);
    j->t_start = time_of(f[4]);
    j->t_end = time_of(f[5]);
    if (strcmp(f[6], "None assigned") != 0)
        rc = set_text(&j->nodes, f[6], err);
    return rc == 0 ? keep(jobs, wanted, err) : rc;
}

int lf_slurm_parse_sacct(lf_sched_jobs *jobs, const char *text, const lf_wanted_list *wanted,
                         lf_err *err)
{
    char *copy = lf_strdup(text, err), *save = NULL;
    int rc = copy == NULL ? LF_ENOMEM : 0;
    for (char *line = rc == 0 ? strtok_r(copy, "\n", &save) : NULL; line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char *f[7];
        if (!isdigit((unsigned char)line[0]))
            continue;
        if (!split(f, COUNT(f), line))
            rc =
                lf_fail(err, LF_ECOMM, "sacct printed a line that is not understood: %.100s", line);
        else if (plain_id(f[0]))
            rc = sacct_row(jobs, f, wanted, err);
    }
    free(copy);
    return rc;
}

/* The value behind " KEY=" up to the next blank. */
static const char *member(char *buf, size_t cap, const char *line, const char *key)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *p = strstr(line, pattern);
    snprintf(buf, cap, "%.*s", p != NULL ? (int)strcspn(p + strlen(pattern), " \n") : 0,
             p != NULL ? p + strlen(pattern) : "");
    return buf;
}

int lf_slurm_parse_scontrol(lf_sched_jobs *jobs, const char *text, const lf_wanted_list *wanted,
                            lf_err *err)
{
    const char *p = strstr(text, "JobId=");
    char id[64], a[256], b[256];
    size_t n = p != NULL ? strspn(p + 6, "0123456789") : 0;
    if (n == 0 || n >= sizeof id)
        return lf_fail(err, LF_ECOMM, "scontrol printed something that is not understood: %.100s",
                       text);
    snprintf(id, sizeof id, "%.*s", (int)n, p + 6);
    lf_sched_job *j = lf_sched_jobs_add(jobs, id, err);
    int rc = j == NULL ? LF_ENOMEM
                       : set_state(j, member(a, sizeof a, p, "JobState"),
                                   member(b, sizeof b, p, "Reason"), err);
    if (rc < 0)
        return rc;
    set_exit(j, member(a, sizeof a, p, "ExitCode"));
    j->t_submit = time_of(member(a, sizeof a, p, "SubmitTime"));
    j->t_start = time_of(member(a, sizeof a, p, "StartTime"));
    j->t_end = time_of(member(a, sizeof a, p, "EndTime"));
    rc = set_text(&j->nodes, member(a, sizeof a, p, "NodeList"), err);
    return rc == 0 ? keep(jobs, wanted, err) : rc;
}
