/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of watch.h over a table of heartbeats, and the line that says who is to blame.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/comm/watch_priv.h"

struct line {
    char *text;
    size_t cap, len;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = l->len < l->cap ? vsnprintf(l->text + l->len, l->cap - l->len, fmt, ap) : 0;
    va_end(ap);
    l->len += n > 0 ? (size_t)n : 0;
}

static void add_collective(struct line *l, const struct lf_beat *b)
{
    if (!b->seq) {
        add(l, "its first collective");
        return;
    }
    add(l, "%.47s #%" PRIu64, b->what, b->seq);
    if (b->id)
        add(l, " of communicator %u", (unsigned)b->id);
}

static void add_where(struct line *l, const struct lf_beat *b)
{
    switch (b->state) {
    case LF_BEAT_COLLECTIVE:
        add(l, "in ");
        add_collective(l, b);
        break;
    case LF_BEAT_PHASE:
        add(l, "in phase \"%.47s\"", b->what);
        break;
    default:
        add(l, b->seq ? "after " : "before ");
        add_collective(l, b);
        break;
    }
    if (b->step >= 0)
        add(l, ", step %" PRId64, b->step);
    if (b->step >= 0 && b->micro)
        add(l, ", micro-batch %" PRId32 " %s", b->micro, b->backward ? "backward" : "forward");
}

void lf_watch_where(const struct lf_beat *b, char *text, size_t cap)
{
    struct line l = {text, cap, 0};
    text[0] = '\0';
    add_where(&l, b);
}

static void add_rank(struct line *l, const struct lf_comm_peer *peer, int r)
{
    add(l, "rank %d (host %.63s, pid %" PRId64 ")", r, peer[r].host, peer[r].pid);
}

/* "; rank 0 and 2 more wait in all_reduce #12": the collective that r is missing in, as the one who
 * waits longest knows it. */
static void add_waiters(struct line *l, const struct lf_beat_row *row, int n, int r)
{
    int first = -1, count = 0;
    for (int k = 0; k < n; k++) {
        if (k == r || row[k].lost || row[k].beat.state != LF_BEAT_COLLECTIVE)
            continue;
        count++;
        if (first < 0 || row[k].beat.since_s > row[first].beat.since_s)
            first = k;
    }
    if (first < 0)
        return;
    add(l, "; missing ");
    add_where(l, &row[first].beat);
    add(l, ", where rank %d", first);
    if (count > 1)
        add(l, " and %d more", count - 1);
    add(l, " wait%s", count > 1 ? "" : "s");
}

static int blame(struct line *l, const struct lf_beat_row *row, const struct lf_comm_peer *peer,
                 int n, int r, const char *what)
{
    add_rank(l, peer, r);
    add(l, " %s, ", what);
    add_where(l, &row[r].beat);
    add_waiters(l, row, n, r);
    return r;
}

/* One that cannot be asked any more: what it last said may be old. */
static int mourn(struct line *l, const struct lf_beat_row *row, const struct lf_comm_peer *peer,
                 int n, int r, const char *what)
{
    add_rank(l, peer, r);
    add(l, " %s", what);
    add_waiters(l, row, n, r);
    add(l, "; %.1f s ago it was ", row[r].unheard_s);
    add_where(l, &row[r].beat);
    return r;
}

static bool in_phase(const struct lf_beat *b)
{
    return b->state == LF_BEAT_PHASE && (b->limit_s <= 0 || b->since_s < b->limit_s);
}

/* Nobody computes and nothing moves. */
static int deadlock(struct line *l, const struct lf_beat_row *row, const struct lf_comm_peer *peer,
                    int n, int longest)
{
    add(l, "all ranks wait and no byte has moved for %.0f s: ", row[longest].beat.still_s);
    for (int r = 0, shown = 0; r < n && shown < 8; r++) {
        bool same = false;
        for (int k = 0; k < r; k++)
            same =
                same || (row[k].beat.id == row[r].beat.id && row[k].beat.seq == row[r].beat.seq &&
                         strncmp(row[k].beat.what, row[r].beat.what, sizeof row[r].beat.what) == 0);
        if (same)
            continue;
        add(l, "%s", shown++ ? "; " : "");
        add_rank(l, peer, r);
        add(l, " ");
        add_where(l, &row[r].beat);
    }
    return longest;
}

/* Rules 1 and 2: who cannot be heard. */
static int unheard(struct line *l, const struct lf_beat_row *row, const struct lf_comm_peer *peer,
                   int n, double patience_s)
{
    char what[80];
    for (int r = 0; r < n; r++) {
        if (row[r].lost)
            return mourn(l, row, peer, n, r, "died");
        if (row[r].beat.state != LF_BEAT_GONE && row[r].unheard_s > patience_s / 2) {
            snprintf(what, sizeof what,
                     "has not been heard of for %.0f s (stopped, or its node is)",
                     row[r].unheard_s);
            return mourn(l, row, peer, n, r, what);
        }
    }
    return -1;
}

/* Rule 3: who keeps others waiting. */
static int late(struct line *l, const struct lf_beat_row *row, const struct lf_comm_peer *peer,
                int n, double patience_s)
{
    char what[80];
    int waits = -1, computes = -1, gone = -1, busy = 0;
    for (int r = 0; r < n; r++) {
        const struct lf_beat *b = &row[r].beat;
        if (in_phase(b))
            return -1; /* whoever waits may wait for this one, by way of others */
        if (b->state == LF_BEAT_GONE) {
            gone = gone < 0 ? r : gone;
        } else if (b->state == LF_BEAT_COLLECTIVE) {
            busy += b->still_s <= patience_s;
            if (b->still_s > patience_s && (waits < 0 || b->still_s > row[waits].beat.still_s))
                waits = r;
        } else {
            busy += b->since_s <= patience_s;
            if (b->since_s > patience_s &&
                (computes < 0 || b->since_s > row[computes].beat.since_s))
                computes = r;
        }
    }
    if (waits < 0)
        return -1;
    if (computes >= 0) {
        snprintf(what, sizeof what, "hangs: %s for %.0f s",
                 row[computes].beat.state == LF_BEAT_PHASE ? "beyond the limit of its phase"
                                                           : "computing",
                 row[computes].beat.since_s);
        return blame(l, row, peer, n, computes, what);
    }
    if (busy) /* somebody gets on; others may wait for it by way of others */
        return -1;
    if (gone >= 0)
        return blame(l, row, peer, n, gone, "has ended its work");
    return deadlock(l, row, peer, n, waits);
}

int lf_watch_judge(const struct lf_beat_row *row, const struct lf_comm_peer *peer, int n,
                   double patience_s, char *text, size_t cap)
{
    struct line l = {text, cap, 0};
    text[0] = '\0';
    int r = unheard(&l, row, peer, n, patience_s);
    return r >= 0 ? r : late(&l, row, peer, n, patience_s);
}
