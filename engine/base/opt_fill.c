/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of an option set into the members of a struct that the rows of its table name.
 */
#include <limits.h>
#include <string.h>

#include "engine/base/opt_priv.h"

enum {
    WHOLE = 1 << LF_OPT_I32 | 1 << LF_OPT_U32 | 1 << LF_OPT_I64 | 1 << LF_OPT_U64 | 1 << LF_OPT_F64
};

/* The kinds of members that take a value of this type, as a bit set. */
static unsigned kinds_of(const lf_opt *o)
{
    static const unsigned kinds[] = {
        [LF_OPT_STR] = 1 << LF_OPT_TEXT,
        [LF_OPT_PATH] = 1 << LF_OPT_TEXT,
        [LF_OPT_BOOL] = 1 << LF_OPT_FLAG,
        [LF_OPT_INT] = WHOLE,
        [LF_OPT_COUNT] = WHOLE,
        [LF_OPT_BYTES] = WHOLE,
        [LF_OPT_DURATION] = WHOLE,
        [LF_OPT_FLOAT] = 1 << LF_OPT_F32 | 1 << LF_OPT_F64,
        [LF_OPT_ENUM] = 1 << LF_OPT_I32 | 1 << LF_OPT_U32 | 1 << LF_OPT_FLAG | 1 << LF_OPT_TEXT,
    };
    return (o->flags & LF_OPT_REPEAT) ? 1 << LF_OPT_LIST : kinds[o->type];
}

/* Does every value of the row's range fit into the member? */
static bool range_fits(const lf_opt *o)
{
    const bool bounded = o->min != 0 || o->max != 0;
    if (o->type == LF_OPT_ENUM)
        return o->field.kind != LF_OPT_FLAG || strchr(o->choices, '|') == strrchr(o->choices, '|');
    switch (o->field.kind) {
    case LF_OPT_I32:
        return bounded && o->min >= INT32_MIN && o->max <= INT32_MAX;
    case LF_OPT_U32:
        return bounded && o->min >= 0 && o->max <= UINT32_MAX;
    default:
        return true;
    }
}

bool lf_opt_field_fits(const lf_opt *o)
{
    return !o->field.kind || ((kinds_of(o) >> o->field.kind & 1) && range_fits(o));
}

static void put_whole(void *to, enum lf_opt_kind kind, int64_t i)
{
    switch (kind) {
    case LF_OPT_I32:
        *(int32_t *)to = (int32_t)i;
        break;
    case LF_OPT_U32:
        *(uint32_t *)to = (uint32_t)i;
        break;
    case LF_OPT_I64:
        *(int64_t *)to = i;
        break;
    case LF_OPT_U64:
        *(uint64_t *)to = (uint64_t)i;
        break;
    case LF_OPT_FLAG:
        *(bool *)to = i != 0;
        break;
    default:
        *(double *)to = (double)i;
    }
}

static void put(void *to, const lf_opt *o, const struct lf_opt_val *v)
{
    if (o->flags & LF_OPT_REPEAT)
        *(lf_opt_list *)to = (lf_opt_list){(const char *const *)v->texts, v->n};
    else if (o->field.kind == LF_OPT_TEXT)
        *(const char **)to = v->texts[0];
    else if (o->type == LF_OPT_BOOL)
        *(bool *)to = v->parsed.b;
    else if (o->type != LF_OPT_FLOAT)
        put_whole(to, o->field.kind, v->parsed.i);
    else if (o->field.kind == LF_OPT_F32)
        *(float *)to = (float)v->parsed.f;
    else
        *(double *)to = v->parsed.f;
}

void lf_optset_fill(lf_optset *s, void *into)
{
    s->filled = into;
    for (size_t i = 0; i < s->t->n_opts; i++) {
        const lf_opt *o = &s->t->opts[i];
        if (!o->field.kind)
            continue;
        s->vals[i].read = true;
        if (s->vals[i].n || (o->flags & LF_OPT_REPEAT))
            put((char *)into + o->field.offset, o, &s->vals[i]);
    }
}

/* The value of the row that fills this member. */
static size_t row_of(const lf_optset *s, const void *member)
{
    for (size_t i = 0; i < s->t->n_opts; i++)
        if (s->t->opts[i].field.kind && s->filled + s->t->opts[i].field.offset == member)
            return i;
    LF_BUG("%s: no option fills this member", s->t->stage);
}

const char *lf_optset_given(const lf_optset *s, const void *member)
{
    const size_t i = row_of(s, member);
    return s->vals[i].source != LF_SOURCE_DEFAULT ? s->t->opts[i].name : NULL;
}

void lf_optset_unused(const lf_optset *s, const void *member)
{
    s->vals[row_of(s, member)].read = false;
}
