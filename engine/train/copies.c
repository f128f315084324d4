/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of the metrics for other programs: see copies.h. */
#include "engine/train/copies.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/base/tfevents.h"
#include "engine/train/run.h"

struct lf_copies {
    const struct lf_train_sink *sink;
    lf_tfevents *events; /* NULL: none */
    int lines;           /* -1: none */
    const char *lines_path;
    bool torn;                    /* the last line may be a part of one */
    bool told_events, told_lines; /* a failure has been told */
};

/* The first failure of a copy is told, the others would fill the log. */
static void tell(const struct lf_copies *c, bool *told, const char *option, const lf_err *err)
{
    char text[1200];
    if (*told || !c->sink || !c->sink->log)
        return;
    *told = true;
    snprintf(text, sizeof text, "%s: %s; the run goes on without", option, err->text);
    c->sink->log(c->sink->user, 1, text);
}

/* ---- JSON lines ---- */

/* Does the file end within a line, which a start that was killed or a full disk left behind? */
static bool within_line(int fd)
{
    struct stat st;
    char last = '\n';
    return fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 &&
           last != '\n';
}

static void add_line(lf_copies *c, const char *record, size_t n)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    if (c->lines < 0)
        return;
    lf_buf_init(&b);
    if (c->torn && within_line(c->lines))
        lf_buf_addc(&b, '\n');
    lf_buf_add(&b, record, n);
    lf_buf_addc(&b, '\n');
    int rc = lf_buf_check(&b, &err);
    if (rc == 0)
        rc = lf_io_write_all(c->lines, b.data, b.len, c->lines_path, &err);
    c->torn = rc != 0;
    if (rc != 0)
        tell(c, &c->told_lines, "metrics_jsonl", &err);
    lf_buf_fini(&b);
}

static void open_lines(lf_copies *c, const char *path, int64_t step)
{
    char text[80];
    lf_err err = LF_ERR_INIT;
    c->lines_path = path;
    /* A pipe that nobody empties must not hold the training up. */
    c->lines = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (c->lines < 0) {
        lf_fail_errno(&err, "cannot open %s for writing", path);
        tell(c, &c->told_lines, "metrics_jsonl", &err);
        return;
    }
    c->torn = true;
    const int n = snprintf(text, sizeof text, "{\"step\":%lld,\"resumed\":true}", (long long)step);
    if (step > 0)
        add_line(c, text, (size_t)n);
}

/* ---- TensorBoard ---- */

/* The starts of one stage of one run share a directory, those of another one do not. */
static char *directory(const char *dir, lf_err *err)
{
    const char *run = getenv("LF_RUN"), *stage = getenv("LF_STAGE");
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_adds(&b, dir);
    if (run && stage)
        lf_buf_addf(&b, "/%s/%s", run, stage);
    char *text = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return text;
}

static void open_events(lf_copies *c, const char *dir, int64_t step)
{
    lf_err err = LF_ERR_INIT;
    char *own = directory(dir, &err);
    c->events = own ? lf_tfevents_open(own, lf_wall_s(), &err) : NULL;
    if (!c->events || lf_tfevents_start(c->events, lf_wall_s(), step + 1, &err) != 0)
        tell(c, &c->told_events, "tensorboard", &err);
    free(own);
}

static void add_points(lf_copies *c, json_t *record)
{
    lf_err err = LF_ERR_INIT;
    int64_t step = 0;
    double wall_s = lf_wall_s();
    const char *key;
    json_t *v;
    int rc = lf_json_get_i64(&step, record, "step", true, "record", &err);
    if (rc == 0)
        rc = lf_json_get_f64(&wall_s, record, "t", false, "record", &err);
    json_object_foreach(record, key, v)
    {
        if (json_is_number(v))
            lf_tfevents_metric(c->events, key, json_number_value(v));
    }
    if (rc == 0)
        rc = lf_tfevents_flush(c->events, wall_s, step, &err);
    if (rc != 0)
        tell(c, &c->told_events, "tensorboard", &err);
}

/* ---- the object ---- */

lf_copies *lf_copies_open(const struct lf_copies_opts *o, int64_t step,
                          const struct lf_train_sink *sink)
{
    if (!o->tensorboard && !o->jsonl)
        return NULL;
    lf_copies *c = lf_calloc(1, sizeof *c, NULL);
    if (!c)
        return NULL;
    c->sink = sink;
    c->lines = -1;
    if (o->tensorboard)
        open_events(c, o->tensorboard, step);
    if (o->jsonl)
        open_lines(c, o->jsonl, step);
    return c;
}

void lf_copies_record(lf_copies *c, const char *record, size_t n)
{
    lf_err err = LF_ERR_INIT;
    if (!c)
        return;
    add_line(c, record, n);
    if (!c->events)
        return;
    json_t *o = lf_json_load_text(record, n, "record", &err);
    if (o)
        add_points(c, o);
    else
        tell(c, &c->told_events, "tensorboard", &err);
    json_decref(o);
}

/* Four blanks before each line keep what looks like Markdown as it is. */
void lf_copies_text(lf_copies *c, int64_t step, const char *tag, const char *text, size_t n)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    if (!c || !c->events)
        return;
    lf_buf_init(&b);
    lf_buf_adds(&b, "    ");
    for (size_t i = 0; i < n; i++) {
        lf_buf_addc(&b, text[i]);
        if (text[i] == '\n')
            lf_buf_adds(&b, "    ");
    }
    int rc = lf_buf_check(&b, &err);
    if (rc == 0)
        rc = lf_tfevents_text(c->events, lf_wall_s(), step, tag, b.data, b.len, &err);
    if (rc != 0)
        tell(c, &c->told_events, "tensorboard", &err);
    lf_buf_fini(&b);
}

void lf_copies_close(lf_copies *c)
{
    if (!c)
        return;
    lf_tfevents_close(c->events);
    if (c->lines >= 0)
        close(c->lines);
    free(c);
}
