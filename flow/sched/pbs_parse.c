/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of PBS and Torque commands, taken apart.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"
#include "flow/record/record.h"
#include "flow/sched/pbs.h"

/* ---- small things ---- */

enum lf_pbs_flavour lf_pbs_flavour_of(const char *out, const char *err_text)
{
    const char *const texts[] = {out, err_text};
    for (size_t i = 0; i < 2; i++)
        for (const char *p = texts[i]; p != NULL && *p != '\0';
             p = strchr(p, '\n') != NULL ? strchr(p, '\n') + 1 : NULL) {
            if (strncasecmp(p, "pbs_version", 11) == 0)
                return LF_PBS_OPENPBS;
            if (strncasecmp(p, "version:", 8) == 0)
                return LF_PBS_TORQUE;
        }
    return LF_PBS_NONE;
}

/* "123.server" or "123[].server", alone in its line. */
static bool id_line(const char *p, size_t n)
{
    size_t k = 0;
    while (k < n && isdigit((unsigned char)p[k]))
        k++;
    if (k == 0 || k > 18)
        return false;
    if (k + 1 < n && p[k] == '[' && p[k + 1] == ']')
        k += 2;
    if (k == n)
        return true;
    if (p[k] != '.' || k + 1 == n)
        return false;
    for (k++; k < n; k++)
        if (!isalnum((unsigned char)p[k]) && strchr(".-_", p[k]) == NULL)
            return false;
    return true;
}

bool lf_pbs_parse_id(char *id, size_t cap, const char *out)
{
    bool found = false;
    for (const char *p = out; *p != '\0';) {
        size_t n = strcspn(p, "\n"), m = n;
        while (m > 0 && (p[m - 1] == '\r' || p[m - 1] == ' '))
            m--;
        if (id_line(p, m) && m < cap) {
            memcpy(id, p, m);
            id[m] = '\0';
            found = true;
        }
        p += n + (p[n] == '\n');
    }
    return found;
}

static bool says(const char *said, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcasestr(said, *words) != NULL)
            return true;
    return false;
}

bool lf_pbs_no_cluster(const char *said)
{
    static const char *const words[] = {"pbs conf variables", "cannot resolve default server host",
                                        "no default server", NULL};
    return says(said, words);
}

int lf_pbs_refusal(const char *said)
{
    static const char *const away[] = {"cannot connect to server",
                                       "connection refused",
                                       "connection timed out",
                                       "end of file",
                                       "premature end of",
                                       "shutting down",
                                       "no route to host",
                                       "communication failure",
                                       "protocol",
                                       "connection reset",
                                       "could not connect",
                                       "broken pipe",
                                       "not responding",
                                       NULL};
    static const char *const full[] = {"would exceed",
                                       "maximum number of jobs",
                                       "limit on",
                                       "per-user limit",
                                       "queue is full",
                                       "too many jobs",
                                       "max queued",
                                       "job limit",
                                       "try again",
                                       "temporarily",
                                       NULL};
    if (says(said, away))
        return LF_ECOMM;
    return says(said, full) ? LF_EBUSY : LF_EINVAL;
}

bool lf_pbs_only_gone(const char *said)
{
    static const char *const gone[] = {"unknown job id", "job has finished",
                                       "request invalid for state of job", NULL};
    bool any = false;
    for (const char *p = said; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)(n < 500 ? n : 500), p);
        if (n > 0 && !says(line, gone))
            return false;
        any |= n > 0;
        p += n + (p[n] == '\n');
    }
    return any;
}

long lf_pbs_seconds(const char *text)
{
    long total = 0;
    for (int part = 0; part < 3; part++) {
        char *end = NULL;
        long v = strtol(text, &end, 10);
        if (!isdigit((unsigned char)text[0]) || end - text > 9)
            return -1;
        total = total * 60 + v;
        if (*end == '\0')
            return total;
        if (*end != ':')
            return -1;
        text = end + 1;
    }
    return -1;
}

