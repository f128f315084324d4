/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the grower: old and donor vocabulary in, grown file out.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/token/spm.h"
#include "engine/text/token/spm_read.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/vocab/grow_priv.h"
#include "engine/text/vocab/train_sp_priv.h"

/* ---- reading ---- */

/* Is it BPE with byte fallback (1), byte-level BPE (0), or something else (negative)? */
static int kind_of(json_t *root, const char *path, lf_err *err)
{
    json_t *model = NULL;
    const char *type = "BPE";
    bool fallback = false;
    int rc = lf_json_get_object(&model, root, "model", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&type, model, "type", false, path, err);
    if (rc == 0 && strcmp(type, "BPE") != 0)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: a vocabulary of type %.40s cannot grow%s; byte-level and SentencePiece BPE can",
            path, type,
            strcmp(type, "Unigram") == 0 ? ": added pieces would change the cut of every text"
                                         : "");
    if (rc == 0)
        rc = lf_json_get_bool(&fallback, model, "byte_fallback", false, path, err);
    return rc != 0 ? rc : fallback;
}

/* Unigram has a list of pieces and scores, whose ids are their places. */
static void list_pieces(const char **t, const json_t *vocab)
{
    const json_t *v;
    size_t i;
    json_array_foreach(vocab, i, v)
    {
        t[i] = json_string_value(json_array_get(v, 0));
    }
}

/* tokens[id] = text for model.vocab and added tokens; size is one behind the largest id. added[id]
 * is set for the latter. */
static int list_tokens(const char ***out, uint8_t **added, size_t *size, json_t *root,
                       const char *path, lf_err *err)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *v;
    json_t *list = json_object_get(root, "added_tokens");
    const char *text;
    json_int_t top = (json_int_t)json_array_size(vocab) - 1;
    size_t i,
        most =
            2 * (json_object_size(vocab) + json_array_size(vocab) + json_array_size(list)) + 65536;
    json_object_foreach(vocab, text, v) top =
        json_integer_value(v) > top ? json_integer_value(v) : top;
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        top = id > top ? id : top;
    }
    if (top < 0 || (size_t)top > most)
        return lf_fail(err, LF_EFORMAT, "%s: bad token ids", path);
    const char **t = lf_calloc((size_t)top + 1, sizeof(*t), err);
    *added = lf_calloc((size_t)top + 1, 1, err);
    if (!t || !*added) {
        free(t);
        return LF_ENOMEM;
    }
    json_object_foreach(vocab, text, v) if (json_integer_value(v) >= 0) t[json_integer_value(v)] =
        text;
    list_pieces(t, vocab);
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        const char *s = json_string_value(json_object_get(v, "content"));
        if (id < 0 || !s || !*s)
            continue;
        t[id] = s;
        (*added)[id] = 1;
    }
    *out = t;
    *size = (size_t)top + 1;
    return 0;
}

static bool is_byte_piece(const char *t)
{
    return strlen(t) == 6 && strncmp(t, "<0x", 3) == 0 && t[5] == '>';
}

static int load_json(lf_grower *g, const char *path, lf_err *err)
{
    const char **texts = NULL;
    uint8_t *added = NULL;
    int kind = g->specials_only ? 0 : kind_of(g->root, path, err);
    int rc = kind < 0 ? kind : list_tokens(&texts, &added, &g->old, g->root, path, err);
    g->sp = kind == 1;
    if (rc == 0)
        rc = lf_vocab_init(&g->v, g->old + 1, err);
    g->parts = rc == 0 ? lf_calloc(g->old, 1, err) : NULL;
    if (rc == 0 && !g->parts)
        rc = LF_ENOMEM;
    for (size_t i = 0; i < g->old && rc == 0; i++) {
        rc = lf_vocab_push(&g->v, texts[i], err);
        if (rc == 0 && texts[i])
            g->parts[i] =
                !added[i] && (int64_t)i != g->t->bpe.unk && !(g->sp && is_byte_piece(texts[i]));
    }
    free(added);
    free(texts);
    return rc;
}

