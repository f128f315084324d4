/* SPDX-License-Identifier: Apache-2.0
 *
 * What those need of a model who train, ask or score it by tokens. */
#include "engine/model/config.h"

int lf_model_need_text(const lf_model_config *c, lf_err *err)
{
    if (lf_model_is_encoder(c))
        return lf_fail(err, LF_EINVAL,
                       "this model is an encoder of pictures alone, it predicts no tokens: give it "
                       "to a model that sees with vision_from");
    if (lf_model_classifies(c))
        return lf_fail(err, LF_EINVAL,
                       "this model tells classes of pictures ([model] classes.labels), it predicts "
                       "no tokens: train it with objective = classes, ask it with lf-score, and "
                       "give it to a model that sees with vision_from");
    if (lf_model_is_dual(c))
        return lf_fail(err, LF_EINVAL,
                       "this model compares pictures and texts ([model] dual.dim), it predicts no "
                       "tokens: train it with objective = clip or siglip, and ask it with "
                       "lf-score");
    return lf_model_restores(c)
               ? lf_fail(err, LF_EINVAL,
                         "this model is an encoder that restores pictures ([model] mae.layers), it "
                         "predicts no tokens: train it with objective = mae, and give it to a "
                         "model that sees with vision_from")
               : 0;
}

int lf_model_need_next(const lf_model_config *c, lf_err *err)
{
    return c->mask == LF_MASK_BOTH
               ? lf_fail(err, LF_EINVAL,
                         "this model is an encoder ([model] mask = both): its tokens see what "
                         "follows them, so it cannot be trained on, asked for or scored by next "
                         "tokens; train it with objective = mlm of lf-pretrain")
               : 0;
}
