/* SPDX-License-Identifier: Apache-2.0
 *
 * qstat and qselect: OpenPBS prints text, wide text, delimited values or JSON; Torque text,
 * unwrapped text or XML.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum format { SHORT, TEXT, WIDE, DSV, JSON, XML };

struct ask {
    enum format format;
    bool history;
    const char *delim, *user;
};

static void usage(void)
{
    fprintf(stderr, "usage: \n%s [-f] ... [ job_identifier... | destination... ]\n", fake_me);
    exit(2);
}

/* ---- attributes ---- */

static bool is_time(const char *key)
{
    static const char *const times[] = {"ctime", "mtime", "stime", "qtime", "etime"};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (strcmp(key, times[i]) == 0)
            return true;
    return false;
}

static const char *value_text(char *buf, size_t cap, const char *key, const json_t *v)
{
    if (json_is_integer(v) && is_time(key)) {
        time_t t = (time_t)json_integer_value(v);
        struct tm tm;
        localtime_r(&t, &tm);
        strftime(buf, cap, "%a %b %e %H:%M:%S %Y", &tm);
        return buf;
    }
    if (json_is_integer(v)) {
        snprintf(buf, cap, "%lld", (long long)json_integer_value(v));
        return buf;
    }
    return json_string_value(v) != NULL ? json_string_value(v) : "";
}

/* Lines of 80 columns, broken behind a comma where there is one; a tab begins what continues. */
static void print_wrapped(const char *name, const char *value)
{
    size_t col = (size_t)printf("    %s = ", name);
    bool first = true;
    for (const char *p = value; *p != '\0';) {
        size_t n = strcspn(p, ",");
        n += p[n] == ',';
        if (col + n >= 79 && !first) {
            printf("\n\t");
            col = 9;
        }
        for (size_t i = 0; i < n; i++, col++) {
            if (col > 79) {
                printf("\n\t");
                col = 8;
            }
            putchar(p[i]);
        }
        p += n;
        first = false;
    }
    putchar('\n');
}

static void print_attr(const struct ask *a, const char *name, const char *value)
{
    if (a->format == TEXT) {
        print_wrapped(name, value);
    } else if (a->format == WIDE) {
        printf("    %s = %s\n", name, value);
    } else if (a->format == XML) {
        printf("<%s>", name);
        for (const char *p = value; *p != '\0'; p++)
            *p == '<'   ? (void)fputs("&lt;", stdout)
            : *p == '>' ? (void)fputs("&gt;", stdout)
            : *p == '&' ? (void)fputs("&amp;", stdout)
                        : (void)putchar(*p);
        printf("</%s>", name);
    } else {
        printf("%s%s=", a->delim, name);
        for (const char *p = value; *p != '\0'; p++) {
            if (strncmp(p, a->delim, strlen(a->delim)) == 0)
                putchar('\\');
            putchar(*p);
        }
    }
}

static void print_full(const struct ask *a, json_t *job)
{
    const char *key, *name;
    json_t *v, *r;
    char buf[64], full[256];
    if (a->format == XML)
        printf("<?xml version=\"1.0\"?>\n<Data><Job><Job_Id>%s</Job_Id>", job_str(job, "_id"));
    else
        printf(a->format == DSV ? "Job Id: %s" : "Job Id: %s\n", job_str(job, "_id"));
    json_object_foreach(job, key, v)
    {
        if (key[0] == '_')
            continue;
        if (json_is_object(v)) {
            if (a->format == XML)
                printf("<%s>", key);
            json_object_foreach(v, name, r)
            {
                snprintf(full, sizeof full, "%s.%s", key, name);
                print_attr(a, a->format == XML ? name : full, value_text(buf, sizeof buf, name, r));
            }
            if (a->format == XML)
                printf("</%s>", key);
        } else {
            print_attr(a, key, value_text(buf, sizeof buf, key, v));
        }
    }
    printf(a->format == XML ? "</Job></Data>\n" : "\n");
}

static json_t *json_of(json_t *job)
{
    json_t *o = json_object(), *v;
    const char *key;
    json_object_foreach(job, key, v) if (key[0] != '_') json_object_set(o, key, v);
    return o;
}

static void print_short(const json_t *job)
{
    static bool header;
    if (!header)
        printf("Job id            Name             User              Time Use S Queue\n"
               "----------------  ---------------- ----------------  -------- - -----\n");
    header = true;
    printf("%-16.16s  %-16.16s %-16.16s  %8s %c %s\n", job_str(job, "_id"),
           job_str(job, "Job_Name"), conf_str("user", "user"), "00:00:00", job_state(job),
           job_str(job, "queue"));
}

/* ---- jobs ---- */

static void show(const struct ask *a, json_t *job, json_t *jobs)
{
    if (a->format == SHORT)
        print_short(job);
    else if (a->format == JSON && json_object_size(jobs) == 0)
        json_object_set_new(jobs, job_str(job, "_id"),
                            json_of(job)); /* several: the first only, as the real one */
    else if (a->format != JSON)
        print_full(a, job);
}

