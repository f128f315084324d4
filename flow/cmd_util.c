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

int lf_cmd_print_json(json_t *o, lf_err *err)
{
    if (o == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    json_object_set_new(o, "schema", json_integer(LF_JSON_SCHEMA));
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_decref(o);
    if (text == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    puts(text);
    free(text);
    return fflush(stdout) == 0 ? 0 : lf_fail_errno(err, "cannot write to standard output");
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
