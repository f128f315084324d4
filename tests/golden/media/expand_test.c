/* SPDX-License-Identifier: Apache-2.0
 *
 * Placeholders against transformers' processors: ids of texts with pictures, and counts of many
 * sizes, by expand.json, which make_expand.py makes. Then offsets that move with a text, settings
 * that come back from their text, plans against pictures that are really made, and refusals.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/media/expand.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { N_CASES = 110, N_COUNTS = 2 }; /* rows of expand.json */

static char *dump(const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT);
    if (text == NULL)
        tap_bail("no memory");
    return text;
}

/* Everything of a row, by way of the texts that a shard would hold. */
static int open_row(lf_processor *p, lf_expand *e, const json_t *row, lf_err *err)
{
    json_t *own = json_deep_copy(json_object_get(row, "settings")),
           *call = json_deep_copy(json_object_get(row, "call"));
    json_object_set_new(own, "processor_class", json_string(media_text(row, "class")));
    json_object_del(call, "pan_and_scan_min_crop_size");
    json_t *model = json_pack("{s:{s:[i, i]}}", "vision_config", "patch_size",
                              (int)json_integer_value(json_object_get(row, "patch")),
                              (int)json_integer_value(json_object_get(row, "patch")));
    char *processor = dump(own), *given = call ? dump(call) : NULL,
         *config = dump(json_object_get(row, "config")),
         *tower = json_integer_value(json_object_get(row, "patch")) > 0 ? dump(model) : NULL,
         *tokens = json_object_get(row, "tokens") ? dump(json_object_get(row, "tokens")) : NULL;
    lf_buf image, settings;
    lf_buf_init(&image);
    lf_buf_init(&settings);
    int rc = lf_expand_read(e, &(lf_expand_files){given, tokens, processor, config, tower}, err);
    if (rc == 0)
        rc = lf_expand_image_processor(&image, e, config, "config", err);
    if (rc == 0) {
        lf_expand_write(&settings, e);
        rc = lf_expand_open(p, e, image.data, settings.data, "shard", err);
    }
    lf_buf_fini(&image);
    lf_buf_fini(&settings);
    free(processor);
    free(given);
    free(config);
    free(tower);
    free(tokens);
    json_decref(own);
    json_decref(call);
    json_decref(model);
    return rc;
}

/* The id of a byte in a vocabulary of GPT-2's bytes in the order of their code points. */
static int64_t byte_id(unsigned char b)
{
    if (b >= 33 && b <= 126)
        return b - 33;
    if (b >= 161 && b <= 172)
        return b - 161 + 94;
    if (b >= 174)
        return b - 174 + 106;
    return b <= 32 ? 188 + b : b <= 160 ? 221 + b - 127 : 255;
}

/* How many bytes of the text the next token has, and its id. */
static size_t next_id(int64_t *id, const char *text, const json_t *specials)
{
    size_t i;
    json_t *v;
    json_array_foreach(specials, i, v)
    {
        if (strncmp(text, json_string_value(v), json_string_length(v)) == 0) {
            *id = 256 + (int64_t)i;
            return json_string_length(v);
        }
    }
    *id = byte_id((unsigned char)*text);
    return 1;
}

static bool same_ids(const char *text, const json_t *row)
{
    const json_t *runs = json_object_get(row, "ids");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        for (int64_t k = json_integer_value(json_array_get(run, 1)); k > 0; k--) {
            int64_t id = -1;
            text += *text ? next_id(&id, text, json_object_get(row, "specials")) : 0;
            if (id != json_integer_value(json_array_get(run, 0)))
                return false;
        }
    }
    return *text == 0;
}

static void one_case(const json_t *row)
{
    lf_processor p;
    lf_expand e;
    lf_expand_picture v[2];
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    const json_t *sizes = json_object_get(row, "sizes");
    const size_t n = json_array_size(sizes);
    lf_buf_init(&text);
    lf_buf_adds(&text, media_text(row, "text"));
    int rc = open_row(&p, &e, row, &err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *s = json_array_get(sizes, i);
        const lf_size from = {(int32_t)json_integer_value(json_array_get(s, 0)),
                              (int32_t)json_integer_value(json_array_get(s, 1))};
        lf_pixels x;
        rc = lf_processor_plan(&x, &p, from, n == 1, &err);
        if (rc == 0)
            v[i] = lf_expand_measure(&e, &p, &x, n == 1);
    }
    if (rc == 0)
        rc = lf_expand_text(&e, v, n, &text, NULL, &err);
    char *config = dump(json_object_get(row, "settings"));
    tap_ok(rc == 0 && same_ids(text.data, row), "%s %s, %zu of them %s", media_text(row, "class"),
           config, n, err.text);
    free(config);
    lf_buf_fini(&text);
}

