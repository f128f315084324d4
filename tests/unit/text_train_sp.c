/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece-style training against references worked out here the long way (every substring,
 * every segmentation, every pair counted anew), the same bytes for any threads and order of texts,
 * and files that load: the tokenizers and sentencepiece libraries encode hard texts with them as we
 * do (tests/golden/tokenizer/train_sp.json, made by make_train_sp.py, which runs this program with
 * --write DIR).
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/rng.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/vocab/train_sp.h"
#include "tests/tap/tap.h"

static char path[4096];

static const char *golden(const char *name)
{
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/%s", getenv("LF_SRCDIR"), name);
    return path;
}

/* ---- the long way; a word is a string whose first character '_' stands for the space mark ---- */

#define MAX_WORDS 60
#define MAX_CANDS 4000
#define LONGEST   5

typedef struct cand {
    char s[LONGEST + 1];
    double count, score;
} cand;

static char words[MAX_WORDS][12];
static double counts[MAX_WORDS];
static int n_words;
static char chars[16];
static double char_counts[256];

static int char_index(char c)
{
    return (int)(strchr(chars, c) - chars);
}

static double count_of(const char *s)
{
    double n = 0;
    for (int i = 0; i < n_words; i++)
        for (const char *p = words[i]; (p = strstr(p, s)) != NULL; p++)
            n += counts[i];
    return n;
}

/* By falling count * length; equal ones in the order of their characters, a longer one before its
 * beginning. */
static int by_worth(const void *x, const void *y)
{
    const cand *a = x, *b = y;
    double wa = a->count * (double)strlen(a->s), wb = b->count * (double)strlen(b->s);
    if (wa != wb)
        return wa < wb ? 1 : -1;
    for (int i = 0;; i++) {
        if (a->s[i] == b->s[i] && a->s[i] != 0)
            continue;
        if (a->s[i] == 0 || b->s[i] == 0)
            return a->s[i] == 0 ? (b->s[i] == 0 ? 0 : 1) : -1;
        return char_index(a->s[i]) < char_index(b->s[i]) ? -1 : 1;
    }
}

static int seeds(cand *out)
{
    int n = 0, k = (int)strlen(chars);
    for (int i = 0; i < k; i++, n++)
        out[n] = (cand){.s = {chars[i], 0}, .count = char_counts[(unsigned char)chars[i]]};
    for (int i = 0; i < n_words; i++)
        for (size_t from = 0; from < strlen(words[i]); from++)
            for (size_t len = 2; len <= LONGEST && from + len <= strlen(words[i]); len++) {
                cand c = {.s = ""};
                memcpy(c.s, words[i] + from, len);
                c.count = count_of(c.s);
                bool seen = c.count < 2;
                for (int q = 0; q < n && !seen; q++)
                    seen = strcmp(out[q].s, c.s) == 0;
                for (int q = 0; q < k && !seen && len < LONGEST;
                     q++) { /* longer, and as frequent */
                    char longer[LONGEST + 2];
                    snprintf(longer, sizeof(longer), "%s%c", c.s, chars[q]);
                    seen = count_of(longer) == c.count;
                }
                if (!seen)
                    out[n++] = c;
            }
    qsort(out + k, (size_t)(n - k), sizeof(*out), by_worth);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += out[i].count * (double)strlen(out[i].s);
    for (int i = 0; i < n; i++)
        out[i].score = log(out[i].count * (double)strlen(out[i].s) / sum);
    return n;
}

/* Every segmentation of s: adds weight * p to use[] of its pieces when use is given; returns the
 * sum of p. */
static double segment(const cand *v, int n, const char *s, double p, int *stack, int depth,
                      double weight, double *use)
{
    double sum = 0;
    if (*s == 0) {
        for (int i = 0; i < depth && use; i++)
            use[stack[i]] += weight * p;
        return p;
    }
    for (int i = 0; i < n; i++)
        if (strncmp(s, v[i].s, strlen(v[i].s)) == 0) {
            stack[depth] = i;
            sum += segment(v, n, s + strlen(v[i].s), p * exp(v[i].score), stack, depth + 1, weight,
                           use);
        }
    return sum;
}

