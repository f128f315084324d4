/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of policies, and what a stage's history makes of it.
 */
#include "config.h"

#include "flow/run/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/record/record.h"

#define COUNT(a)       (sizeof(a) / sizeof((a)[0]))
#define ALL            (LF_ACTOR_WRAPPER | LF_ACTOR_LINK | LF_ACTOR_COMMAND)
#define STALL_SEGMENTS 2 /* defaults of the resource keys */
#define RETRIES        2

static const lf_policy table[] = {
    {"", LF_POLICY_NONE, 0, 0, "start", "", false},
    {"timeout", LF_POLICY_TIME, ALL, 75, "wait while it goes on",
     "resume continues from the last checkpoint; raise time_limit when none was reached", false},
    {"preempted", LF_POLICY_CONTINUE, ALL, 75, "wait while it goes on",
     "resume continues from the last checkpoint", false},
    {"rung", LF_POLICY_CONTINUE, LF_ACTOR_COMMAND, 75, "wait while it goes on",
     "it goes on when its sweep has decided so", false},
    {"superseded", LF_POLICY_NONE, 0, 77, "wait for the newer start", "", false},
    {"lost", LF_POLICY_RETRY, LF_ACTOR_LINK | LF_ACTOR_COMMAND, 75, "wait while a link goes on",
     "resume continues it", false},
    {"node", LF_POLICY_NODE, ALL, 75, "wait while it goes on",
     "the node is left out the next time; resume continues it", false},
    {"rank", LF_POLICY_RETRY, ALL, 75, "wait while it goes on",
     "a rank died or hung; the line names it, its host and what it was doing. resume tries again",
     false},
    {"oom", LF_POLICY_MEMORY, LF_ACTOR_WRAPPER | LF_ACTOR_COMMAND, 1, "do not start",
     "give it more memory, or a smaller micro-batch, shorter sequences or recompute = full; then "
     "resume",
     false},
    {"oom_device", LF_POLICY_STOP, 0, 1, "do not start",
     "a smaller micro-batch, shorter sequences or recompute = full; then resume", false},
    {"launch", LF_POLICY_STOP, 0, 1, "do not start",
     "the executable or its ranks did not start; run `loong-flow doctor`", false},
    {"disk", LF_POLICY_STOP, 0, 1, "do not start",
     "free space or quota in data_dir (gc shows what may go), then resume", false},
    {"filesystem", LF_POLICY_STOP, 0, 1, "do not start",
     "look at the filesystem and your permissions or credentials on it, then resume", false},
    {"diverged", LF_POLICY_STOP, 0, 1, "do not start",
     "lower the learning rate, lengthen the warm-up or skip the batch; the batch and the weights "
     "are kept",
     false},
    {"bad_input", LF_POLICY_STOP, 0, 1, "do not start",
     "look at the input named in the message, then resume", true},
    {"config", LF_POLICY_STOP, 0, 1, "do not start",
     "a setting does not fit the data, the model or this machine: change what the message names; "
     "as it is, it ends so every time",
     true},
    {"usage", LF_POLICY_STOP, 0, 1, "do not start",
     "a setting is wrong for this stage; edit the pipeline, then resume", true},
    {"crash", LF_POLICY_STOP, 0, 1, "do not start",
     "a bug of the stage: please report it with its log", false},
    {"stalled", LF_POLICY_STOP, 0, 1, "do not start",
     "segments end before a step is saved: raise time_limit, or save more often (save_time), then "
     "resume",
     false},
    {"capped", LF_POLICY_STOP, 0, 1, "do not start",
     "raise max_segments or max_walltime when it may go on, then resume", false},
    {"cancelled", LF_POLICY_STOP, 0, 77, "do not start", "resume continues it", false},
    {"unknown", LF_POLICY_STOP, 0, 1, "do not start", "look at the log; resume tries again", false},
};

const lf_policy *lf_policy_table(size_t *n)
{
    *n = COUNT(table);
    return table;
}

const lf_policy *lf_policy_of(const char *cls)
{
    for (size_t i = 0; cls != NULL && i < COUNT(table); i++)
        if (strcmp(table[i].cls, cls) == 0)
            return &table[i];
    return &table[COUNT(table) - 1];
}

const char *lf_policy_act_name(enum lf_policy_act act)
{
    static const char *const names[] = {"none",      "continue",   "retry", "more memory",
                                        "more time", "other node", "stop"};
    return names[act];
}

/* ---- the history of a stage ---- */

static bool ended(const lf_start *inc)
{
    return inc->end != NULL && inc->done == NULL;
}

/* A segment of a chain that came to its end: its time was over, or it was asked to make room. One
 * that a newer start or a person ended is none, and neither is a failure. */
static bool segment(const lf_start *inc)
{
    const char *state = inc->end != NULL ? inc->end->state : NULL;
    return ended(inc) && state != NULL && strcmp(lf_inc_class(inc), "superseded") != 0 &&
           (strcmp(state, "stopped") == 0 || strcmp(lf_inc_class(inc), "timeout") == 0);
}

