/* SPDX-License-Identifier: Apache-2.0
 *
 * The kind of a file of a corpus, by its name and by its first bytes.
 */
#ifndef LF_TEXT_CORPUS_KIND_H
#define LF_TEXT_CORPUS_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length of name without a compression suffix (.gz, .dz, .zst, .xz, .bz2). */
size_t lf_corpus_strip_compression(const char *name);
/* Do the first n bytes of name end with suffix? */
bool lf_corpus_ends_with(const char *name, size_t n, const char *suffix);
/* Is this the name of a tar (compressed or not) or zip file? */
bool lf_corpus_is_archive_name(const char *name);
bool lf_corpus_is_parquet_name(const char *name);
/* Returns "tar", "zip", "gzip", "bzip2", "xz", "zstd", "parquet", "Arrow", "Arrow stream" or
 * "Feather" when the first n bytes of a file have that signature, else NULL. No text begins like
 * that: every signature holds a byte that no text has, except that of tar, which stands at a fixed
 * place. */
const char *lf_corpus_signature(const void *bytes, size_t n);
/* What to do about a file that a signature was found in. */
const char *lf_corpus_remedy(const char *signature);

#endif
