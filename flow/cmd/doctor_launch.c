/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor --launch: a real job of one task. It carries a copy of this executable in the data
 * directory, as runs do, and writes what it saw there: its host, clock and limits, and whether
 * ranks that it starts find each other. So one answer covers the queue, the filesystem, the
 * libraries of the compute nodes and the launchers.
 *
 * Files in DIR, removed at the end: .doctor-ID.{exe,sh,log,reply}.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/doctor.h"
#include "flow/launch/launch.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

#define MAX_EXE (512u << 20)
#define MAX_LOG (1u << 20)

/* ---- inside the job ---- */

/* A launcher that was tried. */
struct tried {
    const char *launcher;
    bool ok;
    int ranks;
    double seconds;
    char *text; /* why it does not work */
};
static const struct lf_fields tried_fields =
    LF_FIELDS_SHOWN(struct tried, LF_MEMBERS(struct tried, launcher, ok, ranks, seconds, text));

/* DIR/.doctor-ID.reply */
struct reply {
    const char *host;
    double t;
    lf_rlimits limits;
    LF_ROWS(struct tried) probes;
};
static const struct lf_fields reply_fields =
    LF_FIELDS_SHOWN(struct reply, LF_MEMBERS(struct reply, host, t),
                    LF_RECORD(struct reply, limits, lf_rlimits_fields),
                    LF_LIST(struct reply, probes, tried_fields));

static void probe(struct reply *r, enum lf_launcher l, const char *self, int ranks)
{
    lf_err e = LF_ERR_INIT;
    double t0 = lf_now_s();
    int rc = lf_launch_probe(l, self, 1, ranks, 60, &e);
    struct tried *p = lf_rows_add(&r->probes, sizeof *p, NULL);
    if (p != NULL)
        *p = (struct tried){.launcher = lf_launcher_name(l),
                            .ok = rc == 0,
                            .ranks = ranks,
                            .seconds = lf_now_s() - t0,
                            .text = rc == 0 ? NULL : lf_strdup(e.text, NULL)};
}

/* Of one that was not read: its texts of launchers are constant. */
static void tried_fini(struct reply *r)
{
    for (size_t i = 0; i < r->probes.n; i++)
        free(r->probes.v[i].text);
    free(r->probes.v);
}

