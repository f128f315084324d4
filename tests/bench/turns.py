#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-turns`: the rows of `make bench`, ours and PyTorch's best taking turns step by step.

    turns.py MODEL_BENCH DIR_OF_MODELS [WORD...]        words choose rows: "train", "decode", "gpt2", "llama", "f32", "bf16", "B1"

"libai" chooses the rows of libai.sh in place of those: encoders of texts and pictures and an encoder-decoder ("bert", "t5", "vit").

Of PyTorch four ways are tried for three steps each (eager and compiled, plain and tuned malloc); the fastest takes turns with ours for
LF_BENCH_ROUNDS (9) rounds. The ratio is the median of the rounds' ratios, its spread the smallest and the largest. LF_BENCH_THREADS is 2.
LF_BENCH_ISA=avx2 limits both sides: LF_ISA, ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS and the vectors of compiled code.
LF_BENCH_PINNED=N pins a competitor that computes to each of the first N processors, LF_BENCH_BUSY=N starts N that are not pinned, for both sides;
then ours is also measured without them, in turn."""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

BENCH, DIR, *WORDS = sys.argv[1:]
ROUNDS, THREADS = (int(os.environ.get("LF_BENCH_" + k, v)) for k, v in (("ROUNDS", 9), ("THREADS", 2)))
ISA = os.environ.get("LF_BENCH_ISA")
BESIDE = any(int(os.environ.get(k, 0)) for k in ("LF_BENCH_PINNED", "LF_BENCH_BUSY"))
HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "torch_peer.py")
TUNED = dict(MALLOC_MMAP_THRESHOLD_="4294967296", MALLOC_TRIM_THRESHOLD_="8589934592", MALLOC_TOP_PAD_="268435456")
LIMITED = dict(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2") if ISA == "avx2" else {}
MODELS = {"gpt2": ("gpt2-124m.ini", 4, 256), "llama": ("llama-58m.ini", 4, 512)}
# T as model_bench has it: tokens, tokens of source and target, patches. T5's targets of 512 tokens of source are 114.
LIBAI = {"bert": ("bert-base.ini", 8, 128), "t5": ("t5-small.ini", 4, "512+114"), "vit": (os.path.join(HERE, "vit-base.ini"), 8, 196)}
if "libai" in WORDS:
    WORDS, MODELS = [w for w in WORDS if w != "libai"], LIBAI
ROWS = [("train", kind, *MODELS[kind][1:], prec) for prec in ("f32", "bf16") for kind in MODELS]
if MODELS is not LIBAI:
    ROWS += [("decode", kind, B, 64, prec) for prec in ("f32", "bf16") for kind in MODELS for B in (1, 8)]


class Side:
    """A program that does a step for each line."""

    def __init__(self, command, env):
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env={**os.environ, **env, "LF_BENCH_TURNS": "1", "OMP_NUM_THREADS": str(THREADS)})

    def step(self):
        time.sleep(0.1)  # threads of the other side may spin for a while
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return [float(v) for v in self.program.stdout.readline().split()]

    def end(self):
        self.program.stdin.close()
        last = self.program.stdout.read()
        self.program.wait()
        return last


def peers(row):
    for how in ("eager", "compile"):
        for malloc, env in (("plain", {}), ("tuned", TUNED)):
            yield f"{how}, malloc {malloc}", [sys.executable, PEER, *map(str, row), str(ROUNDS + 3), str(THREADS), how], {**env, **LIMITED}


def best_peer(row):
    best = None
    for name, command, env in peers(row):
        side = Side(command, env)
        try:
            took = statistics.median(side.step()[0] for _ in range(3))
        except (IndexError, OSError):
            print(f"    torch {name}: failed", flush=True)
            side.program.kill()
            continue
        print(f"    torch {name:22s} {took:9.4f} s", flush=True)
        if best is None or took < best[0]:
            if best:
                best[2].end()
            best = took, name, side
        else:
            side.end()
    return best


class Competitors:
    """Programs that compute between `on` and `off`."""

    def __init__(self):
        spin = [sys.executable, "-c", "while True: pass"]
        self.all = [subprocess.Popen(["taskset", "-c", str(i)] + spin) for i in range(int(os.environ.get("LF_BENCH_PINNED", 0)))]
        self.all += [subprocess.Popen(spin) for _ in range(int(os.environ.get("LF_BENCH_BUSY", 0)))]
        self.tell(signal.SIGSTOP)

    def tell(self, what):
        for p in self.all:
            p.send_signal(what)

    def beside(self, side):
        self.tell(signal.SIGCONT)
        took = side.step()
        self.tell(signal.SIGSTOP)
        return took


def measure(row):
    what, kind, B, T, prec = row
    best = best_peer(row)
    # Threads that measured the peak do not spin beside those of the kernels.
    ours = Side([BENCH, what, os.path.join(DIR, MODELS[kind][0]), str(B), str(T), prec, "fast", str(2 * ROUNDS if BESIDE else ROUNDS), str(THREADS)],
                dict(OMP_WAIT_POLICY="passive", **({"LF_ISA": ISA} if ISA else {})))
    others = Competitors()
    try:
        mine, theirs, alone = zip(*((others.beside(ours), others.beside(best[2]) if best else [0, 0], ours.step() if others.all else [0, 0])
                                    for _ in range(ROUNDS)))
    finally:
        others.tell(signal.SIGKILL)
    last = json.loads(ours.end())
    if ISA and last["kernels"] != ISA:
        sys.exit(f"this build has no kernels for {ISA} and would use those for {last['kernels']}: was it configured with --enable-native?")
    if best:
        best[2].end()
    med, cpu, peer = statistics.median(m[0] for m in mine), statistics.median(m[1] for m in mine), statistics.median(t[0] for t in theirs)
    ratios = sorted(t[0] / m[0] for m, t in zip(mine, theirs))
    unit = f"{last['ceiling'] / 1e9:.0f} " + ("GFLOP/s FMA peak" if what == "train" else "GB/s read rate")
    share = f"{100 * last['share']:.0f} % of {unit}; " if last["share"] else ""
    print(f"{what:6s} {kind:5s} B={B:<2d} T={T!s:<7s} {prec:4s} ours ({last['kernels']}) {med:8.4f} s ({cpu:.2f} of CPU), {share}peer {peer:.4f} s "
          f"({best[1] if best else 'none'}); peer/ours {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); load {os.getloadavg()[0]:.1f}", flush=True)
    if others.all:
        print(f"       ours beside {len(others.all)} competitors by ours without them: {statistics.median(m[0] / a[0] for m, a in zip(mine, alone)):.2f}", flush=True)


def kernels():
    """What each side says that it uses."""
    verbose = {**os.environ, **LIMITED, "MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    code = ("import torch as t; print('torch', t.__version__, t.backends.cpu.get_cpu_capability()); a = t.ones(512, 512); a @ a; "
            "b = a.bfloat16(); t.nn.functional.linear(b, b)")
    out = subprocess.run([sys.executable, "-c", code], env=verbose, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    for line in out.splitlines():
        if line.startswith("torch ") or "Architecture" in line or ",cpu,isa:" in line or ",exec,cpu," in line:
            print("    " + line[:180])


cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
print(f"{cpu}, {THREADS} threads, {'limited to ' + ISA if ISA else 'native'}, medians of {ROUNDS} rounds in turn, load {os.getloadavg()[0]:.1f}", flush=True)
kernels()
for r in ROWS:
    if set(WORDS) <= {r[0], r[1], f"B{r[2]}", r[4]}:
        measure(r)
