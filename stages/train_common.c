/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of training stages to the configuration of the loop: see train_common.h. */
#include "stages/train_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "stages/adapter_in.h"
#include "stages/stage.h"

void lf_train_fill(void *stage, struct lf_train_config *c, struct lf_train_given *g, lf_optset *o)
{
    c->min_lr = g->loss_scale = -1; /* not given */
    lf_optset_fill(o, stage);
}

int lf_train_read_data(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                       lf_err *err)
{
    const size_t n = g->data.n;
    if (g->weights.n && g->weights.n != n)
        return lf_fail(err, LF_EINVAL, "%zu data_weights for %zu data", g->weights.n, n);
    lf_loader_source *src = lf_arena_alloc(a, n, sizeof(*src), err);
    if (!src)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        src[i].dir = g->data.v[i];
        int rc = g->weights.n ? lf_parse_f64(&src[i].weight, g->weights.v[i], err) : 0;
        if (rc != 0)
            return rc;
    }
    if (n == 1)
        src[0].weight = 1;
    c->sources = src;
    c->n_sources = n;
    c->valid_required = g->valid.n > 0;
    c->valid = g->valid.n ? g->valid.v : g->data.v;
    c->n_valid = g->valid.n ? g->valid.n : n;
    c->features = g->features.v;
    c->n_features = g->features.n;
    return 0;
}

