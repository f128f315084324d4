/* SPDX-License-Identifier: Apache-2.0
 *
 * All that a page shows of a run, read once: states, records of metrics, provenance.
 */
#ifndef LF_FLOW_REPORT_FACTS_H
#define LF_FLOW_REPORT_FACTS_H

#include "flow/record/shown.h"
#include "flow/run/provenance.h"
#include "flow/run/series.h"
#include "flow/run/state.h"

typedef struct lf_facts_stage {
    const lf_stage_view *view;
    const lf_stage_shown *shown;
    lf_metric_rows records;
    lf_texts keys; /* of its numbers, sorted, as `metrics --json` has them */
    double *hours; /* of each record: time in starts of the stage until then */
    lf_provenance from;
} lf_facts_stage;

typedef struct lf_facts {
    const lf_run_view *view;
    lf_run_shown shown;
    lf_facts_stage *stages;
    size_t n;
} lf_facts;

/* Borrows from v. Owned: lf_facts_fini. */
int lf_facts_load(lf_facts *out, const lf_run_view *v, lf_err *err);
void lf_facts_fini(lf_facts *f);

/* Of the finite values of a key: the last, the lowest with its step (step NULL: not asked), the
 * greatest, the median. NAN: there is none. */
double lf_facts_last(const lf_facts_stage *s, const char *key);
double lf_facts_lowest(const lf_facts_stage *s, const char *key, double *step);
double lf_facts_greatest(const lf_facts_stage *s, const char *key);
double lf_facts_median(const lf_facts_stage *s, const char *key);
/* Place of a key among s->keys, -1: it has none. */
int lf_facts_key(const lf_facts_stage *s, const char *key);
/* Was it trained on pictures, and no tokens? */
bool lf_facts_pictures(const lf_facts_stage *s);
/* lf_loss_unit of its kind, or of restored pixels. */
const char *lf_facts_loss_unit(const lf_facts_stage *s);

#endif
