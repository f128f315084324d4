#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tokenizers and sentencepiece libraries encode with vocabularies that we trained: train_sp.json beside this
script. With --quality TEXT VOCAB prints tokens a byte against the libraries' own trainer on that text instead (every
tenth line is measured, the others are trained on).

usage: make_train_sp.py PROGRAM                          PROGRAM is tests/unit/text_train_sp of a build
       make_train_sp.py STAGE --quality TEXT VOCAB_SIZE  STAGE is stages/lf-tokenize of a build
"""
import io
import json
import os
import subprocess
import sys
import tempfile

import sentencepiece as spm
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def fnv(h, x):
    for b in x.to_bytes(4, "little"):
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def digest(encode, texts):
    h = 0xCBF29CE484222325
    for text in texts:
        ids = encode(text)
        h = fnv(h, len(ids))
        for i in ids:
            h = fnv(h, i)
    return "%016x" % h


def golden(program):
    rows = {}
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ, LF_SRCDIR=os.path.join(HERE, "..", "..", ".."))
        subprocess.run([program, "--write", d], check=True, env=env)
        texts = json.load(open(d + "/texts"))
        for kind in ("bpe", "unigram"):
            t = Tokenizer.from_file("%s/%s.json" % (d, kind))
            t.encode_special_tokens = True
            s = spm.SentencePieceProcessor(model_file="%s/%s.model" % (d, kind))
            rows[kind] = {"tokenizers": digest(lambda x: t.encode(x, add_special_tokens=False).ids, texts),
                          "sentencepiece": digest(s.encode, texts)}
    with open(HERE + "/train_sp.json", "w") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")


def quality(stage, text, size):
    lines = [x for x in open(text, encoding="utf8", errors="replace").read().split("\n") if x.strip()]
    learn, test = [x for i, x in enumerate(lines) if i % 10], lines[::10]
    n_bytes = sum(len(x.encode()) for x in test)
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/learn.txt", "w") as f:
            f.write("\n".join(learn) + "\n")
        for kind, name in (("sp_bpe", "bpe"), ("unigram", "unigram")):
            subprocess.run([stage, "--out", d + "/" + kind, "--doc-split=line", "--vocab-type=" + kind,
                            "--vocab-size=%d" % size, "--log-level=error", d + "/learn.txt"], check=True)
            m = io.BytesIO()
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(learn), model_writer=m, vocab_size=size, model_type=name, byte_fallback=True,
                normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.9995,
                max_sentence_length=1000000, minloglevel=2, num_threads=2)
            ours = spm.SentencePieceProcessor(model_file=d + "/" + kind + "/tokenizer/tokenizer.model")
            theirs = spm.SentencePieceProcessor(model_proto=m.getvalue())
            a, b = sum(map(len, ours.encode(test))), sum(map(len, theirs.encode(test)))
            print("%-8s tokens a byte: ours %.5f, sentencepiece %.5f, ratio %.4f" % (name, a / n_bytes, b / n_bytes, a / b))


if len(sys.argv) == 5 and sys.argv[2] == "--quality":
    quality(sys.argv[1], sys.argv[3], int(sys.argv[4]))
else:
    golden(sys.argv[1])
