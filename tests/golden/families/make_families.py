#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden directories of the model families, one folder per family beside this script:

    make_families.py [family ...]

A development tool (torch, transformers, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors   a tiny model as its family publishes it, f32
    expected.safetensors             input_ids i64 [B, T]; prefix i64 [B] where the family has one, token_type_ids i64 [B, T], of encoder-decoders
                                     source_lengths i64 [B] and source_ids i64 [their sum], each document run by itself; logits f64 [B, T, V]; loss f64 [1],
                                     the mean over B (T - 1) next tokens; grad.<name> f32, its gradients; train.loss, train.norm f64 [10]:
                                     loss and gradient norm before each of ten AdamW steps with the settings of ADAM below
        metadata                     format lf-expected-1, family, source, bf16_rms (the reference's own bf16 run against f64, rms
                                     over logits)

Everything is computed in f64, eagerly, without a cache. Weights are hot: scaled by fan-in so that pre-activations and attention
logits are of order 1 to 3, norm weights and biases random, sequences longer than every window. With default initialisation ignored
biases, swapped norms or a missing cap would not show.
"""
import importlib
import json
import os
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from transformers import modeling_rope_utils

sys.dont_write_bytecode = True  # folders here are families
from configs import FAMILIES  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
B, T, STEPS = 2, 24, 10
ADAM = dict(lr=5e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


# Norms that multiply by their weight + 1, beside those of Gemma and Nemotron.
OFFSET = ("Qwen3NextRMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm")
# Of scans: numbers of decays, and filters. No weight decay touches them.
HELD = ("A_log", "conv1d.weight", "conv.conv.weight")


class Double:
    """Inside, f64 is the default and transformers' explicit f32 (norms, rotary tables, softmax) is f64 too."""

    class Torch:
        def __getattr__(self, name):
            return torch.float64 if name in ("float32", "float") else getattr(torch, name)

    def __init__(self, cls):
        self.modules = [modeling_rope_utils] + [sys.modules[k.__module__] for k in cls.__mro__ if k.__module__.startswith("transformers.models.")]

    def __enter__(self):
        self.float = torch.Tensor.float
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        for m in self.modules:
            m.torch = Double.Torch()

    def __exit__(self, *args):
        torch.Tensor.float = self.float
        torch.set_default_dtype(torch.float32)
        for m in self.modules:
            m.torch = torch


class Reference:
    """One family: how to make its model, run it, and write its tensors under their published names."""

    def __init__(self, name):
        self.name, self.c = name, dict(FAMILIES[name])
        self.oracle, self.prefix, self.T = self.c.pop("_oracle", None), self.c.pop("_prefix", None), self.c.pop("_T", T)
        self.saved = self.c.pop("_saved", False)
        self.types = self.c.pop("_types", None)
        self.source_lengths, self.untied = self.c.pop("_source", None), self.c.pop("_untied", False)
        self.published = self.c.pop("_published", {})
        self.seed = self.c.pop("_seed", zlib.crc32(name.encode()) % 10000)
        self.dir = os.path.join(HERE, name)
        if self.oracle:
            self.cls = importlib.import_module(self.oracle).Model
            self.source = self.oracle + ".py"
        else:
            self.cls = getattr(tf, self.c["architectures"][0])
            self.source = "transformers %s, torch %s" % (tf.__version__, torch.__version__)

    def write_config(self):
        os.makedirs(self.dir, exist_ok=True)
        with open(os.path.join(self.dir, "config.json"), "w") as f:
            json.dump(self.c, f, indent=2, sort_keys=True)
            f.write("\n")
        if self.saved:
            self.config().save_pretrained(self.dir)

    def config(self):
        c = tf.AutoConfig.from_pretrained(self.dir)
        c._attn_implementation, c._experts_implementation = "eager", "eager"
        return c

    def fresh(self):
        torch.manual_seed(0)
        model = (self.cls(self.c) if self.oracle else self.cls(self.config())).eval()
        if self.untied:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        return model

    def load(self, folder, dtype):
        """The model of a directory that someone wrote: by transformers where it has the family."""
        if self.oracle:
            m = self.cls(json.load(open(os.path.join(folder, "config.json")))).eval()
            m.load_state_dict(load_file(os.path.join(folder, "model.safetensors")))
            return m.to(dtype)
        masked = self.cls.__name__.endswith("ForMaskedLM")
        auto = self.cls if self.source_lengths else tf.AutoModelForMaskedLM if masked else tf.AutoModelForCausalLM if type(self.config()) in tf.MODEL_FOR_CAUSAL_LM_MAPPING else self.cls
        return auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()

    def tensors(self, model, state):
        """A state dict (weights or gradients) under published names."""
        if self.oracle:
            return {k: v.contiguous() for k, v in state.items()}
        with tempfile.TemporaryDirectory() as tmp:
            model.save_pretrained(tmp, state_dict={k: v.contiguous() for k, v in state.items()})
            tensors = load_file(os.path.join(tmp, "model.safetensors"))
        for saved, published in self.published.items():
            tensors = {n.replace(saved, published): t for n, t in tensors.items()}
        return tensors

    def run(self, model, ids):
        if self.oracle:
            logits = model(ids, torch.tensor(self.prefix) if self.prefix else None)
        elif self.source_lengths:
            logits = torch.cat([model(input_ids=s[None], decoder_input_ids=d[None], use_cache=False).logits for s, d in zip(self.sources(), ids)])
        elif self.cls.__name__.endswith("ForMaskedLM"):  # of next tokens too, as a function of the same logits
            logits = model(input_ids=ids, **({"token_type_ids": self.token_types()} if self.types else {})).logits
        else:
            logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).double(), ids[:, 1:].flatten())
        return logits, loss

    def token_types(self):
        """The second text of each row begins at one of _types."""
        return torch.tensor([[int(t >= first) for t in range(self.T)] for first in self.types])

    def draw(self, seed, shape):
        """No padding token: PyTorch's embedding gives it no gradient."""
        v = self.c.get("vocab_size", self.c.get("padded_vocab_size"))
        allowed = [t for t in range(v) if t != self.c.get("pad_token_id")]
        return torch.from_numpy(np.random.default_rng(seed).choice(allowed, shape))

    def tokens(self):
        return self.draw(self.seed + 1, (B, self.T))

    def sources(self):
        return self.draw(self.seed + 2, sum(self.source_lengths)).split(self.source_lengths)


