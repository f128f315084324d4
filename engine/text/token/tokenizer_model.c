/* SPDX-License-Identifier: Apache-2.0
 *
 * "model" of a tokenizer.json: vocabulary, merges, scores; and what every token stands for.
 */
#include "config.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/text/token/decode.h"
#include "engine/text/token/tokenizer_parts.h"
#include "engine/text/token/uniclass.h"

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes are U+0100 and on,
 * in order. */
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

const uint8_t *lf_tok_alphabet_bytes(lf_tokenizer *t, const char *text, size_t n, uint32_t *len,
                                     bool *mapped, lf_err *err)
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

int lf_tok_grow(lf_tokenizer *t, uint32_t id, lf_err *err)
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

int lf_tok_set_token(lf_tokenizer *t, uint32_t id, const char *text, size_t n, const char *path,
                     lf_err *err)
{
    lf_token *tok = &t->tokens[id];
    if (tok->bytes)
        return lf_fail(err, LF_EFORMAT, "%s: id %u is given twice, second for \"%.100s\"", path, id,
                       text);
    if (n > LF_TOK_TOKEN_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: a token of %zu bytes is above the limit", path, n);
    char *copy = lf_arena_alloc(t->arena, n + 1, 1, err);
    if (!copy)
        return LF_ENOMEM;
    memcpy(copy, text, n);
    tok->text = tok->bytes = (const uint8_t *)copy;
    tok->len = tok->n_text = (uint32_t)n;
    return 0;
}

/* What a token stands for: through the byte alphabet, or what the decoder makes of it inside a
 * text. */
static int fill_one(lf_tokenizer *t, lf_token *tok, lf_err *err)
{
    bool mapped;
    if (t->decs[0].type == LF_DEC_BYTELEVEL) {
        tok->bytes =
            lf_tok_alphabet_bytes(t, (const char *)tok->text, tok->n_text, &tok->len, &mapped, err);
        return tok->bytes ? 0 : LF_ENOMEM;
    }
    int byte = -1;
    for (size_t i = 0; i < t->n_decs && byte < 0; i++)
        if (t->decs[i].type == LF_DEC_BYTEFALLBACK)
            byte = lf_tok_byte_token((const char *)tok->text, tok->n_text);
    lf_buf b;
    lf_buf_init(&b);
    int rc = 0;
    if (byte >= 0) {
        tok->kind = LF_TOKEN_BYTE;
        lf_buf_addc(&b, (char)byte);
    } else {
        rc = lf_tok_one_token(t, (const char *)tok->text, tok->n_text, &b, err);
    }
    char *copy = rc == 0 ? lf_arena_alloc(t->arena, b.len + 1, 1, err) : NULL;
    if (copy) {
        memcpy(copy, b.data, b.len);
        tok->bytes = (const uint8_t *)copy;
        tok->len = (uint32_t)b.len;
    } else if (rc == 0) {
        rc = LF_ENOMEM;
    }
    lf_buf_fini(&b);
    return rc;
}

int lf_tok_fill_bytes(lf_tokenizer *t, lf_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < t->n_tokens && rc == 0; i++)
        if (t->tokens[i].text)
            rc = fill_one(t, &t->tokens[i], err);
    return rc;
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
            return lf_fail(err, LF_EFORMAT,
                           "%s: model.vocab: token \"%.100s\" has a bad id (vocabulary of %zu)",
                           path, text, n);
        top = id > top ? id : top;
    }
    int rc = top >= 0 ? lf_tok_grow(t, (uint32_t)top, err) : 0;
    json_object_foreach(vocab, text, v)
    {
        if (rc == 0)
            rc =
                lf_tok_set_token(t, (uint32_t)json_integer_value(v), text, strlen(text), path, err);
    }
    return rc;
}

