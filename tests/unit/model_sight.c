/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sizes of pictures put into inputs, and which of them are refused. The numbers are held
 * to transformers in tests/golden/vlm. */
#include <string.h>

#include "engine/graph/layout.h"
#include "engine/model/sight_priv.h"
#include "tests/tap/tap.h"

enum { ROWS = 12, TOKEN = 7, PATCH = 3 * 2 * 2 };

static lf_err err = LF_ERR_INIT;

static lf_model_config config(const char *family, const char *positions, const char *merge)
{
    const char *const keys[][2] = {{"vision.family", family},
                                   {"layers", "1"},
                                   {"hidden", "8"},
                                   {"heads", "1"},
                                   {"ffn", "8"},
                                   {"vocab", "16"},
                                   {"max_positions", "16"},
                                   {"vision.layers", "1"},
                                   {"vision.hidden", "8"},
                                   {"vision.heads", "1"},
                                   {"vision.ffn", "8"},
                                   {"vision.patch_dim", "12"},
                                   {"vision.positions", positions},
                                   {"vision.window", "4"},
                                   {"projector.merge", merge},
                                   {"image_token", "7"}};
    lf_model_config c;
    lf_model_config_defaults(&c);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (lf_model_config_set(&c, keys[i][0], keys[i][1], "test", &err))
            tap_bail("%s", err.text);
    return c;
}

static lf_model_config finished(const char *family, const char *positions, const char *merge)
{
    lf_model_config c = config(family, positions, merge);
    if (lf_model_config_finish(&c, &err))
        tap_bail("%s", err.text);
    return c;
}

/* Two pictures of 2 x 2 and 2 x 1 patches, with so many tokens each. */
static int fill(const lf_model_config *c, int64_t first, int64_t second)
{
    static struct lf_media_tile tile[2] = {{2, 2}, {2, 1}};
    static uint8_t patch[6 * PATCH];
    static lf_processor p = {.patches = {.side = 2, .merge = 1, .times = 1}};
    const int32_t tokens[ROWS] = {1, 7, 7, 7, 7, 2, 7, 7, 3, 4, 5, 6};
    int32_t positions[ROWS];
    for (int i = 0; i < ROWS; i++)
        positions[i] = i;
    struct lf_media_picture picture[2] = {{.first_tile = 0, .tiles = 1, .rows = first},
                                          {.first_tile = 1, .tiles = 1, .rows = second}};
    const lf_media_batch b = {.n_tiles = 2,
                              .n_pictures = 2,
                              .row_bytes = PATCH,
                              .n_patches = 6,
                              .tile = tile,
                              .picture = picture,
                              .patches = patch};
    const struct lf_decoder_media m = lf_sight_bounds(c, 6, 2, ROWS);
    lf_sight *s = lf_sight_create(c, &m, ROWS, &err);
    if (!s)
        tap_bail("%s", err.text);
    const struct lf_sight_media in = {
        .media = &b, .processor = &p, .tokens = tokens, .positions = positions};
    const int rc = lf_sight_fill_media(s, &in, &err);
    const int32_t want[ROWS] = {1, -1, -1, -1, -1, 2, -1, -1, 3, 4, 5, 6};
    if (rc == 0)
        tap_ok(memcmp(lf_sight_token_rows(s), want, sizeof want) == 0,
               "tokens of pictures are rows that another op fills");
    lf_sight_destroy(s);
    return rc;
}

static void test_rows(void)
{
    const lf_model_config c = finished("siglip", "16", "1");
    tap_rc(fill(&c, 4, 2), 0, &err, NULL, "as many tokens for each picture as it has rows");
    tap_rc(fill(&c, 2, 4), LF_EINVAL, &err, "picture 1 has 4 rows, but 2 tokens",
           "the same sum is not enough");
}

