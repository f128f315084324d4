/* SPDX-License-Identifier: Apache-2.0
 *
 * PTX text: names, literals and operands, and the places of operands in the file of registers.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/parse.h"

void *lf_ptx_grow(void *p, size_t n, size_t size)
{
    if (n & (n - 1)) /* room was made for the next power of two */
        return p;
    void *q = realloc(p, (n ? 2 * n : 1) * size);
    if (!q)
        abort();
    return q;
}

void lf_ptx_refuse(const struct ptx_parser *p, const char *what, ...)
{
    va_list v;
    va_start(v, what);
    fprintf(stderr, "ptx: %s:%u: ", p->m->path, p->line);
    vfprintf(stderr, what, v);
    fprintf(stderr, "\n");
    va_end(v);
    abort();
}

/* ---- text ---- */

void lf_ptx_skip(struct ptx_parser *p)
{
    for (;;) {
        if (*p->at == '\n')
            p->here++, p->at++;
        else if (isspace((unsigned char)*p->at))
            p->at++;
        else if (p->at[0] == '/' && p->at[1] == '/')
            p->at += strcspn(p->at, "\n");
        else if (p->at[0] == '/' && p->at[1] == '*') {
            for (p->at += 2; *p->at && !(p->at[0] == '*' && p->at[1] == '/'); p->at++)
                p->here += *p->at == '\n';
            p->at += 2;
        } else
            return;
    }
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}

