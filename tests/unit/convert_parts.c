/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of texts in models that also see: its logits are those of the whole (golden files,
 * tests/golden/parts), its tensors have the bytes of the release, and what has no such part, or
 * one of no family of its own, is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/convert.h"
#include "engine/convert/priv.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

static void *need(void *p)
{
    return p ? p : (tap_bail("no memory"), p);
}

static char *join(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    return need(lf_path_join(a, b, &err));
}

static char *golden(const char *name)
{
    const char *src = getenv("LF_SRCDIR");
    char *dir = join(src ? src : ".", "tests/golden"), *path = join(dir, name);
    free(dir);
    return path;
}

static lf_st *open_set(const char *path)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    if (lf_st_open(&s, path, &err))
        tap_bail("%s: %s", path, err.text);
    return s;
}

static char told[512];

static void hear(void *arg, const char *text)
{
    (void)arg;
    snprintf(told, sizeof told, "%s", text);
}

/* Has y the tensor of x under another name, with its bytes? */
static bool same(const lf_st *x, const lf_st_entry *a, const lf_st *y, const char *name)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *b = lf_st_find(y, name);
    if (!b || a->dtype != b->dtype || a->bytes != b->bytes)
        return false;
    char *u = need(malloc((size_t)a->bytes + 1)), *v = need(malloc((size_t)a->bytes + 1));
    if (lf_st_read(x, a, 0, a->elems, u, &err) || lf_st_read(y, b, 0, b->elems, v, &err))
        tap_bail("%s", err.text);
    const bool yes = memcmp(u, v, (size_t)a->bytes) == 0;
    free(u);
    free(v);
    return yes;
}

struct row {
    const char *from, *family, *inside, *class;
};

/* Every tensor below `inside` is in the export, and nothing else is but the head. */
static void test_bytes(const struct row *r, const char *from, const char *back)
{
    lf_st *x = open_set(from), *y = open_set(back);
    int64_t found = 0, wanted = 0, heads = 0;
    char name[256];
    for (size_t i = 0; i < lf_st_n_entries(x); i++) {
        const lf_st_entry *e = lf_st_entry_at(x, i);
        const char *head = strstr(e->name, "lm_head.weight"), *own = "language_model.output.weight";
        head = strcmp(e->name, own) == 0 ? own + strlen("language_model.") : head;
        if (head) {
            heads += same(x, e, y, head);
        } else if (strncmp(e->name, r->inside, strlen(r->inside)) == 0) {
            snprintf(name, sizeof name, "model.%s", e->name + strlen(r->inside));
            found += same(x, e, y, name);
            wanted++;
        }
    }
    tap_ok(wanted > 10 && found == wanted && (int64_t)lf_st_n_entries(y) == wanted + heads,
           "%s: an export has its %lld tensors and their bytes (%lld; %lld heads of %zu)", r->from,
           (long long)wanted, (long long)found, (long long)heads, lf_st_n_entries(y));
    lf_st_close(x);
    lf_st_close(y);
}

static void test_part(const struct row *r)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    const char *slash = strchr(r->from, '/') + 1;
    char leaf[64];
    snprintf(leaf, sizeof leaf, "%.30s.back", slash);
    char *dir = golden(r->from), *out = join(tap_tmpdir(), slash), *back = join(tap_tmpdir(), leaf),
         *json = join(back, "config.json");
    struct lf_convert_opts o = {
        .from = dir, .out = out, .threads = 2, .warn = hear, .parts = LF_PARTS_TEXT};
    json_t *seen = lf_convert_inspect(dir, LF_PARTS_TEXT, &err);
    const char *mapping = json_string_value(json_object_get(seen, "mapping"));
    tap_ok(mapping && strcmp(mapping, "complete") == 0, "%s: inspect knows the part", r->from);
    json_decref(seen);
    told[0] = 0;
    tap_rc(lf_convert_import(&o, &res, &err), 0, &err, NULL, "it comes in");
    tap_ok(strcmp(res.family, r->family) == 0, "%s: as a model of its own family (%s)", r->from,
           res.family);
    tap_ok(strstr(told, "left out are ") && strstr(told, " tensors of vi"),
           "%s: and the user is told what is left out (%s)", r->from, told);
    o = (struct lf_convert_opts){.from = out, .out = back, .threads = 1, .pad_token = -1};
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    json_t *config = lf_json_load_file(json, 1 << 20, &err);
    const char *class =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    tap_ok(class && strcmp(class, r->class) == 0, "%s: for the class of texts alone (%s)", r->from,
           class ? class : "none");
    tap_ok(config && !json_object_get(config, "vision_config"), "%s: without an encoder", r->from);
    test_bytes(r, dir, back);
    json_decref(config);
    char *made[] = {dir, out, back, json};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        free(made[i]);
}

static void test_logits(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_verdict v = {0};
    char *out = join(tap_tmpdir(), "llama4"), *want = golden("parts/llama4/expected.safetensors");
    tap_rc(lf_convert_verify(out, want, 1, &v, &err), 0, &err, NULL, "the decoder runs");
    tap_ok(v.rows == 48 && v.max <= v.tol_max && v.rms <= v.tol_rms,
           "with the logits of the whole model: %.3g of %.3g", v.max, v.tol_max);
    free(out);
    free(want);
}

