/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a template. Scopes are Jinja's: a loop turn, a macro, a with, a captured block each have
 * their own; an if has none; a macro sees the scope it was defined in as that is when the macro is
 * called. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja/priv.h"

#define NESTED_MAX 4000

static lf_jj_val eval(lf_jj_run *r, const lf_jj_node *n);
static void exec(lf_jj_run *r, const lf_jj_node *n);

/* ---- scopes ---- */

static struct lf_jj_scope *push_scope(lf_jj_run *r, struct lf_jj_scope *up)
{
    struct lf_jj_scope *s = lf_jj_alloc(r, 1, sizeof(*s)), *old = r->scope;
    if (s) {
        s->up = up;
        r->scope = s;
    }
    return old;
}

static void assign(lf_jj_run *r, const char *name, lf_jj_val v)
{
    struct lf_jj_scope *s = r->scope;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].name == name) {
            s->v[i].v = v;
            return;
        }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct lf_jj_var *vars = lf_jj_alloc(r, cap, sizeof(*vars));
        if (!vars)
            return;
        if (s->n)
            memcpy(vars, s->v, s->n * sizeof(*vars));
        s->v = vars;
        s->cap = cap;
    }
    s->v[s->n++] = (struct lf_jj_var){name, v};
}

static lf_jj_val global(lf_jj_run *r, const char *name)
{
    lf_jj_call_fn call = lf_jj_find_global(name);
    if (!call)
        return lf_jj_undefined(r, "'%s' is undefined", name);
    struct lf_jj_func *f = lf_jj_alloc(r, 1, sizeof(*f));
    if (!f)
        return lf_jj_undef;
    f->name = name;
    f->call = call;
    return (lf_jj_val){.t = LF_JJ_FUNC, .u.fn = f};
}

static lf_jj_val look_up(lf_jj_run *r, const char *name)
{
    for (const struct lf_jj_scope *s = r->scope; s; s = s->up)
        for (size_t i = 0; i < s->n; i++)
            if (s->v[i].name == name)
                return s->v[i].v;
    return global(r, name);
}

static void assign_parts(lf_jj_run *r, const lf_jj_node *target, lf_jj_val v);

static void assign_to(lf_jj_run *r, const lf_jj_node *target, lf_jj_val v)
{
    if (r->rc)
        return;
    if (target->kind == LF_JJ_NAME) {
        assign(r, target->s, v);
    } else if (target->kind == LF_JJ_ATTR) {
        lf_jj_val ns = eval(r, target->a);
        if (r->rc == 0 && ns.t != LF_JJ_NS)
            lf_jj_fail(r, target, "cannot assign an attribute of a value that is no namespace");
        else if (r->rc == 0)
            lf_jj_map_set(r, ns.u.map, lf_jj_strz(target->s), v);
    } else {
        assign_parts(r, target, v);
    }
}

static void assign_parts(lf_jj_run *r, const lf_jj_node *target, lf_jj_val v)
{
    lf_jj_val parts = lf_jj_iter(r, target, v);
    if (r->rc)
        return;
    if (parts.u.seq->n != target->n) {
        lf_jj_fail(r, target, "%zu values for %zu names", parts.u.seq->n, target->n);
        return;
    }
    for (size_t i = 0; i < target->n; i++)
        assign_to(r, target->list[i], parts.u.seq->v[i]);
}

/* ---- text ---- */

static void check_output(lf_jj_run *r)
{
    if (r->rc == 0 && r->out->len > r->o.max_output + (r->out == r->root ? r->root_before : 0))
        r->rc = lf_fail(r->err, LF_ENOMEM, "%s: the text grows above %zu MiB", r->t->name,
                        r->o.max_output >> 20);
}

/* The place in the caller's text of what is put out next. */
static size_t position(const lf_jj_run *r)
{
    return r->base + r->out->len - (r->out == r->root ? r->root_before : 0);
}

