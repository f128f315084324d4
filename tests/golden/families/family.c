/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/golden/families/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

const char *const family_names[] = {"gpt2",
                                    "opt",
                                    "opt-350m",
                                    "galactica",
                                    "starcoder",
                                    "pythia",
                                    "gpt-neox",
                                    "gpt-j",
                                    "starcoder2",
                                    "phi2",
                                    "falcon-7b",
                                    "falcon-40b",
                                    "falcon-11b",
                                    "codegen",
                                    "bloom",
                                    "mpt",
                                    "llama",
                                    "llama-linear",
                                    "llama3.1",
                                    "llama3.2",
                                    "mistral",
                                    "qwen1",
                                    "qwen2",
                                    "qwen2.5",
                                    "qwen3",
                                    "internlm2",
                                    "phi3",
                                    "phi3-long",
                                    "phi3-short",
                                    "gemma",
                                    "gemma2",
                                    "gemma3",
                                    "gemma3n",
                                    "gemma4",
                                    "gemma4-moe",
                                    "gemma4-unified",
                                    "glm4-9b",
                                    "glm4-0414",
                                    "chatglm3",
                                    "baichuan-7b",
                                    "baichuan-13b",
                                    "baichuan2-7b",
                                    "baichuan2-13b",
                                    "chatglm-6b",
                                    "mixtral",
                                    "qwen2-moe",
                                    "qwen3-moe",
                                    "deepseek-moe",
                                    "deepseek-v2",
                                    "deepseek-v3",
                                    "gpt-j-tied",
                                    "llama-yarn",
                                    "qwen3-layers",
                                    "qwen3-moe-lists",
                                    "qwen2-moe-lists",
                                    "phi3-factor",
                                    "phi4-mini",
                                    "internlm3",
                                    "seed-oss",
                                    "ernie4.5",
                                    "ernie4.5-moe",
                                    "mimo",
                                    "glm4.5",
                                    "granite",
                                    "granite-moe",
                                    "cohere",
                                    "olmo2",
                                    "olmo3",
                                    "olmoe",
                                    "hunyuan",
                                    "hunyuan-moe",
                                    "minimax-m2",
                                    "gpt-oss",
                                    "nemotron",
                                    "ministral3",
                                    "smollm3",
                                    "cohere2",
                                    "exaone4",
                                    "qwen3-next",
                                    "qwen3.5",
                                    "qwen3.5-moe",
                                    "olmo",
                                    "nanochat",
                                    "olmo-hybrid",
                                    "kimi-linear",
                                    "minimax-text",
                                    "lfm2",
                                    "lfm2-bias",
                                    "lfm2-moe",
                                    "arcee",
                                    "apertus",
                                    "jais2",
                                    "helium",
                                    "ministral",
                                    "stablelm",
                                    "stablelm-parallel",
                                    "hyperclovax",
                                    "glm4.7-flash",
                                    "mistral4",
                                    "granite-moe-shared",
                                    "granite-swa",
                                    "granite-moe-swa",
                                    "trinity",
                                    "flint",
                                    "minicpm3",
                                    "biogpt",
                                    "gpt",
                                    "gpt-sw3",
                                    "aria-text",
                                    "mellum",
                                    "ernie",
                                    "data2vec-text",
                                    "megatron-bert",
                                    "roberta-prelayernorm",
                                    "xlm-roberta-xl",
                                    "flex-olmo",
                                    "gpt-neo",
                                    "iquestcoder",
                                    "cwm",
                                    "vaultgemma",
                                    "llama4",
                                    "youtu",
                                    "dots1",
                                    "solar-open",
                                    "hy3",
                                    "exaone-moe",
                                    "mamba2",
                                    "bamba",
                                    "granite4",
                                    "granite4-moe",
                                    "nemotron-h",
                                    "nemotron-h-moe",
                                    "nemotron-h-latent",
                                    "falcon-h1",
                                    "falcon-h1-norm",
                                    "bert",
                                    "roberta",
                                    "xlm-roberta",
                                    "distilbert",
                                    "electra",
                                    "modernbert",
                                    "t5",
                                    "t5-v1.1",
                                    "mt5",
                                    "umt5",
                                    "bart",
                                    NULL};

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

