/* SPDX-License-Identifier: Apache-2.0
 *
 * Expanding the rows of a family over the tensors of a model, and finding them in a file. */
#include "engine/convert/map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/graph/pstore.h"
#include "engine/model/decoder.h"

#define MAX_NAMED 6 /* tensors that one message names */

/* ---- what our model declares ---- */

static int declare(lf_map *m, const lf_model_config *c, lf_err *err)
{
    lf_decoder *d = lf_decoder_create(c, 1, err);
    lf_pstore *ps = d ? lf_pstore_create(err) : NULL;
    int rc = ps ? lf_decoder_declare(d, ps, err) : LF_EINVAL, n = rc == 0 ? lf_pstore_count(ps) : 0;
    if (rc == 0 && !(m->ours = lf_calloc((size_t)n, sizeof *m->ours, err)))
        rc = LF_ENOMEM;
    for (int i = 0; i < n && rc == 0; i++) {
        const struct lf_param_desc *p = lf_pstore_desc(ps, i);
        struct lf_map_ours *o = &m->ours[m->n_ours++];
        if (!(o->name = lf_arena_strdup(m->arena, p->name, err)))
            rc = LF_ENOMEM;
        o->ndim = p->ndim;
        for (int k = 0; k < p->ndim; k++)
            o->shape[k] = p->dims[k];
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    return rc;
}

static int cmp_ours(const void *a, const void *b)
{
    const struct lf_map_ours *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int find_ours(const lf_map *m, const char *name)
{
    struct lf_map_ours key = {.name = name};
    const struct lf_map_ours *o = bsearch(&key, m->ours, m->n_ours, sizeof key, cmp_ours);
    return o ? (int)(o - m->ours) : -1;
}

static int64_t rows_of(const struct lf_map_ours *o)
{
    int64_t n = o->shape[0];
    for (int k = 1; k < o->ndim - 1; k++)
        n *= o->shape[k];
    return n;
}

/* ---- conditions ---- */

bool lf_map_when(const char *when, const lf_model_config *c)
{
    bool holds = true;
    if (!when)
        return true;
    json_t *all = lf_model_config_to_json(c, NULL);
    for (const char *p = when; *p && holds;) {
        char cond[96], *eq;
        size_t n = strcspn(p, " ");
        snprintf(cond, sizeof cond, "%.*s", (int)n, p);
        if (!(eq = strchr(cond, '=')))
            LF_BUG("condition '%s'", when);
        bool unequal = eq > cond && eq[-1] == '!';
        eq[unequal ? -1 : 0] = 0;
        const char *have = json_string_value(json_object_get(all, cond));
        holds = (have && strcmp(have, eq + 1) == 0) != unequal;
        p += n + strspn(p + n, " ");
    }
    json_decref(all);
    return holds;
}

/* ---- expanding ---- */

struct place {
    int64_t layer, expert;
    const char *p; /* "weight", "bias" or NULL */
};

/* Pattern with its placeholders filled in. */
static char *fill_in(lf_map *m, const char *pattern, size_t len, const struct place *at,
                     lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < len; i++) {
        if (pattern[i] != '{' || i + 2 >= len || pattern[i + 2] != '}') {
            lf_buf_addc(&b, pattern[i]);
            continue;
        }
        if (pattern[i + 1] == 'L')
            lf_buf_addf(&b, "%lld", (long long)at->layer);
        else if (pattern[i + 1] == 'E')
            lf_buf_addf(&b, "%lld", (long long)at->expert);
        else
            lf_buf_adds(&b, at->p ? at->p : "");
        i += 2;
    }
    char *s = lf_buf_check(&b, err) == 0 ? lf_arena_strdup(m->arena, b.data, err) : NULL;
    lf_buf_fini(&b);
    return s;
}

static int add_seg(struct lf_map_parts *p, struct lf_map_seg s, lf_err *err)
{
    int rc = lf_grow(&p->segs, &p->cap, p->n, sizeof s, err);
    if (rc == 0)
        p->segs[p->n++] = s;
    return rc;
}

/* The same rows seen from both sides. */
static int join(lf_map *m, int item, int64_t item_at, int ours, int64_t ours_at, int64_t n,
                lf_err *err)
{
    int rc = add_seg(&m->of_item[item], (struct lf_map_seg){item_at, n, ours, ours_at}, err);
    return rc != 0
               ? rc
               : add_seg(&m->of_ours[ours], (struct lf_map_seg){ours_at, n, item, item_at}, err);
}

static int join_groups(lf_map *m, int i, const lf_model_config *c, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    int64_t d = c->head_dim, r = c->heads / c->kv_heads, rc = 0;
    if (it->n_ours != 3)
        LF_BUG("%s: q, k and v are three", it->row->outside);
    for (int64_t g = 0; g < c->kv_heads && rc == 0; g++) {
        int64_t at = g * (r + 2) * d;
        rc = join(m, i, at, it->ours[0], g * r * d, r * d, err);
        if (rc == 0)
            rc = join(m, i, at + r * d, it->ours[1], g * d, d, err);
        if (rc == 0)
            rc = join(m, i, at + (r + 1) * d, it->ours[2], g * d, d, err);
    }
    return (int)rc;
}

static int join_rows_of_3(lf_map *m, int i, const lf_model_config *c, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    int rc = 0;
    for (int64_t row = 0; row < c->heads * c->head_dim && rc == 0; row++)
        for (int k = 0; k < 3 && rc == 0; k++)
            rc = join(m, i, 3 * row + k, it->ours[k], row, 1, err);
    return rc;
}

/* Rows of expert e of each of ours in turn. */
static int join_experts(lf_map *m, int i, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    int64_t at = 0;
    int rc = 0;
    for (int64_t e = 0; e < it->shape[0] && rc == 0; e++)
        for (int k = 0; k < it->n_ours && rc == 0; k++) {
            const int64_t n = m->ours[it->ours[k]].shape[1];
            rc = join(m, i, at, it->ours[k], e * n, n, err);
            at += n;
        }
    return rc;
}

/* Blocks [rows of all, width] of ours, each turned: blocks [width, rows of all] outside. */
static int join_blocks(lf_map *m, int i, int64_t rows, int64_t width, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    const int64_t n = it->shape[0], all = rows * it->n_ours;
    int rc = 0;
    m->of_item[i].turned = true;
    m->of_item[i].blocks = (struct lf_map_blocks){n, width, all, width};
    for (int k = 0; k < it->n_ours && rc == 0; k++) {
        m->of_ours[it->ours[k]].turned = true;
        m->of_ours[it->ours[k]].blocks = (struct lf_map_blocks){n, rows, width, all};
        rc = join(m, i, k * rows, it->ours[k], 0, rows, err);
    }
    return rc;
}

static int join_item(lf_map *m, int i, const lf_model_config *c, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    int64_t at = 0;
    int rc = 0;
    switch (it->kind) {
    case LF_MAP_GROUPS:
        return join_groups(m, i, c, err);
    case LF_MAP_GROUPS_3:
        return join_rows_of_3(m, i, c, err);
    case LF_MAP_EXPERT: {
        int64_t n = rows_of(&m->ours[it->ours[0]]) / m->ours[it->ours[0]].shape[0];
        return join(m, i, 0, it->ours[0], it->expert * n, n, err);
    }
    case LF_MAP_EXPERTS:
        return join_experts(m, i, err);
    case LF_MAP_EXPERTS_T:
        return join_blocks(m, i, m->ours[it->ours[0]].shape[1], it->shape[1], err);
    case LF_MAP_CELLS: {
        const int64_t cells = c->projector.merge * c->projector.merge;
        return join_blocks(m, i, cells, it->shape[1] / cells, err);
    }
    case LF_MAP_TIED: /* compared only: covers nothing of ours */
        return add_seg(&m->of_item[i],
                       (struct lf_map_seg){0, rows_of(&m->ours[it->ours[0]]), it->ours[0], 0}, err);
    case LF_MAP_IGNORED:
        return 0;
    case LF_MAP_TURNED:
    case LF_MAP_STACK_T:
    case LF_MAP_COPY:
    case LF_MAP_STACK:
    case LF_MAP_VECTOR:
    case LF_MAP_LEAD:
    case LF_MAP_CONV:
    case LF_MAP_CONV_T:
        for (int k = 0; k < it->n_ours && rc == 0; k++) {
            const struct lf_map_ours *o = &m->ours[it->ours[k]];
            bool turned = (it->kind == LF_MAP_TURNED || it->kind == LF_MAP_STACK_T) && o->ndim == 2;
            m->of_item[i].turned = turned;
            m->of_ours[it->ours[k]].turned = turned;
            rc = join(m, i, at, it->ours[k], 0, rows_of(o), err);
            at += rows_of(o);
        }
        return rc;
    }
    return rc;
}

/* The shape of a tensor that has the elements of ours, in the same order. */
static bool shape_view(struct lf_map_item *it)
{
    const int64_t rows = it->shape[0], cols = it->shape[1];
    const int frames = it->kind == LF_MAP_CONV_T ? 2 : 1;
    const int64_t side = (int64_t)llround(sqrt((double)cols / 3 / frames));
    int64_t shape[LF_MAP_MAX_DIMS] = {rows, 3, frames, side, side};
    switch (it->kind) {
    case LF_MAP_VECTOR:
        it->ndim = 1;
        shape[0] = cols;
        break;
    case LF_MAP_LEAD:
        it->ndim = 3;
        memcpy(shape, (int64_t[]){1, rows, cols}, 3 * sizeof *shape);
        break;
    case LF_MAP_CONV:
        it->ndim = 4;
        memcpy(shape, (int64_t[]){rows, 3, side, side}, 4 * sizeof *shape);
        break;
    case LF_MAP_CONV_T:
        it->ndim = 5;
        break;
    default:
        return false;
    }
    it->width = cols;
    memcpy(it->shape, shape, sizeof shape);
    return true;
}

/* The shape an outside tensor must have. */
static void shape_item(const lf_map *m, struct lf_map_item *it)
{
    const struct lf_map_ours *o = it->n_ours ? &m->ours[it->ours[0]] : NULL;
    it->ndim = o ? o->ndim : -1;
    for (int k = 0; o && k < o->ndim; k++)
        it->shape[k] = o->shape[k];
    if (it->ndim == 2 && shape_view(it))
        return;
    if (it->kind == LF_MAP_EXPERT) {
        it->ndim--;
        memmove(it->shape, it->shape + 1, (size_t)it->ndim * sizeof it->shape[0]);
    }
    const bool experts = it->kind == LF_MAP_EXPERTS || it->kind == LF_MAP_EXPERTS_T,
               turned = it->kind == LF_MAP_TURNED || it->kind == LF_MAP_STACK_T;
    for (int k = 1; k < it->n_ours; k++)
        it->shape[experts] += m->ours[it->ours[k]].shape[experts];
    if ((turned && it->ndim == 2) || it->kind == LF_MAP_EXPERTS_T) {
        const int64_t in = it->shape[experts + 1];
        it->shape[experts + 1] = it->shape[experts];
        it->shape[experts] = in;
    }
    it->width = it->ndim > 1 ? it->shape[it->ndim - 1] : 1;
}

/* Our tensors of a row at one place: 1 all declared, 0 none, LF_EINVAL some. */
static int find_parts(lf_map *m, struct lf_map_item *it, const struct place *at, lf_err *err)
{
    int missing = 0;
    for (const char *p = it->row->ours; *p;) {
        size_t n = strcspn(p, " ");
        char *name = fill_in(m, p, n, at, err);
        if (!name)
            return LF_ENOMEM;
        if (it->n_ours == LF_MAP_MAX_PARTS)
            LF_BUG("%s: more than %d tensors", it->row->outside, LF_MAP_MAX_PARTS);
        int k = find_ours(m, name);
        missing += k < 0;
        it->ours[it->n_ours++] = k;
        p += n + strspn(p + n, " ");
    }
    if (missing && missing < it->n_ours)
        return lf_fail(err, LF_EINVAL, "%s holds %s, of which this model has only some", it->name,
                       it->row->ours);
    return !missing;
}

/* The name of a row as the file begins it. */
static const char *name_of(lf_map *m, const struct lf_map_row *row, const struct lf_map_form *form,
                           lf_err *err)
{
    const struct lf_map_name *best = NULL;
    for (size_t i = 0; i < form->n_names; i++)
        if (lf_str_has_prefix(row->outside, form->names[i].rows) &&
            (!best || strlen(form->names[i].rows) > strlen(best->rows)))
            best = &form->names[i];
    return best ? lf_arena_printf(m->arena, err, "%s%s", best->file,
                                  row->outside + strlen(best->rows))
                : row->outside;
}

static int add_item(lf_map *m, const struct lf_map_row *row, const char *name,
                    const struct place *at, lf_err *err)
{
    struct lf_map_item it = {.row = row, .kind = row->kind, .expert = at->expert, .source = -1};
    if (!(it.name = fill_in(m, name, strlen(name), at, err)))
        return LF_ENOMEM;
    if (row->kind != LF_MAP_IGNORED) {
        int rc = find_parts(m, &it, at, err);
        if (rc <= 0)
            return rc;
    }
    shape_item(m, &it);
    int rc = lf_grow(&m->items, &m->cap_items, m->n_items, sizeof it, err);
    if (rc == 0)
        m->items[m->n_items++] = it;
    return rc;
}

/* How often {L} and {E} count. */
struct counts {
    int64_t layers, experts;
};

static int expand(lf_map *m, const struct lf_map_row *row, const struct lf_map_form *form,
                  const struct counts *n, lf_err *err)
{
    static const char *const both[] = {"weight", "bias"};
    const bool layers = strstr(row->outside, "{L}"), each = strstr(row->outside, "{E}"),
               params = strstr(row->outside, "{P}");
    const char *name = name_of(m, row, form, err);
    int rc = name ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < (layers ? n->layers : 1) && rc == 0; l++)
        for (int64_t e = 0; e < (each ? n->experts : 1) && rc == 0; e++)
            for (int p = 0; p < (params ? 2 : 1) && rc == 0; p++)
                rc = add_item(m, row, name, &(struct place){l, e, params ? both[p] : NULL}, err);
    return rc;
}

