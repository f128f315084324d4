#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our encoder and the tokenizers library on the same documents, taking turns in one run.

tokenize_peer.py PROGRAM TEXT[,TEXT ..] [tokenizer.json ..]: PROGRAM is build/tests/bench/tokenize_bench. Without a tokenizer.json,
one of 32,768 tokens (Llama-3 pattern) is trained with the library on the first 8 MB of the first TEXT. Prints medians of the CPU time of
one thread and of two (the sum over threads; wall time too, which other load disturbs), and the ratio to encode_batch_fast, the
library's fastest way. LF_BENCH_ROUNDS (default 7).
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
          r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
DOC = 4096


def train(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text[:8000000].splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=32768, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def cut(raw):
    out, at = [], 0
    while at < len(raw):
        end = raw.find(b"\n", at + DOC) + 1 if len(raw) - at > DOC else 0
        end = end or len(raw)
        out.append(raw[at:end].decode("utf-8", errors="replace"))
        at = end
    return out


def ask(p, threads):
    p.stdin.write("%d\n" % threads)
    p.stdin.flush()
    return json.loads(p.stdout.readline())


def row(program, path, tok):
    raw = open(path, "rb").read()
    docs, rounds = cut(raw), int(os.environ.get("LF_BENCH_ROUNDS", "7"))
    js = open(tok, encoding="utf-8").read()
    cpu, one, two = [], [], []
    with subprocess.Popen([program, tok, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        for _ in range(rounds):
            t = Tokenizer.from_str(js)  # a fresh cache, as ours; loading is not timed
            one.append(ask(p, 1))
            c0 = time.process_time()
            n = sum(len(e) for e in t.encode_batch_fast(docs, add_special_tokens=False))
            cpu.append(time.process_time() - c0)
            two.append(ask(p, 2))
            if n != one[0]["tokens"]:
                sys.exit("token counts differ: %d and %d" % (one[0]["tokens"], n))
        p.stdin.close()
    mb = len(raw) / 1e6
    ours, peer, both = (statistics.median(x) for x in ([o["cpu"] for o in one], cpu, [o["cpu"] for o in two]))
    wall = statistics.median(o["wall"] for o in two)
    print("%-16s %-14s ours %7.1f MB/s  tokenizers %6.1f MB/s  ratio %5.1f   two threads: CPU time x %.2f, %6.1f MB/s of wall time" % (
        os.path.basename(tok), os.path.basename(path), mb / ours, mb / peer, peer / ours, both / ours, mb / wall), flush=True)


def main():
    program, paths, toks = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
    with tempfile.TemporaryDirectory() as d:
        if not toks:
            toks = [d + "/tokenizer.json"]
            train(open(paths[0], "rb").read().decode("utf-8", errors="replace")).save(toks[0])
        for tok in toks:
            for path in paths:
                row(program, path, tok)


if __name__ == "__main__":
    main()
