/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: limits of processes. Batch jobs run under the limits of the node's daemon, not under
 * those of the login shell (jobs are sent with --propagate=NONE), so the same judgement is made of
 * what a probe job reports.
 */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/base/id.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/doctor.h"
#include "flow/record/fields.h"

#define MIB (1024.0 * 1024.0)

static const struct limit {
    size_t at; /* in lf_rlimits */
    int resource;
    double least; /* below: a finding; 0: any limit is one */
    bool bytes;
    const char *ulimit, *what, *advice;
} limits[] = {
    {offsetof(lf_rlimits, nofile), RLIMIT_NOFILE, 1024, false, "-n", "open files",
     "shards, checkpoints and connections between ranks need more: ulimit -n 4096, or ask the "
     "site"},
    {offsetof(lf_rlimits, nproc), RLIMIT_NPROC, 512, false, "-u",
     "processes and threads of this user",
     "ranks times threads must fit: ulimit -u 4096, or ask the site"},
    {offsetof(lf_rlimits, memlock), RLIMIT_MEMLOCK, 1 * MIB, true, "-l", "locked memory",
     "InfiniBand and GPU transfers need it unlimited (LimitMEMLOCK=infinity for the node's "
     "daemon); CPUs with TCP do not"},
    {offsetof(lf_rlimits, fsize), RLIMIT_FSIZE, 0, true, "-f", "size of a file",
     "a checkpoint is one large file per rank: ulimit -f unlimited"},
    {offsetof(lf_rlimits, as), RLIMIT_AS, 0, true, "-v", "address space",
     "memory is planned and mapped at once: ulimit -v unlimited"},
    {offsetof(lf_rlimits, stack), RLIMIT_STACK, 1 * MIB, true, "-s", "stack", "ulimit -s 8192"},
};
enum { N_LIMITS = sizeof limits / sizeof limits[0] };

#define LIMIT(m)                                                                                   \
    {                                                                                              \
        LF_FIELD(lf_rlimits, m), .opt = true, .none = -1                                           \
    }
const struct lf_fields lf_rlimits_fields = LF_FIELDS(
    lf_rlimits, LIMIT(nofile), LIMIT(nproc), LIMIT(memlock), LIMIT(fsize), LIMIT(as), LIMIT(stack));

static int64_t *member(const lf_rlimits *r, const struct limit *l)
{
    return (int64_t *)(void *)((char *)(uintptr_t)r + l->at);
}

void lf_doctor_rlimits(lf_rlimits *out)
{
    for (size_t i = 0; i < N_LIMITS; i++) {
        struct rlimit r;
        bool has = getrlimit(limits[i].resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY;
        *member(out, &limits[i]) = has ? (int64_t)r.rlim_cur : -1;
    }
}

void lf_doctor_judge_rlimits(lf_doctor *d, const char *check, const char *where,
                             const lf_rlimits *seen)
{
    int low = 0;
    for (size_t i = 0; i < N_LIMITS; i++) {
        const struct limit *l = &limits[i];
        const int64_t v = *member(seen, l);
        double x = (double)v;
        char b[32];
        if (v < 0 || (l->least > 0 && x >= l->least))
            continue;
        low++;
        lf_doctor_add(d, "warn", check, l->advice, "%s is limited to %s %s (ulimit %s)", l->what,
                      l->bytes ? lf_fmt_bytes(b, sizeof b, x) : lf_fmt_count(b, sizeof b, x), where,
                      l->ulimit);
    }
    if (low == 0)
        lf_doctor_add(d, "ok", check, NULL,
                      "open files, processes, memory and file sizes suffice %s", where);
}

void lf_doctor_limits(lf_doctor *d)
{
    lf_rlimits here;
    lf_doctor_rlimits(&here);
    lf_doctor_judge_rlimits(d, "limits", "here", &here);
    lf_doctor_add(d, "ok", "machine", NULL, "%d processors available", lf_ncpu());
    lf_proc_id me;
    if (lf_proc_self(&me, NULL) == 0)
        lf_doctor_add(d, "ok", "processes", NULL, "can be identified through /proc");
    else
        lf_doctor_add(d, "fail", "processes", "mount /proc: locks and zombies are judged by it",
                      "/proc does not identify processes");
}
