/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements. A body ends at a tag that its statement names. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

static lf_jj_node *parse_body(lf_jj_parser *p, const char *const *ends, const lf_jj_token *opened,
                              const char *what);

static bool tag_done(lf_jj_parser *p)
{
    if (p->rc == 0 && p->tok->type != LF_JJ_T_BLOCK_END)
        lf_jj_parse_fail(p, p->tok, "expected %%}");
    p->tok += p->rc == 0;
    return p->rc == 0;
}

/* if and elif: the current token is the word. */
static lf_jj_node *parse_if(lf_jj_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_IF, at);
    if (!n || !lf_jj_enter(p))
        return NULL;
    n->a = lf_jj_parse_tuple(p, true);
    if (tag_done(p))
        n->b = parse_body(p, ends, at, "if");
    if (p->rc == 0 && lf_jj_at_name(p, "elif")) {
        n->c = parse_if(p);
    } else {
        if (p->rc == 0 && lf_jj_take_name(p, "else") && tag_done(p))
            n->c = parse_body(p, last, at, "if");
        p->tok += p->rc == 0; /* endif */
        tag_done(p);
    }
    p->depth--;
    return n;
}

static lf_jj_node *parse_for(lf_jj_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_FOR, at), *otherwise = NULL;
    if (!n)
        return NULL;
    p->loops++;
    lf_jj_push(p, n, lf_jj_parse_target(p, false));
    if (p->rc == 0 && !lf_jj_take_name(p, "in"))
        return lf_jj_parse_fail(p, p->tok, "expected 'in'");
    n->a = p->rc ? NULL : lf_jj_parse_tuple(p, false);
    if (p->rc == 0 && lf_jj_take_name(p, "if"))
        n->b = lf_jj_parse_expr(p);
    if (p->rc == 0 && lf_jj_at_name(p, "recursive"))
        return lf_jj_parse_fail(p, p->tok, "recursive loops are not supported");
    if (!tag_done(p))
        return NULL;
    n->c = parse_body(p, ends, at, "for");
    p->loops--;
    if (p->rc == 0 && lf_jj_take_name(p, "else") && tag_done(p))
        otherwise = parse_body(p, last, at, "for");
    lf_jj_push(p, n, otherwise);
    p->tok += p->rc == 0; /* endfor */
    tag_done(p);
    return n;
}

/* A block between its tag, which ends here, and `end`. */
static lf_jj_node *parse_block(lf_jj_parser *p, const lf_jj_token *at, const char *what,
                               const char *end)
{
    const char *const ends[] = {end, NULL};
    int loops = p->loops;
    if (!tag_done(p))
        return NULL;
    if (strcmp(what, "macro") == 0 || strcmp(what, "call") == 0)
        p->loops = 0;
    lf_jj_node *body = parse_body(p, ends, at, what);
    p->loops = loops;
    p->tok += p->rc == 0;
    tag_done(p);
    return body;
}

static lf_jj_node *captured(lf_jj_parser *p, const lf_jj_token *at)
{
    return lf_jj_node_make(p, LF_JJ_CAPTURED, at);
}

static lf_jj_node *parse_set(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *target = lf_jj_parse_target(p, true);
    bool plain = p->rc == 0 && lf_jj_take_op(p, "=");
    lf_jj_node *n = p->rc ? NULL : lf_jj_node_make(p, plain ? LF_JJ_SET : LF_JJ_SET_BLOCK, at);
    if (!n)
        return NULL;
    n->a = target;
    if (plain) {
        n->b = lf_jj_parse_tuple(p, true);
        tag_done(p);
        return n;
    }
    if (lf_jj_take_op(p, "|"))
        n->b = lf_jj_parse_filters(p, captured(p, at));
    n->c = p->rc ? NULL : parse_block(p, at, "set", "endset");
    return n;
}

static lf_jj_node *parse_macro(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    if (p->tok->type != LF_JJ_T_NAME)
        return lf_jj_parse_fail(p, p->tok, "expected the name of the macro");
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_MACRO, at);
    if (!n)
        return NULL;
    n->s = p->tok->s;
    p->tok++;
    if (lf_jj_parse_params(p, n))
        n->c = parse_block(p, at, "macro", "endmacro");
    return n;
}

static lf_jj_node *parse_call_block(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_CALL_BLOCK, at);
    if (!n || (lf_jj_at_op(p, "(") && !lf_jj_parse_params(p, n)))
        return NULL;
    n->s = lf_jj_intern(p->t, "caller", 6, p->err);
    n->a = lf_jj_parse_expr(p);
    if (p->rc == 0 && n->a->kind != LF_JJ_CALL)
        return lf_jj_parse_fail(p, at, "call wants a call");
    n->c = p->rc ? NULL : parse_block(p, at, "call", "endcall");
    return n;
}

static lf_jj_node *parse_filter_block(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_FILTER_BLOCK, at);
    if (!n)
        return NULL;
    n->b = lf_jj_parse_filters(p, captured(p, at));
    n->c = p->rc ? NULL : parse_block(p, at, "filter", "endfilter");
    return n;
}

