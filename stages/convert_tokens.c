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
#include "engine/model/same_tokenizer.h"
#include "engine/text/chat/chat.h"
#include "engine/text/token/tokenizer.h"
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
    bool is = dir && lf_artifact_load(&a, dir, "tokenizer", &why) == 0;
    json_t *meta = is ? json_incref(a.meta) : NULL;
    lf_artifact_fini(&a);
    return meta;
}

/* Some files name a padding token behind the vocabulary: they mean none. */
static int64_t kept_id(json_t *id, const lf_model_config *m)
{
    bool in = json_is_integer(id) && json_integer_value(id) < m->vocab;
    return in ? json_integer_value(id) : -1;
}

/* What tells of tokens: the tokenizer and the manifest, either may be NULL, and where they lie. */
struct sources {
    const char *dir; /* NULL: neither */
    const lf_tokenizer *t;
    json_t *kept;
    lf_model_config m;
};

static void add_eos(struct lf_convert_tokens *k, int64_t id)
{
    if (id >= 0 && k->n_eos < LF_CONVERT_MAX_EOS - 1)
        k->eos[k->n_eos++] = id;
}

/* The special token that ends a turn in the chat template. */
static void find_turn_end(struct lf_convert_tokens *k, const struct sources *s)
{
    lf_err why = LF_ERR_INIT;
    lf_chat *chat = lf_chat_load(s->dir, s->t, NULL, &why);
    if (chat && lf_chat_turn_end(chat, &k->turn_end, &why))
        k->turn_end = -1;
    if (why.rc && why.rc != LF_ENOENT)
        lf_log(1, "the chat template tells no end of a turn (%s); name end tokens with eos =",
               why.text);
    lf_chat_destroy(chat);
}

/* End tokens of generation_config.json, else of the manifest, else the tokenizer's own; and of
 * turns. */
static int end_tokens(struct lf_convert_tokens *k, const struct sources *s, lf_err *err)
{
    json_t *ids = json_object_get(s->kept, "eos_token_ids");
    lf_gen_config g;
    int rc = lf_gen_config_read(&g, s->dir, false, err);
    for (size_t i = 0; i < g.n_eos && rc == 0; i++)
        add_eos(k, g.eos[i]);
    for (size_t i = 0, none = !k->n_eos; none && i < json_array_size(ids); i++)
        add_eos(k, kept_id(json_array_get(ids, i), &s->m));
    if (!k->n_eos && s->t)
        add_eos(k, lf_tokenizer_eos(s->t));
    if (rc == 0 && s->t)
        find_turn_end(k, s);
    return rc;
}

static int64_t pad_of(const struct sources *s)
{
    int64_t own = s->t ? lf_tokenizer_pad(s->t) : -1;
    return own >= 0 ? own : kept_id(json_object_get(s->kept, "pad_token_id"), &s->m);
}

/* A text begins where the one before has ended, where nothing else is said: GPT-2, Qwen. */
static int64_t bos_of(const struct sources *s)
{
    int64_t own = s->t ? lf_tokenizer_bos(s->t) : -1;
    if (own < 0)
        own = kept_id(json_object_get(s->kept, "bos_token_id"), &s->m);
    return own < 0 && s->t ? lf_tokenizer_eos(s->t) : own;
}

/* End, begin and padding tokens of a language model. */
static int settle_tokens(struct convert_tokens *v, struct lf_convert_opts *c,
                         const struct sources *s, lf_err *err)
{
    struct lf_convert_tokens *k = &v->tokens;
    int rc = 0;
    if (v->n_eos > LF_CONVERT_MAX_EOS)
        return lf_fail(err, LF_EINVAL, "%zu eos, at most %d are taken", v->n_eos,
                       LF_CONVERT_MAX_EOS);
    *k = (struct lf_convert_tokens){
        .turn_end = -1, .bos = bos_of(s), .pad = pad_of(s), .asked = v->n_eos > 0 || v->pad_token};
    for (size_t i = 0; i < v->n_eos && rc == 0; i++) /* those named are all there are */
        rc = find_token(&k->eos[k->n_eos++], s->t, "eos", v->eos[i], err);
    if (rc == 0 && s->dir && !v->n_eos)
        rc = end_tokens(k, s, err);
    if (k->pad < 0 && s->t)
        k->pad = lf_tokenizer_eos(s->t);
    if (rc == 0 && v->pad_token)
        rc = find_token(&k->pad, s->t, "pad_token", v->pad_token, err);
    if (rc == 0 && (s->dir || k->asked))
        c->tokens = k;
    return rc;
}

