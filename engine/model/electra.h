/* SPDX-License-Identifier: Apache-2.0
 *
 * ELECTRA (Clark, Luong, Le, Manning 2020, arXiv:2003.10555): a generator says hidden tokens, draws
 * of what it says stand in for them, and a discriminator tells of each token whether it is the one
 * that was there. The discriminator is the model that [model] describes, with one number of each
 * token (output = labels, labels = 1). The generator is an encoder of its own sizes (generator_*)
 * on the same embedding: tokens, positions, types and the norm behind them. Logical tensors beside
 * those of the discriminator, for a generator of width G and an embedding of width E:
 *
 *     generator.embed_in.{weight [G, E], bias [G]}     where G is not E
 *     generator.layers.N.*                             as those of a decoder (decoder.h)
 *     generator.head_in.{weight [E, G], bias [E]}, generator.head_norm.{weight,bias} [E]
 *     generator.head.bias [V]                          its head over words is the embedding
 *
 * Of a row with its tokens x, hidden ones replaced by the mask token (m(x)), and c the row that the
 * discriminator reads, in which draws from p_G(. | m(x)) stand for the hidden ones:
 *
 *     L = mean over hidden t of -log p_G(x_t | m(x))
 *         + weight * mean over all t of BCE(D(c)_t, c_t != x_t)
 *
 * The draws have no gradient. A draw that is the token that was there counts as such. No layout
 * divides the generator.
 */
#ifndef LF_MODEL_ELECTRA_H
#define LF_MODEL_ELECTRA_H

#include "engine/model/decoder.h"

#define LF_ELECTRA_STACK "generator." /* what the names of its own tensors begin with */

/* The generator as a masked language model, of a model with generator_layers. */
void lf_model_generator(lf_model_config *g, const lf_model_config *c);
/* The model without it. */
void lf_model_leave_generator(lf_model_config *c);
/* Checks generator_*. LF_EINVAL. */
int lf_model_check_generator(const lf_model_config *c, lf_err *err);
/* Makes of an encoder of tokens one that tells replaced ones; of another model nothing. */
void lf_model_give_discriminator(lf_model_config *c);
/* Does it tell of each token by one number whether it was replaced? */
bool lf_model_discriminates(const lf_model_config *c);

/* Is the tensor of this name, of either encoder, one that both read? */
bool lf_electra_shares(const char *name);

typedef struct lf_electra lf_electra;
/* The generator beside d, which must outlive it, for as many positions; it must outlive every plan
 * with its graphs. LF_EINVAL: d is no discriminator with a generator. */
lf_electra *lf_electra_create(const lf_decoder *d, int64_t positions, lf_err *err);
void lf_electra_destroy(lf_electra *e);
/* Width of the embedding. */
int64_t lf_electra_width(const lf_electra *e);
/* Declares what is beside the discriminator. LF_ENOTSUP: the layout divides the model. */
int lf_electra_declare(const lf_electra *e, lf_pstore *ps, lf_err *err);

/* All graphs are over packed documents, with the inputs of decoder.h; train: with dropout.
 *
 * Both encoders. Inputs: "tokens" is what the discriminator reads, "hidden_tokens" i32 [R, 1] what
 * the generator does, "targets" what was hidden. Outputs "lp" f32 [R, 1], log p_G of targets, and
 * "score" f32 [R, 1], what the discriminator says; in training with the gradients "dlp" and
 * "dscore". */
lf_graph *lf_electra_graph(const lf_electra *e, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, bool train, lf_err *err);
/* The generator alone, forward: "tokens" is what it reads. Output "hidden" f32 [R, E]: what the
 * head over the vocabulary reads. */
lf_graph *lf_electra_read_graph(const lf_electra *e, lf_pstore *ps, const char *name,
                                const struct lf_decoder_rows *r, bool train, lf_err *err);
/* That head: input "hidden" f32 [n, E], some rows of that output; output "logits" f32 [n, V]. */
lf_graph *lf_electra_say_graph(const lf_electra *e, lf_pstore *ps, const char *name, int64_t n,
                               lf_err *err);

#endif
