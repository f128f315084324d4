/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of families, in the order in which a config.json is compared with them. */
#include "engine/convert/families.h"

const struct lf_hf_family *const lf_hf_families[] = {
    /* families_gpt.c */
    &lf_hf_gpt2,
    /* families_llama.c */
    &lf_hf_llama,
    NULL,
};
