/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the parquet reader: the footer (footer.c), its schema as a tree of rows (schema.c),
 * codecs (codec.c), pages (page.c), runs of levels and indices (levels.c), values (encodings.c),
 * columns (column.c), rows (rows.c).
 */
#ifndef LF_TEXT_PARQUET_PRIV_H
#define LF_TEXT_PARQUET_PRIV_H

#include "engine/base/crc32.h"
#include "engine/base/mem.h"
#include "engine/text/parquet/parquet.h"
#include "engine/text/parquet/thrift.h"

#define LF_PQ_FOOTER_MAX ((size_t)64 << 20)
#define LF_PQ_HEADER_MAX ((size_t)8 << 20) /* of a page: its statistics may hold texts */
#define LF_PQ_PAGE_MAX   ((size_t)1 << 30) /* unpacked */
#define LF_PQ_DEPTH_MAX  32
#define LF_PQ_COLS_MAX   8192 /* elements of the schema */

enum lf_pq_type {
    LF_PQ_BOOLEAN,
    LF_PQ_INT32,
    LF_PQ_INT64,
    LF_PQ_INT96,
    LF_PQ_FLOAT,
    LF_PQ_DOUBLE,
    LF_PQ_BYTE_ARRAY,
    LF_PQ_FIXED,
    LF_PQ_TYPES
};

enum lf_pq_encoding {
    LF_PQ_PLAIN = 0,
    LF_PQ_PLAIN_DICTIONARY = 2,
    LF_PQ_RLE = 3,
    LF_PQ_BIT_PACKED = 4,
    LF_PQ_DELTA_BINARY_PACKED = 5,
    LF_PQ_DELTA_LENGTH_BYTE_ARRAY = 6,
    LF_PQ_DELTA_BYTE_ARRAY = 7,
    LF_PQ_RLE_DICTIONARY = 8,
    LF_PQ_BYTE_STREAM_SPLIT = 9
};

/* ---- schema ---- */

enum lf_pq_kind {
    LF_PQ_STRUCT,
    LF_PQ_LIST,
    LF_PQ_TEXT,
    LF_PQ_BYTES,
    LF_PQ_BOOL,
    LF_PQ_INT,
    LF_PQ_UINT,
    LF_PQ_REAL,
    LF_PQ_ODD /* has no place in a row */
};

/* An element as the footer has it. */
struct lf_pq_elem {
    const char *name; /* arena */
    int type;         /* lf_pq_type, -1: a group */
    int repetition;   /* 0 required, 1 optional, 2 repeated */
    size_t children;
    int converted; /* -1: none */
    int logical;   /* number of the union's member, 0: none */
    bool is_signed;
};

/* A value of the rows: a leaf, a struct, or a list with its element. The value is there when the
 * definition level is def or more; a list has elements when it is more than def. */
struct lf_pq_node {
    const char *name;
    enum lf_pq_kind kind;
    bool optional;
    int def;
    int rep;                   /* list: repetition level of its second element and later ones */
    struct lf_pq_node **child; /* list: one */
    size_t n_child;
    size_t leaf, n_leaf; /* columns below it: as numbered in the file, then among those read */
    /* kind ODD: what it is */
    const char *odd;
    bool plain_binary; /* and no more than bytes */
    /* leaf */
    const char *path;
    enum lf_pq_type type;
};

/* ---- streams within a page ---- */

/* Runs of equal numbers and of numbers of `width` bits, mixed. */
struct lf_pq_hybrid {
    const uint8_t *p, *end;
    const uint8_t *bits; /* of the run */
    uint64_t left, at;   /* numbers left in the run; bit of the next one */
    uint32_t value;      /* of a run of equal numbers */
    int width;
    bool packed;
};
void lf_pq_hybrid_begin(struct lf_pq_hybrid *h, const uint8_t *p, const uint8_t *end, int width);
/* false: there are no more */
bool lf_pq_hybrid_next(struct lf_pq_hybrid *h, uint32_t *v);
/* `width` (0 to 64) bits from bit `at` on of the bytes before end; those behind it are 0 */
uint64_t lf_pq_bits(const uint8_t *p, const uint8_t *end, uint64_t at, int width);
int lf_pq_width(uint32_t max); /* bits that numbers up to max need */

/* DELTA_BINARY_PACKED. */
struct lf_pq_delta {
    lf_thrift t; /* t.p: where the next block begins */
    uint64_t left, value, min;
    uint64_t per_mini, in_mini; /* numbers of a small block; left in this one */
    const uint8_t *widths, *bits;
    uint64_t at, minis, mini; /* bit of the next; small blocks in a block; the next one */
    int width;
    bool first;
};
bool lf_pq_delta_begin(struct lf_pq_delta *d, const uint8_t *p, const uint8_t *end, uint64_t max);
bool lf_pq_delta_next(struct lf_pq_delta *d, int64_t *v);
/* Where the bytes behind the numbers begin; NULL: they are damaged. d stays where it is. */
const uint8_t *lf_pq_delta_end(const struct lf_pq_delta *d);

