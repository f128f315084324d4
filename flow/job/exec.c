/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapper's course from the first look to the end record.
 */
#include "config.h"

#include "flow/job/exec.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/sys.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/who.h"

static int start_event(lf_exec *x, lf_err *err)
{
    const lf_origin from = lf_exec_origin(x);
    lf_proc_id me;
    int rc = lf_proc_self(&me, err);
    if (rc == 0)
        rc = lf_event_start(&from, &me, err);
    for (size_t i = 0; rc == 0 && i < x->n_inputs; i++) {
        const char *p = x->inputs[i].path;
        size_t n = strlen(x->run.data);
        if (strncmp(p, x->run.data, n) == 0 && p[n] == '/')
            p += n + 1; /* inside the data root: relative to it */
        rc = lf_event_input(&from, &x->inputs[i], p, err);
    }
    return rc;
}

lf_origin lf_exec_origin(const lf_exec *x)
{
    return (lf_origin){.dir = x->dir,
                       .run = x->run.id,
                       .stage = x->args.stage,
                       .attempt = x->args.attempt,
                       .epoch = x->epoch};
}

/* It never ran: what it needs went away between the check and now, or it could not be started. */
static void never_ran(lf_exec *x, lf_end_class *c, const lf_err *e)
{
    const char *cls = lf_cause_class(e);
    memset(c, 0, sizeof *c);
    c->state = "failed";
    c->cls = cls[0] != '\0' ? cls : "launch";
    snprintf(c->reason, sizeof c->reason, "%.390s", e->text);
    lf_text_clean(c->reason);
    x->ev.exit_code = 1;
}

static int run_claimed(lf_exec *x, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    lf_end_class c;
    int rc = lf_exec_prepare(x, &e);
    if (rc == 0)
        rc = start_event(x, &e);
    if (rc == 0)
        rc = lf_exec_child(x, &e);
    if (rc < 0) {
        never_ran(x, &c, &e);
    } else {
        lf_classify(&c, &x->ev);
        if (strcmp(c.state, "done") == 0)
            lf_exec_commit(x, &c);
        else
            lf_exec_suspect(x, &c);
    }
    return lf_exec_end(x, &c, err);
}

/* Blocked for the whole life of the wrapper: nothing ends it between two steps, a stop asked for
 * early is seen by the first sigtimedwait, and nothing is ever done from a handler. */
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        signal(
            all[i],
            /* job scripts ignore what would end them before this point; ignored is lost, blocked is
             * kept */
            SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
}

int lf_exec_main(const lf_exec_args *args, lf_err *err)
{
    lf_exec x;
    memset(&x, 0, sizeof x);
    x.args = *args;
    x.t_start = lf_wall_s();
    block_signals();
    lf_err e = LF_ERR_INIT;
    int code = 1, rc = lf_exec_open(&x, &e);
    if (rc == 0)
        rc = lf_exec_may_start(&x, &code, &e);
    if (rc == 1) {
        rc = lf_exec_claim(&x, &e);
        if (rc == LF_EEXIST) { /* another link committed it just now */
            lf_err_clear(&e);
            code = 0;
        } else if (rc == 0) {
            code = rc = run_claimed(&x, &e);
        }
    }
    if (rc < 0 && rc != LF_EEXIST)
        code = rc == LF_EBUSY ? LF_EXEC_GIVEN_UP : 1;
    if (e.rc != 0)
        lf_fail(err, e.rc, "%s", e.text);
    lf_run_fini(&x.run);
    lf_attempt_rec_free(x.attempt);
    lf_resources_fini(&x.resources);
    lf_exec_prepare_fini(&x);
    lf_launch_plan_fini(&x.launch);
    lf_cut_short_free(x.ended);
    free(x.stage_dir);
    free(x.dir);
    free(x.log_tail);
    return code;
}
