/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's voice, its stop, and what its ranks agree upon. With one rank nothing is exchanged.
 *
 * Rules that keep ranks from waiting for each other for ever:
 *   1. A failure of one rank is told in the next exchange (rc goes in, an agreed rc comes out); a
 *      rank never returns between two exchanges.
 *   2. What decides about control flow is agreed or is a function of agreed values; clocks and
 *      signals are not.
 *   3. Work of unknown length on one rank is announced (lf_comm_phase), so that the watchdog knows
 *      it from a hang.
 */
#include "engine/train/run_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/sys.h"

int lf_run_open(lf_run *r, const struct lf_run_config *c, const struct lf_train_sink *sink,
                lf_comm *comm, lf_err *err)
{
    *r = (lf_run){.c = *c,
                  .sink = sink,
                  .comm = comm ? comm->host : NULL,
                  .rank = comm ? comm->rank : 0,
                  .ranks = comm ? comm->size : 1,
                  .saving_step = -1,
                  .saved_step = -1,
                  .failed_step = -1};
    r->arena = lf_arena_create(err);
    r->history = json_array();
    if (!r->history)
        lf_fail(err, LF_ENOMEM, "history of the run: out of memory");
    return r->arena && r->history ? 0 : LF_ENOMEM;
}

void lf_run_end_writing(lf_run *r)
{
    lf_run_parts_close(r);
    lf_ckpt_writer_destroy(r->writer);
    lf_frame_writer_close(r->metrics, NULL);
    lf_copies_close(r->copies);
    lf_sample_file_close(r->samples);
    r->samples = NULL;
    r->writer = NULL;
    r->metrics = NULL;
    r->copies = NULL;
}

void lf_run_close(lf_run *r)
{
    lf_run_end_writing(r);
    lf_pages_free(r->snapshot, r->snapshot_bytes);
    json_decref(r->history);
    json_decref(r->fingerprint);
    lf_arena_destroy(r->arena);
    *r = (lf_run){0};
}

/* ---- voice ---- */

void lf_run_vlog(const lf_run *r, int level, const char *fmt, va_list ap)
{
    char text[1200];
    if (!r->sink || !r->sink->log || !lf_run_first(r))
        return;
    vsnprintf(text, sizeof(text), fmt, ap);
    r->sink->log(r->sink->user, level, text);
}

void lf_run_log(const lf_run *r, int level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    lf_run_vlog(r, level, fmt, ap);
    va_end(ap);
}

static int keep_until(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    const int64_t *last = ctx;
    char what[64];
    int64_t step = 0;
    snprintf(what, sizeof(what), "record at byte %lld", (long long)offset);
    json_t *o = lf_json_load_text(payload, n, what, err);
    int rc = o                ? lf_json_get_i64(&step, o, "step", true, what, err)
             : err && err->rc ? err->rc
                              : LF_EFORMAT;
    json_decref(o);
    return rc != 0 ? rc : step <= *last;
}

/* What earlier starts wrote beyond this step is superseded, from now on and not only from the first
 * record of a step on, which may be far behind it. */
static int tell_resumed(lf_run *r, int64_t step, lf_err *err)
{
    char text[80];
    const int n = snprintf(text, sizeof(text), "{\"step\":%lld,\"resumed\":true}", (long long)step);
    return lf_frame_append(r->metrics, text, (size_t)n, err);
}

int lf_run_metrics_open(lf_run *r, int64_t step, lf_err *err)
{
    int64_t kept = 0;
    if (!lf_run_first(r))
        return 0;
    r->copies = lf_copies_open(&r->c.copies, step, r->sink);
    if (r->c.samples && !(r->samples = lf_sample_file_open(r->c.metrics, r->c.out, step,
                                                           r->c.n_resume_from > 0, err)))
        return err && err->rc ? err->rc : LF_EIO;
    if (!r->c.metrics)
        return 0;
    int rc = lf_frame_truncate(r->c.metrics, keep_until, &step, &kept, err);
    if (rc != 0)
        return lf_err_prefix(err, "metrics %s", r->c.metrics);
    r->metrics = lf_frame_writer_open(r->c.metrics, err);
    if (!r->metrics)
        return err && err->rc ? err->rc : LF_EIO;
    return kept == 0 && r->c.n_resume_from > 0 ? tell_resumed(r, step, err) : 0;
}

