/* SPDX-License-Identifier: Apache-2.0
 *
 * See made.h.
 */
#include "config.h"

#include "flow/record/made.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"

#define LINES_MAX_BYTES ((size_t)64 << 20)
#define MAX_SAMPLES     100000

/* ---- ranks ---- */

static const struct lf_fields machine_fields =
    LF_FIELDS(lf_machine, LF_MEMBERS(lf_machine, rank, host, processor, isa, threads, cpu_s));

static int is_rank(const struct dirent *e)
{
    return lf_str_has_suffix(e->d_name, ".json") && strcmp(e->d_name, "cause.json") != 0 &&
           strcmp(e->d_name, LF_PROGRESS_FILE) != 0;
}

/* name: HOST.PID.json, which stands beside gpu.HOST.PID. */
static int add_gpu(lf_machine *m, const char *dir, const char *name, lf_err *err)
{
    char path[PATH_MAX];
    lf_buf text;
    lf_buf_init(&text);
    int rc = lf_path_set(path, err, "%s/gpu.%.*s", dir, (int)(strlen(name) - 5), name);
    if (rc == 0 && lf_io_read_file(path, 4096, &text, NULL) == 0 && text.len > 0)
        rc = lf_text_set(&m->gpu, lf_text_clean(text.data), "gpu", err);
    lf_buf_fini(&text);
    return rc;
}

static int add_machine(lf_machines *out, const char *dir, const char *name, lf_err *err)
{
    lf_machine *read = NULL, *row;
    if (lf_fields_load(&read, &machine_fields, dir, name, NULL) < 0 || read == NULL)
        return 0; /* it is being written: the next look finds it */
    int rc = (row = lf_rows_add(out, sizeof *row, err)) == NULL ? LF_ENOMEM : 0;
    if (rc < 0) {
        lf_fields_free(read, &machine_fields);
        return rc;
    }
    *row = *read;
    free(read);
    return add_gpu(row, dir, name, err);
}

int lf_machines_load(lf_machines *out, const char *start_dir, lf_err *err)
{
    char dir[PATH_MAX];
    struct dirent **names = NULL;
    memset(out, 0, sizeof *out);
    int rc = lf_path_set(dir, err, "%s/ranks", start_dir);
    int n = rc == 0 ? scandir(dir, &names, is_rank, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = add_machine(out, dir, names[i]->d_name, err);
        free(names[i]);
    }
    free(names);
    if (rc < 0)
        lf_machines_fini(out);
    return rc;
}

void lf_machines_fini(lf_machines *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->v[i].gpu);
        lf_fields_fini(&m->v[i], &machine_fields);
    }
    free(m->v);
    memset(m, 0, sizeof *m);
}

/* ---- checkpoints ---- */

static const struct lf_fields arithmetic_fields =
    LF_FIELDS(struct lf_arithmetic,
              LF_MEMBERS(struct lf_arithmetic, backend, compute, kernels, numeric, optimizer_state,
                         device, products, threads, ranks, micro_batch));
static const struct lf_fields optimizer_fields =
    LF_FIELDS(struct lf_optimizer_said,
              LF_MEMBERS(struct lf_optimizer_said, beta1, beta2, eps, weight_decay, clip));
static const struct lf_fields schedule_fields =
    LF_FIELDS(struct lf_schedule_said,
              LF_MEMBERS(struct lf_schedule_said, kind, peak, min, warmup, total, decay));
static const struct lf_fields trained_fields =
    LF_FIELDS(lf_trained, LF_MEMBERS(lf_trained, model, step, tokens, samples, tokenizer_sha256),
              LF_RECORD(lf_trained, fingerprint, arithmetic_fields),
              LF_RECORD(lf_trained, optimizer, optimizer_fields),
              LF_RECORD(lf_trained, schedule, schedule_fields));

int lf_trained_load(lf_trained **out, const char *checkpoint_dir, lf_err *err)
{
    return lf_fields_load(out, &trained_fields, checkpoint_dir, "state.json", err);
}

void lf_trained_free(lf_trained *t)
{
    lf_fields_free(t, &trained_fields);
}

const char *lf_schedule_word(int64_t kind)
{
    static const char *const words[] = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"};
    return kind >= 0 && kind < (int64_t)(sizeof words / sizeof words[0]) ? words[kind] : NULL;
}

