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

int lf_train_strings(lf_arena *a, const lf_optset *o, const char *name, const char *const **out,
                     size_t *n, lf_err *err)
{
    size_t count = lf_optset_count(o, name);
    const char **v = lf_arena_alloc(a, count ? count : 1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (!(v[i] = lf_arena_strdup(a, lf_optset_str_at(o, name, i), err)))
            return LF_ENOMEM;
    *out = v;
    *n = count;
    return 0;
}

int lf_train_string(lf_arena *a, const lf_optset *o, const char *name, const char **out,
                    lf_err *err)
{
    const char *s = lf_optset_str(o, name);
    *out = s ? lf_arena_strdup(a, s, err) : NULL;
    return s && !*out ? LF_ENOMEM : 0;
}

int lf_train_read_data(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    const char *const *dirs;
    size_t n_weights = lf_optset_count(o, "data_weights");
    c->verify = (enum lf_train_verify)lf_optset_choice(o, "verify");
    int rc = lf_train_strings(a, o, "data", &dirs, &c->n_sources, err);
    if (rc)
        return rc;
    if (n_weights && n_weights != c->n_sources)
        return lf_fail(err, LF_EINVAL, "%zu data_weights for %zu data", n_weights, c->n_sources);
    lf_loader_source *src = lf_arena_alloc(a, c->n_sources, sizeof(*src), err);
    if (!src)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n_sources; i++) {
        src[i].dir = dirs[i];
        if (n_weights &&
            (rc = lf_parse_f64(&src[i].weight, lf_optset_str_at(o, "data_weights", i), err)))
            return rc;
    }
    if (c->n_sources == 1)
        src[0].weight = 1;
    c->sources = src;
    rc = lf_train_strings(a, o, "valid_data", &c->valid, &c->n_valid, err);
    c->valid_required = c->n_valid > 0;
    if (!rc && !c->n_valid) {
        c->valid = dirs;
        c->n_valid = c->n_sources;
    }
    return rc;
}

static int read_skip(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    size_t n = lf_optset_count(o, "skip_batches");
    int64_t *v = lf_arena_alloc(a, n ? n : 1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int rc = lf_parse_count(&v[i], lf_optset_str_at(o, "skip_batches", i), err);
        if (rc)
            return lf_err_prefix(err, "skip_batches");
    }
    c->skip = v;
    c->n_skip = n;
    return 0;
}

int lf_train_read_length(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    c->steps = lf_optset_is_set(o, "steps") ? lf_optset_int(o, "steps") : 0;
    c->tokens = lf_optset_is_set(o, "tokens") ? lf_optset_int(o, "tokens") : 0;
    c->epochs = lf_optset_is_set(o, "epochs") ? lf_optset_float(o, "epochs") : 0;
    c->seq_length = (int32_t)lf_optset_int(o, "seq_length");
    c->micro_batch = (int32_t)lf_optset_int(o, "micro_batch");
    c->seed = (uint64_t)lf_optset_int(o, "seed");
    c->plan_ranks = (int)lf_optset_int(o, "ranks");
    if (!c->megatron_order)
        c->max_docs = (int32_t)lf_optset_int(o, "max_docs");
    return read_skip(c, a, o, err);
}

int lf_train_read_batch(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    lf_ramp_row *r = lf_arena_alloc(a, 1, sizeof(*r), err);
    const bool batch = lf_optset_is_set(o, "batch"), tokens = lf_optset_is_set(o, "batch_tokens");
    if (!r)
        return LF_ENOMEM;
    c->ramp = r;
    c->n_ramp = 1;
    if (batch && tokens)
        return lf_fail(err, LF_EINVAL, "give one of batch and batch_tokens");
    r[0] = (lf_ramp_row){.samples = batch ? lf_optset_int(o, "batch") : c->micro_batch};
    if (tokens) {
        int64_t n = lf_optset_int(o, "batch_tokens");
        if (n % c->seq_length)
            return lf_fail(err, LF_EINVAL,
                           "batch_tokens = %lld is not a multiple of seq_length = %d", (long long)n,
                           c->seq_length);
        r[0].samples = n / c->seq_length;
    }
    return 0;
}

void lf_train_read_optimizer(struct lf_train_config *c, const lf_optset *o, double otherwise)
{
    c->lr = lf_optset_has_value(o, "lr") ? lf_optset_float(o, "lr") : otherwise;
    c->min_lr = lf_optset_is_set(o, "min_lr") ? lf_optset_float(o, "min_lr") : c->lr / 10;
    c->schedule = (enum lf_schedule_kind)lf_optset_choice(o, "schedule");
    c->tail = (enum lf_schedule_tail)lf_optset_choice(o, "decay_shape");
    c->warmup_steps = lf_optset_int(o, "warmup");
    c->decay_steps = lf_optset_int(o, "decay");
    c->adam = (struct lf_adamw_opts){.beta1 = (float)lf_optset_float(o, "beta1"),
                                     .beta2 = (float)lf_optset_float(o, "beta2"),
                                     .eps = (float)lf_optset_float(o, "eps"),
                                     .weight_decay = (float)lf_optset_float(o, "weight_decay")};
    lf_train_read_state(&c->adam, o);
    c->clip = lf_optset_float(o, "clip");
    lf_train_read_scale(&c->scaler, o);
}

