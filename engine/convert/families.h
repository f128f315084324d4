/* SPDX-License-Identifier: Apache-2.0
 *
 * Every family of families_*.c; families.c lists them. A new family needs its keys and rows in a
 * families_*.c, a line here, a line in families.c, and a directory of golden files
 * (tests/golden/families).
 */
#ifndef LF_CONVERT_FAMILIES_H
#define LF_CONVERT_FAMILIES_H

#include "engine/convert/hf.h"

extern const struct lf_hf_family lf_hf_gpt2;
extern const struct lf_hf_family lf_hf_neox, lf_hf_gptj, lf_hf_bloom, lf_hf_codegen, lf_hf_mpt;
extern const struct lf_hf_family lf_hf_opt;
extern const struct lf_hf_family lf_hf_bert, lf_hf_roberta, lf_hf_xlm_roberta, lf_hf_camembert,
    lf_hf_distilbert, lf_hf_modernbert, lf_hf_electra;
/* families_seq2seq.c */
extern const struct lf_hf_family lf_hf_t5, lf_hf_mt5, lf_hf_umt5, lf_hf_bart;
extern const struct lf_hf_family lf_hf_falcon;
extern const struct lf_hf_family lf_hf_bigcode, lf_hf_starcoder2;
extern const struct lf_hf_family lf_hf_phi, lf_hf_phi3;
extern const struct lf_hf_family lf_hf_gemma, lf_hf_gemma2, lf_hf_gemma3, lf_hf_gemma3n,
    lf_hf_gemma4, lf_hf_gemma4_unified;
extern const struct lf_hf_family lf_hf_llama, lf_hf_iquestcoder, lf_hf_cwm, lf_hf_vaultgemma;
extern const struct lf_hf_family lf_hf_mistral;
extern const struct lf_hf_family lf_hf_internlm2, lf_hf_internlm3;
extern const struct lf_hf_family lf_hf_seed_oss, lf_hf_ernie, lf_hf_nemotron, lf_hf_ministral3;
extern const struct lf_hf_family lf_hf_granite, lf_hf_granite_moe, lf_hf_cohere;
extern const struct lf_hf_family lf_hf_mamba2, lf_hf_bamba, lf_hf_granite_hybrid, lf_hf_nemotron_h,
    lf_hf_falcon_h1;
extern const struct lf_hf_family lf_hf_olmo2, lf_hf_olmo3, lf_hf_olmoe, lf_hf_olmo_hybrid,
    lf_hf_olmo, lf_hf_nanochat;
extern const struct lf_hf_family lf_hf_smollm3, lf_hf_cohere2, lf_hf_exaone4;
extern const struct lf_hf_family lf_hf_exaone_moe, lf_hf_clova;
extern const struct lf_hf_family lf_hf_arcee, lf_hf_apertus, lf_hf_jais2, lf_hf_helium,
    lf_hf_ministral, lf_hf_stablelm;
extern const struct lf_hf_family lf_hf_dots1, lf_hf_solar_open, lf_hf_hy3;
extern const struct lf_hf_family lf_hf_granite_swa, lf_hf_granite_moe_swa, lf_hf_afmoe, lf_hf_flint,
    lf_hf_minicpm3, lf_hf_biogpt;
extern const struct lf_hf_family lf_hf_gpt, lf_hf_aria_text, lf_hf_mellum, lf_hf_ernie_text,
    lf_hf_data2vec, lf_hf_megatron_bert, lf_hf_roberta_prenorm, lf_hf_xlm_roberta_xl;
extern const struct lf_hf_family lf_hf_glm_lite, lf_hf_youtu, lf_hf_mistral4;
extern const struct lf_hf_family lf_hf_llama4, lf_hf_granite_shared, lf_hf_flex_olmo, lf_hf_gpt_neo;
extern const struct lf_hf_family lf_hf_hunyuan, lf_hf_hunyuan_moe;
extern const struct lf_hf_family lf_hf_baichuan;
extern const struct lf_hf_family lf_hf_mixtral;
extern const struct lf_hf_family lf_hf_gpt_oss;
extern const struct lf_hf_family lf_hf_deepseek, lf_hf_deepseek_v2, lf_hf_deepseek_v3;
extern const struct lf_hf_family lf_hf_glm_moe, lf_hf_ernie_moe, lf_hf_minimax;
extern const struct lf_hf_family lf_hf_qwen1;
extern const struct lf_hf_family lf_hf_qwen2;
extern const struct lf_hf_family lf_hf_qwen3, lf_hf_mimo;
extern const struct lf_hf_family lf_hf_qwen2_moe;
extern const struct lf_hf_family lf_hf_qwen3_moe;
/* families_delta.c */
extern const struct lf_hf_family lf_hf_qwen3_next, lf_hf_qwen35, lf_hf_qwen35_moe;
extern const struct lf_hf_family lf_hf_kimi_linear;
extern const struct lf_hf_family lf_hf_minimax_text;
/* families_lfm.c */
extern const struct lf_hf_family lf_hf_lfm2, lf_hf_lfm2_moe;
extern const struct lf_hf_family lf_hf_glm;
extern const struct lf_hf_family lf_hf_glm4;
extern const struct lf_hf_family lf_hf_chatglm;
extern const struct lf_hf_family lf_hf_chatglm6b;

/* Not in the list, because Megatron-LM has no config.json. */
extern const struct lf_hf_family lf_hf_megatron;

/* families_vl*.c: models that see */
extern const struct lf_hf_family lf_hf_llava_llama, lf_hf_llava_mistral, lf_hf_llava_qwen2;
extern const struct lf_hf_family lf_hf_llava_next_llama, lf_hf_llava_next_mistral,
    lf_hf_llava_next_qwen2;
extern const struct lf_hf_family lf_hf_onevision, lf_hf_vipllava, lf_hf_paligemma, lf_hf_paligemma2,
    lf_hf_gemma3_vl;
extern const struct lf_hf_family lf_hf_qwen2_vl, lf_hf_qwen25_vl, lf_hf_qwen3_vl,
    lf_hf_qwen3_vl_moe, lf_hf_qwen35_vl, lf_hf_qwen35_vl_moe;
extern const struct lf_hf_family lf_hf_mistral3;
extern const struct lf_hf_family lf_hf_idefics3, lf_hf_smolvlm;
/* encoders that are models of their own */
extern const struct lf_hf_family lf_hf_clip, lf_hf_siglip; /* families_dual.c */
extern const struct lf_hf_family lf_hf_clip_vision, lf_hf_siglip_vision, lf_hf_siglip2_pair,
    lf_hf_siglip2_vision, lf_hf_dinov2, lf_hf_mae_encoder, lf_hf_mae, lf_hf_vit, lf_hf_vit_encoder,
    lf_hf_deit, lf_hf_deit_taught, lf_hf_swin, lf_hf_swin_encoder, lf_hf_swinv2,
    lf_hf_swinv2_encoder, lf_hf_convnext;
extern const struct lf_hf_family lf_hf_internvl_qwen2, lf_hf_internvl_qwen3, lf_hf_internvl_llama;
extern const struct lf_hf_family lf_hf_internvl_chat_qwen2, lf_hf_internvl_chat_qwen3,
    lf_hf_internvl_chat_llama, lf_hf_internvl_chat_internlm2;

#endif
