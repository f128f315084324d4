#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the models of the evaluation test (../eval): <family>.h5 beside this script. Families are held to their references in ../families.

A development tool (needs torch, transformers, h5py, numpy); nothing at build, run or `make check` time needs it.

Each file holds a tiny model of one family with "hot" weights, two documents, and what transformers computes from them in
f64 with eager attention: logits, loss, every gradient, and ten AdamW steps; and the error of transformers' own bf16 run.
Hot: fan-in scaled weights with gain so that pre-activations and attention logits are of order 1 to 3, random norm weights
and biases, documents longer than the sliding window. With default initialisation ignored biases, swapped norms or a missing
window would not show.

    weights/<hf name>   f32, as in a Hugging Face state dict (Conv1D of GPT-2 stays [in, out])
    grads/<hf name>     f32 (rounded from f64), of the loss below
    tokens, targets     i32 [T]; documents packed one after the other; target -1 = not trained
    cu_seqlens          i32 [n_docs + 1]
    logits              f64 [T, V]
    loss                f64, mean over trained tokens; loss_curve, norm_curve f64 [10]: before each AdamW step
    attributes          bf16_rms, bf16_loss: transformers' bf16 against f64 (rms over logits, |loss difference|); lr, beta1, ...
"""
import os
import sys

import h5py
import numpy as np
import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
V, C, L, H, G, F, MAXPOS = 61, 32, 3, 4, 2, 44, 64
DOCS = (37, 23)
SEEDS = {"gpt2": 7, "llama": 8, "mistral": 9, "qwen3": 11}
ADAM = dict(lr=5e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


def families():
    common = dict(vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=F,
                  max_position_embeddings=MAXPOS, attention_dropout=0.0, use_cache=False)
    yield "gpt2", tf.GPT2LMHeadModel, tf.GPT2Config(
        vocab_size=V, n_embd=C, n_layer=L, n_head=H, n_inner=4 * C, n_positions=MAXPOS, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0)
    yield "llama", tf.LlamaForCausalLM, tf.LlamaConfig(
        **common, num_key_value_heads=G, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32))
    yield "mistral", tf.MistralForCausalLM, tf.MistralConfig(
        **common, num_key_value_heads=G, rms_norm_eps=1e-5, sliding_window=9, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0))
    yield "qwen3", tf.Qwen3ForCausalLM, tf.Qwen3Config(
        **common, num_key_value_heads=G, head_dim=12, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=500.0), attention_bias=False)


def heat(model, seed):
    """Weights of order that makes every switch matter; f32-representable."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            shape = tuple(p.shape)
            if "norm" in name or ".ln_" in name:
                x = rng.normal(1.0, 0.3, shape) if name.endswith("weight") else rng.normal(0.0, 0.3, shape)
            elif p.dim() == 1:
                x = rng.normal(0.0, 0.5, shape)
            elif "embed" in name or "wte" in name or "wpe" in name:
                x = rng.normal(0.0, 0.7, shape)
            else:
                conv1d = model.config.model_type == "gpt2" and "lm_head" not in name
                fan_in = shape[0] if conv1d else shape[1]
                gain = 1.6 if ("q_proj" in name or "k_proj" in name or "c_attn" in name) else 1.1
                x = rng.normal(0.0, gain / np.sqrt(fan_in), shape)
            p.copy_(torch.from_numpy(x.astype(np.float32)).to(p.dtype))


def run(model, docs, targets):
    """Logits [T, V] of the documents run one by one, and the mean loss over trained tokens."""
    logits = torch.cat([model(input_ids=torch.from_numpy(d.astype(np.int64))[None]).logits[0] for d in docs])
    t = torch.from_numpy(targets.astype(np.int64))
    loss = torch.nn.functional.cross_entropy(logits.double(), t, ignore_index=-1)
    return logits, loss


