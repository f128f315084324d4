#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write what lf-convert --verify compares with: tokens, and the logits that transformers computes for them in f64; of a model with
labels (reward models, classifiers of texts and tokens, answers) what its head gives for each token; of an encoder-decoder a source text
beside each; of an encoder of two types of tokens which tokens are of a second text; of a model that sees with a picture of random pixels in every sequence, as rows of patches
(engine/model/sight.h). Of CLIP and SigLIP whole pictures of random pixels, texts, and what each is
to each. Of an encoder of pictures (CLIP, SigLIP, SigLIP 2, DINOv2, ViTMAE) pictures of random pixels and the rows behind
its last norm, of ViTMAEForPreTraining the patches that it restores.

    python3 expected.py MODEL_DIR OUT.safetensors [--text FILE | --ids 1,2,3] [--batch B] [--length T] [--trust-remote-code]

Runs without network, on any machine that has torch, transformers, safetensors and memory for the model in f64 (8 bytes a parameter).
Without --text or --ids the tokens are drawn at random from the vocabulary, by a fixed seed: proof needs no meaning. The length is best
above every window of the model, if memory allows.
"""
import argparse
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"


def tokens(a, torch, vocab):
    if a.ids:
        return torch.tensor([[int(x) for x in a.ids.split(",")]], dtype=torch.int64)
    if a.text:
        from transformers import AutoTokenizer

        tok = AutoTokenizer.from_pretrained(a.model, trust_remote_code=a.trust_remote_code)
        with open(a.text, encoding="utf-8") as f:
            ids = tok(f.read())["input_ids"][: a.batch * a.length]
        rows = max(1, len(ids) // a.length)
        return torch.tensor(ids[: rows * min(a.length, len(ids))], dtype=torch.int64).reshape(rows, -1)
    g = torch.Generator().manual_seed(1)
    return torch.randint(0, vocab, (a.batch, a.length), generator=g, dtype=torch.int64)


# Encoders of texts whose positions count from behind the number of the token of padding, which has none.
COUNTED = ("roberta", "xlm-roberta", "camembert")


def masked(config):
    """Is it an encoder that fills in hidden tokens?"""
    return any(c.endswith("ForMaskedLM") or c == "BertForPreTraining" for c in config.architectures or [])


LABELS = {"ForSequenceClassification": "AutoModelForSequenceClassification", "ForTokenClassification": "AutoModelForTokenClassification",
          "ForQuestionAnswering": "AutoModelForQuestionAnswering", "ElectraForPreTraining": "AutoModelForPreTraining"}


def told(config):
    """The class of transformers that reads its labels; None: it has none."""
    return next((a for c in config.architectures or [] for e, a in LABELS.items() if c.endswith(e)), None)


def head(model, h):
    """What the head of a classifier of texts gives for each token of hidden states [1, T, C]."""
    import torch

    if hasattr(model, "score"):
        return model.score(h)
    if hasattr(model, "pre_classifier"):
        return model.classifier(model.pre_classifier(h).relu())
    if hasattr(model, "head"):
        return model.classifier(model.head(h))
    if hasattr(model.classifier, "out_proj"):
        inner = model.classifier.dense(h)
        return model.classifier.out_proj(torch.nn.functional.gelu(inner) if model.config.model_type == "electra" else inner.tanh())
    return model.classifier(model.base_model.pooler.dense(h).tanh())


def labels(model, row, types):
    """[1, T, labels] of a model with labels; of those of texts the own answer of the class must be that of the row it reads."""
    import torch

    args = dict(input_ids=row, attention_mask=row.new_ones(row.shape), **({} if types is None else {"token_type_ids": types}))
    out = model(**args)
    if hasattr(out, "start_logits"):
        return torch.stack([out.start_logits, out.end_logits], -1)
    if out.logits.dim() == 3:
        return out.logits
    if hasattr(model, "discriminator_predictions"):  # a number of each token
        return out.logits[..., None]
    rows = head(model, model.base_model(**args)[0])
    at = -1 if hasattr(model, "score") else 0
    assert at == -1 and row[0, -1] == model.config.pad_token_id or (out.logits - rows[:, at]).abs().max() < 1e-9
    return rows


def sources(a, config, torch, batch):
    """Of an encoder-decoder a source of random tokens for each target, of different lengths."""
    g = torch.Generator().manual_seed(2)
    allowed = torch.tensor([t for t in range(config.vocab_size) if t != config.pad_token_id])
    return [allowed[torch.randint(0, len(allowed), (max(1, a.length - 7 * b),), generator=g)] for b in range(batch)]


def forward(model, row, types):
    """[1, T, vocabulary], or [1, T, labels] of a model with labels."""
    if told(model.config):
        return labels(model, row, types)
    if types is not None:
        return model(input_ids=row, token_type_ids=types).logits
    return model(input_ids=row, **({} if masked(model.config) else {"use_cache": False})).logits


def tile_rows(images, side):
    """Patches of tiles, row by row: (channel, row, column)."""
    import torch

    return torch.cat([torch.nn.functional.unfold(i[None], side, stride=side)[0].T for i in images])


def blocks(rows, h, w, m):
    """The same patches in blocks of m x m."""
    return rows.reshape(h // m, m, w // m, m, -1).transpose(1, 2).reshape(h * w, -1)


def picture(config, torch, g):
    """A picture of random pixels: arguments of the class, rows of patches, (rows, columns) of tiles, and struct lf_sight_picture."""
    v = config.vision_config
    patch, image = v.patch_size, getattr(v, "image_size", None)
    patch = patch if isinstance(patch, int) else patch[0]
    image = image if isinstance(image, int) or image is None else image[0]
    if v.model_type == "pixtral":  # pictures of any grid
        m = getattr(config, "spatial_merge_size", 1)
        h, w = 6 * m, 10 * m
        x = torch.randn(1, 3, h * patch, w * patch, generator=g)
        args = {"pixel_values": x, "image_sizes": torch.tensor([[h * patch, w * patch]])}
        return args, blocks(tile_rows(x, patch), h, w, m), [(h, w)], (0, 1, 0, 0, w * patch, h * patch), m
    if hasattr(config, "scale_factor"):  # Idefics 3 and SmolVLM: two tiles and all of it
        m, side = config.scale_factor, image // patch // config.scale_factor * config.scale_factor
        x = torch.randn(1, 3, 3, side * patch, side * patch, generator=g)
        rows = torch.cat([blocks(tile_rows(i[None], patch), side, side, m) for i in x[0]])
        return {"pixel_values": x}, rows, [(side, side)] * 3, (0, 3, 0, 0, side * patch, side * patch), m
    if hasattr(v, "spatial_merge_size"):
        h, w = 6 * v.spatial_merge_size, 10 * v.spatial_merge_size
        x = torch.randn(h * w, 3 * v.temporal_patch_size * patch * patch, generator=g)
        return {"pixel_values": x, "image_grid_thw": torch.tensor([[1, h, w]])}, x, [(h, w)], (0, 1, 0, 0, w * patch, h * patch), v.spatial_merge_size
    tiles, cols, rows, size = 1, 0, 0, (image, image)
    if hasattr(config, "image_grid_pinpoints"):
        from transformers.image_processing_utils import select_best_resolution

        size = (image * 3 // 2, image * 2 // 3)  # of a shape that no grid of tiles has
        rows, cols = (n // image for n in select_best_resolution(size, config.image_grid_pinpoints))
        tiles = 1 + rows * cols
    x = torch.randn(tiles, 3, image, image, generator=g)
    args = {"pixel_values": x}
    if cols:
        args = {"pixel_values": x[None], "image_sizes": torch.tensor([size])}
    side = image // patch
    cut = x[:, :, : side * patch, : side * patch]
    return args, tile_rows(cut, patch), [(side, side)] * tiles, (0, tiles, cols, rows, size[1], size[0]), 1


def see(a, model, torch):
    """The tensors of expected.safetensors of a model that sees."""
    config, g, out = model.config, torch.Generator().manual_seed(1), []
    token = config.image_token_id
    vocab = config.get_text_config().vocab_size
    special = [getattr(config, n, None) for n in ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")]
    for _ in range(a.batch):
        args, pixels, tiles, place, merge = picture(config, torch, g)
        args["pixel_values"] = args["pixel_values"].double()
        kind, prefix = config.model_type, None
        features = model.model.get_image_features(**args, return_dict=True).pooler_output
        count = sum(f.reshape(-1, f.shape[-1]).shape[0] for f in features)
        text = [int(t) for t in torch.randint(0, vocab, (2 * a.length,), generator=g) if int(t) not in special][: a.length]
        ids = torch.tensor(text[:4] + [token] * count + text[4:])
        if "image_grid_thw" in args:
            args["mm_token_type_ids"] = (ids == token).long()[None]
        if kind == "gemma3":
            args["token_type_ids"] = (ids == token).long()[None]
        if kind == "paligemma":
            prefix = len(ids) - a.length // 2
            args["token_type_ids"] = (torch.arange(len(ids)) >= prefix).long()[None]
        logits = model(input_ids=ids[None], use_cache=False, **args).logits[0]
        one = {"input_ids": ids, "logits": logits, "pixels": pixels.float(), "tiles": torch.tensor(tiles), "pictures": torch.tensor([place])}
        out.append({**one, "prefix": torch.tensor(prefix)} if prefix else one)
    return {**{k: torch.stack([o[k] for o in out]).contiguous() for k in out[0]}, "merge": torch.tensor([merge])}


# Encoders of pictures, alone or beside a tower of text.
ENCODERS = ("clip", "clip_vision_model", "siglip", "siglip_vision_model", "siglip2", "siglip2_vision_model", "dinov2", "vit_mae", "vit", "deit", "swin", "swinv2", "convnext")


def grid_of(v):
    """Rows and columns of patches: those of the table of positions, or others where the class resamples it unasked."""
    if v.model_type.startswith("siglip2"):
        side = int(v.num_patches**0.5)
        return side - 1, side + 2
    size = v.image_size if isinstance(v.image_size, int) else v.image_size[0]
    side = size // v.patch_size
    return (side + 2, side - 1) if v.model_type == "dinov2" else (side, side)


def encode(model, torch, g):
    """The tensors of one picture."""
    tower = getattr(model, "vision_model", model)
    v = tower.config
    (h, w), p = grid_of(v), v.patch_size
    if v.model_type.startswith("siglip2"):  # rows of patches come in
        rows = torch.randn(1, h * w, 3 * p * p, generator=g)
        args = {"pixel_attention_mask": torch.ones(1, h * w, dtype=torch.int64), "spatial_shapes": torch.tensor([[h, w]])}
        x = rows
        rows = rows[0]
    else:
        x, args = torch.randn(1, 3, h * p, w * p, generator=g), {}
        rows = tile_rows(x, p)
    one = {"pixels": rows, "tiles": torch.tensor([[h, w]])}
    if hasattr(model, "decoder"):  # a masked autoencoder whole
        out = model(pixel_values=x.double(), noise=torch.rand(1, h * w, generator=g).double())
        order = [(y * p + x) * 3 + c for c in range(3) for y in range(p) for x in range(p)]  # our numbers of a patch, among theirs
        mask = out.mask[0].long()
        return {**one, "mask": mask, "restored": out.logits[0][mask == 1][:, order]}
    if v.model_type == "vit_mae":
        tower.config.mask_ratio = tower.embeddings.config.mask_ratio = 0.0
        args = {"noise": torch.arange(h * w)[None].double()}  # in this order
    out = tower(pixel_values=x.double(), **args)
    if hasattr(out, "logits"):  # of classes
        return {**one, "logits": out.logits}
    hidden = out.last_hidden_state[0]
    if v.model_type.startswith("clip"):  # whose last norm is of the pooled row alone
        hidden = getattr(tower, "vision_model", tower).post_layernorm(hidden)
        assert (hidden[0] - out.pooler_output[0]).abs().max() < 1e-9
    return {**one, "hidden": hidden}


def pairs(model, torch, g, n=4):
    """The tensors of n pictures and n texts of a model that compares them."""
    v, t = model.config.vision_config, model.config.text_config
    side, length = v.image_size // v.patch_size, t.max_position_embeddings
    x = torch.randn(n, 3, side * v.patch_size, side * v.patch_size, generator=g)
    end = t.vocab_size - 1 if t.eos_token_id in (None, 2) else t.eos_token_id
    lengths = torch.tensor([max(2, length - i) for i in range(n)])
    pad = t.pad_token_id if model.config.model_type == "siglip" else end
    texts = torch.full((n, length), pad)
    words = torch.tensor([k for k in range(t.vocab_size) if k != end])
    for i in range(n):
        texts[i, : lengths[i]] = words[torch.randint(0, len(words), (int(lengths[i]),), generator=g)]
        texts[i, lengths[i] - 1] = end
    out = model(input_ids=texts, pixel_values=x.double())
    tiles = torch.tensor([[side, side]] * n)
    return {"pixels": tile_rows(x[:, :, : side * v.patch_size, : side * v.patch_size], v.patch_size), "tiles": tiles, "texts": texts, "lengths": lengths,
            "logits": out.logits_per_image}


def look(a, config, torch):
    """The tensors of expected.safetensors of an encoder of pictures."""
    import transformers

    cls = getattr(transformers, config.architectures[0])
    model = cls.from_pretrained(a.model, torch_dtype=torch.float32, local_files_only=True, attn_implementation="eager").double().eval()
    g = torch.Generator().manual_seed(1)
    whole = config.model_type in ("clip", "siglip")
    out = [pairs(model, torch, g) if whole else encode(model, torch, g) for _ in range(a.batch)]
    return {k: torch.stack([o[k] for o in out]).contiguous() for k in out[0]}


def write(a, out, family, extra=None):
    """The file, and a line that tells of it."""
    import transformers
    from safetensors.torch import save_file

    meta = {"format": "lf-expected-1", "family": family, "source": "transformers " + transformers.__version__}
    save_file(out, a.out, metadata=meta)
    count = {"tokens": out["input_ids"].numel()} if "input_ids" in out else {"pictures": a.batch}
    print(json.dumps({"out": a.out, **count, **(extra or {}), **meta}))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--text")
    p.add_argument("--ids")
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--trust-remote-code", action="store_true")
    a = p.parse_args()
    import torch
    import transformers

    torch.set_grad_enabled(False)
    known = transformers.AutoConfig.from_pretrained(a.model, trust_remote_code=a.trust_remote_code, local_files_only=True)
    if known.model_type in ENCODERS:
        write(a, look(a, known, torch), known.model_type)
        return
    scores = told(known)
    sees = hasattr(known, "vision_config")
    auto = getattr(transformers, scores) if scores else transformers.AutoModelForCausalLM
    if sees:
        auto = transformers.AutoModelForImageTextToText
    elif masked(known):
        auto = transformers.AutoModelForMaskedLM
    elif known.is_encoder_decoder and not scores:
        auto = transformers.AutoModelForSeq2SeqLM
    plain = {"attn_implementation": "eager"}
    if int(transformers.__version__.split(".")[0]) >= 5:
        plain["experts_implementation"] = "eager"  # its grouped products know no f64
    model = auto.from_pretrained(
        a.model, torch_dtype=torch.float32, trust_remote_code=a.trust_remote_code, local_files_only=True, **plain
    )
    model = model.to(torch.float64).eval()
    if sees:
        write(a, see(a, model, torch), model.config.model_type)
        return
    config = model.config
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or a.length
    pad = config.pad_token_id if config.model_type in COUNTED else None
    a.length = min(a.length, positions - (0 if pad is None else pad + 1))
    ids = tokens(a, torch, config.vocab_size)
    if pad is not None:
        ids[ids == pad] = pad + 1
    # f64 throughout: some models keep masks or rotary tables in f32, which shows as 1e-7 and less.
    types = None
    if (masked(config) or scores) and (getattr(config, "type_vocab_size", None) or 1) > 1:
        types = (torch.arange(ids.shape[1]) >= ids.shape[1] // 2).long()[None]
    beside = sources(a, config, torch, len(ids)) if auto is transformers.AutoModelForSeq2SeqLM else None
    if beside:
        rows = [model(input_ids=s[None], decoder_input_ids=row[None], use_cache=False).logits for s, row in zip(beside, ids)]
    else:
        rows = [forward(model, row[None], types) for row in ids]
    logits = torch.cat(rows).to(torch.float64)
    next_token = ids.shape[1] > 1 and not scores
    nll = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) if next_token else logits.new_zeros(())
    out = {"input_ids": ids, "logits": logits.contiguous(), "loss": nll.reshape(1)}
    if types is not None:
        out["token_type_ids"] = types.repeat(len(ids), 1)
    if beside:
        out["source_lengths"], out["source_ids"] = torch.tensor([len(s) for s in beside]), torch.cat(beside)
    write(a, out, config.model_type, {"loss": float(nll)})


if __name__ == "__main__":
    sys.exit(main())
