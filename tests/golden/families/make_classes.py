#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make classes.txt: every model_type that transformers 5.23.0 has a class for to write texts (causal),
to write texts about pictures (image), texts from texts (seq2seq) or to tell classes of pictures
(told), and whether lf-convert imports it.

    known    a golden directory here or in ../vlm has a config.json of this model_type, or of one whose
             tensors and keys are the same (SAME)
    encoder  its encoder is known, and is refused with a head for classes of pictures
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
TOLD = modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
ENCODERS = {"clip", "siglip", "siglip2", "dinov2"}
KNOWN = {"vit", "deit", "swin", "swinv2", "convnext"}
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
        for one, names in TOLD.items():
            if one == "shieldgemma2":  # which writes texts, and is above
                continue
            f.write("told %s %s\n" % (one, "encoder" if one in ENCODERS else "known" if one in KNOWN else "later"))


if __name__ == "__main__":
    main()
