/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of a block as fibers: a stack each, switched by hand where the processor is known and by
 * ucontext elsewhere. The scheduler runs every thread up to its next barrier, in the order that
 * LF_EMU_ORDER asks for: one pass over all of them. A thread that waits switches to the next one
 * of the pass, and the last one to the scheduler, which opens barriers. Where threads are not
 * drawn, the last lane of a warp opens the warp's own and the pass goes back to its first: a warp
 * runs as far as it needs no other, on stacks that the cache still has, and reads before others
 * have written where a barrier of the block is missing. States stand side by side and are counted
 * as they change, since a pass of a block of 1024 threads is the inner loop of every test with a
 * GPU. A thread that ends leaves its stack to one that has not begun, which needs no switch: a
 * kernel without barriers runs on one stack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "tests/cuda/emu/hopper.h"
#include "tests/cuda/emu/run.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 96 << 10, MAX_THREADS = 1024, WARP = 32, SLOT = 64, MAX_COPIES = 64 };
enum state { READY, AT_BLOCK, AT_WARP, AT_EVENT, DONE, STATES };

struct copy {
    void *dst;
    const void *src;
    bool ok;
    int group; /* number of the commit that closed it, -1: open */
};

struct fiber {
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    char *stack;
    size_t stack_bytes;
    unsigned index;
    struct lf_emu_uint3 thread; /* its place in the block */
    int n_copies, groups;
    bool (*ready)(const void *what); /* AT_EVENT */
    const void *what;
    void *fake_stack; /* AddressSanitizer's */
};

struct lf_emu_view lf_emu;

static struct {
    struct fiber f[MAX_THREADS];
    struct copy copy[MAX_THREADS][MAX_COPIES];
    unsigned char state[MAX_THREADS];
    bool fresh[MAX_THREADS];                                             /* has not begun */
    unsigned in[STATES];                                                 /* threads in a state */
    unsigned char at_warp[MAX_THREADS / WARP], live[MAX_THREADS / WARP]; /* of a warp's lanes */
    unsigned order[MAX_THREADS], n;
    unsigned k;                 /* of order[]: the next thread of this pass */
    int ordered;                /* order[] is that of LF_EMU_ORDER=ordered - 1; 0: of nothing */
    struct fiber *now, *before; /* before: who switched to it */
    struct fiber main;
    /* what lanes gave, double so that a fast lane cannot overwrite */
    unsigned char slot[MAX_THREADS / WARP][2][WARP * SLOT];
    unsigned char turn[MAX_THREADS];
    const char *name;
    void (*entry)(const void *);
    const void *args;
    uint32_t shuffle;
} emu;

_Noreturn void lf_emu_fail(const char *what)
{
    fprintf(stderr, "cuda emulator: %s: %s (block %u, %u, %u)\n", emu.name, what, lf_emu.block.x,
            lf_emu.block.y, lf_emu.block.z);
    abort();
}

/* ---- switching ---- */

#ifdef __x86_64__
/* Saves the registers that a call preserves on the stack, stores it in *from, continues on `to`. */
__attribute__((visibility("hidden"))) void lf_emu_switch(void **from, void *to);
__asm__(".text\n.globl lf_emu_switch\n.hidden lf_emu_switch\n.type lf_emu_switch, "
        "@function\nlf_emu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size lf_emu_switch, . - lf_emu_switch\n");
#endif

static void prepare(struct fiber *f);

