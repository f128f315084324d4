/* SPDX-License-Identifier: Apache-2.0
 *
 * finish: a training stage is asked to end early and to take what is there. The request is one file
 * beside the attempts of the stage, published with link(2). The stage looks for it itself, on any
 * host and through any kill, so this command tells no process anything: a stage that runs ends
 * after its current step, one that does not takes its newest checkpoint when it starts next. The
 * request is void once a result is committed (lf_stage_asked). --undo takes the file away, for a
 * stage that has not found it yet.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/record/attempt.h"
#include "flow/record/record.h"
#include "flow/run/select.h"
#include "flow/sched/describe.h"

static const lf_opt finish_rows[] = {
    LF_CMD_COMMON,
    {.name = "decay",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "with schedule = wsd: let the learning rate decay first"},
    {.name = "undo",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "withdraw the request, while the stage has not found it"},
};
LF_CMD_TABLE(finish, "end a training stage early and take what is there", finish_rows);

static const lf_opt_table *table_of(const lf_cmd *c, const char *kind)
{
    for (size_t i = 0; c->tables[i] != NULL; i++)
        if (strcmp(c->tables[i]->stage, kind) == 0)
            return c->tables[i];
    return NULL;
}

static int check_kind(const lf_cmd *c, const lf_doc_stage *st, lf_err *err)
{
    const lf_opt_table *t = table_of(c, st->kind);
    lf_buf kinds;
    lf_buf_init(&kinds);
    for (size_t i = 0; c->tables[i] != NULL; i++)
        if (c->tables[i]->finishes)
            lf_buf_addf(&kinds, "%s%s", kinds.len > 0 ? ", " : "", c->tables[i]->stage);
    int rc = 0;
    if (t == NULL || !t->finishes)
        rc = lf_fail(err, LF_EINVAL,
                     "stage %s is of kind %s, which has nothing to take before its end; finish is "
                     "for stages that train: %s",
                     st->name, st->kind, kinds.data);
    lf_buf_fini(&kinds);
    return rc;
}

static int check_decay(const lf_cmd *c, const lf_doc_stage *st, lf_err *err)
{
    const char *schedule = lf_pairs_get(&st->identity, "schedule");
    if (!lf_optset_bool(c->opts, "decay") || (schedule != NULL && strcmp(schedule, "wsd") == 0))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "--decay: stage %s has no decay to let begin, which is of schedule = wsd; leave "
                   "it out",
                   st->name);
}

/* Has a start saved a step that this stage would go on from? */
static int64_t saved_step(const lf_stage_view *s)
{
    int64_t step = 0;
    for (size_t i = 0; i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        if (inc->end != NULL && inc->end->step > step &&
            lf_spec_continues(lf_attempt_of(s, inc), s->plan, NULL))
            step = inc->end->step;
    }
    return step;
}

static bool lives(const lf_stage_view *s)
{
    return s->state == LF_STATE_RUNNING || s->state == LF_STATE_UNKNOWN || s->live;
}

static int check_state(const lf_stage_view *s, lf_err *err)
{
    if (s->state == LF_STATE_DONE)
        return lf_fail(err, LF_EINVAL, "stage %s is done already%s%s", s->plan->name,
                       s->reason[0] != '\0' ? ": " : "", s->reason);
    if (s->n_attempts == 0)
        return lf_fail(err, LF_EINVAL, "stage %s has not begun: there is nothing to take",
                       s->plan->name);
    /* One that was killed has saved what its records do not know. */
    if (!lives(s) && (!s->resumable || (saved_step(s) == 0 && s->incs[s->n_incs - 1].end != NULL)))
        return lf_fail(err, LF_EINVAL,
                       "stage %s has saved no step with these settings: there is nothing to take",
                       s->plan->name);
    return 0;
}

/* Who asked for a decay may lose patience; what was asked to end at once has no time for one. One
 * that does not stand any more is replaced. */
static int publish_again(const lf_stage_view *s, const struct lf_finish_rec *f, lf_err *err)
{
    struct lf_finish_rec *was = NULL;
    const int n = (int)s->n_attempts;
    int rc = lf_finish_rec_load(&was, s->dir, n, err);
    const bool stands = rc == 0 && was != NULL && lf_stage_asked(s) == n;
    if (stands && f->decay && !was->decay)
        rc = lf_fail(err, LF_EINVAL, "stage %s is asked to end at once already", s->plan->name);
    else if (rc == 0 && (!stands || was->decay != f->decay))
        rc = lf_finish_rec_replace(s->dir, n, f, err);
    lf_finish_rec_free(was);
    return rc;
}

