/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage says against its settings, put into the words of the user's file. A stage reads a
 * config.ini that is gone when the user reads the message, so a place in it becomes that of the key
 * in the pipeline file; without one, the option that the message names says the place, and without
 * that the stage has it.
 */
#ifndef LF_FLOW_COMPLAINT_H
#define LF_FLOW_COMPLAINT_H

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline.h"

typedef struct lf_complaint {
    const lf_pipeline *pipeline; /* NULL: the file is gone; the message then has no place */
    const lf_doc_stage *stage;
    const char *config;      /* path of the config.ini that the stage was given */
    const char *config_text; /* and what was in it */
    const char *text;        /* what the stage said: "lf-KIND: error: ..." */
} lf_complaint;

/* Appends "PATH:LINE:COLUMN: stage NAME: ..." to out. */
void lf_complaint_word(lf_buf *out, const lf_complaint *c);
/* Appends what to change: "pipeline.ini:14 (seq_length)", or the stage's section. Nothing without a
 * pipeline. */
void lf_complaint_place(lf_buf *out, const lf_complaint *c);

#endif
