/* SPDX-License-Identifier: Apache-2.0
 *
 * [model] family = NAME gives what the import of a config.json of NAME gives, apart from sizes:
 * every switch of its table, and the numbers that follow from sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/hf.h"
#include "engine/convert/priv.h"
#include "tests/tap/tap.h"

static void test_switches(const struct lf_hf_family *f)
{
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    int missing = 0;
    lf_model_config_defaults(&c);
    if (lf_model_config_family(&c, f->name, "test", &err))
        tap_bail("%s", err.text);
    for (const char *const *s = f->switches; s && *s; s++) {
        lf_model_config with = c;
        char key[48];
        const char *eq = strchr(*s, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - *s), *s);
        if (lf_model_config_set(&with, key, eq + 1, "test", &err))
            tap_bail("%s", err.text);
        if (lf_model_config_equal(&c, &with, NULL) &&
            (strcmp(key, "init") != 0 || lf_model_config_is(&c, key, eq + 1)))
            continue;
        missing++;
        tap_diag("%s: the import has %s", f->name, *s);
    }
    tap_ok(missing == 0, "family = %s has each switch of its import", f->name);
}

/* The golden model of `dir`, and one of its family whose INI says all but these two keys. */
static void test_numbers(const char *dir)
{
    static const char *const follow[] = {"embed_scale", "scan_norm_parts"};
    const char *src = getenv("LF_SRCDIR"), *key;
    char path[4096];
    lf_err err = LF_ERR_INIT;
    lf_model_config was, is;
    json_t *v;
    snprintf(path, sizeof path, "%s/tests/golden/families/%s", src ? src : ".", dir);
    json_t *o = lf_hf_read_json(path, LF_HF_CONFIG, &err);
    const struct lf_hf_family *f = o ? lf_hf_family_of(o, path, &err) : NULL;
    if (!f || lf_hf_config_read(&was, f, o, path, &err))
        tap_bail("%s", err.text);
    json_t *keys = lf_model_config_to_json(&was, &err);
    lf_model_config_defaults(&is);
    int rc = lf_model_config_family(&is, was.family, "test", &err);
    json_object_foreach(keys, key, v)
    {
        bool follows = strcmp(key, "family") == 0;
        for (size_t i = 0; i < sizeof follow / sizeof *follow; i++)
            follows = follows || strcmp(key, follow[i]) == 0;
        if (rc == 0 && !follows)
            rc = lf_model_config_set(&is, key, json_string_value(v), "test", &err);
    }
    if (rc == 0)
        rc = lf_model_config_finish(&is, &err);
    key = "";
    const bool same = rc == 0 && lf_model_config_equal(&was, &is, &key);
    tap_ok(same, "%s: numbers follow from sizes %s%s", dir, err.text, same ? "" : key);
    json_decref(keys);
    json_decref(o);
}

int main(void)
{
    static const char *const dirs[] = {"gemma",          "gemma2", "gemma3", "gemma3n",   "gemma4",
                                       "gemma4-unified", "mamba2", "bamba",  "nemotron-h"};
    int n = 0;
    for (const struct lf_hf_family *const *f = lf_hf_families; *f; f++) {
        lf_model_config c;
        lf_model_config_defaults(&c);
        if ((*f)->lone || (*f)->sight || lf_model_config_family(&c, (*f)->name, "test", NULL))
            continue;
        n++;
        TAP(1, test_switches(*f));
    }
    tap_ok(n > 60, "%d families of convert are families of [model]", n);
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        TAP(1, test_numbers(dirs[i]));
    return tap_done();
}
