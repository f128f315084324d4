/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron indexed datasets that lie: each is one clear error. Writing: what does not fit, what is
 * not finished.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/store/megatron_data.h"
#include "engine/store/megatron_priv.h"
#include "tests/tap/tap.h"

static char base[4000];

static const char *at(const char *name)
{
    static char p[4100];
    snprintf(p, sizeof p, "%s/%s", tap_tmpdir(), name);
    return p;
}

/* Three sequences of 3, 0 and 2 tokens in two documents. */
static void write_good(const char *name, enum lf_megatron_dtype t, bool modes)
{
    static const uint32_t ids[] = {5, 6, 7, 100, 127};
    lf_err err = LF_ERR_INIT;
    lf_megatron_writer *w;
    if (lf_megatron_create(&w, at(name), t, modes, &err) < 0 ||
        lf_megatron_append(w, ids, 3, 1, &err) < 0 || lf_megatron_append(w, ids, 0, -1, &err) < 0 ||
        lf_megatron_end_document(w, &err) < 0 || lf_megatron_append(w, ids + 3, 2, 2, &err) < 0 ||
        lf_megatron_end_document(w, &err) < 0 || lf_megatron_finish(w, &err) < 0)
        tap_bail("%s", err.text);
}

static void test_dtypes(void)
{
    static const enum lf_megatron_dtype all[] = {LF_MEGATRON_U8,  LF_MEGATRON_I8,  LF_MEGATRON_I16,
                                                 LF_MEGATRON_I32, LF_MEGATRON_I64, LF_MEGATRON_U16};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        lf_err err = LF_ERR_INIT;
        lf_megatron_data *d = NULL;
        uint32_t ids[3] = {0};
        const char *name = lf_megatron_dtype_name(all[k]);
        write_good(name, all[k], k % 2);
        tap_rc(lf_megatron_open(&d, at(name), &err), 0, &err, NULL, name);
        const lf_megatron_info *i = lf_megatron_get_info(d);
        tap_ok(i->dtype == all[k] && i->n_seqs == 3 && i->n_docs == 2 && i->n_tokens == 5 &&
                   i->packed,
               "what it holds");
        tap_ok(k % 2 ? i->modes && i->modes[1] == -1 && i->modes[2] == 2 : !i->modes, "modes");
        tap_rc(lf_megatron_read_ids(d, 2, 1, 1, ids, &err), 0, &err, NULL, "read");
        tap_i64(ids[0], 127, "token");
        tap_rc(lf_megatron_read_ids(d, 2, 1, 2, ids, &err), LF_EINVAL, &err, "sequence 2",
               "past the end of a sequence");
        tap_rc(lf_megatron_read_ids(d, 3, 0, 0, ids, &err), LF_EINVAL, &err, "sequence 3",
               "past the last sequence");
        tap_rc(lf_megatron_read_ids(d, 0, UINT64_MAX, 2, ids, &err), LF_EINVAL, &err, "sequence 0",
               "far past the end");
        lf_megatron_close(d);
    }
}

/* A copy of the good .idx with `n` bytes at `where` set to the little-endian value; cut: bytes kept
 * (-1: all). */
static void hostile(size_t where, size_t n, uint64_t value, long cut, int rc, const char *says,
                    const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_megatron_data *d = NULL;
    lf_buf b;
    char path[4200];
    lf_buf_init(&b);
    snprintf(path, sizeof path, "%s.idx", base);
    if (lf_io_read_file(path, 1 << 20, &b, &err) < 0)
        tap_bail("%s", err.text);
    if (n)
        lf_put_le((uint8_t *)b.data + where, value, n);
    if (cut > (long)b.len)
        lf_buf_add(&b, "\0\0\0\0\0\0\0\0", (size_t)cut - b.len);
    lf_io_replace(at("bad.idx"), b.data, cut < 0 ? b.len : (size_t)cut, 0640, &err);
    tap_rc(lf_megatron_open(&d, at("bad.idx"), &err), rc, &err, says, name);
    lf_megatron_close(d);
    lf_buf_fini(&b);
}

