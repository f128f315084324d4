/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json -> lf_tokenizer: the order of its parts and the added tokens. Components are read
 * by tokenizer_parts.c and tokenizer_decoder.c, the model by tokenizer_model.c.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/token/decode.h"
#include "engine/text/token/tokenizer_parts.h"
#include "engine/text/token/uniclass.h"

static int read_added(lf_added *a, json_t *o, int64_t *id, const char *path, lf_err *err)
{
    const char *content = NULL;
    int rc =
        json_is_object(o)
            ? 0
            : lf_fail(err, LF_EFORMAT, "%s: added_tokens holds something that is no object", path);
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
        return lf_fail(err, LF_EFORMAT, "%s: an added token of %zu bytes is above the limit", path,
                       a->len);
    a->content = lf_strdup(content, err);
    return a->content ? 0 : LF_ENOMEM;
}

/* What the normaliser makes of a token that is matched after it. */
static int normalize_added(lf_tokenizer *t, struct lf_tok_bufs *bufs, lf_added *a, lf_err *err)
{
    lf_bytes match = {(const uint8_t *)a->content, a->len};
    int rc = a->normalized ? lf_tok_normalize(t, bufs, &match, err) : 0;
    if (rc != 0)
        return rc;
    a->match = lf_strndup((const char *)match.p, match.n, err);
    a->match_len = match.n;
    return a->match ? 0 : LF_ENOMEM;
}

/* Enter one token into the id table. The library gives ids itself: the vocabulary's when the text
 * is there, else the next after the vocabulary; a file that says otherwise would mean different
 * things here and there. */
static int place_added(lf_tokenizer *t, lf_added *a, int64_t file_id, bool any_id,
                       uint32_t *next_id, const char *path, lf_err *err)
{
    const json_t *known = json_object_get(t->names, a->content);
    int64_t id = known ? (int64_t)json_integer_value(known) : (int64_t)(*next_id)++;
    if (id != file_id && !any_id)
        return lf_fail(err, LF_EFORMAT,
                       "%s: added token \"%.100s\" has id %lld, but its place gives it %lld", path,
                       a->content, (long long)file_id, (long long)id);
    id = file_id;
    if (id < 0 || id > UINT32_MAX - 1 || (uint64_t)id > (uint64_t)t->n_tokens + 65536)
        return lf_fail(err, LF_EFORMAT, "%s: added token \"%.100s\" has the bad id %lld", path,
                       a->content, (long long)id);
    a->id = (uint32_t)id;
    int rc = lf_tok_grow(t, a->id, err);
    if (rc != 0)
        return rc;
    lf_token *tok = &t->tokens[id];
    bool piece =
        t->spm && tok->bytes; /* a control symbol or piece of the .model stays what it is */
    tok->bytes = piece ? tok->bytes : NULL;
    rc = piece ? 0 : lf_tok_set_token(t, a->id, a->match, a->match_len, path, err);
    tok->special = a->special || (piece && tok->special);
    if (t->spm && !piece)
        tok->kind = LF_TOKEN_ADDED;
    if (rc == 0 && json_object_set_new(t->names, a->content, json_integer(id)) != 0)
        return lf_fail(err, LF_ENOMEM, "no memory for added tokens");
    return rc;
}

int lf_tok_load_added(lf_tokenizer *t, json_t *list, bool any_id, const char *path, lf_err *err)
{
    size_t n = json_array_size(list), i;
    if (n == 0)
        return 0;
    if (n > LF_TOK_ADDED_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: %zu added tokens are above the limit of %d", path, n,
                       LF_TOK_ADDED_MAX);
    struct lf_tok_bufs bufs;
    lf_tok_bufs_init(&bufs);
    /* a Unigram's list may name a token twice */
    uint32_t next_id = t->model.kind == LF_MODEL_UNIGRAM ? (uint32_t)t->model.n_score
                                                         : (uint32_t)json_object_size(t->names);
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
            rc = place_added(t, a, id, any_id, &next_id, path, err);
    }
    if (rc == 0)
        rc = lf_trie_build(&t->raw, t->added, t->n_added, false, err);
    if (rc == 0)
        rc = lf_trie_build(&t->normed, t->added, t->n_added, true, err);
    lf_tok_bufs_fini(&bufs);
    return rc;
}

/* What cuts and pads texts is checked and left alone, as transformers does unless a call asks for
 * it: texts keep all their tokens here, and batches are packed. Padding names its token, which
 * tokenizer_config.json may name otherwise. */
static int load_limits(lf_tokenizer *t, json_t *root, const char *path, lf_err *err)
{
    static const char *const keys[] = {"truncation", "padding"};
    const char *pad = NULL;
    json_t *v[2] = {NULL};
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++)
        if (!json_is_null(json_object_get(root, keys[i])))
            rc = lf_json_get_object(&v[i], root, keys[i], false, path, err);
    if (rc == 0 && v[1])
        rc = lf_json_get_str(&pad, v[1], "pad_token", false, "padding", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    t->pad = pad ? lf_tokenizer_find(t, pad) : -1;
    return 0;
}

static int load_all(lf_tokenizer *t, json_t *root, const char *path, lf_err *err)
{
    json_t *model = NULL, *added = NULL;
    if (!json_is_object(root))
        return lf_fail(err, LF_EFORMAT, "%s: not a tokenizer.json: no object at the top", path);
    int rc = lf_json_get_object(&model, root, "model", true, path, err);
    if (rc == 0)
        rc = lf_tok_load_parts(t, root, path, err);
    if (rc == 0)
        rc = lf_tok_load_model(t, model, path, err);
    if (rc == 0)
        rc = lf_json_get_array(&added, root, "added_tokens", false, path, err);
    if (rc == 0)
        rc = lf_tok_load_added(t, added, false, path, err);
    if (rc == 0)
        rc = load_limits(t, root, path, err);
    if (rc == 0 && t->n_tokens == 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: the vocabulary is empty", path);
    return rc == 0 ? lf_tok_fill_bytes(t, err) : rc;
}

lf_tokenizer *lf_tok_create(lf_err *err)
{
    lf_tokenizer *t = lf_calloc(1, sizeof(*t), err);
    if (!t)
        return NULL;
    t->bos = t->eos = t->pad = t->unk = t->model.unk = -1;
    t->arena = lf_arena_create(err);
    t->cls = t->arena ? lf_uniclass_create(err) : NULL;
    if (t->cls)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
}

lf_tokenizer *lf_tok_from_json(void *root, const char *path, lf_err *err)
{
    lf_tokenizer *t = lf_tok_create(err);
    if (t && load_all(t, root, path, err) == 0)
        return t;
    lf_tokenizer_destroy(t);
    return NULL;
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
    for (size_t i = 0; i < t->n_norms; i++)
        lf_normstep_fini(&t->norms[i]);
    for (size_t i = 0; i < t->n_pretok; i++)
        lf_regex_destroy(t->pretok[i].re);
    for (size_t i = 0; i < t->n_decs; i++) {
        lf_normstep_fini(&t->decs[i].rep);
        free(t->decs[i].text);
    }
    lf_ids_fini(&t->before);
    lf_ids_fini(&t->after);
    lf_bpe_fini(&t->bpe);
    lf_model_fini(&t->model);
    if (t->spm)
        lf_spm_fini(t->spm);
    free(t->spm);
    json_decref(t->names);
    free(t->tokens);
    free(t->cls);
    free(t->ucls);
    lf_arena_destroy(t->arena);
    free(t);
}