/* Run body with its text caught. */
static lf_jj_val capture(lf_jj_run *r, const lf_jj_node *body)
{
    lf_buf b, *old = r->out;
    const size_t base = r->base;
    lf_buf_init(&b);
    r->base = position(r);
    r->out = &b;
    exec(r, body);
    r->out = old;
    r->base = base;
    return lf_jj_str_take(r, &b);
}

/* ---- calls ---- */

static bool eval_args(lf_jj_run *r, const lf_jj_node *n, lf_jj_args *a)
{
    *a = (lf_jj_args){.n = n->n, .names = n->names, .n_names = n->n_names};
    a->v = lf_jj_alloc(r, n->n, sizeof(*a->v));
    a->values = a->v ? lf_jj_alloc(r, n->n_names, sizeof(*a->values)) : NULL;
    for (size_t i = 0; r->rc == 0 && i < n->n; i++)
        a->v[i] = eval(r, n->list[i]);
    for (size_t i = 0; r->rc == 0 && i < n->n_names; i++)
        a->values[i] = eval(r, n->values[i]);
    return r->rc == 0;
}

static bool is_param(const lf_jj_node *m, const char *name)
{
    for (size_t i = 0; i < m->n_names; i++)
        if (m->names[i] == name)
            return true;
    return false;
}

static void bind_params(lf_jj_run *r, const lf_jj_node *at, const struct lf_jj_func *f,
                        const lf_jj_args *a)
{
    const lf_jj_node *m = f->macro;
    if (a->n > m->n_names) {
        lf_jj_fail(r, at, "macro '%s' takes no more than %zu arguments", f->name, m->n_names);
        return;
    }
    for (size_t i = 0; i < a->n_names; i++) {
        bool caller = strcmp(a->names[i], "caller") == 0;
        if (caller)
            assign(r, a->names[i], a->values[i]);
        else if (!is_param(m, a->names[i]))
            lf_jj_fail(r, at, "macro '%s' takes no argument '%s'", f->name, a->names[i]);
    }
    for (size_t i = 0; r->rc == 0 && i < m->n_names; i++) {
        lf_jj_val v;
        if (lf_jj_arg_given(a, i, m->names[i]))
            v = lf_jj_arg(a, i, m->names[i], lf_jj_undef);
        else
            v = m->values[i] ? eval(r, m->values[i])
                             : lf_jj_undefined(r, "parameter '%s' was not provided", m->names[i]);
        assign(r, m->names[i], v);
    }
}

static lf_jj_val call_macro(lf_jj_run *r, const lf_jj_node *at, const struct lf_jj_func *f,
                            const lf_jj_args *a)
{
    struct lf_jj_scope *old = push_scope(r, f->scope);
    size_t loops = r->loops;
    if (r->rc)
        return lf_jj_undef;
    r->loops = 0;
    bind_params(r, at, f, a);
    lf_jj_val v = r->rc ? lf_jj_undef : capture(r, f->macro->c);
    r->loops = loops;
    r->scope = old;
    return v;
}

lf_jj_val lf_jj_call(lf_jj_run *r, const lf_jj_node *at, lf_jj_val fn, const lf_jj_args *a)
{
    if (fn.t == LF_JJ_UNDEF)
        return lf_jj_fail(r, at, "%s", fn.u.s);
    if (fn.t != LF_JJ_FUNC)
        return lf_jj_fail(r, at, "a %s cannot be called", lf_jj_type_name(fn));
    if (r->depth >= r->o.max_depth)
        return lf_jj_fail_rc(r, at, LF_ENOMEM, "calls are nested more than %zu deep",
                             r->o.max_depth);
    r->depth++;
    lf_jj_val v =
        fn.u.fn->call ? fn.u.fn->call(r, at, fn.u.fn->self, a) : call_macro(r, at, fn.u.fn, a);
    r->depth--;
    return v;
}

/* ---- expressions ---- */

static lf_jj_val eval_list(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val v = lf_jj_seq_make(r, n->n, n->kind == LF_JJ_TUPLE);
    for (size_t i = 0; r->rc == 0 && i < n->n; i++) {
        v.u.seq->v[i] = eval(r, n->list[i]);
        lf_jj_nestable(r, n, v.u.seq->v[i]);
    }
    return v;
}

