/* SPDX-License-Identifier: Apache-2.0
 *
 * From a stage's message to a line of the pipeline file: see complaint.h.
 */
#include "config.h"

#include "flow/cmd/complaint.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/job/exec.h"

#define MODEL "[model]"

/* A key of config.ini. */
struct key {
    bool model; /* of [model], not of [stage] */
    char name[128];
};

/* The key that line n of config.ini belongs to; lines of a value that go on are indented. */
static bool key_of_line(struct key *out, const char *text, long n)
{
    struct key k = {.model = false, .name = ""};
    for (const char *p = text; n > 0 && p != NULL && *p != '\0'; n--) {
        const char *end = strchr(p, '\n');
        size_t len = strcspn(p, " =\n");
        if (*p == '[')
            k = (struct key){.model = lf_str_has_prefix(p, MODEL), .name = ""};
        else if (*p != ' ' && len > 0)
            snprintf(k.name, sizeof k.name, "%.*s", (int)len, p);
        p = end != NULL ? end + 1 : NULL;
    }
    *out = k;
    return k.name[0] != '\0';
}

/* "CONFIG:LINE:COLUMN: " or "CONFIG: " at the beginning of a message; what comes after it. */
static const char *after_place(long *line, const char *text, const char *config)
{
    char *end;
    *line = 0;
    if (!lf_str_has_prefix(text, config))
        return text;
    const char *p = text + strlen(config);
    if (*p == ':' && isdigit((unsigned char)p[1])) {
        *line = strtol(p + 1, &end, 10);
        p = end;
        if (*p == ':' && isdigit((unsigned char)p[1])) {
            (void)strtol(p + 1, &end, 10);
            p = end;
        }
    }
    return lf_str_has_prefix(p, ": ") ? p + 2 : p;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* How surely a message speaks of an option: 3 "NAME =", 2 "--NAME" or a name of several words, 1
 * the word; 0 not at all. *at: where. The dashes of the command line are the underscores of a
 * name. */
static int speaks_of(size_t *at, const char *text, const char *name)
{
    const size_t n = strlen(name);
    int best = 0;
    for (const char *p = text; *p != '\0'; p++) {
        size_t i = 0;
        while (i < n && (p[i] == name[i] || (name[i] == '_' && p[i] == '-')))
            i++;
        if (i < n || in_word(p[n]) || (p > text && in_word(p[-1])))
            continue;
        int sure = lf_str_has_prefix(p + n, " =") || p[n] == '='                         ? 3
                   : (p > text + 1 && p[-1] == '-' && p[-2] == '-') || strchr(name, '_') ? 2
                                                                                         : 1;
        if (sure > best) {
            best = sure;
            *at = (size_t)(p - text);
        }
    }
    return best;
}

/* Does a message speak of a file that the option names? */
static bool names_value(const char *text, const lf_doc_stage *stage, const lf_list *option)
{
    bool found = false;
    for (size_t i = 0; i < option->values.n; i++)
        found = found || (option->values.v[i][0] != '\0' && strstr(text, option->values.v[i]));
    return found && lf_pairs_get(&stage->types, option->name) != NULL;
}

/* The option that a message is about, among those that the file gives to the stage. */
static const lf_conf_item *named_option(const lf_complaint *c, const char *text)
{
    const lf_conf_item *found = NULL;
    int best = 0;
    size_t first = 0;
    for (size_t i = 0; i < c->stage->options.n; i++) {
        const char *name = c->stage->options.v[i].name;
        size_t at = 0;
        int sure = speaks_of(&at, text, name);
        if (sure < 2 && names_value(text, c->stage, &c->stage->options.v[i]))
            sure = 2;
        if (sure == 0 || sure < best || (sure == best && at >= first))
            continue;
        const lf_conf_item *it = lf_pipeline_option(c->pipeline, c->stage, name);
        if (it == NULL)
            continue;
        found = it;
        best = sure;
        first = at;
    }
    return found;
}

/* "[model] KEY: ...": the key. */
static const lf_conf_item *named_key(const lf_complaint *c, const char *text)
{
    char key[128];
    if (!lf_str_has_prefix(text, MODEL " "))
        return NULL;
    const char *p = text + strlen(MODEL " ");
    size_t n = 0;
    while (in_word(p[n]))
        n++;
    snprintf(key, sizeof key, "%.*s", (int)n, p);
    return lf_pipeline_model_key(c->pipeline, c->stage, key);
}

static const lf_conf_item *item_of(const lf_complaint *c, const char *text, long line)
{
    struct key k;
    if (line > 0 && key_of_line(&k, c->config_text, line))
        return k.model ? lf_pipeline_model_key(c->pipeline, c->stage, k.name)
                       : lf_pipeline_option(c->pipeline, c->stage, k.name);
    return lf_str_has_prefix(text, MODEL) ? named_key(c, text) : named_option(c, text);
}

static void add_place(lf_buf *out, const lf_complaint *c, const char *text, long line)
{
    const lf_conf_item *it = item_of(c, text, line);
    const lf_conf_section *model = it == NULL && lf_str_has_prefix(text, MODEL)
                                       ? lf_pipeline_model_section(c->pipeline, c->stage)
                                       : NULL;
    /* The column of an item is that of its value; a key begins its line. */
    if (it != NULL && it->line > 0)
        lf_buf_addf(out, "%s:%d:%d: ", it->path, it->line,
                    lf_str_has_prefix(text, "unknown key") ? 1 : it->column);
    else if (it != NULL)
        lf_buf_addf(out, "%s: ", it->path);
    else if (model != NULL)
        lf_buf_addf(out, "%s:%d:1: ", model->path, model->line);
    else
        lf_buf_addf(out, "%s:%d:1: ", c->stage->path, (int)c->stage->line.v);
}

/* What the stage said, without its name and the place in a file that only it knows. */
static const char *said(long *line, const lf_complaint *c)
{
    char program[160];
    const char *text = c->text;
    snprintf(program, sizeof program, "lf-%s: ", c->stage->kind);
    if (lf_str_has_prefix(text, program))
        text += strlen(program);
    if (lf_str_has_prefix(text, "error: "))
        text += strlen("error: ");
    return after_place(line, text, c->config);
}

/* Outputs that are not made yet had a path beside config.ini: "${stage:NAME.OUTPUT}" again. */
static void add_text(lf_buf *out, const lf_complaint *c, const char *text)
{
    const char *slash = strrchr(c->config, '/');
    lf_buf dir;
    lf_buf_init(&dir);
    lf_buf_addf(&dir, "%.*s/" LF_NOT_MADE "/", slash != NULL ? (int)(slash - c->config) : 0,
                c->config);
    for (const char *at = strstr(text, dir.data); at != NULL; at = strstr(text, dir.data)) {
        const char *name = at + dir.len;
        size_t n = strspn(name, LF_NOT_MADE_NAME);
        lf_buf_add(out, text, (size_t)(at - text));
        lf_buf_addf(out, "${stage:%.*s}", (int)n, name);
        text = name + n;
    }
    lf_buf_adds(out, text);
    lf_buf_fini(&dir);
}

void lf_complaint_word(lf_buf *out, const lf_complaint *c)
{
    long line = 0;
    const char *text = said(&line, c);
    if (c->pipeline != NULL)
        add_place(out, c, text, line);
    lf_buf_addf(out, "stage %s: ", c->stage->name);
    add_text(out, c, text);
}

void lf_complaint_place(lf_buf *out, const lf_complaint *c)
{
    long line = 0;
    const char *text = said(&line, c);
    if (c->pipeline == NULL)
        return;
    const lf_conf_item *it = item_of(c, text, line);
    if (it != NULL && it->line > 0)
        lf_buf_addf(out, "%s:%d (%s)", it->path, it->line, it->key);
    else if (it == NULL)
        lf_buf_addf(out, "%s:%d ([stage %s])", c->stage->path, (int)c->stage->line.v,
                    c->stage->name);
    else
        lf_buf_addf(out, "%s (%s)", it->path, it->key);
}
