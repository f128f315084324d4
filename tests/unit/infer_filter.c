/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters of generated texts, as lm-evaluation-harness has them: votes, ties, choices among
 * matches, lists that are too short. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/infer/filter.h"
#include "tests/tap/tap.h"

/* Result of a filter as compact JSON in a static buffer; "" on failure, which is in *err. */
static const char *filtered(const char *steps, const char *texts, lf_err *err)
{
    static char out[1024];
    json_t *s = json_loads(steps, 0, NULL), *t = json_loads(texts, 0, NULL);
    lf_filter *f = lf_filter_create(s, err);
    json_t *v = f ? lf_filter_apply(f, t, err) : NULL;
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    snprintf(out, sizeof out, "%s", text ? text : "");
    free(text);
    json_decref(v);
    lf_filter_destroy(f);
    json_decref(s);
    json_decref(t);
    return out;
}

static void is(const char *steps, const char *texts, const char *want, const char *name)
{
    lf_err err = LF_ERR_INIT;
    tap_str(filtered(steps, texts, &err), want, name);
}

static void fails(const char *steps, const char *texts, const char *says, const char *name)
{
    lf_err err = LF_ERR_INIT;
    const char *got = filtered(steps, texts, &err);
    tap_ok(!*got && err.rc < 0 && strstr(err.text, says), "%s: %s", name, err.text);
}

#define VOTE "[{\"function\":\"majority_vote\"},{\"function\":\"take_first\"}]"
#define NUMBER                                                                                     \
    "[{\"function\":\"regex\",\"regex_pattern\":\"(-?[0-9]+)\",\"group_select\":%s},{"             \
    "\"function\":\"take_first\"}]"

static void votes(void)
{
    is(VOTE, "[\"4\",\"5\",\"5\",\"4\",\"5\"]", "\"5\"", "the most frequent text");
    is(VOTE, "[\"7\",\"5\",\"4\",\"5\",\"4\"]", "\"5\"",
       "of several as frequent, the one that was first");
    is(VOTE, "[\"a\",\"b\",\"c\"]", "\"a\"", "none repeated: the first");
    is(VOTE, "[\"x\"]", "\"x\"", "one text");
    is("[{\"function\":\"majority_vote\"}]", "[\"a\",\"b\",\"b\"]", "[\"b\"]",
       "a vote is a list of one");
    is("[{\"function\":\"regex\",\"regex_pattern\":\"([0-9]+)\"},{\"function\":\"majority_vote\"},{"
       "\"function\":\"take_"
       "first\"}]",
       "[\"so 12\",\"it is 12.\",\"13\",\"no idea\"]", "\"12\"",
       "what is voted on is what the step before left (maj@k)");
    is("[{\"function\":\"take_first_k\",\"k\":2},{\"function\":\"majority_vote\"},{\"function\":"
       "\"take_first\"}]",
       "[\"b\",\"a\",\"a\"]", "\"b\"", "of the first k alone");
    fails("[{\"function\":\"take_first_k\",\"k\":4},{\"function\":\"take_first\"}]",
          "[\"b\",\"a\",\"a\"]", "4 texts are wanted, a document has 3", "fewer repeats than k");
}

static void matches(void)
{
    char first[256], last[256];
    snprintf(first, sizeof first, NUMBER, "0");
    snprintf(last, sizeof last, NUMBER, "-1");
    is(first, "[\"3 and 4 make 7\"]", "\"3\"", "the first match");
    is(last, "[\"3 and 4 make 7\"]", "\"7\"", "the last match (flexible-extract)");
    is(first, "[\"none\"]", "\"[invalid]\"", "no match: the fallback");
    is("[{\"function\":\"regex\",\"regex_pattern\":\"a=(x)?|b=(y)\",\"fallback\":\"-\"},{"
       "\"function\":\"take_first\"}]",
       "[\"b=y\"]", "\"y\"", "of several groups the first that is not empty");
    is("[{\"function\":\"remove_whitespace\"},{\"function\":\"lowercase\"},{\"function\":\"take_"
       "first\"}]",
       "[\"  A b\\n\"]", "\"a b\"", "stripped, then lower case");
    is("[{\"function\":\"map\",\"mapping_dict\":{\"1\":\"yes\"},\"default_value\":\"no\"}]",
       "[\"1\",\"2\"]", "[\"yes\",\"no\"]", "mapped");
    fails("[{\"function\":\"take_first\"},{\"function\":\"lowercase\"}]", "[\"a\"]",
          "must be its last step", "take_first in the middle");
    fails("[{\"function\":\"sing\"}]", "[\"a\"]", "'sing' is not supported", "an unknown step");
}

static void equal(void)
{
    lf_err err = LF_ERR_INIT;
    bool same = false;
    json_t *o = json_loads("{\"ignore_case\":true,\"ignore_punctuation\":true,\"regexes_to_"
                           "ignore\":[\"\\\\$\",\"(?s).*#### \"]}",
                           0, NULL);
    lf_match *m = lf_match_create(o, &err);
    tap_ok(m && lf_match_equal(m, "I think\n#### $1,000.", "1000", &same, &err) == 0 && same,
           "both are treated alike before they are compared");
    tap_ok(m && lf_match_equal(m, "#### 1001", "1000", &same, &err) == 0 && !same,
           "and may still differ");
    lf_match_destroy(m);
    json_decref(o);
    m = lf_match_create(NULL, &err);
    tap_ok(m && lf_match_equal(m, "A", "a", &same, &err) == 0 && !same,
           "without options every byte counts");
    lf_match_destroy(m);
}

int main(void)
{
    TAP(8, votes());
    TAP(8, matches());
    TAP(3, equal());
    return tap_done();
}
