/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of texts in a model that also sees or hears: its part of config.json, its tensors. */
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"
#include "engine/convert/hf_priv.h"
#include "engine/convert/priv.h"

/* Where classes keep the description of their decoder: those of transformers, InternVL's and
 * DeepSeek's own. */
static const char *const keys[] = {"text_config", "llm_config", "language_config", NULL};

/* How names begin, of the files of transformers 5, of those before, and of DeepSeek's own. What
 * follows is named as in files of the decoder alone. */
static const struct lf_st_prefix names[] = {
    {"model.language_model.", "model."},
    {"model.text_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"language_model.output.", "output."}, /* InternLM2's head */
    {"language.model.", "model."},
    {"language.lm_head.", "lm_head."},
    {"lm_head.", "lm_head."},
    {"mtp.", "mtp."},
};
enum { N_INSIDE = 7 }; /* of them are no names of a decoder alone */

static json_t *part_of(json_t *config, const char **key)
{
    for (size_t i = 0; keys[i]; i++) {
        json_t *o = json_object_get(config, *key = keys[i]);
        if (json_is_object(o))
            return o;
    }
    return NULL;
}

json_t *lf_hf_text_object(json_t *config)
{
    const char *key;
    return part_of(config, &key);
}

bool lf_hf_has_text_part(json_t *config)
{
    const char *key;
    json_t *part = part_of(config, &key);
    return part && lf_hf_family_of(part, key, NULL);
}

/* What the whole model says of its decoder counts: the class reads it there. */
static int take_over(json_t *part, json_t *config, const struct lf_hf_family *f)
{
    static const char *const outer[] = {"tie_word_embeddings", LF_HF_QUANT, "bos_token_id",
                                        "eos_token_id", "pad_token_id"};
    int bad = json_object_set_new(part, "architectures", json_pack("[s]", f->architecture));
    for (size_t i = 0; i < sizeof outer / sizeof *outer && !bad; i++) {
        json_t *v = json_object_get(config, outer[i]);
        if (v && !json_is_null(v))
            bad = json_object_set(part, outer[i], v);
    }
    return bad;
}

/* Decoders of some classes have a model_type that no model of texts has. */
static bool refuse_nameless(json_t *part, const char *type, const char *path, lf_err *err)
{
    const char *inner = json_string_value(json_object_get(part, "model_type"));
    if (!inner || lf_hf_family_of(part, path, NULL) || lf_hf_later_needs(inner))
        return false;
    lf_fail(err, LF_ENOTSUP,
            "%s: parts = text: %.60s has no family of its own, and a model of type %.60s is read "
            "whole: leave parts out",
            path, inner, type);
    return true;
}

json_t *lf_hf_text_part(json_t *config, const char *path, lf_err *err)
{
    const char *key, *type = json_string_value(json_object_get(config, "model_type"));
    json_t *part = part_of(config, &key);
    char where[512];
    if (!part) {
        lf_fail(err, LF_EINVAL,
                "%s: parts = text, but a model of type %.60s has no part for texts (text_config): "
                "leave parts out",
                path, type ? type : "(none)");
        return NULL;
    }
    const struct lf_hf_family *whole = lf_hf_family_of(config, path, NULL), *f;
    if (whole && refuse_nameless(part, type, path, err))
        return NULL;
    snprintf(where, sizeof where, "%.400s: %s", path, key);
    if (!(f = lf_hf_family_of(part, where, err)))
        return NULL;
    json_t *copy = json_copy(part), *outer = json_copy(config);
    int rc = copy && outer ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && whole && whole->sight)
        rc = lf_hf_lone_text(whole->sight, outer, copy, where, err);
    if (rc == 0 && take_over(copy, outer, f))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(outer);
    if (rc == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

/* The word that tells an encoder from a projector: the first of a name, behind "model.". */
static const char *first_word(const char *name, size_t *n)
{
    if (strncmp(name, "model.", 6) == 0)
        name += 6;
    *n = strcspn(name, ".");
    return name;
}

/* What is not of the decoder: so many tensors of each word, at most 8 words. */
static void count_left(const lf_st *s, lf_buf *left)
{
    struct {
        const char *word;
        size_t len;
        long long n;
    } of[8] = {{NULL, 0, 0}};
    long long more = 0;
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const char *name = lf_st_entry_at(s, i)->name;
        size_t len, k = 0;
        const char *word = first_word(name, &len);
        if (lf_st_prefix_of(names, sizeof names / sizeof *names, name))
            continue;
        while (k < 8 && of[k].word && (of[k].len != len || strncmp(of[k].word, word, len) != 0))
            k++;
        if (k == 8) {
            more++;
            continue;
        }
        of[k].word = word;
        of[k].len = len;
        of[k].n++;
    }
    for (size_t k = 0; k < 8 && of[k].word; k++)
        lf_buf_addf(left, "%s%lld tensors of %.*s", left->len ? ", " : "", of[k].n, (int)of[k].len,
                    of[k].word);
    if (more)
        lf_buf_addf(left, ", %lld others", more);
}

bool lf_hf_is_inside(const char *name)
{
    return lf_st_prefix_of(names, N_INSIDE, name) != NULL;
}

static int refuse_names(lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (int i = 0; i < N_INSIDE; i++)
        lf_buf_addf(&b, "%s%s", i == 0 ? "" : i + 1 < N_INSIDE ? ", " : " or ", names[i].from);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EFORMAT, "parts = text, but no tensor's name begins with %s", b.data);
    lf_buf_fini(&b);
    return rc;
}

int lf_hf_text_tensors(lf_st *s, lf_buf *left, lf_err *err)
{
    size_t inside = 0;
    for (size_t i = 0; i < lf_st_n_entries(s); i++)
        inside += lf_hf_is_inside(lf_st_entry_at(s, i)->name);
    if (inside == 0)
        return refuse_names(err);
    count_left(s, left);
    return lf_st_keep(s, names, sizeof names / sizeof *names, err);
}