static void one_count(const json_t *row)
{
    lf_processor p;
    lf_expand e;
    lf_err err = LF_ERR_INIT;
    int64_t wrong = 0;
    size_t i;
    json_t *v;
    if (open_row(&p, &e, row, &err) < 0)
        tap_bail("%s", err.text);
    json_array_foreach(json_object_get(row, "rows"), i, v)
    {
        const lf_size from = {(int32_t)json_integer_value(json_array_get(v, 0)),
                              (int32_t)json_integer_value(json_array_get(v, 1))};
        lf_pixels x;
        wrong += lf_processor_plan(&x, &p, from, true, &err) < 0 ||
                 lf_expand_count(&e, &p, &x, true) != json_integer_value(json_array_get(v, 2));
    }
    tap_i64(wrong, 0, media_text(row, "class"));
}

/* ---- texts ---- */

static const lf_expand internvl = {
    .kind = LF_EXPAND_INTERNVL, .image_token = "<c>", .begin = "<img>", .end = "</img>"};

static void texts(void)
{
    static const lf_expand_picture v[] = {{2, 1, {0}}, {1, 1, {0}}};
    size_t at[] = {0, 1, 2, 4, 5, 9, 10};
    lf_err err = LF_ERR_INIT;
    lf_buf t;
    lf_buf_init(&t);
    lf_buf_adds(&t, "a<c>bb<c>c");
    tap_rc(lf_expand_text(&internvl, v, 2, &t, &(struct lf_expand_places){at, 7, false}, &err), 0,
           &err, NULL, "two marks");
    tap_str(t.data, "a<img><c><c></img>bb<img><c></img>c", "are replaced");
    /* before, at, inside and behind the first mark, in the text, behind the second mark, at the
     * end */
    const size_t want[] = {0, 1, 1, 18, 19, 34, 35};
    tap_mem(at, want, sizeof want, "offsets move with what they stand at");
    lf_buf_clear(&t);
    lf_buf_adds(&t, "a<c>b");
    tap_rc(lf_expand_text(&internvl, v, 2, &t, NULL, &err), LF_EFORMAT, &err,
           "1 times for 2 pictures", "a mark too few");
    tap_rc(lf_expand_text(&internvl, v, 2, &t, &(struct lf_expand_places){.part = true}, &err), 0,
           &err, NULL, "but not in a part of a text");
    tap_str(t.data, "a<img><c><c></img>b", "whose mark is the first picture's");
    lf_buf_clear(&t);
    lf_buf_adds(&t, "a<c>b");
    tap_rc(lf_expand_text(&internvl, v, 0, &t, &(struct lf_expand_places){.part = true}, &err),
           LF_EFORMAT, &err, "1 times for 0", "a mark too many");
    lf_buf_fini(&t);
}

/* ---- plans ---- */

/* Long and short sides, so that kinds cut and pad in both directions. */
static int64_t differing(const json_t *row)
{
    static const int32_t side[] = {1, 7, 16, 24, 33, 61};
    lf_processor p;
    lf_expand e;
    lf_err err = LF_ERR_INIT;
    int64_t bad = 0;
    if (open_row(&p, &e, row, &err) < 0)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < 36; i++)
        for (int alone = 0; alone < 2; alone++) {
            lf_image im;
            lf_pixels plan = {0}, x = {0};
            media_formula(&im, side[i % 6], side[i / 6]);
            int rc = lf_processor_run(&x, &p, &im, alone, &err);
            bad += lf_processor_plan(&plan, &p, (lf_size){im.w, im.h}, alone, &err) != rc ||
                   plan.tiles != x.tiles || plan.grid_h != x.grid_h || plan.grid_w != x.grid_w ||
                   plan.layout.w != x.layout.w || plan.layout.h != x.layout.h;
            lf_pixels_fini(&x);
            lf_image_fini(&im);
        }
    return bad;
}

