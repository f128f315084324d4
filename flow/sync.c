/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger's side of a command: ingest under the project lock.
 */
#include "config.h"

#include <stdlib.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "flow/drive.h"

static int with_ledger(const lf_project *p, const char *data, const char *run, double wait_s, lf_err *err)
{
    char *lock_path = lf_path_join(p->dot, "lock", err), *db = lf_path_join(p->dot, "ledger.db", err);
    int rc = lock_path == NULL || db == NULL ? LF_ENOMEM : 0;
    lf_lock_opts opts = {.purpose = "loong-flow", .wait_s = wait_s, .ttl_s = 0};
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &opts, err) : NULL;
    lf_ledger *l = lock != NULL ? lf_ledger_open(db, LF_LEDGER_WRITE, err) : NULL;
    if (rc == 0 && l == NULL)
        rc = err != NULL && err->rc != 0 ? err->rc : LF_EIO;
    if (rc == 0 && data != NULL) {
        lf_ledger_ingest_opts io = {.run = run, .trusted = NULL, .n_trusted = 0};
        rc = lf_ledger_ingest(l, data, &io, NULL, err);
        if (rc == 0)
            rc = lf_ledger_publish(l, err);
    }
    lf_ledger_close(l);
    lf_lock_release(lock);
    free(lock_path);
    free(db);
    return rc;
}

int lf_sync(const lf_project *p, const char *data, const char *run, lf_err *err)
{
    return with_ledger(p, data, run, 10.0, err);
}

int lf_sync_probe(const lf_project *p, lf_err *err)
{
    return with_ledger(p, NULL, NULL, 10.0, err);
}