/* Those of a model that gives scores. An end token fills no batch: transformers would take the
 * score of the token before it. */
static int settle_score(struct convert_tokens *v, struct lf_convert_opts *c,
                        const struct sources *s, lf_err *err)
{
    struct lf_convert_tokens *k = &v->tokens;
    if (v->n_eos)
        return lf_fail(err, LF_EINVAL, "eos is of models that predict tokens; %s gives %s", c->from,
                       s->m.output == LF_OUTPUT_LABELS ? "labels" : "scores");
    *k = (struct lf_convert_tokens){.turn_end = -1, .bos = bos_of(s), .pad = -1};
    int rc = s->dir ? end_tokens(k, s, err) : 0;
    if (rc == 0 && s->dir)
        c->tokens = k;
    if (rc == 0 && v->pad_token)
        return find_token(&c->pad_token, s->t, "pad_token", v->pad_token, err);
    int64_t id = pad_of(s);
    c->pad_token = s->t && id == lf_tokenizer_eos(s->t) ? -1 : id;
    return rc;
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
                       int64_t pad, lf_err *err)
{
    const int64_t own = lf_tokenizer_eos(t),
                  eos = own < 0 && v->tokens.n_eos ? v->tokens.eos[0] : own;
    const int64_t ids[] = {lf_tokenizer_bos(t), eos, pad, lf_tokenizer_unk(t)};
    int rc = 0;
    for (size_t i = 0; i < 4 && rc == 0; i++)
        rc = name_token(&v->texts[i], t, ids[i], err);
    v->names = (struct lf_convert_names){
        .bos = v->texts[0], .eos = v->texts[1], .pad = v->texts[2], .unk = v->texts[3]};
    c->names = &v->names;
    return rc;
}

/* Of two towers only the tokenizer's own tokens are told, with which its captions end or are filled
 * up. */
static int settle_towers(struct convert_tokens *v, struct lf_convert_opts *c,
                         const lf_model_config *m, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    lf_tokenizer *t = c->tokenizer ? lf_tokenizer_load(c->tokenizer, &why) : NULL;
    if (!t) /* files of a kind that only transformers reads go out as they are */
        return why.rc && why.rc != LF_ENOENT && why.rc != LF_ENOTSUP
                   ? lf_fail(err, why.rc, "%s", why.text)
                   : 0;
    const int64_t eos = lf_tokenizer_eos(t);
    int rc = lf_same_tokenizer(c->from, lf_tokenizer_sha256(t), c->tokenizer, err);
    if (rc == 0)
        rc = name_tokens(v, c, t, m->dual.padded ? m->dual.pad_token : eos, err);
    v->names.ends = eos >= 0 && (m->dual.padded || m->dual.end_token == eos);
    lf_tokenizer_destroy(t);
    return rc;
}

int convert_tokens_settle(struct convert_tokens *v, struct lf_convert_opts *c, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    struct sources s = {0};
    int rc = lf_runner_description(&s.m, c->from, err);
    if (rc == 0 && lf_model_need_text(&s.m, NULL) != 0)
        return v->n_eos || v->pad_token
                   ? lf_fail(err, LF_EINVAL,
                             "eos and pad_token are of models that predict tokens; %s does not",
                             c->from)
               : lf_model_is_dual(&s.m) ? settle_towers(v, c, &s.m, err)
                                        : 0;
    if (rc != 0)
        return rc;
    lf_tokenizer *t = c->tokenizer ? lf_tokenizer_load(c->tokenizer, &why) : NULL;
    if (why.rc &&
        why.rc !=
            LF_ENOENT) /* files of other kinds alone, as some imports leave them, are no failure */
        rc = lf_fail(err, why.rc, "%s", why.text);
    s.t = t;
    s.kept = kept_of(c->tokenizer);
    s.dir = s.t || s.kept ? c->tokenizer : NULL;
    if (rc == 0 && t)
        rc = lf_same_tokenizer(c->from, lf_tokenizer_sha256(t), c->tokenizer, err);
    if (rc == 0)
        rc = s.m.output == LF_OUTPUT_TOKENS ? settle_tokens(v, c, &s, err)
                                            : settle_score(v, c, &s, err);
    if (rc == 0 && t)
        rc = name_tokens(v, c, t,
                         c->pad_token >= 0 ? c->pad_token
                         : c->tokens       ? c->tokens->pad
                                           : -1,
                         err);
    lf_tokenizer_destroy(t);
    json_decref(s.kept);
    return rc;
}
