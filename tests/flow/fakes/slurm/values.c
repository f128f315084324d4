/* SPDX-License-Identifier: Apache-2.0
 *
 * Times, sizes, signals and file name patterns as SLURM writes them.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/flow/fakes/slurm/fk.h"

bool fk_int_in(long long *v, const char *text, long long lo, long long hi)
{
    char *end = NULL;
    errno = 0;
    *v = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && !isspace((unsigned char)text[0]) &&
           *v >= lo && *v <= hi;
}

/* minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] */
long long fk_minutes(const char *text)
{
    long long days = 0, part[3] = {0, 0, 0};
    int n = 0;
    char copy[64], *dash, *p, *save = NULL;
    if (strcasecmp(text, "UNLIMITED") == 0 || strcasecmp(text, "infinite") == 0 ||
        strcmp(text, "-1") == 0)
        return -1;
    if (text[0] == '\0' || strlen(text) >= sizeof copy ||
        strspn(text, "0123456789:-") != strlen(text))
        fk_die(1, "error: Invalid --time specification");
    snprintf(copy, sizeof copy, "%s", text);
    dash = strchr(copy, '-');
    if (dash != NULL) {
        *dash = '\0';
        if (!fk_int_in(&days, copy, 0, 100000))
            fk_die(1, "error: Invalid --time specification");
    }
    for (p = strtok_r(dash != NULL ? dash + 1 : copy, ":", &save); p != NULL;
         p = strtok_r(NULL, ":", &save))
        if (n == 3 || !fk_int_in(&part[n++], p, 0, 10000000))
            fk_die(1, "error: Invalid --time specification");
    if (n == 0)
        fk_die(1, "error: Invalid --time specification");
    long long s = dash != NULL ? days * 86400 + part[0] * 3600 + part[1] * 60 + part[2]
                  : n == 1     ? part[0] * 60
                  : n == 2     ? part[0] * 60 + part[1]
                               : part[0] * 3600 + part[1] * 60 + part[2];
    return (s + 59) / 60;
}

bool fk_mem_mb(long long *mb, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || v < 0 || !isdigit((unsigned char)text[0]))
        return false;
    long long scale_kb = 1024;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        scale_kb = 1;
        break;
    case 'M':
    case '\0':
        break;
    case 'G':
        scale_kb = 1024 * 1024;
        break;
    case 'T':
        scale_kb = 1024 * 1024 * 1024;
        break;
    default:
        return false;
    }
    if (*end != '\0' && (end[1] == 'B' || end[1] == 'b'))
        end++;
    if (*end != '\0' && end[1] != '\0')
        return false;
    *mb = (v * scale_kb + 1023) / 1024;
    return true;
}

int fk_signal_number(const char *text)
{
    static const struct {
        const char *name;
        int n;
    } names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ABRT", SIGABRT},
                 {"KILL", SIGKILL}, {"ALRM", SIGALRM}, {"TERM", SIGTERM}, {"USR1", SIGUSR1},
                 {"USR2", SIGUSR2}, {"URG", SIGURG},   {"CONT", SIGCONT}, {"STOP", SIGSTOP},
                 {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU}};
    long long v;
    if (fk_int_in(&v, text, 1, 64))
        return (int)v;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(names[i].name, text) == 0)
            return names[i].n;
    return 0;
}

void fk_time(char *buf, size_t cap, double t)
{
    time_t s = (time_t)t;
    struct tm tm;
    const char *fmt = getenv("SLURM_TIME_FORMAT");
    if (t <= 0) {
        snprintf(buf, cap, "N/A");
        return;
    }
    localtime_r(&s, &tm);
    bool standard = fmt == NULL || *fmt == '\0' || strcmp(fmt, "standard") == 0;
    if (strftime(buf, cap, standard ? "%Y-%m-%dT%H:%M:%S" : "%H:%M", &tm) ==
        0) /* "relative", of today */
        snprintf(buf, cap, "?");
}