/* Byte-level: ids of single bytes, and whole words for ignore_merges. */
static int index_bytes(lf_tokenizer *t, lf_err *err)
{
    int rc = t->bpe.ignore_merges ? lf_bpe_init_words(&t->bpe, t->n_tokens, err) : 0;
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++) {
        uint32_t len;
        bool mapped;
        const lf_token *tok = &t->tokens[id];
        if (!tok->text)
            continue;
        const uint8_t *b =
            lf_tok_alphabet_bytes(t, (const char *)tok->text, tok->n_text, &len, &mapped, err);
        if (!b)
            return LF_ENOMEM;
        if (mapped && len == 1)
            t->bpe.byte_id[b[0]] = (int32_t)id;
        if (mapped && len > 0 && t->bpe.ignore_merges)
            lf_bpe_add_word(&t->bpe, b, len, id);
    }
    return rc;
}

/* Characters: ids of single characters and of <0x..>, and whole words where texts are looked up. */
static int index_chars(lf_tokenizer *t, json_t *model, size_t n_merges, const char *path,
                       lf_err *err)
{
    bool fallback = false;
    const char *prefix = "", *suffix = "";
    int rc = lf_json_get_bool(&fallback, model, "byte_fallback", false, "model", err);
    if (rc == 0 && json_is_string(json_object_get(model, "continuing_subword_prefix")))
        rc = lf_json_get_str(&prefix, model, "continuing_subword_prefix", false, "model", err);
    if (rc == 0 && json_is_string(json_object_get(model, "end_of_word_suffix")))
        rc = lf_json_get_str(&suffix, model, "end_of_word_suffix", false, "model", err);
    if (rc == 0 && (strlen(prefix) > 100 || strlen(suffix) > 100))
        rc = lf_fail(err, LF_EFORMAT, "model: an affix is above 100 bytes");
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    rc = lf_bpe_chars_init(&t->bpe, t->n_tokens, n_merges, err);
    lf_bpe_chars *c = t->bpe.chars;
    if (rc == 0 && *prefix)
        rc = (c->prefix = lf_strdup(prefix, err)) ? 0 : LF_ENOMEM;
    if (rc == 0 && *suffix)
        rc = (c->suffix = lf_strdup(suffix, err)) ? 0 : LF_ENOMEM;
    if (rc == 0 && (t->bpe.ignore_merges || *prefix || *suffix))
        rc = lf_bpe_init_words(&t->bpe, t->n_tokens, err);
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++) {
        const lf_token *tok = &t->tokens[id];
        if (!tok->text || tok->n_text == 0)
            continue;
        unsigned k;
        uint32_t ch = lf_utf8_get(tok->text, &k);
        int byte = fallback ? lf_tok_byte_token((const char *)tok->text, tok->n_text) : -1;
        if (k == tok->n_text)
            lf_bpe_add_char(&t->bpe, ch, (int32_t)id);
        if (t->bpe.words)
            lf_bpe_add_word(&t->bpe, tok->text, tok->n_text, id);
        if (byte >= 0 && tok->text[3] != '+' && !(tok->text[3] >= 'a') && !(tok->text[4] >= 'a'))
            c->byte_tok[byte] = (int32_t)id;
    }
    return rc;
}

/* May a text be cut between characters that no merge joins? Not where the result depends on more
 * than merges: unknown characters of a word beside each other, affixes, whole words, merges of byte
 * tokens or of unk. */
static bool may_cut(const lf_bpe *b, const bool *in_merge)
{
    const lf_bpe_chars *c = b->chars;
    bool all = true;
    for (int i = 0; i < 256; i++) {
        all = all && c->byte_tok[i] >= 0;
        if (c->byte_tok[i] >= 0 && in_merge[c->byte_tok[i]])
            return false;
    }
    bool unk_alone = b->unk < 0 || (!in_merge[b->unk] && !b->fuse_unk);
    return !c->prefix && !c->suffix && !b->ignore_merges && (all || unk_alone);
}

/* Id of a text of n bytes that need not end with NUL; -1 none. buf is scratch. */
static int64_t vocab_find(json_t *vocab, lf_buf *buf, const char *a, size_t na, const char *b,
                          size_t nb)
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

