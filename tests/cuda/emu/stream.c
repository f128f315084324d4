/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events of the emulated driver: queues that run when somebody waits for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "tests/cuda/emu/state.h"
#include "tests/cuda/ptx/ptx.h"

enum { SMEM_OPTIN = 227 << 10, DEFAULT_SMEM = 48 << 10, PARAMETER_BYTES = 4096 };
enum {
    TO_DEVICE = -1,
    TO_HOST = -2,
    ON_DEVICE = -3
}; /* a copy's `value`; of a fill it is the byte */

/* ---- lists of calls ---- */

bool lf_emu_push(struct lf_emu_list *l, const struct lf_emu_cmd *c)
{
    if (l->first == l->n)
        l->first = l->n = 0;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 64;
        struct lf_emu_cmd *more = realloc(l->cmd, cap * sizeof *more);
        if (!more)
            return false;
        l->cmd = more;
        l->cap = cap;
    }
    l->cmd[l->n++] = *c;
    return true;
}

static void let_go(struct lf_emu_cmd *c)
{
    free(c->args);
    if (c->event)
        lf_emu_event_release(c->event);
    if (c->graph && --c->graph->refs == 0 && c->graph->dead) {
        lf_emu_list_free(&c->graph->node);
        free(c->graph);
    }
}

void lf_emu_list_free(struct lf_emu_list *l)
{
    for (size_t i = l->first; i < l->n; i++)
        let_go(&l->cmd[i]);
    free(l->cmd);
    *l = (struct lf_emu_list){0};
}

void *lf_emu_args(size_t bytes)
{
    void *p;
    return posix_memalign(&p, 128, bytes) ? NULL : p;
}

/* ---- running ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of a GPU, or of the host and pinned: such memory has one address on both sides. */
static bool reached(const void *p, size_t bytes)
{
    return lf_emu_inside(p, bytes, false) || lf_emu_inside(p, bytes, true);
}

/* The device sides of a copy or fill lie in live allocations. */
static bool usable(const struct lf_emu_cmd *c)
{
    if ((c->kind == EMU_FILL || c->value != TO_HOST) && !reached(c->dst, c->bytes))
        return false;
    return c->kind == EMU_FILL || c->value == TO_DEVICE || reached(c->src, c->bytes);
}

void lf_emu_execute(const struct lf_emu_cmd *c)
{
    struct lf_emu_host *h = &lf_emu_host;
    if (h->broken)
        return;
    switch (c->kind) {
    case EMU_COPY:
    case EMU_FILL:
        if (!usable(c))
            lf_emu_misuse("a queued copy or fill of device memory that was freed meanwhile");
        if (c->kind == EMU_COPY)
            memmove(c->dst, c->src, c->bytes);
        else
            memset(c->dst, c->value, c->bytes);
        return;
    case EMU_LAUNCH:
        if (lf_emu_fails("async", c->f->name + strlen("lf_cu_"))) {
            h->broken = LF_CU_LAUNCH_FAILED;
            return;
        }
        h->stats.executed++;
        if (!lf_ptx_launch(c->f->file, c->f->name, *c->f->args, c->args, c->grid, c->block,
                           c->smem))
            lf_emu_run(c->f->name, c->f->entry, c->args, c->grid, c->block, c->smem);
        return;
    case EMU_RECORD:
        if (c->event->done < c->generation)
            c->event->done = c->generation;
        c->event->at_s = now_s();
        return;
    case EMU_WAIT:
        return;
    case EMU_GRAPH:
        lf_emu_graph_run(c->graph);
        return;
    case EMU_CALL:
        c->call(c->args);
        return;
    }
}

static bool pending(const struct CUstream_st *s)
{
    return s && s->queue.first < s->queue.n;
}

static void run_one(lf_cu_stream s);

/* Run whatever stands before the record of this generation. */
static void reach(lf_cu_event e, uint64_t generation)
{
    for (int i = 0; i < LF_EMU_STREAMS && e->done < generation; i++) {
        const lf_cu_stream s = lf_emu_host.stream[i];
        if (!s)
            continue;
        bool here = false;
        for (size_t k = s->queue.first; k < s->queue.n && !here; k++)
            here = s->queue.cmd[k].kind == EMU_RECORD && s->queue.cmd[k].event == e &&
                   s->queue.cmd[k].generation == generation;
        while (here && e->done < generation)
            run_one(s);
    }
}

