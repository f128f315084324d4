#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold the oracle files to transformers where a model of it computes the same: the golden weights under other names.

    ChatGLM 3 = GLM-4-9B    InternLM2, Baichuan 7B = Llama    Qwen 1 without the logarithm = Qwen 2
    DeepSeek with experts, shared ones silenced = Qwen 2 with experts    Baichuan 2 = Llama with the head's rows divided by their norms

What has no such model: ALiBi of Baichuan 13B (its slopes are BLOOM's), the logarithm of Qwen 1, ChatGLM-6B.
A development tool like make_families.py.
"""
import torch
import transformers as tf

from make_families import Reference, load_file


def model(cls, config, weights):
    config._attn_implementation, config._experts_implementation = "eager", "eager"
    m = cls(config).eval()
    missing, unexpected = m.load_state_dict(weights, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return m


def rename(weights, *pairs):
    out = {}
    for name, w in weights.items():
        for a, b in pairs:
            name = name.replace(a, b)
        out[name] = w
    return out


def split(weights, fused, parts, cut):
    """Every tensor whose name has `fused` becomes those of cut(tensor), named by parts."""
    out = {}
    for name, w in weights.items():
        if fused in name:
            out.update({name.replace(fused, p): x for p, x in zip(parts, cut(w))})
        else:
            out[name] = w
    return out


QKV = ("q_proj", "k_proj", "v_proj")


def common(c, **more):
    return dict(vocab_size=c.get("vocab_size", c.get("padded_vocab_size")), hidden_size=c["hidden_size"], num_attention_heads=c["num_attention_heads"],
                max_position_embeddings=64, tie_word_embeddings=False, **more)


def baichuan(c, w):
    if "z_loss_weight" in c:
        w = dict(w, **{"lm_head.weight": torch.nn.functional.normalize(w["lm_head.weight"])})
    w = split(w, "W_pack", QKV, lambda t: t.chunk(3))
    return model(tf.LlamaForCausalLM, tf.LlamaConfig(**common(
        c, num_hidden_layers=c["num_hidden_layers"], intermediate_size=c["intermediate_size"], rms_norm_eps=c["rms_norm_eps"])), w)


def internlm2(c, w):
    H, G = c["num_attention_heads"], c["num_key_value_heads"]
    D, r = c["hidden_size"] // H, H // G

    def cut(t):
        t = t.view(G, r + 2, D, -1)
        return t[:, :r].reshape(H * D, -1), t[:, r].reshape(G * D, -1), t[:, r + 1].reshape(G * D, -1)

    w = rename(split(w, "attention.wqkv", ["self_attn." + p for p in QKV], cut), ("tok_embeddings", "embed_tokens"), ("attention.wo", "self_attn.o_proj"),
               ("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"), ("feed_forward.w1", "mlp.gate_proj"),
               ("feed_forward.w3", "mlp.up_proj"), ("feed_forward.w2", "mlp.down_proj"), ("output.", "lm_head."))
    return model(tf.LlamaForCausalLM, tf.LlamaConfig(**common(
        c, num_hidden_layers=c["num_hidden_layers"], intermediate_size=c["intermediate_size"], rms_norm_eps=c["rms_norm_eps"],
        num_key_value_heads=G, rope_parameters=dict(rope_type="default", rope_theta=c["rope_theta"]))), w)


def chatglm3(c, w):
    H, G, D = c["num_attention_heads"], c["multi_query_group_num"], c["kv_channels"]
    w = split(w, "self_attention.query_key_value", ["self_attn." + p for p in QKV], lambda t: t.split([H * D, G * D, G * D]))
    w = rename(w, ("transformer.embedding.word_embeddings", "model.embed_tokens"), ("transformer.encoder.final_layernorm", "model.norm"),
               ("transformer.output_layer", "lm_head"), ("transformer.encoder.layers", "model.layers"), ("self_attention.dense", "self_attn.o_proj"),
               ("dense_h_to_4h", "gate_up_proj"), ("dense_4h_to_h", "down_proj"))
    return model(tf.GlmForCausalLM, tf.GlmConfig(**common(
        c, num_hidden_layers=c["num_layers"], intermediate_size=c["ffn_hidden_size"], rms_norm_eps=c["layernorm_epsilon"], num_key_value_heads=G,
        head_dim=D, attention_bias=True, pad_token_id=0,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0 * c["rope_ratio"], partial_rotary_factor=0.5))), w)


def qwen1(c, w):
    c["use_logn_attn"] = False
    w = split(w, "attn.c_attn", ["self_attn." + p for p in QKV], lambda t: t.chunk(3))
    w = rename(w, ("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm"), ("transformer.h", "model.layers"),
               ("mlp.c_proj", "mlp.down_proj"), ("attn.c_proj", "self_attn.o_proj"), ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm"),
               ("mlp.w2", "mlp.gate_proj"), ("mlp.w1", "mlp.up_proj"))
    return model(tf.Qwen2ForCausalLM, tf.Qwen2Config(**common(
        c, num_hidden_layers=c["num_hidden_layers"], intermediate_size=c["intermediate_size"] // 2, rms_norm_eps=c["layer_norm_epsilon"],
        num_key_value_heads=c["num_attention_heads"])), w)


def deepseek(c, w):
    n, E = c["num_hidden_layers"], c["n_routed_experts"]
    for name in list(w):
        if "shared_experts.down_proj" in name:
            w[name].zero_()
    out = rename(w, ("shared_experts", "shared_expert"))
    for layer in range(c["first_k_dense_replace"], n):
        at = "model.layers.%d.mlp." % layer
        gate, up, down = ([out.pop("%sexperts.%d.%s.weight" % (at, e, p)) for e in range(E)] for p in ("gate_proj", "up_proj", "down_proj"))
        out[at + "experts.gate_up_proj"] = torch.stack([torch.cat(t) for t in zip(gate, up)])
        out[at + "experts.down_proj"] = torch.stack(down)
        out[at + "shared_expert_gate.weight"] = torch.zeros(1, c["hidden_size"])
    return model(tf.Qwen2MoeForCausalLM, tf.Qwen2MoeConfig(**common(
        c, num_hidden_layers=n, intermediate_size=c["intermediate_size"], rms_norm_eps=c["rms_norm_eps"],
        num_key_value_heads=c["num_key_value_heads"], moe_intermediate_size=c["moe_intermediate_size"], num_experts=E,
        num_experts_per_tok=c["num_experts_per_tok"], norm_topk_prob=False, qkv_bias=False, mlp_only_layers=list(range(c["first_k_dense_replace"])),
        shared_expert_intermediate_size=c["n_shared_experts"] * c["moe_intermediate_size"])), out)


def main():
    tf.logging.set_verbosity_error()
    for name, make in (("baichuan-7b", baichuan), ("baichuan2-7b", baichuan), ("internlm2", internlm2), ("chatglm3", chatglm3), ("qwen1", qwen1),
                       ("deepseek-moe", deepseek)):
        ref = Reference(name)
        w = load_file(ref.dir + "/model.safetensors")
        theirs = make(ref.c, w)
        ours = ref.cls(ref.c).eval()
        ours.load_state_dict(w)
        with torch.no_grad():
            a, b = ours(ref.tokens()), theirs(input_ids=ref.tokens(), use_cache=False).logits
        off = float((a - b).abs().max() / b.abs().max())
        print("%-14s %-26s %.1e" % (name, type(theirs).__name__, off))
        assert off < 1e-5, name


if __name__ == "__main__":
    main()
