/* SPDX-License-Identifier: Apache-2.0
 *
 * Which shape a row has. A variant fits when its needed columns are there. Of those that fit, one
 * whose columns in the row are a subset of another's is out; what is left must be one, and must
 * account for every column.
 */
#include "engine/text/chat/shape.h"

#include <string.h>

#include "engine/base/str.h"
#include "engine/text/chat/shape_priv.h"
#include "engine/text/token/tokenizer_priv.h"

static const struct lf_variant variants[] = {
    {LF_SHAPE_TEXT, 1, {"text"}},
    {LF_SHAPE_PROMPT_COMPLETION, 2, {"prompt", "completion"}},
    {LF_SHAPE_MESSAGES, 1, {"messages", "tools"}},
    {LF_SHAPE_SHAREGPT, 1, {"conversations", "system", "tools"}},
    {LF_SHAPE_ALPACA, 2, {"instruction", "output", "input", "system", "history"}},
    {LF_SHAPE_PREFERENCE, 2, {"chosen", "rejected", "prompt", "margin"}},
    {LF_SHAPE_PREFERENCE, 3, {"conversations", "chosen", "rejected", "system", "tools", "margin"}},
    {LF_SHAPE_PREFERENCE, 2, {"context", "completions", "margin"}},
    {LF_SHAPE_UNPAIRED, 3, {"prompt", "completion", "label"}},
    {LF_SHAPE_UNPAIRED, 2, {"messages", "kto_tag", "tools"}},
    {LF_SHAPE_UNPAIRED, 2, {"conversations", "kto_tag", "system", "tools"}},
    {LF_SHAPE_UNPAIRED, 3, {"instruction", "output", "kto_tag", "input", "system", "history"}},
    {LF_SHAPE_PROMPT, 1, {"prompt"}},
    {LF_SHAPE_TOKENS, 1, {"input_ids", "labels", "attention_mask"}},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

/* Every column that options may rename. "role" and "content" are members of messages. */
static const char *const known_columns[] = {
    "text",           "prompt", "completion",  "messages",  "tools",
    "conversations",  "system", "instruction", "output",    "input",
    "history",        "chosen", "rejected",    "margin",    "context",
    "completions",    "label",  "kto_tag",     "input_ids", "labels",
    "attention_mask", "image",  "images",      "role",      "content"};
#define N_COLUMNS (sizeof known_columns / sizeof known_columns[0])

static const char *const shape_names[LF_SHAPES] = {
    "auto",   "text",       "prompt_completion", "messages", "sharegpt",
    "alpaca", "preference", "unpaired",          "prompt",   "tokens"};

const char *lf_shape_name(enum lf_shape s)
{
    return (unsigned)s < LF_SHAPES ? shape_names[s] : "?";
}

const char *const *lf_shape_known(size_t *n)
{
    *n = N_COLUMNS - 2; /* role and content are no columns */
    return known_columns;
}

/* The value of "name=value", or NULL when the pair is of another name. */
static const char *pair_value(const char *pair, const char *name)
{
    size_t n = strlen(name);
    return strncmp(pair, name, n) == 0 && pair[n] == '=' ? pair + n + 1 : NULL;
}

const char *lf_shape_column(const lf_shape_opts *o, const char *name)
{
    for (size_t i = 0; i < o->n_columns; i++) {
        const char *v = pair_value(o->columns[i], name);
        if (v)
            return v;
    }
    return name;
}

json_t *lf_shape_get(const struct lf_row_ctx *c, const char *name)
{
    json_t *v = json_object_get(c->root, lf_shape_column(c->o, name));
    return json_is_null(v) ? NULL : v;
}

/* ---- options ---- */

static int check_pair(const char *option, const char *const *pairs, size_t i,
                      const char *const *names, size_t n, bool left, lf_err *err)
{
    const char *eq = strchr(pairs[i], '=');
    char part[256];
    if (!eq || eq == pairs[i] || !eq[1] || strlen(pairs[i]) >= sizeof part)
        return lf_fail(err, LF_EINVAL, "%s = %.200s is not NAME=NAME", option, pairs[i]);
    memcpy(part, left ? pairs[i] : eq + 1, left ? (size_t)(eq - pairs[i]) : strlen(eq));
    part[left ? (size_t)(eq - pairs[i]) : strlen(eq + 1)] = 0;
    bool known = false;
    for (size_t k = 0; k < n; k++)
        known = known || strcmp(part, names[k]) == 0;
    const char *near = known ? NULL : lf_nearest(part, names, n);
    if (!known)
        return lf_fail(err, LF_EINVAL, "%s = %s: %s is not known%s%s", option, pairs[i], part,
                       near ? "; did you mean " : "", near ? near : "");
    for (size_t k = 0; k < i; k++)
        if (strncmp(pairs[k], pairs[i], (size_t)(eq - pairs[i]) + 1) == 0)
            return lf_fail(err, LF_EINVAL, "%s: %.*s is given twice", option, (int)(eq - pairs[i]),
                           pairs[i]);
    return 0;
}

int lf_shape_check(const lf_shape_opts *o, lf_err *err)
{
    const char *roles[5];
    int rc = 0;
    for (int r = 0; r < 5; r++)
        roles[r] = lf_role_name((enum lf_role)r);
    for (size_t i = 0; i < o->n_columns && rc == 0; i++)
        rc = check_pair("columns", o->columns, i, known_columns, N_COLUMNS, true, err);
    for (size_t i = 0; i < o->n_roles && rc == 0; i++)
        rc = check_pair("roles", o->roles, i, roles, 5, false, err);
    return rc;
}

/* ---- recognising ---- */

/* Columns of variant v that the row has, as bits; -1 when a needed one is not there. */
static int columns_there(const struct lf_row_ctx *c, const struct lf_variant *v)
{
    int bits = 0;
    for (int k = 0; k < LF_SHAPE_COLUMNS && v->columns[k]; k++) {
        if (json_object_get(c->root, lf_shape_column(c->o, v->columns[k])))
            bits |= 1 << k;
        else if (k < v->need)
            return -1;
    }
    return bits;
}

static bool has_column(const struct lf_variant *v, const char *name)
{
    for (int k = 0; k < LF_SHAPE_COLUMNS && v->columns[k]; k++)
        if (strcmp(v->columns[k], name) == 0)
            return true;
    return false;
}

/* Are a's columns in the row fewer than b's and all among them? Of equal sets the one that needs
 * fewer gives way. */
static bool covered(const struct lf_variant *a, int a_bits, const struct lf_variant *b, int b_bits)
{
    for (int k = 0; k < LF_SHAPE_COLUMNS; k++)
        if (a_bits >> k & 1 && !has_column(b, a->columns[k]))
            return false;
    int na = __builtin_popcount((unsigned)a_bits), nb = __builtin_popcount((unsigned)b_bits);
    return na < nb || (na == nb && a->need < b->need);
}

void lf_shape_column_list(char *buf, size_t cap, json_t *root)
{
    const char *key;
    json_t *v;
    size_t at = 0;
    buf[0] = 0;
    json_object_foreach(root, key, v)
    {
        int n = snprintf(buf + at, cap - at, "%s%.60s", at ? ", " : "", key);
        if (n < 0 || at + (size_t)n >= cap)
            break;
        at += (size_t)n;
    }
}

static int no_variant(const struct lf_row_ctx *c, lf_err *err)
{
    char read[400];
    lf_shape_column_list(read, sizeof read, c->root);
    const char *more = c->o->passed ? c->o->passed : "", *comma = read[0] && more[0] ? ", " : "";
    if (c->o->shape != LF_SHAPE_AUTO)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: the columns (%s%s%.400s) are not those of shape = %s; rename them with columns",
            c->where, read, comma, more, lf_shape_name(c->o->shape));
    return lf_fail(err, LF_EFORMAT,
                   "%s: the columns (%s%s%.400s) are those of no shape; rename them with columns",
                   c->where, read, comma, more);
}

