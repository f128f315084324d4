/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU quotas of control groups: cpu.max of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of
 * version 1, where systems mount them.
 */
#include "engine/base/quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"

/* What a line of /proc/self/cgroup names. */
struct group {
    const char *root, *mount; /* of the tree of groups */
    char *path;               /* in it; for a container perhaps as its host sees it */
    bool v1;
};

/* Reads up to two numbers of a file of the group. Returns how many there are. */
static int numbers(const struct group *g, const char *name, double *a, double *b)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s%s%s/%s", g->root, g->mount, g->path, name);
    FILE *f = n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL)
        return 0;
    const int got = fscanf(f, "%lf %lf", a, b);
    fclose(f);
    return got;
}

/* Processors; 0: no limit. A group without one has "max", or a quota of -1. */
static double share(const struct group *g)
{
    double quota = 0, period = 0, none;
    const bool both = g->v1 ? numbers(g, "cpu.cfs_quota_us", &quota, &none) == 1 &&
                                  numbers(g, "cpu.cfs_period_us", &period, &none) == 1
                            : numbers(g, "cpu.max", &quota, &period) == 2;
    return both && quota > 0 && period > 0 ? quota / period : 0;
}

/* The least of a group and of all above it. A container may not see the folder of its own group,
 * whose files then stand at the mount. */
static double least_share(struct group *g)
{
    double least = 0;
    for (char *end = g->path;; *end = '\0') {
        const double s = share(g);
        if (s > 0 && (least == 0 || s < least))
            least = s;
        end = strrchr(g->path, '/');
        if (end == NULL)
            return least;
    }
}

/* Has a list of controllers, as "cpu,cpuacct", the one that has quotas? */
static bool has_cpu(const char *list)
{
    for (const char *at = list; at != NULL; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strcspn(at, ",") == 3 && lf_str_has_prefix(at, "cpu"))
            return true;
    return false;
}

/* Takes a line apart: number, controllers, path. Returns whether its group may have a quota. */
static bool group_of(struct group *g, char *line)
{
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (path == NULL)
        return false;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    g->path = path;
    g->v1 = list[1] != '\0';
    g->mount = g->v1 ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup";
    return !g->v1 || has_cpu(list + 1);
}

int lf_cpu_quota(const char *root)
{
    char path[PATH_MAX], line[PATH_MAX + 64];
    const int n = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
    double least = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        struct group g = {.root = root};
        const double s = group_of(&g, line) ? least_share(&g) : 0;
        if (s > 0 && (least == 0 || s < least))
            least = s;
    }
    if (f != NULL)
        fclose(f);
    if (least >= 1 << 20)
        return 0;
    return (int)least + ((double)(int)least < least);
}
