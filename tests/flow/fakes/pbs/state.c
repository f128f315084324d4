/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings, knobs, the state file, and what follows when a job ends.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char fake_dir[PATH_MAX];
const char *fake_me = "fake";
static json_t *state;
static int lock_fd = -1;

void die(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", fake_me);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(code);
}

double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* ---- settings and knobs ---- */

static json_t *conf_load(void)
{
    static json_t *conf;
    if (conf != NULL)
        return conf;
    conf = json_object();
    char path[BIG_PATH], line[1024];
    snprintf(path, sizeof path, "%s/conf", fake_dir);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *eq = strchr(line, '=');
        if (eq == NULL)
            continue;
        *eq = '\0';
        json_object_set_new(conf, line, json_string(eq + 1));
    }
    if (f != NULL)
        fclose(f);
    return conf;
}

const char *conf_str(const char *key, const char *preset)
{
    const char *v = json_string_value(json_object_get(conf_load(), key));
    return v != NULL ? v : preset;
}

long conf_num(const char *key, long preset)
{
    const char *v = conf_str(key, NULL);
    return v != NULL ? strtol(v, NULL, 10) : preset;
}

bool conf_torque(void)
{
    return strcmp(conf_str("flavour", "openpbs"), "torque") == 0;
}
const char *conf_server(void)
{
    return conf_str("server", "pbs0");
}

