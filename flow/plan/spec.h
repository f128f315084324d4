/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids: what a stage's output is a function of, as one SHA-256.
 *
 *   id = SHA-256 of canonical JSON {"kind", "spec_version", "options": identity options that differ
 *   from the default,
 *        "model": description when there is one, "inputs": {option: [text with each reference
 *        replaced by "stage:<spec id of the producer>.<output>", or "sha256:<hash of an outside
 *        file or tree>"]}}
 *
 * An option that was renamed enters by its old name (lf_opt.was), so that ids stay.
 * A Megatron index NAME.idx enters with the data it stands for, NAME.bin.
 *
 * So the ids of a whole chain are known before anything runs. Names, paths, times and executables
 * are not part of it. Hashes of outside files are cached in PROJECT/.loong/hashcache.json by path,
 * size, mtime, ctime and inode; a file whose mtime or ctime lies within two seconds of the moment
 * it was hashed is hashed again (it may have changed without its mtime moving).
 */
#ifndef LF_FLOW_SPEC_H
#define LF_FLOW_SPEC_H

#include <jansson.h>

#include "engine/base/err.h"

/* Sets "spec_id" in every stage of the plan document. project: base of relative paths. cache_path
 * NULL: no cache. */
int lf_spec_assign(json_t *doc, const char *project, const char *cache_path, lf_err *err);

/* Names of identity settings in which two stage documents differ, e.g. ["steps", "model.layers",
 * "data"], new array; today's names of options that were renamed. A difference that comes from a
 * producer is named after the option that takes its output. */
json_t *lf_spec_diff(const json_t *a, const json_t *b, lf_err *err);

#endif
