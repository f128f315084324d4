#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixers alone, ours (mixer_bench) and transformers' fallbacks in turn: causal convolution, decays and scan, forward and backward, f32.

    mixer_peer.py MIXER_BENCH [THREADS [ROUNDS [LIMIT]]]

Of transformers the faster of eager and compiled counts, and for SSD the faster of chunks of 64 and 256; SSD has another peer, its chunk form in einsums.
A way that takes more than LIMIT seconds for its first run (compiling included) is given up; with 0 nothing is compiled and nothing given up. Prints medians by the clock, the ratio peer / ours, and the share
that our scan's products have of our own matrix product's rate in the same run."""
import os
import signal
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

BENCH, THREADS, ROUNDS, LIMIT = (sys.argv[1:] + ["1", "9", "120"][len(sys.argv) - 2:])[:4]
THREADS, ROUNDS, LIMIT = int(THREADS), int(ROUNDS), int(LIMIT)
SHAPES = {"ssd": (24, 1, 128, 64), "delta": (8, 4, 128, 128), "kda": (8, 8, 128, 128)}
TAPS = 4


def ssd(x):
    return mamba2_chunk_scan(x["v"], x["beta"], -x["rate"], x["k"], x["q"], chunk_size=x["chunk"], D=x["skip"])


def delta(x):
    each = x["v"].shape[2] // x["q"].shape[2]
    q, k = (t.repeat_interleave(each, dim=2) for t in (x["q"], x["k"]))
    return torch_chunk_gated_delta_rule(q, k, x["v"], g=x["g"], beta=x["beta"], use_qk_l2norm_in_kernel=True)


def kda(x):
    return chunk_kimi_delta_attention(x["q"], x["k"], x["v"], x["g"], x["beta"], use_qk_l2norm_in_kernel=True)


def ssd_einsum(x):
    """The chunk form of SSD as one would write it: y = (C B^T o L) (dt x) + e^G C S, chunk by chunk."""
    v, g, b, c, dt, n = x["v"], x["g"], x["k"][:, :, 0], x["q"][:, :, 0], x["beta"], 64
    batch, t, h, p = v.shape
    xs = (v * dt[..., None]).reshape(batch, t // n, n, h, p)
    b, c = b.reshape(batch, t // n, n, -1), c.reshape(batch, t // n, n, -1)
    sums = g.reshape(batch, t // n, n, h).cumsum(2)
    gap = sums[:, :, :, None] - sums[:, :, None]
    seen = torch.ones(n, n, dtype=torch.bool).tril()[:, :, None]
    decay = torch.exp(gap.masked_fill(~seen, float("-inf")))
    inside = torch.einsum("zcin,zcjn,zcijh,zcjhp->zcihp", c, b, decay, xs)
    last = sums[:, :, -1]
    made = torch.einsum("zcjn,zcjh,zcjhp->zchnp", b, torch.exp(last[:, :, None] - sums), xs)
    states, s = [], torch.zeros_like(made[:, 0])
    for i in range(t // n):
        states.append(s)
        s = torch.exp(last[:, i])[..., None, None] * s + made[:, i]
    before = torch.einsum("zcin,zcih,zchnp->zcihp", c, torch.exp(sums), torch.stack(states, 1))
    return (inside + before).reshape(batch, t, h, p) + x["skip"][:, None] * v


WAYS = {"ssd": {"chunks of 256": lambda x: ssd({**x, "chunk": 256}), "chunks of 64": lambda x: ssd({**x, "chunk": 64}), "einsum": ssd_einsum},
        "delta": {"chunks of 64": delta}, "kda": {"chunks of 64": kda}}


def value(out):
    return out[0] if isinstance(out, tuple) else out


def mixer(kind, scan, w):
    """From what the projections give to what the norm takes."""
    heads, groups, dk, dv = SHAPES[kind]
    y = F.silu(F.conv1d(w["x"], w["w"], w.get("bias"), padding=TAPS - 1, groups=w["x"].shape[1])[..., :w["x"].shape[2]]).transpose(1, 2)
    q, k, v = y.split([groups * dk, groups * dk, heads * dv], -1)
    steps = F.softplus(w["a"] + w["dt_bias"])
    rate = w["a_log"].exp() if kind != "kda" else w["a_log"].exp()[:, None]
    x = {"q": q.unflatten(-1, (groups, dk)), "k": k.unflatten(-1, (groups, dk)), "v": v.unflatten(-1, (heads, dv)), "g": -rate * steps, "rate": rate, "skip": w["skip"]}
    x["beta"] = steps if kind == "ssd" else torch.sigmoid(w["b"])
    return value(scan(x))


def inputs(kind, n):
    heads, groups, dk, dv = SHAPES[kind]
    c, width = 2 * groups * dk + heads * dv, (heads, dk) if kind == "kda" else (heads,)
    torch.manual_seed(1)
    w = {"x": torch.randn(1, c, n), "w": torch.randn(c, 1, TAPS) / 2, "a": torch.rand(1, n, *width), "dt_bias": torch.rand(*width) - 4,
         "a_log": torch.rand(heads), "b": torch.randn(1, n, heads), "skip": torch.rand(heads)}
    if kind == "ssd":
        w["bias"] = torch.randn(c) / 2
    return {k: t.requires_grad_(True) for k, t in w.items()}, torch.randn(1, n, heads, dv)


class TooLong(Exception):
    pass


def alarm(*_):
    raise TooLong


def turn(run, w, dy):
    at = [time.perf_counter(), time.process_time()]
    out = run(w)
    at += [time.perf_counter(), time.process_time()]
    out.backward(dy)
    at += [time.perf_counter(), time.process_time()]
    for t in w.values():
        t.grad = None
    return [at[i + 2] - at[i] for i in range(4)]


def prepared(kind, n):
    """The ways that end within the limit."""
    w, dy = inputs(kind, n)
    for name, scan in WAYS[kind].items():
        for how in ("eager", "compiled") if LIMIT else ("eager",):
            def eager(w, scan=scan):
                return mixer(kind, scan, w)
            torch._dynamo.reset()
            run = torch.compile(eager) if how == "compiled" else eager
            signal.alarm(LIMIT)
            try:
                turn(run, w, dy)
                turn(run, w, dy)
                signal.alarm(0)
                yield f"{name}, {how}", run, w, dy
            except TooLong:
                print(f"    {kind} {n}: {name}, {how}: more than {LIMIT} s", flush=True)
            except Exception as e:  # what the compiler raises around TooLong, too
                print(f"    {kind} {n}: {name}, {how}: {type(e).__name__}: {str(e).splitlines()[0][:90]}", flush=True)
            finally:
                signal.alarm(0)


def ask(ours, line):
    ours.stdin.write(line + "\n")
    ours.stdin.flush()
    return ours.stdout.readline().split()


def one(ours, kind, n):
    mine, rate, told = [], [], []
    for name, run, w, dy in prepared(kind, n):
        theirs = []
        for _ in range(ROUNDS):
            got = ask(ours, f"{kind} {n}")
            mine.append([float(v) for v in got[:5]])
            product = ask(ours, "product 0")
            rate.append(float(product[4]) / float(product[1]))
            theirs.append(turn(run, w, dy))
        told.append((name, [statistics.median(t[i] for t in theirs) for i in range(4)]))
    if not mine:
        mine = [[float(v) for v in ask(ours, f"{kind} {n}")[:5]] for _ in range(ROUNDS)]
        rate = [float(p[4]) / float(p[1]) for p in (ask(ours, "product 0") for _ in range(ROUNDS))]
    fw, fc, bw, bc, flops = (statistics.median(m[i] for m in mine) for i in range(5))
    share = flops / (fc + bc) / statistics.median(rate)
    print(f"{kind:5s} T {n:4d}: ours forward {1e3 * fw:7.1f} ms, backward {1e3 * bw:7.1f}, of CPU {1e3 * fc:.1f} and {1e3 * bc:.1f}; scan's products {100 * share:.0f} % of a product's rate "
          f"({statistics.median(rate) / 1e9:.0f} GFLOP/s, by CPU time); load {os.getloadavg()[0]:.1f}")
    for name, (f, b, f_cpu, b_cpu) in ((name, (t[0], t[2], t[1], t[3])) for name, t in told):
        print(f"    {name:26s} {1e3 * f:9.1f} {1e3 * b:9.1f} ms, of CPU {1e3 * f_cpu:.1f} and {1e3 * b_cpu:.1f}; peer / ours "
              f"{(f + b) / (fw + bw):.2f}, by CPU time {(f_cpu + b_cpu) / (fc + bc):.2f}", flush=True)


signal.signal(signal.SIGALRM, alarm)
torch.set_num_threads(THREADS)
ours = subprocess.Popen([BENCH, str(THREADS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
isa = ask(ours, "product 0")[5]
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
print(f"{cpu}, {isa}, torch {torch.__version__}, {THREADS} threads, medians of {ROUNDS} by the clock, in turn", flush=True)
for kind in SHAPES:
    for n in (512, 2048):
        one(ours, kind, n)
ours.stdin.close()
ours.wait()
