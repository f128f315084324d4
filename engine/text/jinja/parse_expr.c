/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions, with Jinja's precedence: a if b else c; or; and; not; comparisons, in; + -; ~; * / // %; **; unary; then
 * what follows a value (.name [index] (call)), then filters and tests, which bind closest of all. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

#define DEPTH_MAX 200

void *jj_parse_fail(jj_parser *p, const jj_token *at, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (p->rc == 0)
        p->rc = jj_fail_at(p->t, at->line, at->col, LF_EFORMAT, p->err, "%s", text);
    return NULL;
}

jj_node *jj_node_make(jj_parser *p, enum jj_kind kind, const jj_token *at)
{
    jj_node *n = lf_arena_alloc(p->t->arena, 1, sizeof(*n), p->err);
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
static void *one_more(jj_parser *p, void *old, size_t n)
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

void jj_push(jj_parser *p, jj_node *n, jj_node *child)
{
    jj_node **v = p->rc ? NULL : one_more(p, n->list, n->n);
    if (!v)
        return;
    n->list = v;
    n->list[n->n++] = child;
}

static void push_named(jj_parser *p, jj_node *n, const char *name, jj_node *value)
{
    const char **names = p->rc ? NULL : one_more(p, n->names, n->n_names);
    jj_node **values = names ? one_more(p, n->values, n->n_names) : NULL;
    if (!values)
        return;
    n->names = names;
    n->values = values;
    n->names[n->n_names] = name;
    n->values[n->n_names++] = value;
}

bool jj_at_op(const jj_parser *p, const char *op)
{
    return p->tok->type == JJ_T_OP && strcmp(p->tok->s, op) == 0;
}

bool jj_at_name(const jj_parser *p, const char *name)
{
    return p->tok->type == JJ_T_NAME && strcmp(p->tok->s, name) == 0;
}

bool jj_take_op(jj_parser *p, const char *op)
{
    bool yes = jj_at_op(p, op);
    p->tok += yes;
    return yes;
}

bool jj_take_name(jj_parser *p, const char *name)
{
    bool yes = jj_at_name(p, name);
    p->tok += yes;
    return yes;
}

static const char *describe(const jj_token *t)
{
    switch (t->type) {
    case JJ_T_EOF:
        return "the end of the template";
    case JJ_T_DATA:
        return "text";
    case JJ_T_VAR_BEGIN:
        return "{{";
    case JJ_T_VAR_END:
        return "}}";
    case JJ_T_BLOCK_BEGIN:
        return "{%";
    case JJ_T_BLOCK_END:
        return "%}";
    case JJ_T_STR:
        return "a string";
    case JJ_T_INT:
    case JJ_T_FLOAT:
        return "a number";
    default:
        return t->s;
    }
}

bool jj_expect_op(jj_parser *p, const char *op)
{
    if (p->rc == 0 && !jj_take_op(p, op))
        jj_parse_fail(p, p->tok, "expected '%s', found %s", op, describe(p->tok));
    return p->rc == 0;
}

bool jj_enter(jj_parser *p)
{
    if (p->rc == 0 && ++p->depth <= DEPTH_MAX)
        return true;
    jj_parse_fail(p, p->tok, "nested more than %d levels deep", DEPTH_MAX);
    return false;
}

/* ---- values ---- */

static jj_node *const_node(jj_parser *p, enum jj_kind kind, int64_t i)
{
    jj_node *n = jj_node_make(p, kind, p->tok);
    if (n)
        n->i = i;
    p->tok++;
    return n;
}

static jj_node *parse_name(jj_parser *p)
{
    static const struct {
        const char *name;
        enum jj_kind kind;
        int64_t i;
    } consts[] = {{"true", JJ_CONST_BOOL, 1},  {"True", JJ_CONST_BOOL, 1}, {"false", JJ_CONST_BOOL, 0},
                  {"False", JJ_CONST_BOOL, 0}, {"none", JJ_CONST_NONE, 0}, {"None", JJ_CONST_NONE, 0}};
    static const char *const reserved[] = {"and", "else", "if", "in", "is", "not", "or"};
    for (size_t i = 0; i < sizeof(consts) / sizeof(consts[0]); i++)
        if (jj_at_name(p, consts[i].name))
            return const_node(p, consts[i].kind, consts[i].i);
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (jj_at_name(p, reserved[i]))
            return jj_parse_fail(p, p->tok, "expected a value, found %s", reserved[i]);
    jj_node *n = jj_node_make(p, JJ_NAME, p->tok);
    if (n)
        n->s = p->tok->s;
    p->tok++;
    return n;
}

/* Strings side by side are one. */
static jj_node *parse_string(jj_parser *p)
{
    jj_node *n = jj_node_make(p, JJ_CONST_STR, p->tok);
    size_t len = 0, at = 0;
    const jj_token *t;
    for (t = p->tok; t->type == JJ_T_STR; t++)
        len += t->len;
    char *s = n ? lf_arena_alloc(p->t->arena, len + 1, 1, p->err) : NULL;
    if (!s) {
        p->rc = LF_ENOMEM;
        return NULL;
    }
    for (; p->tok->type == JJ_T_STR; p->tok++) {
        memcpy(s + at, p->tok->s, p->tok->len);
        at += p->tok->len;
    }
    n->s = s;
    n->len = len;
    return n;
}

static jj_node *parse_list(jj_parser *p)
{
    jj_node *n = jj_node_make(p, JJ_LIST, p->tok++);
    while (p->rc == 0 && !jj_at_op(p, "]")) {
        jj_push(p, n, jj_parse_expr(p));
        if (!jj_take_op(p, ","))
            break;
    }
    return jj_expect_op(p, "]") ? n : NULL;
}

static jj_node *parse_dict(jj_parser *p)
{
    jj_node *n = jj_node_make(p, JJ_DICT, p->tok++);
    while (p->rc == 0 && !jj_at_op(p, "}")) {
        jj_push(p, n, jj_parse_expr(p));
        if (!jj_expect_op(p, ":"))
            return NULL;
        jj_push(p, n, jj_parse_expr(p));
        if (!jj_take_op(p, ","))
            break;
    }
    return jj_expect_op(p, "}") ? n : NULL;
}

static jj_node *parse_paren(jj_parser *p)
{
    const jj_token *at = p->tok++;
    if (jj_take_op(p, ")"))
        return jj_node_make(p, JJ_TUPLE, at);
    jj_node *n = jj_parse_tuple(p, true);
    return jj_expect_op(p, ")") ? n : NULL;
}

static jj_node *parse_primary(jj_parser *p)
{
    jj_node *n;
    switch (p->tok->type) {
    case JJ_T_NAME:
        return parse_name(p);
    case JJ_T_STR:
        return parse_string(p);
    case JJ_T_INT:
        return const_node(p, JJ_CONST_INT, p->tok->i);
    case JJ_T_FLOAT:
        n = jj_node_make(p, JJ_CONST_FLOAT, p->tok);
        if (n)
            n->f = p->tok->f;
        p->tok++;
        return n;
    default:
        if (jj_at_op(p, "("))
            return parse_paren(p);
        if (jj_at_op(p, "["))
            return parse_list(p);
        if (jj_at_op(p, "{"))
            return parse_dict(p);
        return jj_parse_fail(p, p->tok, "expected a value, found %s", describe(p->tok));
    }
}

/* ---- what follows a value ---- */

static bool parse_args(jj_parser *p, jj_node *n)
{
    if (!jj_expect_op(p, "("))
        return false;
    while (p->rc == 0 && !jj_at_op(p, ")")) {
        if (jj_at_op(p, "*") || jj_at_op(p, "**"))
            jj_parse_fail(p, p->tok, "unpacking arguments is not supported");
        else if (p->tok->type == JJ_T_NAME && p->tok[1].type == JJ_T_OP && strcmp(p->tok[1].s, "=") == 0) {
            const char *name = p->tok->s;
            p->tok += 2;
            push_named(p, n, name, jj_parse_expr(p));
        } else if (n->n_names > 0) {
            jj_parse_fail(p, p->tok, "an argument without a name after one with a name");
        } else {
            jj_push(p, n, jj_parse_expr(p));
        }
        if (!jj_take_op(p, ","))
            break;
    }
    return jj_expect_op(p, ")");
}

/* [index] or [from:to:step] */
static jj_node *parse_index(jj_parser *p, jj_node *of)
{
    const jj_token *at = p->tok++;
    jj_node *part[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (p->rc == 0 && !jj_at_op(p, "]")) {
        if (jj_take_op(p, ":")) {
            if (++colons > 2)
                return jj_parse_fail(p, p->tok, "too many ':'");
            continue;
        }
        part[colons] = colons ? jj_parse_expr(p) : jj_parse_tuple(p, true);
        if (!jj_at_op(p, ":"))
            break;
    }
    if (!jj_expect_op(p, "]"))
        return NULL;
    if (!colons && !part[0])
        return jj_parse_fail(p, at, "an index is missing");
    jj_node *n = jj_node_make(p, colons ? JJ_SLICE : JJ_INDEX, at);
    if (!n)
        return NULL;
    n->a = of;
    n->b = part[0];
    for (int i = 0; colons && i < 3; i++)
        jj_push(p, n, part[i]);
    return n;
}

static jj_node *parse_dot(jj_parser *p, jj_node *of)
{
    const jj_token *at = p->tok++;
    if (p->tok->type != JJ_T_NAME && p->tok->type != JJ_T_INT)
        return jj_parse_fail(p, p->tok, "expected a name after '.', found %s", describe(p->tok));
    bool number = p->tok->type == JJ_T_INT;
    jj_node *n = jj_node_make(p, number ? JJ_INDEX : JJ_ATTR, at);
    if (!n)
        return NULL;
    n->a = of;
    if (number) {
        n->b = const_node(p, JJ_CONST_INT, p->tok->i);
    } else {
        n->s = p->tok->s;
        p->tok++;
    }
    return n;
}

static jj_node *parse_call(jj_parser *p, jj_node *of)
{
    jj_node *n = jj_node_make(p, JJ_CALL, p->tok);
    if (!n || !parse_args(p, n))
        return NULL;
    n->a = of;
    return n;
}

static jj_node *parse_postfix(jj_parser *p, jj_node *n)
{
    while (p->rc == 0) {
        if (jj_at_op(p, "."))
            n = parse_dot(p, n);
        else if (jj_at_op(p, "["))
            n = parse_index(p, n);
        else if (jj_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

static jj_node *parse_filter(jj_parser *p, jj_node *of)
{
    const jj_token *at = p->tok;
    if (at->type != JJ_T_NAME)
        return jj_parse_fail(p, at, "expected the name of a filter, found %s", describe(at));
    jj_node *n = jj_node_make(p, JJ_FILTER, at);
    if (!n)
        return NULL;
    n->a = of;
    n->s = at->s;
    p->tok++;
    if (!jj_find_filter(n->s))
        return jj_parse_fail(p, at, "there is no filter '%s' here", n->s);
    if (jj_at_op(p, "(") && !parse_args(p, n))
        return NULL;
    return n;
}

jj_node *jj_parse_filters(jj_parser *p, jj_node *of)
{
    jj_node *n = parse_filter(p, of);
    while (p->rc == 0 && jj_take_op(p, "|"))
        n = parse_filter(p, n);
    return n;
}

static bool begins_value(const jj_parser *p)
{
    static const char *const stops[] = {"else", "or", "and", "is", "if", "in", "not"};
    if (p->tok->type == JJ_T_OP)
        return strchr("([{", *p->tok->s) != NULL;
    if (p->tok->type != JJ_T_NAME)
        return p->tok->type == JJ_T_STR || p->tok->type == JJ_T_INT || p->tok->type == JJ_T_FLOAT;
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++)
        if (strcmp(p->tok->s, stops[i]) == 0)
            return false;
    return true;
}

/* `is [not] NAME [argument]` */
static jj_node *parse_test(jj_parser *p, jj_node *of)
{
    p->tok++;
    bool negated = jj_take_name(p, "not");
    const jj_token *at = p->tok;
    if (at->type != JJ_T_NAME)
        return jj_parse_fail(p, at, "expected the name of a test, found %s", describe(at));
    jj_node *n = jj_node_make(p, JJ_TEST, at);
    if (!n)
        return NULL;
    n->a = of;
    n->s = at->s;
    p->tok++;
    if (!jj_find_test(n->s))
        return jj_parse_fail(p, at, "there is no test '%s' here", n->s);
    if (jj_at_op(p, "(")) {
        if (!parse_args(p, n))
            return NULL;
    } else if (begins_value(p)) {
        jj_push(p, n, parse_postfix(p, parse_primary(p)));
    }
    if (p->rc || !negated)
        return n;
    jj_node *not = jj_node_make(p, JJ_UNARY, at);
    if (not ) {
        not ->s = "not";
        not ->a = n;
    }
    return not ;
}

static jj_node *parse_after(jj_parser *p, jj_node *n)
{
    while (p->rc == 0) {
        if (jj_take_op(p, "|"))
            n = parse_filter(p, n);
        else if (jj_at_name(p, "is"))
            n = parse_test(p, n);
        else if (jj_at_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

/* ---- operators ---- */

static jj_node *two(jj_parser *p, enum jj_kind kind, const jj_token *at, jj_node *a, jj_node *b)
{
    jj_node *n = jj_node_make(p, kind, at);
    if (n) {
        n->s = at->s;
        n->a = a;
        n->b = b;
    }
    return n;
}

static jj_node *parse_unary(jj_parser *p, bool filters)
{
    jj_node *n = NULL;
    const jj_token *at = p->tok;
    if (!jj_enter(p))
        return NULL;
    if (jj_take_op(p, "-") || jj_take_op(p, "+")) {
        n = two(p, JJ_UNARY, at, NULL, NULL);
        jj_node *of = parse_unary(p, false);
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
static const char *const levels[][5] = {{"+", "-", NULL}, {"~", NULL}, {"*", "/", "//", "%", NULL}, {"**", NULL}};
#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

static bool at_level(const jj_parser *p, size_t level)
{
    for (size_t i = 0; levels[level][i]; i++)
        if (jj_at_op(p, levels[level][i]))
            return true;
    return false;
}

static jj_node *parse_math(jj_parser *p, size_t level)
{
    if (level == N_LEVELS)
        return parse_unary(p, true);
    jj_node *n = parse_math(p, level + 1);
    while (p->rc == 0 && at_level(p, level)) {
        const jj_token *at = p->tok++;
        n = two(p, JJ_BINARY, at, n, parse_math(p, level + 1));
    }
    return n;
}

/* The comparison that begins here, or NULL; p stands behind it. */
static const char *take_compare(jj_parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (jj_take_op(p, ops[i]))
            return ops[i];
    if (jj_take_name(p, "in"))
        return "in";
    if (jj_at_name(p, "not") && p->tok[1].type == JJ_T_NAME && strcmp(p->tok[1].s, "in") == 0) {
        p->tok += 2;
        return "not in";
    }
    return NULL;
}

static jj_node *parse_compare(jj_parser *p)
{
    jj_node *first = parse_math(p, 0), *n = NULL;
    for (;;) {
        const jj_token *at = p->tok;
        const char *op = p->rc ? NULL : take_compare(p);
        if (!op)
            return n ? n : first;
        if (!n)
            n = two(p, JJ_COMPARE, at, first, NULL);
        if (n)
            push_named(p, n, op, parse_math(p, 0));
    }
}

static jj_node *parse_not(jj_parser *p)
{
    const jj_token *at = p->tok;
    if (!jj_at_name(p, "not"))
        return parse_compare(p);
    if (!jj_enter(p))
        return NULL;
    p->tok++;
    jj_node *n = two(p, JJ_UNARY, at, parse_not(p), NULL);
    p->depth--;
    return n;
}

static jj_node *parse_and(jj_parser *p)
{
    jj_node *n = parse_not(p);
    while (p->rc == 0 && jj_at_name(p, "and")) {
        const jj_token *at = p->tok++;
        n = two(p, JJ_AND, at, n, parse_not(p));
    }
    return n;
}

static jj_node *parse_or(jj_parser *p)
{
    jj_node *n = parse_and(p);
    while (p->rc == 0 && jj_at_name(p, "or")) {
        const jj_token *at = p->tok++;
        n = two(p, JJ_OR, at, n, parse_and(p));
    }
    return n;
}

jj_node *jj_parse_expr(jj_parser *p)
{
    if (!jj_enter(p))
        return NULL;
    jj_node *n = parse_or(p);
    while (p->rc == 0 && jj_at_name(p, "if")) {
        const jj_token *at = p->tok++;
        n = two(p, JJ_COND, at, n, parse_or(p));
        jj_node *other = jj_take_name(p, "else") ? jj_parse_expr(p) : NULL;
        if (n)
            n->c = other;
    }
    p->depth--;
    return p->rc ? NULL : n;
}

static bool tuple_ends(const jj_parser *p)
{
    return p->tok->type == JJ_T_VAR_END || p->tok->type == JJ_T_BLOCK_END || jj_at_op(p, ")") || jj_at_op(p, "]") ||
           jj_at_op(p, "=") || jj_at_name(p, "in") || jj_at_name(p, "if") || jj_at_name(p, "recursive");
}

/* Without conditions for the iterable of a `for`, whose `if` is a filter. */
jj_node *jj_parse_tuple(jj_parser *p, bool with_cond)
{
    const jj_token *at = p->tok;
    jj_node *n = with_cond ? jj_parse_expr(p) : parse_or(p), *t = NULL;
    while (p->rc == 0 && jj_take_op(p, ",")) {
        if (!t) {
            t = jj_node_make(p, JJ_TUPLE, at);
            if (!t)
                return NULL;
            jj_push(p, t, n);
        }
        if (tuple_ends(p))
            break;
        jj_push(p, t, with_cond ? jj_parse_expr(p) : parse_or(p));
    }
    return p->rc ? NULL : t ? t : n;
}

static jj_node *one_target(jj_parser *p, bool attributes)
{
    const jj_token *at = p->tok;
    if (jj_take_op(p, "(")) {
        jj_node *n = jj_parse_target(p, false);
        return jj_expect_op(p, ")") ? n : NULL;
    }
    if (at->type != JJ_T_NAME)
        return jj_parse_fail(p, at, "expected a name to assign to, found %s", describe(at));
    jj_node *n = parse_name(p);
    if (n && n->kind != JJ_NAME)
        return jj_parse_fail(p, at, "%s cannot be assigned to", at->s);
    if (p->loops > 0 && strcmp(at->s, "loop") == 0)
        return jj_parse_fail(p, at, "loop cannot be assigned to inside of a loop");
    return n && attributes && jj_at_op(p, ".") ? parse_dot(p, n) : n;
}

jj_node *jj_parse_target(jj_parser *p, bool attributes)
{
    const jj_token *at = p->tok;
    jj_node *n = one_target(p, attributes), *t = NULL;
    while (p->rc == 0 && jj_take_op(p, ",")) {
        if (!t) {
            t = jj_node_make(p, JJ_TUPLE, at);
            if (!t)
                return NULL;
            jj_push(p, t, n);
        }
        if (tuple_ends(p))
            break;
        jj_push(p, t, one_target(p, false));
    }
    return p->rc ? NULL : t ? t : n;
}

bool jj_parse_params(jj_parser *p, jj_node *n)
{
    if (!jj_expect_op(p, "("))
        return false;
    while (p->rc == 0 && !jj_at_op(p, ")")) {
        const jj_token *at = p->tok;
        if (at->type != JJ_T_NAME) {
            jj_parse_fail(p, at, "expected the name of a parameter, found %s", describe(at));
            break;
        }
        p->tok++;
        jj_node *def = jj_take_op(p, "=") ? jj_parse_expr(p) : NULL;
        if (!def && n->n_names > 0 && n->values[n->n_names - 1])
            jj_parse_fail(p, at, "a parameter without a default after one with a default");
        push_named(p, n, at->s, def);
        if (!jj_take_op(p, ","))
            break;
    }
    return jj_expect_op(p, ")");
}