void lf_train_read_scale(struct lf_scaler_opts *s, const lf_optset *o)
{
    const bool given = lf_optset_has_value(o, "loss_scale");
    const double scale = given                             ? lf_optset_float(o, "loss_scale")
                         : lf_stage_precision(o) == LF_F16 ? 0
                                                           : 1;
    *s =
        (struct lf_scaler_opts){.dynamic = scale <= 0,
                                .start = scale > 0 ? scale : lf_optset_float(o, "loss_scale_start"),
                                .window = lf_optset_int(o, "loss_scale_window")};
}

void lf_train_read_state(struct lf_adamw_opts *a, const lf_optset *o)
{
    a->moments = lf_optset_choice(o, "moments") ? LF_BF16 : LF_F32;
    a->masters = lf_optset_choice(o, "masters") ? LF_BF16 : LF_F32;
    a->stochastic = lf_optset_bool(o, "stochastic_rounding");
    a->offload = lf_optset_float(o, "optimizer_offload");
}

void lf_train_read_compute(struct lf_train_config *c, const lf_optset *o)
{
    c->compute = lf_stage_precision(o);
    c->recompute = (enum lf_recompute)lf_optset_choice(o, "recompute");
    c->threads = lf_stage_threads(o);
    c->device = lf_stage_device(o);
}

void lf_train_read_saving(struct lf_train_config *c, const lf_optset *o)
{
    c->save_interval = lf_optset_int(o, "save_interval");
    c->save_time_s = (double)lf_optset_int(o, "save_time");
    c->keep = (int)lf_optset_int(o, "keep");
    c->keep_every = lf_optset_int(o, "keep_every");
}

void lf_train_read_operation(struct lf_train_config *c, const lf_optset *o)
{
    lf_train_read_compute(c, o);
    lf_train_read_saving(c, o);
    c->numeric = lf_optset_choice(o, "numeric") ? LF_INVARIANT : LF_FAST;
    c->valid_interval = lf_optset_int(o, "valid_interval");
    c->valid_tokens = lf_optset_int(o, "valid_tokens");
    c->save_async = lf_optset_bool(o, "save_async");
    c->log_interval = lf_optset_int(o, "log_interval");
    c->spike_factor = lf_optset_float(o, "spike_factor");
    c->spike_after = lf_optset_int(o, "spike_after");
}

static int read_fp8_layers(struct lf_fp8_layers *f, const lf_optset *o, lf_err *err)
{
    const size_t n = lf_optset_count(o, "fp8_layers");
    *f = (struct lf_fp8_layers){
        .attention = n == 0, .mlp = n == 0, .edges = (int)lf_optset_int(o, "fp8_edges")};
    for (size_t i = 0; i < n; i++) {
        const char *s = lf_optset_str_at(o, "fp8_layers", i);
        if (strcmp(s, "attention") == 0)
            f->attention = true;
        else if (strcmp(s, "mlp") == 0)
            f->mlp = true;
        else
            return lf_fail(err, LF_EINVAL, "fp8_layers = %s: attention or mlp", s);
    }
    return 0;
}

int lf_train_read_fp8(struct lf_train_config *c, const lf_optset *o, lf_err *err)
{
    enum { FP8 = 3 }; /* of LF_TRAIN_PRECISIONS_FP8 */
    static const char *const names[] = {"fp8_scaling", "fp8_layers", "fp8_edges"};
    const bool on = lf_optset_choice(o, "precision") == FP8;
    for (size_t i = 0; i < sizeof names / sizeof *names && !on; i++)
        if (lf_optset_is_set(o, names[i]))
            return lf_fail(err, LF_EINVAL, "%s belongs to precision = fp8", names[i]);
    if (!on)
        return 0;
    c->fp8 = lf_optset_choice(o, "fp8_scaling") == 1 ? LF_FP8_BLOCKS : LF_FP8_TENSORS;
    return read_fp8_layers(&c->fp8_layers, o, err);
}

