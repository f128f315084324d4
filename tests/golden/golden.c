/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden files: reading, and the mapping of names. GPT-2's Conv1D weights are stored [in, out] and
 * its c_attn holds q, k and v side by side, so a tensor of ours is a block of columns of it,
 * transposed.
 */
#include "tests/golden/golden.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/str.h"
#include "tests/tap/tap.h"

static hid_t file_of(const golden *g)
{
    return *(const hid_t *)g->file;
}

static void read_all(const golden *g, const char *name, hid_t type, void *dst, int64_t n)
{
    hid_t d = H5Dopen2(file_of(g), name, H5P_DEFAULT), s = H5Dget_space(d);
    if (d < 0 || H5Sget_simple_extent_npoints(s) != n ||
        H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, dst) < 0)
        tap_bail("golden file of %s: cannot read %s", g->family, name);
    H5Sclose(s);
    H5Dclose(d);
}

static int64_t length_of(const golden *g, const char *name)
{
    hid_t d = H5Dopen2(file_of(g), name, H5P_DEFAULT), s = H5Dget_space(d);
    int64_t n = (int64_t)H5Sget_simple_extent_npoints(s);
    H5Sclose(s);
    H5Dclose(d);
    return n;
}

static double attribute(const golden *g, const char *name)
{
    double v = 0;
    hid_t a = H5Aopen(file_of(g), name, H5P_DEFAULT);
    if (a < 0 || H5Aread(a, H5T_NATIVE_DOUBLE, &v) < 0)
        tap_bail("golden file of %s: no attribute %s", g->family, name);
    H5Aclose(a);
    return v;
}

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

golden *golden_open(const char *name)
{
    char path[4096];
    const char *src = getenv("LF_SRCDIR");
    golden *g = need(calloc(1, sizeof *g));
    snprintf(path, sizeof path, "%s/tests/golden/model/%s.h5", src ? src : ".", name);
    g->family = need(strdup(name));
    g->file = need(malloc(sizeof(hid_t)));
    *(hid_t *)g->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file_of(g) < 0)
        tap_bail("cannot open %s", path);
    g->T = length_of(g, "tokens");
    g->V = length_of(g, "logits") / g->T;
    g->tokens = need(calloc((size_t)g->T, 4));
    g->targets = need(calloc((size_t)g->T, 4));
    g->positions = need(calloc((size_t)g->T, 4));
    g->logits = need(calloc((size_t)(g->T * g->V), 8));
    read_all(g, "tokens", H5T_NATIVE_INT32, g->tokens, g->T);
    read_all(g, "targets", H5T_NATIVE_INT32, g->targets, g->T);
    read_all(g, "cu_seqlens", H5T_NATIVE_INT32, g->cu_seqlens, 3);
    read_all(g, "logits", H5T_NATIVE_DOUBLE, g->logits, g->T * g->V);
    read_all(g, "loss", H5T_NATIVE_DOUBLE, &g->loss, 1);
    read_all(g, "loss_curve", H5T_NATIVE_DOUBLE, g->loss_curve, 10);
    read_all(g, "norm_curve", H5T_NATIVE_DOUBLE, g->norm_curve, 10);
    for (int64_t t = 0; t < g->T; t++) {
        g->positions[t] = (int32_t)t - (t >= g->cu_seqlens[1] ? g->cu_seqlens[1] : 0);
        g->trained += g->targets[t] >= 0;
    }
    g->bf16_rms = attribute(g, "bf16_rms");
    g->bf16_loss = attribute(g, "bf16_loss");
    g->lr = attribute(g, "lr");
    g->beta1 = attribute(g, "beta1");
    g->beta2 = attribute(g, "beta2");
    g->eps = attribute(g, "eps");
    g->weight_decay = attribute(g, "weight_decay");
    g->clip = attribute(g, "clip");
    return g;
}

void golden_close(golden *g)
{
    H5Fclose(file_of(g));
    free(g->file);
    free(g->family);
    free(g->tokens);
    free(g->targets);
    free(g->positions);
    free(g->logits);
    free(g);
}

