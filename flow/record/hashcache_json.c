/* SPDX-License-Identifier: Apache-2.0
 *
 * {path: {"size","mtime_ns","ctime_ns","inode","at","sha256"}}
 */
#include "config.h"

#include "flow/record/hashcache.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#define CACHE_MAX_BYTES ((size_t)64 << 20)

struct lf_hashcache {
    json_t *files;
    bool changed;
};

lf_hashcache *lf_hashcache_load(const char *path, lf_err *err)
{
    lf_hashcache *c = lf_calloc(1, sizeof *c, err);
    if (c == NULL)
        return NULL;
    if (path != NULL && lf_io_exists(path))
        c->files = lf_json_load_file(path, CACHE_MAX_BYTES, NULL);
    if (!json_is_object(c->files)) {
        json_decref(c->files);
        c->files = json_object();
    }
    if (c->files != NULL)
        return c;
    free(c);
    lf_fail(err, LF_ENOMEM, "out of memory");
    return NULL;
}

void lf_hashcache_free(lf_hashcache *c)
{
    if (c == NULL)
        return;
    json_decref(c->files);
    free(c);
}

static int64_t number(const json_t *o, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(o, key));
}

bool lf_hashcache_find(lf_hashed *out, const lf_hashcache *c, const char *file)
{
    const json_t *e = json_object_get(c->files, file);
    const char *hex = json_string_value(json_object_get(e, "sha256"));
    if (hex == NULL || strlen(hex) != LF_HASH_HEX - 1)
        return false;
    *out = (lf_hashed){.size = number(e, "size"),
                       .mtime_ns = number(e, "mtime_ns"),
                       .ctime_ns = number(e, "ctime_ns"),
                       .inode = number(e, "inode"),
                       .at = json_number_value(json_object_get(e, "at"))};
    memcpy(out->sha256, hex, LF_HASH_HEX);
    return true;
}

int lf_hashcache_put(lf_hashcache *c, const char *file, const lf_hashed *h, lf_err *err)
{
    json_t *e = json_pack("{s:I, s:I, s:I, s:I, s:f, s:s}", "size", (json_int_t)h->size, "mtime_ns",
                          (json_int_t)h->mtime_ns, "ctime_ns", (json_int_t)h->ctime_ns, "inode",
                          (json_int_t)h->inode, "at", h->at, "sha256", h->sha256);
    c->changed = true;
    if (e == NULL || json_object_set_new(c->files, file, e) < 0)
        return lf_fail(err, LF_ENOMEM, "out of memory (or text that is not UTF-8) at \"%s\"", file);
    return 0;
}

void lf_hashcache_save(const lf_hashcache *c, const char *path)
{
    char *text = c->changed ? lf_json_dump(c->files, NULL) : NULL;
    if (text != NULL)
        (void)lf_io_replace(path, text, strlen(text), 0644, NULL);
    free(text);
}
