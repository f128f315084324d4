/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a run: what every state.json has, when the background writer is begun and waited
 * for, the end. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/graph/plan.h"
#include "engine/model/merge.h"
#include "engine/train/run_priv.h"

int lf_run_save_threads(const lf_run *r)
{
    return r->c.threads < 4 ? r->c.threads : 4;
}

int lf_run_snapshot_open(lf_run *r, const lf_ckpt_tensor *tensors, size_t n, bool snapshot,
                         lf_err *err)
{
    if (!snapshot || n == 0)
        return 0;
    r->snapshot_bytes = lf_ckpt_snapshot_bytes(tensors, n);
    r->snapshot = lf_pages_alloc(r->snapshot_bytes, err);
    return r->snapshot
               ? 0
               : lf_err_prefix(err, "memory for background saving (save_async = no does without)");
}

int lf_run_carry(lf_run *r, const lf_ckpt *from, lf_err *err)
{
    return !lf_run_first(r) || r->c.adapter ? 0 : lf_scales_read(&r->scales, from, r->arena, err);
}

/* What is carried, behind the run's own tensors: nobody but rank 0 has any. */
static int add_carried(lf_run *r, struct lf_run_tensors *t, lf_err *err)
{
    int rc = lf_scales_append(&r->scales, &t->all, &t->n_all, r->arena, err);
    if (rc == 0 && t->own)
        rc = lf_scales_append(&r->scales, &t->own, &t->n_own, r->arena, err);
    return rc;
}

int lf_run_writer_open(lf_run *r, const struct lf_run_tensors *own, int rc, lf_err *err)
{
    struct lf_run_tensors with = *own, *t = &with;
    if (rc == 0)
        rc = add_carried(r, t, err);
    if (t->own)
        return lf_run_parts_open(r, t, rc, err);
    if (rc != 0 || !lf_run_first(r))
        return rc;
    rc = lf_run_snapshot_open(r, t->all, t->n_all, t->snapshot, err);
    const lf_ckpt_options o = {.arena = r->snapshot, .threads = lf_run_save_threads(r)};
    return rc != 0 ? rc : lf_ckpt_writer_create(&r->writer, t->all, t->n_all, &o, err);
}

json_t *lf_run_schedule_json(const lf_schedule *s)
{
    return json_pack("{s:i,s:i,s:f,s:f,s:I,s:I,s:I}", "kind", (int)s->kind, "tail", (int)s->tail,
                     "peak", s->peak, "min", s->min, "warmup", (json_int_t)s->warmup, "total",
                     (json_int_t)s->total, "decay", (json_int_t)s->decay);
}

json_t *lf_run_optimizer_json(const struct lf_adamw_opts *a, double clip)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f}", "beta1", (double)a->beta1, "beta2", (double)a->beta2,
                     "eps", (double)a->eps, "weight_decay", (double)a->weight_decay, "clip", clip);
}

json_t *lf_run_state(const lf_run *r, json_t *o, lf_err *err)
{
    int bad = !o || json_object_set(o, "fingerprint", r->fingerprint) ||
              json_object_set(o, "history", r->history);
    if (!bad)
        bad = lf_scales_tell(&r->scales, o);
    if (!bad && r->c.adapter)
        bad = json_object_set_new(o, "adapter", lf_adapter_to_json(r->c.adapter, err)) ||
              json_object_set_new(o, "base", json_string(r->base));
    if (!bad)
        return o;
    json_decref(o);
    lf_fail(err, LF_ENOMEM, "state of the run: out of memory");
    return NULL;
}

int lf_run_may_save(lf_run *r, const char *dir, lf_err *err)
{
    if (lf_fence_closed())
        return lf_fail(err, LF_EINTR, "%s is not saved: a newer start of this stage has begun",
                       dir);
    /* Steps that a checkpoint covers must not be missing from the metrics after a crash. */
    const int rc = lf_run_metrics_sync(r, err);
    return rc != 0 ? rc : lf_ckpt_discard(dir, err);
}

/* ---- how a save ends, with parts or without ---- */

void lf_run_saved(lf_run *r, const lf_ckpt_result *res)
{
    char size[32];
    r->saved_step = r->saving_step;
    if (!lf_run_first(r))
        return;
    r->save_s = res->snapshot_s + res->write_s;
    lf_profile_span(r->c.profile, LF_LANE_SAVE, "checkpoint", r->save_t0, r->save_s);
    lf_run_log(r, 2, "saved %s in %.1f s (training held up for %.2f s)",
               lf_fmt_bytes(size, sizeof(size), (double)res->bytes), res->write_s, res->snapshot_s);
}

int lf_run_not_saved(lf_run *r, bool needed, const lf_err *why, lf_err *err)
{
    r->failed_step = r->saving_step;
    if (needed && lf_run_first(r))
        return lf_fail(err, why->rc, "checkpoint: %s", why->text);
    if (needed)
        return lf_fail(err, LF_ECOMM, "rank 0 (%s) has no checkpoint of step %lld",
                       lf_comm_peer_host(r->comm, 0), (long long)r->saving_step);
    lf_run_log(r, 1, "step %lld is not saved, and the run goes on: %s", (long long)r->saving_step,
               why->text);
    return 0;
}

