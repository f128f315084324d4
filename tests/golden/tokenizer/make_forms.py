#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden files for every kind of tokenizer and file form, made with the tokenizers, sentencepiece and tiktoken libraries.

make_forms.py                    writes forms.tar.xz (small tokenizers, vectors.json with texts, ids, decoded texts) beside itself
make_forms.py stress PROGRAM [MB] [DIR ..]  builds tokenizers of 4,000 tokens (and takes the files in DIR ..; LF_STRESS: only these
                                 names), a multilingual text of MB megabytes out of the translations, code and dictionaries of this machine, and compares every id and
                                 every decoded text of PROGRAM (tests/bench/tokenize_bench) with the libraries
Needs: pip install tokenizers sentencepiece tiktoken protobuf.
"""
import base64
import gettext
import glob
import gzip
import io
import json
import lzma
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile

import sentencepiece as spm
import tiktoken
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_tokenizer as mt

HERE = os.path.dirname(os.path.abspath(__file__))
SP = "\u2581"

# Texts for what these kinds add to make_tokenizer.HARD.
MORE = [
    SP, SP + SP, SP + "a", "a" + SP + "b", " " + SP + " ", SP + " a", "<0x41>", "<0xE4>\u4eba", "<unk>", "a<unk>b", "<s>", "</s>", "<s>a</s>", " <s> a </s> b",
    "<pad><mask>", "a  b", "a   b    c", "  two  spaces  ", "trailing ", "trailing  ", "\ttab", "\u3000ideographic\u3000space\u3000", "\u00a0nbsp\u00a0",
    "line\nline\n\nline", "\r\n", "a\r\nb", "\r", "a\rb", "\x7f\x80\x9f", "\u200b", "\ufeff", "\ufffd", "\u2028", "\u1680", "\u202f", "a\u200db", "\u00adsoft",
    "\u4eba\u4eba\u751f\u800c", "\u4eba a \u4eba", "a\u4eba", "\U00020000\U0002f800", "\uf900", "\u3400\u4dbf", "\u9fff", "\u30ab\u3099", "\uff76\uff9e", "\uff21\uff22\uff23", "\uff10\uff11",
    "\ufb01ne", "\ufb01\u0301", "\ufb03", "\u2460\u2461", "\u00bd", "\u2122", "\u33a5", "\u3300", "\u1e9b\u0323", "\u0344", "e\u0301", "E\u0301\u0302", "\u00c9COLE", "\u00c5ngstr\u00f6m",
    "na\u00efve caf\u00e9", "STRASSE stra\u00dfe", "\u0130stanbul", "I\u0307", "\u03a3\u03a3 \u03c3\u03c2", "\u01c5", "\u1f88", "\u0587", "\u2167", "\u24b6",
    "don't can't won't I'm you've he'll we're they'd it's", "do not", "a ' b", "a , b . c ! d ?", "n't", " n't", "'s", "# # ##", "##ing", "a##b", "[UNK] [CLS] [SEP] [MASK] [PAD]", "[CLS]a[SEP]",
    "hello-world_foo.bar", "$100 \u20ac50 \u00a35", "1,234.56", "a" * 99, "a" * 100, "a" * 101, "\u00e9" * 101, "x" * 300, "\u4eba" * 150, "unaffable unwanted", "UnAffAble",
    "\u0915\u094d\u0937", "\u0e01\u0e33", "\u0e19\u0e49\u0e33", "\u1100\u1161\u11a8", "\uac01", "\u0301", " \u0301", "a\u0301\u0301", "\u05e9\u05c1\u05b8", "\u0627\u064e", "\u0627\u0653", "\ufdfa", "\u0651\u064e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f600", "a\U0001f600", "\U0001f600\U0001f600",
    "``quoted''", "''", "``", "a\u2019b", "\u201cx\u201d", "\u2026", "\u2014", "~!@#$%^&*()_+{}|:\"<>?", "http://x.y/z?a=b&c=d", "a@b.c",
    "SYMBOL", "xSYMBOLy", "SYMBOLSYMBOL", " SYMBOL ", "SYM BOL", "SYMBO", "\u4ebaSYMBOL\u4eba", "<user>", "a<user>b <user>", "<us", "<user><user>", "\t\t", "\t\t\t x", "    four", "        eight",
    "\x00", "a\x00b", "\x01\x02", "\x1b[0m", "\x0b\x0c", "\u0085", "caf\u00e9\u0301", "\u212b", "\u2126", "\u00b5", "\u017f", "\u1e9e", "\ua64a", "\u10d0 \u1c90", "\u13a0\uab70", "\U00010400\U00010428",
    "the of and to in", "The Of And To In", "thethethe", "the\u00a0the", "a b c d e f g", "abcdefg", "aaab aab ab", "0000 000 00 0", "--- -- -", "=====", "...", "!!!", "\u3002\u3002", "\uff0c\uff1f",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "\u0540\u0561\u0575", "\u12a0\u121b\u122d\u129b", "\u1780\u17d2\u1798\u17c2", "\u1019\u103c\u1014\u103a", "\ua9a6",
    "\ue000\uf8ff", "\U000f0000", "\U0010ffff", "\ufdd0", "\ufffe", "\u0378", "\u2fff", "\U0003ffff", "tail\u00a0", "tail\u3000", "\u3000", "\u2003x\u2003", "a \u0301b",
]
BYTES = mt.BROKEN
FNV = 0xCBF29CE484222325


def texts(seed, n):
    rng = random.Random(seed)
    pool = [t.encode() for t in mt.HARD + MORE]
    out = pool + BYTES
    for _ in range(n):
        out.append(mt.random_text(rng).encode() if rng.random() < 0.7 else b"".join(rng.choice(pool)[:40] for _ in range(rng.randrange(1, 6))))
    return [mt.decode(b).encode() if b not in BYTES else b for b in out]


def decode(b):
    return b.decode("utf-8", errors="replace")


# ---- sentencepiece models ----

SPM_KINDS = {
    # Llama-2: BPE, identity, byte fallback
    "spm-llama": dict(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True,
                      allow_whitespace_only_pieces=True),
    # Gemma, Yi: no dummy prefix, user-defined symbols
    "spm-gemma": dict(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
                      user_defined_symbols=["<user>", "SYMBOL", "\t\t", SP + SP], allow_whitespace_only_pieces=True, split_digits=True),
    # BPE without bytes: unk runs, rules, control symbols
    "spm-nmt": dict(model_type="bpe", normalization_rule_name="nmt_nfkc", control_symbols=["<mask>", "<sep>"], user_defined_symbols=["SYMBOL", "<user>"], pad_id=3),
    # T5, ALBERT, ChatGLM: Unigram with rules
    "spm-t5": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, user_defined_symbols=["SYMBOL", "<user>"]),
    "spm-glm": dict(model_type="unigram", normalization_rule_name="nfkc_cf", byte_fallback=True, split_by_whitespace=False),
    "spm-suffix": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", treat_whitespace_as_suffix=True, remove_extra_whitespaces=False),
    "spm-suffix-bpe": dict(model_type="bpe", normalization_rule_name="nfkc_cf", treat_whitespace_as_suffix=True, byte_fallback=True),
}


def train_spm(sentences, size, **kw):
    out = io.BytesIO()
    kw = dict(dict(character_coverage=0.98, hard_vocab_limit=False, num_threads=2, minloglevel=2, max_sentence_length=20000), **kw)
    spm.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=out, vocab_size=size + (256 if kw.get("byte_fallback") else 0), **kw)
    m = pb.ModelProto.FromString(out.getvalue())
    for f in ("input", "model_prefix"):
        m.trainer_spec.ClearField(f)
    return m


def spm_unused(m):
    """The model with some pieces marked unused: those are taken apart again."""
    m = pb.ModelProto.FromString(m.SerializeToString())
    rng = random.Random(3)
    for p in m.pieces:
        if p.type == 1 and len(p.piece) > 2 and rng.random() < 0.2:
            p.type = 5
    return m


# ---- tokenizer.json of the same families ----

def merges_of(m):
    """Every way to halve a piece, best score first, as transformers' converters list them."""
    vocab = {p.piece: (i, p.score) for i, p in enumerate(m.pieces)}
    rows = []
    for piece, (i, score) in vocab.items():
        local = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        local.sort(key=lambda x: (vocab[x[0]][0], vocab[x[1]][0]))
        rows += [(a, b, score) for a, b in local]
    rows.sort(key=lambda x: x[2], reverse=True)
    return [(a, b) for a, b, _ in rows]


