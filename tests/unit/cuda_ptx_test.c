/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter of PTX against small texts whose results follow from the manual by hand, and
 * texts that have to end it.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emu/run.h"
#include "tests/cuda/ptx/ptx.h"
#include "tests/tap/tap.h"

enum { WORDS = 4096, MOST = 64 };
static struct lf_cu cu;
static uint32_t *in, *out; /* WORDS each */

/* A kernel: %r1 thread, %rd1 in, %rd2 out, 1 KiB of shared memory sm; what is in %r0 at the end
 * becomes out[thread]. */
static const char head[] =
    ".version 9.0\n.target sm_90\n.address_size 64\n"
    ".const .align 4 .b8 table[8] = {1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff};\n"
    ".visible .entry k(\n\t.param .align 8 .b8 k_param_0[16]\n)\n.maxntid 64, 1, 1\n{\n"
    "\t.reg .pred %p<8>;\n\t.reg .b16 %h<8>;\n\t.reg .b32 %r<40>;\n\t.reg .f32 %f<16>;\n\t.reg "
    ".b64 %rd<8>;\n"
    "\t.shared .align 16 .b8 sm[1024];\n\t.local .align 8 .b8 mine[16];\n"
    "\tmov.u32 %r1, %tid.x;\n\tld.param.u64 %rd1, [k_param_0];\n\tld.param.u64 %rd2, "
    "[k_param_0+8];\n"
    "\tcvta.to.global.u64 %rd1, %rd1;\n\tmul.wide.u32 %rd3, %r1, 4;\n\tadd.s64 %rd2, %rd2, %rd3;\n";
static const char tail[] = "\tst.global.u32 [%rd2], %r0;\n\tret;\n}\n";

static void run(const char *body, unsigned threads)
{
    static int number;
    char path[4096];
    const uint32_t *args[2] = {in, out};
    snprintf(path, sizeof path, "%s/%d.ptx", tap_tmpdir(), number++);
    FILE *f = fopen(path, "w");
    if (!f)
        tap_bail("%s", path);
    fprintf(f, "%s%s%s", head, body, tail);
    fclose(f);
    lf_ptx_run(lf_ptx_kernel(path, "k", sizeof args), args, (struct lf_emu_uint3){1, 1, 1},
               (struct lf_emu_uint3){threads, 1, 1}, 0, 0);
}

