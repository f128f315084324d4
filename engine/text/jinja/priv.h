/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the Jinja interpreter: tokens (lex.c) -> nodes (parse_expr.c, parse_stmt.c) -> text (eval.c), over the
 * values of value.c. Names are interned, so that looking one up compares pointers. */
#ifndef LF_TEXT_JINJA_PRIV_H
#define LF_TEXT_JINJA_PRIV_H

#include <stdbool.h>

#include "engine/base/mem.h"
#include "engine/text/jinja/jinja.h"

/* ---- tokens ---- */

enum jj_tok {
    JJ_T_EOF = 0,
    JJ_T_DATA,
    JJ_T_VAR_BEGIN, /* {{ */
    JJ_T_VAR_END,
    JJ_T_BLOCK_BEGIN, /* {% */
    JJ_T_BLOCK_END,
    JJ_T_NAME,
    JJ_T_STR,
    JJ_T_INT,
    JJ_T_FLOAT,
    JJ_T_OP /* s is the operator */
};

typedef struct jj_token {
    enum jj_tok type;
    int line, col;
    const char *s; /* DATA, NAME (interned), STR (unescaped), OP */
    size_t len;
    int64_t i;
    double f;
} jj_token;

typedef struct jj_tokens {
    jj_token *v;
    size_t n, cap;
} jj_tokens;

typedef struct jj_names jj_names; /* interned names of one template */

struct lf_jinja {
    lf_arena *arena;
    char *name;
    jj_names *names;
    struct jj_node *root;
};

