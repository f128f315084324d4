/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates against jinja2 (tests/golden/chat), errors with their place, and limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/text/jinja.h"
#include "tests/tap/tap.h"

static int render(lf_buf *out, const char *text, json_t *vars, const lf_jinja_limits *lim, lf_err *err)
{
    lf_jinja *t = NULL;
    lf_buf_clear(out);
    int rc = lf_jinja_parse(&t, text, strlen(text), "t", err);
    if (rc == 0)
        rc = lf_jinja_render(t, vars, lim, out, err);
    lf_jinja_destroy(t);
    return rc;
}

static void test_golden(void)
{
    char path[4000];
    const char *src = getenv("LF_SRCDIR");
    lf_err err = LF_ERR_INIT;
    size_t i, wrong = 0, errors = 0;
    json_t *c;
    lf_buf out;
    lf_buf_init(&out);
    snprintf(path, sizeof path, "%s/tests/golden/chat/expected.json", src ? src : ".");
    json_t *j = lf_json_load_file(path, 1 << 24, &err);
    if (!j)
        tap_bail("%s", err.text);
    lf_jinja_limits lim = {.now = json_integer_value(json_object_get(j, "now"))};
    json_array_foreach(json_object_get(j, "cases"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name")),
                   *text = json_string_value(json_object_get(c, "template"));
        const char *want = json_string_value(json_object_get(c, "text"));
        if (!text)
            text = json_string_value(json_object_get(json_object_get(j, "templates"), name));
        int rc = render(&out, text, json_object_get(c, "vars"), &lim, &err);
        bool ok = want ? rc == 0 && strcmp(out.data, want) == 0 : rc != 0 && strncmp(err.text, "t:", 2) == 0;
        errors += !want;
        wrong += !ok;
        if (!ok)
            tap_diag("%.200s\n  got  %s\n  want %s", name, rc ? err.text : out.data, want ? want : "(an error)");
        lf_err_clear(&err);
    }
    tap_ok(wrong == 0 && i > 300 && errors > 20, "%zu templates give what jinja2 gives, %zu errors among them", i,
           errors);
    json_decref(j);
    lf_buf_fini(&out);
}

static void fails(const char *text, int want, const char *says)
{
    static const lf_jinja_limits lim = {.steps = 20000, .output = 10000, .memory = 1000000};
    lf_err err = LF_ERR_INIT;
    lf_buf out;
    lf_buf_init(&out);
    json_t *vars = json_pack("{s:s}", "s", "x");
    tap_rc(render(&out, text, vars, &lim, &err), want, &err, says, text);
    tap_i64((int64_t)out.len, 0, "and nothing is written");
    json_decref(vars);
    lf_buf_fini(&out);
}

static void test_errors(void)
{
    fails("a\n  {{ 1 +* 2 }}", LF_EFORMAT, "t:2:9: a value is missing");
    fails("{% if s %}\n\n{{ nothing.x }}{% endif %}", LF_EFORMAT, "t:3:12: 'nothing' is undefined");
    fails("{{ raise_exception('no system role') }}", LF_EINVAL, "t:1:4: the template refuses: no system role");
    fails("{% for i in range(9999999) %}{% endfor %}", LF_ENOMEM, "memory");
    fails("{% for i in range(900) %}{% for j in range(900) %}{% endfor %}{% endfor %}", LF_ENOMEM, "memory");
    fails("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", LF_EFORMAT, "nested too deeply");
    fails("{% for i in range(200) %}{{ s * 100 }}{% endfor %}", LF_ENUMERIC, "more than 10000 bytes");
    fails("{{ s * 99999999 }}", LF_EFORMAT, "too long");
    fails("{{ 9223372036854775807 + 1 }}", LF_EFORMAT, "leaves 64 bits");
    fails("{{ 9223372036854775808 }}", LF_EFORMAT, "64 bits");
    fails("{{ '\\u00e9' }}", LF_EFORMAT, "not supported");
    fails("{{ 'é' | upper }}", LF_EFORMAT, "beyond ASCII");
    char deep[3000];
    memset(deep, ')', sizeof deep);
    memset(deep + 3, '(', 1400);
    memcpy(deep, "{{ ", 3);
    deep[1403] = '1';
    memcpy(deep + 2804, " }}", 4);
    fails(deep, LF_EFORMAT, "nested too deeply");
    lf_err err = LF_ERR_INIT;
    lf_buf out;
    lf_buf_init(&out);
    json_t *vars = json_object();
    lf_jinja_limits lim = {.steps = 50};
    tap_rc(render(&out, "{% for i in [1,2,3,4,5,6,7,8,9] %}{{ i + i + i }}{% endfor %}", vars, &lim, &err), LF_ENUMERIC,
           &err, "more than 50 steps", "steps are bounded");
    json_decref(vars);
    lf_buf_fini(&out);
}

int main(void)
{
    test_golden();
    test_errors();
    return tap_done();
}
