/* SPDX-License-Identifier: Apache-2.0
 *
 * cp.async (PTX ISA 9.7.9.25.3): a copy may be done at any time between its start and the end of
 * the wait for its group. So the destination is NaN from the start on, and has the source's bytes,
 * as they are then, at the wait.
 */
#include <stdlib.h>

#include "tests/cuda/ptx/ins.h"

/* cp.async [dst], [src], bytes, from: the bytes beyond `from` of the source are not read and become
 * zero. */
static void start(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    struct ptx_ins *x = (struct ptx_ins *)(uintptr_t)i;
    for (int l = 0; l < PTX_LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const uint32_t bytes = i->size, from = i->n > 2 ? ((ptx_w *)PTX_O(w, i, 2))[l] : bytes;
        const uint64_t to = ((ptx_w *)PTX_O(w, i, 0))[l] + (uint32_t)i->imm,
                       at = ((ptx_d *)PTX_O(w, i, 1))[l] + (uint64_t)i->imm2;
        struct ptx_copies *c = &w->copies[l];
        if (from > bytes)
            lf_ptx_fail(w, i, l, "%u bytes of %u", from, bytes);
        if (at % bytes)
            lf_ptx_fail(w, i, l, "%u bytes from 0x%llx, which is no multiple of that", bytes,
                        (unsigned long long)at);
        if (c->n == c->cap) {
            c->cap = c->cap ? 2 * c->cap : 16;
            c->copy = realloc(c->copy, (size_t)c->cap * sizeof *c->copy);
            if (!c->copy)
                abort();
        }
        char *dst = lf_ptx_at(w, x, l, to, bytes, PTX_SHARED);
        const char *src = from ? lf_ptx_at(w, x, l, at, bytes, PTX_GLOBAL) : NULL;
        c->copy[c->n++] = (struct ptx_copy){dst, src, (uint8_t)bytes, (uint8_t)from, -1};
        memset(dst, 0xff, bytes);
    }
}

static void commit(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    (void)i;
    for (int l = 0; l < PTX_LANES; l++)
        if (m >> l & 1) {
            struct ptx_copies *c = &w->copies[l];
            for (int k = 0; k < c->n; k++)
                if (c->copy[k].group < 0)
                    c->copy[k].group = c->groups;
            c->groups++;
        }
}

/* Until at most n of the newest groups are under way; n < 0: of none, committed or not
 * (wait_all). */
static void land(struct ptx_copies *c, int n)
{
    int left = 0;
    for (int k = 0; k < c->n; k++) {
        const struct ptx_copy x = c->copy[k];
        if (n >= 0 && (x.group < 0 || x.group >= c->groups - n)) {
            c->copy[left++] = x;
            continue;
        }
        memset(x.dst, 0, x.bytes);
        if (x.from)
            memcpy(x.dst, x.src, x.from);
    }
    c->n = left;
}
static void wait_group(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    for (int l = 0; l < PTX_LANES; l++)
        if (m >> l & 1)
            land(&w->copies[l], (int)i->imm);
}

void lf_ptx_copies_check(struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++)
        for (int l = 0; l < PTX_LANES; l++)
            if (b->warp[x].copies[l].n)
                lf_ptx_fail(&b->warp[x], &b->k->code[b->k->n - 1], l,
                            "asynchronous copies that nobody waited for");
}

static bool copy(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    const bool cg = strncmp(op, "cp.async.cg.shared", 18) == 0;
    if (!cg && strncmp(op, "cp.async.ca.shared", 18) != 0)
        return false;
    op += 18;
    if (strncmp(op, "::cta", 5) == 0)
        op += 5;
    const int n = lf_ptx_operands(p);
    if (strcmp(op, ".global") != 0 || n < 3 || n > 4 || !lf_ptx_operand(p, 0)->memory ||
        !lf_ptx_operand(p, 1)->memory)
        return false;
    const uint64_t bytes = lf_ptx_operand(p, 2)->bits;
    if (lf_ptx_operand(p, 2)->is != OP_IMM || !(bytes == 16 || (!cg && (bytes == 4 || bytes == 8))))
        lf_ptx_refuse(p, "a copy of another size");
    i->fn = start;
    i->size = (uint8_t)bytes;
    lf_ptx_new_operands(i, 0, n == 4 ? 3 : 2);
    i->o[0] = lf_ptx_slot(p, 0, 4);
    i->o[1] = lf_ptx_slot(p, 1, 8);
    i->imm = lf_ptx_operand(p, 0)->plus;
    i->imm2 = lf_ptx_operand(p, 1)->plus;
    if (n == 4)
        i->o[2] = lf_ptx_slot(p, 3, 4);
    return true;
}

bool lf_ptx_decode_async(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (copy(p, op, i))
        return true;
    if (strcmp(op, "cp.async.commit_group") == 0) {
        i->fn = commit;
        return true;
    }
    if (strcmp(op, "cp.async.wait_all") == 0 || strcmp(op, "cp.async.wait_group") == 0) {
        i->fn = wait_group;
        i->imm = op[14] == 'a' ? -1 : (int64_t)lf_ptx_operand(p, 0)->bits;
        return true;
    }
    return false;
}
