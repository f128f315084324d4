/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h.
 */
#include "config.h"

#include "flow/cmd/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/str.h"
#include "flow/record/record.h"
#include "flow/run/project.h"

int lf_place_of(const lf_prep *p, const char *key, int rc, lf_err *err)
{
    static const char *const sections[] = {"pipeline", "sweep", "site"};
    const lf_conf_item *it = NULL;
    if (rc >= 0 || !p->has_pipeline)
        return rc;
    for (size_t i = 0; it == NULL && i < sizeof sections / sizeof sections[0]; i++)
        it = lf_conf_find(&p->pipeline.conf, sections[i], key);
    if (it == NULL)
        return rc;
    const lf_err why = *err;
    lf_err e = LF_ERR_INIT;
    lf_conf_fail(it, &e, "%s", why.text);
    lf_err_clear(err); /* the first words stand */
    return lf_fail(err, rc, "%s", e.text);
}

int lf_place_submitter(const lf_submitter **out, const lf_prep *p, lf_err *err)
{
    return lf_place_of(p, "scheduler", lf_submitter_find(out, p->plan->scheduler, err), err);
}

static int check_share(const lf_prep *p, lf_err *err)
{
    return p->plan->share != NULL ? lf_share_check(p->plan->share, err) : 0;
}

/* The page is written when the run ends, and may be all that somebody looks at. */
static int check_report(const lf_prep *p, lf_err *err)
{
    char dir[PATH_MAX];
    struct stat st;
    const char *path = p->plan->report, *root = p->pipeline.project;
    const char *end = path != NULL ? strrchr(path, '/') : NULL;
    if (end == NULL || end == path || root == NULL)
        return 0;
    int rc = lf_path_set(dir, err, "%s%s%.*s", path[0] == '/' ? "" : root,
                         path[0] == '/' ? "" : "/", (int)(end - path), path);
    if (rc < 0 || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)))
        return rc;
    return lf_fail(err, LF_EINVAL, "report = %s: there is no directory %s; make it", path, dir);
}

/* All results go there. The nearest directory that there is must let others be made in it. One that
 * the file does not name lies beside it, and whoever only looks at a file may not write there. */
static int check_data_dir(const lf_prep *p, lf_err *err)
{
    char path[PATH_MAX];
    const char *dir = p->plan->data_dir, *root = p->pipeline.project;
    if (root == NULL)
        return 0;
    int rc =
        lf_path_set(path, err, "%s%s%s", dir[0] == '/' ? "" : root, dir[0] == '/' ? "" : "/", dir);
    while (rc == 0 && faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT)
            return lf_fail(err, LF_EINVAL, "data_dir = %s: nothing can be written to %s: %s", dir,
                           path, strerror(errno));
        if (slash == NULL || slash == path)
            return 0;
        *slash = '\0';
    }
    return rc;
}

int lf_place_check(lf_texts *out, const lf_prep *p, lf_err *err)
{
    static const struct {
        const char *key;
        int (*check)(const lf_prep *p, lf_err *err);
    } checks[] = {{"share", check_share}, {"report", check_report}, {"data_dir", check_data_dir}};
    const lf_submitter *sub;
    lf_err e = LF_ERR_INIT;
    int rc = 0;
    if (lf_place_submitter(&sub, p, &e) < 0)
        rc = lf_texts_add(out, e.text, err);
    for (size_t i = 0; rc == 0 && i < sizeof checks / sizeof checks[0]; i++) {
        lf_err_clear(&e);
        if (lf_place_of(p, checks[i].key, checks[i].check(p, &e), &e) < 0)
            rc = lf_texts_add(out, e.text, err);
    }
    return rc;
}
