/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions, with Jinja's precedence: a if b else c; or; and; not; comparisons, in; + -; ~; * /
 * // %; **; unary; then what follows a value (.name [index] (call)), then filters and tests, which
 * bind closest of all. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

#define DEPTH_MAX 200

void *lf_jj_parse_fail(lf_jj_parser *p, const lf_jj_token *at, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (p->rc == 0)
        p->rc = lf_jj_fail_at(p->t, at->line, at->col, LF_EFORMAT, p->err, "%s", text);
    return NULL;
}

lf_jj_node *lf_jj_node_make(lf_jj_parser *p, enum lf_jj_kind kind, const lf_jj_token *at)
{
    lf_jj_node *n = lf_arena_alloc(p->t->arena, 1, sizeof(*n), p->err);
    if (!n) {
        p->rc = LF_ENOMEM;
        return NULL;
    }
    n->kind = kind;
    n->line = at->line;
    n->col = at->col;
    return n;
}

/* Room for one more of n pointers: grows when n is a power of two. */
static void *one_more(lf_jj_parser *p, void *old, size_t n)
{
    if (n != 0 && (n & (n - 1)) != 0)
        return old;
    void *v = lf_arena_alloc(p->t->arena, n ? n * 2 : 1, sizeof(void *), p->err);
    if (!v)
        p->rc = LF_ENOMEM;
    else if (n)
        memcpy(v, old, n * sizeof(void *));
    return v;
}

void lf_jj_push(lf_jj_parser *p, lf_jj_node *n, lf_jj_node *child)
{
    lf_jj_node **v = p->rc ? NULL : one_more(p, n->list, n->n);
    if (!v)
        return;
    n->list = v;
    n->list[n->n++] = child;
}

static void push_named(lf_jj_parser *p, lf_jj_node *n, const char *name, lf_jj_node *value)
{
    const char **names = p->rc ? NULL : one_more(p, n->names, n->n_names);
    lf_jj_node **values = names ? one_more(p, n->values, n->n_names) : NULL;
    if (!values)
        return;
    n->names = names;
    n->values = values;
    n->names[n->n_names] = name;
    n->values[n->n_names++] = value;
}

bool lf_jj_at_op(const lf_jj_parser *p, const char *op)
{
    return p->tok->type == LF_JJ_T_OP && strcmp(p->tok->s, op) == 0;
}

bool lf_jj_at_name(const lf_jj_parser *p, const char *name)
{
    return p->tok->type == LF_JJ_T_NAME && strcmp(p->tok->s, name) == 0;
}

bool lf_jj_take_op(lf_jj_parser *p, const char *op)
{
    bool yes = lf_jj_at_op(p, op);
    p->tok += yes;
    return yes;
}

bool lf_jj_take_name(lf_jj_parser *p, const char *name)
{
    bool yes = lf_jj_at_name(p, name);
    p->tok += yes;
    return yes;
}

static const char *describe(const lf_jj_token *t)
{
    switch (t->type) {
    case LF_JJ_T_EOF:
        return "the end of the template";
    case LF_JJ_T_DATA:
        return "text";
    case LF_JJ_T_VAR_BEGIN:
        return "{{";
    case LF_JJ_T_VAR_END:
        return "}}";
    case LF_JJ_T_BLOCK_BEGIN:
        return "{%";
    case LF_JJ_T_BLOCK_END:
        return "%}";
    case LF_JJ_T_STR:
        return "a string";
    case LF_JJ_T_INT:
    case LF_JJ_T_FLOAT:
        return "a number";
    default:
        return t->s;
    }
}

bool lf_jj_expect_op(lf_jj_parser *p, const char *op)
{
    if (p->rc == 0 && !lf_jj_take_op(p, op))
        lf_jj_parse_fail(p, p->tok, "expected '%s', found %s", op, describe(p->tok));
    return p->rc == 0;
}

bool lf_jj_enter(lf_jj_parser *p)
{
    if (p->rc == 0 && ++p->depth <= DEPTH_MAX)
        return true;
    lf_jj_parse_fail(p, p->tok, "nested more than %d levels deep", DEPTH_MAX);
    return false;
}

/* ---- values ---- */

static lf_jj_node *const_node(lf_jj_parser *p, enum lf_jj_kind kind, int64_t i)
{
    lf_jj_node *n = lf_jj_node_make(p, kind, p->tok);
    if (n)
        n->i = i;
    p->tok++;
    return n;
}

