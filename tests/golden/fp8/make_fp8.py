# SPDX-License-Identifier: Apache-2.0
"""Blocks of 8-bit floats as transformers makes and reads them: expected.safetensors.

    make_fp8.py OUT

x is a matrix whose blocks of 6 x 7 are of all sizes; codes.FORM and scales.FORM are what Fp8Quantize makes of it, values.FORM what
Fp8Dequantize reads back as bf16, for scales of f32 (float) and powers of two (ue8m0). values.bf16 is of the scales of `float` rounded to bf16.
"""
import sys
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

ROWS, COLS = 6, 7


def matrix():
    torch.manual_seed(17)
    x = torch.randn(4, ROWS, 8, COLS)
    size = torch.logspace(-9, 9, 32).reshape(4, 1, 8, 1)
    x = x * size
    x[0, :, 1] = 0  # nothing
    x[1, :, 2] *= 1e-6  # far from the others
    x[2, 0, 3, 0] = 4e20  # one value above all others of its block
    x[3, :, 4] = torch.sign(x[3, :, 4]) * 2.0**-3  # 448 times a power of two once divided
    x[3, 0, 5] = 448.0 * 2.0**-4 * torch.tensor([1.0, -1, 0.5, 0.25, 0, -0.0, 1])
    x[3, 1:, 5] *= 1e-9
    return x.reshape(4 * ROWS, 8 * COLS).to(torch.bfloat16)


def main(out):
    x = matrix()
    made = {"x": x}
    for form in ("float", "ue8m0"):
        config = SimpleNamespace(weight_block_size=[ROWS, COLS], scale_fmt=form)
        op = Fp8Quantize(SimpleNamespace(quantization_config=config))
        got = op.convert({"m.weight": x})
        made["codes." + form], made["scales." + form] = got["m.weight"], got["m.weight_scale_inv"]
        back = Fp8Dequantize(SimpleNamespace(quantization_config=config))
        made["values." + form] = back._dequantize_one(made["codes." + form], made["scales." + form], torch.bfloat16)
        if form == "float":
            half = made["scales." + form].to(torch.bfloat16)
            made["values.bf16"] = back._dequantize_one(made["codes." + form], half, torch.bfloat16)
    save_file(made, out)


main(sys.argv[1])
