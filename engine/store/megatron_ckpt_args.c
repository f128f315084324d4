/* SPDX-License-Identifier: Apache-2.0
 *
 * Training arguments of Megatron-LM as JSON: what a converter reads of them.
 */
#include <math.h>

#include "engine/store/megatron_ckpt_priv.h"

#define MAX_ITEMS 10000 /* of one list or dictionary */

static json_t *scalar(const lf_pv *v)
{
    switch (v->type) {
    case LF_PV_NONE:
        return json_null();
    case LF_PV_BOOL:
        return json_boolean(v->u.i);
    case LF_PV_INT:
        return json_integer(v->u.i);
    case LF_PV_FLOAT:
        return isfinite(v->u.f) ? json_real(v->u.f) : NULL;
    case LF_PV_STR:
        return json_stringn(v->u.text, v->n);
    case LF_PV_DTYPE:
        return v->u.i ? json_string(lf_st_dtype_name((enum lf_st_dtype)v->u.i)) : NULL;
    case LF_PV_OTHER: /* an enumeration */
        return v->n == 1 && v->u.items[0]->type == LF_PV_INT ? json_integer(v->u.items[0]->u.i)
                                                             : NULL;
    default:
        return NULL;
    }
}

/* Lists of scalars; what is nested deeper says nothing about a model's shape. */
static json_t *to_json(const lf_pv *v)
{
    if (v->type != LF_PV_LIST && v->type != LF_PV_TUPLE)
        return scalar(v);
    json_t *a = json_array();
    for (uint32_t i = 0; a && i < v->n && i < MAX_ITEMS; i++) {
        json_t *item = scalar(v->u.items[i]);
        if (item)
            json_array_append_new(a, item);
    }
    return a;
}

json_t *lf_mg_args(const lf_pv *args, lf_err *err)
{
    json_t *o = json_object();
    if (!o) {
        lf_fail(err, LF_ENOMEM, "no memory for the arguments of a checkpoint");
        return NULL;
    }
    for (uint32_t i = 0; args && args->type == LF_PV_DICT && i < args->n && i < MAX_ITEMS; i++) {
        char key[256];
        json_t *v = lf_pv_str(args->u.items[2 * i], key, sizeof key)
                        ? to_json(args->u.items[2 * i + 1])
                        : NULL;
        if (v)
            json_object_set_new(o, key, v);
    }
    return o;
}
