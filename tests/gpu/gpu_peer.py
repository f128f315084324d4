#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of `make bench-gpu`: training steps and decoding of the models in models/*.ini, random weights.

    gpu_peer.py train  MODEL.ini SEQUENCES LENGTH [--tokens 131072] [--steps 8] [--precision autocast|bf16] [--compile default|max-autotune|no]
    gpu_peer.py decode MODEL.ini BATCH NEW        [--steps 3]

Prints JSON lines, the fastest way so far in each: median seconds of an optimizer step (train) or of one token of every sequence
(decode), tokens/s. Who stops it has what was found: the last line counts.

What makes it fair
  * The whole model under torch.compile, scaled_dot_product_attention (flash), fused AdamW, TF32 allowed; the loss is compiled with the
    model, so that Inductor fuses the cross entropy as far as it can. LENGTH is static.
  * autocast: f32 weights, bf16 matrix products, as most people train. bf16: weights, activations and gradients in bf16, f32 masters and
    moments beside them, updated by one fused AdamW over the masters and one foreach copy back. Ours is the second with gradients in
    f32. Without --precision both are run, bf16 first, and the faster one counts.
  * The same work as ours: SEQUENCES x LENGTH tokens a micro-batch, TOKENS an optimizer step, gradients summed over micro-batches, global
    norm clipped to 1, AdamW (0.9, 0.95), weight decay 0.1. No dropout, no checkpointing. Nothing is read back within a step.
  * Out of memory: micro-batches are halved until they fit, and the result says so. Steps are not repeated further once they took 25 s
    together, as ours are not.
  * decode: the same model in bf16 with a static cache. A step, compiled, with the largest logit and the next position in it, is one CUDA
    graph; it is replayed for all tokens without a word from the host. Inductor's plain choice of kernels first, then tuned by descent.
