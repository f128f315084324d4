/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of a project.
 */
#include "config.h"

#include "flow/record/identity.h"

#include <stdio.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

#define MOST_BYTES ((size_t)1 << 16)

int lf_identity_load(char **id, const char *path, lf_err *err)
{
    json_t *o = lf_json_load_file(path, MOST_BYTES, err);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    const char *text = NULL;
    int rc = lf_json_get_str(&text, o, "id", true, path, err);
    if (rc == 0 && (*id = lf_strdup(text, err)) == NULL)
        rc = LF_ENOMEM;
    json_decref(o);
    return rc;
}

int lf_identity_write(const char *path, const char *id, lf_err *err)
{
    char when[21], text[256];
    int n = snprintf(text, sizeof text, "{\"lf_project\":1,\"id\":\"%s\",\"created\":\"%s\"}\n", id,
                     lf_time_iso(when, lf_wall_s()));
    return lf_io_publish(path, text, (size_t)n, 0644, err);
}