static void plans(const json_t *cases)
{
    int64_t bad = 0;
    for (size_t i = 0; i < json_array_size(cases); i += 5)
        bad += differing(json_array_get(cases, i));
    tap_i64(bad, 0, "plans of 36 sizes, alone and not, are what is made, or both refuse");
}

/* ---- refusals ---- */

static void refusals(void)
{
    static const struct {
        lf_expand_files f;
        int rc;
        const char *why;
    } v[] = {
        {{.processor = "{}"}, LF_EFORMAT, "processor_class"},
        {{.processor = "{}", .model = "{\"model_type\":\"internvl_chat\"}"},
         LF_EFORMAT,
         "ends in -hf"},
        {{.processor = "{\"processor_class\": \"LlavaNextProcesor\"}"},
         LF_ENOTSUP,
         "did you mean LlavaNextProcessor"},
        {{.processor = "{\"processor_class\": \"Idefics2Processor\"}"},
         LF_ENOTSUP,
         "did you mean Idefics3Processor"},
        {{.given = "{\"processor_class\": \"PixtralProcessor\", \"image_break_token\": 4}"},
         LF_EFORMAT,
         "image_break_token"},
        {{.processor = "[]"}, LF_EFORMAT, "processor_config.json: not a JSON object"},
        {{.processor = "{"}, LF_EFORMAT, "processor_config.json"},
        {{.given = "{\"processor_class\": \"PaliGemmaProcessor\"}"},
         LF_EFORMAT,
         "image_seq_length"},
        {{.given = "{\"processor_class\": \"LlavaOnevisionProcessor\"}"},
         LF_EFORMAT,
         "num_image_tokens"},
        {{.given = "{\"processor_class\": \"LlavaProcessor\", \"pach_size\": 3}"},
         LF_EFORMAT,
         "did you mean patch_size"},
        {{.given = "{\"processor_class\": \"LlavaProcessor\", \"image_seq_length\": 3}"},
         LF_EFORMAT,
         "image_seq_length means nothing"},
        {{.given = "{\"processor_class\": \"LlavaProcessor\", \"patch_size\": 0}"},
         LF_EFORMAT,
         "patch_size"},
        {{.given = "{\"processor_class\": \"LlavaProcessor\", \"image_token\": \"\"}"},
         LF_EFORMAT,
         "image_token"},
        {{.given = "{\"processor_class\": \"LlavaProcessor\", \"vision_feature_select_strategy\": "
                   "\"cls\"}"},
         LF_EFORMAT,
         "strategy"},
        {{.given = "{\"processor_class\": \"LlavaOnevisionProcessor\", \"num_image_tokens\": 9, "
                   "\"vision_aspect_ratio\": \"anyres\"}"},
         LF_EFORMAT,
         "vision_aspect_ratio"},
    };
    lf_expand e;
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        tap_rc(lf_expand_read(&e, &v[i].f, &err), v[i].rc, &err, v[i].why, v[i].why);
    lf_processor p;
    tap_rc(lf_expand_open(
               &p, &e, "{\"image_processor_type\": \"Qwen2VLImageProcessor\", \"patch_size\": 14}",
               "{\"processor_class\": \"LlavaProcessor\", \"patch_size\": 14}", "here", &err),
           LF_EFORMAT, &err, "does not go with", "a processor on the wrong image processor");
    tap_rc(lf_expand_open(&p, &e, "{\"image_processor_type\": \"Idefics3ImageProcessor\"}",
                          "{\"processor_class\": \"Idefics3Processor\", \"patch_size\": 14, "
                          "\"image_seq_len\": 64}",
                          "here", &err),
           LF_EFORMAT, &err, "a tile of 26 x 26 patches (max_image_size 364) does not become",
           "as many placeholders as no square of patches makes");
}

int main(void)
{
    json_t *all = media_load("expand.json");
    TAP(N_CASES, media_each(json_object_get(all, "cases"), one_case));
    TAP(N_COUNTS, media_each(json_object_get(all, "counts"), one_count));
    TAP(7, texts());
    TAP(1, plans(json_object_get(all, "cases")));
    TAP(17, refusals());
    json_decref(all);
    return tap_done();
}
