/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: state spaces and their addresses (PTX ISA 5.1, 9.7.9.20 cvta), ld, st, atom, red. Global
 * addresses are addresses of the host. Shared memory, a thread's local memory and the arguments are
 * windows; a generic address of theirs is where they lie on the host.
 */
#include <stdio.h>

#include "tests/cuda/ptx/ins.h"

static char *local_of(const struct ptx_warp *w, int lane)
{
    return w->b->local + (w->index * PTX_LANES + (unsigned)lane) * w->b->k->local;
}

static bool in(const char *p, const char *from, size_t n, uint32_t bytes)
{
    return p >= from && p + bytes <= from + n;
}

static bool in_variable(struct ptx_ins *i, const struct ptx_module *m, const char *p,
                        uint32_t bytes)
{
    for (size_t k = 0; k < m->n_symbols; k++) {
        const struct ptx_symbol *s = &m->symbol[k];
        const char *at = (const char *)(uintptr_t)s->address;
        if (s->space != PTX_SHARED && in(p, at, s->bytes, bytes)) {
            i->lo = at;
            i->hi = at + s->bytes;
            return true;
        }
    }
    return false;
}

static char *global(struct ptx_warp *w, struct ptx_ins *i, int lane, uint64_t a, uint32_t bytes)
{
    char *p = (char *)(uintptr_t)a;
    if (p >= i->lo && p + bytes <= i->hi)
        return p;
    if (in_variable(i, w->b->k->module, p, bytes))
        return p;
    if (!lf_emu_block_around(p, &i->lo, &i->hi))
        lf_ptx_fail(w, i, lane, "%u bytes at 0x%llx, which is in no allocation", bytes,
                    (unsigned long long)a);
    if (p + bytes > i->hi)
        lf_ptx_fail(w, i, lane, "%u bytes at 0x%llx, which cross the end of an allocation of %zu",
                    bytes, (unsigned long long)a, (size_t)(i->hi - i->lo));
    return p;
}

char *lf_ptx_at(struct ptx_warp *w, struct ptx_ins *i, int lane, uint64_t a, uint32_t bytes,
                enum ptx_space space)
{
    const struct ptx_block *b = w->b;
    if (a % bytes)
        lf_ptx_fail(w, i, lane, "%u bytes at 0x%llx, which is no multiple of that", bytes,
                    (unsigned long long)a);
    switch (space) {
    case PTX_SHARED:
        if (a < PTX_BASE || a + bytes > PTX_BASE + b->smem_bytes)
            lf_ptx_fail(w, i, lane, "%u bytes at %lld of %zu bytes of shared memory", bytes,
                        (long long)a - PTX_BASE, b->smem_bytes);
        return b->smem + (a - PTX_BASE);
    case PTX_LOCAL:
        if (a + bytes > b->k->local)
            lf_ptx_fail(w, i, lane, "%u bytes at %llu of %zu bytes of local memory", bytes,
                        (unsigned long long)a, b->k->local);
        return local_of(w, lane) + a;
    case PTX_PARAM:
        if (a < PTX_BASE || a + bytes > PTX_BASE + b->k->args)
            lf_ptx_fail(w, i, lane, "%u bytes at %lld of %zu bytes of arguments", bytes,
                        (long long)a - PTX_BASE, b->k->args);
        return (char *)(uintptr_t)b->args + (a - PTX_BASE);
    case PTX_GENERIC: {
        char *p = (char *)(uintptr_t)a;
        if (in(p, b->smem, b->smem_bytes, bytes) || in(p, local_of(w, lane), b->k->local, bytes) ||
            in(p, b->args, b->k->args, bytes))
            return p;
        return global(w, i, lane, a, bytes);
    }
    default:
        return global(w, i, lane, a, bytes);
    }
}

/* ---- ld, st ---- */

/* A sum with a 32-bit register wraps at 32 bits: the compiler makes negative registers and large
 * displacements. */
