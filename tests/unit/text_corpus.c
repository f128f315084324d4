/* SPDX-License-Identifier: Apache-2.0
 *
 * Corpora: where documents begin and end, formats (made here with libarchive, so no program is
 * needed), order of files, and one clear error for whatever is cut short or wrong.
 */
#include "config.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/text/corpus/corpus.h"
#include "tests/tap/tap.h"

static char dir[2048];

static const char *at(const char *name)
{
    static char path[4][4096];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
    return path[k];
}

static void put(const char *name, const char *data, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        tap_bail("cannot write %s", at(name));
}

static void puts_file(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* Everything a corpus gives, documents joined by '|', into a static buffer; on failure the
 * error. */
static const char *docs(lf_corpus_args *a, const char *const *inputs, size_t n, int *rc,
                        lf_err *err)
{
    static lf_buf out;
    lf_buf text;
    lf_corpus *c = NULL;
    lf_corpus_record r;
    a->inputs = inputs;
    a->n_inputs = n;
    if (!a->max_doc_bytes)
        a->max_doc_bytes = 1 << 20;
    if (!out.data)
        lf_buf_init(&out);
    lf_buf_init(&text);
    lf_buf_clear(&out);
    *rc = lf_corpus_open(&c, a, err);
    while (*rc == 0 && (*rc = lf_corpus_next(c, &r, err)) == 1) {
        char where[64];
        snprintf(where, sizeof(where), "line %llu", (unsigned long long)r.line);
        *rc = lf_corpus_text(a, &r, where, &text, NULL, err);
        if (out.len)
            lf_buf_addc(&out, '|');
        lf_buf_add(&out, text.data, text.len);
    }
    lf_corpus_close(c);
    lf_buf_fini(&text);
    return out.data;
}

static void expect(lf_corpus_args a, const char *input, const char *want, const char *name)
{
    lf_err err = LF_ERR_INIT;
    int rc;
    const char *got = docs(&a, &input, 1, &rc, &err);
    tap_rc(rc, 0, &err, NULL, name);
    tap_str(got, want, name);
}

static void expect_size(lf_corpus_args a, const char *input, size_t want, const char *name)
{
    lf_err err = LF_ERR_INIT;
    int rc;
    size_t got = 0;
    lf_corpus *c = NULL;
    lf_corpus_record r;
    a.inputs = &input;
    a.n_inputs = 1;
    a.max_doc_bytes = 1 << 20;
    rc = lf_corpus_open(&c, &a, &err);
    while (rc == 0 && (rc = lf_corpus_next(c, &r, &err)) == 1) {
        got += r.len;
        rc = 0;
    }
    lf_corpus_close(c);
    tap_ok(rc == 0 && got == want, "%s: %zu bytes %s", name, got, rc ? err.text : "");
}

static void refuse(lf_corpus_args a, const char *input, int want, const char *contains,
                   const char *name)
{
    lf_err err = LF_ERR_INIT;
    int rc;
    (void)docs(&a, &input, 1, &rc, &err);
    tap_rc(rc, want, &err, contains, name);
}

#define MARK "\xEF\xBB\xBF"

static void splitting(void)
{
    puts_file("a.txt", "one\ntwo\r\n\n \t\nthree\nfour\n\n\n---\nfive\n---\n");
    lf_corpus_args a = {.split = LF_CORPUS_FILE};
    expect(a, at("a.txt"), "one\ntwo\r\n\n \t\nthree\nfour\n\n\n---\nfive\n---\n",
           "a file is a document");
    a.split = LF_CORPUS_LINE;
    expect(a, at("a.txt"), "one|two| \t|three|four|---|five|---", "a line is a document");
    a.split = LF_CORPUS_BLANK;
    expect(a, at("a.txt"), "one\ntwo|three\nfour|---\nfive\n---", "blank lines separate");
    a.split = LF_CORPUS_SEPARATOR;
    a.separator = "---";
    expect(a, at("a.txt"), "one\ntwo\r\n\n \t\nthree\nfour\n\n|five", "a line separates");
    a.split = LF_CORPUS_SIZE;
    a.doc_bytes = 8;
    expect(a, at("a.txt"), "one\ntwo\r\n|\n \t\nthree\n|four\n\n\n---\n|five\n---\n",
           "by size, at line ends");
    puts_file("empty.txt", "");
    a.split = LF_CORPUS_FILE;
    expect(a, at("empty.txt"), "", "an empty file has no document");
    puts_file("noend.txt", "x\ny");
    a.split = LF_CORPUS_LINE;
    expect(a, at("noend.txt"), "x|y", "the last line needs no end");
    a.max_doc_bytes = 4;
    puts_file("long.txt", "abcdefgh\n");
    refuse(a, at("long.txt"), LF_EINVAL, "max_doc_bytes = 4", "a line above the limit");
    a.split = LF_CORPUS_FILE;
    refuse(a, at("long.txt"), LF_EINVAL, "long.txt:1:", "a file above the limit");
}

/* A byte order mark at the start of a file is no text; anywhere else it is a character. */
static void marks(void)
{
    lf_corpus_args a = {.text_field = "text"};
    puts_file("bom.jsonl", MARK "{\"text\":\"a\"}\n{\"text\":\"" MARK "b\"}\n");
    expect(a, at("bom.jsonl"), "a|" MARK "b", "before JSON lines");
    puts_file("twice.jsonl", "{\"text\":\"a\"}\n" MARK "{\"text\":\"b\"}\n");
    refuse(a, at("twice.jsonl"), LF_EFORMAT, "line 2: not a JSON object", "before another line");
    puts_file("bom.txt", MARK "one\n\n" MARK "two\n");
    expect(a, at("bom.txt"), "one\n\n" MARK "two\n", "before a text");
    a.split = LF_CORPUS_LINE;
    expect(a, at("bom.txt"), "one|" MARK "two", "before lines");
    a.split = LF_CORPUS_BLANK;
    expect(a, at("bom.txt"), "one|" MARK "two", "before paragraphs");
    puts_file("only.txt", MARK);
    expect(a, at("only.txt"), "", "and nothing else");
    puts_file("half.txt", "\xEF\xBB");
    expect(a, at("half.txt"), "\xEF\xBB", "half of one");
}

static void json_lines(void)
{
    lf_corpus_args a = {.text_field = "text"};
    puts_file("a.jsonl", "{\"text\":\"one\\n\\u00e9\",\"x\":1}\n\n  "
                         "\n{\"text\":\"\"}\r\n{\"id\":2,\"text\":\"three\"}");
    expect(a, at("a.jsonl"), "one\n\xc3\xa9||three", "JSON lines");
    a.text_field = "body";
    refuse(a, at("a.jsonl"), LF_EFORMAT, "line 1", "another field");
    a.text_field = "text";
    puts_file("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":\n");
    refuse(a, at("bad.jsonl"), LF_EFORMAT, "line 2: not a JSON object", "a broken line");
    puts_file("num.jsonl", "{\"text\":5}\n");
    refuse(a, at("num.jsonl"), LF_EFORMAT, "not a string", "text that is a number");
    puts_file("arr.jsonl", "[1]\n");
    refuse(a, at("arr.jsonl"), LF_EFORMAT, "no JSON object", "a line that is a list");
    puts_file("utf.jsonl", "{\"text\":\"a\xff"
                           "b\"}\n");
    expect(a, at("utf.jsonl"),
           "a\xef\xbf\xbd"
           "b",
           "invalid UTF-8 is replaced");
    a.strict = true;
    refuse(a, at("utf.jsonl"), LF_EFORMAT, "not valid UTF-8", "or refused");
    a.format = LF_CORPUS_TEXT;
    a.split = LF_CORPUS_LINE;
    expect(a, at("arr.jsonl"), "[1]", "input_format overrides the name");
}

/* ---- compressed and archived ---- */

typedef int (*filter_fn)(struct archive *);

static size_t write_archive(const char *name, filter_fn filter, filter_fn format,
                            const char *const *members, const char *text, size_t n)
{
    struct archive *a = archive_write_new();
    if (filter(a) != ARCHIVE_OK || format(a) != ARCHIVE_OK ||
        archive_write_open_filename(a, at(name)) != ARCHIVE_OK) {
        archive_write_free(a);
        return 0;
    }
    for (size_t i = 0; members[i]; i++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, members[i]);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_size(e, (la_int64_t)n);
        if (archive_write_header(a, e) != ARCHIVE_OK ||
            archive_write_data(a, text, n) != (la_ssize_t)n)
            tap_bail("%s", archive_error_string(a));
        archive_entry_free(e);
    }
    if (archive_write_close(a) != ARCHIVE_OK)
        tap_bail("%s", archive_error_string(a));
    archive_write_free(a);
    lf_err err = LF_ERR_INIT;
    return (size_t)lf_io_size(at(name), &err);
}

/* Cut the file at many places: never a crash, never success with less text than it held. */
static void truncations(const char *name, size_t size, size_t text_len, lf_corpus_args a)
{
    lf_err err = LF_ERR_INIT;
    lf_buf whole;
    size_t silent = 0, other = 0, tried = 0;
    lf_buf_init(&whole);
    if (lf_io_read_file(at(name), 1 << 24, &whole, &err) != 0)
        tap_bail("%s", err.text);
    char cut_name[64];
    snprintf(cut_name, sizeof(cut_name), "cut-%s", name);
    for (size_t cut = 1; cut < size; cut += cut < 64 || cut + 64 > size ? 1 : size / 40 + 1) {
        int rc;
        put(cut_name, whole.data, cut);
        const char *input = at(cut_name);
        const char *got = docs(&a, &input, 1, &rc, &err);
        tried++;
        if (rc == 0 && strlen(got) < text_len) {
            if (!silent++)
                tap_diag("%s cut at %zu of %zu gives %zu bytes without an error", name, cut, size,
                         strlen(got));
        } else if (rc != 0 && (rc != LF_EFORMAT || !strstr(err.text, cut_name))) {
            if (!other++)
                tap_diag("%s cut at %zu: %d %s", name, cut, rc, err.text);
        }
        lf_err_clear(&err);
    }
    tap_ok(tried > 20 && silent == 0 && other == 0,
           "%s: %zu truncations, each an error naming the file", name, tried);
    lf_buf_fini(&whole);
}

static void formats(void)
{
    static const struct {
        const char *name;
        filter_fn filter;
    } packed[] = {{"p.txt.gz", archive_write_add_filter_gzip},
                  {"p.txt.xz", archive_write_add_filter_xz},
                  {"p.txt.bz2", archive_write_add_filter_bzip2},
                  {"p.txt.zst", archive_write_add_filter_zstd}};
    static const char *const one[] = {"p.txt", NULL}, *const three[] = {"b/x.txt", ".hidden",
                                                                        "a.jsonl.txt", NULL};
    size_t n = 200000;
    char *text = malloc(n + 1), *twice = malloc(2 * n + 2);
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (x >> 24) % 9 ? (char)('a' + (x >> 20) % 26) : ' ';
    }
    text[n] = 0;
    memcpy(twice, text, n);
    twice[n] = '|';
    memcpy(twice + n + 1, text, n + 1);
    lf_corpus_args a = {.split = LF_CORPUS_FILE};
    for (size_t i = 0; i < sizeof(packed) / sizeof(packed[0]); i++) {
        size_t size = write_archive(packed[i].name, packed[i].filter, archive_write_set_format_raw,
                                    one, text, n);
        if (size == 0) {
            tap_skip(2, "libarchive lacks this filter");
            continue;
        }
        expect(a, at(packed[i].name), text, packed[i].name);
        truncations(packed[i].name, size, n, a);
    }
    size_t size = write_archive("t.tar.gz", archive_write_add_filter_gzip,
                                archive_write_set_format_pax_restricted, three, text, n);
    expect(a, at("t.tar.gz"), twice, "tar, hidden members left out");
    truncations("t.tar.gz", size, 2 * n + 1, a);
    write_archive("t.tar", archive_write_add_filter_none, archive_write_set_format_ustar, three,
                  text, n);
    expect(a, at("t.tar"), twice, "plain tar");
    size = write_archive("t.zip", archive_write_add_filter_none, archive_write_set_format_zip,
                         three, text, n);
    expect(a, at("t.zip"), twice, "zip");
    truncations("t.zip", size, 2 * n + 1, a);
    /* dictzip is gzip with an extra field in its header. */
    lf_err err = LF_ERR_INIT;
    lf_buf gz, dz;
    lf_buf_init(&gz);
    lf_buf_init(&dz);
    if (lf_io_read_file(at("p.txt.gz"), 1 << 24, &gz, &err) == 0) {
        lf_buf_add(&dz, gz.data, 10);
        dz.data[3] |= 4;
        lf_buf_add(&dz, "\x0a\0RA\x06\0\x01\0\xcb\xe3\0\0", 12);
        lf_buf_add(&dz, gz.data + 10, gz.len - 10);
        put("p.dict.dz", dz.data, dz.len);
        expect(a, at("p.dict.dz"), text, "dictzip");
    }
    /* One changed byte. */
    lf_buf_clear(&dz);
    lf_buf_add(&dz, gz.data, gz.len);
    dz.data[dz.len / 2] ^= 0x40;
    put("flip.txt.gz", dz.data, dz.len);
    refuse(a, at("flip.txt.gz"), LF_EFORMAT, "flip.txt.gz", "a changed byte");
    puts_file("no.zip", "this is no zip file");
    refuse(a, at("no.zip"), LF_EFORMAT, "no.zip", "a name that promises an archive");
    lf_buf_fini(&gz);
    lf_buf_fini(&dz);
    free(text);
    free(twice);
}

