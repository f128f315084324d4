#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make rm-qwen2/ and rm-gpt2/ beside this script: tiny reward models as transformers publishes them, their scores, and what the loss
of trl's RewardTrainer does to the first of them.

    make_rm.py [rm-qwen2 | rm-gpt2 ...]

A development tool (torch, transformers, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors  a *ForSequenceClassification of one label, f32
    expected.safetensors            tokens i64, all texts one after the other; lengths i64 [2 P]: of the chosen text of pair 0, its
                                    rejected one, the chosen of pair 1, ...; margin f64 [P]; scores f64 [2 P]
        rm-qwen2 only               loss.plain, loss.margin, loss.centre f64 [1]: of all pairs; train.loss, train.norm, train.accuracy f64 [20]: of 20 AdamW steps on BATCH
                                    pairs each, in order, the first again after the last, with margin and centring
    rm-qwen2-grad/                  the gradients of loss.centre under the names of the weights: imported by the same rows

The loss is written out here as trl 0.24 to 1.x have it (trl/trainer/reward_trainer.py, compute_loss), so that it needs no trl:
mean of -logsigmoid(chosen - rejected - margin), plus centre times the mean of (chosen + rejected)^2. Both sides are in one forward
pass, padded on the right; transformers finds the score of a text at its last token that is not pad_token_id. All in f64, with hot
weights (see ../families/make_families.py, from where they come).
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
from make_families import ADAM, Double, heat  # noqa: E402

PAIRS, BATCH, STEPS, CENTRE, LR, PAD, EOS, V = 12, 4, 20, 0.01, 2e-3, 1, 2, 64
MODELS = {
    "rm-qwen2": tf.Qwen2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                               vocab_size=V, max_position_embeddings=64, tie_word_embeddings=False, num_labels=1, pad_token_id=PAD,
                               bos_token_id=None, eos_token_id=EOS),
    "rm-gpt2": tf.GPT2Config(n_embd=24, n_layer=1, n_head=2, vocab_size=V, n_positions=32, num_labels=1, pad_token_id=PAD, bos_token_id=EOS,
                             eos_token_id=EOS, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0),
}


def texts(rng):
    """Pairs share the beginning of a prompt, differ in length and end in EOS."""
    out = []
    for _ in range(PAIRS):
        prompt = rng.integers(3, V, rng.integers(2, 9))
        for _ in range(2):
            out.append(np.concatenate([prompt, rng.integers(3, V, rng.integers(1, 14)), [EOS]]))
    return out


def padded(batch):
    n = max(len(t) for t in batch)
    ids = np.full((len(batch), n), PAD)
    for i, t in enumerate(batch):
        ids[i, :len(t)] = t
    mask = np.array([[j < len(t) for j in range(n)] for t in batch], dtype=np.int64)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def scores(model, batch):
    ids, mask = padded(batch)
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0]


def reward_loss(model, batch, margin, centre):
    s = scores(model, batch)
    chosen, rejected = s[0::2], s[1::2]
    loss = -torch.nn.functional.logsigmoid(chosen - rejected - margin).mean()
    loss = loss + centre * ((chosen + rejected) ** 2).mean()
    return loss, (chosen > rejected).double().mean()


def train(model, batch, margin):
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2], weight_decay=ADAM["weight_decay"]),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=LR, betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    losses, norms, accuracies = [], [], []
    for step in range(STEPS):
        at = step * BATCH % PAIRS
        opt.zero_grad()
        loss, accuracy = reward_loss(model, batch[2 * at:2 * (at + BATCH)], margin[at:at + BATCH], CENTRE)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(params, ADAM["clip"])))
        losses.append(loss.item())
        accuracies.append(accuracy.item())
        opt.step()
    return losses, norms, accuracies


def one(name):
    d = os.path.join(HERE, name)
    shutil.rmtree(d, ignore_errors=True)
    c = MODELS[name]
    c._attn_implementation = "eager"
    cls = type(tf.AutoModelForSequenceClassification.from_config(c))
    batch = texts(np.random.default_rng(1))
    margin = torch.from_numpy(np.random.default_rng(2).choice([0.0, 0.25, 0.5, 1.0], PAIRS))
    with Double(cls):
        model = cls(c).double().eval()
        heat(model, 3)
        first = {k: v.clone() for k, v in model.state_dict().items()}
        out = {"tokens": torch.from_numpy(np.concatenate(batch)), "lengths": torch.tensor([len(t) for t in batch]), "margin": margin,
               "scores": scores(model, batch).detach()}
        if name == "rm-qwen2":
            zero = torch.zeros(PAIRS, dtype=torch.float64)
            f64 = lambda x: torch.tensor(x, dtype=torch.float64).reshape(-1)  # noqa: E731
            out["loss.plain"] = f64(reward_loss(model, batch, zero, 0)[0].item())
            out["loss.margin"] = f64(reward_loss(model, batch, margin, 0)[0].item())
            loss, _ = reward_loss(model, batch, margin, CENTRE)
            loss.backward()
            out["loss.centre"] = f64(loss.item())
            grads = {n: p.grad.clone().float() for n, p in model.named_parameters()}
            out["train.loss"], out["train.norm"], out["train.accuracy"] = map(f64, train(model, batch, margin))
            print("loss %.6f, %.4f -> %.4f, accuracy %.2f -> %.2f" % (loss.item(), out["train.loss"][0], out["train.loss"][-1],
                                                                  out["train.accuracy"][0], out["train.accuracy"][-1]))
        model.load_state_dict(first)
    model.float().save_pretrained(d)
    if name == "rm-qwen2":
        os.makedirs(d + "-grad", exist_ok=True)
        shutil.copy(os.path.join(d, "config.json"), d + "-grad")
        save_file(grads, os.path.join(d + "-grad", "model.safetensors"), metadata={"format": "pt"})
    save_file(out, os.path.join(d, "expected.safetensors"), metadata={
        "source": "transformers %s, torch %s" % (tf.__version__, torch.__version__)})
    off = (scores(cls.from_pretrained(d, attn_implementation="eager").eval(), batch).double() - out["scores"]).abs().max()
    print("%s: %d parameters, scores of std %.2f, f32 off by %.1e" % (name, sum(p.numel() for p in model.parameters()),
                                                                     out["scores"].std(), off))
    assert off < 1e-5 and out["scores"].std() > 0.3


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.utils.logging.disable_progress_bar()
    for m in sys.argv[1:] or MODELS:
        one(m)
