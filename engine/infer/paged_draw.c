/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens drawn where the logits are: see paged_draw.h.
 */
#include "engine/infer/paged_draw.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define STATE "draw" /* of the plan */
enum { LIST_OF_A_SLOT = 4096 /* entries; all slots share them */, ALIGN = 256 };

struct lf_paged_draw {
    lf_back *back;
    int64_t vocab; /* as recorded */
    lf_gen_draws asked; /* of the host */
    /* the plan's memory */
    struct lf_sample_row *row;
    struct lf_sample_token *list;
    struct lf_sample_out *out;
    void *work;
    size_t work_bytes;
    struct lf_captured *end; /* [buckets] */
    int buckets;
};

static void *part(unsigned char *base, size_t *at, size_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* Pointers into memory of so many bytes; 0: such tokens are not drawn there. base NULL: the bytes alone. */
static size_t layout(lf_paged_draw *d, const struct lf_kernels *k, int64_t slots, int64_t vocab, unsigned char *base)
{
    const struct lf_k_sample most = {.rows = slots, .v = vocab, .ldz = vocab};
    const size_t n = (size_t)slots;
    size_t at = 0;
    if (!k->sample.run || k->sample.check(&most) != LF_K_OK)
        return 0;
    d->row = part(base, &at, n * sizeof *d->row);
    d->list = part(base, &at, n * LIST_OF_A_SLOT * sizeof *d->list);
    d->out = part(base, &at, n * sizeof *d->out);
    d->work_bytes = k->sample.work(&most, 1);
    d->work = part(base, &at, d->work_bytes);
    return at;
}

int lf_paged_draw_plan(lf_plan *plan, int64_t slots, int64_t vocab, lf_err *err)
{
    lf_paged_draw d;
    const size_t bytes = lf_plan_target(plan)->sm ? layout(&d, lf_plan_kernels(plan), slots, vocab, NULL) : 0;
    return bytes ? lf_plan_state(plan, STATE, bytes, err) : 0;
}

static int take(lf_paged_draw *d, int64_t slots, lf_err *err)
{
    const size_t n = (size_t)slots, entries = n * LIST_OF_A_SLOT;
    lf_gen_draws *a = &d->asked;
    a->row = lf_calloc(n, sizeof *a->row, err);
    a->list = lf_calloc(entries, sizeof *a->list, err);
    a->out = lf_calloc(n, sizeof *a->out, err);
    a->cap_list = entries;
    d->end = lf_calloc((size_t)d->buckets, sizeof *d->end, err);
    return a->row && a->list && a->out && d->end ? 0 : LF_ENOMEM;
}

int lf_paged_draw_bind(lf_paged_draw **out, lf_exec *ex, lf_back *back, int64_t slots, int64_t vocab, int buckets, lf_err *err)
{
    unsigned char *memory = lf_exec_state(ex, STATE);
    *out = NULL;
    if (!memory)
        return 0;
    lf_paged_draw *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return LF_ENOMEM;
    d->back = back;
    d->vocab = d->asked.vocab = vocab;
    d->buckets = buckets;
    layout(d, back->kernels, slots, vocab, memory);
    int rc = take(d, slots, err);
    if (rc)
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
    free(d);
}

lf_gen_draws *lf_paged_draw_asked(lf_paged_draw *d) { return &d->asked; }

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
    return lf_fail(err, LF_EDEVICE, "tokens of %lld rows could not be drawn on %s: %s", (long long)s->rows, k->family, why);
}

int lf_paged_draw_run(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats, int64_t n_want, lf_err *err)
{
    const struct lf_back_ops *o = d->back->ops;
    const size_t rows = (size_t)stats->rows;
    lf_gen_draws *a = &d->asked;
    for (size_t i = (size_t)n_want; i < rows; i++)
        a->row[i] = (struct lf_sample_row){0};
    if (a->vocab != d->vocab) { /* an argument of the recorded launches; the memory is for the largest */
        forget(d);
        d->vocab = a->vocab;
    }
    int rc = o->copy_in(d->back, d->row, a->row, rows * sizeof *a->row, err);
    if (!rc && a->n_list)
        rc = o->copy_in(d->back, d->list, a->list, a->n_list * sizeof *a->list, err);
    if (!rc)
        rc = lf_back_run_captured(d->back, &d->end[bucket], issue, &(struct end){d, stats}, err);
    return rc ? rc : o->copy_out(d->back, a->out, d->out, (size_t)n_want * sizeof *a->out, err);
}
