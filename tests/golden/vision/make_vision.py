#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes *.h5 here: tiny vision encoders of transformers, and of timm 1.0.31 where transformers has no class (EVA), in f64. Each file has the weights under our names, the pixels as rows of
patches, the positions of rows, hidden states, and for a given gradient of them that of every weight. lone/ has some of them as
transformers saves them, and beside a text tower. Run by hand: make_vision.py"""
import copy
import os
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import (CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModel, Siglip2Config, Siglip2Model,
                          Siglip2VisionConfig, Siglip2VisionModel, Dinov2Config, Dinov2Model, InternVLVisionConfig,
                          InternVLVisionModel, SiglipConfig, SiglipModel, SiglipVisionConfig, SiglipVisionModel)
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
from transformers.vision_utils import get_vision_window_index

assert transformers.__version__.startswith("5.23."), "these files are made with transformers 5.23"
HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_default_dtype(torch.float64)


def heat(model, seed):
    """Weights of a size at which a wrong norm, bias or position shows."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() >= 2:
                p.copy_(r * 1.2 / p[0].numel() ** 0.5 if "embed" not in name or "patch" in name else r * 0.5)
            elif "norm" in name and "bias" not in name or "lambda" in name or "layer_scale" in name:
                p.copy_(1 + 0.3 * r)
            else:
                p.copy_(0.3 * r)
            p.copy_(p.float().double())  # what f32 holds


class Part:
    """A view of a parameter; its gradient is the same view of the parameter's."""

    def __init__(self, w, view):
        self.w, self.view = w, view


def split(w, names):
    """A fused tensor as equal parts under our names."""
    return {n: Part(w, lambda t, i=i: t.chunk(len(names), 0)[i]) for i, n in enumerate(names)}


def conv(w):
    return Part(w, lambda t: t.reshape(t.shape[0], -1))


def linear(out, ours, module):
    out[ours + ".weight"] = module.weight
    if module.bias is not None:
        out[ours + ".bias"] = module.bias


def norm(out, ours, module):
    out[ours + ".weight"] = module.weight
    if getattr(module, "bias", None) is not None:
        out[ours + ".bias"] = module.bias


def fused_qkv(out, l, module):
    for kind in ("weight", "bias"):
        w = getattr(module, kind)
        out.update(split(w, [f"layers.{l}.attn.{x}.{kind}" for x in "qkv"]))


def patches(images, p):
    """Rows (channel, row, column) of patches in row-major order."""
    return torch.cat([F.unfold(i[None], p, stride=p)[0].T for i in images])


def class_rows(n_images, n_patches):
    """Rows of the stream that are class tokens, and those of the patches."""
    per = n_patches + 1
    cls = [i * per for i in range(n_images)]
    return cls, [i * per + 1 + k for i in range(n_images) for k in range(n_patches)]


def matrix(rows, cols, one):
    m = torch.zeros(rows, cols)
    for r, c in enumerate(one):
        m[r, c] = 1
    return m


def layers_of(kind, model, out):
    kind = kind.replace("siglip2", "siglip")
    for l, b in enumerate(model.encoder.layers if kind in ("clip", "siglip") else model.encoder.layer):
        at = f"layers.{l}."
        if kind in ("clip", "siglip"):
            norm(out, at + "attn_norm", b.layer_norm1)
            norm(out, at + "mlp_norm", b.layer_norm2)
            for x in "qkv":
                linear(out, at + f"attn.{x}", getattr(b.self_attn, x + "_proj"))
            linear(out, at + "attn.o", b.self_attn.out_proj)
            linear(out, at + "mlp.up", b.mlp.fc1)
            linear(out, at + "mlp.down", b.mlp.fc2)
        elif kind == "dinov2":
            norm(out, at + "attn_norm", b.norm1)
            norm(out, at + "mlp_norm", b.norm2)
            for x in "qkvo":
                linear(out, at + f"attn.{x}", getattr(b.attention, x + "_proj"))
            out[at + "attn_scale"] = b.layer_scale1.lambda1
            out[at + "mlp_scale"] = b.layer_scale2.lambda1
            if hasattr(b.mlp, "gate_proj"):
                for x in ("gate", "up", "down"):
                    linear(out, at + f"mlp.{x}", getattr(b.mlp, x + "_proj"))
            else:
                linear(out, at + "mlp.up", b.mlp.fc1)
                linear(out, at + "mlp.down", b.mlp.fc2)
        else:  # internvl
            norm(out, at + "attn_norm", b.layernorm_before)
            norm(out, at + "mlp_norm", b.layernorm_after)
            for x in "qkv":
                linear(out, at + f"attn.{x}", getattr(b.attention, x + "_proj"))
            linear(out, at + "attn.o", b.attention.projection_layer)
            if isinstance(b.attention.q_norm, torch.nn.Identity) is False:
                out[at + "attn.q_norm.weight"] = b.attention.q_norm.weight
                out[at + "attn.k_norm.weight"] = b.attention.k_norm.weight
            out[at + "attn_scale"] = b.lambda_1
            out[at + "mlp_scale"] = b.lambda_2
            linear(out, at + "mlp.up", b.mlp.fc1)
            linear(out, at + "mlp.down", b.mlp.fc2)


