/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kind of tokenizer and file form against its library: forms.tar.xz (make_forms.py) holds
 * small tokenizers, vectors.json with hard texts, and the hash of the ids of a text of 5 MB that
 * this test generates as the script does.
 */
#include "config.h"

#include <archive.h>
#include <archive_entry.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/token/tokenizer_files.h"
#include "tests/tap/tap.h"
#include "tests/unit/text_vectors.h"

static char dir[4096];

/* Unpack the archive below dir; names are ours: NAME or FOLDER/NAME. */
static void unpack(const char *path)
{
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    archive_read_support_filter_xz(a);
    archive_read_support_format_tar(a);
    if (archive_read_open_filename(a, path, 1 << 16) != ARCHIVE_OK)
        tap_bail("%s: %s", path, archive_error_string(a));
    while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
        char to[8192];
        size_t n = (size_t)archive_entry_size(e);
        char *data = malloc(n + 1);
        snprintf(to, sizeof(to), "%s/%s", dir, archive_entry_pathname(e));
        char *slash = strrchr(to, '/');
        *slash = 0;
        mkdir(to, 0700);
        *slash = '/';
        FILE *f = fopen(to, "wb");
        if (!data || !f || archive_read_data(a, data, n) != (la_ssize_t)n ||
            fwrite(data, 1, n, f) != n || fclose(f) != 0)
            tap_bail("%s: %s cannot be unpacked", path, to);
        free(data);
    }
    archive_read_free(a);
}

static void put(lf_buf *b, uint32_t c)
{
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        u[i] = (char)(0x80 | (c & 0x3F));
    u[0] = (char)(n == 1 ? c : (0xF00u >> n & 0xFF) | c);
    lf_buf_add(b, u, n);
}

/* The same generator as big_docs() of make_forms.py: a walk over the hard texts, with characters of
 * many scripts between; calls of the generator give one document each. */
typedef struct walk {
    uint32_t x;
    json_t *texts;
    char **plain;
    size_t *len, n;
} walk;

static uint32_t draw(walk *w, uint32_t n)
{
    w->x = (w->x * 1103515245u + 12345u) & 0x7FFFFFFFu;
    return (w->x >> 12) % n;
}

static void document(walk *w, lf_buf *b)
{
    static const uint32_t scripts[][2] = {
        {0x61, 26},      {0x61, 26},       {0xC0, 0x180},    {0x370, 0x80},
        {0x400, 0x100},  {0x5D0, 27},      {0x621, 42},      {0x905, 0x70},
        {0xE01, 0x3A},   {0x3041, 0x56},   {0x30A1, 0x5A},   {0x4E00, 0x51A6},
        {0x4E00, 0x400}, {0xAC00, 0x2BA4}, {0x1F300, 0x300}, {0x300, 0x70}};
    lf_buf_clear(b);
    size_t want = 100 + draw(w, 1u << (6 + draw(w, 8)));
    while (b->len < want) {
        uint32_t kind = draw(w, 8);
        if (kind < 3) {
            size_t k = draw(w, (uint32_t)w->n);
            lf_buf_add(b, w->plain[k], w->len[k] < 60 ? w->len[k] : 0);
        } else {
            const uint32_t *s = scripts[draw(w, sizeof(scripts) / sizeof(scripts[0]))];
            for (uint32_t n = 1 + draw(w, 9); n > 0; n--)
                put(b, s[0] + draw(w, s[1]));
        }
        lf_buf_adds(b, kind == 7 ? "\n" : kind == 6 ? "" : " ");
    }
}

static void walk_open(walk *w, json_t *vectors)
{
    json_t *v;
    size_t i;
    w->x = 2026;
    w->texts = json_object_get(vectors, "texts");
    w->n = (size_t)json_integer_value(json_object_get(vectors, "n_walk"));
    w->plain = calloc(w->n, sizeof(*w->plain));
    w->len = calloc(w->n, sizeof(*w->len));
    json_array_foreach(w->texts, i, v)
    {
        if (i >= w->n)
            break;
        w->plain[i] = malloc(json_string_length(v) + 1);
        w->len[i] = vectors_unhex(w->plain[i], json_string_value(v));
    }
}

