/* SPDX-License-Identifier: Apache-2.0
 *
 * What the shell tests of training need and no stage offers:
 *
 *     train_tool data DIR DOCS VALID_DOCS     shards artifact of learnable documents over 64 tokens
 *     train_tool long DIR DOCS TOKENS         the same of so many tokens each, for training alone
 *     train_tool pairs DIR DOCS VALID_DOCS    the same as pairs: a prompt, then the chain (better)
 *                                             or anything (worse)
 *     train_tool labels DIR DOCS VALID_DOCS   the same as labelled answers
 *     train_tool id DIR                       step and identity of a checkpoint, its hashes checked
 *     train_tool id DIR metrics FILE          both in one start
 *     train_tool state DIR                    its state as JSON
 *     train_tool types DIR                    how many of its tensors there are by kind, dimensions
 *                                             and type
 *     train_tool distance DIR DIR2            "weight 1.2e-08 adam_m ...": |a - b| / |b| of the
 *                                             tensor that is furthest apart, by kind
 *     train_tool gradients DIR DIR2           the same of adam_m, where |b| is a hundredth of that
 *                                             of the longest tensor at least: gradients that are
 *                                             zero but for rounding count as that
 *     train_tool moved DIR DIR2 PATTERN       "MOVED of COUNT": weights whose names match and that
 *                                             are other ones in DIR2
 *     train_tool kinds DIR KIND DIR2 KIND2    how many tensors of a kind of DIR are not those of
 *                                             the other kind of DIR2
 *     train_tool average OUT STEPS DECAY START WARMUP
 *                                             the largest |a - b| / (1 + |b|) of the averages in
 *                                             OUT/checkpoints/step-STEPS and the formula over the
 *                                             weights of its steps 1 to STEPS
 *     train_tool metrics FILE                 deterministic fields of every record, one line each
 *     train_tool poison SRC DST               copy a checkpoint with one weight not a number
 *     train_tool older SRC DST                the same of kernels of the version before
 *     train_tool chosen SRC DST N             copy one whose routers have biases of logits, with
 *                                             which all rows choose the first N experts
 */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/store/ckpt.h"
#include "engine/store/shard.h"
#include "kernels/kernels.h"
#include "tests/tap/tap.h"

#define VOCAB 64

/* A chain: three times in four the next token is a fixed function of this one, else anything. Token
 * 0 ends a document.
 */
static int write_chain(lf_shard_writer *w, uint64_t d, uint32_t len, lf_err *err)
{
    uint32_t *doc = lf_calloc(len, sizeof *doc, err), cur = 1 + lf_rng_u32(7, 2, d) % (VOCAB - 1);
    if (!doc)
        return LF_ENOMEM;
    for (uint32_t k = 0; k + 1 < len; k++) {
        doc[k] = cur;
        uint32_t r = lf_rng_u32(7, 3, d * 1024 + k);
        cur = 1 + (r % 4 ? (cur * 29 + 11) : r / 4) % (VOCAB - 1);
    }
    doc[len - 1] = 0;
    const int rc = lf_shard_append(w, doc, len, err);
    free(doc);
    return rc;
}

/* len 0: lengths of 20 to 199 tokens. */
static int write_plain(lf_shard_writer *w, uint64_t d, uint32_t len, lf_err *err)
{
    return write_chain(w, d, len ? len : 20 + lf_rng_u32(7, 1, d) % 180, err);
}

/* Documents 2 i and 2 i + 1 have the same prompt; the answer of the first goes on along the chain,
 * the other's does not. */
static int write_judged(lf_shard_writer *w, uint64_t d, lf_err *err)
{
    uint32_t doc[64], prompt = 3 + lf_rng_u32(8, 1, d / 2) % 5,
                      len = prompt + 4 + lf_rng_u32(8, 2, d) % 9;
    uint32_t cur = 1 + lf_rng_u32(8, 3, d / 2) % (VOCAB - 1);
    uint8_t mask[64];
    for (uint32_t k = 0; k < len; k++) {
        bool chain = k < prompt || d % 2 == 0;
        doc[k] = k + 1 == len ? 0 : cur;
        mask[k] = k >= prompt;
        cur = 1 + (chain ? cur * 29 + 11 : lf_rng_u32(8, 4, d * 64 + k)) % (VOCAB - 1);
    }
    return lf_shard_append_doc(
        w, &(lf_shard_doc){.tokens = doc, .n = len, .mask = mask, .label = d % 2 == 0}, err);
}

