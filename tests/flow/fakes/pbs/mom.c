/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a job: a process that starts it in a session of its own, watches its time and qdel,
 * and writes its end down.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the processes of a session ---- */

static int session_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    text[n] = '\0';
    const char *p = strrchr(text, ')'); /* ") S ppid pgrp session" */
    int ppid, pgrp, sid;
    char s;
    return p != NULL && sscanf(p + 1, " %c %d %d %d", &s, &ppid, &pgrp, &sid) == 4 && s != 'Z' ? sid
                                                                                               : -1;
}

static int signal_session(pid_t sid, int sig)
{
    DIR *d = opendir("/proc");
    int hit = 0;
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        if (isdigit((unsigned char)e->d_name[0])) {
            pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
            if (session_of(pid) == sid && kill(pid, sig) == 0)
                hit++;
        }
    if (d != NULL)
        closedir(d);
    return hit;
}

void mom_signal(const json_t *job, int sig)
{
    pid_t sid = (pid_t)job_num(job, "session_id", 0);
    if (sid > 1)
        signal_session(sid, sig);
}

/* ---- what a job finds when it starts ---- */

static void env_set(json_t *env, const char *name, const char *value)
{
    json_object_set_new(env, name, json_string(value));
}

static void env_from_list(json_t *env, const char *list)
{
    char item[8192];
    size_t n = 0;
    for (const char *p = list;; p++) {
        if (*p == '\\' && p[1] != '\0') {
            item[n++] = *++p;
            continue;
        }
        if (*p != ',' && *p != '\0') {
            if (n < sizeof item - 1)
                item[n++] = *p;
            continue;
        }
        item[n] = '\0';
        char *eq = strchr(item, '=');
        if (eq != NULL) {
            *eq = '\0';
            env_set(env, item, eq + 1);
        }
        n = 0;
        if (*p == '\0')
            return;
    }
}

static char *node_file(const json_t *job, const char *id)
{
    static char path[BIG_PATH];
    snprintf(path, sizeof path, "%s/aux/%s", fake_dir, id);
    FILE *f = fopen(path, "w");
    json_t *nodes = json_object_get(job, "_nodes");
    for (size_t i = 0; f != NULL && i < json_array_size(nodes); i++)
        for (long k = 0; k < job_num(job, "_mpiprocs", 1); k++)
            fprintf(f, "n%lld\n", (long long)json_integer_value(json_array_get(nodes, i)));
    if (f != NULL)
        fclose(f);
    return path;
}

static json_t *environment(const json_t *job, const char *id)
{
    json_t *e = json_object();
    char num[32], path[BIG_PATH];
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", conf_str("bin", "/opt/pbs/bin"));
    env_set(e, "PATH", path);
    env_set(e, "HOME", conf_str("home", fake_dir));
    env_set(e, "LOGNAME", conf_str("user", "user"));
    env_set(e, "USER", conf_str("user", "user"));
    env_set(e, "SHELL", "/bin/sh");
    env_set(e, "LF_FAKE_DIR", fake_dir);
    static const char *const kept[] = {"ASAN_OPTIONS", "UBSAN_OPTIONS",
                                       "LSAN_OPTIONS"}; /* of builds with sanitizers */
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (getenv(kept[i]) != NULL)
            env_set(e, kept[i], getenv(kept[i]));
    env_from_list(e, job_str(job, "Variable_List"));
    env_set(e, "PBS_ENVIRONMENT", "PBS_BATCH");
    env_set(e, "PBS_JOBID", id);
    env_set(e, "PBS_JOBNAME", job_str(job, "Job_Name"));
    env_set(e, "PBS_QUEUE", job_str(job, "queue"));
    env_set(e, "PBS_NODEFILE", node_file(job, id));
    env_set(e, "PBS_JOBCOOKIE", "0000000000000000");
    env_set(e, "PBS_NODENUM", "0");
    env_set(e, "PBS_TASKNUM", "1");
    env_set(e, "PBS_MOMPORT", "15003");
    if (conf_torque()) {
        snprintf(num, sizeof num, "%ld", walltime_of(job));
        if (walltime_of(job) > 0)
            env_set(e, "PBS_WALLTIME", num);
        snprintf(num, sizeof num, "%zu", json_array_size(json_object_get(job, "_nodes")));
        env_set(e, "PBS_NUM_NODES", num);
        snprintf(num, sizeof num, "%ld", job_num(job, "_per_chunk", 1));
        env_set(e, "PBS_NUM_PPN", num);
        env_set(e, "PBS_VNODENUM", "0");
    } else {
        snprintf(num, sizeof num, "%ld", job_num(job, "_per_chunk", 1));
        env_set(e, "NCPUS", num);
        env_set(e, "OMP_NUM_THREADS", num);
        env_set(e, "PBS_JOBDIR", conf_str("home", fake_dir));
    }
    return e;
}

/* ---- the job's first process ---- */

/* The login shell below which a script job runs: does nothing about signals, so it dies of them,
 * whatever the script does. */
