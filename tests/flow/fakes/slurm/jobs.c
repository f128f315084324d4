/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs: states, dependencies, ends. A dependency keeps what became of it: once failed it stays
 * failed, whatever its parent does later; an id that the controller does not know counts as
 * satisfied.
 *
 * "state" is PENDING, RUNNING or a final word; "ending" is the final word that a job gets which is
 * being ended ("completing").
 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

json_t *fk_job(long long id)
{
    json_t *jobs = fk_jobs();
    for (size_t i = json_array_size(jobs); i-- > 0;)
        if (fk_i(json_array_get(jobs, i), "id") == id)
            return json_array_get(jobs, i);
    return NULL;
}

bool fk_is_pending(const json_t *j)
{
    return strcmp(fk_s(j, "state"), "PENDING") == 0;
}
bool fk_is_of(const json_t *j, const char *users)
{
    char uid[16];
    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    const char *const names[] = {fk_s(j, "user"), uid};
    for (const char *p = users; p != NULL && *p != '\0'; p += strcspn(p, ","), p += *p == ',')
        for (int i = 0; i < 2; i++)
            if (strcspn(p, ",") == strlen(names[i]) && strncmp(p, names[i], strlen(names[i])) == 0)
                return true;
    return users == NULL;
}
bool fk_is_put_back(const json_t *j)
{
    return strcmp(fk_s(j, "ending"), "REQUEUE") == 0 ||
           strcmp(fk_s(j, "ending"), "PREEMPT_REQUEUE") == 0;
}
bool fk_is_final(const json_t *j)
{
    return !fk_is_pending(j) && strcmp(fk_s(j, "state"), "RUNNING") != 0;
}

const char *fk_state_word(const json_t *j)
{
    if (fk_s(j, "ending")[0] != '\0')
        return "COMPLETING";
    return fk_s(j, "state");
}

const char *fk_state_short(const json_t *j)
{
    static const char *const words[][2] = {
        {"PENDING", "PD"},   {"RUNNING", "R"},        {"COMPLETING", "CG"}, {"COMPLETED", "CD"},
        {"CANCELLED", "CA"}, {"FAILED", "F"},         {"TIMEOUT", "TO"},    {"NODE_FAIL", "NF"},
        {"PREEMPTED", "PR"}, {"OUT_OF_MEMORY", "OOM"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], fk_state_word(j)) == 0)
            return words[i][1];
    return "?";
}

double fk_end_time(const json_t *j)
{
    if (fk_is_final(j))
        return fk_f(j, "end_t");
    if (fk_f(j, "preempt_t") > 0)
        return fk_f(j, "preempt_t");
    return fk_is_pending(j) || fk_f(j, "limit_s") < 0 ? 0 : fk_f(j, "start_t") + fk_f(j, "limit_s");
}

bool fk_down(void)
{
    return fk_knob_take("down", NULL);
}

/* ---- dependencies ---- */

char *fk_dep_text(const json_t *j)
{
    char out[8192] = "";
    size_t n = 0, i;
    json_t *d;
    json_array_foreach(json_object_get(j, "deps"), i, d)
    {
        const char *st = fk_s(d, "state");
        if (strcmp(st, "ok") == 0 || n >= sizeof out - 80)
            continue;
        const char *sep = n == 0 ? "" : fk_b(j, "deps_or") ? "?" : ",";
        if (strcmp(fk_s(d, "kind"), "singleton") == 0)
            n += (size_t)snprintf(out + n, sizeof out - n, "%ssingleton(unfulfilled)", sep);
        else
            n += (size_t)snprintf(out + n, sizeof out - n, "%s%s:%lld(%s)", sep, fk_s(d, "kind"),
                                  fk_i(d, "id"),
                                  strcmp(st, "failed") == 0 ? "failed" : "unfulfilled");
    }
    return strdup(n > 0 ? out : "(null)");
}

/* What a parent that has ended is to a dependency. */
static const char *judge(const char *kind, const json_t *parent)
{
    bool good = strcmp(fk_s(parent, "state"), "COMPLETED") == 0;
    if (strcmp(kind, "afterok") == 0 || strcmp(kind, "aftercorr") == 0)
        return good ? "ok" : "failed";
    if (strcmp(kind, "afternotok") == 0)
        return good ? "failed" : "ok";
    return "ok";
}

