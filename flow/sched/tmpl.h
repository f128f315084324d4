/* SPDX-License-Identifier: Apache-2.0
 *
 * Job script templates: text with @NAME@ placeholders.
 *
 *   - A placeholder is replaced by its value quoted for the shell, so a value is one word whatever
 *     is in it.
 *   - A line with a placeholder whose value is absent disappears (an optional `#SBATCH
 *     --account=@ACCOUNT@`).
 *   - A placeholder whose value is a list repeats its line for each element; one list to a line.
 *   - Values marked raw are lines that the user wrote for the script (prologue, extra flags): put
 *     in as they are, the line repeated for each.
 *   - "@@" is one "@". A '@' before anything but NAME@ (capitals, digits, '_') or '@' is itself.
 *   - An unknown placeholder is an error with file:line and the nearest known name; so is a file
 *     that may not configure what I run (owned by somebody else, see conf.h).
 *
 * A value with a control byte (newline, NUL) is refused unless it is raw.
 */
#ifndef LF_FLOW_TMPL_H
#define LF_FLOW_TMPL_H

#include <jansson.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/record/doc.h"

/* values: {NAME: text | number | true (nothing is put in, the line stays) | null (absent) | [texts]
 * | {"raw": [lines]}}. An empty list is absent. path: for messages. LF_EINVAL: a fault in the
 * template or a value. */
int lf_tmpl_render(lf_buf *out, const char *text, size_t len, const char *path, json_t *values,
                   lf_err *err);

/* The template `name` ("slurm/job.sh.in"): PROJECT/.loong/templates/NAME, then NAME in the site's
 * `templates`, then the installed one (LF_TEMPLATES_DIR, beside this program, the installation's).
 * Files of users that are neither me, root nor trusted are refused. *path: owned, where it was
 * found. */
int lf_tmpl_load(lf_buf *text, char **path, const char *name, const char *project,
                 const lf_site *site, lf_err *err);
/* Both. */
int lf_tmpl_file(lf_buf *out, const char *name, const char *project, const lf_site *site,
                 json_t *values, lf_err *err);

#endif
