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
#include "engine/model/vision.h"

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

static int64_t width_of(const struct lf_map_ours *o)
{
    return o->ndim > 1 ? o->shape[o->ndim - 1] : 1;
}

static int64_t rows_of(const struct lf_map_ours *o)
{
    int64_t n = o->shape[0];
    for (int k = 1; k < o->ndim - 1; k++)
        n *= o->shape[k];
    return n;
}

/* ---- conditions ---- */

#define OF_LAYER "mixer" /* not a key, but the letter of a layer */

/* Does what `when` says of the mixer hold for a layer? */
static bool holds_in(const char *when, const lf_model_config *c, int64_t layer)
{
    const char *at = when ? strstr(when, OF_LAYER "=") : NULL;
    return !at || lf_model_layer_mixer(c, layer) == at[strlen(OF_LAYER "=")];
}

bool lf_map_when(const char *when, const lf_model_config *c)
{
    bool holds = true;
    if (!when)
        return true;
    for (const char *p = when; *p && holds;) {
        char cond[96], *eq;
        size_t n = strcspn(p, " ");
        snprintf(cond, sizeof cond, "%.*s", (int)n, p);
        if (!(eq = strchr(cond, '=')))
            LF_BUG("condition '%s'", when);
        bool unequal = eq > cond && eq[-1] == '!';
        eq[unequal ? -1 : 0] = 0;
        holds = strcmp(cond, OF_LAYER) == 0 || lf_model_config_is(c, cond, eq + 1) != unequal;
        p += n + strspn(p + n, " ");
    }
    return holds;
}

/* ---- expanding ---- */

/* How often {L}, {E} and {M} count, and the keys of [model]. */
struct scope {
    int64_t layers, experts, heads;
    const lf_model_config *config;
    json_t *keys;
};

struct place {
    const struct scope *in;
    int64_t layer, expert, head;
    const char *p; /* "weight", "bias" or NULL */
};

/* Of the layer's stage: its number (S), that of the next one (T), the layer within it (B). */
static int64_t in_stages(const struct place *at, char what)
{
    const lf_vision_config *v = &at->in->config->vision;
    const int64_t stage = lf_vision_stage_at(v, at->layer);
    return what == 'B' ? at->layer - lf_vision_stage_of(v, stage).first : stage + (what == 'T');
}

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
        else if (pattern[i + 1] == 'N')
            lf_buf_addf(&b, "%lld", (long long)at->in->config->layers);
        else if (pattern[i + 1] == 'M')
            lf_buf_addf(&b, "%lld", (long long)at->head);
        else if (strchr("STB", pattern[i + 1]))
            lf_buf_addf(&b, "%lld", (long long)in_stages(at, pattern[i + 1]));
        else if (pattern[i + 1] == 'H')
            lf_buf_addf(&b, "%lld", (long long)(at->in->config->layers + at->head));
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

/* The same rows seen from both sides: s is a segment of the outside tensor. */
static int join(lf_map *m, int item, struct lf_map_seg s, lf_err *err)
{
    if (s.step == s.n && s.src_step == s.n) { /* one piece */
        s.n *= s.times;
        s.times = 1;
        s.step = s.src_step = s.n;
    }
    const struct lf_map_seg back = {s.src_at, s.n, item, s.at, s.times, s.src_step, s.step};
    int rc = add_seg(&m->of_item[item], s, err);
    return rc != 0 ? rc : add_seg(&m->of_ours[s.src], back, err);
}

/* Rows [at, at + n) of the outside tensor are those from ours_at on. */
static struct lf_map_seg rows_at(int64_t at, int64_t n, int ours, int64_t ours_at)
{
    return (struct lf_map_seg){at, n, ours, ours_at, 1, n, n};
}

/* Blocks of ours [rows, width] are columns of blocks [width, all] outside. */
static void turn(lf_map *m, int i, int ours, int64_t blocks, int64_t rows, int64_t width,
                 int64_t all)
{
    m->of_item[i].width = all;
    m->of_item[i].blocks = (struct lf_map_blocks){blocks, width, width, true};
    m->of_ours[ours].width = width;
    m->of_ours[ours].blocks = (struct lf_map_blocks){blocks, rows, all, false};
}

