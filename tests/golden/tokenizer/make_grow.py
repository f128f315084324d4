#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tokenizers library encodes with grown vocabularies: grow.json beside this script.

usage: make_grow.py PROGRAM     PROGRAM is tests/unit/text_grow of a build; it writes the grown files
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def fnv(h, x):
    for b in x.to_bytes(4, "little"):
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def digest(t, texts):
    h = 0xCBF29CE484222325
    for text in texts:
        ids = t.encode(text, add_special_tokens=False).ids
        h = fnv(h, len(ids))
        for i in ids:
            h = fnv(h, i)
    return "%016x" % h


def main():
    hard = [bytes.fromhex(x).decode(errors="replace") for x in json.load(open(HERE + "/vectors.json"))["texts"]]
    rows = []
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ, LF_SRCDIR=os.path.join(HERE, "..", "..", ".."))
        subprocess.run([sys.argv[1], "--write", d], check=True, env=env)
        fresh = json.load(open(d + "/fresh.txt"))
        for i in range(len(glob.glob(d + "/*.json"))):
            t = Tokenizer.from_file("%s/%d.json" % (d, i))
            rows.append({"fresh": digest(t, fresh), "texts": digest(t, hard)})
    with open(HERE + "/grow.json", "w") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
