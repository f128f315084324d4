#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores of a reward model that lf-convert exported, by transformers, against those that lf-score wrote:

    check_rm.py MODEL_DIR SCORES.jsonl [TOLERANCE]

Lines of SCORES.jsonl need "token_ids" and "score" (lf-score --token-ids). All texts go in one padded batch, so that the padding
token of config.json is put to the test. Run by hand; says how far the scores are apart at most, and fails beyond 1e-5.
"""
import json
import sys

import torch
import transformers as tf


def main():
    rows = [json.loads(line) for line in open(sys.argv[2])]
    model = tf.AutoModelForSequenceClassification.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    assert model.config.num_labels == 1
    n, pad = max(len(r["token_ids"]) for r in rows), model.config.pad_token_id
    ids = torch.tensor([r["token_ids"] + [pad] * (n - len(r["token_ids"])) for r in rows])
    mask = torch.tensor([[1] * len(r["token_ids"]) + [0] * (n - len(r["token_ids"])) for r in rows])
    with torch.no_grad():
        got = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0].double()
    want = torch.tensor([r["score"] for r in rows], dtype=torch.float64)
    off = (got - want).abs().max().item()
    print("%s, %d texts, scores %.3f to %.3f: off by %.2g" % (type(model).__name__, len(rows), want.min(), want.max(), off))
    return off > (float(sys.argv[3]) if len(sys.argv) > 3 else 1e-5)


if __name__ == "__main__":
    sys.exit(main())
