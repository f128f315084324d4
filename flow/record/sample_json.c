/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a training from JSON, and to it.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/sample.h"

#include "flow/record/fields.h"

const struct lf_fields lf_sample_row_fields = LF_FIELDS(
    lf_sample_row, LF_MEMBERS(lf_sample_row, step), {LF_FIELD(lf_sample_row, resumed), .opt = true},
    LF_MEMBERS_OPT(lf_sample_row, id), LF_MEMBERS(lf_sample_row, sample),
    LF_MEMBERS_OPT(lf_sample_row, prompt, text, answer, score, prompt_tokens, seed, finish_reason,
                   token_ids));

bool lf_sample_row_parse(lf_sample_row *out, const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const bool is = json_is_object(o);
    memset(out, 0, sizeof *out);
    if (is && lf_fields_read(out, &lf_sample_row_fields, o, "a sample", NULL) < 0)
        lf_fields_fini(out, &lf_sample_row_fields);
    json_decref(o);
    return is;
}

void lf_sample_row_fini(lf_sample_row *r)
{
    lf_fields_fini(r, &lf_sample_row_fields);
    memset(r, 0, sizeof *r);
}

void lf_sample_rows_cut(lf_sample_rows *rows, size_t n)
{
    while (rows->n > n)
        lf_sample_row_fini(&rows->v[--rows->n]);
}

void lf_sample_rows_fini(lf_sample_rows *rows)
{
    lf_sample_rows_cut(rows, 0);
    free(rows->v);
    memset(rows, 0, sizeof *rows);
}

size_t lf_sample_tokens(const lf_sample_row *r)
{
    return json_array_size(r->token_ids);
}
