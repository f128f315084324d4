/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the objects of one JSON array of objects begin and end, without reading what they hold.
 */
#ifndef LF_TEXT_CORPUS_ARRAY_H
#define LF_TEXT_CORPUS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The search for one object. Zeroed but for `first` before the first call; later calls see the same
 * bytes again with more behind them. */
typedef struct lf_array_scan {
    bool first;        /* the array's bracket stands before the object */
    size_t begin, end; /* of the object; begin = end: the array has ended */
    uint64_t lines;    /* line ends before begin */
    size_t at;
    int state, depth;
} lf_array_scan;

/* 1: found; 0: the n bytes are not enough; -1: they are no array of objects. last: none follow. */
int lf_array_scan_next(lf_array_scan *s, const char *p, size_t n, bool last);

#endif
