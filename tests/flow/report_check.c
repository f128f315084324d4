/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader of the pages of `loong-flow report` for tests, with C alone.
 *
 *   report_check page FILE            every element that is opened is closed, in the right order,
 *                                     and nothing of the page would be loaded from anywhere
 *   report_check same FILE METRICS    the numbers of a stage in the page are those that
 *                                     `loong-flow metrics STAGE --json` printed into METRICS
 *   report_check frames FILE          lines of standard input become a file of metrics
 *
 * The exit code is 0 or 1, and what is wrong stands on standard output.
 */
#include "config.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/str.h"

enum { DEPTH = 64, NAME = 32 };

/* ---- elements ---- */

struct stack {
    char name[DEPTH][NAME];
    int n;
};

static bool is_void(const char *name)
{
    static const char *const names[] = {"meta", "br", "input", "hr", "img", "link"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* What a browser would fetch: attributes that name a place, and any address. */
static const char *const in_tags[] = {" src=",    " href=", " srcset=", "url(",    "http://",
                                      "https://", "<link",  "<img",     "<iframe", NULL};
/* A picture within the page loads nothing. */
static const char own_picture[] = "<img class=\"seen\" src=\"data:image/";
static const char *const in_style[] = {"url(", "@import", "http://", "https://", NULL};
static const char *const in_script[] = {"http://", "https://", "fetch(",    "XMLHttpRequest",
                                        "import(", ".src",     "WebSocket", NULL};

static bool loads(const char *from, size_t n, const char *const *words)
{
    for (; *words != NULL; words++)
        for (size_t i = 0, k = strlen(*words); i + k <= n; i++)
            if (strncasecmp(from + i, *words, k) == 0) {
                printf("the page would load something: %.*s\n", (int)(n - i < 80 ? n - i : 80),
                       from + i);
                return true;
            }
    return false;
}

/* A number of a drawing is one that a browser can read. */
static bool bad_number(const char *tag, size_t n)
{
    for (size_t i = 0; i + 4 < n; i++)
        if ((tag[i] == '"' || tag[i] == ' ' || tag[i] == ':') &&
            (strncmp(tag + i + 1, "nan", 3) == 0 || strncmp(tag + i + 1, "inf", 3) == 0 ||
             strncmp(tag + i + 1, "-nan", 4) == 0) &&
            !isalpha((unsigned char)tag[i + 4])) {
            printf("no number: %.*s\n", (int)(n < 120 ? n : 120), tag);
            return true;
        }
    return false;
}

static int closed(struct stack *s, const char *name)
{
    if (s->n > 0 && strcmp(s->name[s->n - 1], name) == 0) {
        s->n--;
        return 0;
    }
    printf("</%s> closes <%s>\n", name, s->n > 0 ? s->name[s->n - 1] : "");
    return 1;
}

/* at: behind a '<'. Returns what comes behind the tag, NULL: it is wrong. */
static const char *one_tag(struct stack *s, const char *at)
{
    const char *end = strchr(at, '>');
    char name[NAME] = "", close[NAME + 4];
    const bool closes = *at == '/';
    size_t n = 0;
    if (end == NULL) {
        printf("a tag without end: %.60s\n", at);
        return NULL;
    }
    for (const char *p = at + closes; p < end && isalnum((unsigned char)*p) && n + 1 < NAME; p++)
        name[n++] = *p;
    if (n == 0) {
        printf("'<' that begins no tag: %.60s\n", at);
        return NULL;
    }
    const size_t own =
        strncmp(at - 1, own_picture, sizeof own_picture - 1) ? 0 : sizeof own_picture;
    if (loads(at - 1 + own, (size_t)(end - at) + 1 - own, in_tags) ||
        bad_number(at, (size_t)(end - at)))
        return NULL;
    if (closes)
        return closed(s, name) == 0 ? end + 1 : NULL;
    if (end[-1] == '/' || is_void(name))
        return end + 1;
    if (s->n == DEPTH) {
        printf("too deep at <%s>\n", name);
        return NULL;
    }
    memcpy(s->name[s->n++], name, NAME);
    const bool style = strcmp(name, "style") == 0;
    if (!style && strcmp(name, "script") != 0)
        return end + 1;
    snprintf(close, sizeof close, "</%s>", name);
    const char *last = strstr(end, close);
    if (last == NULL)
        printf("<%s> has no end\n", name);
    if (last != NULL && loads(end, (size_t)(last - end), style ? in_style : in_script))
        return NULL;
    return last;
}

/* A page within its text: an ampersand begins an entity. */
static bool entity(const char *p)
{
    size_t n = strcspn(p, "; <\n");
    if (n > 1 && n < 10 && p[n] == ';')
        return true;
    printf("a bare &: %.40s\n", p);
    return false;
}

static int page(const char *text)
{
    struct stack s = {.n = 0};
    if (strncmp(text, "<!DOCTYPE html>", 15) != 0) {
        puts("no doctype");
        return 1;
    }
    for (const char *p = text + 15; *p != '\0';) {
        if (*p == '&' && !entity(p))
            return 1;
        if (*p++ != '<')
            continue;
        if ((p = one_tag(&s, p)) == NULL)
            return 1;
    }
    if (s.n > 0)
        printf("<%s> is never closed\n", s.name[s.n - 1]);
    return s.n > 0;
}

/* ---- numbers ---- */

static json_t *data_of(const char *text)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *at = strstr(text, begin), *end = at != NULL ? strstr(at, "</script>") : NULL;
    json_error_t e;
    if (end == NULL)
        return NULL;
    at += sizeof begin - 1;
    json_t *o = json_loadb(at, (size_t)(end - at), 0, &e);
    if (o == NULL)
        printf("the data: %s\n", e.text);
    return o;
}

static const json_t *by_text(const json_t *list, const char *key, const char *value)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        const char *v = json_string_value(json_object_get(o, key));
        if (v != NULL && strcmp(v, value) == 0)
            return o;
    }
    return NULL;
}