/* The best segmentation of s without piece `not`: log p, its pieces in best[]. */
static double best_way(const cand *v, int n, const char *s, int not, int *best, int *n_best)
{
    double top = -HUGE_VAL;
    *n_best = 0;
    if (*s == 0)
        return 0;
    for (int i = 0; i < n; i++) {
        int rest[12], k;
        if (i == not || strncmp(s, v[i].s, strlen(v[i].s)) != 0)
            continue;
        double p = v[i].score + best_way(v, n, s + strlen(v[i].s), not, rest, &k);
        if (p > top) {
            top = p;
            best[0] = i;
            memcpy(best + 1, rest, (size_t)k * sizeof(*rest));
            *n_best = k + 1;
        }
    }
    return top;
}

static double digamma(double x)
{
    return (lgamma(x + 1e-4) - lgamma(x - 1e-4)) / 2e-4;
}

static int em(cand *v, int n)
{
    static double use[MAX_CANDS];
    int stack[16], k = 0;
    double sum = 0;
    memset(use, 0, sizeof(use));
    for (int i = 0; i < n_words; i++) {
        double z = segment(v, n, words[i], 1, stack, 0, 0, NULL);
        segment(v, n, words[i], 1 / z, stack, 0, counts[i], use);
    }
    for (int i = 0; i < n; i++) {
        if (v[i].s[1] != 0 && use[i] < 0.5)
            continue;
        v[k] = v[i];
        v[k].score = use[i] > 0.5 ? use[i] : 0.5;
        sum += v[k++].score;
    }
    for (int i = 0; i < k; i++)
        v[i].score = digamma(v[i].score) - digamma(sum);
    return k;
}

