/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs by what is trained: for families of every kind they are those of the formula for all
 * weights when nothing is frozen, and with an adapter or frozen weights those that are counted by
 * hand. */
#include <string.h>

#include "engine/base/ini.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"
#include "engine/model/flops.h"
#include "tests/tap/tap.h"

struct model {
    lf_model_config c;
    lf_decoder *d;
    lf_pstore *ps;
};

static void make(struct model *m, const char *text)
{
    lf_err err = LF_ERR_INIT;
    lf_ini ini = {0};
    *m = (struct model){0};
    int rc = lf_ini_parse_text(&ini, text, strlen(text), "model", &err);
    if (rc == 0)
        rc = lf_model_config_from_ini(&m->c, &ini, "model", &err);
    m->d = rc == 0 ? lf_decoder_create(&m->c, 64, &err) : NULL;
    m->ps = m->d ? lf_pstore_create(&err) : NULL;
    if (!m->ps || lf_decoder_declare(m->d, m->ps, &err) != 0)
        tap_bail("%s: %s", text, err.text);
    lf_ini_fini(&ini);
}

static void drop(struct model *m)
{
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->d);
}

static double flops(const struct model *m, bool causal)
{
    const struct lf_train_flops f = lf_train_flops_of(&m->c, m->ps);
    return lf_train_flops_per_token(&f, &m->c, 64, causal);
}

#define TINY "layers = 3\nhidden = 32\nheads = 4\nffn = 64\nvocab = 100\nmax_positions = 64\n"

static void test_whole(void)
{
    static const char *const models[] = {
        "[model]\nfamily = llama3\nkv_heads = 2\n" TINY,
        "[model]\nfamily = llama3\nkv_heads = 2\ntied_head = yes\n" TINY,
        "[model]\nfamily = gpt2\n" TINY,
        "[model]\nfamily = qwen2\nkv_heads = 2\nsliding_window = 16\nlayer_mixers = f,w*\n" TINY,
        "[model]\nfamily = llama3\nkv_heads = 2\nexperts = 4\nexperts_per_token = 2\n" TINY,
        "[model]\nfamily = llama3\nkv_heads = 2\nexperts = 4\nexperts_per_token = 2\n"
        "expert_bias = yes\nrouter_linear_bias = yes\nattn_sinks = yes\n" TINY,
        "[model]\nfamily = llama3\nkv_heads = 2\noutput = score\n" TINY,
        "[model]\nfamily = llama3\nkv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\n" TINY,
        "[model]\nfamily = llama3\nkv_lora = 12\nq_lora = 10\nnope_dim = 6\nrope_dim = 4\nv_dim = "
        "8\n" TINY,
        "[model]\nfamily = gemma4\nkv_heads = 1\nsliding_window = 8\nhead_dim = "
        "16\nwindow_head_dim = 8\nkv_shared_layers = 1\nkv_shared_ffn = 96\nper_layer_dim = 6\n"
        "layer_mixers = wff\n" TINY,
        "[model]\nfamily = gemma3n\nsliding_window = 8\nlayer_mixers = wf*\naltup_streams = 3\n"
        "laurel_rank = 6\nper_layer_dim = 6\nper_layer_vocab = 20\n" TINY,
        "[model]\nfamily = gemma4\nkeys_as_values = yes\nsliding_window = 8\n"
        "layer_mixers = wf*\nlayer_mlps = b*\n"
        "experts = 4\nexperts_per_token = 2\nrouter_norm = yes\nexpert_gain = yes\n" TINY,
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int causal = 0; causal < 2; causal++) {
            struct model m;
            make(&m, models[i]);
            tap_f64(flops(&m, causal), lf_model_train_flops_per_token(&m.c, 64, causal), 1e-6,
                    "all weights are trained: the formula for them");
            drop(&m);
        }
}

/* q, k, v and o of kv_heads = 2, gate, up and down of a layer; the head. */
enum { LAYER = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 32 * 64, HEAD = 100 * 32, KEYS = 3 * 32 };

static void test_adapter(void)
{
    lf_err err = LF_ERR_INIT;
    struct model m;
    const struct lf_adapter_config a = {.rank = 2, .alpha = 4, .n_targets = 1, .target = {"q"}};
    make(&m, "[model]\nfamily = llama3\nkv_heads = 2\n" TINY);
    tap_rc(lf_decoder_adapt(m.d, m.ps, &a, &err), 0, &err, NULL, "an adapter on q");
    const double lora = 3 * 2 * (32 + 32), p = 3 * LAYER + HEAD;
    tap_f64(flops(&m, true), 4 * p + 6 * lora + 12.0 * 32 * KEYS, 1e-6,
            "4 for the base, 6 for the adapter, attention as ever");
    drop(&m);
}

static void test_frozen(void)
{
    struct model m;
    make(&m, "[model]\nfamily = llama3\nkv_heads = 2\n" TINY);
    lf_pstore_freeze_matching(m.ps, "embed.*", true);
    tap_f64(flops(&m, true), 6.0 * (3 * LAYER + HEAD) + 12.0 * 32 * KEYS, 1e-6,
            "a frozen table multiplies nothing, but the first layer is trained");
    lf_pstore_freeze_matching(m.ps, "layers.[01].*", true);
    tap_f64(flops(&m, true),
            2.0 * 2 * LAYER + 6.0 * (LAYER + HEAD) + 32 * (4.0 * KEYS + 8.0 * KEYS / 3), 1e-6,
            "the backward pass ends above the layers below which all is frozen");
    lf_pstore_freeze_matching(m.ps, "layers.*", true);
    lf_pstore_freeze_matching(m.ps, "final_norm.*", true);
    tap_f64(flops(&m, true), 2.0 * 3 * LAYER + 4.0 * HEAD + 32 * 4.0 * KEYS, 1e-6,
            "the head alone needs no gradient of what it reads");
    drop(&m);
}

/* Layers of an encoder-decoder: 16 tokens of a target beside 40 of its source. A layer of the
 * encoder has attention of 40 keys a row; one of the decoder sees 8 of its own in the mean and 40
 * of the source, whose rows make keys and values. */
static void test_stacks(void)
{
    struct model m;
    lf_err err = LF_ERR_INIT;
    double by[6], encoder = 40.0 / 16 * (6.0 * (4 * 32 * 32 + 2 * 32 * 64) + 12.0 * 32 * 40),
                  decoder = 6.0 * (4 * 32 * 32 + 2 * 32 * 64) +
                            6.0 * (2 * 32 * 32 + 40.0 / 16 * 2 * 32 * 32) + 12.0 * 32 * (8 + 40);
    make(&m, "[model]\nfamily = t5\nencoder_layers = 2\n" TINY);
    memset(by, 0, sizeof by);
    tap_rc(lf_model_layer_flops(by, &m.c, (struct lf_model_lengths){16, 40}, false, &err), 0, &err,
           NULL, "FLOPs of two stacks");
    tap_f64(by[0], encoder, 1e-6, "a layer of the encoder");
    tap_f64(by[1], encoder, 1e-6, "the other one");
    for (int l = 2; l < 5; l++)
        tap_f64(by[l], decoder, 1e-6, "a layer of the decoder");
    tap_f64(by[5], 6.0 * 100 * 32, 1e-6, "the head");
    drop(&m);
}

int main(void)
{
    TAP(7, test_stacks());
    TAP(24, test_whole());
    TAP(2, test_adapter());
    TAP(3, test_frozen());
    return tap_done();
}
