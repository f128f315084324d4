/* SPDX-License-Identifier: Apache-2.0
 *
 * What a record of a row means: a line of JSON and a row of parquet become the same object, and
 * from there nothing tells them apart. A text that is not UTF-8 is repaired with U+FFFD or, with
 * LF_ROW_STRICT, an error. All functions are thread-safe; `where` stands before messages.
 */
#ifndef LF_TEXT_ROWJSON_H
#define LF_TEXT_ROWJSON_H

#include <jansson.h>

#include "engine/text/chat/shape.h"
#include "engine/text/corpus/corpus.h"

enum { LF_ROW_STRICT = 1, LF_ROW_NUL = 2 /* texts may hold NULs */ };

/* The object, owned: json_decref. LF_EFORMAT: the record is no object, is plain text or holds a
 * NUL. *replaced (NULL allowed) is raised by the U+FFFD put in. */
int lf_row_json(json_t **out, const lf_corpus_record *r, unsigned flags, const char *where,
                uint64_t *replaced, lf_err *err);

/* The object's row of a shape, as lf_shape_row. Owned: lf_row_fini. */
int lf_row_shape(lf_row *out, const lf_shape_opts *o, const lf_corpus_record *r, const char *where,
                 uint64_t *replaced, lf_err *err);

/* Appends the object's text of that name to out; an object without it names those it has. */
int lf_row_text(lf_buf *out, const lf_corpus_record *r, const char *field, unsigned flags,
                const char *where, uint64_t *replaced, lf_err *err);

#endif
