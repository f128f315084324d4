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
#include "flow/cmd.h"
#include "flow/record.h"

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

const char *lf_cmd_word(const lf_cmd *c, int i) { return i < c->n_words ? c->words[i] : NULL; }

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

int lf_cmd_print_json(json_t *o, lf_err *err) { return print_json(o, JSON_INDENT(2), err); }

int lf_cmd_print_json_line(json_t *o, lf_err *err) { return print_json(o, JSON_COMPACT, err); }

void lf_cmd_print_head(const json_t *run)
{
    const char *name = json_string_value(json_object_get(run, "name")), *state = json_string_value(json_object_get(run, "state"));
    lf_say("run %s  %s  ", json_string_value(json_object_get(run, "run")), name != NULL ? name : "-");
    if (lf_colour() && state != NULL)
        printf("\033[%sm%s\033[0m\n", lf_state_colour(state), state);
    else
        printf("%s\n", state != NULL ? state : "");
}

int lf_cmd_with_project(lf_cmd *c, int (*fn)(lf_cmd *c, const lf_project *p, lf_err *err), lf_err *err)
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