static lf_jj_val eval_dict(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val v = lf_jj_map_make(r, n->n / 2);
    for (size_t i = 0; r->rc == 0 && i + 1 < n->n; i += 2) {
        lf_jj_val k = eval(r, n->list[i]), x = r->rc ? lf_jj_undef : eval(r, n->list[i + 1]);
        if (r->rc == 0 && lf_jj_nestable(r, n, k) && lf_jj_nestable(r, n, x) &&
            lf_jj_hashable(r, n, k))
            lf_jj_map_set(r, v.u.map, k, x);
    }
    return v;
}

static lf_jj_val eval_compare(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val a = eval(r, n->a);
    for (size_t i = 0; r->rc == 0 && i < n->n_names; i++) {
        lf_jj_val b = eval(r, n->values[i]);
        if (r->rc || !lf_jj_compare(r, n, n->names[i], a, b))
            return lf_jj_bool(false);
        a = b;
    }
    return lf_jj_bool(true);
}

static lf_jj_val eval_slice(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val v = eval(r, n->a), part[3] = {lf_jj_none, lf_jj_none, lf_jj_none};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = n->list[i] != NULL;
        if (r->rc == 0 && given[i])
            part[i] = eval(r, n->list[i]);
    }
    return r->rc ? lf_jj_undef : lf_jj_slice(r, n, v, part, given);
}

static lf_jj_val eval_call(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_args a;
    lf_jj_val fn = eval(r, n->a);
    return r->rc || !eval_args(r, n, &a) ? lf_jj_undef : lf_jj_call(r, n, fn, &a);
}

static lf_jj_val eval_applied(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_args a;
    lf_jj_val v = eval(r, n->a);
    if (r->rc || !eval_args(r, n, &a))
        return lf_jj_undef;
    return (n->kind == LF_JJ_FILTER ? lf_jj_find_filter(n->s) : lf_jj_find_test(n->s))(r, n, v, &a);
}

static lf_jj_val eval_cond(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val c = eval(r, n->b);
    if (r->rc)
        return lf_jj_undef;
    if (lf_jj_truth(c))
        return eval(r, n->a);
    return n->c
               ? eval(r, n->c)
               : lf_jj_undefined(
                     r,
                     "the inline if-expression evaluated to false and no else section was defined");
}

static lf_jj_val eval_two(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val a = eval(r, n->a);
    if (r->rc || (n->kind == LF_JJ_AND && !lf_jj_truth(a)) ||
        (n->kind == LF_JJ_OR && lf_jj_truth(a)))
        return a;
    lf_jj_val b = eval(r, n->b);
    if (r->rc || n->kind == LF_JJ_AND || n->kind == LF_JJ_OR)
        return b;
    return n->kind == LF_JJ_BINARY ? lf_jj_binary(r, n, n->s, a, b) : lf_jj_index(r, n, a, b);
}

/* One more evaluation inside of those under way; every success needs an r->nested--. Parsing bounds
 * what nests in the text, but "1 + 1 + ..." and "x | trim | trim ..." are as deep as they are
 * long. */
static bool step(lf_jj_run *r, const lf_jj_node *n)
{
    if (r->rc == 0 && ++r->steps > r->o.max_steps)
        lf_jj_fail_rc(r, n, LF_ENOMEM, "more than %zu steps", r->o.max_steps);
    if (r->rc == 0 && r->nested >= NESTED_MAX)
        lf_jj_fail_rc(r, n, LF_ENOMEM, "evaluations are nested more than %d deep", NESTED_MAX);
    r->nested += r->rc == 0;
    return r->rc == 0;
}

static lf_jj_val eval_node(lf_jj_run *r, const lf_jj_node *n);

static lf_jj_val eval(lf_jj_run *r, const lf_jj_node *n)
{
    if (!step(r, n))
        return lf_jj_undef;
    lf_jj_val v = eval_node(r, n);
    r->nested--;
    return v;
}

