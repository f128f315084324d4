/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples as JSON lines: see sample_file.h. */
#include "engine/train/sample_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

#define NAME "samples.jsonl"

struct lf_sample_file {
    int fd;
    char *path;
};

/* Beside a file "metrics", as a start has one, else behind the name of the metrics: stages that
 * share a directory share no samples. Without metrics in out. */
static char *path_of(const char *metrics, const char *out, lf_err *err)
{
    const char *slash = metrics ? strrchr(metrics, '/') : NULL;
    const char *base = slash ? slash + 1 : metrics;
    lf_buf b;
    lf_buf_init(&b);
    if (!metrics)
        lf_buf_addf(&b, "%s/", out);
    else if (strcmp(base, "metrics") != 0)
        lf_buf_addf(&b, "%s.", metrics);
    else
        lf_buf_add(&b, metrics, (size_t)(base - metrics));
    lf_buf_adds(&b, NAME);
    char *path = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return path;
}

/* false: the line is no sample. */
static bool step_of(int64_t *step, const char *line, size_t n)
{
    json_t *o = lf_json_load_text(line, n, "sample", NULL);
    const bool is = o && lf_json_get_i64(step, o, "step", true, "sample", NULL) == 0;
    json_decref(o);
    return is;
}

/* Finds the end of the leading lines that stay. */
static int find_end(FILE *f, const char *path, int64_t last, int64_t *end, lf_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    *end = 0;
    for (;;) {
        int64_t step = 0;
        const ssize_t n = getline(&line, &cap, f);
        if (n < 0) {
            rc = ferror(f) ? lf_fail_errno(err, "%s", path) : 0;
            break;
        }
        const bool whole = line[n - 1] == '\n', is = whole && step_of(&step, line, (size_t)n - 1);
        if (whole && !is && *end == 0)
            rc = lf_fail(err, LF_EEXIST,
                         "%s holds something else than samples of a training, which are written "
                         "there; move it away, or write the metrics to another directory",
                         path);
        if (!is || step > last)
            break;
        *end += n;
    }
    free(line);
    return rc;
}

static int cut(const char *path, int64_t last, int64_t *end, lf_err *err)
{
    FILE *f = fopen(path, "re");
    *end = 0;
    if (!f)
        return lf_io_exists(path) ? lf_fail_errno(err, "%s", path) : 0;
    int rc = find_end(f, path, last, end, err);
    fclose(f);
    if (rc == 0 && truncate(path, (off_t)*end) != 0)
        rc = lf_fail_errno(err, "%s", path);
    return rc;
}

static int open_at(lf_sample_file *f, int64_t step, bool resumed, lf_err *err)
{
    char text[80];
    int64_t end = 0;
    int rc = cut(f->path, step, &end, err);
    if (rc != 0)
        return rc;
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (f->fd < 0)
        return lf_fail_errno(err, "cannot open %s for writing", f->path);
    const int n =
        snprintf(text, sizeof text, "{\"step\":%lld,\"resumed\":true}\n", (long long)step);
    rc = end == 0 && resumed ? lf_sample_file_add(f, text, (size_t)n, err) : 0;
    return rc != 0 ? rc : lf_io_fsync_parent(f->path, err);
}

lf_sample_file *lf_sample_file_open(const char *metrics, const char *out, int64_t step,
                                    bool resumed, lf_err *err)
{
    lf_sample_file *f = lf_calloc(1, sizeof *f, err);
    if (!f)
        return NULL;
    f->fd = -1;
    f->path = path_of(metrics, out, err);
    if (f->path && open_at(f, step, resumed, err) == 0)
        return f;
    lf_sample_file_close(f);
    return NULL;
}

int lf_sample_file_add(lf_sample_file *f, const char *lines, size_t n, lf_err *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return lf_fail_errno(err, "%s", f->path);
    int rc = lf_io_write_all(f->fd, lines, n, f->path, err);
    if (rc != 0 && ftruncate(f->fd, st.st_size) != 0)
        return rc; /* the next start cuts what is torn */
    return rc;
}

int lf_sample_file_sync(lf_sample_file *f, lf_err *err)
{
    return f && fdatasync(f->fd) != 0 ? lf_fail_errno(err, "%s", f->path) : 0;
}

void lf_sample_file_close(lf_sample_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f);
}