static void jump(struct fiber *from, struct fiber *to, bool ends)
{
    if (to != &emu.main && emu.fresh[to->index])
        prepare(to);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(ends ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#else
    (void)ends;
#endif
    emu.before = from;
    emu.now = to;
#ifdef __x86_64__
    lf_emu_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void set_state(const struct fiber *f, enum state s)
{
    unsigned char *state = &emu.state[f->index];
    emu.in[*state]--;
    emu.in[s]++;
    *state = (unsigned char)s;
}

/* The next thread of this pass that can run, or the scheduler. */
static struct fiber *next_to_run(void)
{
    while (emu.k < emu.n) {
        struct fiber *f = &emu.f[emu.order[emu.k++]];
        if (emu.state[f->index] == AT_EVENT && f->ready(f->what))
            set_state(f, READY);
        if (emu.state[f->index] == READY) {
            lf_emu.thread = f->thread;
            lf_emu.lane = f->index % WARP;
            return f;
        }
    }
    return &emu.main;
}

static void wait_in(enum state s)
{
    struct fiber *me = emu.now;
    set_state(me, s);
    emu.at_warp[me->index / WARP] += s == AT_WARP;
    jump(me, next_to_run(), false);
}

/* Lets the lanes of a warp go on. */
static void open_warp(unsigned w)
{
    unsigned char *state = &emu.state[w * WARP];
    const unsigned n = emu.n - w * WARP < WARP ? emu.n - w * WARP : WARP;
    for (unsigned i = 0; i < n; i++)
        state[i] = state[i] == AT_WARP ? READY : state[i];
    emu.in[AT_WARP] -= emu.at_warp[w];
    emu.in[READY] += emu.at_warp[w];
    emu.at_warp[w] = 0;
}

/* Waits for the other lanes of the warp, and where threads are not drawn for nobody else. */
static void wait_for_warp(void)
{
    struct fiber *me = emu.now;
    const unsigned w = me->index / WARP, end = (w + 1) * WARP;
    set_state(me, AT_WARP);
    if (++emu.at_warp[w] == emu.live[w] && emu.ordered > 0 && emu.ordered <= 2) {
        open_warp(w);
        emu.k = emu.ordered == 1 ? w * WARP : emu.n - (end < emu.n ? end : emu.n);
    }
    struct fiber *next = next_to_run();
    if (next == me)
        emu.now = me;
    else
        jump(me, next, false);
}

static void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes); /* of who switched here */
    if (emu.before == &emu.main) {
        memcpy(&emu.main.stack, &bottom, sizeof bottom);
        emu.main.stack_bytes = bytes;
    }
#endif
    for (;;) {
        struct fiber *me = emu.now;
        emu.fresh[me->index] = false;
        emu.entry(emu.args);
        set_state(me, DONE);
        emu.live[me->index / WARP]--;
        struct fiber *next = next_to_run();
        if (next == &emu.main || !emu.fresh[next->index])
            jump(me, next, true);
        char *stack = me->stack;
        me->stack = next->stack;
        next->stack = stack;
        next->stack_bytes = STACK;
        emu.now = next;
    }
}

static void free_smem(void)
{
    free(lf_emu.smem);
    lf_emu.smem = NULL;
}

/* Shared memory of a kernel serves the next one that asks for as much: of the system it would come
 * page by page. */
static void take_smem(size_t bytes)
{
    if (lf_emu.smem && lf_emu.smem_bytes == bytes)
        return;
    free_smem();
    lf_emu.smem_bytes = bytes;
    if (posix_memalign(&lf_emu.smem, 128, bytes ? bytes : 1))
        lf_emu_fail("no memory for shared memory");
}

/* Stacks are kept from launch to launch; a library that is unloaded gives them back. */
__attribute__((destructor)) static void free_memory(void)
{
    free_smem();
    for (int i = 0; i < MAX_THREADS; i++)
        free(emu.f[i].stack);
}

static void prepare(struct fiber *f)
{
    if (!f->stack && !(f->stack = malloc(STACK)))
        lf_emu_fail("no memory for stacks");
    f->stack_bytes = STACK;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack, STACK); /* frames of the thread that had it before */
#endif
#ifdef __x86_64__
    /* Stacks lie as far apart as pages do, or nearly, and a cache keeps few lines of the same place
     * in them: those of a warp's lanes, which take turns, begin at different ones. */
    uintptr_t top = (((uintptr_t)f->stack + STACK) & ~(uintptr_t)4095) - f->index % WARP * 128;
    void **sp = (void **)top - 1; /* as after a call: 8 below a multiple of 16 */
    *--sp = (void *)(uintptr_t)fiber_main;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
#endif
}

/* ---- barriers and exchange ---- */

void lf_emu_block_barrier(void)
{
    wait_in(AT_BLOCK);
}
void lf_emu_warp_barrier(void)
{
    wait_for_warp();
}
void lf_emu_all_others(void)
{
    wait_in(AT_WARP);
}

void lf_emu_wait_until(bool (*ready)(const void *what), const void *what)
{
    emu.now->ready = ready;
    emu.now->what = what;
    wait_in(AT_EVENT);
}

unsigned char *lf_emu_exchange(const void *mine, size_t bytes)
{
    const unsigned i = emu.now->index, w = i / WARP;
    unsigned char *all = emu.slot[w][emu.turn[i] ^= 1];
    unsigned char *slot = all + SLOT * (i % WARP);
    if (bytes == 4) /* nearly always: without a call */
        memcpy(slot, mine, 4);
    else
        memcpy(slot, mine, bytes);
    wait_for_warp();
    return all;
}

/* ---- asynchronous copies ---- */

void lf_cp_async16(void *dst, const void *src, bool ok)
{
    struct fiber *me = emu.now;
    if ((uintptr_t)dst % 16 || (ok && (uintptr_t)src % 16))
        lf_emu_fail("cp.async of an address that is no multiple of 16");
    if (me->n_copies == MAX_COPIES)
        lf_emu_fail("more asynchronous copies of a thread than the emulator keeps");
    emu.copy[me->index][me->n_copies++] = (struct copy){dst, src, ok, -1};
}

void lf_cp_commit(void)
{
    struct fiber *me = emu.now;
    struct copy *copy = emu.copy[me->index];
    for (int i = 0; i < me->n_copies; i++)
        if (copy[i].group < 0)
            copy[i].group = me->groups;
    me->groups++;
}

