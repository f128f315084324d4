/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from a failure: the table, what a history asks for next, caps; what a scheduler's
 * words mean.
 */
#include "config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "flow/record/parts.h"
#include "flow/run/classify.h"
#include "flow/run/policy.h"
#include "tests/tap/tap.h"

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *o = json_loads(text, 0, &e);
    if (o == NULL)
        tap_bail("%s: %s", e.text, text);
    return o;
}

/* The record that end.json of this text is. */
static struct lf_end *end_of(const char *text)
{
    struct lf_end *end = NULL;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/end.json", tap_tmpdir());
    if (lf_io_write_file(path, text, strlen(text), 0640, NULL) < 0 ||
        lf_end_load(&end, tap_tmpdir(), NULL) < 0)
        tap_bail("cannot read %s", text);
    return end;
}

/* A stage with one attempt and a start for each end record; "" is one that has not ended. */
struct history {
    lf_stage_view s;
    lf_doc_stage plan;
    lf_start incs[16];
    struct lf_claim claims[16];
    struct lf_attempt_rec attempt, *attempts[2];
};

static void build(struct history *h, const char *stage, const char *const *ends, size_t n)
{
    memset(h, 0, sizeof *h);
    json_t *o = parse(stage);
    h->s.plan = &h->plan;
    h->plan.memory_bytes = lf_int_of(json_integer_value(json_object_get(o, "memory_bytes")));
    h->plan.time_limit_s = lf_int_of(json_integer_value(json_object_get(o, "time_limit_s")));
    json_t *resources = json_object_get(o, "resources");
    tap_rc(resources == NULL
               ? 0
               : lf_fields_read(&h->plan.resources, &lf_resources_fields, resources, stage, NULL),
           0, NULL, NULL, stage);
    lf_text_set(&h->plan.spec_id, json_string_value(json_object_get(o, "spec_id")), "id", NULL);
    json_decref(o);
    h->attempt.spec_id = "s";
    h->attempts[0] = &h->attempt;
    h->s.attempts = h->attempts;
    h->s.n_attempts = 1;
    h->s.incs = h->incs;
    h->s.n_incs = n;
    for (size_t i = 0; i < n; i++) {
        h->incs[i].attempt = 1;
        h->incs[i].epoch = (int)i + 1;
        h->claims[i].t = 1000.0 + 100.0 * (double)i;
        h->incs[i].claim = &h->claims[i];
        h->incs[i].end = ends[i][0] != '\0' ? end_of(ends[i]) : NULL;
    }
}

static void drop(struct history *h)
{
    for (size_t i = 0; i < h->s.n_incs; i++) {
        lf_end_free(h->incs[i].end);
    }
    lf_resources_fini(&h->plan.resources);
    free(h->plan.spec_id);
}

#define END(state, cls, more)                                                                      \
    "{\"state\":\"" state "\",\"class\":\"" cls "\",\"t_end\":2000" more "}"
#define ASKED(mem, planned)                                                                        \
    ",\"asked\":{\"memory_bytes\":" #mem ",\"planned_memory_bytes\":" #planned "}"

static void test_table(void)
{
    static const char *const classes[] = {
        "oom",    "oom_device", "timeout",    "disk",    "filesystem", "bad_input", "diverged",
        "config", "usage",      "launch",     "crash",   "cancelled",  "preempted", "node",
        "lost",   "rank",       "superseded", "stalled", "capped",     "rung",      "unknown"};
    size_t n = 0;
    const lf_policy *t = lf_policy_table(&n);
    tap_i64((int64_t)n, (int64_t)(sizeof classes / sizeof classes[0]) + 1,
            "one row for each class, and done");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const lf_policy *p = lf_policy_of(classes[i]);
        tap_str(p->cls, classes[i], classes[i]);
        tap_ok(p->act == LF_POLICY_NONE || p->advice[0] != '\0', "%s: there is something to say",
               classes[i]);
        tap_ok((p->act == LF_POLICY_STOP) == (p->actors == 0) || p->act == LF_POLICY_NONE,
               "%s: who stops, does not act", classes[i]);
        tap_ok(p->exit_code != 0, "%s: children do not start", classes[i]);
    }
    tap_str(lf_policy_of("something else")->cls, "unknown", "a class nobody knows");
    tap_ok(lf_policy_of("unknown")->act == LF_POLICY_STOP, "what is unknown is not retried");
    tap_i64(t[0].exit_code, 0, "done lets children start");
}

