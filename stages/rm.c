/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-rm: options to engine/train with the objective of engine/post/rm_train.h, or of label_train.h.
 * What is special here is the model: that of init_from with a score, or labels, in place of its
 * head.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/infer/runner.h"
#include "stages/rm.h"
#include "stages/stage.h"

/* Where neither steps, tokens nor epochs are given. */
#define EPOCHS 1

/* Peak learning rates: of whole models, of adapters. */
#define LR_FULL 1e-5
#define LR_LORA 1e-4

static void destroy(void *self)
{
    struct rm *r = self;
    if (!r)
        return;
    lf_scored_destroy(r->scored);
    lf_train_samples_close(&r->samples);
    lf_rm_train_destroy(r->objective);
    lf_label_train_destroy(r->labels);
    lf_contrast_train_destroy(r->contrast);
    lf_arena_destroy(r->arena);
    free(r);
}

static int read_objective(struct rm *r, const lf_optset *o, lf_err *err)
{
    const int rc = lf_rm_read_labels(r, o, err);
    if (rc != 0 || r->objective_kind != RM_PAIRS)
        return rc;
    r->t.dropout = r->g.dropout;
    if (!(r->objective = lf_rm_train_create(&r->t, err)))
        return LF_ENOMEM;
    r->c.objective = lf_rm_train_objective(r->objective);
    return 0;
}

/* What is new is trained whole beside an adapter: the head of scores, the matrices of labels. */
static int settle_parts(struct rm *r, lf_err *err)
{
    struct lf_train_config *c = &r->c;
    r->asked.head = r->objective_kind == RM_PAIRS;
    if (r->objective_kind == RM_LABELS) {
        r->asked.labels = r->l.form.labels;
        r->asked.labels_of = lf_label_of(r->l.form.kind);
    }
    if (!c->adapter)
        return 0;
    r->lora = *c->adapter;
    r->lora.head = r->asked.head;
    r->lora.labels = r->asked.labels;
    r->lora.labels_of = r->asked.labels_of;
    c->adapter = &r->lora;
    return lf_train_settle_dropout(c, &r->asked, r->g.dropout, err);
}

static int check_samples(const struct rm *r, const lf_optset *o, lf_err *err)
{
    const void *const rest[] = {&r->samples.rows, &r->samples.tokenizer};
    for (size_t i = 0; i < sizeof rest / sizeof *rest && !r->samples.interval; i++)
        if (lf_optset_given(o, rest[i]))
            return lf_fail(err, LF_EINVAL,
                           "%s belongs to samples, of which there are none: give sample_interval",
                           lf_optset_given(o, rest[i]));
    return 0;
}

static int open_samples(struct rm *r, bool run, lf_err *err)
{
    struct lf_train_samples *q = &r->samples;
    struct lf_train_config *c = &r->c;
    if (!q->interval)
        return 0;
    int rc = run ? lf_train_samples_tokenizer(q, c, err) : 0;
    const struct lf_scored_opts o = {.rows = q->rows,
                                     .interval = q->interval,
                                     .context = c->seq_length,
                                     .patches = c->max_patches,
                                     .tiles = c->max_tiles,
                                     .tok = q->tok};
    if (rc == 0 && !(r->scored = lf_scored_create(&o, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        c->guest = lf_scored_guest(r->scored);
    return rc;
}

static int read_all(struct rm *r, lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &r->c;
    c->packing = LF_PACK_BFD;
    lf_train_fill(r, c, &r->g, o);
    lf_train_read_compute(c, &r->g, o);
    lf_train_read_paths(c, o);
    int rc = read_objective(r, o, err);
    if (rc == 0)
        rc = lf_train_read_data(c, &r->g, r->arena, err);
    if (rc == 0)
        rc = lf_train_read_length(c, &r->g, r->arena, o, err);
    if (rc == 0)
        rc = lf_train_read_batch(c, &r->g, r->arena, err);
    if (rc == 0)
        rc = lf_train_read_parts(c, &r->g, r->arena, err);
    if (rc == 0)
        rc = lf_train_read_adapter(c, &r->g, o, &r->asked, err);
    if (rc == 0)
        rc = lf_rm_check_labels(r, o, err);
    if (rc == 0)
        rc = lf_train_read_model(c, o, "lf-rm", err);
    if (rc == 0)
        rc = settle_parts(r, err);
    if (rc == 0)
        rc = check_samples(r, o, err);
    if (rc != 0)
        return rc;
    lf_train_read_optimizer(c, &r->g, o, c->adapter ? LR_LORA : LR_FULL);
    return lf_train_settle(c, EPOCHS, err);
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct rm *r = lf_calloc(1, sizeof(*r), err);
    if (!r)
        return LF_ENOMEM;
    *self = r;
    r->arena = lf_arena_create(err);
    int rc = r->arena ? read_all(r, o, err) : LF_ENOMEM;
    return lf_train_end_setup(&r->c, o, rc, err);
}

/* The model of init_from with a score or labels in place of its head, and nothing random. */
static int describe(struct rm *r, lf_err *err)
{
    struct lf_train_config *c = &r->c;
    int rc = r->objective_kind == RM_PAIRS ? lf_runner_config(&c->model, c->init_from, err)
                                           : lf_runner_description(&c->model, c->init_from, err);
    if (rc != 0)
        return lf_err_prefix(err, "init_from");
    if (r->objective_kind != RM_PAIRS) {
        rc = lf_rm_describe_labels(r, err);
    } else {
        if (c->model.output != LF_OUTPUT_SCORE)
            rc = lf_model_config_set(&c->model, "score_init", r->score_init, "score_init", err);
        c->model.output = LF_OUTPUT_SCORE;
    }
    r->left_out = !r->g.dropout && lf_decoder_has_dropout(&c->model);
    if (r->left_out)
        c->model.embed_dropout = c->model.attn_dropout = c->model.mlp_dropout =
            c->model.attn_prob_dropout = 0;
    if (rc == 0)
        rc = lf_model_config_finish(&c->model, err);
    c->model_given = rc == 0;
    return rc != 0 ? rc : lf_train_check(c, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct rm *r = self;
    lf_err why = LF_ERR_INIT;
    int rc = describe(r, &why);
    if (rc != 0 && rc != LF_ENOENT) /* not there yet: the loop's plan says so */
        return lf_fail(err, rc, "%s", why.text);
    rc = open_samples(r, false, err);
    return rc != 0 ? rc : lf_train_plan_adapter(&r->c, r->arena, &r->asked, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct rm *r = self;
    int rc = lf_stage_agree(comm, describe(r, err), err);
    if (rc == 0)
        rc = lf_stage_agree(comm, open_samples(r, true, err), err);
    if (rc == 0)
        rc = lf_train_settle_adapter(&r->c, r->arena, &r->asked, comm, err);
    if (rc == 0 && r->left_out && (!comm || comm->rank == 0))
        lf_log(1, "the model's dropout is not applied (dropout = no)");
    return rc != 0 ? rc : lf_train_run(&r->c, &lf_train_stage_sink, comm, err);
}

static void profile(void *self, struct lf_profile *p)
{
    ((struct rm *)self)->c.profile = p;
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_rm_opts,
                            .setup = setup,
                            .plan = plan,
                            .run = run,
                            .destroy = destroy,
                            .ranks = true,
                            .profile = profile,
                            .makes = lf_train_makes,
                            .continues = true};
    return lf_stage_main(&stage, argc, argv);
}
