/* SPDX-License-Identifier: Apache-2.0
 *
 * qsub of both flavours.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PBS_OPTS    "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:q:r:R:S:u:v:VW:XzP:"
#define TORQUE_OPTS "a:A:b:c:C:d:D:e:EfF:hi:Ij:J:k:K:l:L:m:M:nN:o:p:P:q:r:S:t:T:u:v:Vw:W:Xxz"

struct request {
    json_t *job, *resources;
    bool hold;
    char vars[16384];
    char out[PATH_MAX];
};

static void usage(void)
{
    fprintf(stderr, "usage: qsub [-a date_time] [-A account_string] [-c interval]\n\t...\n");
    exit(2);
}

static void illegal(int c)
{
    die(1, "illegal -%c value", c);
}

static void text(struct request *q, const char *key, const char *value)
{
    json_object_set_new(q->job, key, json_string(value));
}

static void take_name(struct request *q, const char *v)
{
    long max = conf_num("name_max", 15);
    bool ok = strlen(v) > 0 && strlen(v) <= (size_t)max && isalpha((unsigned char)v[0]) &&
              strchr(v, '/') == NULL;
    for (const char *p = v; *p != '\0'; p++)
        ok = ok && isgraph((unsigned char)*p);
    if (!ok)
        illegal('N');
    text(q, "Job_Name", v);
}

static bool only(const char *v, const char *letters)
{
    return v[0] != '\0' && v[strspn(v, letters)] == '\0';
}

static bool bool_ok(const char *v)
{
    return strcmp(v, "true") == 0 || strcmp(v, "false") == 0 || strcmp(v, "True") == 0 ||
           strcmp(v, "False") == 0;
}

static void take_attr(struct request *q, const char *name, const char *v)
{
    if (strcmp(name, "depend") == 0) {
        if (!depend_valid(v))
            illegal('W');
        text(q, "depend", v);
    } else if (strcmp(name, "umask") == 0 || strcmp(name, "group_list") == 0) {
        text(q, name, v);
    } else if (!conf_torque() && strcmp(name, "block") == 0 && bool_ok(v)) {
        die(FAKE_NOT_MODELLED, "-W block is not modelled");
    } else if (!conf_torque() &&
               (strcmp(name, "sandbox") == 0 || strcmp(name, "tolerate_node_failures") == 0)) {
        text(q, name, v);
    } else if (conf_torque() && strcmp(name, "x") == 0) {
        text(q, name, v);
    } else {
        fprintf(stderr, "qsub: Undefined attribute  %s\n", name);
        exit(EXIT_REFUSED);
    }
}

/* "depend=afterok:1,afterany:2,umask=022": a comma begins an attribute only where name= follows. */
static void take_attrs(struct request *q, const char *v)
{
    char copy[8192];
    snprintf(copy, sizeof copy, "%s", v);
    for (char *p = copy; *p != '\0';) {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
        if (n == 0 || p[n] != '=')
            illegal('W');
        p[n] = '\0';
        char *value = p + n + 1, *end = value;
        for (;;) {
            end += strcspn(end, ",");
            if (*end == '\0')
                break;
            size_t m = strspn(end + 1, "abcdefghijklmnopqrstuvwxyz_");
            if (m > 0 && end[1 + m] == '=')
                break;
            end++;
        }
        bool more = *end == ',';
        *end = '\0';
        take_attr(q, p, value);
        p = more ? end + 1 : end;
    }
}

/* NAME or NAME=VALUE, comma-separated; a comma in a value is escaped with a backslash. */
static void take_vars(struct request *q, const char *v)
{
    for (const char *p = v; *p != '\0';) {
        size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        if (n == 0 || isdigit((unsigned char)p[0]))
            illegal('v');
        size_t end = n;
        while (p[end] != '\0' && p[end] != ',')
            end += p[end] == '\\' && p[end + 1] != '\0' ? 2 : 1;
        char item[4096];
        if (p[n] == '=') {
            snprintf(item, sizeof item, ",%.*s", (int)end, p);
        } else {
            char name[256];
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            if (end != n)
                illegal('v');
            snprintf(item, sizeof item, ",%s=%s", name, getenv(name) != NULL ? getenv(name) : "");
        }
        strncat(q->vars, item, sizeof q->vars - strlen(q->vars) - 1);
        p += end + (p[end] == ',');
    }
}

static void take_rest(struct request *q, int c, const char *v);

