/* SPDX-License-Identifier: Apache-2.0
 *
 * Adding up a sweep.
 */
#include "config.h"

#include "flow/cmd/sweep_sum.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/str.h"
#include "flow/cmd/cmd.h"
#include "flow/cmd/place.h"
#include "flow/record/fields.h"

const struct lf_fields lf_sweep_sum_fields = {
    LF_FIELDS_TABLE(lf_sweep_sum, offsetof(lf_sweep_sum, given), LF_FIELD_NONE,
                    LF_MEMBERS(lf_sweep_sum, children, stages, disk_bytes),
                    LF_MEMBERS_OPT(lf_sweep_sum, core_hours), LF_MEMBERS(lf_sweep_sum, unknown),
                    LF_MEMBERS_OPT(lf_sweep_sum, max_parallel, max_core_hours))};

/* Cores that a stage is given; where nothing is said it takes its `threads`, or on this machine all
 * there are. */
static int64_t cores_of(const lf_prep *p, const lf_doc_stage *st)
{
    const lf_resources *r = &st->resources;
    const lf_texts *given = lf_lists_get(&st->options, "threads");
    const bool local = p->plan->scheduler == NULL || strcmp(p->plan->scheduler, "local") == 0;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = 0;
    if (r->cpus.given)
        threads = r->cpus.v;
    else if (given != NULL && given->n == 1 && lf_parse_i64(&threads, given->v[0], NULL) < 0)
        threads = 0;
    if (threads <= 0)
        threads = local && online > 0 ? (int64_t)online : 1;
    return lf_int_or(r->nodes, 1) * lf_int_or(r->ranks, 1) * threads;
}

/* From its FLOPs and a rate; else its time limit, which it cannot pass in one job. A stage without
 * FLOPs, such as tokenize, that has no limit counts as none. */
static void add_time(lf_sweep_sum *out, lf_prep *p, const lf_cost_row *row, double rate)
{
    const lf_cost *c = &row->cost;
    const double work = c->flops_per_step.v * c->steps.v,
                 limit = (double)row->stage->time_limit_s.v;
    const double speed = !(work > 0) ? 0
                         : rate > 0  ? rate
                                     : lf_cost_rate(p, row->stage->kind, NULL);
    const double s = work > 0 && speed > 0 ? work / speed : limit;
    if (s > 0) {
        out->core_hours.v += s / 3600.0 * (double)cores_of(p, row->stage);
        out->core_hours.given = true;
    } else if (work > 0 || !c->given) {
        out->unknown++;
    }
}

void lf_sweep_add_up(lf_sweep_sum *out, lf_prep *p, const lf_cost_rows *costs, double rate)
{
    const lf_sweep *s = &p->plan->sweep;
    *out = (lf_sweep_sum){.given = s->given,
                          .children = (int64_t)s->children.n,
                          .disk_bytes = lf_real_of(0),
                          .max_parallel = s->max_parallel,
                          .max_core_hours = s->max_core_hours};
    for (size_t i = 0; s->given && i < costs->n; i++) {
        out->stages++;
        out->disk_bytes.v += costs->v[i].cost.disk_bytes.v;
        add_time(out, p, &costs->v[i], rate);
    }
    if (out->unknown > 0)
        out->core_hours = (lf_real){.given = false};
}

int lf_sweep_check(const lf_sweep_sum *sum, const lf_prep *p, lf_err *err)
{
    if (!sum->given || !sum->max_core_hours.given)
        return 0;
    if (!sum->core_hours.given || sum->core_hours.v <= sum->max_core_hours.v)
        return 0;
    lf_fail(err, LF_EINVAL,
            "the sweep needs about %.3g core hours, and [sweep] max_core_hours is %g; take values "
            "out of it, or shorten its stages",
            sum->core_hours.v, sum->max_core_hours.v);
    return lf_place_of(p, "max_core_hours", LF_EINVAL, err);
}

/* ---- for people ---- */

void lf_sweep_print_children(const lf_sweep *sweep)
{
    if (!sweep->given)
        return;
    printf("  sweep of %zu child%s:", sweep->children.n, sweep->children.n == 1 ? "" : "ren");
    for (size_t i = 0; i < sweep->axes.n; i++) {
        fputs(i > 0 ? ", " : " ", stdout);
        lf_print_safe(sweep->axes.v[i].name);
        printf(" (%zu)", sweep->axes.v[i].values.n);
    }
    if (sweep->max_parallel.given)
        printf("; %lld at once", (long long)sweep->max_parallel.v);
    putchar('\n');
    for (size_t i = 0; i < sweep->children.n; i++) {
        lf_buf b;
        lf_buf_init(&b);
        lf_sweep_line(&b, &sweep->children.v[i]);
        printf("  %4lld  ", (long long)sweep->children.v[i].number.v);
        lf_print_safe(b.data);
        putchar('\n');
        lf_buf_fini(&b);
    }
}

void lf_sweep_print_sum(const lf_sweep_sum *sum)
{
    char b[32];
    if (!sum->given)
        return;
    printf("  in all: %lld stage%s, %s on disk, ", (long long)sum->stages,
           sum->stages == 1 ? "" : "s", lf_fmt_bytes(b, sizeof b, sum->disk_bytes.v));
    if (sum->core_hours.given || sum->unknown == 0)
        printf("about %.3g core hours\n", sum->core_hours.v);
    else
        printf("core hours unknown: %lld of the stages were never measured and have no time_limit "
               "(--rate helps)\n",
               (long long)sum->unknown);
}

bool lf_sweep_is_repeated(const lf_doc *plan, const char *stage)
{
    const size_t n = strcspn(stage, "@");
    if (!lf_sweep_is_child(stage))
        return false;
    for (size_t i = 0; i < plan->stages.n; i++) {
        const char *other = plan->stages.v[i].name;
        if (strncmp(other, stage, n + 1) == 0)
            return strcmp(other, stage) != 0;
    }
    return false;
}
