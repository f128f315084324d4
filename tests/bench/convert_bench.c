/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests/bench/convert.sh needs besides lf-convert and cp:
 *
 *   make DIR GB       a Llama-shaped model of about GB gigabytes (10^9, BF16) in one file
 *   drop PATH ...     write the files below PATH to disk and ask the kernel to forget them: the
 *                     next read is cold
 *   hash              SHA-256 of one core in memory: bytes per second
 *   run CMD ...       wall seconds, CPU seconds and the largest resident set (bytes) of the command
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/store/safetensors.h"

#define HIDDEN 4096
#define FFN    11008
#define VOCAB  32000
#define BLOCK  ((size_t)8 << 20)

static int fail(const lf_err *err)
{
    fprintf(stderr, "convert_bench: %s\n", err->text);
    return 1;
}

/* ---- make ---- */

static size_t n_decls;
static lf_st_decl decls[2048];

static void declare(const char *name, int64_t a, int64_t b)
{
    lf_st_decl d = {.name = strdup(name), .dtype = LF_ST_BF16, .ndim = b ? 2 : 1, .shape = {a, b}};
    decls[n_decls++] = d;
}

static void declare_layer(int l)
{
    static const struct {
        const char *name;
        int64_t a, b;
    } T[] = {{"self_attn.q_proj", HIDDEN, HIDDEN},   {"self_attn.k_proj", HIDDEN, HIDDEN},
             {"self_attn.v_proj", HIDDEN, HIDDEN},   {"self_attn.o_proj", HIDDEN, HIDDEN},
             {"mlp.gate_proj", FFN, HIDDEN},         {"mlp.up_proj", FFN, HIDDEN},
             {"mlp.down_proj", HIDDEN, FFN},         {"input_layernorm", HIDDEN, 0},
             {"post_attention_layernorm", HIDDEN, 0}};
    char name[128];
    for (size_t i = 0; i < sizeof T / sizeof *T; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, T[i].name);
        declare(name, T[i].a, T[i].b);
    }
}

/* Random bits that are finite BF16 numbers of ordinary size. */
static void fill(uint32_t *p, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        p[i] = ((uint32_t)*state & 0x80ff80ffu) | 0x3c003c00u;
    }
}

static int write_config(const char *dir, int layers, lf_err *err)
{
    char text[1024], path[4096];
    int n = snprintf(
        text, sizeof text,
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": "
        "%d, "
        "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 32, "
        "\"num_key_value_heads\": 32, \"vocab_size\": %d, \"max_position_embeddings\": 4096, "
        "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
        "\"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2, "
        "\"torch_dtype\": \"bfloat16\"}\n",
        HIDDEN, FFN, layers, VOCAB);
    snprintf(path, sizeof path, "%s/config.json", dir);
    return lf_io_write_file(path, text, (size_t)n, 0640, err);
}

static int make(const char *dir, double gb)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    uint64_t state = 88172645463325252ull;
    unsigned char *buf = lf_malloc(BLOCK, 1, &err);
    double ends = 2.0 * 2 * VOCAB * HIDDEN,
           layer = 2.0 * (4.0 * HIDDEN * HIDDEN + 3.0 * FFN * HIDDEN);
    int layers = (int)((gb * 1e9 - ends) / layer + 0.5);
    layers = layers < 1 ? 1 : layers > 200 ? 200 : layers;
    declare("model.embed_tokens.weight", VOCAB, HIDDEN);
    for (int l = 0; l < layers; l++)
        declare_layer(l);
    declare("model.norm.weight", HIDDEN, 0);
    declare("lm_head.weight", VOCAB, HIDDEN);
    if (!buf || lf_io_mkdirs(dir, 0750, &err) < 0 || write_config(dir, layers, &err) < 0 ||
        lf_st_writer_create(&w, dir, decls, n_decls, NULL, &err) < 0)
        return fail(&err);
    size_t i;
    int rc = 0;
    while (rc == 0 && (i = lf_st_writer_next(w)) < n_decls) {
        size_t left =
            2 * (size_t)decls[i].shape[0] * (size_t)(decls[i].ndim > 1 ? decls[i].shape[1] : 1);
        for (; left && rc == 0; left -= left < BLOCK ? left : BLOCK) {
            fill((uint32_t *)(void *)buf, BLOCK / 4, &state);
            rc = lf_st_writer_put(w, buf, left < BLOCK ? left : BLOCK, &err);
        }
    }
    if (rc == 0)
        rc = lf_st_writer_finish(w, NULL, NULL, &err);
    lf_st_writer_destroy(w);
    free(buf);
    return rc < 0 ? fail(&err) : 0;
}

/* ---- drop ---- */

static int drop_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)at;
    int fd = kind == FTW_F ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

/* ---- hash, run ---- */

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Wall time over a few seconds: on a busy machine one core is worth less, for this as for the
 * conversion. */
static int hash(void)
{
    lf_err err = LF_ERR_INIT;
    uint8_t sum[LF_HASH_BYTES];
    unsigned char *buf = calloc(BLOCK, 1);
    double t0 = now_s(), bytes = 0, t = 0;
    for (; buf && t < 5; t = now_s() - t0) {
        if (lf_hash_buf(sum, buf, BLOCK, &err) < 0)
            return fail(&err);
        bytes += (double)BLOCK;
    }
    free(buf);
    printf("%.0f\n", bytes / t);
    return 0;
}

static int run(char **argv)
{
    double t0 = now_s();
    struct rusage u;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || getrusage(RUSAGE_CHILDREN, &u) < 0)
        return 1;
    printf("%.2f %.2f %lld\n", now_s() - t0,
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6,
           (long long)u.ru_maxrss * 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "make") == 0)
        return make(argv[2], atof(argv[3]));
    if (argc == 2 && strcmp(argv[1], "hash") == 0)
        return hash();
    if (argc > 2 && strcmp(argv[1], "run") == 0)
        return run(argv + 2);
    if (argc > 2 && strcmp(argv[1], "drop") == 0) {
        for (int i = 2; i < argc; i++)
            nftw(argv[i], drop_one, 16, FTW_PHYS);
        return 0;
    }
    fprintf(stderr, "usage: convert_bench make DIR GB | drop PATH ... | hash | run CMD ...\n");
    return 2;
}
