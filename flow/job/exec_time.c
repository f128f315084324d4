/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast a stage goes: read from its metrics while it runs. A record is written at every safe
 * point, so the time between two is the spacing of safe points, with whatever stood between them
 * (validation, a save). A stage that says "save_s" in a record tells what its last save took, and
 * "saved" which step that holds.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "flow/job/exec.h"
#include "flow/record/metric.h"
#include "flow/record/record.h"

/* of the longest spacing, for each record: one hiccup of a file system shall not count for
 * ever */
#define FORGET 0.99

static int on_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)offset;
    (void)err;
    lf_exec_pace *p = ctx;
    struct lf_metric m;
    lf_metric_parse(&m, payload, n);
    p->spacing_s *= FORGET;
    if (m.t > 0 && p->t_last > 0 && m.t - p->t_last > p->spacing_s)
        p->spacing_s = m.t - p->t_last;
    if (m.t > 0)
        p->t_last = m.t;
    if (m.save_s > 0)
        p->save_s = m.save_s;
    if (m.step >= 0)
        p->step = m.step;
    if (m.saved >= 0)
        p->saved = m.saved;
    return 1;
}

void lf_exec_pace_of(lf_exec_pace *out, const lf_stage_view *s)
{
    memset(out, 0, sizeof *out);
    out->step = out->saved = -1;
    for (size_t i = s->n_incs; i-- > 0 && out->spacing_s <= 0;) {
        const struct lf_pace *p = s->incs[i].end != NULL ? s->incs[i].end->pace : NULL;
        out->spacing_s = p != NULL ? p->spacing_s : 0;
        out->save_s = p != NULL ? p->save_s : 0;
    }
}

void lf_exec_pace_begin(lf_exec *x)
{
    lf_stage_view s;
    memset(&s, 0, sizeof s);
    if (lf_stage_scan(&s, x->run.dir, x->plan, NULL) < 0)
        memset(&s, 0, sizeof s); /* then nothing is known */
    lf_exec_pace_of(&x->pace, &s);
    lf_stage_scan_fini(&s);
}

void lf_exec_pace_read(lf_exec *x)
{
    char path[PATH_MAX];
    if (lf_path_set(path, NULL, "%s/metrics", x->dir) == 0 && lf_io_exists(path))
        lf_frame_read(path, &x->pace.offset, on_record, &x->pace,
                      NULL); /* what cannot be read is read the next time */
}

double lf_exec_lead_s(const lf_exec_pace *p, double grace_s, double total_s)
{
    double lead = 2 * p->save_s + p->spacing_s;
    if (lead < grace_s)
        lead = grace_s;
    return lead < total_s / 2 ? lead : total_s / 2;
}
