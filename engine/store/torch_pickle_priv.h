/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the interpreter, and the table of globals.
 */
#ifndef LF_STORE_TORCH_PICKLE_PRIV_H
#define LF_STORE_TORCH_PICKLE_PRIV_H

#include "engine/base/mem.h"
#include "engine/store/torch_pickle.h"

/* What a call of a global (REDUCE, NEWOBJ) makes. */
enum lf_pg {
    LF_PG_TENSOR_V1 = 1, /* torch._utils._rebuild_tensor(storage, first, shape, stride) */
    LF_PG_TENSOR_V2,     /* as V1 with (requires_grad, hooks, metadata) */
    /* as V1 with (requires_grad, hooks, dtype, metadata); the storage counts in bytes */
    LF_PG_TENSOR_V3,
    LF_PG_PARAMETER, /* (data, requires_grad, hooks): data */
    LF_PG_FROM_TYPE, /* (function, type, args, state): function(args), a tensor of a subclass */
    LF_PG_STORAGE,   /* a storage class; cannot be called */
    LF_PG_DTYPE,     /* a value, not a class; cannot be called */
    LF_PG_DICT,      /* an empty or filled dictionary */
    LF_PG_LIST,      /* list, tuple, set from at most one sequence; torch.Size */
    LF_PG_TEXT,      /* _codecs.encode(text, encoding): its text */
    LF_PG_CLASS,     /* only named, never made (the type of a Parameter subclass) */
    LF_PG_OTHER      /* an inert value that keeps its arguments */
};

struct lf_pg_row {
    const char *module, *name; /* name NULL: every name of the module and of those below it */
    enum lf_pg kind;
    enum lf_st_dtype dtype; /* of LF_PG_STORAGE (0: untyped) and LF_PG_DTYPE (0: not read here) */
};

/* Returns the row of a global, or NULL for a global that is refused. */
const struct lf_pg_row *lf_pg_find(const char *module, size_t module_len, const char *name,
                                   size_t name_len);
size_t lf_pg_index(const struct lf_pg_row *row);

struct lf_pickle {
    const unsigned char *text, *p, *end;
    const unsigned char *op; /* the current instruction */
    const char *what;
    lf_err *err; /* of the current call */
    lf_arena *arena;
    size_t memory, max_memory;
    lf_pv **stack;
    size_t n_stack, cap_stack;
    lf_pv **memo;
    size_t cap_memo, n_memo; /* slots; entries in use */
    struct lf_pv_storage **storages;
    size_t n_storages, cap_storages;
    lf_pv *root;
    bool ended; /* the text ended too early */
};

/* Returns the name of any pickle instruction, for messages. */
const char *lf_pickle_op_name(int op);
/* Returns the bytes of the number that follows an instruction in the text: 0, 1, 2, 4 or 8. */
int lf_pickle_operand_bytes(int op);

/* Returns arena memory within the limit, or NULL with p->err set. */
void *lf_pickle_alloc(lf_pickle *p, size_t n, size_t size);
lf_pv *lf_pickle_value(lf_pickle *p, enum lf_pv_type type);
/* Makes room for `more` items behind the first `used` of a sequence or dictionary. */
int lf_pickle_reserve(lf_pickle *p, lf_pv *v, size_t used, size_t more);
int lf_pickle_append(lf_pickle *p, lf_pv *seq, lf_pv *v);
int lf_pickle_put(lf_pickle *p, lf_pv *dict, lf_pv *key, lf_pv *v);
/* Records an error at the current instruction: "WHAT: byte N, REDUCE: ...". */
int lf_pickle_fail(lf_pickle *p, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Runs the program up to its STOP and sets root. */
int lf_pickle_run(lf_pickle *p);

/* Evaluates f(args), where f is LF_PV_GLOBAL. NULL with p->err set on failure. */
lf_pv *lf_pickle_call(lf_pickle *p, const lf_pv *f, lf_pv *args);
/* Returns the storage that a persistent id names. */
lf_pv *lf_pickle_persistent(lf_pickle *p, const lf_pv *id);

#endif
