/* SPDX-License-Identifier: Apache-2.0
 *
 * See same_tokenizer.h.
 */
#include "config.h"

#include "engine/model/same_tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"

#define STATE_MAX ((size_t)64 << 20)

/* Zeros stand for data of which nobody knows what made it. */
static bool known(const char *sha)
{
    return sha && strspn(sha, "0") < strlen(sha);
}

int lf_same_tokenizer(const char *dir, const char *sha256, const char *whose, lf_err *err)
{
    if (!dir || !known(sha256))
        return 0;
    char *path = lf_path_join(dir, "state.json", err);
    json_t *state = path && lf_io_exists(path) ? lf_json_load_file(path, STATE_MAX, NULL) : NULL;
    const char *sha = json_string_value(json_object_get(state, "tokenizer_sha256"));
    int rc = path ? 0 : LF_ENOMEM;
    if (rc == 0 && known(sha) && strcmp(sha, sha256) != 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s was trained with another tokenizer (%.12s) than that of %s (%.12s): its "
                     "tokens mean other text; give the one it was "
                     "trained with",
                     dir, sha, whose, sha256);
    json_decref(state);
    free(path);
    return rc;
}

int lf_same_tokenizer_data(const char *dir, const char *data, lf_err *err)
{
    lf_artifact a = {0};
    if (lf_artifact_load(&a, data, "shards", NULL) != 0)
        return 0;
    int rc = lf_same_tokenizer(dir, json_string_value(json_object_get(a.meta, "tokenizer_sha256")),
                               data, err);
    lf_artifact_fini(&a);
    return rc;
}

int lf_same_tokenizer_made(const char *data, const char *sha256, const char *whose, lf_err *err)
{
    lf_artifact a = {0};
    if (lf_artifact_load(&a, data, "shards", NULL) != 0)
        return 0;
    const char *sha = json_string_value(json_object_get(a.meta, "tokenizer_sha256"));
    int rc = 0;
    if (known(sha) && known(sha256) && strcmp(sha, sha256) != 0)
        rc = lf_fail(err, LF_EINVAL, "%s was made with another tokenizer (%.12s) than %s (%.12s)",
                     data, sha, whose, sha256);
    lf_artifact_fini(&a);
    return rc;
}