/* A tar of one member whose data lies at [at, at + n) of `size` bytes. */
static void write_sparse(const char *name, const char *text, int64_t at_byte, int64_t n,
                         int64_t size)
{
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    archive_write_set_format_pax(a);
    archive_entry_set_pathname(e, "holes.txt");
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_size(e, size);
    archive_entry_sparse_add_entry(e, at_byte, n);
    char *body = calloc(1, (size_t)size);
    memcpy(body + at_byte, text, (size_t)n);
    if (archive_write_open_filename(a, at(name)) != ARCHIVE_OK ||
        archive_write_header(a, e) != ARCHIVE_OK ||
        archive_write_data(a, body, (size_t)size) != (la_ssize_t)size ||
        archive_write_close(a) != ARCHIVE_OK)
        tap_bail("%s", archive_error_string(a));
    free(body);
    archive_entry_free(e);
    archive_write_free(a);
}

/* What looks like text to a reader that asks nothing. */
static void nesting(void)
{
    static const char *const inner[] = {"notes.tar.gz", NULL}, *const plain[] = {"notes.txt", NULL};
    lf_corpus_args a = {.split = LF_CORPUS_FILE};
    lf_err err = LF_ERR_INIT;
    lf_buf tar;
    char text[2048];
    memset(text, 'x', sizeof(text));
    write_archive("in.tar", archive_write_add_filter_none, archive_write_set_format_ustar, plain,
                  text, sizeof(text));
    lf_buf_init(&tar);
    if (lf_io_read_file(at("in.tar"), 1 << 20, &tar, &err) != 0)
        tap_bail("%s", err.text);
    write_archive("out.tar", archive_write_add_filter_none, archive_write_set_format_ustar, inner,
                  text, sizeof(text));
    refuse(a, at("out.tar"), LF_EFORMAT, "notes.tar.gz", "a member that is an archive by its name");
    write_archive("out2.tar", archive_write_add_filter_none, archive_write_set_format_ustar, plain,
                  tar.data, tar.len);
    refuse(a, at("out2.tar"), LF_EFORMAT, "notes.txt is tar inside an archive",
           "or by its first bytes");
    write_archive("out.zip", archive_write_add_filter_none, archive_write_set_format_zip, plain,
                  "\x1f\x8b\x08\0\0\0", 6);
    refuse(a, at("out.zip"), LF_EFORMAT, "notes.txt is gzip inside an archive",
           "a compressed member of a zip");
    put("tar.txt", tar.data, tar.len);
    refuse(a, at("tar.txt"), LF_EFORMAT, "its name must end in .tar", "a tar called .txt");
    puts_file("likely.txt", "PK and BZh are letters, ustar a word\n");
    expect(a, at("likely.txt"), "PK and BZh are letters, ustar a word\n",
           "text with the letters of signatures");
    write_sparse("front.tar", text, 1 << 20, 1024, (1 << 20) + 1024);
    refuse(a, at("front.tar"), LF_EFORMAT, "hole of 1048576 bytes at byte 0",
           "a hole before the text of a sparse member");
    write_sparse("back.tar", text, 0, 1024, 1 << 20);
    refuse(a, at("back.tar"), LF_EFORMAT, "bytes at byte 1024", "a hole behind it");
    lf_buf_fini(&tar);
}

