/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of engine/convert share. */
#ifndef LF_CONVERT_PRIV_H
#define LF_CONVERT_PRIV_H

#include "engine/base/artifact.h"
#include "engine/convert/convert.h"
#include "engine/convert/move.h"
#include "engine/store/partial.h"

#define LF_HF_CONFIG     "config.json"
#define LF_HF_GENERATION "generation_config.json"
#define LF_HF_MAX_JSON   ((size_t)16 << 20) /* of a config; tokenizer files have other limits */
#define LF_HF_MAX_FILE   ((size_t)256 << 20)

/* Sets out to the contents of dir/name, opened with lf_st_open_file. */
int lf_hf_read_text(const char *dir, const char *name, size_t max, lf_buf *out, lf_err *err);
/* Parses such text, in which numbers may be infinite words. The caller owns the result. */
json_t *lf_hf_parse_json(const char *text, size_t n, const char *what, lf_err *err);
/* Both: the contents as JSON, which the caller owns. */
json_t *lf_hf_read_json(const char *dir, const char *name, lf_err *err);

/* Opens the tensors of a Hugging Face directory: safetensors, or PyTorch's files where there are
 * none. */
int lf_hf_open_tensors(lf_st **out, const char *dir, lf_err *err);
/* Of a family with tie_by_tensors: sets whether the head is the embedding. */
int lf_hf_settle_tie(lf_model_config *c, const struct lf_hf_family *f, const lf_st *st,
                     lf_err *err);
/* Makes quantised tensors be read as bf16. */
int lf_hf_unquantise(lf_st *s, const struct lf_hf_quant *q, lf_err *err);

/* The kind of a checkpoint's tensors that are of no part of the model (lf_map_form), which begins
 * their names too; and the member of "hf" with the shape of each. */
#define LF_CONVERT_KEPT "kept"

/* text_part.c: the decoder of texts in a model that has other parts. Returns its config.json, which
 * the caller owns; NULL: there is none, or its family is not known. */
json_t *lf_hf_text_part(json_t *config, const char *path, lf_err *err);
bool lf_hf_has_text_part(json_t *config); /* of a known family */
/* What config.json has of it, borrowed; NULL: nothing. */
json_t *lf_hf_text_object(json_t *config);
/* Does a tensor's name say that it is of a decoder inside of a model? */
bool lf_hf_is_inside(const char *name);
/* Leaves the decoder's tensors in s, named as in a model that is nothing else; `left` tells of the
 * others. */
int lf_hf_text_tensors(lf_st *s, lf_buf *left, lf_err *err);

/* Everything about a source model before its bytes are read. */
struct lf_hf_model {
    const struct lf_hf_family *family;
    lf_model_config config;
    /* of config.json, of the model without 4-bit floats and what is left out; NULL: there is none
     * (Megatron) */
    char *config_text;
    struct lf_hf_quant quant;
    lf_st *st;
    char *left_out; /* tensors of other parts than the one that was asked for; NULL: none */
    struct lf_map_form form;
    lf_map map; /* bound */
};
/* parts: enum lf_convert_parts */
int lf_hf_model_open(struct lf_hf_model *m, const char *dir, int parts, lf_err *err);
void lf_hf_model_fini(struct lf_hf_model *m);
/* The text speaks of no quantisation from here on. */
int lf_hf_forget_quant(struct lf_hf_model *m, lf_err *err);

/* Copies the files of tokenizer and preprocessing of `from` into the directory `to` and adds them
 * to a (may be NULL). *n counts them. */
int lf_hf_copy_files(const char *from, const char *to, const char *but, lf_artifact *a, size_t *n,
                     lf_err *err);
/* Has artifact a the vocabulary of a tokenizer? */
bool lf_hf_has_tokenizer(const lf_artifact *a);

/* Prepares the directory of a new artifact: makes it, or empties one with the mark of a killed
 * conversion. lf_hf_finish_dir publishes the manifest. LF_EEXIST: dir is complete or holds anything
 * else. */
int lf_hf_begin_dir(const char *dir, lf_err *err);
int lf_hf_finish_dir(lf_artifact *a, const char *dir, lf_err *err);

/* The bytes of unfinished conversions. begin sets an unfinished output in o->out aside. The caller
 * fills key before resume is used. end is legal after a failed begin. */
struct lf_convert_left {
    const char *out;
    char *aside;
    const char **dirs;
    char key[LF_HASH_HEX];
    lf_resume resume;
};
int lf_convert_left_begin(struct lf_convert_left *l, const struct lf_convert_opts *o, lf_err *err);
void lf_convert_left_end(struct lf_convert_left *l);
/* Computes the hash of everything that the bytes of an import depend on. */
int lf_convert_import_key(char key[LF_HASH_HEX], const struct lf_hf_model *m, int dtype,
                          lf_err *err);

/* Types of tensors in checkpoints, and back; 0: not possible there. */
enum lf_h5_type lf_hf_h5_type(enum lf_st_dtype t);
enum lf_st_dtype lf_hf_st_type(enum lf_h5_type t);
enum lf_st_dtype lf_convert_target(int dtype, enum lf_st_dtype source); /* by the option dtype */
const char *lf_hf_torch_name(enum lf_st_dtype t);                       /* "bfloat16" */

#endif
