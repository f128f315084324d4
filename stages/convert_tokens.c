/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens of an export are special. An option wins; then the tokenizer's own files; then what
 * the config.json beside an imported tokenizer said, which the artifact's manifest keeps. */
#include "stages/convert_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/infer/genconfig.h"
#include "engine/infer/runner.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "stages/stage.h"

void convert_tokens_fini(struct convert_tokens *t)
{
    free(t->eos);
    for (size_t i = 0; i < sizeof t->texts / sizeof t->texts[0]; i++)
        free(t->texts[i]);
}

/* A token by its id or its text. */
static int find_token(int64_t *out, const lf_tokenizer *t, const char *option, const char *name,
                      lf_err *err)
{
    if (lf_parse_i64(out, name, NULL) == 0 && *out >= 0)
        return 0;
    if (t && (*out = lf_tokenizer_find(t, name)) >= 0)
        return 0;
    return lf_fail(
        err, LF_EINVAL, "%s: %s '%s'", option,
        t ? "the tokenizer has no token" : "there is no tokenizer = to find it in:", name);
}

/* The manifest of an imported tokenizer. Returns owned; NULL: dir is no such artifact. */
static json_t *kept_of(const char *dir)
{
    lf_artifact a = {0};
    lf_err why = LF_ERR_INIT;
    json_t *meta =
        dir && lf_artifact_load(&a, dir, "tokenizer", &why) == 0 ? json_incref(a.meta) : NULL;
    lf_artifact_fini(&a);
    return meta;
}