static void test_sides(void)
{
    const lf_model_config c = finished("qwen2-vl", "0", "1");
    const int32_t tokens[1] = {1}, positions[1] = {0};
    const struct lf_sight_tile tile = {1, LF_VISION_SIDES + 1};
    const struct lf_sight_batch b = {.n_tiles = 1,
                                     .tile = &tile,
                                     .merge = 1,
                                     .rows = 1,
                                     .tokens = tokens,
                                     .positions = positions};
    const struct lf_decoder_media m = lf_sight_bounds(&c, LF_VISION_SIDES + 1, 1, 1);
    lf_sight *s = lf_sight_create(&c, &m, 1, &err);
    tap_rc(lf_sight_fill(s, &b, &err), LF_EINVAL, &err, "a side has at most",
           "a picture beyond the tables of angles");
    lf_sight_destroy(s);
}

/* With a class token and rope its rows do not turn, whatever was there before; with rope_side
 * pictures have the grid of the table. */
static void test_turns(void)
{
    lf_model_config c = finished("eva02", "5", "1");
    const int32_t tokens[1] = {1}, positions[1] = {0};
    const struct lf_sight_tile wide = {1, 9}, square = {2, 2};
    struct lf_sight_batch b = {.n_tiles = 1,
                               .tile = &wide,
                               .merge = 1,
                               .rows = 1,
                               .tokens = tokens,
                               .positions = positions};
    const struct lf_decoder_media m = lf_sight_bounds(&c, 10, 2, 1);
    lf_sight *s = lf_sight_create(&c, &m, 1, &err);
    if (!s)
        tap_bail("%s", err.text);
    s->turn[0] = s->turn[1] = s->turn[2] = 7;
    tap_rc(lf_sight_fill(s, &b, &err), 0, &err, NULL, "a picture of another grid");
    const int32_t want[] = {0, 0, 0, 0, 0, 0, 0, 0, 1};
    tap_mem(s->turn, want, sizeof want, "the class token stands at row 0, column 0");
    s->own->vision.rope_side = 3;
    tap_rc(lf_sight_fill(s, &b, &err), LF_EINVAL, &err, "have the 2 x 2 patches",
           "which rope_side refuses");
    b.tile = &square;
    tap_rc(lf_sight_fill(s, &b, &err), 0, &err, NULL, "one of the table's grid");
    lf_sight_destroy(s);
}

/* Declares a model for the first of two ranks that divide its matrices. */
static int divided(const lf_model_config *c)
{
    lf_decoder *d = lf_decoder_create(c, 16, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (!d || !ps || lf_pstore_set_layout(ps, &(struct lf_layout){.tensor = 2}, &err))
        tap_bail("%s", err.text);
    const int rc = lf_decoder_declare(d, ps, &err);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    return rc;
}

static void test_divided(void)
{
    lf_model_config c = finished("eva02", "5", "1");
    c.heads = c.kv_heads = c.vision.heads = 2;
    c.head_dim = c.vision.head_dim = 4;
    tap_rc(divided(&c), 0, &err, NULL,
           "layer norms over all heads and all channels, and two ranks");
    c.vision.norm = LF_NORM_RMS;
    tap_rc(divided(&c), 0, &err, NULL, "norms without a mean");
    c.vision.attn_inner_norm = c.vision.mlp_inner_norm = false;
    tap_rc(divided(&c), 0, &err, NULL, "without such norms they divide the encoder");
}

static void test_positions(void)
{
    static const struct {
        const char *family, *positions;
        bool fine;
    } v[] = {{"siglip", "16", true}, {"siglip", "31", false}, {"clip", "17", true},
             {"clip", "16", false},  {"clip", "1", false},    {"qwen3-vl", "15", false}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        lf_model_config c = config(v[i].family, v[i].positions, "1");
        tap_rc(lf_model_config_finish(&c, &err), v[i].fine ? 0 : LF_EINVAL, &err,
               v[i].fine ? NULL : "not a square", v[i].positions);
    }
}

/* Neighbours of one document, whatever pictures they are of; a block ends where another document
 * begins. */
static void test_runs(void)
{
    enum { N = 14 };
    static const int32_t tokens[N] = {7, 7, 1, 7, 7, 7, 2, 7, 7, 7, 7, 3, 7, 4},
                         positions[N] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 0, 1},
                         want[2 * N] = {0, 2, 0, 2, 2, 3, 3, 6, 3, 6, 3, 6, 6, 7,
                                        7, 9, 7, 9, 0, 2, 0, 2, 2, 3, 0, 1, 1, 2};
    int32_t runs[2 * N];
    lf_decoder_runs(tokens, positions, N, TOKEN, runs);
    tap_mem(runs, want, sizeof want, "blocks of pictures in three documents");
    const struct lf_decoder_media m = {0};
    lf_model_config c = finished("siglip", "16", "1");
    lf_sight *s = lf_sight_create(&c, &m, N, &err);
    tap_ok(s && !lf_sight_runs(s), "a causal model has none");
    lf_sight_destroy(s);
    c.mask = LF_MASK_IMAGE_BLOCKS;
    s = lf_sight_create(&c, &m, N, &err);
    tap_ok(s && lf_sight_runs(s), "one with mask = image_blocks has");
    lf_sight_destroy(s);
}

