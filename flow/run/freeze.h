/* SPDX-License-Identifier: Apache-2.0
 *
 * Freezing: a run's revision holds everything its jobs read, so that later edits and upgrades touch
 * only the next submit. Executables are kept once per content in DATA/<project id>/exe/<sha256> and
 * linked into the revision.
 */
#ifndef LF_FLOW_FREEZE_H
#define LF_FLOW_FREEZE_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/run/project.h"

/* Find a program: $LF_LIBEXEC, beside this program, beside it in stages/ or ../stages/,
 * ../libexec/loong-flow, the installed libexec directory. "loong-flow" is this program itself.
 * Owned path. */
int lf_exe_find(char **out, const char *name, lf_err *err);

/* Sets exe of every stage and loong_flow of the document. missing_ok: exe is not given where the
 * executable is not there. */
int lf_exe_describe(lf_doc *plan, bool missing_ok, lf_err *err);

/* Bytes of the executables that a run of this document would copy below data (DATA/<project id>):
 * those that are not kept there, each once. data NULL: nothing is kept. An executable that is not
 * there counts nothing, and neither do the shared libraries of a bundle. */
int64_t lf_exe_copy_bytes(const char *data, const lf_doc *plan);

/* A new run below the data root of the project: directory with the modes of its share. */
int lf_run_create(lf_run *out, const lf_project *p, const char *data_dir, const char *share,
                  lf_err *err);

/* Freeze the plan as the next revision of run (run->rev, run->plan are set) with the resolved INI
 * text beside it, and record the run and stage events. plan: borrowed. */
int lf_run_freeze(lf_run *run, const lf_project *p, const lf_doc *plan, const char *ini_text,
                  lf_err *err);

#endif
