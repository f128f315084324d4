/* SPDX-License-Identifier: Apache-2.0
 *
 * What each layer is: patterns of letters, and what follows from them for one layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/config_priv.h"

/* One run of a pattern: n letters, `times` times over; 0: to the last layer. */
struct run {
    const char *letters;
    int64_t n, times;
};

/* Takes the run that text begins with. Returns what follows it. The text is well formed. */
static const char *take_run(const char *text, struct run *r)
{
    r->letters = text;
    r->n = (int64_t)strcspn(text, "*,");
    r->times = 1;
    text += r->n;
    if (*text == '*')
        r->times = strtoll(text + 1, NULL, 10);
    text += strcspn(text, ",");
    return text + (*text == ',');
}

/* The letter of a layer; 0: the pattern ends before it. */
static char letter_at(const char *text, int64_t layer)
{
    while (*text) {
        struct run r;
        text = take_run(text, &r);
        if (!r.times || layer < r.n * r.times)
            return r.letters[layer % r.n];
        layer -= r.n * r.times;
    }
    return 0;
}

/* The number of layers that a pattern names; -1: any. */
static int64_t pattern_length(const char *text)
{
    int64_t n = 0;
    while (*text) {
        struct run r;
        text = take_run(text, &r);
        if (!r.times)
            return -1;
        n += r.n * r.times;
    }
    return n;
}

int lf_model_pattern_set(struct lf_model_pattern *out, const struct lf_model_key *k,
                         const char *value, const char *where, lf_err *err)
{
    const char *letters = k->choices[0], *p = value;
    if (strlen(value) >= sizeof out->text)
        return lf_fail(err, LF_EINVAL, "%s: %s has more than %zu characters", where, k->name,
                       sizeof out->text - 1);
    while (*p) {
        const size_t n = strspn(p, letters);
        const bool star = p[n] == '*';
        const char *digits = p + n + star;
        const size_t d = star ? strspn(digits, "0123456789") : 0;
        const char *end = digits + d;
        const long long times = d ? strtoll(digits, NULL, 10) : 0;
        if (!n || (*end && *end != ',') || (*end == ',' && !end[1]) || d > 4)
            return lf_fail(err, LF_EINVAL,
                           "%s: %s = %s: '%.20s' is no run of layers. It is letters of \"%s\", "
                           "one for each layer, which *N repeats N times and * repeats to the last "
                           "layer; commas stand between runs: %c*2,%c*",
                           where, k->name, value, p, letters, letters[0], letters[1]);
        if (star && (d ? times < 1 : *end != 0))
            return lf_fail(err, LF_EINVAL, "%s: %s = %s: %s", where, k->name, value,
                           d ? "a run of no layers"
                             : "* without a number repeats to the last layer, and more follows it");
        p = *end ? end + 1 : end;
    }
    snprintf(out->text, sizeof out->text, "%s", value);
    return 0;
}

/* ---- what a layer is ---- */

/* The layer whose kind this one has. */
static int64_t kind_of(const lf_model_config *c, int64_t layer)
{
    return c->layers > 0 && layer >= c->layers ? c->layers - 1 : layer;
}

char lf_model_layer_mixer(const lf_model_config *c, int64_t layer)
{
    if (c->layer_mixers.text[0])
        return letter_at(c->layer_mixers.text, kind_of(c, layer));
    return c->sliding_window > 0 ? LF_MIXER_WINDOW : LF_MIXER_FULL;
}

static bool is_one_of(const char *letters, char m)
{
    return m && strchr(letters, m);
}

char lf_model_layer_mlp(const lf_model_config *c, int64_t layer)
{
    if (layer >= c->layers && c->mtp_mlp == LF_MTP_MLP_DENSE)
        return LF_MLP_DENSE;
    if (c->layer_mlps.text[0])
        return letter_at(c->layer_mlps.text, kind_of(c, layer));
    return c->experts > 0 ? LF_MLP_EXPERTS : LF_MLP_DENSE;
}

static char default_position(const lf_model_config *c, int64_t layer)
{
    const bool local = c->rope_local_theta > 0 && lf_model_layer_mixer(c, layer) == LF_MIXER_WINDOW;
    return local ? LF_TURN_LOCAL : LF_TURN_ROPE;
}

char lf_model_layer_position(const lf_model_config *c, int64_t layer)
{
    return c->layer_positions.text[0] ? letter_at(c->layer_positions.text, kind_of(c, layer))
                                      : default_position(c, layer);
}

