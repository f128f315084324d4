/* SPDX-License-Identifier: Apache-2.0
 *
 * What a pickle of tensors may name, and what is made of it. Calling a global means choosing a row
 * here: no row runs anything, and rows of kind LF_PG_OTHER only keep their arguments (training
 * arguments and random number states of Megatron-LM are full of them).
 */
#include <string.h>

#include "engine/store/torch_pickle_priv.h"

static const struct lf_pg_row GLOBALS[] = {
    {"torch._utils", "_rebuild_tensor", LF_PG_TENSOR_V1, 0},
    {"torch._utils", "_rebuild_tensor_v2", LF_PG_TENSOR_V2, 0},
    {"torch._utils", "_rebuild_tensor_v3", LF_PG_TENSOR_V3, 0},
    {"torch._utils", "_rebuild_parameter", LF_PG_PARAMETER, 0},
    {"torch._utils", "_rebuild_parameter_with_state", LF_PG_PARAMETER, 0},
    {"torch._tensor", "_rebuild_from_type_v2", LF_PG_FROM_TYPE, 0},
    {"torch.nn.parameter", "Parameter", LF_PG_CLASS, 0},
    {"torch", "Tensor", LF_PG_CLASS, 0},
    {"torch", "DoubleStorage", LF_PG_STORAGE, LF_ST_F64},
    {"torch", "FloatStorage", LF_PG_STORAGE, LF_ST_F32},
    {"torch", "HalfStorage", LF_PG_STORAGE, LF_ST_F16},
    {"torch", "BFloat16Storage", LF_PG_STORAGE, LF_ST_BF16},
    {"torch", "LongStorage", LF_PG_STORAGE, LF_ST_I64},
    {"torch", "IntStorage", LF_PG_STORAGE, LF_ST_I32},
    {"torch", "ShortStorage", LF_PG_STORAGE, LF_ST_I16},
    {"torch", "CharStorage", LF_PG_STORAGE, LF_ST_I8},
    {"torch", "ByteStorage", LF_PG_STORAGE, LF_ST_U8},
    {"torch", "BoolStorage", LF_PG_STORAGE, LF_ST_BOOL},
    {"torch", "UntypedStorage", LF_PG_STORAGE, 0},
    {"torch.storage", "UntypedStorage", LF_PG_STORAGE, 0},
    {"torch.storage", "_UntypedStorage", LF_PG_STORAGE, 0},
    {"torch", "float64", LF_PG_DTYPE, LF_ST_F64},
    {"torch", "float32", LF_PG_DTYPE, LF_ST_F32},
    {"torch", "float16", LF_PG_DTYPE, LF_ST_F16},
    {"torch", "bfloat16", LF_PG_DTYPE, LF_ST_BF16},
    {"torch", "float8_e4m3fn", LF_PG_DTYPE, LF_ST_F8_E4M3},
    {"torch", "float8_e8m0fnu", LF_PG_DTYPE, LF_ST_F8_E8M0},
    {"torch", "float8_e5m2", LF_PG_DTYPE, LF_ST_F8_E5M2},
    {"torch", "int64", LF_PG_DTYPE, LF_ST_I64},
    {"torch", "int32", LF_PG_DTYPE, LF_ST_I32},
    {"torch", "int16", LF_PG_DTYPE, LF_ST_I16},
    {"torch", "int8", LF_PG_DTYPE, LF_ST_I8},
    {"torch", "uint64", LF_PG_DTYPE, LF_ST_U64},
    {"torch", "uint32", LF_PG_DTYPE, LF_ST_U32},
    {"torch", "uint16", LF_PG_DTYPE, LF_ST_U16},
    {"torch", "uint8", LF_PG_DTYPE, LF_ST_U8},
    {"torch", "bool", LF_PG_DTYPE, LF_ST_BOOL},
    {"torch", "complex64", LF_PG_DTYPE, 0},
    {"torch", "complex128", LF_PG_DTYPE, 0},
    {"torch", "Size", LF_PG_LIST, 0},
    {"torch", "device", LF_PG_OTHER, 0},
    {"collections", "OrderedDict", LF_PG_DICT, 0},
    {"argparse", "Namespace", LF_PG_DICT, 0},
    {"types", "SimpleNamespace", LF_PG_DICT, 0},
    {"__builtin__", "set", LF_PG_LIST, 0},
    {"builtins", "set", LF_PG_LIST, 0},
    {"__builtin__", "frozenset", LF_PG_LIST, 0},
    {"builtins", "frozenset", LF_PG_LIST, 0},
    {"__builtin__", "bytearray", LF_PG_OTHER, 0},
    {"builtins", "bytearray", LF_PG_OTHER, 0},
    {"__builtin__", "complex", LF_PG_OTHER, 0},
    {"builtins", "complex", LF_PG_OTHER, 0},
    {"_codecs", "encode", LF_PG_TEXT, 0},
    {"_io", "BytesIO", LF_PG_OTHER, 0},
    {"datetime", "timedelta", LF_PG_OTHER, 0},
    {"signal", "Signals", LF_PG_OTHER, 0},
    {"pathlib", "PosixPath", LF_PG_OTHER, 0},
    {"numpy", "dtype", LF_PG_OTHER, 0},
    {"numpy", "ndarray", LF_PG_OTHER, 0},
    {"numpy.core.multiarray", "_reconstruct", LF_PG_OTHER, 0},
    {"numpy.core.multiarray", "scalar", LF_PG_OTHER, 0},
    {"numpy._core.multiarray", "_reconstruct", LF_PG_OTHER, 0},
    {"numpy._core.multiarray", "scalar", LF_PG_OTHER, 0},
    {"megatron", NULL, LF_PG_OTHER, 0}, /* enumerations and dataclasses among the arguments */
};