static int login_shell(const json_t *job)
{
    const char *shell = job_str(job, "Shell_Path_List"), *args = job_str(job, "_args");
    char line[16384];
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(line, sizeof line, "exec %s '%s' %s", shell[0] != '\0' ? shell : "/bin/sh",
                 job_str(job, "_script"), args);
        execl("/bin/sh", "-sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    int st = 0;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static void redirect(const json_t *job)
{
    char out[BIG_PATH], id[300];
    snprintf(id, sizeof id, "%s", job_str(job, "_id"));
    snprintf(out, sizeof out, "%s/spool/%s.OU", fake_dir, id);
    int in = open("/dev/null", O_RDONLY), fd = open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(in, 0);
    dup2(fd, 1);
    if (strcmp(job_str(job, "Join_Path"), "oe") != 0) {
        snprintf(out, sizeof out, "%s/spool/%s.ER", fake_dir, id);
        fd = open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    dup2(fd, 2);
}

static void become_job(const json_t *job)
{
    setsid();
    redirect(job);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    json_t *env = environment(job, job_str(job, "_id"));
    const char *key;
    json_t *v;
    clearenv();
    json_object_foreach(env, key, v) setenv(key, json_string_value(v), 1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(conf_str("home", fake_dir)) < 0)
        _exit(1);
    json_t *words = json_object_get(job, "_argv");
    if (words == NULL)
        _exit(login_shell(job));
    char *argv[256];
    size_t n = json_array_size(words);
    for (size_t i = 0; i < n && i < 255; i++)
        argv[i] = strdup(json_string_value(json_array_get(words, i)));
    argv[n < 255 ? n : 255] = NULL;
    execv(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(254);
}

/* ---- the mom ---- */

struct watch {
    int seq;
    pid_t pid;
    double kill_at; /* 0: nothing asked */
    bool over_time;
    long walltime;
};

static json_t *own_job(int seq)
{
    char key[32];
    snprintf(key, sizeof key, "%d", seq);
    return json_object_get(state_jobs(), key);
}

static void look(struct watch *w, double t_start)
{
    state_lock();
    json_t *job = own_job(w->seq);
    bool del = job != NULL && json_is_true(json_object_get(job, "_qdel"));
    w->walltime = job != NULL ? walltime_of(job) : 0;
    state_unlock(false);
    double now = now_s();
    double tick = (double)conf_num("tick", 0), ran = now - t_start;
    if (tick > 0)
        ran = (double)(long)(ran / tick) * tick; /* the node looks now and then */
    if (w->kill_at <= 0 && w->walltime > 0 && ran > (double)w->walltime) {
        char text[200], path[BIG_PATH], id[300];
        job_id_text(id, sizeof id, w->seq);
        snprintf(path, sizeof path, "%s/spool/%s.OU", fake_dir, id);
        FILE *f = fopen(path, "a");
        snprintf(text, sizeof text, "=>> PBS: job killed: walltime %.0f exceeded limit %ld\n", ran,
                 w->walltime);
        if (f != NULL)
            fputs(text, f), fclose(f);
        w->over_time = true;
        signal_session(w->pid, SIGTERM);
        w->kill_at = now + (double)conf_num("kill_delay", 10);
    } else if (w->kill_at <= 0 && del) {
        signal_session(w->pid, SIGTERM);
        w->kill_at = now + (double)conf_num("kill_delay", 10);
    } else if (w->kill_at > 0 && now > w->kill_at) {
        signal_session(w->pid, SIGKILL);
    }
}

static void copy_output(const json_t *job)
{
    char from[BIG_PATH], block[8192];
    const char *to = strchr(job_str(job, "Output_Path"), ':');
    snprintf(from, sizeof from, "%s/spool/%s.OU", fake_dir, job_str(job, "_id"));
    FILE *in = fopen(from, "r"), *out = to != NULL ? fopen(to + 1, "a") : NULL;
    size_t n;
    while (in != NULL && out != NULL && (n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, out);
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
}

static void mom(const json_t *job_then)
{
    const json_t *start = json_deep_copy(job_then); /* the state is loaded again below */
    struct watch w = {.seq = (int)job_num(start, "_seq", 0)};
    double t_start = now_s();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* A server that was killed before it wrote down that this job runs will start it again. */
    state_lock();
    const json_t *known = own_job(w.seq);
    const bool runs = known != NULL && job_state(known) == 'R';
    state_unlock(false);
    if (!runs)
        return;
    w.pid = fork();
    if (w.pid == 0)
        become_job(start);
    state_lock();
    json_t *job = own_job(w.seq);
    if (job != NULL)
        json_object_set_new(job, "session_id", json_integer(w.pid)),
            json_object_set_new(job, "_mom", json_integer(getpid()));
    state_unlock(job != NULL);
    int st = 0;
    while (waitpid(w.pid, &st, WNOHANG) == 0) {
        const struct timespec ts = {0, 200 * 1000 * 1000};
        sigtimedwait(&set, NULL, &ts);
        if (waitpid(w.pid, &st, WNOHANG) != 0)
            break;
        look(&w, t_start);
    }
    signal_session(w.pid, SIGKILL); /* what the first process left behind */
    long status = WIFEXITED(st) ? WEXITSTATUS(st) : 256 + WTERMSIG(st);
    if (w.over_time)
        status = conf_torque() ? -11 : -29;
    state_lock();
    job = own_job(w.seq);
    if (job != NULL) {
        if (!w.over_time && json_is_true(json_object_get(job, "_qdel")) && status != 0 &&
            !WIFEXITED(st))
            status = 256 + WTERMSIG(st);
        copy_output(job);
        job_end(job, status);
        settle();
    }
    state_unlock(true);
}

void mom_start(json_t *job)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        for (int fd = 0; fd < 64; fd++)
            close(fd);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_DFL);
        mom(job);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