static int load_pieces(lf_grower *g, const lf_spm_file *f, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    g->sp = true;
    g->old = f->n;
    g->parts = lf_calloc(f->n, 1, err);
    int rc = g->parts ? lf_vocab_init(&g->v, f->n + 1, err) : LF_ENOMEM;
    for (size_t i = 0; i < f->n && rc == 0; i++) {
        lf_buf_clear(&text);
        lf_buf_add(&text, f->v[i].text, f->v[i].len);
        rc = lf_buf_check(&text, err);
        if (rc == 0)
            rc = lf_vocab_push(&g->v, text.data, err);
        g->parts[i] = f->v[i].type == LF_SPM_NORMAL;
        if (g->parts[i] && f->v[i].score < g->least)
            g->least = f->v[i].score;
    }
    lf_buf_fini(&text);
    return rc;
}

static int load_model(lf_grower *g, const char *data, size_t len, const char *path, lf_err *err)
{
    lf_spm_file f = {0};
    int rc = lf_spm_read(&f, (const uint8_t *)data, len, path, err);
    if (rc == 0 && !g->specials_only && f.model_type != LF_SPM_BPE)
        rc = lf_fail(err, LF_ENOTSUP, "%s: only SentencePiece models of type bpe can grow%s", path,
                     f.model_type == LF_SPM_UNIGRAM
                         ? "; added pieces of Unigram would change the cut of every text"
                         : "");
    if (rc == 0 && !g->specials_only && !f.byte_fallback)
        rc = lf_fail(err, LF_ENOTSUP, "%s: a SentencePiece model without byte fallback cannot grow",
                     path);
    if (rc == 0)
        rc = load_pieces(g, &f, err);
    lf_spm_file_fini(&f);
    if (rc != 0)
        return rc;
    lf_buf_add(&g->raw, data, len);
    g->t = lf_tokenizer_parse(data, len, path, err);
    return g->t ? lf_buf_check(&g->raw, err) : LF_EFORMAT;
}

int lf_grower_load(lf_grower *g, const char *data, size_t len, const char *path, lf_err *err)
{
    if (lf_spm_is_model((const uint8_t *)data, len))
        return load_model(g, data, len, path, err);
    g->root = lf_json_load_text(data, len, path, err);
    if (!g->root)
        return LF_EFORMAT;
    int kind = g->specials_only ? 0 : kind_of(g->root, path, err);
    if (kind < 0)
        return kind;
    g->t = lf_tokenizer_parse(data, len, path, err);
    return g->t ? load_json(g, path, err) : LF_EFORMAT;
}

