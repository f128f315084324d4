#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files here: a tiny CLIPModel and SiglipModel of transformers. NAME is the model as transformers saves it, in f32. NAME.h5 has, of the
same weights in f64, pictures as rows of patches, texts (-1 behind their end), logits_per_image, the loss, its gradient by every weight under our
names, loss and gradient norm before each of ten AdamW steps, and how far the reference's own run in bf16 is from f64. Run by hand: make_dual.py"""
import copy
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

assert transformers.__version__.startswith("5.23."), "these files are made with transformers 5.23"
HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_default_dtype(torch.float64)
P, SIDE, N, VOCAB, STEPS = 4, 3, 5, 40, 10  # pixels of a patch's side, patches of a picture's, pairs
ADAM = dict(lr=5e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


def heat(model, seed):
    """Weights of a size at which a wrong norm, bias or position shows."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if name == "logit_scale":
                p.fill_(1.5)
            elif name == "logit_bias":
                p.fill_(-2.25)
            elif p.dim() >= 2 and "embedding.weight" not in name and "probe" not in name:
                p.copy_(r * 1.2 / p[0].numel() ** 0.5)
            elif "norm" in name and "bias" not in name:
                p.copy_(1 + 0.3 * r)
            else:
                p.copy_((0.5 if p.dim() > 1 or "class_embedding" in name else 0.3) * r)
            p.copy_(p.float().double())  # what f32 holds


def named(m):
    """Our names: the tensor, and how its gradient lies here."""
    out = {}
    same, row, one = (lambda t: t), (lambda t: t.reshape(1, -1)), (lambda t: t.reshape(1))

    def linear(ours, module):
        out[ours + ".weight"] = (module.weight, same)
        out[ours + ".bias"] = (module.bias, same)

    def layers(at, encoder):
        for l, b in enumerate(encoder.layers):
            linear(f"{at}layers.{l}.attn_norm", b.layer_norm1)
            linear(f"{at}layers.{l}.mlp_norm", b.layer_norm2)
            for x, y in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj")):
                linear(f"{at}layers.{l}.attn.{x}", getattr(b.self_attn, y))
            linear(f"{at}layers.{l}.mlp.up", b.mlp.fc1)
            linear(f"{at}layers.{l}.mlp.down", b.mlp.fc2)

    v, t = m.vision_model, m.text_model
    out["vision.patch_embed.weight"] = (v.embeddings.patch_embedding.weight, lambda t: t.reshape(t.shape[0], -1))
    out["vision.pos_embed.weight"] = (v.embeddings.position_embedding.weight, same)
    layers("vision.", v.encoder)
    linear("vision.final_norm", v.post_layernorm)
    out["embed.weight"] = (t.embeddings.token_embedding.weight, same)
    out["pos_embed.weight"] = (t.embeddings.position_embedding.weight, same)
    layers("", t.encoder)
    linear("final_norm", t.final_layer_norm)
    out["dual.scale"] = (m.logit_scale, one)
    if hasattr(m, "visual_projection"):
        out["vision.class_token.weight"] = (v.embeddings.class_embedding, row)
        linear("vision.pre_norm", v.pre_layrnorm)
        out["dual.image.weight"] = (m.visual_projection.weight, same)
        out["dual.text.weight"] = (m.text_projection.weight, same)
    else:
        h, C = v.head, v.config.hidden_size
        out["vision.patch_embed.bias"] = (v.embeddings.patch_embedding.bias, same)
        out["dual.pool.probe.weight"] = (h.probe, row)
        for i, x in enumerate("qkv"):
            out[f"dual.pool.{x}.weight"] = (h.attention.in_proj_weight, lambda t, i=i: t[i * C:(i + 1) * C])
            out[f"dual.pool.{x}.bias"] = (h.attention.in_proj_bias, lambda t, i=i: t[i * C:(i + 1) * C])
        linear("dual.pool.o", h.attention.out_proj)
        linear("dual.pool.norm", h.layernorm)
        linear("dual.pool.up", h.mlp.fc1)
        linear("dual.pool.down", h.mlp.fc2)
        linear("dual.text", t.head)
        out["dual.bias"] = (m.logit_bias, one)
    return out


def texts(siglip, g):
    """Rows of tokens, -1 behind their end; the last of each is the end token of CLIP."""
    rows = torch.full((N, 9 if siglip else 8), -1, dtype=torch.long)
    for i in range(N):
        n = 3 + i  # SigLIP's longest is longer than the five positions that there are
        rows[i, :n] = torch.randint(2, VOCAB - 1, (n,), generator=g)
        rows[i, n - 1] = VOCAB - 1
    return rows


def feed(rows, siglip):
    """What the class reads: cut as CLIP's texts are, the last token being kept; padded."""
    most = 5 if siglip else 8
    out = torch.full((N, most), 1, dtype=torch.long)
    for i, r in enumerate(rows):
        r = r[r >= 0]
        if len(r) > most:
            r = torch.cat([r[:most - 1], r[-1:]])
        out[i, :len(r)] = r
    return out, (out != 1).long() if not siglip else None


def make(name, model, siglip, seed):
    g = torch.Generator().manual_seed(seed)
    m = model.double().eval()
    heat(m, seed)
    copy.deepcopy(m).float().save_pretrained(os.path.join(HERE, name))
    images, rows = torch.randn(N, 3, P * SIDE, P * SIDE, generator=g).float().double(), texts(siglip, g)
    ids, mask = feed(rows, siglip)

    def run(m, images=images):
        return m(input_ids=ids, attention_mask=mask, pixel_values=images, return_loss=True)

    y, view = run(m), named(m)
    assert len(view) == len(list(m.parameters())) + (4 if siglip else 0)
    y.loss.backward()
    with h5py.File(os.path.join(HERE, name + ".h5"), "w", libver="v110") as f:
        for k, (w, see) in view.items():
            f.create_dataset("g/" + k, data=see(w.grad).numpy().astype("f4"))
        f.create_dataset("pixels", data=torch.cat([F.unfold(i[None], P, stride=P)[0].T for i in images]).numpy().astype("f4"))
        f.create_dataset("texts", data=rows.numpy().astype("i4"))
        f.create_dataset("logits", data=y.logits_per_image.detach().numpy())
        f.create_dataset("loss", data=np.array([[y.loss.item()]]))
        half = run(copy.deepcopy(m).bfloat16(), images.bfloat16()).logits_per_image.detach().double()
        own = ((half - y.logits_per_image).norm() / y.logits_per_image.norm()).item()
        f.create_dataset("bf16", data=np.array([[own]]))
        losses, norms = adamw(m, run, view)
        f.create_dataset("losses", data=np.array([losses]))
        f.create_dataset("norms", data=np.array([norms]))
    os.makedirs(os.path.join(HERE, "expected"), exist_ok=True)
    subprocess.run([sys.executable, os.path.join(HERE, "../../../stages/expected.py"), os.path.join(HERE, name),
                    os.path.join(HERE, "expected", name + ".safetensors"), "--batch", "2"], check=True)
    print(name, "loss", y.loss.item(), "bf16", own, os.path.getsize(os.path.join(HERE, name + ".h5")), "bytes", losses)


def adamw(m, run, view):
    """Loss and gradient norm before each step. What is a matrix here decays."""
    decays = {id(w): see(w.detach()).dim() >= 2 for w, see in view.values()}
    params = list(m.parameters())
    opt = torch.optim.AdamW([dict(params=[p for p in params if decays[id(p)] == d], weight_decay=ADAM["weight_decay"] * d) for d in (True, False)],
                            lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = run(m).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(params, ADAM["clip"])))
        losses.append(loss.item())
        opt.step()
    return losses, norms


def config(cls, text, vision, **more):
    return cls(text_config=dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3, pad_token_id=1,
                                bos_token_id=0, eos_token_id=VOCAB - 1, **text),
               vision_config=dict(image_size=P * SIDE, patch_size=P, num_hidden_layers=2, **vision), **more)


make("clip", CLIPModel(config(CLIPConfig, dict(max_position_embeddings=8), dict(hidden_size=16, intermediate_size=24, num_attention_heads=2),
                              projection_dim=12)), False, 1)
make("siglip", SiglipModel(config(SiglipConfig, dict(max_position_embeddings=5, projection_size=16),
                                  dict(hidden_size=16, intermediate_size=24, num_attention_heads=2))), True, 2)
