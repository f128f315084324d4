#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden adapters, one folder per case beside this script, on the tiny models of ../families and ../vlm:

    make_peft.py [CASE ...]

A development tool (torch, transformers, peft, safetensors); the build, the program and `make check` never need it.

    adapter_config.json, adapter_model.safetensors   as PEFT saves them, with a random B and, of DoRA, magnitudes up to a
                              quarter off the lengths that they begin with
    expected.safetensors      format lf-expected-1: input_ids i64 [B, T], logits f64 [B, T, V] of base and adapter;
                              of EYES also pixels, tiles, pictures and merge, as lf-convert --verify takes them;
                              train.loss, train.norm f64 [STEPS]: loss (mean of B (T - 1) next tokens) and gradient norm
                              before each AdamW step (ADAM below) of the adapter alone, from that adapter on
"""
import os
import shutil
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True  # folders there are families
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from make_families import Double  # noqa: E402
sys.path.insert(0, os.path.join(HERE, "..", "vlm"))
import make_vlm  # noqa: E402
B, T, STEPS = 2, 24, 20
ADAM = dict(lr=5e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CASES = {
    # family, LoraConfig: modules apart; one module with rows q;k;v and gate;up; transposed; by heads
    "llama": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]),
    "phi3": dict(r=4, lora_alpha=5, use_rslora=True, target_modules=["qkv_proj", "gate_up_proj"]),
    "gpt2": dict(r=2, lora_alpha=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True),
    "gpt-neox": dict(r=3, lora_alpha=3, target_modules=["query_key_value", "dense_4h_to_h"]),
    # fused projections of scans, q with its gate; parts of one of them; latent matrices of experts
    "qwen3-next": dict(r=3, lora_alpha=6, target_modules=["in_proj_qkvz", "in_proj_ba", "q_proj", "k_proj", "out_proj"]),
    "qwen3.5": dict(r=2, lora_alpha=4, target_modules=["in_proj_qkv", "in_proj_z", "in_proj_b", "q_proj", "down_proj"]),
    "mamba2": dict(r=3, lora_alpha=3, target_modules=["in_proj"]),
    "kimi-linear": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "b_proj", "f_a_proj", "g_b_proj"]),
    "nemotron-h-latent": dict(r=3, lora_alpha=6, target_modules=["fc1_latent_proj", "fc2_latent_proj", "in_proj"]),
    "qwen3-next-dora": dict(r=3, lora_alpha=6, use_dora=True, target_modules=["in_proj_qkvz", "q_proj"]),
    # stacked parameters of experts: both of a module, or one of them
    "mixtral": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
    "qwen3-moe": dict(r=2, lora_alpha=3, use_rslora=True, target_modules=["o_proj"], target_parameters=["experts.gate_up_proj"]),
    # DoRA: parts of a module without an adapter; transposed, with biases, rows q;k;v in one module
    "llama-dora": dict(r=3, lora_alpha=6, use_dora=True, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]),
    "gpt2-dora": dict(r=2, lora_alpha=3, use_rslora=True, use_dora=True, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True),
}
# Models of ../vlm, their decoders adapted: by a pattern, and by short names without the encoder. Programs before transformers 4.52
# had the names behind these, which other.safetensors has.
SEEING = {
    "vlm-llava": ("llava", "language_model.model.",
                  dict(r=3, lora_alpha=6, target_modules=r".*language_model.*\.(q_proj|v_proj|o_proj|gate_proj|down_proj)")),
    "vlm-qwen2.5-vl": ("qwen2.5-vl", "model.", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "down_proj"], exclude_modules=".*visual.*")),
    "vlm-gemma3": ("gemma3", "language_model.model.",
                   dict(r=3, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "o_proj", "up_proj"], exclude_modules=".*vision_tower.*")),
}
# Models of ../vlm with adapters of encoder and projector, which see a picture in each text: with those of the decoder; DoRA, of modules
# that are one in the encoder; encoder and projectors alone, of which there are several; an encoder alone.
EYES = {
    "vlm-llava-eyes": ("llava", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "out_proj", "fc1", "fc2", "linear_1", "linear_2"])),
    "vlm-qwen2.5-vl-eyes": ("qwen2.5-vl", dict(
        r=2, lora_alpha=3, use_dora=True,
        target_modules=r".*visual\.(blocks\.\d+\.(attn\.(qkv|proj)|mlp\.(gate|up|down)_proj)|merger\.mlp\.[02])|.*language_model.*\.(q_proj|down_proj)")),
    "vlm-qwen3-vl-eyes": ("qwen3-vl", dict(
        r=2, lora_alpha=4, use_rslora=True,
        target_modules=r".*visual\.(blocks\.\d+\.(attn\.(qkv|proj)|mlp\.linear_fc[12])|(merger|deepstack_merger_list\.\d+)\.linear_fc[12])")),
    "vlm-gemma3-eyes": ("gemma3", dict(r=3, lora_alpha=6, target_modules=r".*vision_tower.*\.(q_proj|k_proj|out_proj|fc2)")),
}
PICTURE_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


def loss_of(model, ids):
    z = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(z[:, :-1].reshape(-1, z.shape[-1]), ids[:, 1:].reshape(-1))


def base_of(name):
    """The model, its folder's name, the settings."""
    see = SEEING.get(name) or EYES.get(name)
    folder = see[0] if see else name.removesuffix("-dora")
    path = os.path.join(HERE, "..", "vlm" if see else "families", folder)
    how = dict(dtype=torch.float32, attn_implementation="eager")
    if see:
        return AutoModelForImageTextToText.from_pretrained(path, **how), folder, see[-1]
    return AutoModelForCausalLM.from_pretrained(path, experts_implementation="eager", **how), folder, CASES[name]


