#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-post`: fine-tuning and GRPO, ours and TRL's, taking turns in one run on the same model and data.

    post_bench.py BUILD [WORD ..]        lines that have all WORDs: sft, grpo, f32, bf16, small, large

Each turn is a fresh process of ours (a few optimizer steps; the times between its records count, not its start) and the same number of steps of
a TRL process that waits in between (post_peer.py). Printed are medians over the turns of processed tokens per second, of wall and of CPU
time, and the ratio ours / TRL; of TRL's ways (eager, then compiled for what time is left) the better counts. LF_BENCH_THREADS (2), LF_BENCH_TURNS (3), LF_BENCH_LIMIT
(seconds after which no new turn begins, 320; what is left out is named), LF_BENCH_DIR (a temporary directory).
"""
import json
import os
import queue
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "post_peer.py")
TUNED = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592", "MALLOC_TOP_PAD_": "268435456"}
THREADS = os.environ.get("LF_BENCH_THREADS", "2")
TURNS = int(os.environ.get("LF_BENCH_TURNS", "3"))
END = time.monotonic() + float(os.environ.get("LF_BENCH_LIMIT", "320"))
# Stage, precision, shape of GRPO, steps of a turn. What both sides do besides stands here and in post_peer.py.
ROWS = [("sft", "f32", "", 4), ("sft", "bf16", "", 4), ("grpo", "f32", "small", 1), ("grpo", "f32", "large", 1)]
TARGET = {"sft": 1.5, "grpo": 4.0}


def frames(path):
    """Records of a metrics file: length, checksum, JSON."""
    with open(path, "rb") as f:
        raw = f.read()
    at = 0
    while at + 8 <= len(raw):
        n = struct.unpack_from("<I", raw, at)[0]
        yield json.loads(raw[at + 8:at + 8 + n])
        at += 8 + n


class Ours:
    def __init__(self, build, work):
        self.build, self.work, self.base = build, work, {}
        self.stage("convert", "--from", work + "/model", "--verify", "none", "--out", work + "/in", bad=(0, 1))
        self.tok = work + "/in/tokenizer"
        self.stage("tokenize", "--shape", "prompt_completion", "--tokenizer", self.tok, "--out", work + "/rows", work + "/sft.jsonl")
        self.stage("tokenize", "--shape", "prompt", "--tokenizer", self.tok, "--out", work + "/prompts", work + "/prompts.jsonl")

    def stage(self, kind, *args, bad=(0,)):
        """CPU seconds of a stage."""
        path = self.build + "/stages/lf-" + kind
        if not os.path.exists(path):
            path = self.build + "/libexec/loong-flow/lf-" + kind
        with tempfile.TemporaryFile() as err:
            p = subprocess.Popen([path, *args], stdout=err, stderr=err)
            _, status, use = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            if p.returncode not in bad:
                err.seek(0)
                sys.exit("lf-%s: %s" % (kind, err.read().decode(errors="replace")[-800:]))
        return use.ru_utime + use.ru_stime

    def train(self, what, prec, shape, steps):
        with tempfile.TemporaryDirectory(dir=self.work) as d:
            m = d + "/metrics"
            args = ["--init-from", self.work + "/in/checkpoint", "--lr", "1e-4", "--threads", THREADS, "--out", d + "/out",
                    "--metrics", m, "--precision", prec, "--schedule", "constant", "--weight-decay", "0.1", "--beta2", "0.95"]
            if what == "sft":
                cpu = self.stage("sft", "--data", self.work + "/rows/shards", "--seq-length", "512", "--batch", "4", "--micro-batch", "4", "--steps", str(steps), *args)
                return cpu, list(frames(m)), None
            prompts, new, micro = ("8", "64", "1024") if shape == "large" else ("1", "256", "2304")
            n = str(int(prompts) * 8)
            cpu = self.stage("ppo", "--algorithm", "grpo", "--data", self.work + "/prompts/shards", "--tokenizer", self.tok, "--reward",
                             "format:(?s) .*", "--round-prompts", prompts, "--samples", "8", "--max-tokens", new, "--max-prompt", "64",
                             "--round-epochs", "1", "--kl-coef", "0", "--slots", n, "--micro-tokens", micro, "--rounds", str(steps), *args)
            return cpu, list(frames(m)), float(n)

    def turn(self, what, prec, shape, steps):
        """As the peer's answer: the first step is a warm-up, so one more is taken; its CPU time and the stage's own are those of a run of one step."""
        key = (what, prec, shape)
        if key not in self.base:
            self.base[key] = min(self.train(what, prec, shape, 1)[0] for _ in range(2))
        cpu, r, n = self.train(what, prec, shape, steps + 1)
        tokens = r[-1]["tokens"] - r[0]["tokens"]
        if n:
            tokens = sum(x["completion_length"] for x in r[1:]) * n
        return {"wall": r[-1]["t"] - r[0]["t"], "cpu": cpu - self.base[key], "tokens": tokens}


class Peer:
    def __init__(self, work, what, prec, how, settings):
        env = dict(os.environ, OMP_NUM_THREADS=THREADS, **TUNED)
        self.how, self.log = how, tempfile.TemporaryFile()
        self.p = subprocess.Popen([sys.executable, PEER, what, work, prec, how, THREADS, *settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self.log, text=True, env=env, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def turn(self, steps, until):
        """None: no answer by then."""
        self.p.stdin.write("%d\n" % steps)
        self.p.stdin.flush()
        try:
            line = self.lines.get(timeout=max(1, until - time.monotonic()))
        except queue.Empty:
            return None
        if line:
            return json.loads(line)
        self.log.seek(0)
        sys.exit("post_peer.py, %s: %s" % (self.how, self.log.read().decode(errors="replace")[-1500:]))

    def close(self):
        os.killpg(self.p.pid, signal.SIGKILL)  # with what compiles for it
        self.p.wait()


def rate(samples, key):
    return statistics.median(s["tokens"] / s[key] for s in samples)


def turns(ours, work, row, how, got, until):
    """Ours and one way of TRL's by turns; their samples, or why there are none."""
    what, prec, shape, steps = row
    theirs, peer = [], Peer(work, what, prec, how, ["shape=" + shape] if shape else [])
    try:
        if not peer.turn(2, until):  # warm: imports, compilation, memory
            return "not ready in time"
        while len(theirs) < TURNS:
            got.append(ours.turn(what, prec, shape, steps))
            sample = peer.turn(steps, max(until, time.monotonic() + 60))
            if not sample:
                break
            theirs.append(sample)
            if time.monotonic() > until:
                break
        return theirs or "too slow"
    finally:
        peer.close()