/* One result for every thread. */
static const struct {
    const char *name, *body;
    uint32_t want;
} same[] = {
    {"prmt picks bytes", "prmt.b32 %r0, 0x12345678, 0x9abcdef0, 0x7531;", 0x9ade1256},
    {"prmt copies a sign", "prmt.b32 %r0, 0x12345678, 0x9abcdef0, 0x8f90;", 0x00ff0078},
    {"bfe", "bfe.u32 %r0, 0xabcd1234, 8, 12;", 0xd12},
    {"bfe with the field's sign", "bfe.s32 %r0, 0xabcd1234, 12, 8;", 0xffffffd1},
    {"bfi", "bfi.b32 %r0, 0xff, 0x80000001, 4, 8;", 0x80000ff1},
    {"shf.l", "shf.l.wrap.b32 %r0, 0x10000000, 0x22222222, 36;", 0x22222221},
    {"shf.r", "shf.r.wrap.b32 %r0, 0x10000000, 0x22222222, 4;", 0x21000000},
    {"lop3 as majority", "lop3.b32 %r0, 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0xe8;", 0xfcc0fcc0},
    {"mul.hi.s32", "mul.hi.s32 %r0, -2, 3;", 0xffffffff},
    {"mul.wide.s32",
     "mul.wide.s32 %rd4, -65536, 65536; shr.u64 %rd4, %rd4, 16; cvt.u32.u64 %r0, %rd4;",
     0xffff0000},
    {"div.s32 towards zero", "div.s32 %r0, -7, 2;", 0xfffffffd},
    {"rem.s32 has the dividend's sign", "rem.s32 %r0, -7, 2;", 0xffffffff},
    {"shl beyond the width", "mov.u32 %r2, 32; shl.b32 %r0, 1, %r2;", 0},
    {"shr.s32 beyond the width", "mov.u32 %r2, 40; shr.s32 %r0, -8, %r2;", 0xffffffff},
    {"copysign takes the sign of a", "copysign.f32 %f0, 0fBF800000, 0f40000000; mov.b32 %r0, %f0;",
     0xc0000000},
    {"max ignores a NaN", "max.f32 %f0, 0f7FC00000, 0f3F800000; mov.b32 %r0, %f0;", 0x3f800000},
    {"min of zeros", "min.f32 %f0, 0f00000000, 0f80000000; mov.b32 %r0, %f0;", 0x80000000},
    {"a NaN is 0x7fffffff", "sub.rn.f32 %f0, 0f7F800000, 0f7F800000; mov.b32 %r0, %f0;",
     0x7fffffff},
    {"fma rounds once", "fma.rn.f32 %f0, 0f3F800800, 0f3F800800, 0fBF801000; mov.b32 %r0, %f0;",
     0x33800000},
    {"fma.rm rounds down", "fma.rm.f32 %f0, 0f3F800000, 0f3F800000, 0fA0000000; mov.b32 %r0, %f0;",
     0x3f7fffff},
    {"add.rz rounds towards zero", "add.rz.f32 %f0, 0f3F800000, 0f33FFFFFF; mov.b32 %r0, %f0;",
     0x3f800000},
    {"denormals are kept", "mul.rn.f32 %f0, 0f00800000, 0f3F000000; mov.b32 %r0, %f0;", 0x00400000},
    {"ex2.approx.ftz of 3", "ex2.approx.ftz.f32 %f0, 0f40400000; mov.b32 %r0, %f0;", 0x41000000},
    {"ex2.approx.ftz flushes", "ex2.approx.ftz.f32 %f0, 0fC2FE0000; mov.b32 %r0, %f0;", 0},
    {"bf16x2: a above b", "cvt.rn.bf16x2.f32 %r0, 0f3F800000, 0f40000000;", 0x3f804000},
    {"bf16: ties to even", "cvt.rn.bf16x2.f32 %r0, 0f3F808000, 0f3F818000;", 0x3f803f82},
    {"f16x2: overflow, subnormal", "cvt.rn.f16x2.f32 %r0, 0f477FF000, 0f33800000;", 0x7c000001},
    {"e4m3x2: a above b, saturates",
     "cvt.rn.satfinite.e4m3x2.f32 %h0, 0f3F800000, 0fC4800000; cvt.u32.u16 %r0, %h0;", 0x38fe},
    {"e5m2x2", "cvt.rn.satfinite.e5m2x2.f32 %h0, 0f7F800000, 0f7FC00000; cvt.u32.u16 %r0, %h0;",
     0x7b7f},
    {"f32 to s32 clamps", "cvt.rzi.s32.f32 %r0, 0f4F800000;", 0x7fffffff},
    {"f32 to u32 of a negative", "cvt.rzi.u32.f32 %r0, 0fBF800000;", 0},
    {"NaN to s32", "cvt.rzi.s32.f32 %r0, 0f7FC00000;", 0},
    {"rni ties to even", "cvt.rni.s32.f32 %r0, 0f40200000;", 2},
    {"s8 of a wider register", "mov.u32 %r2, 0x1ff; cvt.s32.s8 %r0, %r2;", 0xffffffff},
    {"sat of a NaN", "cvt.sat.f32.f32 %f0, 0f7FC00000; mov.b32 %r0, %f0;", 0},
    {"setp.ltu with a NaN", "setp.ltu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r0, 1, 2, %p1;",
     1},
    {"setp.ne with a NaN", "setp.ne.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r0, 1, 2, %p1;", 2},
    {"halves of a register",
     "mov.u32 %r2, 0x11112222; mov.b32 {%h0, %h1}, %r2; mov.b32 %r0, {%h1, %h0};", 0x22221111},
    {"constant memory", "ld.const.s8 %r0, [table+4];", 0xfffffffe},
    {"generic address of an argument",
     "mov.b64 %rd4, k_param_0; cvta.param.u64 %rd4, %rd4; ld.u64 %rd5, [%rd4]; setp.eq.s64 %p1, "
     "%rd5, %rd1; selp.b32 "
     "%r0, 1, 0, %p1;",
     1},
    {"a byte of no consequence",
     "prmt.b32 %r2, 0x12345678, %r3, 0x7654; prmt.b32 %r2, 0x12345678, %r3, 0x7640; and.b32 %r0, "
     "%r2, 255;",
     0x78},
    {"local memory of each thread",
     "mov.b64 %rd4, mine; cvta.local.u64 %rd5, %rd4; st.local.u32 [mine+8], %r1; ld.u32 %r2, "
     "[%rd5+8]; sub.s32 %r0, "
     "%r2, %r1;",
     0},
    {"a negative 32-bit address and its displacement",
     "st.shared.u32 [sm], 7; mov.u32 %r2, sm; add.s32 %r2, %r2, -64; ld.shared.u32 %r0, [%r2+64];",
     7},
};

