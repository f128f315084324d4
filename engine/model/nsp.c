/* SPDX-License-Identifier: Apache-2.0
 *
 * Next sentence prediction (Devlin et al. 2019, BERT, section 3.1): with nsp_head an encoder that
 * says hidden tokens tells besides whether the second text of a pair follows the first. Of the row
 * x of the first token of a pair
 *
 *     p = softmax(W tanh(W1 x + b1) + b)      W nsp.weight [2, E], b nsp.bias [2]
 *                                             W1 label_in.weight [E, E], b1 label_in.bias [E]
 *
 * where class 0 is that it follows and class 1 that it does not. The loss is that of the hidden
 * tokens, a mean over them, plus the mean cross entropy over pairs. Input nsp.targets i32 [R, 1]
 * has the class at the first row of each pair and -1 elsewhere. W1 is the pooler of BERT, which
 * heads over whole texts have too (labels.c). All rows go through it, so that a layout divides it
 * as it divides other rows; it is a hundredth of a model of twelve layers. */
#include "engine/model/decoder_priv.h"

void lf_decoder_train_nsp(lf_decoder *d)
{
    d->nsp = lf_model_tells_pairs(&d->c);
}

bool lf_decoder_nsp(const lf_decoder *d)
{
    return d->nsp;
}

int64_t lf_decoder_more(const lf_decoder *d)
{
    return d->nsp ? 1 : lf_decoder_mtp(d);
}

void lf_dec_nsp_loss(struct lf_dec_build *b, lf_val x)
{
    lf_graph *g = b->g;
    const lf_val pooled = lf_act(
        g, lf_dec_linear(b, lf_tp_whole(g, x), true, "label_in", LF_DEC_OUTSIDE), LF_ACT_TANH);
    lf_xent(g, pooled, lf_param(g, "nsp.weight"), lf_param(g, "nsp.bias"),
            lf_input(g, "nsp.targets", LF_I32, b->rows, 1), &(struct lf_xent_opts){.head = 1});
}
