#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes expected.json here: corrupted texts of engine/train/seq2seq.h, computed another way than in C. Philox is integers of any size. A
text is masked as a whole, as T5's random_spans_noise_mask and the collator of transformers' run_t5_mlm_flax.py do it, with arrays; where these
shuffle, the counters choose. Denoising keeps lists of pieces. Run by hand: make_seq2seq.py (numpy)."""
import json
import math
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
M = 0xFFFFFFFF
SPAN_TEXT, SPAN_NOISE, FILL_LENGTH, FILL_PLACE, FILL_ORDER = 0x53505400, 0x53505410, 0x46494C00, 0x46494C10, 0x46494C20
EOS = 1


def philox(seed, site, a, b):
    """Philox 4x32-10 of Salmon et al. 2011: counter (a low, a high, b, site), key of the seed."""
    c, k = [a & M, a >> 32, b, site], [seed & M, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & M, (p >> 32) ^ c[3] ^ k[1], p & M]
        k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
    return c


class Draws:
    def __init__(self, case, site):
        self.key, self.i = (case["seed"], site + case["valid"], case["sample"]), 0

    def word(self):
        self.i += 1
        return philox(*self.key, (self.i - 1) // 4)[(self.i - 1) % 4]

    def below(self, n):
        return self.word() * n >> 32


def choice(draws, places, wanted):
    """Which of the places are chosen: each with the probability wanted / places that are left."""
    out = np.zeros(places, dtype=bool)
    for i in range(places):
        out[i] = draws.below(places - i) < wanted - out.sum()
    assert out.sum() == wanted
    return out


def spans_of(length, density, mean):
    noise = min(max(int(np.round(length * density)), 1), length - 1)
    return noise, max(int(np.round(noise / mean)), 1)


def noise_mask(case, length):
    noise, spans = spans_of(length, case["share"], case["mean"])

    def segmentation(items, site):
        first = np.pad(choice(Draws(case, site), items - 1, spans - 1), [[1, 0]])
        return np.unique(np.cumsum(first), return_counts=True)[1]

    lengths = np.reshape(np.stack([segmentation(length - noise, SPAN_TEXT), segmentation(noise, SPAN_NOISE)], axis=1), [spans * 2])
    starts = np.zeros((length,), dtype=np.int8)
    starts[np.cumsum(lengths)[:-1]] = True
    return np.equal(np.cumsum(starts) % 2, 1)


def sentinels(mask, top):
    """The first of each masked span is a sentinel, its others -1, everything else 0."""
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    ids = np.where(begins, top + 1 - np.cumsum(begins), 0)
    return np.where(mask & ~begins, -1, ids)


def span(case, text):
    mask, text = noise_mask(case, len(text)), np.array(text)

    def replaced(m):
        s = sentinels(m, case["sentinel"])
        return [int(x) for x in np.where(s > 0, s, text)[s >= 0]] + [EOS]

    return replaced(mask), replaced(~mask)


def denoise(case, text):
    ends, sentences = case["ends"], [[]]
    for i, t in enumerate(text):
        if i and text[i - 1] in ends and t not in ends:
            sentences.append([])
        sentences[-1].append(t)
    d, order = Draws(case, FILL_ORDER), list(range(len(sentences)))
    for i in range(len(order) - 1, 0, -1):
        j = d.below(i + 1)
        order[i], order[j] = order[j], order[i]
    moved = [t for i in order for t in sentences[i]]
    budget, d, lengths = math.ceil(len(text) * case["share"]), Draws(case, FILL_LENGTH), []
    while sum(lengths) < budget:
        left, u, n, p = budget - sum(lengths), d.word() / 2**32, 0, math.exp(-case["mean"])
        total = p
        while u >= total and n < left:
            n += 1
            p *= case["mean"] / n
            total += p
        lengths.append(left if len(lengths) == budget - 1 else n)
    is_span = choice(Draws(case, FILL_PLACE), len(text) - budget + len(lengths), len(lengths))
    source = []
    for yes in is_span:
        if yes:
            source.append(case["mask"])
            moved = moved[lengths.pop(0) :]
        else:
            source.append(moved.pop(0))
    begin = [case["begin"]] if case["begin"] >= 0 else []
    return begin + source + [EOS], begin + list(text) + [EOS]


def text_length(density, mean, source, target):
    """The longest text for which neither is too long: transformers' compute_input_and_target_lengths, with a bound on targets besides."""
    n = 2
    while True:
        noise, spans = spans_of(n + 1, density, mean)
        if n + 1 - noise + spans + 1 > source or noise + spans + 1 > target:
            noise, spans = spans_of(n, density, mean)
            return n, n - noise + spans + 1, noise + spans + 1
        n += 1


def main():
    cases, rng = [], np.random.default_rng(3)
    for k, (n, share, mean) in enumerate([(568, 0.15, 3), (60, 0.15, 3), (60, 0.5, 2), (33, 0.3, 1), (2, 0.15, 3), (3, 0.15, 3), (9, 0.15, 8), (40, 0.15, 32)]):
        case = {"kind": "span", "seed": 7 + (k % 3 << 40), "valid": k % 2, "sample": 5 * k + (k << 33), "share": share, "mean": mean, "sentinel": 999}
        text = [int(x) for x in rng.integers(2, 800, n)]
        source, target = span(case, text)
        cases.append(case | {"text": text, "source": source, "target": target})
    for k, (n, share, mean, begin) in enumerate([(200, 0.3, 3, 0), (60, 0.3, 3, 0), (60, 0.5, 1.5, -1), (41, 0.15, 3.5, 0), (1, 0.3, 3, 0), (2, 0.3, 3, -1), (30, 0.9, 1, 0), (30, 0.1, 6, 0)]):
        ends = [[4, 5], [4], []][k % 3]
        case = {"kind": "denoise", "seed": 11 + (k % 3 << 40), "valid": k % 2, "sample": 7 * k + (k << 33), "share": share, "mean": mean, "mask": 3, "begin": begin, "ends": ends}
        text = [int(x) if x < 30 else 4 + int(x) % 2 for x in rng.integers(6, 34, n)]
        source, target = denoise(case, text)
        cases.append(case | {"text": text, "source": source, "target": target})
    asked = [(0.15, 3, 512, 114), (0.15, 3, 512, 512), (0.15, 3, 512, 80), (0.15, 3, 128, 64), (0.5, 3, 64, 64), (0.15, 20, 256, 256), (0.15, 3, 4, 4), (0.3, 1, 77, 50)]
    lengths = [list(a) + list(text_length(*a)) for a in asked]
    assert lengths[0][4:] == [568, 512, 114]
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        rows = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        f.write('{"lengths":%s,\n"cases":[\n%s]}\n' % (json.dumps(lengths, separators=(",", ":")), rows))


main()
