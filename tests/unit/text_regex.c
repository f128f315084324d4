/* SPDX-License-Identifier: Apache-2.0
 *
 * The patterns of models in use against the tokenizers library, on characters of every kind:
 * regex.json, which make_regex.py wrote. The first three are cut once more with tables only, as
 * with a PCRE2 of another Unicode version.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/token/regex.h"
#include "engine/text/token/uniclass.h"
#include "tests/tap/tap.h"
#include "tests/unit/text_vectors.h"

#define BLOCK 1024u

static void add_char(lf_buf *b, uint32_t c)
{
    uint8_t out[4];
    if (c < 0xD800 || c > 0xDFFF)
        lf_buf_add(b, out, vectors_utf8(out, c));
}

/* taken() and text() of make_regex.py. */
static bool taken(uint32_t c)
{
    return c % 64 == 0 || !((c >= 0x3500 && c < 0x9F00) || (c >= 0xAC80 && c < 0xF800) ||
                            (c >= 0x17100 && c < 0x18C00) || c >= 0x20100);
}

static void block(lf_buf *b, uint32_t first)
{
    static const char *const around[] = {"aA", "A", "a ", "", "1", "'s ", "\n"};
    lf_buf_clear(b);
    for (uint32_t c = first; c < first + BLOCK; c++)
        for (int i = 0; i < 7 && taken(c); i++) {
            lf_buf_adds(b, around[i]);
            if (i < 6)
                add_char(b, c);
        }
}

struct sum {
    uint64_t fnv, pieces;
};

static void piece(struct sum *s, size_t end)
{
    uint32_t at = (uint32_t)end;
    s->fnv = vectors_fnv(s->fnv, &at, 1);
    s->pieces++;
}

/* Ends of matches and of gaps between them, as Split with "isolated" leaves them. */
static int cut(struct sum *s, lf_regex_state *st, const lf_buf *text, lf_err *err)
{
    const uint8_t *p = (const uint8_t *)text->data;
    size_t done = 0, from = 0, start, end;
    int rc = 0;
    while (from <= text->len &&
           (rc = lf_regex_find(st, p, text->len, from, &start, &end, err)) == 1) {
        if (start > done)
            piece(s, start);
        if (end > start)
            piece(s, end);
        done = end > start || start > done ? end : done;
        from = end;
        if (end == start && from < text->len) {
            unsigned n;
            (void)lf_utf8_get(p + from, &n);
            from += n;
        } else if (end == start) {
            break;
        }
    }
    if (rc >= 0 && done < text->len)
        piece(s, text->len);
    return rc < 0 ? rc : 0;
}

static void check(const json_t *row, uint32_t last, unsigned how)
{
    lf_err err = LF_ERR_INIT;
    const char *name = json_string_value(json_object_get(row, "name"));
    lf_regex *re = lf_regex_create(json_string_value(json_object_get(row, "pattern")), how, &err);
    lf_regex_state *st = re ? lf_regex_state_create(re, &err) : NULL;
    struct sum s = {.fnv = VECTORS_FNV};
    char hex[17];
    lf_buf text;
    lf_buf_init(&text);
    int rc = st ? 0 : LF_EFORMAT;
    for (uint32_t first = 0; first < last && rc == 0; first += BLOCK) {
        block(&text, first);
        rc = cut(&s, st, &text, &err);
    }
    tap_rc(rc, 0, &err, NULL, name);
    tap_i64((int64_t)s.pieces, json_integer_value(json_object_get(row, "pieces")), name);
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)s.fnv);
    tap_str(hex, json_string_value(json_object_get(row, "fnv")),
            how & LF_REGEX_TABLES ? "where every piece ends, by tables" : "where every piece ends");
    lf_buf_fini(&text);
    lf_regex_state_destroy(st);
    lf_regex_destroy(re);
}

static void refuse(const char *pattern, unsigned how, const char *contains)
{
    lf_err err = LF_ERR_INIT;
    lf_regex *re = lf_regex_create(pattern, how, &err);
    tap_rc(re ? 0 : err.rc, LF_ENOTSUP, &err, contains, pattern);
    lf_regex_destroy(re);
}

static void refusals(void)
{
    refuse("\\p{Klingon}", 0, "\\p{Klingon}");
    refuse("\\pL", 0, "\\p without {");
    refuse("(?i:[\\p{Lu}])", 0, "(?i) with a class");
    refuse("(?m).", 0, "an option other than (?i)");
    refuse("(?s).", 0, "an option other than (?i)");
    refuse("a(?i)b|c", 0, "(?i) behind the beginning");
    refuse("\\xE9", 0, "a byte above");
    refuse("\\u12", 0, "\\u without four");
    refuse("\\bx", 0, "\\b");
    refuse("[a&&b]", 0, "set inside a set");
    refuse("[a--b]", LF_REGEX_RUST, "set inside a set");
    refuse("\\w", LF_REGEX_RUST, "\\w");
    refuse("a{,2}", LF_REGEX_RUST, "{,");
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    size_t i;
    json_t *row;
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/regex.json", getenv("LF_SRCDIR"));
    json_t *all = lf_json_load_file(path, (size_t)1 << 20, &err);
    if (!all)
        tap_bail("%s", err.text);
    json_array_foreach(json_object_get(all, "rows"), i, row)
    {
        TAP(3, check(row, (uint32_t)json_integer_value(json_object_get(all, "end")),
                     LF_REGEX_ONIGURUMA));
        if (i < 3) /* those that would use PCRE2's own classes */
            TAP(3, check(row, (uint32_t)json_integer_value(json_object_get(all, "end")),
                         LF_REGEX_TABLES));
    }
    TAP(13, refusals());
    json_decref(all);
    return tap_done();
}
