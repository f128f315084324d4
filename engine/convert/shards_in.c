/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron's .idx/.bin to shards. */
#include "engine/convert/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/store/megatron_data.h"
#include "engine/store/shard.h"

struct import {
    const struct lf_shards_opts *o;
    const lf_megatron_data *d;
    const lf_megatron_info *i;
    lf_shard_info info;
    lf_artifact a;
    lf_shard_writer *w;
    uint32_t *ids; /* of a document */
    size_t cap_ids;
    uint32_t *seq_len;
    size_t cap_seqs;
    struct lf_shards_result res;
    int files;
};

static int close_shard(struct import *im, lf_err *err)
{
    char name[32];
    lf_shard_stat st;
    if (!im->w)
        return 0;
    snprintf(name, sizeof name, "train-%05d.h5", im->files++);
    int rc = lf_shard_finish(im->w, &st, err);
    im->w = NULL;
    return rc != 0 ? rc : lf_artifact_add(&im->a, name, st.bytes, st.sha256, err);
}

static int open_shard(struct import *im, lf_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "train-%05d.h5", im->files);
    char *path = lf_path_join(im->o->out, name, err);
    int rc = path ? lf_shard_create(&im->w, path, &im->info, 0, err) : LF_ENOMEM;
    free(path);
    return rc;
}

/* The tokens of document d into ids, its sequences' lengths into seq_len. */
static int read_doc(struct import *im, uint64_t d, lf_shard_doc *doc, lf_err *err)
{
    uint64_t s0 = (uint64_t)im->i->docs[d], s1 = (uint64_t)im->i->docs[d + 1], n = 0;
    for (uint64_t s = s0; s < s1; s++)
        n += (uint64_t)im->i->lengths[s];
    if (n + 1 > im->cap_ids || !im->ids) {
        int rc = lf_realloc(&im->ids, n + 1, sizeof *im->ids, err);
        if (rc != 0)
            return rc;
        im->cap_ids = n + 1;
    }
    if (s1 - s0 + 1 > im->cap_seqs || !im->seq_len) {
        int rc = lf_realloc(&im->seq_len, s1 - s0 + 1, sizeof *im->seq_len, err);
        if (rc != 0)
            return rc;
        im->cap_seqs = s1 - s0 + 1;
    }
    n = 0;
    for (uint64_t s = s0; s < s1; s++) {
        im->seq_len[s - s0] = (uint32_t)im->i->lengths[s];
        int rc = lf_megatron_read_ids(im->d, s, 0, im->seq_len[s - s0], im->ids + n, err);
        if (rc != 0)
            return rc;
        n += im->seq_len[s - s0];
    }
    *doc = (lf_shard_doc){.tokens = im->ids,
                          .n = n,
                          .seq_len = im->seq_len,
                          .n_seqs = s1 - s0,
                          .modes = im->i->modes ? im->i->modes + s0 : NULL};
    return 0;
}

/* A document without sequences has no end to mark. */
static void append_eod(struct import *im, lf_shard_doc *doc)
{
    uint32_t eod = (uint32_t)im->o->eod_id;
    if (!im->o->append_eod || doc->n_seqs == 0 || (doc->n && im->ids[doc->n - 1] == eod))
        return;
    im->ids[doc->n++] = eod;
    im->seq_len[doc->n_seqs - 1]++;
    im->res.appended++;
}

static int import_doc(struct import *im, uint64_t d, lf_err *err)
{
    lf_shard_doc doc;
    if (im->o->stop && im->o->stop())
        return lf_fail(err, LF_EINTR, "stopped on request; nothing is published");
    int rc = read_doc(im, d, &doc, err);
    if (rc != 0)
        return rc;
    append_eod(im, &doc);
    for (size_t k = 0; k < doc.n; k++)
        if (doc.tokens[k] >= (uint64_t)im->info.vocab_size)
            return lf_fail(err, LF_EFORMAT,
                           "%s: document %llu holds token id %u, the vocabulary ends at %lld; is "
                           "it of this tokenizer?",
                           im->o->from, (unsigned long long)d, doc.tokens[k],
                           (long long)im->info.vocab_size - 1);
    if (im->w && lf_shard_writer_tokens(im->w) + doc.n > im->o->shard_tokens)
        rc = close_shard(im, err);
    if (rc == 0 && !im->w)
        rc = open_shard(im, err);
    if (rc == 0)
        rc = lf_shard_append_doc(im->w, &doc, err);
    im->res.docs++;
    im->res.seqs += doc.n_seqs;
    im->res.tokens += doc.n;
    return rc;
}

static int publish(struct import *im, lf_err *err)
{
    const struct lf_shards_result *r = &im->res;
    json_t *train = json_pack("{s:i,s:I,s:I}", "shards", im->files, "docs", (json_int_t)r->docs,
                              "tokens", (json_int_t)r->tokens);
    const struct lf_json_member m[] = {
        {"format", json_string(LF_SHARD_FORMAT)},
        {"tokenizer_sha256", json_string(im->info.tokenizer_sha256)},
        {"vocab_size", json_integer(im->info.vocab_size)},
        {"eos_id", json_integer(im->info.eos_id)},
        {"token_bytes", json_integer(im->info.vocab_size <= 65536 ? 2 : 4)},
        {"splits", json_pack("{s:o}", "train", train)},
        {"megatron", json_pack("{s:s,s:I}", "dtype", lf_megatron_dtype_name(im->i->dtype),
                               "sequences", (json_int_t)r->seqs)},
    };
    int rc = lf_json_set(im->a.meta, m, sizeof m / sizeof m[0], "manifest", err);
    return rc == 0 ? lf_artifact_publish(&im->a, im->o->out, err) : rc;
}

static void warn_packed(const struct import *im)
{
    char text[512];
    snprintf(text, sizeof text,
             "%s: its sequences do not fill the .bin in order; an export writes them in the order "
             "of the index",
             im->o->from);
    if (!im->i->packed && im->o->warn)
        im->o->warn(im->o->arg, text);
}

int lf_convert_shards_import(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err)
{
    lf_megatron_data *d = NULL;
    struct import im = {.o = o};
    im.info = (lf_shard_info){.vocab_size = o->vocab_size, .eos_id = o->eod_id, .source = o->from};
    memset(im.info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    if (o->tokenizer_sha256)
        memcpy(im.info.tokenizer_sha256, o->tokenizer_sha256, LF_HASH_HEX - 1);
    int rc = lf_megatron_open(&d, o->from, err);
    if (rc != 0)
        return rc;
    im.d = d;
    im.i = lf_megatron_get_info(d);
    if ((rc = lf_io_remove_tree(o->out, err)) || (rc = lf_io_mkdirs(o->out, 0750, err)) ||
        (rc = lf_artifact_init(&im.a, "shards", err)))
        goto out;
    warn_packed(&im);
    for (uint64_t k = 0; k < im.i->n_docs && rc == 0; k++)
        rc = import_doc(&im, k, err);
    if (rc == 0 && im.res.docs == 0)
        rc = lf_fail(err, LF_EINVAL, "%s holds no document", o->from);
    if (rc == 0)
        rc = close_shard(&im, err);
    if (rc == 0)
        rc = publish(&im, err);
    if (rc == 0)
        *res = im.res;
out:
    lf_shard_abort(im.w);
    lf_artifact_fini(&im.a);
    free(im.ids);
    free(im.seq_len);
    lf_megatron_close(d);
    return rc;
}
