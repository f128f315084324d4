/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json by the tables of a family: read, written, and read back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf_priv.h"
#include "engine/convert/priv.h"
#include "engine/model/electra.h"
#include "engine/model/vision.h"

/* Keys of any config.json that change no number of the model. */
static const char *const inert[] = {
    /* what wrote it, where it lay, how it is to be loaded */
    "architectures", "model_type", "_name_or_path", "name_or_path", "transformers_version",
    "torch_dtype", "dtype", "auto_map", "use_cache", "torchscript", "return_dict",
    "tokenizer_class", "_commit_hash", "_attn_implementation", "use_return_dict",
    "custom_pipelines", "_flash_attn_2_enabled", "attn_implementation", "use_flash_attn",
    "use_flash_attention", "low_cpu_mem_usage", "onnx_safe", "is_decoder", "is_encoder_decoder",
    "chunk_size_feed_forward", "pretraining_tp", "output_attentions", "output_hidden_states",
    "output_past", "cross_attention_hidden_size", "add_cross_attention", "problem_type", "id2label",
    "label2id", "task_specific_params", "gradient_checkpointing", "unsloth_version",
    "transformers.js_config", "_dynamic_tree_cache", "support_low_vram", "fp32_residual_connection",
    "_attn_implementation_autoset", "unsloth_fixed", "neftune_noise_alpha", "_num_labels",
    "is_composition",
    /* which tokens are special: generation_config.json and the tokenizer have the last word */
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "unk_token_id", "mask_token_id", "gmask_token_id", "suppress_tokens",
    "seq_length_for_generation", "im_start_id", "im_end_id",
    /* of generation */
    "max_length", "max_new_tokens", "do_sample", "temperature", "top_k", "top_p",
    "repetition_penalty", "prefix", "min_length", "num_beams", "num_beam_groups",
    "num_return_sequences", "length_penalty", "diversity_penalty", "early_stopping",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "typical_p", "output_scores",
    "return_dict_in_generate", "remove_invalid_values", "bad_words_ids", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty",
    /* what transformers 4 wrote of everything; heads that are gone show in the tensors */
    "finetuning_task", "tf_legacy_loss", "use_bfloat16", "tie_encoder_decoder", "pruned_heads",
    NULL};