static lf_jj_node *parse_name(lf_jj_parser *p)
{
    static const struct {
        const char *name;
        enum lf_jj_kind kind;
        int64_t i;
    } consts[] = {{"true", LF_JJ_CONST_BOOL, 1},  {"True", LF_JJ_CONST_BOOL, 1},
                  {"false", LF_JJ_CONST_BOOL, 0}, {"False", LF_JJ_CONST_BOOL, 0},
                  {"none", LF_JJ_CONST_NONE, 0},  {"None", LF_JJ_CONST_NONE, 0}};
    static const char *const reserved[] = {"and", "else", "if", "in", "is", "not", "or"};
    for (size_t i = 0; i < sizeof(consts) / sizeof(consts[0]); i++)
        if (lf_jj_at_name(p, consts[i].name))
            return const_node(p, consts[i].kind, consts[i].i);
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (lf_jj_at_name(p, reserved[i]))
            return lf_jj_parse_fail(p, p->tok, "expected a value, found %s", reserved[i]);
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_NAME, p->tok);
    if (n)
        n->s = p->tok->s;
    p->tok++;
    return n;
}

/* Strings side by side are one. */
static lf_jj_node *parse_string(lf_jj_parser *p)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_CONST_STR, p->tok);
    size_t len = 0, at = 0;
    const lf_jj_token *t;
    for (t = p->tok; t->type == LF_JJ_T_STR; t++)
        len += t->len;
    char *s = n ? lf_arena_alloc(p->t->arena, len + 1, 1, p->err) : NULL;
    if (!s) {
        p->rc = LF_ENOMEM;
        return NULL;
    }
    for (; p->tok->type == LF_JJ_T_STR; p->tok++) {
        memcpy(s + at, p->tok->s, p->tok->len);
        at += p->tok->len;
    }
    n->s = s;
    n->len = len;
    return n;
}

static lf_jj_node *parse_list(lf_jj_parser *p)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_LIST, p->tok++);
    while (p->rc == 0 && !lf_jj_at_op(p, "]")) {
        lf_jj_push(p, n, lf_jj_parse_expr(p));
        if (!lf_jj_take_op(p, ","))
            break;
    }
    return lf_jj_expect_op(p, "]") ? n : NULL;
}

static lf_jj_node *parse_dict(lf_jj_parser *p)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_DICT, p->tok++);
    while (p->rc == 0 && !lf_jj_at_op(p, "}")) {
        lf_jj_push(p, n, lf_jj_parse_expr(p));
        if (!lf_jj_expect_op(p, ":"))
            return NULL;
        lf_jj_push(p, n, lf_jj_parse_expr(p));
        if (!lf_jj_take_op(p, ","))
            break;
    }
    return lf_jj_expect_op(p, "}") ? n : NULL;
}

static lf_jj_node *parse_paren(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    if (lf_jj_take_op(p, ")"))
        return lf_jj_node_make(p, LF_JJ_TUPLE, at);
    lf_jj_node *n = lf_jj_parse_tuple(p, true);
    return lf_jj_expect_op(p, ")") ? n : NULL;
}

static lf_jj_node *parse_primary(lf_jj_parser *p)
{
    lf_jj_node *n;
    switch (p->tok->type) {
    case LF_JJ_T_NAME:
        return parse_name(p);
    case LF_JJ_T_STR:
        return parse_string(p);
    case LF_JJ_T_INT:
        return const_node(p, LF_JJ_CONST_INT, p->tok->i);
    case LF_JJ_T_FLOAT:
        n = lf_jj_node_make(p, LF_JJ_CONST_FLOAT, p->tok);
        if (n)
            n->f = p->tok->f;
        p->tok++;
        return n;
    default:
        if (lf_jj_at_op(p, "("))
            return parse_paren(p);
        if (lf_jj_at_op(p, "["))
            return parse_list(p);
        if (lf_jj_at_op(p, "{"))
            return parse_dict(p);
        return lf_jj_parse_fail(p, p->tok, "expected a value, found %s", describe(p->tok));
    }
}

/* ---- what follows a value ---- */

static bool parse_args(lf_jj_parser *p, lf_jj_node *n)
{
    if (!lf_jj_expect_op(p, "("))
        return false;
    while (p->rc == 0 && !lf_jj_at_op(p, ")")) {
        if (lf_jj_at_op(p, "*") || lf_jj_at_op(p, "**"))
            lf_jj_parse_fail(p, p->tok, "unpacking arguments is not supported");
        else if (p->tok->type == LF_JJ_T_NAME && p->tok[1].type == LF_JJ_T_OP &&
                 strcmp(p->tok[1].s, "=") == 0) {
            const char *name = p->tok->s;
            p->tok += 2;
            push_named(p, n, name, lf_jj_parse_expr(p));
        } else if (n->n_names > 0) {
            lf_jj_parse_fail(p, p->tok, "an argument without a name after one with a name");
        } else {
            lf_jj_push(p, n, lf_jj_parse_expr(p));
        }
        if (!lf_jj_take_op(p, ","))
            break;
    }
    return lf_jj_expect_op(p, ")");
}

