/* SPDX-License-Identifier: Apache-2.0
 *
 * note and tag: words of people about a run or stage. They are events of the run, so they survive a
 * rebuilt ledger, and gc keeps what has them.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/run/naming.h"
#include "flow/run/sync.h"
#include "flow/sched/drive.h"

static const lf_opt note_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    LF_CMD_UTC,
    {.name = "stage", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "about this stage of the run"},
};
LF_CMD_TABLE(note, "leave a note about a run, or list the notes", note_rows);
static const lf_opt tag_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    LF_CMD_UTC,
    {.name = "stage", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "of this stage of the run"},
    {.name = "remove",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "take the tag off"},
};
LF_CMD_TABLE(tag, "tag a run to find and keep it, or list the tags", tag_rows);

static const lf_column note_cols[] = {
    {"run", "RUN", false, false}, {"stage", "STAGE", false, false}, {"when", "WHEN", false, false},
    {"by", "BY", false, false},   {"text", "NOTE", false, false},   {"t", "TIME", true, true}};
static const lf_column tag_cols[] = {
    {"run", "RUN", false, false}, {"stage", "STAGE", false, false}, {"tag", "TAG", false, false},
    {"by", "BY", false, false},   {"when", "WHEN", false, false},   {"t", "TIME", true, true}};
static const lf_table note_table_cols = {note_cols, sizeof note_cols / sizeof note_cols[0], NULL};
static const lf_table tag_table_cols = {tag_cols, sizeof tag_cols / sizeof tag_cols[0], NULL};

/* A tag is a word that columns, shells and --tag take without quotes. */
static int check_tag(const char *tag, lf_err *err)
{
    size_t n = strlen(tag);
    if (strcmp(tag, "latest") == 0 || strcmp(tag, "last") == 0)
        return lf_fail(err, LF_EINVAL, "\"%s\" always means the newest run; take another tag", tag);
    if (n > 0 && n <= 64 && tag[0] != '-' &&
        strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:+-") == n)
        return 0;
    return lf_fail(err, LF_EINVAL, "a tag is 1 to 64 letters, digits and _ . : + - (not first)");
}

/* A run of that name would be found in the place of the one that has the tag. */
static int check_new_tag(const lf_project *p, const char *tag, lf_err *err)
{
    bool name = false;
    int rc = lf_naming_looks(&name, p, tag, err);
    return rc == 0 && name
               ? lf_fail(err, LF_EINVAL,
                         "\"%s\" is the short name of a run, or of one to come, as runs "
                         "of this pipeline are called %.*s-N; take another tag",
                         tag, (int)(strrchr(tag, '-') - tag), tag)
               : rc;
}

/* A note or a tag. */
struct mark {
    char *run, *stage, *by, *text, *tag;
    lf_real t;
    char when[21];
};
static const struct lf_fields mark_fields =
    LF_FIELDS_SHOWN(struct mark, LF_MEMBERS(struct mark, run, stage, by, text, tag, t),
                    {LF_FIELD_BUF(struct mark, when, "when")});

static int list(const lf_cmd *c, const lf_project *p, const char *run, bool tags, lf_err *err)
{
    lf_ledger *l = lf_cmd_open_ledger(p, false, err);
    if (l == NULL)
        return err->rc;
    LF_ROWS(struct mark) marks = {.n = 0};
    int rc = lf_fields_list(&marks, &mark_fields,
                            tags ? lf_ledger_tags(l, run, err) : lf_ledger_notes(l, run, err), err);
    for (size_t i = 0; rc == 0 && i < marks.n; i++) {
        struct mark *m = &marks.v[i];
        lf_cmd_time(m->when, c, m->t.v);
        if (m->stage != NULL && m->stage[0] == '\0')
            rc = lf_text_set(&m->stage, NULL, "stage", err);
    }
    if (rc == 0)
        rc = lf_cmd_rows(c, &marks, &mark_fields, tags ? &tag_table_cols : &note_table_cols, err);
    lf_fields_list_fini(&marks, &mark_fields);
    lf_ledger_close(l);
    return rc;
}

/* What was written. */
struct marked {
    const char *run, *note, *tag;
    bool removed;
};
static const struct lf_fields marked_fields =
    LF_FIELDS_SHOWN(struct marked, LF_MEMBERS(struct marked, run, note, tag, removed));

static int write_event(const lf_cmd *c, const lf_project *p, const lf_run *run, bool tags,
                       const char *text, lf_err *err)
{
    char by[128];
    const char *stage = lf_optset_str(c->opts, "stage");
    bool remove = tags && lf_optset_bool(c->opts, "remove");
    lf_record_user(by, sizeof by);
    if (stage != NULL && lf_run_stage(run, stage) == NULL)
        return lf_fail(err, LF_ENOENT, "run %s has no stage \"%s\"", lf_run_label(run), stage);
    int rc = lf_event_mark(&(lf_origin){.dir = run->dir, .run = run->id, .stage = stage},
                           tags ? "tag" : "note", text, by, remove, err);
    lf_err e = LF_ERR_INIT;
    if (rc == 0 && lf_sync(p, run->data, run->id, &e) < 0)
        lf_say_err("loong-flow: it is written down, but the ledger is not up to date: %s\n",
                   e.text);
    if (rc == 0 && c->json)
        return lf_cmd_print(&(struct marked){.run = run->id,
                                             .note = tags ? NULL : text,
                                             .tag = tags ? text : NULL,
                                             .removed = remove},
                            &marked_fields, err);
    return rc;
}

static int note_or_tag(lf_cmd *c, const lf_project *p, bool tags, lf_err *err)
{
    const char *word = lf_cmd_word(c, 0), *text = lf_cmd_word(c, 1);
    lf_run run;
    if (word == NULL)
        return list(c, p, NULL, tags, err);
    if (text != NULL && tags) {
        int rc = check_tag(text, err);
        if (rc == 0 && !lf_optset_bool(c->opts, "remove")) /* an old one can be taken off */
            rc = check_new_tag(p, text, err);
        if (rc < 0)
            return rc;
    }
    int rc = lf_run_find(&run, p, word, err);
    if (rc < 0)
        return rc;
    rc = text == NULL ? list(c, p, run.id, tags, err) : write_event(c, p, &run, tags, text, err);
    lf_run_fini(&run);
    return rc;
}

static int note_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    return note_or_tag(c, p, false, err);
}
static int tag_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    return note_or_tag(c, p, true, err);
}
static int run_note(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, note_on, err);
}
static int run_tag(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, tag_on, err);
}

const lf_cmd_def lf_cmd_note = {
    .table = &note_table, .words = "[RUN [TEXT]]", .max_words = 2, .run = run_note};
const lf_cmd_def lf_cmd_tag = {
    .table = &tag_table, .words = "[RUN [TAG]]", .max_words = 2, .run = run_tag};
