/* SPDX-License-Identifier: Apache-2.0
 *
 * What is exported after training, for every golden family and every switch of its description:
 * each config.json has the types that the reference's class takes (exports.json), names every
 * special token and says null where nothing is meant; whole exports, of language models and of
 * reward models, are imported again with the same bytes.
 *
 *     exports_test make DIR      keeps a checkpoint and its export for every switch:
 * check_exports.py exports_test verify DIR    holds each checkpoint to the logits that it wrote
 * beside
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/convert/priv.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"
#include "tests/unit/infer_ckpt.h"

#define STEPS 2
#define PAD   3 /* of reward models */

/* Switches that move no logit, or that only an export can get wrong; the others are those of
 * family_flips.c. */
static const char *const more[] = {
    "router_aux=0.01",
    "router_aux=1",
    "embed_dropout=0.1",
    "attn_dropout=0.1 mlp_dropout=0.1",
    "attn_prob_dropout=0.1",
    "embed_dropout=0.1 attn_dropout=0.1 mlp_dropout=0.1",
    "init_std=1",
    "init_std=0",
    "rope_theta=12345.5",
    "rope_local_theta=12345.5",
    "rope_scaling=dynamic rope_factor=2 rope_original_positions=32",
    "rope_scaling=yarn rope_factor=2 rope_original_positions=16",
    "rope_scaling=yarn rope_factor=2 rope_original_positions=16 rope_beta_fast=16 "
    "rope_beta_slow=2 rope_attn_factor=1.25",
    "rope_scaling=llama3 rope_factor=2 rope_original_positions=16",
    "qkv_bias! out_bias!",
    "qkv_bias! out_bias! mlp_bias!",
    "kv_heads=2",
    "head_dim=10",
    "sliding_window=8 layer_mixers=wwf*",
    "sliding_window=8 layer_mixers=f,w*",
    "sliding_window=0",
    "sliding_window=0 layer_mixers= rope_local_theta=0",
    "sliding_window=8 layer_mixers=",
    "attn_softcap=0 logit_softcap=0",
    "attn_softcap=20 logit_softcap=7",
    "layer_mlps=dm*",
    NULL};

static json_t *types; /* exports.json */

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

static char *join(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *s = need(malloc(n));
    snprintf(s, n, "%s/%s", a, b);
    return s;
}

static json_t *load(const char *dir, const char *name)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = lf_hf_read_json(dir, name, &err);
    if (!o)
        tap_bail("%s", err.text);
    return o;
}

/* ---- config.json ---- */

static const char *type_of(const json_t *v)
{
    static const char *const names[] = {"dict",  "list", "str",  "int",
                                        "float", "bool", "bool", "null"};
    return names[json_typeof(v)];
}

static bool takes(json_t *kinds, const char *kind)
{
    size_t i;
    json_t *v;
    json_array_foreach(kinds, i, v) if (strcmp(json_string_value(v), kind) == 0) return true;
    return false;
}

/* Where null is none, 0 is not: a window of no token, a division by 0. Of these keys 0 is none, or
 * a spread without any. */
static bool is_zero_for_null(const char *key, json_t *kinds, const json_t *v)
{
    static const char *const counts[] = {"router_aux_loss_coef",
                                         "moe_layer_start_index",
                                         "moe_num_shared_experts",
                                         "num_local_experts",
                                         "n_routed_experts",
                                         "num_dense_layers",
                                         "init_std"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(key, counts[i]) == 0)
            return false;
    bool zero = json_is_number(v) && !(json_number_value(v) > 0);
    return zero && takes(kinds, "null") && !lf_str_has_suffix(key, "_token_id") &&
           !strstr(key, "dropout") && strcmp(key, "first_k_dense_replace") != 0;
}

/* How many members of config.json the reference would not take; each is told. Of families without a
 * class in transformers nothing is known. */
static int bad_members(const char *what, json_t *o)
{
    static const char *const tokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *of = json_object_get(types, json_string_value(json_object_get(o, "model_type"))), *v,
           *kinds;
    const char *key;
    int bad = 0;
    json_object_foreach(o, key, v)
    {
        if (!(kinds = json_object_get(of, key)))
            continue;
        bool wrong = !takes(kinds, type_of(v)), zero = is_zero_for_null(key, kinds, v);
        bad += wrong || zero;
        if (wrong || zero)
            tap_diag("%s: %s is %s%s", what, key, zero ? "0, not null, of type " : "of type ",
                     type_of(v));
    }
    for (size_t i = 0; of && i < sizeof tokens / sizeof *tokens; i++) {
        bool there = json_object_get(o, tokens[i]) != NULL;
        bad += !there;
        if (!there)
            tap_diag("%s: no %s: the class has a token of its own for it", what, tokens[i]);
    }
    return bad;
}

