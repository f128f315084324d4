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
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "flow/record/record.h"

#define TAIL_BYTES  ((size_t)1 << 16)
#define MAX_RECORDS 2000000

static uint32_t u32le(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Frames can only be read forwards, so find one by its checksum near the end and go on from
 * there. */
json_t *lf_metrics_last(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    json_t *last = NULL;
    unsigned char *tail = lf_malloc(TAIL_BYTES, 1, NULL);
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
            json_t *j = json_loadb((const char *)tail + pos + LF_FRAME_HEAD, len, 0, NULL);
            if (json_is_object(j)) {
                json_decref(last);
                last = json_incref(j);
            }
            json_decref(j);
            pos += LF_FRAME_HEAD + len;
        }
    }
    if (fd >= 0)
        close(fd);
    free(tail);
    return last;
}

/* Does a start say here where it begins (engine/train/run.h)? Then it is no record of a step. */
static bool says_resumed(const json_t *record)
{
    return json_is_true(json_object_get(record, "resumed"));
}

static int take_first(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)offset;
    (void)err;
    json_t *j = json_loadb(payload, n, 0, NULL);
    if (says_resumed(j)) {
        json_decref(j);
        return 1;
    }
    *(json_t **)ctx = j;
    return 0;
}

json_t *lf_metrics_first(const char *path)
{
    json_t *first = NULL;
    int64_t offset = 0;
    if (lf_frame_read(path, &offset, take_first, &first, NULL) >= 0 && json_is_object(first))
        return first;
    json_decref(first);
    return NULL;
}

struct reading {
    json_t *records;
    double first_step; /* of this file; negative before the first record */
};

/* A start replaces what earlier ones wrote behind the step where it begins: the one that it
 * says, or the one before its first record. */
static void drop_behind(json_t *records, double step)
{
    size_t n = json_array_size(records);
    while (n > 0 &&
           json_number_value(json_object_get(json_array_get(records, n - 1), "step")) > step)
        json_array_remove(records, --n);
}

static int on_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)offset;
    struct reading *r = ctx;
    json_t *j = json_loadb(payload, n, 0, NULL);
    if (!json_is_object(j) || !json_is_number(json_object_get(j, "step"))) {
        json_decref(j);
        return 1; /* other records have no place in a series */
    }
    double step = json_number_value(json_object_get(j, "step"));
    if (says_resumed(j)) {
        drop_behind(r->records, step);
        json_decref(j);
        return 1;
    }
    if (r->first_step < 0) {
        r->first_step = step;
        drop_behind(r->records, step - 1);
    }
    if (json_array_size(r->records) >= MAX_RECORDS) {
        json_decref(j);
        return 0;
    }
    return json_array_append_new(r->records, j) < 0
               ? lf_fail(err, LF_ENOMEM, "out of memory for metrics")
               : 1;
}

static int read_file(json_t *records, const char *dir, lf_err *err)
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

json_t *lf_metrics_records(const lf_stage_view *s, lf_err *err)
{
    json_t *records = json_array();
    int rc = records == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    const char *spec = s->plan->spec_id;
    for (size_t i = 0; rc == 0 && i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        const struct lf_attempt_rec *att = lf_attempt_of(s, inc), *newest = lf_attempt_newest(s);
        const char *theirs = att != NULL ? att->spec_id : NULL;
        if (theirs != NULL && strcmp(theirs, spec) != 0 &&
            !lf_spec_continues(att, s->plan, newest != NULL ? &newest->accepted : NULL))
            continue; /* made under other settings: another curve */
        if (begins_anew(inc))
            json_array_clear(records);
        rc = read_file(records, inc->dir, err);
    }
    if (rc == 0 && s->n_incs == 0 && s->result_dir != NULL)
        rc = read_file(records, s->result_dir, err);
    if (rc < 0) {
        json_decref(records);
        return NULL;
    }
    return records;
}

int lf_metrics_points(lf_points *out, const json_t *records, const char *key, lf_err *err)
{
    size_t n = json_array_size(records);
    lf_points p = {.x = lf_malloc(n + 1, sizeof(double), err),
                   .y = lf_malloc(n + 1, sizeof(double), err),
                   .n = 0};
    if (p.x == NULL || p.y == NULL) {
        lf_points_fini(&p);
        return LF_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(records, i), *v = json_object_get(r, key);
        if (!json_is_number(v))
            continue;
        p.x[p.n] = json_number_value(json_object_get(r, "step"));
        p.y[p.n++] = json_number_value(v);
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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *lf_metrics_keys(const json_t *records)
{
    const char *names[256];
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(records); i++) {
        const char *k;
        json_t *v;
        json_object_foreach(json_array_get(records, i), k, v)
        {
            size_t j = 0;
            while (j < n && strcmp(names[j], k) != 0)
                j++;
            if (j == n && n < 256 && json_is_number(v) && strcmp(k, "step") != 0 &&
                strcmp(k, "t") != 0)
                names[n++] = k;
        }
    }
    if (n > 1)
        qsort(names, n, sizeof names[0], by_name);
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_string(names[i]));
    return out;
}