static bool among(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

bool lf_hf_is_inert(const char *key)
{
    return among(key, inert);
}

bool lf_hf_in_words(const char *word, const char *words)
{
    size_t n = strlen(word);
    for (const char *p = words; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
            return true;
    return false;
}

/* ---- which family ---- */

static const char *text_type(const struct lf_hf_family *f, json_t *config)
{
    return json_string_value(
        json_object_get(json_object_get(config, lf_hf_text_key(f)), "model_type"));
}

/* Is the decoder of a model that sees that of f? */
static bool has_text(const struct lf_hf_family *f, json_t *config)
{
    const char *type = text_type(f, config);
    return !f->sight || (type ? lf_hf_in_words(type, f->sight->text_type) : f->sight->first);
}

/* The model_types of all families, or the decoders of those of one model_type. */
static void list_types(lf_buf *b, const char *type)
{
    const char *last = "";
    for (const struct lf_hf_family *const *f = lf_hf_families; *f; f++) {
        const char *one = type ? (*f)->sight ? (*f)->sight->text_type : "" : (*f)->model_type;
        if ((type && !lf_hf_in_words(type, (*f)->model_type)) || strcmp(one, last) == 0 ||
            (*f)->refused)
            continue;
        lf_buf_addf(b, "%s%.*s", b->len ? ", " : "", (int)strcspn(one, " "), one);
        last = one;
    }
}

/* No family has this type, or none of those that have it, as `kin`, has such a decoder. */
static void fail_type(json_t *config, const char *path, const char *type,
                      const struct lf_hf_family *kin, lf_err *err)
{
    lf_buf b;
    const char *needs = kin ? NULL : lf_hf_later_needs(type);
    if (needs) {
        lf_fail(err, LF_ENOTSUP, "%s: model_type = %s is not read yet: it needs %s%s", path, type,
                needs,
                lf_hf_has_text_part(config) ? "; parts = text takes its decoder of texts alone"
                                            : "");
        return;
    }
    if (kin && !text_type(kin, config)) {
        lf_fail(err, LF_EFORMAT, "%s: %s is missing or has no model_type", path,
                lf_hf_text_key(kin));
        return;
    }
    lf_buf_init(&b);
    list_types(&b, kin ? type : NULL);
    if (kin)
        lf_fail(err, LF_ENOTSUP,
                "%s: model_type '%.60s' with a decoder of the model_type '%.60s' (%s) is "
                "not known; known: %s",
                path, type, text_type(kin, config), lf_hf_text_key(kin), b.data);
    else
        lf_fail(err, LF_ENOTSUP, "%s: model_type '%.60s' is not known; known: %s", path, type,
                b.data);
    lf_buf_fini(&b);
}

/* Classes of pictures by an encoder that is known without a head for them. */
static int check_classes(json_t *config, const char *path, lf_err *err)
{
    const char *class =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    if (!class || !strstr(class, "ForImageClassification"))
        return 0;
    for (const struct lf_hf_family *const *f = lf_hf_families; *f; f++)
        if ((*f)->lone && strcmp((*f)->architecture, class) == 0)
            return 0;
    return lf_fail(
        err, LF_ENOTSUP,
        "%s: architectures = %.80s: its head that tells classes of pictures is not known "
        "here; those of ViT and DeiT are, and an encoder alone comes in from its own "
        "class",
        path, class);
}

const struct lf_hf_family *lf_hf_family_of(json_t *config, const char *path, lf_err *err)
{
    const char *type = NULL;
    const struct lf_hf_family *kin = NULL;
    if (lf_json_get_str(&type, config, "model_type", true, path, err))
        return NULL;
    for (const struct lf_hf_family *const *f = lf_hf_families; *f; f++) {
        if (!lf_hf_in_words(type, (*f)->model_type) ||
            ((*f)->needs && !json_object_get(config, (*f)->needs)) ||
            ((*f)->lacks && json_object_get(config, (*f)->lacks)) ||
            ((*f)->lone && !lf_hf_is_lone(*f, config)))
            continue;
        if (has_text(*f, config) && (*f)->refused) {
            lf_fail(err, LF_ENOTSUP, "%s: model_type '%.60s' is not imported: %s", path, type,
                    (*f)->refused);
            return NULL;
        }
        if (has_text(*f, config))
            return check_classes(config, path, err) == 0 ? *f : NULL;
        kin = *f;
    }
    fail_type(config, path, type, kin, err);
    return NULL;
}

static bool has_switch(const struct lf_hf_family *f, const char *setting)
{
    for (const char *const *s = f->switches; s && *s; s++)
        if (strcmp(*s, setting) == 0)
            return true;
    return false;
}

static bool has_tower(const struct lf_hf_sight *s, const char *family)
{
    for (const struct lf_hf_tower *const *t = s->towers; *t; t++)
        if (lf_hf_in_words(family, (*t)->families))
            return true;
    return false;
}

/* Is a model of the form f? A model that was put together of parts has the family of its decoder,
 * and the form of the first model that is made of such parts. */
static bool is_of(const struct lf_hf_family *f, const lf_model_config *c)
{
    if (f->lone || lf_model_sees_alone(c))
        return f->lone && lf_hf_fits_lone(f, c);
    if (c->vision.family && !f->sight)
        return false;
    if (strcmp(c->family, f->name) == 0 || lf_hf_in_words(c->family, f->also))
        return true;
    return c->vision.family && strcmp(c->family, f->sight->text->name) == 0 &&
           has_tower(f->sight, lf_vision_families[c->vision.family]) &&
           has_switch(f, "projector.newline=yes") == c->projector.newline &&
           has_switch(f, "projector.reduce=yes") == c->projector.reduce;
}

const struct lf_hf_family *lf_hf_family_for(const lf_model_config *c, const char *name, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (const struct lf_hf_family *const *f = lf_hf_families; *f; f++) {
        if ((*f)->refused)
            continue;
        if (name ? strcmp(name, (*f)->name) == 0 : is_of(*f, c)) {
            lf_buf_fini(&b);
            return *f;
        }
        lf_buf_addf(&b, "%s%s", b.len ? ", " : "", (*f)->name);
    }
    if (name)
        lf_fail(err, LF_EINVAL, "family = %s is not known; known: %s", name, b.data);
    else if (lf_model_classifies(c))
        lf_fail(err, LF_ENOTSUP,
                "no class of transformers that is written here tells classes of pictures as this "
                "model does: vision.family = vit, vit-mae or deit with classes.read = class goes "
                "out, deit with classes.read = both, and swin, swinv2 and convnext with "
                "classes.read = mean, all without classes.norm");
    else
        lf_fail(
            err, LF_EINVAL,
            "the model's family is '%s', which no Hugging Face model has; say family = one of: %s",
            c->family, b.data);
    lf_buf_fini(&b);
    return NULL;
}

/* ---- reading ---- */

json_t *lf_hf_take(lf_hf_reader *r, const char *key)
{
    json_t *v = json_object_get(r->o, key);
    json_object_del(r->left, key);
    return json_is_null(v) ? NULL : v;
}

/* Keys of ours whose 0 says that there is none, or that it follows from the others. */
static const char *const absent[] = {"kv_heads",         "head_dim",
                                     "embed_dim",        "expert_ffn",
                                     "sliding_window",   "attn_softcap",
                                     "logit_softcap",    "logn_length",
                                     "rope_attn_factor", "q_lora",
                                     "rope_local_theta", "glu_limit",
                                     "token_types",      NULL};

int lf_hf_set(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
              const char *value, lf_err *err)
{
    char where[LF_MODEL_ORIGIN];
    double x = 1;
    if (among(ours, absent) && lf_parse_f64(&x, value, NULL) == 0 && fabs(x) <= 0)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: %s = 0 is a size or a divisor of nothing; where there is none it is null", r->path,
            theirs);
    snprintf(where, sizeof where, "%.60s: %s", r->path, theirs);
    return lf_model_config_set(c, ours, value, where, err);
}

int lf_hf_set_number(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                     double value, lf_err *err)
{
    char text[40];
    if (!isfinite(value))
        return lf_fail(err, LF_EFORMAT, "%s: %s is not finite", r->path, theirs);
    if (floor(value) == value && fabs(value) < 1e15) /* NOLINT: whole numbers are written as such */
        snprintf(text, sizeof text, "%.0f", value);
    else
        snprintf(text, sizeof text, "%.17g", value);
    return lf_hf_set(r, c, theirs, ours, text, err);
}

int lf_hf_get_f64(lf_hf_reader *r, const char *key, double *out, lf_err *err)
{
    return lf_hf_take(r, key) ? lf_json_get_f64(out, r->o, key, true, r->path, err) : 0;
}

int lf_hf_get_i64(lf_hf_reader *r, const char *key, int64_t *out, lf_err *err)
{
    return lf_hf_take(r, key) ? lf_json_get_i64(out, r->o, key, true, r->path, err) : 0;
}

int lf_hf_get_bool(lf_hf_reader *r, const char *key, bool *out, lf_err *err)
{
    return lf_hf_take(r, key) ? lf_json_get_bool(out, r->o, key, true, r->path, err) : 0;
}

int lf_hf_bad_value(const lf_hf_reader *r, const char *key, json_t *v, const char *why, lf_err *err)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = lf_fail(err, LF_ENOTSUP, "%s: %s = %.80s %s", r->path, key, text ? text : "?", why);
    free(text);
    return rc;
}

