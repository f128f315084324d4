/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-pretrain with objective = mae: pictures are restored, and no text is read. */
#include "stages/pretrain.h"
#include "stages/stage.h"

enum { FP8 = 3 }; /* of LF_TRAIN_PRECISIONS_FP8 */

static int refuse_others(const struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const void *const members[] = {&p->mask_ratio, &p->norm_pix};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (lf_optset_given(o, members[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to objective = mae",
                           lf_optset_given(o, members[i]));
    return 0;
}

/* What is about text, or divides a model of text. */
static int refuse_text(const struct pretrain *p, const lf_optset *o, lf_err *err)
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
    const void *const layout[] = {&c->axes.tensor,       &c->axes.sequence, &c->axes.across_nodes,
                                  &c->axes.pipeline,     &c->axes.chunks,   &c->axes.schedule,
                                  &c->axes.stages,       &c->axes.measured, &c->axes.context,
                                  &c->axes.context_kind, &c->axes.expert,   &c->axes.expert_room,
                                  &c->axes.expert_tensor};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (lf_optset_given(o, text[i]))
            return lf_fail(err, LF_EINVAL,
                           "%s has no meaning with objective = mae, which reads pictures and no "
                           "text: a sequence is a document with its pictures; leave it out",
                           lf_optset_given(o, text[i]));
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (lf_optset_given(o, layout[i]))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: with objective = mae ranks share the batch alone; leave it out, or "
                           "take zero to divide the optimizer's state",
                           lf_optset_given(o, layout[i]));
    return p->g.precision == FP8
               ? lf_fail(err, LF_ENOTSUP,
                         "precision = fp8 is for layers of text; with objective = mae take bf16")
               : 0;
}

int lf_pretrain_read_mae(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    if (p->objective != PRETRAIN_MAE)
        return refuse_others(p, o, err);
    int rc = refuse_text(p, o, err);
    if (rc != 0)
        return rc;
    if (c->max_patches < 1)
        return lf_fail(err, LF_EINVAL,
                       "objective = mae trains on pictures: give max_patches, the patches that the "
                       "pictures of a micro-batch have at most");
    const struct lf_mae_train_opts of = {.mask_ratio = p->mask_ratio,
                                         .norm_pix = p->norm_pix,
                                         .seed = c->seed,
                                         .threads = lf_stage_threads(o)};
    if (!(p->restoring = lf_mae_train_create(&of, err)))
        return LF_ENOMEM;
    c->objective = lf_mae_train_objective(p->restoring);
    c->seq_length = 2; /* a document, as the loader counts it */
    return 0;
}

int lf_pretrain_check_mae(const struct pretrain *p, lf_err *err)
{
    const struct lf_train_config *c = &p->c;
    const bool mae = p->objective == PRETRAIN_MAE;
    if (!c->model_given || lf_model_restores(&c->model) == mae)
        return 0;
    return mae ? lf_fail(err, LF_EINVAL,
                         "objective = mae needs a decoder that restores pictures: describe it "
                         "with mae.layers, mae.hidden and mae.heads in [model]")
               : lf_fail(err, LF_EINVAL,
                         "[model] mae.layers: an encoder and what restores pictures are "
                         "trained with objective = mae");
}
