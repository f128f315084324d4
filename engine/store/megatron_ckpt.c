/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files a checkpoint has, what its arguments say, and its stages one after the other.
 */
#include "engine/store/megatron_ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/store/foreign.h"
#include "engine/store/megatron_ckpt_priv.h"

struct named {
    char *name;
    const struct lf_pv_tensor *t;
};

struct list {
    struct named *v;
    size_t n, cap;
};

struct reader {
    lf_st *s;
    char *dir; /* of the iteration */
    struct lf_mg_shape m;
    json_t *args;
    struct lf_torch
        *files; /* [pp * tp], stage by stage; all stay until the end: tensors point into them */
    int64_t layers_before; /* of earlier stages, without virtual stages */
    lf_err *err;
};

/* ---- directories ---- */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The directory of the iteration that the tracker names, or dir itself when it holds ranks. */
static int find_iteration(char **out, const char *dir, lf_err *err)
{
    char text[64], name[80];
    int64_t n = 0;
    char *tracker = lf_path_join(dir, LF_MEGATRON_CKPT_TRACKER, err);
    lf_buf b;
    lf_buf_init(&b);
    int rc = tracker ? 0 : LF_ENOMEM;
    if (rc == 0 && !lf_io_exists(tracker)) {
        *out = lf_strdup(dir, err);
        rc = *out ? 0 : LF_ENOMEM;
        goto out;
    }
    if (rc == 0)
        rc = lf_io_read_file(tracker, sizeof text - 1, &b, err);
    if (rc < 0)
        goto out;
    while (b.len && strchr(" \n\r\t", b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    if (strcmp(b.data, "release") == 0)
        snprintf(name, sizeof name, "release");
    else if (lf_parse_i64(&n, b.data, NULL) == 0 && n >= 0)
        snprintf(name, sizeof name, "iter_%07lld", (long long)n);
    else {
        rc = lf_fail(err, LF_EFORMAT, "%s holds \"%.50s\", neither a number nor \"release\"",
                     tracker, b.data);
        goto out;
    }
    *out = lf_path_join(dir, name, err);
    rc = *out ? 0 : LF_ENOMEM;
    if (rc == 0 && !is_dir(*out))
        rc = lf_fail(err, LF_ENOENT, "%s names %s, which is not there", tracker, name);
    if (rc < 0) {
        free(*out);
        *out = NULL;
    }
out:
    lf_buf_fini(&b);
    free(tracker);
    return rc;
}

static void rank_name(char *buf, size_t cap, int tp, int pp, bool has_pp)
{
    if (has_pp)
        snprintf(buf, cap, "mp_rank_%02d_%03d", tp, pp);
    else
        snprintf(buf, cap, "mp_rank_%02d", tp);
}

static bool has_rank(const char *dir, int tp, int pp, bool has_pp)
{
    char name[64];
    rank_name(name, sizeof name, tp, pp, has_pp);
    char *path = lf_path_join(dir, name, NULL);
    bool there = path && is_dir(path);
    free(path);
    return there;
}

/* How many ranks the directory has: mp_rank_00, 01, ... or mp_rank_00_000, ... */
static int count_ranks(struct reader *r, bool *has_pp)
{
    *has_pp = !has_rank(r->dir, 0, 0, false);
    if (has_rank(r->dir, 0, 0, false) && has_rank(r->dir, 0, 0, true))
        return lf_fail(r->err, LF_EFORMAT, "%s has both mp_rank_00 and mp_rank_00_000", r->dir);
    while (r->m.tp < LF_MG_MAX_TP && has_rank(r->dir, r->m.tp, 0, *has_pp))
        r->m.tp++;
    while (*has_pp && r->m.pp < LF_MG_MAX_PP && has_rank(r->dir, 0, r->m.pp, true))
        r->m.pp++;
    r->m.pp = *has_pp ? r->m.pp : 1;
    const int rc = r->m.tp ? 0 : lf_foreign_refuse(r->dir, r->err);
    if (rc == 0 && r->m.tp == 0)
        return lf_fail(r->err, LF_ENOENT,
                       "%s holds neither %s nor a directory mp_rank_00 or mp_rank_00_000", r->dir,
                       LF_MEGATRON_CKPT_TRACKER);
    return rc;
}

static int load_rank(struct reader *r, int tp, int pp, bool has_pp)
{
    char name[64];
    int rc = LF_ENOMEM, fd = -1;
    rank_name(name, sizeof name, tp, pp, has_pp);
    char *dir = lf_path_join(r->dir, name, r->err),
         *path = dir ? lf_path_join(dir, "model_optim_rng.pt", r->err) : NULL;
    if (!path)
        goto out;
    rc = fd = lf_st_open_file(dir, "model_optim_rng.pt", r->err);
    if (fd == LF_ENOENT && r->err)
        lf_err_prefix(r->err, "a checkpoint of %d tensor and %d pipeline ranks", r->m.tp, r->m.pp);
    if (fd >= 0)
        rc = lf_torch_load(&r->files[pp * r->m.tp + tp], r->s, fd, path, r->err);
    if (rc == 0 && lf_pickle_root(r->files[pp * r->m.tp + tp].pickle)->type != LF_PV_DICT)
        rc = lf_fail(r->err, LF_EFORMAT, "%s: its top object is no dictionary", path);
out:
    free(dir);
    free(path);
    return rc;
}

/* ---- arguments ---- */

static int64_t int_arg(const lf_pv *args, const char *key, int64_t otherwise)
{
    int64_t v;
    return lf_pv_i64(lf_pv_get(args, key), &v) ? v : otherwise;
}

static int read_args(struct reader *r, const lf_megatron_ckpt_options *o)
{
    const lf_pv *top = lf_pickle_root(r->files[0].pickle), *args = lf_pv_get(top, "args");
    const lf_pv *version = lf_pv_get(top, "checkpoint_version");
    const char *file = lf_st_file_at(r->s, 0);
    int64_t hidden = int_arg(args, "hidden_size", 0), n = 0;
    struct lf_mg_shape *m = &r->m;
    m->layers = int_arg(args, "num_layers", 0);
    m->heads = int_arg(args, "num_attention_heads", 0);
    m->groups = int_arg(args, "group_query_attention", 0)
                    ? int_arg(args, "num_query_groups", m->heads)
                    : m->heads;
    m->head_dim = int_arg(args, "kv_channels", m->heads > 0 ? hidden / m->heads : 0);
    m->gated = int_arg(args, "swiglu", 0) != 0 || int_arg(args, "gated_linear_unit", 0) != 0;
    m->tied = int_arg(args, "untie_embeddings_and_output_weights", 0) == 0;
    m->version = version && version->type == LF_PV_FLOAT ? version->u.f
                 : lf_pv_i64(version, &n)                ? (double)n
                                                         : 0;
    m->vocab_size = o ? o->vocab_size : 0;
    if (!args || args->type != LF_PV_DICT)
        return lf_fail(r->err, LF_EFORMAT,
                       "%s has no arguments (\"args\"): not a checkpoint of Megatron-LM", file);
    const int64_t most = (int64_t)1 << 24;
    if (m->layers < 1 || m->heads < 1 || m->groups < 1 || m->head_dim < 1 || m->layers > most ||
        m->heads > most || m->groups > m->heads || m->head_dim > most)
        return lf_fail(
            r->err, LF_EFORMAT,
            "%s: num_layers %lld, num_attention_heads %lld, num_query_groups %lld and head "
            "width %lld make no model",
            file, (long long)m->layers, (long long)m->heads, (long long)m->groups,
            (long long)m->head_dim);
    if (int_arg(args, "expert_model_parallel_size", 1) > 1)
        return lf_fail(
            r->err, LF_ENOTSUP,
            "%s: experts are divided over ranks (expert_model_parallel_size); save it with 1",
            file);
    if (int_arg(args, "tensor_model_parallel_size", m->tp) != m->tp ||
        int_arg(args, "pipeline_model_parallel_size", m->pp) != m->pp)
        return lf_fail(
            r->err, LF_EFORMAT,
            "%s: the arguments name %lld tensor and %lld pipeline ranks, the directory has %d "
            "and %d (a missing rank?)",
            file, (long long)int_arg(args, "tensor_model_parallel_size", m->tp),
            (long long)int_arg(args, "pipeline_model_parallel_size", m->pp), m->tp, m->pp);
    if (!(r->args = lf_mg_args(args, r->err)))
        return LF_ENOMEM;
    json_object_set_new(r->args, "checkpoint_version", json_real(m->version));
    json_object_set_new(r->args, "tensor_model_parallel_size", json_integer(m->tp));
    json_object_set_new(r->args, "pipeline_model_parallel_size", json_integer(m->pp));
    if (lf_pv_i64(lf_pv_get(top, "iteration"), &n))
        json_object_set_new(r->args, "iteration", json_integer(n));
    return 0;
}

/* ---- names ---- */

/* The number in "layers.N."; NULL when the name is outside of the layers. *rest: behind the
 * number. */
static const char *find_layer(const char *name, int64_t *n, const char **rest)
{
    static const char mark[] = "layers.";
    for (const char *p = name; (p = strstr(p, mark)); p++) {
        const char *d = p + sizeof mark - 1, *q = d;
        if (p > name && p[-1] != '.')
            continue;
        for (*n = 0; *q >= '0' && *q <= '9' && q - d < 9; q++)
            *n = *n * 10 + (*q - '0');
        if (q > d && *q == '.') {
            *rest = q;
            return d;
        }
    }
    return NULL;
}

static int collect(void *user, const char *name, const struct lf_pv_tensor *t, lf_err *err)
{
    struct list *l = user;
    if (lf_str_has_suffix(name, "_extra_state")) /* scaling factors of Transformer Engine */
        return 0;
    int rc = lf_grow(&l->v, &l->cap, l->n, sizeof *l->v, err);
    char *copy = rc == 0 ? lf_strdup(name, err) : NULL;
    if (!copy)
        return rc < 0 ? rc : LF_ENOMEM;
    l->v[l->n++] = (struct named){copy, t};
    return 0;
}

static int named_cmp(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static void list_fini(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].name);
    free(l->v);
}

/* Tensors of chunk `key` ("model", "model0", ...) of one file, sorted by name. */
static int list_chunk(struct list *l, const struct lf_torch *f, const char *key, const char *file,
                      lf_err *err)
{
    const lf_pv *model = lf_pv_get(lf_pickle_root(f->pickle), key);
    if (!model)
        return lf_fail(err, LF_EFORMAT, "%.400s has no \"%s\"", file, key);
    int rc = lf_torch_walk(model, collect, l, NULL, err);
    if (rc < 0)
        return lf_err_prefix(err, "%.400s: %s", file, key);
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, named_cmp);
    return 0;
}

