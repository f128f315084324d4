/* SPDX-License-Identifier: Apache-2.0
 *
 * Training an adapter as PEFT does: from its golden adapters (tests/golden/peft) twenty AdamW steps
 * on the same batch, loss and gradient norm of each. Adapters of encoder and projector see
 * pictures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/peft.h"
#include "engine/graph/exec.h"
#include "engine/model/sight.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { B = 2, MOST = B * 40, STEPS = 20 };

struct run {
    lf_model_config mc;
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    int64_t T, rows, trained; /* tokens of a text, of both, those that are predicted */
    int32_t tokens[MOST], targets[MOST], positions[MOST], cu[B + 1];
    int32_t places[3 * MOST]; /* of a text they are three times its positions */
    double loss[STEPS], norm[STEPS];
    /* pictures, the same number of the same sizes in each text */
    struct lf_decoder_media media;
    lf_sight *sight; /* NULL: there are none */
    float *pixels;   /* in the order of the encoder */
};

static void must(int rc, const lf_err *err)
{
    if (rc)
        tap_bail("%s", err->text);
}

/* Where the model of a case lies: those that see are beside the families. */
static void folder_of(char *to, size_t cap, const char *name)
{
    const bool sees = strncmp(name, "vlm-", 4) == 0;
    const char *base = sees ? name + 4 : name, *end = strstr(base, sees ? "-eyes" : "-dora");
    snprintf(to, cap, "%s/tests/golden/%s/%.*s", getenv("LF_SRCDIR"), sees ? "vlm" : "families",
             (int)(end ? end - base : (long)strlen(base)), base);
}

/* Base and adapter of a case as checkpoints below the test's directory. */
static void make(const char *name, char *base, char *adapter, size_t cap)
{
    lf_err err = LF_ERR_INIT;
    char from[4096];
    struct lf_convert_result r;
    snprintf(base, cap, "%s/%s-base", tap_tmpdir(), name);
    snprintf(adapter, cap, "%s/%s-adapter", tap_tmpdir(), name);
    folder_of(from, sizeof from, name);
    const struct lf_convert_opts co = {.from = from, .out = base, .threads = 1, .pad_token = -1};
    must(lf_convert_import(&co, &r, &err), &err);
    char peft[4096];
    snprintf(peft, sizeof peft, "%s/tests/golden/peft/%s", getenv("LF_SRCDIR"), name);
    const struct lf_peft_opts po = {.from = peft, .base = base, .out = adapter, .threads = 1};
    must(lf_peft_import(&po, &r, &err), &err);
}

static void open_run(struct run *r, const char *base, const char *adapter)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *b = NULL, *a = NULL;
    struct lf_adapter_config ac;
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_FAST};
    const struct lf_adamw_opts adam = {
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    const struct lf_decoder_rows rows = {
        .rows = r->rows, .n_docs = B, .max_doc = r->T, .media = r->sight ? &r->media : NULL};
    must(lf_ckpt_open(&b, base, 1, &err) || lf_ckpt_open(&a, adapter, 1, &err), &err);
    must(lf_adapter_check_base(a, b, &err) || lf_adapter_config(&ac, a, &err), &err);
    r->d = lf_decoder_create(&r->mc, r->T, &err);
    r->ps = lf_pstore_create(&err);
    must(!r->d || !r->ps || lf_decoder_declare(r->d, r->ps, &err) ||
             lf_decoder_adapt(r->d, r->ps, &ac, &err) ||
             !(r->plan = lf_plan_create(r->ps, &po, &err)),
         &err);
    lf_graph *g = lf_decoder_loss_graph(r->d, r->ps, "train", &rows, true, &err);
    r->chain = g ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1;
    lf_graph_destroy(g);
    must(r->chain < 0 || lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err) ||
             !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, &err)) ||
             !(r->ex = lf_exec_create(r->plan, r->back, NULL, &err)),
         &err);
    must(lf_weights_load(r->ps, b, LF_WEIGHTS_PREFIX, false, &err) ||
             lf_weights_load_adapter(r->ps, a, LF_WEIGHTS_PREFIX, false, &err),
         &err);
    lf_ckpt_close(a);
    lf_ckpt_close(b);
}

static void close_run(struct run *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
    lf_sight_destroy(r->sight);
    free(r->pixels);
}

static void read_config(struct run *r, const char *base)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *b = NULL;
    must(lf_ckpt_open(&b, base, 1, &err) || lf_weights_config(&r->mc, b, &err), &err);
    r->mc.embed_dropout = r->mc.attn_dropout = r->mc.mlp_dropout = r->mc.attn_prob_dropout =
        0; /* as the script has it */
    lf_ckpt_close(b);
}

