/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens drawn where the logits are: see paged_draw.h.
 */
#include "engine/infer/paged_draw.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define STATE "draw" /* of the plan */
enum {
    LIST_OF_A_SLOT = 4096 /* entries */,
    ALIGN = 256,
    FIRST_LATE = LF_BACK_LATE_SLOTS - LF_GEN_AHEAD
};

struct lf_paged_draw {
    lf_back *back;
    int64_t vocab;      /* as recorded */
    lf_gen_draws asked; /* of the host */
    /* the plan's memory */
    struct lf_sample_row *row;
    struct lf_sample_token *list; /* [slots, LIST_OF_A_SLOT] */
    struct lf_sample_out
        *out;      /* [slots + max_rows]: behind what was drawn, tokens that the host knows */
    int32_t *from; /* [max_rows] places of a step's tokens there */
    void *work;
    size_t work_bytes;
    int64_t slots, max_rows;
    struct lf_sample_token *there; /* what list holds, and how much of a slot's part is known to */
    int64_t *n_there;              /* [slots] */
    struct lf_sample_out *known;   /* [max_rows] of the host, and where they lie */
    int32_t *place;
    int64_t begun[LF_GEN_AHEAD]; /* answers of a step, the oldest at `oldest` */
    int n_begun, oldest;
    struct lf_captured *end; /* [buckets] */
    int buckets;
};

