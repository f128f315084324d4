#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make rm-lora/ and rm-dora/ beside this script: adapters of the reward model in rm-qwen2/ as PEFT saves them for a sequence
classifier, the head trained whole beside them, and what training does to them.

    make_rm_adapter.py [rm-lora | rm-dora]

A development tool (torch, transformers, peft, safetensors, numpy); the build, the program and `make check` never need it.

    adapter_config.json, adapter_model.safetensors   with a random B, of DoRA magnitudes up to a quarter off the lengths that they begin
                            with, and another head than the base's
    expected.safetensors    scores f64 [2 P] of base and adapter on the texts of rm-qwen2/expected.safetensors; train.loss, train.norm,
                            train.accuracy f64 [20]: of 20 AdamW steps of adapter and head from there on, by the loss of make_rm.py
"""
import os
import shutil
import sys

import numpy as np
import torch
import transformers as tf
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
from make_rm import ADAM, BATCH, CENTRE, LR, PAIRS, STEPS, reward_loss, scores, texts  # noqa: E402

MODULES = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
CASES = {
    "rm-lora": dict(r=3, lora_alpha=4, use_rslora=True, target_modules=MODULES),
    "rm-dora": dict(r=2, lora_alpha=4, use_dora=True, target_modules=MODULES),
}


def train(model, batch, margin):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=LR, betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"], weight_decay=ADAM["weight_decay"])
    out = [], [], []
    for step in range(STEPS):
        at = step * BATCH % PAIRS
        opt.zero_grad()
        loss, accuracy = reward_loss(model, batch[2 * at:2 * (at + BATCH)], margin[at:at + BATCH], CENTRE)
        loss.backward()
        out[0].append(loss.item())
        out[1].append(float(torch.nn.utils.clip_grad_norm_(params, ADAM["clip"])))
        out[2].append(accuracy.item())
        opt.step()
    return [torch.tensor(x, dtype=torch.float64) for x in out]


def one(name):
    torch.manual_seed(7 + len(CASES[name]))
    batch = texts(np.random.default_rng(1))
    margin = torch.from_numpy(np.random.default_rng(2).choice([0.0, 0.25, 0.5, 1.0], PAIRS))
    base = tf.AutoModelForSequenceClassification.from_pretrained(os.path.join(HERE, "rm-qwen2"), dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", lora_dropout=0.0, **CASES[name]))
    for n, p in model.named_parameters():
        if "lora_B" in n:
            torch.nn.init.normal_(p, std=0.2)
        if "lora_magnitude" in n:
            p.data *= 1 + 0.25 * (2 * torch.rand_like(p) - 1)
        if "modules_to_save" in n:
            p.data += 0.1 * torch.randn_like(p)
    model.peft_config["default"].base_model_name_or_path = "rm-qwen2"  # not where it lies here
    d = os.path.join(HERE, name)
    shutil.rmtree(d, ignore_errors=True)
    model.save_pretrained(d)
    os.remove(os.path.join(d, "README.md"))
    model = model.double().eval()
    out = {"scores": scores(model, batch).detach().contiguous()}
    out["train.loss"], out["train.norm"], out["train.accuracy"] = train(model, batch, margin)
    save_file(out, os.path.join(d, "expected.safetensors"), metadata={"source": "peft on transformers %s" % tf.__version__})
    print("%s: scores of std %.2f, loss %.4f -> %.4f" % (name, out["scores"].std(), out["train.loss"][0], out["train.loss"][-1]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[1:] or CASES:
        one(case)