static void *read_all(const lf_st *s, const char *name, size_t size)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(s, name);
    void *p = e && e->bytes == e->elems * (int64_t)size ? calloc((size_t)e->elems, size) : NULL;
    if (!p)
        tap_bail("no %s of this type", name);
    must(lf_st_read(s, e, 0, e->elems, p, &err), &err);
    return p;
}

/* Texts behind each other; no token of a picture is predicted. */
static void take_texts(struct run *r, const lf_st *s)
{
    const lf_st_entry *e = lf_st_find(s, "input_ids");
    if (!e || e->shape[0] != B || e->elems > MOST)
        tap_bail("input_ids are not as they should be");
    int64_t *ids = read_all(s, "input_ids", sizeof *ids);
    r->rows = e->elems;
    r->T = r->rows / B;
    for (int64_t i = 0; i < r->rows; i++) {
        const bool last = i % r->T == r->T - 1,
                   picture = !last && r->mc.vision.family && ids[i + 1] == r->mc.image_token;
        r->tokens[i] = (int32_t)ids[i];
        r->targets[i] = last || picture ? -1 : (int32_t)ids[i + 1];
        r->trained += r->targets[i] >= 0;
        r->positions[i] = (int32_t)(i % r->T);
        for (int k = 0; k < 3; k++)
            r->places[3 * i + k] = r->positions[i];
    }
    for (int b = 0; b <= B; b++)
        r->cu[b] = (int32_t)(b * r->T);
    free(ids);
}

/* The tiles of each text count from 0 on. */
static void fill_sight(struct run *r, const lf_st *s, int64_t patches)
{
    enum { ROOM = 8 };
    lf_err err = LF_ERR_INIT;
    int64_t *tiles = read_all(s, "tiles", sizeof *tiles),
            *pictures = read_all(s, "pictures", sizeof *pictures),
            *merge = read_all(s, "merge", sizeof *merge);
    const int64_t n = lf_st_find(s, "tiles")->shape[1], k = lf_st_find(s, "pictures")->shape[1];
    struct lf_sight_tile tile[ROOM];
    struct lf_sight_picture picture[ROOM];
    if (B * n > ROOM || B * k > ROOM)
        tap_bail("more pictures than there is room for");
    for (int64_t i = 0; i < B * n; i++)
        tile[i] = (struct lf_sight_tile){(int32_t)tiles[2 * i], (int32_t)tiles[2 * i + 1]};
    for (int64_t i = 0; i < B * k; i++) {
        const int64_t *p = pictures + 6 * i;
        picture[i] = (struct lf_sight_picture){(int32_t)(p[0] + i / k * n),
                                               (int32_t)p[1],
                                               (int32_t)p[2],
                                               (int32_t)p[3],
                                               (int32_t)p[4],
                                               (int32_t)p[5]};
    }
    const struct lf_sight_batch b = {.n_tiles = (int32_t)(B * n),
                                     .n_pictures = (int32_t)(B * k),
                                     .tile = tile,
                                     .picture = picture,
                                     .merge = (int32_t)*merge,
                                     .rows = r->rows,
                                     .tokens = r->tokens,
                                     .positions = r->positions};
    r->media = lf_sight_bounds(&r->mc, patches, B * n, r->rows);
    r->sight = lf_sight_create(&r->mc, &r->media, r->rows, &err);
    must(!r->sight || lf_sight_fill(r->sight, &b, &err), &err);
    free(tiles);
    free(pictures);
    free(merge);
}

static void take_pictures(struct run *r, const lf_st *s)
{
    const lf_st_entry *e = lf_st_find(s, "pixels");
    const int64_t K = r->mc.vision.patch_dim, patches = B * e->shape[1];
    float *from = read_all(s, "pixels", sizeof *from);
    if (e->shape[2] != K)
        tap_bail("pixels are not as they should be");
    fill_sight(r, s, patches);
    r->pixels = calloc((size_t)(r->media.vision.patches * K), sizeof *r->pixels);
    if (!r->pixels)
        tap_bail("no memory");
    const int32_t *order = lf_sight_patch_order(r->sight);
    for (int64_t p = 0; p < patches; p++)
        memcpy(r->pixels + p * K, from + order[p] * K, (size_t)K * sizeof *from);
    free(from);
}

