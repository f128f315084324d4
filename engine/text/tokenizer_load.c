/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json -> lf_tokenizer: the model (vocabulary, merges) and the added tokens. The components of the pipeline
 * are read by tokenizer_parts.c.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/text/tokenizer_parts.h"
#include "engine/text/tokenizer_priv.h"
#include "engine/text/uniclass.h"

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes are U+0100 and on, in order. */
static bool printable(int b)
{
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

uint32_t lf_char_of_byte(uint8_t b)
{
    if (printable(b))
        return b;
    uint32_t n = 0;
    for (int i = 0; i < b; i++)
        n += !printable(i);
    return 256 + n;
}

int lf_byte_of_char(uint32_t c)
{
    if (c < 256)
        return printable((int)c) ? (int)c : -1;
    if (c >= 256 + 68)
        return -1;
    return (int)(c < 256 + 33 ? c - 256 : c < 256 + 67 ? c - 256 - 33 + 127 : 0xAD);
}

/* Bytes of a token's text: through the byte alphabet when every character is in it, else its UTF-8 (as ByteLevel
 * decodes). *mapped says which. */
static const uint8_t *token_bytes(lf_tokenizer *t, const char *text, size_t n, uint32_t *len, bool *mapped, lf_err *err)
{
    uint8_t *b = lf_arena_alloc(t->arena, n + 1, 1, err);
    if (!b)
        return NULL;
    const uint8_t *p = (const uint8_t *)text;
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        unsigned step;
        int v = lf_byte_of_char(lf_utf8_get(p + i, &step));
        if (v < 0) {
            memcpy(b, text, n);
            *len = (uint32_t)n;
            *mapped = false;
            return b;
        }
        b[k++] = (uint8_t)v;
        i += step;
    }
    *len = (uint32_t)k;
    *mapped = true;
    return b;
}

static int grow_tokens(lf_tokenizer *t, uint32_t id, lf_err *err)
{
    if (id < t->n_tokens)
        return 0;
    int rc = lf_realloc(&t->tokens, (size_t)id + 1, sizeof(*t->tokens), err);
    if (rc != 0)
        return rc;
    memset(t->tokens + t->n_tokens, 0, (id + 1 - t->n_tokens) * sizeof(*t->tokens));
    t->n_tokens = id + 1;
    return 0;
}

