/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_config.json, special_tokens_map.json and generation_config.json. Which wins, for the
 * ids of bos, eos, pad and unk: tokenizer_config.json, then special_tokens_map.json, then
 * generation_config.json (ids), then what the vocabulary file itself names.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/token/tokenizer_forms.h"

static int parse(json_t **out, const lf_tok_files *f, const char *name, const char *path,
                 lf_err *err)
{
    const lf_buf *b = lf_tok_files_get(f, name);
    if (!b)
        return 0;
    *out = lf_json_load_text(b->data, b->len, name, err);
    if (*out && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return lf_fail(err, LF_EFORMAT, "%s: %s is no object", path, name);
    }
    return *out ? 0 : lf_err_prefix(err, "%s", path);
}

int lf_tok_conf_read(lf_tok_conf *c, const lf_tok_files *f, const char *path, lf_err *err)
{
    memset(c, 0, sizeof(*c));
    int rc = parse(&c->config, f, "tokenizer_config.json", path, err);
    if (rc == 0)
        rc = parse(&c->map, f, "special_tokens_map.json", path, err);
    if (rc == 0)
        rc = parse(&c->gen, f, "generation_config.json", path, err);
    if (rc == 0 && f->form == LF_TOK_FORM_VOCAB_MERGES)
        rc = parse(&c->vocab, f, "vocab.json", path, err);
    if (rc != 0)
        lf_tok_conf_fini(c);
    return rc;
}

void lf_tok_conf_fini(lf_tok_conf *c)
{
    json_decref(c->config);
    json_decref(c->map);
    json_decref(c->gen);
    json_decref(c->vocab);
    memset(c, 0, sizeof(*c));
}

static const char *token_of(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

const char *lf_tok_conf_token(const lf_tok_conf *c, const char *key)
{
    const char *text = token_of(c->config, key);
    return text ? text : token_of(c->map, key);
}

const char *lf_tok_conf_class(const lf_tok_conf *c)
{
    const char *name = json_string_value(json_object_get(c->config, "tokenizer_class"));
    return name ? name : "";
}

bool lf_tok_conf_bool(const lf_tok_conf *c, const char *key, bool dflt)
{
    const json_t *v = json_object_get(c->config, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

static int append(json_t *list, json_t *o, int64_t id, const char *path, lf_err *err)
{
    if (!o || json_object_set_new(o, "id", json_integer(id)) != 0 ||
        json_array_append_new(list, o) != 0)
        return lf_fail(err, LF_ENOMEM, "%s: no memory for added tokens", path);
    return 0;
}

static bool listed(const json_t *list, const char *text)
{
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        const char *s = json_string_value(json_object_get(v, "content"));
        if (s && strcmp(s, text) == 0)
            return true;
    }
    return false;
}

static int add_decoder(const lf_tok_conf *c, json_t *list, const char *path, lf_err *err)
{
    const char *key;
    json_t *o, *all = json_object_get(c->config, "added_tokens_decoder");
    json_object_foreach(all, key, o)
    {
        int64_t id;
        if (lf_parse_i64(&id, key, NULL) != 0 || id < 0 || !json_is_object(o))
            return lf_fail(
                err, LF_EFORMAT,
                "%s: tokenizer_config.json: added_tokens_decoder: \"%.60s\" is no id with a token",
                path, key);
        int rc = append(list, json_copy(o), id, path, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

json_t *lf_tok_conf_added(const lf_tok_conf *c, const json_t *names, const char *path, lf_err *err)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                       "sep_token", "cls_token", "mask_token"};
    json_t *list = json_array();
    int rc =
        list ? add_decoder(c, list, path, err) : lf_fail(err, LF_ENOMEM, "%s: no memory", path);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && rc == 0; i++) {
        const char *text = lf_tok_conf_token(c, keys[i]);
        const json_t *id = text ? json_object_get(names, text) : NULL;
        if (!id || listed(list, text))
            continue;
        json_t *o = json_pack("{s:s, s:b, s:b}", "content", text, "special", 1, "normalized", 0);
        rc = append(list, o, json_integer_value(id), path, err);
    }
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static void name_one(const lf_tok_conf *c, const lf_tokenizer *t, int64_t *id,
                     const char *token_key, const char *id_key)
{
    const char *text = lf_tok_conf_token(c, token_key);
    int64_t found = text ? lf_tokenizer_find(t, text) : -1;
    const json_t *v = json_object_get(c->gen, id_key);
    if (found < 0 && json_is_array(v))
        v = json_array_get(v, 0);
    if (found < 0 && json_is_integer(v) && json_integer_value(v) >= 0 &&
        json_integer_value(v) < t->n_tokens)
        found = json_integer_value(v);
    if (found >= 0)
        *id = found;
}

void lf_tok_conf_name(const lf_tok_conf *c, lf_tokenizer *t)
{
    name_one(c, t, &t->bos, "bos_token", "bos_token_id");
    name_one(c, t, &t->eos, "eos_token", "eos_token_id");
    name_one(c, t, &t->pad, "pad_token", "pad_token_id");
    name_one(c, t, &t->unk, "unk_token", "unk_token_id");
}

/* What classes add without being told. */
static const struct {
    const char *prefix; /* of tokenizer_class */
    bool bos, eos;
} habits[] = {{"Llama", true, false},    {"CodeLlama", true, false}, {"Gemma", true, false},
              {"InternLM", true, false}, {"Baichuan", true, false},  {"T5", false, true},
              {"MT5", false, true}};

int lf_tok_conf_template(const lf_tok_conf *c, lf_tokenizer *t, lf_err *err)
{
    bool bos = false, eos = false;
    for (size_t i = 0; i < sizeof(habits) / sizeof(habits[0]); i++) {
        if (lf_str_has_prefix(lf_tok_conf_class(c), habits[i].prefix)) {
            bos = habits[i].bos;
            eos = habits[i].eos;
        }
    }
    bos = lf_tok_conf_bool(c, "add_bos_token", bos);
    eos = lf_tok_conf_bool(c, "add_eos_token", eos);
    if ((bos && t->bos < 0) || (eos && t->eos < 0))
        return lf_fail(err, LF_EFORMAT,
                       "tokenizer_config.json: add_%s_token is on, but no such token is named and "
                       "in the vocabulary",
                       bos && t->bos < 0 ? "bos" : "eos");
    int rc = bos ? lf_ids_add(&t->before, (uint32_t)t->bos, err) : 0;
    return rc == 0 && eos ? lf_ids_add(&t->after, (uint32_t)t->eos, err) : rc;
}
