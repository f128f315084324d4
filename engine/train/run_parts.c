/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that all ranks write, each its part (store/ckpt.h, several writers). A save goes
 * through these, and every rank enters each at the same exchange:
 *
 *   WRITING    the writers of all ranks work in the background and do not talk
 *   GATHERING  no rank writes any more; their reports, a receipt or why there is none, go to rank 0
 *              beside the next step, and a thread of rank 0 publishes, or discards what there is
 *   IDLE       rank 0 has told how it ended
 *
 * What ranks tell each other for that is two numbers of lf_run_look, which every step has. A save
 * that fails costs the run nothing but the checkpoint: rank 0 says which rank failed and why, and
 * the run goes on. Where the checkpoint is needed (the end, a stop) it is waited for, and then such
 * a failure is one of the run.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/fence.h"
#include "engine/base/id.h"
#include "engine/base/sys.h"
#include "engine/train/run_priv.h"

enum phase { IDLE, WRITING, GATHERING };
/* How a save ended. BROKEN: it is published, but what follows failed. */
enum outcome { NOT_YET, SAVED, NOT_SAVED, SUPERSEDED, BROKEN };

struct lf_parts {
    const lf_ckpt_entry *tensors; /* of the whole model; rank 0 */
    size_t n_tensors;
    lf_ckpt_writer *writer; /* of this rank's part */
    enum phase phase;
    double t0, snapshot_s;

    /* WRITING */
    bool settled;     /* this rank's part is durable, or why it is not is known */
    lf_err own;       /* why */
    lf_buf complaint; /* the report of a part that failed: "!", then the text */

    /* GATHERING */
    size_t longest;        /* of all reports, with NUL */
    char *mine, *all;      /* [longest]; rank 0: [ranks * longest] */
    size_t *counts, *from; /* [ranks] of the exchange */
    lf_comm_req req;

    /* rank 0 */
    char *dir;
    json_t *state;
    const char **receipts; /* [ranks] */
    pthread_t thread;
    bool publishing;      /* the thread is to be joined */
    atomic_bool done;     /* it has ended */
    enum outcome outcome; /* what it says */
    lf_ckpt_result result;
    lf_err err;
};

/* ---- opening and closing ---- */

/* Equal on all ranks, another one after each start. */
static int share_run_id(lf_run *r, int rc, uint64_t *id, lf_err *err)
{
    *id = 0;
    if (rc == 0 && lf_run_first(r))
        rc = lf_random_bytes(id, sizeof *id, err);
    rc = lf_run_agree(r, rc, err);
    return rc != 0 ? rc : lf_comm_broadcast(r->comm, id, sizeof *id, 0, err);
}

static int make_parts(lf_run *r, const struct lf_run_tensors *t, lf_err *err)
{
    const size_t ranks = (size_t)r->ranks;
    struct lf_parts *p = r->parts = lf_calloc(1, sizeof *p, err);
    lf_ckpt_entry *e = lf_arena_alloc(r->arena, t->n_all + 1, sizeof *e, err);
    if (!p || !e)
        return LF_ENOMEM;
    lf_buf_init(&p->complaint);
    for (size_t i = 0; i < t->n_all; i++) {
        const lf_ckpt_tensor *from = &t->all[i];
        e[i] = (lf_ckpt_entry){
            .name = from->name, .kind = from->kind, .dtype = from->dtype, .ndim = from->ndim};
        memcpy(e[i].shape, from->shape, sizeof e[i].shape);
    }
    p->tensors = e;
    p->n_tensors = t->n_all;
    p->counts = lf_arena_alloc(r->arena, ranks, sizeof *p->counts, err);
    p->from = lf_arena_alloc(r->arena, ranks, sizeof *p->from, err);
    p->receipts = lf_arena_alloc(r->arena, ranks, sizeof *p->receipts, err);
    return p->counts && p->from && p->receipts ? 0 : LF_ENOMEM;
}

int lf_run_parts_open(lf_run *r, const struct lf_run_tensors *t, int rc, lf_err *err)
{
    uint64_t id;
    if (rc == 0)
        rc = make_parts(r, t, err);
    rc = share_run_id(r, rc, &id, err);
    if (rc == 0)
        rc = lf_run_snapshot_open(r, t->own, t->n_own, t->snapshot, err);
    if (rc != 0)
        return rc;
    const lf_ckpt_options o = {.arena = r->snapshot,
                               .threads = lf_run_save_threads(r),
                               .part = r->rank,
                               .parts = r->ranks,
                               .run = id};
    return lf_ckpt_writer_create(&r->parts->writer, t->own, t->n_own, &o, err);
}

static void free_reports(struct lf_parts *p)
{
    free(p->mine);
    free(p->all);
    p->mine = p->all = NULL;
}

/* Back to where no save is under way. */
static void forget(lf_run *r)
{
    struct lf_parts *p = r->parts;
    free_reports(p);
    free(p->dir);
    json_decref(p->state);
    p->dir = NULL;
    p->state = NULL;
    p->phase = IDLE;
    p->outcome = NOT_YET;
    r->saving = false;
}