/* Documents to write; len: tokens of each, or 0. */
struct docs {
    enum lf_rows rows;
    uint64_t first, n;
    uint32_t len;
};

static int write_docs(const char *dir, const char *name, const struct docs *of, lf_artifact *a,
                      uint64_t *tokens, lf_err *err)
{
    lf_shard_info info = {.vocab_size = VOCAB, .eos_id = 0, .source = "test", .rows = of->rows};
    lf_shard_writer *w = NULL;
    lf_shard_stat st;
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    char *path = lf_path_join(dir, name, err);
    int rc = path ? lf_shard_create(&w, path, &info, 0, err) : LF_ENOMEM;
    for (uint64_t d = of->first; d < of->first + of->n && !rc; d++)
        rc = of->rows == LF_ROWS_PLAIN ? write_plain(w, d, of->len, err) : write_judged(w, d, err);
    if (!rc) {
        rc = lf_shard_finish(w, &st, err);
        w = NULL;
    }
    if (!rc) {
        *tokens = st.n_tokens;
        rc = lf_artifact_add(a, name, st.bytes, st.sha256, err);
    }
    lf_shard_abort(w);
    free(path);
    return rc;
}

static int cmd_data(const char *dir, const struct docs *train_docs, uint64_t valid, lf_err *err)
{
    struct docs valid_docs = *train_docs;
    lf_artifact a = {0};
    uint64_t train = 0, ignored;
    int rc = lf_io_mkdirs(dir, 0777, err);
    if (!rc)
        rc = lf_artifact_init(&a, "shards", err);
    if (!rc)
        rc = write_docs(dir, "train-00000.h5", train_docs, &a, &train, err);
    valid_docs.first = train_docs->n;
    valid_docs.n = valid;
    if (!rc && valid)
        rc = write_docs(dir, "valid-00000.h5", &valid_docs, &a, &ignored, err);
    /* As lf-tokenize does; --plan reads it. */
    json_t *meta = json_pack("{s:{s:{s:I}}}", "splits", "train", "tokens", (json_int_t)train);
    if (!rc && (!meta || json_object_set_new(a.meta, "vocab_size", json_integer(VOCAB)) ||
                json_object_update(a.meta, meta)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(meta);
    if (!rc)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    return rc;
}

static int cmd_id(const char *dir, bool state, lf_err *err)
{
    lf_ckpt *c = NULL;
    char hex[LF_HASH_HEX];
    int rc = lf_ckpt_open(&c, dir, 1, err);
    if (!rc && state) {
        char *text = lf_json_dump(lf_ckpt_state(c), err);
        puts(text ? text : "");
        free(text);
    } else if (!rc) {
        lf_hash_hex(hex, lf_ckpt_identity(c));
        printf("%lld %s\n", (long long)lf_ckpt_step(c), hex);
    }
    lf_ckpt_close(c);
    return rc;
}

static int cmd_types(const char *dir, lf_err *err)
{
    static const char *const kinds[] = {"weight", "adam_m", "adam_v", "ema"};
    lf_ckpt *c = NULL;
    int rc = lf_ckpt_open(&c, dir, 1, err);
    for (int k = 0; k < 4 && !rc; k++)
        for (int nd = 1; nd < 3; nd++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                int n = 0;
                for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
                    const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
                    n += strcmp(e->kind, kinds[k]) == 0 && e->ndim == nd &&
                         e->dtype == (bf16 ? LF_H5_BF16 : LF_H5_F32);
                }
                if (n)
                    printf("%s %dd %s %d\n", kinds[k], nd, bf16 ? "bf16" : "f32", n);
            }
    lf_ckpt_close(c);
    return rc;
}

/* Euclidean lengths of a tensor of both checkpoints: of the difference and of b. */
static int lengths(const lf_ckpt *a, const lf_ckpt *b, const lf_ckpt_entry *e, double out[2],
                   lf_err *err)
{
    const lf_ckpt_entry *f = lf_ckpt_find(b, e->name, e->kind);
    size_t n = 1;
    double d = 0, l = 0;
    if (!f || f->ndim != e->ndim ||
        memcmp(f->shape, e->shape, sizeof(f->shape[0]) * (size_t)e->ndim) != 0 ||
        e->dtype != LF_H5_F32 || f->dtype != LF_H5_F32)
        return lf_fail(err, LF_EINVAL, "%s (%s) is not in both as f32 of one shape", e->name,
                       e->kind);
    for (int i = 0; i < e->ndim; i++)
        n *= (size_t)e->shape[i];
    float *x = lf_calloc(2 * n + 1, sizeof(*x), err);
    int rc = x ? lf_ckpt_read(a, e, NULL, NULL, x, err) : LF_ENOMEM;
    if (!rc)
        rc = lf_ckpt_read(b, f, NULL, NULL, x + n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        d += pow((double)x[i] - (double)x[n + i], 2);
        l += pow((double)x[n + i], 2);
    }
    free(x);
    out[0] = sqrt(d);
    out[1] = sqrt(l);
    return rc;
}

static int apart(const lf_ckpt *a, const lf_ckpt *b, const lf_ckpt_entry *e, double *out,
                 lf_err *err)
{
    double l[2] = {0};
    const int rc = lengths(a, b, e, l, err);
    *out = l[0] == 0 ? 0 : l[0] / l[1];
    return rc;
}

static int cmd_gradients(const char *dir, const char *other, lf_err *err)
{
    double most = 0, longest = 0;
    lf_ckpt *a = NULL, *b = NULL;
    int rc = lf_ckpt_open(&a, dir, 1, err);
    if (!rc)
        rc = lf_ckpt_open(&b, other, 1, err);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; !rc && i < lf_ckpt_n_entries(a); i++) {
            const lf_ckpt_entry *e = lf_ckpt_entry_at(a, i);
            double l[2] = {0};
            if (strcmp(e->kind, "adam_m") != 0)
                continue;
            rc = lengths(a, b, e, l, err);
            longest = fmax(longest, l[1]);
            const double one = l[0] / fmax(l[1], longest / 100);
            if (pass && !(one <= most))
                most = one; /* NaN too */
        }
    if (!rc)
        printf("%.3g\n", most);
    lf_ckpt_close(a);
    lf_ckpt_close(b);
    return rc;
}

