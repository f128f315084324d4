/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of a micro-batch: their bounds in the plan, and what they put into the graphs. */
#include <string.h>

#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

int lf_train_bound_pictures(struct lf_train_model *m, const struct lf_train_config *c,
                            const lf_model_config *mc, lf_err *err)
{
    if (!c->max_patches && c->max_tiles)
        return lf_fail(err, LF_EINVAL, "max_tiles bounds pictures, which need max_patches too");
    if (!c->max_patches)
        return 0;
    if (c->max_tiles > c->max_patches)
        return lf_fail(err, LF_EINVAL,
                       "max_tiles = %lld, but max_patches = %lld hold no more tiles than that, as "
                       "each has a patch: lower max_tiles",
                       (long long)c->max_tiles, (long long)c->max_patches);
    if (!mc->vision.family)
        return lf_fail(err, LF_EINVAL,
                       "max_patches = %lld, but the model sees no pictures ([model] has no "
                       "vision.family)",
                       (long long)c->max_patches);
    if (c->axes.measured)
        return lf_fail(err, LF_ENOTSUP,
                       "pipeline_cost = measured times text alone; with max_patches leave it out");
    m->media = lf_sight_bounds(mc, c->max_patches, c->max_tiles, m->rows);
    m->media.own_rows = m->own_rows < m->rows ? m->own_rows : 0;
    m->media.encoded = c->n_features > 0;
    m->media.encoded_type = c->compute;
    m->media.drops = c->adapter && c->adapter->dropout > 0;
    return 0;
}

int lf_train_check_base(const lf_trainer *t, const lf_model_config *of, lf_err *err)
{
    if (lf_model_is_encoder(of))
        return lf_fail(err, LF_EINVAL,
                       "init_from = %s is an encoder of pictures alone: give it with vision_from, "
                       "and describe in [model] what is trained with it",
                       t->c->init_from);
    if (lf_model_restores(of) && !(t->c->objective && t->c->objective->pictures))
        return lf_fail(err, LF_EINVAL,
                       "init_from = %s is an encoder that restores pictures: train it with "
                       "objective = mae, or give it with vision_from, and describe in [model] what "
                       "is trained with it",
                       t->c->init_from);
    if (lf_model_classifies(of) && !(t->c->objective && t->c->objective->pictures))
        return lf_fail(err, LF_EINVAL,
                       "init_from = %s tells classes of pictures: train it with objective = "
                       "classes, or give it with vision_from, and describe in [model] what is "
                       "trained with it",
                       t->c->init_from);
    if (lf_model_is_dual(of) && !(t->c->objective && t->c->objective->captions))
        return lf_fail(err, LF_EINVAL,
                       "init_from = %s compares pictures and texts: train it with objective = clip "
                       "or siglip, or give its encoder of pictures with vision_from",
                       t->c->init_from);
    return 0;
}

int64_t lf_train_feature_width(const lf_model_config *mc)
{
    return (1 + mc->vision.taps.n) * lf_vision_width(&mc->vision);
}

static const char *precision_of(enum lf_dtype compute)
{
    return compute == LF_BF16 ? "bf16" : compute == LF_F16 ? "fp16" : "f32";
}

/* Of the encoder that the result of the run has. */
static int check_encoder(const lf_trainer *t, const struct lf_features_info *i, lf_err *err)
{
    const char *dir = t->c->vision_from ? t->c->vision_from : t->c->init_from;
    char is[LF_HASH_HEX];
    lf_ckpt *ck = NULL;
    int rc = lf_ckpt_open_checked(&ck, dir, LF_CKPT_CHECK_READS, 1, err);
    if (rc == 0)
        rc = lf_encoder_identity(is, ck, LF_WEIGHTS_PREFIX, err);
    lf_ckpt_close(ck);
    if (rc == 0 && strcmp(is, i->encoder_sha256) != 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s: these features are of another encoder than that of %s (%.12s, not "
                     "%.12s): make them with this checkpoint",
                     t->c->features[0], dir, i->encoder_sha256, is);
    return rc;
}

int lf_train_open_features(lf_trainer *t, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    const char *precision = precision_of(c->compute);
    if (!c->n_features)
        return 0;
    int rc = lf_features_open(&t->features, c->features, c->n_features, err);
    if (rc != 0)
        return rc;
    const struct lf_features_info *i = lf_features_get_info(t->features);
    if (strcmp(i->precision, precision) != 0)
        return lf_fail(err, LF_EINVAL,
                       "%s: these features were made with precision = %s, and this run has %s",
                       c->features[0], i->precision, precision);
    if ((rc = check_encoder(t, i, err)) != 0)
        return rc;
    return i->width == lf_train_feature_width(&t->mc)
               ? 0
               : lf_fail(err, LF_EFORMAT, "%s: rows of %lld numbers, where the encoder has %lld",
                         c->features[0], (long long)i->width,
                         (long long)lf_train_feature_width(&t->mc));
}

size_t lf_train_sight_bytes(const struct lf_train_config *c, const struct lf_train_model *m)
{
    const lf_objective *o = c->objective;
    if (o && o->inputs) /* it sees for itself */
        return o->host_bytes ? o->host_bytes(o->user) : 0;
    const size_t each =
        c->max_patches ? lf_sight_bytes(lf_decoder_config(m->dec), &m->media, m->rows) : 0;
    const int kept = lf_train_is_cut(&m->cut) ? m->cut.spec.micro_batches : 0;
    return each * (size_t)(1 + kept);
}

int lf_train_see(lf_sight *s, const lf_loader *l, const lf_loader_batch *b, lf_err *err)
{
    const struct lf_sight_media in = {.media = &b->media,
                                      .processor = lf_loader_processor(l),
                                      .tokens = b->tokens,
                                      .positions = b->positions,
                                      .samples = b->sample_ids,
                                      .row_tokens = b->T};
    return lf_sight_fill_media(s, &in, err);
}

int lf_train_write_sight(const lf_trainer *t, const struct lf_train_inputs *in, lf_err *err)
{
    const struct lf_own_sight see = {.ex = t->m.ex,
                                     .chain = in->chain,
                                     .slot = in->slot,
                                     .sight = in->sight,
                                     .tokens = lf_sight_token_rows(in->sight),
                                     .inner = !in->part->first};
    return lf_own_rows_write_sight(&t->mine, &see, err);
}