static uint64_t address(const struct ptx_warp *w, const struct ptx_ins *i, unsigned k, int lane)
{
    if (i->imm2 == 4)
        return ((ptx_w *)PTX_O(w, i, k))[lane] + (uint32_t)i->imm;
    return ((ptx_d *)PTX_O(w, i, k))[lane] + (uint64_t)i->imm;
}

#define EACH_LANE                                                                                  \
    for (int l = 0; l < PTX_LANES; l++)                                                            \
        if (m >> l & 1)

static void load_any(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    EACH_LANE
    {
        const char *p = lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, l, address(w, i, i->vec, l),
                                  (uint32_t)(i->size * i->vec), (enum ptx_space)i->space);
        for (unsigned k = 0; k < i->vec; k++) {
            uint64_t v = 0;
            memcpy(&v, p + k * i->size, i->size);
            const int shift = 64 - 8 * i->size;
            if (i->sign)
                v = (uint64_t)((int64_t)(v << shift) >> shift);
            memcpy((char *)PTX_O(w, i, k) + l * i->reg, &v, i->reg);
        }
    }
}
static void store_any(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    EACH_LANE
    {
        char *p = lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, l, address(w, i, 0, l),
                            (uint32_t)(i->size * i->vec), (enum ptx_space)i->space);
        for (unsigned k = 0; k < i->vec; k++)
            memcpy(p + k * i->size, (char *)PTX_O(w, i, 1 + k) + l * i->reg, i->size);
    }
}
#define SAME_WIDTH(name, T)                                                                        \
    static void load_##name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)               \
    {                                                                                              \
        EACH_LANE                                                                                  \
        {                                                                                          \
            const T *p = (const T *)(const void *)lf_ptx_at(                                       \
                w, (struct ptx_ins *)(uintptr_t)i, l, address(w, i, i->vec, l),                    \
                (uint32_t)(sizeof(T) * i->vec), (enum ptx_space)i->space);                         \
            for (unsigned k = 0; k < i->vec; k++)                                                  \
                ((T *)PTX_O(w, i, k))[l] = p[k];                                                   \
        }                                                                                          \
    }                                                                                              \
    static void store_##name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)              \
    {                                                                                              \
        EACH_LANE                                                                                  \
        {                                                                                          \
            T *p =                                                                                 \
                (T *)(void *)lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, l, address(w, i, 0, l),  \
                                       (uint32_t)(sizeof(T) * i->vec), (enum ptx_space)i->space);  \
            for (unsigned k = 0; k < i->vec; k++)                                                  \
                p[k] = ((T *)PTX_O(w, i, 1 + k))[l];                                               \
        }                                                                                          \
    }
SAME_WIDTH(h, ptx_h)
SAME_WIDTH(w, ptx_w)
SAME_WIDTH(d, ptx_d)

/* The words of an opcode after its first. */
struct words {
    const char *at;
    size_t n;
};
static bool next(struct words *x)
{
    x->at += x->n;
    if (*x->at != '.')
        return false;
    x->at++;
    for (x->n = 0; x->at[x->n] && (x->at[x->n] != '.' || false); x->n++)
        ;
    return true;
}
static bool is(const struct words *x, const char *s)
{
    return strlen(s) == x->n && strncmp(x->at, s, x->n) == 0;
}

