/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-pretrain: options to engine/train. No arithmetic of training here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/train/loop.h"
#include "stages/opts.h"
#include "stages/stage.h"

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

/* Values of a REPEAT option as an array of borrowed-from-the-arena strings. */
static int strings(struct pretrain *p, const lf_optset *o, const char *name, const char *const **out, size_t *n,
                   lf_err *err)
{
    size_t count = lf_optset_count(o, name);
    const char **v = lf_arena_alloc(p->arena, count ? count : 1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (!(v[i] = lf_arena_strdup(p->arena, lf_optset_str_at(o, name, i), err)))
            return LF_ENOMEM;
    *out = v;
    *n = count;
    return 0;
}

static int string(struct pretrain *p, const lf_optset *o, const char *name, const char **out, lf_err *err)
{
    const char *s = lf_optset_str(o, name);
    *out = s ? lf_arena_strdup(p->arena, s, err) : NULL;
    return s && !*out ? LF_ENOMEM : 0;
}

static int read_data(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    const char *const *dirs;
    size_t n_weights = lf_optset_count(o, "data_weights");
    int rc = strings(p, o, "data", &dirs, &c->n_sources, err);
    if (rc)
        return rc;
    if (n_weights && n_weights != c->n_sources)
        return lf_fail(err, LF_EINVAL, "%zu data_weights for %zu data", n_weights, c->n_sources);
    lf_loader_source *src = lf_arena_alloc(p->arena, c->n_sources, sizeof(*src), err);
    if (!src)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n_sources; i++) {
        src[i].dir = dirs[i];
        if (n_weights && (rc = lf_parse_f64(&src[i].weight, lf_optset_str_at(o, "data_weights", i), err)))
            return rc;
    }
    if (c->n_sources == 1)
        src[0].weight = 1;
    c->sources = src;
    rc = strings(p, o, "valid_data", &c->valid, &c->n_valid, err);
    c->valid_required = c->n_valid > 0;
    if (!rc && !c->n_valid) {
        c->valid = dirs;
        c->n_valid = c->n_sources;
    }
    return rc;
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

static int read_batch(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    size_t rows = lf_optset_count(o, "batch_ramp");
    lf_ramp_row *r = lf_arena_alloc(p->arena, rows ? rows : 1, sizeof(*r), err);
    bool batch = lf_optset_is_set(o, "batch"), tokens = lf_optset_is_set(o, "batch_tokens");
    if (!r)
        return LF_ENOMEM;
    c->seq_length = (int32_t)lf_optset_int(o, "seq_length");
    c->micro_batch = (int32_t)lf_optset_int(o, "micro_batch");
    c->ramp = r;
    c->n_ramp = rows ? rows : 1;
    if (batch + tokens + (rows > 0) > 1)
        return lf_fail(err, LF_EINVAL, "give one of batch, batch_tokens and batch_ramp");
    int rc = 0;
    for (size_t i = 0; i < rows && !rc; i++)
        rc = parse_ramp(&r[i], lf_optset_str_at(o, "batch_ramp", i), err);
    if (rc || rows)
        return rc;
    r[0].samples = batch ? lf_optset_int(o, "batch") : c->micro_batch;
    if (tokens) {
        int64_t n = lf_optset_int(o, "batch_tokens");
        if (n % c->seq_length)
            return lf_fail(err, LF_EINVAL, "batch_tokens = %lld is not a multiple of seq_length = %d", (long long)n,
                           c->seq_length);
        r[0].samples = n / c->seq_length;
    }
    return 0;
}

static int read_skip(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    size_t n = lf_optset_count(o, "skip_batches");
    int64_t *v = lf_arena_alloc(p->arena, n ? n : 1, sizeof(*v), err);
    if (!v)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int rc = lf_parse_count(&v[i], lf_optset_str_at(o, "skip_batches", i), err);
        if (rc)
            return lf_err_prefix(err, "skip_batches");
    }
    p->c.skip = v;
    p->c.n_skip = n;
    return 0;
}