def show(row, got, peers):
    what, prec, shape, _ = row
    good = [how for how in peers if isinstance(peers[how], list)]
    if not good:
        print("%s %s %s: %s" % (what, prec, shape, peers or "no time left"))
        return
    best = max(good, key=lambda how: rate(peers[how], "wall"))
    wall, cpu = (rate(got, k) / rate(peers[best], k) for k in ("wall", "cpu"))
    rest = ["%s %s" % (how, "%.0f tok/s" % rate(v, "wall") if isinstance(v, list) else v) for how, v in peers.items() if how != best]
    print("%-4s %-4s %-5s ours %7.0f tok/s  TRL %7.0f tok/s (%s)  ratio %.2f (target %.1f)   by CPU time: ours %.0f, TRL %.0f, ratio %.2f   %s" % (
        what, prec, shape, rate(got, "wall"), rate(peers[best], "wall"), best, wall, TARGET[what], rate(got, "cpu"), rate(peers[best], "cpu"), cpu,
        ", ".join(rest) or "compiled: not tried for want of time"), flush=True)


def main():
    build, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory(dir=os.environ.get("LF_BENCH_DIR")) as work:
        subprocess.run([sys.executable, PEER, "make", work], check=True, stderr=subprocess.DEVNULL)
        ours = Ours(build, work)
        rows = [r for r in ROWS if all(w in r[:3] for w in words)]
        got, peers = [[] for _ in rows], [{} for _ in rows]
        for how in ("eager", "compile"):
            for i, row in enumerate(rows):
                left = END - time.monotonic()
                if left > 15:  # a share of what is left, so that every line has its first way
                    until = time.monotonic() + left / (len(rows) - i if how == "compile" else 2 * len(rows) - 2 * i)
                    peers[i][how] = turns(ours, work, row, how, got[i], max(until, time.monotonic() + min(left, 30)))
        for i, row in enumerate(rows):
            show(row, got[i], peers[i])


if len(sys.argv) < 2:
    sys.exit(__doc__)
main()
