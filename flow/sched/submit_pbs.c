/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenPBS, PBS Pro and Torque: qsub, qrls, qselect, qstat, qdel. What its commands print is taken
 * apart in pbs_parse.c.
 *
 * A PBS user may not put a job back into the queue, so a stage that needs more than one walltime is
 * a chain of links (chain.h). Jobs that could start at once are submitted with a user hold and let
 * go when the whole graph is there: a server that keeps no job history deletes a job whose
 * dependency is over already.
 */
#include "config.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "flow/record/record.h"
#include "flow/sched/pbs.h"
#include "flow/sched/sched.h"
#include "flow/sched/submit.h"
#include "flow/sched/tmpl.h"

#define IDS_AT_ONCE 200 /* of one command */
#define NAME_MOST   15  /* letters of a job's name that every server takes */

struct pbs {
    const lf_site *site;
    enum lf_pbs_flavour flavour; /* LF_PBS_NONE: not asked yet */
    enum lf_pbs_flavour wanted;  /* scheduler = torque; LF_PBS_NONE: whatever is there */
    lf_tmpl script;
};

static int open_as(void **self, const lf_site *site, enum lf_pbs_flavour wanted, lf_err *err)
{
    struct pbs *p = lf_calloc(1, sizeof *p, err);
    if (p == NULL)
        return LF_ENOMEM;
    p->site = site;
    p->wanted = wanted;
    *self = p;
    return 0;
}

static int pbs_open(void **self, const lf_site *site, lf_err *err)
{
    return open_as(self, site, LF_PBS_NONE, err);
}
static int torque_open(void **self, const lf_site *site, lf_err *err)
{
    return open_as(self, site, LF_PBS_TORQUE, err);
}
static void pbs_close(void *self)
{
    struct pbs *p = self;
    lf_tmpl_fini(&p->script);
    free(p);
}

static int flavour(enum lf_pbs_flavour *f, struct pbs *p, lf_err *err)
{
    int rc = p->flavour == LF_PBS_NONE ? lf_pbs_detect(&p->flavour, p->site, err) : 0;
    if (rc == 0 && p->wanted != LF_PBS_NONE && p->wanted != p->flavour)
        return lf_fail(err, LF_EINVAL,
                       "scheduler = torque, but this qstat is of PBS; give scheduler = pbs");
    *f = p->flavour;
    return rc;
}

/* ---- the script ---- */

static int pbs_render(void *self, const lf_submit_req *req, lf_buf *script, lf_err *err)
{
    struct pbs *p = self;
    enum lf_pbs_flavour f = LF_PBS_NONE;
    int rc = flavour(&f, p, err);
    bool torque = f == LF_PBS_TORQUE;
    lf_tmpl_values v = {.n = 0};
    if (rc == 0)
        rc = lf_submit_values(&v, req, err);
    if (rc == 0)
        rc = lf_pbs_values(&v, req->resources, f, err);
    if (rc == 0)
        rc = lf_tmpl_file(script, &p->script, torque ? "pbs/torque.sh.in" : "pbs/job.sh.in",
                          req->project, p->site, &v, err);
    lf_tmpl_values_fini(&v);
    return rc;
}

/* ---- the command ---- */

/* A name for people, that every server takes; the token is found in the job's variables. */
static void job_name(char buf[NAME_MOST + 1], const lf_submit_req *req)
{
    const char *stage = req->stage->name;
    char head[9] = "";
    size_t n = 0;
    if (!isalpha((unsigned char)stage[0]))
        head[n++] = 's';
    for (const char *c = stage; *c != '\0' && n < sizeof head - 1; c++)
        head[n++] = isalnum((unsigned char)*c) || *c == '_' ? *c : '_';
    head[n] = '\0';
    snprintf(buf, NAME_MOST + 1, "%s-%.6s", head, req->token);
}

static int push_text(lf_texts *argv, const char *option, lf_buf *value, lf_err *err)
{
    int rc = lf_buf_check(value, err);
    if (rc == 0)
        rc = lf_texts_add(argv, option, err);
    return rc == 0 ? lf_texts_add(argv, value->data, err) : rc;
}

static int add_dependency(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_submit_dependency(&b, "depend=", req);
    int rc = b.len > 0 ? push_text(argv, "-W", &b, err) : 0;
    lf_buf_fini(&b);
    return rc;
}

