#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the folders beside this script: tiny models that classify texts and tokens, measure texts and find answers, as transformers
publishes them, what they say of some texts in f64, and the gradients of a sum of that.

    make_heads.py [bert-text | ...]

A development tool (torch, transformers, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors  the class with its head, f32
    expected.safetensors            input_ids i64 [B, T]; token_type_ids i64 [B, T] where the model has two types; logits f64 [B, T, N]:
                                    what the head gives for each token, of which that of the text itself is read at one (it is held to
                                    the model's own answer); weights f64 [B, T, N]: of the sum whose gradients are in NAME-grad, 0 where
                                    nothing is read
    NAME-grad/                      these gradients under the names of the weights: imported by the same rows

All in f64, with hot weights (see ../families/make_families.py, from where they come).
"""
import os
import shutil
import sys

import numpy as np
import torch
import transformers as tf
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from make_families import Double, heat  # noqa: E402

B, T, V = 3, 12, 40
ENCODER = dict(vocab_size=V, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20, pad_token_id=0)
BERT = dict(ENCODER, max_position_embeddings=32, type_vocab_size=2)
ROBERTA = dict(ENCODER, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
ELECTRA = dict(BERT, embedding_size=8)
DISTIL = dict(vocab_size=V, dim=12, n_layers=2, n_heads=2, hidden_dim=20, max_position_embeddings=32, pad_token_id=0)
MODERN = dict(ENCODER, num_hidden_layers=3, max_position_embeddings=32, local_attention=6, intermediate_size=10, classifier_pooling="cls",
              norm_eps=1e-5, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)
QWEN = dict(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=20,
            max_position_embeddings=32, tie_word_embeddings=False, pad_token_id=1, bos_token_id=None, eos_token_id=2)
MODELS = {
    "bert-text": (tf.BertForSequenceClassification, tf.BertConfig(**BERT, num_labels=3)),
    "bert-token": (tf.BertForTokenClassification, tf.BertConfig(**BERT, num_labels=5)),
    "bert-span": (tf.BertForQuestionAnswering, tf.BertConfig(**BERT)),
    "roberta-text": (tf.RobertaForSequenceClassification, tf.RobertaConfig(**ROBERTA, num_labels=1, problem_type="regression")),
    "roberta-token": (tf.RobertaForTokenClassification, tf.RobertaConfig(**ROBERTA, num_labels=4)),
    "electra-text": (tf.ElectraForSequenceClassification, tf.ElectraConfig(**ELECTRA, num_labels=3)),
    "electra-token": (tf.ElectraForTokenClassification, tf.ElectraConfig(**dict(ELECTRA, embedding_size=12), num_labels=4)),
    "electra-span": (tf.ElectraForQuestionAnswering, tf.ElectraConfig(**ELECTRA)),
    "electra-replaced": (tf.ElectraForPreTraining, tf.ElectraConfig(**ELECTRA, num_labels=1)),
    "distilbert-text": (tf.DistilBertForSequenceClassification, tf.DistilBertConfig(**DISTIL, num_labels=2)),
    "distilbert-span": (tf.DistilBertForQuestionAnswering, tf.DistilBertConfig(**DISTIL)),
    "modernbert-text": (tf.ModernBertForSequenceClassification, tf.ModernBertConfig(**MODERN, num_labels=3)),
    "modernbert-token": (tf.ModernBertForTokenClassification, tf.ModernBertConfig(**MODERN, num_labels=4)),
    "qwen2-text": (tf.Qwen2ForSequenceClassification, tf.Qwen2Config(**QWEN, num_labels=3)),
}


def head(model, h):
    """What the head gives for each token of hidden states [1, T, C]."""
    if hasattr(model, "score"):
        return model.score(h)
    if hasattr(model, "pre_classifier"):
        return model.classifier(torch.relu(model.pre_classifier(h)))
    if hasattr(model, "head"):
        return model.classifier(model.head(h))
    if hasattr(model.classifier, "out_proj"):
        inner = torch.nn.functional.gelu if hasattr(model, "electra") else torch.tanh
        return model.classifier.out_proj(inner(model.classifier.dense(h)))
    return model.classifier(torch.tanh(model.bert.pooler.dense(h)))


def answer(model, row, types):
    """The model's own answer: [N] for the text, or [T, N]; and the row of the text, if it is one."""
    args = dict(input_ids=row, attention_mask=torch.ones_like(row), **({} if types is None else {"token_type_ids": types}))
    out = model(**args)
    if hasattr(out, "start_logits"):
        return torch.stack([out.start_logits[0], out.end_logits[0]], -1), None, args
    if hasattr(model, "discriminator_predictions"):
        return out.logits[0][:, None], None, args
    return out.logits[0], (T - 1 if hasattr(model, "score") else 0) if out.logits.dim() == 2 else None, args


def one(name):
    d = os.path.join(HERE, name)
    shutil.rmtree(d, ignore_errors=True)
    cls, c = MODELS[name]
    c._attn_implementation = "eager"
    rng = np.random.default_rng(5)
    ids = torch.from_numpy(rng.integers(4, V, (B, T)))
    types = torch.from_numpy((np.arange(T) >= np.array([[5], [9], [T]])).astype(np.int64)) if name.startswith(("bert", "electra")) else None
    with Double(cls):
        model = cls(c).double().eval()
        heat(model, 3)
        if hasattr(model, "discriminator_predictions"):
            model.discriminator_predictions.dense_prediction.weight.data.mul_(4)
        logits, weights, loss = [], [], 0
        for b in range(B):
            own, at, args = answer(model, ids[b:b + 1], None if types is None else types[b:b + 1])
            n = own.shape[-1]
            w = torch.from_numpy(rng.normal(0, 1, (T, n)))
            z = own if at is None else head(model, model.base_model(**args)[0])[0]
            if at is not None:
                assert (z[at] - own).abs().max() < 1e-12
                w[torch.arange(T) != at] = 0
            loss = loss + (own * (w if at is None else w[at])).sum()
            logits.append(z.detach())
            weights.append(w)
        loss.backward()
        grads = {n: p.grad.clone().float() for n, p in model.named_parameters()}
    out = {"input_ids": ids, "logits": torch.stack(logits), "weights": torch.stack(weights)}
    if types is not None:
        out["token_type_ids"] = types
    model.float().save_pretrained(d)
    os.makedirs(d + "-grad", exist_ok=True)
    shutil.copy(os.path.join(d, "config.json"), d + "-grad")
    save_file(grads, os.path.join(d + "-grad", "model.safetensors"), metadata={"format": "pt"})
    save_file(out, os.path.join(d, "expected.safetensors"), metadata={
        "source": "transformers %s, torch %s" % (tf.__version__, torch.__version__)})
    print("%s: %d parameters, logits of std %.2f" % (name, sum(p.numel() for p in model.parameters()), out["logits"].std()))
    assert out["logits"].std() > 0.2


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.utils.logging.disable_progress_bar()
    for m in sys.argv[1:] or MODELS:
        one(m)
