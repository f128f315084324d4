/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's twins of Hopper's pieces (kernels/cuda/dev_hopper.h): a product of 64 x 16 whose
 * operands pass by the copy engine through one stage comes out right in both layouts, and each
 * planted bug shows, as a message or as a wrong number. What the driver refuses to describe.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emu/twin.h"

#include "engine/base/f16.h"
#include "kernels/cuda/dev_hopper.h"
#include "tests/cuda/emu/run.h"
#include "tests/op/op_test.h"

enum { M = 64, N = 16, K = 192, BK = 64, STAGE = (M + 64) * BK * 2, SMEM = 1024 + STAGE + 64 };
enum bug {
    NONE,
    NO_EXPECT,
    EXPECTS_LESS,
    PRODUCER_PARITY,
    CONSUMER_PARITY,
    BACK_TOO_EARLY,
    NO_FULL_WAIT,
    NO_EMPTY_WAIT,
    NO_WAIT,
    NO_FENCE,
    NO_COMMIT,
    NO_INIT_FENCE,
    UNALIGNED,
    OVERWRITTEN,
    LANES_DIFFER,
    WARPS_DIFFER,
    TOO_MANY_READERS,
    ONE_COPY_MORE,
    BUGS
};
static const char *const bug_name[BUGS] = {
    "none",
    "bytes are not announced",
    "too few bytes are announced",
    "the producer waits for the wrong phase",
    "the consumer waits for the wrong phase",
    "a stage is given back before its products were waited for",
    "a stage is read without waiting",
    "a stage is filled without waiting",
    "sums are read without waiting",
    "no fence before products",
    "products are not committed",
    "the barriers' initialisation is not fenced",
    "tiles are no multiples of 1024 bytes",
    "a barrier is overwritten",
    "a lane gives another descriptor",
    "a warp gives another descriptor",
    "a stage is given back more often than its barrier expects",
    "a copy that nobody waits for"};

struct args {
    struct lf_cu_tensor_map a, b;
    float *out;
    enum bug bug;
    bool a_lanes, b_lanes;
};

static void bring(const struct args *a, unsigned char *stage, uint64_t *full, uint64_t *empty)
{
    for (int k = 0, turn = 0; k < K; k += BK, turn ^= 1) {
        if (a->bug != NO_EMPTY_WAIT)
            lf_mbar_wait(empty, (unsigned)(turn ^ (a->bug != PRODUCER_PARITY)));
        if (a->bug == NO_EXPECT)
            lf_mbar_arrive(full);
        else
            lf_mbar_arrive_expect(full, a->bug == EXPECTS_LESS ? STAGE - 128 : STAGE);
        lf_tma_2d(stage, &a->a, a->a_lanes ? 0 : k, a->a_lanes ? k : 0, full);
        lf_tma_2d(stage + M * BK * 2, &a->b, a->b_lanes ? 0 : k, a->b_lanes ? k : 0, full);
        if (a->bug == ONE_COPY_MORE && k + BK >= K)
            lf_tma_2d(stage, &a->a, 0, 0, full);
    }
}

static uint64_t descriptor(const unsigned char *tile, int ks, bool lanes)
{
    return LF_WG_DESC(lf_smem_addr(tile) + (lanes ? ks * 16 * 128 : ks * 32), 64 * BK * 2, 1024);
}

static void multiply(const struct args *a, unsigned char *stage, uint64_t *full, uint64_t *empty)
{
    const int t = (int)threadIdx.x;
    float d[8];
    for (int i = 0; i < 8; i++)
        d[i] = 0;
    for (int k = 0, turn = 0; k < K; k += BK, turn ^= 1) {
        const unsigned char *from = stage + (a->bug == LANES_DIFFER && t == 3        ? 32
                                             : a->bug == WARPS_DIFFER && t / 32 == 2 ? 1024
                                                                                     : 0);
        if (a->bug != NO_FULL_WAIT)
            lf_mbar_wait(full, (unsigned)(turn ^ (a->bug == CONSUMER_PARITY)));
        if (a->bug != NO_FENCE)
            lf_wgmma_fence();
        for (int ks = 0; ks < BK / 16; ks++)
            lf_wgmma_16(d, descriptor(from, ks, a->a_lanes),
                        descriptor(stage + M * BK * 2, ks, a->b_lanes), k + ks > 0, a->a_lanes,
                        a->b_lanes, LF_BF16);
        if (a->bug != NO_COMMIT)
            lf_wgmma_commit();
        if (a->bug == BACK_TOO_EARLY && t % 32 == 0)
            lf_mbar_arrive(empty);
        if (a->bug != NO_WAIT || k + BK < K)
            lf_wgmma_wait(0);
        for (int i = 0;
             i <
             (a->bug == TOO_MANY_READERS && t == 0 ? 3 : a->bug != BACK_TOO_EARLY && t % 32 == 0);
             i++)
            lf_mbar_arrive(empty);
    }
    for (int i = 0; i < 8; i++)
        a->out[(16 * (t / 32) + t % 32 / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + t % 4 * 2 + i % 2] =
            d[i];
}

static void kernel(const void *args)
{
    const struct args *a = args;
    LF_SHARED(unsigned char, smem);
    unsigned char *stage =
        smem + (1024 - lf_smem_addr(smem) % 1024) % 1024 + (a->bug == UNALIGNED ? 128 : 0);
    uint64_t *full = (uint64_t *)(void *)(smem + 1024 + STAGE), *empty = full + 1;
    if (threadIdx.x == 0) {
        lf_mbar_init(full, 1);
        lf_mbar_init(empty, 4);
        if (a->bug == OVERWRITTEN)
            *empty = 0;
        if (a->bug != NO_INIT_FENCE)
            lf_mbar_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == LF_WG)
        bring(a, stage, full, empty);
    else if (threadIdx.x < LF_WG)
        multiply(a, stage, full, empty);
}

static uint16_t A[M * K], B[N * K];
static float out[M * N], want[M * N];
static struct lf_cu cu;

static struct lf_cu_tensor_map map_of(uint16_t *p, int lanes, bool by_lanes)
{
    struct lf_cu_tensor_map m;
    const uint64_t dims[2] = {(uint64_t)(by_lanes ? lanes : K), (uint64_t)(by_lanes ? K : lanes)},
                   stride = dims[0] * 2;
    const uint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    if (cu.TensorMapEncodeTiled(&m, LF_CU_TENSOR_BF16, 2, p, dims, &stride, box, steps, 0,
                                LF_CU_TENSOR_SWIZZLE_128B, LF_CU_TENSOR_L2_256B, 0))
        tap_bail("a tensor map is refused");
    return m;
}

static void fill(bool a_lanes, bool b_lanes)
{
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < M; i++)
            A[a_lanes ? k * M + i : i * K + k] = op_to_bf16((i * 7 + k * 3) % 17 - 8);
        for (int j = 0; j < N; j++)
            B[b_lanes ? k * N + j : j * K + k] = op_to_bf16((j * 5 + k * 11) % 13 - 6);
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            want[i * N + j] = 0;
            for (int k = 0; k < K; k++)
                want[i * N + j] +=
                    (float)((i * 7 + k * 3) % 17 - 8) * (float)((j * 5 + k * 11) % 13 - 6);
        }
}

