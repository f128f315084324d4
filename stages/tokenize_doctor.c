/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-tokenize --doctor: the engine's report to standard output, and as the artifact OUT/doctor.
 * --decoders: the decoders of pictures.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/media/check.h"
#include "engine/text/corpus/datadoc.h"
#include "stages/tokenize_priv.h"

static int write_one(lf_artifact *a, const char *dir, const char *name, const char *text, size_t n,
                     lf_err *err)
{
    char *path = lf_path_join(dir, name, err);
    int rc = path ? lf_io_write_file(path, text, n, LF_ARTIFACT_MODE, err) : LF_ENOMEM;
    free(path);
    return rc != 0 ? rc : lf_artifact_add_hashed(a, dir, name, err);
}

static int write_report(const char *out, const char *json, const lf_buf *text, const lf_buf *page,
                        lf_err *err)
{
    lf_artifact a = {0};
    char *dir = lf_path_join(out, "doctor", err);
    int rc = dir ? lf_artifact_remove(dir, err) : LF_ENOMEM; /* a report is made anew each time */
    if (rc == 0)
        rc = lf_io_mkdirs(dir, 0750, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "report", err);
    if (rc == 0)
        rc = write_one(&a, dir, "report.json", json, strlen(json), err);
    if (rc == 0)
        rc = write_one(&a, dir, "report.txt", text->data, text->len, err);
    if (rc == 0 && page->len)
        rc = write_one(&a, dir, "samples.html", page->data, page->len, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    free(dir);
    return rc;
}

static int show(const tokenize *s, json_t *report, lf_err *err)
{
    lf_buf text, page;
    lf_buf_init(&text);
    lf_buf_init(&page);
    lf_tokenize_doctor_page(&page, report);
    char *json = json_dumps(report, JSON_INDENT(2) | JSON_SORT_KEYS);
    lf_datadoc_text(report, &text);
    int rc = json ? lf_buf_check(&text, err) : lf_fail(err, LF_ENOMEM, "no memory for the report");
    if (rc == 0)
        rc = lf_buf_check(&page, err);
    if (rc == 0 && s->out)
        rc = write_report(s->out, json, &text, &page, err);
    if (rc == 0 && (s->json ? puts(json) : fputs(text.data, stdout)) < 0)
        rc = lf_fail_errno(err, "cannot write to standard output");
    if (rc == 0 && fflush(stdout) != 0)
        rc = lf_fail_errno(err, "cannot write to standard output");
    free(json);
    lf_buf_fini(&text);
    lf_buf_fini(&page);
    return rc;
}

/* The tokenizer with its chat template, where it has one, and EOS where it is known. */
static int open_tokenizer(tokenize *s, lf_tokenizer **t, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    lf_chat_opts o = s->chat_opts;
    o.file = s->chat_file;
    if (!(*t = lf_tokenizer_load(s->tokenizer_path, err)))
        return err && err->rc ? err->rc : LF_EFORMAT;
    s->rows.tok = *t;
    s->rows.eos_id = !s->append_eos ? -1
                     : s->eos_token ? lf_tokenizer_find(*t, s->eos_token)
                                    : lf_tokenizer_eos(*t);
    if (s->shape.shape == LF_SHAPE_TEXT)
        return 0;
    s->rows.chat = s->chat = lf_chat_load(s->tokenizer_path, *t, &o, &why);
    s->shape.reads = s->chat ? lf_chat_reads : NULL;
    s->shape.reads_arg = s->chat;
    return s->chat || why.rc == LF_ENOENT ? 0 : lf_fail(err, why.rc, "%s", why.text);
}

/* What came first: a file that cannot be read, or a row. */
static const json_t *first_trouble(const json_t *report)
{
    const json_t *file = json_array_get(json_object_get(report, "unreadable"), 0);
    return file ? file
                : json_array_get(json_object_get(json_object_get(report, "broken"), "first"), 0);
}

/* Data without a single row that can be used is no data set: scripts go by the exit code. */
static int check_usable(const json_t *report, lf_err *err)
{
    const long long rows = json_integer_value(json_object_get(report, "rows")),
                    broken = json_integer_value(
                        json_object_get(json_object_get(report, "broken"), "rows"));
    const json_t *first = first_trouble(report);
    const char *why = json_string_value(json_object_get(first, "why"));
    if (rows > broken)
        return 0;
    return lf_fail(err, LF_EFORMAT, "%s%s%s",
                   rows > 0 ? "no row of the data can be used" : "the data has no rows",
                   why ? "; the first trouble: " : "", why ? why : "");
}

int lf_tokenize_doctor(tokenize *s, lf_err *err)
{
    lf_corpus *c = NULL;
    lf_tokenizer *t = NULL;
    json_t *report = NULL;
    tok_pics_doctor *pics = NULL;
    lf_datadoc_reader reader;
    int rc = lf_corpus_open(&c, &s->corpus, err);
    if (rc == 0 && s->tokenizer_path)
        rc = open_tokenizer(s, &t, err);
    if (rc == 0 && s->media.on)
        rc = lf_tokenize_media_tokens(&s->media, t, &s->rows, err);
    if (rc == 0 && s->media.on) {
        pics = lf_tokenize_pics_doctor(&s->media, &s->shape, err);
        rc = pics ? 0 : LF_ENOMEM;
        reader = lf_tokenize_pics_reader(pics);
    }
    lf_datadoc_opts o = {.corpus = &s->corpus,
                         .shape = &s->shape,
                         .tokenizer = t,
                         .flags = s->flags,
                         .rows = t ? &s->rows : NULL,
                         .reader = pics ? &reader : NULL,
                         .seed = (uint64_t)s->valid_seed,
                         .max_bytes = s->doctor_memory,
                         .seq_length = s->seq_length,
                         .max_broken = 20,
                         .stop = lf_stop_requested};
    if (rc == 0)
        rc = lf_datadoc_run(&report, c, &o, err);
    if (rc == 0)
        rc = show(s, report, err);
    if (rc == 0)
        rc = check_usable(report, err);
    json_decref(report);
    lf_tokenize_pics_doctor_free(pics);
    lf_chat_destroy(s->chat);
    lf_tokenizer_destroy(t);
    lf_corpus_close(c);
    return rc;
}

/* A line for each format: its name, the library's version or "no", and one word, with tabs between
 * (flow/cmd/doctor_media.c reads this). */
int lf_tokenize_decoders(const lf_optset *o, lf_err *err)
{
    static const char *const words[] = {[LF_DECODER_SAME] = "same",
                                        [LF_DECODER_DIFFERS] = "differs",
                                        [LF_DECODER_FAILS] = "fails",
                                        [LF_DECODER_ABSENT] = "absent"};
    lf_decoder_check c[LF_DECODERS];
    if (!lf_optset_bool(o, "decoders"))
        return 0;
    int rc = lf_image_check(c, err);
    for (int i = 0; rc == 0 && i < LF_DECODERS; i++)
        printf("%s\t%s\t%s\n", c[i].format, c[i].version[0] != 0 ? c[i].version : "no",
               words[c[i].state]);
    return rc < 0 ? rc : 1;
}
