/* SPDX-License-Identifier: Apache-2.0
 *
 * Parquet files that no library writes: old forms of lists, and sizes, levels and places that
 * cannot be. A small writer makes them; what libraries write is held to pyarrow by
 * tests/golden/parquet_test.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/le.h"
#include "engine/text/corpus/rowjson.h"
#include "engine/text/parquet/parquet.h"
#include "tests/tap/tap.h"

/* ---- a writer ---- */

static lf_buf file;
static int last; /* number of the field before in the struct being written */

static void varint(uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        lf_buf_addc(&file, (char)(v | 0x80));
    lf_buf_addc(&file, (char)v);
}

static void zigzag(int64_t v)
{
    varint((uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

static void field(int id, int type)
{
    lf_buf_addc(&file, (char)((id - last) << 4 | type));
    last = id;
}

static void i32(int id, int64_t v)
{
    field(id, 5);
    zigzag(v);
}

static void i64(int id, int64_t v)
{
    field(id, 6);
    zigzag(v);
}

static void text(int id, const char *s, size_t n)
{
    field(id, 8);
    varint(n);
    lf_buf_add(&file, s, n);
}

static void list(int id, size_t n, int of)
{
    field(id, 9);
    lf_buf_addc(&file, (char)(0xF0 | of));
    varint(n);
}

static void stop(void)
{
    lf_buf_addc(&file, 0);
}

/* An element of a schema: children > 0: a group. */
struct elem {
    const char *name;
    int repetition, type, converted; /* converted -1: none */
    int children;
    size_t name_len; /* 0: of the text */
};

struct chunk {
    int type, codec;
    int64_t values, data, bytes;
    const char *elsewhere;
    bool encrypted;
};

static void put_elem(const struct elem *e)
{
    last = 0;
    if (!e->children)
        i32(1, e->type);
    i32(3, e->repetition);
    text(4, e->name, e->name_len ? e->name_len : strlen(e->name));
    if (e->children)
        i32(5, e->children);
    if (e->converted >= 0)
        i32(6, e->converted);
    stop();
}

static void put_chunk(const struct chunk *c)
{
    last = 0;
    if (c->elsewhere)
        text(1, c->elsewhere, strlen(c->elsewhere));
    field(3, 12);
    last = 0;
    i32(1, c->type);
    i32(4, c->codec);
    i64(5, c->values);
    i64(7, c->bytes);
    i64(9, c->data);
    stop();
    last = 3;
    if (c->encrypted)
        text(9, "x", 1);
    stop();
}

static void begin(void)
{
    lf_buf_clear(&file);
    lf_buf_adds(&file, "PAR1");
}

struct page {
    int kind, encoding; /* 0 data, 2 dictionary, 3 data v2 */
    int64_t values, unpacked;
    int levels; /* encoding of them */
    int def_bytes, rep_bytes;
    bool packed; /* v2 */
};

/* A page whose bytes are body; where it begins. */
static int64_t put_page(const struct page *p, const char *body, size_t n)
{
    int64_t at = (int64_t)file.len;
    last = 0;
    i32(1, p->kind);
    i32(2, p->unpacked ? p->unpacked : (int64_t)n);
    i32(3, (int64_t)n);
    field(p->kind == 0 ? 5 : p->kind == 2 ? 7 : 8, 12);
    last = 0;
    i32(1, p->values);
    if (p->kind == 3) {
        i32(2, 0);
        i32(3, p->values);
        i32(4, p->encoding);
        i32(5, p->def_bytes);
        i32(6, p->rep_bytes);
        field(7, p->packed ? 1 : 2);
    } else {
        i32(2, p->encoding);
        if (p->kind == 0) {
            i32(3, p->levels);
            i32(4, p->levels);
        }
    }
    stop();
    stop();
    lf_buf_add(&file, body, n);
    return at;
}

/* The footer, of one row group. */
static void finish(const struct elem *e, size_t n_elem, const struct chunk *c, size_t n_chunk,
                   int64_t rows)
{
    size_t at = file.len;
    uint8_t len[4];
    last = 0;
    i32(1, 1);
    list(2, n_elem, 12);
    for (size_t i = 0; i < n_elem; i++)
        put_elem(&e[i]);
    last = 2;
    i64(3, rows);
    list(4, 1, 12);
    last = 0;
    list(1, n_chunk, 12);
    for (size_t i = 0; i < n_chunk; i++)
        put_chunk(&c[i]);
    last = 1;
    i64(3, rows);
    stop();
    stop();
    lf_put_le(len, file.len - at, 4);
    lf_buf_add(&file, len, 4);
    lf_buf_adds(&file, "PAR1");
}

/* ---- reading ---- */

/* All rows as one JSON text, owned; NULL with err. */
static char *rows_with(const lf_parquet_opts *o, lf_err *err)
{
    static int fd = -1;
    char path[64];
    lf_parquet *p = NULL;
    lf_buf row;
    json_t *all = json_array();
    lf_buf_init(&row);
    *err = (lf_err)LF_ERR_INIT;
    if (fd < 0)
        fd = memfd_create("parquet", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, file.data, file.len, 0) != (ssize_t)file.len)
        tap_bail("cannot write to memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = lf_parquet_open(&p, path, o, err);
    while (rc == 0 && (rc = lf_parquet_next(p, &row, err)) == 1) {
        json_t *v = NULL;
        const lf_corpus_record r = {.raw = row.data, .len = row.len, .form = LF_RECORD_PACKED};
        rc = lf_row_json(&v, &r, LF_ROW_NUL, "row", NULL, err);
        json_array_append_new(all, v);
    }
    lf_parquet_close(p);
    lf_buf_fini(&row);
    char *out = rc == 0 ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return out;
}

static char *rows(lf_err *err)
{
    const lf_parquet_opts o = {.max_row_bytes = 1 << 20};
    return rows_with(&o, err);
}

static void is_rows(const char *want, const char *name)
{
    lf_err err;
    char *got = rows(&err);
    tap_str(got ? got : err.text, want, name);
    free(got);
}

static void is_refused(const char *words, const char *name)
{
    lf_err err;
    char *got = rows(&err);
    bool ok = !got && strstr(err.text, words);
    tap_ok(ok, "%s", name);
    if (!ok)
        tap_diag("'%s' lacks '%s'", got ? got : err.text, words);
    free(got);
}

enum { BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY };
enum { REQUIRED, OPTIONAL, REPEATED };
enum { UTF8 = 0, MAP = 1, LIST = 3 };
enum { PLAIN = 0, RLE = 3, BIT_PACKED = 4, DELTA = 5, DICT = 8 };

#define BYTES(s) s, sizeof(s) - 1

/* One column x of 32-bit integers, required, with one page. */
static const struct elem one_int[] = {{"root", 0, 0, -1, 1, 0}, {"x", REQUIRED, INT32, -1, 0, 0}};

static void int_file(const struct page *p, const char *body, size_t n)
{
    begin();
    int64_t at = put_page(p, body, n);
    const struct chunk c = {
        .type = INT32, .values = 2, .data = at, .bytes = (int64_t)file.len - at};
    finish(one_int, 2, &c, 1, 2);
}

/* ---- what is read ---- */

/* Elements of a list, each an int: levels and values of [[1, 2], [], [3]]. */
static void list_file(const struct elem *e, size_t n)
{
    static const char two[] = "\2\0\0\0\3\x02" /* reps 0 1 0 0 */
                              "\2\0\0\0\3\x0B" /* defs 1 1 0 1 */
                              "\1\0\0\0\2\0\0\0\3\0\0\0";
    begin();
    int64_t at = put_page(&(struct page){.values = 4, .levels = RLE}, BYTES(two));
    const struct chunk c = {
        .type = INT32, .values = 4, .data = at, .bytes = (int64_t)file.len - at};
    finish(e, n, &c, 1, 3);
}

static void old_lists(void)
{
    static const struct elem bare[] = {{"root", 0, 0, -1, 1, 0}, {"x", REPEATED, INT32, -1, 0, 0}};
    static const struct elem plain[] = {{"root", 0, 0, -1, 1, 0},
                                        {"x", REQUIRED, 0, LIST, 1, 0},
                                        {"element", REPEATED, INT32, -1, 0, 0}};
    static const struct elem array[] = {{"root", 0, 0, -1, 1, 0},
                                        {"x", REQUIRED, 0, LIST, 1, 0},
                                        {"array", REPEATED, 0, -1, 1, 0},
                                        {"v", REQUIRED, INT32, -1, 0, 0}};
    static const struct elem tuple[] = {{"root", 0, 0, -1, 1, 0},
                                        {"x", REQUIRED, 0, LIST, 1, 0},
                                        {"x_tuple", REPEATED, 0, -1, 1, 0},
                                        {"v", REQUIRED, INT32, -1, 0, 0}};
    static const struct elem bag[] = {{"root", 0, 0, -1, 1, 0},
                                      {"x", REQUIRED, 0, LIST, 1, 0},
                                      {"bag", REPEATED, 0, -1, 1, 0},
                                      {"v", REQUIRED, INT32, -1, 0, 0}};
    list_file(bare, 2);
    is_rows("[{\"x\":[1,2]},{\"x\":[]},{\"x\":[3]}]", "a repeated column outside of a list");
    list_file(plain, 3);
    is_rows("[{\"x\":[1,2]},{\"x\":[]},{\"x\":[3]}]", "a repeated value is the element");
    list_file(array, 4);
    is_rows("[{\"x\":[{\"v\":1},{\"v\":2}]},{\"x\":[]},{\"x\":[{\"v\":3}]}]",
            "a repeated group called array is the element");
    list_file(tuple, 4);
    is_rows("[{\"x\":[{\"v\":1},{\"v\":2}]},{\"x\":[]},{\"x\":[{\"v\":3}]}]",
            "so is one called like the list with _tuple");
    list_file(bag, 4);
    is_rows("[{\"x\":[1,2]},{\"x\":[]},{\"x\":[3]}]", "under another name it is a level");
}

/* Two texts by a dictionary; the page of indices is given. */
static void dict_file(const char *indices, size_t n, int dictionaries)
{
    static const struct elem e[] = {{"root", 0, 0, -1, 1, 0},
                                    {"t", REQUIRED, BYTE_ARRAY, UTF8, 0, 0}};
    begin();
    int64_t at = (int64_t)file.len;
    for (int i = 0; i < dictionaries; i++)
        put_page(&(struct page){.kind = 2, .values = 2}, BYTES("\1\0\0\0a\2\0\0\0bc"));
    put_page(&(struct page){.values = 3, .encoding = DICT, .levels = RLE}, indices, n);
    const struct chunk c = {
        .type = BYTE_ARRAY, .values = 3, .data = at, .bytes = (int64_t)file.len - at};
    finish(e, 2, &c, 1, 3);
}

static void dictionaries(void)
{
    dict_file(BYTES("\1\3\2"), 1);
    is_rows("[{\"t\":\"a\"},{\"t\":\"bc\"},{\"t\":\"a\"}]", "indices packed bit by bit");
    dict_file(BYTES("\2\3\4"), 1); /* 8 numbers of 2 bits in one byte of two */
    is_rows("[{\"t\":\"a\"},{\"t\":\"bc\"},{\"t\":\"a\"}]", "a last run that is cut short");
    dict_file(BYTES("\1\0\0\6\1"), 1);
    is_rows("[{\"t\":\"bc\"},{\"t\":\"bc\"},{\"t\":\"bc\"}]", "runs of no numbers are passed over");
    dict_file(BYTES("\2\6\2"), 1);
    is_refused("its values end too early or cannot be read", "an index behind the dictionary");
    dict_file(BYTES("\1\4\1"), 1);
    is_refused("its values end too early", "fewer indices than values");
    dict_file(BYTES("\x21\6\1"), 1);
    is_refused("its values end too early", "indices of 33 bits");
    dict_file(BYTES("\1\3\2"), 0);
    is_refused("it needs a dictionary, and the column has none", "no dictionary");
    dict_file(BYTES("\1\3\2"), 2);
    is_refused("has a second dictionary", "two dictionaries");
}

static void whole_numbers(void)
{
    int_file(&(struct page){.values = 2, .levels = RLE}, BYTES("\1\0\0\0\377\377\377\377"));
    is_rows("[{\"x\":1},{\"x\":-1}]", "plain");
    int_file(&(struct page){.kind = 3, .values = 2}, BYTES("\1\0\0\0\377\377\377\377"));
    is_rows("[{\"x\":1},{\"x\":-1}]", "a page v2 that says that it is not packed");
    /* blocks of 128 in 4: 2 numbers, the first 5, then + 3 in no bits */
    int_file(&(struct page){.values = 2, .encoding = DELTA, .levels = RLE},
             BYTES("\x80\1\4\2\12\6\0\0\0\0"));
    is_rows("[{\"x\":5},{\"x\":8}]", "differences of no bits");
    int_file(&(struct page){.values = 2, .encoding = DELTA, .levels = RLE},
             BYTES("\x80\1\4\3\12\6\0\0\0\0"));
    is_refused("its values end too early or cannot be read", "more numbers than the page has");
    int_file(&(struct page){.values = 2, .encoding = DELTA, .levels = RLE},
             BYTES("\x80\1\3\2\12\6\0\0\0\0"));
    is_refused("its values end too early or cannot be read", "blocks that are not divided evenly");
    int_file(&(struct page){.values = 2, .encoding = DELTA, .levels = RLE},
             BYTES("\x80\1\4\2\12\6\x41\0\0\0"));
    is_refused("its values end too early or cannot be read", "differences of 65 bits");
    int_file(&(struct page){.values = 2, .encoding = 6, .levels = RLE}, BYTES("\0\0\0\0"));
    is_refused("encoding number 6 of a column of this type", "an encoding of texts");
}

/* ---- sizes ---- */

static void sizes(void)
{
    const char *body = "12345678";
    int_file(&(struct page){.values = 2, .unpacked = 0x40000001, .levels = RLE}, body, 8);
    is_refused("page at byte 4: it unpacks to 1073741825 bytes, of at most 1073741824",
               "a page above the bound");
    int_file(&(struct page){.values = 2, .unpacked = 9, .levels = RLE}, body, 8);
    is_refused("8 bytes cannot be 9 unpacked ones", "an unpacked page that says it has more");
    begin();
    int64_t at =
        put_page(&(struct page){.values = 2, .unpacked = 900000000, .levels = RLE}, body, 8);
    struct chunk c = {
        .type = INT32, .values = 2, .data = at, .bytes = (int64_t)file.len - at, .codec = 2};
    size_t pages = file.len;
    finish(one_int, 2, &c, 1, 2);
#ifdef HAVE_ZLIB
    is_refused("8 bytes cannot be 900000000 unpacked ones", "more than a codec can pack");
#else
    is_refused("which this build cannot unpack; build with zlib1g-dev", "a codec that is missing");
#endif
    file.len = pages;
    c.codec = 0;
    c.bytes += 1000000;
    finish(one_int, 2, &c, 1, 2);
    is_refused("are not all between the file's begin and its footer", "a column behind the file");
    file.len = pages;
    c.bytes = INT64_MAX;
    finish(one_int, 2, &c, 1, 2);
    is_refused("are not all between the file's begin and its footer", "one of 2^63 bytes");
    int_file(&(struct page){.values = INT32_MAX, .levels = RLE}, body, 8);
    is_refused("it has 2147483647 entries, the column has 2 left", "more entries than the column");
    int_file(&(struct page){.values = 1, .levels = RLE}, body, 8);
    is_refused("the column ends with 1 entries missing", "fewer of them");
    int_file(&(struct page){.kind = 3, .values = 2, .def_bytes = 9}, body, 8);
    is_refused("8 bytes cannot be 8 unpacked ones", "levels longer than their page");
    int_file(&(struct page){.kind = 9, .values = 2}, body, 8);
    is_refused("its kind, number 9, is not known", "a page of an unknown kind");
}

/* Some column chunk of an otherwise good file. */
static void chunk_is(struct chunk c, int64_t rows_said, const char *words, const char *name)
{
    begin();
    int64_t at = put_page(&(struct page){.values = 2, .levels = RLE}, "12345678", 8);
    c.data = at;
    c.bytes = (int64_t)file.len - at;
    finish(one_int, 2, &c, 1, rows_said);
    is_refused(words, name);
}

static void chunks(void)
{
    chunk_is((struct chunk){.type = INT64, .values = 2}, 2, "its type is not that of the schema",
             "a chunk of another type");
    chunk_is((struct chunk){.type = INT32, .codec = 3, .values = 2}, 2,
             "column x is compressed by lzo, which is not read; convert: duckdb", "lzo");
    chunk_is((struct chunk){.type = INT32, .codec = 77, .values = 2}, 2,
             "codec number 77 is not known", "a codec of the future");
    chunk_is((struct chunk){.type = INT32, .values = 2, .elsewhere = "other.parquet"}, 2,
             "lies in another file", "a column in another file");
    chunk_is((struct chunk){.type = INT32, .values = 2, .encrypted = true}, 2,
             "the column is encrypted", "an encrypted column");
    chunk_is((struct chunk){.type = INT32, .values = 2}, 3,
             "the column has fewer rows than its row group", "fewer rows than the row group says");
    chunk_is((struct chunk){.type = INT32, .values = 2}, 1,
             "the column has more rows than its row group", "more of them");
}

static void levels(void)
{
    static const struct elem e[] = {{"root", 0, 0, -1, 1, 0}, {"x", OPTIONAL, INT32, -1, 0, 0}};
    const struct page p = {.values = 2, .levels = RLE};
    struct page packed = p;
    struct chunk c = {.type = INT32, .values = 2};
    packed.levels = BIT_PACKED;
    static const struct {
        const char *body;
        size_t n;
        const char *words, *name;
    } v[] = {{BYTES("\2\0\0\0\4\2ABCD"), "its levels end too early", "a run above its width"},
             {BYTES("\2\0\0\0\2\1ABCDEFGH"), "its levels end too early", "one level of two"},
             {BYTES("\377\377\377\177\4\1ABCDEFGH"), "its levels end too early",
              "levels longer than the page"},
             {BYTES("\2\0\0"), "its levels end too early", "a page too short for their length"},
             {BYTES("\2\0\0\0\4\1ABCD"), "its values end too early", "one value of two"}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        begin();
        c.data = put_page(&p, v[i].body, v[i].n);
        c.bytes = (int64_t)file.len - c.data;
        finish(e, 2, &c, 1, 2);
        is_refused(v[i].words, v[i].name);
    }
    begin();
    c.data = put_page(&packed, BYTES("\1ABCDEFGH"));
    c.bytes = (int64_t)file.len - c.data;
    finish(e, 2, &c, 1, 2);
    is_refused("levels of encoding number 4 are not read", "levels of the old encoding");
}

/* ---- schemas ---- */

static void schema_is(const struct elem *e, size_t n, const char *words, const char *name)
{
    const struct chunk c = {.type = INT32, .values = 0, .data = 4, .bytes = 0};
    begin();
    finish(e, n, &c, 1, 0);
    is_refused(words, name);
}

static void schemas(void)
{
    enum { MANY = 8193, DEEP = 34 };
    struct elem *e = calloc(MANY + 1, sizeof *e);
    if (!e)
        tap_bail("no memory");
    static const struct elem twice[] = {{"root", 0, 0, -1, 2, 0},
                                        {"x", REQUIRED, INT32, -1, 0, 0},
                                        {"x", REQUIRED, INT32, -1, 0, 0}};
    static const struct elem map[] = {{"root", 0, 0, -1, 1, 0},
                                      {"m", OPTIONAL, 0, MAP, 1, 0},
                                      {"key_value", REPEATED, 0, -1, 2, 0},
                                      {"key", REQUIRED, BYTE_ARRAY, UTF8, 0, 0},
                                      {"value", OPTIONAL, INT32, -1, 0, 0}};
    static const struct elem hollow[] = {{"root", 0, 0, -1, 1, 0}, {"x", REQUIRED, 0, LIST, 1, 0}};
    static const struct elem more[] = {{"root", 0, 0, -1, 1, 0},
                                       {"x", REQUIRED, INT32, -1, 0, 0},
                                       {"y", REQUIRED, INT32, -1, 0, 0}};
    static const struct elem nul[] = {{"root", 0, 0, -1, 1, 0},
                                      {"a\0b", REQUIRED, INT32, -1, 0, 3}};
    schema_is(twice, 3, "column x: there are two of this name", "two columns of one name");
    schema_is(map, 5, "column m is map, which a row of text has no place for", "a map");
    schema_is(hollow, 2, "it is a list without a repeated member", "a list of nothing");
    schema_is(more, 3, "elements that belong to no column", "columns beside the root");
    schema_is(nul, 2, "the name of a column is no text", "a name with a NUL");
    schema_is(one_int, 1, "its schema ends too early", "a schema that is cut");
    for (int i = 0; i < DEEP; i++)
        e[i] = (struct elem){"g", REQUIRED, 0, -1, 1, 0};
    e[DEEP] = (struct elem){"x", REQUIRED, INT32, -1, 0, 0};
    schema_is(e, DEEP + 1, "is nested deeper than 32 levels", "34 levels");
    e[0] = (struct elem){"root", 0, 0, -1, 8192, 0};
    for (int i = 1; i < MANY; i++)
        e[i] = (struct elem){"x", REQUIRED, INT32, -1, 0, 0};
    schema_is(e, MANY, "its schema has 8193 columns and groups, of at most 8192", "8192 columns");
    free(e);
    begin();
    last = 0;
    list(2, (size_t)1 << 40, 12);
    uint8_t len[4];
    lf_put_le(len, file.len - 4, 4);
    lf_buf_add(&file, len, 4);
    lf_buf_adds(&file, "PAR1");
    is_refused("its footer is damaged: it ends too early", "a list of 2^40 in eight bytes");
}

/* ---- what is asked for ---- */

static void choices(void)
{
    static const struct elem e[] = {{"root", 0, 0, -1, 2, 0},
                                    {"raw", REQUIRED, BYTE_ARRAY, -1, 0, 0},
                                    {"t", REQUIRED, BYTE_ARRAY, UTF8, 0, 0}};
    static const char *const want[] = {"t", "other"}, *const none[] = {"other"};
    lf_parquet_opts o = {.max_row_bytes = 1 << 20, .columns = want, .n_columns = 2};
    struct chunk c[2] = {{.type = BYTE_ARRAY, .values = 1}, {.type = BYTE_ARRAY, .values = 1}};
    lf_err err;
    begin();
    for (int i = 0; i < 2; i++) {
        c[i].data = put_page(&(struct page){.values = 1, .levels = RLE}, BYTES("\3\0\0\0abc"));
        c[i].bytes = (int64_t)file.len - c[i].data;
    }
    finish(e, 3, c, 2, 1);
    is_refused("column raw is binary, which a row of text has no place for; leave it out or cast "
               "it; the columns are raw, t",
               "bytes that are no text");
    char *got = rows_with(&o, &err);
    tap_str(got ? got : err.text, "[{\"t\":\"abc\"}]", "unless they are not asked for");
    free(got);
    o.columns = none;
    o.n_columns = 1;
    got = rows_with(&o, &err);
    tap_ok(!got && err.rc == LF_ENOENT &&
               strstr(err.text, "it has no column other; its columns are raw, t"),
           "no column that is asked for");
    o = (lf_parquet_opts){
        .max_row_bytes = 2, .columns = want, .n_columns = 1, .raise = "max_doc_bytes"};
    got = rows_with(&o, &err);
    tap_ok(!got && err.rc == LF_EINVAL &&
               strstr(err.text, "is longer than 2 bytes; raise max_doc_bytes"),
           "a row that is too long: %s", err.text);
}

int main(void)
{
    lf_buf_init(&file);
    TAP(5, old_lists());
    TAP(8, dictionaries());
    TAP(7, whole_numbers());
    TAP(9, sizes());
    TAP(7, chunks());
    TAP(6, levels());
    TAP(9, schemas());
    TAP(4, choices());
    lf_buf_fini(&file);
    return tap_done();
}
