#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files here: tiny ViTForImageClassification, DeiTForImageClassification, DeiTForImageClassificationWithTeacher,
SwinForImageClassification, Swinv2ForImageClassification and ConvNextForImageClassification of transformers, and a ResMLP, which is written out here.
../vision/lone/NAME is the model as transformers saves it, in f32. NAME.h5 has, of the same weights in f64, pictures as rows of patches, how much of
each class a picture is (soft labels, as of mixup), what a teacher says, the logits, the loss, and its gradient by every weight under our
names. vit.h5 has a linear probe besides: BatchNorm1d without
weights over the class tokens of all pictures, then the classifier, its logits, loss and gradients. ../vision/expected/NAME.safetensors is of
stages/expected.py. Run by hand: make_classes.py [NAME ...]"""
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
from transformers import ConvNextConfig, ConvNextForImageClassification
from transformers import SwinConfig, SwinForImageClassification, Swinv2Config, Swinv2ForImageClassification

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
            if "logit_scale" in name:
                p.copy_(1 + 0.5 * r)
            elif "continuous_position_bias_mlp.2" in name:  # more of it, and rounding to f32 shows in gradients
                p.copy_(r * 0.4 / p[0].numel() ** 0.5)
            elif "bias_table" in name:
                p.copy_(r)
            elif p.dim() >= 2 and "token" not in name and "position_embed" not in name:
                p.copy_(r * 1.2 / p[0].numel() ** 0.5)
            elif "norm" in name and "bias" not in name:
                p.copy_(1 + 0.3 * r)
            else:
                p.copy_((0.5 if p.dim() > 1 else 0.3) * r)
            p.copy_(p.float().double())  # what f32 holds


def named_stages(m):
    """The same of Swin and Swin v2."""
    out, same = {}, lambda t: t

    def linear(ours, module):
        out[ours + ".weight"] = (module.weight, same)
        if module.bias is not None:
            out[ours + ".bias"] = (module.bias, same)

    body = getattr(m, "swin", None) or m.swinv2
    e, l = body.embeddings, 0
    out["vision.patch_embed.weight"] = (e.patch_embeddings.projection.weight, lambda t: t.reshape(t.shape[0], -1))
    out["vision.patch_embed.bias"] = (e.patch_embeddings.projection.bias, same)
    if e.position_embeddings is not None:
        out["vision.pos_embed.weight"] = (e.position_embeddings, lambda t: t[0])
    linear("vision.pre_norm", e.norm)
    for stage in body.encoder.layers:
        for b in stage.blocks:
            at, a = f"vision.layers.{l}.", b.attention
            linear(at + "attn_norm", b.layernorm_before)
            linear(at + "mlp_norm", b.layernorm_after)
            if hasattr(a, "relative_position_bias"):
                for x in "qkvo":
                    linear(at + f"attn.{x}", getattr(a, x + "_proj"))
                out[at + "attn.distances.weight"] = (a.relative_position_bias.relative_position_bias_table, same)
                linear(at + "mlp.up", b.mlp.fc1)
                linear(at + "mlp.down", b.mlp.fc2)
            else:
                s = a.self
                for x, module in zip("qkvo", (s.query, s.key, s.value, a.output.dense)):
                    linear(at + f"attn.{x}", module)
                linear(at + "attn.distances.up", s.continuous_position_bias_mlp[0])
                linear(at + "attn.distances.down", s.continuous_position_bias_mlp[2])
                out[at + "attn.temperature.weight"] = (s.logit_scale, lambda t: t.reshape(-1, 1))
                linear(at + "mlp.up", b.intermediate.dense)
                linear(at + "mlp.down", b.output.dense)
            l += 1
        if stage.downsample is not None:
            linear(f"vision.layers.{l - 1}.merge_norm", stage.downsample.norm)
            linear(f"vision.layers.{l - 1}.merge", stage.downsample.reduction)
    linear("vision.final_norm", body.layernorm)
    linear("classes", m.classifier)
    return out


def named_convnext(m):
    """The same of ConvNeXt."""
    out, same, flat = {}, lambda t: t, lambda t: t.reshape(t.shape[0], -1)

    def module(ours, of, see=same):
        out[ours + ".weight"] = (of.weight, see)
        out[ours + ".bias"] = (of.bias, same)

    l = 0
    module("vision.patch_embed", m.convnext.embeddings.patch_embeddings, flat)
    module("vision.pre_norm", m.convnext.embeddings.layernorm)
    for stage in m.convnext.encoder.stages:
        if len(stage.downsampling_layer):
            module(f"vision.layers.{l - 1}.merge_norm", stage.downsampling_layer[0])
            # patches (0, 0), (1, 0), (0, 1), (1, 1), channels beside each other
            module(f"vision.layers.{l - 1}.merge", stage.downsampling_layer[1], lambda t: t.permute(0, 3, 2, 1).reshape(t.shape[0], -1))
        for b in stage.layers:
            at = f"vision.layers.{l}."
            module(at + "conv", b.dwconv, flat)
            module(at + "mlp_norm", b.layernorm)
            module(at + "mlp.up", b.pwconv1)
            module(at + "mlp.down", b.pwconv2)
            out[at + "mlp_scale"] = (b.layer_scale_parameter, same)
            l += 1
    module("classes.norm", m.convnext.layernorm)
    module("classes", m.classifier)
    return out


def named(m):
    """Our names: the tensor, and how it lies here."""
    if m.config.model_type == "convnext":
        return named_convnext(m)
    if "swin" in m.config.model_type:
        return named_stages(m)
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


def vit(config):
    return config(image_size=P * SIDE, patch_size=P, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
                  num_labels=LABELS, attn_implementation="eager")


def swin(config, embed, **more):
    """10 x 10 patches, 5 x 5, 3 x 3: none is a multiple of the windows before the last stage, and an odd side is merged."""
    return config(image_size=20, patch_size=2, embed_dim=embed, depths=[2, 2, 2], num_heads=[1, 2, 3], mlp_ratio=2.0, num_labels=LABELS,
                  attn_implementation="eager", **more)


def double_all():
    """The class of v1 takes f32 for its softmax by name, also of doubles."""
    softmax = F.softmax
    return lambda x, dim=None, dtype=None: softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)


STEPS, ADAM = 10, dict(lr=5e-3, betas=(0.9, 0.95), eps=1e-8)
HELD = ("relative_position_bias_table", "logit_scale")  # what does not decay, besides vectors


def adamw(m, images, soft):
    """Loss and gradient norm before each step."""
    held = lambda n, p: p.dim() < 2 or n.endswith(HELD) or "continuous_position_bias_mlp" in n
    groups = [dict(params=[p for n, p in m.named_parameters() if held(n, p) == h], weight_decay=0.0 if h else 0.1) for h in (False, True)]
    opt, losses, norms = torch.optim.AdamW(groups, **ADAM), [], []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = F.cross_entropy(m(pixel_values=images).logits, soft)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)))
        losses.append(loss.item())
        opt.step()
    return losses, norms


def rounded(cls, path, images, logits):
    """The error of the reference's own bf16 logits, by their size."""
    b = cls.from_pretrained(path, torch_dtype=torch.bfloat16, attn_implementation="eager").eval()
    with torch.no_grad():
        e = b(pixel_values=images.bfloat16()).logits.double() - logits
    return float(e.norm() / logits.norm())