static int join_cells(lf_map *m, int i, int64_t cells, lf_err *err)
{
    const int ours = m->items[i].ours[0];
    const struct lf_map_ours *o = &m->ours[ours];
    turn(m, i, ours, o->shape[0], cells, o->shape[1] / cells, cells);
    return join(m, i, rows_at(0, cells, ours, 0), err);
}

/* A column of ours has D numbers of patch (row r, column c), number 2 c + r; the outside tensor has
 * the four of a channel beside each other, number 2 r + c. */
static int join_merge(lf_map *m, int i, lf_err *err)
{
    const int ours = m->items[i].ours[0];
    const struct lf_map_ours *o = &m->ours[ours];
    int rc = 0;
    turn(m, i, ours, o->shape[0], 4, o->shape[1] / 4, 4);
    for (int64_t k = 0; k < 4 && rc == 0; k++)
        rc = join(m, i, rows_at(k, 1, ours, k / 2 + k % 2 * 2), err);
    return rc;
}

static bool is_stack(enum lf_map_kind k)
{
    return k == LF_MAP_STACK || k == LF_MAP_STACK_T || k == LF_MAP_DEPTHWISE;
}

/* Rows of o in a block, and elements of each of them. */
static int64_t stack_rows(const struct lf_map_item *it, const struct lf_map_ours *o)
{
    return o->shape[it->blocks > 0];
}

static int64_t stack_width(const struct lf_map_item *it, const struct lf_map_ours *o)
{
    return o->ndim > 1 + (it->blocks > 0) ? width_of(o) : 1;
}

static bool is_turned(const struct lf_map_item *it, const struct lf_map_ours *o)
{
    return it->kind == LF_MAP_STACK_T && o->ndim > 1 + (it->blocks > 0);
}

static int join_stack(lf_map *m, int i, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    const struct lf_map_ours *o = &m->ours[it->ours[0]];
    const int64_t blocks = it->blocks ? it->blocks : 1, width = stack_width(it, o);
    const bool turned = is_turned(it, o);
    int64_t all = 0, at = 0;
    int rc = 0;
    for (int k = 0; k < it->n_ours; k++)
        all += stack_rows(it, &m->ours[it->ours[k]]);
    m->of_item[i].width = width;
    for (int k = 0; k < it->n_ours && rc == 0; k++) {
        const int64_t rows = stack_rows(it, &m->ours[it->ours[k]]), n = rows / it->groups;
        m->of_ours[it->ours[k]].width = width;
        if (turned)
            turn(m, i, it->ours[k], blocks, rows, width, all);
        rc = join(m, i,
                  (struct lf_map_seg){at, n, it->ours[k], 0, it->groups * (turned ? 1 : blocks),
                                      all / it->groups, n},
                  err);
        at += n;
    }
    return rc;
}

/* Row (colour, y, x) of ours is row (y, x, colour) outside. */
static int join_pixels(lf_map *m, int i, lf_err *err)
{
    const int ours = m->items[i].ours[0];
    const int64_t n = rows_of(&m->ours[ours]), square = n / 3;
    int rc = n % 3 ? lf_fail(err, LF_EINVAL, "%s: %lld numbers of a patch are not of three colours",
                             m->items[i].name, (long long)n)
                   : 0;
    m->of_ours[ours].width = width_of(&m->ours[ours]);
    for (int64_t colour = 0; colour < 3 && rc == 0; colour++)
        rc = join(m, i, (struct lf_map_seg){colour, 1, ours, colour * square, square, 3, 1}, err);
    return rc;
}