static bool space_word(const struct words *x, uint8_t *space)
{
    static const struct {
        const char *name;
        enum ptx_space space;
    } spaces[] = {{"global", PTX_GLOBAL},     {"shared", PTX_SHARED},      {"local", PTX_LOCAL},
                  {"param", PTX_PARAM},       {"shared::cta", PTX_SHARED}, {"const", PTX_CONST},
                  {"param::entry", PTX_PARAM}};
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
        if (is(x, spaces[k].name)) {
            *space = (uint8_t)spaces[k].space;
            return true;
        }
    return false;
}
static bool type_word(const struct words *x, struct ptx_ins *i)
{
    static const char kinds[] = "busf", *const bits[] = {"8", "16", "32", "64"};
    const char *kind = x->n ? strchr(kinds, x->at[0]) : NULL;
    for (int k = 0; kind && *kind && k < 4; k++)
        if (strlen(bits[k]) == x->n - 1 && strncmp(x->at + 1, bits[k], x->n - 1) == 0) {
            i->size = (uint8_t)(1 << k);
            i->sign = *kind == 's';
            return true;
        }
    return false;
}
/* Caches and volatile: nothing here keeps values elsewhere than in memory. */
static bool hint(const struct words *x)
{
    static const char *const known[] = {"ca",
                                        "cg",
                                        "cs",
                                        "lu",
                                        "cv",
                                        "wb",
                                        "wt",
                                        "nc",
                                        "volatile",
                                        "weak",
                                        "relaxed",
                                        "acquire",
                                        "release",
                                        "cta",
                                        "gpu",
                                        "sys",
                                        "L1::no_allocate",
                                        "L1::evict_last",
                                        "L1::evict_first",
                                        "L1::evict_normal",
                                        "L2::128B",
                                        "L2::256B",
                                        "L2::64B"};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (is(x, known[k]))
            return true;
    return false;
}

static void address_operand(struct ptx_parser *p, struct ptx_ins *i, int k, unsigned at)
{
    const struct ptx_operand *o = lf_ptx_operand(p, k);
    if (!o->memory)
        lf_ptx_refuse(p, "operand %d is no address", k);
    i->imm2 = o->is == OP_REG && o->bytes == 4 ? 4 : 8;
    if (o->is == OP_SYMBOL && o->symbol->space != i->space &&
        !(i->space == PTX_GLOBAL && o->symbol->space == PTX_CONST))
        lf_ptx_refuse(p, "%s lies in another space", o->name);
    i->o[at] = lf_ptx_slot(p, k, (unsigned)i->imm2);
    i->imm = o->is == OP_REG ? o->plus : 0; /* a symbol's is in the constant */
}

static bool load_store(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    const bool load = strncmp(op, "ld.", 3) == 0;
    if (!load && strncmp(op, "st.", 3) != 0)
        return false;
    i->vec = 1;
    for (struct words x = {op + 2, 0}; next(&x);) {
        if (i->size)
            return false; /* the type is last */
        if (is(&x, "v2") || is(&x, "v4") || is(&x, "v8"))
            i->vec = (uint8_t)(x.at[1] - '0');
        else if (!space_word(&x, &i->space) && !hint(&x) && !type_word(&x, i))
            return false;
    }
    if (!i->size || lf_ptx_operands(p) != i->vec + 1)
        return false;
    lf_ptx_new_operands(i, load ? i->vec : 0, i->vec + 1u);
    address_operand(p, i, load ? i->vec : 0, load ? i->vec : 0);
    const int first = load ? 0 : 1;
    for (int k = 0; k < i->vec; k++) {
        uint8_t reg;
        i->o[first + k] = lf_ptx_slot_wide(p, first + k, i->size, &reg);
        if (k && reg != i->reg)
            lf_ptx_refuse(p, "registers of several widths");
        i->reg = reg;
    }
    if (i->reg == i->size)
        i->fn = i->size == 2   ? (load ? load_h : store_h)
                : i->size == 4 ? (load ? load_w : store_w)
                               : (load ? load_d : store_d);
    else
        i->fn = load ? load_any : store_any;
    return true;
}

/* ---- atom, red: lanes one after the other, in ascending order; a result that depends on it
 * differs with LF_EMU_ORDER between warps ---- */

enum atomic { A_ADD, A_AND, A_OR, A_XOR, A_EXCH, A_MIN, A_MAX, A_CAS };

