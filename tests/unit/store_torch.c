/* SPDX-License-Identifier: Apache-2.0
 *
 * Torch files: tensors are those that PyTorch saved, whatever their strides; files that lie or
 * would run something are refused with file, instruction and global. Files:
 * tests/golden/store/make_torch.py.
 */
#include "engine/store/torch_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/store/safetensors.h"
#include "engine/store/torch_pickle.h"
#include "tests/tap/tap.h"

static const char *golden(const char *name)
{
    static char path[4][4096];
    static int turn;
    char *p = path[turn++ % 4];
    const char *src = getenv("LF_SRCDIR");
    snprintf(p, sizeof path[0], "%s/tests/golden/store/torch/%s", src ? src : ".", name);
    return p;
}

/* Every range of the tensor reads as those bytes of the whole. */
static bool ranges_agree(const lf_st *s, const lf_st_entry *e, const unsigned char *whole)
{
    unsigned char part[4096];
    size_t elem = lf_st_dtype_bytes(e->dtype);
    lf_err err = LF_ERR_INIT;
    for (int64_t lo = 0; lo <= e->elems; lo += 1 + e->elems / 9)
        for (int64_t hi = lo; hi <= e->elems; hi += 1 + e->elems / 7)
            if (lf_st_read(s, e, lo, hi - lo, part, &err) < 0 ||
                memcmp(part, whole + (size_t)lo * elem, (size_t)(hi - lo) * elem) != 0)
                return false;
    return true;
}

static void same_tensors(const lf_st *s, const lf_st *want, size_t n_missing)
{
    size_t missing = 0;
    for (size_t i = 0; i < lf_st_n_entries(want); i++) {
        const lf_st_entry *w = lf_st_entry_at(want, i), *e = lf_st_find(s, w->name);
        unsigned char a[4096], b[4096];
        lf_err err = LF_ERR_INIT;
        if (!e) {
            missing++;
            continue;
        }
        bool like = e->dtype == w->dtype && e->ndim == w->ndim &&
                    memcmp(e->shape, w->shape, sizeof e->shape) == 0;
        tap_ok(like, "%s: type and shape", w->name);
        if (!like || lf_st_read(s, e, 0, e->elems, a, &err) < 0 ||
            lf_st_read(want, w, 0, w->elems, b, &err) < 0)
            tap_ok(false, "%s: %s", w->name, err.text);
        else
            tap_mem(a, b, (size_t)w->bytes, w->name);
        tap_ok(ranges_agree(s, e, b), "%s: ranges", w->name);
    }
    tap_i64((int64_t)missing, (int64_t)n_missing, "tensors that the file cannot have");
    tap_i64((int64_t)lf_st_n_entries(s), (int64_t)(lf_st_n_entries(want) - missing),
            "and no others");
}

static void good(const char *name, size_t n_missing)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL, *want = NULL;
    tap_rc(lf_torch_open(&s, golden(name), &err), 0, &err, NULL, name);
    tap_rc(lf_st_open(&want, golden("expected.safetensors"), &err), 0, &err, NULL,
           "what it should hold");
    if (!s || !want)
        return;
    same_tensors(s, want, n_missing);
    const lf_st_entry *a = lf_st_find(s, "embed"), *b = lf_st_find(s, "head");
    tap_ok(a && b && a->alias_of < 0 && b->alias_of >= 0 &&
               lf_st_entry_at(s, (size_t)b->alias_of) == a,
           "tied weights are aliases");
    a = lf_st_find(s, "t");
    tap_ok(a && a->offset == -1 && a->alias_of < 0, "a transposed view is not one run of bytes");
    a = lf_st_find(s, "view");
    tap_ok(a && a->offset > 0, "a contiguous view is one");
    tap_str(lf_st_meta(s, LF_TORCH_META_OTHER), "step_count, note", "what is no tensor is told");
    lf_st_close(s);
    lf_st_close(want);
}

static void more(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    tap_rc(lf_torch_open(&s, golden("protocol4.bin"), &err), 0, &err, NULL,
           "pickle protocol 4, Namespace, Size, dtype");
    tap_i64(s ? (int64_t)lf_st_n_entries(s) : 0, 1, "one tensor");
    lf_st_close(s);
    s = NULL;
    tap_rc(lf_torch_open(&s, golden("sharded"), &err), 0, &err, NULL, "two files and an index");
    tap_i64(s ? (int64_t)lf_st_n_files(s) : 0, 2, "files");
    tap_i64(s ? (int64_t)lf_st_n_entries(s) : 0, 3, "tensors");
    lf_st_close(s);
    s = NULL;
    tap_rc(lf_torch_open(&s, tap_tmpdir(), &err), LF_ENOENT, &err, "neither pytorch_model.bin nor",
           "nothing there");
}

