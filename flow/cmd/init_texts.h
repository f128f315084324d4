/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of templates/init, NULL-terminated; the .c file is made by the build.
 */
#ifndef LF_FLOW_INIT_TEXTS_H
#define LF_FLOW_INIT_TEXTS_H

extern const char *const lf_init_pretrain[];
extern const char *const lf_init_tokenize[];
extern const char *const lf_init_sft[];
extern const char *const lf_init_eval[];
extern const char *const lf_init_dpo[];
extern const char *const lf_init_rlhf[];
extern const char *const lf_init_grpo[];

#endif
