/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens into nodes, by recursive descent in jinja2's order of precedence. What the members a .. e of a node are:
 *
 *   N_LIST N_TUPLE  a: elements          N_DICT  a: N_PAIR (a key, b value)   N_ATTR  a.s     N_ITEM a[b]   N_SLICE
 * a[b:c:d] N_CALL  a(b), b: arguments, N_KW (s = a) among them     N_FILTER a|s(b)    N_TEST a is s(b) N_CMP   a, then
 * b: N_CMPOP (op, a)   N_COND  b if a else c                N_OUT   a N_IF    if a: b, else c              N_FOR   for
 * a in b if e: c, else d   N_SET   a = b   N_SETBLOCK a: b N_MACRO s(a: N_PARAM (s = a)): b     N_BODY  a: statements
 */
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_priv.h"

struct parser {
    lf_jinja *t;
    const struct jtok *v;
    size_t i;
    int depth, loops;
    lf_err *err;
};

static const struct jtok *peek(const struct parser *p)
{
    return &p->v[p->i];
}

static bool is_op(const struct parser *p, const char *s)
{
    const struct jtok *k = peek(p);
    return k->t == T_OP && k->n == strlen(s) && memcmp(k->s, s, k->n) == 0;
}

static bool is_word(const struct parser *p, const char *s)
{
    const struct jtok *k = peek(p);
    return k->t == T_NAME && k->n == strlen(s) && memcmp(k->s, s, k->n) == 0;
}

static bool take_op(struct parser *p, const char *s)
{
    bool yes = is_op(p, s);
    p->i += yes;
    return yes;
}

static bool take_word(struct parser *p, const char *s)
{
    bool yes = is_word(p, s);
    p->i += yes;
    return yes;
}

static struct jn *fail(struct parser *p, const char *what)
{
    const struct jtok *k = peek(p);
    if (k->t == T_NAME || k->t == T_OP)
        lf_jinja_fail(p->t, k->at, p->err, LF_EFORMAT, "%s, found \"%.*s\"", what, (int)(k->n < 60 ? k->n : 60), k->s);
    else
        lf_jinja_fail(p->t, k->at, p->err, LF_EFORMAT, "%s", what);
    return NULL;
}

static struct jn *node(struct parser *p, enum jk kind, size_t at)
{
    struct jn *n = lf_arena_alloc(p->t->arena, 1, sizeof *n, p->err);
    if (n) {
        n->k = kind;
        n->at = at;
    }
    return n;
}

static struct jn *node2(struct parser *p, enum jk kind, int op, struct jn *a, struct jn *b)
{
    struct jn *n = a && b ? node(p, kind, a->at) : NULL;
    if (n) {
        n->op = op;
        n->a = a;
        n->b = b;
    }
    return n;
}

static struct jn *parse_expr(struct parser *p);
static struct jn *parse_unary(struct parser *p, bool filters);

/* ---- literals ---- */

/* Elements up to `end`; *comma: one was there. */
static struct jn *parse_list(struct parser *p, const char *end, bool *comma, bool *ok)
{
    struct jn *first = NULL, **last = &first;
    *ok = true;
    while (!is_op(p, end)) {
        if (!(*last = parse_expr(p))) {
            *ok = false;
            return NULL;
        }
        last = &(*last)->next;
        if (!take_op(p, ","))
            break;
        *comma = true;
    }
    if (!take_op(p, end)) {
        fail(p, "an element or the end of the list is missing");
        *ok = false;
    }
    return first;
}

static struct jn *parse_dict(struct parser *p, size_t at)
{
    struct jn *d = node(p, N_DICT, at), **last = d ? &d->a : NULL;
    while (d && !is_op(p, "}")) {
        struct jn *key = parse_expr(p);
        if (!key)
            return NULL;
        if (!take_op(p, ":"))
            return fail(p, "':' is missing after a key");
        struct jn *val = parse_expr(p);
        if (!(*last = node2(p, N_PAIR, 0, key, val)))
            return NULL;
        last = &(*last)->next;
        if (!take_op(p, ","))
            break;
    }
    return !d ? NULL : take_op(p, "}") ? d : fail(p, "'}' is missing");
}