struct merge_job {
    lf_tokenizer *t;
    json_t *vocab;
    lf_buf buf;
    bool *in_merge; /* [n_tokens]: is a half or a result */
    size_t n_prefix;
    const char *path;
};

static int one_merge(struct merge_job *j, json_t *m, size_t i, uint32_t *rank, lf_err *err)
{
    const char *a, *b;
    size_t na, nb;
    lf_tokenizer *t = j->t;
    if (json_is_string(m) && lf_str_has_prefix(json_string_value(m), "#version"))
        return 0;
    if (!merge_halves(m, &a, &na, &b, &nb))
        return lf_fail(err, LF_EFORMAT, "%s: model.merges[%zu] is not a pair of tokens", j->path,
                       i);
    int64_t left = vocab_find(j->vocab, &j->buf, a, na, "", 0);
    int64_t right = left < 0 ? -1 : vocab_find(j->vocab, &j->buf, b, nb, "", 0);
    size_t skip = nb >= j->n_prefix ? j->n_prefix : nb;
    int64_t both = right < 0 ? -1 : vocab_find(j->vocab, &j->buf, a, na, b + skip, nb - skip);
    int rc = lf_buf_check(&j->buf, err);
    if (rc != 0)
        return rc;
    if (both < 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: model.merges[%zu] (\"%.60s\" + \"%.60s\") needs the token \"%.120s\", "
                       "which is not in model.vocab",
                       j->path, i, a, b, j->buf.data);
    lf_bpe_add_merge(&t->bpe, (uint32_t)left, (uint32_t)right, (*rank)++, (uint32_t)both);
    if (t->bpe.chars && na > 0 && nb > 0)
        lf_bpe_add_pair(&t->bpe, (const uint8_t *)a, na, (const uint8_t *)b);
    j->in_merge[left] = j->in_merge[right] = j->in_merge[both] = true;
    return 0;
}

static int load_merges(lf_tokenizer *t, json_t *vocab, json_t *merges, const char *path,
                       lf_err *err)
{
    struct merge_job j = {.t = t, .vocab = vocab, .path = path};
    lf_buf_init(&j.buf);
    j.in_merge = lf_calloc((size_t)t->n_tokens + 1, sizeof(*j.in_merge), err);
    if (t->bpe.chars && t->bpe.chars->prefix)
        j.n_prefix = strlen(t->bpe.chars->prefix);
    uint32_t rank = 0;
    int rc = j.in_merge ? 0 : LF_ENOMEM;
    size_t i;
    json_t *m;
    json_array_foreach(merges, i, m)
    {
        if (rc == 0)
            rc = one_merge(&j, m, i, &rank, err);
    }
    if (rc == 0 && t->bpe.chars) {
        t->bpe.chars->cut = may_cut(&t->bpe, j.in_merge);
        t->bpe.chars->fallback = true;
        for (int k = 0; k < 256; k++)
            t->bpe.chars->fallback = t->bpe.chars->fallback && t->bpe.chars->byte_tok[k] >= 0;
    }
    lf_buf_fini(&j.buf);
    free(j.in_merge);
    return rc;
}

/* Members that would change the result and are not implemented must be absent, null, false or
 * empty. */
static int refuse_set(const json_t *model, const char *key, const char *path, lf_err *err)
{
    const json_t *v = json_object_get(model, key);
    bool off = !v || json_is_null(v) || json_is_false(v) ||
               (json_is_string(v) && json_string_length(v) == 0) ||
               (json_is_number(v) && !(json_number_value(v) > 0));
    return off ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "%s: model.%s is set, which this program does not support", path, key);
}

/* Id of model.unk_token, -1 when there is none; need: it must be in the vocabulary. */
static int find_unk(int64_t *out, const json_t *model, json_t *vocab, bool need, const char *path,
                    lf_err *err)
{
    const json_t *u = json_object_get(model, "unk_token");
    const json_t *id = json_is_string(u) ? json_object_get(vocab, json_string_value(u)) : NULL;
    if (json_is_string(u) && !id && need)
        return lf_fail(err, LF_EFORMAT, "%s: model.unk_token \"%.100s\" is not in model.vocab",
                       path, json_string_value(u));
    *out = id ? (int64_t)json_integer_value(id) : -1;
    return 0;
}

