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

int lf_submit_wrapper(json_t *argv, const lf_submit_req *req, lf_err *err)
{
    char exe[PATH_MAX], attempt[32];
    int rc = lf_path_set(exe, err, "%s/rev.%d/bin/loong-flow", req->run->dir, req->run->rev);
    if (rc < 0)
        return rc;
    snprintf(attempt, sizeof attempt, "%d", req->attempt);
    const char *const words[] = {
        exe,           "exec",      "--run-dir",
        req->run->dir, "--stage",   json_string_value(json_object_get(req->stage, "name")),
        "--attempt",   attempt,     "--token",
        req->token,    "--project", req->project};
    for (size_t i = 0; rc == 0 && i < COUNT(words); i++)
        rc = lf_json_push_new(argv, json_string(words[i]), err);
    return rc;
}

/* ---- values for templates ---- */

static int64_t number_or(const json_t *res, const char *key, int64_t def)
{
    const json_t *v = json_object_get(res, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : def;
}

static int put(json_t *o, const char *name, json_t *v, lf_err *err)
{
    return lf_json_set_new(o, name, v, err);
}

static int put_or_null(json_t *o, const char *name, json_t *v, lf_err *err)
{
    return put(o, name, v != NULL ? json_incref(v) : json_null(), err);
}

static int put_raw(json_t *o, const char *name, const json_t *lines, lf_err *err)
{
    return put(o, name, lines != NULL ? json_pack("{s:O}", "raw", lines) : json_null(), err);
}

json_t *lf_submit_values(const lf_submit_req *req, lf_err *err)
{
    static const char *const plain[][2] = {
        {"PARTITION", "partition"},
        {"ACCOUNT", "account"},
        {"QOS", "qos"},
        {"CONSTRAINT", "constraint"},
        {"RESERVATION", "reservation"},
        {"MAIL", "mail"},
        {"CPUS", "cpus"},
        {"TIME_S", "time_limit_s"},
        {"GRACE_S", "grace_s"},
        {"MODULES", "modules"},
        {"EXCLUDE_HOSTS", "exclude"},
        {"MAIL_TYPES", "mail_type"},
    };
    const json_t *res = req->resources, *gpus = json_object_get(res, "gpus");
    const json_t *bytes = json_object_get(res, "memory_bytes");
    int64_t ranks = number_or(res, "ranks", 1),
            mib = (number_or(res, "memory_bytes", 0) + (1 << 20) - 1) >> 20;
    json_t *o = json_object();
    int rc = o == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < COUNT(plain); i++)
        rc = put_or_null(o, plain[i][0], json_object_get(res, plain[i][1]), err);
    if (rc == 0)
        rc = put_or_null(o, "STAGE", json_object_get(req->stage, "name"), err);
    if (rc == 0)
        rc = put_or_null(o, "KIND", json_object_get(req->stage, "kind"), err);
    if (rc == 0)
        rc = put_or_null(o, "PIPELINE", json_object_get(req->run->doc, "name"), err);
    if (rc == 0)
        rc = put(o, "NODES", json_integer(number_or(res, "nodes", 1)), err);
    if (rc == 0)
        rc = put(o, "RANKS", json_integer(ranks), err);
    if (rc == 0)
        rc = put(o, "CPUS_PER_NODE", json_integer(ranks * number_or(res, "cpus", 1)), err);
    if (rc == 0)
        rc = put(o, "MEMORY_MIB", bytes != NULL ? json_integer(mib) : json_null(), err);
    if (rc == 0)
        rc = put_or_null(o, "GPUS_TYPE", json_object_get(gpus, "type"), err);
    if (rc == 0)
        rc = put_or_null(o, "GPUS_N",
                         number_or(gpus, "n", 0) > 0 ? json_object_get(gpus, "n") : NULL, err);
    if (rc == 0)
        rc = put(o, "EXCLUSIVE",
                 json_is_true(json_object_get(res, "exclusive")) ? json_true() : json_null(), err);
    if (rc == 0)
        rc = put(o, "HAVE_MODULES",
                 json_object_get(res, "modules") != NULL ? json_true() : json_null(), err);
    if (rc == 0)
        rc = put_raw(o, "PROLOGUE", json_object_get(res, "prologue"), err);
    if (rc == 0)
        rc = put_raw(o, "EXTRA", json_object_get(res, "extra"), err);
    if (rc == 0)
        return o;
    json_decref(o);
    lf_fail(err, LF_ENOMEM, "out of memory");
    return NULL;
}

/* ---- names ---- */

void lf_submit_job_name(char *buf, size_t cap, const lf_submit_req *req)
{
    int n = snprintf(buf, cap, "%s-%s", json_string_value(json_object_get(req->stage, "name")),
                     req->token);
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