int lf_run_metrics_sync(lf_run *r, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = r->metrics ? lf_frame_sync(r->metrics, &why) : 0;
    if (rc != 0)
        return lf_fail(err, rc, "metrics: %s", why.text);
    return lf_sample_file_sync(r->samples, err);
}

bool lf_run_wants_record(const lf_run *r)
{
    return r->metrics || r->copies;
}

int lf_run_record(lf_run *r, const char *record, size_t n, lf_err *err)
{
    lf_copies_record(r->copies, record, n);
    return r->metrics ? lf_frame_append(r->metrics, record, n, err) : 0;
}

int lf_run_samples(lf_run *r, const char *lines, size_t n, lf_err *err)
{
    return lf_sample_file_add(r->samples, lines, n, err);
}

/* ---- stop and clock ---- */

bool lf_run_asked_to_stop(const lf_run *r)
{
    return r->sink && r->sink->stop && r->sink->stop();
}

bool lf_run_late(const lf_run *r)
{
    return r->c.save_time_s > 0 && lf_now_s() - r->last_save >= r->c.save_time_s;
}

static enum lf_run_end asked_to_end(const lf_run *r)
{
    switch (r->sink && r->sink->finish ? r->sink->finish() : LF_ENDING_NO) {
    case LF_ENDING_NO:
        return LF_END_NOT;
    case LF_ENDING_DECAY:
        return LF_END_DECAY;
    case LF_ENDING_NOW:
        return LF_END_NOW;
    }
    return LF_END_NOT;
}

int lf_run_look(lf_run *r, int rc, struct lf_run_asked *a, bool *late, lf_err *err)
{
    const enum lf_run_end request = asked_to_end(r), clock = lf_run_first(r) ? a->end : LF_END_NOT;
    a->stop = lf_run_asked_to_stop(r) ||
              (r->sink && r->sink->stop_step && a->step >= r->sink->stop_step());
    a->end = request > clock ? request : clock;
    if (late)
        *late = lf_run_late(r);
    if (r->ranks <= 1)
        return rc;
    int64_t save[2];
    const int told = lf_run_parts_tell(r, save, rc != 0 ? NULL : err);
    rc = rc != 0 ? rc : told;
    int64_t v[] = {a->stop, rc != 0, late && *late && lf_run_first(r), a->end, save[0], save[1]};
    int failed = lf_comm_all_reduce(r->comm, v, 6, LF_COMM_I64, LF_COMM_MAX, rc != 0 ? NULL : err);
    if (failed)
        return rc != 0 ? rc : failed;
    a->stop = v[0] != 0;
    a->end = (enum lf_run_end)v[3];
    if (late)
        *late = v[2] != 0;
    return v[1] ? lf_comm_agree_ok(r->comm, rc, err) : lf_run_parts_hear(r, v + 4, err);
}

/* ---- ranks ---- */

int lf_run_agree(const lf_run *r, int rc, lf_err *err)
{
    return r->ranks > 1 ? lf_comm_agree_stop(r->comm, rc, err) : rc;
}

int lf_run_any(const lf_run *r, bool *flag, lf_err *err)
{
    if (r->ranks <= 1)
        return 0;
    int64_t v = *flag;
    int rc = lf_comm_agree_max(r->comm, &v, err);
    *flag = v != 0;
    return rc;
}

void lf_run_phase(const lf_run *r, const char *name)
{
    if (r->ranks > 1)
        lf_comm_phase(r->comm, name, 0);
}

