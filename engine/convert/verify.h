/* SPDX-License-Identifier: Apache-2.0
 *
 * What the proofs of convert.h (lf_convert_verify) share: a model that runs forward in f32, the
 * numbers of a file of expectations, and how far off a model is. */
#ifndef LF_CONVERT_VERIFY_H
#define LF_CONVERT_VERIFY_H

#include "engine/convert/convert.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"
#include "engine/store/safetensors.h"

/* LF_EFORMAT: what the file has not, and what writes such files. */
int lf_verify_bad_file(const char *path, const char *what, lf_err *err);
/* Is it F64 or F32 [a, b, c], and not empty? e may be NULL. */
bool lf_verify_is_numbers(const lf_st_entry *e);

struct lf_verify_model {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
    int chain;
};
/* Creates the model and declares its tensors, so that a graph of it can be built. */
int lf_verify_declare(struct lf_verify_model *m, const lf_model_config *c, int64_t positions,
                      lf_err *err);
/* Plans the graph, which it takes, and loads the weights. g = NULL: the error of building it
 * stays. */
int lf_verify_bind(struct lf_verify_model *m, lf_graph *g, const lf_ckpt *ck, int threads,
                   lf_err *err);
/* Legal after a failure, and of a struct of zeros. */
void lf_verify_model_fini(struct lf_verify_model *m);

/* Numbers [first, first + n) of an entry of lf_verify_is_numbers. */
int lf_verify_read(const lf_st *st, const lf_st_entry *e, int64_t first, int64_t n, double *out,
                   lf_err *err);

/* Those of sequence or picture b, an entry [batch, ...] of I64. LF_EFORMAT: one is negative or
 * above 2^20. */
int lf_verify_read_i32(const lf_st *st, const lf_st_entry *e, int64_t b, int32_t *out, lf_err *err);

/* Over all that was compared: the largest difference, the largest number that is expected, and the
 * sums of the squares of both. */
struct lf_verify_sum {
    double max, most, sum, sum_ref;
};
/* LF_ENUMERIC: one is not finite. */
int lf_verify_compare(struct lf_verify_sum *s, const float *got, const double *want, int64_t n,
                      lf_err *err);

struct lf_verify_in {
    const char *path; /* of the file of expectations, for messages */
    const lf_st *expected;
    const lf_ckpt *ck;
    lf_model_config config; /* of the checkpoint */
    int threads;
    struct lf_verify_sum sum; /* out */
};
/* An encoder of pictures without a decoder of text; sets out->of and out->rows. */
int lf_verify_lone(struct lf_verify_in *in, struct lf_convert_verdict *out, lf_err *err);
/* The same of towers of pictures and texts. */
int lf_verify_dual(struct lf_verify_in *in, struct lf_convert_verdict *out, lf_err *err);

#endif
