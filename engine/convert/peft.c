/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules of an outside program that carry an adapter, from the mapping rows of its family. */
#include <stdlib.h>
#include <string.h>

#include "engine/convert/peft_priv.h"

int lf_peft_open(struct lf_peft *p, const lf_model_config *mc, const lf_st *st, lf_err *err)
{
    p->arena = lf_arena_create(err);
    p->family = p->arena ? lf_hf_family_for(mc, NULL, err) : NULL;
    if (!p->family || !(p->dec = lf_decoder_create(mc, 1, err)) || !(p->ps = lf_pstore_create(err)))
        return err && err->rc ? err->rc : LF_EINVAL;
    int rc = lf_decoder_declare(p->dec, p->ps, err);
    struct lf_map_form form;
    if (rc == 0)
        rc = lf_hf_form_program(&form, p->family, mc, st, LF_PEFT_BEFORE, err);
    if (rc == 0)
        rc = lf_map_build(&p->map, &form, mc, err);
    p->mapped = rc == 0;
    return rc;
}

void lf_peft_close(struct lf_peft *p)
{
    if (p->mapped)
        lf_map_fini(&p->map);
    lf_pstore_destroy(p->ps);
    lf_decoder_destroy(p->dec);
    lf_arena_destroy(p->arena);
}

/* Does the adapter whose A is that of `weight` belong to tensor i? weight: a tensor, or a group as
 * a whole. */
static bool covers(const struct lf_peft *p, const char *weight, int i)
{
    const int first = lf_pstore_adapter_first(p->ps, i);
    return strcmp(lf_pstore_desc(p->ps, first < 0 ? i : first)->name, weight) == 0 ||
           (first < 0 && strcmp(lf_pstore_desc(p->ps, i)->group, weight) == 0);
}

/* Row of the unit at which tensor `name` of the store begins; -1: it is no part of it. */
static int64_t offset_in(const struct lf_peft *p, const char *weight, const char *name)
{
    int64_t at = 0;
    for (int i = 0; i < lf_pstore_count(p->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, i);
        if (!covers(p, weight, i))
            continue;
        if (strcmp(d->name, name) == 0)
            return at;
        at += d->dims[0];
    }
    return -1;
}

/* The outside tensor whose rows are those of the unit, all of them and no other. */
static int find_item(const struct lf_peft *p, const char *weight, int64_t rows, lf_err *err)
{
    for (size_t k = 0; k < p->map.n_items; k++) {
        const struct lf_map_parts *parts = &p->map.of_item[k];
        int64_t inside = 0, all = 0;
        for (size_t s = 0; s < parts->n; s++) {
            const int64_t n = parts->segs[s].n * parts->segs[s].times;
            all += n;
            if (offset_in(p, weight, p->map.ours[parts->segs[s].src].name) >= 0)
                inside += n;
        }
        if (!inside || p->map.items[k].kind == LF_MAP_TIED)
            continue;
        if (inside == all && all == rows)
            return (int)k;
        return lf_fail(err, LF_ENOTSUP,
                       "the adapter of %s and module %s of %s do not have the same rows: %s in "
                       "that program, so adapt them so "
                       "(lora_targets)",
                       weight, p->map.items[k].name, p->family->name,
                       inside < all ? "several of these are one module (qkv, gate_up, in, or parts "
                                      "joined by +, as q+gate)"
                                    : "its parts are modules of their own");
    }
    return lf_fail(err, LF_ENOTSUP, "family %s has no module for %s", p->family->name, weight);
}

static const char *stem_of(struct lf_peft *p, const char *name, const char *end, lf_err *err)
{
    return lf_arena_printf(p->arena, err, "%.*s", (int)(strlen(name) - strlen(end)), name);
}

const char *lf_peft_module(struct lf_peft *p, const char *name, lf_err *err)
{
    const char *at;
    const struct lf_hf_family *f = p->family->sight ? p->family->sight->text : p->family;
    for (const struct lf_hf_module *m = f->modules; m && m->file; m++)
        if ((at = strstr(name, m->file)) != NULL)
            name = lf_arena_printf(p->arena, err, "%.*s%s%s", (int)(at - name), name, m->program,
                                   at + strlen(m->file));
    return name ? stem_of(p, name, ".weight", err) : NULL;
}

/* The B that the store has: one of all rows, or one of each member that reads this A. */
static int find_parts(struct lf_peft *p, struct lf_peft_unit *u, const char *weight, lf_err *err)
{
    const bool apart = lf_pstore_find(p->ps, weight) >= 0;
    u->part = lf_arena_alloc(p->arena, LF_ADAPTER_MEMBERS, sizeof *u->part, err);
    for (int i = 0; i < lf_pstore_count(p->ps) && u->part; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, i);
        if (!covers(p, weight, i))
            continue;
        const char *stem = apart ? stem_of(p, d->name, ".weight", err) : u->stem;
        if (!stem)
            return LF_ENOMEM;
        if (apart || !u->n_parts)
            u->part[u->n_parts++] = (struct lf_peft_part){stem, u->rows, 0};
        u->part[u->n_parts - 1].rows += d->dims[0];
        u->rows += d->dims[0];
    }
    return u->part ? 0 : LF_ENOMEM;
}

/* a: the description of an A. */
static int make_unit(struct lf_peft *p, struct lf_peft_unit *u, const struct lf_param_desc *a,
                     lf_err *err)
{
    u->stem = stem_of(p, a->name, ".lora_A", err);
    char *weight = u->stem ? lf_arena_printf(p->arena, err, "%s.weight", u->stem) : NULL;
    if (!weight || find_parts(p, u, weight, err))
        return LF_ENOMEM;
    const int k = find_item(p, weight, u->rows, err);
    if (k < 0)
        return k;
    const struct lf_map_parts *parts = &p->map.of_item[k];
    u->turned = parts->blocks.n > 0;
    u->cols = p->map.ours[parts->segs[0].src].shape[1];
    u->module = lf_peft_module(p, p->map.items[k].name, err);
    u->row = lf_arena_alloc(p->arena, (size_t)u->rows, sizeof *u->row, err);
    if (!u->module || !u->row)
        return LF_ENOMEM;
    for (size_t s = 0; s < parts->n; s++) {
        const struct lf_map_seg *g = &parts->segs[s];
        const int64_t off = offset_in(p, weight, p->map.ours[g->src].name);
        for (int64_t i = 0; i < g->n * g->times; i++)
            u->row[g->at + i / g->n * g->step + i % g->n] =
                off + g->src_at + i / g->n * g->src_step + i % g->n;
    }
    return 0;
}

int lf_peft_units(struct lf_peft *p, lf_err *err)
{
    int rc = lf_decoder_adapt(p->dec, p->ps, &p->ac, err);
    const int count = lf_pstore_count(p->ps);
    p->unit = rc != 0 ? NULL : lf_arena_alloc(p->arena, (size_t)count, sizeof *p->unit, err);
    if (rc == 0 && !p->unit)
        rc = LF_ENOMEM;
    for (int i = 0; i < count && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(p->ps, i);
        if (d->adapter && d->ndim == 2 && strcmp(strrchr(d->name, '.'), ".lora_A") == 0)
            rc = make_unit(p, &p->unit[p->n++], d, err);
    }
    return rc != 0 ? rc : lf_peft_find_stacks(p, err);
}
