# SPDX-License-Identifier: Apache-2.0
"""Hold expected.json and the datasets here to Megatron Core itself (pip install megatron-core; checked with 0.16.1):

    python check_megatron.py
"""
import hashlib
import json
import os

import numpy as np
from megatron.core.datasets import helpers_cpp
from megatron.core.datasets.blended_megatron_dataset_builder import _get_size_per_split_per_dataset
from megatron.core.datasets.blended_megatron_dataset_config import convert_split_vector_to_split_matrix, parse_and_normalize_split
from megatron.core.datasets.gpt_dataset import GPTDataset, _build_document_index, _build_shuffle_index
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import normalize

HERE = os.path.dirname(os.path.abspath(__file__))


class Asking:
    """What GPTDataset._get_num_epochs reads of its dataset."""

    def __init__(self, samples, T):
        self.num_samples = samples
        self.config = type("C", (), {"sequence_length": T, "add_extra_token_to_sequence": 1})


def same(want, got):
    got = np.asarray(got, dtype=np.int64).reshape(-1)
    if "values" in want:
        return got.tolist() == want["values"]
    return len(got) == want["n"] and hashlib.sha256(got.astype("<i8").tobytes()).hexdigest() == want["sha256"]


def check_order(c):
    lengths = c["lengths"] if isinstance(c["lengths"], list) else [1 + (i * 7919) % 613 for i in range(c["lengths"]["n"])]
    lengths = np.array(lengths, dtype=np.int32)
    begin, end = convert_split_vector_to_split_matrix(parse_and_normalize_split(c["split"]))[c["part"]]
    docs = np.arange(int(round(begin * float(len(lengths)))), int(round(end * float(len(lengths)))), dtype=np.int32)
    tokens, T = int(lengths[docs].sum()), c["T"]
    epochs = GPTDataset._get_num_epochs(Asking(c["samples"] or None, T), tokens)
    before = ((epochs - 1) * tokens - 1) // T if epochs > 1 else 0
    apart = epochs > 1 and c["samples"] - before < int(0.80 * ((tokens - 1) // T))
    rng = np.random.RandomState(c["seed"])
    d = _build_document_index(docs, epochs, rng, apart)
    s = helpers_cpp.build_sample_idx_int32(lengths, d, T, epochs, tokens, True, 1)
    n = s.shape[0] - 1
    sh = _build_shuffle_index(before if apart else n, n, rng)
    return same(c["documents"], d) and same(c["sample_index"], s) and same(c["shuffle"], sh)


def check_blend(c):
    once = normalize(c["weights"])
    w = normalize(once)
    asked = [x[0] for x in _get_size_per_split_per_dataset(once, [c["samples"]], surplus=0.005)]
    who, which = np.zeros(c["samples"], dtype=np.int16), np.zeros(c["samples"], dtype=np.int64)
    helpers_cpp.build_blending_indices(who, which, w, len(w), c["samples"], False)
    return asked == c["asked"] and same(c["dataset"], who) and same(c["sample"], which)


def check_dataset(name, docs):
    d = IndexedDataset(os.path.join(HERE, name), multimodal=name == "modes")
    index = np.cumsum([0] + [len(x) for x in docs]).tolist()
    rows = [d[i][0] if name == "modes" else d[i] for i in range(len(d))]
    return d.document_indices.tolist() == index and [r.tolist() for r in rows] == [s for x in docs for s in x]


def main():
    with open(os.path.join(HERE, "expected.json")) as f:
        data = json.load(f)
    bad = [c["name"] for c in data["orders"] if not check_order(c)]
    bad += [c["weights"] for c in data["blends"] if not check_blend(c)]
    bad += [name for name, docs in data["datasets"].items() if not check_dataset(name, docs)]
    print("different:", bad or "nothing")
    return 1 if bad else 0


raise SystemExit(main())
