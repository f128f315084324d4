/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of engine/convert share. */
#ifndef LF_CONVERT_PRIV_H
#define LF_CONVERT_PRIV_H

#include "engine/base/artifact.h"
#include "engine/convert/convert.h"
#include "engine/convert/move.h"
#include "engine/store/partial.h"

#define LF_HF_CONFIG     "config.json"
#define LF_HF_GENERATION "generation_config.json"
#define LF_HF_MAX_JSON   ((size_t)16 << 20) /* of a config; tokenizer files have their own caps */
#define LF_HF_MAX_FILE   ((size_t)256 << 20)

/* dir/name into out (cleared first), through lf_st_open_file. */
int lf_hf_read_text(const char *dir, const char *name, size_t max, lf_buf *out, lf_err *err);
/* The same as JSON. Returns owned. */
json_t *lf_hf_read_json(const char *dir, const char *name, lf_err *err);

/* The tensors of a Hugging Face directory: safetensors, or PyTorch's files where there are none. */
int lf_hf_open_tensors(lf_st **out, const char *dir, lf_err *err);
/* Does no name begin with prefix (as in files of a model without its head)? */
bool lf_hf_is_bare(const lf_st *s, const char *prefix);

/* Everything about a source model before its bytes are read. */
struct lf_hf_model {
    const struct lf_hf_family *family;
    lf_model_config config;
    char *config_text; /* config.json as it is; NULL: there is none (Megatron) */
    lf_st *st;
    lf_map map; /* bound */
    bool bare;
};
int lf_hf_model_open(struct lf_hf_model *m, const char *dir, lf_err *err);
void lf_hf_model_fini(struct lf_hf_model *m);

/* Copy the tokenizer files of `from` into the directory `to` and list them in a (NULL: do not); *n
 * counts them. */
int lf_hf_copy_files(const char *from, const char *to, const char *but, lf_artifact *a, size_t *n,
                     lf_err *err);
/* Does a list the vocabulary of a tokenizer? */
bool lf_hf_has_tokenizer(const lf_artifact *a);

/* A directory for a new artifact: made, or emptied where a run that was killed has left its mark;
 * LF_EEXIST when it is complete or holds anything else. finish publishes the manifest. */
int lf_hf_begin_dir(const char *dir, lf_err *err);
int lf_hf_finish_dir(lf_artifact *a, const char *dir, lf_err *err);

/* Where the bytes of unfinished runs lie; begin sets a left-over in o->out aside. key: to be filled
 * in before resume is used. end(l) is legal after a failed begin. */
struct lf_convert_left {
    const char *out;
    char *aside;
    const char **dirs;
    char key[LF_HASH_HEX];
    lf_resume resume;
};
int lf_convert_left_begin(struct lf_convert_left *l, const struct lf_convert_opts *o, lf_err *err);
void lf_convert_left_end(struct lf_convert_left *l);
/* Of an import: what its bytes are a function of. */
int lf_convert_import_key(char key[LF_HASH_HEX], const struct lf_hf_model *m, int dtype,
                          lf_err *err);

/* Tensor types as checkpoints have them; 0: not possible there. */
enum lf_h5_type lf_hf_h5_type(enum lf_st_dtype t);
enum lf_st_dtype lf_hf_st_type(enum lf_h5_type t);
enum lf_st_dtype lf_convert_target(int dtype, enum lf_st_dtype source); /* by the option dtype */
const char *lf_hf_torch_name(enum lf_st_dtype t);                       /* "bfloat16" */

#endif
