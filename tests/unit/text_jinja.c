/* SPDX-License-Identifier: Apache-2.0
 *
 * The Jinja interpreter against what Jinja2 rendered (tests/golden/jinja/make_jinja.py), its
 * bounds, its messages. text_jinja FILE...: the cases of other files, for random ones. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/jinja/jinja.h"
#include "tests/tap/tap.h"

struct result {
    lf_err err;
    lf_buf out;
    lf_jinja_spans spans;
    int rc;
};

static void render(struct result *r, const char *source, json_t *vars, const lf_jinja_opts *o)
{
    *r = (struct result){.err = LF_ERR_INIT};
    lf_buf_init(&r->out);
    lf_buf_adds(&r->out, "kept");
    lf_jinja *t = lf_jinja_parse(source, strlen(source), "t", &r->err);
    r->rc = t ? lf_jinja_render(t, vars, o, &r->out, &r->spans, &r->err) : r->err.rc;
    lf_jinja_destroy(t);
}

static void done(struct result *r)
{
    lf_buf_fini(&r->out);
    free(r->spans.v);
}

/* ---- against Jinja2 ---- */

static bool same_spans(const struct result *r, json_t *want)
{
    if (r->spans.n != json_array_size(want))
        return false;
    for (size_t i = 0; i < r->spans.n; i++) {
        json_t *w = json_array_get(want, i);
        lf_jinja_span s = r->spans.v[i];
        if (s.end - s.begin != json_string_length(w) ||
            memcmp(r->out.data + 4 + s.begin, json_string_value(w), json_string_length(w)) != 0)
            return false;
    }
    return true;
}

/* Equal text; where Python fails we do; what is left out says so. */
static bool one_case(json_t *c, json_t *shared, const lf_jinja_opts *o, int *unsupported)
{
    const char *template = json_string_value(json_object_get(c, "template"));
    json_t *vars = json_object_get(c, "vars"), *want = json_object_get(c, "out");
    struct result r;
    render(&r, template,
           json_is_string(vars) ? json_object_get(shared, json_string_value(vars)) : vars, o);
    bool ok;
    if (!want) {
        ok = r.rc < 0 && r.err.text[0] != 0 && r.out.len == 4;
    } else if (r.rc == LF_ENOTSUP) {
        ok = true;
        ++*unsupported;
        tap_diag("left out: %s: %s", template, r.err.text);
    } else {
        ok = r.rc == 0 && r.out.len - 4 == json_string_length(want) &&
             memcmp(r.out.data + 4, json_string_value(want), r.out.len - 4) == 0 &&
             same_spans(&r, json_object_get(c, "spans"));
    }
    if (!ok) {
        tap_diag("template: %.600s", template);
        tap_diag("wanted: %s", want ? json_string_value(want) : "an error");
        tap_diag("got %d: %s", r.rc, r.rc ? r.err.text : r.out.data + 4);
    }
    done(&r);
    return ok;
}

static void compare_file(const char *path, int may_be_left_out)
{
    lf_err err = LF_ERR_INIT;
    json_t *all = lf_json_load_file(path, (size_t)256 << 20, &err),
           *cases = json_object_get(all, "cases");
    if (!all)
        tap_bail("%s", err.text);
    lf_jinja_opts o = {.now = json_integer_value(json_object_get(all, "now"))};
    int wrong = 0, unsupported = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *c = json_array_get(cases, i);
        if (one_case(c, json_object_get(all, "shared"), &o, &unsupported))
            continue;
        wrong++;
        tap_diag("case %zu (%s) differs", i, json_string_value(json_object_get(c, "name")));
    }
    tap_ok(json_array_size(cases) > 0, "%s: %zu cases", path, json_array_size(cases));
    tap_i64(wrong, 0, "cases that differ from Jinja2");
    tap_ok(unsupported <= may_be_left_out, "%d are said to be left out", unsupported);
    json_decref(all);
}

