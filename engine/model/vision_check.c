/* SPDX-License-Identifier: Apache-2.0
 *
 * The vision core: what an encoder of pictures may not have. Stages: vision_stages.c. */
#include <math.h>
#include <string.h>

#include "engine/model/vision_priv.h"

static int check_whole(const char *key, const lf_model_list *l, lf_err *err)
{
    for (int64_t i = 0; i < l->n; i++)
        if (l->v[i] != floor(l->v[i]))
            return lf_fail(err, LF_EINVAL, "%s names layer %g, which is no whole number", key,
                           l->v[i]);
    return 0;
}

static int check_states(const lf_vision_config *c, lf_err *err)
{
    double most = 0;
    if (c->read_states.n < 2 || c->read_states.n > LF_MODEL_MAX_TAPS)
        return lf_fail(err, LF_EINVAL,
                       "read_states names %lld layers: 2 to %d lie side by side, and read_layers "
                       "is one alone",
                       (long long)c->read_states.n, LF_MODEL_MAX_TAPS);
    for (int64_t i = 0; i < c->read_states.n; i++)
        most = fmax(most, c->read_states.v[i]);
    if (most < (double)lf_vision_read_layers(c) || most > (double)lf_vision_read_layers(c))
        return lf_fail(err, LF_EINVAL,
                       "read_states names %g layers at most, but read_layers is %lld of %lld", most,
                       (long long)lf_vision_read_layers(c), (long long)c->layers);
    if (c->taps.n)
        return lf_fail(err, LF_EINVAL, "taps do not go together with read_states");
    return 0;
}

/* A matrix over patches is of pictures of one size, and all of their rows are patches. */
static int check_mixed(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } without[] = {{"conv_taps", c->conv_taps > 0}, {"stage_layers", c->stage_layers.n > 0},
                   {"class_token", c->class_token}, {"rope", c->rope},
                   {"windows", c->windows},         {"positions", c->positions > 0},
                   {"qk_norm", c->qk_norm},         {"attn_inner_norm", c->attn_inner_norm}};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            return lf_fail(err, LF_EINVAL, "%s does not go together with mix_patches",
                           without[i].key);
    return c->grid > 0 ? 0
                       : lf_fail(err, LF_EINVAL,
                                 "mix_patches: a matrix over the patches of a picture needs grid, "
                                 "the patches of its side");
}

/* What is of attention, where nothing attends. */
static int check_no_attention(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } of_attention[] = {{"heads", c->heads > 0},
                        {"head_dim", c->head_dim > 0},
                        {"stage_heads", c->stage_heads.n > 0},
                        {"shifted", c->shifted},
                        {"cosine", c->cosine},
                        {"out_norm", c->out_norm},
                        {"qkv_bias", c->qkv_bias},
                        {"bare_keys", c->bare_keys}};
    for (size_t i = 0; i < sizeof of_attention / sizeof *of_attention; i++)
        if (of_attention[i].set)
            return lf_fail(err, LF_EINVAL, "%s is of attention, and %s has none",
                           of_attention[i].key, c->conv_taps ? "conv_taps" : "mix_patches");
    if (c->mix_patches)
        return check_mixed(c, err);
    if (c->conv_taps % 2 == 0 || c->conv_taps > LF_DWCONV_MOST_TAPS)
        return lf_fail(err, LF_EINVAL,
                       "conv_taps = %lld: a convolution has an odd number, up to %d",
                       (long long)c->conv_taps, LF_DWCONV_MOST_TAPS);
    return c->stage_layers.n ? 0
                             : lf_fail(err, LF_EINVAL,
                                       "conv_taps is of a vision encoder with stages "
                                       "(stage_layers): a convolution needs squares of patches");
}

bool lf_vision_attends(const lf_vision_config *c)
{
    return !c->conv_taps && !c->mix_patches;
}

