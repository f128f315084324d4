/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of the metrics for other programs, written while a run goes on: event files of TensorBoard
 * and JSON lines. They are for dashboards. Nothing of ours reads them, nothing depends on them, and
 * no failure of them ends a run: it is one warning, and what can be written later is written later.
 * Rank 0 writes them.
 *
 * TensorBoard: one event file per start (engine/base/tfevents.h) in the directory, or where the
 * process runs in a run of loong-flow, in DIRECTORY/RUN/STAGE. So the starts of a stage share a
 * directory. A start says with which step it begins, and TensorBoard then forgets what an earlier
 * start wrote of that step and later ones. lf_tfevents_metric says which number is which curve.
 *
 * JSON lines: the records of the metrics, one a line, appended. A start that continues from step S
 * begins with {"step":S,"resumed":true}: what stands before it about later steps does not count any
 * more. Nothing is ever cut, because a reader may follow the file.
 */
#ifndef LF_TRAIN_COPIES_H
#define LF_TRAIN_COPIES_H

#include <stddef.h>
#include <stdint.h>

/* Paths, borrowed; NULL: none. */
struct lf_copies_opts {
    const char *tensorboard; /* a directory, which is made */
    const char *jsonl;       /* a file */
};

struct lf_train_sink;
typedef struct lf_copies lf_copies;

/* step: the run stands behind this one; 0: at its beginning. sink takes warnings, is borrowed and
 * may be NULL. NULL: nothing is to be copied, or nothing can be. The caller owns the object. */
lf_copies *lf_copies_open(const struct lf_copies_opts *o, int64_t step,
                          const struct lf_train_sink *sink);
/* Copies one record, a JSON object of n bytes. c may be NULL, here and below. */
void lf_copies_record(lf_copies *c, const char *record, size_t n);
/* A text of n bytes that belongs to a step, such as a sample. It goes to TensorBoard, without
 * Markdown. */
void lf_copies_text(lf_copies *c, int64_t step, const char *tag, const char *text, size_t n);
void lf_copies_close(lf_copies *c);

#endif