/* The text of our key from a value. */
static int to_text(const lf_hf_reader *r, const struct lf_hf_key *k, json_t *v, char *buf,
                   size_t cap, lf_err *err)
{
    const char *act;
    switch (k->kind) {
    case LF_HF_NUMBER:
        if (json_is_integer(v))
            snprintf(buf, cap, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        else if (json_is_real(v))
            snprintf(buf, cap, "%.17g", json_real_value(v));
        else
            return lf_hf_bad_value(r, k->name, v, "is not a number", err);
        return 0;
    case LF_HF_BOOL:
    case LF_HF_NOT:
        if (!json_is_boolean(v))
            return lf_hf_bad_value(r, k->name, v, "is neither true nor false", err);
        snprintf(buf, cap, "%s", json_is_true(v) == (k->kind == LF_HF_BOOL) ? "yes" : "no");
        return 0;
    case LF_HF_ACT:
        act = json_is_string(v) ? lf_hf_act_from(json_string_value(v)) : NULL;
        if (!act)
            return lf_hf_bad_value(r, k->name, v, "is not an activation that is known", err);
        snprintf(buf, cap, "%s", act);
        return 0;
    case LF_HF_SAME:
    case LF_HF_UNREAD:
    case LF_HF_INERT:
        break;
    }
    return 0;
}

/* A key by any of its names. *there: also when it is null. LF_EFORMAT: two names with different
 * values. */
static int take_any(lf_hf_reader *r, const char *names, json_t **out, bool *there, lf_err *err)
{
    *out = NULL;
    *there = false;
    for (const char *p = names; *p;) {
        char name[64];
        size_t n = strcspn(p, "|");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        json_t *v = lf_hf_take(r, name);
        *there = *there || json_object_get(r->o, name);
        if (v && *out && !json_equal(v, *out))
            return lf_fail(err, LF_EFORMAT, "%s: %s contradicts another name of the same key (%s)",
                           r->path, name, names);
        *out = v ? v : *out;
        p += n + (p[n] == '|');
    }
    return 0;
}

/* Does null say that there is none, and is that what our own default says? */
static bool may_be_null(const struct lf_hf_key *k)
{
    char first[48] = "";
    if (k->ours)
        snprintf(first, sizeof first, "%.*s", (int)strcspn(k->ours, " "), k->ours);
    return k->kind == LF_HF_BOOL || k->kind == LF_HF_NOT || k->kind == LF_HF_SAME ||
           k->kind == LF_HF_UNREAD || among(first, absent) || strstr(first, "dropout") ||
           strcmp(first, "decoder_start") == 0;
}

static int read_key(lf_hf_reader *r, const struct lf_hf_key *k, lf_model_config *c, lf_err *err)
{
    char text[64];
    bool there = false;
    json_t *def = k->def ? json_loads(k->def, JSON_DECODE_ANY, NULL) : NULL, *v = NULL;
    int rc = take_any(r, k->name, &v, &there, err);
    if (k->def && !def)
        LF_BUG("%s: default '%s' is not JSON", k->name, k->def);
    if (rc != 0 || k->kind == LF_HF_INERT)
        goto out;
    if (!v && !def)
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is missing", r->path, k->name);
    if (!v && there && def && !json_is_null(def) && !may_be_null(k))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s = null says nothing", r->path, k->name);
    if (!v && !there && !json_is_null(def))
        v = def;
    if (rc != 0 || !v) /* null means: as our default is */
        goto out;
    if (k->kind == LF_HF_SAME || k->kind == LF_HF_UNREAD) {
        bool same =
            json_equal(v, def) || (json_is_number(v) && json_is_number(def) &&
                                   fabs(json_number_value(v) - json_number_value(def)) <= 0);
        if (!same)
            rc = lf_hf_bad_value(r, k->name, v, "is a variant of this family that is not supported",
                                 err);
        goto out;
    }
    rc = to_text(r, k, v, text, sizeof text, err);
    for (const char *p = k->ours; *p && rc == 0;) {
        char ours[48];
        size_t n = strcspn(p, " ");
        snprintf(ours, sizeof ours, "%.*s", (int)n, p);
        rc = lf_hf_set(r, c, k->name, ours, text, err);
        p += n + strspn(p + n, " ");
    }
out:
    json_decref(def);
    return rc;
}

static int apply_switches(lf_model_config *c, const struct lf_hf_family *f, lf_err *err)
{
    char from[64];
    snprintf(from, sizeof from, "family %s", f->name);
    for (const char *const *s = f->switches; s && *s; s++) {
        char key[48];
        const char *eq = strchr(*s, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - *s), *s);
        int rc = lf_model_config_set(c, key, eq + 1, from, err);
        if (rc != 0)
            return rc;
    }
    snprintf(c->family, sizeof c->family, "%s", f->name);
    return 0;
}