static lf_jj_val eval_node(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val v;
    switch (n->kind) {
    case LF_JJ_CONST_STR:
        return lf_jj_str(n->s, n->len);
    case LF_JJ_CONST_INT:
        return lf_jj_int(n->i);
    case LF_JJ_CONST_FLOAT:
        return lf_jj_float(n->f);
    case LF_JJ_CONST_BOOL:
        return lf_jj_bool(n->i != 0);
    case LF_JJ_CONST_NONE:
        return lf_jj_none;
    case LF_JJ_NAME:
        return look_up(r, n->s);
    case LF_JJ_CAPTURED:
        return r->captured;
    case LF_JJ_LIST:
    case LF_JJ_TUPLE:
        return eval_list(r, n);
    case LF_JJ_DICT:
        return eval_dict(r, n);
    case LF_JJ_UNARY:
        v = eval(r, n->a);
        return r->rc ? lf_jj_undef : lf_jj_unary(r, n, n->s, v);
    case LF_JJ_BINARY:
    case LF_JJ_AND:
    case LF_JJ_OR:
    case LF_JJ_INDEX:
        return eval_two(r, n);
    case LF_JJ_COMPARE:
        return eval_compare(r, n);
    case LF_JJ_COND:
        return eval_cond(r, n);
    case LF_JJ_ATTR:
        v = eval(r, n->a);
        return r->rc ? lf_jj_undef : lf_jj_attr(r, n, v, n->s);
    case LF_JJ_SLICE:
        return eval_slice(r, n);
    case LF_JJ_CALL:
        return eval_call(r, n);
    case LF_JJ_FILTER:
    case LF_JJ_TEST:
        return eval_applied(r, n);
    default:
        LF_BUG("node %d is no expression", (int)n->kind);
    }
}

/* ---- statements ---- */

/* Items that pass the filter of a loop; names of the target are visible to it. */
static lf_jj_val loop_items(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val items = eval(r, n->a);
    items = r->rc ? lf_jj_undef : lf_jj_iter(r, n, items);
    if (r->rc || !n->b)
        return items;
    lf_jj_val out = lf_jj_seq_make(r, items.u.seq->n, false);
    size_t kept = 0;
    for (size_t i = 0; r->rc == 0 && i < items.u.seq->n; i++) {
        struct lf_jj_scope *old = push_scope(r, r->scope);
        if (r->rc)
            break;
        assign_to(r, n->list[0], items.u.seq->v[i]);
        lf_jj_val yes = r->rc ? lf_jj_undef : eval(r, n->b);
        r->scope = old;
        if (r->rc == 0 && lf_jj_truth(yes))
            out.u.seq->v[kept++] = items.u.seq->v[i];
    }
    if (r->rc == 0)
        out.u.seq->n = kept;
    return out;
}

static void exec_for(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val items = loop_items(r, n);
    struct lf_jj_loop *l = lf_jj_alloc(r, 1, sizeof(*l));
    const char *name = lf_jj_interned(r->t, "loop");
    if (!l)
        return;
    *l = (struct lf_jj_loop){.length = items.u.seq->n, .items = items.u.seq->v};
    r->loops++;
    for (; r->rc == 0 && l->index0 < l->length && r->flow != LF_JJ_BREAK; l->index0++) {
        struct lf_jj_scope *old = push_scope(r, r->scope);
        if (r->rc)
            break;
        r->flow = 0;
        if (name)
            assign(r, name, (lf_jj_val){.t = LF_JJ_LOOP, .u.loop = l});
        assign_to(r, n->list[0], l->items[l->index0]);
        exec(r, n->c);
        r->scope = old;
    }
    r->flow = 0;
    r->loops--;
    if (r->rc == 0 && l->length == 0 && n->list[1])
        exec(r, n->list[1]);
}

static void exec_if(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val c = eval(r, n->a);
    if (r->rc)
        return;
    if (lf_jj_truth(c))
        exec(r, n->b);
    else if (n->c)
        exec(r, n->c);
}