void lf_run_parts_close(lf_run *r)
{
    struct lf_parts *p = r->parts;
    if (!p)
        return;
    lf_ckpt_writer_destroy(p->writer);
    if (p->publishing)
        pthread_join(p->thread, NULL);
    if (p->req.flight) /* after a failure: the communicator may still read and write these */
        p->mine = p->all = NULL;
    forget(r);
    lf_buf_fini(&p->complaint);
    free(p);
    r->parts = NULL;
}

/* ---- publishing: rank 0 ---- */

/* The reports, as receipts. A report that is none says why there is no checkpoint. */
static int take_reports(lf_run *r, lf_err *err)
{
    struct lf_parts *p = r->parts;
    for (int k = 0; k < r->ranks; k++) {
        p->receipts[k] = p->all + (size_t)k * p->longest;
        if (p->receipts[k][0] == '!')
            return lf_fail(err, LF_EIO, "rank %d (%s): %s", k, lf_comm_peer_host(r->comm, k),
                           p->receipts[k] + 1);
    }
    return 0;
}

/* Nothing of what there is will be a checkpoint. Left-overs stay where removing fails: the next
 * start, or a save of the same step, removes them. */
static void give_up(struct lf_parts *p, int rc)
{
    p->outcome = rc == LF_EBUSY && lf_fence_closed() ? SUPERSEDED : NOT_SAVED;
    (void)lf_ckpt_discard(p->dir, NULL);
}

static void *publish(void *arg)
{
    lf_run *r = arg;
    struct lf_parts *p = r->parts;
    const struct lf_ckpt_parts parts = {.receipts = p->receipts,
                                        .n = (size_t)r->ranks,
                                        .state = p->state,
                                        .tensors = p->tensors,
                                        .n_tensors = p->n_tensors,
                                        .threads = lf_run_save_threads(r)};
    int rc = take_reports(r, &p->err);
    if (rc == 0)
        rc = lf_ckpt_publish(p->dir, &parts, &p->result, &p->err);
    if (rc != 0)
        give_up(p, rc);
    else
        p->outcome = lf_ckpt_retain(r->c.out, r->c.keep, r->c.keep_every, &p->err) ? BROKEN : SAVED;
    p->result.write_s = lf_now_s() - p->t0 - p->snapshot_s;
    atomic_store(&p->done, true);
    return NULL;
}

/* Signals stay the main thread's. */
static void start_publishing(lf_run *r)
{
    struct lf_parts *p = r->parts;
    sigset_t all, old;
    lf_err_clear(&p->err);
    p->outcome = NOT_YET;
    p->result = (lf_ckpt_result){0};
    atomic_store(&p->done, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p->publishing = pthread_create(&p->thread, NULL, publish, r) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!p->publishing)
        publish(r);
}

/* ---- the phases ---- */

/* This rank's part, when its writer has ended. */
static void settle(lf_run *r)
{
    struct lf_parts *p = r->parts;
    const int rc = lf_ckpt_save_wait(p->writer, NULL, &p->own);
    p->settled = true;
    if (rc < 0)
        lf_buf_addf(&p->complaint, "!%s", p->own.text);
}

static const char *report_of(const struct lf_parts *p)
{
    return p->complaint.failed ? "!out of memory"
           : p->complaint.len  ? p->complaint.data
                               : lf_ckpt_save_receipt(p->writer);
}

/* All parts are settled: the reports begin to go to rank 0. Collective. */
static int gather(lf_run *r, size_t longest, lf_err *err)
{
    struct lf_parts *p = r->parts;
    const char *report = report_of(p);
    p->longest = longest;
    p->mine = lf_calloc(longest, 1, err);
    p->all = lf_run_first(r) ? lf_calloc((size_t)r->ranks, longest, err) : NULL;
    int rc = lf_run_agree(r, p->mine && (p->all || !lf_run_first(r)) ? 0 : LF_ENOMEM, err);
    if (rc != 0)
        return rc;
    memcpy(p->mine, report, strlen(report));
    memset(p->counts, 0, (size_t)r->ranks * sizeof *p->counts);
    p->counts[0] = longest;
    for (int k = 0; k < r->ranks; k++)
        p->from[k] = lf_run_first(r) ? longest : 0;
    p->phase = GATHERING;
    return lf_comm_start(r->comm,
                         &(struct lf_comm_call){.what = LF_COMM_ALL_TO_ALL,
                                                .in = p->mine,
                                                .out = p->all,
                                                .counts = p->counts,
                                                .from = p->from},
                         &p->req, err);
}

