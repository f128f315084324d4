/* SPDX-License-Identifier: Apache-2.0
 *
 * The bits that LF_KERNEL_VERSION stands for: results of kernels that sum, from inputs that do not
 * change, as one number for each kernel and instruction set. Where a number differs, either a
 * change was to keep the bits and does not, or the version is raised (kernels/README.md) and the
 * numbers that this test says are written down. What is summed here calls no function of the C
 * library that rounds otherwise on other machines.
 */
#include "config.h"

#include "tests/op/op_test.h"

_Static_assert(LF_KERNEL_VERSION == 3, "write the bits of this version down below");

enum { THREADS = 2, ROWS = 150, DOCS = 2, BUFFERS = 16 };

/* A kernel under test: what its arguments point to, and the number of its results so far. */
struct set {
    const struct lf_kernels *k;
    lf_queue *q;
    struct op_buf buf[BUFFERS];
    int n;
    uint64_t bits;
};

#define RUN(s, name, a)                                                                            \
    do {                                                                                           \
        if ((s)->k->name.check(&(a)) != 0 || (s)->k->name.run((s)->q, &(a)) != 0)                  \
            tap_bail(#name);                                                                       \
    } while (0)
#define RUN_WITH_WORK(s, name, a)                                                                  \
    do {                                                                                           \
        (a).work_bytes = (s)->k->name.work(&(a), THREADS);                                         \
        struct op_buf work = op_alloc((a).work_bytes);                                             \
        (a).work = work.p;                                                                         \
        RUN(s, name, a);                                                                           \
        op_free(&work);                                                                            \
    } while (0)

static void *keep(struct set *s, struct op_buf b)
{
    if (s->n == BUFFERS)
        tap_bail("more than %d buffers", BUFFERS);
    s->buf[s->n++] = b;
    return b.p;
}
/* C leaves open in which order members of a list are made, so each says its seed. */
static void *input(struct set *s, uint64_t seed, int64_t n, int type)
{
    return keep(s, op_random(n, type, seed, 1.0));
}
/* Room for n floats that a call gives. */
static void *result(struct set *s, int64_t n)
{
    return keep(s, op_alloc((size_t)n * 4));
}
static void add(struct set *s, const void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, (const char *)p + 4 * i, 4);
        s->bits = (s->bits ^ u) * 0x100000001b3u;
    }
}
static void drop(struct set *s)
{
    while (s->n > 0)
        op_free(&s->buf[--s->n]);
}
static const int32_t *documents(struct set *s)
{
    int32_t *cu = keep(s, op_alloc((DOCS + 1) * 4));
    cu[0] = 0, cu[1] = 70, cu[2] = ROWS;
    return cu;
}

/* ---- the kernels ---- */

static void product(struct set *s, int type, bool ta)
{
    enum { M = 9, N = 40, K = 1100 };
    struct lf_k_gemm a = {.m = M,
                          .n = N,
                          .k = K,
                          .a = input(s, 1, M * K, type),
                          .b = input(s, 2, N * K, type),
                          .c = result(s, M * N),
                          .lda = ta ? M : K,
                          .ldb = ta ? N : K,
                          .ldc = N,
                          .ta = ta,
                          .tb = !ta,
                          .ab_type = (uint8_t)type,
                          .c_type = LF_F32,
                          .mode = LF_INVARIANT};
    RUN_WITH_WORK(s, gemm, a);
    add(s, a.c, M * N);
    drop(s);
}

static void products(struct set *s)
{
    for (int i = 0; i < 4; i++)
        product(s, i & 1 ? LF_BF16 : LF_F32, i & 2);
}

/* The backward has numbers of its own for lse, whose logarithm is the C library's. */
static void attention(struct set *s)
{
    enum { H = 2, D = 24 };
    struct lf_k_attn_fwd f = {.rows = ROWS,
                              .heads = H,
                              .groups = 1,
                              .d = D,
                              .d_value = D,
                              .n_docs = DOCS,
                              .q = input(s, 1, ROWS * H * D, LF_F32),
                              .k = input(s, 2, ROWS * D, LF_F32),
                              .v = input(s, 3, ROWS * D, LF_F32),
                              .o = result(s, ROWS * H * D),
                              .ldq = H * D,
                              .ldk = D,
                              .ldv = D,
                              .ldo = H * D,
                              .cu_seqlens = documents(s),
                              .scale = 0.2f,
                              .causal = true,
                              .x_type = LF_F32,
                              .mode = LF_INVARIANT};
    struct lf_k_attn_bwd b = {.rows = ROWS,
                              .heads = H,
                              .groups = 1,
                              .d = D,
                              .d_value = D,
                              .n_docs = DOCS,
                              .q = f.q,
                              .k = f.k,
                              .v = f.v,
                              .o = f.o,
                              .d_o = input(s, 4, ROWS * H * D, LF_F32),
                              .lse = input(s, 5, H * ROWS, LF_F32),
                              .dq = result(s, ROWS * H * D),
                              .dk = result(s, ROWS * D),
                              .dv = result(s, ROWS * D),
                              .ldq = H * D,
                              .ldk = D,
                              .ldv = D,
                              .ldo = H * D,
                              .lddo = H * D,
                              .lddq = H * D,
                              .lddk = D,
                              .lddv = D,
                              .cu_seqlens = f.cu_seqlens,
                              .scale = 0.2f,
                              .causal = true,
                              .x_type = LF_F32,
                              .mode = LF_INVARIANT};
    RUN_WITH_WORK(s, attn_fwd, f);
    RUN_WITH_WORK(s, attn_bwd, b);
    add(s, f.o, ROWS * H * D);
    add(s, b.dq, ROWS * H * D);
    add(s, b.dk, ROWS * D);
    add(s, b.dv, ROWS * D);
    drop(s);
}