/* What is no text is refused, unless the user says that it is one. */
static void no_text(void)
{
    lf_corpus_args a = {.split = LF_CORPUS_FILE};
    char text[6000];
    puts_file("a.pdf", "%PDF-1.7 and so on");
    refuse(a, at("a.pdf"), LF_EFORMAT, "it holds PDF data; convert it first: pdftotext", "a PDF");
    put("a.txt", "\x89PNG\r\n\x1a\n", 8);
    refuse(a, at("a.txt"), LF_EFORMAT, "it holds PNG data; leave it out", "a picture");
    static const char page[] = "\xef\xbb\xbf \r\n<!docType HTML>\n<html>",
                      tag[] = "<htmlx> a tag\n", dump[] = "<?xml version=\"1.0\"?>\n<r/>\n";
    puts_file("page.txt", page);
    refuse(a, at("page.txt"), LF_EFORMAT, "page.txt is HTML; take its text (pandoc -t plain",
           "a page of HTML");
    puts_file("short.html", "<HTML>");
    refuse(a, at("short.html"), LF_EFORMAT, "short.html is HTML", "and a short one");
    puts_file("dump.xml", dump);
    refuse(a, at("dump.xml"), LF_EFORMAT, "is XML; take its text out of it, or set input_format",
           "XML");
    puts_file("rows.jsonl", page);
    refuse(a, at("rows.jsonl"), LF_EFORMAT, "is HTML, and rows are wanted; was it saved",
           "a page in the place of rows");
    puts_file("tag.txt", tag);
    expect(a, at("tag.txt"), tag, "another tag is text");
    a.format = LF_CORPUS_TEXT;
    expect(a, at("dump.xml"), dump, "which text can be asked for");
    a.format = LF_CORPUS_AUTO;
    static const char *const inside[] = {"notes.txt", NULL};
    write_archive("picture.zip", archive_write_add_filter_none, archive_write_set_format_zip,
                  inside, "\x89PNG\r\n\x1a\n", 8);
    refuse(a, at("picture.zip"), LF_EFORMAT, "picture.zip: notes.txt is no text: it holds PNG",
           "a picture inside an archive");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 50 == 49 ? '\xe9' : 'x';
    put("latin1.txt", text, sizeof text);
    refuse(a, at("latin1.txt"), LF_EFORMAT,
           "is no UTF-8 text: 2 % of its first 6000 bytes are none; convert it (iconv -f LATIN1",
           "Latin-1");
    a.any_bytes = true;
    expect_size(a, at("latin1.txt"), sizeof text, "which can be asked for");
    a.any_bytes = false;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 200 == 199 ? '\xe9' : 'x';
    put("few.txt", text, sizeof text);
    expect_size(a, at("few.txt"), sizeof text, "half a percent may be an accident");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? '\0' : 'x';
    memcpy(text, "\xff\xfe", 2);
    put("utf16.txt", text, sizeof text);
    refuse(a, at("utf16.txt"), LF_EFORMAT, "it is UTF-16; convert it (iconv -f UTF-16", "UTF-16");
    memcpy(text, "\xff\xfe\0\0", 4);
    put("utf32.txt", text, sizeof text);
    refuse(a, at("utf32.txt"), LF_EFORMAT, "it is UTF-32; convert it (iconv -f UTF-32", "UTF-32");
    memcpy(text, "x\0y\0", 4);
    put("marked.txt", text, sizeof text);
    refuse(a, at("marked.txt"), LF_EFORMAT, "(iconv -f UTF-16LE", "UTF-16 without its mark");
    memset(text, 'x', sizeof text);
    memset(text + 500, 0, 1000);
    put("hole.txt", text, sizeof text);
    refuse(a, at("hole.txt"), LF_EFORMAT, "are none, and it holds NUL bytes", "a text with a hole");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 37 % 251);
    put("random.txt", text, sizeof text);
    refuse(a, at("random.txt"), LF_EFORMAT, "is no UTF-8 text", "any bytes");
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    put("accents.txt", text, sizeof text - 1);
    expect_size(a, at("accents.txt"), sizeof text - 1, "a text of accents alone, with its end cut");
    put("short.txt", "caf\xe9", 4);
    expect_size(a, at("short.txt"), 4, "of a short text nobody can tell");
}

