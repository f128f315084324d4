/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process of a stage computes on, and how much processor time it took. A rank says so
 * beside its identity in the file DIR/HOST.PID.json of its start, so that a report can name the
 * processor without asking a machine that may be gone. DIR is what LF_RANKS_DIR names.
 */
#ifndef LF_BASE_MACHINE_H
#define LF_BASE_MACHINE_H

#include <stddef.h>

#include "engine/base/id.h"

/* The name of the processor as the system gives it, such as "AMD EPYC 9654 96-Core Processor" (on
 * AArch64 the name of the part that it numbers, such as "Arm Neoverse V2"), or the architecture
 * where it gives none. Returns buf. */
const char *lf_cpu_model(char *buf, size_t cap);
/* The same of another file of the form of /proc/cpuinfo. */
const char *lf_cpu_model_in(const char *cpuinfo, char *buf, size_t cap);

/* Seconds of all processors that this process and its children that have ended took. */
double lf_cpu_time_s(void);

/* A rank of a stage as it signs in and out. */
struct lf_rank_said {
    lf_proc_id process;
    const char *rank, *isa; /* isa: of the kernels of the CPU */
    int threads;
    double cpu_s; /* negative: not yet known */
};

/* Writes DIR/HOST.PID.json in the place of what is there. */
int lf_rank_say(const char *dir, const struct lf_rank_said *r, lf_err *err);

/* Notes the accelerator of this process, such as "NVIDIA H200, driver 13.0", in the file
 * DIR/gpu.HOST.PID. Without LF_RANKS_DIR nothing is written; a failure is silent, because only
 * reports read it. */
void lf_machine_note_gpu(const char *device);

#endif
