#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes augment.json: what torchvision 0.29 makes of a picture of Pillow 12.3 by each operation of RandAugment, by boxes, and the pixels of
the picture that it is made of. Pixels are base64 of RGB rows. Run by hand: make_augment.py"""
import base64
import json
import os

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

assert PIL.__version__.startswith("12.3") and torchvision.__version__.startswith("0.29"), "made with Pillow 12.3, torchvision 0.29"
HERE = os.path.dirname(os.path.abspath(__file__))
W, H, FILL = 22, 17, [124, 116, 104]
NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness", "Posterize",
         "Solarize", "AutoContrast", "Equalize"]


def text(im):
    return base64.b64encode(np.asarray(im).tobytes()).decode()


def picture():
    """Smooth colours with some noise and an edge, which does not use all values."""
    g = np.random.default_rng(5)
    y, x = np.mgrid[0:H, 0:W]
    a = np.stack([40 + 6 * x + 2 * y, 200 - 7 * y + x, 90 + 3 * ((x * y) % 23)], -1) + g.integers(-9, 10, (H, W, 3))
    a[5:9, 12:19] = [230, 20, 60]
    return Image.fromarray(np.clip(a, 20, 240).astype("u1"))


def main():
    im, ops, boxes = picture(), [], []
    for i, name in enumerate(NAMES):
        values = {"ShearX": [0.09, -0.3], "ShearY": [0.21, -0.05], "TranslateX": [3.7, -9.2], "TranslateY": [2.0, -6.9],
                  "Rotate": [9.0, -30.0, 17.5], "Posterize": [4, 7], "Solarize": [178.5, 0.0, 255.0]}.get(
                      name, [0.27, -0.9, 0.9] if i in (6, 7, 8, 9) else [0.0])
        for v in values:
            ops.append({"op": i, "magnitude": v, "rgb": text(_apply_op(im, name, v, InterpolationMode.NEAREST, FILL))})
    for x, y, w, h, to_w, to_h in ((0, 0, W, H, 8, 8), (3, 2, 11, 9, 16, 16), (5, 1, 4, 15, 6, 5), (1, 1, 1, 1, 3, 2)):
        cut = F.resized_crop(im, y, x, h, w, [to_h, to_w], InterpolationMode.BICUBIC)
        boxes.append({"box": [x, y, w, h], "to": [to_w, to_h], "rgb": text(cut)})
    for v in (0.08, -0.1, 0.5, 0.0):
        ops.append({"op": 14, "magnitude": v, "rgb": text(F.adjust_hue(im, v))})
    ops.append({"op": 15, "magnitude": 0.0, "rgb": text(F.rgb_to_grayscale(im, 3))})
    blurs = [{"side": k, "deviation": s, "rgb": text(F.gaussian_blur(im, [k, k], [s, s]))} for k, s in ((3, 0.1), (3, 1.7), (5, 0.9), (9, 2.0))]
    grey = Image.fromarray(np.full((4, 4, 3), 77, "u1"))
    flat = [{"op": i, "magnitude": 0.5, "rgb": text(_apply_op(grey, NAMES[i], 0.5, InterpolationMode.NEAREST, FILL))} for i in (6, 8, 9, 12, 13)]
    with open(os.path.join(HERE, "augment.json"), "w") as f:
        json.dump({"w": W, "h": H, "rgb": text(im), "fill": FILL, "ops": ops, "boxes": boxes, "blurs": blurs, "flip": text(F.hflip(im)),
                   "flat": {"w": 4, "h": 4, "rgb": text(grey), "ops": flat}}, f)
        f.write("\n")
    print(len(ops), "operations", os.path.getsize(os.path.join(HERE, "augment.json")), "bytes")


main()
