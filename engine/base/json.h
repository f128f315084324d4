/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers around jansson: limits on the size of a text, positions in messages, and typed members
 * that are required or optional.
 */
#ifndef LF_BASE_JSON_H
#define LF_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

/* Returns a value that the caller owns (json_decref), or NULL with the message "path:line:column:
 * text". Duplicate keys are refused. In a text with an integer beyond 64 bits, integers of more
 * than 18 digits become reals. */
json_t *lf_json_load_file(const char *path, size_t max_bytes, lf_err *err);
json_t *lf_json_load_text(const char *text, size_t len, const char *path_for_messages, lf_err *err);

/* These functions read a member of an object. When the member is missing, `need` makes that
 * LF_EFORMAT; without `need`, *out keeps its value, which is a default. `what` names the object in
 * messages. Strings are borrowed from o. */
int lf_json_get_str(const char **out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err);
int lf_json_get_i64(int64_t *out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err);
int lf_json_get_f64(double *out, json_t *o, const char *key, bool need, const char *what,
                    lf_err *err);
int lf_json_get_bool(bool *out, json_t *o, const char *key, bool need, const char *what,
                     lf_err *err);
int lf_json_get_array(json_t **out, json_t *o, const char *key, bool need, const char *what,
                      lf_err *err);
int lf_json_get_object(json_t **out, json_t *o, const char *key, bool need, const char *what,
                       lf_err *err);

struct lf_json_member {
    const char *key;
    json_t *value; /* NULL: it could not be made, and setting it fails */
};

/* Sets the n members in this order and stops at the first that fails. The message names `what` and
 * the key. The function takes ownership of every value, also of those behind a failure. After a
 * failure the object keeps the members before the failed one. */
int lf_json_set(json_t *o, const struct lf_json_member *members, size_t n, const char *what,
                lf_err *err);

/* Returns the canonical text: sorted keys, no blanks. The caller frees it. */
char *lf_json_dump(const json_t *v, lf_err *err);

#endif