int lf_grower_donor(lf_grower *g, const char *json, size_t len, const char *path, lf_err *err)
{
    const char **texts = NULL;
    uint8_t *added = NULL;
    size_t n = 0;
    json_t *root = lf_json_load_text(json, len, path, err);
    lf_tokenizer *t = root ? lf_tokenizer_parse(json, len, path, err)
                           : NULL; /* everything about it is checked here */
    int kind = t ? kind_of(root, path, err) : LF_EFORMAT, rc = kind < 0 ? kind : 0;
    if (rc == 0 && (kind == 1) != g->sp)
        rc = lf_fail(err, LF_EINVAL, "%s does not fit: it is %s BPE, the old tokenizer %s", path,
                     kind ? "SentencePiece's" : "byte-level",
                     g->sp ? "SentencePiece's" : "byte-level");
    if (rc == 0)
        rc = list_tokens(&texts, &added, &n, root, path, err);
    if (rc == 0)
        rc = lf_vocab_init(&g->donor, n + 1, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (texts[i] && !added[i] && !(g->sp && is_byte_piece(texts[i])) &&
            lf_vocab_find(&g->v, texts[i]) < 0)
            rc = lf_vocab_push(&g->donor, texts[i], err);
    free(added);
    free(texts);
    lf_tokenizer_destroy(t);
    json_decref(root);
    return rc;
}

bool lf_grower_bytes(const lf_grower *g, const char *text, lf_buf *out)
{
    lf_buf_clear(out);
    if (g->sp) {
        lf_buf_adds(out, text);
        return true;
    }
    unsigned step;
    for (const uint8_t *p = (const uint8_t *)text; *p; p += step) {
        int b = lf_byte_of_char(lf_utf8_get(p, &step));
        if (b < 0)
            return false;
        lf_buf_addc(out, (char)b);
    }
    return true;
}

/* ---- writing ---- */

/* As "a b" or ["a","b"], whichever the file has. */
static int add_merge(json_t *list, bool pairs, const char *a, const char *b)
{
    return json_array_append_new(list,
                                 pairs ? json_pack("[s,s]", a, b) : json_sprintf("%s %s", a, b));
}

/* Every cut of a new piece into two others: what SentencePiece joins. */
static int add_cuts(const lf_grower *g, json_t *list, bool pairs, const char *text, lf_err *err)
{
    char *left = lf_strdup(text, err);
    int bad = left ? 0 : -1;
    for (size_t k = strlen(text); left && --k > 0 && !bad;) {
        left[k] = 0;
        if (((unsigned char)text[k] & 0xC0) != 0x80 &&
            lf_grower_joins(g, lf_vocab_find(&g->v, text + k)) &&
            lf_grower_joins(g, lf_vocab_find(&g->v, left)))
            bad = add_merge(list, pairs, left, text + k);
    }
    free(left);
    return bad;
}

/* Added tokens that model.vocab lacks. */
static int put_added(json_t *vocab, const json_t *added)
{
    const json_t *a;
    size_t i;
    int bad = 0;
    json_array_foreach(added, i, a)
    {
        const char *s = json_string_value(json_object_get(a, "content"));
        if (!bad && s && *s && !json_object_get(vocab, s))
            bad = json_object_set_new(vocab, s,
                                      json_integer(json_integer_value(json_object_get(a, "id"))));
    }
    return bad;
}

static int write_json(const lf_grower *g, lf_buf *out, lf_err *err)
{
    json_t *root = json_deep_copy(g->root), *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    bool pairs = json_is_array(json_array_get(merges, 0));
    size_t i, n = g->v.n - g->n_special;
    int bad = root ? 0 : -1;
    if (!bad && !g->specials_only)
        bad = put_added(vocab, json_object_get(root, "added_tokens"));
    for (i = g->old; i < n && !bad; i++)
        bad = json_object_set_new(vocab, g->v.text[i], json_integer((json_int_t)i));
    for (i = 0; i < g->n_merges && !g->sp && !bad; i++)
        bad = add_merge(merges, pairs, g->v.text[g->merges[i].a], g->v.text[g->merges[i].b]);
    for (i = g->old + g->n_chars; i < n && g->sp && !bad; i++)
        bad = add_cuts(g, merges, pairs, g->v.text[i], err);
    if (!bad)
        bad = lf_grower_put_specials(g, root);
    char *text = bad ? NULL : json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (!text)
        return lf_fail(err, LF_ENOMEM, "no memory for the grown tokenizer");
    lf_buf_adds(out, text);
    lf_buf_addc(out, '\n');
    free(text);
    return lf_buf_check(out, err);
}

/* The old bytes, then more pieces: fields of a protobuf message may follow each other in any number
 * of parts. */
static int write_model(const lf_grower *g, lf_buf *out, lf_err *err)
{
    int rc = 0;
    if (g->least - (float)g->n_tokens < -16777216.0f)
        return lf_fail(err, LF_ENOTSUP, "scores below %g leave no room for %zu pieces",
                       (double)g->least, g->n_tokens);
    lf_buf_add(out, g->raw.data, g->raw.len);
    /* Characters never compete; merges in the order that they were learned in. */
    for (size_t i = g->old; i < g->v.n && rc == 0; i++)
        rc = i < g->v.n - g->n_special
                 ? lf_sp_add_piece(out, g->v.text[i], g->least - 1 - (float)(i - g->old),
                                   LF_SPM_NORMAL, err)
                 : lf_sp_add_piece(out, g->v.text[i], 0, LF_SPM_CONTROL, err);
    if (rc == 0)
        rc = lf_sp_add_size(out, g->v.n, err);
    return rc == 0 ? lf_buf_check(out, err) : rc;
}

int lf_grower_write(const lf_grower *g, lf_buf *out, lf_err *err)
{
    return g->root ? write_json(g, out, err) : write_model(g, out, err);
}