/* By thread. */
static uint32_t wants_reverse(unsigned t)
{
    return 63 - t;
}
static uint32_t wants_bfly(unsigned t)
{
    return t ^ 5;
}
static uint32_t wants_up(unsigned t)
{
    return t % 32 < 2 ? t | 256 : t - 2;
}
static uint32_t wants_segment(unsigned t)
{
    return (t & ~3u) + 1;
}
static uint32_t wants_loop(unsigned t)
{
    return t * (t + 1) / 2 + 1000 * (t % 32 < 16 ? 0x0000ffff % 251 : 0xffff0000 % 251);
}
static uint32_t wants_cases(unsigned t)
{
    static const uint32_t r[] = {10, 21, 32};
    return r[t % 3];
}
static uint32_t wants_match(unsigned t)
{
    uint32_t r = 0;
    for (unsigned l = t % 5; l < 32; l += 5)
        r |= 1u << l;
    return t < 32 ? r : ~0u;
}
static uint32_t wants_sum(unsigned t)
{
    (void)t;
    return 64 * 63 / 2;
}
static const struct {
    const char *name, *body;
    uint32_t (*want)(unsigned thread);
} each[] = {
    {"a block exchanges through shared memory",
     "shl.b32 %r2, %r1, 2; mov.u32 %r3, sm; add.s32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1; "
     "bar.sync 0; sub.s32 %r5, "
     "%r3, %r2; "
     "ld.shared.u32 %r0, [%r5+252];",
     wants_reverse},
    {"shfl.bfly", "shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;", wants_bfly},
    {"shfl.up at the edge", "shfl.sync.up.b32 %r0|%p1, %r1, 2, 0, -1; @!%p1 or.b32 %r0, %r0, 256;",
     wants_up},
    {"shfl.idx in segments of four", "shfl.sync.idx.b32 %r0, %r1, 1, 0x1c1f, -1;", wants_segment},
    {"lanes loop apart and meet",
     "mov.u32 %r0, 0; mov.u32 %r2, %r1;\nAGAIN: setp.eq.s32 %p1, %r2, 0; @%p1 bra DONE; add.s32 "
     "%r0, %r0, %r2; add.s32 "
     "%r2, %r2, -1; bra AGAIN;\n"
     "DONE: and.b32 %r3, %r1, 16; setp.eq.s32 %p2, %r3, 0; @%p2 bra LOW; vote.sync.ballot.b32 %r4, "
     "1, 0xffff0000; "
     "bra.uni END;\n"
     "LOW: vote.sync.ballot.b32 %r4, 1, 0x0000ffff;\nEND: bar.warp.sync -1; rem.u32 %r4, %r4, 251; "
     "mad.lo.s32 %r0, "
     "%r4, 1000, %r0;",
     wants_loop},
    {"an indexed branch",
     "rem.u32 %r2, %r1, 3;\nT: .branchtargets A, B, C;\nbrx.idx %r2, T;\nA: mov.u32 %r0, 10; bra "
     "E;\nB: mov.u32 %r0, "
     "21; bra E;\nC: mov.u32 %r0, 32;\nE:",
     wants_cases},
    {"match.any among those that are there",
     "mov.u32 %r0, -1; setp.ge.s32 %p1, %r1, 32; @%p1 bra E; rem.u32 %r2, %r1, 5; "
     "match.any.sync.b32 %r0, %r2, -1;\nE:",
     wants_match},
    {"atom adds all threads",
     "setp.ne.s32 %p1, %r1, 0; @%p1 bra Z; st.shared.u32 [sm], 0;\nZ: bar.sync 0; "
     "red.shared.add.u32 [sm], %r1; "
     "bar.sync 0; ld.shared.u32 %r0, [sm];",
     wants_sum},
};