def learned(name):
    """Encoders of pictures of one size: two pictures."""
    E, P, size, n = 40, 4, (20, 20), 2
    common = dict(hidden_size=E, num_hidden_layers=2, num_attention_heads=5, patch_size=P, attn_implementation="eager")
    if name == "clip":
        m = CLIPVisionModel(CLIPVisionConfig(image_size=20, intermediate_size=56, **common))
        m = getattr(m, "vision_model", m)
        emb, post = m.embeddings, None
    elif name == "siglip":
        m = SiglipVisionModel(SiglipVisionConfig(image_size=20, intermediate_size=56, vision_use_head=False, **common))
        m = getattr(m, "vision_model", m)
        emb, post = m.embeddings, m.post_layernorm
    elif name.startswith("dinov2"):
        m = Dinov2Model(Dinov2Config(image_size=20, mlp_ratio=2, use_swiglu_ffn=name.endswith("swiglu"), **common))
        emb, post, size = m.embeddings, m.layernorm, (28, 16)
    else:
        rms = name.endswith("rms")
        m = InternVLVisionModel(InternVLVisionConfig(image_size=[20, 20], intermediate_size=56, norm_type="rms_norm" if rms else "layer_norm",
                                                     use_qk_norm=rms, attention_bias=not rms, use_mean_pooling=True,
                                                     **{**common, "patch_size": [P, P]}))
        emb, post = m.embeddings, None
    m = m.double().eval()
    heat(m, 7)
    out = {}
    kind = "dinov2" if name.startswith("dinov2") else "internvit" if name.startswith("internvit") else name
    if kind in ("clip", "siglip"):
        conv_of, pos, cls = emb.patch_embedding, emb.position_embedding.weight, getattr(emb, "class_embedding", None)
    else:
        conv_of, pos, cls = emb.patch_embeddings.projection, Part(emb.position_embeddings, lambda t: t[0]), emb.cls_token
    out["patch_embed.weight"] = conv(conv_of.weight)
    if conv_of.bias is not None:
        out["patch_embed.bias"] = conv_of.bias
    out["pos_embed.weight"] = pos
    if cls is not None:
        out["class_token.weight"] = Part(cls, lambda t: t.reshape(1, -1))
    if kind == "clip":
        norm(out, "pre_norm", m.pre_layrnorm)
    if post is not None:
        norm(out, "final_norm", post)
    layers_of(kind, m, out)
    images = torch.randn(n, 3, *size, generator=torch.Generator().manual_seed(3)).float().double()
    h = m(pixel_values=images).last_hidden_state
    gh, gw = size[0] // P, size[1] // P
    grid = torch.eye(25).reshape(1, 5, 5, 25).permute(0, 3, 1, 2)
    if (gh, gw) != (5, 5):
        grid = F.interpolate(grid, size=(gh, gw), mode="bicubic", align_corners=False)
    grid = grid[0].reshape(25, -1).T  # [patches, table]
    d = dict(pixels=patches(images, P), hidden=h.reshape(-1, E), cu_seqlens=[i * h.shape[1] for i in range(n + 1)])
    if cls is not None:
        grid = torch.block_diag(torch.eye(1), grid)
        c, rest = class_rows(n, gh * gw)
        place, first = torch.zeros(n * h.shape[1], n * gh * gw), torch.zeros(n * h.shape[1], 1)
        for k, r in enumerate(rest):
            place[r, k] = 1
        for r in c:
            first[r, 0] = 1
        d["place"], d["class"] = place, first
    d["pos"] = grid.repeat(n, 1)
    return m, out, d


