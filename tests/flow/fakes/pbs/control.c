/* SPDX-License-Identifier: Apache-2.0
 *
 * qdel, qalter, qsig, qrls, and the choice between all by name.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void usage(void)
{
    fprintf(stderr, "usage: %s ... job_identifier...\n", fake_me);
    exit(2);
}

/* The job a command is about; NULL after a message, *code then says how the command ends. */
static json_t *find(const char *word, int *code, bool over_is_error)
{
    bool bad;
    json_t *job = job_find(word, &bad);
    if (bad) {
        fprintf(stderr, "%s: illegally formed job identifier: %s\n", fake_me, word);
        *code = 1;
        return NULL;
    }
    if (job == NULL) {
        fprintf(stderr, "%s: Unknown Job Id %s\n", fake_me, word);
        *code = EXIT_UNKNOWN_ID;
        return NULL;
    }
    if (over_is_error && job_over(job)) {
        if (conf_torque())
            fprintf(
                stderr,
                "%s: Request invalid for state of job MSG=invalid state for job - COMPLETE %s\n",
                fake_me, word);
        else
            fprintf(stderr, "%s: Job has finished %s\n", fake_me, word);
        *code = conf_torque() ? EXIT_BAD_STATE + 2 : EXIT_FINISHED;
        return NULL;
    }
    return job;
}

static int qdel_one(const char *word)
{
    int code = 0;
    json_t *job = find(word, &code, true);
    if (job == NULL)
        return code;
    if (strchr("RE", job_state(job)) != NULL)
        json_object_set_new(job, "_qdel", json_true()); /* its mom sees it */
    else
        job_remove(job, true);
    return 0;
}

int qdel_main(int argc, char **argv)
{
    int c, code = 0;
    while ((c = getopt(argc, argv, conf_torque() ? "ab:cm:pW:t:" : "W:x")) != -1) {
        if (c == '?')
            usage();
        if (c == 'W' && !conf_torque() && strcmp(optarg, "force") != 0 &&
            strncmp(optarg, "suppress_email=", 15) != 0)
            usage();
        if (c != 'W')
            die(FAKE_NOT_MODELLED, "-%c is not modelled", c);
    }
    if (optind == argc)
        usage();
    fake_unreachable();
    state_lock();
    for (int i = optind; i < argc; i++) {
        int rc = qdel_one(argv[i]);
        code = rc != 0 ? rc : code;
        /* ids are taken one after the other: a parent takes its children with it before they are
         * asked for */
        settle();
    }
    state_unlock(true);
    return code;
}

int qalter_main(int argc, char **argv)
{
    const char *res[16], *depend = NULL;
    int c, n = 0, code = 0;
    while ((c = getopt(argc, argv,
                       conf_torque() ? "a:A:c:e:h:j:k:l:L:m:M:n:N:o:p:qr:S:t:u:v:W:x:"
                                     : "a:A:c:e:h:j:k:l:m:M:N:o:p:r:R:S:u:W:P:")) != -1)
        switch (c) {
        case 'l':
            if (n < 16)
                res[n++] = optarg;
            break;
        case 'W':
            if (strncmp(optarg, "depend=", 7) != 0 || !depend_valid(optarg + 7))
                die(1, "illegal -W value");
            depend = optarg + 7;
            break;
        case '?':
            usage();
            break;
        default:
            die(FAKE_NOT_MODELLED, "-%c is not modelled", c);
        }
    if (optind == argc)
        usage();
    fake_unreachable();
    state_lock();
    for (int i = optind; i < argc; i++) {
        int rc = 0;
        json_t *job = find(argv[i], &rc, true);
        for (int k = 0; job != NULL && k < n; k++)
            resources_take(json_object_get(job, "Resource_List"), res[k], true, job);
        if (job != NULL && depend != NULL)
            job_remove(
                job,
                /* seen on a real server: the dependency of a job cannot be pointed elsewhere */
                false);
        code = rc != 0 ? rc : code;
    }
    settle();
    state_unlock(true);
    return code;
}

static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int sig;
    } known[] = {{"NULL", 0},       {"HUP", SIGHUP},   {"INT", SIGINT},   {"KILL", SIGKILL},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"CONT", SIGCONT},
                 {"STOP", SIGSTOP}, {"QUIT", SIGQUIT}};
    if (name[strspn(name, "0123456789")] == '\0' && name[0] != '\0')
        return (int)strtol(name, NULL, 10);
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].sig;
    die(149, "unknown signal name %s", name);
}

