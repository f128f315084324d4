/* SPDX-License-Identifier: Apache-2.0
 *
 * A column chunk as entries: repetition level, definition level, and a value where the definition
 * level is the highest.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/parquet/parquet_priv.h"

int lf_pq_mem_need(struct lf_pq_mem *m, size_t n, lf_err *err)
{
    if (n <= m->cap && m->p)
        return 0;
    free(m->p); /* what was there is not wanted any more */
    m->cap = 0;
    m->p = lf_malloc(n, 1, err);
    if (!m->p)
        return LF_ENOMEM;
    m->cap = n;
    return 0;
}

int lf_pq_fail(const struct lf_pq_leaf *l, lf_err *err, int rc, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return lf_fail(err, rc, "%s: row group %zu, column %.200s, page at byte %lld: %s",
                   l->file->path, l->file->next_group ? l->file->next_group - 1 : 0, l->node->path,
                   (long long)l->page_at, text);
}

void lf_pq_leaf_begin(struct lf_pq_leaf *l)
{
    l->has_dict = l->there = l->begun = false;
    l->n_dict = 0;
    l->page_n = l->page_left = 0;
}

void lf_pq_leaf_fini(struct lf_pq_leaf *l)
{
    free(l->dict.p);
    free(l->head.p);
    free(l->page.p);
    free(l->packed.p);
    free(l->dict_at);
    lf_buf_fini(&l->text);
}

int lf_pq_leaf_peek(struct lf_pq_leaf *l, lf_err *err)
{
    uint32_t rep = 0, def = 0;
    if (l->there)
        return 1;
    if (l->page_left == 0) {
        int rc = lf_pq_page_next(l, err);
        if (rc <= 0)
            return rc;
    }
    if ((l->max_rep > 0 && !lf_pq_hybrid_next(&l->reps, &rep)) ||
        (l->max_def > 0 && !lf_pq_hybrid_next(&l->defs, &def)))
        return lf_pq_fail(l, err, LF_EFORMAT, "its levels end too early");
    if (rep > (uint32_t)l->max_rep || def > (uint32_t)l->max_def)
        return lf_pq_fail(l, err, LF_EFORMAT, "a level is above the column's highest");
    l->rep = (int)rep;
    l->def = (int)def;
    l->there = true;
    return 1;
}

int lf_pq_leaf_take(struct lf_pq_leaf *l, struct lf_pq_value *v, lf_err *err)
{
    l->there = false;
    l->page_left--;
    if (l->def < l->max_def)
        return 0;
    if (!l->begun) { /* a page of nulls has no values, not even the head of a stream */
        int rc = lf_pq_values_begin(l, err);
        if (rc < 0)
            return rc;
        l->begun = true;
    }
    return lf_pq_values_next(l, v, err);
}
