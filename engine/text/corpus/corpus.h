/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents out of files. Files are plain text or JSON lines, alone, compressed (gzip and dictzip,
 * bzip2, xz, zstd) or inside tar and zip; libarchive unpacks them. A parquet file is always a file
 * of its own. Inputs are files, directories (recursive, sorted, without hidden names), globs and
 * standard input ("-"). A byte order mark at the start of a file is skipped. A compressed file, an
 * archive or a sparse file inside an archive is an error. Memory is bounded by the longest
 * document, of parquet by a page of each column. Reading is sequential, and its order depends on
 * the input names alone, so the n-th document is the same every time. A file that is one JSON array
 * of objects is read an object at a time where `arrays` allows it.
 *
 * One thread reads records (lf_corpus_next). Any thread gets the text of a record (lf_corpus_text),
 * because parsing JSON takes longer than reading.
 */
#ifndef LF_TEXT_CORPUS_H
#define LF_TEXT_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/corpus/energon.h"
#include "engine/text/corpus/glue.h"

/* AUTO goes by the name and, for parquet, by how a file begins and ends. ROWS: parquet where it is
 * one, else JSON lines. */
enum lf_corpus_format {
    LF_CORPUS_AUTO,
    LF_CORPUS_TEXT,
    LF_CORPUS_JSONL,
    LF_CORPUS_PARQUET,
    LF_CORPUS_ROWS
};
enum lf_corpus_split {
    LF_CORPUS_FILE,      /* a file is a document */
    LF_CORPUS_LINE,      /* a line is a document, without its line end */
    LF_CORPUS_BLANK,     /* documents are separated by lines of white space only */
    LF_CORPUS_SEPARATOR, /* documents are separated by lines equal to `separator` */
    LF_CORPUS_SIZE /* a document ends with the line that reaches doc_bytes; nothing is dropped */
};

typedef struct lf_corpus_args {
    const char *const *inputs; /* borrowed during open */
    size_t n_inputs;
    enum lf_corpus_format format;
    enum lf_corpus_split split;
    const char *separator;  /* SEPARATOR; borrowed until close */
    const char *text_field; /* member of a row; borrowed until close */
    /* parquet: columns to read, the others are passed over; NULL: all. Borrowed until close. */
    const char *const *columns;
    size_t n_columns;
    const char *const *binary; /* parquet: columns in which binary is read; borrowed until close */
    size_t n_binary;
    size_t doc_bytes;     /* SIZE */
    size_t max_doc_bytes; /* a longer record is an error */
    /* AUTO, TEXT: files of plain text are an error, because of this setting (shape, text_field);
     * NULL: they are not. Borrowed until close. */
    const char *rows_only;
    /* Take HTML and XML as they are; so does TEXT. Without both they are an error. */
    bool markup;
    bool arrays; /* a file that is one JSON array of objects has rows, whatever it is called */
    /* an archive whose first member is a picture, a txt or a json holds samples
     * (corpus_samples.h) */
    bool samples;
    const lf_energon_opts *energon; /* how folders of Energon are read; borrowed until close; NULL:
                                     * they are an error */
    /* The input is a folder with a folder of pictures for each class, whose number is its place in
     * the order of their names. A picture is a row {"images": [path], "prompt": class_mark,
     * "label": number, "class": name}. Borrowed until close; NULL: it is not so */
    const char *class_mark;
    /* Files are those of a task of GLUE, and each line becomes a row (glue.h); its task and
     * between; with format TEXT and split LINE. Borrowed until close; NULL: they are not */
    const lf_glue *glue;
    /* what stands behind class_mark, with {} for the name of the class, in which _ and - become
     * blanks; NULL: nothing */
    const char *class_caption;
    bool ignore_others; /* of samples: members that are none of them are passed over */
    bool any_bytes;     /* take files that seem to be no UTF-8 text; without it they are an error */
    bool strict; /* a JSON line that is not valid UTF-8 is an error, else repaired with U+FFFD */
} lf_corpus_args;

