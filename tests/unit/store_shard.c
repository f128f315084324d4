/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards: what is written is read, bytes are reproducible, damage is one clear error, and files
 * HDF5 would follow out of the directory are refused.
 */
#include "engine/store/shard.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/store/h5.h"
#include "tests/tap/tap.h"

/* libhdf5 1.10 forgets a block when an object header's checksum is wrong; ours are still
 * watched. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

static char tmp[4096];

static const char *at(const char *name)
{
    snprintf(tmp, sizeof tmp, "%s/%s", tap_tmpdir(), name);
    return tmp;
}

static lf_shard_info info_of(int64_t vocab)
{
    lf_shard_info i = {.vocab_size = vocab, .eos_id = 0, .source = "a test, \xc3\xa9"};
    memset(i.tokenizer_sha256, 'a', LF_HASH_HEX - 1);
    return i;
}

static uint32_t token(uint64_t doc, size_t k, int64_t vocab)
{
    return (uint32_t)((doc * 2654435761u + k * 40503u) % (uint64_t)vocab);
}

static size_t doc_len(uint64_t d)
{
    return d % 5 == 3 ? 0 : (size_t)(d * d % 1777);
}

static void write_shard(const char *path, int64_t vocab, uint64_t n_docs, lf_shard_stat *st)
{
    lf_err err = LF_ERR_INIT;
    lf_shard_info info = info_of(vocab);
    lf_shard_writer *w = NULL;
    uint32_t doc[2000];
    if (lf_shard_create(&w, path, &info, 0, &err) < 0)
        tap_bail("create: %s", err.text);
    for (uint64_t d = 0; d < n_docs; d++) {
        for (size_t k = 0; k < doc_len(d); k++)
            doc[k] = token(d, k, vocab);
        if (lf_shard_append(w, doc, doc_len(d), &err) < 0)
            tap_bail("append: %s", err.text);
    }
    if (lf_shard_finish(w, st, &err) < 0)
        tap_bail("finish: %s", err.text);
}

static void check_shard(const char *path, int64_t vocab, uint64_t n_docs, int token_bytes)
{
    lf_err err = LF_ERR_INIT;
    lf_shard *s = NULL;
    int32_t doc[2000];
    tap_rc(lf_shard_open(&s, path, &err), 0, &err, NULL, "open");
    if (!s)
        return;
    const lf_shard_info *i = lf_shard_get_info(s);
    const uint64_t *off = lf_shard_offsets(s);
    tap_i64((int64_t)i->n_docs, (int64_t)n_docs, "documents");
    tap_i64(i->token_bytes, token_bytes, "token width");
    tap_i64(i->vocab_size, vocab, "vocabulary");
    tap_str(i->source, "a test, \xc3\xa9", "source");
    uint64_t wrong = 0;
    for (uint64_t d = 0; d < n_docs; d++) {
        size_t n = (size_t)(off[d + 1] - off[d]);
        wrong += n != doc_len(d) || lf_shard_read(s, off[d], n, doc, &err) < 0;
        for (size_t k = 0; k < n; k++)
            wrong += (uint32_t)doc[k] != token(d, k, vocab);
    }
    tap_i64((int64_t)wrong, 0, "every token of every document");
    tap_rc(lf_shard_read(s, i->n_tokens, 1, doc, &err), LF_EINVAL, &err, "tokens",
           "reading past the end");
    tap_rc(lf_shard_read(s, UINT64_MAX, 1, doc, &err), LF_EINVAL, &err, "tokens",
           "reading far past the end");
    lf_shard_close(s);
}

static void test_round_trip(void)
{
    lf_shard_stat a, b;
    struct stat st;
    char p[4096];
    write_shard(at("a.h5"), 50257, 700, &a); /* more than one chunk */
    check_shard(at("a.h5"), 50257, 700, 2);
    write_shard(at("b.h5"), 128256, 700, &b);
    check_shard(at("b.h5"), 128256, 700, 4);
    write_shard(at("empty.h5"), 10, 0, &b);
    check_shard(at("empty.h5"), 10, 0, 2);
    tap_ok(a.n_tokens > 262144, "the test crosses a chunk (%llu tokens)",
           (unsigned long long)a.n_tokens);
    sleep(1); /* times in the file would differ now */
    write_shard(at("c.h5"), 50257, 700, &b);
    tap_mem(a.sha256, b.sha256, LF_HASH_BYTES, "the same documents give the same bytes");
    snprintf(p, sizeof p, "%s", at("c.h5"));
    tap_i64(stat(p, &st) == 0 ? (int64_t)st.st_size : -1, b.bytes, "the length is right");
}