#define N_GLOBALS (sizeof GLOBALS / sizeof *GLOBALS)

static bool is(const char *s, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(s, want, n) == 0;
}

const struct lf_pg_row *lf_pg_find(const char *module, size_t module_len, const char *name,
                                   size_t name_len)
{
    for (size_t i = 0; i < N_GLOBALS; i++) {
        const struct lf_pg_row *r = &GLOBALS[i];
        size_t n = strlen(r->module);
        if (r->name ? is(module, module_len, r->module) && is(name, name_len, r->name)
                    : module_len >= n && memcmp(module, r->module, n) == 0 &&
                          (module_len == n || module[n] == '.'))
            return r;
    }
    return NULL;
}

size_t lf_pg_index(const struct lf_pg_row *row)
{
    return (size_t)(row - GLOBALS);
}

static const struct lf_pg_row *row_of(const lf_pv *f)
{
    return f->type == LF_PV_GLOBAL ? &GLOBALS[f->u.i] : NULL;
}

/* ---- tensors ---- */

static bool is_seq(const lf_pv *v)
{
    return v->type == LF_PV_TUPLE || v->type == LF_PV_LIST;
}

static int get_dims(lf_pickle *p, const lf_pv *v, int64_t *dims, const char *name)
{
    if (!is_seq(v))
        return lf_pickle_fail(p, LF_EFORMAT, "a tensor's %s is not a tuple", name);
    if (v->n > LF_ST_MAX_DIMS)
        return lf_pickle_fail(p, LF_ENOTSUP, "a tensor of %u dimensions; at most %d are read", v->n,
                              LF_ST_MAX_DIMS);
    for (uint32_t k = 0; k < v->n; k++)
        if (!lf_pv_i64(v->u.items[k], &dims[k]) || dims[k] < 0)
            return lf_pickle_fail(p, LF_EFORMAT, "a tensor's %s is not made of numbers from 0",
                                  name);
    return 0;
}

/* Does every element lie in the storage? */
static int check_bounds(lf_pickle *p, const struct lf_pv_tensor *t)
{
    int64_t last = t->first, step, have = t->storage->elems, elems = 1;
    bool ok = t->first >= 0;
    for (int k = 0; k < t->ndim; k++)
        elems = t->shape[k] && elems ? 1 : 0;
    for (int k = 0; k < t->ndim && elems && ok; k++)
        ok = !__builtin_mul_overflow(t->shape[k] - 1, t->stride[k], &step) &&
             !__builtin_add_overflow(last, step, &last);
    if (t->storage->dtype == 0)
        have /= (int64_t)lf_st_dtype_bytes(t->dtype);
    if (!ok || (elems && last >= have))
        return lf_pickle_fail(p, LF_EFORMAT, "a tensor reaches beyond its storage of %lld elements",
                              (long long)have);
    return 0;
}