static const char *add_dep(json_t *deps, const char *kind, const char *id_text)
{
    long long id;
    char digits[32];
    snprintf(digits, sizeof digits, "%.*s", (int)strcspn(id_text, "+"),
             id_text); /* after:ID+minutes */
    if (!fk_int_in(&id, digits, 1, INT_MAX))
        return "Job dependency problem";
    const json_t *parent = fk_job(id);
    const char *state = parent == NULL ? "ok" : "wait";
    if (parent != NULL && fk_is_final(parent))
        state = judge(kind, parent);
    if (parent != NULL && strcmp(kind, "after") == 0 && !fk_is_pending(parent))
        state = "ok";
    json_array_append_new(
        deps, json_pack("{s:s, s:I, s:I, s:s}", "kind", kind, "id", (json_int_t)id, "seq",
                        (json_int_t)(parent != NULL ? fk_i(parent, "seq") : 0), "state", state));
    return NULL;
}

static const char *one_clause(json_t *deps, char *clause)
{
    static const char *const kinds[] = {"after",      "afterany", "aftercorr",
                                        "afternotok", "afterok",  NULL};
    char *save = NULL, *colon = strchr(clause, ':');
    const char *kind = NULL, *bad = NULL;
    bool some = false;
    if (strcmp(clause, "singleton") == 0) {
        json_array_append_new(deps, json_pack("{s:s, s:i, s:i, s:s}", "kind", "singleton", "id", 0,
                                              "seq", 0, "state", "wait"));
        return NULL;
    }
    if (colon != NULL)
        *colon = '\0';
    for (int i = 0; colon != NULL && kinds[i] != NULL; i++)
        if (strcmp(clause, kinds[i]) == 0)
            kind = kinds[i];
    if (colon == NULL && clause[0] != '\0' && strspn(clause, "0123456789") == strlen(clause))
        return add_dep(deps, "afterany", clause);
    if (kind == NULL)
        return "Job dependency problem";
    for (char *p = strtok_r(colon + 1, ":", &save); p != NULL; p = strtok_r(NULL, ":", &save)) {
        bad = add_dep(deps, kind, p);
        if (bad != NULL)
            return bad;
        some = true;
    }
    return some ? NULL : "Job dependency problem";
}

const char *fk_dep_set(json_t *j, const char *text)
{
    json_t *deps = json_array();
    bool any = strchr(text, '?') != NULL;
    char *copy = strdup(text), *save = NULL;
    const char *bad = any && strchr(text, ',') != NULL ? "Job dependency problem" : NULL;
    for (char *p = strtok_r(copy, any ? "?" : ",", &save); p != NULL && bad == NULL;
         p = strtok_r(NULL, any ? "?" : ",", &save))
        bad = one_clause(deps, p);
    free(copy);
    size_t i;
    json_t *d;
    json_array_foreach(deps, i, d) if (fk_i(d, "id") == fk_i(j, "id")) bad =
        "Job dependency problem"; /* on itself */
    if (bad != NULL) {
        json_decref(deps);
        return bad;
    }
    json_object_set_new(j, "deps", deps);
    fk_set_b(j, "deps_or", any);
    return NULL;
}

static void resolve_children(const json_t *parent)
{
    size_t i, k;
    json_t *j, *d;
    json_array_foreach(fk_jobs(), i, j)
        json_array_foreach(json_object_get(j, "deps"), k,
                           d) if (strcmp(fk_s(d, "state"), "wait") == 0 &&
                                  fk_i(d, "seq") == fk_i(parent, "seq") && fk_i(d, "seq") != 0)
            fk_set_s(d, "state", judge(fk_s(d, "kind"), parent));
}

/* ---- ends ---- */

static void account(const json_t *j, const char *state)
{
    json_t *rec = json_deep_copy(j);
    fk_set_s(rec, "state", state);
    fk_set_f(rec, "end_t", fk_now());
    json_object_del(rec, "env");
    json_array_append_new(fk_acct(), rec);
}

void fk_finish(json_t *j, const char *word, const char *reason, int status)
{
    double now = fk_now();
    char state[32]; /* the word may lie in j */
    snprintf(state, sizeof state, "%s", word);
    fk_set_s(j, "state", state);
    fk_set_s(j, "reason", reason);
    fk_set_i(j, "status", status);
    fk_set_f(j, "end_t", now);
    if (fk_f(j, "start_t") <= 0)
        fk_set_f(j, "start_t", now);
    json_object_del(j, "ending");
    json_object_del(j, "stepd");
    account(j, state);
    resolve_children(j);
    fk_append("history", "%.3f end %lld %s %d %s\n", now, fk_i(j, "id"), state, status,
              fk_s(j, "name"));
}

