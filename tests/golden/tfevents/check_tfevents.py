#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the event files of a run with TensorBoard's own reader and compares every point with the JSON lines that the
same run wrote: tags, steps, values rounded to f32, wall times, and after a resume no point that was written behind the
step from which the run went on.

    lf-pretrain ... --tensorboard DIR --metrics-jsonl FILE
    python check_tfevents.py DIR FILE
"""
import json
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def curves(path):
    """{tag: {step: (value, time)}}, what a resume overwrites left out."""
    out, behind = {}, 0
    for line in open(path, encoding="utf-8"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # a start was killed within it
        step = record["step"]
        if record.get("resumed"):
            behind += sum(s > step for points in out.values() for s in points)
            out = {tag: {s: v for s, v in points.items() if s <= step} for tag, points in out.items()}
            continue
        for key, value in record.items():
            if key not in ("step", "t"):
                tag = "valid/" + key[6:] if key.startswith("valid_") else "train/" + key
                value = struct.unpack("<f", struct.pack("<f", value))[0]
                out.setdefault(tag, {})[step] = (value, record["t"])
    return {tag: points for tag, points in out.items() if points}, behind


def main():
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0}).Reload()
    want, behind = curves(sys.argv[2])
    got = {}
    for tag in events.Tags()["scalars"]:
        points = events.Scalars(tag)
        got[tag] = {e.step: (e.value, e.wall_time) for e in points}
        assert len(got[tag]) == len(points), f"{tag}: a step has two points"
    texts = 0
    for tag in events.Tags()["tensors"]:
        meta = events.SummaryMetadata(tag)
        if meta.plugin_data.plugin_name == "text":
            for e in events.Tensors(tag):
                texts += 1
                if texts <= 4:
                    print(tag, e.step, e.tensor_proto.string_val[0].decode())
        else:
            got[tag] = {e.step: (e.tensor_proto.float_val[0], e.wall_time) for e in events.Tensors(tag)}
    for tag in sorted(set(want) | set(got)):
        assert want.get(tag) == got.get(tag), f"{tag}: {want.get(tag)} in the lines, {got.get(tag)} in TensorBoard"
    print(f"{len(got)} curves, {sum(map(len, got.values()))} points equal, {texts} texts, "
          f"{behind} points that a resume overwrote are gone")
    assert got


main()
