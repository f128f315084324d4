#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes moco.h5: one step of MoCo v3 in f64, from the paper's pseudo-code. Tensors have our names and shapes. Run by hand: make_moco.py"""
import os

import h5py
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_default_dtype(torch.float64)
C, HEADS, LAYERS, FFN, K, PATCHES = 24, 3, 2, 32, 12, 4  # an encoder of pictures of 2 x 2 patches of 2 x 2 pixels
HIDDEN, DIM, N, T = 20, 7, 5, 0.3  # channels of the heads, pictures, temperature


def encoder_shapes():
    yield "patch_embed.weight", (C, K)
    yield "patch_embed.bias", (C,)
    yield "class_token.weight", (1, C)
    yield "pos_embed.weight", (PATCHES + 1, C)
    for l in range(LAYERS):
        for norm in ("attn_norm", "mlp_norm"):
            yield f"layers.{l}.{norm}.weight", (C,)
            yield f"layers.{l}.{norm}.bias", (C,)
        for name, out, into in (("attn.q", C, C), ("attn.k", C, C), ("attn.v", C, C), ("attn.o", C, C), ("mlp.up", FFN, C), ("mlp.down", C, FFN)):
            yield f"layers.{l}.{name}.weight", (out, into)
            yield f"layers.{l}.{name}.bias", (out,)
    yield "final_norm.weight", (C,)
    yield "final_norm.bias", (C,)


def head_shapes(name, sizes):
    """Linear layers without bias; behind all but the last a norm with weight and bias."""
    for i, (into, out) in enumerate(zip(sizes, sizes[1:])):
        yield f"moco.{name}.{i}.weight", (out, into)
        if i + 2 < len(sizes):
            yield f"moco.{name}.{i}.norm.weight", (out, 1)
            yield f"moco.{name}.{i}.norm.bias", (out, 1)


def draw(g, name, shape):
    r = torch.randn(shape, generator=g)
    if "norm" in name:
        r = (1 if name.endswith("weight") else 0) + 0.3 * r
    elif "embed.weight" in name or len(shape) == 2 and "token" not in name:
        r = 1.2 * r / shape[1] ** 0.5
    else:
        r = 0.4 * r
    return r.float().double()


def encode(w, at, pixels):
    p = lambda name: w[at + name]
    x = pixels @ p("patch_embed.weight").T + p("patch_embed.bias")
    x = torch.cat([p("class_token.weight").expand(len(x), 1, C), x], 1) + p("pos_embed.weight")
    for l in range(LAYERS):
        q = lambda name: p(f"layers.{l}.{name}.weight")
        b = lambda name: p(f"layers.{l}.{name}.bias")
        h = F.layer_norm(x, (C,), q("attn_norm"), b("attn_norm"), 1e-12)
        heads = [(h @ q("attn." + k).T + b("attn." + k)).reshape(len(x), -1, HEADS, C // HEADS).transpose(1, 2) for k in "qkv"]
        a = torch.softmax(heads[0] @ heads[1].transpose(2, 3) / (C // HEADS) ** 0.5, -1) @ heads[2]
        x = x + a.transpose(1, 2).reshape(x.shape) @ q("attn.o").T + b("attn.o")
        h = F.layer_norm(x, (C,), q("mlp_norm"), b("mlp_norm"), 1e-12)
        x = x + F.gelu(h @ q("mlp.up").T + b("mlp.up")) @ q("mlp.down").T + b("mlp.down")
    return F.layer_norm(x, (C,), p("final_norm.weight"), p("final_norm.bias"), 1e-12)[:, 0]


def head(w, at, n, x):
    for i in range(n):
        x = x @ w[f"{at}.{i}.weight"].T
        last = i + 1 == n
        gain, bias = (None, None) if last else (w[f"{at}.{i}.norm.{k}"][:, 0] for k in ("weight", "bias"))
        x = F.batch_norm(x, None, None, gain, bias, training=True, eps=1e-5)
        x = x if last else F.relu(x)
    return x


def ctr(q, k):
    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / T
    return 2 * T * F.cross_entropy(logits, torch.arange(N)), (logits.argmax(1) == torch.arange(N)).sum().item()


def main():
    g, w = torch.Generator().manual_seed(3), {}
    projector, predictor = (C, HIDDEN, HIDDEN, DIM), (DIM, HIDDEN, DIM)
    for name, shape in encoder_shapes():
        w["vision." + name] = draw(g, name, shape)
    for name, shape in [*head_shapes("projector", projector), *head_shapes("predictor", predictor)]:
        w[name] = draw(g, name, shape)
    for name in [k for k in w if "predictor" not in k]:  # an average that is not far away
        w["momentum." + name] = (w[name] + 0.1 * torch.randn(w[name].shape, generator=g)).float().double()
    trained = [k for k in w if not k.startswith("momentum.")]
    for k in trained:
        w[k].requires_grad_()
    picture = torch.randn(N, PATCHES, K, generator=g)
    views = [(picture + 0.3 * torch.randn(N, PATCHES, K, generator=g)).float().double() for _ in range(2)]
    q, k = [], []
    for x in views:
        q.append(head(w, "moco.predictor", 2, head(w, "moco.projector", 3, encode(w, "vision.", x))))
        with torch.no_grad():
            k.append(head(w, "momentum.moco.projector", 3, encode(w, "momentum.vision.", x)))
    (a, right_a), (b, right_b) = ctr(q[0], k[1]), ctr(q[1], k[0])
    (a + b).backward()
    with h5py.File(os.path.join(HERE, "moco.h5"), "w", libver="v110") as f:
        for name, t in w.items():
            f.create_dataset("w/" + name, data=t.detach().numpy().astype("f4"))
        for name in trained:
            f.create_dataset("g/" + name, data=w[name].grad.numpy().astype("f4"))
        f.create_dataset("pixels", data=torch.stack(views).numpy().astype("f4"))
        f.create_dataset("loss", data=[(a + b).item()])
        f.create_dataset("right", data=[right_a + right_b])
    print("loss", (a + b).item(), "right", right_a + right_b, os.path.getsize(os.path.join(HERE, "moco.h5")), "bytes")


main()