/* ---- rank 0 alone ---- */

int lf_run_save_begin(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err)
{
    if (r->parts)
        return lf_run_parts_begin(r, rc, dir, state, err);
    if (rc != 0 || !lf_run_first(r) || !dir)
        return rc;
    lf_run_phase(r, "saving");
    rc = lf_run_save_wait(r, false, err);
    if (rc == 0)
        rc = lf_run_may_save(r, dir, err);
    if (rc != 0)
        return rc;
    struct lf_profile_mark m = lf_profile_begin(r->c.profile);
    r->save_t0 = lf_now_s();
    lf_err_clear(&r->unsaved);
    if (lf_ckpt_save_begin(r->writer, dir, state, &r->unsaved) != 0)
        (void)lf_ckpt_save_wait(r->writer, NULL, NULL); /* or the next save hears of it */
    lf_profile_end(r->c.profile, LF_LANE_STEP, "snapshot", m);
    r->saving = true;
    r->saving_step = json_integer_value(json_object_get(state, "step"));
    r->last_save = lf_now_s();
    return 0;
}

int lf_run_save_poll(lf_run *r, lf_err *err)
{
    return r->saving && !r->parts && lf_ckpt_save_idle(r->writer) ? lf_run_save_wait(r, false, err)
                                                                  : 0;
}

int lf_run_save_wait(lf_run *r, bool needed, lf_err *err)
{
    if (r->parts)
        return lf_run_parts_wait(r, needed, err);
    if (!r->saving)
        return 0;
    lf_run_phase(r, "saving");
    r->saving = false;
    lf_ckpt_result res;
    int rc = r->unsaved.rc ? r->unsaved.rc : lf_ckpt_save_wait(r->writer, &res, &r->unsaved);
    if (rc == LF_EBUSY && lf_fence_closed()) /* the fence closed while it was written: no failure */
        return lf_fail(err, LF_EINTR, "nothing is saved: a newer start of this stage has begun");
    if (rc < 0)
        return lf_run_not_saved(r, needed, &r->unsaved, err);
    lf_run_saved(r, &res);
    return lf_ckpt_retain(r->c.out, r->c.keep, r->c.keep_every, err);
}

int lf_run_save_at(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err)
{
    rc = lf_run_save_begin(r, rc, dir, state, err);
    return rc != 0 ? rc : lf_run_save_wait(r, true, err);
}

/* ---- the end ---- */

/* Is the adapter in dir there, whole and of the place where this run stands? One of another run is
 * refused, a damaged one set aside. */
static int adapter_there(const lf_run *r, const char *dir, const json_t *state, bool *there,
                         lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    lf_err why = LF_ERR_INIT;
    lf_ckpt *ck = NULL;
    *there = false;
    int rc = lf_artifact_state(&st, dir, &why);
    if (rc == 0 && st == LF_ARTIFACT_ABSENT)
        return 0;
    if (rc == 0)
        rc = st == LF_ARTIFACT_PRESENT ? lf_ckpt_open(&ck, dir, r->c.threads, &why) : LF_EFORMAT;
    if (rc == LF_EFORMAT) {
        lf_run_log(r, 1, "making %s again: %s", dir, why.text);
        return lf_run_set_aside(r, dir, NULL, err);
    }
    if (rc != 0)
        return lf_fail(err, rc, "%s", why.text);
    if (lf_ckpt_step(ck) != json_integer_value(json_object_get(state, "step")) ||
        !json_equal(json_object_get(lf_ckpt_state(ck), r->c.identity),
                    json_object_get(state, r->c.identity)))
        rc = lf_fail(err, LF_EEXIST, "%s is of another run; write to another out", dir);
    lf_ckpt_close(ck);
    *there = rc == 0;
    return rc;
}

/* The adapter, then its base with it inside. One that is there already is that of a run that ended
 * between the two; its bits are these. */
static int save_adapter(lf_run *r, int rc, const char *adapter, const char *checkpoint,
                        const json_t *state, lf_err *err)
{
    bool there = false;
    const struct lf_merge_opts mo = {
        .base = r->c.init_from, .adapter = adapter, .out = checkpoint, .threads = r->c.threads};
    if (rc == 0 && lf_run_first(r))
        rc = adapter_there(r, adapter, state, &there, err);
    rc = lf_run_save_at(r, rc, there ? NULL : adapter, state, err);
    lf_run_phase(r, "merging the adapter");
    return rc != 0 || !lf_run_first(r) ? rc : lf_adapter_merge(&mo, NULL, err);
}

int lf_run_save_final(lf_run *r, int rc, const json_t *state, lf_err *err)
{
    char *dir = lf_path_join(r->c.out, "checkpoint", err),
         *adapter = lf_path_join(r->c.out, "adapter", err);
    if (rc == 0 && (!dir || !adapter))
        rc = LF_ENOMEM;
    rc = r->c.adapter ? save_adapter(r, rc, adapter, dir, state, err)
                      : lf_run_save_at(r, rc, dir, state, err);
    free(dir);
    free(adapter);
    return rc;
}
