/* SPDX-License-Identifier: Apache-2.0
 *
 * Do a model and a tokenizer belong together? A checkpoint that was trained says with which
 * tokenizer (tokenizer_sha256 in its state), and so do shards. The ids of another one are legal and
 * mean other text: nothing else would notice.
 */
#ifndef LF_MODEL_SAME_TOKENIZER_H
#define LF_MODEL_SAME_TOKENIZER_H

#include "engine/base/err.h"

/* dir: checkpoint or adapter, NULL: none; sha256: hex, of the tokenizer's file or of what shards
 * were made with; whose: what brings it, for the message. LF_EINVAL: another one. 0 too where
 * either is not known: NULL, "", zeros, an imported model, no such directory (whoever opens it will
 * say so). */
int lf_same_tokenizer(const char *dir, const char *sha256, const char *whose, lf_err *err);
/* The same with what the shards in `data` say of theirs. */
int lf_same_tokenizer_data(const char *dir, const char *data, lf_err *err);
/* Were the shards in data made with the tokenizer sha256 of whose? */
int lf_same_tokenizer_made(const char *data, const char *sha256, const char *whose, lf_err *err);

#endif