static int by_score(const void *x, const void *y)
{
    const cand *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

static int prune(cand *v, int n, int target)
{
    static double use[MAX_CANDS];
    static cand kept[MAX_CANDS];
    double all = 0;
    int way[16], k, n_kept = 0;
    memset(use, 0, sizeof(use));
    for (int i = 0; i < n_words; i++) {
        best_way(v, n, words[i], -1, way, &k);
        for (int q = 0; q < k; q++)
            use[way[q]] += counts[i];
    }
    for (int i = 0; i < n; i++)
        all += use[i];
    for (int i = 0; i < n; i++) {
        cand c = v[i];
        double loss = HUGE_VAL;
        if (c.s[1] != 0) {
            double p = best_way(v, n, c.s, i, way, &k), alt = 0;
            if (use[i] == 0 || p > c.score)
                continue;
            for (int q = 0; q < k; q++)
                alt += log(use[way[q]] + use[i]) - log(all + use[i] * (k - 1));
            loss = use[i] / all * (log(use[i]) - log(all) - alt);
        }
        c.count = c.score; /* kept aside */
        c.score = loss > 0 ? loss : 0;
        kept[n_kept++] = c;
    }
    int size = (int)(0.75 * n) > target ? (int)(0.75 * n) : target;
    qsort(kept, (size_t)n_kept, sizeof(*kept), by_score);
    n = n_kept < size ? n_kept : size;
    for (int i = 0; i < n; i++) {
        v[i] = kept[i];
        v[i].score = v[i].count;
    }
    return n;
}

static int unigram(cand *v, int room)
{
    int n = seeds(v), target = (int)(1.1 * room), others = room - (int)strlen(chars), k = 0;
    for (;;) {
        n = em(v, n);
        n = em(v, n);
        if (n <= target)
            break;
        n = prune(v, n, target);
    }
    qsort(v, (size_t)n, sizeof(*v), by_score);
    for (int i = 0; i < n; i++)
        if (v[i].s[1] == 0 || others-- > 0)
            v[k++] = v[i];
    return k;
}

/* Merges of the most frequent pair, all counted anew each time; pieces in order into out. */
static int bpe(char out[][24], int room)
{
    static char token[400][24];
    static int sym[MAX_WORDS][12], len[MAX_WORDS];
    int n = (int)strlen(chars), made = 0;
    for (int i = 0; i < n; i++)
        snprintf(token[i], sizeof(token[i]), "%c", chars[i]);
    for (int i = 0; i < n_words; i++) {
        len[i] = (int)strlen(words[i]);
        for (int k = 0; k < len[i]; k++)
            sym[i][k] = char_index(words[i][k]);
    }
    while (n < room) {
        double best = 1;
        int a = 0, b = 0;
        for (int x = 0; x < n; x++)
            for (int y = 0; y < n; y++) {
                double c = 0;
                for (int i = 0; i < n_words; i++)
                    for (int k = 0; k + 1 < len[i]; k++)
                        c += sym[i][k] == x && sym[i][k + 1] == y ? counts[i] : 0;
                if (c > best && strlen(token[x]) + strlen(token[y]) <= LONGEST) {
                    best = c;
                    a = x;
                    b = y;
                }
            }
        if (best < 2)
            break;
        char text[24];
        int id = 0;
        snprintf(text, sizeof(text), "%.11s%.11s", token[a], token[b]);
        while (id < n && strcmp(token[id], text) != 0)
            id++;
        if (id == n) {
            snprintf(token[n++], sizeof(token[0]), "%s", text);
            snprintf(out[made++], 24, "%s", text);
        }
        for (int i = 0; i < n_words; i++) {
            int k = 0;
            for (int q = 0; q < len[i]; k++) {
                bool hit = q + 1 < len[i] && sym[i][q] == a && sym[i][q + 1] == b;
                sym[i][k] = hit ? id : sym[i][q];
                q += hit ? 2 : 1;
            }
            len[i] = k;
        }
    }
    return made;
}

/* ---- trained ---- */

static lf_sp_vocab train(enum lf_sp_kind kind, const char *const *texts, size_t n, size_t size,
                         int threads, bool backwards, size_t max_piece, double coverage)
{
    lf_err err = LF_ERR_INIT;
    lf_word_counts *w = lf_word_counts_create(&err);
    uint8_t *cls = lf_uniclass_create(&err);
    lf_sp_vocab v = {0};
    lf_sp_train_args a = {.kind = kind,
                          .vocab_size = size,
                          .min_frequency = 2,
                          .coverage = coverage,
                          .max_piece = max_piece,
                          .threads = threads};
    for (size_t i = 0; i < n; i++) {
        const char *t = texts[backwards ? n - 1 - i : i];
        if (lf_sp_count_words(w, cls, t, strlen(t), true, NULL, &err) != 0)
            tap_bail("%s", err.text);
    }
    if (lf_sp_train(&v, &a, w, NULL, NULL, &err) != 0)
        tap_bail("%s", err.text);
    free(cls);
    lf_word_counts_destroy(w);
    return v;
}

/* Random words of six letters; texts[i] is a word, repeated as often as it counts. */
static void invent(uint64_t seed, char **text)
{
    lf_buf b;
    uint64_t at = 0;
    lf_buf_init(&b);
    memset(char_counts, 0, sizeof(char_counts));
    n_words = 0;
    while (n_words < 40) {
        char w[12] = "_";
        size_t len = 2 + lf_rng_u32(seed, 0, at++) % 6;
        for (size_t k = 1; k <= len; k++) {
            do {
                uint32_t x = lf_rng_u32(seed, 0, at), y = lf_rng_u32(seed, 2, at++);
                w[k] = "abcdef"[x % 6 * (y % 3) / 2];
            } while (w[k] == w[k - 1]);
        }
        bool seen = false;
        for (int i = 0; i < n_words; i++)
            seen = seen || strcmp(words[i], w) == 0;
        if (seen)
            continue;
        counts[n_words] = 1 + lf_rng_u32(seed, 1, at) % 12;
        for (int k = 0; k < (int)counts[n_words]; k++)
            lf_buf_addf(&b, "%s%s", b.len ? " " : "", w + 1);
        for (const char *p = w; *p; p++)
            char_counts[(unsigned char)*p] += counts[n_words];
        snprintf(words[n_words++], sizeof(words[0]), "%s", w);
    }
    memset(chars, 0, sizeof(chars));
    for (int k = 0;;
         k++) { /* by falling count, then code point: the space mark is behind the letters */
        int best = 0;
        for (int i = 0; i < 7; i++) {
            char c = "abcdef_"[i];
            if (char_counts[(unsigned char)c] > 0 && !strchr(chars, c) &&
                (!best || char_counts[(unsigned char)c] > char_counts[best]))
                best = c;
        }
        if (!best)
            break;
        chars[k] = (char)best;
    }
    *text = lf_buf_steal(&b, NULL);
}

static void plain(char *out, size_t cap, const char *piece)
{
    bool mark = strncmp(piece, "\xE2\x96\x81", 3) == 0;
    snprintf(out, cap, "%s%s", mark ? "_" : "", piece + (mark ? 3 : 0));
}

static void check_reference(uint64_t seed)
{
    static cand want[MAX_CANDS];
    static char merged[400][24];
    char *text, got[64];
    invent(seed, &text);
    const char *const texts[] = {text};
    size_t room = strlen(chars) + 25;
    int n = unigram(want, (int)room), bad = 0;
    double worst = 0;
    lf_sp_vocab v = train(LF_SP_UNIGRAM, texts, 1, 259 + room, 2, false, LONGEST, 1);
    tap_i64((int64_t)v.n, 259 + n, "unigram: number of pieces");
    for (size_t i = 259; i < v.n; i++) {
        int k = 0;
        plain(got, sizeof(got), v.v[i].text);
        while (k < n && strcmp(want[k].s, got) != 0)
            k++;
        bad += k == n;
        if (k < n)
            worst = tap_worse(worst, fabs(want[k].score - (double)v.v[i].score));
        bad += i > 259 && v.v[i].score > v.v[i - 1].score;
    }
    tap_ok(bad == 0 && worst < 1e-4,
           "unigram: the pieces of the reference (%d are not), scores within %.2g", bad, worst);
    lf_sp_vocab_fini(&v);
    n = bpe(merged, (int)room);
    bad = 0;
    v = train(LF_SP_BPE, texts, 1, 259 + room, 1, false, LONGEST, 1);
    tap_i64((int64_t)v.n, 259 + n + (int)strlen(chars), "bpe: number of pieces");
    for (int i = 0; i < n && 259 + (size_t)i < v.n; i++) {
        plain(got, sizeof(got), v.v[259 + i].text);
        bad += strcmp(got, merged[i]) != 0;
    }
    tap_i64(bad, 0, "bpe: the merges of the reference, in order");
    lf_sp_vocab_fini(&v);
    free(text);
}

/* ---- files ---- */

static json_t *hard_texts(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *vectors = lf_json_load_file(golden("vectors.json"), (size_t)64 << 20, &err);
    if (!vectors)
        tap_bail("%s", err.text);
    json_t *list = json_incref(json_object_get(vectors, "texts"));
    json_decref(vectors);
    return list;
}

/* Of one or two characters again and again: many cuts have exactly the same score there, and which
 * one a library takes hangs on its order of additions, which tests/golden/tokenizer holds for its
 * own models. */
static bool ties(const char *t)
{
    return strlen(t) > 60 && memcmp(t, t + 2, 50) == 0;
}

/* Owned; only those that are valid UTF-8 and hold no NUL, because the trainer's texts here are C
 * strings. */
static size_t decode_texts(const json_t *list, char ***out)
{
    size_t i, n = 0;
    const json_t *v;
    *out = calloc(json_array_size(list) + 1, sizeof(**out));
    json_array_foreach(list, i, v)
    {
        const char *hex = json_string_value(v);
        size_t len = strlen(hex) / 2;
        char *t = calloc(len + 1, 1);
        for (size_t k = 0; k < len; k++) {
            unsigned b = 0;
            if (sscanf(hex + 2 * k, "%2x", &b) != 1)
                tap_bail("bad hex in the golden file");
            t[k] = (char)b;
        }
        json_t *valid = json_stringn(t, len);
        if (strlen(t) == len && valid && !ties(t))
            (*out)[n++] = t;
        else
            free(t);
        json_decref(valid);
    }
    return n;
}

static void write_forms(const lf_sp_vocab *v, lf_buf *json, lf_buf *model)
{
    lf_err err = LF_ERR_INIT;
    lf_buf_init(json);
    lf_buf_init(model);
    if (lf_sp_write_json(v, json, &err) != 0 || lf_sp_write_model(v, model, &err) != 0)
        tap_bail("%s", err.text);
}

static uint64_t add_hash(uint64_t h, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        h = (h ^ (x >> 8 * i & 0xFF)) * 0x100000001B3u;
    return h;
}

static void check_encoding(const lf_buf *file, const char *name, char **texts, size_t n,
                           const char *want)
{
    lf_err err = LF_ERR_INIT;
    char hex[17];
    uint64_t h = 0xCBF29CE484222325u;
    lf_tokenizer *t = lf_tokenizer_parse(file->data, file->len, name, &err);
    if (!t)
        tap_bail("%s", err.text);
    lf_tok_state *s = lf_tok_state_create(t, &err);
    size_t lost = 0;
    for (size_t i = 0; i < n; i++) {
        lf_ids ids = {0};
        lf_buf back;
        lf_buf_init(&back);
        if (lf_tokenizer_encode(s, texts[i], strlen(texts[i]), LF_TOK_SPECIAL_TEXT, &ids, NULL,
                                &err) != 0)
            tap_bail("%s", err.text);
        h = add_hash(h, (uint32_t)ids.n);
        for (size_t k = 0; k < ids.n; k++)
            h = add_hash(h, ids.v[k]);
        if (lf_tokenizer_decode(t, ids.v, ids.n, false, &back, &err) != 0)
            tap_bail("%s", err.text);
        lost += strcmp(back.data, texts[i]) != 0 &&
                !strstr(texts[i], "\xE2\x96\x81"); /* the mark itself comes back as a space */
        lf_buf_fini(&back);
        lf_ids_fini(&ids);
    }
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)h);
    tap_str(hex, want, name);
    tap_i64((int64_t)lost, 0, "decoding gives the texts back");
    tap_i64(lf_tokenizer_eos(t), 2, "</s> ends documents");
    lf_tok_state_destroy(s);
    lf_tokenizer_destroy(t);
}