def make(name, cls, config, seed):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    g = torch.Generator().manual_seed(seed)
    m = cls(config).double().eval()
    side, p = config.image_size // config.patch_size, config.patch_size
    heat(m, seed)
    copy.deepcopy(m).float().save_pretrained(os.path.join(VISION, "lone", name))
    images = torch.randn(N, 3, p * side, p * side, generator=g).float().double()
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
        f.create_dataset("pixels", data=torch.cat([F.unfold(i[None], p, stride=p)[0].T for i in images]).numpy().astype("f4"))
        f.create_dataset("soft", data=soft.numpy())
        f.create_dataset("teacher", data=teacher.reshape(-1, 1).numpy().astype("i4"))
        f.create_dataset("logits", data=y.logits.detach().numpy())
        f.create_dataset("loss", data=np.array([[loss.item()]]))
        if "swin" in name or name == "convnext":
            f.create_dataset("bf16_rms", data=np.array([[rounded(cls, os.path.join(VISION, "lone", name), images, y.logits.detach())]]))
            if name == "swinv2":  # a number above what it is cut to
                hot = copy.deepcopy(m)
                with torch.no_grad():
                    hot.swinv2.encoder.layers[1].blocks[1].attention.self.logit_scale[-1] = 5
                    f.create_dataset("logits.cut", data=hot(pixel_values=images).logits.numpy())
            for k, v in zip(("loss", "norm"), adamw(m, images, soft)):
                f.create_dataset("train." + k, data=np.array([v]))
    subprocess.run([sys.executable, os.path.join(HERE, "../../../stages/expected.py"), os.path.join(VISION, "lone", name),
                    os.path.join(VISION, "expected", name + ".safetensors"), "--batch", "2"], check=True)
    print(name, "loss", loss.item(), os.path.getsize(os.path.join(HERE, name + ".h5")), "bytes")