/* The spec of an attempt is the stage's, so what became of it says something about the next try. */
static bool counts(const lf_stage_view *s, const lf_start *inc)
{
    const struct lf_attempt_rec *a = lf_attempt_of(s, inc);
    return a != NULL && a->spec_id != NULL && lf_text_same(a->spec_id, s->plan->spec_id);
}

static const lf_start *last_end(const lf_stage_view *s)
{
    for (size_t i = s->n_incs; i-- > 0;)
        if (counts(s, &s->incs[i]))
            return ended(&s->incs[i]) ? &s->incs[i] : NULL;
    return NULL;
}

/* How many ends in a row had the class of the last one. */
static int same_in_a_row(const lf_stage_view *s, const char *cls)
{
    int n = 0;
    for (size_t i = s->n_incs; i-- > 0;) {
        const lf_start *inc = &s->incs[i];
        if (!counts(s, inc) || strcmp(lf_inc_class(inc), "superseded") == 0)
            continue;
        if (!ended(inc) || strcmp(lf_inc_class(inc), cls) != 0)
            break;
        n++;
    }
    return n;
}

/* Nodes that were blamed since the settings are what they are; each once. */
static int blamed(lf_texts *list, const lf_stage_view *s, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_incs; i++) {
        const char *host = s->incs[i].end != NULL ? s->incs[i].end->blame : NULL;
        if (host != NULL && counts(s, &s->incs[i]) && !lf_texts_has(list, host))
            rc = lf_texts_add(list, host, err);
    }
    return rc;
}

/* What a job had: as its wrapper wrote down, or, where the job ended without a word, what its
 * attempt asked for. */
static struct lf_had had_of(const lf_stage_view *s, const lf_start *inc)
{
    static const struct lf_had nothing;
    struct lf_had had = inc->end != NULL && inc->end->asked != NULL ? *inc->end->asked : nothing;
    const struct lf_attempt_rec *a = lf_attempt_of(s, inc);
    if (a != NULL && had.memory_bytes <= 0)
        had.memory_bytes = a->resources.memory_bytes.v;
    if (a != NULL && had.time_limit_s <= 0)
        had.time_limit_s = a->resources.time_limit_s.v;
    return had;
}

static int64_t times_1_5(int64_t v)
{
    return v > INT64_MAX / 3 ? INT64_MAX / 2 : v + v / 2;
}

/* 1.5 times what the last end had, unless the plan asks for that much by now; 0: the plan's own,
 * -1: the cap is reached. */
static int64_t escalate(int64_t had, int64_t planned, int64_t cap)
{
    int64_t want = times_1_5(had);
    if (had <= 0 || planned >= want)
        return 0;
    if (cap > 0 && want > cap)
        want = cap;
    return want > had ? want : planned > had ? 0 : -1;
}

static void ask_memory(lf_next *out, const lf_stage_view *s, const lf_start *last,
                       const lf_resources *res)
{
    char a[32], b[32];
    int64_t planned = s->plan->memory_bytes.v, had = had_of(s, last).memory_bytes;
    int64_t want = escalate(had > 0 ? had : planned, planned, res->memory_max.v);
    if (had <= 0 && planned <= 0) {
        out->automatic = false;
        snprintf(out->why, sizeof out->why,
                 "ran out of memory; give it a number (memory =), then resume");
    } else if (want < 0) {
        out->automatic = false;
        snprintf(out->why, sizeof out->why, "ran out of memory at %s, which is memory_max",
                 lf_fmt_bytes(a, sizeof a, (double)had));
    } else {
        out->memory_bytes = want;
        snprintf(out->why, sizeof out->why, "ran out of memory at %s: asks for %s",
                 lf_fmt_bytes(a, sizeof a, (double)(had > 0 ? had : planned)),
                 lf_fmt_bytes(b, sizeof b, (double)(want > 0 ? want : planned)));
    }
}

/* More time only where the last job saved nothing: otherwise the next segment goes on from what it
 * saved. */
static void ask_time(lf_next *out, const lf_stage_view *s, const lf_start *last,
                     const lf_resources *res)
{
    char a[32], b[32];
    const char *state = last->end->state;
    if (last->end->gained > 0 || (state != NULL && strcmp(state, "stopped") == 0)) {
        out->act = LF_POLICY_CONTINUE;
        snprintf(out->why, sizeof out->why, "its time was over: continues from what it saved");
        return;
    }
    int64_t planned = s->plan->time_limit_s.v, had = had_of(s, last).time_limit_s;
    int64_t want = escalate(had > 0 ? had : planned, planned, res->time_max.v);
    if (want < 0) {
        out->automatic = false;
        snprintf(out->why, sizeof out->why, "saved nothing within %s, which is time_max",
                 lf_fmt_duration(a, sizeof a, (double)had));
    } else {
        out->time_limit_s = want;
        snprintf(out->why, sizeof out->why, "saved nothing within %s: asks for %s",
                 lf_fmt_duration(a, sizeof a, (double)(had > 0 ? had : planned)),
                 lf_fmt_duration(b, sizeof b, (double)(want > 0 ? want : planned)));
    }
}