static const lf_st_entry *entry(const family *f, const lf_st *s, const char *name,
                                enum lf_st_dtype type, int64_t elems)
{
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->dtype != type || (elems && e->elems != elems))
        tap_bail("%s: expected.safetensors has no %s as it should be", f->name, name);
    return e;
}

static void read_f64(const family *f, const lf_st *s, const char *name, double *dst, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_st_read(s, entry(f, s, name, LF_ST_F64, n), 0, n, dst, &err))
        tap_bail("%s", err.text);
}

static int64_t *read_i64(const lf_st *s, const lf_st_entry *e)
{
    lf_err err = LF_ERR_INIT;
    int64_t *v = need(calloc((size_t)e->elems, sizeof *v));
    if (lf_st_read(s, e, 0, e->elems, v, &err))
        tap_bail("%s", err.text);
    return v;
}

/* The sources of an encoder-decoder. */
static void read_sources(family *f, const lf_st *s)
{
    const lf_st_entry *e = lf_st_find(s, "source_ids");
    if (!e)
        return;
    int64_t *ids = read_i64(s, e),
            *lengths = read_i64(s, entry(f, s, "source_lengths", LF_ST_I64, f->docs));
    f->source_rows = e->elems;
    f->source_tokens = need(calloc((size_t)f->source_rows, 4));
    f->source_positions = need(calloc((size_t)f->source_rows, 4));
    f->source_cu = need(calloc((size_t)f->docs + 1, 4));
    for (int64_t d = 0, row = 0; d < f->docs; d++) {
        for (int64_t i = 0; i < lengths[d]; i++, row++) {
            f->source_tokens[row] = (int32_t)ids[row];
            f->source_positions[row] = (int32_t)i;
        }
        f->source_cu[d + 1] = (int32_t)row;
    }
    free(ids);
    free(lengths);
}

static void read_documents(family *f, const lf_st *s)
{
    const lf_st_entry *e = entry(f, s, "input_ids", LF_ST_I64, 0);
    int64_t *ids = read_i64(s, e);
    f->docs = e->shape[0];
    f->length = e->shape[1];
    f->rows = e->elems;
    f->tokens = need(calloc((size_t)f->rows, 4));
    f->targets = need(calloc((size_t)f->rows, 4));
    f->positions = need(calloc((size_t)f->rows, 4));
    f->cu_seqlens = need(calloc((size_t)f->docs + 1, 4));
    for (int64_t i = 0; i < f->rows; i++) {
        f->tokens[i] = (int32_t)ids[i];
        f->positions[i] = (int32_t)(i % f->length);
        f->targets[i] = (i + 1) % f->length ? (int32_t)ids[i + 1] : -1;
    }
    for (int64_t d = 0; d <= f->docs; d++)
        f->cu_seqlens[d] = (int32_t)(d * f->length);
    free(ids);
    read_sources(f, s);
    if ((e = lf_st_find(s, "token_type_ids"))) {
        ids = read_i64(s, e);
        f->types = need(calloc((size_t)f->rows, 4));
        for (int64_t i = 0; i < f->rows; i++)
            f->types[i] = (int32_t)ids[i];
        free(ids);
    }
    if (!(e = lf_st_find(s, "prefix")))
        return;
    ids = read_i64(s, e);
    f->prefix = need(calloc((size_t)f->docs, 4));
    f->turns = need(calloc((size_t)f->rows, 4));
    f->blocks = need(calloc((size_t)f->rows, 4));
    for (int64_t d = 0; d < f->docs; d++)
        f->prefix[d] = (int32_t)ids[d];
    for (int64_t i = 0; i < f->rows; i++) {
        int32_t n = f->prefix[i / f->length];
        f->turns[i] = f->positions[i] < n ? f->positions[i] : n - 1;
        f->blocks[i] = f->positions[i] < n ? 0 : f->positions[i] - n + 1;
    }
    free(ids);
}

