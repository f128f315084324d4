/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a stage are started. This header is for the wrapper: resources and a launcher
 * key in, the argv to execute out. The launcher of our own (`loong-flow launch`, a PMIx server) is
 * launch_hub.h and its neighbours.
 *
 * Launchers, in the order that `auto` tries them when there is more than one rank:
 *   srun      inside a SLURM job, when `srun --mpi=pmix` was seen to work in a step of this job
 *             (lf_launch_probe)
 *   loong     our own, when built with PMIx: daemons by srun, pbsdsh or ssh on several nodes, this
 *             process on one
 *   prterun   PRRTE's launcher, when it is on PATH
 * One rank on one node needs none. mpirun (Open MPI 4 or newer) is used when it is asked for.
 */
#ifndef LF_FLOW_LAUNCH_H
#define LF_FLOW_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

enum lf_launcher {
    LF_LAUNCH_AUTO,
    LF_LAUNCH_SRUN,
    LF_LAUNCH_LOONG,
    LF_LAUNCH_PRTERUN,
    LF_LAUNCH_MPIRUN,
    LF_LAUNCH_NONE
};
#define LF_LAUNCHER_CHOICES "auto|srun|loong|prterun|mpirun|none" /* in the order of the enum */

typedef struct lf_launch_req {
    enum lf_launcher launcher;
    int nodes, ranks; /* ranks per node; both >= 1 */
    int cpus;         /* per rank; 0: not given */
    const char *self; /* the loong-flow executable as compute nodes see it */
    /* rank_prefix: words before the stage's argv; NULL-terminated or NULL */
    const char *const *prefix;
    const char *const *argv; /* the stage's, NULL-terminated */
    double probe_s;          /* patience of a probe; 0: 60 s */
} lf_launch_req;

typedef struct lf_launch_plan {
    enum lf_launcher launcher; /* never AUTO */
    char **argv;               /* owned, NULL-terminated: what to execute in place of req->argv */
    int omp_threads;           /* value for OMP_NUM_THREADS of the ranks; 0: leave it */
    char why[200];             /* "srun --mpi=pmix works in this job" */
} lf_launch_plan;

/* -1 when there is no such launcher. */
int lf_launcher_find(const char *name);
const char *lf_launcher_name(enum lf_launcher l);

/* Decide and build. LF_EINVAL: none with more than one rank, bad counts; LF_ENOTSUP: the launcher
 * that was asked for, or every one under auto, cannot be used here (the text says why for each).
 * Runs a probe only for auto in a SLURM job. The environment is read (SLURM_JOB_ID, PBS_JOBID,
 * PATH), not changed; the ranks' environment must not hold PMIX_* variables of another launcher,
 * see lf_launch_scrub. */
int lf_launch_plan_make(lf_launch_plan *out, const lf_launch_req *req, lf_err *err);
void lf_launch_plan_fini(lf_launch_plan *p);

/* Does this launcher start n ranks on `nodes` nodes that find each other? Starts `loong-flow launch
 * --probe` through it. 0: yes; LF_ECOMM: no, with the reason and the end of its output; LF_EBUSY:
 * not within patience_s. */
int lf_launch_probe(enum lf_launcher l, const char *self, int nodes, int ranks, double patience_s,
                    lf_err *err);

/* In a child before exec of a stage or a launcher: remove what another PMIx launcher left in the
 * environment (PMIX_* without PMIX_MCA_*, PMI_*), so that a stage of one rank is alone and a
 * launcher starts afresh. */
void lf_launch_scrub(void);

/* Exit codes: every launcher here ends with that of its first failing rank, a signal as 128 + n
 * (mpirun and srun may say 137 for any rank that was killed), and with 75 when no rank failed and
 * one stopped at a good checkpoint. */

#endif
