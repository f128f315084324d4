/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI side of two tests; compiled with mpicc where there is one, never part of the build.
 *   comm_mpi ref DIR      each rank reads DIR/RANK.in (f32), adds with MPI_Allreduce in f64, and
 *                         compares DIR/sum: 0 when every element lies within the rounding of P - 1
 *                         additions in f32
 *   comm_mpi bench        the all-reduce of comm_bench by MPI: bytes, microseconds (median), one
 *                         line each
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *read_all(const char *dir, const char *name, size_t *n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f) / 4;
    rewind(f);
    float *x = malloc(*n * 4 + 4);
    if (fread(x, 4, *n, f) != *n)
        *n = 0;
    fclose(f);
    return x;
}

static int ref(const char *dir, int rank, int size)
{
    char name[32];
    size_t n = 0, n_sum = 0, bad = 0;
    snprintf(name, sizeof name, "%d.in", rank);
    float *x = read_all(dir, name, &n), *got = read_all(dir, "sum", &n_sum);
    if (!x || !got || n != n_sum || n == 0)
        return 2;
    double *sum = calloc(n, sizeof *sum), *mag = calloc(n, sizeof *mag);
    for (size_t i = 0; i < n; i++) {
        sum[i] = x[i];
        mag[i] = fabs(x[i]);
    }
    MPI_Allreduce(MPI_IN_PLACE, sum, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, mag, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < n; i++)
        bad += !(fabs(sum[i] - got[i]) <= mag[i] * 6e-8 * size);
    if (rank == 0)
        printf("%zu elements, %zu wrong\n", n, bad);
    return bad != 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench(int rank)
{
    float *x = calloc(8 << 20, 4);
    static const size_t sizes[] = {1, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 8 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t n = sizes[s];
        double t[200];
        int k = n < 100000 ? 200 : 15;
        for (int i = -3; i < k; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double t0 = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (i >= 0)
                t[i] = MPI_Wtime() - t0;
        }
        qsort(t, (size_t)k, sizeof *t, by_value);
        if (rank == 0)
            printf("mpi %zu %.1f\n", n * 4, t[k / 2] * 1e6);
    }
    free(x);
}

int main(int argc, char **argv)
{
    int rank, size, rc = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2 && strcmp(argv[1], "ref") == 0)
        rc = ref(argv[2], rank, size);
    else
        bench(rank);
    MPI_Finalize();
    return rc;
}