/* The gradients as a directory of their own: the family's config.json and its tensors' names. */
void family_describe(const family *f, const char *dir)
{
    static const char *const files[] = {"config.json", "added_tokens.json"};
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    for (int i = 0; i < 2; i++) {
        char *from = text(f->dir, files[i]), *to = text(dir, files[i]);
        if (lf_io_exists(from) && (lf_io_read_file(from, 1 << 20, &b, &err) ||
                                   lf_io_write_file(to, b.data, b.len, 0666, &err)))
            tap_bail("%s: %s", f->name, err.text);
        lf_buf_clear(&b);
        free(from);
        free(to);
    }
    lf_buf_fini(&b);
}

char *family_write_grads(const family *f, const lf_st *s)
{
    lf_err err = LF_ERR_INIT;
    char *dir = text(f->tmp, "grad");
    size_t n = 0;
    lf_st_decl *decl = need(calloc(lf_st_n_entries(s), sizeof *decl));
    lf_st_writer *w = NULL;
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (!lf_str_has_prefix(e->name, "grad."))
            continue;
        decl[n] =
            (lf_st_decl){.name = e->name + strlen("grad."), .dtype = e->dtype, .ndim = e->ndim};
        memcpy(decl[n++].shape, e->shape, sizeof e->shape);
    }
    if (mkdir(dir, 0777) == 0)
        family_describe(f, dir);
    if (lf_st_writer_create(&w, dir, decl, n, NULL, &err))
        tap_bail("%s: gradients: %s", f->name, err.text);
    for (size_t i; (i = lf_st_writer_next(w)) < n;) {
        char name[300];
        snprintf(name, sizeof name, "grad.%s", decl[i].name);
        const lf_st_entry *e = entry(f, s, name, LF_ST_F32, 0);
        float *v = need(malloc((size_t)e->bytes));
        if (lf_st_read(s, e, 0, e->elems, v, &err) ||
            lf_st_writer_put(w, v, (size_t)e->bytes, &err))
            tap_bail("%s: %s: %s", f->name, name, err.text);
        free(v);
    }
    if (lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s: gradients: %s", f->name, err.text);
    lf_st_writer_destroy(w);
    free(decl);
    return dir;
}

/* ---- import ---- */

static void warn(void *arg, const char *line)
{
    tap_diag("%s: %s", (const char *)arg, line);
}

lf_ckpt *family_import(const family *f, const char *from, const char *what)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    lf_ckpt *c = NULL;
    char *out = text(f->tmp, what);
    struct lf_convert_opts o = {
        .from = from, .out = out, .threads = 1, .warn = warn, .arg = f->name};
    if (lf_convert_import(&o, &res, &err) || lf_ckpt_open(&c, out, 1, &err))
        tap_bail("%s: import of %s: %s", f->name, from, err.text);
    free(out);
    return c;
}

