/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: what a good file says, and that each way in which a file can lie is refused by name.
 */
#include "engine/store/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "tests/tap/tap.h"

static const char *at(const char *name)
{
    static char path[8][4096];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", tap_tmpdir(), name);
    return p;
}

static void put(const char *name, const void *data, size_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_io_write_file(at(name), data, n, 0640, &err) < 0)
        tap_bail("%s", err.text);
}

static void make_dir(const char *name)
{
    lf_err err = LF_ERR_INIT;
    if (lf_io_mkdirs(at(name), 0750, &err) < 0)
        tap_bail("%s", err.text);
}

/* A file with this header, announced as `announced` bytes, and n_data bytes 0, 1, 2, ... after
 * it. */
static void put_st_len(const char *name, const char *header, size_t len, uint64_t announced,
                       size_t n_data)
{
    lf_buf b;
    lf_buf_init(&b);
    for (int i = 0; i < 8; i++)
        lf_buf_addc(&b, (char)(announced >> (8 * i) & 0xff));
    lf_buf_add(&b, header, len);
    for (size_t i = 0; i < n_data; i++)
        lf_buf_addc(&b, (char)i);
    put(name, b.data, b.len);
    lf_buf_fini(&b);
}

static void put_st(const char *name, const char *header, size_t n_data)
{
    put_st_len(name, header, strlen(header), strlen(header), n_data);
}

#define TWO                                                                                        \
    "{\"__metadata__\":{\"format\":\"pt\",\"a\\u0041\":\"\\u00e9\"},"                              \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[4,20]},"                           \
    "\"a \\\"q\\\"\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"                   \
    "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[20,20]},"                       \
    "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[20,21]}}   "