static int find_variant(const struct lf_variant **out, const struct lf_row_ctx *c, lf_err *err)
{
    int bits[N_VARIANTS];
    const struct lf_variant *best = NULL;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        bool asked = c->o->shape == LF_SHAPE_AUTO || c->o->shape == variants[i].shape;
        bits[i] = asked ? columns_there(c, &variants[i]) : -1;
    }
    for (size_t i = 0; i < N_VARIANTS; i++) {
        bool out_of_it = bits[i] < 0;
        for (size_t k = 0; k < N_VARIANTS && !out_of_it; k++)
            out_of_it =
                k != i && bits[k] >= 0 && covered(&variants[i], bits[i], &variants[k], bits[k]);
        if (out_of_it)
            continue;
        if (best)
            return lf_fail(err, LF_EFORMAT, "%s: the columns %s and %s make it %s or %s; set shape",
                           c->where, lf_shape_column(c->o, best->columns[0]),
                           lf_shape_column(c->o, variants[i].columns[0]),
                           lf_shape_name(best->shape), lf_shape_name(variants[i].shape));
        best = &variants[i];
    }
    *out = best;
    return best ? 0 : no_variant(c, err);
}

/* Every column of the row must mean something to the variant. */
static int check_unmapped(const struct lf_row_ctx *c, const struct lf_variant *v, lf_err *err)
{
    const char *key;
    json_t *value;
    /* A prompt comes with whatever the reward function wants, if the user says that it is one. */
    if (c->o->ignore_unmapped || (v->shape == LF_SHAPE_PROMPT && c->o->shape == LF_SHAPE_PROMPT))
        return 0;
    json_object_foreach(c->root, key, value)
    {
        bool known = false;
        for (int k = 0; k < LF_SHAPE_COLUMNS && v->columns[k] && !known; k++)
            known = strcmp(key, lf_shape_column(c->o, v->columns[k])) == 0;
        if (!known)
            return lf_fail(err, LF_EFORMAT,
                           "%s: column \"%.100s\" means nothing in a row of shape %s; map it with "
                           "columns, or set "
                           "unmapped = ignore",
                           c->where, key, lf_shape_name(v->shape));
    }
    return 0;
}