void family_quiet(lf_model_config *c)
{
    static const char *const keys[] = {"embed_dropout", "attn_dropout", "mlp_dropout",
                                       "attn_prob_dropout", "router_aux"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        lf_model_config_set(c, keys[i], "0", "test", NULL);
}

family *family_open(const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const char *src = getenv("LF_SRCDIR"), *rms;
    family *f = need(calloc(1, sizeof *f));
    char *root = text(src ? src : ".", "tests/golden/families");
    f->name = need(strdup(name));
    f->dir = text(root, name);
    f->tmp = text(tap_tmpdir(), name);
    char *expected = text(f->dir, "expected.safetensors");
    if (mkdir(f->tmp, 0777) || lf_st_open(&s, expected, &err))
        tap_bail("%s: %s", name, err.text);
    read_documents(f, s);
    f->vocab = entry(f, s, "logits", LF_ST_F64, 0)->shape[2];
    f->logits = need(calloc((size_t)(f->rows * f->vocab), sizeof(double)));
    read_f64(f, s, "logits", f->logits, f->rows * f->vocab);
    read_f64(f, s, "loss", &f->loss, 1);
    read_f64(f, s, "train.loss", f->losses, FAMILY_STEPS);
    read_f64(f, s, "train.norm", f->norms, FAMILY_STEPS);
    if (!(rms = lf_st_meta(s, "bf16_rms")) || lf_parse_f64(&f->bf16_rms, rms, &err))
        tap_bail("%s: no bf16_rms", name);
    f->set[FAMILY_WEIGHTS] = family_import(f, f->dir, "checkpoint");
    char *grads = family_write_grads(f, s);
    f->set[FAMILY_GRADS] = family_import(f, grads, "gradients");
    if (lf_weights_config(&f->config, f->set[FAMILY_WEIGHTS], &err))
        tap_bail("%s: %s", name, err.text);
    family_quiet(&f->config);
    lf_st_close(s);
    free(grads);
    free(expected);
    free(root);
    return f;
}

void family_close(family *f)
{
    for (int i = 0; i < FAMILY_SETS; i++)
        lf_ckpt_close(f->set[i]);
    free(f->tokens);
    free(f->targets);
    free(f->positions);
    free(f->cu_seqlens);
    free(f->prefix);
    free(f->turns);
    free(f->blocks);
    free(f->types);
    free(f->source_tokens);
    free(f->source_positions);
    free(f->source_cu);
    free(f->logits);
    free(f->name);
    free(f->dir);
    free(f->tmp);
    free(f);
}

/* ---- tensors ---- */

int64_t family_elements(const struct lf_param_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->dims[i];
    return n;
}

int64_t family_columns(const struct lf_param_desc *d)
{
    return d->ndim > 1 ? d->dims[d->ndim - 1] : 1;
}

bool family_tensor(const family *f, int set, const char *name, float *dst, int64_t n, int64_t cols)
{
    char full[200];
    lf_err err = LF_ERR_INIT;
    snprintf(full, sizeof full, "%s%s", LF_WEIGHTS_PREFIX, name);
    const lf_ckpt_entry *e = lf_ckpt_find(f->set[set], full, "weight");
    if (!e)
        return false;
    int64_t have = 1;
    for (int i = 0; i < e->ndim; i++)
        have *= e->shape[i];
    if ((e->ndim > 1 ? e->shape[e->ndim - 1] : 1) != cols)
        return false;
    float *v = need(calloc((size_t)have, sizeof *v));
    if (e->dtype != LF_H5_F32 || lf_ckpt_read(f->set[set], e, NULL, NULL, v, &err))
        tap_bail("%s: %s: %s", f->name, name, err.text);
    memcpy(dst, v, (size_t)(have < n ? have : n) * sizeof *v);
    free(v);
    return have == n;
}

/* What the file lacks is drawn, and what it has of that stands at the front. */
static void draw(const family *f, const struct lf_param_desc *d, float *v, int64_t n)
{
    const uint32_t site = lf_name_site(d->name);
    for (int64_t e = 0; e < n; e++)
        v[e] = 0.3f * (float)lf_rng_normal(11, site, (uint64_t)e);
    family_tensor(f, FAMILY_WEIGHTS, d->name, v, n, family_columns(d));
}

int family_load(const family *f, lf_pstore *ps)
{
    int lacking = 0;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        int64_t n = family_elements(d);
        float *v = need(calloc((size_t)n, sizeof *v));
        lf_err err = LF_ERR_INIT;
        if (!family_tensor(f, FAMILY_WEIGHTS, d->name, v, n, family_columns(d))) {
            lacking++;
            draw(f, d, v, n);
        }
        if (lf_pstore_write(ps, i, LF_F32, v, &err))
            tap_bail("%s: %s", d->name, err.text);
        free(v);
    }
    return lacking;
}