struct next_case {
    const char *name, *stage, *ends[4];
    size_t n;
    enum lf_policy_act act;
    bool automatic;
    int64_t memory, time;
};

static void test_next(void)
{
    static const struct next_case rows[] = {
        {"nothing was tried", "{\"spec_id\":\"s\"}", {NULL}, 0, LF_POLICY_NONE, false, 0, 0},
        {"preempted",
         "{\"spec_id\":\"s\"}",
         {END("stopped", "preempted", "")},
         1,
         LF_POLICY_CONTINUE,
         true,
         0,
         0},
        {"a segment is over",
         "{\"spec_id\":\"s\"}",
         {END("stopped", "timeout", "")},
         1,
         LF_POLICY_CONTINUE,
         true,
         0,
         0},
        {"killed at the limit, but saved before",
         "{\"spec_id\":\"s\",\"time_limit_s\":100}",
         {END("failed", "timeout", ",\"gained\":true")},
         1,
         LF_POLICY_CONTINUE,
         true,
         0,
         0},
        {"nothing saved within the limit",
         "{\"spec_id\":\"s\",\"time_limit_s\":100}",
         {END("failed", "timeout", "")},
         1,
         LF_POLICY_TIME,
         true,
         0,
         150},
        {"and the limit of limits",
         "{\"spec_id\":\"s\",\"time_limit_s\":100,\"resources\":{\"time_max\":120}}",
         {END("failed", "timeout", "")},
         1,
         LF_POLICY_TIME,
         true,
         0,
         120},
        {"which is reached",
         "{\"spec_id\":\"s\",\"time_limit_s\":100,\"resources\":{\"time_max\":100}}",
         {END("failed", "timeout", "")},
         1,
         LF_POLICY_TIME,
         false,
         0,
         0},
        {"out of memory",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000}",
         {END("failed", "oom", ASKED(1000, 1000))},
         1,
         LF_POLICY_MEMORY,
         true,
         1500,
         0},
        {"twice",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000}",
         {END("failed", "oom", ASKED(1000, 1000)), END("failed", "oom", ASKED(1500, 1000))},
         2,
         LF_POLICY_MEMORY,
         true,
         2250,
         0},
        {"three times: a person must look",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000}",
         {END("failed", "oom", ASKED(1000, 1000)), END("failed", "oom", ASKED(1500, 1000)),
          END("failed", "oom", ASKED(2250, 1000))},
         3,
         LF_POLICY_MEMORY,
         false,
         3375,
         0},
        {"memory_max",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000,\"resources\":{\"memory_max\":1200}}",
         {END("failed", "oom", ASKED(1000, 1000))},
         1,
         LF_POLICY_MEMORY,
         true,
         1200,
         0},
        {"memory_max is reached",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000,\"resources\":{\"memory_max\":1200}}",
         {END("failed", "oom", ASKED(1200, 1000))},
         1,
         LF_POLICY_MEMORY,
         false,
         1200,
         0},
        {"no number to raise",
         "{\"spec_id\":\"s\"}",
         {END("failed", "oom", "")},
         1,
         LF_POLICY_MEMORY,
         false,
         0,
         0},
        {"the user raised it further",
         "{\"spec_id\":\"s\",\"memory_bytes\":4000}",
         {END("failed", "oom", ASKED(1000, 1000))},
         1,
         LF_POLICY_MEMORY,
         true,
         0,
         0},
        {"what was given stays",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000}",
         {END("failed", "oom", ASKED(1000, 1000)), END("stopped", "preempted", ASKED(1500, 1000))},
         2,
         LF_POLICY_CONTINUE,
         true,
         1500,
         0},
        {"until the user says otherwise",
         "{\"spec_id\":\"s\",\"memory_bytes\":800}",
         {END("failed", "oom", ASKED(1000, 1000)), END("stopped", "preempted", ASKED(1500, 1000))},
         2,
         LF_POLICY_CONTINUE,
         true,
         0,
         0},
        {"other settings, other history",
         "{\"spec_id\":\"s\",\"memory_bytes\":1000,\"resources\":{\"retries\":0}}",
         {END("failed", "oom", ASKED(1000, 1000))},
         1,
         LF_POLICY_MEMORY,
         false,
         1500,
         0},
        {"unknown",
         "{\"spec_id\":\"s\"}",
         {END("failed", "unknown", "")},
         1,
         LF_POLICY_STOP,
         false,
         0,
         0},
        {"it runs",
         "{\"spec_id\":\"s\"}",
         {END("failed", "oom", ASKED(1, 1)), ""},
         2,
         LF_POLICY_NONE,
         false,
         0,
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct history h;
        lf_next n;
        build(&h, rows[i].stage, rows[i].ends, rows[i].n);
        tap_rc(lf_policy_next(&n, &h.s, NULL), 0, NULL, NULL, rows[i].name);
        tap_str(lf_policy_act_name(n.act), lf_policy_act_name(rows[i].act), rows[i].name);
        tap_i64(n.automatic, rows[i].automatic, "without a person");
        tap_i64(n.memory_bytes, rows[i].memory, "memory");
        tap_i64(n.time_limit_s, rows[i].time, "time");
        lf_next_fini(&n);
        drop(&h);
    }
}

