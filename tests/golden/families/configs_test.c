/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json beyond the golden ones: a family's own file with members changed means the model that
 * transformers 5.23 makes of it, or is refused by the name of the key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/hf.h"
#include "engine/convert/priv.h"
#include "tests/tap/tap.h"

/* drop: keys taken out, then patch: members set. want: conditions of map.h that the model fulfils,
 * or '!' and a part of the error. */
static const struct {
    const char *family, *drop, *patch, *want;
} rows[] = {
#include "tests/golden/families/configs_rows.inc"
};

static json_t *changed(const char *family, const char *drop, const char *patch)
{
    char path[4096], key[64];
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/families/%s", src ? src : ".", family);
    json_t *o = lf_hf_read_json(path, "config.json", &err), *more = json_loads(patch, 0, NULL);
    if (!o || !more)
        tap_bail("%s: %s: %s", path, patch, err.text);
    for (const char *p = drop; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, " "), p);
        if (json_object_del(o, key))
            tap_bail("%s has no %s", path, key);
    }
    json_object_update(o, more);
    json_decref(more);
    return o;
}

/* What an export says of a model without experts is read as the same model. */
static bool comes_back(const struct lf_hf_family *f, const lf_model_config *c, const char *want,
                       lf_err *err)
{
    lf_model_config back;
    json_t *o = lf_hf_config_write(f, c, "float32", err);
    const bool same =
        o && !lf_hf_config_read(&back, f, o, "config.json", err) && lf_map_when(want, &back);
    json_decref(o);
    return same;
}

static void test_row(size_t i)
{
    const bool refused = rows[i].want[0] == '!';
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    json_t *o = changed(rows[i].family, rows[i].drop, rows[i].patch);
    const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", &err);
    int rc = f ? lf_hf_config_read(&c, f, o, "config.json", &err) : err.rc;
    if (refused)
        tap_ok(rc && strstr(err.text, rows[i].want + 1), "%s, %s: refused with '%s': %s",
               rows[i].family, rows[i].patch, rows[i].want + 1, err.text);
    else
        tap_ok(
            !rc && lf_map_when(rows[i].want, &c) &&
                (strcmp(rows[i].want, "experts=0") != 0 || comes_back(f, &c, rows[i].want, &err)),
            "%s, %s: %s %s", rows[i].family, rows[i].patch, rows[i].want, err.text);
    json_decref(o);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TAP(1, test_row(i));
    return tap_done();
}
