/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog's judgement over tables of heartbeats: who is blamed, and who is left in peace. And
 * which machines are crowded, a function of the same table of ranks.
 */
#include "config.h"

#include <string.h>

#include "engine/base/rng.h"
#include "engine/comm/watch_priv.h"
#include "tests/tap/tap.h"

enum { N = 4, ROWS = 6 };
#define PATIENCE 40.0

static struct lf_beat_row row[ROWS];
static struct lf_comm_peer peer[ROWS];
static int n_rows = N;

static void set(int r, enum lf_beat_state s, double since, double still, const char *what,
                uint64_t seq)
{
    row[r] = (struct lf_beat_row){
        .beat = {.state = s, .since_s = since, .still_s = still, .seq = seq, .step = 12}};
    strncpy(row[r].beat.what, what, sizeof row[r].beat.what - 1);
}

static void all_compute(double since)
{
    for (int r = 0; r < N; r++) {
        set(r, LF_BEAT_COMPUTE, since, since, "all_reduce", 8);
        peer[r] = (struct lf_comm_peer){.pid = 100 + r};
        memcpy(peer[r].host, "node", 5);
    }
}

static void blames(int want, const char *text, const char *name)
{
    char got[1000];
    tap_i64(lf_watch_judge(row, peer, n_rows, PATIENCE, got, sizeof got), want, name);
    if (text)
        tap_str(got, text, name);
    else
        tap_str(got, "", name);
}

static void test_peace(void)
{
    all_compute(10000);
    blames(-1, NULL, "all compute for hours: nobody waits");
    set(0, LF_BEAT_COLLECTIVE, 39, 39, "all_reduce", 9);
    blames(-1, NULL, "one waits, not for long");
    set(0, LF_BEAT_COLLECTIVE, 500, 3, "all_reduce", 9);
    blames(-1, NULL, "a long collective whose bytes move");
    set(0, LF_BEAT_COLLECTIVE, 500, 500, "all_reduce", 9);
    set(1, LF_BEAT_PHASE, 500, 500, "save", 0);
    blames(-1, NULL, "somebody saves: others may wait for it");
    row[1].beat.limit_s = 501;
    blames(-1, NULL, "within the limit of the phase");
    all_compute(10);
    set(0, LF_BEAT_COLLECTIVE, 41, 41, "all_reduce", 9);
    blames(-1, NULL, "one waits for long, but all others began something a moment ago");
    all_compute(10);
    row[2].unheard_s = 19;
    blames(-1, NULL, "a late heartbeat");
    all_compute(10);
    set(3, LF_BEAT_GONE, 500, 500, "all_reduce", 9);
    row[3].unheard_s = 500;
    blames(-1, NULL, "one has ended, nobody waits for it");
}

static void test_blame(void)
{
    all_compute(10);
    for (int r = 0; r < N; r++)
        set(r, LF_BEAT_COLLECTIVE, 50 + r, 50, "broadcast", 9);
    set(2, LF_BEAT_COMPUTE, 52, 52, "all_reduce", 8);
    blames(2,
           "rank 2 (host node, pid 102) hangs: computing for 52 s, after all_reduce #8, step 12; "
           "missing in broadcast #9, "
           "step 12, where rank 3 and 2 more wait",
           "three wait for one");
    set(2, LF_BEAT_PHASE, 52, 52, "save", 8);
    row[2].beat.limit_s = 51;
    blames(2,
           "rank 2 (host node, pid 102) hangs: beyond the limit of its phase for 52 s, in phase "
           "\"save\", step 12; missing in "
           "broadcast #9, step 12, where rank 3 and 2 more wait",
           "a phase that took too long");
    set(2, LF_BEAT_GONE, 52, 52, "all_reduce", 8);
    blames(2,
           "rank 2 (host node, pid 102) has ended its work, after all_reduce #8, step 12; missing "
           "in broadcast #9, step 12, where "
           "rank 3 and 2 more wait",
           "one left too early");
    set(2, LF_BEAT_COLLECTIVE, 60, 60, "barrier", 9);
    row[2].beat.id = 4;
    row[2].beat.step = -1;
    blames(2,
           "all ranks wait and no byte has moved for 60 s: rank 0 (host node, pid 100) in "
           "broadcast #9, step 12; rank 2 (host "
           "node, pid 102) in barrier #9 of communicator 4",
           "different collectives");
    all_compute(10);
    row[1].lost = true;
    row[1].unheard_s = 0.3;
    blames(1, "rank 1 (host node, pid 101) died; 0.3 s ago it was after all_reduce #8, step 12",
           "one died, nobody waits yet");
    set(0, LF_BEAT_PHASE, 1, 1, "save", 0);
    blames(1, "rank 1 (host node, pid 101) died; 0.3 s ago it was after all_reduce #8, step 12",
           "a phase does not excuse a death");
    all_compute(10);
    row[3].unheard_s = 21;
    row[3].beat.seq = 0;
    set(0, LF_BEAT_COLLECTIVE, 1, 1, "all_reduce", 1);
    blames(3,
           "rank 3 (host node, pid 103) has not been heard of for 21 s (stopped, or its node is); "
           "missing in all_reduce #1, step "
           "12, where rank 0 waits; 21.0 s ago it was before its first collective, step 12",
           "one is stopped");
    all_compute(10);
    row[1].lost = true;
    row[1].beat.micro = 3;
    set(0, LF_BEAT_COLLECTIVE, 1, 1, "all_gather", 9);
    row[0].beat.micro = 2;
    row[0].beat.backward = 1;
    blames(1,
           "rank 1 (host node, pid 101) died; missing in all_gather #9, step 12, micro-batch 2 "
           "backward, where rank 0 waits; 0.0 s ago it was after all_reduce #8, step 12, "
           "micro-batch 3 forward",
           "with their micro-batches");
}

