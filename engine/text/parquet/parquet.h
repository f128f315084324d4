/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows out of an Apache Parquet file, read without a library of its own:
 *
 *   PAR1 | row group: column chunk: page, page, .. | .. | footer (Thrift compact) | length | PAR1
 *
 * Read are data pages v1 and v2; PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, RLE, DELTA_BINARY_PACKED,
 * DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT; pages that are not compressed or
 * compressed by snappy, gzip or zstd, each if the build has its library; lists and structs in any
 * order, also in the two-level forms of old writers. A column has a place in a row when its type is
 * a text, a number or a truth value:
 *
 *   STRING, JSON, ENUM           text        BOOLEAN         true, false
 *   INT32, INT64, INT(n, signed) integer     FLOAT, DOUBLE   real, finite
 *
 * In columns that are named for it binary has a place, too, such as the bytes of a picture.
 * Elsewhere binary, and everywhere decimal, date, time, timestamp, interval, UUID, 16-bit float,
 * INT96 and map have none: the file is refused by the column's name unless the column is not among
 * those that are read.
 * Refused are also other codecs, encrypted files, and files whose columns lie in other files.
 *
 * Rows come in order, each in the form of rowpack.h. Memory is that of one page of each column that
 * is read, as it is stored and unpacked, with the column's dictionary; sizes that a file declares
 * are compared with its length and with what the codec can pack before memory is asked for.
 */
#ifndef LF_TEXT_PARQUET_H
#define LF_TEXT_PARQUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_parquet lf_parquet;

typedef struct lf_parquet_opts {
    /* names of columns at the top; others are passed over. NULL: all. Borrowed until close. */
    const char *const *columns;
    size_t n_columns;
    /* names of columns at the top in which binary is read as bytes. Borrowed until close. */
    const char *const *binary;
    size_t n_binary;
    size_t max_row_bytes; /* of a row in its form; a longer one is an error */
    const char *raise;    /* the option that sets it, for the message; NULL: none */
} lf_parquet_opts;

/* Does the file begin and end as one of parquet, encrypted or not? *yes; a file that cannot be read
 * is an error. */
int lf_parquet_is(bool *yes, const char *path, lf_err *err);

/* Reads the footer. Owned: lf_parquet_close. LF_EFORMAT: damaged or cut short; LF_ENOTSUP: a codec,
 * a form or a column's type is not read, and what to do about it; LF_ENOENT: none of the columns is
 * there, and which are. Messages name the file, and where it applies row group, column and the
 * page's place. */
int lf_parquet_open(lf_parquet **out, const char *path, const lf_parquet_opts *o, lf_err *err);
void lf_parquet_close(lf_parquet *p); /* NULL is fine */

/* The next row into *row (cleared first): 1; 0 after the last. Negative on error, after which p can
 * only be closed. */
int lf_parquet_next(lf_parquet *p, lf_buf *row, lf_err *err);

/* The names of columns at the top that are passed over, *n of them; borrowed until close. */
const char *const *lf_parquet_passed(const lf_parquet *p, size_t *n);
int64_t lf_parquet_rows(const lf_parquet *p);       /* of the file */
int64_t lf_parquet_bytes_done(const lf_parquet *p); /* of the file's bytes, read so far */

#endif
