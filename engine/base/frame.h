/* SPDX-License-Identifier: Apache-2.0
 *
 * Framed append-only files (metrics): each record is
 *
 *     u32le length of payload, 1..LF_FRAME_MAX | u32le CRC-32C of payload | payload
 *
 * There is one writer. It appends each record with one write(2). Readers may follow by offset while
 * the file grows. A crash may leave a torn tail: a record that ends beyond the end of the file, a
 * last record with a wrong checksum, or zeros to the end. (Length 0 is never a record, because
 * CRC-32C of nothing is 0.) Readers accept a torn tail, and the next writer cuts it off. Anything
 * else that does not fit is a corrupt record: LF_EFORMAT, with its offset.
 */
#ifndef LF_BASE_FRAME_H
#define LF_BASE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_FRAME_MAX  ((size_t)1 << 20)
#define LF_FRAME_HEAD 8

/* Returns the CRC-32C (Castagnoli) after n more bytes. The first call takes crc = 0. "123456789"
 * gives 0xE3069283. */
uint32_t lf_crc32c(uint32_t crc, const void *data, size_t n);

typedef struct lf_frame_writer lf_frame_writer;
/* Opens a file for appending. It is created when absent, and then its directory is fsynced. A torn
 * tail is cut off. The caller owns the writer. */
lf_frame_writer *lf_frame_writer_open(const char *path, lf_err *err);
/* On failure the file is cut back to the last whole record, so a full disk leaves no half
 * record. */
int lf_frame_append(lf_frame_writer *w, const void *payload, size_t n, lf_err *err);
int lf_frame_sync(lf_frame_writer *w, lf_err *err);
int64_t lf_frame_writer_offset(const lf_frame_writer *w); /* bytes of whole records */
/* fsyncs and frees w, also on failure; w may be NULL */
int lf_frame_writer_close(lf_frame_writer *w, lf_err *err);

/* Takes one record. Returns 1 to go on, 0 to stop before this record, or a negative code with err
 * set to fail. payload has n bytes and is followed by a NUL, which n does not count. */
typedef int (*lf_frame_fn)(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err);

/* Calls fn for each whole record from *offset on. *offset moves behind each record that fn
 * accepted, also when the function fails later. */
int lf_frame_read(const char *path, int64_t *offset, lf_frame_fn fn, void *ctx, lf_err *err);

/* Prepares a file for a resume: the leading records that `keep` accepts stay. The first refused,
 * torn or corrupt record and everything behind it are cut off, and the file is fsynced. *kept (may
 * be NULL) becomes the number of records that stay. A caller that knows what the last record must
 * be checks this in keep. An absent file counts as empty. LF_EFORMAT: the file begins with a length
 * that no record has, so it is of another kind; nothing is cut. */
int lf_frame_truncate(const char *path, lf_frame_fn keep, void *ctx, int64_t *kept, lf_err *err);

#endif