static const struct kind {
    const char *name;
    enum lf_sp_kind kind;
    size_t size;
} kinds[] = {{"bpe", LF_SP_BPE, 2000}, {"unigram", LF_SP_UNIGRAM, 2000}};

static int write_all(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    json_t *list = hard_texts();
    char **texts;
    size_t n = decode_texts(list, &texts);
    json_t *used = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(used, json_string(texts[i]));
    snprintf(path, sizeof(path), "%s/texts", dir);
    json_dump_file(used, path, 0);
    for (size_t i = 0; i < 2; i++) {
        lf_buf json, model;
        lf_sp_vocab v =
            train(kinds[i].kind, (const char *const *)texts, n, kinds[i].size, 2, false, 16, 0.95);
        write_forms(&v, &json, &model);
        snprintf(path, sizeof(path), "%s/%s.json", dir, kinds[i].name);
        int rc = lf_io_write_file(path, json.data, json.len, 0644, &err);
        snprintf(path, sizeof(path), "%s/%s.model", dir, kinds[i].name);
        if (rc != 0 || lf_io_write_file(path, model.data, model.len, 0644, &err) != 0)
            tap_bail("%s", err.text);
    }
    return 0;
}

static void check_files(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *list = hard_texts(),
           *rows = lf_json_load_file(golden("train_sp.json"), (size_t)1 << 20, &err);
    if (!rows)
        tap_bail("%s", err.text);
    char **texts;
    size_t n = decode_texts(list, &texts);
    for (size_t i = 0; i < 2; i++) {
        const struct kind *k = &kinds[i];
        const json_t *row = json_object_get(rows, k->name);
        char name[64];
        lf_buf json, model, json2, model2;
        lf_sp_vocab v = train(k->kind, (const char *const *)texts, n, k->size, 1, false, 16, 0.95);
        lf_sp_vocab again =
            train(k->kind, (const char *const *)texts, n, k->size, 3, true, 16, 0.95);
        write_forms(&v, &json, &model);
        write_forms(&again, &json2, &model2);
        tap_ok(json.len == json2.len && memcmp(json.data, json2.data, json.len) == 0 &&
                   model.len == model2.len && memcmp(model.data, model2.data, model.len) == 0,
               "%s: three threads and the texts backwards give the same files", k->name);
        snprintf(name, sizeof(name), "%s.json", k->name);
        check_encoding(&json, name, texts, n,
                       json_string_value(json_object_get(row, "tokenizers")));
        snprintf(name, sizeof(name), "%s.model", k->name);
        check_encoding(&model, name, texts, n,
                       json_string_value(json_object_get(row, "sentencepiece")));
        lf_buf_fini(&json);
        lf_buf_fini(&model);
        lf_buf_fini(&json2);
        lf_buf_fini(&model2);
        lf_sp_vocab_fini(&v);
        lf_sp_vocab_fini(&again);
    }
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
    json_decref(rows);
    json_decref(list);
}

