#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make longrope.json: what transformers generates with the weights of the golden directory
phi3-short, greedily, across the length at which its angles change.

    switch    model.generate: short angles as long as the text is short, then all of it again with
              long ones
    length    the same argmax, with the angles of prompt and max_tokens together from the first token
              on: the forward pass over a text that is padded to this length

Each is {"prompt", "max_tokens", "tokens", "logprobs"} in f64. A tool like make_families.py.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
import torch  # noqa: E402

from make_families import HERE, Double, Reference, tf  # noqa: E402

# Lengths of prompts and of what follows; the angles change behind 16.
PROMPTS = (12, 6), (10, 12), (16, 4), (20, 5), (4, 9)


def generate(ref, model, prompt, more):
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=more, do_sample=False,
                         eos_token_id=None, pad_token_id=0, return_dict_in_generate=True,
                         output_logits=True)
    tokens = out.sequences[0, len(prompt):].tolist()
    return tokens, [float(z[0].double().log_softmax(-1)[t]) for z, t in zip(out.logits, tokens)]


def by_length(ref, model, prompt, more):
    ids, logprobs = list(prompt), []
    for _ in range(more):
        padded = torch.tensor([ids + [0] * (len(prompt) + more - len(ids))])
        z = model(input_ids=padded, use_cache=False).logits[0, len(ids) - 1].log_softmax(-1)
        ids.append(int(z.argmax()))
        logprobs.append(float(z[ids[-1]]))
    return ids[len(prompt):], logprobs


def main():
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    ref = Reference("phi3-short")
    with torch.no_grad(), Double(ref.cls):
        model = ref.load(ref.dir, torch.float64)
        texts = [(ref.tokens()[0].tolist() * 2)[:n] for n, _ in PROMPTS]
        out = {}
        for name, make in (("switch", generate), ("length", by_length)):
            out[name] = []
            for text, (_, more) in zip(texts, PROMPTS):
                tokens, logprobs = make(ref, model, text, more)
                out[name].append({"prompt": text, "max_tokens": more, "tokens": tokens,
                                  "logprobs": logprobs})
    with open(os.path.join(HERE, "longrope.json"), "w") as f:
        json.dump(out, f)
        f.write("\n")
    for a, b in zip(out["switch"], out["length"]):
        print(len(a["prompt"]), a["max_tokens"], a["tokens"], b["tokens"])


if __name__ == "__main__":
    main()
