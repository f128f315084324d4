/* SPDX-License-Identifier: Apache-2.0
 *
 * Model descriptions: errors that name the key and its place, presets and families, the parameter
 * count of every file of models/ against the number published for it, positions and FLOPs against
 * values worked out by hand. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config.h"
#include "kernels/kernels.h"
#include "tests/tap/tap.h"

/* Published: the count of the released weights (a tied head once), or for GPT-3 what its sizes give
 * (paper: 6.7B, 175B). */
static const struct {
    const char *name;
    int64_t params;
} published[] = {
    {"gpt2-124m", 124439808},
    {"gpt2-355m", 354823168},
    {"gpt2-774m", 774030080},
    {"gpt2-1558m", 1557611200},
    {"gpt3-6.7b", 6658404352},
    {"gpt3-175b", 174604259328},
    {"llama1-7b", 6738415616},
    {"llama1-13b", 13015864320},
    {"llama1-33b", 32528943616},
    {"llama1-65b", 65285660672},
    {"llama2-7b", 6738415616},
    {"llama2-13b", 13015864320},
    {"llama2-70b", 68976648192},
    {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},
    {"llama3.1-8b", 8030261248},
    {"llama3.1-70b", 70553706496},
    {"llama3.1-405b", 405853388800},
    {"llama3.2-1b", 1235814400},
    {"llama3.2-3b", 3212749824},
    {"mistral-7b", 7241732096},
    {"qwen1.5-0.5b", 463987712},
    {"qwen1.5-1.8b", 1836828672},
    {"qwen1.5-4b", 3950369280},
    {"qwen1.5-7b", 7721324544},
    {"qwen1.5-14b", 14167290880},
    {"qwen1.5-32b", 32512218112},
    {"qwen1.5-72b", 72287920128},
    {"qwen2-0.5b", 494032768},
    {"qwen2-1.5b", 1543714304},
    {"qwen2-7b", 7615616512},
    {"qwen2-72b", 72706203648},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    /* clang-format off */
    {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},
    {"pythia-410m", 405334016},
    {"pythia-1b", 1011781632},
    {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960},
    {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},
    {"gpt-neox-20b", 20554567680},
    {"gpt-j-6b", 6050882784},
    {"opt-125m", 125239296},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},
    {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},
    {"opt-66b", 65719701504},
    {"opt-175b", 174604468224},
    {"opt-350m", 331196416},
    {"galactica-125m", 125030400},
    {"galactica-1.3b", 1315201024},
    {"galactica-6.7b", 6657359872},
    {"galactica-30b", 29972590592},
    {"galactica-120b", 121341747200},
    {"bloom-560m", 559214592},
    {"bloom-1b1", 1065314304},
    {"bloom-1b7", 1722408960},
    {"bloom-3b", 3002557440},
    {"bloom-7b1", 7069016064},
    {"bloom-176b", 176247271424},
    {"falcon-7b", 6921720704},
    {"falcon-40b", 41303293952},
    {"falcon-180b", 178557088768},
    {"starcoder-1b", 1137207296},
    {"starcoder-3b", 3043311104},
    {"starcoder-7b", 7327263232},
    {"starcoder-15b", 15517456384},
    {"starcoder2-3b", 3030371328},
    {"starcoder2-7b", 7173923840},
    {"starcoder2-15b", 15957889024},
    {"codellama-7b", 6738546688},
    {"codellama-13b", 13016028160},
    {"codellama-34b", 33743970304},
    {"yi-6b", 6061035520},
    {"yi-34b", 34388917248},
    {"deepseek-7b", 6910365696},
    {"deepseek-67b", 67425001472},
    {"deepseek-coder-1.3b", 1346471936},
    {"deepseek-coder-6.7b", 6740512768},
    {"deepseek-coder-33b", 33342991360},
    {"baichuan-7b", 7000559616},
    {"baichuan-13b", 13264901120},
    {"baichuan2-7b", 7505973248},
    {"baichuan2-13b", 13896668160},
    {"internlm2-1.8b", 1889110016},
    {"internlm2-7b", 7737708544},
    {"internlm2-20b", 19861149696},
    {"phi-1.5", 1418270720},
    {"phi-2", 2779683840},
    {"phi3-mini-4k", 3821079552},
    {"phi3-medium-4k", 13960238080},
    {"qwen-1.8b", 1836828672},
    {"qwen-7b", 7721324544},
    {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896},
    {"gemma2-2b", 2614341888},
    {"gemma2-9b", 9241705984},
    {"gemma2-27b", 27227128320},
    {"gemma3-270m", 268098176},
    {"gemma3-1b", 999885952},
    {"gemma3-4b", 3880263168},
    {"gemma3-12b", 11766034176},
    {"gemma3-27b", 27009346304},
    {"chatglm-6b", 6707929088},
    {"chatglm2-6b", 6243584000},
    {"chatglm3-6b", 6243584000},
    {"glm4-9b", 9399951360},
    {"glm4-9b-0414", 9400279040},
    /* clang-format on */
    {"mixtral-8x7b", 46702792704},
    {"mixtral-8x22b", 140620634112},
    {"qwen1.5-moe-a2.7b", 14315784192},
    {"qwen2-57b-a14b", 57408658944},
    {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560},
    {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672},
    {"qwen3-next-80b-a3b", 79674391296},
    {"qwen3.5-9b", 8953803264},
    {"qwen3.5-35b-a3b", 34660610688},
    {"lfm2-1.2b", 1170340608},
    {"lfm2-8b-a1b", 8339930560},
    {"kimi-linear-48b-a3b", 49122681728},
    {"deepseek-moe-16b", 16375728128},
    {"deepseek-v2-lite", 15706484224},
    {"deepseek-v3", 671026419200},
    {"codestral-mamba-7b", 7285403648},
    {"bamba-9b", 9780235392},
    {"granite4-h-tiny", 6939037248},
    {"nemotron3-nano-30b", 31577940288},
    {"falcon-h1-0.5b", 521411104},
    {"t5-small", 60506624},
    {"t5-base", 222903552},
    {"t5-v1.1-small", 76961152},
    {"mt5-small", 300176768},
    {"umt5-small", 306601984},
    {"bart-base", 139420416 + 50265}, /* final_logits_bias counts as the buffer that it is there */
    {"bart-large", 406291456 + 50265},
    {"clip-vit-base-patch32", 151277313},
    {"siglip-base-patch16-224", 203155970},
    {"bert-base", 109514298},
    {"bert-large", 335174458},
    {"roberta-base", 124697433},
    {"swin-tiny", 28288354},
    {"swin-base", 87768224},
    {"swinv2-tiny", 28347154},
    {"convnext-tiny", 28589128},
    {"convnext-base", 88591464},
    {"resmlp-12", 15350872},
    {"roberta-large", 355412057},
    {"xlm-roberta-base", 278295186},
    {"xlm-roberta-large", 560142482},
    {"distilbert-base", 66985530},
    {"electra-small", 13546682},
    {"electra-base", 109514298},
    {"electra-large", 335174458},
    {"modernbert-base", 149655232},
    {"modernbert-large", 395881664},
    {"tiny-moe", 307152},
    {"tiny-gpt2", 149248},
    {"tiny-llama", 164160},
    {"tiny-llama-2m", 1926560},
    {"tiny-qwen3", 156096},
    {"quickstart", 3196608},
    {"llama-58m", 58073600},
};
#define N_PUBLISHED (sizeof(published) / sizeof(published[0]))

