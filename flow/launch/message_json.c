/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of hub and daemons as JSON. The launcher includes engine/base alone, so that it does not
 * use the tables of flow/record.
 */
#include "config.h"

#include "flow/launch/message.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define RANKS_MAX (1 << 24) /* far above any job; what follows from it fits an int */

/* ---- parts ---- */

static char *own(const json_t *o, const char *key, const char *none, lf_err *err)
{
    const char *text = json_string_value(json_object_get(o, key));
    return lf_strdup(text != NULL ? text : none, err);
}

static int number(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static char **own_list(const json_t *o, const char *key, lf_err *err)
{
    const json_t *a = json_object_get(o, key);
    char **v = lf_calloc(json_array_size(a) + 1, sizeof *v, err);
    for (size_t i = 0; v != NULL && i < json_array_size(a); i++) {
        const char *text = json_string_value(json_array_get(a, i));
        v[i] = lf_strdup(text != NULL ? text : "", err);
    }
    return v;
}

static void free_list(char **v)
{
    for (char **p = v; p != NULL && *p != NULL; p++)
        free(*p);
    free(v);
}

/* any: texts that are not UTF-8 are left out; otherwise there is no list. */
static json_t *list_of(char *const *v, bool any)
{
    json_t *a = json_array();
    for (; a != NULL && v != NULL && *v != NULL; v++)
        if (json_array_append_new(a, json_string(*v)) < 0 && !any) {
            json_decref(a);
            a = NULL;
        }
    return a;
}

/* Takes o. */
static char *text_of(json_t *o, int rc, const char *what, lf_err *err)
{
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL)
        lf_fail(err, rc, "%s", what);
    return text;
}

/* ---- hello ---- */

char *lf_hello_text(const struct lf_hello *h, lf_err *err)
{
    return text_of(json_pack("{s:s, s:s}", "host", h->host, "tmp", h->tmp), LF_ENOMEM,
                   "cannot describe this node", err);
}

int lf_hello_read(struct lf_hello *out, const char *text, size_t len, lf_err *err)
{
    json_t *o = json_loadb(text, len, 0, NULL);
    *out = (struct lf_hello){own(o, "host", "?", err), own(o, "tmp", "", err)};
    json_decref(o);
    if (out->host != NULL && out->tmp != NULL)
        return 0;
    lf_hello_fini(out);
    return LF_ENOMEM;
}

void lf_hello_fini(struct lf_hello *h)
{
    free(h->host);
    free(h->tmp);
    memset(h, 0, sizeof *h);
}

/* ---- task ---- */

char *lf_task_text(const struct lf_task *t, lf_err *err)
{
    json_t *first = json_array();
    for (int k = 0; k <= t->nodes; k++)
        json_array_append_new(first, json_integer(t->first[k]));
    json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:i, s:b, s:i}", "ns", t->ns, "hosts",
                          list_of(t->hosts, false), "first", first, "argv", list_of(t->argv, false),
                          "cpus", t->cpus, "bind", t->bind, "node", t->node);
    return text_of(o, LF_EINVAL, "a word of the command is not UTF-8", err);
}

static int read_task(struct lf_task *t, const json_t *o, lf_err *err)
{
    const json_t *first = json_object_get(o, "first");
    const size_t nodes = json_array_size(json_object_get(o, "hosts"));
    t->nodes = (int)nodes;
    t->node = number(o, "node");
    t->cpus = number(o, "cpus");
    t->bind = json_is_true(json_object_get(o, "bind"));
    if (nodes == 0 || json_array_size(first) != nodes + 1 ||
        json_array_size(json_object_get(o, "argv")) == 0)
        return lf_fail(err, LF_EFORMAT, "the launcher's description of the job cannot be read");
    if (t->node < 0 || (size_t)t->node >= nodes)
        return lf_fail(err, LF_EFORMAT, "node %d of %zu", t->node, nodes);
    t->ns = own(o, "ns", "", err);
    t->hosts = own_list(o, "hosts", err);
    t->argv = own_list(o, "argv", err);
    t->first = lf_calloc(nodes + 1, sizeof *t->first, err);
    if (t->ns == NULL || t->hosts == NULL || t->argv == NULL || t->first == NULL)
        return LF_ENOMEM;
    for (size_t k = 0; k <= nodes; k++) {
        const json_int_t rank = json_integer_value(json_array_get(first, k));
        const int least = k == 0 ? 0 : t->first[k - 1], most = k == 0 ? 0 : RANKS_MAX;
        if (rank < least || rank > most)
            return lf_fail(err, LF_EFORMAT, "the ranks of node %zu begin at %lld", k,
                           (long long)rank);
        t->first[k] = (int)rank;
    }
    return 0;
}

int lf_task_read(struct lf_task *out, const char *text, size_t len, lf_err *err)
{
    json_t *o = json_loadb(text, len, 0, NULL);
    memset(out, 0, sizeof *out);
    int rc = read_task(out, o, err);
    json_decref(o);
    if (rc < 0)
        lf_task_fini(out);
    return rc;
}

void lf_task_fini(struct lf_task *t)
{
    free(t->ns);
    free_list(t->hosts);
    free_list(t->argv);
    free(t->first);
    memset(t, 0, sizeof *t);
}

/* ---- boot ---- */

char *lf_boot_text(const struct lf_boot *b, lf_err *err)
{
    json_t *o = json_pack("{s:s, s:i, s:o, s:s*, s:o*}", "key", b->key, "port", (int)b->port,
                          "addresses", list_of(b->addresses, true), "cwd", b->cwd, "env",
                          b->env != NULL ? list_of(b->env, true) : NULL);
    return text_of(o, LF_ENOMEM, "cannot write the boot document", err);
}

int lf_boot_read(struct lf_boot *out, const char *text, size_t len, lf_err *err)
{
    json_t *o = json_loadb(text, len, 0, NULL);
    memset(out, 0, sizeof *out);
    if (o == NULL)
        return lf_fail(err, LF_EFORMAT, "the launcher's boot document cannot be read");
    out->key = own(o, "key", "", err);
    out->port = (uint16_t)number(o, "port");
    out->addresses = own_list(o, "addresses", err);
    out->env = own_list(o, "env", err);
    out->cwd = json_object_get(o, "cwd") != NULL ? own(o, "cwd", "", err) : NULL;
    json_decref(o);
    if (out->key != NULL && out->addresses != NULL && out->env != NULL)
        return 0;
    lf_boot_fini(out);
    return LF_ENOMEM;
}

void lf_boot_fini(struct lf_boot *b)
{
    free(b->key);
    free(b->cwd);
    free_list(b->addresses);
    free_list(b->env);
    memset(b, 0, sizeof *b);
}
