/* SPDX-License-Identifier: Apache-2.0
 *
 * A PBS job seen from inside (OpenPBS, PBS Pro, Torque). There is no variable and no command that
 * tells when it ends: the limit is read from the job's resources and counted from our own start.
 * Nothing can be put back.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/job/jobside.h"
#include "flow/sched/pbs.h"
#include "flow/sched/sched.h"

#define PROLOGUE_MOST_S 900.0 /* from the job's start to the wrapper's: site prologues, modules */

/* This job's entry, NULL when the server does not answer or does not know it. */
static json_t *own_entry(lf_jobside *j)
{
    lf_sched_out o;
    json_t *jobs = json_array(), *e = NULL;
    if (jobs != NULL &&
        lf_sched_runv(&o, j->site, j->timeout_s, NULL, "qstat", "-f", j->id, (char *)NULL) == 0) {
        /* Both families print the same here; they differ in how a job ended, and this one has
         * not. */
        if (o.exit == 0 && lf_pbs_parse_full(jobs, o.out.data, LF_PBS_OPENPBS, NULL) == 0)
            e = json_incref(json_array_get(jobs, 0));
        lf_sched_out_fini(&o);
    }
    json_decref(jobs);
    return e;
}

/* The limit counts from the job's start, which is before ours. That is told in the server's time:
 * where its clock and ours do not agree, our own start has to do. */
static double pbs_end(lf_jobside *j)
{
    json_t *e = own_entry(j);
    double start = json_number_value(json_object_get(e, "t_start")),
           end = json_number_value(json_object_get(e, "t_end"));
    int64_t limit = start > 0 && end > start ? (int64_t)(end - start) : 0;
    json_decref(e);
    const char *env = getenv("PBS_WALLTIME"); /* Torque, in seconds */
    if (limit <= 0 && j->end <= 0 && env != NULL)
        lf_parse_i64(&limit, env, NULL);
    if (limit <= 0)
        return 0;
    double before = j->t_start - start;
    return j->t_start + (double)limit - (before > 0 && before < PROLOGUE_MOST_S ? before : 0);
}

static enum lf_jobside_state pbs_state(lf_jobside *j)
{
    json_t *e = own_entry(j);
    const char *word = json_string_value(json_object_get(e, "word"));
    enum lf_jobside_state st = word == NULL     ? LF_JOBSIDE_UNKNOWN
                               : word[0] == 'R' ? LF_JOBSIDE_RUNNING
                                                : LF_JOBSIDE_ENDING;
    if (word != NULL)
        snprintf(j->state_word, sizeof j->state_word, "%s", word);
    json_decref(e);
    return st;
}

const lf_jobside_ops lf_jobside_pbs = {
    .name = "pbs", .can_requeue = false, .end_time = pbs_end, .state = pbs_state};
