/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: is this site usable? Each check does the thing itself where the project's files will lie,
 * and says what it saw and what to do (doctor.h). Without a project it looks at the working
 * directory.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/doctor.h"
#include "flow/plan/conf.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"
#include "flow/run/freeze.h"
#include "flow/run/sync.h"
#include "flow/sched/drive.h"
#include "flow/sched/sched.h"

static const lf_opt doctor_rows[] = {
    LF_CMD_COMMON,
    {.name = "data_dir",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .help = "data directory to look at, against the project; default: the configured one"},
    {.name = "scheduler",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "auto",
     .choices = "auto|local|slurm|pbs|torque",
     .help = "scheduler to look at; auto: the configured one, else what is installed"},
    {.name = "partition",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "partition or queue to judge, and for the probe job"},
    {.name = "account", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "account for the probe job"},
    {.name = "launch",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "submit a job of one task, and start ranks in it"},
    {.name = "wait",
     .type = LF_OPT_DURATION,
     LF_OPT_COMMAND,
     .def = "2m",
     .help = "how long to wait for that job"},
    {.name = "data",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "examine this data set instead (files, directories, globs, archives)"},
    {.name = "tokenizer",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .help = "with data: tokenizer to count its tokens with"},
    {.name = "seq_length",
     .type = LF_OPT_COUNT,
     LF_OPT_COMMAND,
     .max = 1e9,
     .help = "with data and tokenizer: which rows are longer, and what share of the tokens is cut"},
};
LF_CMD_TABLE(doctor, "is this machine, this directory and this site usable?", doctor_rows);
static const lf_opt doctor_probe_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(doctor_probe, "what the job of doctor --launch runs: report to a directory",
             doctor_probe_rows);

void lf_doctor_add(lf_doctor *d, const char *verdict, const char *check, const char *advice,
                   const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    lf_text_clean(text);
    lf_finding *f = lf_rows_add(&d->list, sizeof *f, NULL);
    if (f == NULL)
        return;
    *f = (lf_finding){.verdict = verdict,
                      .check = lf_strdup(check, NULL),
                      .text = lf_strdup(text, NULL),
                      .advice = advice != NULL ? lf_strdup(advice, NULL) : NULL};
}