int lf_train_read_length(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                         const lf_optset *o, lf_err *err)
{
    int64_t *v = lf_arena_alloc(a, g->skip.n ? g->skip.n : 1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    c->plan_ranks = (int)lf_optset_int(o, "ranks");
    c->measure = lf_optset_bool(o, "measure");
    if (c->megatron_order)
        lf_optset_unused(o, &c->max_docs);
    for (size_t i = 0; i < g->skip.n; i++) {
        int rc = lf_parse_count(&v[i], g->skip.v[i], err);
        if (rc != 0)
            return lf_err_prefix(err, "skip_batches");
    }
    c->skip = v;
    c->n_skip = g->skip.n;
    return 0;
}

int lf_train_read_batch(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                        lf_err *err)
{
    lf_ramp_row *r = lf_arena_alloc(a, 1, sizeof(*r), err);
    if (!r)
        return LF_ENOMEM;
    c->ramp = r;
    c->n_ramp = 1;
    if (g->batch && g->batch_tokens)
        return lf_fail(err, LF_EINVAL, "give one of batch and batch_tokens");
    if (g->batch_tokens % c->seq_length)
        return lf_fail(err, LF_EINVAL, "batch_tokens = %lld is not a multiple of seq_length = %d",
                       (long long)g->batch_tokens, c->seq_length);
    r[0].samples = g->batch          ? g->batch
                   : g->batch_tokens ? g->batch_tokens / c->seq_length
                                     : c->micro_batch;
    return 0;
}

void lf_train_read_optimizer(struct lf_train_config *c, const struct lf_train_given *g,
                             const lf_optset *o, double otherwise)
{
    if (c->lr <= 0)
        c->lr = otherwise;
    if (c->min_lr < 0)
        c->min_lr = c->lr / 10;
    lf_train_read_scale(&c->scaler, g, o);
}

void lf_train_read_scale(struct lf_scaler_opts *s, const struct lf_train_given *g,
                         const lf_optset *o)
{
    const double scale = g->loss_scale >= 0                       ? g->loss_scale
                         : lf_stage_dtype(g->precision) == LF_F16 ? 0
                                                                  : 1;
    s->dynamic = scale <= 0;
    if (s->dynamic)
        return;
    lf_optset_unused(o, &s->start);
    s->start = scale;
}

void lf_train_read_compute(struct lf_train_config *c, const struct lf_train_given *g,
                           const lf_optset *o)
{
    c->compute = lf_stage_dtype(g->precision);
    c->threads = lf_stage_threads(o);
    c->device = lf_stage_device(o);
}

static int read_fp8_layers(struct lf_fp8_layers *f, const lf_opt_list *layers, lf_err *err)
{
    f->attention = f->mlp = layers->n == 0;
    for (size_t i = 0; i < layers->n; i++) {
        const char *s = layers->v[i];
        if (strcmp(s, "attention") == 0)
            f->attention = true;
        else if (strcmp(s, "mlp") == 0)
            f->mlp = true;
        else
            return lf_fail(err, LF_EINVAL, "fp8_layers = %s: attention or mlp", s);
    }
    return 0;
}

int lf_train_read_fp8(struct lf_train_config *c, const struct lf_train_given *g, const lf_optset *o,
                      lf_err *err)
{
    enum { FP8 = 3 }; /* of LF_TRAIN_PRECISIONS_FP8 */
    const void *const members[] = {&g->fp8_scaling, &g->fp8_layers, &c->fp8_layers.edges};
    if (g->precision == FP8) {
        c->fp8 = g->fp8_scaling == 1 ? LF_FP8_BLOCKS : LF_FP8_TENSORS;
        return read_fp8_layers(&c->fp8_layers, &g->fp8_layers, err);
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *name = lf_optset_given(o, members[i]);
        if (name)
            return lf_fail(err, LF_EINVAL, "%s belongs to precision = fp8", name);
    }
    return 0;
}

int lf_train_lora(struct lf_adapter_config *ac, const struct lf_train_given *g, lf_err *err)
{
    *ac = g->lora;
    if (ac->alpha <= 0)
        ac->alpha = 2 * (double)ac->rank;
    if (g->targets.n > LF_ADAPTER_TARGETS)
        return lf_fail(err, LF_EINVAL, "%zu lora_targets, at most %d are taken; use patterns",
                       g->targets.n, LF_ADAPTER_TARGETS);
    for (size_t i = 0; i < g->targets.n; i++) {
        const char *target = g->targets.v[i];
        if (strlen(target) >= sizeof(ac->target[i]))
            return lf_fail(err, LF_EINVAL, "lora_targets = %.40s... is longer than %zu bytes",
                           target, sizeof(ac->target[i]) - 1);
        memcpy(ac->target[ac->n_targets++], target, strlen(target) + 1);
    }
    return 0;
}

/* "vision.*:0.1" */
static int read_lr_scale(struct lf_lr_scale *out, const char *text, lf_arena *a, lf_err *err)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return lf_fail(err, LF_EINVAL, "lr_scale = %s is not PATTERN:FACTOR", text);
    out->pattern = lf_arena_printf(a, err, "%.*s", (int)(colon - text), text);
    int rc = out->pattern ? lf_parse_f64(&out->factor, colon + 1, err) : LF_ENOMEM;
    if (rc == 0 && !(out->factor > 0 && out->factor <= 1e6))
        rc = lf_fail(err, LF_EINVAL,
                     "lr_scale = %s: the factor is above 0, and at most 1e6; freeze takes tensors "
                     "out of training",
                     text);
    return rc;
}

static int read_lr_scales(struct lf_train_config *c, const lf_opt_list *l, lf_arena *a, lf_err *err)
{
    struct lf_lr_scale *v = lf_arena_alloc(a, l->n + 1, sizeof *v, err);
    int rc = v ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = read_lr_scale(&v[i], l->v[i], a, err);
    c->lr_scale = v;
    c->n_lr_scale = l->n;
    return rc;
}

int lf_train_read_choice(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                         lf_err *err)
{
    c->freeze = g->freeze.v;
    c->n_freeze = g->freeze.n;
    return read_lr_scales(c, &g->lr_scale, a, err);
}

int lf_train_read_parts(struct lf_train_config *c, const struct lf_train_given *g, lf_arena *a,
                        lf_err *err)
{
    struct lf_adapter_config *ac = lf_arena_alloc(a, 1, sizeof(*ac), err);
    int rc = ac ? lf_train_lora(ac, g, err) : LF_ENOMEM;
    if (rc == 0 && ac->rank > 0) {
        c->adapter = ac;
        rc = lf_adapter_check(ac, err);
    }
    return rc != 0 ? rc : lf_train_read_choice(c, g, a, err);
}

