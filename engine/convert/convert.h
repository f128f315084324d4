/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of other programs in and out: a Hugging Face directory to a checkpoint of ours
 * (engine/store/ckpt.h) and back.
 *
 * Both ways stream: a block of at most a few MiB per thread is read, cast, hashed and written; a
 * model never lies in memory. Every outside tensor is visited exactly once and every tensor of ours
 * written exactly once (map.h), or nothing is published. What is made becomes an artifact when its
 * manifest is linked, last; a run that is killed or stopped leaves a directory without manifest,
 * with a record of what is in place (engine/store/partial.h): the next run from the same files with
 * the same settings goes on from there.
 */
#ifndef LF_CONVERT_CONVERT_H
#define LF_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/convert/hf.h"
#include "engine/store/ckpt.h"

enum lf_convert_dtype { LF_CONVERT_KEEP = 0, LF_CONVERT_F32, LF_CONVERT_BF16, LF_CONVERT_F16 };

/* Special tokens of an exported model, for the eos_token_id and pad_token_id of config.json and
 * generation_config.json, which transformers' generate stops at. They are written where the model
 * is no longer the one that was imported, or where they are asked for; else both files stay as they
 * were. One end token is a number there, several are a list. Those of a model that gives scores go
 * to config.json alone; its padding is lf_convert_opts.pad_token. */
#define LF_CONVERT_MAX_EOS 16
struct lf_convert_tokens {
    int64_t eos[LF_CONVERT_MAX_EOS];
    size_t n_eos;
    /* ends a turn in the chat template: stands before the others where it is none of them; -1:
     * none */
    int64_t turn_end;
    int64_t bos, pad; /* -1: none */
    bool asked;       /* of the user: written whatever the model is */
};

/* Texts of the special tokens of a tokenizer, for its tokenizer_config.json; NULL: it has none. */
struct lf_convert_names {
    const char *bos, *eos, *pad, *unk;
};

struct lf_convert_opts {
    const char *from; /* directory */
    /* the artifact that is made: a directory that is new or holds what a killed run left */
    const char *out;
    const char *const *left; /* where earlier runs wrote, oldest first; any may be absent */
    size_t n_left;
    int dtype;          /* enum lf_convert_dtype */
    int64_t file_bytes; /* a file of the output is closed above this; 0: one file */
    int threads;
    const char *family; /* export: which form, NULL: by the model's family */
    /* export: directory whose tokenizer files go into the model's; NULL: none */
    const char *tokenizer;
    /* export of a model that gives scores: what fills batches; -1: as config.json of the origin
     * says */
    int64_t pad_token;
    const struct lf_convert_tokens *tokens; /* export; NULL: nothing is known */
    const struct lf_convert_names *names;   /* export: of `tokenizer`; NULL: nothing is known */
    bool (*stop)(void);                     /* asked between blocks; NULL: never */
    void (*warn)(void *arg, const char *text);
    void (*progress)(void *arg, double done, double total); /* bytes */
    void *arg;
};

struct lf_convert_result {
    char family[24];
    int64_t tensors, bytes; /* of the artifact */
    int64_t nonfinite; /* values that are NaN or infinite, among those that this run has read */
    int64_t reused;    /* bytes that an earlier run had written */
    uint8_t identity[LF_HASH_BYTES];
};

/* Hugging Face to checkpoint. What the checkpoint's state keeps besides the model's description
 * ("hf"): the config.json as it was, the type of every outside tensor, and which second copies
 * there were, so that an export writes the same files. F16 becomes F32 there, exactly. LF_EINVAL,
 * LF_EFORMAT, LF_ENOTSUP: named file, key or tensor; LF_EINTR: stop() said so; nothing is published
 * then, and what was written is kept for the next run. */
int lf_convert_import(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err);

/* The files of a Hugging Face directory that belong to its tokenizer and to generation, as an
 * artifact of kind "tokenizer" in `out`. Its meta: eos_token_ids, bos_token_id and pad_token_id of
 * generation_config.json, else of config.json. LF_ENOENT never: a directory without a tokenizer
 * makes an artifact without one, and *has_tokenizer is false. */
int lf_convert_tokenizer(const char *from, const char *out, bool *has_tokenizer, lf_err *err);

/* Checkpoint to a Hugging Face directory with manifest, kind "model", and a model card (README.md).
 * A tokenizer.json that has no tokenizer_config.json beside it gets one. A model with output =
 * score becomes a sequence classifier of one label. transformers looks for the last token that is
 * not pad_token_id, so that one must be no token a text ends with: LF_EINVAL when none is known, or
 * when it is the end token. Mean and std of its scores, where stored, go to the keys of that name,
 * as in OpenRLHF, and come back with an import. */
int lf_convert_export(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err);

/* ---- is it the same model? ---- */

struct lf_convert_verdict {
    /* largest difference / largest logit; rms of the differences / rms of the logits */
    double max, rms;
    double tol_max, tol_rms; /* what the family allows */
    int64_t tokens;
};

/* Run the checkpoint in f32 (invariant kernels) on the tokens of `expected` and compare with its
 * logits. The file is safetensors with metadata format = "lf-expected-1": input_ids I64 [B, T],
 * logits F64 (or F32) [B, T, V], prefix I64 [B] for prefix masks. LF_EFORMAT: another file;
 * LF_ENUMERIC: a logit that is not finite. A difference is no failure here. */
int lf_convert_verify(const char *checkpoint, const char *expected, int threads,
                      struct lf_convert_verdict *out, lf_err *err);

/* ---- what a path is ---- */

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
/* Negative: it could not be looked at. */
int lf_convert_form_of(enum lf_convert_form *out, const char *path, lf_err *err);

/* form, family, our description, tensors, and, where something does not fit, why ("config_error",
 * "tensors_error", "mapping_error"). Returns owned. */
json_t *lf_convert_inspect(const char *path, lf_err *err);
/* Bytes of the tensors of a Hugging Face directory, 0 when they cannot be opened: for --plan. */
int64_t lf_convert_hf_bytes(const char *dir);

#endif