/* ---- columns ---- */

struct lf_pq_mem {
    uint8_t *p;
    size_t cap;
};
int lf_pq_mem_need(struct lf_pq_mem *m, size_t n, lf_err *err);

struct lf_pq_value {
    union {
        int64_t i;
        double d;
        struct {
            const uint8_t *p;
            uint32_t n;
        } text;
    };
};

/* A column that is read. */
struct lf_pq_leaf {
    lf_parquet *file;
    const struct lf_pq_node *node;
    size_t column; /* in the file */
    int max_def, max_rep;
    /* the chunk */
    int codec;
    int64_t at, end; /* of the file: the next page; behind the last one */
    int64_t left;    /* entries of the chunk that are in no page yet */
    struct lf_pq_mem dict, head;
    uint32_t *dict_at; /* [n_dict + 1] of texts */
    size_t n_dict, cap_dict;
    bool has_dict;
    /* the page */
    int64_t page_at;
    uint32_t page_n, page_left; /* entries */
    struct lf_pq_mem page, packed;
    struct lf_pq_hybrid reps, defs, index;
    int encoding;
    const uint8_t *p, *e; /* values that are left */
    bool begun;           /* the stream of values */
    uint64_t bit;         /* PLAIN truth values; BYTE_STREAM_SPLIT: number of the next */
    struct lf_pq_delta delta, prefix;
    lf_buf text; /* DELTA_BYTE_ARRAY: the last one */
    /* the entry that peek found */
    bool there;
    int rep, def;
};

struct lf_pq_group {
    size_t at; /* in the footer */
    int64_t rows;
};

struct lf_parquet {
    char *path;
    int fd;
    int64_t size;
    lf_parquet_opts o;
    lf_arena *arena;
    uint8_t *foot;
    size_t foot_len;
    struct lf_pq_elem *elem;
    size_t n_elem, cap_elem;
    struct lf_pq_group *group;
    size_t n_group, cap_group;
    int64_t rows;
    size_t n_column; /* leaves of the file */
    struct lf_pq_node *root;
    struct lf_pq_leaf *leaf;
    size_t n_leaf;
    const char **passed; /* names of columns that are not read; they belong to the arena */
    size_t n_passed;
    lf_crc32 crc;
    /* where reading is */
    size_t next_group;
    int64_t rows_left, bytes;
};

/* The last bytes of the file to p->foot; then schema elements and places of row groups. */
int lf_pq_footer_read(lf_parquet *p, lf_err *err);
/* Elements to the tree of what is read; leaves. */
int lf_pq_schema_build(lf_parquet *p, lf_err *err);
/* Row group g: its chunks to the leaves. */
int lf_pq_group_open(lf_parquet *p, size_t g, lf_err *err);

/* Begin of a chunk. */
void lf_pq_leaf_begin(struct lf_pq_leaf *l);
void lf_pq_leaf_fini(struct lf_pq_leaf *l);
/* 1: rep and def are those of the next entry; 0: the chunk has no more. */
int lf_pq_leaf_peek(struct lf_pq_leaf *l, lf_err *err);
/* Go over the entry that peek found; *v when def is that of the leaf, valid until the next take. */
int lf_pq_leaf_take(struct lf_pq_leaf *l, struct lf_pq_value *v, lf_err *err);
/* The next page with entries: 1; 0: none is left. */
int lf_pq_page_next(struct lf_pq_leaf *l, lf_err *err);
/* The values of the page begin at l->p. */
int lf_pq_values_begin(struct lf_pq_leaf *l, lf_err *err);
int lf_pq_values_next(struct lf_pq_leaf *l, struct lf_pq_value *v, lf_err *err);
/* The dictionary's n values are in l->dict, bytes of them. */
int lf_pq_dict_index(struct lf_pq_leaf *l, size_t n, size_t bytes, lf_err *err);
/* Bytes of a value of fixed length; 0: texts and truth values. */
size_t lf_pq_type_bytes(enum lf_pq_type t);

/* LF_ENOTSUP with the codec's name and what to do, unless it is read. */
int lf_pq_codec_check(const lf_parquet *p, int codec, const char *column, lf_err *err);
/* Can n bytes be unpacked to `to` bytes? */
bool lf_pq_codec_plausible(int codec, size_t n, size_t to);
/* Exactly `to` bytes of them; false: damaged. */
bool lf_pq_codec_unpack(int codec, const uint8_t *from, size_t n, uint8_t *out, size_t to);
#define LF_PQ_UNCOMPRESSED 0

/* A failure with the leaf's place before it. */
int lf_pq_fail(const struct lf_pq_leaf *l, lf_err *err, int rc, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
