/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of placeholders: a table of classes with their defaults, a table of keys with the
 * files that may hold them.
 */
#include "engine/media/expand.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"

static const struct class
{
    const char *name;
    enum lf_expand_kind kind;
    const char *image_token, *begin, *end;
    int32_t seq_length; /* 0: needed and without a default */
} classes[] = {
    {"LlavaProcessor", LF_EXPAND_LLAVA, "<image>", "", "", 0},
    {"LlavaNextProcessor", LF_EXPAND_LLAVA_NEXT, "<image>", "", "", 0},
    {"LlavaOnevisionProcessor", LF_EXPAND_ONEVISION, "<image>", "", "", 0},
    {"Qwen2VLProcessor", LF_EXPAND_QWEN, "<|image_pad|>", "", "", 0},
    {"Qwen2_5_VLProcessor", LF_EXPAND_QWEN, "<|image_pad|>", "", "", 0},
    {"Qwen3VLProcessor", LF_EXPAND_QWEN, "<|image_pad|>", "", "", 0},
    {"InternVLProcessor", LF_EXPAND_INTERNVL, "<IMG_CONTEXT>", "<img>", "</img>", 256},
    {"Gemma3Processor", LF_EXPAND_GEMMA3, "<image_soft_token>", "<start_of_image>",
     "<end_of_image>", 256},
    {"PaliGemmaProcessor", LF_EXPAND_PALIGEMMA, "<image>", "", "", 0},
    {"Idefics3Processor", LF_EXPAND_IDEFICS3, "<image>", "<fake_token_around_image>",
     "<global-img>", 169},
    {"SmolVLMProcessor", LF_EXPAND_IDEFICS3, "<image>", "<fake_token_around_image>", "<global-img>",
     169},
    {"PixtralProcessor", LF_EXPAND_PIXTRAL, "[IMG]", "[IMG_BREAK]", "[IMG_END]", 0},
    {"CLIPProcessor", LF_EXPAND_BESIDE, "<image>", "", "", 0},
    {"SiglipProcessor", LF_EXPAND_BESIDE, "<image>", "", "", 0},
};
enum { N_CLASSES = sizeof classes / sizeof classes[0] };

enum source { GIVEN, TOKENIZER, PROCESSOR, IMAGE_PROCESSOR, MODEL, N_SOURCES };
static const char *const source_names[N_SOURCES] = {"placeholders", "tokenizer_config.json",
                                                    "processor_config.json",
                                                    "preprocessor_config.json", "config.json"};

struct reading {
    json_t *v[N_SOURCES]; /* owned, NULL */
    lf_expand *e;
    lf_err *err;
};

/* ---- keys ---- */

enum type { TEXT, NUMBER, STRATEGY, RATIO, FLAG };
#define IN(s)   (1u << (s))
#define KIND(k) (1u << LF_EXPAND_##k)
#define ALL     0x3ffu

