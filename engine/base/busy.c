/* SPDX-License-Identifier: Apache-2.0
 *
 * Load of a machine, and cores that a process did not get.
 */
#include "config.h"

#include "engine/base/busy.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/sys.h"

#define SPAN_S 30.0

double lf_busy_others(const char *loadavg)
{
    double mean = 0;
    long ready = 0;
    if (sscanf(loadavg, "%lf %*f %*f %ld/", &mean, &ready) != 2 || mean < 0 || ready < 0)
        return -1;
    const double now = ready > 1 ? (double)(ready - 1) : 0;
    return mean < now ? mean : now;
}

bool lf_busy_crowded(double others, int cores, int allowed)
{
    return others > 0 && others + 0.75 * (double)allowed > (double)cores;
}

static double span(void)
{
    const char *text = getenv(LF_BUSY_ENV);
    char *end;
    const double s = text != NULL ? strtod(text, &end) : SPAN_S;
    return text == NULL || (end != text && *end == '\0' && s >= 0) ? s : SPAN_S;
}

bool lf_busy_machine(char *text, size_t cap)
{
    char line[128] = "";
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    FILE *f = fopen("/proc/loadavg", "re");
    const bool read = f != NULL && fgets(line, sizeof line, f) != NULL;
    if (f != NULL)
        fclose(f);
    const double others = read ? lf_busy_others(line) : -1;
    if (cores <= 0 || span() <= 0 || !lf_busy_crowded(others, (int)cores, lf_ncpu()))
        return false;
    snprintf(
        text, cap,
        "note: others keep this machine busy (%.1f of their threads want its %ld cores): stages "
        "take longer than they would alone",
        others, cores);
    return true;
}

bool lf_busy_now(lf_busy_time *out)
{
    DIR *d = opendir("/proc/self/task");
    const struct dirent *e;
    bool any = false;
    *out = (lf_busy_time){.ran = 0};
    while (d != NULL && (e = readdir(d)) != NULL) {
        char path[300];
        double ran, waited; /* nanoseconds */
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (f == NULL)
            continue;
        if (fscanf(f, "%lf %lf", &ran, &waited) == 2) {
            out->ran += ran / 1e9;
            out->waited += waited / 1e9;
            any = true;
        }
        fclose(f);
    }
    if (d != NULL)
        closedir(d);
    return any;
}

bool lf_busy_waited(lf_busy_time begin, lf_busy_time end, double span_s)
{
    const double ran = end.ran - begin.ran, waited = end.waited - begin.waited;
    return ran >= 0 && waited >= 0 && ran + waited > 0.5 * span_s && waited > (ran + waited) / 3;
}

bool lf_busy_look(char *text, size_t cap)
{
    /* Of the process, as its threads are. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        bool begun, told;
        double t;
        lf_busy_time at;
    } last;
    bool tell = false;
    const double now = lf_now_s(), every = span();
    lf_busy_time is;
    pthread_mutex_lock(&lock);
    if (!last.told && every > 0 && (!last.begun || now - last.t >= every)) {
        if (!lf_busy_now(&is))
            last.told = true; /* nobody will ever know */
        else if (last.begun && lf_busy_waited(last.at, is, now - last.t))
            tell = last.told = true;
        if (tell)
            snprintf(text, cap,
                     "note: others keep the cores busy: the threads of this process waited for one "
                     "%.0f %% of the time in which they had work",
                     100 * (is.waited - last.at.waited) /
                         (is.waited - last.at.waited + is.ran - last.at.ran));
        last.begun = true;
        last.t = now;
        last.at = is;
    }
    pthread_mutex_unlock(&lock);
    return tell;
}
