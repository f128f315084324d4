/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids and decoded text against the tokenizers library: tests/golden/tokenizer/vectors.json (hard
 * multilingual texts) and big.json (10 MB without a space, and more). make_tokenizer.py wrote both.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/token/tokenizer.h"
#include "tests/tap/tap.h"
#include "tests/unit/text_vectors.h"

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

static lf_tokenizer *load_tokenizer(const char *name)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/%s.json", getenv("LF_SRCDIR"), name);
    lf_tokenizer *t = lf_tokenizer_load(path, &err);
    if (!t)
        tap_bail("%s", err.text);
    return t;
}

static void golden(json_t *vectors, const char *name)
{
    lf_tokenizer *t = load_tokenizer(name);
    vectors_check(vectors, name, t);
    lf_tokenizer_destroy(t);
}

/* The same generator as big_text() of make_tokenizer.py. */
static void big_text(char *out, const char *kind, size_t n)
{
    static const char letters[] = "aabcdeefghijklmnopqrstuvwxyz";
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) {
        x = (x * 1103515245u + 12345u) & 0x7FFFFFFFu;
        if (strcmp(kind, "one") == 0)
            out[i] = 'a';
        else if (strcmp(kind, "letters") == 0)
            out[i] = letters[(x >> 16) % 28];
        else
            out[i] = (x >> 16) % 5 ? ' ' : letters[(x >> 20) % 28];
    }
}

static void big(json_t *all, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_tokenizer *t = load_tokenizer(name);
    lf_tok_state *s = lf_tok_state_create(t, &err);
    json_t *rows = json_object_get(all, name), *row;
    size_t i;
    char h[17];
    json_array_foreach(rows, i, row)
    {
        size_t n = (size_t)json_integer_value(json_object_get(row, "bytes"));
        const char *kind = json_string_value(json_object_get(row, "kind"));
        char *text = malloc(n);
        big_text(text, kind, n);
        lf_ids ids = {0};
        tap_rc(lf_tokenizer_encode(s, text, n, 0, &ids, NULL, &err), 0, &err, NULL, kind);
        tap_i64((int64_t)ids.n, json_integer_value(json_object_get(row, "tokens")),
                "tokens of a large text");
        snprintf(h, sizeof(h), "%016llx",
                 (unsigned long long)vectors_fnv(VECTORS_FNV, ids.v, ids.n));
        tap_str(h, json_string_value(json_object_get(row, "fnv")), "ids of a large text");
        lf_ids_fini(&ids);
        free(text);
    }
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(t);
}

int main(void)
{
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "prefix", "splits"};
    json_t *vectors = load("vectors.json"), *large = load("big.json");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        TAP(7, golden(vectors, names[i]));
    TAP(9, big(large, "gpt2"));
    TAP(9, big(large, "llama3"));
    json_decref(vectors);
    json_decref(large);
    return tap_done();
}
