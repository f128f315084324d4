/* SPDX-License-Identifier: Apache-2.0
 *
 * Records by their tables: what is read and written again is the same text, whatever is in it; what
 * other versions put in is passed over; what is not given stays so.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "flow/record/fields.h"
#include "tests/tap/tap.h"

struct part {
    const char *name;
    int n;
};
static const struct lf_fields part_fields = LF_FIELDS(struct part, LF_MEMBERS(struct part, n));

struct all {
    int small;
    int64_t big;
    uint64_t bits;
    double real;
    bool yes;
    const char *text;
    char chars[8];
    lf_texts texts;
    json_t *raw;
    struct part in, *part, *rows, *named;
    size_t n_rows, n_named;
};
static const struct lf_fields all_fields = LF_FIELDS(
    struct all, LF_FIELD_KIND("lf_all"), {LF_FIELD(struct all, small), .opt = true, .none = -1},
    LF_MEMBERS(struct all, big, bits), {LF_FIELD_AS(struct all, real, "t")},
    LF_MEMBERS_OPT(struct all, yes, text), {LF_FIELD_BUF(struct all, chars, "chars")},
    LF_MEMBERS_OPT(struct all, texts, raw), LF_RECORD(struct all, in, part_fields),
    {LF_FIELD_SUB(struct all, part, LF_FIELD_PART, &part_fields), .opt = true},
    {LF_FIELD_SUBS(struct all, rows, LF_FIELD_ROWS, &part_fields), .opt = true},
    {LF_FIELD_SUBS(struct all, named, LF_FIELD_NAMED, &part_fields), .opt = true});

/* Text to record to text. */
static char *through(struct all *a, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    char *out = NULL;
    if (lf_fields_read(a, &all_fields, o, "a text", NULL) == 0) {
        json_t *again = lf_fields_json(a, &all_fields, NULL);
        out = lf_json_dump(again, NULL);
        json_decref(again);
    }
    json_decref(o);
    return out;
}

static void test_same(void)
{
    static const char full[] =
        "{\"big\":9007199254740993,\"bits\":4026531836,\"chars\":\"abc\",\"in\":{\"n\":1},"
        "\"lf_all\":1,\"named\":{\"a\":{\"n\":4},\"b\":{\"n\":5}},\"part\":{\"n\":2},\"raw\":[null,"
        "{\"x\":1.5}],\"rows\":[{\"n\":3}],\"small\":0,\"t\":1764244357.25,\"text\":\"\","
        "\"texts\":[\"p\",\"q\"],\"yes\":true}";
    struct all a;
    char *out = through(&a, full);
    tap_ok(out != NULL && strcmp(out, full) == 0, "a record is written as it was read");
    tap_ok(a.n_named == 2 && strcmp(a.named[1].name, "b") == 0 && a.named[1].n == 5,
           "the members of an object of records have their names");
    free(out);
    lf_fields_fini(&a, &all_fields);
}

static void test_absent(void)
{
    static const char none[] = "{\"big\":0,\"bits\":0,\"chars\":\"\",\"in\":{\"n\":0},\"lf_all\":1,"
                               "\"t\":0.0}";
    struct all a;
    char *out = through(&a, "{}");
    tap_ok(out != NULL && strcmp(out, none) == 0,
           "what is not given is not written when it is opt");
    tap_ok(a.small == -1 && a.text == NULL && !a.texts.given && a.rows == NULL && a.part == NULL,
           "and can be told from what is empty");
    free(out);
    out = through(&a, "{\"small\":\"1\",\"big\":{},\"text\":7,\"texts\":{},\"rows\":1,\"part\":[],"
                      "\"new\":1,\"chars\":\"longer than it\"}");
    tap_ok(a.small == -1 && a.text == NULL && !a.texts.given && a.rows == NULL && a.part == NULL &&
               strcmp(a.chars, "longer ") == 0,
           "values of other types count as not given, and what does not fit is cut off");
    free(out);
    lf_fields_fini(&a, &all_fields);
    out = through(&a, "{\"texts\":[],\"rows\":[],\"named\":{}}");
    tap_ok(out != NULL && strstr(out, "\"texts\":[]") != NULL &&
               strstr(out, "\"rows\":[]") != NULL && strstr(out, "\"named\":{}") != NULL,
           "a list that is empty is given");
    free(out);
    lf_fields_fini(&a, &all_fields);
}

