/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of the loader: documents that must lie in one row, and what segments they become there. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

static const char *const holds[] = {
    [LF_ROWS_PLAIN] = "plain documents",
    [LF_ROWS_PAIRS] = "pairs of answers",
    [LF_ROWS_UNPAIRED] = "answers with a label",
    [LF_ROWS_PROMPTS] = "prompts without answers",
};

static uint32_t prompt_of(const lf_shardset *set, uint64_t doc)
{
    uint64_t n = lf_shardset_doc_len(set, doc), i = 0;
    while (i < n && !lf_shardset_trained(set, doc, i))
        i++;
    return (uint32_t)i;
}

/* Whose answer stands behind the prompt of `unit`. */
static uint64_t stranger(const struct lf_units *u, uint64_t unit)
{
    return (unit + u->n / 2) % u->n;
}

static uint64_t whole_len(const struct lf_units *u, uint64_t unit)
{
    uint64_t n = lf_shardset_doc_len(u->set, u->rows == LF_ROWS_PAIRS ? 2 * unit : unit);
    if (u->rows == LF_ROWS_PAIRS) {
        uint64_t m = lf_shardset_doc_len(u->set, 2 * unit + 1);
        return n && m ? n + m : 0;
    }
    if (!u->mismatched || !n)
        return n;
    uint64_t other = stranger(u, unit);
    return n + u->prompt[unit] + lf_shardset_doc_len(u->set, other) - u->prompt[other];
}

uint64_t lf_units_len(const void *units, uint64_t unit)
{
    const struct lf_units *u = units;
    if (u->split) /* of its target, or, without a source, of nothing */
        return u->prompt[unit] ? lf_shardset_doc_len(u->set, unit) - u->prompt[unit] : 0;
    if (u->alone) /* a whole row, or none */
        return lf_shardset_pictures(u->set, unit) ? u->T : 0;
    uint64_t n = whole_len(u, unit);
    return u->rows != LF_ROWS_PLAIN && n > u->T ? 0 : n;
}

bool lf_units_sees(const lf_shard_picture *p, const struct lf_units_cut *cut)
{
    return p->first >= cut->from && p->first < cut->to;
}

/* Adds what the pictures of a part weigh. */
static void weigh_part(const lf_shardset *set, const struct lf_units_cut *cut,
                       uint64_t weight[LF_PACK_AXES])
{
    for (uint64_t i = 0, n = lf_shardset_pictures(set, cut->doc); i < n; i++) {
        lf_shard_picture p;
        lf_shardset_picture_get(set, cut->doc, i, &p);
        if (!lf_units_sees(&p, cut))
            continue;
        weight[0] += (uint64_t)p.tiles * (uint64_t)p.grid_h * (uint64_t)p.grid_w;
        weight[1] += (uint64_t)p.tiles;
    }
}

int lf_units_cuts(const struct lf_units *u, const struct lf_unit_part *p,
                  struct lf_units_cut cut[LF_UNIT_PARTS])
{
    cut[0] = (struct lf_units_cut){.doc = p->seg.doc, .to = UINT64_MAX};
    if (!p->mismatched)
        return 1;
    cut[0].to = p->head;
    cut[1] = (struct lf_units_cut){
        .doc = p->other, .from = u->prompt[p->other], .to = UINT64_MAX, .at = p->head};
    return 2;
}

void lf_units_weigh(const void *units, uint64_t unit, uint64_t weight[LF_PACK_AXES])
{
    const struct lf_units *u = units;
    const uint64_t len = lf_units_len(u, unit);
    const lf_pack_seg seg = {.doc = unit, .len = (uint32_t)(len > u->T ? u->T : len)};
    struct lf_unit_part part[LF_UNIT_PARTS];
    struct lf_units_cut cut[LF_UNIT_PARTS];
    memset(weight, 0, LF_PACK_AXES * sizeof *weight);
    if (u->split) { /* with a token of the end */
        weight[0] = u->prompt[unit] + 1;
        return;
    }
    for (int i = len > 0 ? lf_units_parts(u, &seg, part) : 0; i-- > 0;)
        for (int k = lf_units_cuts(u, &part[i], cut); k-- > 0;)
            weigh_part(u->set, &cut[k], weight);
}

void lf_units_most(const lf_loader_config *c, uint32_t most[LF_PACK_AXES])
{
    most[0] = (uint32_t)(c->max_patches / c->B);
    most[1] = (uint32_t)(c->max_tiles / c->B);
}

void lf_units_media(struct lf_units *u, const lf_loader_config *c)
{
    const bool plain = u->rows == LF_ROWS_PLAIN || c->pictures;
    u->media = true;
    u->alone = c->pictures;
    if (u->alone) /* whatever its text is */
        u->dropped = 0;
    u->cut = 0;
    lf_units_most(c, u->most);
    for (uint64_t d = 0; d < u->n; d++) {
        uint64_t w[LF_PACK_AXES], n = lf_units_len(u, d);
        lf_units_weigh(u, d, w);
        for (int k = 0; k < LF_PACK_AXES; k++)
            u->needs[k] = w[k] > u->needs[k] ? w[k] : u->needs[k];
        const bool large = w[0] > u->most[0] || w[1] > u->most[1];
        /* units without a length are counted as dropped */
        u->left_out += plain ? n == 0 || n > u->T || large : n > 0 && large;
    }
}

