/* SPDX-License-Identifier: Apache-2.0
 *
 * Import and export of models of other programs: a Hugging Face directory to our checkpoint
 * (engine/store/ckpt.h) and back.
 *
 * Both directions stream: a block of at most a few MiB per thread is read, cast, hashed and
 * written, so a model never lies in memory. Every outside tensor is visited exactly once and every
 * tensor of ours is written exactly once (map.h); otherwise nothing is published. The result
 * becomes an artifact when its manifest is linked, last. A conversion that is killed or stopped
 * leaves a directory without manifest and a record of its finished parts (engine/store/partial.h).
 * The next one from the same files with the same settings continues from there.
 */
#ifndef LF_CONVERT_CONVERT_H
#define LF_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/convert/hf.h"
#include "engine/store/ckpt.h"

enum lf_convert_dtype { LF_CONVERT_KEEP = 0, LF_CONVERT_F32, LF_CONVERT_BF16, LF_CONVERT_F16 };

/* Weights of 8 bits in blocks (engine/store/f8_blocks.h). KEEP: an import keeps scales as
 * companions (engine/model/scales.h), and an export of a checkpoint that has some, without a dtype,
 * is quantised. BF16: an import keeps none, an export is not quantised. FP8: an export is. */
enum lf_convert_quantize { LF_QUANTIZE_KEEP = 0, LF_QUANTIZE_BF16, LF_QUANTIZE_FP8 };

/* What an import takes: everything, or of a model that also sees or hears the decoder of texts
 * alone, which becomes a model of its own family. An export takes the model, or the generator that
 * was trained beside it (engine/model/electra.h). */
enum lf_convert_parts { LF_PARTS_ALL = 0, LF_PARTS_TEXT, LF_PARTS_GENERATOR };

/* Special tokens of an exported model: eos_token_id, at which generate of transformers stops, and
 * pad_token_id of config.json and generation_config.json. They are written when the model is no
 * longer the imported one, or when the user gives them; otherwise both files stay as they were. One
 * end token is a number there, several are a list. Those of a model that gives scores go to
 * config.json alone; its padding is lf_convert_opts.pad_token. */
#define LF_CONVERT_MAX_EOS 16
struct lf_convert_tokens {
    int64_t eos[LF_CONVERT_MAX_EOS];
    size_t n_eos;
    /* the token that ends a turn in the chat template, written before the others unless it is one
     * of them; -1: none */
    int64_t turn_end;
    int64_t bos, pad; /* -1: none */
    bool asked;       /* given by the user: written in any case */
};

/* Texts of the special tokens of a tokenizer, for its tokenizer_config.json; NULL: it has none. */
struct lf_convert_names {
    const char *bos, *eos, *pad, *unk;
    bool ends; /* captions of two towers end with eos */
};

struct lf_convert_opts {
    const char *from; /* directory */
    /* the new artifact: a new directory, or one that a killed conversion left */
    const char *out;
    const char *const *left; /* where earlier starts wrote, oldest first; any may be absent */
    size_t n_left;
    int dtype;          /* enum lf_convert_dtype */
    int quantize;       /* enum lf_convert_quantize */
    int parts;          /* enum lf_convert_parts */
    bool averages;      /* export: those in place of the weights (ckpt.h, lf_ckpt_averages) */
    int64_t file_bytes; /* a new file of the output begins above this; 0: one file */
    int threads;
    const char *family; /* export: the form to write; NULL: by the family of the model */
    /* export: directory whose tokenizer files go into that of the model; NULL: none */
    const char *tokenizer;
    /* export of a model that gives scores: the padding token; -1: that of the original
     * config.json */
    int64_t pad_token;
    const struct lf_convert_tokens *tokens; /* export; NULL: unknown */
    const struct lf_convert_names *names;   /* export: those of `tokenizer`; NULL: unknown */
    bool (*stop)(void);                     /* called between blocks; may be NULL */
    void (*warn)(void *arg, const char *text);
    void (*progress)(void *arg, double done, double total); /* bytes */
    void *arg;
};

struct lf_convert_result {
    char family[24];
    int64_t tensors, bytes; /* of the artifact */
    int64_t nonfinite;      /* NaN and infinite values among those that this start has read */
    int64_t reused;         /* bytes that an earlier start had written */
    uint8_t identity[LF_HASH_BYTES];
};

