#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of zero.sh: training steps of the Llama-like model on this machine's ranks, over gloo.

    fsdp_peer.py RANKS none|ddp|fsdp2|fsdp3 MICRO STEPS

none: one rank. fsdp2 keeps gathered weights for the backward pass (reshard_after_forward=False), fsdp3 gathers them again. Each
rank has one thread, B=4, T=256 a micro-batch, f32, AdamW. Prints one JSON line: the median seconds of a step but the first.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_peer import SIZES, Model  # noqa: E402

B, T = 4, 256


def work(rank, ranks, mode, micro, steps, port, out):
    torch.set_num_threads(1)
    if mode != "none":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    net = Model("llama")
    if mode == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net)
    elif mode.startswith("fsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (ranks,))
        for block in net.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=mode == "fsdp3")
        fully_shard(net, mesh=mesh, reshard_after_forward=mode == "fsdp3")
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randint(0, SIZES["llama"]["V"], (2, B, T))
    times = []
    for _ in range(steps):
        t0 = time.perf_counter()
        for m in range(micro):
            if mode == "ddp":
                net.require_backward_grad_sync = m + 1 == micro
            net(x, y).div(micro).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        times.append(time.perf_counter() - t0)
    if rank == 0:
        out.put(statistics.median(times[1:]))
    if mode != "none":
        dist.destroy_process_group()


def main():
    ranks, mode, micro, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    ctx = mp.get_context("spawn")
    out = ctx.Queue()
    port = 20000 + os.getpid() % 20000
    procs = [ctx.Process(target=work, args=(r, ranks, mode, micro, steps, port, out)) for r in range(ranks)]
    for p in procs:
        p.start()
    for p in procs:
        p.join()
    if any(p.exitcode for p in procs):
        raise SystemExit("a rank failed")
    print(json.dumps({"mode": mode, "ranks": ranks, "seconds": out.get()}))


if __name__ == "__main__":
    main()
