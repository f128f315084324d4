/* SPDX-License-Identifier: Apache-2.0
 *
 * BPE training against the tokenizers library's trainer (tests/golden/tokenizer/train.json, made
 * from the texts of vectors.json): the same vocabulary and merges for every pattern and normaliser,
 * however the words were counted.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/vocab/train_bpe.h"
#include "tests/tap/tap.h"

static json_t *load(const char *name)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/%s", getenv("LF_SRCDIR"), name);
    json_t *j = lf_json_load_file(path, (size_t)64 << 20, &err);
    if (!j)
        tap_bail("%s", err.text);
    return j;
}

static size_t unhex(char *out, const char *hex)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned b = 0;
        if (sscanf(hex + 2 * i, "%2x", &b) != 1)
            tap_bail("bad hex in the golden file");
        out[i] = (char)b;
    }
    return n;
}

static uint64_t fnv(uint64_t h, const char *s)
{
    for (; *s; s++) {
        h = (h ^ (unsigned char)*s) * 0x100000001B3u;
        for (int k = 0; k < 3; k++) /* the script hashes u32le units */
            h *= 0x100000001B3u;
    }
    return h;
}

/* Count all texts into n tables in turn, then add them up in the order given by `backwards`. */
static lf_word_counts *count(const lf_bpe_train_args *a, const json_t *texts, const char *extra,
                             int n, bool backwards)
{
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *cutter = lf_bpe_train_cutter(a, &err);
    if (!cutter)
        tap_bail("%s", err.text);
    lf_tok_state *s = lf_tok_state_create(cutter, &err);
    lf_word_counts *w[4];
    for (int k = 0; k < n; k++)
        w[k] = lf_word_counts_create(&err);
    char *text = malloc(1 << 16);
    for (size_t i = 0; i <= json_array_size(texts); i++) {
        size_t at = backwards ? json_array_size(texts) - i : i;
        const char *hex =
            at < json_array_size(texts) ? json_string_value(json_array_get(texts, at)) : extra;
        size_t len = unhex(text, hex);
        if (lf_word_counts_text(w[i % (size_t)n], s, text, len, 0, NULL, &err) != 0)
            tap_bail("%s", err.text);
    }
    free(text);
    for (int k = 1; k < n; k++) {
        if (lf_word_counts_merge(w[0], w[k], &err) != 0)
            tap_bail("%s", err.text);
        lf_word_counts_destroy(w[k]);
    }
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(cutter);
    return w[0];
}

static int by_id(const void *a, const void *b)
{
    json_int_t x = json_integer_value(*(json_t *const *)a),
               y = json_integer_value(*(json_t *const *)b);
    return (x > y) - (x < y);
}

static void compare(const lf_buf *file, const json_t *row, const char *name)
{
    lf_err err = LF_ERR_INIT;
    char h[17];
    json_t *j = lf_json_load_text(file->data, file->len, "trained", &err);
    json_t *vocab = json_object_get(json_object_get(j, "model"), "vocab"), *v;
    json_t *merges = json_object_get(json_object_get(j, "model"), "merges");
    size_t n = json_object_size(vocab), i = 0;
    const char *key;
    json_t **ids = malloc((n + 1) * sizeof(*ids));
    json_object_foreach(vocab, key, v) ids[i++] = v;
    qsort(ids, n, sizeof(*ids), by_id);
    const char **names = calloc(n + 1, sizeof(*names));
    json_object_foreach(vocab, key, v) if ((size_t)json_integer_value(v) < n)
        names[json_integer_value(v)] = key;
    uint64_t x = 0xCBF29CE484222325u;
    for (i = 0; i < n; i++)
        x = fnv(i ? fnv(x, "\n") : x, names[i] ? names[i] : "");
    snprintf(h, sizeof(h), "%016llx", (unsigned long long)x);
    tap_i64((int64_t)n, json_integer_value(json_object_get(row, "n_vocab")), name);
    tap_str(h, json_string_value(json_object_get(row, "vocab")), "vocabulary");
    x = 0xCBF29CE484222325u;
    json_array_foreach(merges, i, v) x = fnv(i ? fnv(x, "\n") : x, json_string_value(v));
    snprintf(h, sizeof(h), "%016llx", (unsigned long long)x);
    tap_i64((int64_t)json_array_size(merges), json_integer_value(json_object_get(row, "n_merges")),
            "number of merges");
    tap_str(h, json_string_value(json_object_get(row, "merges")), "merges in order");
    free(ids);
    free(names);
    json_decref(j);
    lf_tokenizer *t = lf_tokenizer_parse(file->data, file->len, "trained", &err);
    tap_ok(t && lf_tokenizer_eos(t) == 0, "what was written loads, with its specials");
    lf_tokenizer_destroy(t);
}

static int index_of(const char *const *names, const char *s)
{
    int i = 0;
    while (strcmp(names[i], s) != 0)
        i++;
    return i;
}

static int stop_at_once(void *arg, size_t done, size_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return LF_EINTR;
}

int main(void)
{
    static const char *const patterns[] = {"llama3", "gpt2", "qwen2"}, *const norms[] = {
                                                                           "none", "nfc", "nfkc"};
    static const char *const specials[] = {"<|endoftext|>", "e", "ab"};
    lf_err err = LF_ERR_INIT;
    json_t *vectors = load("vectors.json"), *golden = load("train.json"), *row;
    const char *extra = json_string_value(json_object_get(golden, "extra"));
    size_t i;
    lf_bpe_train_args a = {.specials = specials, .n_specials = 3};
    json_array_foreach(json_object_get(golden, "rows"), i, row)
    {
        a.pattern = (enum lf_bpe_pattern)index_of(
            patterns, json_string_value(json_object_get(row, "pattern")));
        a.normalizer = (enum lf_bpe_normalizer)index_of(
            norms, json_string_value(json_object_get(row, "normalizer")));
        a.vocab_size = (size_t)json_integer_value(json_object_get(row, "vocab_size"));
        a.min_frequency = (uint64_t)json_integer_value(json_object_get(row, "min_frequency"));
        lf_word_counts *w =
            count(&a, json_object_get(vectors, "texts"), extra, i % 2 ? 3 : 1, i % 2);
        lf_buf json;
        lf_buf_init(&json);
        size_t n = 0;
        char name[100];
        snprintf(name, sizeof(name), "%s, %s, %zu tokens, at least %d", patterns[a.pattern],
                 norms[a.normalizer], a.vocab_size, (int)a.min_frequency);
        tap_rc(lf_bpe_train(&a, w, NULL, NULL, &json, &n, &err), 0, &err, NULL, name);
        TAP(5, compare(&json, row, name));
        if (i == 0) {
            lf_buf_clear(&json);
            tap_rc(lf_bpe_train(&a, w, stop_at_once, NULL, &json, NULL, &err), LF_EINTR, &err,
                   "stopped", "training can be stopped");
            a.vocab_size = 258;
            tap_rc(lf_bpe_train(&a, w, NULL, NULL, &json, NULL, &err), LF_EINVAL, &err, "no room",
                   "a vocabulary too small for the bytes");
        }
        lf_buf_fini(&json);
        lf_word_counts_destroy(w);
    }
    json_decref(vectors);
    json_decref(golden);
    return tap_done();
}
