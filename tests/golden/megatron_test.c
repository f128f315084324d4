/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron-LM data against numpy: the shuffle, the three indices, the blend, and indexed datasets
 * read and written byte for byte. tests/golden/megatron/README.md says how the expected values are
 * made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mt19937.h"
#include "engine/store/megatron_data.h"
#include "engine/train/megatron_order.h"
#include "tests/tap/tap.h"

static char dir[3000];

static json_int_t num(json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* Is v[n] what `want` (an array, or its hash) says? */
static bool same(json_t *want, const int64_t *v, uint64_t n)
{
    json_t *values = json_object_get(want, "values");
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    if ((uint64_t)num(want, "n") != n)
        return false;
    if (!values) {
        lf_hash_buf(digest, v, n * sizeof *v, NULL);
        lf_hash_hex(hex, digest);
        return strcmp(hex, json_string_value(json_object_get(want, "sha256"))) == 0;
    }
    for (uint64_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(values, i)) != v[i])
            return false;
    return true;
}

static bool same_u32(json_t *want, const uint32_t *v, uint64_t n)
{
    int64_t *w = malloc((n + 1) * sizeof *w);
    for (uint64_t i = 0; i < n; i++)
        w[i] = v[i];
    bool ok = same(want, w, n);
    free(w);
    return ok;
}

static void test_rng(json_t *list)
{
    size_t i, k;
    json_t *c, *d;
    json_array_foreach(list, i, c)
    {
        lf_mt19937 m;
        uint64_t n = (uint64_t)num(c, "n");
        uint32_t *v = malloc(n * sizeof *v);
        uint64_t *w = malloc(n * sizeof *w);
        lf_mt19937_seed(&m, (uint32_t)num(c, "seed"));
        bool ok = true;
        json_array_foreach(json_object_get(c, "draws"), k, d) ok =
            ok && lf_mt19937_u32(&m) == (uint32_t)json_integer_value(d);
        for (uint64_t j = 0; j < n; j++) {
            v[j] = (uint32_t)j;
            w[j] = j;
        }
        lf_mt19937_shuffle_u32(&m, v, n);
        lf_mt19937_shuffle_u64(&m, w, n);
        ok = ok && same_u32(json_object_get(c, "first"), v, n) &&
             same(json_object_get(c, "second"), (int64_t *)w, n);
        tap_ok(ok, "seed %lld: draws and two shuffles of %llu", (long long)num(c, "seed"),
               (unsigned long long)n);
        v[n / 2] ^= 1;
        tap_ok(!same_u32(json_object_get(c, "first"), v, n), "a wrong element is noticed");
        free(v);
        free(w);
    }
}

static uint32_t *lengths_of(json_t *c, uint64_t *n)
{
    json_t *l = json_object_get(c, "lengths");
    *n = json_is_array(l) ? json_array_size(l) : (uint64_t)num(l, "n");
    uint32_t *v = malloc(*n * sizeof *v);
    for (uint64_t i = 0; i < *n; i++)
        v[i] = json_is_array(l) ? (uint32_t)json_integer_value(json_array_get(l, i))
                                : (uint32_t)(1 + i * 7919 % 613);
    return v;
}

/* What pieces() says, against the concatenation that the document index describes. */
struct walk {
    const uint64_t *first; /* of each sequence, in the file */
    uint64_t tokens[2048];
    size_t n;
};
static int add_piece(void *user, uint64_t seq, uint64_t first, uint32_t n, lf_err *err)
{
    struct walk *w = user;
    (void)err;
    for (uint32_t i = 0; i < n; i++)
        w->tokens[w->n++] = w->first[seq] + first + i;
    return 0;
}