static void run_one(lf_cu_stream s)
{
    struct lf_emu_cmd c = s->queue.cmd[s->queue.first];
    s->busy = true;
    if (c.kind == EMU_WAIT)
        reach(c.event, c.generation);
    s->queue.first++;
    lf_emu_execute(&c);
    s->busy = false;
    let_go(&c);
}

/* ---- what can go on, while something waits ---- */

static bool try_one(lf_cu_stream s, bool quietly);

/* As reach, as far as nothing waits for other processes. */
static bool try_reach(lf_cu_event e, uint64_t generation, bool quietly)
{
    bool more = true;
    while (e->done < generation && more) {
        more = false;
        for (int i = 0; i < LF_EMU_STREAMS && e->done < generation; i++) {
            const lf_cu_stream s = lf_emu_host.stream[i];
            bool here = false;
            for (size_t k = s ? s->queue.first : 0; s && k < s->queue.n && !here; k++)
                here = s->queue.cmd[k].kind == EMU_RECORD && s->queue.cmd[k].event == e &&
                       s->queue.cmd[k].generation == generation;
            while (here && e->done < generation && try_one(s, quietly))
                more = true;
        }
    }
    return e->done >= generation;
}

static bool is_quiet(const struct lf_emu_cmd *c)
{
    return c->kind == EMU_RECORD || c->kind == EMU_WAIT || (c->kind == EMU_CALL && c->ready);
}

/* The first call of a stream, if it need not wait for other processes. */
static bool try_one(lf_cu_stream s, bool quietly)
{
    if (!pending(s) || s->busy)
        return false;
    const struct lf_emu_cmd c = s->queue.cmd[s->queue.first];
    if ((quietly && !is_quiet(&c)) || (c.kind == EMU_CALL && c.ready && !c.ready(c.args)))
        return false;
    s->busy = true;
    const bool there = c.kind != EMU_WAIT || try_reach(c.event, c.generation, quietly);
    s->busy = false;
    if (there)
        run_one(s);
    return there;
}

bool lf_emu_go_on(lf_cu_stream s, bool quietly)
{
    bool any = false;
    for (int i = 0; i < LF_EMU_STREAMS; i++)
        while ((!s || s == lf_emu_host.stream[i]) && try_one(lf_emu_host.stream[i], quietly))
            any = true;
    return any;
}

/* What else runs: nothing, everything else first, the newest streams before older ones, or some of
 * it. */
static void others(lf_cu_stream but)
{
    struct lf_emu_host *h = &lf_emu_host;
    for (int i = LF_EMU_STREAMS - 1; h->order == 1 && i >= 0; i--)
        while (h->stream[i] != but && try_one(h->stream[i], false))
            ;
    for (uint32_t k = h->order > 1 ? lf_emu_random(8) : 0; k; k--) {
        const lf_cu_stream s = h->stream[lf_emu_random(LF_EMU_STREAMS / 8)];
        for (uint32_t n = lf_emu_random(16); n && try_one(s, false); n--)
            ;
    }
}

static void drain(lf_cu_stream s)
{
    others(s);
    while (pending(s))
        run_one(s);
}

int lf_emu_run_queue(lf_cu_stream s)
{
    while (pending(s))
        run_one(s);
    return lf_emu_host.broken;
}

static bool known(lf_cu_stream s)
{
    for (int i = 0; i < LF_EMU_STREAMS; i++)
        if (s && lf_emu_host.stream[i] == s)
            return true;
    return false;
}

int lf_emu_call(lf_cu_stream s, const struct lf_emu_cmd *c)
{
    int rc = lf_emu_enter();
    if (rc || !known(s))
        return rc ? rc : LF_CU_INVALID_VALUE;
    if (s->capture) {
        struct lf_emu_cmd n = *c;
        if (s->capture->bad)
            return LF_CU_CAPTURE_INVALIDATED;
        n.dep[0] = s->last;
        if (n.kind != EMU_WAIT)
            n.dep[1] = -1;
        if (!lf_emu_push(&s->capture->node, &n))
            return LF_CU_OUT_OF_MEMORY;
        s->last = (int)s->capture->node.n - 1;
        return 0;
    }
    if (lf_emu_host.order > 1 && !lf_emu_random(3))
        others(NULL);
    return lf_emu_push(&s->queue, c) ? 0 : LF_CU_OUT_OF_MEMORY;
}

