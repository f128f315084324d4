/* SPDX-License-Identifier: Apache-2.0
 *
 * What stages demand of each other, as far as the file says it: a stage would find out only when
 * the stage before it has run. A producer that is read from outside, or that has an option which
 * leaves the matter open, is not judged.
 */
#include "config.h"

#include <string.h>

#include "engine/base/str.h"
#include "engine/base/vocab.h"
#include "flow/plan/pipeline_priv.h"

/* The value of an option: as given, else its default. NULL: neither. */
static const char *value_of(const lf_reading *r, const lf_doc_stage *st, const char *option)
{
    const lf_texts *given = lf_lists_get(&st->options, option);
    const lf_opt_table *t = lf_table_find(r->args->tables, st->kind);
    const lf_opt *o = t != NULL ? lf_opt_find(t, option) : NULL;
    return given != NULL && given->n > 0 ? given->v[0] : o != NULL ? o->def : NULL;
}

static int64_t count_of(const char *text)
{
    int64_t v = 0;
    lf_err e = LF_ERR_INIT;
    return text != NULL && lf_parse_count(&v, text, &e) == 0 ? v : 0;
}

/* No mistake of its own was noted: its options are those of the file, not defaults in the place of
 * what could not be read. */
static bool is_sound(const lf_reading *r, const lf_doc_stage *st)
{
    return lf_names_find(&r->p->doubtful, st->name, "") == LF_NAMES_NONE;
}

/* Does the stage make the tokenizer and the shards itself, and train the former? */
static bool trains_tokenizer(const lf_reading *r, const lf_doc_stage *from)
{
    const char *tokenizer = value_of(r, from, "tokenizer");
    return strcmp(from->kind, "tokenize") == 0 &&
           (tokenizer == NULL || strcmp(tokenizer, "train") == 0);
}

/* A tokenizer that is trained may become smaller than its vocab_size, but nobody asks for more than
 * the model has. */
static int check_vocab(const lf_reading *r, const lf_doc_stage *st, const lf_doc_stage *from,
                       lf_err *err)
{
    const char *model = lf_pairs_get(&st->model, "vocab");
    const int64_t has = count_of(model), made = count_of(value_of(r, from, "vocab_size"));
    const lf_conf_item *it = lf_pipeline_model_key(r->p, st, "vocab");
    if (!trains_tokenizer(r, from) || it == NULL || has <= 0 || made <= has)
        return 0;
    return lf_conf_fail(it, err,
                        "vocab = %s of the model of stage %s is less than vocab_size = %s of stage "
                        "%s, whose tokens it reads; make vocab %s, or vocab_size %s",
                        model, st->name, value_of(r, from, "vocab_size"), from->name,
                        value_of(r, from, "vocab_size"), model);
}

/* Padding makes a model's vocabulary somewhat larger than the tokenizer's; far more is memory and
 * time for rows that no token uses. A stage that begins with other weights has no choice. */
static int warn_vocab(const lf_reading *r, const lf_doc_stage *st, const lf_doc_stage *from,
                      lf_err *err)
{
    const char *model = lf_pairs_get(&st->model, "vocab"), *made = value_of(r, from, "vocab_size");
    const int unused = lf_vocab_unused(count_of(model), count_of(made));
    const lf_conf_item *it = lf_pipeline_model_key(r->p, st, "vocab");
    lf_err e = LF_ERR_INIT;
    if (r->args->warnings == NULL || unused == 0 || it == NULL || !trains_tokenizer(r, from) ||
        lf_lists_get(&st->options, "init_from") != NULL)
        return 0;
    lf_conf_fail(it, &e,
                 "vocab = %s of the model of stage %s is far above vocab_size = %s of stage %s: "
                 "%d %% of the rows of the embedding are never trained; give [model] vocab = %s",
                 model, st->name, made, from->name, unused, made);
    /* the children of a sweep say the same */
    return lf_texts_has(r->args->warnings, e.text) ? 0
                                                   : lf_texts_add(r->args->warnings, e.text, err);
}

/* The first option of a stage that wants validations. */
static const lf_conf_item *wants_valid(const lf_reading *r, const lf_doc_stage *st)
{
    static const char *const wanting[] = {"valid_interval", "keep_best", "patience"};
    for (size_t i = 0; i < sizeof wanting / sizeof wanting[0]; i++) {
        const lf_conf_item *it = lf_pipeline_option(r->p, st, wanting[i]);
        bool yes = false;
        if (it != NULL &&
            (count_of(it->value) > 0 || (lf_parse_bool(&yes, it->value, NULL) == 0 && yes)))
            return it;
    }
    return NULL;
}

