/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file of a corpus is, by its name and by its first bytes.
 */
#ifndef LF_TEXT_CORPUS_KIND_H
#define LF_TEXT_CORPUS_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* Length of name without a compression suffix (.gz, .dz, .zst, .xz, .bz2); its whole length when it
 * has none. */
size_t lf_corpus_strip_compression(const char *name);
/* Do the first n bytes of name end with suffix? */
bool lf_corpus_ends_with(const char *name, size_t n, const char *suffix);
/* tar (compressed or not) or zip, going by the name. */
bool lf_corpus_is_archive_name(const char *name);
bool lf_corpus_is_parquet_name(const char *name);
/* "tar", "zip", "gzip", "bzip2", "xz", "zstd", "parquet", "Arrow", "Arrow stream" or "Feather" when
 * the first n bytes of a file are those of one, else NULL. No text begins like that: each signature
 * holds a byte that is no character, but for tar's, which stands at its fixed place. */
const char *lf_corpus_signature(const void *bytes, size_t n);
/* What to do about a file that a signature was found in. */
const char *lf_corpus_remedy(const char *signature);

#endif
