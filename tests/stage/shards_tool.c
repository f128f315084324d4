/* SPDX-License-Identifier: Apache-2.0
 *
 * shards_tool DIR SPLIT: the documents of a shards artifact, one a line: ids, "-" before those that
 * are not trained, "|" where a sequence ends inside a document; then what else its rows have:
 * "margin=", "label=" or "rest=", and of each picture "[number in its file, bytes, kind, WxH, tiles
 * x rows x columns, first placeholder + how many, the beginning of the hash]", where the hash is
 * that of the bytes as they are read back. For the tests of stages.
 */
#include "config.h"

#include <stdio.h>

#include "engine/store/shard.h"

static void print_more(const lf_shard *s, uint64_t d)
{
    size_t n = 0;
    const char *rest = lf_shard_rest(s, d, &n);
    enum lf_rows rows = lf_shard_get_info(s)->rows;
    if (rows == LF_ROWS_PAIRS && d % 2 == 0 && lf_shard_has_margin(s))
        printf("margin=%g", (double)lf_shard_margin(s, d / 2));
    if (rows == LF_ROWS_UNPAIRED)
        printf("label=%d", lf_shard_label(s, d));
    if (rows == LF_ROWS_PROMPTS)
        printf("rest=%.*s", (int)n, rest);
}

static int print_pictures(const lf_shard *s, uint64_t d, lf_err *err)
{
    static unsigned char bytes[1 << 20];
    int rc = 0;
    for (uint64_t i = 0; i < lf_shard_pictures(s, d) && rc == 0; i++) {
        lf_shard_picture p;
        uint8_t sha[LF_HASH_BYTES];
        char hex[LF_HASH_HEX];
        lf_shard_picture_get(s, d, i, &p);
        rc = p.n <= sizeof bytes ? lf_shard_picture_read(s, d, i, bytes, err) : LF_EINVAL;
        if (rc == 0)
            rc = lf_hash_buf(sha, bytes, p.n, err);
        lf_hash_hex(hex, sha);
        printf("[%llu %zu %d %ux%u %dx%dx%d %u+%u %.8s]", (unsigned long long)p.id, p.n,
               (int)p.kind, p.w, p.h, p.tiles, p.grid_h, p.grid_w, p.first, p.count, hex);
    }
    return rc;
}

static int print_file(const lf_shard *s, lf_err *err)
{
    const uint64_t *off = lf_shard_offsets(s), *docs = lf_shard_doc_seqs(s),
                   *seqs = lf_shard_seq_offsets(s);
    int rc = 0;
    for (uint64_t d = 0; d < lf_shard_get_info(s)->n_docs && rc == 0; d++) {
        uint64_t k = docs ? docs[d] : 0, end = docs ? docs[d + 1] : 0;
        for (uint64_t i = off[d]; i <= off[d + 1] && rc == 0; i++) {
            int32_t id;
            for (; k + 1 < end && seqs[k + 1] == i; k++)
                printf("| ");
            if (i == off[d + 1])
                break;
            rc = lf_shard_read(s, i, 1, &id, err);
            printf("%s%d ", lf_shard_trained(s, i) ? "" : "-", id);
        }
        print_more(s, d);
        if (rc == 0)
            rc = print_pictures(s, d, err);
        putchar('\n');
    }
    return rc;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    lf_shardset *s = NULL;
    if (argc != 3)
        return 2;
    int rc = lf_shardset_open(&s, argv[1], argv[2], &err);
    for (size_t i = 0; rc == 0 && lf_shardset_file(s, i); i++)
        rc = print_file(lf_shardset_file(s, i), &err);
    lf_shardset_close(s);
    if (rc != 0)
        fprintf(stderr, "shards_tool: %s\n", err.text);
    return rc != 0;
}