bool knob(const char *name, char *value, size_t cap)
{
    char path[BIG_PATH], text[1024] = "";
    snprintf(path, sizeof path, "%s/knobs/%s", fake_dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    flock(fd, LOCK_EX);
    ssize_t n = read(fd, text, sizeof text - 1);
    char *rest = text;
    long left = n > 0 ? strtol(text, &rest, 10) : 0;
    if (*rest == '\n')
        rest++;
    if (value != NULL)
        snprintf(value, cap, "%s", rest);
    if (value != NULL && strlen(value) > 0 && value[strlen(value) - 1] == '\n')
        value[strlen(value) - 1] = '\0';
    if (left > 0) {
        char out[1100];
        int m = snprintf(out, sizeof out, "%ld\n%s", left - 1, rest);
        if (ftruncate(fd, 0) < 0 || pwrite(fd, out, (size_t)m, 0) != m)
            die(FAKE_NOT_MODELLED, "cannot write %s", path);
    }
    close(fd);
    return left != 0;
}

/* A lock tells whether the server lives, because a kill takes it away with the process. */
static bool server_gone(void)
{
    char path[BIG_PATH];
    if (conf_num("server_process", 0) == 0)
        return false;
    snprintf(path, sizeof path, "%s/server.lock", fake_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool gone = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return gone;
}

int server_main(int argc, char **argv)
{
    char path[BIG_PATH], text[32];
    (void)argc, (void)argv;
    snprintf(path, sizeof path, "%s/server.lock", fake_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        die(FAKE_NOT_MODELLED, "there is a server already");
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        _exit(pid < 0);
    setsid();
    snprintf(path, sizeof path, "%s/server.pid", fake_dir);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), null;
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (out < 0 || write(out, text, (size_t)n) != n || (null = open("/dev/null", O_RDWR)) < 0)
        _exit(1);
    close(out);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    for (;;) {
        const struct timespec ts = {0, 300 * 1000 * 1000};
        state_lock();
        settle();
        state_unlock(true);
        nanosleep(&ts, NULL);
    }
}

void fake_unreachable(void)
{
    if (knob("unreachable", NULL, 0) || server_gone()) {
        fprintf(stderr, "Connection refused\n%s: cannot connect to server %s (errno=15010)\n",
                fake_me, conf_server());
        exit(255);
    }
}

/* ---- the state file ---- */

json_t *state_jobs(void)
{
    return json_object_get(state, "jobs");
}

/* Torque keeps completed jobs for a while, PBS drops them at once when it keeps no history. */
static void forget_old(void)
{
    const char *key;
    void *tmp;
    json_t *job;
    bool torque = conf_torque();
    double keep = torque                        ? (double)conf_num("keep_completed", 300)
                  : conf_num("history", 1) != 0 ? 1e9
                                                : 0.0;
    json_object_foreach_safe(state_jobs(), tmp, key, job)
    {
        if (job_over(job) && now_s() - json_number_value(json_object_get(job, "_t_end")) >= keep)
            json_object_del(state_jobs(), key);
    }
}

void state_lock(void)
{
    char path[BIG_PATH];
    snprintf(path, sizeof path, "%s/lock", fake_dir);
    lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0)
        die(FAKE_NOT_MODELLED, "%s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/state", fake_dir);
    json_decref(state);
    state = json_load_file(path, 0, NULL);
    if (state == NULL)
        state = json_pack("{s:i, s:{}}", "next", 1, "jobs");
    forget_old();
}

void state_unlock(bool changed)
{
    char path[BIG_PATH], tmp[BIG_PATH];
    snprintf(path, sizeof path, "%s/state", fake_dir);
    snprintf(tmp, sizeof tmp, "%s/state.new", fake_dir);
    if (changed && (json_dump_file(state, tmp, JSON_INDENT(1)) < 0 || rename(tmp, path) < 0))
        die(FAKE_NOT_MODELLED, "%s: %s", path, strerror(errno));
    close(lock_fd);
    lock_fd = -1;
}

int state_next_id(void)
{
    int id = (int)json_integer_value(json_object_get(state, "next"));
    json_object_set_new(state, "next", json_integer(id + 1));
    return id;
}

/* ---- jobs ---- */

const char *job_str(const json_t *job, const char *key)
{
    const char *v = json_string_value(json_object_get(job, key));
    return v != NULL ? v : "";
}

long job_num(const json_t *job, const char *key, long preset)
{
    json_t *v = json_object_get(job, key);
    return json_is_integer(v) ? (long)json_integer_value(v) : preset;
}

char job_state(const json_t *job)
{
    return job_str(job, "job_state")[0];
}
bool job_over(const json_t *job)
{
    return strchr("FCM", job_state(job)) != NULL && job_state(job) != '\0';
}

void job_id_text(char *buf, size_t cap, int seq)
{
    snprintf(buf, cap, "%d.%s", seq, conf_server());
}

json_t *job_find(const char *word, bool *bad)
{
    char key[32];
    char *end = NULL;
    errno = 0;
    long seq = strtol(word, &end, 10);
    *bad = !isdigit((unsigned char)word[0]) || errno != 0 || (*end != '\0' && *end != '.');
    if (*bad || (*end == '.' && strcmp(end + 1, conf_server()) != 0))
        return NULL;
    snprintf(key, sizeof key, "%ld", seq);
    return json_object_get(state_jobs(), key);
}

void job_set_state(json_t *job, char s, int substate)
{
    char text[2] = {s, '\0'};
    json_object_set_new(job, "job_state", json_string(text));
    json_object_set_new(job, "substate", json_integer(substate));
    json_object_set_new(job, "mtime", json_integer((json_int_t)now_s()));
}

static void job_close(json_t *job, int substate)
{
    job_set_state(job, conf_torque() ? 'C' : 'F', substate);
    json_object_set_new(job, "_t_end", json_real(now_s()));
    json_object_del(job, "_nodes");
}

void job_remove(json_t *job, bool by_user)
{
    job_close(job, by_user ? 91 : 92);
    json_object_del(job, "comment");
    json_object_del(job, "run_count");
    json_object_set_new(job, "_removed", json_true());
}

void job_end(json_t *job, long status)
{
    bool ok = status == 0;
    json_object_set_new(job, conf_torque() ? "exit_status" : "Exit_status", json_integer(status));
    job_close(job, json_is_true(json_object_get(job, "_qdel")) ? 91 : ok ? 92 : 93);
}

/* ---- dependencies ---- */

enum verdict { WAIT, GO, DELETE };

/* One dependency "type" on one parent, as seen from the child. */
static enum verdict judge(const char *type, const char *id)
{
    bool bad;
    const json_t *p = job_find(id, &bad);
    if (p == NULL)
        return DELETE; /* never known, or finished and no history is kept */
    if (strcmp(type, "after") == 0)
        return strchr("RE", job_state(p)) != NULL ? GO : job_over(p) ? DELETE : WAIT;
    if (!job_over(p) || job_state(p) == 'M')
        return WAIT; /* the other server will tell */
    if (json_is_true(json_object_get(p, "_removed")))
        return DELETE;
    bool ok = job_num(p, conf_torque() ? "exit_status" : "Exit_status", 1) == 0;
    if (strcmp(type, "afterany") == 0)
        return GO;
    return (strcmp(type, "afterok") == 0) == ok ? GO : DELETE;
}

/* What has been met stays met, also when the parent is forgotten: "_met" lists it. */
static enum verdict judge_all(json_t *job)
{
    char text[8192], mark[128];
    snprintf(text, sizeof text, "%s", job_str(job, "depend"));
    enum verdict all = GO;
    char *save1 = NULL, *save2 = NULL;
    for (char *d = strtok_r(text, ",", &save1); d != NULL; d = strtok_r(NULL, ",", &save1)) {
        char *type = strtok_r(d, ":", &save2);
        for (char *id = strtok_r(NULL, ":", &save2); id != NULL; id = strtok_r(NULL, ":", &save2)) {
            char *at = strchr(id, '@');
            if (at != NULL)
                *at = '\0';
            snprintf(mark, sizeof mark, "%.40s:%.80s", type, id);
            if (json_is_true(json_object_get(json_object_get(job, "_met"), mark)))
                continue;
            enum verdict v = judge(type, id);
            if (v == DELETE)
                return DELETE;
            if (v == WAIT)
                all = WAIT;
            else
                json_object_set_new(json_object_get(job, "_met"), mark, json_true());
        }
    }
    return all;
}

/* Old Torque never looks again at a dependency on what was complete when the job came. */
static bool settle_depend(json_t *job)
{
    if (job_str(job, "depend")[0] == '\0' || strchr("HQ", job_state(job)) == NULL ||
        json_is_true(json_object_get(job, "_free")))
        return false;
    enum verdict v = judge_all(job);
    if (v == WAIT)
        return false;
    if (v == DELETE) {
        job_remove(job, false);
        return true;
    }
    json_object_set_new(job, "_free", json_true());
    if (!json_is_true(json_object_get(job, "_user_hold"))) {
        job_set_state(job, 'Q', 10);
        json_object_set_new(job, "Hold_Types", json_string("n"));
    } else {
        json_object_set_new(job, "substate", json_integer(20));
        json_object_set_new(job, "Hold_Types", json_string("u"));
    }
    return true;
}

static void start_what_fits(void)
{
    const char *key;
    json_t *job;
    if (conf_num("scheduling", 1) == 0)
        return;
    json_object_foreach(state_jobs(), key, job)
    {
        bool never = false;
        if (job_state(job) != 'Q' || !resources_fit(job, &never)) {
            if (never)
                json_object_set_new(
                    job, "comment",
                    json_string("Can Never Run: Insufficient amount of resource: ncpus"));
            continue;
        }
        job_set_state(job, 'R', 42);
        json_object_set_new(job, "_t_start", json_real(now_s()));
        json_object_set_new(job, "stime", json_integer((json_int_t)now_s()));
        json_object_set_new(job, "run_count", json_integer(job_num(job, "run_count", 0) + 1));
        json_object_set_new(job, "comment", json_string("Job run"));
        mom_start(job);
    }
}

/* A mom that died takes its word about the job with it; the job's processes live on. The server
 * runs the job again. */
static void requeue_orphans(void)
{
    const char *key;
    json_t *job;
    if (conf_num("node_fail_requeue", 0) == 0)
        return;
    json_object_foreach(state_jobs(), key, job)
    {
        pid_t mom = (pid_t)job_num(job, "_mom", 0);
        if (job_state(job) != 'R' || mom <= 1 || kill(mom, 0) == 0 || errno != ESRCH)
            continue;
        json_object_del(job, "_mom");
        json_object_del(job, "session_id");
        json_object_set_new(job, "comment",
                            json_string("Job requeued, execution node unreachable"));
        job_set_state(job, 'Q', 10);
    }
}

void settle(void)
{
    if (server_gone()) /* a mom that writes an end down while nobody hears of it */
        return;
    requeue_orphans();
    bool more = true;
    while (more) {
        const char *key;
        json_t *job;
        more = false;
        json_object_foreach(state_jobs(), key, job) more |= settle_depend(job);
    }
    start_what_fits();
    forget_old();
}
