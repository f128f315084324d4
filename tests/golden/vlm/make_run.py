#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/vlm/run: for each model a folder as transformers publishes it (weights, tokenizer,
processor, chat template), rows to train on, prompts, and what transformers does with them in f64: the
tokens of greedy generation and the losses of 20 AdamW steps over all rows at once. Of the paligemmas and
internvl there are the tokens alone, and the prompts of paligemma, which has no chat template.

    make_run.py IMAGES OUT [MODEL ...]     IMAGES: tests/golden/media/images

Needs torch, transformers 5.23, torchvision and tokenizers. Neither the build nor make check runs it.
"""
import contextlib
import json
import os
import sys

import torch
import transformers as tf
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "families"))
sys.dont_write_bytecode = True
from make_families import Double  # noqa: E402

if not tf.__version__.startswith("5.23."):
    sys.exit(f"transformers 5.23 is the reference, not {tf.__version__}")
IMAGES, OUT, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
SPECIAL = ["<|endoftext|>", "<image>", "<user>", "<bot>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>"]
ROWS = [("rgb8.png", "What?", "A cat"), ("444.jpg", "Which animal?", "dog and cat"),
        ("rgba8.png", "Say.", "Nothing much"), (None, "No picture", "yes"),
        ("420.jpg", "Color?", "blue green")]
TEXT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=104, max_position_embeddings=256)


def tokenizer(more):
    chars = [chr(c) for c in range(32, 127)] + ["\n"]
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(chars)}, merges=[]))
    tok.decoder = decoders.Fuse()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL + more])
    return tok


def template(picture):
    return ("{%- for m in messages -%}{{ '<user>' if m.role == 'user' else '<bot>' }}"
            "{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for c in m.content -%}"
            "{%- if c.type == 'image' -%}" + picture + "{%- else -%}{{ c.text }}{%- endif -%}"
            "{%- endfor -%}{%- endif -%}{%- if m.role == 'assistant' %}<|endoftext|>{% endif -%}"
            "{%- endfor -%}{%- if add_generation_prompt %}<bot>{% endif -%}")


def llava(ids):
    config = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                                          num_attention_heads=4, image_size=20, patch_size=4,
                                          projection_dim=16),
        text_config=tf.LlamaConfig(**TEXT), image_token_index=ids["<image>"], image_seq_length=25)
    return tf.LlavaForConditionalGeneration(config), "<image>"


def llava_processor(fast, chat):
    fast.image_token = "<image>"
    pictures = tf.CLIPImageProcessor(size={"shortest_edge": 20}, crop_size={"height": 20, "width": 20})
    return tf.LlavaProcessor(pictures, fast, patch_size=4, vision_feature_select_strategy="default",
                             chat_template=chat, image_token="<image>", num_additional_image_tokens=1)


def qwen(ids):
    config = tf.Qwen2_5_VLConfig(
        vision_config=dict(hidden_size=32, intermediate_size=48, depth=3, num_heads=4, patch_size=4,
                           spatial_merge_size=2, temporal_patch_size=2, window_size=16,
                           fullatt_block_indexes=[1], out_hidden_size=32),
        text_config=dict(**TEXT, rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2],
                                                  "rope_theta": 10000.0}),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    return (tf.Qwen2_5_VLForConditionalGeneration(config),
            "<|vision_start|><|image_pad|><|vision_end|>")


def qwen_processor(fast, chat):
    pictures = tf.Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2,
                                        min_pixels=64, max_pixels=24 * 24 * 4)
    return tf.Qwen2_5_VLProcessor(pictures, fast, video_processor=Qwen2VLVideoProcessor(),
                                  chat_template=chat)


SEEDS = {"paligemma2": 11}  # with which make_scores.py sees another mask; of others 3 and on
PALI_SIDE = {"paligemma": 5, "paligemma2": 4}  # patches of 4 x 4 pixels in a row of a picture


def paligemma(ids):
    config = tf.PaliGemmaConfig(
        vision_config=dict(model_type="siglip_vision_model", hidden_size=32, intermediate_size=48,
                           num_hidden_layers=2, num_attention_heads=4, image_size=20, patch_size=4,
                           projection_dim=32, vision_use_head=False),
        text_config=dict(TEXT, model_type="gemma", head_dim=8), image_token_index=ids["<image>"],
        projection_dim=32, hidden_size=32)
    return tf.PaliGemmaForConditionalGeneration(config), "<image>"


def paligemma_processor(fast, chat, name="paligemma"):
    fast.bos_token = "<user>"  # there is no room for another token
    fast.image_token, fast.image_token_id = "<image>", SPECIAL_ID["<image>"]
    fast.add_tokens = lambda tokens: 0  # those of places and segments
    side = 4 * PALI_SIDE[name]
    pictures = tf.SiglipImageProcessor(size={"height": side, "width": side})
    pictures.image_seq_length = PALI_SIDE[name] ** 2
    return tf.PaliGemmaProcessor(pictures, fast)


def internvl(ids):
    config = tf.InternVLConfig(
        vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                           num_attention_heads=4, image_size=[24, 24], patch_size=[4, 4]),
        text_config=dict(TEXT, model_type="qwen2"), image_token_id=ids["<|image_pad|>"])
    return tf.InternVLForConditionalGeneration(config), "<|image_pad|>"


def internvl_processor(fast, chat):
    pictures = tf.GotOcr2ImageProcessor(size={"height": 24, "width": 24}, crop_to_patches=True,
                                        min_patches=1, max_patches=4)
    return tf.InternVLProcessor(pictures, fast, video_processor=InternVLVideoProcessor(),
                                image_seq_length=9, chat_template=chat)


def gemma(ids):
    config = tf.Gemma3Config(
        vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                           image_size=24, patch_size=4, vision_use_head=False),
        # PyTorch gives the embedding of pad_token_id no gradient, and the class takes 0, a blank, for it.
        text_config=dict(**TEXT, head_dim=8, query_pre_attn_scalar=8, sliding_window=7, pad_token_id=ids["<|video_pad|>"],
                         layer_types=["sliding_attention", "full_attention"]),
        mm_tokens_per_image=9, image_token_index=ids["<image>"], boi_token_index=ids["<|vision_start|>"],
        eoi_token_index=ids["<|vision_end|>"])
    return tf.Gemma3ForConditionalGeneration(config), "<|vision_start|>"


def gemma_processor(fast, chat):
    pictures = tf.Gemma3ImageProcessor(size={"height": 24, "width": 24})
    return tf.Gemma3Processor(pictures, fast, chat_template=chat, image_seq_length=9)


NAMED = {"gemma3": dict(image_token="<image>", boi_token="<|vision_start|>", eoi_token="<|vision_end|>"),
         "internvl": dict(start_image_token="<|vision_start|>", end_image_token="<|vision_end|>",
                          context_image_token="<|image_pad|>", video_token="<|video_pad|>")}


# Smaller, and with tokens of their own.
MORE = {"idefics3": ["<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<end_of_utterance>"],
        "mistral3": ["[IMG]", "[IMG_BREAK]", "[IMG_END]"], "qwen3-vl-moe": [], "qwen3.5-vl-moe": []}
SMALL = dict(TEXT, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512)
VISION = dict(hidden_size=16, intermediate_size=24, num_attention_heads=2, patch_size=4)


def idefics(ids):
    config = tf.Idefics3Config(
        vision_config=dict(VISION, num_hidden_layers=2, image_size=16), text_config=tf.LlamaConfig(**dict(SMALL, vocab_size=96 + len(ids))),
        image_token_id=ids["<image>"], scale_factor=2)
    return tf.Idefics3ForConditionalGeneration(config), "<image>"


def idefics_processor(fast, chat):
    pictures = tf.Idefics3ImageProcessor(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    return tf.Idefics3Processor(pictures, fast, image_seq_len=4, chat_template=chat)


def mistral(ids):
    config = tf.Mistral3Config(
        vision_config=tf.PixtralVisionConfig(**VISION, num_hidden_layers=2, image_size=64, hidden_act="silu"),
        text_config=tf.MistralConfig(**dict(SMALL, vocab_size=96 + len(ids)), head_dim=8, sliding_window=None), image_token_index=ids["[IMG]"],
        spatial_merge_size=2, tie_word_embeddings=False)
    return tf.Mistral3ForConditionalGeneration(config), "[IMG]"


def mistral_processor(fast, chat):
    pictures = tf.PixtralImageProcessor(patch_size=4, size={"longest_edge": 32})
    return tf.PixtralProcessor(pictures, fast, patch_size=4, spatial_merge_size=2, chat_template=chat)


def qwen_moe(ids):
    text = {k: v for k, v in SMALL.items() if k != "intermediate_size"}
    config = tf.Qwen3VLMoeConfig(
        vision_config=dict(hidden_size=16, intermediate_size=24, depth=2, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=16, num_position_embeddings=16,
                           deepstack_visual_indexes=[0]),
        text_config=dict(**text, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, router_aux_loss_coef=0.0,
                         rope_parameters={"rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True,
                                          "rope_theta": 10000.0}, tie_word_embeddings=False),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"], tie_word_embeddings=False,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    config._experts_implementation = config.text_config._experts_implementation = "eager"
    return tf.Qwen3VLMoeForConditionalGeneration(config), "<|vision_start|><|image_pad|><|vision_end|>"


def qwen_moe_processor(fast, chat):
    pictures = tf.Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64,
                                        max_pixels=24 * 24 * 4)
    return tf.Qwen3VLProcessor(pictures, fast, video_processor=Qwen3VLVideoProcessor(), chat_template=chat)


def qwen35_moe(ids):
    text = {k: v for k, v in SMALL.items() if k != "intermediate_size"}
    config = tf.Qwen3_5MoeConfig(
        vision_config=dict(hidden_size=16, intermediate_size=24, depth=2, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=16, num_position_embeddings=16),
        text_config=dict(**text, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=1,
                         linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=6, num_experts=4, num_experts_per_tok=2,
                         moe_intermediate_size=12, shared_expert_intermediate_size=8, router_aux_loss_coef=0.0, rope_parameters={
                             "rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True, "rope_theta": 10000.0,
                             "partial_rotary_factor": 0.5}, tie_word_embeddings=False),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"], tie_word_embeddings=False,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    config._experts_implementation = config.text_config._experts_implementation = "eager"
    return tf.Qwen3_5MoeForConditionalGeneration(config), "<|vision_start|><|image_pad|><|vision_end|>"


def qwen35(ids):
    config = tf.Qwen3_5Config(
        vision_config=dict(hidden_size=16, intermediate_size=24, depth=2, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=16, num_position_embeddings=16),
        text_config=dict(**dict(SMALL, num_key_value_heads=2), head_dim=16, layer_types=["linear_attention", "full_attention"],
                         linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=6, rope_parameters={
                             "rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True, "rope_theta": 10000.0,
                             "partial_rotary_factor": 0.5}, tie_word_embeddings=False),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"], tie_word_embeddings=False,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    return tf.Qwen3_5ForConditionalGeneration(config), "<|vision_start|><|image_pad|><|vision_end|>"


PINPOINTS = [[16, 32], [32, 16], [32, 32]]
MORE.update({"llava-next": [], "llava-onevision": [], "qwen2-vl": [], "pixtral": ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]})


def llava_next(ids):
    config = tf.LlavaNextConfig(
        vision_config=tf.CLIPVisionConfig(**VISION, num_hidden_layers=3, image_size=16, projection_dim=16),
        text_config=tf.MistralConfig(**dict(SMALL, vocab_size=96 + len(ids)), head_dim=8, sliding_window=None), image_token_index=ids["<image>"],
        image_grid_pinpoints=PINPOINTS, image_seq_length=16, tie_word_embeddings=False)
    return tf.LlavaNextForConditionalGeneration(config), "<image>"


def llava_next_processor(fast, chat):
    fast.image_token = "<image>"
    pictures = tf.LlavaNextImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_grid_pinpoints=PINPOINTS)
    return tf.LlavaNextProcessor(pictures, fast, patch_size=4, vision_feature_select_strategy="default", chat_template=chat,
                                 image_token="<image>", num_additional_image_tokens=1)


def onevision(ids):
    config = tf.LlavaOnevisionConfig(
        vision_config=tf.SiglipVisionConfig(**VISION, num_hidden_layers=2, image_size=16, vision_use_head=False),
        text_config=tf.Qwen2Config(**dict(SMALL, vocab_size=96 + len(ids))), image_token_index=ids["<image>"],
        video_token_index=ids["<|video_pad|>"], image_grid_pinpoints=PINPOINTS, vision_aspect_ratio="anyres_max_2",
        vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=False)
    return tf.LlavaOnevisionForConditionalGeneration(config), "<image>"


def onevision_processor(fast, chat):
    fast.image_token, fast.video_token = "<image>", "<|video_pad|>"
    pictures = tf.LlavaOnevisionImageProcessor(size={"height": 16, "width": 16}, image_grid_pinpoints=PINPOINTS)
    return tf.LlavaOnevisionProcessor(pictures, fast, video_processor=LlavaOnevisionVideoProcessor(), num_image_tokens=16,
                                      vision_feature_select_strategy="full", chat_template=chat, image_token="<image>",
                                      video_token="<|video_pad|>", vision_aspect_ratio="anyres_max_2")


def qwen2(ids):
    config = tf.Qwen2VLConfig(
        vision_config=dict(embed_dim=16, hidden_size=16, depth=2, num_heads=2, mlp_ratio=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2),
        text_config=dict(**SMALL, rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"], tie_word_embeddings=False,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    return tf.Qwen2VLForConditionalGeneration(config), "<|vision_start|><|image_pad|><|vision_end|>"


def qwen2_processor(fast, chat):
    pictures = tf.Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64, max_pixels=24 * 24 * 4)
    return tf.Qwen2VLProcessor(pictures, fast, video_processor=Qwen2VLVideoProcessor(), chat_template=chat)


def pixtral(ids):
    config = tf.LlavaConfig(
        vision_config=tf.PixtralVisionConfig(**VISION, num_hidden_layers=2, image_size=64, hidden_act="silu"),
        text_config=tf.MistralConfig(**dict(SMALL, vocab_size=96 + len(ids)), head_dim=8, sliding_window=None), image_token_index=ids["[IMG]"],
        vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=False)
    return tf.LlavaForConditionalGeneration(config), "[IMG]"


def pixtral_processor(fast, chat):
    pictures = tf.PixtralImageProcessor(patch_size=4, size={"longest_edge": 32})
    return tf.PixtralProcessor(pictures, fast, patch_size=4, spatial_merge_size=1, chat_template=chat)


MORE.update({"qwen3-vl": [], "vipllava": []})


def qwen3(ids):
    config = tf.Qwen3VLConfig(
        vision_config=dict(hidden_size=16, intermediate_size=24, depth=2, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=16, num_position_embeddings=16,
                           deepstack_visual_indexes=[1]),
        text_config=dict(**SMALL, head_dim=8, rope_parameters={
            "rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True, "rope_theta": 10000.0},
            tie_word_embeddings=False),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"], tie_word_embeddings=False,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    return tf.Qwen3VLForConditionalGeneration(config), "<|vision_start|><|image_pad|><|vision_end|>"


def vipllava(ids):
    config = tf.VipLlavaConfig(
        vision_config=tf.CLIPVisionConfig(**VISION, num_hidden_layers=3, image_size=16, projection_dim=16),
        text_config=tf.LlamaConfig(**SMALL), image_token_index=ids["<image>"], image_seq_length=16,
        vision_feature_layers=[-2, -3, 1], tie_word_embeddings=False)
    return tf.VipLlavaForConditionalGeneration(config), "<image>"


def vipllava_processor(fast, chat):
    fast.image_token = "<image>"
    pictures = tf.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    return tf.LlavaProcessor(pictures, fast, patch_size=4, vision_feature_select_strategy="default",
                             chat_template=chat, image_token="<image>", num_additional_image_tokens=1)


def paligemma2(ids):
    config = tf.PaliGemmaConfig(
        vision_config=dict(VISION, model_type="siglip_vision_model", num_hidden_layers=2, image_size=16, projection_dim=16,
                           vision_use_head=False),
        text_config=dict(SMALL, model_type="gemma2", head_dim=8, query_pre_attn_scalar=12, sliding_window=7,
                         attn_logit_softcapping=5.0, final_logit_softcapping=6.0),
        image_token_index=ids["<image>"], projection_dim=16, hidden_size=16)
    return tf.PaliGemmaForConditionalGeneration(config), "<image>"


def paligemma2_processor(fast, chat):
    return paligemma_processor(fast, chat, "paligemma2")


def heat(model):
    """Weights so large that a mistake anywhere shows."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn_like(p)
            p.copy_(0.15 * noise if p.ndim >= 2 else 0.1 * noise if "bias" in name else 1 + 0.2 * noise)