static void good(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    unsigned char got[16];
    put_st("good.safetensors", TWO, 21);
    tap_rc(lf_st_open(&s, at("good.safetensors"), &err), 0, &err, NULL, "a good file opens");
    if (!s)
        return;
    tap_i64((int64_t)lf_st_n_entries(s), 4, "tensors");
    tap_str(lf_st_entry_at(s, 0)->name, "a \"q\"",
            "order is that of the bytes, names are unescaped");
    tap_str(lf_st_meta(s, "format"), "pt", "metadata");
    tap_str(lf_st_meta(s, "aA"), "\xc3\xa9", "metadata with escapes");
    tap_ok(!lf_st_meta(s, "x"), "no such metadata");
    const lf_st_entry *e = lf_st_find(s, "b");
    tap_ok(e && e->dtype == LF_ST_F32 && e->ndim == 2 && e->shape[1] == 2 && e->bytes == 16,
           "type and shape");
    tap_rc(lf_st_read(s, e, 1, 2, got, &err), 0, &err, NULL, "a range");
    tap_mem(got, ((unsigned char[]){8, 9, 10, 11, 12, 13, 14, 15}), 8, "its bytes");
    tap_rc(lf_st_read(s, e, 3, 2, got, &err), LF_EINVAL, &err, "elements 3 to 5 of 4",
           "outside the tensor");
    tap_rc(lf_st_read(s, e, -1, 2, got, &err), LF_EINVAL, &err, "tensor b", "before the tensor");
    e = lf_st_find(s, "s");
    tap_ok(e && e->ndim == 0 && e->elems == 1, "a scalar has one element");
    e = lf_st_find(s, "none");
    tap_ok(e && e->elems == 0 && lf_st_read(s, e, 0, 0, got, &err) == 0, "an empty tensor");
    tap_ok(!lf_st_find(s, "c"), "no such tensor");
    lf_st_close(s);
    lf_st_close(NULL);
    s = NULL;
    put_st("empty.safetensors", "{}", 0);
    tap_rc(lf_st_open(&s, at("empty.safetensors"), &err), 0, &err, NULL, "a file without tensors");
    lf_st_close(s);
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"

static const struct {
    const char *name, *header;
    size_t n_data;
    int rc;
    const char *text;
} LIES[] = {
    {"overlap", "{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "4", "12") "}", 12,
     LF_EFORMAT, "tensor b overlaps a by 4"},
    {"same bytes twice", "{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "0", "8") "}",
     8, LF_EFORMAT, "overlaps"},
    {"hole", "{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12,
     LF_EFORMAT, "tensor b leaves a hole after a by 4"},
    {"hole at the start", "{" T("a", "F32", "[1]", "4", "8") "}", 8, LF_EFORMAT,
     "leaves a hole after the header"},
    {"bytes after the end", "{" T("a", "F32", "[1]", "0", "4") "}", 9, LF_EFORMAT,
     "5 bytes after the last tensor"},
    {"truncated", "{" T("a", "F32", "[2]", "0", "8") "}", 7, LF_EFORMAT,
     "tensor a: its bytes 0 to 8 do not lie in"},
    {"shape", "{" T("a", "F32", "[3]", "0", "8") "}", 8, LF_EFORMAT,
     "tensor a: its shape and dtype need 12"},
    {"dtype", "{" T("a", "F64", "[2]", "0", "8") "}", 8, LF_EFORMAT,
     "need 16 bytes, its data_offsets hold 8"},
    {"unknown dtype", "{" T("a", "F4", "[2]", "0", "1") "}", 1, LF_ENOTSUP,
     "tensor a: dtype \"F4\""},
    {"backwards", "{" T("a", "F32", "[1]", "4", "0") "}", 4, LF_EFORMAT,
     "tensor a: its bytes 4 to 0"},
    {"negative", "{" T("a", "F32", "[-1]", "0", "4") "}", 4, LF_EFORMAT,
     "dimension 0 of its shape"},
    {"real dimension", "{" T("a", "F32", "[1.0]", "0", "4") "}", 4, LF_EFORMAT,
     "dimension 0 of its shape"},
    {"product wraps to 0", "{" T("a", "U8", "[4294967296,4294967296]", "0", "0") "}", 0, LF_EFORMAT,
     "tensor a has a shape that no file can hold"},
    {"product wraps to 8", "{" T("a", "U8", "[2305843009213693953,8]", "0", "8") "}", 8, LF_EFORMAT,
     "no file can hold"},
    {"offset 2^63", "{" T("a", "U8", "[1]", "9223372036854775807", "9223372036854775808") "}", 8,
     LF_EFORMAT, "tensor a: \"data_offsets\" are not two numbers of bytes"},
    {"nine dimensions", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, LF_ENOTSUP,
     "tensor a has 9 dim"},
    {"twice", "{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "1", "2") "}", 2,
     LF_EFORMAT, "tensor a is there twice"},
    {"a member twice",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     LF_EFORMAT, "duplicate"},
    {"three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     LF_EFORMAT, "data_offsets"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, LF_EFORMAT,
     "tensor a has no \"data_offsets\""},
    {"another member", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
     LF_EFORMAT, "members other than"},
    {"not an object", "{\"a\":7}", 0, LF_EFORMAT, "a:1:1: "},
    {"a list of a tensor", "{\"a\":[7]}", 0, LF_EFORMAT, "tensor a is a list"},
    {"metadata number", "{\"__metadata__\":{\"a\":7}}", 0, LF_EFORMAT, "\"a\" is not a string"},
    {"metadata list", "{\"__metadata__\":[]}", 0, LF_EFORMAT, "__metadata__"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, LF_EFORMAT,
     "__metadata__ is there twice"},
    {"a list", "[1]", 0, LF_EFORMAT, "does not begin with '{'"},
    {"space first", " {}", 0, LF_EFORMAT, "does not begin with '{'"},
    {"text after the object", "{}x", 0, LF_EFORMAT, "the end expected"},
    {"comma at the end", "{" T("a", "U8", "[1]", "0", "1") ",}", 1, LF_EFORMAT,
     "a quoted name expected"},
    {"cut off", "{\"a\":{\"dtype\":\"U8\"", 0, LF_EFORMAT, "a value expected"},
    {"cut off in a string", "{\"a\\", 0, LF_EFORMAT, "a quoted name expected"},
    {"NUL in a name", "{" T("a\\u0000b", "U8", "[1]", "0", "1") "}", 1, LF_EFORMAT, "not a string"},
    {"lone surrogate", "{" T("\\ud800", "U8", "[1]", "0", "1") "}", 1, LF_EFORMAT, "not a string"},
    {"no name", "{" T("", "U8", "[1]", "0", "1") "}", 1, LF_EFORMAT, "name has 0 bytes"},
    {"not UTF-8", "{" T("\xff", "U8", "[1]", "0", "1") "}", 1, LF_EFORMAT,
     "byte 2 of the header is not UTF-8"},
};

static void lies(void)
{
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < sizeof LIES / sizeof *LIES; i++) {
        lf_st *s = NULL;
        put_st("lie.safetensors", LIES[i].header, LIES[i].n_data);
        int rc = lf_st_open(&s, at("lie.safetensors"), &err);
        bool named = strstr(err.text, "lie.safetensors") != NULL;
        tap_rc(rc, LIES[i].rc, &err, LIES[i].text, LIES[i].name);
        tap_ok(named && !s, "%s: the file is named, nothing is returned", LIES[i].name);
        lf_st_close(s);
    }
}

