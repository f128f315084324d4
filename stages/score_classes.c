/* SPDX-License-Identifier: Apache-2.0
 *
 * See score_classes.h. */
#include "stages/score_classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

#define MOST_BYTES ((size_t)64 << 20)

/* ---- names ---- */

static bool there(json_t *names, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(names, i, v) if (strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static int add_name(json_t *names, char *line, const char *path, lf_err *err)
{
    size_t n = strlen(line);
    while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
        line[--n] = 0;
    if (!n)
        return 0;
    if (there(names, line))
        return lf_fail(err, LF_EINVAL, "%s: the class %.80s is there twice", path, line);
    json_t *v = json_string(line);
    if (!v)
        return lf_fail(err, LF_EFORMAT, "%s: a name is no UTF-8", path);
    return json_array_append_new(names, v) ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* The caller owns the list. */
static int read_names(json_t **out, const char *path, lf_err *err)
{
    lf_buf text;
    json_t *names = json_array();
    char *rest = NULL;
    lf_buf_init(&text);
    int rc = names ? lf_io_read_file(path, MOST_BYTES, &text, err)
                   : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && text.len && memchr(text.data, 0, text.len))
        rc = lf_fail(err, LF_EFORMAT, "%s has a zero byte; it is a text with a name on each line",
                     path);
    for (char *line = rc == 0 ? strtok_r(text.data, "\n", &rest) : NULL; line && rc == 0;
         line = strtok_r(NULL, "\n", &rest))
        rc = add_name(names, line, path, err);
    if (rc == 0 && json_array_size(names) < 2)
        rc = lf_fail(err, LF_EINVAL,
                     "%s has %zu names of classes, one on each line; there are at least two", path,
                     json_array_size(names));
    lf_buf_fini(&text);
    *out = names;
    return rc;
}

/* ---- captions ---- */

struct captions {
    const struct lf_score_classes *c;
    lf_tok_state *state;
    lf_ids ids;
    int32_t *tokens; /* of all captions */
    lf_rm_text *text;
    size_t *end; /* [captions] of each in ids */
};

static int encode(struct captions *q, const char *caption, const char *name, size_t i, lf_err *err)
{
    const char *at = strstr(caption, "{}");
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_add(&text, caption, (size_t)(at - caption));
    lf_buf_adds(&text, name);
    lf_buf_adds(&text, at + 2);
    int rc = lf_buf_check(&text, err);
    if (rc == 0)
        rc = lf_tokenizer_encode(q->state, text.data, text.len, q->c->flags, &q->ids, NULL, err);
    if (rc == 0 && q->c->eos >= 0)
        rc = lf_ids_add(&q->ids, (uint32_t)q->c->eos, err);
    q->end[i] = q->ids.n;
    lf_buf_fini(&text);
    return rc;
}

/* Captions of a class stand behind each other. */
static int encode_all(struct captions *q, const char *const *caption, size_t n, json_t *names,
                      lf_err *err)
{
    const size_t all = json_array_size(names) * n;
    q->end = lf_calloc(all, sizeof *q->end, err);
    q->text = lf_calloc(all, sizeof *q->text, err);
    int rc = q->end && q->text ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < all && rc == 0; i++)
        rc = encode(q, caption[i % n], json_string_value(json_array_get(names, i / n)), i, err);
    if (rc == 0 && !(q->tokens = lf_calloc(q->ids.n + 1, sizeof *q->tokens, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < q->ids.n && rc == 0; i++)
        q->tokens[i] = (int32_t)q->ids.v[i];
    for (size_t i = 0, at = 0; i < all && rc == 0; at = q->end[i++])
        q->text[i] = (lf_rm_text){.tokens = q->tokens + at, .n = q->end[i] - at};
    return rc;
}

/* The mean of n vectors of length 1 for each class, in place. */
static void add_up(float *v, size_t classes, size_t n, size_t width)
{
    for (size_t k = 0; k < classes; k++)
        for (size_t c = 0; c < width; c++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)v[(k * n + i) * width + c];
            v[k * width + c] = (float)(sum / (double)n);
        }
}

int lf_score_add_classes(lf_rm *rm, const struct lf_score_classes *c, lf_err *err)
{
    static const char *const usual[] = {"a photo of a {}."};
    const char *const *caption = c->n_captions ? c->caption : usual;
    const size_t n = c->n_captions ? c->n_captions : 1, width = (size_t)lf_rm_width(rm);
    struct captions q = {.c = c};
    json_t *names = NULL;
    float *v = NULL;
    for (size_t i = 0; i < n; i++)
        if (!strstr(caption[i], "{}"))
            return lf_fail(err, LF_EINVAL,
                           "class_caption = %.80s has no {}, which the name of the class stands "
                           "for",
                           caption[i]);
    int rc = read_names(&names, c->file, err);
    if (rc == 0 && !(q.state = lf_tok_state_create(c->tok, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = encode_all(&q, caption, n, names, err);
    const size_t classes = json_array_size(names);
    if (rc == 0 && !(v = lf_calloc(classes * n * width, sizeof *v, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_rm_score(rm, q.text, classes * n, v, NULL, err);
    if (rc == 0) {
        add_up(v, classes, n, width);
        rc = lf_rm_classes(rm, v, (int64_t)classes, names, err);
        names = NULL;
    }
    json_decref(names);
    lf_tok_state_destroy(q.state);
    lf_ids_fini(&q.ids);
    free(q.tokens);
    free(q.text);
    free(q.end);
    free(v);
    return rc;
}
