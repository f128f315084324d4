# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the layout of Megatron-LM ("torch" form), written with torch.save; Megatron itself is not needed.

    python make_megatron_ckpt.py          (torch, safetensors) writes megatron_ckpt/

A whole model is made first and written to NAME/expected.safetensors with names and layout as one rank and one stage
would have them (checkpoint version 3); then it is divided as Megatron divides it. The division below follows
megatron/core/tensor_parallel and megatron/training/checkpointing.py (fix_query_key_value_ordering) as described in their
documentation. Made with torch 2.15.0.
"""
import argparse
import enum
import io
import os
import shutil
import sys
import types

import torch
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_ckpt")
H, HEADS, D, F, VOCAB, PADDED, POS = 8, 4, 2, 6, 10, 12, 5


class ModelType(enum.Enum):
    encoder_or_decoder = 1


# Pickled by reference to Megatron's module, as its own checkpoints have it.
module = types.ModuleType("megatron.core.enums")
module.ModelType = ModelType
ModelType.__module__ = "megatron.core.enums"
for name in ["megatron", "megatron.core", "megatron.core.enums"]:
    sys.modules[name] = module if name.endswith("enums") else types.ModuleType(name)


def whole(core, layers, groups, gated, tied, dtype=torch.float32):
    gen = torch.Generator().manual_seed(1)

    def r(*shape):
        return torch.randn(*shape, generator=gen).to(dtype)

    qkv, f1 = (HEADS + 2 * groups) * D, 2 * F if gated else F
    d = {}
    if core:
        d["embedding.word_embeddings.weight"] = r(PADDED, H)
        for i in range(layers):
            p = f"decoder.layers.{i}."
            d[p + "self_attention.linear_proj.weight"] = r(H, HEADS * D)
            d[p + "self_attention.linear_qkv.layer_norm_weight"] = r(H)
            d[p + "self_attention.linear_qkv.weight"] = r(qkv, H)
            d[p + "self_attention.linear_qkv.bias"] = r(qkv)
            d[p + "mlp.linear_fc1.layer_norm_weight"] = r(H)
            d[p + "mlp.linear_fc1.weight"] = r(f1, H)
            d[p + "mlp.linear_fc2.weight"] = r(H, F)
        d["decoder.final_layernorm.weight"] = r(H)
        if not tied:
            d["output_layer.weight"] = r(PADDED, H)
    else:
        lm = "language_model."
        d[lm + "embedding.word_embeddings.weight"] = r(PADDED, H)
        d[lm + "embedding.position_embeddings.weight"] = r(POS, H)
        for i in range(layers):
            p = lm + f"encoder.layers.{i}."
            for n in ["input_layernorm", "post_attention_layernorm"]:
                d[p + n + ".weight"], d[p + n + ".bias"] = r(H), r(H)
            d[p + "self_attention.query_key_value.weight"] = r(qkv, H)
            d[p + "self_attention.query_key_value.bias"] = r(qkv)
            d[p + "self_attention.dense.weight"], d[p + "self_attention.dense.bias"] = r(H, HEADS * D), r(H)
            d[p + "mlp.dense_h_to_4h.weight"], d[p + "mlp.dense_h_to_4h.bias"] = r(f1, H), r(f1)
            d[p + "mlp.dense_4h_to_h.weight"], d[p + "mlp.dense_4h_to_h.bias"] = r(H, F), r(H)
        d[lm + "encoder.final_layernorm.weight"], d[lm + "encoder.final_layernorm.bias"] = r(H), r(H)
    return d


def divide(name, t, tp, rank, gated, version):
    """The part of rank `rank` of tensor t."""
    last = name.rsplit(".", 2)[-2:]
    if last[0] in ("query_key_value", "linear_qkv") and last[1] in ("weight", "bias"):
        t = t.chunk(tp)[rank]
        if version < 2:  # [heads, 3, D] to [3, heads, D] or [heads, D, 3]
            v = t.view(HEADS // tp, 3, D, *t.shape[1:])
            v = v.transpose(0, 1) if version < 1 else v.transpose(1, 2)
            t = v.reshape(t.shape)
        return t
    if last[0] in ("dense_h_to_4h", "linear_fc1") and last[1] in ("weight", "bias"):
        return torch.cat([h.chunk(tp)[rank] for h in t.chunk(2)]) if gated else t.chunk(tp)[rank]
    if last in (["word_embeddings", "weight"], ["output_layer", "weight"]):
        return t.chunk(tp)[rank]
    if last in (["dense", "weight"], ["linear_proj", "weight"], ["dense_4h_to_h", "weight"], ["linear_fc2", "weight"]):
        return t.chunk(tp, dim=1)[rank]
    return t


def nest(flat):
    """The older classes nest dictionaries down to the layers, whose names stay joined."""
    out = {}
    for k, v in flat.items():
        d, cut = out, 2 if ".encoder." in k else 3 if k.startswith("language_model") else 1
        parts = k.split(".", cut)
        for p in parts[:-1]:
            d = d.setdefault(p, {})
        d[parts[-1]] = v
    return out


def stage(d, first, count, is_first, is_last):
    out = {}
    for k, v in d.items():
        if ".layers." in k:
            head, tail = k.split(".layers.")
            i, rest = tail.split(".", 1)
            if first <= int(i) < first + count:
                out[f"{head}.layers.{int(i) - first}.{rest}"] = v
        elif "final" in k or "output_layer" in k:
            if is_last:
                out[k] = v
        elif is_first:
            out[k] = v
    return out


def write(name, d, core=True, tp=1, stages=(4,), chunks=1, groups=2, gated=True, tied=False, version=3.0, release=False,
          iteration=20, change=None, **more):
    top, layers, pp = os.path.join(HERE, name), sum(stages) * chunks, len(stages)
    shutil.rmtree(top, ignore_errors=True)
    where = os.path.join(top, "release" if release else f"iter_{iteration:07d}")
    args = dict(num_layers=layers, hidden_size=H, num_attention_heads=HEADS, group_query_attention=groups != HEADS,
                num_query_groups=groups, kv_channels=D, ffn_hidden_size=F, swiglu=gated, padded_vocab_size=PADDED,
                untie_embeddings_and_output_weights=not tied, tensor_model_parallel_size=tp, layernorm_epsilon=1e-5,
                pipeline_model_parallel_size=pp, params_dtype=torch.float32, model_type=ModelType.encoder_or_decoder,
                position_embedding_type="rope", data_path=["a", 1.5], tokenizer_model=None, **more)
    for p in range(pp):
        for t in range(tp):
            models = []
            for c in range(chunks):
                first = sum(stages[:p]) if chunks == 1 else c * sum(stages) + p * stages[0]
                m = stage(d, first, stages[p], p == 0 and c == 0, p == pp - 1 and c == chunks - 1)
                if tied and pp > 1 and p == pp - 1 and c == chunks - 1:
                    head = "output_layer.weight" if core else "word_embeddings_for_head.weight"
                    m[head] = d[next(k for k in d if "word_embeddings" in k)].clone()
                m = {k: divide(k if "for_head" not in k else "word_embeddings.weight", v, tp, t, gated, version).clone()
                     for k, v in m.items()}
                if core:
                    m["decoder.layers.0.self_attention.core_attention._extra_state"] = io.BytesIO(b"x")
                if change:
                    change(m, t, p)
                models.append(m if core else nest(m))
            state = {"args": argparse.Namespace(**args), "checkpoint_version": version, "iteration": iteration}
            state |= {"model": models[0]} if chunks == 1 else {f"model{c}": m for c, m in enumerate(models)}
            state["rng_state"] = [{"random_rng_state": (3, (1, 2), None), "torch_rng_state": torch.zeros(3, dtype=torch.uint8)}]
            rank = os.path.join(where, f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else ""))
            os.makedirs(rank)
            torch.save(state, os.path.join(rank, "model_optim_rng.pt"))
    with open(os.path.join(top, "latest_checkpointed_iteration.txt"), "w") as f:
        f.write("release" if release else str(iteration))
    return top


def expect(top, d):
    save_file({k: v.contiguous() for k, v in d.items()}, os.path.join(top, "expected.safetensors"), metadata={"format": "pt"})


def main():
    d = whole(True, 3, 2, True, False)
    expect(write("core-tp2-pp2", d, tp=2, stages=(1, 2)), d)
    d = whole(True, 4, 4, False, True, torch.bfloat16)
    expect(write("core-tp2-vpp", d, tp=2, stages=(1, 1), chunks=2, groups=4, gated=False, tied=True, release=True), d)
    d = whole(False, 2, 4, False, True)
    expect(write("old-v1-tp2", d, core=False, tp=2, stages=(2,), groups=4, gated=False, tied=True, version=1.0), d)
    expect(write("old-v0-tp2-pp2", d, core=False, tp=2, stages=(1, 1), groups=4, gated=False, tied=True, version=0), d)
    expect(write("old-v2", d, core=False, stages=(2,), groups=4, gated=False, tied=True, version=2.0), d)

    d = whole(True, 1, 2, True, False)

    def norm(m, t, p):
        m["decoder.final_layernorm.weight"][0] += t

    def name(m, t, p):
        m["decoder.layers.0.mlp.mystery.weight"] = torch.zeros(2)

    def odd(m, t, p):
        if t:
            m["decoder.layers.0.mlp.extra.weight"] = torch.zeros(2)

    def narrow(m, t, p):
        k = "decoder.layers.0.mlp.linear_fc1.weight"
        m[k] = m[k][:, :7].clone() if t else m[k]

    def short(m, t, p):
        k = "decoder.layers.0.self_attention.linear_qkv.weight"
        m[k] = m[k][:-1].clone()

    for bad, change in [("norm", norm), ("kind", name), ("names", odd), ("shape", narrow), ("qkv", short)]:
        write("bad-" + bad, d, tp=2, stages=(1,), change=change)
    shutil.rmtree(os.path.join(write("bad-rank", d, tp=2, stages=(1,)), "iter_0000020", "mp_rank_01"))
    write("bad-layers", d, stages=(2,))
    write("bad-experts", d, stages=(1,), expert_model_parallel_size=2)
    for bad, text in [("bad-tracker", "soon"), ("bad-gone", "30")]:
        top = write(bad, d, stages=(1,))
        shutil.rmtree(os.path.join(top, "iter_0000020"))
        with open(os.path.join(top, "latest_checkpointed_iteration.txt"), "w") as f:
            f.write(text)
    d2 = whole(False, 2, 4, False, True)

    def untie(m, t, p):
        if "word_embeddings_for_head.weight" in m:
            m["word_embeddings_for_head.weight"][0, 0] += 1

    write("bad-tied", d2, core=False, stages=(1, 1), groups=4, gated=False, tied=True, change=untie)


main()
