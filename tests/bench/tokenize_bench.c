/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of encoding: tokenize_bench TOKENIZER FILE. Each line of standard input is a number of
 * threads and asks for one run over the file's documents (4 KB and the rest of the line) with fresh
 * states; a line of JSON answers, with the threads' own CPU time. tests/bench/tokenize_peer.py
 * takes turns with the tokenizers library. With --ids RECORDS, FILE holds records (u32le length,
 * bytes) and each one's ids are printed on a line.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/text/token/tokenizer.h"

/* Documents of about DOC bytes, cut at ends of lines. */
#define DOC 4096

typedef struct job {
    const lf_tokenizer *t;
    const lf_buf *text;
    size_t *cut;              /* [n_cut + 1] */
    size_t n_cut, from, step; /* this thread takes from, from + step, .. */
    size_t tokens;
    double cpu;
    lf_err err;
    int rc;
} job;

static double cpu_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* A fresh state: filling the cache is part of the work, as it is for the peer. */
static void *work(void *arg)
{
    job *j = arg;
    double t0 = cpu_now();
    lf_ids ids = {0};
    lf_tok_state *s = lf_tok_state_create(j->t, &j->err);
    j->rc = s ? 0 : LF_ENOMEM;
    for (size_t k = j->from; k < j->n_cut && j->rc == 0; k += j->step) {
        ids.n = 0;
        j->rc = lf_tokenizer_encode(s, j->text->data + j->cut[k], j->cut[k + 1] - j->cut[k], 0,
                                    &ids, NULL, &j->err);
        j->tokens += ids.n;
    }
    lf_tok_state_destroy(s);
    lf_ids_fini(&ids);
    j->cpu = cpu_now() - t0;
    return NULL;
}

static int run(const job *base, int threads, lf_err *err)
{
    job j[64];
    pthread_t id[64];
    double t0 = lf_now_s(), cpu = 0;
    size_t tokens = 0;
    for (int i = 0; i < threads; i++) {
        j[i] = *base;
        j[i].from = (size_t)i;
        j[i].step = (size_t)threads;
        if (pthread_create(&id[i], NULL, work, &j[i]) != 0)
            return lf_fail(err, LF_EIO, "no thread");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], NULL);
        cpu += j[i].cpu;
        tokens += j[i].tokens;
        if (j[i].rc != 0)
            return lf_fail(err, j[i].rc, "%s", j[i].err.text);
    }
    printf("{\"threads\":%d,\"bytes\":%zu,\"tokens\":%zu,\"cpu\":%.6f,\"wall\":%.6f}\n", threads,
           base->text->len, tokens, cpu, lf_now_s() - t0);
    fflush(stdout);
    return 0;
}

/* One run for each line of standard input, which is the number of threads; so that a peer can take
 * turns with us. */
static int serve(const lf_tokenizer *t, const lf_buf *text, lf_err *err)
{
    char line[64];
    job base = {.t = t, .text = text, .err = LF_ERR_INIT};
    base.cut = calloc(text->len / DOC + 2, sizeof(*base.cut));
    if (!base.cut)
        return LF_ENOMEM;
    for (size_t at = 0; at < text->len;) {
        const char *nl =
            text->len - at > DOC ? memchr(text->data + at + DOC, '\n', text->len - at - DOC) : NULL;
        at = nl ? (size_t)(nl - text->data) + 1 : text->len;
        base.cut[++base.n_cut] = at;
    }
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof(line), stdin)) {
        int threads = atoi(line);
        rc = run(&base, threads < 1 ? 1 : threads > 64 ? 64 : threads, err);
    }
    free(base.cut);
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
        fprintf(stderr, "usage: tokenize_bench [--ids[=FLAGS]] TOKENIZER FILE\n");
        return 2;
    }
    lf_buf text;
    lf_buf_init(&text);
    lf_tokenizer *t = lf_tokenizer_load(argv[1], &err);
    int rc = t ? lf_io_read_file(argv[2], LF_TOK_TEXT_MAX, &text, &err) : LF_EINVAL;
    if (rc == 0)
        rc = records ? print_ids(t, &text, flags, &err) : serve(t, &text, &err);
    lf_tokenizer_destroy(t);
    lf_buf_fini(&text);
    if (rc != 0)
        fprintf(stderr, "tokenize_bench: %s\n", err.text);
    return rc == 0 ? 0 : 1;
}
