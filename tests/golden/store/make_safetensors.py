# SPDX-License-Identifier: Apache-2.0
"""Files as the Python libraries write them, which engine/store/safetensors_write.c must repeat byte for byte.

    python make_safetensors.py          (torch, safetensors, huggingface_hub; versions below) writes safetensors/

all.safetensors: every dtype and names with every kind of escape. sharded/: tensors t0..t8 in that order, cut at 100
bytes, one of them larger than a file may be. Made with safetensors 0.8.0, torch 2.15.0, huggingface_hub 1.x.
"""
import json
import os

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "safetensors")
DTYPES = ["bool", "uint8", "int8", "float8_e5m2", "float8_e4m3fn", "int16", "uint16", "float16", "bfloat16", "int32",
          "uint32", "float32", "float64", "int64", "uint64"]
NAMES = ["zeta", "B", "a.b.weight", "\u00e9", "\U0001f600", 'q"\\/', "\b\f\n\r\t\x01\x1f\x7f", "\u2028"]


def main():
    os.makedirs(os.path.join(HERE, "sharded"), exist_ok=True)
    tensors = {"d." + d: torch.arange(3).to(getattr(torch, d)) for d in DTYPES}
    tensors |= {n: torch.full((2, 3), float(i)) for i, n in enumerate(NAMES)}
    tensors |= {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}
    save_file(tensors, os.path.join(HERE, "all.safetensors"), metadata={"format": "pt"})

    sizes = [5, 10, 40, 11, 3, 26, 25, 1, 7]  # elements of four bytes
    state = {f"t{i}": torch.arange(n, dtype=torch.float32) + 100 * i for i, n in enumerate(sizes)}
    split = split_torch_state_dict_into_shards(state, filename_pattern="model{suffix}.safetensors", max_shard_size=100)
    for name, keys in split.filename_to_tensors.items():
        save_file({k: state[k] for k in keys}, os.path.join(HERE, "sharded", name), metadata={"format": "pt"})
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    with open(os.path.join(HERE, "sharded", "model.safetensors.index.json"), "w") as f:
        f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


main()
