/* SPDX-License-Identifier: Apache-2.0
 *
 * The dataset doctor: every planted defect is found at its place and nothing else, a clean file has
 * none, and memory stays bounded when rows do not fit.
 */
#include "engine/text/corpus/datadoc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/text/corpus/datadoc_priv.h"
#include "tests/tap/tap.h"

static lf_corpus_args args;
static lf_shape_opts shape;
static char path[4100];

static void put(const char *name, const char *data, size_t n)
{
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/%s", tap_tmpdir(), name);
    if (lf_io_replace(path, data, n, 0640, &err) < 0)
        tap_bail("%s", err.text);
}

static json_t *examine(const char *const *inputs, size_t n, size_t max_bytes)
{
    lf_err err = LF_ERR_INIT;
    lf_corpus *c = NULL;
    json_t *r = NULL;
    args.inputs = inputs;
    args.n_inputs = n;
    args.max_doc_bytes = 1 << 20;
    if (!args.text_field)
        args.text_field = "text";
    lf_datadoc_opts o = {
        .corpus = &args, .shape = &shape, .seed = 1, .max_bytes = max_bytes, .max_broken = 20};
    if (lf_corpus_open(&c, &args, &err) < 0 || lf_datadoc_run(&r, c, &o, &err) < 0)
        tap_bail("%s", err.text);
    lf_corpus_close(c);
    return r;
}

static json_t *examine_text(const char *name, const char *data, size_t n)
{
    const char *in[] = {path};
    put(name, data, n);
    return examine(in, 1, 1 << 20);
}

/* Does the list of finding `what` end in "file:line"? */
static bool at(json_t *finding, size_t i, long line)
{
    json_t *e = json_array_get(json_object_get(finding, "first"), i);
    const char *s = json_string_value(json_is_object(e) ? json_object_get(e, "at") : e),
               *colon = s ? strrchr(s, ':') : NULL;
    return colon && strtol(colon + 1, NULL, 10) == line;
}

static long long rows(json_t *r, const char *a, const char *b)
{
    json_t *o = json_object_get(r, a);
    return (long long)json_integer_value(json_object_get(b ? json_object_get(o, b) : o, "rows"));
}

/* A file of good rows with one odd one on line 4. */
static void planted(const char *odd_row, const char *finding)
{
    char file[8000];
    size_t n = 0;
    for (int i = 1; i <= 6; i++)
        n += (size_t)(i == 4 ? snprintf(file + n, sizeof file - n, "{\"text\":\"%s\"}\n", odd_row)
                             : snprintf(file + n, sizeof file - n,
                                        "{\"text\":\"row number %d of this file is an ordinary %d "
                                        "sentence with %d words\"}\n",
                                        i, i * 7, i * i));
    json_t *r = examine_text("odd.jsonl", file, n), *odd = json_object_get(r, "oddities");
    json_t *f = json_object_get(odd, finding);
    tap_ok(rows(r, "oddities", finding) == 1 && at(f, 0, 4) && json_object_size(odd) == 1,
           "%s is found on line 4, alone", finding);
    tap_ok(json_is_false(json_object_get(r, "clean")) &&
               json_integer_value(json_object_get(r, "rows")) == 6,
           "not clean");
    json_decref(r);
}

static void test_planted(void)
{
    char big[4000];
    planted("mark \\ufeff inside", "bom");
    planted("bell \\u0007 rings", "control");
    planted("delete \\u007f", "control");
    planted("c1 \\u0092 quote", "control");
    planted("lost \\ufffd character", "replacement");
    planted("caf\\u00c3\\u00a9", "mojibake");
    planted("it\\u00e2\\u20ac\\u2122s", "mojibake");
    planted("R&amp;D", "entities");
    planted("it&#39;s", "entities");
    planted("it&#x27;s", "entities");
    for (int i = 0; i < 1200; i++)
        big[i] = "abcdefghijklmnop"[(i * 7 + i / 16) % 16];
    big[1200] = 0;
    planted(big, "unbroken");
    memset(big, '=', 80);
    big[80] = 0;
    planted(big, "repeated_chars");
    big[0] = 0;
    for (int i = 0; i < 12; i++)
        strcat(big, i % 2 ? "the same line\\n" : "another one\\n");
    planted(big, "repeated_lines");
    planted("   \\n ", "empty");
    planted("one\\r\\ntwo\\nthree", "line_ends");
    planted("one\\rtwo", "line_ends");
}

