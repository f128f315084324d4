/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the Jinja interpreter. lex.c makes tokens, parse_expr.c and parse_stmt.c make nodes
 * of them, and eval.c makes text of the nodes, with the values of value.c. Names are interned, so
 * that a look-up compares pointers. */
#ifndef LF_TEXT_JINJA_PRIV_H
#define LF_TEXT_JINJA_PRIV_H

#include <stdbool.h>

#include "engine/base/mem.h"
#include "engine/text/jinja/jinja.h"

/* ---- tokens ---- */

enum lf_jj_tok {
    LF_JJ_T_EOF = 0,
    LF_JJ_T_DATA,
    LF_JJ_T_VAR_BEGIN, /* {{ */
    LF_JJ_T_VAR_END,
    LF_JJ_T_BLOCK_BEGIN, /* {% */
    LF_JJ_T_BLOCK_END,
    LF_JJ_T_NAME,
    LF_JJ_T_STR,
    LF_JJ_T_INT,
    LF_JJ_T_FLOAT,
    LF_JJ_T_OP /* s is the operator */
};

typedef struct lf_jj_token {
    enum lf_jj_tok type;
    int line, col;
    const char *s; /* DATA, NAME (interned), STR (unescaped), OP */
    size_t len;
    int64_t i;
    double f;
} lf_jj_token;

typedef struct lf_jj_tokens {
    lf_jj_token *v;
    size_t n, cap;
} lf_jj_tokens;

typedef struct lf_jj_names lf_jj_names; /* interned names of one template */

struct lf_jinja {
    lf_arena *arena;
    char *name;
    lf_jj_names *names;
    struct lf_jj_node *root;
};

