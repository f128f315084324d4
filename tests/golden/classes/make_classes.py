#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files here: tiny ViTForImageClassification, DeiTForImageClassification and DeiTForImageClassificationWithTeacher of transformers.
../vision/lone/NAME is the model as transformers saves it, in f32. NAME.h5 has, of the same weights in f64, pictures as rows of patches, how much of
each class a picture is (soft labels, as of mixup), what a teacher says, the logits, the loss, and its gradient by every weight under our
names. vit.h5 has a linear probe besides: BatchNorm1d without
weights over the class tokens of all pictures, then the classifier, its logits, loss and gradients. ../vision/expected/NAME.safetensors is of
stages/expected.py. Run by hand: make_classes.py"""
import copy
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import DeiTConfig, DeiTForImageClassification, DeiTForImageClassificationWithTeacher, ViTConfig, ViTForImageClassification

assert transformers.__version__.startswith("5.23."), "these files are made with transformers 5.23"
HERE = os.path.dirname(os.path.abspath(__file__))
VISION = os.path.join(HERE, "../vision")
torch.set_default_dtype(torch.float64)
P, SIDE, N, LABELS = 4, 4, 3, 5  # pixels of a patch's side, patches of a picture's, pictures, classes


def heat(model, seed):
    """Weights of a size at which a wrong norm, bias or position shows."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if p.dim() >= 2 and "token" not in name and "position" not in name:
                p.copy_(r * 1.2 / p[0].numel() ** 0.5)
            elif "norm" in name and "bias" not in name:
                p.copy_(1 + 0.3 * r)
            else:
                p.copy_((0.5 if p.dim() > 1 else 0.3) * r)
            p.copy_(p.float().double())  # what f32 holds


def named(m):
    """Our names: the tensor, and how it lies here."""
    out = {}
    row = lambda t: t.reshape(1, -1)
    same = lambda t: t

    def linear(ours, module):
        out[ours + ".weight"] = (module.weight, same)
        out[ours + ".bias"] = (module.bias, same)

    body = getattr(m, "vit", None) or m.deit
    e = body.embeddings
    out["vision.patch_embed.weight"] = (e.patch_embeddings.projection.weight, lambda t: t.reshape(t.shape[0], -1))
    out["vision.patch_embed.bias"] = (e.patch_embeddings.projection.bias, same)
    out["vision.class_token.weight"] = (e.cls_token, row)
    if hasattr(e, "distillation_token"):
        out["vision.distill_token.weight"] = (e.distillation_token, row)
    out["vision.pos_embed.weight"] = (e.position_embeddings, lambda t: t[0])
    for l, b in enumerate(body.layers):
        at = f"vision.layers.{l}."
        linear(at + "attn_norm", b.layernorm_before)
        linear(at + "mlp_norm", b.layernorm_after)
        for x in "qkvo":
            linear(at + f"attn.{x}", getattr(b.attention, x + "_proj"))
        linear(at + "mlp.up", b.mlp.fc1)
        linear(at + "mlp.down", b.mlp.fc2)
    linear("vision.final_norm", body.layernorm)
    if hasattr(m, "cls_classifier"):
        linear("classes", m.cls_classifier)
        linear("classes.distill", m.distillation_classifier)
    else:
        linear("classes", m.classifier)
    return out


def make(name, cls, config, seed):
    g = torch.Generator().manual_seed(seed)
    m = cls(config(image_size=P * SIDE, patch_size=P, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
                   num_labels=LABELS, attn_implementation="eager")).double().eval()
    heat(m, seed)
    copy.deepcopy(m).float().save_pretrained(os.path.join(VISION, "lone", name))
    images = torch.randn(N, 3, P * SIDE, P * SIDE, generator=g).float().double()
    soft = torch.softmax(2 * torch.randn(N, LABELS, generator=g), -1)
    teacher = torch.randint(0, LABELS, (N,), generator=g)
    y, view = m(pixel_values=images), named(m)
    assert len(view) == len(list(m.parameters()))
    first = y.cls_logits if "cls_logits" in y else y.logits
    loss = F.cross_entropy(first, soft)
    if "cls_logits" in y:
        loss = 0.5 * loss + 0.5 * F.cross_entropy(y.distillation_logits, teacher)
    loss.backward()
    probe = {}
    if name == "vit":
        with torch.no_grad():
            rows = m.vit(pixel_values=images).last_hidden_state[:, 0]
        head = copy.deepcopy(m.classifier)
        head.zero_grad()
        z = head(torch.nn.BatchNorm1d(24, affine=False, eps=1e-6)(rows))
        told = F.cross_entropy(z, soft)
        told.backward()
        probe = {"logits": z.detach(), "loss": told.detach().reshape(1, 1), "classes.weight": head.weight.grad, "classes.bias": head.bias.grad}
    with h5py.File(os.path.join(HERE, name + ".h5"), "w", libver="v110") as f:
        for k, (w, see) in view.items():
            grad = torch.zeros_like(w) if w.grad is None else w.grad
            f.create_dataset("g/" + k, data=see(grad).numpy().astype("f4"))
        for k, t in probe.items():
            f.create_dataset("probe/" + k, data=t.numpy())
        f.create_dataset("pixels", data=torch.cat([F.unfold(i[None], P, stride=P)[0].T for i in images]).numpy().astype("f4"))
        f.create_dataset("soft", data=soft.numpy())
        f.create_dataset("teacher", data=teacher.reshape(-1, 1).numpy().astype("i4"))
        f.create_dataset("logits", data=y.logits.detach().numpy())
        f.create_dataset("loss", data=np.array([[loss.item()]]))
    subprocess.run([sys.executable, os.path.join(HERE, "../../../stages/expected.py"), os.path.join(VISION, "lone", name),
                    os.path.join(VISION, "expected", name + ".safetensors"), "--batch", "2"], check=True)
    print(name, "loss", loss.item(), os.path.getsize(os.path.join(HERE, name + ".h5")), "bytes")


make("vit", ViTForImageClassification, ViTConfig, 1)
make("deit", DeiTForImageClassification, DeiTConfig, 2)
make("deit-taught", DeiTForImageClassificationWithTeacher, DeiTConfig, 3)