static void test_refusals(void)
{
    static const struct {
        const char *from;
        int parts;
        const char *words;
    } rows[] = {
        {"parts/llama4", LF_PARTS_ALL, "; parts = text takes its decoder of texts alone"},
        {"families/llama", LF_PARTS_TEXT, "has no part for texts (text_config): leave parts out"},
        {"vlm/qwen2.5-vl", LF_PARTS_TEXT,
         "qwen2_5_vl_text has no family of its own, and a model of type qwen2_5_vl is read whole: "
         "leave parts out"},
        {"vlm/paligemma", LF_PARTS_TEXT, "use_bidirectional_attention = true is a variant"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lf_err err = LF_ERR_INIT;
        struct lf_convert_result res;
        char *dir = golden(rows[i].from), *out = join(tap_tmpdir(), "refused");
        struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1, .parts = rows[i].parts};
        const int rc = lf_convert_import(&o, &res, &err);
        tap_ok(rc < 0 && strstr(err.text, rows[i].words), "%s: %s", rows[i].from, err.text);
        free(dir);
        free(out);
    }
}

static json_t *config_of(const char *name)
{
    lf_err err = LF_ERR_INIT;
    char *dir = golden(name);
    json_t *o = need(lf_hf_read_json(dir, LF_HF_CONFIG, &err));
    free(dir);
    return o;
}

/* Takes tie_word_embeddings out of o, or puts it there. */
static void say_tied(json_t *o, int yes)
{
    json_object_del(o, "tie_word_embeddings");
    if (yes >= 0)
        json_object_set_new(o, "tie_word_embeddings", json_boolean(yes));
}

/* The head of the decoder is what it is in the whole. outer, inner: 1, 0, or -1 where the object
 * does not say it. */
static void test_tie(const char *name, int outer, int inner, bool want)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = config_of(name);
    say_tied(o, outer);
    say_tied(lf_hf_text_object(o), inner);
    json_t *part = lf_hf_text_part(o, "config.json", &err),
           *is = json_object_get(part, "tie_word_embeddings");
    tap_ok(json_is_boolean(is) && json_is_true(is) == want,
           "%s, %d outside and %d inside: the head is %s %s", name, outer, inner,
           want ? "the embedding" : "its own", err.text);
    json_decref(part);
    json_decref(o);
}

static void test_contradiction(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = config_of("vlm/internvl-chat-internlm2");
    say_tied(o, 1);
    json_t *part = lf_hf_text_part(o, "config.json", &err);
    tap_ok(!part && strstr(err.text, "llm_config says something else of tie_word_embeddings"),
           "two answers where the class has one: %s", err.text);
    json_decref(part);
    json_decref(o);
}

static void test_names(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf left;
    char *dir = golden("families/llama"), *path = join(dir, "model.safetensors");
    lf_st *s = open_set(path);
    lf_buf_init(&left);
    tap_ok(lf_hf_text_tensors(s, &left, &err) == LF_EFORMAT &&
               strstr(err.text, "begins with model.language_model., model.text_model.,") &&
               strstr(err.text, "language_model.output., language.model. or language.lm_head."),
           "no name of a part: %s", err.text);
    lf_buf_fini(&left);
    lf_st_close(s);
    free(dir);
    free(path);
}

static void put_file(const char *dir, const char *name, const void *data, size_t n)
{
    char *path = join(dir, name);
    FILE *f = need(fopen(path, "wb"));
    if (fwrite(data, 1, n, f) != n || fclose(f))
        tap_bail("%s cannot be written", path);
    free(path);
}

/* A release of one 8-bit matrix [8, 8], whose form the object of the decoder says. */
static void test_size(void)
{
    static const char config[] =
        "{\"model_type\": \"mllama\", \"text_config\": {\"quantization_config\": "
        "{\"quant_method\": \"fp8\", \"weight_block_size\": [8, 8]}}}";
    static const char header[] =
        "{\"language_model.model.layers.0.q_proj.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": "
        "[8, 8], \"data_offsets\": [0, 64]}, "
        "\"language_model.model.layers.0.q_proj.weight_scale_inv\": {\"dtype\": \"F32\", "
        "\"shape\": [1, 1], \"data_offsets\": [64, 68]}}";
    enum { HEADER = sizeof header - 1, DATA = 68 };
    char file[8 + HEADER + DATA] = {0}, *dir = join(tap_tmpdir(), "quantised");
    const uint64_t n = HEADER;
    memcpy(file, &n, sizeof n); /* every host we build for is little-endian */
    memcpy(file + 8, header, HEADER);
    if (mkdir(dir, 0700))
        tap_bail("%s cannot be made", dir);
    put_file(dir, "config.json", config, sizeof config - 1);
    put_file(dir, "model.safetensors", file, sizeof file);
    const int64_t bytes = lf_convert_hf_bytes(dir, LF_PARTS_TEXT);
    tap_ok(bytes == 128, "8-bit floats of a part are read as 16-bit ones: %lld bytes of 128",
           (long long)bytes);
    free(dir);
}

int main(void)
{
    static const struct row rows[] = {
        {"parts/llama4", "llama4", "language_model.model.", "Llama4ForCausalLM"},
        {"vlm/qwen3.5-vl", "qwen3.5", "model.language_model.", "Qwen3_5ForCausalLM"},
        {"vlm/idefics3", "llama", "model.text_model.", "LlamaForCausalLM"},
        {"vlm/gemma3", "gemma3", "language_model.model.", "Gemma3ForCausalLM"},
        {"vlm/internvl-chat-internlm2", "internlm2", "language_model.model.",
         "InternLM2ForCausalLM"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        test_part(&rows[i]);
    test_logits();
    test_refusals();
    test_tie("vlm/internvl", -1, -1, true);
    test_tie("vlm/llava", 0, 1, true);
    test_tie("vlm/llava", 1, 0, true);
    test_contradiction();
    test_names();
    test_size();
    return tap_done();
}
