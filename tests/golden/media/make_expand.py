# SPDX-License-Identifier: Apache-2.0
"""Writes expand.json: the ids that transformers' processors make of a text with marks and of pictures of given sizes.

The tokenizer has the 256 bytes and the special tokens, so that ids tell the text byte by byte; the test makes the same
one from "specials". Ids stand as runs [id, how often]. "counts" has the placeholders of many sizes alone.
"""
import json
import os
import random

import numpy as np
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers import (CLIPImageProcessor, Gemma3ImageProcessor, LlavaNextImageProcessor, LlavaOnevisionImageProcessor,
                          Qwen2VLImageProcessor, SiglipImageProcessor, Idefics3ImageProcessor, PixtralImageProcessor, SmolVLMImageProcessor)
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor

assert transformers.__version__.startswith("5.23"), transformers.__version__
HERE = os.path.dirname(os.path.abspath(__file__))


def make_tokenizer(names):
    """names: what the processor calls a token -> its text."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    specials = ["<bos>", "<eos>"] + sorted(set(names.values()))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<bos>", eos_token="<eos>",
                                   extra_special_tokens=dict(names))
    return fast, specials


def picture(w, h):
    return Image.fromarray(np.full((h, w, 3), 127, np.uint8))


def runs(ids):
    out = []
    for i in ids:
        if out and out[-1][0] == i:
            out[-1][1] += 1
        else:
            out.append([int(i), 1])
    return out


PINPOINTS = [[24, 48], [48, 24], [48, 48], [72, 24], [24, 72]]
CLIP = dict(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
NEXT = dict(CLIP, image_grid_pinpoints=PINPOINTS)
ONE = dict(size={"height": 24, "width": 24}, image_grid_pinpoints=PINPOINTS)
PAN = dict(do_pan_and_scan=True, pan_and_scan_min_crop_size=20, pan_and_scan_max_num_crops=4,
           pan_and_scan_min_ratio_to_activate=1.2, size={"height": 24, "width": 24})
QWEN = dict(patch_size=4, merge_size=2, size={"shortest_edge": 256, "longest_edge": 1600})
TILES = dict(size={"height": 16, "width": 16}, max_patches=6)
IMG = {"image_token": "<image>"}
GEMMA = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
INTERN = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
          "video_token": "<video>"}
QIMG = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
IDEFICS = dict(IMG, fake_image_token="<fake_token_around_image>", global_image_token="<global-img>", tile="<row_1_col_1>",
               end_of_utterance_token="<end_of_utterance>")
SPLIT = dict(size={"longest_edge": 64}, max_image_size={"longest_edge": 16})
PIXTRAL = {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}
SIZES = [[(48, 37)], [(20, 100)], [(90, 30)], [(16, 16)], [(48, 37), (21, 64)]]

# (class of the processor, its settings, class of the image processor, its settings, tokens, patch side, call)
CASES = [
    ("LlavaProcessor", dict(patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1),
     CLIPImageProcessor, CLIP, IMG, 8, {}),
    ("LlavaProcessor", dict(patch_size=4, vision_feature_select_strategy="full", num_additional_image_tokens=1),
     CLIPImageProcessor, CLIP, {"image_token": "<pic>"}, 4, {}),
    ("LlavaProcessor", dict(patch_size=8, vision_feature_select_strategy="default"), CLIPImageProcessor, CLIP, IMG, 8, {}),
    ("LlavaNextProcessor", dict(patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1),
     LlavaNextImageProcessor, NEXT, IMG, 8, {}),
    ("LlavaNextProcessor", dict(patch_size=4, vision_feature_select_strategy="full"), LlavaNextImageProcessor, NEXT, IMG, 4,
     {}),
    ("LlavaOnevisionProcessor", dict(num_image_tokens=9, vision_feature_select_strategy="full"),
     LlavaOnevisionImageProcessor, ONE, dict(IMG, video_token="<video>"), 8, {}),
    ("LlavaOnevisionProcessor", dict(num_image_tokens=36, vision_feature_select_strategy="default",
                                     vision_aspect_ratio="anyres_max_1"),
     LlavaOnevisionImageProcessor, ONE, dict(IMG, video_token="<video>"), 4, {}),
    ("Qwen2VLProcessor", {}, Qwen2VLImageProcessor, QWEN, QIMG, 0, {}),
    ("Qwen2_5_VLProcessor", {}, Qwen2VLImageProcessor, QWEN, QIMG, 0, {}),
    ("Qwen3VLProcessor", {}, Qwen2VLImageProcessor, dict(QWEN, patch_size=8), QIMG, 0, {}),
    ("InternVLProcessor", dict(image_seq_length=4), GotOcr2ImageProcessor, dict(TILES, crop_to_patches=True), INTERN, 4, {}),
    ("InternVLProcessor", dict(image_seq_length=4), GotOcr2ImageProcessor, dict(TILES, crop_to_patches=False), INTERN, 4, {}),
    ("InternVLProcessor", dict(image_seq_length=4), GotOcr2ImageProcessor, dict(TILES, crop_to_patches=True), INTERN, 4,
     {"crop_to_patches": False}),
    ("Gemma3Processor", dict(image_seq_length=9), Gemma3ImageProcessor, dict(size={"height": 24, "width": 24}), GEMMA, 8, {}),
    ("Gemma3Processor", dict(image_seq_length=9), Gemma3ImageProcessor, PAN, GEMMA, 8, {}),
    ("Gemma3Processor", dict(image_seq_length=9), Gemma3ImageProcessor, PAN, GEMMA, 8,
     {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 20}),
    ("Idefics3Processor", dict(image_seq_len=4), Idefics3ImageProcessor, SPLIT, IDEFICS, 4, {}),
    ("Idefics3Processor", dict(image_seq_len=1), Idefics3ImageProcessor, dict(SPLIT, do_image_splitting=False), IDEFICS, 4, {}),
    ("SmolVLMProcessor", dict(image_seq_len=16), SmolVLMImageProcessor, SPLIT,
     dict(IDEFICS, fake_image_token="<fake>", image_token="<pic>", video_token="<video>"), 4, {}),
    ("PixtralProcessor", dict(patch_size=4), PixtralImageProcessor, dict(size={"longest_edge": 40}), PIXTRAL, 4, {}),
    ("PixtralProcessor", dict(patch_size=4, spatial_merge_size=2, image_break_token="[/]"), PixtralImageProcessor,
     dict(size={"longest_edge": 40}, patch_size=16), dict(PIXTRAL, image_break_token="[/]"), 4, {}),
    ("PaliGemmaProcessor", {}, SiglipImageProcessor, dict(size={"height": 28, "width": 28}, image_seq_length=4), IMG, 14, {}),
]


def video_processor(cls):
    """Three classes want one, although no video is given."""
    from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    if cls.startswith("SmolVLM"):
        from transformers.models.smolvlm import processing_smolvlm
        from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor
        processing_smolvlm.num2words = str  # a package that only prompts with films need
        return {"video_processor": SmolVLMVideoProcessor()}
    for name, made in (("Qwen3", Qwen3VLVideoProcessor), ("Qwen", Qwen2VLVideoProcessor),
                       ("InternVL", InternVLVideoProcessor), ("LlavaOne", LlavaOnevisionVideoProcessor)):
        if cls.startswith(name):
            return {"video_processor": made()}
    return {}


def mark_of(cls, names):
    return names.get("boi_token") or names.get("context_image_token") or names["image_token"]


def main():
    cases, counts = [], []
    for cls, settings, image_cls, image_settings, names, patch, call in CASES:
        tok, specials = make_tokenizer(names)
        more = video_processor(cls)
        kwargs = dict(image_processor=image_cls(**image_settings), tokenizer=tok, **settings)
        kwargs.update(more)
        p = getattr(transformers, cls)(**kwargs)
        mark = mark_of(cls, names)
        for sizes in SIZES:
            text = "A" + "b".join(mark for _ in sizes) + " c\n"
            out = p(images=[[picture(*s) for s in sizes]], text=[text], images_kwargs=call) if call else \
                p(images=[[picture(*s) for s in sizes]], text=[text])
            cases.append({"class": cls, "settings": settings, "config": dict(image_settings, image_processor_type=image_cls.__name__),
                          "tokens": names, "specials": specials, "patch": patch, "call": call, "sizes": sizes, "text": text,
                          "ids": runs(list(out["input_ids"][0]))})
    rng = random.Random(7)
    pinpoints = [[384 * (1 + i % 6), 384 * (1 + i // 6)] for i in range(36)]
    for cls, settings, image_cls, image_settings, tile in [
            ("LlavaNextProcessor", dict(patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1),
             LlavaNextImageProcessor,
             dict(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336},
                  image_grid_pinpoints=[[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]), 336),
            ("LlavaOnevisionProcessor", dict(num_image_tokens=729, vision_feature_select_strategy="full", patch_size=14),
             LlavaOnevisionImageProcessor, dict(size={"height": 384, "width": 384}, image_grid_pinpoints=pinpoints), 384)]:
        tok, _ = make_tokenizer(dict(IMG, video_token="<video>"))
        p = getattr(transformers, cls)(image_processor=image_cls(**image_settings), tokenizer=tok,
                                       **video_processor(cls),
                                       **{k: v for k, v in settings.items() if not (k == "patch_size" and "One" in cls)})
        rows = []
        for _ in range(400):
            w = rng.randrange(1, 3000)
            h = min(3000, max(1, int(w * 2 ** rng.uniform(-3, 3))))
            n = p._get_number_of_features(h, w, tile, tile) - (settings["vision_feature_select_strategy"] == "default")
            rows.append([w, h, int(n)])
        counts.append({"class": cls, "settings": settings, "config": dict(image_settings, image_processor_type=image_cls.__name__),
                       "rows": rows})
    with open(os.path.join(HERE, "expand.json"), "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + '],\n"counts": [\n' +
                ",\n".join(json.dumps(c, separators=(",", ":")) for c in counts) + "]}\n")


if __name__ == "__main__":
    main()