static lf_jj_node *parse_with(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_WITH, at);
    while (n && p->rc == 0 && p->tok->type != LF_JJ_T_BLOCK_END) {
        if (n->n > 0 && !lf_jj_expect_op(p, ","))
            return NULL;
        lf_jj_push(p, n, lf_jj_parse_target(p, false));
        if (!lf_jj_expect_op(p, "="))
            return NULL;
        lf_jj_push(p, n, lf_jj_parse_expr(p));
    }
    if (n)
        n->c = p->rc ? NULL : parse_block(p, at, "with", "endwith");
    return n;
}

static lf_jj_node *parse_generation(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_GENERATION, at);
    if (n)
        n->c = parse_block(p, at, "generation", "endgeneration");
    return n;
}

static lf_jj_node *parse_jump(lf_jj_parser *p)
{
    const lf_jj_token *at = p->tok++;
    if (p->loops == 0)
        return lf_jj_parse_fail(p, at, "%s outside of a loop", at->s);
    lf_jj_node *n =
        lf_jj_node_make(p, strcmp(at->s, "break") == 0 ? LF_JJ_BREAK : LF_JJ_CONTINUE, at);
    tag_done(p);
    return n;
}

static lf_jj_node *parse_statement(lf_jj_parser *p)
{
    static const struct {
        const char *word;
        lf_jj_node *(*parse)(lf_jj_parser *p);
    } table[] = {{"if", parse_if},           {"for", parse_for},
                 {"set", parse_set},         {"macro", parse_macro},
                 {"call", parse_call_block}, {"filter", parse_filter_block},
                 {"with", parse_with},       {"generation", parse_generation},
                 {"break", parse_jump},      {"continue", parse_jump}};
    if (!lf_jj_enter(p))
        return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (lf_jj_at_name(p, table[i].word)) {
            lf_jj_node *n = table[i].parse(p);
            p->depth--;
            return p->rc ? NULL : n;
        }
    if (p->tok->type != LF_JJ_T_NAME)
        return lf_jj_parse_fail(p, p->tok, "expected a statement");
    return lf_jj_parse_fail(p, p->tok, "a statement '%s' is not known here", p->tok->s);
}

static bool at_end(const lf_jj_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->tok[1].type == LF_JJ_T_NAME && strcmp(p->tok[1].s, *ends) == 0)
            return true;
    return false;
}

static lf_jj_node *parse_print(lf_jj_parser *p)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_PRINT, p->tok++);
    if (n)
        n->a = lf_jj_parse_tuple(p, true);
    if (p->rc == 0 && p->tok->type != LF_JJ_T_VAR_END)
        return lf_jj_parse_fail(p, p->tok, "expected }}");
    p->tok += p->rc == 0;
    return n;
}

static lf_jj_node *data_node(lf_jj_parser *p)
{
    lf_jj_node *n = lf_jj_node_make(p, LF_JJ_DATA, p->tok);
    if (n) {
        n->s = p->tok->s;
        n->len = p->tok->len;
    }
    p->tok++;
    return n;
}

/* Up to the tag of `ends`; the current token is then its word. ends NULL: the whole template. */
static lf_jj_node *parse_body(lf_jj_parser *p, const char *const *ends, const lf_jj_token *opened,
                              const char *what)
{
    lf_jj_node *body = lf_jj_node_make(p, LF_JJ_BODY, p->tok);
    while (body && p->rc == 0) {
        if (p->tok->type == LF_JJ_T_EOF) {
            if (ends)
                lf_jj_parse_fail(p, opened, "this %s has no end", what);
            break;
        }
        if (p->tok->type == LF_JJ_T_DATA) {
            lf_jj_push(p, body, data_node(p));
        } else if (p->tok->type == LF_JJ_T_VAR_BEGIN) {
            lf_jj_push(p, body, parse_print(p));
        } else {
            bool end = ends && at_end(p, ends);
            p->tok++;
            if (end)
                break;
            lf_jj_push(p, body, parse_statement(p));
        }
    }
    return p->rc ? NULL : body;
}

lf_jj_node *lf_jj_parse_template(lf_jj_parser *p)
{
    return parse_body(p, NULL, NULL, NULL);
}

int lf_jj_fail_at(const lf_jinja *t, int line, int col, int rc, lf_err *err, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return lf_fail(err, rc, "%s:%d:%d: %s", t->name, line, col, text);
}

lf_jinja *lf_jinja_parse(const char *source, size_t len, const char *name, lf_err *err)
{
    lf_jinja *t = lf_calloc(1, sizeof(*t), err);
    lf_jj_tokens tokens = {0};
    if (!t)
        return NULL;
    t->arena = lf_arena_create(err);
    t->name = t->arena ? lf_arena_strdup(t->arena, name, err) : NULL;
    if (t->name && lf_jj_lex(t, source, len, &tokens, err) == 0) {
        lf_jj_parser p = {.t = t, .tok = tokens.v, .err = err};
        t->root = lf_jj_parse_template(&p);
    }
    free(tokens.v);
    if (t->root)
        return t;
    lf_jinja_destroy(t);
    return NULL;
}

void lf_jinja_destroy(lf_jinja *t)
{
    if (!t)
        return;
    lf_arena_destroy(t->arena);
    free(t);
}
