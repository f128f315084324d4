/* SPDX-License-Identifier: Apache-2.0
 *
 * The dataset doctor: what is in a corpus and what is wrong with it, row by row, in bounded memory.
 *
 * For every row: is it broken (no JSON, no shape), which shape, how long, seen before (exactly:
 * hash; nearly: MinHash), and the oddities below. Nothing here knows a language. What is found is
 * counted, and the first places are kept.
 *
 *   invalid_utf8      bytes that are not UTF-8
 *   bom               a byte order mark
 *   control           C0 but tab and line ends, DEL, C1
 *   replacement       U+FFFD: damage done before
 *   mojibake          UTF-8 that was read as Latin-1 or Windows-1252: U+00C2..U+00C3 before
 *                     U+0080..U+00BF, U+00E2 before U+20AC or U+0080
 *   entities          &amp; &#39; and their like
 *   unbroken          1,000 ASCII characters without white space: data, not text
 *   repeated_chars    64 times the same character, white space left out
 *   repeated_lines    of 10 or more lines that are not blank, 3 of 10 were there before in the row
 *   empty             nothing but white space
 *   line_ends         CR LF and LF in one file or row, or a lone CR
 *
 * Memory: duplicates take 32 bytes a row up to max_bytes / 2; beyond it rows are sampled by their
 * hash and the numbers are estimates, which the report says. Near duplicates are sought among the
 * first rows that fit into max_bytes / 2.
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

typedef struct lf_datadoc_opts {
    const lf_corpus_args *corpus;  /* borrowed */
    const lf_shape_opts *shape;    /* JSON rows; borrowed */
    const lf_tokenizer *tokenizer; /* NULL: lengths are counted in characters */
    unsigned flags;                /* of encoding */
    /* how they would be tokenized, with this tokenizer; NULL: that is not looked at */
    const lf_rowdocs_opts *rows;
    uint64_t seed;      /* of the random samples */
    size_t max_bytes;   /* of memory for duplicates */
    size_t max_broken;  /* broken rows told with their place */
    bool (*stop)(void); /* asked now and then; NULL: never */
} lf_datadoc_opts;

/* Read the whole corpus. *report (owned): see below. A file that cannot be read to its end is a
 * finding ("unreadable"), and the next one is read. LF_EINTR: stop() said so.
 *
 *   {"rows","bytes","clean", "shapes":{name:rows},
 * "lengths":{"unit":"tokens"|"characters","min","max","mean","p1".."p99",
 *    "histogram":[{"from","to","rows"}]}, "broken":{"rows","first":[{"at","why"}]},
 * "unreadable":[{"at","why"}], "longest":[{"at","length"}],
 * "duplicates":{"rows","estimated","first":[{"at","same_as"}]},
 *    "near_duplicates":{"rows","among","first":[{"at","like","similarity"}]},
 *    "oddities":{name:{"rows","first":[at]}}, "samples":[{"kind","at","length","text"}],
 *    with o->rows also
 *    "encoded":{"rows","documents","tokens","trained","trained_share","no_template": rows with
 * turns and no chat template, "left_out":{reason:{"rows","first":[{"at","why"}]}},
 * "found":{name:{"rows","first":[at]}}}} lengths are then those of documents, and samples show them
 * decoded, trained parts between {+ and +}. Reasons are those of lf_row_fate; found are truncated,
 * without_eos, double_bos, seams, empty_answers, different_prompts (lf_rowdocs), prompt_trained,
 * and special_in_content: a turn writes a special token, which becomes one. */
int lf_datadoc_run(json_t **report, lf_corpus *c, const lf_datadoc_opts *o, lf_err *err);

/* The report for people, safe for a terminal. */
void lf_datadoc_text(const json_t *report, lf_buf *out);

#endif
