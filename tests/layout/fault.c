/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a planted fault: see fault.h.
 */
#include "tests/layout/fault.h"

#include <stdio.h>
#include <string.h>

#include "tests/tap/tap.h"

static void case_of(const struct fault *f, struct rig_case *k)
{
    lf_err err = LF_ERR_INIT;
    rig_begin(k);
    k->batch = 11;
    k->layout = f->l;
    k->late = f->late;
    if (f->infinite)
        k->c.scaler = (struct lf_scaler_opts){.dynamic = true, .start = 1024, .window = 100};
    if (f->keys && rig_model(k, f->keys, &err) != 0)
        tap_bail("%s", err.text);
    if (f->stacks)
        rig_two_stacks(k);
    k->adapted = f->adapted || f->dora;
    if (!k->adapted)
        return;
    k->adapter = (struct lf_adapter_config){
        .rank = 4, .alpha = 8, .dropout = 0.1, .dora = f->dora, .n_targets = 2};
    strcpy(k->adapter.target[0], f->dora ? "qkv" : "q");
    strcpy(k->adapter.target[1], "o");
}

static int run(const struct rig_case *k, const struct fault *f, bool fault, struct rig_seen *s,
               lf_err *err)
{
    struct rig_case of = *k;
    fault_plant(f, fault);
    of.plant = fault ? f->call : (struct local_plant){.fault = LOCAL_SOUND};
    *err = (lf_err)LF_ERR_INIT;
    return rig_run(&of, s, err);
}

/* A checkpoint of step 1 of the layout, from which runs go on. */
static void save(struct rig_case *k, const struct fault *f, int number)
{
    static char out[300]; /* of the row under way */
    struct rig_seen s;
    lf_err err;
    snprintf(out, sizeof out, "%s/row-%d", tap_tmpdir(), number);
    k->out = out;
    k->save = true;
    if (run(k, f, false, &s, &err) != 0)
        tap_bail("%s: %s", f->name, err.text);
    rig_fini(&s);
    k->save = false;
    k->from = 1;
}

/* "2 ranks, zero = 1, tensor = 4". */
static const char *layout_text(const struct rig_layout *l, char *text, size_t cap)
{
    char tensor[40] = "", parts[80] = "", rows[48] = "", experts[32] = "";
    if (l->tensor > 1)
        snprintf(tensor, sizeof tensor, ", tensor = %d%s", l->tensor,
                 l->sequence ? ", rows divided" : "");
    if (l->pipeline > 1)
        snprintf(parts, sizeof parts, ", pipeline = %d, schedule %d, %d chunks%s%s", l->pipeline,
                 l->schedule, l->chunks > 1 ? l->chunks : 1, l->stages ? ", " : "",
                 l->stages ? l->stages : "");
    if (l->context > 1)
        snprintf(rows, sizeof rows, ", context = %d (%s)", l->context,
                 lf_context_kind_name(l->kind));
    if (l->expert > 1)
        snprintf(experts, sizeof experts, ", expert = %d", l->expert);
    snprintf(text, cap, "%d ranks, zero = %d%s%s%s%s", l->ranks, l->zero, experts, rows, tensor,
             parts);
    return text;
}

/* Bits of rig_check. */
static unsigned compare(const struct rig_case *k, const struct rig_seen *one,
                        const struct rig_seen *s, char *text, size_t cap)
{
    const struct rig_bounds b = rig_bounds(k);
    char where[200];
    const unsigned seen = rig_compare(one, s, &b, text, cap);
    if (k->layout.pipeline <= 1 || rig_sharers(&k->layout) * rig_tensor_ranks(&k->layout) > 1 ||
        k->from ||
        rig_steps_alike(one, s, rig_tied(k) ? "embed.weight" : NULL, where, sizeof where))
        return seen;
    const size_t at = strlen(text);
    snprintf(text + at, cap - at, "; bits: %s", where);
    return seen | RIG_SAW_BITS;
}

void fault_test(const struct fault *f, int number)
{
    struct rig_case k, alone;
    struct rig_seen one, s;
    lf_err err;
    char text[1100], names[100], layout[160];
    case_of(f, &k);
    alone = k;
    alone.layout = (struct rig_layout){.ranks = 1};
    if (run(&alone, f, false, &one, &err) != 0)
        tap_bail("%s", err.text);
    if (f->resumed)
        save(&k, f, number);
    int rc = run(&k, f, false, &s, &err);
    const unsigned sound = rc == 0 ? compare(&k, &one, &s, text, sizeof text) : RIG_SAW_RUN;
    if (!tap_ok(sound == 0, "sound: %s%s%s%s", layout_text(&f->l, layout, sizeof layout),
                f->infinite ? ", an overflow" : "", f->keys ? ", " : "", f->keys ? f->keys : ""))
        tap_diag("%s", rc ? err.text : text);
    rig_fini(&s);
    rc = run(&k, f, true, &s, &err);
    const unsigned seen = rc == 0 ? compare(&k, &one, &s, text, sizeof text) : RIG_SAW_RUN;
    if (!tap_ok((seen & f->by) == f->by && (!f->says || strstr(err.text, f->says)),
                "%s: found by %s", f->name, rig_names(f->by, names, sizeof names)))
        tap_diag("found by %s: %s", rig_names(seen, names, sizeof names), rc ? err.text : text);
    rig_fini(&s);
    rig_fini(&one);
}