/* ---- stages ---- */

/* The name with its layer counted from the first stage. */
static int whole_name(lf_buf *out, const char *name, int64_t offset, lf_err *err)
{
    int64_t n = 0;
    const char *rest = NULL, *digits = find_layer(name, &n, &rest);
    lf_buf_clear(out);
    if (digits) {
        lf_buf_add(out, name, (size_t)(digits - name));
        lf_buf_addf(out, "%lld%s", (long long)(n + offset), rest);
    } else {
        lf_buf_adds(out, name);
    }
    return lf_buf_check(out, err);
}

static int64_t count_layers(const struct list *l)
{
    int64_t most = 0, n = 0;
    const char *rest;
    for (size_t i = 0; i < l->n; i++)
        if (find_layer(l->v[i].name, &n, &rest) && n + 1 > most)
            most = n + 1;
    return most;
}

static bool is_embedding(const char *name)
{
    return lf_str_has_suffix(name, "word_embeddings.weight");
}

static bool is_head(const char *name)
{
    return lf_str_has_suffix(name, "output_layer.weight") ||
           lf_str_has_suffix(name, "word_embeddings_for_head.weight") ||
           lf_str_has_suffix(name, "lm_head.weight");
}

/* Chunk `key` of stage pp, whose first layer is layer `offset` of the model. */
static int add_chunk(struct reader *r, struct list *lists, int64_t offset)
{
    const struct lf_pv_tensor *shards[LF_MG_MAX_TP];
    lf_buf name;
    int rc = 0;
    lf_buf_init(&name);
    for (size_t i = 0; i < lists[0].n && rc == 0; i++) {
        for (int t = 0; t < r->m.tp && rc == 0; t++) {
            if (lists[t].n != lists[0].n || strcmp(lists[t].v[i].name, lists[0].v[i].name) != 0)
                rc = lf_fail(r->err, LF_EFORMAT,
                             "%s: tensor rank %d has other tensors than rank 0, near %.200s",
                             r->dir, t, lists[0].v[i].name);
            else
                shards[t] = lists[t].v[i].t;
        }
        if (rc == 0)
            rc = whole_name(&name, lists[0].v[i].name, offset, r->err);
        if (rc == 0)
            rc = lf_mg_merge(r->s, name.data, shards, &r->m, r->err);
    }
    lf_buf_fini(&name);
    return rc;
}

