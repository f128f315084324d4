/* SPDX-License-Identifier: Apache-2.0
 *
 * srun inside a job: one step, its tasks as children on this machine, and sinfo. There is no PMIx
 * here; `--mpi=list` says so.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

extern char **environ;

static const fk_opt table[] = {{"account", 'A', 'r', 1, NULL, NULL, NULL},
                               {"chdir", 'D', 'r', 0, NULL, NULL, NULL},
                               {"comment", 0, 'r', 1, NULL, NULL, NULL},
                               {"constraint", 'C', 'r', 1, NULL, NULL, NULL},
                               {"cpu-bind", 0, 'r', 1, NULL, NULL, NULL},
                               {"cpus-per-task", 'c', 'r', 1, NULL, NULL, NULL},
                               {"distribution", 'm', 'r', 1, NULL, NULL, NULL},
                               {"error", 'e', 'r', 0, NULL, NULL, NULL},
                               {"exact", 0, 'n', 1, NULL, NULL, NULL},
                               {"exclude", 'x', 'r', 0, NULL, NULL, NULL},
                               {"exclusive", 0, 'o', 1, NULL, NULL, NULL},
                               {"export", 0, 'r', 1, NULL, NULL, NULL},
                               {"gpu-bind", 0, 'r', 1, NULL, NULL, NULL},
                               {"gpus-per-node", 0, 'r', 1, NULL, NULL, NULL},
                               {"gpus-per-task", 0, 'r', 1, NULL, NULL, NULL},
                               {"gres", 0, 'r', 1, NULL, NULL, NULL},
                               {"input", 'i', 'r', 1, NULL, NULL, NULL},
                               {"job-name", 'J', 'r', 1, NULL, NULL, NULL},
                               {"jobid", 0, 'r', 1, NULL, NULL, NULL},
                               {"kill-on-bad-exit", 'K', 'o', 1, NULL, NULL, NULL},
                               {"label", 'l', 'n', 0, NULL, NULL, NULL},
                               {"mem", 0, 'r', 1, NULL, NULL, NULL},
                               {"mem-per-cpu", 0, 'r', 1, NULL, NULL, NULL},
                               {"mpi", 0, 'r', 1, NULL, NULL, NULL},
                               {"nodelist", 'w', 'r', 1, NULL, NULL, NULL},
                               {"nodes", 'N', 'r', 1, NULL, NULL, NULL},
                               {"ntasks", 'n', 'r', 1, NULL, NULL, NULL},
                               {"ntasks-per-node", 0, 'r', 1, NULL, NULL, NULL},
                               {"open-mode", 0, 'r', 1, NULL, NULL, NULL},
                               {"output", 'o', 'r', 0, NULL, NULL, NULL},
                               {"overcommit", 'O', 'n', 1, NULL, NULL, NULL},
                               {"overlap", 0, 'n', 1, NULL, NULL, NULL},
                               {"partition", 'p', 'r', 1, NULL, NULL, NULL},
                               {"propagate", 0, 'o', 1, NULL, NULL, NULL},
                               {"qos", 'q', 'r', 1, NULL, NULL, NULL},
                               {"quiet", 'Q', 'n', 1, NULL, NULL, NULL},
                               {"quit-on-interrupt", 0, 'n', 1, NULL, NULL, NULL},
                               {"signal", 0, 'r', 1, NULL, NULL, NULL},
                               {"time", 't', 'r', 1, NULL, NULL, NULL},
                               {"unbuffered", 'u', 'n', 1, NULL, NULL, NULL},
                               {"verbose", 'v', 'n', 1, NULL, NULL, NULL},
                               {"version", 'V', 'n', 1, NULL, NULL, NULL},
                               {"wait", 'W', 'r', 1, NULL, NULL, NULL},
                               {0}};

enum { MAX_TASKS = 256 };
static pid_t tasks[MAX_TASKS];
static long long n_tasks;

static void forward(int sig)
{
    for (long long i = 0; i < n_tasks; i++)
        if (tasks[i] > 0)
            kill(tasks[i], sig);
}

/* TERM and INT to srun itself: its tasks are killed, they get no time. */
static void force(int sig)
{
    (void)sig;
    static const char text[] = "srun: forcing job termination\n";
    (void)!write(2, text, sizeof text - 1);
    forward(SIGKILL);
}