/* [index] or [from:to:step] */
static lf_jj_node *parse_index(lf_jj_parser *p, lf_jj_node *of)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *part[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (p->rc == 0 && !lf_jj_at_op(p, "]")) {
        if (lf_jj_take_op(p, ":")) {
            if (++colons > 2)
                return lf_jj_parse_fail(p, p->tok, "too many ':'");
            continue;
        }
        part[colons] = colons ? lf_jj_parse_expr(p) : lf_jj_parse_tuple(p, true);
        if (!lf_jj_at_op(p, ":"))
            break;
    }
    if (!lf_jj_expect_op(p, "]"))
        return NULL;
    if (!colons && !part[0])
        return lf_jj_parse_fail(p, at, "an index is missing");
    lf_jj_node *n = lf_jj_node_make(p, colons ? LF_JJ_SLICE : LF_JJ_INDEX, at);
    if (!n)
        return NULL;
    n->a = of;
    n->b = part[0];
    for (int i = 0; colons && i < 3; i++)
        lf_jj_push(p, n, part[i]);
    return n;
}

static lf_jj_node *parse_dot(lf_jj_parser *p, lf_jj_node *of)
{
    const lf_jj_token *at = p->tok++;
    if (p->tok->type != LF_JJ_T_NAME && p->tok->type != LF_JJ_T_INT)
        return lf_jj_parse_fail(p, p->tok, "expected a name after '.', found %s", describe(p->tok));
    bool number = p->tok->type == LF_JJ_T_INT;
    lf_jj_node *n = lf_jj_node_make(p, number ? LF_JJ_INDEX : LF_JJ_ATTR, at);
    if (!n)
        return NULL;
    n->a = of;
    if (number) {
        n->b = const_node(p, LF_JJ_CONST_INT, p->tok->i);
    } else {
        n->s = p->tok->s;
        p->tok++;
    }
    return n;
}

static lf_jj_node *parse_call(lf_jj_parser *p, lf_jj_node *of)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_CALL, p->tok);
    if (!n || !parse_args(p, n))
        return NULL;
    n->a = of;
    return n;
}

static lf_jj_node *parse_postfix(lf_jj_parser *p, lf_jj_node *n)
{
    while (p->rc == 0) {
        if (lf_jj_at_op(p, "."))
            n = parse_dot(p, n);
        else if (lf_jj_at_op(p, "["))
            n = parse_index(p, n);
        else if (lf_jj_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

static lf_jj_node *parse_filter(lf_jj_parser *p, lf_jj_node *of)
{
    const lf_jj_token *at = p->tok;
    if (at->type != LF_JJ_T_NAME)
        return lf_jj_parse_fail(p, at, "expected the name of a filter, found %s", describe(at));
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_FILTER, at);
    if (!n)
        return NULL;
    n->a = of;
    n->s = at->s;
    p->tok++;
    if (!lf_jj_find_filter(n->s))
        return lf_jj_parse_fail(p, at, "there is no filter '%s' here", n->s);
    if (lf_jj_at_op(p, "(") && !parse_args(p, n))
        return NULL;
    return n;
}

lf_jj_node *lf_jj_parse_filters(lf_jj_parser *p, lf_jj_node *of)
{
    lf_jj_node *n = parse_filter(p, of);
    while (p->rc == 0 && lf_jj_take_op(p, "|"))
        n = parse_filter(p, n);
    return n;
}

static bool begins_value(const lf_jj_parser *p)
{
    static const char *const stops[] = {"else", "or", "and", "is", "if", "in", "not"};
    if (p->tok->type == LF_JJ_T_OP)
        return strchr("([{", *p->tok->s) != NULL;
    if (p->tok->type != LF_JJ_T_NAME)
        return p->tok->type == LF_JJ_T_STR || p->tok->type == LF_JJ_T_INT ||
               p->tok->type == LF_JJ_T_FLOAT;
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++)
        if (strcmp(p->tok->s, stops[i]) == 0)
            return false;
    return true;
}

/* `is [not] NAME [argument]` */
static lf_jj_node *parse_test(lf_jj_parser *p, lf_jj_node *of)
{
    p->tok++;
    bool negated = lf_jj_take_name(p, "not");
    const lf_jj_token *at = p->tok;
    if (at->type != LF_JJ_T_NAME)
        return lf_jj_parse_fail(p, at, "expected the name of a test, found %s", describe(at));
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_TEST, at);
    if (!n)
        return NULL;
    n->a = of;
    n->s = at->s;
    p->tok++;
    if (!lf_jj_find_test(n->s))
        return lf_jj_parse_fail(p, at, "there is no test '%s' here", n->s);
    if (lf_jj_at_op(p, "(")) {
        if (!parse_args(p, n))
            return NULL;
    } else if (begins_value(p)) {
        lf_jj_push(p, n, parse_postfix(p, parse_primary(p)));
    }
    if (p->rc || !negated)
        return n;
    lf_jj_node *not = lf_jj_node_make(p, LF_JJ_UNARY, at);
    if (not ) {
        not ->s = "not";
        not ->a = n;
    }
    return not ;
}

