/* SPDX-License-Identifier: Apache-2.0
 *
 * The installed model descriptions: NAME.ini in one directory, each with one section [model].
 */
#ifndef LF_FLOW_PRESETS_H
#define LF_FLOW_PRESETS_H

#include "engine/base/err.h"
#include "flow/record/values.h"

/* Their names, sorted; none where dir is NULL or cannot be read. Owned. */
int lf_presets_list(lf_texts *out, const char *dir, lf_err *err);
/* The keys of one, with those of the preset that it lays itself over. LF_ENOENT names the nearest.
 * Owned. */
int lf_preset_load(lf_pairs *out, const char *dir, const char *name, lf_err *err);
/* What a message about a name that is no preset adds: the nearest, or nothing, and how to list
 * them. */
void lf_presets_hint(char *buf, size_t cap, const char *dir, const char *name);

#endif
