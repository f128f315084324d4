/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: a stack of values, a memo, one instruction after the other.
 *
 * Invariants: (1) every read of the text is preceded by need(); (2) every pop is preceded by
 * depth(), and the items above a mark never include the mark.
 */
#include <string.h>

#include "engine/base/le.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"
#include "engine/store/torch_pickle_priv.h"

#define MAX_STACK ((size_t)1 << 20) /* the pickler puts a thousand members on it at a time */

/* ---- text ---- */

static int need(lf_pickle *p, uint64_t n)
{
    if (n <= (uint64_t)(p->end - p->p))
        return 0;
    p->ended = true;
    return lf_pickle_fail(p, LF_EFORMAT, "the text ends here (truncated?)");
}

static uint64_t take_uint(lf_pickle *p, size_t bytes)
{
    uint64_t v = lf_get_le(p->p, bytes);
    p->p += bytes;
    return v;
}

/* A line without its end; NULL with an error. */
static const char *take_line(lf_pickle *p, size_t *n)
{
    const unsigned char *nl = memchr(p->p, '\n', (size_t)(p->end - p->p));
    const char *line = (const char *)p->p;
    if (!nl) {
        need(p, UINT64_MAX);
        return NULL;
    }
    *n = (size_t)(nl - p->p);
    p->p = nl + 1;
    return line;
}

/* ---- stack ---- */

static int push(lf_pickle *p, lf_pv *v)
{
    if (!v)
        return p->err && p->err->rc ? p->err->rc : LF_EFORMAT;
    if (p->n_stack == MAX_STACK)
        return lf_pickle_fail(p, LF_EFORMAT, "more than %zu values on the stack", MAX_STACK);
    int rc = lf_grow(&p->stack, &p->cap_stack, p->n_stack, sizeof *p->stack, p->err);
    if (rc == 0)
        p->stack[p->n_stack++] = v;
    return rc;
}

/* n values, none of them a mark. */
static int depth(lf_pickle *p, size_t n)
{
    bool ok = p->n_stack >= n;
    for (size_t i = 0; ok && i < n; i++)
        ok = p->stack[p->n_stack - 1 - i]->type != LF_PV_MARK;
    return ok ? 0 : lf_pickle_fail(p, LF_EFORMAT, "needs %zu values on the stack", n);
}

static lf_pv *top(const lf_pickle *p, size_t below)
{
    return p->stack[p->n_stack - 1 - below];
}

/* *from: index of the first value above the last mark. */
static int find_mark(lf_pickle *p, size_t *from)
{
    size_t i = p->n_stack;
    while (i > 0 && p->stack[i - 1]->type != LF_PV_MARK)
        i--;
    if (i == 0)
        return lf_pickle_fail(p, LF_EFORMAT, "there is no mark on the stack");
    *from = i;
    return 0;
}

/* The values above index `from` as a sequence; they leave the stack, with the mark below if there
 * is one. */
static lf_pv *gather(lf_pickle *p, enum lf_pv_type type, size_t from, bool mark)
{
    lf_pv *v = lf_pickle_value(p, type);
    size_t n = p->n_stack - from;
    if (!v || lf_pickle_reserve(p, v, 0, n) < 0)
        return NULL;
    if (n)
        memcpy(v->u.items, p->stack + from, n * sizeof *p->stack);
    v->n = (uint32_t)n;
    p->n_stack = from - mark;
    return v;
}

/* ---- memo ---- */

static int memo_put(lf_pickle *p, uint64_t at)
{
    int rc = depth(p, 1);
    if (rc < 0)
        return rc;
    /* An honest program numbers its entries one after the other, each by an instruction of its
     * own. */
    if (at > (uint64_t)(p->op - p->text))
        return lf_pickle_fail(p, LF_EFORMAT, "memo entry %llu after %zu bytes",
                              (unsigned long long)at, (size_t)(p->op - p->text));
    if (at >= p->cap_memo) {
        size_t cap = at + 1 > 2 * p->cap_memo ? (size_t)at + 64 : 2 * p->cap_memo;
        lf_pv **memo = lf_pickle_alloc(p, cap, sizeof *memo);
        if (!memo)
            return LF_EFORMAT;
        if (p->cap_memo)
            memcpy(memo, p->memo, p->cap_memo * sizeof *memo);
        p->memo = memo;
        p->cap_memo = cap;
    }
    p->memo[at] = top(p, 0);
    p->n_memo++;
    return 0;
}

