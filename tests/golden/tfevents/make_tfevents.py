#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the bytes that tests/unit/base_tfevents.c compares with, as hexadecimal digits: one record of each kind of
event, made by the protobuf classes and the checksum of the Python package tensorboard (2.21).

    python make_tfevents.py
"""
import struct

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

WALL = 1700000000.25


def record(event):
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))])


def point(tag, value):
    return summary_pb2.Summary.Value(tag=tag, simple_value=value)


def text(tag, data):
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    return summary_pb2.Summary.Value(
        tag=tag,
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[data]),
        metadata=summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")))


def main():
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    points = summary_pb2.Summary(value=[point("train/loss", 2.5), point("train/lr", -0.1)])
    sample = summary_pb2.Summary(value=[text("samples/1", "Gr\u00fc\u00dfe\n".encode() * 20)])
    for event in (event_pb2.Event(wall_time=WALL, file_version="brain.Event:2"),
                  event_pb2.Event(wall_time=WALL + 1, step=301, session_log=start),
                  event_pb2.Event(wall_time=WALL + 2, step=301, summary=points),
                  event_pb2.Event(wall_time=WALL + 3, step=1 << 40, summary=sample)):
        print(record(event).hex())
    print(f"{masked_crc32c(b'123456789'):#x} {masked_crc32c(b''):#x}")


main()
