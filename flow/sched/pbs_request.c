/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage asks for in the words of PBS and Torque, and the options of a script's #PBS lines.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/record/record.h"
#include "flow/sched/pbs.h"

/* ---- resources ---- */

/* What PBS has no word for is refused rather than left out. */
static int check_request(const lf_resources *res, bool torque, lf_err *err)
{
    const char *type = res->gpus.type;
    if (res->chain != NULL && strcmp(res->chain, "requeue") == 0)
        return lf_fail(err, LF_EINVAL,
                       "chain = requeue: users of PBS may not put a job back into the queue; give "
                       "links or auto");
    if (type != NULL)
        return lf_fail(err, LF_EINVAL,
                       "gpus = %s:...: PBS has no common name for the type of a GPU; give the "
                       "number, and the type as "
                       "constraint = RESOURCE=TYPE as this site calls it",
                       type);
    if (!torque && res->qos != NULL)
        return lf_fail(err, LF_EINVAL, "qos = %s: PBS has no such thing; queues stand for it",
                       res->qos);
    if (res->reservation != NULL && (torque || res->partition != NULL))
        return lf_fail(err, LF_EINVAL,
                       torque
                           ? "reservation: Torque has none; give the scheduler's own flag in extra"
                           : "reservation is a queue on PBS; give it without partition");
    if (lf_texts_has(&res->mail_type, "time_limit"))
        return lf_fail(
            err, LF_EINVAL,
            "mail_type = time_limit: PBS sends none; it has begin, end, fail, all and none");
    return 0;
}

/* A constraint is one or more "resource=value" (Torque: properties), joined with ':' or '&'. */
static void add_constraint(lf_buf *b, const lf_resources *res)
{
    const char *c = res->constraint;
    for (const char *p = c != NULL ? c : ""; *p != '\0'; p++)
        lf_buf_addf(b, "%s%c", p == c ? ":" : "", *p == '&' ? ':' : *p);
}

static int put_chunk(lf_tmpl_values *values, const lf_resources *res, bool torque, lf_err *err)
{
    int64_t nodes = lf_int_or(res->nodes, 1), ranks = lf_int_or(res->ranks, 1),
            cpus = lf_int_or(res->cpus, 1);
    int64_t bytes = res->memory_bytes.v, gpus = res->gpus.n.v;
    lf_buf b;
    lf_buf_init(&b);
    if (torque)
        lf_buf_addf(&b, "%lld:ppn=%lld", (long long)nodes, (long long)(ranks * cpus));
    else
        lf_buf_addf(&b, "%lld:ncpus=%lld:mpiprocs=%lld:ompthreads=%lld", (long long)nodes,
                    (long long)(ranks * cpus), (long long)ranks, (long long)cpus);
    if (!torque && bytes > 0)
        lf_buf_addf(&b, ":mem=%lldmb", (long long)((bytes + (1 << 20) - 1) >> 20));
    if (gpus > 0)
        lf_buf_addf(&b, torque ? ":gpus=%lld" : ":ngpus=%lld", (long long)gpus);
    add_constraint(&b, res);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_tmpl_text(values, torque ? "TORQUE_NODES" : "SELECT", b.data, err);
    const lf_int mib = {.v = ((bytes + (1 << 20) - 1) >> 20) * nodes, .given = bytes > 0};
    if (rc == 0)
        rc = lf_tmpl_int(values, "JOB_MEMORY_MIB", mib, err);
    const char *place = res->exclusive.v ? "scatter:excl" : nodes > 1 ? "scatter" : NULL;
    if (rc == 0)
        rc = lf_tmpl_text(values, "PLACE", place, err);
    lf_buf_fini(&b);
    return rc;
}

/* Letters of -m: b at the begin, e at the end, a when it is aborted. */
static const char *mail_points(char buf[4], const lf_texts *types)
{
    bool b = false, e = false, a = false;
    for (size_t i = 0; i < types->n; i++) {
        const char *t = types->v[i];
        bool all = strcmp(t, "all") == 0;
        b |= all || strcmp(t, "begin") == 0;
        e |= all || strcmp(t, "end") == 0;
        a |= all || strcmp(t, "fail") == 0;
    }
    snprintf(buf, 4, "%s%s%s", a ? "a" : "", b ? "b" : "", e ? "e" : "");
    return buf[0] != '\0' ? buf : "n";
}

