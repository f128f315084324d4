#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of `make bench` and libai.sh: a training step or greedy decode of the models of the CPU tables.

    torch_peer.py train gpt2|llama B T f32|bf16 STEPS THREADS eager|compile
    torch_peer.py train bert|t5|vit B T f32|bf16 STEPS THREADS eager|compile        models of transformers
    torch_peer.py decode gpt2|llama B NEW f32|bf16 STEPS THREADS eager|compile

Prints one JSON line: median seconds of a step, tokens/s. bf16 training is autocast with f32 master weights, as PyTorch users
do it; bf16 decode has bf16 weights. Attention is scaled_dot_product_attention, the optimizer is fused AdamW where PyTorch has
it for this device. Run it twice for the allocator question: plain, and with MALLOC_MMAP_THRESHOLD_=4294967296
MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456; the better one counts.

With LF_BENCH_TURNS in the environment each timed step waits for a line of the input and answers with its seconds by the clock and
of CPU (a pass of decode: its median step), so that turns.py can take turns. With ATEN_CPU_CAPABILITY=avx2 compiled code has
vectors of 256 bits, too.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "gpt2": dict(d=768, L=12, H=12, V=50257, ff=3072, ctx=1024),
    "llama": dict(d=512, L=8, H=8, V=32000, ff=1376, ctx=2048),
}
PROMPT = 16
TURNS = "LF_BENCH_TURNS" in os.environ


def turn():
    if TURNS and not sys.stdin.readline():
        sys.exit(0)


def took(seconds, cpu):
    if TURNS:
        print(f"{seconds:.6f} {cpu:.6f}", flush=True)


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, c, llama):
        super().__init__()
        d, ff = c["d"], c["ff"]
        self.H, self.llama = c["H"], llama
        self.n1, self.n2 = (RMSNorm(d), RMSNorm(d)) if llama else (nn.LayerNorm(d), nn.LayerNorm(d))
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=not llama), nn.Linear(d, d, bias=not llama)
        self.up, self.down = nn.Linear(d, 2 * ff if llama else ff, bias=not llama), nn.Linear(ff, d, bias=not llama)

    def forward(self, x, rope, cache, pos):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.H, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).split(d, -1))
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        if cache is not None:
            cache[0][:, :, pos:pos + t], cache[1][:, :, pos:pos + t] = k, v
            k, v = cache[0][:, :, :pos + t], cache[1][:, :, :pos + t]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        h = self.up(self.n2(x))
        if self.llama:
            gate, up = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(h))


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        c = SIZES[kind]
        self.c, self.llama = c, kind == "llama"
        self.wte = nn.Embedding(c["V"], c["d"])
        self.blocks = nn.ModuleList(Block(c, self.llama) for _ in range(c["L"]))
        self.norm = RMSNorm(c["d"]) if self.llama else nn.LayerNorm(c["d"])
        self.head = nn.Linear(c["d"], c["V"], bias=False)
        hd = c["d"] // c["H"]
        if self.llama:
            angle = torch.outer(torch.arange(c["ctx"]).float(), 1e4 ** (-torch.arange(0, hd, 2).float() / hd))
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
        else:
            self.wpe = nn.Embedding(c["ctx"], c["d"])
            self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, idx, target=None, caches=None, pos=0):
        t = idx.shape[1]
        x, rope = self.wte(idx), None
        if self.llama:
            rope = self.cos[pos:pos + t].to(x.dtype), self.sin[pos:pos + t].to(x.dtype)
        else:
            x = x + self.wpe(torch.arange(pos, pos + t))
        for i, block in enumerate(self.blocks):
            x = block(x, rope, caches[i] if caches else None, pos)
        x = self.norm(x)
        if target is None:
            return self.head(x[:, -1])
        return F.cross_entropy(self.head(x).float().view(-1, self.c["V"]), target.view(-1))


def ours_written(kind):
    """One of the two models above, and the loss of a step of it."""
    def loss(call, B, T):
        shape, V = (B, int(T)), SIZES[kind]["V"]
        x, y = torch.randint(0, V, shape), torch.randint(0, V, shape)
        return (lambda: call(x, y)), B * int(T)
    return Model(kind), loss


