/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements. A body ends at a tag that its statement names. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

static jj_node *parse_body(jj_parser *p, const char *const *ends, const jj_token *opened, const char *what);

static bool tag_done(jj_parser *p)
{
    if (p->rc == 0 && p->tok->type != JJ_T_BLOCK_END)
        jj_parse_fail(p, p->tok, "expected %%}");
    p->tok += p->rc == 0;
    return p->rc == 0;
}

/* if and elif: the current token is the word. */
static jj_node *parse_if(jj_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_IF, at);
    if (!n || !jj_enter(p))
        return NULL;
    n->a = jj_parse_tuple(p, true);
    if (tag_done(p))
        n->b = parse_body(p, ends, at, "if");
    if (p->rc == 0 && jj_at_name(p, "elif")) {
        n->c = parse_if(p);
    } else {
        if (p->rc == 0 && jj_take_name(p, "else") && tag_done(p))
            n->c = parse_body(p, last, at, "if");
        p->tok += p->rc == 0; /* endif */
        tag_done(p);
    }
    p->depth--;
    return n;
}

static jj_node *parse_for(jj_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_FOR, at), *otherwise = NULL;
    if (!n)
        return NULL;
    p->loops++;
    jj_push(p, n, jj_parse_target(p, false));
    if (p->rc == 0 && !jj_take_name(p, "in"))
        return jj_parse_fail(p, p->tok, "expected 'in'");
    n->a = p->rc ? NULL : jj_parse_tuple(p, false);
    if (p->rc == 0 && jj_take_name(p, "if"))
        n->b = jj_parse_expr(p);
    if (p->rc == 0 && jj_at_name(p, "recursive"))
        return jj_parse_fail(p, p->tok, "recursive loops are not supported");
    if (!tag_done(p))
        return NULL;
    n->c = parse_body(p, ends, at, "for");
    p->loops--;
    if (p->rc == 0 && jj_take_name(p, "else") && tag_done(p))
        otherwise = parse_body(p, last, at, "for");
    jj_push(p, n, otherwise);
    p->tok += p->rc == 0; /* endfor */
    tag_done(p);
    return n;
}

/* A block between its tag, which ends here, and `end`. */
static jj_node *parse_block(jj_parser *p, const jj_token *at, const char *what, const char *end)
{
    const char *const ends[] = {end, NULL};
    int loops = p->loops;
    if (!tag_done(p))
        return NULL;
    if (strcmp(what, "macro") == 0 || strcmp(what, "call") == 0)
        p->loops = 0;
    jj_node *body = parse_body(p, ends, at, what);
    p->loops = loops;
    p->tok += p->rc == 0;
    tag_done(p);
    return body;
}

static jj_node *captured(jj_parser *p, const jj_token *at)
{
    return jj_node_make(p, JJ_CAPTURED, at);
}

static jj_node *parse_set(jj_parser *p)
{
    const jj_token *at = p->tok++;
    jj_node *target = jj_parse_target(p, true);
    bool plain = p->rc == 0 && jj_take_op(p, "=");
    jj_node *n = p->rc ? NULL : jj_node_make(p, plain ? JJ_SET : JJ_SET_BLOCK, at);
    if (!n)
        return NULL;
    n->a = target;
    if (plain) {
        n->b = jj_parse_tuple(p, true);
        tag_done(p);
        return n;
    }
    if (jj_take_op(p, "|"))
        n->b = jj_parse_filters(p, captured(p, at));
    n->c = p->rc ? NULL : parse_block(p, at, "set", "endset");
    return n;
}

static jj_node *parse_macro(jj_parser *p)
{
    const jj_token *at = p->tok++;
    if (p->tok->type != JJ_T_NAME)
        return jj_parse_fail(p, p->tok, "expected the name of the macro");
    jj_node *n = jj_node_make(p, JJ_MACRO, at);
    if (!n)
        return NULL;
    n->s = p->tok->s;
    p->tok++;
    if (jj_parse_params(p, n))
        n->c = parse_block(p, at, "macro", "endmacro");
    return n;
}

static jj_node *parse_call_block(jj_parser *p)
{
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_CALL_BLOCK, at);
    if (!n || (jj_at_op(p, "(") && !jj_parse_params(p, n)))
        return NULL;
    n->s = jj_intern(p->t, "caller", 6, p->err);
    n->a = jj_parse_expr(p);
    if (p->rc == 0 && n->a->kind != JJ_CALL)
        return jj_parse_fail(p, at, "call wants a call");
    n->c = p->rc ? NULL : parse_block(p, at, "call", "endcall");
    return n;
}

