/* SPDX-License-Identifier: Apache-2.0
 *
 * Resource requests: their grammar, which differs between PBS and Torque, and whether the nodes
 * have room.
 */
#include "tests/flow/fakes/pbs/pbs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 64

static bool in_list(const char *word, size_t len, const char *list)
{
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, " ");
        if (n == len && strncmp(p, word, n) == 0)
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static bool all_digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i]))
            return false;
    return n > 0;
}

static bool size_ok(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n > 0 && (s[n] == '\0' ||
                     in_list(s + n, strlen(s + n), "b kb mb gb tb pb w kw mw gw tw pw k m g t p"));
}

static long seconds(const char *s) /* -1: not a time */
{
    long total = 0;
    for (int parts = 0; parts < 3; parts++) {
        size_t n = strspn(s, "0123456789");
        if (n == 0 || n > 9)
            return -1;
        total = total * 60 + strtol(s, NULL, 10);
        s += n;
        if (*s == '\0')
            return total;
        if (*s++ != ':')
            return -1;
    }
    return -1;
}

static void no_resource(const char *name, size_t len)
{
    if (conf_torque())
        die(EXIT_RESOURCE, "submit error (Unknown resource type Resource_List.%.*s)", (int)len,
            name);
    die(EXIT_RESOURCE, "Unknown resource Resource_List.%.*s", (int)len, name);
}

/* name=value of a chunk or of the job. */
static void check_value(const char *name, size_t n, const char *value)
{
    char text[256];
    snprintf(text, sizeof text, "%s", value);
    bool ok = text[0] != '\0';
    if (in_list(name, n, "ncpus mpiprocs ompthreads ngpus nodect nice"))
        ok = all_digits(text, strlen(text));
    else if (in_list(name, n, "mem vmem pmem pvmem file"))
        ok = size_ok(text);
    else if (in_list(name, n, "walltime cput pcput min_walltime max_walltime"))
        ok = seconds(text) >= 0;
    if (!ok)
        die(EXIT_REFUSED, "Illegal attribute or resource value Resource_List.%.*s", (int)n, name);
}

static void check_select(const char *text)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    char *save1 = NULL, *save2 = NULL;
    if (copy[0] == '\0')
        die(EXIT_REFUSED, "Illegal attribute or resource value Resource_List.select");
    for (char *chunk = strtok_r(copy, "+", &save1); chunk != NULL;
         chunk = strtok_r(NULL, "+", &save1)) {
        bool first = true;
        for (char *p = strtok_r(chunk, ":", &save2); p != NULL;
             p = strtok_r(NULL, ":", &save2), first = false) {
            char *eq = strchr(p, '=');
            if (eq == NULL && first && all_digits(p, strlen(p)))
                continue;
            if (eq == NULL)
                die(EXIT_REFUSED, "Illegal attribute or resource value Resource_List.select");
            size_t n = (size_t)(eq - p);
            if (!in_list(p, n,
                         "ncpus mpiprocs ompthreads ngpus mem vmem host vnode arch nchunk "
                         "naccelerators accelerator_model") &&
                !in_list(p, n, conf_str("resources", "")))
                no_resource(p, n);
            check_value(p, n, eq + 1);
        }
    }
}

static void check_place(const char *text)
{
    char copy[256], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    int arrange = 0, share = 0, group = 0;
    for (char *p = strtok_r(copy, ":", &save); p != NULL; p = strtok_r(NULL, ":", &save)) {
        if (in_list(p, strlen(p), "free pack scatter vscatter"))
            arrange++;
        else if (in_list(p, strlen(p), "excl shared exclhost"))
            share++;
        else if (strncmp(p, "group=", 6) == 0 && p[6] != '\0')
            group++;
        else
            arrange = 9;
    }
    if (text[0] == ':' || text[0] == '\0' || arrange > 1 || share > 1 || group > 1)
        die(EXIT_REFUSED, "Illegal attribute or resource value Resource_List.place");
}

static void check_torque_nodes(const char *text)
{
    char copy[4096], *save1 = NULL, *save2 = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *spec = strtok_r(copy, "+", &save1); spec != NULL; spec = strtok_r(NULL, "+", &save1))
        for (char *p = strtok_r(spec, ":", &save2); p != NULL; p = strtok_r(NULL, ":", &save2)) {
            char *eq = strchr(p, '=');
            if (eq != NULL && (!in_list(p, (size_t)(eq - p), "ppn gpus mics procs") ||
                               !all_digits(eq + 1, strlen(eq + 1))))
                die(EXIT_REFUSED,
                    "submit error (Illegal attribute or resource value for Resource_List.nodes)");
        }
}

static long value_of(const char *text, const char *name, long preset)
{
    size_t n = strlen(name);
    for (const char *p = text; p != NULL;
         p = strpbrk(p, ":+") != NULL ? strpbrk(p, ":+") + 1 : NULL)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return strtol(p + n + 1, NULL, 10);
    return preset;
}

static long cores_of(const char *select)
{
    long n = strtol(select, NULL, 10);
    return (n > 0 ? n : 1) * value_of(select, conf_torque() ? "ppn" : "ncpus", 1);
}

/* An ordinary user may lower what was asked for, not raise it. */
static void only_lower(const char *name, const char *value, const json_t *job)
{
    const char *was = job_str(json_object_get(job, "Resource_List"), name);
    bool running = strchr("RE", job_state(job)) != NULL;
    if (running && strcmp(name, "walltime") != 0 && strcmp(name, "cput") != 0)
        die(EXIT_RUNNING, "Cannot modify attribute while job running  Resource_List.%s", name);
    bool raised = false;
    if (strcmp(name, "walltime") == 0)
        raised = was[0] != '\0' && seconds(value) > seconds(was);
    else if (strcmp(name, "select") == 0 || strcmp(name, "nodes") == 0)
        raised = cores_of(value) > cores_of(was[0] != '\0' ? was : "1") ||
                 strtol(value, NULL, 10) > strtol(was[0] != '\0' ? was : "1", NULL, 10);
    if (raised)
        die(EXIT_PERMISSION, "Unauthorized Request");
}