static int64_t kept_id(json_t *kept, const char *key)
{
    json_t *id = json_object_get(kept, key);
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

static void keep_eos(struct lf_convert_tokens *k, json_t *kept)
{
    json_t *ids = json_object_get(kept, "eos_token_ids");
    for (size_t i = 0; i < json_array_size(ids) && k->n_eos < LF_CONVERT_MAX_EOS - 1; i++)
        if (json_is_integer(json_array_get(ids, i)))
            k->eos[k->n_eos++] = json_integer_value(json_array_get(ids, i));
}

/* End tokens of generation_config.json, else of the manifest, else the tokenizer's own; the end of
 * a turn in its template. */
static int end_tokens(struct lf_convert_tokens *k, const char *dir, const lf_tokenizer *t,
                      json_t *kept, lf_err *err)
{
    lf_gen_config g;
    lf_err why = LF_ERR_INIT;
    int rc = lf_gen_config_read(&g, dir, err);
    for (size_t i = 0; i < g.n_eos && !rc && k->n_eos < LF_CONVERT_MAX_EOS - 1; i++)
        k->eos[k->n_eos++] = g.eos[i];
    if (!rc && !k->n_eos)
        keep_eos(k, kept);
    if (!rc && !k->n_eos && lf_tokenizer_eos(t) >= 0)
        k->eos[k->n_eos++] = lf_tokenizer_eos(t);
    lf_chat *chat = rc ? NULL : lf_chat_load(dir, t, NULL, &why);
    if (chat && lf_chat_turn_end(chat, &k->turn_end, &why))
        k->turn_end = -1;
    if (why.rc && why.rc != LF_ENOENT)
        lf_log(1, "the chat template tells no end of a turn (%s); name end tokens with eos =",
               why.text);
    lf_chat_destroy(chat);
    return rc;
}

static int64_t pad_of(const lf_tokenizer *t, json_t *kept)
{
    return t && lf_tokenizer_pad(t) >= 0 ? lf_tokenizer_pad(t) : kept_id(kept, "pad_token_id");
}

/* End, begin and padding tokens of a language model. */
static int settle_tokens(struct convert_tokens *v, struct lf_convert_opts *c, const lf_tokenizer *t,
                         json_t *kept, lf_err *err)
{
    struct lf_convert_tokens *k = &v->tokens;
    int rc = 0;
    if (v->n_eos > LF_CONVERT_MAX_EOS)
        return lf_fail(err, LF_EINVAL, "%zu eos, at most %d are taken", v->n_eos,
                       LF_CONVERT_MAX_EOS);
    *k = (struct lf_convert_tokens){.turn_end = -1,
                                    .bos = t ? lf_tokenizer_bos(t) : -1,
                                    .pad = pad_of(t, kept),
                                    .asked = v->n_eos > 0 || v->pad_token};
    for (size_t i = 0; i < v->n_eos && !rc; i++)
        rc = find_token(&k->eos[k->n_eos++], t, "eos", v->eos[i], err);
    if (!rc && t && !v->n_eos)
        rc = end_tokens(k, c->tokenizer, t, kept, err);
    if (v->n_eos)
        k->turn_end = -1; /* those named are all there are */
    if (k->bos < 0)
        k->bos = kept_id(kept, "bos_token_id");
    if (k->bos < 0 && t) /* a text begins where the one before has ended: GPT-2, Qwen */
        k->bos = lf_tokenizer_eos(t);
    if (k->pad < 0 && t)
        k->pad = lf_tokenizer_eos(t);
    if (!rc && v->pad_token)
        rc = find_token(&k->pad, t, "pad_token", v->pad_token, err);
    if (!rc && (t || kept || k->asked))
        c->tokens = k;
    return rc;
}

/* What fills a batch of a model that gives scores: no end token, unless it is named. */
static int settle_pad(const struct convert_tokens *v, struct lf_convert_opts *c,
                      const lf_tokenizer *t, json_t *kept, lf_err *err)
{
    if (v->n_eos)
        return lf_fail(err, LF_EINVAL, "eos is of models that predict tokens; %s gives scores",
                       c->from);
    if (v->pad_token)
        return find_token(&c->pad_token, t, "pad_token", v->pad_token, err);
    int64_t id = pad_of(t, kept);
    c->pad_token = t && id == lf_tokenizer_eos(t) ? -1 : id;
    return 0;
}

/* The text of a token, owned; NULL: it has none that JSON can hold. */
static int name_token(char **out, const lf_tokenizer *t, int64_t id, lf_err *err)
{
    const uint8_t *text = NULL;
    size_t n = 0;
    if (id < 0 || !lf_tokenizer_text(t, (uint32_t)id, &text, &n) || memchr(text, 0, n))
        return 0;
    char *s = lf_malloc(n + 1, 1, err);
    if (!s)
        return LF_ENOMEM;
    memcpy(s, text, n);
    s[n] = 0;
    *out = s;
    return 0;
}

static int name_tokens(struct convert_tokens *v, struct lf_convert_opts *c, const lf_tokenizer *t,
                       lf_err *err)
{
    const int64_t pad = c->pad_token >= 0 ? c->pad_token : c->tokens ? c->tokens->pad : -1;
    const int64_t own = lf_tokenizer_eos(t),
                  eos = own < 0 && v->tokens.n_eos ? v->tokens.eos[0] : own;
    const int64_t ids[] = {lf_tokenizer_bos(t), eos, pad, lf_tokenizer_unk(t)};
    int rc = 0;
    for (size_t i = 0; i < 4 && !rc; i++)
        rc = name_token(&v->texts[i], t, ids[i], err);
    v->names = (struct lf_convert_names){v->texts[0], v->texts[1], v->texts[2], v->texts[3]};
    c->names = &v->names;
    return rc;
}

int convert_tokens_settle(struct convert_tokens *v, struct lf_convert_opts *c, lf_err *err)
{
    lf_model_config m;
    lf_err why = LF_ERR_INIT;
    int rc = lf_runner_config(&m, c->from, err);
    if (rc)
        return rc;
    lf_tokenizer *t = c->tokenizer ? lf_tokenizer_load(c->tokenizer, &why) : NULL;
    json_t *kept = kept_of(c->tokenizer);
    if (why.rc &&
        why.rc !=
            LF_ENOENT) /* a directory of other files, as some imports leave it, is no failure */
        rc = lf_fail(err, why.rc, "%s", why.text);
    if (!rc)
        rc = m.output == LF_OUTPUT_SCORE ? settle_pad(v, c, t, kept, err)
                                         : settle_tokens(v, c, t, kept, err);
    if (!rc && t)
        rc = name_tokens(v, c, t, err);
    lf_tokenizer_destroy(t);
    json_decref(kept);
    return rc;
}
