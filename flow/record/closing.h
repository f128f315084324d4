/* SPDX-License-Identifier: Apache-2.0
 *
 * What came out of a stage, in the numbers that people look for first: one struct for all kinds of
 * stages, of which a stage fills what it has. flow/run/closing.h makes it from the records of a
 * stage.
 */
#ifndef LF_FLOW_CLOSING_H
#define LF_FLOW_CLOSING_H

#include "flow/record/start.h"
#include "flow/record/values.h"

/* A number of an evaluation, with its standard error where it has one. */
typedef struct lf_score {
    char *task, *metric; /* "valid", "bits_per_byte" */
    lf_real value, error;
} lf_score;

/* A text that was generated. */
typedef struct lf_sample {
    char *id, *text;
    char *prompt; /* NULL: not known */
    char *failed; /* why there is no text */
    int sample;   /* of several for one prompt, from 0 */
} lf_sample;

/* Members that are not given: the stage has no such number. Owns what it points to. */
typedef struct lf_closing {
    bool given;
    /* Of training. loss is the mean of the last steps, each of which weighs 0.98 of the next, in
     * nats a token or what the stage's loss is; tokens_per_s is over all steps. */
    lf_real first_loss, loss, first_reward, reward;
    lf_real valid_loss, best_valid_loss; /* the last and the least */
    lf_int best_step;
    lf_real tokens_per_s;
    /* Of datasets, all splits together. bytes_per_token is of the split train. */
    lf_int documents, tokens;
    lf_real bytes_per_token;
    lf_int pictures; /* of features, as often as documents have them */
    /* Of evaluations and of scoring. */
    LF_ROWS(lf_score) scores;
    /* Of generation: how many texts, and the first. */
    lf_int results, refused;
    LF_ROWS(lf_sample) samples;
    /* Of conversion. verified: was the result compared with numbers of another program? */
    lf_int tensors;
    char *family;
    lf_flag verified;
} lf_closing;

/* Add what the manifest of an output says. */
int lf_closing_add_output(lf_closing *c, const struct lf_output *o, lf_err *err);
/* Add the first texts, at most `most` of them, of the lines that generate writes. A file that
 * cannot be read adds none. */
int lf_closing_add_texts(lf_closing *c, const char *path, size_t most, lf_err *err);
void lf_closing_fini(lf_closing *c);

#endif
