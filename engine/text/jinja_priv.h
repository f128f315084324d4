/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the chat template interpreter: nodes (jinja_lex.c, jinja_parse.c), values (jinja_value.c), evaluation
 * (jinja_eval.c), filters, tests and methods (jinja_call.c).
 */
#ifndef LF_TEXT_JINJA_PRIV_H
#define LF_TEXT_JINJA_PRIV_H

#include <stdbool.h>

#include "engine/base/mem.h"
#include "engine/text/jinja.h"

#define LF_JINJA_DEPTH 200 /* of nested nodes, calls and values */

/* ---- tokens ---- */
enum jt { T_END, T_TEXT, T_OUT, T_OUT_END, T_STMT, T_STMT_END, T_NAME, T_STR, T_INT, T_FLOAT, T_OP };
struct jtok {
    enum jt t;
    const char *s; /* of the source; T_STR: the text, unescaped, in the arena */
    size_t n;
    size_t at;
    double f;
    int64_t i;
};

/* ---- nodes ---- */
enum jk {
    N_STR,
    N_INT,
    N_FLOAT,
    N_TRUE,
    N_FALSE,
    N_NONE,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_PAIR,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_KW,
    N_FILTER,
    N_TEST,
    N_BIN,
    N_AND,
    N_OR,
    N_NOT,
    N_NEG,
    N_CMP,
    N_CMPOP,
    N_COND,
    N_TEXT,
    N_OUT,
    N_IF,
    N_FOR,
    N_SET,
    N_SETBLOCK,
    N_MACRO,
    N_PARAM,
    N_BREAK,
    N_CONTINUE,
    N_BODY
};
enum jop {
    O_ADD = 1,
    O_SUB,
    O_MUL,
    O_DIV,
    O_FLOORDIV,
    O_MOD,
    O_POW,
    O_CAT,
    O_EQ,
    O_NE,
    O_LT,
    O_LE,
    O_GT,
    O_GE,
    O_IN,
    O_NOTIN
};
struct jn {
    enum jk k;
    int op; /* enum jop; N_TEST: 1 = negated */
    size_t at;
    const char *s; /* name or text */
    size_t n;
    int64_t i;
    double f;
    struct jn *a, *b, *c, *d, *e; /* by kind, see jinja_parse.c */
    struct jn *next;              /* in a list */
};

struct lf_jinja {
    char *name, *text;
    size_t len;
    lf_arena *arena;
    struct jn *body;
};

int lf_jinja_fail(const lf_jinja *t, size_t at, lf_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The tokens of the whole template, an array in its arena that ends with T_END. */
int lf_jinja_lex(struct jtok **out, lf_jinja *t, lf_err *err);
int lf_jinja_build(lf_jinja *t, const struct jtok *tok, lf_err *err);

/* ---- values ---- */
enum vt { V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_STR, V_LIST, V_DICT, V_MACRO, V_METHOD, V_GLOBAL };
struct jv {
    enum vt t;
    bool flag; /* V_BOOL; V_DICT: a namespace; V_LIST: a tuple */
    size_t n;  /* V_STR: bytes */
    union {
        int64_t i;
        double f;
        const char *s; /* V_STR; V_METHOD, V_GLOBAL, V_UNDEFINED: name */
        struct jlist *l;
        struct jdict *d;
        const struct jn *macro;
    } u;
    struct jv *self; /* V_METHOD */
};
struct jlist {
    struct jv *v;
    size_t n, cap;
};
struct jdict {
    struct jv *key, *val;
    size_t n, cap;
};

struct frame {
    struct jdict vars; /* keys are V_STR */
    struct frame *up;
};

struct jctx {
    const lf_jinja *t;
    const lf_jinja_limits *lim;
    lf_arena *arena;
    size_t used; /* bytes of the arena */
    uint64_t steps;
    int depth;
    size_t at; /* of the node being evaluated */
    lf_buf *out;
    size_t out_limit, mem_limit;
    uint64_t step_limit;
    struct frame *global, *top;
    bool breaking, continuing;
    lf_err *err;
};

int lf_jv_fail(struct jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *lf_jv_alloc(struct jctx *c, size_t n, size_t size);
struct jv lf_jv_str(const char *s, size_t n);
struct jv lf_jv_int(int64_t i);
struct jv lf_jv_float(double f);
struct jv lf_jv_bool(bool b);
struct jv lf_jv_none(void);
int lf_jv_copy_str(struct jctx *c, struct jv *out, const char *s, size_t n);
int lf_jv_list(struct jctx *c, struct jv *out, size_t cap);
int lf_jv_push(struct jctx *c, struct jlist *l, struct jv v);
int lf_jv_dict(struct jctx *c, struct jv *out);
int lf_jv_put(struct jctx *c, struct jdict *d, struct jv key, struct jv val);
const struct jv *lf_jv_get(const struct jdict *d, const char *s, size_t n);
const struct jv *lf_jv_find(const struct jdict *d, const struct jv *key);
int lf_jv_from_json(struct jctx *c, struct jv *out, json_t *j, int depth);
bool lf_jv_true(const struct jv *v);
bool lf_jv_equal(const struct jv *a, const struct jv *b, int depth);
/* -1, 0, 1 in *out; an error where Python has one. */
int lf_jv_compare(struct jctx *c, int *out, const struct jv *a, const struct jv *b);
const char *lf_jv_type(const struct jv *v);                                             /* as Python names it */
int lf_jv_to_text(struct jctx *c, lf_buf *b, const struct jv *v, bool repr, int depth); /* str() or repr() */
int lf_jv_to_json(struct jctx *c, lf_buf *b, const struct jv *v, int indent, int depth);
bool lf_jv_is(const struct jv *v, const char *s); /* a text equal to s */
/* Characters of a text, and the one at an index. */
size_t lf_jv_chars(const struct jv *v);
/* The elements a for loop sees, as a new list. */
int lf_jv_iterate(struct jctx *c, struct jv *out, const struct jv *v);

/* ---- calls ---- */
struct jargs {
    struct jv v[16];
    size_t n;
    struct {
        const char *s;
        size_t n;
        struct jv v;
    } kw[8];
    size_t n_kw;
    uint32_t used_kw;
};
/* Positional i or keyword `name`; NULL: not given. */
const struct jv *lf_jinja_arg(struct jargs *a, size_t i, const char *name);
/* Every keyword was asked for, and no more than max positional ones are there. */
int lf_jinja_args_end(struct jctx *c, struct jargs *a, size_t max, const char *what);
int lf_jinja_filter(struct jctx *c, struct jv *out, const struct jv *v, const char *name, size_t n, struct jargs *a);
int lf_jinja_test(struct jctx *c, bool *out, const struct jv *v, const char *name, size_t n, struct jargs *a);
int lf_jinja_method(struct jctx *c, struct jv *out, const struct jv *self, const char *name, struct jargs *a);
int lf_jinja_global(struct jctx *c, struct jv *out, const char *name, struct jargs *a);
bool lf_jinja_has_method(const struct jv *v, const char *s, size_t n);
bool lf_jinja_is_global(const char *s, size_t n);
bool lf_jinja_is_filter(const char *s, size_t n);
bool lf_jinja_is_test(const char *s, size_t n);
int lf_jinja_attr(struct jctx *c, struct jv *out, const struct jv *v, const char *s, size_t n);

#endif