/* A picture of 2 x 4 patches, of which 2 x 2 become a row: as they come row by row, and in blocks.
 * What an encoder without a class token sees is the same. */
enum { WIDE = 8, MERGED = 2 };
static const int32_t blocks[WIDE] = {0, 1, 4, 5, 2, 3, 6, 7};

static lf_sight *wide_sight(const lf_model_config *c, int32_t merge, bool encoded, bool alone)
{
    static struct lf_media_tile tile = {2, 4};
    static struct lf_media_picture picture = {.tiles = 1, .rows = MERGED};
    static lf_processor p;
    static uint8_t patch[WIDE * PATCH];
    static float feature[WIDE][8];
    static const int32_t tokens[MERGED] = {7, 7}, positions[MERGED] = {0, 1};
    p.patches = (lf_patches){.side = 2, .merge = merge, .times = 1};
    for (int i = 0; i < 256; i++)
        p.table[0][i] = p.table[1][i] = p.table[2][i] = (float)i;
    for (int k = 0; k < WIDE; k++) {
        memset(patch + k * PATCH, merge > 1 ? blocks[k] : k, PATCH);
        for (int i = 0; i < 8; i++)
            feature[k][i] = (float)(merge > 1 ? blocks[k] : k);
    }
    const lf_media_batch b = {.n_tiles = 1,
                              .n_pictures = 1,
                              .row_bytes = PATCH,
                              .n_patches = WIDE,
                              .tile = &tile,
                              .picture = &picture,
                              .patches = patch,
                              .encoded = (uint8_t *)feature,
                              .n_encoded = WIDE,
                              .encoded_bytes = sizeof feature[0]};
    struct lf_decoder_media m = lf_sight_bounds(c, WIDE, 1, MERGED);
    m.encoded = encoded;
    m.encoded_type = LF_F32;
    lf_sight *s = lf_sight_create(c, &m, MERGED, &err);
    if (!s)
        tap_bail("%s", err.text);
    const struct lf_sight_media in = {
        .media = &b, .processor = &p, .tokens = tokens, .positions = positions};
    tap_rc(alone ? lf_sight_fill_encoder(s, &in, &err) : lf_sight_fill_media(s, &in, &err), 0, &err,
           NULL, merge > 1 ? "patches in blocks" : "patches row by row");
    return s;
}