static lf_jj_val macro_value(lf_jj_run *r, const lf_jj_node *n)
{
    struct lf_jj_func *f = lf_jj_alloc(r, 1, sizeof(*f));
    if (!f)
        return lf_jj_undef;
    f->name = n->s;
    f->macro = n;
    f->scope = r->scope;
    return (lf_jj_val){.t = LF_JJ_FUNC, .u.fn = f};
}

/* The text of a body run in a scope of its own, with the filters of the block. */
static lf_jj_val captured_block(lf_jj_run *r, const lf_jj_node *n)
{
    struct lf_jj_scope *old = push_scope(r, r->scope);
    if (r->rc)
        return lf_jj_undef;
    lf_jj_val v = capture(r, n->c), before = r->captured;
    r->scope = old;
    if (r->rc || !n->b)
        return v;
    r->captured = v;
    v = eval(r, n->b);
    r->captured = before;
    return v;
}

static void print(lf_jj_run *r, lf_jj_val v)
{
    if (r->rc == 0)
        lf_jj_add_str(r, r->out, v);
    check_output(r);
}

static void exec_call_block(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_args a;
    lf_jj_val fn = eval(r, n->a->a);
    if (r->rc || !eval_args(r, n->a, &a))
        return;
    const char **names = lf_jj_alloc(r, a.n_names + 1, sizeof(*names));
    lf_jj_val *values = names ? lf_jj_alloc(r, a.n_names + 1, sizeof(*values)) : NULL;
    if (!values)
        return;
    for (size_t i = 0; i < a.n_names; i++) {
        names[i] = a.names[i];
        values[i] = a.values[i];
    }
    names[a.n_names] = n->s; /* caller */
    values[a.n_names++] = macro_value(r, n);
    a.names = names;
    a.values = values;
    print(r, r->rc ? lf_jj_undef : lf_jj_call(r, n, fn, &a));
}

static void exec_with(lf_jj_run *r, const lf_jj_node *n)
{
    lf_jj_val *values = lf_jj_alloc(
        r, n->n / 2, sizeof(*values)); /* all in the outer scope, before any name is bound */
    for (size_t i = 0; r->rc == 0 && i < n->n / 2; i++)
        values[i] = eval(r, n->list[2 * i + 1]);
    struct lf_jj_scope *old = push_scope(r, r->scope);
    for (size_t i = 0; r->rc == 0 && i < n->n / 2; i++)
        assign_to(r, n->list[2 * i], values[i]);
    if (r->rc == 0)
        exec(r, n->c);
    r->scope = old;
}

/* A generation block inside of a macro or a captured block: its text, which must stand in the end
 * where it was expected. */
struct lf_jj_caught {
    const lf_jj_node *at;
    const char *text;
    size_t begin, n;
    struct lf_jj_caught *before;
};

static void remember(lf_jj_run *r, const lf_jj_node *n, size_t begin, size_t len)
{
    struct lf_jj_caught *c = lf_jj_alloc(r, 1, sizeof *c);
    char *text = c ? lf_jj_alloc(r, len + 1, 1) : NULL;
    if (!text)
        return;
    memcpy(text, r->out->data + r->out->len - len, len);
    *c = (struct lf_jj_caught){n, text, begin, len, r->caught};
    r->caught = c;
}

/* What is kept in a variable, or changed by a filter, stands elsewhere or is another text. */
static void check_caught(lf_jj_run *r)
{
    const size_t n = r->root->len - r->root_before;
    for (const struct lf_jj_caught *c = r->caught; c && r->rc == 0; c = c->before)
        if (c->begin > n || c->n > n - c->begin ||
            memcmp(r->root->data + r->root_before + c->begin, c->text, c->n) != 0)
            lf_jj_fail_rc(r, c->at, LF_ENOTSUP,
                          "generation inside of a macro or a captured block whose text is changed "
                          "or printed elsewhere is not supported");
}

