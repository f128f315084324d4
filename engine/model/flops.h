/* SPDX-License-Identifier: Apache-2.0
 *
 * The FLOPs that training a decoder takes, as its tensors are trained, frozen or adapted. A token
 * at sequence length T takes
 *
 *     forward       2 (P + A) + 4 work(0)
 *     activations   2 (P' + A') + 8 work(l)
 *     weights       2 (W + A)
 *
 * P are the scalars of the matrices that multiply a token (lf_model_matmul_params: a tied head
 * counts, a table that is looked up does not, of experts those that are chosen), W those of P that
 * are trained, A the scalars of the adapters' matrices. Gradients of activations are needed from
 * the loss down to the lowest layer l with something trained: P' and A' lie in the layers l .. L-1
 * and, unless the head alone is trained, behind them. work(l) is the sum of H D times the
 * mean keys of a query over those of these layers that attend: T keys without causal, T/2 with
 * causal, less in windowed layers. That
 * the tokens of a picture, or of a prefix, see each other is not counted.
 *
 * What an encoder of pictures and its projector take does not count: it follows from patches, not
 * from tokens.
 *
 * Heads of mtp_layers that are trained count as layers behind the last one, each with the head over
 * the vocabulary once more; others do not run.
 *
 * Of a generator beside the model (electra.h) the matrices count once, and not the attention.
 *
 * With everything trained, no adapter and no such heads this is lf_model_train_flops_per_token.
 * With a frozen base
 * it is some two thirds of it: no gradients of its weights are computed. What recompute computes
 * again does not count.
 */
#ifndef LF_MODEL_FLOPS_H
#define LF_MODEL_FLOPS_H

#include "engine/graph/pstore.h"
#include "engine/model/config.h"

struct lf_train_flops {
    double matrices; /* FLOPs of a token, without attention */
    int64_t from;    /* l; layers: nothing below the head is trained */
    int64_t more;    /* heads of mtp_layers that run */
};

/* Tokens of a sequence, and of its source: 0 but for encoder-decoders. */
struct lf_model_lengths {
    int64_t target, source;
};
/* FLOPs of a token in training, of each layer and behind them of the head, with heads of mtp_layers
 * where `mtp`: flops has lf_model_depth(c) + 1 places. Everything is trained, attention is causal,
 * but in an encoder. What rows of sources take is that of a sequence by its target's tokens. */
int lf_model_layer_flops(double *flops, const lf_model_config *c, struct lf_model_lengths of,
                         bool mtp, lf_err *err);

/* ps holds the tensors of c, with their adapters. */
struct lf_train_flops lf_train_flops_of(const lf_model_config *c, const lf_pstore *ps);
/* Returns the FLOPs of a token at this length. */
double lf_train_flops_per_token(const struct lf_train_flops *f, const lf_model_config *c,
                                int64_t seq_length, bool causal);

#endif
