/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-dpo: options to the objective of engine/post/dpo.h and the loop of engine/train.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "stages/dpo.h"
#include "stages/stage.h"

/* Where neither steps, tokens nor epochs are given. */
#define EPOCHS 1

/* Peak learning rates: of whole models, of adapters. */
#define LR_FULL 1e-6
#define LR_LORA 1e-5

static const char *const losses[] = {"sigmoid", "robust", "hinge", "ipo", "orpo", "simpo", "kto"};
#define LOSS_KTO 6 /* behind those of enum lf_pair_kind */

static void destroy(void *self)
{
    struct dpo *s = self;
    if (!s)
        return;
    lf_train_samples_close(&s->samples);
    lf_dpo_destroy(s->dpo);
    lf_arena_destroy(s->arena);
    free(s);
}

static void read_loss(struct dpo *s)
{
    struct lf_dpo_opts *d = &s->d;
    const bool simpo = s->loss == LF_PAIR_SIMPO;
    d->loss = losses[s->loss];
    d->kto = s->loss == LOSS_KTO;
    d->pair.kind = d->kto ? LF_PAIR_SIGMOID : (enum lf_pair_kind)s->loss;
    if (d->pair.beta <= 0)
        d->pair.beta = simpo ? 2 : 0.1;
    if (d->pair.gamma < 0)
        d->pair.gamma = simpo ? 0.5 : 0;
    d->kto_opts.beta = d->pair.beta;
}

static int check_loss(const struct lf_dpo_opts *d, const lf_optset *o, lf_err *err)
{
    if (d->kto && (d->pair.smoothing > 0 || d->pair.gamma > 0 || d->pair.nll > 0))
        return lf_fail(err, LF_EINVAL,
                       "label_smoothing, gamma and nll are of pairs; loss = kto has none");
    if (!d->kto &&
        (lf_optset_given(o, &d->kto_opts.w_good) || lf_optset_given(o, &d->kto_opts.w_bad)))
        return lf_fail(err, LF_EINVAL, "weight_good and weight_bad belong to loss = kto");
    if (d->kto && !(d->kto_opts.w_good + d->kto_opts.w_bad > 0))
        return lf_fail(err, LF_EINVAL, "weight_good and weight_bad are both 0");
    const bool reference = d->kto || lf_pair_needs_reference(d->pair.kind);
    if (!reference && (d->reference_only || d->reference.from))
        return lf_fail(err, LF_EINVAL,
                       "loss = %s has no reference policy; leave mode and reference out", d->loss);
    if (d->reference_only && d->reference.from)
        return lf_fail(err, LF_EINVAL,
                       "mode = reference makes what reference names; leave that out");
    return lf_pair_check(&d->pair, err);
}

/* The objective, when everything else is read. */
static int read_objective(struct dpo *s, const lf_optset *o, lf_err *err)
{
    struct lf_dpo_opts *d = &s->d;
    read_loss(s);
    d->dropout = s->g.dropout;
    d->reference.dirs = s->c.resume_from;
    d->reference.n_dirs = s->c.n_resume_from;
    d->reference.seq_length = s->c.seq_length;
    d->reference.row_patches = s->c.max_patches / s->c.micro_batch;
    d->reference.row_tiles = s->c.max_tiles / s->c.micro_batch;
    int rc = check_loss(d, o, err);
    if (rc == 0)
        rc = lf_dpo_create(&s->dpo, d, err);
    if (rc == 0)
        s->c.objective = lf_dpo_objective(s->dpo);
    return rc;
}

static int read_all(struct dpo *s, lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &s->c;
    c->packing = LF_PACK_BFD;
    s->d.pair.gamma = -1;
    lf_train_fill(s, c, &s->g, o);
    lf_train_read_compute(c, &s->g, o);
    lf_train_read_paths(c, o);
    int rc = lf_train_read_data(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_length(c, &s->g, s->arena, o, err);
    if (rc == 0)
        rc = lf_train_read_batch(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_parts(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_adapter(c, &s->g, o, &s->asked, err);
    if (rc == 0)
        rc = lf_train_read_model(c, o, "lf-dpo", err);
    if (rc == 0)
        rc = read_objective(s, o, err);
    if (rc == 0)
        rc = lf_train_samples_check(&s->samples, o, true, err);
    if (rc == 0 && s->d.reference_only && s->samples.interval)
        rc = lf_fail(err, LF_EINVAL, "mode = reference trains nothing: leave sample_interval out");
    if (rc != 0)
        return rc;
    lf_train_read_optimizer(c, &s->g, o, c->adapter ? LR_LORA : LR_FULL);
    rc = lf_train_settle_dropout(c, &s->asked, s->g.dropout, err);
    return rc != 0 ? rc : lf_train_settle(c, EPOCHS, err);
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct dpo *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    *self = s;
    s->arena = lf_arena_create(err);
    int rc = s->arena ? read_all(s, o, err) : LF_ENOMEM;
    return lf_train_end_setup(&s->c, o, rc, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct dpo *s = self;
    int rc = lf_train_samples_open(&s->samples, &s->c, false, err);
    return rc != 0 ? rc : lf_train_plan_adapter(&s->c, s->arena, &s->asked, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct dpo *s = self;
    int rc = lf_stage_agree(comm, lf_train_samples_open(&s->samples, &s->c, true, err), err);
    if (rc == 0)
        rc = lf_train_settle_adapter(&s->c, s->arena, &s->asked, comm, err);
    return rc != 0 ? rc : lf_train_run(&s->c, &lf_train_stage_sink, comm, err);
}

static void profile(void *self, struct lf_profile *p)
{
    ((struct dpo *)self)->c.profile = p;
}

/* A reference says itself of which weights and data it is (engine/post/reference.h); other options
 * do not change it. */
static const char *const *makes(const void *self)
{
    static const char *const none[] = {NULL};
    const struct dpo *s = self;
    return s->d.reference_only ? none : lf_train_makes(self);
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_dpo_opts,
                            .setup = setup,
                            .plan = plan,
                            .run = run,
                            .destroy = destroy,
                            .ranks = true,
                            .profile = profile,
                            .makes = makes,
                            .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