static jj_node *parse_filter_block(jj_parser *p)
{
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_FILTER_BLOCK, at);
    if (!n)
        return NULL;
    n->b = jj_parse_filters(p, captured(p, at));
    n->c = p->rc ? NULL : parse_block(p, at, "filter", "endfilter");
    return n;
}

static jj_node *parse_with(jj_parser *p)
{
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_WITH, at);
    while (n && p->rc == 0 && p->tok->type != JJ_T_BLOCK_END) {
        if (n->n > 0 && !jj_expect_op(p, ","))
            return NULL;
        jj_push(p, n, jj_parse_target(p, false));
        if (!jj_expect_op(p, "="))
            return NULL;
        jj_push(p, n, jj_parse_expr(p));
    }
    if (n)
        n->c = p->rc ? NULL : parse_block(p, at, "with", "endwith");
    return n;
}

static jj_node *parse_generation(jj_parser *p)
{
    const jj_token *at = p->tok++;
    jj_node *n = jj_node_make(p, JJ_GENERATION, at);
    if (n)
        n->c = parse_block(p, at, "generation", "endgeneration");
    return n;
}

static jj_node *parse_jump(jj_parser *p)
{
    const jj_token *at = p->tok++;
    if (p->loops == 0)
        return jj_parse_fail(p, at, "%s outside of a loop", at->s);
    jj_node *n = jj_node_make(p, strcmp(at->s, "break") == 0 ? JJ_BREAK : JJ_CONTINUE, at);
    tag_done(p);
    return n;
}

static jj_node *parse_statement(jj_parser *p)
{
    static const struct {
        const char *word;
        jj_node *(*parse)(jj_parser *p);
    } table[] = {{"if", parse_if},           {"for", parse_for},
                 {"set", parse_set},         {"macro", parse_macro},
                 {"call", parse_call_block}, {"filter", parse_filter_block},
                 {"with", parse_with},       {"generation", parse_generation},
                 {"break", parse_jump},      {"continue", parse_jump}};
    if (!jj_enter(p))
        return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (jj_at_name(p, table[i].word)) {
            jj_node *n = table[i].parse(p);
            p->depth--;
            return p->rc ? NULL : n;
        }
    if (p->tok->type != JJ_T_NAME)
        return jj_parse_fail(p, p->tok, "expected a statement");
    return jj_parse_fail(p, p->tok, "a statement '%s' is not known here", p->tok->s);
}

static bool at_end(const jj_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->tok[1].type == JJ_T_NAME && strcmp(p->tok[1].s, *ends) == 0)
            return true;
    return false;
}

static jj_node *parse_print(jj_parser *p)
{
    jj_node *n = jj_node_make(p, JJ_PRINT, p->tok++);
    if (n)
        n->a = jj_parse_tuple(p, true);
    if (p->rc == 0 && p->tok->type != JJ_T_VAR_END)
        return jj_parse_fail(p, p->tok, "expected }}");
    p->tok += p->rc == 0;
    return n;
}

static jj_node *data_node(jj_parser *p)
{
    jj_node *n = jj_node_make(p, JJ_DATA, p->tok);
    if (n) {
        n->s = p->tok->s;
        n->len = p->tok->len;
    }
    p->tok++;
    return n;
}

/* Up to the tag of `ends`; the current token is then its word. ends NULL: the whole template. */
static jj_node *parse_body(jj_parser *p, const char *const *ends, const jj_token *opened, const char *what)
{
    jj_node *body = jj_node_make(p, JJ_BODY, p->tok);
    while (body && p->rc == 0) {
        if (p->tok->type == JJ_T_EOF) {
            if (ends)
                jj_parse_fail(p, opened, "this %s has no end", what);
            break;
        }
        if (p->tok->type == JJ_T_DATA) {
            jj_push(p, body, data_node(p));
        } else if (p->tok->type == JJ_T_VAR_BEGIN) {
            jj_push(p, body, parse_print(p));
        } else {
            bool end = ends && at_end(p, ends);
            p->tok++;
            if (end)
                break;
            jj_push(p, body, parse_statement(p));
        }
    }
    return p->rc ? NULL : body;
}

jj_node *jj_parse_template(jj_parser *p)
{
    return parse_body(p, NULL, NULL, NULL);
}

int jj_fail_at(const lf_jinja *t, int line, int col, int rc, lf_err *err, const char *fmt, ...)
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
    jj_tokens tokens = {0};
    if (!t)
        return NULL;
    t->arena = lf_arena_create(err);
    t->name = t->arena ? lf_arena_strdup(t->arena, name, err) : NULL;
    if (t->name && jj_lex(t, source, len, &tokens, err) == 0) {
        jj_parser p = {.t = t, .tok = tokens.v, .err = err};
        t->root = jj_parse_template(&p);
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