const char *lf_pbs_clock(char buf[32], long long s)
{
    snprintf(buf, 32, "%lld:%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    return buf;
}

/* "Fri Nov 11 17:57:05 2016", local time; or seconds. 0: neither. */
static double time_of(const char *v)
{
    struct tm tm;
    memset(&tm, 0, sizeof tm);
    tm.tm_isdst = -1;
    const char *end = strptime(v, "%a %b %d %H:%M:%S %Y", &tm);
    if (end != NULL && *end == '\0')
        return (double)mktime(&tm);
    int64_t s = 0;
    return lf_parse_i64(&s, v, NULL) == 0 && s > 0 ? (double)s : 0;
}

/* ---- attributes of one job ---- */

/* "n0/0*4+n1/0*4" as "n0,n1", each host once. */
static int set_hosts(lf_sched_job *e, const char *exec_host, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (const char *p = exec_host; *p != '\0';) {
        size_t n = strcspn(p, "+"), h = strcspn(p, "/+");
        char name[256];
        snprintf(name, sizeof name, ",%.*s,", (int)(h < 250 ? h : 250), p);
        char have[4096];
        snprintf(have, sizeof have, ",%s,", b.len > 0 ? b.data : "");
        if (strstr(have, name) == NULL)
            lf_buf_addf(&b, "%s%.*s", b.len > 0 ? "," : "", (int)h, p);
        p += n + (p[n] == '+');
    }
    int rc = lf_text_set(&e->nodes, b.len > 0 ? b.data : "", "nodes", err);
    lf_buf_fini(&b);
    return rc;
}

/* What follows NAME= where the variable p begins with it; the name of jobs that a version before
 * 0.1.0 submitted counts too. NULL: another variable. */
static const char *ours(const char *p, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < 2; i++) {
        const char *at = p, *prefix = i == 0 ? "LF_" : "LOONG_";
        at += strncmp(p, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
        if (at != p && strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    }
    return NULL;
}

/* Token and link from "A=b,LF_TOKEN=...,LF_LINK=2"; a comma in a value is escaped. */
static int take_token(lf_sched_job *e, const char *vars, lf_err *err)
{
    int64_t link = 0;
    int rc = 0;
    for (const char *p = vars; p != NULL && *p != '\0' && rc == 0;) {
        size_t n = 0;
        while (p[n] != '\0' && p[n] != ',')
            n += p[n] == '\\' && p[n + 1] != '\0' ? 2 : 1;
        const char *token = ours(p, "TOKEN"), *number = ours(p, "LINK");
        const size_t len = token != NULL    ? (size_t)(p + n - token)
                           : number != NULL ? (size_t)(p + n - number)
                                            : 0;
        char v[64];
        if (token != NULL && len < sizeof v && strspn(token, "0123456789abcdef") == len) {
            snprintf(v, sizeof v, "%.*s", (int)len, token);
            rc = lf_text_set(&e->token, v, "token", err);
        } else if (number != NULL && len < sizeof v) {
            snprintf(v, sizeof v, "%.*s", (int)len, number);
            if (lf_parse_i64(&link, v, NULL) == 0)
                e->link = (int)link;
        }
        p += n + (p[n] == ',');
    }
    return rc;
}

static const char *attr(const lf_pairs *a, const char *name)
{
    return lf_pairs_get(a, name);
}

static bool number(int64_t *out, const lf_pairs *a, const char *name)
{
    const char *v = attr(a, name);
    return v != NULL && lf_parse_i64(out, v, NULL) == 0;
}

/* ---- how a job ended ---- */

struct ending {
    const char *cause;
    int signal;   /* 0: none */
    int64_t exit; /* of the program, -1: none */
};

/* Codes below zero are the server's own. Of 256 and more, the rest is the signal. */
static struct ending ending_of(int64_t code, int64_t substate, bool torque)
{
    struct ending e = {.cause = "failed", .exit = -1};
    if (substate == 91)
        e.cause = "cancelled";
    if (code >= 256) {
        e.signal = (int)(code - 256);
        if (torque && e.signal == 15)
            e.cause = "cancelled"; /* qdel, as far as one can tell */
    } else if (code >= 0) {
        e.exit = code;
        if (code == 0 && substate != 91)
            e.cause = "done";
    } else if (code == (torque ? -11 : -29)) {
        e.cause = "timeout";
    } else if (torque ? code == -10 : code == -27 || code == -26) {
        e.cause = "oom";
    } else if (code == -14 || code == -20 || code == -3 || code == -2 || code == -21) {
        e.cause =
            "node"; /* the node was lost, the job could not be started, or was to be run again */
    }
    return e;
}

static int set_ending(lf_sched_job *e, const lf_pairs *a, bool torque, lf_err *err)
{
    int64_t code = 0, substate = 0, runs = 0;
    number(&substate, a, "substate");
    bool ran = number(&runs, a, "run_count") && runs > 0;
    if (!number(&code, a, torque ? "exit_status" : "Exit_status")) {
        /* Deleted before it ran: by a person, or by the server because what it waited for
         * failed. */
        const char *cause = substate == 91 ? "cancelled" : ran ? "vanished" : "dependency";
        return lf_text_set(&e->cause, cause, "cause", err);
    }
    struct ending end = ending_of(code, substate, torque);
    if (end.exit >= 0)
        e->exit_code = (int)end.exit;
    if (end.signal > 0)
        e->signal = end.signal;
    return lf_text_set(&e->cause, end.cause, "cause", err);
}

/* ---- an entry ---- */

static const char *what_of(char state)
{
    switch (state) {
    case 'Q':
    case 'W':
    case 'T':
    case 'M': /* another server has it */
        return "queued";
    case 'H':
        return "held";
    case 'R':
    case 'E':
    case 'B':
    case 'S':
    case 'U':
        return "running";
    case 'F':
    case 'C':
    case 'X':
        return "ended";
    default:
        return "unknown";
    }
}

static int set_reason(lf_sched_job *e, const lf_pairs *a, char state, lf_err *err)
{
    const char *comment = attr(a, "comment"), *hold = attr(a, "Hold_Types");
    int rc = 0;
    if (state == 'H' && hold != NULL)
        rc = lf_text_set(&e->hold,
                         strchr(hold, 'u') != NULL   ? "user"
                         : strchr(hold, 's') != NULL ? "depend"
                                                     : hold,
                         "hold", err);
    if (state == 'M') {
        comment = "it was moved to another server";
        e->moved = true;
    }
    if (comment == NULL && state == 'H')
        comment = hold != NULL && strchr(hold, 'u') != NULL ? "held until everything is submitted"
                                                            : "waits for other jobs";
    if (rc == 0)
        rc = lf_text_set(&e->reason, comment, "reason", err);
    e->never = comment != NULL && strncasecmp(comment, "can never run", 13) == 0;
    return rc;
}

static void set_times(lf_sched_job *e, const lf_pairs *a, const char *what)
{
    const char *submit = attr(a, "ctime"), *start = attr(a, "stime"),
               *guess = attr(a, "estimated.start_time");
    const char *limit = attr(a, "Resource_List.walltime"), *over = attr(a, "obittime");
    bool waits = strcmp(what, "queued") == 0 || strcmp(what, "held") == 0;
    if (start == NULL)
        start = attr(a, "start_time"); /* Torque */
    if (over == NULL)
        over = attr(a, "comp_time");
    if (waits)
        start = guess;
    e->t_submit = submit != NULL ? time_of(submit) : 0;
    e->t_start = start != NULL ? time_of(start) : 0;
    if (strcmp(what, "ended") == 0)
        e->t_end = over != NULL ? time_of(over) : 0;
    else if (strcmp(what, "running") == 0 && e->t_start > 0 && limit != NULL &&
             lf_pbs_seconds(limit) > 0)
        e->t_end = e->t_start + (double)lf_pbs_seconds(limit);
}

static int add_entry(lf_sched_jobs *jobs, const char *id, const lf_pairs *a, bool torque,
                     lf_err *err)
{
    const char *state = attr(a, "job_state"), *vars = attr(a, "Variable_List"),
               *host = attr(a, "exec_host");
    char word[2] = {state != NULL ? state[0] : '?', '\0'};
    const char *what = what_of(word[0]);
    int64_t runs = 0;
    lf_sched_job *e = lf_sched_jobs_add(jobs, id, err);
    int rc = e == NULL ? LF_ENOMEM : lf_text_set(&e->what, what, "what", err);
    if (rc == 0)
        rc = lf_text_set(&e->word, word, "word", err);
    if (rc == 0 && vars != NULL)
        rc = take_token(e, vars, err);
    if (rc == 0)
        rc = set_reason(e, a, word[0], err);
    if (rc == 0 && strcmp(what, "ended") == 0)
        rc = set_ending(e, a, torque, err);
    if (rc == 0 && host != NULL)
        rc = set_hosts(e, host, err);
    if (rc == 0)
        rc = lf_text_set(&e->partition, attr(a, "queue"), "queue", err);
    if (rc < 0)
        return rc;
    e->foreign = vars != NULL && e->token == NULL;
    set_times(e, a, what);
    if (number(&runs, a, "run_count") && runs > 0)
        e->restarts = (int)runs - 1;
    return 0;
}

/* ---- the text ---- */

/* One logical line: what begins with a tab belongs to the line before it. Returns where the next
 * begins. */
static const char *logical_line(lf_buf *line, const char *p)
{
    lf_buf_clear(line);
    for (bool first = true; *p != '\0'; first = false) {
        if (!first && *p != '\t')
            break;
        size_t n = strcspn(p, "\n");
        lf_buf_addf(line, "%.*s", (int)(n - (first ? 0 : 1)), p + (first ? 0 : 1));
        p += n + (p[n] == '\n');
    }
    return p;
}

static int take_line(lf_pairs *a, char *line, lf_err *err)
{
    char *eq = strstr(line, " = ");
    size_t lead = strspn(line, " ");
    if (lead == 0 || eq == NULL || eq == line + lead)
        return 0;
    *eq = '\0';
    /* What is not UTF-8 is a name somebody chose; nothing that is read here. */
    const char *v = eq + 3;
    if (lf_utf8_check(v, strlen(v)) != strlen(v))
        v = "?";
    return lf_utf8_check(line, strlen(line)) == strlen(line) ? lf_pairs_set(a, line + lead, v, err)
                                                             : 0;
}

static void forget(lf_pairs *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->v[i].name);
        free(a->v[i].value);
    }
    a->n = 0;
}

int lf_pbs_parse_full(lf_sched_jobs *jobs, const char *text, enum lf_pbs_flavour f, lf_err *err)
{
    lf_pairs a = {0};
    lf_buf line;
    lf_buf_init(&line);
    char id[256] = "";
    int rc = 0;
    for (const char *p = text; *p != '\0' && rc == 0;) {
        p = logical_line(&line, p);
        rc = lf_buf_check(&line, err);
        if (rc < 0)
            break;
        char *s = line.data;
        if (s == NULL || strncmp(s, "Job Id: ", 8) != 0) {
            rc = s != NULL ? take_line(&a, s, err) : 0;
            continue;
        }
        if (id[0] != '\0')
            rc = add_entry(jobs, id, &a, f == LF_PBS_TORQUE, err);
        forget(&a);
        snprintf(id, sizeof id, "%.250s", s + 8);
    }
    if (rc == 0 && id[0] != '\0')
        rc = add_entry(jobs, id, &a, f == LF_PBS_TORQUE, err);
    lf_buf_fini(&line);
    forget(&a);
    free(a.v);
    return rc;
}