int lf_emu_host_call(lf_cu_stream s, void (*call)(void *user), void *user, size_t bytes)
{
    const struct lf_emu_cmd c = {.kind = EMU_CALL, .call = call, .args = user, .bytes = bytes};
    return lf_emu_call(s, &c);
}

int lf_emu_host_call_when(lf_cu_stream s, bool (*ready)(void *user), void (*call)(void *user),
                          void *user, bool soon)
{
    const struct lf_emu_cmd c = {
        .kind = EMU_CALL, .call = call, .ready = ready, .args = user, .soon = soon};
    return lf_emu_call(s, &c);
}

/* ---- copies ---- */

static int copy(void *dst, const void *src, size_t bytes, int direction, lf_cu_stream s)
{
    const struct lf_emu_cmd c = {
        .kind = EMU_COPY, .dst = dst, .src = src, .bytes = bytes, .value = direction};
    struct lf_emu_stats *st = &lf_emu_host.stats;
    int rc = lf_emu_enter();
    if (rc)
        return rc;
    if (!usable(&c) || lf_emu_fails("copy", ""))
        return LF_CU_INVALID_VALUE;
    st->copies += direction != ON_DEVICE;
    st->pageable +=
        direction != ON_DEVICE && !lf_emu_inside(direction == TO_DEVICE ? src : dst, bytes, true);
    return lf_emu_call(s, &c);
}
int lf_emu_MemcpyHtoDAsync(lf_cu_ptr dst, const void *src, size_t bytes, lf_cu_stream s)
{
    return copy((void *)(uintptr_t)dst, src, bytes, TO_DEVICE, s);
}
int lf_emu_MemcpyDtoHAsync(void *dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s)
{
    return copy(dst, (void *)(uintptr_t)src, bytes, TO_HOST, s);
}
int lf_emu_MemcpyDtoDAsync(lf_cu_ptr dst, lf_cu_ptr src, size_t bytes, lf_cu_stream s)
{
    return copy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes, ON_DEVICE, s);
}
int lf_emu_MemsetD8Async(lf_cu_ptr dst, unsigned char v, size_t bytes, lf_cu_stream s)
{
    const struct lf_emu_cmd c = {
        .kind = EMU_FILL, .dst = (void *)(uintptr_t)dst, .bytes = bytes, .value = v};
    int rc = lf_emu_enter();
    return rc ? rc : usable(&c) ? lf_emu_call(s, &c) : LF_CU_INVALID_VALUE;
}

/* Arguments are taken by value, and what they point to must be memory that a GPU sees: a pointer to
 * the stack or to malloc's memory works here and is an illegal address there. Told by the words
 * that name mapped memory which nobody got from this driver. Numbers below 2^44 + 2^31 are never
 * taken for addresses: two small integers side by side would be some where AddressSanitizer maps
 * its shadow, and neither programs nor their heaps and stacks lie there. Nor is a flag, a type, a
 * count below 4096 or a float with what happens to lie in the padding behind it: the upper half of
 * an address is often left there, and glibc's heaps of threads may begin at a multiple of 2^32. No
 * kernel takes bytes that are not aligned for a float, and AddressSanitizer knows what of its heap
 * nobody was given. */
static bool may_be_pointer(uintptr_t w)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = w / page * page;
    unsigned char there;
    void *at;
    memcpy(&at, &start, sizeof at);
    if (w < ((uintptr_t)1 << 44) + ((uintptr_t)1 << 31) || w >> 47 || (w & 0xf0) == 0 ||
        (w & UINT32_MAX) < 4096 || w % sizeof(float) != 0 || mincore(at, 1, &there))
        return false;
#ifdef __SANITIZE_ADDRESS__
    memcpy(&at, &w, sizeof at);
    return !__asan_address_is_poisoned(at);
#else
    return true;
#endif
}