/* ---- options ---- */

struct made_by {
    lf_pairs options;
};
static const struct lf_fields made_by_fields =
    LF_FIELDS(struct made_by, LF_MEMBERS(struct made_by, options));

int lf_made_options_load(lf_pairs *out, const char *start_dir, const char *name, lf_err *err)
{
    char file[256];
    struct made_by *m = NULL;
    memset(out, 0, sizeof *out);
    snprintf(file, sizeof file, "out/.%s.made_by.json", name);
    int rc = lf_fields_load(&m, &made_by_fields, start_dir, file, err);
    if (m != NULL)
        *out = m->options;
    free(m);
    return rc;
}

/* ---- datasets ---- */

static const struct lf_fields split_fields =
    LF_FIELDS(struct lf_split_said, LF_MEMBERS(struct lf_split_said, docs, tokens, trained,
                                               text_bytes, bytes_per_token, unigram_entropy));
static const struct lf_fields source_fields =
    LF_FIELDS(lf_source_said, LF_MEMBERS(lf_source_said, path, bytes));
static const struct lf_fields dataset_fields = LF_FIELDS(
    lf_dataset, LF_MEMBERS(lf_dataset, vocab_size, tokenizer_sha256),
    LF_LIST(lf_dataset, sources, source_fields), LF_RECORD(lf_dataset, train, split_fields),
    LF_RECORD(lf_dataset, valid, split_fields));

/* The splits stand one level deeper than the rest. */
int lf_dataset_of(lf_dataset **out, json_t *meta, lf_err *err)
{
    *out = NULL;
    if (!json_is_object(meta) || json_object_get(meta, "splits") == NULL)
        return 0;
    json_t *flat = json_copy(meta);
    lf_dataset *d = lf_calloc(1, sizeof *d, err);
    int rc =
        flat == NULL || d == NULL || json_object_update(flat, json_object_get(meta, "splits")) != 0
            ? lf_fail(err, LF_ENOMEM, "out of memory")
            : lf_fields_read(d, &dataset_fields, flat, "a manifest", err);
    json_decref(flat);
    if (rc < 0)
        free(d);
    else
        *out = d;
    return rc;
}

struct manifest {
    json_t *meta;
};
static const struct lf_fields manifest_fields =
    LF_FIELDS(struct manifest, LF_MEMBERS(struct manifest, meta));

int lf_dataset_load(lf_dataset **out, const char *dir, lf_err *err)
{
    struct manifest *m = NULL;
    *out = NULL;
    int rc = lf_fields_load(&m, &manifest_fields, dir, "manifest.json", err);
    if (rc == 0 && m != NULL)
        rc = lf_dataset_of(out, m->meta, err);
    lf_fields_free(m, &manifest_fields);
    return rc;
}

void lf_dataset_free(lf_dataset *d)
{
    lf_fields_free(d, &dataset_fields);
}

/* ---- texts ---- */

const struct lf_fields lf_text_line_fields = LF_FIELDS(
    lf_text_line, LF_MEMBERS_OPT(lf_text_line, step, id, sample, prompt, text, answer, score,
                                 prompt_tokens, token_ids, finish_reason, resumed));

/* A picture is a path, or an object with one. */
static int add_image(lf_text_line *line, const json_t *v, lf_err *err)
{
    static const char *const names[] = {"path", "image", "url", "image_url"};
    for (size_t i = 0; i < sizeof names / sizeof *names && json_is_object(v); i++)
        if (json_object_get(v, names[i]) != NULL)
            v = json_object_get(v, names[i]);
    return json_is_string(v) ? lf_texts_add(&line->images, json_string_value(v), err) : 0;
}

/* Of a message in parts the first text; its pictures, where the line has no list of them. */
static int read_parts(lf_text_line *line, const json_t *parts, const char **text, lf_err *err)
{
    const bool listed = line->images.n > 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (*text == NULL)
            *text = json_string_value(json_object_get(part, "text"));
        rc = listed || !json_is_object(part) ? 0 : add_image(line, part, err);
    }
    return rc;
}