/* Every member of rope_scaling that is no count is written as a real. */
static int bad_rope(const char *what, json_t *o)
{
    json_t *s = json_object_get(o, "rope_scaling"), *v;
    const char *key;
    int bad = 0;
    json_object_foreach(s, key, v)
    {
        bool count = lf_str_has_suffix(key, "position_embeddings");
        bool wrong = json_is_number(v) && (count ? !json_is_integer(v) : !json_is_real(v));
        bad += wrong;
        if (wrong)
            tap_diag("%s: rope_scaling.%s is of type %s", what, key, type_of(v));
    }
    return bad;
}

static const struct lf_hf_family *form_of(const family *f)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_hf_family *hf = lf_hf_family_for(&f->config, NULL, &err);
    if (!hf)
        tap_bail("%s: %s", f->name, err.text);
    return hf;
}

/* 1: written; 0: the family has no place for it, which is said. */
static int try_config(const family *f, const char *set, const lf_model_config *c, int *bad)
{
    lf_err err = LF_ERR_INIT;
    char what[300];
    snprintf(what, sizeof what, "%s: %s", f->name, set);
    json_t *o = lf_hf_config_write(form_of(f), c, "float32", &err);
    if (!o)
        return 0;
    *bad += bad_members(what, o) + bad_rope(what, o);
    json_decref(o);
    return 1;
}

/* ---- whole exports ---- */

struct trained {
    rig r;
};

/* Our tensors after a few steps; what was not trained with this description is drawn. */
static void fill(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows, int64_t cols)
{
    const struct trained *t = arg;
    lf_err err = LF_ERR_INIT;
    uint64_t seed = 5;
    int i = lf_pstore_find(t->r.ps, d->name);
    if (i < 0)
        infer_ckpt_hot(&seed, d, dst, rows, cols);
    else if (lf_pstore_read(t->r.ps, i, LF_P_MASTER, dst, (size_t)(rows * cols) * 4, &err))
        tap_bail("%s: %s", d->name, err.text);
}

/* A checkpoint in dir that was trained here: nothing in it tells of an import. false: such a model
 * cannot be. */
static bool make_checkpoint(const family *f, const lf_model_config *c, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    struct trained t;
    lf_model_config quiet = *c;
    family_quiet(&quiet);
    lf_model_config_set(&quiet, "output", "tokens", "test", NULL);
    if (rig_open(&t.r, f, &quiet, LF_F32, LF_FAST, true, &err))
        return false;
    family_load(f, t.r.ps);
    for (int s = 0; s < STEPS; s++) {
        rig_step(&t.r, f, s);
        rig_update(&t.r);
    }
    if (infer_ckpt_write(dir, c, fill, &t, &err))
        tap_bail("%s: %s: %s", f->name, dir, err.text);
    rig_close(&t.r);
    return true;
}

static bool same_weights(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *x = NULL, *y = NULL;
    if (lf_ckpt_open(&x, a, 1, &err) || lf_ckpt_open(&y, b, 1, &err))
        tap_bail("%s", err.text);
    bool same = lf_ckpt_n_entries(x) == lf_ckpt_n_entries(y);
    for (size_t i = 0; i < lf_ckpt_n_entries(x); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(x, i), *o = lf_ckpt_find(y, e->name, e->kind);
        if (o && memcmp(lf_ckpt_tensor_hash(e), lf_ckpt_tensor_hash(o), LF_HASH_BYTES) == 0)
            continue;
        tap_diag("%s: %s has other bytes", b, e->name);
        same = false;
    }
    lf_ckpt_close(x);
    lf_ckpt_close(y);
    return same;
}

static bool same_config(const char *dir, const lf_model_config *c)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *x = NULL;
    lf_model_config back;
    const char *key = "";
    if (lf_ckpt_open(&x, dir, 1, &err) || lf_weights_config(&back, x, &err))
        tap_bail("%s", err.text);
    bool same = lf_model_config_equal(c, &back, &key);
    if (!same)
        tap_diag("%s: %s differs", dir, key);
    lf_ckpt_close(x);
    return same;
}

static bool has(const char *dir, const char *name)
{
    char *path = join(dir, name);
    bool there = lf_io_exists(path);
    if (!there)
        tap_diag("%s is missing", path);
    free(path);
    return there;
}

/* Exported from dir/checkpoint to dir/model, looked at, and imported again; LF_EINVAL where the
 * family has no place for it. */