static int memo_get(lf_pickle *p, uint64_t at)
{
    if (at >= p->cap_memo || !p->memo[at])
        return lf_pickle_fail(p, LF_EFORMAT, "memo entry %llu was never made",
                              (unsigned long long)at);
    return push(p, p->memo[at]);
}

/* ---- instructions ---- */

static int push_int(lf_pickle *p, enum lf_pv_type type, int64_t i)
{
    lf_pv *v = lf_pickle_value(p, type);
    if (v)
        v->u.i = i;
    return push(p, v);
}

/* Text of n bytes that stands in the program. */
static int push_text(lf_pickle *p, enum lf_pv_type type, uint64_t n)
{
    int rc = need(p, n);
    if (rc < 0)
        return rc;
    const char *text = (const char *)p->p;
    if (type == LF_PV_STR && lf_utf8_check(text, (size_t)n) < n)
        return lf_pickle_fail(p, LF_EFORMAT, "a string that is not UTF-8");
    lf_pv *v = lf_pickle_value(p, type);
    if (v) {
        v->u.text = text;
        v->n = (uint32_t)n;
        p->p += n;
    }
    return push(p, v);
}

/* Little-endian two's complement of n bytes. */
static int push_long(lf_pickle *p, uint64_t n)
{
    int rc = need(p, n);
    if (rc < 0)
        return rc;
    const unsigned char *b = p->p;
    p->p += n;
    if (n > 8)
        return push(p, lf_pickle_value(p, LF_PV_OTHER));
    uint64_t v = lf_get_le(b, (size_t)n);
    if (n > 0 && n < 8 && b[n - 1] & 0x80)
        v |= UINT64_MAX << 8 * n; /* negative: the sign goes on */
    return push_int(p, LF_PV_INT, (int64_t)v);
}

