/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests/bench/convert.sh needs besides lf-convert and cp:
 *
 *   make DIR GB [FORM]  a Llama-shaped model of about GB gigabytes (10^9, BF16) in one file. FORM
 *                     fp8: its layers are 8-bit floats with a scale for each block; mxfp4: a model
 *                     like gpt-oss, with experts of 4-bit floats. GB is that of the same weights
 *                     in bf16
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
/* Of the model with experts of 4-bit floats: its width, that of all its query heads and of its key
 * heads; its experts are as wide as it is. */
#define OSS      2880
#define OSS_WIDE 4096
#define OSS_KEYS 512
#define EXPERTS  8
#define BLOCK    ((size_t)8 << 20)

static int fail(const lf_err *err)
{
    fprintf(stderr, "convert_bench: %s\n", err->text);
    return 1;
}

/* ---- make ---- */

enum form { BF16, FP8, MXFP4, FORMS };
static const char *const forms[] = {"bf16", "fp8", "mxfp4"};

static size_t n_decls;
static lf_st_decl decls[4096];

static void declare(const char *name, enum lf_st_dtype t, int ndim, const int64_t *shape)
{
    lf_st_decl d = {.name = strdup(name), .dtype = t, .ndim = ndim};
    memcpy(d.shape, shape, (size_t)ndim * sizeof *shape);
    decls[n_decls++] = d;
}

static void plain(const char *name, int64_t a, int64_t b)
{
    declare(name, LF_ST_BF16, b ? 2 : 1, (int64_t[]){a, b});
}

/* A matrix of a layer. */
static void matrix(enum form form, const char *name, int64_t a, int64_t b)
{
    char scale[160];
    if (form != FP8) {
        plain(name, a, b);
        return;
    }
    declare(name, LF_ST_F8_E4M3, 2, (int64_t[]){a, b});
    snprintf(scale, sizeof scale, "%s_scale_inv", name);
    declare(scale, LF_ST_F32, 2, (int64_t[]){(a + 127) / 128, (b + 127) / 128});
}

struct tensor {
    const char *name;
    int64_t a, b;
};

static void declare_llama(enum form form, int l)
{
    static const struct tensor T[] = {
        {"self_attn.q_proj", HIDDEN, HIDDEN},   {"self_attn.k_proj", HIDDEN, HIDDEN},
        {"self_attn.v_proj", HIDDEN, HIDDEN},   {"self_attn.o_proj", HIDDEN, HIDDEN},
        {"mlp.gate_proj", FFN, HIDDEN},         {"mlp.up_proj", FFN, HIDDEN},
        {"mlp.down_proj", HIDDEN, FFN},         {"input_layernorm", HIDDEN, 0},
        {"post_attention_layernorm", HIDDEN, 0}};
    char name[128];
    for (size_t i = 0; i < sizeof T / sizeof *T; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, T[i].name);
        if (T[i].b)
            matrix(form, name, T[i].a, T[i].b);
        else
            plain(name, T[i].a, 0);
    }
}

/* The experts of a gpt-oss as published. */
static void declare_packed(int l, const char *part, int64_t rows, int64_t columns)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_blocks", l, part);
    declare(name, LF_ST_U8, 4, (int64_t[]){EXPERTS, rows, columns / 32, 16});
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_scales", l, part);
    declare(name, LF_ST_U8, 3, (int64_t[]){EXPERTS, rows, columns / 32});
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_bias", l, part);
    plain(name, EXPERTS, rows);
}

static void declare_oss(int l)
{
    static const struct tensor T[] = {{"self_attn.q_proj.weight", OSS_WIDE, OSS},
                                      {"self_attn.q_proj.bias", OSS_WIDE, 0},
                                      {"self_attn.k_proj.weight", OSS_KEYS, OSS},
                                      {"self_attn.k_proj.bias", OSS_KEYS, 0},
                                      {"self_attn.v_proj.weight", OSS_KEYS, OSS},
                                      {"self_attn.v_proj.bias", OSS_KEYS, 0},
                                      {"self_attn.o_proj.weight", OSS, OSS_WIDE},
                                      {"self_attn.o_proj.bias", OSS, 0},
                                      {"self_attn.sinks", OSS_WIDE / 64, 0},
                                      {"mlp.router.weight", EXPERTS, OSS},
                                      {"mlp.router.bias", EXPERTS, 0},
                                      {"input_layernorm.weight", OSS, 0},
                                      {"post_attention_layernorm.weight", OSS, 0}};
    char name[128];
    for (size_t i = 0; i < sizeof T / sizeof *T; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s", l, T[i].name);
        plain(name, T[i].a, T[i].b);
    }
    declare_packed(l, "gate_up_proj", 2 * OSS, OSS);
    declare_packed(l, "down_proj", OSS, OSS);
}

/* Random bits that are finite numbers of ordinary size: in the halves and words of mask. */
static void fill(const lf_st_decl *d, uint32_t *p, size_t n, uint64_t *state)
{
    const bool scales = strstr(d->name, "_scales") != NULL;
    const uint32_t mask = d->dtype == LF_ST_BF16      ? 0x80ff80ffu
                          : d->dtype == LF_ST_F32     ? 0x807fffffu
                          : d->dtype == LF_ST_F8_E4M3 ? 0xbfbfbfbfu
                          : scales                    ? 0x07070707u
                                                      : 0xffffffffu,
                   set = d->dtype == LF_ST_BF16  ? 0x3c003c00u
                         : d->dtype == LF_ST_F32 ? 0x3a000000u
                         : scales                ? 0x70707070u
                                                 : 0;
    for (size_t i = 0; i < n; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        p[i] = ((uint32_t)*state & mask) | set;
    }
}