def json_llama(m, legacy):
    t = Tokenizer(models.BPE({p.piece: i for i, p in enumerate(m.pieces)}, merges_of(m), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        t.normalizer = normalizers.Sequence([normalizers.Prepend(SP), normalizers.Replace(" ", SP)])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(SP, prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace(SP, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<unk>", "<s>", "</s>")])
    t.add_tokens([AddedToken("<user>", normalized=False, rstrip=True), AddedToken("SYMBOL", normalized=True)])
    return t


def json_gemma(m):
    t = Tokenizer(models.BPE({p.piece: i for i, p in enumerate(m.pieces)}, merges_of(m), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", SP)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace(SP, " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<unk>", "<s>", "</s>")])
    t.add_tokens([AddedToken(x, normalized=False) for x in ("\n\n", "\t\t", SP + SP)])
    return t


def json_bpe_unk(m):
    """Characters without bytes: unk is fused, in words of a Metaspace that splits."""
    t = Tokenizer(models.BPE({p.piece: i for i, p in enumerate(m.pieces)}, merges_of(m), unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Nmt()
    t.pre_tokenizer = pre_tokenizers.Metaspace(SP, prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace(SP, prepend_scheme="always", split=True)
    return t


def json_t5(m, kind):
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], unk_id=[i for i, p in enumerate(m.pieces) if p.type == 2][0],
                                 byte_fallback=m.trainer_spec.byte_fallback))
    pre = normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap)
    if kind == "t5":
        t.normalizer = pre
        t.pre_tokenizer = pre_tokenizers.Metaspace(SP, prepend_scheme="always")
        t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    elif kind == "xlmr":
        t.normalizer = normalizers.Sequence([pre, normalizers.Replace(Regex(" {2,}"), " ")])
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SP, prepend_scheme="always")])
    else:
        t.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                             normalizers.Lowercase(), pre, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
        t.pre_tokenizer = pre_tokenizers.Metaspace(SP, prepend_scheme="first")
    t.decoder = decoders.Metaspace(SP, prepend_scheme="always") if kind != "albert" else decoders.Sequence([decoders.Metaspace(SP, prepend_scheme="never"), decoders.Strip(" ", 2, 0)])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("</s>",) if t.token_to_id(x) is not None])
    t.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return t


