/* SPDX-License-Identifier: Apache-2.0
 *
 * Lengths of rows or documents, counted in bins: percentiles in bounded memory, for any number of
 * values. Lengths below 16 have a bin each; above, every factor of 2 has 16, so that a percentile
 * is within 6 % of the true one.
 */
#ifndef LF_TEXT_LENGTHS_H
#define LF_TEXT_LENGTHS_H

#include <jansson.h>
#include <stdint.h>

#include "engine/base/str.h"

#define LF_HIST_SUB  16
#define LF_HIST_BINS (64 * LF_HIST_SUB)
/* Zero-initialise it. */
struct lf_hist {
    uint64_t bin[LF_HIST_BINS], n, min, max, sum;
};
void lf_hist_add(struct lf_hist *h, uint64_t v);
uint64_t lf_hist_percentile(const struct lf_hist *h, double p); /* p in 0 .. 100 */

/* An object that the caller owns; NULL without memory. unit is "tokens" or "characters".
 *
 *   {"unit","min","max","mean","p1","p5","p25","p50","p75","p95","p99",
 *    "histogram":[{"from","to","rows"}]}   from <= length < to, empty ones left out */
json_t *lf_hist_json(const struct lf_hist *h, const char *unit);
/* Appends such an object as lines for people. */
void lf_lengths_text(const json_t *lengths, lf_buf *out);

#endif