bool lf_ptx_take(struct ptx_parser *p, char c)
{
    lf_ptx_skip(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}
void lf_ptx_need(struct ptx_parser *p, char c)
{
    if (!lf_ptx_take(p, c))
        lf_ptx_refuse(p, "'%c' expected before '%.20s'", c, p->at);
}

/* A name; `::` belongs to it, a single ':' ends a label. */
void lf_ptx_word(struct ptx_parser *p, char *to, size_t cap)
{
    lf_ptx_skip(p);
    size_t n = 0;
    while (word_char(p->at[n]) && !(p->at[n] == ':' && p->at[n + 1] != ':')) {
        n += p->at[n] == ':' ? 2 : 1;
    }
    if (!n || n >= cap)
        lf_ptx_refuse(p, "a name expected before '%.20s'", p->at);
    memcpy(to, p->at, n);
    to[n] = '\0';
    p->at += n;
}

int64_t lf_ptx_integer(struct ptx_parser *p)
{
    lf_ptx_skip(p);
    char *end;
    const bool minus = *p->at == '-';
    const uint64_t v = strtoull(p->at + minus, &end, 0);
    if (end == p->at + minus)
        lf_ptx_refuse(p, "a number expected before '%.20s'", p->at);
    if (*end == 'U' || *end == 'u')
        end++;
    p->at = end;
    return minus ? -(int64_t)v : (int64_t)v;
}

/* ---- names ---- */

unsigned lf_ptx_bytes_of_type(const char *type)
{
    static const struct {
        const char *type;
        unsigned bytes;
    } known[] = {{".pred", 1}, {".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2},
                 {".s16", 2},  {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4},
                 {".b64", 8},  {".u64", 8}, {".s64", 8}, {".f64", 8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].type, type) == 0)
            return known[i].bytes;
    return 0;
}

uint32_t lf_ptx_lanes_bytes(unsigned bytes)
{
    return bytes <= 2 ? 64 : bytes * PTX_LANES;
}

static bool find_reg(const struct ptx_parser *p, const char *name, struct ptx_operand *o)
{
    const size_t len = strlen(name);
    for (size_t k = p->n_regs; k-- > 0;) {
        const struct ptx_regs *r = &p->reg[k];
        const size_t n = strlen(r->name);
        unsigned long at = 0;
        if (strncmp(name, r->name, n) != 0)
            continue;
        if (r->count) {
            char *end;
            if (len == n || !isdigit((unsigned char)name[n]))
                continue;
            at = strtoul(name + n, &end, 10);
            if (*end || at >= r->count)
                continue;
        } else if (len != n)
            continue;
        o->is = OP_REG;
        o->bytes = r->bytes;
        o->offset = r->offset + (uint32_t)at * lf_ptx_lanes_bytes(r->bytes);
        return true;
    }
    return false;
}

static bool find_special(const struct ptx_parser *p, const char *name, struct ptx_operand *o)
{
    static const char *const names[S_COUNT] = {
        "%tid.x",       "%tid.y",       "%tid.z",       "%ntid.x",      "%ntid.y",
        "%ntid.z",      "%ctaid.x",     "%ctaid.y",     "%ctaid.z",     "%nctaid.x",
        "%nctaid.y",    "%nctaid.z",    "%laneid",      "%warpid",      "%nwarpid",
        "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%lanemask_eq"};
    for (int i = 0; i < S_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            o->is = OP_REG;
            o->bytes = 4;
            o->offset = p->k->special[i];
            return true;
        }
    return false;
}

static const struct ptx_symbol *find_symbol(const struct ptx_parser *p, const char *name)
{
    for (size_t i = p->n_symbols; i-- > 0;)
        if (strcmp(p->symbol[i].name, name) == 0)
            return &p->symbol[i];
    for (size_t i = 0; i < p->m->n_symbols; i++)
        if (strcmp(p->m->symbol[i].name, name) == 0)
            return &p->m->symbol[i];
    return NULL;
}

/* ---- operands ---- */

static struct ptx_operand *new_operand(struct ptx_parser *p, int group)
{
    if (p->n_op == MAX_OPERANDS)
        lf_ptx_refuse(p, "more operands than are kept");
    struct ptx_operand *o = &p->op[p->n_op++];
    memset(o, 0, sizeof *o);
    o->group = (uint8_t)group;
    return o;
}

static void literal(struct ptx_parser *p, struct ptx_operand *o)
{
    o->is = OP_IMM;
    const bool f = p->at[0] == '0' && (p->at[1] == 'f' || p->at[1] == 'F'),
               d = p->at[0] == '0' && (p->at[1] == 'd' || p->at[1] == 'D');
    if (!f && !d) {
        o->bits = (uint64_t)lf_ptx_integer(p);
        return;
    }
    char *end;
    o->bits = strtoull(p->at + 2, &end, 16);
    if (end - p->at != (f ? 10 : 18))
        lf_ptx_refuse(p, "a floating literal of another length: '%.20s'", p->at);
    o->floating = true;
    o->bytes = f ? 4 : 8;
    p->at = end;
}

void lf_ptx_atom(struct ptx_parser *p, struct ptx_operand *o)
{
    lf_ptx_skip(p);
    if (isdigit((unsigned char)*p->at) || *p->at == '-') {
        literal(p, o);
        return;
    }
    if (lf_ptx_take(p, '!'))
        o->negate = true;
    lf_ptx_word(p, o->name, sizeof o->name);
    if (strcmp(o->name, "_") == 0) {
        o->sink = true;
        o->is = OP_NAME;
        return;
    }
    if (find_reg(p, o->name, o) || find_special(p, o->name, o))
        return;
    o->symbol = find_symbol(p, o->name);
    o->is = o->symbol ? OP_SYMBOL : OP_NAME;
    if (o->symbol)
        o->bits = o->symbol->address;
    if (o->is == OP_NAME && o->name[0] == '%')
        lf_ptx_refuse(p, "unknown register %s", o->name);
}

/* Operands up to ';', nested braces and brackets flattened. */
void lf_ptx_read_operands(struct ptx_parser *p)
{
    int braces = 0, group = 0;
    bool memory = false;
    p->n_op = 0;
    while (!lf_ptx_take(p, ';')) {
        if (lf_ptx_take(p, '{')) {
            braces = ++group;
        } else if (lf_ptx_take(p, '}')) {
            braces = 0;
        } else if (lf_ptx_take(p, '[')) {
            memory = true;
        } else if (lf_ptx_take(p, ']')) {
            memory = false;
        } else if (lf_ptx_take(p, ',') || lf_ptx_take(p, '|')) {
            continue;
        } else {
            struct ptx_operand *o = new_operand(p, braces);
            lf_ptx_atom(p, o);
            o->memory = memory;
            if (lf_ptx_take(p, '+'))
                o->plus = lf_ptx_integer(p);
            else if (o->is != OP_IMM && *p->at == '-' && memory)
                o->plus = lf_ptx_integer(p);
        }
    }
}

int lf_ptx_operands(const struct ptx_parser *p)
{
    return p->n_op;
}
const struct ptx_operand *lf_ptx_operand(const struct ptx_parser *p, int k)
{
    if (k >= p->n_op)
        lf_ptx_refuse(p, "too few operands");
    return &p->op[k];
}

uint32_t lf_ptx_new_slot(struct lf_ptx_kernel *k, unsigned bytes)
{
    const uint32_t at = k->file_bytes;
    k->file_bytes += lf_ptx_lanes_bytes(bytes);
    return at;
}

uint32_t lf_ptx_constant(struct ptx_parser *p, uint64_t bits, unsigned bytes)
{
    struct lf_ptx_kernel *k = p->k;
    if (bytes < 8)
        bits &= (1ULL << (bytes == 1 ? 1 : 8 * bytes)) - 1;
    for (size_t i = k->n_const; i-- > 0;)
        if (k->constant[i].bits == bits && k->constant[i].bytes == bytes)
            return k->constant[i].offset;
    k->constant = lf_ptx_grow(k->constant, k->n_const, sizeof *k->constant);
    k->constant[k->n_const] = (struct ptx_const){bits, bytes, lf_ptx_new_slot(k, bytes)};
    return k->constant[k->n_const++].offset;
}

uint32_t lf_ptx_slot(struct ptx_parser *p, int k, unsigned bytes)
{
    const struct ptx_operand *o = lf_ptx_operand(p, k);
    if (o->is == OP_REG && o->bytes == bytes && !o->negate)
        return o->offset;
    if (o->is == OP_IMM && (!o->floating || o->bytes == bytes))
        return lf_ptx_constant(p, o->bits, bytes);
    if (o->is == OP_SYMBOL && bytes >= 4)
        return lf_ptx_constant(p, o->bits + (uint64_t)o->plus, bytes);
    lf_ptx_refuse(p, "operand %d (%s) is no register or constant of %u bytes", k, o->name, bytes);
}

uint32_t lf_ptx_slot_wide(struct ptx_parser *p, int k, unsigned least, uint8_t *bytes)
{
    const struct ptx_operand *o = lf_ptx_operand(p, k);
    *bytes = (uint8_t)least;
    if (o->is == OP_REG && o->bytes != 1 && o->bytes >= least)
        *bytes = o->bytes;
    else if (least < 2)
        *bytes = 2;
    return lf_ptx_slot(p, k, *bytes);
}

uint32_t *lf_ptx_new_operands(struct ptx_ins *i, unsigned nd, unsigned n)
{
    i->nd = (uint16_t)nd;
    i->n = (uint16_t)n;
    i->o = calloc(n ? n : 1, sizeof *i->o);
    if (!i->o)
        abort();
    return i->o;
}

void lf_ptx_signature(struct ptx_parser *p, struct ptx_ins *i, const char *sig)
{
    const int n = (int)strlen(sig);
    unsigned nd = 0;
    if (n != p->n_op)
        lf_ptx_refuse(p, "%d operands, not %d", p->n_op, n);
    while (isupper((unsigned char)sig[nd]))
        nd++;
    lf_ptx_new_operands(i, nd, (unsigned)n);
    for (int k = 0; k < n; k++) {
        const char c = (char)tolower((unsigned char)sig[k]);
        const bool address = c == 'a' || c == 's';
        if (address != p->op[k].memory)
            lf_ptx_refuse(p, "operand %d is %s address", k, address ? "no" : "an");
        if (address)
            i->imm = p->op[k].is == OP_SYMBOL ? 0 : p->op[k].plus;
        if (k < (int)nd && p->op[k].is != OP_REG)
            lf_ptx_refuse(p, "operand %d is no register", k);
        i->o[k] = lf_ptx_slot(p, k, c == 'p' ? 1 : c == 'h' ? 2 : c == 'w' || c == 's' ? 4 : 8);
    }
}

bool lf_ptx_decode_row(struct ptx_parser *p, const char *op, struct ptx_ins *i,
                       const struct ptx_row *row, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (strcmp(row[k].op, op) == 0) {
            i->fn = row[k].fn;
            lf_ptx_signature(p, i, row[k].sig);
            return true;
        }
    return false;
}

uint32_t lf_ptx_label(struct ptx_parser *p, int k)
{
    const struct ptx_operand *o = lf_ptx_operand(p, k);
    if (o->is != OP_NAME)
        lf_ptx_refuse(p, "operand %d is no label", k);
    p->wanted = lf_ptx_grow(p->wanted, p->n_wanted, sizeof *p->wanted);
    snprintf(p->wanted[p->n_wanted].name, sizeof p->wanted[0].name, "%.63s", o->name);
    return (uint32_t)p->n_wanted++;
}
