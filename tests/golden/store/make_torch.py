# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save, good and hostile, for tests/unit/store_torch.c and the fuzzer's corpus.

    python make_torch.py          (torch, safetensors) writes torch/

good.bin (zip) and legacy.bin (the form before 1.6) hold the tensors of expected.safetensors: every dtype, views with
strides and offsets, tied weights, Parameter, nested dictionaries. sharded/ is a model in two files with an index. Each
bad-*.bin lies in one way, told by its name. Nothing here is dangerous to open with our reader; do not open bad-*.bin
with torch.load(weights_only=False). Made with torch 2.15.0.
"""
import argparse
import collections
import io
import json
import os
import pickle
import stat
import struct
import zipfile

import torch
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
DTYPES = ["bool", "uint8", "int8", "int16", "float16", "bfloat16", "int32", "float32", "float64", "int64"]
NEW_DTYPES = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]


def path(name):
    return os.path.join(HERE, name)


def tensors(dtypes):
    base = torch.arange(120, dtype=torch.float32)
    d = collections.OrderedDict((f"d.{t}", torch.arange(5).to(getattr(torch, t))) for t in dtypes)
    d["whole"] = base
    d["view"] = base[10:34].view(4, 6)
    d["t"] = base[:60].view(6, 10).t()
    d["step"] = base.view(10, 12)[1:9:2, 3::4]
    d["column"] = base.view(10, 12)[:, 7]
    d["perm"] = base.view(4, 5, 6).permute(2, 0, 1)
    d["expand"] = base[3:7].view(4, 1).expand(4, 3)
    d["scalar"] = base[5]
    d["empty"] = torch.zeros(0, 3)
    d["embed"] = torch.arange(12, dtype=torch.bfloat16).view(4, 3)
    d["head"] = d["embed"]
    d["param"] = torch.nn.Parameter(torch.arange(4.0), requires_grad=True)
    d["layer"] = {"w": torch.ones(2), 7: torch.full((2,), 7.0), "list": [torch.zeros(1), (torch.ones(1),)]}
    d["step_count"] = 5
    d["note"] = "text"
    d["nothing"] = None
    return d


def flat(d, prefix=""):
    out = {}
    items = d.items() if isinstance(d, dict) else enumerate(d)
    for k, v in items:
        if isinstance(v, torch.Tensor):
            out[prefix + str(k)] = v.detach().clone().contiguous()
        elif isinstance(v, (dict, list, tuple)):
            out.update(flat(v, f"{prefix}{k}."))
    return out


def good():
    d = tensors(DTYPES + NEW_DTYPES)
    d._metadata = {"": {"version": 1}}
    torch.save(d, path("good.bin"))
    save_file(flat(d), path("expected.safetensors"), metadata={"format": "pt"})
    torch.save(tensors(DTYPES), path("legacy.bin"), _use_new_zipfile_serialization=False)
    torch.save({"a": torch.ones(2), "args": argparse.Namespace(n=2, dtype=torch.bfloat16, size=torch.Size([1, 2]))},
               path("protocol4.bin"), pickle_protocol=4)
    os.makedirs(path("sharded"), exist_ok=True)
    w = torch.arange(6.0).view(2, 3)
    torch.save({"a": w, "b": torch.ones(3)}, path("sharded/pytorch_model-00001-of-00002.bin"))
    torch.save({"c": torch.zeros(3)}, path("sharded/pytorch_model-00002-of-00002.bin"))
    names = {"a": 1, "b": 1, "c": 2}
    with open(path("sharded/pytorch_model.bin.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 48},
                   "weight_map": {k: f"pytorch_model-0000{v}-of-00002.bin" for k, v in names.items()}}, f, indent=2)


# ---- pickles by hand: protocol 2 ----

def g(module, name):
    return f"c{module}\n{name}\n".encode()


def s(text):
    b = text.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def i(n):
    return b"J" + struct.pack("<i", n) if -2**31 <= n < 2**31 else b"\x8a\x08" + struct.pack("<q", n)


def t(*items):
    return b"(" + b"".join(items) + b"t"


def storage(key="0", cls="FloatStorage", n=4, view=b""):
    return t(s("storage"), g("torch", cls), s(key), s("cpu"), i(n), view) + b"Q"


def tensor(st=None, first=0, shape=(4,), stride=(1,)):
    return (g("torch._utils", "_rebuild_tensor_v2") +
            t(st or storage(), i(first), t(*map(i, shape)), t(*map(i, stride)), b"\x89", b"}") + b"R")


def state(*pairs):
    return b"\x80\x02}(" + b"".join(s(k) + v for k, v in pairs) + b"u."


GOOD = state(("w", tensor()))
OLD = state(("w", tensor(storage(view=b"N"))))  # the older form names the storage that this one is a view of


def archive(pkl=GOOD, records=None, name="archive/", compress=False, order="little"):
    out = io.BytesIO()
    z = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED)
    z.writestr(zipfile.ZipInfo(name + "version"), "3\n")
    z.writestr(zipfile.ZipInfo(name + "data.pkl"), pkl)
    if order:
        z.writestr(zipfile.ZipInfo(name + "byteorder"), order)
    for key, data in (records if records is not None else {"0": bytes(16)}).items():
        info = zipfile.ZipInfo(name + "data/" + key)
        info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        z.writestr(info, data)
    z.close()
    return out.getvalue()


def with_record(info, data=b""):
    out = io.BytesIO(archive())
    z = zipfile.ZipFile(out, "a")
    z.writestr(info, data)
    z.close()
    return out.getvalue()


def link():
    info = zipfile.ZipInfo("archive/data/1")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return with_record(info, b"/etc/passwd")


def overlap():
    # Both storages' entries of the directory lead to local headers, one of which lies inside the other's bytes.
    a = archive(state(("a", tensor(storage("0", n=64))), ("b", tensor(storage("1", n=4)))), {"0": bytes(256), "1": bytes(16)})
    b = bytearray(a)
    local = b.find(b"archive/data/1") - 30
    header = bytes(b[local:local + 44 + 16])
    zero = b.find(b"archive/data/0") - 30
    at = zero + 44 + 64
    b[at:at + len(header)] = header
    central = b.rfind(b"archive/data/1") - 46
    b[central + 42:central + 46] = struct.pack("<I", at)
    return bytes(b)


def legacy(obj, keys, data, little=True, protocol=1001):
    return (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(protocol, 2) +
            pickle.dumps({"protocol_version": 1001, "little_endian": little, "type_sizes": {}}, 2) + obj +
            pickle.dumps(keys, 2) + data)


def nested(n):
    return b"\x80\x02}" + s("a") + b"]" * n + b"a" * (n - 1) + b"s."


def laughs(n):
    # Each list holds the one before 16 times: 16^n objects are reached, n are stored.
    body = b"]q\0" + i(1) + b"a0"
    for k in range(n):
        body += b"]r" + struct.pack("<I", k + 1) + b"(" + (b"j" + struct.pack("<I", k)) * 16 + b"e0"
    return b"\x80\x02" + body + b"}" + s("a") + b"j" + struct.pack("<I", n) + b"s."


def hostile():
    one = struct.pack("<q", 4) + bytes(16)
    bad = {
        "os-system": archive(b"\x80\x02" + g("os", "system") + t(s("echo bad")) + b"R."),
        "posix-system": archive(b"\x80\x02" + g("posix", "system") + t(s("echo bad")) + b"R."),
        "eval": archive(state(("w", g("builtins", "eval") + t(s("1+1")) + b"R"))),
        "getattr": archive(state(("w", g("__builtin__", "getattr") + t(s("a"), s("b")) + b"R"))),
        "stack-global": archive(b"\x80\x04" + s("os") + s("system") + b"\x93."),
        "torch-load": archive(state(("w", g("torch", "load") + t(s("x")) + b"R"))),
        "inst": archive(b"\x80\x02(" + s("echo bad") + b"ios\nsystem\n."),
        "obj": archive(b"\x80\x02(" + g("torch", "Size") + b"o."),
        "ext": archive(b"\x80\x02\x82\x01."),
        "persid": archive(b"\x80\x02P0\n."),
        "unknown-op": archive(b"\x80\x02\xff."),
        "protocol-9": archive(b"\x80\x09}."),
        "call-storage": archive(state(("w", g("torch", "FloatStorage") + t() + b"R"))),
        "call-string": archive(state(("w", s("x") + t() + b"R"))),
        "no-stop": archive(b"\x80\x02}"),
        "no-object": archive(b"\x80\x02."),
        "underflow": archive(b"\x80\x02R."),
        "mark-taken": archive(b"\x80\x02((\x85."),
        "no-mark": archive(b"\x80\x02t."),
        "memo-missing": archive(b"\x80\x02h\x07."),
        "memo-far": archive(b"\x80\x02}r\xff\xff\xff\xff."),
        "string-end": archive(b"\x80\x02X\xff\xff\xff\x7fab."),
        "string-8": archive(b"\x80\x04\x8d" + b"\xff" * 8 + b"."),
        "not-utf8": archive(b"\x80\x02X\x01\0\0\0\xff."),
        "deep": archive(nested(5000)),
        "laughs": archive(laughs(9)),
        "itself": archive(b"\x80\x02}q\0" + s("a") + b"h\0s."),
        "key-tuple": archive(b"\x80\x02}" + t(i(1)) + tensor() + b"s."),
        "key-twice": archive(state(("w", tensor()), ("w", tensor()))),
        "list": archive(b"\x80\x02]" + tensor() + b"a."),
        "no-tensor": archive(state(("w", i(1)))),
        "beyond-storage": archive(state(("w", tensor(first=1)))),
        "stride-beyond": archive(state(("w", tensor(shape=(2, 2), stride=(3, 1))))),
        "stride-wraps": archive(state(("w", tensor(shape=(2**62, 2), stride=(4, 1))))),
        "negative-shape": archive(state(("w", tensor(shape=(-1,))))),
        "negative-stride": archive(state(("w", tensor(shape=(2,), stride=(-1,))))),
        "strides": archive(state(("w", tensor(shape=(2, 2), stride=(1,))))),
        "nine-dims": archive(state(("w", tensor(shape=(1,) * 9, stride=(1,) * 9)))),
        "complex": archive(state(("w", tensor(storage(cls="ComplexFloatStorage"))))),
        "storage-short": archive(GOOD, {"0": bytes(15)}),
        "storage-missing": archive(GOOD, {"1": bytes(16)}),
        "storage-negative": archive(state(("w", tensor(storage(n=-1))))),
        "storage-huge": archive(state(("w", tensor(storage(n=2**62))))),
        "storage-two-types": archive(state(("a", tensor()), ("b", tensor(storage(cls="IntStorage"))))),
        "pid": archive(state(("w", tensor(s("storage") + b"Q")))),
        "overlap": overlap(),
        "big-endian": archive(order="big"),
        "compressed": archive(compress=True),
        "dot-dot": with_record(zipfile.ZipInfo("archive/../../evil")),
        "absolute": with_record(zipfile.ZipInfo("/etc/evil")),
        "link": link(),
        "two-objects": with_record(zipfile.ZipInfo("other/data.pkl"), GOOD),
        "no-objects": archive(name="archive/x"),
        "truncated": archive()[:-1],
        "cut": archive()[:300],
        "crc": archive().replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v1", 1),
        "local-header": archive().replace(b"archive/data/0", b"archive/data/9", 1),
        "not-torch": b"GIF89a" + bytes(600),
        "tar": b"\0" * 257 + b"ustar" + b"\0" * 250,
        "legacy-system": legacy(b"\x80\x02" + g("os", "system") + t(s("echo bad")) + b"R.", [], b""),
        "legacy-big-endian": legacy(OLD, ["0"], one, little=False),
        "legacy-protocol": legacy(OLD, ["0"], one, protocol=1000),
        "legacy-truncated": legacy(OLD, ["0"], one[:-1]),
        "legacy-count": legacy(OLD, ["0"], struct.pack("<q", 5) + bytes(20)),
        "legacy-count-huge": legacy(OLD, ["0"], struct.pack("<Q", 2**63) + bytes(20)),
        "legacy-no-bytes": legacy(OLD, [], one),
        "legacy-view": legacy(state(("w", tensor(storage(view=t(s("1"), i(0), i(4)))))), ["0"], one),
        "legacy-unused": legacy(OLD, ["0", "1"], one + one),
        "legacy-magic": pickle.dumps(0x1950A86A20F9469CFC6D, 2) + pickle.dumps(1001, 2),
    }
    for name, data in bad.items():
        with open(path(f"bad-{name}.bin"), "wb") as f:
            f.write(data)
    assert torch.load(io.BytesIO(archive()))["w"].tolist() == [0.0] * 4  # what is not a lie is a file of torch.save
    assert torch.load(io.BytesIO(legacy(OLD, ["0"], one)))["w"].tolist() == [0.0] * 4


os.makedirs(HERE, exist_ok=True)
good()
hostile()
