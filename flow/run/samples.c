/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the samples of a stage.
 */
#include "config.h"

#include "flow/run/samples.h"

#include <string.h>

#include "flow/run/series.h"

static int read_start(void *ctx, const char *dir, bool anew, lf_err *err)
{
    lf_text_lines *all = ctx;
    if (anew)
        lf_text_lines_fini(all);
    return lf_samples_add(all, dir, err);
}

int lf_samples_records(lf_text_lines *out, const lf_stage_view *s, lf_err *err)
{
    memset(out, 0, sizeof *out);
    int rc = lf_series_starts(s, read_start, out, err);
    if (rc < 0)
        lf_text_lines_fini(out);
    return rc;
}
