/* SPDX-License-Identifier: Apache-2.0
 *
 * What the comparison with the reference notices: each switch flipped, each pair of tensors of one
 * shape swapped. A switch is left out where it cannot matter by the mathematics (`when`). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/map.h"
#include "tests/golden/vlm/vlm.h"
#include "tests/tap/tap.h"

/* As in tests/golden/families/family_flips.c, which has those of the decoder. */
static const struct {
    const char *set, *when;
} flips[] = {
    {"vision.norm=rms", NULL},
    {"vision.norm=layer", NULL},
    {"vision.norm_eps*3000", NULL},
    {"vision.pre_norm!", NULL},
    {"vision.final_norm=no", "vision.read_norm=yes"},
    {"vision.final_norm=yes vision.read_norm=yes", "vision.read_layers=0"},
    {"vision.read_norm!", "vision.final_norm=yes vision.read_layers=0 vision.read_states="},
    {"vision.patch_bias!", NULL},
    {"vision.class_token!", NULL},
    {"vision.qkv_bias!", NULL},
    {"vision.bias!", NULL},
    {"vision.qk_norm!", NULL},
    {"vision.layer_scale!", NULL},
    {"vision.mlp=plain", NULL},
    {"vision.mlp=glu", NULL},
    {"vision.activation=gelu", NULL},
    {"vision.activation=gelu_tanh", NULL},
    {"vision.activation=gelu_quick", NULL},
    {"vision.activation=silu", NULL},
    {"vision.rope!", NULL},
    {"vision.rope_theta*1.05", "vision.rope=yes"},
    {"vision.rope_own!", "vision.rope=yes"},
    {"vision.buckets=no", "vision.buckets=yes"},
    {"vision.windows=no vision.full_layers=", "vision.windows=yes"},
    {"vision.full_layers=", "vision.windows=yes"},
    {"vision.full_layers=0", "vision.windows=yes"},
    {"vision.full_layers=1,2", "vision.windows=yes"},
    {"vision.window+2", "vision.windows=yes"},
    {"vision.window+-2", "vision.windows=yes"},
    {"vision.read_layers=1", "vision.taps="},
    {"vision.read_layers=2", "vision.taps= vision.layers!=2"},
    {"vision.read_layers=0", NULL},
    {"vision.read_states=", NULL},
    {"vision.read_states=0,3", "vision.read_states!="},
    {"vision.read_states=3,1", "vision.read_states!="},
    {"vision.read_states=1,2,2", "vision.read_states!="},
    {"vision.read_states=2,1,1", "vision.read_states!="},
    {"vision.taps=", NULL},
    {"vision.taps=0", "vision.taps!="},
    {"vision.taps=1,2", "vision.taps!="},
    {"projector.kind=linear projector.hidden=0", NULL},
    {"projector.kind=mlp", NULL},
    {"projector.merge=1", NULL},
    {"projector.pool=1", NULL},
    {"projector.keep_class!", "projector.merge=1 projector.pool=1 projector.newline=no"},
    {"projector.norm=none projector.norm_merged=no", NULL},
    {"projector.norm=rms", NULL},
    {"projector.norm=layer", NULL},
    {"projector.norm_merged!", "projector.norm!=none"},
    {"projector.norm_eps*3000", "projector.norm!=none"},
    {"projector.norm_offset=1", "projector.norm!=none"},
    {"projector.reduce!", NULL},
    {"projector.activation=gelu_tanh", "projector.kind=mlp"},
    {"projector.activation=gelu_quick", "projector.kind=mlp"},
    {"projector.activation=silu", "projector.kind=mlp"},
    {"projector.bias!", NULL},
    {"projector.newline=no projector.most_tiles=0", NULL},
    {"projector.most_tiles=0", NULL},
    {"projector.most_tiles+1", "projector.most_tiles!=0"},
    {"rope_sections=", NULL},
    {"rope_sections=2,1,1", "rope_sections!="},
    {"rope_sections=1,2,1", "rope_sections!="},
    {"rope_sections=1,1,2", "rope_sections!="},
    {"rope_sections=2,4,2", "rope_sections!="},
    /* interleaved, more pairs of columns than fit are as many as fit */
    {"rope_sections=2,2,4", "rope_sections!= rope_sections_interleaved=no"},
    {"rope_sections_interleaved!", "rope_sections!="},
    {"image_token+1", NULL},
    {"mask=image_blocks prefix_last=no", NULL},
};

static float *floats(const vlm *v)
{
    float *p = calloc((size_t)(v->f.rows * v->f.vocab), sizeof *p);
    if (!p)
        tap_bail("no memory");
    return p;
}