static struct jn *parse_group(struct parser *p, size_t at)
{
    bool comma = false, ok;
    struct jn *n = node(p, N_TUPLE, at);
    struct jn *list = n ? parse_list(p, ")", &comma, &ok) : NULL;
    if (!n || !ok)
        return NULL;
    if (list && !comma)
        return list;
    n->a = list;
    return n;
}

static struct jn *parse_name(struct parser *p)
{
    static const struct {
        const char *s;
        enum jk k;
    } words[] = {{"true", N_TRUE},   {"True", N_TRUE}, {"false", N_FALSE},
                 {"False", N_FALSE}, {"none", N_NONE}, {"None", N_NONE}};
    const struct jtok *k = peek(p);
    for (int w = 0; w < 6; w++)
        if (take_word(p, words[w].s))
            return node(p, words[w].k, k->at);
    struct jn *n = node(p, N_NAME, k->at);
    if (n) {
        n->s = k->s;
        n->n = k->n;
        p->i++;
    }
    return n;
}

/* Neighbouring texts are one. */
static struct jn *parse_text(struct parser *p)
{
    size_t total = 0, from = p->i;
    for (; peek(p)->t == T_STR; p->i++)
        total += peek(p)->n;
    struct jn *n = node(p, N_STR, p->v[from].at);
    char *s = n ? lf_arena_alloc(p->t->arena, total + 1, 1, p->err) : NULL;
    if (!s)
        return NULL;
    n->s = s;
    n->n = total;
    for (; from < p->i; from++) {
        memcpy(s, p->v[from].s, p->v[from].n);
        s += p->v[from].n;
    }
    return n;
}

static struct jn *parse_primary(struct parser *p)
{
    const struct jtok *k = peek(p);
    struct jn *n = NULL;
    bool comma = false, ok;
    if (k->t == T_NAME)
        return parse_name(p);
    if (k->t == T_STR)
        return parse_text(p);
    if (k->t == T_INT || k->t == T_FLOAT) {
        if ((n = node(p, k->t == T_INT ? N_INT : N_FLOAT, k->at))) {
            n->i = k->i;
            n->f = k->f;
            p->i++;
        }
        return n;
    }
    if (take_op(p, "("))
        return parse_group(p, k->at);
    if (take_op(p, "{"))
        return parse_dict(p, k->at);
    if (!take_op(p, "["))
        return fail(p, "a value is missing");
    if ((n = node(p, N_LIST, k->at)))
        n->a = parse_list(p, "]", &comma, &ok);
    return n && ok ? n : NULL;
}

/* ---- what comes behind a value ---- */

static struct jn *parse_args(struct parser *p, bool *ok)
{
    struct jn *first = NULL, **last = &first;
    *ok = false;
    while (!is_op(p, ")")) {
        const struct jtok *k = peek(p);
        bool kw = k->t == T_NAME && k[1].t == T_OP && k[1].n == 1 && k[1].s[0] == '=';
        if (kw)
            p->i += 2;
        struct jn *v = parse_expr(p);
        if (!v)
            return NULL;
        if (kw) {
            struct jn *w = node(p, N_KW, k->at);
            if (!w)
                return NULL;
            w->s = k->s;
            w->n = k->n;
            w->a = v;
            v = w;
        }
        *last = v;
        last = &v->next;
        if (!take_op(p, ","))
            break;
    }
    *ok = take_op(p, ")") || fail(p, "an argument or ')' is missing");
    return first;
}

