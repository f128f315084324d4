/* SPDX-License-Identifier: Apache-2.0
 *
 * init: a pipeline file to begin with.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/io.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/init_texts.h"

static const lf_opt init_rows[] = {
    LF_CMD_COMMON,
    {.name = "output",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .def = "pipeline.ini",
     .help = "file to write, - for standard output"},
    {.name = "list", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no", .help = "list the uses"},
};
LF_CMD_TABLE(init, "write a pipeline file for a use", init_rows);

struct use {
    const char *use, *what;
    const char *const
        *lines; /* templates/init/USE.ini, made into text by the build; NULL-terminated */
};
static const struct use uses[] = {
    {"pretrain", "text -> tokens -> a model from scratch -> samples and evaluation",
     lf_init_pretrain},
    {"tokenize", "text -> tokenizer and shards", lf_init_tokenize},
    {"sft", "a published model and conversations -> a fine-tuned model and its files", lf_init_sft},
    {"eval", "measure a checkpoint and let it write", lf_init_eval},
    {"dpo", "pairs of answers -> a model that prefers the better ones", lf_init_dpo},
    {"rlhf", "a published model, chats, preferences -> reward model -> PPO -> files", lf_init_rlhf},
    {"grpo", "questions with answers that can be checked -> a model that gives more right ones",
     lf_init_grpo},
};
#define N_USES (sizeof uses / sizeof uses[0])

static const struct lf_fields use_fields = LF_FIELDS(struct use, LF_MEMBERS(struct use, use, what));
struct use_list {
    const struct use *uses;
    size_t n_uses;
};
static const struct lf_fields list_fields =
    LF_FIELDS(struct use_list, {LF_FIELD_SUBS(struct use_list, uses, LF_FIELD_ROWS, &use_fields)});

static int list_uses(const lf_cmd *c, lf_err *err)
{
    const struct use_list list = {uses, N_USES};
    if (c->json)
        return lf_cmd_print(&list, &list_fields, err);
    for (size_t i = 0; i < N_USES; i++)
        printf("%-10s %s\n", uses[i].use, uses[i].what);
    return 0;
}

const char *lf_cmd_use(size_t i)
{
    return i < N_USES ? uses[i].use : NULL;
}

/* An existing file is left alone. */
static int write_new(const char *path, const lf_buf *text, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = lf_io_publish(path, text->data, text->len, 0644, &why);
    if (rc == LF_EEXIST)
        return lf_fail(err, rc,
                       "%s exists and is left alone; -o FILE writes another, -o - prints it", path);
    return rc < 0 ? lf_fail(err, rc, "%s", why.text) : 0;
}

/* Who named no use learns which one this is, and that there are others. */
static void say_written(const char *use, const char *path, bool named)
{
    printf("wrote %s for %s", path, use);
    for (size_t i = 0, n = 0; !named && i < N_USES; i++)
        if (strcmp(uses[i].use, use) != 0)
            printf("%s%s", n++ ? ", " : " (others: ", uses[i].use);
    printf("%s; edit it, then: loong-flow plan %s\n", named ? "" : "; init --list tells more)",
           path);
}

static int run_init(lf_cmd *c, lf_err *err)
{
    const char *use = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pretrain";
    const char *path = lf_optset_str(c->opts, "output"), *names[N_USES];
    if (lf_optset_bool(c->opts, "list"))
        return list_uses(c, err);
    size_t at = N_USES;
    for (size_t i = 0; i < N_USES; i++) {
        names[i] = uses[i].use;
        if (strcmp(use, uses[i].use) == 0)
            at = i;
    }
    if (at == N_USES) {
        const char *near = lf_nearest(use, names, N_USES);
        return lf_fail(err, LF_EINVAL,
                       "there is no pipeline for \"%s\"%s%s; `init --list` lists them", use,
                       near != NULL ? "; did you mean " : "", near != NULL ? near : "");
    }
    lf_buf b;
    lf_buf_init(&b);
    for (const char *const *l = uses[at].lines; *l != NULL; l++)
        lf_buf_addf(&b, "%s\n", *l);
    int rc = lf_buf_check(&b, err);
    if (rc == 0 && strcmp(path, "-") == 0)
        fwrite(b.data, 1, b.len, stdout);
    else if (rc == 0)
        rc = write_new(path, &b, err);
    lf_buf_fini(&b);
    if (rc == 0 && c->json)
        return lf_cmd_print_texts(err, "use", use, "path", path, NULL);
    if (rc == 0 && strcmp(path, "-") != 0)
        say_written(use, path, lf_cmd_word(c, 0) != NULL);
    return rc;
}

const lf_cmd_def lf_cmd_init = {
    .table = &init_table, .words = "[USE]", .max_words = 1, .run = run_init};