/* theirs: what the tokenizer calls it */
static const struct key {
    const char *name, *theirs;
    enum type type;
    unsigned sources, kinds;
    size_t at;
} keys[] = {
    {"image_token", "image_token", TEXT, IN(GIVEN) | IN(TOKENIZER) | IN(PROCESSOR),
     ALL & ~KIND(INTERNVL), offsetof(lf_expand, image_token)},
    {"image_token", "context_image_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(INTERNVL),
     offsetof(lf_expand, image_token)},
    {"begin", "start_image_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(INTERNVL),
     offsetof(lf_expand, begin)},
    {"end", "end_image_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(INTERNVL),
     offsetof(lf_expand, end)},
    {"begin", "boi_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(GEMMA3),
     offsetof(lf_expand, begin)},
    {"end", "eoi_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(GEMMA3), offsetof(lf_expand, end)},
    {"fake_image_token", "fake_image_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(IDEFICS3),
     offsetof(lf_expand, begin)},
    {"global_image_token", "global_image_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(IDEFICS3),
     offsetof(lf_expand, end)},
    {"image_break_token", NULL, TEXT, IN(GIVEN) | IN(PROCESSOR), KIND(PIXTRAL),
     offsetof(lf_expand, begin)},
    {"image_end_token", NULL, TEXT, IN(GIVEN) | IN(PROCESSOR), KIND(PIXTRAL),
     offsetof(lf_expand, end)},
    {"image_seq_len", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR), KIND(IDEFICS3),
     offsetof(lf_expand, seq_length)},
    {"spatial_merge_size", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR), KIND(PIXTRAL),
     offsetof(lf_expand, merge)},
    {"bos", "bos_token", TEXT, IN(GIVEN) | IN(TOKENIZER), KIND(PALIGEMMA),
     offsetof(lf_expand, bos)},
    {"patch_size", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR) | IN(MODEL), ALL & ~KIND(QWEN),
     offsetof(lf_expand, patch)},
    {"image_seq_length", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR), KIND(INTERNVL) | KIND(GEMMA3),
     offsetof(lf_expand, seq_length)},
    {"image_seq_length", NULL, NUMBER, IN(GIVEN) | IN(IMAGE_PROCESSOR), KIND(PALIGEMMA),
     offsetof(lf_expand, seq_length)},
    {"num_image_tokens", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR), KIND(ONEVISION),
     offsetof(lf_expand, seq_length)},
    {"num_additional_image_tokens", NULL, NUMBER, IN(GIVEN) | IN(PROCESSOR),
     KIND(LLAVA) | KIND(LLAVA_NEXT), offsetof(lf_expand, additional)},
    {"vision_feature_select_strategy", NULL, STRATEGY, IN(GIVEN) | IN(PROCESSOR),
     KIND(LLAVA) | KIND(LLAVA_NEXT) | KIND(ONEVISION), offsetof(lf_expand, drop_first)},
    {"vision_aspect_ratio", NULL, RATIO, IN(GIVEN) | IN(PROCESSOR), KIND(ONEVISION),
     offsetof(lf_expand, max_ratio)},
    {"crop_to_patches", NULL, FLAG, IN(GIVEN), KIND(INTERNVL), offsetof(lf_expand, tiles)},
    {"do_pan_and_scan", NULL, FLAG, IN(GIVEN), KIND(GEMMA3), offsetof(lf_expand, pan)},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* A token in a tokenizer's file is a text or an object with its text, at the top or among the
 * extra ones. */
static json_t *token_of(json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name), *extra = json_object_get(o, "extra_special_tokens");
    if (v == NULL || json_is_null(v))
        v = json_object_get(extra, name);
    if (v == NULL || json_is_null(v))
        v = json_object_get(json_object_get(o, "model_specific_special_tokens"), name);
    return json_is_object(v) ? json_object_get(v, "content") : v;
}

/* The tower's patch size in a model's config.json, which may be a list of two equal ones. It stands
 * at the top where the model is the tower. */
static json_t *model_value(json_t *o, const char *name)
{
    json_t *tower = json_object_get(o, "vision_config"),
           *v = json_object_get(tower ? tower : o, name);
    return json_is_array(v) ? json_array_get(v, 0) : v;
}

/* An image processor's settings are a file, or a part of processor_config.json. */
static json_t *image_value(json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name);
    return v ? v : json_object_get(json_object_get(o, "image_processor"), name);
}

static json_t *value_of(const struct reading *r, const struct key *k, enum source *source)
{
    for (int s = 0; s < N_SOURCES; s++) {
        if ((k->sources & IN(s)) == 0 || r->v[s] == NULL)
            continue;
        json_t *v = s == TOKENIZER         ? token_of(r->v[s], k->theirs)
                    : s == MODEL           ? model_value(r->v[s], k->name)
                    : s == IMAGE_PROCESSOR ? image_value(r->v[s], k->name)
                                           : json_object_get(r->v[s], k->name);
        if (v == NULL || json_is_null(v))
            continue;
        *source = (enum source)s;
        return v;
    }
    return NULL;
}

