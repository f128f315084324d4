/* SPDX-License-Identifier: Apache-2.0
 *
 * Small JSON files of a run, and the events that the ledger reads.
 */
#ifndef LF_FLOW_RECORD_H
#define LF_FLOW_RECORD_H

#include <jansson.h>
#include <limits.h>

#include "engine/base/err.h"
#include "flow/record/event.h"

/* Publish dir/name with link(2); LF_EEXIST when it is there. */
int lf_record_publish(const char *dir, const char *name, const json_t *o, lf_err *err);

/* Write one event. data: taken. */
int lf_record_event(const lf_origin *from, const char *kind, json_t *data, lf_err *err);

int lf_json_set_new(json_t *o, const char *key, json_t *v, lf_err *err); /* takes v */
int lf_json_push_new(json_t *a, json_t *v, lf_err *err);                 /* takes v */

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
