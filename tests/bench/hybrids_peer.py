#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps of small models with scans, latent attention and experts, ours (model_bench) and transformers' in turn, f32, and our decoding.

    hybrids_peer.py MODEL_BENCH DIR_OF_INI [THREADS [ROUNDS [B [T [CONTEXT,...]]]]]

A step is forward, backward, clipping and AdamW over B documents of T tokens. Of transformers the faster of eager and grouped experts counts. On a busy machine look at the ratio by CPU time with one thread: waiting threads spin. Decoding is one
sequence in f32, `fast`; its share is of the rate at which memory can be read: bytes / seconds / rate, with
bytes = active weights + keys and values of half of the context + states of scans and convolutions."""
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Mamba2Config, Mamba2ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM)

BENCH, DIR = sys.argv[1:3]
THREADS, ROUNDS, B, T, CONTEXTS = (sys.argv[3:] + ["2", "9", "4", "512", "512,4096"][len(sys.argv) - 3:])[:5]
THREADS, ROUNDS, B, T = int(THREADS), int(ROUNDS), int(B), int(T)
COMMON = dict(vocab_size=16000, hidden_size=384, num_hidden_layers=8, num_attention_heads=6, intermediate_size=1024, moe_intermediate_size=128,
              num_experts_per_tok=4, tie_word_embeddings=False, max_position_embeddings=8192)
MODELS = {
    "next-60m": (Qwen3NextForCausalLM, lambda: Qwen3NextConfig(
        **COMMON, num_key_value_heads=2, head_dim=64, linear_num_value_heads=8, linear_num_key_heads=4, linear_key_head_dim=64,
        linear_value_head_dim=64, num_experts=32, shared_expert_intermediate_size=128)),
    "deepseek-60m": (DeepseekV3ForCausalLM, lambda: DeepseekV3Config(
        **COMMON, num_key_value_heads=6, kv_lora_rank=128, q_lora_rank=192, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64,
        n_routed_experts=32, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=2.5)),
    "mamba2-60m": (Mamba2ForCausalLM, lambda: Mamba2Config(
        vocab_size=32000, hidden_size=512, num_hidden_layers=24, num_heads=16, head_dim=64, n_groups=1, state_size=128, expand=2,
        tie_word_embeddings=True)),
}


class Peer:
    def __init__(self, name, experts):
        torch.manual_seed(0)
        kind, config = MODELS[name]
        c = config()
        c.use_cache = False
        if experts:
            c._experts_implementation = experts
        self.model = kind(c).float()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.x = torch.randint(0, c.vocab_size, (B, T))

    def step(self):
        t0, c0 = time.perf_counter(), time.process_time()
        self.model(input_ids=self.x, labels=self.x).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        return time.perf_counter() - t0, time.process_time() - c0


def ini(name):
    return os.path.join(DIR, name + ".ini")


def train(name):
    peers = {}
    for experts in ("eager", "grouped_mm") if name != "mamba2-60m" else (None,):
        try:
            p = Peer(name, experts)
            p.step()
            p.step()
            peers[f"experts {experts}" if experts else "eager"] = p
        except Exception as e:
            print(f"    {name}: {experts}: {type(e).__name__}: {str(e).splitlines()[0][:90]}")
    ours = subprocess.Popen([BENCH, "train", ini(name), str(B), str(T), "f32", "fast", str(ROUNDS), str(THREADS)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env={**os.environ, "LF_BENCH_TURNS": "1", "OMP_WAIT_POLICY": "passive"})
    mine, theirs = [], {how: [] for how in peers}
    for _ in range(ROUNDS):
        ours.stdin.write("\n")
        ours.stdin.flush()
        mine.append([float(v) for v in ours.stdout.readline().split()])
        for how, p in peers.items():
            theirs[how].append(p.step())
    last = json.loads(ours.stdout.readline())
    ours.wait()
    med, cpu = (statistics.median(m[i] for m in mine) for i in (0, 1))
    size = {how: sum(p.numel() for p in peer.model.parameters()) for how, peer in peers.items()}
    print(f"train {name} ({max(size.values(), default=0) / 1e6:.1f}M) B={B} T={T}: ours {med:.3f} s, {cpu:.3f} of CPU ({100 * last['share']:.0f} % of the FMA peak); "
          f"load {os.getloadavg()[0]:.1f}")
    for how, t in theirs.items():
        by, by_cpu = (statistics.median(m[i] for m in t) for i in (0, 1))
        print(f"    {how:20s} {by:8.3f} s, {by_cpu:.3f} of CPU, peer / ours {by / med:.2f}, by CPU time {by_cpu / cpu:.2f}", flush=True)


def decode(name, context):
    out = subprocess.run([BENCH, "decode", ini(name), "1", str(context - 16), "f32", "fast", "3", str(THREADS)], stdout=subprocess.PIPE, text=True,
                         check=True, env={k: v for k, v in os.environ.items() if k != "LF_BENCH_TURNS"}).stdout
    r = json.loads(out)
    print(f"decode {name} B=1 to {context}: {1e3 * r['median_s']:.2f} ms, {100 * r['share']:.0f} % of {r['ceiling'] / 1e9:.1f} GB/s: "
          f"{r['weights'] / 1e6:.1f} + {r['cache'] / 1e6:.1f} + {r['state'] / 1e6:.1f} MB (weights + cache + state); load {os.getloadavg()[0]:.1f}", flush=True)


torch.set_num_threads(THREADS)
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
print(f"{cpu}, torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), {THREADS} threads, medians of {ROUNDS} by the clock, in turn", flush=True)
for model in MODELS:
    train(model)
for model in MODELS:
    for context in CONTEXTS.split(","):
        decode(model, int(context))
