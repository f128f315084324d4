/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processes of a start left beside their numbers: on which machines they ran, how a
 * checkpoint was computed, and the texts that a model wrote. Other programs made these files or an
 * older version did, so what is missing in them is not given and what is not known is passed over.
 */
#ifndef LF_FLOW_MADE_H
#define LF_FLOW_MADE_H

#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

struct json_t;

/* A rank: ranks/HOST.PID.json of a start with ranks/gpu.HOST.PID (engine/base/machine.h). */
typedef struct lf_machine {
    char *rank, *host, *processor, *isa;
    char *gpu; /* NULL: it used none */
    lf_int threads;
    lf_real cpu_s; /* not given: it was killed, or it still runs */
} lf_machine;
typedef LF_ROWS(lf_machine) lf_machines;

/* The ranks that have signed in below start_dir, by file name; none where there is no directory.
 * Owned: lf_machines_fini. */
int lf_machines_load(lf_machines *out, const char *start_dir, lf_err *err);
void lf_machines_fini(lf_machines *m);

/* state.json of a checkpoint: the whole description of its model and how it was trained. */
typedef struct lf_trained {
    lf_pairs model; /* every key of [model], also those that have their default */
    struct lf_arithmetic {
        char *backend, *compute, *kernels, *numeric, *optimizer_state;
        char *device, *products; /* of a GPU; what computes matrix products */
        lf_int threads, ranks, micro_batch;
    } fingerprint;
    struct lf_optimizer_said {
        lf_real beta1, beta2, eps, weight_decay, clip;
    } optimizer;
    struct lf_schedule_said {
        lf_int kind; /* enum lf_schedule_kind of engine/train/schedule.h */
        lf_real peak, min, warmup, total, decay; /* learning rates; samples */
    } schedule;
    lf_int step;
    lf_real tokens, samples;
    char *tokenizer_sha256;
} lf_trained;

/* *out NULL: there is no such file. */
int lf_trained_load(lf_trained **out, const char *checkpoint_dir, lf_err *err);
void lf_trained_free(lf_trained *t);
/* "constant", "linear", "cosine", "inverse_sqrt", "wsd", or NULL for another number. */
const char *lf_schedule_word(int64_t kind);

/* The options of the classes identity and numeric that a result was made with, also those that have
 * their default (stages/made_by.h): out/.NAME.made_by.json of a start. Inputs are hashes there.
 * None where there is no such file. Owned: lf_pairs_fini. */
int lf_made_options_load(lf_pairs *out, const char *start_dir, const char *name, lf_err *err);

typedef struct lf_source_said {
    char *path;
    lf_real bytes;
} lf_source_said;

/* What a dataset says about itself: `meta` in the manifest of an artifact of the kind shards. */
typedef struct lf_dataset {
    struct lf_split_said {
        lf_real docs, tokens, trained, text_bytes, bytes_per_token;
        lf_real unigram_entropy; /* nats a token: the loss of counting words */
    } train, valid;
    lf_int vocab_size;
    char *tokenizer_sha256;
    LF_ROWS(lf_source_said) sources;
} lf_dataset;

/* Of a `meta` that was read, and of the manifest below dir; *out NULL: it is none. */
int lf_dataset_of(lf_dataset **out, struct json_t *meta, lf_err *err);
int lf_dataset_load(lf_dataset **out, const char *dir, lf_err *err);
void lf_dataset_free(lf_dataset *d);

/* A line of results of generation (engine/infer/result.h), of requests (request.h), or of samples
 * during training, which stand beside the metrics of a start in samples.jsonl. */
typedef struct lf_text_line {
    char *id, *prompt, *text, *finish_reason;
    lf_int sample, prompt_tokens;
    char *answer;             /* of samples of a reward model: chosen or rejected */
    lf_real score;            /* of these */
    struct json_t *token_ids; /* of text */
    lf_texts images;          /* of a request: the paths of its pictures; not of the fields */
    size_t number;            /* of the line in its file, from 1 on; not of the fields */
    lf_int step;              /* of samples during training */
    bool resumed; /* where a start begins: what stands behind this step in earlier starts is void */
} lf_text_line;
typedef LF_ROWS(lf_text_line) lf_text_lines;

/* The first `most` lines of a file of JSON lines, and in *more how many follow; an empty list where
 * there is no file. A line that is no object is passed over, since a stage may be writing it. Of
 * long files only the first 64 MiB are read. Owned: lf_text_lines_fini. */
int lf_text_lines_load(lf_text_lines *out, size_t *more, const char *path, size_t most,
                       lf_err *err);
void lf_text_lines_fini(lf_text_lines *l);
void lf_text_line_fini(lf_text_line *l);
size_t lf_text_line_tokens(const lf_text_line *l); /* how many token_ids there are */
extern const struct lf_fields lf_text_line_fields;
/* The samples of a start behind those of the starts before it, in the order of their steps. */
int lf_samples_add(lf_text_lines *all, const char *start_dir, lf_err *err);

#endif
