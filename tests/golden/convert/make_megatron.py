#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Legacy Megatron-LM checkpoints of the golden families gpt2 (names of the older classes, two tensor-parallel ranks) and llama
(names of Megatron core with fused norms, one rank), from their safetensors: same weights, so the same expected logits.

    python3 make_megatron.py FAMILIES_DIR OUT_DIR
"""
import argparse
import os
import sys

import torch
from safetensors.torch import load_file


def groups(q, k, v, kv, d):
    """Rows [q; k; v] to [group][q..., k, v]."""
    out = []
    r = q.shape[0] // d // kv
    for g in range(kv):
        out += [q[g * r * d : (g + 1) * r * d], k[g * d : (g + 1) * d], v[g * d : (g + 1) * d]]
    return torch.cat(out)


def save(path, args, model, version=3.0):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save({"args": args, "checkpoint_version": version, "iteration": 7, "model": model}, path)


def gpt2(src, out):
    w = load_file(f"{src}/gpt2/model.safetensors")
    import json

    c = json.load(open(f"{src}/gpt2/config.json"))
    n, h, heads = c["n_layer"], c["n_embd"], c["n_head"]
    d, ffn = h // heads, c.get("n_inner") or 4 * h
    tp = 2
    for rank in range(tp):

        def rows(t):
            return t.chunk(tp, 0)[rank].clone()

        def cols(t):
            return t.chunk(tp, 1)[rank].clone()

        enc = {}
        for i in range(n):
            p, o = f"transformer.h.{i}.", f"layers.{i}."
            q, k, v = w[p + "attn.c_attn.weight"].T.chunk(3, 0)
            bq, bk, bv = w[p + "attn.c_attn.bias"].chunk(3, 0)
            enc |= {
                o + "input_layernorm.weight": w[p + "ln_1.weight"],
                o + "input_layernorm.bias": w[p + "ln_1.bias"],
                o + "self_attention.query_key_value.weight": rows(groups(q, k, v, heads, d)),
                o + "self_attention.query_key_value.bias": rows(groups(bq, bk, bv, heads, d)),
                o + "self_attention.dense.weight": cols(w[p + "attn.c_proj.weight"].T.contiguous()),
                o + "self_attention.dense.bias": w[p + "attn.c_proj.bias"],
                o + "post_attention_layernorm.weight": w[p + "ln_2.weight"],
                o + "post_attention_layernorm.bias": w[p + "ln_2.bias"],
                o + "mlp.dense_h_to_4h.weight": rows(w[p + "mlp.c_fc.weight"].T.contiguous()),
                o + "mlp.dense_h_to_4h.bias": rows(w[p + "mlp.c_fc.bias"]),
                o + "mlp.dense_4h_to_h.weight": cols(w[p + "mlp.c_proj.weight"].T.contiguous()),
                o + "mlp.dense_4h_to_h.bias": w[p + "mlp.c_proj.bias"],
            }
        enc |= {"final_layernorm.weight": w["transformer.ln_f.weight"], "final_layernorm.bias": w["transformer.ln_f.bias"]}
        model = {
            "language_model": {
                "embedding": {
                    "word_embeddings": {"weight": rows(w["transformer.wte.weight"])},
                    "position_embeddings": {"weight": w["transformer.wpe.weight"]},
                },
                "encoder": enc,
            }
        }
        args = argparse.Namespace(
            num_layers=n, hidden_size=h, ffn_hidden_size=ffn, num_attention_heads=heads, kv_channels=d,
            max_position_embeddings=c["n_positions"], padded_vocab_size=c["vocab_size"], layernorm_epsilon=c["layer_norm_epsilon"],
            tensor_model_parallel_size=tp, pipeline_model_parallel_size=1, untie_embeddings_and_output_weights=False,
            add_position_embedding=True, position_embedding_type="learned_absolute", swiglu=False, bias_gelu_fusion=True,
            add_bias_linear=True, group_query_attention=False, attention_dropout=0.1, hidden_dropout=0.1, lr=1e-4,
        )  # fmt: skip
        save(f"{out}/megatron-gpt/iter_0000007/mp_rank_{rank:02d}/model_optim_rng.pt", args, model)
    open(f"{out}/megatron-gpt/latest_checkpointed_iteration.txt", "w").write("7")


def llama(src, out):
    w = load_file(f"{src}/llama/model.safetensors")
    import json

    c = json.load(open(f"{src}/llama/config.json"))
    n, h, heads = c["num_hidden_layers"], c["hidden_size"], c["num_attention_heads"]
    kv = c.get("num_key_value_heads") or heads
    d = c.get("head_dim") or h // heads
    model = {"embedding.word_embeddings.weight": w["model.embed_tokens.weight"]}
    for i in range(n):
        p, o = f"model.layers.{i}.", f"decoder.layers.{i}."
        q, k, v = (w[p + f"self_attn.{x}_proj.weight"] for x in "qkv")
        model |= {
            o + "self_attention.linear_qkv.layer_norm_weight": w[p + "input_layernorm.weight"],
            o + "self_attention.linear_qkv.weight": groups(q, k, v, kv, d),
            o + "self_attention.linear_proj.weight": w[p + "self_attn.o_proj.weight"],
            o + "mlp.linear_fc1.layer_norm_weight": w[p + "post_attention_layernorm.weight"],
            o + "mlp.linear_fc1.weight": torch.cat([w[p + "mlp.gate_proj.weight"], w[p + "mlp.up_proj.weight"]]),
            o + "mlp.linear_fc2.weight": w[p + "mlp.down_proj.weight"],
        }
    model |= {"decoder.final_layernorm.weight": w["model.norm.weight"], "output_layer.weight": w["lm_head.weight"]}
    args = argparse.Namespace(
        num_layers=n, hidden_size=h, ffn_hidden_size=c["intermediate_size"], num_attention_heads=heads, kv_channels=d,
        max_position_embeddings=c["max_position_embeddings"], padded_vocab_size=c["vocab_size"], norm_epsilon=c["rms_norm_eps"],
        tensor_model_parallel_size=1, pipeline_model_parallel_size=1, untie_embeddings_and_output_weights=True,
        position_embedding_type="rope", rotary_base=int(c.get("rope_theta", 10000)), rotary_percent=1.0, rotary_interleaved=False,
        normalization="RMSNorm", swiglu=True, add_bias_linear=False, group_query_attention=True, num_query_groups=kv,
        attention_dropout=0.0, hidden_dropout=0.0, num_experts=None, multi_latent_attention=False, use_rope_scaling=False,
    )  # fmt: skip
    save(f"{out}/megatron-llama/release/mp_rank_00/model_optim_rng.pt", args, model)
    open(f"{out}/megatron-llama/latest_checkpointed_iteration.txt", "w").write("release")


def bins(src, out):
    """The files of a PyTorch checkpoint instead of safetensors."""
    os.makedirs(f"{out}/torch-gpt-neox", exist_ok=True)
    w = load_file(f"{src}/gpt-neox/model.safetensors")
    torch.save(w, f"{out}/torch-gpt-neox/pytorch_model.bin")


if __name__ == "__main__":
    for f in gpt2, llama, bins:
        f(sys.argv[1], sys.argv[2])
