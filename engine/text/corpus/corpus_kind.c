/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and signatures of compressed files and archives.
 */
#include "engine/text/corpus/corpus_kind.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "engine/base/str.h"
#include "engine/base/utf8.h"

size_t lf_corpus_strip_compression(const char *name)
{
    static const char *const ext[] = {".gz", ".dz", ".zst", ".xz", ".bz2"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(ext) / sizeof(ext[0]); i++)
        if (lf_str_has_suffix(name, ext[i]))
            return n - strlen(ext[i]);
    return n;
}

bool lf_corpus_ends_with(const char *name, size_t n, const char *suffix)
{
    size_t m = strlen(suffix);
    return n >= m && memcmp(name + n - m, suffix, m) == 0;
}

bool lf_corpus_is_archive_name(const char *name)
{
    static const char *const whole[] = {".zip", ".tgz", ".txz", ".tbz2", ".tzst"};
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        if (lf_str_has_suffix(name, whole[i]))
            return true;
    return lf_corpus_ends_with(name, lf_corpus_strip_compression(name), ".tar");
}

bool lf_corpus_is_parquet_name(const char *name)
{
    return lf_str_has_suffix(name, ".parquet") || lf_str_has_suffix(name, ".pq");
}

bool lf_corpus_holds_files(const char *signature)
{
    static const char *const v[] = {"tar", "zip", "gzip", "bzip2", "xz", "zstd", "parquet"};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (strcmp(v[i], signature) == 0)
            return true;
    return false;
}

const char *lf_corpus_remedy(const char *signature)
{
    static const struct {
        const char *name, *text;
    } v[] = {
        {"parquet", "it is read from its end: unpack it to a file of its own that is whole"},
        {"Arrow stream", "convert it: python3 -c \"import pyarrow as a, pyarrow.parquet as q; "
                         "q.write_table(a.ipc.open_stream('OLD').read_all(), 'NEW.parquet')\""},
        {"Arrow", "convert it: python3 -c \"import pyarrow.feather as f, pyarrow.parquet as q; "
                  "q.write_table(f.read_table('OLD'), 'NEW.parquet')\""},
        {"Feather", "convert it: python3 -c \"import pyarrow.feather as f, pyarrow.parquet as q; "
                    "q.write_table(f.read_table('OLD'), 'NEW.parquet')\""},
        {"tar", "its name must end in .tar for it to be opened"},
        {"PDF", "convert it first: pdftotext -layout OLD NEW.txt"},
        {"Word or Excel", "save it as text or CSV first"},
        {"gzip", "its name must end in .gz for it to be opened"},
        {"bzip2", "its name must end in .bz2 for it to be opened"},
        {"zstd", "its name must end in .zst for it to be opened"},
        {"xz", "its name must end in .xz for it to be opened"},
        {"zip", "its name must end in .zip for it to be opened"}};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (strcmp(v[i].name, signature) == 0)
            return v[i].text;
    return "leave it out of the inputs";
}