/* What holds rows and is taken as something else. */
static void no_rows(void)
{
    lf_corpus_args a = {.split = LF_CORPUS_FILE, .text_field = "text"};
    puts_file("array.json", " [\n {\"text\": \"a\"}, {\"text\": \"b\"}]");
    puts_file("array.jsonl", "[{\"text\": \"a\"}]");
    puts_file("rows.json", "{\"text\": \"a\"}\n");
    expect_size(a, at("array.json"), 33, "a text that is JSON is a text");
    refuse(a, at("array.jsonl"), LF_EFORMAT, "is one JSON array, and a row is a line; jq -c",
           "one array in the place of lines");
    a.format = LF_CORPUS_ROWS;
    refuse(a, at("array.json"), LF_EFORMAT, "is one JSON array", "or where rows alone are read");
    a.format = LF_CORPUS_AUTO;
    a.rows_only = "shape";
    refuse(a, at("array.json"), LF_EFORMAT, "is one JSON array", "or are wanted");
    refuse(a, at("rows.json"), LF_EFORMAT, "plain text by its name, and rows are wanted (shape)",
           "lines by a name of text");
    a.format = LF_CORPUS_JSONL;
    expect_size(a, at("rows.json"), 13, "which can be asked for");
}

/* The rows of a file, "LINE:TEXT" each. */
static void expect_rows(lf_corpus_args a, const char *input, const char *want, const char *what)
{
    lf_corpus *c = NULL;
    lf_corpus_record r;
    lf_err err = LF_ERR_INIT;
    lf_buf got;
    lf_buf_init(&got);
    a.inputs = &input;
    a.n_inputs = 1;
    int rc = lf_corpus_open(&c, &a, &err);
    while (rc == 0 && (rc = lf_corpus_next(c, &r, &err)) == 1) {
        lf_buf_addf(&got, "%llu:%.*s ", (unsigned long long)r.line, (int)r.len, r.raw);
        rc = r.form == LF_RECORD_JSON ? 0 : -1;
    }
    tap_ok(rc == 0 && strcmp(got.data, want) == 0, "%s: %s %s", what, got.data, err.text);
    lf_corpus_close(c);
    lf_buf_fini(&got);
}

