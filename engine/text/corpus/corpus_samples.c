/* SPDX-License-Identifier: Apache-2.0
 *
 * See corpus_samples.h. The header of the member behind a sample is read before the sample is given
 * out, for nothing else tells that it has ended.
 */
#include "config.h"

#include "engine/text/corpus/corpus_samples.h"

#include <archive_entry.h>
#include <string.h>
#include <strings.h>

#include "engine/text/parquet/rowpack.h"

enum ending { OTHER, PICTURE, JSON, TEXT };

void lf_websamples_init(lf_websamples *s)
{
    *s = (lf_websamples){0};
    lf_buf *const bufs[] = {&s->name, &s->key, &s->pics, &s->text, &s->json};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        lf_buf_init(bufs[i]);
}

void lf_websamples_fini(lf_websamples *s)
{
    lf_buf *const bufs[] = {&s->name, &s->key, &s->pics, &s->text, &s->json};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        lf_buf_fini(bufs[i]);
}

/* ---- names ---- */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Bytes of the name before the first dot behind the last slash. */
static size_t key_length(const char *name)
{
    const char *base = base_of(name), *dot = strchr(base, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static enum ending ending_of(const char *name)
{
    static const struct {
        const char *text;
        enum ending is;
    } v[] = {{"jpg", PICTURE},  {"jpeg", PICTURE}, {"png", PICTURE},
             {"webp", PICTURE}, {"json", JSON},    {"txt", TEXT}};
    const char *dot = strrchr(base_of(name), '.');
    for (size_t i = 0; dot && i < sizeof v / sizeof v[0]; i++)
        if (strcasecmp(dot + 1, v[i].text) == 0)
            return v[i].is;
    return OTHER;
}

bool lf_websamples_member(const lf_energon *folder, const char *name)
{
    return folder ? lf_energon_member(name) : ending_of(name) != OTHER;
}

int lf_websamples_begin(lf_websamples *s, const char *name, lf_err *err)
{
    lf_buf_clear(&s->name);
    lf_buf_adds(&s->name, name);
    s->there = true;
    return lf_buf_check(&s->name, err);
}

/* ---- members ---- */

static int archive_fails(const lf_websamples *s, struct archive *ar, lf_err *err)
{
    const char *why = archive_error_string(ar);
    return lf_fail(err, LF_EFORMAT, "%s: %s; is the archive complete?", s->name.data,
                   why ? why : "read error");
}

/* The next regular member's name; s->there is false behind the last. */
static int next_header(lf_websamples *s, struct archive *ar, lf_err *err)
{
    for (;;) {
        struct archive_entry *e;
        int got = archive_read_next_header(ar, &e);
        s->there = false;
        if (got == ARCHIVE_EOF)
            return 0;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
            return archive_fails(s, ar, err);
        const char *name = archive_entry_pathname(e);
        if (name && archive_entry_filetype(e) == AE_IFREG && base_of(name)[0] != '.' &&
            base_of(name)[0] != 0 && (!s->folder || lf_energon_member(name)))
            return lf_websamples_begin(s, name, err);
    }
}

/* The member's data behind what is in out. */
static int read_data(lf_websamples *s, struct archive *ar, lf_buf *out, lf_err *err)
{
    static const char zeros[4096];
    const size_t from = out->len;
    for (;;) {
        const void *block;
        size_t n;
        la_int64_t at;
        int got = archive_read_data_block(ar, &block, &n, &at);
        if (got == ARCHIVE_EOF)
            return lf_buf_check(out, err);
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
            return archive_fails(s, ar, err);
        if (at < 0 || (uint64_t)at + n > s->max_bytes || s->pics.len > s->max_bytes)
            return lf_fail(err, LF_EINVAL, "%s: its sample is longer than max_doc_bytes = %zu",
                           s->name.data, s->max_bytes);
        while (out->len - from < (size_t)at && !out->failed) { /* a hole of a sparse file */
            size_t hole = (size_t)at - (out->len - from);
            lf_buf_add(out, zeros, hole < sizeof zeros ? hole : sizeof zeros);
        }
        lf_buf_add(out, block, n);
    }
}

static int take_picture(lf_websamples *s, struct archive *ar, lf_err *err)
{
    lf_buf_addc(&s->pics, LF_ROWPACK_OBJECT);
    lf_rowpack_put_name(&s->pics, "bytes");
    lf_rowpack_put(&s->pics, LF_ROWPACK_BYTES, 0, 4);
    const size_t from = s->pics.len;
    int rc = read_data(s, ar, &s->pics, err);
    if (rc < 0)
        return rc;
    lf_put_le((uint8_t *)s->pics.data + from - 4, s->pics.len - from, 4); /* now it is known */
    lf_rowpack_put_name(&s->pics, "path");
    lf_rowpack_put_text(&s->pics, s->name.data, (uint32_t)s->name.len);
    lf_buf_addc(&s->pics, LF_ROWPACK_OBJECT_END);
    s->n_pics++;
    return lf_buf_check(&s->pics, err);
}

static int take_once(lf_websamples *s, struct archive *ar, lf_buf *out, bool *any, lf_err *err)
{
    if (*any)
        return lf_fail(err, LF_EFORMAT, "%s: its sample has two of this kind", s->name.data);
    *any = true;
    return read_data(s, ar, out, err);
}

static int take_member(lf_websamples *s, struct archive *ar, lf_err *err)
{
    switch (ending_of(s->name.data)) {
    case PICTURE:
        return take_picture(s, ar, err);
    case JSON:
        return take_once(s, ar, &s->json, &s->any_json, err);
    case TEXT:
        return take_once(s, ar, &s->text, &s->any_text, err);
    default:
        return s->ignore_others
                   ? 0
                   : lf_fail(err, LF_EFORMAT,
                             "%s: members of samples are jpg, png, webp, json and txt; leave "
                             "others out, or set unmapped = ignore",
                             s->name.data);
    }
}

/* ---- parts ---- */

static int put_text_part(lf_websamples *s, struct archive *ar, lf_err *err)
{
    lf_rowpack_put(&s->pics, LF_ROWPACK_TEXT, 0, 4);
    const size_t from = s->pics.len;
    int rc = read_data(s, ar, &s->pics, err);
    if (rc == 0)
        lf_put_le((uint8_t *)s->pics.data + from - 4, s->pics.len - from, 4);
    return rc;
}

/* The member as the part that it is, behind those in s->pics. */
static int take_part(lf_websamples *s, struct archive *ar, lf_err *err)
{
    const char *part = s->name.data + s->key.len + 1;
    if (!lf_energon_wants(s->folder, part))
        return 0;
    if (strlen(part) > LF_ROWPACK_NAME_MAX)
        return lf_fail(err, LF_EFORMAT, "%.200s: the name is too long", s->name.data);
    lf_rowpack_put_name(&s->pics, part);
    return lf_energon_part_kind(part) == LF_ENERGON_PICTURE ? take_picture(s, ar, err)
                                                            : put_text_part(s, ar, err);
}

static int put_parts(const lf_websamples *s, lf_buf *row, lf_err *err)
{
    lf_buf_clear(row);
    lf_buf_addc(row, LF_ROWPACK_OBJECT);
    lf_buf_add(row, s->pics.data, s->pics.len);
    lf_buf_addc(row, LF_ROWPACK_OBJECT_END);
    return lf_buf_check(row, err);
}

/* ---- rows ---- */

static void put_turn(lf_buf *row, const char *role, const char *text, size_t len)
{
    lf_buf_addc(row, LF_ROWPACK_OBJECT);
    lf_rowpack_put_name(row, "role");
    lf_rowpack_put_text(row, role, (uint32_t)strlen(role));
    lf_rowpack_put_name(row, "content");
    lf_rowpack_put_text(row, text, (uint32_t)len);
    lf_buf_addc(row, LF_ROWPACK_OBJECT_END);
}

/* The pictures and what is said of them. */
static int put_text(lf_websamples *s, lf_buf *row, lf_err *err)
{
    lf_buf marks;
    lf_buf_init(&marks);
    for (size_t i = 0; i < s->n_pics; i++)
        lf_buf_adds(&marks, "<image>");
    lf_rowpack_put_name(row, "messages");
    lf_buf_addc(row, LF_ROWPACK_LIST);
    put_turn(row, "user", marks.data, marks.len);
    put_turn(row, "assistant", s->text.data, s->text.len);
    lf_buf_addc(row, LF_ROWPACK_LIST_END);
    int rc = lf_buf_check(&marks, err);
    lf_buf_fini(&marks);
    return rc;
}

static int put_row(lf_websamples *s, lf_buf *row, lf_err *err)
{
    int rc = 0;
    lf_buf_clear(row);
    lf_buf_addc(row, LF_ROWPACK_OBJECT);
    if (s->any_text)
        rc = put_text(s, row, err);
    if (s->any_json) {
        lf_rowpack_put_name(row, LF_WEBSAMPLES_JSON);
        lf_rowpack_put_text(row, s->json.data, (uint32_t)s->json.len);
    }
    if (s->n_pics > 0) {
        lf_rowpack_put_name(row, "images");
        lf_buf_addc(row, LF_ROWPACK_LIST);
        lf_buf_add(row, s->pics.data, s->pics.len);
        lf_buf_addc(row, LF_ROWPACK_LIST_END);
    }
    lf_buf_addc(row, LF_ROWPACK_OBJECT_END);
    return rc < 0 ? rc : lf_buf_check(row, err);
}

int lf_websamples_next(lf_websamples *s, struct archive *ar, lf_buf *row, lf_err *err)
{
    int rc = 0;
    const bool parts = s->folder && lf_energon_by_parts(s->folder);
    if (!s->there)
        return 0;
    lf_buf_clear(&s->key);
    lf_buf_clear(&s->pics);
    lf_buf_clear(&s->text);
    lf_buf_clear(&s->json);
    s->any_text = s->any_json = false;
    s->n_pics = 0;
    lf_buf_add(&s->key, s->name.data, key_length(s->name.data));
    while (rc == 0 && s->there && key_length(s->name.data) == s->key.len &&
           memcmp(s->name.data, s->key.data, s->key.len) == 0) {
        rc = parts ? take_part(s, ar, err) : take_member(s, ar, err);
        if (rc == 0)
            rc = next_header(s, ar, err);
    }
    if (rc == 0)
        s->n++;
    if (rc == 0 && parts)
        return put_parts(s, row, err) < 0 ? LF_ENOMEM : 1;
    if (rc == 0 && !s->any_text && !s->any_json)
        rc = lf_fail(err, LF_EFORMAT, "%s: the sample has neither txt nor json", s->key.data);
    if (rc == 0)
        rc = put_row(s, row, err);
    return rc < 0 ? rc : 1;
}
