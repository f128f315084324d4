/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels in place of tokens: classes of texts (Devlin et al. 2019, BERT, section 4.1), of tokens,
 * numbers for regression, and spans of answers (BERT, section 4.2). N numbers z of each row x:
 *
 *     plain      z = W x + b                      W labels.weight [N, E], b labels.bias [N]
 *     tanh       z = W tanh(W1 x + b1) + b        W1 label_in.weight [E, E], b1 label_in.bias [E]
 *     relu       z = W relu(W1 x + b1) + b
 *     gelu       z = W gelu(W1 x + b1) + b
 *     transform  z = W norm(act(W1 x + b1)) + b   head_in and head_norm of the head over the
 *                                                 vocabulary (ModernBERT)
 *
 * All of it is of rows, so that a text's labels are those of the row that is read (label_row). The
 * head has no dropout. */
#include <string.h>

#include "engine/model/decoder_priv.h"
#include "engine/model/electra.h"

bool lf_model_transforms(const lf_model_config *c)
{
    return c->head_transform &&
           (c->output == LF_OUTPUT_TOKENS ||
            (c->output == LF_OUTPUT_LABELS && c->label_head == LF_LABEL_TRANSFORM));
}

/* What a family of transformers has before the last matrix of labels of texts, and of others. */
struct habit {
    const char *family;
    int text, rest;
};

static const struct habit habits[] = {{"bert", LF_LABEL_TANH, LF_LABEL_PLAIN},
                                      {"roberta", LF_LABEL_TANH, LF_LABEL_PLAIN},
                                      {"xlm-roberta", LF_LABEL_TANH, LF_LABEL_PLAIN},
                                      {"camembert", LF_LABEL_TANH, LF_LABEL_PLAIN},
                                      {"distilbert", LF_LABEL_RELU, LF_LABEL_PLAIN},
                                      {"electra", LF_LABEL_GELU, LF_LABEL_PLAIN},
                                      {"modernbert", LF_LABEL_TRANSFORM, LF_LABEL_TRANSFORM}};

int lf_model_give_labels(lf_model_config *c, int64_t labels, int of, lf_err *err)
{
    const bool both = c->mask == LF_MASK_BOTH, text = of == LF_LABELS_OF_TEXT;
    if (labels < 1)
        return lf_fail(err, LF_EINVAL, "labels = %lld: there is at least one", (long long)labels);
    if (of == LF_LABELS_OF_SPAN && labels != 2)
        return lf_fail(err, LF_EINVAL,
                       "labels = %lld: a span has two numbers of each token, for its begin and its "
                       "end",
                       (long long)labels);
    c->output = LF_OUTPUT_LABELS;
    c->nsp_head = false;
    lf_model_leave_generator(c);
    c->labels = labels;
    c->labels_of = of;
    c->label_row = both && text ? LF_LABEL_FIRST : LF_LABEL_LAST;
    c->label_bias = both || !text;
    c->label_head = LF_LABEL_PLAIN;
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (strcmp(c->family, habits[i].family) == 0)
            c->label_head = text ? habits[i].text : habits[i].rest;
    return 0;
}

int lf_model_want_labels(lf_model_config *c, int64_t labels, int of, lf_err *err)
{
    return c->output == LF_OUTPUT_LABELS && c->labels == labels && c->labels_of == of
               ? 0
               : lf_model_give_labels(c, labels, of, err);
}

lf_val lf_dec_label_logits(struct lf_dec_build *b, lf_val x)
{
    const lf_model_config *c = b->c;
    x = lf_tp_whole(b->g, x);
    if (c->label_head == LF_LABEL_TRANSFORM)
        x = lf_dec_transform(b, x);
    else if (c->label_head != LF_LABEL_PLAIN)
        x = lf_act(b->g, lf_dec_linear(b, x, true, "label_in", LF_DEC_OUTSIDE),
                   c->label_head == LF_LABEL_TANH   ? LF_ACT_TANH
                   : c->label_head == LF_LABEL_GELU ? LF_ACT_GELU
                                                    : LF_ACT_RELU);
    return lf_dec_linear(b, x, c->label_bias, "labels", LF_DEC_OUTSIDE);
}