static int add_stage_chunk(struct reader *r, int pp, int chunk, int chunks)
{
    struct list lists[LF_MG_MAX_TP] = {{0}};
    char key[32] = "model";
    int rc = 0;
    if (chunks > 1)
        snprintf(key, sizeof key, "model%d", chunk);
    for (int t = 0; t < r->m.tp && rc == 0; t++) {
        size_t f = (size_t)(pp * r->m.tp + t);
        rc = list_chunk(&lists[t], &r->files[f], key, lf_st_file_at(r->s, f), r->err);
    }
    if (rc == 0) {
        int64_t n = count_layers(&lists[0]), each = r->m.layers / r->m.pp / chunks;
        int64_t offset =
            chunks > 1 ? (int64_t)chunk * r->m.pp * each + pp * each : r->layers_before;
        if (chunks > 1 && n != each)
            rc = lf_fail(
                r->err, LF_ENOTSUP,
                "%s: chunk %d of stage %d has %lld layers, not %lld; virtual stages of unequal "
                "length are not read",
                r->dir, chunk, pp, (long long)n, (long long)each);
        else
            rc = add_chunk(r, lists, offset);
        r->layers_before += n;
    }
    for (int t = 0; t < r->m.tp; t++)
        list_fini(&lists[t]);
    return rc;
}