int lf_train_read_adapter(struct lf_train_config *c, const struct lf_train_given *g,
                          const lf_optset *o, struct lf_train_asked *asked, lf_err *err)
{
    *asked = (struct lf_train_asked){.from = g->adapter,
                                     .rank = lf_optset_given(o, &g->lora.rank),
                                     .alpha = lf_optset_given(o, &g->lora.alpha),
                                     .scaling = lf_optset_given(o, &g->lora.rank_stabilised),
                                     .dora = lf_optset_given(o, &g->lora.dora),
                                     .dropout = lf_optset_given(o, &g->lora.dropout),
                                     .targets = lf_optset_given(o, &g->targets)};
    if (!asked->from)
        return 0;
    c->adapter = &asked->want;
    return lf_train_lora(&asked->want, g, err);
}

int lf_train_settle_dropout(const struct lf_train_config *c, struct lf_train_asked *asked,
                            bool dropout, lf_err *err)
{
    if (dropout)
        return 0;
    asked->dropout = true;
    return c->adapter && c->adapter->dropout > 0
               ? lf_fail(err, LF_EINVAL,
                         "lora_dropout has no effect with dropout = no; say dropout = yes or leave "
                         "it out")
               : 0;
}

static bool same_targets(const struct lf_adapter_config *x, const struct lf_adapter_config *y)
{
    bool same = x->n_targets == y->n_targets;
    for (int i = 0; i < x->n_targets && same; i++)
        same = strcmp(x->target[i], y->target[i]) == 0;
    return same;
}

/* The settings in the file, with what was asked. */
static int agree(struct lf_adapter_config *is, const struct lf_train_asked *q, lf_err *err)
{
    const struct lf_adapter_config *w = &q->want;
    if (q->head != is->head)
        return lf_fail(err, LF_EINVAL,
                       q->head ? "the adapter in %s has no score head: it is of a language model, "
                                 "whose merged checkpoint a "
                                 "reward model can begin with (init_from)"
                               : "the adapter in %s has a score head: it is of a reward model",
                       q->from);
    if (q->labels != is->labels || q->labels_of != is->labels_of)
        return lf_fail(err, LF_EINVAL,
                       is->labels
                           ? "the adapter in %s has %lld labels, and not the ones of this run"
                           : "the adapter in %s has no labels: make a checkpoint of it and "
                             "its base, and begin with that (init_from)",
                       q->from, (long long)is->labels);
    if (q->rank && w->rank != is->rank)
        return lf_fail(err, LF_EINVAL, "lora_rank = %lld, but the adapter in %s has rank %lld",
                       (long long)w->rank, q->from, (long long)is->rank);
    if (q->alpha && w->alpha != is->alpha)
        return lf_fail(err, LF_EINVAL, "lora_alpha = %g, but the adapter in %s has %g", w->alpha,
                       q->from, is->alpha);
    if (q->scaling && w->rank_stabilised != is->rank_stabilised)
        return lf_fail(err, LF_EINVAL, "lora_scaling is not that of the adapter in %s", q->from);
    if (q->dora && w->dora != is->dora)
        return lf_fail(err, LF_EINVAL, "lora_dora is not that of the adapter in %s", q->from);
    if (q->targets && !same_targets(w, is))
        return lf_fail(err, LF_EINVAL,
                       "lora_targets are not those of the adapter in %s (the first of %d is %s); "
                       "leave them out",
                       q->from, is->n_targets, is->n_targets ? is->target[0] : "all");
    if (q->dropout)
        is->dropout = w->dropout;
    return 0;
}