def json_bert(sentences, size, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(sentences, trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False,
                                                               limit_alphabet=size // 3))
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls)) if lower else processors.RobertaProcessing(("[SEP]", sep), ("[CLS]", cls))
    t.decoder = decoders.WordPiece("##", cleanup=lower)
    return t


def json_clip(sentences, size):
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator(sentences, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|startoftext|>", "<|endoftext|>"], show_progress=False,
                                                         end_of_word_suffix="</w>", limit_alphabet=size // 3))
    t.decoder = decoders.BPEDecoder("</w>")
    return t


def json_prefix(sentences, size):
    """BPE with a continuing prefix, dashes as delimiters, unk not fused, no decoder."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="@@"))
    t.normalizer = normalizers.Strip(left=True, right=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.WhitespaceSplit()])
    t.train_from_iterator(sentences, trainers.BpeTrainer(vocab_size=size, special_tokens=["[UNK]"], show_progress=False, continuing_subword_prefix="@@",
                                                         limit_alphabet=size // 3))
    return t


def json_words(sentences, size):
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=True, lowercase=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous")])
    t.train_from_iterator(sentences, trainers.WordLevelTrainer(vocab_size=size, special_tokens=["[UNK]"], show_progress=False))
    t.decoder = decoders.Fuse()
    return t


def json_level(sentences, size):
    """Byte-level by a normalizer: the model sees characters of the byte alphabet."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    t.train_from_iterator(sentences, trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=12))
    t.decoder = decoders.ByteLevel()
    return t


# ---- the forms on disk ----

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def dump(js):
    return json.dumps(js, ensure_ascii=False, separators=(",", ":")) + "\n"


class Lib:
    """One tokenizer as its library has it."""

    def __init__(self, encode, decode_, template=None, plain=None, skipped=None):
        self.encode, self.decode, self.template = encode, decode_, template or encode
        self.plain = plain or encode  # special tokens written in the text are ordinary text
        self.skipped = skipped or decode_  # decoded without special tokens


def of_json(t):
    def plain(s):
        t.encode_special_tokens = True
        ids = t.encode(s, add_special_tokens=False).ids
        t.encode_special_tokens = False
        return ids

    return Lib(lambda s: t.encode(s, add_special_tokens=False).ids, lambda i: t.decode(i, skip_special_tokens=False), lambda s: t.encode(s).ids, plain,
               lambda i: t.decode(i, skip_special_tokens=True))


def of_spm(m):
    p = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
    return Lib(lambda s: p.encode(s), lambda i: p.decode(i))


def alphabet():
    keep = list(range(33, 127)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, n = {}, 0
    for b in range(256):
        table[chr(b if b in keep else 256 + n)] = b
        n += b not in keep
    return table


def make_ranks(t):
    """The tokens of a byte-level BPE in the order in which merges make them, as tiktoken ranks."""
    js = json.loads(t.to_str())["model"]
    table = alphabet()
    order = sorted(js["vocab"], key=js["vocab"].get)
    toks = [bytes([b]) for b in range(256)] + [bytes(table[c] for c in x) for x in order if len(x) > 1 and all(c in table for c in x)]
    return {b: i for i, b in enumerate(dict.fromkeys(toks))}


def build(out, sentences, size):
    """Writes every tokenizer below out; returns {name: (path, Lib)}."""
    libs = {}

    def add_json(name, t):
        write(f"{out}/{name}.json", dump(json.loads(t.to_str())))
        libs[name] = (f"{out}/{name}.json", of_json(Tokenizer.from_file(f"{out}/{name}.json")))

    protos = {}
    for name, kw in SPM_KINDS.items():
        protos[name] = train_spm(sentences, size, **kw)
        write(f"{out}/{name}.model", protos[name].SerializeToString())
        libs[name] = (f"{out}/{name}.model", of_spm(protos[name]))
    m = spm_unused(protos["spm-llama"])
    write(f"{out}/spm-unused.model", m.SerializeToString())
    libs["spm-unused"] = (f"{out}/spm-unused.model", of_spm(m))
    m = spm_unused(protos["spm-t5"])
    write(f"{out}/spm-unused-uni.model", m.SerializeToString())
    libs["spm-unused-uni"] = (f"{out}/spm-unused-uni.model", of_spm(m))
    add_json("llama", json_llama(protos["spm-llama"], True))
    add_json("llama-first", json_llama(protos["spm-llama"], False))
    add_json("gemma", json_gemma(protos["spm-llama"]))
    add_json("bpe-unk", json_bpe_unk(protos["spm-nmt"]))
    add_json("t5", json_t5(protos["spm-t5"], "t5"))
    add_json("xlmr", json_t5(protos["spm-glm"], "xlmr"))
    add_json("albert", json_t5(protos["spm-glm"], "albert"))
    add_json("bert", json_bert(sentences, size, True))
    add_json("bert-cased", json_bert(sentences, size, False))
    add_json("clip", json_clip(sentences, size))
    add_json("affix", json_prefix(sentences, size))
    add_json("words", json_words(sentences, size))
    add_json("level", json_level(sentences, size))

    # vocab.json + merges.txt
    t = mt.train(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 500)
    t.train_from_iterator(sentences, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    js = json.loads(t.to_str())
    merges = "#version: 0.2\n" + "".join(" ".join(x) + "\n" for x in js["model"]["merges"])
    write(f"{out}/gpt2-files/vocab.json", dump(js["model"]["vocab"]))
    write(f"{out}/gpt2-files/merges.txt", merges)
    libs["gpt2-files"] = (f"{out}/gpt2-files", of_json(Tokenizer(models.BPE.from_file(f"{out}/gpt2-files/vocab.json", f"{out}/gpt2-files/merges.txt"))))
    plain = Tokenizer(models.BPE.from_file(f"{out}/gpt2-files/vocab.json", f"{out}/gpt2-files/merges.txt"))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    libs["gpt2-files"] = (f"{out}/gpt2-files", of_json(plain))
    write(f"{out}/qwen-files/vocab.json", dump(js["model"]["vocab"]))
    write(f"{out}/qwen-files/merges.txt", merges)
    n = len(js["model"]["vocab"])
    added = {str(n + i): {"content": c, "special": i < 2, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
             for i, c in enumerate(["<|im_start|>", "<|im_end|>", "<user>"])}
    write(f"{out}/qwen-files/tokenizer_config.json", dump({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "eos_token": "<|im_end|>",
                                                             "bos_token": None, "pad_token": "<|endoftext|>"}))
    q = Tokenizer(models.BPE.from_file(f"{out}/qwen-files/vocab.json", f"{out}/qwen-files/merges.txt"))
    q.normalizer, q.decoder = normalizers.NFC(), decoders.ByteLevel()
    q.pre_tokenizer = pre_tokenizers.Sequence([mt.split(mt.QWEN2), mt.plain_level()])
    q.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<|im_start|>", "<|im_end|>")])
    q.add_tokens([AddedToken("<user>", normalized=False)])
    q.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    libs["qwen-files"] = (f"{out}/qwen-files", of_json(q))

    # vocab.txt
    b = json.loads(open(f"{out}/bert.json").read())
    v = b["model"]["vocab"]
    write(f"{out}/bert-files/vocab.txt", "".join(x + "\n" for x in sorted(v, key=v.get)))
    b["post_processor"] = None
    bt = Tokenizer.from_str(json.dumps(b))
    bt.post_processor = processors.BertProcessing(("[SEP]", v["[SEP]"]), ("[CLS]", v["[CLS]"]))
    none = json.loads(bt.to_str())
    none["added_tokens"] = []
    libs["bert-files"] = (f"{out}/bert-files", of_json(Tokenizer.from_str(json.dumps(none))))

    # tiktoken
    ranks = make_ranks(t)
    lines = b"".join(base64.b64encode(k) + b" %d\n" % i for k, i in ranks.items())
    for name, cls, pat in (("qwen", "QWenTokenizer", mt.QWEN2), ("glm4", "ChatGLM4Tokenizer", mt.LLAMA3)):
        n = len(ranks)
        if name == "qwen":
            special = {x: n + i for i, x in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{k}|>" for k in range(205)])}
            conf = {"tokenizer_class": cls}
        else:
            special = {"<|endoftext|>": n, "<user>": n + 1, "<|im_start|>": n + 2}
            conf = {"tokenizer_class": cls, "added_tokens_decoder": {str(i): {"content": x, "special": True, "normalized": False} for x, i in special.items()}}
        write(f"{out}/tiktoken-{name}/{'qwen.tiktoken' if name == 'qwen' else 'tokenizer.model'}", lines)
        write(f"{out}/tiktoken-{name}/tokenizer_config.json", dump(conf))
        e = tiktoken.Encoding(name, pat_str=pat, mergeable_ranks=ranks, special_tokens=special)
        libs["tiktoken-" + name] = (f"{out}/tiktoken-{name}", Lib(lambda s, e=e: e.encode(s, allowed_special="all"), lambda i, e=e: e.decode(i),
                                                               plain=lambda s, e=e: e.encode_ordinary(s),
                                                               skipped=lambda i, e=e, n=n: e.decode([x for x in i if x < n])))
    return libs


# ---- corpora ----

def translations():
    by = {}
    for p in sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo")):
        try:
            t = gettext.GNUTranslations(open(p, "rb"))
        except Exception:
            continue
        for k, v in t._catalog.items():
            if isinstance(v, str) and v and k:
                by.setdefault(p.split("/")[4], []).append(v)
    return by


def corpus(megabytes, seed=1):
    """Documents of 184 languages, code and a dictionary."""
    rng = random.Random(seed)
    docs, by = [], translations()
    share = megabytes * 1000000 // 2 // max(1, len(by))
    for lang in sorted(by):
        v = by[lang]
        rng.shuffle(v)
        n = 0
        while v and n < share * 2:
            k = rng.choice([1, 1, 2, 5, 20])
            doc = rng.choice(["\n", " ", "\n\n", ""]).join(v[:k])
            v = v[k:]
            docs.append(doc)
            n += len(doc.encode())
    code = sorted(glob.glob(HERE + "/../../../*/**/*.[ch]", recursive=True) + glob.glob("/usr/lib/python3*/*.py") + glob.glob("/usr/share/perl/5*/**/*.pm", recursive=True))
    rng.shuffle(code)
    n = 0
    for p in code:
        s = open(p, encoding="utf-8", errors="replace").read()
        docs.append(s)
        n += len(s)
        if n > megabytes * 200000:
            break
    try:
        docs.append(gzip.open("/usr/share/dictd/gcide.dict.dz").read(megabytes * 200000).decode("utf-8", errors="replace"))
    except OSError:
        pass
    docs += [decode(b) for b in texts(seed, 4000)]
    rng.shuffle(docs)
    return docs


def ask(program, path, docs, flags=0):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/r", "wb") as f:
            for b in docs:
                f.write(struct.pack("<I", len(b)) + b)
        out = subprocess.run([program, "--ids=%d" % flags, path, d + "/r"], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    rows = []
    for line in out[:len(docs)]:
        ids, back = line.split("\t")
        rows.append(([int(x) for x in ids.split()], bytes.fromhex(back).decode()))
    return rows


def compare(name, program, path, lib, docs):
    bad, toks = 0, 0
    for flags, enc in ((0, lib.encode), (1, lib.template)):
        if flags and lib.template is lib.encode:
            continue
        for b, (ids, back) in zip(docs, ask(program, path, docs, flags)):
            want = enc(decode(b))
            toks += len(want)
            text = lib.decode(want)
            if ids != want or back != text:
                bad += 1
                if bad <= 3:
                    k = next((i for i, (x, y) in enumerate(zip(ids, want)) if x != y), min(len(ids), len(want)))
                    print("  %s flags %d: %r\n    ids from %d: got %s want %s\n    back %r\n    want %r" % (
                        name, flags, decode(b)[:200], k, ids[k:k + 8], want[k:k + 8], back[:200], text[:200]))
    print("%-16s %9d tokens, %d differences" % (name, toks, bad), flush=True)
    return bad


def real(path):
    """A tokenizer given by the user: tokenizer.json, a .model, or a directory with one of them."""
    if path.endswith(".json"):
        return of_json(Tokenizer.from_file(path))
    return of_spm(pb.ModelProto.FromString(open(path, "rb").read()))


def stress(program, megabytes, paths):
    docs = corpus(megabytes)
    sample = [line for d in docs for line in d.split("\n") if line.strip()]
    random.Random(5).shuffle(sample)
    raw = [d.encode() for d in docs] + BYTES
    print("%d documents, %d bytes" % (len(raw), sum(map(len, raw))))
    bad = 0
    with tempfile.TemporaryDirectory() as d:
        libs = build(d, sample[:15000], 4000)
        for p in paths:
            libs[os.path.basename(p)] = (p, real(p))
        only = os.environ.get("LF_STRESS", "").split()
        for name, (path, lib) in libs.items():
            if only and name not in only:
                continue
            bad += compare(name, program, path, lib, raw)
    print("differences in all:", bad)
    return bad != 0


# ---- the golden files ----

SCRIPTS = [(0x61, 26), (0x61, 26), (0xC0, 0x180), (0x370, 0x80), (0x400, 0x100), (0x5D0, 27), (0x621, 42), (0x905, 0x70), (0xE01, 0x3A), (0x3041, 0x56),
           (0x30A1, 0x5A), (0x4E00, 0x51A6), (0x4E00, 0x400), (0xAC00, 0x2BA4), (0x1F300, 0x300), (0x300, 0x70)]


def big_docs(walk, limit):
    """The same generator as document() of tests/unit/text_forms.c."""
    x, total = 2026, 0

    def draw(n):
        nonlocal x
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        return (x >> 12) % n

    while total < limit:
        b = bytearray()
        bits = draw(8)
        want = 100 + draw(1 << (6 + bits))
        while len(b) < want:
            kind = draw(8)
            if kind < 3:
                t = walk[draw(len(walk))]
                b += t if len(t) < 60 else b""
            else:
                first, size = SCRIPTS[draw(len(SCRIPTS))]
                for _ in range(1 + draw(9)):
                    b += chr(first + draw(size)).encode()
            b += b"\n" if kind == 7 else b"" if kind == 6 else b" "
        total += len(b)
        yield bytes(b)


def fnv_on(h, ids):
    for i in ids:
        for b in struct.pack("<I", i):
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def golden(out, big_bytes):
    walk = [t.encode() for t in mt.HARD + MORE]
    docs = texts(7, 120)
    docs = walk + [d for d in docs if d not in walk]
    sample = [s for s in mt.TRAIN.split("\n") * 3 + [t.replace("\n", " ") for t in MORE + mt.HARD if t.isascii()] if s.strip() and "\x00" not in s]
    vec = {"texts": [b.hex() for b in docs], "n_walk": len(walk), "big_bytes": big_bytes, "tokenizers": {}, "big": {},
           "made_with": "tokenizers %s, sentencepiece %s, tiktoken %s" % (mt.tokenizers.__version__, spm.__version__, tiktoken.__version__)}
    large = [b.decode() for b in big_docs(walk, big_bytes)]
    with tempfile.TemporaryDirectory() as d:
        for name, (path, lib) in build(d, sample, 900).items():
            rows = {"path": os.path.relpath(path, d), "ids": [], "template": [], "special_text": [], "decoded": [], "skipped": []}
            for b in docs:
                s = decode(b)
                ids = lib.encode(s)
                rows["ids"].append(ids)
                rows["template"].append("%016x" % fnv_on(FNV, lib.template(s)))
                rows["special_text"].append("%016x" % fnv_on(FNV, lib.plain(s)))
                rows["decoded"].append(None if lib.decode(ids) == s else lib.decode(ids).encode().hex())
                rows["skipped"].append("%016x" % fnv_on(FNV, lib.skipped(ids).encode()))
            vec["tokenizers"][name] = rows
            h, n = FNV, 0
            for s in large:
                ids = lib.encode(s)
                n += len(ids)
                for i in ids:
                    h = (h ^ i) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
            vec["big"][name] = [n, "%016x" % h]
            print(name, n, flush=True)
        write(d + "/vectors.json", dump(vec))
        names = sorted(os.path.relpath(os.path.join(r, f), d) for r, _, fs in os.walk(d) for f in fs)
        with lzma.open(out, "wb", preset=9 | lzma.PRESET_EXTREME) as z, tarfile.open(fileobj=z, mode="w", format=tarfile.USTAR_FORMAT) as t:
            for n in names:
                info = tarfile.TarInfo(n)
                info.size = os.path.getsize(f"{d}/{n}")
                t.addfile(info, open(f"{d}/{n}", "rb"))
    print(os.path.getsize(out), "bytes")


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "stress":
        return stress(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 6, sys.argv[4:])
    golden(HERE + "/forms.tar.xz", 5000000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
