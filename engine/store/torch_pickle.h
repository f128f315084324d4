/* SPDX-License-Identifier: Apache-2.0
 *
 * The subset of pickle that files of tensors need. A pickle is a program, but this interpreter has
 * no instruction that could call arbitrary code. A global name must be one of a closed table:
 * functions that rebuild a tensor, storage classes, dtypes, OrderedDict, Namespace, and classes
 * whose instances are kept as inert values. Any other name is an error with opcode, global and
 * offset.
 *
 * Limits: the text has at most LF_PICKLE_MAX bytes. Values take at most 64 MiB plus 8 bytes per
 * byte of text. So a hostile text takes no more memory than an honest file of that length. Nothing
 * is recursive.
 *
 * Ownership: a pickle owns its values and borrows the text, which must outlive it.
 */
#ifndef LF_STORE_TORCH_PICKLE_H
#define LF_STORE_TORCH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/store/tensors.h"

#define LF_PICKLE_MAX ((size_t)96 << 20) /* half a million tensors */

enum lf_pv_type {
    LF_PV_NONE,
    LF_PV_BOOL,    /* i */
    LF_PV_INT,     /* i; integers beyond 64 bits are LF_PV_OTHER */
    LF_PV_FLOAT,   /* f */
    LF_PV_STR,     /* text, n bytes, UTF-8, not terminated */
    LF_PV_BYTES,   /* the same, any bytes */
    LF_PV_LIST,    /* items, n: list, tuple, set, torch.Size */
    LF_PV_TUPLE,   /* the same */
    LF_PV_DICT,    /* items[2 * n]: key, value, key, value; also OrderedDict and Namespace */
    LF_PV_STORAGE, /* storage */
    LF_PV_TENSOR,  /* tensor */
    LF_PV_DTYPE,   /* i = enum lf_st_dtype, 0 for one that is not read here */
    /* an inert instance; items, n: the arguments that made it (an enum has its value in
     * items[0]) */
    LF_PV_OTHER,
    LF_PV_GLOBAL, /* i = row of the table of globals; only inside the interpreter */
    LF_PV_MARK    /* only inside the interpreter */
};

typedef struct lf_pv lf_pv;
struct lf_pv {
    enum lf_pv_type type;
    uint32_t n, cap;
    union {
        int64_t i;
        double f;
        const char *text;
        lf_pv **items;
        struct lf_pv_storage *storage;
        struct lf_pv_tensor *tensor;
    } u;
};

struct lf_pv_storage {
    const lf_pv *key;       /* LF_PV_STR; names the record with the bytes */
    enum lf_st_dtype dtype; /* 0: untyped, counted in bytes */
    int64_t elems;          /* of dtype, or bytes */
    int file;               /* set by the file reader: the place of the bytes; */
    int64_t offset;         /* -1 until then */
};

struct lf_pv_tensor {
    struct lf_pv_storage *storage;
    enum lf_st_dtype dtype;
    int ndim;
    int64_t first; /* elements from the start of the storage */
    /* in elements; every element lies inside the storage */
    int64_t shape[LF_ST_MAX_DIMS], stride[LF_ST_MAX_DIMS];
};

typedef struct lf_pickle lf_pickle;

/* Runs the program in text[0..len) up to its STOP. *used (may be NULL) becomes the number of bytes
 * up to and including STOP; on failure it is len + 1 when the text ended too early, 0 otherwise.
 * `what` names the text in messages. LF_EFORMAT: the text is broken or does more than a tensor file
 * needs. LF_ENOTSUP: a tensor has too many dimensions or an unknown type. */
int lf_pickle_load(lf_pickle **out, const void *text, size_t len, size_t *used, const char *what,
                   lf_err *err);
void lf_pickle_destroy(lf_pickle *p);
lf_pv *lf_pickle_root(lf_pickle *p);
/* The storages that the program names, each once. */
size_t lf_pickle_n_storages(const lf_pickle *p);
struct lf_pv_storage *lf_pickle_storage(lf_pickle *p, size_t i);

/* Returns the member of a LF_PV_DICT with this string key, the last one as in Python, or NULL. NULL
 * also when d is no dictionary. */
lf_pv *lf_pv_get(const lf_pv *d, const char *key);
/* Reads an integer or a boolean. false: v is neither. */
bool lf_pv_i64(const lf_pv *v, int64_t *out);
/* Copies a string that fits and holds no NUL into buf; false otherwise. */
bool lf_pv_str(const lf_pv *v, char *buf, size_t cap);

#endif
