/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates beside a tokenizer. transformers 5 saves several as chat_template.jinja, the
 * default, and additional_chat_templates/NAME.jinja; older versions as a list in
 * tokenizer_config.json, which the newer ones read too. Here a tokenizer is files without folders,
 * so the first form becomes the second.
 */
#ifndef LF_BASE_NAMED_TEMPLATES_H
#define LF_BASE_NAMED_TEMPLATES_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

#define LF_TEMPLATE_FILE   "chat_template.jinja"
#define LF_TEMPLATE_CONFIG "tokenizer_config.json"

/* *any: the directory has additional_chat_templates/ with a template. Then `config` is the text of
 * a tokenizer_config.json whose "chat_template" lists all of them, [{"name", "template"}], the
 * default first and the others by name, in place of what it had; else it is left alone. LF_EFORMAT,
 * LF_EIO: one of the files cannot be read. */
int lf_named_templates(lf_buf *config, const char *dir, bool *any, lf_err *err);

#endif