static int show_id(const struct ask *a, const char *word, json_t *jobs)
{
    bool bad;
    json_t *job = job_find(word, &bad);
    if (bad) {
        fprintf(stderr, "qstat: illegally formed job identifier: %s\n", word);
        return 1;
    }
    if (job == NULL) {
        fprintf(stderr, "qstat: Unknown Job Id %s%s%s\n", word,
                strchr(word, '.') == NULL ? "." : "",
                strchr(word, '.') == NULL ? conf_server() : "");
        return EXIT_UNKNOWN_ID;
    }
    if (!conf_torque() && job_over(job) && !a->history) {
        fprintf(stderr,
                "qstat: %s Job has finished, use -x or -H to obtain historical job information\n",
                word);
        return EXIT_FINISHED;
    }
    show(a, job, jobs);
    return 0;
}

static void options(struct ask *a, int argc, char **argv)
{
    bool full = false, wide = false, one = false, x = false;
    int c;
    while ((c = getopt(argc, argv,
                       conf_torque() ? "acCeE:filn1pqrstu:xGMQRBW:"
                                     : "aEinpqrstwxu:fGHJMQBW:T1F:D:")) != -1)
        switch (c) {
        case 'f':
            full = true;
            break;
        case 'w':
            wide = true;
            break;
        case '1':
            one = true;
            break;
        case 'x':
            x = true;
            break;
        case 'D':
            a->delim = optarg;
            break;
        case 'F':
            if (strcmp(optarg, "json") != 0 && strcmp(optarg, "dsv") != 0)
                usage();
            a->format = optarg[0] == 'j' ? JSON : DSV;
            break;
        case '?':
            usage();
            break;
        default:
            die(FAKE_NOT_MODELLED, "-%c is not modelled", c);
        }
    if (one && (!full || !conf_torque()))
        usage(); /* PBS has -1 with -n and -s only */
    if (a->format != SHORT && !full)
        usage();
    if (full && a->format == SHORT)
        a->format = wide || one ? WIDE : TEXT;
    if (conf_torque() && x)
        a->format = XML;
    else
        a->history = x;
}

int qstat_main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        if (conf_torque())
            fprintf(stderr, "Version: %s\nCommit: 0123456789abcdef\n",
                    conf_str("version", "6.1.2"));
        else
            printf("pbs_version = %s\n", conf_str("version", "23.06.06"));
        return 0;
    }
    struct ask a = {.format = SHORT, .delim = "|"};
    options(&a, argc, argv);
    fake_unreachable();
    state_lock();
    settle(); /* a real server starts jobs by itself */
    json_t *jobs = json_object(), *job;
    const char *key;
    int code = 0;
    if (optind == argc)
        json_object_foreach(state_jobs(), key, job) if (conf_torque() || a.history ||
                                                        !job_over(job)) show(&a, job, jobs);
    for (int i = optind; i < argc; i++) {
        int rc = show_id(&a, argv[i], jobs);
        code = rc != 0 ? rc : code;
    }
    state_unlock(true);
    if (a.format == JSON) {
        json_t *o =
            json_pack("{s:I, s:s, s:s, s:o}", "timestamp", (json_int_t)now_s(), "pbs_version",
                      conf_str("version", "23.06.06"), "pbs_server", conf_server(), "Jobs", jobs);
        json_dumpf(o, stdout, JSON_INDENT(4));
        putchar('\n');
    }
    return code;
}

int qselect_main(int argc, char **argv)
{
    const char *name = NULL, *states = NULL, *user = NULL;
    bool history = false;
    int c;
    while ((c = getopt(argc, argv,
                       conf_torque() ? "a:A:ec:h:l:N:p:q:r:s:u:"
                                     : "a:A:c:h:HJl:N:p:q:r:s:t:Tu:xP:")) != -1)
        switch (c) {
        case 'N':
            name = optarg;
            break;
        case 's':
            states = optarg;
            break;
        case 'u':
            user = optarg;
            break;
        case 'x':
            history = true;
            break;
        case '?':
            usage();
            break;
        default:
            die(FAKE_NOT_MODELLED, "-%c is not modelled", c);
        }
    if (optind < argc)
        usage();
    fake_unreachable();
    state_lock();
    const char *key;
    json_t *job;
    json_object_foreach(state_jobs(), key, job)
    {
        if ((job_over(job) && !history && !(conf_torque() && states != NULL)) ||
            (name != NULL && strcmp(name, job_str(job, "Job_Name")) != 0) ||
            (states != NULL && strchr(states, job_state(job)) == NULL) ||
            (user != NULL && strcmp(user, conf_str("user", "user")) != 0))
            continue;
        printf("%s\n", job_str(job, "_id"));
    }
    state_unlock(false);
    return 0;
}
