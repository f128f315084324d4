/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3, section 2.2). Head k = 1, 2 ... is layer
 * L + k - 1 and predicts, at the row of token t, the token t + 1 + k:
 *
 *     z   = W [norm_e(E[x_{t+k}]) | norm_h(h_{k-1})]    W = mtp.join [C, 2C]
 *     h_k = norm(layer(z))                              norm_e, norm_h, norm: its own
 *     logits = head(h_k)
 *
 * h_0 is what the model's final norm gives. The embedding E and the head over the vocabulary are
 * the model's. With mtp_join = hidden_embed (MiMo) the hidden state comes first. The layer is of
 * the kind of the last one, over the same documents and positions; with mtp_mlp = dense (K-EXAONE)
 * its MLP has no experts. Row t of it sees the embeddings of tokens up to x_{t+k} and no further.
 * With mtp_norm = final (ERNIE 4.5) norm is the final norm of the model, whose weight such heads
 * train too.
 *
 * The loss is that of the model plus weight / D times the sum over D heads of their cross
 * entropies, each divided by the trained tokens of the model's own loss (equation 24 of the paper
 * divides all by the length of the sequence). The last k rows of a document have no target.
 */
#include <stdio.h>

#include "engine/model/decoder_priv.h"

void lf_decoder_train_mtp(lf_decoder *d)
{
    d->mtp = d->c.mtp_layers > 0;
}

int64_t lf_decoder_mtp(const lf_decoder *d)
{
    return d->mtp ? d->c.mtp_layers : 0;
}

lf_val lf_dec_mtp_layer(struct lf_dec_build *b, lf_val embedded, lf_val hidden, int64_t l)
{
    const bool swapped = b->c->mtp_join == LF_MTP_HIDDEN_EMBED;
    const lf_val e = lf_dec_norm(b, embedded, "mtp.embed_norm", l),
                 h = lf_dec_norm(b, hidden, "mtp.hidden_norm", l),
                 both = lf_heads_join(b->g, swapped ? h : e, swapped ? e : h, 1),
                 x = lf_dec_block(b, lf_dec_linear(b, both, false, "mtp.join", l), l);
    return b->c->mtp_norm == LF_MTP_NORM_FINAL ? lf_dec_norm(b, x, "final_norm", LF_DEC_OUTSIDE)
                                               : lf_dec_norm(b, x, "mtp.final_norm", l);
}

lf_val lf_dec_mtp_embed(struct lf_dec_build *b, lf_val tokens)
{
    return lf_tp_leave(b->g, lf_embed(b->g, tokens, LF_NONE, lf_param(b->g, "embed.weight"),
                                      LF_NONE, (float)b->c->embed_scale, 0));
}

static lf_val input(struct lf_dec_build *b, int64_t k, const char *what)
{
    char name[32];
    snprintf(name, sizeof name, "mtp.%lld.%s", (long long)k, what);
    return lf_input(b->g, name, LF_I32, b->rows, 1);
}

void lf_dec_mtp_losses(struct lf_dec_build *b, lf_val x)
{
    const lf_model_config *c = b->c;
    lf_val h[LF_MORE_HEADS + 1] = {x};
    for (int64_t k = 1; k <= b->more; k++) {
        lf_block_begin(b->g, (int)(c->layers + k - 1));
        h[k] = lf_dec_mtp_layer(b, lf_dec_mtp_embed(b, input(b, k, "tokens")), h[k - 1],
                                c->layers + k - 1);
        lf_block_end(b->g);
    }
    lf_dec_chunk_total(b);
    for (int64_t k = 1; k <= b->more; k++)
        lf_dec_loss(b, h[k], input(b, k, "targets"),
                    &(struct lf_xent_opts){.softcap = (float)c->logit_softcap, .head = (int)k});
}
