# SPDX-License-Identifier: Apache-2.0
"""The rows of processors.json: what transformers' image processors make of pictures. Called by make_media.py.

Every processor in both of its forms (torchvision's and PIL's), with settings small enough that rows stay small, and with
those of published models, where only hashes are kept. Pictures are those of a formula that the C test computes.
"""
import hashlib
import random

import numpy as np
import transformers
from PIL import Image
from transformers.image_processing_utils import select_best_resolution
from transformers.models.idefics3 import image_processing_idefics3 as idefics3
from transformers.models.pixtral import image_processing_pixtral as pixtral
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from transformers.models.siglip2.image_processing_siglip2 import get_image_size_for_max_num_patches


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def probes(a, n):
    """n values of the flat array at places spread over it, as [place, value]."""
    flat = np.ascontiguousarray(a).reshape(-1)
    at = [(i * 2654435761 + 12345) % flat.size for i in range(n)]
    return [[i, float(flat[i]) if flat.dtype == np.float32 else int(flat[i])] for i in at]


def formula(w, h):
    """A picture that the C test makes by itself."""
    y, x, c = np.mgrid[0:h, 0:w, 0:3].astype(np.int64)
    return ((x * x + 3 * x * y * (c + 1) + 7 * y * y + 50 * c) >> 2 & 255).astype(np.uint8)


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
STANDARD = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
PINPOINTS = [[24, 48], [48, 24], [48, 48], [72, 24], [24, 72]]
PAN = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 20, "pan_and_scan_max_num_crops": 4,
       "pan_and_scan_min_ratio_to_activate": 1.2}

# (name, class, settings, patch side or 0 where the settings have it, sizes of pictures)
SMALL = [
    ("clip", "CLIPImageProcessor", {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}, 4,
     [(48, 37), (31, 64), (24, 24), (10, 300)]),
    ("clip-odd", "CLIPImageProcessor", {"size": 25, "crop_size": 20, "resample": 2}, 5, [(48, 37), (37, 48)]),
    ("clip-pad", "CLIPImageProcessor", {"size": {"shortest_edge": 17}, "crop_size": {"height": 24, "width": 28}}, 4,
     [(48, 37), (17, 21)]),
    ("llava-square", "LlavaImageProcessor",
     {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "do_pad": True}, 4, [(48, 37), (33, 64)]),
    ("siglip", "SiglipImageProcessor", {"size": {"height": 24, "width": 32}}, 8, [(48, 37), (300, 20)]),
    ("siglip-lanczos", "SiglipImageProcessor", {"size": {"height": 24, "width": 24}, "resample": 1}, 8, [(48, 37)]),
    ("dinov2", "BitImageProcessor",
     dict(IMAGENET, size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}), 14, [(48, 37), (200, 99)]),
    ("siglip2", "Siglip2ImageProcessor", {"patch_size": 8, "max_num_patches": 12}, 0,
     [(48, 37), (10, 90), (64, 64), (7, 5)]),
    ("qwen2-vl", "Qwen2VLImageProcessor",
     {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 256, "longest_edge": 1600}}, 0,
     [(48, 37), (9, 11), (200, 2), (63, 21)]),
    ("qwen2-vl-min", "Qwen2VLImageProcessor", {"patch_size": 4, "min_pixels": 1024, "max_pixels": 2048}, 0, [(48, 37)]),
    ("qwen3-vl", "Qwen2VLImageProcessor",
     dict(STANDARD, patch_size=8, size={"shortest_edge": 256, "longest_edge": 4096}, temporal_patch_size=3), 0, [(70, 41)]),
    ("internvl", "GotOcr2ImageProcessor",
     dict(IMAGENET, size={"height": 16, "width": 16}, crop_to_patches=True, max_patches=6), 8,
     [(48, 37), (20, 100), (16, 16), (90, 30)]),
    ("internvl-whole", "GotOcr2ImageProcessor", dict(IMAGENET, size={"height": 16, "width": 16}), 8, [(48, 37)]),
    ("llava-next", "LlavaNextImageProcessor",
     {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "image_grid_pinpoints": PINPOINTS}, 8,
     [(48, 37), (20, 100), (90, 30), (10, 10)]),
    ("onevision", "LlavaOnevisionImageProcessor",
     dict(STANDARD, size={"height": 24, "width": 24}, image_grid_pinpoints=PINPOINTS), 8, [(48, 37), (30, 90)]),
    ("gemma3", "Gemma3ImageProcessor", {"size": {"height": 24, "width": 24}}, 8, [(48, 37), (100, 30)]),
    ("gemma3-pan", "Gemma3ImageProcessor", dict(PAN, size={"height": 24, "width": 24}), 8,
     [(48, 37), (101, 30), (30, 75), (50, 50), (19, 80)]),
    ("paligemma", "SiglipImageProcessor", {"size": {"height": 28, "width": 28}, "image_seq_length": 4}, 14, [(48, 37)]),
    ("idefics3", "Idefics3ImageProcessor", {"size": {"longest_edge": 44}, "max_image_size": {"longest_edge": 18}}, 8,
     [(48, 37), (20, 100), (16, 16), (300, 20), (9, 9)]),
    ("idefics3-whole", "Idefics3ImageProcessor",
     {"size": {"longest_edge": 44}, "max_image_size": {"longest_edge": 16}, "do_image_splitting": False}, 8, [(48, 37)]),
    ("smolvlm", "SmolVLMImageProcessor", {"do_resize": False, "max_image_size": {"longest_edge": 16}, "resample": 3}, 8,
     [(48, 37), (10, 12)]),
    ("smolvlm-size", "SmolVLMImageProcessor", {"size": {"height": 20, "width": 33}, "max_image_size": {"longest_edge": 16}}, 8,
     [(48, 37)]),
    ("pixtral", "PixtralImageProcessor", {"patch_size": {"height": 4, "width": 4}, "size": {"longest_edge": 40}}, 4,
     [(48, 37), (20, 100), (16, 16), (9, 3)]),
    ("pixtral-box", "PixtralImageProcessor", {"patch_size": 8, "size": {"height": 24, "width": 40}}, 8, [(48, 37), (60, 61)]),
    ("vit", "ViTImageProcessor", {"size": 24}, 8, [(48, 37), (300, 20)]),
    ("deit", "DeiTImageProcessor", {"size": 28, "crop_size": 20}, 4, [(48, 37), (20, 60)]),
]
PUBLISHED = [
    ("clip-336", "CLIPImageProcessor", {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}, 14,
     [(640, 427)]),
    ("qwen2-vl-default", "Qwen2VLImageProcessor", {}, 0, [(517, 389)]),
    ("internvl-448", "GotOcr2ImageProcessor",
     dict(IMAGENET, size={"height": 448, "width": 448}, crop_to_patches=True), 14, [(500, 230)]),
    ("onevision-default", "LlavaOnevisionImageProcessor", STANDARD, 14, [(500, 300)]),
    ("llava-next-default", "LlavaNextImageProcessor", {}, 14, [(400, 300)]),
    ("idefics3-default", "Idefics3ImageProcessor", {}, 14, [(517, 389)]),
    ("pixtral-default", "PixtralImageProcessor", {}, 16, [(1100, 427)]),
]
FULL = {"clip", "siglip", "siglip2", "qwen2-vl", "internvl", "llava-next", "onevision", "gemma3-pan", "dinov2", "paligemma",
        "idefics3", "pixtral"}


