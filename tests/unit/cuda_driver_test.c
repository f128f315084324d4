/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated driver: what a correct program relies on holds, and each planted mistake (a missing
 * wait, a host buffer written too early, an illegal call in a capture, a leak...) shows.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"

enum { N = 1000 };
static struct lf_cu cu;
static struct lf_cu_device *dev;
static lf_queue *qa, *qb;
static lf_cu_event event;
static float *x, *y, *pinned; /* device, device, host */

static void *device_memory(size_t bytes)
{
    lf_cu_ptr p = 0;
    return cu.MemAlloc(&p, bytes) ? NULL : (void *)(uintptr_t)p;
}
static lf_cu_ptr at(void *p)
{
    return (lf_cu_ptr)(uintptr_t)p;
}
static void order(const char *o)
{
    setenv("LF_EMU_ORDER", o, 1);
    lf_emu_reset();
}

static void is_int(int got, int want, const char *what)
{
    tap_ok(got == want, "%s (%d, expected %d)", what, got, want);
}

static void start(void)
{
    char why[200];
    lf_emu_driver(&cu);
    if (lf_cu_device_open(&dev, &cu, 0, why, sizeof why))
        tap_bail("%s", why);
    qa = lf_cu_queue_create(dev);
    qb = lf_cu_queue_create(dev);
    x = device_memory(N * sizeof *x);
    y = device_memory(N * sizeof *y);
    if (!qa || !qb || !x || !y || cu.EventCreate(&event, 0) ||
        cu.MemHostAlloc((void **)&pinned, N * sizeof *pinned, 0))
        tap_bail("no emulated device");
}

static void stop(void)
{
    cu.EventDestroy(event);
    cu.MemFree(at(x));
    cu.MemFree(at(y));
    cu.MemFreeHost(pinned);
    lf_cu_queue_destroy(qa);
    lf_cu_queue_destroy(qb);
    lf_cu_device_close(dev);
}

static int fill(lf_queue *q, float *p, float v)
{
    const struct lf_k_fill a = {.n = N, .y = p, .value = v, .y_type = LF_F32};
    return lf_cuda_kernels.fill.run(q, &a);
}
/* to = 2 from */
static int twice(lf_queue *q, float *to, const float *from)
{
    const struct lf_k_axpby a = {.n = N,
                                 .a = from,
                                 .y = to,
                                 .alpha = 2,
                                 .a_type = LF_F32,
                                 .b_type = LF_F32,
                                 .y_type = LF_F32};
    return lf_cuda_kernels.axpby.run(q, &a);
}
static float read_back(lf_queue *q, float *p)
{
    cu.MemcpyDtoHAsync(pinned, at(p), N * sizeof *p, q->stream);
    cu.StreamSynchronize(q->stream);
    return pinned[N - 1];
}
static void sync_both(void)
{
    cu.StreamSynchronize(qa->stream);
    cu.StreamSynchronize(qb->stream);
}

/* a writes x, b doubles it into y: right only where b waits for a. */
static float producer_consumer(bool waits)
{
    fill(qa, x, 1);
    sync_both();
    fill(qa, x, 3);
    cu.EventRecord(event, qa->stream);
    if (waits)
        cu.StreamWaitEvent(qb->stream, event, 0);
    twice(qb, y, x);
    const float v = read_back(qb, y);
    sync_both();
    return v;
}
/* b reads x, then a overwrites it: right only where a waits for b. */
static float overwrite(bool waits)
{
    fill(qa, x, 1);
    sync_both();
    twice(qb, y, x);
    cu.EventRecord(event, qb->stream);
    if (waits)
        cu.StreamWaitEvent(qa->stream, event, 0);
    fill(qa, x, 5);
    cu.StreamSynchronize(qa->stream);
    const float v = read_back(qb, y);
    sync_both();
    return v;
}

static void test_order(void)
{
    static const char *const orders[] = {"0", "1", "2", "7", "11"};
    bool right = true, found = false, found_war = false;
    for (size_t i = 0; i < 5; i++) {
        order(orders[i]);
        for (int k = 0; k < 10; k++) {
            right = right && producer_consumer(true) == 6 && overwrite(true) == 2;
            found = found || producer_consumer(false) != 6;
            found_war = found_war || overwrite(false) != 2;
        }
    }
    tap_ok(right, "with event waits the values are right in every order");
    tap_ok(found, "planted: a reader that does not wait for the writer");
    tap_ok(found_war, "planted: a writer that does not wait for the reader");
    order("0");
}