int lf_hf_check_left(const lf_hf_reader *r, const char *type, lf_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(r->left, key, v)
    {
        if (lf_hf_is_inert(key))
            continue;
        /* A switch that is off is no switch: new versions of transformers add such keys. */
        if (json_is_null(v))
            continue;
        return lf_fail(err, LF_ENOTSUP,
                       "%s: key '%.100s' is not known for models of type %.*s; it may change the "
                       "numbers, so the model "
                       "is not imported",
                       r->path, key, (int)strcspn(type, " "), type);
    }
    return 0;
}

int64_t lf_hf_labels(json_t *config)
{
    json_t *n = json_object_get(config, "num_labels"), *names = json_object_get(config, "id2label");
    return json_is_integer(n)      ? json_integer_value(n)
           : json_is_object(names) ? (int64_t)json_object_size(names)
                                   : 2;
}

/* A class that predicts tokens: by its name, or because its head is the embedding. */
static int check_class(const lf_hf_reader *r, const lf_model_config *c,
                       const struct lf_hf_family *f, const char *class, lf_err *err)
{
    static const char *const ends[] = {
        "ForCausalLM", "LMHeadModel", "ForConditionalGeneration",
        "ForPreTraining"}; /* rows leave a head out that is not read */
    if (!f->architecture || strcmp(class, f->architecture) == 0)
        return 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (lf_str_has_suffix(class, ends[i]))
            return 0;
    const bool bare = lf_str_has_suffix(class, "Model") &&
                      !lf_str_has_suffix(class, "HeadsModel") && !strstr(class, "For");
    if (bare && c->tied_head)
        return 0;
    return lf_fail(err, LF_ENOTSUP,
                   "%s: architectures = %.60s %s; a model that predicts tokens is a %s", r->path,
                   class,
                   bare ? "has no head, and none is tied to the embedding" : "has another head",
                   f->architecture);
}

