/* SPDX-License-Identifier: Apache-2.0
 *
 * The dataset doctor: it reports the contents and the faults of a corpus, row by row, in bounded
 * memory.
 *
 * For every row it finds whether the row is broken (no JSON, no shape), its shape, its length,
 * whether the same row (by hash) or a similar one (by MinHash) came before, and the oddities below.
 * None of this depends on a language. Findings are counted, and their first places are kept.
 *
 *   invalid_utf8      bytes that are not UTF-8
 *   bom               a byte order mark
 *   control           C0 but tab and line ends, DEL, C1
 *   replacement       U+FFFD: the text was damaged earlier
 *   mojibake          UTF-8 that was read as Latin-1 or Windows-1252: U+00C2..U+00C3 before
 *                     U+0080..U+00BF, U+00E2 before U+20AC or U+0080
 *   entities          &amp; &#39; and their like
 *   unbroken          1,000 ASCII characters without white space, which are data and no text
 *   repeated_chars    64 times the same character, not counting white space
 *   repeated_lines    of 10 or more lines that are not blank, 3 in 10 repeat an earlier line of the
 *                     row
 *   empty             nothing but white space
 *   line_ends         CR LF and LF in one file or row, or a lone CR
 *
 * Rows that are more than a text are looked at turn by turn (datadoc_turns.h).
 *
 * Memory: duplicates take 32 bytes a row, up to max_bytes / 4, and prompts the same. Beyond that,
 * rows are sampled by their hash; the report then says that its numbers are estimates. Near
 * duplicates are searched among the first rows that fit into max_bytes / 2.
 */
#ifndef LF_TEXT_DATADOC_H
#define LF_TEXT_DATADOC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/chat/shape.h"
#include "engine/text/corpus/corpus.h"
#include "engine/text/corpus/rowdocs.h"
#include "engine/text/token/tokenizer.h"

/* Rows that take more to read than their columns, such as those with pictures. */
typedef struct lf_datadoc_reader {
    /* reads a row, as lf_row_shape does */
    int (*row)(void *arg, lf_row *out, const lf_corpus_record *r, uint64_t *replaced, lf_err *err);
    /* appends what tells the last row from others with the same texts */
    void (*text)(void *arg, lf_buf *out);
    /* what was found, the member "pictures" of the report; *any: something was odd. NULL: no
     * memory */
    json_t *(*report)(void *arg, bool *any);
    /* what a sample of the last row has beside its text, its member "pictures"; NULL: nothing */
    json_t *(*sample)(void *arg);
    void *arg;
} lf_datadoc_reader;

typedef struct lf_datadoc_opts {
    const lf_corpus_args *corpus;  /* borrowed */
    const lf_shape_opts *shape;    /* JSON rows; borrowed */
    const lf_tokenizer *tokenizer; /* NULL: lengths are counted in characters */
    unsigned flags;                /* of encoding */
    /* options with which rows would be tokenized; NULL: that is not tried */
    const lf_rowdocs_opts *rows;
    const lf_datadoc_reader *reader; /* NULL: rows are their columns */
    /* tokens of a training sequence, to tell what does not fit; 0: not asked. It needs a tokenizer
     * to say anything of use. */
    uint64_t seq_length;
    uint64_t seed;      /* of the random samples */
    size_t max_bytes;   /* of memory for duplicates */
    size_t max_broken;  /* broken rows that are reported with their place */
    bool (*stop)(void); /* called now and then; true ends the work; may be NULL */
} lf_datadoc_opts;

/* Reads the whole corpus. The caller owns *report. A file that cannot be read to its end is
 * recorded under "unreadable", and the next file is read. LF_EINTR: stop() returned true.
 *
 *   {"rows","bytes","clean",
 *    "shapes":{name:rows},
 *    "lengths":{"unit":"tokens"|"characters","min","max","mean","p1".."p99",
 *               "histogram":[{"from","to","rows"}]},
 *    "broken":{"rows","first":[{"at","why"}]},
 *    "unreadable":[{"at","why"}],
 *    "longest":[{"at","length"}],
 *    "duplicates":{"rows","estimated","first":[{"at","same_as"}]},
 *    "near_duplicates":{"rows","among","first":[{"at","like","similarity"}]},
 *    "oddities":{name:{"rows","first":[at]}},
 *    "samples":[{"kind","at","length","text","trained"?,"pictures"?}]}
 *
 * and, where it applies, "conversations" (datadoc_turns.h) and, with seq_length,
 *
 *    "cut":{"seq_length","rows","rows_share","tokens","tokens_share"}
 *
 * which has the rows that do not fit and the tokens behind it, with their shares of all.
 *
 * With o->reader it has "pictures", as the reader makes it: {"rows","pictures","repeated","bytes",
 * "broken","mismatched","width":{"min","max"},"height":{"min","max"},
 * "placeholders":{"min","max","mean"},"sides":[{"from","to","pictures"}]}, where the last is by the
 * longer side.
 *
 * With o->rows the report has one more member:
 *
 *    "encoded":{"rows","documents","tokens","trained","trained_share","no_template",
 *               "left_out":{reason:{"rows","first":[{"at","why"}]}},
 *               "found":{name:{"rows","first":[at]}}}
 *
 * "no_template" counts rows with turns where there is no chat template. Lengths are then those of
 * documents, and samples show them decoded, with trained parts between {+ and +}. Reasons are those
 * of lf_row_fate. The names below "found" are truncated, without_eos, double_bos, seams,
 * empty_answers, different_prompts (lf_rowdocs), prompt_trained, and special_in_content: a turn has
 * the text of a special token, which becomes that token. */
int lf_datadoc_run(json_t **report, lf_corpus *c, const lf_datadoc_opts *o, lf_err *err);

/* Appends the report as text for people, safe for a terminal. */
void lf_datadoc_text(const json_t *report, lf_buf *out);

#endif