static int wrong(const struct reading *r, const struct key *k, enum source s, const char *want)
{
    return lf_fail(r->err, LF_EFORMAT, "%s: %s must be %s", source_names[s],
                   s == TOKENIZER ? k->theirs : k->name, want);
}

static int set_text(const struct reading *r, const struct key *k, enum source s, json_t *v)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v) || n == 0 || n >= LF_EXPAND_TEXT || strlen(json_string_value(v)) != n)
        return wrong(r, k, s, "the text of a token, of at most 63 bytes");
    memcpy((char *)r->e + k->at, json_string_value(v), n + 1);
    return 0;
}

static int set_number(const struct reading *r, const struct key *k, enum source s, json_t *v)
{
    const json_int_t n = json_integer_value(v), least = k->at != offsetof(lf_expand, additional);
    if (!json_is_integer(v) || n < least || n > 65536)
        return wrong(r, k, s, "a whole number from 1 to 65536");
    int32_t small = (int32_t)n;
    memcpy((char *)r->e + k->at, &small, sizeof small);
    return 0;
}

static int set_strategy(const struct reading *r, const struct key *k, enum source s, json_t *v)
{
    const char *t = json_string_value(v);
    if (t == NULL || (strcmp(t, "default") != 0 && strcmp(t, "full") != 0))
        return wrong(r, k, s, "\"default\" or \"full\"");
    r->e->drop_first = strcmp(t, "default") == 0;
    return 0;
}

static int set_ratio(const struct reading *r, const struct key *k, enum source s, json_t *v)
{
    static const char prefix[] = "anyres_max_";
    const char *t = json_string_value(v), *digits = t ? t + sizeof prefix - 1 : NULL;
    int64_t n = 0;
    if (t == NULL || strncmp(t, prefix, sizeof prefix - 1) != 0 ||
        lf_parse_i64(&n, digits, NULL) < 0 || n < 1 || n > 9999)
        return wrong(r, k, s, "\"anyres_max_N\"");
    r->e->max_ratio = (int32_t)n;
    return 0;
}

static int set_flag(const struct reading *r, const struct key *k, enum source s, json_t *v)
{
    if (!json_is_boolean(v))
        return wrong(r, k, s, "true or false");
    bool on = json_is_true(v);
    memcpy((char *)r->e + k->at, &on, sizeof on);
    return 0;
}

static int set_key(const struct reading *r, const struct key *k)
{
    static int (*const set[])(const struct reading *, const struct key *, enum source,
                              json_t *) = {[TEXT] = set_text,
                                           [NUMBER] = set_number,
                                           [STRATEGY] = set_strategy,
                                           [RATIO] = set_ratio,
                                           [FLAG] = set_flag};
    enum source s = GIVEN;
    json_t *v = value_of(r, k, &s);
    return v == NULL ? 0 : set[k->type](r, k, s, v);
}

/* ---- the class ---- */

