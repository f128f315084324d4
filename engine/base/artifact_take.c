/* SPDX-License-Identifier: Apache-2.0
 *
 * An artifact under a second name, made of hard links.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

int lf_artifact_manifest_hash(uint8_t out[LF_HASH_BYTES], const char *dir, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    char *path = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    int rc = path ? lf_io_read_file(path, LF_ARTIFACT_MAX_MANIFEST, &text, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_hash_buf(out, text.data, text.len, err);
    lf_buf_fini(&text);
    free(path);
    return rc;
}

/* The directories above `path` below dir, when it has any. */
static int make_parents(const char *dir, const char *path, lf_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    char *parent = lf_strndup(path, (size_t)(slash - path), err);
    char *full = parent ? lf_path_join(dir, parent, err) : NULL;
    int rc = full ? lf_io_mkdirs(full, 0750, err) : LF_ENOMEM;
    free(parent);
    free(full);
    return rc;
}

static int take_one(const char *from, const char *to, const char *path, lf_err *err)
{
    char *a = lf_path_join(from, path, err), *b = a ? lf_path_join(to, path, err) : NULL;
    int rc = b ? make_parents(to, path, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_link_or_copy(a, b, LF_ARTIFACT_MODE, err);
    free(a);
    free(b);
    return rc;
}

int lf_artifact_take(const char *from, const char *to, const uint8_t sha256[LF_HASH_BYTES],
                     lf_err *err)
{
    lf_artifact a = {0};
    uint8_t is[LF_HASH_BYTES];
    if (lf_io_exists(to))
        return lf_fail(err, LF_EEXIST, "%s exists already and is left as it is", to);
    int rc = lf_artifact_load(&a, from, NULL, err);
    if (rc < 0)
        return rc;
    rc = lf_io_mkdirs(to, 0750, err);
    for (size_t i = 0; i < a.n_files && rc == 0; i++)
        rc = take_one(from, to, a.files[i].path, err);
    if (rc == 0)
        rc = lf_io_fsync_path(to, err);
    if (rc == 0)
        rc = take_one(from, to, LF_ARTIFACT_MANIFEST, err);
    /* Checked where it cannot change any more. */
    if (rc == 0 && sha256) {
        rc = lf_artifact_manifest_hash(is, to, err);
        if (rc == 0 && memcmp(is, sha256, sizeof is) != 0)
            rc = lf_fail(err, LF_ENOENT, "%s is another artifact by now", from);
    }
    if (rc == 0)
        rc = lf_io_fsync_path(to, err);
    if (rc < 0)
        lf_io_remove_tree(to, NULL);
    lf_artifact_fini(&a);
    return rc;
}