/* Name, variables, log, hold: what is ours. */
static int add_ours(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    char name[NAME_MOST + 1];
    lf_buf log, vars;
    job_name(name, req);
    if (strpbrk(req->stage_dir, ":,") != NULL)
        return lf_fail(err, LF_EINVAL,
                       "%s: PBS takes no path with ':' or ',' for a log; give another data_dir",
                       req->stage_dir);
    lf_buf_init(&log);
    lf_buf_init(&vars);
    lf_buf_addf(&log, "%s/boot.%d.log", req->stage_dir, req->attempt);
    lf_buf_addf(&vars, "LF_TOKEN=%s,LF_LINK=%d", req->token, req->link);
    const char *const words[] = {"-N", name, "-j", "oe"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof words / sizeof words[0]; i++)
        rc = lf_texts_add(argv, words[i], err);
    if (rc == 0)
        rc = push_text(argv, "-o", &log, err);
    if (rc == 0)
        rc = push_text(argv, "-v", &vars, err);
    if (rc == 0)
        rc = add_dependency(argv, req, err);
    if (rc == 0 && req->held)
        rc = lf_texts_add(argv, "-h", err);
    lf_buf_fini(&log);
    lf_buf_fini(&vars);
    return rc;
}

/* Torque gives a script its arguments as one text, which a shell splits again. */
static int add_script_torque(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    lf_texts words = {.n = 0};
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_submit_wrapper(&words, req, err);
    for (size_t i = 0; rc == 0 && i < words.n; i++) {
        lf_buf_adds(&b, i > 0 ? " " : "");
        lf_buf_add_shell(&b, words.v[i]);
    }
    if (rc == 0)
        rc = push_text(argv, "-F", &b, err);
    if (rc == 0)
        rc = lf_texts_add(argv, req->script, err);
    lf_buf_fini(&b);
    lf_texts_fini(&words);
    return rc;
}

static int add_script(lf_texts *argv, const lf_submit_req *req, lf_err *err)
{
    const char *const words[] = {"--", "/bin/sh", req->script};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 3; i++)
        rc = lf_texts_add(argv, words[i], err);
    return rc == 0 ? lf_submit_wrapper(argv, req, err) : rc;
}

static int pbs_command(void *self, const lf_submit_req *req, const char *script, lf_texts *argv,
                       lf_err *err)
{
    enum lf_pbs_flavour f = LF_PBS_NONE;
    int rc = flavour(&f, self, err);
    if (rc == 0)
        rc = lf_texts_add(argv, "qsub", err);
    if (rc == 0)
        rc = lf_pbs_directives(argv, script, err);
    if (rc == 0)
        rc = add_ours(argv, req, err);
    if (rc == 0)
        rc = f == LF_PBS_TORQUE ? add_script_torque(argv, req, err) : add_script(argv, req, err);
    return rc;
}

static int pbs_submit(void *self, const lf_submit_req *req, const char *script,
                      struct lf_job_rec *job, lf_err *err)
{
    const struct pbs *p = self;
    char id[256], said[400];
    lf_texts argv = {.n = 0};
    lf_sched_out o;
    int rc = pbs_command(self, req, script, &argv, err);
    if (rc == 0)
        rc = lf_sched_run(&o, &argv, p->site, 0, err);
    lf_texts_fini(&argv);
    if (rc < 0)
        return rc;
    lf_sched_said(said, sizeof said, &o);
    if (o.missing)
        rc = lf_fail(err, LF_ENOENT, "there is no qsub on PATH");
    else if (o.timed_out)
        rc = lf_fail(err, LF_ECOMM, "qsub did not answer in time");
    else if (o.exit == 0 && lf_pbs_parse_id(id, sizeof id, o.out.data))
        rc = (job->id = lf_strdup(id, err)) != NULL ? 0 : LF_ENOMEM;
    else if (o.exit <= 0)
        rc = lf_fail(err, LF_ECOMM, "qsub printed no job id: %s", said);
    else if (lf_pbs_no_cluster(said))
        rc = lf_fail(err, LF_ENOENT, "qsub knows of no server: %s", said);
    else
        rc = lf_fail(err, lf_pbs_refusal(o.err.data), "qsub: %s", said);
    lf_sched_out_fini(&o);
    return rc;
}

/* ---- a command about some jobs ---- */

/* words, then ids[from ...]. Answers about jobs that are gone are no
 * failure; *o is to be released. */
static int about(lf_sched_out *o, const struct pbs *p, const char *const *words,
                 const lf_texts *ids, size_t from, lf_err *err)
{
    lf_texts argv = {.n = 0};
    char said[400];
    int rc = 0;
    for (size_t i = 0; rc == 0 && words[i] != NULL; i++)
        rc = lf_texts_add(&argv, words[i], err);
    for (size_t i = from; rc == 0 && ids != NULL && i < ids->n && i < from + IDS_AT_ONCE; i++)
        rc = lf_texts_add(&argv, ids->v[i], err);
    if (rc == 0)
        rc = lf_sched_run(o, &argv, p->site, 0, err);
    lf_texts_fini(&argv);
    if (rc < 0)
        return rc;
    bool bad =
        o->missing || o->timed_out || o->cut || (o->exit != 0 && !lf_pbs_only_gone(o->err.data));
    if (!bad)
        return 0;
    rc = lf_fail(err, LF_ECOMM, "%s: %s", words[0],
                 o->missing     ? "there is none on PATH"
                 : o->timed_out ? "it did not answer in time"
                 : o->cut       ? "it printed too much"
                                : lf_sched_said(said, sizeof said, o));
    lf_sched_out_fini(o);
    return rc;
}