static lf_jj_node *parse_after(lf_jj_parser *p, lf_jj_node *n)
{
    while (p->rc == 0) {
        if (lf_jj_take_op(p, "|"))
            n = parse_filter(p, n);
        else if (lf_jj_at_name(p, "is"))
            n = parse_test(p, n);
        else if (lf_jj_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

/* ---- operators ---- */

static lf_jj_node *two(lf_jj_parser *p, enum lf_jj_kind kind, const lf_jj_token *at, lf_jj_node *a,
                       lf_jj_node *b)
{
    lf_jj_node *n = lf_jj_node_make(p, kind, at);
    if (n) {
        n->s = at->s;
        n->a = a;
        n->b = b;
    }
    return n;
}

static lf_jj_node *parse_unary(lf_jj_parser *p, bool filters)
{
    lf_jj_node *n = NULL;
    const lf_jj_token *at = p->tok;
    if (!lf_jj_enter(p))
        return NULL;
    if (lf_jj_take_op(p, "-") || lf_jj_take_op(p, "+")) {
        n = two(p, LF_JJ_UNARY, at, NULL, NULL);
        lf_jj_node *of = parse_unary(p, false);
        if (n)
            n->a = of;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (filters && p->rc == 0)
        n = parse_after(p, n);
    p->depth--;
    return n;
}

/* Left-associative levels from the loosest to the closest. */
static const char *const levels[][5] = {
    {"+", "-", NULL}, {"~", NULL}, {"*", "/", "//", "%", NULL}, {"**", NULL}};
#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

static bool at_level(const lf_jj_parser *p, size_t level)
{
    for (size_t i = 0; levels[level][i]; i++)
        if (lf_jj_at_op(p, levels[level][i]))
            return true;
    return false;
}

static lf_jj_node *parse_math(lf_jj_parser *p, size_t level)
{
    if (level == N_LEVELS)
        return parse_unary(p, true);
    lf_jj_node *n = parse_math(p, level + 1);
    while (p->rc == 0 && at_level(p, level)) {
        const lf_jj_token *at = p->tok++;
        n = two(p, LF_JJ_BINARY, at, n, parse_math(p, level + 1));
    }
    return n;
}

/* The comparison that begins here, or NULL; p stands behind it. */
static const char *take_compare(lf_jj_parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (lf_jj_take_op(p, ops[i]))
            return ops[i];
    if (lf_jj_take_name(p, "in"))
        return "in";
    if (lf_jj_at_name(p, "not") && p->tok[1].type == LF_JJ_T_NAME &&
        strcmp(p->tok[1].s, "in") == 0) {
        p->tok += 2;
        return "not in";
    }
    return NULL;
}

static lf_jj_node *parse_compare(lf_jj_parser *p)
{
    lf_jj_node *first = parse_math(p, 0), *n = NULL;
    for (;;) {
        const lf_jj_token *at = p->tok;
        const char *op = p->rc ? NULL : take_compare(p);
        if (!op)
            return n ? n : first;
        if (!n)
            n = two(p, LF_JJ_COMPARE, at, first, NULL);
        if (n)
            push_named(p, n, op, parse_math(p, 0));
    }
}

static lf_jj_node *parse_not(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok;
    if (!lf_jj_at_name(p, "not"))
        return parse_compare(p);
    if (!lf_jj_enter(p))
        return NULL;
    p->tok++;
    lf_jj_node *n = two(p, LF_JJ_UNARY, at, parse_not(p), NULL);
    p->depth--;
    return n;
}

static lf_jj_node *parse_and(lf_jj_parser *p)
{
    lf_jj_node *n = parse_not(p);
    while (p->rc == 0 && lf_jj_at_name(p, "and")) {
        const lf_jj_token *at = p->tok++;
        n = two(p, LF_JJ_AND, at, n, parse_not(p));
    }
    return n;
}

static lf_jj_node *parse_or(lf_jj_parser *p)
{
    lf_jj_node *n = parse_and(p);
    while (p->rc == 0 && lf_jj_at_name(p, "or")) {
        const lf_jj_token *at = p->tok++;
        n = two(p, LF_JJ_OR, at, n, parse_and(p));
    }
    return n;
}

lf_jj_node *lf_jj_parse_expr(lf_jj_parser *p)
{
    if (!lf_jj_enter(p))
        return NULL;
    lf_jj_node *n = parse_or(p);
    while (p->rc == 0 && lf_jj_at_name(p, "if")) {
        const lf_jj_token *at = p->tok++;
        n = two(p, LF_JJ_COND, at, n, parse_or(p));
        lf_jj_node *other = lf_jj_take_name(p, "else") ? lf_jj_parse_expr(p) : NULL;
        if (n)
            n->c = other;
    }
    p->depth--;
    return p->rc ? NULL : n;
}

static bool tuple_ends(const lf_jj_parser *p)
{
    return p->tok->type == LF_JJ_T_VAR_END || p->tok->type == LF_JJ_T_BLOCK_END ||
           lf_jj_at_op(p, ")") || lf_jj_at_op(p, "]") || lf_jj_at_op(p, "=") ||
           lf_jj_at_name(p, "in") || lf_jj_at_name(p, "if") || lf_jj_at_name(p, "recursive");
}

/* One of what `parse` reads, or several with commas as a tuple. */
static lf_jj_node *several(lf_jj_parser *p, lf_jj_node *(*parse)(lf_jj_parser *p, bool option),
                           bool option)
{
    const lf_jj_token *at = p->tok;
    lf_jj_node *n = parse(p, option), *t = NULL;
    while (p->rc == 0 && lf_jj_take_op(p, ",")) {
        if (!t) {
            t = lf_jj_node_make(p, LF_JJ_TUPLE, at);
            if (!t)
                return NULL;
            lf_jj_push(p, t, n);
        }
        if (tuple_ends(p))
            break;
        lf_jj_push(p, t, parse(p, option));
    }
    return p->rc ? NULL : t ? t : n;
}

/* Without conditions for the iterable of a `for`, whose `if` is a filter. */
static lf_jj_node *one_value(lf_jj_parser *p, bool with_cond)
{
    return with_cond ? lf_jj_parse_expr(p) : parse_or(p);
}

lf_jj_node *lf_jj_parse_tuple(lf_jj_parser *p, bool with_cond)
{
    return several(p, one_value, with_cond);
}

static lf_jj_node *one_target(lf_jj_parser *p, bool attributes)
{
    const lf_jj_token *at = p->tok;
    if (lf_jj_at_op(p, "(")) {
        if (!lf_jj_enter(p))
            return NULL;
        p->tok++;
        lf_jj_node *n = lf_jj_parse_target(p, false);
        p->depth--;
        return lf_jj_expect_op(p, ")") ? n : NULL;
    }
    if (at->type != LF_JJ_T_NAME)
        return lf_jj_parse_fail(p, at, "expected a name to assign to, found %s", describe(at));
    lf_jj_node *n = parse_name(p);
    if (n && n->kind != LF_JJ_NAME)
        return lf_jj_parse_fail(p, at, "%s cannot be assigned to", at->s);
    if (p->loops > 0 && strcmp(at->s, "loop") == 0)
        return lf_jj_parse_fail(p, at, "loop cannot be assigned to inside of a loop");
    return n && attributes && lf_jj_at_op(p, ".") ? parse_dot(p, n) : n;
}

lf_jj_node *lf_jj_parse_target(lf_jj_parser *p, bool attributes)
{
    return several(p, one_target, attributes);
}

bool lf_jj_parse_params(lf_jj_parser *p, lf_jj_node *n)
{
    if (!lf_jj_expect_op(p, "("))
        return false;
    while (p->rc == 0 && !lf_jj_at_op(p, ")")) {
        const lf_jj_token *at = p->tok;
        if (at->type != LF_JJ_T_NAME) {
            lf_jj_parse_fail(p, at, "expected the name of a parameter, found %s", describe(at));
            break;
        }
        p->tok++;
        lf_jj_node *def = lf_jj_take_op(p, "=") ? lf_jj_parse_expr(p) : NULL;
        if (!def && n->n_names > 0 && n->values[n->n_names - 1])
            lf_jj_parse_fail(p, at, "a parameter without a default after one with a default");
        push_named(p, n, at->s, def);
        if (!lf_jj_take_op(p, ","))
            break;
    }
    return lf_jj_expect_op(p, ")");
}