static int load(lf_model_config *c, const char *text, lf_err *err)
{
    lf_ini ini = {0};
    int rc = lf_ini_parse_text(&ini, text, strlen(text), "m.ini", err);
    if (!rc)
        rc = lf_model_config_from_ini(c, &ini, "model", err);
    lf_ini_fini(&ini);
    return rc;
}

static void test_published(void)
{
    char path[4096];
    size_t seen = 0;
    const char *src = getenv("LF_SRCDIR");
    if (!src)
        tap_bail("LF_SRCDIR is not set");
    snprintf(path, sizeof(path), "%s/models", src);
    DIR *d = opendir(path);
    if (!d)
        tap_bail("%s cannot be read", path);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        size_t n = strlen(e->d_name), i = 0;
        if (n < 5 || strcmp(e->d_name + n - 4, ".ini") != 0)
            continue;
        while (i < N_PUBLISHED && (strlen(published[i].name) != n - 4 ||
                                   strncmp(published[i].name, e->d_name, n - 4) != 0))
            i++;
        if (!tap_ok(i < N_PUBLISHED, "%s has a published count in this test", e->d_name))
            continue;
        seen++;
        lf_err err = LF_ERR_INIT;
        lf_model_config c;
        snprintf(path, sizeof(path), "%s/models/%s", src, e->d_name);
        if (tap_rc(lf_model_config_load(&c, path, &err), 0, &err, NULL, e->d_name))
            tap_i64(lf_model_param_count(&c), published[i].params, e->d_name);
    }
    closedir(d);
    tap_i64((int64_t)seen, N_PUBLISHED, "every published count has its file");
}

#define TINY "layers = 2\nhidden = 64\nheads = 4\nffn = 128\nvocab = 100\nmax_positions = 64\n"