static int cmd_distance(const char *dir, const char *other, lf_err *err)
{
    static const char *const kinds[] = {"weight", "adam_m", "adam_v"};
    double most[3] = {0}, one;
    lf_ckpt *a = NULL, *b = NULL;
    int rc = lf_ckpt_open(&a, dir, 1, err);
    if (!rc)
        rc = lf_ckpt_open(&b, other, 1, err);
    if (!rc && lf_ckpt_n_entries(a) != lf_ckpt_n_entries(b))
        rc = lf_fail(err, LF_EINVAL, "%s and %s have different tensors", dir, other);
    for (size_t i = 0; !rc && i < lf_ckpt_n_entries(a); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(a, i);
        rc = apart(a, b, e, &one, err);
        for (int k = 0; k < 3 && !rc; k++)
            if (strcmp(e->kind, kinds[k]) == 0 && !(one <= most[k]))
                most[k] = one; /* NaN too */
    }
    for (int k = 0; k < 3 && !rc; k++)
        printf("%s %.3g%s", kinds[k], most[k], k < 2 ? " " : "\n");
    lf_ckpt_close(a);
    lf_ckpt_close(b);
    return rc;
}

static int cmd_moved(const char *dir, const char *other, const char *pattern, lf_err *err)
{
    lf_ckpt *a = NULL, *b = NULL;
    int moved = 0, count = 0;
    double one = 0;
    int rc = lf_ckpt_open(&a, dir, 1, err);
    if (!rc)
        rc = lf_ckpt_open(&b, other, 1, err);
    for (size_t i = 0; !rc && i < lf_ckpt_n_entries(a); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(a, i);
        if (strcmp(e->kind, "weight") != 0 || fnmatch(pattern, e->name, 0) != 0)
            continue;
        rc = apart(a, b, e, &one, err);
        count++;
        moved += !(one <= 0);
    }
    if (!rc)
        printf("%d of %d\n", moved, count);
    lf_ckpt_close(a);
    lf_ckpt_close(b);
    return rc;
}

