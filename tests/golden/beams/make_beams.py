#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes requests.jsonl and expected.jsonl here: prompts, and what transformers' generate makes of them by beam search with the tiny models
of ../families, in f64. A line of expected.jsonl is the tokens of one result behind its prompt and its score. Ends are tokens that these models like.
Run by hand: make_beams.py [FAMILY ...] (torch, transformers 5.23); those of other families stay as they are."""
import json
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

assert transformers.__version__.startswith("5.23."), "this file is made with transformers 5.23"
HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = [  # beams, results, length_penalty, early_stopping, longest, shortest, ends
    (3, 3, 1.0, False, 12, 0, [33, 18]),
    (4, 2, 0.0, False, 12, 0, [10, 18]),
    (4, 4, 2.0, "never", 16, 0, [14, 33, 27]),
    (2, 2, 1.0, True, 12, 0, [10, 14, 18]),
    (5, 5, -1.0, "never", 10, 4, [33, 10, 18]),
    (6, 1, 1.5, True, 14, 0, [14, 18, 7]),
    (3, 2, 0.7, "never", 14, 2, [33]),
    (4, 3, 1.0, False, 20, 0, [10, 18]),
]
# and what is forced or may not come again: the first and the last token, tokens in a row
BOUND = [
    ((3, 3, 1.0, False, 9, 0, [33, 18]), dict(no_repeat_ngram_size=2)),
    ((4, 2, 2.0, True, 12, 3, [10, 18]), dict(forced_bos_token_id=9, forced_eos_token_id=12, no_repeat_ngram_size=3)),
    ((1, 1, 1.0, False, 14, 0, [10, 14, 18]), dict(forced_bos_token_id=11, no_repeat_ngram_size=1)),
    ((1, 1, 1.0, False, 7, 0, [14, 33]), dict(forced_eos_token_id=30, no_repeat_ngram_size=2)),
]
MEMBERS = {"no_repeat_ngram_size": "no_repeat_ngram_size", "forced_bos_token_id": "first_token", "forced_eos_token_id": "last_token"}
GREEDY = [(1, 1, 1.0, False, 16, 0, [10, 14, 18]), (1, 1, 1.0, False, 16, 5, [20, 33, 2])]  # of encoder-decoders


FAMILIES = ["llama", "gpt2", "t5", "bart"]


def kept(name, family):
    with open(os.path.join(HERE, name)) as f:
        return [r for r in map(json.loads, f) if r["id"].startswith(family + "-")]


def main():
    requests, expected, ended = [], [], 0
    for family in FAMILIES:
        if sys.argv[1:] and family not in sys.argv[1:]:
            requests += kept("requests.jsonl", family)
            expected += kept("expected.jsonl", family)
            continue
        answers = family in ["t5", "bart"]  # a source; what is generated stands behind the decoder's first token
        kind = AutoModelForSeq2SeqLM if answers else AutoModelForCausalLM
        model = kind.from_pretrained(os.path.join(HERE, "..", "families", family), dtype=torch.float64).eval()
        model.generation_config.forced_bos_token_id = model.generation_config.forced_eos_token_id = None
        g = torch.Generator().manual_seed(5)
        every = [(s, {}) for s in SETTINGS + GREEDY * answers] + [(s, {k: v for k, v in more.items() if answers or k != "forced_bos_token_id"}) for s, more in BOUND]
        for k, ((beams, n, penalty, early, longest, shortest, ends), more) in enumerate(every):
            for length in [1, 6, 11] if not answers else [2, 9, 25]:
                ids = torch.randint(3, min(40, model.config.vocab_size - 1), (1, length), generator=g)
                out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, num_return_sequences=n, length_penalty=penalty, early_stopping=early,
                                     max_new_tokens=longest, min_new_tokens=shortest or None, eos_token_id=ends, pad_token_id=39, do_sample=False,
                                     use_cache=not answers,  # transformers' cache has as many layers as the encoder
                                     return_dict_in_generate=True, output_scores=True, **more)
                name = f"{family}-{k}-{length}"
                requests.append({"id": name, "prompt_token_ids": ids[0].tolist(), "beams": beams, "n": n, "length_penalty": penalty, "early_stopping": early,
                                 "max_tokens": longest, "min_tokens": shortest, "stop_token_ids": ends, "ignore_eos": True, "temperature": 0, **{MEMBERS[k]: v for k, v in more.items()}})
                for i in range(n):
                    tokens = out.sequences[i, 1 if answers else length:].tolist()
                    at = [j for j, t in enumerate(tokens) if t in ends]
                    tokens = tokens[: at[0] + 1] if at else tokens
                    ended += bool(at)
                    expected.append({"id": name, "sample": i, "tokens": tokens, "score": round(out.sequences_scores[i].item(), 5) if beams > 1 else None})
    print(len(expected), "results,", ended, "of them ended by a token")
    for name, rows in ("requests.jsonl", requests), ("expected.jsonl", expected):
        with open(os.path.join(HERE, name), "w") as f:
            f.writelines(json.dumps(r, separators=(",", ":")) + "\n" for r in rows)


main()