static void norms(struct set *s)
{
    enum { C = 70 };
    struct lf_k_norm_fwd f = {.rows = ROWS,
                              .heads = 1,
                              .c = C,
                              .x = input(s, 1, ROWS * C, LF_F32),
                              .w = input(s, 2, C, LF_F32),
                              .y = result(s, ROWS * C),
                              .rstd = result(s, ROWS),
                              .ldx = C,
                              .ldy = C,
                              .eps = 1e-5f};
    struct lf_k_norm_bwd b = {.rows = ROWS,
                              .heads = 1,
                              .c = C,
                              .x = f.x,
                              .dy = input(s, 3, ROWS * C, LF_F32),
                              .w = f.w,
                              .rstd = f.rstd,
                              .dx = result(s, ROWS * C),
                              .dw = result(s, C),
                              .ldx = C,
                              .lddy = C,
                              .lddx = C};
    RUN(s, norm_fwd, f);
    RUN_WITH_WORK(s, norm_bwd, b);
    add(s, f.y, ROWS * C);
    add(s, b.dx, ROWS * C);
    add(s, b.dw, C);
    drop(s);
}

static void output_layer(struct set *s)
{
    enum { R = 40, K = 70, V = 600 };
    int32_t *target = keep(s, op_alloc(R * 4));
    for (int r = 0; r < R; r++)
        target[r] = r % 7 ? r * 13 : -1;
    struct lf_k_linear_xent a = {.rows = R,
                                 .k = K,
                                 .v = V,
                                 .v_real = V - 1,
                                 .x = input(s, 1, R * K, LF_F32),
                                 .w = input(s, 2, V * K, LF_F32),
                                 .target = target,
                                 .dx = result(s, R * K),
                                 .dw = result(s, V * K),
                                 .ldx = K,
                                 .ldw = K,
                                 .lddx = K,
                                 .x_type = LF_F32,
                                 .mode = LF_INVARIANT};
    RUN_WITH_WORK(s, linear_xent, a);
    add(s, a.dx, R * K);
    add(s, a.dw, V * K);
    drop(s);
}

static void convolution(struct set *s)
{
    enum { C = 70, TAPS = 4 };
    struct lf_k_conv_bwd a = {.rows = ROWS,
                              .c = C,
                              .taps = TAPS,
                              .n_docs = DOCS,
                              .ldx = C,
                              .lddy = C,
                              .lddx = C,
                              .x = input(s, 1, ROWS * C, LF_F32),
                              .dy = input(s, 2, ROWS * C, LF_F32),
                              .w = input(s, 3, C * TAPS, LF_F32),
                              .bias = input(s, 4, C, LF_F32),
                              .dx = result(s, ROWS * C),
                              .dw = result(s, C * TAPS),
                              .dbias = result(s, C),
                              .cu_seqlens = documents(s),
                              .act = LF_ACT_SILU,
                              .x_type = LF_F32};
    RUN(s, conv_bwd, a);
    add(s, a.dx, ROWS * C);
    add(s, a.dw, C * TAPS);
    add(s, a.dbias, C);
    drop(s);
}

/* More heads of a key head than a block of the CPU takes. */
static void scan(struct set *s, bool channel)
{
    enum { H = 5, DK = 20, DV = 24 };
    const int64_t width = channel ? H * DK : H;
    float *g = input(s, 1, ROWS * width, LF_F32), *beta = input(s, 2, ROWS * H, LF_F32);
    for (int64_t i = 0; i < ROWS * width; i++)
        g[i] = -0.2f - 0.2f * g[i];
    for (int64_t i = 0; i < ROWS * H; i++)
        beta[i] = 0.5f + 0.4f * beta[i];
    const struct lf_scan_in in = {.rows = ROWS,
                                  .heads = H,
                                  .groups = 1,
                                  .dk = DK,
                                  .dv = DV,
                                  .n_docs = DOCS,
                                  .ldq = DK,
                                  .ldk = DK,
                                  .ldv = H * DV,
                                  .ldg = width,
                                  .ldbeta = H,
                                  .q = input(s, 3, ROWS * DK, LF_F32),
                                  .k = input(s, 4, ROWS * DK, LF_F32),
                                  .v = input(s, 5, ROWS * H * DV, LF_F32),
                                  .g = g,
                                  .beta = beta,
                                  .cu_seqlens = documents(s),
                                  .scale = 0.4f,
                                  .unit_eps = 1e-6f,
                                  .delta = true,
                                  .per_channel = channel,
                                  .x_type = LF_F32,
                                  .mode = LF_INVARIANT};
    struct lf_k_scan_fwd f = {.in = in, .o = result(s, ROWS * H * DV), .ldo = H * DV};
    struct lf_k_scan_bwd b = {.in = in,
                              .d_o = input(s, 6, ROWS * H * DV, LF_F32),
                              .dq = result(s, ROWS * DK),
                              .dk = result(s, ROWS * DK),
                              .dv = result(s, ROWS * H * DV),
                              .dg = result(s, ROWS * width),
                              .dbeta = result(s, ROWS * H),
                              .lddo = H * DV,
                              .lddq = DK,
                              .lddk = DK,
                              .lddv = H * DV,
                              .lddg = width,
                              .lddbeta = H};
    RUN_WITH_WORK(s, scan_fwd, f);
    RUN_WITH_WORK(s, scan_bwd, b);
    add(s, f.o, ROWS * H * DV);
    add(s, b.dq, ROWS * DK);
    add(s, b.dk, ROWS * DK);
    add(s, b.dv, ROWS * H * DV);
    add(s, b.dg, ROWS * width);
    add(s, b.dbeta, ROWS * H);
    drop(s);
}

