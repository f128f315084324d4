/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that a tokenizer consists of, by name, and their container: one block of bytes for
 *   other ranks and for artifacts. The container of a tokenizer.json alone is that file. The
 *   container of several files is "loong-flow tokenizer files 1\n", then for each file "NAME
 *   LENGTH\n" and its bytes.
 */
#ifndef LF_TEXT_TOKENIZER_FILES_H
#define LF_TEXT_TOKENIZER_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

#define LF_TOK_FILES_MAX 16

enum lf_tok_form {
    LF_TOK_FORM_JSON,         /* tokenizer.json */
    LF_TOK_FORM_SPM,          /* sentencepiece's tokenizer.model */
    LF_TOK_FORM_TIKTOKEN,     /* lines of base64 token and rank */
    LF_TOK_FORM_VOCAB_MERGES, /* vocab.json and merges.txt */
    LF_TOK_FORM_VOCAB_TXT     /* BERT's vocab.txt */
};

typedef struct lf_tok_file {
    char *name; /* owned; without a folder */
    lf_buf data;
} lf_tok_file;

typedef struct lf_tok_files {
    lf_tok_file v[LF_TOK_FILES_MAX];
    size_t n;
    enum lf_tok_form form;
    const char *main; /* name of the first file of the form; borrowed from v */
} lf_tok_files;

/* Reads the files. path is a directory, or the main file in one. In a directory the first of these
 * counts: tokenizer.json, a sentencepiece or tiktoken file (tokenizer.model, *.model, *.tiktoken),
 * vocab.json with merges.txt, vocab.txt. tokenizer_config.json, special_tokens_map.json,
 * generation_config.json and chat_template.jinja are read too where they exist. Several templates
 * stand in tokenizer_config.json afterwards (named_templates.h). */
int lf_tok_files_read(lf_tok_files *f, const char *path, lf_err *err);
/* Reads the files from one block of bytes. A block that is no container is a main file named
 * `name`. */
int lf_tok_files_unpack(lf_tok_files *f, const void *data, size_t len, const char *name,
                        lf_err *err);
int lf_tok_files_pack(const lf_tok_files *f, lf_buf *out, lf_err *err);
void lf_tok_files_fini(lf_tok_files *f);
const lf_buf *lf_tok_files_get(const lf_tok_files *f, const char *name); /* NULL: not there */

#endif
