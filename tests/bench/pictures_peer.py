#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of pictures.sh: transformers with PyTorch.

    pictures_peer.py make DIR            a LLaVA of 60M parameters with tokenizer and processor, pictures,
                                         rows that name them
    pictures_peer.py step DIR STEPS      median seconds of a step over 4 rows, f32, AdamW, eager
    pictures_peer.py prepare DIR BACKEND [decoded]
                                         median seconds of all pictures from files to pixel rows, or
                                         without decoding, one thread; BACKEND: torchvision or pil
"""
import json
import os
import statistics
import sys
import time

import numpy as np
import torch
import transformers as tf
from PIL import Image

PICTURES, SIDE = 64, 224


def make(out):
    from tokenizers import AddedToken, Tokenizer, decoders, models
    os.makedirs(out, exist_ok=True)
    chars = [chr(c) for c in range(32, 127)] + ["\n"]
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(chars)}, merges=[]))
    tok.decoder = decoders.Fuse()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False)
                            for s in ("<|endoftext|>", "<image>", "<user>", "<bot>")])
    torch.manual_seed(1)
    config = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=8,
                                          num_attention_heads=8, image_size=SIDE, patch_size=14,
                                          projection_dim=512),
        text_config=tf.LlamaConfig(hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
                                   num_attention_heads=8, num_key_value_heads=8, vocab_size=8192,
                                   max_position_embeddings=512),
        image_token_index=tok.token_to_id("<image>"), image_seq_length=256)
    model = tf.LlavaForConditionalGeneration(config)
    model.generation_config = tf.GenerationConfig(eos_token_id=96, pad_token_id=96)
    model.save_pretrained(out)
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|endoftext|>",
                                      pad_token="<|endoftext|>")
    fast.chat_template = ("{%- for m in messages -%}{{ '<user>' if m.role == 'user' else '<bot>' }}"
                          "{%- if m.content is string -%}{{ m.content }}{%- else -%}"
                          "{%- for c in m.content -%}{%- if c.type == 'image' -%}<image>"
                          "{%- else -%}{{ c.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
                          "{%- if m.role == 'assistant' %}<|endoftext|>{% endif -%}{%- endfor -%}"
                          "{%- if add_generation_prompt %}<bot>{% endif -%}")
    fast.save_pretrained(out)
    fast.image_token = "<image>"
    tf.LlavaProcessor(tf.CLIPImageProcessor(size={"shortest_edge": SIDE},
                                            crop_size={"height": SIDE, "width": SIDE}), fast,
                      patch_size=14, vision_feature_select_strategy="default", image_token="<image>",
                      chat_template=fast.chat_template, num_additional_image_tokens=1).save_pretrained(out)
    rng = np.random.default_rng(1)
    rows = []
    for i in range(PICTURES):
        low = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(low).resize((1024, 768), Image.BICUBIC).save(f"{out}/{i}.jpg", quality=85)
        rows.append({"image": f"{i}.jpg",
                     "conversations": [{"from": "human", "value": "<image>\nWhat is this, then?"},
                                       {"from": "gpt", "value": "a soft pattern of colours " * 2}]})
    with open(f"{out}/rows.json", "w") as f:
        json.dump(rows, f)
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters())}))


def step(out, steps):
    model = tf.LlavaForConditionalGeneration.from_pretrained(out, dtype=torch.float32).train()
    processor = tf.AutoProcessor.from_pretrained(out)
    rows = json.load(open(f"{out}/rows.json"))[:4]
    text = ["<user><image>" + r["conversations"][0]["value"].replace("<image>\n", "") + "<bot>" +
            r["conversations"][1]["value"] + "<|endoftext|>" for r in rows]
    e = processor(text=text, images=[Image.open(f"{out}/{r['image']}") for r in rows],
                  return_tensors="pt", padding=True)
    e.pop("token_type_ids", None)
    labels = e["input_ids"].clone()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for _ in range(steps):
        t = time.perf_counter()
        opt.zero_grad()
        model(**e, labels=labels).loss.backward()
        opt.step()
        times.append(time.perf_counter() - t)
    print(json.dumps({"seconds": statistics.median(times[1:]), "tokens": int(e["input_ids"].numel())}))


def prepare(out, backend, decoded):
    torch.set_num_threads(1)
    ip = tf.AutoImageProcessor.from_pretrained(out, backend=backend)
    names = [f"{out}/{i}.jpg" for i in range(PICTURES)]
    pictures = [Image.open(n).convert("RGB") for n in names] if decoded else []
    times = []
    for _ in range(5):
        t = time.perf_counter()
        for i, name in enumerate(names):
            ip(pictures[i] if decoded else Image.open(name),
               return_tensors="pt" if backend == "torchvision" else "np")
        times.append(time.perf_counter() - t)
    print(json.dumps({"files": statistics.median(times), "class": type(ip).__name__}))


if sys.argv[1] == "make":
    make(sys.argv[2])
elif sys.argv[1] == "step":
    step(sys.argv[2], int(sys.argv[3]))
else:
    prepare(sys.argv[2], sys.argv[3], len(sys.argv) > 4)
