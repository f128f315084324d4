/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing vocabularies: old ids stay, the old ids of each new token put in its place give the old
 * encoding, new tokens are used, the tokenizers library encodes with the grown file as we do
 * (tests/golden/tokenizer/grow.json, made by make_grow.py, which runs this program with --write
 * DIR), special tokens have the ids that it gives them (special.json, make_special.py), and what
 * cannot grow is refused.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/text/vocab/grow.h"
#include "tests/tap/tap.h"

/* Written for this test. */
static const char *const fresh[] = {
    "Am Morgen ging der alte Fischer zum Hafen und sah nach seinen Netzen. Der Wind kam von "
    "Westen, und das Wasser war "
    "unruhig. Er wartete, bis die anderen Fischer kamen, und sprach mit ihnen über das Wetter.",
    "Die Fischer kannten den Hafen und das Wetter. Wenn der Wind von Westen kam, blieben die Boote "
    "im Hafen, und die "
    "Netze wurden geflickt. Wenn der Wind von Osten kam, fuhren die Boote hinaus.",
    "Am Abend saßen die Fischer zusammen und erzählten von früheren Fahrten, von Wasser und "
    "Wetter, von guten und von "
    "schlechten Jahren. Über dem Hafen wurde es dunkel, und das Wasser wurde ruhig.",
    "早上老渔夫到港口去看他的渔网。风从西边吹来，"
    "水面不平静。他等到别的渔夫来了，和他们谈天气。",
    "渔夫们知道港口和天气。风从西边来的时候，船留在"
    "港口，渔夫们补渔网。风从东边来的时候，船就出海。",
    "晚上渔夫们坐在一起，谈水和天气，谈好的年"
    "份和不好的年份。港口上天黑了，水面平静了。",
};
#define N_FRESH (sizeof(fresh) / sizeof(fresh[0]))

static char path[4096];

static const char *golden(const char *name)
{
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/%s", getenv("LF_SRCDIR"), name);
    return path;
}

static void read_golden(const char *name, lf_buf *out)
{
    lf_err err = LF_ERR_INIT;
    lf_buf_init(out);
    if (lf_io_read_file(golden(name), (size_t)64 << 20, out, &err) != 0)
        tap_bail("%s", err.text);
}

static size_t unhex(char *out, const char *hex)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned b = 0;
        if (sscanf(hex + 2 * i, "%2x", &b) != 1)
            tap_bail("bad hex in the golden file");
        out[i] = (char)b;
    }
    return n;
}

/* FNV-1a over the ids as 4 bytes each, a number of ids before each text. */
static uint64_t add_hash(uint64_t h, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        h = (h ^ (x >> 8 * i & 0xFF)) * 0x100000001B3u;
    return h;
}

static lf_grower *grow(const char *base, size_t n_new, const char *donor, bool backwards,
                       lf_buf *file)
{
    lf_err err = LF_ERR_INIT;
    lf_buf text, other;
    lf_grow_args a = {.new_tokens = n_new, .min_frequency = 2, .coverage = 1, .max_piece = 16};
    read_golden(base, &text);
    lf_grower *g = lf_grower_create(text.data, text.len, false, base, &err);
    if (!g)
        tap_bail("%s", err.text);
    lf_word_counts *w = NULL;
    int rc = 0;
    if (donor) {
        read_golden(donor, &other);
        rc = lf_grower_donor(g, other.data, other.len, donor, &err);
        lf_buf_fini(&other);
    } else {
        lf_tok_state *s = lf_tok_state_create(lf_grower_base(g), &err);
        w = lf_word_counts_create(&err);
        for (size_t i = 0; i < N_FRESH && rc == 0; i++) {
            const char *t = fresh[backwards ? N_FRESH - 1 - i : i];
            rc = lf_grower_count(g, w, s, t, strlen(t), true, &err);
        }
        lf_tok_state_destroy(s);
    }
    if (rc == 0)
        rc = lf_grower_run(g, &a, w, NULL, NULL, &err);
    if (rc == 0)
        rc = lf_grower_write(g, file, &err);
    if (rc != 0)
        tap_bail("%s", err.text);
    lf_word_counts_destroy(w);
    lf_buf_fini(&text);
    return g;
}

