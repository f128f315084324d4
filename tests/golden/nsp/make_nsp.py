#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden directory of next sentence prediction in the folder bert beside this script:

    make_nsp.py

A development tool (torch, transformers, safetensors, numpy), as ../families/make_families.py is, from which it takes how weights are
made and run in f64: BertForPreTraining of transformers over pairs of texts of which some tokens are hidden.

    config.json, model.safetensors   as the class saves them, f32; decoder and embedding are one tensor
    expected.safetensors             input_ids, token_type_ids, labels i64 [B, T] (labels -100: not hidden), next_sentence_label i64 [B];
                                     loss f64 [2]: that of hidden tokens and that of pairs, each a mean; grad.<name> f32, gradients of
                                     their sum
"""
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from configs import BERT  # noqa: E402
from make_families import Double, heat  # noqa: E402

B, T, CLS, SEP, MASK = 4, 17, 1, 2, 3
ENDS = [6, 9, 12, 8]  # where the first text of each pair ends


def main():
    folder = os.path.join(HERE, "bert")
    config = tf.BertConfig(**dict(BERT, layer_norm_eps=1e-6, pad_token_id=0, architectures=["BertForPreTraining"]))
    config._attn_implementation = "eager"
    with Double(tf.BertForPreTraining):
        torch.manual_seed(0)
        model = tf.BertForPreTraining(config).eval().double()
        heat(model, 7)
        g = torch.Generator().manual_seed(5)
        ids = torch.randint(4, config.vocab_size, (B, T), generator=g)
        types = torch.zeros(B, T, dtype=torch.int64)
        ids[:, 0], ids[:, -1] = CLS, SEP
        for b, end in enumerate(ENDS):
            ids[b, end] = SEP
            types[b, end + 1:] = 1
        labels = torch.where((torch.rand(B, T, generator=g) < 0.25) & (ids > MASK), ids, -100)
        read = torch.where(labels >= 0, MASK, ids)
        pairs = torch.tensor([0, 1, 1, 0])
        out = model(input_ids=read, token_type_ids=types, labels=labels, next_sentence_label=pairs)
        tokens = F.cross_entropy(out.prediction_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        follows = F.cross_entropy(out.seq_relationship_logits, pairs)
        assert abs(float((out.loss - tokens - follows).detach())) < 1e-12
        out.loss.backward()
    params = dict(model.named_parameters())
    os.makedirs(folder, exist_ok=True)
    model.float().save_pretrained(folder)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    missing = set(weights) - set(params)
    assert not missing, missing
    found = {"input_ids": read, "token_type_ids": types, "labels": labels, "next_sentence_label": pairs,
             "loss": torch.stack([tokens.detach(), follows.detach()])}
    found.update({"grad." + n: params[n].grad.float().contiguous() for n in weights})
    save_file(found, os.path.join(folder, "expected.safetensors"), metadata={
        "format": "lf-expected-1", "family": "bert", "source": "make_nsp.py, transformers %s, torch %s" % (tf.__version__, torch.__version__)})
    c = json.load(open(os.path.join(folder, "config.json")))
    print(c["architectures"], "loss %.6f + %.6f" % (float(tokens), float(follows)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    main()
