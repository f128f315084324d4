/* SPDX-License-Identifier: Apache-2.0
 *
 * What the shell tests of generation and evaluation need and no stage offers:
 *
 *     infer_tool ckpt DIR MODEL.ini VOCAB [X]  checkpoint with hot random weights; one of them, in
 *                                              a layer, times X
 *     infer_tool get FILE.jsonl LINE MEMBER    a member of a line (from 1) as JSON; MEMBER may be a
 *                                              path: a.b.3
 *     infer_tool record FILE                   every metrics record, one line each
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/frame.h"
#include "engine/base/str.h"
#include "tests/unit/infer_ckpt.h"

struct one_weight {
    uint64_t seed;
    double factor;
};

static void fill_ckpt(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows,
                      int64_t cols)
{
    struct one_weight *w = arg;
    infer_ckpt_hot(&w->seed, d, dst, rows, cols);
    if (strcmp(d->name, "layers.0.attn.v.weight") == 0)
        dst[0] *= (float)w->factor;
}

static int cmd_ckpt(const char *dir, const char *model, const char *vocab, const char *factor,
                    lf_err *err)
{
    lf_model_config c;
    struct one_weight w = {9, strtod(factor, NULL)};
    int rc = lf_model_config_load(&c, model, err);
    if (rc == 0)
        rc = lf_model_config_set(&c, "vocab", vocab, "argument", err);
    if (rc == 0)
        rc = lf_model_config_finish(&c, err);
    return rc ? rc : infer_ckpt_write(dir, &c, fill_ckpt, &w, err);
}

static int print_member(json_t *o, const char *path, lf_err *err)
{
    char part[128];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, (size_t)strtoul(part, NULL, 10))
                             : json_object_get(o, part);
        path += n + (path[n] == '.');
    }
    char *text = o ? json_dumps(o, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (!text)
        return lf_fail(err, LF_ENOENT, "no member %s", path);
    puts(text);
    free(text);
    return 0;
}

static int cmd_get(const char *file, long line, const char *path, lf_err *err)
{
    FILE *f = fopen(file, "re");
    if (!f)
        return lf_fail_errno(err, "cannot open %s", file);
    char *text = NULL;
    size_t cap = 0;
    ssize_t len = 0;
    for (long i = 0; i < line && len >= 0; i++)
        len = getline(&text, &cap, f);
    json_error_t je = {.text = "no such line"};
    json_t *o = len > 0 ? json_loadb(text, (size_t)len, JSON_ALLOW_NUL, &je) : NULL;
    int rc = o ? print_member(o, path, err)
               : lf_fail(err, LF_ENOENT, "%s: line %ld: %s", file, line, je.text);
    json_decref(o);
    free(text);
    fclose(f);
    return rc;
}

static int print_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)ctx;
    (void)offset;
    (void)err;
    if (!strstr(payload,
                "\"resumed\":true")) /* it says where a start begins, not how a step went */
        printf("%.*s\n", (int)n, payload);
    return 1;
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    int64_t offset = 0;
    int rc;
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "ckpt") == 0)
        rc = cmd_ckpt(argv[2], argv[3], argv[4], argc == 6 ? argv[5] : "1", &err);
    else if (argc == 5 && strcmp(argv[1], "get") == 0)
        rc = cmd_get(argv[2], strtol(argv[3], NULL, 10), argv[4], &err);
    else if (argc == 3 && strcmp(argv[1], "record") == 0)
        rc = lf_frame_read(argv[2], &offset, print_record, NULL, &err);
    else
        rc = lf_fail(&err, LF_EINVAL, "usage: see the head of infer_tool.c");
    if (rc < 0)
        fprintf(stderr, "infer_tool: %s\n", err.text);
    return rc < 0;
}
