/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of the loss scale. */
#include "engine/train/scaler.h"

#include <math.h>

struct lf_scaler lf_scaler_start(const struct lf_scaler_opts *o)
{
    int e;
    if (!(o->start > 0))
        return (struct lf_scaler){.scale = 1};
    frexp(o->start, &e);
    return (struct lf_scaler){.scale = o->dynamic ? fmax(1, ldexp(1, e - 1)) : o->start};
}

bool lf_scaler_overflow(struct lf_scaler *s, const struct lf_scaler_opts *o)
{
    if (!o->dynamic || s->scale <= 1)
        return false;
    s->scale = s->scale / 2 > 1 ? s->scale / 2 : 1;
    s->good = 0;
    s->overflows++;
    return true;
}

void lf_scaler_good(struct lf_scaler *s, const struct lf_scaler_opts *o)
{
    if (!o->dynamic || ++s->good < o->window)
        return;
    s->good = 0;
    if (s->scale < LF_SCALER_MAX)
        s->scale *= 2;
}

json_t *lf_scaler_json(const struct lf_scaler *s)
{
    return json_pack("{s:f,s:I,s:I}", "scale", s->scale, "good", (json_int_t)s->good, "overflows",
                     (json_int_t)s->overflows);
}

struct lf_scaler lf_scaler_of(const json_t *state, const struct lf_scaler_opts *o)
{
    const double scale = json_number_value(json_object_get(state, "scale"));
    if (!state || !o->dynamic || !(scale > 0) || scale > 2 * LF_SCALER_MAX)
        return lf_scaler_start(o);
    return (struct lf_scaler){.scale = scale,
                              .good = json_integer_value(json_object_get(state, "good")),
                              .overflows = json_integer_value(json_object_get(state, "overflows"))};
}
