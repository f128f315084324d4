/* SPDX-License-Identifier: Apache-2.0
 *
 * What a token turns by where its position does not say it, and what it sees beside its past:
 * prefixes of documents and the two positions that count from them; blocks of pictures and windows
 * of both sides; which text of a pair it is of; the table of longrope that a document's length
 * chooses. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/decoder_priv.h"

void lf_decoder_prefixes(const int32_t *targets, const int32_t *cu_seqlens, int64_t n_docs,
                         bool last, int32_t *prefix)
{
    for (int64_t d = 0; d < n_docs; d++) {
        const int32_t first = cu_seqlens[d], end = cu_seqlens[d + 1];
        int32_t r = first;
        while (r < end && targets[r] < 0)
            r++;
        prefix[d] = r < end ? r - first + last : 0;
    }
}

void lf_decoder_ahead(const int32_t *of, const int32_t *cu_seqlens, int64_t n_docs, int64_t rows,
                      int64_t ahead, int32_t none, int32_t *out)
{
    int64_t r = 0;
    for (int64_t d = 0; d < n_docs; d++)
        for (; r < cu_seqlens[d + 1]; r++)
            out[r] = r + ahead < cu_seqlens[d + 1] ? of[r + ahead] : none;
    for (; r < rows; r++)
        out[r] = none;
}

void lf_decoder_turn(int64_t position, int64_t prefix, int32_t *turn, int32_t *block)
{
    const int64_t last = prefix > 0 ? prefix - 1 : 0;
    *turn = (int32_t)(position < last ? position : last);
    *block = (int32_t)(position < prefix ? 0 : position - prefix + 1);
}

void lf_decoder_turns(const int32_t *cu_seqlens, int64_t n_docs, const int32_t *prefix,
                      int64_t rows, int32_t *turns, int32_t *blocks)
{
    for (int64_t d = 0; d < n_docs; d++)
        for (int64_t r = cu_seqlens[d]; r < cu_seqlens[d + 1]; r++)
            lf_decoder_turn(r - cu_seqlens[d], prefix[d], &turns[r], &blocks[r]);
    for (int64_t r = cu_seqlens[n_docs]; r < rows; r++) /* padding */
        turns[r] = blocks[r] = 0;
}

/* Writes those of n numbers a row that are the graph's. */
static int write_rows(lf_exec *ex, int chain, const struct lf_decoder_docs *docs, const char *name,
                      const int32_t *all, int64_t n, lf_err *err)
{
    const size_t bytes = (size_t)n * sizeof *all;
    if (!docs->own)
        return lf_exec_write(ex, chain, docs->slot, name, all, (size_t)docs->rows * bytes, err);
    int32_t *some = lf_calloc((size_t)(docs->own_rows * n), sizeof *some, err);
    for (int64_t i = 0; some && i < docs->own_rows; i++)
        memcpy(some + i * n, all + docs->own[i] * n, bytes);
    const int rc =
        some ? lf_exec_write(ex, chain, docs->slot, name, some, (size_t)docs->own_rows * bytes, err)
             : LF_ENOMEM;
    free(some);
    return rc;
}

int lf_decoder_write_prefixes(const lf_decoder *d, lf_exec *ex, int chain,
                              const struct lf_decoder_docs *docs, const int32_t *targets,
                              int32_t *scratch, lf_err *err)
{
    const size_t i32 = sizeof(int32_t);
    int32_t *prefix = scratch, *turns = prefix + docs->n, *blocks = turns + docs->rows;
    if (d->c.mask != LF_MASK_PREFIX)
        return 0;
    lf_decoder_prefixes(targets, docs->cu_seqlens, docs->n, d->c.prefix_last, prefix);
    int rc = lf_exec_write(ex, chain, docs->slot, "prefix", prefix, (size_t)docs->n * i32, err);
    if (rc != 0 || d->c.position != LF_POS_ROPE2D)
        return rc;
    lf_decoder_turns(docs->cu_seqlens, docs->n, prefix, docs->rows, turns, blocks);
    rc = write_rows(ex, chain, docs, "turns", turns, 1, err);
    return rc != 0 ? rc : write_rows(ex, chain, docs, "blocks", blocks, 1, err);
}

/* ---- what is seen behind a token: blocks of pictures, windows of both sides ---- */

void lf_decoder_runs(const int32_t *tokens, const int32_t *positions, int64_t rows, int64_t image,
                     int32_t *runs)
{
    for (int64_t r = 0, end; r < rows; r = end) {
        end = r + 1;
        while (tokens[r] == image && end < rows && tokens[end] == image && positions[end] != 0)
            end++;
        for (int64_t i = r; i < end; i++) {
            runs[2 * i] = positions[r];
            runs[2 * i + 1] = positions[end - 1] + 1;
        }
    }
}

