/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a function: declarations, scopes, labels, instructions.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/parse.h"

/* ---- declarations ---- */

size_t lf_ptx_round_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

static void declare_registers(struct ptx_parser *p)
{
    char type[32];
    lf_ptx_word(p, type, sizeof type);
    const unsigned bytes = lf_ptx_bytes_of_type(type);
    if (!bytes || (bytes == 1 && strcmp(type, ".pred") != 0))
        lf_ptx_refuse(p, "registers of type %s", type);
    do {
        p->reg = lf_ptx_grow(p->reg, p->n_regs, sizeof *p->reg);
        struct ptx_regs *r = &p->reg[p->n_regs++];
        memset(r, 0, sizeof *r);
        lf_ptx_word(p, r->name, sizeof r->name);
        if (lf_ptx_take(p, '<')) {
            r->count = (uint32_t)lf_ptx_integer(p);
            lf_ptx_need(p, '>');
        }
        r->bytes = (uint8_t)bytes;
        r->offset = p->k->file_bytes;
        p->k->file_bytes += lf_ptx_lanes_bytes(bytes) * (r->count ? r->count : 1);
    } while (lf_ptx_take(p, ','));
    lf_ptx_need(p, ';');
}

/* .align A .type name[bytes]; gives name, alignment and bytes; bytes 0: [] */
void lf_ptx_declare_array(struct ptx_parser *p, char *name, size_t cap, size_t *align,
                          size_t *bytes, unsigned *element)
{
    char w[96];
    *align = 1;
    for (lf_ptx_word(p, w, sizeof w); strcmp(w, ".align") == 0; lf_ptx_word(p, w, sizeof w))
        *align = (size_t)lf_ptx_integer(p);
    *element = lf_ptx_bytes_of_type(w);
    if (!*element)
        lf_ptx_refuse(p, "a declaration of type %s", w);
    if (*align < *element)
        *align = *element;
    lf_ptx_word(p, name, cap);
    *bytes = *element;
    if (lf_ptx_take(p, '[')) {
        *bytes = *p->at == ']' ? 0 : *element * (size_t)lf_ptx_integer(p);
        lf_ptx_need(p, ']');
    }
}

struct ptx_symbol *lf_ptx_add_symbol(struct ptx_symbol **list, size_t *n, const char *name)
{
    *list = lf_ptx_grow(*list, *n, sizeof **list);
    struct ptx_symbol *s = &(*list)[(*n)++];
    memset(s, 0, sizeof *s);
    if (!(s->name = strdup(name)))
        abort();
    return s;
}

static void declare_space(struct ptx_parser *p, enum ptx_space space)
{
    char name[96];
    size_t align, bytes;
    unsigned element;
    lf_ptx_declare_array(p, name, sizeof name, &align, &bytes, &element);
    lf_ptx_need(p, ';');
    struct ptx_symbol *s = lf_ptx_add_symbol(&p->symbol, &p->n_symbols, name);
    size_t *size = space == PTX_SHARED ? &p->k->shared : &p->k->local;
    *size = lf_ptx_round_up(*size, align);
    s->space = space;
    s->bytes = bytes;
    s->address = *size + (space == PTX_SHARED ? PTX_BASE : 0);
    *size += bytes;
}

/* ---- statements ---- */

static bool decode(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    return lf_ptx_decode_flow(p, op, i) || lf_ptx_decode_memory(p, op, i) ||
           lf_ptx_decode_float(p, op, i) || lf_ptx_decode_arith(p, op, i) ||
           lf_ptx_decode_cvt(p, op, i) || lf_ptx_decode_matrix(p, op, i) ||
           lf_ptx_decode_warp(p, op, i) || lf_ptx_decode_async(p, op, i) ||
           lf_ptx_decode_tma(p, op, i) || lf_ptx_decode_wgmma(p, op, i);
}

