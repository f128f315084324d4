/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a golden directory of a model that sees, and running it. */
#include "tests/golden/vlm/vlm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/str.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

const char *const vlm_names[] = {"llava",           "llava-full",
                                 "llava-layers",    "vipllava",
                                 "llava-siglip",    "llava-next",
                                 "llava-onevision", "qwen2-vl",
                                 "qwen2.5-vl",      "qwen3-vl",
                                 "internvl",        "internvl-rms",
                                 "internvl-chat",   "internvl-chat-internlm2",
                                 "paligemma",       "paligemma2",
                                 "qwen3-vl-moe",    "idefics3",
                                 "pixtral",         "mistral3",
                                 "gemma3",          "qwen3.5-vl",
                                 "qwen3.5-vl-moe",  NULL};

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

static char *text(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *s = need(malloc(n));
    snprintf(s, n, "%s/%s", a, b);
    return s;
}

/* ---- expected.safetensors ---- */

static const lf_st_entry *entry(const vlm *v, const lf_st *s, const char *name,
                                enum lf_st_dtype type)
{
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->dtype != type)
        tap_bail("%s: expected.safetensors has no %s as it should be", v->f.name, name);
    return e;
}

static void *read_all(const vlm *v, const lf_st *s, const char *name, enum lf_st_dtype type)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = entry(v, s, name, type);
    void *p = need(malloc((size_t)e->bytes + 8));
    if (lf_st_read(s, e, 0, e->elems, p, &err))
        tap_bail("%s: %s", v->f.name, err.text);
    return p;
}

/* NULL where the file has none. */
static int32_t *read_i32(const vlm *v, const lf_st *s, const char *name, int64_t *n)
{
    if (!lf_st_find(s, name))
        return NULL;
    int64_t *wide = read_all(v, s, name, LF_ST_I64), k = lf_st_find(s, name)->elems;
    int32_t *out = need(calloc((size_t)k, 4));
    for (int64_t i = 0; i < k; i++)
        out[i] = (int32_t)wide[i];
    free(wide);
    *n = k;
    return out;
}

static void read_documents(vlm *v, const lf_st *s)
{
    family *f = &v->f;
    int64_t n = 0;
    f->tokens = need(read_i32(v, s, "input_ids", &f->rows));
    f->targets = need(read_i32(v, s, "targets", &n));
    f->cu_seqlens = need(read_i32(v, s, "cu_seqlens", &f->docs));
    f->prefix = read_i32(v, s, "prefix", &n);
    f->docs--;
    f->positions = need(calloc((size_t)f->rows, 4));
    for (int64_t d = 0; d < f->docs; d++) {
        const int32_t from = f->cu_seqlens[d], to = f->cu_seqlens[d + 1];
        for (int32_t r = from; r < to; r++)
            f->positions[r] = r - from;
        f->length = to - from > f->length ? to - from : f->length;
    }
    for (int64_t r = 0; r < f->rows; r++)
        v->trained += f->targets[r] >= 0;
    f->vocab = entry(v, s, "logits", LF_ST_F64)->shape[1];
    f->logits = read_all(v, s, "logits", LF_ST_F64);
    double *loss = read_all(v, s, "loss", LF_ST_F64);
    f->loss = *loss;
    free(loss);
}

static void check_prefix(const vlm *v)
{
    const family *f = &v->f;
    int32_t *found = need(calloc((size_t)f->docs, 4));
    lf_decoder_prefixes(f->targets, f->cu_seqlens, f->docs, f->config.prefix_last, found);
    for (int64_t d = 0; f->prefix && d < f->docs; d++)
        if (f->prefix[d] != found[d])
            tap_bail("%s: document %lld: the prefix is not what targets say", f->name,
                     (long long)d);
    free(found);
}

