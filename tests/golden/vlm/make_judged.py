#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds to tests/golden/vlm/run what training on judged answers with pictures does: rows as TRL has them
(images, prompt, chosen, rejected; or completion and label), and the mean losses of 5 AdamW steps over
all rows at once, in f64, of the models that make_run.py saved. The losses are written from the papers:

    dpo   -log sig(beta ((c - c_ref) - (r - r_ref)))
    kto   1 - sig(beta (d - z)) of a good answer, 1 - sig(beta (z - d)) of a bad one, d = l - l_ref;
          z = max(0, mean of d over the prompts with the answer of the row half the data away)
    simpo -log sig(2 (c / n_c - r / n_r) - 0.5), without a reference

    make_judged.py IMAGES RUN [MODEL ...]     IMAGES: tests/golden/media/images, RUN: tests/golden/vlm/run

Needs torch, transformers 5.23 and torchvision. Neither the build nor make check runs it.
"""
import contextlib
import json
import os
import sys

import torch
import transformers as tf
from PIL import Image
from torch.nn.functional import logsigmoid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "families"))
sys.dont_write_bytecode = True
from make_families import Double  # noqa: E402

if not tf.__version__.startswith("5.23."):
    sys.exit(f"transformers 5.23 is the reference, not {tf.__version__}")
IMAGES, RUN, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
ROWS = [(["rgb8.png"], "What?", "A cat", "dog"), (["444.jpg"], "Which animal?", "dog and cat", "none"),
        (["rgba8.png", "rgb8.png"], "Say.", "Nothing much", "Two things"), ([], "No picture", "yes", "no"),
        (["420.jpg"], "Color?", "blue green", "what")]
LABELS = [True, True, False, True]  # of the chosen answers of the first four rows; z grows above 0
BETA, STEPS = 0.1, 5
# whose scans are f32 otherwise
SCANS = {"qwen3.5-vl": tf.Qwen3_5ForConditionalGeneration, "qwen3.5-vl-moe": tf.Qwen3_5MoeForConditionalGeneration}


def said(row, answer):
    parts = [{"type": "image"}] * len(row[0]) + [{"type": "text", "text": row[1]}]
    out = [{"role": "user", "content": parts}]
    return out + [{"role": "assistant", "content": [{"type": "text", "text": answer}]}] * (answer is not None)


class Texts:
    """A model's forward pass over prompts with answers."""

    def __init__(self, name):
        path = f"{RUN}/{name}"
        self.model = tf.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float64, experts_implementation="eager")
        self.processor = tf.AutoProcessor.from_pretrained(path)
        # as the file has it: that of the model's class would drop blanks
        self.processor.tokenizer = tf.PreTrainedTokenizerFast.from_pretrained(path)
        self.model.train()

    def encode(self, row, answer):
        text = self.processor.apply_chat_template(said(row, answer), add_generation_prompt=answer is None)
        images = [Image.open(f"{IMAGES}/{name}") for name in row[0]]
        e = self.processor(text=[text], images=images or None, return_tensors="pt")
        e.pop("token_type_ids", None)
        e.pop("mm_token_type_ids", None) if not images else None
        return {k: v.double() if v.is_floating_point() else v for k, v in e.items()}

    def sides(self, row, answer):
        """The inputs, and how many tokens the prompt has."""
        return self.encode(row, answer), self.encode(row, None)["input_ids"].shape[1]

    def logp(self, e, n_prompt):
        ids = e["input_ids"][0]
        logits = self.model(**e).logits[0, n_prompt - 1:-1]
        lp = torch.log_softmax(logits, -1).gather(1, ids[n_prompt:, None])
        return lp.sum(), len(ids) - n_prompt

    def stranger(self, row, other):
        """The prompt of one row with the answer of another."""
        e, n = self.sides(row, row[2])
        f, m = self.sides(other, other[2])
        tail = f["input_ids"][:, m:]
        e["input_ids"] = torch.cat([e["input_ids"][:, :n], tail], 1)
        for k in ("attention_mask", "mm_token_type_ids"):
            if k in e:
                e[k] = torch.cat([e[k][:, :n], f[k][:, m:] if k in f else torch.zeros_like(tail)], 1)
        return e, n


def dpo(t):
    docs = [[t.sides(r, r[2 + k]) for k in range(2)] for r in ROWS]
    with torch.no_grad():
        ref = [[t.logp(*d)[0] for d in pair] for pair in docs]

    def loss():
        x = [[t.logp(*d)[0] - ref[i][k] for k, d in enumerate(pair)] for i, pair in enumerate(docs)]
        return sum(-logsigmoid(BETA * (c - r)) for c, r in x) / len(ROWS)
    return loss


def simpo(t):
    docs = [[t.sides(r, r[2 + k]) for k in range(2)] for r in ROWS]

    def loss():
        x = [[s / n for s, n in (t.logp(*d) for d in pair)] for pair in docs]
        return sum(-logsigmoid(2 * (c - r) - 0.5) for c, r in x) / len(ROWS)
    return loss


def kto(t):
    rows = ROWS[:len(LABELS)]
    docs = [t.sides(r, r[2]) for r in rows]
    odd = [t.stranger(r, rows[(i + len(rows) // 2) % len(rows)]) for i, r in enumerate(rows)]
    with torch.no_grad():
        ref = [t.logp(*d)[0] for d in docs]
        ref_odd = [t.logp(*d)[0] for d in odd]

    def loss():
        with torch.no_grad():
            z = max(0, sum(t.logp(*d)[0] - q for d, q in zip(odd, ref_odd)) / len(odd))
        x = [t.logp(*d)[0] - q for d, q in zip(docs, ref)]
        return sum(torch.sigmoid(BETA * (z - d if good else d - z)) for d, good in zip(x, LABELS)) / len(x)
    return loss


def train(name, make):
    t = Texts(name)
    loss = make(t)
    opt = torch.optim.AdamW(t.model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    out = []
    for _ in range(STEPS):
        opt.zero_grad()
        x = loss()
        x.backward()
        out.append(x.item())
        opt.step()
    return out


def line(f, row, **rest):
    f.write(json.dumps({"images": row[0], "prompt": said(row, None)} | rest) + "\n")


def main():
    torch.set_default_dtype(torch.float64)
    answer = lambda text: [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
    with open(f"{RUN}/pairs.jsonl", "w") as f:
        for r in ROWS:
            line(f, r, chosen=answer(r[2]), rejected=answer(r[3]))
    with open(f"{RUN}/labels.jsonl", "w") as f:
        for r, good in zip(ROWS, LABELS):
            line(f, r, completion=answer(r[2]), label=good)
    for name in ONLY or ("llava", "qwen2.5-vl", "qwen3.5-vl", "qwen3.5-vl-moe"):
        with open(f"{RUN}/{name}/judged", "w") as f:
            for make in (dpo, simpo, kto):
                with Double(SCANS[name]) if name in SCANS else contextlib.nullcontext():
                    f.write(make.__name__ + " " + " ".join(f"{x:.9f}" for x in train(name, make)) + "\n")


main()
