/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-vocab.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"base", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "tokenizer to grow: tokenizer.json, tokenizer.model, or a directory holding one"},
    {"text", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "new text: files, directories, globs; .txt, .jsonl, compressed or inside tar/zip"},
    {"text_field", LF_OPT_STR, ID, 0, "text", 0, 0, NULL, NULL,
     "member of a JSON line that holds the text"},
    {"invalid_utf8", LF_OPT_ENUM, ID, 0, "replace", 0, 0, "replace|error", NULL,
     "bytes that are not UTF-8: U+FFFD, or an error"},
    {"donor", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "take tokens of this tokenizer only; without text all that can be reached"},
    {"old_text", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "text of the old kind: tokens a byte before and after are measured on it too"},
    {"new_tokens", LF_OPT_COUNT, ID, 0, "8192", 1, 1 << 24, NULL, "tokens",
     "add this many at most"},
    {"min_frequency", LF_OPT_COUNT, ID, 0, "2", 0, 1e15, NULL, "words",
     "with text: pairs seen less often are not merged"},
    {"character_coverage", LF_OPT_FLOAT, ID, 0, "0.9995", 0, 1, NULL, NULL,
     "SentencePiece: share of the new text's characters that get pieces"},
    {"max_piece", LF_OPT_INT, ID, 0, "16", 1, 64, NULL, "characters",
     "SentencePiece: longest new piece"},
    {"held_out", LF_OPT_FLOAT, ID, 0, "0.05", 0, 0.5, NULL, NULL,
     "share of the new text, chosen by content, that is measured and not learned from; 0: all is "
     "both"},
    {"checkpoint", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "model whose embedding and head grow with it"},
    {"init", LF_OPT_ENUM, ID, 0, "subtokens", 0, 0, "subtokens|mean|gaussian|last", NULL,
     "new rows: mean of the old tokens a token is made of, mean of all, random, or the last "
     "token's"},
    {"pad_to", LF_OPT_COUNT, ID, 0, "64", 1, 1 << 20, NULL, "rows",
     "rows are a multiple of this; those no token names are padding"},
    {"seed", LF_OPT_INT, ID, 0, "1", 0, 0, NULL, NULL, "of init = gaussian"},
};

static const char *const outputs[] = {"tokenizer", "checkpoint", "report", NULL};

const lf_opt_table lf_vocab_opts = {
    .stage = "vocab",
    .spec_version = 1,
    .summary = "grow a tokenizer by new tokens, and a model's embedding and head with it",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