static void read_pictures(vlm *v, const lf_st *s)
{
    int64_t n = 0, k = 0;
    int32_t *tiles = need(read_i32(v, s, "tiles", &n)),
            *pictures = need(read_i32(v, s, "pictures", &k)),
            *merge = need(read_i32(v, s, "merge", &n));
    n = lf_st_find(s, "tiles")->shape[0];
    k /= 6;
    const lf_st_entry *e = entry(v, s, "pixels", LF_ST_F32);
    v->patches = e->shape[0];
    v->patch_dim = e->shape[1];
    v->pixels = read_all(v, s, "pixels", LF_ST_F32);
    v->tile = need(calloc((size_t)n, sizeof *v->tile));
    v->picture = need(calloc((size_t)k, sizeof *v->picture));
    for (int64_t i = 0; i < n; i++)
        v->tile[i] = (struct lf_sight_tile){tiles[2 * i], tiles[2 * i + 1]};
    for (int64_t i = 0; i < k; i++) {
        const int32_t *p = pictures + 6 * i;
        v->picture[i] = (struct lf_sight_picture){p[0], p[1], p[2], p[3], p[4], p[5]};
    }
    v->batch = (struct lf_sight_batch){.n_tiles = (int32_t)n,
                                       .n_pictures = (int32_t)k,
                                       .tile = v->tile,
                                       .picture = v->picture,
                                       .merge = merge[0],
                                       .rows = v->f.rows,
                                       .tokens = v->f.tokens,
                                       .positions = v->f.positions};
    free(tiles);
    free(pictures);
    free(merge);
}

vlm *vlm_open(const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const char *src = getenv("LF_SRCDIR"), *rms;
    vlm *v = need(calloc(1, sizeof *v));
    family *f = &v->f;
    char *root = text(src ? src : ".", "tests/golden/vlm");
    f->name = need(strdup(name));
    f->dir = text(root, name);
    f->tmp = text(tap_tmpdir(), name);
    char *expected = text(f->dir, "expected.safetensors");
    if (mkdir(f->tmp, 0777) || lf_st_open(&s, expected, &err))
        tap_bail("%s: %s", name, err.text);
    read_documents(v, s);
    read_pictures(v, s);
    if (!(rms = lf_st_meta(s, "bf16_rms")) || lf_parse_f64(&f->bf16_rms, rms, &err))
        tap_bail("%s: no bf16_rms", name);
    f->set[FAMILY_WEIGHTS] = family_import(f, f->dir, "checkpoint");
    char *grads = family_write_grads(f, s);
    f->set[FAMILY_GRADS] = family_import(f, grads, "gradients");
    if (lf_weights_config(&f->config, f->set[FAMILY_WEIGHTS], &err))
        tap_bail("%s: %s", name, err.text);
    check_prefix(v);
    lf_st_close(s);
    free(grads);
    free(expected);
    free(root);
    return v;
}

void vlm_close(vlm *v)
{
    family *f = &v->f;
    for (int i = 0; i < FAMILY_SETS; i++)
        lf_ckpt_close(f->set[i]);
    free(f->tokens);
    free(f->targets);
    free(f->positions);
    free(f->cu_seqlens);
    free(f->prefix);
    free(f->logits);
    free(f->name);
    free(f->dir);
    free(f->tmp);
    free(v->pixels);
    free(v->tile);
    free(v->picture);
    free(v);
}

/* ---- the engine ---- */

static int add_chain(vlm_rig *r, int *chain, lf_graph *graph, bool train, lf_err *err)
{
    if (!graph)
        return err->rc;
    *chain = lf_plan_add(r->plan, graph, &(struct lf_chain_opts){.train = train, .eras = 1 + train},
                         err);
    lf_graph_destroy(graph);
    return *chain < 0 ? *chain : 0;
}

static int plan(vlm_rig *r, const vlm *v, bool train, lf_err *err)
{
    static const struct lf_adamw_opts adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    struct lf_decoder_rows rows = {
        .rows = v->f.rows, .n_docs = v->f.docs, .max_doc = v->f.length, .media = &r->media};
    int rc = lf_decoder_declare(r->dec, r->ps, err);
    if (rc)
        return rc;
    rc = add_chain(r, &r->logits, lf_decoder_logits_graph(r->dec, r->ps, "logits", &rows, err),
                   false, err);
    if (!rc && train) {
        rc = add_chain(r, &r->loss, lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, err),
                       true, err);
        rc = rc ? rc : lf_plan_optimizer(r->plan, &adam, err);
    }
    return rc ? rc : lf_plan_finish(r->plan, err);
}