static void test_nodes(void)
{
    static const char *const ends[] = {
        END("stopped", "node", ",\"blame\":\"n3\""), END("stopped", "preempted", ""),
        END("stopped", "node", ",\"blame\":\"n5\""), END("stopped", "node", ",\"blame\":\"n3\"")};
    struct history h;
    lf_next n;
    build(&h, "{\"spec_id\":\"s\"}", ends, 4);
    lf_policy_next(&n, &h.s, NULL);
    tap_i64((int64_t)n.exclude.n, 2, "each blamed node once");
    tap_str(n.exclude.v[1], "n5", "by name");
    tap_i64(n.tries, 2, "ends in a row of that class");
    lf_next_fini(&n);
    lf_text_set(&h.plan.spec_id, "other", "id", NULL);
    lf_policy_next(&n, &h.s, NULL);
    tap_ok(n.act == LF_POLICY_NONE && n.exclude.n == 0, "another spec starts afresh");
    lf_next_fini(&n);
    drop(&h);
}

static void test_caps(void)
{
    static const char *const ends[] = {"{\"state\":\"stopped\",\"t_end\":1050,\"step\":10}",
                                       "{\"state\":\"stopped\",\"t_end\":1150,\"step\":20}",
                                       "{\"state\":\"stopped\",\"t_end\":1250,\"step\":20}", ""};
    struct history h;
    lf_chain_sum c;
    char why[200];
    build(&h, "{\"spec_id\":\"s\"}", ends, 4);
    lf_chain_add_up(&c, &h.s, 1340);
    tap_i64(c.segments, 4, "segments, with the one that runs");
    tap_f64(c.walltime_s, 50 + 50 + 50 + 40, 1e-9, "seconds of all");
    tap_i64(c.step, 20, "furthest step");
    tap_i64(c.stalled, 1, "one gained nothing");
    static const struct {
        const char *resources, *cls;
    } rows[] = {{"{}", NULL},
                {"{\"max_segments\":5}", NULL},
                {"{\"max_segments\":4}", "capped"},
                {"{\"max_walltime\":200}", NULL},
                {"{\"max_walltime\":190}", "capped"},
                {"{\"stall_segments\":1}", "stalled"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_resources res = {.given = false};
        json_t *o = parse(rows[i].resources);
        tap_rc(lf_fields_read(&res, &lf_resources_fields, o, "resources", NULL), 0, NULL, NULL,
               rows[i].resources);
        tap_str(lf_chain_capped(&c, &res, why, sizeof why), rows[i].cls, rows[i].resources);
        lf_resources_fini(&res);
        json_decref(o);
    }
    const lf_resources none = {.given = false};
    c.stalled = 2;
    tap_str(lf_chain_capped(&c, &none, why, sizeof why), "stalled",
            "two without a step stop it when nothing is set");
    tap_str(why, "no step was gained in 2 segments, the furthest is 20", "and the reason says so");
    drop(&h);
    static const char *const killed[] = {
        "", "{\"state\":\"stopped\",\"t_end\":1190,\"step\":5,\"class\":\"superseded\"}",
        "{\"state\":\"stopped\",\"t_end\":1290,\"step\":5}",
        "{\"state\":\"failed\",\"class\":\"oom\",\"t_end\":1340}"};
    build(&h, "{\"spec_id\":\"s\"}", killed, 4);
    lf_chain_add_up(&c, &h.s, 1340);
    tap_f64(c.walltime_s, 100 + 90 + 90 + 40, 1e-9,
            "one that died without a word lasted until the next began");
    tap_i64(c.stalled, 1,
            "one that was superseded says nothing about progress, and a failure is no segment");
    drop(&h);
}

static void test_jobs(void)
{
    static const struct {
        lf_job_evidence ev;
        const char *state, *cls, *name;
    } rows[] = {
        {{.word = "TIMEOUT"}, "failed", "timeout", "TIMEOUT"},
        {{.word = "OUT_OF_MEMORY"}, "failed", "oom", "OUT_OF_MEMORY"},
        {{.word = "OUT_OF_ME+"}, "failed", "oom", "a word that a narrow column cut"},
        {{.word = "CANCELLED by 1000"}, "cancelled", "cancelled", "CANCELLED by"},
        {{.word = "CANCELLED+"}, "cancelled", "cancelled", "CANCELLED+"},
        {{.word = "NODE_FAIL"}, "stopped", "node", "NODE_FAIL"},
        {{.word = "PREEMPTED"}, "stopped", "preempted", "PREEMPTED"},
        {{.word = "COMPLETED", .exited = true},
         "stopped",
         "lost",
         "COMPLETED without a record is not done"},
        {{.word = "FAILED", .exited = true, .exit = 127}, "failed", "launch", "exit 127"},
        {{.word = "FAILED", .exited = true, .exit = 1}, "failed", "unknown", "exit 1"},
        {{.word = "FAILED", .signal = 9, .exited = true}, "stopped", "lost", "killed"},
        {{.word = "FAILED",
          .exited = true,
          .exit = 1,
          .log_tail = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0\n"},
         "failed",
         "oom",
         "oom_kill in the job's output"},
        {{.word = "FAILED",
          .exited = true,
          .exit = 1,
          .log_tail = "slurmstepd: error: *** JOB 5 ON n0 CANCELLED AT X DUE TO TIME LIMIT ***\n"},
         "failed",
         "timeout",
         "DUE TO TIME LIMIT"},
        {{.word = "FAILED",
          .exited = true,
          .exit = 1,
          .log_tail = "srun: error: Task launch for StepId=5.0 failed on node n0\n"},
         "failed",
         "launch",
         "task launch"},
        {{.word = "FAILED",
          .exited = true,
          .exit = 70,
          .log_tail = "[1] rank 1 on n3 (pid 7) died; rank 2 waits in all_reduce 12\nbye\n"},
         "stopped",
         "rank",
         "the ranks' watchdog"},
        {{.word = "SOMETHING_NEW"}, "stopped", "lost", "a word nobody knows"},
        {{.pbs = true, .word = "F", .exited = true, .exit = -29}, "failed", "timeout", "PBS -29"},
        {{.pbs = true, .word = "C", .exited = true, .exit = -11},
         "failed",
         "timeout",
         "Torque -11"},
        {{.pbs = true, .exited = true, .exit = -27}, "failed", "oom", "PBS -27"},
        {{.pbs = true, .exited = true, .exit = -20}, "stopped", "node", "PBS -20"},
        {{.pbs = true, .exited = true, .exit = 271}, "stopped", "lost", "PBS 256 + 15"},
        {{.pbs = true,
          .exited = true,
          .exit = 271,
          .log_tail = "=>> PBS: job killed: walltime 75 exceeded limit 60\n"},
         "failed",
         "timeout",
         "the node's word for the walltime"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_end_class c;
        lf_classify_job(&c, &rows[i].ev);
        tap_str(c.state, rows[i].state, rows[i].name);
        tap_str(c.cls, rows[i].cls, rows[i].name);
        tap_ok(c.reason[0] != '\0', "%s has a reason", rows[i].name);
    }
}

/* A stage that ended: who speaks is believed, else the log, and why a rank died before that it
 * did. */
static void test_ends(void)
{
    static const lf_cause config = {"config", "seq_length does not fit", "lf-sft"},
                          none = {"", "what is this", "lf-sft"},
                          rank = {"rank", "rank 1 (host n1, pid 7) was ended by signal 9 (Killed)",
                                  "loong-flow launch"},
                          text = {"", "out/x: No space left on device", "lf-sft"},
                          odd = {"melted", "it melted", "lf-sft"};
    static const char *const limit =
        "slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT X DUE TO TIME LIMIT ***\nbye\n";
    static const struct {
        lf_end_evidence ev;
        const char *cls, *reason, *name;
    } rows[] = {
        {{.exited = true, .exit_code = 1, .said = &config, .log_tail = "No space left on device\n"},
         "config",
         "seq_length does not fit",
         "what the stage says stands above its log"},
        {{.exited = true, .exit_code = 1, .said = &none},
         "unknown",
         "what is this",
         "one that does not know the class"},
        {{.exited = true, .exit_code = 1, .said = &text},
         "disk",
         "out/x: No space left on device",
         "... may have words that are known"},
        {{.exited = true, .exit_code = 1, .said = &odd},
         "unknown",
         "it melted",
         "a class that nobody knows"},
        {{.signal = 9, .of_rank = true, .said = &rank},
         "rank",
         "rank 1 (host n1, pid 7) was ended by signal 9 (Killed)",
         "a killed rank"},
        {{.signal = 9, .of_rank = true, .said = &rank, .oom_kills = 1},
         "oom",
         NULL,
         "... by the kernel"},
        {{.signal = 9, .of_rank = true, .said = &rank, .log_tail = limit},
         "timeout",
         NULL,
         "... by the scheduler"},
        {{.signal = 9, .of_rank = true, .log_tail = "one\ntwo\n"},
         "rank",
         "a rank was ended by signal 9 (SIGKILL)",
         "a killed rank of a launcher that says nothing"},
        {{.signal = 9,
          .of_rank = true,
          .log_tail = "prterun noticed that process rank 1 with PID 7 on node n1 exited on signal "
                      "9 (Killed).\n------\n"},
         "rank",
         "process rank 1 with PID 7 on node n1 exited on signal 9",
         "... of prterun"},
        {{.signal = 9,
          .of_rank = true,
          .log_tail = "srun: error: n1: task 1: Killed\nsrun: Terminating StepId=5.0\n"},
         "rank",
         "n1: task 1: Killed",
         "... of srun, by the line that names it"},
        {{.exited = true,
          .exit_code = 143,
          .log_tail = "srun: error: n1: task 1: Killed\nslurmstepd: error: *** STEP 5.0 ***\n"},
         "rank",
         "n1: task 1: Killed",
         "and with srun's own exit code"},
        {{.signal = 11, .of_rank = true, .log_tail = "x\n"},
         "crash",
         "signal 11 (SIGSEGV)",
         "a rank that crashed"},
        {{.signal = 9, .log_tail = "x\n"},
         "unknown",
         "killed by signal 9",
         "a stage alone that somebody killed"},
        {{.exited = true, .exit_code = 75, .said = &rank}, "preempted", NULL, "a stop is a stop"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lf_end_class c;
        lf_classify(&c, &rows[i].ev);
        tap_str(c.cls, rows[i].cls, rows[i].name);
        tap_ok(rows[i].reason == NULL || strstr(c.reason, rows[i].reason) != NULL, "%s: %s",
               rows[i].name, c.reason);
    }
}

int main(void)
{
    TAP(28, test_ends());
    TAP(88, test_table());
    TAP(114, test_next());
    TAP(5, test_nodes());
    TAP(22, test_caps());
    TAP(66, test_jobs());
    return tap_done();
}
