/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of encoding on one thread: tokenize_bench tokenizer.json FILE [REPEATS]. The file is encoded whole and line by
 * line; the median time counts. tests/bench/tokenize_peer.py times the tokenizers library on the same file and prints
 * the ratio. With --ids RECORDS, FILE holds records (u32le length, bytes) and each one's ids are printed on a line.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/text/tokenizer.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int encode_lines(lf_tok_state *s, const lf_buf *text, lf_ids *ids, lf_err *err)
{
    int rc = 0;
    for (size_t at = 0; at < text->len && rc == 0;) {
        const char *nl = memchr(text->data + at, '\n', text->len - at);
        size_t n = nl ? (size_t)(nl - text->data) + 1 - at : text->len - at;
        rc = lf_tokenizer_encode(s, text->data + at, n, 0, ids, NULL, err);
        at += n;
    }
    return rc;
}

static int bench(const lf_tokenizer *t, const lf_buf *text, int repeats, lf_err *err)
{
    double sec[101];
    lf_ids ids = {0};
    int rc = 0;
    for (int mode = 0; mode < 2 && rc == 0; mode++) {
        for (int r = 0; r < repeats && rc == 0; r++) {
            /* A fresh state: filling the cache is part of the work, as it is for the peer. */
            lf_tok_state *s = lf_tok_state_create(t, err);
            if (!s)
                return LF_ENOMEM;
            ids.n = 0;
            double t0 = lf_now_s();
            rc = mode == 0 ? lf_tokenizer_encode(s, text->data, text->len, 0, &ids, NULL, err)
                           : encode_lines(s, text, &ids, err);
            sec[r] = lf_now_s() - t0;
            lf_tok_state_destroy(s);
        }
        qsort(sec, (size_t)repeats, sizeof(*sec), by_value);
        if (rc == 0)
            printf("{\"mode\":\"%s\",\"bytes\":%zu,\"tokens\":%zu,\"seconds\":%.6f,\"mb_per_s\":%.2f}\n",
                   mode ? "lines" : "whole", text->len, ids.n, sec[repeats / 2],
                   (double)text->len / 1e6 / sec[repeats / 2]);
    }
    lf_ids_fini(&ids);
    return rc;
}

static int print_ids(const lf_tokenizer *t, const lf_buf *file, unsigned flags, lf_err *err)
{
    lf_tok_state *s = lf_tok_state_create(t, err);
    lf_ids ids = {0};
    lf_buf back;
    lf_buf_init(&back);
    int rc = s ? 0 : LF_ENOMEM;
    for (size_t at = 0; rc == 0 && file->len - at >= 4;) {
        uint32_t n;
        memcpy(&n, file->data + at, 4);
        at += 4;
        if (n > file->len - at)
            rc = lf_fail(err, LF_EFORMAT, "record too long");
        ids.n = 0;
        if (rc == 0)
            rc = lf_tokenizer_encode(s, file->data + at, n, flags, &ids, NULL, err);
        at += n;
        for (size_t i = 0; i < ids.n && rc == 0; i++)
            printf(i ? " %u" : "%u", ids.v[i]);
        lf_buf_clear(&back);
        if (rc == 0)
            rc = lf_tokenizer_decode(t, ids.v, ids.n, false, &back, err);
        printf("\t");
        for (size_t i = 0; i < back.len; i++)
            printf("%02x", (unsigned char)back.data[i]);
        printf("\n");
    }
    lf_ids_fini(&ids);
    lf_buf_fini(&back);
    lf_tok_state_destroy(s);
    return rc;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    bool records = argc > 1 && strncmp(argv[1], "--ids", 5) == 0;
    unsigned flags = records && argv[1][5] == '=' ? (unsigned)strtoul(argv[1] + 6, NULL, 0) : 0;
    argc -= records;
    argv += records;
    if (argc < 3) {
        fprintf(stderr, "usage: tokenize_bench [--ids[=FLAGS]] tokenizer.json FILE [REPEATS]\n");
        return 2;
    }
    int repeats = argc > 3 ? atoi(argv[3]) : 5;
    repeats = repeats < 1 ? 1 : repeats > 101 ? 101 : repeats;
    lf_buf text;
    lf_buf_init(&text);
    lf_tokenizer *t = lf_tokenizer_load(argv[1], &err);
    int rc = t ? lf_io_read_file(argv[2], LF_TOK_TEXT_MAX, &text, &err) : LF_EINVAL;
    if (rc == 0)
        rc = records ? print_ids(t, &text, flags, &err) : bench(t, &text, repeats, &err);
    lf_tokenizer_destroy(t);
    lf_buf_fini(&text);
    if (rc != 0)
        fprintf(stderr, "tokenize_bench: %s\n", err.text);
    return rc == 0 ? 0 : 1;
}
