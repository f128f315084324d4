/* SPDX-License-Identifier: Apache-2.0
 *
 * State, lock, knobs. state.json is replaced under a lock on the file `lock`.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

const char *fk_dir, *fk_name;
static json_t *root;
static struct stat seen;
static int lock_fd = -1;

void fk_die(int code, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s: ", fk_name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(code);
}

void fk_path(char *out, size_t cap, const char *fmt, ...)
{
    va_list ap;
    size_t n = (size_t)snprintf(out, cap, "%s/", fk_dir);
    va_start(ap, fmt);
    if (n >= cap || vsnprintf(out + n, cap - n, fmt, ap) >= (int)(cap - n))
        fk_die(98, "path too long");
    va_end(ap);
}

double fk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fk_append(const char *file, const char *fmt, ...)
{
    char path[PATH_MAX], text[8192];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fk_path(path, sizeof path, "%s", file);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) < 0)
        fk_die(98, "%s: %s", path, strerror(errno));
    close(fd);
}

char *fk_read(const char *path)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NULL;
    size_t n = 0, cap = 4096;
    char *text = malloc(cap);
    for (size_t got; text != NULL && (got = fread(text + n, 1, cap - n - 1, f)) > 0;) {
        n += got;
        if (cap - n < 2)
            text = realloc(text, cap *= 2);
    }
    fclose(f);
    if (text == NULL)
        fk_die(98, "out of memory");
    text[n] = '\0';
    return text;
}

/* ---- state ---- */

bool fk_reload_needed(void)
{
    char path[PATH_MAX];
    struct stat st;
    fk_path(path, sizeof path, "state.json");
    return root == NULL || stat(path, &st) < 0 || st.st_ino != seen.st_ino ||
           st.st_mtim.tv_nsec != seen.st_mtim.tv_nsec || st.st_mtim.tv_sec != seen.st_mtim.tv_sec;
}

/* A finished job is forgotten MinJobAge after its end; accounting keeps it. */
static void purge(void)
{
    double age = fk_knob_num("min_job_age", 300), now = fk_now();
    json_t *jobs = fk_jobs();
    for (size_t i = json_array_size(jobs); i-- > 0;) {
        const json_t *j = json_array_get(jobs, i);
        if (fk_is_final(j) && now - fk_f(j, "end_t") > age)
            json_array_remove(jobs, i);
    }
}

void fk_enter(void)
{
    char path[PATH_MAX];
    fk_path(path, sizeof path, "lock");
    lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0)
        fk_die(98, "%s: %s", path, strerror(errno));
    if (fk_reload_needed()) {
        json_error_t e;
        json_decref(root);
        fk_path(path, sizeof path, "state.json");
        root = access(path, F_OK) == 0 ? json_load_file(path, 0, &e)
                                       : json_pack("{s:I, s:I, s:[], s:[]}", "next_id",
                                                   (json_int_t)fk_knob_num("first_id", 1),
                                                   "next_seq", (json_int_t)1, "jobs", "acct");
        if (root == NULL)
            fk_die(98, "%s: %s", path, e.text);
        stat(path, &seen);
    }
    purge();
}

/* Write the state, the lock is kept: what a killed command has done is then there, whatever it told
 * of it. */
void fk_save(void)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    fk_path(path, sizeof path, "state.json");
    fk_path(tmp, sizeof tmp, "state.tmp");
    char *text = json_dumps(root, JSON_COMPACT), *old = fk_read(path);
    if (text == NULL)
        fk_die(98, "out of memory");
    if (old == NULL || strcmp(old, text) != 0) {
        FILE *f = fopen(tmp, "we");
        if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || rename(tmp, path) < 0)
            fk_die(98, "%s: %s", path, strerror(errno));
        stat(path, &seen);
    }
    free(text);
    free(old);
}

void fk_leave(void)
{
    fk_save();
    close(lock_fd);
    lock_fd = -1;
}

json_t *fk_root(void)
{
    return root;
}
json_t *fk_jobs(void)
{
    return json_object_get(root, "jobs");
}
json_t *fk_acct(void)
{
    return json_object_get(root, "acct");
}

const char *fk_s(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}
long long fk_i(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}
double fk_f(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}
bool fk_b(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

static void set(json_t *o, const char *key, json_t *v)
{
    if (v == NULL || json_object_set_new(o, key, v) < 0)
        fk_die(98, "cannot store %s: not UTF-8?", key);
}
void fk_set_s(json_t *o, const char *key, const char *v)
{
    set(o, key, json_string(v));
}
void fk_set_i(json_t *o, const char *key, long long v)
{
    set(o, key, json_integer(v));
}
void fk_set_f(json_t *o, const char *key, double v)
{
    set(o, key, json_real(v));
}
void fk_set_b(json_t *o, const char *key, bool v)
{
    set(o, key, json_boolean(v));
}

/* ---- knobs ---- */

char *fk_knob(const char *name)
{
    char path[PATH_MAX];
    fk_path(path, sizeof path, "knobs/%s", name);
    char *t = fk_read(path);
    if (t != NULL && t[0] != '\0' && t[strlen(t) - 1] == '\n')
        t[strlen(t) - 1] = '\0';
    return t;
}

double fk_knob_num(const char *name, double otherwise)
{
    char *t = fk_knob(name), *end = NULL;
    double v = t != NULL ? strtod(t, &end) : otherwise;
    if (t != NULL && (end == t || *end != '\0'))
        fk_die(98, "knob %s: \"%s\" is not a number", name, t);
    free(t);
    return v;
}

bool fk_knob_take(const char *name, char **text)
{
    char path[PATH_MAX], lock[PATH_MAX], *t = fk_knob(name);
    if (text != NULL)
        *text = NULL;
    if (t == NULL)
        return false;
    /* Its own lock: it is asked with and without the big one. */
    fk_path(lock, sizeof lock, "knobs.lock");
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        fk_die(98, "%s: %s", lock, strerror(errno));
    free(t);
    t = fk_knob(name);
    char *end = NULL, *rest = t != NULL ? strchr(t, '\n') : NULL;
    bool always = t != NULL && strncmp(t, "always", 6) == 0;
    long n = always ? 1 : t != NULL ? strtol(t, &end, 10) : 0;
    if (t != NULL && !always && end == t)
        fk_die(98, "knob %s: a number of times or \"always\" is wanted in its first line", name);
    if (n > 0 && !always) {
        fk_path(path, sizeof path, "knobs/%s", name);
        FILE *f = n > 1 ? fopen(path, "we") : NULL;
        if (n == 1 ? unlink(path) < 0
                   : f == NULL || fprintf(f, "%ld%s\n", n - 1, rest != NULL ? rest : "") < 0)
            fk_die(98, "%s: %s", path, strerror(errno));
        if (f != NULL)
            fclose(f);
    }
    close(fd);
    if (n > 0 && text != NULL)
        *text = strdup(rest != NULL ? rest + 1 : "");
    free(t);
    return n > 0;
}
