/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming reader of corpora: see corpus.h. A window `win` holds bytes of the open member that
 * were read but not yet handed out; records are cut from its front.
 */
#include "config.h"

#include "engine/text/corpus/corpus.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/crc32.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/corpus/corpus_array.h"
#include "engine/text/corpus/corpus_files.h"
#include "engine/text/corpus/corpus_kind.h"
#include "engine/text/corpus/corpus_samples.h"
#include "engine/text/corpus/rowjson.h"
#include "engine/text/parquet/parquet.h"

#define BLOCK ((size_t)1 << 18)

struct lf_corpus {
    lf_corpus_args a;
    lf_corpus_list files;
    size_t at;          /* source being read, or to be opened next */
    struct archive *ar; /* NULL: source not open, or a parquet file */
    lf_parquet *pq;     /* the source being read, when it is one */
    bool told;          /* the row of a picture in the folder of its class was given */
    bool in_member;
    bool is_archive; /* tar or zip: members have names */
    char *member;
    bool json;
    bool in_samples; /* the archive holds samples */
    lf_websamples samples;
    bool array;          /* json, and the member is one array */
    bool at_start, mark; /* nothing of the member is read; a byte order mark was passed over before
                            its first record */
    lf_buf win;          /* [pos, win.len) is unread */
    size_t pos;
    bool member_end;                           /* nothing follows the window */
    uint64_t line, in_source, in_source_start; /* the last: at the beginning of the member */
    int64_t member_bytes;
    int64_t done_before; /* bytes of the sources before `at` */
    lf_glue glue;        /* of the member */
    lf_buf row;          /* of a line of it */
    bool check_crc; /* the member is a whole gzip file: libarchive does not look at its checksum */
    uint32_t crc;
    lf_crc32 crc_tables;
};