/* ids with the old ids in the place of each new one. */
static void expand(lf_ids *out, const lf_grower *g, const lf_ids *ids)
{
    size_t n, old = lf_grower_old_size(g);
    const lf_grown *t = lf_grower_tokens(g, &n);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->v[i] < old)
            lf_ids_add(out, ids->v[i], NULL);
        for (size_t k = 0; ids->v[i] >= old && k < t[ids->v[i] - old].n_old; k++)
            lf_ids_add(out, t[ids->v[i] - old].old[k], NULL);
    }
}

struct sums {
    size_t before, after, same, differ;
    uint64_t hash;
};

static void encode(struct sums *m, const lf_grower *g, lf_tok_state *a, lf_tok_state *b,
                   const char *text, size_t len)
{
    lf_err err = LF_ERR_INIT;
    lf_ids x = {0}, y = {0}, z = {0};
    if (lf_tokenizer_encode(a, text, len, 0, &x, NULL, &err) != 0 ||
        lf_tokenizer_encode(b, text, len, 0, &y, NULL, &err) != 0)
        tap_bail("%s", err.text);
    expand(&z, g, &y);
    m->before += x.n;
    m->after += y.n;
    m->same += x.n == y.n;
    m->differ += z.n != x.n || (x.n && memcmp(z.v, x.v, x.n * sizeof(*x.v)) != 0);
    m->hash = add_hash(m->hash, (uint32_t)y.n);
    for (size_t i = 0; i < y.n; i++)
        m->hash = add_hash(m->hash, y.v[i]);
    lf_ids_fini(&x);
    lf_ids_fini(&y);
    lf_ids_fini(&z);
}

static struct sums encode_all(const lf_grower *g, const lf_tokenizer *t, const json_t *texts,
                              bool of_fresh)
{
    lf_err err = LF_ERR_INIT;
    struct sums m = {.hash = 0xCBF29CE484222325u};
    lf_tok_state *a = lf_tok_state_create(lf_grower_base(g), &err),
                 *b = lf_tok_state_create(t, &err);
    char *text = malloc(1 << 16);
    json_t *v;
    size_t i;
    for (i = 0; i < N_FRESH && of_fresh; i++)
        encode(&m, g, a, b, fresh[i], strlen(fresh[i]));
    json_array_foreach(texts, i, v) if (!of_fresh)
        encode(&m, g, a, b, text, unhex(text, json_string_value(v)));
    free(text);
    lf_tok_state_destroy(a);
    lf_tok_state_destroy(b);
    return m;
}

static void check_ids(const lf_grower *g, const lf_tokenizer *t, const char *name)
{
    const lf_tokenizer *base = lf_grower_base(g);
    size_t n, bad = 0, old = lf_grower_old_size(g);
    const lf_grown *new = lf_grower_tokens(g, &n);
    for (uint32_t id = 0; id < old; id++) {
        const uint8_t *x, *y;
        size_t nx = 0, ny = 0;
        bool hx = lf_tokenizer_token(base, id, &x, &nx), hy = lf_tokenizer_token(t, id, &y, &ny);
        bad += hx != hy || nx != ny || (hx && memcmp(x, y, nx) != 0) ||
               lf_tokenizer_is_special(base, id) != lf_tokenizer_is_special(t, id);
    }
    tap_i64((int64_t)bad, 0, name);
    for (size_t i = 0; i < n; i++)
        bad += lf_tokenizer_find(t, new[i].text) != (int64_t)(old + i);
    tap_i64((int64_t)bad, 0, "new ids follow the old ones");
    tap_i64(lf_tokenizer_vocab_size(t), (int64_t)(old + n), "and nothing else is new");
}

