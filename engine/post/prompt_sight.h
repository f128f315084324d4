/* SPDX-License-Identifier: Apache-2.0
 *
 * What generation needs of the pictures of a prompt that is a document of shards: sizes and places
 * now, the pictures themselves when they are looked at (engine/infer/look.h).
 */
#ifndef LF_POST_PROMPT_SIGHT_H
#define LF_POST_PROMPT_SIGHT_H

#include "engine/infer/eyes.h"
#include "engine/train/seen.h"

/* Eyes for pictures of that kind. */
lf_gen_eyes lf_prompt_eyes(const lf_pictures *from, const lf_model_config *model);
/* The pictures of document doc, of which job has the tokens of the prompt, in the arena. from and
 * eyes are borrowed by *out. *out is NULL: it has none. Jobs with the same *out share their
 * features. LF_EINVAL: the prompt has not all of their placeholders. */
int lf_prompt_sight(const struct lf_gen_media **out, const lf_pictures *from,
                    const lf_gen_eyes *eyes, uint64_t doc, const lf_gen_job *job, lf_arena *a,
                    lf_err *err);

#endif