int lf_pbs_values(lf_tmpl_values *values, const lf_resources *res, enum lf_pbs_flavour f,
                  lf_err *err)
{
    bool torque = f == LF_PBS_TORQUE;
    const lf_int *limit = &res->time_limit_s;
    const char *queue = torque || res->partition != NULL ? res->partition : res->reservation;
    char clock[32], points[4];
    int rc = check_request(res, torque, err);
    if (rc == 0)
        rc = put_chunk(values, res, torque, err);
    if (rc == 0)
        rc = lf_tmpl_text(values, "WALLTIME", limit->given ? lf_pbs_clock(clock, limit->v) : NULL,
                          err);
    if (rc == 0)
        rc = lf_tmpl_text(values, "QUEUE", queue, err);
    if (rc == 0)
        rc = lf_tmpl_text(values, "MAIL_POINTS",
                          res->mail_type.given ? mail_points(points, &res->mail_type) : NULL, err);
    return rc;
}

/* ---- #PBS lines ---- */

/* One word of a #PBS line: blanks end it, quotes of both kinds are taken off. Returns where it
 * ends, NULL when a quote is open. */
static const char *next_word(lf_buf *word, const char *p)
{
    while (*p != '\0' && *p != '\n' && *p != ' ' && *p != '\t') {
        char quote = *p == '\'' || *p == '"' ? *p++ : '\0';
        if (quote == '\0' && *p == '\\' && p[1] != '\0' && p[1] != '\n')
            p++;
        if (quote == '\0') {
            lf_buf_addc(word, *p++);
            continue;
        }
        while (*p != quote && *p != '\0' && *p != '\n')
            lf_buf_addc(word, *p++);
        if (*p != quote)
            return NULL;
        p++;
    }
    return p;
}

/* What would make another kind of job, or take away what is ours to say. */
static int check_option(const char *word, lf_err *err)
{
    static const char ours[] = "hIJtNvVzCoejWGXf";
    if (word[0] == '-' && word[1] != '\0' && strchr(ours, word[1]) != NULL &&
        strncmp(word, "-Wgroup_list", 12) != 0 && strncmp(word, "-Wumask", 7) != 0 &&
        strncmp(word, "-Wsandbox", 9) != 0)
        return lf_fail(err, LF_EINVAL,
                       "#PBS %s: this option is loong-flow's; resources, -q, -A, -P, -m, -M, -p, "
                       "-r, -k, -R, -u and "
                       "-Wgroup_list=, -Wumask=, -Wsandbox= may be given",
                       word);
    return 0;
}

/* The options of the #PBS lines before the first command. */
int lf_pbs_directives(lf_texts *argv, const char *script, lf_err *err)
{
    int rc = 0;
    for (const char *p = script; *p != '\0' && rc == 0;) {
        const char *end = p + strcspn(p, "\n");
        bool first = true;
        if (*p != '#' && end > p + strspn(p, " \t"))
            break;
        for (const char *q = strncmp(p, "#PBS ", 5) == 0 ? p + 5 : end; q < end && rc == 0;
             first = false) {
            q += strspn(q, " \t");
            if (q >= end)
                break;
            lf_buf word;
            lf_buf_init(&word);
            q = next_word(&word, q);
            rc = q == NULL ? lf_fail(err, LF_EINVAL, "a quote is open in: %.*s", (int)(end - p), p)
                           : lf_buf_check(&word, err);
            if (rc == 0 && first && word.data[0] != '-')
                rc = lf_fail(err, LF_EINVAL, "no option: %.*s", (int)(end - p), p);
            if (rc == 0)
                rc = check_option(word.data, err);
            if (rc == 0)
                rc = lf_texts_add(argv, word.data, err);
            lf_buf_fini(&word);
        }
        p = end + (*end == '\n');
    }
    return rc;
}
