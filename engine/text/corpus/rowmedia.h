/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows with pictures. A row names them in the column `image` or `images`, in the parts of its turns
 * or in both:
 *
 *   column  a path, a URL, {bytes, path} of parquet, or a list of these
 *   turns   a text with the mark <image>, each for the next picture of the column (LLaVA,
 *           LLaMA-Factory); or a list of parts {type: text, text} and {type: image}, which is the
 *           next picture of the column unless it has one itself (image, url, path, or image_url:
 *           {url})
 *
 * The k-th mark of the row is its k-th picture; all are used, by both answers of a pair. For the
 * chat template every turn becomes a list of parts, since templates of vision models read these
 * (and some nothing else): a text is cut at its marks, and white space around a mark is dropped,
 * because the template writes its own. A member of an image that asks for another size (min_pixels,
 * detail, ..) is refused: sizes are those of the processor. Paths begin at a directory; http is
 * refused, for data that is fetched while it is read is other data next time.
 */
#ifndef LF_TEXT_ROWMEDIA_H
#define LF_TEXT_ROWMEDIA_H

#include "engine/text/chat/shape.h"

#define LF_ROWMEDIA_MARK "<image>"

/* The pictures of a row, in the order of their marks. Zeroed at first; lf_rowmedia_fini. */
typedef struct lf_rowmedia {
    json_t *column; /* what the column had: a list, or NULL */
    json_t *list;   /* the pictures: texts or objects */
    bool ignore;    /* members of parts that mean nothing are ignored (lf_shape_opts) */
} lf_rowmedia;

/* Takes the column out of a row, before its shape is looked for. LF_EFORMAT: two columns, or one
 * that is none of the above. */
int lf_rowmedia_take(lf_rowmedia *m, json_t *root, const lf_shape_opts *o, const char *where,
                     lf_err *err);
/* Finds the pictures of the row's turns and makes lists of parts of these. A row without turns has
 * the pictures of its column. The two answers of a pair are to the same pictures: their marks are
 * counted from the prompt's on, or from the beginning where each is a whole conversation.
 * LF_EFORMAT: the numbers of marks and pictures differ, or the two sides have other pictures. */
int lf_rowmedia_turns(lf_rowmedia *m, lf_row *row, const char *where, lf_err *err);
void lf_rowmedia_fini(lf_rowmedia *m);

/* Reads picture i to out: the file's bytes, of at most max. dir: of paths that are relative; NULL:
 * the working directory. LF_EFORMAT, LF_ENOENT, LF_EIO: the row's fault. */
int lf_rowmedia_read(const lf_rowmedia *m, size_t i, const char *dir, size_t max, lf_buf *out,
                     lf_err *err);

#endif
