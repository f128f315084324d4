/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-sft: options to engine/train. The data says which tokens are trained (loss masks of lf-tokenize); what is special to
 * fine-tuning are defaults, adapters and parts that stay.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/train_common.h"

/* Where neither steps, tokens nor epochs are given. */
#define EPOCHS 3

/* Peak learning rates: of whole models, of adapters. */
#define LR_FULL 2e-5
#define LR_LORA 2e-4

struct sft {
    lf_arena *arena;
    struct lf_train_config c;
};

static void destroy(void *self)
{
    struct sft *s = self;
    if (!s)
        return;
    lf_arena_destroy(s->arena);
    free(s);
}

static int read_all(struct sft *s, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &s->c;
    c->packing = lf_optset_choice(o, "packing") ? LF_PACK_BFD : LF_PACK_CONCAT;
    lf_train_read_operation(c, o);
    int rc = lf_train_read_data(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_length(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_batch(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_parts(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_paths(c, s->arena, o, err);
    if (!rc)
        rc = lf_train_read_model(c, o, "lf-sft", err);
    if (rc)
        return rc;
    lf_train_read_optimizer(c, o, c->adapter ? LR_LORA : LR_FULL);
    if (!c->steps && !c->tokens && !(c->epochs > 0))
        c->epochs = EPOCHS;
    if (c->model_given)
        return lf_fail(err, LF_EINVAL, "the model comes with init_from; leave [model] out");
    return lf_train_check(c, err);
}

static int setup(void **self, const lf_optset *o, lf_err *err)
{
    struct sft *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    *self = s;
    s->arena = lf_arena_create(err);
    int rc = s->arena ? read_all(s, o, err) : LF_ENOMEM;
    if (!rc && !s->c.out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(err, LF_EINVAL, "--out is missing: the directory to write checkpoints below");
    /* A mistake in what the user wrote is a usage error, whatever reader found it. */
    return rc == LF_EFORMAT || rc == LF_ENOENT ? LF_EINVAL : rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct sft *s = self;
    return lf_train_plan(&s->c, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct sft *s = self;
    return lf_train_run(&s->c, &lf_train_stage_sink, comm, err);
}

int main(int argc, char **argv)
{
    const lf_stage stage = {
        .table = &lf_sft_opts, .setup = setup, .plan = plan, .run = run, .destroy = destroy, .ranks = true};
    return lf_stage_main(&stage, argc, argv);
}
