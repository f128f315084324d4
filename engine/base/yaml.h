/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict reader of the YAML that data sets describe themselves with: one document of nested
 * mappings and lists in blocks or between brackets, with plain and quoted texts of one line, and
 * comments. It becomes a JSON value in which every scalar is a text, but for null, ~ and nothing,
 * which are null; so a number is the text that was written.
 *
 * Refused by name with path:line:column (LF_EFORMAT): tabs, anchors, aliases, tags, texts over
 * several lines (also | and >), keys with ? or between brackets, the merge key <<, directives,
 * several documents, duplicate keys, invalid UTF-8, NULs, and more than 64 levels.
 */
#ifndef LF_BASE_YAML_H
#define LF_BASE_YAML_H

#include <jansson.h>
#include <stddef.h>

#include "engine/base/err.h"

/* Returns a value that the caller owns (json_decref), or NULL. A file has at most max_bytes. */
json_t *lf_yaml_load_file(const char *path, size_t max_bytes, lf_err *err);
json_t *lf_yaml_load_text(const char *text, size_t len, const char *path_for_messages, lf_err *err);

#endif
