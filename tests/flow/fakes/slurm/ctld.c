/* SPDX-License-Identifier: Apache-2.0
 *
 * slurmctld: one round every 20 ms. It ends when no job is left that may still change.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

/* ---- running jobs ---- */

static bool ended(const json_t *j, int *status)
{
    char path[PATH_MAX];
    fk_path(path, sizeof path, "ends/%lld.%lld", fk_i(j, "seq"), fk_i(j, "restarts"));
    char *t = fk_read(path);
    if (t != NULL)
        *status = (int)strtol(t, NULL, 10);
    free(t);
    return t != NULL;
}

static void end_job(json_t *j, int status)
{
    const char *ending = fk_s(j, "ending");
    if (fk_is_put_back(j))
        fk_requeue(j, ending[0] == 'P' ? "PREEMPTED" : "requeue");
    else if (strcmp(ending, "OUT_OF_MEMORY") == 0)
        fk_finish(j, "OUT_OF_MEMORY", "OutOfMemory", 125);
    else if (strcmp(ending, "TIMEOUT") == 0)
        fk_finish(j, "TIMEOUT", "TimeLimit", status);
    else if (ending[0] != '\0')
        fk_finish(j, ending, "None", status);
    else if (WIFSIGNALED(status))
        fk_finish(j, "FAILED", "JobLaunchFailure",
                  status); /* misleading, but that is what it says */
    else if (WEXITSTATUS(status) != 0)
        fk_finish(j, "FAILED", "NonZeroExitCode", status);
    else
        fk_finish(j, "COMPLETED", "None", 0);
}

static void warn(json_t *j, double now)
{
    const json_t *sig = json_object_get(j, "signal");
    double early = fk_knob_num("signal_early", 0), before = fk_f(sig, "before_s");
    if (fk_knob_num("limit", 0) <= 0)
        before *= fk_knob_num("minute", 60) / 60;
    if (sig == NULL || fk_b(j, "warned") || now < fk_end_time(j) - before - early)
        return;
    fk_set_b(j, "warned", true);
    fk_tree_signal((pid_t)fk_i(j, "stepd"), (int)fk_i(sig, "n"), fk_b(sig, "batch") ? 'b' : 's');
}

static void look_after(json_t *j, double now)
{
    int status = 0;
    bool ending = fk_s(j, "ending")[0] != '\0';
    if (ended(j, &status)) {
        end_job(j, status);
        return;
    }
    if (!ending && fk_f(j, "preempt_t") <= 0 && fk_f(j, "limit_s") > 0) {
        warn(j, now);
        if (now >= fk_end_time(j))
            fk_kill_begin(j, "TIMEOUT");
    }
    if (!ending && fk_f(j, "preempt_t") > 0 && now >= fk_f(j, "preempt_t")) {
        json_object_del(j, "preempt_t");
        fk_kill_begin(j, fk_b(j, "requeue") && strcmp(fk_s(j, "preempt_mode"), "CANCEL") != 0
                             ? "PREEMPT_REQUEUE"
                             : "PREEMPTED");
    }
    if (ending && fk_f(j, "term_t") > 0 && now >= fk_f(j, "term_t")) {
        json_object_del(j, "term_t");
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGCONT, 'a');
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGTERM, 'a');
    }
    if (ending && fk_f(j, "kill_t") > 0 && now >= fk_f(j, "kill_t"))
        fk_tree_signal((pid_t)fk_i(j, "stepd"), SIGKILL, 'a');
}

/* ---- pending jobs ---- */

static const char *dependency_state(const json_t *j)
{
    size_t i;
    json_t *d;
    bool any = fk_b(j, "deps_or"), wait = false, ok = false, failed = false;
    json_array_foreach(json_object_get(j, "deps"), i, d)
    {
        const char *s = fk_s(d, "state");
        wait |= strcmp(s, "wait") == 0;
        ok |= strcmp(s, "ok") == 0;
        failed |= strcmp(s, "failed") == 0;
    }
    if (any)
        return ok || (!wait && !failed) ? "ok" : wait ? "wait" : "failed";
    return failed ? "failed" : wait ? "wait" : "ok";
}

/* `after` and singleton look at jobs that have not ended. */
static void refresh_dependencies(json_t *j)
{
    size_t i, k;
    json_t *d, *o;
    json_array_foreach(json_object_get(j, "deps"), i, d)
    {
        if (strcmp(fk_s(d, "state"), "wait") != 0)
            continue;
        bool blocked = strcmp(fk_s(d, "kind"), "singleton") != 0;
        json_array_foreach(fk_jobs(), k, o)
        {
            if (strcmp(fk_s(d, "kind"), "after") == 0 && fk_i(o, "seq") == fk_i(d, "seq") &&
                !fk_is_pending(o))
                blocked = false;
            if (strcmp(fk_s(d, "kind"), "singleton") == 0 && fk_i(o, "seq") < fk_i(j, "seq") &&
                !fk_is_final(o) && strcmp(fk_s(o, "name"), fk_s(j, "name")) == 0)
                blocked = true;
        }
        if (!blocked)
            fk_set_s(d, "state", "ok");
    }
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p != '\0'; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, word, n) == 0)
            return true;
    return false;
}

