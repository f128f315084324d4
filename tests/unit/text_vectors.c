/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_vectors.h.
 */
#include "config.h"

#include "tests/unit/text_vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap/tap.h"

size_t vectors_unhex(char *out, const char *hex)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned b = 0;
        if (sscanf(hex + 2 * i, "%2x", &b) != 1)
            tap_bail("bad hex in the golden file");
        out[i] = (char)b;
    }
    out[n] = 0;
    return n;
}

size_t vectors_utf8(uint8_t *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (uint8_t)(0xC0 | c >> 6);
        p[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (uint8_t)(0xE0 | c >> 12);
        p[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        p[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    p[0] = (uint8_t)(0xF0 | c >> 18);
    p[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    p[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    p[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

static uint64_t fnv_add(uint64_t h, uint32_t v)
{
    for (int k = 0; k < 4; k++, v >>= 8)
        h = (h ^ (v & 0xFF)) * 0x100000001B3u;
    return h;
}

uint64_t vectors_fnv(uint64_t h, const uint32_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = fnv_add(h, v[i]);
    return h;
}

static const char *fnv_ids(const uint32_t *v, size_t n, char out[17])
{
    snprintf(out, 17, "%016llx", (unsigned long long)vectors_fnv(VECTORS_FNV, v, n));
    return out;
}

static const char *fnv_bytes(const lf_buf *b, char out[17])
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < b->len; i++)
        h = fnv_add(h, (unsigned char)b->data[i]);
    snprintf(out, 17, "%016llx", (unsigned long long)h);
    return out;
}

static bool same_ids(const lf_ids *got, const json_t *want)
{
    bool ok = got->n == json_array_size(want);
    for (size_t i = 0; ok && i < got->n; i++)
        ok = got->v[i] == (uint32_t)json_integer_value(json_array_get(want, i));
    return ok;
}

/* What bytes.decode(errors="replace") makes of the text, by the tokenizer that repairs it: encode
 * and decode of a tokenizer without normaliser returns it. NULL member of "decoded" means that. */
static bool decoded_right(const lf_tokenizer *t, const lf_ids *ids, const json_t *want,
                          const char *text, size_t n, bool valid, lf_err *err)
{
    lf_buf whole, streamed;
    lf_buf_init(&whole);
    lf_buf_init(&streamed);
    char *hex = json_is_string(want) ? malloc(json_string_length(want) + 1) : NULL;
    bool ok = lf_tokenizer_decode(t, ids->v, ids->n, false, &whole, err) == 0;
    lf_tok_stream d = {0};
    for (size_t i = 0; ok && i < ids->n; i++) {
        size_t before = streamed.len;
        ok = lf_tok_stream_push(&d, t, ids->v[i], false, &streamed, err) == 0;
        /* Whole characters only: what was added is valid UTF-8 of its own. */
        json_t *part = json_stringn(streamed.data + before, streamed.len - before);
        ok = ok && part;
        json_decref(part);
    }
    ok = lf_tok_stream_finish(&d, t, &streamed, err) == 0 && ok;
    ok = ok && whole.len == streamed.len && memcmp(whole.data, streamed.data, whole.len) == 0;
    if (hex) {
        size_t m = vectors_unhex(hex, json_string_value(want));
        ok = ok && m == whole.len && memcmp(hex, whole.data, m) == 0;
    } else if (valid) {
        ok = ok && n == whole.len && memcmp(text, whole.data, n) == 0;
    }
    free(hex);
    lf_buf_fini(&whole);
    lf_buf_fini(&streamed);
    return ok;
}

enum { IDS, PLAIN, TEMPLATE, SPECIAL_TEXT, DECODED, SKIPPED, N_CHECKS };
static const char *const check_names[N_CHECKS] = {"ids",
                                                  "ids without cache and after repeats",
                                                  "ids with template",
                                                  "ids with specials as text",
                                                  "decoded text, whole and streamed",
                                                  "decoded without specials"};

static void one_text(const lf_tokenizer *t, lf_tok_state *s, const json_t *rows, size_t i,
                     const char *text, size_t n, size_t bad[N_CHECKS])
{
    lf_err err = LF_ERR_INIT;
    lf_ids ids = {0};
    lf_buf skip;
    lf_buf_init(&skip);
    char h[17];
    uint64_t replaced = 0;
    const json_t *want = json_array_get(json_object_get(rows, "ids"), i);
    bad[IDS] +=
        lf_tokenizer_encode(s, text, n, 0, &ids, &replaced, &err) != 0 || !same_ids(&ids, want);
    bad[DECODED] += !decoded_right(t, &ids, json_array_get(json_object_get(rows, "decoded"), i),
                                   text, n, replaced == 0, &err);
    bad[SKIPPED] += lf_tokenizer_decode(t, ids.v, ids.n, true, &skip, &err) != 0 ||
                    strcmp(fnv_bytes(&skip, h),
                           json_string_value(json_array_get(json_object_get(rows, "skipped"), i)));
    for (int k = 0; k < 2; k++) {
        ids.n = 0;
        unsigned flags = k ? LF_TOK_NO_CACHE : 0;
        bad[PLAIN] +=
            lf_tokenizer_encode(s, text, n, flags, &ids, NULL, &err) != 0 || !same_ids(&ids, want);
    }
    ids.n = 0;
    bad[TEMPLATE] +=
        lf_tokenizer_encode(s, text, n, LF_TOK_TEMPLATE, &ids, NULL, &err) != 0 ||
        strcmp(fnv_ids(ids.v, ids.n, h),
               json_string_value(json_array_get(json_object_get(rows, "template"), i)));
    ids.n = 0;
    bad[SPECIAL_TEXT] +=
        lf_tokenizer_encode(s, text, n, LF_TOK_SPECIAL_TEXT, &ids, NULL, &err) != 0 ||
        strcmp(fnv_ids(ids.v, ids.n, h),
               json_string_value(json_array_get(json_object_get(rows, "special_text"), i)));
    /* Strict refuses exactly the texts that were repaired. */
    ids.n = 0;
    int rc = lf_tokenizer_encode(s, text, n, LF_TOK_STRICT, &ids, NULL, &err);
    bad[IDS] += (rc == 0) != (replaced == 0) || (rc != 0 && (rc != LF_EFORMAT || ids.n != 0));
    lf_ids_fini(&ids);
    lf_buf_fini(&skip);
}

void vectors_check(json_t *vectors, const char *name, const lf_tokenizer *t)
{
    lf_err err = LF_ERR_INIT;
    lf_tok_state *s = lf_tok_state_create(t, &err);
    json_t *texts = json_object_get(vectors, "texts"),
           *rows = json_object_get(json_object_get(vectors, "tokenizers"), name);
    size_t bad[N_CHECKS] = {0}, done = 0;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *hex = json_string_value(json_array_get(texts, i));
        char *text = malloc(strlen(hex) + 1);
        size_t n = vectors_unhex(text, hex), before = bad[IDS];
        one_text(t, s, rows, i, text, n, bad);
        if (bad[IDS] != before)
            tap_diag("%s: text %zu: %s", name, i, hex);
        free(text);
        done++;
    }
    tap_ok(done > 150, "%s: %zu texts", name, done);
    for (int k = 0; k < N_CHECKS; k++)
        tap_ok(bad[k] == 0, "%s: %s: %zu texts differ", name, check_names[k], bad[k]);
    lf_tok_state_destroy(s);
}