static char *self_path(lf_err *err)
{
    char buf[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", buf, sizeof buf - 1);
    if (n <= 0) {
        lf_fail_errno(err, "/proc/self/exe");
        return NULL;
    }
    return lf_strndup(buf, (size_t)n, err);
}

int lf_doctor_inside(const char *dir, const char *id, lf_err *err)
{
    char name[64], host[256] = "";
    char *self = self_path(err);
    if (self == NULL)
        return 1;
    gethostname(host, sizeof host - 1);
    struct reply r = {.host = host, .t = lf_wall_s(), .probes = {.given = true}};
    if (getenv("SLURM_JOB_ID") != NULL)
        probe(&r, LF_LAUNCH_SRUN, self, 1);
    probe(&r, LF_LAUNCH_LOONG, self, 2);
    free(self);
    lf_doctor_rlimits(&r.limits);
    snprintf(name, sizeof name, ".doctor-%s.reply", id);
    int rc = lf_fields_publish(dir, name, &reply_fields, &r, err);
    tried_fini(&r);
    return rc < 0 ? 1 : 0;
}

/* ---- outside ---- */

struct launch {
    lf_doctor *d;
    const char *dir;
    char id[LF_TOKEN_SIZE];
    char exe[PATH_MAX], script[PATH_MAX], log[PATH_MAX], reply[PATH_MAX];
    char job[128];
    double t0;
};

static int set_paths(struct launch *x, lf_err *err)
{
    int rc = lf_token(x->id, err);
    x->id[12] = '\0';
    if (rc == 0)
        rc = lf_path_set(x->exe, err, "%s/.doctor-%s.exe", x->dir, x->id);
    if (rc == 0)
        rc = lf_path_set(x->script, err, "%s/.doctor-%s.sh", x->dir, x->id);
    if (rc == 0)
        rc = lf_path_set(x->log, err, "%s/.doctor-%s.log", x->dir, x->id);
    if (rc == 0)
        rc = lf_path_set(x->reply, err, "%s/.doctor-%s.reply", x->dir, x->id);
    return rc;
}

static int write_files(struct launch *x, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_io_read_file("/proc/self/exe", MAX_EXE, &b, err);
    if (rc == 0)
        rc = lf_io_publish(x->exe, b.data, b.len, 0750, err);
    lf_buf_clear(&b);
    lf_buf_adds(&b, "#!/bin/sh\nexec ");
    lf_buf_add_shell(&b, x->exe);
    lf_buf_adds(&b, " doctor_probe ");
    lf_buf_add_shell(&b, x->dir);
    lf_buf_addf(&b, " %s\n", x->id);
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_io_publish(x->script, b.data, b.len, 0750, err);
    lf_buf_fini(&b);
    return rc;
}

/* Without memory a word is missing, and the command says that it does not understand. */
static void add_words(lf_texts *argv, const char *const *words)
{
    for (; *words != NULL; words++)
        (void)lf_texts_add(argv, *words, NULL);
}
static void add_pair(lf_texts *argv, const char *option, const char *value)
{
    if (value != NULL)
        add_words(argv, (const char *[]){option, value, NULL});
}

static void command(lf_texts *argv, const struct launch *x)
{
    const lf_doctor *d = x->d;
    if (strcmp(d->scheduler, "slurm") == 0) {
        add_words(argv, (const char *[]){"sbatch", "--parsable", "--job-name=lf-doctor",
                                         "--ntasks=1", "--time=5", "--export=NONE",
                                         "--propagate=NONE", "--output", x->log, NULL});
        add_pair(argv, "--partition", d->partition);
        add_pair(argv, "--account", d->account);
    } else {
        add_words(argv, (const char *[]){"qsub", "-N", "lf-doctor", "-j", "oe", "-o", x->log, "-l",
                                         NULL});
        if (strcmp(d->scheduler, "torque") == 0)
            add_words(argv, (const char *[]){"nodes=1:ppn=1,walltime=00:05:00", NULL});
        else
            add_words(argv, (const char *[]){"select=1:ncpus=1", "-l", "walltime=00:05:00", NULL});
        add_pair(argv, "-q", d->partition);
        add_pair(argv, "-A", d->account);
    }
    add_words(argv, (const char *[]){x->script, NULL});
}

/* The last line that begins with a digit: sites let sbatch and qsub chatter. */
static bool take_id(char *id, size_t cap, const char *out)
{
    bool found = false;
    for (const char *p = out; *p != '\0'; p += strcspn(p, "\n"), p += *p == '\n')
        if (*p >= '0' && *p <= '9') {
            snprintf(id, cap, "%.*s", (int)strcspn(p, "\n; \r"), p);
            found = true;
        }
    return found;
}

static bool submit(struct launch *x)
{
    lf_sched_out o;
    lf_err e = LF_ERR_INIT;
    char said[300];
    lf_texts argv = {.n = 0};
    command(&argv, x);
    int rc = lf_sched_run(&o, &argv, x->d->site, 0, &e);
    lf_texts_fini(&argv);
    if (rc < 0) {
        lf_doctor_add(x->d, "fail", "launch", NULL, "%s", e.text);
        return false;
    }
    bool good =
        !o.missing && !o.timed_out && o.exit == 0 && take_id(x->job, sizeof x->job, o.out.data);
    if (!good)
        lf_doctor_add(x->d, "fail", "launch",
                      "give what the site asks for (--partition, --account), as in [resources]",
                      "a job of one task is refused: %s",
                      o.missing     ? "no such command"
                      : o.timed_out ? "no answer in time"
                                    : lf_sched_said(said, sizeof said, &o));
    lf_sched_out_fini(&o);
    return good;
}

/* Listing the directory makes an NFS client look again. */
static bool wait_reply(const struct launch *x)
{
    while (lf_now_s() - x->t0 < x->d->wait_s) {
        DIR *l = opendir(x->dir);
        while (l != NULL && readdir(l) != NULL) {
        }
        if (l != NULL)
            closedir(l);
        if (lf_io_exists(x->reply))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
    }
    return false;
}

/* The last lines of what the job printed, as one. */
static void log_tail(char *buf, size_t cap, const char *path)
{
    lf_buf b;
    lf_buf_init(&b);
    buf[0] = '\0';
    if (lf_io_read_file(path, MAX_LOG, &b, NULL) == 0 && b.len > 0) {
        const char *from = b.len > cap - 1 ? b.data + b.len - (cap - 1) : b.data;
        snprintf(buf, cap, "%s", from);
        for (char *p = buf; *p != '\0'; p++)
            if ((unsigned char)*p < 32)
                *p = ' ';
    }
    lf_buf_fini(&b);
}

static void no_reply(struct launch *x)
{
    char said[300] = "", tail[400];
    lf_sched_out o;
    bool slurm = strcmp(x->d->scheduler, "slurm") == 0;
    int rc = slurm ? lf_sched_runv(&o, x->d->site, 10, NULL, "squeue", "-h", "-o", "%T %r", "-j",
                                   x->job, NULL)
                   : lf_sched_runv(&o, x->d->site, 10, NULL, "qstat", x->job, NULL);
    if (rc == 0) {
        lf_sched_said(said, sizeof said, &o);
        lf_sched_out_fini(&o);
    }
    if (lf_sched_runv(&o, x->d->site, 10, NULL, slurm ? "scancel" : "qdel", x->job, NULL) == 0)
        lf_sched_out_fini(&o);
    log_tail(tail, sizeof tail, x->log);
    if (tail[0] != '\0')
        lf_doctor_add(x->d, "fail", "launch",
                      "does loong-flow start on a compute node? a library may be missing there "
                      "(`make bundle`)",
                      "job %s ran and sent no answer: %s", x->job, tail);
    else
        lf_doctor_add(x->d, "warn", "launch",
                      "try again with a longer --wait; if the job did run, its node does not see "
                      "this directory",
                      "no answer of job %s within %.0f s (%s)", x->job, x->d->wait_s,
                      said[0] != '\0' ? said : "its state is unknown");
}

static void judge_probes(lf_doctor *d, const char *where, const struct reply *r)
{
    bool any = false;
    for (size_t i = 0; i < r->probes.n; i++) {
        const struct tried *p = &r->probes.v[i];
        any = any || p->ok;
        if (p->launcher != NULL && p->ok)
            lf_doctor_add(d, "ok", "launch", NULL, "launcher %s works %s: %d rank(s) in %.1f s",
                          p->launcher, where, p->ranks, p->seconds);
        else if (p->launcher != NULL)
            lf_doctor_add(d, "warn", "launch",
                          "another launcher is used (`launcher = auto`), or set one",
                          "launcher %s does not work %s: %s", p->launcher, where,
                          p->text != NULL ? p->text : "");
    }
    if (!any)
        lf_doctor_add(d, "fail", "launch",
                      "stages of one rank run; for more build with PMIx, or load the site's MPI "
                      "and set launcher",
                      "no launcher works %s", where);
}

static void judge_reply(struct launch *x, double t_seen)
{
    lf_err e = LF_ERR_INIT;
    struct reply *r = NULL;
    char where[300], name[64];
    snprintf(name, sizeof name, ".doctor-%s.reply", x->id);
    if (lf_fields_load(&r, &reply_fields, x->dir, name, &e) < 0 || r == NULL)
        return lf_doctor_add(x->d, "fail", "launch", NULL,
                             "the answer of job %s cannot be read: %s", x->job, e.text);
    snprintf(where, sizeof where, "on %s", r->host != NULL ? r->host : "the node");
    lf_doctor_add(x->d, "ok", "launch", NULL, "job %s ran %s and its file came back after %.1f s",
                  x->job, where, lf_now_s() - x->t0);
    double t = r->t, first = t_seen - (lf_now_s() - x->t0);
    double skew = t < first ? t - first : t > t_seen ? t - t_seen : 0;
    if (skew > 5 || skew < -5)
        lf_doctor_add(x->d, "warn", "launch",
                      "set the clocks (chrony, ntp): times in logs will not fit together",
                      "the clock %s is %.0f s off", where, skew);
    lf_doctor_judge_rlimits(x->d, "node limits", where, &r->limits);
    judge_probes(x->d, where, r);
    lf_fields_free(r, &reply_fields);
}

static void launch_job(struct launch *x)
{
    if (!submit(x))
        return;
    if (wait_reply(x))
        judge_reply(x, lf_wall_s());
    else
        no_reply(x);
}

void lf_doctor_launch(lf_doctor *d)
{
    if (!d->batch) {
        lf_err e = LF_ERR_INIT;
        char *self = self_path(&e);
        struct reply r = {.host = NULL};
        if (self != NULL)
            probe(&r, LF_LAUNCH_LOONG, self, 2);
        judge_probes(d, "here", &r);
        tried_fini(&r);
        free(self);
        return;
    }
    struct launch x = {.d = d, .dir = d->data, .t0 = lf_now_s()};
    lf_err e = LF_ERR_INIT;
    if (lf_io_mkdirs(d->data, 0750, &e) < 0 || set_paths(&x, &e) < 0 || write_files(&x, &e) < 0)
        lf_doctor_add(d, "fail", "launch", "doctor's other findings say more", "%s", e.text);
    else
        launch_job(&x);
    unlink(x.exe);
    unlink(x.script);
    unlink(x.log);
    unlink(x.reply);
}
