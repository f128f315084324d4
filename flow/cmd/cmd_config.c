/* SPDX-License-Identifier: Apache-2.0
 *
 * config: the settings in effect, and where each came from. version: what this program is.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/built.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/prep.h"

static const lf_opt config_rows[] = {
    LF_CMD_COMMON,
    {.name = "set",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "section.key=value over the file, may be repeated"},
    {.name = "origin",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "say where each value came from"},
};
LF_CMD_TABLE(config, "print the settings in effect", config_rows);
static const lf_opt version_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(version, "print the version and what is built in", version_rows);

static int print_json(const lf_conf *c, lf_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_items; i++) {
        const lf_conf_item *it = &c->items[i];
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i}", "section", it->section, "key",
                              it->key, "value", it->value, "layer", it->layer, "path", it->path,
                              "line", it->line, "column", it->column);
        if (o != NULL && it->via != NULL)
            json_object_set_new(o, "inherited_from", json_string(it->via));
        json_array_append_new(list, o);
    }
    return lf_cmd_print_json(json_pack("{s:o}", "settings", list), err);
}

static int run_config(lf_cmd *c, lf_err *err)
{
    size_t n = lf_optset_count(c->opts, "set");
    const char **sets = lf_calloc(n + 1, sizeof *sets, err);
    if (sets == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        sets[i] = lf_optset_str_at(c->opts, "set", i);
    const char *path = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini";
    lf_conf conf;
    lf_conf_args a = {.pipeline_path = path, .sets = sets, .n_sets = n};
    int rc = lf_conf_load(&conf, &a, err);
    free(sets);
    if (rc < 0)
        return rc;
    lf_buf b;
    lf_buf_init(&b);
    rc = lf_conf_resolve(&conf, err);
    if (rc == 0 && c->json)
        rc = print_json(&conf, err);
    else if (rc == 0 &&
             (rc = lf_conf_print(&conf, lf_optset_bool(c->opts, "origin"), &b, err)) == 0)
        lf_print_safe(b.data);
    lf_buf_fini(&b);
    lf_conf_fini(&conf);
    return rc;
}

const lf_cmd_def lf_cmd_config = {
    .table = &config_table, .words = "[PIPELINE]", .max_words = 1, .run = run_config};

static int print_version(lf_cmd *c)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "loong-flow %s\n", PACKAGE_VERSION);
    lf_built_add(&b);
    lf_buf_adds(&b, "stages:");
    for (const lf_opt_table *const *t = c->tables; *t != NULL; t++)
        lf_buf_addf(&b, " %s", (*t)->stage);
    puts(b.data);
    lf_buf_fini(&b);
    return 0;
}

static int run_version(lf_cmd *c, lf_err *err)
{
    if (!c->json)
        return print_version(c);
    json_t *kinds = json_object();
    for (const lf_opt_table *const *t = c->tables; *t != NULL; t++)
        json_object_set_new(kinds, (*t)->stage,
                            json_pack("{s:i}", "spec_version", (*t)->spec_version));
    const lf_built *w = lf_built_get();
    json_t *isas = json_array();
    for (const char *const *p = w->isas; *p != NULL; p++)
        json_array_append_new(isas, json_string(*p));
    json_t *o =
        json_pack("{s:s, s:s, s:{s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s}, s:o, s:o}", "version",
                  PACKAGE_VERSION, "commit", w->commit, "features", "pmix", w->pmix, "ucx", w->ucx,
                  "onednn", w->onednn, "cuda", w->cuda, "snappy", w->snappy, "zstd", w->zstd,
                  "zlib", w->zlib, "hdf5", w->hdf5, "instruction_sets", isas, "stages", kinds);
    return lf_cmd_print_json(o, err);
}

const lf_cmd_def lf_cmd_version = {
    .table = &version_table, .words = "", .max_words = 0, .run = run_version};
