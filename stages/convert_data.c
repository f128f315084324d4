/* SPDX-License-Identifier: Apache-2.0
 *
 * lf-convert on data: what tokenizer it was made with, and the calls of engine/convert.
 */
#include "stages/convert_data.h"

#include "stages/made_by.h"
#include "stages/opts.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/convert/shards.h"
#include "engine/text/token/tokenizer.h"

#define SHARD_TOKENS ((uint64_t)64 << 20)

static void warn(void *arg, const char *text)
{
    (void)arg;
    lf_log(1, "%s", text);
}

/* 1: the artifact is there already. */
static int is_done(const struct convert_data *d, const char *out, const char *name, lf_err *err)
{
    bool done = false;
    int rc = lf_made_already(&done, d->o, &lf_convert_opts, out, name, err);
    return rc != 0 ? rc : done;
}

/* Ids below vocab_size, and the end of a document, from the tokenizer or the options. */
static int find_vocabulary(struct lf_shards_opts *o, const struct convert_data *d,
                           const lf_tokenizer *t, lf_err *err)
{
    o->vocab_size = d->vocab_size;
    o->eod_id = -1;
    o->append_eod = d->append_eod;
    if (t) {
        int64_t ids = lf_tokenizer_vocab_size(t);
        if (d->vocab_size && d->vocab_size < ids)
            return lf_fail(err, LF_EINVAL, "vocab_size = %lld is less than the tokenizer's %lld",
                           (long long)d->vocab_size, (long long)ids);
        o->vocab_size = d->vocab_size ? d->vocab_size : ids;
        o->tokenizer_sha256 = lf_tokenizer_sha256(t);
        o->eod_id = d->eod_token ? lf_tokenizer_find(t, d->eod_token) : lf_tokenizer_eos(t);
        if (d->eod_token && o->eod_id < 0)
            return lf_fail(err, LF_EINVAL, "the tokenizer has no token \"%s\" (eod_token)",
                           d->eod_token);
    }
    if (o->vocab_size < 1)
        return lf_fail(err, LF_EINVAL,
                       "give tokenizer (what the data was made with) or vocab_size");
    if (!t && d->eod_token)
        return lf_fail(err, LF_EINVAL, "eod_token needs tokenizer");
    if (d->append_eod && o->eod_id < 0)
        return lf_fail(err, LF_EINVAL, "append_eod needs %s",
                       t ? "eod_token: the tokenizer names none" : "tokenizer");
    return 0;
}

static int import(const struct convert_data *d, const char *dir, const lf_tokenizer *t, lf_err *err)
{
    struct lf_shards_opts o = {.from = d->from,
                               .out = dir,
                               .shard_tokens = SHARD_TOKENS,
                               .stop = lf_stop_requested,
                               .warn = warn};
    struct lf_shards_result r;
    int rc = find_vocabulary(&o, d, t, err);
    if (rc == 0 && !t)
        lf_log(1, "no tokenizer given: that data and model belong together is not checked");
    if (rc == 0)
        rc = lf_convert_shards_import(&o, &r, err);
    if (rc == 0)
        lf_log(2, "%s: %llu documents, %llu sequences, %llu tokens (%llu ends of documents added)",
               dir, (unsigned long long)r.docs, (unsigned long long)r.seqs,
               (unsigned long long)r.tokens, (unsigned long long)r.appended);
    return rc;
}

int lf_convert_data_import(const struct convert_data *d, const char *out, lf_err *err)
{
    lf_tokenizer *t = NULL;
    char *dir = lf_path_join(out, "shards", err);
    int rc = dir ? is_done(d, out, "shards", err) : LF_ENOMEM;
    if (rc == 0 && d->tokenizer && !(t = lf_tokenizer_load(d->tokenizer, err)))
        rc = err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0)
        rc = import(d, dir, t, err);
    lf_tokenizer_destroy(t);
    free(dir);
    return rc < 0 ? rc : 0;
}

int lf_convert_data_export(const struct convert_data *d, const char *out, lf_err *err)
{
    struct lf_shards_result r;
    char *dir = lf_path_join(out, "megatron", err);
    int rc = dir ? is_done(d, out, "megatron", err) : LF_ENOMEM;
    if (rc == 0 && d->tokenizer)
        rc = lf_fail(err, LF_EINVAL, "tokenizer is not needed to export data");
    struct lf_shards_opts o = {
        .from = d->from, .out = dir, .stop = lf_stop_requested, .warn = warn};
    if (rc == 0) {
        rc = lf_convert_shards_export(&o, &r, err);
        if (rc == 0)
            lf_log(2, "%s: %llu documents, %llu sequences, %llu tokens", dir,
                   (unsigned long long)r.docs, (unsigned long long)r.seqs,
                   (unsigned long long)r.tokens);
    }
    free(dir);
    return rc < 0 ? rc : 0;
}
