/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of option tables: a stage that is built has its line here.
 */
#include "stages/opts.h"

const lf_opt_table *const lf_all_opts[] = {
    &lf_tokenize_opts,
    &lf_features_opts,
    &lf_pretrain_opts,
    &lf_sft_opts,
    &lf_rm_opts,
    &lf_dpo_opts,
    &lf_ppo_opts,
    &lf_score_opts,
    &lf_generate_opts,
    &lf_eval_opts,
    &lf_vocab_opts,
    &lf_convert_opts,
    NULL,
};