static lf_pv *make_tensor(lf_pickle *p, const lf_pv *args, enum lf_pg kind)
{
    const lf_pv *dtype = kind == LF_PG_TENSOR_V3 && args->n >= 7 ? args->u.items[6] : NULL;
    if (args->n < 4 || args->u.items[0]->type != LF_PV_STORAGE ||
        (kind == LF_PG_TENSOR_V3 && !dtype)) {
        lf_pickle_fail(p, LF_EFORMAT, "a tensor is not made of storage, offset, shape and strides");
        return NULL;
    }
    struct lf_pv_tensor *t = lf_pickle_alloc(p, 1, sizeof *t);
    lf_pv *v = t ? lf_pickle_value(p, LF_PV_TENSOR) : NULL;
    if (!v)
        return NULL;
    v->u.tensor = t;
    t->storage = args->u.items[0]->u.storage;
    t->dtype =
        dtype ? (dtype->type == LF_PV_DTYPE ? (enum lf_st_dtype)dtype->u.i : 0) : t->storage->dtype;
    if (!t->dtype || (t->storage->dtype && t->storage->dtype != t->dtype)) {
        lf_pickle_fail(p, LF_ENOTSUP, "a tensor's type is not one that is read here");
        return NULL;
    }
    if (!lf_pv_i64(args->u.items[1], &t->first)) {
        lf_pickle_fail(p, LF_EFORMAT, "a tensor's offset is not a number");
        return NULL;
    }
    if (get_dims(p, args->u.items[2], t->shape, "shape") < 0 ||
        get_dims(p, args->u.items[3], t->stride, "strides") < 0)
        return NULL;
    t->ndim = (int)args->u.items[2]->n;
    if (args->u.items[3]->n != args->u.items[2]->n) {
        lf_pickle_fail(p, LF_EFORMAT, "a tensor has %u dimensions and %u strides",
                       args->u.items[2]->n, args->u.items[3]->n);
        return NULL;
    }
    return check_bounds(p, t) < 0 ? NULL : v;
}

/* (function, type, args, state): a tensor of a subclass; only the tensor is wanted. */
static lf_pv *make_from_type(lf_pickle *p, const lf_pv *args)
{
    const struct lf_pg_row *r = args->n >= 3 ? row_of(args->u.items[0]) : NULL;
    if (!r || r->kind > LF_PG_PARAMETER || !is_seq(args->u.items[2])) {
        lf_pickle_fail(p, LF_EFORMAT,
                       "a tensor of a class of its own is not made by rebuilding a tensor");
        return NULL;
    }
    return lf_pickle_call(p, args->u.items[0], args->u.items[2]);
}

lf_pv *lf_pickle_persistent(lf_pickle *p, const lf_pv *id)
{
    const lf_pv *const *a = (const lf_pv *const *)id->u.items;
    const struct lf_pg_row *r = NULL;
    int64_t n = 0;
    if (is_seq(id) && id->n >= 5 && a[0]->type == LF_PV_STR && is(a[0]->u.text, a[0]->n, "storage"))
        r = row_of(a[1]);
    if (!r || r->kind != LF_PG_STORAGE || a[2]->type != LF_PV_STR || !lf_pv_i64(a[4], &n) ||
        n < 0 || n > INT64_MAX / 16) {
        lf_pickle_fail(p, LF_EFORMAT,
                       "a persistent id that is not (\"storage\", class, key, device, elements)");
        return NULL;
    }
    if (id->n > 5 && a[5]->type != LF_PV_NONE) {
        lf_pickle_fail(
            p, LF_ENOTSUP,
            "storage %.*s is a view of another (a file of PyTorch before 0.4); save it again",
            (int)(a[2]->n < 100 ? a[2]->n : 100), a[2]->u.text);
        return NULL;
    }
    struct lf_pv_storage *s = lf_pickle_alloc(p, 1, sizeof *s);
    lf_pv *v = s ? lf_pickle_value(p, LF_PV_STORAGE) : NULL;
    if (!v ||
        lf_grow(&p->storages, &p->cap_storages, p->n_storages, sizeof *p->storages, p->err) < 0)
        return NULL;
    *s = (struct lf_pv_storage){
        .key = a[2], .dtype = r->dtype, .elems = n, .file = -1, .offset = -1};
    p->storages[p->n_storages++] = s;
    v->u.storage = s;
    return v;
}