static int cmp_item(const void *a, const void *b)
{
    const struct lf_map_item *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int cmp_seg(const void *a, const void *b)
{
    const struct lf_map_seg *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorted, without gaps or overlaps, `rows` in all. */
static bool covers(struct lf_map_parts *p, int64_t rows)
{
    int64_t at = 0;
    if (p->n)
        qsort(p->segs, p->n, sizeof *p->segs, cmp_seg);
    for (size_t i = 0; i < p->n; i++) {
        if (p->segs[i].at != at)
            return false;
        at += p->segs[i].n;
    }
    return at == rows;
}

static int check_cover(lf_map *m, lf_err *err)
{
    for (size_t i = 1; i < m->n_items; i++)
        if (strcmp(m->items[i - 1].name, m->items[i].name) == 0)
            return lf_fail(err, LF_EINVAL, "two rows name %s", m->items[i].name);
    for (size_t i = 0; i < m->n_ours; i++) {
        const struct lf_map_blocks *b = &m->of_ours[i].blocks;
        if (!covers(&m->of_ours[i], b->n ? b->rows : rows_of(&m->ours[i])))
            return lf_fail(err, LF_EINVAL, "%s %s", m->ours[i].name,
                           m->of_ours[i].n
                               ? "is not covered exactly once by the rows of this family"
                               : "has no row: models of this family have no such tensor");
    }
    for (size_t i = 0; i < m->n_items; i++)
        if (m->of_item[i].n > 1)
            qsort(m->of_item[i].segs, m->of_item[i].n, sizeof(struct lf_map_seg), cmp_seg);
    return 0;
}

/* {E} runs over as many experts as our stacked tensors have. */
static int64_t count_experts(const lf_map *m)
{
    for (size_t i = 0; i < m->n_ours; i++)
        if (m->ours[i].ndim == 3)
            return m->ours[i].shape[0];
    return 0;
}

/* Of every family: the head of a model with output = score, which no file has a prefix for. */
static const struct lf_map_row score_row = {"score.weight", LF_MAP_COPY, "score.weight", NULL};

static int expand_all(lf_map *m, const struct lf_map_form *form, const lf_model_config *c,
                      lf_err *err)
{
    const struct counts n = {c->layers > c->vision.layers ? c->layers : c->vision.layers,
                             count_experts(m)};
    if (n.layers > (int64_t)LF_ST_MAX_TENSORS / (n.experts + 1))
        return lf_fail(err, LF_EINVAL,
                       "%lld layers of %lld experts have more tensors than a file may have",
                       (long long)n.layers, (long long)n.experts);
    int rc = 0;
    for (size_t t = 0; t < form->n_tables; t++)
        for (const struct lf_map_row *r = form->tables[t]; r->outside && rc == 0; r++)
            if (lf_map_when(r->when, c))
                rc = expand(m, r, form, &n, err);
    return rc != 0 ? rc : expand(m, &score_row, form, &n, err);
}

int lf_map_build(lf_map *out, const struct lf_map_form *form, const lf_model_config *c, lf_err *err)
{
    lf_map m = {.arena = lf_arena_create(err)};
    int rc = m.arena ? declare(&m, c, err) : LF_ENOMEM;
    if (rc == 0)
        qsort(m.ours, m.n_ours, sizeof *m.ours, cmp_ours);
    if (rc == 0)
        rc = expand_all(&m, form, c, err);
    if (rc == 0 && m.n_items)
        qsort(m.items, m.n_items, sizeof *m.items, cmp_item);
    if (rc == 0 && (!(m.of_ours = lf_calloc(m.n_ours, sizeof *m.of_ours, err)) ||
                    !(m.of_item = lf_calloc(m.n_items + 1, sizeof *m.of_item, err))))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < m.n_items && rc == 0; i++)
        rc = join_item(&m, (int)i, c, err);
    if (rc == 0)
        rc = check_cover(&m, err);
    if (rc != 0) {
        lf_map_fini(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void lf_map_fini(lf_map *m)
{
    for (size_t i = 0; m->of_ours && i < m->n_ours; i++)
        free(m->of_ours[i].segs);
    for (size_t i = 0; m->of_item && i < m->n_items; i++)
        free(m->of_item[i].segs);
    free(m->of_ours);
    free(m->of_item);
    free(m->ours);
    free(m->items);
    lf_arena_destroy(m->arena);
    *m = (lf_map){0};
}

const struct lf_map_item *lf_map_find(const lf_map *m, const char *name)
{
    struct lf_map_item key = {.name = name};
    return m->n_items ? bsearch(&key, m->items, m->n_items, sizeof key, cmp_item) : NULL;
}

/* ---- binding ---- */

/* "a, b, c and 4 more" */
struct names {
    lf_buf b;
    size_t n;
};

static void add_name(struct names *v, const char *name)
{
    if (v->n < MAX_NAMED)
        lf_buf_addf(&v->b, "%s%.120s", v->n ? ", " : "", name);
    v->n++;
}

static const char *all_names(struct names *v)
{
    if (v->n > MAX_NAMED)
        lf_buf_addf(&v->b, " and %zu more", v->n - MAX_NAMED);
    return v->b.data;
}

static void add_shape(lf_buf *b, int ndim, const int64_t *shape)
{
    lf_buf_addc(b, '[');
    for (int k = 0; k < ndim; k++)
        lf_buf_addf(b, "%s%lld", k ? ", " : "", (long long)shape[k]);
    lf_buf_addc(b, ']');
}

static int check_shape(const struct lf_map_item *it, const lf_st_entry *e, lf_err *err)
{
    bool same = it->ndim < 0 || it->ndim == e->ndim;
    for (int k = 0; k < it->ndim && same; k++)
        same = it->shape[k] == e->shape[k];
    if (same)
        return 0;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "tensor %s is ", it->name);
    add_shape(&b, e->ndim, e->shape);
    lf_buf_adds(&b, " in the file, but config.json makes it ");
    add_shape(&b, it->ndim, it->shape);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "%s", b.data);
    lf_buf_fini(&b);
    return rc;
}

static int bind_all(lf_map *m, const lf_st *s, void (*canon)(char *, size_t, const char *),
                    struct names *missing, struct names *extra, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < lf_st_n_entries(s) && rc == 0; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        char name[512];
        if (canon)
            canon(name, sizeof name, e->name);
        const struct lf_map_item *found = lf_map_find(m, canon ? name : e->name);
        struct lf_map_item *it = found ? &m->items[found - m->items] : NULL;
        if (!it) {
            add_name(extra, e->name);
            continue;
        }
        if (it->source >= 0)
            return lf_fail(err, LF_EINVAL, "%s and %s are two tensors for one",
                           lf_st_entry_at(s, (size_t)it->source)->name, e->name);
        it->source = (int)i;
        rc = check_shape(it, e, err);
    }
    for (size_t i = 0; i < m->n_items && rc == 0; i++)
        if (m->items[i].source < 0 && m->items[i].kind != LF_MAP_TIED &&
            m->items[i].kind != LF_MAP_IGNORED)
            add_name(missing, m->items[i].name);
    return rc;
}

int lf_map_bind(lf_map *m, const lf_st *s, void (*canon)(char *out, size_t cap, const char *name),
                lf_err *err)
{
    struct names missing = {.n = 0}, extra = {.n = 0};
    lf_buf_init(&missing.b);
    lf_buf_init(&extra.b);
    int rc = bind_all(m, s, canon, &missing, &extra, err);
    if (rc == 0 && missing.n && extra.n)
        rc = lf_fail(err, LF_EINVAL, "missing: %s; and these have no place in this model: %s",
                     all_names(&missing), all_names(&extra));
    else if (rc == 0 && missing.n)
        rc = lf_fail(err, LF_EINVAL, "missing: %s", all_names(&missing));
    else if (rc == 0 && extra.n)
        rc = lf_fail(err, LF_EINVAL, "these tensors have no place in this model: %s",
                     all_names(&extra));
    lf_buf_fini(&missing.b);
    lf_buf_fini(&extra.b);
    return rc;
}