static int load_bpe(lf_tokenizer *t, json_t *model, json_t *vocab, const char *path, lf_err *err)
{
    static const char *const refused[] = {"dropout"};
    static const char *const byte_refused[] = {"continuing_subword_prefix", "end_of_word_suffix",
                                               "byte_fallback"};
    json_t *merges = NULL;
    int rc = refuse_set(model, refused[0], path, err);
    for (size_t i = 0; i < 3 && rc == 0 && t->byte_level; i++)
        rc = refuse_set(model, byte_refused[i], path, err);
    if (rc == 0)
        rc = lf_json_get_array(&merges, model, "merges", true, "model", err);
    if (rc == 0)
        rc = lf_bpe_init(&t->bpe, json_array_size(merges), err);
    if (rc == 0)
        rc = lf_json_get_bool(&t->bpe.ignore_merges, model, "ignore_merges", false, "model", err);
    if (rc == 0)
        rc = lf_json_get_bool(&t->bpe.fuse_unk, model, "fuse_unk", false, "model", err);
    if (rc == 0)
        rc = load_vocab(t, vocab, path, err);
    if (rc == 0)
        rc = find_unk(&t->bpe.unk, model, vocab, true, path, err);
    if (rc == 0)
        rc = t->byte_level ? index_bytes(t, err)
                           : index_chars(t, model, json_array_size(merges), path, err);
    return rc == 0 ? load_merges(t, vocab, merges, path, err) : rc;
}

static int load_wordpiece(lf_tokenizer *t, json_t *model, json_t *vocab, const char *path,
                          lf_err *err)
{
    const char *prefix = "##";
    int64_t max = 100;
    lf_model *m = &t->model;
    int rc = lf_json_get_str(&prefix, model, "continuing_subword_prefix", false, "model", err);
    if (rc == 0)
        rc = lf_json_get_i64(&max, model, "max_input_chars_per_word", false, "model", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    m->max_chars = max < 0 ? 0 : max > 1 << 20 ? 1u << 20 : (uint32_t)max;
    rc = load_vocab(t, vocab, path, err);
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++)
        if (t->tokens[id].text)
            rc = lf_vtrie_add(&m->trie, t->tokens[id].text, t->tokens[id].n_text, (int32_t)id, err);
    m->has_cont = m->trie.n > 0;
    for (const char *p = prefix; *p && m->has_cont; p++) {
        m->cont = lf_vtrie_step(&m->trie, m->cont, (uint8_t)*p);
        m->has_cont = m->cont != 0;
    }
    return rc == 0 ? find_unk(&m->unk, model, vocab, false, path, err) : rc;
}

static int load_wordlevel(lf_tokenizer *t, json_t *model, json_t *vocab, const char *path,
                          lf_err *err)
{
    int rc = load_vocab(t, vocab, path, err);
    for (uint32_t id = 0; id < t->n_tokens && rc == 0; id++)
        if (t->tokens[id].text)
            rc = lf_vtrie_add(&t->model.trie, t->tokens[id].text, t->tokens[id].n_text, (int32_t)id,
                              err);
    return rc == 0 ? find_unk(&t->model.unk, model, vocab, false, path, err) : rc;
}

static int unigram_piece(lf_tokenizer *t, json_t *names, json_t *row, uint32_t id, const char *path,
                         lf_err *err)
{
    const json_t *text = json_array_get(row, 0), *score = json_array_get(row, 1);
    if (!json_is_string(text) || !json_is_number(score) || !isfinite(json_number_value(score)))
        return lf_fail(err, LF_EFORMAT, "%s: model.vocab[%u] is not a text and a score", path, id);
    const char *s = json_string_value(text);
    lf_model *m = &t->model;
    m->score[id] = json_number_value(score);
    m->min_score = m->score[id] < m->min_score ? m->score[id] : m->min_score;
    int rc = lf_tok_set_token(t, id, s, strlen(s), path, err);
    if (rc == 0)
        rc = lf_vtrie_add(&m->trie, (const uint8_t *)s, strlen(s), (int32_t)id, err);
    if (rc == 0 && json_object_set_new(names, s, json_integer(id)) != 0)
        rc = lf_fail(err, LF_ENOMEM, "no memory for the vocabulary");
    return rc;
}

