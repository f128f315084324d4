/* SPDX-License-Identifier: Apache-2.0
 *
 * One request while it is read; for the files of request.h only.
 */
#ifndef LF_INFER_REQUEST_PRIV_H
#define LF_INFER_REQUEST_PRIV_H

#include "engine/base/mem.h"
#include "engine/infer/request.h"

/* The defaults, overwritten by the members of its line. */
typedef struct gen_request {
    lf_gen_job job; /* without id, seed and end */
    int64_t n, best_of, seed, top_logprobs, prompt_logprobs, truncate;
    bool has_seed, ignore_eos, add_special, include_stop, logprobs;
    const char *id, *model;
    json_t *prompt, *messages, *tools, *kwargs, *images, *image;
    const int32_t *stop_ids;
    size_t n_stop_ids;
} gen_request;

/* The context of reading members: memory in `a`, ids of words from `tok` (may be NULL). */
typedef struct gen_members {
    lf_arena *a;
    const lf_tokenizer *tok;
} gen_members;

/* Reads all members of an object into r. LF_EINVAL: this form has no such member; the message has
 * the nearest one. */
int lf_gen_members_read(const gen_members *g, json_t *o, enum lf_gen_form form, gen_request *r,
                        lf_err *err);
/* Reads a list of token ids. */
int lf_gen_ids_read(const gen_members *g, json_t *v, const char *name, const int32_t **ids,
                    size_t *n, lf_err *err);
/* Encodes text to ids in the arena. */
int lf_gen_encode(const gen_members *g, const char *text, size_t len, unsigned flags,
                  const int32_t **ids, size_t *n, lf_err *err);

#endif