bool lf_model_layer_attends(const lf_model_config *c, int64_t layer)
{
    return is_one_of(
        (const char[]){LF_MIXER_FULL, LF_MIXER_WINDOW, LF_MIXER_CHUNK, LF_MIXER_BOTH, 0},
        lf_model_layer_mixer(c, layer));
}

enum lf_model_block lf_model_layer_block(const lf_model_config *c, int64_t layer)
{
    if (c->block != LF_BLOCK_OUT_ATTENTION)
        return (enum lf_model_block)c->block;
    return lf_model_layer_attends(c, layer) ? LF_BLOCK_OUT : LF_BLOCK_PRE;
}

bool lf_model_layer_scans(const lf_model_config *c, int64_t layer)
{
    return is_one_of((const char[]){LF_MIXER_SSD, LF_MIXER_DELTA, LF_MIXER_KDA, LF_MIXER_LIGHTNING,
                                    LF_MIXER_BOTH, 0},
                     lf_model_layer_mixer(c, layer));
}

bool lf_model_attends(const lf_model_config *c)
{
    bool any = false;
    for (int64_t l = 0; l < c->layers; l++)
        any = any || lf_model_layer_attends(c, l);
    return any;
}

bool lf_model_recurs(const lf_model_config *c)
{
    bool any = false;
    for (int64_t l = 0; l < c->layers; l++)
        any = any || lf_model_layer_scans(c, l) || lf_model_layer_mixer(c, l) == LF_MIXER_CONV;
    return any;
}

int64_t lf_model_layer_window(const lf_model_config *c, int64_t layer)
{
    return lf_model_layer_mixer(c, layer) == LF_MIXER_WINDOW ? c->sliding_window : 0;
}

int64_t lf_model_layer_chunk(const lf_model_config *c, int64_t layer)
{
    return lf_model_layer_mixer(c, layer) == LF_MIXER_CHUNK ? c->attn_chunk : 0;
}

bool lf_model_layer_local(const lf_model_config *c, int64_t layer)
{
    return lf_model_layer_position(c, layer) == LF_TURN_LOCAL;
}

int64_t lf_model_layer_kv_heads(const lf_model_config *c, int64_t layer)
{
    const bool own = c->window_kv_heads && lf_model_layer_mixer(c, layer) == LF_MIXER_WINDOW;
    return own ? c->window_kv_heads : c->kv_heads;
}

int64_t lf_model_layer_head_dim(const lf_model_config *c, int64_t layer)
{
    const bool own = c->window_head_dim && lf_model_layer_mixer(c, layer) == LF_MIXER_WINDOW;
    return own ? c->window_head_dim : c->head_dim;
}

bool lf_model_layer_moe(const lf_model_config *c, int64_t layer)
{
    const char mlp = lf_model_layer_mlp(c, layer);
    return mlp == LF_MLP_EXPERTS || mlp == LF_MLP_BOTH;
}

double lf_model_layer_sparsity(const lf_model_config *c, int64_t layer)
{
    return layer < c->gate_sparsity.n ? c->gate_sparsity.v[layer] : 0;
}

/* By bisection: its inverse, the normal distribution, rises everywhere. */
double lf_model_quantile(double share)
{
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        const double x = (low + high) / 2;
        if (0.5 * erfc(-x * M_SQRT1_2) < share)
            low = x;
        else
            high = x;
    }
    return (low + high) / 2;
}

bool lf_model_layer_dense(const lf_model_config *c, int64_t layer)
{
    const char mlp = lf_model_layer_mlp(c, layer);
    return mlp == LF_MLP_DENSE || mlp == LF_MLP_BOTH;
}

/* Is it one of the last layers, which make no keys and values? */
static bool shares(const lf_model_config *c, int64_t layer)
{
    return c->kv_shared_layers > 0 && layer >= c->layers - c->kv_shared_layers;
}

int64_t lf_model_layer_ffn(const lf_model_config *c, int64_t layer)
{
    return c->kv_shared_ffn && shares(c, layer) ? c->kv_shared_ffn : c->ffn;
}

int64_t lf_model_layer_keys(const lf_model_config *c, int64_t layer)
{
    int64_t l = shares(c, layer) ? c->layers - c->kv_shared_layers - 1 : layer;
    while (l >= 0 && lf_model_layer_mixer(c, l) != lf_model_layer_mixer(c, layer))
        l--;
    return l;
}

bool lf_model_layer_has_values(const lf_model_config *c, int64_t layer)
{
    return !c->keys_as_values || lf_model_layer_mixer(c, layer) == LF_MIXER_WINDOW;
}

int64_t lf_model_count_layers(const lf_model_config *c,
                              char (*what)(const lf_model_config *, int64_t), char letter)
{
    int64_t n = 0;
    for (int64_t l = 0; l < c->layers; l++)
        n += what(c, l) == letter;
    return n;
}

