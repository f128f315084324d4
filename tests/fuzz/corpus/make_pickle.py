# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_pickle: the objects of the files in tests/golden/store/torch and megatron_ckpt. python make_pickle.py"""
import os
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
STORE = os.path.join(HERE, "../../golden/store")
FILES = ["torch/good.bin", "torch/protocol4.bin", "torch/bad-laughs.bin", "torch/bad-itself.bin", "torch/bad-inst.bin",
         "torch/bad-strides.bin", "torch/bad-storage-two-types.bin", "megatron_ckpt/old-v0-tp2-pp2/iter_0000020/mp_rank_00_000/model_optim_rng.pt"]

os.makedirs(os.path.join(HERE, "pickle"), exist_ok=True)
for f in FILES:
    z = zipfile.ZipFile(os.path.join(STORE, f))
    name = next(n for n in z.namelist() if n.endswith("data.pkl"))
    with open(os.path.join(HERE, "pickle", os.path.basename(f).split(".")[0] + ".pkl"), "wb") as out:
        out.write(z.read(name))
