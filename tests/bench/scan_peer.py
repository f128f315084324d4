#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kernels/bench/scan_bench times, by the fallbacks in PyTorch of transformers (5.23): the same shapes, f32, one document.

    scan_peer.py [THREADS [LENGTH [ROUNDS]]]

Prints medians of CPU milliseconds: forward alone without gradients, and forward with backward."""
import statistics
import sys
import time

import torch
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

THREADS, LENGTH, ROUNDS = (int(v) for v in (sys.argv[1:] + ["1", "2048", "5"][len(sys.argv) - 1:]))


def ssd(x):
    return mamba2_chunk_scan(x["v"], x["beta"], -torch.ones(x["v"].shape[2]), x["k"], x["q"], chunk_size=x["chunk"])


def delta(x):
    each = x["v"].shape[2] // x["q"].shape[2]
    q, k = (t.repeat_interleave(each, dim=2) for t in (x["q"], x["k"]))
    return torch_chunk_gated_delta_rule(q, k, x["v"], g=x["g"], beta=x["beta"], use_qk_l2norm_in_kernel=True)


def kda(x):
    return chunk_kimi_delta_attention(x["q"], x["k"], x["v"], x["g"], x["beta"], use_qk_l2norm_in_kernel=True)


KINDS = [
    ("ssd, mamba2-130m, chunks of 256", ssd, 24, 1, 128, 64, False, 256),
    ("ssd, mamba2-130m, chunks of 64", ssd, 24, 1, 128, 64, False, 64),
    ("gated delta, qwen3-next", delta, 8, 4, 128, 128, False, 64),
    ("kda, kimi-linear", kda, 8, 8, 128, 128, True, 64),
]


def value(out):
    return out[0] if isinstance(out, tuple) else out


def median(f):
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return 1e3 * statistics.median(times)


def one(name, f, heads, groups, dk, dv, channel, chunk):
    torch.manual_seed(1)
    x = {"q": torch.randn(1, LENGTH, groups, dk), "k": torch.randn(1, LENGTH, groups, dk), "v": torch.randn(1, LENGTH, heads, dv),
         "g": -0.2 * torch.rand(1, LENGTH, heads, *([dk] if channel else [])), "beta": 0.1 + 0.8 * torch.rand(1, LENGTH, heads)}
    with torch.no_grad():
        forward = median(lambda: f({**x, "chunk": chunk}))
    for t in x.values():
        t.requires_grad_(True)

    def both():
        value(f({**x, "chunk": chunk})).sum().backward()
        for t in x.values():
            t.grad = None

    print(f"{name:34s} forward {forward:9.1f} ms, forward and backward {median(both):9.1f} ms", flush=True)


torch.set_num_threads(THREADS)
print(f"torch {torch.__version__}, {THREADS} threads, {LENGTH} rows, medians of {ROUNDS}")
for kind in KINDS:
    one(*kind)