static void read_training(struct lf_train_config *c, const lf_optset *o)
{
    c->steps = lf_optset_is_set(o, "steps") ? lf_optset_int(o, "steps") : 0;
    c->tokens = lf_optset_is_set(o, "tokens") ? lf_optset_int(o, "tokens") : 0;
    c->epochs = lf_optset_is_set(o, "epochs") ? lf_optset_float(o, "epochs") : 0;
    c->megatron_order = lf_optset_choice(o, "sample_order") == 1;
    if (!c->megatron_order) {
        c->max_docs = (int32_t)lf_optset_int(o, "max_docs");
        c->packing = lf_optset_choice(o, "packing") ? LF_PACK_BFD : LF_PACK_CONCAT;
    }
    c->seed = (uint64_t)lf_optset_int(o, "seed");
    c->lr = lf_optset_float(o, "lr");
    c->min_lr = lf_optset_is_set(o, "min_lr") ? lf_optset_float(o, "min_lr") : c->lr / 10;
    c->schedule = (enum lf_schedule_kind)lf_optset_choice(o, "schedule");
    c->tail = (enum lf_schedule_tail)lf_optset_choice(o, "decay_shape");
    c->warmup_steps = lf_optset_int(o, "warmup");
    c->decay_steps = lf_optset_int(o, "decay");
    c->adam = (struct lf_adamw_opts){.beta1 = (float)lf_optset_float(o, "beta1"),
                                     .beta2 = (float)lf_optset_float(o, "beta2"),
                                     .eps = (float)lf_optset_float(o, "eps"),
                                     .weight_decay = (float)lf_optset_float(o, "weight_decay")};
    c->clip = lf_optset_float(o, "clip");
    c->z_loss = lf_optset_float(o, "z_loss");
    c->compute = lf_optset_choice(o, "precision") ? LF_BF16 : LF_F32;
    c->numeric = lf_optset_choice(o, "numeric") ? LF_INVARIANT : LF_FAST;
    c->recompute = (enum lf_recompute)lf_optset_choice(o, "recompute");
    c->threads = lf_stage_threads(o);
    c->plan_ranks = (int)lf_optset_int(o, "ranks");
}

static void read_operation(struct lf_train_config *c, const lf_optset *o)
{
    c->valid_interval = lf_optset_int(o, "valid_interval");
    c->valid_tokens = lf_optset_int(o, "valid_tokens");
    c->save_interval = lf_optset_int(o, "save_interval");
    c->save_time_s = (double)lf_optset_int(o, "save_time");
    c->verify = (enum lf_train_verify)lf_optset_choice(o, "verify");
    c->save_async = lf_optset_bool(o, "save_async");
    c->keep = (int)lf_optset_int(o, "keep");
    c->keep_every = lf_optset_int(o, "keep_every");
    c->log_interval = lf_optset_int(o, "log_interval");
    c->spike_factor = lf_optset_float(o, "spike_factor");
    c->spike_after = lf_optset_int(o, "spike_after");
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
    return string(p, o, "megatron_split", &m->split, err);
}

static int read_paths(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    struct lf_train_config *c = &p->c;
    int rc = string(p, o, "out", &c->out, err);
    if (!rc)
        rc = string(p, o, "metrics", &c->metrics, err);
    if (!rc)
        rc = string(p, o, "init_from", &c->init_from, err);
    return rc ? rc : strings(p, o, "resume_from", &c->resume_from, &c->n_resume_from, err);
}

/* [model] of the configuration file. Without one, the description comes with init_from. */
static int read_model(struct pretrain *p, const lf_optset *o, lf_err *err)
{
    const char *config = lf_optset_str(o, "config");
    if (!config)
        return 0;
    lf_ini ini = {0};
    int rc = lf_ini_parse_file(&ini, config, err);
    for (size_t i = 0; i < ini.n_sections && !rc; i++)
        if (strcmp(ini.sections[i].name, "stage") != 0 && strcmp(ini.sections[i].name, "model") != 0)
            rc = lf_fail(err, LF_EINVAL, "%s:%d: unknown section [%s]; lf-pretrain reads [stage] and [model]",
                         ini.sections[i].path, ini.sections[i].line, ini.sections[i].name);
    if (!rc && lf_ini_find_section(&ini, "model")) {
        rc = lf_model_config_from_ini(&p->c.model, &ini, "model", err);
        p->c.model_given = rc == 0;
    }
    lf_ini_fini(&ini);
    return rc;
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
    read_training(&p->c, o);
    read_operation(&p->c, o);
    int rc = read_data(p, o, err);
    if (!rc)
        rc = read_batch(p, o, err);
    if (!rc)
        rc = read_megatron(p, o, err);
    if (!rc)
        rc = read_skip(p, o, err);
    if (!rc)
        rc = read_paths(p, o, err);
    if (!rc)
        rc = read_model(p, o, err);
    if (!rc)
        rc = lf_train_check(&p->c, err);
    if (!rc && !p->c.out && !lf_optset_bool(o, "plan"))
        rc = lf_fail(err, LF_EINVAL, "--out is missing: the directory to write checkpoints below");
    /* A mistake in what the user wrote is a usage error, whatever reader found it. */
    return rc == LF_EFORMAT || rc == LF_ENOENT ? LF_EINVAL : rc;
}

static int plan(void *self, json_t *out, lf_err *err)
{
    struct pretrain *p = self;
    return lf_train_plan(&p->c, out, err);
}

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    lf_log(level, "%s", text);
}

static bool stop(void *user)
{
    (void)user;
    return lf_stop_requested();
}

static int run(void *self, lf_comm *comm, lf_err *err)
{
    struct pretrain *p = self;
    struct lf_train_sink sink = {.log = log_line, .stop = stop};
    return lf_train_run(&p->c, &sink, comm, err);
}

int main(int argc, char **argv)
{
    const lf_stage stage = {.table = &lf_pretrain_opts, .setup = setup, .plan = plan, .run = run, .destroy = destroy, .ranks = true};
    return lf_stage_main(&stage, argc, argv);
}
