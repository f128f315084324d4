#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the picture files of images/ from formulas. Called by make_media.py.

Pillow encodes JPEG and WebP. PNG files come from the short writer below, because Pillow writes neither interlaced
ones nor grey with alpha in 16 bits, and none with damage. Some JPEG files are others with a few bytes changed.
"""
import io
import os
import struct
import zlib

import numpy as np
from PIL import Image

SMALL = (48, 37)  # width, height: no multiple of 8


def picture(w, h, channels):
    """Smooth colours with edges; every channel differs, and so does every corner."""
    y, x = np.mgrid[0:h, 0:w].astype(np.float64)
    out = np.empty((h, w, channels), np.uint8)
    for c in range(channels):
        v = 127 + 100 * np.sin(x / (5 + 2 * c) + c) * np.cos(y / (7 - c)) + 20 * (x / w) - 15 * (y / h)
        v[(x > w * 0.6) & (y < h * 0.3)] = 255 - 80 * c
        out[:, :, c] = np.clip(np.rint(v), 0, 255)
    return out


# ---- JPEG ----


def jpeg(array, mode="RGB", **how):
    b = io.BytesIO()
    Image.fromarray(array if array.shape[2] > 1 else array[:, :, 0], mode).save(b, "JPEG", quality=85, **how)
    return b.getvalue()


def marker(data, code):
    """Where the segment FF code begins; every one before the scan has a length."""
    at = 2
    while data[at + 1] != code:
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return at


def as_440(data):
    """A 4:2:2 file whose header says 4:4:0: the blocks are as many, so it is valid, and the picture is shuffled."""
    d = bytearray(data)
    at = marker(data, 0xC0) + 2 + 2 + 1 + 2 + 2 + 1 + 1
    assert d[at] == 0x21
    d[at] = 0x12
    return bytes(d)


def as_ycck(data):
    d = bytearray(data)
    at = marker(data, 0xEE)
    assert d[at + 4 : at + 9] == b"Adobe" and d[at + 15] == 0
    d[at + 15] = 2
    return bytes(d)


def exif(value, order="<", kind=3):
    head = b"II*\0" if order == "<" else b"MM\0*"
    number = struct.pack(order + ("H" if kind == 3 else "I"), value).ljust(4, b"\0")
    entries = struct.pack(order + "HHI", 0x010F, 2, 4) + b"abc\0" + struct.pack(order + "HHI", 0x0112, kind, 1) + number
    return head + struct.pack(order + "I", 8) + struct.pack(order + "H", 2) + entries + struct.pack(order + "I", 0)


# ---- PNG ----


def chunk(name, data, good=True):
    crc = zlib.crc32(name + data) ^ (0 if good else 1)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)


def filtered(rows, bpp):
    """Each row by another of the five filters."""
    out, before = [], None
    for i, row in enumerate(rows):
        before = before if before is not None and len(before) == len(row) else bytes(len(row))
        f = i % 5
        line = bytearray([f])
        for k, v in enumerate(row):
            a = row[k - bpp] if k >= bpp else 0
            b = before[k]
            c = before[k - bpp] if k >= bpp else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line.append((v - (0, a, b, (a + b) // 2, paeth)[f]) & 255)
        out.append(bytes(line))
        before = row
    return b"".join(out)


def pack_row(values, depth):
    """values [w, channels] to bytes, most significant bit first."""
    flat = values.reshape(-1)
    if depth == 16:
        return flat.astype(">u2").tobytes()
    if depth == 8:
        return flat.astype(np.uint8).tobytes()
    per = 8 // depth
    flat = np.concatenate([flat, np.zeros(-len(flat) % per, flat.dtype)]).reshape(-1, per)
    return bytes(sum(int(v) << (8 - depth * (i + 1)) for i, v in enumerate(row)) for row in flat)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(values, depth, colour, adam7=False, before=(), after=(), size=None):
    """values [h, w, channels]; colour: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA."""
    h, w, channels = values.shape
    bpp = max(1, channels * depth // 8)
    data = b""
    for x0, y0, dx, dy in ADAM7 if adam7 else [(0, 0, 1, 1)]:
        part = values[y0::dy, x0::dx]
        if part.size:
            data += filtered([pack_row(row, depth) for row in part], bpp)
    head = struct.pack(">IIBBBBB", *(size or (w, h)), depth, colour, 0, 0, int(adam7))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + b"".join(before)
        + chunk(b"IDAT", zlib.compress(data, 9))
        + b"".join(after)
        + chunk(b"IEND", b"")
    )


def scaled(channels, depth, w=SMALL[0], h=SMALL[1]):
    v = picture(w, h, channels).astype(np.int64)
    return v * 257 + (np.arange(w)[None, :, None] * 7) % 200 if depth == 16 else v >> (8 - depth)


def make_png():
    palette = picture(16, 16, 3).reshape(-1, 3)
    plte = chunk(b"PLTE", palette.tobytes())
    trns = chunk(b"tRNS", bytes((37 * i) % 256 for i in range(200)))
    index = scaled(1, 8)
    rgb = scaled(3, 8)
    one = rgb[3, 5].astype(np.uint16)
    iccp = chunk(b"iCCP", b"broken\0\0" + b"no zlib data")
    yield "grey1.png", png(scaled(1, 1), 1, 0)
    yield "grey2.png", png(scaled(1, 2), 2, 0)
    yield "grey4.png", png(scaled(1, 4), 4, 0)
    yield "grey8.png", png(scaled(1, 8), 8, 0)
    yield "rgb8.png", png(rgb, 8, 2)
    yield "rgb16.png", png(scaled(3, 16), 16, 2)
    yield "la8.png", png(scaled(2, 8), 8, 4)
    yield "la16.png", png(scaled(2, 16), 16, 4)
    yield "rgba8.png", png(scaled(4, 8), 8, 6)
    yield "rgba16.png", png(scaled(4, 16), 16, 6)
    yield "palette.png", png(index, 8, 3, before=[plte])
    yield "palette-trns.png", png(index, 8, 3, before=[plte, trns])
    yield "palette4-trns.png", png(index >> 4, 4, 3, before=[chunk(b"PLTE", palette[:48].tobytes()[:48]), chunk(b"tRNS", b"\0\x40\x80")])
    yield "grey8-trns.png", png(index, 8, 0, before=[chunk(b"tRNS", struct.pack(">H", int(index[2, 2, 0])))])
    yield "rgb8-trns.png", png(rgb, 8, 2, before=[chunk(b"tRNS", one.astype(">u2").tobytes())])
    yield "adam7.png", png(rgb, 8, 2, adam7=True)
    yield "adam7-grey2.png", png(scaled(1, 2), 2, 0, adam7=True)
    yield "adam7-narrow.png", png(scaled(3, 8, 3, 37), 8, 2, adam7=True)
    yield "bad-icc.png", png(rgb, 8, 2, before=[iccp])
    yield "exif.png", png(rgb, 8, 2, before=[chunk(b"eXIf", exif(6, ">"))])
    yield "exif-late.png", png(rgb, 8, 2, after=[chunk(b"eXIf", exif(8))])
    yield "one.png", png(scaled(3, 8, 1, 1), 8, 2)
    yield "tall.png", png(scaled(3, 8, 3, 500), 8, 2)
    yield "wide.png", png(scaled(3, 8, 300, 20), 8, 2)


def make_jpeg():
    rgb = picture(*SMALL, 3)
    full = jpeg(rgb, subsampling=0)
    yield "444.jpg", full
    yield "420.jpg", jpeg(rgb, subsampling=2)
    yield "422.jpg", jpeg(rgb, subsampling=1)
    yield "440.jpg", as_440(jpeg(picture(64, 64, 3), subsampling=1))
    yield "progressive.jpg", jpeg(rgb, subsampling=2, progressive=True)
    yield "restart.jpg", jpeg(rgb, subsampling=2, restart_marker_blocks=2)
    yield "grey.jpg", jpeg(picture(*SMALL, 1), "L")
    yield "adobe-rgb.jpg", jpeg(rgb, keep_rgb=True)
    cmyk = jpeg(picture(*SMALL, 4), "CMYK")
    yield "cmyk.jpg", cmyk
    yield "ycck.jpg", as_ycck(cmyk)
    yield "bad-icc.jpg", jpeg(rgb, icc_profile=b"no profile" * 20)
    for v in range(1, 9):
        yield "exif%d.jpg" % v, jpeg(picture(24, 17, 3), exif=b"Exif\0\0" + exif(v, "<>"[v % 2], 3))
    yield "exif-long.jpg", jpeg(picture(24, 17, 3), exif=b"Exif\0\0" + exif(5, "<", 4))
    yield "exif-9.jpg", jpeg(picture(24, 17, 3), exif=b"Exif\0\0" + exif(9))
    yield "photo.jpg", jpeg(picture(160, 120, 3), subsampling=2)


def make_webp():
    def webp(array, **how):
        b = io.BytesIO()
        Image.fromarray(array, "RGBA" if array.shape[2] == 4 else "RGB").save(b, "WEBP", **how)
        return b.getvalue()

    rgb, rgba = picture(*SMALL, 3), picture(*SMALL, 4)
    yield "lossy.webp", webp(rgb, quality=80)
    yield "lossless.webp", webp(rgb, lossless=True)
    yield "alpha.webp", webp(rgba, quality=80)
    yield "alpha-lossless.webp", webp(rgba, lossless=True, exact=True)
    yield "exif.webp", webp(rgb, quality=80, exif=exif(3))


def make_check():
    """(name, format, bytes) of the smallest pictures that show how a decoder rounds."""
    rgb, small = picture(19, 13, 3), scaled(3, 8, 9, 7)

    def saved(kind, **how):
        b = io.BytesIO()
        Image.fromarray(rgb).save(b, kind, **how)
        return b.getvalue()

    yield "jpeg_420", "JPEG", saved("JPEG", quality=75, subsampling=2, optimize=True)
    yield "jpeg_progressive", "JPEG", saved("JPEG", quality=75, subsampling=2, progressive=True)
    yield "png", "PNG", png(small, 8, 2, adam7=True)
    yield "webp_lossy", "WebP", saved("WEBP", quality=70)
    yield "webp_lossless", "WebP", saved("WEBP", lossless=True)


def make_refused(good):
    """(file, bytes, words of the refusal)"""

    def saved(kind, mode="RGB"):
        b = io.BytesIO()
        Image.fromarray(picture(9, 7, 3), "RGB").convert(mode).save(b, kind)
        return b.getvalue()

    rgb = scaled(3, 8)
    frames = io.BytesIO()
    two = [Image.fromarray(picture(9, 7, 3)), Image.fromarray(255 - picture(9, 7, 3))]
    two[0].save(frames, "WEBP", save_all=True, append_images=two[1:])
    for name in ("444.jpg", "progressive.jpg", "rgb8.png", "adam7.png", "lossy.webp", "lossless.webp"):
        yield "cut-" + name, good[name][: len(good[name]) * 6 // 10], "the file ends early"
    yield "gif.bin", saved("GIF", "P"), "a GIF picture"
    yield "bmp.bin", saved("BMP"), "a BMP picture"
    yield "tiff.bin", saved("TIFF"), "a TIFF picture"
    yield "heic.bin", struct.pack(">I", 24) + b"ftypheic\0\0\0\0mif1heic", "a HEIC picture"
    yield "avif.bin", struct.pack(">I", 24) + b"ftypavif\0\0\0\0mif1avif", "an AVIF picture"
    yield "mp4.bin", struct.pack(">I", 24) + b"ftypisom\0\0\0\0isomavc1", "a video or sound (MP4)"
    yield "wav.bin", b"RIFF\x24\0\0\0WAVEfmt ", "sound (WAV)"
    yield "text.bin", b"no picture at all", "of no picture"
    yield "empty.bin", b"", "no bytes"
    yield "grey16.png", png(scaled(1, 16), 16, 0), "16-bit grey"
    yield "two.webp", frames.getvalue(), "animated"
    yield "bomb.png", png(rgb, 8, 2, size=(16000, 16000)), "more than its bytes can hold"
    yield "side.png", png(rgb, 8, 2, size=(70000, 2)), "65500 a side"
    yield "area.png", png(rgb, 8, 2, size=(60000, 60000)), "60000 x 60000"
    yield "zero.png", png(rgb, 8, 2, size=(0, 5)), "PNG: "
    yield "crc.png", good["rgb8.png"][:40] + b"\xff" + good["rgb8.png"][41:], "PNG: "
    big = bytearray(good["444.jpg"])
    at = marker(good["444.jpg"], 0xC0)
    big[at + 5 : at + 9] = b"\xff\xdc\xff\xdc"
    yield "area.jpg", bytes(big), "65500 x 65500"
    big[at + 4] = 12
    yield "bits12.jpg", bytes(big), "JPEG: "
    yield "empty.jpg", b"\xff\xd8\xff\xd9", "JPEG: "


def make_all(folder):
    """Writes every file; returns the names of those that are read, and {name: words} of those that are refused."""
    os.makedirs(folder, exist_ok=True)
    good = dict(list(make_png()) + list(make_jpeg()) + list(make_webp()))
    refused = {name: (data, words) for name, data, words in make_refused(good)}
    for name, data in list(good.items()) + [(n, d) for n, (d, _) in refused.items()]:
        assert len(data) <= 32000, name
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    return sorted(good), {n: w for n, (_, w) in sorted(refused.items())}
