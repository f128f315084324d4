#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of `make bench-gpu`: training steps and decoding of the models in models/*.ini, random weights.

    gpu_peer.py train  MODEL.ini SEQUENCES LENGTH [--tokens 131072] [--steps 8] [--precision autocast|bf16] [--compile default|max-autotune|no]
    gpu_peer.py decode MODEL.ini BATCH NEW        [--steps 3]

Prints one JSON line: median seconds of an optimizer step (train) or of one token of every sequence (decode), tokens/s.

What makes it fair
  * The whole model under torch.compile, scaled_dot_product_attention (flash), fused AdamW, TF32 allowed; the loss is compiled with the
    model, so that Inductor fuses the cross entropy as far as it can. LENGTH is static.
  * autocast: f32 weights, bf16 matrix products, as most people train. bf16: weights, activations and gradients in bf16, f32 masters and
    moments beside them, updated by one fused AdamW over the masters and one foreach copy back. Ours is the second with gradients in
    f32. Without --precision both are run and the faster one counts.
  * The same work as ours: SEQUENCES x LENGTH tokens a micro-batch, TOKENS an optimizer step, gradients summed over micro-batches, global
    norm clipped to 1, AdamW (0.9, 0.95), weight decay 0.1. No dropout, no checkpointing. Nothing is read back within a step.
  * Out of memory: micro-batches are halved until they fit, and the result says so.
  * decode: the transformers implementation with its static cache and compiled forward (mode reduce-overhead, CUDA graphs), greedy, bf16.
"""
import argparse
import configparser
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
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

    def forward(self, x, rope):
        b, t, d = x.shape
        c, hd = self.c, self.hd
        q, k, v = self.qkv(self.n1(x)).split([d, c["kv"] * hd, c["kv"] * hd], -1)
        q, k, v = (z.view(b, t, -1, hd).transpose(1, 2) for z in (q, k, v))
        if rope is not None:
            q, k = turn(q, *rope), turn(k, *rope)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c["kv"] != c["heads"])
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

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        rope = None
        if self.c["gpt2"]:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        else:
            rope = self.cos, self.sin
        for block in self.blocks:
            x = block(x, rope)
        z = self.head(self.norm(x))
        return F.cross_entropy(z.float().view(-1, self.c["vocab"]), targets.view(-1))


class Masters:
    """f32 masters and moments beside bf16 weights; one fused AdamW over the masters."""

    def __init__(self, params):
        self.params = params
        self.master = [p.detach().float().clone() for p in params]
        self.opt = adamw(self.master)

    def step(self):
        for m, p in zip(self.master, self.params):
            m.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(self.master, 1.0, foreach=True)
        self.opt.step()
        torch._foreach_copy_([p.detach() for p in self.params], self.master)
        for m, p in zip(self.master, self.params):
            m.grad = p.grad = None


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


def train_once(c, batch, length, a, precision):
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.device(DEVICE):
        model = Model(c, length)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    call = model if a.compile == "no" else torch.compile(model, mode=a.compile, dynamic=False)
    opt = (Masters if precision == "bf16" else Plain)([p for p in model.parameters()])
    micro = max(1, a.tokens // (batch * length))
    x, y = (torch.randint(0, c["vocab"], (batch, length), device=DEVICE) for _ in range(2))
    times = []
    for i in range(a.steps + a.warmup):
        sync()
        t0 = time.perf_counter()
        for _ in range(micro):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "autocast"):
                loss = call(x, y) / micro
            loss.backward()
        opt.step()
        sync()
        if i >= a.warmup:
            times.append(time.perf_counter() - t0)
    if not torch.isfinite(loss):
        sys.exit("gpu_peer: the loss is not finite")
    med = statistics.median(times)
    return dict(precision=precision, B=batch, micro=micro, median_s=med, best_s=min(times), tokens_per_s=batch * length * micro / med)


def train(c, a):
    best = None
    for precision in [a.precision] if a.precision else ["autocast", "bf16"]:
        batch = a.batch
        while True:
            try:
                r = train_once(c, batch, a.length, a, precision)
                break
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                if batch == 1:
                    r = None
                    break
                batch //= 2
        if r and (best is None or r["tokens_per_s"] > best["tokens_per_s"]):
            best = r
    if best is None:
        sys.exit("gpu_peer: out of memory at one sequence")
    return best


def hf_model(c, positions):
    import transformers as T

    common = dict(vocab_size=c["vocab"], hidden_size=c["hidden"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
                  intermediate_size=c["ffn"], num_key_value_heads=c["kv"], max_position_embeddings=max(positions, 64),
                  tie_word_embeddings=c["tied"], attn_implementation="sdpa")
    if c["gpt2"]:
        cfg = T.GPT2Config(vocab_size=c["vocab"], n_positions=positions, n_embd=c["hidden"], n_layer=c["layers"], n_head=c["heads"],
                           n_inner=c["ffn"], attn_implementation="sdpa")
    elif c["family"].startswith("qwen"):
        cfg = T.Qwen2Config(rms_norm_eps=c["eps"], **common)
    else:
        cfg = T.LlamaConfig(rms_norm_eps=c["eps"], **common)
    with torch.device(DEVICE):
        return T, T.AutoModelForCausalLM.from_config(cfg).to(torch.bfloat16).eval()


@torch.no_grad()
def decode(c, a, prompt=16):
    torch.manual_seed(0)
    T, model = hf_model(c, prompt + a.length)
    forward = model.forward if a.compile == "no" else torch.compile(model.forward, mode="reduce-overhead" if CUDA else "default", fullgraph=True)
    times = []
    for rep in range(a.steps + 1):  # the first compiles
        cache = T.StaticCache(config=model.config, max_batch_size=a.batch, max_cache_len=prompt + a.length, device=DEVICE, dtype=torch.bfloat16)
        ids = torch.randint(0, c["vocab"], (a.batch, prompt), device=DEVICE)
        pos = torch.arange(prompt, device=DEVICE)
        tok = model(ids, past_key_values=cache, cache_position=pos, use_cache=True).logits[:, -1:].argmax(-1)
        pos = pos[-1:] + 1
        sync()
        one = []
        for i in range(a.length - 1):
            t0 = time.perf_counter()
            tok = forward(tok.clone(), past_key_values=cache, cache_position=pos.clone(), use_cache=True).logits[:, -1:].argmax(-1)
            pos = pos + 1
            sync()
            one.append(time.perf_counter() - t0)
        if rep:
            times.append(statistics.median(one))
    med = statistics.median(times)
    return dict(precision="bf16", B=a.batch, median_s=med, best_s=min(times), tokens_per_s=a.batch / med)


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
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    c = config(a.model)
    r = (train if a.what == "train" else decode)(c, a)
    device = torch.cuda.get_device_name(0) if CUDA else "cpu"
    print(json.dumps(dict(peer="torch " + torch.__version__, device=device, what=a.what, model=a.model, T=a.length, compile=a.compile, **r)), flush=True)


main()