void fk_elapsed(char *buf, size_t cap, double s)
{
    long t = s > 0 ? (long)s : 0;
    if (t >= 86400)
        snprintf(buf, cap, "%ld-%02ld:%02ld:%02ld", t / 86400, t / 3600 % 24, t / 60 % 60, t % 60);
    else if (t >= 3600)
        snprintf(buf, cap, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(buf, cap, "%ld:%02ld", t / 60, t % 60);
}

double fk_time_parse(const char *text)
{
    time_t now = (time_t)fk_now();
    struct tm tm;
    localtime_r(&now, &tm);
    if (strncmp(text, "now", 3) == 0) {
        static const struct {
            const char *unit;
            long s;
        } units[] = {{"", 1},         {"seconds", 1},  {"minutes", 60},
                     {"hours", 3600}, {"days", 86400}, {"weeks", 7 * 86400}};
        char *end = NULL;
        if (text[3] == '\0')
            return (double)now;
        long n = strtol(text + 4, &end, 10);
        if ((text[3] != '-' && text[3] != '+') || end == text + 4)
            return -1;
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (strcmp(end, units[i].unit) == 0)
                return (double)(text[3] == '-' ? now - n * units[i].s : now + n * units[i].s);
        return -1;
    }
    if (strcmp(text, "midnight") == 0 || strcmp(text, "today") == 0) {
        tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
        return (double)mktime(&tm);
    }
    memset(&tm, 0, sizeof tm);
    tm.tm_isdst = -1;
    const char *rest = strptime(text, "%Y-%m-%d", &tm);
    if (rest != NULL && *rest == 'T') {
        const char *t = strptime(rest + 1, "%H:%M:%S", &tm);
        rest = t != NULL ? t : strptime(rest + 1, "%H:%M", &tm);
    }
    return rest != NULL && *rest == '\0' ? (double)mktime(&tm) : -1;
}

static void put(char **out, size_t *n, size_t *cap, const char *s)
{
    size_t k = s != NULL ? strlen(s) : 0;
    if (k == 0)
        return;
    if (*n + k + 1 > *cap && (*out = realloc(*out, *cap = 2 * (*n + k + 1))) == NULL)
        fk_die(98, "out of memory");
    memcpy(*out + *n, s, k + 1);
    *n += k;
}

char *fk_expand(const char *pattern, const json_t *job)
{
    size_t n = 0, cap = 256;
    char *out = malloc(cap), num[32];
    if (out == NULL)
        fk_die(98, "out of memory");
    out[0] = '\0';
    if (strchr(pattern, '\\') != NULL) { /* a backslash anywhere switches the patterns off */
        for (const char *p = pattern; *p != '\0'; p++)
            if (*p != '\\')
                put(&out, &n, &cap, (char[]){*p, '\0'});
        return out;
    }
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p != '%' || p[1] == '\0') {
            put(&out, &n, &cap, (char[]){*p, '\0'});
            continue;
        }
        snprintf(num, sizeof num, "%lld", fk_i(job, "id"));
        switch (*++p) {
        case 'j':
        case 'A':
        case 'J':
            put(&out, &n, &cap, num);
            break;
        case 'a':
        case 'n':
        case 't':
            put(&out, &n, &cap, "0");
            break;
        case 'x':
            put(&out, &n, &cap, fk_s(job, "name"));
            break;
        case 'u':
            put(&out, &n, &cap, fk_s(job, "user"));
            break;
        case 's':
            put(&out, &n, &cap, "batch");
            break;
        case 'N':
            put(&out, &n, &cap,
                json_string_value(json_array_get(json_object_get(job, "node_list"), 0)));
            break;
        case 'b':
            snprintf(num, sizeof num, "%lld", fk_i(job, "id") % 10);
            put(&out, &n, &cap, num);
            break;
        case '%':
            put(&out, &n, &cap, "%");
            break;
        default: /* %r is of 25.11 */
            put(&out, &n, &cap, (char[]){'%', *p, '\0'});
        }
    }
    return out;
}
