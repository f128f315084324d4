#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of layouts_full.sh: training steps of GPT-2 124M, alone or on two ranks of this machine over gloo.

    layouts_peer.py one|one-untied|one-thread|one-untied-thread|tensor|pipeline BATCH MICRO STEPS [LAYERS]

BATCH sequences of 256 tokens a step in micro-batches of MICRO, f32, AdamW, gradients clipped. one: one rank with two threads, one-thread: with one; the
others have two ranks with one each. tensor: parallelize_module, matrices by columns and rows, the tied table and the logits by the vocabulary, with loss_parallel.
pipeline: Schedule1F1B, the first rank with LAYERS layers. Its table and head are two tensors, since stages share none, and each rank clips its
own gradients; one-untied and one-untied-thread are that model on one rank. Prints one JSON line: the median seconds of a step but the first.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

D, L, H, V, FF, T = 768, 12, 12, 50257, 3072, 256
VP = 50304  # of table and head: a multiple of the ranks, as their even division wants


class Block(nn.Module):
    """Queries, keys and values are apart, so that columns can be divided by heads."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.n1(x)
        q, k, v = (p(h).view(b, t, -1, D // H).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Part(nn.Module):
    """Layers [begin, end), with the tables before the first and the head behind the last."""

    def __init__(self, begin=0, end=L, tied=True):
        super().__init__()
        self.first, self.last = begin == 0, end == L
        if self.first:
            self.wte, self.wpe = nn.Embedding(VP, D), nn.Embedding(1024, D)
        self.blocks = nn.ModuleList(Block() for _ in range(begin, end))
        if self.last:
            self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, VP, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, x):
        if self.first:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x)) if self.last else x


def loss_of(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def divide(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2,))
    for b in net.blocks:
        parallelize_module(b, mesh, {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "o": RowwiseParallel(),
                                     "up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(net, mesh, {"wte": RowwiseParallel(input_layouts=Replicate()),
                                   "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    net.head.weight = net.wte.weight


def clip(net):
    """By groups: what is divided and what is not have no norm in common."""
    kinds = {}
    for p in net.parameters():
        if p.grad is not None:
            kinds.setdefault(type(p.data), []).append(p)
    for some in kinds.values():
        torch.nn.utils.clip_grad_norm_(some, 1.0)


def accumulate(net, x, y, micro):
    for a, b in zip(x.split(micro), y.split(micro)):
        loss_of(net(a), b).div(len(x) // micro).backward()


def step_of(mode, batch, micro, layers, rank):
    """The model of this rank, and a function that adds up the gradients of a step."""
    x, y = torch.randint(0, V, (2, batch, T))
    if mode != "pipeline":
        net = Part(tied="untied" not in mode)
        if mode != "tensor":
            return net, lambda: accumulate(net, x, y, micro)
        from torch.distributed.tensor.parallel import loss_parallel
        divide(net)

        def divided():
            with loss_parallel():
                accumulate(net, x, y, micro)

        return net, divided
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    net = Part(0, layers, False) if rank == 0 else Part(layers, L, False)
    stage = PipelineStage(net, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, batch // micro, loss_fn=loss_of)
    return net, (lambda: schedule.step(x)) if rank == 0 else (lambda: schedule.step(target=y))


def work(rank, mode, batch, micro, steps, layers, port, out):
    one = mode.startswith("one")
    torch.set_num_threads(2 if mode in ("one", "one-untied") else 1)
    torch.manual_seed(1)
    if not one:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=2)
    net, gradients = step_of(mode, batch, micro, layers, rank)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    times = []
    for _ in range(steps):
        t0 = time.perf_counter()
        gradients()
        clip(net)
        opt.step()
        opt.zero_grad()
        if not one:
            dist.barrier()
        times.append(time.perf_counter() - t0)
    if rank == 0:
        out.put(statistics.median(times[1:]))
    if not one:
        dist.destroy_process_group()


def main():
    mode, batch, micro, steps = sys.argv[1], *map(int, sys.argv[2:5])
    layers = int(sys.argv[5]) if len(sys.argv) > 5 else L // 2
    ctx = mp.get_context("spawn")
    out = ctx.Queue()
    port = 20000 + os.getpid() % 20000
    ranks = range(1 if mode.startswith("one") else 2)
    procs = [ctx.Process(target=work, args=(r, mode, batch, micro, steps, layers, port, out)) for r in ranks]
    for p in procs:
        p.start()
    for p in procs:
        p.join()
    if any(p.exitcode for p in procs):
        raise SystemExit("a rank failed")
    print(json.dumps({"mode": mode, "seconds": out.get()}))


if __name__ == "__main__":
    main()
