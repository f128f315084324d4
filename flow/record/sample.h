/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a training: what a model said, or scored, between two steps. docs/files.md has the
 * file, engine/train/sample_file.h who writes it.
 */
#ifndef LF_FLOW_SAMPLE_H
#define LF_FLOW_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

struct json_t;
struct lf_fields;

/* Texts are what a model made of anything: whoever shows them escapes them. */
typedef struct lf_sample_row {
    lf_real step;
    bool resumed; /* it says where a start begins, and is no sample */
    const char *id;
    int64_t sample;     /* number among those of its prompt */
    const char *prompt; /* not given: only ids are known */
    const char *text;   /* what the model said, or the answer that was scored */
    const char *answer; /* of a reward model: chosen or rejected */
    lf_real score;      /* of a reward model */
    lf_int prompt_tokens, seed;
    const char *finish_reason;
    struct json_t *token_ids; /* of text */
} lf_sample_row;
typedef LF_ROWS(lf_sample_row) lf_sample_rows;

/* false: the line is no object; nothing is owned then. */
bool lf_sample_row_parse(lf_sample_row *out, const char *text, size_t n);
void lf_sample_row_fini(lf_sample_row *r);
/* Down to the first n. */
void lf_sample_rows_cut(lf_sample_rows *rows, size_t n);
void lf_sample_rows_fini(lf_sample_rows *rows);
/* How many tokens the text has. */
size_t lf_sample_tokens(const lf_sample_row *r);
extern const struct lf_fields lf_sample_row_fields;

#endif