static void test_refusals(void)
{
    lf_err err = LF_ERR_INIT;
    lf_shard_info info = info_of(100);
    lf_shard_writer *w = NULL;
    uint32_t t = 100;
    tap_rc(lf_shard_create(&w, at("a.h5"), &info, 0, &err), LF_EEXIST, &err, "a.h5",
           "no overwriting");
    info.vocab_size = 70000;
    tap_rc(lf_shard_create(&w, at("x.h5"), &info, 2, &err), LF_EINVAL, &err, "70000",
           "u16 is too narrow");
    info = info_of(100);
    info.tokenizer_sha256[3] = 'X';
    tap_rc(lf_shard_create(&w, at("x.h5"), &info, 2, &err), LF_EFORMAT, &err, "64",
           "a hash is hex");
    info = info_of(100);
    tap_rc(lf_shard_create(&w, at("x.h5"), &info, 0, &err), 0, &err, NULL, "create");
    tap_rc(lf_shard_append(w, &t, 1, &err), LF_EINVAL, &err, "100", "an id above the vocabulary");
    lf_shard_abort(w);
    tap_ok(access(at("x.h5"), F_OK) != 0, "abort leaves nothing");
    lf_shard *s = NULL;
    tap_rc(lf_shard_open(&s, at("none.h5"), &err), LF_ENOENT, &err, "none.h5", "a missing file");
}

static char *slurp(const char *path, size_t *n)
{
    lf_buf b;
    lf_buf_init(&b);
    if (lf_io_read_file(path, (size_t)1 << 30, &b, NULL) < 0)
        tap_bail("read %s", path);
    *n = b.len;
    return b.data;
}

static void spit(const char *path, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        tap_bail("write %s", path);
    close(fd);
}

/* Open, and read everything when that works: 0, or the error's code. */
static int try_all(const char *path, lf_err *err)
{
    lf_shard *s = NULL;
    int32_t buf[512];
    int rc = lf_shard_open(&s, path, err);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0, n = lf_shard_get_info(s)->n_tokens; i < n && rc == 0; i += 512)
        rc = lf_shard_read(s, i, n - i < 512 ? (size_t)(n - i) : 512, buf, err);
    lf_shard_close(s);
    return rc;
}

static void test_damage(void)
{
    lf_shard_stat st;
    size_t n;
    write_shard(at("d.h5"), 100, 20, &st);
    char *data = slurp(at("d.h5"), &n);
    int ok = 0, silent = 0, untold = 0;
    for (size_t cut = 0; cut < n; cut = cut < 4096 ? cut + 37 : cut + n / 50) {
        lf_err err = LF_ERR_INIT;
        spit(at("cut.h5"), data, cut);
        ok += try_all(at("cut.h5"), &err) == 0;
        untold += strstr(err.text, "cut.h5") == NULL;
    }
    tap_i64(ok, 0, "no cut file opens");
    tap_i64(untold, 0, "each error names the file");
    /* Any single damaged byte: an error, or (in the tokens themselves) another valid token. Never a
     * crash. */
    for (size_t i = 0; i < n; i = i < 3000 || i > n - 3000 ? i + 11 : i + 9973) {
        lf_err err = LF_ERR_INIT;
        data[i] = (char)(data[i] ^ 0x40);
        spit(at("flip.h5"), data, n);
        data[i] = (char)(data[i] ^ 0x40);
        int rc = try_all(at("flip.h5"), &err);
        silent += rc < 0 && err.text[0] == 0;
    }
    tap_i64(silent, 0, "every failure has a text");
    free(data);
}