int lf_shape_json(json_t **out, const lf_shape_line *line, const char *where, uint64_t *replaced,
                  lf_err *err)
{
    lf_bytes text = {(const uint8_t *)line->raw, line->len};
    size_t flags = JSON_REJECT_DUPLICATES | (line->nul ? JSON_ALLOW_NUL : 0u);
    json_error_t je;
    json_t *root = NULL;
    lf_buf fixed;
    lf_buf_init(&fixed);
    int rc = lf_text_repair(&text, &fixed, line->strict, replaced, err);
    if (rc < 0)
        lf_err_prefix(err, "%s", where);
    else if (!(root = json_loadb((const char *)text.p, text.n, flags, &je)))
        rc = lf_fail(err, LF_EFORMAT, "%s: not a JSON object: %s (byte %d)", where, je.text,
                     je.position);
    else if (!json_is_object(root))
        rc = lf_fail(err, LF_EFORMAT, "%s: the line is no JSON object", where);
    lf_buf_fini(&fixed);
    if (rc < 0)
        json_decref(root);
    else
        *out = root;
    return rc;
}

int lf_shape_object(lf_row *out, const lf_shape_opts *o, json_t *root, const char *where,
                    lf_err *err)
{
    lf_row r = {.root = root};
    struct lf_row_ctx c = {.o = o, .where = where, .root = root};
    const struct lf_variant *v = NULL;
    c.arena = r.arena = lf_arena_create(err);
    int rc = c.arena ? find_variant(&v, &c, err) : LF_ENOMEM;
    if (rc == 0)
        rc = check_unmapped(&c, v, err);
    if (rc == 0) {
        r.shape = v->shape;
        rc = lf_shape_read(&r, &c, v, err);
    }
    if (rc < 0)
        lf_row_fini(&r);
    else
        *out = r;
    return rc;
}

int lf_shape_row(lf_row *out, const lf_shape_opts *o, const char *raw, size_t len,
                 const char *where, uint64_t *replaced, lf_err *err)
{
    const lf_shape_line line = {raw, len, o->strict, true};
    json_t *root = NULL;
    int rc = lf_shape_json(&root, &line, where, replaced, err);
    return rc < 0 ? rc : lf_shape_object(out, o, root, where, err);
}

void lf_row_fini(lf_row *r)
{
    lf_arena_destroy(r->arena);
    json_decref(r->root);
    memset(r, 0, sizeof *r);
}
