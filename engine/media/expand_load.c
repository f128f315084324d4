/* SPDX-License-Identifier: Apache-2.0
 *
 * A processor from the files of a model's folder.
 */
#include "engine/media/expand.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

#define MAX_CONFIG ((size_t)4 << 20)

/* The text of DIR/name, or NULL where there is no such file. */
static int read_config(char **out, const char *dir, const char *name, lf_err *err)
{
    lf_buf b;
    char *path = lf_path_join(dir, name, err);
    int rc = path ? 0 : LF_ENOMEM;
    *out = NULL;
    lf_buf_init(&b);
    if (rc == 0 && lf_io_exists(path)) {
        rc = lf_io_read_file(path, MAX_CONFIG, &b, err);
        *out = rc == 0 ? lf_buf_steal(&b, err) : NULL;
        rc = rc == 0 && !*out ? LF_ENOMEM : rc;
    }
    lf_buf_fini(&b);
    free(path);
    return rc;
}

/* A directory as a model's is, or the one file of the image processor. */
struct configs {
    char *image, *processor, *tokenizer, *model;
};

static void configs_fini(struct configs *c)
{
    free(c->image);
    free(c->processor);
    free(c->tokenizer);
    free(c->model);
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int read_files(struct configs *c, const char *path, const char *tokenizer, lf_err *err)
{
    lf_buf b;
    int rc = 0;
    if (is_directory(path)) {
        rc = read_config(&c->image, path, "preprocessor_config.json", err);
        if (rc == 0)
            rc = read_config(&c->processor, path, "processor_config.json", err);
        if (rc == 0)
            rc = read_config(&c->tokenizer, path, "tokenizer_config.json", err);
        if (rc == 0)
            rc = read_config(&c->model, path, "config.json", err);
        /* newer models have the image processor inside of the other file */
        if (rc == 0 && !c->image && c->processor && !(c->image = lf_strdup(c->processor, err)))
            rc = LF_ENOMEM;
        if (rc == 0 && !c->image)
            rc = lf_fail(
                err, LF_ENOENT,
                "processor = %s: the directory has no preprocessor_config.json, which says "
                "what is done to pictures; give the folder of the model as it was published",
                path);
    } else {
        lf_buf_init(&b);
        rc = lf_io_read_file(path, MAX_CONFIG, &b, err);
        if (rc == 0 && !(c->image = lf_buf_steal(&b, err)))
            rc = LF_ENOMEM;
        lf_buf_fini(&b);
    }
    if (rc == 0 && tokenizer && is_directory(tokenizer)) { /* the one that is used counts */
        char *own = NULL;
        rc = read_config(&own, tokenizer, "tokenizer_config.json", err);
        if (own) {
            free(c->tokenizer);
            c->tokenizer = own;
        }
    }
    return rc;
}

int lf_expand_load(lf_processor *p, lf_expand *e, const lf_expand_texts *out,
                   const lf_expand_place *at, lf_err *err)
{
    struct configs c = {0};
    lf_expand read;
    int rc = read_files(&c, at->path, at->tokenizer, err);
    if (rc == 0)
        rc = lf_expand_read(
            &read, &(lf_expand_files){at->given, c.tokenizer, c.processor, c.image, c.model}, err);
    if (rc == 0)
        rc = lf_expand_image_processor(out->image_processor, &read, c.image, at->path, err);
    if (rc == 0) {
        lf_expand_write(out->settings, &read);
        rc = lf_buf_check(out->settings, err);
    }
    if (rc == 0)
        rc = lf_expand_open(p, e, out->image_processor->data, out->settings->data, at->path, err);
    configs_fini(&c);
    return rc;
}
