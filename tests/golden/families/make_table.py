#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the table of README.md from what the test measured and from what the references say of our exports:

    LF_TABLE=rows.txt LF_EXPORT=out families_1_test; the same with families_2_test
    make_table.py rows.txt out

Rows of families that were not measured stay as they are. Each exported directory is loaded by its reference (transformers, or the oracle file) in f32: its tensors must be those of the golden
directory byte for byte, its logits equal to those of the golden directory in every bit, and to the expected ones within 1e-5.
A development tool like make_families.py.
"""
import os
import sys

import torch
from safetensors.torch import load_file

from make_families import FAMILIES, HERE, Reference, tf

BEGIN, END = "<!-- table: make_table.py -->\n", "<!-- end of the table -->\n"
HEAD = """\
| family | switches | f32 logits | gradients | bf16 | AdamW | flips | swaps | export |
|---|---|---|---|---|---|---|---|---|
"""


def same_bytes(a, b):
    x, y = load_file(a), load_file(b)
    return x.keys() == y.keys() and all(x[k].dtype == y[k].dtype and torch.equal(x[k].reshape(-1).view(torch.uint8), y[k].reshape(-1).view(torch.uint8)) for k in x)


def reload(name, folder):
    """What stands in the last column; an AssertionError when an export is not what it was made from."""
    ref = Reference(name)
    expected = load_file(os.path.join(ref.dir, "expected.safetensors"))
    with torch.no_grad():
        was = ref.run(ref.load(ref.dir, torch.float32), expected["input_ids"])[0]
        now = ref.run(ref.load(folder, torch.float32), expected["input_ids"])[0]
    assert same_bytes(os.path.join(ref.dir, "model.safetensors"), os.path.join(folder, "model.safetensors")), name + ": tensors differ"
    assert torch.equal(was, now), name + ": logits of the export differ"
    off = float((now.double() - expected["logits"]).abs().max() / expected["logits"].abs().max())
    assert off < 1e-5, "%s: logits off by %g" % (name, off)
    return "equal, " + (ref.oracle + ".py" if ref.oracle else "transformers " + tf.__version__)


def worst(rows):
    """The largest error of each kind over all families."""
    cell = lambda k: max(float(r.split("|")[k].split(",")[0]) for r in rows)
    return "\nWorst: f32 logits %.1e, gradients %.1e, bf16 %.2f of the reference's own error, AdamW %.1e.\n" % tuple(cell(k) for k in (3, 4, 5, 6))


def main():
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    path = os.path.join(HERE, "README.md")
    before, rest = open(path).read().split(BEGIN)
    old, after = rest.split(END)
    rows = {line.split("|")[1].strip(): line for line in old.splitlines()[2:] if line.startswith("|")}
    measured = {line.split("|")[1].strip(): line.strip() for line in open(sys.argv[1])}
    rows.update({n: "%s %s |" % (row, reload(n, os.path.join(sys.argv[2], n))) for n, row in measured.items()})
    missing = [n for n in FAMILIES if n not in rows]
    rows = [rows[n] for n in FAMILIES if n in rows]
    with open(path, "w") as f:
        f.write(before + BEGIN + HEAD + "\n".join(rows) + "\n" + worst(rows) + END + after)
    print("%d families; without a row: %s" % (len(rows), " ".join(missing) or "none"))


if __name__ == "__main__":
    main()
