#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make buckets.inc: the buckets that transformers' T5 gives distances, for seq2seq_test.c. Needs torch and transformers."""
import os

import torch
from transformers.models.t5.modeling_t5 import T5Attention

REACH = 140
ROWS = ((True, 32, 128), (False, 32, 128), (True, 8, 12), (False, 8, 12), (False, 64, 100))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "buckets.inc"), "w") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0\n *\n * By make_buckets.py: of distances -%d to %d, key less query. */\n" % (REACH, REACH))
    f.write("enum { BUCKET_REACH = %d };\nstruct bucket_row {\n    bool both;\n    int64_t buckets, distance;\n    int8_t of[%d];\n};\n" % (REACH, 2 * REACH + 1))
    f.write("/* clang-format off */\nstatic const struct bucket_row bucket_rows[] = {\n")
    for both, buckets, distance in ROWS:
        of = T5Attention._relative_position_bucket(torch.arange(-REACH, REACH + 1), both, buckets, distance).tolist()
        f.write("    {%s, %d, %d,\n     {" % ("true" if both else "false", buckets, distance))
        f.write(",\n      ".join(", ".join(map(str, of[i:i + 20])) for i in range(0, len(of), 20)))
        f.write("}},\n")
    f.write("};\n/* clang-format on */\n")
