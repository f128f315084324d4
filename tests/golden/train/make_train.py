#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_train.py DIR: train what train_export wrote to DIR/train.h5 in PyTorch and write curve.txt beside this script.

A development tool (needs torch, transformers, h5py, numpy). The model is transformers' Llama in f32 with eager attention; attention is
confined to documents by an explicit mask, positions restart with each; the loss is the mean over all trained tokens of the step;
gradients are clipped by their global norm; AdamW with weight decay on matrices only; linear warm-up, then cosine, counted in samples
done when the step is complete. Each line of curve.txt: step, loss before its update, gradient norm before clipping, learning rate.
"""
import math
import os
import sys

import h5py
import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"embed.": "model.embed_tokens.", "final_norm.": "model.norm.", "head.": "lm_head.", "attn_norm.": "input_layernorm.",
         "mlp_norm.": "post_attention_layernorm.", "attn.q.": "self_attn.q_proj.", "attn.k.": "self_attn.k_proj.",
         "attn.v.": "self_attn.v_proj.", "attn.o.": "self_attn.o_proj.", "mlp.gate.": "mlp.gate_proj.", "mlp.up.": "mlp.up_proj.",
         "mlp.down.": "mlp.down_proj."}


def hf_name(name):
    prefix = ""
    if name.startswith("layers."):
        layer, name = name.split(".", 2)[1:]
        prefix = "model.layers.%s." % layer
    for ours, theirs in NAMES.items():
        if name.startswith(ours):
            return prefix + theirs + name[len(ours):]
    raise KeyError(name)


def build(f, dtype):
    w = {}
    f["weights"].visititems(lambda n, d: w.__setitem__(n, torch.from_numpy(d[...])) if isinstance(d, h5py.Dataset) else None)
    a = f.attrs
    config = tf.LlamaConfig(
        vocab_size=w["embed.weight"].shape[0], hidden_size=w["embed.weight"].shape[1],
        num_hidden_layers=1 + max(int(n.split(".")[1]) for n in w if n.startswith("layers.")),
        num_attention_heads=int(a["heads"]), num_key_value_heads=int(a["kv_heads"]),
        intermediate_size=w["layers.0.mlp.up.weight"].shape[0], max_position_embeddings=f["tokens"].shape[2],
        rms_norm_eps=float(a["norm_eps"]), tie_word_embeddings=False, use_cache=False, attention_dropout=0.0,
        rope_parameters=dict(rope_type="default", rope_theta=float(a["rope_theta"])))
    config._attn_implementation = "eager"
    model = tf.LlamaForCausalLM(config)
    model.load_state_dict({hf_name(n): v for n, v in w.items()}, strict=True)
    return model.to(dtype)


def main():
    torch.set_num_threads(1)
    f = h5py.File(os.path.join(sys.argv[1], "train.h5"))
    a = f.attrs
    model = build(f, torch.float32)
    params = list(model.parameters())
    opt = torch.optim.AdamW([dict(params=[p for p in params if p.dim() >= 2], weight_decay=float(a["weight_decay"])),
                             dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)],
                            lr=1.0, betas=(float(a["beta1"]), float(a["beta2"])), eps=float(a["eps"]))
    steps, batch, T = f["tokens"].shape
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    lines = []
    for s in range(steps):
        tokens, targets, positions, segments = (torch.from_numpy(f[n][s].astype("int64")) for n in (
            "tokens", "targets", "positions", "segments"))
        see = causal[None] & (segments[:, :, None] == segments[:, None, :])
        mask = torch.zeros(batch, 1, T, T).masked_fill(~see[:, None], torch.finfo(torch.float32).min)
        logits = model(input_ids=tokens, position_ids=positions, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, float(a["clip"]))
        done, total, warmup = (s + 1) * batch, steps * batch, a["warmup_steps"] * batch
        lr = a["lr"] * done / warmup if done <= warmup else a["min_lr"] + (a["lr"] - a["min_lr"]) * 0.5 * (
            1 + math.cos(math.pi * (done - warmup) / (total - warmup)))
        for g in opt.param_groups:
            g["lr"] = float(lr)
        opt.step()
        lines.append("%d %.9g %.9g %.9g" % (s + 1, loss.item(), norm.item(), lr))
    with open(os.path.join(HERE, "curve.txt"), "w") as out:
        out.write("# Made by make_train.py with torch %s, transformers %s. Columns: step, loss, gradient norm, learning rate.\n" % (
            torch.__version__.split("+")[0], tf.__version__))
        out.write("# digest %s\n" % bytes(f["digest"][...]).decode())
        out.write("\n".join(lines) + "\n")
    print(lines[0], "...", lines[-1])


main()
