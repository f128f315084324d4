/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint to Hugging Face: outside tensors in the order of their files, block by block. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/card.h"
#include "engine/convert/hf_priv.h"
#include "engine/convert/priv.h"
#include "engine/convert/quantised.h"
#include "engine/model/electra.h"
#include "engine/model/label_names.h"
#include "engine/model/vision.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"

/* Of a tensor that is written at once. Of a transposed one more: what is read of a source's rows is
 * as long as a block has rows. */
#define BLOCK_BYTES  ((int64_t)4 << 20)
#define TURNED_BYTES ((int64_t)32 << 20)
/* Of one that becomes 8-bit floats, by each thread: so many stay in its cache. */
#define QUANTISED_BYTES ((int64_t)1 << 20)

struct export
{
    const struct lf_convert_opts *o;
    lf_ckpt *ckpt;
    lf_model_config config;
    const struct lf_hf_family *family;
    json_t
        *hf; /* what an import kept of its origin, in this family's form; NULL: nothing. Borrowed */
    lf_map map;
    const lf_ckpt_entry **entries; /* [map.n_ours] */
    struct lf_move_source from;    /* src: ours */
    struct lf_move_source as_is;   /* src: entries of the checkpoint */
    lf_st_decl *decls;
    /* [n] of decls: index in map.items; behind those, from n_items on, entries of the checkpoint
     * that go out as they are */
    int *items;
    size_t n, n_items;
    struct lf_quantised quant; /* decls are its first ones, and behind them scales */
    json_t *quant_state;       /* see lf_quantised_state */
    struct lf_convert_left left;
    double total, done;
    int64_t nonfinite, reused;
};

static enum lf_st_dtype ours_dtype(void *ctx, int src)
{
    struct export *ex = ctx;
    return lf_hf_st_type(ex->entries[src]->dtype);
}

static int ours_read(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct export *ex = ctx;
    return lf_ckpt_read_flat(ex->ckpt, ex->entries[src], first, n, dst, err);
}

static enum lf_st_dtype kept_dtype(void *ctx, int src)
{
    struct export *ex = ctx;
    return lf_hf_st_type(lf_ckpt_entry_at(ex->ckpt, (size_t)src)->dtype);
}

static int kept_read(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct export *ex = ctx;
    return lf_ckpt_read_flat(ex->ckpt, lf_ckpt_entry_at(ex->ckpt, (size_t)src), first, n, dst, err);
}

/* ---- our tensors ---- */

static bool takes_generator(const struct export *ex)
{
    return ex->o->parts == LF_PARTS_GENERATOR;
}

/* Is a weight of the checkpoint of a part that this export is not of? */
static bool is_other_part(const struct export *ex, const char *name)
{
    const struct lf_hf_lone *l = ex->family->lone;
    static const char *const beside[] = {
        [LF_BESIDE_RESTORING] = "mae.", [LF_BESIDE_CLASSES] = "classes."};
    if (lf_weights_is_generator(name))
        return !takes_generator(ex);
    if (takes_generator(ex)) /* what it shares with the discriminator */
        return !lf_electra_shares(name);
    return l && !lf_weights_is_vision(name) &&
           !(l->beside && lf_str_has_prefix(name, beside[l->beside]));
}

static int check_entry(const struct export *ex, size_t i, const lf_ckpt_entry *e, lf_err *err)
{
    const struct lf_map_ours *o = &ex->map.ours[i];
    bool same = e->ndim == o->ndim && lf_hf_st_type(e->dtype);
    for (int k = 0; k < o->ndim && same; k++)
        same = e->shape[k] == o->shape[k];
    return same ? 0
                : lf_fail(err, LF_EFORMAT,
                          "%s: %s has not the shape or type that the model's description gives it",
                          ex->o->from, e->name);
}