static int add_images(lf_text_line *line, const json_t *o, lf_err *err)
{
    const json_t *list = json_object_get(o, "images");
    int rc = json_is_array(list) ? 0 : add_image(line, list, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
        rc = add_image(line, json_array_get(list, i), err);
    return rc;
}

/* The text of a request of another shape: the last message of a chat. */
static int add_last_message(lf_text_line *line, const json_t *o, lf_err *err)
{
    const json_t *list = json_object_get(o, "messages");
    const size_t n = json_array_size(list);
    const json_t *content = n > 0 ? json_object_get(json_array_get(list, n - 1), "content") : NULL;
    const char *text = json_string_value(content);
    int rc = read_parts(line, content, &text, err);
    return rc == 0 && line->prompt == NULL && text != NULL
               ? lf_text_set(&line->prompt, text, "messages", err)
               : rc;
}

static int add_line(lf_text_lines *out, size_t number, const char *text, size_t n, lf_err *err)
{
    json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    lf_text_line *row = NULL;
    if (!json_is_object(o)) {
        json_decref(o);
        return 0;
    }
    row = lf_rows_add(out, sizeof *row, err);
    int rc = row == NULL ? LF_ENOMEM : lf_fields_read(row, &lf_text_line_fields, o, "a line", err);
    if (rc == 0) {
        row->number = number;
        rc = add_images(row, o, err);
    }
    if (rc == 0)
        rc = add_last_message(row, o, err);
    json_decref(o);
    return rc;
}

/* What fits of a file; a stage may be appending to it. */
static int read_part(lf_buf *b, const char *path, lf_err *err)
{
    char block[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : lf_fail_errno(err, "%s", path);
    ssize_t got = 0;
    while (b->len < LINES_MAX_BYTES && (got = read(fd, block, sizeof block)) > 0)
        lf_buf_add(b, block, (size_t)got);
    int rc = got < 0 ? lf_fail_errno(err, "reading %s", path) : lf_buf_check(b, err);
    close(fd);
    return rc;
}

int lf_text_lines_load(lf_text_lines *out, size_t *more, const char *path, size_t most, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    memset(out, 0, sizeof *out);
    *more = 0;
    int rc = read_part(&b, path, err);
    const char *at = b.data, *end;
    for (size_t number = 1; rc == 0 && at != NULL && (end = strchr(at, '\n')) != NULL; number++) {
        if (out->n < most)
            rc = add_line(out, number, at, (size_t)(end - at), err);
        else
            (*more)++;
        at = end + 1;
    }
    lf_buf_fini(&b);
    if (rc < 0)
        lf_text_lines_fini(out);
    return rc;
}

void lf_text_line_fini(lf_text_line *l)
{
    lf_fields_fini(l, &lf_text_line_fields);
    lf_texts_fini(&l->images);
}

size_t lf_text_line_tokens(const lf_text_line *l)
{
    return json_array_size(l->token_ids);
}

void lf_text_lines_fini(lf_text_lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        lf_text_line_fini(&l->v[i]);
    free(l->v);
    memset(l, 0, sizeof *l);
}

static void drop_behind(lf_text_lines *l, int64_t step)
{
    while (l->n > 0 && l->v[l->n - 1].step.v > step)
        lf_text_line_fini(&l->v[--l->n]);
}

/* Takes what is in the line. A start that says nothing of where it begins goes on behind the step
 * before its first sample. */
static int take_sample(lf_text_lines *all, lf_text_line *line, bool first, lf_err *err)
{
    lf_text_line *row = NULL;
    if (line->step.given && (line->resumed || first))
        drop_behind(all, line->resumed ? line->step.v : line->step.v - 1);
    if (!line->resumed && line->step.given && line->text != NULL) {
        row = lf_rows_add(all, sizeof *row, err);
        if (row == NULL)
            return LF_ENOMEM;
        *row = *line;
        memset(line, 0, sizeof *line);
    }
    return 0;
}

int lf_samples_add(lf_text_lines *all, const char *start_dir, lf_err *err)
{
    char path[PATH_MAX];
    lf_text_lines l;
    size_t more;
    int rc = lf_path_set(path, err, "%s/samples.jsonl", start_dir);
    if (rc == 0)
        rc = lf_text_lines_load(&l, &more, path, MAX_SAMPLES, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < l.n; i++)
        rc = take_sample(all, &l.v[i], i == 0, err);
    lf_text_lines_fini(&l);
    return rc;
}
