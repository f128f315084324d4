#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden model beside this script: a tiny Llama 4 as published, with an encoder of pictures, and logits of its texts in f64. A development
tool (torch, transformers 5.23, safetensors).

    llama4/config.json, model.safetensors   as Llama4ForConditionalGeneration saves itself
    llama4/expected.safetensors             logits of two texts, by the whole model
"""
import json
import os

import torch
from safetensors.torch import save_file
from transformers.models.llama4 import configuration_llama4 as c
from transformers.models.llama4.modeling_llama4 import Llama4ForConditionalGeneration

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    torch.manual_seed(0)
    text = json.load(open(os.path.join(HERE, "../families/llama4/config.json")))
    vision = c.Llama4VisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14,
                                  vision_output_dim=16, projector_input_dim=16, projector_output_dim=16)
    text = c.Llama4TextConfig(**{k: v for k, v in text.items() if k not in ("architectures", "model_type")})
    model = Llama4ForConditionalGeneration(c.Llama4Config(text_config=text, vision_config=vision)).float().eval()
    for p in model.parameters():
        if p.ndim > 1:
            p.data.normal_(0, 0.1)
    to = os.path.join(HERE, "llama4")
    model.save_pretrained(to)
    os.remove(os.path.join(to, "generation_config.json"))
    ids = torch.randint(3, text.vocab_size - 1, (2, 24))
    with torch.no_grad():
        logits = model.double()(input_ids=ids).logits
    save_file({"input_ids": ids, "logits": logits.contiguous()}, os.path.join(to, "expected.safetensors"), metadata={"format": "lf-expected-1"})


main()
