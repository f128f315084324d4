#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes regex.json: how the tokenizers library cuts every character, between others, by the patterns of models in use.

For each pattern the number of pieces and the FNV-1a hash of where they end (in bytes), over texts that
tests/unit/text_regex.c builds the same way. Needs: pip install tokenizers. Run from the top of the source tree.
"""
import json

import tokenizers
from tokenizers import Regex, pre_tokenizers

END = 0x32400
PATTERNS = {
    "deepseek-v3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-cjk": r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "llama4": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
              r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
              r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "clip": r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "scripts": r"\p{Han}+|[\p{Hiragana}\p{Katakana}]+|\p{Hangul}+|\p{Thai}+|\p{Latin}+|[^\p{Common}\p{Inherited}]+",
    "marks": r"\p{Mn}+|\p{Mc}+|[\p{Cf}\p{Cn}]+|\p{Co}+|\P{C}",
    "not": r"[\P{L}]+|\p{^Lu}+|\p{uppercase letter}+",
    "properties": r"\p{Alphabetic}+|\p{Emoji_Presentation}+|[^\p{Ideographic}\p{Extended_Pictographic}]+",
    "word": r"\w+|\W",
    "word-class": r"[\w]+|[^\w]",
    "not-word": r"[\W]+",
    "digits": r"\d+|[^\d\v]+",
    "not-digits": r"[\D]+",
    "fold": r"(?i:\p{Lu}+|\d'S)",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "intervals": r"\p{L}{2}+|(?:\p{N}){,2}A|1{2}?a|\x41{2}?s|'{1,2}",
    "sets": r"[a[b-d\d]\p{Lu}]+|[[x][A']s]+",
    "hex": r"\u0041+|[\u0061\u0031]+|\x{27}",
}


def taken(c):
    """Every code point where scripts change, every 64th of the large blocks."""
    return c % 64 == 0 or not (0x3500 <= c < 0x9F00 or 0xAC80 <= c < 0xF800 or 0x17100 <= c < 0x18C00 or c >= 0x20100)


def text(first):
    """The text of the code points taken out of 1,024."""
    out = []
    for c in filter(taken, range(first, first + 1024)):
        x = "" if 0xD800 <= c <= 0xDFFF else chr(c)
        out.append("aA" + x + "A" + x + "a " + x + x + "1" + x + "'s " + x + "\n")
    return "".join(out)


def fnv(h, v):
    for k in range(4):
        h = ((h ^ (v >> 8 * k & 255)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    rows = []
    for name, pattern in PATTERNS.items():
        cut, h, n = pre_tokenizers.Split(Regex(pattern), "isolated"), 0xCBF29CE484222325, 0
        for first in range(0, END, 1024):
            at = 0
            for piece, _ in cut.pre_tokenize_str(text(first)):
                at += len(piece.encode())
                h = fnv(h, at)
                n += 1
        rows.append({"name": name, "pattern": pattern, "pieces": n, "fnv": "%016x" % h})
    with open("tests/golden/tokenizer/regex.json", "w") as f:
        json.dump({"tokenizers": tokenizers.__version__, "end": END, "rows": rows}, f, indent=1, ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()