/* The comparison notices a wrong text, a missing error, a missing span. */
static void test_comparison(void)
{
    int n = 0;
    json_t *wrong = json_pack("{s:s, s:{}, s:s}", "template", "{{ 1 + 1 }}", "vars", "out", "3"),
           *error = json_pack("{s:s, s:{}, s:b}", "template", "{{ 1 }}", "vars", "error", 1),
           *span =
               json_pack("{s:s, s:{}, s:s, s:[s]}", "template",
                         "{% generation %}a{% endgeneration %}", "vars", "out", "a", "spans", "b");
    tap_diag("three differences that must be seen follow");
    tap_ok(!one_case(wrong, NULL, NULL, &n), "a wrong text is noticed");
    tap_ok(!one_case(error, NULL, NULL, &n), "a missing error is noticed");
    tap_ok(!one_case(span, NULL, NULL, &n), "a wrong span is noticed");
    json_decref(wrong);
    json_decref(error);
    json_decref(span);
}

/* Blocks of generation inside of what is caught and printed at once. */
static void spans_are(const char *source, const char *out, const char *first, const char *second)
{
    int n = 0;
    json_t *c = json_pack("{s:s, s:{s:s}, s:s, s:[s, s]}", "template", source, "vars", "s", "x",
                          "out", out, "spans", first, second);
    tap_ok(one_case(c, NULL, NULL, &n) && n == 0, "%s", source);
    json_decref(c);
}

#define GEN(text) "{% generation %}" text "{% endgeneration %}"

static void test_caught(void)
{
    struct result r;
    spans_are("{% macro m(a) %}<" GEN("{{ a }}") ">{% endmacro %}\u00e9{{ m(s) }}|{{ m('yy') }}",
              "\u00e9<x>|<yy>", "x", "yy");
    spans_are("{% macro m(a) %}({{ caller() }}){% endmacro %}a{% call m(1) %}b" GEN(
                  "{{ s }}") "{% endcall %}" GEN("c"),
              "a(bx)c", "x", "c");
    spans_are("{% filter trim %}" GEN("x") GEN("y") "{% endfilter %}", "xy", "x", "y");
    json_t *vars = json_object();
    const char *kept = "{% set a %}" GEN("x") "{% endset %}b{{ a }}";
    render(&r, kept, vars, NULL);
    tap_rc(r.rc, LF_ENOTSUP, &r.err, "printed elsewhere", "what is kept for later");
    done(&r);
    render(&r, "{% filter upper %}" GEN("x") "{% endfilter %}", vars, NULL);
    tap_rc(r.rc, LF_ENOTSUP, &r.err, "t:1:22", "what a filter changes");
    done(&r);
    lf_err err = LF_ERR_INIT;
    lf_buf out;
    lf_buf_init(&out);
    lf_jinja *t = lf_jinja_parse(kept, strlen(kept), "t", &err);
    tap_rc(lf_jinja_render(t, vars, NULL, &out, NULL, &err), 0, &err, NULL, "without spans");
    tap_str(out.data, "bx", "is a text like another");
    lf_jinja_destroy(t);
    lf_buf_fini(&out);
    json_decref(vars);
}

/* ---- messages and bounds ---- */

static void expect(const char *source, const lf_jinja_opts *o, int rc, const char *text)
{
    struct result r;
    json_t *vars = json_pack("{s:s, s:[i,i,i]}", "s", "text", "xs", 1, 2, 3);
    render(&r, source, vars, o);
    tap_rc(r.rc, rc, &r.err, text, source);
    tap_str(r.out.data, "kept", "and nothing is written");
    tap_i64((int64_t)r.spans.n, 0, "nor a span noted");
    json_decref(vars);
    done(&r);
}