static void *part(unsigned char *base, size_t *at, size_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* Pointers into memory of so many bytes; 0: such tokens are not drawn there. base NULL: the bytes
 * alone. */
static size_t layout(lf_paged_draw *d, const struct lf_kernels *k,
                     const struct lf_paged_draw_size *size, unsigned char *base)
{
    const struct lf_k_sample most = {.rows = size->slots, .v = size->vocab, .ldz = size->vocab};
    const size_t n = (size_t)size->slots, rows = (size_t)size->max_rows;
    size_t at = 0;
    if (!k->sample.run || k->sample.check(&most) != LF_K_OK)
        return 0;
    d->row = part(base, &at, n * sizeof *d->row);
    d->list = part(base, &at, n * LIST_OF_A_SLOT * sizeof *d->list);
    d->out = part(base, &at, (n + rows) * sizeof *d->out);
    d->from = part(base, &at, rows * sizeof *d->from);
    d->work_bytes = k->sample.work(&most, 1);
    d->work = part(base, &at, d->work_bytes);
    return at;
}

int lf_paged_draw_plan(lf_plan *plan, const struct lf_paged_draw_size *size, lf_err *err)
{
    lf_paged_draw d;
    const size_t bytes =
        lf_plan_target(plan)->sm ? layout(&d, lf_plan_kernels(plan), size, NULL) : 0;
    return bytes ? lf_plan_state(plan, STATE, bytes, err) : 0;
}

static int take(lf_paged_draw *d, lf_err *err)
{
    const size_t n = (size_t)d->slots, entries = n * LIST_OF_A_SLOT;
    lf_gen_draws *a = &d->asked;
    a->row = lf_calloc(n, sizeof *a->row, err);
    a->list = lf_calloc(entries, sizeof *a->list, err);
    a->out = lf_calloc(n, sizeof *a->out, err);
    a->room = LIST_OF_A_SLOT;
    d->there = lf_calloc(entries, sizeof *d->there, err);
    d->n_there = lf_calloc(n, sizeof *d->n_there, err);
    d->end = lf_calloc((size_t)d->buckets, sizeof *d->end, err);
    d->known = lf_calloc((size_t)d->max_rows, sizeof *d->known, err);
    d->place = lf_calloc((size_t)d->max_rows, sizeof *d->place, err);
    return a->row && a->list && a->out && d->end && d->known && d->place && d->there && d->n_there
               ? 0
               : LF_ENOMEM;
}

int lf_paged_draw_bind(lf_paged_draw **out, lf_exec *ex, lf_back *back,
                       const struct lf_paged_draw_size *size, int buckets, lf_err *err)
{
    unsigned char *memory = lf_exec_state(ex, STATE);
    *out = NULL;
    if (!memory)
        return 0;
    lf_paged_draw *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return LF_ENOMEM;
    d->back = back;
    d->vocab = d->asked.vocab = size->vocab;
    d->buckets = buckets;
    d->slots = size->slots;
    d->max_rows = size->max_rows;
    layout(d, back->kernels, size, memory);
    int rc = take(d, err);
    if (rc != 0)
        lf_paged_draw_destroy(d);
    else
        *out = d;
    return rc;
}

static void forget(lf_paged_draw *d)
{
    for (int i = 0; d->end && i < d->buckets; i++)
        lf_back_forget_captured(d->back, &d->end[i]);
}

void lf_paged_draw_destroy(lf_paged_draw *d)
{
    if (!d)
        return;
    forget(d);
    free(d->asked.row);
    free(d->asked.list);
    free(d->asked.out);
    free(d->end);
    free(d->there);
    free(d->n_there);
    free(d->known);
    free(d->place);
    free(d);
}

lf_gen_draws *lf_paged_draw_asked(lf_paged_draw *d)
{
    return &d->asked;
}

/* ---- a step ---- */

struct end {
    const lf_paged_draw *d;
    const struct lf_k_logit_stats *stats;
};

static int issue(const void *user, lf_err *err)
{
    const lf_paged_draw *d = ((const struct end *)user)->d;
    const struct lf_k_logit_stats *s = ((const struct end *)user)->stats;
    const struct lf_kernels *k = d->back->kernels;
    const struct lf_k_sample a = {.rows = s->rows,
                                  .v = d->vocab,
                                  .ldz = s->ldz,
                                  .z = s->z,
                                  .lse = s->lse,
                                  .row = d->row,
                                  .list = d->list,
                                  .out = d->out,
                                  .work = d->work,
                                  .work_bytes = d->work_bytes};
    char why[300] = "";
    if (k->logit_stats.check(s) == LF_K_OK && k->logit_stats.run(d->back->queue, s) == LF_K_OK &&
        k->sample.run(d->back->queue, &a) == LF_K_OK)
        return 0;
    if (d->back->ops->failure)
        d->back->ops->failure(d->back, why, sizeof why);
    return lf_fail(err, LF_EDEVICE, "tokens of %lld rows could not be drawn on %s: %s",
                   (long long)s->rows, k->family, why);
}

static bool same(const struct lf_sample_token *a, const struct lf_sample_token *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* no padding */
}

/* What a row's list has that is not there yet, from the first such entry to the last. */
static int put_list(lf_paged_draw *d, const struct lf_sample_row *row, lf_err *err)
{
    const struct lf_sample_token *list = d->asked.list + row->list_at;
    struct lf_sample_token *there = d->there + row->list_at;
    int64_t *known = &d->n_there[row->list_at / LIST_OF_A_SLOT], from = 0, to = row->list_n;
    while (from < to && from < *known && same(&list[from], &there[from]))
        from++;
    while (to > from && to <= *known && same(&list[to - 1], &there[to - 1]))
        to--;
    if (from == to)
        return 0;
    memcpy(there + from, list + from, (size_t)(to - from) * sizeof *list);
    *known = to > *known ? to : *known;
    return d->back->ops->copy_in(d->back, d->list + row->list_at + from, list + from,
                                 (size_t)(to - from) * sizeof *list, err);
}

/* As the kernel did it. */
static void note(lf_paged_draw *d, const struct lf_sample_row *row, int32_t token)
{
    struct lf_sample_token *there = d->there + row->list_at;
    int64_t *known = &d->n_there[row->list_at / LIST_OF_A_SLOT];
    int32_t i = 0;
    while (i < row->list_n && there[i].id != token)
        i++;
    if (i < row->list_n) {
        there[i].count = there[i].count < 0 ? 1 : there[i].count + 1;
        return;
    }
    there[i] = (struct lf_sample_token){0, token, 1};
    *known = i + 1 > *known ? i + 1 : *known;
}

static void note_all(lf_paged_draw *d, int64_t n_want)
{
    const lf_gen_draws *a = &d->asked;
    for (int64_t i = 0; i < n_want; i++)
        if (a->row[i].on == LF_SAMPLE_NOTE && a->out[i].token >= 0)
            note(d, &a->row[i], a->out[i].token);
}

/* After a failure nobody knows what lists hold. */
static int unknown(lf_paged_draw *d, int rc)
{
    memset(d->n_there, 0, (size_t)d->slots * sizeof *d->n_there);
    return rc;
}

/* What the step asks goes there, and the launches follow. */
static int draw(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats, int64_t n_want,
                lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    const size_t rows = (size_t)stats->rows;
    lf_gen_draws *a = &d->asked;
    for (size_t i = (size_t)n_want; i < rows; i++)
        a->row[i] = (struct lf_sample_row){0};
    if (a->vocab !=
        d->vocab) { /* an argument of the recorded launches; the memory is for the largest */
        forget(d);
        d->vocab = a->vocab;
    }
    int rc = o->copy_in(d->back, d->row, a->row, rows * sizeof *a->row, err);
    for (int64_t i = 0; i < n_want && rc == 0; i++)
        if (a->row[i].on && a->row[i].list_n)
            rc = put_list(d, &a->row[i], err);
    return rc != 0 ? rc
                   : lf_back_run_captured(d->back, &d->end[bucket], issue, &(struct end){d, stats},
                                          err);
}

int lf_paged_draw_run(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats,
                      int64_t n_want, lf_err *err)
{
    int rc = draw(d, bucket, stats, n_want, err);
    if (rc == 0)
        rc = d->back->ops->copy_out(d->back, d->asked.out, d->out, (size_t)n_want * sizeof *d->out,
                                    err);
    if (rc != 0)
        return unknown(d, rc);
    note_all(d, n_want);
    return 0;
}

/* ---- steps that are read later ---- */

bool lf_paged_draw_ahead(const lf_paged_draw *d)
{
    return d->back->ops->late_begin && (size_t)d->slots * sizeof *d->out <= LF_BACK_LATE_BYTES &&
           d->back->kernels->gather_rows.run;
}

int lf_paged_draw_begin(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats,
                        int64_t n_want, lf_err *err)
{
    const int slot = (d->oldest + d->n_begun) % LF_GEN_AHEAD;
    if (d->n_begun == LF_GEN_AHEAD)
        return lf_fail(err, LF_EINVAL, "%d steps are begun", LF_GEN_AHEAD);
    for (int64_t i = 0; i < n_want; i++)
        if (d->asked.row[i].on ==
            LF_SAMPLE_NOTE) /* nobody here would know what the list then says */
            return lf_fail(err, LF_EINVAL,
                           "a draw that notes its token, in a step that is read later");
    int rc = n_want ? draw(d, bucket, stats, n_want, err) : 0;
    if (rc == 0 && n_want)
        rc = d->back->ops->late_begin(d->back, FIRST_LATE + slot, d->out,
                                      (size_t)n_want * sizeof *d->out, err);
    if (rc != 0)
        return unknown(d, rc);
    d->begun[slot] = n_want;
    d->n_begun++;
    return 0;
}

int lf_paged_draw_end(lf_paged_draw *d, struct lf_sample_out *out, lf_err *err)
{
    const int slot = d->oldest;
    if (!d->n_begun)
        return lf_fail(err, LF_EINVAL, "no step is begun");
    d->oldest = (d->oldest + 1) % LF_GEN_AHEAD;
    d->n_begun--;
    return d->begun[slot] ? d->back->ops->late_end(d->back, FIRST_LATE + slot, out,
                                                   (size_t)d->begun[slot] * sizeof *out, err)
                          : 0;
}

int lf_paged_draw_tokens(lf_paged_draw *d, int32_t *to, const int32_t *token, int64_t rows,
                         lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    const struct lf_k_gather_rows gather = {.rows = rows,
                                            .c = 1,
                                            .ldx = sizeof *d->out / sizeof *to,
                                            .ldy = 1,
                                            .x = d->out,
                                            .index = d->from,
                                            .y = to,
                                            .x_type = LF_I32};
    bool any = false;
    for (int64_t r = 0; r < rows; r++) {
        const bool known = token[r] >= 0 || token[r] == LF_GEN_PICTURE;
        d->known[r].token = token[r] == LF_GEN_PICTURE ? -1 : token[r];
        d->place[r] = known ? (int32_t)(d->slots + r) : -1 - token[r];
        any = any || known;
    }
    int rc =
        any ? o->copy_in(d->back, d->out + d->slots, d->known, (size_t)rows * sizeof *d->known, err)
            : 0;
    if (rc == 0)
        rc = o->copy_in(d->back, d->from, d->place, (size_t)rows * sizeof *d->place, err);
    if (rc != 0 || d->back->kernels->gather_rows.run(d->back->queue, &gather) == LF_K_OK)
        return rc;
    return lf_fail(err, LF_EDEVICE, "tokens of %lld rows could not be taken on %s", (long long)rows,
                   d->back->kernels->family);
}
