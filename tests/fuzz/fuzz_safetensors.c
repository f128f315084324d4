/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a safetensors file; input that begins with '{' is an index beside two good files.
 * What opens must be readable, every tensor from its first byte to its last, and so must what
 * becomes of blocks of 8-bit floats, with the codes and scales themselves, and of 4-bit ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_tensors.h"

const char *const fuzz_corpus = NULL;

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"

static const char *const SEEDS[] = {
    "{}",
    "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"\\n\"}," T(
        "a", "F32", "[2]", "0", "8") "," T("b", "BF16", "[2,2]", "8", "16") "}        ",
    "{" T("x", "I64", "[]", "0", "8") "," T("none", "U8", "[0]", "8",
                                            "8") "," T("y", "F8_E4M3", "[8]", "8", "16") "}",
    "{" T("w_blocks", "U8", "[1,1,16]", "0", "16") "," T("w_scales", "U8", "[1,1]", "16", "17") "}",
    "{" T("v_scales", "U8", "[3]", "0", "3") "," T("v_blocks", "U8", "[3,16]", "3", "51") "}",
    "{" T("w", "F8_E4M3", "[3,4]", "0", "12") "," T("w_scale_inv", "F32", "[2,2]", "12", "28") "}",
    "{" T("w", "F8_E4M3", "[2,2,3]", "0", "12") "," T("w_scale_inv", "F8_E8M0", "[2,1,1]", "12",
                                                      "14") "}",
};
static const size_t BYTES[] = {0, 16, 16, 17, 51, 28, 14}; /* of the tensors of each */
static const char *const INDICES[] = {
    "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": \"1.safetensors\", \"b\": "
    "\"2.safetensors\"}}\n",
    "{\"weight_map\": {\"a\": \"1.safetensors\"}}",
    "{\"weight_map\": {\"a\": \"../1.safetensors\"}}",
};

static size_t put_file(uint8_t *buf, const char *header, size_t data)
{
    size_t n = strlen(header);
    memset(buf, 0, 8);
    buf[0] = (uint8_t)n;
    buf[1] = (uint8_t)(n >> 8);
    memcpy(buf + 8, header, n);
    memset(buf + 8 + n, 7, data);
    return 8 + n + data;
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    size_t n = sizeof SEEDS / sizeof *SEEDS, m = sizeof INDICES / sizeof *INDICES;
    if (cap < 4096 || i >= n + m)
        return 0;
    if (i < n)
        return put_file(buf, SEEDS[i], BYTES[i]);
    memcpy(buf, INDICES[i - n], strlen(INDICES[i - n]));
    return strlen(INDICES[i - n]);
}

static void make_shards(void)
{
    static int made;
    static const char *const NAMES[] = {"1", "2"}, *const HEADERS[] = {
                                                       "{" T("a", "F32", "[1]", "0", "4") "}",
                                                       "{" T("b", "F32", "[1]", "0", "4") "}"};
    uint8_t buf[256];
    char path[512];
    for (int i = 0; i < 2 && !made; i++) {
        snprintf(path, sizeof path, "%s/%s.safetensors", fuzz_dir(), NAMES[i]);
        fuzz_write(path, buf, put_file(buf, HEADERS[i], 4));
    }
    made = 1;
}

/* Codes and scales of what has some, from the first to the last. */
static void read_parts(const lf_st *s)
{
    lf_err err = LF_ERR_INIT;
    char buf[4];
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i), *scales = lf_st_scales_of(e);
        if (scales && (lf_st_read_codes(s, e, e->elems - 1, 1, buf, &err) ||
                       lf_st_read(s, scales, scales->elems - 1, 1, buf, &err)))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    char path[512];
    if (size && data[0] == '{') {
        make_shards();
        snprintf(path, sizeof path, "%s/" LF_SAFETENSORS_INDEX, fuzz_dir());
        fuzz_write(path, data, size);
    } else {
        fuzz_memory_file(path, sizeof path, data, size);
    }
    fuzz_check_error(lf_st_open(&s, path, &err), &err);
    if (s)
        fuzz_read_tensors(s);
    if (s) {
        int rc = lf_st_scale_blocks(s, "_scale_inv", 2, 3, &err);
        fuzz_check_error(rc, &err);
        if (rc == 0) {
            fuzz_read_tensors(s);
            read_parts(s);
            rc = lf_st_unpack_mxfp4(s, "_blocks", "_scales", &err);
            fuzz_check_error(rc, &err);
        }
        if (rc == 0)
            fuzz_read_tensors(s);
    }
    lf_st_close(s);
    return 0;
}
