/* SPDX-License-Identifier: Apache-2.0
 *
 * A covering array: few rows in which every pair of values of two switches stands at least once,
 * but for the pairs that are refused, which stand in none (Cohen, Dalal, Fredman, Patton 1997: row
 * by row, each value chosen so that most new pairs are covered). The same input gives the same
 * rows.
 */
#ifndef LF_TESTS_LAYOUT_COVER_H
#define LF_TESTS_LAYOUT_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COVER_SWITCHES = 40, COVER_VALUES = 12, COVER_ANY = 0xFF };

/* A pair of values. */
struct cover_pair {
    uint8_t a, va, b, vb; /* value va of switch a, value vb of switch b; a < b */
};

struct cover {
    int n;
    uint8_t values[COVER_SWITCHES]; /* of each switch, at most COVER_VALUES */
    const struct cover_pair *refused;
    size_t n_refused;
    const uint8_t *fixed; /* [n] the one value that a switch has, COVER_ANY: any; NULL: all any */
    /* How many times as dear a row is with the value; 0: once. Of rows that would do, cheap ones
     * are taken. */
    uint8_t cost[COVER_SWITCHES][COVER_VALUES];
    int with; /* only pairs with one of the first so many switches have to stand there; 0: all */
};
/* Has a pair to stand in a row whose first switch is a? */
static inline bool cover_wants(const struct cover *c, int a)
{
    return c->with == 0 || a < c->with;
}

struct cover_rows {
    uint8_t (*v)[COVER_SWITCHES]; /* [n], owned */
    size_t n;
    size_t total, covered, refused; /* pairs */
    struct cover_pair left;         /* one of those that are neither; there are total - covered -
                                       refused */
};
/* Returns false where memory ends. */
bool cover_make(const struct cover *c, struct cover_rows *out);
void cover_fini(struct cover_rows *r);
/* Does the row hold a pair that is refused? */
bool cover_is_refused(const struct cover *c, const uint8_t *row);

#endif