#define SCAN         "scan_heads = 4\nscan_key_dim = 8\nscan_value_dim = 8\n"
#define NO_ATTENTION "[model]\nfamily = llama\n" TINY "layer_mixers = s*\n" SCAN
static void test_errors(void)
{
    static const struct {
        const char *text, *contains;
    } v[] = {
        {"[model]\nfamily = llama\n" TINY "rope_thetta = 3\n",
         "m.ini:9:15: unknown key 'rope_thetta'"},
        {"[model]\nfamily = llama\n" TINY "rope_thetta = 3\n", "did you mean \"rope_theta\""},
        {"[model]\nfamily = lama\n" TINY,
         "m.ini:2:10: unknown family 'lama'; known: gpt2, gpt3, llama"},
        {"[model]\nfamily = llama\nlayers = 2\n", "needs hidden"},
        {"[model]\nfamily = llama\n" TINY "kv_heads = 3\n",
         "m.ini:9:12: [model] kv_heads: 3 kv_heads do not divide 4"},
        {"[model]\nfamily = llama\n" TINY "head_dim = 15\n",
         "m.ini:9:12: [model] head_dim: head_dim = 15"},
        {"[model]\nfamily = llama\n" TINY "head_dim = 514\n", "at most 512"},
        {"[model]\nfamily = llama\n" TINY "kv_shared_layers = 1\nkv_lora = 8\nnope_dim = 8\n"
         "rope_dim = 8\nv_dim = 8\n",
         "latent attention (kv_lora) has none"},
        {"[model]\nfamily = llama\n" TINY "kv_lora = 8\nnope_dim = 7\nrope_dim = 8\nv_dim = 8\n",
         "nope_dim: head_dim = 15"},
        {"[model]\nfamily = llama\n" TINY "kv_shared_layers = 2\n",
         "finds no layer of its kind before the last 2"},
        {"[model]\nfamily = llama\n" TINY "kv_shared_ffn = 8\n",
         "kv_shared_ffn: means nothing without kv_shared_layers"},
        {"[model]\nfamily = llama\n" TINY "kv_shared_layers = 1\nkv_shared_ffn = 8\n"
         "experts = 4\nexperts_per_token = 2\n",
         "kv_shared_ffn: means nothing without kv_shared_layers, one of them with an MLP"},
        {"[model]\nfamily = llama\n" TINY "keys_as_values = yes\nsliding_window = 8\n",
         "keys_as_values: means nothing without layers with attention and no window"},
        {"[model]\nfamily = llama\n" TINY "rope_scaling = proportional\nrope_fraction = 0.1\n",
         "rope_fraction: 0.1 of the 8 pairs of a head's channels is none that turns"},
        {"[model]\nfamily = llama\n" TINY "kv_shared_layers = 1\nmtp_layers = 1\n",
         "it has keys and values of its own"},
        {"[model]\nfamily = llama\n" TINY "per_layer_dim = 4\nmtp_layers = 1\n",
         "it has channels for the layers of the model"},
        {"[model]\nfamily = llama\n" TINY "per_layer_dim = 4\nmlp = plain\n",
         "it goes with mlp = glu and norm = rms"},
        {"[model]\nfamily = llama\n" TINY "per_layer_vocab = 4\n",
         "means nothing without per_layer_dim"},
        {"[model]\nfamily = t5\n" TINY, "position: relative is of encoder-decoders"},
        {"[model]\nfamily = llama\n" TINY "decoder_start = 3\n",
         "decoder_start: nothing reads it without encoder_layers"},
        {"[model]\nfamily = bart\n" TINY "encoder_layers = 1\nrelative_buckets = 8\n",
         "relative_buckets: nothing reads it without position = relative"},
        {"[model]\nfamily = t5\n" TINY "encoder_layers = 1\nrelative_buckets = 6\n",
         "it is a multiple of 4"},
        {"[model]\nfamily = t5\n" TINY "encoder_layers = 1\nrelative_distance = 16\n",
         "relative_distance: is not beyond half of relative_buckets"},
        {"[model]\nfamily = bart\n" TINY "encoder_layers = 1\nencoder_heads = 3\n",
         "encoder_heads: they do not divide"},
        {"[model]\nfamily = bart\n" TINY "encoder_layers = 1\ndecoder_start = 100\n",
         "decoder_start: is no token of the vocabulary"},
        {"[model]\nfamily = llama\n" TINY "encoder_layers = 1\n",
         "position: does not go with encoder_layers"},
        {"[model]\nfamily = llama\n" TINY "altup_streams = 1\n", "one stream is a model without"},
        {"[model]\nfamily = llama\n" TINY "altup_streams = 2\nlayer_gain = yes\n",
         "layer_gain: does not go with altup_streams"},
        {"[model]\nfamily = llama\n" TINY "altup_streams = 2\nmtp_layers = 1\n",
         "it reads one stream"},
        {"[model]\nfamily = llama\n" TINY "laurel_rank = 2\nparallel_block = one_norm\n",
         "it joins the stream between mixer and MLP"},
        {"[model]\nfamily = llama\n" TINY "gate_sparsity = 0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5\n",
         "gate_sparsity: 9 shares for"},
        {"[model]\nfamily = llama\n" TINY "gate_sparsity = 0.5\nmlp = plain\n",
         "layer 0 has no MLP with a gate"},
        {"[model]\nfamily = llama\n" TINY "layer_mlps = b*\n", "a layer is b, which needs experts"},
        {"[model]\nfamily = llama\n" TINY "router_norm = yes\n", "means nothing without experts"},
        {"[model]\nfamily = llama\n" TINY "layer_mlps = b*\nexperts = 4\nexperts_per_token = 2\n"
         "parallel_block = one_norm\n",
         "an MLP and experts have norms of their own"},
        {"[model]\nfamily = llama\n" TINY "kv_lora = 12\n",
         "kv_lora: latent attention needs nope_dim, rope_dim and v_dim"},
        {"[model]\nfamily = llama\n" TINY "v_dim = 12\n", "v_dim: means nothing without kv_lora"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = hf*\n",
         "a layer is h, which needs attn_chunk"},
        {"[model]\nfamily = llama\n" TINY "attn_chunk = 8\n",
         "attn_chunk: means nothing without layers whose letter in layer_mixers is h"},
        {"[model]\nfamily = llama\n" TINY "nope_growth = 0.1\n",
         "nope_growth: means nothing without layers that do not turn"},
        {"[model]\nfamily = llama\n" TINY "qk_unit_norm = yes\nqk_norm = yes\n",
         "qk_unit_norm: qk_norm has norms with weights in its place"},
        {"[model]\nfamily = llama\n" TINY "qk_unit_norm = yes\nlogn_length = 9\n",
         "qk_unit_norm: would undo logn_length and query_growth"},
        {"[model]\nfamily = llama\n" TINY "qk_unit_norm = yes\nlayer_positions = n*\n",
         "qk_unit_norm: means nothing without layers that turn"},
        {"[model]\nfamily = llama\n" TINY
         "experts = 4\nexperts_per_token = 2\nrouter_on_input = yes\n",
         "router_on_input: a token has one expert then: experts_per_token = 1"},
        {"[model]\nfamily = llama\n" TINY "router_on_input = yes\n",
         "router_on_input: means nothing without experts"},
        {"[model]\nfamily = llama\n" TINY
         "kv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\nhead_dim = 16\n",
         "head_dim: 16 is not nope_dim + rope_dim = 10"},
        {"[model]\nfamily = llama\n" TINY
         "kv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\nkv_heads = 2\n",
         "kv_heads: latent attention has as many as heads (4)"},
        {"[model]\nfamily = llama\n" TINY
         "kv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\nqk_norm = yes\n",
         "qk_norm: latent attention (kv_lora) has none"},
        {"[model]\nfamily = llama\n" TINY
         "kv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\nposition = alibi\n",
         "it needs position = rope"},
        {"[model]\nfamily = llama\n" TINY
         "kv_lora = 12\nnope_dim = 6\nrope_dim = 4\nv_dim = 5\nrope_mscale_all = 1\n",
         "means nothing without kv_lora and rope_scaling = yarn"},
        {"[model]\nfamily = llama\n" TINY "heads2 = 1\n", "unknown key 'heads2'"},
        {"[model]\nfamily = llama\nlayers = 2\nhidden = 65\nheads = 4\nffn = 128\nmax_positions = "
         "64\n",
         "m.ini:5:9: [model] heads: 4 heads do not divide hidden = 65"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = wx\n",
         "m.ini:10:16: layer_mixers = wx: 'wx' is no run of layers"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = w,,f\n",
         "is no run of layers"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = w,\n",
         "is no run of layers"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = *2\n",
         "is no run of layers"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = w*0,f*\n",
         "a run of no layers"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = w*,f\n",
         "* without a number repeats to the last layer, and more follows it"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = wff\n",
         "m.ini:10:16: [model] layer_mixers = wff names 3 layers of 2"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = w\n",
         "names 1 layers of 2"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = f*2\n",
         "m.ini:9:18: [model] sliding_window: no layer has a window"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = wf\n",
         "m.ini:9:16: [model] layer_mixers: a layer is w, which needs sliding_window"},
        {"[model]\nfamily = llama\n" TINY "layer_mlps = dm\n",
         "layer_mlps: a layer is m, which needs experts"},
        {"[model]\nfamily = llama\n" TINY "layer_positions = rl\n",
         "layer_positions: a layer is l, which needs rope_local_theta"},
        {"[model]\nfamily = llama\n" TINY "position = alibi\nlayer_positions = rn\n",
         "layer_positions: means nothing without position = rope"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = nf\nlayer_mlps = n*\n",
         "layer 0 has neither mixer nor MLP"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = nf\nparallel_block = one_norm\n",
         "parallel_block: layer 0 has no mixer"},
        {"[model]\nfamily = llama\n" TINY "window_kv_heads = 2\n",
         "window_kv_heads: means nothing without sliding_window"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nwindow_kv_heads = 3\n",
         "window_kv_heads: 3 do not divide 4 heads"},
        {"[model]\nfamily = llama\n" TINY "sliding_window = 8\nwindow_head_dim = 8\n",
         "layer 0 turns by tables for heads of another width"},
        {"[model]\nfamily = llama\n" TINY "mlp = plain\nmlp_gate_scale = 2\n",
         "mlp_gate_scale: means nothing without mlp = glu in layers without experts"},
        {"[model]\nfamily = llama\n" TINY "experts = 4\nexperts_per_token = 2\nmlp_out_scale = 2\n",
         "mlp_out_scale: means nothing without layers with an MLP and no experts"},
        {"[model]\nfamily = llama\n" TINY "expert_latent = 8\n",
         "expert_latent: means nothing without experts"},
        {"[model]\nfamily = llama\n" TINY
         "experts = 4\nexperts_per_token = 2\nexpert_latent = 64\n",
         "expert_latent: equals hidden"},
        {"[model]\nfamily = llama\n" TINY "window_pattern = 2\n", "layer_mixers"},
        {"[model]\nfamily = llama\n" TINY "dense_layers = 1\n", "layer_mlps"},
        {"[model]\nfamily = llama\n" TINY "rope_truncate = no\n",
         "means nothing without rope_scaling = yarn"},
        {"[model]\nfamily = llama\n" TINY "norm_bias = yes\n", "rms norm has no bias"},
        {"[model]\nfamily = llama\n" TINY "activation = swish\n",
         "activation = swish is not one of: none, gelu"},
        {"[model]\nfamily = llama\n" TINY "activation = none\n", "activation"},
        {"[model]\nfamily = llama\n" TINY "norm_eps = 1\n", "norm_eps = 1 is outside"},
        {"[model]\nfamily = llama\n" TINY "qk_norm = maybe\n", "m.ini:9:11: qk_norm"},
        {"[model]\nfamily = llama\n" TINY "layers = many\n", "layers is set twice"},
        {"[model]\nfamily = llama\n" TINY "rope_fraction = 0.9\nhead_dim = 10\n", "rope_fraction"},
        {"[model]\nfamily = llama\n" TINY "rope_factor = 4\n",
         "means nothing without rope_scaling"},
        {"[model]\nfamily = llama\n" TINY "position = alibi\nrope_theta = 5\n",
         "position is not rope (m.ini:9:12)"},
        {"[model]\nfamily = llama\n" TINY "position_offset = 2\n", "belongs to position = learned"},
        {"[model]\nfamily = llama\n" TINY "mask = both\noutput = score\n",
         "m.ini:10:10: [model] output: does not go with mask = both"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nposition = alibi\n",
         "position: does not go with mask = both"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nattn_chunk = 8\nlayer_mixers = h*\n",
         "attn_chunk: does not go with mask = both"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nmtp_layers = 1\n",
         "mask: does not go with mtp_layers = 1"},
        {"[model]\nfamily = llama\n" TINY "token_types = 2\n",
         "m.ini:9:15: [model] token_types: the two texts of a pair"},
        {"[model]\nfamily = llama\n" TINY "mask = both\ntoken_types = 2\nembed_dim = 8\n",
         "token_types: their rows are as wide as the stream"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nembed_narrow = yes\n",
         "embed_narrow: is of an embedding that has a width of its own"},
        {"[model]\nfamily = llama\n" TINY "embed_narrow = yes\nembed_dim = 8\n",
         "of encoders (mask = both)"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nembed_narrow = yes\nembed_dim = 8\n",
         "embed_narrow: the head over the vocabulary is as wide as the embedding"},
        {"[model]\nfamily = llama\n" TINY "mask = both\nembed_narrow = yes\nembed_dim = 8\n"
         "head_transform = yes\noutput = labels\nlabels = 3\nlabel_head = transform\n",
         "label_head: transform leads to the narrow embedding"},
        {"[model]\nfamily = bert\n" TINY "embed_narrow = yes\nembed_dim = 8\n",
         "embed_narrow: is of family = electra"},
        {"[model]\nfamily = roberta\n" TINY "nsp_head = yes\n", "nsp_head: is of family = bert"},
        {"[model]\nfamily = bert\n" TINY "generator_layers = 1\n",
         "generator_layers: is of family = electra"},
        {"[model]\nfamily = electra\n" TINY "generator_ffn = 8\n",
         "generator_ffn: means nothing without generator_layers"},
        {"[model]\nfamily = electra\n" TINY "generator_layers = 1\ngenerator_hidden = 8\n",
         "give generator_hidden, generator_heads and generator_ffn"},
        {"[model]\nfamily = electra\n" TINY
         "generator_layers = 1\ngenerator_hidden = 6\ngenerator_heads = 2\ngenerator_ffn = 8\n",
         "generator_hidden: 6 is no multiple of twice generator_heads = 2"},
        {"[model]\nfamily = electra\n" TINY "position = rope\ngenerator_layers = 1\n",
         "generator_layers: does not go with another position than learned"},
        {"[model]\nfamily = llama\n" TINY "nsp_head = yes\n",
         "nsp_head: means nothing without output = tokens and mask = both"},
        {"[model]\nfamily = llama\n" TINY "first_norm = no\nblock = post\n",
         "first_norm: is of block = pre"},
        {"[model]\nfamily = llama\n" TINY "head_transform_bias = yes\n",
         "head_transform_bias: means nothing without head_transform"},
        {"[model]\nfamily = llama\n" TINY "head_transform = yes\nembed_dim = 8\n",
         "head_transform: does not go with embed_dim"},
        {"[model]\nfamily = llama\n" TINY "norm_offset = 0.5\n", "neither 0 nor 1"},
        {"[model]\nfamily = llama\npreset = x\n" TINY, "family and preset together"},
        {"[model]\nfamily = llama\n" TINY "block = both\n",
         "block = both is not one of: pre, post, sandwich, alpha"},
        {"[model]\nfamily = llama\n" TINY "block = post\nparallel_block = one_norm\n",
         "block = pre only (m.ini:9:9)"},
        {"[model]\nfamily = llama\n" TINY "residual_alpha = 2\n",
         "m.ini:9:18: [model] residual_alpha: means nothing without block = alpha"},
        {"[model]\nfamily = llama\n" TINY "block = alpha\nresidual_factors = 1,2\n",
         "m.ini:10:20: [model] residual_factors: 6 numbers"},
        {"[model]\nfamily = llama\n" TINY "residual_factors = 1,2,3,4,5,6\n",
         "means nothing without block = alpha"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = sf*\n",
         "layers with s need scan_heads, scan_key_dim and scan_value_dim"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = sg*\n" SCAN, "layers are s and g"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = s*\n" SCAN "mask = prefix\n",
         "sees nothing behind a token"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = c*\n", "has 2 to 8 taps"},
        {NO_ATTENTION "qkv_bias = yes\n", "qkv_bias: means nothing without layers with attention"},
        {NO_ATTENTION "out_bias = yes\n", "out_bias: means nothing without layers with attention"},
        {NO_ATTENTION "qk_norm = yes\n", "qk_norm: means nothing without layers with attention"},
        {NO_ATTENTION "attn_gate = yes\n",
         "attn_gate: means nothing without layers with attention"},
        {NO_ATTENTION "attn_sinks = yes\n",
         "attn_sinks: means nothing without layers with attention"},
        {NO_ATTENTION "attn_softcap = 5\n",
         "attn_softcap: means nothing without layers with attention"},
        {NO_ATTENTION "attn_scale = 2\n",
         "attn_scale: means nothing without layers with attention"},
        {NO_ATTENTION "attn_prob_dropout = 0.1\n",
         "attn_prob_dropout: means nothing without layers with attention"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = k*\n" SCAN, "it is for layers with k"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = s*\n" SCAN "scan_groups = 3\n",
         "3 do not divide 4 scan_heads"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = g*\n" SCAN "scan_scales = 1,2,3,4,5\n",
         "5 numbers for layers with s or b"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = l*\n" SCAN "scan_step_max = 1\n",
         "they have no steps"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = s*\n" SCAN "scan_strength = 2\n",
         "scan_strength: no layer reads it: it needs layers with g or k"},
        {"[model]\nfamily = gemma\n" TINY "norm_weight = no\n",
         "norms without weights have no norm_offset"},
        {"[model]\nfamily = llama\n" TINY "block = out_attention\n",
         "out_attention is for layers some of which attend and some of which do not"},
        {"[model]\nfamily = llama\n" TINY "scan_heads = 4\n", "no layer reads it"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = cf\nscan_conv = 3\nscan_heads = 4\n",
         "m.ini:11:14: [model] scan_heads: no layer reads it: it needs layers with s, g, k, l or "
         "b"},
        {"[model]\nfamily = llama\n" TINY "scan_gate = silu\n", "scan_gate: no layer reads it"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = sf\n" SCAN "scan_conv_bias = yes\n",
         "scan_conv_bias: no layer reads it: it needs scan_conv"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = sf\n" SCAN "scan_norm_parts = 2\n",
         "scan_norm_parts: no layer reads it: it needs layers with s, g, k, l or b, and scan_norm"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = s*\n" SCAN "attn_in_scale = 2\n",
         "attn_in_scale: no layer reads it: it needs a layer that attends"},
        {"[model]\nfamily = llama\n" TINY "layer_mixers = cf\nscan_conv = 3\nscan_in_scale = 2\n",
         "scan_in_scale: no layer reads it"},
        {"[model]\nfamily = llama\n" TINY "embed_dim = 64\n", "equals hidden"},
        {"[model]\nfamily = llama\n" TINY "rope_local_theta = 100\n",
         "means nothing without position = rope and layers with a window"},
        {"[model]\nfamily = llama\n" TINY "rope_scaling = yarn\nrope_factor = 4\n",
         "needs rope_original_positions"},
        {"[model]\nfamily = llama\n" TINY "rope_scaling = dynamic\n",
         "needs rope_original_positions"},
        {"[model]\nfamily = llama\n" TINY
         "rope_scaling = yarn\nrope_original_positions = 16\nrope_beta_fast = 0.9\n",
         "must not be below rope_beta_slow"},
        {"[model]\nfamily = llama\n" TINY "rope_beta_fast = 30\n",
         "means nothing without rope_scaling = yarn"},
        {"[model]\nfamily = llama\n" TINY "rope_attn_factor = 1.1\n",
         "means nothing without rope_scaling = yarn or longrope"},
        {"[model]\nfamily = llama\n" TINY "rope_short_factors = 1,2\n",
         "means nothing without rope_scaling = longrope"},
        {"[model]\nfamily = llama\n" TINY
         "rope_scaling = longrope\nrope_original_positions = 16\nrope_short_factors = 1,2\n",
         "2 numbers, but 8 pairs of channels turn"},
        {"[model]\nfamily = llama\n" TINY "rope_long_factors = 1,two\n",
         "m.ini:9:21: rope_long_factors, number 2"},
        {"[model]\nfamily = llama\n" TINY "rope_long_factors = 1,2,\n", "ends in a comma"},
        {"[model]\nfamily = llama\n" TINY "rope_long_factors = 1,0\n", "number 2 = 0 is outside"},
        {"[model]\nfamily = llama\n" TINY "logn_length = 16\nrope_fraction = 0.5\n",
         "needs rope over the whole head"},
        {"[model]\nfamily = llama\n" TINY "logn_length = 1\n", "logn_length"},
        {"[model]\nfamily = llama\n" TINY "position = rope2d\n", "it needs mask = prefix"},
        {"[model]\nfamily = llama\n" TINY "position = rope2d\nmask = prefix\nhead_dim = 14\n",
         "1 of 7 is 7"},
        {"[model]\nfamily = llama\n" TINY
         "position = rope2d\nmask = prefix\nrope_scaling = linear\n",
         "not for rope2d"},
        {"[model]\nfamily = llama\n" TINY "position = alibi\nmask = prefix\n",
         "a prefix looks ahead"},
        {"[model]\nfamily = llama\n" TINY "mask = image_blocks\n", "vision.family is not given"},
        {"[model]\nfamily = llama\n" TINY "position = alibi\nmask = image_blocks\n",
         "tokens of a picture look ahead"},
        {"[model]\nfamily = llama\n" TINY "norm_head = yes\nhead_bias = yes\n",
         "a head of unit rows has none (norm_head, m.ini:9:13)"},
        {"[model]\nfamily = llama\n" TINY "score_init = zero\n",
         "score_init: means nothing without output = score"},
        {"[model]\nfamily = llama\n" TINY "output = score\nlogit_softcap = 30\n",
         "means nothing without output = tokens"},
        {"[model]\nfamily = llama\n" TINY "output = score\nmask = prefix\n",
         "a score is read where a text ends"},
        {"[model]\nfamily = llama\n" TINY "output = labels\n", "needs how many there are"},
        {"[model]\nfamily = llama\n" TINY "output = labels\nlabels = 3\nlabels_of = span\n",
         "labels: a span has two"},
        {"[model]\nfamily = llama\n" TINY "output = labels\nlabels = 3\nlabel_row = first\n",
         "label_row: the first token of a text sees nothing"},
        {"[model]\nfamily = llama\n" TINY "labels = 3\n",
         "labels: means nothing without output = labels"},
        {"[model]\nfamily = llama\n" TINY "output = labels\nlabels = 3\nlabel_head = transform\n",
         "label_head: transform is that of head_transform"},
        {"[model]\nfamily = llama\n" TINY "output = labels\nlabels = 3\nhead_transform = yes\n",
         "head_transform: means nothing without"},
        {"[model]\nfamily = llama\n" TINY "output = labels\nlabels = 3\nmask = prefix\n",
         "nobody says where its prefix ends"},
        {"[model]\npreset = no/such.ini\n", "m.ini:2:10: preset 'no/such.ini' not found"},
        {"[other]\na = 1\n", "no section [model]"},
    };
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c = {0};
        int rc = load(&c, v[i].text, &err);
        tap_ok(rc < 0 && strstr(err.text, v[i].contains), "refused with '%s': %s", v[i].contains,
               err.text);
        tap_i64(c.layers, 0, "output untouched");
    }
}