static void check_exe(lf_doctor *d, const char *name)
{
    char *path = NULL;
    lf_err e = LF_ERR_INIT;
    if (lf_exe_find(&path, name, &e) < 0)
        return lf_doctor_add(d, "fail", name, "install loong-flow completely, or set LF_LIBEXEC",
                             "%s", e.text);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execl(path, name, "--version", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        lf_doctor_add(d, "ok", name, NULL, "%s starts", path);
    else
        lf_doctor_add(d, "fail", name, "try it by hand: a library may be missing",
                      "%s does not start", path);
    free(path);
}

/* ---- what is configured ---- */

/* Settings: the pipeline file of the project or of this directory, else site and user file
 * alone. */
static void load_conf(lf_conf *conf, lf_doctor *d, const char *root)
{
    char path[PATH_MAX];
    lf_err e = LF_ERR_INIT;
    bool has = lf_path_set(path, NULL, "%s/pipeline.ini", root) == 0 && lf_io_exists(path);
    lf_conf_args a = {.pipeline_path = has ? path : NULL};
    if (lf_conf_load(conf, &a, &e) == 0 && lf_conf_resolve(conf, &e) == 0)
        return;
    lf_doctor_add(d, "fail", "configuration", "see `loong-flow validate`", "%s", e.text);
    lf_conf_fini(conf);
    memset(conf, 0, sizeof *conf);
}

static bool runs(const lf_doctor *d, const char *w0, const char *w1)
{
    lf_sched_out o;
    if (lf_sched_runv(&o, d->site, 10, NULL, w0, w1, NULL) < 0)
        return false;
    bool good = !o.missing && !o.timed_out && o.exit == 0;
    lf_sched_out_fini(&o);
    return good;
}

static void choose_scheduler(lf_doctor *d, const lf_cmd *c, const lf_conf *conf)
{
    static const char *const names[] = {"auto", "local", "slurm", "pbs", "torque"};
    const char *name = names[lf_optset_choice(c->opts, "scheduler")];
    if (strcmp(name, "auto") == 0)
        name = lf_conf_get(conf, "pipeline", "scheduler",
                           lf_conf_get(conf, "site", "scheduler", NULL));
    if (name == NULL)
        name = runs(d, "sbatch", "--version")  ? "slurm"
               : runs(d, "qstat", "--version") ? "pbs"
                                               : "local";
    snprintf(d->scheduler, sizeof d->scheduler, "%s", name);
    d->batch = strcmp(d->scheduler, "local") != 0;
}

static void set_site(lf_doctor *d, lf_conf *conf)
{
    lf_err e = LF_ERR_INIT;
    if (lf_pipeline_site(&d->own_site, conf, &e) < 0)
        lf_doctor_add(d, "fail", "configuration", "see `loong-flow config --origin`", "%s", e.text);
    d->site = &d->own_site;
}

/* The longest job that any section asks for. */
static double longest_limit(const lf_conf *conf)
{
    int64_t most = 0, v = 0;
    for (size_t i = 0; i < conf->n_items; i++)
        if (strcmp(conf->items[i].key, "time_limit") == 0 &&
            lf_parse_duration(&v, conf->items[i].value, NULL) == 0 && v > most)
            most = v;
    return (double)most;
}

/* ---- all of it ---- */

static void check_scheduler(lf_doctor *d, bool launch)
{
    if (strcmp(d->scheduler, "slurm") == 0)
        lf_doctor_slurm(d);
    else if (d->batch)
        lf_doctor_pbs(d);
    else
        lf_doctor_add(d, "ok", "scheduler", NULL, "none: runs on this machine alone");
    if (launch)
        lf_doctor_launch(d);
    else if (d->batch)
        lf_doctor_add(d, "ok", "launch", NULL, "not tried; --launch submits a job of one task");
}

static void check_all(lf_doctor *d, const lf_cmd *c)
{
    lf_project p;
    lf_err e = LF_ERR_INIT;
    bool have = lf_cmd_project(&p, c, &e) == 0;
    lf_conf conf;
    char data[PATH_MAX], cwd[PATH_MAX];
    const char *root = have ? p.root : getcwd(cwd, sizeof cwd) != NULL ? cwd : ".";
    load_conf(&conf, d, root);
    set_site(d, &conf);
    choose_scheduler(d, c, &conf);
    d->partition = lf_optset_str(c->opts, "partition");
    if (d->partition == NULL)
        d->partition = lf_conf_get(&conf, "resources", "partition",
                                   lf_conf_get(&conf, "resources", "queue", NULL));
    d->account = lf_optset_str(c->opts, "account");
    if (d->account == NULL)
        d->account = lf_conf_get(&conf, "resources", "account", NULL);
    d->time_limit_s = longest_limit(&conf);
    if (have)
        lf_doctor_add(d, "ok", "project", NULL, "%s (%s)", p.root, p.id);
    else
        lf_doctor_add(d, "ok", "project", NULL, "none here yet");
    lf_doctor_dir(d, "project directory", have ? p.dot : root, false, true);
    const char *dir = lf_optset_str(c->opts, "data_dir");
    if (dir == NULL)
        dir = lf_conf_get(&conf, "pipeline", "data_dir",
                          lf_conf_get(&conf, "site", "data_dir", "loong-data"));
    if (lf_path_set(data, NULL, "%s%s%s", dir[0] == '/' ? "" : root, dir[0] == '/' ? "" : "/",
                    dir) == 0) {
        d->data = data;
        lf_doctor_dir(d, "data_dir", data, d->batch, false);
    }
    if (have && lf_sync_probe(&p, &e) < 0)
        lf_doctor_add(d, "fail", "ledger", "`loong-flow ledger check` says more", "%s", e.text);
    else if (have)
        lf_doctor_add(d, "ok", "ledger", NULL, "can be locked and written");
    for (const lf_opt_table *const *t = c->tables; *t != NULL; t++) {
        char name[160];
        snprintf(name, sizeof name, "lf-%s", (*t)->stage);
        check_exe(d, name);
    }
    lf_doctor_limits(d);
    lf_doctor_cpu(d);
    lf_doctor_gpus(d);
    lf_doctor_media(d);
    if (d->data != NULL)
        check_scheduler(d, lf_optset_bool(c->opts, "launch"));
    d->data = NULL;
    lf_conf_fini(&conf);
    if (have)
        lf_project_fini(&p);
}

static const struct lf_fields finding_fields =
    LF_FIELDS_SHOWN(lf_finding, LF_MEMBERS(lf_finding, verdict, check, text, advice));
struct examined {
    bool ok;
    int failures, warnings;
    lf_doctor d; /* of it the scheduler and the findings are shown */
};
static const struct lf_fields examined_fields =
    LF_FIELDS(struct examined, LF_MEMBERS(struct examined, ok, failures, warnings),
              {LF_FIELD_BUF(struct examined, d.scheduler, "scheduler")},
              {.key = "checks",
               .type = LF_FIELD_LIST,
               .at = offsetof(struct examined, d.list),
               .sub = &finding_fields});

static void print_finding(const lf_finding *f)
{
    printf("%-4s  %s: ", f->verdict, f->check);
    lf_print_safe(f->text);
    putchar('\n');
    if (f->advice != NULL)
        printf("      -> %s\n", f->advice);
}

/* The data set's doctor is the tokenizer stage's, which takes this process's place. */
static int examine_data(lf_cmd *c, lf_err *err)
{
    size_t n = lf_optset_count(c->opts, "data"), at = 0;
    const char *tokenizer = lf_optset_str(c->opts, "tokenizer");
    char room[24];
    const char **argv = lf_calloc(n + 7, sizeof *argv, err);
    if (argv == NULL)
        return LF_ENOMEM;
    argv[at++] = "--doctor";
    argv[at++] = c->json ? "--json" : "--no-json";
    if (tokenizer != NULL) {
        argv[at++] = "--tokenizer";
        argv[at++] = tokenizer;
    }
    if (lf_optset_is_set(c->opts, "seq_length")) {
        snprintf(room, sizeof room, "%lld", (long long)lf_optset_int(c->opts, "seq_length"));
        argv[at++] = "--seq-length";
        argv[at++] = room;
    }
    for (size_t i = 0; i < n; i++)
        argv[at++] = lf_optset_str_at(c->opts, "data", i);
    int rc = lf_cmd_become("lf-tokenize", argv, at, err);
    free(argv);
    return rc;
}

static int run_doctor(lf_cmd *c, lf_err *err)
{
    if (lf_optset_count(c->opts, "data") > 0)
        return examine_data(c, err);
    struct examined e = {
        .d = {.list = {.given = true}, .wait_s = (double)lf_optset_int(c->opts, "wait")}};
    check_all(&e.d, c);
    for (size_t i = 0; i < e.d.list.n; i++) {
        const lf_finding *f = &e.d.list.v[i];
        e.failures += strcmp(f->verdict, "fail") == 0;
        e.warnings += strcmp(f->verdict, "warn") == 0;
        if (!c->json)
            print_finding(f);
    }
    e.ok = e.failures == 0;
    if (!c->json)
        printf("%d of %zu findings are failures, %d warnings\n", e.failures, e.d.list.n,
               e.warnings);
    int rc = c->json ? lf_cmd_print(&e, &examined_fields, err) : 0;
    for (size_t i = 0; i < e.d.list.n; i++) {
        free(e.d.list.v[i].check);
        free(e.d.list.v[i].text);
        free(e.d.list.v[i].advice);
    }
    free(e.d.list.v);
    lf_site_fini(&e.d.own_site);
    return rc < 0 ? rc : e.ok ? LF_FLOW_OK : LF_FLOW_FAILED;
}

const lf_cmd_def lf_cmd_doctor = {
    .table = &doctor_table, .words = "", .max_words = 0, .run = run_doctor};

static int run_probe(lf_cmd *c, lf_err *err)
{
    const char *dir = lf_cmd_word(c, 0), *id = lf_cmd_word(c, 1);
    if (dir == NULL || id == NULL || dir[0] != '/' || strspn(id, "0123456789abcdef") != strlen(id))
        return lf_fail(err, LF_EINVAL, "doctor_probe is for the job of doctor --launch");
    return lf_doctor_inside(dir, id, err);
}

const lf_cmd_def lf_cmd_doctor_probe = {.table = &doctor_probe_table,
                                        .words = "DIR ID",
                                        .max_words = 2,
                                        .hidden = true,
                                        .run = run_probe};
