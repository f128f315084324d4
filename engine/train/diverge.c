/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that must not be taken: the weights before it and its batch are kept, so that it can be
 * run again and looked at. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/io.h"
#include "engine/train/loop_priv.h"

/* More tokens than this are named by document and not repeated. */
#define MAX_TOKENS_KEPT (1 << 20)

static int add_ints(json_t *o, const char *key, const int32_t *v, int64_t n)
{
    json_t *a = json_array();
    int bad = !a;
    for (int64_t i = 0; i < n && !bad; i++)
        bad = json_array_append_new(a, json_integer(v[i]));
    bad = bad || json_object_set(o, key, a);
    json_decref(a);
    return bad;
}

static int add_micro_batch(const lf_loader *l, json_t *micro, const lf_loader_batch *b, bool tokens,
                           lf_err *err)
{
    json_t *o = json_object(), *docs = json_array();
    int64_t rows = (int64_t)b->B * b->T;
    int bad = !o || !docs || json_object_set(o, "documents", docs);
    for (int32_t i = 0; i < b->B && !bad; i++) {
        json_t *d = lf_loader_describe(l, b->sample_ids[i], err);
        bad = !d || json_array_append_new(docs, d);
    }
    if (!bad && tokens)
        bad = add_ints(o, "tokens", b->tokens, rows) || add_ints(o, "targets", b->targets, rows) ||
              add_ints(o, "cu_seqlens", b->cu_seqlens, b->n_segs + 1);
    if (!bad && tokens && b->S)
        bad = add_ints(o, "source_tokens", b->source_tokens, (int64_t)b->B * b->S) ||
              add_ints(o, "source_cu_seqlens", b->source_cu_seqlens, b->n_segs + 1);
    bad = bad || json_array_append(micro, o);
    json_decref(docs);
    json_decref(o);
    return bad ? lf_fail(err, LF_ENOMEM, "keeping the batch: out of memory") : 0;
}

/* The step's batch from a loader, which can go back to any step. */
static int add_micro_batches(const lf_trainer *t, lf_loader *l, json_t *batch, lf_err *err)
{
    lf_loader_step step;
    int rc = lf_loader_seek(l, t->s.cursor, err);
    if (rc == 0)
        rc = lf_loader_begin_step(l, &step, err);
    if (rc < 0)
        return rc;
    json_t *micro = json_array();
    bool tokens = step.n_samples * t->c->seq_length <= MAX_TOKENS_KEPT;
    rc = micro && !json_object_set(batch, "micro_batches", micro)
             ? 0
             : lf_fail(err, LF_ENOMEM, "out of memory");
    for (int32_t i = 0; i < step.n_micro && rc == 0; i++) {
        const lf_loader_batch *b;
        rc = lf_loader_next(l, &b, err);
        if (rc == 0)
            rc = add_micro_batch(l, micro, b, tokens, err);
    }
    json_decref(micro);
    return rc;
}

/* All of it, also where this rank trained on a part. */
static int add_batch(lf_trainer *t, json_t *batch, lf_err *err)
{
    lf_loader *whole = NULL;
    int rc = t->who.data_ranks > 1 ? lf_train_open_loader(&whole, t, 0, 1, err) : 0;
    if (rc == 0)
        rc = add_micro_batches(t, whole ? whole : t->data, batch, err);
    lf_loader_close(whole);
    return rc;
}

static json_t *number_or_text(double x)
{
    char text[32];
    snprintf(text, sizeof(text), "%g", x);
    return isfinite(x) ? json_real(x) : json_string(text);
}

/* Where to keep it: OUT/diverged, or with the step's number when an earlier divergence is kept
 * there. *kept: this very step is, so the run was started again without a change. */
static char *place(const lf_trainer *t, bool *kept, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    *kept = false;
    for (int i = 0; i < 2 && !b.failed; i++) {
        lf_err none = LF_ERR_INIT;
        lf_ckpt *ck = NULL;
        lf_buf_clear(&b);
        lf_buf_addf(&b, "%s/diverged", t->c->out);
        if (i)
            lf_buf_addf(&b, "-step-%08lld", (long long)t->s.step);
        int rc = lf_ckpt_open(&ck, b.data, t->c->threads, &none);
        *kept = rc == 0 && lf_ckpt_step(ck) == t->s.step;
        lf_ckpt_close(ck);
        if (rc == LF_ENOENT || *kept)
            break;
    }
    return lf_buf_steal(&b, err);
}

/* What the state of the kept weights has more: the batch. */
static json_t *describe(lf_trainer *t, const struct lf_train_step *st, const char *why, lf_err *err)
{
    json_t *batch =
        json_pack("{s:s,s:I,s:o,s:o,s:o}", "why", why, "batch", (json_int_t)st->batch, "loss",
                  number_or_text(st->loss), "loss_mean", number_or_text(lf_train_loss_mean(t)),
                  "grad_norm", number_or_text(st->grad_norm));
    json_t *extra = batch ? json_pack("{s:O}", "diverged", batch) : NULL;
    const int rc = extra ? add_batch(t, batch, err) : lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(batch);
    if (rc == 0)
        return extra;
    json_decref(extra);
    return NULL;
}

/* Rank 0 chooses the place and adds the batch; it alone needs them. Collective where ranks write
 * parts. *dir is owned. */
static int keep(lf_trainer *t, const struct lf_train_step *st, const char *why, char **dir,
                lf_err *err)
{
    bool kept = false;
    json_t *extra = NULL;
    int rc = 0;
    if (lf_train_first_rank(t) && !(*dir = place(t, &kept, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && *dir && !kept && !(extra = describe(t, st, why, err)))
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    rc = lf_train_save_at(t, rc, kept ? NULL : *dir, extra, err);
    json_decref(extra);
    return rc;
}

/* Rank 0 words it. rc: it could not be kept. */
static int tell(const lf_trainer *t, const struct lf_train_step *st, const char *why,
                const char *dir, int rc, lf_err *err)
{
    if (rc == 0)
        return lf_fail(err, LF_ENUMERIC,
                       "diverged at step %lld: %s (loss %g, mean %g, gradient norm %g); batch %lld "
                       "and the weights "
                       "before it are in "
                       "%s; lower lr, or pass over it with skip_batches = %lld",
                       (long long)t->s.step + 1, why, st->loss, lf_train_loss_mean(t),
                       st->grad_norm, (long long)st->batch, dir, (long long)st->batch);
    lf_err_prefix(err, "diverged at step %lld: %s, and it could not be kept",
                  (long long)t->s.step + 1, why);
    return rc;
}

int lf_train_diverged(lf_trainer *t, const struct lf_train_step *st, const char *why, lf_err *err)
{
    char *dir = NULL;
    lf_run_phase(&t->run, "keeping the weights of a diverged step");
    int rc = keep(t, st, why, &dir, err);
    if (lf_train_first_rank(t))
        rc = tell(t, st, why, dir, rc, err);
    free(dir);
    int agreed = lf_train_agree(t, rc == LF_ENUMERIC ? 0 : rc, rc != 0 ? NULL : err);
    if (rc != 0 || agreed)
        return rc != 0 ? rc : agreed;
    return lf_fail(err, LF_ENUMERIC,
                   "diverged at step %lld: %s; rank 0 keeps the batch and the weights before it",
                   (long long)t->s.step + 1, why);
}