void fk_requeue(json_t *j, const char *why)
{
    double now = fk_now();
    account(j, strcmp(why, "requeue") == 0 ? "REQUEUED" : why);
    fk_set_s(j, "state", "PENDING");
    fk_set_s(j, "reason", "BeginTime");
    fk_set_f(j, "begin_t", now + fk_knob_num("requeue_delay", 0.3));
    fk_set_f(j, "submit_t", now); /* a requeue resets the submit time */
    fk_set_f(j, "start_t", 0);
    fk_set_f(j, "end_t", 0);
    fk_set_i(j, "restarts", fk_i(j, "restarts") + 1);
    json_object_del(j, "ending");
    json_object_del(j, "stepd");
    json_object_del(j, "warned");
    json_object_del(j, "kill_t");
    json_object_del(j, "preempt_t");
    json_object_del(j, "node_list");
    if (fk_b(j, "hold_after")) {
        fk_set_b(j, "held", true);
        fk_set_s(j, "reason", "JobHeldUser");
        json_object_del(j, "hold_after");
    }
    fk_append("history", "%.3f requeue %lld %s %lld %s\n", now, fk_i(j, "id"), why,
              fk_i(j, "restarts"), fk_s(j, "name"));
}

/* The line that slurmstepd leaves in the job's output. */
static void say_cancelled(const json_t *j, const char *state)
{
    char when[32];
    fk_time(when, sizeof when, fk_now());
    const char *path = fk_s(j, "err_path")[0] != '\0' ? fk_s(j, "err_path") : fk_s(j, "out_path");
    FILE *f = path[0] != '\0' ? fopen(path, "ae") : NULL;
    if (f == NULL)
        return;
    fprintf(f, "slurmstepd: error: *** JOB %lld ON %s CANCELLED AT %s%s ***\n", fk_i(j, "id"),
            json_string_value(json_array_get(json_object_get(j, "node_list"), 0)), when,
            strcmp(state, "TIMEOUT") == 0         ? " DUE TO TIME LIMIT"
            : strncmp(state, "PREEMPT", 7) == 0   ? " DUE TO PREEMPTION"
            : strcmp(state, "REQUEUE") == 0       ? " DUE TO JOB REQUEUE"
            : strcmp(state, "OUT_OF_MEMORY") == 0 ? " DUE TO OUT OF MEMORY"
                                                  : "");
    fclose(f);
}

void fk_kill_begin(json_t *j, const char *state)
{
    say_cancelled(j, state);
    fk_set_s(j, "ending", state);
    fk_set_f(j, "term_t", fk_now() + 0.05); /* the caller may be a process of the job */
    fk_set_f(j, "kill_t", fk_now() + 0.05 + fk_knob_num("kill_wait", 3));
}

/* ---- processes ---- */

enum { MAX_PROCS = 8192 };

static int load_procs(pid_t pid[MAX_PROCS], pid_t parent[MAX_PROCS])
{
    DIR *d = opendir("/proc");
    int n = 0;
    for (struct dirent *e; d != NULL && n < MAX_PROCS && (e = readdir(d)) != NULL;) {
        long long v;
        char path[64];
        if (!isdigit((unsigned char)e->d_name[0]) || !fk_int_in(&v, e->d_name, 1, INT_MAX))
            continue;
        snprintf(path, sizeof path, "/proc/%lld/stat", v);
        char *text = fk_read(path), *end = text != NULL ? strrchr(text, ')') : NULL;
        if (end != NULL && end[2] != 'Z') {
            pid[n] = (pid_t)v;
            parent[n++] = (pid_t)strtol(end + 4, NULL, 10);
        }
        free(text);
    }
    if (d != NULL)
        closedir(d);
    return n;
}

static bool is_step(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    char var[4096];
    size_t n = 0;
    bool found = false;
    for (int c; f != NULL && !found && (c = fgetc(f)) != EOF;) {
        var[n < sizeof var - 1 ? n++ : n] = (char)c;
        if (c == '\0') {
            found = strncmp(var, "SLURM_STEP_ID=", 14) == 0;
            n = 0;
        }
    }
    if (f != NULL)
        fclose(f);
    return found;
}

void fk_tree_signal(pid_t root, int sig, char which)
{
    static pid_t pid[MAX_PROCS], parent[MAX_PROCS];
    static bool in[MAX_PROCS];
    if (root <= 1)
        return;
    int n = load_procs(pid, parent);
    memset(in, 0, sizeof in);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++)
            for (int k = 0; !in[i] && k < n; k++)
                if (parent[i] == root || (in[k] && pid[k] == parent[i]))
                    in[i] = more = true;
    }
    for (int i = 0; i < n; i++)
        if (in[i] && (which == 'a' || (which == 'b' && parent[i] == root && !is_step(pid[i])) ||
                      (which == 's' && is_step(pid[i]))))
            kill(pid[i], sig);
}