static void test_presets(void)
{
    char path[4096], text[8192];
    lf_err err = LF_ERR_INIT;
    lf_model_config c, d;
    snprintf(path, sizeof(path), "%s/models", getenv("LF_SRCDIR"));
    setenv("LF_MODELS_DIR", path, 1);
    tap_rc(load(&c, "[model]\npreset = qwen3-0.6b\nlayers = 3\n", &err), 0, &err, NULL,
           "preset by name");
    tap_i64(c.layers, 3, "an explicit key overrides the preset");
    tap_i64(c.head_dim, 128, "the rest is the preset's");
    tap_ok(c.qk_norm && c.tied_head && !c.qkv_bias, "switches of Qwen3");
    tap_str(c.family, "qwen3", "family");
    snprintf(text, sizeof(text), "[model]\npreset = %s/gpt2-124m.ini\nvocab = 50304\n", path);
    tap_rc(load(&c, text, &err), 0, &err, NULL, "preset by path");
    tap_ok(c.norm == LF_NORM_LAYER && c.norm_bias && c.position == LF_POS_LEARNED &&
               c.activation == LF_ACT_GELU_TANH && c.mlp == LF_MLP_PLAIN && c.qkv_bias &&
               c.out_bias && c.mlp_bias && c.tied_head && c.init == LF_MINIT_RESIDUAL_SCALED,
           "switches of GPT-2");
    tap_i64(c.vocab, 50304, "vocab override");

    json_t *o = lf_model_config_to_json(&c, &err);
    tap_ok(o != NULL, "to JSON");
    tap_rc(lf_model_config_from_json(&d, o, "state.json", &err), 0, &err, NULL, "and back");
    const char *key = NULL;
    tap_ok(lf_model_config_equal(&c, &d, &key), "equal after the round trip");
    d.norm_eps = nextafter(d.norm_eps, 1);
    tap_ok(!lf_model_config_equal(&c, &d, &key) && strcmp(key, "norm_eps") == 0,
           "one ulp of norm_eps is a difference");
    json_object_set_new(o, "surprise", json_string("1"));
    tap_rc(lf_model_config_from_json(&d, o, "state.json", &err), LF_EINVAL, &err,
           "state.json: unknown key 'surprise'", "an unknown member is refused");
    json_decref(o);
}