int64_t lf_model_moe_layers(const lf_model_config *c)
{
    return lf_model_count_layers(c, lf_model_layer_mlp, LF_MLP_EXPERTS) +
           lf_model_count_layers(c, lf_model_layer_mlp, LF_MLP_BOTH);
}

int64_t lf_model_dense_layers(const lf_model_config *c)
{
    return lf_model_count_layers(c, lf_model_layer_mlp, LF_MLP_DENSE) +
           lf_model_count_layers(c, lf_model_layer_mlp, LF_MLP_BOTH);
}

bool lf_model_has_dense(const lf_model_config *c)
{
    return lf_model_dense_layers(c) > 0 || (c->mtp_layers && lf_model_layer_dense(c, c->layers));
}

bool lf_model_layers_are(const lf_model_config *c, char (*what)(const lf_model_config *, int64_t),
                         const char *pattern)
{
    for (int64_t l = 0; l < c->layers; l++)
        if (what(c, l) != letter_at(pattern, l))
            return false;
    return true;
}

/* ---- the one text of a pattern ---- */

/* border[i]: length of the longest proper prefix of back[0, i] that ends it too (Knuth, Morris,
 * Pratt 1977), where back is s from its end. So the last i + 1 letters of s repeat with the period
 * i + 1 - border[i]. */
static void find_borders(const char *s, int64_t n, int64_t *border)
{
    border[0] = 0;
    for (int64_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && s[n - 1 - i] != s[n - 1 - k])
            k = border[k - 1];
        k += s[n - 1 - i] == s[n - 1 - k];
        border[i] = k;
    }
}

/* Fewer letters of a kind are written out. */
#define SHORTEST_RUN 4

/* "wfffff" -> "w,f*5,", behind what b holds. */
static void add_runs(lf_buf *b, const char *s, int64_t n)
{
    bool open = false; /* letters without a comma behind them */
    for (int64_t i = 0, m; i < n; i += m) {
        for (m = 1; i + m < n && s[i + m] == s[i]; m++)
            ;
        if (m >= SHORTEST_RUN)
            lf_buf_addf(b, "%s%c*%lld,", open ? "," : "", s[i], (long long)m);
        else
            lf_buf_addf(b, "%.*s", (int)m, s + i);
        open = m < SHORTEST_RUN;
    }
    if (open)
        lf_buf_adds(b, ",");
}

/* The letters before what repeats, and that once with a star: the shortest together, and of those
 * with the fewest before. Where nothing repeats, all letters. */
static void add_pattern(lf_buf *b, const char *s, int64_t n, const int64_t *border)
{
    int64_t before = 0, period = n;
    for (int64_t k = 0; k < n; k++) {
        const int64_t p = n - k - border[n - k - 1];
        if (k + p < before + period)
            before = k, period = p;
    }
    if (before + period < n) {
        add_runs(b, s, before);
        lf_buf_addf(b, "%.*s*", (int)period, s + before);
        return;
    }
    add_runs(b, s, n);
    if (b->len > 0)
        b->data[--b->len] = 0; /* the last comma */
}

int lf_model_pattern_of(struct lf_model_pattern *out, const char *letters, int64_t n, lf_err *err)
{
    lf_buf b;
    if (n < 1)
        return lf_fail(err, LF_EINVAL, "[model] needs layers");
    lf_buf_init(&b);
    int64_t *border = lf_calloc((size_t)n, sizeof *border, err);
    int rc = border ? 0 : LF_ENOMEM;
    if (rc == 0) {
        find_borders(letters, n, border);
        add_pattern(&b, letters, n, border);
        rc = lf_buf_check(&b, err);
    }
    if (rc == 0 && b.len >= sizeof out->text)
        rc = lf_fail(err, LF_ENOTSUP,
                     "the layers of this model follow no pattern of less than %zu characters",
                     sizeof out->text);
    if (rc == 0)
        snprintf(out->text, sizeof out->text, "%s", b.data);
    lf_buf_fini(&b);
    free(border);
    return rc;
}

static struct lf_model_pattern *pattern_in(lf_model_config *c, const char *key)
{
    return (struct lf_model_pattern *)(void *)((char *)c + lf_model_key_find(key)->offset);
}

