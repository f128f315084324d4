/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of the loop: which tensors, and what goes into state.json. When they are written is
 * run_save.c's. */
#include <math.h>
#include <string.h>

#include "engine/base/str.h"

#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

bool lf_train_sharded(const lf_trainer *t)
{
    return lf_run_in_parts(&t->run);
}

bool lf_train_snapshots(const struct lf_train_config *c, const struct lf_train_model *m)
{
    return c->save_async || lf_plan_target(m->plan)->sm;
}

int lf_train_tensors(struct lf_run_tensors *out, const struct lf_train_config *c,
                     const struct lf_train_model *m, const struct lf_train_who *who, lf_arena *a,
                     lf_err *err)
{
    lf_ckpt_tensor *all = NULL, *own = NULL;
    size_t n = 0;
    const struct lf_weights_what what = {LF_WEIGHTS_PREFIX, true, m->origin.of};
    int rc = c->adapter
                 ? lf_weights_adapter_tensors(&all, &n, m->ps, LF_WEIGHTS_PREFIX, true, a, err)
                 : lf_weights_tensors(&all, &n, m->ps, &what, a, err);
    *out = (struct lf_run_tensors){.all = all, .n_all = n, .snapshot = lf_train_snapshots(c, m)};
    if (rc != 0 || lf_axes_ranks(who) <= 1 ||
        (c->zero.stage == 0 && who->tensor_ranks <= 1 && who->pipeline_ranks <= 1 &&
         who->expert_ranks <= 1))
        return rc;
    if (!(own = lf_arena_alloc(a, n + 1, sizeof *own, err)))
        return LF_ENOMEM;
    memcpy(own, all, n * sizeof *own);
    const struct lf_weights_share share = {.ps = m->ps,
                                           .prefix = LF_WEIGHTS_PREFIX,
                                           .rank = lf_axes_sharer(who),
                                           .ranks = lf_axes_sharers(who),
                                           .expert = who->expert_ranks,
                                           .fold = who->folded ? who->tensor_ranks : 1,
                                           .fold_rank = who->folded ? who->tensor : 0,
                                           .copy = lf_axes_sharer(who) >=
                                                   lf_zero_inner(&c->zero, lf_axes_sharers(who))};
    lf_weights_share(own, &n, &share);
    out->own = own;
    out->n_own = n;
    return 0;
}

/* ---- a model that is cut: tensors of other layers ---- */

/* What rank 0 has to know of a tensor. */
struct told {
    char name[256], kind[16];
    int64_t shape[LF_CKPT_MAX_DIMS];
    int32_t dtype, ndim;
};

static int tell_tensors(lf_buf *out, const struct lf_run_tensors *t, lf_err *err)
{
    for (size_t i = 0; i < t->n_all; i++) {
        const lf_ckpt_tensor *from = &t->all[i];
        struct told one;
        memset(&one, 0, sizeof one);
        if (strlen(from->name) >= sizeof one.name || strlen(from->kind) >= sizeof one.kind)
            return lf_fail(err, LF_EINVAL, "%s: the name is too long", from->name);
        memcpy(one.name, from->name, strlen(from->name));
        memcpy(one.kind, from->kind, strlen(from->kind));
        memcpy(one.shape, from->shape, sizeof one.shape);
        one.dtype = (int32_t)from->dtype;
        one.ndim = from->ndim;
        lf_buf_add(out, (const char *)&one, sizeof one);
    }
    return lf_buf_check(out, err);
}

static bool among(const lf_ckpt_tensor *all, size_t n, const struct told *one)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, one->name) == 0 && strcmp(all[i].kind, one->kind) == 0)
            return true;
    return false;
}

/* Tied tensors are told twice. */
static int take_tensors(struct lf_run_tensors *out, const struct lf_comm_blobs *told, int ranks,
                        lf_arena *a, lf_err *err)
{
    const size_t most = told->offset[ranks] / sizeof(struct told);
    lf_ckpt_tensor *all = lf_arena_alloc(a, most + 1, sizeof *all, err);
    size_t n = 0;
    if (!all)
        return LF_ENOMEM;
    for (size_t i = 0; i < most; i++) {
        struct told one;
        memcpy(&one, told->data + i * sizeof one, sizeof one);
        one.name[sizeof one.name - 1] = one.kind[sizeof one.kind - 1] = '\0';
        if (among(all, n, &one))
            continue;
        all[n] = (lf_ckpt_tensor){.name = lf_arena_strdup(a, one.name, err),
                                  .kind = lf_arena_strdup(a, one.kind, err),
                                  .dtype = (enum lf_h5_type)one.dtype,
                                  .ndim = one.ndim};
        if (!all[n].name || !all[n].kind)
            return LF_ENOMEM;
        memcpy(all[n++].shape, one.shape, sizeof one.shape);
    }
    out->all = all;
    out->n_all = n;
    return 0;
}

/* Rank 0 describes the tensors of all layers. Collective. rc: how this rank fared. */
static int share_tensors(lf_trainer *t, struct lf_run_tensors *tensors, int rc, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    lf_buf mine;
    lf_buf_init(&mine);
    if (rc == 0 && lf_axes_sharer(&t->who) == 0 && t->who.tensor == 0)
        rc = tell_tensors(&mine, tensors, err);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_comm_gather_blobs(t->run.comm, mine.data, mine.len, &all, err);
    if (rc == 0 && lf_train_first_rank(t))
        rc = take_tensors(tensors, &all, t->run.ranks, t->run.arena, err);
    lf_comm_blobs_fini(&all);
    lf_buf_fini(&mine);
    return rc;
}

