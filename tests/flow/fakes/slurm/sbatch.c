/* SPDX-License-Identifier: Apache-2.0
 *
 * sbatch: options from the script's #SBATCH lines, the environment and the command line, later ones
 * winning.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/flow/fakes/slurm/fk.h"

extern char **environ;

void fk_refuse(const char *why)
{
    fprintf(stderr, "sbatch: error: Batch job submission failed: %s\n", why);
    exit(1);
}

/* ---- the script ---- */

/* The words of an #SBATCH line, quotes and backslashes as sbatch understands them; a word that
 * begins with # ends it. */
static int split(char *line, char **words, int cap)
{
    int n = 0;
    char *out = line;
    for (char *p = line; *p != '\0';) {
        while (isspace((unsigned char)*p))
            p++;
        if (*p == '\0' || *p == '#')
            break;
        if (n == cap)
            fk_die(1, "error: too many options in one #SBATCH line");
        words[n++] = out;
        for (char quote = 0; *p != '\0' && (quote || !isspace((unsigned char)*p)); p++) {
            if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? 0 : *p;
            else if (*p == '\\' && quote != '\'' && p[1] != '\0')
                *out++ = *++p;
            else
                *out++ = *p;
        }
        if (*p != '\0')
            p++;
        *out++ = '\0';
    }
    return n;
}

