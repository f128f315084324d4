/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a long loop.
 */
#include "config.h"

#include "flow/record/doing.h"

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/fields.h"
#include "flow/record/parts.h"
#include "flow/record/record.h"

#define MAX_BYTES ((size_t)4096)

const struct lf_fields lf_doing_fields = {
    LF_FIELDS_TABLE(lf_doing, offsetof(lf_doing, given), LF_FIELD_NONE,
                    LF_MEMBERS_OPT(lf_doing, what, unit, done, total, per_s, t))};

void lf_doing_load(lf_doing *out, const char *start_dir)
{
    char path[PATH_MAX];
    lf_buf b;
    lf_buf_init(&b);
    *out = (lf_doing){.given = false};
    if (lf_path_set(path, NULL, "%s/ranks/" LF_PROGRESS_FILE, start_dir) == 0 &&
        lf_io_read_file(path, MAX_BYTES, &b, NULL) == 0)
        (void)lf_fields_parse(out, &lf_doing_fields, b.data, b.len, path,
                              NULL); /* not given then */
    lf_buf_fini(&b);
    if (out->total.given && !(out->total.v > 0))
        out->total = (lf_real){.given = false};
    out->given = out->what != NULL && out->unit != NULL && out->done.given;
    if (!out->given)
        lf_doing_fini(out);
}

void lf_doing_fini(lf_doing *d)
{
    lf_fields_fini(d, &lf_doing_fields);
    *d = (lf_doing){.given = false};
}
