/* SPDX-License-Identifier: Apache-2.0
 *
 * See rowfile.h.
 */
#include "config.h"

#include "engine/text/corpus/rowfile.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int open_rows(lf_rowfile *f, const char *path, const char *const *binary, size_t n,
                     const lf_glue *glue, lf_err *err)
{
    struct stat st;
    *f = (lf_rowfile){.path = path};
    /* What a corpus makes of a directory or a pattern is no file of rows. */
    if (strcmp(path, "-") != 0 && stat(path, &st) != 0)
        return lf_fail_errno(err, "cannot read %s", path);
    if (strcmp(path, "-") != 0 && S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is a directory; name a file of rows", path);
    const lf_corpus_args args = {.inputs = &path,
                                 .n_inputs = 1,
                                 .format = glue ? LF_CORPUS_TEXT : LF_CORPUS_ROWS,
                                 .split = LF_CORPUS_LINE,
                                 .glue = glue,
                                 .binary = binary,
                                 .n_binary = n,
                                 .max_doc_bytes = LF_ROWFILE_MAX,
                                 .strict = true};
    return lf_corpus_open(&f->corpus, &args, err);
}

int lf_rowfile_open(lf_rowfile *f, const char *path, lf_err *err)
{
    return open_rows(f, path, NULL, 0, NULL, err);
}

int lf_rowfile_open_glue(lf_rowfile *f, const char *path, const lf_glue *glue, lf_err *err)
{
    return open_rows(f, path, NULL, 0, glue, err);
}

int lf_rowfile_open_pictures(lf_rowfile *f, const char *path, lf_err *err)
{
    static const char *const binary[] = {"image", "images"};
    return open_rows(f, path, binary, sizeof binary / sizeof *binary, NULL, err);
}

void lf_rowfile_close(lf_rowfile *f)
{
    lf_corpus_close(f->corpus);
    f->corpus = NULL;
}

int lf_rowfile_next(lf_rowfile *f, lf_err *err)
{
    int rc = lf_corpus_next(f->corpus, &f->record, err);
    bool std = strcmp(f->path, "-") == 0;
    if (rc == 1)
        snprintf(f->where, sizeof f->where, "%.480s:%llu", std ? "standard input" : f->path,
                 (unsigned long long)f->record.line);
    return rc;
}

int lf_rowfile_object(lf_rowfile *f, json_t **row, unsigned flags, lf_err *err)
{
    return lf_row_json(row, &f->record, flags | LF_ROW_STRICT, f->where, NULL, err);
}