static int round_trip(const family *f, const char *what, const lf_model_config *c, const char *dir,
                      int *bad, lf_err *err)
{
    struct lf_convert_result res;
    char *ckpt = join(dir, "checkpoint"), *out = join(dir, "model"), *back = join(dir, "back");
    struct lf_convert_opts o = {.from = ckpt,
                                .out = out,
                                .threads = 1,
                                .pad_token = c->output == LF_OUTPUT_SCORE ? PAD : -1};
    struct lf_convert_opts in = {.from = out, .out = back, .threads = 1};
    int rc = lf_convert_export(&o, &res, err);
    if (!rc) {
        json_t *config = load(out, "config.json");
        *bad += bad_members(what, config) + bad_rope(what, config) +
                !has(out, "model.safetensors") + !has(out, "README.md");
        json_decref(config);
        if ((rc = lf_convert_import(&in, &res, err)))
            tap_diag("%s: what was exported does not come in again: %s", what, err->text);
        *bad += rc || !same_weights(ckpt, back) || !same_config(back, c);
    }
    (void)f;
    free(ckpt);
    free(out);
    free(back);
    return rc;
}

static void in_dir(char *dir, size_t cap, const char *root, const family *f, const char *set)
{
    snprintf(dir, cap, "%s/%s %s", root, f->name, set);
    for (char *p = dir + strlen(root) + 1; *p; p++)
        *p = *p == ' ' || *p == '*' || *p == '!' ? '_' : *p;
    if (mkdir(dir, 0777) && errno != EEXIST)
        tap_bail("cannot make %s", dir);
}

static void test_whole(const family *f, bool score)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = f->config;
    char dir[4096], what[100];
    int bad = 0;
    snprintf(what, sizeof what, "%s, %s model", f->name, score ? "reward" : "language");
    if (score && (lf_model_config_set(&c, "output", "score", "test", &err) ||
                  lf_model_config_finish(&c, &err)))
        tap_bail("%s: %s", what, err.text);
    in_dir(dir, sizeof dir, tap_tmpdir(), f, score ? "score" : "tokens");
    char *ckpt = join(dir, "checkpoint");
    if (!make_checkpoint(f, &c, ckpt))
        tap_bail("%s: no checkpoint", what);
    int rc = round_trip(f, what, &c, dir, &bad, &err);
    tap_ok(rc == 0 && bad == 0, "%s: exported after training, and in again%s%s", what,
           rc ? ": " : "", rc ? err.text : "");
    free(ckpt);
}

/* ---- the switches ---- */

/* The model as it is, and then each switch of this model once, whichever list has it. */
enum { MOST_SWITCHES = 1024 };
struct switches {
    const char *set[MOST_SWITCHES];
    size_t n;
};

static void add_switch(struct switches *s, const char *set)
{
    for (size_t k = 0; k < s->n; k++)
        if (strcmp(s->set[k], set) == 0)
            return;
    if (s->n == MOST_SWITCHES)
        tap_bail("more switches than %d", MOST_SWITCHES);
    s->set[s->n++] = set;
}

static void find_switches(struct switches *s, const lf_model_config *c)
{
    const char *set;
    s->n = 0;
    add_switch(s, "as it is");
    for (size_t i = 0; (set = family_flip_at(i, c)); i++)
        if (*set) /* else it is of other models */
            add_switch(s, set);
    for (size_t i = 0; more[i]; i++)
        add_switch(s, more[i]);
}

/* The model with switch i; false: it changes nothing, or is refused. */
static bool switched(const struct switches *s, size_t i, const lf_model_config *c, json_t *keys,
                     lf_model_config *out)
{
    lf_err err = LF_ERR_INIT;
    *out = *c;
    return i == 0 || family_flip(out, keys, s->set[i], &err) == 1;
}

static void test_switches(const family *f)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    json_t *keys = lf_model_config_to_json(&f->config, &err);
    int bad = 0, written = 0, n = 0;
    static struct switches s;
    find_switches(&s, &f->config);
    for (size_t i = 0; i < s.n; i++)
        if (switched(&s, i, &f->config, keys, &c)) {
            written += try_config(f, s.set[i], &c, &bad);
            n++;
        }
    json_decref(keys);
    tap_ok(bad == 0 && written >= 4,
           "%s: %d of %d switches can be written, with the types that are read", f->name, written,
           n);
}

/* ---- windows by layer ---- */

