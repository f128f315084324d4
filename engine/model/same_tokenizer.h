/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a model and a tokenizer belong together. The state of a trained checkpoint names its
 * tokenizer (tokenizer_sha256), and so do shards. The ids of another tokenizer are valid and mean
 * other text, so nothing else would notice.
 */
#ifndef LF_MODEL_SAME_TOKENIZER_H
#define LF_MODEL_SAME_TOKENIZER_H

#include "engine/base/err.h"

/* dir is a checkpoint or an adapter, or NULL. sha256 (hex) is that of the tokenizer's file, or the
 * one in shards. whose names its source in the message. Returns 0 also where either is unknown:
 * NULL, "", zeros, an imported model, or no such directory (which its reader reports). LF_EINVAL:
 * the tokenizers differ. */
int lf_same_tokenizer(const char *dir, const char *sha256, const char *whose, lf_err *err);
/* The same with the tokenizer that the shards in `data` name. */
int lf_same_tokenizer_data(const char *dir, const char *data, lf_err *err);
/* Checks that the shards in data were made with the tokenizer sha256, which belongs to whose. */
int lf_same_tokenizer_made(const char *data, const char *sha256, const char *whose, lf_err *err);

#endif