static const struct {
    const char *name;
    int rc;
    const char *text;
} BAD[] = {
    {"os-system", LF_EFORMAT, "byte 2, GLOBAL (0x63): names the global os.system"},
    {"posix-system", LF_EFORMAT, "names the global posix.system"},
    {"eval", LF_EFORMAT, "byte 10, GLOBAL (0x63): names the global builtins.eval"},
    {"getattr", LF_EFORMAT, "names the global __builtin__.getattr"},
    {"stack-global", LF_EFORMAT, "byte 20, STACK_GLOBAL (0x93): names the global os.system"},
    {"torch-load", LF_EFORMAT, "names the global torch.load"},
    {"inst", LF_ENOTSUP, "INST (0x69)"},
    {"obj", LF_ENOTSUP, "OBJ (0x6f)"},
    {"ext", LF_ENOTSUP, "EXT1 (0x82)"},
    {"persid", LF_ENOTSUP, "PERSID (0x50)"},
    {"unknown-op", LF_ENOTSUP, "byte 2, no instruction (0xff)"},
    {"protocol-9", LF_ENOTSUP, "protocol 9"},
    {"call-storage", LF_EFORMAT, "REDUCE (0x52): torch.FloatStorage is called"},
    {"call-string", LF_EFORMAT, "something that is not a global is called"},
    {"no-stop", LF_EFORMAT, "3 bytes of pickle without STOP"},
    {"no-object", LF_EFORMAT, "STOP (0x2e): needs 1 values"},
    {"underflow", LF_EFORMAT, "REDUCE (0x52): needs 2 values"},
    {"mark-taken", LF_EFORMAT, "TUPLE1 (0x85): needs 1 values"},
    {"no-mark", LF_EFORMAT, "TUPLE (0x74): there is no mark"},
    {"memo-missing", LF_EFORMAT, "memo entry 7 was never made"},
    {"memo-far", LF_EFORMAT, "LONG_BINPUT (0x72): memo entry 4294967295 after 3 bytes"},
    {"string-end", LF_EFORMAT, "BINUNICODE (0x58): the text ends here"},
    {"string-8", LF_EFORMAT, "BINUNICODE8 (0x8d): the text ends here"},
    {"not-utf8", LF_EFORMAT, "a string that is not UTF-8"},
    {"deep", LF_EFORMAT, "objects nested deeper than 32"},
    {"laughs", LF_EFORMAT, "(a memo bomb?)"},
    {"itself", LF_EFORMAT, "objects nested deeper than 32"},
    {"key-tuple", LF_EFORMAT, "neither text nor number"},
    {"key-twice", LF_EFORMAT, "tensor w is there twice"},
    {"list", LF_EFORMAT, "its top object is no dictionary"},
    {"no-tensor", LF_EFORMAT, "holds no tensor"},
    {"beyond-storage", LF_EFORMAT, "reaches beyond its storage of 4 elements"},
    {"stride-beyond", LF_EFORMAT, "reaches beyond its storage of 4 elements"},
    {"stride-wraps", LF_EFORMAT, "reaches beyond its storage"},
    {"negative-shape", LF_EFORMAT, "shape is not made of numbers from 0"},
    {"negative-stride", LF_EFORMAT, "strides is not made of numbers from 0"},
    {"strides", LF_EFORMAT, "2 dimensions and 1 strides"},
    {"nine-dims", LF_ENOTSUP, "9 dimensions"},
    {"complex", LF_EFORMAT, "names the global torch.ComplexFloatStorage"},
    {"storage-short", LF_EFORMAT, "storage 0 should have 16 bytes and its record has 15"},
    {"storage-missing", LF_EFORMAT, "storage 0 has no record"},
    {"storage-negative", LF_EFORMAT, "BINPERSID (0x51): a persistent id"},
    {"storage-huge", LF_EFORMAT, "BINPERSID (0x51): a persistent id"},
    {"storage-two-types", LF_EFORMAT, "storage 0 is named with two lengths or types"},
    {"pid", LF_EFORMAT, "BINPERSID (0x51): a persistent id"},
    {"overlap", LF_EFORMAT, "storages 0 and 1 overlap"},
    {"big-endian", LF_ENOTSUP, "big-endian"},
    {"compressed", LF_ENOTSUP, "is compressed"},
    {"dot-dot", LF_EFORMAT, "\"archive/../../evil\" is named outside of its archive"},
    {"absolute", LF_EFORMAT, "\"/etc/evil\" is named outside"},
    {"link", LF_EFORMAT, "\"archive/data/1\" is a symbolic link"},
    {"two-objects", LF_EFORMAT, "two records are called data.pkl"},
    {"no-objects", LF_EFORMAT, "without data.pkl"},
    {"truncated", LF_EFORMAT, "without its directory (truncated?)"},
    {"cut", LF_EFORMAT, "without its directory (truncated?)"},
    {"crc", LF_EFORMAT, "do not match their CRC"},
    {"local-header", LF_EFORMAT, "\"archive/data/0\" is not where the zip directory says"},
    {"not-torch", LF_EFORMAT, "is no file of torch.save"},
    {"tar", LF_ENOTSUP, "tar archive"},
    {"legacy-system", LF_EFORMAT, "names the global os.system"},
    {"legacy-big-endian", LF_ENOTSUP, "big-endian"},
    {"legacy-protocol", LF_ENOTSUP, "protocol 1000"},
    {"legacy-truncated", LF_EFORMAT, "ends inside of storage 0"},
    {"legacy-count", LF_EFORMAT, "should have 4 elements and has 5"},
    {"legacy-count-huge", LF_EFORMAT, "should have 4 elements and has 9223372036854775808"},
    {"legacy-no-bytes", LF_EFORMAT, "storage 0 has no bytes"},
    {"legacy-view", LF_ENOTSUP, "storage 0 is a view of another"},
    {"legacy-unused", LF_EFORMAT, "storage number 1 of its list is used by no tensor"},
    {"legacy-magic", LF_EFORMAT, "not one that torch.save wrote"},
};