static void directives(json_t *o, const char *script)
{
    char *copy = strdup(script), *save = NULL, *words[64], self[] = "sbatch";
    for (char *line = strtok_r(copy, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *p = line + strspn(line, " \t");
        if (*p != '#' && *p != '\0')
            break; /* the first command ends the options */
        if (strncmp(line, "#SBATCH", 7) != 0)
            continue;
        words[0] = self;
        int n = 1 + split(line + 7, words + 1, 62);
        words[n] = NULL;
        if (fk_parse(o, fk_sbatch_opts, n, words) != n)
            fk_die(1, "error: Invalid directive found in batch script: %s", words[n - 1]);
    }
    free(copy);
}

static char *load_script(const char *path)
{
    struct stat st;
    FILE *f = path != NULL ? fopen(path, "re") : stdin;
    if (path == NULL && isatty(0))
        fk_die(99, "no script");
    if (f == NULL || (path != NULL && (stat(path, &st) < 0 || !S_ISREG(st.st_mode))))
        fk_die(1, "error: Unable to open file %s", path);
    size_t n = 0, cap = (size_t)4 << 20;
    char *text = malloc(cap + 1);
    if (text == NULL)
        fk_die(98, "out of memory");
    n = fread(text, 1, cap, f);
    text[n] = '\0';
    if (n == 0)
        fk_die(1, "error: Batch script is empty!");
    if (memchr(text, '\0', n) != NULL)
        fk_die(1, "error: The SLURM batch script contains NULL character");
    if (strncmp(text, "#!", 2) != 0)
        fk_die(1, "error: This does not look like a batch script.  The first\nsbatch: error: line "
                  "must start with #! followed "
                  "by the path to an interpreter.\nsbatch: error: For instance: #!/bin/sh");
    if (strstr(text, "\r\n") != NULL)
        fk_die(1, "error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead "
                  "of expected UNIX line breaks "
                  "(\\n).");
    return text;
}

/* ---- the job ---- */

static void set_signal(json_t *j, const char *text)
{
    char name[32];
    long long before = 60;
    const char *p = text;
    bool batch = false;
    for (; (*p == 'R' || *p == 'B') && (p[1] == ':' || (p[1] == 'B' && p[2] == ':'));
         p += p[1] == ':' ? 2 : 1)
        batch = batch || *p == 'B';
    size_t n = strcspn(p, "@");
    snprintf(name, sizeof name, "%.*s", (int)n, p);
    int sig = fk_signal_number(name);
    if (sig == 0 || n >= sizeof name || (p[n] == '@' && !fk_int_in(&before, p + n + 1, 0, 65535)))
        fk_die(1, "error: Invalid --signal specification");
    json_object_set_new(
        j, "signal",
        json_pack("{s:i, s:f, s:b}", "n", sig, "before_s", (double)before, "batch", (int)batch));
}

static void set_nodes(json_t *j, const json_t *o)
{
    const char *t = fk_get(o, "nodes");
    long long lo = 1, hi;
    char first[32] = "1";
    if (t != NULL) {
        size_t n = strcspn(t, "-");
        snprintf(first, sizeof first, "%.*s", (int)n, t);
        if (!fk_int_in(&lo, first, 1, 100000) ||
            (t[n] == '-' && !fk_int_in(&hi, t + n + 1, lo, 100000)))
            fk_die(1, "error: invalid number of nodes (-N %s)", t);
    }
    long long tpn = fk_number(o, "ntasks-per-node", 1, 100000, 0),
              nt = fk_number(o, "ntasks", 1, 1000000, 0);
    long long cpt = fk_number(o, "cpus-per-task", 1, 100000, 0);
    if (nt == 0 && tpn > 0)
        nt = lo * tpn;
    fk_set_i(j, "nodes", lo);
    fk_set_i(j, "tpn", tpn);
    fk_set_i(j, "ntasks", nt);
    fk_set_i(j, "cpt", cpt);
    fk_set_i(j, "cpus", (nt > 0 ? nt : lo) * (cpt > 0 ? cpt : 1));
    if (fk_i(j, "cpus") > lo * (long long)fk_knob_num("cpus", 1024))
        fk_refuse("Requested node configuration is not available");
}

/* ---- the environment of the job ---- */

static void put_env(json_t *env, const char *var)
{
    const char *eq = strchr(var, '=');
    char key[256];
    if (eq == NULL || (size_t)(eq - var) >= sizeof key)
        return;
    snprintf(key, sizeof key, "%.*s", (int)(eq - var), var);
    json_t *v = json_string(eq + 1);
    if (v != NULL)
        json_object_set_new(env, key, v);
}

/* What a login shell on a compute node gives: HOME, PATH with the scheduler's commands, and the
 * knob login_env. */
static void login_env(json_t *env)
{
    const struct passwd *pw = getpwuid(getuid());
    char path[PATH_MAX + 64], exe[PATH_MAX], *slash, *more = fk_knob("login_env"), *save = NULL;
    const char *home = getenv("HOME");
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    if ((slash = strrchr(exe, '/')) != NULL)
        *slash = '\0';
    snprintf(path, sizeof path, "%s/bin:/usr/local/bin:/usr/bin:/bin", fk_dir);
    json_object_set_new(env, "TMPDIR", json_string("/tmp"));
    json_object_set_new(env, "HOME", json_string(home != NULL ? home : "/"));
    json_object_set_new(env, "USER", json_string(pw != NULL ? pw->pw_name : "nobody"));
    json_object_set_new(env, "LOGNAME", json_string(pw != NULL ? pw->pw_name : "nobody"));
    json_object_set_new(env, "SHELL", json_string("/bin/sh"));
    json_object_set_new(env, "PATH", json_string(path));
    for (char *p = more != NULL ? strtok_r(more, "\n", &save) : NULL; p != NULL;
         p = strtok_r(NULL, "\n", &save))
        put_env(env, p);
    free(more);
}

static void set_env(json_t *j, const char *export)
{
    json_t *env = json_object();
    bool all = export == NULL || strcmp(export, "ALL") == 0 || strncmp(export, "ALL,", 4) == 0;
    bool nil = export != NULL && strcmp(export, "NIL") == 0;
    if (!all && !nil)
        login_env(env);
    for (char **e = environ; *e != NULL; e++)
        if (all || (!nil && strncmp(*e, "SLURM_", 6) == 0)) /* SLURM_* always goes along */
            put_env(env, *e);
    char *copy = strdup(export != NULL ? export : ""), *save = NULL;
    bool named = export != NULL && strcmp(export, "NONE") != 0 && !nil;
    for (char *p = named ? strtok_r(copy, ",", &save) : NULL; p != NULL;
         p = strtok_r(NULL, ",", &save)) {
        char var[8192];
        if (strchr(p, '=') != NULL)
            put_env(env, p);
        else if (strcmp(p, "ALL") != 0 && getenv(p) != NULL &&
                 snprintf(var, sizeof var, "%s=%s", p, getenv(p)) > 0)
            put_env(env, var);
    }
    free(copy);
    json_object_set_new(env, "LF_FAKE_DIR", json_string(fk_dir)); /* the imitation's own need */
    json_object_set_new(j, "env", env);
    fk_set_s(j, "export", export != NULL ? export : "ALL");
}

/* ---- the job ---- */

static void absolute(json_t *j, const char *key, const char *name)
{
    char path[PATH_MAX];
    if (name[0] == '/')
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%.2000s/%.2000s", fk_s(j, "cwd"), name);
    fk_set_s(j, key, path);
}

static void set_files(json_t *j, const json_t *o)
{
    char cwd[PATH_MAX];
    const char *dir = fk_get(o, "chdir"), *v;
    if (dir != NULL ? realpath(dir, cwd) == NULL : getcwd(cwd, sizeof cwd) == NULL)
        fk_die(1, "error: Unable to chdir to %s", dir != NULL ? dir : ".");
    fk_set_s(j, "cwd", cwd);
    absolute(j, "out", (v = fk_get(o, "output")) != NULL ? v : "slurm-%j.out");
    fk_set_s(j, "err", "");
    if ((v = fk_get(o, "error")) != NULL)
        absolute(j, "err", v);
    fk_set_s(j, "in", (v = fk_get(o, "input")) != NULL ? v : "");
    fk_set_b(j, "append", (v = fk_get(o, "open-mode")) != NULL && strcasecmp(v, "append") == 0);
}

static void set_limits(json_t *j, const json_t *o)
{
    const char *v = fk_get(o, "time");
    long long limit = v != NULL ? fk_minutes(v) : (long long)fk_knob_num("default_minutes", 60);
    long long cap = (long long)fk_knob_num("max_minutes", 1e6), mb = 0;
    if (limit > cap || limit < 0) {
        if (fk_knob_num("enforce_limits", 1) != 0)
            fk_refuse("Requested time limit is invalid (missing or exceeds some limit)");
    }
    fk_set_i(j, "limit_min", limit);
    fk_set_f(j, "limit_s", (double)limit * fk_knob_num("minute", 60));
    if ((v = fk_get(o, "mem")) != NULL)
        fk_mem_mb(&mb, v);
    fk_set_i(j, "mem_mb", mb);
    fk_set_f(j, "begin_t", 0);
    if ((v = fk_get(o, "begin")) != NULL) {
        double t = fk_time_parse(v);
        if (t < 0)
            fk_die(1, "error: Invalid --begin specification");
        fk_set_f(j, "begin_t", t);
    }
}

static void plain(json_t *j, const json_t *o, const char *key, const char *otherwise)
{
    const char *v = fk_get(o, key);
    fk_set_s(j, key, v != NULL ? v : otherwise);
}

static json_t *make_job(const json_t *o, const char *script_path, int argc, char **argv)
{
    json_t *j = json_object(), *args = json_array();
    const struct passwd *pw = getpwuid(getuid());
    const char *v, *slash = script_path != NULL ? strrchr(script_path, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : script_path != NULL ? script_path : "sbatch";
    plain(j, o, "partition", "main");
    plain(j, o, "account", "");
    plain(j, o, "qos", "");
    plain(j, o, "comment", "");
    plain(j, o, "exclude", "");
    plain(j, o, "constraint", "");
    plain(j, o, "reservation", "");
    fk_set_s(j, "name", (v = fk_get(o, "job-name")) != NULL ? v : name);
    fk_set_s(j, "user", pw != NULL ? pw->pw_name : "nobody");
    fk_set_s(j, "command", script_path != NULL ? script_path : "(null)");
    fk_set_s(j, "gpus",
             (v = fk_get(o, "gpus-per-node")) != NULL ? v
             : (v = fk_get(o, "gres")) != NULL        ? v
                                                      : "");
    fk_set_b(j, "requeue",
             (v = fk_get(o, "requeue")) != NULL ? strcmp(v, "yes") == 0
                                                : fk_knob_num("job_requeue", 1) != 0);
    fk_set_b(j, "kill_invalid",
             (v = fk_get(o, "kill-on-invalid-dep")) != NULL && strcasecmp(v, "yes") == 0);
    fk_set_b(j, "held", fk_get(o, "hold") != NULL);
    fk_set_i(j, "restarts", 0);
    set_nodes(j, o);
    set_files(j, o);
    set_limits(j, o);
    set_env(j, fk_get(o, "export"));
    if ((v = fk_get(o, "signal")) != NULL)
        set_signal(j, v);
    for (int i = 0; i < argc; i++)
        json_array_append_new(args, json_string(argv[i]));
    json_object_set_new(j, "args", args);
    mode_t mask = umask(0);
    umask(mask);
    fk_set_i(j, "umask", (long long)mask);
    fk_set_s(j, "state", "PENDING");
    fk_set_s(j, "reason", "None");
    fk_set_f(j, "submit_t", fk_now());
    fk_set_f(j, "start_t", 0);
    fk_set_f(j, "end_t", 0);
    return j;
}

static void spool_script(json_t *j, const char *text)
{
    char path[PATH_MAX];
    fk_path(path, sizeof path, "spool");
    mkdir(path, 0755);
    fk_path(path, sizeof path, "spool/job%05lld.%lld", fk_i(j, "id"), fk_i(j, "seq"));
    mkdir(path, 0755);
    fk_path(path, sizeof path, "spool/job%05lld.%lld/slurm_script", fk_i(j, "id"), fk_i(j, "seq"));
    FILE *f = fopen(path, "we");
    if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0 || chmod(path, 0700) < 0)
        fk_die(98, "%s: %s", path, strerror(errno));
    fk_set_s(j, "spooled", path);
}

static long long active_jobs(void)
{
    long long n = 0;
    size_t i;
    json_t *j;
    json_array_foreach(fk_jobs(), i, j) n += !fk_is_final(j);
    return n;
}

static long long enter_job(json_t *j, const json_t *o, const char *script)
{
    const char *dep = fk_get(o, "dependency"), *bad = NULL;
    fk_enter();
    if (active_jobs() >= (long long)fk_knob_num("max_submit", 1e9)) {
        fk_leave();
        fprintf(stderr, "sbatch: error: QOSMaxSubmitJobPerUserLimit\n");
        fk_refuse("Job violates accounting/QOS policy (job submit limit, user's size and/or time "
                  "limits)");
    }
    long long id = fk_i(fk_root(), "next_id"), seq = fk_i(fk_root(), "next_seq");
    while (fk_job(id) != NULL && !fk_is_final(fk_job(id)))
        id++; /* ids of living jobs are not given out again */
    fk_set_i(j, "id", id);
    fk_set_i(j, "seq", seq);
    if (dep != NULL && (bad = fk_dep_set(j, dep)) != NULL) {
        fk_leave();
        fk_refuse(bad);
    }
    for (size_t i = json_array_size(fk_jobs()); i-- > 0;)
        if (fk_i(json_array_get(fk_jobs(), i), "id") == id)
            json_array_remove(fk_jobs(), i); /* an old one of the same number */
    fk_set_i(fk_root(), "next_id", id + 1);
    fk_set_i(fk_root(), "next_seq", seq + 1);
    char *cluster = fk_knob("cluster");
    fk_set_s(fk_root(), "cluster", cluster != NULL ? cluster : "");
    free(cluster);
    spool_script(j, script);
    json_array_append(fk_jobs(), j);
    fk_save(); /* before the history: a test that reads of a job may kill this command */
    fk_append("history", "%.3f submit %lld %s %s\n", fk_now(), id, fk_s(j, "name"),
              fk_s(j, "comment"));
    fk_ctld_ensure();
    fk_leave();
    return id;
}

/* ---- troubles ---- */

static void troubles_before(void)
{
    char *text;
    if (fk_down())
        fk_refuse(FK_DOWN);
    if (fk_knob_take("sbatch_refuse", &text)) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
    if (fk_knob_take("sbatch_nowhere", NULL)) { /* without slurm.conf and without an entry in DNS */
        fputs("sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
              "sbatch: error: fetch_config: DNS SRV lookup failed\n"
              "sbatch: error: _establish_config_source: failed to fetch config\n"
              "sbatch: fatal: Could not establish a configuration source\n",
              stderr);
        exit(1);
    }
    if (fk_knob_take("sbatch_lost", NULL))
        fk_refuse("Socket timed out on send/recv operation");
}

static void troubles_after(void)
{
    char *text;
    if (fk_knob_take("sbatch_timeout", NULL))
        fk_refuse("Socket timed out on send/recv operation");
    if (fk_knob_take("sbatch_hang", NULL))
        for (;;)
            pause();
    if (fk_knob_take("sbatch_silent",
                     NULL)) /* exit 0 and no id: a site's wrapper that eats the output */
        exit(0);
    if (fk_knob_take("sbatch_chatter", &text))
        fputs(text[0] != '\0' ? text
                              : "-----------------------------\nYour balance in "
                                "hours:\n4711\nsbatch: Verify: OK\n",
              stdout);
}

/* A controller that stands still: sbatch gives up, its request lies in the socket and is served
 * when it goes on. */
static void submit_later(json_t *j, const json_t *o, const char *script)
{
    char *text;
    if (!fk_knob_take("sbatch_late", &text))
        return;
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        for (int fd = 0; fd < 256; fd++)
            close(fd);
        if (text[0] == '/') /* until the test makes this file; not for ever, should it have died */
            for (int i = 0; i < 60000 && access(text, F_OK) != 0; i++)
                usleep(20000);
        else
            usleep((useconds_t)(strtod(text, NULL) * 1e6));
        enter_job(j, o, script);
        _exit(0);
    }
    fk_refuse("Socket timed out on send/recv operation");
}

