# SPDX-License-Identifier: Apache-2.0
# Folders that Megatron-Energon prepared, and the rows of their samples: python3 make_energon.py
# Needs megatron-energon (7 or later). Writes folders.tar.xz and rows/NAME.jsonl, which hold what energon itself yields of a
# split, in order, in the form of rows of messages (docs/tutorial-pictures.md).
import base64
import io
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

from megatron.energon import WorkerConfig
from megatron.energon.dataset_config import get_dataset_from_config
from megatron.energon.epathlib import EPath
from megatron.energon.flavors import BaseWebdatasetFactory

here = Path(__file__).resolve().parent
work = here / "folders"


def png(w, h, seed):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes((seed * 37 + x * y * 5 + x) % 256 for x in range(3 * w)) for y in range(h))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as t:
        for name, data in members:
            data = data if isinstance(data, bytes) else data.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))


def folder(name, shards, dataset, splits, exclude=(), loader=None):
    d = work / name
    for shard, members in shards.items():
        tar(d / shard, members)
    BaseWebdatasetFactory.prepare_dataset(
        EPath(d), list(shards), split_parts_patterns=[(k, v) for k, v in splits], tar_index_only=False, workers=1
    )
    meta = d / ".nv-meta"
    (meta / "dataset.yaml").write_text(dataset)
    if loader:
        (meta / "sample_loader.py").write_text(loader)
    if exclude:
        text = (meta / "split.yaml").read_text()
        (meta / "split.yaml").write_text(text.replace("exclude: []", "exclude:" + "".join("\n- %s" % e for e in exclude)))


def sample_type(cls, rest):
    return "sample_type:\n  __module__: %s\n  __class__: %s\n%s" % (
        "mix_sample" if cls == "MultiMixQASample" else "megatron.energon", cls, rest)