static int join_item(lf_map *m, int i, const lf_model_config *c, lf_err *err)
{
    const struct lf_map_item *it = &m->items[i];
    const struct lf_map_ours *o = it->n_ours ? &m->ours[it->ours[0]] : NULL;
    if (o)
        m->of_item[i].width = width_of(o);
    switch (it->kind) {
    case LF_MAP_STACK:
    case LF_MAP_STACK_T:
    case LF_MAP_DEPTHWISE:
        return join_stack(m, i, err);
    case LF_MAP_EXPERT: {
        int64_t n = rows_of(o) / o->shape[0];
        return join(m, i, rows_at(0, n, it->ours[0], it->expert * n), err);
    }
    case LF_MAP_PIXELS:
        return join_pixels(m, i, err);
    case LF_MAP_CELLS:
        return join_cells(m, i, c->projector.merge * c->projector.merge, err);
    case LF_MAP_MERGE:
        return join_merge(m, i, err);
    case LF_MAP_TIED: /* compared only: covers nothing of ours */
        return add_seg(&m->of_item[i], rows_at(0, rows_of(o), it->ours[0], 0), err);
    case LF_MAP_IGNORED:
    case LF_MAP_LEFT_OUT:
        return 0;
    case LF_MAP_COPY:
    case LF_MAP_VECTOR:
    case LF_MAP_LEAD:
    case LF_MAP_INNER:
    case LF_MAP_SCALAR:
    case LF_MAP_CONV:
    case LF_MAP_CONV_T:
    case LF_MAP_PLANE:
        return join(m, i, rows_at(0, rows_of(o), it->ours[0], 0), err);
    }
    return 0;
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
    case LF_MAP_MERGE:
        it->ndim = 4;
        memcpy(shape, (int64_t[]){rows, cols / 4, 2, 2}, 4 * sizeof *shape);
        break;
    case LF_MAP_PLANE:
        it->ndim = 4;
        shape[1] = 1;
        shape[2] = shape[3] = (int64_t)llround(sqrt((double)cols));
        break;
    case LF_MAP_CONV_T:
        it->ndim = 5;
        break;
    default:
        return false;
    }
    memcpy(it->shape, shape, sizeof shape);
    return true;
}

/* The shape an outside tensor must have. */
static void shape_item(const lf_map *m, struct lf_map_item *it)
{
    const struct lf_map_ours *o = it->n_ours ? &m->ours[it->ours[0]] : NULL;
    const int rows = it->blocks > 0; /* the dimension that counts the rows of a stack */
    it->ndim = o ? o->ndim : -1;
    for (int k = 0; o && k < o->ndim; k++)
        it->shape[k] = o->shape[k];
    if (it->ndim == 2 && shape_view(it))
        return;
    if (it->ndim == 1 && it->kind == LF_MAP_LEAD) { /* a row; ours counts elements */
        memcpy(it->shape, (int64_t[]){1, o->shape[0]}, 2 * sizeof *it->shape);
        it->ndim = 2;
        return;
    }
    if (it->ndim == 1 && it->kind == LF_MAP_INNER) {
        memcpy(it->shape, (int64_t[]){1, 1, o->shape[0], 1}, 4 * sizeof *it->shape);
        it->ndim = 4;
        return;
    }
    if (it->kind == LF_MAP_SCALAR)
        it->ndim = 0;
    if (it->kind == LF_MAP_EXPERT) {
        it->ndim--;
        memmove(it->shape, it->shape + 1, (size_t)it->ndim * sizeof it->shape[0]);
    }
    for (int k = 1; k < it->n_ours; k++)
        it->shape[rows] += m->ours[it->ours[k]].shape[rows];
    if (o && is_turned(it, o)) {
        const int64_t in = it->shape[rows + 1];
        it->shape[rows + 1] = it->shape[rows];
        it->shape[rows] = in;
    }
    if (it->kind == LF_MAP_DEPTHWISE) {
        it->shape[2] = it->shape[1];
        it->shape[1] = 1;
        it->ndim = 3;
    }
}

/* Next word of a list, its length in *n; NULL: none. */
static const char *next_word(const char **list, size_t *n)
{
    const char *p = *list + strspn(*list, " ");
    *n = strcspn(p, " ");
    *list = p + *n;
    return *n ? p : NULL;
}

/* Our tensors of a row at one place: 1 all declared, 0 none, LF_EINVAL some. */
static int find_parts(lf_map *m, struct lf_map_item *it, const struct place *at, lf_err *err)
{
    int missing = 0;
    size_t n;
    for (const char *list = it->row->ours, *p; (p = next_word(&list, &n));) {
        if (memchr(p, '=', n))
            continue;
        char *name = fill_in(m, p, n, at, err);
        if (!name)
            return LF_ENOMEM;
        if (it->n_ours == LF_MAP_MAX_PARTS)
            LF_BUG("%s: more than %d tensors", it->row->outside, LF_MAP_MAX_PARTS);
        int k = find_ours(m, name);
        missing += k < 0;
        it->ours[it->n_ours++] = k;
    }
    if (missing && missing < it->n_ours)
        return lf_fail(err, LF_EINVAL, "%s holds %s, of which this model has only some", it->name,
                       it->row->ours);
    if (it->n_ours != 1 && !is_stack(it->kind))
        LF_BUG("%s: only a stack has several tensors", it->row->outside);
    return !missing;
}