static void lengths(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const struct {
        uint64_t announced;
        const char *text;
    } V[] = {{(uint64_t)1 << 63, "9223372036854775808 bytes is announced, more than 100000000"},
             {UINT64_MAX, "18446744073709551615"},
             {100000001, "more than 100000000"},
             {100000000, "in a file of 10"},
             {3, "in a file of 10"},
             {1, "in a file of 10"},
             {0, "in a file of 10"}};
    for (size_t i = 0; i < sizeof V / sizeof *V; i++) {
        put_st_len("len.safetensors", "{}", 2, V[i].announced, 0);
        tap_rc(lf_st_open(&s, at("len.safetensors"), &err), LF_EFORMAT, &err, V[i].text,
               "a length that lies");
    }
    put("short.safetensors", "1234567", 7);
    tap_rc(lf_st_open(&s, at("short.safetensors"), &err), LF_EFORMAT, &err, "too few",
           "seven bytes");
    put("zero.safetensors", "", 0);
    tap_rc(lf_st_open(&s, at("zero.safetensors"), &err), LF_EFORMAT, &err, "too few", "no bytes");
    tap_rc(lf_st_open(&s, at("missing.safetensors"), &err), LF_ENOENT, &err, "missing.safetensors",
           "no file");
}

/* Brackets, a million deep and a million long: refused without the memory that parsing them would
 * take. */
static void bombs(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_adds(&b, "{\"a\":");
    for (int i = 0; i < 1000000; i++)
        lf_buf_addc(&b, '[');
    put_st_len("bomb.safetensors", b.data, b.len, b.len, 0);
    tap_rc(lf_st_open(&s, at("bomb.safetensors"), &err), LF_EFORMAT, &err, "a value expected",
           "a million '['");
    for (int i = 0; i < 1000000; i++)
        lf_buf_addc(&b, ']');
    lf_buf_addc(&b, '}');
    put_st_len("bomb.safetensors", b.data, b.len, b.len, 0);
    tap_rc(lf_st_open(&s, at("bomb.safetensors"), &err), LF_EFORMAT, &err,
           "is described by 2000000 bytes", "a million '[', closed");
    lf_buf_fini(&b);
}

/* ---- several files ---- */

#define INDEX(map) "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {" map "}}\n"

static void put_index(const char *dir, const char *text)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s", dir, LF_SAFETENSORS_INDEX);
    put(name, text, strlen(text));
}

static void sharded(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const struct {
        const char *map, *text;
        int rc;
    } V[] = {
        {INDEX("\"a\": \"1.safetensors\", \"b\": \"3.safetensors\""), "3.safetensors", LF_ENOENT},
        {INDEX("\"a\": \"1.safetensors\", \"b\": \"1.safetensors\""),
         "tensor b should be in 1.safetensors and is in no file", LF_EFORMAT},
        {INDEX("\"a\": \"2.safetensors\", \"b\": \"1.safetensors\""),
         "tensor a should be in 2.safetensors and is in", LF_EFORMAT},
        {INDEX("\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c\": \"2.safetensors\""),
         "tensor c should be in", LF_EFORMAT},
        {INDEX("\"a\": \"1.safetensors\", \"b\": \"two.safetensors\""),
         "has tensor c, which the index does not list", LF_EFORMAT},
        {INDEX("\"a\": \"1.safetensors\", \"a\": \"1.safetensors\""), "\"weight_map\" twice",
         LF_EFORMAT},
        {INDEX("\"a\": \"../m/1.safetensors\""), "is not the name of a file in this directory",
         LF_EINVAL},
        {INDEX("\"a\": \"/etc/passwd\""), "is not the name of a file", LF_EINVAL},
        {INDEX("\"a\": \"..\""), "is not the name of a file", LF_EINVAL},
        {INDEX("\"a\": \"link.safetensors\""), "symbolic link", LF_EINVAL},
        {INDEX("\"a\": \"up.safetensors\""), "symbolic link", LF_EINVAL},
        {INDEX("\"a\": \"fifo\""), "not a regular file", LF_EINVAL},
        {INDEX("\"a\": 1"), "\"a\" is not a string", LF_EFORMAT},
        {INDEX(""), "no \"weight_map\" that names", LF_EFORMAT},
        {"{}", "no \"weight_map\" that names", LF_EFORMAT},
        {"{\"weight_map\": []}", "weight_map", LF_EFORMAT},
        {"", "the JSON text ends", LF_EFORMAT},
    };
    make_dir("m");
    put_st("m/1.safetensors",
           "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[1]", "0", "4") "}", 4);
    put_st("m/2.safetensors", "{" T("b", "F32", "[1]", "0", "4") "}", 4);
    put_st("m/two.safetensors",
           "{" T("b", "U8", "[1]", "0", "1") "," T("c", "U8", "[1]", "1", "2") "}", 2);
    put_st("outside.safetensors", "{" T("a", "F32", "[1]", "0", "4") "}", 4);
    if (symlink("1.safetensors", at("m/link.safetensors")) < 0 ||
        symlink("../outside.safetensors", at("m/up.safetensors")) < 0 ||
        mkfifo(at("m/fifo"), 0600) < 0)
        tap_bail("cannot make links");
    tap_rc(lf_st_open(&s, at("m"), &err), LF_ENOENT, &err, "holds neither",
           "a directory without a model");
    for (size_t i = 0; i < sizeof V / sizeof *V; i++) {
        put_index("m", V[i].map);
        int rc = lf_st_open(&s, at("m"), &err);
        bool named = strstr(err.text, LF_SAFETENSORS_INDEX) != NULL;
        tap_rc(rc, V[i].rc, &err, V[i].text, V[i].map);
        tap_ok(named, "the index is named");
    }
    put_index("m", INDEX("\"b\": \"2.safetensors\", \"a\": \"1.safetensors\""));
    tap_rc(lf_st_open(&s, at("m"), &err), 0, &err, NULL, "two files");
    tap_i64(s ? (int64_t)lf_st_n_files(s) : 0, 2, "files");
    tap_str(s ? lf_st_meta(s, "format") : NULL, "pt", "metadata of the first");
    lf_st_close(s);
    s = NULL;
    tap_rc(lf_st_open(&s, at("m/" LF_SAFETENSORS_INDEX), &err), 0, &err, NULL, "the index by name");
    lf_st_close(s);
    s = NULL;
    put_st("m/" LF_SAFETENSORS_FILE, "{}", 0);
    tap_rc(lf_st_open(&s, at("m"), &err), LF_EINVAL, &err, "holds both", "one file and an index");
}