static void test_positions(void)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    float cs[4 * 8], sn[4 * 8], slope[16];
    tap_rc(load(&c, "[model]\nfamily = llama\n" TINY, &err), 0, &err, NULL, "a small Llama");
    lf_model_rope_tables(&c, 4, 0, cs, sn);
    tap_f64((double)cs[3 * 8 + 0], cos(3.0), 1e-7, "channel 0 turns by one radian a position");
    tap_f64((double)sn[3 * 8 + 5], sin(3.0 * pow(10000, -10.0 / 16)), 1e-7, "channel 5");
    c.rope_scaling = LF_ROPE_LINEAR;
    c.rope_factor = 4;
    lf_model_rope_tables(&c, 4, 0, cs, sn);
    tap_f64((double)sn[2 * 8 + 0], sin(0.5), 1e-7, "linear scaling divides the position");

    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY "rope_local_theta = 100\nlayer_positions = lr*\n",
                &err),
           0, &err, NULL, "layers turn by a theta of their own without a window");
    tap_ok(lf_model_layer_local(&c, 0) && c.rope_local_theta > 99, "which is kept");
    tap_rc(load(&c, "[model]\nfamily = gemma3\n" TINY, &err), 0, &err, NULL, "no windows");
    tap_f64(c.rope_local_theta, 0, 0, "then nothing of the family reads rope_local_theta");
    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY
                "rope_scaling = yarn\nrope_factor = 4\nrope_original_positions = 16\n"
                "rope_beta_fast = 2\nrope_beta_slow = 0.01\n",
                &err),
           0, &err, NULL, "YaRN");
    /* d(2) = 0.21, d(0.01) = 4.81: pair 0 keeps its frequency, pair 5 and later are divided, pair 2
     * is 2/5 of the way.
     */
    double amp = 0.1 * log(4) + 1, f2 = pow(10000, -4.0 / 16);
    lf_model_rope_tables(&c, 2, 0, cs, sn);
    tap_f64((double)sn[8], amp * sin(1.0), 1e-6,
            "YaRN: fast pairs keep their frequency, cos and sin grow");
    tap_f64((double)sn[8 + 5], amp * sin(pow(10000, -10.0 / 16) / 4), 1e-9,
            "slow ones are divided by the factor");
    tap_f64((double)sn[8 + 2], amp * sin(0.4 * f2 / 4 + 0.6 * f2), 1e-7, "linear in between");
    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY
                "rope_scaling = yarn\nrope_factor = 4\nrope_original_positions = 16\n"
                "rope_beta_fast = 1\nrope_beta_slow = 1\n",
                &err),
           0, &err, NULL, "YaRN with one beta");
    /* d(1) = 0.81: pair 0 keeps its frequency, pair 1 is divided. */
    lf_model_rope_tables(&c, 2, 0, cs, sn);
    tap_f64((double)sn[8], amp * sin(1.0), 1e-6, "the pair below the step keeps its frequency");
    tap_f64((double)sn[8 + 1], amp * sin(pow(10000, -2.0 / 16) / 4), 1e-7, "the next is divided");
    c.rope_attn_factor = 3;
    lf_model_rope_tables(&c, 1, 0, cs, NULL);
    tap_f64((double)cs[0], 3, 0, "rope_attn_factor replaces the rule");
    tap_rc(
        load(&c,
             "[model]\nfamily = llama\n" TINY
             "rope_scaling = longrope\nrope_factor = 4\nrope_original_positions = 16\n"
             "rope_short_factors = 1,1,1,1,1,1,1,1.5\nrope_long_factors = 1, 2, 3, 4, 5, 6, 7, 8\n",
             &err),
        0, &err, NULL, "longrope");
    float lr[17 * 8];
    amp = sqrt(1 + log(4) / log(16));
    lf_model_rope_tables(&c, 17, 0, NULL, lr);
    tap_f64((double)lr[8 + 7], amp * sin(pow(10000, -14.0 / 16) / 1.5), 1e-9,
            "documents up to the original length: the short factors");
    lf_model_rope_tables(&c, 17, LF_ROPE_LONG, NULL, lr);
    tap_f64((double)lr[8 + 2], amp * sin(pow(10000, -4.0 / 16) / 3), 1e-7,
            "beyond it: the long ones");
    json_t *o = lf_model_config_to_json(&c, &err);
    lf_model_config back;
    tap_ok(o && !lf_model_config_from_json(&back, o, "state.json", &err) &&
               lf_model_config_equal(&c, &back, NULL),
           "lists survive JSON: %s", err.text);
    json_decref(o);
    back.rope_long_factors.v[7] = nextafter(8, 9);
    tap_ok(!lf_model_config_equal(&c, &back, NULL), "and one ulp of one is a difference");

    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY
                "logn_length = 2\nsliding_window = 4\nlayer_mixers = wf*\nrope_local_theta = 100\n"
                "rope_scaling = linear\nrope_factor = 4\n",
                &err),
           0, &err, NULL, "log-n and a local theta");
    lf_model_rope_tables(&c, 4, LF_ROPE_QUERY, NULL, sn);
    tap_f64((double)sn[1 * 8], sin(0.25), 1e-7, "queries below the length are as they were");
    tap_f64((double)sn[3 * 8], sin(0.75) * log(4) / log(2), 1e-6, "log-n from there on");
    lf_model_rope_tables(&c, 4, 0, NULL, sn);
    tap_f64((double)sn[3 * 8], sin(0.75), 1e-7, "but not of keys");
    lf_model_rope_tables(&c, 4, LF_ROPE_LOCAL, NULL, sn);
    tap_f64((double)sn[3 * 8 + 1], sin(3 * pow(100, -2.0 / 16)), 1e-7,
            "windowed layers have their own theta, unscaled");
    tap_ok(lf_model_layer_local(&c, 0) && !lf_model_layer_local(&c, 1),
           "every second layer attends in full");
    tap_i64(lf_model_layer_window(&c, 0), 4, "the first slides");
    tap_i64(lf_model_layer_window(&c, 1), 0, "the second does not");

    tap_rc(load(&c, "[model]\nfamily = llama\n" TINY "block = alpha\n", &err), 0, &err, NULL,
           "alpha");
    tap_f64(c.residual_alpha, 2, 1e-12, "its default is sqrt(2 layers)");

    /* Llama 3.1: theta 5e5, D 128. Channel 0 is untouched, the slowest is divided by 8, channel 31
     * lies between. */
    tap_rc(load(&c, "[model]\npreset = llama3.1-8b\n", &err), 0, &err, NULL, "llama 3.1");
    float *lc = malloc(2 * 64 * sizeof(float)), *ls = malloc(2 * 64 * sizeof(float));
    lf_model_rope_tables(&c, 2, 0, lc, ls);
    double f63 = pow(5e5, -126.0 / 128), f31 = pow(5e5, -62.0 / 128);
    double s = (8192 * f31 / (2 * M_PI) - 1) / 3;
    tap_f64((double)ls[64], sin(1.0), 1e-7, "fast channels keep their frequency");
    tap_f64((double)ls[64 + 63], sin(f63 / 8), 1e-12, "slow channels are divided by the factor");
    if (s > 0 && s < 1)
        tap_f64((double)ls[64 + 31], sin((1 - s) * f31 / 8 + s * f31), 1e-9, "smooth in between");
    else
        tap_f64((double)ls[64 + 31], sin(s >= 1 ? f31 : f31 / 8), 1e-9, "outside the smooth range");
    free(lc);
    free(ls);

    c.heads = 8;
    lf_model_alibi_slopes(&c, slope);
    tap_f64((double)slope[0], 0.5, 0, "ALiBi, 8 heads: first slope");
    tap_f64((double)slope[7], 1.0 / 256, 0, "last slope");
    c.heads = 12;
    lf_model_alibi_slopes(&c, slope);
    tap_f64((double)slope[8], exp2(-0.5), 1e-7, "12 heads: the ninth is the first odd one of 16");
    tap_f64((double)slope[11], exp2(-3.5), 1e-7, "and the twelfth the seventh");
}

