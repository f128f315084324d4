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
/* Returns the name of a format ("gzip", "parquet", "PDF", "PNG", ...) when the first n bytes of a
 * file have its signature, else NULL. No text begins like that: a signature holds a byte that no
 * text has, or it is that of PDF, or it stands at a fixed place inside the file as that of tar
 * does. */
const char *lf_corpus_signature(const void *bytes, size_t n);
/* Can it be read once it is a file of its own? Compressed files, archives and parquet can. */
bool lf_corpus_holds_files(const char *signature);
/* What to do about a file that a signature was found in. */
const char *lf_corpus_remedy(const char *signature);
/* How many of the n bytes are no UTF-8 text: NULs, and bytes of no valid character. A character
 * that the end of the block cuts off does not count. */
size_t lf_corpus_odd_bytes(const void *bytes, size_t n);
/* What bytes that are no UTF-8 are, as iconv calls it: UTF-32 and UTF-16 by the byte order mark,
 * UTF-16LE and UTF-16BE by where their NULs stand, LATIN1 for want of anything better. NULL: bytes
 * with NULs, which are no text in any way that is known here. */
const char *lf_corpus_encoding(const void *bytes, size_t n);
/* Returns "HTML" for a file that begins with <!DOCTYPE html or <html, and "XML" for <?xml and
 * <mediawiki; NULL for any other. A byte-order mark and white space may stand before them, and the
 * case of letters does not count. */
const char *lf_corpus_markup(const char *bytes, size_t n);
/* Does a file that begins so hold one JSON array of objects? */
bool lf_corpus_is_json_array(const char *bytes, size_t n);

#endif
