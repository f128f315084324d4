/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules, and a command that does all that commands may do: die, hang, babble, answer NaN, answer
 * twice, never read. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/post/reward.h"
#include "tests/tap/tap.h"

static double rule(const char *spec, const char *completion, const char *rest, int want_rc,
                   const char *contains)
{
    lf_err err = LF_ERR_INIT;
    lf_rule *r = lf_rule_create(spec, &err);
    double score = NAN;
    if (!r)
        tap_bail("%s: %s", spec, err.text);
    json_t *o = lf_json_load_text(rest, strlen(rest), "rest", &err);
    struct lf_reward_item it = {"prompt 3 sample 1",         "p",  completion,
                                (int64_t)strlen(completion), true, o};
    int rc = lf_rule_score(r, &it, &score, &err);
    if (rc != want_rc || contains)
        tap_rc(rc, want_rc, &err, contains, spec);
    json_decref(o);
    lf_rule_destroy(r);
    return score;
}

static void number(const char *text, bool strict, const char *want)
{
    char *n = lf_rule_number(text, strict);
    tap_str(n, want, text);
    free(n);
}

static void numbers(void)
{
    number("so 1,200.50 apples", false, "1200.5");
    number("12 - 5 = 7", false, "7");
    number("a-5", false, "5");
    number("it is -5.", false, "-5");
    number("#### 72", true, "72");
    number("first 9 then #### $1,000.00 or 3", false, "1000");
    number("the answer is 72", true, NULL);
    number("none at all", false, NULL);
    number("0007", false, "7");
    number("-0.0", false, "0");
    number("0.50", false, "0.5");
    number("123456789012345678901234567890", false, "123456789012345678901234567890");
    number("####", false, NULL);
}

static void rules(void)
{
    static const char row[] = "{\"answer\":\"42\",\"n\":42,\"gsm\":\"half is 21 #### "
                              "42\",\"word\":\"red fish\",\"none\":\"x\"}";
    tap_f64(rule("exact:answer", " 42\n", row, 0, NULL), 1, 0, "exact, trimmed");
    tap_f64(rule("exact:n", "42", row, 0, NULL), 1, 0, "a column that is a number");
    tap_f64(rule("exact:answer", "42!", row, 0, NULL), 0, 0, "not exact");
    tap_f64(rule("number:answer", "40 + 2 makes 42.0", row, 0, NULL), 1, 0, "last number");
    tap_f64(rule("number:gsm", "#### 42", row, 0, NULL), 1, 0, "column in GSM8K's form");
    tap_f64(rule("number-strict:answer", "it is 42", row, 0, NULL), 0, 0, "strict wants the mark");
    tap_f64(rule("number-strict:answer", "so #### 42", row, 0, NULL), 1, 0, "and takes it");
    tap_f64(rule("number:answer", "no idea", row, 0, NULL), 0, 0,
            "no number is wrong, not an error");
    tap_f64(rule("regex:word:answer: (.*?)\\.", "answer: blue. answer: red fish.", row, 0, NULL), 1,
            0, "group 1 of the last match");
    tap_f64(rule("regex:answer:[0-9]+", "1 2 42", row, 0, NULL), 1, 0, "the last match itself");
    tap_f64(rule("format:<a>.*</a>", "<a>x\ny</a>", row, 0, NULL), 1, 0, "format, newlines too");
    tap_f64(rule("format:<a>.*</a>", "<a>x</a> and more", row, 0, NULL), 0, 0,
            "the whole completion");
    tap_f64(rule("length:10", "0123456789", row, 0, NULL), 0, 0, "as long as it may be");
    tap_f64(rule("length:10", "0123456789abcde", row, 0, NULL), -.5, 1e-12, "half too long");
    tap_f64(rule("format:(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", row, 0, NULL),
            0, 0, "an endless match ends");
    rule("exact:colour", "x", row, LF_EFORMAT, "no column 'colour'");
    rule("number:none", "1", row, LF_EFORMAT, "holds no number");
}

