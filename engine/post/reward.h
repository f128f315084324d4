/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of scores of completions beside a model: built-in rules and an external command. A reward
 * is the sum of the scores of all sources, each times its weight. The score of every source is kept
 * and reported.
 */
#ifndef LF_POST_REWARD_H
#define LF_POST_REWARD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* The completion to score. Borrowed. */
struct lf_reward_item {
    const char *id;         /* "prompt 17 sample 3": for messages and requests */
    const char *prompt;     /* text */
    const char *completion; /* text, without special tokens */
    int64_t tokens;         /* of the completion */
    bool ended;             /* its last token is an end token */
    json_t *rest;           /* other columns of the prompt's row (object), or NULL */
};

/* ---- rules ---- */

typedef struct lf_rule lf_rule;

/* Parses "[WEIGHT *] KIND:ARGUMENT". Scores are 0 or 1 unless said otherwise:
 *     exact:COLUMN            the completion without surrounding white space is the row's COLUMN
 *     regex:COLUMN:PATTERN    group 1 (or all) of the last match of PATTERN (PCRE2) is COLUMN
 *     number:COLUMN           the number behind the last "####", else the last number, equals that
 *                             of COLUMN, found in the same way
 *     number-strict:COLUMN    the same, but a completion without "####" is wrong (strict match of
 *                             GSM8K)
 *     format:PATTERN          PATTERN matches the whole completion
 *     length:MAX              -min(1, (tokens - MAX) / MAX) where there are more than MAX, else 0
 * Numbers are compared as decimals of any length: 1,200.50 is 1200.5. The caller owns the rule.
 * NULL on failure; the message names the spec. */
lf_rule *lf_rule_create(const char *spec, lf_err *err);
void lf_rule_destroy(lf_rule *r);
const char *lf_rule_name(const lf_rule *r); /* KIND; one pointer per kind */
double lf_rule_weight(const lf_rule *r);
const char *lf_rule_spec(const lf_rule *r); /* as it was given; borrowed */
/* Scores a completion. One thread at a time uses a rule. LF_EFORMAT: the row has no such column, or
 * the column holds no number. */
int lf_rule_score(lf_rule *r, const struct lf_reward_item *it, double *score, lf_err *err);

/* Returns the decimal of a text in canonical form ("-12.5"), which the caller frees; NULL without
 * an error: there is none. strict: only behind "####". */
char *lf_rule_number(const char *text, bool strict);

/* ---- a command ---- */

/* A program of the user, started once by sh -c, in a process group of its own. For each completion
 * it gets one JSON line
 *     {"id","prompt","completion","tokens","ended","rest"}
 * on standard input. It answers with one line: a number, or an object with "reward" and perhaps
 * "id", which must be that of the request. Its standard error is ours.
 *
 * Failures are counted by kind. After a failure the command is ended and started again, and the
 * same request is sent again, up to `retries` times. Then the completion gets the score `fallback`,
 * or the run fails with a message that names the request. */
enum lf_cmd_fault { LF_CMD_TIMEOUT = 0, LF_CMD_DIED, LF_CMD_NONSENSE, LF_CMD_NAN, LF_CMD_FAULTS };
const char *lf_cmd_fault_name(enum lf_cmd_fault f); /* "timeout", "died", "nonsense", "nan" */

struct lf_cmd_opts {
    const char *command;
    double timeout_s; /* for one answer */
    int retries;
    bool use_fallback;
    double fallback;
    bool (*stop)(void); /* called while waiting; may be NULL */
};
struct lf_cmd_counts {
    int64_t asked, fault[LF_CMD_FAULTS], restarts, fallbacks;
};

typedef struct lf_cmd lf_cmd;
/* Starts no process yet. The strings of o are copied. The caller must ignore SIGPIPE, as
 * lf_stop_install does. */
lf_cmd *lf_cmd_create(const struct lf_cmd_opts *o, lf_err *err);
/* Ends the command: its input is closed, and after two seconds its process group is killed. */
void lf_cmd_destroy(lf_cmd *c);
/* LF_EINTR: stop() returned true. LF_EFORMAT: it failed after all retries. */
int lf_cmd_score(lf_cmd *c, const struct lf_reward_item *it, double *score, lf_err *err);
const struct lf_cmd_counts *lf_cmd_get_counts(const lf_cmd *c);

#endif