typedef struct lf_corpus_source {
    char *path;    /* as opened; "-" for standard input */
    char *label;   /* path below the input it came from: independent of the place of the input */
    int64_t bytes; /* -1: standard input */
    char *passed;  /* of parquet that was opened: the columns that are not read, "a, b"; or NULL */
    const lf_energon *folder; /* that it is an archive of, or NULL; lives as long as the corpus */
    size_t archive;           /* number of it there */
    int64_t class_number;     /* 1 more than that of class_mark; 0: it is no such picture */
} lf_corpus_source;

typedef struct lf_corpus lf_corpus;

/* Finds the files and opens none of them. LF_ENOENT: an input or glob has no file; the message
 * names it. */
int lf_corpus_open(lf_corpus **out, const lf_corpus_args *args, lf_err *err);
void lf_corpus_close(lf_corpus *c);
const lf_corpus_source *lf_corpus_sources(const lf_corpus *c, size_t *n);
int64_t lf_corpus_total_bytes(const lf_corpus *c); /* of all sources, -1 when unknown */

size_t lf_corpus_at(const lf_corpus *c); /* source being read */
/* Continues at the start of source i (0 <= i <= n). */
int lf_corpus_seek(lf_corpus *c, size_t source, lf_err *err);

/* How the line of a record ends. LF_CORPUS_NO_END: at the end of the file, without a line end.
 * LF_CORPUS_NO_LINE: the record is no line. */
enum lf_corpus_end { LF_CORPUS_NO_LINE, LF_CORPUS_LF, LF_CORPUS_CRLF, LF_CORPUS_NO_END };

/* What the bytes of a record are: text, a line of JSON, a row of parquet (parquet/rowpack.h),
 * or, of a line of GLUE that is no row, why it is none. */
enum lf_corpus_form { LF_RECORD_TEXT, LF_RECORD_JSON, LF_RECORD_PACKED, LF_RECORD_BROKEN };

/* One record: raw bytes, never empty, valid until the next call. rowjson.h says what a row is. */
typedef struct lf_corpus_record {
    const char *raw;
    size_t len;
    enum lf_corpus_form form;
    size_t source; /* index of the file */
    /* of the file or archive member, from 1, where the record starts; parquet: number of the row */
    uint64_t line;
    const char *member; /* inside an archive, else NULL; valid until the next call */
    enum lf_corpus_end end;
    uint64_t in_source; /* records of this source before this one */
    /* PACKED: the columns of its file that are not read, "a, b"; NULL: none. Valid until close. */
    const char *passed;
    /* PACKED: the folder of Energon that the parts of a sample are of, of which lf_row_json makes
     * the row; NULL: it is one. Valid until close. */
    const lf_energon *folder;
    /* a byte order mark stands before it at the start of the file; raw does not hold it */
    bool bom;
} lf_corpus_record;
/* Returns 1 with a record, 0 at the end, or a negative code. The message about a truncated or
 * corrupt file names file, member and position. */
int lf_corpus_next(lf_corpus *c, lf_corpus_record *r, lf_err *err);
/* Of the parquet file that the last record is from: the names of columns that `columns` passes
 * over, *n of them, and its rows; of another file none. Valid until the next call. */
const char *const *lf_corpus_passed(const lf_corpus *c, size_t *n, int64_t *rows);
int64_t lf_corpus_bytes_done(const lf_corpus *c); /* of the sources' bytes, consumed so far */

/* Sets out to the text of a record, which may hold NULs and, for plain text, invalid UTF-8. where
 * is for messages. *replaced grows by the number of U+FFFD put into a row. Thread-safe. */
int lf_corpus_text(const lf_corpus_args *args, const lf_corpus_record *r, const char *where,
                   lf_buf *out, uint64_t *replaced, lf_err *err);

#endif
