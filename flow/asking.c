/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the ledger.
 */
#include "config.h"

#include "flow/asking.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/drive.h"
#include "flow/record.h"

int lf_ask_roots(json_t **out, const lf_project *p, lf_err *err)
{
    return lf_project_roots(out, p, err); /* those whose runs are gone too: the ledger has to hear of it */
}

int lf_ask_sync(lf_ledger_ingested *out, const lf_project *p, bool everything, lf_err *err)
{
    json_t *roots = NULL;
    lf_ledger_ingested sum = {0, 0, 0};
    int rc = lf_ask_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(roots); i++) {
        lf_ledger_ingested got = {0, 0, 0};
        rc = lf_sync_count(&got, p, json_string_value(json_array_get(roots, i)), everything, err);
        sum.events += got.events;
        sum.records += got.records;
        sum.problems += got.problems;
    }
    json_decref(roots);
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

lf_ledger *lf_ask_open_fresh(const lf_project *p, bool everything, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = lf_ask_sync(NULL, p, everything, &e);
    lf_ledger *l = lf_ask_open(p, err);
    if (rc < 0 && l != NULL) /* otherwise the same is said once, as the command's own failure */
        lf_say_err("loong-flow: the ledger is not up to date: %s\n", e.text);
    return l;
}

char *lf_ask_path(const lf_project *p, const char *word, lf_err *err)
{
    char *abs = realpath(word, NULL), *out = NULL;
    json_t *roots = NULL;
    if (abs == NULL)
        return lf_strdup(word, err);
    if (lf_ask_roots(&roots, p, err) < 0) {
        free(abs);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(roots) && out == NULL; i++) {
        char *root = realpath(json_string_value(json_array_get(roots, i)), NULL);
        size_t n = root != NULL ? strlen(root) : 0;
        if (n > 0 && strncmp(abs, root, n) == 0 && abs[n] == '/')
            out = lf_strdup(abs + n + 1, err);
        free(root);
    }
    if (out == NULL)
        out = lf_strdup(abs, err);
    json_decref(roots);
    free(abs);
    return out;
}

int lf_ask_print(const lf_cmd *c, json_t *rows, const lf_table *t, lf_err *err)
{
    lf_column own[64];
    lf_table mine = {.cols = own};
    if (rows == NULL)
        return err->rc != 0 ? err->rc : LF_EIO;
    if (c->json)
        return lf_cmd_print_json(json_pack("{s:o}", "rows", rows), err);
    if (t == NULL) {
        const char *k;
        json_t *v;
        json_object_foreach(json_array_get(rows, 0), k, v) if (mine.n_cols < 64)
        {
            own[mine.n_cols++] = (lf_column){k, k, json_is_number(v), false};
        }
        t = &mine;
    }
    int rc = t->n_cols > 0 ? lf_table_show(t, rows, lf_optset_str(c->opts, "columns"), err) : 0;
    json_decref(rows);
    return rc;
}
