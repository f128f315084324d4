/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of lf-tokenize.
 */
#include "stages/opts.h"

#define ID LF_OPT_IDENTITY
#define OP LF_OPT_OPERATIONAL

static const lf_opt opts[] = {
    LF_COMMON_OPTS,
    {"inputs", LF_OPT_PATH, ID, LF_OPT_REQUIRED | LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL,
     NULL,
     "files, directories, globs or - for standard input; .txt, .jsonl, compressed or inside "
     "tar/zip"},
    {"input_format", LF_OPT_ENUM, ID, 0, "auto", 0, 0, "auto|text|jsonl", NULL,
     "auto goes by the name: .jsonl and .ndjson are JSON lines, everything else is text"},
    {"text_field", LF_OPT_STR, ID, 0, "text", 0, 0, NULL, NULL,
     "member of a JSON line that holds the text"},
    {"shape", LF_OPT_ENUM, ID, 0, "text", 0, 0,
     "auto|text|prompt_completion|messages|sharegpt|alpaca|preference|unpaired|prompt|tokens", NULL,
     "what a JSON line is: text_field alone, or columns as described under SHAPES; auto: by its "
     "columns"},
    {"columns", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "OURS=THEIRS: a column of the shape has another name in the data (also role and content of "
     "turns)"},
    {"roles", LF_OPT_STR, ID, LF_OPT_REPEAT, NULL, 0, 0, NULL, NULL,
     "THEIRS=OURS: a speaker of the data is system, user, assistant, tool or function_call"},
    {"unmapped", LF_OPT_ENUM, ID, 0, "error", 0, 0, "error|ignore", NULL,
     "columns that mean nothing to the shape, and members of turns that neither mean something nor "
     "are read by the template"},
    {"bad_rows", LF_OPT_ENUM, ID, 0, "error", 0, 0, "error|skip", NULL,
     "rows that cannot be read, have no turns or roles in a wrong order, or that the template "
     "refuses"},
    {"chat_template", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "a Jinja file instead of the tokenizer's own chat template; goes with the tokenizer from here "
     "on"},
    {"chat_name", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "which of several templates of a tokenizer; unset: the main one"},
    {"chat_vars", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "a JSON object of more variables for the template, such as {\"enable_thinking\": false}"},
    {"chat_time", LF_OPT_INT, ID, 0, "0", 0, 1e15, NULL, "seconds",
     "what a template that writes the date takes for now, since 1970"},
    {"turn_order", LF_OPT_ENUM, ID, 0, "check", 0, 0, "check|any", NULL,
     "roles in an order that a dialogue can have, or any that the template takes"},
    {"mask", LF_OPT_ENUM, ID, 0, "auto", 0, 0, "auto|prefix|generation", NULL,
     "which tokens are the assistant's: by rendering prefixes, or the template's generation "
     "blocks; auto: those if it has any"},
    {"non_prefix", LF_OPT_ENUM, ID, 0, "error", 0, 0, "error|drop", NULL,
     "conversations whose prefixes are not rendered to the beginning of the whole"},
    {"train_turns", LF_OPT_ENUM, ID, 0, "all", 0, 0, "all|last", NULL,
     "which turns of the assistant are trained; one with \"train\": false, \"loss\": false or "
     "\"weight\": 0 never is"},
    {"train_end", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "train the token that ends a turn, too"},
    {"train_on_prompt", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL, "train prompts like answers"},
    {"max_length", LF_OPT_COUNT, ID, 0, "0", 0, 1e9, NULL, "tokens",
     "of a document; longer ones go by truncation, 0 = no limit"},
    {"truncation", LF_OPT_ENUM, ID, 0, "keep_start", 0, 0, "keep_start|drop|budget", NULL,
     "keep the start; drop the row; share the room between prompts and answers; pairs and prompts "
     "are dropped in any case"},
    {"doctor", LF_OPT_BOOL, OP, 0, "no", 0, 0, NULL, NULL,
     "examine the inputs and report; makes no shards"},
    {"doctor_memory", LF_OPT_BYTES, OP, 0, "256M", 1 << 20, 1e15, NULL, "bytes",
     "doctor: memory for finding duplicates; more rows than fit are sampled"},
    {"json", LF_OPT_BOOL, OP, 0, "no", 0, 0, NULL, NULL, "doctor: print the report as JSON"},
    {"doc_split", LF_OPT_ENUM, ID, 0, "file", 0, 0, "file|line|blank|separator|size", NULL,
     "where a text file is cut into documents"},
    {"doc_separator", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "the whole line that separates documents"},
    {"doc_bytes", LF_OPT_BYTES, ID, 0, "64K", 1024, 1 << 28, NULL, "bytes",
     "doc_split = size: a document ends with the line that reaches this many bytes"},
    {"max_doc_bytes", LF_OPT_BYTES, ID, 0, "256M", 1024, 1 << 30, NULL, "bytes",
     "a longer document is an error"},
    {"tokenizer", LF_OPT_PATH, ID, LF_OPT_INPUT, NULL, 0, 0, "train", NULL,
     "tokenizer.json, tokenizer.model, tiktoken file, vocab.json + merges.txt or vocab.txt, or a "
     "directory holding one; unset or `train`: train one on the inputs"},
    {"vocab_type", LF_OPT_ENUM, ID, 0, "byte_bpe", 0, 0, "byte_bpe|sp_bpe|unigram", NULL,
     "training: byte-level BPE, or SentencePiece-style BPE or Unigram with byte fallback"},
    {"vocab_size", LF_OPT_COUNT, ID, 0, "32768", 257, 1 << 24, NULL, "tokens",
     "training: size, special tokens included"},
    {"special_tokens", LF_OPT_STR, ID, LF_OPT_REPEAT, "<|endoftext|>", 0, 0, NULL, NULL,
     "training: tokens that get the first ids; sp_bpe and unigram: after <unk>, <s>, </s>"},
    {"pattern", LF_OPT_ENUM, ID, 0, "llama3", 0, 0, "llama3|gpt2|qwen2", NULL,
     "training byte_bpe: how text is cut into words"},
    {"normalizer", LF_OPT_ENUM, ID, 0, "none", 0, 0, "none|nfc|nfkc", NULL,
     "training byte_bpe: Unicode normalisation"},
    {"character_coverage", LF_OPT_FLOAT, ID, 0, "0.9995", 0, 1, NULL, NULL,
     "training sp_bpe and unigram: share of the characters that get pieces, others are bytes"},
    {"min_frequency", LF_OPT_COUNT, ID, 0, "2", 0, 1e15, NULL, "words",
     "training BPE: pairs seen less often are not merged"},
    {"train_bytes", LF_OPT_BYTES, ID, 0, "0", 0, 0, NULL, "bytes",
     "training: use this much text only, 0 = all"},
    {"append_eos", LF_OPT_BOOL, ID, 0, "yes", 0, 0, NULL, NULL,
     "end every document with the end-of-document token"},
    {"eos_token", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL,
     "that token's text; unset: found by its usual names"},
    {"add_template", LF_OPT_BOOL, ID, 0, "no", 0, 0, NULL, NULL,
     "add the tokenizer's own BOS and EOS template"},
    {"special_in_text", LF_OPT_ENUM, ID, 0, "text", 0, 0, "text|token", NULL,
     "special tokens that occur inside documents: ordinary text, or the token itself"},
    {"invalid_utf8", LF_OPT_ENUM, ID, 0, "replace", 0, 0, "replace|error", NULL,
     "bytes that are not UTF-8: U+FFFD and counted, or an error"},
    {"valid_fraction", LF_OPT_FLOAT, ID, 0, "0", 0, 0.5, NULL, NULL,
     "share of documents kept for validation, chosen by their content"},
    {"valid_seed", LF_OPT_INT, ID, 0, "0", 0, 0, NULL, NULL, "chooses another validation set"},
    {"shard_tokens", LF_OPT_COUNT, ID, 0, "64M", 1, 4e9, NULL, "tokens",
     "a shard is closed when it has this many"},
    {"dtype", LF_OPT_ENUM, ID, 0, "auto", 0, 0, "auto|u16|u32", NULL,
     "auto: u16 when the vocabulary fits"},
    {"limit_docs", LF_OPT_COUNT, ID, 0, "0", 0, 1e15, NULL, "documents",
     "stop after this many, 0 = all"},
    {"limit_bytes", LF_OPT_BYTES, ID, 0, "0", 0, 0, NULL, "bytes",
     "stop before this much text is passed, 0 = all"},
};

static const char *const outputs[] = {"shards", "tokenizer", NULL};

const lf_opt_table lf_tokenize_opts = {
    .stage = "tokenize",
    .spec_version = 2,
    .summary = "turn text into token shards, with a given or a newly trained tokenizer",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(opts[0]),
    .outputs = outputs,
};