/* It asks for what nothing has: no valid_data, and data without a valid split. */
static int check_valid(const lf_reading *r, const lf_doc_stage *st, lf_err *err)
{
    const lf_conf_item *it = wants_valid(r, st);
    const lf_doc_stage *from = NULL;
    if (it == NULL || lf_lists_get(&st->options, "valid_data") != NULL ||
        lf_lists_get(&st->options, "sample_order") != NULL)
        return 0;
    for (size_t i = 0; i < st->inputs.n; i++) {
        const lf_doc_input *in = &st->inputs.v[i];
        if (strcmp(in->option, "data") != 0)
            continue;
        from = in->refs.n == 1 ? lf_doc_find(r->p->plan, in->refs.v[0].stage) : NULL;
        double share = 1;
        if (from == NULL || !is_sound(r, from) || strcmp(from->kind, "tokenize") != 0 ||
            lf_parse_f64(&share, value_of(r, from, "valid_fraction"), NULL) < 0 || share > 0)
            return 0;
    }
    if (from == NULL)
        return 0;
    return lf_conf_fail(it, err,
                        "%s = %s: there is nothing to validate on; give [stage %s] "
                        "valid_fraction = 0.01, give valid_data, or leave %s out",
                        it->key, it->value, from->name, it->key);
}

/* Outputs that a stage makes only where one of its options asks for them. */
static const struct asked_for {
    const char *kind; /* NULL: every kind with the option */
    const char *output, *option, *other;
    const char *how; /* the option as it is set */
} asked_for[] = {
    {NULL, "best", "keep_best", NULL, "keep_best = yes"},
    {NULL, "adapter", "lora_rank", "adapter", "lora_rank = 16, say,"},
    {"vocab", "checkpoint", "checkpoint", NULL, "checkpoint"},
};

static bool is_set(const lf_reading *r, const lf_doc_stage *st, const char *option)
{
    const lf_texts *given = option != NULL ? lf_lists_get(&st->options, option) : NULL;
    const lf_conf_item *it = option != NULL ? lf_pipeline_option(r->p, st, option) : NULL;
    const char *value = given != NULL && given->n > 0 ? given->v[0] : it != NULL ? it->value : "no";
    bool yes = true;
    int64_t count = 0;
    if (lf_parse_i64(&count, value, NULL) == 0)
        return count != 0;
    return lf_parse_bool(&yes, value, NULL) < 0 || yes;
}

/* The stage reads an output that the other one is not asked to make. */
static int check_asked(const lf_reading *r, const lf_doc_stage *st, const lf_doc_input *in,
                       const lf_doc_ref *ref, const lf_doc_stage *from, lf_err *err)
{
    const lf_opt_table *t = lf_table_find(r->args->tables, from->kind);
    for (size_t i = 0; t != NULL && i < sizeof asked_for / sizeof asked_for[0]; i++) {
        const struct asked_for *a = &asked_for[i];
        if (strcmp(a->output, ref->output) == 0 && lf_opt_find(t, a->option) != NULL &&
            (a->kind == NULL || strcmp(a->kind, from->kind) == 0) && !is_set(r, from, a->option) &&
            !is_set(r, from, a->other))
            return lf_conf_fail(lf_pipeline_option(r->p, st, in->option), err,
                                "%s = ${stage:%s.%s}: stage %s makes no %s without %s; set %s in "
                                "[stage %s]",
                                in->option, from->name, ref->output, from->name, ref->output,
                                a->option, a->how, from->name);
    }
    return 0;
}

static int check_stage(const lf_reading *r, const lf_doc_stage *st, lf_err *err)
{
    int rc = lf_reading_note(r, check_valid(r, st, err), err);
    for (size_t i = 0; rc == 0 && i < st->inputs.n; i++) {
        const lf_doc_input *in = &st->inputs.v[i];
        for (size_t k = 0; rc == 0 && k < in->refs.n; k++) {
            const lf_doc_stage *from = lf_doc_find(r->p->plan, in->refs.v[k].stage);
            if (from == NULL || !is_sound(r, from))
                continue;
            rc = lf_reading_note(r, check_asked(r, st, in, &in->refs.v[k], from, err), err);
            if (rc == 0 && strcmp(in->option, "data") == 0)
                rc = lf_reading_note(r, check_vocab(r, st, from, err), err);
            if (rc == 0 && from != NULL)
                rc = warn_vocab(r, st, from, err);
        }
    }
    return rc;
}

int lf_pipeline_cross(const lf_reading *r, lf_err *err)
{
    const lf_doc *d = r->p->plan;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < d->stages.n; i++)
        if (is_sound(r, &d->stages.v[i]))
            rc = check_stage(r, &d->stages.v[i], err);
    return rc;
}
