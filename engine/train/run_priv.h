/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of a run (run.c, run_save.c, run_parts.c) share. */
#ifndef LF_TRAIN_RUN_PRIV_H
#define LF_TRAIN_RUN_PRIV_H

#include "engine/train/run.h"

/* Copies the text of rank 0 (NULL allowed) to all ranks; *text is owned. Collective. */
int lf_run_share_text(const lf_run *r, char **text, lf_err *err);

/* run_save.c: threads that write and hash; memory for snapshots of these tensors, where wanted; may
 * rank 0 save to dir now, with all records on disk that the checkpoint covers and nothing left in
 * it? */
int lf_run_save_threads(const lf_run *r);
int lf_run_snapshot_open(lf_run *r, const lf_ckpt_tensor *tensors, size_t n, bool snapshot,
                         lf_err *err);
int lf_run_may_save(lf_run *r, const char *dir, lf_err *err);
/* How the save under way ended: *res is complete, or why it is not there. Rank 0 tells. */
void lf_run_saved(lf_run *r, const lf_ckpt_result *res);
int lf_run_not_saved(lf_run *r, bool needed, const lf_err *why, lf_err *err);

/* run_parts.c: every rank writes its part. All are collective but close. */
int lf_run_parts_open(lf_run *r, const struct lf_run_tensors *t, int rc, lf_err *err);
void lf_run_parts_close(lf_run *r);
/* As lf_run_save_begin. A failure of the writers is none of it: rank 0 tells it when all have
 * ended. */
int lf_run_parts_begin(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err);
/* Waits until the save under way has ended. needed: a checkpoint that is not saved is a failure. */
int lf_run_parts_wait(lf_run *r, bool needed, lf_err *err);
/* These enclose an exchange of all ranks, which gives each the largest v of all. tell concerns this
 * rank alone. */
int lf_run_parts_tell(lf_run *r, int64_t v[2], lf_err *err);
int lf_run_parts_hear(lf_run *r, const int64_t v[2], lf_err *err);

#endif