/* What has to end the process, and with which words. */
static const struct {
    const char *name, *body, *words;
} wrong[] = {
    {"an unknown instruction", "frobnicate.u32 %r0, 1;", "does not know frobnicate.u32"},
    {"an unknown form", "add.sat.s32 %r0, 1, 2;", "does not know add.sat.s32"},
    {"a rounding that is not done", "add.rm.f32 %f0, 0f3F800000, 0f3F800000;",
     "does not know add.rm.f32"},
    {"a misaligned access", "ld.global.u32 %r0, [%rd1+2];", "no multiple"},
    {"beyond an allocation", "ld.global.u32 %r0, [%rd1+16384];", "which is in no allocation"},
    {"beyond shared memory", "ld.shared.u32 %r0, [sm+1024];", "shared memory"},
    {"beyond the arguments", "ld.param.u32 %r0, [k_param_0+16];", "arguments"},
    {"beyond local memory", "ld.local.u32 %r0, [mine+16];", "local memory"},
    {"a stored value that nobody wrote",
     "setp.ge.s32 %p1, %r1, 64; @%p1 mov.u32 %r2, 1; add.s32 %r0, %r2, 1;", "never written"},
    {"a branch that nobody decided",
     "mov.u32 %r0, 0; setp.ge.s32 %p2, %r1, 64; @%p2 mov.pred %p1, 1; @%p1 bra E;\nE:",
     "never written"},
    {"half a block at a barrier", "mov.u32 %r0, 0; setp.lt.s32 %p1, %r1, 32; @%p1 bar.sync 0;",
     "not all threads"},
    {"half a warp at a barrier", "mov.u32 %r0, 0; setp.lt.s32 %p1, %r1, 7; @%p1 bar.sync 0;",
     "do not reach"},
    {"half a warp at a shuffle",
     "mov.u32 %r0, 0; setp.lt.s32 %p1, %r1, 7; @!%p1 bra E; shfl.sync.bfly.b32 %r0, %r1, 1, 31, "
     "-1;\nE: bar.sync 0;",
     "not all lanes"},
    {"a lane that the mask does not name", "shfl.sync.bfly.b32 %r0, %r1, 1, 31, 0xffff;",
     "member mask"},
    {"a copy that nobody waits for",
     "mov.u32 %r0, 0; mov.u32 %r2, sm; cp.async.cg.shared.global [%r2], [%rd1], 16;",
     "nobody waited"},
    {"a division by zero", "div.u32 %r0, %r1, 0;", "division by zero"},
};

static void run_hopper(int which);

