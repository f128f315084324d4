/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters as users name them: see adapter_in.h. */
#include "stages/adapter_in.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "stages/stage.h"

bool lf_adapter_in_is_peft(const char *dir)
{
    char *path = lf_path_join(dir, LF_PEFT_CONFIG, NULL);
    const bool yes = path && lf_io_exists(path);
    free(path);
    return yes;
}

/* OUT/peft-XXXXXXXXXXXX, of both files of `from`. Owned. */
static char *place(const char *from, const char *out, lf_err *err)
{
    static const char *const files[] = {LF_PEFT_CONFIG, LF_PEFT_FILE};
    uint8_t digest[2 * LF_HASH_BYTES], both[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    lf_buf b;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        char *path = lf_path_join(from, files[i], err);
        rc = path ? lf_tree_hash_file(digest + i * LF_HASH_BYTES, NULL, path, err) : LF_ENOMEM;
        free(path);
    }
    if (rc != 0 || lf_hash_buf(both, digest, sizeof digest, err))
        return NULL;
    lf_hash_hex(hex, both);
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/peft-%.12s", out, hex);
    char *dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return dir;
}

static int import(const char *dir, const char *from, const char *base, const char *out, int threads,
                  lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    struct lf_convert_result r;
    const struct lf_peft_opts o = {.from = from, .out = dir, .base = base, .threads = threads};
    int rc = lf_artifact_state(&st, dir, err);
    if (rc != 0 || st == LF_ARTIFACT_PRESENT)
        return rc;
    rc = lf_io_mkdirs(out, 0777, err) < 0 ? LF_EIO : lf_peft_import(&o, &r, err);
    if (rc == 0)
        lf_log(2, "%s: adapter of PEFT, %lld tensors, put into %s", from, (long long)r.tensors,
               dir);
    return rc != 0 ? lf_err_prefix(err, "%s", from) : 0;
}

int lf_adapter_in(char **dir, lf_comm *comm, const char *from, const char *base, const char *out,
                  int threads, lf_err *err)
{
    int rc = 0;
    char *to = NULL;
    if (!lf_adapter_in_is_peft(from)) {
        to = lf_path_join(from, ".", err);
        if (to)
            to[strlen(from)] = 0;
        rc = to ? 0 : LF_ENOMEM;
    } else if (!out) {
        rc = lf_fail(err, LF_EINVAL,
                     "adapter = %s holds PEFT's files, which need --out to be put below", from);
    } else {
        to = place(from, out, err);
        rc = !to                        ? LF_EIO
             : !comm || comm->rank == 0 ? import(to, from, base, out, threads, err)
                                        : 0;
    }
    rc = lf_stage_agree(comm, rc, err);
    if (rc != 0) {
        free(to);
        return rc;
    }
    *dir = to;
    return 0;
}