make("vit", ViTForImageClassification, vit(ViTConfig), 1)
make("deit", DeiTForImageClassification, vit(DeiTConfig), 2)
make("deit-taught", DeiTForImageClassificationWithTeacher, vit(DeiTConfig), 3)
F.softmax = double_all()
make("swin", SwinForImageClassification, swin(SwinConfig, 6, window_size=3, use_absolute_embeddings=True), 4)
# a seed with which PyTorch's own gradients in f32 are within 5e-6 of those in f64; with many others they are not
make("swinv2", Swinv2ForImageClassification, swin(Swinv2Config, 6, window_size=4, pretrained_window_sizes=[3, 0, 6]), 20)
# 9 x 9 patches, 4 x 4, 2 x 2: an odd side is merged, and the convolution is wider than the last two
make("convnext", ConvNextForImageClassification,
     ConvNextConfig(image_size=18, patch_size=2, num_stages=3, hidden_sizes=[6, 10, 14], depths=[1, 2, 1], num_labels=LABELS), 6)


class Affine(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.alpha, self.beta = torch.nn.Parameter(torch.ones(dim)), torch.nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return self.alpha * x + self.beta


class ResMLP(torch.nn.Module):
    """Touvron et al. 2021, arXiv:2105.03404, equations 1 and 2; tensors have the names that timm gives them."""

    def __init__(self, side, patch, dim, inner, depth):
        super().__init__()
        nn, n = torch.nn, side * side
        self.stem = nn.ModuleDict({"proj": nn.Conv2d(3, dim, patch, patch)})
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            b = nn.Module()
            b.norm1, b.norm2, b.linear_tokens = Affine(dim), Affine(dim), nn.Linear(n, n)
            b.mlp_channels = nn.ModuleDict({"fc1": nn.Linear(dim, inner), "fc2": nn.Linear(inner, dim)})
            b.ls1, b.ls2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
            self.blocks.append(b)
        self.norm, self.head = Affine(dim), nn.Linear(dim, LABELS)

    def forward(self, pixel_values):
        x = self.stem["proj"](pixel_values).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = x + b.ls1 * b.linear_tokens(b.norm1(x).transpose(1, 2)).transpose(1, 2)
            x = x + b.ls2 * b.mlp_channels["fc2"](F.gelu(b.mlp_channels["fc1"](b.norm2(x))))
        return transformers.modeling_outputs.ImageClassifierOutput(logits=self.head(self.norm(x).mean(1)))


def named_resmlp(m):
    out, same = {}, lambda t: t

    def module(ours, of, see=same):
        names = ("alpha", "beta") if isinstance(of, Affine) else ("weight", "bias")
        out[ours + ".weight"], out[ours + ".bias"] = (getattr(of, names[0]), see), (getattr(of, names[1]), same)

    module("vision.patch_embed", m.stem["proj"], lambda t: t.reshape(t.shape[0], -1))
    for l, b in enumerate(m.blocks):
        at = f"vision.layers.{l}."
        module(at + "attn_norm", b.norm1)
        module(at + "mix", b.linear_tokens)
        module(at + "mlp_norm", b.norm2)
        module(at + "mlp.up", b.mlp_channels["fc1"])
        module(at + "mlp.down", b.mlp_channels["fc2"])
        out[at + "attn_scale"], out[at + "mlp_scale"] = (b.ls1, same), (b.ls2, same)
    module("vision.final_norm", m.norm)
    module("classes", m.head)
    return out


def make_resmlp(seed, side=4, p=2):
    """No library here has it, and no class of transformers: the file has its weights too."""
    if sys.argv[1:] and "resmlp" not in sys.argv[1:]:
        return
    g = torch.Generator().manual_seed(seed)
    m = ResMLP(side, p, 10, 24, 2)
    heat(m, seed)
    images = torch.randn(N, 3, p * side, p * side, generator=g).float().double()
    soft = torch.softmax(2 * torch.randn(N, LABELS, generator=g), -1)
    logits = m(images).logits
    loss = F.cross_entropy(logits, soft)
    loss.backward()
    view = named_resmlp(m)
    assert len(view) == len(list(m.parameters()))
    with torch.no_grad():
        e = copy.deepcopy(m).bfloat16()(images.bfloat16()).logits.double() - logits
    with h5py.File(os.path.join(HERE, "resmlp.h5"), "w", libver="v110") as f:
        for k, (w, see) in view.items():
            f.create_dataset("g/" + k, data=see(w.grad).numpy().astype("f4"))
            f.create_dataset("w/" + k, data=see(w.detach()).numpy().astype("f4"))
        f.create_dataset("pixels", data=torch.cat([F.unfold(i[None], p, stride=p)[0].T for i in images]).numpy().astype("f4"))
        f.create_dataset("soft", data=soft.numpy())
        f.create_dataset("teacher", data=np.zeros((N, 1), "i4"))
        f.create_dataset("logits", data=logits.detach().numpy())
        f.create_dataset("loss", data=np.array([[loss.item()]]))
        f.create_dataset("bf16_rms", data=np.array([[float(e.norm() / logits.norm())]]))
        for k, v in zip(("loss", "norm"), adamw(m, images, soft)):
            f.create_dataset("train." + k, data=np.array([v]))
    print("resmlp loss", loss.item(), os.path.getsize(os.path.join(HERE, "resmlp.h5")), "bytes")


make_resmlp(7)