static int64_t audit_pieces(const lf_megatron_order *o, const uint32_t *len, uint64_t n, uint32_t T)
{
    uint64_t n_docs, total = 0, at = 0;
    const uint32_t *docs = lf_megatron_document_index(o, &n_docs),
                   *shuffle = lf_megatron_shuffle_index(o);
    uint64_t *first = malloc((n + 1) * sizeof *first), *flat;
    int64_t bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        first[i] = at;
        at += len[i];
    }
    for (uint64_t i = 0; i < n_docs; i++)
        total += len[docs[i]];
    flat = malloc((total + 1) * sizeof *flat);
    at = 0;
    for (uint64_t i = 0; i < n_docs; i++)
        for (uint32_t k = 0; k < len[docs[i]]; k++)
            flat[at++] = first[docs[i]] + k;
    for (uint64_t i = 0; i < lf_megatron_order_count(o); i++) {
        struct walk w = {.first = first};
        bad += lf_megatron_order_pieces(o, i, add_piece, &w, NULL) < 0 || w.n != T + 1;
        for (uint32_t k = 0; k <= T; k++)
            bad += w.tokens[k] != flat[(uint64_t)shuffle[i] * T + k];
    }
    free(first);
    free(flat);
    return bad;
}

static void test_order(json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    lf_err err = LF_ERR_INIT;
    lf_megatron_order *o = NULL;
    double b[4] = {0};
    lf_megatron_order_args a = {.T = (uint32_t)num(c, "T"),
                                .samples = (uint64_t)num(c, "samples"),
                                .seed = (uint32_t)num(c, "seed")};
    uint32_t *len = lengths_of(c, &a.n_seqs);
    a.lengths = len;
    tap_rc(lf_megatron_parse_split(b, json_string_value(json_object_get(c, "split")), &err), 0,
           &err, NULL, "split");
    lf_megatron_split_range(&a.begin, &a.end, b, (enum lf_megatron_part)num(c, "part"), a.n_seqs);
    tap_ok(a.begin == (uint64_t)num(c, "begin") && a.end == (uint64_t)num(c, "end"),
           "%s: the part is %llu to %llu", name, (unsigned long long)a.begin,
           (unsigned long long)a.end);
    tap_rc(lf_megatron_order_build(&o, &a, &err), 0, &err, NULL, name);
    if (o) {
        uint64_t n_docs, n = lf_megatron_order_count(o);
        const uint32_t *docs = lf_megatron_document_index(o, &n_docs);
        tap_ok(lf_megatron_order_epochs(o) == (uint64_t)num(c, "epochs") &&
                   n == (uint64_t)num(c, "count"),
               "%s: epochs and samples", name);
        tap_ok(same_u32(json_object_get(c, "documents"), docs, n_docs), "%s: document index", name);
        tap_ok(
            same_u32(json_object_get(c, "sample_index"), lf_megatron_sample_index(o), 2 * (n + 1)),
            "%s: sample index", name);
        tap_ok(same_u32(json_object_get(c, "shuffle"), lf_megatron_shuffle_index(o), n),
               "%s: shuffle index", name);
        tap_i64(audit_pieces(o, len, a.n_seqs, a.T), 0,
                "every sample is the tokens that the indices say");
    }
    lf_megatron_order_destroy(o);
    free(len);
}

static void test_blend(json_t *c)
{
    size_t n = json_array_size(json_object_get(c, "weights"));
    uint64_t samples = (uint64_t)num(c, "samples"), taken[256] = {0};
    double w[256], once[256];
    bool asked = true, weights = true;
    int64_t *who = malloc(samples * sizeof *who), *which = malloc(samples * sizeof *which);
    for (size_t k = 0; k < n; k++)
        w[k] = json_number_value(json_array_get(json_object_get(c, "weights"), k));
    lf_megatron_normalize(w, n);
    memcpy(once, w, sizeof once);
    lf_megatron_normalize(w, n);
    for (size_t k = 0; k < n; k++) {
        const char *hex = json_string_value(json_array_get(json_object_get(c, "normalized"), k));
        double want = strtod(hex, NULL);
        weights = weights && memcmp(&want, &w[k], sizeof want) == 0;
        asked = asked &&
                lf_megatron_source_samples(samples, once[k], 0.005) ==
                    (uint64_t)json_integer_value(json_array_get(json_object_get(c, "asked"), k));
    }
    for (uint64_t i = 0; i < samples; i++) {
        size_t k = lf_megatron_blend_choose(w, n, i, taken);
        who[i] = (int64_t)k;
        which[i] = (int64_t)taken[k]++;
    }
    tap_ok(weights, "%zu weights, to the bit", n);
    tap_ok(asked, "samples asked of each");
    tap_ok(same(json_object_get(c, "dataset"), who, samples) &&
               same(json_object_get(c, "sample"), which, samples),
           "blend of %llu samples", (unsigned long long)samples);
    free(who);
    free(which);
}

