#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shards that HDF5 itself would read, and that our reader must refuse: what they hold leads out of the file, needs a
filter, or is not there. Run in this folder with h5py; the files are committed. `plain.h5` is the good one of the family:
it proves that the others are refused for the reason in their name."""
import h5py
import numpy as np

TOKENS = np.arange(8, dtype="<u2")


def shard(name, tokens):
    with h5py.File(name, "w", libver=("v110", "v110")) as f:
        f.attrs["lf_format"] = np.bytes_("lf-shard-1")
        f.attrs["tokenizer_sha256"] = np.bytes_("a" * 64)
        f.attrs["vocab_size"] = np.int64(100)
        f.attrs["eos_id"] = np.int64(0)
        f.attrs["source"] = np.bytes_("hostile")
        f.create_dataset("doc_offsets", data=np.array([0, 3, 8], "<u8"), track_times=False)
        tokens(f)


def virtual(f):
    layout = h5py.VirtualLayout(shape=(8,), dtype="<u2")
    layout[:] = h5py.VirtualSource("plain.h5", "tokens", shape=(8,))
    f.create_virtual_dataset("tokens", layout)


def holes(f):
    # Chunked, every chunk but the second written: its elements would read as zeros without a word.
    d = f.create_dataset("tokens", shape=(8,), dtype="<u2", chunks=(2,), track_times=False)
    d[0:2] = 1
    d[4:8] = 2


def soft(f):
    f.create_dataset("elsewhere", data=TOKENS, track_times=False)
    f["tokens"] = h5py.SoftLink("/elsewhere")


shard("plain.h5", lambda f: f.create_dataset("tokens", data=TOKENS, track_times=False))
shard("softlink.h5", soft)
shard("externallink.h5", lambda f: f.__setitem__("tokens", h5py.ExternalLink("plain.h5", "/tokens")))
shard("virtual.h5", virtual)
shard("gzip.h5", lambda f: f.create_dataset("tokens", data=TOKENS, chunks=(8,), compression="gzip", track_times=False))
shard("externalstorage.h5", lambda f: f.create_dataset("tokens", shape=(8,), dtype="<u2", external=[("plain.h5", 0, 16)],
                                                       track_times=False))
shard("bigendian.h5", lambda f: f.create_dataset("tokens", data=TOKENS.astype(">u2"), track_times=False))
shard("signed.h5", lambda f: f.create_dataset("tokens", data=TOKENS.astype("<i4"), track_times=False))
shard("matrix.h5", lambda f: f.create_dataset("tokens", data=TOKENS.reshape(2, 4), track_times=False))
shard("unwritten.h5", lambda f: f.create_dataset("tokens", shape=(1 << 40,), dtype="<u2", track_times=False))
shard("manychunks.h5", lambda f: f.create_dataset("tokens", shape=(1 << 40,), dtype="<u2", chunks=(1,), track_times=False))
shard("holes.h5", holes)
shard("group.h5", lambda f: f.create_group("tokens"))
shard("missing.h5", lambda f: None)