/* INT, LONG and FLOAT of protocol 0: decimal text on a line. */
static int push_line(lf_pickle *p)
{
    char buf[64];
    size_t n = 0;
    int op = *p->op;
    const char *line = take_line(p, &n);
    if (!line)
        return LF_EFORMAT;
    if (op == 'I' && n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return push_int(p, LF_PV_BOOL, line[1] == '1');
    if (op == 'L' && n && line[n - 1] == 'L')
        n--;
    if (n == 0 || n >= sizeof buf)
        return lf_pickle_fail(p, LF_EFORMAT, "a number of %zu bytes", n);
    memcpy(buf, line, n);
    buf[n] = '\0';
    if (op == 'F') {
        lf_pv *v = lf_pickle_value(p, LF_PV_FLOAT);
        if (v && lf_parse_f64(&v->u.f, buf, p->err) < 0)
            v = NULL;
        return push(p, v);
    }
    int64_t i = 0;
    return lf_parse_i64(&i, buf, p->err) < 0 ? LF_EFORMAT : push_int(p, LF_PV_INT, i);
}

static int push_global(lf_pickle *p, const char *module, size_t nm, const char *name, size_t nn)
{
    const struct lf_pg_row *r = lf_pg_find(module, nm, name, nn);
    if (!r) {
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_add_visible(&b, module, nm < 150 ? nm : 150);
        lf_buf_addc(&b, '.');
        lf_buf_add_visible(&b, name, nn < 150 ? nn : 150);
        int rc = lf_pickle_fail(
            p, LF_EFORMAT,
            "names the global %s, which files of tensors do not need; refused (such a "
            "file can run any program where PyTorch loads it)",
            b.data);
        lf_buf_fini(&b);
        return rc;
    }
    if (r->kind == LF_PG_DTYPE)
        return push_int(p, LF_PV_DTYPE, r->dtype);
    return push_int(p, LF_PV_GLOBAL, (int64_t)lf_pg_index(r));
}

static int op_global(lf_pickle *p)
{
    size_t nm = 0, nn = 0;
    const char *module = take_line(p, &nm);
    const char *name = module ? take_line(p, &nn) : NULL;
    return name ? push_global(p, module, nm, name, nn) : LF_EFORMAT;
}

static int op_stack_global(lf_pickle *p)
{
    int rc = depth(p, 2);
    if (rc < 0)
        return rc;
    const lf_pv *name = top(p, 0), *module = top(p, 1);
    if (name->type != LF_PV_STR || module->type != LF_PV_STR)
        return lf_pickle_fail(p, LF_EFORMAT, "module and name are not strings");
    p->n_stack -= 2;
    return push_global(p, module->u.text, module->n, name->u.text, name->n);
}

/* REDUCE, NEWOBJ: callable and tuple of arguments. */
static int op_call(lf_pickle *p)
{
    int rc = depth(p, 2);
    if (rc < 0)
        return rc;
    lf_pv *args = top(p, 0), *f = top(p, 1);
    p->n_stack -= 2;
    return push(p, lf_pickle_call(p, f, args));
}

/* The state of an object: Namespace and the like become their dictionary; elsewhere it says nothing
 * about tensors. */
static int op_build(lf_pickle *p)
{
    int rc = depth(p, 2);
    if (rc < 0)
        return rc;
    const lf_pv *state = top(p, 0);
    lf_pv *v = top(p, 1);
    p->n_stack--;
    /* OrderedDict carries _metadata this way, beside its members: only an empty dictionary takes
     * its state. */
    if (v->type == LF_PV_DICT && v->n == 0 && state->type == LF_PV_DICT) {
        v->u.items = state->u.items;
        v->n = state->n;
        v->cap = 0;
    } else if (v->type != LF_PV_DICT && v->type != LF_PV_OTHER && v->type != LF_PV_TENSOR) {
        rc = lf_pickle_fail(p, LF_EFORMAT, "gives a state to something that is no object");
    }
    return rc;
}

static int op_append(lf_pickle *p, size_t from, lf_pv *list, bool mark)
{
    int rc = 0;
    if (list->type != LF_PV_LIST)
        return lf_pickle_fail(p, LF_EFORMAT, "appends to something that is no list");
    for (size_t i = from; i < p->n_stack && rc == 0; i++)
        rc = lf_pickle_append(p, list, p->stack[i]);
    p->n_stack = from - mark;
    return rc;
}

static int op_setitems(lf_pickle *p, size_t from, lf_pv *dict, bool mark)
{
    int rc = 0;
    if (dict->type != LF_PV_DICT || (p->n_stack - from) % 2)
        return lf_pickle_fail(p, LF_EFORMAT,
                              "sets members of something that is no dictionary, or half a member");
    for (size_t i = from; i < p->n_stack && rc == 0; i += 2)
        rc = lf_pickle_put(p, dict, p->stack[i], p->stack[i + 1]);
    p->n_stack = from - mark;
    return rc;
}

/* APPENDS, ADDITEMS, SETITEMS, DICT: values above a mark. */
static int op_marked(lf_pickle *p)
{
    size_t from = 0;
    int op = *p->op, rc = find_mark(p, &from);
    if (rc < 0)
        return rc;
    if (op == 'd') {
        lf_pv *d = lf_pickle_value(p, LF_PV_DICT);
        rc = d ? op_setitems(p, from, d, true) : LF_EFORMAT;
        return rc < 0 ? rc : push(p, d);
    }
    if (from < 2 || p->stack[from - 2]->type == LF_PV_MARK)
        return lf_pickle_fail(p, LF_EFORMAT, "there is nothing below the mark");
    lf_pv *to = p->stack[from - 2];
    return op == 'u' ? op_setitems(p, from, to, true) : op_append(p, from, to, true);
}

static int op_float(lf_pickle *p)
{
    int rc = need(p, 8);
    if (rc < 0)
        return rc;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | *p->p++;
    lf_pv *v = lf_pickle_value(p, LF_PV_FLOAT);
    if (v)
        memcpy(&v->u.f, &bits, sizeof bits);
    return push(p, v);
}

/* Instructions without operands in the text that push or take a few values. */
static int op_small(lf_pickle *p)
{
    size_t from = 0;
    int op = *p->op, rc;
    switch (op) {
    case '(':
        return push(p, lf_pickle_value(p, LF_PV_MARK));
    case 'N':
        return push(p, lf_pickle_value(p, LF_PV_NONE));
    case 0x88:
    case 0x89:
        return push_int(p, LF_PV_BOOL, op == 0x88);
    case '}':
        return push(p, lf_pickle_value(p, LF_PV_DICT));
    case ']':
    case 0x8f:
        return push(p, lf_pickle_value(p, LF_PV_LIST));
    case ')':
        return push(p, lf_pickle_value(p, LF_PV_TUPLE));
    case 0x85:
    case 0x86:
    case 0x87:
        rc = depth(p, (size_t)(op - 0x84));
        return rc < 0 ? rc
                      : push(p, gather(p, LF_PV_TUPLE, p->n_stack - (size_t)(op - 0x84), false));
    case 't':
    case 'l':
    case 0x91:
        rc = find_mark(p, &from);
        return rc < 0 ? rc : push(p, gather(p, op == 't' ? LF_PV_TUPLE : LF_PV_LIST, from, true));
    case '1':
        rc = find_mark(p, &from);
        p->n_stack = rc < 0 ? p->n_stack : from - 1;
        return rc;
    case '0':
        if (p->n_stack == 0)
            return depth(p, 1);
        p->n_stack--;
        return 0;
    case '2':
        rc = depth(p, 1);
        return rc < 0 ? rc : push(p, top(p, 0));
    case 'a':
        rc = depth(p, 2);
        return rc < 0 ? rc : op_append(p, p->n_stack - 1, top(p, 1), false);
    case 's':
        rc = depth(p, 3);
        return rc < 0 ? rc : op_setitems(p, p->n_stack - 2, top(p, 2), false);
    case 'Q':
        rc = depth(p, 1);
        if (rc < 0)
            return rc;
        p->n_stack--;
        return push(p, lf_pickle_persistent(p, p->stack[p->n_stack]));
    default:
        return lf_pickle_fail(p, LF_ENOTSUP,
                              "an instruction that files of tensors do not need; refused");
    }
}

static int op_with_number(lf_pickle *p, size_t bytes)
{
    int rc = need(p, (uint64_t)bytes);
    if (rc < 0)
        return rc;
    uint64_t n = take_uint(p, bytes);
    switch (*p->op) {
    case 'K':
    case 'M':
        return push_int(p, LF_PV_INT, (int64_t)n);
    case 'J':
        return push_int(p, LF_PV_INT, (int32_t)(uint32_t)n);
    case 0x8a:
    case 0x8b:
        return push_long(p, n);
    case 'X':
    case 0x8c:
    case 0x8d:
        return push_text(p, LF_PV_STR, n);
    case 'T': /* strings of Python 2: bytes that are text where they are UTF-8 */
    case 'U':
        return push_text(p,
                         need(p, n) == 0 && lf_utf8_check((const char *)p->p, (size_t)n) == n
                             ? LF_PV_STR
                             : LF_PV_BYTES,
                         n);
    case 'B':
    case 'C':
    case 0x8e:
    case 0x96:
        return push_text(p, LF_PV_BYTES, n);
    case 'h':
    case 'j':
        return memo_get(p, n);
    case 'q':
    case 'r':
        return memo_put(p, n);
    case 0x80:
        return n <= 5 ? 0
                      : lf_pickle_fail(p, LF_ENOTSUP, "protocol %llu; 0 to 5 are known",
                                       (unsigned long long)n);
    default: /* FRAME: the instructions that follow, wherever they end */
        return 0;
    }
}

/* GET and PUT of protocol 0. */
static int op_memo_line(lf_pickle *p)
{
    char buf[32];
    int64_t at = 0;
    size_t n = 0;
    const char *line = take_line(p, &n);
    if (!line)
        return LF_EFORMAT;
    if (n >= sizeof buf)
        return lf_pickle_fail(p, LF_EFORMAT, "a number of %zu bytes", n);
    memcpy(buf, line, n);
    buf[n] = '\0';
    if (lf_parse_i64(&at, buf, p->err) < 0 || at < 0)
        return lf_pickle_fail(p, LF_EFORMAT, "a memo entry that is no number");
    return *p->op == 'g' ? memo_get(p, (uint64_t)at) : memo_put(p, (uint64_t)at);
}

static int step(lf_pickle *p)
{
    int op = *p->op, bytes = lf_pickle_operand_bytes(op);
    if (bytes)
        return op_with_number(p, bytes);
    switch (op) {
    case 'c':
        return op_global(p);
    case 0x93:
        return op_stack_global(p);
    case 'R':
    case 0x81:
        return op_call(p);
    case 'b':
        return op_build(p);
    case 'e':
    case 'u':
    case 'd':
    case 0x90:
        return op_marked(p);
    case 'G':
        return op_float(p);
    case 'I':
    case 'L':
    case 'F':
        return push_line(p);
    case 'g':
    case 'p':
        return op_memo_line(p);
    case 0x94:
        return memo_put(p, p->n_memo);
    default:
        return op_small(p);
    }
}

int lf_pickle_run(lf_pickle *p)
{
    for (;;) {
        p->op = p->p;
        if (p->p == p->end) {
            p->ended = true;
            return lf_fail(p->err, LF_EFORMAT, "%s: %zu bytes of pickle without STOP (truncated?)",
                           p->what, (size_t)(p->end - p->text));
        }
        p->p++;
        if (*p->op == '.')
            break;
        int rc = step(p);
        if (rc < 0)
            return p->err && p->err->rc == 0 ? lf_pickle_fail(p, rc, "failed") : rc;
    }
    int rc = depth(p, 1);
    p->root = rc < 0 ? NULL : top(p, 0);
    return rc;
}
