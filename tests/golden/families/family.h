/* SPDX-License-Identifier: Apache-2.0
 *
 * A golden directory (README.md beside this): imported by engine/convert, and what the reference
 * computed from it.
 *
 * How far results are off, everywhere in these tests:
 *     logits      the largest difference, divided by the largest logit of the reference
 *     a gradient  |got - want| / |want| in the Euclidean norm over one tensor of ours
 */
#ifndef LF_TESTS_GOLDEN_FAMILY_H
#define LF_TESTS_GOLDEN_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/graph/exec.h"
#include "engine/model/config.h"
#include "engine/model/decoder.h"
#include "engine/store/ckpt.h"
#include "engine/store/tensors.h"

#define FAMILY_F32   1e-5 /* tolerance of logits and gradients in f32 */
#define FAMILY_SEEN  3e-5 /* a planted error must move a logit by more than this */
#define FAMILY_STEPS 10

enum { FAMILY_WEIGHTS = 0, FAMILY_GRADS, FAMILY_SETS };

typedef struct family {
    char *name, *dir, *tmp; /* tmp: this family's folder below the test's */
    int64_t docs, length, rows, vocab;
    int32_t *tokens, *targets, *positions; /* [rows]; a document's last target is -1 */
    /* [docs + 1], [docs]; prefix NULL where the family has none; then */
    int32_t *cu_seqlens, *prefix;
    int32_t *turns, *blocks; /* [rows]: the two positions (oracle_chatglm6b.py) */
    int32_t *types;          /* [rows]: which text of a pair; NULL: all are of the first */
    /* of encoder-decoders: [source_rows], and [docs + 1] */
    int64_t source_rows;
    int32_t *source_tokens, *source_positions, *source_cu;
    double *logits; /* [rows, vocab] */
    double loss, losses[FAMILY_STEPS], norms[FAMILY_STEPS], bf16_rms;
    lf_model_config config; /* as imported, with nothing random and no auxiliary loss */
    lf_ckpt *set[FAMILY_SETS];
} family;

extern const char *const family_names[]; /* ended by NULL */

/* Bails out (TAP) on any failure. The folder is $LF_SRCDIR/tests/golden/families/NAME. Gradients
 * have the names of the family's weights, so they are imported by the same rows. */
family *family_open(const char *name);
void family_close(family *f);
/* Copies what describes the model besides its weights into dir. */
void family_describe(const family *f, const char *dir);
/* Import a directory as tmp/what, and write the directory of the gradients in an
 * expected.safetensors, whose name the caller owns. */
lf_ckpt *family_import(const family *f, const char *from, const char *what);
char *family_write_grads(const family *f, const lf_st *s);
/* No dropout, no auxiliary loss: what the references have. */
void family_quiet(lf_model_config *c);
/* Our tensor `name` with n elements in cols columns: true when the set has it in this size. A
 * tensor with as many columns but another number of rows gives the rows that both have; dst keeps
 * the others. */
bool family_tensor(const family *f, int set, const char *name, float *dst, int64_t n, int64_t cols);
/* Every tensor of the store from the weights; what they lack (a flipped switch added it) becomes
 * small random numbers. How many they lacked. */
int family_load(const family *f, lf_pstore *ps);
int64_t family_elements(const struct lf_param_desc *d);
int64_t family_columns(const struct lf_param_desc *d);

/* ---- a planned and bound model over the family's documents ---- */

typedef struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int loss, logits; /* chains */
} rig;

/* LF_EINVAL and the like: the configuration is refused. Biases of routers are held, as in the
 * references. */
int rig_open(rig *r, const family *f, const lf_model_config *c, enum lf_dtype compute,
             enum lf_numeric mode, bool train, lf_err *err);
void rig_close(rig *r);
/* Logits of tokens (NULL: the family's own), with the cap of the description; those of an
 * encoder-decoder beside source (NULL: the family's own). */
void rig_logits(const rig *r, const family *f, const int32_t *tokens, float *out);
void rig_logits_of(const rig *r, const family *f, const int32_t *tokens, const int32_t *source,
                   float *out);
/* Forward and backward of one step; mean loss. */
double rig_step(const rig *r, const family *f, int step);
/* The optimizer; gradient norm before clipping. */
double rig_update(const rig *r);

/* Error of logits; infinite when one is not finite. rms (may be NULL): over all, absolute. */
double family_error(const family *f, const float *got, double *rms);
/* The same for a description: 0 or what kept it from running. */
int family_measure(const family *f, const lf_model_config *c, enum lf_dtype compute,
                   enum lf_numeric mode, double *error, double *rms, lf_err *err);

/* ---- switches ---- */

/* Every switch that matters to the family, flipped; reports each, returns the least error of those
 * that ran. *n: how many. */
double family_flips(const family *f, int *n);
/* Apply a flip to c, whose keys (lf_model_config_to_json) are given: 1: flipped and finished; 0: it
 * changes nothing; negative: refused. */
int family_flip(lf_model_config *c, json_t *keys, const char *set, lf_err *err);
/* The settings of flip i; "": it cannot matter to c; NULL: there are no more. Borrowed, constant.
 */
const char *family_flip_at(size_t i, const lf_model_config *c);
/* "norm=layer position=learned ...": the switches that differ from their defaults, without sizes.
 * Owned. */
char *family_switches(const family *f);

#endif