void golden_config(const char *name, lf_model_config *out)
{
    static const struct {
        const char *name, *keys;
    } rows[] = {
        {"gpt2", "family = gpt2\nffn = 128\n"},
        {"llama", "family = llama3.1\nkv_heads = 2\nffn = 44\nrope_theta = 100\nrope_factor = "
                  "4\nrope_original_positions = 32\n"},
        {"mistral",
         "family = mistral\nkv_heads = 2\nffn = 44\nrope_theta = 1000\nsliding_window = 9\n"},
        {"qwen3", "family = qwen3\nkv_heads = 2\nhead_dim = 12\nffn = 44\nrope_theta = 500\n"},
    };
    lf_err err = LF_ERR_INIT;
    lf_ini ini;
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_adds(&text,
                "[model]\nlayers = 3\nhidden = 32\nheads = 4\nvocab = 61\nmax_positions = 64\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            lf_buf_adds(&text, rows[i].keys);
    if (lf_ini_parse_text(&ini, text.data, text.len, name, &err) ||
        lf_model_config_from_ini(out, &ini, "model", &err))
        tap_bail("configuration of %s: %s", name, err.text);
    lf_ini_fini(&ini);
    lf_buf_fini(&text);
}

/* Hugging Face name of ours. *part, *parts: which block of columns (GPT-2's c_attn); *conv1d:
 * stored [in, out]. */
static bool hf_name(const char *family, const char *name, char *out, size_t cap, int *part,
                    int *parts, bool *conv1d)
{
    static const struct {
        const char *ours, *llama, *gpt2;
        int part, parts;
        bool conv1d;
    } top[] =
        {
            {"embed.", "model.embed_tokens.", "transformer.wte.", 0, 1, false},
            {"pos_embed.", NULL, "transformer.wpe.", 0, 1, false},
            {"final_norm.", "model.norm.", "transformer.ln_f.", 0, 1, false},
            {"head.", "lm_head.", NULL, 0, 1, false},
        },
      layer[] = {
          {"attn_norm.", "input_layernorm.", "ln_1.", 0, 1, false},
          {"mlp_norm.", "post_attention_layernorm.", "ln_2.", 0, 1, false},
          {"attn.q.", "self_attn.q_proj.", "attn.c_attn.", 0, 3, true},
          {"attn.k.", "self_attn.k_proj.", "attn.c_attn.", 1, 3, true},
          {"attn.v.", "self_attn.v_proj.", "attn.c_attn.", 2, 3, true},
          {"attn.o.", "self_attn.o_proj.", "attn.c_proj.", 0, 1, true},
          {"attn.q_norm.", "self_attn.q_norm.", NULL, 0, 1, false},
          {"attn.k_norm.", "self_attn.k_norm.", NULL, 0, 1, false},
          {"mlp.gate.", "mlp.gate_proj.", NULL, 0, 1, false},
          {"mlp.up.", "mlp.up_proj.", "mlp.c_fc.", 0, 1, true},
          {"mlp.down.", "mlp.down_proj.", "mlp.c_proj.", 0, 1, true},
      };
    bool gpt2 = strcmp(family, "gpt2") == 0;
    int at = 0, n = -1;
    const char *rest = name;
    if (sscanf(name, "layers.%d.%n", &n, &at) == 1 && at > 0)
        rest = name + at;
    size_t rows = n >= 0 ? sizeof layer / sizeof *layer : sizeof top / sizeof *top;
    for (size_t i = 0; i < rows; i++) {
        const char *ours = n >= 0 ? layer[i].ours : top[i].ours;
        if (!lf_str_has_prefix(rest, ours))
            continue;
        const char *theirs =
            n >= 0 ? (gpt2 ? layer[i].gpt2 : layer[i].llama) : (gpt2 ? top[i].gpt2 : top[i].llama);
        if (!theirs)
            return false;
        if (n >= 0)
            snprintf(out, cap, "%s.%d.%s%s", gpt2 ? "transformer.h" : "model.layers", n, theirs,
                     rest + strlen(ours));
        else
            snprintf(out, cap, "%s%s", theirs, rest + strlen(ours));
        *part = n >= 0 && gpt2 ? layer[i].part : 0;
        *parts = n >= 0 && gpt2 ? layer[i].parts : 1;
        *conv1d = n >= 0 && gpt2 && layer[i].conv1d;
        return true;
    }
    return false;
}

bool golden_tensor(const golden *g, const char *kind, const char *name, float *dst, int64_t rows,
                   int64_t cols)
{
    char hf[256], path[320];
    int part, parts;
    bool conv1d;
    if (!hf_name(g->family, name, hf, sizeof hf, &part, &parts, &conv1d))
        return false;
    snprintf(path, sizeof path, "%s/%s", kind, hf);
    if (H5Lexists(file_of(g), path, H5P_DEFAULT) <= 0)
        return false;
    int64_t n = length_of(g, path);
    if (n != rows * cols * parts)
        return false; /* a flipped switch changed the shape */
    float *all = need(calloc((size_t)n, sizeof *all));
    read_all(g, path, H5T_NATIVE_FLOAT, all, n);
    bool vector = cols == 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dst[r * cols + c] = conv1d && !vector ? all[c * rows * parts + part * rows + r]
                                                  : all[part * rows * cols + r * cols + c];
    free(all);
    return true;
}

int golden_load(const golden *g, lf_pstore *ps)
{
    int lacking = 0;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        int64_t rows = d->dims[0], cols = d->ndim == 2 ? d->dims[1] : 1;
        float *v = need(calloc((size_t)(rows * cols), sizeof *v));
        lf_err err = LF_ERR_INIT;
        if (!golden_tensor(g, "weights", d->name, v, rows, cols)) {
            lacking++;
            for (int64_t e = 0; e < rows * cols; e++)
                v[e] = 0.3f * (float)lf_rng_normal(11, lf_name_site(d->name), (uint64_t)e);
        }
        if (lf_pstore_write(ps, i, LF_F32, v, &err))
            tap_bail("%s: %s", d->name, err.text);
        free(v);
    }
    return lacking;
}
