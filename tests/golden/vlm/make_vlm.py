#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden directories of models that see, one folder per class beside this script:

    make_vlm.py [folder ...]

A development tool (torch, transformers 5.23, safetensors, numpy); the build, the program and `make check` never need it.

    config.json, model.safetensors   a tiny model as its class is published, f32
    expected.safetensors             input_ids i64 [rows] of documents behind each other, cu_seqlens i64 [docs + 1], targets i64 [rows]
                                     (-1: none), prefix i64 [docs] where the class has one; pixels f32 [patches, K], tiles i64 [n, 2]
                                     (rows and columns of patches), pictures i64 [n, 6] (struct lf_sight_picture), merge i64 [1];
                                     logits f64 [rows, V], loss f64 [1], grad.<name> f32
        metadata                     format lf-expected-vlm-1, family, source, bf16_rms (the reference's own bf16 run against f64)

Everything is computed in f64, eagerly; what transformers computes in f32 whatever the model (norms, rotary tables, softmax) is f64 too.
Weights are hot (scaled by fan-in, random norms and biases), so that every switch shows.
"""
import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import save_file
from transformers import modeling_rope_utils

HERE = os.path.dirname(os.path.abspath(__file__))
assert tf.__version__.startswith("5.23."), "these files are made with transformers 5.23"
IMAGE, VOCAB = 60, 64

TEXT = dict(hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
            max_position_embeddings=128, rms_norm_eps=1e-5, vocab_size=VOCAB)
LLAMA = dict(TEXT, model_type="llama", rope_theta=100.0)
QWEN2 = dict(TEXT, model_type="qwen2", rope_theta=100.0, use_sliding_window=False)
QWEN3 = dict(TEXT, model_type="qwen3", rope_theta=100.0, head_dim=8, use_sliding_window=False)
VIT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, patch_size=4, image_size=12)
CLIP = dict(VIT, model_type="clip_vision_model", projection_dim=16, vocab_size=100)
SIGLIP = dict(VIT, model_type="siglip_vision_model", vision_use_head=False)
INTERN = dict(VIT, model_type="internvl_vision", num_hidden_layers=2, image_size=[16, 16], patch_size=[4, 4], norm_type="layer_norm",
              attention_bias=True, use_qk_norm=False, layer_norm_eps=1e-6, hidden_act="gelu", use_mean_pooling=True)
QWEN_VIT = dict(depth=2, num_heads=2, in_chans=3, patch_size=2, spatial_merge_size=2, temporal_patch_size=2)
MISTRAL = dict(LLAMA, model_type="mistral", sliding_window=None, head_dim=8)
PIXTRAL = dict(VIT, model_type="pixtral", num_hidden_layers=2, hidden_act="silu", head_dim=8, image_size=40, rope_theta=100.0)
PINPOINTS = [[12, 24], [24, 12], [24, 24], [12, 36], [36, 12]]
QWEN_OUTER = dict(image_token_id=IMAGE, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63)
M_TEXT = dict(TEXT, hidden_act="silu", rope_theta=100.0, attention_dropout=0.0)


def mrope(section, **more):
    return dict(rope_scaling=dict(mrope_section=section, **more))


# As published: attention after scans, of which a part of each head turns; an encoder without taps.
# rms_norm_eps keeps what a scan gives of next to nothing, as at a first token, from making gradients that f32 has no digits for.
DELTA = dict({k: v for k, v in M_TEXT.items() if k not in ("intermediate_size", "rope_theta")}, rms_norm_eps=3e-5, head_dim=32,
             num_attention_heads=2, attention_bias=False, attn_output_gate=True, layer_types=["linear_attention", "full_attention"],
             full_attention_interval=4, linear_conv_kernel_dim=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
             linear_value_head_dim=5, mamba_ssm_dtype="float32", mlp_only_layers=[], mtp_num_hidden_layers=1,
             mtp_use_dedicated_embeddings=False, rope_parameters=dict(
                 mrope_interleaved=True, mrope_section=[4, 2, 2], partial_rotary_factor=0.5, rope_theta=100.0, rope_type="default"))
QWEN35_VIT = dict({k: v for k, v in QWEN_VIT.items() if k != "in_chans"}, in_channels=3, hidden_size=16, intermediate_size=24,
                  out_hidden_size=24, num_position_embeddings=16, deepstack_visual_indexes=[], hidden_act="gelu_pytorch_tanh")


CLASSES = {
    "llava": dict(architectures=["LlavaForConditionalGeneration"], model_type="llava", image_token_index=IMAGE, ignore_index=-100,
                  projector_hidden_act="gelu", vision_feature_layer=-2, vision_feature_select_strategy="default", text_config=LLAMA,
                  vision_config=CLIP),
    "llava-full": dict(architectures=["LlavaForConditionalGeneration"], model_type="llava", image_token_index=IMAGE,
                       vision_feature_layer=-2, vision_feature_select_strategy="full", text_config=LLAMA, vision_config=CLIP),
    "llava-layers": dict(architectures=["LlavaForConditionalGeneration"], model_type="llava", image_token_index=IMAGE,
                         vision_feature_layer=[3, 0], vision_feature_select_strategy="full", text_config=LLAMA, vision_config=CLIP),
    "vipllava": dict(architectures=["VipLlavaForConditionalGeneration"], model_type="vipllava", image_token_index=IMAGE,
                     ignore_index=-100, projector_hidden_act="gelu", projector_layernorm_eps=1e-5, vision_feature_layers=[-2, -3, 2],
                     vocab_size=VOCAB, text_config=LLAMA, vision_config=CLIP),
    "llava-siglip": dict(architectures=["LlavaForConditionalGeneration"], model_type="llava", image_token_index=IMAGE,
                         vision_feature_layer=-1, vision_feature_select_strategy="full", multimodal_projector_bias=False,
                         tie_word_embeddings=True, text_config=dict(QWEN2, tie_word_embeddings=True), vision_config=SIGLIP),
    "llava-next": dict(architectures=["LlavaNextForConditionalGeneration"], model_type="llava_next", image_token_index=IMAGE,
                       image_grid_pinpoints=PINPOINTS, vision_feature_layer=-2, vision_feature_select_strategy="default",
                       text_config=dict(LLAMA, model_type="mistral", sliding_window=None), vision_config=CLIP),
    "llava-onevision": dict(architectures=["LlavaOnevisionForConditionalGeneration"], model_type="llava_onevision", image_token_index=IMAGE,
                            video_token_index=61, image_grid_pinpoints=PINPOINTS, vision_aspect_ratio="anyres_max_2",
                            vision_feature_layer=-1, vision_feature_select_strategy="full", text_config=QWEN2, vision_config=SIGLIP),
    "qwen2-vl": dict(M_TEXT, **QWEN_OUTER, **mrope([1, 1, 2], type="mrope"), architectures=["Qwen2VLForConditionalGeneration"],
                     model_type="qwen2_vl", use_sliding_window=False, sliding_window=128, max_window_layers=2, tie_word_embeddings=False,
                     vision_config=dict(QWEN_VIT, embed_dim=16, mlp_ratio=2, hidden_size=24, spatial_patch_size=2)),
    "qwen2.5-vl": dict(QWEN_OUTER, architectures=["Qwen2_5_VLForConditionalGeneration"], model_type="qwen2_5_vl", tie_word_embeddings=True,
                       text_config=dict(M_TEXT, **mrope([2, 1, 1], rope_type="default"), model_type="qwen2_5_vl_text",
                                        use_sliding_window=False),
                       vision_config=dict(QWEN_VIT, depth=3, hidden_size=16, intermediate_size=24, out_hidden_size=24, window_size=8,
                                          fullatt_block_indexes=[1], tokens_per_second=2, hidden_act="silu",
                                          model_type="qwen2_5_vl")),
    "qwen3-vl": dict(QWEN_OUTER, architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl", tie_word_embeddings=False,
                     text_config=dict(M_TEXT, **mrope([4, 2, 2], rope_type="default", mrope_interleaved=True), model_type="qwen3_vl_text",
                                      head_dim=16, num_attention_heads=2, attention_bias=False),
                     vision_config=dict({k: v for k, v in QWEN_VIT.items() if k != "in_chans"}, in_channels=3, depth=3, hidden_size=16,
                                        intermediate_size=24, out_hidden_size=24, num_position_embeddings=16,
                                        deepstack_visual_indexes=[0, 2], hidden_act="gelu_pytorch_tanh", model_type="qwen3_vl")),
    "qwen3-vl-moe": dict(QWEN_OUTER, architectures=["Qwen3VLMoeForConditionalGeneration"], model_type="qwen3_vl_moe", tie_word_embeddings=False,
                         text_config=dict(M_TEXT, **mrope([4, 2, 2], rope_type="default", mrope_interleaved=True), attention_bias=False,
                                          model_type="qwen3_vl_moe_text", head_dim=16, num_attention_heads=2, num_experts=3,
                                          num_experts_per_tok=2, moe_intermediate_size=10, decoder_sparse_step=1, mlp_only_layers=[],
                                          norm_topk_prob=True),
                         vision_config=dict({k: v for k, v in QWEN_VIT.items() if k != "in_chans"}, in_channels=3, depth=2, hidden_size=16,
                                            intermediate_size=24, out_hidden_size=24, num_position_embeddings=16,
                                            deepstack_visual_indexes=[0], hidden_act="gelu_pytorch_tanh", model_type="qwen3_vl_moe")),
    "qwen3.5-vl": dict(QWEN_OUTER, architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", tie_word_embeddings=True,
                       text_config=dict(DELTA, model_type="qwen3_5_text", intermediate_size=32, tie_word_embeddings=True),
                       vision_config=dict(QWEN35_VIT, model_type="qwen3_5")),
    "qwen3.5-vl-moe": dict(QWEN_OUTER, architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe",
                           tie_word_embeddings=False,
                           text_config=dict(DELTA, model_type="qwen3_5_moe_text", num_experts=4, num_experts_per_tok=2,
                                            moe_intermediate_size=10, shared_expert_intermediate_size=14, output_router_logits=False,
                                            router_aux_loss_coef=0.001),
                           vision_config=dict(QWEN35_VIT, model_type="qwen3_5_moe")),
    "idefics3": dict(architectures=["Idefics3ForConditionalGeneration"], model_type="idefics3", image_token_id=IMAGE, scale_factor=2,
                     tie_word_embeddings=False, vocab_size=VOCAB,
                     text_config=dict(LLAMA, is_llama_config=True, neftune_noise_alpha=0.0, pixel_shuffle_factor=2, qk_layer_norms=False,
                                      rope_interleaved=False, use_resampler=False),
                     vision_config=dict(VIT, model_type="idefics3", num_hidden_layers=2, image_size=20, max_image_size={"longest_edge": 24},
                                        size={"longest_edge": 96}, use_base_siglip=False, tie_word_embeddings=False)),
    "pixtral": dict(architectures=["LlavaForConditionalGeneration"], model_type="llava", image_token_index=IMAGE, ignore_index=-100,
                    projector_hidden_act="gelu", vision_feature_layer=-1, vision_feature_select_strategy="full", text_config=MISTRAL,
                    vision_config=dict(PIXTRAL, is_composition=True, tie_word_embeddings=False)),
    "mistral3": dict(architectures=["Mistral3ForConditionalGeneration"], model_type="mistral3", image_token_index=IMAGE,
                     multimodal_projector_bias=False, projector_hidden_act="gelu", spatial_merge_size=2, vision_feature_layer=-1,
                     tie_word_embeddings=False, text_config=MISTRAL, vision_config=dict(PIXTRAL, hidden_act="gelu")),
    "internvl": dict(architectures=["InternVLForConditionalGeneration"], model_type="internvl", image_token_id=IMAGE, image_seq_length=4,
                     downsample_ratio=0.5, projector_hidden_act="gelu", vision_feature_layer=-1, vision_feature_select_strategy="default",
                     tie_word_embeddings=False, text_config=QWEN2, vision_config=INTERN),
    "internvl-rms": dict(architectures=["InternVLForConditionalGeneration"], model_type="internvl", image_token_id=IMAGE,
                         downsample_ratio=0.5, vision_feature_layer=-1, vision_feature_select_strategy="default",
                         tie_word_embeddings=False, text_config=QWEN3,
                         vision_config=dict(INTERN, norm_type="rms_norm", use_qk_norm=True, attention_bias=False)),
    "gemma3": dict(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", image_token_index=IMAGE, boi_token_index=61,
                   eoi_token_index=62, mm_tokens_per_image=9, initializer_range=0.02,
                   text_config=dict({k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, model_type="gemma3_text", head_dim=8,
                                    query_pre_attn_scalar=12, sliding_window=7, sliding_window_pattern=2, rope_theta=1000.0,
                                    rope_local_base_freq=100.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
                   vision_config=dict(SIGLIP, image_size=24, patch_size=4)),
    "paligemma2": dict(architectures=["PaliGemmaForConditionalGeneration"], model_type="paligemma", image_token_index=IMAGE,
                       projection_dim=24, vocab_size=VOCAB,
                       text_config=dict({k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, model_type="gemma2", head_dim=8,
                                        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=7,
                                        attn_logit_softcapping=5.0, final_logit_softcapping=6.0),
                       vision_config=dict(SIGLIP, projection_dim=24)),
    "paligemma": dict(architectures=["PaliGemmaForConditionalGeneration"], model_type="paligemma", image_token_index=IMAGE,
                      projection_dim=24, hidden_size=2048, ignore_index=-100, vocab_size=VOCAB,
                      text_config=dict({k: v for k, v in TEXT.items() if k != "rms_norm_eps"}, model_type="gemma", head_dim=8,
                                       num_image_tokens=9),
                      vision_config=dict(SIGLIP, projection_dim=24, num_image_tokens=9, projector_hidden_act="gelu_fast")),
}
# Models in the form of their authors, which is code beside the weights: computed by these classes, written as chat() says.
CHAT = {"internvl-chat": "internvl", "internvl-chat-internlm2": "internvl-rms"}
for _name, _kin in CHAT.items():
    CLASSES[_name] = dict(CLASSES[_kin], tie_word_embeddings=False)
CLASSES["internvl-chat-internlm2"]["text_config"] = LLAMA
# How names began in files before transformers 5, which is how most models are published.
LLAVA_NAMES = [("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."),
               ("model.multi_modal_projector.", "multi_modal_projector."), ("model.image_newline", "image_newline")]
NESTED = LLAVA_NAMES + [("model.vision_tower.", "vision_tower.vision_model.")]
OLD = {"llava": NESTED, "gemma3": NESTED, "llava_next": NESTED, "llava_onevision": NESTED, "vipllava": NESTED, "paligemma": NESTED,
       "internvl": LLAVA_NAMES + [("model.vision_tower.", "vision_tower.")],
       "pixtral": LLAVA_NAMES + [("model.vision_tower.", "vision_tower.")],
       "mistral3": LLAVA_NAMES + [("model.vision_tower.", "vision_tower.")], "idefics3": [], "qwen3_vl_moe": [],
       "qwen2_vl": [("model.visual.", "visual."), ("model.language_model.", "model.")], "qwen2_5_vl": [], "qwen3_vl": [],
       "qwen3_5": [], "qwen3_5_moe": []}


class Double:
    """Inside, f64 is the default and transformers' explicit f32 is f64 too."""

    class Torch:
        def __getattr__(self, name):
            return torch.float64 if name in ("float32", "float") else getattr(torch, name)

    def __enter__(self):
        self.float = torch.Tensor.float
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        self.modules = [m for n, m in list(sys.modules.items())
                        if n.startswith(("transformers.models.", "transformers.vision", "transformers.mod")) and getattr(m, "torch", None) is torch]
        assert modeling_rope_utils in self.modules
        for m in self.modules:
            m.torch = Double.Torch()

    def __exit__(self, *args):
        torch.Tensor.float = self.float
        torch.set_default_dtype(torch.float32)
        for m in self.modules:
            m.torch = torch


def old(folder, kind, name):
    for new, was in OLD[folder if folder in OLD else kind]:
        if name.startswith(new):
            return was + name[len(new):]
    return name


def stored(kind, name, tensor):
    """As files have it: the experts of Qwen3-VL are published turned."""
    turned = kind == "qwen3_vl_moe" and ".experts." in name
    return (tensor.transpose(1, 2) if turned else tensor).float().contiguous()


CHAT_NAMES = [
    ("model.vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"),
    ("model.vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"),
    ("model.vision_tower.embeddings.patch_embeddings.projection.", "vision_model.embeddings.patch_embedding."),
    ("model.vision_tower.encoder.layer.", "vision_model.encoder.layers."), ("attention.projection_layer.", "attn.proj."),
    ("attention.q_norm.", "attn.q_norm."), ("attention.k_norm.", "attn.k_norm."), ("lambda_", "ls"), ("layernorm_before.", "norm1."),
    ("layernorm_after.", "norm2."), ("model.multi_modal_projector.layer_norm.", "mlp1.0."),
    ("model.multi_modal_projector.linear_1.", "mlp1.1."), ("model.multi_modal_projector.linear_2.", "mlp1.3."),
    ("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")]
INTERNLM2_NAMES = [
    ("embed_tokens.", "tok_embeddings."), ("input_layernorm.", "attention_norm."), ("self_attn.o_proj.", "attention.wo."),
    ("post_attention_layernorm.", "ffn_norm."), ("mlp.gate_proj.", "feed_forward.w1."), ("mlp.up_proj.", "feed_forward.w3."),
    ("mlp.down_proj.", "feed_forward.w2."), ("language_model.lm_head.", "language_model.output.")]


def renamed(name, table):
    for a, b in table:
        name = name.replace(a, b)
    return name


def chat(folder, tensors):
    """As InternVLChatModel has them: queries, keys and values of the encoder in one matrix, those of InternLM2 by groups."""
    out, intern = {}, folder.endswith("internlm2")
    for name, x in tensors.items():
        if ".attention.q_proj." in name:
            whole = torch.cat([tensors[name.replace("q_proj", p + "_proj")] for p in "qkv"])
            out[renamed(name, CHAT_NAMES).replace("attention.q_proj", "attn.qkv")] = whole
        elif intern and ".self_attn.q_proj." in name:
            q, k, v = (tensors[name.replace("q_proj", p + "_proj")] for p in "qkv")
            g, d = LLAMA["num_key_value_heads"], q.shape[0] // LLAMA["num_attention_heads"]
            parts = [t.reshape(g, -1, d, t.shape[1]) for t in (q, k, v)]
            whole = torch.cat(parts, 1).reshape(-1, q.shape[1])
            out[renamed(name, CHAT_NAMES).replace("self_attn.q_proj", "attention.wqkv")] = whole
        elif not any(p in name for p in (".attention.k_proj", ".attention.v_proj")) and \
                not (intern and (".self_attn.k_proj" in name or ".self_attn.v_proj" in name)):
            now = renamed(name, CHAT_NAMES)
            out[renamed(now, INTERNLM2_NAMES) if intern and "vision_model" not in now else now] = x
    return {n: t.contiguous() for n, t in out.items()}


def chat_config(folder, c):
    """The keys that published files have."""
    v, intern = c["vision_config"], folder.endswith("internlm2")
    text = dict(c["text_config"], tie_word_embeddings=False, attn_implementation="eager", torchscript=False, pruned_heads={})
    if intern:
        text.update(model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=False)
    vision = {k: v[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "norm_type",
                                "layer_norm_eps", "hidden_act")}
    vision.update(architectures=["InternVisionModel"], model_type="intern_vit_6b", image_size=16, patch_size=4, num_channels=3,
                  qkv_bias=v["attention_bias"], qk_normalization=v["use_qk_norm"], attention_dropout=0.0, dropout=0.0,
                  drop_path_rate=0.1, initializer_factor=1.0, initializer_range=0.02, use_bfloat16=True, use_flash_attn=True)
    return dict(architectures=["InternVLChatModel"], auto_map={"AutoModel": "modeling_internvl_chat.InternVLChatModel"},
                model_type="internvl_chat", downsample_ratio=0.5, dynamic_image_size=True, force_image_size=16, max_dynamic_patch=12,
                min_dynamic_patch=1, use_thumbnail=True, pad2square=False, ps_version="v2", select_layer=-1, template="internvl2_5",
                use_backbone_lora=0, use_llm_lora=0, llm_config=text, vision_config=vision)


def heat(model, seed):
    rng = np.random.default_rng(seed)
    owner = {n + ("." if n else "") + p: m for n, m in model.named_modules() for p, _ in m.named_parameters(recurse=False)}
    with torch.no_grad():
        for name, p in model.named_parameters():
            kind, shape = type(owner[name]).__name__, tuple(p.shape)
            if "Norm" in kind:
                offset = kind.startswith("Gemma") or kind in ("Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm")  # that of scans is none
                x = rng.normal(0.0 if name.endswith("bias") or offset else 1.0, 0.3, shape)
            elif p.dim() == 1:
                x = rng.normal(0.0, 0.5, shape)
            elif "Embedding" in kind and "patch" not in name:
                x = rng.normal(0.0, 0.7, shape)
            else:
                gain = 1.6 if any(s in name for s in ("q_proj", "k_proj", "qkv")) else 1.1
                fan = shape[-1] if "experts" in name else p[0].numel()
                x = rng.normal(0.0, gain / np.sqrt(fan), shape)
            p.copy_(torch.from_numpy(x.astype(np.float32)).to(p.dtype))


def rows_of(image, p):
    """Patches of a square tile, row by row: (channel, row, column)."""
    return F.unfold(image[None], p, stride=p)[0].T


def anyres(rng, sizes, side):
    """Tiles of pictures, the whole one first."""
    from transformers.image_processing_utils import select_best_resolution
    out = []
    for h, w in sizes:
        gh, gw = (x // side for x in select_best_resolution((h, w), PINPOINTS))
        out.append((h, w, gh, gw, torch.from_numpy(rng.normal(size=(1 + gh * gw, 3, side, side)).astype(np.float32)).double()))
    return out


class Documents:
    """Two documents or three, of one and of two pictures; what goes into the reference and what into expected.safetensors."""

    def __init__(self, name, c):
        self.rng = np.random.default_rng(11)
        self.kind, self.c, self.docs, self.tiles, self.pictures, self.pixels = c["model_type"], c, [], [], [], []
        self.rope = c["vision_config"]["model_type"] == "pixtral"
        self.merge = c.get("spatial_merge_size", c.get("scale_factor", 2 if "qwen" in self.kind else 1))
        sizes = [[(20, 9)], [(11, 24), (26, 22)]] if "pinpoints" in str(c) else [[(6, 10)], [(4, 4), (6, 4)]]
        if self.kind.startswith("qwen3_5"):  # past the first chunk of a scan, within a picture
            sizes = [[(14, 18)], [(4, 4), (6, 4)]]
        for pictures in [[(3, 5)], [(2, 4), (5, 3)]] if self.rope and self.merge == 1 else sizes:
            self.document(pictures)
        if self.kind == "llava_onevision":  # of several pictures of one sample each is one tile
            self.document([(14, 30), (12, 12)], True)

    def document(self, pictures, together=False):
        args = {}
        if self.kind in ("llava_next", "llava_onevision"):
            parts = [(h, w, 0 if together else gh, 0 if together else gw, t[:1] if together else t)
                     for h, w, gh, gw, t in anyres(self.rng, pictures, 12)]
            most = max(len(p[4]) for p in parts)
            args["pixel_values"] = torch.stack([F.pad(p[4], (0, 0, 0, 0, 0, 0, 0, most - len(p[4]))) for p in parts])
            args["image_sizes"] = torch.tensor([p[:2] for p in parts])
            if self.kind == "llava_onevision":
                args["batch_num_images"] = torch.tensor([len(parts)] if together else [1] * len(parts))
            for h, w, gh, gw, t in parts:
                self.pictures.append((len(self.tiles), len(t), gw, gh, w, h))
                for one in t:
                    self.tile(one, 3)
        elif "qwen" in self.kind:
            args["image_grid_thw"] = torch.tensor([(1, h, w) for h, w in pictures])
            x = torch.from_numpy(self.rng.normal(size=(sum(h * w for h, w in pictures), 24)).astype(np.float32)).double()
            args["pixel_values"] = x
            self.pixels.append(x)
            for h, w in pictures:
                self.pictures.append((len(self.tiles), 1, 0, 0, 2 * w, 2 * h))
                self.tiles.append((h, w))
        elif self.rope:  # pictures of any grid, padded to one size
            args["image_sizes"] = torch.tensor([(4 * h, 4 * w) for h, w in pictures])
            most = args["image_sizes"].max(0).values
            x = [torch.from_numpy(self.rng.normal(size=(3, 4 * h, 4 * w)).astype(np.float32)).double() for h, w in pictures]
            args["pixel_values"] = torch.stack([F.pad(i, (0, int(most[1]) - i.shape[2], 0, int(most[0]) - i.shape[1])) for i in x])
            for one, (h, w) in zip(x, pictures):
                self.pictures.append((len(self.tiles), 1, 0, 0, 4 * w, 4 * h))
                self.tile(one, h, w)
        elif self.kind == "idefics3":  # one tile, or three and all of it; their grid is not that of the table
            side = 24 if len(pictures) == 1 else 16
            n = [4 if h == w else 1 for h, w in pictures]
            args["pixel_values"] = torch.from_numpy(self.rng.normal(size=(1, sum(n), 3, side, side)).astype(np.float32)).double()
            at = 0
            for k in n:
                self.pictures.append((len(self.tiles), k, 0, 0, side, side))
                for one in args["pixel_values"][0, at:at + k]:
                    self.tile(one, side // 4)
                at += k
        else:
            side = {"internvl": 16, "gemma3": 24}.get(self.kind, 12)
            args["pixel_values"] = torch.from_numpy(self.rng.normal(size=(len(pictures), 3, side, side)).astype(np.float32)).double()
            for one in args["pixel_values"]:
                self.pictures.append((len(self.tiles), 1, 0, 0, side, side))
                self.tile(one, side // 4)
        self.docs.append((pictures, args))

    def tile(self, image, h, w=None):
        w = w or h
        m = self.merge
        rows = rows_of(image, 4).reshape(h // m, m, w // m, m, -1).transpose(1, 2)  # in blocks of m x m
        self.pixels.append(rows.reshape(h * w, -1))
        self.tiles.append((h, w))

    def text(self, n):
        return self.rng.integers(1, 50, n)

    def finish(self, model):
        """Tokens, once the model has said how many rows a picture has."""
        self.ids = []
        for pictures, args in self.docs:
            counts = self.count(model, args)
            assert len(counts) == len(pictures)
            ids = list(self.text(4))
            for k, size in zip(counts, pictures):
                for run in self.runs(k, size):
                    ids += [IMAGE] * run + [61] * (run < k)
                ids += list(self.text(3))
            self.ids.append(torch.tensor(ids + list(self.text(6))))

    def runs(self, k, size):
        """How the k tokens of a picture stand, with a token behind each run: by rows, or by tiles."""
        if self.rope:
            return [size[1] // self.merge] * (size[0] // self.merge)
        return [k // 4] * 4 if self.kind == "idefics3" and size[0] == size[1] else [k]

    def count(self, model, args):
        if "image_grid_thw" in args:
            return [int(g.prod()) // 4 for g in args["image_grid_thw"]]
        if self.kind in ("llava_next", "llava_onevision"):
            with torch.no_grad():
                return [len(f) for f in model.model.get_image_features(**args, return_dict=True).pooler_output]
        if self.rope:
            return [int(s.prod()) // (4 * self.merge) ** 2 for s in args["image_sizes"]]
        if self.kind == "idefics3":
            n, each = args["pixel_values"].shape[1], (args["pixel_values"].shape[-1] // 8) ** 2
            return [n * each] if n == 1 else [4 * each, each]
        whole = self.c["vision_config"] is CLIP and self.c.get("vision_feature_select_strategy") == "full"  # with the class token
        return [4 if self.kind == "internvl" else 9 + whole] * len(args["pixel_values"])

    def prefix(self, ids):
        return len(ids) - 5

    def targets(self, ids):
        t = torch.cat([ids[1:], torch.tensor([-1])])
        t[t == IMAGE] = -1
        if self.kind == "paligemma":
            t[:self.prefix(ids) - 1] = -1
        return t

    def run(self, model, dtype):
        logits = []
        for ids, (_, args) in zip(self.ids, self.docs):
            a = {k: v.to(dtype) if k == "pixel_values" else v for k, v in args.items()}
            if "qwen" in self.kind:
                a["mm_token_type_ids"] = (ids == IMAGE).long()[None]
            if self.kind == "gemma3":
                a["token_type_ids"] = (ids == IMAGE).long()[None]
            if self.kind == "paligemma":
                a["token_type_ids"] = (torch.arange(len(ids)) >= self.prefix(ids)).long()[None]
            logits.append(model(input_ids=ids[None], use_cache=False, **a).logits[0])
        return torch.cat(logits)

    def loss(self, logits):
        t = torch.cat([self.targets(i) for i in self.ids])
        return F.cross_entropy(logits[t >= 0], t[t >= 0])

    def tensors(self):
        out = {"input_ids": torch.cat(self.ids), "targets": torch.cat([self.targets(i) for i in self.ids]),
               "cu_seqlens": torch.tensor(np.cumsum([0] + [len(i) for i in self.ids])), "pixels": torch.cat(self.pixels).float(),
               "tiles": torch.tensor(self.tiles), "pictures": torch.tensor(self.pictures), "merge": torch.tensor([self.merge])}
        if self.kind == "paligemma":
            out["prefix"] = torch.tensor([self.prefix(i) for i in self.ids])
        return out


def one(name):
    c, folder = CLASSES[name], os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(chat_config(name, c) if name in CHAT else c, f, indent=2, sort_keys=True)
        f.write("\n")
    if name in CHAT:  # the one place that says which token stands for pictures
        with open(os.path.join(folder, "added_tokens.json"), "w") as f:
            json.dump({"<IMG_CONTEXT>": IMAGE, "<img>": IMAGE + 1}, f)
            f.write("\n")
    cls = getattr(tf, c["architectures"][0])

    def config():
        if name in CHAT:
            with tempfile.TemporaryDirectory() as tmp:
                json.dump(c, open(os.path.join(tmp, "config.json"), "w"))
                return tf.AutoConfig.from_pretrained(tmp, attn_implementation="eager")
        return tf.AutoConfig.from_pretrained(folder, attn_implementation="eager", experts_implementation="eager")

    cls(config())  # all modules are there now
    with Double():
        torch.manual_seed(0)
        model = cls(config()).double().eval()
        heat(model, 7)
        d = Documents(name, c)
        d.finish(model)
        logits = d.run(model, torch.float64)
        loss = d.loss(logits)
        loss.backward()
    assert logits.dtype == torch.float64
    logits, loss = logits.detach(), loss.detach()
    params = dict(model.named_parameters())
    kind = c["model_type"]
    file_of = (lambda t: chat(name, t)) if name in CHAT else (lambda t: {old(name, kind, n): x for n, x in t.items()})
    save_file(file_of({n: stored(kind, n, p.detach()) for n, p in params.items()}), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    def again(dtype):
        if name in CHAT:
            m = cls(config()).eval()
            m.load_state_dict({n: p.float() for n, p in model.state_dict().items()})
            m = m.to(dtype)
        else:
            m = cls.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
        with torch.no_grad():
            return d.run(m, dtype).double()

    off = float((again(torch.float32) - logits).abs().max() / logits.abs().max())
    assert off < 1e-5, "%s: the reference in f32, loaded from the directory, is off by %g" % (name, off)
    rms16 = float((again(torch.bfloat16) - logits).pow(2).mean().sqrt())
    out = d.tensors()
    out.update(logits=logits.contiguous(), loss=loss.reshape(1))
    # A parameter that the loss does not reach has no gradient in PyTorch; a gradient of zeros says the same.
    grads = file_of({n: stored(kind, n, torch.zeros_like(p) if p.grad is None else p.grad) for n, p in params.items()})
    out.update({"grad." + n: x for n, x in grads.items()})
    save_file(out, os.path.join(folder, "expected.safetensors"), metadata={
        "format": "lf-expected-vlm-1", "family": name, "source": "transformers %s, torch %s" % (tf.__version__, torch.__version__),
        "bf16_rms": "%.6g" % rms16})
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print("%-16s params %6d rows %d loss %.6f f32 %.1e bf16 rms %.2e logits std %.2f  %4d kB" % (
        name, sum(p.numel() for p in params.values()), len(logits), loss.item(), off, rms16, float(logits.std()), size // 1024))
    return size


def saved():
    """saved.json: what transformers makes of each config.json."""
    out = {}
    for name in (n for n in CLASSES if n not in CHAT):
        with tempfile.TemporaryDirectory() as tmp:
            tf.AutoConfig.from_pretrained(os.path.join(HERE, name)).save_pretrained(tmp)
            out[name] = json.load(open(os.path.join(tmp, "config.json")))
    with open(os.path.join(HERE, "saved.json"), "w") as f:
        json.dump(out, f, indent=1, sort_keys=True)
        f.write("\n")


def main():
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    print("%d kB in all" % (sum(one(n) for n in sys.argv[1:] or CLASSES) // 1024))
    saved()


if __name__ == "__main__":
    main()