static void test_hostile(void)
{
    /* Files made through HDF5 itself with contents a shard may not have. */
    static const uint64_t off_good[] = {0, 2, 4}, off_dec[] = {0, 5, 4}, off_long[] = {0, 2, 400};
    static const uint16_t tok[] = {1, 2, 3, 4};
    static const struct {
        const uint64_t *off;
        int64_t vocab, eos;
        const char *format, *want;
    } v[] = {{off_dec, 10, 0, "lf-shard-1", "decrease"},
             {off_long, 10, 0, "lf-shard-1", "doc_offsets"},
             {off_good, 4, 0, "lf-shard-1", "token id 4"},
             {off_good, 10, 10, "lf-shard-1", "eos_id"},
             {off_good, 0, -1, "lf-shard-1", "vocab_size"},
             {off_good, 10, 0, "lf-shard-9", "lf-shard-9"}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_err err = LF_ERR_INIT;
        lf_h5 *f = NULL;
        const char hex[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        unlink(at("h.h5"));
        if (lf_h5_create(&f, at("h.h5"), &err) < 0 ||
            lf_h5_put_attr_str(f, "lf_format", v[i].format, &err) < 0 ||
            lf_h5_put_attr_str(f, "tokenizer_sha256", hex, &err) < 0 ||
            lf_h5_put_attr_i64(f, "vocab_size", v[i].vocab, &err) < 0 ||
            lf_h5_put_attr_i64(f, "eos_id", v[i].eos, &err) < 0 ||
            lf_h5_put_attr_str(f, "source", "", &err) < 0 ||
            lf_h5_put(f, "tokens", LF_H5_U16, tok, 4, &err) < 0 ||
            lf_h5_put(f, "doc_offsets", LF_H5_U64, v[i].off, 3, &err) < 0 ||
            lf_h5_close(f, &err) < 0)
            tap_bail("%s", err.text);
        int rc = try_all(at("h.h5"), &err);
        tap_rc(rc, LF_EFORMAT, &err, v[i].want, v[i].want);
    }
}

/* Files of foreign hand (tests/golden/store): one that is fine, the rest refused for what their
 * name says. */
static void test_foreign(void)
{
    static const struct {
        const char *name, *want;
    } v[] = {{"plain", NULL},
             {"softlink", "link"},
             {"externallink", "link"},
             {"virtual", "not stored in this file"},
             {"externalstorage", "not stored in this file"},
             {"gzip", "filtered"},
             {"bigendian", "type of tokens"},
             {"signed", "list of u16"},
             {"matrix", "list of u16"},
             {"unwritten", "inside the file"},
             {"manychunks", "more than the file holds"},
             {"holes", "inside the file"},
             {"group", "not a readable dataset"},
             {"missing", "no dataset tokens"}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        char path[4096];
        lf_err err = LF_ERR_INIT;
        snprintf(path, sizeof path, "%s/tests/golden/store/%s.h5",
                 getenv("LF_SRCDIR") ? getenv("LF_SRCDIR") : "..", v[i].name);
        tap_rc(try_all(path, &err), v[i].want ? LF_EFORMAT : 0, &err, v[i].want, v[i].name);
    }
}

static void test_set(void)
{
    lf_err err = LF_ERR_INIT;
    lf_shardset *s = NULL;
    char dir[4000];
    int32_t doc[64];
    snprintf(dir, sizeof dir, "%s/set", tap_tmpdir());
    tap_rc(lf_shard_write_synthetic(dir, &(struct lf_shard_synthetic){103, 7, 4, 50, 300, 9}, &err),
           0, &err, NULL, "write a dataset");
    tap_rc(lf_shardset_open(&s, dir, "train", &err), 0, &err, NULL, "open its training split");
    tap_i64((int64_t)lf_shardset_get_info(s)->n_docs, 103, "documents over all files");
    uint64_t wrong = 0;
    for (uint64_t d = 0; d < 103; d++) {
        uint32_t n = lf_shard_synthetic_len(9, d, 50);
        wrong += lf_shardset_doc_len(s, d) != n || lf_shardset_read(s, d, 0, n, doc, &err) < 0;
        for (uint32_t k = 0; k < n; k++)
            wrong += (uint32_t)doc[k] != lf_shard_synthetic_token(9, d, k, n, 300);
    }
    tap_i64((int64_t)wrong, 0, "every token");
    tap_rc(lf_shardset_read(s, 103, 0, 1, doc, &err), LF_EINVAL, &err, "103", "no such document");
    lf_shardset_close(s);
    tap_rc(lf_shardset_open(&s, dir, "test", &err), LF_ENOENT, &err, "'test'", "no such split");
    char path[4096];
    snprintf(path, sizeof path, "%s/train-00002.h5", dir);
    if (truncate(path, 5000) < 0)
        tap_bail("truncate");
    tap_rc(lf_shardset_open(&s, dir, "train", &err), LF_EFORMAT, &err, "cut short",
           "a cut shard is named");
    unlink(path);
    tap_rc(lf_shardset_open(&s, dir, "train", &err), LF_ENOENT, &err, "train-00002",
           "a purged shard is named");
}

int main(void)
{
    TAP(27, test_round_trip());
    TAP(7, test_refusals());
    TAP(3, test_damage());
    TAP(6, test_hostile());
    TAP(14, test_foreign());
    TAP(8, test_set());
    return tap_done();
}