/* The adapter that the lora_ options describe. */
static int read_lora(struct lf_adapter_config *ac, lf_arena *a, const lf_optset *o, lf_err *err)
{
    const char *const *targets;
    size_t n;
    int rc = lf_train_strings(a, o, "lora_targets", &targets, &n, err);
    if (rc)
        return rc;
    memset(ac, 0, sizeof(*ac));
    ac->rank = lf_optset_int(o, "lora_rank");
    ac->alpha =
        lf_optset_is_set(o, "lora_alpha") ? lf_optset_float(o, "lora_alpha") : 2 * (double)ac->rank;
    ac->rank_stabilised = lf_optset_choice(o, "lora_scaling") == 1;
    ac->dora = lf_optset_bool(o, "lora_dora");
    ac->dropout = lf_optset_float(o, "lora_dropout");
    if (n > LF_ADAPTER_TARGETS)
        return lf_fail(err, LF_EINVAL, "%zu lora_targets, at most %d are taken; use patterns", n,
                       LF_ADAPTER_TARGETS);
    for (size_t i = 0; i < n; i++) {
        if (strlen(targets[i]) >= sizeof(ac->target[i]))
            return lf_fail(err, LF_EINVAL, "lora_targets = %.40s... is longer than %zu bytes",
                           targets[i], sizeof(ac->target[i]) - 1);
        memcpy(ac->target[ac->n_targets++], targets[i], strlen(targets[i]) + 1);
    }
    return 0;
}

int lf_train_read_parts(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    struct lf_adapter_config *ac = lf_arena_alloc(a, 1, sizeof(*ac), err);
    int rc = ac ? read_lora(ac, a, o, err) : LF_ENOMEM;
    if (!rc && ac->rank > 0) {
        c->adapter = ac;
        rc = lf_adapter_check(ac, err);
    }
    return rc ? rc : lf_train_strings(a, o, "freeze", &c->freeze, &c->n_freeze, err);
}

int lf_train_read_adapter(struct lf_train_config *c, lf_arena *a, const lf_optset *o,
                          struct lf_train_asked *asked, lf_err *err)
{
    *asked = (struct lf_train_asked){.rank = lf_optset_is_set(o, "lora_rank"),
                                     .alpha = lf_optset_is_set(o, "lora_alpha"),
                                     .scaling = lf_optset_is_set(o, "lora_scaling"),
                                     .dora = lf_optset_is_set(o, "lora_dora"),
                                     .dropout = lf_optset_is_set(o, "lora_dropout"),
                                     .targets = lf_optset_is_set(o, "lora_targets")};
    int rc = lf_train_string(a, o, "adapter", &asked->from, err);
    if (rc || !asked->from)
        return rc;
    c->adapter = &asked->want;
    return read_lora(&asked->want, a, o, err);
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
    if (!rc)
        rc = agree(is, asked, err);
    if (!rc && !(c->adapter_from = lf_arena_strdup(a, dir, err)))
        rc = LF_ENOMEM;
    if (!rc)
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
    if (!rc)
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
    return rc ? lf_fail(err, rc, "%s", why.text) : lf_train_plan(c, plan, err);
}

int lf_train_read_paths(struct lf_train_config *c, lf_arena *a, const lf_optset *o, lf_err *err)
{
    int rc = lf_train_string(a, o, "out", &c->out, err);
    if (!rc)
        rc = lf_train_string(a, o, "metrics", &c->metrics, err);
    if (!rc)
        rc = lf_train_string(a, o, "init_from", &c->init_from, err);
    return rc ? rc : lf_train_strings(a, o, "resume_from", &c->resume_from, &c->n_resume_from, err);
}

int lf_train_read_model(struct lf_train_config *c, const lf_optset *o, const char *stage,
                        lf_err *err)
{
    const char *config = lf_optset_str(o, "config");
    if (!config)
        return 0;
    lf_ini ini = {0};
    int rc = lf_ini_parse_file(&ini, config, err);
    for (size_t i = 0; i < ini.n_sections && !rc; i++)
        if (strcmp(ini.sections[i].name, "stage") != 0 &&
            strcmp(ini.sections[i].name, "model") != 0)
            rc =
                lf_fail(err, LF_EINVAL, "%s:%d: unknown section [%s]; %s reads [stage] and [model]",
                        ini.sections[i].path, ini.sections[i].line, ini.sections[i].name, stage);
    if (!rc && lf_ini_find_section(&ini, "model")) {
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
    if (!rc && !c->out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(err, LF_EINVAL, "--out is missing: the directory to write checkpoints below");
    return rc == LF_EFORMAT || rc == LF_ENOENT ? LF_EINVAL : rc;
}

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    lf_log(level, "%s", text);
}

const struct lf_train_sink lf_train_stage_sink = {.log = log_line, .stop = lf_stop_requested};

const char *const *lf_train_makes(const void *self)
{
    static const char *const names[] = {"checkpoint", NULL};
    (void)self;
    return names;
}
