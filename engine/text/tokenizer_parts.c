/* SPDX-License-Identifier: Apache-2.0
 *
 * See tokenizer_parts.h. Every component has a type; one that is not known here is an error naming it, because skipping
 * it would change ids without a word.
 */
#include "config.h"

#include "engine/text/tokenizer_parts.h"

#include <string.h>

#include "engine/base/json.h"

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

static int get_bool(bool *out, json_t *o, const char *key, bool need, const char *part, const char *path, lf_err *err)
{
    int rc = lf_json_get_bool(out, o, key, need, part, err);
    return rc == 0 ? 0 : lf_err_prefix(err, "%s", path);
}

/* Call fn for each member of a Sequence's list. */
typedef int (*part_fn)(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err);
static int each(lf_tokenizer *t, json_t *o, const char *list, part_fn fn, int depth, const char *path, lf_err *err)
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

static int load_norm(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_norm form;
    } forms[] = {{"NFC", LF_NORM_NFC}, {"NFD", LF_NORM_NFD}, {"NFKC", LF_NORM_NFKC}, {"NFKD", LF_NORM_NFKD}};
    const char *type;
    int rc = type_of(&type, o, "normalizer", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "normalizers", load_norm, depth, path, err);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(type, forms[i].name) != 0)
            continue;
        if (t->n_norms == LF_TOK_STEPS_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: more than %d normalizers", path, LF_TOK_STEPS_MAX);
        t->norms[t->n_norms++] = forms[i].form;
        return 0;
    }
    return unknown(type, "normalizer", path, err);
}

/* ---- pre_tokenizer ---- */

static int load_split(lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_split_behavior b;
    } behaviors[] = {{"Removed", LF_SPLIT_REMOVED},
                     {"Isolated", LF_SPLIT_ISOLATED},
                     {"MergedWithPrevious", LF_SPLIT_MERGED_PREV},
                     {"MergedWithNext", LF_SPLIT_MERGED_NEXT},
                     {"Contiguous", LF_SPLIT_CONTIGUOUS}};
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
    size_t i = 0, n = sizeof(behaviors) / sizeof(behaviors[0]);
    while (i < n && strcmp(behaviors[i].name, behavior) != 0)
        i++;
    if (i == n)
        return lf_fail(err, LF_EFORMAT, "%s: Split behavior \"%.60s\" is not known", path, behavior);
    p->behavior = behaviors[i].b;
    bool literal = json_object_get(pattern, "String") != NULL;
    rc = lf_json_get_str(&text, pattern, literal ? "String" : "Regex", true, "Split pattern", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s", path);
    p->scan = literal ? LF_SCAN_NONE : lf_scan_find(text);
    p->re = lf_regex_create(text, literal, err);
    return p->re ? 0 : lf_err_prefix(err, "%s", path);
}

static int load_byte_level(lf_pretok *p, json_t *o, const char *path, lf_err *err)
{
    bool trim;
    p->use_regex = true;
    int rc = get_bool(&p->add_prefix_space, o, "add_prefix_space", true, "ByteLevel", path, err);
    if (rc == 0)
        rc = get_bool(&trim, o, "trim_offsets", true, "ByteLevel", path, err); /* changes offsets, not ids */
    if (rc == 0)
        rc = get_bool(&p->use_regex, o, "use_regex", false, "ByteLevel", path, err);
    if (rc != 0 || !p->use_regex)
        return rc;
    p->scan = LF_SCAN_GPT2;
    p->re = lf_regex_create(LF_PATTERN_GPT2, 0, err);
    return p->re ? 0 : LF_ENOMEM;
}

