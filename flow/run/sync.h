/* SPDX-License-Identifier: Apache-2.0
 *
 * Bringing the ledger up to date with what the runs have written.
 */
#ifndef LF_FLOW_SYNC_H
#define LF_FLOW_SYNC_H

#include "db/ledger.h"
#include "flow/run/project.h"

/* Bring the ledger up to date under the project lock. run NULL: every run of that data root. */
int lf_sync(const lf_project *p, const char *data, const char *run, lf_err *err);
/* The same for every run of a data root, with what was found. everything: also runs that the ledger
 * believes to be settled. */
int lf_sync_count(lf_ledger_ingested *out, const lf_project *p, const char *data, bool everything,
                  lf_err *err);
/* Flags for reading the ledger where this site has no file locks ([site] ledger_locks = no): 0 or
 * LF_LEDGER_NOLOCK. */
int lf_sync_read_flags(unsigned *flags, lf_err *err);
/* A run that was never complete and whose directory is gone: the ledger forgets it. No ledger,
 * nothing to forget. */
int lf_sync_forget(const lf_project *p, const char *run, lf_err *err);
/* Can the ledger be written at all? For commands that are about to start work. */
int lf_sync_probe(const lf_project *p, lf_err *err);

#endif