static void bad(void)
{
    size_t files = 0;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        lf_err err = LF_ERR_INIT;
        lf_st *s = NULL;
        char name[128];
        snprintf(name, sizeof name, "bad-%s.bin", BAD[i].name);
        int rc = lf_torch_open(&s, golden(name), &err);
        bool named = strstr(err.text, name) != NULL;
        tap_rc(rc, BAD[i].rc, &err, BAD[i].text, BAD[i].name);
        tap_ok(named && !s, "%s: the file is named", BAD[i].name);
        lf_st_close(s);
    }
    DIR *d = opendir(golden(""));
    for (struct dirent *e; d && (e = readdir(d));)
        files += lf_str_has_prefix(e->d_name, "bad-");
    if (d)
        closedir(d);
    tap_i64((int64_t)(sizeof BAD / sizeof *BAD), (int64_t)files, "every bad file is asked about");
}

/* Each prefix of a good file is refused (a few are whole pickles, none is a whole file). */
static void prefixes(const char *name)
{
    lf_buf b;
    lf_err err = LF_ERR_INIT;
    char path[4096];
    size_t opened = 0;
    lf_buf_init(&b);
    if (lf_io_read_file(golden(name), 1 << 20, &b, &err) < 0)
        tap_bail("%s", err.text);
    snprintf(path, sizeof path, "%s/prefix.bin", tap_tmpdir());
    for (size_t n = 0; n < b.len; n += n < 3000 ? 7 : 97) {
        lf_st *s = NULL;
        if (lf_io_write_file(path, b.data, n, 0640, &err) < 0)
            tap_bail("%s", err.text);
        opened += lf_torch_open(&s, path, &err) == 0;
        lf_err_clear(&err);
        lf_st_close(s);
    }
    tap_i64((int64_t)opened, 0, "no prefix of a good file opens");
    lf_buf_fini(&b);
}

/* A file longer than 4 GiB (sparse): sizes and places stand in zip64 fields, as torch.save writes
 * them. */
static void put_u(lf_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        lf_buf_addc(b, (char)(v >> (8 * i) & 0xff));
}