/* ---- containers ---- */

static lf_pv *make_dict(lf_pickle *p, const lf_pv *args)
{
    lf_pv *d = lf_pickle_value(p, LF_PV_DICT);
    if (!d || args->n == 0)
        return d;
    const lf_pv *from = args->u.items[0];
    if (from->type == LF_PV_DICT) {
        for (uint32_t i = 0; i < 2 * from->n; i += 2)
            if (lf_pickle_put(p, d, from->u.items[i], from->u.items[i + 1]) < 0)
                return NULL;
        return d;
    }
    if (!is_seq(from)) {
        lf_pickle_fail(p, LF_EFORMAT, "a dictionary made from something that has no members");
        return NULL;
    }
    for (uint32_t i = 0; i < from->n; i++) { /* of pairs */
        const lf_pv *pair = from->u.items[i];
        if (!is_seq(pair) || pair->n != 2) {
            lf_pickle_fail(p, LF_EFORMAT, "a dictionary made from something that is not pairs");
            return NULL;
        }
        if (lf_pickle_put(p, d, pair->u.items[0], pair->u.items[1]) < 0)
            return NULL;
    }
    return d;
}

static lf_pv *make_list(lf_pickle *p, const lf_pv *args)
{
    lf_pv *v = lf_pickle_value(p, LF_PV_LIST);
    if (!v || args->n == 0)
        return v;
    if (!is_seq(args->u.items[0])) {
        lf_pickle_fail(p, LF_EFORMAT, "a sequence made from something that is none");
        return NULL;
    }
    *v = *args->u.items[0];
    v->cap = 0; /* its items are the other's: growing copies them */
    return v;
}

static lf_pv *make_other(lf_pickle *p, const lf_pv *args)
{
    lf_pv *v = lf_pickle_value(p, LF_PV_OTHER);
    if (v) {
        v->u.items = args->u.items;
        v->n = args->n;
    }
    return v;
}

lf_pv *lf_pickle_call(lf_pickle *p, const lf_pv *f, lf_pv *args)
{
    const struct lf_pg_row *r = row_of(f);
    if (!r || !is_seq(args)) {
        lf_pickle_fail(p, LF_EFORMAT,
                       "something that is not a global is called, or not with a tuple");
        return NULL;
    }
    switch (r->kind) {
    case LF_PG_TENSOR_V1:
    case LF_PG_TENSOR_V2:
    case LF_PG_TENSOR_V3:
        return make_tensor(p, args, r->kind);
    case LF_PG_PARAMETER:
        if (args->n && args->u.items[0]->type == LF_PV_TENSOR)
            return args->u.items[0];
        lf_pickle_fail(p, LF_EFORMAT, "a parameter that is no tensor");
        return NULL;
    case LF_PG_FROM_TYPE:
        return make_from_type(p, args);
    case LF_PG_DICT:
        return make_dict(p, args);
    case LF_PG_LIST:
        return make_list(p, args);
    case LF_PG_TEXT:
        if (args->n && args->u.items[0]->type == LF_PV_STR)
            return args->u.items[0];
        lf_pickle_fail(p, LF_EFORMAT, "a text to encode that is no text");
        return NULL;
    case LF_PG_OTHER:
        return make_other(p, args);
    default:
        lf_pickle_fail(p, LF_EFORMAT, "%s.%s is called; it may only be named", r->module, r->name);
        return NULL;
    }
}
