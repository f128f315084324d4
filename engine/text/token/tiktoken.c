/* SPDX-License-Identifier: Apache-2.0
 *
 * tiktoken ranks: lines "BASE64 RANK". A rank is the token's id; two neighbours merge whenever
 * their joint bytes are a token, the lowest rank first, so every way to halve a token into tokens
 * is a merge. A word that is a token is taken whole. The pattern is not in the file:
 * tokenizer_config.json gives it ("pat_str", which means what it means to tiktoken: {1,3}+ is
 * possessive, $ the end of the text) or names a class that is known here.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/base64.h"
#include "engine/base/json.h"
#include "engine/text/token/scan.h"
#include "engine/text/token/tokenizer_forms.h"

struct ranks {
    lf_tokenizer *t;
    lf_buf bytes; /* of all tokens, one after the other */
    struct rank_row {
        size_t at;
        uint32_t len, id;
    } * v;
    size_t n, cap;
    uint32_t top;
};

static int read_line(struct ranks *r, const char *p, size_t n, size_t line, const char *path,
                     lf_err *err)
{
    const char *space = memchr(p, ' ', n);
    int64_t id = 0;
    bool ok =
        space && space > p && n - (size_t)(space - p) - 1 > 0 && n - (size_t)(space - p) - 1 < 10;
    for (const char *q = ok ? space + 1 : p; ok && q < p + n; q++) {
        ok = *q >= '0' && *q <= '9';
        id = id * 10 + (*q - '0');
    }
    size_t at = r->bytes.len;
    /* Whisper's multilingual file ends with "= 50256", a token of no bytes that no text becomes. */
    bool empty = ok && space == p + 1 && *p == '=';
    ok = ok && (empty || lf_base64_decode(&r->bytes, p, (size_t)(space - p)));
    int rc = lf_buf_check(&r->bytes, err);
    size_t len = r->bytes.len - at;
    if (rc == 0 && (!ok || (len == 0 && !empty) || len > LF_TOK_TOKEN_MAX))
        rc = lf_fail(err, LF_EFORMAT, "%s:%zu: not a tiktoken line (base64 token, space, rank)",
                     path, line);
    if (rc == 0)
        rc = lf_grow(&r->v, &r->cap, r->n, sizeof(*r->v), err);
    if (rc != 0)
        return rc;
    r->v[r->n++] = (struct rank_row){.at = at, .len = (uint32_t)len, .id = (uint32_t)id};
    r->top = (uint32_t)id > r->top ? (uint32_t)id : r->top;
    return 0;
}

static int read_ranks(struct ranks *r, const lf_buf *b, const char *path, lf_err *err)
{
    const char *p = b->data, *end = p + b->len;
    int rc = 0;
    for (size_t line = 1; p < end && rc == 0; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        size_t trim = n > 0 && p[n - 1] == '\r' ? n - 1 : n;
        if (trim > 0)
            rc = read_line(r, p, trim, line, path, err);
        p = nl ? nl + 1 : end;
    }
    if (rc == 0 && (r->n == 0 || r->top >= 2 * r->n + 65536))
        rc = lf_fail(err, LF_EFORMAT, "%s: %zu tokens, highest rank %u: not a tiktoken file", path,
                     r->n, r->top);
    return rc;
}

/* Tokens by id; their text is the bytes in the byte alphabet, as a tokenizer.json would have it. */
static int set_tokens(struct ranks *r, const char *path, lf_err *err)
{
    lf_tokenizer *t = r->t;
    lf_buf text;
    lf_buf_init(&text);
    t->names = json_object();
    int rc = t->names ? lf_tok_grow(t, r->top, err) : LF_ENOMEM;
    for (size_t i = 0; i < r->n && rc == 0; i++) {
        const struct rank_row *row = &r->v[i];
        lf_buf_clear(&text);
        for (size_t k = 0; k < row->len; k++) {
            uint32_t c = lf_char_of_byte((uint8_t)r->bytes.data[row->at + k]);
            if (c >= 0x80)
                lf_buf_addc(&text, (char)(0xC0 | c >> 6));
            lf_buf_addc(&text, (char)(c >= 0x80 ? 0x80 | (c & 0x3F) : c));
        }
        rc = lf_buf_check(&text, err);
        if (rc == 0)
            rc = lf_tok_set_token(t, row->id, text.data, text.len, path, err);
        if (rc == 0 && json_object_get(t->names, text.data))
            rc = lf_fail(err, LF_EFORMAT, "%s: the token of rank %u is there twice", path, row->id);
        if (rc == 0 && json_object_set_new(t->names, text.data, json_integer(row->id)) != 0)
            rc = lf_fail(err, LF_ENOMEM, "%s: no memory", path);
    }
    lf_buf_fini(&text);
    return rc == 0 ? lf_tok_fill_bytes(t, err) : rc;
}

