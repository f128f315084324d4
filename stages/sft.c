/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-sft: options to engine/train. The data says which tokens are trained (loss masks of
 * lf-tokenize); what is special to fine-tuning are defaults, adapters and parts that stay.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "stages/sft.h"
#include "stages/stage.h"

/* Where neither steps, tokens nor epochs are given. */
#define EPOCHS 3

/* Peak learning rates: of whole models, of adapters. */
#define LR_FULL 2e-5
#define LR_LORA 2e-4

#define NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

static void destroy(void *self)
{
    struct sft *s = self;
    if (!s)
        return;
    lf_train_samples_close(&s->samples);
    lf_arena_destroy(s->arena);
    free(s);
}

/* Of validation: names for metrics. */
static int read_valid(struct sft *s, lf_err *err)
{
    const char *const *names = s->valid_names.v;
    const size_t n = s->valid_names.n, sets = s->g.valid.n;
    if (!n)
        return 0;
    if (n != sets || n > LF_TRAIN_MAX_SETS)
        return lf_fail(err, LF_EINVAL, "%zu valid_names for %zu valid_data; one each, at most %d",
                       n, sets, LF_TRAIN_MAX_SETS);
    for (size_t i = 0; i < n; i++) {
        if (!names[i][0] || strlen(names[i]) > 32 || strspn(names[i], NAME) != strlen(names[i]))
            return lf_fail(err, LF_EINVAL,
                           "valid_names = %s: up to 32 letters, digits, '-' and '_'", names[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return lf_fail(err, LF_EINVAL, "valid_names = %s is there twice", names[i]);
    }
    s->c.valid_names = names;
    return 0;
}

static int read_all(struct sft *s, lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &s->c;
    c->entropy = true;
    lf_train_fill(s, c, &s->g, o);
    lf_train_read_compute(c, &s->g, o);
    c->mtp_asked = lf_optset_given(o, &c->mtp_weight) != NULL;
    lf_train_read_paths(c, o);
    int rc = lf_train_read_fp8(c, &s->g, o, err);
    if (rc == 0)
        rc = lf_train_read_data(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_length(c, &s->g, s->arena, o, err);
    if (rc == 0)
        rc = lf_train_read_batch(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_parts(c, &s->g, s->arena, err);
    if (rc == 0)
        rc = lf_train_read_adapter(c, &s->g, o, &s->asked, err);
    if (rc == 0)
        rc = read_valid(s, err);
    if (rc == 0)
        rc = lf_train_samples_check(&s->samples, o, true, err);
    if (rc == 0)
        rc = lf_train_read_model(c, o, "lf-sft", err);
    if (rc != 0)
        return rc;
    lf_train_read_optimizer(c, &s->g, o, c->adapter ? LR_LORA : LR_FULL);
    return lf_train_settle(c, EPOCHS, err);
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct sft *s = lf_calloc(1, sizeof(*s), err);
    if (!s)
        return LF_ENOMEM;
    *self = s;
    s->arena = lf_arena_create(err);
    int rc = s->arena ? read_all(s, o, err) : LF_ENOMEM;
    return lf_train_end_setup(&s->c, o, rc, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct sft *s = self;
    int rc = lf_train_samples_open(&s->samples, &s->c, false, err);
    return rc != 0 ? rc : lf_train_plan_adapter(&s->c, s->arena, &s->asked, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct sft *s = self;
    int rc = lf_stage_agree(comm, lf_train_samples_open(&s->samples, &s->c, true, err), err);
    if (rc == 0)
        rc = lf_train_settle_adapter(&s->c, s->arena, &s->asked, comm, err);
    return rc != 0 ? rc : lf_train_run(&s->c, &lf_train_stage_sink, comm, err);
}

static void profile(void *self, struct lf_profile *p)
{
    ((struct sft *)self)->c.profile = p;
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_sft_opts,
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
