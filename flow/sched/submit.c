/* SPDX-License-Identifier: Apache-2.0
 *
 * What submitters share: which there are, the wrapper's command, names of jobs.
 */
#include "config.h"

#include "flow/sched/submit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/record/record.h"

static const lf_submitter *const submitters[] = {&lf_submitter_local, &lf_submitter_slurm,
                                                 &lf_submitter_pbs, &lf_submitter_torque};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int lf_submitter_find(const lf_submitter **out, const char *name, lf_err *err)
{
    const char *names[COUNT(submitters)];
    lf_buf all;
    lf_buf_init(&all);
    for (size_t i = 0; i < COUNT(submitters); i++) {
        if (strcmp(submitters[i]->name, name) == 0) {
            lf_buf_fini(&all);
            *out = submitters[i];
            return 0;
        }
        names[i] = submitters[i]->name;
        lf_buf_addf(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = lf_nearest(name, names, COUNT(names));
    int rc = lf_fail(err, LF_EINVAL, "scheduler = %.80s: there are %s%s%s%s", name, all.data,
                     near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                     near != NULL ? "?" : "");
    lf_buf_fini(&all);
    return rc;
}

int lf_submit_wrapper(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    char exe[PATH_MAX], attempt[32];
    int rc = lf_path_set(exe, err, "%s/rev.%d/bin/loong-flow", req->run->dir, req->run->rev);
    if (rc < 0)
        return rc;
    snprintf(attempt, sizeof attempt, "%d", req->attempt);
    const char *const words[] = {exe,       "exec",           "--run-dir", req->run->dir,
                                 "--stage", req->stage->name, "--attempt", attempt,
                                 "--token", req->token,       "--project", req->project};
    for (size_t i = 0; rc == 0 && i < COUNT(words); i++)
        rc = lf_texts_add(argv, words[i], err);
    return rc;
}

/* ---- values for templates ---- */

static int put_texts(lf_tmpl_values *v, const lf_submit_req *req, lf_err *err)
{
    const lf_resources *r = req->resources;
    const struct {
        const char *name, *value;
    } texts[] = {{"PARTITION", r->partition},
                 {"ACCOUNT", r->account},
                 {"QOS", r->qos},
                 {"CONSTRAINT", r->constraint},
                 {"RESERVATION", r->reservation},
                 {"MAIL", r->mail},
                 {"GPUS_TYPE", r->gpus.type},
                 {"STAGE", req->stage->name},
                 {"KIND", req->stage->kind},
                 {"PIPELINE", req->run->plan->name}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT(texts); i++)
        rc = lf_tmpl_text(v, texts[i].name, texts[i].value, err);
    return rc;
}

static int put_numbers(lf_tmpl_values *v, const lf_resources *r, lf_err *err)
{
    const int64_t ranks = lf_int_or(r->ranks, 1), bytes = r->memory_bytes.v;
    const lf_int mib = {.v = (bytes + (1 << 20) - 1) >> 20, .given = r->memory_bytes.given};
    const lf_int gpus = {.v = r->gpus.n.v, .given = r->gpus.n.v > 0};
    const struct {
        const char *name;
        lf_int value;
    } numbers[] = {
        {"CPUS", r->cpus},           {"TIME_S", r->time_limit_s},
        {"GRACE_S", r->grace_s},     {"NODES", lf_int_of(lf_int_or(r->nodes, 1))},
        {"RANKS", lf_int_of(ranks)}, {"CPUS_PER_NODE", lf_int_of(ranks * lf_int_or(r->cpus, 1))},
        {"MEMORY_MIB", mib},         {"GPUS_N", gpus}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT(numbers); i++)
        rc = lf_tmpl_int(v, numbers[i].name, numbers[i].value, err);
    return rc;
}

int lf_submit_values(lf_tmpl_values *v, const lf_submit_req *req, lf_err *err)
{
    const lf_resources *r = req->resources;
    int rc = put_texts(v, req, err);
    if (rc == 0)
        rc = put_numbers(v, r, err);
    if (rc == 0)
        rc = lf_tmpl_list(v, "MODULES", &r->modules, err);
    if (rc == 0)
        rc = lf_tmpl_list(v, "EXCLUDE_HOSTS", &r->exclude, err);
    if (rc == 0)
        rc = lf_tmpl_list(v, "MAIL_TYPES", &r->mail_type, err);
    if (rc == 0)
        rc = lf_tmpl_flag(v, "EXCLUSIVE", r->exclusive.v, err);
    if (rc == 0)
        rc = lf_tmpl_flag(v, "HAVE_MODULES", r->modules.given, err);
    if (rc == 0)
        rc = lf_tmpl_raw(v, "PROLOGUE", &r->prologue, err);
    return rc == 0 ? lf_tmpl_raw(v, "EXTRA", &r->extra, err) : rc;
}

/* ---- what a job waits for ---- */

static void add_clause(lf_buf *out, const char *word, const lf_texts *ids, const char **before)
{
    for (size_t i = 0; ids != NULL && i < ids->n; i++) {
        if (i == 0)
            lf_buf_addf(out, "%s%s", *before, word);
        lf_buf_addf(out, ":%s", ids->v[i]);
        *before = ",";
    }
}

void lf_submit_dependency(lf_buf *out, const char *prefix, const lf_submit_req *req)
{
    if (req->prev != NULL) {
        lf_buf_addf(out, "%safterany:%s", prefix, req->prev);
        return;
    }
    add_clause(out, "afterok", req->after, &prefix);
    add_clause(out, "afterany", req->behind, &prefix);
}

/* ---- names ---- */

void lf_submit_job_name(char *buf, size_t cap, const lf_submit_req *req)
{
    int n = snprintf(buf, cap, "%s-%s", req->stage->name, req->token);
    if (req->link > 1 && n > 0 && (size_t)n < cap)
        snprintf(buf + n, cap - (size_t)n, ".%d", req->link);
}

bool lf_submit_parse_name(const char *name, char token[LF_TOKEN_SIZE], int *link)
{
    const size_t n_token = LF_TOKEN_SIZE - 1;
    const char *p = name;
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '-' || *c == ':')
            p = c + 1;
    int64_t k = 1;
    if (p == name || strspn(p, "0123456789abcdef") != n_token ||
        (p[n_token] != '\0' && p[n_token] != '.'))
        return false;
    if (p[n_token] == '.' && (lf_parse_i64(&k, p + n_token + 1, NULL) < 0 || k < 2 || k > 100000))
        return false;
    memcpy(token, p, n_token);
    token[n_token] = '\0';
    *link = (int)k;
    return true;
}
