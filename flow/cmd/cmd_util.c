/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "flow/cmd/cmd.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"

int lf_cmd_project(lf_project *out, const lf_cmd *c, lf_err *err)
{
    const char *given = lf_optset_str(c->opts, "project");
    if (given != NULL)
        return lf_project_open(out, given, false, err);
    char *root = NULL;
    int rc = lf_project_find(&root, ".", err);
    if (rc == 0)
        rc = lf_project_open(out, root, false, err);
    free(root);
    return rc;
}

const char *lf_cmd_word(const lf_cmd *c, int i)
{
    return i < c->n_words ? c->words[i] : NULL;
}

/* Null members of objects, at any depth. */
static void drop_nulls(json_t *v)
{
    const char *k;
    json_t *m;
    void *tmp;
    size_t i;
    if (json_is_array(v))
        json_array_foreach(v, i, m) drop_nulls(m);
    if (!json_is_object(v))
        return;
    json_object_foreach_safe(v, tmp, k, m)
    {
        if (json_is_null(m))
            json_object_del(v, k);
        else
            drop_nulls(m);
    }
}

static int print_json(json_t *o, size_t flags, lf_err *err)
{
    if (o == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    drop_nulls(o);
    json_object_set_new(o, "schema", json_integer(LF_JSON_SCHEMA));
    char *text = json_dumps(o, flags | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_decref(o);
    if (text == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    puts(text);
    free(text);
    return fflush(stdout) == 0 ? 0 : lf_fail_errno(err, "cannot write to standard output");
}

int lf_cmd_print_json(json_t *o, lf_err *err)
{
    return print_json(o, JSON_INDENT(2), err);
}

int lf_cmd_print_json_line(json_t *o, lf_err *err)
{
    return print_json(o, JSON_COMPACT, err);
}

void lf_cmd_print_head(const json_t *run)
{
    const char *name = json_string_value(json_object_get(run, "name")),
               *state = json_string_value(json_object_get(run, "state"));
    lf_say("run %s  %s  ", json_string_value(json_object_get(run, "run")),
           name != NULL ? name : "-");
    if (lf_colour() && state != NULL)
        printf("\033[%sm%s\033[0m\n", lf_state_colour(state), state);
    else
        printf("%s\n", state != NULL ? state : "");
}

int lf_cmd_with_project(lf_cmd *c, int (*fn)(lf_cmd *c, const lf_project *p, lf_err *err),
                        lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = fn(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

char *lf_cmd_model_dir(void)
{
    char self[PATH_MAX], dir[PATH_MAX];
    const char *env = getenv("LF_MODELS_DIR");
    if (env != NULL && env[0] == '/')
        return lf_strdup(env, NULL);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        *slash = '\0';
        static const char *const subs[] = {"/models", "/../models", "/../share/loong-flow/models"};
        for (size_t i = 0; i < 3; i++)
            if (lf_path_set(dir, NULL, "%s%s", self, subs[i]) == 0 && lf_io_exists(dir))
                return lf_strdup(dir, NULL);
    }
    return lf_io_exists(LF_DATADIR "/models") ? lf_strdup(LF_DATADIR "/models", NULL) : NULL;
}

lf_ledger *lf_cmd_open_ledger(const lf_project *p, bool everything, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = lf_ask_sync(NULL, p, everything, &e);
    lf_ledger *l = lf_ask_open(p, err);
    if (rc < 0 && l != NULL) /* otherwise the same is said once, as the command's own failure */
        lf_say_err("loong-flow: the ledger is not up to date: %s\n", e.text);
    return l;
}

int lf_cmd_rows(const lf_cmd *c, json_t *rows, const lf_table *t, lf_err *err)
{
    lf_column own[64];
    lf_table mine = {.cols = own};
    if (rows == NULL)
        return err->rc != 0 ? err->rc : LF_EIO;
    if (c->json)
        return lf_cmd_print_json(json_pack("{s:o}", "rows", rows), err);
    if (t == NULL) {
        const char *k;
        json_t *v;
        json_object_foreach(json_array_get(rows, 0), k, v) if (mine.n_cols < 64)
        {
            own[mine.n_cols++] = (lf_column){k, k, json_is_number(v), false};
        }
        t = &mine;
    }
    int rc = t->n_cols > 0 ? lf_table_show(t, rows, lf_optset_str(c->opts, "columns"), err) : 0;
    json_decref(rows);
    return rc;
}