static bool same_file(const char *a, const char *b)
{
    lf_buf x, y;
    lf_buf_init(&x);
    lf_buf_init(&y);
    bool ok = lf_io_read_file(a, 1 << 20, &x, NULL) == 0 &&
              lf_io_read_file(b, 1 << 20, &y, NULL) == 0 && x.len == y.len &&
              memcmp(x.data, y.data, x.len) == 0;
    lf_buf_fini(&x);
    lf_buf_fini(&y);
    return ok;
}

/* Read NAME, compare with the documents, write it again, compare the bytes. */
static void test_dataset(const char *name, json_t *docs)
{
    char from[4000], to[4000], a[4100], b[4100];
    lf_err err = LF_ERR_INIT;
    lf_megatron_data *d = NULL;
    lf_megatron_writer *w = NULL;
    uint32_t ids[64];
    int64_t bad = 0;
    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(to, sizeof to, "%s/%s", tap_tmpdir(), name);
    tap_rc(lf_megatron_open(&d, from, &err), 0, &err, NULL, name);
    if (!d)
        return;
    const lf_megatron_info *i = lf_megatron_get_info(d);
    tap_ok(i->n_docs == json_array_size(docs) && i->packed, "%s: documents, without gaps", name);
    tap_rc(lf_megatron_create(&w, to, i->dtype, i->modes != NULL, &err), 0, &err, NULL, "create");
    for (uint64_t k = 0; k < i->n_docs; k++) {
        json_t *seqs = json_array_get(docs, k);
        bad += (uint64_t)(i->docs[k + 1] - i->docs[k]) != json_array_size(seqs);
        for (int64_t s = i->docs[k]; s < i->docs[k + 1]; s++) {
            json_t *want = json_array_get(seqs, (size_t)(s - i->docs[k]));
            size_t n = (size_t)i->lengths[s], half = n / 2;
            bad += n != json_array_size(want) ||
                   lf_megatron_read_ids(d, (uint64_t)s, 0, n, ids, &err) < 0;
            for (size_t t = 0; t < n; t++)
                bad += ids[t] != (uint32_t)json_integer_value(json_array_get(want, t));
            bad += lf_megatron_append(w, ids, half, i->modes ? i->modes[s] : 0, &err) < 0 ||
                   lf_megatron_extend(w, ids + half, n - half, &err) < 0;
        }
        bad += lf_megatron_end_document(w, &err) < 0;
    }
    tap_i64(bad, 0, "every token of every sequence");
    tap_rc(lf_megatron_finish(w, &err), 0, &err, NULL, "finish");
    snprintf(a, sizeof a, "%s.bin", from);
    snprintf(b, sizeof b, "%s.bin", to);
    tap_ok(same_file(a, b), "%s.bin comes out byte for byte", name);
    snprintf(a, sizeof a, "%s.idx", from);
    snprintf(b, sizeof b, "%s.idx", to);
    tap_ok(same_file(a, b), "%s.idx comes out byte for byte", name);
    lf_megatron_close(d);
}

int main(void)
{
    char path[4000];
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR"), *name;
    size_t i;
    json_t *c;
    snprintf(dir, sizeof dir, "%s/tests/golden/megatron", src ? src : ".");
    snprintf(path, sizeof path, "%s/expected.json", dir);
    json_t *j = lf_json_load_file(path, 1 << 24, &err);
    if (!j)
        tap_bail("%s", err.text);
    TAP(8, test_rng(json_object_get(j, "rng")));
    json_array_foreach(json_object_get(j, "orders"), i, c) TAP(8, test_order(c));
    json_array_foreach(json_object_get(j, "blends"), i, c) TAP(3, test_blend(c));
    json_object_foreach(json_object_get(j, "datasets"), name, c) TAP(7, test_dataset(name, c));
    json_decref(j);
    return tap_done();
}
