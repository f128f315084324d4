/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-pretrain: options to engine/train. No arithmetic of training here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "stages/opts.h"
#include "stages/stage.h"
#include "stages/train_common.h"

struct pretrain {
    lf_arena *arena;
    struct lf_train_config c;
};

static void destroy(void *self)
{
    struct pretrain *p = self;
    if (!p)
        return;
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
    if (!rc)
        rc = lf_parse_count(&row->from_sample, at + 1, err);
    return rc ? lf_err_prefix(err, "batch_ramp = %s", text) : 0;
}

/* batch_ramp in place of batch. */
static int read_ramp(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    size_t rows = lf_optset_count(o, "batch_ramp");
    if (!rows)
        return lf_train_read_batch(c, p->arena, o, err);
    if (lf_optset_is_set(o, "batch") || lf_optset_is_set(o, "batch_tokens"))
        return lf_fail(err, LF_EINVAL, "give one of batch, batch_tokens and batch_ramp");
    lf_ramp_row *r = lf_arena_alloc(p->arena, rows, sizeof(*r), err);
    int rc = r ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < rows && !rc; i++)
        rc = parse_ramp(&r[i], lf_optset_str_at(o, "batch_ramp", i), err);
    c->ramp = r;
    c->n_ramp = rows;
    return rc;
}

static void read_order(struct lf_train_config *c, const lf_optset *o)
{
    c->megatron_order = lf_optset_choice(o, "sample_order") == 1;
    if (!c->megatron_order)
        c->packing = lf_optset_choice(o, "packing") ? LF_PACK_BFD : LF_PACK_CONCAT;
    c->z_loss = lf_optset_float(o, "z_loss");
}

static int read_megatron(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    lf_loader_megatron *m = &p->c.megatron;
    if (!p->c.megatron_order)
        return 0;
    m->seed = (uint32_t)lf_optset_int(o, "megatron_seed");
    m->samples = lf_optset_int(o, "megatron_samples");
    m->surplus = lf_optset_float(o, "megatron_surplus");
    m->weighted = lf_optset_count(o, "data_weights") > 0;
    return lf_train_string(p->arena, o, "megatron_split", &m->split, err);
}

static int setup(void **self, const lf_optset *o, lf_err *err)
{
    struct pretrain *p = lf_calloc(1, sizeof(*p), err);
    if (!p)
        return LF_ENOMEM;
    *self = p;
    p->arena = lf_arena_create(err);
    if (!p->arena)
        return LF_ENOMEM;
    read_order(&p->c, o);
    lf_train_read_optimizer(&p->c, o, 0);
    lf_train_read_operation(&p->c, o);
    int rc = lf_train_read_fp8(&p->c, o, err);
    if (!rc)
        rc = lf_train_read_data(&p->c, p->arena, o, err);
    if (!rc)
        rc = lf_train_read_length(&p->c, p->arena, o, err);
    if (!rc)
        rc = read_ramp(p, o, err);
    if (!rc)
        rc = read_megatron(p, o, err);
    if (!rc)
        rc = lf_train_read_paths(&p->c, p->arena, o, err);
    if (!rc)
        rc = lf_train_read_model(&p->c, o, "lf-pretrain", err);
    if (!rc)
        rc = lf_train_check(&p->c, err);
    return lf_train_end_setup(&p->c, o, rc, err);
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct pretrain *p = self;
    return lf_train_plan(&p->c, out, err);
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct pretrain *p = self;
    return lf_train_run(&p->c, &lf_train_stage_sink, comm, err);
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