static void specs(void)
{
    lf_err err = LF_ERR_INIT;
    lf_rule *r = lf_rule_create("0.25 * format:a*b", &err);
    tap_f64(lf_rule_weight(r), .25, 0, "weight");
    tap_str(lf_rule_name(r), "format", "name");
    lf_rule_destroy(r);
    r = lf_rule_create("format:a*b", &err);
    tap_f64(lf_rule_weight(r), 1, 0, "a star of the pattern is no weight");
    lf_rule_destroy(r);
    static const char *const bad[][2] = {{"exakt:a", "no such rule"},   {"format:(", "pattern"},
                                         {"x * exact:a", "x"},          {"exact:", "nothing"},
                                         {"regex:a", "COLUMN:PATTERN"}, {"length:0", "above 0"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tap_ok(!lf_rule_create(bad[i][0], &err), "%s is refused", bad[i][0]);
        tap_rc(err.rc, err.rc, &err, bad[i][1], "with a reason");
        lf_err_clear(&err);
    }
}

/* ---- the command ---- */

#define LOOP(answer) "while read -r l; do " answer "; done"

static struct lf_reward_item item = {"prompt 3 sample 1", "1+1=", "2", 1, true, NULL};

static int ask(const char *command, struct lf_cmd_opts o, int times, double *score,
               struct lf_cmd_counts *n, lf_err *err)
{
    o.command = command;
    lf_cmd *c = lf_cmd_create(&o, err);
    int rc = c ? 0 : LF_ENOMEM;
    for (int i = 0; i < times && !rc; i++)
        rc = lf_cmd_score(c, &item, score, err);
    if (n && c)
        *n = *lf_cmd_get_counts(c);
    lf_cmd_destroy(c);
    return rc;
}

static void good_commands(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_cmd_opts o = {.timeout_s = 600, .retries = 1};
    struct lf_cmd_counts n;
    double score = 0;
    tap_rc(ask(LOOP("echo 0.5"), o, 5, &score, &n, &err), 0, &err, NULL, "a number on a line");
    tap_f64(score, .5, 0, "is the reward");
    tap_i64(n.asked, 5, "five requests");
    tap_i64(n.restarts, 0, "one process");
    tap_rc(ask(LOOP("id=${l#*\\\"id\\\":\\\"}; id=${id%%\\\"*}; echo "
                    "\"{\\\"id\\\":\\\"$id\\\",\\\"reward\\\":-2}\""),
               o, 2, &score, &n, &err),
           0, &err, NULL, "an object with the id");
    tap_f64(score, -2, 0, "is the reward too");
    json_t *rest = json_pack("{s:s}", "answer", "a \"quoted\"\nline");
    item.rest = rest;
    tap_rc(ask(LOOP("case $l in *'\"rest\":{\"answer\":\"a \\\"quoted\\\"\\nline\"}}') echo 1;; *) "
                    "echo 0;; esac"),
               o, 1, &score, &n, &err),
           0, &err, NULL, "the row's columns are in the request");
    tap_f64(score, 1, 0, "escaped, on one line");
    item.rest = NULL;
    json_decref(rest);
    tap_rc(ask("read -r l; echo 3", o, 3, &score, &n, &err), 0, &err, NULL,
           "a command that ends after each answer");
    tap_f64(score, 3, 0, "is started again");
    tap_i64(n.restarts, 2, "twice");
}

/* Only commands that must run out of time get little of it: the others may start slowly. */
static void hostile(const char *what, const char *command, enum lf_cmd_fault f,
                    const char *contains)
{
    lf_err err = LF_ERR_INIT;
    struct lf_cmd_opts o = {.timeout_s = f == LF_CMD_TIMEOUT ? .4 : 600, .retries = 1};
    struct lf_cmd_counts n = {0};
    double score = 7;
    tap_rc(ask(command, o, 1, &score, &n, &err), LF_EFORMAT, &err, contains, what);
    tap_i64(n.fault[f], 2, "counted by its name, each attempt");
    tap_f64(score, 7, 0, "no score");
    o.use_fallback = true;
    o.fallback = -1;
    tap_rc(ask(command, o, 1, &score, &n, &err), 0, &err, NULL, "with a fallback the run goes on");
    tap_f64(score, -1, 0, "with its value");
    tap_i64(n.fallbacks, 1, "counted");
}

static void hostile_commands(void)
{
    hostile("dies at once", "exit 3", LF_CMD_DIED, "ended without an answer");
    hostile("dies after reading", "read -r l; exit 0", LF_CMD_DIED, "prompt 3 sample 1");
    hostile("half an answer", "read -r l; printf 0.", LF_CMD_DIED, "ended");
    hostile("hangs", "sleep 1000", LF_CMD_TIMEOUT, "no answer in time");
    hostile("ignores signals", "trap '' TERM INT HUP; while :; do sleep 1; done", LF_CMD_TIMEOUT,
            "timeout");
    hostile("babbles", LOOP("echo banana"), LF_CMD_NONSENSE, "banana");
    hostile("an empty line", LOOP("echo"), LF_CMD_NONSENSE, "nonsense");
    hostile("a string", LOOP("echo '\\\"1\\\"'"), LF_CMD_NONSENSE, "no reward");
    hostile("an object without reward", LOOP("echo '{\\\"score\\\":1}'"), LF_CMD_NONSENSE,
            "nonsense");
    hostile("the id of another", LOOP("echo '{\\\"id\\\":\\\"x\\\",\\\"reward\\\":1}'"),
            LF_CMD_NONSENSE, "nonsense");
    hostile("two answers", LOOP("printf '1\\n2\\n'"), LF_CMD_NONSENSE, "nonsense");
    hostile("a line without end", "read -r l; while :; do printf '%01000d' 0; done",
            LF_CMD_NONSENSE, "nonsense");
    hostile("NaN", LOOP("echo NaN"), LF_CMD_NAN, "not finite");
    hostile("NaN as Python writes it", LOOP("echo '{\\\"reward\\\": NaN}'"), LF_CMD_NAN, "nan");
    hostile("infinity", LOOP("echo -Infinity"), LF_CMD_NAN, "not finite");
}

static void recovers(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_cmd_opts o = {.timeout_s = 600, .retries = 2};
    struct lf_cmd_counts n;
    char command[1200];
    double score = 0;
    snprintf(command, sizeof command,
             "f=%s/once; read -r l; [ -e $f ] || { : >$f; exit 9; }; echo 1; " LOOP("echo 1"),
             tap_tmpdir());
    tap_rc(ask(command, o, 4, &score, &n, &err), 0, &err, NULL, "dies once");
    tap_f64(score, 1, 0, "is asked again");
    tap_i64(n.fault[LF_CMD_DIED], 1, "one death");
    tap_i64(n.restarts, 1, "one restart, then the same process serves all");
    /* Two lines in one write: neither is taken for the answer. */
    snprintf(
        command, sizeof command,
        "f=%s/twice; read -r l; [ -e $f ] || { : >$f; printf '1\\n2\\n'; sleep 1; }; echo 3; " LOOP(
            "echo 3"),
        tap_tmpdir());
    tap_rc(ask(command, o, 1, &score, &n, &err), 0, &err, NULL, "an unasked line");
    tap_f64(score, 3, 0, "the next process is asked");
    tap_i64(n.fault[LF_CMD_NONSENSE], 1, "one answer that is no reward");
    char *big = malloc(300001);
    memset(big, 'x', 300000);
    big[300000] = 0;
    item.completion = big;
    tap_rc(ask(LOOP("echo ${#l}"), o, 1, &score, &n, &err), 0, &err, NULL,
           "a request larger than a pipe");
    tap_ok(score > 300000, "arrives whole (%.0f characters)", score);
    o.timeout_s = .3;
    tap_rc(ask("sleep 1000", o, 1, &score, &n, &err), LF_EFORMAT, &err, "in time",
           "one that is never read");
    item.completion = "2";
    free(big);
}

static int asked_to_stop;
static bool stop(void)
{
    return ++asked_to_stop > 1;
}

static void stops(void)
{
    lf_err err = LF_ERR_INIT;
    double score;
    tap_rc(ask("sleep 1000", (struct lf_cmd_opts){.timeout_s = 600, .stop = stop}, 1, &score, NULL,
               &err),
           LF_EINTR, &err, "stopped",
           "a stop request is heard while waiting, not when the time is over");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    TAP(13, numbers());
    TAP(17, rules());
    TAP(15, specs());
    TAP(11, good_commands());
    TAP(90, hostile_commands());
    TAP(10, recovers());
    TAP(1, stops());
    return tap_done();
}
