/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments as recorded graphs (engine/back/capture.c), and what the device says about a failure.
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

struct list {
    lf_exec *ex;
    lf_exec_issue issue;
    const void *what;
};

static int issue_list(const void *user, lf_err *err)
{
    const struct list *l = user;
    return l->issue(l->ex, l->what, err);
}

/* A profile wants to see each call. */
int lf_exec_run_captured(lf_exec *ex, struct lf_captured *c, lf_exec_issue issue, const void *what,
                         lf_err *err)
{
    const struct list l = {ex, issue, what};
    return ex->prof ? issue(ex, what, err) : lf_back_run_captured(ex->b, c, issue_list, &l, err);
}
