#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make pairs/ beside this script: a tiny language model as transformers publishes it, judged answers, and what 20 steps of each
preference loss do to it.

    make_pairs.py

A development tool (torch, transformers, trl, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors  a Qwen2ForCausalLM, f32
    expected.safetensors            tokens i64, all texts one after the other; lengths, prompts i64 [2 P]: tokens of a text and of its
                                    prompt; texts 2 i and 2 i + 1 are the better and the worse answer of pair i, or for KTO good and not
                                    KIND.loss, KIND.norm, KIND.margin f64 [20]: of 20 AdamW steps, each on all pairs, before its update

sigmoid, robust, hinge and ipo are trl's own DPOTrainer._compute_loss, orpo's odds ratio and simpo are those of its ORPOTrainer and
CPOTrainer, on log-probabilities that transformers' logits give. Three things are written out here instead:
    cdpo   trl has no label smoothing of the sigmoid loss any more: Mitchell (2023), note on cDPO
    nll    trl averages over the answer tokens of a micro-batch (for orpo over the prompt too), so that its weight of a pair depends on
           which others it is computed with; ours is the mean over each better answer, then over pairs
    kto    Ethayarajh et al. (2024), equation 7, z over the whole step; trl takes z per micro-batch, with the prompts shifted by one row
All in f64, with hot weights (see ../families/make_families.py, from where they come).
"""
import collections
import os
import shutil
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F
import transformers as tf
import trl
from safetensors.torch import save_file
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "families"))
from make_families import ADAM, Double, heat  # noqa: E402

PAIRS, STEPS, LR, PAD, EOS, V = 12, 20, 1e-3, 1, 2, 64
CONFIG = tf.Qwen2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                        vocab_size=V, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=PAD, bos_token_id=None,
                        eos_token_id=EOS)
KINDS = {"sigmoid": dict(beta=0.1), "cdpo": dict(beta=0.1, smoothing=0.1), "robust": dict(beta=0.1, smoothing=0.1), "hinge": dict(beta=0.1),
         "ipo": dict(beta=0.3), "orpo": dict(beta=0.1), "simpo": dict(beta=2.0, gamma=0.5), "nll": dict(beta=0.1, nll=0.5),
         "kto": dict(beta=0.1)}


def texts(rng):
    """Both answers follow the same prompt, differ in length and end in EOS."""
    out, prompts = [], []
    for _ in range(PAIRS):
        prompt = rng.integers(3, V, rng.integers(2, 9))
        for _ in range(2):
            out.append(np.concatenate([prompt, rng.integers(3, V, rng.integers(1, 14)), [EOS]]))
            prompts.append(len(prompt))
    return out, prompts


def padded(batch, prompts):
    n = max(len(t) for t in batch)
    ids, seen, answer = (torch.full((len(batch), n), PAD), torch.zeros(len(batch), n, dtype=torch.long), torch.zeros(len(batch), n, dtype=torch.long))
    for i, (t, p) in enumerate(zip(batch, prompts)):
        ids[i, :len(t)] = torch.from_numpy(t)
        seen[i, :len(t)] = 1
        answer[i, p:len(t)] = 1
    return ids, seen, answer


def token_logps(model, ids, seen, answer):
    logits = model(input_ids=ids, attention_mask=seen, use_cache=False).logits[:, :-1]
    logps = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None])[:, :, 0]
    return logps * answer[:, 1:], logits


def sums(model, batch, prompts):
    """Sum of log p over each answer, and its tokens."""
    ids, seen, answer = padded(batch, prompts)
    return token_logps(model, ids, seen, answer)[0].sum(1), answer.sum(1)


def stub(**settings):
    """What the trainers' loss functions read of self."""
    same = types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
    return types.SimpleNamespace(accelerator=same, model=types.SimpleNamespace(training=True), _metrics=collections.defaultdict(lambda: collections.defaultdict(list)), _total_train_tokens=0,
                                 _tp_size=1, aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True, use_weighting=False,
                                 f_divergence_type="reverse_kl", alpha=0.0, **settings)


def of_trl(model, kind, o, batch, prompts, ref):
    """trl's trainer concatenates: all better answers, then all worse ones."""
    order = list(range(0, 2 * PAIRS, 2)) + list(range(1, 2 * PAIRS, 2))
    ids, seen, answer = padded([batch[i] for i in order], [prompts[i] for i in order])

    def forward(input_ids, attention_mask, labels, **_):
        logps, logits = token_logps(model, input_ids, attention_mask, answer)
        zero = torch.zeros_like(logps)
        return types.SimpleNamespace(log_probs=logps, entropy=zero, mean_logits=zero, is_top1=zero.bool())

    forward.training = True
    me = stub(beta=o["beta"], label_smoothing=o.get("smoothing", 0.0), loss_types=[kind], loss_weights=[1.0])
    inputs = dict(input_ids=ids, attention_mask=seen, completion_mask=answer, ref_chosen_logps=ref[0::2], ref_rejected_logps=ref[1::2])
    return trl.DPOTrainer._compute_loss(me, forward, inputs, False), me._metrics["train"]["rewards/margins"][0]


def loss_of(model, kind, o, batch, prompts, ref):
    """Loss of all pairs (or answers), and the margin of their rewards."""
    if kind in ("sigmoid", "robust", "hinge", "ipo"):
        return of_trl(model, kind, o, batch, prompts, ref)
    lp, n = sums(model, batch, prompts)
    beta, c, r = o["beta"], lp[0::2], lp[1::2]
    h = (c - ref[0::2]) - (r - ref[1::2])
    if kind == "kto":
        other = [(d + PAIRS) % (2 * PAIRS) for d in range(2 * PAIRS)]
        wrong = [np.concatenate([batch[d][:prompts[d]], batch[e][prompts[e]:]]) for d, e in enumerate(other)]
        with torch.no_grad():
            now = sums(model, wrong, prompts)[0]
        if "other" not in o:
            o["other"] = now
        z = (now - o["other"]).mean().clamp(min=0)
        d = lp - ref
        return torch.cat([1 - torch.sigmoid(beta * (d[0::2] - z)), 1 - torch.sigmoid(beta * (z - d[1::2]))]).mean(), (beta * h).mean().item()
    if kind == "orpo":
        losses = ORPOTrainer.odds_ratio_loss(stub(beta=beta), c / n[0::2], r / n[1::2])[0]
        return (-c / n[0::2] - losses).mean(), (beta * (c / n[0::2] - r / n[1::2])).mean().item()
    if kind == "simpo":
        me = stub(beta=beta, loss_type="simpo", simpo_gamma=o["gamma"], label_smoothing=0.0)
        return CPOTrainer.cpo_loss(me, c / n[0::2], r / n[1::2])[0].mean(), (beta * (c / n[0::2] - r / n[1::2])).mean().item()
    s = o.get("smoothing", 0.0)
    loss = -(1 - s) * F.logsigmoid(beta * h) - s * F.logsigmoid(-beta * h) + o.get("nll", 0.0) * -c / n[0::2]
    return loss.mean(), (beta * h).mean().item()


def train(model, kind, batch, prompts):
    o = dict(KINDS[kind])
    with torch.no_grad():
        ref = sums(model, batch, prompts)[0]
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2], weight_decay=ADAM["weight_decay"]),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=LR, betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    out = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss, margin = loss_of(model, kind, o, batch, prompts, ref)
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(params, ADAM["clip"]))
        out.append((loss.item(), norm, margin))
        opt.step()
    return [torch.tensor(x, dtype=torch.float64) for x in zip(*out)]