int lf_corpus_open(lf_corpus **out, const lf_corpus_args *args, lf_err *err)
{
    lf_corpus *c = lf_calloc(1, sizeof(*c), err);
    if (!c)
        return LF_ENOMEM;
    c->a = *args;
    c->a.inputs = NULL;
    lf_buf_init(&c->win);
    lf_buf_init(&c->row);
    lf_websamples_init(&c->samples);
    lf_crc32_init(&c->crc_tables);
    c->files.energon = args->energon;
    c->files.classes = args->class_mark != NULL;
    int rc = 0;
    for (size_t i = 0; i < args->n_inputs && rc == 0; i++)
        rc = lf_corpus_list_add(&c->files, args->inputs[i], err);
    if (rc != 0) {
        lf_corpus_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

static void close_source(lf_corpus *c)
{
    if (c->ar)
        archive_read_free(c->ar);
    c->ar = NULL;
    lf_parquet_close(c->pq);
    c->pq = NULL;
    free(c->member);
    c->member = NULL;
    c->in_member = c->in_samples = c->told = false;
    c->pos = 0;
    lf_buf_clear(&c->win);
}

void lf_corpus_close(lf_corpus *c)
{
    if (!c)
        return;
    close_source(c);
    lf_corpus_list_fini(&c->files);
    lf_buf_fini(&c->win);
    lf_buf_fini(&c->row);
    lf_websamples_fini(&c->samples);
    free(c);
}

const lf_corpus_source *lf_corpus_sources(const lf_corpus *c, size_t *n)
{
    *n = c->files.n;
    return c->files.v;
}

static int64_t bytes_before(const lf_corpus *c, size_t source)
{
    int64_t sum = 0;
    for (size_t i = 0; i < source; i++)
        sum += c->files.v[i].bytes > 0 ? c->files.v[i].bytes : 0;
    return sum;
}

int64_t lf_corpus_total_bytes(const lf_corpus *c)
{
    for (size_t i = 0; i < c->files.n; i++)
        if (c->files.v[i].bytes < 0)
            return -1;
    return bytes_before(c, c->files.n);
}

int64_t lf_corpus_bytes_done(const lf_corpus *c)
{
    return c->done_before + (c->ar   ? archive_filter_bytes(c->ar, -1)
                             : c->pq ? lf_parquet_bytes_done(c->pq)
                                     : 0);
}

int lf_corpus_seek(lf_corpus *c, size_t source, lf_err *err)
{
    if (source > c->files.n)
        return lf_fail(err, LF_EINVAL, "source %zu of %zu", source, c->files.n);
    close_source(c);
    c->at = source;
    c->in_source = 0;
    c->done_before = bytes_before(c, source);
    return 0;
}

/* ---- names ---- */

static bool is_json_name(const lf_corpus *c, const char *name)
{
    if (c->a.format != LF_CORPUS_AUTO)
        return c->a.format == LF_CORPUS_JSONL || c->a.format == LF_CORPUS_ROWS;
    size_t n = lf_corpus_strip_compression(name);
    return lf_corpus_ends_with(name, n, ".jsonl") || lf_corpus_ends_with(name, n, ".ndjson");
}

/* ---- libarchive ---- */

static int archive_fail(lf_corpus *c, lf_err *err)
{
    const char *why = archive_error_string(c->ar);
    return lf_fail(err, LF_EFORMAT,
                   "%s%s%s: %s after %lld bytes of text (byte %lld of the file); is it complete?",
                   c->files.v[c->at].path, c->member ? ": " : "", c->member ? c->member : "",
                   why ? why : "read error", (long long)c->member_bytes,
                   (long long)archive_filter_bytes(c->ar, -1));
}

static int open_archive(lf_corpus *c, lf_err *err)
{
    const char *path = c->files.v[c->at].path;
    bool std = strcmp(path, "-") == 0;
    c->member_bytes = 0;
    c->in_source = 0;
    c->is_archive = c->files.v[c->at].folder || lf_corpus_is_archive_name(path);
    c->ar = archive_read_new();
    if (!c->ar)
        return lf_fail(err, LF_ENOMEM, "no memory to read %s", path);
    /* Only these: others would take text for an archive, or start a program. */
    archive_read_support_filter_gzip(c->ar);
    archive_read_support_filter_bzip2(c->ar);
    archive_read_support_filter_xz(c->ar);
    archive_read_support_filter_zstd(c->ar);
    if (c->is_archive) {
        archive_read_support_format_tar(c->ar);
        archive_read_support_format_zip(c->ar);
    } else {
        archive_read_support_format_raw(c->ar);
        archive_read_support_format_empty(c->ar);
    }
    int got = std ? archive_read_open_fd(c->ar, 0, BLOCK)
                  : archive_read_open_filename(c->ar, path, BLOCK);
    return got == ARCHIVE_OK ? 0 : archive_fail(c, err);
}

/* The columns that are passed over, for messages about rows; the first opening keeps them. */
static int keep_passed(lf_corpus_source *s, const lf_parquet *pq, lf_err *err)
{
    size_t n;
    const char *const *names = lf_parquet_passed(pq, &n);
    if (n == 0 || s->passed)
        return 0;
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(&b, "%s%.60s", i > 0 ? ", " : "", names[i]);
    s->passed = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s->passed ? 0 : LF_ENOMEM;
}

static int open_parquet(lf_corpus *c, lf_err *err)
{
    const char *path = c->files.v[c->at].path;
    const lf_parquet_opts o = {.columns = c->a.columns,
                               .n_columns = c->a.n_columns,
                               .binary = c->a.binary,
                               .n_binary = c->a.n_binary,
                               .max_row_bytes = c->a.max_doc_bytes,
                               .raise = c->a.format == LF_CORPUS_ROWS ? NULL : "max_doc_bytes"};
    if (c->files.v[c->at].bytes < 0)
        return lf_fail(err, LF_EINVAL,
                       "%s: parquet is read from its end, which only a regular file has; name the "
                       "file",
                       strcmp(path, "-") == 0 ? "standard input" : path);
    c->in_source = 0;
    int rc = lf_parquet_open(&c->pq, path, &o, err);
    return rc == 0 ? keep_passed(&c->files.v[c->at], c->pq, err) : rc;
}

/* Open the source as what its name, its first and last bytes and the format asked for make it. */
static int open_source(lf_corpus *c, lf_err *err)
{
    const lf_corpus_source *s = &c->files.v[c->at];
    enum lf_corpus_format f = c->a.format;
    bool is = false, free_choice = f == LF_CORPUS_AUTO || f == LF_CORPUS_ROWS;
    int rc = s->bytes < 0 ? 0 : lf_parquet_is(&is, s->path, err);
    if (rc < 0)
        return rc;
    if (is && (f == LF_CORPUS_TEXT || f == LF_CORPUS_JSONL))
        return lf_fail(err, LF_EFORMAT,
                       "%s is a parquet file; the format asked for is another, auto takes it",
                       s->path);
    if (f == LF_CORPUS_PARQUET || (free_choice && (is || lf_corpus_is_parquet_name(s->path))))
        return open_parquet(c, err);
    return open_archive(c, err);
}

/* A file whose name promises compression must be compressed: a few bytes of one look like text. */
static int check_filter(lf_corpus *c, lf_err *err)
{
    const char *path = c->files.v[c->at].path;
    size_t n = lf_corpus_strip_compression(path);
    int code = archive_filter_code(c->ar, 0);
    if (path[n] && code == ARCHIVE_FILTER_NONE)
        return lf_fail(err, LF_EFORMAT,
                       "%s: its first bytes are not those of a %s file; is it complete?", path,
                       path + n);
    c->check_crc = !c->is_archive && code == ARCHIVE_FILTER_GZIP &&
                   archive_filter_count(c->ar) == 2 && c->files.v[c->at].bytes >= 18;
    c->crc = 0;
    return 0;
}

/* How many gzip members the file seems to hold. With several, the checksum at its end is not that
 * of the whole. */
static int count_members(const uint8_t *p, size_t n)
{
    int members = 0;
    for (size_t i = 0; i + 10 <= n; i++) {
        const uint8_t *hit = memchr(p + i, 0x1F, n - 9 - i);
        if (!hit)
            break;
        i = (size_t)(hit - p);
        members += hit[1] == 0x8B && hit[2] == 8 && hit[3] < 32 &&
                   (hit[8] == 0 || hit[8] == 2 || hit[8] == 4) && (hit[9] < 14 || hit[9] == 255);
    }
    return members;
}

/* Compare what was read with the length and CRC-32 at the end of the gzip file. Files of several
 * members (concatenated, bgzip) carry no checksum of the whole and pass. */
static int check_gzip_end(lf_corpus *c, lf_err *err)
{
    const char *path = c->files.v[c->at].path;
    uint8_t end[8];
    uint32_t crc, len;
    int members = 0;
    lf_buf all;
    lf_buf_init(&all);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? lf_fail_errno(err, "cannot open %s", path)
                    : lf_io_pread_all(fd, end, 8, (off_t)(c->files.v[c->at].bytes - 8), path, err);
    if (fd >= 0)
        close(fd);
    if (rc != 0)
        return rc;
    memcpy(&crc, end, 4);
    memcpy(&len, end + 4, 4);
    if (crc == c->crc && len == (uint32_t)c->member_bytes)
        return 0;
    rc = lf_io_read_file(path, SIZE_MAX / 2, &all, err);
    if (rc == 0)
        members = count_members((const uint8_t *)all.data, all.len);
    lf_buf_fini(&all);
    if (rc == 0 && members < 2)
        rc = lf_fail(
            err, LF_EFORMAT,
            "%s: its text does not have the checksum at the end of the file; it is damaged", path);
    return rc;
}

/* A file inside the archive that is compressed or an archive itself: its bytes are no text. */
static int nested(const lf_corpus *c, const char *name, const char *what, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT,
                   "%s: %s is %s inside an archive, which is not read; unpack it first",
                   c->files.v[c->at].path, name, what);
}

/* Go to the next member worth reading; 0 none left. */
static int next_member(lf_corpus *c, lf_err *err)
{
    for (;;) {
        struct archive_entry *e;
        int got = archive_read_next_header(c->ar, &e);
        int rc = got == ARCHIVE_FATAL ? 0 : check_filter(c, err);
        if (got == ARCHIVE_EOF || rc != 0)
            return rc;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
            return archive_fail(c, err);
        free(c->member);
        c->member = NULL;
        if (c->is_archive) {
            const char *name = archive_entry_pathname(e);
            const char *base = name ? strrchr(name, '/') : NULL;
            base = base ? base + 1 : name;
            if (!name || archive_entry_filetype(e) != AE_IFREG || base[0] == '.' || base[0] == 0)
                continue;
            const lf_energon *folder = c->files.v[c->at].folder;
            if (folder && !lf_websamples_member(folder, name))
                continue;
            if (folder || (c->a.samples && lf_websamples_member(NULL, name))) {
                c->in_samples = true;
                c->samples.folder = folder;
                c->samples.n = 0;
                c->samples.max_bytes = c->a.max_doc_bytes;
                c->samples.ignore_others = c->a.ignore_others;
                rc = lf_websamples_begin(&c->samples, name, err);
                return rc < 0 ? rc : 1;
            }
            if (c->a.format != LF_CORPUS_TEXT && lf_corpus_is_parquet_name(name))
                return nested(c, name, "a parquet file", err);
            if (lf_corpus_is_archive_name(name) || name[lf_corpus_strip_compression(name)])
                return nested(c, name, "a compressed file or an archive", err);
            c->member = lf_strdup(name, err);
            if (!c->member)
                return LF_ENOMEM;
        }
        if (c->a.glue)
            c->glue = *c->a.glue;
        c->json = is_json_name(c, c->member ? c->member : c->files.v[c->at].path);
        c->array = false;
        c->in_member = true;
        c->member_end = false;
        c->member_bytes = 0;
        c->line = 1;
        c->in_source_start = c->in_source;
        c->at_start = true;
        c->pos = 0;
        lf_buf_clear(&c->win);
        return 1;
    }
}

/* Of the first block of a member: from this share on, and this many, bytes that are no UTF-8 are no
 * accident. A text in Latin-1 has more, and a UTF-16 or binary file far more. */
#define ODD_SHARE 0.01
#define ODD_LEAST 16

static int check_encoding(const lf_corpus *c, const void *bytes, size_t n, lf_err *err)
{
    const size_t odd = lf_corpus_odd_bytes(bytes, n);
    const double share = (double)odd / (double)n;
    if (c->a.any_bytes || odd < ODD_LEAST || share <= ODD_SHARE)
        return 0;
    const char *is = lf_corpus_encoding(bytes, n);
    const bool latin = is && strcmp(is, "LATIN1") == 0; /* a guess, which is not told as a fact */
    char what[200] = ", and it holds NUL bytes, which no text has; leave it out";
    if (is)
        snprintf(what, sizeof(what), "%s%s; convert it (iconv -f %s -t UTF-8 OLD >NEW)",
                 latin ? "" : ", it is ", latin ? "" : is, is);
    return lf_fail(err, LF_EFORMAT,
                   "%s%s%s is no UTF-8 text: %.0f %% of its first %zu bytes are none%s, or set "
                   "invalid_utf8 = replace to take it as it is",
                   c->files.v[c->at].path, c->member ? ": " : "", c->member ? c->member : "",
                   100 * share < 1 ? 1 : 100 * share, n, what);
}

/* Rows are lines with an object each. What other tools write has one array, or one object over many
 * lines. */
static int check_lines(const lf_corpus *c, const char *bytes, size_t n, lf_err *err)
{
    const char *path = c->files.v[c->at].path;
    if (c->array)
        return 0;
    if (lf_corpus_is_json_array(bytes, n))
        return lf_fail(err, LF_EFORMAT,
                       "%s%s%s is one JSON array, and a row is a line; jq -c '.[]' OLD >NEW.jsonl "
                       "makes lines of it",
                       path, c->member ? ": " : "", c->member ? c->member : "");
    if (c->json || !c->a.rows_only)
        return 0;
    return lf_fail(err, LF_EFORMAT,
                   "%s%s%s is plain text by its name, and rows are wanted (%s); call it .jsonl, or "
                   "set input_format = jsonl, if its lines are rows",
                   path, c->member ? ": " : "", c->member ? c->member : "", c->a.rows_only);
}

/* Tags are text, and hardly what a model shall learn to write. A page in the place of rows is what
 * a server says instead of the file. */
static int check_markup(const lf_corpus *c, const char *bytes, size_t n, lf_err *err)
{
    const char *what =
        c->a.markup || c->a.format == LF_CORPUS_TEXT ? NULL : lf_corpus_markup(bytes, n);
    if (!what)
        return 0;
    return lf_fail(err, LF_EFORMAT, "%s%s%s is %s%s", c->files.v[c->at].path, c->member ? ": " : "",
                   c->member ? c->member : "", what,
                   c->json || c->a.rows_only
                       ? ", and rows are wanted; was it saved in the place of the file?"
                   : what[0] == 'H'
                       ? "; take its text (pandoc -t plain OLD -o NEW.txt), or set input_format = "
                         "text to train on its tags, too"
                       : "; take its text out of it, or set input_format = text to train on its "
                         "tags, too");
}

/* The first bytes of a member: are they text at all? */
static int check_text(lf_corpus *c, const void *bytes, size_t n, lf_err *err)
{
    const char *what = lf_corpus_signature(bytes, n);
    c->array =
        !what && c->a.arrays && c->a.format != LF_CORPUS_TEXT && lf_corpus_is_json_array(bytes, n);
    c->json = c->json || c->array;
    if (!what && check_markup(c, bytes, n, err) < 0)
        return LF_EFORMAT;
    if (!what && (c->json || c->a.rows_only)) {
        int rc = check_lines(c, bytes, n, err);
        return rc != 0 ? rc : check_encoding(c, bytes, n, err);
    }
    if (!what)
        return check_encoding(c, bytes, n, err);
    if (c->member && lf_corpus_holds_files(what))
        return nested(c, c->member, what, err);
    return lf_fail(err, LF_EFORMAT, "%s%s%s is no text: it holds %s data; %s",
                   c->files.v[c->at].path, c->member ? ": " : "", c->member ? c->member : "", what,
                   lf_corpus_remedy(what));
}

/* Bytes that the archive left out of a sparse file are NULs: no text has them, and there may be
 * terabytes. */
static int check_hole(lf_corpus *c, int64_t offset, lf_err *err)
{
    return offset <= c->member_bytes
               ? 0
               : lf_fail(err, LF_EFORMAT,
                         "%s: %s is a sparse file with a hole of %lld bytes at byte %lld; text has "
                         "none",
                         c->files.v[c->at].path, c->member, (long long)(offset - c->member_bytes),
                         (long long)c->member_bytes);
}

/* Read more of the member behind the window; sets member_end at its end. */
static int refill(lf_corpus *c, lf_err *err)
{
    if (c->pos > 0) { /* keep the unread part only; cheap because it is shorter than one record */
        memmove(c->win.data, c->win.data + c->pos, c->win.len - c->pos);
        c->win.len -= c->pos;
        c->pos = 0;
    }
    const void *block;
    size_t n;
    la_int64_t offset;
    int got = archive_read_data_block(c->ar, &block, &n, &offset);
    bool tar = (archive_format(c->ar) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
    if (got == ARCHIVE_EOF) {
        c->member_end = true;
        if (tar)
            return check_hole(c, offset, err);
        return c->check_crc ? check_gzip_end(c, err) : 0;
    }
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
        return archive_fail(c, err);
    int rc = tar ? check_hole(c, offset, err) : 0;
    if (rc == 0 && c->member_bytes == 0)
        rc = check_text(c, block, n, err);
    if (rc != 0)
        return rc;
    c->member_bytes += (int64_t)n;
    if (c->check_crc)
        c->crc = lf_crc32_add(&c->crc_tables, c->crc, block, n);
    lf_buf_add(&c->win, block, n);
    return lf_buf_check(&c->win, err);
}

static int too_long(const lf_corpus *c, uint64_t line, lf_err *err)
{
    if (c->a.format == LF_CORPUS_ROWS)
        return lf_fail(err, LF_EFORMAT, "%s:%llu: a row is longer than %zu bytes",
                       c->files.v[c->at].path, (unsigned long long)line, c->a.max_doc_bytes);
    return lf_fail(err, LF_EINVAL,
                   "%s%s%s:%llu: a document is longer than max_doc_bytes = %zu; choose another "
                   "doc_split or raise it",
                   c->files.v[c->at].path, c->member ? ": " : "", c->member ? c->member : "",
                   (unsigned long long)line, c->a.max_doc_bytes);
}

/* Length of the line at offset `at` behind pos, with its newline, reading as needed; 0: the member
 * has ended. *got_nl.
 */
static int line_length(lf_corpus *c, size_t at, size_t *len, bool *got_nl, uint64_t first_line,
                       lf_err *err)
{
    size_t seen = at;
    for (;;) {
        const char *base = c->win.data + c->pos;
        size_t have = c->win.len - c->pos;
        const char *nl = have > seen ? memchr(base + seen, '\n', have - seen) : NULL;
        if (nl || c->member_end) {
            *len = nl ? (size_t)(nl - base) + 1 - at : have - at;
            *got_nl = nl != NULL;
            return 0;
        }
        if (have > c->a.max_doc_bytes + 2)
            return too_long(c, first_line, err);
        seen = have;
        int rc = refill(c, err);
        if (rc != 0)
            return rc;
    }
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n' && s[i] != '\v' &&
            s[i] != '\f')
            return false;
    return true;
}

static size_t without_newline(const char *s, size_t n)
{
    if (n > 0 && s[n - 1] == '\n')
        n--;
    return n > 0 && s[n - 1] == '\r' ? n - 1 : n;
}

/* Cut the whole member as one record. */
static int cut_file(lf_corpus *c, size_t *len, lf_err *err)
{
    while (!c->member_end) {
        int rc = refill(c, err);
        if (rc != 0)
            return rc;
        if (c->win.len - c->pos > c->a.max_doc_bytes)
            return too_long(c, 1, err);
    }
    *len = c->win.len - c->pos;
    return 0;
}

/* Is this line (with its end) one that separates documents? */
static bool separates(const lf_corpus *c, const char *s, size_t n)
{
    if (c->a.split == LF_CORPUS_BLANK)
        return is_blank(s, n);
    size_t m = without_newline(s, n);
    return m == strlen(c->a.separator) && memcmp(s, c->a.separator, m) == 0;
}

/* Lines up to a separator or up to doc_bytes: *len bytes of text, then *skip bytes of separator;
 * *lines passed. */
static int cut_lines(lf_corpus *c, size_t *len, size_t *skip, uint64_t *lines, lf_err *err)
{
    size_t at = 0;
    *skip = 0;
    *lines = 0;
    for (;;) {
        size_t n;
        bool nl;
        int rc = line_length(c, at, &n, &nl, c->line, err);
        if (rc != 0)
            return rc;
        if (n == 0)
            break;
        *lines += nl;
        if (c->a.split != LF_CORPUS_SIZE && separates(c, c->win.data + c->pos + at, n)) {
            *skip = n;
            break;
        }
        at += n;
        if (at > c->a.max_doc_bytes)
            return too_long(c, c->line, err);
        if (c->a.split == LF_CORPUS_SIZE && at >= c->a.doc_bytes)
            break;
    }
    *len = at;
    return 0;
}

/* The next object of an array: `skip` bytes before it, `take` bytes of it, `lines` of line ends in
 * front of it. take 0: the array has ended. */
static int cut_object(lf_corpus *c, size_t *skip, size_t *take, uint64_t *lines, lf_err *err)
{
    lf_array_scan s = {.first = c->in_source_start == c->in_source};
    for (;;) {
        const size_t have = c->win.len - c->pos;
        int got = lf_array_scan_next(&s, c->win.data + c->pos, have, c->member_end);
        if (got < 0)
            return lf_fail(err, LF_EFORMAT, "%s%s%s:%llu: the JSON array %s",
                           c->files.v[c->at].path, c->member ? ": " : "",
                           c->member ? c->member : "", (unsigned long long)(c->line + s.lines),
                           c->member_end ? "ends early or is no array of objects; is it complete?"
                                         : "has something between its objects that is no comma");
        if (got > 0)
            break;
        if (have > c->a.max_doc_bytes + 2)
            return too_long(c, c->line, err);
        int rc = refill(c, err);
        if (rc != 0)
            return rc;
    }
    if (s.end - s.begin > c->a.max_doc_bytes)
        return too_long(c, c->line + s.lines, err);
    *skip = s.begin;
    *take = s.end - s.begin;
    *lines = s.lines;
    return 0;
}

/* The next record of an array; 0: it has ended. */
static int next_object(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    size_t skip = 0, take = 0;
    uint64_t lines = 0;
    int rc = cut_object(c, &skip, &take, &lines, err);
    if (rc != 0 || take == 0)
        return rc;
    const char *text = c->win.data + c->pos + skip;
    c->line += lines;
    *r = (lf_corpus_record){.raw = text,
                            .len = take,
                            .form = LF_RECORD_JSON,
                            .source = c->at,
                            .line = c->line,
                            .member = c->member,
                            .in_source = c->in_source++,
                            .bom = c->mark};
    for (size_t i = 0; i < take; i++)
        c->line += text[i] == '\n';
    c->mark = false;
    c->pos += skip + take;
    return 1;
}

/* Pass over a byte order mark at the start of the member. */
static int skip_mark(lf_corpus *c, lf_err *err)
{
    int rc = 0;
    while (rc == 0 && c->win.len < 3 && !c->member_end)
        rc = refill(c, err);
    c->pos = rc == 0 ? lf_utf8_bom(c->win.data, c->win.len) : 0;
    c->mark = c->pos > 0;
    c->at_start = false;
    return rc;
}

/* The row of a line of GLUE; 0: it is none. A line behind the first that is wrong is a row that
 * cannot be read: files of the benchmark have some. */
static int make_row(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = lf_glue_row(&c->glue, r->raw, r->len, r->line, &c->row, &why);
    const bool broken = rc == LF_EFORMAT && r->line > 1;
    if (broken) {
        lf_buf_clear(&c->row);
        lf_buf_adds(&c->row, why.text);
        rc = lf_buf_check(&c->row, &why);
    }
    if (rc < 0)
        return lf_fail(err, rc, "%s%s%s:%llu: %s", c->files.v[c->at].path, c->member ? ": " : "",
                       c->member ? c->member : "", (unsigned long long)r->line, why.text);
    r->raw = c->row.data;
    r->len = c->row.len;
    r->form = broken ? LF_RECORD_BROKEN : LF_RECORD_JSON;
    return broken ? 1 : rc;
}

/* The next record of the open member; 0: it has ended. */
static int next_record(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    int begun = c->at_start ? skip_mark(c, err) : 0;
    if (begun != 0)
        return begun;
    if (c->array)
        return next_object(c, r, err);
    for (;;) {
        size_t take = 0, skip = 0, show;
        uint64_t lines = 0;
        bool nl = false;
        int rc;
        bool one_line = c->json || c->a.split == LF_CORPUS_LINE;
        if (one_line) {
            rc = line_length(c, 0, &take, &nl, c->line, err);
            lines = nl;
            if (rc == 0 && take > c->a.max_doc_bytes + 2)
                rc = too_long(c, c->line, err);
        } else if (c->a.split == LF_CORPUS_FILE) {
            rc = cut_file(c, &take, err);
        } else {
            rc = cut_lines(c, &take, &skip, &lines, err);
        }
        if (rc != 0)
            return rc;
        if (take + skip == 0)
            return 0;
        const char *text = c->win.data + c->pos;
        uint64_t line = c->line;
        show = take;
        if (one_line || c->a.split == LF_CORPUS_BLANK || c->a.split == LF_CORPUS_SEPARATOR)
            show = without_newline(text, take);
        c->pos += take + skip;
        c->line += lines;
        if (show == 0 || (c->json && is_blank(text, show)))
            continue;
        bool cr = one_line && nl && take >= 2 && text[take - 2] == '\r';
        *r = (lf_corpus_record){.raw = text,
                                .end = !one_line ? LF_CORPUS_NO_LINE
                                       : cr      ? LF_CORPUS_CRLF
                                       : nl      ? LF_CORPUS_LF
                                                 : LF_CORPUS_NO_END,
                                .len = show,
                                .form = c->json ? LF_RECORD_JSON : LF_RECORD_TEXT,
                                .source = c->at,
                                .line = line,
                                .member = c->member,
                                .in_source = c->in_source,
                                .bom = c->mark};
        if (c->a.glue && (rc = make_row(c, r, err)) <= 0) {
            if (rc < 0)
                return rc;
            continue;
        }
        c->in_source++;
        c->mark = false;
        return 1;
    }
}

size_t lf_corpus_at(const lf_corpus *c)
{
    return c->at;
}

const char *const *lf_corpus_passed(const lf_corpus *c, size_t *n, int64_t *rows)
{
    *n = 0;
    *rows = c->pq ? lf_parquet_rows(c->pq) : 0;
    return c->pq ? lf_parquet_passed(c->pq, n) : NULL;
}

/* The next row of a parquet file; 0: it has ended. */
static int next_row(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    int rc = lf_parquet_next(c->pq, &c->win, err);
    if (rc != 1)
        return rc;
    *r = (lf_corpus_record){.raw = c->win.data,
                            .len = c->win.len,
                            .form = LF_RECORD_PACKED,
                            .source = c->at,
                            .line = c->in_source + 1,
                            .in_source = c->in_source,
                            .passed = c->files.v[c->at].passed};
    c->in_source++;
    return 1;
}

/* At the end of an archive of a folder of Energon: it has as many samples as the folder says. */
static int check_count(const lf_corpus *c, lf_err *err)
{
    const lf_corpus_source *s = &c->files.v[c->at];
    const uint64_t want = s->folder ? lf_energon_samples(s->folder, s->archive) : 0,
                   have = c->in_samples ? c->samples.n : 0;
    return !s->folder || want == have
               ? 0
               : lf_fail(err, LF_EFORMAT,
                         "%s has %llu samples, and .nv-meta says %llu; run energon prepare again",
                         s->path, (unsigned long long)have, (unsigned long long)want);
}

/* The next sample of an archive; 0: it has ended. */
static int next_sample(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    const lf_corpus_source *s = &c->files.v[c->at];
    int rc;
    do
        rc = lf_websamples_next(&c->samples, c->ar, &c->win, err);
    while (rc == 1 && s->folder && lf_energon_excluded(s->folder, s->archive, c->samples.key.data));
    if (rc < 0)
        return lf_err_prefix(err, "%s", s->path);
    if (rc == 0)
        return 0;
    free(c->member);
    if (!(c->member = lf_strdup(c->samples.key.data, err)))
        return LF_ENOMEM;
    *r =
        (lf_corpus_record){.raw = c->win.data,
                           .len = c->win.len,
                           .form = LF_RECORD_PACKED,
                           .source = c->at,
                           .line = c->in_source + 1,
                           .member = c->member,
                           .folder = s->folder && lf_energon_by_parts(s->folder) ? s->folder : NULL,
                           .in_source = c->in_source};
    c->in_source++;
    return 1;
}

/* The caption of a class. */
static void add_caption(lf_buf *out, const char *caption, const char *class, size_t n)
{
    const char *at = caption ? strstr(caption, "{}") : NULL;
    if (!at)
        return;
    lf_buf_add(out, caption, (size_t)(at - caption));
    for (size_t i = 0; i < n; i++)
        lf_buf_addc(out, class[i] == '_' || class[i] == '-' ? ' ' : class[i]);
    lf_buf_adds(out, at + 2);
}

/* The row of a picture in the folder of its class. */
static int next_picture(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    const lf_corpus_source *s = &c->files.v[c->at];
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_adds(&text, c->a.class_mark);
    add_caption(&text, c->a.class_caption, s->label, strcspn(s->label, "/"));
    lf_buf_clear(&c->win);
    lf_buf_adds(&c->win, "{\"images\":[");
    lf_buf_add_json(&c->win, s->path, strlen(s->path));
    lf_buf_adds(&c->win, "],\"prompt\":");
    lf_buf_add_json(&c->win, text.data, text.len);
    c->win.failed = c->win.failed || text.failed;
    lf_buf_fini(&text);
    lf_buf_addf(&c->win, ",\"label\":%lld,\"class\":", (long long)s->class_number - 1);
    lf_buf_add_json(&c->win, s->label, strcspn(s->label, "/"));
    lf_buf_adds(&c->win, "}");
    *r = (lf_corpus_record){.raw = c->win.data,
                            .len = c->win.len,
                            .form = LF_RECORD_JSON,
                            .source = c->at,
                            .line = 1,
                            .end = LF_CORPUS_NO_END};
    c->told = true;
    return lf_buf_check(&c->win, err) == 0 ? 1 : LF_ENOMEM;
}

static void end_source(lf_corpus *c)
{
    const int64_t bytes = c->files.v[c->at].bytes;
    close_source(c);
    c->done_before += bytes > 0 ? bytes : 0;
    c->at++;
}

int lf_corpus_next(lf_corpus *c, lf_corpus_record *r, lf_err *err)
{
    while (c->at < c->files.n) {
        if (c->files.v[c->at].class_number) {
            if (!c->told)
                return next_picture(c, r, err);
            end_source(c);
            continue;
        }
        int rc = c->ar || c->pq ? 0 : open_source(c, err);
        if (rc == 0 && c->pq) {
            rc = next_row(c, r, err);
            if (rc != 0)
                return rc;
        } else if (rc == 0 && !c->in_member && !c->in_samples)
            rc = next_member(c, err);
        else if (rc == 0)
            rc = 1;
        if (rc < 0)
            return rc;
        if (rc == 1 && c->in_samples && (rc = next_sample(c, r, err)) != 0)
            return rc;
        if (rc == 0) { /* no member left */
            if ((rc = check_count(c, err)) < 0)
                return rc;
            end_source(c);
            continue;
        }
        rc = next_record(c, r, err);
        if (rc != 0)
            return rc;
        c->in_member = false;
    }
    return 0;
}

/* ---- meaning of a record ---- */

int lf_corpus_text(const lf_corpus_args *args, const lf_corpus_record *r, const char *where,
                   lf_buf *out, uint64_t *replaced, lf_err *err)
{
    lf_buf_clear(out);
    if (r->form != LF_RECORD_TEXT)
        return lf_row_text(out, r, args->text_field,
                           LF_ROW_NUL | (args->strict ? LF_ROW_STRICT : 0u), where, replaced, err);
    lf_buf_add(out, r->raw, r->len);
    return lf_buf_check(out, err);
}