def router_biases(model):
    return {n for n, _ in model.named_buffers() if n.endswith(("e_score_correction_bias", "expert_bias"))}


def stored_buffers(model):
    """Buffers that files hold like weights, and that no gradient reaches: biases of routers, numbers of xIELU and of layers."""
    return router_biases(model) | {n for n, _ in model.named_buffers() if n.endswith((".act_fn.beta", ".act_fn.eps", ".layer_scalar", "final_logits_bias"))}


def heat(model, seed):
    """Weights of an order that makes every switch matter, exact in f32."""
    rng = np.random.default_rng(seed)
    owner = {n + ("." if n else "") + p: m for n, m in model.named_modules() for p, _ in m.named_parameters(recurse=False)}
    with torch.no_grad():
        for name, p in model.named_buffers():
            if name in router_biases(model):
                p.copy_(torch.from_numpy(rng.normal(0.0, 0.2, tuple(p.shape)).astype(np.float32)).to(p.dtype))
            elif name.endswith((".act_fn.beta", ".act_fn.eps")):  # others than by default, and large enough to be seen
                p.fill_(float(np.float32(rng.uniform(0.3, 0.6) * (1 if name.endswith("beta") else -0.5))))
            elif name == "final_logits_bias":
                p.copy_(torch.from_numpy(rng.normal(0.0, 0.5, tuple(p.shape)).astype(np.float32)).to(p.dtype))
            elif name.endswith(".layer_scalar"):
                p.fill_(float(np.float32(rng.uniform(0.4, 1.5))))
        for name, p in model.named_parameters():
            kind, shape = type(owner[name]).__name__, tuple(p.shape)
            if "Norm" in kind:
                centre = 0.0 if name.endswith("bias") or kind.startswith(("GemmaR", "Gemma2", "Gemma3R", "NemotronLayer")) or kind in OFFSET else 1.0
                if kind.startswith(("Gemma3n", "Gemma4")) and name.endswith(("q_norm.weight", "k_norm.weight")):
                    centre = 0.6  # scores are not divided by the root of a head's width
                x = rng.normal(centre, 0.3, shape)
            elif name.endswith(("mamba.A_log", "mixer.A_log")):
                x = rng.normal(-2.0, 0.5, shape)  # states outlast some tens of tokens
            elif p.dim() == 1 or name.endswith(("e_score_correction_bias", "_proj_bias", "A_log")):
                x = rng.normal(0.0, 0.5, shape)
            elif "Embedding" in kind:
                x = rng.normal(0.0, 0.7, shape)
            else:
                fan_in = shape[-2] if kind in ("Conv1D", "GptOssExperts", "Llama4TextExperts") else shape[-1]
                fused = any(s in name for s in ("query_key_value", "W_pack", "c_attn", "qkv", "Wqkv"))
                gain = 1.6 if any(s in name for s in ("q_proj", "k_proj", "q_lin", "k_lin", "self.query", "self.key")) else 1.4 if fused else 2.0 if any(s in name for s in ("gate.weight", "gate.wg.", "router.")) else 1.1
                x = rng.normal(0.0, gain / np.sqrt(fan_in), shape)
            p.copy_(torch.from_numpy(x.astype(np.float32)).to(p.dtype))