/* A body, or a text of those for Hopper, ends the process with these words. */
static bool dies(const char *body, int which, const char *words)
{
    int fd[2], status;
    char text[2048];
    fflush(NULL);
    if (pipe(fd))
        tap_bail("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        if (body)
            run(body, MOST);
        else
            run_hopper(which);
        _exit(0);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t r; (r = read(fd[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)r;
    text[n] = '\0';
    close(fd[0]);
    waitpid(pid, &status, 0);
    if (!strstr(text, words))
        tap_diag("%s", text);
    return !WIFEXITED(status) && strstr(text, words) != NULL;
}

static uint16_t bf16_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)(u >> 16);
}

/* A matrix product of small integers: A by rows and B by columns in global memory, through shared
 * memory and ldmatrix, to C by rows. */
static const char product[] =
    /* 32 lanes copy 16 bytes each of A (16 x 16) to sm, and of B's columns (8 x 16) the first 16
     * lanes to sm + 512 */
    "shl.b32 %r2, %r1, 4; mov.u32 %r3, sm; add.s32 %r4, %r3, %r2; cvt.u64.u32 %rd4, %r2; add.s64 "
    "%rd4, %rd1, %rd4;\n"
    "cp.async.cg.shared.global [%r4], [%rd4], 16; setp.lt.s32 %p1, %r1, 16;\n"
    "@%p1 cp.async.cg.shared.global [%r4+512], [%rd4+512], 16;\n"
    "cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1;\n"
    /* matrices of A: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15: lane l gives row l %
     * 16, column 8 (l / 16)
     */
    "and.b32 %r5, %r1, 15; shl.b32 %r5, %r5, 5; and.b32 %r6, %r1, 16; add.s32 %r5, %r5, %r6; "
    "add.s32 %r5, %r5, %r3;\n"
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];\n"
    /* of B: columns as rows of 8: lanes 0-7 k 0-7, lanes 8-15 k 8-15 */
    "and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 5; and.b32 %r8, %r1, 8; shl.b32 %r8, %r8, 1; add.s32 "
    "%r7, %r7, %r8; "
    "add.s32 %r7, %r7, %r3;\n"
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r14, %r15}, [%r7+512];\n"
    "mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;\n"
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, {%r10, %r11, %r12, "
    "%r13}, {%r14, %r15}, "
    "{%f0, %f1, %f2, %f3};\n"
    /* C: lane l has row l / 4, columns 2 (l % 4), + 1, and the same of row l / 4 + 8: word 8 row +
     * column = 2 l */
    "add.s64 %rd2, %rd2, %rd3; st.global.v2.f32 [%rd2], {%f4, %f5}; st.global.v2.f32 [%rd2+256], "
    "{%f6, %f7}; "
    "ld.global.u32 %r0, [%rd2];";

static void test_product(void)
{
    uint16_t *a = (uint16_t *)(void *)in, *b = a + 256;
    float got[128];
    int bad = 0;
    for (int k = 0; k < 256; k++)
        a[k] = bf16_of((float)((k * 7 + k / 16) % 23 - 11));
    for (int k = 0; k < 128; k++)
        b[k] = bf16_of((float)((k * 5 + k / 16) % 19 - 9));
    run(product, 32);
    memcpy(got, out, sizeof got);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            float want = 1;
            for (int k = 0; k < 16; k++) {
                const int x = r * 16 + k, y = c * 16 + k;
                want += (float)((x * 7 + x / 16) % 23 - 11) * (float)((y * 5 + y / 16) % 19 - 9);
            }
            bad += got[8 * r + c] != want;
        }
    tap_ok(!bad, "ldmatrix and mma make the product (%d of 128 elements differ)", bad);
}

/* ---- Hopper: a product of a warpgroup, 64 x 16 x 64, whose tiles the copy engine brings ---- */

struct hopper {
    struct lf_cu_tensor_map a, b;
    float *out;
    uint64_t unused[15];
};
/* %r20: where A's tile stands, aligned; B's is 8192 bytes on, the barrier 2048 more. */
static const char hopper_head[] =
    ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 sm[];\n"
    ".visible .entry k(\n\t.param .align 128 .b8 k_param_0[384]\n)\n{\n\t.reg .pred %p<8>;\n\t.reg "
    ".b32 "
    "%r<40>;\n\t.reg .f32 %f<8>;\n"
    "\t.reg .b64 %rd<20>;\n\tmov.u32 %r1, %tid.x; mov.u32 %r20, sm; add.s32 %r20, %r20, 1023; "
    "and.b32 %r20, %r20, "
    "-1024;\n"
    "add.s32 %r21, %r20, 8192; add.s32 %r22, %r20, 10240; mov.b64 %rd1, k_param_0; cvta.param.u64 "
    "%rd1, %rd1; add.s64 "
    "%rd2, %rd1, 128;\n"
    "setp.ne.s32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared::cta.b64 [%r22], 1; "
    "fence.mbarrier_init.release.cluster;\nREADY: bar.sync 0;\n"
    "mov.u32 %r2, 0; @%p1 bra WAIT;\n";
