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

static const struct lf_fields item_fields = LF_FIELDS_SHOWN(
    lf_conf_item, LF_MEMBERS(lf_conf_item, section, key, value, layer, path, line, column),
    {LF_FIELD_AS(lf_conf_item, via, "inherited_from")});
static const struct lf_fields conf_fields = LF_FIELDS(lf_conf, {.key = "settings",
                                                                .type = LF_FIELD_ROWS,
                                                                .at = offsetof(lf_conf, items),
                                                                .n_at = offsetof(lf_conf, n_items),
                                                                .sub = &item_fields});

static int run_config(lf_cmd *c, lf_err *err)
{
    size_t n;
    const char **sets = lf_cmd_list(c, "set", &n, err);
    if (sets == NULL)
        return LF_ENOMEM;
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
        rc = lf_cmd_print(&conf, &conf_fields, err);
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

struct features {
    bool pmix, ucx, onednn, cuda, snappy, zstd, zlib, jpeg, png, webp;
    const char *hdf5;
};
static const struct lf_fields feature_fields =
    LF_FIELDS(struct features, LF_MEMBERS(struct features, pmix, ucx, onednn, cuda, snappy, zstd,
                                          zlib, jpeg, png, webp, hdf5));

struct kind {
    const char *name;
    int spec_version;
};
typedef LF_ROWS(struct kind) kinds;
static const struct lf_fields kind_fields =
    LF_FIELDS(struct kind, LF_MEMBERS(struct kind, spec_version));

struct version {
    const char *version, *commit;
    struct features features;
    lf_texts instruction_sets;
    kinds stages;
};
static const struct lf_fields version_fields =
    LF_FIELDS(struct version, LF_MEMBERS(struct version, version, commit),
              LF_RECORD(struct version, features, feature_fields),
              LF_MEMBERS(struct version, instruction_sets),
              {.key = "stages",
               .type = LF_FIELD_NAMED,
               .at = offsetof(struct version, stages.v),
               .n_at = offsetof(struct version, stages.n),
               .sub = &kind_fields});

static int run_version(lf_cmd *c, lf_err *err)
{
    if (!c->json)
        return print_version(c);
    const lf_built *w = lf_built_get();
    struct version v = {.version = PACKAGE_VERSION,
                        .commit = w->commit,
                        .features = {w->pmix, w->ucx, w->onednn, w->cuda, w->snappy, w->zstd,
                                     w->zlib, w->jpeg, w->png, w->webp, w->hdf5}};
    int rc = 0;
    for (const lf_opt_table *const *t = c->tables; rc == 0 && *t != NULL; t++) {
        struct kind *k = lf_rows_add(&v.stages, sizeof *k, err);
        if (k == NULL)
            rc = LF_ENOMEM;
        else
            *k = (struct kind){(*t)->stage, (*t)->spec_version};
    }
    for (const char *const *p = w->isas; rc == 0 && *p != NULL; p++)
        rc = lf_texts_add(&v.instruction_sets, *p, err);
    if (rc == 0)
        rc = lf_cmd_print(&v, &version_fields, err);
    free(v.stages.v);
    lf_texts_fini(&v.instruction_sets);
    return rc;
}

const lf_cmd_def lf_cmd_version = {
    .table = &version_table, .words = "", .max_words = 0, .run = run_version};