def naflex(name):
    """Pictures of two grids, one padded to the patches of the other."""
    E, P, grids = 40, 4, [(3, 7), (2, 5)]
    m = Siglip2VisionModel(Siglip2VisionConfig(hidden_size=E, num_hidden_layers=2, num_attention_heads=5, patch_size=P, num_patches=25,
                                               intermediate_size=56, vision_use_head=False, attn_implementation="eager"))
    m = getattr(m, "vision_model", m).double().eval()
    heat(m, 7)
    out = {}
    linear(out, "patch_embed", m.embeddings.patch_embedding)
    out["pos_embed.weight"] = m.embeddings.position_embedding.weight
    norm(out, "final_norm", m.post_layernorm)
    layers_of(name, m, out)
    n = [h * w for h, w in grids]
    x = torch.randn(len(n), max(n), 3 * P * P, generator=torch.Generator().manual_seed(3)).float().double()
    mask = torch.tensor([[int(i < k) for i in range(max(n))] for k in n])
    h = m(pixel_values=x, pixel_attention_mask=mask, spatial_shapes=torch.tensor(grids)).last_hidden_state
    table = torch.eye(25).reshape(1, 5, 5, 25).permute(0, 3, 1, 2)
    pos = [F.interpolate(table, size=g, mode="bilinear", align_corners=False, antialias=True)[0].reshape(25, -1).T for g in grids]
    d = dict(pixels=torch.cat([r[:k] for r, k in zip(x, n)]), hidden=torch.cat([r[:k] for r, k in zip(h, n)]),
             cu_seqlens=[0, n[0], n[0] + n[1]], pos=torch.cat(pos), grids=grids)
    return m, out, d


