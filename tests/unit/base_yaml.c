/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.h: what PyYAML reads of the same texts (golden/yaml), and every refusal with its position.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/yaml.h"
#include "tests/tap/tap.h"

static void test_golden(void)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/tests/golden/yaml/yaml.json", getenv("LF_SRCDIR"));
    json_t *all = lf_json_load_file(path, 1 << 20, &err), *one;
    size_t i, same = 0;
    json_array_foreach(all, i, one)
    {
        const json_t *text = json_object_get(one, "yaml");
        lf_err why = LF_ERR_INIT;
        json_t *v = lf_yaml_load_text(json_string_value(text), json_string_length(text), "y", &why);
        const bool is = v && json_equal(v, json_object_get(one, "value"));
        same += is;
        if (!is)
            tap_diag("text %zu: %s", i, v ? "another value" : why.text);
        json_decref(v);
    }
    tap_ok(all && same == json_array_size(all), "%zu texts are what PyYAML makes of them", same);
    json_decref(all);
}

static void test_refusals(void)
{
    static const struct {
        const char *text, *says;
    } v[] = {
        {"a: &b c", "y:1:4: an anchor"},
        {"a: *b", "y:1:4: an alias"},
        {"a:\n  - !t b", "y:2:5: a tag"},
        {"a: |\n  b", "y:1:4: a text over several"},
        {"a: >-\n  b", "y:1:4: a text over several"},
        {"%YAML 1.2\n---\na: b", "y:1:1: a directive"},
        {"? a\n: b", "y:1:1: a key with ?"},
        {"a: b\na: c", "y:2:1: this key stands here twice"},
        {"{a: b, a: c}", "y:1:8: this key stands here twice"},
        {"a: b\n<<: c", "y:2:1: the merge key"},
        {"a: b: c", "y:1:5: a colon inside"},
        {"a: b\n  c", "y:2:3: this is indented more"},
        {"a:\n    b: c\n  d: e", "y:3:3: this is indented more"},
        {"a: - b", "y:1:4: a list cannot begin"},
        {"- a\nb: c", "y:2:1: this belongs to nothing"},
        {"a: b\n- c", "y:2:1: a list cannot begin"},
        {"a: b\n---\nc: d", "y:2:1: a second document"},
        {"a: b\n...\n", "y:2:1: a second document"},
        {"--- a", "y:1:5: a value on the line of ---"},
        {"a:\n\tb: c", "y:2:1: a tab"},
        {"a:\tb", "y:1:3: a tab"},
        {"a: b\tc", "y:1:5: a tab"},
        {"a: 'b", "y:1:4: a text between quotes"},
        {"a: 'b' c", "y:1:8: something stands behind"},
        {"a: \"\\q\"", "y:1:6: an escape that is not known"},
        {"a: \"\\x4\"", "y:1:7: an escape has too few"},
        {"a: \"\\ud800\"", "y:1:11: an escape is no character"},
        {"a: [b", "y:1:6: the file ends"},
        {"a: [b}", "y:1:6: a comma or the closing"},
        {"a: [b\n c]", "y:2:2: a comma or the closing"},
        {"a: {b}", "y:1:6: a key needs"},
        {"a: ]", "y:1:4: a bracket or comma"},
        {"a: @b", "y:1:4: a text cannot begin"},
        {"a\nb: c", "y:2:1: this belongs to nothing"},
        {"a: b\nc", "y:2:1: a key and a colon"},
        {"\xff", "y: it is no text: it holds bytes"},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_err err = LF_ERR_INIT;
        json_t *j = lf_yaml_load_text(v[i].text, strlen(v[i].text), "y", &err);
        tap_ok(!j && err.rc == LF_EFORMAT && strncmp(err.text, v[i].says, strlen(v[i].says)) == 0,
               "refused: %s", v[i].says);
        if (j || strncmp(err.text, v[i].says, strlen(v[i].says)) != 0)
            tap_diag("%s", j ? "it was read" : err.text);
        json_decref(j);
    }
    char deep[200];
    memset(deep, '[', sizeof deep);
    lf_err err = LF_ERR_INIT;
    json_t *j = lf_yaml_load_text(deep, sizeof deep, "y", &err);
    tap_ok(!j && strstr(err.text, "y:1:65: nested too deep"), "refused: too deep");
    lf_err_clear(&err);
    j = lf_yaml_load_text("a\0b", 3, "y", &err);
    tap_ok(!j && strstr(err.text, "it holds a NUL"), "refused: a NUL");
}

int main(void)
{
    test_golden();
    test_refusals();
    return tap_done();
}