/* Moves on what this rank alone can move on; wait: until there is nothing left of it. */
static int go_on(lf_run *r, bool wait, lf_err *err)
{
    struct lf_parts *p = r->parts;
    bool here = false;
    int rc = 0;
    if (p->phase == WRITING && !p->settled && (wait || lf_ckpt_save_idle(p->writer)))
        settle(r);
    if (p->phase != GATHERING)
        return 0;
    if (p->req.flight) {
        rc = wait ? lf_comm_wait(&p->req, err) : lf_comm_test(&p->req, &here, err);
        if (rc == 0 && (wait || here) && lf_run_first(r))
            start_publishing(r);
    }
    if (rc == 0 && p->publishing && (wait || atomic_load(&p->done))) {
        pthread_join(p->thread, NULL);
        p->publishing = false;
    }
    return rc;
}

/* The save has ended so, on all ranks. needed: the run cannot do without. */
static int finish(lf_run *r, enum outcome how, bool needed, lf_err *err)
{
    struct lf_parts *p = r->parts;
    const lf_err why = p->err;
    lf_ckpt_result res = p->result;
    res.snapshot_s = p->snapshot_s;
    forget(r);
    switch (how) {
    case SAVED:
        lf_run_saved(r, &res);
        return 0;
    case SUPERSEDED:
        r->failed_step = r->saving_step;
        return lf_fail(err, LF_EINTR, "nothing is saved: a newer start of this stage has begun");
    case BROKEN:
        r->saved_step = r->saving_step;
        return lf_run_first(r) ? lf_fail(err, why.rc, "checkpoint: %s", why.text)
                               : lf_fail(err, LF_ECOMM, "rank 0 (%s) could not go on",
                                         lf_comm_peer_host(r->comm, 0));
    default:
        return lf_run_not_saved(r, needed, &why, err);
    }
}

int lf_run_parts_tell(lf_run *r, int64_t v[2], lf_err *err)
{
    struct lf_parts *p = r->parts;
    v[0] = v[1] = 0;
    if (!p || p->phase == IDLE)
        return 0;
    const int rc = go_on(r, false, err);
    if (p->phase == WRITING) {
        v[0] = !p->settled;
        v[1] = p->settled ? (int64_t)strlen(report_of(p)) + 1 : 0;
    } else if (!p->req.flight && !p->publishing) {
        v[0] = p->outcome;
    }
    return rc;
}

int lf_run_parts_hear(lf_run *r, const int64_t v[2], lf_err *err)
{
    struct lf_parts *p = r->parts;
    if (!p || p->phase == IDLE)
        return 0;
    if (p->phase == WRITING)
        return v[0] ? 0 : gather(r, (size_t)v[1], err);
    return v[0] ? finish(r, (enum outcome)v[0], false, err) : 0;
}

int lf_run_parts_wait(lf_run *r, bool needed, lf_err *err)
{
    struct lf_parts *p = r->parts;
    int64_t how = 0;
    int rc = 0;
    if (p->phase == IDLE)
        return 0;
    lf_run_phase(r, "saving");
    if (p->phase == WRITING) {
        (void)go_on(r, true, err);
        int64_t longest = (int64_t)strlen(report_of(p)) + 1;
        rc = lf_comm_agree_max(r->comm, &longest, err);
        if (rc == 0)
            rc = gather(r, (size_t)longest, err);
    }
    if (rc == 0)
        rc = go_on(r, true, err);
    if (rc != 0)
        return rc;
    how = p->outcome;
    rc = lf_comm_agree_max(r->comm, &how, err);
    return rc != 0 ? rc : finish(r, (enum outcome)how, needed, err);
}

/* ---- beginning ---- */

int lf_run_parts_begin(lf_run *r, int rc, const char *dir, const json_t *state, lf_err *err)
{
    struct lf_parts *p = r->parts;
    char *to = NULL;
    rc = lf_run_agree(r, rc, err);
    if (rc == 0)
        rc = lf_run_parts_wait(r, false, err);
    lf_run_phase(r, "saving");
    if (rc == 0 && lf_run_first(r)) {
        rc = dir ? lf_run_may_save(r, dir, err) : 0;
        if (rc == 0 && dir && (!(to = lf_strdup(dir, err)) || !(p->state = json_deep_copy(state))))
            rc = LF_ENOMEM;
    }
    rc = lf_run_agree(r, rc, err);
    if (rc == 0)
        rc = lf_run_share_text(r, &to, err);
    p->dir = to;
    if (rc != 0 || !to) {
        forget(r);
        return rc;
    }
    struct lf_profile_mark m = lf_profile_begin(r->c.profile);
    p->t0 = r->save_t0 = r->last_save = lf_now_s();
    lf_buf_clear(&p->complaint);
    lf_err_clear(&p->own);
    p->settled = lf_ckpt_save_begin(p->writer, to, state, &p->own) != 0;
    if (p->settled) {
        lf_buf_addf(&p->complaint, "!%s", p->own.text);
        (void)lf_ckpt_save_wait(p->writer, NULL, NULL); /* or the next save hears of it */
    }
    p->snapshot_s = lf_now_s() - p->t0;
    lf_profile_end(r->c.profile, LF_LANE_STEP, "snapshot", m);
    p->phase = WRITING;
    r->saving = true;
    r->saving_step = json_integer_value(json_object_get(state, "step"));
    return 0;
}