static int print_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    static const char *const keys[] = {"step",       "samples",       "tokens", "loss",
                                       "valid_loss", "grad_norm",     "lr",     "accuracy",
                                       "margin",     "valid_accuracy"};
    (void)ctx;
    (void)offset;
    json_t *o = lf_json_load_text(payload, n, "record", err);
    if (!o)
        return LF_EFORMAT;
    if (json_is_true(
            json_object_get(o, "resumed"))) { /* where a start begins, not how a step went */
        json_decref(o);
        return 1;
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_t *v = json_object_get(o, keys[i]);
        if (json_is_integer(v))
            printf("%lld ", (long long)json_integer_value(v));
        else if (v)
            printf("%.17g ", json_number_value(v));
        else
            printf("- ");
    }
    printf("\n");
    json_decref(o);
    return 1;
}

/* The state of a copy, in a new object. */
static json_t *state_of(const lf_ckpt *c, bool older, lf_err *err)
{
    json_t *o = json_deep_copy(lf_ckpt_state(c)), *f = json_object_get(o, "fingerprint");
    if (!o || (older &&
               json_object_set_new(f, "kernel_version", json_integer(LF_KERNEL_VERSION - 1)) != 0))
        lf_fail(err, LF_ENOMEM, "state: out of memory, or without a fingerprint");
    else
        return o;
    json_decref(o);
    return NULL;
}

/* What is other in a copy. */
struct change {
    bool older, poison;
    int chosen;
};

static void change_tensor(const struct change *h, const lf_ckpt_entry *e, float *data)
{
    if (strcmp(e->kind, "weight") != 0)
        return;
    if (h->poison && strcmp(e->name, "model/layers.0.mlp.down.weight") == 0)
        data[0] = NAN;
    for (int i = 0; i < h->chosen; i++)
        if (fnmatch("model/layers.*.moe.router.logit_bias", e->name, 0) == 0)
            data[i] += 50;
}

