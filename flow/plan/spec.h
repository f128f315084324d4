/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids: what a stage's output is a function of, as one SHA-256.
 *
 *   id = SHA-256 of the canonical JSON of an object with
 *     kind, spec_version
 *     options   the identity options that differ from the default
 *     model     the description, when there is one
 *     inputs    {option: [texts]}. In a text each reference is "stage:<spec id of the
 *               producer>.<output>", and an outside file or tree is "sha256:<its hash>".
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

#include "engine/base/err.h"
#include "flow/record/doc.h"

/* Sets spec and spec_id of every stage. project: base of relative paths. cache_path NULL: no
 * cache. */
int lf_spec_assign(lf_doc *plan, const char *project, const char *cache_path, lf_err *err);

/* Names of identity settings in which a spec and that of a stage differ, as the stage calls
 * them, e.g. ["steps", "model.layers", "data"]. A difference that comes from a producer is named
 * after the option that takes its output. */
int lf_spec_diff(lf_texts *out, const lf_spec *a, const lf_doc_stage *stage, lf_err *err);

#endif
