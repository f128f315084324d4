/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share that ask the ledger: bringing it up to date where that is possible,
 * opening it, and paths.
 */
#ifndef LF_FLOW_ASKING_H
#define LF_FLOW_ASKING_H

#include "db/ledger.h"
#include "flow/run/project.h"

/* Data roots of the project that have runs, each once, as DATA/<project id>; that of the newest run
 * first. New array. */
int lf_ask_roots(lf_texts *out, const lf_project *p, lf_err *err);
/* Ingest of all roots. everything: also what the ledger believes to be settled. out may be NULL. */
int lf_ask_sync(lf_ledger_ingested *out, const lf_project *p, bool everything, lf_err *err);
/* The ledger for reading, as it is; LF_EFORMAT also for a newer one. */
lf_ledger *lf_ask_open(const lf_project *p, lf_err *err);
/* A path as people give it, as the ledger names it: relative to a data root where it lies below
 * one. Owned. */
char *lf_ask_path(const lf_project *p, const char *word, lf_err *err);

#endif
