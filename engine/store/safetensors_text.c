/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of safetensors files and their index, byte for byte as the library and Python's json
 * module write it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/store/safetensors_priv.h"

/* A quoted string as serde_json writes it; ascii: as Python's json.dumps does. */
static void add_quoted(lf_buf *b, const char *s, bool ascii)
{
    static const char shorts[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    size_t n = strlen(s);
    lf_buf_addc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = lf_utf8_len(s + i, n - i), k = 0;
        while (k < sizeof shorts - 1 && shorts[k] != (char)c)
            k += 2;
        if (k < sizeof shorts - 1) {
            lf_buf_addc(b, '\\');
            lf_buf_addc(b, shorts[k + 1]);
        } else if (c < 0x20) {
            lf_buf_addf(b, "\\u%04x", c);
        } else if (len > 1 && ascii) {
            uint32_t u = c & (0xFFu >> (len + 1));
            for (size_t j = 1; j < len; j++)
                u = u << 6 | ((unsigned char)s[i + j] & 0x3F);
            if (u >= 0x10000)
                lf_buf_addf(b, "\\u%04x\\u%04x", 0xD7C0 + (u >> 10), 0xDC00 + (u & 0x3FF));
            else
                lf_buf_addf(b, "\\u%04x", u);
        } else {
            lf_buf_add(b, s + i, len);
        }
        i += len;
    }
    lf_buf_addc(b, '"');
}

int lf_st_header_text(lf_buf *b, const lf_st_writer *w, const struct lf_st_out_file *f, lf_err *err)
{
    int64_t at = 0;
    unsigned char len[8];
    lf_buf_add(b, "\0\0\0\0\0\0\0\0{", 9);
    if (w->format[0]) {
        lf_buf_adds(b, "\"__metadata__\":{\"format\":");
        add_quoted(b, w->format, false);
        lf_buf_adds(b, f->end > f->first ? "}," : "}");
    }
    for (size_t i = f->first; i < f->end; i++) {
        const struct lf_st_out_tensor *t = w->order[i];
        lf_buf_adds(b, i > f->first ? "," : "");
        add_quoted(b, t->d.name, false);
        lf_buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[", lf_st_dtype_name(t->d.dtype));
        for (int k = 0; k < t->d.ndim; k++)
            lf_buf_addf(b, "%s%lld", k ? "," : "", (long long)t->d.shape[k]);
        lf_buf_addf(b, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                    (long long)(at + t->bytes));
        at += t->bytes;
    }
    lf_buf_addc(b, '}');
    while (b->len % 8)
        lf_buf_addc(b, ' ');
    int rc = lf_buf_check(b, err);
    if (rc < 0)
        return rc;
    if (b->len - 8 > LF_SAFETENSORS_MAX_HEADER)
        return lf_fail(
            err, LF_EINVAL,
            "%s would have a header of %zu bytes, more than %d; use more files (max_file)", f->path,
            b->len - 8, LF_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((b->len - 8) >> (8 * i));
    memcpy(b->data, len, sizeof len);
    return 0;
}

static int cmp_name(const void *a, const void *b)
{
    return strcmp((*(struct lf_st_out_tensor *const *)a)->d.name,
                  (*(struct lf_st_out_tensor *const *)b)->d.name);
}

int lf_st_index_text(lf_buf *b, const lf_st_writer *w, lf_err *err)
{
    long long total = 0;
    struct lf_st_out_tensor **t = lf_malloc(w->n, sizeof(struct lf_st_out_tensor *), err);
    if (!t)
        return LF_ENOMEM;
    memcpy(t, w->order, w->n * sizeof *t);
    qsort(t, w->n, sizeof *t, cmp_name);
    for (size_t i = 0; i < w->n; i++)
        total += t[i]->bytes;
    lf_buf_addf(b, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {",
                total);
    for (size_t i = 0; i < w->n; i++) {
        lf_buf_adds(b, i ? ",\n    " : "\n    ");
        add_quoted(b, t[i]->d.name, true);
        lf_buf_adds(b, ": ");
        add_quoted(b, w->files[t[i]->file].name, true);
    }
    lf_buf_adds(b, "\n  }\n}\n");
    free(t);
    return lf_buf_check(b, err);
}
