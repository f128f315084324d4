#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes images/, images.json, resize.json and processors.json: what Pillow, torchvision and transformers make of the
pictures.

    python3 make_media.py     # in this folder; the versions are checked, because the bits depend on them
"""
import io
import json
import sys
import warnings

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as tvF

import make_images
import processors
from processors import formula, probes, sha

WANT = {"transformers": "5.23.", "torchvision": "0.29.2", "Pillow": "12.3.0"}
HAVE = {"transformers": transformers.__version__, "torchvision": torchvision.__version__, "Pillow": PIL.__version__}
for lib, version in WANT.items():
    if not HAVE[lib].startswith(version):
        sys.exit("make_media.py: %s is %s; the golden files are of %s" % (lib, HAVE[lib], version))
warnings.simplefilter("ignore")


def write(name, what):
    """{list: rows} with a line for each row."""
    with open(name, "w") as f:
        lists = ['"%s":[\n%s\n]' % (k, ",\n".join(json.dumps(r, separators=(",", ":")) for r in v)) for k, v in what.items()]
        f.write("{" + ",\n".join(lists) + "}\n")


def load(name):
    """The picture as transformers' processors get it: upright, then to RGB on white."""
    im = Image.open("images/" + name)
    orientation = im.getexif().get(0x0112, 1)
    return transformers.image_transforms.convert_to_rgb(ImageOps.exif_transpose(im), return_numpy=True), orientation


def decoded(names, refused):
    rows = []
    for name in names:
        a, orientation = load(name)
        rows.append(
            {"file": name, "w": a.shape[1], "h": a.shape[0], "orientation": orientation if 1 <= orientation <= 8 else 1,
             "sha256": sha(a), "probes": probes(a, 64)}
        )
    return {"read": rows, "refused": [{"file": n, "words": w} for n, w in refused.items()]}


SIZES = [
    ((64, 48), (32, 24)), ((64, 48), (31, 17)), ((64, 48), (64, 20)), ((64, 48), (20, 48)), ((64, 48), (130, 99)),
    ((37, 53), (37, 53)), ((37, 53), (224, 7)), ((200, 3), (9, 9)), ((3, 500), (7, 60)), ((2, 500), (2, 499)),
    ((1, 1), (5, 4)), ((5, 4), (1, 1)), ((257, 129), (96, 113)), ((640, 360), (448, 252)), ((100, 100), (99, 101)),
]
FILTERS = [("bilinear", Image.Resampling.BILINEAR, tvF.InterpolationMode.BILINEAR),
           ("bicubic", Image.Resampling.BICUBIC, tvF.InterpolationMode.BICUBIC),
           ("lanczos", Image.Resampling.LANCZOS, tvF.InterpolationMode.LANCZOS)]


def resized():
    rows = []
    for (w, h), (to_w, to_h) in SIZES:
        a = formula(w, h)
        t = torch.from_numpy(a).permute(2, 0, 1).contiguous()
        for name, pil, tv in FILTERS:
            one = np.asarray(Image.fromarray(a).resize((to_w, to_h), pil))
            both = [("pil", one)]
            if (to_w, to_h) != (1, 1):  # there torch 2.15 stops with an internal assertion
                two = tvF.resize(t, [to_h, to_w], interpolation=tv, antialias=True)
                both.append(("torchvision", two.permute(1, 2, 0).numpy()))
            for manner, got in both:
                assert got.shape == (to_h, to_w, 3)
                rows.append({"from": [w, h], "to": [to_w, to_h], "filter": name, "manner": manner, "sha256": sha(got),
                             "probes": probes(got, 8)})
    return rows


CHECK_HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * Written by tests/golden/media/make_media.py: small pictures, and the SHA-256 of the RGB bytes
 * that Pillow %s reads.
 */
#ifndef LF_MEDIA_CHECK_DATA_H
#define LF_MEDIA_CHECK_DATA_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
"""


def write_check(name):
    """The pictures that lf_image_check decodes, as C."""
    lines = (CHECK_HEAD % PIL.__version__).splitlines()
    table = []
    for what, kind, data in make_images.make_check():
        lines.append("static const uint8_t check_%s[%d] = {" % (what, len(data)))
        lines += ["    " + " ".join("%d," % v for v in data[i : i + 20]) for i in range(0, len(data), 20)]
        lines.append("};")
        rgb = transformers.image_transforms.convert_to_rgb(Image.open(io.BytesIO(data)), return_numpy=True)
        table.append('    {"%s", check_%s, sizeof check_%s,\n     "%s"},' % (kind, what, what, sha(rgb)))
    lines += ["static const struct lf_check_sample {", "    const char *format;", "    const uint8_t *bytes;",
              "    size_t n;", "    const char *sha256;", "} check_samples[] = {"] + table + ["};", "/* clang-format on */", "", "#endif"]
    with open(name, "w") as f:
        f.write("\n".join(lines) + "\n")


def main():
    names, refused = make_images.make_all("images")
    write_check("../../../engine/media/check_data.h")
    write("images.json", decoded(names, refused))
    write("resize.json", {"resize": resized()})
    write("processors.json", processors.everything())


if __name__ == "__main__":
    main()
