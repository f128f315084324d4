/* SPDX-License-Identifier: Apache-2.0
 *
 * What names of other tools are called here: of the Hugging Face trainers (transformers, trl,
 * peft), Megatron-LM, torchtune, nanoGPT, vLLM and schedulers. Messages about unknown keys ask here
 * before they look for a name that is spelled nearly the same.
 */
#ifndef LF_BASE_SYNONYM_H
#define LF_BASE_SYNONYM_H

#include <stddef.h>

typedef struct lf_synonym {
    const char *theirs;
    const char *ours; /* NULL: there is none; how says why */
    const char *how;  /* what a value becomes, or NULL: the same */
} lf_synonym;

/* The row of a word ('-' counts as '_') whose own name is among the n names that are allowed where
 * the word stands, else one without a name of ours; NULL: the word is not known. */
const lf_synonym *lf_synonym_find(const char *word, const char *const *names, size_t n);
/* Row i of all, NULL behind the last. */
const lf_synonym *lf_synonym_at(size_t i);
/* The same for a value: "bf16" for "bfloat16"; NULL: it is not known. choices: "f32|bf16". */
const char *lf_synonym_value(const char *value, const char *choices);
/* What a message adds, from its "; " on: our name, or the name that is spelled nearly the same, or
 * nothing. buf is always ended; names may be long. */
void lf_synonym_hint(char *buf, size_t cap, const char *word, const char *const *names, size_t n);

#endif