static const char hopper_tail[] =
    /* descriptors: the swizzle, 1024 bytes from eight rows to eight rows, addresses / 16 */
    "shr.u32 %r3, %r20, 4; cvt.u64.u32 %rd4, %r3; or.b64 %rd4, %rd4, 0x4000004000010000; add.s64 "
    "%rd5, %rd4, 512; "
    "setp.ne.b32 %p3, 0, 0;\n"
    "mov.u32 %r4, 0; setp.eq.s32 %p4, %r4, 0;\n";
static const char hopper_out[] =
    /* rows 16 warp + lane / 4 (+ 8), columns 2 (lane % 4), + 1 (+ 8) */
    "ld.param.u64 %rd6, [k_param_0+256]; shr.u32 %r5, %r1, 5; shl.b32 %r5, %r5, 4; and.b32 %r6, "
    "%r1, 31; shr.u32 %r7, "
    "%r6, 2; add.s32 %r5, %r5, %r7;\n"
    "shl.b32 %r5, %r5, 6; and.b32 %r7, %r6, 3; shl.b32 %r7, %r7, 3; add.s32 %r5, %r5, %r7; "
    "cvt.u64.u32 %rd7, %r5; "
    "add.s64 %rd6, %rd6, %rd7;\n"
    "st.global.v2.f32 [%rd6], {%f0, %f1}; st.global.v2.f32 [%rd6+512], {%f2, %f3}; "
    "st.global.v2.f32 [%rd6+32], {%f4, "
    "%f5};\n"
    "st.global.v2.f32 [%rd6+544], {%f6, %f7}; ret;\n}\n";
#define EXPECT "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r22], 10240;\n"
#define TILE   "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
#define TILES                                                                                      \
    TILE "[%r20], [%rd1, {%r2, %r2}], [%r22];\n" TILE "[%r21], [%rd2, {%r2, %r2}], [%r22];\n"
#define ARRIVE "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r22], 0; @!%p2 bra WAIT;\n"
#define FENCE  "wgmma.fence.sync.aligned;\n"
#define STEP(scale)                                                                                \
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, "    \
    "%f7}, %rd4, "                                                                                 \
    "%rd5, " scale ", 1, 1, 0, 0; add.s64 %rd4, %rd4, 2; add.s64 %rd5, %rd5, 2;\n"
#define STEPS STEP("%p3") STEP("%p4") STEP("%p4") STEP("%p4")
#define ENDS  "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"

static const struct {
    const char *name, *before, *after, *words; /* words NULL: it works */
} hopper[] = {
    {"tiles and a product of a warpgroup", EXPECT TILES ARRIVE, FENCE STEPS ENDS, NULL},
    {"sums that are read before the wait", EXPECT TILES ARRIVE,
     FENCE STEPS "wgmma.commit_group.sync.aligned;", "never written"},
    {"no fence before the first product", EXPECT TILES ARRIVE, STEPS ENDS,
     "before any wgmma.fence"},
    {"more bytes than come",
     "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r22], 10256;" TILES ARRIVE, FENCE STEPS ENDS,
     "nothing ends"},
    {"a barrier without a thread's arrival", TILES ARRIVE, FENCE STEPS ENDS, "nothing ends"},
    {"a tile that nobody waits for", EXPECT TILES "WAIT:", "ret;", "nobody waited"},
    {"half the warpgroup", EXPECT TILES ARRIVE "setp.ge.s32 %p5, %r1, 64; @%p5 ret;",
     FENCE STEPS ENDS "ret;", "fewer products"},
};

static int hopper_value(int row, int k)
{
    return (row * 5 + k * 3 + row * k) % 15 - 7;
}