static void check_refusals(void)
{
    lf_err err = LF_ERR_INIT;
    lf_word_counts *w = lf_word_counts_create(&err);
    uint8_t *cls = lf_uniclass_create(&err);
    lf_sp_vocab v = {0};
    lf_sp_train_args a = {
        .kind = LF_SP_UNIGRAM, .vocab_size = 262, .coverage = 1, .max_piece = 16, .threads = 1};
    tap_rc(lf_sp_count_words(w, cls, "ab\xFF", 3, true, NULL, &err), LF_EFORMAT, &err, "byte 2",
           "bytes that are no UTF-8, strict");
    uint64_t replaced = 0;
    tap_rc(lf_sp_count_words(w, cls, "abc\xFF", 4, false, &replaced, &err), 0, &err, NULL,
           "and not strict");
    tap_i64((int64_t)replaced, 1, "one replaced");
    tap_rc(lf_sp_train(&v, &a, w, NULL, NULL, &err), LF_EINVAL, &err, "at least 264",
           "no room for the characters");
    a.max_piece = 65;
    tap_rc(lf_sp_train(&v, &a, w, NULL, NULL, &err), LF_EINVAL, &err, "max_piece",
           "pieces too long");
    static const char *const specials[] = {"</s>", "<pad>", "<pad>"};
    a = (lf_sp_train_args){.kind = LF_SP_BPE,
                           .specials = specials,
                           .n_specials = 3,
                           .vocab_size = 300,
                           .min_frequency = 2,
                           .coverage = 1,
                           .max_piece = 16,
                           .threads = 1};
    tap_rc(lf_sp_train(&v, &a, w, NULL, NULL, &err), 0, &err, NULL, "a text with nothing to merge");
    tap_i64((int64_t)v.n, 3 + 1 + 256 + 5, "specials once, bytes, the characters");
    tap_str(v.v[3].text, "<pad>", "further specials follow the three");
    tap_str(v.v[4].text, "<0x00>", "then bytes");
    lf_sp_vocab_fini(&v);
    free(cls);
    lf_word_counts_destroy(w);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_all(argv[2]);
    for (uint64_t seed = 1; seed <= 4; seed++)
        TAP(4, check_reference(seed));
    TAP(14, check_files());
    TAP(9, check_refusals());
    return tap_done();
}