static void test_not_planted(void)
{
    static const char clean[] =
        "{\"text\":\"Ein Satz \\u00fcber \\u00c4pfel & Birnen, 5 < 6; AT&T\"}\n"
        "{\"text\":\"\\u4e2d\\u6587\\u6ca1\\u6709\\u7a7a\\u683c\\u7684\\u957f\\u53e5\\u5b50\"}\n"
        "{\"text\":\"caf\\u00e9 \\u00e2ge \\u20ac 5\\nline\\tand tab\\n\"}\n"
        "{\"text\":\"\\u0645\\u0631\\u062d\\u0628\\u0627 "
        "\\u0628\\u0627\\u0644\\u0639\\u0627\\u0644\\u0645\"}\n";
    json_t *r = examine_text("clean.jsonl", clean, sizeof clean - 1);
    char *dump = json_dumps(json_object_get(r, "oddities"), 0);
    tap_ok(json_is_true(json_object_get(r, "clean")), "a clean file has no finding: %s", dump);
    free(dump);
    tap_i64(json_integer_value(json_object_get(json_object_get(r, "shapes"), "text")), 4,
            "its shape");
    lf_buf text;
    lf_buf_init(&text);
    lf_datadoc_text(r, &text);
    tap_ok(strstr(text.data, "nothing odd was found") && strstr(text.data, "4 rows"),
           "and it says so");
    lf_buf_fini(&text);
    json_decref(r);
}

static void test_broken(void)
{
    char file[6000] = "";
    for (int i = 1; i <= 40; i++)
        snprintf(file + strlen(file), 100,
                 i % 2 ? "{\"text\":\"fine, number %d\"}\n" : "{\"text\": %d oops\n", i);
    json_t *r = examine_text("broken.jsonl", file, strlen(file)), *b = json_object_get(r, "broken");
    tap_ok(rows(r, "broken", NULL) == 20 && at(b, 0, 2) && at(b, 19, 40),
           "20 broken rows, with their lines");
    json_decref(r);
    strcpy(file, "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"nothing\":1}\n{\"text\":\"x\"}\n");
    r = examine_text("shapes.jsonl", file, strlen(file));
    b = json_object_get(r, "broken");
    const char *why =
        json_string_value(json_object_get(json_array_get(json_object_get(b, "first"), 0), "why"));
    tap_ok(rows(r, "broken", NULL) == 1 && at(b, 0, 2) && why && strstr(why, "nothing"),
           "a row of no shape: %s", why);
    tap_i64((int64_t)json_object_size(json_object_get(r, "shapes")), 2, "two shapes");
    json_decref(r);
    strcpy(file, "\xEF\xBB\xBF{\"text\":\"x\"}\n{\"text\":\"y\xff\"}\n");
    r = examine_text("bom.jsonl", file, strlen(file));
    tap_ok(rows(r, "oddities", "bom") == 1 && rows(r, "broken", NULL) == 0,
           "a byte order mark, which breaks no row");
    tap_ok(rows(r, "oddities", "invalid_utf8") == 1 &&
               at(json_object_get(json_object_get(r, "oddities"), "invalid_utf8"), 0, 2),
           "bytes that are not UTF-8");
    json_decref(r);
    strcpy(file, "{\"text\":\"one\"}\r\n{\"text\":\"two\"}\n{\"text\":\"three\"}\r\n");
    r = examine_text("ends.jsonl", file, strlen(file));
    tap_ok(rows(r, "oddities", "line_ends") == 1 &&
               at(json_object_get(json_object_get(r, "oddities"), "line_ends"), 0, 2),
           "mixed line ends are told once for a file");
    json_decref(r);
    strcpy(file, "{\"text\":\"one\"}\r\n{\"text\":\"two\"}\r\n");
    r = examine_text("dos.jsonl", file, strlen(file));
    tap_ok(json_is_true(json_object_get(r, "clean")), "CR LF throughout is fine");
    json_decref(r);
}

static void test_duplicates(void)
{
    static char file[40000];
    static const char *const words[] = {"river",  "stone",  "cloud",  "apple",
                                        "winter", "engine", "letter", "garden"};
    size_t n = 0;
    for (int i = 1; i <= 30; i++) {
        int of = i == 20 ? 5 : i;
        n += (size_t)snprintf(file + n, sizeof file - n, "{\"text\":\"");
        for (uint32_t w = 0; w < 60; w++)
            n += (size_t)snprintf(
                file + n, sizeof file - n, "%s%u ",
                words[lf_rng_u32(3, 1, (uint64_t)(of == 25 ? 7 : of) * 100 + w) % 8],
                lf_rng_u32(4, 1, (uint64_t)(of == 25 ? 7 : of) * 100 + w) % 90);
        n += (size_t)snprintf(file + n, sizeof file - n, "%s\"}\n", of == 25 ? "and an end" : "");
    }
    json_t *r = examine_text("dup.jsonl", file, n), *d = json_object_get(r, "duplicates"), *s;
    tap_ok(rows(r, "duplicates", NULL) == 1 && at(d, 0, 20), "line 20 is line 5 again");
    const char *first = json_string_value(
        json_object_get(json_array_get(json_object_get(d, "first"), 0), "same_as"));
    tap_ok(first && lf_str_has_suffix(first, ":5"), "it names it: %s", first);
    d = json_object_get(r, "near_duplicates");
    s = json_array_get(json_object_get(d, "first"), 0);
    tap_ok(rows(r, "near_duplicates", NULL) == 1 && at(d, 0, 25), "line 25 is nearly line 7 (%.2f)",
           json_real_value(json_object_get(s, "similarity")));
    json_decref(r);
}

