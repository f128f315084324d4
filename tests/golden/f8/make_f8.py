# SPDX-License-Identifier: Apache-2.0
# What torch makes of 8-bit floats: python3 make_f8.py >f8.txt
# First the 256 values of each type as the bits of an f32 (NaN: 7fc00000 with any sign). Then, of narrowing the f32 with
# bits 257 i, i < 2^24, where it is at most the largest value of the type: sum of (code + 1)(2 i + 1) modulo 2^64.
import numpy as np
import torch

TYPES = ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0))

codes = torch.arange(256, dtype=torch.uint8)
tables = []
for t, _ in TYPES:
    bits = codes.view(t).to(torch.float32).numpy().view(np.uint32).copy()
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    bits[nan] = 0x7FC00000
    tables.append(bits)
for i in range(256):
    print("%08x %08x" % (tables[0][i], tables[1][i]))
i = np.arange(1 << 24, dtype=np.uint64)
x = torch.from_numpy((i * 257 % (1 << 32)).astype(np.uint32).view(np.float32))
for t, most in TYPES:
    code = x.to(t).view(torch.uint8).numpy().astype(np.uint64)
    take = (x.abs() <= most).numpy()
    print("sum %016x of %d" % (((code + 1) * (2 * i + 1))[take].sum(dtype=np.uint64), take.sum()))