static void walk_close(walk *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->plain[i]);
    free(w->plain);
    free(w->len);
}

static void big(json_t *vectors, const char *name, const lf_tokenizer *t)
{
    lf_err err = LF_ERR_INIT;
    const json_t *want = json_object_get(json_object_get(vectors, "big"), name);
    lf_tok_state *s = lf_tok_state_create(t, &err);
    walk w;
    lf_buf doc;
    lf_buf_init(&doc);
    lf_ids ids = {0};
    walk_open(&w, vectors);
    uint64_t h = VECTORS_FNV;
    size_t bytes = 0, tokens = 0,
           limit = (size_t)json_integer_value(json_object_get(vectors, "big_bytes"));
    int rc = 0;
    while (bytes < limit && rc == 0) {
        document(&w, &doc);
        bytes += doc.len;
        ids.n = 0;
        rc = lf_tokenizer_encode(s, doc.data, doc.len, 0, &ids, NULL, &err);
        for (size_t i = 0; i < ids.n; i++)
            h = (h ^ ids.v[i]) * 0x100000001B3u;
        tokens += ids.n;
    }
    char hex[17];
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)h);
    tap_rc(rc, 0, &err, NULL, name);
    tap_i64((int64_t)tokens, json_integer_value(json_array_get(want, 0)),
            "tokens of the large text");
    tap_str(hex, json_string_value(json_array_get(want, 1)), "ids of the large text");
    walk_close(&w);
    lf_ids_fini(&ids);
    lf_buf_fini(&doc);
    lf_tok_state_destroy(s);
}

/* The same tokenizer through one block of bytes, as ranks get it. */
static void packed(const char *name, const char *path, const lf_tokenizer *t)
{
    lf_err err = LF_ERR_INIT;
    lf_tok_files f;
    lf_buf block;
    lf_buf_init(&block);
    int rc = lf_tok_files_read(&f, path, &err);
    if (rc == 0)
        rc = lf_tok_files_pack(&f, &block, &err);
    lf_tokenizer *u = rc == 0 ? lf_tokenizer_parse(block.data, block.len, path, &err) : NULL;
    tap_ok(u && strcmp(lf_tokenizer_sha256(u), lf_tokenizer_sha256(t)) == 0,
           "%s: the same through a block of bytes %s", name, err.text);
    lf_tokenizer_destroy(u);
    lf_buf_fini(&block);
    lf_tok_files_fini(&f);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    char path[8192];
    const char *name, *tmp = getenv("TMPDIR");
    json_t *row;
    snprintf(dir, sizeof(dir), "%s/lf-forms-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        tap_bail("no temporary directory");
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizer/forms.tar.xz", getenv("LF_SRCDIR"));
    unpack(path);
    snprintf(path, sizeof(path), "%s/vectors.json", dir);
    json_t *vectors = lf_json_load_file(path, (size_t)64 << 20, &err);
    if (!vectors)
        tap_bail("%s", err.text);
    json_object_foreach(json_object_get(vectors, "tokenizers"), name, row)
    {
        snprintf(path, sizeof(path), "%s/%s", dir, json_string_value(json_object_get(row, "path")));
        lf_tokenizer *t = lf_tokenizer_load(path, &err);
        tap_ok(t != NULL, "%s loads %s", name, t ? "" : err.text);
        if (!t)
            continue;
        TAP(7, vectors_check(vectors, name, t));
        TAP(3, big(vectors, name, t));
        TAP(1, packed(name, path, t));
        lf_tokenizer_destroy(t);
    }
    json_decref(vectors);
    (void)lf_io_remove_tree(dir, NULL);
    return tap_done();
}
