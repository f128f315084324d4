/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-pretrain: options to engine/train. No arithmetic of training here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "stages/pretrain.h"
#include "stages/stage.h"

static void destroy(void *self)
{
    struct pretrain *p = self;
    if (!p)
        return;
    lf_train_samples_close(&p->samples);
    lf_mae_train_destroy(p->restoring);
    lf_class_train_destroy(p->telling);
    lf_dual_train_destroy(p->comparing);
    lf_moco_train_destroy(p->contrasting);
    lf_electra_train_destroy(p->replacing);
    lf_arena_destroy(p->arena);
    free(p);
}

/* "64@1000": from sequence 1000 on, 64 a step. */
static int parse_ramp(lf_ramp_row *row, const char *text, lf_err *err)
{
    const char *at = strchr(text, '@');
    char samples[32];
    if (!at || (size_t)(at - text) >= sizeof(samples))
        return lf_fail(err, LF_EINVAL, "batch_ramp = %s is not N@FROM", text);
    snprintf(samples, sizeof(samples), "%.*s", (int)(at - text), text);
    int rc = lf_parse_count(&row->samples, samples, err);
    if (rc == 0)
        rc = lf_parse_count(&row->from_sample, at + 1, err);
    return rc != 0 ? lf_err_prefix(err, "batch_ramp = %s", text) : 0;
}

/* batch_ramp in place of batch. */
static int read_ramp(struct pretrain *p, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    if (!p->ramp.n)
        return lf_train_read_batch(c, &p->g, p->arena, err);
    if (p->g.batch || p->g.batch_tokens)
        return lf_fail(err, LF_EINVAL, "give one of batch, batch_tokens and batch_ramp");
    lf_ramp_row *r = lf_arena_alloc(p->arena, p->ramp.n, sizeof(*r), err);
    int rc = r ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < p->ramp.n && rc == 0; i++)
        rc = parse_ramp(&r[i], p->ramp.v[i], err);
    c->ramp = r;
    c->n_ramp = p->ramp.n;
    return rc;
}

/* Of the options on the order of samples those of the other order have no effect. */
static void read_order(struct pretrain *p, const lf_optset *o)
{
    struct lf_train_config *c = &p->c;
    lf_loader_megatron *m = &c->megatron;
    const void *const of_megatron[] = {&m->seed, &m->samples, &m->surplus, &m->split};
    m->weighted = p->g.weights.n > 0;
    if (c->megatron_order) {
        lf_optset_unused(o, &c->packing);
        return;
    }
    for (size_t i = 0; i < sizeof of_megatron / sizeof *of_megatron; i++)
        lf_optset_unused(o, of_megatron[i]);
    *m = (lf_loader_megatron){0};
}

static int setup(void **self, lf_optset *o, lf_err *err)
{
    struct pretrain *p = lf_calloc(1, sizeof(*p), err);
    if (!p)
        return LF_ENOMEM;
    *self = p;
    p->arena = lf_arena_create(err);
    if (!p->arena)
        return LF_ENOMEM;
    lf_train_fill(p, &p->c, &p->g, o);
    read_order(p, o);
    lf_train_read_optimizer(&p->c, &p->g, o, 0);
    lf_train_read_compute(&p->c, &p->g, o);
    p->c.mtp_asked = lf_optset_given(o, &p->c.mtp_weight) != NULL;
    lf_train_read_paths(&p->c, o);
    int rc = lf_pretrain_read_pictures(p, o, err);
    if (rc == 0)
        rc = lf_pretrain_read_mlm(p, o, err);
    if (rc == 0)
        rc = lf_pretrain_read_seq2seq(p, o, err);
    if (rc == 0)
        rc = lf_train_read_fp8(&p->c, &p->g, o, err);
    if (rc == 0)
        rc = lf_train_read_data(&p->c, &p->g, p->arena, err);
    if (rc == 0)
        rc = lf_train_read_length(&p->c, &p->g, p->arena, o, err);
    if (rc == 0)
        rc = lf_train_read_choice(&p->c, &p->g, p->arena, err);
    if (rc == 0)
        rc = read_ramp(p, err);
    if (rc == 0)
        rc = lf_train_read_model(&p->c, o, "lf-pretrain", err);
    if (rc == 0)
        rc = lf_pretrain_settle_electra(p, err);
    if (rc == 0)
        rc = lf_pretrain_check_pictures(p, err);
    if (rc == 0)
        rc = lf_train_samples_check(&p->samples, o, !p->mlm.whole_words, err);
    if (rc == 0)
        rc = lf_train_check(&p->c, err);
    return lf_train_end_setup(&p->c, o, rc, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct pretrain *p = self;
    int rc = lf_train_samples_open(&p->samples, &p->c, false, err);
    return rc != 0 ? rc : lf_train_plan(&p->c, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct pretrain *p = self;
    int rc = lf_stage_agree(comm, lf_pretrain_open_words(p, err), err);
    if (rc == 0)
        rc = lf_stage_agree(comm, lf_train_samples_open(&p->samples, &p->c, true, err), err);
    return rc != 0 ? rc : lf_train_run(&p->c, &lf_train_stage_sink, comm, err);
}

static void profile(void *self, struct lf_profile *p)
{
    ((struct pretrain *)self)->c.profile = p;
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_pretrain_opts,
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