static int count_chunks(const struct reader *r)
{
    char key[32];
    int n = 0;
    const lf_pv *top = lf_pickle_root(r->files[0].pickle);
    if (lf_pv_get(top, "model"))
        return 1;
    do
        snprintf(key, sizeof key, "model%d", n);
    while (lf_pv_get(top, key) && ++n < 1000);
    return n;
}

static int add_stages(struct reader *r)
{
    int chunks = count_chunks(r), rc = 0;
    if (chunks == 0)
        return lf_fail(r->err, LF_EFORMAT, "%s has neither \"model\" nor \"model0\"",
                       lf_st_file_at(r->s, 0));
    for (int pp = 0; pp < r->m.pp && rc == 0; pp++)
        for (int c = 0; c < chunks && rc == 0; c++)
            rc = add_stage_chunk(r, pp, c, chunks);
    if (rc == 0 && r->layers_before != r->m.layers)
        rc = lf_fail(r->err, LF_EFORMAT, "%s: the files hold %lld layers, num_layers is %lld",
                     r->dir, (long long)r->layers_before, (long long)r->m.layers);
    return rc;
}

/* ---- tied weights ---- */

/* Blocks of two tensors of the set. */
static int same_values(const lf_st *s, const lf_st_entry *a, const lf_st_entry *b, lf_err *err)
{
    int64_t elem = (int64_t)lf_st_dtype_bytes(a->dtype), step = ((int64_t)1 << 20) / elem;
    bool like = a->dtype == b->dtype && a->ndim == b->ndim &&
                memcmp(a->shape, b->shape, sizeof a->shape) == 0;
    unsigned char *buf = like ? lf_malloc((size_t)(2 * step * elem), 1, err) : NULL;
    int rc = like && !buf ? LF_ENOMEM : 0;
    for (int64_t at = 0; rc == 0 && like && at < a->elems; at += step) {
        int64_t n = a->elems - at < step ? a->elems - at : step;
        rc = lf_st_read(s, a, at, n, buf, err);
        if (rc == 0)
            rc = lf_st_read(s, b, at, n, buf + step * elem, err);
        like = rc == 0 && memcmp(buf, buf + step * elem, (size_t)(n * elem)) == 0;
    }
    free(buf);
    if (rc == 0 && !like)
        rc = lf_fail(err, LF_EFORMAT,
                     "tensors %.200s and %.200s should be the same (tied embeddings) and are not",
                     a->name, b->name);
    return rc;
}

