/* SPDX-License-Identifier: Apache-2.0
 *
 * Parquet against pyarrow: every file of files.tar.xz (parquet/make_parquet.py) has the rows that
 * pyarrow reads, or is refused with the words beside it. Then one small file is cut at every byte
 * and changed at every byte. With an argument: the files of that directory instead.
 */
#include "config.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/text/corpus/rowjson.h"
#include "engine/text/parquet/parquet.h"
#include "tests/tap/tap.h"

#define GOOD 96
#define BAD  20

static char dir[4096];

static void unpack(const char *path)
{
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    archive_read_support_filter_xz(a);
    archive_read_support_format_tar(a);
    if (archive_read_open_filename(a, path, 1 << 16) != ARCHIVE_OK)
        tap_bail("%s: %s", path, archive_error_string(a));
    while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
        char to[8192];
        size_t n = (size_t)archive_entry_size(e);
        char *data = malloc(n + 1);
        snprintf(to, sizeof to, "%s/%s", dir, archive_entry_pathname(e));
        FILE *f = fopen(to, "wb");
        if (!data || !f || archive_read_data(a, data, n) != (la_ssize_t)n ||
            fwrite(data, 1, n, f) != n || fclose(f) != 0)
            tap_bail("%s: %s cannot be unpacked", path, to);
        free(data);
    }
    archive_read_free(a);
}

/* The rows of a file as JSON, to list (NULL: only looked at); *rc and err of the end. */
static int read_rows(const char *path, json_t *list, lf_err *err)
{
    const lf_parquet_opts o = {.max_row_bytes = 1 << 24};
    lf_parquet *p = NULL;
    lf_buf row;
    lf_buf_init(&row);
    int rc = lf_parquet_open(&p, path, &o, err);
    int64_t left = rc == 0 ? lf_parquet_rows(p) : 0;
    while (rc == 0 && (rc = lf_parquet_next(p, &row, err)) == 1) {
        json_t *v = NULL;
        const lf_corpus_record r = {.raw = row.data, .len = row.len, .form = LF_RECORD_PACKED};
        lf_err why = LF_ERR_INIT;
        int got = lf_row_json(&v, &r, LF_ROW_NUL, "row", NULL, &why);
        if (got < 0 || !json_is_object(v))
            tap_bail("%s: a packed row is no object: %s", path, why.text);
        if (list)
            json_array_append(list, v);
        json_decref(v);
        left--;
        rc = 0;
    }
    if (rc == 0 && left != 0)
        rc = lf_fail(err, LF_EFORMAT, "%lld rows are missing", (long long)left);
    lf_parquet_close(p);
    lf_buf_fini(&row);
    return rc;
}

/* The number of the first line that is another row; 0: all are the same. */
static size_t compare(const char *path, const json_t *rows)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0, n = 0;
    bool same = f != NULL;
    while (same && getline(&line, &cap, f) > 0) {
        json_t *want = json_loads(line, JSON_ALLOW_NUL, NULL);
        same = want && json_equal(want, json_array_get(rows, n++));
        json_decref(want);
    }
    if (f)
        fclose(f);
    free(line);
    return !same ? n : n == json_array_size(rows) ? 0 : n + 1;
}

/* Its codec is not built in: nothing can be compared, but the message must say what to install. */
static bool lacks_codec(const lf_err *err)
{
    return strstr(err->text, "which this build cannot unpack; build with lib") != NULL ||
           strstr(err->text, "which this build cannot unpack; build with zlib") != NULL;
}

static void check_good(const char *base)
{
    char path[8192], want[8192];
    lf_err err = LF_ERR_INIT;
    json_t *rows = json_array();
    snprintf(path, sizeof path, "%s/%s.parquet", dir, base);
    snprintf(want, sizeof want, "%s/%s.json", dir, base);
    int rc = read_rows(path, rows, &err);
    if (rc == LF_ENOTSUP && lacks_codec(&err)) {
        tap_skip(1, "a codec is not built in");
    } else {
        size_t at = rc == 0 ? compare(want, rows) : 0;
        tap_ok(rc == 0 && at == 0, "%s: the rows of pyarrow", base);
        if (rc != 0 || at != 0)
            tap_diag("row %zu differs; %s", at, err.text);
    }
    json_decref(rows);
}

