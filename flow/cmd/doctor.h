/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `loong-flow doctor`. Each check does the thing itself where the project's files will
 * lie and adds findings.
 *
 * fail: something loong-flow needs does not work. warn: it works, and this will bite. A check never
 * fails the command: what could not be found out is a finding too.
 */
#ifndef LF_FLOW_DOCTOR_H
#define LF_FLOW_DOCTOR_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/record/doc.h"

typedef struct lf_finding {
    const char *verdict; /* "ok", "warn", "fail" */
    char *check, *text;  /* the group, and what was seen */
    char *advice;        /* what to do, NULL: nothing */
} lf_finding;

typedef struct lf_doctor {
    LF_ROWS(lf_finding) list;
    lf_site own_site;
    const lf_site *site;             /* what sched.h calls the site */
    char scheduler[16];              /* "local", "slurm", "pbs", "torque" */
    bool batch;                      /* not local */
    const char *data;                /* data directory, absolute */
    const char *partition, *account; /* for probe jobs, NULL: the site's default */
    double time_limit_s; /* longest that [resources] or a stage asks for, 0: not given */
    double wait_s;       /* for a probe job */
} lf_doctor;

/* advice NULL: none. */
void lf_doctor_add(lf_doctor *d, const char *verdict, const char *check, const char *advice,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* doctor_ask.c: what the program exe prints when it is started with one word, as a text; false: it
 * does not start, fails, takes half a minute, or says more than fits. */
enum { LF_DOCTOR_ANSWER = 4096 };
bool lf_doctor_ask(char answer[LF_DOCTOR_ANSWER], const char *exe, const char *word);

/* doctor_fs.c: kind, space, quota, mount options, links, fsync, record locks, clock. dir need not
 * exist yet: its nearest parent is looked at. shared: jobs on other nodes use it. ledger: SQLite
 * works in it. */
void lf_doctor_dir(lf_doctor *d, const char *what, const char *dir, bool shared, bool ledger);

/* doctor_limits.c */
void lf_doctor_limits(lf_doctor *d);
/* Limits of a process, in the order of doctor_limits.c; -1: it has none. */
typedef struct lf_rlimits {
    int64_t nofile, nproc, memlock, fsize, as, stack;
} lf_rlimits;
extern const struct lf_fields lf_rlimits_fields;
void lf_doctor_rlimits(lf_rlimits *out); /* of this one */
/* Findings under `check`, also of another node. */
void lf_doctor_judge_rlimits(lf_doctor *d, const char *check, const char *where,
                             const lf_rlimits *limits);

/* doctor_gpu.c: driver, GPUs, whether this build carries code for them. */
void lf_doctor_gpus(lf_doctor *d);
/* The GPUs that the driver of this machine shows; -1: there is no driver, or it does not start. */
int lf_doctor_gpu_count(void);

/* doctor_cpu.c: the processor, and which kernels of this build run on it. */
void lf_doctor_cpu(lf_doctor *d);

/* doctor_media.c: which decoders of pictures are built in, and whether their pixels are right. */
void lf_doctor_media(lf_doctor *d);

/* doctor_slurm.c, doctor_pbs.c: reachable, flavour, the site's settings that matter. */
void lf_doctor_slurm(lf_doctor *d);
void lf_doctor_pbs(lf_doctor *d);

/* doctor_launch.c: really submit a job of one task, and let it report. */
void lf_doctor_launch(lf_doctor *d);
/* What that job runs: writes DIR/.doctor-ID.reply. Exit code. */
int lf_doctor_inside(const char *dir, const char *id, lf_err *err);

#endif