const char *jj_intern(lf_jinja *t, const char *s, size_t len, lf_err *err); /* NULL: out of memory */
const char *jj_interned(const lf_jinja *t, const char *s);                  /* NULL: the template does not use it */
int jj_lex(lf_jinja *t, const char *source, size_t len, jj_tokens *out, lf_err *err);
/* "name:line:col: text" */
int jj_fail_at(const lf_jinja *t, int line, int col, int rc, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* ---- nodes ---- */

enum jj_kind {
    /* expressions */
    JJ_CONST_STR,
    JJ_CONST_INT,
    JJ_CONST_FLOAT,
    JJ_CONST_BOOL,
    JJ_CONST_NONE,
    JJ_NAME,
    JJ_LIST,
    JJ_TUPLE,
    JJ_DICT,  /* list: key, value, key, value */
    JJ_UNARY, /* s: "not", "-", "+" */
    JJ_BINARY,
    JJ_AND,
    JJ_OR,
    JJ_COMPARE, /* a, then list of operands with ops */
    JJ_COND,    /* a if b else c */
    JJ_ATTR,    /* a.s */
    JJ_INDEX,   /* a[b] */
    JJ_SLICE,   /* a[list[0]:list[1]:list[2]], NULL where left out */
    JJ_CALL,
    JJ_FILTER, /* a | s(list) */
    JJ_TEST,   /* a is s(list) */
    /* statements */
    JJ_BODY,
    JJ_DATA,
    JJ_PRINT,
    JJ_IF,        /* a, b body, c else part */
    JJ_FOR,       /* list[0] target, a iterable, b filter, c body, list[1] else part or NULL */
    JJ_SET,       /* a target, b value */
    JJ_SET_BLOCK, /* a target, c body, b filters applied to JJ_CAPTURED or NULL */
    JJ_CAPTURED,
    JJ_MACRO,        /* s; list: default values or NULL; params; c body */
    JJ_CALL_BLOCK,   /* a call, params and list, c body */
    JJ_FILTER_BLOCK, /* b filters, c body */
    JJ_WITH,         /* list: target, value, target, value; c body */
    JJ_GENERATION,   /* c body */
    JJ_BREAK,
    JJ_CONTINUE
};

typedef struct jj_node jj_node;
struct jj_node {
    enum jj_kind kind;
    int line, col;
    const char *s; /* interned name, operator or text */
    size_t len;
    int64_t i;
    double f;
    jj_node *a, *b, *c;
    jj_node **list;
    size_t n;
    const char **names; /* keywords of a call (interned), parameters of a macro, operators of a comparison */
    jj_node **values;   /* of the keywords */
    size_t n_names;
};

typedef struct jj_parser {
    lf_jinja *t;
    const jj_token *tok; /* the current one */
    int depth, loops;
    lf_err *err;
    int rc;
} jj_parser;

jj_node *jj_node_make(jj_parser *p, enum jj_kind kind, const jj_token *at);
void jj_push(jj_parser *p, jj_node *n, jj_node *child);
void *jj_parse_fail(jj_parser *p, const jj_token *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jj_at_op(const jj_parser *p, const char *op);
bool jj_at_name(const jj_parser *p, const char *name);
bool jj_take_op(jj_parser *p, const char *op);
bool jj_take_name(jj_parser *p, const char *name);
bool jj_expect_op(jj_parser *p, const char *op);
bool jj_enter(jj_parser *p); /* one level deeper, or a failure; every success needs a p->depth-- */
jj_node *jj_parse_expr(jj_parser *p);
jj_node *jj_parse_tuple(jj_parser *p, bool with_cond);   /* one expression, or several with commas */
jj_node *jj_parse_target(jj_parser *p, bool attributes); /* names to assign to */
jj_node *jj_parse_filters(jj_parser *p, jj_node *of);    /* NAME(...) | NAME(...), the first without '|' */
bool jj_parse_params(jj_parser *p, jj_node *n);          /* (a, b = 1) of a macro */
jj_node *jj_parse_template(jj_parser *p);

/* ---- values ---- */

enum jj_type {
    JJ_UNDEF = 0,
    JJ_NONE,
    JJ_BOOL,
    JJ_INT,
    JJ_FLOAT,
    JJ_STR,
    JJ_SEQ,  /* list or tuple */
    JJ_MAP,  /* dict */
    JJ_NS,   /* namespace */
    JJ_FUNC, /* macro, method of a value, global function */
    JJ_LOOP
};

typedef struct jj_val jj_val;
struct jj_seq {
    size_t n;
    bool tuple;
    jj_val *v;
};
struct jj_map {
    size_t n, cap;
    jj_val *k, *v;
};
struct jj_scope;
struct jj_func;
struct jj_loop;

struct jj_val {
    enum jj_type t;
    uint32_t pad;
    size_t n; /* bytes of a string; 0 in an undefined that has a name only */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* string; why an undefined is one */
        struct jj_seq *seq;
        struct jj_map *map;
        struct jj_func *fn;
        struct jj_loop *loop;
    } u;
};

typedef struct jj_args {
    jj_val *v;
    size_t n;
    const char **names; /* interned */
    jj_val *values;
    size_t n_names;
} jj_args;

typedef struct jj_run jj_run;
typedef jj_val (*jj_call_fn)(jj_run *r, const jj_node *at, jj_val self, const jj_args *a);

struct jj_func {
    const char *name;
    jj_call_fn call; /* NULL: a macro */
    jj_val self;
    const jj_node *macro;
    struct jj_scope *scope; /* where the macro was defined */
};

struct jj_loop {
    size_t index0, length;
    const jj_val *items;
    jj_val last;
    bool has_last;
};

struct jj_var {
    const char *name; /* interned */
    jj_val v;
};
struct jj_scope {
    struct jj_scope *up;
    struct jj_var *v;
    size_t n, cap;
};

struct jj_run {
    const lf_jinja *t;
    lf_arena *arena;
    lf_jinja_opts o;
    size_t steps, depth, memory;
    struct jj_scope *scope;
    lf_buf *out;        /* where text goes: the caller's or a capture */
    lf_buf *root;       /* the caller's */
    size_t root_before; /* its length at the start */
    size_t loops;       /* how many loops are running here */
    int flow;           /* 0, or the jj_kind of a break or continue under way */
    jj_val captured;
    lf_jinja_spans *spans;
    lf_err *err;
    int rc;
};

extern const jj_val jj_none, jj_undef;
jj_val jj_bool(bool b);
jj_val jj_int(int64_t i);
jj_val jj_float(double f);
jj_val jj_str(const char *s, size_t n); /* borrowed: must live as long as the run */
jj_val jj_strz(const char *s);

/* Memory of the run, zeroed; NULL after a failure, which is recorded. */
void *jj_alloc(jj_run *r, size_t n, size_t size);
jj_val jj_fail(jj_run *r, const jj_node *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
jj_val jj_fail_rc(jj_run *r, const jj_node *at, int rc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
jj_val jj_undefined(jj_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
jj_val jj_str_copy(jj_run *r, const char *s, size_t n);
jj_val jj_str_take(jj_run *r, lf_buf *b); /* what b holds; b is finished */
jj_val jj_seq_make(jj_run *r, size_t n, bool tuple);
jj_val jj_map_make(jj_run *r, size_t cap);
void jj_map_set(jj_run *r, struct jj_map *m, jj_val k, jj_val v);
const jj_val *jj_map_get(const struct jj_map *m, jj_val k);
const jj_val *jj_map_gets(const struct jj_map *m, const char *key);
jj_val jj_from_json(jj_run *r, json_t *j);

bool jj_truth(jj_val v);
bool jj_equal(jj_val a, jj_val b);
/* <0, 0, >0; fails where Python would. */
int jj_order(jj_run *r, const jj_node *at, jj_val a, jj_val b);
/* Can v be a key? A failure when not. */
bool jj_hashable(jj_run *r, const jj_node *at, jj_val v);
const char *jj_type_name(jj_val v); /* Python's: "str", "dict", ... */
bool jj_is_number(jj_val v);
double jj_as_float(jj_val v);

/* str(v) and repr(v) */
void jj_add_str(jj_run *r, lf_buf *b, jj_val v);
void jj_add_repr(jj_run *r, lf_buf *b, jj_val v, int depth);
jj_val jj_to_str(jj_run *r, jj_val v); /* str(v) as a value */
void jj_add_float(lf_buf *b, double f);
jj_val jj_tojson(jj_run *r, const jj_node *at, jj_val self, const jj_args *a);

/* Elements of anything that can be iterated (strings: characters; dicts: keys), as a sequence. */
jj_val jj_iter(jj_run *r, const jj_node *at, jj_val v);
int64_t jj_length(jj_run *r, const jj_node *at, jj_val v);

/* ---- strings by characters (chars.c) ---- */
size_t jj_chars(const char *s, size_t n);
size_t jj_char_at(const char *s, size_t n, size_t index); /* byte offset */
size_t jj_char_len(const char *s, size_t n);              /* bytes of the first; 1 for a byte that is none */
int32_t jj_char(const char *s, size_t n, size_t *len);
bool jj_is_space(int32_t c);
/* Cut characters of `set` off (set_n == SIZE_MAX: white space); which: 1 left, 2 right, 3 both. */
jj_val jj_strip(jj_val s, const char *set, size_t set_n, int which);
enum jj_case { JJ_LOWER, JJ_UPPER, JJ_TITLE, JJ_CAPITALIZE };
jj_val jj_change_case(jj_run *r, jj_val s, enum jj_case how);
bool jj_find(const char *hay, size_t n, const char *needle, size_t m, size_t *at);
jj_val jj_replace(jj_run *r, jj_val s, jj_val from, jj_val to, int64_t count);
jj_val jj_join(jj_run *r, const jj_node *at, jj_val seq, jj_val sep, bool convert);

/* ---- operations (ops.c) ---- */
jj_val jj_binary(jj_run *r, const jj_node *at, const char *op, jj_val a, jj_val b);
jj_val jj_unary(jj_run *r, const jj_node *at, const char *op, jj_val a);
bool jj_compare(jj_run *r, const jj_node *at, const char *op, jj_val a, jj_val b);
bool jj_contains(jj_run *r, const jj_node *at, jj_val in, jj_val what);
jj_val jj_index(jj_run *r, const jj_node *at, jj_val v, jj_val key);      /* v[key] */
jj_val jj_attr(jj_run *r, const jj_node *at, jj_val v, const char *name); /* v.name */
jj_val jj_slice(jj_run *r, const jj_node *at, jj_val v, const jj_val part[3], const bool given[3]);

/* ---- what can be called ---- */
jj_call_fn jj_find_filter(const char *name);
jj_call_fn jj_find_test(const char *name);
/* Method of a value's type; NULL: it has none of that name. *changes: Python has it, but it would change the value. */
jj_call_fn jj_find_method(jj_val v, const char *name, bool *changes);
jj_call_fn jj_find_global(const char *name);
jj_val jj_call(jj_run *r, const jj_node *at, jj_val fn, const jj_args *a);
/* Argument number i or of that name; def when it was not given. */
jj_val jj_arg(const jj_args *a, size_t i, const char *name, jj_val def);
bool jj_arg_given(const jj_args *a, size_t i, const char *name);
/* At most `most` positional arguments and only the keywords listed (NULL-terminated). */
bool jj_args_ok(jj_run *r, const jj_node *at, const char *what, const jj_args *a, size_t least, size_t most,
                const char *const *keywords);

#endif