/* Nodes that are up and not excluded; false when they are too few now. */
static bool allocate(json_t *j)
{
    char name[32], *down = fk_knob("nodes_down");
    json_t *list = json_array();
    long long want = fk_i(j, "nodes"), have = (long long)fk_knob_num("nodes", 8);
    for (long long i = 0; i < have && (long long)json_array_size(list) < want; i++) {
        snprintf(name, sizeof name, "n%lld", i);
        if (!word_in(fk_s(j, "exclude"), name) && (down == NULL || !word_in(down, name)))
            json_array_append_new(list, json_string(name));
    }
    bool ok = (long long)json_array_size(list) == want;
    if (ok)
        json_object_set(j, "node_list", list);
    json_decref(list);
    free(down);
    return ok;
}

static void env_set(json_t *env, const char *key, long long v)
{
    char text[64];
    snprintf(text, sizeof text, "%lld", v);
    json_object_set_new(env, key, json_string(text));
}

static void job_environment(json_t *j)
{
    json_t *env = json_deep_copy(json_object_get(j, "env"));
    long long id = fk_i(j, "id"), nodes = fk_i(j, "nodes");
    char list[1024] = "";
    size_t i, n = 0;
    json_t *v;
    json_array_foreach(json_object_get(j, "node_list"), i, v) n +=
        (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? "," : "", json_string_value(v));
    const char *first = json_string_value(json_array_get(json_object_get(j, "node_list"), 0));
    const char *const text[][2] = {{"SLURM_JOB_NAME", fk_s(j, "name")},
                                   {"SLURM_JOB_NODELIST", list},
                                   {"SLURM_NODELIST", list},
                                   {"SLURM_JOB_PARTITION", fk_s(j, "partition")},
                                   {"SLURM_JOB_USER", fk_s(j, "user")},
                                   {"SLURM_SUBMIT_DIR", fk_s(j, "cwd")},
                                   {"SLURM_CLUSTER_NAME", fk_s(fk_root(), "cluster")[0] != '\0'
                                                              ? fk_s(fk_root(), "cluster")
                                                              : "fake"},
                                   {"SLURMD_NODENAME", first != NULL ? first : "n0"},
                                   {"SLURM_SUBMIT_HOST", "login"},
                                   {"SLURM_GET_USER_ENV", "1"},
                                   {"ENVIRONMENT", "BATCH"},
                                   {"SLURM_EXPORT_ENV", fk_s(j, "export")}};
    for (size_t k = 0; k < sizeof text / sizeof text[0]; k++)
        json_object_set_new(env, text[k][0], json_string(text[k][1]));
    env_set(env, "SLURM_JOB_ID", id);
    env_set(env, "SLURM_JOBID", id);
    env_set(env, "SLURM_NNODES", nodes);
    env_set(env, "SLURM_JOB_NUM_NODES", nodes);
    env_set(env, "SLURM_JOB_CPUS_PER_NODE", fk_i(j, "cpus") / (nodes > 0 ? nodes : 1));
    env_set(env, "SLURM_JOB_UID", (long long)getuid());
    env_set(env, "SLURM_NODEID", 0);
    env_set(env, "SLURM_PROCID", 0);
    env_set(env, "SLURM_LOCALID", 0);
    json_object_del(env, "SLURM_RESTART_COUNT");
    if (fk_i(j, "restarts") > 0)
        env_set(env, "SLURM_RESTART_COUNT", fk_i(j, "restarts"));
    if (fk_i(j, "ntasks") > 0)
        env_set(env, "SLURM_NTASKS", fk_i(j, "ntasks"));
    if (fk_i(j, "tpn") > 0)
        env_set(env, "SLURM_NTASKS_PER_NODE", fk_i(j, "tpn"));
    if (fk_i(j, "cpt") > 0)
        env_set(env, "SLURM_CPUS_PER_TASK", fk_i(j, "cpt"));
    if (fk_i(j, "mem_mb") > 0)
        env_set(env, "SLURM_MEM_PER_NODE", fk_i(j, "mem_mb"));
    json_object_del(env, "SLURM_JOB_END_TIME");
    if (fk_knob_num("end_time", 0) != 0) { /* later versions */
        env_set(env, "SLURM_JOB_START_TIME", (long long)fk_f(j, "start_t"));
        env_set(env, "SLURM_JOB_END_TIME", (long long)fk_end_time(j));
    }
    json_object_set_new(j, "run_env", env);
}

