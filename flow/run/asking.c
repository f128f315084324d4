/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the ledger.
 */
#include "config.h"

#include "flow/run/asking.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/record/record.h"
#include "flow/run/sync.h"

int lf_ask_roots(lf_texts *out, const lf_project *p, lf_err *err)
{
    return lf_project_roots(out, p,
                            err); /* those whose runs are gone too: the ledger has to hear of it */
}

int lf_ask_sync(lf_ledger_ingested *out, const lf_project *p, bool everything, lf_err *err)
{
    lf_texts roots = {.n = 0};
    lf_ledger_ingested sum = {0, 0, 0};
    int rc = lf_ask_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < roots.n; i++) {
        lf_ledger_ingested got = {0, 0, 0};
        rc = lf_sync_count(&got, p, roots.v[i], everything, err);
        sum.events += got.events;
        sum.records += got.records;
        sum.problems += got.problems;
    }
    lf_texts_fini(&roots);
    if (rc == 0 && out != NULL)
        *out = sum;
    return rc;
}

lf_ledger *lf_ask_open(const lf_project *p, lf_err *err)
{
    char path[PATH_MAX];
    unsigned flags = 0;
    if (lf_path_set(path, err, "%s/ledger.db", p->dot) < 0 || lf_sync_read_flags(&flags, err) < 0)
        return NULL;
    lf_ledger *l = lf_ledger_open(path, flags, err);
    if (l == NULL && err != NULL && err->rc == LF_ENOTSUP)
        err->rc = LF_EFORMAT;
    return l;
}

char *lf_ask_path(const lf_project *p, const char *word, lf_err *err)
{
    char *abs = realpath(word, NULL), *out = NULL;
    lf_texts roots = {.n = 0};
    if (abs == NULL)
        return lf_strdup(word, err);
    if (lf_ask_roots(&roots, p, err) < 0) {
        free(abs);
        return NULL;
    }
    for (size_t i = 0; i < roots.n && out == NULL; i++) {
        char *root = realpath(roots.v[i], NULL);
        size_t n = root != NULL ? strlen(root) : 0;
        if (n > 0 && strncmp(abs, root, n) == 0 && abs[n] == '/')
            out = lf_strdup(abs + n + 1, err);
        free(root);
    }
    if (out == NULL)
        out = lf_strdup(abs, err);
    lf_texts_fini(&roots);
    free(abs);
    return out;
}
