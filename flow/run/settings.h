/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of a run by name, so that runs can be laid side by side: "STAGE.OPTION" of a stage,
 * "model.KEY" of the model (that of the first stage with one).
 */
#ifndef LF_FLOW_SETTINGS_H
#define LF_FLOW_SETTINGS_H

#include <stdbool.h>

#include "engine/base/opt.h"
#include "flow/record/doc.h"

/* What a plan says where it differs from the defaults, in the order of its stages. Several values
 * of an option are joined by ','. Owned. */
int lf_settings_of(lf_pairs *out, const lf_doc *plan, lf_err *err);

/* A run for comparing. stages: name and kind of each. All borrowed. */
typedef struct lf_settings_run {
    const lf_pairs *settings, *stages;
} lf_settings_run;

/* The value of a setting: as it was said, or the default of the option; NULL: the run has no such
 * stage, or the option no default. */
const char *lf_setting_value(const lf_settings_run *r, const lf_opt_table *const *tables,
                             const char *name);
/* Names of the settings in which at least two of n runs differ. The one in which the most runs have
 * another value than the most frequent one comes first; of equals, the one that the first run says
 * first. A run without the stage does not count, nor does an operational option, which says nothing
 * of the result. Owned. */
int lf_settings_differing(lf_texts *out, const lf_settings_run *runs, size_t n,
                          const lf_opt_table *const *tables, lf_err *err);

#endif
