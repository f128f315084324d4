# SPDX-License-Identifier: Apache-2.0
"""Expected values for Megatron-LM data, from numpy and the published rule (see engine/train/megatron_order.h), written
without a look at our C. Writes expected.json and the indexed datasets beside itself:

    python make_megatron.py
"""
import hashlib
import json
import math
import os
import struct

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FULL = 400  # longer arrays are written as a SHA-256 over little-endian i64, with their ends


def pack(a):
    a = np.asarray(a, dtype=np.int64).reshape(-1)
    if len(a) <= FULL:
        return {"n": len(a), "values": a.tolist()}
    sha = hashlib.sha256(a.astype("<i8").tobytes()).hexdigest()
    return {"n": len(a), "sha256": sha, "first": a[:8].tolist(), "last": a[-8:].tolist()}


def rng_case(seed, n):
    r = np.random.RandomState(seed)
    draws = r.randint(0, 2**32, size=5, dtype=np.uint32)
    v = np.arange(n, dtype=np.uint32)
    r.shuffle(v)
    w = np.arange(n, dtype=np.int64)
    r.shuffle(w)
    return {"seed": seed, "draws": draws.tolist(), "n": n, "first": pack(v), "second": pack(w)}


def document_index(docs, epochs, rng, apart):
    if not apart or epochs == 1:
        v = np.tile(docs, epochs).astype(np.int32)
        rng.shuffle(v)
        return v
    a = document_index(docs, epochs - 1, rng, False)
    return np.concatenate([a, document_index(docs, 1, rng, False)])


def sample_index(lengths, docs, T, epochs, per_epoch):
    n = (epochs * per_epoch - 1) // T
    ends = np.cumsum(lengths[docs].astype(np.int64))
    out = [(0, 0)]
    for i in range(1, n + 1):
        token = i * T  # of the concatenation; the first token of sample i
        at = int(np.searchsorted(ends, token, side="right"))
        out.append((at, token - (int(ends[at - 1]) if at else 0)))
    return np.array(out, dtype=np.int64)


def shuffle_index(cut, n, rng):
    a = np.arange(cut, dtype=np.uint32)
    rng.shuffle(a)
    if cut == n:
        return a
    b = np.arange(cut, n, dtype=np.uint32)
    rng.shuffle(b)
    return np.concatenate([a, b])


def bounds_of(split):
    v = np.array([float(x) for x in split.split(",")] + [0.0] * 3)[:3]
    v = (v / v.sum()).tolist()
    b = [0]
    for x in v:
        b.append(b[-1] + x)
    return b