static bool right(enum bug bug, bool a_lanes, bool b_lanes)
{
    struct args a = {.out = out, .bug = bug, .a_lanes = a_lanes, .b_lanes = b_lanes};
    fill(a_lanes, b_lanes);
    a.a = map_of(A, M, a_lanes);
    a.b = map_of(B, N, b_lanes);
    memset(out, 0, sizeof out);
    lf_emu_run("kernel", kernel, &a, (struct lf_emu_uint3){1, 1, 1},
               (struct lf_emu_uint3){160, 1, 1}, SMEM);
    return !memcmp(out, want, sizeof out);
}

/* Right in a process of its own, whose threads run in that order (LF_EMU_ORDER): not when it
 * dies. */
static bool right_apart(enum bug bug, const char *order, bool a_lanes, bool b_lanes)
{
    fflush(NULL);
    const pid_t p = fork();
    if (p == 0) {
        setenv("LF_EMU_ORDER", order, 1);
        if (bug && !freopen("/dev/null", "w", stderr))
            _exit(2);
        _exit(right(bug, a_lanes, b_lanes) ? 0 : 1);
    }
    int status;
    return p > 0 && waitpid(p, &status, 0) == p && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int describe(uint64_t width, uint64_t rows, uint64_t stride, uint32_t box0, uint32_t box1,
                    unsigned shift)
{
    struct lf_cu_tensor_map m;
    const uint64_t dims[2] = {width, rows};
    const uint32_t box[2] = {box0, box1}, steps[2] = {1, 1};
    static uint16_t p[64] __attribute__((aligned(16)));
    return cu.TensorMapEncodeTiled(&m, LF_CU_TENSOR_F16, 2, p + shift, dims, &stride, box, steps, 0,
                                   LF_CU_TENSOR_SWIZZLE_128B, LF_CU_TENSOR_L2_256B, 0);
}

static void test_tiles(void)
{
    for (int order = 0; order < 4; order++)
        for (int i = 0; i < 4; i++)
            tap_ok(right_apart(NONE, (const char *[]){"0", "1", "2", "3"}[order], i & 1, i & 2),
                   "a product of tiles, lanes along the row: a %d, b %d; threads in order %d",
                   i & 1, i / 2, order);
    for (int b = NONE + 1; b < BUGS; b++)
        tap_ok(!right_apart((enum bug)b, "0", false, false), "%s: it shows", bug_name[b]);
}

static void test_descriptions(void)
{
    tap_ok(!describe(5, 3, 16, 64, 256, 0), "a matrix of 3 rows of 5, 16 bytes apart");
    tap_ok(describe(5, 3, 10, 64, 64, 0) && describe(5, 3, 16, 64, 64, 1) &&
               describe(0, 3, 16, 64, 64, 0) && describe(5, 0, 16, 64, 64, 0) &&
               describe(5, 3, 16, 72, 64, 0) && describe(5, 3, 16, 64, 257, 0) &&
               describe(5, 3, 16, 0, 64, 0) && describe(5, 3, 16, 5, 64, 0) &&
               describe(5, 3, (uint64_t)1 << 40, 64, 64, 0),
           "refused: rows or start no multiple of 16 bytes, nothing, boxes wider than the swizzle "
           "or higher than 256, rows too far apart");
}

int main(void)
{
    lf_cu_context context;
    lf_emu_driver(&cu);
    if (cu.PrimaryCtxRetain(&context, 0) || cu.CtxSetCurrent(context))
        tap_bail("no context");
    TAP(16 + BUGS - NONE - 1, test_tiles());
    TAP(2, test_descriptions());
    return tap_done();
}