static void step_env(const json_t *o, long long rank, long long per_node)
{
    char text[32];
    const char *export = fk_get(o, "export");
    if (export == NULL)
        export = getenv("SLURM_EXPORT_ENV");
    if (export != NULL &&
        strcmp(export, "NONE") ==
            0) { /* what --export=NONE of sbatch does to every srun that says nothing */
        size_t keep = 0;
        for (char **e = environ; *e != NULL; e++)
            if (strncmp(*e, "SLURM_", 6) == 0 || strncmp(*e, "LF_FAKE_DIR=", 12) == 0)
                environ[keep++] = *e;
        environ[keep] = NULL;
    }
    const struct {
        const char *key;
        long long v;
    } vars[] = {{"SLURM_PROCID", rank},
                {"SLURM_LOCALID", rank % per_node},
                {"SLURM_NODEID", rank / per_node},
                {"SLURM_NTASKS", n_tasks},
                {"SLURM_STEP_ID", 0},
                {"SLURM_STEPID", 0},
                {"SLURM_STEP_NUM_TASKS", n_tasks}};
    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++) {
        snprintf(text, sizeof text, "%lld", vars[i].v);
        setenv(vars[i].key, text, 1);
    }
}

static int wait_all(const json_t *o)
{
    const char *bad_exit = fk_get(o, "kill-on-bad-exit");
    bool kill_rest = bad_exit != NULL && strcmp(bad_exit, "0") != 0;
    int code = 0, st;
    for (long long left = n_tasks; left > 0;) {
        pid_t pid = waitpid(-1, &st, 0);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            break;
        long long rank = 0;
        while (rank < n_tasks && tasks[rank] != pid)
            rank++;
        if (rank == n_tasks)
            continue;
        tasks[rank] = 0;
        left--;
        int c = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
        if (c != 0)
            fprintf(stderr, "srun: error: n0: task %lld: Exited with exit code %d\n", rank, c);
        if (c > code)
            code = c;
        if (c != 0 && kill_rest)
            forward(SIGTERM);
    }
    return kill_rest && code != 0 ? 128 + SIGTERM : code;
}