/* The layout of the hub's cache, and links that only look like it. */
static void cache(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    make_dir("hub/blobs");
    make_dir("hub/snapshots/rev");
    make_dir("hub/blobs/dir");
    put_st("hub/blobs/abc", "{" T("a", "F32", "[1]", "0", "4") "}", 4);
    put_st("hub/secret", "{" T("a", "F32", "[1]", "0", "4") "}", 4);
    const struct {
        const char *to, *text;
        int rc;
    } V[] = {{"../../blobs/abc", NULL, 0},
             {"../../blobs/../secret", "symbolic link", LF_EINVAL},
             {"../../blobs/..", "symbolic link", LF_EINVAL},
             {"../../secret", "symbolic link", LF_EINVAL},
             {"../../blobs/dir", "not a regular file", LF_EINVAL},
             {"../../blobs/gone", "cannot follow the link", LF_EIO},
             {"../../blobs/link", "cannot follow the link", LF_EIO}};
    if (symlink("../secret", at("hub/blobs/link")) < 0)
        tap_bail("cannot make a link");
    for (size_t i = 0; i < sizeof V / sizeof *V; i++) {
        const char *name = at("hub/snapshots/rev/" LF_SAFETENSORS_FILE);
        unlink(name);
        if (symlink(V[i].to, name) < 0)
            tap_bail("cannot make a link");
        tap_rc(lf_st_open(&s, at("hub/snapshots/rev"), &err), V[i].rc, &err, V[i].text, V[i].to);
        lf_st_close(s);
        s = NULL;
    }
}

static void nonfinite(void)
{
    const float f[5] = {1, __builtin_nanf(""), -__builtin_inff(), 0, 3e38f};
    const double d[3] = {__builtin_inf(), 1, -__builtin_nan("")};
    const uint16_t h[4] = {0x7BFF, 0x7C00, 0xFE01, 0}, b[4] = {0x7F7F, 0x7F80, 0xFFC0, 0x3F80};
    const uint8_t e4[3] = {0x7F, 0x7E, 0xFF}, e5[4] = {0x7C, 0x7B, 0xFE, 0};
    tap_i64(lf_st_count_nonfinite(LF_ST_F32, f, 5), 2, "NaN and infinity in F32");
    tap_i64(lf_st_count_nonfinite(LF_ST_F64, d, 3), 2, "F64");
    tap_i64(lf_st_count_nonfinite(LF_ST_F16, h, 4), 2, "F16");
    tap_i64(lf_st_count_nonfinite(LF_ST_BF16, b, 4), 2, "BF16");
    tap_i64(lf_st_count_nonfinite(LF_ST_F8_E4M3, e4, 3), 2, "F8_E4M3");
    tap_i64(lf_st_count_nonfinite(LF_ST_F8_E5M2, e5, 4), 2, "F8_E5M2");
    tap_i64(lf_st_count_nonfinite(LF_ST_I32, "\xff\xff\xff\xff", 1), 0, "integers have none");
}

int main(void)
{
    TAP(15, good());
    TAP(72, lies());
    TAP(10, lengths());
    TAP(2, bombs());
    TAP(40, sharded());
    TAP(7, cache());
    TAP(7, nonfinite());
    return tap_done();
}