/* ---- groups and blocks ---- */

/* Keys that can have another value in each layer. */
static const struct {
    const char *key;
    int64_t (*in)(const lf_model_config *c, int64_t layer);
} by_layer[] = {{"kv_heads", lf_model_layer_kv_heads}, {"head_dim", lf_model_layer_head_dim}};

/* A number, the rows of a tensor of ours, or a key of [model] in layer at->layer. */
static int factor(lf_map *m, const struct lf_map_item *it, const char *text, size_t n,
                  const struct place *at, int64_t *out, lf_err *err)
{
    char *name = fill_in(m, text, n, at, err);
    const int k = name ? find_ours(m, name) : -1;
    if (!name)
        return LF_ENOMEM;
    if (k >= 0) {
        *out = stack_rows(it, &m->ours[k]);
        return 0;
    }
    for (size_t i = 0; i < sizeof by_layer / sizeof *by_layer; i++)
        if (strcmp(name, by_layer[i].key) == 0) {
            *out = by_layer[i].in(at->in->config, at->layer);
            return 0;
        }
    const char *value = json_string_value(json_object_get(at->in->keys, name));
    if (lf_parse_i64(out, value ? value : name, NULL) != 0 || *out <= 0)
        return lf_fail(err, LF_EINVAL,
                       "%s: '%s' counts nothing: no number, key of [model] or tensor of this model "
                       "that is above 0 (%s)",
                       it->name, name, it->row->ours);
    return 0;
}

static int product(lf_map *m, const struct lf_map_item *it, const char *text, size_t n,
                   const struct place *at, int64_t *out, lf_err *err)
{
    int64_t all = 1, x = 0;
    for (size_t i = 0, len; i < n; i += len + 1) {
        const char *star = memchr(text + i, '*', n - i);
        len = star ? (size_t)(star - text) - i : n - i;
        int rc = factor(m, it, text + i, len, at, &x, err);
        if (rc != 0)
            return rc;
        if (__builtin_mul_overflow(all, x, &all))
            return lf_fail(err, LF_EINVAL, "%s: %.*s is too large", it->name, (int)n, text);
    }
    *out = all;
    return 0;
}

static int read_counts(lf_map *m, struct lf_map_item *it, const struct place *at, lf_err *err)
{
    int rc = 0;
    size_t n;
    it->groups = 1;
    for (const char *list = it->row->ours, *p; rc == 0 && (p = next_word(&list, &n));) {
        static const char blocks[] = "blocks=", groups[] = "groups=";
        const size_t skip = sizeof blocks - 1;
        if (!memchr(p, '=', n))
            continue;
        if (!is_stack(it->kind) || n <= skip ||
            (strncmp(p, blocks, skip) != 0 && strncmp(p, groups, skip) != 0))
            LF_BUG("%s: '%.*s'", it->row->outside, (int)n, p);
        rc = product(m, it, p + skip, n - skip, at, *p == 'b' ? &it->blocks : &it->groups, err);
    }
    return rc;
}

/* Do all tensors of a stack divide as its row says? */
static int check_stack(const lf_map *m, const struct lf_map_item *it, lf_err *err)
{
    const struct lf_map_ours *first = &m->ours[it->ours[0]];
    for (int k = 0; k < it->n_ours; k++) {
        const struct lf_map_ours *o = &m->ours[it->ours[k]];
        const int dims = o->ndim - (it->blocks > 0);
        if (it->blocks && (dims < 1 || o->shape[0] != it->blocks))
            return lf_fail(err, LF_EINVAL, "%s is no %lld blocks, which %s has (%s)", o->name,
                           (long long)it->blocks, it->name, it->row->ours);
        if (dims > 2 || (it->kind == LF_MAP_DEPTHWISE && (dims != 2 || it->blocks)) ||
            o->ndim != first->ndim || stack_width(it, o) != stack_width(it, first))
            return lf_fail(err, LF_EINVAL, "%s and %s do not make one tensor %s (%s)", first->name,
                           o->name, it->name, it->row->ours);
        if (stack_rows(it, o) % it->groups)
            return lf_fail(err, LF_EINVAL,
                           "%s has %lld rows, no multiple of the %lld groups of %s (%s)", o->name,
                           (long long)stack_rows(it, o), (long long)it->groups, it->name,
                           it->row->ours);
    }
    return 0;
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
    if (row->kind != LF_MAP_IGNORED && row->kind != LF_MAP_LEFT_OUT) {
        int rc = find_parts(m, &it, at, err);
        if (rc <= 0)
            return rc;
        rc = read_counts(m, &it, at, err);
        if (rc == 0 && is_stack(it.kind))
            rc = check_stack(m, &it, err);
        if (rc != 0)
            return rc;
    }
    shape_item(m, &it);
    int rc = lf_grow(&m->items, &m->cap_items, m->n_items, sizeof it, err);
    if (rc == 0)
        m->items[m->n_items++] = it;
    return rc;
}