static void test_messages(void)
{
    expect("a\nb {{ nope.x }}", NULL, LF_EINVAL, "t:2:");
    expect("{{ nope.x }}", NULL, LF_EINVAL, "'nope' is undefined");
    expect("ä {{ s.nope.more }}", NULL, LF_EINVAL, "t:1:");
    expect("{{ raise_exception('roles must alternate') }}", NULL, LF_EINVAL,
           "roles must alternate");
    expect("x {% if s %}", NULL, LF_EFORMAT, "t:1:6: this if has no end");
    expect("{% for x in xs %}{% endif %}", NULL, LF_EFORMAT, "'endif'");
    expect("{{ s | frobnicate }}", NULL, LF_EFORMAT, "no filter 'frobnicate'");
    expect("{{ s is frobnicated }}", NULL, LF_EFORMAT, "no test 'frobnicated'");
    expect("{{ 1 + }}", NULL, LF_EFORMAT, "expected a value, found }}");
    expect("{{ 'abc }}", NULL, LF_EFORMAT, "this string has no end");
    expect("{% include 'x' %}", NULL, LF_EFORMAT, "'include' is not known here");
    expect("{{ xs.append(1) }}", NULL, LF_EINVAL, "would change a list");
    expect("{{ s.__class__.x }}", NULL, LF_EINVAL, "out of reach");
    expect("{% generation %}a{% endgeneration %}{{ nope() }}", NULL, LF_EINVAL,
           "'nope' is undefined");
    expect("{{ 9223372036854775807 + 1 }}", NULL, LF_ENOTSUP, "64 bits");
    expect("{{ '%s' % 1 }}", NULL, LF_ENOTSUP, "formatting");
    expect("\xff", NULL, LF_EFORMAT, "not UTF-8");
}

static void test_bounds(void)
{
    const lf_jinja_opts steps = {.max_steps = 1000}, output = {.max_output = 1000},
                        memory = {.max_memory = 1 << 20};
    expect("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", &steps,
           LF_ENOMEM, "1000 steps");
    expect("{% for a in range(1000) %}xxxx{% endfor %}", &output, LF_ENOMEM, "the text grows");
    expect("{% set x %}{% for a in range(1000) %}xxxx{% endfor %}{% endset %}", &output, LF_ENOMEM,
           "the text grows");
    expect("{{ 'x' * 100000000000 }}", NULL, LF_ENOMEM, "MiB");
    expect("{{ ['x'] * 9223372036854775807 }}", NULL, LF_ENOMEM, "MiB");
    expect("{% set ns = namespace(s='xx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% "
           "endfor %}",
           &memory, LF_ENOMEM, "1 MiB");
    expect("{{ ('x' * 10000).replace('', 'y' * 100000) }}", NULL, LF_ENOMEM, "MiB");
    expect("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, LF_ENOMEM,
           "nested more than 200");
    expect("{{ range(100001) }}", NULL, LF_EINVAL, "more than 100000");
}

/* Chains that nest when they are evaluated though they do not in the text, and values that grow
 * inwards. */
static void test_chains(void)
{
    static const struct {
        const char *begin, *link, *middle, *back, *end, *message;
    } chains[] = {{"{{ 1", " + 1", "", "", " }}", "nested more than"},
                  {"{{ s", " | trim", "", "", " }}", "nested more than"},
                  {"{{ s", "[0]", "", "", " }}", "nested more than"},
                  {"{{ s", " and s", "", "", " }}", "nested more than"},
                  {"{% set ", "(", "x", ")", " = 1 %}", "levels deep"},
                  {"{% for ", "(", "x", ")", " in xs %}", "levels deep"}};
    for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++) {
        lf_buf b;
        struct result r;
        json_t *vars = json_pack("{s:s, s:[i]}", "s", "text", "xs", 1);
        lf_buf_init(&b);
        lf_buf_adds(&b, chains[i].begin);
        for (int k = 0; k < 200000; k++)
            lf_buf_adds(&b, chains[i].link);
        lf_buf_adds(&b, chains[i].middle);
        for (int k = 0; k < 200000; k++)
            lf_buf_adds(&b, chains[i].back);
        lf_buf_adds(&b, chains[i].end);
        render(&r, b.data, vars, NULL);
        tap_ok(r.rc < 0 && strstr(r.err.text, chains[i].message), "200000 of '%s' (%s)",
               chains[i].link, r.err.text);
        done(&r);
        lf_buf_fini(&b);
        json_decref(vars);
    }
    expect("{% set ns = namespace(v=[]) %}{% for i in range(100000) %}{% set ns.v = [ns.v] %}{% "
           "endfor %}",
           NULL, LF_ENOMEM, "nested 400 deep");
    expect("{% set ns = namespace(v=[]) %}{% for i in range(100000) %}{% set ns.v = {'k': ns.v} "
           "%}{% endfor %}",
           NULL, LF_ENOMEM, "nested 400 deep");
    expect("{% set ns = namespace(v={}) %}{% for i in range(100000) %}{% set ns.v = dict(k=ns.v) "
           "%}{% endfor %}",
           NULL, LF_ENOMEM, "nested 400 deep");
    expect("{% set ns = namespace(v=[]) %}{% for i in range(100000) %}{% set ns.v = [ns.v] | list "
           "%}{% endfor %}",
           NULL, LF_ENOMEM, "nested 400 deep");
    expect("{% set ns = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] "
           "%}{% set ns.b = "
           "[ns.b, ns.b] %}"
           "{% endfor %}{{ ns.a == ns.b }}",
           NULL, LF_ENOMEM, "too much to be put into another");
}