/* Which of the classes with labels it is; -1: none. */
static int labels_class(const char *class)
{
    static const char *const ends[] = {"ForSequenceClassification", "ForTokenClassification",
                                       "ForQuestionAnswering"};
    for (int i = 0; i < 3; i++)
        if (lf_str_has_suffix(class, ends[i]))
            return i;
    return -1;
}

/* A sequence classifier of one label gives scores, where a text is read at its last token. All
 * others have labels. */
static int read_output(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_family *f,
                       lf_err *err)
{
    const char *class =
        json_string_value(json_array_get(json_object_get(r->o, "architectures"), 0));
    (void)lf_hf_take(r, "num_labels");
    const int of = class ? labels_class(class) : -1;
    if (!class)
        return 0;
    if (f->discriminator && strcmp(f->discriminator, class) == 0) {
        const int rc = lf_model_give_labels(c, 1, LF_LABELS_OF_TOKEN, err);
        c->label_head = LF_LABEL_GELU;
        return rc;
    }
    c->nsp_head = f->pairs && strcmp(f->pairs, class) == 0;
    const bool own = of >= 0 && f->label_classes[of] && strcmp(f->label_classes[of], class) == 0;
    if (of < 0 || (of != LF_LABELS_OF_TEXT && !own))
        return check_class(r, c, f, class, err);
    const int64_t labels = lf_hf_labels(r->o);
    if (own || labels != 1)
        return lf_model_give_labels(c, labels, of, err) ? lf_err_prefix(err, "%s", r->path) : 0;
    (void)lf_hf_take(r, "mean"); /* of the scores: the state of a checkpoint has them */
    (void)lf_hf_take(r, "std");
    (void)lf_hf_take(r,
                     "value_head_prefix"); /* OpenRLHF's name of the head; the tensors say it too */
    return lf_hf_set(r, c, "architectures", "output", "score", err);
}

int lf_hf_read_keys(lf_hf_reader *r, const struct lf_hf_key *keys, lf_model_config *c, lf_err *err)
{
    int rc = 0;
    for (const struct lf_hf_key *k = keys; k->name && rc == 0; k++)
        rc = read_key(r, k, c, err);
    return rc;
}

int lf_hf_read_object(lf_model_config *c, const struct lf_hf_family *f, json_t *o, const char *path,
                      lf_err *err)
{
    lf_hf_reader r = {o, path, json_copy(o)};
    int rc = r.left ? apply_switches(c, f, err) : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_hf_read_keys(&r, f->keys, c, err);
    if (rc == 0)
        rc = read_output(&r, c, f, err);
    if (rc == 0 && f->read)
        rc = f->read(&r, c, err);
    if (rc == 0 && !f->loose)
        rc = lf_hf_check_left(&r, f->model_type, err);
    json_decref(r.left);
    return rc;
}