int lf_train_writer_open(lf_trainer *t, lf_err *err)
{
    struct lf_run_tensors tensors;
    int rc = lf_train_tensors(&tensors, t->c, &t->m, &t->who, t->run.arena, err);
    if (t->pipe)
        rc = share_tensors(t, &tensors, rc, err);
    return lf_run_writer_open(&t->run, &tensors, rc, err);
}

/* A real, or null where there is none yet. */
static json_t *real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* The batch schedule as pairs [from sample, samples of a step]. */
static json_t *batch_json(const struct lf_train_config *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < c->n_ramp; i++)
        if (json_array_append_new(rows, json_pack("[I,I]", (json_int_t)c->ramp[i].from_sample,
                                                  (json_int_t)c->ramp[i].samples))) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

/* What the loop alone knows. */
static json_t *own_state(const lf_trainer *t, json_t *model)
{
    const struct lf_train_state *s = &t->s;
    const struct lf_train_config *c = t->c;
    json_t *optim = lf_run_optimizer_json(&c->adam, c->clip);
    if (optim && json_object_set_new(optim, "z_loss", json_real(c->z_loss))) {
        json_decref(optim);
        optim = NULL;
    }
    return json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:o,s:o,s:o,s:o,s:f,s:o,s:o,s:o,s:b,s:f}",
                     "lf_train", 1, "step", (json_int_t)s->step, "samples", (json_int_t)s->samples,
                     "tokens", (json_int_t)s->tokens, "cursor", (json_int_t)s->cursor, "seed",
                     (json_int_t)c->seed, "order", lf_loader_order_id(t->data), "tokenizer_sha256",
                     t->tokenizer, "model", model, "optimizer", optim, "schedule",
                     lf_run_schedule_json(&t->lr), "batch", batch_json(c), "loss_sum", s->loss_sum,
                     "first_loss", real_or_null(s->first_loss), "valid_loss",
                     real_or_null(s->valid_loss), "best_valid", real_or_null(s->best_valid),
                     "early", lf_best_over(&s->best, c->patience), "active_s", s->active_s);
}

/* Did patience end this run before its length? Then the manifest says so. */
static int tell_patience(const lf_trainer *t, json_t *state)
{
    static const char *const metrics[] = {"valid_loss", "valid_accuracy", "valid_margin"};
    if (t->s.step >= t->total_steps || !lf_best_over(&t->s.best, t->c->patience))
        return 0;
    return lf_best_tell_end(&t->s.best,
                            &(struct lf_best_end){.at = t->s.step,
                                                  .of = t->total_steps,
                                                  .unit = "steps",
                                                  .metric = metrics[t->c->best_metric],
                                                  .measurements = "validations"},
                            state);
}

json_t *lf_train_state_json(const lf_trainer *t, lf_err *err)
{
    const struct lf_train_config *c = t->c;
    json_t *model = lf_model_config_to_json(&t->mc, err);
    if (!model)
        return NULL;
    json_t *o = own_state(t, model);
    int bad = !o || lf_best_to_json(&t->s.best, o);
    if (!bad && c->average.decay > 0)
        bad = json_object_set_new(o, "average",
                                  json_pack("{s:f,s:I,s:b}", "decay", c->average.decay, "start",
                                            (json_int_t)c->average.start, "warmup",
                                            c->average.warmup));
    if (!bad && c->scaler.dynamic)
        bad = json_object_set_new(o, "scaler", lf_scaler_json(&t->s.scaler));
    if (!bad && c->neftune_alpha > 0)
        bad = json_object_set_new(o, "neftune_alpha", json_real(c->neftune_alpha));
    if (!bad && t->hf_config)
        bad = json_object_set(o, "hf_config", t->hf_config);
    if (!bad && c->costs)
        bad = json_object_set_new(o, "pipeline_cost",
                                  lf_train_costs_json(c->costs, &t->m.cut, &c->axes, &t->who));
    if (!bad)
        bad = tell_patience(t, o);
    if (!bad)
        bad = lf_early_add(&t->early, o, t->s.step, t->s.step, err);
    if (!bad && c->objective && c->objective->identity)
        bad = json_object_set(o, "objective", c->objective->identity);
    if (!bad && c->objective && c->objective->extra)
        bad = json_object_update(o, c->objective->extra);
    if (bad) {
        json_decref(o);
        o = NULL;
    }
    return lf_run_state(&t->run, o, err);
}

/* The state of this place, with these members too, where this rank saves. */
static int state_here(const lf_trainer *t, json_t *extra, json_t **state, lf_err *err)
{
    if (!lf_train_saves(t))
        return 0;
    if (!(*state = lf_train_state_json(t, err)))
        return LF_ENOMEM;
    return extra && json_object_update(*state, extra)
               ? lf_fail(err, LF_ENOMEM, "state of the run: out of memory")
               : 0;
}

bool lf_train_saves(const lf_trainer *t)
{
    return lf_train_first_rank(t) || t->run.parts;
}

int lf_train_save_begin(lf_trainer *t, int rc, const char *dir, lf_err *err)
{
    json_t *state = NULL;
    if (rc == 0)
        rc = state_here(t, NULL, &state, err);
    rc = lf_run_save_begin(&t->run, rc, dir, state, err);
    json_decref(state);
    return rc;
}

int lf_train_save_at(lf_trainer *t, int rc, const char *dir, json_t *extra, lf_err *err)
{
    json_t *state = NULL;
    if (rc == 0)
        rc = state_here(t, extra, &state, err);
    rc = lf_run_save_at(&t->run, rc, dir, state, err);
    json_decref(state);
    return rc;
}

int lf_train_save_final(lf_trainer *t, lf_err *err)
{
    json_t *state = NULL;
    const int made = state_here(t, NULL, &state, err),
              rc = lf_run_save_final(&t->run, made, state, err);
    json_decref(state);
    return rc;
}