def order_case(name, lengths, T, samples, seed, split, part):
    lengths = np.asarray(lengths, dtype=np.int32)
    b = bounds_of(split)
    beg, end = int(round(b[part] * float(len(lengths)))), int(round(b[part + 1] * float(len(lengths))))
    docs = np.arange(beg, end, dtype=np.int32)
    per_epoch = int(lengths[docs].sum())
    epochs = 1
    while samples and epochs * per_epoch < samples * T + 1:
        epochs += 1
    apart, before = False, 0
    if epochs > 1:
        before = ((epochs - 1) * per_epoch - 1) // T
        apart = samples - before < int(0.80 * ((per_epoch - 1) // T))
    rng = np.random.RandomState(seed)
    d = document_index(docs, epochs, rng, apart)
    s = sample_index(lengths, d, T, epochs, per_epoch)
    n = len(s) - 1
    sh = shuffle_index(before if apart else n, n, rng)
    return {
        "name": name, "lengths": lengths.tolist() if len(lengths) <= FULL else {"n": len(lengths)}, "T": T, "samples": samples,
        "seed": seed, "split": split, "part": part, "begin": beg, "end": end, "epochs": epochs, "apart": bool(apart), "count": n,
        "documents": pack(d), "sample_index": pack(s), "shuffle": pack(sh),
    }


def normalize(w):
    w = np.array(w, dtype=np.float64)
    return (w / np.sum(w)).tolist()


def blend_case(weights, samples):
    w = normalize(weights)
    asked = [int(math.ceil(math.ceil(samples * x) * (1 + 0.005))) for x in w]
    w2 = normalize(w)
    taken = [0] * len(w)
    who, which = [], []
    for i in range(samples):
        errors = [x * max(float(i), 1.0) - float(t) for x, t in zip(w2, taken)]
        k = errors.index(max(errors))
        who.append(k)
        which.append(taken[k])
        taken[k] += 1
    return {"weights": weights, "samples": samples, "normalized": [x.hex() for x in w2], "asked": asked,
            "dataset": pack(who), "sample": pack(which)}


CODES = {"u8": (1, "<u1"), "i8": (2, "<i1"), "i16": (3, "<i2"), "i32": (4, "<i4"), "i64": (5, "<i8"), "u16": (8, "<u2")}


def write_dataset(name, dtype, docs, modes=None):
    code, np_type = CODES[dtype]
    seqs = [s for d in docs for s in d]
    lengths = [len(s) for s in seqs]
    size = np.dtype(np_type).itemsize
    offsets = [0]
    for n in lengths:
        offsets.append(offsets[-1] + n * size)
    index = [0]
    for d in docs:
        index.append(index[-1] + len(d))
    with open(os.path.join(HERE, name + ".bin"), "wb") as f:
        for s in seqs:
            f.write(np.array(s, dtype=np_type).tobytes())
    with open(os.path.join(HERE, name + ".idx"), "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(seqs), len(index)))
        f.write(np.array(lengths, dtype="<i4").tobytes())
        f.write(np.array(offsets[:-1], dtype="<i8").tobytes())
        f.write(np.array(index, dtype="<i8").tobytes())
        if modes is not None:
            f.write(np.array(modes, dtype="<i1").tobytes())


def make_docs(seed, n, top, seqs):
    r = np.random.RandomState(seed)
    return [[r.randint(0, top, size=r.randint(0, 40)).tolist() for _ in range(r.randint(seqs[0], seqs[1] + 1))] for _ in range(n)]


def main():
    r = np.random.RandomState(99)
    some = r.randint(1, 60, size=50).tolist()
    zeros = [x if i % 4 else 0 for i, x in enumerate(r.randint(1, 9, size=40).tolist())]
    many = [1 + (i * 7919) % 613 for i in range(20000)]
    orders = [
        order_case("one epoch", some, 16, 0, 1234, "1", 0),
        order_case("within one epoch", some, 16, 40, 1234, "1", 0),
        order_case("last epoch apart", some, 16, 130, 1234, "1", 0),
        order_case("last epoch with the others", some, 16, 175, 1234, "1", 0),
        order_case("many epochs", some, 31, 500, 42, "1", 0),
        order_case("train part", some, 16, 100, 7, "949,50,1", 0),
        order_case("valid part", some, 4, 10, 7, "949,50,1", 1),
        order_case("halves round to even", some, 8, 20, 5, "25,25,50", 1),
        order_case("empty sequences", zeros, 5, 60, 1234, "1", 0),
        order_case("short samples", some, 2, 300, 0, "1", 0),
        order_case("largest seed", some, 16, 90, 2**32 - 1, "1", 0),
        order_case("large", many, 512, 30000, 1234, "969,30,1", 0),
    ]
    blends = [
        blend_case([0.3, 0.7], 300),
        blend_case([1.0, 1.0, 1.0], 200),
        blend_case([1.0], 50),
        blend_case([5.0, 1.0, 0.1, 2.5, 3.3, 0.7, 1.9, 4.2, 8.8, 0.01], 5000),
        blend_case([1.0 / (i + 3) for i in range(200)], 3000),
    ]
    data = {"rng": [rng_case(s, n) for s, n in ((0, 10), (1234, 100), (2**32 - 1, 257), (42, 70000))], "orders": orders, "blends": blends}
    docs = make_docs(1, 12, 65500, (1, 1))
    multi = make_docs(2, 9, 2**31, (0, 4))
    modal = make_docs(3, 6, 60000, (1, 3))
    wide = make_docs(4, 5, 2**31, (1, 2))
    write_dataset("u16", "u16", docs)
    write_dataset("i32", "i32", multi)
    write_dataset("modes", "u16", modal, [i % 3 - 1 for i in range(sum(len(d) for d in modal))])
    write_dataset("i64", "i64", wide)
    data["datasets"] = {"u16": docs, "i32": multi, "modes": modal, "i64": wide}
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(data, f, separators=(",", ":"))
        f.write("\n")


main()