static int write_config(const char *dir, enum form form, int layers, lf_err *err)
{
    char text[2048], path[4096];
    int n =
        form == MXFP4
            ? snprintf(text, sizeof text,
                       "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "
                       "\"hidden_size\": %d, \"head_dim\": 64, \"intermediate_size\": %d, "
                       "\"num_local_experts\": %d, \"num_experts_per_tok\": 4, "
                       "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                       "\"num_hidden_layers\": %d, \"vocab_size\": %d, "
                       "\"max_position_embeddings\": 4096, \"sliding_window\": 128, "
                       "\"tie_word_embeddings\": false, \"rope_theta\": 150000.0, "
                       "\"quantization_config\": {\"quant_method\": \"mxfp4\"}}\n",
                       OSS, OSS, EXPERTS, OSS_WIDE / 64, OSS_KEYS / 64, layers, VOCAB)
            : snprintf(
                  text, sizeof text,
                  "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                  "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, "
                  "\"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"vocab_size\": %d, "
                  "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"rope_theta\": "
                  "10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
                  "\"bos_token_id\": 1, \"eos_token_id\": 2, %s\"torch_dtype\": \"bfloat16\"}\n",
                  HIDDEN, FFN, layers, VOCAB,
                  form == FP8 ? "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": "
                                "\"e4m3\", \"weight_block_size\": [128, 128]}, "
                              : "");
    snprintf(path, sizeof path, "%s/config.json", dir);
    return lf_io_write_file(path, text, (size_t)n, 0640, err);
}

/* Weights of a layer, in bytes of bf16. */
static double layer_bytes(enum form form)
{
    return form == MXFP4 ? 2.0 * (3.0 * EXPERTS * OSS + 2.0 * OSS_WIDE + 2.0 * OSS_KEYS) * OSS
                         : 2.0 * (4.0 * HIDDEN * HIDDEN + 3.0 * FFN * HIDDEN);
}

static void declare_all(enum form form, double gb, int *layers)
{
    const int64_t hidden = form == MXFP4 ? OSS : HIDDEN;
    const double ends = 2.0 * 2 * VOCAB * (double)hidden;
    *layers = (int)((gb * 1e9 - ends) / layer_bytes(form) + 0.5);
    *layers = *layers < 1 ? 1 : *layers > 200 ? 200 : *layers;
    plain("model.embed_tokens.weight", VOCAB, hidden);
    for (int l = 0; l < *layers; l++)
        if (form == MXFP4)
            declare_oss(l);
        else
            declare_llama(form, l);
    plain("model.norm.weight", hidden, 0);
    plain("lm_head.weight", VOCAB, hidden);
}

static int write_tensor(lf_st_writer *w, const lf_st_decl *d, unsigned char *buf, uint64_t *state,
                        lf_err *err)
{
    size_t left = lf_st_dtype_bytes(d->dtype);
    int rc = 0;
    for (int k = 0; k < d->ndim; k++)
        left *= (size_t)d->shape[k];
    for (; left && rc == 0; left -= left < BLOCK ? left : BLOCK) {
        fill(d, (uint32_t *)(void *)buf, BLOCK / 4, state);
        rc = lf_st_writer_put(w, buf, left < BLOCK ? left : BLOCK, err);
    }
    return rc;
}

static int make(const char *dir, double gb, const char *form)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    uint64_t state = 88172645463325252ull;
    unsigned char *buf = lf_malloc(BLOCK, 1, &err);
    int layers = 0, f = 0;
    while (f < FORMS && strcmp(forms[f], form) != 0)
        f++;
    if (f == FORMS) {
        fprintf(stderr, "convert_bench: no form %s\n", form);
        return 2;
    }
    declare_all((enum form)f, gb, &layers);
    if (!buf || lf_io_mkdirs(dir, 0750, &err) < 0 ||
        write_config(dir, (enum form)f, layers, &err) < 0 ||
        lf_st_writer_create(&w, dir, decls, n_decls, NULL, &err) < 0)
        return fail(&err);
    size_t i;
    int rc = 0;
    while (rc == 0 && (i = lf_st_writer_next(w)) < n_decls)
        rc = write_tensor(w, &decls[i], buf, &state, &err);
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
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "make") == 0)
        return make(argv[2], atof(argv[3]), argc == 5 ? argv[4] : "bf16");
    if (argc == 2 && strcmp(argv[1], "hash") == 0)
        return hash();
    if (argc > 2 && strcmp(argv[1], "run") == 0)
        return run(argv + 2);
    if (argc > 2 && strcmp(argv[1], "drop") == 0) {
        for (int i = 2; i < argc; i++)
            nftw(argv[i], drop_one, 16, FTW_PHYS);
        return 0;
    }
    fprintf(stderr,
            "usage: convert_bench make DIR GB [FORM] | drop PATH ... | hash | run CMD ...\n");
    return 2;
}