static void run_hopper(int which)
{
    char path[4096];
    static struct hopper h;
    const uint32_t box_a[2] = {64, 64}, box_b[2] = {64, 16}, steps[2] = {1, 1};
    const uint64_t dim_a[2] = {64, 64}, dim_b[2] = {64, 16}, pitch = 128;
    uint16_t *a = (uint16_t *)(void *)in;
    for (int r = 0; r < 80; r++)
        for (int k = 0; k < 64; k++)
            a[64 * r + k] = bf16_of((float)hopper_value(r, k));
    if (cu.TensorMapEncodeTiled(&h.a, LF_CU_TENSOR_BF16, 2, a, dim_a, &pitch, box_a, steps, 0,
                                LF_CU_TENSOR_SWIZZLE_128B, 3, 0) ||
        cu.TensorMapEncodeTiled(&h.b, LF_CU_TENSOR_BF16, 2, a + 64 * 64, dim_b, &pitch, box_b,
                                steps, 0, LF_CU_TENSOR_SWIZZLE_128B, 3, 0))
        tap_bail("no tensor map");
    h.out = (float *)(void *)out;
    snprintf(path, sizeof path, "%s/hopper%d.ptx", tap_tmpdir(), which);
    FILE *f = fopen(path, "w");
    if (!f)
        tap_bail("%s", path);
    fprintf(f, "%s%s%s%s%s", hopper_head, hopper[which].before, hopper_tail, hopper[which].after,
            hopper_out);
    fclose(f);
    lf_ptx_run(lf_ptx_kernel(path, "k", sizeof h), &h, (struct lf_emu_uint3){1, 1, 1},
               (struct lf_emu_uint3){128, 1, 1}, 12 << 10, 0);
}

static void test_hopper(void)
{
    const float *got = (const float *)(const void *)out;
    int bad = 0;
    run_hopper(0);
    for (int r = 0; r < 64; r++)
        for (int c = 0; c < 16; c++) {
            int want = 0;
            for (int k = 0; k < 64; k++)
                want += hopper_value(r, k) * hopper_value(64 + c, k);
            bad += got[16 * r + c] != (float)want;
        }
    tap_ok(!bad, "%s (%d of 1024 elements differ)", hopper[0].name, bad);
    for (int i = 1; i < (int)(sizeof hopper / sizeof *hopper); i++)
        tap_ok(dies(NULL, i, hopper[i].words), "ends: %s", hopper[i].name);
}

static void test_tables(void)
{
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        run(same[i].body, 33);
        uint32_t bad = 0;
        for (int t = 0; t < 33; t++)
            bad += out[t] != same[i].want;
        tap_ok(!bad, "%s (0x%08x, wanted 0x%08x)", same[i].name, out[0], same[i].want);
    }
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        run(each[i].body, MOST);
        unsigned t = 0;
        while (t < MOST && out[t] == each[i].want(t))
            t++;
        tap_ok(t == MOST, "%s", each[i].name);
        if (t < MOST)
            tap_diag("thread %u: 0x%08x, wanted 0x%08x", t, out[t], each[i].want(t));
    }
}

static void test_wrong(void)
{
    run("mov.u32 %r2, sm; cp.async.cg.shared.global [%r2], [%rd1], 16; ld.shared.u32 %r0, [%r2]; "
        "cp.async.wait_all;",
        1);
    tap_ok(out[0] == 0xffffffffu, "a copy that is under way reads as NaN");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        tap_ok(dies(wrong[i].body, 0, wrong[i].words), "ends: %s", wrong[i].name);
}

int main(void)
{
    lf_cu_ptr p;
    lf_cu_context context;
    lf_emu_driver(&cu);
    if (cu.PrimaryCtxRetain(&context, 0) || cu.CtxSetCurrent(context))
        tap_bail("no context");
    if (cu.MemAlloc(&p, WORDS * 4))
        tap_bail("no memory");
    in = (uint32_t *)(uintptr_t)p;
    if (cu.MemAlloc(&p, WORDS * 4))
        tap_bail("no memory");
    out = (uint32_t *)(uintptr_t)p;
    memset(in, 0, WORDS * 4);
    TAP(sizeof same / sizeof *same + sizeof each / sizeof *each, test_tables());
    TAP(1, test_product());
    TAP(7, test_hopper());
    TAP(1 + sizeof wrong / sizeof *wrong, test_wrong());
    cu.MemFree((lf_cu_ptr)(uintptr_t)in);
    cu.MemFree((lf_cu_ptr)(uintptr_t)out);
    return tap_done();
}