def qwen(name):
    """Two pictures of different sizes; rows (row / 2, column / 2, row % 2, column % 2)."""
    E, P, grids = 40, 4, [(1, 6, 10), (1, 4, 4)]
    if name == "qwen2-vl":
        m = Qwen2VisionTransformerPretrainedModel(Qwen2VLVisionConfig(depth=2, embed_dim=E, hidden_size=48, num_heads=5, mlp_ratio=2,
                                                                      patch_size=P, attn_implementation="eager"))
    elif name == "qwen2.5-vl":
        grids = [(1, 6, 10), (2, 10, 6)]
        m = Qwen2_5_VisionTransformerPretrainedModel(Qwen2_5_VLVisionConfig(
            depth=3, hidden_size=E, out_hidden_size=48, num_heads=5, intermediate_size=56, patch_size=P, window_size=16,
            fullatt_block_indexes=[1], attn_implementation="eager"))
    else:
        m = Qwen3VLVisionModel(Qwen3VLVisionConfig(depth=2, hidden_size=E, out_hidden_size=48, num_heads=5, intermediate_size=56,
                                                   patch_size=P, num_position_embeddings=25, deepstack_visual_indexes=[0],
                                                   attn_implementation="eager"))
    m = m.double().eval()
    heat(m, 7)
    out = {"patch_embed.weight": conv(m.patch_embed.proj.weight)}
    if m.patch_embed.proj.bias is not None:
        out["patch_embed.bias"] = m.patch_embed.proj.bias
    for l, b in enumerate(m.blocks):
        at = f"layers.{l}."
        norm(out, at + "attn_norm", b.norm1)
        norm(out, at + "mlp_norm", b.norm2)
        fused_qkv(out, l, b.attn.qkv)
        linear(out, at + "attn.o", b.attn.proj)
        if name == "qwen2.5-vl":
            for x in ("gate", "up", "down"):
                linear(out, at + f"mlp.{x}", getattr(b.mlp, x + "_proj"))
        else:
            linear(out, at + "mlp.up", b.mlp.fc1 if name == "qwen2-vl" else b.mlp.linear_fc1)
            linear(out, at + "mlp.down", b.mlp.fc2 if name == "qwen2-vl" else b.mlp.linear_fc2)
    n = sum(t * h * w for t, h, w in grids)
    pixels = torch.randn(n, 3 * 2 * P * P, generator=torch.Generator().manual_seed(3)).float().double()
    taken = {}
    hook = m.blocks[-1].register_forward_hook(lambda mod, a, y: taken.__setitem__("h", y[0] if isinstance(y, tuple) else y))
    deep = [m.blocks[i].register_forward_hook(lambda mod, a, y, i=i: taken.__setitem__(i, y[0] if isinstance(y, tuple) else y))
            for i in (0,)]
    m(pixels, grid_thw=torch.tensor(grids))
    for x in [hook, *deep]:
        x.remove()
    rows, frames = [], [0]
    for t, h, w in grids:
        for f in range(t):
            rows += [(0, 2 * a + c, 2 * b + e) for a in range(h // 2) for b in range(w // 2) for c in range(2) for e in range(2)]
            frames.append(frames[-1] + h * w)
    d = dict(pixels=pixels, hidden=taken["h"], deep=taken[0], positions=rows, cu_seqlens=frames)
    if name == "qwen2.5-vl":
        index, cu = get_vision_window_index(torch.tensor(grids), 2, 16, P)
        order = [int(i) * 4 + k for i in index for k in range(4)]
        d["pixels"] = pixels[order]
        d["positions"] = [rows[i] for i in order]
        d["cu_windows"] = sorted(set(int(c) for c in cu))
    if name == "qwen3-vl":
        out["pos_embed.weight"] = m.pos_embed.weight
        # bilinear, corners aligned: the ends of the grid are the ends of the table
        pos = torch.zeros(n, 25)
        at = 0
        for t, h, w in grids:
            for _, r, c in rows[at:at + t * h * w]:
                y, x = r * 4 / max(h - 1, 1), c * 4 / max(w - 1, 1)
                y, x = float(np.float32(y)), float(np.float32(x))
                y0, x0 = int(y), int(x)
                for yy, wy in ((y0, 1 - (y - y0)), (min(y0 + 1, 4), y - y0)):
                    for xx, wx in ((x0, 1 - (x - x0)), (min(x0 + 1, 4), x - x0)):
                        pos[at, yy * 5 + xx] += wy * wx
                at += 1
        d["pos"] = pos
    return m, out, d


def eva(name):
    """EVA-CLIP by timm: fused queries, keys and values, or apart with all that is new in EVA-02. Two pictures of one size."""
    import timm
    from timm.models.eva import Eva
    assert timm.__version__ == "1.0.31", "these files are made with timm 1.0.31"
    E, P, size, n = 40, 4, 20, 2
    new = dict(qkv_fused=False, swiglu_mlp=True, scale_mlp=True, scale_attn_inner=True, use_rot_pos_emb=True, ref_feat_shape=(3, 3))
    m = Eva(img_size=size, patch_size=P, num_classes=0, global_pool="token", embed_dim=E, depth=2, num_heads=5, mlp_ratio=1.4,
            **(new if name == "eva02" else {})).double().eval()
    heat(m, 7)
    out = {"patch_embed.weight": conv(m.patch_embed.proj.weight), "patch_embed.bias": m.patch_embed.proj.bias,
           "class_token.weight": Part(m.cls_token, lambda t: t[0]), "pos_embed.weight": Part(m.pos_embed, lambda t: t[0])}
    norm(out, "final_norm", m.norm)
    for l, b in enumerate(m.blocks):
        at = f"layers.{l}."
        norm(out, at + "attn_norm", b.norm1)
        norm(out, at + "mlp_norm", b.norm2)
        if name == "eva02":
            for x in "qkv":
                linear(out, at + f"attn.{x}", getattr(b.attn, x + "_proj"))
            norm(out, at + "attn.inner_norm", b.attn.norm)
            norm(out, at + "mlp.inner_norm", b.mlp.norm)
            linear(out, at + "mlp.gate", b.mlp.fc1_g)
            linear(out, at + "mlp.up", b.mlp.fc1_x)
        else:
            out.update(split(b.attn.qkv.weight, [at + f"attn.{x}.weight" for x in "qkv"]))
            out[at + "attn.q.bias"], out[at + "attn.v.bias"] = b.attn.q_bias, b.attn.v_bias
            linear(out, at + "mlp.up", b.mlp.fc1)
        linear(out, at + "attn.o", b.attn.proj)
        linear(out, at + "mlp.down", b.mlp.fc2)
    images = torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(3)).float().double()
    h = m.forward_features(images)
    side, rows = size // P, n * (1 + (size // P) ** 2)
    c, rest = class_rows(n, side * side)
    place, first = torch.zeros(rows, n * side * side), torch.zeros(rows, 1)
    place[rest, range(len(rest))] = 1
    first[c, 0] = 1
    at = [(0, 0, 0)] + [(0, y, x) for y in range(side) for x in range(side)]
    d = dict(pixels=patches(images, P), hidden=h.reshape(-1, E), cu_seqlens=[i * h.shape[1] for i in range(n + 1)], place=place,
             pos=torch.eye(1 + side * side).repeat(n, 1), positions=at * n)
    d["class"] = first
    return m, out, d


def lone(name, m):
    """The folder of a model of its own; and one with a text tower, whose vision tower this is."""
    m = copy.deepcopy(m).float()
    m.config.dtype = "float32"
    m.save_pretrained(os.path.join(HERE, "lone", name))
    if name not in ("clip", "siglip", "siglip2"):
        return
    text = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=3, num_attention_heads=1, vocab_size=8, max_position_embeddings=4,
                bos_token_id=6, eos_token_id=7)
    vision = m.config.to_dict()
    vision.pop("vision_use_head", None)  # a head is the usual form
    if name == "clip":
        pair = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=4))
    elif name == "siglip2":
        pair = Siglip2Model(Siglip2Config(text_config={**text, "projection_size": 8}, vision_config=vision))
    else:
        pair = SiglipModel(SiglipConfig(text_config={**text, "projection_size": vision["hidden_size"]}, vision_config=vision))
    heat(pair, 9)
    pair = pair.float()
    pair.config.dtype = "float32"
    pair.vision_model.load_state_dict(m.state_dict(), strict=False)
    pair.save_pretrained(os.path.join(HERE, "lone", name + "-pair"))


