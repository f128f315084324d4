/* SPDX-License-Identifier: Apache-2.0
 *
 * Special tokens behind a vocabulary of any kind.
 *
 * The tokenizers library does not take the id of an added token from the file: one that model.vocab
 * has keeps its id there, any other follows the largest of the added ones and the number of entries
 * of the vocabulary. So a token whose id would be another is written into the vocabulary, too, and
 * where that is a list (Unigram), which has no room for it, it is refused.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/token/tokenizer_priv.h"
#include "engine/text/vocab/grow_priv.h"

/* ---- ids ---- */

/* The id that the library gives to the next added token that the vocabulary does not have. */
static size_t next_id(const json_t *root)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *a;
    size_t i, next = json_object_size(vocab) + json_array_size(vocab);
    json_array_foreach(json_object_get(root, "added_tokens"), i, a)
    {
        const size_t id = (size_t)json_integer_value(json_object_get(a, "id"));
        next = id >= next ? id + 1 : next;
    }
    return next;
}

static int check_ids(const lf_grower *g, lf_err *err)
{
    const json_t *vocab = json_object_get(json_object_get(g->root, "model"), "vocab");
    if (!json_is_array(vocab) || next_id(g->root) == g->old)
        return 0;
    return lf_fail(
        err, LF_ENOTSUP,
        "the old tokenizer has gaps between its ids, so libraries would give new special "
        "tokens others than %zu and on",
        g->old);
}

/* ---- tokens ---- */

static int check_text(const lf_grower *g, const char *text, lf_err *err)
{
    const int64_t id = lf_vocab_find(&g->v, text), known = lf_tokenizer_find(g->t, text);
    if (!text[0] || lf_utf8_check(text, strlen(text)) < strlen(text))
        return lf_fail(err, LF_EINVAL, "a special token is %s", text[0] ? "no UTF-8" : "empty");
    return id < 0 && known < 0
               ? 0
               : lf_fail(err, LF_EINVAL, "%s is a token already, with id %lld; leave it out", text,
                         (long long)(id < 0 ? known : id));
}

static int add(lf_grower *g, lf_tok_state *s, const char *text, lf_err *err)
{
    lf_ids ids = {0};
    uint64_t replaced = 0;
    int rc = check_text(g, text, err);
    lf_err none = LF_ERR_INIT; /* a vocabulary without bytes and <unk> cannot say every text */
    if (rc == 0 && lf_tokenizer_encode(s, text, strlen(text), LF_TOK_SPECIAL_TEXT, &ids, &replaced,
                                       &none) == LF_ENOMEM)
        rc = lf_fail(err, LF_ENOMEM, "%s", none.text);
    if (rc == 0)
        rc = lf_vocab_push(&g->v, text, err);
    if (rc < 0) {
        lf_ids_fini(&ids);
        return rc;
    }
    g->tokens[g->n_tokens++] = (lf_grown){g->v.text[g->v.n - 1], ids.v, ids.n};
    g->n_special++;
    return 0;
}

int lf_grower_specials(lf_grower *g, const char *const *texts, size_t n, lf_err *err)
{
    int rc = g->root ? check_ids(g, err) : 0;
    if (rc == 0)
        rc = lf_realloc(&g->tokens, g->n_tokens + n + 1, sizeof *g->tokens, err);
    lf_tok_state *s = rc == 0 ? lf_tok_state_create(g->t, err) : NULL;
    if (rc == 0 && !s)
        rc = LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add(g, s, texts[i], err);
    lf_tok_state_destroy(s);
    return rc;
}

/* ---- tokenizer.json ---- */

int lf_grower_put_specials(const lf_grower *g, json_t *root)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
           *list = json_object_get(root, "added_tokens");
    if (!json_is_array(list) && g->n_special) {
        list = json_array();
        if (!list || json_object_set_new(root, "added_tokens", list) != 0)
            return -1;
    }
    for (size_t i = g->v.n - g->n_special; i < g->v.n; i++) {
        const bool fits = next_id(root) == i;
        json_t *a =
            json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)i, "content", g->v.text[i],
                      "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
        if (!fits && json_object_set_new(vocab, g->v.text[i], json_integer((json_int_t)i)) != 0) {
            json_decref(a);
            return -1;
        }
        if (!a || json_array_append_new(list, a) != 0)
            return -1;
    }
    return 0;
}