def rows_of(name, got, side):
    """(tiles, grid_h, grid_w, rows) of what a processor returned; of repeated frames only the first."""
    pixels = np.asarray(got["pixel_values"])
    if name.startswith("qwen"):
        _, gh, gw = np.asarray(got["image_grid_thw"])[0]
        return 1, int(gh), int(gw), pixels
    if name.startswith("siglip2"):
        gh, gw = (int(v) for v in np.asarray(got["spatial_shapes"])[0])
        assert np.asarray(got["pixel_attention_mask"]).sum() == gh * gw
        return 1, gh, gw, pixels[0][: gh * gw]
    t = pixels.reshape((-1,) + pixels.shape[-3:])
    n, _, h, w = t.shape
    h, w = h // side * side, w // side * side  # a convolution of that stride leaves the rest out
    rows = t[:, :, :h, :w].reshape(n, 3, h // side, side, w // side, side).transpose(0, 2, 4, 1, 3, 5)
    return n, h // side, w // side, rows.reshape(-1, 3 * side * side)


def one(name, kind, settings, side, size, manner, alone):
    cls = getattr(transformers, kind + ("Pil" if manner == "pil" else ""))
    how = {k: v for k, v in settings.items() if k != "image_seq_length"}
    p = cls(**how)
    image = Image.fromarray(formula(*size))
    args = [[image]] if alone else [[[image, image]]]
    raw = rows_of(name, p(*args, do_rescale=False, do_normalize=False, return_tensors="np"), side)
    tiles, gh, gw, floats = rows_of(name, p(*args, return_tensors="np"), side)
    side = side or getattr(p, "patch_size")
    times = getattr(p, "temporal_patch_size", 1) if name.startswith("qwen") else 1
    if not alone:  # the first of two
        tiles, raw, floats = tiles // 2, raw[:3] + (raw[3][: len(raw[3]) // 2],), floats[: len(floats) // 2]
    data = raw[3].reshape(len(raw[3]), 3, times, -1)[:, :, 0].reshape(len(raw[3]), -1) if times > 1 else raw[3]
    assert (data == np.rint(data)).all() and data.min() >= 0 and data.max() <= 255
    data, floats = data.astype(np.uint8), floats.astype(np.float32)
    return data, floats, {
        "name": name, "config": dict(settings, image_processor_type=kind), "patch": side, "manner": manner,
        "from": list(size), "alone": alone, "tiles": tiles, "grid": [gh, gw],
        "sha256": sha(data), "floats": sha(floats), "probes": probes(data, 64), "float_probes": probes(floats, 64),
    }


def processed():
    rows, full = [], set()
    for small, table in ((True, SMALL), (False, PUBLISHED)):
        for name, kind, settings, side, sizes in table:
            for size in sizes:
                for manner in ("torchvision", "pil"):
                    for alone in (True, False) if name == "onevision" else (True,):
                        data, floats, row = one(name, kind, settings, side, size, manner, alone)
                        if small and name in FULL and name not in full:
                            full.add(name)
                            row["full"] = "rows/%s.f32" % name
                            floats.astype("<f4").tofile(row["full"])
                        rows.append(row)
    assert full == FULL
    return rows


class Shape:
    """As much of a picture as Gemma's function looks at: shape[-2:] and a cut."""

    def __init__(self, h, w):
        self.shape = (3, h, w)

    def size(self):
        return self.shape

    def __getitem__(self, key):
        _, ys, xs = key
        _, h, w = self.shape
        return Shape(min(ys.stop, h) - ys.start, min(xs.stop, w) - xs.start)


class Sizes:
    """In the place of a processor whose steps are asked for sizes alone."""

    def resize(self, image, size, resample):
        return size.width, size.height


def more_grids():
    """The same of Idefics 3 and Pixtral."""
    r = random.Random(20261130)
    rows = []
    for i in range(400):
        w, h = (int(2 ** r.uniform(0, 12)) for _ in range(2))
        if i % 5 == 0:
            h = w = r.choice([w, 364 * (1 + w // 512), 512])
        if i % 7 == 0:
            w, h = 14 * r.randint(1, 90), 14 * r.randint(1, 90)
        longest, tile = r.choice([(1456, 364), (2048, 512), (1536, 384), (5000, 512)])
        a = idefics3.get_resize_output_image_size(Shape(h, w), longest)
        rows.append(["longest", w, h, longest, a[1], a[0]])
        a = idefics3.Idefics3ImageProcessor.resize_for_vision_encoder(Sizes(), Shape(*a), tile)
        rows.append(["split", rows[-1][4], rows[-1][5], tile] + list(a))
        most, f = r.choice([(1024, 16), (1540, 28), (40, 8)])
        a = pixtral.get_resize_output_image_size(np.broadcast_to(np.uint8(0), (h, w, 3)), most, f, "channels_last")
        rows.append(["within", w, h, most, f, a[1], a[0]])
    return [row for row in rows if min(row[-2:]) > 0]


def grids():
    """Sizes alone: [what, w, h, ...settings..., results]."""
    r = random.Random(20261129)
    rows = []
    for i in range(400):
        w, h = (int(2 ** r.uniform(0, 12)) for _ in range(2))
        if i % 5 == 0:
            h = w = r.choice([w, 28 * (1 + w // 64), 448])
        if i % 7 == 0:
            w, h = 14 * r.randint(1, 90), 14 * r.randint(1, 90)
        f, area = r.choice([(28, (3136, 1003520)), (32, (65536, 16777216)), (28, (3136, 50000))])
        if max(w, h) / min(w, h) <= 200:
            a = smart_resize(h, w, f, *area)
            rows.append(["smart", w, h, f, area[0], area[1], a[1], a[0]])
        side, most = r.choice([(16, 256), (14, 1024), (8, 12)])
        a = get_image_size_for_max_num_patches(h, w, side, most)
        rows.append(["naflex", w, h, side, most, a[1], a[0]])
        least, most = r.choice([(1, 12), (1, 6), (2, 40)])
        rows.append(["tiles", w, h, 448, least, most] + list(get_optimal_tiled_canvas((h, w), (448, 448), least, most)))
        a = select_best_resolution((h, w), transformers.LlavaOnevisionImageProcessor.image_grid_pinpoints)
        rows.append(["anyres", w, h, a[1], a[0]])
        a = select_best_resolution((h, w), transformers.LlavaOnevisionImageProcessor.image_grid_pinpoints[::-1])
        rows.append(["anyres-down", w, h, a[1], a[0]])
        crops = Gemma3ImageProcessor.pan_and_scan_batched(None, Shape(h, w), 256, 4, 1.2)
        first = crops[0].shape if crops else (3, 0, 0)
        rows.append(["pan", w, h, 256, 4, len(crops), first[2], first[1]])
    return rows


def everything():
    return {"processors": processed(), "grids": grids() + more_grids()}