static int load_pretok(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    const char *type;
    int rc = type_of(&type, o, "pre_tokenizer", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "pretokenizers", load_pretok, depth, path, err);
    if (t->n_pretok == LF_TOK_STEPS_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: more than %d pre_tokenizers", path, LF_TOK_STEPS_MAX);
    if (t->n_pretok > 0 && t->pretok[t->n_pretok - 1].type == LF_PRETOK_BYTELEVEL)
        return lf_fail(err, LF_ENOTSUP, "%s: pre_tokenizer \"%.80s\" after ByteLevel is not supported", path, type);
    lf_pretok *p = &t->pretok[t->n_pretok++];
    if (strcmp(type, "Split") == 0) {
        p->type = LF_PRETOK_SPLIT;
        return load_split(p, o, path, err);
    }
    if (strcmp(type, "Digits") == 0) {
        p->type = LF_PRETOK_DIGITS;
        return get_bool(&p->individual, o, "individual_digits", true, "Digits", path, err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        p->type = LF_PRETOK_BYTELEVEL;
        return load_byte_level(p, o, path, err);
    }
    t->n_pretok--;
    return unknown(type, "pre_tokenizer", path, err);
}

/* The usual shapes need no spans: ByteLevel alone, or a known pattern before a plain ByteLevel. */
static enum lf_scan_kind find_fast(const lf_tokenizer *t)
{
    const lf_pretok *a = &t->pretok[0], *b = &t->pretok[1];
    if (t->n_pretok == 1 && a->use_regex && !a->add_prefix_space)
        return LF_SCAN_GPT2;
    if (t->n_pretok == 2 && a->type == LF_PRETOK_SPLIT && a->behavior == LF_SPLIT_ISOLATED && !b->use_regex &&
        !b->add_prefix_space)
        return a->scan;
    return LF_SCAN_NONE;
}

/* ---- post_processor ---- */

static int add_template_ids(lf_ids *to, const json_t *specials, json_t *piece, const char *path, lf_err *err)
{
    const char *id = NULL;
    json_t *ids = NULL, *v;
    size_t i;
    int rc = lf_json_get_str(&id, piece, "id", true, "SpecialToken", err);
    if (rc == 0)
        rc = lf_json_get_array(&ids, json_object_get(specials, id), "ids", true, "special_tokens", err);
    if (rc != 0)
        return lf_err_prefix(err, "%s: TemplateProcessing", path);
    json_array_foreach(ids, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: TemplateProcessing: bad id of \"%.80s\"", path, id);
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
        json_t *special = json_object_get(piece, "SpecialToken"), *seq = json_object_get(piece, "Sequence");
        const char *which = json_string_value(json_object_get(seq, "id"));
        if (seq && !seen && which && strcmp(which, "A") == 0)
            seen = true;
        else if (special)
            rc = add_template_ids(seen ? &t->after : &t->before, specials, special, path, err);
        else
            rc = lf_fail(err, LF_ENOTSUP, "%s: TemplateProcessing: piece %zu of \"single\" is not supported", path, i);
        if (rc != 0)
            return rc;
    }
    return seen ? 0 : lf_fail(err, LF_EFORMAT, "%s: TemplateProcessing: \"single\" does not hold the text", path);
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
    return unknown(type, "post_processor", path, err);
}

/* ---- decoder ---- */

static int load_decoder(lf_tokenizer *t, json_t *o, int depth, const char *path, lf_err *err)
{
    const char *type;
    int rc = type_of(&type, o, "decoder", path, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return each(t, o, "decoders", load_decoder, depth, path, err);
    return strcmp(type, "ByteLevel") == 0 ? 0 : unknown(type, "decoder", path, err);
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
    if (rc == 0 && (t->n_pretok == 0 || t->pretok[t->n_pretok - 1].type != LF_PRETOK_BYTELEVEL))
        rc = lf_fail(err, LF_ENOTSUP, "%s: no ByteLevel pre_tokenizer; only byte-level BPE is supported", path);
    if (rc == 0 && post)
        rc = load_post(t, post, 0, path, err);
    if (rc == 0 && !dec)
        rc = lf_fail(err, LF_ENOTSUP, "%s: no decoder; byte-level BPE needs ByteLevel", path);
    if (rc == 0)
        rc = load_decoder(t, dec, 0, path, err);
    if (rc == 0)
        t->fast = find_fast(t);
    return rc;
}
