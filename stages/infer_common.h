/* SPDX-License-Identifier: Apache-2.0
 *
 * What lf-generate and lf-eval share: option lists, the tokenizer, end tokens, the plan, continued
 * line files.
 */
#ifndef LF_STAGES_INFER_COMMON_H
#define LF_STAGES_INFER_COMMON_H

#include <jansson.h>

#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/comm/comm.h"
#include "engine/infer/lines.h"
#include "engine/infer/runner.h"
#include "engine/text/token/tokenizer.h"

/* Values of a REPEAT option as an owned array of borrowed texts. */
int lf_infer_strings(const char ***out, size_t *n, const lf_optset *o, const char *name,
                     lf_err *err);

/* path: a tokenizer artifact or another directory, or a tokenizer file
 * (engine/text/token/tokenizer.h). */
int lf_infer_tokenizer(lf_tokenizer **out, const char *path, lf_err *err);

/* Is t the tokenizer that the checkpoint, and its adapter where there is one (NULL: none), were
 * trained with? */
int lf_infer_same_tokenizer(const char *checkpoint, const char *adapter, const lf_tokenizer *t,
                            const char *path, lf_err *err);

/* End tokens by text; when none is named, those of generation_config.json in the directory
 * tokenizer_path (an imported model's; several are possible), else the tokenizer's end of document;
 * owned array, n may be 0. */
int lf_infer_end_tokens(int32_t **out, size_t *n, const lf_tokenizer *t, const char *tokenizer_path,
                        const char *const *names, size_t n_names, lf_err *err);

/* For --plan: the model of the checkpoint. *missing: what is not there yet, for lf_infer_plan_note
 * (*c is not set then); NULL: nothing. */
int lf_infer_plan_config(lf_model_config *c, const char **missing, const char *checkpoint,
                         const char *adapter, lf_err *err);
int lf_infer_plan_note(json_t *out, const char *missing, lf_err *err);

/* Plan JSON of an inference stage: parameters, bytes. Where the checkpoint is not there yet, says
 * so in notes. */
int lf_infer_plan(json_t *out, const char *checkpoint, const struct lf_runner_opts *o, lf_err *err);

/* The adapter that *adapter names (stages/adapter_in.h; NULL: none) takes its place there; *dir
 * owns the text. Collective. */
int lf_infer_adapter(char **dir, lf_comm *comm, const char **adapter, const char *checkpoint,
                     const char *out, int threads, lf_err *err);

/* comm: NULL alone; with it all of these are collective, and rank 0 alone looks, reads and
 * writes. */

/* Is the artifact in dir complete already? */
int lf_infer_done(lf_comm *comm, const char *dir, bool *done, lf_err *err);
/* lf_lines_open on at->dir/<at->name>, with the same file of the earlier incarnations, each
 * at->from[i]/<artifact>. *out stays NULL on other ranks; *n_kept is set on all. */
int lf_infer_lines(lf_comm *comm, lf_lines **out, const char *artifact,
                   const struct lf_lines_place *at, size_t *n_kept, lf_err *err);

/* The texts of all ranks, in their order, take the place of rank 0's; those of the others become
 * empty. */
int lf_infer_gather(lf_comm *comm, lf_buf *text, lf_err *err);

#endif
