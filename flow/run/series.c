/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading framed metrics.
 */
#include "config.h"

#include "flow/run/series.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"

#define TAIL_BYTES  ((size_t)1 << 16)
#define MAX_RECORDS 2000000

static uint32_t u32le(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Frames can only be read forwards, so find one by its checksum near the end and go on from
 * there. */
bool lf_metrics_last(lf_metric_row *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    unsigned char *tail = lf_malloc(TAIL_BYTES, 1, NULL);
    memset(out, 0, sizeof *out);
    if (fd >= 0 && tail != NULL && fstat(fd, &st) == 0) {
        off_t from = st.st_size > (off_t)TAIL_BYTES ? st.st_size - (off_t)TAIL_BYTES : 0;
        ssize_t got = pread(fd, tail, TAIL_BYTES, from);
        size_t n = got > 0 ? (size_t)got : 0, pos = 0;
        while (pos + LF_FRAME_HEAD < n) {
            size_t len = u32le(tail + pos);
            if (len == 0 || len > n - pos - LF_FRAME_HEAD ||
                lf_crc32c(0, tail + pos + LF_FRAME_HEAD, len) != u32le(tail + pos + 4)) {
                pos++;
                continue;
            }
            lf_metric_row row;
            if (lf_metric_row_parse(&row, (const char *)tail + pos + LF_FRAME_HEAD, len)) {
                lf_metric_row_fini(out);
                *out = row;
            }
            pos += LF_FRAME_HEAD + len;
        }
    }
    if (fd >= 0)
        close(fd);
    free(tail);
    return out->values != NULL;
}

/* Where a start says that it begins is no record of a step. */
static int take_first(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)offset;
    (void)err;
    lf_metric_row *first = ctx;
    lf_metric_row_parse(first, payload, n);
    if (!first->resumed)
        return 0;
    lf_metric_row_fini(first);
    return 1;
}

bool lf_metrics_first(lf_metric_row *out, const char *path)
{
    int64_t offset = 0;
    memset(out, 0, sizeof *out);
    if (lf_frame_read(path, &offset, take_first, out, NULL) < 0)
        lf_metric_row_fini(out);
    return out->values != NULL;
}

struct reading {
    lf_metric_rows *records;
    double first_step; /* of this file; negative before the first record */
    bool resumed;      /* the file has said where it begins: at first_step */
};

/* A start replaces what earlier ones wrote behind the step where it begins: the one that it
 * says, or the one before its first record. */
static void drop_behind(lf_metric_rows *records, double step)
{
    size_t n = records->n;
    while (n > 0 && records->v[n - 1].step.v > step)
        n--;
    lf_metric_rows_cut(records, n);
}

/* Takes the record. */
static int add_record(struct reading *r, lf_metric_row *row, lf_err *err)
{
    if (r->first_step < 0) {
        r->first_step = row->step.v;
        drop_behind(r->records, row->step.v - 1);
    }
    /* A start that is to end where it begins measures its step again, and does not train it. */
    const size_t n = r->records->n;
    if (r->resumed && row->step.v == r->first_step && n > 0 &&
        r->records->v[n - 1].step.v == row->step.v) {
        int rc = lf_metric_row_add(&r->records->v[n - 1], row, err);
        lf_metric_row_fini(row);
        return rc < 0 ? rc : 1;
    }
    bool full = n >= MAX_RECORDS;
    lf_metric_row *e = full ? NULL : lf_rows_add(r->records, sizeof *e, err);
    if (e == NULL) {
        lf_metric_row_fini(row);
        return full ? 0 : LF_ENOMEM;
    }
    *e = *row;
    return 1;
}

static int on_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)offset;
    struct reading *r = ctx;
    lf_metric_row row;
    bool good = lf_metric_row_parse(&row, payload, n);
    if (good && row.step.given && !row.resumed)
        return add_record(r, &row, err);
    if (good && row.step.given) {
        drop_behind(r->records, row.step.v);
        r->first_step = row.step.v;
        r->resumed = true;
    }
    lf_metric_row_fini(&row);
    return 1; /* other records have no place in a series */
}

static int read_file(lf_metric_rows *records, const char *dir, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/metrics", dir);
    if (rc < 0 || !lf_io_exists(path))
        return rc;
    struct reading r = {.records = records, .first_step = -1};
    int64_t offset = 0;
    return lf_frame_read(path, &offset, on_record, &r, err);
}

/* A start that was handed nothing over begins anew, also while it has not said so yet. */
static bool begins_anew(const lf_start *inc)
{
    const struct lf_claim *c = inc->claim;
    bool taken = false;
    for (size_t i = 0; c != NULL && i < c->n_from; i++)
        taken = taken || c->from[i].taken;
    return c != NULL && c->from != NULL && !taken;
}

int lf_series_starts(const lf_stage_view *s, lf_series_fn *take, void *ctx, lf_err *err)
{
    int rc = 0;
    const char *spec = s->plan->spec_id;
    for (size_t i = 0; rc == 0 && i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        const struct lf_attempt_rec *att = lf_attempt_of(s, inc), *newest = lf_attempt_newest(s);
        const char *theirs = att != NULL ? att->spec_id : NULL;
        if (theirs != NULL && strcmp(theirs, spec) != 0 &&
            !lf_spec_continues(att, s->plan, newest != NULL ? &newest->accepted : NULL))
            continue; /* made under other settings: another curve */
        rc = take(ctx, inc->dir, begins_anew(inc), err);
    }
    if (rc == 0 && s->n_incs == 0 && s->result_dir != NULL)
        rc = take(ctx, s->result_dir, false, err);
    return rc;
}

static int read_start(void *ctx, const char *dir, bool anew, lf_err *err)
{
    lf_metric_rows *records = ctx;
    if (anew)
        lf_metric_rows_cut(records, 0);
    return read_file(records, dir, err);
}

int lf_metrics_records(lf_metric_rows *records, const lf_stage_view *s, lf_err *err)
{
    memset(records, 0, sizeof *records);
    int rc = lf_series_starts(s, read_start, records, err);
    if (rc < 0)
        lf_metric_rows_fini(records);
    return rc;
}

int lf_metrics_points(lf_points *out, const lf_metric_rows *records, const char *key, lf_err *err)
{
    size_t n = records->n;
    lf_points p = {.x = lf_malloc(n + 1, sizeof(double), err),
                   .y = lf_malloc(n + 1, sizeof(double), err),
                   .n = 0};
    if (p.x == NULL || p.y == NULL) {
        lf_points_fini(&p);
        return LF_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        if (!lf_raw_number(&p.y[p.n], records->v[i].values, key))
            continue;
        p.x[p.n++] = records->v[i].step.v;
    }
    *out = p;
    return 0;
}

void lf_points_fini(lf_points *p)
{
    free(p->x);
    free(p->y);
    memset(p, 0, sizeof *p);
}
