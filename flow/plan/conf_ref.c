/* SPDX-License-Identifier: Apache-2.0
 *
 * ${references} in configuration values. Every value is resolved once, depth first; a reference
 * back to a value that is being resolved is a cycle and is reported with its members.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/conf.h"

#define REF_MAX_DEPTH 64
#define REF_MAX_VALUE (1u << 20)

struct trail {
    const lf_conf_item *items[REF_MAX_DEPTH + 1];
    int n;
};

static int resolve_item(lf_conf *c, size_t index, struct trail *t, lf_err *err);

static int cycle_error(const struct trail *t, const lf_conf_item *again, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    bool in = false;
    for (int i = 0; i < t->n; i++) {
        in = in || t->items[i] == again;
        if (in)
            lf_buf_addf(&b, "%s.%s -> ", t->items[i]->section, t->items[i]->key);
    }
    lf_buf_addf(&b, "%s.%s", again->section, again->key);
    int rc = lf_conf_fail(again, err, "references form a cycle: %s", b.data);
    lf_buf_fini(&b);
    return rc;
}

/* Section names may hold dots and blanks ("model qwen2.5"), so every dot is tried as the border. */
static lf_conf_item *find_target(const lf_conf *c, const char *name)
{
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        char section[256];
        size_t n = (size_t)(dot - name);
        if (n == 0 || n >= sizeof section)
            continue;
        memcpy(section, name, n);
        section[n] = '\0';
        lf_conf_item *it = lf_conf_find(c, section, dot + 1);
        if (it != NULL)
            return it;
    }
    return NULL;
}

const char *lf_stage_hint(char *buf, size_t cap, const lf_conf *c, const char *text)
{
    char section[160];
    text += strspn(text, "${");
    text += strncmp(text, "stage:", 6) == 0 ? 6 : 0;
    const size_t n = strcspn(text, "}"), name = strcspn(text, ".}");
    snprintf(section, sizeof section, "stage %.*s", (int)(name < 128 ? name : 128), text);
    buf[0] = '\0';
    if (name > 0 && n < 128 && lf_conf_find_section(c, section) != NULL)
        snprintf(buf, cap, "; did you mean ${stage:%.*s}?", (int)n, text);
    return buf;
}

static int unknown_target(const lf_conf *c, const lf_conf_item *it, const char *name, lf_err *err)
{
    char hint[200];
    if (lf_stage_hint(hint, sizeof hint, c, name)[0] != '\0')
        return lf_conf_fail(it, err, "${%s}: there is no such key%s", name, hint);
    const char **all = lf_calloc(c->n_items + 1, sizeof *all, err);
    if (all == NULL)
        return LF_ENOMEM;
    struct lf_arena *a = lf_arena_create(err);
    size_t n = 0;
    for (size_t i = 0; a != NULL && i < c->n_items; i++) {
        char *s = lf_arena_printf(a, err, "%s.%s", c->items[i].section, c->items[i].key);
        if (s != NULL)
            all[n++] = s;
    }
    const char *near = lf_nearest(name, all, n);
    int rc =
        near != NULL
            ? lf_conf_fail(it, err, "${%s}: there is no such key; did you mean ${%s}?", name, near)
            : lf_conf_fail(it, err, "${%s}: there is no such key", name);
    lf_arena_destroy(a);
    free(all);
    return rc;
}

static int expand_env(const lf_conf_item *it, const char *name, lf_buf *out, lf_err *err)
{
    if (lf_name_is_secret(name))
        return lf_conf_fail(
            it, err,
            "${env.%s} looks like a secret and is not copied into files; stages read it from "
            "their environment",
            name);
    const char *v = getenv(name);
    if (v == NULL)
        return lf_conf_fail(it, err, "${env.%s}: the environment has no such variable", name);
    lf_buf_adds(out, v);
    return 0;
}

static int expand_one(lf_conf *c, size_t index, const char *name, struct trail *t, lf_buf *out,
                      lf_err *err)
{
    const lf_conf_item *it = &c->items[index];
    if (lf_str_has_prefix(name, "env."))
        return expand_env(it, name + 4, out, err);
    lf_conf_item *target = find_target(c, name);
    if (target == NULL)
        return unknown_target(c, it, name, err);
    target->read = true;
    int rc = resolve_item(c, (size_t)(target - c->items), t, err);
    if (rc == 0)
        lf_buf_adds(out, target->value);
    return rc;
}

static int expand_value(lf_conf *c, size_t index, struct trail *t, lf_buf *out, lf_err *err)
{
    const lf_conf_item *it = &c->items[index];
    const char *p = it->raw;
    while (*p != '\0') {
        const char *d = strchr(p, '$');
        if (d == NULL) {
            lf_buf_adds(out, p);
            break;
        }
        lf_buf_add(out, p, (size_t)(d - p));
        if (lf_str_has_prefix(d, "$${")) {
            lf_buf_adds(out, "${");
            p = d + 3;
            continue;
        }
        if (d[1] != '{') {
            lf_buf_addc(out, '$');
            p = d + 1;
            continue;
        }
        const char *close = strchr(d, '}');
        if (close == NULL)
            return lf_conf_fail(it, err, "\"%.40s\": the reference has no closing brace", d);
        size_t n = (size_t)(close - d) - 2;
        char name[512];
        if (n == 0 || n >= sizeof name)
            return lf_conf_fail(it, err, "\"%.40s\": not a reference", d);
        memcpy(name, d + 2, n);
        name[n] = '\0';
        if (lf_str_has_prefix(name, "stage:")) {
            lf_buf_add(out, d, n + 3);
        } else {
            int rc = expand_one(c, index, name, t, out, err);
            if (rc < 0)
                return rc;
        }
        if (out->len > REF_MAX_VALUE)
            return lf_conf_fail(it, err,
                                "the value grows beyond 1 MiB when its references are replaced");
        p = close + 1;
    }
    return lf_buf_check(out, err);
}

static int resolve_item(lf_conf *c, size_t index, struct trail *t, lf_err *err)
{
    lf_conf_item *it = &c->items[index];
    if (it->value != NULL)
        return 0;
    if (it->phase == 3)
        return cycle_error(t, it, err);
    if (t->n >= REF_MAX_DEPTH)
        return lf_conf_fail(it, err, "references are nested more than %d deep", REF_MAX_DEPTH);
    it->phase = 3;
    t->items[t->n++] = it;
    lf_buf b;
    lf_buf_init(&b);
    int rc = expand_value(c, index, t, &b, err);
    if (rc == 0) {
        it->value = lf_arena_strdup(c->arena, b.data, err);
        rc = it->value == NULL ? LF_ENOMEM : 0;
    }
    t->n--;
    it->phase = 2;
    lf_buf_fini(&b);
    return rc;
}

int lf_conf_resolve(lf_conf *c, lf_err *err)
{
    for (size_t i = 0; i < c->n_items; i++) {
        struct trail t = {.n = 0};
        int rc = resolve_item(c, i, &t, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