static void expected(struct run *r, const char *family)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    lf_st *s = NULL;
    snprintf(path, sizeof path, "%s/tests/golden/peft/%s/expected.safetensors", getenv("LF_SRCDIR"),
             family);
    must(lf_st_open(&s, path, &err), &err);
    take_texts(r, s);
    if (lf_st_find(s, "pixels"))
        take_pictures(r, s);
    must(lf_st_read(s, lf_st_find(s, "train.loss"), 0, STEPS, r->loss, &err) ||
             lf_st_read(s, lf_st_find(s, "train.norm"), 0, STEPS, r->norm, &err),
         &err);
    lf_st_close(s);
}

static void put(struct run *r, const char *name, const void *data, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    must(lf_exec_write(r->ex, r->chain, 0, name, data, (size_t)n * 4, &err), &err);
}

static void feed(struct run *r)
{
    lf_err err = LF_ERR_INIT;
    put(r, "tokens", r->sight ? lf_sight_token_rows(r->sight) : r->tokens, r->rows);
    put(r, "targets", r->targets, r->rows);
    put(r, "positions", r->positions, r->rows);
    put(r, "cu_seqlens", r->cu, B + 1);
    if (!r->sight && r->mc.rope_sections.n > 0)
        put(r, "places", r->places, 3 * r->rows);
    if (!r->sight)
        return;
    put(r, "vision.pixels", r->pixels, r->media.vision.patches * r->mc.vision.patch_dim);
    must(lf_sight_write(r->sight, r->ex, r->chain, 0, &err) ||
             lf_sight_write_rows(r->sight, r->ex, r->chain, 0, &err),
         &err);
}

static struct lf_step_record step(struct run *r, int n)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.lr = 5e-3f,
                                 .bias_corr1 = (float)(1 - pow(0.9, n + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, n + 1)),
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = 1.0f / (float)r->trained};
    feed(r);
    must(lf_exec_record_write(r->ex, &rec, &err) ||
             lf_exec_run(r->ex, r->chain, LF_FWD, 0, LF_FIRST, &err) ||
             lf_exec_run(r->ex, r->chain, LF_BWD, 0, LF_FIRST, &err) ||
             lf_exec_run(r->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
             lf_exec_record_read(r->ex, &rec, &err),
         &err);
    return rec;
}

/* near: of gradient norms. AdamW divides by gradients, so where a few are next to nothing rounding
 * grows with the steps; the first is near everywhere. */
static void test(const char *family, double near)
{
    char base[4096], adapter[4096];
    struct run r;
    double loss = 0, norm = 0, first = 0;
    memset(&r, 0, sizeof r);
    make(family, base, adapter, sizeof base);
    read_config(&r, base);
    expected(&r, family);
    open_run(&r, base, adapter);
    for (int n = 0; n < STEPS; n++) {
        const struct lf_step_record rec = step(&r, n);
        loss = tap_worse(loss, fabs(rec.loss_sum / (double)r.trained / r.loss[n] - 1));
        norm = tap_worse(norm, fabs((double)rec.grad_norm / r.norm[n] - 1));
        first = n == 0 ? norm : first;
    }
    tap_ok(loss < 1e-5, "%s: loss of twenty steps within %.2g", family, loss);
    tap_ok(norm < near && first < 1e-4, "%s: gradient norm within %.2g, at first %.2g", family,
           norm, first);
    tap_ok(r.loss[STEPS - 1] < r.loss[0] - 0.3, "%s: they learn, so a wrong gradient would show",
           family);
    close_run(&r);
}

int main(void)
{
    TAP(3, test("llama", 1e-4));
    TAP(3, test("phi3", 1e-4));
    TAP(3, test("gpt2", 1e-4));
    TAP(3, test("gpt-neox", 1e-4));
    TAP(3, test("llama-dora", 1e-4));
    TAP(3, test("gpt2-dora", 1e-4));
    TAP(3, test("qwen3-next", 1e-4));
    TAP(3, test("qwen3.5", 1e-4));
    TAP(3, test("mamba2", 1e-3));
    TAP(3, test("kimi-linear", 1e-4));
    TAP(3, test("nemotron-h-latent", 2e-3));
    TAP(3, test("qwen3-next-dora", 2e-3));
    TAP(3, test("mixtral", 1e-4));
    TAP(3, test("qwen3-moe", 1e-4));
    TAP(3, test("vlm-llava", 1e-4));
    TAP(3, test("vlm-qwen2.5-vl", 1e-4));
    TAP(3, test("vlm-gemma3", 1e-4));
    TAP(3, test("vlm-llava-eyes", 1e-4));
    TAP(3, test("vlm-qwen2.5-vl-eyes", 1e-4));
    TAP(3, test("vlm-qwen3-vl-eyes", 1e-4));
    TAP(3, test("vlm-gemma3-eyes", 1e-4));
    return tap_done();
}