struct same {
    const json_t *stage, *records;
    size_t bucket, rows, compared;
    int wrong;
};

static void compare(struct same *s, const char *key, const char *what, size_t row, double got,
                    double want)
{
    s->compared++;
    if (got == want || (strcmp(what, "mean") == 0 && fabs(got - want) <= 1e-8 * fabs(want)))
        return;
    if (s->wrong++ < 5)
        printf("%s, row %zu, %s: %.17g in the page, %.17g by metrics\n", key, row, what, got, want);
}

/* By the records of metrics --json; false: none has the key. */
static bool row_of(const struct same *s, size_t row, const char *key, double out[3])
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = row * s->bucket; i < (row + 1) * s->bucket && i < json_array_size(s->records);
         i++) {
        const json_t *v = json_object_get(json_array_get(s->records, i), key);
        const double x = json_number_value(v);
        if (!json_is_number(v))
            continue;
        sum += x;
        out[1] = n == 0 || x < out[1] ? x : out[1];
        out[2] = n == 0 || x > out[2] ? x : out[2];
        n++;
    }
    out[0] = n > 0 ? sum / (double)n : 0;
    return n > 0;
}

static void series(struct same *s, const char *key, const json_t *o)
{
    const json_t *at = json_object_get(o, "at"), *v = json_object_get(o, "v"),
                 *lo = json_object_get(o, "lo"), *hi = json_object_get(o, "hi");
    size_t next = 0;
    for (size_t row = 0; row < s->rows; row++) {
        double want[3] = {0};
        const bool in =
            at == NULL || json_integer_value(json_array_get(at, next)) == (json_int_t)row;
        const bool there = next < json_array_size(v) && in;
        if (row_of(s, row, key, want) != there) {
            printf("%s, row %zu: %s in the page\n", key, row, there ? "only" : "missing");
            s->wrong++;
            return;
        }
        if (!there)
            continue;
        compare(s, key, s->bucket > 1 ? "mean" : "value", row,
                json_number_value(json_array_get(v, next)), want[0]);
        if (s->bucket > 1) {
            compare(s, key, "lowest", row, json_number_value(json_array_get(lo, next)), want[1]);
            compare(s, key, "highest", row, json_number_value(json_array_get(hi, next)), want[2]);
        }
        next++;
    }
    if (next != json_array_size(v)) {
        printf("%s: %zu values in the page, %zu by metrics\n", key, json_array_size(v), next);
        s->wrong++;
    }
}