def messages(row, answer):
    parts = ([{"type": "image"}] if row[0] else []) + [{"type": "text", "text": row[1]}]
    said = [{"role": "user", "content": parts}]
    return said + [{"role": "assistant", "content": [{"type": "text", "text": row[2]}]}] * answer


def encode(processor, fast, row, answer):
    if isinstance(processor, tf.PaliGemmaProcessor):
        text = "<image>" + row[1]
    else:
        text = processor.apply_chat_template(messages(row, answer), add_generation_prompt=not answer)
    if row[0]:
        e = processor(text=[text], images=[Image.open(f"{IMAGES}/{row[0]}")], return_tensors="pt")
    else:
        e = fast([text], return_tensors="pt", add_special_tokens=False)
    e.pop("labels", None)
    if not isinstance(processor, tf.PaliGemmaProcessor):
        e.pop("token_type_ids", None)
    if isinstance(processor, tf.Gemma3Processor):
        e["token_type_ids"] = (e["input_ids"] == SPECIAL_ID["<image>"]).long()
    return {k: v.double() if v.is_floating_point() else v for k, v in e.items()}


def generate(model, processor, fast):
    out = []
    for row in ROWS:
        if not row[0] and isinstance(processor, tf.PaliGemmaProcessor):
            continue  # which takes no text alone
        e = encode(processor, fast, row, False)
        with torch.no_grad():
            g = model.generate(**e, max_new_tokens=32, do_sample=False, output_scores=True,
                               eos_token_id=1 << 20, return_dict_in_generate=True)  # none
        two = [s[0].topk(2).values for s in g.scores]
        gap = min(float(t[0] - t[1]) for t in two)
        if gap < 1e-3:
            print(f"two best logits {gap} apart")
            return None
        out.append(g.sequences[0, e["input_ids"].shape[1]:].tolist())
    return out


