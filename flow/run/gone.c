/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking for what is gone.
 */
#include "config.h"

#include "flow/run/gone.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"

#define REMEDY                                                                                     \
    "mount or restore it; without it `loong-flow run` begins anew, and `loong-flow ledger "        \
    "rebuild` "                                                                                    \
    "forgets its runs"

int lf_gone_data(const lf_project *p, lf_err *err)
{
    lf_texts roots = {.n = 0};
    int rc = lf_project_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < roots.n; i++) {
        const char *data = roots.v[i];
        char runs[PATH_MAX];
        rc = lf_path_set(runs, err, "%s/runs", data);
        if (rc == 0 && !lf_io_exists(runs))
            rc = lf_fail(err, LF_ENOENT,
                         "the data directory %s is gone, with the runs in it; " REMEDY,
                         lf_io_exists(data) ? runs : data);
    }
    lf_texts_fini(&roots);
    return rc;
}

static bool is_there(const lf_texts *roots, const char *id)
{
    char dir[PATH_MAX];
    for (size_t i = 0; i < roots->n; i++) {
        const char *data = roots->v[i];
        if (lf_path_set(dir, NULL, "%s/runs/%s", data, id) == 0 && lf_io_exists(dir))
            return true;
    }
    return false;
}

/* What the ledger knows of a run that the directories do not have. */
static int ask_ledger(const lf_project *p, const char *word, lf_err *err)
{
    lf_ledger *l = lf_ask_open(p, NULL);
    bool any = word == NULL;
    char *id = l != NULL ? lf_ledger_find_run(l, any ? NULL : word, NULL) : NULL;
    lf_texts roots = {.n = 0};
    int rc = lf_project_roots(&roots, p, err);
    if (rc == 0 && id != NULL && !is_there(&roots, id))
        rc = lf_fail(err, LF_ENOENT,
                     "the directory of run %s is gone; restore it, or let `loong-flow ledger "
                     "rebuild` forget the run",
                     id);
    lf_texts_fini(&roots);
    free(id);
    lf_ledger_close(l);
    return rc;
}

int lf_gone_run(const lf_project *p, const char *word, lf_err *err)
{
    int rc = lf_gone_data(p, err);
    return rc == 0 ? ask_ledger(p, word, err) : rc;
}