int fk_srun(int argc, char **argv)
{
    json_t *o = json_object();
    const char *mpi;
    int at = fk_parse(o, table, argc, argv);
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if ((mpi = fk_get(o, "mpi")) != NULL && strcmp(mpi, "list") == 0) {
        fputs("MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n", stderr);
        return 0;
    }
    if (mpi != NULL && strcmp(mpi, "none") != 0 && strcmp(mpi, "pmi2") != 0)
        fk_die(1,
               "error: Couldn't find the specified plugin name for mpi/%s looking at all "
               "files\nsrun: error: cannot find mpi "
               "plugin for mpi/%s\nsrun: error: cannot create mpi context for mpi/%s\nsrun: error: "
               "invalid MPI type '%s', --mpi=list for "
               "acceptable types",
               mpi, mpi, mpi, mpi);
    if (at == argc)
        fk_die(1, "fatal: No command given to execute.");
    if (getenv("SLURM_JOB_ID") == NULL)
        fk_die(99, "an allocation of its own is not imitated");
    if (fk_down())
        fk_die(1, "error: Unable to create step for job %s: " FK_DOWN, getenv("SLURM_JOB_ID"));
    long long nodes = 1, per = 1;
    const char *v;
    n_tasks = getenv("SLURM_NTASKS") != NULL ? strtoll(getenv("SLURM_NTASKS"), NULL, 10) : 1;
    if (((v = fk_get(o, "nodes")) != NULL && !fk_int_in(&nodes, v, 1, 64)) ||
        ((v = fk_get(o, "ntasks")) != NULL && !fk_int_in(&n_tasks, v, 1, MAX_TASKS)) ||
        ((v = fk_get(o, "ntasks-per-node")) != NULL && !fk_int_in(&per, v, 1, MAX_TASKS)))
        fk_die(1, "error: Invalid numeric value");
    per = (n_tasks + nodes - 1) / nodes;
    const int sigs[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGQUIT, SIGCONT};
    for (size_t i = 0; i < sizeof sigs / sizeof sigs[0]; i++)
        signal(sigs[i], sigs[i] == SIGTERM || sigs[i] == SIGINT ? force : forward);
    sigset_t all, before; /* a signal is for tasks that are in the table */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    for (long long i = 0; i < n_tasks; i++) {
        tasks[i] = fork();
        if (tasks[i] == 0) {
            for (size_t k = 0; k < sizeof sigs / sizeof sigs[0]; k++)
                signal(sigs[k], SIG_DFL);
            sigprocmask(SIG_SETMASK, &before, NULL);
            step_env(o, i, per);
            execvp(argv[at], argv + at);
            fprintf(stderr, "slurmstepd: error: execve(): %s: %s\n", argv[at], strerror(errno));
            _exit(2);
        }
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return wait_all(o);
}

/* ---- sinfo: what doctor asks ---- */

static const fk_opt sinfo_table[] = {{"all", 'a', 'n', 1, NULL, NULL, "SINFO_ALL"},
                                     {"exact", 'e', 'n', 1, NULL, NULL, NULL},
                                     {"format", 'o', 'r', 1, NULL, NULL, "SINFO_FORMAT"},
                                     {"noheader", 'h', 'n', 1, NULL, NULL, NULL},
                                     {"Node", 'N', 'n', 1, NULL, NULL, NULL},
                                     {"partition", 'p', 'r', 1, NULL, NULL, "SINFO_PARTITION"},
                                     {"summarize", 's', 'n', 1, NULL, NULL, NULL},
                                     {"version", 'V', 'n', 1, NULL, NULL, NULL},
                                     {0}};

static void sinfo_field(char c, const char *partition, bool first)
{
    switch (c) {
    case 'P':
        printf("%s%s", partition, first ? "*" : "");
        break;
    case 'R':
        printf("%s", partition);
        break;
    case 'a':
        printf("up");
        break;
    case 'l':
        printf("infinite");
        break;
    case 'D':
        printf("%.0f", fk_knob_num("nodes", 8));
        break;
    case 't':
        printf("idle");
        break;
    case 'T':
        printf("idle");
        break;
    case 'c':
        printf("%.0f", fk_knob_num("cpus", 1024));
        break;
    case 'm':
        printf("%.0f", fk_knob_num("node_memory_mb", 1e7));
        break;
    case 'G':
        printf("gpu:%.0f", fk_knob_num("gpus", 8));
        break;
    case 'N':
        printf("n[0-%.0f]", fk_knob_num("nodes", 8) - 1);
        break;
    default:
        fk_die(99, "%%%c is not imitated (or no such field)", c);
    }
}

int fk_sinfo(int argc, char **argv)
{
    json_t *o = json_object();
    fk_parse_env(o, sinfo_table);
    if (fk_parse(o, sinfo_table, argc, argv) != argc)
        fk_die(1, "error: Unrecognized option");
    if (fk_get(o, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    if (fk_down()) {
        fprintf(stderr, "slurm_load_partitions: " FK_DOWN "\n");
        return 1;
    }
    const char *format = fk_get(o, "format") != NULL ? fk_get(o, "format") : "%P %a %l %D %t %N";
    if (fk_get(o, "noheader") == NULL)
        puts("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST");
    char *list = fk_knob("partitions"), *copy = list != NULL ? list : strdup("main,long"),
         *save = NULL;
    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        for (const char *f = format; *f != '\0'; f++) {
            if (*f != '%') {
                putchar(*f);
                continue;
            }
            f += 1 + strspn(f + 1, ".0123456789");
            sinfo_field(*f, p, p == copy);
        }
        putchar('\n');
    }
    free(copy);
    return 0;
}
