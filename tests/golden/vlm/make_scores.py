#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds to tests/golden/vlm/run what make_run.py does not: the log-likelihoods of documents and choices with pictures, in f64, of the models
that it saved, in `scored` of each, a line "documents" with a number for each row, and a line "choices" with
one for each choice. What is summed is what lf-eval scores:

    documents   every token behind the end token that stands in front, but for the placeholders of a picture;
                of PaliGemma, whose prompts see each other, the answer alone, with nothing in front
    choices     the tokens of the choice and of the white space before it, behind the context

and the losses of 20 AdamW steps of PaliGemma, PaliGemma 2 and InternVL over all rows at once (`losses`; PaliGemma's rows: train.jsonl).

    make_scores.py IMAGES RUN [MODEL ...]     IMAGES: tests/golden/media/images, RUN: tests/golden/vlm/run
    make_scores.py IMAGES RUN MODEL=ADAPTER   prints them with an adapter that lf-convert wrote for PEFT (peft 0.21.2), and writes nothing

It refuses to write numbers that another picture, or another mask, would not change. Needs torch, transformers 5.23 and
torchvision. Neither the build nor make check runs it.
"""
import contextlib
import json
import os
import sys

import torch
import transformers as tf
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "families"))
sys.dont_write_bytecode = True
from make_families import Double  # noqa: E402

if not tf.__version__.startswith("5.23."):
    sys.exit(f"transformers 5.23 is the reference, not {tf.__version__}")
IMAGES, RUN, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
# rows of train.json, and the documents of tests/stage/eval_pictures.sh
ROWS = [("rgb8.png", "What?", "A cat"), ("444.jpg", "Which animal?", "dog and cat"), ("rgba8.png", "Say.", "Nothing much"),
        (None, "No picture", "yes"), ("420.jpg", "Color?", "blue green")]
ANSWERS = [("rgb8.png", "What?", " A cat"), ("444.jpg", "Which animal?", "  dog and cat")]
END = "<|endoftext|>"
PALI_CHOICES = [("rgb8.png", "What?", [" A cat" + END, " A dog"]), ("444.jpg", "Which animal?", ["  dog and cat" + END, "  x"])]
CHOICES = [(name, "A or B?", [" A", " B"]) for name in ("rgb8.png", "444.jpg", "rgb8.png")]
OTHER = {"rgb8.png": "444.jpg", "444.jpg": "rgb8.png", "rgba8.png": "444.jpg", "420.jpg": "rgb8.png"}
MARKS = {"gemma3": "<|vision_start|>", "llava": "<image>", "paligemma": "<image>", "paligemma2": "<image>"}  # of a picture in a text; others: that of the Qwens
QWEN_MARK = "<|image_pad|>"
# of which scans, or norms and probabilities, are f32 otherwise, and twenty steps tell
WHOLE = {"qwen3.5-vl": [tf.Qwen3_5ForConditionalGeneration], "paligemma2": [tf.Gemma2ForCausalLM, tf.SiglipVisionModel]}


class Texts:
    def __init__(self, name, adapter):
        path = f"{RUN}/{name}"
        self.name, self.pali = name, name.startswith("paligemma")
        self.model = tf.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float64, experts_implementation="eager").eval()
        # as the file has it: that of the model's class would drop blanks
        self.fast = tf.PreTrainedTokenizerFast.from_pretrained(path)
        if self.pali:  # as make_run.py made it
            self.fast.image_token, self.fast.image_token_id = "<image>", self.fast.convert_tokens_to_ids("<image>")
            self.fast.add_tokens = lambda tokens: 0
            pictures = tf.SiglipImageProcessor.from_pretrained(path)
            eyes = self.model.config.vision_config
            pictures.image_seq_length = (eyes.image_size // eyes.patch_size) ** 2
            self.processor = tf.PaliGemmaProcessor(pictures, self.fast)
        else:
            self.processor = tf.AutoProcessor.from_pretrained(path)
            self.processor.tokenizer = self.fast
        self.image = self.model.config.image_token_id
        if adapter:
            from peft import PeftModel
            self.model = PeftModel.from_pretrained(self.model, adapter).double().eval()
        self.masked = False  # with the mask of a text alone

    def ids(self, text):
        return self.fast(text, add_special_tokens=False, return_tensors="pt")["input_ids"][0]

    def prompt(self, picture, text):
        """Inputs with the picture's, without a mask."""
        if picture is None:
            return {"input_ids": self.ids(text)[None]}
        e = self.processor(text=[text], images=[Image.open(f"{IMAGES}/{picture}")], return_tensors="pt")
        return {k: v.double() if v.is_floating_point() else v for k, v in e.items()
                if k in ("input_ids", "pixel_values", "image_grid_thw")}

    def logp(self, e, first):
        """Of each token from `first` on that stands for no picture."""
        ids = e["input_ids"][0]
        picture = ids == self.image
        if self.pali:
            e["token_type_ids"] = (torch.arange(len(ids)) >= (0 if self.masked else first)).long()[None]
        elif self.name == "gemma3":
            e["token_type_ids"] = (picture & (not self.masked)).long()[None]
        elif "image_grid_thw" in e:
            e["mm_token_type_ids"] = picture.long()[None]
        logits = self.model(**e, use_cache=False).logits[0]
        assert logits.dtype == torch.float64
        lp = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]
        return lp[first - 1:][~picture[first:]]

    def sum(self, e, first):
        with torch.no_grad():
            return self.logp(e, first).sum().item()

    def behind(self, e, ids):
        """Inputs with ids behind a prompt, and where these begin."""
        return e | {"input_ids": torch.cat([e["input_ids"], ids[None]], 1)}, e["input_ids"].shape[1]

    def turns(self, row, answer):
        parts = [{"type": "image"}] * (row[0] is not None) + [{"type": "text", "text": row[1]}]
        said = [{"role": "user", "content": parts}] + [{"role": "assistant", "content": [{"type": "text", "text": row[2]}]}] * answer
        return self.prompt(row[0], self.processor.apply_chat_template(said, add_generation_prompt=not answer))

    def document(self, row):
        picture, text, answer = row
        if self.pali:
            return self.sum(*self.behind(self.prompt(picture, "<image>" + text), self.ids(answer + END)))
        e = self.turns(row, True)
        return self.sum(e | {"input_ids": torch.cat([self.ids(END)[None], e["input_ids"]], 1)}, 1)

    def trained(self, row):
        """Inputs, and where the answer begins."""
        if self.pali:
            return self.behind(self.prompt(row[0], "<image>" + row[1]), self.ids(row[2] + END))
        return self.turns(row, True), self.turns(row, False)["input_ids"].shape[1]

    def choices(self, row):
        picture, text, answers = row
        mark = MARKS.get(self.name, QWEN_MARK)
        return [self.sum(*self.behind(self.prompt(picture, mark + text), self.ids(a))) for a in answers]