def url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def turns(question, answer, images):
    question = question if "<image>" in question else "<image>" * len(images) + question
    return {"images": [url(i) for i in images],
            "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def row(s):
    kind = type(s).__name__
    if kind == "TextSample":
        return {"text": s.text}
    if kind == "CaptioningSample":
        return turns("", s.caption, [s.image])
    if kind == "OCRSample":
        return turns("", s.text, [s.image])
    if kind == "VQASample":
        answer = s.answers
        if isinstance(answer, list):
            weights = s.answer_weights or [1] * len(answer)
            answer = answer[weights.index(max(weights))]
        return turns(s.context, answer, [s.image])
    if kind == "MultiMixQASample":
        first = [{"role": "system", "content": s.system}] if s.system else []
        images = s.image if isinstance(s.image, list) else [s.image] if s.image else []
        return {"images": [url(i) for i in images], "messages": first + s.messages}
    if kind == "InterleavedSample":
        parts = [{"type": "image", "image": url(p)} if isinstance(p, bytes) else {"type": "text", "text": p} for p in s.sequence]
        return {"messages": [{"role": "assistant", "content": parts}]}
    raise SystemExit(kind)


class Parts:
    """Texts and JSON as they are decoded, pictures as their bytes."""

    def __call__(self, sample):
        out = {}
        for k, v in sample.items():
            end = k.rsplit(".", 1)[-1]
            out[k] = json.loads(v) if end == "json" else v.decode() if end == "txt" else v
        return out

    def config(self):
        return {}


def rows(name, split):
    worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
    data = get_dataset_from_config(
        EPath(work / name), split_part=split, training=False, worker_config=worker, decoder=Parts()
    ).build()
    worker.worker_activate(0)
    with (here / "rows" / ("%s-%s.jsonl" % (name, split))).open("w") as f:
        for s in data:
            f.write(json.dumps(row(s), ensure_ascii=False) + "\n")
    worker.worker_deactivate()


P = [png(9 + i, 7 + i % 3, i) for i in range(8)]
shutil.rmtree(work, ignore_errors=True)
shutil.rmtree(here / "rows", ignore_errors=True)
(here / "rows").mkdir()
(work / "mix_sample.py").parent.mkdir(exist_ok=True)
sys.path.insert(0, str(here))

folder(
    "caption",
    {"s_%02d.tar" % k: [("d/%d%d.%s" % (k, i, e), P[i] if e == "png" else "caption %d of %d é" % (i, k)) for i in range(3) for e in ("png", "txt")]
     for k in range(4)},
    sample_type("CaptioningSample", "field_map:\n  image: jpg,png\n  caption: txt # what is said\n"),
    [("train", r"s_0[0-2]\.tar"), ("val", r"s_03\.tar")], ["s_01.tar", "s_02.tar/d/21"],
)
folder(
    "vqa",
    {"a/x.tar": [
        ("q1.img.png", P[0]), ("q1.qa.json", json.dumps({"q": "What <image> is?", "a": ["no", "yes", "maybe"], "w": [0.2, 0.5, 0.5]})),
        ("__meta__/no.txt", "x"), ("q1.cls", "7"),
        ("q2.img.png", P[1]), ("q2.qa.json", json.dumps({"q": "And?", "a": ["first", "last"], "w": [1, 1]})),
    ], "a/y.tar": [("q3.qa.json", json.dumps({"q": "Third", "a": ["one"], "w": [1]})), ("q3.img.png", P[2])]},
    sample_type("VQASample", "field_map:\n  image: img.png\n  context: qa.json[q]\n  answers: qa.json[a]\n  answer_weights: 'qa.json[w]'\n"),
    [("train", r"a/x\.tar"), ("val", r"a/y\.tar")],
)
folder(
    "ocr", {"o.tar": [("1.png", P[3]), ("1.json", json.dumps({"l": [{"t": "Ab"}, {"t": "cD"}]}))]},
    sample_type("OCRSample", "field_map: {image: png, text: 'json[x],json[l][1][t]'}\n"), [("train", ".*")],
)
folder(
    "text", {"t.tar": [("%d.txt" % i, "text %d" % i) for i in range(3)]},
    sample_type("TextSample", "field_map:\n  text: txt\n"), [("train", ".*")],
)
folder(
    "inter",
    {"i.tar": [
        ("1.json", json.dumps({"images": [None, "b.png", None], "texts": ["before ", None, " after"]})), ("1.b.png", P[4]),
        ("2.json", json.dumps({"images": ["x.png", "y.png", None], "texts": [None, None, "both"]})), ("2.x.png", P[5]), ("2.y.png", P[6]),
    ]},
    sample_type("InterleavedSample", "part_filter: sample_loader.py:part_filter\nsample_loader: sample_loader.py:sample_loader\n"), [("train", ".*")],
    loader="""def sample_loader(raw):
    j = raw["json"]
    return dict(__key__=raw["__key__"], sequence=[raw[i] if t is None else t for i, t in zip(j["images"], j["texts"])])


def part_filter(part):
    return True
""",
)
MIX = """def sample_loader(sample):
    j = sample["json"]
    system = None
    messages = []
    for m in j["texts"]:
        if m["role"] == "system":
            system = m["content"]
        else:
            messages.append(m)
    image = [sample[n] for n in j["name"] or []]
    return dict(__key__=sample["__key__"], image=image or None, messages=messages, system=system)


def part_filter(part):
    return True
"""
(here / "mix_sample.py").write_text(
    """from typing import List, Optional

from megatron.energon import Sample
from megatron.energon.edataclass import edataclass


@edataclass
class MultiMixQASample(Sample):
    messages: List[dict]
    video: Optional[list] = None
    image: Optional[list] = None
    system: Optional[str] = None
""")
talk = [{"role": "user", "content": "<image>and<image>?"}, {"role": "assistant", "content": "two"}]
folder(
    "mix",
    {"m.tar": [
        ("k1.0_image", P[0]), ("k1.1_image", P[7]), ("k1.json", json.dumps({"texts": [{"role": "system", "content": "Be short."}] + talk, "media": "image", "name": ["0_image", "1_image"]})),
        ("k2.json", json.dumps({"texts": [{"role": "user", "content": "none"}, {"role": "assistant", "content": "is"}], "media": "text", "name": None})),
    ]},
    sample_type("MultiMixQASample", "part_filter: sample_loader.py:part_filter\nsample_loader: sample_loader.py:sample_loader\n"), [("train", ".*")],
    loader=MIX,
)
folder(
    "mixmap", {"m.tar": [("1.png", P[2]), ("1.json", json.dumps({"m": [{"role": "user", "content": "<image> what"}, {"role": "assistant", "content": "that"}], "s": "Sys"}))]},
    sample_type("MultiMixQASample", "field_map:\n  image: png\n  messages: json[m]\n  system: json[s]\n"), [("train", ".*")],
)
for name, split in (("caption", "train"), ("caption", "val"), ("vqa", "train"), ("vqa", "val"), ("ocr", "train"), ("text", "train"), ("inter", "train"),
                    ("mix", "train"), ("mixmap", "train")):
    rows(name, split)
(here / "mix_sample.py").unlink()
for d in sorted(work.rglob("index.*")) + sorted(work.rglob("*.idx")) + sorted(work.rglob("__pycache__")):
    shutil.rmtree(d) if d.is_dir() else d.unlink()  # random access and caches, which are not read here
subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-C", str(here), "-cJf",
                str(here / "folders.tar.xz"), "folders"], check=True)
shutil.rmtree(work)
