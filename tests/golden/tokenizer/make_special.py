# SPDX-License-Identifier: Apache-2.0
# What the tokenizers library makes of added special tokens: python3 make_special.py >special.json
# The tokenizers are those of tests/fuzz/corpus; tests/unit/text_grow adds the same tokens and encodes the same texts.
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

corpus = Path(__file__).resolve().parents[2] / "fuzz" / "corpus" / "tokenizer"
special = ["<image>", "[PIC \u00e9]"]
texts = ["Hello <image> world<image>", "<image>", "a[PIC \u00e9] b", "the quick <image>[PIC \u00e9]", "no special at all", "<image"]
out = {"special": special, "texts": texts, "ids": {}}
for name in ("bytelevel", "llama", "unigram", "bert"):
    t = Tokenizer.from_file(str(corpus / (name + ".json")))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    out["ids"][name] = [[t.token_to_id(s) for s in special]] + [t.encode(x, add_special_tokens=False).ids for x in texts]
print(json.dumps(out))