static void branch_targets(struct ptx_parser *p, const char *name)
{
    p->table = lf_ptx_grow(p->table, p->n_tables, sizeof *p->table);
    struct ptx_targets *t = &p->table[p->n_tables++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%.63s", name);
    do {
        t->label = lf_ptx_grow(t->label, t->n, sizeof *t->label);
        lf_ptx_word(p, t->label[t->n++], sizeof *t->label);
    } while (lf_ptx_take(p, ','));
    lf_ptx_need(p, ';');
}

static void instruction(struct ptx_parser *p, const char *first)
{
    struct ptx_ins i = {.line = p->line};
    char op[128];
    struct ptx_operand guard;
    memset(&guard, 0, sizeof guard);
    if (first) {
        snprintf(op, sizeof op, "%s", first);
    } else { /* @p or @!p */
        lf_ptx_atom(p, &guard);
        if (guard.is != OP_REG || guard.bytes != 1)
            lf_ptx_refuse(p, "a guard that is no predicate");
        i.guard = guard.offset;
        i.negate = guard.negate;
        lf_ptx_word(p, op, sizeof op);
    }
    lf_ptx_read_operands(p);
    if (!decode(p, op, &i))
        lf_ptx_refuse(p, "the interpreter does not know %s", op);
    p->k->code = lf_ptx_grow(p->k->code, p->k->n, sizeof *p->k->code);
    p->k->code[p->k->n++] = i;
}

static void open_scope(struct ptx_parser *p)
{
    if (p->depth == MAX_SCOPES)
        lf_ptx_refuse(p, "scopes deeper than %d", MAX_SCOPES);
    p->scope[p->depth++] = p->n_regs;
}

static void add_label(struct ptx_parser *p, const char *name)
{
    p->label = lf_ptx_grow(p->label, p->n_labels, sizeof *p->label);
    struct ptx_label *l = &p->label[p->n_labels++];
    if (strlen(name) >= sizeof l->name)
        lf_ptx_refuse(p, "a long label");
    snprintf(l->name, sizeof l->name, "%.63s", name);
    l->pc = (uint32_t)p->k->n;
}

static void statement(struct ptx_parser *p)
{
    char w[128];
    if (lf_ptx_take(p, '@')) {
        instruction(p, NULL);
        return;
    }
    lf_ptx_word(p, w, sizeof w);
    lf_ptx_skip(p);
    if (*p->at == ':') {
        p->at++;
        lf_ptx_skip(p);
        if (strncmp(p->at, ".branchtargets", 14) == 0) {
            p->at += 14;
            branch_targets(p, w);
        } else {
            add_label(p, w);
        }
    } else if (strcmp(w, ".reg") == 0) {
        declare_registers(p);
    } else if (strcmp(w, ".shared") == 0) {
        declare_space(p, PTX_SHARED);
    } else if (strcmp(w, ".local") == 0) {
        declare_space(p, PTX_LOCAL);
    } else if (strcmp(w, ".pragma") == 0 || strcmp(w, ".loc") == 0) {
        const char *end = w[1] == 'p' ? strchr(p->at, ';') : p->at + strcspn(p->at, "\n");
        p->at = end + (*end == ';');
    } else if (w[0] == '.') {
        lf_ptx_refuse(p, "the interpreter does not know %s", w);
    } else {
        instruction(p, w);
    }
}

static uint32_t pc_of(struct ptx_parser *p, const char *name)
{
    for (size_t i = 0; i < p->n_labels; i++)
        if (strcmp(p->label[i].name, name) == 0)
            return p->label[i].pc;
    lf_ptx_refuse(p, "no label %s", name);
}

/* Labels to places, and which instructions begin a block. */
static void resolve(struct ptx_parser *p)
{
    struct lf_ptx_kernel *k = p->k;
    for (size_t i = 0; i < k->n; i++) {
        struct ptx_ins *x = &k->code[i];
        if (x->kind == PTX_BRANCH) {
            x->target = pc_of(p, p->wanted[x->target].name);
            k->code[x->target].leader = true;
        } else if (x->kind == PTX_INDEXED) {
            const char *name = p->wanted[x->target].name;
            size_t t = 0;
            while (t < p->n_tables && strcmp(p->table[t].name, name) != 0)
                t++;
            if (t == p->n_tables)
                lf_ptx_refuse(p, "no table %s", name);
            uint32_t *to = calloc(p->table[t].n, sizeof *to);
            if (!to)
                abort();
            for (uint32_t j = 0; j < p->table[t].n; j++) {
                to[j] = pc_of(p, p->table[t].label[j]);
                k->code[to[j]].leader = true;
            }
            x->targets = to;
            x->imm = p->table[t].n;
        }
        if ((x->kind == PTX_BRANCH || x->kind == PTX_RETURN || x->kind == PTX_INDEXED) &&
            i + 1 < k->n)
            k->code[i + 1].leader = true;
    }
}

static void mark(uint8_t *set, const struct ptx_ins *i, bool written)
{
    for (unsigned k = written ? 0 : i->nd; k < (written ? i->nd : i->n); k++)
        set[i->o[k] / 64] |= written ? 1 : 2;
    if (!written)
        set[i->guard / 64] |= 2;
}

/* Registers that are read and that nothing writes, which is how the compiler spells a value of no
 * consequence (bytes of prmt that a mask takes away, say). They count as defined, and are all ones;
 * a register that some path writes does not. */
static void find_unwritten(struct lf_ptx_kernel *k)
{
    const size_t n = k->file_bytes / 64;
    uint8_t *set = calloc(n, 1);
    k->unwritten = calloc(n, sizeof *k->unwritten);
    if (!set || !k->unwritten)
        abort();
    for (size_t i = 0; i < k->n; i++) {
        mark(set, &k->code[i], true);
        mark(set, &k->code[i], false);
    }
    for (size_t i = 0; i < k->n_const; i++)
        set[k->constant[i].offset / 64] |= 1;
    for (int i = 0; i < S_COUNT; i++)
        set[k->special[i] / 64] |= 1;
    for (size_t i = 1; i < n; i++)
        if (set[i] == 2)
            k->unwritten[k->n_unwritten++] = (uint32_t)i;
    free(set);
}

void lf_ptx_body(struct ptx_parser *p)
{
    lf_ptx_need(p, '{');
    open_scope(p);
    while (p->depth) {
        lf_ptx_skip(p);
        p->line = p->here;
        if (lf_ptx_take(p, '{'))
            open_scope(p);
        else if (lf_ptx_take(p, '}'))
            p->n_regs = p->scope[--p->depth];
        else if (!*p->at)
            lf_ptx_refuse(p, "the text ends within a function");
        else
            statement(p);
    }
    resolve(p);
    find_unwritten(p->k);
}
