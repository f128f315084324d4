#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of 4-bit floats beside this script. A development tool (torch, transformers, safetensors, numpy).

    release/     a tiny gpt-oss as published: config.json, model.safetensors with experts in blocks of 4-bit floats
    expected.safetensors   the same experts as transformers unpacks them, bf16, under the names of its own export; `all.values`, what it
                           makes of all.blocks and all.scales: each of 255 exponents with each of 16 numbers
    all/         model.safetensors with all_blocks and all_scales
"""
import json
import os

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
E, C, F, H, G, D, V = 3, 32, 64, 4, 2, 8, 40


def main():
    rng = np.random.default_rng(11)
    config = dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=C, head_dim=D, intermediate_size=F, num_local_experts=E,
                  num_experts_per_tok=2, num_attention_heads=H, num_key_value_heads=G, num_hidden_layers=1, vocab_size=V,
                  max_position_embeddings=64, sliding_window=8, layer_types=["sliding_attention"], rope_theta=150000.0, rope_scaling=dict(
                      rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0, truncate=False),
                  quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"]))
    weights, expected = {}, {}

    def plain(name, *shape):
        weights[name] = torch.from_numpy(rng.normal(0, 0.3, shape).astype(np.float32)).to(torch.bfloat16)

    def packed(name, rows, columns):
        weights[name + "_blocks"] = torch.from_numpy(rng.integers(0, 256, (E, rows, columns // 32, 16), dtype=np.uint8))
        weights[name + "_scales"] = torch.from_numpy(rng.integers(118, 124, (E, rows, columns // 32), dtype=np.uint8))
        expected[name] = convert_moe_packed_tensors(weights[name + "_blocks"], weights[name + "_scales"])

    plain("model.embed_tokens.weight", V, C)
    plain("lm_head.weight", V, C)
    plain("model.norm.weight", C)
    at = "model.layers.0."
    for norm in ("input_layernorm", "post_attention_layernorm"):
        plain(at + norm + ".weight", C)
    for part, rows, columns in (("q", H * D, C), ("k", G * D, C), ("v", G * D, C), ("o", C, H * D)):
        plain(at + "self_attn.%s_proj.weight" % part, rows, columns)
        plain(at + "self_attn.%s_proj.bias" % part, rows)
    plain(at + "self_attn.sinks", H)
    plain(at + "mlp.router.weight", E, C)
    plain(at + "mlp.router.bias", E)
    packed(at + "mlp.experts.gate_up_proj", 2 * F, C)
    plain(at + "mlp.experts.gate_up_proj_bias", E, 2 * F)
    packed(at + "mlp.experts.down_proj", C, F)
    plain(at + "mlp.experts.down_proj_bias", E, C)

    for folder in ("release", "all"):
        os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    with open(os.path.join(HERE, "release", "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    save_file(weights, os.path.join(HERE, "release", "model.safetensors"), metadata={"format": "pt"})

    twice = torch.arange(16, dtype=torch.uint8)
    blocks = (twice + 16 * twice.flip(0)).repeat(255, 1).reshape(1, 255, 1, 16)
    scales = torch.arange(255, dtype=torch.uint8).reshape(1, 255, 1)
    save_file({"all_blocks": blocks, "all_scales": scales}, os.path.join(HERE, "all", "model.safetensors"))
    expected["all.values"] = convert_moe_packed_tensors(blocks, scales).transpose(1, 2).contiguous()
    save_file(expected, os.path.join(HERE, "expected.safetensors"))


if __name__ == "__main__":
    main()