static void test_host_buffers(void)
{
    for (int i = 0; i < N; i++)
        pinned[i] = 4;
    cu.MemcpyHtoDAsync(at(x), pinned, N * sizeof *x, qa->stream);
    cu.EventRecord(event, qa->stream);
    tap_ok(cu.EventQuery(event) == LF_CU_NOT_READY, "a copy is under way after the call");
    pinned[N - 1] = 9; /* too early */
    tap_ok(read_back(qa, x) == 9, "planted: a host buffer written before its copy ended");
    tap_ok(cu.EventQuery(event) == LF_CU_SUCCESS, "and done after the wait");
    fill(qa, x, 2);
    pinned[0] = -1;
    cu.MemcpyDtoHAsync(pinned, at(x), N * sizeof *x, qa->stream);
    tap_ok(pinned[0] == -1, "planted: a result read without waiting is not there");
    cu.StreamSynchronize(qa->stream);
    tap_ok(pinned[0] == 2, "it is after the wait");
    struct lf_k_fill a = {.n = N, .y = x, .value = 7, .y_type = LF_F32};
    lf_cuda_kernels.fill.run(qa, &a);
    a.value = 8; /* arguments were copied */
    tap_ok(read_back(qa, x) == 7, "arguments are those of the launch");
    float on_stack[4] = {0};
    const long before = lf_emu_stats()->pageable;
    cu.MemcpyHtoDAsync(at(x), on_stack, sizeof on_stack, qa->stream);
    cu.StreamSynchronize(qa->stream);
    tap_ok(lf_emu_stats()->pageable == before + 1,
           "copies from memory that is not pinned are counted");
    tap_ok(cu.MemcpyHtoDAsync(at(x) + 8, pinned, N * sizeof *x, qa->stream) == LF_CU_INVALID_VALUE,
           "a copy beyond an allocation is refused");
}

static void test_graphs(void)
{
    lf_cu_graph g = NULL;
    lf_cu_graph_exec e = NULL;
    fill(qa, x, 1);
    int rc = cu.StreamBeginCapture(qa->stream, LF_CU_CAPTURE_THREAD_LOCAL);
    rc = rc ? rc : twice(qa, y, x);
    rc = rc ? rc : twice(qa, x, y);
    rc = rc ? rc : cu.StreamEndCapture(qa->stream, &g);
    rc = rc ? rc : cu.GraphInstantiate(&e, g, 0);
    const float untouched = read_back(qa, x);
    tap_ok(rc == 0 && untouched == 1, "captured calls do not run (%d, %g)", rc, (double)untouched);
    cu.GraphDestroy(g);
    for (int i = 0; i < 3; i++)
        cu.GraphLaunch(e, qa->stream);
    cu.GraphExecDestroy(e); /* while launches wait */
    const float v = read_back(qa, x);
    tap_ok(v == 64, "a graph replays, three times 4 (%g)", (double)v);
}

static int captured(int (*what)(void))
{
    lf_cu_graph g = NULL;
    cu.StreamBeginCapture(qa->stream, LF_CU_CAPTURE_THREAD_LOCAL);
    twice(qa, y, x);
    const int rc = what();
    const int end = cu.StreamEndCapture(qa->stream, &g);
    if (g)
        cu.GraphDestroy(g);
    return rc ? rc : end;
}
static int do_sync(void)
{
    return cu.StreamSynchronize(qa->stream);
}
static int do_alloc(void)
{
    lf_cu_ptr p;
    return cu.MemAlloc(&p, 64);
}
static int do_query(void)
{
    cu.EventRecord(event, qa->stream);
    return cu.EventQuery(event);
}
static int do_cross(void)
{
    return cu.StreamWaitEvent(qa->stream, event, 0);
}
static int do_fork(void)
{
    cu.EventRecord(event, qa->stream);
    cu.StreamWaitEvent(qb->stream, event, 0);
    return twice(qb, x, y);
}
static int do_fork_join(void)
{
    do_fork();
    cu.EventRecord(event, qb->stream);
    return cu.StreamWaitEvent(qa->stream, event, 0);
}
static int do_look_up(void)
{
    lf_cu_function f;
    return cu.ModuleGetFunction(&f, dev->module[0], "lf_cu_fill");
}
static int do_nothing(void)
{
    return 0;
}

static void test_illegal(void)
{
    cu.EventRecord(event, qb->stream);
    cu.StreamSynchronize(qb->stream);
    is_int(captured(do_nothing), 0, "a capture without mistakes");
    is_int(captured(do_cross), LF_CU_CAPTURE_ISOLATION,
           "planted: a wait on work outside of the capture");
    is_int(captured(do_sync), LF_CU_CAPTURE_UNSUPPORTED,
           "planted: synchronizing a captured stream");
    is_int(captured(do_alloc), LF_CU_CAPTURE_UNSUPPORTED, "planted: allocating in a capture");
    is_int(captured(do_look_up), LF_CU_CAPTURE_UNSUPPORTED,
           "planted: code that is loaded in a capture");
    is_int(captured(do_query), LF_CU_CAPTURED_EVENT, "planted: asking an event of a capture");
    is_int(captured(do_fork), LF_CU_CAPTURE_UNJOINED, "planted: a branch that does not come back");
    is_int(captured(do_fork_join), 0, "a branch that does");
    lf_cu_graph g;
    is_int(cu.StreamEndCapture(qa->stream, &g), LF_CU_CAPTURE_UNMATCHED,
           "an end without a beginning");
    tap_ok(fill(qa, x, 1) == 0 && read_back(qa, x) == 1, "and the stream works again");
}