/* More rows than the table holds: an estimate, within reason. */
static void test_bounded(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_dups *d = lf_dups_create(1 << 16, &err);
    struct lf_near *near = lf_near_create(1 << 16, &err);
    uint64_t again = 0, first, like;
    double similarity;
    char text[100];
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t v = i % 4 == 3 ? i - 1 : i; /* every fourth row repeats the one before it */
        if (lf_dups_add(d, lf_datadoc_hash(&v, sizeof v, 0), i, &first, &err) == 1)
            again += 1ull << lf_dups_sampled(d);
    }
    double estimate = (double)again;
    tap_ok(lf_dups_sampled(d) > 3 && estimate > 40000 && estimate < 60000,
           "50,000 duplicates in 64 KiB: about %.0f", estimate);
    for (uint64_t i = 0; i < 5000; i++) {
        snprintf(text, sizeof text,
                 "%llu is the number of this row, which is %llu and %llu and so on until the end",
                 (unsigned long long)i * 7919, (unsigned long long)(i * i),
                 (unsigned long long)(i * 31337));
        if (lf_near_add(near, text, strlen(text), i, &like, &similarity, &err) < 0)
            tap_bail("%s", err.text);
    }
    tap_ok(lf_near_rows(near) <= 512, "near duplicates are sought among as many rows as fit (%llu)",
           (unsigned long long)lf_near_rows(near));
    lf_dups_destroy(d);
    lf_near_destroy(near);
}

static void test_lengths(void)
{
    struct lf_hist h = {0};
    double worst = 0;
    for (uint64_t i = 0; i < 100000; i++)
        lf_hist_add(&h, i);
    static const int p[] = {1, 5, 25, 50, 75, 95, 99};
    for (int k = 0; k < 7; k++) {
        double want = 1000.0 * p[k], e = (want - (double)lf_hist_percentile(&h, p[k])) / want;
        worst = tap_worse(worst, fabs(e));
    }
    tap_ok(worst < 0.0626, "percentiles within 6 %% (worst %.3f)", worst);
    lf_hist_add(&h, UINT64_MAX);
    tap_ok(h.max == UINT64_MAX && h.min == 0, "bounds");
    json_t *j = lf_hist_json(&h, "tokens"), *b;
    int64_t sum = 0;
    size_t i;
    json_array_foreach(json_object_get(j, "histogram"), i, b) sum +=
        json_integer_value(json_object_get(b, "rows"));
    tap_i64(sum, 100000, "every length in one bin, but for 2^64 - 1");
    json_decref(j);
}

/* Several files, one of which is cut short; text files; samples and longest rows; nothing unsafe in
 * the text. */
static void test_files(void)
{
    char a[4100], b[4100], c[4100];
    put("a.txt", "first line\nsecond \x1b[31mred\x1b[0m line\n", 36);
    snprintf(a, sizeof a, "%s", path);
    put("b.jsonl.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03 this is no gzip at all", 33);
    snprintf(b, sizeof b, "%s", path);
    put("c.jsonl", "{\"text\":\"the longest row of all of them, by far\"}\n", 50);
    snprintf(c, sizeof c, "%s", path);
    const char *in[] = {a, b, c};
    args.split = LF_CORPUS_LINE;
    json_t *r = examine(in, 3, 1 << 20);
    tap_i64(json_integer_value(json_object_get(r, "rows")), 3,
            "rows of the files that can be read");
    tap_i64((int64_t)json_array_size(json_object_get(r, "unreadable")), 1,
            "and the one that cannot");
    json_t *l = json_array_get(json_object_get(r, "longest"), 0);
    tap_ok(strstr(json_string_value(json_object_get(l, "at")), "c.jsonl:1") &&
               json_integer_value(json_object_get(l, "length")) == 38,
           "the longest row");
    tap_ok(json_array_size(json_object_get(r, "samples")) == 7, "samples: first, random, longest");
    lf_buf text;
    lf_buf_init(&text);
    lf_datadoc_text(r, &text);
    tap_ok(strchr(text.data, 0x1b) == NULL && strstr(text.data, "red"),
           "no control character reaches the terminal");
    lf_buf_fini(&text);
    json_decref(r);
    args.split = LF_CORPUS_FILE;
    put("empty.txt", "", 0);
    const char *none[] = {path};
    r = examine(none, 1, 1 << 20);
    tap_ok(json_is_false(json_object_get(r, "clean")), "no row at all is a finding");
    json_decref(r);
}

int main(void)
{
    TAP(32, test_planted());
    TAP(3, test_not_planted());
    TAP(7, test_broken());
    TAP(3, test_duplicates());
    TAP(2, test_bounded());
    TAP(3, test_lengths());
    TAP(6, test_files());
    return tap_done();
}