/* Objects of one array, where rows are wanted. */
static void arrays(void)
{
    lf_corpus_args a = {
        .text_field = "text", .rows_only = "shape", .arrays = true, .max_doc_bytes = 1 << 19};
    puts_file("rows.json", "[{\"text\":\"}]\\\"{\"},\n\n {\"a\": [{}, [\"b\"]]} ,{}\n]\n");
    expect_rows(a, at("rows.json"), "1:{\"text\":\"}]\\\"{\"} 3:{\"a\": [{}, [\"b\"]]} 3:{} ",
                "objects with their lines");
    puts_file("lines.jsonl", "{\"text\": \"a\"}\n{}\n");
    expect_rows(a, at("lines.jsonl"), "1:{\"text\": \"a\"} 2:{} ", "lines stay lines");
#define ROW "{\"text\":\"x\"}"
    static const char *const bad[] = {"[" ROW "," ROW, "[" ROW " " ROW "]", "[" ROW ",]",
                                      "[" ROW ",1]",   "[" ROW "]" ROW,     "[" ROW "}",
                                      "[{\"a\": \"b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        puts_file("bad.json", bad[i]);
        refuse(a, at("bad.json"), LF_EFORMAT, "bad.json:1: the JSON array", bad[i]);
    }
    /* longer than a block, so that an object is cut by it */
    lf_buf big;
    lf_buf_init(&big);
    lf_buf_adds(&big, "[");
    size_t size = 0;
    for (int i = 0; i < 40000; i++) {
        size_t before = big.len + (i > 0 ? 2 : 0);
        lf_buf_addf(&big, "%s{\"text\": \"%d\"}", i ? ",\n" : "", i);
        size += big.len - before;
    }
    lf_buf_adds(&big, "]");
    puts_file("big.json", big.data);
    lf_buf_fini(&big);
    expect_size(a, at("big.json"), size, "an array of many blocks");
    a.max_doc_bytes = 20;
    puts_file("long.json", "[{\"text\": \"0123456789012345678901234567890123456789\"}]");
    refuse(a, at("long.json"), LF_EINVAL, "max_doc_bytes", "an object that is too long");
}