static int load_vocab(lf_tokenizer *t, json_t *vocab, const char *path, lf_err *err)
{
    size_t n = json_object_size(vocab);
    json_int_t top = -1;
    const char *text;
    json_t *v;
    json_object_foreach(vocab, text, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        /* Real vocabularies are dense; the bound keeps a small file from asking for gigabytes. */
        if (id < 0 || id >= (json_int_t)(2 * n + 65536))
            return lf_fail(err, LF_EFORMAT, "%s: model.vocab: token \"%.100s\" has a bad id (vocabulary of %zu)", path,
                           text, n);
        top = id > top ? id : top;
    }
    int rc = top >= 0 ? grow_tokens(t, (uint32_t)top, err) : 0;
    if (rc == 0 && t->ignore_merges)
        rc = lf_bpe_init_words(&t->bpe, n, err);
    if (rc != 0)
        return rc;
    json_object_foreach(vocab, text, v)
    {
        lf_token *tok = &t->tokens[json_integer_value(v)];
        size_t len = strlen(text);
        bool mapped;
        if (tok->bytes)
            return lf_fail(err, LF_EFORMAT, "%s: model.vocab: id %lld is given twice, second for \"%.100s\"", path,
                           (long long)json_integer_value(v), text);
        if (len > LF_TOK_TOKEN_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: model.vocab: a token of %zu bytes is above the limit", path, len);
        tok->bytes = token_bytes(t, text, len, &tok->len, &mapped, err);
        if (!tok->bytes)
            return LF_ENOMEM;
        if (mapped && tok->len == 1)
            t->bpe.byte_id[tok->bytes[0]] = (int32_t)json_integer_value(v);
        if (mapped && tok->len > 0 && t->ignore_merges)
            lf_bpe_add_word(&t->bpe, tok->bytes, tok->len, (uint32_t)json_integer_value(v));
    }
    return 0;
}

/* Id of a text of n bytes that need not end with NUL; -1 none. buf is scratch. */
static int64_t vocab_find(json_t *vocab, lf_buf *buf, const char *a, size_t na, const char *b, size_t nb)
{
    lf_buf_clear(buf);
    lf_buf_add(buf, a, na);
    lf_buf_add(buf, b, nb);
    const json_t *v = json_object_get(vocab, buf->data);
    return v ? (int64_t)json_integer_value(v) : -1;
}

/* The halves of one merge: "a b" or ["a","b"]. false: malformed. */
static bool merge_halves(const json_t *m, const char **a, size_t *na, const char **b, size_t *nb)
{
    if (json_is_string(m)) {
        const char *s = json_string_value(m), *space = strchr(s, ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        *a = s;
        *na = (size_t)(space - s);
        *b = space + 1;
        *nb = strlen(*b);
        return true;
    }
    const json_t *x = json_array_get(m, 0), *y = json_array_get(m, 1);
    if (json_array_size(m) != 2 || !json_is_string(x) || !json_is_string(y))
        return false;
    *a = json_string_value(x);
    *na = json_string_length(x);
    *b = json_string_value(y);
    *nb = json_string_length(y);
    return true;
}

static int load_merges(lf_tokenizer *t, json_t *vocab, json_t *merges, const char *path, lf_err *err)
{
    lf_buf buf;
    lf_buf_init(&buf);
    uint32_t rank = 0;
    int rc = 0;
    size_t i;
    json_t *m;
    json_array_foreach(merges, i, m)
    {
        const char *a, *b;
        size_t na, nb;
        if (json_is_string(m) && lf_str_has_prefix(json_string_value(m), "#version"))
            continue;
        if (!merge_halves(m, &a, &na, &b, &nb)) {
            rc = lf_fail(err, LF_EFORMAT, "%s: model.merges[%zu] is not a pair of tokens", path, i);
            break;
        }
        int64_t left = vocab_find(vocab, &buf, a, na, "", 0);
        int64_t right = left < 0 ? -1 : vocab_find(vocab, &buf, b, nb, "", 0);
        int64_t both = right < 0 ? -1 : vocab_find(vocab, &buf, a, na, b, nb);
        rc = lf_buf_check(&buf, err);
        if (rc != 0)
            break;
        if (both < 0) {
            rc = lf_fail(
                err, LF_EFORMAT,
                "%s: model.merges[%zu] (\"%.60s\" + \"%.60s\") needs the token \"%.120s\", which is not in model.vocab",
                path, i, a, b, buf.data);
            break;
        }
        lf_bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, rank++, (uint32_t)both);
    }
    lf_buf_fini(&buf);
    return rc;
}

/* Members that would change the result and are not implemented must be absent, null, false or empty. */
static int refuse_set(const json_t *model, const char *key, const char *path, lf_err *err)
{
    const json_t *v = json_object_get(model, key);
    bool off = !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
               (json_is_number(v) && !(json_number_value(v) > 0));
    return off ? 0 : lf_fail(err, LF_ENOTSUP, "%s: model.%s is set, which this program does not support", path, key);
}

static int load_model(lf_tokenizer *t, json_t *model, const char *path, lf_err *err)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                          "byte_fallback"};
    const char *type = "BPE", *unk = NULL;
    json_t *vocab = NULL, *merges = NULL;
    int rc = lf_json_get_str(&type, model, "type", false, path, err);
    if (rc == 0 && strcmp(type, "BPE") != 0)
        rc = lf_fail(err, LF_ENOTSUP, "%s: model type %.60s; only byte-level BPE is supported", path, type);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]) && rc == 0; i++)
        rc = refuse_set(model, refused[i], path, err);
    if (rc == 0)
        rc = lf_json_get_object(&vocab, model, "vocab", true, "model", err);
    if (rc == 0)
        rc = lf_json_get_array(&merges, model, "merges", true, "model", err);
    if (rc == 0)
        rc = lf_json_get_bool(&t->ignore_merges, model, "ignore_merges", false, "model", err);
    if (rc == 0)
        rc = lf_bpe_init(&t->bpe, json_array_size(merges), err);
    if (rc == 0)
        rc = lf_json_get_bool(&t->bpe.fuse_unk, model, "fuse_unk", false, "model", err);
    if (rc == 0)
        rc = load_vocab(t, vocab, path, err);
    if (rc == 0)
        rc = load_merges(t, vocab, merges, path, err);
    if (rc != 0)
        return rc;
    const json_t *u = json_object_get(model, "unk_token");
    if (json_is_string(u)) {
        unk = json_string_value(u);
        const json_t *id = json_object_get(vocab, unk);
        if (!id)
            return lf_fail(err, LF_EFORMAT, "%s: model.unk_token \"%.100s\" is not in model.vocab", path, unk);
        t->bpe.unk = json_integer_value(id);
    }
    t->names = json_incref(vocab);
    return 0;
}