static void start(json_t *j, double now)
{
    fk_set_s(j, "state", "RUNNING");
    fk_set_s(j, "reason", "None");
    fk_set_f(j, "start_t", now);
    double cut = fk_knob_num("limit", 0); /* a limit in seconds, whatever was asked */
    if (cut > 0)
        fk_set_f(j, "limit_s", cut);
    else
        fk_set_f(j, "limit_s",
                 fk_i(j, "limit_min") < 0
                     ? -1
                     : (double)fk_i(j, "limit_min") * fk_knob_num("minute", 60));
    job_environment(j);
    char *out = fk_expand(fk_s(j, "out"), j),
         *err = fk_s(j, "err")[0] != '\0' ? fk_expand(fk_s(j, "err"), j) : NULL;
    fk_set_s(j, "out_path", out);
    fk_set_s(j, "err_path", err != NULL ? err : "");
    free(out);
    free(err);
    fk_append("history", "%.3f start %lld %lld %s %s\n", now, fk_i(j, "id"), fk_i(j, "restarts"),
              fk_s(j, "name"), fk_s(j, "comment"));
    pid_t pid = fk_stepd_start(j);
    json_object_del(j, "run_env");
    if (pid < 0)
        fk_finish(j, "FAILED", "JobLaunchFailure", 1);
    else
        fk_set_i(j, "stepd", pid);
}

static void consider(json_t *j, double now, long long *running)
{
    refresh_dependencies(j);
    const char *dep = dependency_state(j);
    if (strcmp(dep, "failed") == 0) {
        fk_set_s(j, "reason", "DependencyNeverSatisfied");
        if (fk_b(j, "kill_invalid")) {
            fk_finish(j, "CANCELLED", "DependencyNeverSatisfied", 0);
            fk_set_s(j, "reason", "DependencyNeverSatisfied");
        }
    } else if (strcmp(dep, "wait") == 0)
        fk_set_s(j, "reason", "Dependency");
    else if (fk_b(j, "held"))
        fk_set_s(j, "reason", "JobHeldUser");
    else if (now < fk_f(j, "begin_t"))
        fk_set_s(j, "reason", "BeginTime");
    else if (fk_i(j, "nodes") > (long long)fk_knob_num("nodes", 8))
        fk_set_s(j, "reason", "PartitionNodeLimit");
    else if (*running >= (long long)fk_knob_num("max_running", 64))
        fk_set_s(j, "reason", "Resources");
    else if (!allocate(j))
        fk_set_s(j, "reason", "ReqNodeNotAvail");
    else {
        start(j, now);
        ++*running;
    }
}

/* ---- the daemon ---- */

/* True while something may still happen. */
static bool one_round(void)
{
    size_t i;
    json_t *j;
    double now = fk_now();
    bool busy = false;
    long long running = 0;
    json_array_foreach(fk_jobs(), i, j)
    {
        if (strcmp(fk_s(j, "state"), "RUNNING") == 0)
            look_after(j, now);
        running += strcmp(fk_s(j, "state"), "RUNNING") == 0;
    }
    json_array_foreach(fk_jobs(), i, j)
    {
        if (fk_is_pending(j))
            consider(j, now, &running);
        busy = busy || !fk_is_final(j);
    }
    return busy;
}

int fk_slurmctld(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct stat st;
    signal(SIGCHLD, SIG_IGN); /* slurmstepds are reaped by the kernel */
    for (;;) {
        if (stat(fk_dir, &st) < 0)
            return 0; /* the test has cleaned up */
        fk_enter();
        bool busy = one_round();
        if (!busy)
            json_object_del(fk_root(), "ctld");
        fk_leave();
        if (!busy)
            return 0;
        usleep(20000);
    }
}

void fk_ctld_ensure(void)
{
    pid_t pid = (pid_t)fk_i(fk_root(), "ctld");
    char path[PATH_MAX];
    if (pid > 1 && kill(pid, 0) == 0)
        return;
    fk_path(path, sizeof path, "ends");
    mkdir(path, 0755);
    fk_path(path, sizeof path, "slurmctld.log");
    pid = fork();
    if (pid < 0)
        fk_die(98, "fork: %s", strerror(errno));
    if (pid == 0) {
        int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644),
            null = open("/dev/null", O_RDONLY);
        setsid();
        dup2(null, 0);
        dup2(log, 1);
        dup2(log, 2);
        for (int fd = 3; fd < 256; fd++)
            close(fd);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (chdir("/") < 0)
            _exit(98);
        unsetenv("LD_PRELOAD"); /* a test's fault library stays with what is tested */
        execl("/proc/self/exe", "slurmctld", (char *)NULL);
        _exit(98);
    }
    fk_set_i(fk_root(), "ctld", pid);
}