static void take(struct request *q, int c, const char *v)
{
    switch (c) {
    case 'A':
        text(q, "Account_Name", v);
        break;
    case 'h':
        q->hold = true;
        break;
    case 'l':
        resources_take(q->resources, v, false, NULL);
        break;
    case 'N':
        take_name(q, v);
        break;
    case 'q':
        text(q, "queue", v);
        break;
    case 'v':
        take_vars(q, v);
        break;
    case 'W':
        take_attrs(q, v);
        break;
    case 'S':
        if (v[0] != '/')
            illegal('S');
        text(q, "Shell_Path_List", v);
        break;
    case 'j':
        if (strcmp(v, "oe") != 0 && strcmp(v, "eo") != 0 && strcmp(v, "n") != 0)
            illegal('j');
        text(q, "Join_Path", v);
        break;
    case 'o':
        snprintf(q->out, sizeof q->out, "%s", v);
        break;
    case 'e':
        text(q, "Error_Path", v);
        break;
    case 'm':
        if (strcmp(v, "n") != 0 && !only(v, conf_torque() ? "abefp" : "jabe"))
            illegal('m');
        text(q, "Mail_Points", v);
        break;
    case 'M':
        text(q, "Mail_Users", v);
        break;
    default:
        take_rest(q, c, v);
        break;
    }
}

static void take_rest(struct request *q, int c, const char *v)
{
    switch (c) {
    case 'r':
        if (strcmp(v, "y") != 0 && strcmp(v, "n") != 0)
            illegal('r');
        text(q, "Rerunable", v[0] == 'y' ? "True" : "False");
        break;
    case 'p':
        if (strtol(v, NULL, 10) < -1024 || strtol(v, NULL, 10) > 1023)
            illegal('p');
        text(q, "Priority", v);
        break;
    case 'P':
        text(q, conf_torque() ? "proxy_user" : "project", v);
        break;
    case 'k':
        if (!only(v, conf_torque() ? "eon" : "eodn"))
            illegal('k');
        text(q, "Keep_Files", v);
        break;
    case 'n':
        text(q, "node_exclusive", "True");
        break;
    case 'F':
        text(q, "_args", v);
        break;
    case 'd':
    case 'w':
        text(q, "init_work_dir", v);
        break;
    case 'f':
        break;
    case 'V':
        die(FAKE_NOT_MODELLED, "-V would export the whole environment");
    case '?':
        usage();
        break;
    default:
        die(FAKE_NOT_MODELLED, "-%c is not modelled", c);
    }
}

static void options(struct request *q, int argc, char **argv)
{
    int c;
    opterr = 1;
    optind = 1;
    char opts[160];
    snprintf(opts, sizeof opts, "+%s", conf_torque() ? TORQUE_OPTS : PBS_OPTS);
    while ((c = getopt(argc, argv, opts)) != -1)
        take(q, c, optarg != NULL ? optarg : "");
}

/* #PBS lines up to the first command. Words are split at spaces, as the real ones do. */
static void directives(struct request *q, const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    if (f == NULL)
        die(1, "script file:: No such file or directory");
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "#PBS ", 5) != 0) {
            if (line[0] != '#' && line[strspn(line, " \t")] != '\0')
                break;
            continue;
        }
        char name[] = "qsub", *argv[64] = {name}, *save = NULL;
        int n = 1;
        for (char *w = strtok_r(line + 5, " \t", &save); w != NULL && n < 63;
             w = strtok_r(NULL, " \t", &save))
            argv[n++] = w;
        int keep = optind;
        options(q, n, argv);
        optind = keep;
    }
    fclose(f);
}

static void keep_script(struct request *q, const char *path, int seq)
{
    char to[BIG_PATH], block[8192];
    snprintf(to, sizeof to, "%s/scripts/%d.SC", fake_dir, seq);
    FILE *in = fopen(path, "r"), *out = fopen(to, "w");
    size_t n;
    while (in != NULL && out != NULL && (n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, out);
    if (in == NULL || out == NULL)
        die(1, "cannot copy %s", path);
    fclose(in);
    fclose(out);
    chmod(to, 0700);
    text(q, "_script", to);
}

static void surroundings(struct request *q)
{
    char cwd[PATH_MAX], item[BIG_PATH];
    static const char *const from[][2] = {{"HOME", "PBS_O_HOME"},
                                          {"LANG", "PBS_O_LANG"},
                                          {"LOGNAME", "PBS_O_LOGNAME"},
                                          {"PATH", "PBS_O_PATH"},
                                          {"SHELL", "PBS_O_SHELL"}};
    if (getcwd(cwd, sizeof cwd) == NULL)
        die(1, "cannot find the working directory");
    char list[16384];
    snprintf(list, sizeof list, "PBS_O_WORKDIR=%s,PBS_O_SYSTEM=Linux,PBS_O_HOST=%s,PBS_O_QUEUE=%s",
             cwd, conf_server(), job_str(q->job, "queue"));
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        if (getenv(from[i][0]) == NULL)
            continue;
        snprintf(item, sizeof item, ",%s=%s", from[i][1], getenv(from[i][0]));
        strncat(list, item, sizeof list - strlen(list) - 1);
    }
    strncat(list, q->vars, sizeof list - strlen(list) - 1);
    text(q, "Variable_List", list);
    char out[BIG_PATH];
    snprintf(out, sizeof out, "%s:%s%s%s", conf_server(), q->out[0] == '/' ? "" : cwd,
             q->out[0] == '/' ? "" : "/", q->out);
    text(q, "Output_Path", out);
}

