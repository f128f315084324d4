#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors for byte-level BPE tokenizers, made with the tokenizers library (pip install tokenizers).

Writes, beside this script, small tokenizer.json files in the style of GPT-2, Llama-3 and Qwen2 and two of odd shape,
vectors.json (hard texts with the ids and decoded text that the library gives) and big.json (token count and hash for
texts too large to commit, which the test generates itself) and train.json (what its BpeTrainer makes of the hard texts). `make_tokenizer.py check PROGRAM [N]` compares N fresh random
texts with a program (tests/bench/tokenize_bench --ids) instead of writing anything.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
          r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
QWEN2 = LLAMA3.replace("{1,3}", "")

TRAIN = """
All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should
act towards one another in a spirit of brotherhood. The quick brown fox jumps over the lazy dog; she sells sea-shells.
It's what they're saying: we've, I'm, you'll, he'd, don't, can't. IT'S WHAT THEY'RE SAYING. 1234567890 3.14159 2024-11-21
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen
einander im Geist der Brüderlichkeit begegnen. Tous les êtres humains naissent libres et égaux en dignité et en droits.
Todos los seres humanos nacen libres e iguales en dignidad y derechos. Все люди рождаются свободными и равными в своём
достоинстве и правах. Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
人人生而自由，在尊严和权利上一律平等。すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ Tất cả mọi người sinh ra đều được tự do và bình đẳng.
int main(int argc, char **argv) { for (int i = 0; i < argc; i++) { printf("%s\\n", argv[i]); } return 0; }
def f(x):\n\treturn x ** 2\n\n\nclass A(object):\n    def __init__(self):\n        self.x = {'a': 1, "b": [2, 3]}\n
😀😃😄😁 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ☃️ aaaaaaaaaaaaaaaa bbbbbbbb ------------ ======== ....... !!!!! ?????      \t\t\t\t\r\n\r\n
"""

SPECIALS = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>"]