static void test_flops(void)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    tap_rc(load(&c, "[model]\npreset = gpt2-124m\n", &err), 0, &err, NULL, "gpt2");
    /* The published speed table: 6 x weights x tokens + 12 L d T^2 B is 788.0 GFLOP at B = 4, T =
     * 256. */
    tap_f64(lf_model_train_flops_per_token(&c, 256, false) * 1024 * 1e-9, 788.0, 0.1,
            "GPT-2 124M step, full attention");
    double full = lf_model_train_flops_per_token(&c, 256, false),
           causal = lf_model_train_flops_per_token(&c, 256, true);
    tap_f64(full - causal, 6.0 * 12 * 768 * 256, 1, "causal counts half of attention");
    tap_rc(load(&c, "[model]\npreset = llama-58m\n", &err), 0, &err, NULL, "llama-58m");
    tap_f64(lf_model_train_flops_per_token(&c, 512, false) * 2048 * 1e-9, 563.7, 0.1,
            "58M step, full attention");
    tap_rc(load(&c, "[model]\nfamily = qwen2\n" TINY "sliding_window = 16\nlayer_mixers = f,w*\n",
                &err),
           0, &err, NULL, "one full layer and one windowed");
    tap_i64(lf_model_layer_window(&c, 0), 0, "layer 0 attends in full");
    tap_i64(lf_model_layer_window(&c, 1), 16, "layer 1 slides");
    double base = 6.0 * (double)lf_model_matmul_params(&c);
    tap_f64(lf_model_train_flops_per_token(&c, 64, true) - base, 12.0 * 64 * (32 + 16 - 2), 1e-6,
            "windowed attention");
    tap_rc(load(&c,
                "[model]\nfamily = qwen2\n" TINY "sliding_window = 16\nlayer_mixers = f,w*\n"
                "mask = both\n",
                &err),
           0, &err, NULL, "the same of both sides");
    tap_f64(lf_model_train_flops_per_token(&c, 64, true) - base, 12.0 * 64 * (64 + 31), 1e-6,
            "all keys, and those of a window of both sides");
}