bool lf_map_of_head(const struct lf_map_row *row)
{
    return strstr(row->outside, "{M}") || strstr(row->outside, "{H}");
}

static int expand(lf_map *m, const struct lf_map_row *row, const struct lf_map_form *form,
                  const struct scope *in, lf_err *err)
{
    static const char *const both[] = {"weight", "bias"};
    const bool layers = strstr(row->outside, "{L}") || strstr(row->outside, "{S}") ||
                        strstr(row->outside, "{T}"),
               each = strstr(row->outside, "{E}"), params = strstr(row->outside, "{P}"),
               heads = lf_map_of_head(row);
    const char *name = name_of(m, row, form, err);
    const int64_t rows = heads ? in->heads : layers ? in->layers : 1;
    int rc = name ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < rows && rc == 0; l++)
        for (int64_t e = 0;
             holds_in(row->when, in->config, l) && e < (each ? in->experts : 1) && rc == 0; e++)
            for (int p = 0; p < (params ? 2 : 1) && rc == 0; p++)
                rc = add_item(m, row, name,
                              &(struct place){in, l, e, heads ? l : 0, params ? both[p] : NULL},
                              err);
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

/* Sorted, without gaps or overlaps, `rows` in all. Rows of ours do not alternate. */
static bool covers(struct lf_map_parts *p, int64_t rows)
{
    int64_t at = 0;
    if (p->n)
        qsort(p->segs, p->n, sizeof *p->segs, cmp_seg);
    for (size_t i = 0; i < p->n; i++) {
        const struct lf_map_seg *s = &p->segs[i];
        if (s->at != at || s->step != s->n)
            return false;
        at += s->n * s->times;
    }
    return at == rows;
}

/* A tensor that has a row of its own in some layers is ignored in the others alone. The items are
 * sorted, and nothing refers to them yet. */
static void drop_ignored(lf_map *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_items; i++) {
        const bool again = n && strcmp(m->items[n - 1].name, m->items[i].name) == 0;
        if (again && m->items[n - 1].kind == LF_MAP_IGNORED)
            m->items[n - 1] = m->items[i];
        else if (!again || m->items[i].kind != LF_MAP_IGNORED)
            m->items[n++] = m->items[i];
    }
    m->n_items = n;
}

