/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of several stages: their sizes, and what they may not have. */
#include <math.h>

#include "engine/model/vision.h"

int64_t lf_vision_stages(const lf_vision_config *c)
{
    return c->stage_layers.n > 0 ? c->stage_layers.n : 1;
}

/* A side of n cells behind k merges. An odd row or column is merged with zeros, but a convolution
 * of 2 x 2 steps over it. */
static int64_t side_behind(const lf_vision_config *c, int64_t k)
{
    int64_t side = c->grid;
    for (int64_t i = 0; i < k; i++)
        side = c->merge_norm == LF_MERGE_EACH ? side / 2 : (side + 1) / 2;
    return side;
}

struct lf_vision_stage lf_vision_stage_of(const lf_vision_config *c, int64_t s)
{
    struct lf_vision_stage t = {.layers = c->layers,
                                .width = c->hidden,
                                .heads = c->heads,
                                .head_dim = c->head_dim,
                                .ffn = c->ffn};
    if (!c->stage_layers.n)
        return t;
    for (int64_t i = 0; i < s; i++)
        t.first += (int64_t)c->stage_layers.v[i];
    t.layers = (int64_t)c->stage_layers.v[s];
    t.width = (int64_t)c->stage_widths.v[s];
    t.heads = c->stage_heads.n ? (int64_t)c->stage_heads.v[s] : c->heads;
    t.head_dim = t.heads ? t.width / t.heads : 0;
    t.ffn = c->ffn * t.width / c->hidden;
    t.side = side_behind(c, s);
    return t;
}

int64_t lf_vision_stage_at(const lf_vision_config *c, int64_t layer)
{
    int64_t s = 0, end = c->stage_layers.n ? (int64_t)c->stage_layers.v[0] : c->layers;
    while (s + 1 < c->stage_layers.n && layer >= end)
        end += (int64_t)c->stage_layers.v[++s];
    return s;
}

int64_t lf_vision_pictures(const lf_vision_config *c, const struct lf_vision_rows *r)
{
    return c->grid ? r->patches / (c->grid * c->grid) : r->images;
}

int64_t lf_vision_stage_rows(const lf_vision_config *c, const struct lf_vision_rows *r, int64_t s)
{
    const int64_t side = side_behind(c, s);
    return s ? lf_vision_pictures(c, r) * side * side : r->rows;
}

int64_t lf_vision_end_rows(const lf_vision_config *c, const struct lf_vision_rows *r)
{
    return lf_vision_stage_rows(c, r, lf_vision_stages(c) - 1);
}

void lf_vision_settle(lf_vision_config *c)
{
    const int64_t n = c->stage_layers.n;
    for (int64_t i = 0, given = c->layers; i < n && !given; i++)
        c->layers += (int64_t)c->stage_layers.v[i];
    if (n && c->stage_widths.n == n && !c->hidden)
        c->hidden = (int64_t)c->stage_widths.v[n - 1];
    if (n && c->stage_heads.n == n && !c->heads)
        c->heads = (int64_t)c->stage_heads.v[n - 1];
    if (!c->head_dim && c->heads)
        c->head_dim = c->hidden / c->heads;
    double largest = 0;
    for (int64_t i = 0; i < c->trained_windows.n; i++)
        largest = fmax(largest, c->trained_windows.v[i]);
    if (!(largest > 0)) /* each has its own: nothing need be said */
        c->trained_windows = (lf_model_list){0};
}

/* ---- what does not go together ---- */

static int check_counts(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *key;
        const lf_model_list *list;
    } lists[] = {{"stage_layers", &c->stage_layers},
                 {"stage_widths", &c->stage_widths},
                 {"stage_heads", &c->stage_heads}};
    const int64_t n = c->stage_layers.n;
    if (n < 2 || n > LF_VISION_STAGES)
        return lf_fail(err, LF_EINVAL, "stage_layers has %lld numbers: there are 2 to %d stages",
                       (long long)n, LF_VISION_STAGES);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const lf_model_list *l = lists[k].list;
        if (l->n != n && (l->n || l != &c->stage_heads))
            return lf_fail(err, LF_EINVAL,
                           "%s has %lld numbers for the %lld stages of stage_layers", lists[k].key,
                           (long long)l->n, (long long)n);
        for (int64_t i = 0; i < l->n; i++)
            if (l->v[i] != floor(l->v[i]))
                return lf_fail(err, LF_EINVAL, "%s: %g is no whole number", lists[k].key, l->v[i]);
    }
    return 0;
}

