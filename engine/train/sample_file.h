/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of what a model says while it trains: JSON lines, one a sample, each with "step".
 * Guests make the lines (engine/post/samples.h, engine/post/scored.h); docs/files.md lists their
 * members.
 *
 * The file is samples.jsonl beside a file "metrics", NAME.samples.jsonl beside metrics of another
 * name, or out/samples.jsonl where there are none. Like the metrics it is cut when a run goes on:
 * what stands behind the step of the checkpoint, and a torn or damaged line with everything behind
 * it. So each step's samples are there once, however often a run was
 * killed. A start with a file of its own that continues an earlier start begins it with {"step":
 * step, "resumed": true}.
 */
#ifndef LF_TRAIN_SAMPLE_FILE_H
#define LF_TRAIN_SAMPLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_sample_file lf_sample_file;

/* Opens the file for appending. metrics NULL: none; resumed: this start continues an earlier one.
 * The caller owns the object. NULL with LF_EEXIST: there is a file of this name whose first line is
 * no sample; nothing is cut. */
lf_sample_file *lf_sample_file_open(const char *metrics, const char *out, int64_t step,
                                    bool resumed, lf_err *err);
/* Appends n bytes of whole lines with one write. On failure the file is cut back. */
int lf_sample_file_add(lf_sample_file *f, const char *lines, size_t n, lf_err *err);
int lf_sample_file_sync(lf_sample_file *f, lf_err *err); /* f may be NULL */
void lf_sample_file_close(lf_sample_file *f);            /* f may be NULL */

#endif