class Double:
    """Inside, transformers' explicit f32 (norms, rotary tables, softmax) is f64 too: a reference in f64 throughout."""

    class Torch:
        def __getattr__(self, name):
            return torch.float64 if name in ("float32", "float") else getattr(torch, name)

    def __init__(self, model):
        names = {type(m).__module__ for m in model.modules()} | {"transformers.modeling_rope_utils"}
        self.modules = [sys.modules[n] for n in names if n.startswith("transformers.") and hasattr(sys.modules[n], "torch")]

    def __enter__(self):
        self.float = torch.Tensor.float
        torch.Tensor.float = torch.Tensor.double
        for m in self.modules:
            m.torch = Double.Torch()

    def __exit__(self, *args):
        torch.Tensor.float = self.float
        for m in self.modules:
            m.torch = torch


def double_rope(model):
    """Rotary frequencies recomputed in f64 (the module's own are rounded to f32)."""
    for m in model.modules():
        if not hasattr(m, "inv_freq"):
            continue
        c = m.config
        d = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        rp = c.rope_parameters
        inv = rp["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        if rp["rope_type"] == "llama3":
            old, f = rp["original_max_position_embeddings"], rp["factor"]
            wavelen = 2 * np.pi / inv
            smooth = (old / wavelen - rp["low_freq_factor"]) / (rp["high_freq_factor"] - rp["low_freq_factor"])
            smooth = smooth.clamp(0, 1)
            inv = (1 - smooth) * inv / f + smooth * inv
        assert torch.allclose(inv.float(), m.inv_freq.float(), rtol=1e-5), "rotary frequencies differ from transformers'"
        m.inv_freq = inv


def decays(p):
    return p.dim() >= 2


def one(name, cls, config, seed):
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = cls(config).eval()
    heat(model, seed)
    rng = np.random.default_rng(seed + 1000)
    docs = [rng.integers(0, V, n) for n in DOCS]
    targets = np.concatenate([np.append(d[1:], -1) for d in docs])
    targets[rng.choice(len(targets), 5, replace=False)] = -1
    weights = {n: p.detach().numpy().astype(np.float32).copy() for n, p in model.named_parameters()}

    model = model.double()
    double_rope(model)
    double = Double(model)
    with double:
        logits, loss = run(model, docs, targets)
        loss.backward()
    grads = {n: p.grad.numpy().copy() for n, p in model.named_parameters()}

    half = cls(config).eval()
    half.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    half.tie_weights()
    half = half.to(torch.bfloat16)
    with torch.no_grad():
        lo16, loss16 = run(half, docs, targets)
    rms16 = float(torch.sqrt(torch.mean((lo16.double() - logits.detach()) ** 2)))

    params = dict(model.named_parameters())
    groups = [dict(params=[p for p in params.values() if decays(p)], weight_decay=ADAM["weight_decay"]),
              dict(params=[p for p in params.values() if not decays(p)], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    curve, norms = [], []
    for _ in range(10):
        opt.zero_grad()
        with double:
            _, step_loss = run(model, docs, targets)
            step_loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(params.values()), ADAM["clip"])))
        curve.append(step_loss.item())
        opt.step()

    with h5py.File(os.path.join(HERE, name + ".h5"), "w", libver=("earliest", "v108")) as f:
        for n, w in weights.items():
            f.create_dataset("weights/" + n, data=w)
            f.create_dataset("grads/" + n, data=grads[n].astype(np.float32))
        f["tokens"] = np.concatenate(docs).astype(np.int32)
        f["targets"] = targets.astype(np.int32)
        f["cu_seqlens"] = np.cumsum([0] + list(DOCS)).astype(np.int32)
        f["logits"] = logits.detach().numpy()
        f["loss"] = loss.item()
        f["loss_curve"], f["norm_curve"] = np.array(curve), np.array(norms)
        for k, v in ADAM.items():
            f.attrs[k] = v
        f.attrs["bf16_rms"], f.attrs["bf16_loss"] = rms16, abs(loss16.item() - loss.item())
        f.attrs["made_with"] = "torch %s transformers %s" % (torch.__version__, tf.__version__)
    print("%-8s params %6d loss %.6f curve %.4f -> %.4f  bf16 rms %.2e  logits std %.2f" % (
        name, sum(w.size for w in weights.values()), loss.item(), curve[0], curve[-1], rms16, float(logits.std())))


def main():
    torch.set_num_threads(1)
    for name, cls, config in families():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            one(name, cls, config, SEEDS[name])


if __name__ == "__main__":
    main()
