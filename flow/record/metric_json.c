/* SPDX-License-Identifier: Apache-2.0
 *
 * A record of a stage's metrics from JSON.
 */
#include "config.h"

#include <jansson.h>

#include "flow/record/metric.h"

#include "flow/record/fields.h"

static const struct lf_field metric_rows[] = {
    {LF_FIELD(struct lf_metric, t)},
    {LF_FIELD(struct lf_metric, save_s)},
    {LF_FIELD(struct lf_metric, step), .none = -1},
    {LF_FIELD(struct lf_metric, saved), .none = -1},
};
static const struct lf_fields metric_fields = LF_FIELDS(struct lf_metric, metric_rows);

void lf_metric_parse(struct lf_metric *out, const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, 0, NULL);
    lf_fields_read(out, &metric_fields, o, "a record of metrics", NULL);
    json_decref(o);
}
