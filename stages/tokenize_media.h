/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lf-tokenize: rows with pictures.
 */
#ifndef LF_STAGES_TOKENIZE_MEDIA_H
#define LF_STAGES_TOKENIZE_MEDIA_H

#include "engine/media/expand.h"
#include "engine/store/shard.h"
#include "engine/text/corpus/datadoc.h"
#include "engine/text/corpus/rowdocs.h"
#include "engine/text/corpus/rowjson.h"
#include "engine/text/corpus/rowmedia.h"

enum { LF_TOK_TILE_NAMES = 36 }; /* <row_1_col_1> to <row_6_col_6> of Idefics 3 */

/* What is done about pictures; constant once the tokenizer is there. */
typedef struct tok_media {
    bool on, header_only;             /* the latter: pictures are not decoded */
    const char *dir;                  /* of relative paths; NULL: the working directory */
    lf_buf image_processor, settings; /* the texts of a shard (lf_shard_info) */
    lf_processor processor;
    lf_expand expand;
    int64_t image_token;
    /* placeholder, what stands around a run of them, names of tiles */
    uint32_t untrained[3 + LF_TOK_TILE_NAMES];
    size_t n_untrained;
} tok_media;

/* The options of these names; NULL: not given. Borrowed. */
struct tok_media_opts {
    const char *processor, *tokenizer, *dir, *placeholders;
    bool header_only;
};
/* Reads the files that they name; *m is zeroed, and off without `processor`. */
int lf_tokenize_media_setup(tok_media *m, const struct tok_media_opts *o, lf_err *err);
void lf_tokenize_media_fini(tok_media *m);
/* Finds the ids; sets o->untrained. */
int lf_tokenize_media_tokens(tok_media *m, const lf_tokenizer *t, lf_rowdocs_opts *o, lf_err *err);

/* The pictures of one row, of one thread; zeroed at first. */
typedef struct tok_pics {
    const tok_media *m;
    lf_rowmedia from;
    /* [documents of the row][n] bytes are NULL; only their places differ */
    lf_shard_picture *v;
    lf_expand_picture *e;
    size_t n, cap, cap_e;
    lf_buf bytes;                                         /* one picture after the other */
    enum { PICS_FINE, PICS_MISMATCH, PICS_BROKEN } fault; /* of a row that failed */
    lf_rewrite rewrite;
} tok_pics;
void lf_tokenize_pics_init(tok_pics *p, const tok_media *m);
void lf_tokenize_pics_fini(tok_pics *p);

/* Reads a record as a row with its pictures, all of which are decoded unless m->header_only.
 * LF_EFORMAT: the row is at fault. On success the caller owns *row, whose rewrite is p's. */
int lf_tokenize_pics_row(tok_pics *p, lf_row *row, const lf_shape_opts *o,
                         const lf_corpus_record *r, const char *where, uint64_t *replaced,
                         lf_err *err);
/* Finds the placeholders of the row's documents. LF_EFORMAT: they are not those that were
 * written. */
int lf_tokenize_pics_place(tok_pics *p, const lf_rowdocs *d, lf_err *err);

/* ---- the doctor ---- */

/* Reads rows with their pictures and counts these; o outlives it. NULL: no memory. */
typedef struct tok_pics_doctor tok_pics_doctor;
tok_pics_doctor *lf_tokenize_pics_doctor(const tok_media *m, const lf_shape_opts *o, lf_err *err);
void lf_tokenize_pics_doctor_free(tok_pics_doctor *d); /* NULL is fine */
lf_datadoc_reader lf_tokenize_pics_reader(tok_pics_doctor *d);
/* Appends a page with the samples of a report, their pictures and tokens, and takes out of the
 * report what is for the page alone. Nothing is appended where no sample has pictures. */
void lf_tokenize_doctor_page(lf_buf *out, json_t *report);

#endif