static int take_settings(struct lf_train_config *c, lf_arena *a, const struct lf_train_asked *asked,
                         const char *dir, lf_err *err)
{
    struct lf_adapter_config *is = lf_arena_alloc(a, 1, sizeof(*is), err);
    int rc = is ? lf_adapter_config_of(is, dir, err) : LF_ENOMEM;
    if (rc == 0)
        rc = agree(is, asked, err);
    if (rc == 0 && is->mtp && !lf_train_mtp(c))
        rc = lf_fail(err, LF_EINVAL,
                     "the adapter in %s has parts in heads for later tokens, which this run does "
                     "not train; give mtp_weight above 0, or begin with its merged checkpoint "
                     "(init_from)",
                     asked->from);
    if (rc == 0 && !(c->adapter_from = lf_arena_strdup(a, dir, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        c->adapter = is;
    return rc;
}

int lf_train_settle_adapter(struct lf_train_config *c, lf_arena *a,
                            const struct lf_train_asked *asked, lf_comm *comm, lf_err *err)
{
    char *dir = NULL;
    if (!asked->from)
        return 0;
    int rc = lf_adapter_in(&dir, comm, asked->from, c->init_from, c->out, c->threads, err);
    if (rc == 0)
        rc = lf_stage_agree(comm, take_settings(c, a, asked, dir, err), err);
    free(dir);
    return rc;
}

int lf_train_plan_adapter(struct lf_train_config *c, lf_arena *a,
                          const struct lf_train_asked *asked, json_t *plan, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = !asked->from                         ? 0
             : lf_adapter_in_is_peft(asked->from) ? LF_ENOENT
                                                  : take_settings(c, a, asked, asked->from, &why);
    if (rc == LF_ENOENT) { /* not there yet, or known when it has been read in */
        json_t *notes =
            json_pack("[s]", "sizes follow from the adapter, which is read when the run begins");
        return notes && json_object_set_new(plan, "notes", notes) == 0
                   ? 0
                   : lf_fail(err, LF_ENOMEM, "plan: out of memory");
    }
    return rc != 0 ? lf_fail(err, rc, "%s", why.text) : lf_train_plan(c, plan, err);
}

void lf_train_read_paths(struct lf_train_config *c, const lf_optset *o)
{
    const lf_opt_list from = lf_optset_list(o, "resume_from");
    c->out = lf_optset_str(o, "out");
    c->metrics = lf_optset_str(o, "metrics");
    c->resume_from = from.v;
    c->n_resume_from = from.n;
}

int lf_train_read_model(struct lf_train_config *c, const lf_optset *o, const char *stage,
                        lf_err *err)
{
    const char *config = lf_optset_str(o, "config");
    if (!config)
        return 0;
    lf_ini ini = {0};
    int rc = lf_ini_parse_file(&ini, config, err);
    for (size_t i = 0; i < ini.n_sections && rc == 0; i++)
        if (strcmp(ini.sections[i].name, "stage") != 0 &&
            strcmp(ini.sections[i].name, "model") != 0)
            rc =
                lf_fail(err, LF_EINVAL, "%s:%d: unknown section [%s]; %s reads [stage] and [model]",
                        ini.sections[i].path, ini.sections[i].line, ini.sections[i].name, stage);
    if (rc == 0 && lf_ini_find_section(&ini, "model")) {
        rc = lf_model_config_from_ini(&c->model, &ini, "model", err);
        c->model_given = rc == 0;
    }
    lf_ini_fini(&ini);
    return rc;
}

int lf_train_settle(struct lf_train_config *c, double epochs, lf_err *err)
{
    if (!c->steps && !c->tokens && !(c->epochs > 0))
        c->epochs = epochs;
    if (c->model_given)
        return lf_fail(err, LF_EINVAL, "the model comes with init_from; leave [model] out");
    return lf_train_check(c, err);
}

int lf_train_end_setup(const struct lf_train_config *c, const lf_optset *o, int rc, lf_err *err)
{
    if (rc == 0 && !c->out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(err, LF_EINVAL, "--out is missing: the directory to write checkpoints below");
    return rc == LF_EFORMAT || rc == LF_ENOENT ? LF_EINVAL : rc;
}

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    lf_log(level, "%s", text);
}

static bool leave(void)
{
    return lf_stop_requested() || lf_ending_requested() == LF_ENDING_NOW;
}

const struct lf_train_sink lf_train_stage_sink = {.log = log_line,
                                                  .stop = lf_stop_requested,
                                                  .stop_step = lf_stop_step,
                                                  .finish = lf_ending_requested,
                                                  .leave = leave};

const char *const *lf_train_makes(const void *self)
{
    static const char *const names[] = {"checkpoint", NULL};
    (void)self;
    return names;
}
