/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking stages for their plan, and comparing it with the machine.
 */
#include "config.h"

#include "flow/cmd/cost.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmd.h"
#include "flow/cmd/complaint.h"
#include "flow/cmd/doctor.h"
#include "flow/cmd/place.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"
#include "flow/run/freeze.h"

#define GPUS_UNKNOWN   (-2) /* nobody has asked the driver yet */
#define PLAN_TIMEOUT_S 120.0
#define PLAN_MAX_BYTES ((size_t)4 << 20)

/* ---- running `lf-KIND --plan` ---- */

/* What ends a program from outside, if it is not ignored. */
static sigset_t ending(void)
{
    static const int all[] = {SIGHUP, SIGINT, SIGTERM};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct sigaction now;
        if (sigaction(all[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, all[i]);
    }
    return set;
}

/* Is such a signal held back, until a directory is removed? */
static bool told_to_end(void)
{
    sigset_t ends = ending(), pending;
    sigemptyset(&pending);
    sigpending(&pending);
    return sigandset(&ends, &ends, &pending) == 0 && !sigisemptyset(&ends);
}

struct pipes {
    int out[2], err[2];
};

static void plan_child(char *const *argv, const struct pipes *p)
{
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(p->out[1], 1);
    dup2(p->err[1], 2);
    const sigset_t ends = ending();
    sigprocmask(SIG_UNBLOCK, &ends, NULL);
    execv(argv[0], argv);
    _exit(127);
}

/* Everything from both pipes until they close, the time is over or a signal is held back. `signals`
 * tells of one. */
static bool drain(const struct pipes *p, int signals, lf_buf *out, lf_buf *errtext)
{
    double end = lf_now_s() + PLAN_TIMEOUT_S;
    struct pollfd fds[3] = {{p->out[0], POLLIN, 0}, {p->err[0], POLLIN, 0}, {signals, POLLIN, 0}};
    lf_buf *bufs[2] = {out, errtext};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        double left = end - lf_now_s();
        if (left <= 0 || out->len > PLAN_MAX_BYTES || errtext->len > PLAN_MAX_BYTES)
            return false;
        if ((poll(fds, 3, (int)(left * 1000.0) + 1) < 0 && errno != EINTR) || told_to_end())
            return false;
        for (int i = 0; i < 2; i++) {
            char chunk[8192];
            if (fds[i].fd < 0 || (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
                continue;
            ssize_t n = read(fds[i].fd, chunk, sizeof chunk);
            if (n > 0)
                lf_buf_add(bufs[i], chunk, (size_t)n);
            else if (n == 0 || errno != EINTR)
                fds[i].fd = -1;
        }
    }
    return true;
}

/* Ranks that a stage asks for: of all nodes, of one node. */
static void ranks_of(const lf_doc_stage *stage, int64_t *all, int64_t *node)
{
    const lf_resources *r = &stage->resources;
    *node = r->ranks.given ? r->ranks.v : 1;
    *all = *node * (r->nodes.given ? r->nodes.v : 1);
}

/* What is asked: a program, its settings, a directory that it may name, its ranks and device. */
struct question {
    const char *exe, *config, *dir;
    const char *text; /* of config */
    int64_t ranks;
    bool gpu, measure;
};

struct answer {
    lf_buf out, err;
    int status;
};

static int fail_unanswered(const struct question *q, lf_err *err)
{
    return told_to_end() ? lf_fail(err, LF_EIO, "%s --plan is not asked: a signal ends it", q->exe)
                         : lf_fail(err, LF_EIO, "%s --plan gave no answer within %.0f seconds",
                                   q->exe, PLAN_TIMEOUT_S);
}

static int run_plan(struct answer *a, const struct question *q, lf_err *err)
{
    struct pipes p = {{-1, -1}, {-1, -1}};
    if (told_to_end())
        return fail_unanswered(q, err);
    if (pipe2(p.out, O_CLOEXEC) < 0)
        return lf_fail_errno(err, "cannot make a pipe");
    if (pipe2(p.err, O_CLOEXEC) < 0) {
        int rc = lf_fail_errno(err, "cannot make a pipe");
        close(p.out[0]);
        close(p.out[1]);
        return rc;
    }
    char *argv[10], a1[] = "--config", a3[] = "--out", a5[] = "--plan", a6[40],
                    a7[] = "--device=cuda", a8[] = "--measure";
    int n = 7;
    snprintf(a6, sizeof a6, "--ranks=%lld", (long long)q->ranks);
    argv[0] = lf_strdup(q->exe, err);
    argv[1] = a1;
    argv[2] = lf_strdup(q->config, err);
    argv[3] = a3;
    argv[4] = lf_strdup(q->dir, err);
    argv[5] = a5;
    argv[6] = a6;
    if (q->gpu)
        argv[n++] = a7;
    if (q->measure)
        argv[n++] = a8;
    argv[n] = NULL;
    int rc = argv[0] != NULL && argv[2] != NULL && argv[4] != NULL ? 0 : LF_ENOMEM;
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        plan_child(argv, &p);
    close(p.out[1]);
    close(p.err[1]);
    if (rc == 0 && pid < 0)
        rc = lf_fail_errno(err, "cannot fork");
    if (rc == 0) {
        const sigset_t ends = ending();
        const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
        bool whole = drain(&p, signals, &a->out, &a->err);
        if (signals >= 0)
            close(signals);
        if (!whole)
            kill(pid, SIGKILL);
        while (waitpid(pid, &a->status, 0) < 0 && errno == EINTR) {
        }
        if (!whole)
            rc = fail_unanswered(q, err);
    }
    close(p.out[0]);
    close(p.err[0]);
    free(argv[0]);
    free(argv[2]);
    free(argv[4]);
    return rc;
}

/* A stage that says that its settings are wrong (exit 2) must not be started; a complaint about an
 * input that only is not made yet is none. Other failures leave the cost unknown. */
static int parse_answer(lf_cost_row *row, const char *exe, const struct answer *a, lf_err *err)
{
    if (!WIFEXITED(a->status) || WEXITSTATUS(a->status) != 0) {
        row->unmade = strstr(a->err.data, LF_NOT_MADE) != NULL;
        row->refused =
            WIFEXITED(a->status) && WEXITSTATUS(a->status) == LF_FLOW_USAGE && !row->unmade;
        size_t n = a->err.len;
        while (n > 0 && a->err.data[n - 1] == '\n')
            n--;
        size_t from = n;
        while (from > 0 && a->err.data[from - 1] != '\n')
            from--;
        const char *last = a->err.data + from;
        int len = (int)(n - from < 700 ? n - from : 700);
        return lf_fail(err, LF_EINVAL, "%.*s", n > from ? len : 40,
                       n > from ? last : "its executable failed without a word");
    }
    char what[PATH_MAX + 16];
    snprintf(what, sizeof what, "%s --plan", exe);
    return lf_cost_parse(&row->cost, a->out.data, a->out.len, what, err);
}

/* The config of a stage that has not been claimed: inputs that are not made yet get a path below
 * `dir`, where nothing is; the stage plans without them or says that it cannot. */
static int make_config(lf_buf *ini, const lf_prep *p, const lf_doc_stage *stage, const char *dir,
                       lf_err *err)
{
    lf_exec x;
    memset(&x, 0, sizeof x);
    x.args.project = p->has_project ? p->project.root : p->pipeline.project;
    x.args.run_dir = p->view.run.dir;
    x.run = p->view.run; /* borrowed */
    x.view = p->view.n > 0 ? &p->view : NULL;
    x.plan = stage;
    x.dir = lf_strdup(dir, err);
    int rc = x.dir == NULL ? LF_ENOMEM : lf_exec_plan_config(ini, &x, err);
    free(x.dir);
    lf_exec_prepare_fini(&x);
    return rc;
}

/* A stage that asks for GPUs and leaves the device to what it finds will find one, if not here. */
static bool will_use_gpus(const lf_prep *p, const lf_doc_stage *stage)
{
    const lf_opt_table *t = p->tables != NULL ? lf_table_find(p->tables, stage->kind) : NULL;
    return stage->resources.gpus.n.v > 0 && t != NULL && lf_opt_find(t, "device") != NULL &&
           lf_pairs_get(&stage->numeric, "device") == NULL;
}

/* What is asked: the program, its ranks, its device and its settings, without the names of inputs
 * that are not made yet. */
static int key_of(lf_buf *key, const char *name, const struct question *q, lf_err *err)
{
    lf_buf_addf(key, "%s %lld %d %d\n", name, (long long)q->ranks, (int)q->gpu, (int)q->measure);
    const char *p = q->text;
    for (const char *at = strstr(p, LF_NOT_MADE "/"); at != NULL; at = strstr(p, LF_NOT_MADE "/")) {
        at += strlen(LF_NOT_MADE);
        lf_buf_add(key, p, (size_t)(at - p));
        p = at + 1 + strspn(at + 1, LF_NOT_MADE_NAME);
    }
    lf_buf_adds(key, p);
    return lf_buf_check(key, err);
}

int lf_cost_dir_make(lf_cost_dir *dir, lf_err *err)
{
    const char *tmp = getenv("TMPDIR");
    const sigset_t ends = ending();
    char path[PATH_MAX];
    int rc =
        lf_path_set(path, err, "%s/loong-plan-XXXXXX", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    if (rc == 0)
        rc = lf_path_plain(path, "TMPDIR", err);
    if (rc != 0)
        return rc;
    pthread_sigmask(SIG_BLOCK, &ends, &dir->before);
    if (mkdtemp(path) == NULL)
        rc = lf_fail_errno(err, "cannot make the directory %s (see TMPDIR)", path);
    else
        rc = lf_path_set(dir->path, err, "%s", path);
    if (rc != 0)
        pthread_sigmask(SIG_SETMASK, &dir->before, NULL);
    return rc;
}

void lf_cost_dir_remove(lf_cost_dir *dir)
{
    if (dir->path[0] == '\0')
        return;
    lf_io_remove_tree(dir->path, NULL);
    dir->path[0] = '\0';
    pthread_sigmask(SIG_SETMASK, &dir->before, NULL);
}

const char *lf_cost_not_made(void)
{
    return "/" LF_NOT_MADE "/data";
}

int lf_cost_plan(lf_cost *out, const char *exe, const char *config, const char *dir, lf_err *err)
{
    const struct question q = {.exe = exe, .config = config, .dir = dir, .ranks = 1};
    struct answer a = {.status = 0};
    lf_cost_row row = {.stage = NULL};
    lf_buf_init(&a.out);
    lf_buf_init(&a.err);
    int rc = run_plan(&a, &q, err);
    if (rc == 0)
        rc = parse_answer(&row, exe, &a, err);
    lf_buf_fini(&a.out);
    lf_buf_fini(&a.err);
    if (rc == 0)
        *out = row.cost;
    return rc;
}

/* What was answered before, by question. */
struct known {
    LF_ROWS(struct answered {
        char *question;
        size_t row;
    })
    rows;
    lf_names places;
};

static int remember(struct known *k, const char *question, size_t row, lf_err *err)
{
    struct answered *a = lf_rows_add(&k->rows, sizeof *a, err);
    if (a == NULL || (a->question = lf_strdup(question, err)) == NULL)
        return LF_ENOMEM;
    a->row = row;
    return lf_names_put(&k->places, a->question, "", k->rows.n - 1, err);
}

static void forget(struct known *k)
{
    lf_names_fini(&k->places);
    for (size_t i = 0; i < k->rows.n; i++)
        free(k->rows.v[i].question);
    free(k->rows.v);
}

/* The complaint of the stage in the words of the file. */
static int word_complaint(lf_cost_row *row, const lf_prep *p, const struct question *q, char *text,
                          lf_err *err)
{
    const lf_complaint c = {.pipeline = p->has_pipeline ? &p->pipeline : NULL,
                            .stage = row->stage,
                            .config = q->config,
                            .config_text = q->text,
                            .text = lf_text_clean(text)};
    lf_buf b;
    lf_buf_init(&b);
    lf_complaint_word(&b, &c);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_text_set(&row->error, b.data, "error", err);
    lf_buf_fini(&b);
    return rc;
}

static int put_question(lf_cost_row *row, const lf_prep *p, const struct question *q, lf_err *err)
{
    struct answer a = {.status = 0};
    lf_err e = LF_ERR_INIT;
    lf_buf_init(&a.out);
    lf_buf_init(&a.err);
    int rc = lf_io_write_file(q->config, q->text, strlen(q->text), 0640, &e);
    if (rc == 0)
        rc = run_plan(&a, q, &e);
    if (rc == 0)
        rc = parse_answer(row, q->exe, &a, &e);
    lf_buf_fini(&a.out);
    lf_buf_fini(&a.err);
    return rc < 0 ? word_complaint(row, p, q, e.text, err) : 0;
}

static bool wants_measuring(const lf_prep *p, const char *kind)
{
    for (size_t i = 0; i < p->rates.n; i++)
        if (strcmp(p->rates.v[i].kind, kind) == 0)
            return p->rates.v[i].wanted && !p->rates.v[i].measured;
    return false;
}

/* The first answer stands for its kind. */
static void take_measured(lf_prep *p, const lf_cost_row *row)
{
    for (size_t i = 0; row->cost.measured_flops.v > 0 && i < p->rates.n; i++) {
        lf_rate *r = &p->rates.v[i];
        if (r->wanted && !r->measured && strcmp(r->kind, row->stage->kind) == 0) {
            r->flops = row->cost.measured_flops.v;
            r->measured = true;
        }
    }
}

/* dir: for the settings, one for all stages, made when the first needs it. Stages that ask the same
 * get the answer of the first, unless it is a complaint: that names its stage and place. */
static int ask_one(lf_cost_rows *list, lf_prep *p, lf_cost_dir *dir, struct known *known,
                   lf_err *err)
{
    char name[160], config[PATH_MAX];
    lf_cost_row *row = &list->v[list->n - 1];
    char *exe = NULL;
    lf_buf text, key;
    lf_buf_init(&text);
    lf_buf_init(&key);
    int64_t per_node;
    snprintf(name, sizeof name, "lf-%s", row->stage->kind);
    int rc = lf_exe_find(&exe, name, err);
    struct question q = {.exe = exe,
                         .config = config,
                         .dir = dir->path,
                         .gpu = will_use_gpus(p, row->stage),
                         .measure = wants_measuring(p, row->stage->kind)};
    ranks_of(row->stage, &q.ranks, &per_node);
    if (rc == 0 && dir->path[0] == '\0')
        rc = lf_cost_dir_make(dir, err);
    if (rc == 0)
        rc = lf_path_set(config, err, "%s/config.ini", dir->path);
    if (rc == 0)
        rc = make_config(&text, p, row->stage, dir->path, err);
    q.text = text.data;
    if (rc == 0)
        rc = key_of(&key, name, &q, err);
    size_t at = rc == 0 ? lf_names_find(&known->places, key.data, "") : LF_NAMES_NONE;
    if (rc == 0 && at != LF_NAMES_NONE) {
        rc = lf_cost_copy(&row->cost, &list->v[known->rows.v[at].row].cost, err);
    } else if (rc == 0) {
        rc = put_question(row, p, &q, err);
        if (rc == 0 && row->error == NULL)
            rc = remember(known, key.data, list->n - 1, err);
    }
    lf_buf_fini(&text);
    lf_buf_fini(&key);
    free(exe);
    return rc;
}

/* Is there something to ask? A stage with a mistake of its own would only say it again. */
static bool asked(const lf_prep *p, size_t i)
{
    if (p->view.n > 0)
        return p->view.stages[i].state != LF_STATE_DONE &&
               p->view.stages[i].state != LF_STATE_ENDED;
    return lf_names_find(&p->pipeline.doubtful, p->plan->stages.v[i].name, "") == LF_NAMES_NONE;
}

static int ask_all(lf_cost_rows *list, lf_prep *p, lf_cost_dir *dir, struct known *known,
                   lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->plan->stages.n; i++) {
        if (!asked(p, i))
            continue;
        lf_cost_row *row = lf_rows_add(list, sizeof *row, err);
        if (row == NULL)
            return LF_ENOMEM;
        row->stage = p->view.n > 0 ? p->view.stages[i].plan : &p->plan->stages.v[i];
        lf_err e = LF_ERR_INIT;
        if (ask_one(list, p, dir, known, &e) < 0) /* it could not be asked */
            rc = lf_text_set(&row->error, lf_text_clean(e.text), "error", err);
        take_measured(p, row);
    }
    return rc;
}

int lf_cost_refusals(lf_texts *out, const lf_cost_rows *costs, bool unsure, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < costs->n; i++) {
        const lf_cost_row *row = &costs->v[i];
        if (row->error != NULL && (row->refused || (unsure && !row->unmade)))
            rc = lf_texts_add(out, row->error, err);
    }
    return rc;
}

int lf_cost_refuse(const lf_cost_rows *costs, const char *command, lf_err *err)
{
    lf_texts list = {.n = 0};
    int rc = lf_cost_refusals(&list, costs, false, err);
    for (size_t i = 0; rc == 0 && i + 1 < list.n; i++)
        lf_say_err("loong-flow %s: %s\n", command, list.v[i]);
    if (rc == 0 && list.n > 0)
        rc = lf_fail(err, LF_EINVAL, "%s", list.v[list.n - 1]);
    lf_texts_fini(&list);
    return rc;
}

void lf_cost_rows_fini(lf_cost_rows *r)
{
    for (size_t i = 0; i < r->n; i++) {
        lf_cost_fini(&r->v[i].cost);
        free(r->v[i].error);
    }
    free(r->v);
    memset(r, 0, sizeof *r);
}

int lf_cost_ask(lf_cost_rows *out, lf_prep *p, lf_err *err)
{
    lf_cost_dir dir = {.path = ""};
    struct known known = {.places = {NULL, 0, 0}};
    *out = (lf_cost_rows){.given = true};
    int rc = ask_all(out, p, &dir, &known, err);
    lf_cost_dir_remove(&dir);
    forget(&known);
    if (rc < 0)
        lf_cost_rows_fini(out);
    return rc;
}

/* ---- does it fit ---- */

static int64_t meminfo(const char *key)
{
    char line[256];
    int64_t v = -1;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return -1;
    size_t n = strlen(key);
    while (v < 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            v = (int64_t)strtoll(line + n + 1, NULL, 10) * 1024;
    fclose(f);
    return v;
}

/* The nearest directory that exists already carries the filesystem that will be written. */
static int64_t disk_free(const char *path)
{
    char dir[PATH_MAX];
    if (lf_path_set(dir, NULL, "%s", path) < 0)
        return -1;
    struct statvfs v;
    while (statvfs(dir, &v) != 0) {
        char *slash = strrchr(dir, '/');
        if (errno != ENOENT || slash == NULL || slash == dir)
            return -1;
        *slash = '\0';
    }
    return (int64_t)(v.f_bavail * v.f_frsize);
}

static bool is_local(const lf_prep *p)
{
    const char *scheduler = p->plan->scheduler;
    return scheduler == NULL || strcmp(scheduler, "local") == 0;
}

void lf_cost_limits(lf_cost_fit *out, const lf_prep *p, const lf_doc_stage *stage)
{
    const lf_int *limit = &stage->memory_bytes;
    /* This machine is the login node of a batch system, which says nothing about its nodes. */
    out->memory_bytes = is_local(p) ? meminfo("MemTotal") : -1;
    if (limit->given && (out->memory_bytes < 0 || limit->v < out->memory_bytes))
        out->memory_bytes = limit->v;
    char path[PATH_MAX];
    const char *dir = p->plan->data_dir;
    const char *root = p->has_project ? p->project.root : p->pipeline.project;
    int rc = dir[0] == '/' ? lf_path_set(path, NULL, "%s", dir)
                           : lf_path_set(path, NULL, "%s/%s", root, dir);
    out->disk_free = rc == 0 ? disk_free(path) : -1;
}

/* A stage does not fit, why, with the place of the key that says how much there is; without one the
 * stage has it. */
static int misfit(const lf_prep *p, const lf_doc_stage *stage, const char *key, const char *why,
                  lf_err *err)
{
    const lf_conf_item *it =
        p->has_pipeline && key != NULL ? lf_pipeline_option(&p->pipeline, stage, key) : NULL;
    lf_err e = LF_ERR_INIT;
    if (it != NULL)
        lf_conf_fail(it, &e, "%s", why);
    else if (p->has_pipeline && stage->path != NULL)
        lf_fail(&e, LF_ENOMEM, "%s:%d:1: %s", stage->path, (int)stage->line.v, why);
    else
        lf_fail(&e, LF_ENOMEM, "%s", why);
    return lf_fail(err, LF_ENOMEM, "%s", e.text);
}

/* here: this machine is a limit too. */
static int check_memory(const lf_prep *p, const lf_cost_row *row, bool here, lf_err *err)
{
    const lf_int *limit = &row->stage->memory_bytes;
    lf_cost_fit fit = {limit->given ? limit->v : -1, -1};
    int64_t ranks, per_node;
    char a[32], b[32], why[400];
    ranks_of(row->stage, &ranks, &per_node);
    if (here)
        lf_cost_limits(&fit, p, row->stage);
    const double total = row->cost.bytes.total.v * (double)per_node;
    if (fit.memory_bytes < 0 || total <= (double)fit.memory_bytes)
        return 0;
    const bool said = limit->given && limit->v == fit.memory_bytes;
    snprintf(why, sizeof why, "stage %s does not fit in memory: it needs %s%s, and %s %s",
             row->stage->name, lf_fmt_bytes(a, sizeof a, total),
             per_node > 1 ? " for the ranks of a node" : "",
             said ? "its `memory` is" : "this machine has",
             lf_fmt_bytes(b, sizeof b, (double)fit.memory_bytes));
    return misfit(p, row->stage, said ? "memory" : NULL, why, err);
}

/* Ranks that share a GPU add up. */
static int check_gpu(const lf_prep *p, const lf_cost_row *row, lf_err *err)
{
    const lf_int *has = &row->stage->resources.gpu_memory;
    const int64_t gpus = row->stage->resources.gpus.n.v;
    int64_t ranks, per_node;
    ranks_of(row->stage, &ranks, &per_node);
    const int64_t share = gpus > 0 && per_node > gpus ? (per_node + gpus - 1) / gpus : 1;
    const double need = row->cost.bytes.device.v * (double)share;
    char a[32], b[32], why[400];
    if (!has->given || need <= (double)has->v)
        return 0;
    snprintf(why, sizeof why,
             "stage %s does not fit on a GPU: %s %s, and one has %s (its `gpu_memory`); a smaller "
             "micro_batch, recompute, or more GPUs would help",
             row->stage->name, share > 1 ? "the ranks that share one need" : "a rank needs",
             lf_fmt_bytes(a, sizeof a, need), lf_fmt_bytes(b, sizeof b, (double)has->v));
    return misfit(p, row->stage, "gpu_memory", why, err);
}

int lf_cost_too_small(lf_texts *out, const lf_prep *p, const lf_cost_rows *costs, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < costs->n; i++) {
        lf_err e = LF_ERR_INIT;
        if (check_memory(p, &costs->v[i], false, &e) < 0 || check_gpu(p, &costs->v[i], &e) < 0)
            rc = lf_texts_add(out, e.text, err);
    }
    return rc;
}

/* The option or key by which a stage asks for more GPUs than there are, NULL: none. */
static const char *lacks_gpu(const lf_prep *p, const lf_doc_stage *stage, int *here)
{
    const lf_texts *device = lf_lists_get(&stage->options, "device");
    const lf_opt_table *t = p->tables != NULL ? lf_table_find(p->tables, stage->kind) : NULL;
    const bool cuda = t != NULL && lf_opt_find(t, "device") != NULL && device != NULL &&
                      device->n == 1 && strcmp(device->v[0], "cuda") == 0;
    const int64_t gpus = stage->resources.gpus.n.v;
    if (!cuda && gpus <= 0)
        return NULL;
    if (*here == GPUS_UNKNOWN)
        *here = lf_doctor_gpu_count();
    return cuda && *here < 1 ? "device" : gpus > 0 && *here < gpus ? "gpus" : NULL;
}

static int word_lack(lf_texts *out, const lf_prep *p, const lf_doc_stage *stage, const char *key,
                     int here, lf_err *err)
{
    const lf_conf_item *it = p->has_pipeline ? lf_pipeline_option(&p->pipeline, stage, key) : NULL;
    char has[48] = "no CUDA driver that works";
    if (here >= 0)
        snprintf(has, sizeof has, "%d GPU%s", here, here == 1 ? "" : "s");
    lf_err e = LF_ERR_INIT;
    if (it != NULL)
        lf_conf_fail(it, &e,
                     "stage %s: %s = %s, and this machine has %s (`loong-flow doctor`); leave it "
                     "out to compute on the CPU, or run it where they are",
                     stage->name, key, it->value, has);
    else
        lf_fail(&e, LF_EINVAL, "stage %s asks for GPUs (%s), and this machine has %s", stage->name,
                key, has);
    return lf_texts_add(out, e.text, err);
}

int lf_cost_here(lf_texts *out, const lf_prep *p, lf_err *err)
{
    int here = GPUS_UNKNOWN, rc = 0;
    for (size_t i = 0; rc == 0 && is_local(p) && i < p->plan->stages.n; i++) {
        const lf_doc_stage *stage = &p->plan->stages.v[i];
        const lf_stage_view *s = p->view.n > 0 ? lf_view_stage(&p->view, stage->name) : NULL;
        const char *key =
            s != NULL && s->state == LF_STATE_DONE ? NULL : lacks_gpu(p, stage, &here);
        if (key != NULL)
            rc = word_lack(out, p, stage, key, here, err);
    }
    return rc;
}

static int check_here(const lf_prep *p, lf_err *err)
{
    lf_texts list = {.n = 0};
    int rc = lf_place_check(&list, p, err);
    if (rc == 0)
        rc = lf_cost_here(&list, p, err);
    if (rc == 0 && list.n > 0)
        rc = lf_fail(err, LF_EINVAL, "%s", list.v[0]);
    lf_texts_fini(&list);
    return rc;
}

double lf_cost_copies(const lf_prep *p)
{
    if (p->has_run && !p->changed)
        return 0;
    char *data = p->has_project ? lf_project_data(&p->project, p->plan->data_dir, NULL) : NULL;
    const int64_t n = lf_exe_copy_bytes(data, p->plan);
    free(data);
    return (double)n;
}

/* All outputs together, disk bytes, on the filesystem of data_dir. */
static int check_disk(const lf_prep *p, double disk, int64_t has, lf_err *err)
{
    char a[32], b[32], c[32];
    const double copies = lf_cost_copies(p);
    if (has < 0 || disk + copies <= (double)has)
        return 0;
    lf_fail(err, LF_EIO,
            "the outputs do not fit on the disk of data_dir = %s: they need %s, the copies of "
            "executables %s, and %s is free",
            p->plan->data_dir, lf_fmt_bytes(a, sizeof a, disk), lf_fmt_bytes(b, sizeof b, copies),
            lf_fmt_bytes(c, sizeof c, (double)has));
    return lf_place_of(p, "data_dir", LF_EIO, err);
}

int lf_cost_check(const lf_prep *p, const lf_cost_rows *costs, lf_err *err)
{
    if (check_here(p, err) < 0)
        return err->rc;
    double disk = 0;
    lf_cost_fit fit = {-1, -1};
    for (size_t i = 0; i < costs->n; i++) {
        int rc = check_memory(p, &costs->v[i], true, err);
        if (rc == 0)
            rc = check_gpu(p, &costs->v[i], err);
        if (rc < 0)
            return rc;
        lf_cost_limits(&fit, p, costs->v[i].stage);
        disk += costs->v[i].cost.disk_bytes.v;
    }
    return check_disk(p, disk, fit.disk_free, err);
}

/* ---- rates ---- */

/* Seconds that a stage took, 0: not known. One that was interrupted would look slow. */
static double seconds_of(const lf_stage_view *s)
{
    return s->result != NULL && s->n_incs == 1 ? s->result->done->t_end - s->result->done->t_start
                                               : 0;
}

static double rate_of(const lf_stage_view *s)
{
    const lf_cost *cost = &s->plan->plan;
    double work = cost->flops_per_step.v * cost->steps.v, t = seconds_of(s);
    return work > 0 && t > 0.5 ? work / t : 0;
}

/* What the newest done stage of this kind says, and of this name where one is given. */
static double look_up(const lf_prep *p, const char *kind, const char *name,
                      double (*of)(const lf_stage_view *s))
{
    lf_run_list runs;
    double found = 0;
    if (!p->has_project || lf_run_list_load(&runs, &p->project, NULL) < 0)
        return 0;
    for (size_t r = 0; r < runs.n && r < 20 && found <= 0; r++) {
        if (lf_run_load(&runs.runs[r], NULL) < 0)
            continue;
        const lf_doc *plan = runs.runs[r].plan;
        for (size_t i = 0; i < plan->stages.n && found <= 0; i++) {
            lf_stage_view s;
            const lf_doc_stage *st = &plan->stages.v[i];
            if (strcmp(st->kind, kind) != 0 || (name != NULL && strcmp(st->name, name) != 0) ||
                lf_stage_scan(&s, runs.runs[r].dir, st, NULL) < 0)
                continue;
            if (lf_stage_result(&s, &runs.runs[r], NULL) > 0)
                found = of(&s);
            lf_stage_scan_fini(&s);
        }
    }
    lf_run_list_fini(&runs);
    return found;
}

double lf_cost_stored_seconds(const lf_prep *p, const lf_doc_stage *stage)
{
    return look_up(p, stage->kind, stage->name, seconds_of);
}

/* NULL: there is no memory, and it is looked up again. */
static lf_rate *rate_row(lf_prep *p, const char *kind)
{
    for (size_t i = 0; i < p->rates.n; i++)
        if (strcmp(p->rates.v[i].kind, kind) == 0)
            return &p->rates.v[i];
    lf_rate *r = lf_rows_add(&p->rates, sizeof *r, NULL);
    if (r != NULL && lf_text_set(&r->kind, kind, "kind", NULL) < 0) {
        p->rates.n--;
        r = NULL;
    }
    if (r != NULL)
        r->flops = look_up(p, kind, NULL, rate_of);
    return r;
}

double lf_cost_rate(lf_prep *p, const char *kind, bool *measured)
{
    const lf_rate *r = rate_row(p, kind);
    if (measured != NULL)
        *measured = r != NULL && r->measured;
    return r != NULL ? r->flops : 0;
}

void lf_cost_measure(lf_prep *p)
{
    for (size_t i = 0; is_local(p) && i < p->plan->stages.n; i++) {
        const char *kind = p->plan->stages.v[i].kind;
        const lf_opt_table *t = p->tables != NULL ? lf_table_find(p->tables, kind) : NULL;
        lf_rate *r = t != NULL && lf_opt_find(t, "measure") != NULL ? rate_row(p, kind) : NULL;
        if (r != NULL && r->flops <= 0)
            r->wanted = true;
    }
}