/* The last stage is what layers, hidden, heads and ffn are of. */
static int check_sums(const lf_vision_config *c, lf_err *err)
{
    const int64_t n = c->stage_layers.n;
    const struct lf_vision_stage last = lf_vision_stage_of(c, n - 1);
    if (last.first + last.layers != c->layers || last.width != c->hidden || last.heads != c->heads)
        return lf_fail(err, LF_EINVAL,
                       "layers = %lld, hidden = %lld and heads = %lld, but the stages have %lld "
                       "layers, and the last of them a width of %lld and %lld heads; leave the "
                       "three keys out",
                       (long long)c->layers, (long long)c->hidden, (long long)c->heads,
                       (long long)(last.first + last.layers), (long long)last.width,
                       (long long)last.heads);
    for (int64_t s = 0; s < n; s++) {
        const struct lf_vision_stage t = lf_vision_stage_of(c, s);
        if (c->stage_heads.n && t.heads * t.head_dim != t.width)
            return lf_fail(err, LF_EINVAL, "stage %lld has %lld heads, and a width of %lld",
                           (long long)s + 1, (long long)t.heads, (long long)t.width);
        if (c->ffn * t.width % c->hidden)
            return lf_fail(err, LF_EINVAL,
                           "ffn = %lld is of the last stage, and that of stage %lld, as many times "
                           "its width of %lld, is no whole number",
                           (long long)c->ffn, (long long)s + 1, (long long)t.width);
        if (t.side < 1)
            return lf_fail(err, LF_EINVAL,
                           "grid = %lld: nothing of a picture is left in stage %lld",
                           (long long)c->grid, (long long)s + 1);
    }
    return 0;
}

static int check_without(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } without[] = {{"class_token", c->class_token},
                   {"rope", c->rope},
                   {"windows", c->windows},
                   {"buckets", c->buckets},
                   {"smooth_positions", c->smooth_positions},
                   {"fixed_positions", c->fixed_positions},
                   {"qk_norm", c->qk_norm},
                   {"attn_inner_norm", c->attn_inner_norm},
                   {"read_layers", c->read_layers && c->read_layers != c->layers},
                   {"read_states", c->read_states.n > 0},
                   {"taps", c->taps.n > 0}};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            return lf_fail(err, LF_EINVAL, "%s does not go together with stages (stage_layers)",
                           without[i].key);
    if (c->positions && c->positions != c->grid * c->grid)
        return lf_fail(err, LF_EINVAL, "positions = %lld, but a picture has %lld x %lld patches",
                       (long long)c->positions, (long long)c->grid, (long long)c->grid);
    return 0;
}

static int check_windows(const lf_vision_config *c, lf_err *err)
{
    const lf_model_list *l = &c->trained_windows;
    if (c->window < 1)
        return lf_fail(err, LF_EINVAL, "shifted needs window, the patches of a window's side");
    if (c->layer_scale)
        return lf_fail(err, LF_EINVAL, "layer_scale does not go together with shifted");
    if (l->n && (!c->cosine || l->n != c->stage_layers.n))
        return lf_fail(err, LF_EINVAL,
                       "trained_windows has a number for each stage of stage_layers, with cosine");
    for (int64_t s = 0; s < c->stage_layers.n; s++) {
        const int64_t side = c->cosine ? c->grid >> s : lf_vision_stage_of(c, s).side;
        if (side < (c->cosine ? 1 : c->window))
            return lf_fail(
                err, LF_EINVAL,
                "window = %lld, but stage %lld has %lld x %lld patches: its tables of "
                "distances have more than there are; make grid larger, or window smaller",
                (long long)c->window, (long long)s + 1, (long long)side, (long long)side);
        if (s < l->n && (l->v[s] != floor(l->v[s]) || fabs(l->v[s] - 1) < 0.5))
            return lf_fail(err, LF_EINVAL,
                           "trained_windows: %g is the side of no window, of which distances are "
                           "shares",
                           l->v[s]);
    }
    return 0;
}

static int check_unread(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } of_stages[] = {{"stage_widths", c->stage_widths.n > 0},
                     {"stage_heads", c->stage_heads.n > 0},
                     {"merge_norm", c->merge_norm != 0},
                     {"merge_bias", c->merge_bias},
                     {"grid", c->grid > 0 && !c->mix_patches},
                     {"shifted", c->shifted},
                     {"cosine", c->cosine},
                     {"out_norm", c->out_norm},
                     {"trained_windows", c->trained_windows.n > 0}};
    for (size_t i = 0; i < sizeof of_stages / sizeof *of_stages; i++)
        if (of_stages[i].set)
            return lf_fail(err, LF_EINVAL, "%s is of a vision encoder with stages (stage_layers)",
                           of_stages[i].key);
    return 0;
}

int lf_vision_check_stages(const lf_vision_config *c, lf_err *err)
{
    if (!c->stage_layers.n)
        return check_unread(c, err);
    if (!c->shifted && !c->conv_taps)
        return lf_fail(err, LF_EINVAL,
                       "stage_layers: the layers of this family have no stages; take one with "
                       "shifted windows or convolutions");
    int rc = check_counts(c, err);
    if (rc == 0 && c->grid < 1)
        rc = lf_fail(err, LF_EINVAL,
                     "a vision encoder with stages needs grid, the patches of a picture's side");
    if (rc == 0)
        rc = check_sums(c, err);
    if (rc == 0)
        rc = check_without(c, err);
    return rc == 0 && c->shifted ? check_windows(c, err) : rc;
}
