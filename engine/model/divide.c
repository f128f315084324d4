/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks may divide of a model, by the keys of its description. */
#include <stdio.h>

#include "engine/graph/layout.h"
#include "engine/model/decoder_priv.h"

/* Of a vision encoder, ranks divide the heads and the channels of MLPs in every stage. */
static int check_stages(const lf_model_config *c, int64_t ranks, lf_err *err)
{
    const bool staged = c->vision.stage_layers.n > 0;
    for (int64_t s = 0; c->vision.family && s < lf_vision_stages(&c->vision); s++) {
        const struct lf_vision_stage t = lf_vision_stage_of(&c->vision, s);
        const bool heads = t.heads % ranks != 0;
        char of[48] = "";
        if (staged)
            snprintf(of, sizeof of, " of stage %lld", (long long)s + 1);
        if (heads || t.ffn % ranks)
            return lf_fail(err, LF_EINVAL,
                           "vision.%s = %lld%s do not divide among %lld ranks (tensor); take a "
                           "tensor that divides %s",
                           !heads   ? "ffn"
                           : staged ? "stage_heads"
                                    : "heads",
                           (long long)(heads ? t.heads : t.ffn), of, (long long)ranks,
                           staged ? "those of every stage" : "them");
    }
    return 0;
}

/* What ranks of the tensor axis divide, by the keys of the description. */
static int check_ranks(const lf_model_config *c, int64_t ranks, lf_err *err)
{
    const struct {
        const char *key;
        int64_t value;
        bool shared; /* or several ranks have the same part */
    } parts[] = {{"heads", c->heads, false},
                 {"kv_heads", c->kv_heads, true},
                 {"window_kv_heads", c->window_kv_heads, true},
                 {"scan_heads", c->scan_heads, false},
                 {"scan_groups", c->scan_groups, true},
                 {"scan_norm_parts", c->scan_norm ? c->scan_norm_parts : 0, false},
                 {"hidden",
                  lf_model_count_layers(c, lf_model_layer_mixer, LF_MIXER_CONV) ? c->hidden : 0,
                  false},
                 {"ffn", lf_model_has_dense(c) ? c->ffn : 0, false},
                 {"encoder_heads", c->encoder_heads, false},
                 {"encoder_ffn", c->encoder_ffn, false},
                 {"kv_shared_ffn", c->kv_shared_ffn, false},
                 {"mae.heads", c->mae.heads, false},
                 {"mae.ffn", c->mae.ffn, false},
                 {"expert_ffn", c->experts ? c->expert_ffn : 0, false},
                 {"shared_ffn", c->experts ? c->shared_ffn : 0, false}};
    for (int64_t l = 0; l < c->layers; l++)
        if (lf_model_layer_sparsity(c, l) > 0)
            return lf_fail(err, LF_ENOTSUP,
                           "[model] gate_sparsity: mean and deviation of a gate that tensor "
                           "divides; take tensor = 1");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const int64_t n = parts[i].value;
        if (n > 0 && n % ranks && !(parts[i].shared && ranks % n == 0))
            return lf_fail(err, LF_EINVAL,
                           "%s = %lld do not divide among %lld ranks (tensor); take a tensor that "
                           "divides %s%s",
                           parts[i].key, (long long)n, (long long)ranks, parts[i].key,
                           parts[i].shared ? ", or a multiple of them" : "");
    }
    return check_stages(c, ranks, err);
}

int lf_decoder_context_heads(const lf_model_config *c, int tensor, int context)
{
    const int64_t t = tensor > 1 ? tensor : 1,
                  heads[] = {c->heads / t, c->kv_heads > t ? c->kv_heads / t : 1,
                             c->window_kv_heads > t   ? c->window_kv_heads / t
                             : c->window_kv_heads > 0 ? 1
                                                      : 0};
    for (int n = context; n > 1; n--)
        if (context % n == 0 && heads[0] % n == 0 && heads[1] % n == 0 && heads[2] % n == 0)
            return n;
    return 1;
}

int64_t lf_decoder_reach(const lf_model_config *c)
{
    int64_t most = 0;
    if (c->mask != LF_MASK_CAUSAL)
        return 0;
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t n = lf_model_layer_window(c, l) + lf_model_layer_chunk(c, l);
        if (n == 0 && lf_model_layer_attends(c, l))
            return 0;
        most = n > most ? n : most;
    }
    return most;
}

bool lf_decoder_mostly_near(const lf_model_config *c, int64_t most)
{
    int64_t near = 0, all = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t n = lf_model_layer_window(c, l) + lf_model_layer_chunk(c, l);
        all += lf_model_layer_attends(c, l);
        near += lf_model_layer_attends(c, l) && n > 0 && n <= most;
    }
    return c->mask == LF_MASK_CAUSAL && near > 0 && 2 * near >= all;
}

/* What encoder-decoders are not divided by. */
static int check_two_stacks(const lf_model_config *c, const struct lf_layout *of, lf_err *err)
{
    return !lf_model_is_seq2seq(c) || of->context <= 1
               ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "[model] encoder_layers: the rows of sources are not divided; take "
                         "context = 1");
}

/* Nor are the captions of two towers, which are read whole. */
static int check_towers(const lf_model_config *c, const struct lf_layout *of, lf_err *err)
{
    return !lf_model_is_dual(c) || of->context <= 1
               ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "[model] dual.dim: rows of captions and pictures are not divided; take "
                         "context = 1");
}

/* Of what mixes tokens, only attention brings rows of other ranks (graph/layout.h). */
static int check_context(const lf_model_config *c, const struct lf_layout *of, lf_err *err)
{
    const int64_t tensor = of->tensor > 1 ? of->tensor : 1,
                  heads[] = {c->heads / tensor, c->kv_heads > tensor ? c->kv_heads / tensor : 1,
                             c->window_kv_heads > tensor ? c->window_kv_heads / tensor : 1};
    const char *const keys[] = {"heads", "kv_heads", "window_kv_heads"};
    for (int64_t l = 0; l < c->layers; l++) {
        const bool conv = lf_model_layer_mixer(c, l) == LF_MIXER_CONV;
        if (conv || lf_model_layer_scans(c, l))
            return lf_fail(err, LF_ENOTSUP,
                           "context = %d: layer %lld %s, which goes through a document row after "
                           "row; only attention is divided; take context = 1",
                           of->context, (long long)l, conv ? "is a short convolution" : "scans");
    }
    for (int i = 0; i < 3 && !of->context_gather; i++)
        if (heads[i] % of->context && (i == 0 || of->context % heads[i]))
            return lf_fail(err, LF_EINVAL,
                           "%s = %lld%s do not divide among %d ranks (context); take a context "
                           "that divides %s%s; on CPUs context_kind = gather asks for "
                           "no such thing",
                           keys[i], (long long)heads[i], tensor > 1 ? " of a rank of tensor" : "",
                           of->context, keys[i], i ? ", or a multiple of them" : "");
    return 0;
}

int lf_dec_check_layout(const lf_model_config *c, const struct lf_layout *of, lf_err *err)
{
    int rc = check_two_stacks(c, of, err);
    if (rc == 0)
        rc = check_towers(c, of, err);
    if (rc == 0 && of->tensor > 1)
        rc = check_ranks(c, of->tensor, err);
    if (rc == 0 && of->context > 1)
        rc = check_context(c, of, err);
    return rc == 0 && of->sequence && (lf_model_sees_alone(c) || lf_model_is_dual(c))
               ? lf_fail(err, LF_ENOTSUP,
                         "sequence_parallel does not divide rows of pictures; set "
                         "sequence_parallel = no")
               : rc;
}
