#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiktoken.json: what the tiktoken library makes of texts with the patterns that OpenAI's encodings have.

The ranks are merges over whole texts, so that a word cut at another place has other ids. Texts and ranks are hex and
base64. Needs: pip install tiktoken. Run from the top of the source tree.
"""
import base64
import json

import tiktoken

CL100K = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
O200K = "|".join([
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
TEXTS = [
    "The year 1234567 had 12 months, didn't it? IT'S 3.14159\r\n\r\n  and   more  ", "a  \n b  ", "  \n  ", "\n\n\n", "x \n", "x  ", "tabs\t\tand\r\nlines \r\n \n ",
    "\u4eba\u4eba\u751f\u800c\u81ea\u7531\uff0c\u5728\u5c0a\u4e25\u548c\u6743\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49\u3002", "HelloWorld CamelCase XMLHttpRequest iPhone's DON'T", "\u00c9cole na\u00efve Stra\u00dfe \u01c5ep",
    "\u0661\u0662\u0663\u0664\u0665 \u00b2\u00b3\u00bd \u2167", "!!!??? ... --- /path/to/file\n/next", "\U0001fae8\U0001fa77 new emoji \U0001fae9", "\U0001e4d0\U0001e4d1 \U000105c0 \U00016d40 newer letters",
    "'S 'LL 've '\u017f it'\u017fx", "\u00a0\u2003\u3000 spaces \u2028 line \u2029", "e\u0301\u0301 \u0915\u094d\u0937 \u0e01\u0e33", "1 22 333 4444 55555 666666 7777777",
    "<|endoftext|>tail  <|endoftext|>\n\n x", "function f(x){return x*2;}\n\n\n    // end\n",
]


def ranks():
    """All bytes, then merges over the texts as they stand."""
    out = {bytes([i]): i for i in range(256)}
    words = [[bytes([b]) for b in t.encode()] for t in TEXTS]
    while len(out) < 520:
        count = {}
        for w in words:
            for a in (a for a in zip(w, w[1:]) if len(a[0] + a[1]) < 8):
                count[a] = count.get(a, 0) + 1
        best = max(count, key=lambda k: (count[k], k))
        token = best[0] + best[1]
        if token not in out:
            out[token] = len(out)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [token]
                i += 1
    return out


def main():
    table = ranks()
    rows = []
    for name, pattern, config in (("cl100k", CL100K, {"pat_str": CL100K}), ("o200k", O200K, {"pat_str": O200K}), ("gpt2", GPT2, {"pat_str": GPT2}),
                                  ("whisper", GPT2, {"tokenizer_class": "WhisperTokenizer"})):
        n = len(table)
        # Whisper's multilingual file ends with a line for a token without bytes.
        special = {"<|endoftext|>": n + (name == "whisper")}
        e = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table, special_tokens=special)
        config["added_tokens_decoder"] = {str(i): {"content": x, "special": True, "normalized": False} for x, i in special.items()}
        rows.append({"name": name, "config": config, "empty": int(name == "whisper"), "ids": [e.encode(t, allowed_special="all") for t in TEXTS]})
    with open("tests/golden/tokenizer/tiktoken.json", "w") as f:
        json.dump({"tiktoken": tiktoken.__version__, "ranks": [base64.b64encode(k).decode() for k in table], "texts": [t.encode().hex() for t in TEXTS], "rows": rows}, f,
                  separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
