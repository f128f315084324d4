/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands behind `is`. */
#include <string.h>

#include "engine/text/jinja/priv.h"

#define TEST(name)                                                                                 \
    static lf_jj_val name(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a)
#define NONE(what)                                                                                 \
    if (!lf_jj_args_ok(r, at, what, a, 0, 0, NULL))                                                \
    return lf_jj_undef
#define ONE(what)                                                                                  \
    if (!lf_jj_args_ok(r, at, what, a, 1, 1, NULL))                                                \
    return lf_jj_undef

#define TYPE_TEST(fn, what, expr)                                                                  \
    TEST(fn)                                                                                       \
    {                                                                                              \
        NONE(what);                                                                                \
        return lf_jj_bool(expr);                                                                   \
    }

TYPE_TEST(t_defined, "defined", v.t != LF_JJ_UNDEF)
TYPE_TEST(t_undefined, "undefined", v.t == LF_JJ_UNDEF)
TYPE_TEST(t_none, "none", v.t == LF_JJ_NONE)
TYPE_TEST(t_boolean, "boolean", v.t == LF_JJ_BOOL)
TYPE_TEST(t_true, "true", v.t == LF_JJ_BOOL && v.u.b)
TYPE_TEST(t_false, "false", v.t == LF_JJ_BOOL && !v.u.b)
TYPE_TEST(t_integer, "integer", v.t == LF_JJ_INT)
TYPE_TEST(t_float, "float", v.t == LF_JJ_FLOAT)
TYPE_TEST(t_number, "number", lf_jj_is_number(v))
TYPE_TEST(t_string, "string", v.t == LF_JJ_STR)
TYPE_TEST(t_mapping, "mapping", v.t == LF_JJ_MAP)
/* The class of an undefined has the methods that these two look for. */
TYPE_TEST(t_iterable, "iterable",
          v.t == LF_JJ_STR || v.t == LF_JJ_SEQ || v.t == LF_JJ_MAP || v.t == LF_JJ_UNDEF ||
              v.t == LF_JJ_LOOP)
TYPE_TEST(t_sequence, "sequence",
          v.t == LF_JJ_STR || v.t == LF_JJ_SEQ || v.t == LF_JJ_MAP || v.t == LF_JJ_UNDEF)
TYPE_TEST(t_callable, "callable", v.t == LF_JJ_FUNC || v.t == LF_JJ_LOOP || v.t == LF_JJ_UNDEF)
TYPE_TEST(t_escaped, "escaped", v.t == LF_JJ_STR && v.pad)

/* Is the string the same when its case is changed, and has it a letter? */
static lf_jj_val is_case(lf_jj_run *r, lf_jj_val v, enum lf_jj_case how)
{
    lf_jj_val s = lf_jj_to_str(r, v), same = lf_jj_change_case(r, s, how),
              other = lf_jj_change_case(r, s, how == LF_JJ_LOWER ? LF_JJ_UPPER : LF_JJ_LOWER);
    return r->rc ? lf_jj_undef : lf_jj_bool(lf_jj_equal(s, same) && !lf_jj_equal(s, other));
}
TEST(t_lower)
{
    NONE("lower");
    return is_case(r, v, LF_JJ_LOWER);
}
TEST(t_upper)
{
    NONE("upper");
    return is_case(r, v, LF_JJ_UPPER);
}

static lf_jj_val modulo(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, lf_jj_val by, int64_t want)
{
    lf_jj_val m = lf_jj_binary(r, at, "%", v, by);
    return r->rc ? lf_jj_undef : lf_jj_bool(lf_jj_equal(m, lf_jj_int(want)));
}
TEST(t_odd)
{
    NONE("odd");
    return modulo(r, at, v, lf_jj_int(2), 1);
}
TEST(t_even)
{
    NONE("even");
    return modulo(r, at, v, lf_jj_int(2), 0);
}
TEST(t_divisibleby)
{
    ONE("divisibleby");
    return modulo(r, at, v, lf_jj_arg(a, 0, NULL, lf_jj_undef), 0);
}

/* One object in Python: for what a template can hold, equal values of one simple type, or one
 * container. */
TEST(t_sameas)
{
    ONE("sameas");
    lf_jj_val b = a->v[0];
    if (v.t != b.t)
        return lf_jj_bool(false);
    return lf_jj_bool(v.t == LF_JJ_SEQ || v.t == LF_JJ_MAP ? v.u.seq == b.u.seq
                                                           : lf_jj_equal(v, b));
}

static lf_jj_val compare(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a,
                         const char *op)
{
    ONE(op);
    bool yes = lf_jj_compare(r, at, op, v, a->v[0]);
    return r->rc ? lf_jj_undef : lf_jj_bool(yes);
}
TEST(t_eq)
{
    return compare(r, at, v, a, "==");
}
TEST(t_ne)
{
    return compare(r, at, v, a, "!=");
}
TEST(t_lt)
{
    return compare(r, at, v, a, "<");
}
TEST(t_le)
{
    return compare(r, at, v, a, "<=");
}
TEST(t_gt)
{
    return compare(r, at, v, a, ">");
}
TEST(t_ge)
{
    return compare(r, at, v, a, ">=");
}
TEST(t_in)
{
    return compare(r, at, v, a, "in");
}

static lf_jj_val known(lf_jj_run *r, const lf_jj_node *at, lf_jj_val v, const lf_jj_args *a,
                       bool filter)
{
    NONE("filter");
    if (v.t != LF_JJ_STR)
        return lf_jj_fail(r, at, "the name of a filter or test is a str");
    lf_jj_val name = lf_jj_str_copy(r, v.u.s, v.n);
    return r->rc ? lf_jj_undef
                 : lf_jj_bool(filter ? lf_jj_find_filter(name.u.s) : lf_jj_find_test(name.u.s));
}
TEST(t_filter)
{
    return known(r, at, v, a, true);
}
TEST(t_test)
{
    return known(r, at, v, a, false);
}

lf_jj_call_fn lf_jj_find_test(const char *name)
{
    static const struct {
        const char *name;
        lf_jj_call_fn call;
    } table[] = {{"defined", t_defined},
                 {"undefined", t_undefined},
                 {"none", t_none},
                 {"boolean", t_boolean},
                 {"true", t_true},
                 {"false", t_false},
                 {"integer", t_integer},
                 {"float", t_float},
                 {"number", t_number},
                 {"string", t_string},
                 {"mapping", t_mapping},
                 {"iterable", t_iterable},
                 {"sequence", t_sequence},
                 {"callable", t_callable},
                 {"escaped", t_escaped},
                 {"lower", t_lower},
                 {"upper", t_upper},
                 {"odd", t_odd},
                 {"even", t_even},
                 {"divisibleby", t_divisibleby},
                 {"sameas", t_sameas},
                 {"eq", t_eq},
                 {"==", t_eq},
                 {"equalto", t_eq},
                 {"ne", t_ne},
                 {"!=", t_ne},
                 {"lt", t_lt},
                 {"<", t_lt},
                 {"lessthan", t_lt},
                 {"le", t_le},
                 {"<=", t_le},
                 {"gt", t_gt},
                 {">", t_gt},
                 {"greaterthan", t_gt},
                 {"ge", t_ge},
                 {">=", t_ge},
                 {"in", t_in},
                 {"filter", t_filter},
                 {"test", t_test}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].call;
    return NULL;
}