static int check_cover(lf_map *m, lf_err *err)
{
    for (size_t i = 1; i < m->n_items; i++)
        if (strcmp(m->items[i - 1].name, m->items[i].name) == 0)
            return lf_fail(err, LF_EINVAL, "two rows name %s", m->items[i].name);
    for (size_t i = 0; i < m->n_ours; i++) {
        struct lf_map_parts *p = &m->of_ours[i];
        const int64_t elems = rows_of(&m->ours[i]) * width_of(&m->ours[i]);
        if (!covers(p, p->blocks.n ? p->blocks.rows : elems / p->width))
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

/* Of every family: the head of a model with output = score, which no file has a prefix for, and of
 * decoders with output = labels. */
static const struct lf_map_row score_rows[] = {
    {"score.weight", LF_MAP_COPY, "score.weight", NULL},
    {"score.{P}", LF_MAP_COPY, "labels.{P}", "mask!=both"},
};

static int expand_all(lf_map *m, const struct lf_map_form *form, const lf_model_config *c,
                      lf_err *err)
{
    const int64_t sees = c->vision.layers > c->mae.layers ? c->vision.layers : c->mae.layers;
    const int64_t text = c->layers + (form->heads_are_layers ? c->mtp_layers : 0);
    const int64_t seen = c->encoder_layers > sees ? c->encoder_layers : sees;
    const struct scope in = {text > seen ? text : seen, count_experts(m), c->mtp_layers, c,
                             lf_model_config_to_json(c, err)};
    int rc = in.keys ? 0 : LF_ENOMEM;
    if (rc == 0 && in.layers > (int64_t)LF_ST_MAX_TENSORS / (in.experts + 1))
        rc = lf_fail(err, LF_EINVAL,
                     "%lld layers of %lld experts have more tensors than a file may have",
                     (long long)in.layers, (long long)in.experts);
    for (size_t t = 0; t < form->n_tables; t++)
        for (const struct lf_map_row *r = form->tables[t]; r->outside && rc == 0; r++)
            if (lf_map_when(r->when, c))
                rc = expand(m, r, form, &in, err);
    for (size_t i = 0; i < sizeof score_rows / sizeof *score_rows && rc == 0; i++)
        if (lf_map_when(score_rows[i].when, c))
            rc = expand(m, &score_rows[i], form, &in, err);
    json_decref(in.keys);
    return rc;
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
    drop_ignored(&m);
    if (rc == 0 && (!(m.of_ours = lf_calloc(m.n_ours, sizeof *m.of_ours, err)) ||
                    !(m.of_item = lf_calloc(m.n_items + 1, sizeof *m.of_item, err))))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < m.n_ours && rc == 0; i++)
        m.of_ours[i].width = width_of(&m.ours[i]);
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

bool lf_map_keeps(const struct lf_map_form *form, const char *name)
{
    for (const char *const *k = form->kept; k && *k; k++)
        if (lf_str_has_prefix(name, *k))
            return true;
    return false;
}

/* The row that leaves tensors of this name out; NULL: none. */
static struct lf_map_item *find_left_out(lf_map *m, const char *name)
{
    for (size_t i = 0; i < m->n_items; i++)
        if (m->items[i].kind == LF_MAP_LEFT_OUT && lf_str_has_prefix(name, m->items[i].name))
            return &m->items[i];
    return NULL;
}

/* A tied tensor of which the file has the second copy alone, as transformers 5 writes those of
 * XLM-R: that one stands for the first. */
static void take_copies(lf_map *m)
{
    for (size_t i = 0; i < m->n_items; i++) {
        struct lf_map_item *copy = &m->items[i];
        for (size_t k = 0; copy->kind == LF_MAP_TIED && copy->source >= 0 && k < m->n_items; k++) {
            struct lf_map_item *it = &m->items[k];
            if (it->kind == LF_MAP_COPY && it->source < 0 && it->ours[0] == copy->ours[0]) {
                it->source = copy->source;
                copy->source = -1;
            }
        }
    }
}

static int bind_all(lf_map *m, const lf_st *s, const struct lf_map_form *form,
                    void (*canon)(char *, size_t, const char *), struct names *missing,
                    struct names *extra, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < lf_st_n_entries(s) && rc == 0; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        char name[512];
        if (canon)
            canon(name, sizeof name, e->name);
        const struct lf_map_item *found = lf_map_find(m, canon ? name : e->name);
        struct lf_map_item *it = found ? &m->items[found - m->items] : NULL,
                           *left = found ? NULL : find_left_out(m, canon ? name : e->name);
        if (left) {
            left->left++;
            continue;
        }
        if (!it) {
            if (!lf_map_keeps(form, e->name))
                add_name(extra, e->name);
            continue;
        }
        if (it->source >= 0)
            return lf_fail(err, LF_EINVAL, "%s and %s are two tensors for one",
                           lf_st_entry_at(s, (size_t)it->source)->name, e->name);
        it->source = (int)i;
        rc = check_shape(it, e, err);
    }
    if (rc == 0)
        take_copies(m);
    for (size_t i = 0; i < m->n_items && rc == 0; i++)
        if (m->items[i].source < 0 && m->items[i].kind != LF_MAP_TIED &&
            m->items[i].kind != LF_MAP_IGNORED && m->items[i].kind != LF_MAP_LEFT_OUT)
            add_name(missing, m->items[i].name);
    return rc;
}

int lf_map_bind(lf_map *m, const lf_st *s, const struct lf_map_form *form,
                void (*canon)(char *out, size_t cap, const char *name), lf_err *err)
{
    struct names missing = {.n = 0}, extra = {.n = 0};
    lf_buf_init(&missing.b);
    lf_buf_init(&extra.b);
    int rc = bind_all(m, s, form, canon, &missing, &extra, err);
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