static void check_queue(struct request *q)
{
    if (job_str(q->job, "queue")[0] == '\0')
        text(q, "queue", "workq");
    char known[512];
    snprintf(known, sizeof known, " %s ", conf_str("queues", "workq"));
    char want[300];
    snprintf(want, sizeof want, " %s ", job_str(q->job, "queue"));
    if (strstr(known, want) == NULL)
        die(170, "Unknown queue");
}

static void check_limits(struct request *q)
{
    char said[512];
    if (knob("qsub_refuse", said, sizeof said)) {
        fprintf(stderr, "qsub: %s\n", said);
        exit(188);
    }
    long max = conf_num("max_queued", 100000), n = 0;
    const char *key;
    json_t *job;
    json_object_foreach(state_jobs(), key, job) n += !job_over(job);
    if (n >= max)
        die(46 + 15000 % 256, "would exceed queue generic's per-user limit");
    (void)q;
}

static int enter(struct request *q, const char *script, int argc, char **argv)
{
    char id[300], key[32];
    state_lock();
    check_queue(q);
    check_limits(q);
    int seq = state_next_id();
    snprintf(key, sizeof key, "%d", seq);
    job_id_text(id, sizeof id, seq);
    if (script != NULL)
        keep_script(q, script, seq);
    if (argc > 0) {
        json_t *words = json_array();
        for (int i = 0; i < argc; i++)
            json_array_append_new(words, json_string(argv[i]));
        json_object_set_new(q->job, "_argv", words);
    }
    surroundings(q);
    char owner[300];
    snprintf(owner, sizeof owner, "%s@%s", conf_str("user", "user"), conf_server());
    text(q, "Job_Owner", owner);
    text(q, "server", conf_server());
    text(q, "_id", id);
    json_object_set_new(q->job, "_seq", json_integer(seq));
    json_object_set_new(q->job, "_met", json_object());
    json_object_set_new(q->job, "ctime", json_integer((json_int_t)now_s()));
    json_object_set(q->job, "Resource_List", q->resources);
    bool waits = job_str(q->job, "depend")[0] != '\0';
    if (q->hold)
        json_object_set_new(q->job, "_user_hold", json_true());
    text(q, "Hold_Types", waits && q->hold ? "us" : waits ? "s" : q->hold ? "u" : "n");
    job_set_state(q->job, waits || q->hold ? 'H' : 'Q', waits ? 22 : q->hold ? 20 : 10);
    json_object_set(state_jobs(), key, q->job);
    settle();
    state_unlock(true);
    return seq;
}

int qsub_main(int argc, char **argv)
{
    struct request q;
    memset(&q, 0, sizeof q);
    q.job = json_object();
    q.resources = json_object();
    char id[300], value[1024];
    const char *script = NULL;
    int first = argc;
    options(&q, argc, argv);
    bool program = optind > 0 && optind < argc && strcmp(argv[optind - 1], "--") == 0;
    if (program && conf_torque())
        usage(); /* there is no such form */
    fake_unreachable();
    if (program) {
        first = optind;
        if (job_str(q.job, "Job_Name")[0] == '\0')
            text(&q, "Job_Name", "STDIN");
    } else if (optind + 1 == argc) {
        script = argv[optind];
        struct request fromfile =
            q; /* the command line wins: the script's lines are read first into a fresh request */
        fromfile.job = json_object();
        fromfile.resources = json_object();
        fromfile.vars[0] = fromfile.out[0] = '\0';
        directives(&fromfile, script);
        json_object_update(fromfile.job, q.job);
        json_object_update(fromfile.resources, q.resources);
        strncat(fromfile.vars, q.vars, sizeof fromfile.vars - strlen(fromfile.vars) - 1);
        if (q.out[0] != '\0')
            snprintf(fromfile.out, sizeof fromfile.out, "%s", q.out);
        fromfile.hold |= q.hold;
        q = fromfile;
        const char *base = strrchr(script, '/') != NULL ? strrchr(script, '/') + 1 : script;
        if (job_str(q.job, "Job_Name")[0] == '\0')
            take_name(&q, base);
    } else if (optind < argc) {
        usage();
    } else {
        die(FAKE_NOT_MODELLED, "a script on standard input is not modelled");
    }
    if (knob("qsub_before", value, sizeof value)) /* slow before it does anything */
        sleep((unsigned)strtoul(value, NULL, 10));
    int seq = enter(&q, script, argc - first, argv + first);
    if (knob("qsub_late", value, sizeof value)) /* accepted, and then no answer */
        sleep((unsigned)strtoul(value, NULL, 10));
    if (knob("qsub_lost", NULL, 0)) /* accepted, and then the connection broke */
        die(1, "End of File");
    if (knob("qsub_chatter", value, sizeof value))
        printf("%s\n", value);
    job_id_text(id, sizeof id, seq);
    printf("%s\n", id);
    return 0;
}
