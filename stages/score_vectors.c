/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors of scores.jsonl as one array of an HDF5 file. */
#include "stages/score_vectors.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/store/h5.h"

/* A row that has an error has NANs. */
static int take(float *row, int64_t width, const char *line, size_t len, const char *path,
                lf_err *err)
{
    json_t *o = lf_json_load_text(line, len, path, err), *v = json_object_get(o, "embedding");
    int rc = o ? 0 : LF_EFORMAT;
    if (rc == 0 && !v && !json_object_get(o, "error"))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s has a line without a vector: it was made with give = scores", path);
    if (rc == 0 && v && (int64_t)json_array_size(v) != width)
        rc = lf_fail(err, LF_EFORMAT, "%s: a vector of %zu numbers, where the model has %lld", path,
                     json_array_size(v), (long long)width);
    for (int64_t i = 0; i < width && rc == 0; i++)
        row[i] = v ? (float)json_number_value(json_array_get(v, (size_t)i)) : NAN;
    json_decref(o);
    return rc;
}

static int put_all(int to, uint64_t offset, const struct lf_score_vectors *s, lf_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int64_t i = 0;
    const size_t bytes = (size_t)s->width * sizeof(float);
    float *row = lf_malloc((size_t)s->width, sizeof *row, err);
    FILE *f = fopen(s->lines, "re");
    int rc = !row ? LF_ENOMEM : f ? 0 : lf_fail_errno(err, "cannot open %s", s->lines);
    for (; rc == 0 && i < s->rows && (len = getline(&line, &cap, f)) > 0; i++) {
        rc = take(row, s->width, line, (size_t)len - (line[len - 1] == '\n'), s->lines, err);
        if (rc == 0 &&
            pwrite(to, row, bytes, (off_t)(offset + (uint64_t)i * bytes)) != (ssize_t)bytes)
            rc = lf_fail_errno(err, "cannot write %s", s->file);
    }
    if (rc == 0 && i != s->rows)
        rc = lf_fail(err, LF_EFORMAT, "%s has %lld lines for %lld rows", s->lines, (long long)i,
                     (long long)s->rows);
    if (f)
        fclose(f);
    free(line);
    free(row);
    return rc;
}

int lf_score_write_vectors(const struct lf_score_vectors *s, lf_err *err)
{
    const int64_t dims[] = {s->rows, s->width};
    uint64_t offset = 0;
    lf_h5 *f = NULL;
    (void)unlink(s->file); /* of a run that was stopped there */
    int rc = lf_h5_create(&f, s->file, err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "lf_format", "lf-embeddings-1", err);
    if (rc == 0)
        rc = lf_h5_put_extent(f, "embedding", LF_H5_F32, 2, dims, &offset, err);
    const int closed = lf_h5_close(f, rc == 0 ? err : NULL);
    rc = rc != 0 ? rc : closed;
    const int to = rc == 0 ? open(s->file, O_WRONLY | O_CLOEXEC) : -1;
    if (rc == 0 && to < 0)
        rc = lf_fail_errno(err, "cannot open %s", s->file);
    if (rc == 0)
        rc = put_all(to, offset, s, err);
    if (rc == 0 && fsync(to) != 0)
        rc = lf_fail_errno(err, "cannot write %s", s->file);
    if (to >= 0)
        close(to);
    return rc;
}