const char *lf_corpus_signature(const void *bytes, size_t n)
{
    static const struct {
        const char *name, *bytes;
        size_t at, len;
    } v[] = {{"gzip", "\x1f\x8b\x08", 0, 3},
             {"zip", "PK\x03\x04", 0, 4},
             {"xz",
              "\xfd"
              "7zXZ\0",
              0, 6},
             {"zstd", "\x28\xb5\x2f\xfd", 0, 4},
             {"bzip2", "\x31\x41\x59\x26\x53\x59", 4, 6},
             /* the head of a page follows, whose first byte is no character */
             {"parquet", "PAR1\x15", 0, 5},
             {"Arrow", "ARROW1\0\0", 0, 8},
             {"Arrow stream", "\xff\xff\xff\xff", 0, 4},
             {"Feather", "FEA1\0\0\0\0", 0, 8},
             {"tar", "ustar", 257, 5},
             {"PDF", "%PDF-", 0, 5},
             {"PNG", "\x89PNG\r\n", 0, 6},
             {"JPEG", "\xff\xd8\xff", 0, 3},
             {"Ogg", "OggS\0", 0, 5},
             {"program", "\x7f\x45LF", 0, 4},
             {"SQLite", "SQLite format 3\0", 0, 16},
             {"HDF5", "\x89HDF\r\n\x1a\n", 0, 8},
             {"NumPy", "\x93NUMPY", 0, 6},
             {"Word or Excel", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, 8},
             {"7z", "7z\xbc\xaf\x27\x1c", 0, 6},
             {"rar", "Rar!\x1a\x07", 0, 6},
             {"lz4", "\x04\x22\x4d\x18", 0, 4}};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (n >= v[i].at + v[i].len &&
            memcmp((const char *)bytes + v[i].at, v[i].bytes, v[i].len) == 0)
            return strcmp(v[i].name, "bzip2") == 0 && memcmp(bytes, "BZh", 3) != 0 ? NULL
                                                                                   : v[i].name;
    return NULL;
}

size_t lf_corpus_odd_bytes(const void *bytes, size_t n)
{
    const char *s = bytes;
    size_t odd = 0;
    for (size_t at = 0; at < n;) {
        const size_t good = lf_utf8_check(s + at, n - at);
        for (size_t i = 0; i < good; i++)
            odd += s[at + i] == '\0';
        at += good;
        if (at < n && n - at >= 4) /* else the block may have cut a character */
            odd++;
        at++;
    }
    return odd;
}

/* A letter of a European language in UTF-16 has one NUL; a file of other letters has spaces and
 * line ends. */
const char *lf_corpus_encoding(const void *bytes, size_t n)
{
    const uint8_t *s = bytes;
    size_t nul[2] = {0, 0}; /* at even and at odd places */
    if (n >= 4 && (memcmp(s, "\xff\xfe\0\0", 4) == 0 || memcmp(s, "\0\0\xfe\xff", 4) == 0))
        return "UTF-32";
    if (n >= 2 && (memcmp(s, "\xff\xfe", 2) == 0 || memcmp(s, "\xfe\xff", 2) == 0))
        return "UTF-16";
    for (size_t i = 0; i < n; i++)
        nul[i % 2] += s[i] == 0;
    if (nul[1] > n / 20 && nul[0] < nul[1] / 20)
        return "UTF-16LE";
    if (nul[0] > n / 20 && nul[1] < nul[0] / 20)
        return "UTF-16BE";
    return nul[0] + nul[1] == 0 ? "LATIN1" : NULL;
}

static size_t skip_blank(const char *s, size_t at, size_t n)
{
    while (at < n && (s[at] == ' ' || s[at] == '\t' || s[at] == '\r' || s[at] == '\n'))
        at++;
    return at;
}

/* Behind a byte-order mark and white space. */
static size_t skip_front(const char *s, size_t n)
{
    return skip_blank(s, n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, n);
}

const char *lf_corpus_markup(const char *bytes, size_t n)
{
    static const struct {
        const char *tag, *name;
    } v[] = {
        {"<!doctype html", "HTML"}, {"<html", "HTML"}, {"<?xml", "XML"}, {"<mediawiki", "XML"}};
    const size_t at = skip_front(bytes, n);
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        const size_t len = strlen(v[i].tag);
        if (n - at > len && strncasecmp(bytes + at, v[i].tag, len) == 0 &&
            strchr("> \t\r\n", bytes[at + len]) != NULL)
            return v[i].name;
    }
    return NULL;
}

bool lf_corpus_is_json_array(const char *bytes, size_t n)
{
    size_t at = skip_front(bytes, n);
    if (at >= n || bytes[at] != '[')
        return false;
    at = skip_blank(bytes, at + 1, n);
    return at < n && bytes[at] == '{';
}
