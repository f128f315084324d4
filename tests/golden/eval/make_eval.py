#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of evaluation and generation: tokenizer.json, pages.jsonl, choice.jsonl, words.jsonl, eval.json beside this.

A development tool (needs torch, transformers, tokenizers, h5py, numpy). The models are the hot ones of ../model/*.h5, run by
transformers in f64; texts are encoded by the tokenizers library. Requests and scores follow lm-evaluation-harness as its sources
define them (lm_eval/api/model.py, models/huggingface.py, utils.py, api/task.py, api/metrics.py), written out here in Python, not from
our C. Greedy continuations are those of a plain loop over the model without a cache.
"""
import json
import math
import os
import re
import sys

import h5py
import numpy as np
import torch
import tokenizers
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "model"))
import make_golden  # noqa: E402

MAX_CONTEXT, V, EOS = 48, 61, "<|endoftext|>"
FAMILIES = ("gpt2", "llama", "mistral", "qwen3")


def words(rng, n):
    return ["".join(rng.choice(list("etaoinshrdl"), rng.integers(1, 7))) + ("é" if rng.random() < 0.1 else "") for _ in range(n)]


def make_tokenizer(rng):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.train_from_iterator([" ".join(words(rng, 3000)) + " . \n,"], tokenizers.trainers.BpeTrainer(
        vocab_size=V, special_tokens=[EOS], show_progress=False))
    assert t.get_vocab_size() == V
    t.save(os.path.join(HERE, "tokenizer.json"))
    return t


def open_model(name):
    for family, cls, config in make_golden.families():
        if family == name:
            config._attn_implementation = "eager"
            model = cls(config).eval()
            with h5py.File(os.path.join(HERE, "..", "model", name + ".h5")) as f:
                w = {}
                f["weights"].visititems(lambda n, d: w.__setitem__(n, torch.from_numpy(d[...])) if isinstance(d, h5py.Dataset) else None)
            model.load_state_dict(w, strict=False)
            model.tie_weights()
            model = model.double()
            make_golden.double_rope(model)
            return model


class Lm:
    """Scores of one model; every call is one forward pass of one sequence."""

    def __init__(self, name, tok):
        self.model, self.tok, self.prefix = open_model(name), tok, tok.token_to_id(EOS)
        self.double = make_golden.Double(self.model)

    def logprobs(self, ids):
        with torch.no_grad(), self.double:
            return torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0], -1)

    def encode(self, text):
        return self.tok.encode(text).ids

    def score_tokens(self, ctx, cont):
        inp = (ctx + cont)[-(MAX_CONTEXT + 1):][:-1]
        lp = self.logprobs(inp)[-len(cont):]
        return float(sum(lp[i, t] for i, t in enumerate(cont))), bool((lp.argmax(-1) == torch.tensor(cont)).all())

    def loglikelihood(self, ctx, cont):
        if ctx == "":
            ids = self.encode(cont)
            return self.score_tokens([self.prefix], ids) if self.prefix != ids[0] else self.score_tokens(ids[:1], ids[1:])
        spaces = len(ctx) - len(ctx.rstrip())
        if spaces > 0:
            cont = ctx[-spaces:] + cont
            ctx = ctx[:-spaces]
        whole, head = self.encode(ctx + cont), self.encode(ctx)
        return self.score_tokens(head, whole[len(head):])

    def rolling(self, text):
        """lm_eval/utils.py: get_rolling_token_windows(context_len=1) and make_disjoint_window."""
        ids, total, at = self.encode(text), 0.0, min(len(self.encode(text)), MAX_CONTEXT)
        windows = [([self.prefix] + ids[:at - 1], ids[:at])]
        while at < len(ids):
            n = min(len(ids) - at, MAX_CONTEXT)
            end = at + n
            windows.append((ids[end - MAX_CONTEXT - 1:end - 1], ids[end - n:end]))
            at = end
        for inp, pred in windows:
            ctx = inp[:len(inp) - len(pred) + 1]
            total += self.score_tokens(ctx, pred)[0]
        return total, len(ids)

    def greedy(self, ids, n):
        out, lps = [], []
        for _ in range(n):
            lp = self.logprobs(ids + out)[-1]
            top = torch.topk(lp, 2).values
            assert top[0] - top[1] > 1e-4, "too near a tie for f32"
            out.append(int(lp.argmax()))
            lps.append(float(lp.max()))
        return out, lps


def stderr(v):
    m = sum(v) / len(v)
    return math.sqrt(sum((x - m) ** 2 for x in v) / (len(v) - 1) / len(v))


def measure(lm, pages, choice, last):
    roll = [lm.rolling(p) for p in pages]
    ll, n_words = [r[0] for r in roll], [len(re.split(r"\s+", p)) for p in pages]
    n_bytes = [len(p.encode("utf-8")) for p in pages]
    choices = [[lm.loglikelihood(d["context"], " " + c) for c in d["choices"]] for d in choice]
    acc, acc_norm, acc_bytes = [], [], []
    for d, r in zip(choice, choices):
        s = np.array([x[0] for x in r])
        acc.append(float(np.argmax(s) == d["gold"]))
        acc_norm.append(float(np.argmax(s / np.array([float(len(c)) for c in d["choices"]])) == d["gold"]))
        acc_bytes.append(float(np.argmax(s / np.array([float(len(c.encode())) for c in d["choices"]])) == d["gold"]))
    lasts = [lm.loglikelihood(" ".join(t.split(" ")[:-1]), " " + t.split(" ")[-1]) for t in last]
    return {
        "rolling": [{"ll": r[0], "tokens": r[1], "words": w, "bytes": b} for r, w, b in zip(roll, n_words, n_bytes)],
        "choice": [{"ll": [x[0] for x in r], "greedy": [int(x[1]) for x in r]} for r in choices],
        "last_word": [{"ll": r[0], "acc": int(r[1])} for r in lasts],
        "results": {
            "pages": {"word_perplexity": math.exp(-sum(ll) / sum(n_words)), "byte_perplexity": math.exp(-sum(ll) / sum(n_bytes)),
                      "bits_per_byte": -sum(ll) / sum(n_bytes) / math.log(2),
                      "token_perplexity": math.exp(-sum(ll) / sum(r[1] for r in roll))},
            "choice": {"acc": sum(acc) / len(acc), "acc_stderr": stderr(acc), "acc_norm": sum(acc_norm) / len(acc_norm),
                       "acc_norm_stderr": stderr(acc_norm), "acc_bytes": sum(acc_bytes) / len(acc_bytes)},
            "words": {"acc": sum(r[1] for r in lasts) / len(lasts), "acc_stderr": stderr([float(r[1]) for r in lasts]),
                      "perplexity": math.exp(-sum(r[0] for r in lasts) / len(lasts))},
        },
    }


def greedy_word(lm, rng):
    """A text whose last word is one token that the model would have chosen."""
    while True:
        text = " ".join(words(rng, 6))
        token = lm.tok.id_to_token(int(lm.logprobs(lm.encode(text))[-1].argmax()))
        if token.startswith("Ġ") and token[1:].isalpha() and lm.encode(text + " " + token[1:]) == lm.encode(text) + [lm.tok.token_to_id(token)]:
            return text + " " + token[1:]


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    tok = make_tokenizer(rng)
    lms = {name: Lm(name, tok) for name in FAMILIES}
    pages = [" ".join(words(rng, n)) for n in (1, 4, 9, 30, 60)] + [" ".join(words(rng, 14)) + " \n " + " ".join(words(rng, 20)) + " .\n"]
    choice = [{"context": " ".join(words(rng, int(rng.integers(1, 40)))) + ("", " ", "  \n")[i % 3],
               "choices": [" ".join(words(rng, int(rng.integers(1, 5)))) for _ in range(2 + i % 3)], "gold": i % 2} for i in range(18)]
    choice[4]["context"] = ""
    last = [" ".join(words(rng, int(rng.integers(2, 30)))) for _ in range(8)]
    for lm in lms.values():
        last.append(greedy_word(lm, rng))
        text = greedy_word(lm, rng).rsplit(" ", 1)
        choice.append({"context": text[0], "choices": [words(rng, 1)[0], text[1]], "gold": 1})
    for name, docs in (("pages", [{"text": p} for p in pages]), ("choice", choice), ("words", [{"text": t} for t in last])):
        with open(os.path.join(HERE, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(d, ensure_ascii=False) + "\n" for d in docs)
    out = {"made_with": "torch %s transformers %s tokenizers %s" % (torch.__version__.split("+")[0], tf.__version__, tokenizers.__version__),
           "max_context": MAX_CONTEXT, "families": {}}
    for name, lm in lms.items():
        m = measure(lm, pages, choice, last)
        m["generate"] = []
        for n in (1, 7, 20, 30):
            ids = [int(i) for i in rng.integers(0, V, n)]
            tokens, lps = lm.greedy(ids, 16)
            m["generate"].append({"prompt": ids, "tokens": tokens, "logprobs": lps})
        out["families"][name] = m
        print(name, m["results"])
    with open(os.path.join(HERE, "eval.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


main()