"""
import argparse
import configparser
import gc
import json
import os
import statistics
import sys
import time

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # less is lost to fragments; read when torch starts

import torch
import torch._inductor.config
import torch.nn as nn
import torch.nn.functional as F

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LONG_S = 25.0  # steps are not repeated further once they took so long together
# theta, biases of q k v, epsilon: what a family implies (engine/model/families.c)
FAMILIES = {
    "gpt2": dict(),
    "llama2": dict(theta=1e4, qkv_bias=False, eps=1e-5),
    "llama3": dict(theta=5e5, qkv_bias=False, eps=1e-5),
    "llama3.2": dict(theta=5e5, qkv_bias=False, eps=1e-5, tied=True),
    "qwen2.5": dict(theta=1e6, qkv_bias=True, eps=1e-6),
}


def config(path):
    ini = configparser.ConfigParser()
    ini.read_string(open(path).read())
    m = dict(ini["model"])
    family = m["family"]
    if family not in FAMILIES:
        sys.exit("gpu_peer: no peer for family %s" % family)
    c = dict(FAMILIES[family], family=family, gpt2=family == "gpt2")
    for k in ("layers", "hidden", "heads", "ffn", "vocab", "max_positions"):
        c[k] = int(m[k])
    c["kv"] = int(m.get("kv_heads", c["heads"]))
    c["tied"] = m.get("tied_head", "yes" if c["gpt2"] or c.get("tied") else "no") == "yes"
    return c


def sync():
    if CUDA:
        torch.cuda.synchronize()


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, ff, g = c["hidden"], c["ffn"], c["gpt2"]
        self.c, self.hd = c, d // c["heads"]
        norm = (lambda: nn.LayerNorm(d)) if g else (lambda: nn.RMSNorm(d, eps=c["eps"]))
        self.n1, self.n2 = norm(), norm()
        self.qkv = nn.Linear(d, d + 2 * c["kv"] * self.hd, bias=g or c["qkv_bias"])
        self.o = nn.Linear(d, d, bias=g)
        self.up = nn.Linear(d, ff if g else 2 * ff, bias=g)
        self.down = nn.Linear(ff, d, bias=g)

    def keep(self, batch, length):
        shape = batch, self.c["kv"], length, self.hd
        for name in "kc", "vc":
            self.register_buffer(name, torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16), persistent=False)

    def attend(self, q, k, v, pos):
        gqa = self.c["kv"] != self.c["heads"]
        if pos is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
        self.kc.index_copy_(2, pos, k)
        self.vc.index_copy_(2, pos, v)
        seen = (torch.arange(self.kc.shape[2], device=pos.device) <= pos).view(1, 1, 1, -1)
        return F.scaled_dot_product_attention(q, self.kc, self.vc, attn_mask=seen, enable_gqa=gqa)

    def forward(self, x, rope, pos=None):  # pos: of one token of each sequence, whose past the cache has
        b, t, d = x.shape
        c, hd = self.c, self.hd
        q, k, v = self.qkv(self.n1(x)).split([d, c["kv"] * hd, c["kv"] * hd], -1)
        q, k, v = (z.view(b, t, -1, hd).transpose(1, 2) for z in (q, k, v))
        if rope is not None:
            q, k = turn(q, *rope), turn(k, *rope)
        a = self.attend(q, k, v, pos)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        h = self.up(self.n2(x))
        if c["gpt2"]:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        self.c = c
        d, hd = c["hidden"], c["hidden"] // c["heads"]
        self.wte = nn.Embedding(c["vocab"], d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(d) if c["gpt2"] else nn.RMSNorm(d, eps=c["eps"])
        self.head = nn.Linear(d, c["vocab"], bias=False)
        if c["tied"]:
            self.head.weight = self.wte.weight
        if c["gpt2"]:
            self.wpe = nn.Embedding(max(c["max_positions"], length), d)
        else:
            angle = torch.outer(torch.arange(length).float(), c["theta"] ** (-torch.arange(0, hd, 2).float() / hd))
            self.cos, self.sin = angle.cos().to(DEVICE), angle.sin().to(DEVICE)  # f32: not cast with the weights
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def logits(self, tokens, pos=None):
        x = self.wte(tokens)
        rope = None
        if self.c["gpt2"]:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device) if pos is None else pos)
        else:
            rope = (self.cos, self.sin) if pos is None else (self.cos[pos], self.sin[pos])
        for block in self.blocks:
            x = block(x, rope, pos)
        return self.head(self.norm(x))

    def forward(self, tokens, targets):
        return F.cross_entropy(self.logits(tokens).float().view(-1, self.c["vocab"]), targets.view(-1))

    def step(self, token, pos):
        return self.logits(token, pos)[:, -1:].argmax(-1)


class Masters:
    """f32 masters and moments beside bf16 weights; one fused AdamW over the masters."""

    def __init__(self, params):
        self.params = params
        self.master = [p.detach().float().clone() for p in params]
        self.opt = adamw(self.master)

    def step(self):
        for m, p in zip(self.master, self.params):
            m.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.master, 1.0, foreach=True)
        self.opt.step()
        torch._foreach_copy_([p.detach() for p in self.params], self.master)
        for m in self.master:
            m.grad = None


class Plain:
    def __init__(self, params):
        self.params = params
        self.opt = adamw(params)

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def adamw(params):
    return torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def clean():
    """What an earlier attempt left: compiled code holds its model."""
    torch._dynamo.reset()
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()


def train_once(c, batch, length, a, precision):
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Model(c, length)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    call = model if a.compile == "no" else torch.compile(model, mode=a.compile, dynamic=False)
    opt = (Masters if precision == "bf16" else Plain)([p for p in model.parameters()])
    micro = max(1, a.tokens // (batch * length))
    x, y = (torch.randint(0, c["vocab"], (batch, length), device=DEVICE) for _ in range(2))
    times, warm = [], 0
    while len(times) < a.steps and (len(times) < 3 or sum(times) < LONG_S):
        sync()
        t0 = time.perf_counter()
        for _ in range(micro):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "autocast"):
                loss = call(x, y) / micro
            loss.backward()
        opt.step()
        sync()
        took, warm = time.perf_counter() - t0, warm + 1
        if warm > a.warmup or (warm > 2 and took > LONG_S / 3):  # the first compiles
            times.append(took)
    if not torch.isfinite(loss):
        sys.exit("gpu_peer: the loss is not finite")
    med = statistics.median(times)
    return dict(precision=precision, B=batch, micro=micro, median_s=med, best_s=min(times), tokens_per_s=batch * length * micro / med)


def train(c, a):
    best = None
    for precision in [a.precision] if a.precision else ["bf16", "autocast"]:
        batch, r = a.batch, None
        while batch and not r:
            clean()
            try:
                r = train_once(c, batch, a.length, a, precision)
            except torch.cuda.OutOfMemoryError:
                batch //= 2
        if r and (best is None or r["tokens_per_s"] > best["tokens_per_s"]):
            best = r
        if best:
            tell(a, best)
    if best is None:
        sys.exit("gpu_peer: out of memory at one sequence")


def graph_of(step, warm=3):
    """step() as one CUDA graph."""
    if not CUDA:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def decode_once(model, c, a, prompt, tuned):
    torch._inductor.config.coordinate_descent_tuning = tuned
    compiled = model.step if a.compile == "no" else torch.compile(model.step, dynamic=False, fullgraph=True)
    token = torch.zeros(a.batch, 1, dtype=torch.long, device=DEVICE)
    pos = torch.zeros(1, dtype=torch.long, device=DEVICE)
    ids = torch.randint(0, c["vocab"], (a.batch, prompt), device=DEVICE)

    def one():
        token.copy_(compiled(token, pos))
        pos.add_(1)

    run, times = graph_of(one), []
    for _ in range(a.steps + 1):  # the first warms up
        pos.zero_()
        for t in range(prompt):
            token.copy_(ids[:, t : t + 1])
            run()
        sync()
        t0 = time.perf_counter()
        for _ in range(a.length - 1):
            run()
        sync()
        times.append((time.perf_counter() - t0) / (a.length - 1))
    med = statistics.median(times[1:])
    return dict(precision="bf16", tuned=tuned, B=a.batch, median_s=med, best_s=min(times), tokens_per_s=a.batch / med)


def decode(c, a, prompt=16):
    torch.manual_seed(0)
    best = None
    with torch.device(DEVICE):
        model = Model(c, prompt + a.length)
    model = model.to(torch.bfloat16).eval()
    for block in model.blocks:
        block.keep(a.batch, prompt + a.length)
    for tuned in [False, True] if CUDA and a.compile != "no" else [False]:
        clean()
        r = decode_once(model, c, a, prompt, tuned)
        if best is None or r["tokens_per_s"] > best["tokens_per_s"]:
            best = r
        tell(a, best)


def tell(a, r):
    device = torch.cuda.get_device_name(0) if CUDA else "cpu"
    print(json.dumps(dict(peer="torch " + torch.__version__, device=device, what=a.what, model=a.model, T=a.length, compile=a.compile, **r)), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["train", "decode"])
    p.add_argument("model")
    p.add_argument("batch", type=int)
    p.add_argument("length", type=int)
    p.add_argument("--tokens", type=int, default=131072)
    p.add_argument("--steps", type=int)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--precision", choices=["autocast", "bf16"])
    p.add_argument("--compile", default="default", choices=["default", "max-autotune", "max-autotune-no-cudagraphs", "no"])
    a = p.parse_args()
    a.steps = a.steps or (8 if a.what == "train" else 3)
    torch.set_float32_matmul_precision("high")  # TF32
    (train if a.what == "train" else decode)(config(a.model), a)


if __name__ == "__main__":
    main()