def adamw(ref, model, ids):
    """Loss and gradient norm before each step. Matrices decay; vectors, those of all experts in one tensor, and what is HELD do not."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    params = [p for _, p in named]
    decays = [p.dim() >= 2 and not n.endswith(("_bias",) + HELD) for n, p in named]
    groups = [dict(params=[p for p, d in zip(params, decays) if d], weight_decay=ADAM["weight_decay"]),
              dict(params=[p for p, d in zip(params, decays) if not d], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        opt.zero_grad()
        _, loss = ref.run(model, ids)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(params, ADAM["clip"])))
        losses.append(loss.item())
        opt.step()
    return losses, norms


def one(name):
    ref = Reference(name)
    ref.write_config()
    with Double(ref.cls):
        model = ref.fresh().double()
        heat(model, ref.seed)
        ids = ref.tokens()
        logits, loss = ref.run(model, ids)
        loss.backward()
    weights = {n: p.detach().float() for n, p in model.state_dict().items()}
    # A parameter that the loss does not reach has no gradient in PyTorch; a gradient of zeros says the same.
    grads = {n: (torch.zeros_like(p) if p.grad is None else p.grad).clone().float() for n, p in model.named_parameters()}
    grads.update({n: torch.zeros_like(weights[n]) for n in stored_buffers(model)})
    path = os.path.join(ref.dir, "model.safetensors")
    save_file(ref.tensors(model, {n: w for n, w in weights.items() if n in grads}), path, metadata={"format": "pt"})
    grads = ref.tensors(model, grads)
    logits, loss = logits.detach(), loss.detach()

    with torch.no_grad():
        lo32 = ref.run(ref.load(ref.dir, torch.float32), ids)[0].double()
        rms16 = float((ref.run(ref.load(ref.dir, torch.bfloat16), ids)[0].double() - logits).pow(2).mean().sqrt())
    off = float((lo32 - logits).abs().max() / logits.abs().max())
    assert off < 1e-5, "%s: the reference in f32, loaded from the directory, is off by %g" % (name, off)
    with Double(ref.cls):
        losses, norms = adamw(ref, model, ids)

    out = {"input_ids": ids, "logits": logits.contiguous(), "loss": loss.reshape(1), "train.loss": torch.tensor(losses, dtype=torch.float64),
           "train.norm": torch.tensor(norms, dtype=torch.float64)}
    if ref.prefix:
        out["prefix"] = torch.tensor(ref.prefix)
    if ref.source_lengths:
        out["source_lengths"], out["source_ids"] = torch.tensor(ref.source_lengths), torch.cat(ref.sources())
    if ref.types:
        out["token_type_ids"] = ref.token_types()
    out.update({"grad." + n: g for n, g in grads.items()})
    save_file(out, os.path.join(ref.dir, "expected.safetensors"), metadata={
        "format": "lf-expected-1", "family": name, "source": ref.source, "bf16_rms": "%.6g" % rms16})
    size = sum(os.path.getsize(os.path.join(ref.dir, f)) for f in os.listdir(ref.dir))
    print("%-14s params %6d loss %.6f  %.4f -> %.4f  f32 %.1e  bf16 rms %.2e  logits std %.2f  %4d kB" % (
        name, sum(w.numel() for w in grads.values()), loss.item(), losses[0], losses[-1], off, rms16, float(logits.std()), size // 1024))
    return size


def main():
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    total, failed = 0, []
    for name in sys.argv[1:] or FAMILIES:
        try:
            total += one(name)
        except Exception as e:
            if os.environ.get("LF_TRACE"):
                raise
            failed.append(name)
            print("%-14s FAILED: %s: %s" % (name, type(e).__name__, str(e)[:300]))
            shutil.rmtree(os.path.join(HERE, name), ignore_errors=True)
    print("%d kB in all%s" % (total // 1024, "; failed: " + " ".join(failed) if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
