/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequences of one round of generation, in memory and as an HDF5 file. With the file training
 * can be repeated without generation, and generation can be examined without training.
 *
 *   offsets      u64 [n + 1]   tokens of sequence i (prompt, then completion) are
 *                              tokens[offsets[i] .. offsets[i + 1])
 *   tokens       i32
 *   prompt_len   u32 [n]       number of tokens of the prompt
 *   prompt       u64 [n]       number of the prompt in the order of the run
 *   doc          u64 [n]       document of the prompt in the data
 *   seed         u64 [n]       seed of the draws of the sequence
 *   ended        u8 [n]        1: the last token is an end token
 *   source       f64 [n * k]   score of each of k sources
 *   score        f64 [n]       their weighted sum
 *   reward       f64 [n]       the score after shaping
 *   and for each token of the completions, in the same order:
 *   logprob      f32           of the generator, at the temperature of the run
 *   ref_logprob  f32           with a reference
 *   value        f32           with a critic
 *   advantage    f64
 *   return       f64           with a critic
 *   attributes   lf_format = "lf-rollout-1", key, step, group, sources ("number,format"),
 *                next_prompt, dropped
 *
 * key (64 hex) is a hash of everything that generation depends on: weights, prompts, sampling,
 * seed. A file is used for a round only under the same key.
 */
#ifndef LF_POST_ROLLOUT_H
#define LF_POST_ROLLOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/post/advantage.h"

#define LF_ROLLOUT_FORMAT "lf-rollout-1"

typedef struct lf_rollout {
    char key[LF_HASH_HEX];
    int64_t step;
    int64_t next_prompt; /* number of the first prompt behind the round */
    int64_t dropped;     /* groups that dynamic sampling removed */
    size_t n, cap, group;
    char *sources; /* names, "," between them; owned */
    size_t n_sources;
    uint64_t *offsets; /* [n + 1] */
    int64_t *first;    /* [n + 1] first entry of each completion in the arrays per token */
    uint32_t *prompt_len;
    uint64_t *prompt, *doc, *seed;
    uint8_t *ended;
    double *source, *score, *reward;
    int32_t *tokens;
    size_t cap_tokens;
    float *logprob;
    size_t cap_completion;
    /* NULL until lf_rollout_columns: [first[n]] */
    float *ref, *value;
    double *adv, *ret;
} lf_rollout;

/* sources: names, "," between them. */
int lf_rollout_init(lf_rollout *r, const char *sources, size_t n_sources, size_t group,
                    lf_err *err);
void lf_rollout_fini(lf_rollout *r);

struct lf_rollout_seq {
    const int32_t *prompt, *completion;
    const float *logprob; /* of the completion */
    size_t n_prompt, n_completion;
    uint64_t number, doc, seed;
    bool ended;
};
int lf_rollout_add(lf_rollout *r, const struct lf_rollout_seq *s, lf_err *err);
/* Makes the arrays that are computed after generation, all zero. */
int lf_rollout_columns(lf_rollout *r, bool ref, bool value, lf_err *err);

static inline struct lf_seqs lf_rollout_seqs(const lf_rollout *r)
{
    return (struct lf_seqs){r->n, r->first, NULL};
}
static inline size_t lf_rollout_len(const lf_rollout *r, size_t i)
{
    return (size_t)(r->offsets[i + 1] - r->offsets[i]);
}

/* Publishes a new file: it is written under another name and then linked. LF_EEXIST: path
 * exists. */
int lf_rollout_write(const lf_rollout *r, const char *path, lf_err *err);
/* Fills an empty r. LF_EFORMAT: the message names the fault. */
int lf_rollout_read(lf_rollout *r, const char *path, lf_err *err);

#endif
