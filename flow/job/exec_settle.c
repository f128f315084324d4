/* SPDX-License-Identifier: Apache-2.0
 *
 * Results that ended early, seen from a start: what it reads may be one, and then its stage makes
 * something else than the frozen document says; and it may be asked to make one itself.
 *
 * A job knows nothing of the other stages but what it reads. So the first result of a run that
 * ended early leaves a file in the run's directory, before its commit; only where that is does a
 * start read the whole run.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"

#define MARK "ended-early"

int lf_exec_settle_mark(const lf_exec *x, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/" MARK, x->run.dir);
    return rc == 0 && !lf_io_exists(path) ? lf_io_replace(path, "", 0, 0640, err) : rc;
}

int lf_exec_settle(lf_exec *x, lf_err *err)
{
    char path[PATH_MAX];
    lf_run_view v;
    int rc = lf_path_set(path, err, "%s/" MARK, x->run.dir);
    if (rc < 0 || !lf_fence_there(path))
        return rc;
    rc = lf_view_load_copy(&v, &x->run, err); /* settles the document, which is x's too */
    if (rc == 0)
        lf_view_fini(&v);
    return rc;
}

int lf_exec_settle_attempt(lf_exec *x, lf_err *err)
{
    struct lf_attempt_rec *a = x->attempt;
    if (!x->plan->settled.given || !lf_text_same(a->spec_id, x->plan->frozen_id))
        return 0;
    const struct lf_settled_rec s = {.spec_id = x->plan->spec_id, .spec = x->plan->settled};
    lf_err e = LF_ERR_INIT;
    int rc = lf_settled_rec_publish(x->stage_dir, a->attempt, &s, &e);
    if (rc < 0 && rc != LF_EEXIST) /* an earlier start has done so */
        return lf_fail(err, rc, "%s", e.text);
    return lf_settled_rec_lay(a, x->stage_dir, err);
}

void lf_exec_finish_path(lf_exec *x)
{
    lf_stage_view s;
    int n = 0;
    if (lf_stage_scan(&s, x->run.dir, x->plan, NULL) == 0) {
        n = lf_stage_asked(&s);
        lf_stage_scan_fini(&s);
    }
    if (lf_path_set(x->finish, NULL, "%s/" LF_FINISH_NAME, x->stage_dir,
                    n > 0 ? n : x->args.attempt) < 0)
        x->finish[0] = '\0';
}