static void check(const char *base, size_t n_new, const char *donor, const json_t *texts,
                  const json_t *row)
{
    lf_err err = LF_ERR_INIT;
    lf_buf file;
    size_t n;
    char hex[17];
    lf_buf_init(&file);
    lf_grower *g = grow(base, n_new, donor, false, &file);
    lf_tokenizer *t = lf_tokenizer_parse(file.data, file.len, "grown", &err);
    if (!t)
        tap_bail("%s", err.text);
    lf_grower_tokens(g, &n);
    check_ids(g, t, base);
    bool whole = strcmp(base, "llama3.json") ==
                 0; /* ignore_merges: a whole word may be cut otherwise than inside a longer one */
    struct sums old = encode_all(g, t, texts, false), new = encode_all(g, t, texts, true);
    tap_ok(new.differ == 0 && (whole || old.differ == 0),
           "%s + %s: old ids for new ones give the old encoding (%zu, %zu differ)", base,
           donor ? donor : "text", new.differ, old.differ);
    tap_ok(old.same > json_array_size(texts) / 4, "%zu of %zu old texts are encoded as before",
           old.same, json_array_size(texts));
    if (!donor) {
        tap_i64((int64_t)n, (int64_t)n_new, "as many tokens as asked for");
        tap_ok((double)new.after < 0.8 * (double)new.before,
               "the new text takes %zu tokens, not %zu", new.after, new.before);
        lf_buf again;
        lf_buf_init(&again);
        lf_grower *h = grow(base, n_new, donor, true, &again);
        tap_ok(again.len == file.len && memcmp(again.data, file.data, file.len) == 0,
               "the order of texts does not matter");
        lf_grower_destroy(h);
        lf_buf_fini(&again);
    }
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)new.hash);
    tap_str(hex, json_string_value(json_object_get(row, "fresh")),
            "the library's ids of the new text");
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)old.hash);
    tap_str(hex, json_string_value(json_object_get(row, "texts")),
            "the library's ids of the hard texts");
    lf_tokenizer_destroy(t);
    lf_grower_destroy(g);
    lf_buf_fini(&file);
}

static const struct job {
    const char *base;
    size_t n_new;
    const char *donor;
} jobs[] = {
    {"gpt2.json", 60, NULL},          {"qwen2.json", 60, NULL},         {"llama3.json", 60, NULL},
    {"gpt2.json", 400, "qwen2.json"}, {"llama3.json", 20, "gpt2.json"},
};
#define N_JOBS (sizeof(jobs) / sizeof(jobs[0]))

/* For make_grow.py. */
static int write_all(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < N_JOBS; i++) {
        lf_buf file;
        char name[4096];
        lf_buf_init(&file);
        lf_grower *g = grow(jobs[i].base, jobs[i].n_new, jobs[i].donor, false, &file);
        snprintf(name, sizeof(name), "%s/%zu.json", dir, i);
        if (lf_io_write_file(name, file.data, file.len, 0644, &err) != 0)
            tap_bail("%s", err.text);
        lf_grower_destroy(g);
        lf_buf_fini(&file);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < N_FRESH; i++)
        json_array_append_new(list, json_string(fresh[i]));
    snprintf(path, sizeof(path), "%s/fresh.txt", dir);
    return json_dump_file(list, path, 0);
}

static void refuses(const char *json, const char *says, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_grower *g = lf_grower_create(json, strlen(json), false, "odd.json", &err);
    tap_ok(!g && strstr(err.text, says), "%s: %s", name, err.text);
    lf_grower_destroy(g);
}

static void check_refusals(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    refuses("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram", "unigram");
    refuses("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece", "word pieces");
    refuses("{\"model\":{}}", "vocab", "no vocabulary");
    refuses("[", "odd.json", "no JSON");
    read_golden("gpt2.json", &text);
    lf_grower *g = lf_grower_create(text.data, text.len, false, "gpt2.json", &err);
    if (!g)
        tap_bail("%s", err.text);
    static const char odd[] = "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}";
    tap_ok(lf_grower_donor(g, odd, strlen(odd), "odd.json", &err) < 0,
           "a donor of another kind: %s", err.text);
    lf_err_clear(&err);
    tap_rc(lf_grower_donor(g, text.data, text.len, "itself", &err), 0, &err, NULL,
           "itself as donor");
    lf_grow_args a = {.new_tokens = 10};
    size_t n = 1;
    tap_rc(lf_grower_run(g, &a, NULL, NULL, NULL, &err), 0, &err, NULL, "which has nothing new");
    lf_grower_tokens(g, &n);
    tap_i64((int64_t)n, 0, "no token");
    lf_grower_destroy(g);
    lf_buf_fini(&text);
}

/* ---- special tokens ---- */

static const char **texts_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    const char **v = calloc(*n + 1, sizeof *v);
    for (size_t i = 0; v && i < *n; i++)
        v[i] = json_string_value(json_array_get(list, i));
    return v;
}

static bool same_ids(const lf_ids *ids, const json_t *want)
{
    bool same = ids->n == json_array_size(want);
    for (size_t i = 0; i < ids->n && same; i++)
        same = ids->v[i] == (uint32_t)json_integer_value(json_array_get(want, i));
    return same;
}