/* More than was planned, and the plan is still that: an earlier try had to be given it. */
static int64_t raised(int64_t had, int64_t was_planned, int64_t planned)
{
    return planned > 0 && was_planned == planned && had > planned ? had : 0;
}

/* What earlier tries had to be given stays, also when the last end was of another class (preempted
 * with 1.5 times the memory). */
static void keep_earlier(lf_next *out, const lf_stage_view *s)
{
    for (size_t i = s->n_incs; i-- > 0;) {
        const struct lf_had *h =
            counts(s, &s->incs[i]) && s->incs[i].end != NULL ? s->incs[i].end->asked : NULL;
        if (h != NULL && out->memory_bytes == 0)
            out->memory_bytes =
                raised(h->memory_bytes, h->planned_memory_bytes, s->plan->memory_bytes.v);
        if (h != NULL && out->time_limit_s == 0)
            out->time_limit_s =
                raised(h->time_limit_s, h->planned_time_limit_s, s->plan->time_limit_s.v);
    }
}

int lf_policy_next(lf_next *out, const lf_stage_view *s, lf_err *err)
{
    lf_next n;
    memset(&n, 0, sizeof n);
    n.cls = "";
    int rc = blamed(&n.exclude, s, err);
    if (rc < 0) {
        lf_next_fini(&n);
        return rc;
    }
    const lf_resources *res = &s->plan->resources;
    const lf_start *last = last_end(s);
    if (last != NULL) {
        n.cls = lf_inc_class(last);
        const lf_policy *p = lf_policy_of(n.cls);
        n.act = p->act;
        n.automatic = p->actors != 0;
        n.tries = same_in_a_row(s, n.cls);
        if (n.act == LF_POLICY_MEMORY)
            ask_memory(&n, s, last, res);
        else if (n.act == LF_POLICY_TIME)
            ask_time(&n, s, last, res);
        else if (n.act == LF_POLICY_NODE)
            snprintf(n.why, sizeof n.why, "a node failed: goes on without it");
        if (n.act != LF_POLICY_CONTINUE && n.tries > (int)lf_int_or(res->retries, RETRIES))
            n.automatic = false;
    }
    keep_earlier(&n, s);
    *out = n;
    return 0;
}

void lf_next_fini(lf_next *n)
{
    lf_texts_fini(&n->exclude);
    memset(n, 0, sizeof *n);
}

/* ---- caps ---- */

static double lasted(const lf_start *inc, double now)
{
    double from = lf_inc_begin(inc);
    double to = inc->end != NULL ? inc->end->t_end : now;
    return from > 0 && to > from ? to - from : 0;
}

void lf_chain_add_up(lf_chain_sum *out, const lf_stage_view *s, double now)
{
    lf_chain_sum c = {.step = -1};
    for (size_t i = 0; i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        if (!counts(s, inc))
            continue;
        const struct lf_claim *next = i + 1 < s->n_incs ? s->incs[i + 1].claim : NULL;
        double until = next != NULL ? next->t : now; /* died without a word */
        c.walltime_s += lasted(inc, until);
        const int64_t step = inc->end != NULL ? inc->end->step : -1;
        bool gained = step > c.step;
        if (gained)
            c.step = step;
        if ((size_t)inc->attempt != s->n_attempts)
            continue;
        c.segments++;
        /* What failed is bounded by `retries`; what was cut off says nothing; a segment that
         * stopped should have got further. */
        if (segment(inc)) /* one that says no step has none that is known: absence is no progress */
            c.stalled = gained ? 0 : c.stalled + 1;
    }
    *out = c;
}

const char *lf_chain_capped(const lf_chain_sum *sum, const lf_resources *res, char *why, size_t cap)
{
    int64_t segments = res->max_segments.v, wall = res->max_walltime.v;
    int64_t patience = lf_int_or(res->stall_segments, STALL_SEGMENTS);
    char a[32], b[32];
    if (segments > 0 && sum->segments >= segments) {
        snprintf(why, cap, "%d segments are over, and max_segments is %lld", sum->segments,
                 (long long)segments);
        return "capped";
    }
    if (wall > 0 && sum->walltime_s >= (double)wall) {
        snprintf(why, cap, "%s are used up, and max_walltime is %s",
                 lf_fmt_duration(a, sizeof a, sum->walltime_s),
                 lf_fmt_duration(b, sizeof b, (double)wall));
        return "capped";
    }
    if (patience > 0 && sum->stalled >= patience) {
        snprintf(why, cap, "no step was gained in %d segments, the furthest is %lld", sum->stalled,
                 (long long)sum->step);
        return "stalled";
    }
    return NULL;
}