/* Room for a tile more, so that what is left over is there too. */
static int see(vlm_rig *r, const vlm *v, const lf_model_config *c, lf_err *err)
{
    const int64_t K = c->vision.patch_dim;
    r->media = lf_sight_bounds(c, v->patches + 4, v->batch.n_tiles + 1, v->f.rows);
    if (!(r->sight = lf_sight_create(c, &r->media, v->f.rows, err)))
        return err->rc;
    int rc = lf_sight_fill(r->sight, &v->batch, err);
    if (rc)
        return rc;
    if (K != v->patch_dim)
        return lf_fail(err, LF_EINVAL, "patches of another size");
    r->rows = need(calloc((size_t)(r->media.vision.patches * K), sizeof *r->rows));
    const int32_t *order = lf_sight_patch_order(r->sight);
    for (int64_t p = 0; p < v->patches; p++)
        memcpy(r->rows + p * K, v->pixels + order[p] * K, (size_t)K * sizeof *r->rows);
    return 0;
}

int vlm_rig_open(vlm_rig *r, const vlm *v, const lf_model_config *c, enum lf_dtype compute,
                 bool train, lf_err *err)
{
    struct lf_plan_opts po = {.threads = 1, .compute = compute, .mode = LF_INVARIANT};
    *r = (vlm_rig){.loss = -1};
    if (see(r, v, c, err) || !(r->dec = lf_decoder_create(c, v->f.length, err)) ||
        !(r->ps = lf_pstore_create(err)) || !(r->plan = lf_plan_create(r->ps, &po, err)) ||
        plan(r, v, train, err) || !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, err))) {
        vlm_rig_close(r);
        return err->rc;
    }
    return 0;
}

void vlm_rig_close(vlm_rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
    lf_sight_destroy(r->sight);
    free(r->rows);
}

static void put(const vlm_rig *r, int chain, const char *name, const void *data, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, chain, 0, name, data, (size_t)n * 4, &err))
        tap_bail("input %s: %s", name, err.text);
}

static void feed(const vlm_rig *r, int chain, const vlm *v)
{
    const lf_model_config *c = lf_decoder_config(r->dec);
    const family *f = &v->f;
    lf_err err = LF_ERR_INIT;
    put(r, chain, "tokens", lf_sight_token_rows(r->sight), f->rows);
    put(r, chain, "positions", f->positions, f->rows);
    put(r, chain, "cu_seqlens", f->cu_seqlens, f->docs + 1);
    if (c->mask == LF_MASK_PREFIX)
        put(r, chain, "prefix", f->prefix, f->docs);
    put(r, chain, "vision.pixels", r->rows, r->media.vision.patches * c->vision.patch_dim);
    if (lf_sight_write(r->sight, r->ex, chain, 0, &err) ||
        lf_sight_write_rows(r->sight, r->ex, chain, 0, &err))
        tap_bail("sight: %s", err.text);
    if (chain == r->loss)
        put(r, chain, "targets", f->targets, f->rows);
}

static void run(const vlm_rig *r, int chain, enum lf_segment seg)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(r->ex, chain, seg, 0, LF_FIRST, &err))
        tap_bail("run: %s", err.text);
}

void vlm_logits(const vlm_rig *r, const vlm *v, float *out)
{
    lf_err err = LF_ERR_INIT;
    feed(r, r->logits, v);
    run(r, r->logits, LF_FWD);
    if (lf_exec_read(r->ex, r->logits, 0, "logits", out, (size_t)(v->f.rows * v->f.vocab) * 4,
                     &err))
        tap_bail("logits: %s", err.text);
    lf_decoder_softcap(lf_decoder_config(r->dec), out, v->f.rows * v->f.vocab);
}

double vlm_step(const vlm_rig *r, const vlm *v)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.lr = 1e-3f,
                                 .bias_corr1 = 1,
                                 .bias_corr2 = 1,
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = 1.0f / (float)v->trained};
    feed(r, r->loss, v);
    if (lf_exec_record_write(r->ex, &rec, &err))
        tap_bail("record: %s", err.text);
    run(r, r->loss, LF_FWD);
    run(r, r->loss, LF_BWD);
    if (lf_exec_record_read(r->ex, &rec, &err) || rec.tokens != v->trained)
        tap_bail("%s: %lld trained tokens, not %lld %s", v->f.name, (long long)rec.tokens,
                 (long long)v->trained, err.text);
    return rec.loss_sum / (double)rec.tokens;
}