/* Ranks of a pipeline wait for messages, and those that divide matrices in sums of their own. */
static void test_calls(void)
{
    all_compute(10);
    row[2].lost = true;
    set(0, LF_BEAT_COLLECTIVE, 8, 8, "recv from rank 1, backward, chunk 0", 9);
    set(1, LF_BEAT_COLLECTIVE, 6, 6, "recv from rank 2, backward, chunk 0", 9);
    set(3, LF_BEAT_COLLECTIVE, 7, 7, "recv from rank 2, forward, chunk 0", 5);
    blames(2,
           "rank 2 (host node, pid 102) died; missing in recv from rank 2, forward, chunk 0 #5, "
           "step 12, where rank 3 waits; rank 1 waits in recv from rank 2, backward, chunk 0 #9, "
           "step 12; rank 0 waits in recv from rank 1, backward, chunk 0 #9, step 12; 0.0 s ago it "
           "was after all_reduce #8, step 12",
           "its neighbours first, and then those that wait for these");
    set(1, LF_BEAT_COMPUTE, 1, 1, "all_reduce", 8);
    set(3, LF_BEAT_COMPUTE, 1, 1, "all_reduce", 8);
    blames(2,
           "rank 2 (host node, pid 102) died; rank 0 waits in recv from rank 1, backward, chunk 0 "
           "#9, step 12; 0.0 s ago it was after all_reduce #8, step 12",
           "nothing says that it is missing in what another rank sends");
    set(0, LF_BEAT_COLLECTIVE, 6, 6, "all_reduce", 9);
    set(1, LF_BEAT_COLLECTIVE, 7, 7, "all_reduce", 9);
    set(3, LF_BEAT_COLLECTIVE, 8, 8, "all_reduce", 9);
    row[0].beat.id = row[1].beat.id = row[3].beat.id = 3;
    row[3].beat.lead = 2;
    blames(2,
           "rank 2 (host node, pid 102) died; missing in all_reduce #9 of communicator 3, step 12, "
           "where rank 3 waits; rank 1 and 1 more wait in all_reduce #9 of communicator 3, step "
           "12; 0.0 s ago it was after all_reduce #8, step 12",
           "two groups of one split");
    for (int r = 0; r < ROWS; r++)
        set(r, LF_BEAT_COLLECTIVE, 10 - r, 1, "all_reduce", 7 + (uint64_t)r);
    n_rows = ROWS;
    row[0].lost = true;
    blames(0,
           "rank 0 (host node, pid 100) died; missing in all_reduce #8, step 12, where rank 1 "
           "waits; rank 2 waits in all_reduce #9, step 12; rank 3 waits in all_reduce #10, step "
           "12; 2 more wait for others; 0.0 s ago it was in all_reduce #7, step 12",
           "three calls are named");
    n_rows = N;
}

/* Do ranks outnumber processors? Against the definition over random tables: every set of processors
 * of the machine counts once. */
static bool crowded(const struct lf_comm_peer *p, int n, int me)
{
    int64_t ranks = 0, cpus = 0;
    for (int r = 0; r < n; r++) {
        bool counted = p[r].boot != p[me].boot;
        ranks += !counted;
        for (int k = 0; k < r; k++)
            counted = counted || (p[k].boot == p[me].boot && p[k].cpus == p[r].cpus);
        cpus += counted ? 0 : p[r].n_cpus;
    }
    return ranks > cpus;
}

static void test_crowded(void)
{
    enum { MOST = 40 };
    struct lf_comm_peer p[MOST];
    int wrong = 0, yes = 0;
    for (uint32_t t = 0; t < 2000; t++) {
        const int n = 1 + (int)(lf_rng_u32(1, t, 0) % MOST);
        for (int r = 0; r < n; r++) {
            const uint32_t u = lf_rng_u32(2, t, (uint64_t)r), set = u % 3;
            p[r] = (struct lf_comm_peer){
                .boot = u / 3 % 3, .cpus = set * 977, .n_cpus = 1 + (set + t) % 4};
        }
        const int me = (int)(lf_rng_u32(3, t, 0) % (uint32_t)n);
        const bool want = crowded(p, n, me);
        yes += want;
        wrong += lf_comm_crowded(p, n, me, NULL) != want;
    }
    tap_i64(wrong, 0, "crowded machines are those of the definition");
    tap_ok(yes > 100 && yes < 1900, "of both kinds: %d of 2,000", yes);
}

int main(void)
{
    TAP(16, test_peace());
    TAP(16, test_blame());
    TAP(8, test_calls());
    TAP(2, test_crowded());
    return tap_done();
}
