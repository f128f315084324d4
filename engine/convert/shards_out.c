/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards to Megatron's .idx/.bin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/convert/shards.h"
#include "engine/store/megatron_data.h"
#include "engine/store/shard.h"

#define PIECE 16384 /* tokens moved at a time */

struct export
{
    const struct lf_shards_opts *o;
    enum lf_megatron_dtype dtype; /* 0: by the vocabulary */
    struct lf_shards_result res;
};

/* Tokens [first, end) of a shard as one sequence. */
static int export_seq(lf_megatron_writer *w, const lf_shard *s, uint64_t first, uint64_t end,
                      int8_t mode, lf_err *err)
{
    int32_t buf[PIECE];
    uint32_t ids[PIECE];
    int rc = lf_megatron_append(w, NULL, 0, mode, err);
    while (rc == 0 && first < end) {
        size_t n = end - first < PIECE ? (size_t)(end - first) : PIECE;
        rc = lf_shard_read(s, first, n, buf, err);
        for (size_t k = 0; k < n && rc == 0; k++)
            ids[k] = (uint32_t)buf[k];
        if (rc == 0)
            rc = lf_megatron_extend(w, ids, n, err);
        first += n;
    }
    return rc;
}

static int export_file(struct export *x, lf_megatron_writer *w, const lf_shard *s, lf_err *err)
{
    const uint64_t *docs = lf_shard_doc_seqs(s), *off = lf_shard_offsets(s);
    const uint64_t *seqs = docs ? lf_shard_seq_offsets(s) : off;
    const int8_t *modes = lf_shard_seq_modes(s);
    uint64_t n = lf_shard_get_info(s)->n_docs;
    int rc = lf_shard_has_mask(s)
                 ? lf_fail(err, LF_ENOTSUP,
                           "%s has a loss mask; Megatron's files have no place for one", x->o->from)
                 : 0;
    for (uint64_t d = 0; d < n && rc == 0; d++) {
        if (x->o->stop && x->o->stop())
            return lf_fail(err, LF_EINTR, "stopped on request; nothing is published");
        uint64_t s0 = docs ? docs[d] : d, s1 = docs ? docs[d + 1] : d + 1;
        for (uint64_t k = s0; k < s1 && rc == 0; k++)
            rc = export_seq(w, s, seqs[k], seqs[k + 1], modes ? modes[k] : 0, err);
        if (rc == 0)
            rc = lf_megatron_end_document(w, err);
        x->res.docs++;
        x->res.seqs += s1 - s0;
        x->res.tokens += off[d + 1] - off[d];
    }
    return rc;
}

static int export_split(struct export *x, lf_artifact *a, const char *split, lf_err *err)
{
    char name[32];
    bool modes = false;
    lf_shardset *set = NULL;
    lf_megatron_writer *w = NULL;
    int rc = lf_shardset_open(&set, x->o->from, split, err);
    if (rc == 0 && lf_shardset_get_info(set)->processor) {
        lf_shardset_close(set);
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: its documents have pictures, which Megatron-LM's data cannot hold",
                     x->o->from);
    }
    if (rc != 0)
        return rc;
    for (size_t i = 0; lf_shardset_file(set, i); i++)
        modes = modes || lf_shard_seq_modes(lf_shardset_file(set, i));
    char *path = lf_path_join(x->o->out, split, err);
    enum lf_megatron_dtype t =
        x->dtype ? x->dtype : lf_megatron_dtype_for(lf_shardset_get_info(set)->vocab_size);
    rc = path ? lf_megatron_create(&w, path, t, modes, err) : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && lf_shardset_file(set, i); i++)
        rc = export_file(x, w, lf_shardset_file(set, i), err);
    if (rc == 0) {
        rc = lf_megatron_finish(w, err);
        w = NULL;
    }
    static const char *const ends[] = {"bin", "idx"};
    for (int i = 0; i < 2 && rc == 0; i++) {
        snprintf(name, sizeof name, "%s.%s", split, ends[i]);
        rc = lf_artifact_add_hashed(a, x->o->out, name, err);
    }
    lf_megatron_abort(w);
    free(path);
    lf_shardset_close(set);
    return rc;
}

/* The dtype that imported data came with; 0: it was not imported. */
static int find_dtype(enum lf_megatron_dtype *out, const lf_artifact *a, const char *from,
                      lf_err *err)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(a->meta, "megatron"), "dtype"));
    *out = 0;
    if (!name)
        return 0;
    for (int t = LF_MEGATRON_U8; t <= LF_MEGATRON_U16; t++)
        if (strcmp(lf_megatron_dtype_name((enum lf_megatron_dtype)t), name) == 0)
            *out = (enum lf_megatron_dtype)t;
    return *out ? 0
                : lf_fail(err, LF_EFORMAT, "%s: its manifest names a Megatron dtype \"%.40s\"",
                          from, name);
}

static bool has_split(const lf_artifact *a, const char *split)
{
    for (size_t i = 0; i < a->n_files; i++)
        if (lf_str_has_prefix(a->files[i].path, split) && a->files[i].path[strlen(split)] == '-')
            return true;
    return false;
}

int lf_convert_shards_export(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err)
{
    static const char *const splits[] = {"train", "valid", "test"};
    struct export x = {.o = o};
    lf_artifact from = {0}, a = {0};
    int rc = lf_artifact_load(&from, o->from, "shards", err);
    if (rc == 0)
        rc = find_dtype(&x.dtype, &from, o->from, err);
    if (rc == 0)
        rc = lf_io_remove_tree(o->out, err);
    if (rc == 0)
        rc = lf_io_mkdirs(o->out, 0750, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "megatron", err);
    for (size_t k = 0; k < 3 && rc == 0; k++)
        if (has_split(&from, splits[k]))
            rc = export_split(&x, &a, splits[k], err);
    if (rc == 0 && json_object_set(a.meta, "shards", from.meta))
        rc = lf_fail(err, LF_ENOMEM, "no memory for a manifest");
    if (rc == 0)
        rc = lf_artifact_publish(&a, o->out, err);
    if (rc == 0)
        *res = x.res;
    lf_artifact_fini(&a);
    lf_artifact_fini(&from);
    return rc;
}