static void test_blocks(void)
{
    const lf_model_config c = finished("siglip", "16", "2");
    lf_sight *rows = wide_sight(&c, 1, false, false), *in_blocks = wide_sight(&c, 2, false, false);
    tap_mem(lf_sight_patch_order(rows), blocks, sizeof blocks,
            "patches that become one row are put beside each other");
    tap_mem(rows->pixels, in_blocks->pixels, WIDE * PATCH * sizeof(float),
            "and are those that came so");
    lf_sight_destroy(in_blocks);
    lf_sight_destroy(rows);
    for (int32_t merge = 1; merge <= 2; merge++) {
        lf_sight *s = wide_sight(&c, merge, true, false);
        float first[WIDE];
        const float want[WIDE] = {0, 1, 4, 5, 2, 3, 6, 7};
        for (int r = 0; r < WIDE; r++)
            memcpy(&first[r], s->encoded + (size_t)r * 8 * sizeof(float), sizeof *first);
        tap_mem(first, want, sizeof want, merge > 1 ? "features, too" : "features row by row, too");
        lf_sight_destroy(s);
    }
    const int32_t given[WIDE] = {0, 1, 2, 3, 4, 5, 6, 7};
    lf_sight *s = wide_sight(&c, 1, false, true);
    tap_mem(lf_sight_patch_order(s), given, sizeof given,
            "features are made in the order of files");
    lf_sight_destroy(s);
}

/* Samples of two pictures and of one: the rows of each count from 0 on, also behind class tokens
 * and where 2 x 2 of them become a feature. */
static void test_samples(const char *family, const char *positions)
{
    enum { CELLS = 4 };
    static struct lf_media_tile tile[3] = {{2, 2}, {2, 4}, {2, 2}};
    static uint8_t patch[16 * PATCH];
    static lf_processor p = {.patches = {.side = 2, .merge = 2, .times = 1}};
    struct lf_media_picture picture[3] = {{.first_tile = 0, .tiles = 1, .rows = 1, .first_row = 1},
                                          {.first_tile = 1, .tiles = 1, .rows = 2, .first_row = 6},
                                          {.first_tile = 2, .tiles = 1, .rows = 1, .first_row = 9}};
    const int32_t tokens[ROWS] = {1, 7, 2, 3, 4, 5, 7, 7, 1, 7, 2, 3},
                  places[ROWS] = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
                  of_cells[CELLS + 1] = {0, 0, 1, 2, 0};
    const int64_t samples[2] = {40, 41}, cells[CELLS + 1] = {40, 41, 41, 41, 0};
    const lf_media_batch b = {.n_tiles = 3,
                              .n_pictures = 3,
                              .row_bytes = PATCH,
                              .n_patches = 16,
                              .tile = tile,
                              .picture = picture,
                              .patches = patch};
    const struct lf_sight_media in = {.media = &b,
                                      .processor = &p,
                                      .tokens = tokens,
                                      .positions = places,
                                      .samples = samples,
                                      .row_tokens = ROWS / 2};
    const lf_model_config c = finished(family, positions, "2");
    struct lf_decoder_media m = lf_sight_bounds(&c, 20, 4, ROWS);
    m.drops = true;
    lf_sight *s = lf_sight_create(&c, &m, ROWS, &err);
    if (!s || lf_sight_fill_media(s, &in, &err))
        tap_bail("%s", err.text);
    const int class = lf_sight_class_rows(&c), first = 4 + class;
    bool right = true;
    for (int r = 0; r < m.vision.rows; r++) {
        const bool padding = r >= 16 + 3 * class;
        right = right &&
                s->sample[0][r] == (padding     ? 0
                                    : r < first ? 40
                                                : 41) &&
                s->offset[0][r] == (padding     ? 0
                                    : r < first ? r
                                                : r - first);
    }
    tap_ok(right, "%s: rows of the encoder have their samples", family);
    tap_ok(m.features == CELLS + 1 && memcmp(s->sample[1], cells, sizeof cells) == 0 &&
               memcmp(s->offset[1], of_cells, sizeof of_cells) == 0,
           "%s: and features", family);
    lf_sight_destroy(s);
}

int main(void)
{
    TAP(3, test_rows());
    TAP(1, test_sides());
    TAP(4, test_turns());
    TAP(3, test_divided());
    TAP(6, test_positions());
    TAP(3, test_runs());
    TAP(10, test_blocks());
    TAP(2, test_samples("siglip", "16"));
    TAP(2, test_samples("clip", "17"));
    return tap_done();
}
