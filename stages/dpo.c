/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-dpo: options to the objective of engine/post/dpo.h and the loop of engine/train.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/post/dpo.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/train_common.h"

/* Where neither steps, tokens nor epochs are given. */
#define EPOCHS 1

/* Peak learning rates: of whole models, of adapters. */
#define LR_FULL 1e-6
#define LR_LORA 1e-5

static const char *const losses[] = {"sigmoid", "robust", "hinge", "ipo", "orpo", "simpo", "kto"};
#define LOSS_KTO 6 /* behind those of enum lf_pair_kind */

struct dpo {
    lf_arena *arena;
    struct lf_train_config c;
    struct lf_train_asked asked; /* of an adapter */
    bool dropout;
    bool reference_only; /* mode = reference */
    lf_dpo *dpo;
};

static void destroy(void *self)
{
    struct dpo *s = self;
    if (!s)
        return;
    lf_dpo_destroy(s->dpo);
    lf_arena_destroy(s->arena);
    free(s);
}

static void read_loss(struct lf_dpo_opts *d, const lf_optset *o)
{
    const int loss = lf_optset_choice(o, "loss");
    const bool simpo = loss == LF_PAIR_SIMPO;
    const double beta = lf_optset_is_set(o, "beta") ? lf_optset_float(o, "beta") : simpo ? 2 : 0.1;
    d->loss = losses[loss];
    d->kto = loss == LOSS_KTO;
    d->pair =
        (struct lf_pair_opts){.kind = d->kto ? LF_PAIR_SIGMOID : (enum lf_pair_kind)loss,
                              .beta = beta,
                              .smoothing = lf_optset_float(o, "label_smoothing"),
                              .gamma = lf_optset_is_set(o, "gamma") ? lf_optset_float(o, "gamma")
                                       : simpo                      ? 0.5
                                                                    : 0,
                              .nll = lf_optset_float(o, "nll")};
    d->kto_opts = (struct lf_kto_opts){.beta = beta,
                                       .w_good = lf_optset_float(o, "weight_good"),
                                       .w_bad = lf_optset_float(o, "weight_bad")};
    d->reference_only = lf_optset_choice(o, "mode") == 1;
}

static int check_loss(const struct lf_dpo_opts *d, const lf_optset *o, lf_err *err)
{
    if (d->kto && (d->pair.smoothing > 0 || d->pair.gamma > 0 || d->pair.nll > 0))
        return lf_fail(err, LF_EINVAL,
                       "label_smoothing, gamma and nll are of pairs; loss = kto has none");
    if (!d->kto && (lf_optset_is_set(o, "weight_good") || lf_optset_is_set(o, "weight_bad")))
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
    struct lf_dpo_opts d = {0};
    read_loss(&d, o);
    s->reference_only = d.reference_only;
    d.dropout = s->dropout = lf_optset_bool(o, "dropout");
    int rc = lf_train_string(s->arena, o, "reference", &d.reference.from, err);
    d.reference.dirs = s->c.resume_from;
    d.reference.n_dirs = s->c.n_resume_from;
    d.reference.seq_length = s->c.seq_length;
    if (!rc)
        rc = check_loss(&d, o, err);
    if (!rc)
        rc = lf_dpo_create(&s->dpo, &d, err);
    if (!rc)
        s->c.objective = lf_dpo_objective(s->dpo);
    return rc;
}

static int read_all(struct dpo *s, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &s->c;
    c->packing = LF_PACK_BFD;
    lf_train_read_operation(c, o);
    int rc = lf_train_read_data(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_length(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_batch(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_parts(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_adapter(c, s->arena, o, &s->asked, err);
    if (!rc)
        rc = lf_train_read_paths(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_model(c, o, "lf-dpo", err);
    if (!rc)
        rc = read_objective(s, o, err);
    if (rc)
        return rc;
    lf_train_read_optimizer(c, o, c->adapter ? LR_LORA : LR_FULL);
    rc = lf_train_settle_dropout(c, &s->asked, s->dropout, err);
    return rc ? rc : lf_train_settle(c, EPOCHS, err);
}

static int setup(void **self, const lf_optset *o, lf_err *err)
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
    return lf_train_plan_adapter(&s->c, s->arena, &s->asked, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct dpo *s = self;
    int rc = lf_train_settle_adapter(&s->c, s->arena, &s->asked, comm, err);
    return rc ? rc : lf_train_run(&s->c, &lf_train_stage_sink, comm, err);
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
    return s->reference_only ? none : lf_train_makes(self);
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
