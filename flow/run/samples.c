/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the samples of a stage.
 */
#include "config.h"

#include "flow/run/samples.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/record.h"
#include "flow/run/series.h"

#define MAX_RECORDS 200000

static void drop_behind(lf_sample_rows *rows, double step)
{
    size_t n = rows->n;
    while (n > 0 && rows->v[n - 1].step.v > step)
        n--;
    lf_sample_rows_cut(rows, n);
}

/* A whole line. *first: nothing of this file was taken yet. */
static int take(lf_sample_rows *rows, const char *line, size_t n, bool *first, lf_err *err)
{
    lf_sample_row row;
    if (!lf_sample_row_parse(&row, line, n))
        return 0;
    if (row.step.given && row.resumed)
        drop_behind(rows, row.step.v);
    else if (row.step.given && *first)
        drop_behind(rows, row.step.v - 1);
    lf_sample_row *e = NULL;
    const bool counts = row.step.given && !row.resumed && rows->n < MAX_RECORDS;
    if (counts)
        e = lf_rows_add(rows, sizeof *e, err);
    *first = *first && !row.step.given;
    if (e != NULL)
        *e = row;
    else
        lf_sample_row_fini(&row);
    return counts && e == NULL ? LF_ENOMEM : 0;
}

/* The last line may be under way. */
static int read_lines(lf_sample_rows *rows, FILE *f, lf_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    bool first = true;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, f)) > 0)
        if (line[n - 1] == '\n')
            rc = take(rows, line, (size_t)n - 1, &first, err);
    free(line);
    return rc;
}

static int read_start(void *ctx, const char *dir, bool anew, lf_err *err)
{
    lf_sample_rows *rows = ctx;
    char path[PATH_MAX];
    if (anew)
        lf_sample_rows_cut(rows, 0);
    int rc = lf_path_set(path, err, "%s/samples.jsonl", dir);
    FILE *f = rc < 0 ? NULL : fopen(path, "re");
    if (f == NULL)
        return rc < 0 || errno == ENOENT ? rc : lf_fail_errno(err, "%s", path);
    rc = read_lines(rows, f, err);
    fclose(f);
    return rc;
}

int lf_samples_records(lf_sample_rows *out, const lf_stage_view *s, lf_err *err)
{
    memset(out, 0, sizeof *out);
    int rc = lf_series_starts(s, read_start, out, err);
    if (rc < 0)
        lf_sample_rows_fini(out);
    return rc;
}