static int compare_stage(struct same *s, const json_t *keys)
{
    const json_t *steps = json_object_get(s->stage, "step"),
                 *list = json_object_get(s->stage, "keys");
    const size_t n = json_array_size(s->records);
    s->bucket = (size_t)json_integer_value(json_object_get(s->stage, "bucket"));
    s->rows = json_array_size(steps);
    if (s->bucket == 0 || s->rows != (n + s->bucket - 1) / s->bucket ||
        (size_t)json_integer_value(json_object_get(s->stage, "records")) != n ||
        !json_equal(keys, list)) {
        printf("%zu rows of %zu for %zu records, or other keys\n", s->rows, s->bucket, n);
        return 1;
    }
    for (size_t row = 0; row < s->rows; row++) {
        const size_t last = (row + 1) * s->bucket <= n ? (row + 1) * s->bucket - 1 : n - 1;
        compare(s, "step", "value", row, json_number_value(json_array_get(steps, row)),
                json_number_value(json_object_get(json_array_get(s->records, last), "step")));
    }
    for (size_t k = 0; k < json_array_size(keys); k++)
        series(s, json_string_value(json_array_get(keys, k)),
               json_array_get(json_object_get(s->stage, "series"), k));
    return s->wrong > 0;
}

static int same(const char *text, const char *metrics)
{
    json_t *data = data_of(text), *want = json_load_file(metrics, 0, NULL);
    const char *run = json_string_value(json_object_get(want, "run")),
               *stage = json_string_value(json_object_get(want, "stage"));
    const json_t *r = run != NULL ? by_text(json_object_get(data, "runs"), "run", run) : NULL;
    struct same s = {.stage = stage != NULL ? by_text(json_object_get(r, "stages"), "stage", stage)
                                            : NULL,
                     .records = json_object_get(want, "records")};
    int rc = 1;
    if (s.stage == NULL)
        puts("the page has no such run or stage");
    else
        rc = compare_stage(&s, json_object_get(want, "keys"));
    printf("%zu numbers compared\n", s.compared);
    json_decref(data);
    json_decref(want);
    return rc;
}

/* ---- */

static int frames(const char *path)
{
    char line[4096];
    lf_err err = LF_ERR_INIT;
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    int rc = w != NULL ? 0 : 1;
    while (rc == 0 && fgets(line, sizeof line, stdin) != NULL)
        rc = lf_frame_append(w, line, strcspn(line, "\n"), &err);
    if (w != NULL && lf_frame_writer_close(w, rc == 0 ? &err : NULL) != 0)
        rc = 1;
    if (rc != 0)
        puts(err.text);
    return rc != 0;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    if (argc == 3 && strcmp(argv[1], "frames") == 0)
        return frames(argv[2]);
    lf_buf_init(&text);
    int rc = argc >= 3 ? lf_io_read_file(argv[2], (size_t)64 << 20, &text, &err) : -1;
    if (rc < 0)
        printf("%s\n", err.text);
    else if (strlen(text.data) != text.len)
        puts("a NUL byte");
    else if (strcmp(argv[1], "page") == 0 && argc == 3)
        rc = page(text.data);
    else if (strcmp(argv[1], "same") == 0 && argc == 4)
        rc = same(text.data, argv[3]);
    else
        rc = 1;
    lf_buf_fini(&text);
    return rc != 0;
}