/* Families whose class reads layer_types. */
static bool reads_types(const char *name)
{
    static const char *const names[] = {"qwen2", "qwen3", "qwen2-moe", "gemma2", "gemma3", NULL};
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The layers of the bits slide, said by a list. */
static void set_windows(lf_model_config *c, unsigned bits)
{
    lf_err err = LF_ERR_INIT;
    char letters[64] = "";
    for (int64_t l = 0; l < c->layers && bits; l++)
        letters[l] = bits >> l & 1 ? 'w' : 'f';
    const struct {
        const char *key, *value;
    } set[] = {{"sliding_window", bits ? "5" : "0"},
               {"layer_mixers", letters},
               {"rope_local_theta", bits && strcmp(c->family, "gemma3") == 0 ? "500" : "0"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (lf_model_config_set(c, set[i].key, set[i].value, "test", &err))
            tap_bail("%s = %s: %s", set[i].key, set[i].value, err.text);
    if (lf_model_config_finish(c, &err))
        tap_bail("windows %x: %s", bits, err.text);
}

/* Every choice of the layers that slide goes out and comes in, however it is said. */
static void test_windows(const family *f)
{
    int bad = 0, n = 1 << f->config.layers;
    for (int bits = 0; bits < n; bits++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c = f->config, back;
        set_windows(&c, (unsigned)bits);
        json_t *o = lf_hf_config_write(form_of(f), &c, "float32", &err);
        int rc = o ? lf_hf_config_read(&back, form_of(f), o, "config.json", &err) : LF_EINVAL;
        for (int64_t l = 0; l < c.layers && rc == 0; l++)
            rc = lf_model_layer_window(&c, l) != lf_model_layer_window(&back, l);
        bad += rc != 0 || bad_members(f->name, o);
        if (rc != 0)
            tap_diag("%s, windows %x: %s", f->name, (unsigned)bits, err.text);
        json_decref(o);
    }
    tap_ok(bad == 0, "%s: each of %d choices of layers with a window is written", f->name, n);
}

/* ---- for check_exports.py ---- */

static int make_case(const family *f, const char *set, const lf_model_config *c, const char *root)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], what[300];
    int bad = 0;
    json_t *o = lf_hf_config_write(form_of(f), c, "float32", &err);
    json_decref(o);
    if (!o)
        return 0;
    snprintf(what, sizeof what, "%s: %s", f->name, set);
    in_dir(dir, sizeof dir, root, f, set);
    char *ckpt = join(dir, "checkpoint");
    bool can = make_checkpoint(f, c, ckpt);
    free(ckpt);
    if (!can)
        return 0;
    if (round_trip(f, what, c, dir, &bad, &err))
        tap_diag("%s: %s", what, err.text);
    return 1;
}

static void make_cases(const char *name, const char *root)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    family *f = family_open(name);
    json_t *keys = lf_model_config_to_json(&f->config, &err);
    int made = 0;
    static struct switches s;
    find_switches(&s, &f->config);
    for (size_t i = 0; i < s.n; i++) {
        if (!switched(&s, i, &f->config, keys, &c))
            continue;
        made += make_case(f, s.set[i], &c, root);
        bool score = form_of(f)->classifier &&
                     lf_model_config_set(&c, "output", "score", "test", &err) == 0 &&
                     lf_model_config_finish(&c, &err) == 0;
        char with[200];
        snprintf(with, sizeof with, "score %s", s.set[i]);
        made += score ? make_case(f, with, &c, root) : 0;
    }
    json_decref(keys);
    family_close(f);
    tap_ok(made > 0, "%s: %d exports", name, made);
}

static void verify_case(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_verdict w;
    char *ckpt = join(dir, "checkpoint"), *expected = join(dir, "expected.safetensors");
    if (lf_io_exists(expected)) {
        int rc = lf_convert_verify(ckpt, expected, 1, &w, &err);
        tap_ok(rc == 0 && w.max <= w.tol_max && w.rms <= w.tol_rms, "%s: max %.2g, rms %.2g %s",
               dir, rc ? 0 : w.max, rc ? 0 : w.rms, rc ? err.text : "");
    }
    free(ckpt);
    free(expected);
}

static void verify_cases(const char *root)
{
    struct dirent **list = NULL;
    int n = scandir(root, &list, NULL, alphasort);
    if (n < 0)
        tap_bail("cannot look into %s", root);
    for (int i = 0; i < n; i++) {
        char *dir = join(root, list[i]->d_name);
        if (list[i]->d_name[0] != '.')
            verify_case(dir);
        free(dir);
        free(list[i]);
    }
    free(list);
}

/* ---- tensors that an import leaves out ---- */

static void hear(void *arg, const char *line)
{
    if (strstr(line, "left out: 1 tensors"))
        *(int *)arg += strstr(line, "model.mtp_layers.* (heads of multi-token prediction)") != NULL;
}