static int build(struct ranks *r, lf_err *err)
{
    lf_tokenizer *t = r->t;
    size_t n_splits = 0;
    for (size_t i = 0; i < r->n; i++)
        n_splits += r->v[i].len < 4 ? r->v[i].len
                                    : 4; /* an estimate; the table is made for what is found */
    int rc = lf_bpe_init_words(&t->bpe, r->n, err);
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++)
        if (t->tokens[id].bytes && t->tokens[id].len)
            lf_bpe_add_word(&t->bpe, t->tokens[id].bytes, t->tokens[id].len, id);
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        if (pass == 1)
            rc = lf_bpe_init(&t->bpe, n_splits, err);
        n_splits = 0;
        for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++) {
            const lf_token *tok = &t->tokens[id];
            for (uint32_t k = 1; tok->bytes && k < tok->len; k++) {
                int64_t left = lf_bpe_find_word(&t->bpe, tok->bytes, k);
                int64_t right =
                    left < 0 ? -1 : lf_bpe_find_word(&t->bpe, tok->bytes + k, tok->len - k);
                if (right < 0)
                    continue;
                n_splits++;
                if (pass == 1)
                    lf_bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, id, id);
            }
        }
    }
    t->bpe.ignore_merges = true;
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++)
        if (t->tokens[id].bytes && t->tokens[id].len == 1)
            t->bpe.byte_id[t->tokens[id].bytes[0]] = (int32_t)id;
    for (int i = 0; i < 256 && rc == 0; i++)
        if (t->bpe.byte_id[i] < 0)
            rc = lf_fail(err, LF_EFORMAT, "the tiktoken file has no token for byte 0x%02x",
                         (unsigned)i);
    return rc;
}

/* ---- the families ---- */

static const struct {
    const char *class, *pattern;
} patterns[] = {{"QWenTokenizer", LF_PATTERN_QWEN2},
                {"ChatGLM4Tokenizer", LF_PATTERN_LLAMA3},
                {"WhisperTokenizer", LF_PATTERN_GPT2}};

static const char *pattern_of(const lf_tok_conf *c, const char *path, lf_err *err)
{
    const char *given = json_string_value(json_object_get(c->config, "pat_str"));
    for (size_t i = 0; !given && i < sizeof(patterns) / sizeof(patterns[0]); i++)
        if (strcmp(lf_tok_conf_class(c), patterns[i].class) == 0)
            return patterns[i].pattern;
    if (!given)
        lf_fail(
            err, LF_ENOTSUP,
            "%s: a tiktoken file does not hold its pattern: tokenizer_config.json beside it must "
            "give \"pat_str\" or a "
            "tokenizer_class that is known (QWenTokenizer, ChatGLM4Tokenizer, WhisperTokenizer)",
            path);
    return given;
}

/* Qwen's own special tokens, which its files do not list: behind the ranks, 3 named and 205 extra
 * ones. */
static int add_qwen(json_t *added, uint32_t first)
{
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    int bad = 0;
    for (uint32_t i = 0; i < 208 && !bad; i++) {
        char extra[32];
        snprintf(extra, sizeof(extra), "<|extra_%u|>", i - 3);
        bad = json_array_append_new(
            added, json_pack("{s:I, s:s, s:b, s:b}", "id", (json_int_t)(first + i), "content",
                             i < 3 ? names[i] : extra, "special", 1, "normalized", 0));
    }
    return bad;
}

static int parts(struct ranks *r, const lf_tok_conf *c, const char *path, lf_err *err)
{
    const char *pattern = pattern_of(c, path, err);
    if (!pattern)
        return LF_ENOTSUP;
    json_t *root = json_pack(
        "{s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}, s:{s:s}}", "pre_tokenizer",
        "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", pattern,
        "behavior", "Isolated", "invert", 0, "type", "ByteLevel", "add_prefix_space", 0,
        "trim_offsets", 1, "use_regex", 0, "decoder", "type", "ByteLevel");
    r->t->patterns = LF_REGEX_RUST;
    int rc = root ? lf_tok_load_parts(r->t, root, path, err)
                  : lf_fail(err, LF_ENOMEM, "%s: no memory", path);
    json_decref(root);
    return rc;
}

static int specials(struct ranks *r, const lf_tok_conf *c, const char *path, lf_err *err)
{
    lf_tokenizer *t = r->t;
    json_t *added = lf_tok_conf_added(c, t->names, path, err);
    int rc = added ? 0 : LF_EFORMAT;
    if (rc == 0 && json_array_size(added) == 0 &&
        strcmp(lf_tok_conf_class(c), "QWenTokenizer") == 0 && add_qwen(added, r->top + 1) != 0)
        rc = lf_fail(err, LF_ENOMEM, "%s: no memory", path);
    if (rc == 0)
        rc = lf_tok_load_added(t, added, true, path, err);
    json_decref(added);
    for (size_t i = 0; i < t->n_added && rc == 0;
         i++) { /* their bytes; set_tokens did the others */
        lf_token *tok = &t->tokens[t->added[i].id];
        tok->bytes = tok->text;
        tok->len = tok->n_text;
    }
    if (rc == 0)
        lf_tok_conf_name(c, t);
    return rc == 0 ? lf_tok_conf_template(c, t, err) : rc;
}

lf_tokenizer *lf_tok_from_tiktoken(const lf_tok_files *f, const lf_tok_conf *c, const char *path,
                                   lf_err *err)
{
    struct ranks r = {.t = lf_tok_create(err)};
    lf_buf_init(&r.bytes);
    int rc = r.t ? read_ranks(&r, &f->v[0].data, path, err) : LF_ENOMEM;
    if (rc == 0)
        rc = parts(&r, c, path, err);
    if (rc == 0)
        rc = set_tokens(&r, path, err);
    if (rc == 0)
        rc = build(&r, err);
    if (rc == 0)
        rc = specials(&r, c, path, err);
    lf_buf_fini(&r.bytes);
    free(r.v);
    if (rc == 0)
        return r.t;
    lf_tokenizer_destroy(r.t);
    return NULL;
}