int lf_hf_config_read(lf_model_config *out, const struct lf_hf_family *f, json_t *config,
                      const char *path, lf_err *err)
{
    lf_model_config c;
    struct lf_hf_quant quant;
    lf_model_config_defaults(&c);
    int rc = lf_hf_quant_read(&quant, config, path, err);
    json_t *o =
        rc == 0 ? json_copy(config) : NULL; /* describes the model, whatever its weights are */
    if (rc == 0 && !o)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_object_del(o, LF_HF_QUANT);
    if (rc == 0)
        rc = f->lone    ? lf_hf_read_lone(&c, f, o, path, err)
             : f->sight ? lf_hf_read_sight(&c, f, o, path, err)
                        : lf_hf_read_object(&c, f, o, path, err);
    if (rc == 0 && c.mtp_layers) {
        c.mtp_join = f->mtp_join;
        c.mtp_mlp = f->mtp_mlp;
        c.mtp_norm = f->mtp_norm;
    }
    if (rc == 0)
        rc = lf_model_config_finish(&c, err);
    if (rc == 0)
        *out = c;
    json_decref(o);
    return rc;
}

/* ---- writing ---- */

/* Keys of ours whose 0 says that there is none: null in config.json, where 0 is a window of no
 * token or a division by 0. */
static const char *const off[] = {"sliding_window", "attn_softcap", "logit_softcap", "q_lora",
                                  NULL};

/* A count is an integer and a real has a point, whole or not: transformers refuses the other. */
static json_t *number_of(const char *ours, const char *text)
{
    int64_t n;
    double x;
    if (lf_parse_f64(&x, text, NULL))
        return NULL;
    if (among(ours, off) && !(x > 0))
        return json_null();
    if (!lf_model_key_is_real(ours) && lf_parse_i64(&n, text, NULL) == 0)
        return json_integer(n);
    return json_real(x);
}

/* A key's value from the canonical texts of our keys; NULL: not written. */
static json_t *value_of(const struct lf_hf_key *k, json_t *ours)
{
    char first[48] = "";
    const char *text, *act;
    if (k->ours)
        snprintf(first, sizeof first, "%.*s", (int)strcspn(k->ours, " "), k->ours);
    text = json_string_value(json_object_get(ours, first));
    switch (k->kind) {
    case LF_HF_NUMBER:
        return text ? number_of(first, text) : NULL;
    case LF_HF_BOOL:
        return text ? json_boolean(strcmp(text, "yes") == 0) : NULL;
    case LF_HF_NOT:
        return text ? json_boolean(strcmp(text, "no") == 0) : NULL;
    case LF_HF_ACT:
        act = text ? lf_hf_act_to(text) : NULL;
        return act ? json_string(act) : NULL;
    case LF_HF_SAME:
    case LF_HF_INERT:
        return k->def ? json_loads(k->def, JSON_DECODE_ANY, NULL) : NULL;
    case LF_HF_UNREAD:
        break;
    }
    return NULL;
}

int lf_hf_write_keys(const struct lf_hf_key *keys, const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *ours = lf_model_config_to_json(c, err);
    int rc = ours ? 0 : LF_ENOMEM;
    for (const struct lf_hf_key *k = keys; k->name && rc == 0; k++) {
        char name[64]; /* the first of its names */
        json_t *v = value_of(k, ours);
        if (k->def && strcmp(k->def, "null") == 0 && json_is_number(v) &&
            json_number_value(v) <= 0) {
            json_decref(v); /* 0 is a size there */
            v = json_null();
        }
        snprintf(name, sizeof name, "%.*s", (int)strcspn(k->name, "|"), k->name);
        if (v && json_object_set_new(o, name, v) != 0)
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
    }
    json_decref(ours);
    return rc;
}

/* What was written means this model, in everything that shapes tensors or numbers. */
static int read_back(const struct lf_hf_family *f, const lf_model_config *c, json_t *o, lf_err *err)
{
    lf_model_config back;
    lf_err why = LF_ERR_INIT;
    const char *key = NULL;
    int rc = lf_hf_config_read(&back, f, o, "config.json", &why);
    if (rc != 0)
        return lf_fail(err, LF_EINVAL, "this model cannot be written as family %s: %.800s", f->name,
                       why.text);
    /* A file that always names the scale names the usual one where this model has none of its
     * own. */
    if (c->attn_scale <= 0 &&
        fabs(back.attn_scale * back.attn_scale * (double)c->head_dim - 1) < 1e-12)
        back.attn_scale = c->attn_scale;
    /* of training, which no config.json describes */
    back.router_bias_rate = c->router_bias_rate;
    back.dual.scale_init = c->dual.scale_init;
    back.dual.bias_init = c->dual.bias_init;
    back.capacity_factor = c->capacity_factor;
    if (!lf_model_config_equal(c, &back, &key))
        return lf_fail(
            err, LF_EINVAL,
            "this model cannot be written as family %s, whose config.json has no place for its %s",
            f->name, key);
    return 0;
}