static void test_depth(void)
{
    static const char *const close[] = {")", "]", "", "", "}", "", ")", "]", "", ""},
                             *const open[] = {"(",          "[",
                                              "-",          "not ",
                                              "{'a':",      "1 if 1 else ",
                                              "a(",         "a[",
                                              "{% if 1 %}", "{% for x in y %}"};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        lf_buf b;
        lf_buf_init(&b);
        bool tag = open[i][0] == '{' && open[i][1] == '%';
        lf_buf_adds(&b, tag ? "" : "{{ ");
        for (int k = 0; k < 100000; k++)
            lf_buf_adds(&b, open[i]);
        for (int k = 0; k < 100000; k++)
            lf_buf_adds(&b, close[i]);
        lf_buf_adds(&b, tag ? "" : " }}");
        lf_err err = LF_ERR_INIT;
        lf_jinja *t = lf_jinja_parse(b.data, b.len, "t", &err);
        tap_ok(!t && strstr(err.text, "levels deep"), "100000 of '%s' are refused (%s)", open[i],
               err.text);
        lf_jinja_destroy(t);
        lf_buf_fini(&b);
    }
}

/* Any text at all: parts of real templates put together anyhow must end in text or an error, and
 * nothing else. */
static void test_scraps(void)
{
    static const char *const parts[] = {
        "{{",      "}}",         "{%",         "%}",       "{#",       "#}",       "-", "+",
        " if ",    " for ",      " in ",       " endif ",  " endfor ", " set ",    "x", "xs",
        "s",       "=",          "==",         "(",        ")",        "[",        "]", "{",
        "}",       ",",          ".",          "|",        " upper",   "'a'",      "1", " is ",
        " not ",   " macro m()", " endmacro ", "\n",       " else ",   " defined", ":", "~",
        " raw %}", "{% endraw ", " call m()",  " endcall "};
    uint64_t seed = 12345;
    int ran = 0;
    json_t *vars = json_pack("{s:s, s:[i,i]}", "s", "text", "xs", 1, 2);
    for (int k = 0; k < 20000; k++) {
        char source[400] = "";
        for (int i = 0; i < 12; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            strcat(source, parts[(seed >> 33) % (sizeof(parts) / sizeof(parts[0]))]);
        }
        struct result r;
        render(&r, source, vars, NULL);
        ran += r.rc == 0 || r.err.text[0] != 0;
        done(&r);
    }
    tap_i64(ran, 20000, "scraps of templates end in text or a message");
    json_decref(vars);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        compare_file(argv[i], 1 << 30);
    if (argc > 1)
        return tap_done();
    char path[1024];
    const char *top = getenv("LF_SRCDIR");
    snprintf(path, sizeof(path), "%s/tests/golden/jinja/jinja.json", top ? top : ".");
    TAP(3, compare_file(path, 12));
    TAP(3, test_comparison());
    TAP(7, test_caught());
    TAP(51, test_messages());
    TAP(27, test_bounds());
    TAP(21, test_chains());
    TAP(10, test_depth());
    TAP(1, test_scraps());
    return tap_done();
}