/* Are these the settings of an encoder that is a model of its own, ViT or DeiT? */
static bool is_encoder(json_t *o)
{
    static const char *const stems[] = {"ViTImageProcessor", "ViTFeatureExtractor",
                                        "DeiTImageProcessor", "DeiTFeatureExtractor"};
    json_t *v = image_value(o, "image_processor_type");
    const char *name = json_string_value(v ? v : image_value(o, "feature_extractor_type"));
    for (size_t i = 0; name && i < sizeof stems / sizeof *stems; i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

static int find_class(const struct class **out, const struct reading *r)
{
    static const enum source where[] = {GIVEN, PROCESSOR, IMAGE_PROCESSOR};
    const char *name = NULL, *names[N_CLASSES];
    for (size_t i = 0; name == NULL && i < sizeof where / sizeof where[0]; i++)
        name = json_string_value(json_object_get(r->v[where[i]], "processor_class"));
    if (name == NULL && is_encoder(r->v[IMAGE_PROCESSOR]))
        name = "LlavaProcessor"; /* a placeholder for each patch; no model reads them */
    const char *model = json_string_value(json_object_get(r->v[MODEL], "model_type"));
    if (name == NULL && model && strcmp(model, "clip") == 0)
        name = "CLIPProcessor"; /* of before files told it */
    if (name == NULL && model && strcmp(model, "siglip") == 0)
        name = "SiglipProcessor";
    if (name == NULL && model && strcmp(model, "internvl_chat") == 0)
        return lf_fail(r->err, LF_EFORMAT,
                       "the files of InternVLChatModel do not tell how its code cuts pictures into "
                       "tiles; give the folder of the same model in transformers' form (its name "
                       "ends in -hf) as processor");
    if (name == NULL)
        return lf_fail(r->err, LF_EFORMAT,
                       "no file tells the processor's class; give it, such as placeholders = "
                       "{\"processor_class\": \"LlavaProcessor\"}");
    for (size_t i = 0; i < N_CLASSES; i++) {
        names[i] = classes[i].name;
        if (strcmp(name, names[i]) == 0) {
            *out = &classes[i];
            return 0;
        }
    }
    const char *near = lf_nearest(name, names, N_CLASSES);
    return lf_fail(r->err, LF_ENOTSUP, "processor_class %.80s is not known%s%s", name,
                   near ? "; did you mean " : "", near ? near : "");
}

/* Only what is given is held to the table: the files have keys for other programs. */
static int check_given(const struct reading *r)
{
    const char *key, *names[N_KEYS + 1];
    json_t *v;
    for (size_t i = 0; i < N_KEYS; i++)
        names[i] = keys[i].name;
    names[N_KEYS] = "processor_class";
    json_object_foreach(r->v[GIVEN], key, v)
    {
        bool known = strcmp(key, "processor_class") == 0;
        for (size_t i = 0; i < N_KEYS && !known; i++)
            known = strcmp(key, keys[i].name) == 0 && (keys[i].kinds >> r->e->kind & 1) != 0;
        const char *near = known ? NULL : lf_nearest(key, names, N_KEYS + 1);
        if (!known)
            return lf_fail(r->err, LF_EFORMAT, "placeholders: %.80s means nothing to %s%s%s", key,
                           r->e->class_name, near ? "; did you mean " : "", near ? near : "");
    }
    return 0;
}

static int check(const struct reading *r)
{
    const lf_expand *e = r->e;
    const char *lacks = e->kind == LF_EXPAND_ONEVISION && e->seq_length == 0   ? "num_image_tokens"
                        : e->kind == LF_EXPAND_PALIGEMMA && e->seq_length == 0 ? "image_seq_length"
                                                                               : NULL;
    return lacks ? lf_fail(r->err, LF_EFORMAT,
                           "%s needs %s, which no file tells; give placeholders = {\"%s\": ...}",
                           e->class_name, lacks, lacks)
                 : 0;
}

static int load(struct reading *r, const lf_expand_files *f)
{
    const char *const texts[N_SOURCES] = {f->given, f->tokenizer, f->processor, f->image_processor,
                                          f->model};
    for (int s = 0; s < N_SOURCES; s++) {
        if (texts[s] == NULL)
            continue;
        r->v[s] = lf_json_load_text(texts[s], strlen(texts[s]), source_names[s], r->err);
        if (r->v[s] == NULL)
            return LF_EFORMAT;
        if (!json_is_object(r->v[s]))
            return lf_fail(r->err, LF_EFORMAT, "%s: not a JSON object", source_names[s]);
    }
    return 0;
}

int lf_expand_read(lf_expand *out, const lf_expand_files *f, lf_err *err)
{
    const struct class *c = NULL;
    lf_expand e = {.max_ratio = 9, .merge = 1, .bos = "<bos>"};
    struct reading r = {.e = &e, .err = err};
    int rc = load(&r, f);
    if (rc == 0)
        rc = find_class(&c, &r);
    if (rc == 0) {
        e.class_name = c->name;
        e.kind = c->kind;
        e.seq_length = c->seq_length;
        e.tiles = c->kind == LF_EXPAND_INTERNVL;
        e.patch = c->kind == LF_EXPAND_PIXTRAL ? 16 : 0;
        snprintf(e.image_token, sizeof e.image_token, "%s", c->image_token);
        snprintf(e.begin, sizeof e.begin, "%s", c->begin);
        snprintf(e.end, sizeof e.end, "%s", c->end);
        rc = check_given(&r);
    }
    for (size_t i = 0; rc == 0 && i < N_KEYS; i++)
        if ((keys[i].kinds >> e.kind & 1) != 0)
            rc = set_key(&r, &keys[i]);
    if (rc == 0)
        rc = check(&r);
    for (int s = 0; s < N_SOURCES; s++)
        json_decref(r.v[s]);
    if (rc == 0)
        *out = e;
    return rc;
}

/* ---- to a text and back ---- */

static void write_key(lf_buf *out, const lf_expand *e, const struct key *k)
{
    const char *at = (const char *)e + k->at;
    int32_t n;
    lf_buf_addf(out, ",\"%s\":", k->name);
    switch (k->type) {
    case TEXT:
        lf_buf_add_json(out, at, strlen(at));
        break;
    case NUMBER:
        memcpy(&n, at, sizeof n);
        lf_buf_addf(out, "%d", n);
        break;
    case STRATEGY:
        lf_buf_adds(out, e->drop_first ? "\"default\"" : "\"full\"");
        break;
    case RATIO:
        lf_buf_addf(out, "\"anyres_max_%d\"", e->max_ratio);
        break;
    case FLAG:
        lf_buf_adds(out, *(const bool *)at ? "true" : "false");
        break;
    }
}

void lf_expand_write(lf_buf *out, const lf_expand *e)
{
    lf_buf_addf(out, "{\"processor_class\":\"%s\"", e->class_name);
    for (size_t i = 0; i < N_KEYS; i++) {
        bool unset = keys[i].at == offsetof(lf_expand, patch) && e->patch == 0;
        if ((keys[i].kinds >> e->kind & 1) != 0 && !unset)
            write_key(out, e, &keys[i]);
    }
    lf_buf_adds(out, "}");
}

/* What the class says over the file of the image processor; the numbers of pan and scan, which
 * files leave null, are the class's too. */
static int set_own(json_t *o, const lf_expand *e, const char *name, lf_err *err)
{
    const struct lf_json_member tiles = e->kind == LF_EXPAND_INTERNVL
                                            ? (struct lf_json_member){"crop_to_patches",
                                                                      json_boolean(e->tiles)}
                                        : e->kind == LF_EXPAND_PIXTRAL
                                            ? (struct lf_json_member){"patch_size",
                                                                      json_integer(e->patch)}
                                            : (struct lf_json_member){NULL, NULL},
                                pan[] = {{"do_pan_and_scan", json_boolean(e->pan)},
                                         {"pan_and_scan_min_crop_size", json_integer(256)},
                                         {"pan_and_scan_max_num_crops", json_integer(4)},
                                         {"pan_and_scan_min_ratio_to_activate", json_real(1.2)}};
    int rc = tiles.value ? lf_json_set(o, &tiles, 1, name, err) : 0;
    for (size_t i = 0; i < sizeof pan / sizeof pan[0]; i++) {
        json_t *there = json_object_get(o, pan[i].key);
        bool set =
            e->kind == LF_EXPAND_GEMMA3 && (i == 0 || (e->pan && (!there || json_is_null(there))));
        if (rc == 0 && set)
            rc = lf_json_set(o, &pan[i], 1, name, err);
        else
            json_decref(pan[i].value);
    }
    return rc;
}

int lf_expand_image_processor(lf_buf *out, const lf_expand *e, const char *text, const char *name,
                              lf_err *err)
{
    json_t *whole = lf_json_load_text(text, strlen(text), name, err);
    json_t *inner = json_object_get(whole, "image_processor");
    json_t *o = json_is_object(inner) ? inner : whole;
    int rc = whole == NULL ? LF_EFORMAT : 0;
    if (rc == 0 && !json_is_object(o))
        rc = lf_fail(err, LF_EFORMAT, "%s: not a JSON object", name);
    if (rc == 0)
        rc = set_own(o, e, name, err);
    char *dump = rc == 0 ? lf_json_dump(o, err) : NULL;
    if (rc == 0)
        rc = dump ? 0 : LF_ENOMEM;
    if (rc == 0) {
        lf_buf_adds(out, dump);
        rc = lf_buf_check(out, err);
    }
    free(dump);
    json_decref(whole);
    return rc;
}

/* Which kinds of image processors a class can stand on. */
static const unsigned stands_on[] = {
    [LF_EXPAND_LLAVA] = 1u << LF_PROC_FIT | 1u << LF_PROC_NAFLEX,
    [LF_EXPAND_LLAVA_NEXT] = 1u << LF_PROC_ANYRES,
    [LF_EXPAND_ONEVISION] = 1u << LF_PROC_ANYRES,
    [LF_EXPAND_QWEN] = 1u << LF_PROC_SMART,
    [LF_EXPAND_INTERNVL] = 1u << LF_PROC_TILES,
    [LF_EXPAND_GEMMA3] = 1u << LF_PROC_PAN,
    [LF_EXPAND_PALIGEMMA] = 1u << LF_PROC_FIT,
    [LF_EXPAND_IDEFICS3] = 1u << LF_PROC_SPLIT,
    [LF_EXPAND_PIXTRAL] = 1u << LF_PROC_WITHIN,
    [LF_EXPAND_BESIDE] = 1u << LF_PROC_FIT | 1u << LF_PROC_NAFLEX,
};

/* How many patches each way become one placeholder is said by their numbers alone for Idefics3. */
static int set_merge(lf_processor *p, const lf_expand *e, const char *name, lf_err *err)
{
    const int32_t side = p->tile / p->patches.side;
    if (e->kind == LF_EXPAND_PIXTRAL)
        p->patches.merge = e->merge;
    if (e->kind != LF_EXPAND_IDEFICS3)
        return 0;
    const int32_t rows = (int32_t)lround(sqrt((double)e->seq_length));
    if (rows * rows != e->seq_length || side < rows || side % rows != 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: image_seq_len = %d: a tile of %d x %d patches (max_image_size %d) does "
                       "not become so many placeholders",
                       name, e->seq_length, side, side, p->tile);
    p->patches.merge = side / rows;
    return 0;
}

int lf_expand_open(lf_processor *p, lf_expand *e, const char *image_processor, const char *settings,
                   const char *name, lf_err *err)
{
    int rc = lf_expand_read(e, &(lf_expand_files){.given = settings}, err);
    if (rc < 0)
        return lf_err_prefix(err, "%s", name);
    rc = lf_processor_read(p, image_processor, strlen(image_processor), name,
                           &(lf_processor_opts){.patch = e->kind == LF_EXPAND_QWEN ? 0 : e->patch},
                           err);
    if (rc < 0)
        return rc;
    if ((stands_on[e->kind] >> p->kind & 1) == 0 ||
        (p->kind == LF_PROC_ANYRES && p->tile_alone != (e->kind == LF_EXPAND_ONEVISION)))
        return lf_fail(err, LF_EFORMAT, "%s: %s does not go with %s", name, e->class_name,
                       p->class_name);
    return set_merge(p, e, name, err);
}
