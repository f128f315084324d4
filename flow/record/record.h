/* SPDX-License-Identifier: Apache-2.0
 *
 * What records are named after: paths, user, host; and text that a record may hold.
 */
#ifndef LF_FLOW_RECORD_H
#define LF_FLOW_RECORD_H

#include <limits.h>
#include <stddef.h>

#include "engine/base/err.h"

/* Text into a path buffer; LF_EINVAL when it does not fit. */
int lf_path_set(char out[PATH_MAX], lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* LF_EINVAL when a path has a control byte (a newline, a tab, an escape): it could not be told from
 * the end of a line in scripts, settings and lists. what: whose path it is, for the message. */
int lf_path_plain(const char *path, const char *what, lf_err *err);

/* Bytes that are not UTF-8, such as a character that a full buffer cut, become '?': JSON takes no
 * others. */
char *lf_text_clean(char *text);

/* User name and host for records; into caller storage. */
void lf_record_user(char *buf, size_t cap);
void lf_record_host(char *buf, size_t cap);

#endif