/* Of text alone: `window` tokens of either side, the token itself among both. */
static int write_runs(lf_exec *ex, int chain, const struct lf_decoder_docs *docs, int64_t window,
                      lf_err *err)
{
    const int32_t *cu = docs->cu_seqlens;
    int32_t *runs =
        lf_calloc((size_t)docs->rows * 2, sizeof *runs, err); /* padding: nobody reads */
    if (!runs)
        return LF_ENOMEM;
    for (int64_t k = 0; k < docs->n; k++)
        for (int32_t r = cu[k]; r < cu[k + 1]; r++) {
            const int64_t at = r - cu[k], length = cu[k + 1] - cu[k];
            runs[2 * r] = (int32_t)(at < window ? 0 : at - window + 1);
            runs[2 * r + 1] = (int32_t)(length - at < window ? length : at + window);
        }
    const int rc = write_rows(ex, chain, docs, "runs", runs, 2, err);
    free(runs);
    return rc;
}

/* ---- longrope ---- */

int64_t lf_decoder_switch(const lf_decoder *d)
{
    const lf_model_config *c = &d->c;
    const bool on = c->position == LF_POS_ROPE && c->rope_scaling == LF_ROPE_LONGROPE;
    return on && d->positions > c->rope_original_positions ? c->rope_original_positions : 0;
}

int32_t lf_decoder_table_row(const lf_decoder *d, int64_t position, bool is_long)
{
    return (int32_t)(position + (is_long ? lf_decoder_switch(d) : 0));
}

/* Of text alone: its position, three times. */
static int write_places(lf_exec *ex, int chain, const struct lf_decoder_docs *docs, lf_err *err)
{
    const int32_t *cu = docs->cu_seqlens;
    int32_t *places = lf_calloc((size_t)docs->rows * 3, sizeof *places, err); /* padding: 0 */
    if (!places)
        return LF_ENOMEM;
    for (int64_t k = 0; k < docs->n; k++)
        for (int64_t r = cu[k]; r < cu[k + 1]; r++)
            for (int i = 0; i < 3; i++)
                places[3 * r + i] = (int32_t)(r - cu[k]);
    const int rc = write_rows(ex, chain, docs, "places", places, 3, err);
    free(places);
    return rc;
}

static int write_table_rows(const lf_decoder *d, lf_exec *ex, int chain,
                            const struct lf_decoder_docs *docs, lf_err *err)
{
    const int32_t *cu = docs->cu_seqlens;
    int32_t *turns = lf_calloc((size_t)docs->rows, sizeof *turns, err); /* padding: row 0 */
    if (!turns)
        return LF_ENOMEM;
    for (int64_t k = 0; k < docs->n; k++) {
        const int64_t n = docs->reach ? docs->reach[k] : cu[k + 1] - cu[k];
        for (int64_t r = cu[k]; r < cu[k + 1]; r++)
            turns[r] = lf_decoder_table_row(d, r - cu[k], n > lf_decoder_switch(d));
    }
    const int rc = write_rows(ex, chain, docs, "turns", turns, 1, err);
    free(turns);
    return rc;
}

/* Of which text of a pair a token is; where nobody says it, of the first. */
static int write_types(lf_exec *ex, int chain, const struct lf_decoder_docs *docs, lf_err *err)
{
    if (docs->types)
        return write_rows(ex, chain, docs, "types", docs->types, 1, err);
    int32_t *zeros = lf_calloc((size_t)docs->rows, sizeof *zeros, err);
    const int rc = zeros ? write_rows(ex, chain, docs, "types", zeros, 1, err) : LF_ENOMEM;
    free(zeros);
    return rc;
}

void lf_decoder_second(const int32_t *tokens, const int32_t *cu_seqlens, int64_t n_docs,
                       int64_t separator, int32_t *types)
{
    for (int64_t d = 0; d < n_docs; d++) {
        int32_t type = 0;
        for (int32_t r = cu_seqlens[d]; r < cu_seqlens[d + 1]; r++) {
            types[r] = type;
            if (tokens[r] == separator)
                type = 1;
        }
    }
}

int lf_decoder_write_turns(const lf_decoder *d, lf_exec *ex, int chain,
                           const struct lf_decoder_docs *docs, lf_err *err)
{
    const bool both = d->c.mask == LF_MASK_BOTH;
    int rc = 0;
    if (lf_dec_looks_ahead(&d->c) && !docs->pictures)
        rc = write_runs(ex, chain, docs, both ? d->c.sliding_window : 1, err);
    if (rc == 0 && d->c.token_types && !docs->inner)
        rc = write_types(ex, chain, docs, err);
    if (rc == 0 && lf_dec_two_tables(d))
        return write_table_rows(d, ex, chain, docs, err);
    return rc == 0 && d->c.rope_sections.n && !docs->pictures ? write_places(ex, chain, docs, err)
                                                              : rc;
}