/* A strict part of a plain record: what it refuses is named from the file on, and members that it
 * does not know are written again. */
struct kept {
    bool given;
    char *name;
    lf_int n;
    lf_pairs words;
    struct json_t *more;
};
static const struct lf_fields kept_fields = LF_FIELDS_PART(
    struct kept, LF_MEMBERS_NEEDED(struct kept, name), LF_MEMBERS(struct kept, n, words));
struct holder {
    int n;
    struct kept kept;
};
static const struct lf_fields holder_fields =
    LF_FIELDS(struct holder, LF_MEMBERS(struct holder, n),
              LF_RECORD(struct holder, kept, kept_fields, .opt = true));

static void test_strict(void)
{
    static const char full[] = "{\"kept\":{\"name\":\"x\",\"new\":[1],\"none\":null,\"words\":{"
                               "\"a\":\"b\"}},\"n\":1}";
    static const char *const bad[][2] = {
        {"{\"kept\":{\"n\":1}}", "r.json: kept.name: is missing"},
        {"{\"kept\":{\"name\":\"x\",\"n\":1.5}}", "r.json: kept.n: must be an integer"},
        {"{\"kept\":{\"name\":\"x\",\"words\":{\"a\":1}}}",
         "r.json: kept.words: must be an object of texts"}};
    struct holder h;
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_fields_parse(&h, &holder_fields, full, strlen(full), "r.json", &err), 0, NULL, NULL,
           "read");
    char *out = lf_fields_text(&h, &holder_fields, NULL);
    tap_str(out, full, "members that it does not know are written again");
    free(out);
    lf_fields_fini(&h, &holder_fields);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lf_err_clear(&err);
        tap_rc(lf_fields_parse(&h, &holder_fields, bad[i][0], strlen(bad[i][0]), "r.json", &err),
               LF_EFORMAT, &err, bad[i][1], bad[i][1]);
    }
    lf_err_clear(&err);
    tap_ok(lf_fields_parse(&h, &holder_fields, "{\"kept\":1}", 10, "r.json", &err) == 0 &&
               !h.kept.given,
           "what is no object gives a plain record none");
    lf_fields_fini(&h, &holder_fields);
}

static void test_files(void)
{
    struct all a = {.small = -1, .text = "x"}, *b = &a;
    lf_err err = LF_ERR_INIT;
    tap_ok(lf_fields_load(&b, &all_fields, tap_tmpdir(), "r.json", &err) == 0 && b == NULL,
           "a record that is not there is none");
    tap_ok(lf_fields_publish(tap_tmpdir(), "r.json", &all_fields, &a, &err) == 0, "published");
    tap_ok(lf_fields_publish(tap_tmpdir(), "r.json", &all_fields, &a, &err) == LF_EEXIST,
           "and never over one that is there");
    lf_err_clear(&err);
    tap_ok(lf_fields_load(&b, &all_fields, tap_tmpdir(), "r.json", &err) == 0 && b != NULL &&
               strcmp(b->text, "x") == 0,
           "read");
    lf_fields_free(b, &all_fields);
    char path[4096];
    snprintf(path, sizeof path, "%s/list.json", tap_tmpdir());
    FILE *f = fopen(path, "w");
    fputs("[]", f);
    fclose(f);
    tap_ok(lf_fields_load(&b, &all_fields, tap_tmpdir(), "list.json", &err) == LF_EFORMAT &&
               b == NULL,
           "a file that holds no object is an error");
}

int main(void)
{
    test_same();
    test_absent();
    test_strict();
    test_files();
    return tap_done();
}