static int stat_jobs(struct pbs *p, const lf_texts *ids, bool history, lf_sched_jobs *jobs,
                     lf_err *err)
{
    static const char *const now[] = {"qstat", "-f", "-w", NULL},
                             *const old[] = {"qstat", "-x", "-f", "-w", NULL},
                             *const torque[] = {"qstat", "-f", "-1", NULL};
    enum lf_pbs_flavour f = LF_PBS_NONE;
    int rc = flavour(&f, p, err);
    for (size_t i = 0; rc == 0 && i < ids->n; i += IDS_AT_ONCE) {
        lf_sched_out o;
        rc = about(&o, p, f == LF_PBS_TORQUE ? torque : history ? old : now, ids, i, err);
        if (rc < 0)
            break;
        rc = lf_pbs_parse_full(jobs, o.out.data, f, err);
        lf_sched_out_fini(&o);
    }
    return rc;
}

/* Never the whole server, never a queue: jobs that were moved would be missing, and everybody's
 * would be asked for. */
static int pbs_list(void *self, lf_sched_jobs *jobs, lf_err *err)
{
    char user[256], line[256];
    const struct passwd *pw = getpwuid(geteuid());
    if (pw == NULL)
        return lf_fail(err, LF_EINVAL, "this user has no name");
    snprintf(user, sizeof user, "%s", pw->pw_name);
    const char *const words[] = {"qselect", "-u", user, NULL};
    lf_texts ids = {0};
    lf_sched_out o;
    int rc = about(&o, self, words, NULL, 0, err);
    if (rc < 0)
        return rc;
    for (const char *p = o.out.data; *p != '\0' && rc == 0;) {
        size_t n = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(n < 250 ? n : 250), p);
        char id[256];
        if (lf_pbs_parse_id(id, sizeof id, line))
            rc = lf_texts_add(&ids, id, err);
        p += n + (p[n] == '\n');
    }
    lf_sched_out_fini(&o);
    if (rc == 0)
        rc = stat_jobs(self, &ids, false, jobs, err);
    lf_texts_fini(&ids);
    return rc;
}

static int pbs_history(void *self, const lf_wanted_list *ids, lf_sched_jobs *jobs, lf_err *err)
{
    lf_texts only = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i++)
        rc = lf_texts_add(&only, ids->v[i].id, err);
    if (rc == 0)
        rc = stat_jobs(self, &only, true, jobs, err);
    lf_texts_fini(&only);
    return rc;
}

/* ---- ending and letting go ---- */

static int each(struct pbs *p, const char *const *words, const lf_texts *ids, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i += IDS_AT_ONCE) {
        lf_sched_out o;
        rc = about(&o, p, words, ids, i, err);
        if (rc == 0)
            lf_sched_out_fini(&o);
    }
    return rc;
}

/* force: qdel sends TERM and, after the server's kill_delay, KILL. Otherwise USR2, which every
 * process of the job gets: the stage takes it as its wrapper does. On Torque the login shell above
 * the script would die of it and take the job along, so there the stop file alone has to do. */
static int pbs_cancel(void *self, const lf_texts *ids, bool force, lf_err *err)
{
    static const char *const end[] = {"qdel", NULL}, *const stop[] = {"qsig", "-s", "SIGUSR2",
                                                                      NULL};
    enum lf_pbs_flavour f = LF_PBS_NONE;
    int rc = flavour(&f, self, err);
    if (rc < 0 || (!force && f == LF_PBS_TORQUE))
        return rc;
    return each(self, force ? end : stop, ids, err);
}

static int pbs_release(void *self, const lf_texts *ids, lf_err *err)
{
    static const char *const words[] = {"qrls", "-h", "u", NULL};
    return each(self, words, ids, err);
}

#define PBS_FUNCTIONS                                                                              \
    .can = LF_CAN_BATCH | LF_CAN_DEPEND | LF_CAN_HOLD, .close = pbs_close, .render = pbs_render,   \
    .command = pbs_command, .submit = pbs_submit, .list = pbs_list, .history = pbs_history,        \
    .cancel = pbs_cancel, .release = pbs_release

const lf_submitter lf_submitter_pbs = {.name = "pbs", .open = pbs_open, PBS_FUNCTIONS};
const lf_submitter lf_submitter_torque = {.name = "torque", .open = torque_open, PBS_FUNCTIONS};