/* Every weight of the checkpoint is one of the model's, and all of those are there. */
static int find_entries(struct export *ex, lf_err *err)
{
    size_t prefix = strlen(LF_WEIGHTS_PREFIX), seen = 0;
    int rc = 0;
    if (!(ex->entries = lf_calloc(ex->map.n_ours, sizeof *ex->entries, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < ex->map.n_ours && rc == 0; i++) {
        lf_buf b;
        lf_buf_init(&b);
        const char *name = ex->map.ours[i].name;
        const bool own = takes_generator(ex) && !lf_electra_shares(name);
        lf_buf_addf(&b, LF_WEIGHTS_PREFIX "%s%s", own ? LF_ELECTRA_STACK : "", name);
        rc = lf_buf_check(&b, err);
        if (rc == 0 && !(ex->entries[i] = lf_ckpt_find(ex->ckpt, b.data, "weight")))
            rc = lf_fail(err, LF_EFORMAT, "%s: no tensor %s", ex->o->from, b.data);
        if (rc == 0)
            rc = check_entry(ex, i, ex->entries[i], err);
        lf_buf_fini(&b);
    }
    for (size_t i = 0; i < lf_ckpt_n_entries(ex->ckpt) && rc == 0; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(ex->ckpt, i);
        seen += strcmp(e->kind, "weight") == 0 &&
                strncmp(e->name, LF_WEIGHTS_PREFIX, prefix) == 0 &&
                !is_other_part(ex, e->name + prefix);
    }
    if (rc == 0 && seen != ex->map.n_ours)
        rc = lf_fail(err, LF_EFORMAT, "%s holds %zu weights, the model's description has %zu",
                     ex->o->from, seen, ex->map.n_ours);
    return rc;
}

/* ---- outside tensors ---- */

static bool among(json_t *list, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) if (json_is_string(v) &&
                                       strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

/* By the option; as it was, which a quantised release is after training too; or t. */
static int type_of(const struct export *ex, lf_st_decl *d, enum lf_st_dtype t, lf_err *err)
{
    json_t *from = ex->hf ? ex->hf : ex->quant_state;
    const char *was = json_string_value(json_object_get(json_object_get(from, "dtypes"), d->name));
    if (!was)
        was = json_string_value(json_object_get(from, "dtype"));
    if (was && lf_st_dtype_parse(&t, was, err))
        return LF_EFORMAT;
    d->dtype = lf_convert_target(ex->o->dtype, t);
    return 0;
}

/* Where nothing else counts, the type of our parts, the wider where they differ. */
static int pick_dtype(const struct export *ex, int item, lf_st_decl *d, lf_err *err)
{
    const struct lf_map_parts *p = &ex->map.of_item[item];
    enum lf_st_dtype t = 0;
    for (size_t k = 0; k < p->n; k++) {
        enum lf_st_dtype have = lf_hf_st_type(ex->entries[p->segs[k].src]->dtype);
        t = !t || t == have ? have : LF_ST_F32;
    }
    return type_of(ex, d, t, err);
}

/* What an import kept, in the shape that it had. */
static int declare_kept(struct export *ex, lf_err *err)
{
    json_t *kept = json_object_get(ex->hf, LF_CONVERT_KEPT), *shape, *v;
    int rc = 0;
    for (size_t i = 0; i < lf_ckpt_n_entries(ex->ckpt) && rc == 0; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(ex->ckpt, i);
        lf_st_decl *d = &ex->decls[ex->n];
        double n = 1;
        size_t k;
        if (strcmp(e->kind, LF_CONVERT_KEPT) != 0 ||
            !(shape = json_object_get(kept, e->name + strlen(LF_CONVERT_KEPT "/"))))
            continue;
        *d = (lf_st_decl){.name = e->name + strlen(LF_CONVERT_KEPT "/"),
                          .ndim = (int)json_array_size(shape)};
        if (d->ndim > LF_ST_MAX_DIMS)
            return lf_fail(err, LF_EFORMAT, "%s: %s has %d dimensions", ex->o->from, e->name,
                           d->ndim);
        json_array_foreach(shape, k, v)
        {
            d->shape[k] = json_integer_value(v);
            n *= (double)d->shape[k];
        }
        if (n != (double)e->shape[0]) /* NOLINT: whole numbers */
            return lf_fail(err, LF_EFORMAT, "%s: %s has not the shape that was kept of it",
                           ex->o->from, e->name);
        rc = type_of(ex, d, kept_dtype(ex, (int)i), err);
        ex->items[ex->n++] = (int)i;
    }
    return rc;
}

static int declare_items(struct export *ex, lf_err *err)
{
    json_t *tied = json_object_get(ex->hf, "tied");
    const size_t most = ex->map.n_items + lf_ckpt_n_entries(ex->ckpt);
    int rc = 0;
    ex->from = (struct lf_move_source){ex, ours_dtype, ours_read};
    ex->as_is = (struct lf_move_source){ex, kept_dtype, kept_read};
    if (!(ex->decls = lf_calloc(most, sizeof *ex->decls, err)) ||
        !(ex->items = lf_calloc(most, sizeof *ex->items, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < ex->map.n_items && rc == 0; i++) {
        const struct lf_map_item *it = &ex->map.items[i];
        if (it->kind == LF_MAP_IGNORED || it->kind == LF_MAP_LEFT_OUT ||
            (it->kind == LF_MAP_TIED && !among(tied, it->name) &&
             (ex->hf || !lf_map_of_head(it->row)))) /* who wrote no file left none out */
            continue;
        lf_st_decl *d = &ex->decls[ex->n];
        *d = (lf_st_decl){.name = it->name, .ndim = it->ndim};
        for (int k = 0; k < it->ndim; k++)
            d->shape[k] = it->shape[k];
        rc = pick_dtype(ex, (int)i, d, err);
        ex->items[ex->n++] = (int)i;
    }
    ex->n_items = ex->n;
    return rc != 0 ? rc : declare_kept(ex, err);
}

static int64_t elements(const lf_ckpt_entry *e)
{
    int64_t n = 1;
    for (int k = 0; k < e->ndim; k++)
        n *= e->shape[k];
    return n;
}

/* The bytes of a tensor that is one of the checkpoint's have its hash. */
static void know_hash(struct export *ex, lf_st_writer *w, size_t k, const struct lf_move *m)
{
    const struct lf_map_seg *seg = m->parts->segs;
    const lf_ckpt_entry *whole = m->parts->n != 1 ? NULL
                                 : m->from == &ex->as_is
                                     ? lf_ckpt_entry_at(ex->ckpt, (size_t)seg->src)
                                     : ex->entries[seg->src];
    uint8_t hash[LF_HASH_BYTES];
    if (whole && !m->parts->blocks.n && seg->src_at == 0 && seg->n * m->parts->width == m->elems &&
        lf_hf_st_type(whole->dtype) == m->dtype && elements(whole) == m->elems &&
        lf_ckpt_tensor_tree_hash(ex->ckpt, whole, hash)) /* opening has checked the bytes */
        lf_st_writer_know(w, k, hash);
}

static int stopped(lf_err *err)
{
    return lf_fail(err, LF_EINTR,
                   "stopped on request; the files that are complete are kept for the next run");
}

/* Block by block. */
static int move_all(struct export *ex, lf_st_writer *w, struct lf_move *m, void *buf, lf_err *err)
{
    const int64_t elem = (int64_t)lf_st_dtype_bytes(m->dtype),
                  step = (m->parts->blocks.n ? TURNED_BYTES : BLOCK_BYTES) / elem;
    int64_t n;
    int rc = 0;
    for (int64_t at = 0; at < m->elems && rc == 0; at += n) {
        n = m->elems - at < step ? m->elems - at : step;
        if (ex->o->stop && ex->o->stop())
            return stopped(err);
        rc = lf_move_block(m, at, n, buf, err);
        if (rc == 0)
            rc = lf_st_writer_put(w, buf, (size_t)(n * elem), err);
        ex->done += (double)(n * elem);
        if (rc == 0 && ex->o->progress)
            ex->o->progress(ex->o->arg, ex->done, ex->total);
    }
    return rc;
}

/* Decl k as it comes from the checkpoint. */
struct taken {
    struct lf_move m;
    struct lf_map_seg one;
    struct lf_map_parts as_is;
};

static void take_item(struct export *ex, size_t k, enum lf_st_dtype dtype, struct taken *t)
{
    *t = (struct taken){.m = {.from = &ex->from, .dtype = dtype},
                        .one = {.src = ex->items[k], .times = 1},
                        .as_is = {.segs = &t->one, .n = 1, .cap = 1, .width = 1}};
    if (k < ex->n_items) {
        lf_move_to_item(&t->m, &ex->map, (size_t)ex->items[k]);
        return;
    }
    t->m.from = &ex->as_is;
    t->m.parts = &t->as_is;
    t->m.elems = elements(lf_ckpt_entry_at(ex->ckpt, (size_t)ex->items[k]));
    t->one.n = t->one.step = t->one.src_step = t->m.elems;
}

static int between(void *arg, int64_t bytes, lf_err *err)
{
    struct export *ex = arg;
    ex->done += (double)bytes;
    if (ex->o->progress)
        ex->o->progress(ex->o->arg, ex->done, ex->total);
    return ex->o->stop && ex->o->stop() ? stopped(err) : 0;
}

/* 8-bit floats, or their scales. */
static int write_quantised(struct export *ex, lf_st_writer *w, size_t k, struct taken *t,
                           lf_err *err)
{
    const size_t of = lf_quantised_weight(&ex->quant, k);
    const lf_ckpt_entry *act = of == k ? NULL : ex->quant.act[k - ex->quant.n];
    char as_is[sizeof(float)];
    if (act) {
        const int rc = lf_ckpt_read_flat(ex->ckpt, act, 0, 1, as_is, err);
        ex->done += (double)lf_st_dtype_bytes(ex->decls[k].dtype);
        return rc != 0 ? rc
                       : lf_st_writer_put(w, as_is, lf_st_dtype_bytes(ex->decls[k].dtype), err);
    }
    take_item(ex, of, LF_ST_F32, t);
    const int64_t bytes = t->m.parts->blocks.n ? TURNED_BYTES : QUANTISED_BYTES;
    const struct lf_requant_job job = {.values = &t->m,
                                       .step = bytes / (int64_t)sizeof(float),
                                       .threads = ex->o->threads,
                                       .to = w,
                                       .between = between,
                                       .arg = ex};
    return of == k ? lf_requant_codes(ex->quant.of[of], &job, err)
                   : lf_requant_scales(ex->quant.of[of], &job, err);
}

static int write_item(struct export *ex, lf_st_writer *w, size_t k, void *buf, lf_err *err)
{
    struct taken t;
    int rc;
    if (lf_quantised_has(&ex->quant, k)) {
        rc = write_quantised(ex, w, k, &t, err);
    } else {
        take_item(ex, k, ex->decls[k].dtype, &t);
        know_hash(ex, w, k, &t.m);
        rc = move_all(ex, w, &t.m, buf, err);
    }
    long long bad = k < ex->quant.n ? atomic_load(&t.m.nonfinite) : 0;
    if (bad && ex->o->warn) {
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_addf(&b, "%s holds %lld values that are NaN or infinite", ex->decls[k].name, bad);
        ex->o->warn(ex->o->arg, b.data);
        lf_buf_fini(&b);
    }
    ex->nonfinite += bad;
    return rc;
}

/* The weights, their files in a and the hash of every tensor in its meta. */
static int write_weights(struct export *ex, lf_artifact *a, lf_err *err)
{
    lf_st_writer *w = NULL;
    lf_st_written *files = NULL;
    size_t n_files = 0, k;
    char hex[LF_HASH_HEX];
    lf_st_write_options wo = {
        .max_file = ex->o->file_bytes, .hash_tensors = true, .resume = ex->left.resume};
    json_t *hashes = json_object();
    void *buf = lf_malloc((size_t)TURNED_BYTES, 1, err);
    int rc =
        buf && hashes ? lf_st_writer_create(&w, ex->o->out, ex->decls, ex->n, &wo, err) : LF_ENOMEM;
    ex->reused = rc != 0 ? 0 : lf_st_writer_reused(w);
    ex->done = (double)ex->reused;
    while (rc == 0 && (k = lf_st_writer_next(w)) < ex->n)
        rc = write_item(ex, w, k, buf, err);
    for (k = 0; k < ex->n && rc == 0; k++) {
        lf_hash_hex(hex, lf_st_writer_hash(w, k));
        if (json_object_set_new(hashes, ex->decls[k].name, json_string(hex)))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
    }
    if (rc == LF_EINTR && w)
        lf_st_writer_keep(w);
    if (rc == 0)
        rc = lf_st_writer_finish(w, &files, &n_files, err);
    for (size_t i = 0; i < n_files && rc == 0; i++)
        rc = lf_artifact_add(a, files[i].name, files[i].bytes, files[i].sha256, err);
    if (rc == 0 && json_object_set(a->meta, "tensors", hashes))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    lf_st_written_free(files, n_files);
    lf_st_writer_destroy(w);
    json_decref(hashes);
    free(buf);
    return rc;
}

/* ---- the other files ---- */

static int is_same_model(const struct export *ex, json_t *config, bool *same)
{
    lf_model_config c;
    lf_err why = LF_ERR_INIT;
    json_t *o = json_incref(config);
    if (lf_hf_lacks_token(ex->family, config)) { /* it agrees whatever the token is */
        json_decref(o);
        o = json_copy(config);
        json_object_set_new(o, ex->family->sight->token_key, json_integer(ex->config.image_token));
    }
    int rc = lf_hf_config_read(&c, ex->family, o, LF_HF_CONFIG, &why);
    json_decref(o);
    if (ex->family->tie_by_tensors) /* whatever it says: tensors have the last word */
        c.tied_head = ex->config.tied_head;
    *same = rc == 0 && lf_model_config_equal(&c, &ex->config, NULL);
    return rc;
}

/* Keys of the original that the tables do not write and that change no number: special tokens, of
 * old files. */
static int add_inert(json_t *o, json_t *was)
{
    static const char *const kept[] = {
        "bos_token_id",  "eos_token_id", "pad_token_id", "unk_token_id",    "gmask_token_id",
        "mask_token_id", "sep_token_id", "auto_map",     "tokenizer_class", NULL};
    int bad = 0;
    for (const char *const *k = kept; *k && !bad; k++)
        if (json_object_get(was, *k))
            bad = json_object_set(o, *k, json_object_get(was, *k));
    return bad;
}

static bool is_among(json_t *ids, json_int_t id)
{
    size_t i;
    json_t *v;
    json_array_foreach(ids, i,
                       v) if (json_is_integer(v) && json_integer_value(v) == id) return true;
    return json_is_integer(ids) && json_integer_value(ids) == id;
}

/* What a reader needs to find the row that holds the score, and its normalisation. */
static int add_score(const struct export *ex, json_t *o, lf_err *err)
{
    json_t *norm = json_object_get(lf_ckpt_state(ex->ckpt), "score");
    int bad = 0;
    if (ex->o->pad_token >= 0)
        bad = json_object_set_new(o, "pad_token_id", json_integer(ex->o->pad_token));
    if (norm)
        bad = bad || json_object_set(o, "mean", json_object_get(norm, "mean")) ||
              json_object_set(o, "std", json_object_get(norm, "std"));
    if (bad)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    json_t *pad = json_object_get(o, "pad_token_id");
    if (!json_is_integer(pad))
        return lf_fail(err, LF_EINVAL,
                       "no padding token: transformers reads the score at the last token that is "
                       "another one; give pad_token "
                       "= a token that no text ends with");
    if (json_integer_value(pad) < 0 || json_integer_value(pad) >= ex->config.vocab)
        return lf_fail(err, LF_EINVAL, "pad_token = %lld, the model's vocabulary ends at %lld",
                       (long long)json_integer_value(pad), (long long)ex->config.vocab - 1);
    if (is_among(json_object_get(o, "eos_token_id"), json_integer_value(pad)))
        return lf_fail(err, LF_EINVAL,
                       "pad_token = %lld is the end token: transformers would read the score one "
                       "token before it; name "
                       "another one",
                       (long long)json_integer_value(pad));
    return 0;
}

/* Do the tokens of the options count? */
static bool has_tokens(const struct export *ex)
{
    const struct lf_convert_tokens *t = ex->family->lone ? NULL : ex->o->tokens;
    return t && (t->asked || !json_object_get(lf_ckpt_state(ex->ckpt), "hf"));
}

/* eos_token_id, bos_token_id and pad_token_id of o. */
static int set_tokens(const struct export *ex, json_t *o, lf_err *err)
{
    const struct lf_convert_tokens *t = ex->o->tokens;
    json_t *ids = json_array();
    int bad = !ids;
    bool turn = t->turn_end >= 0;
    for (size_t i = 0; i < t->n_eos; i++)
        turn = turn && t->eos[i] != t->turn_end;
    if (turn)
        bad = bad || json_array_append_new(ids, json_integer(t->turn_end));
    for (size_t i = 0; i < t->n_eos; i++)
        bad = bad || json_array_append_new(ids, json_integer(t->eos[i]));
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_integer_value(json_array_get(ids, i)) >= ex->config.vocab) {
            int rc = lf_fail(err, LF_EINVAL, "end token %lld: the model's vocabulary ends at %lld",
                             (long long)json_integer_value(json_array_get(ids, i)),
                             (long long)ex->config.vocab - 1);
            json_decref(ids);
            return rc;
        }
    if (t->pad >= ex->config.vocab) {
        json_decref(ids);
        return lf_fail(err, LF_EINVAL, "pad_token = %lld, the model's vocabulary ends at %lld",
                       (long long)t->pad, (long long)ex->config.vocab - 1);
    }
    if (json_array_size(ids) > 0)
        bad = bad || json_object_set(o, "eos_token_id",
                                     json_array_size(ids) == 1 ? json_array_get(ids, 0) : ids);
    if (t->bos >= 0)
        bad = bad || json_object_set_new(o, "bos_token_id", json_integer(t->bos));
    if (t->pad >= 0)
        bad = bad || json_object_set_new(o, "pad_token_id", json_integer(t->pad));
    json_decref(ids);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* Where positions count from behind the token of padding, another one would be another model. */
static int check_pad(const struct export *ex, json_t *o, lf_err *err)
{
    lf_model_config back;
    if (!ex->config.position_offset || !json_is_integer(json_object_get(o, "pad_token_id")))
        return 0;
    const int rc = lf_hf_config_read(&back, ex->family, o, LF_HF_CONFIG, err);
    return rc != 0 || back.position_offset == ex->config.position_offset
               ? rc
               : lf_fail(err, LF_EINVAL,
                         "pad_token = %lld, but positions of family %s count from behind the token "
                         "of padding: [model] position_offset = %lld says that it is %lld",
                         (long long)json_integer_value(json_object_get(o, "pad_token_id")),
                         ex->family->name, (long long)ex->config.position_offset,
                         (long long)ex->config.position_offset - 1);
}

static int write_text(const struct export *ex, lf_artifact *a, const char *name, const char *text,
                      size_t n, lf_err *err)
{
    char *path = lf_path_join(ex->o->out, name, err);
    int rc = path ? lf_io_write_file(path, text, n, LF_ARTIFACT_MODE, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_artifact_add_hashed(a, ex->o->out, name, err);
    free(path);
    return rc;
}

static int write_json(const struct export *ex, lf_artifact *a, const char *name, json_t *o,
                      lf_err *err)
{
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS);
    int rc = text ? write_text(ex, a, name, text, strlen(text), err)
                  : lf_fail(err, LF_ENOMEM, "out of memory");
    free(text);
    return rc;
}

/* generation_config.json: that beside the tokenizer, or a new one, with the end tokens of this
 * model. */
static int write_generation(const struct export *ex, lf_artifact *a, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    json_t *o = ex->o->tokenizer ? lf_hf_read_json(ex->o->tokenizer, LF_HF_GENERATION, &why) : NULL;
    int rc =
        o || !ex->o->tokenizer || why.rc == LF_ENOENT ? 0 : lf_fail(err, why.rc, "%s", why.text);
    if (rc == 0 && !o && !(o = json_pack("{s:b}", "_from_model_config", true)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && lf_model_is_seq2seq(&ex->config) &&
        json_object_set_new(o, "decoder_start_token_id", json_integer(ex->config.decoder_start)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = set_tokens(ex, o, err);
    if (rc == 0)
        rc = write_json(ex, a, LF_HF_GENERATION, o, err);
    json_decref(o);
    return rc;
}

static const char *torch_name(const struct export *ex)
{
    for (size_t k = 0; k < ex->n; k++) /* of what is not quantised, as each class has some */
        if (!lf_quantised_has(&ex->quant, k))
            return lf_hf_torch_name(ex->decls[k].dtype);
    return lf_hf_torch_name(ex->n ? LF_ST_BF16 : LF_ST_F32);
}

/* How pictures are cut in tiles, which transformers reads in config.json too: once a model has been
 * trained only the file of its processor says it. */
static int add_pinpoints(const struct export *ex, json_t *o, lf_err *err)
{
    static const char key[] = "image_grid_pinpoints";
    static const char *const files[] = {"preprocessor_config.json", "processor_config.json"};
    if (strncmp(ex->family->model_type, "llava_", 6) != 0 || !ex->o->tokenizer)
        return 0;
    for (size_t i = 0; i < 2 && !json_object_get(o, key); i++) {
        lf_err why = LF_ERR_INIT;
        json_t *p = lf_hf_read_json(ex->o->tokenizer, files[i], &why),
               *in = json_object_get(p, "image_processor"), *v = json_object_get(in ? in : p, key);
        const int bad = v ? json_object_set(o, key, v) : 0;
        json_decref(p);
        if (bad)
            return lf_fail(err, LF_ENOMEM, "out of memory");
    }
    return 0;
}

/* Labels keep the names that they came in with. */
static int name_labels(const struct export *ex, json_t *o, lf_err *err)
{
    const int64_t n = lf_label_count(&ex->config);
    json_t *names = lf_label_names(lf_ckpt_state(ex->ckpt), n);
    const int rc = names ? lf_hf_write_labels(n, names, o, err) : 0;
    json_decref(names);
    return rc;
}

/* From the tables. Of a model that sees they leave out how its pictures are cut: while config.json
 * describes it, only the type of its weights is new. */
static json_t *make_config(struct export *ex, json_t *was, bool same, lf_err *err)
{
    const bool sees = ex->family->sight || ex->family->lone;
    json_t *o = sees && same ? json_copy(was)
                             : lf_hf_config_write(ex->family, &ex->config, torch_name(ex), err);
    int rc = o ? 0 : LF_EINVAL;
    if (rc == 0 && sees && same) {
        json_object_del(o, "torch_dtype");
        if (json_object_set_new(o, "dtype", json_string(torch_name(ex))))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
    } else if (rc == 0 && ex->family->sight) {
        rc = lf_hf_keep_sight(ex->family, &ex->config, o, was, err);
    }
    if (rc == 0 && add_inert(o, was))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = name_labels(ex, o, err);
    if (rc == 0 && ex->family->sight)
        rc = add_pinpoints(ex, o, err);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

static int set_quant(const struct export *ex, json_t *o, lf_err *err)
{
    json_object_del(o, LF_HF_QUANT);
    return ex->quant.config && json_object_set(o, LF_HF_QUANT, ex->quant.config)
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* As it was but for how weights are quantised. */
static int write_requantised(const struct export *ex, lf_artifact *a, json_t *was, lf_err *err)
{
    int rc = set_quant(ex, was, err);
    char *text = rc == 0 ? json_dumps(was, JSON_INDENT(2)) : NULL;
    if (rc == 0)
        rc = text ? write_text(ex, a, LF_HF_CONFIG, text, strlen(text), err)
                  : lf_fail(err, LF_ENOMEM, "out of memory");
    free(text);
    return rc;
}

/* config.json as it was where it still describes the model and its type. Training hands that of a
 * model that sees on, which then has what the tables lack. */
static int write_config(struct export *ex, lf_artifact *a, lf_err *err)
{
    const char *text = json_string_value(json_object_get(ex->hf, "config")),
               *kept = json_string_value(json_object_get(lf_ckpt_state(ex->ckpt), "hf_config")),
               *from = text                ? text
                       : ex->family->sight ? kept
                                           : NULL;
    json_t *was = from ? lf_hf_parse_json(from, strlen(from), LF_HF_CONFIG, NULL) : NULL, *o = NULL;
    const bool score = lf_model_reads_end(&ex->config),
               as_was = json_equal(json_object_get(was, LF_HF_QUANT), ex->quant.config) ||
                        (!json_object_get(was, LF_HF_QUANT) && !ex->quant.config);
    bool same = false;
    int rc = 0;
    if (was)
        (void)is_same_model(ex, was, &same);
    if (text && same && ex->o->dtype == LF_CONVERT_KEEP && !(score && ex->o->pad_token >= 0) &&
        !has_tokens(ex)) {
        rc = as_was ? write_text(ex, a, LF_HF_CONFIG, text, strlen(text), err)
                    : write_requantised(ex, a, was, err);
        goto out;
    }
    o = make_config(ex, was, same, err);
    rc = o ? set_quant(ex, o, err) : LF_EINVAL;
    if (rc == 0 && has_tokens(ex))
        rc = set_tokens(ex, o, err);
    if (rc == 0 && score)
        rc = add_score(ex, o, err);
    if (rc == 0)
        rc = check_pad(ex, o, err);
    if (rc == 0)
        rc = write_json(ex, a, LF_HF_CONFIG, o, err);
out:
    json_decref(o);
    json_decref(was);
    return rc;
}

/* A tokenizer that was made here has no tokenizer_config.json. */
static int write_tokenizer_config(const struct export *ex, lf_artifact *a, bool *ours, lf_err *err)
{
    if (!ex->o->names || ex->family->lone || !lf_artifact_find(a, "tokenizer.json") ||
        lf_artifact_find(a, LF_HF_TOKENIZER))
        return 0;
    json_t *o = lf_convert_tokenizer_config(ex->o->names, ex->config.max_positions, err);
    int rc = o ? write_json(ex, a, LF_HF_TOKENIZER, o, err) : LF_EFORMAT;
    *ours = true;
    json_decref(o);
    return rc;
}

/* ours: tokenizer_config.json was written here. */
static int write_card(const struct export *ex, lf_artifact *a, bool ours, lf_err *err)
{
    const char *tokenizer = ours                     ? LF_HF_TOKENIZER_CLASS
                            : lf_hf_has_tokenizer(a) ? "AutoTokenizer"
                                                     : NULL;
    char hex[LF_HASH_HEX];
    lf_buf b;
    lf_buf_init(&b);
    lf_hash_hex(hex, lf_ckpt_identity(ex->ckpt));
    struct lf_convert_card c = {.family = ex->family,
                                .config = &ex->config,
                                .state = lf_ckpt_state(ex->ckpt),
                                .identity = hex,
                                .dtype = torch_name(ex),
                                .tokenizer = tokenizer,
                                .ends = ours && ex->o->names->ends};
    for (size_t i = 0; i < ex->map.n_ours; i++)
        c.params += elements(ex->entries[i]);
    int rc = lf_convert_card_text(&b, &c, err);
    if (rc == 0)
        rc = write_text(ex, a, LF_HF_CARD, b.data, b.len, err);
    lf_buf_fini(&b);
    return rc;
}

/* How pictures are prepared, as the data of the training had it, where no file beside the tokenizer
 * says it. */
static int write_processor(const struct export *ex, lf_artifact *a, lf_err *err)
{
    static const char name[] = "preprocessor_config.json";
    const char *text = json_string_value(json_object_get(lf_ckpt_state(ex->ckpt), "processor"));
    return text && !lf_artifact_find(a, name) ? write_text(ex, a, name, text, strlen(text), err)
                                              : 0;
}

static int write_model(struct export *ex, struct lf_convert_result *res, lf_err *err)
{
    lf_artifact a = {0};
    char hex[LF_HASH_HEX];
    size_t n = 0;
    bool ours = false, ends = has_tokens(ex) && ex->config.output == LF_OUTPUT_TOKENS &&
                              !lf_model_is_dual(&ex->config);
    int rc = lf_artifact_init(&a, "model", err);
    if (rc == 0)
        rc = lf_hf_begin_dir(ex->o->out, err);
    if (rc == 0)
        rc = write_config(ex, &a, err);
    if (rc == 0 && ex->o->tokenizer)
        rc = lf_hf_copy_files(ex->o->tokenizer, ex->o->out, ends ? LF_HF_GENERATION : NULL, &a, &n,
                              err);
    if (rc == 0)
        rc = write_processor(ex, &a, err);
    if (rc == 0)
        rc = write_tokenizer_config(ex, &a, &ours, err);
    if (rc == 0 && ends)
        rc = write_generation(ex, &a, err);
    if (rc == 0)
        rc = write_card(ex, &a, ours, err);
    if (rc == 0)
        rc = write_weights(ex, &a, err);
    lf_hash_hex(hex, lf_ckpt_identity(ex->ckpt));
    if (rc == 0 && (json_object_set_new(a.meta, "family", json_string(ex->family->name)) ||
                    json_object_set_new(a.meta, "checkpoint_identity", json_string(hex))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_hf_finish_dir(&a, ex->o->out, err);
    for (size_t i = 0; i < a.n_files && rc == 0; i++)
        res->bytes += a.files[i].bytes;
    lf_artifact_fini(&a);
    return rc;
}

/* Is it a family of towers of pictures and texts? */
static bool has_towers(const struct lf_hf_family *f)
{
    for (const char *const *s = f->switches; s && *s; s++)
        if (lf_str_has_prefix(*s, "dual."))
            return true;
    return false;
}

/* Of an encoder that is a model of its own, nothing else of the checkpoint goes out. */
static int take_part(struct export *ex, lf_err *err)
{
    const struct lf_hf_lone *l = ex->family->lone;
    const char *family = lf_vision_families[ex->config.vision.family];
    if (takes_generator(ex)) {
        const lf_model_config of = ex->config;
        if (!of.generator_layers)
            return lf_fail(err, LF_EINVAL,
                           "parts = generator: no generator was trained with this model "
                           "(objective = electra of lf-pretrain)");
        lf_model_generator(&ex->config, &of);
    }
    lf_model_leave_generator(&ex->config);
    if (!l && lf_model_is_dual(&ex->config) && has_towers(ex->family))
        return 0;
    if (!l)
        return lf_model_need_text(&ex->config, err);
    if (!lf_hf_in_words(family, l->tower->families))
        return lf_fail(err, LF_EINVAL,
                       "family %s has encoders of vision.family = %s; that of this model is %s",
                       ex->family->name, l->tower->families, family);
    if (l->beside == LF_BESIDE_CLASSES &&
        !(lf_model_classifies(&ex->config) && ex->config.classes.read == l->reads))
        return lf_fail(err, LF_EINVAL,
                       "family %s tells classes of pictures (classes.labels, classes.read = %s), "
                       "which this model does not",
                       ex->family->name, lf_class_reads[l->reads]);
    if (l->beside == LF_BESIDE_RESTORING && !lf_model_restores(&ex->config))
        return lf_fail(err, LF_EINVAL,
                       "family %s has a decoder that restores pictures (mae.layers), which this "
                       "model has not",
                       ex->family->name);
    ex->config = lf_model_encoder_of(&ex->config, l->beside);
    if (l->beside == LF_BESIDE_CLASSES && strcmp(family, "vit-mae") == 0) { /* see families_vit.c */
        ex->config.vision.family = lf_vision_family_of("vit");
        ex->config.vision.fixed_positions = false;
    }
    return lf_model_config_finish(&ex->config, err);
}

static double decl_bytes(const lf_st_decl *d)
{
    double n = (double)lf_st_dtype_bytes(d->dtype);
    for (int k = 0; k < d->ndim; k++)
        n *= (double)d->shape[k];
    return n;
}

/* Some of the weights become 8-bit floats. */
static int quantise(struct export *ex, lf_err *err)
{
    const struct lf_quantised_opts how = {.ckpt = ex->ckpt,
                                          .map = &ex->map,
                                          .items = ex->items,
                                          .n_items = ex->n_items,
                                          .state = ex->quant_state,
                                          .o = ex->o};
    const int rc = lf_quantised_declare(&ex->quant, &how, &ex->decls, &ex->n, err);
    ex->total = 0;
    for (size_t k = 0; k < ex->n && rc == 0; k++)
        ex->total += decl_bytes(&ex->decls[k]);
    return rc;
}

static int prepare(struct export *ex, lf_err *err)
{
    int rc = lf_ckpt_open(&ex->ckpt, ex->o->from, ex->o->threads, err);
    if (rc == 0 && ex->o->averages)
        rc = lf_ckpt_averages(ex->ckpt, err);
    if (rc == 0)
        rc = lf_weights_config(&ex->config, ex->ckpt, err);
    if (rc == 0 && !(ex->family = lf_hf_family_for(&ex->config, ex->o->family, err)))
        rc = LF_EINVAL;
    if (rc == 0 && (rc = take_part(ex, err)) != 0)
        lf_err_prefix(err, "%s", ex->o->from);
    if (rc != 0)
        return rc;
    json_t *hf = json_object_get(lf_ckpt_state(ex->ckpt), "hf");
    const char *was = json_string_value(json_object_get(hf, "family"));
    if (was && strcmp(was, ex->family->name) == 0 && !takes_generator(ex))
        ex->hf = hf;
    struct lf_map_form form;
    rc = lf_hf_form(&form, ex->family, &ex->config, NULL, ex->hf, err);
    if (rc == 0)
        rc = lf_map_build(&ex->map, &form, &ex->config, err);
    if (rc != 0)
        return lf_err_prefix(err, "%s as family %s", ex->o->from, ex->family->name);
    ex->quant_state = lf_quantised_state(ex->ckpt, ex->family->name, ex->o);
    if (!(rc = find_entries(ex, err)))
        rc = declare_items(ex, err);
    return rc != 0 ? rc : quantise(ex, err);
}

/* What the bytes are a function of, besides names, types and shapes, which the writer adds. */
static int export_key(struct export *ex, lf_err *err)
{
    lf_buf b;
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, lf_ckpt_identity(ex->ckpt));
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s %s%s", ex->family->name, hex, takes_generator(ex) ? " generator" : "");
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, b.data, b.len, err);
    if (rc == 0)
        lf_hash_hex(ex->left.key, digest);
    lf_buf_fini(&b);
    return rc;
}

int lf_convert_export(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err)
{
    struct export ex = {.o = o};
    struct lf_convert_result r = {0};
    int rc = lf_convert_left_begin(&ex.left, o, err);
    if (rc == 0)
        rc = prepare(&ex, err);
    if (rc == 0)
        rc = export_key(&ex, err);
    if (rc == 0)
        rc = write_model(&ex, &r, err);
    if (rc == 0) {
        memcpy(r.identity, lf_ckpt_identity(ex.ckpt), sizeof r.identity);
        strncpy(r.family, ex.family->name, sizeof r.family - 1);
        r.tensors = (int64_t)ex.n;
        r.nonfinite = ex.nonfinite;
        r.reused = ex.reused;
        *res = r;
    }
    lf_quantised_fini(&ex.quant);
    free(ex.decls);
    free(ex.items);
    free(ex.entries);
    lf_map_fini(&ex.map);
    lf_ckpt_close(ex.ckpt);
    lf_convert_left_end(&ex.left);
    return rc;
}