static void refuse_host_memory(const struct CUfunc_st *f, const void *args)
{
    for (size_t i = 0; i + sizeof(uintptr_t) <= *f->args; i += sizeof(uintptr_t)) {
        uintptr_t w;
        void *at;
        memcpy(&w, (const char *)args + i, sizeof w);
        memcpy(&at, &w, sizeof at);
        /* first, as it asks no system: nearly every pointer is one of these */
        if (!reached(at, 0) && may_be_pointer(w)) {
            fprintf(stderr, "emulated GPU: byte %zu of %s's arguments\n", i, f->name);
            lf_emu_misuse("a kernel was given host memory that no GPU sees");
        }
    }
}

int lf_emu_LaunchKernel(lf_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned smem, lf_cu_stream s, void **params,
                        void **extra)
{
    int rc = lf_emu_enter();
    if (rc)
        return rc;
    if (!gx || gx > INT32_MAX || !gy || !gz || gy > 65535 || gz > 65535 || extra ||
        smem > SMEM_OPTIN || smem > (f->smem > DEFAULT_SMEM ? f->smem : DEFAULT_SMEM) ||
        *f->args > PARAMETER_BYTES || !bx || bx * by * bz > *f->threads || bz > 64 ||
        lf_emu_fails("launch", f->name + strlen("lf_cu_")))
        return LF_CU_INVALID_VALUE;
    struct lf_emu_cmd c = {
        .kind = EMU_LAUNCH, .f = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .smem = smem};
    c.args = lf_emu_args(*f->args); /* by value, as the driver takes them */
    if (!c.args)
        return LF_CU_OUT_OF_MEMORY;
    memcpy(c.args, params[0], *f->args);
    refuse_host_memory(f, c.args);
    lf_emu_host.stats.launches++;
    rc = lf_emu_call(s, &c);
    if (rc)
        free(c.args);
    return rc;
}

/* ---- streams ---- */

/* The host has waited. */
static void waited(void)
{
    bool more = false;
    for (int i = 0; i < LF_EMU_STREAMS && !more; i++)
        more = pending(lf_emu_host.stream[i]);
    lf_emu_host.stats.waits++;
    lf_emu_host.stats.idle += !more;
}

int lf_emu_StreamCreate(lf_cu_stream *s, unsigned flags)
{
    int rc = lf_emu_enter();
    for (int i = 0; i < LF_EMU_STREAMS && !rc; i++)
        if (!lf_emu_host.stream[i]) {
            lf_emu_host.stream[i] = calloc(1, sizeof **s);
            *s = lf_emu_host.stream[i];
            return *s && flags <= LF_CU_STREAM_NON_BLOCKING ? 0 : LF_CU_OUT_OF_MEMORY;
        }
    return rc ? rc : LF_CU_OUT_OF_MEMORY;
}
int lf_emu_StreamDestroy(lf_cu_stream s)
{
    for (int i = 0; i < LF_EMU_STREAMS; i++)
        if (s && lf_emu_host.stream[i] == s) {
            drain(s);
            lf_emu_host.stream[i] = NULL;
            lf_emu_list_free(&s->queue);
            free(s);
            return 0;
        }
    return LF_CU_INVALID_VALUE;
}
int lf_emu_StreamSynchronize(lf_cu_stream s)
{
    int rc = lf_emu_enter();
    if (rc || (rc = lf_emu_not_captured()) || !known(s))
        return rc ? rc : LF_CU_INVALID_VALUE;
    drain(s);
    waited();
    return lf_emu_host.broken;
}

/* ---- events ---- */

void lf_emu_event_release(lf_cu_event e)
{
    if (--e->refs || !e->dead)
        return;
    for (int i = 0; i < LF_EMU_EVENTS; i++)
        if (lf_emu_host.event[i] == e)
            lf_emu_host.event[i] = NULL;
    free(e);
}

