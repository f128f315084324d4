/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of watch.h over a table of heartbeats, and the line that says who is to blame.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/watch_priv.h"

/* Calls that a line names with their ranks. */
enum { CALLS_SHOWN = 3 };

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

/* ---- who waits, and for what ---- */

static bool same_call(const struct lf_beat *a, const struct lf_beat *b)
{
    return a->id == b->id && a->lead == b->lead && a->seq == b->seq &&
           strncmp(a->what, b->what, sizeof a->what) == 0;
}

/* The ranks that wait while rank r does not come. */
struct wait {
    const struct lf_beat_row *row;
    int n, r;
};

static bool is_waiting(const struct wait *w, int k)
{
    return k != w->r && !w->row[k].lost && w->row[k].beat.state == LF_BEAT_COLLECTIVE;
}

/* How likely it is rank r that k waits for: 2 when k's message says so, 1 in a collective, which
 * may be that of other ranks, 0 for a message of another rank. */
static int likely(const struct wait *w, int k)
{
    const char *what = w->row[k].beat.what, *rank = strstr(what, " rank ");
    return !rank ? 1 : strtol(rank + 6, NULL, 10) == w->r ? 2 : 0;
}

/* Of two that wait: the likelier one, and then the one that has waited longer, since others may
 * wait for it in turn. */
static bool before(const struct wait *w, int a, int b)
{
    const int likelier = likely(w, a) - likely(w, b);
    const double longer = w->row[a].beat.since_s - w->row[b].beat.since_s;
    return likelier != 0 ? likelier > 0 : longer != 0 ? longer > 0 : a < b;
}

/* How many wait in the call of rank k; 0 unless k is the first of them. */
static int count_call(const struct wait *w, int k)
{
    int count = 1;
    for (int j = 0; j < w->n; j++) {
        if (j == k || !is_waiting(w, j) || !same_call(&w->row[j].beat, &w->row[k].beat))
            continue;
        if (before(w, j, k))
            return 0;
        count++;
    }
    return count;
}

/* The first of the next call behind that of rank `last` (-1: of all), or -1. */
static int next_call(const struct wait *w, int last, int *count)
{
    int first = -1;
    for (int k = 0; k < w->n; k++) {
        if (!is_waiting(w, k) || (last >= 0 && !before(w, last, k)) ||
            (first >= 0 && before(w, first, k)))
            continue;
        const int all = count_call(w, k);
        if (all == 0)
            continue;
        first = k;
        *count = all;
    }
    return first;
}

static void add_count(struct line *l, int first, int count)
{
    add(l, "rank %d", first);
    if (count > 1)
        add(l, " and %d more", count - 1);
    add(l, " wait%s", count > 1 ? "" : "s");
}

/* "; missing in all_reduce #12, where rank 0 and 2 more wait; rank 5 waits in recv from rank 0":
 * calls in the order of before(). */
static void add_waiters(struct line *l, const struct lf_beat_row *row, int n, int r)
{
    const struct wait w = {row, n, r};
    int count = 0, rest = 0;
    for (int k = 0; k < n; k++)
        rest += is_waiting(&w, k);
    int k = next_call(&w, -1, &count);
    for (int i = 0; i < CALLS_SHOWN && k >= 0; i++) {
        add(l, "; ");
        if (i == 0 && likely(&w, k) > 0) {
            add(l, "missing ");
            add_where(l, &row[k].beat);
            add(l, ", where ");
            add_count(l, k, count);
        } else {
            add_count(l, k, count);
            add(l, " ");
            add_where(l, &row[k].beat);
        }
        rest -= count;
        k = next_call(&w, k, &count);
    }
    if (rest > 0)
        add(l, "; %d more wait for others", rest);
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
            same = same || same_call(&row[k].beat, &row[r].beat);
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
