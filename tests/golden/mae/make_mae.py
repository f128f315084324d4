#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes mae.h5 here: a tiny ViTMAEForPreTraining of transformers, in f64. The file has the weights under our names, pictures as rows of
patches, the noise that says what is hidden, what is restored of it, and the loss with the gradient of every weight: of normalised pixels
(g/, loss[0]) and of plain ones (plain/, loss[1]). lone/ is the model as transformers saves it. Run by hand: make_mae.py"""
import copy
import os

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import ViTMAEConfig, ViTMAEForPreTraining

assert transformers.__version__.startswith("5.23."), "this file is made with transformers 5.23"
HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_default_dtype(torch.float64)
P, SIDE, N = 4, 5, 3  # pixels of a patch's side, patches of a picture's, pictures
ORDER = [(y * P + x) * 3 + c for c in range(3) for y in range(P) for x in range(P)]  # our numbers of a patch, among theirs


def heat(model):
    """Weights of a size at which a wrong norm, bias or position shows; positions stay as they are."""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            r = torch.randn(p.shape, generator=g)
            if p.dim() >= 2 and "token" not in name:
                p.copy_(r * 1.2 / p[0].numel() ** 0.5)
            elif "norm" in name and "bias" not in name:
                p.copy_(1 + 0.3 * r)
            else:
                p.copy_((0.5 if "token" in name else 0.3) * r)
            p.copy_(p.float().double())  # what f32 holds


def named(m):
    """Our names: the tensor, and how it lies here."""
    out = {}
    flat = lambda t: t.reshape(t.shape[0], -1)
    row = lambda t: t.reshape(1, -1)
    same = lambda t: t

    def linear(ours, module, see=same):
        out[ours + ".weight"] = (module.weight, see)
        out[ours + ".bias"] = (module.bias, see)

    def layers(prefix, blocks):
        for l, b in enumerate(blocks):
            at = f"{prefix}layers.{l}."
            linear(at + "attn_norm", b.layernorm_before)
            linear(at + "mlp_norm", b.layernorm_after)
            for x in "qkvo":
                linear(at + f"attn.{x}", getattr(b.attention, x + "_proj"))
            linear(at + "mlp.up", b.mlp.fc1)
            linear(at + "mlp.down", b.mlp.fc2)

    e, d = m.vit.embeddings, m.decoder
    out["vision.patch_embed.weight"] = (e.patch_embeddings.projection.weight, flat)
    out["vision.patch_embed.bias"] = (e.patch_embeddings.projection.bias, same)
    out["vision.class_token.weight"] = (e.cls_token, row)
    out["vision.pos_embed.weight"] = (e.position_embeddings, lambda t: t[0])
    layers("vision.", m.vit.layers)
    linear("vision.final_norm", m.vit.layernorm)
    linear("mae.embed", d.decoder_embed)
    out["mae.mask_token.weight"] = (d.mask_token, row)
    out["mae.pos_embed.weight"] = (d.decoder_pos_embed, lambda t: t[0])
    layers("mae.", d.decoder_layers)
    linear("mae.final_norm", d.decoder_norm)
    linear("mae.pixels", d.decoder_pred, lambda t: t[ORDER])
    return out


def sincos(m):
    """As the classes fill them in: their random weights have zeros in the decoder's."""
    with torch.no_grad():
        m.decoder.initialize_weights(SIDE * SIDE)
        e = m.vit.embeddings
        e.patch_embeddings.projection._is_hf_initialized = False
        e.initialize_weights()
        for t in (e.position_embeddings, m.decoder.decoder_pos_embed):
            assert float(t.abs().sum()) > 1
            t.copy_(t.float().double())


def main():
    m = ViTMAEForPreTraining(ViTMAEConfig(
        image_size=P * SIDE, patch_size=P, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        decoder_hidden_size=24, decoder_num_hidden_layers=2, decoder_num_attention_heads=3, decoder_intermediate_size=40,
        mask_ratio=0.6, norm_pix_loss=True, attn_implementation="sdpa")).double().eval()
    sincos(m)
    heat(m)
    images = torch.randn(N, 3, P * SIDE, P * SIDE, generator=torch.Generator().manual_seed(3)).float().double()
    noise = torch.randint(0, 1 << 31, (N, SIDE * SIDE), generator=torch.Generator().manual_seed(4), dtype=torch.int64)
    copy.deepcopy(m).float().save_pretrained(os.path.join(HERE, "lone"))
    view, loss = named(m), []
    assert len(view) == len(list(m.parameters()))
    with h5py.File(os.path.join(HERE, "mae.h5"), "w", libver="v110") as f:
        for group, norm in (("g", True), ("plain", False)):
            m.config.norm_pix_loss = norm
            m.zero_grad()
            y = m(pixel_values=images, noise=noise.double())
            y.loss.backward()
            loss.append(y.loss.item())
            for k, (w, see) in view.items():
                if norm:
                    f.create_dataset("w/" + k, data=see(w.detach()).numpy().astype("f4"))
                if w.requires_grad:
                    f.create_dataset(f"{group}/{k}", data=see(w.grad).numpy().astype("f4"))
        f.create_dataset("loss", data=np.array([loss], dtype="f8"))
        f.create_dataset("hidden", data=y.mask.reshape(-1, 1).numpy().astype("i4"))
        f.create_dataset("restored", data=y.logits[y.mask > 0][:, ORDER].detach().numpy().astype("f8"))
        f.create_dataset("noise", data=noise.reshape(-1, 1).numpy().astype("i4"))
        f.create_dataset("pixels", data=torch.cat([F.unfold(i[None], P, stride=P)[0].T for i in images]).numpy().astype("f4"))
    print("losses", loss, os.path.getsize(os.path.join(HERE, "mae.h5")), "bytes")


main()
