/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared main of the stages: see stage.h.
 */
#include "config.h"

#include "stages/stage.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/back/back.h"
#include "engine/base/built.h"
#include "engine/base/cause.h"
#include "engine/base/ending.h"
#include "engine/base/env.h"
#include "engine/base/fence.h"
#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/lock.h"
#include "engine/base/machine.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "stages/made_by.h"
#include "stages/opts.h"
#include "stages/stage_profile.h"

int lf_stage_threads(const lf_optset *o)
{
    int64_t n = lf_optset_int(o, "threads"), env = 0;
    const char *text = getenv("OMP_NUM_THREADS");
    if (n > 0)
        return (int)n;
    return text && lf_parse_i64(&env, text, NULL) == 0 && env > 0 && env <= 4096 ? (int)env
                                                                                 : lf_ncpu();
}

enum lf_device lf_stage_device(const lf_optset *o)
{
    return (enum lf_device)lf_optset_choice(o, "device"); /* auto|cpu|cuda */
}

enum lf_dtype lf_stage_dtype(int precision)
{
    static const enum lf_dtype types[] = {LF_F32, LF_BF16, LF_F16, LF_BF16}; /* f32|bf16|fp16|fp8 */
    return types[precision];
}

enum lf_dtype lf_stage_precision(const lf_optset *o)
{
    return lf_stage_dtype(lf_optset_choice(o, "precision"));
}

int lf_stage_agree(lf_comm *comm, int rc, lf_err *err)
{
    return lf_comm_agree_stop(comm, rc, err);
}

static int print_config(const lf_optset *o, lf_err *err)
{
    lf_buf out;
    lf_buf_init(&out);
    int rc = lf_optset_print_ini(o, &out, err);
    if (rc == 0 && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0))
        rc = lf_fail_errno(err, "writing to standard output");
    lf_buf_fini(&out);
    return rc;
}

static int print_plan(const lf_stage *st, void *self, lf_err *err)
{
    json_t *plan = json_object(), *outs = json_array();
    char *text = NULL;
    int rc = 0;
    for (size_t i = 0; st->table->outputs && st->table->outputs[i]; i++)
        if (json_array_append_new(outs, json_string(st->table->outputs[i])) != 0)
            rc = LF_ENOMEM;
    if (!plan || !outs || rc != 0 ||
        json_object_set_new(plan, "stage", json_string(st->table->stage)) != 0 ||
        json_object_set(plan, "outputs", outs) != 0) {
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
        goto out;
    }
    rc = st->plan ? st->plan(self, plan, err) : 0;
    if (rc != 0)
        goto out;
    text = lf_json_dump(plan, err);
    if (!text)
        rc = LF_ENOMEM;
    else if (puts(text) < 0 || fflush(stdout) != 0)
        rc = lf_fail_errno(err, "writing to standard output");
out:
    free(text);
    json_decref(outs);
    json_decref(plan);
    return rc;
}

static void print_help(const lf_stage *st, const char *program)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_opt_help(st->table, program, &b);
    fputs(b.data, stdout);
    lf_buf_fini(&b);
}

/* The last line is for doctor (flow/cmd/doctor_cpu.c), whose program has no kernels. */
static void print_version(const char *program)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s (loong-flow) %s\n", program, PACKAGE_VERSION);
    lf_built_add(&b);
    lf_buf_addf(&b, "runs here: %s\n", lf_cpu_isa_name(lf_cpu_isa_detect()));
    fputs(b.data, stdout);
    lf_buf_fini(&b);
}

/* Command line and INI file into o. 1: the text asked for was printed. */
static int parse(const lf_stage *st, lf_optset *o, const char *program, int argc, char **argv,
                 lf_err *err)
{
    char **words = NULL;
    int n_words = 0;
    int rc = lf_optset_parse_argv(o, argc, argv, st->words ? &words : NULL,
                                  st->words ? &n_words : NULL, err);
    for (int i = 0; rc == 0 && i < n_words; i++)
        rc = lf_optset_set(o, st->words, words[i], "command line", err);
    free(words);
    if (rc != 0)
        return rc;
    if (lf_optset_bool(o, "help")) {
        print_help(st, program);
        return 1;
    }
    if (lf_optset_bool(o, "version")) {
        print_version(program);
        return 1;
    }
    if (st->tell != NULL && (rc = st->tell(o, err)) != 0)
        return rc;
    return lf_optset_check(o, err);
}