int lf_vision_check(const lf_vision_config *c, lf_err *err)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"layers", c->layers}, {"hidden", c->hidden},       {"ffn", c->ffn},
                 {"heads", c->heads},   {"patch_dim", c->patch_dim}, {"head_dim", c->head_dim}};
    const bool attends = lf_vision_attends(c);
    if (lf_vision_check_stages(c, err) != 0)
        return LF_EINVAL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value <= 0 && (attends || strncmp(sizes[i].name, "head", 4) != 0))
            return lf_fail(err, LF_EINVAL, "a vision encoder needs %s", sizes[i].name);
    if (!attends && check_no_attention(c, err))
        return LF_EINVAL;
    if (attends && c->heads * c->head_dim != c->hidden)
        return lf_fail(err, LF_EINVAL, "%lld heads of %lld are not hidden = %lld",
                       (long long)c->heads, (long long)c->head_dim, (long long)c->hidden);
    if (c->rope && c->rope_theta < 1)
        return lf_fail(err, LF_EINVAL, "a vision encoder with rope needs rope_theta, at least 1");
    if (c->rope && c->head_dim % 4)
        return lf_fail(err, LF_EINVAL,
                       "head_dim = %lld: positions of rows and columns turn a quarter of a head's "
                       "channels each with their partners, so it is a multiple of 4",
                       (long long)c->head_dim);
    if ((c->rope_own || c->rope_interleaved || c->rope_side) && !c->rope)
        return lf_fail(err, LF_EINVAL, "%s is of a vision encoder with rope",
                       c->rope_own           ? "rope_own"
                       : c->rope_interleaved ? "rope_interleaved"
                                             : "rope_side");
    if (c->rope_side && !c->positions)
        return lf_fail(err, LF_EINVAL, "rope_side is a share of the side of positions: give them");
    if (c->bare_keys && !c->qkv_bias)
        return lf_fail(err, LF_EINVAL, "bare_keys: without qkv_bias nothing has a bias there");
    if (c->affine && c->norm != LF_NORM_LAYER)
        return lf_fail(err, LF_EINVAL,
                       "affine needs norm = layer: it is one that normalises nothing");
    if (!c->rope && c->positions <= 0 && !c->stage_layers.n && !c->mix_patches)
        return lf_fail(err, LF_EINVAL, "a vision encoder without rope needs positions");
    if (c->buckets && !c->positions)
        return lf_fail(err, LF_EINVAL, "buckets are of a vision encoder with positions");
    if (c->smooth_positions &&
        (!c->positions || c->buckets || c->rope || lf_vision_table_side(c) > LF_VISION_SMOOTH_SIDE))
        return lf_fail(err, LF_EINVAL,
                       "smooth_positions are read from a table of positions of at most %d a side, "
                       "without buckets and rope",
                       LF_VISION_SMOOTH_SIDE);
    if (c->fixed_positions && (!c->positions || c->hidden % 4))
        return lf_fail(
            err, LF_EINVAL,
            "fixed_positions are sines and cosines of the rows and columns of positions, "
            "of hidden / 4 channels each: give positions, and a hidden that is a multiple "
            "of 4");
    if (c->distill_token && (!c->class_token || c->fixed_positions))
        return lf_fail(err, LF_EINVAL,
                       "distill_token stands behind the class token and has a learned position: it "
                       "needs class_token, and no fixed_positions");
    const int64_t squares = c->positions - lf_vision_tokens(c), side = lf_vision_table_side(c);
    if (c->positions && (squares < 1 || (side * side != squares)))
        return lf_fail(err, LF_EINVAL,
                       "positions = %lld are not a square of patches%s: a picture of another grid "
                       "reads between them",
                       (long long)c->positions,
                       c->distill_token ? " and the tokens before it"
                       : c->class_token ? " and the class token"
                                        : "");
    if (check_whole("full_layers", &c->full_layers, err) ||
        check_whole("read_states", &c->read_states, err) || check_whole("taps", &c->taps, err))
        return LF_EINVAL;
    for (int64_t i = 0; i < c->full_layers.n; i++)
        if (!c->windows || c->full_layers.v[i] < 0 || c->full_layers.v[i] >= (double)c->layers)
            return lf_fail(err, LF_EINVAL, "full_layers names layer %g, of %lld layers %s windows",
                           c->full_layers.v[i], (long long)c->layers,
                           c->windows ? "with" : "without");
    if (c->read_layers > c->layers)
        return lf_fail(err, LF_EINVAL, "read_layers = %lld, but there are %lld layers",
                       (long long)c->read_layers, (long long)c->layers);
    if (c->read_states.n && check_states(c, err) != 0)
        return LF_EINVAL;
    for (int64_t i = 0; i < c->taps.n; i++)
        if (c->taps.v[i] >= (double)lf_vision_read_layers(c) ||
            (i && c->taps.v[i] <= c->taps.v[i - 1]))
            return lf_fail(err, LF_EINVAL,
                           "taps names layer %g; the layers that run are 0 to %lld, and taps "
                           "ascends",
                           c->taps.v[i], (long long)lf_vision_read_layers(c) - 1);
    return 0;
}