static void zip64(void)
{
    static const char pkl[] = "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(("
                              "X\7\0\0\0storagectorch\nByteStorage\n"
                              "X\1\0\0\0"
                              "0X\3\0\0\0cpu\x8a\x08\0\0\0\0\2\0\0\0tQ\x8a\x08\xfc\xff\xff\xff\1\0"
                              "\0\0(K\4t(K\1t\x89}tRs.";
    const uint64_t big = (uint64_t)2 << 32;
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    char path[4096];
    lf_st *s = NULL;
    unsigned char got[4] = {9, 9, 9, 9};
    lf_buf_init(&b);
    snprintf(path, sizeof path, "%s/zip64.bin", tap_tmpdir());
    FILE *f = fopen(path, "w");
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < sizeof pkl - 1; i++) {
        crc ^= (unsigned char)pkl[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    crc = ~crc;
    /* record 0: a/data/0, 8 GiB; record 1: a/data.pkl behind it */
    lf_buf_add(&b, "PK\3\4\55\0\0\0\0\0\0\0\0\0\0\0\0\0", 18);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 8, 2);
    put_u(&b, 20, 2);
    lf_buf_adds(&b, "a/data/0");
    put_u(&b, 1, 2);
    put_u(&b, 16, 2);
    put_u(&b, big, 8);
    put_u(&b, big, 8);
    uint64_t data = b.len, second = data + big;
    fwrite(b.data, 1, b.len, f);
    fseeko(f, (off_t)(second - 4), SEEK_SET);
    fwrite("\1\2\3\4", 1, 4, f);
    lf_buf_clear(&b);
    lf_buf_add(&b, "PK\3\4\12\0\0\0\0\0\0\0\0\0", 14);
    put_u(&b, crc, 4);
    put_u(&b, sizeof pkl - 1, 4);
    put_u(&b, sizeof pkl - 1, 4);
    put_u(&b, 10, 2);
    put_u(&b, 0, 2);
    lf_buf_adds(&b, "a/data.pkl");
    lf_buf_add(&b, pkl, sizeof pkl - 1);
    uint64_t dir = second + b.len, from = b.len;
    lf_buf_add(&b, "PK\1\2\55\0\55\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 8, 2);
    put_u(&b, 20, 2);
    lf_buf_add(&b, "\0\0\0\0\0\0\0\0\0\0", 10);
    put_u(&b, 0, 4);
    lf_buf_adds(&b, "a/data/0");
    put_u(&b, 1, 2);
    put_u(&b, 16, 2);
    put_u(&b, big, 8);
    put_u(&b, big, 8);
    lf_buf_add(&b, "PK\1\2\55\0\55\0\0\0\0\0\0\0\0\0", 16);
    put_u(&b, crc, 4);
    put_u(&b, sizeof pkl - 1, 4);
    put_u(&b, sizeof pkl - 1, 4);
    put_u(&b, 10, 2);
    put_u(&b, 12, 2);
    lf_buf_add(&b, "\0\0\0\0\0\0\0\0\0\0", 10);
    put_u(&b, 0xFFFFFFFF, 4);
    lf_buf_adds(&b, "a/data.pkl");
    put_u(&b, 1, 2);
    put_u(&b, 8, 2);
    put_u(&b, second, 8);
    uint64_t dir_bytes = b.len - from, end64 = dir + dir_bytes;
    lf_buf_add(&b, "PK\6\6", 4);
    put_u(&b, 44, 8);
    put_u(&b, 0, 8);
    put_u(&b, 0, 4);
    put_u(&b, 2, 8);
    put_u(&b, 2, 8);
    put_u(&b, dir_bytes, 8);
    put_u(&b, dir, 8);
    lf_buf_add(&b, "PK\6\7\0\0\0\0", 8);
    put_u(&b, end64, 8);
    put_u(&b, 1, 4);
    lf_buf_add(&b, "PK\5\6\0\0\0\0\2\0\2\0", 12);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 0xFFFFFFFF, 4);
    put_u(&b, 0, 2);
    bool written = fwrite(b.data, 1, b.len, f) == b.len;
    if (fclose(f) != 0 || !written) {
        tap_skip(2, "no sparse file of 8 GiB can be made here");
    } else {
        tap_rc(lf_torch_open(&s, path, &err), 0, &err, NULL, "8 GiB in zip64 fields");
        const lf_st_entry *e = s ? lf_st_find(s, "w") : NULL;
        tap_ok(e && lf_st_read(s, e, 0, 4, got, &err) == 0 && memcmp(got, "\1\2\3\4", 4) == 0,
               "bytes beyond 8 GiB");
        lf_st_close(s);
    }
    unlink(path);
    lf_buf_fini(&b);
}

/* Values are counted: a text of nothing but empty lists ends at the limit, not at the end of
 * memory. */
static void memory(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_pickle *p = NULL;
    lf_buf_init(&b);
    for (int i = 0; i < 10000000; i++)
        lf_buf_addc(&b, ']');
    tap_rc(lf_pickle_load(&p, b.data, b.len, NULL, "lists", &err), LF_EFORMAT, &err,
           "values on the stack", "a high stack");
    for (size_t i = 0; i < b.len; i += 2)
        b.data[i] = '0';
    b.data[0] = '}';
    b.data[b.len - 1] = '.';
    tap_rc(lf_pickle_load(&p, b.data, b.len, NULL, "lists", &err), LF_EFORMAT, &err,
           "its values take more than", "lists");
    lf_buf_clear(&b);
    lf_buf_adds(&b, "}.rest");
    size_t used = 0;
    tap_rc(lf_pickle_load(&p, b.data, b.len, &used, "x", &err), 0, &err, NULL,
           "bytes after STOP are not looked at");
    tap_i64((int64_t)used, 2, "they are counted");
    lf_pickle_destroy(p);
    lf_pickle_destroy(NULL);
    lf_buf_fini(&b);
}

int main(void)
{
    TAP(101, good("good.bin", 0));
    TAP(86, good("legacy.bin", 5));
    TAP(6, more());
    TAP(139, bad());
    TAP(1, prefixes("good.bin"));
    TAP(1, prefixes("legacy.bin"));
    TAP(2, zip64());
    TAP(4, memory());
    return tap_done();
}
