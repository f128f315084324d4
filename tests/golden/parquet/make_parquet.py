#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parquet files of every kind that the reader takes or refuses, and their rows as pyarrow reads them.

    python3 make_parquet.py [DIRECTORY]          writes files.tar.xz, see README.md
    python3 make_parquet.py rows DIR             data of every use, as parquet and as JSON lines
    python3 make_parquet.py pictures DIR         rows with pictures, from ../media/images
    python3 make_parquet.py seeds DIR            small files for tests/fuzz/corpus/parquet
    python3 make_parquet.py stress DIR SECONDS   random files and their rows into DIR, for a long comparison

files.tar.xz holds NAME.parquet; beside it NAME.json, its rows one a line, or NAME.why, words of the message
with which it is refused.
"""
import datetime
import decimal
import io
import json
import os
import random
import sys
import tarfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = "the quick brown fox jumps over a lazy dog naïve 東京 Ωmega 😀".split()


def text(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def maybe(rng, v, share=0.25):
    return None if rng.random() < share else v


def rows_of(data):
    """The rows that pyarrow reads back from the bytes of a file."""
    return pq.read_table(io.BytesIO(data)).to_pylist()


def write(table, **kw):
    out = io.BytesIO()
    kw.setdefault("compression", "none")
    pq.write_table(table, out, **kw)
    return out.getvalue()


class Set:
    def __init__(self):
        self.files = []

    def good(self, name, data, rows=None):
        rows = rows_of(data) if rows is None else rows
        lines = "".join(json.dumps(r, ensure_ascii=False, allow_nan=False) + "\n" for r in rows)
        self.files += [(name + ".parquet", data), (name + ".json", lines.encode())]

    def bad(self, name, data, why):
        self.files += [(name + ".parquet", data), (name + ".why", why.encode())]


def flat(rng, n, nulls):
    """A table of every type that a row has a place for."""
    opt = (lambda v: maybe(rng, v)) if nulls else (lambda v: v)
    cols = {
        "text": pa.array([opt(text(rng, rng.randrange(12))) for _ in range(n)], pa.string()),
        "big": pa.array([opt(text(rng, 3)) for _ in range(n)], pa.large_string()),
        "flag": pa.array([opt(rng.random() < 0.5) for _ in range(n)], pa.bool_()),
        "i8": pa.array([opt(rng.randrange(-128, 128)) for _ in range(n)], pa.int8()),
        "u16": pa.array([opt(rng.randrange(65536)) for _ in range(n)], pa.uint16()),
        "i32": pa.array([opt(rng.choice([-2**31, 2**31 - 1, 0, -1, rng.randrange(1000)])) for _ in range(n)], pa.int32()),
        "u32": pa.array([opt(rng.choice([2**32 - 1, 0, 5])) for _ in range(n)], pa.uint32()),
        "i64": pa.array([opt(rng.choice([-2**63, 2**63 - 1, 0, rng.randrange(10**12)])) for _ in range(n)], pa.int64()),
        "u64": pa.array([opt(rng.choice([2**63 - 1, 0, 7])) for _ in range(n)], pa.uint64()),
        "f32": pa.array([opt(rng.choice([0.0, -0.0, 1.5, rng.random()])) for _ in range(n)], pa.float32()),
        "f64": pa.array([opt(rng.choice([0.0, 1e300, 5e-324, rng.random()])) for _ in range(n)], pa.float64()),
    }
    fields = [pa.field(k, v.type, nullable=nulls) for k, v in cols.items()]
    return pa.table(list(cols.values()), schema=pa.schema(fields))


TURN = pa.struct([("role", pa.string()), ("content", pa.string())])
CALL = pa.struct([("name", pa.string()), ("arguments", pa.struct([("city", pa.string()), ("days", pa.int32())]))])
DEEP = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.float32()),
                  ("tool_calls", pa.list_(CALL)), ("tags", pa.list_(pa.string()))])


def turn(rng):
    return {"role": rng.choice(["user", "assistant", None]), "content": maybe(rng, text(rng, rng.randrange(6)))}


def deep(rng):
    call = lambda: maybe(rng, {"name": "w", "arguments": maybe(rng, {"city": maybe(rng, "Oslo"), "days": maybe(rng, 3)})})
    return {"role": "user", "content": maybe(rng, text(rng, 2)), "weight": maybe(rng, 0.5),
            "tool_calls": maybe(rng, [call() for _ in range(rng.randrange(3))]),
            "tags": maybe(rng, [maybe(rng, "t%d" % rng.randrange(4)) for _ in range(rng.randrange(4))])}


def nested(rng, n):
    many = lambda f: maybe(rng, [maybe(rng, f(rng), 0.1) for _ in range(rng.randrange(4))])
    return pa.table({
        "id": pa.array(range(n), pa.int64()),
        "messages": pa.array([many(turn) for _ in range(n)], pa.list_(TURN)),
        "deep": pa.array([many(deep) for _ in range(n)], pa.list_(DEEP)),
        "words": pa.array([many(lambda r: r.choice(WORDS)) for _ in range(n)], pa.list_(pa.string())),
        "grid": pa.array([many(lambda r: maybe(r, [r.randrange(9) for _ in range(r.randrange(3))])) for _ in range(n)],
                         pa.list_(pa.list_(pa.int32()))),
        "one": pa.array([maybe(rng, turn(rng)) for _ in range(n)], TURN),
    })


CODECS = ["none", "snappy", "gzip", "zstd"]


def add_flat(s):
    rng = random.Random(1)
    for version in "1.0", "2.0":
        for codec in CODECS:
            for nulls in False, True:
                for dictionary in False, True:
                    name = "flat-v%s-%s-%s-%s" % (version[0], codec, "null" if nulls else "req", "dict" if dictionary else "plain")
                    s.good(name, write(flat(rng, 12, nulls), data_page_version=version, compression=codec,
                                       use_dictionary=dictionary, write_statistics=False, store_schema=False))


def add_encodings(s):
    rng = random.Random(2)
    for enc, types in (("DELTA_BINARY_PACKED", [pa.int32(), pa.int64()]), ("DELTA_LENGTH_BYTE_ARRAY", [pa.string()]),
                       ("DELTA_BYTE_ARRAY", [pa.string()]), ("BYTE_STREAM_SPLIT", [pa.float32(), pa.float64(), pa.int32(), pa.int64()]),
                       ("PLAIN", [pa.string(), pa.int64(), pa.bool_()]), ("RLE", [pa.bool_()])):
        for t in types:
            for version in "1.0", "2.0":
                for nulls in False, True:
                    n = rng.choice([1, 33, 200, 300])
                    make = {pa.string(): lambda: "shared-prefix-" * rng.randrange(3) + text(rng, 2),
                            pa.bool_(): lambda: rng.random() < 0.3,
                            pa.int32(): lambda: rng.choice([rng.randrange(-2**31, 2**31), rng.randrange(4)]),
                            pa.int64(): lambda: rng.choice([rng.randrange(-2**63, 2**63), 5]),
                            pa.float32(): rng.random, pa.float64(): rng.random}[t]
                    a = pa.array([maybe(rng, make()) if nulls else make() for _ in range(n)], t)
                    table = pa.table([a], schema=pa.schema([pa.field("x", t, nullable=nulls)]))
                    name = "enc-%s-%s-v%s-%s" % (enc.lower(), t, version[0], "null" if nulls else "req")
                    s.good(name, write(table, column_encoding={"x": enc}, use_dictionary=False, data_page_version=version,
                                       write_statistics=False, store_schema=False, compression=rng.choice(["none", "zstd"])))


def add_nested(s):
    rng = random.Random(3)
    for version in "1.0", "2.0":
        for codec in "none", "zstd":
            s.good("nested-v%s-%s" % (version[0], codec), write(nested(rng, 30), data_page_version=version, compression=codec,
                   data_page_size=200, write_batch_size=7, row_group_size=11, write_statistics=False, store_schema=False))
    s.good("nested-two-level", write(nested(rng, 12), use_compliant_nested_type=False, store_schema=False, write_statistics=False))


def add_shapes(s):
    rng = random.Random(4)
    one = pa.schema([("text", pa.string())])
    kw = dict(store_schema=False, write_statistics=False)
    s.good("empty", write(one.empty_table(), **kw))
    out = io.BytesIO()
    w = pq.ParquetWriter(out, one, compression="none", **kw)
    for n in 2, 0, 3, 0:
        w.write_table(pa.table({"text": pa.array([text(rng, 2) for _ in range(n)], pa.string())}))
    w.close()
    s.good("groups-empty", out.getvalue())
    table = pa.table({"text": [text(rng, 4) + str(i) for i in range(300)]})
    s.good("dictionary-overflow", write(table, dictionary_pagesize_limit=400, data_page_size=300, write_batch_size=16, **kw))
    s.good("row-groups", write(table.slice(0, 60), row_group_size=7, **kw))
    s.good("large-text", write(pa.table({"text": ["x" * 200000, "", "y" * 131071, None]}), compression="zstd", **kw))
    s.good("checksums", write(table.slice(0, 40), write_page_checksum=True, data_page_size=200, write_batch_size=8, compression="snappy", **kw))
    s.good("all-null", write(pa.table({"text": pa.array([None] * 50, pa.string()), "n": pa.nulls(50)}), compression="snappy", **kw))
    s.good("statistics", write(table.slice(0, 20), write_page_index=True, row_group_size=8))
    s.good("same", write(pa.table({"text": ["same"] * 5000, "n": [7] * 5000}), compression="gzip", **kw))
    s.good("dictionary-type", write(pa.table({"text": pa.array(["a", "b", None, "a"]).dictionary_encode()})))
    s.good("nul-and-control", write(pa.table({"text": ["a\0b", "\x7f\u2028", "\U0010ffff"]}), **kw))


def patched(data, old, new):
    assert data.count(old) >= 1 and len(old) == len(new), old
    return data.replace(old, new)


def add_refused(s):
    kw = dict(store_schema=False, write_statistics=False)
    odd = {
        "binary": pa.array([b"\xff\x00"], pa.binary()), "fixed": pa.array([b"ab"], pa.binary(2)),
        "decimal": pa.array([decimal.Decimal("1.5")], pa.decimal128(9, 2)),
        "timestamp": pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us")),
        "date": pa.array([datetime.date(2026, 1, 1)], pa.date32()), "time": pa.array([5], pa.time64("us")),
        "16-bit float": pa.array([1.0], pa.float16()), "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
    }
    for what, a in odd.items():
        name = "bad-type-" + what.replace(" ", "-")
        s.bad(name, write(pa.table({"text": ["t"], "odd": a}), **kw), "column odd is %s" % ("binary of fixed length" if what == "fixed" else what))
    s.bad("bad-type-inside", write(pa.table({"text": ["t"], "m": pa.array([[{"b": b"x"}]], pa.list_(pa.struct([("b", pa.binary())])))}), **kw),
          "column m.b is binary")
    s.bad("bad-int96", write(pa.table({"text": ["t"], "odd": odd["timestamp"]}), use_deprecated_int96_timestamps=True, **kw), "timestamp of 96 bits")
    t = pa.table({"text": ["some text that is long enough to be packed"] * 3})
    for codec in "brotli", "lz4":
        s.bad("bad-codec-" + codec, write(t, compression=codec, **kw), "lz4_raw, which is not read; convert: duckdb" if codec == "lz4" else "brotli, which is not read; convert: duckdb")
    s.bad("bad-nan", write(pa.table({"x": [1.0, float("nan")]}), **kw), "row group 0, column x, page at byte")
    s.bad("bad-u64", write(pa.table({"x": pa.array([2**63], pa.uint64())}), **kw), "above 2^63 - 1")
    good = write(t, write_page_checksum=True, use_dictionary=False, **kw)
    s.bad("bad-checksum", patched(good, b"some text", b"sOme text"), "do not have the checksum")
    s.bad("bad-magic", b"PAR2" + good[4:], "does not begin with PAR1")
    s.bad("bad-end", good[:-1], "does not end with PAR1")
    s.bad("bad-short", b"PAR1PAR1", "are no parquet file")
    s.bad("bad-footer-length", good[:-8] + b"\xff\xff\xff\x7f" + b"PAR1", "its footer says that it has")
    s.bad("bad-encrypted", good[:-4] + b"PARE", "encrypted")


def write_tar(path, files):
    with tarfile.open(path, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def random_type(rng, depth):
    simple = [pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.uint8()]
    k = rng.random()
    if depth > 3 or k < 0.5:
        return rng.choice(simple)
    if k < 0.75:
        return pa.list_(random_type(rng, depth + 1))
    return pa.struct([pa.field("f%d" % i, random_type(rng, depth + 1), nullable=rng.random() < 0.7) for i in range(rng.randrange(1, 4))])


def random_value(rng, t, nullable=True):
    if nullable and rng.random() < 0.15:
        return None
    if pa.types.is_list(t):
        return [random_value(rng, t.value_type) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
    if pa.types.is_struct(t):
        return {f.name: random_value(rng, f.type, f.nullable) for f in t}
    if pa.types.is_string(t):
        return text(rng, rng.choice([0, 1, 3, 30]))
    if pa.types.is_boolean(t):
        return rng.random() < 0.5
    if pa.types.is_float64(t):
        return rng.choice([rng.random(), 0.0, 1e-300])
    return rng.choice([rng.randrange(120), 0, 1])


def stress(where, seconds):
    os.makedirs(where, exist_ok=True)
    end, k = time.time() + seconds, 0
    while time.time() < end:
        rng = random.Random(1000 + k)
        n = rng.choice([0, 1, 5, 100, 1500])
        types = [random_type(rng, 0) for _ in range(rng.randrange(1, 6))]
        table = pa.table([pa.array([random_value(rng, t) for _ in range(n)], t) for t in types],
                         names=["c%d" % i for i in range(len(types))])
        data = write(table, compression=rng.choice(CODECS), data_page_version=rng.choice(["1.0", "2.0"]), use_dictionary=rng.random() < 0.6,
                     data_page_size=rng.choice([64, 500, 1 << 20]), write_batch_size=rng.choice([1, 10, 1024]),
                     row_group_size=rng.choice([3, 50, 1 << 20]), use_compliant_nested_type=rng.random() < 0.8,
                     dictionary_pagesize_limit=rng.choice([50, 1 << 20]), write_page_checksum=rng.random() < 0.3)
        s = Set()
        # The rows that were written: pyarrow 26 reads some of its own files back as others, or not at all.
        s.good("r%05d" % k, data, table.to_pylist())
        for name, data in s.files:
            with open(os.path.join(where, name), "wb") as f:
                f.write(data)
        k += 1
    print(k, "files")


def seeds(where):
    rng = random.Random(5)
    kw = dict(store_schema=False, write_statistics=False)
    turns = pa.array([[turn(rng), turn(rng)], None, []], pa.list_(TURN))
    delta = pa.table({"t": ["prefix-a", "prefix-b", "c"], "n": pa.array([1, -5, 2**40], pa.int64())})
    files = {
        "turns-v1": write(pa.table({"m": turns}), **kw),
        "turns-v2-zstd": write(pa.table({"m": turns}), data_page_version="2.0", compression="zstd", **kw),
        "delta": write(delta, use_dictionary=False, column_encoding={"t": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"}, **kw),
        "lengths-snappy": write(delta.select(["t"]), use_dictionary=False, column_encoding={"t": "DELTA_LENGTH_BYTE_ARRAY"}, compression="snappy", **kw),
        "split-gzip": write(pa.table({"x": [0.5, 1.5, None], "b": [True, None, False]}), use_dictionary=False,
                            column_encoding={"x": "BYTE_STREAM_SPLIT", "b": "RLE"}, compression="gzip", **kw),
        "grid-groups": write(pa.table({"g": pa.array([[[1, 2], []], [None], None], pa.list_(pa.list_(pa.int32())))}), row_group_size=2, **kw),
    }
    for name, data in files.items():
        with open(os.path.join(where, name), "wb") as f:
            f.write(data)


def put_rows(where, name, table, **kw):
    """The same rows twice: NAME.parquet, and NAME.jsonl as a list of objects is written."""
    with open(os.path.join(where, name + ".parquet"), "wb") as f:
        f.write(write(table, write_statistics=False, store_schema=False, **kw))
    with open(os.path.join(where, name + ".jsonl"), "w") as f:
        for r in table.to_pylist():
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


def make_pictures(where):
    """Rows as datasets of pictures have them: the bytes of a file, or null and its path beside the data."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "media", "images", "rgb8.png"), "rb") as f:
        png = f.read()
    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    pairs = [("<image>What?", "A cat"), ("a<image>or<image>", "dog"), ("no", "picture")]
    messages = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in pairs]
    own = {"bytes": png, "path": "elsewhere.png"}
    lists = [[own], [{"bytes": None, "path": "444.jpg"}, own], None]
    pq.write_table(pa.table({"messages": pa.array(messages, pa.list_(turn)), "images": pa.array(lists, pa.list_(file))}),
                   os.path.join(where, "pictures.parquet"), compression="none", write_statistics=False)
    pq.write_table(pa.table({"messages": pa.array(messages[:1], pa.list_(turn)), "image": pa.array([own], file)}),
                   os.path.join(where, "picture.parquet"), compression="none", write_statistics=False)
    pq.write_table(pa.table({"context": ["<image>What?", "none"], "target": ["x", "y"], "image": pa.array([own, None], file)}),
                   os.path.join(where, "asked.parquet"), compression="none", write_statistics=False)


