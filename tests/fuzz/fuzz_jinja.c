/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: chat templates, parsed and rendered within small limits.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = NULL;

static const char *const seeds[] = {"{% for m in messages %}{{ '<|' + m.role + '|>\\n' + "
                                    "m['content'] | trim }}{% if not loop.last %}, {% endif %}{% "
                                    "endfor %}",
                                    "{%- macro f(a, b=2) -%}{% if a > 0 %}{{ f(a - 1) ~ b }}{% "
                                    "endif %}{%- endmacro -%}{{ f(3, b='x') }}{# c #}\n",
                                    "{% set ns = namespace(n=0) %}{% for k, v in d | dictsort %}{% "
                                    "set ns.n = ns.n + v %}{% if ns.n == 3 %}{% break "
                                    "%}{% endif %}{% endfor %}{{ ns.n }}",
                                    "{{ s[::-1] }}{{ s[1:-1] }}{{ [3, 1.5, 'a' * 3] | "
                                    "tojson(indent=2) }}{{ s.split('l', 1) | join('-') }}{{ s | "
                                    "replace('l', '') }}",
                                    "{{ 7 // -2 }}{{ 7 % -2.5 }}{{ 2 ** 9 }}{{ d.get('z', u) is "
                                    "defined }}{{ messages | selectattr('role', 'eq', "
                                    "'user') | map(attribute='content') | list }}",
                                    "  {% if s is string and s in 'hello' or not u %}\n{{ s | "
                                    "upper }}{% elif none %}x{% else %}y{% endif %}\n{{ "
                                    "range(5) | sum }}{{ {'a': (1,)} }}"};

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    size_t n = i < sizeof seeds / sizeof seeds[0] ? strlen(seeds[i]) : 0;
    if (n == 0 || n > cap)
        return 0;
    memcpy(buf, seeds[i], n);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lf_jinja_opts lim = {
        .max_steps = 3000, .max_output = 20000, .max_memory = 2000000};
    static json_t *vars;
    lf_err err = LF_ERR_INIT;
    lf_buf out;
    if (!vars)
        vars = json_loads("{\"messages\":[{\"role\":\"user\",\"content\":\" h\\u00e9llo "
                          "\"},{\"role\":\"assistant\",\"content\":\"a\"}],"
                          "\"s\":\"hello\",\"d\":{\"a\":1,\"b\":2}}",
                          0, NULL);
    lf_buf_init(&out);
    lf_jinja *t = lf_jinja_parse((const char *)data, size, "t", &err);
    fuzz_check_error(err.rc, &err);
    if (t) {
        int rc = lf_jinja_render(t, vars, &lim, &out, NULL, &err);
        fuzz_check_error(rc, &err);
        if (rc != 0 && out.len != 0)
            abort();
    }
    lf_jinja_destroy(t);
    lf_buf_fini(&out);
    return 0;
}