int qsig_main(int argc, char **argv)
{
    int c, sig = SIGTERM, code = 0;
    while ((c = getopt(argc, argv, conf_torque() ? "as:" : "s:")) != -1) {
        if (c != 's')
            usage();
        sig = signal_of(optarg);
    }
    if (optind == argc)
        usage();
    fake_unreachable();
    state_lock();
    for (int i = optind; i < argc; i++) {
        int rc = 0;
        json_t *job = find(argv[i], &rc, true);
        if (job != NULL && job_state(job) != 'R') {
            fprintf(stderr, "qsig: Request invalid for state of job %s\n", argv[i]);
            rc = EXIT_BAD_STATE;
        } else if (job != NULL) {
            mom_signal(job, sig);
        }
        code = rc != 0 ? rc : code;
    }
    state_unlock(false);
    return code;
}

int qrls_main(int argc, char **argv)
{
    int c, code = 0;
    while ((c = getopt(argc, argv, conf_torque() ? "h:t:" : "h:")) != -1)
        if (c != 'h' || strcmp(optarg, "u") != 0)
            usage();
    if (optind == argc)
        usage();
    fake_unreachable();
    state_lock();
    for (int i = optind; i < argc; i++) {
        int rc = 0;
        json_t *job = find(argv[i], &rc, true);
        if (job != NULL && json_is_true(json_object_get(job, "_user_hold"))) {
            bool waits =
                job_str(job, "depend")[0] != '\0' && !json_is_true(json_object_get(job, "_free"));
            json_object_del(job, "_user_hold");
            json_object_set_new(job, "Hold_Types", json_string(waits ? "s" : "n"));
            job_set_state(job, waits ? 'H' : 'Q', waits ? 22 : 10);
        }
        code = rc != 0 ? rc : code;
    }
    settle();
    state_unlock(true);
    return code;
}

/* To another server: here it is state M from now on, in the history only, and what becomes of it is
 * not known here. */
int qmove_main(int argc, char **argv)
{
    int code = 0;
    if (argc < 3 || argv[1][0] == '-')
        usage();
    if (strchr(argv[1], '@') == NULL || strcmp(strchr(argv[1], '@') + 1, conf_server()) == 0)
        die(FAKE_NOT_MODELLED, "only moves to another server are modelled");
    fake_unreachable();
    state_lock();
    for (int i = 2; i < argc; i++) {
        int rc = 0;
        json_t *job = find(argv[i], &rc, true);
        if (job != NULL && strchr("QH", job_state(job)) == NULL) {
            fprintf(stderr, "qmove: Request invalid for state of job %s\n", argv[i]);
            rc = EXIT_BAD_STATE;
        } else if (job != NULL) {
            job_set_state(job, 'M', 9);
            json_object_set_new(job, "_t_end", json_real(now_s()));
        }
        code = rc != 0 ? rc : code;
    }
    settle();
    state_unlock(true);
    return code;
}

/* A command lives for a moment and its memory ends with it: what is not given back is no leak.
 * Asked by builds with sanitizers. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

/* ---- by name ---- */

static void note_call(int argc, char **argv)
{
    char path[BIG_PATH], line[16384];
    snprintf(path, sizeof path, "%s/calls", fake_dir);
    size_t n = (size_t)snprintf(line, sizeof line, "%s", fake_me);
    for (int i = 1; i < argc && n < sizeof line - 2; i++)
        n += (size_t)snprintf(line + n, sizeof line - n - 1, " %s", argv[i]);
    for (char *p = line; *p != '\0'; p++)
        if (*p == '\n')
            *p = ' ';
    n = strlen(line);
    line[n++] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, n) != (ssize_t)n)
        die(FAKE_NOT_MODELLED, "cannot write %s", path);
    close(fd);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int, char **);
    } all[] = {{"qsub", qsub_main}, {"qstat", qstat_main},   {"qselect", qselect_main},
               {"qdel", qdel_main}, {"qalter", qalter_main}, {"qsig", qsig_main},
               {"qrls", qrls_main}, {"qmove", qmove_main},   {"pbs_server", server_main}};
    fake_me = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *dir = getenv("LF_FAKE_DIR");
    if (dir == NULL || dir[0] != '/' || strlen(dir) >= sizeof fake_dir)
        die(FAKE_NOT_MODELLED, "LF_FAKE_DIR must be an absolute path");
    snprintf(fake_dir, sizeof fake_dir, "%s", dir);
    note_call(argc, argv);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(fake_me, all[i].name) == 0) {
            if (argc == 2 && strcmp(argv[1], "--version") == 0)
                return qstat_main(argc, argv);
            return all[i].run(argc, argv);
        }
    die(FAKE_NOT_MODELLED, "no such command");
}