static void test_hostile(void)
{
    const size_t len = 34, off = 34 + 12, docs = 34 + 36;
    char from[4200];
    lf_err err = LF_ERR_INIT;
    lf_buf bin;
    lf_buf_init(&bin);
    write_good("good", LF_MEGATRON_I32, false);
    snprintf(base, sizeof base, "%s", at("good"));
    snprintf(from, sizeof from, "%s.bin", base);
    if (lf_io_read_file(from, 1 << 20, &bin, &err) < 0 ||
        lf_io_replace(at("bad.bin"), bin.data, bin.len, 0640, &err) < 0)
        tap_bail("%s", err.text);
    lf_buf_fini(&bin);
    hostile(0, 0, 0, -1, 0, NULL, "an unchanged copy is read");
    hostile(0, 1, 'X', -1, LF_EFORMAT, "MMIDIDX", "magic");
    hostile(7, 1, '!', -1, LF_EFORMAT, "MMIDIDX", "the magic has nine bytes");
    hostile(9, 8, 2, -1, LF_EFORMAT, "version 2", "version");
    hostile(17, 1, 0, -1, LF_EFORMAT, "dtype code 0", "dtype 0");
    hostile(17, 1, 9, -1, LF_EFORMAT, "dtype code 9", "dtype 9");
    hostile(17, 1, 255, -1, LF_EFORMAT, "dtype code 255", "dtype 255");
    hostile(17, 1, 5, -1, LF_EFORMAT, "beyond", "a wider dtype leads out of the .bin");
    hostile(18, 8, 4, -1, LF_EFORMAT, "do not fit", "one sequence more");
    hostile(18, 8, 2, -1, LF_EFORMAT, "after its tables", "one sequence less");
    hostile(18, 8, UINT64_MAX, -1, LF_EFORMAT, "do not fit", "2^64 - 1 sequences");
    hostile(18, 8, (uint64_t)1 << 63, -1, LF_EFORMAT, "do not fit", "2^63 sequences");
    hostile(18, 8, UINT64_MAX / 12 + 2, -1, LF_EFORMAT, "do not fit", "sequences whose bytes wrap");
    hostile(26, 8, (uint64_t)1 << 61, -1, LF_EFORMAT, "do not fit", "documents whose bytes wrap");
    hostile(26, 8, 0, -1, LF_EFORMAT, "after its tables", "no document entry");
    hostile(len, 4, UINT32_MAX, -1, LF_EFORMAT, "has -1 tokens", "a negative length");
    hostile(len, 4, INT32_MAX, -1, LF_EFORMAT, "beyond", "a length beyond the .bin");
    hostile(len, 4, 6, -1, LF_EFORMAT, "beyond", "a length one beyond the .bin");
    hostile(off + 16, 8, 16, -1, LF_EFORMAT, "beyond", "an offset beyond the .bin");
    hostile(off + 16, 8, (uint64_t)1 << 63, -1, LF_EFORMAT, "beyond", "an offset of -2^63");
    hostile(off + 16, 8, INT64_MAX, -1, LF_EFORMAT, "beyond", "an offset of 2^63 - 1");
    hostile(docs, 8, 1, -1, LF_EFORMAT, "runs from 1", "documents that begin at 1");
    hostile(docs + 16, 8, 2, -1, LF_EFORMAT, "to 2", "documents that end early");
    hostile(docs + 16, 8, (uint64_t)1 << 63, -1, LF_EFORMAT, "runs from 0",
            "documents that end at -2^63");
    hostile(docs + 8, 8, 4, -1, LF_EFORMAT, "decreases at entry 2",
            "a document index that decreases");
    hostile(docs + 8, 8, UINT64_MAX, -1, LF_EFORMAT, "decreases at entry 1",
            "a negative entry of the document index");
    hostile(0, 0, 0, 33, LF_EFORMAT, "less than the header", "a cut header");
    hostile(0, 0, 0, 0, LF_EFORMAT, "less than the header", "an empty index");
    hostile(0, 0, 0, 60, LF_EFORMAT, "do not fit", "a cut table");
    hostile(0, 0, 0, 34 + 36 + 24 + 2, LF_EFORMAT, "after its tables",
            "two bytes more, which are no modes");
    unlink(at("bad.bin"));
    hostile(0, 0, 0, -1, LF_ENOENT, "bad.bin", "no .bin");
}

