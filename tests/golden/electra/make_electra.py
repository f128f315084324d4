#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden directories of ELECTRA's joint objective, generator and discriminator beside this script:

    make_electra.py

A development tool (torch, transformers, safetensors, numpy), as ../families/make_families.py is, from which it takes how weights are
made and run in f64: ElectraForMaskedLM and ElectraForPreTraining of transformers on one embedding (words, positions, types and the norm
behind them), over texts of which some tokens are hidden, and the same texts with given words in place of these.

    config.json, model.safetensors   as the classes save them, f32
    expected.safetensors             of discriminator: input_ids (hidden), drawn_ids, token_type_ids, labels i64 [B, T] (-100: not
                                     hidden); loss f64 [2]: the mean over hidden tokens of the generator, and the mean over all of the
                                     discriminator; of both: grad.<name> f32, gradients of the first plus 50 times the second
"""
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

B, T, MASK, WEIGHT, EMBED = 4, 17, 3, 50.0, 10


def config_of(class_name, **more):
    c = tf.ElectraConfig(**{**BERT, "architectures": [class_name], "embedding_size": EMBED, "layer_norm_eps": 1e-6, "pad_token_id": 0, **more})
    c._attn_implementation = "eager"
    return c


def main():
    small = dict(hidden_size=8, num_attention_heads=2, intermediate_size=14, num_hidden_layers=1)
    with Double(tf.ElectraForPreTraining):
        torch.manual_seed(0)
        said = tf.ElectraForMaskedLM(config_of("ElectraForMaskedLM", **small)).eval().double()
        told = tf.ElectraForPreTraining(config_of("ElectraForPreTraining")).eval().double()
        heat(said, 7)
        heat(told, 8)
        said.electra.embeddings = told.electra.embeddings
        said.generator_lm_head.weight = told.electra.embeddings.word_embeddings.weight
        g = torch.Generator().manual_seed(5)
        vocab = told.config.vocab_size
        ids = torch.randint(4, vocab, (B, T), generator=g)
        types = torch.zeros(B, T, dtype=torch.int64)
        types[:, 9:] = 1
        hidden = torch.rand(B, T, generator=g) < 0.3
        labels = torch.where(hidden, ids, -100)
        drawn = torch.where(hidden & (torch.rand(B, T, generator=g) < 0.7), torch.randint(4, vocab, (B, T), generator=g), ids)
        read = torch.where(hidden, MASK, ids)
        logits = said(input_ids=read, token_type_ids=types).logits
        first = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        out = told(input_ids=drawn, token_type_ids=types, labels=(drawn != ids).long())
        second = F.binary_cross_entropy_with_logits(out.logits, (drawn != ids).double())
        assert abs(float((out.loss - second).detach())) < 1e-12
        (first + WEIGHT * second).backward()
    for model, name in ((said, "generator"), (told, "discriminator")):
        folder = os.path.join(HERE, name)
        os.makedirs(folder, exist_ok=True)
        params = dict(model.named_parameters())
        model.float().save_pretrained(folder)
        weights = load_file(os.path.join(folder, "model.safetensors"))
        save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        missing = set(weights) - set(params)
        assert not missing, missing
        found = {"grad." + n: params[n].grad.float().contiguous() for n in weights}
        if model is told:
            found.update({"input_ids": read, "drawn_ids": drawn, "token_type_ids": types, "labels": labels,
                          "loss": torch.stack([first.detach(), second.detach()])})
        save_file(found, os.path.join(folder, "expected.safetensors"), metadata={
            "format": "lf-expected-1", "family": "electra",
            "source": "make_electra.py, transformers %s, torch %s" % (tf.__version__, torch.__version__)})
    print("loss %.6f + %g * %.6f, %d hidden, %d replaced" % (float(first.detach()), WEIGHT, float(second.detach()), int(hidden.sum()), int((drawn != ids).sum())))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    main()