int lf_run_share_text(const lf_run *r, char **text, lf_err *err)
{
    int64_t n = lf_run_first(r) && *text ? (int64_t)strlen(*text) : -1;
    int rc = lf_comm_broadcast(r->comm, &n, sizeof(n), 0, err);
    if (rc != 0)
        return rc;
    if (n < 0)
        return 0;
    if (!lf_run_first(r) && !(*text = lf_malloc((size_t)n + 1, 1, err)))
        rc = LF_ENOMEM;
    rc = lf_comm_agree_ok(r->comm, rc, err);
    if (rc == 0)
        rc = lf_comm_broadcast(r->comm, *text, (size_t)n, 0, err);
    if (rc == 0)
        (*text)[n] = '\0';
    return rc;
}

int lf_run_share_json(const lf_run *r, json_t **o, lf_err *err)
{
    char *text = NULL;
    if (r->ranks <= 1)
        return 0;
    int rc = lf_run_first(r) && *o && !(text = lf_json_dump(*o, err)) ? LF_ENOMEM : 0;
    rc = lf_comm_agree_ok(r->comm, rc, err);
    if (rc == 0)
        rc = lf_run_share_text(r, &text, err);
    if (rc == 0 && !lf_run_first(r) && text &&
        !(*o = lf_json_load_text(text, strlen(text), "what rank 0 sent", err)))
        rc = LF_EFORMAT;
    free(text);
    return lf_comm_agree_ok(r->comm, rc, err);
}

/* Words what differs between the object of rank 0 and that of another rank. */
static int tell_difference(const lf_run *r, const struct lf_comm_blobs *all, int rank, lf_err *err)
{
    const size_t *at = all->offset;
    lf_buf why;
    lf_buf_init(&why);
    json_t *a = lf_json_load_text(all->data, at[1], "rank 0", NULL);
    json_t *b = lf_json_load_text(all->data + at[rank], at[rank + 1] - at[rank], "a rank", NULL);
    const char *key;
    json_t *v;
    if (!json_is_object(a) || !json_is_object(b))
        lf_buf_addf(&why, "what rank %d sent are no settings", json_is_object(a) ? rank : 0);
    json_object_foreach(b, key, v)
    {
        json_t *was = json_object_get(a, key);
        char prefix[64];
        snprintf(prefix, sizeof(prefix), "%s ", key);
        if (json_is_object(v) && json_is_object(was))
            lf_run_differences(was, v, prefix, &why);
        else
            lf_run_difference(was, v, "", key, &why);
    }
    json_decref(a);
    json_decref(b);
    int rc = lf_fail(err, LF_EINVAL, "rank %d (%s) does not run the same as rank 0 (%s): %s", rank,
                     lf_comm_peer_host(r->comm, rank), lf_comm_peer_host(r->comm, 0),
                     why.len ? why.data : "it lacks a setting");
    lf_buf_fini(&why);
    return rc;
}

/* Threads may differ between ranks: no bit depends on how many each has, as long as it keeps them.
 * What is carried rank 0 alone has. */
static char *comparable(json_t *state)
{
    json_t *numbers = json_copy(json_object_get(state, "fingerprint"));
    char *text = NULL;
    if (numbers)
        json_object_del(numbers, "threads");
    json_object_del(state, LF_SCALES_STATE);
    if (numbers && !json_object_set(state, "fingerprint", numbers))
        text = lf_json_dump(state, NULL);
    json_decref(numbers);
    return text;
}

int lf_run_same(const lf_run *r, json_t *state, lf_err *err)
{
    struct lf_comm_blobs all = {0};
    char *text = r->ranks > 1 && state ? comparable(state) : NULL;
    json_decref(state);
    if (r->ranks <= 1)
        return 0;
    int rc =
        lf_run_agree(r, text ? 0 : lf_fail(err, LF_ENOMEM, "comparing ranks: out of memory"), err);
    if (rc == 0)
        rc = lf_comm_gather_blobs(r->comm, text, strlen(text), &all, err);
    /* By length: nothing says that another rank's bytes end with a NUL. */
    for (int k = 1; k < r->ranks && rc == 0; k++)
        if (all.offset[k + 1] - all.offset[k] != all.offset[1] ||
            memcmp(all.data, all.data + all.offset[k], all.offset[1]) != 0)
            rc = tell_difference(r, &all, k, err);
    lf_comm_blobs_fini(&all);
    free(text);
    return rc;
}