/* The family's own tensors, and one of a head that predicts more tokens. */
static void write_more(const family *f, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    lf_st_writer *w = NULL;
    if (lf_st_open(&s, f->dir, &err))
        tap_bail("%s", err.text);
    size_t n = lf_st_n_entries(s), i;
    lf_st_decl *decl = need(calloc(n + 1, sizeof *decl));
    for (i = 0; i < n; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        decl[i] = (lf_st_decl){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(decl[i].shape, e->shape, sizeof e->shape);
    }
    decl[n] = (lf_st_decl){"model.mtp_layers.0.token_layernorm.weight", LF_ST_F32, 1, {1}};
    int rc = lf_st_writer_create(&w, dir, decl, n + 1, NULL, &err);
    while (rc == 0 && (i = lf_st_writer_next(w)) <= n) {
        const lf_st_entry *e = i < n ? lf_st_entry_at(s, i) : NULL;
        const size_t bytes = e ? (size_t)e->bytes : 4;
        char *v = need(calloc(1, bytes));
        rc = e ? lf_st_read(s, e, 0, e->elems, v, &err) : 0;
        rc = rc != 0 ? rc : lf_st_writer_put(w, v, bytes, &err);
        free(v);
    }
    if (rc || lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s: %s", dir, err.text);
    lf_st_writer_destroy(w);
    lf_st_close(s);
    free(decl);
}

/* The model is the same without them, and whoever imports it is told which. */
static void test_left_out(const family *f)
{
    char *dir = join(f->tmp, "with"), *json = join(dir, "config.json"),
         *was = join(f->dir, "config.json"), *out = join(f->tmp, "left"),
         *back = join(f->tmp, "back"), *again = join(back, "config.json"),
         *ckpt = join(f->tmp, "checkpoint");
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    lf_buf config;
    int told = 0;
    struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1, .warn = hear, .arg = &told};
    lf_buf_init(&config);
    if (mkdir(dir, 0777) || lf_io_read_file(was, 1 << 20, &config, &err) ||
        lf_io_write_file(json, config.data, config.len, 0666, &err))
        tap_bail("%s: %s", dir, err.text);
    json_t *told_of = lf_json_load_file(json, 1 << 20, &err); /* of heads that are not read */
    if (!told_of || json_object_set_new(told_of, "num_nextn_predict_layers", json_integer(0)) ||
        json_dump_file(told_of, json, 0))
        tap_bail("%s: %s", json, err.text);
    json_decref(told_of);
    write_more(f, dir);
    int rc = lf_convert_import(&o, &res, &err);
    tap_rc(rc, 0, &err, NULL, "a model with a head of multi-token prediction comes in");
    tap_ok(told == 1 && rc == 0 && same_weights(ckpt, out), "without it, which is told");
    o = (struct lf_convert_opts){.from = out, .out = back, .threads = 1, .pad_token = -1};
    rc = rc != 0 ? rc : lf_convert_export(&o, &res, &err);
    json_t *c = rc == 0 ? lf_json_load_file(again, 1 << 20, &err) : NULL;
    tap_i64(json_integer_value(json_object_get(c, "num_nextn_predict_layers")) +
                !json_object_get(c, "num_nextn_predict_layers"),
            0, "and config.json of an export says that there is none");
    json_decref(c);
    lf_buf_fini(&config);
    free(back);
    free(again);
    free(dir);
    free(json);
    free(was);
    free(out);
    free(ckpt);
}

static void test_family(const char *name)
{
    family *f = family_open(name);
    TAP(1, test_switches(f));
    TAP(1, test_whole(f, false));
    if (form_of(f)->classifier)
        TAP(1, test_whole(f, true));
    if (reads_types(f->name))
        TAP(1, test_windows(f));
    if (strcmp(f->name, "mimo") == 0)
        TAP(3, test_left_out(f));
    family_close(f);
}

int main(int argc, char **argv)
{
    const char *src = getenv("LF_SRCDIR");
    char *dir = join(src ? src : ".", "tests/golden/families");
    types = load(dir, "exports.json");
    bool make = argc > 2 && strcmp(argv[1], "make") == 0,
         check = argc > 2 && strcmp(argv[1], "verify") == 0;
    int first = make || check ? 3 : 1;
    if (check)
        verify_cases(argv[2]);
    for (int i = 0; family_names[i] && !check; i++) {
        bool mine = argc <= first;
        for (int a = first; a < argc; a++)
            mine = mine || strcmp(argv[a], family_names[i]) == 0;
        if (mine && make)
            make_cases(family_names[i], argv[2]);
        else if (mine)
            test_family(family_names[i]);
    }
    json_decref(types);
    free(dir);
    return tap_done();
}