static int find_prompts(struct lf_units *u, lf_err *err)
{
    if (!(u->prompt = lf_malloc(u->n, sizeof *u->prompt, err)))
        return LF_ENOMEM;
    for (uint64_t i = 0; i < u->n; i++)
        u->prompt[i] = prompt_of(u->set, i);
    return 0;
}

int lf_units_split(struct lf_units *u, const lf_loader_config *c, lf_err *err)
{
    int rc = find_prompts(u, err);
    u->split = rc == 0;
    u->cut = 0;
    u->most[0] = (uint32_t)c->seq2seq->source_length;
    for (uint64_t d = 0; d < u->n && rc == 0; d++) {
        const uint64_t n = lf_units_len(u, d);
        u->left_out += n == 0 || n > u->T || u->prompt[d] + 1 > u->most[0];
    }
    return rc;
}

int lf_units_open(struct lf_units *u, const lf_shardset *set, enum lf_rows rows, bool mismatched,
                  uint32_t T, const char *dir, lf_err *err)
{
    const lf_shard_info *info = lf_shardset_get_info(set);
    if (info->rows != rows)
        return lf_fail(err, LF_EINVAL, "%s holds %s, but %s are trained on here", dir,
                       holds[info->rows], holds[rows]);
    *u = (struct lf_units){.set = set,
                           .rows = rows,
                           .mismatched = mismatched && rows == LF_ROWS_UNPAIRED,
                           .T = T,
                           .n = rows == LF_ROWS_PAIRS ? info->n_docs / 2 : info->n_docs};
    if (u->mismatched) {
        if (u->n < 2)
            return lf_fail(err, LF_EINVAL, "%s: a stranger's answer needs at least two documents",
                           dir);
        if (find_prompts(u, err) != 0)
            return LF_ENOMEM;
    }
    for (uint64_t i = 0; i < u->n && rows != LF_ROWS_PLAIN; i++)
        u->dropped += lf_units_len(u, i) == 0;
    for (uint64_t i = 0; i < u->n && rows == LF_ROWS_PLAIN; i++)
        u->cut += lf_shardset_doc_len(set, i) > T;
    return 0;
}

void lf_units_fini(struct lf_units *u)
{
    free(u->prompt);
}

int32_t lf_units_most_parts(enum lf_rows rows, bool mismatched)
{
    return rows == LF_ROWS_PAIRS || (rows == LF_ROWS_UNPAIRED && mismatched) ? LF_UNIT_PARTS : 1;
}

uint32_t lf_units_bound(const lf_loader_config *c)
{
    int32_t n = (lf_loader_segs(c) - 1) / lf_units_most_parts(c->rows, c->mismatched) + 1;
    n -= lf_loader_splits(c); /* a row may have padding on the axis that the index does not see */
    return n < 2 ? 2 : (uint32_t)n; /* T = 2: one unit of two segments, and no padding */
}

size_t lf_units_bytes(const lf_loader_config *c, uint64_t docs)
{
    const size_t n = (size_t)(docs + 1) * sizeof(uint64_t);
    const bool prompts = (c->rows == LF_ROWS_UNPAIRED && c->mismatched) || lf_loader_splits(c);
    return prompts ? n + (size_t)docs * sizeof(uint32_t) : n;
}

int lf_units_parts(const struct lf_units *u, const lf_pack_seg *seg,
                   struct lf_unit_part part[LF_UNIT_PARTS])
{
    memset(part, 0, LF_UNIT_PARTS * sizeof *part);
    part[0].seg = part[1].seg = *seg;
    if (u->rows == LF_ROWS_PAIRS) {
        for (unsigned i = 0; i < 2; i++) {
            uint64_t doc = 2 * seg->doc + i;
            part[i].seg = (lf_pack_seg){
                .doc = doc, .len = (uint32_t)lf_shardset_doc_len(u->set, doc), .last = true};
        }
        return 2;
    }
    if (u->split)
        part[0].seg.first = u->prompt[seg->doc];
    if (!u->mismatched)
        return 1;
    uint64_t other = stranger(u, seg->doc);
    part[0].seg.len = (uint32_t)lf_shardset_doc_len(u->set, seg->doc);
    part[1].seg.len = seg->len - part[0].seg.len;
    part[1].mismatched = true;
    part[1].head = u->prompt[seg->doc];
    part[1].other = other;
    return part[1].seg.len > 0 ? 2 : 1;
}

int lf_units_fill_mismatched(const struct lf_units *u, const struct lf_unit_part *p,
                             int32_t *tokens, int32_t *targets, lf_err *err)
{
    const uint32_t head = p->head, from = u->prompt[p->other], tail = p->seg.len - head;
    int rc = lf_shardset_read(u->set, p->seg.doc, 0, head, tokens, err);
    if (rc == 0)
        rc = lf_shardset_read(u->set, p->other, from, tail, tokens + head, err);
    for (uint32_t i = 0; i < p->seg.len; i++)
        targets[i] = -1;
    for (uint32_t i = 0; i < tail; i++)
        if (head + i > 0 && lf_shardset_trained(u->set, p->other, from + i))
            targets[head + i - 1] = tokens[head + i];
    return rc;
}
