/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns as Python's re reads them: findall and sub with "" of python 3.11, kept here as it
 * printed them. */
#include <stdlib.h>
#include <string.h>

#include "engine/infer/pyre.h"
#include "tests/tap/tap.h"

static const struct {
    const char *pattern, *text, *found /* json.dumps(re.findall(...), ensure_ascii=False) */,
        *rest /* re.sub(pattern, "", text) */;
} cases[] = {
    {"(\\d+)", "a1b22", "[\"1\",\"22\"]", "ab"},
    {"\\d+", "none", "[]", "none"},
    /* empty matches: beside one that is not, and at the end */
    {"x*", "axb", "[\"\",\"x\",\"\",\"\"]", "ab"},
    {"", "ab", "[\"\",\"\",\"\"]", "ab"},
    {"(?=(aa))", "aaaa", "[\"aa\",\"aa\",\"aa\"]", "aaaa"},
    /* several groups, of which some took no part */
    {"(a)|(b)", "abz", "[[\"a\",\"\"],[\"\",\"b\"]]", "z"},
    {"(-?[$0-9.,]{2,})|(-?[0-9]+)", "it is $1,200.50 or 7", "[[\"$1,200.50\",\"\"],[\"\",\"7\"]]",
     "it is  or "},
    {"#### (\\-?[0-9\\.\\,]+)", "so #### 12,000.", "[\"12,000.\"]", "so "},
    {"\\bA\\b|\\bB\\b", "A AB B", "[\"A\",\"B\"]", " AB "},
    {"[]x]+", "a]x]", "[\"]x]\"]", "a"},
    {"(?i)answer:\\s*([A-D])", "Answer: b\nANSWER:C", "[\"b\",\"C\"]", "\n"},
    /* the end of the text, and that before a last newline */
    {"\\d\\Z", "12\n3", "[\"3\"]", "12\n"},
    {"\\s+$", "end \n", "[\" \\n\"]", "end"},
    /* classes are Unicode's, matches whole characters */
    {"\\w+", "na\xc3\xafve \xce\x94x_1", "[\"na\xc3\xafve\",\"\xce\x94x_1\"]", " "},
    {"[^\\W\\d_]", "a1\xc3\xa9_", "[\"a\",\"\xc3\xa9\"]", "1_"},
    {"\\u00e9", "caf\xc3\xa9", "[\"\xc3\xa9\"]", "caf"},
    {".", "\xe2\x82\xac!", "[\"\xe2\x82\xac\",\"!\"]", ""},
};

static void one(size_t i)
{
    lf_err err = LF_ERR_INIT;
    lf_buf rest;
    lf_buf_init(&rest);
    lf_pyre *re = lf_pyre_create(cases[i].pattern, &err);
    const size_t len = strlen(cases[i].text);
    json_t *all = re ? lf_pyre_findall(re, cases[i].text, len, &err) : NULL;
    char *got = all ? json_dumps(all, JSON_COMPACT) : NULL;
    tap_str(got ? got : err.text, cases[i].found, cases[i].pattern);
    if (!re || lf_pyre_remove(re, cases[i].text, len, &rest, &err))
        tap_ok(false, "%s: removed: %s", cases[i].pattern, err.text);
    else
        tap_str(rest.data ? rest.data : "", cases[i].rest, "and removed");
    free(got);
    json_decref(all);
    lf_buf_fini(&rest);
    lf_pyre_destroy(re);
}

static void refused(const char *pattern, int rc, const char *says)
{
    lf_err err = LF_ERR_INIT;
    lf_pyre *re = lf_pyre_create(pattern, &err);
    tap_rc(re ? 0 : err.rc, rc, &err, says, pattern);
    lf_pyre_destroy(re);
}

/* A pattern that would search for hours gives up by name. */
static void hopeless(void)
{
    lf_err err = LF_ERR_INIT;
    static char text[200];
    memset(text, 'a', sizeof text - 2);
    text[sizeof text - 2] = '!';
    lf_pyre *re = lf_pyre_create("(a|a)*b|(a+)+c", &err);
    json_t *all = re ? lf_pyre_findall(re, text, strlen(text), &err) : NULL;
    tap_rc(all ? 0 : err.rc, LF_EFORMAT, &err, "gave up", "a search without end");
    json_decref(all);
    lf_pyre_destroy(re);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TAP(2, one(i));
    TAP(1, refused("a{,3}", LF_ENOTSUP, "{0,n}"));
    TAP(1, refused("[a[b]", LF_ENOTSUP, "read differently"));
    TAP(1, refused("(a", LF_EFORMAT, "(a"));
    TAP(1, refused("*", LF_EFORMAT, "*"));
    TAP(1, hopeless());
    return tap_done();
}