def scores(t):
    pali = t.pali
    documents = [t.document(r) for r in (ANSWERS if pali else ROWS)]
    choices = [x for r in (PALI_CHOICES if pali else CHOICES) for x in t.choices(r)]
    return documents, choices


def check(t, was):
    """Would another picture be noticed, and another mask?"""
    rows = ANSWERS if t.pali else ROWS
    for row, x in zip(rows, was):
        if row[0]:
            assert abs(t.document((OTHER[row[0]], *row[1:])) - x) > 1e-3, (t.name, row)
    if t.pali or t.name == "gemma3":
        t.masked = True
        apart = [abs(t.document(r) - x) for r, x in zip(rows, was) if r[0]]
        t.masked = False
        assert min(apart) > 1e-2, (t.name, apart)


def losses(t):
    rows = [t.trained(r) for r in ROWS if r[0] or not t.pali]
    # PyTorch gives the embedding of pad_token_id no gradient, and Gemma's class takes 0, a blank, for it
    t.model.get_input_embeddings().padding_idx = None
    t.model.train()
    opt = torch.optim.AdamW(t.model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    out = []
    for _ in range(20):
        opt.zero_grad()
        loss = -torch.cat([t.logp(e, first) for e, first in rows]).mean()
        loss.backward()
        out.append(loss.item())
        opt.step()
    return out


def write_scores(name, documents, choices):
    with open(f"{RUN}/{name}/scored", "w") as f:
        for what, x in (("documents", documents), ("choices", choices)):
            f.write(" ".join([what] + [f"{v:.9f}" for v in x]) + "\n")


def main():
    torch.set_default_dtype(torch.float64)
    with open(f"{RUN}/paligemma/train.jsonl", "w") as f:
        for picture, text, answer in (r for r in ROWS if r[0]):
            f.write(json.dumps({"images": [picture], "prompt": "<image>" + text, "completion": answer}) + "\n")
    for arg in ONLY or ("paligemma", "paligemma2", "gemma3", "llava", "qwen2.5-vl", "qwen3.5-vl", "internvl"):
        name, _, adapter = arg.partition("=")
        with contextlib.ExitStack() as stack:
            for cls in WHOLE.get(name, []):
                stack.enter_context(Double(cls))
            t = Texts(name, adapter)
            documents, choices = scores(t)
            check(t, documents)
            if name in ("paligemma", "paligemma2", "internvl") and not adapter:
                with open(f"{RUN}/{name}/losses", "w") as f:
                    f.writelines(f"{loss:.9f}\n" for loss in losses(t))
        torch.set_default_dtype(torch.float64)
        print(name, documents, choices)
        if name not in ("paligemma2", "internvl") and not adapter:
            write_scores(name, documents, choices)


main()