static void scans(struct set *s)
{
    scan(s, false);
    scan(s, true);
}

/* ---- what they are ---- */

static const struct {
    const char *name;
    void (*add)(struct set *s);
} kernels[] = {{"products", products},         {"attention", attention},     {"norms", norms},
               {"output layer", output_layer}, {"convolution", convolution}, {"scans", scans}};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* By instruction set, in the order of kernels[]. Those of AArch64 were seen under an emulator;
 * those of NEON are the same with any length of SVE's registers (tests/pack/arm.sh), and those of
 * SVE with 512 bits are AVX-512's, as seen on a processor. */
static const struct {
    const char *family;
    uint64_t bits[KERNELS];
} known[] = {{"cpu-plain",
              {0x60c10c474e108440, 0x4e2e176467d8dee1, 0xc71c6af193ed73cf, 0xafbf3d38c9e9d2de,
               0x2db9180aa9f42177, 0xe52ab14eb82effc2}},
             {"cpu-avx2",
              {0xa0cd2b9e8e6d6bec, 0x59f8298c7d8d1850, 0x9fdecfeac944a45b, 0xbf285d8a4ac0c236,
               0x14ef81dfd01ecd06, 0x5ec0bdb96e9d49f2}},
             {"cpu-avx512",
              {0xc66859df8c9fa9b8, 0xd14311bf37e9d6fd, 0xc12dfbb7870c9c35, 0x4d8b414d6518f0f9,
               0x14ef81dfd01ecd06, 0x987d6b9e547f8f48}},
             {"cpu-avx512bf16",
              {0xeb122866daf0d6d7, 0xd14311bf37e9d6fd, 0xc12dfbb7870c9c35, 0x4d8b414d6518f0f9,
               0x14ef81dfd01ecd06, 0x987d6b9e547f8f48}},
             {"cpu-neon",
              {0xa0cd2b9e8e6d6bec, 0xf988080b6a3d01f0, 0x6bf4c030a1d4ccae, 0x68878eed231b5e67,
               0x14ef81dfd01ecd06, 0x047faf9867834e50}},
             {"cpu-neonbf16",
              {0xa6693d984bc4f37b, 0xf988080b6a3d01f0, 0x6bf4c030a1d4ccae, 0x68878eed231b5e67,
               0x14ef81dfd01ecd06, 0x047faf9867834e50}},
             {"cpu-sve256bf16",
              {0x31e915a2cb35dffd, 0x59f8298c7d8d1850, 0x9fdecfeac944a45b, 0xcc3f6fd1aeacac86,
               0x14ef81dfd01ecd06, 0x5ec0bdb96e9d49f2}},
             {"cpu-sve512",
              {0xc66859df8c9fa9b8, 0xd14311bf37e9d6fd, 0xc12dfbb7870c9c35, 0x4d8b414d6518f0f9,
               0x14ef81dfd01ecd06, 0x987d6b9e547f8f48}}};

static const uint64_t *known_of(const char *family)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].family, family) == 0)
            return known[i].bits;
    return NULL;
}

static void test_bits(const struct lf_kernels *k)
{
    const uint64_t *want = known_of(k->family);
    if (!want) {
        tap_skip(KERNELS, "nobody has written the bits of this instruction set down");
        return;
    }
    lf_queue *q = op_queue_create(THREADS);
    for (int i = 0; i < KERNELS; i++) {
        struct set s = {.k = k, .q = q, .bits = 0xcbf29ce484222325u};
        kernels[i].add(&s);
        if (!tap_ok(s.bits == want[i], "%s, %s: the bits of version %d", k->family, kernels[i].name,
                    LF_KERNEL_VERSION))
            tap_diag("now 0x%016llx", (unsigned long long)s.bits);
    }
    op_queue_destroy(q);
}

int main(void)
{
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i))
            TAP(KERNELS, test_bits(op_kernels(i)));
    return tap_done();
}
