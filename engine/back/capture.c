/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of calls as recorded graphs. The first run of a list is a plain one, so that whatever a
 * kernel's first call looks up, chooses or allocates happens outside of a recording; the second
 * records; from then on one launch replays. The three give the same bits: the calls and their
 * arguments are the same.
 */
#include "engine/back/back.h"

static int record(lf_back *b, struct lf_captured *c, lf_back_issue issue, const void *user,
                  lf_err *err)
{
    lf_err end = LF_ERR_INIT;
    int rc = b->ops->capture_begin(b, err);
    if (rc != 0)
        return rc;
    rc = issue(user, err);
    int end_rc = b->ops->capture_end(b, &c->graph, &end);
    if (rc == 0 && end_rc)
        return lf_fail(err, end_rc, "%s", end.text);
    if (rc != 0 && !end_rc) /* a part of it was recorded */
        lf_back_forget_captured(b, c);
    return rc;
}

int lf_back_run_captured(lf_back *b, struct lf_captured *c, lf_back_issue issue, const void *user,
                         lf_err *err)
{
    if (!b->ops->capture_begin || !c->ran) {
        int rc = issue(user, err);
        c->ran = rc == 0;
        return rc;
    }
    int rc = c->graph ? 0 : record(b, c, issue, user, err);
    return rc != 0 ? rc : b->ops->capture_run(b, c->graph, err);
}

void lf_back_forget_captured(lf_back *b, struct lf_captured *c)
{
    if (c->graph)
        b->ops->capture_free(b, c->graph);
    *c = (struct lf_captured){0};
}
