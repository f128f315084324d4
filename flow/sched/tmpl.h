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

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/record/doc.h"

/* What a placeholder stands for. */
typedef struct lf_tmpl_value {
    char *name;
    lf_texts texts; /* one, or those of a list; not given: the value is absent */
    bool list, raw;
} lf_tmpl_value;
typedef LF_ROWS(lf_tmpl_value) lf_tmpl_values;

/* Each adds a value; a text or a list of NULL, and a number that is not given, are absent. */
int lf_tmpl_text(lf_tmpl_values *v, const char *name, const char *text, lf_err *err);
int lf_tmpl_int(lf_tmpl_values *v, const char *name, lf_int number, lf_err *err);
int lf_tmpl_list(lf_tmpl_values *v, const char *name, const lf_texts *list, lf_err *err);
int lf_tmpl_raw(lf_tmpl_values *v, const char *name, const lf_texts *lines, lf_err *err);
/* Nothing is put in for it; the line stays when it is true. */
int lf_tmpl_flag(lf_tmpl_values *v, const char *name, bool flag, lf_err *err);
const lf_tmpl_value *lf_tmpl_find(const lf_tmpl_values *v, const char *name); /* NULL: none */
void lf_tmpl_values_fini(lf_tmpl_values *v);

/* An empty list is absent. path: for messages. LF_EINVAL: a fault in the template or a value. */
int lf_tmpl_render(lf_buf *out, const char *text, size_t len, const char *path,
                   const lf_tmpl_values *values, lf_err *err);

/* The template `name` ("slurm/job.sh.in"): PROJECT/.loong/templates/NAME, then NAME in the site's
 * `templates`, then the installed one (LF_TEMPLATES_DIR, beside this program, the installation's).
 * Files of users that are neither me, root nor trusted are refused. *path: owned, where it was
 * found. */
int lf_tmpl_load(lf_buf *text, char **path, const char *name, const char *project,
                 const lf_site *site, lf_err *err);

/* A template as a submitter keeps it: looked for at its first use, so that all scripts of a command
 * are made from one text. Zeroed at first. */
typedef struct lf_tmpl {
    lf_buf text;
    char *path; /* NULL: not looked for yet */
} lf_tmpl;
void lf_tmpl_fini(lf_tmpl *t);
/* Both. Later calls with t take what the first one found. */
int lf_tmpl_file(lf_buf *out, lf_tmpl *t, const char *name, const char *project,
                 const lf_site *site, const lf_tmpl_values *values, lf_err *err);

#endif