/* The error of a description; infinite where it is refused. */
static double measure(const vlm *v, const lf_model_config *c)
{
    vlm_rig r;
    lf_err err = LF_ERR_INIT;
    if (vlm_rig_open(&r, v, c, LF_F32, false, &err))
        return HUGE_VAL;
    float *out = floats(v);
    family_load(&v->f, r.ps);
    vlm_logits(&r, v, out);
    const double e = family_error(&v->f, out, NULL);
    vlm_rig_close(&r);
    free(out);
    return e;
}

struct notice {
    int n, unseen;
    double least;
};

static void try_flip(const vlm *v, const char *set, struct notice *t)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = v->f.config;
    json_t *keys = lf_model_config_to_json(&c, &err);
    const int rc = family_flip(&c, keys, set, &err);
    json_decref(keys);
    if (rc == 0)
        return;
    const double e = rc < 0 ? HUGE_VAL : measure(v, &c);
    t->n++;
    t->least = fmin(t->least, e);
    if (e > FAMILY_SEEN)
        return;
    t->unseen++;
    tap_diag("%s: %s: %.2g", v->f.name, set, e);
}

int vlm_flips(const vlm *v, int *n, double *least)
{
    struct notice t = {.least = HUGE_VAL};
    const char *set;
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++)
        if (lf_map_when(flips[i].when, &v->f.config))
            try_flip(v, flips[i].set, &t);
    for (size_t i = 0; (set = family_flip_at(i, &v->f.config)); i++)
        if (*set)
            try_flip(v, set, &t);
    *n = t.n;
    *least = t.least;
    return t.unseen;
}

/* ---- swaps ---- */

/* A key bias adds the same to every score of a query unless keys turn with their positions. */
bool vlm_without_effect(const vlm *v, const char *name)
{
    return lf_str_has_prefix(name, "vision.") && !v->f.config.vision.rope &&
           lf_str_has_suffix(name, "attn.k.bias");
}

static void swap(lf_pstore *ps, int a, int b)
{
    lf_err err = LF_ERR_INIT;
    const size_t n = (size_t)family_elements(lf_pstore_desc(ps, a));
    float *x = malloc(n * 4), *y = malloc(n * 4);
    if (!x || !y || lf_pstore_read(ps, a, LF_P_MASTER, x, n * 4, &err) ||
        lf_pstore_read(ps, b, LF_P_MASTER, y, n * 4, &err) ||
        lf_pstore_write(ps, a, LF_F32, y, &err) || lf_pstore_write(ps, b, LF_F32, x, &err))
        tap_bail("swap: %s", err.text);
    free(x);
    free(y);
}

/* Norms of whole queries and keys multiply the same products, unless keys turn in between. */
static bool both_norms(const struct lf_param_desc *x, const struct lf_param_desc *y)
{
    const char *q = strstr(x->name, ".attn.q_norm"), *k = strstr(y->name, ".attn.k_norm");
    return lf_str_has_prefix(x->name, "vision.") && q && k && q - x->name == k - y->name &&
           strncmp(x->name, y->name, (size_t)(q - x->name)) == 0;
}

/* Can a swap be seen? Nothing reads what is frozen. */
static bool matters(const vlm *v, const struct lf_param_desc *x, const struct lf_param_desc *y)
{
    const bool same =
        x->ndim == y->ndim && memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof x->dims[0]) == 0;
    return same && (v->f.config.vision.rope || !both_norms(x, y)) && !(x->frozen && y->frozen) &&
           !((x->frozen || vlm_without_effect(v, x->name)) &&
             (y->frozen || vlm_without_effect(v, y->name)));
}

int vlm_swaps(const vlm *v, int *n, double *least)
{
    struct notice t = {.least = HUGE_VAL};
    lf_err err = LF_ERR_INIT;
    vlm_rig r;
    float *out = floats(v);
    if (vlm_rig_open(&r, v, &v->f.config, LF_F32, false, &err))
        tap_bail("%s: %s", v->f.name, err.text);
    family_load(&v->f, r.ps);
    for (int a = 0; a < lf_pstore_count(r.ps); a++)
        for (int b = a + 1; b < lf_pstore_count(r.ps); b++) {
            const struct lf_param_desc *x = lf_pstore_desc(r.ps, a), *y = lf_pstore_desc(r.ps, b);
            if (!matters(v, x, y))
                continue;
            swap(r.ps, a, b);
            vlm_logits(&r, v, out);
            swap(r.ps, a, b);
            const double e = family_error(&v->f, out, NULL);
            t.n++;
            t.least = fmin(t.least, e);
            if (e > FAMILY_SEEN)
                continue;
            t.unseen++;
            tap_diag("%s: %s and %s swapped: %.2g", v->f.name, x->name, y->name, e);
        }
    vlm_rig_close(&r);
    free(out);
    *n = t.n;
    *least = t.least;
    return t.unseen;
}