static void check_bad(const char *base)
{
    char path[8192];
    lf_err err = LF_ERR_INIT;
    lf_buf why;
    lf_buf_init(&why);
    snprintf(path, sizeof path, "%s/%s.why", dir, base);
    if (lf_io_read_file(path, 1 << 16, &why, NULL) != 0)
        tap_bail("no %s", path);
    snprintf(path, sizeof path, "%s/%s.parquet", dir, base);
    int rc = read_rows(path, NULL, &err);
    tap_ok(rc < 0 && strstr(err.text, why.data) && strstr(err.text, base), "%s: refused", base);
    if (rc >= 0 || !strstr(err.text, why.data))
        tap_diag("%d: '%s' lacks '%s'", rc, err.text, why.data);
    lf_buf_fini(&why);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Every file of dir with this ending. */
static int each(const char *suffix, void (*check)(const char *base))
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, by_name), seen = 0;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(list[i]->d_name), end = strlen(suffix);
        if (len > end && strcmp(list[i]->d_name + len - end, suffix) == 0) {
            list[i]->d_name[len - end] = 0;
            check(list[i]->d_name);
            seen++;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return seen;
}

static void all_good(void)
{
    each(".json", check_good);
}

static void all_bad(void)
{
    each(".why", check_bad);
}

/* Files that are read once and go: on disk, thirty thousand of them would take a minute. */
static void write_memory(int fd, const char *data, size_t n)
{
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, n, 0) != (ssize_t)n)
        tap_bail("cannot write to memory");
}

/* A file cut at every byte is refused each time; a changed one is refused or read. */
static void damage(const char *base)
{
    char path[8192], to[8192];
    lf_buf b;
    size_t silent = 0, wordless = 0, read = 0, tries = 0;
    static const char flips[] = {1, 2, 16, (char)128, (char)255};
    lf_buf_init(&b);
    snprintf(path, sizeof path, "%s/%s.parquet", dir, base);
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    snprintf(to, sizeof to, "/proc/self/fd/%d", fd);
    if (lf_io_read_file(path, 1 << 20, &b, NULL) != 0)
        tap_bail("no %s", path);
    for (size_t n = 0; n < b.len; n++) {
        lf_err err = LF_ERR_INIT;
        write_memory(fd, b.data, n);
        silent += read_rows(to, NULL, &err) >= 0;
        wordless += err.text[0] == 0;
    }
    tap_ok(silent == 0 && wordless == 0, "%s cut at each of %zu bytes: one error", base, b.len);
    wordless = 0;
    for (size_t i = 0; i < b.len; i++)
        for (size_t k = 0; k < sizeof flips; k++) {
            lf_err err = LF_ERR_INIT;
            b.data[i] = (char)(b.data[i] ^ flips[k]);
            write_memory(fd, b.data, b.len);
            int rc = read_rows(to, NULL, &err);
            read += rc >= 0;
            wordless += rc < 0 && err.text[0] == 0;
            b.data[i] = (char)(b.data[i] ^ flips[k]);
            tries++;
        }
    tap_ok(wordless == 0 && read < tries, "%s changed at each byte: an error or rows", base);
    tap_diag("%s: %zu of %zu changes are read", base, read, tries);
    close(fd);
    lf_buf_fini(&b);
}

static void damaged_files(void)
{
    damage("nested-two-level");
    damage("checksums");
    damage("enc-delta_byte_array-string-v2-null");
    damage("flat-v2-none-null-dict");
}

int main(int argc, char **argv)
{
    char path[8192];
    if (argc > 1) {
        snprintf(dir, sizeof dir, "%s", argv[1]);
        all_good();
        return tap_done();
    }
    snprintf(dir, sizeof dir, "%s", tap_tmpdir());
    snprintf(path, sizeof path, "%s/tests/golden/parquet/files.tar.xz", getenv("LF_SRCDIR"));
    unpack(path);
    TAP(GOOD, all_good());
    TAP(BAD, all_bad());
    TAP(8, damaged_files());
    return tap_done();
}