static void exec_generation(lf_jj_run *r, const lf_jj_node *n)
{
    const size_t begin = position(r);
    struct lf_jj_scope *old = push_scope(r, r->scope);
    exec(r, n->c);
    r->scope = old;
    if (r->rc || !r->spans)
        return;
    const size_t end = position(r);
    r->rc = lf_grow(&r->spans->v, &r->spans->cap, r->spans->n, sizeof(*r->spans->v), r->err);
    if (r->rc == 0)
        r->spans->v[r->spans->n++] = (lf_jinja_span){begin, end};
    if (r->rc == 0 && r->out != r->root)
        remember(r, n, begin, end - begin);
}

static void exec_body(lf_jj_run *r, const lf_jj_node *n)
{
    for (size_t i = 0; i < n->n && r->rc == 0 && r->flow == 0; i++)
        exec(r, n->list[i]);
}

static void exec_node(lf_jj_run *r, const lf_jj_node *n)
{
    switch (n->kind) {
    case LF_JJ_BODY:
        exec_body(r, n);
        break;
    case LF_JJ_DATA:
        lf_buf_add(r->out, n->s, n->len);
        check_output(r);
        break;
    case LF_JJ_PRINT:
        print(r, eval(r, n->a));
        break;
    case LF_JJ_IF:
        exec_if(r, n);
        break;
    case LF_JJ_FOR:
        exec_for(r, n);
        break;
    case LF_JJ_SET:
        assign_to(r, n->a, eval(r, n->b));
        break;
    case LF_JJ_SET_BLOCK:
        assign_to(r, n->a, captured_block(r, n));
        break;
    case LF_JJ_MACRO:
        assign(r, n->s, macro_value(r, n));
        break;
    case LF_JJ_CALL_BLOCK:
        exec_call_block(r, n);
        break;
    case LF_JJ_FILTER_BLOCK:
        print(r, captured_block(r, n));
        break;
    case LF_JJ_WITH:
        exec_with(r, n);
        break;
    case LF_JJ_GENERATION:
        exec_generation(r, n);
        break;
    case LF_JJ_BREAK:
    case LF_JJ_CONTINUE:
        r->flow = (int)n->kind;
        break;
    default:
        LF_BUG("node %d is no statement", (int)n->kind);
    }
}

static void exec(lf_jj_run *r, const lf_jj_node *n)
{
    if (!step(r, n))
        return;
    exec_node(r, n);
    r->nested--;
}

/* ---- rendering ---- */

static void bind_vars(lf_jj_run *r, json_t *vars)
{
    const char *key;
    json_t *v;
    json_object_foreach(vars, key, v)
    {
        const char *name = lf_jj_interned(r->t, key);
        if (name && r->rc == 0)
            assign(r, name, lf_jj_from_json(r, v));
    }
}

int lf_jinja_render(const lf_jinja *t, json_t *vars, const lf_jinja_opts *o, lf_buf *out,
                    lf_jinja_spans *spans, lf_err *err)
{
    lf_jj_run r = {.t = t,
                   .out = out,
                   .root = out,
                   .root_before = out->len,
                   .spans = spans,
                   .err = err,
                   .captured = lf_jj_undef};
    size_t spans_before = spans ? spans->n : 0;
    r.o = o ? *o : (lf_jinja_opts){0};
    r.o.max_steps = r.o.max_steps ? r.o.max_steps : 20000000;
    r.o.max_depth = r.o.max_depth ? r.o.max_depth : 200;
    r.o.max_memory = r.o.max_memory ? r.o.max_memory : (size_t)256 << 20;
    r.o.max_output = r.o.max_output ? r.o.max_output : (size_t)64 << 20;
    r.arena = lf_arena_create(err);
    if (!r.arena)
        return LF_ENOMEM;
    push_scope(&r, NULL);
    bind_vars(&r, vars);
    push_scope(&r, r.scope);
    exec(&r, t->root);
    if (r.rc == 0)
        r.rc = lf_buf_check(out, err);
    if (r.rc == 0)
        check_caught(&r);
    if (r.rc && !out->failed) {
        out->len = r.root_before;
        out->data[out->len] = 0;
        if (spans)
            spans->n = spans_before;
    }
    lf_arena_destroy(r.arena);
    return r.rc;
}