/* Special tokens that are not known are named null: a class of transformers has defaults for them,
 * which are those of another vocabulary. Code that was published beside weights goes without. */
static int write_no_tokens(const struct lf_hf_family *f, json_t *o, lf_err *err)
{
    json_t *none = json_pack("{s:n, s:n, s:n}", "bos_token_id", "eos_token_id", "pad_token_id");
    int bad = !none || ((f->classifier || f->native) && json_object_update(o, none));
    json_decref(none);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

int lf_hf_write_labels(int64_t n, const json_t *called, json_t *o, lf_err *err)
{
    json_t *names = json_object(), *numbers = json_object();
    int bad = !names || !numbers;
    for (int64_t i = 0; i < n && !bad; i++) {
        char key[32], name[40];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%s", key);
        const char *is = called ? json_string_value(json_array_get(called, (size_t)i)) : name;
        bad = json_object_set_new(names, key, json_string(is)) ||
              json_object_set_new(numbers, is, json_integer(i));
    }
    bad = bad || json_object_set(o, "id2label", names) || json_object_set(o, "label2id", numbers);
    json_decref(names);
    json_decref(numbers);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* Labels and their names. Of one label it is regression: transformers would put a sigmoid or a
 * softmax on any other problem. */
static int write_output(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t n = c->output == LF_OUTPUT_LABELS ? c->labels : 1;
    const int rc = lf_hf_write_labels(n, NULL, o, err);
    if (rc == 0 && (json_object_set_new(o, "num_labels", json_integer(n)) ||
                    (n == 1 && json_object_set_new(o, "problem_type", json_string("regression")))))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

const char *lf_hf_class_of(const struct lf_hf_family *f, const lf_model_config *c)
{
    if (c->output == LF_OUTPUT_TOKENS)
        return f->pairs && c->nsp_head ? f->pairs : f->architecture;
    if (f->discriminator && lf_model_discriminates(c))
        return f->discriminator;
    if (c->output == LF_OUTPUT_LABELS && f->label_classes[c->labels_of])
        return f->label_classes[c->labels_of];
    return c->output == LF_OUTPUT_SCORE || c->labels_of == LF_LABELS_OF_TEXT ? f->classifier : NULL;
}

json_t *lf_hf_config_write(const struct lf_hf_family *f, const lf_model_config *c,
                           const char *dtype, lf_err *err)
{
    const bool scores = c->output != LF_OUTPUT_TOKENS;
    const char *class = lf_hf_class_of(f, c);
    if (scores && !class) {
        lf_fail(err, LF_EINVAL,
                "a model that gives %s cannot be written as family %s: no class of transformers is "
                "known here that reads it",
                c->output != LF_OUTPUT_LABELS        ? "scores"
                : c->labels_of == LF_LABELS_OF_TEXT  ? "labels"
                : c->labels_of == LF_LABELS_OF_TOKEN ? "labels of tokens"
                                                     : "spans",
                f->name);
        return NULL;
    }
    json_t *o = json_pack("{s:[s], s:s, s:s#}", "architectures", class, "dtype", dtype,
                          "model_type", f->model_type, (int)strcspn(f->model_type, " "));
    int rc = o ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = f->lone ? lf_hf_write_lone(f, c, o, err) : lf_hf_write_keys(f->keys, c, o, err);
    if (rc == 0)
        rc = write_no_tokens(f, o, err);
    if (rc == 0 && scores)
        rc = write_output(c, o, err);
    if (rc == 0 && f->sight && (rc = lf_hf_write_sight(f, c, o, err)) == LF_EINVAL)
        lf_err_prefix(err, "this model cannot be written as family %s", f->name);
    if (rc == 0 && f->write && (rc = f->write(c, o, err)) == LF_EINVAL)
        lf_err_prefix(err, "this model cannot be written as family %s", f->name);
    if (rc == 0)
        rc = read_back(f, c, o, err);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}
