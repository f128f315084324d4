/* SPDX-License-Identifier: Apache-2.0
 *
 * The two roots and what lies below them.
 *
 *   PROJECT/.loong/project.json    {"lf_project":1,"id":ULID,"created"}; published once
 *   PROJECT/.loong/roots/NAME      one small file per data_dir, holding it as written in the
 *                                  pipeline
 *   PROJECT/.loong/ledger.db, lock, hashcache.json
 *   DATA/<project id>/runs/<run>/rev.<K>/{plan.json,pipeline.ini,bin/}     a frozen revision,
 *     plan.json published last
 *   DATA/<project id>/runs/<run>/<stage>/attempt.<N>.json                  one per submission
 *   DATA/<project id>/runs/<run>/<stage>/epoch.<E>                         claim or commit, see
 *     state.h
 *   DATA/<project id>/runs/<run>/<stage>/<N>.<E>/                          a start
 *   DATA/<project id>/exe/<sha256>                                         executables, shared by
 *     revisions by hard links
 *
 * DATA is data_dir against the project's directory, so a project with a relative data_dir can be
 * moved as a whole.
 */
#ifndef LF_FLOW_PROJECT_H
#define LF_FLOW_PROJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/doc.h"
#include "flow/run/who.h"

typedef struct lf_project {
    char *root; /* absolute */
    char *dot;  /* root/.loong */
    char id[LF_ULID_SIZE];
} lf_project;

/* root: an existing directory. create: make .loong when it is missing; otherwise LF_ENOENT. */
int lf_project_open(lf_project *out, const char *root, bool create, lf_err *err);
void lf_project_fini(lf_project *p);
/* The nearest directory at or above start that has a .loong, owned; LF_ENOENT when none. */
int lf_project_find(char **root, const char *start, lf_err *err);

/* Remember a data_dir. share "none" or a group name: the modes of what is made below. */
int lf_project_add_root(const lf_project *p, const char *data_dir, lf_err *err);
/* DATA/<project id> of a data_dir, owned. */
char *lf_project_data(const lf_project *p, const char *data_dir, lf_err *err);

/* A run: its directory, its newest complete revision. */
typedef struct lf_run {
    char id[LF_ULID_SIZE];
    char *dir;  /* DATA/<project id>/runs/<id> */
    char *data; /* DATA/<project id> */
    int rev;
    lf_doc *plan; /* plan.json of that revision */
} lf_run;

typedef struct lf_run_list {
    lf_run *runs; /* newest first; plan is NULL until lf_run_load */
    size_t n, cap;
} lf_run_list;

/* Every known root, as DATA/<project id>: paths. */
int lf_project_roots(lf_texts *out, const lf_project *p, lf_err *err);
/* Every run below every known root. A root that cannot be read is an error: unknown is not
 * absence. */
int lf_run_list_load(lf_run_list *out, const lf_project *p, lf_err *err);
void lf_run_list_fini(lf_run_list *l);
/* Another run that holds the same document. */
void lf_run_take_plan(lf_run *r, lf_doc *plan);
/* Read the newest complete revision; LF_ENOENT when the run has none (a submit died early). */
int lf_run_load(lf_run *r, lf_err *err);
int lf_run_load_rev(lf_run *r, int rev, lf_err *err);
void lf_run_fini(lf_run *r);
/* The run that a word of a command stands for; every command asks here. The first of these that
 * fits: NULL, "latest" or "last" (the newest); a short name such as first-3 (naming.h); an id, or a
 * unique prefix or suffix of it of at least 4 characters; a tag that one run has; the name of a
 * pipeline (its newest run). LF_ENOENT: none, with the nearest short name; LF_EINVAL: several.
 * Loaded. */
int lf_run_find(lf_run *out, const lf_project *p, const char *word, lf_err *err);
/* How people are told of a loaded run: its short name, or its id when it was made before there were
 * short names. Borrowed. */
const char *lf_run_label(const lf_run *r);
/* May this user start jobs from this run? Its directory must be the user's or root's, no symbolic
 * link, and not writable by everybody: the executables of its revisions are about to be started.
 * Reading needs no such check. */
int lf_run_check_owner(const lf_run *r, lf_err *err);
/* The same for DATA/<project id> and its runs directory, above the run: who owns these could
 * exchange the run. Absent is well: they are about to be made. */
int lf_data_check_owner(const char *data, lf_err *err);
/* The stage document of a run, or NULL. */
lf_doc_stage *lf_run_stage(const lf_run *r, const char *name);

/* Is `share` "none" or the name of a group? LF_EINVAL. */
int lf_share_check(const char *share, lf_err *err);
/* Directory modes of `share`: "none" gives 0700, a group 2750 with that group. Sets the umask
 * too. */
int lf_share_apply(const char *share, lf_err *err);
int lf_share_dir(const char *path, const char *share, lf_err *err);
/* Open .loong with the ledger to the group (none: it stays as it was made, for its owner only). */
int lf_project_share(const lf_project *p, const char *share, lf_err *err);

#endif
