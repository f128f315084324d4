/* SPDX-License-Identifier: Apache-2.0
 *
 * Layered configuration: site file, user file, the pipeline file with its includes, and --set,
 * merged key by key while the place every value was written is kept. This file knows layers,
 * includes, inheritance and ${references}; what a section or key means belongs to pipeline.h.
 *
 *   order (later wins):  site file < user file < included files < pipeline file < --set
 *   site file   $LF_SITE_CONFIG, else /etc/loong-flow/site.ini        (may be absent)
 *   user file   $LF_USER_CONFIG, else ~/.config/loong-flow/config.ini (may be absent)
 *   include     a key of [pipeline]: one file per line, relative to the including file, at most 16
 *               deep
 *   inherit     a key of [stage X]: takes what X lacks from [template NAME] or [stage NAME]
 *   references  ${section.key}, ${env.NAME} (not for names that look like secrets), "$${" for a
 *               literal "${"; ${stage:NAME} and ${stage:NAME.output} stay in the value for
 *               pipeline.h
 *
 * Files owned by anyone but the user or root, or writable by everybody, are refused; [user] trust
 * in the user file lists further owners.
 */
#ifndef LF_FLOW_CONF_H
#define LF_FLOW_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "flow/record/names.h"

#define LF_CONF_END SIZE_MAX

typedef struct lf_conf_item {
    const char *section, *key;
    const char *raw;   /* as written */
    const char *value; /* references replaced; valid after lf_conf_resolve */
    const char *layer; /* "site", "user", "pipeline", "--set" */
    const char *path;
    int line, column;
    const char *via; /* section it was inherited from, NULL otherwise */
    int phase;       /* of resolving: 0 not yet, 1 under way, 2 done */
    bool read;       /* somebody asked for it */
    size_t next;     /* the next item of its section, LF_CONF_END: none */
} lf_conf_item;

typedef struct lf_conf_section {
    const char *name;
    const char *path; /* where it was first opened */
    const char *layer;
    int line;
    size_t first, last; /* items, chained by next; LF_CONF_END: none */
} lf_conf_section;

typedef struct lf_conf {
    lf_conf_item *items; /* in order of first appearance */
    size_t n_items, cap_items;
    lf_conf_section *sections;
    size_t n_sections, cap_sections;
    lf_names item_names, section_names;
    const char **trusted; /* user names from [user] trust */
    size_t n_trusted;
    struct lf_arena *arena; /* owns every string */
} lf_conf;

/* A value that is put over a key, as --set does, with the place that it stands at. */
typedef struct lf_conf_set {
    const char *name; /* "section.key" */
    const char *value;
    const char *layer, *path;
    int line, column;
} lf_conf_set;

typedef struct lf_conf_args {
    const char *pipeline_path; /* NULL: site and user files only */
    const char *const *sets;   /* "section.key=value" */
    size_t n_sets;
    const lf_conf_set *over; /* over all others */
    size_t n_over;
} lf_conf_args;

/* Read all layers and apply inherit; values are not resolved yet. fini of a zeroed object is
 * legal. */
int lf_conf_load(lf_conf *out, const lf_conf_args *args, lf_err *err);
/* Replace references in every value. Cycles are named key by key. */
int lf_conf_resolve(lf_conf *c, lf_err *err);
void lf_conf_fini(lf_conf *c);

/* Splits "train.lr" into section and key, both owned. The section is [train], else [stage train],
 * or the template, model or kind of that name. LF_EINVAL: it has no dot between two words. */
int lf_conf_split(char **section, char **key, const lf_conf *c, const char *name, lf_err *err);
lf_conf_item *lf_conf_find(const lf_conf *c, const char *section, const char *key);
const lf_conf_section *lf_conf_find_section(const lf_conf *c, const char *name);
/* Writes "; did you mean ${stage:NAME.OUTPUT}?" into buf where text is meant as such a reference
 * and has another form ("NAME.OUTPUT", "$stage:NAME"), else "". Returns buf. */
const char *lf_stage_hint(char *buf, size_t cap, const lf_conf *c, const char *text);
/* The first item of a section; with lf_conf_item.next: all of them, in order of first
 * appearance. */
size_t lf_conf_first(const lf_conf *c, const char *section);
/* Value of a key, marked as read; def when it is not there. */
const char *lf_conf_get(const lf_conf *c, const char *section, const char *key, const char *def);
/* Fails with "path:line:column: " before the text. */
int lf_conf_fail(const lf_conf_item *it, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same about the key and not its value. */
int lf_conf_fail_key(const lf_conf_item *it, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* May a file of this owner and mode configure a program run by `me`? reason (static text) is set
 * when not. */
bool lf_owner_allowed(uid_t owner, mode_t mode, uid_t me, const uid_t *trusted, size_t n_trusted,
                      const char **reason);
/* Does the name of a variable or key look like a secret (*_TOKEN, *_KEY, *PASSWORD*, *SECRET*)? */
bool lf_name_is_secret(const char *name);
/* Does a text give such a variable a value of its own ("HF_TOKEN=abc", not "HF_TOKEN=$(cat
 * file)")? */
bool lf_text_has_secret(const char *text);

#endif