int lf_emu_EventCreate(lf_cu_event *e, unsigned flags)
{
    int rc = lf_emu_enter();
    for (int i = 0; i < LF_EMU_EVENTS && !rc; i++)
        if (!lf_emu_host.event[i]) {
            if (!(*e = calloc(1, sizeof **e)))
                return LF_CU_OUT_OF_MEMORY;
            (*e)->timed = !(flags & LF_CU_EVENT_DISABLE_TIMING);
            (*e)->refs = 1;
            lf_emu_host.event[i] = *e;
            return 0;
        }
    return rc ? rc : LF_CU_OUT_OF_MEMORY;
}
int lf_emu_EventDestroy(lf_cu_event e)
{
    if (!e || e->dead)
        return LF_CU_INVALID_VALUE;
    e->dead = true;
    lf_emu_event_release(e);
    return 0;
}
int lf_emu_EventRecord(lf_cu_event e, lf_cu_stream s)
{
    int rc = lf_emu_enter();
    if (rc || !e || !known(s))
        return rc ? rc : LF_CU_INVALID_VALUE;
    e->asked = 0;
    if (s->capture) {
        e->graph = s->capture;
        e->node = s->last;
        return s->capture->bad ? LF_CU_CAPTURE_INVALIDATED : 0;
    }
    e->graph = NULL;
    const struct lf_emu_cmd c = {.kind = EMU_RECORD, .event = e, .generation = e->recorded + 1};
    rc = lf_emu_call(s, &c);
    if (!rc) {
        e->recorded++;
        e->refs++;
    }
    return rc;
}

/* A wait on an event of a captured stream draws the waiting stream into the capture. */
static int wait_captured(lf_cu_stream s, lf_cu_event e)
{
    if (s->capture && s->capture != e->graph) {
        s->capture->bad = e->graph ? e->graph->bad = true : true;
        return LF_CU_CAPTURE_ISOLATION;
    }
    if (!s->capture) {
        s->capture = e->graph;
        s->origin = false;
        s->last = e->node;
        return 0;
    }
    const struct lf_emu_cmd c = {.kind = EMU_WAIT, .dep = {-1, e->node}};
    return lf_emu_call(s, &c);
}
/* Does anything stand before the record that must not stay behind? */
static bool is_soon(lf_cu_event e)
{
    bool soon = false;
    for (int i = 0; i < LF_EMU_STREAMS; i++) {
        const lf_cu_stream s = lf_emu_host.stream[i];
        bool before = false;
        for (size_t k = s ? s->queue.first : 0; s && k < s->queue.n; k++) {
            before |= s->queue.cmd[k].soon;
            soon |= before && s->queue.cmd[k].kind == EMU_RECORD && s->queue.cmd[k].event == e &&
                    s->queue.cmd[k].generation == e->recorded;
        }
    }
    return soon;
}

int lf_emu_StreamWaitEvent(lf_cu_stream s, lf_cu_event e, unsigned flags)
{
    int rc = lf_emu_enter();
    if (rc || !e || flags || !known(s))
        return rc ? rc : LF_CU_INVALID_VALUE;
    if (s->capture || e->graph)
        return wait_captured(s, e);
    if (e->done < e->recorded && is_soon(e))
        reach(e, e->recorded);
    if (e->done >= e->recorded)
        return 0;
    const struct lf_emu_cmd c = {.kind = EMU_WAIT, .event = e, .generation = e->recorded};
    rc = lf_emu_call(s, &c);
    e->refs += !rc;
    return rc;
}
static int host_event(lf_cu_event e)
{
    int rc = lf_emu_enter();
    if (!rc && e && e->graph) {
        e->graph->bad = true;
        return LF_CU_CAPTURED_EVENT;
    }
    if (!rc)
        rc = lf_emu_not_captured();
    return rc ? rc : e ? 0 : LF_CU_INVALID_VALUE;
}
int lf_emu_EventQuery(lf_cu_event e)
{
    int rc = host_event(e);
    if (rc)
        return rc;
    if (e->done < e->recorded && !e->asked++)
        return LF_CU_NOT_READY;
    others(NULL);
    reach(e, e->recorded);
    return lf_emu_host.broken;
}
int lf_emu_EventSynchronize(lf_cu_event e)
{
    int rc = host_event(e);
    if (rc)
        return rc;
    others(NULL);
    reach(e, e->recorded);
    waited();
    return lf_emu_host.broken;
}
int lf_emu_EventElapsedTime(float *ms, lf_cu_event from, lf_cu_event to)
{
    if (!from || !to || !from->timed || !to->timed || !from->recorded || !to->recorded)
        return LF_CU_INVALID_VALUE;
    if (from->done < from->recorded || to->done < to->recorded)
        return LF_CU_NOT_READY;
    *ms = (float)(1e3 * (to->at_s - from->at_s));
    return 0;
}