/* Replaces a pattern by its one text, which is "" where it says what holds without it. */
static int settle(lf_model_config *c, const char *key,
                  char (*what)(const lf_model_config *, int64_t), lf_err *err)
{
    struct lf_model_pattern *p = pattern_in(c, key);
    const int64_t n = pattern_length(p->text);
    if (!p->text[0])
        return 0;
    if (n >= 0 && n != c->layers)
        return lf_fail(err, LF_EINVAL,
                       "%s: [model] %s = %s names %lld layers of %lld; a * at its end repeats the "
                       "last run to the last layer",
                       lf_model_origin(c, key), key, p->text, (long long)n, (long long)c->layers);
    lf_model_config bare = *c;
    pattern_in(&bare, key)->text[0] = 0;
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = letters ? 0 : LF_ENOMEM;
    bool plain = true;
    for (int64_t l = 0; l < c->layers && rc == 0; l++) {
        letters[l] = what(c, l);
        plain = plain && what(&bare, l) == letters[l];
    }
    if (rc == 0 && plain)
        p->text[0] = 0;
    else if (rc == 0)
        rc = lf_model_pattern_of(p, letters, c->layers, err);
    free(letters);
    return rc;
}

/* A family says which layers have a window, or experts, where there are any; a model of it without
 * them has plain layers there. */
static void drop(lf_model_config *c, bool there, const char *key, char from, char to)
{
    for (char *p = pattern_in(c, key)->text; *p && !there && !lf_model_by_hand(c, key); p++)
        *p = *p == from ? to : *p;
}

int lf_model_settle_layers(lf_model_config *c, lf_err *err)
{
    drop(c, c->sliding_window > 0, "layer_mixers", LF_MIXER_WINDOW, LF_MIXER_FULL);
    drop(c, c->experts > 0, "layer_mlps", LF_MLP_EXPERTS, LF_MLP_DENSE);
    int rc = settle(c, "layer_mixers", lf_model_layer_mixer, err);
    if (rc == 0)
        rc = settle(c, "layer_mlps", lf_model_layer_mlp, err);
    rc = rc != 0 ? rc : settle(c, "layer_positions", lf_model_layer_position, err);
    if (rc == 0 && !lf_model_by_hand(c, "rope_local_theta") &&
        !lf_model_count_layers(c, lf_model_layer_position, LF_TURN_LOCAL))
        c->rope_local_theta = 0; /* of a family, and no layer reads it */
    return rc;
}

/* ---- checkpoints that counted ---- */

/* Until 2026-11 keys of [model] counted layers in place of the patterns. */
static const char *const counters[] = {"max_window_layers", "window_pattern", "window_layers",
                                       "dense_layers",      "moe_period",     "mlp_layers"};

bool lf_model_key_counts(const char *key)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (strcmp(counters[i], key) == 0)
            return true;
    return false;
}

static const char *text_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int64_t count_of(json_t *o, const char *key, int64_t def)
{
    int64_t n = def;
    return lf_parse_count(&n, text_of(o, key), NULL) == 0 ? n : def;
}

/* Is the number in "0,2,5"? */
static bool listed(const char *list, int64_t x)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strtoll(p, NULL, 10) == x)
            return true;
    return false;
}

static char old_mixer(json_t *o, int64_t l)
{
    const char *list = text_of(o, "window_layers");
    const int64_t period = count_of(o, "window_pattern", 0);
    const bool slides = *list        ? listed(list, l)
                        : period > 0 ? (l + 1) % period != 0
                                     : l >= count_of(o, "max_window_layers", 0);
    return slides ? LF_MIXER_WINDOW : LF_MIXER_FULL;
}

static char old_mlp(json_t *o, int64_t l)
{
    const int64_t period = count_of(o, "moe_period", 1);
    const bool plain = l < count_of(o, "dense_layers", 0) || (period > 0 && (l + 1) % period) ||
                       listed(text_of(o, "mlp_layers"), l);
    return plain ? LF_MLP_DENSE : LF_MLP_EXPERTS;
}

static int from_counters(struct lf_model_pattern *p, json_t *o, int64_t layers,
                         char (*old)(json_t *, int64_t), lf_err *err)
{
    char *letters = lf_calloc((size_t)layers + 1, 1, err);
    if (!letters)
        return LF_ENOMEM;
    for (int64_t l = 0; l < layers; l++)
        letters[l] = old(o, l);
    int rc = lf_model_pattern_of(p, letters, layers, err);
    free(letters);
    return rc;
}

int lf_model_layers_from_counters(lf_model_config *c, json_t *o, lf_err *err)
{
    bool any = false;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        any = any || json_object_get(o, counters[i]);
    int rc = 0;
    if (any && c->sliding_window > 0)
        rc = from_counters(&c->layer_mixers, o, c->layers, old_mixer, err);
    if (any && c->experts > 0 && rc == 0)
        rc = from_counters(&c->layer_mlps, o, c->layers, old_mlp, err);
    return rc;
}