static int cmd_copy(const char *src, const char *dst, const struct change *h, lf_err *err)
{
    lf_ckpt *c = NULL;
    lf_ckpt_writer *w = NULL;
    int rc = lf_ckpt_open(&c, src, 1, err);
    size_t n = rc ? 0 : lf_ckpt_n_entries(c);
    lf_ckpt_tensor *t = lf_calloc(n + 1, sizeof(*t), err);
    for (size_t i = 0; i < n && !rc; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        size_t elements = 1;
        for (int d = 0; d < e->ndim; d++)
            elements *= (size_t)e->shape[d];
        float *data = lf_calloc(elements, sizeof(float), err);
        t[i] = (lf_ckpt_tensor){
            .name = e->name, .kind = e->kind, .dtype = e->dtype, .ndim = e->ndim, .data = data};
        memcpy(t[i].shape, e->shape, sizeof(t[i].shape));
        rc = data ? lf_ckpt_read(c, e, NULL, NULL, data, err) : LF_ENOMEM;
        if (!rc)
            change_tensor(h, e, data);
    }
    lf_ckpt_options o = {.threads = 1};
    json_t *state = rc ? NULL : state_of(c, h->older, err);
    if (!rc)
        rc = state ? lf_ckpt_writer_create(&w, t, n, &o, err) : LF_ENOMEM;
    if (!rc)
        rc = lf_ckpt_save_begin(w, dst, state, err);
    if (!rc)
        rc = lf_ckpt_save_wait(w, NULL, err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    for (size_t i = 0; t && i < n; i++) {
        void *p;
        memcpy(&p, &t[i].data, sizeof(p));
        free(p);
    }
    free(t);
    lf_ckpt_close(c);
    return rc < 0 ? rc : 0;
}

static size_t elements_of(const lf_ckpt_entry *e)
{
    size_t n = 1;
    for (int d = 0; d < e->ndim; d++)
        n *= (size_t)e->shape[d];
    return n;
}

/* All elements of the tensor of this kind in f32; the caller frees them. NULL: there is none. */
static float *values(const lf_ckpt *c, const char *name, const char *kind, lf_err *err)
{
    const lf_ckpt_entry *e = lf_ckpt_find(c, name, kind);
    if (!e || e->dtype != LF_H5_F32) {
        lf_fail(err, LF_ENOENT, "%s: no %s of %s in f32", lf_ckpt_dir(c), kind, name);
        return NULL;
    }
    float *x = lf_calloc(elements_of(e) + 1, sizeof *x, err);
    if (x && lf_ckpt_read(c, e, NULL, NULL, x, err)) {
        free(x);
        x = NULL;
    }
    return x;
}

static int cmd_kinds(char **arg, lf_err *err)
{
    lf_ckpt *a = NULL, *b = NULL;
    int other = 0, all = 0, rc = lf_ckpt_open(&a, arg[0], 1, err);
    if (!rc)
        rc = lf_ckpt_open(&b, arg[2], 1, err);
    for (size_t i = 0; !rc && i < lf_ckpt_n_entries(a); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(a, i);
        if (strcmp(e->kind, arg[1]) != 0)
            continue;
        float *x = values(a, e->name, arg[1], err), *y = values(b, e->name, arg[3], err);
        rc = x && y ? 0 : LF_ENOENT;
        other += !rc && memcmp(x, y, elements_of(e) * sizeof *x) != 0;
        all++;
        free(x);
        free(y);
    }
    if (!rc)
        printf("%d of %d\n", other, all);
    lf_ckpt_close(a);
    lf_ckpt_close(b);
    return rc;
}

/* The average of a tensor after `steps` steps by its formula in f64, from the weights that a run
 * has saved after each. */
struct averaged {
    lf_ckpt **c; /* [steps], of the steps from 1 on */
    int steps, start, warmup;
    double decay;
};

static int formula(double *out, const struct averaged *a, const lf_ckpt_entry *e, lf_err *err)
{
    for (int s = 0; s < a->steps; s++) {
        float *w = values(a->c[s], e->name, "weight", err);
        const double k = s - a->start, ramp = (1 + k) / (10 + k),
                     decay = k <= 0                              ? 0
                             : a->warmup != 0 && ramp < a->decay ? ramp
                                                                 : a->decay;
        if (!w)
            return LF_ENOENT;
        for (size_t i = 0; i < elements_of(e); i++)
            out[i] = decay * out[i] + (1 - decay) * (double)w[i];
        free(w);
    }
    return 0;
}

static int cmd_average(char **arg, lf_err *err)
{
    struct averaged a = {.steps = atoi(arg[1]),
                         .decay = atof(arg[2]),
                         .start = atoi(arg[3]),
                         .warmup = atoi(arg[4])};
    double worst = 0;
    int n = 0, rc = 0;
    a.c = lf_calloc((size_t)a.steps + 1, sizeof(lf_ckpt *), err);
    for (int s = 0; a.c && s < a.steps && !rc; s++) {
        char *dir = lf_ckpt_step_dir(arg[0], s + 1, err);
        rc = dir ? lf_ckpt_open(&a.c[s], dir, 1, err) : LF_ENOMEM;
        free(dir);
    }
    const lf_ckpt *last = !rc && a.c && a.steps > 0 ? a.c[a.steps - 1] : NULL;
    for (size_t i = 0; last && !rc && i < lf_ckpt_n_entries(last); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(last, i);
        if (strcmp(e->kind, "ema") != 0)
            continue;
        double *want = lf_calloc(elements_of(e) + 1, sizeof *want, err);
        float *is = values(last, e->name, "ema", err);
        rc = want && is ? formula(want, &a, e, err) : LF_ENOMEM;
        for (size_t k = 0; !rc && k < elements_of(e); k++)
            worst = tap_worse(worst, fabs((double)is[k] - want[k]) / (1 + fabs(want[k])));
        n++;
        free(want);
        free(is);
    }
    if (!rc)
        printf("%.2g of %d\n", worst, n);
    for (int s = 0; a.c && s < a.steps; s++)
        lf_ckpt_close(a.c[s]);
    free(a.c);
    return rc;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    int64_t offset = 0;
    int rc;
    if (argc == 5 && strcmp(argv[1], "id") == 0 && strcmp(argv[3], "metrics") == 0) {
        rc = cmd_id(argv[2], false, &err);
        if (rc >= 0)
            rc = lf_frame_read(argv[4], &offset, print_record, NULL, &err);
    } else if (argc == 5 && (strcmp(argv[1], "data") == 0 || strcmp(argv[1], "pairs") == 0 ||
                             strcmp(argv[1], "labels") == 0))
        rc = cmd_data(argv[2],
                      &(struct docs){.rows = argv[1][0] == 'd'   ? LF_ROWS_PLAIN
                                             : argv[1][0] == 'p' ? LF_ROWS_PAIRS
                                                                 : LF_ROWS_UNPAIRED,
                                     .n = strtoull(argv[3], NULL, 10)},
                      strtoull(argv[4], NULL, 10), &err);
    else if (argc == 5 && strcmp(argv[1], "long") == 0)
        rc = cmd_data(argv[2],
                      &(struct docs){.n = strtoull(argv[3], NULL, 10),
                                     .len = (uint32_t)strtoull(argv[4], NULL, 10)},
                      0, &err);
    else if (argc == 3 && strcmp(argv[1], "id") == 0)
        rc = cmd_id(argv[2], false, &err);
    else if (argc == 3 && strcmp(argv[1], "state") == 0)
        rc = cmd_id(argv[2], true, &err);
    else if (argc == 3 && strcmp(argv[1], "types") == 0)
        rc = cmd_types(argv[2], &err);
    else if (argc == 3 && strcmp(argv[1], "metrics") == 0)
        rc = lf_frame_read(argv[2], &offset, print_record, NULL, &err);
    else if (argc == 4 && strcmp(argv[1], "distance") == 0)
        rc = cmd_distance(argv[2], argv[3], &err);
    else if (argc == 6 && strcmp(argv[1], "kinds") == 0)
        rc = cmd_kinds(argv + 2, &err);
    else if (argc == 7 && strcmp(argv[1], "average") == 0)
        rc = cmd_average(argv + 2, &err);
    else if (argc == 4 && strcmp(argv[1], "gradients") == 0)
        rc = cmd_gradients(argv[2], argv[3], &err);
    else if (argc == 5 && strcmp(argv[1], "moved") == 0)
        rc = cmd_moved(argv[2], argv[3], argv[4], &err);
    else if (argc == 4 && (strcmp(argv[1], "poison") == 0 || strcmp(argv[1], "older") == 0))
        rc = cmd_copy(argv[2], argv[3],
                      &(struct change){.older = argv[1][0] == 'o', .poison = argv[1][0] == 'p'},
                      &err);
    else if (argc == 5 && strcmp(argv[1], "chosen") == 0)
        rc = cmd_copy(argv[2], argv[3], &(struct change){.chosen = atoi(argv[4])}, &err);
    else
        rc = lf_fail(&err, LF_EINVAL, "usage: see the head of train_tool.c");
    if (rc < 0)
        fprintf(stderr, "train_tool: %s\n", err.text);
    return rc < 0;
}