/* After sealing: the head of the last stage is a copy of the embeddings of the first. */
static int tie_head(struct reader *r)
{
    size_t n = r->s->n_recs, embed = n, head = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = r->s->recs[i].e.name;
        embed = is_embedding(name) ? i : embed;
        head = is_head(name) ? i : head;
    }
    if (!r->m.tied || embed == n || head == n)
        return 0;
    int rc = same_values(r->s, &r->s->recs[embed].e, &r->s->recs[head].e, r->err);
    if (rc == 0 && embed < head)
        r->s->recs[head].e.alias_of = (int)embed;
    else if (rc == 0)
        r->s->recs[embed].e.alias_of = (int)head;
    return rc;
}

/* ---- open ---- */

static int read_all(struct reader *r, const char *dir, const lf_megatron_ckpt_options *o)
{
    bool has_pp = false;
    int rc = find_iteration(&r->dir, dir, r->err);
    if (rc == 0)
        rc = count_ranks(r, &has_pp);
    if (rc < 0)
        return rc;
    size_t n = (size_t)r->m.tp * (size_t)r->m.pp;
    if (!(r->files = lf_calloc(n, sizeof *r->files, r->err)))
        return LF_ENOMEM;
    for (int pp = 0; pp < r->m.pp && rc == 0; pp++)
        for (int tp = 0; tp < r->m.tp && rc == 0; tp++) {
            rc = load_rank(r, tp, pp, has_pp);
            if (rc == 0 && pp == 0 && tp == 0)
                rc = read_args(r, o);
        }
    if (rc == 0)
        rc = add_stages(r);
    if (rc == 0)
        rc = lf_st_seal(r->s, r->err);
    return rc < 0 ? rc : tie_head(r);
}

int lf_megatron_ckpt_open(lf_st **out, json_t **args, const char *dir,
                          const lf_megatron_ckpt_options *o, lf_err *err)
{
    lf_err own = LF_ERR_INIT;
    struct reader r = {.err = &own};
    r.s = lf_st_create(&own);
    int rc = r.s ? read_all(&r, dir, o) : LF_ENOMEM;
    for (int i = 0; r.files && i < r.m.tp * r.m.pp; i++)
        lf_torch_fini(&r.files[i]);
    free(r.files);
    free(r.dir);
    if (rc < 0) {
        lf_st_close(r.s);
        json_decref(r.args);
        return lf_fail(err, rc, "%s", own.text);
    }
    *out = r.s;
    if (args)
        *args = r.args;
    else
        json_decref(r.args);
    return 0;
}
