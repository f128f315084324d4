/* SPDX-License-Identifier: Apache-2.0
 *
 * Thrift's compact protocol, as far as parquet's metadata needs it. A reader walks over bytes that
 * stay the caller's; the first thing that cannot be makes it `bad`, after which everything it gives
 * is 0 and structs end. `cut`: it is bad because the bytes ended.
 */
#ifndef LF_TEXT_THRIFT_H
#define LF_TEXT_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lf_thrift_type {
    LF_THRIFT_STOP,
    LF_THRIFT_TRUE,
    LF_THRIFT_FALSE,
    LF_THRIFT_I8,
    LF_THRIFT_I16,
    LF_THRIFT_I32,
    LF_THRIFT_I64,
    LF_THRIFT_DOUBLE,
    LF_THRIFT_BINARY,
    LF_THRIFT_LIST,
    LF_THRIFT_SET,
    LF_THRIFT_MAP,
    LF_THRIFT_STRUCT
};

typedef struct lf_thrift {
    const uint8_t *p, *end;
    bool bad, cut;
} lf_thrift;

/* The next field of a struct: *id (0 before the first) and *type; false at the struct's end. */
bool lf_thrift_field(lf_thrift *t, int *id, enum lf_thrift_type *type);
/* An integer of any width; another type is bad. */
int64_t lf_thrift_int(lf_thrift *t, enum lf_thrift_type type);
/* The same, within [0, max]. */
int64_t lf_thrift_size(lf_thrift *t, enum lf_thrift_type type, int64_t max);
bool lf_thrift_bool(lf_thrift *t, enum lf_thrift_type type);
/* Bytes, borrowed; *len of them. */
const char *lf_thrift_binary(lf_thrift *t, enum lf_thrift_type type, size_t *len);
/* Elements of a list of `of`, each of which follows; never more than there are bytes left. */
size_t lf_thrift_list(lf_thrift *t, enum lf_thrift_type type, enum lf_thrift_type of);
/* A struct begins: false (and bad) when the type is another. */
bool lf_thrift_struct(lf_thrift *t, enum lf_thrift_type type);
void lf_thrift_skip(lf_thrift *t, enum lf_thrift_type type);
/* Unsigned number of seven bits a byte, as other parts of parquet use it, too. */
uint64_t lf_thrift_varint(lf_thrift *t);
/* 0, -1, 1, -2, .. written as 0, 1, 2, 3, .. */
int64_t lf_thrift_zigzag(lf_thrift *t);

#endif