static bool known_for_job(const char *name, size_t n)
{
    if (conf_torque())
        return in_list(name, n,
                       "nodes walltime cput pcput mem vmem pmem pvmem ncpus nice file host other "
                       "arch opsys procs gres feature software "
                       "neednodes qos size");
    return in_list(name, n,
                   "select place nodes walltime cput pcput mem vmem pmem pvmem ncpus nodect nice "
                   "file host arch software ngpus "
                   "min_walltime max_walltime mpiprocs ompthreads") ||
           in_list(name, n, conf_str("resources", ""));
}

void resources_take(json_t *list, const char *text, bool alter, const json_t *job)
{
    char copy[8192], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(p, '=');
        size_t n = eq != NULL ? (size_t)(eq - p) : strlen(p);
        if (!known_for_job(p, n))
            no_resource(p, n);
        if (eq == NULL)
            die(EXIT_REFUSED, "illegal -l value");
        *eq = '\0';
        const char *value = eq + 1;
        if (strcmp(p, "select") == 0)
            check_select(value);
        else if (strcmp(p, "place") == 0)
            check_place(value);
        else if (strcmp(p, "nodes") == 0 && conf_torque())
            check_torque_nodes(value);
        else
            check_value(p, n, value);
        if (alter)
            only_lower(p, value, job);
        json_object_set_new(list, p, json_string(value));
    }
    if (json_object_get(list, "select") != NULL &&
        (json_object_get(list, "nodes") != NULL || json_object_get(list, "ncpus") != NULL))
        die(EXIT_REFUSED,
            "\"-lresource=\" cannot be used with \"select\" or \"place\", resource is: %s",
            json_object_get(list, "nodes") != NULL ? "nodes" : "ncpus");
}

long walltime_of(const json_t *job)
{
    const char *w = job_str(json_object_get(job, "Resource_List"), "walltime");
    return w[0] != '\0' ? seconds(w) : 0;
}

bool depend_valid(const char *text)
{
    char copy[8192], *save1 = NULL, *save2 = NULL;
    bool some = false, bad;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *d = strtok_r(copy, ",", &save1); d != NULL; d = strtok_r(NULL, ",", &save1)) {
        char *type = strtok_r(d, ":", &save2);
        if (type == NULL || !in_list(type, strlen(type), "after afterok afternotok afterany"))
            return false; /* before, on, runone: real ones have them, we never use them */
        int ids = 0;
        for (char *id = strtok_r(NULL, ":", &save2); id != NULL;
             id = strtok_r(NULL, ":", &save2), ids++) {
            char *at = strchr(id, '@');
            if (at != NULL)
                *at = '\0';
            job_find(id, &bad);
            if (bad)
                return false;
        }
        some = ids > 0;
        if (!some)
            return false;
    }
    return some;
}

/* ---- room on the nodes ---- */

static void usage(long used[MAX_NODES], bool excl[MAX_NODES])
{
    const char *key;
    json_t *job;
    memset(used, 0, MAX_NODES * sizeof *used);
    memset(excl, 0, MAX_NODES * sizeof *excl);
    json_object_foreach(state_jobs(), key, job)
    {
        json_t *nodes = json_object_get(job, "_nodes");
        for (size_t i = 0; i < json_array_size(nodes); i++) {
            size_t k = (size_t)json_integer_value(json_array_get(nodes, i)) % MAX_NODES;
            used[k] += job_num(job, "_per_chunk", 1);
            excl[k] |=
                strstr(job_str(json_object_get(job, "Resource_List"), "place"), "excl") != NULL;
        }
    }
}

bool resources_fit(json_t *job, bool *never)
{
    const json_t *r = json_object_get(job, "Resource_List");
    const char *what = job_str(r, conf_torque() ? "nodes" : "select"), *place = job_str(r, "place");
    long chunks = strtol(what, NULL, 10), per = value_of(what, conf_torque() ? "ppn" : "ncpus", 1);
    long n_nodes = conf_num("nodes", 2), cpus = conf_num("cpus", 8), used[MAX_NODES];
    bool excl[MAX_NODES], scatter = conf_torque() || strstr(place, "scatter") != NULL,
                          whole = strstr(place, "excl") != NULL;
    if (chunks < 1)
        chunks = 1;
    *never =
        per > cpus || (scatter && chunks > n_nodes) || (!scatter && chunks * per > n_nodes * cpus);
    if (*never || n_nodes > MAX_NODES)
        return false;
    usage(used, excl);
    json_t *nodes = json_array();
    for (long c = 0, k = 0; c < chunks && k < n_nodes;) {
        if (!excl[k] && used[k] + per <= cpus && !(whole && used[k] > 0 && (c == 0 || scatter))) {
            json_array_append_new(nodes, json_integer(k));
            used[k] += per;
            c++;
            k += scatter;
        } else {
            k++;
        }
    }
    bool ok = json_array_size(nodes) == (size_t)chunks;
    if (ok) {
        json_object_set(job, "_nodes", nodes);
        json_object_set_new(job, "_per_chunk", json_integer(per));
        json_object_set_new(job, "_mpiprocs",
                            json_integer(conf_torque() ? per : value_of(what, "mpiprocs", 1)));
    }
    json_decref(nodes);
    return ok;
}
