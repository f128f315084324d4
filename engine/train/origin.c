/* SPDX-License-Identifier: Apache-2.0
 *
 * Where frozen weights come from: see origin.h. */
#include "engine/train/origin.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

/* Are there weights that memory has not, or not as they were read? */
static bool any(const struct lf_train_model *m)
{
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        if (d->elsewhere || (d->frozen && lf_pstore_weights(m->ps, i) == LF_P_COPY))
            return true;
    }
    return false;
}

/* One that is not there yet has no say: this may be a plan. */
static int open_one(lf_ckpt **out, const char *dir, lf_err *err)
{
    const int rc = dir ? lf_ckpt_open_checked(out, dir, LF_CKPT_CHECK_READS, 1, err) : 0;
    if (rc != LF_ENOENT)
        return rc;
    lf_err_clear(err);
    return 0;
}

/* The checkpoint whose bytes of tensor i are written; NULL: memory's. */
static int choose(const lf_ckpt **out, const struct lf_train_model *m, int i, bool head,
                  lf_err *err)
{
    const struct lf_train_origin *o = &m->origin;
    const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
    const lf_ckpt *from = lf_weights_is_vision(d->name) && o->vision ? o->vision : o->init;
    *out = NULL;
    if (!from || !d->frozen || d->adapter || (!head && lf_weights_is_head(d->name)))
        return 0;
    const lf_ckpt_entry *e = lf_weights_entry(m->ps, i, from, LF_WEIGHTS_PREFIX);
    if (d->elsewhere && !e)
        return lf_fail(err, LF_EINVAL, "%s holds no %s as the model has it", lf_ckpt_dir(from),
                       d->name);
    if (d->elsewhere || (e && e->dtype == LF_H5_F32 && lf_pstore_weights(m->ps, i) == LF_P_COPY))
        *out = from;
    return 0;
}

int lf_train_origin_open(struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    struct lf_train_origin *o = &m->origin;
    lf_model_config is;
    bool head = false;
    if (c->adapter || !any(m))
        return 0;
    o->of = lf_calloc((size_t)lf_pstore_count(m->ps), sizeof *o->of, err);
    int rc = o->of ? open_one(&o->init, c->init_from, err) : LF_ENOMEM;
    if (rc == 0)
        rc = open_one(&o->vision, c->vision_from, err);
    if (rc == 0 && o->init && (rc = lf_weights_config(&is, o->init, err)) == 0)
        head = is.output == lf_decoder_config(m->dec)->output;
    for (int i = 0; i < lf_pstore_count(m->ps) && rc == 0; i++)
        rc = choose(&o->of[i], m, i, head, err);
    return rc;
}

static bool same_bytes(const lf_ckpt *a, const lf_ckpt_entry *x, const lf_ckpt *b,
                       const lf_ckpt_entry *y)
{
    return x && y && x->dtype == y->dtype &&
           lf_ckpt_identity_version(a) == lf_ckpt_identity_version(b) &&
           memcmp(lf_ckpt_tensor_hash(x), lf_ckpt_tensor_hash(y), LF_HASH_BYTES) == 0;
}

int lf_train_origin_resume(struct lf_train_model *m, const lf_ckpt *from, int *narrowed,
                           lf_err *err)
{
    struct lf_train_origin *o = &m->origin;
    *narrowed = 0;
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        const lf_ckpt_entry *e = lf_weights_entry(m->ps, i, from, LF_WEIGHTS_PREFIX);
        const lf_ckpt *of = o->of ? o->of[i] : NULL;
        if (of && same_bytes(from, e, of, lf_weights_entry(m->ps, i, of, LF_WEIGHTS_PREFIX)))
            continue;
        if (of && d->elsewhere)
            return lf_fail(err, LF_EINVAL,
                           "%s: its %s is not that of %s, and the run does not read it: give "
                           "init_from and vision_from as they were",
                           lf_ckpt_dir(from), d->name, lf_ckpt_dir(of));
        if (of)
            o->of[i] = NULL;
        *narrowed += d->frozen && !d->elsewhere && lf_pstore_weights(m->ps, i) == LF_P_COPY && e &&
                     e->dtype == LF_H5_F32;
    }
    return 0;
}

void lf_train_origin_close(struct lf_train_origin *o)
{
    lf_ckpt_close(o->init);
    lf_ckpt_close(o->vision);
    free(o->of);
    memset(o, 0, sizeof *o);
}
