/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and signatures of compressed files and archives.
 */
#include "engine/text/corpus/corpus_kind.h"

#include <string.h>

#include "engine/base/str.h"

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
        {"gzip", "its name must end in .gz for it to be opened"},
        {"bzip2", "its name must end in .bz2 for it to be opened"},
        {"zstd", "its name must end in .zst for it to be opened"},
        {"xz", "its name must end in .xz for it to be opened"},
        {"zip", "its name must end in .zip for it to be opened"}};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (strcmp(v[i].name, signature) == 0)
            return v[i].text;
    return "its name must end in .tar for it to be opened";
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
             {"tar", "ustar", 257, 5}};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (n >= v[i].at + v[i].len &&
            memcmp((const char *)bytes + v[i].at, v[i].bytes, v[i].len) == 0)
            return strcmp(v[i].name, "bzip2") == 0 && memcmp(bytes, "BZh", 3) != 0 ? NULL
                                                                                   : v[i].name;
    return NULL;
}