static int read_added(lf_added *a, json_t *o, int64_t *id, const char *path, lf_err *err)
{
    const char *content = NULL;
    int rc =
        json_is_object(o) ? 0 : lf_fail(err, LF_EFORMAT, "%s: added_tokens holds something that is no object", path);
    a->normalized = true;
    if (rc == 0)
        rc = lf_json_get_i64(id, o, "id", true, "added token", err);
    if (rc == 0)
        rc = lf_json_get_str(&content, o, "content", true, "added token", err);
    if (rc == 0)
        rc = lf_json_get_bool(&a->single_word, o, "single_word", false, "added token", err);
    if (rc == 0)
        rc = lf_json_get_bool(&a->lstrip, o, "lstrip", false, "added token", err);
    if (rc == 0)
        rc = lf_json_get_bool(&a->rstrip, o, "rstrip", false, "added token", err);
    if (rc == 0)
        rc = lf_json_get_bool(&a->normalized, o, "normalized", false, "added token", err);
    if (rc == 0)
        rc = lf_json_get_bool(&a->special, o, "special", false, "added token", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    a->len = strlen(content);
    if (a->len > LF_TOK_TOKEN_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: an added token of %zu bytes is above the limit", path, a->len);
    a->content = lf_strdup(content, err);
    return a->content ? 0 : LF_ENOMEM;
}

/* What the normaliser makes of a token that is matched after it. */
static int normalize_added(lf_tokenizer *t, struct lf_tok_bufs *bufs, lf_added *a, lf_err *err)
{
    const uint8_t *p = (const uint8_t *)a->content;
    size_t n = a->len;
    int rc = a->normalized ? lf_tok_normalize(t, bufs, &p, &n, p, n, err) : 0;
    if (rc != 0)
        return rc;
    a->match = lf_strndup((const char *)p, n, err);
    a->match_len = n;
    return a->match ? 0 : LF_ENOMEM;
}

/* Enter one token into the id table. The library gives ids itself: the vocabulary's when the text is there, else the
 * next after the vocabulary; a file that says otherwise would mean different things here and there. */
static int place_added(lf_tokenizer *t, lf_added *a, int64_t file_id, uint32_t *next_id, const char *path, lf_err *err)
{
    bool mapped;
    const json_t *known = json_object_get(t->names, a->content);
    int64_t id = known ? (int64_t)json_integer_value(known) : (int64_t)(*next_id)++;
    if (id != file_id)
        return lf_fail(err, LF_EFORMAT, "%s: added token \"%.100s\" has id %lld, but its place gives it %lld", path,
                       a->content, (long long)file_id, (long long)id);
    int rc = grow_tokens(t, (uint32_t)id, err);
    if (rc != 0)
        return rc;
    lf_token *tok = &t->tokens[id];
    tok->bytes = token_bytes(t, a->match, a->match_len, &tok->len, &mapped, err);
    tok->special = a->special;
    a->id = (uint32_t)id;
    if (!tok->bytes || json_object_set_new(t->names, a->content, json_integer(id)) != 0)
        return lf_fail(err, LF_ENOMEM, "no memory for added tokens");
    return 0;
}

static int load_added(lf_tokenizer *t, json_t *list, const char *path, lf_err *err)
{
    size_t n = json_array_size(list), i;
    if (n > LF_TOK_ADDED_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: %zu added tokens are above the limit of %d", path, n, LF_TOK_ADDED_MAX);
    struct lf_tok_bufs bufs = {.scratch = {NULL, 0}};
    lf_buf_init(&bufs.a);
    lf_buf_init(&bufs.b);
    uint32_t next_id = (uint32_t)json_object_size(t->names);
    t->added = lf_calloc(n ? n : 1, sizeof(*t->added), err);
    int rc = t->added ? 0 : LF_ENOMEM;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        if (rc != 0)
            break;
        lf_added *a = &t->added[t->n_added];
        int64_t id = 0;
        rc = read_added(a, o, &id, path, err);
        if (rc == 0 && a->len == 0) { /* the library skips these */
            free(a->content);
            *a = (lf_added){0};
            continue;
        }
        t->n_added++; /* now owned by t, whatever happens */
        if (rc == 0)
            rc = normalize_added(t, &bufs, a, err);
        if (rc == 0)
            rc = place_added(t, a, id, &next_id, path, err);
    }
    if (rc == 0)
        rc = lf_trie_build(&t->raw, t->added, t->n_added, false, err);
    if (rc == 0)
        rc = lf_trie_build(&t->normed, t->added, t->n_added, true, err);
    lf_buf_fini(&bufs.a);
    lf_buf_fini(&bufs.b);
    free(bufs.scratch.cp);
    return rc;
}

static int load_all(lf_tokenizer *t, json_t *root, const char *path, lf_err *err)
{
    static const char *const null_only[] = {"truncation", "padding"};
    json_t *model = NULL, *added = NULL;
    if (!json_is_object(root))
        return lf_fail(err, LF_EFORMAT, "%s: not a tokenizer.json: no object at the top", path);
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(root, null_only[i]) && !json_is_null(json_object_get(root, null_only[i])))
            return lf_fail(err, LF_ENOTSUP, "%s: %s is set; texts are never cut or padded here, set it to null", path,
                           null_only[i]);
    int rc = lf_json_get_object(&model, root, "model", true, path, err);
    if (rc == 0)
        rc = load_model(t, model, path, err);
    if (rc == 0)
        rc = lf_tok_load_parts(t, root, path, err);
    if (rc == 0)
        rc = lf_json_get_array(&added, root, "added_tokens", false, path, err);
    if (rc == 0)
        rc = load_added(t, added, path, err);
    if (rc == 0 && t->n_tokens == 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: the vocabulary is empty", path);
    return rc;
}

lf_tokenizer *lf_tokenizer_parse(const char *json, size_t len, const char *path, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    json_t *root = lf_json_load_text(json, len, path, err);
    lf_tokenizer *t = root ? lf_calloc(1, sizeof(*t), err) : NULL;
    int rc = t ? lf_hash_buf(digest, json, len, err) : LF_ENOMEM;
    if (rc == 0) {
        lf_hash_hex(t->sha256, digest);
        t->arena = lf_arena_create(err);
        t->cls = t->arena ? lf_uniclass_create(err) : NULL;
        rc = t->cls ? load_all(t, root, path, err) : LF_ENOMEM;
    }
    json_decref(root);
    if (rc == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

lf_tokenizer *lf_tokenizer_load(const char *path, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    lf_tokenizer *t = NULL;
    if (lf_io_read_file(path, LF_TOK_FILE_MAX, &text, err) == 0)
        t = lf_tokenizer_parse(text.data, text.len, path, err);
    lf_buf_fini(&text);
    return t;
}

void lf_tokenizer_destroy(lf_tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_added; i++) {
        free(t->added[i].content);
        free(t->added[i].match);
    }
    free(t->added);
    lf_trie_fini(&t->raw);
    lf_trie_fini(&t->normed);
    for (size_t i = 0; i < t->n_pretok; i++)
        lf_regex_destroy(t->pretok[i].re);
    lf_ids_fini(&t->before);
    lf_ids_fini(&t->after);
    lf_bpe_fini(&t->bpe);
    json_decref(t->names);
    free(t->tokens);
    free(t->cls);
    lf_arena_destroy(t->arena);
    free(t);
}
