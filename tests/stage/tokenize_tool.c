/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenize_tool OUT SPLIT: print every document of OUT/shards decoded with OUT/tokenizer, one after
 * the other with a line end, the end-of-document token left out; for tests/stage/tokenize.sh.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/store/shard.h"
#include "engine/text/token/tokenizer.h"

static int print_docs(const lf_shardset *s, const lf_tokenizer *t, lf_err *err)
{
    uint64_t n = lf_shardset_get_info(s)->n_docs;
    lf_buf text;
    lf_buf_init(&text);
    int rc = 0;
    for (uint64_t d = 0; d < n && rc == 0; d++) {
        size_t len = (size_t)lf_shardset_doc_len(s, d);
        int32_t *ids = lf_malloc(len, sizeof(*ids), err);
        rc = ids ? lf_shardset_read(s, d, 0, len, ids, err) : LF_ENOMEM;
        lf_tok_stream st = {0};
        lf_buf_clear(&text);
        for (size_t i = 0; i < len && rc == 0; i++)
            rc = lf_tok_stream_push(&st, t, (uint32_t)ids[i], true, &text, err);
        if (rc == 0)
            rc = lf_tok_stream_finish(&st, t, &text, err);
        lf_tok_stream_drop(&st);
        fwrite(text.data, 1, text.len, stdout);
        putchar('\n');
        free(ids);
    }
    lf_buf_fini(&text);
    return rc;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    lf_shardset *s = NULL;
    if (argc != 3)
        return 2;
    snprintf(path, sizeof(path), "%s/tokenizer/tokenizer.json", argv[1]);
    lf_tokenizer *t = lf_tokenizer_load(path, &err);
    snprintf(path, sizeof(path), "%s/shards", argv[1]);
    int rc = t ? lf_shardset_open(&s, path, argv[2], &err) : LF_EINVAL;
    if (rc == 0)
        rc = print_docs(s, t, &err);
    lf_shardset_close(s);
    lf_tokenizer_destroy(t);
    if (rc != 0)
        fprintf(stderr, "tokenize_tool: %s\n", err.text);
    return rc != 0;
}