static struct jn *parse_item(struct parser *p, struct jn *a)
{
    struct jn *part[3] = {NULL}, *n;
    int k = 0;
    bool slice = false;
    for (;;) {
        if (!is_op(p, ":") && !is_op(p, "]") && !(part[k] = parse_expr(p)))
            return NULL;
        if (k == 2 || !take_op(p, ":"))
            break;
        slice = true;
        k++;
    }
    if (!take_op(p, "]"))
        return fail(p, "']' is missing");
    if (!slice && !part[0])
        return fail(p, "an index is missing");
    if ((n = node(p, slice ? N_SLICE : N_ITEM, a->at))) {
        n->a = a;
        n->b = part[0];
        n->c = part[1];
        n->d = part[2];
    }
    return n;
}

static struct jn *parse_call(struct parser *p, struct jn *a)
{
    bool ok;
    struct jn *n = node(p, N_CALL, a->at);
    if (n) {
        n->a = a;
        n->b = parse_args(p, &ok);
    }
    return n && ok ? n : NULL;
}

static struct jn *parse_postfix(struct parser *p, struct jn *a)
{
    while (a) {
        if (take_op(p, ".")) {
            const struct jtok *k = peek(p);
            struct jn *n = k->t == T_NAME ? node(p, N_ATTR, k->at) : fail(p, "a name is missing after '.'");
            if (!n)
                return NULL;
            n->a = a;
            n->s = k->s;
            n->n = k->n;
            p->i++;
            a = n;
        } else if (take_op(p, "[")) {
            a = parse_item(p, a);
        } else if (take_op(p, "(")) {
            a = parse_call(p, a);
        } else {
            break;
        }
    }
    return a;
}

static struct jn *parse_filter(struct parser *p, struct jn *a)
{
    const struct jtok *k = peek(p);
    bool ok = true;
    struct jn *n;
    if (k->t != T_NAME || !lf_jinja_is_filter(k->s, k->n))
        return fail(p, "the name of a filter is missing or not known");
    if (!(n = node(p, N_FILTER, k->at)))
        return NULL;
    n->a = a;
    n->s = k->s;
    n->n = k->n;
    p->i++;
    if (take_op(p, "("))
        n->b = parse_args(p, &ok);
    return ok ? n : NULL;
}

/* "is [not] name", with an argument in brackets or right behind. */
static struct jn *parse_test(struct parser *p, struct jn *a)
{
    bool negated = take_word(p, "not"), ok = true;
    const struct jtok *k = peek(p);
    struct jn *n;
    if (k->t != T_NAME || !lf_jinja_is_test(k->s, k->n))
        return fail(p, "the name of a test is missing or not known");
    if (!(n = node(p, N_TEST, k->at)))
        return NULL;
    n->a = a;
    n->s = k->s;
    n->n = k->n;
    n->op = negated;
    p->i++;
    const struct jtok *f = peek(p);
    bool word = f->t == T_NAME && !is_word(p, "and") && !is_word(p, "or") && !is_word(p, "if") && !is_word(p, "else") &&
                !is_word(p, "is") && !is_word(p, "in") && !is_word(p, "not");
    if (take_op(p, "(")) {
        n->b = parse_args(p, &ok);
    } else if (word || f->t == T_STR || f->t == T_INT || f->t == T_FLOAT || is_op(p, "[") || is_op(p, "{")) {
        n->b = parse_postfix(p, parse_primary(p));
        ok = n->b != NULL;
    }
    return ok ? n : NULL;
}