void lf_cp_wait(int n)
{
    struct fiber *me = emu.now;
    struct copy *copy = emu.copy[me->index];
    int left = 0;
    for (int i = 0; i < me->n_copies; i++) {
        const struct copy c = copy[i];
        if (c.group < 0 || c.group >= me->groups - n)
            copy[left++] = c;
        else if (c.ok)
            memcpy(c.dst, c.src, 16);
        else
            memset(c.dst, 0, 16);
    }
    me->n_copies = left;
}

/* ---- the scheduler ---- */

int lf_emu_order(void)
{
    static int kind = -1;
    if (kind < 0) {
        const char *s = getenv("LF_EMU_ORDER");
        kind = s ? (int)strtol(s, NULL, 10) : 0;
        emu.shuffle = (uint32_t)kind;
    }
    return kind;
}

unsigned lf_emu_any(unsigned n)
{
    emu.shuffle = emu.shuffle * 1664525u + 1013904223u;
    return (emu.shuffle >> 8) % n;
}

static void order_threads(void)
{
    const int kind = lf_emu_order();
    if (kind <= 1 && emu.ordered == kind + 1)
        return;
    emu.ordered = kind + 1;
    for (unsigned i = 0; i < emu.n; i++)
        emu.order[i] = kind == 1 ? emu.n - 1 - i : i;
    for (unsigned i = emu.n; kind > 1 && i > 1; i--) {
        const unsigned j = lf_emu_any(i), t = emu.order[i - 1];
        emu.order[i - 1] = emu.order[j];
        emu.order[j] = t;
    }
}

/* Runs every thread that can run; false: none could. */
static bool run_ready(void)
{
    emu.k = 0;
    struct fiber *f = next_to_run();
    if (f == &emu.main)
        return false;
    jump(&emu.main, f, false);
    return true;
}

/* Opens the warp barriers that all living lanes have reached. */
static bool open_warps(void)
{
    bool opened = false;
    for (unsigned w = 0; w * WARP < emu.n && emu.in[AT_WARP]; w++) {
        if (!emu.at_warp[w] || emu.at_warp[w] != emu.live[w])
            continue;
        open_warp(w);
        opened = true;
    }
    return opened;
}

static void start_block(void)
{
    memset(emu.state, READY, emu.n);
    memset(emu.in, 0, sizeof emu.in);
    memset(emu.at_warp, 0, sizeof emu.at_warp);
    emu.in[READY] = emu.n;
    memset(emu.fresh, true, emu.n);
    for (unsigned i = 0; i < emu.n; i++)
        emu.f[i].n_copies = emu.f[i].groups = 0;
    for (unsigned w = 0; w * WARP < emu.n; w++)
        emu.live[w] = (unsigned char)(emu.n - w * WARP < WARP ? emu.n - w * WARP : WARP);
    lf_emu_tma_start();
    lf_emu_wgmma_start();
}

static void run_block(void)
{
    start_block();
    while (emu.in[DONE] < emu.n) {
        order_threads();
        const bool ran = run_ready(), opened = open_warps();
        const unsigned at = emu.in[AT_BLOCK];
        if (at == emu.n) {
            memset(emu.state, READY, emu.n);
            emu.in[AT_BLOCK] = 0;
            emu.in[READY] = emu.n;
        } else if (!ran && !opened && !lf_emu_tma_land()) {
            if (emu.in[AT_EVENT])
                lf_emu_fail("a barrier in shared memory whose phase never ends");
            lf_emu_fail(at ? "a barrier that not all threads reach"
                           : "a warp operation that not all lanes reach");
        }
    }
    for (unsigned i = 0; i < emu.n; i++)
        if (emu.f[i].n_copies)
            lf_emu_fail("asynchronous copies that nobody waited for");
    lf_emu_tma_end();
    lf_emu_wgmma_end(emu.n);
}

void lf_emu_run(const char *name, void (*entry)(const void *args), const void *args,
                struct lf_emu_uint3 grid, struct lf_emu_uint3 block, size_t smem)
{
    emu.name = name;
    emu.entry = entry;
    emu.args = args;
    emu.n = block.x * block.y * block.z;
    if (!emu.n || emu.n > MAX_THREADS)
        lf_emu_fail("a block of no or more than 1024 threads");
    for (unsigned i = 0; i < emu.n; i++) {
        emu.f[i].index = i;
        emu.f[i].thread =
            (struct lf_emu_uint3){i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    }
    emu.ordered = 0;
    memset(emu.slot, 0, (emu.n + WARP - 1) / WARP * sizeof *emu.slot);
    lf_emu.block_dim = block;
    lf_emu.grid_dim = grid;
    take_smem(smem);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                lf_emu.block = (struct lf_emu_uint3){x, y, z};
                memset(lf_emu.smem, 0xff, smem);
                run_block();
            }
#ifdef __SANITIZE_ADDRESS__
    free_smem(); /* so that who uses it later is found */
#endif
}
