/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of samples for the file, for people and for the dashboard: see sample_lines.h. */
#include "engine/post/sample_lines.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"

int lf_sample_add_prompt(lf_buf *out, const lf_tokenizer *tok, const int32_t *ids, size_t n,
                         lf_err *err)
{
    lf_buf text;
    if (!tok) {
        lf_buf_adds(out, ",\"prompt_token_ids\":[");
        for (size_t i = 0; i < n; i++)
            lf_buf_addf(out, i ? ",%d" : "%d", (int)ids[i]);
        lf_buf_addc(out, ']');
        return 0;
    }
    lf_buf_init(&text);
    int rc = lf_tokenizer_decode(tok, (const uint32_t *)ids, n, false, &text, err);
    lf_buf_adds(out, ",\"prompt\":");
    lf_buf_add_json(out, text.data, text.len);
    if (rc == 0)
        rc = lf_buf_check(&text, err);
    lf_buf_fini(&text);
    return rc;
}

/* The end of a text of n bytes, or its beginning, as one line without control characters. */
static void add_shown(lf_buf *out, const char *text, size_t n, bool end)
{
    size_t from = end && n > LF_SAMPLES_SHOWN ? n - LF_SAMPLES_SHOWN : 0,
           to = !end && n > LF_SAMPLES_SHOWN ? LF_SAMPLES_SHOWN : n;
    while (from > 0 && from < n && ((unsigned char)text[from] & 0xC0) == 0x80)
        from++;
    while (to < n && to > 0 && ((unsigned char)text[to] & 0xC0) == 0x80)
        to--;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_add_visible(&b, text + from, to - from);
    lf_buf_adds(out, from ? "..." : "");
    lf_buf_add_json(out, b.data, b.len);
    lf_buf_adds(out, to < n ? "..." : "");
    lf_buf_fini(&b);
}

struct line {
    const char *id, *prompt, *text; /* NULL: not there */
    int64_t sample;
    double score;
    bool scored;
};

static bool read_line(struct line *l, json_t *o)
{
    *l = (struct line){0};
    int rc = lf_json_get_str(&l->id, o, "id", true, "sample", NULL);
    if (rc == 0)
        rc = lf_json_get_i64(&l->sample, o, "sample", false, "sample", NULL);
    if (rc == 0)
        rc = lf_json_get_str(&l->prompt, o, "prompt", false, "sample", NULL);
    if (rc == 0)
        rc = lf_json_get_str(&l->text, o, "text", false, "sample", NULL);
    l->scored = json_is_number(json_object_get(o, "score"));
    l->score = json_number_value(json_object_get(o, "score"));
    return rc == 0 && *l->id && l->text;
}

static void show(lf_run *r, int64_t step, const struct line *l)
{
    char tag[120];
    lf_buf b;
    const int at = snprintf(tag, sizeof tag, "samples/%.90s", l->id);
    if (l->sample > 0)
        snprintf(tag + at, sizeof tag - (size_t)at, ".%lld", (long long)l->sample);
    lf_copies_text(r->copies, step, tag, l->text, strlen(l->text));
    if (!l->prompt)
        return;
    lf_buf_init(&b);
    if (l->scored)
        lf_buf_addf(&b, "%.4f ", l->score);
    add_shown(&b, l->prompt, strlen(l->prompt), true);
    lf_buf_adds(&b, " -> ");
    add_shown(&b, l->text, strlen(l->text), false);
    if (lf_buf_check(&b, NULL) == 0)
        lf_run_log(r, 2, "  %s", b.data);
    lf_buf_fini(&b);
}

int lf_sample_write(lf_run *r, int64_t step, const lf_buf *lines, lf_err *err)
{
    int rc = lf_buf_check(lines, err);
    if (!lf_run_first(r))
        return rc;
    if (rc == 0)
        rc = lf_run_samples(r, lines->data, lines->len, err);
    for (const char *at = lines->data, *end; rc == 0 && (end = strchr(at, '\n')); at = end + 1) {
        struct line l;
        json_t *o = lf_json_load_text(at, (size_t)(end - at), "sample", NULL);
        if (o && read_line(&l, o))
            show(r, step, &l);
        json_decref(o);
    }
    return rc;
}
