/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain with objective = mae, classes, moco, clip or siglip: pictures are
 * restored, told apart, compared, or held against captions. */
#include "stages/pretrain.h"
#include "stages/stage.h"

enum { FP8 = 3 }; /* of LF_TRAIN_PRECISIONS_FP8 */

static int refuse_given(const lf_optset *o, const void *const *members, size_t n,
                        const char *objective, lf_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (lf_optset_given(o, members[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to objective = %s",
                           lf_optset_given(o, members[i]), objective);
    return 0;
}

static int refuse_others(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_class_train_opts *q = &p->told;
    const void *const mae[] = {&p->mask_ratio, &p->norm_pix};
    const void *const classes[] = {
        &q->column, &q->teacher, &q->augment.ops, &q->augment.magnitude, &q->smoothing,
        &q->mixup,  &q->cutmix,  &q->erase,       &q->drop_path,         &q->repeats};
    const void *const changed[] = {&q->augment.crop_scale, &q->augment.flip};
    const struct lf_moco_train_opts *m = &p->moco;
    const void *const moco[] = {
        &m->temperature,        &m->momentum,     &m->hidden,          &m->dim,
        &m->augment.jitter,     &m->augment.grey, &m->augment.blur[0], &m->augment.blur[1],
        &m->augment.solarize[1]};
    int rc = 0;
    if (p->objective != PRETRAIN_MAE)
        rc = refuse_given(o, mae, sizeof mae / sizeof *mae, "mae", err);
    if (rc == 0 && p->objective != PRETRAIN_CLASSES)
        rc = refuse_given(o, classes, sizeof classes / sizeof *classes, "classes", err);
    if (rc == 0 && p->objective != PRETRAIN_CLASSES && p->objective != PRETRAIN_MOCO)
        rc = refuse_given(o, changed, sizeof changed / sizeof *changed, "classes or moco", err);
    if (rc == 0 && p->objective != PRETRAIN_MOCO)
        rc = refuse_given(o, moco, sizeof moco / sizeof *moco, "moco", err);
    return rc;
}

static bool compares(const struct pretrain *p)
{
    return p->objective == PRETRAIN_CLIP || p->objective == PRETRAIN_SIGLIP;
}

/* What is about text, or divides a model of text. */
static int refuse_text(const struct pretrain *p, const lf_optset *o, const char *objective,
                       lf_err *err)
{
    const struct lf_train_config *c = &p->c;
    const void *const text[] = {&c->seq_length,       &c->max_docs,
                                &c->tokens,           &p->g.batch_tokens,
                                &c->packing,          &c->megatron_order,
                                &c->megatron.seed,    &c->megatron.samples,
                                &c->megatron.surplus, &c->megatron.split,
                                &c->valid_tokens,     &c->z_loss,
                                &c->mtp_weight,       &c->mfu,
                                &p->samples.interval, &p->samples.tokenizer};
    const void *const layout[] = {&c->axes.sequence,    &c->axes.pipeline,     &c->axes.chunks,
                                  &c->axes.schedule,    &c->axes.stages,       &c->axes.measured,
                                  &c->axes.context,     &c->axes.context_kind, &c->axes.expert,
                                  &c->axes.expert_room, &c->axes.expert_tensor};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (lf_optset_given(o, text[i]))
            return lf_fail(err, LF_EINVAL,
                           "%s has no meaning with objective = %s, which reads pictures and %s "
                           "text: a sequence is a document with its pictures; leave it out",
                           lf_optset_given(o, text[i]), objective,
                           compares(p) ? "whole captions, no packed" : "no");
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (lf_optset_given(o, layout[i]))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: with objective = %s ranks share the batch and divide matrices "
                           "(tensor) alone; leave it out, or take zero to divide the optimizer's "
                           "state",
                           lf_optset_given(o, layout[i]), objective);
    return p->g.precision == FP8
               ? lf_fail(err, LF_ENOTSUP,
                         "precision = fp8 is for layers of text; with objective = %s take bf16",
                         objective)
               : 0;
}

static int read_mae(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_mae_train_opts of = {.mask_ratio = p->mask_ratio,
                                         .norm_pix = p->norm_pix,
                                         .seed = p->c.seed,
                                         .threads = lf_stage_threads(o)};
    if (!(p->restoring = lf_mae_train_create(&of, err)))
        return LF_ENOMEM;
    p->c.objective = lf_mae_train_objective(p->restoring);
    return 0;
}

/* Pictures are mixed by pairs of samples, which one micro-batch has. */
static int check_pairs(const struct pretrain *p, lf_err *err)
{
    const bool mixes = p->told.mixup > 0 || p->told.cutmix > 0;
    return mixes && p->c.micro_batch % 2
               ? lf_fail(err, LF_EINVAL,
                         "micro_batch = %d: mixup and cutmix mix pairs of pictures of a "
                         "micro-batch; take an even one",
                         (int)p->c.micro_batch)
               : 0;
}

static int read_classes(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_class_train_opts *q = &p->told;
    if (lf_optset_given(o, &q->augment.magnitude) && !q->augment.ops)
        return lf_fail(err, LF_EINVAL, "rand_magnitude is of rand_ops, of which there are none");
    const bool varies = q->augment.crop_scale > 0 || q->augment.flip || q->augment.ops ||
                        q->erase > 0 || q->mixup > 0 || q->cutmix > 0 || q->drop_path > 0;
    if (q->repeats > 1 && !varies)
        return lf_fail(err, LF_EINVAL,
                       "repeats = %d: nothing changes pictures, so the same would come again; give "
                       "crop_scale, flip, rand_ops, erase, mixup, cutmix or drop_path",
                       q->repeats);
    if (q->teacher && !q->teacher[0])
        q->teacher = NULL;
    q->seed = p->c.seed;
    q->threads = lf_stage_threads(o);
    if (!(p->telling = lf_class_train_create(q, err)))
        return LF_ENOMEM;
    p->c.objective = lf_class_train_objective(p->telling);
    return 0;
}

static int read_pairs(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const struct lf_dual_train_opts of = {.kind = p->objective == PRETRAIN_CLIP ? LF_DUAL_CLIP
                                                                                : LF_DUAL_SIGLIP,
                                          .threads = lf_stage_threads(o)};
    if (!(p->comparing = lf_dual_train_create(&of, err)))
        return LF_ENOMEM;
    p->c.objective = lf_dual_train_objective(p->comparing);
    return 0;
}

/* What does not go together with an average of the weights, and with losses of all ranks. */
static int check_moco(const struct pretrain *p, lf_err *err)
{
    if (p->c.zero.stage)
        return lf_fail(err, LF_ENOTSUP,
                       "zero: with objective = moco each rank keeps all weights, whose average "
                       "moves too; leave it out");
    if (lf_device_choose(p->c.device) != LF_DEVICE_CPU)
        return lf_fail(err, LF_ENOTSUP,
                       "device: with objective = moco the heads are computed by the host, which "
                       "would hold a GPU up; take device = cpu");
    if (p->c.init_from)
        return lf_fail(err, LF_EINVAL,
                       "init_from: with objective = moco the encoder to begin with is given with "
                       "vision_from");
    if (p->c.adam.masters != LF_F32)
        return lf_fail(err, LF_ENOTSUP,
                       "masters = bf16: with objective = moco the average moves by less than bf16 "
                       "can tell; leave it out");
    return p->c.compute == LF_F16 ? lf_fail(err, LF_ENOTSUP,
                                            "precision = fp16 is not for objective = moco; take "
                                            "bf16")
                                  : 0;
}

/* Views are those of the paper where nothing else is said. */
static int read_moco(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_moco_train_opts *m = &p->moco;
    const struct lf_augment *a = &p->told.augment;
    const int rc = check_moco(p, err);
    if (rc != 0)
        return rc;
    m->augment.crop_scale = lf_optset_given(o, &a->crop_scale) ? a->crop_scale : 0.08;
    m->augment.flip = !lf_optset_given(o, &a->flip) || a->flip;
    m->seed = p->c.seed;
    m->threads = lf_stage_threads(o);
    if (!(p->contrasting = lf_moco_train_create(m, err)))
        return LF_ENOMEM;
    p->c.objective = lf_moco_train_objective(p->contrasting);
    return 0;
}

/* NULL: it is not about pictures. */
static const char *name_of(int objective)
{
    return objective == PRETRAIN_MAE       ? "mae"
           : objective == PRETRAIN_CLASSES ? "classes"
           : objective == PRETRAIN_MOCO    ? "moco"
           : objective == PRETRAIN_CLIP    ? "clip"
           : objective == PRETRAIN_SIGLIP  ? "siglip"
                                           : NULL;
}

int lf_pretrain_read_pictures(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    const char *objective = name_of(p->objective);
    int rc = refuse_others(p, o, err);
    if (rc != 0 || !objective)
        return rc;
    if ((rc = refuse_text(p, o, objective, err)) != 0)
        return rc;
    if (c->max_patches < 1)
        return lf_fail(err, LF_EINVAL,
                       "objective = %s trains on pictures: give max_patches, the patches that the "
                       "pictures of a micro-batch have at most",
                       objective);
    c->seq_length = 2; /* a document, as the loader counts it */
    return p->objective == PRETRAIN_MAE    ? read_mae(p, o, err)
           : p->objective == PRETRAIN_MOCO ? read_moco(p, o, err)
           : compares(p)                   ? read_pairs(p, o, err)
                                           : read_classes(p, o, err);
}

int lf_pretrain_check_pictures(const struct pretrain *p, lf_err *err)
{
    const struct lf_train_config *c = &p->c;
    const bool mae = p->objective == PRETRAIN_MAE, classes = p->objective == PRETRAIN_CLASSES;
    const int rc = classes ? check_pairs(p, err) : 0;
    if (rc != 0 || !c->model_given)
        return rc;
    if (lf_model_is_encoder(&c->model) != (p->objective == PRETRAIN_MOCO))
        return lf_model_is_encoder(&c->model)
                   ? lf_fail(err, LF_EINVAL,
                             "[model] needs layers, hidden and so on of a text decoder, "
                             "mae.layers, or classes.labels: nothing trains an encoder of pictures "
                             "(vision.family) alone but objective = moco")
                   : lf_fail(err, LF_EINVAL,
                             "objective = moco trains an encoder of pictures alone: [model] has "
                             "vision.* and nothing else");
    if (lf_model_restores(&c->model) != mae)
        return mae ? lf_fail(err, LF_EINVAL,
                             "objective = mae needs a decoder that restores pictures: describe it "
                             "with mae.layers, mae.hidden and mae.heads in [model]")
                   : lf_fail(err, LF_EINVAL,
                             "[model] mae.layers: an encoder and what restores pictures are "
                             "trained with objective = mae");
    if (lf_model_classifies(&c->model) != classes)
        return classes ? lf_fail(err, LF_EINVAL,
                                 "objective = classes needs a model that tells classes of "
                                 "pictures: say how many with classes.labels in [model]")
                       : lf_fail(err, LF_EINVAL,
                                 "[model] classes.labels: a model that tells classes of pictures "
                                 "is trained with objective = classes");
    if (lf_model_is_dual(&c->model) != compares(p))
        return compares(p)
                   ? lf_fail(err, LF_EINVAL,
                             "objective = clip and siglip need towers of pictures and texts: "
                             "describe them with dual.dim, vision.family and the keys of a text "
                             "model in [model]")
                   : lf_fail(err, LF_EINVAL,
                             "[model] dual.dim: towers of pictures and texts are trained with "
                             "objective = clip or siglip");
    if (c->model.dual.bias && p->objective == PRETRAIN_CLIP)
        return lf_fail(err, LF_EINVAL,
                       "[model] dual.bias: the loss of objective = clip knows none, since it is "
                       "the same in every row; leave it out, or take objective = siglip");
    return 0;
}