static struct jn *parse_unary(struct parser *p, bool filters)
{
    size_t at = peek(p)->at;
    struct jn *n;
    if (++p->depth > LF_JINJA_DEPTH)
        return fail(p, "expressions are nested too deeply");
    if (take_op(p, "-")) {
        struct jn *a = parse_unary(p, false);
        if ((n = a ? node(p, N_NEG, at) : NULL))
            n->a = a;
    } else if (take_op(p, "+")) {
        n = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    if (n)
        n = parse_postfix(p, n);
    while (n && filters) {
        if (take_op(p, "|"))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

/* ---- operators ---- */

static struct jn *parse_pow(struct parser *p)
{
    struct jn *a = parse_unary(p, true);
    while (a && take_op(p, "**"))
        a = node2(p, N_BIN, O_POW, a, parse_unary(p, true));
    return a;
}

static struct jn *parse_product(struct parser *p)
{
    struct jn *a = parse_pow(p);
    while (a) {
        int op = take_op(p, "*")    ? O_MUL
                 : take_op(p, "//") ? O_FLOORDIV
                 : take_op(p, "/")  ? O_DIV
                 : take_op(p, "%")  ? O_MOD
                                    : 0;
        if (!op)
            break;
        a = node2(p, N_BIN, op, a, parse_pow(p));
    }
    return a;
}

static struct jn *parse_concat(struct parser *p)
{
    struct jn *a = parse_product(p);
    while (a && take_op(p, "~"))
        a = node2(p, N_BIN, O_CAT, a, parse_product(p));
    return a;
}

static struct jn *parse_sum(struct parser *p)
{
    struct jn *a = parse_concat(p);
    while (a) {
        int op = take_op(p, "+") ? O_ADD : take_op(p, "-") ? O_SUB : 0;
        if (!op)
            break;
        a = node2(p, N_BIN, op, a, parse_concat(p));
    }
    return a;
}

static int compare_op(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    static const int code[] = {O_EQ, O_NE, O_LE, O_GE, O_LT, O_GT};
    for (int i = 0; i < 6; i++)
        if (take_op(p, ops[i]))
            return code[i];
    if (take_word(p, "in"))
        return O_IN;
    if (is_word(p, "not") && p->v[p->i + 1].t == T_NAME && p->v[p->i + 1].n == 2 &&
        memcmp(p->v[p->i + 1].s, "in", 2) == 0) {
        p->i += 2;
        return O_NOTIN;
    }
    return 0;
}

static struct jn *parse_compare(struct parser *p)
{
    struct jn *a = parse_sum(p), *n = NULL, **last = NULL;
    int op;
    while (a && (op = compare_op(p))) {
        if (!n && !(n = node(p, N_CMP, a->at)))
            return NULL;
        last = last ? last : &n->b;
        n->a = a;
        struct jn *o = node(p, N_CMPOP, a->at);
        if (!o || !(o->a = parse_sum(p)))
            return NULL;
        o->op = op;
        *last = o;
        last = &o->next;
    }
    return n ? n : a;
}

static struct jn *parse_not(struct parser *p)
{
    size_t at = peek(p)->at;
    if (!take_word(p, "not"))
        return parse_compare(p);
    if (++p->depth > LF_JINJA_DEPTH)
        return fail(p, "expressions are nested too deeply");
    struct jn *a = parse_not(p), *n = a ? node(p, N_NOT, at) : NULL;
    p->depth--;
    if (n)
        n->a = a;
    return n;
}

static struct jn *parse_and(struct parser *p)
{
    struct jn *a = parse_not(p);
    while (a && take_word(p, "and"))
        a = node2(p, N_AND, 0, a, parse_not(p));
    return a;
}

static struct jn *parse_or(struct parser *p)
{
    struct jn *a = parse_and(p);
    while (a && take_word(p, "or"))
        a = node2(p, N_OR, 0, a, parse_and(p));
    return a;
}

static struct jn *parse_expr(struct parser *p)
{
    if (++p->depth > LF_JINJA_DEPTH)
        return fail(p, "expressions are nested too deeply");
    struct jn *a = parse_or(p);
    while (a && take_word(p, "if")) {
        struct jn *n = node(p, N_COND, a->at);
        if (!n || !(n->a = parse_or(p)))
            return NULL;
        n->b = a;
        if (take_word(p, "else") && !(n->c = parse_expr(p)))
            return NULL;
        a = n;
    }
    p->depth--;
    return a;
}

/* An expression, or several with commas: a tuple. */
static struct jn *parse_tuple(struct parser *p)
{
    struct jn *a = parse_expr(p), **last;
    if (!a || !is_op(p, ","))
        return a;
    struct jn *n = node(p, N_TUPLE, a->at);
    if (!n)
        return NULL;
    n->a = a;
    last = &a->next;
    while (take_op(p, ",") && peek(p)->t != T_STMT_END && peek(p)->t != T_OUT_END) {
        if (!(*last = parse_expr(p)))
            return NULL;
        last = &(*last)->next;
    }
    return n;
}

/* ---- statements ---- */

static struct jn *parse_body(struct parser *p, const char *const *ends, int *which);

static bool end_stmt(struct parser *p)
{
    if (peek(p)->t != T_STMT_END) {
        fail(p, "the end of the statement is missing");
        return false;
    }
    p->i++;
    return true;
}

static struct jn *parse_if(struct parser *p, size_t at)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    int which = 0;
    struct jn *n = node(p, N_IF, at);
    if (!n || !(n->a = parse_tuple(p)) || !end_stmt(p) || !(n->b = parse_body(p, ends, &which)))
        return NULL;
    if (which == 0)
        return (n->c = parse_if(p, at)) ? n : NULL;
    if (which == 1 && (!end_stmt(p) || !(n->c = parse_body(p, last, &which))))
        return NULL;
    return end_stmt(p) ? n : NULL;
}

/* "a" or "a, b" or "(a, b)": names. */
static struct jn *parse_target(struct parser *p)
{
    struct jn *first = NULL, **last = &first;
    bool group = take_op(p, "(");
    do {
        if (peek(p)->t != T_NAME)
            return fail(p, "the name of a variable is missing");
        if (!(*last = parse_name(p)))
            return NULL;
        if ((*last)->k != N_NAME)
            return fail(p, "a word that is no variable");
        last = &(*last)->next;
    } while (take_op(p, ","));
    return !group || take_op(p, ")") ? first : fail(p, "')' is missing");
}

static struct jn *parse_for(struct parser *p, size_t at)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    int which = 0;
    struct jn *n = node(p, N_FOR, at);
    if (!n || !(n->a = parse_target(p)))
        return NULL;
    if (!take_word(p, "in"))
        return fail(p, "'in' is missing");
    /* Not a whole expression: its "if" is the loop's. */
    if (!(n->b = parse_or(p)))
        return NULL;
    if (is_op(p, ","))
        return fail(p, "a tuple to loop over needs brackets");
    if (take_word(p, "if") && !(n->e = parse_expr(p)))
        return NULL;
    p->loops++;
    bool ok = end_stmt(p) && (n->c = parse_body(p, ends, &which));
    p->loops--;
    if (ok && which == 0)
        ok = end_stmt(p) && (n->d = parse_body(p, last, &which));
    return ok && end_stmt(p) ? n : NULL;
}

static struct jn *parse_set(struct parser *p, size_t at)
{
    static const char *const ends[] = {"endset", NULL};
    int which;
    struct jn *target = parse_target(p), *n = target ? node(p, N_SET, at) : NULL;
    if (!n)
        return NULL;
    if (!target->next && take_op(p, ".")) {
        const struct jtok *k = peek(p);
        struct jn *m = k->t == T_NAME ? node(p, N_ATTR, k->at) : fail(p, "a name is missing after '.'");
        if (!m)
            return NULL;
        m->a = target;
        m->s = k->s;
        m->n = k->n;
        p->i++;
        target = m;
    }
    n->a = target;
    if (take_op(p, "="))
        return (n->b = parse_tuple(p)) && end_stmt(p) ? n : NULL;
    if (is_op(p, "|"))
        return fail(p, "filters of a set block are not supported");
    n->k = N_SETBLOCK;
    return end_stmt(p) && (n->b = parse_body(p, ends, &which)) && end_stmt(p) ? n : NULL;
}

static struct jn *parse_macro(struct parser *p, size_t at)
{
    static const char *const ends[] = {"endmacro", NULL};
    int which, loops = p->loops;
    const struct jtok *k = peek(p);
    struct jn *n = k->t == T_NAME ? node(p, N_MACRO, at) : fail(p, "the name of the macro is missing"),
              **last = n ? &n->a : NULL;
    if (!n)
        return NULL;
    n->s = k->s;
    n->n = k->n;
    p->i++;
    if (!take_op(p, "("))
        return fail(p, "'(' is missing");
    while (!is_op(p, ")")) {
        const struct jtok *a = peek(p);
        if (a->t != T_NAME)
            return fail(p, "the name of a parameter is missing");
        if (!(*last = node(p, N_PARAM, a->at)))
            return NULL;
        (*last)->s = a->s;
        (*last)->n = a->n;
        p->i++;
        if (take_op(p, "=") && !((*last)->a = parse_expr(p)))
            return NULL;
        last = &(*last)->next;
        if (!take_op(p, ","))
            break;
    }
    if (!take_op(p, ")"))
        return fail(p, "')' is missing");
    p->loops = 0;
    bool ok = end_stmt(p) && (n->b = parse_body(p, ends, &which)) && end_stmt(p);
    p->loops = loops;
    return ok ? n : NULL;
}

static struct jn *parse_statement(struct parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    size_t at = peek(p)->at;
    int which;
    struct jn *n;
    if (take_word(p, "if"))
        return parse_if(p, at);
    if (take_word(p, "for"))
        return parse_for(p, at);
    if (take_word(p, "set"))
        return parse_set(p, at);
    if (take_word(p, "macro"))
        return parse_macro(p, at);
    if (take_word(p, "generation"))
        return end_stmt(p) && (n = parse_body(p, ends, &which)) && end_stmt(p) ? n : NULL;
    bool stop = is_word(p, "break");
    if (!stop && !is_word(p, "continue"))
        return fail(p, "a statement that is not known");
    if (p->loops == 0)
        return fail(p, "outside of a loop");
    p->i++;
    n = node(p, stop ? N_BREAK : N_CONTINUE, at);
    return n && end_stmt(p) ? n : NULL;
}

static struct jn *parse_output(struct parser *p)
{
    struct jn *n = node(p, N_OUT, peek(p)->at);
    if (!n || !(n->a = parse_tuple(p)))
        return NULL;
    if (peek(p)->t != T_OUT_END)
        return fail(p, "the end of the expression is missing");
    p->i++;
    return n;
}

/* Statements up to one of the words `ends` (NULL: to the end), which is taken; *which: its number. */
static struct jn *parse_body(struct parser *p, const char *const *ends, int *which)
{
    struct jn *body = node(p, N_BODY, peek(p)->at), **last = body ? &body->a : NULL, *n;
    if (!body)
        return NULL;
    if (++p->depth > LF_JINJA_DEPTH)
        return fail(p, "statements are nested too deeply");
    for (;; last = &(*last)->next) {
        const struct jtok *k = peek(p);
        if (k->t == T_END) {
            p->depth--;
            return ends ? fail(p, "the end of a block is missing") : body;
        }
        p->i++;
        if (k->t == T_TEXT) {
            if ((n = node(p, N_TEXT, k->at))) {
                n->s = k->s;
                n->n = k->n;
            }
        } else if (k->t == T_OUT) {
            n = parse_output(p);
        } else {
            for (int e = 0; ends && ends[e]; e++)
                if (take_word(p, ends[e])) {
                    *which = e;
                    p->depth--;
                    return body;
                }
            n = parse_statement(p);
        }
        if (!(*last = n))
            return NULL;
    }
}

int lf_jinja_build(lf_jinja *t, const struct jtok *tok, lf_err *err)
{
    lf_err mine = LF_ERR_INIT;
    struct parser p = {.t = t, .v = tok, .err = &mine};
    int which;
    t->body = parse_body(&p, NULL, &which);
    if (!t->body)
        return lf_fail(err, mine.rc ? mine.rc : LF_ENOMEM, "%s", mine.rc ? mine.text : "no memory for a template");
    return 0;
}
