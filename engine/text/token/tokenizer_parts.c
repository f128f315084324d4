/* SPDX-License-Identifier: Apache-2.0
 *
 * See tokenizer_parts.h. Every component has a type; one that is not known here is an error naming
 * it, because skipping it would change ids without a word.
 */
#include "config.h"

#include "engine/text/token/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/base64.h"
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/text/token/unitext.h"

#define DEPTH_MAX 8

/* o's "type", with a message that names the part it belongs to. */
static int type_of(const char **type, json_t *o, const char *part, const char *path, lf_err *err)
{
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "%s: %s is no object", path, part);
    int rc = lf_json_get_str(type, o, "type", true, part, err);
    return rc == 0 ? 0 : lf_err_prefix(err, "%s", path);
}

static int unknown(const char *type, const char *part, const char *path, lf_err *err)
{
    return lf_fail(err, LF_ENOTSUP, "%s: %s \"%.80s\" is not supported", path, part, type);
}

static int get_bool(bool *out, json_t *o, const char *key, bool need, const char *part,
                    const char *path, lf_err *err)
{
    int rc = lf_json_get_bool(out, o, key, need, part, err);
    return rc == 0 ? 0 : lf_err_prefix(err, "%s", path);
}

/* Call fn for each member of a Sequence's list. */
typedef int (*part_fn)(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err);
static int each(lf_tokenizer *t, json_t *o, const char *list, part_fn fn, int depth,
                const char *path, lf_err *err)
{
    json_t *items = NULL, *item;
    size_t i;
    if (depth >= DEPTH_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: %s are nested too deep", path, list);
    int rc = lf_json_get_array(&items, o, list, true, "Sequence", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    json_array_foreach(items, i, item)
    {
        rc = fn(t, item, depth + 1, path, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- normalizer ---- */

static int get_text(char **out, size_t *n, json_t *o, const char *key, const char *part,
                    const char *path, lf_err *err)
{
    const char *text = NULL;
    int rc = lf_json_get_str(&text, o, key, true, part, err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    *out = lf_strdup(text, err);
    *n = strlen(text);
    return *out ? 0 : LF_ENOMEM;
}

int lf_tok_load_replace(lf_normstep *st, json_t *o, const char *path, lf_err *err)
{
    json_t *pattern = NULL;
    const char *regex;
    int rc = lf_json_get_object(&pattern, o, "pattern", true, "Replace", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    st->type = LF_NORMSTEP_REPLACE;
    rc = get_text(&st->to, &st->n_to, o, "content", "Replace", path, err);
    if (rc == 0 && json_object_get(pattern, "String")) {
        rc = get_text(&st->from, &st->n_from, pattern, "String", "Replace pattern", path, err);
        if (rc == 0 && st->n_from == 0)
            rc = lf_fail(err, LF_ENOTSUP, "%s: Replace of an empty text is not supported", path);
        return rc;
    }
    if (rc == 0)
        rc = lf_json_get_str(&regex, pattern, "Regex", true, "Replace pattern", err);
    if (rc == 0)
        rc = (st->re = lf_regex_create(regex, LF_REGEX_ONIGURUMA, err)) ? 0 : LF_EFORMAT;
    return rc == 0 ? 0 : lf_err_prefix(err, "%s", path);
}

static int load_bert(lf_normstep *st, json_t *o, const char *path, lf_err *err)
{
    st->clean = st->chinese = st->lower = true;
    int rc = get_bool(&st->clean, o, "clean_text", false, "BertNormalizer", path, err);
    if (rc == 0)
        rc = get_bool(&st->chinese, o, "handle_chinese_chars", false, "BertNormalizer", path, err);
    if (rc == 0)
        rc = get_bool(&st->lower, o, "lowercase", false, "BertNormalizer", path, err);
    st->accents = st->lower; /* null: as lowercase */
    if (rc == 0 && !json_is_null(json_object_get(o, "strip_accents")))
        rc = get_bool(&st->accents, o, "strip_accents", false, "BertNormalizer", path, err);
    return rc;
}

static int load_precompiled(lf_normstep *st, json_t *o, const char *path, lf_err *err)
{
    const char *text = NULL;
    lf_buf blob;
    int rc = lf_json_get_str(&text, o, "precompiled_charsmap", true, "Precompiled", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    lf_buf_init(&blob);
    if (!lf_base64_decode(&blob, text, strlen(text)))
        rc = lf_fail(err, LF_EFORMAT, "%s: Precompiled: precompiled_charsmap is not base64", path);
    else
        rc = lf_buf_check(&blob, err);
    if (rc == 0)
        rc = lf_charsmap_init(&st->map, (const uint8_t *)blob.data, blob.len, path, err);
    lf_buf_fini(&blob);
    return rc;
}

static int need_ucls(lf_tokenizer *t, lf_err *err)
{
    if (!t->ucls)
        t->ucls = lf_unitext_create(err);
    return t->ucls ? 0 : LF_ENOMEM;
}

static int load_norm_step(lf_tokenizer *t, lf_normstep *st, json_t *o, const char *path,
                          lf_err *err)
{
    int rc = 0;
    switch (st->type) {
    case LF_NORMSTEP_BERT:
        rc = need_ucls(t, err);
        return rc == 0 ? load_bert(st, o, path, err) : rc;
    case LF_NORMSTEP_STRIP_ACCENTS:
        return need_ucls(t, err);
    case LF_NORMSTEP_STRIP:
        rc = get_bool(&st->left, o, "strip_left", true, "Strip", path, err);
        return rc == 0 ? get_bool(&st->right, o, "strip_right", true, "Strip", path, err) : rc;
    case LF_NORMSTEP_REPLACE:
        return lf_tok_load_replace(st, o, path, err);
    case LF_NORMSTEP_PREPEND:
        return get_text(&st->to, &st->n_to, o, "prepend", "Prepend", path, err);
    case LF_NORMSTEP_PRECOMPILED:
        return load_precompiled(st, o, path, err);
    default:
        return 0;
    }
}

static int load_norm(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_norm_type type;
        enum lf_norm form;
    } kinds[] = {
        {"NFC", LF_NORMSTEP_FORM, LF_NORM_NFC},      {"NFD", LF_NORMSTEP_FORM, LF_NORM_NFD},
        {"NFKC", LF_NORMSTEP_FORM, LF_NORM_NFKC},    {"NFKD", LF_NORMSTEP_FORM, LF_NORM_NFKD},
        {"Lowercase", LF_NORMSTEP_LOWER, 0},         {"StripAccents", LF_NORMSTEP_STRIP_ACCENTS, 0},
        {"BertNormalizer", LF_NORMSTEP_BERT, 0},     {"Strip", LF_NORMSTEP_STRIP, 0},
        {"Replace", LF_NORMSTEP_REPLACE, 0},         {"Prepend", LF_NORMSTEP_PREPEND, 0},
        {"Precompiled", LF_NORMSTEP_PRECOMPILED, 0}, {"Nmt", LF_NORMSTEP_NMT, 0},
        {"ByteLevel", LF_NORMSTEP_BYTELEVEL, 0}};
    const char *type;
    int rc = type_of(&type, o, "normalizer", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "normalizers", load_norm, depth, path, err);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(type, kinds[i].name) != 0)
            continue;
        if (t->n_norms == LF_TOK_STEPS_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: more than %d normalizers", path, LF_TOK_STEPS_MAX);
        lf_normstep *st = &t->norms[t->n_norms++];
        st->type = kinds[i].type;
        st->form = kinds[i].form;
        return load_norm_step(t, st, o, path, err);
    }
    return unknown(type, "normalizer", path, err);
}

/* ---- pre_tokenizer ---- */

static int load_behavior(lf_pretok *p, const char *behavior, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_split_behavior b;
    } behaviors[] = {{"Removed", LF_SPLIT_REMOVED},
                     {"Isolated", LF_SPLIT_ISOLATED},
                     {"MergedWithPrevious", LF_SPLIT_MERGED_PREV},
                     {"MergedWithNext", LF_SPLIT_MERGED_NEXT},
                     {"Contiguous", LF_SPLIT_CONTIGUOUS}};
    for (size_t i = 0; i < sizeof(behaviors) / sizeof(behaviors[0]); i++) {
        if (strcmp(behaviors[i].name, behavior) == 0) {
            p->behavior = behaviors[i].b;
            return 0;
        }
    }
    return lf_fail(err, LF_EFORMAT, "%s: Split behavior \"%.60s\" is not known", path, behavior);
}

static int load_split(const lf_tokenizer *t, lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    json_t *pattern = NULL;
    const char *behavior = NULL, *text = NULL;
    int rc = lf_json_get_object(&pattern, o, "pattern", true, "Split", err);
    if (rc == 0)
        rc = lf_json_get_str(&behavior, o, "behavior", true, "Split", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    rc = get_bool(&p->invert, o, "invert", true, "Split", path, err);
    if (rc != 0)
        return rc;
    rc = load_behavior(p, behavior, path, err);
    if (rc != 0)
        return rc;
    bool literal = json_object_get(pattern, "String") != NULL;
    rc = lf_json_get_str(&text, pattern, literal ? "String" : "Regex", true, "Split pattern", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    p->scan = literal ? LF_SCAN_NONE : lf_scan_find(text);
    p->re = lf_regex_create(text, literal ? LF_REGEX_LITERAL : t->patterns, err);
    return p->re ? 0 : lf_err_prefix(err, "%s", path);
}

static int load_byte_level(lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    bool trim;
    p->use_regex = true;
    int rc = get_bool(&p->add_prefix_space, o, "add_prefix_space", true, "ByteLevel", path, err);
    if (rc == 0)
        rc = get_bool(&trim, o, "trim_offsets", true, "ByteLevel", path,
                      err); /* changes offsets, not ids */
    if (rc == 0)
        rc = get_bool(&p->use_regex, o, "use_regex", false, "ByteLevel", path, err);
    if (rc != 0 || !p->use_regex)
        return rc;
    p->scan = LF_SCAN_GPT2;
    p->re = lf_regex_create(LF_PATTERN_GPT2, LF_REGEX_ONIGURUMA, err);
    return p->re ? 0 : LF_ENOMEM;
}

static int load_mark(lf_pretok *p, json_t *o, const char *key, const char *part, const char *path,
                     lf_err *err)
{
    const char *text = NULL;
    int rc = lf_json_get_str(&text, o, key, true, part, err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    size_t n = strlen(text);
    if (n == 0 || lf_utf8_len(text, n) != n)
        return lf_fail(err, LF_EFORMAT, "%s: %s: %s is not one character", path, part, key);
    memcpy(p->mark, text, n);
    p->n_mark = (unsigned)n;
    return 0;
}

int lf_tok_load_prepend(enum lf_prepend *out, json_t *o, const char *path, lf_err *err)
{
    const char *scheme = "always";
    bool add = true, given = json_is_boolean(json_object_get(o, "add_prefix_space"));
    int rc = lf_json_get_str(&scheme, o, "prepend_scheme", false, "Metaspace", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    if (given)
        add = json_is_true(json_object_get(o, "add_prefix_space"));
    if (strcmp(scheme, "always") == 0)
        *out = LF_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        *out = LF_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        *out = LF_PREPEND_NEVER;
    else
        return lf_fail(err, LF_EFORMAT, "%s: Metaspace: prepend_scheme \"%.40s\" is not known",
                       path, scheme);
    if (given && !add && json_object_get(o, "prepend_scheme") && *out != LF_PREPEND_NEVER)
        return lf_fail(err, LF_EFORMAT,
                       "%s: Metaspace: add_prefix_space is false, prepend_scheme \"%.40s\"", path,
                       scheme);
    if (given && !add)
        *out = LF_PREPEND_NEVER;
    return 0;
}

static int load_metaspace(lf_tokenizer *t, lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    p->behavior = LF_SPLIT_MERGED_NEXT;
    p->split = true;
    int rc = load_mark(p, o, "replacement", "Metaspace", path, err);
    if (rc == 0)
        rc = lf_tok_load_prepend(&p->prepend, o, path, err);
    t->front_matters = t->front_matters || p->prepend == LF_PREPEND_FIRST;
    if (rc == 0 && !json_is_null(json_object_get(o, "split")))
        rc = get_bool(&p->split, o, "split", false, "Metaspace", path, err);
    return rc;
}

static int load_digits(lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    bool individual = false;
    int rc = get_bool(&individual, o, "individual_digits", true, "Digits", path, err);
    p->behavior = individual ? LF_SPLIT_ISOLATED : LF_SPLIT_CONTIGUOUS;
    return rc;
}

static int load_punct(lf_tokenizer *t, lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    const char *behavior = "Isolated";
    int rc = lf_json_get_str(&behavior, o, "behavior", false, "Punctuation", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    rc = need_ucls(t, err);
    return rc == 0 ? load_behavior(p, behavior, path, err) : rc;
}

static lf_pretok *new_pretok(lf_tokenizer *t, enum lf_pretok_type type, const char *path,
                             lf_err *err)
{
    if (t->n_pretok == LF_TOK_STEPS_MAX) {
        lf_fail(err, LF_EFORMAT, "%s: more than %d pre_tokenizers", path, LF_TOK_STEPS_MAX);
        return NULL;
    }
    lf_pretok *p = &t->pretok[t->n_pretok++];
    p->type = type;
    p->behavior = LF_SPLIT_REMOVED;
    return p;
}

static int load_pretok_step(lf_tokenizer *t, lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    switch (p->type) {
    case LF_PRETOK_SPLIT:
        return load_split(t, p, o, path, err);
    case LF_PRETOK_DIGITS:
        return load_digits(p, o, path, err);
    case LF_PRETOK_BYTELEVEL:
        return load_byte_level(p, o, path, err);
    case LF_PRETOK_METASPACE:
        return load_metaspace(t, p, o, path, err);
    case LF_PRETOK_PUNCT:
        return load_punct(t, p, o, path, err);
    case LF_PRETOK_DELIM:
        return load_mark(p, o, "delimiter", "CharDelimiterSplit", path, err);
    default:
        return 0;
    }
}

static int load_pretok(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_pretok_type type;
    } kinds[] = {{"Split", LF_PRETOK_SPLIT},         {"Digits", LF_PRETOK_DIGITS},
                 {"ByteLevel", LF_PRETOK_BYTELEVEL}, {"Metaspace", LF_PRETOK_METASPACE},
                 {"Whitespace", LF_PRETOK_WORDS},    {"WhitespaceSplit", LF_PRETOK_SPACE},
                 {"Punctuation", LF_PRETOK_PUNCT},   {"CharDelimiterSplit", LF_PRETOK_DELIM}};
    const char *type;
    int rc = type_of(&type, o, "pre_tokenizer", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "pretokenizers", load_pretok, depth, path, err);
    if (t->n_pretok > 0 && t->pretok[t->n_pretok - 1].type == LF_PRETOK_BYTELEVEL)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: pre_tokenizer \"%.80s\" after ByteLevel is not supported", path, type);
    if (strcmp(type, "BertPreTokenizer") ==
        0) { /* white space goes, then punctuation stands alone */
        lf_pretok *p = new_pretok(t, LF_PRETOK_SPACE, path, err);
        p = p ? new_pretok(t, LF_PRETOK_PUNCT, path, err) : NULL;
        if (p)
            p->behavior = LF_SPLIT_ISOLATED;
        return p ? need_ucls(t, err) : LF_EFORMAT;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(type, kinds[i].name) != 0)
            continue;
        lf_pretok *p = new_pretok(t, kinds[i].type, path, err);
        return p ? load_pretok_step(t, p, o, path, err) : LF_EFORMAT;
    }
    return unknown(type, "pre_tokenizer", path, err);
}

/* The usual shapes need no spans: ByteLevel alone, or a known pattern before a plain ByteLevel. */
static enum lf_scan_kind find_fast(const lf_tokenizer *t)
{
    const lf_pretok *a = &t->pretok[0], *b = &t->pretok[1];
    if (t->n_pretok == 1 && a->type == LF_PRETOK_BYTELEVEL && a->use_regex && !a->add_prefix_space)
        return LF_SCAN_GPT2;
    if (t->n_pretok == 2 && a->type == LF_PRETOK_SPLIT && a->behavior == LF_SPLIT_ISOLATED &&
        b->type == LF_PRETOK_BYTELEVEL && !b->use_regex && !b->add_prefix_space)
        return a->scan;
    return LF_SCAN_NONE;
}

/* ---- post_processor ---- */

static int add_template_ids(lf_ids *to, const json_t *specials, json_t *piece, const char *path,
                            lf_err *err)
{
    const char *id = NULL;
    json_t *ids = NULL, *v;
    size_t i;
    int rc = lf_json_get_str(&id, piece, "id", true, "SpecialToken", err);
    if (rc == 0)
        rc = lf_json_get_array(&ids, json_object_get(specials, id), "ids", true, "special_tokens",
                               err);
    if (rc != 0)
        return lf_err_prefix(err, "%s: TemplateProcessing", path);
    json_array_foreach(ids, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: TemplateProcessing: bad id of \"%.80s\"", path,
                           id);
        rc = lf_ids_add(to, (uint32_t)json_integer_value(v), err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int load_template(lf_tokenizer *t, json_t *o, const char *path, lf_err *err)
{
    json_t *single = NULL, *specials = NULL, *piece;
    size_t i;
    bool seen = false;
    int rc = lf_json_get_array(&single, o, "single", true, "TemplateProcessing", err);
    if (rc == 0)
        rc = lf_json_get_object(&specials, o, "special_tokens", true, "TemplateProcessing", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    json_array_foreach(single, i, piece)
    {
        json_t *special = json_object_get(piece, "SpecialToken"),
               *seq = json_object_get(piece, "Sequence");
        const char *which = json_string_value(json_object_get(seq, "id"));
        if (seq && !seen && which && strcmp(which, "A") == 0)
            seen = true;
        else if (special)
            rc = add_template_ids(seen ? &t->after : &t->before, specials, special, path, err);
        else
            rc = lf_fail(err, LF_ENOTSUP,
                         "%s: TemplateProcessing: piece %zu of \"single\" is not supported", path,
                         i);
        if (rc != 0)
            return rc;
    }
    return seen ? 0
                : lf_fail(err, LF_EFORMAT,
                          "%s: TemplateProcessing: \"single\" does not hold the text", path);
}

/* BertProcessing, RobertaProcessing: one token before and one behind, each as [text, id]. */
static int load_cls_sep(lf_tokenizer *t, json_t *o, const char *type, const char *path, lf_err *err)
{
    if (t->before.n || t->after.n)
        return lf_fail(err, LF_ENOTSUP, "%s: two post_processors that add tokens are not supported",
                       path);
    for (int k = 0; k < 2; k++) {
        const json_t *id = json_array_get(json_object_get(o, k ? "sep" : "cls"), 1);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: %s: %s is not a text and an id", path, type,
                           k ? "sep" : "cls");
        int rc = lf_ids_add(k ? &t->after : &t->before, (uint32_t)json_integer_value(id), err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int load_post(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    const char *type;
    int rc = type_of(&type, o, "post_processor", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "processors", load_post, depth, path, err);
    if (strcmp(type, "ByteLevel") == 0) /* offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (t->before.n || t->after.n)
            return lf_fail(err, LF_ENOTSUP, "%s: two TemplateProcessing are not supported", path);
        return load_template(t, o, path, err);
    }
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return load_cls_sep(t, o, type, path, err);
    return unknown(type, "post_processor", path, err);
}

/* ---- decoder (its steps are read by tokenizer_decoder.c) ---- */

static int load_decoder(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    const char *type;
    int rc = type_of(&type, o, "decoder", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "decoders", load_decoder, depth, path, err);
    if (t->n_decs == LF_TOK_STEPS_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: more than %d decoders", path, LF_TOK_STEPS_MAX);
    return lf_tok_load_decstep(t, o, type, path, err);
}

static json_t *member(json_t *root, const char *key)
{
    json_t *v = json_object_get(root, key);
    return v && !json_is_null(v) ? v : NULL;
}

int lf_tok_load_parts(lf_tokenizer *t, json_t *root, const char *path, lf_err *err)
{
    json_t *norm = member(root, "normalizer"), *pre = member(root, "pre_tokenizer");
    json_t *post = member(root, "post_processor"), *dec = member(root, "decoder");
    int rc = norm ? load_norm(t, norm, 0, path, err) : 0;
    if (rc == 0 && pre)
        rc = load_pretok(t, pre, 0, path, err);
    if (rc == 0 && post)
        rc = load_post(t, post, 0, path, err);
    if (rc == 0 && dec)
        rc = load_decoder(t, dec, 0, path, err);
    if (rc != 0)
        return rc;
    if (t->n_decs == 0)
        t->decs[t->n_decs++].type = LF_DEC_JOIN;
    t->byte_level = t->n_pretok > 0 && t->pretok[t->n_pretok - 1].type == LF_PRETOK_BYTELEVEL;
    t->fast = find_fast(t);
    return 0;
}
