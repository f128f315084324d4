/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of families, in the order in which a config.json is compared with them. */
#include "engine/convert/families.h"

const struct lf_hf_family *const lf_hf_families[] = {
    /* families_gpt.c */
    &lf_hf_gpt2,
    /* families_neox.c */
    &lf_hf_neox,
    &lf_hf_gptj,
    &lf_hf_bloom,
    /* families_opt.c, families_falcon.c, families_code.c */
    &lf_hf_opt,
    &lf_hf_falcon,
    &lf_hf_bigcode,
    &lf_hf_starcoder2,
    /* families_phi.c, families_gemma.c */
    &lf_hf_phi,
    &lf_hf_phi3,
    &lf_hf_gemma,
    &lf_hf_gemma2,
    &lf_hf_gemma3,
    /* families_llama.c */
    &lf_hf_llama,
    /* families_kin.c */
    &lf_hf_mistral,
    &lf_hf_internlm2,
    &lf_hf_internlm3,
    &lf_hf_seed_oss,
    &lf_hf_ernie,
    &lf_hf_nemotron,
    &lf_hf_ministral3,
    /* families_granite.c, families_olmo.c, families_hunyuan.c */
    &lf_hf_granite,
    &lf_hf_granite_moe,
    &lf_hf_cohere,
    &lf_hf_olmo2,
    &lf_hf_olmo3,
    &lf_hf_olmoe,
    &lf_hf_hunyuan,
    &lf_hf_hunyuan_moe,
    /* families_mamba.c */
    &lf_hf_mamba2,
    &lf_hf_bamba,
    &lf_hf_granite_hybrid,
    &lf_hf_nemotron_h,
    &lf_hf_falcon_h1,
    /* families_unturned.c */
    &lf_hf_smollm3,
    &lf_hf_cohere2,
    &lf_hf_exaone4,
    &lf_hf_exaone_moe,
    &lf_hf_clova,
    &lf_hf_arcee,
    &lf_hf_apertus,
    &lf_hf_jais2,
    &lf_hf_helium,
    &lf_hf_ministral,
    &lf_hf_stablelm,
    &lf_hf_dots1,
    &lf_hf_solar_open,
    &lf_hf_hy3,
    &lf_hf_glm_lite,
    &lf_hf_youtu,
    /* families_baichuan.c */
    &lf_hf_baichuan,
    /* families_moe.c */
    &lf_hf_mixtral,
    &lf_hf_deepseek,
    &lf_hf_glm_moe,
    &lf_hf_ernie_moe,
    &lf_hf_minimax,
    /* families_oss.c */
    &lf_hf_gpt_oss,
    /* families_deepseek.c */
    &lf_hf_deepseek_v2,
    &lf_hf_deepseek_v3,
    /* families_qwen.c */
    &lf_hf_qwen1,
    &lf_hf_qwen2,
    &lf_hf_qwen3,
    &lf_hf_mimo,
    &lf_hf_qwen2_moe,
    &lf_hf_qwen3_moe,
    /* families_delta.c */
    &lf_hf_qwen3_next,
    &lf_hf_qwen35,
    &lf_hf_qwen35_moe,
    /* families_lfm.c */
    &lf_hf_lfm2,
    &lf_hf_lfm2_moe,
    /* families_glm.c */
    &lf_hf_glm,
    &lf_hf_glm4,
    &lf_hf_chatglm,
    &lf_hf_chatglm6b,
    /* families_vl*.c */
    &lf_hf_llava_llama,
    &lf_hf_llava_mistral,
    &lf_hf_llava_qwen2,
    &lf_hf_llava_next_llama,
    &lf_hf_llava_next_mistral,
    &lf_hf_llava_next_qwen2,
    &lf_hf_onevision,
    &lf_hf_vipllava,
    &lf_hf_paligemma,
    &lf_hf_paligemma2,
    &lf_hf_gemma3_vl,
    &lf_hf_qwen2_vl,
    &lf_hf_qwen25_vl,
    &lf_hf_qwen3_vl,
    &lf_hf_qwen3_vl_moe,
    &lf_hf_mistral3,
    &lf_hf_idefics3,
    &lf_hf_smolvlm,
    &lf_hf_internvl_qwen2,
    &lf_hf_internvl_qwen3,
    &lf_hf_internvl_llama,
    &lf_hf_internvl_chat_qwen2,
    &lf_hf_internvl_chat_qwen3,
    &lf_hf_internvl_chat_llama,
    &lf_hf_internvl_chat_internlm2,
    /* families_vit.c */
    &lf_hf_clip_pair,
    &lf_hf_siglip_pair,
    &lf_hf_clip_vision,
    &lf_hf_siglip_vision,
    &lf_hf_dinov2,
    &lf_hf_mae_encoder,
    &lf_hf_mae,
    NULL,
};
