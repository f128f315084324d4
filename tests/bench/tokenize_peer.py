#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our encoder and the tokenizers library on the same file, one thread each, in one run.

tokenize_peer.py PROGRAM FILE [tokenizer.json]: PROGRAM is build/tests/bench/tokenize_bench. Without a tokenizer.json, one of
32768 tokens (Llama-3 pattern) is trained with the library on the first 8 MB of FILE. Prints medians and the ratio.
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


def train(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text[:8000000].splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=32768, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def timed(f, n=5):
    out, sec = None, []
    for _ in range(n):
        t0 = time.perf_counter()
        out = f()
        sec.append(time.perf_counter() - t0)
    return out, statistics.median(sec)


def main():
    program, path = sys.argv[1:3]
    raw = open(path, "rb").read()
    text = raw.decode("utf-8", errors="replace")
    with tempfile.TemporaryDirectory() as d:
        tok = sys.argv[3] if len(sys.argv) > 3 else d + "/tokenizer.json"
        if len(sys.argv) <= 3:
            train(text).save(tok)
        ours = [json.loads(x) for x in subprocess.run([program, tok, path], check=True, stdout=subprocess.PIPE,
                                                       text=True).stdout.splitlines()]
        t = Tokenizer.from_file(tok)
    lines = [x for x in text.split("\n")]
    lines = [x + "\n" for x in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    n, whole = timed(lambda: len(t.encode(text, add_special_tokens=False)))
    m, batch = timed(lambda: sum(len(e) for e in t.encode_batch(lines, add_special_tokens=False)))
    _, fast = timed(lambda: sum(len(e) for e in t.encode_batch_fast(lines, add_special_tokens=False)))
    for name, got, want, sec, o in (("whole text, encode", n, n, whole, ours[0]), ("lines, encode_batch", m, m, batch, ours[1]),
                                    ("lines, encode_batch_fast", m, m, fast, ours[1])):
        if o["tokens"] != want:
            sys.exit("token counts differ: %d and %d" % (o["tokens"], got))
        print("%-26s ours %8.1f MB/s   tokenizers %8.1f MB/s   ratio %5.1f" % (
            name, o["mb_per_s"], len(raw) / 1e6 / sec, sec / o["seconds"]))


if __name__ == "__main__":
    main()