def write(name):
    m, out, d = (qwen if name.startswith("qwen") else naflex if name == "siglip2" else eva if name.startswith("eva") else learned)(name)
    if name in ("clip", "siglip", "siglip2", "dinov2", "dinov2-swiglu"):
        lone(name, m)
    dh = torch.randn(d["hidden"].shape, generator=torch.Generator().manual_seed(5)).float().double()
    loss = (d["hidden"] * dh).sum()
    if "deep" in d:
        dd = torch.randn(d["deep"].shape, generator=torch.Generator().manual_seed(6)).float().double()
        loss = loss + (d["deep"] * dd).sum()
    loss.backward()
    view = {k: (v.view if isinstance(v, Part) else lambda t: t, v.w if isinstance(v, Part) else v) for k, v in out.items()}
    with h5py.File(os.path.join(HERE, name + ".h5"), "w", libver="v110") as f:
        for k, (see, w) in view.items():
            f.create_dataset("w/" + k, data=see(w.detach()).numpy().astype("f4"))
            f.create_dataset("g/" + k, data=see(w.grad).numpy().astype("f4"))
        for k, v in d.items():
            if torch.is_tensor(v):
                v = v.detach().numpy()
                f.create_dataset(k, data=v.astype("f8" if k in ("hidden", "deep") else "f4"))
            else:
                f.create_dataset(k, data=np.array(v, dtype="i4"))
        f.create_dataset("dhidden", data=dh.numpy().astype("f4"))
        if "deep" in d:
            f.create_dataset("ddeep", data=dd.numpy().astype("f4"))
    print(name, sum(see(w).numel() for see, w in view.values()), "weights,", os.path.getsize(os.path.join(HERE, name + ".h5")), "bytes")


for n in sys.argv[1:] or ["clip", "siglip", "siglip2", "dinov2", "dinov2-swiglu", "internvit", "internvit-rms", "qwen2-vl", "qwen2.5-vl", "qwen3-vl",
                          "eva-clip", "eva02"]:
    write(n)
