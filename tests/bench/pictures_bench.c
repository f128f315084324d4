/* SPDX-License-Identifier: Apache-2.0
 *
 * Preparing pictures: pictures_bench MODEL FILE... reads the processor of the folder MODEL and
 * prints the median seconds of five passes over the files on one thread: from the file to rows of
 * floats, and the same without decoding. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/infer/eyes.h"
#include "engine/media/image.h"

enum { PASSES = 5 };

static lf_err err = LF_ERR_INIT;

static void need(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "pictures_bench: %s\n", err.text);
        exit(1);
    }
}

/* Reads and decodes a file, unless im has it. */
static void decode(lf_image *im, const char *path)
{
    lf_buf bytes;
    lf_buf_init(&bytes);
    need(lf_io_read_file(path, (size_t)1 << 30, &bytes, &err));
    need(lf_image_decode(im, bytes.data, bytes.len, NULL, &err));
    lf_buf_fini(&bytes);
}

static void prepare(const lf_processor *p, const lf_image *im)
{
    lf_pixels x = {0};
    need(lf_processor_run(&x, p, im, true, &err));
    float *rows = malloc((size_t)lf_pixels_floats(p, &x) * sizeof *rows);
    if (!rows)
        exit(1);
    lf_pixels_normalize(rows, p, &x);
    free(rows);
    lf_pixels_fini(&x);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* decoded NULL: from the files. */
static double median_pass(const lf_processor *p, char *const *file, int n, const lf_image *decoded)
{
    double took[PASSES];
    for (int k = 0; k < PASSES; k++) {
        const double t = lf_now_s();
        for (int i = 0; i < n; i++) {
            lf_image im = {0};
            if (!decoded)
                decode(&im, file[i]);
            prepare(p, decoded ? &decoded[i] : &im);
            lf_image_fini(&im);
        }
        took[k] = lf_now_s() - t;
    }
    qsort(took, PASSES, sizeof *took, ascending);
    return took[PASSES / 2];
}

int main(int argc, char **argv)
{
    lf_gen_eyes e = {0};
    lf_model_config any = {.vision = {.family = 1}};
    const int n = argc - 2;
    if (n < 1)
        return 2;
    need(lf_gen_eyes_load(&e, argv[1], NULL, &any, &err));
    lf_image *im = calloc((size_t)n, sizeof *im);
    if (!im)
        return 1;
    for (int i = 0; i < n; i++)
        decode(&im[i], argv[2 + i]);
    printf("files %.4f\n", median_pass(&e.processor, argv + 2, n, NULL));
    printf("pixels %.4f\n", median_pass(&e.processor, argv + 2, n, im));
    for (int i = 0; i < n; i++)
        lf_image_fini(&im[i]);
    free(im);
    lf_gen_eyes_fini(&e);
    return 0;
}