/* The newest attempt may have become an older one meanwhile; then it is published again. */
static int publish(const lf_cmd *c, const lf_stage_view *s, lf_err *err)
{
    char user[128];
    lf_record_user(user, sizeof user);
    const struct lf_finish_rec f = {.spec_id = s->plan->spec_id,
                                    .by = user,
                                    .t = lf_wall_s(),
                                    .decay = lf_optset_bool(c->opts, "decay")};
    lf_err e = LF_ERR_INIT;
    int rc = lf_finish_rec_publish(s->dir, (int)s->n_attempts, &f, &e);
    if (rc == LF_EEXIST)
        return publish_again(s, &f, err);
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

static int withdraw(const lf_stage_view *s, lf_err *err)
{
    if (s->state == LF_STATE_DONE)
        return lf_fail(err, LF_EINVAL, "stage %s is done already%s%s", s->plan->name,
                       s->reason[0] != '\0' ? ": " : "", s->reason);
    if (s->asked == 0)
        return lf_fail(err, LF_EINVAL,
                       "stage %s is not asked to end early: there is nothing to withdraw",
                       s->plan->name);
    return lf_finish_rec_remove(s->dir, s->asked, err);
}

static void say_undone(const lf_stage_view *s)
{
    printf("%s: the request to end early is withdrawn%s\n", s->plan->name,
           lives(s) ? "; a stage that runs looks for it after each step: has it found it, it ends "
                      "all the same, and its log says so"
                    : "");
}

static void say(const lf_cmd *c, const lf_run_view *v, const lf_stage_view *s)
{
    const bool decay = lf_optset_bool(c->opts, "decay");
    if (lives(s) && decay)
        printf("%s: asked to let its learning rate decay and then to end\n", s->plan->name);
    else if (lives(s))
        printf("%s: asked to end after its current step; what follows goes on with what is there\n",
               s->plan->name);
    else
        printf("%s: takes what it has saved when it starts next: loong-flow resume %s\n",
               s->plan->name, v->run.id);
}

static int ask_one(const lf_cmd *c, const lf_stage_view *s, lf_err *err)
{
    if (lf_optset_bool(c->opts, "undo"))
        return withdraw(s, err);
    int rc = check_decay(c, s->plan, err);
    if (rc == 0)
        rc = check_state(s, err);
    return rc == 0 ? publish(c, s, err) : rc;
}

/* All stages that the word stands for; those of a sweep's children that have nothing to end are
 * told when `tell`, and at least one has. asked: v->n flags, set where it was asked. */
static int ask_all(const lf_cmd *c, const lf_run_view *v, bool *asked, bool tell, lf_err *err)
{
    const char *word = lf_cmd_word(c, 0);
    const bool several = lf_view_stage(v, word) == NULL;
    size_t n = 0;
    int rc = lf_select_named(asked, v, word, err);
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        lf_err e = LF_ERR_INIT;
        if (!asked[i])
            continue;
        if (n == 0 && (rc = check_kind(c, v->stages[i].plan, err)) < 0)
            break;
        const int one = ask_one(c, &v->stages[i], &e);
        asked[i] = one == 0;
        n += asked[i];
        if (one < 0 && (!several || one != LF_EINVAL))
            rc = lf_fail(err, one, "%s", e.text);
        else if (one < 0 && tell)
            lf_say_err("loong-flow finish: %s\n", e.text);
    }
    return rc < 0 || n > 0 ? rc
                           : lf_fail(err, LF_EINVAL, "no stage %s@N has anything to %s", word,
                                     lf_optset_bool(c->opts, "undo") ? "withdraw" : "end");
}

/* *again: another attempt began before the request was there. */
static int look_again(const lf_cmd *c, const lf_run_view *v, const bool *asked, bool *again,
                      lf_err *err)
{
    const bool undo = lf_optset_bool(c->opts, "undo");
    lf_run_view after;
    int rc = lf_view_load_copy(&after, &v->run, err);
    if (rc < 0)
        return rc;
    *again = false;
    for (size_t i = 0; !undo && i < v->n; i++)
        *again = *again || (asked[i] && after.stages[i].state != LF_STATE_DONE &&
                            after.stages[i].n_attempts > v->stages[i].n_attempts);
    if (!*again && c->json)
        rc = lf_cmd_print_run(&after, err);
    for (size_t i = 0; !*again && !c->json && i < v->n; i++)
        if (asked[i] && undo)
            say_undone(&v->stages[i]);
        else if (asked[i])
            say(c, v, &v->stages[i]);
    lf_view_fini(&after);
    return rc;
}

static int ask(lf_cmd *c, const lf_project *p, bool tell, bool *again, lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_find(&v, p, lf_cmd_word(c, 1), err);
    if (rc < 0)
        return rc;
    bool *asked = lf_calloc(v.n + 1, sizeof *asked, err);
    rc = asked == NULL ? LF_ENOMEM : ask_all(c, &v, asked, tell, err);
    if (rc == 0)
        rc = look_again(c, &v, asked, again, err);
    free(asked);
    lf_view_fini(&v);
    return rc;
}

static int run_finish(lf_cmd *c, lf_err *err)
{
    lf_project p;
    bool again = true, tell = true;
    lf_log_init("loong-flow", 2);
    if (lf_cmd_word(c, 0) == NULL)
        return lf_fail(err, LF_EINVAL, "name the stage that shall end: loong-flow finish STAGE");
    if (lf_optset_bool(c->opts, "undo") && lf_optset_bool(c->opts, "decay"))
        return lf_fail(err, LF_EINVAL, "--undo withdraws any request; leave --decay out");
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    for (; rc == 0 && again; tell = false)
        rc = ask(c, &p, tell, &again, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_finish = {
    .table = &finish_table, .words = "STAGE [RUN]", .max_words = 2, .run = run_finish};
