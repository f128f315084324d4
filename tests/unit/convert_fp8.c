/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases whose weights are 8-bit floats with a scale for each block: values by plain loops, any
 * range of elements, what an import and an export make of them, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/convert.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"
#include "tests/unit/fp8_release.h"

static uint16_t value(const struct weight *w, int64_t i)
{
    return bf16_of((float)(e4m3(((const uint8_t *)w->data)[i]) * (double)scale_at(w, i)));
}

/* Every range of elements of a matrix. */
static void test_ranges(void)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    char *dir = write_release(&r, "ranges", "{}", LF_ST_F32, NONE);
    if (lf_st_open(&s, dir, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_st_scale_blocks(s, "_scale_inv", ROWS, COLS, &err), 0, &err, NULL,
           "scales are found");
    size_t scaled = 0, wrong = 0, ranges = 0;
    for (size_t i = 0; i < r.n; i++) {
        const struct weight *w = &r.w[i];
        const lf_st_entry *e = lf_st_find(s, w->name);
        wrong += w->is_scale ? e != NULL : !e;
        if (!w->scaled || !e)
            continue;
        scaled++;
        uint16_t *got = need(calloc((size_t)w->elems + 1, 2));
        for (int64_t a = 0; a < w->elems; a += scaled == 1 ? 1 : 37)
            for (int64_t n = 1; a + n <= w->elems; n += scaled == 1 ? 1 : 29) {
                got[n] = 0xabcd;
                int rc = lf_st_read(s, e, a, n, got, &err);
                for (int64_t k = 0; k < n && rc == 0; k++)
                    rc = got[k] != value(w, a + k);
                wrong += rc != 0 || got[n] != 0xabcd;
                ranges++;
            }
        free(got);
    }
    tap_ok(scaled == 14 && ranges > 10000 && !wrong,
           "%zu matrices, %zu ranges: as the loops say, and nothing behind (%zu wrong)", scaled,
           ranges, wrong);
    lf_st_close(s);
    drop(&r);
    free(dir);
}

static int n_told;

static void hear(void *arg, const char *text)
{
    (void)arg;
    n_told += strstr(text, "blocks of 6 x 7") != NULL || strstr(text, "block of 6 x 7") != NULL;
}

/* q_proj of layer 0 is no box of others in the checkpoint. */
static bool same_q(const struct release *r, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    bool same = true;
    if (lf_ckpt_open(&c, dir, 1, &err))
        tap_bail("%s", err.text);
    const lf_ckpt_entry *e = lf_ckpt_find(c, LF_WEIGHTS_PREFIX "layers.0.attn.q.weight", "weight");
    for (size_t i = 0; i < r->n; i++) {
        const struct weight *w = &r->w[i];
        if (strcmp(w->name, "model.layers.0.self_attn.q_proj.weight") != 0)
            continue;
        uint16_t *got = need(calloc((size_t)w->elems, 2));
        same = e && e->dtype == LF_H5_BF16 && !lf_ckpt_read_flat(c, e, 0, w->elems, got, &err);
        for (int64_t k = 0; k < w->elems && same; k++)
            same = got[k] == value(w, k);
        free(got);
    }
    lf_ckpt_close(c);
    return same;
}

static void test_import(void)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    char *dir = write_release(&r, "fp8", QUANT, LF_ST_F32, NONE), *out = join(tap_tmpdir(), "ckpt"),
         *back = join(tap_tmpdir(), "back"), *json = join(back, "config.json");
    struct lf_convert_result res;
    struct lf_convert_opts o = {.from = dir, .out = out, .threads = 2, .warn = hear};
    json_t *seen = lf_convert_inspect(dir, LF_PARTS_ALL, &err);
    const char *mapping = json_string_value(json_object_get(seen, "mapping"));
    tap_str(mapping ? mapping : "none", "complete", "inspect knows the release");
    json_decref(seen);
    const bool in = tap_rc(lf_convert_import(&o, &res, &err), 0, &err, NULL, "it comes in");
    tap_i64(n_told, 1, "and the user is told that its weights become bf16");
    tap_ok(in && same_q(&r, out), "its values are those of the loops");
    o = (struct lf_convert_opts){
        .from = out, .out = back, .threads = 1, .pad_token = -1, .quantize = LF_QUANTIZE_BF16};
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    json_t *config = lf_json_load_file(json, 1 << 20, &err);
    tap_ok(config && !json_object_get(config, "quantization_config"),
           "config.json of the export speaks of no quantisation");
    lf_st *s = NULL;
    const lf_st_entry *e = NULL;
    if (!lf_st_open(&s, back, &err))
        e = lf_st_find(s, "model.layers.0.self_attn.q_proj.weight");
    tap_ok(e && e->dtype == LF_ST_BF16 && lf_st_n_entries(s) + 14 == r.n,
           "and its matrices are bf16, without scales");
    lf_st_close(s);
    json_decref(config);
    drop(&r);
    free(dir);
    free(out);
    free(back);
    free(json);
}

static void test_refusals(void)
{
    static const struct {
        const char *quant;
        enum fault fault;
        const char *text;
    } rows[] = {
        {"{\"quant_method\": \"awq\"}", NONE, "quant_method = awq"},
        {"{\"quant_method\": \"gptq\"}", NONE, "quant_method = gptq"},
        {"{}", NONE, "quant_method = (none)"},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\", \"weight_block_size\": [6, 7]}", NONE,
         "fmt = e5m2"},
        {"{\"quant_method\": \"fp8\"}", NONE, "weight_block_size is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 7]}", NONE, "is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7, 8]}", NONE, "is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 8]}", NONE,
         "one scale for each block of 6 x 8"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", NO_SCALE, "has no scales"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", SHORT_SCALE,
         "one scale for each block of 6 x 7"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", F16_SCALE,
         "is no matrix of F32, BF16"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", MIXED_SCALE,
         "one or the other is read"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": null}", WHOLE, "is not one number"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": null}", WHOLE_2, "is not one number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct release r;
        struct lf_convert_result res;
        lf_err err = LF_ERR_INIT;
        char name[32];
        snprintf(name, sizeof name, "bad-%zu", i);
        char *dir = write_release(&r, name, rows[i].quant, LF_ST_F8_E8M0, rows[i].fault),
             *out = join(dir, "out");
        struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1};
        const int rc = lf_convert_import(&o, &res, &err);
        tap_ok(rc < 0 && strstr(err.text, rows[i].text) && !lf_io_exists(out), "refused: %s%s",
               rows[i].text, strstr(err.text, rows[i].text) ? "" : err.text);
        drop(&r);
        free(dir);
        free(out);
    }
}

int main(void)
{
    TAP(2, test_ranges());
    TAP(7, test_import());
    TAP(14, test_refusals());
    return tap_done();
}
