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
    NULL,
};