/* The file at `from` with special tokens; the caller frees out. */
static size_t add_specials(lf_buf *out, const char *from, const char *const *texts, size_t n)
{
    lf_err err = LF_ERR_INIT;
    lf_buf old;
    size_t size = 0, n_new = 0;
    lf_buf_init(&old);
    lf_buf_init(out);
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", getenv("LF_SRCDIR"), from);
    if (lf_io_read_file(path, 1 << 20, &old, &err) != 0)
        tap_bail("%s", err.text);
    lf_grower *g = lf_grower_create(old.data, old.len, true, from, &err);
    int rc = g ? lf_grower_specials(g, texts, n, &err) : err.rc;
    if (rc == 0)
        rc = lf_grower_write(g, out, &err);
    tap_rc(rc, 0, &err, NULL, from);
    if (g) {
        size = lf_grower_old_size(g);
        const lf_grown *t = lf_grower_tokens(g, &n_new);
        bool made = n_new == n;
        for (size_t i = 0; i < n_new; i++)
            made = made && t[i].n_old > 0 && strcmp(t[i].text, texts[i]) == 0;
        tap_ok(made, "%s: each is made of old tokens", from);
        lf_err again = LF_ERR_INIT;
        tap_ok(lf_grower_specials(g, texts, 1, &again) == LF_EINVAL &&
                   strstr(again.text, "is a token already"),
               "%s: but not twice", from);
    }
    lf_grower_destroy(g);
    lf_buf_fini(&old);
    return size;
}

static void test_special(void)
{
    lf_err err = LF_ERR_INIT;
    json_t *all = lf_json_load_file(golden("special.json"), 1 << 20, &err), *rows;
    size_t n_special, n_texts;
    const char *name, **special = texts_of(json_object_get(all, "special"), &n_special),
                      **texts = texts_of(json_object_get(all, "texts"), &n_texts);
    json_object_foreach(json_object_get(all, "ids"), name, rows)
    {
        char from[64];
        lf_buf grown;
        lf_ids ids = {0};
        size_t same = 0;
        snprintf(from, sizeof from, "tokenizer/%s.json", name);
        add_specials(&grown, from, special, n_special);
        lf_tokenizer *t = lf_tokenizer_parse(grown.data, grown.len, name, &err);
        lf_tok_state *s = t ? lf_tok_state_create(t, &err) : NULL;
        for (size_t i = 0; i < n_special && t; i++)
            lf_ids_add(&ids, (uint32_t)lf_tokenizer_find(t, special[i]), &err);
        same += same_ids(&ids, json_array_get(rows, 0));
        for (size_t i = 0; i < n_texts && s; i++) {
            ids.n = 0;
            lf_tokenizer_encode(s, texts[i], strlen(texts[i]), 0, &ids, NULL, &err);
            same += same_ids(&ids, json_array_get(rows, i + 1));
        }
        tap_i64((int64_t)same, (int64_t)n_texts + 1, "ids are those of the tokenizers library");
        lf_ids_fini(&ids);
        lf_tok_state_destroy(s);
        lf_tokenizer_destroy(t);
        lf_buf_fini(&grown);
    }
    static const char *const models[] = {"spm/bpe.model", "spm/unigram.model"};
    for (size_t k = 0; k < 2; k++) {
        lf_buf grown;
        const size_t old = add_specials(&grown, models[k], special, n_special);
        lf_tokenizer *t = lf_tokenizer_parse(grown.data, grown.len, models[k], &err);
        tap_ok(t && lf_tokenizer_find(t, special[1]) == (int64_t)old + 1 &&
                   lf_tokenizer_is_special(t, (uint32_t)old) &&
                   lf_tokenizer_vocab_size(t) == old + 2,
               "%s: control pieces behind the others", models[k]);
        lf_tokenizer_destroy(t);
        lf_buf_fini(&grown);
    }
    free(special);
    free(texts);
    json_decref(all);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_all(argv[2]);
    lf_err err = LF_ERR_INIT;
    json_t *vectors = lf_json_load_file(golden("vectors.json"), (size_t)64 << 20, &err);
    json_t *rows = vectors ? lf_json_load_file(golden("grow.json"), (size_t)1 << 20, &err) : NULL;
    if (!rows)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < N_JOBS; i++)
        TAP(jobs[i].donor ? 7 : 10,
            check(jobs[i].base, jobs[i].n_new, jobs[i].donor, json_object_get(vectors, "texts"),
                  json_array_get(rows, i)));
    TAP(8, check_refusals());
    json_decref(rows);
    json_decref(vectors);
    test_special();
    return tap_done();
}