def of_transformers(kind):
    """A model of transformers without dropout, its attention sdpa, and the loss of a step. T is that of model_bench."""
    import transformers as hf
    if kind == "bert":
        config = hf.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        make = hf.BertForMaskedLM
    elif kind == "t5":
        config = hf.T5Config(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, dropout_rate=0, use_cache=False,
                             decoder_start_token_id=0)
        make = hf.T5ForConditionalGeneration
    else:
        config = hf.ViTConfig(num_labels=1000, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        make = hf.ViTForImageClassification
    try:
        model = make._from_config(config, attn_implementation="sdpa")
    except ValueError:  # this version of transformers has none for it
        model = make._from_config(config)
        print(f"{kind}: no sdpa", file=sys.stderr)
    model.train()

    def loss(call, B, T):
        if kind == "vit":
            side = config.patch_size * round(int(T) ** 0.5)
            inputs = dict(pixel_values=2 * torch.rand(B, 3, side, side) - 1, labels=torch.arange(B))
            return (lambda: call(**inputs).loss), B * int(T)
        source, target = ([int(n) for n in T.split("+")] * 2)[:2]
        x, y = (torch.randint(1, config.vocab_size, (B, n)) for n in (source, target))
        if kind == "bert":  # as many tokens as BERT hides
            y[torch.rand(B, target) >= 0.15] = -100
        return (lambda: call(input_ids=x, labels=y).loss), B * target
    return model, loss


def train(model, call, make_loss, B, T, bf16, steps):
    try:
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    except RuntimeError:
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    forward, units = make_loss(call, B, T)
    times = []
    for i in range(steps + 2):
        if i >= 2:
            turn()
        t0, c0 = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if i >= 2:
            times.append(time.perf_counter() - t0)
            took(times[-1], time.process_time() - c0)
    return times, units


@torch.no_grad()
def decode(model, call, B, new, bf16, steps):
    c, dt = model.c, torch.bfloat16 if bf16 else torch.float32
    model.eval().to(dt)
    times = []
    for rep in range(steps + 1):
        if rep:
            turn()
        c0 = time.process_time()
        shape = (B, c["H"], PROMPT + new, c["d"] // c["H"])
        caches = [(torch.zeros(shape, dtype=dt), torch.zeros(shape, dtype=dt)) for _ in range(c["L"])]
        tok = call(torch.randint(0, c["V"], (B, PROMPT)), caches=caches).argmax(-1, keepdim=True)
        one = []
        for pos in range(PROMPT, PROMPT + new - 1):
            t0 = time.perf_counter()
            tok = call(tok, caches=caches, pos=pos).argmax(-1, keepdim=True)
            one.append(time.perf_counter() - t0)
        if rep:
            times.append(statistics.median(one))
            took(times[-1], time.process_time() - c0)
    return times, B


def main():
    what, kind, B, T, prec, steps, threads, how = sys.argv[1:9]
    torch.set_num_threads(int(threads))
    if how == "compile" and os.environ.get("ATEN_CPU_CAPABILITY") == "avx2":
        import torch._inductor.config as inductor
        inductor.cpp.simdlen = 256
    torch.manual_seed(0)
    model, make_loss = ours_written(kind) if kind in SIZES else of_transformers(kind)
    call = torch.compile(model, dynamic=what == "decode") if how == "compile" else model
    if what == "train":
        times, tokens = train(model, call, make_loss, int(B), T, prec == "bf16", int(steps))
    else:
        times, tokens = decode(model, call, int(B), int(T), prec == "bf16", int(steps))
    med = statistics.median(times)
    print(json.dumps(dict(peer="torch " + torch.__version__, how=how, what=what, model=kind, B=int(B), T=T, precision=prec,
                          median_s=med, best_s=min(times), tokens_per_s=tokens / med)), flush=True)


if __name__ == "__main__":
    main()