/* Ids that are no ids: negative (labels, marks of instruction data), too large, floats. */
static void test_ids(void)
{
    lf_err err = LF_ERR_INIT;
    lf_megatron_data *d = NULL;
    uint32_t id[3];
    static const uint8_t minus[20] = {0x9c, 0xff, 0xff, 0xff};
    write_good("neg", LF_MEGATRON_I32, false);
    lf_io_replace(at("neg.bin"), minus, sizeof minus, 0640, &err);
    tap_rc(lf_megatron_open(&d, at("neg.bin"), &err), 0, &err, NULL,
           "opened by the name of its .bin");
    tap_rc(lf_megatron_read_ids(d, 0, 0, 3, id, &err), LF_EFORMAT, &err, "is -100",
           "a negative id is named");
    lf_megatron_close(d);
    static const uint8_t wide[40] = {0, 0, 0, 0x80};
    write_good("wide", LF_MEGATRON_I64, false);
    lf_io_replace(at("wide.bin"), wide, sizeof wide, 0640, &err);
    tap_rc(lf_megatron_open(&d, at("wide"), &err), 0, &err, NULL, "i64");
    tap_rc(lf_megatron_read_ids(d, 0, 0, 3, id, &err), LF_EFORMAT, &err, "is 2147483648",
           "2^31 is no id");
    lf_megatron_close(d);
    lf_buf b;
    lf_buf_init(&b);
    lf_io_read_file(at("neg.idx"), 1 << 20, &b, &err);
    b.data[17] = LF_MEGATRON_F32;
    lf_io_replace(at("neg.idx"), b.data, b.len, 0640, &err);
    lf_buf_fini(&b);
    tap_rc(lf_megatron_open(&d, at("neg"), &err), 0, &err, NULL, "f32 is known");
    tap_rc(lf_megatron_read_ids(d, 0, 0, 3, id, &err), LF_EFORMAT, &err, "f32", "but holds no ids");
    lf_megatron_close(d);
}

static void test_writer(void)
{
    lf_err err = LF_ERR_INIT;
    lf_megatron_writer *w = NULL;
    uint32_t big[] = {65535, 65536};
    tap_rc(lf_megatron_create(&w, at("w"), LF_MEGATRON_F32, false, &err), LF_EINVAL, &err, "dtype",
           "no floats");
    tap_rc(lf_megatron_create(&w, at("good"), LF_MEGATRON_U16, false, &err), LF_EEXIST, &err,
           "exists", "not over a file");
    tap_rc(lf_megatron_create(&w, at("w"), LF_MEGATRON_U16, false, &err), 0, &err, NULL, "create");
    tap_rc(lf_megatron_append(w, big, 2, 0, &err), LF_EINVAL, &err, "65536 does not fit into u16",
           "an id too large");
    tap_rc(lf_megatron_append(w, big, 1, 0, &err), 0, &err, NULL, "the largest id");
    tap_rc(lf_megatron_finish(w, &err), LF_EINVAL, &err, "last end", "an open document");
    tap_ok(!lf_io_exists(at("w.bin")) && !lf_io_exists(at("w.idx")), "nothing is left of it");
    tap_rc(lf_megatron_create(&w, at("w"), LF_MEGATRON_U16, false, &err), 0, &err, NULL, "again");
    lf_megatron_abort(w);
    lf_megatron_abort(NULL);
    tap_ok(!lf_io_exists(at("w.bin")), "nothing is left after abort");
    tap_i64(lf_megatron_dtype_for(65499), LF_MEGATRON_U16, "u16 below 65500");
    tap_i64(lf_megatron_dtype_for(65500), LF_MEGATRON_I32, "i32 from 65500 on");
    write_good("empty", LF_MEGATRON_U16, false);
    lf_megatron_data *d = NULL;
    unlink(at("e.bin"));
    tap_rc(lf_megatron_create(&w, at("e"), LF_MEGATRON_U16, true, &err), 0, &err, NULL,
           "no document at all");
    tap_rc(lf_megatron_finish(w, &err), 0, &err, NULL, "is written");
    tap_rc(lf_megatron_open(&d, at("e"), &err), 0, &err, NULL, "and read");
    tap_i64((int64_t)lf_megatron_get_info(d)->n_docs, 0, "as none");
    lf_megatron_close(d);
}

int main(void)
{
    TAP(48, test_dtypes());
    TAP(31, test_hostile());
    TAP(6, test_ids());
    TAP(15, test_writer());
    return tap_done();
}