def main():
    d = os.path.join(HERE, "pairs")
    shutil.rmtree(d, ignore_errors=True)
    CONFIG._attn_implementation = "eager"
    batch, prompts = texts(np.random.default_rng(1))
    with Double(tf.Qwen2ForCausalLM):
        model = tf.Qwen2ForCausalLM(CONFIG).double().eval()
        heat(model, 3)
        first = {k: v.clone() for k, v in model.state_dict().items()}
        out = {"tokens": torch.from_numpy(np.concatenate(batch)), "lengths": torch.tensor([len(t) for t in batch]),
               "prompts": torch.tensor(prompts)}
        for kind in KINDS:
            model.load_state_dict(first)
            out[kind + ".loss"], out[kind + ".norm"], out[kind + ".margin"] = train(model, kind, batch, prompts)
            print("%-8s loss %.6f -> %.6f, norm %.4f, margin %.4f -> %.4f" % (kind, out[kind + ".loss"][0], out[kind + ".loss"][-1],
                                                                              out[kind + ".norm"][0], out[kind + ".margin"][0], out[kind + ".margin"][-1]))
        model.load_state_dict(first)
    model.float().save_pretrained(d)
    for extra in set(os.listdir(d)) - {"config.json", "model.safetensors"}:
        os.remove(os.path.join(d, extra))
    save_file(out, os.path.join(d, "expected.safetensors"), metadata={
        "source": "trl %s, transformers %s, torch %s" % (trl.__version__, tf.__version__, torch.__version__)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.utils.logging.disable_progress_bar()
    main()