int fk_sbatch(int argc, char **argv)
{
    json_t *o = json_object(), *cmdline = json_object();
    int at = fk_parse(cmdline, fk_sbatch_opts, argc, argv);
    if (fk_get(cmdline, "version") != NULL) {
        puts(FK_VERSION);
        return 0;
    }
    const char *path = at < argc ? argv[at] : NULL;
    char *script = load_script(path);
    directives(o, script);
    fk_parse_env(o, fk_sbatch_opts);
    json_object_update(o, cmdline);
    fk_sbatch_check(o);
    json_t *j = make_job(o, path, argc - at - 1 > 0 ? argc - at - 1 : 0, argv + at + 1);
    if (fk_get(o, "test-only") != NULL) {
        char when[32];
        if (fk_down())
            fk_die(1, "error: %s", FK_DOWN);
        fk_time(when, sizeof when, fk_now());
        fprintf(stderr,
                "sbatch: Job 1 to start at %s using %lld processors on nodes n0 in partition %s\n",
                when, fk_i(j, "cpus"), fk_s(j, "partition"));
        return 0;
    }
    troubles_before();
    submit_later(j, o, script);
    long long id = enter_job(j, o, script);
    troubles_after();
    char *cluster = fk_knob("cluster");
    if (fk_get(o, "parsable") == NULL)
        printf("Submitted batch job %lld\n", id);
    else if (cluster != NULL)
        printf("%lld;%s\n", id, cluster);
    else
        printf("%lld\n", id);
    free(cluster);
    return 0;
}