/* Converts Hugging Face to a checkpoint. Beside the description of the model, its state keeps
 * ("hf") the original config.json, the type of every outside tensor, and the second copies that
 * there were, so that an export writes the same files; 8-bit weights are bf16 there and have their
 * scales beside them. F16 becomes F32, exactly. LF_EINVAL,
 * LF_EFORMAT, LF_ENOTSUP: the message names file, key or tensor. LF_EINTR: stop() returned true;
 * nothing is published, and what was written is kept for the next start. */
int lf_convert_import(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err);

/* Publishes the files of a Hugging Face directory that belong to its tokenizer and to generation,
 * as an artifact of kind "tokenizer" in `out`. Its meta has eos_token_ids, bos_token_id and
 * pad_token_id of generation_config.json, else of config.json. A directory without a tokenizer
 * makes an artifact without one, and *has_tokenizer is false. */
int lf_convert_tokenizer(const char *from, const char *out, bool *has_tokenizer, lf_err *err);

/* Converts a checkpoint to a Hugging Face directory with a manifest of kind "model" and a model
 * card (README.md). A tokenizer.json without a tokenizer_config.json gets one. A model with output
 * = score becomes a sequence classifier of one label. transformers scores the last token that is
 * not pad_token_id, so no text may end with that token. Stored mean and std of scores go to the
 * keys of that name, as in OpenRLHF, and an import reads them. LF_EINVAL: pad_token_id of such a
 * model is unknown or is the end token. */
int lf_convert_export(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err);

/* ---- is it the same model? ---- */

struct lf_convert_verdict {
    /* largest difference / largest number that is expected; rms of the differences / rms of these
     * numbers */
    double max, rms;
    double tol_max, tol_rms; /* what the family allows */
    const char *of;          /* what was compared: "tokens", "rows", "patches" */
    int64_t rows;            /* how many of these */
};

/* Runs the checkpoint in f32 (invariant kernels) on the tokens of `expected` and compares with its
 * logits. A difference is no error of this function. The file is safetensors with metadata format =
 * "lf-expected-1": input_ids I64 [B, T], logits F64 or F32 [B, T, V], and prefix I64 [B] for prefix
 * masks; of a model that sees also pixels F32 [B, patches, K], tiles I64 [B, n, 2] (rows, columns),
 * pictures I64 [B, m, 6] and merge I64 [1] (engine/model/sight.h). Of an encoder without a decoder
 * of text it has pixels and tiles, and hidden F64 or F32 [B, rows, C], the rows behind its last
 * norm, tile by tile, a class token before the patches of each; of one that restores pictures mask
 * I64 [B, patches], 1 where a patch is hidden, and restored F64 or F32 [B, hidden patches, K].
 * LF_EFORMAT: it is another file, or has no pictures for a model that sees. LF_ENUMERIC: a number
 * is not finite. */
int lf_convert_verify(const char *checkpoint, const char *expected, int threads,
                      struct lf_convert_verdict *out, lf_err *err);

/* ---- the kind of a path ---- */

enum lf_convert_form {
    LF_FORM_UNKNOWN = 0,
    LF_FORM_HF,
    LF_FORM_CHECKPOINT,
    LF_FORM_SHARDS,
    LF_FORM_TOKENIZER,
    LF_FORM_MEGATRON,
    LF_FORM_IDX,
    LF_FORM_PEFT
};
const char *lf_convert_form_name(enum lf_convert_form f);
/* Finds the kind of path. A negative code: the path could not be read. */
int lf_convert_form_of(enum lf_convert_form *out, const char *path, lf_err *err);

/* Is a tensor of a checkpoint of this kind one of the optimizer, and neither of the model nor kept
 * beside it for an export? */
bool lf_convert_is_moment(const char *kind);
/* Returns form, family, our description, parameters and tensors, and reasons where something does
 * not fit ("config_error", "tensors_error", "mapping_error"). The caller owns it. */
json_t *lf_convert_inspect(const char *path, int parts, lf_err *err);
/* Returns the bytes of the tensors of a Hugging Face directory, or of its parts, or 0 when they
 * cannot be opened; for --plan. */
int64_t lf_convert_hf_bytes(const char *dir, int parts);

#endif
