/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of --profile, and its table in the log.
 */
#include "stages/stage_profile.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/sys.h"

int lf_stage_profile_begin(lf_profile **out, const lf_optset *o, lf_err *err)
{
    if (!lf_optset_str(o, "metrics") && !lf_optset_str(o, "out"))
        return lf_fail(err, LF_EINVAL,
                       "profile needs --out or --metrics: its files are written there");
    *out = lf_profile_create(err);
    return *out ? 0 : LF_ENOMEM;
}

/* "DIR/profile[.RANK]SUFFIX", DIR being that of the metrics file, else out. */
static char *path_of(const lf_optset *o, int rank, const char *suffix, lf_err *err)
{
    const char *metrics = lf_optset_str(o, "metrics"),
               *slash = metrics ? strrchr(metrics, '/') : NULL;
    lf_buf b;
    lf_buf_init(&b);
    if (slash)
        lf_buf_add(&b, metrics, (size_t)(slash - metrics + 1));
    else if (!metrics)
        lf_buf_addf(&b, "%s/", lf_optset_str(o, "out"));
    lf_buf_adds(&b, "profile");
    if (rank)
        lf_buf_addf(&b, ".%d", rank);
    lf_buf_adds(&b, suffix);
    char *path = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return path;
}

static int write_file(const lf_optset *o, int rank, const char *suffix, const char *text, size_t n,
                      lf_err *err)
{
    char *path = path_of(o, rank, suffix, err);
    int rc = path ? lf_io_write_file(path, text, n, 0640, err) : LF_ENOMEM;
    if (rc == 0 && !rank)
        lf_log(2, "wrote %s", path);
    free(path);
    return rc;
}

/* The log takes single lines. */
static void log_lines(char *text)
{
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line)
            lf_log(2, "%s", line);
}

static int tell(const lf_profile *p, const lf_optset *o, int rank, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    json_t *j = lf_profile_json(p, err);
    char *text = j ? lf_json_dump(j, err) : NULL;
    int rc = text ? write_file(o, rank, ".json", text, strlen(text), err) : LF_ENOMEM;
    free(text);
    json_decref(j);
    if (rc == 0)
        rc = lf_profile_trace(p, rank, &b, err);
    if (rc == 0)
        rc = write_file(o, rank, ".trace.json", b.data, b.len, err);
    lf_buf_clear(&b);
    if (rc == 0 && !rank && !(rc = lf_profile_text(p, &b, err)))
        log_lines(b.data);
    lf_buf_fini(&b);
    return rc;
}

int lf_stage_profile_end(lf_profile *p, const lf_optset *o, int rank, int rc, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int told = p && lf_profile_ran(p) ? tell(p, o, rank, &why) : 0;
    if (told && rc == 0)
        rc = lf_fail(err, told, "profile: %s", why.text);
    else if (told)
        lf_log(1, "profile: %s", why.text);
    lf_profile_destroy(p);
    return rc;
}
