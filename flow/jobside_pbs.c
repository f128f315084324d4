/* SPDX-License-Identifier: Apache-2.0
 *
 * A PBS job seen from inside (OpenPBS, PBS Pro, Torque). There is no variable and no command that tells when it ends: the limit
 * is read from the job's resources and counted from our own start. Nothing can be put back.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/jobside.h"
#include "flow/sched.h"

/* "HH:MM:SS" (hours may have any number of digits, parts may be missing from the left) in seconds, 0 when it is none. */
static int64_t clock_seconds(const char *s)
{
    int64_t total = 0;
    for (;;) {
        char *end = NULL;
        long v = strtol(s, &end, 10);
        if (end == s || v < 0)
            return 0;
        total = total * 60 + v;
        if (*end != ':')
            return total;
        s = end + 1;
    }
}

/* The value of "    NAME = VALUE" in the output of qstat -f; NULL when it is not there. */
static const char *attribute(const char *text, const char *name)
{
    for (const char *p = strstr(text, name); p != NULL; p = strstr(p + 1, name)) {
        const char *v = p + strlen(name);
        if (p > text && (p[-1] == ' ' || p[-1] == '\t' || p[-1] == '\n') && strncmp(v, " = ", 3) == 0)
            return v + 3;
    }
    return NULL;
}

static double pbs_end(lf_jobside *j)
{
    lf_sched_out o;
    int64_t limit = 0;
    if (lf_sched_runv(&o, j->site, j->timeout_s, NULL, "qstat", "-f", j->id, NULL) == 0) {
        const char *v = o.exit == 0 ? attribute(o.out.data, "Resource_List.walltime") : NULL;
        if (v != NULL)
            limit = clock_seconds(v);
        lf_sched_out_fini(&o);
    }
    const char *env = getenv("PBS_WALLTIME"); /* Torque, in seconds */
    if (limit <= 0 && j->end <= 0 && env != NULL)
        lf_parse_i64(&limit, env, NULL);
    return limit > 0 ? j->t_start + (double)limit : 0;
}

static enum lf_jobside_state pbs_state(lf_jobside *j)
{
    lf_sched_out o;
    if (lf_sched_runv(&o, j->site, j->timeout_s, NULL, "qstat", "-f", j->id, NULL) < 0)
        return LF_JOBSIDE_UNKNOWN;
    const char *v = o.exit == 0 ? attribute(o.out.data, "job_state") : NULL;
    enum lf_jobside_state st = LF_JOBSIDE_UNKNOWN;
    if (v != NULL) {
        snprintf(j->state_word, sizeof j->state_word, "%c", v[0]);
        st = v[0] == 'R' ? LF_JOBSIDE_RUNNING : LF_JOBSIDE_ENDING;
    }
    lf_sched_out_fini(&o);
    return st;
}

const lf_jobside_ops lf_jobside_pbs = {.name = "pbs", .can_requeue = false, .end_time = pbs_end, .state = pbs_state};