def make_rows(where):
    os.makedirs(where, exist_ok=True)
    rng = random.Random(6)
    word = lambda: rng.choice(WORDS)
    texts = pa.table({"id": range(400), "text": [text(rng, rng.randrange(1, 18)) + "." for _ in range(400)]})
    put_rows(where, "texts", texts, row_group_size=90, data_page_size=1000, write_batch_size=16)
    turns = lambda: [{"role": "system" if k == 0 else "user" if k % 2 else "assistant", "content": text(rng, 4)}
                     for k in range(rng.choice([3, 5]))]
    put_rows(where, "chats", pa.table({"messages": pa.array([turns() for _ in range(12)], pa.list_(TURN)),
                                       "tools": pa.array([None] * 12, pa.string())}), row_group_size=5)
    put_rows(where, "pairs", pa.table({"id": ["p%d" % i for i in range(8)], "prompt": [text(rng, 3) + " " for _ in range(8)],
                                       "chosen": [text(rng, 4) for _ in range(8)], "rejected": [text(rng, 2) + "!" for _ in range(8)],
                                       "margin": pa.array([maybe(rng, 0.5) for _ in range(8)], pa.float32())}))
    put_rows(where, "prompts", pa.table({"prompt": [text(rng, 5) for _ in range(8)], "answer": [str(i) for i in range(8)],
                                         "level": pa.array(range(8), pa.int32())}))
    ids = pa.array([[1 + rng.randrange(30) for _ in range(1 + i % 4)] for i in range(6)], pa.list_(pa.int32()))
    put_rows(where, "requests", pa.table({"id": ["q%d" % i for i in range(6)], "prompt": ids,
                                          "max_tokens": pa.array([maybe(rng, 5) for _ in range(6)], pa.int64())}))
    put_rows(where, "choices", pa.table({"context": [text(rng, 4) for _ in range(5)], "choices": [[" " + word(), " " + word()] for _ in range(5)],
                                         "gold": pa.array([i % 2 for i in range(5)], pa.int64())}))
    t = texts.slice(0, 3)
    with pa.OSFile(os.path.join(where, "file.arrow"), "wb") as f, pa.ipc.new_file(f, t.schema) as w:
        w.write_table(t)
    with pa.OSFile(os.path.join(where, "stream.arrow"), "wb") as f, pa.ipc.new_stream(f, t.schema) as w:
        w.write_table(t)


def main():
    if sys.argv[1:2] == ["pictures"]:
        return make_pictures(sys.argv[2])
    if sys.argv[1:2] == ["rows"]:
        make_rows(sys.argv[2])
        return
    if sys.argv[1:2] == ["seeds"]:
        seeds(sys.argv[2])
        return
    if sys.argv[1:2] == ["stress"]:
        stress(sys.argv[2], float(sys.argv[3]))
        return
    s = Set()
    for add in add_flat, add_encodings, add_nested, add_shapes, add_refused:
        add(s)
    where = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    write_tar(os.path.join(where, "files.tar.xz"), s.files)
    print(len(s.files) // 2, "files", sum(len(d) for _, d in s.files), "bytes")


if __name__ == "__main__":
    main()