static void files(void)
{
    lf_err err = LF_ERR_INIT;
    lf_corpus_args a = {.split = LF_CORPUS_FILE, .text_field = "text"};
    mkdir(at("d"), 0755);
    mkdir(at("d/b"), 0755);
    mkdir(at("d/.git"), 0755);
    puts_file("d/z.txt", "Z");
    puts_file("d/a.txt", "A");
    puts_file("d/B.txt", "B");
    puts_file("d/b/m.txt", "M");
    puts_file("d/.hidden", "H");
    puts_file("d/.git/x.txt", "X");
    puts_file("d/c.jsonl", "{\"text\":\"J\"}\n");
    if (symlink("..", at("d/loop")) != 0)
        tap_bail("symlink");
    expect(a, at("d"), "B|A|M|J|Z",
           "a directory, sorted by bytes, hidden names and loops left out");
    expect(a, at("d/[aB].txt"), "B|A", "a glob");
    refuse(a, at("d/*.nope"), LF_ENOENT, "no file matches", "a glob without a match");
    refuse(a, at("missing.txt"), LF_ENOENT, "missing.txt", "a missing file");
    mkdir(at("nothing"), 0755);
    refuse(a, at("nothing"), LF_ENOENT, "holds no file", "an empty directory");
    refuse(a, "/dev/null", LF_EINVAL, "neither a file nor a directory", "a device");
    const char *two[] = {at("d/z.txt"), at("d/a.txt")};
    int rc;
    tap_str(docs(&a, two, 2, &rc, &err), "Z|A", "inputs in the order given");
    /* Seeking to a source gives what follows it. */
    lf_corpus *c = NULL;
    lf_corpus_record r;
    const char *input = at("d");
    a.inputs = &input;
    a.n_inputs = 1;
    rc = lf_corpus_open(&c, &a, &err);
    size_t n = 0;
    const lf_corpus_source *s = lf_corpus_sources(c, &n);
    tap_i64((int64_t)n, 5, "five sources");
    tap_str(s[2].label, "b/m.txt", "labels are below the input");
    tap_i64(lf_corpus_total_bytes(c), 4 + 13, "bytes of all sources");
    tap_rc(lf_corpus_seek(c, 3, &err), 0, &err, NULL, "seek");
    tap_i64(lf_corpus_next(c, &r, &err), 1, "a record after seeking");
    tap_ok(r.source == 3 && r.form == LF_RECORD_JSON, "of the source sought");
    lf_corpus_close(c);
}

int main(void)
{
    snprintf(dir, sizeof(dir), "%s", tap_tmpdir());
    TAP(16, splitting());
    json_lines();
    TAP(13, marks());
    formats();
    TAP(8, nesting());
    TAP(21, no_text());
    TAP(6, no_rows());
    TAP(11, arrays());
    TAP(15, files());
    return tap_done();
}