/* Two branches of a graph without an edge between them run in any order. */
static float race(bool joins_first)
{
    lf_cu_graph g = NULL;
    lf_cu_graph_exec e = NULL;
    lf_cu_event back = NULL;
    fill(qa, x, 1);
    cu.EventCreate(&back, LF_CU_EVENT_DISABLE_TIMING);
    cu.StreamBeginCapture(qa->stream, LF_CU_CAPTURE_THREAD_LOCAL);
    cu.EventRecord(event, qa->stream);
    cu.StreamWaitEvent(qb->stream, event, 0);
    fill(qb, x, 3);
    cu.EventRecord(back, qb->stream);
    if (joins_first)
        cu.StreamWaitEvent(qa->stream, back, 0);
    twice(qa, y, x);
    if (!joins_first)
        cu.StreamWaitEvent(qa->stream, back, 0);
    if (!cu.StreamEndCapture(qa->stream, &g) && !cu.GraphInstantiate(&e, g, 0))
        cu.GraphLaunch(e, qa->stream);
    const float v = read_back(qa, y);
    cu.GraphExecDestroy(e);
    cu.GraphDestroy(g);
    cu.EventDestroy(back);
    return v;
}

static void test_graph_order(void)
{
    bool right = true, found = false;
    for (int o = 0; o < 6; o++) {
        char text[16];
        snprintf(text, sizeof text, "%d", o);
        order(text);
        right = right && race(true) == 6;
        found = found || race(false) != 6;
    }
    tap_ok(right, "an edge of a graph orders its nodes");
    tap_ok(found, "planted: branches of a graph without one");
    order("0");
}

static void *without_context(void *rc)
{
    lf_cu_ptr p = 0;
    *(int *)rc = cu.MemAlloc(&p, 64);
    return NULL;
}

static void test_threads(void)
{
    pthread_t t;
    int rc = -1;
    if (pthread_create(&t, NULL, without_context, &rc) || pthread_join(t, NULL))
        tap_bail("no thread");
    is_int(rc, 201, "planted: a thread that has no context");
}

static void test_shared_memory(void)
{
    enum { MUCH = (48 << 10) + 16 };
    struct lf_k_fill a = {.n = N, .y = x, .value = 1, .y_type = LF_F32};
    void *params[] = {&a};
    lf_cu_function f = NULL;
    cu.ModuleGetFunction(&f, dev->module[0], "lf_cu_fill");
    is_int(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, MUCH, qa->stream, params, NULL),
           LF_CU_INVALID_VALUE, "planted: more than 48 KiB of shared memory that nobody asked for");
    cu.FuncSetAttribute(f, LF_CU_FUNC_MAX_DYNAMIC_SMEM, MUCH);
    is_int(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, MUCH, qa->stream, params, NULL), 0,
           "and somebody did");
    cu.StreamSynchronize(qa->stream);
}

static void test_failures(void)
{
    setenv("LF_EMU_FAIL", "launch:2:axpby", 1);
    lf_emu_reset();
    tap_ok(!twice(qa, y, x) && !fill(qa, x, 1) && twice(qa, y, x) == LF_K_EDEVICE &&
               strcmp(qa->what, "axpby") == 0,
           "the second axpby is refused");
    setenv("LF_EMU_FAIL", "async:1:fill", 1);
    lf_emu_reset();
    tap_ok(!fill(qa, x, 1) && cu.StreamSynchronize(qa->stream) == LF_CU_LAUNCH_FAILED &&
               cu.StreamSynchronize(qb->stream) == LF_CU_LAUNCH_FAILED &&
               twice(qb, y, x) == LF_K_EDEVICE,
           "a kernel that breaks the device shows at the wait, and in every call after it");
    setenv("LF_EMU_FAIL", "", 1);
    setenv("LF_EMU_MEMORY", "1000000", 1);
    lf_emu_reset();
    lf_cu_ptr p = 0, q = 0;
    is_int(cu.MemAlloc(&p, 900000), 0, "memory within the limit");
    is_int(cu.MemAlloc(&q, 100000), LF_CU_OUT_OF_MEMORY, "planted: more than the GPU has");
    cu.MemFree(p);
    is_int(cu.MemAlloc(&q, 100000), 0, "and again after a release");
    cu.MemFree(q);
    unsetenv("LF_EMU_MEMORY");
    lf_emu_reset();
}

/* Copies that wait while their memory goes. */
static void test_use_after_free(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        cu.MemcpyDtoHAsync(pinned, at(y), 64, qa->stream);
        cu.MemFree(at(y));
        cu.StreamSynchronize(qa->stream);
        _exit(0);
    }
    int st = 0;
    waitpid(child, &st, 0);
    tap_ok(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT,
           "planted: a copy from memory that was freed");
}

int main(void)
{
    char text[300];
    start();
    TAP(3, test_order());
    TAP(8, test_host_buffers());
    TAP(2, test_graphs());
    TAP(10, test_illegal());
    TAP(2, test_graph_order());
    TAP(1, test_threads());
    TAP(2, test_shared_memory());
    TAP(5, test_failures());
    TAP(1, test_use_after_free());
    tap_ok(lf_emu_leaks(text, sizeof text) > 7, "what is held now: %s", text);
    stop();
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    return tap_done();
}
