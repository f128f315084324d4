#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make classes.txt: every model_type that transformers 5.23.0 has a class for to write texts (causal),
texts about pictures (image), or texts from texts (seq2seq), and whether lf-convert imports it.

    known    a golden directory here or in ../vlm has a config.json of this model_type, or of one whose
             tensors and keys are the same (SAME)
    later    none has; lf-convert says in one line what it needs (engine/convert/later.c)

classes_test.c holds lf-convert to it. Needs transformers alone."""
import glob
import json
import os
import sys

import transformers
from transformers.models.auto import modeling_auto

VERSION = "5.23.0"
HERE = os.path.dirname(os.path.abspath(__file__))
MAPS = (("causal", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        ("image", modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        ("seq2seq", modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES))
SAME = {"smolvlm": "idefics3", "camembert": "roberta"}


def golden_types():
    types = set()
    for folder in HERE, os.path.join(HERE, os.pardir, "vlm"):
        for path in glob.glob(os.path.join(folder, "**", "config.json"), recursive=True):
            with open(path) as f:
                types.add(json.load(f)["model_type"])
    return types


def main():
    if transformers.__version__ != VERSION:
        sys.exit("this is transformers %s; classes.txt is of %s" % (transformers.__version__, VERSION))
    known = golden_types()
    with open(os.path.join(HERE, "classes.txt"), "w") as f:
        f.write("# map of transformers %s, model_type, known or later; by make_classes.py\n" % VERSION)
        for name, types in MAPS:
            for one in types:
                f.write("%s %s %s\n" % (name, one, "known" if SAME.get(one, one) in known else "later"))


if __name__ == "__main__":
    main()