/* The text that a pattern has in a finished model of so many layers. */
static void check_pattern(int layers, const char *key, const char *given, const char *want)
{
    char ini[512];
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    snprintf(ini, sizeof ini,
             "[model]\nfamily = llama\nlayers = %d\nhidden = 64\nheads = 4\nffn = 128\n"
             "max_positions = 64\nsliding_window = 8\nexperts = 4\nexperts_per_token = 2\n"
             "rope_local_theta = 100\n%s = %s\n",
             layers, key, given);
    const int rc = load(&c, ini, &err);
    json_t *o = rc == 0 ? lf_model_config_to_json(&c, &err) : NULL;
    const char *text = json_string_value(json_object_get(o, key));
    char name[128];
    snprintf(name, sizeof name, "%d layers: %s = %s", layers, key, given);
    tap_str(text ? text : err.text, want, name);
    json_decref(o);
}

static void test_patterns(void)
{
    static const struct {
        int layers;
        const char *key, *given, *want;
    } rows[] = {
        {6, "layer_mixers", "wf*", "wf*"},
        {6, "layer_mixers", "wfwfwf", "wf*"},
        {6, "layer_mixers", "wf*3", "wf*"},
        {7, "layer_mixers", "wf*3,w", "wf*"},
        {6, "layer_mixers", "w*", ""}, /* as it is without the key */
        {6, "layer_mixers", "wwwwww", ""},
        {6, "layer_mlps", "m*6", ""},
        {61, "layer_mlps", "d*3,m*58", "ddd,m*"},
        {61, "layer_mlps", "d*4,m*", "d*4,m*"},
        {12, "layer_mixers", "f,w*10,f", "fwwwwwwwwww*"},
        {12, "layer_mixers", "w,f*10,n", "w,f*10,n"},
        {26, "layer_mixers", "wwwwwf*", "wwwwwf*"},
        {12, "layer_mixers", "wfww*2,f*4", "wfwwwfww,f*"},
        {4, "layer_positions", "lllr", "lllr"},
        {4, "layer_positions", "l*", ""},
        {4, "layer_positions", "rrrn*", "rrrn"},
        {1, "layer_mixers", "wf*", ""},
        {2, "layer_mixers", "wf*", "wf"},
        {4096, "layer_mixers", "wwf*", "wwf*"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_pattern(rows[i].layers, rows[i].key, rows[i].given, rows[i].want);

    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    char odd[601] = "";
    unsigned x = 1;
    for (int i = 0; i < 600; i++)
        odd[i] = (x = x * 1103515245 + 12345) >> 30 & 1 ? 'w' : 'f';
    struct lf_model_pattern p;
    tap_rc(lf_model_pattern_of(&p, odd, 600, &err), LF_ENOTSUP, &err, "follow no pattern",
           "layers without a pattern, too many to write out");
    err = (lf_err)LF_ERR_INIT;
    tap_rc(lf_model_pattern_of(&p, odd, 60, &err), 0, &err, NULL, "60 can be written out");
    bool same = true;
    tap_rc(load(&c,
                "[model]\nfamily = mistral\nlayers = 60\nhidden = 64\nheads = 4\nffn = 128\n"
                "max_positions = 64\n",
                &err),
           0, &err, NULL, "a model of 60 layers");
    c.layer_mixers = p;
    for (int l = 0; l < 60; l++)
        same = same && lf_model_layer_mixer(&c, l) == odd[l];
    tap_ok(same, "and each has its letter: %s", p.text);
}

/* Checkpoints of before counted layers. */
static void test_counters(void)
{
    static const struct {
        const char *key, *value, *of, *want;
    } rows[] = {
        {"window_pattern", "3", "layer_mixers", "wwf*"},
        {"max_window_layers", "2", "layer_mixers", "ff,w*"},
        {"window_layers", "0,3", "layer_mixers", "wff*"},
        {"dense_layers", "1", "layer_mlps", "d,m*"},
        {"moe_period", "2", "layer_mlps", "dm*"},
        {"mlp_layers", "1,2", "layer_mlps", "mdd,m*"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lf_model_config c, back;
        lf_err err = LF_ERR_INIT;
        tap_rc(load(&c,
                    "[model]\nfamily = llama\nlayers = 6\nhidden = 64\nheads = 4\nffn = 128\n"
                    "max_positions = 64\nsliding_window = 8\nexperts = 4\n"
                    "experts_per_token = 2\n",
                    &err),
               0, &err, NULL, "a model");
        json_t *o = lf_model_config_to_json(&c, &err);
        json_object_del(o, "layer_mixers");
        json_object_del(o, "layer_mlps");
        json_object_set_new(o, "moe_period", json_string("1"));
        json_object_set_new(o, rows[i].key, json_string(rows[i].value));
        tap_rc(lf_model_config_from_json(&back, o, "state.json", &err), 0, &err, NULL,
               "its checkpoint is read");
        json_decref(o);
        o = lf_model_config_to_json(&back, &err);
        tap_str(json_string_value(json_object_get(o, rows[i].of)), rows[i].want, rows[i].key);
        json_decref(o);
    }
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    json_t *o = json_pack("{s:s, s:s, s:s}", "family", "llama", "sliding_window", "8",
                          "window_pattern", "2");
    tap_rc(lf_model_config_from_json(&c, o, "state.json", &err), LF_EINVAL, &err, "needs layers",
           "one that says of no layers how many there are");
    json_decref(o);
}

static void test_heads(void)
{
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY "sliding_window = 8\nlayer_mixers = fw\n"
                "head_dim = 256\nwindow_head_dim = 258\nrope_local_theta = 100\n",
                &err),
           0, &err, NULL, "heads of 256 and 258 channels");
    tap_rc(lf_model_heads_fit(&c, 512, "a CPU", &err), 0, &err, NULL, "fit where 512 do");
    tap_rc(
        lf_model_heads_fit(&c, 256, "sm_90", &err), LF_EINVAL, &err,
        "[model] window_head_dim: heads of layer 1 have 258 channels, and attention on sm_90 takes "
        "at most 256",
        "not where 256 do");
    tap_rc(load(&c,
                "[model]\nfamily = llama\n" TINY
                "kv_lora = 8\nnope_dim = 252\nrope_dim = 8\nv_dim = 8\n",
                &err),
           0, &err, NULL, "keys of 260 channels in two parts");
    tap_rc(lf_model_heads_fit(&c, 256, "sm_90", &err), LF_EINVAL, &err,
           "[model] nope_dim: heads of layer 0 have 260 channels", "do not either");
}

int main(void)
{
    TAP(5, test_heads());
    TAP(23, test_patterns());
    TAP(19, test_counters());
    TAP(538, test_published());
    TAP(348, test_errors());
    TAP(13, test_presets());
    TAP(39, test_positions());
    TAP(11, test_flops());
    return tap_done();
}