def texts(model):
    """Ids without those that stand for pictures."""
    c = model.config
    ids = torch.randint(0, c.get_text_config().vocab_size, (B, T))
    for key in PICTURE_TOKENS:
        if getattr(c, key, None) is not None:
            ids[ids == getattr(c, key)] = 1
    return ids


def save_other(name, out):
    """The adapter with the names that an older program gave it."""
    now, then = "base_model.model.model.language_model.", "base_model.model." + SEEING[name][1]
    weights = load_file(os.path.join(out, "adapter_model.safetensors"))
    assert all(k.startswith(now) for k in weights)
    save_file({then + k[len(now):]: v for k, v in weights.items()}, os.path.join(out, "other.safetensors"), metadata={"format": "pt"})


def make(name):
    torch.manual_seed(len(name))
    model, folder, settings = base_of(name)
    base = type(model)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **settings))
    for n, p in model.named_parameters():
        if "lora_B" in n:
            torch.nn.init.normal_(p, std=0.2)
        if "lora_magnitude" in n:
            p.data *= 1 + 0.25 * (2 * torch.rand_like(p) - 1)
    model.peft_config["default"].base_model_name_or_path = folder  # not where it lies here
    out = os.path.join(HERE, name)
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    if name in SEEING:
        save_other(name, out)
    model = model.double().eval()  # no dropout: gpt2 has some by default
    if name in EYES:
        see(name, base, model, out)
        return
    ids = texts(model)
    with Double(base):
        measure(name, model, lambda: loss_of(model, ids), lambda: model(input_ids=ids).logits, {"input_ids": ids}, out)


class Pair(make_vlm.Documents):
    """B texts with a picture each, of one size."""

    def __init__(self, folder):
        c = make_vlm.CLASSES[folder]
        self.rng = np.random.default_rng(12)
        self.kind, self.c, self.docs, self.tiles, self.pictures, self.pixels = c["model_type"], c, [], [], [], []
        self.rope, self.merge = False, 2 if "qwen" in c["model_type"] else 1
        for _ in range(B):
            self.document([(6, 10)])

    def tensors(self):
        """As lf-convert --verify takes them: the tiles of each text count from 0 on."""
        pixels = torch.cat(self.pixels).to(torch.float32)  # float() would be double() here
        pictures = torch.tensor([(0, *p[1:]) for p in self.pictures])
        return {"input_ids": torch.stack(self.ids), "pixels": pixels.reshape(B, -1, pixels.shape[-1]),
                "tiles": torch.tensor(self.tiles).reshape(B, -1, 2), "pictures": pictures.reshape(B, -1, 6), "merge": torch.tensor([self.merge])}


def see(name, base, model, out):
    with make_vlm.Double():
        for n, b in base(model.config).double().named_buffers():  # tables of rotations, which were rounded to f32
            at, _, leaf = n.rpartition(".")
            model.base_model.model.get_submodule(at)._buffers[leaf] = b
        pair = Pair(EYES[name][0])
        pair.finish(model)

        def logits():
            return pair.run(model, torch.float64)
        measure(name, model, lambda: pair.loss(logits()), logits, pair.tensors(), out)


def measure(name, model, loss_now, logits_now, given, out):
    with torch.no_grad():
        logits = logits_now().reshape(*given["input_ids"].shape, -1)
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trained, **ADAM)
    losses, norms = [], []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = loss_now()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0).item())
        opt.step()
    save_file({**given, "logits": logits.contiguous(), "train.loss": torch.tensor(losses, dtype=torch.float64),
               "train.norm": torch.tensor(norms, dtype=torch.float64)}, os.path.join(out, "expected.safetensors"),
              metadata={"format": "lf-expected-1", "source": "peft on transformers"})
    print(name, losses[0], losses[-1], norms[0])


for case in sys.argv[1:] or [*CASES, *SEEING, *EYES]:
    make(case)
