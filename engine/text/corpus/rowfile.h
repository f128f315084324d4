/* SPDX-License-Identifier: Apache-2.0
 *
 * One file of rows, where a stage wants rows and no text: JSON lines, compressed or not, or
 * parquet; "-" is standard input, JSON lines. Blank lines are passed over.
 */
#ifndef LF_TEXT_ROWFILE_H
#define LF_TEXT_ROWFILE_H

#include "engine/text/corpus/corpus.h"
#include "engine/text/corpus/rowjson.h"

#define LF_ROWFILE_MAX ((size_t)64 << 20) /* bytes of a row */

typedef struct lf_rowfile {
    const char *path; /* borrowed */
    lf_corpus *corpus;
    lf_corpus_record record; /* the row that next gave; record.line: its number from 1 */
    char where[512];         /* "file:line" of it, "standard input:line" */
} lf_rowfile;

/* Anything but a regular file, a pipe or "-" is an error. lf_rowfile_close. */
int lf_rowfile_open(lf_rowfile *f, const char *path, lf_err *err);
/* The same of a file of GLUE (glue.h), which is borrowed until close; NULL: it is none. */
int lf_rowfile_open_glue(lf_rowfile *f, const char *path, const lf_glue *glue, lf_err *err);
/* The same, and of parquet the columns image and images have the bytes of pictures, which are no
 * UTF-8: {bytes, path} of the object. */
int lf_rowfile_open_pictures(lf_rowfile *f, const char *path, lf_err *err);
void lf_rowfile_close(lf_rowfile *f); /* a zeroed one is fine */

/* The next row: 1 and f->record, f->where; 0 after the last. */
int lf_rowfile_next(lf_rowfile *f, lf_err *err);
/* And its object, owned; texts are UTF-8, without NULs unless flags allow them (LF_ROW_NUL). */
int lf_rowfile_object(lf_rowfile *f, json_t **row, unsigned flags, lf_err *err);

#endif