/* With byte_fallback: the library spells a run only when all of its bytes have tokens; real files
 * have all or none. */
static int unigram_bytes(lf_model *m, const char *path, lf_err *err)
{
    int found = 0;
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", (unsigned)i);
        m->byte_tok[i] = lf_vtrie_find(&m->trie, (const uint8_t *)text, 6);
        found += m->byte_tok[i] >= 0;
    }
    m->fallback = found == 256;
    return found == 0 || found == 256
               ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "%s: byte_fallback with only %d of 256 byte tokens is not supported", path,
                         found);
}

static int load_unigram(lf_tokenizer *t, json_t *model, const char *path, lf_err *err)
{
    json_t *vocab = NULL, *row, *unk = json_object_get(model, "unk_id");
    bool fallback = false;
    size_t i;
    lf_model *m = &t->model;
    int rc = lf_json_get_array(&vocab, model, "vocab", true, "model", err);
    if (rc == 0)
        rc = lf_json_get_bool(&fallback, model, "byte_fallback", false, "model", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    size_t n = json_array_size(vocab);
    if (n == 0 || n > INT32_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: the vocabulary is empty", path);
    if (unk && !json_is_null(unk) &&
        (!json_is_integer(unk) || json_integer_value(unk) < 0 ||
         json_integer_value(unk) >= (json_int_t)n))
        return lf_fail(err, LF_EFORMAT, "%s: model.unk_id is not in the vocabulary of %zu", path,
                       n);
    m->unk = json_is_integer(unk) ? (int64_t)json_integer_value(unk) : -1;
    m->min_score = DBL_MAX;
    m->score = lf_calloc(n, sizeof(*m->score), err);
    t->names = json_object();
    m->n_score = n;
    rc = m->score && t->names ? lf_tok_grow(t, (uint32_t)n - 1, err) : LF_ENOMEM;
    json_array_foreach(vocab, i, row)
    {
        if (rc == 0)
            rc = unigram_piece(t, t->names, row, (uint32_t)i, path, err);
    }
    return rc == 0 && fallback ? unigram_bytes(m, path, err) : rc;
}

int lf_tok_load_model(lf_tokenizer *t, json_t *model, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_model_kind kind;
        int (*load)(lf_tokenizer *t, json_t *model, json_t *vocab, const char *path, lf_err *err);
    } kinds[] = {{"BPE", LF_MODEL_BPE, load_bpe},
                 {"WordPiece", LF_MODEL_WORDPIECE, load_wordpiece},
                 {"WordLevel", LF_MODEL_WORDLEVEL, load_wordlevel}};
    const char *type = json_is_array(json_object_get(model, "vocab")) ? "Unigram" : "BPE";
    json_t *vocab = NULL;
    int rc = lf_json_get_str(&type, model, "type", false, path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "BPE") != 0 && t->byte_level)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: model type %.60s behind a ByteLevel pre_tokenizer is not supported",
                       path, type);
    if (strcmp(type, "Unigram") == 0) {
        t->model.kind = LF_MODEL_UNIGRAM;
        return load_unigram(t, model, path, err);
    }
    size_t i = 0;
    while (i < 3 && strcmp(type, kinds[i].name) != 0)
        i++;
    if (i == 3)
        return lf_fail(err, LF_ENOTSUP, "%s: model type %.60s is not known", path, type);
    rc = lf_json_get_object(&vocab, model, "vocab", true, "model", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    t->model.kind = kinds[i].kind;
    t->names = json_incref(vocab);
    return kinds[i].load(t, model, vocab, path, err);
}