static uint64_t combined(enum atomic f, uint64_t a, uint64_t b, uint64_t c, const struct ptx_ins *i)
{
    const int shift = 64 - 8 * i->size;
    const int64_t sa = (int64_t)(a << shift) >> shift, sb = (int64_t)(b << shift) >> shift;
    switch (f) {
    case A_ADD:
        return a + b;
    case A_AND:
        return a & b;
    case A_OR:
        return a | b;
    case A_XOR:
        return a ^ b;
    case A_EXCH:
        return b;
    case A_MIN:
        return i->sign ? (sa < sb ? a : b) : a < b ? a : b;
    case A_MAX:
        return i->sign ? (sa > sb ? a : b) : a > b ? a : b;
    case A_CAS:
        return a == b ? c : a;
    }
    return 0;
}

static void atomic(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const unsigned at = i->nd;
    EACH_LANE
    {
        char *p = lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, l, address(w, i, at, l), i->size,
                            (enum ptx_space)i->space);
        uint64_t a = 0, b = 0, c = 0;
        memcpy(&a, p, i->size);
        memcpy(&b, (char *)PTX_O(w, i, at + 1) + l * i->size, i->size);
        if (i->n > at + 2)
            memcpy(&c, (char *)PTX_O(w, i, at + 2) + l * i->size, i->size);
        if (at)
            memcpy((char *)PTX_O(w, i, 0) + l * i->size, &a, i->size);
        a = combined((enum atomic)i->reg, a, b, c, i);
        memcpy(p, &a, i->size);
    }
}

static bool atomics(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const char *const names[] = {"add", "and", "or", "xor", "exch", "min", "max", "cas"};
    const bool gives = strncmp(op, "atom.", 5) == 0;
    if (!gives && strncmp(op, "red.", 4) != 0)
        return false;
    int f = -1;
    bool floating = false;
    for (struct words x = {op + (gives ? 4 : 3), 0}; next(&x);) {
        int k = 0;
        while (k < 8 && !is(&x, names[k]))
            k++;
        if (k < 8)
            f = k;
        else if (type_word(&x, i))
            floating = x.at[0] == 'f';
        else if (!space_word(&x, &i->space) && !hint(&x))
            return false;
    }
    if (f < 0 || floating || i->size < 4)
        return false; /* sums of floats depend on the order: no kernel of ours has them */
    const int n = lf_ptx_operands(p), sources = f == A_CAS ? 3 : 2;
    if (n != sources + gives)
        return false;
    lf_ptx_new_operands(i, gives, (unsigned)n);
    if (gives)
        i->o[0] = lf_ptx_slot(p, 0, i->size);
    address_operand(p, i, gives, gives);
    for (int k = gives + 1; k < n; k++)
        i->o[k] = lf_ptx_slot(p, k, i->size);
    i->reg = (uint8_t)f;
    i->fn = atomic;
    return true;
}

/* ---- cvta: a window's address to a generic one (to: the other way) ---- */

static void to_generic(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    ptx_d *d = PTX_O(w, i, 0);
    const ptx_d *a = PTX_O(w, i, 1);
    const struct ptx_block *b = w->b;
    EACH_LANE
    {
        const uint64_t base = i->space == PTX_SHARED  ? (uint64_t)(uintptr_t)b->smem - PTX_BASE
                              : i->space == PTX_LOCAL ? (uint64_t)(uintptr_t)local_of(w, l)
                              : i->space == PTX_PARAM ? (uint64_t)(uintptr_t)b->args - PTX_BASE
                                                      : 0;
        d[l] = i->imm ? a[l] - base : a[l] + base;
    }
}

static bool cvta(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (strncmp(op, "cvta.", 5) != 0)
        return false;
    struct words x = {op + 4, 0};
    next(&x);
    const bool to = is(&x, "to");
    if (to)
        next(&x);
    if (!space_word(&x, &i->space) || !next(&x) || !is(&x, "u64"))
        return false;
    i->fn = to_generic;
    i->passes_on = true;
    lf_ptx_signature(p, i, "Dd");
    i->imm = to;
    return true;
}

bool lf_ptx_decode_memory(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    return load_store(p, op, i) || atomics(p, op, i) || cvta(p, op, i);
}
