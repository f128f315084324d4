/* SPDX-License-Identifier: Apache-2.0
 *
 * Installed model descriptions.
 */
#include "config.h"

#include "flow/plan/presets.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/record/record.h"

enum { MAX_BASES = 8 };

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int lf_presets_list(lf_texts *out, const char *dir, lf_err *err)
{
    lf_texts names = {.given = true};
    DIR *d = dir != NULL ? opendir(dir) : NULL;
    int rc = 0;
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0;
         e = readdir(d)) {
        char name[NAME_MAX + 1];
        if (!lf_str_has_suffix(e->d_name, ".ini") || e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strlen(e->d_name) - 4, e->d_name);
        rc = lf_texts_add(&names, name, err);
    }
    if (d != NULL)
        closedir(d);
    if (names.n > 1)
        qsort(names.v, names.n, sizeof *names.v, by_name);
    if (rc < 0)
        lf_texts_fini(&names);
    else
        *out = names;
    return rc;
}

void lf_presets_hint(char *buf, size_t cap, const char *dir, const char *name)
{
    lf_texts names = {.n = 0};
    if (lf_presets_list(&names, dir, NULL) < 0)
        names.n = 0;
    const char *near = lf_nearest(name, (const char *const *)names.v, names.n);
    snprintf(buf, cap, "%s%s%s`loong-flow models` lists what is installed",
             near != NULL ? "did you mean " : "", near != NULL ? near : "",
             near != NULL ? "? " : "");
    lf_texts_fini(&names);
}

static int load(lf_pairs *out, const char *dir, const char *name, int depth, lf_err *err)
{
    char path[PATH_MAX], hint[200];
    lf_ini ini;
    lf_presets_hint(hint, sizeof hint, dir, name);
    if (dir == NULL || name[0] == '.' || strchr(name, '/') != NULL || depth > MAX_BASES ||
        lf_path_set(path, NULL, "%s/%s.ini", dir, name) < 0 || !lf_io_exists(path))
        return lf_fail(err, LF_ENOENT, "there is no model \"%s\"; %s", name, hint);
    int rc = lf_ini_parse_file(&ini, path, err);
    if (rc < 0)
        return rc;
    const char *base = NULL;
    for (size_t i = 0; rc == 0 && i < ini.n_entries; i++) {
        const lf_ini_entry *e = &ini.entries[i];
        if (strcmp(e->key, "preset") == 0)
            base = e->value;
        else if (lf_pairs_get(out, e->key) == NULL)
            rc = lf_pairs_add(out, e->key, e->value, err);
    }
    if (rc == 0 && base != NULL)
        rc = load(out, dir, base, depth + 1, err);
    lf_ini_fini(&ini);
    return rc;
}

int lf_preset_load(lf_pairs *out, const char *dir, const char *name, lf_err *err)
{
    lf_pairs keys = {.given = true};
    int rc = load(&keys, dir, name, 0, err);
    if (rc < 0)
        lf_pairs_fini(&keys);
    else
        *out = keys;
    return rc;
}
