/* SPDX-License-Identifier: Apache-2.0
 *
 * What lf-generate and lf-eval share: option lists, the tokenizer, end tokens, the plan, and line
 * files that a start continues.
 */
#ifndef LF_STAGES_INFER_COMMON_H
#define LF_STAGES_INFER_COMMON_H

#include <jansson.h>

#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/comm/comm.h"
#include "engine/graph/plan.h"
#include "engine/infer/eyes.h"
#include "engine/infer/lines.h"
#include "engine/infer/runner.h"
#include "engine/text/token/tokenizer.h"

/* The values of a REPEAT option: an owned array of borrowed texts. */
int lf_infer_strings(const char ***out, size_t *n, const lf_optset *o, const char *name,
                     lf_err *err);

/* Load the tokenizer at path: a tokenizer artifact, another directory, or a tokenizer file
 * (engine/text/token/tokenizer.h). */
int lf_infer_tokenizer(lf_tokenizer **out, const char *path, lf_err *err);

/* Checks that t is the tokenizer that the checkpoint was trained with, and its adapter (NULL:
 * none). */
int lf_infer_same_tokenizer(const char *checkpoint, const char *adapter, const lf_tokenizer *t,
                            const char *path, lf_err *err);

/* The processor of a model that sees: that of the folder `processor`, else the one beside the
 * tokenizer. *have stays false where there is none, or where none is named and the model sees
 * nothing. LF_EINVAL: one is named, and the model sees nothing. */
int lf_infer_eyes(lf_gen_eyes *out, bool *have, const char *processor, const char *tokenizer_path,
                  const lf_model_config *model, lf_err *err);

/* The end tokens named by text. When none is named they are those of generation_config.json in the
 * directory tokenizer_path (an imported model may have several), else the tokenizer's end of
 * document. The array is owned; n may be 0. */
int lf_infer_end_tokens(int32_t **out, size_t *n, const lf_tokenizer *t, const char *tokenizer_path,
                        const char *const *names, size_t n_names, lf_err *err);

/* For --plan: the model of the checkpoint, which with `classes` may tell those of pictures.
 * *missing names what is not there yet, for lf_infer_plan_note; *c is then not set. *missing NULL:
 * everything is there. */
int lf_infer_plan_config(lf_model_config *c, const char **missing, const char *checkpoint,
                         const char *adapter, bool classes, lf_err *err);
int lf_infer_plan_note(json_t *out, const char *missing, lf_err *err);
/* The note that sizes of pictures are not known yet, as `what` is not there. */
int lf_infer_plan_unseen(json_t *out, const char *what, lf_err *err);
/* Does each of these files exist? NULL counts as one that does. */
bool lf_infer_there(const char *const *path, size_t n);

/* The plan JSON of an inference stage: parameters and bytes. A checkpoint that is not there yet is
 * mentioned in the notes. */
int lf_infer_plan(json_t *out, const char *checkpoint, const struct lf_runner_opts *o, lf_err *err);

/* Logs the memory of the process under the name that --plan and train stages have for it. */
void lf_infer_tell_memory(const lf_comm *comm, const struct lf_plan_memory *m);

/* Replaces the name in *adapter by the directory of that adapter (stages/adapter_in.h; NULL: none).
 * *dir owns the text. Collective. */
int lf_infer_adapter(char **dir, lf_comm *comm, const char **adapter, const char *checkpoint,
                     const char *out, int threads, lf_err *err);

/* The functions below take comm; NULL when the process is alone. With comm all of them are
 * collective, and only rank 0 looks, reads and writes. */

/* Whether the artifact in dir is complete already. */
int lf_infer_done(lf_comm *comm, const char *dir, bool *done, lf_err *err);
/* lf_lines_open on at->dir/<at->name>, with the same file of earlier starts in each
 * at->from[i]/<artifact>. *out stays NULL on other ranks. *n_kept is set on all ranks. */
int lf_infer_lines(lf_comm *comm, lf_lines **out, const char *artifact,
                   const struct lf_lines_place *at, size_t *n_kept, lf_err *err);

/* Rank 0's text becomes the texts of all ranks, in the order of ranks. Those of the other ranks
 * become empty. */
int lf_infer_gather(lf_comm *comm, lf_buf *text, lf_err *err);

#endif