def train(pre, specials, size, norm=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    tr = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator([TRAIN] + TRAIN.split("\n") * 2, tr)
    t.decoder = decoders.ByteLevel()
    return t


def split(p, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(p), behavior, invert)


def plain_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def make():
    out = {}
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 700)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    js = json.loads(t.to_str())
    js["model"]["merges"] = [" ".join(m) for m in js["model"]["merges"]]  # the older form
    out["gpt2"] = js

    t = train(pre_tokenizers.Sequence([split(LLAMA3), plain_level()]), [], 640)
    js = json.loads(t.to_str())
    v = js["model"]["vocab"]
    js["model"]["ignore_merges"] = True
    for w in ["Ġsells", "Ġdignity", "abcdef", "Ġ123", "é", "ð", "xyzzy"]:  # whole words that no merge reaches
        v.setdefault(w, len(v))
    t = Tokenizer.from_str(json.dumps(js))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in
                          ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]])
    bos = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    out["llama3"] = json.loads(t.to_str())

    t = train(pre_tokenizers.Sequence([split(QWEN2), plain_level()]), [], 680, normalizers.NFC())
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    t.add_tokens([
        AddedToken("é!", normalized=True), AddedToken("<tool_call>", normalized=False),
        AddedToken("<tool", normalized=False), AddedToken("word", single_word=True, normalized=False),
        AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=True), AddedToken("  ", normalized=False),
        AddedToken("日本", single_word=True, normalized=True), AddedToken("\n\n\n", rstrip=True, normalized=True)])
    out["qwen2"] = json.loads(t.to_str())

    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    t = train(pre, ["</s>"], 500, normalizers.Sequence([normalizers.NFD(), normalizers.NFKC()]))
    t.add_tokens([AddedToken("ﬁn", normalized=True), AddedToken("Å", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", t.token_to_id("</s>"))])
    out["prefix"] = json.loads(t.to_str())

    pre = pre_tokenizers.Sequence([
        split(r"\s+", "merged_with_next"), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split("-", "merged_with_previous"), split(r"\p{Lu}", "contiguous"), split(r"[,;]", "removed"),
        split(r"\p{Ll}+|\p{Han}", "isolated", True), split(r"x*", "isolated"), plain_level()])
    t = train(pre, ["<|endoftext|>"], 480, normalizers.NFKD())
    out["splits"] = json.loads(t.to_str())
    return out


HARD = [
    "", " ", "  ", "   a", "a   ", "\n", "\n\n", " \n \n  x", "\r\n\r\n", "\t\tx", "a\n", "a \n b", "a\u00a0b", "\u3000\u3000x",
    "\u180ea \u180e", "\u200b\u200b a", "\u2028x\u2029 y", "\x85\x85x", "\x0b\x0c x", "\x1c\x1d\x1e\x1f", "\x00", "a\x00b\x00\x00",
    "it's IT'S it'S 'S 's 'ſ 'ſs 'T 'RE 'Ll 'lL 'll 'l 'v 've 'VE 'd'D'm'M ' ''s '''re", "don’t ’s", "'", "'a", " 's", "  's",
    "1", "12", "123", "1234", "12345678901", "½¾ ²³ ⅷ Ⅷ ① ٣٤٥ १२३ 一二三 𝟘𝟙𝟚", " 1 22  333   4444", "x1y22z333", "3.14,15;16-17",
    "Hello, world!", "HELLO WORLD", "hello\tworld", "(a)[b]{c}<d>", "a_b-c.d/e\\f", "foo@bar.com http://x.y/z?q=1&r=2#s",
    "........", "!!!???...", " !!! ", "!\n!\r\n!", "a!\n\n\nb", "--\n--", "#\r\r\n\n#",
    "é e\u0301 e\u0301! é! ñ n\u0303", "Å A\u030a \u212b", "\u1e9b\u0323", "q\u0307\u0323 q\u0323\u0307", "\u0344 \u0958 \u2126", "가 \u1100\u1161 \u1100\u1161\u11a8 각",
    "ﬁn fin ﬃ Ⅷ ｆｕｌｌ ㎏ ㌔", "\u0301\u0302 leading marks", "a" + "\u0316\u0301" * 40 + "b", "a" + "\u0301\u0316\u0327" * 30,
    "Straße STRASSE İstanbul ıi ǅ ŉ", "Ωμέγα ΣΊΣΥΦΟΣ ς", "Привет, мир! ёЁ й", "人人生而自由，在尊严。", "日本 日本語 、日本。", "すべてのｶﾀｶﾅ々〆", "한국어 텍스트",
    "مرحبا بالعالم ١٢٣", "שָׁלוֹם עולם", "हिन्दी देवनागरी ज़", "ภาษาไทย กำ", "ქართული ႠႡ ᲐᲑ", "Ꮳꮳ 𐐀𐐨 𝕳𝖊𝖑𝖑𝖔 𝒜", "ߒ ꓐ 𞤀𞤢 𒀀 𓀀",
    "😀", "👍🏽👍", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷🇯🇵", "☃️ ☃ ✈︎", "1️⃣2️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a😀b 😀 c", "\u200d\ufe0f\u20e3",
    "\ufeffbom", "\ufffd\ufffe\uffff", "\U0010ffff \U000e0001", "\ue000 private \U000f0000", "\u0378 unassigned \u05ff", "soft\u00adhyphen",
    "a" * 15, "a" * 16, "a" * 17, "a" * 63, "a" * 64, "a" * 65, "a" * 200, "ab" * 100, " " * 100, " " * 100 + "x", "\n" * 50, "-" * 77, "é" * 60,
    "the " * 50, "abcabcabc" * 30, "aab" * 50, "word", "words", "a word.", "sword word_ word", "word word", "wordword", "éword", "word1 1word",
    "<|endoftext|>", "a<|endoftext|>b", "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|><|eot_id|>", "<|endoftext", "</s></s>", "<<|endoftext|>>",
    "a <left> b", "a  <left>  b", "a <right> b", "a  <right>  b", "x <both> y", "<left><left>", "<right> <right> x", "<both> <left> <right>", "<tool_call><tool", "<tool_cal",
    "a    b", "a     b", "x\n\n\n\n\n y", "\n\n\n\n", "日本", "日本x", " 日本 ", "x日本", "é!é!", "e\u0301!", "sells dignity abcdef 123 xyzzy é ð", " sells 1234 dignitys",
    "int main() {\n\treturn 0;\n}\n", "if x:\r\n    y = 'it''s'\r\n", "{\"a\": [1, 2.5e-3, null]}", "α\u0345 ᾳ", "\u0130\u0131 \u017f \u212a",
]
BROKEN = [b"\xff", b"a\xffb", b"\xc3", b"\xc3\xa9\xc3", b"\xe4\xba", b"\xe4\xbaX", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80",
          b"\xc0\x80", b"\xe0\x80\x80", b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80\x80\x80", b"ok \xe2\x28\xa1 \xe2\x82\x28 ok", b"\xfe\xfe\xff\xff",
          b"\xf0\x28\x8c\xbc", b"x\xe2\x80", b"\xf1\x80\x80\xf1\x80\xf1", b"\xef\xbb\xbfbom\xef\xbb", b"caf\xe9 latin1 \xfcber"]


def random_text(rng):
    pools = [
        lambda: chr(rng.randrange(32, 127)), lambda: chr(rng.randrange(97, 123)), lambda: rng.choice(" \n\t\r\u00a0\u2003\u3000\x85\x0b"),
        lambda: " ", lambda: rng.choice("'sStTmMdDrReEvVlLſ"), lambda: chr(rng.randrange(48, 58)), lambda: chr(rng.randrange(0xC0, 0x250)),
        lambda: chr(rng.randrange(0x300, 0x370)), lambda: chr(rng.randrange(0x370, 0x530)), lambda: chr(rng.randrange(0x590, 0x700)),
        lambda: chr(rng.randrange(0x900, 0x0E80)), lambda: chr(rng.randrange(0x4E00, 0x9FA5)), lambda: chr(rng.randrange(0x3040, 0x3100)),
        lambda: chr(rng.randrange(0xAC00, 0xD7A4)), lambda: chr(rng.randrange(0x1100, 0x1200)), lambda: chr(rng.randrange(0x1F300, 0x1F700)),
        lambda: rng.choice("\u200d\ufe0f\u20e3\u200b\u180e\u00ad"), lambda: chr(rng.randrange(0x2000, 0x2C00)),
        lambda: chr(rng.choice([c for c in [rng.randrange(0x110000)] if not 0xD800 <= c < 0xE000] or [65])),
        lambda: chr(rng.randrange(0, 32)), lambda: rng.choice("½²Ⅷ①٣१𝟘"), lambda: rng.choice(HARD)[:12], lambda: rng.choice(TRAIN.split()),
        lambda: rng.choice(["word", "<left>", "<right>", "<both>", "<|endoftext|>", "<tool_call>", "日本", "e\u0301!", "Å", "ﬁn"]),
    ]
    out = []
    for _ in range(rng.randrange(1, 9)):
        pool = rng.choice(pools)
        for _ in range(rng.choice([1, 1, 2, 3, 5, 9])):
            out.append(pool())
    return "".join(out)


def texts(seed, n):
    rng = random.Random(seed)
    all_ = [t.encode() for t in HARD] + BROKEN
    for _ in range(n):
        b = random_text(rng).encode()
        if rng.random() < 0.08 and b:
            b = bytearray(b)
            for _ in range(rng.randrange(1, 4)):
                b[rng.randrange(len(b))] = rng.randrange(256)
            b = bytes(b)
        all_.append(b)
    return all_


def decode(b):
    return b.decode("utf-8", errors="replace")


def portable(b):
    """Every character has had its category since Unicode 3.2, so the installed PCRE2's version does not matter."""
    return all(unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) != "Cn" for c in decode(b))


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in struct.pack("<I", i):
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def big_text(kind, n):
    """The same generator as big_text() of tests/unit/text_golden.c."""
    if kind == "one":
        return "a" * n
    x, out = 12345, bytearray(n)
    letters = b"aabcdeefghijklmnopqrstuvwxyz"
    for i in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        out[i] = letters[(x >> 16) % len(letters)] if kind == "letters" else 32 if (x >> 16) % 5 else letters[(x >> 20) % 28]
    return out.decode()


def train_golden(docs):
    pres = {"llama3": pre_tokenizers.Sequence([split(LLAMA3), plain_level()]), "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
            "qwen2": pre_tokenizers.Sequence([split(QWEN2), plain_level()])}
    rows = []
    for pattern, pre in pres.items():
        for norm, n in (("none", None), ("nfc", normalizers.NFC()), ("nfkc", normalizers.NFKC())):
            for size, least in ((700, 0), (20000, 0), (20000, 2)):
                t = Tokenizer(models.BPE())
                t.pre_tokenizer = pre
                if n:
                    t.normalizer = n
                t.train_from_iterator([decode(b) for b in docs + [TRAIN.encode()]], trainers.BpeTrainer(
                    vocab_size=size, min_frequency=least, special_tokens=["<|endoftext|>", "e", "ab"], show_progress=False,
                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
                m = json.loads(t.to_str())["model"]
                vocab = sorted(m["vocab"], key=m["vocab"].get)
                rows.append({"pattern": pattern, "normalizer": norm, "vocab_size": size, "min_frequency": least,
                             "n_vocab": len(vocab), "n_merges": len(m["merges"]),
                             "vocab": fnv("\n".join(vocab).encode()), "merges": fnv("\n".join(" ".join(x) for x in m["merges"]).encode())})
    return {"extra": TRAIN.encode().hex(), "rows": rows}


def check(program, n, seed):
    bad = 0
    for name, js in make().items():
        t = Tokenizer.from_str(json.dumps(js))
        for flags, kw in ((0, {"add_special_tokens": False}), (1, {"add_special_tokens": True}), (4, {"add_special_tokens": False}),
                          (8 | 16, {"add_special_tokens": False})):
            t.encode_special_tokens = flags == 4
            docs = texts(seed + flags, n)
            with tempfile.TemporaryDirectory() as d:
                open(d + "/t.json", "w").write(json.dumps(js))
                open(d + "/r", "wb").write(b"".join(struct.pack("<I", len(b)) + b for b in docs))
                lines = subprocess.run([program, "--ids=%d" % flags, d + "/t.json", d + "/r"], check=True,
                                       stdout=subprocess.PIPE, text=True).stdout.split("\n")
            for b, line in zip(docs, lines):
                ids, back = line.split("\t")
                got = [int(x) for x in ids.split()]
                want = t.encode(decode(b), **kw).ids
                if got != want or bytes.fromhex(back).decode() != t.decode(want, skip_special_tokens=False):
                    bad += 1
                    if bad < 20:
                        print(name, flags, repr(decode(b)), "\n  got ", got, "\n  want", want)
    print("differences:", bad)
    return bad != 0


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "check":
        return check(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2000, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    docs = texts(7, 260)
    files = make()
    vec = {"made_with": "tokenizers " + tokenizers.__version__, "texts": [b.hex() for b in docs],
           "portable": [int(portable(b)) for b in docs], "tokenizers": {}}
    big = {}
    for name, js in files.items():
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(js, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        t = Tokenizer.from_str(json.dumps(js))
        rows = {"ids": [], "template": [], "special_text": []}
        for b in docs:
            s = decode(b)
            rows["ids"].append(t.encode(s, add_special_tokens=False).ids)
            rows["template"].append(fnv(t.encode(s).ids))
            t.encode_special_tokens = True
            rows["special_text"].append(fnv(t.encode(s, add_special_tokens=False).ids))
            t.encode_special_tokens = False
        rows["decoded"] = [t.decode(i, skip_special_tokens=False).encode().hex() if t.decode(i, skip_special_tokens=False) != decode(b)
                           else None for i, b in zip(rows["ids"], docs)]
        rows["skipped"] = [fnv(t.decode(i).encode()) for i in rows["ids"]]
        vec["tokenizers"][name] = rows
        if name in ("gpt2", "llama3"):
            big[name] = []
            for kind, n in (("one", 10000000), ("letters", 10000000), ("spaces", 1000000)):
                ids = t.encode(big_text(kind, n), add_special_tokens=False).ids
                big[name].append({"kind": kind, "bytes": n, "tokens": len(ids), "fnv": fnv(ids)})
    for name, data in (("vectors.json", vec), ("big.json", big), ("train.json", train_golden(docs))):
        with open(os.path.join(HERE, name), "w") as f:
            json.dump(data, f, separators=(",", ":"))
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