/* The rows of LF_COMMON_OPTS may be given to any stage, so count them as read. */
static void read_common(const lf_optset *o)
{
    static const char *const paths[] = {"config", "out", "metrics", "stop_file"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        (void)lf_optset_str(o, paths[i]);
    (void)lf_optset_int(o, "ranks");
    for (size_t i = 0; i < lf_optset_count(o, "resume_from"); i++)
        (void)lf_optset_str_at(o, "resume_from", i);
}

/* ---- who runs ---- */

/* Rank by PMIx, which every launcher of ours sets; a process without one is alone. */
static const char *rank_word(void)
{
    const char *r = getenv("PMIX_RANK");
    return r ? r : "0";
}

/* One process to an --out: two would write into each other's files. Of several ranks the first
 * holds the lock for all. */
static int lock_out(lf_lock **lock, const char *out, const char *program, lf_err *err)
{
    if (!out || strcmp(rank_word(), "0") != 0)
        return 0;
    int rc = lf_io_mkdirs(out, 0750, err);
    char *path = rc == 0 ? lf_path_join(out, ".lock", err) : NULL;
    if (!path)
        return rc < 0 ? rc : LF_ENOMEM;
    lf_lock_opts opts = {.purpose = program};
    *lock = lf_lock_acquire(path, &opts, err);
    free(path);
    return *lock ? 0 : lf_err_prefix(err, "--out %s is in use", out);
}

/* Leave HOST.PID.json where the wrapper keeps the processes of a start, so that a rank can be found
 * on its node and a report knows the machine. cpu_s: what the process took, negative at the
 * beginning. */
static int sign(const char *dir, int threads, double cpu_s, lf_err *err)
{
    struct lf_rank_said me = {.rank = rank_word(),
                              .isa = lf_cpu_isa_name(lf_cpu_isa_detect()),
                              .threads = threads,
                              .cpu_s = cpu_s};
    if (!dir)
        return 0;
    int rc = lf_proc_self(&me.process, err);
    return rc < 0 ? rc : lf_rank_say(dir, &me, err);
}

/* Join the ranks that a launcher started. *comm stays NULL for one. */
static int join(lf_boot **boot, lf_comm **comm, const lf_stage *st, const lf_optset *o, lf_err *err)
{
    *boot = lf_boot_create(err);
    if (!*boot)
        return err->rc;
    const struct lf_boot_info *i = lf_boot_info(*boot);
    if (i->size == 1)
        return 0;
    if (!st->ranks)
        return lf_fail(err, LF_ENOTSUP, "lf-%s runs on one rank, %d were started", st->table->stage,
                       i->size);
    char text[16];
    int share = lf_ncpu() / (i->local_size > 0 ? i->local_size : 1);
    snprintf(text, sizeof text, "%d", share > 0 ? share : 1);
    if (lf_optset_int(o, "threads") == 0 && setenv("OMP_NUM_THREADS", text, 0) != 0)
        return lf_fail_errno(err, "OMP_NUM_THREADS");
    *comm = lf_comm_create(*boot, err);
    return *comm ? 0 : err->rc;
}

/* The results that are there: of these options? Rank 0 asks for all. */
static int check_made(const lf_stage *st, const void *self, const lf_optset *o, lf_err *err)
{
    const char *const *names = st->makes ? st->makes(self) : st->table->outputs;
    const char *out = lf_optset_str(o, "out");
    int rc = 0;
    for (size_t i = 0; rc == 0 && out && names && names[i] && strcmp(rank_word(), "0") == 0; i++)
        rc = lf_made_by(o, st->table, out, names[i],
                        st->continues ? LF_MADE_BY_WHOLE : LF_MADE_BY_BEGUN, err);
    return rc;
}

/* A failure before anything was made leaves no trace of its options. */
static void forget_made(const lf_stage *st, const lf_optset *o)
{
    const char *out = lf_optset_str(o, "out");
    for (size_t i = 0;
         out && st->table->outputs && st->table->outputs[i] && strcmp(rank_word(), "0") == 0; i++)
        lf_made_by_forget(out, st->table->outputs[i]);
}

static int work(const lf_stage *st, lf_optset *o, const char *program, lf_comm *comm, int *usage,
                lf_err *err);

static int run_stage(const lf_stage *st, lf_optset *o, const char *program, int *usage, lf_err *err)
{
    bool alone = lf_optset_bool(o, "plan") || lf_optset_bool(o, "print_config");
    lf_boot *boot = NULL;
    lf_comm *comm = NULL;
    char name[80];
    int level = lf_optset_choice(o, "log_level");
    lf_log_init(program, level);
    int rc = alone ? 0 : join(&boot, &comm, st, o, err);
    if (comm && comm->rank > 0) { /* rank 0 speaks for all, but for warnings */
        snprintf(name, sizeof name, "%s.%d", program, comm->rank);
        lf_log_init(name, level < 1 ? level : 1);
    }
    if (rc == 0)
        rc = work(st, o, program, comm, usage, err);
    if (comm && rc ==
                    /* launchers end all ranks after the first: let the one that knows why say it */
                    LF_ECOMM)
        sleep(1);
    lf_comm_destroy(comm);
    lf_boot_destroy(boot);
    return rc;
}

static int work(const lf_stage *st, lf_optset *o, const char *program, lf_comm *comm, int *usage,
                lf_err *err)
{
    void *self = NULL;
    lf_lock *lock = NULL;
    lf_profile *profile = NULL;
    const bool profiled = st->profile && lf_optset_bool(o, "profile");
    bool plan = lf_optset_bool(o, "plan"), show = lf_optset_bool(o, "print_config");
    int threads = lf_stage_threads(o);
    omp_set_num_threads(threads);
    read_common(o);
    if (!plan && !show && threads > 2 * lf_ncpu())
        lf_log(1, "%d threads (threads, cpus) on %d processor%s wait for each other: give as many",
               threads, lf_ncpu(), lf_ncpu() == 1 ? "" : "s");
    int rc = 0;
    if (show)
        return print_config(o, err);
    if (!plan)
        rc = lf_stop_install(lf_optset_str(o, "stop_file"), err);
    if (rc == 0 && !plan)
        rc = lf_fence_install(getenv(LF_FENCE_ENV), err);
    if (rc == 0 && !plan)
        rc = lf_ending_install(getenv(LF_ENDING_ENV), err);
    if (rc == 0 && !plan)
        rc = lf_stop_step_install(getenv(LF_STOP_STEP_ENV), err);
    if (rc == 0) {
        rc = st->setup(&self, o, err);
        *usage = rc == LF_EINVAL;
    }
    const char *unread = rc == 0 ? lf_optset_unread(o) : NULL;
    if (unread) {
        *usage = 1;
        rc =
            lf_fail(err, LF_EINVAL,
                    "option %s has no effect together with the others given; leave it out", unread);
    }
    if (rc == 0 && !plan)
        rc = lock_out(&lock, lf_optset_str(o, "out"), program, err);
    if (rc == 0 && !plan)
        rc = sign(getenv(LF_CAUSE_DIR_ENV), threads, -1, err);
    if (rc == 0 && !plan)
        rc = check_made(st, self, o, err);
    if (rc == 0 && !plan && profiled) {
        rc = lf_stage_profile_begin(&profile, o, err);
        *usage = rc == LF_EINVAL;
        st->profile(self, profile);
    }
    rc = lf_stage_agree(comm, rc, err);
    const int begun = rc;
    if (rc == 0)
        rc = plan ? print_plan(st, self, err) : st->run(self, comm, err);
    /* Who asks for the plan learns whether the stage refuses its settings or cannot tell. */
    if (plan && (rc == LF_EINVAL || rc == LF_ENOTSUP))
        *usage = 1;
    if (rc != 0 && begun == 0 && !plan)
        forget_made(st, o);
    if (st->destroy)
        st->destroy(self);
    if (begun == 0)
        rc = lf_stage_profile_end(profile, o, comm ? comm->rank : 0, rc, err);
    /* Who cannot write it has other troubles, and a report can do without. */
    if (begun == 0 && !plan)
        (void)sign(getenv(LF_CAUSE_DIR_ENV), threads, lf_cpu_time_s(), NULL);
    lf_lock_release(lock);
    return rc;
}

int lf_stage_main(const lf_stage *st, int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    char program[64];
    snprintf(program, sizeof(program), "lf-%s", st->table->stage);
    lf_log_init(program, 2);
    int usage = 1;
    lf_optset *o = lf_optset_create(st->table, &err);
    int rc = o ? parse(st, o, program, argc, argv, &err) : LF_ENOMEM;
    rc = rc == 0 ? lf_env_check(&err) : rc;
    rc = rc == 0 ? lf_back_cpu_check(&err) : rc;
    if (rc == 0) {
        usage = 0;
        rc = run_stage(st, o, program, &usage, &err);
    } else if (rc != LF_EINVAL && rc != 1) {
        /* A config file that cannot be read or parsed is a usage error too; memory is not. */
        usage = rc != LF_ENOMEM;
    }
    lf_optset_destroy(o);
    if (rc >= 0)
        return 0;
    if (rc == LF_EINTR) {
        lf_log(2, "stopped at a good checkpoint (%s)",
               lf_stop_reason() ? lf_stop_reason() : "on request");
        return LF_EXIT_STOPPED;
    }
    lf_log(0, "%s", err.text);
    lf_cause_say(program, usage ? "usage" : lf_cause_class(&err), err.text);
    return usage ? LF_EXIT_USAGE : LF_EXIT_FAILED;
}
