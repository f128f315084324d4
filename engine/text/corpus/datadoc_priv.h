/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the doctor: rows (datadoc.c), oddities of a text (datadoc_odd.c), duplicates
 * (datadoc_dup.c), turns and pairs (datadoc_turns.c), the report (datadoc_report.c).
 */
#ifndef LF_TEXT_DATADOC_PRIV_H
#define LF_TEXT_DATADOC_PRIV_H

#include "engine/text/corpus/datadoc.h"
#include "engine/text/corpus/lengths.h"

enum {
    ODD_UTF8,
    ODD_BOM,
    ODD_CONTROL,
    ODD_REPLACEMENT,
    ODD_MOJIBAKE,
    ODD_ENTITIES,
    ODD_UNBROKEN,
    ODD_REPEATED_CHARS,
    ODD_REPEATED_LINES,
    ODD_EMPTY,
    ODD_LINE_ENDS,
    N_ODD
};
extern const char *const lf_datadoc_odd_names[N_ODD];

/* The place of a row. Its text is made only when the place is reported. */
struct lf_place {
    uint32_t source;
    uint64_t line;
    char *member; /* owned, NULL */
};

/* ---- oddities ---- */
/* Returns the bits 1 << ODD_* of one text. raw has the bytes as they stand in the file, for UTF-8
 * and the byte order mark. scratch grows as needed. */
unsigned lf_datadoc_odd(const char *text, size_t len, const char *raw, size_t raw_len,
                        lf_buf *scratch);
uint64_t lf_datadoc_hash(const void *data, size_t n, uint64_t seed);
uint64_t lf_datadoc_chars(const char *text, size_t len); /* code points */

/* ---- duplicates ---- */
struct lf_dups;
struct lf_dups *lf_dups_create(size_t max_bytes, lf_err *err);
void lf_dups_destroy(struct lf_dups *d);
/* Returns 1 when the hash came before, with *first the number of that row; 0 when not, or when the
 * hash is not sampled. */
int lf_dups_add(struct lf_dups *d, uint64_t hash, uint64_t row, uint64_t *first, lf_err *err);
int lf_dups_sampled(const struct lf_dups *d); /* k: one row in 2^k is sampled */

struct lf_near;
struct lf_near *lf_near_create(size_t max_bytes, lf_err *err);
void lf_near_destroy(struct lf_near *d);
/* Returns 1 when the row resembles row *like, with about *similarity. Texts of less than 50
 * characters are skipped. */
int lf_near_add(struct lf_near *d, const char *text, size_t len, uint64_t row, uint64_t *like,
                double *similarity, lf_err *err);
uint64_t lf_near_rows(const struct lf_near *d); /* rows looked at */

/* ---- what tokenizing would make of it (datadoc_enc.c) ---- */
struct lf_docenc;
struct lf_docenc *lf_docenc_create(lf_err *err);
void lf_docenc_destroy(struct lf_docenc *e);
int lf_docenc_row(struct lf_docenc *e, const lf_rowdocs_opts *o, lf_tok_state *t, const lf_row *row,
                  lf_err *err);
/* About the last row: its tokens, 0 when it is left out; whether its place is to be reported;
 * reporting it (`at` is taken); its text as it is trained. */
size_t lf_docenc_length(const struct lf_docenc *e);
/* Tokens of its documents behind the first `room` of each. */
uint64_t lf_docenc_behind(const struct lf_docenc *e, uint64_t room);
bool lf_docenc_notable(const struct lf_docenc *e);
void lf_docenc_tell(struct lf_docenc *e, json_t *at);
/* Appends the row as it is trained, what is trained between {+ and +}, and to `trained` where that
 * begins and ends: [begin, end) in bytes, without the signs. */
int lf_docenc_show(const struct lf_docenc *e, const lf_tokenizer *tok, lf_buf *out, json_t *trained,
                   lf_err *err);
json_t *lf_docenc_json(const struct lf_docenc *e, bool *odd);

#endif