def train(model, processor, fast):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        total, n = 0.0, 0
        for row in ROWS:
            e = encode(processor, fast, row, True)
            ids = e["input_ids"][0]
            answer = (ids == SPECIAL_ID["<bot>"]).nonzero()[-1].item() + 1
            logits = model(**e).logits[0]
            loss = torch.nn.functional.cross_entropy(logits[answer - 1:-1], ids[answer:],
                                                     reduction="sum")
            loss.backward()
            total += loss.item()
            n += len(ids) - answer
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= n
        losses.append(total / n)
        opt.step()
    return losses


def main():
    global SPECIAL_ID
    torch.set_default_dtype(torch.float64)
    for name, make, pack in (("llava", llava, llava_processor), ("qwen2.5-vl", qwen, qwen_processor),
                             ("paligemma", paligemma, paligemma_processor),
                             ("internvl", internvl, internvl_processor), ("gemma3", gemma, gemma_processor),
                             ("qwen3-vl-moe", qwen_moe, qwen_moe_processor),
                             ("qwen3.5-vl", qwen35, qwen_moe_processor),
                             ("qwen3.5-vl-moe", qwen35_moe, qwen_moe_processor),
                             ("idefics3", idefics, idefics_processor), ("mistral3", mistral, mistral_processor),
                             ("llava-next", llava_next, llava_next_processor), ("llava-onevision", onevision, onevision_processor),
                             ("qwen2-vl", qwen2, qwen2_processor), ("pixtral", pixtral, pixtral_processor),
                             ("qwen3-vl", qwen3, qwen_moe_processor), ("vipllava", vipllava, vipllava_processor),
                             ("paligemma2", paligemma2, paligemma2_processor)):
        if ONLY and name not in ONLY:
            continue
        more = MORE.get(name, [])
        tok = tokenizer(more)
        SPECIAL_ID = {s: tok.token_to_id(s) for s in SPECIAL + more}
        fast = tf.PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|endoftext|>",
                                          pad_token="<|endoftext|>",
                                          **({"extra_special_tokens": NAMED[name]} if name in NAMED
                                             else {"additional_special_tokens": SPECIAL[1:] + more}))
        out, end, said, seed = f"{OUT}/{name}", SPECIAL_ID["<|endoftext|>"], None, SEEDS.get(name, 3)
        os.makedirs(out, exist_ok=True)
        while not said:  # the first seed whose generation does not hang on a rounding
            torch.manual_seed(seed)
            seed += 1
            model, mark = make(SPECIAL_ID)
            heat(model)
            model.generation_config = tf.GenerationConfig(eos_token_id=end, pad_token_id=end)
            model.float().save_pretrained(out)
            model.double()
            if not name.startswith("paligemma"):
                fast.chat_template = template(mark)
            processor = pack(fast, fast.chat_template)
            said = generate(model.eval(), processor, fast)
        processor.save_pretrained(out)
        with open(f"{out}/generated", "w") as f:
            f.writelines(" ".join(map(str, tokens)) + "\n" for tokens in said)
        os.chmod(f"{out}/model.safetensors", 0o644)
        if name in ("paligemma", "paligemma2", "internvl"):
            continue
        model.train()
        # its scans are f32 otherwise, and twenty steps tell
        whole = Double(type(model)) if name == "qwen3.5-vl" else contextlib.nullcontext()
        with whole, open(f"{out}/losses", "w") as f:
            f.writelines(f"{loss:.9f}\n" for loss in train(model, processor, fast))
    with open(f"{OUT}/train.json", "w") as f:
        json.dump([({"image": r[0]} if r[0] else {}) |
                   {"conversations": [{"from": "human", "value": ("<image>\n" if r[0] else "") + r[1]},
                                      {"from": "gpt", "value": r[2]}]} for r in ROWS], f, indent=0)
    with open(f"{OUT}/prompts.jsonl", "w") as f:
        for i, r in enumerate(ROWS):
            parts = messages(r, False)[0]["content"]
            if r[0]:
                parts[0]["image"] = r[0]
            f.write(json.dumps({"id": f"r{i}", "messages": [{"role": "user", "content": parts}]}) + "\n")
    with open(f"{OUT}/paligemma/prompts.jsonl", "w") as f:
        for i, r in enumerate(ROWS):
            if r[0]:
                f.write(json.dumps({"id": f"r{i}", "images": [r[0]], "prompt": "<image>" + r[1]}) + "\n")


main()
