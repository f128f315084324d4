/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments as recorded graphs. The first run of a list of calls is a plain one, so that whatever a kernel's first call
 * looks up, chooses or allocates happens outside of a recording; the second records; from then on one launch replays. The
 * three give the same bits: the calls and their arguments are the same.
 */
#include <stdio.h>

#include "engine/graph/exec_priv.h"

void lf_exec_why(const lf_exec *ex, char *text, size_t cap)
{
    char why[300] = "";
    if (ex->b->ops->failure)
        ex->b->ops->failure(ex->b, why, sizeof why);
    snprintf(text, cap, "%s%s", why[0] ? ": " : "", why);
}

static int record(lf_exec *ex, struct lf_captured *c, lf_exec_issue issue, const void *what, lf_err *err)
{
    const struct lf_back_ops *o = ex->b->ops;
    lf_err end = LF_ERR_INIT;
    int rc = o->capture_begin(ex->b, err);
    if (rc)
        return rc;
    rc = issue(ex, what, err);
    int end_rc = o->capture_end(ex->b, &c->graph, &end);
    if (!rc && end_rc)
        return lf_fail(err, end_rc, "%s", end.text);
    if (rc && !end_rc) /* a part of it was recorded */
        lf_exec_free_captured(ex, c);
    return rc;
}

int lf_exec_run_captured(lf_exec *ex, struct lf_captured *c, lf_exec_issue issue, const void *what, lf_err *err)
{
    if (!ex->b->ops->capture_begin || ex->prof || !c->ran) {
        int rc = issue(ex, what, err);
        c->ran = !rc;
        return rc;
    }
    int rc = c->graph ? 0 : record(ex, c, issue, what, err);
    return rc ? rc : ex->b->ops->capture_run(ex->b, c->graph, err);
}

void lf_exec_free_captured(const lf_exec *ex, struct lf_captured *c)
{
    if (c->graph)
        ex->b->ops->capture_free(ex->b, c->graph);
    c->graph = NULL;
}