/* NULL: out of memory */
const char *lf_jj_intern(lf_jinja *t, const char *s, size_t len, lf_err *err);
/* NULL: the template has no such name */
const char *lf_jj_interned(const lf_jinja *t, const char *s);
int lf_jj_lex(lf_jinja *t, const char *source, size_t len, lf_jj_tokens *out, lf_err *err);
/* "name:line:col: text" */
int lf_jj_fail_at(const lf_jinja *t, int line, int col, int rc, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* ---- nodes ---- */

enum lf_jj_kind {
    /* expressions */
    LF_JJ_CONST_STR,
    LF_JJ_CONST_INT,
    LF_JJ_CONST_FLOAT,
    LF_JJ_CONST_BOOL,
    LF_JJ_CONST_NONE,
    LF_JJ_NAME,
    LF_JJ_LIST,
    LF_JJ_TUPLE,
    LF_JJ_DICT,  /* list: key, value, key, value */
    LF_JJ_UNARY, /* s: "not", "-", "+" */
    LF_JJ_BINARY,
    LF_JJ_AND,
    LF_JJ_OR,
    LF_JJ_COMPARE, /* a, then list of operands with ops */
    LF_JJ_COND,    /* a if b else c */
    LF_JJ_ATTR,    /* a.s */
    LF_JJ_INDEX,   /* a[b] */
    LF_JJ_SLICE,   /* a[list[0]:list[1]:list[2]], NULL where left out */
    LF_JJ_CALL,
    LF_JJ_FILTER, /* a | s(list) */
    LF_JJ_TEST,   /* a is s(list) */
    /* statements */
    LF_JJ_BODY,
    LF_JJ_DATA,
    LF_JJ_PRINT,
    LF_JJ_IF,        /* a, b body, c else part */
    LF_JJ_FOR,       /* list[0] target, a iterable, b filter, c body, list[1] else part or NULL */
    LF_JJ_SET,       /* a target, b value */
    LF_JJ_SET_BLOCK, /* a target, c body, b filters applied to LF_JJ_CAPTURED or NULL */
    LF_JJ_CAPTURED,
    LF_JJ_MACRO,        /* s; list: default values or NULL; params; c body */
    LF_JJ_CALL_BLOCK,   /* a call, params and list, c body */
    LF_JJ_FILTER_BLOCK, /* b filters, c body */
    LF_JJ_WITH,         /* list: target, value, target, value; c body */
    LF_JJ_GENERATION,   /* c body */
    LF_JJ_BREAK,
    LF_JJ_CONTINUE
};

typedef struct lf_jj_node lf_jj_node;
struct lf_jj_node {
    enum lf_jj_kind kind;
    int line, col;
    const char *s; /* interned name, operator or text */
    size_t len;
    int64_t i;
    double f;
    lf_jj_node *a, *b, *c;
    lf_jj_node **list;
    size_t n;
    /* keywords of a call (interned), parameters of a macro, operators of a comparison */
    const char **names;
    lf_jj_node **values; /* of the keywords */
    size_t n_names;
};

typedef struct lf_jj_parser {
    lf_jinja *t;
    const lf_jj_token *tok; /* the current one */
    int depth, loops;
    lf_err *err;
    int rc;
} lf_jj_parser;

lf_jj_node *lf_jj_node_make(lf_jj_parser *p, enum lf_jj_kind kind, const lf_jj_token *at);
void lf_jj_push(lf_jj_parser *p, lf_jj_node *n, lf_jj_node *child);
void *lf_jj_parse_fail(lf_jj_parser *p, const lf_jj_token *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool lf_jj_at_op(const lf_jj_parser *p, const char *op);
bool lf_jj_at_name(const lf_jj_parser *p, const char *name);
bool lf_jj_take_op(lf_jj_parser *p, const char *op);
bool lf_jj_take_name(lf_jj_parser *p, const char *name);
bool lf_jj_expect_op(lf_jj_parser *p, const char *op);
/* goes one level deeper; after true the caller does p->depth-- */
bool lf_jj_enter(lf_jj_parser *p);
lf_jj_node *lf_jj_parse_expr(lf_jj_parser *p);
/* one expression, or several with commas */
lf_jj_node *lf_jj_parse_tuple(lf_jj_parser *p, bool with_cond);
lf_jj_node *lf_jj_parse_target(lf_jj_parser *p, bool attributes); /* names to assign to */
/* NAME(...) | NAME(...), the first without '|' */
lf_jj_node *lf_jj_parse_filters(lf_jj_parser *p, lf_jj_node *of);
bool lf_jj_parse_params(lf_jj_parser *p, lf_jj_node *n); /* (a, b = 1) of a macro */
lf_jj_node *lf_jj_parse_template(lf_jj_parser *p);

/* ---- values ---- */

enum lf_jj_type {
    LF_JJ_UNDEF = 0,
    LF_JJ_NONE,
    LF_JJ_BOOL,
    LF_JJ_INT,
    LF_JJ_FLOAT,
    LF_JJ_STR,
    LF_JJ_SEQ,  /* list or tuple */
    LF_JJ_MAP,  /* dict */
    LF_JJ_NS,   /* namespace */
    LF_JJ_FUNC, /* macro, method of a value, global function */
    LF_JJ_LOOP
};

typedef struct lf_jj_val lf_jj_val;
struct lf_jj_seq {
    size_t n, size; /* size and depth of everything inside; 0: not measured */
    unsigned depth;
    bool tuple;
    lf_jj_val *v;
};
struct lf_jj_map {
    size_t n, cap, size;
    unsigned depth;
    lf_jj_val *k, *v;
};
struct lf_jj_scope;
struct lf_jj_func;
struct lf_jj_loop;

struct lf_jj_val {
    enum lf_jj_type t;
    uint32_t pad;
    size_t n; /* bytes of a string; 0 for an undefined value with only a name */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* the string; for an undefined value the reason */
        struct lf_jj_seq *seq;
        struct lf_jj_map *map;
        struct lf_jj_func *fn;
        struct lf_jj_loop *loop;
    } u;
};

typedef struct lf_jj_args {
    lf_jj_val *v;
    size_t n;
    const char **names; /* interned */
    lf_jj_val *values;
    size_t n_names;
} lf_jj_args;

typedef struct lf_jj_run lf_jj_run;
typedef lf_jj_val (*lf_jj_call_fn)(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self,
                                   const lf_jj_args *a);

struct lf_jj_func {
    const char *name;
    lf_jj_call_fn call; /* NULL: a macro */
    lf_jj_val self;
    const lf_jj_node *macro;
    struct lf_jj_scope *scope; /* where the macro was defined */
};

struct lf_jj_loop {
    size_t index0, length;
    const lf_jj_val *items;
    lf_jj_val last;
    bool has_last;
};

struct lf_jj_var {
    const char *name; /* interned */
    lf_jj_val v;
};
struct lf_jj_scope {
    struct lf_jj_scope *up;
    struct lf_jj_var *v;
    size_t n, cap;
};

struct lf_jj_run {
    const lf_jinja *t;
    lf_arena *arena;
    lf_jinja_opts o;
    size_t steps, depth, nested, memory;
    struct lf_jj_scope *scope;
    lf_buf *out;        /* where text goes: the caller's or a capture */
    lf_buf *root;       /* the caller's */
    size_t root_before; /* its length at the start */
    size_t base;        /* where in the caller's text a capture will stand, printed at once */
    struct lf_jj_caught *caught; /* generation blocks of captures, the last first */
    size_t loops;                /* how many loops are running here */
    int flow;                    /* 0, or the lf_jj_kind of a break or continue under way */
    lf_jj_val captured;
    lf_jinja_spans *spans;
    lf_err *err;
    int rc;
};

extern const lf_jj_val lf_jj_none, lf_jj_undef;
lf_jj_val lf_jj_bool(bool b);
lf_jj_val lf_jj_int(int64_t i);
lf_jj_val lf_jj_float(double f);
lf_jj_val lf_jj_str(const char *s, size_t n); /* borrowed: must live as long as the run */
lf_jj_val lf_jj_strz(const char *s);

/* Memory of the run, zeroed; NULL after a failure, which is recorded. */
void *lf_jj_alloc(lf_jj_run *r, size_t n, size_t size);
lf_jj_val lf_jj_fail(lf_jj_run *r, const lf_jj_node *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
lf_jj_val lf_jj_fail_rc(lf_jj_run *r, const lf_jj_node *at, int rc, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
lf_jj_val lf_jj_undefined(lf_jj_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
lf_jj_val lf_jj_str_copy(lf_jj_run *r, const char *s, size_t n);
lf_jj_val lf_jj_str_take(lf_jj_run *r, lf_buf *b); /* takes the contents of b and finishes b */
lf_jj_val lf_jj_seq_make(lf_jj_run *r, size_t n, bool tuple);
lf_jj_val lf_jj_map_make(lf_jj_run *r, size_t cap);
void lf_jj_map_set(lf_jj_run *r, struct lf_jj_map *m, lf_jj_val k, lf_jj_val v);
const lf_jj_val *lf_jj_map_get(const struct lf_jj_map *m, lf_jj_val k);
const lf_jj_val *lf_jj_map_gets(const struct lf_jj_map *m, const char *key);
lf_jj_val lf_jj_from_json(lf_jj_run *r, json_t *j);

/* May v become part of another value? false, with a failure recorded, when the value would nest too
 * deep or grow too large. Functions that walk values recurse, and their work does not count as
 * steps. */
bool lf_jj_nestable(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v);
bool lf_jj_truth(lf_jj_val v);
bool lf_jj_equal(lf_jj_val a, lf_jj_val b);
/* <0, 0, >0; fails where Python would. */
int lf_jj_order(lf_jj_run *r, const lf_jj_node *at, lf_jj_val a, lf_jj_val b);
/* Can v be a key? false with a failure recorded when not. */
bool lf_jj_hashable(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v);
const char *lf_jj_type_name(lf_jj_val v); /* Python's: "str", "dict", ... */
bool lf_jj_is_number(lf_jj_val v);
double lf_jj_as_float(lf_jj_val v);

/* str(v) and repr(v) */
void lf_jj_add_str(lf_jj_run *r, lf_buf *b, lf_jj_val v);
void lf_jj_add_repr(lf_jj_run *r, lf_buf *b, lf_jj_val v, int depth);
lf_jj_val lf_jj_to_str(lf_jj_run *r, lf_jj_val v); /* str(v) as a value */
void lf_jj_add_float(lf_buf *b, double f);
lf_jj_val lf_jj_tojson(lf_jj_run *r, const lf_jj_node *at, lf_jj_val self, const lf_jj_args *a);

/* Returns the elements of any iterable as a sequence: characters of a string, keys of a dict. */
lf_jj_val lf_jj_iter(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v);
int64_t lf_jj_length(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v);

/* ---- strings by characters (chars.c) ---- */
size_t lf_jj_chars(const char *s, size_t n);
size_t lf_jj_char_at(const char *s, size_t n, size_t index); /* byte offset */
/* bytes of the first character; 1 for an invalid byte */
size_t lf_jj_char_len(const char *s, size_t n);
int32_t lf_jj_char(const char *s, size_t n, size_t *len);
bool lf_jj_is_space(int32_t c);
/* Removes characters of `set` from the ends of s; set_n == SIZE_MAX means white space. which: 1
 * left, 2 right, 3 both. */
lf_jj_val lf_jj_strip(lf_jj_val s, const char *set, size_t set_n, int which);
enum lf_jj_case { LF_JJ_LOWER, LF_JJ_UPPER, LF_JJ_TITLE, LF_JJ_CAPITALIZE };
lf_jj_val lf_jj_change_case(lf_jj_run *r, lf_jj_val s, enum lf_jj_case how);
bool lf_jj_find(const char *hay, size_t n, const char *needle, size_t m, size_t *at);
lf_jj_val lf_jj_replace(lf_jj_run *r, lf_jj_val s, lf_jj_val from, lf_jj_val to, int64_t count);
lf_jj_val lf_jj_join(lf_jj_run *r, const lf_jj_node *at, lf_jj_val seq, lf_jj_val sep,
                     bool convert);

/* ---- operations (ops.c) ---- */
lf_jj_val lf_jj_binary(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a,
                       lf_jj_val b);
lf_jj_val lf_jj_unary(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a);
bool lf_jj_compare(lf_jj_run *r, const lf_jj_node *at, const char *op, lf_jj_val a, lf_jj_val b);
bool lf_jj_contains(lf_jj_run *r, const lf_jj_node *at, lf_jj_val in, lf_jj_val what);
lf_jj_val lf_jj_index(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, lf_jj_val key); /* v[key] */
/* v.name */
lf_jj_val lf_jj_attr(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const char *name);
lf_jj_val lf_jj_slice(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_val part[3],
                      const bool given[3]);

/* ---- what can be called ---- */
lf_jj_call_fn lf_jj_find_filter(const char *name);
lf_jj_call_fn lf_jj_find_test(const char *name);
/* Returns a method of the value's type, or NULL. *changes tells that Python has such a method and
 * that it would change the value. */
lf_jj_call_fn lf_jj_find_method(lf_jj_val v, const char *name, bool *changes);
lf_jj_call_fn lf_jj_find_global(const char *name);
lf_jj_val lf_jj_call(lf_jj_run *r, const lf_jj_node *at, lf_jj_val fn, const lf_jj_args *a);
/* Returns the argument number i, or with that name; def when neither is given. */
lf_jj_val lf_jj_arg(const lf_jj_args *a, size_t i, const char *name, lf_jj_val def);
bool lf_jj_arg_given(const lf_jj_args *a, size_t i, const char *name);
/* Checks that there are `least` to `most` positional arguments and only the listed keywords
 * (NULL-terminated). */
bool lf_jj_args_ok(lf_jj_run *r, const lf_jj_node *at, const char *what, const lf_jj_args *a,
                   size_t least, size_t most, const char *const *keywords);

#endif
