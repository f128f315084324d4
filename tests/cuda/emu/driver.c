/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated GPUs behind the driver's table: devices, memory (host memory full of NaN), modules,
 * planted failures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cuda/fns.h"
#include "tests/cuda/emu/state.h"
#include "tests/cuda/ptx/ptx.h"

enum { SMEM_OPTIN = 227 << 10, DEVICES = 2, INVALID_CONTEXT = 201 };

#define DECLARE(file, name)                                                                        \
    void lf_cu_##name(const void *args);                                                           \
    extern const size_t lf_cu_args_##name;                                                         \
    extern const unsigned lf_cu_threads_##name;
LF_CU_FNS(DECLARE)

#define ROW(file, name)                                                                            \
    {#file, "lf_cu_" #name, lf_cu_##name, &lf_cu_args_##name, &lf_cu_threads_##name, 0},
static struct CUfunc_st functions[] = {LF_CU_FNS(ROW)};

struct lf_emu_host lf_emu_host;

/* One allocation of a device (managed memory too) or of pinned host memory. */
struct block {
    struct block *next;
    char *p;
    size_t bytes, mapped; /* mapped: 0 where it is of malloc */
    bool host;
};
static struct block *blocks;
static bool started;
/* Each thread needs one. It lies in the thread's static block. A library that is loaded late has it
 * in a block from malloc by default; libsanitizer (of gcc 12) takes the bytes before that one for a
 * header of glibc 2.19, and LeakSanitizer at exit scans the addresses that these bytes happen to
 * name. */
static _Thread_local lf_cu_context current __attribute__((tls_model("initial-exec")));

void lf_emu_misuse(const char *what)
{
    fprintf(stderr, "cuda emulator: %s\n", what);
    abort();
}

uint32_t lf_emu_random(uint32_t n)
{
    lf_emu_host.random = lf_emu_host.random * 1664525u + 1013904223u;
    return (lf_emu_host.random >> 8) % n;
}

/* ---- the environment ---- */

static const char *take(char *to, size_t cap, const char *s)
{
    size_t n = strcspn(s, ":");
    snprintf(to, cap, "%.*s", (int)n, s);
    return s[n] ? s + n + 1 : s + n;
}

void lf_emu_reset(void)
{
    struct lf_emu_host *h = &lf_emu_host;
    const char *order = getenv("LF_EMU_ORDER"), *memory = getenv("LF_EMU_MEMORY"),
               *fail = getenv("LF_EMU_FAIL");
    char number[24];
    h->order = order ? (int)strtol(order, NULL, 10) : 0;
    h->random = (uint32_t)h->order;
    h->limit = memory ? strtoull(memory, NULL, 10) : (size_t)8 << 30;
    h->broken = 0;
    h->stats = (struct lf_emu_stats){0};
    h->fail_what[0] = h->fail_name[0] = '\0';
    h->fail_at = h->fail_seen = 0;
    if (fail && fail[0]) {
        fail = take(h->fail_what, sizeof h->fail_what, fail);
        fail = take(number, sizeof number, fail);
        h->fail_at = strtol(number, NULL, 10);
        take(h->fail_name, sizeof h->fail_name, fail);
    }
    started = true;
}

static int awake(void)
{
    if (!started)
        lf_emu_reset();
    return lf_emu_host.broken;
}

int lf_emu_enter(void)
{
    const int rc = awake();
    return rc ? rc : current ? 0 : INVALID_CONTEXT;
}

bool lf_emu_fails(const char *what, const char *name)
{
    struct lf_emu_host *h = &lf_emu_host;
    if (strcmp(h->fail_what, what) != 0 || (h->fail_name[0] && strcmp(h->fail_name, name) != 0))
        return false;
    return ++h->fail_seen == h->fail_at;
}

__attribute__((destructor)) static void report(void)
{
    const struct lf_emu_stats *s = &lf_emu_host.stats;
    const char *path = getenv("LF_EMU_REPORT");
    FILE *f = path && started ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f,
            "{\"launches\": %ld, \"graph_launches\": %ld, \"executed\": %ld, \"copies\": %ld, "
            "\"pageable\": %ld, \"waits\": %ld, \"idle\": %ld}\n",
            s->launches, s->graph_launches, s->executed, s->copies, s->pageable, s->waits, s->idle);
    fclose(f);
}

const struct lf_emu_stats *lf_emu_stats(void)
{
    return &lf_emu_host.stats;
}

/* ---- devices ---- */

int lf_emu_Init(unsigned flags)
{
    return flags ? LF_CU_INVALID_VALUE : 0;
}
int lf_emu_DriverGetVersion(int *v)
{
    return *v = 13000, 0;
}
int lf_emu_DeviceGetCount(int *n)
{
    return *n = DEVICES, 0;
}
int lf_emu_DeviceGet(lf_cu_dev *d, int ordinal)
{
    *d = ordinal;
    return ordinal < DEVICES ? 0 : LF_CU_INVALID_VALUE;
}
int lf_emu_DeviceGetName(char *name, int n, lf_cu_dev d)
{
    (void)d;
    snprintf(name, (size_t)n, "emulated GPU"); /* all of one kind */
    return 0;
}
int lf_emu_DeviceGetUuid(struct lf_cu_uuid *uuid, lf_cu_dev d)
{
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (unsigned char)(0xa0 + i);
    uuid->bytes[15] = (unsigned char)d;
    return 0;
}
int lf_emu_DeviceGetAttribute(int *value, int attribute, lf_cu_dev d)
{
    static const int known[][2] = {{LF_CU_ATTR_CC_MAJOR, 9},
                                   {LF_CU_ATTR_CC_MINOR, 0},
                                   {LF_CU_ATTR_SM_COUNT, 4},
                                   {LF_CU_ATTR_SMEM_OPTIN, SMEM_OPTIN},
                                   {LF_CU_ATTR_SMEM_PER_BLOCK, 48 << 10},
                                   {LF_CU_ATTR_CLOCK_KHZ, 1000000},
                                   {LF_CU_ATTR_MEMORY_CLOCK_KHZ, 1000000},
                                   {LF_CU_ATTR_BUS_BITS, 64},
                                   {LF_CU_ATTR_L2_BYTES, 1 << 20}};
    (void)d;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == attribute)
            return *value = known[i][1], 0;
    return LF_CU_INVALID_VALUE;
}
int lf_emu_DeviceTotalMem(size_t *bytes, lf_cu_dev d)
{
    (void)d;
    awake();
    return *bytes = lf_emu_host.limit, 0;
}
int lf_emu_PrimaryCtxRetain(lf_cu_context *c, lf_cu_dev d)
{
    (void)d;
    *c = (lf_cu_context)functions; /* any address */
    lf_emu_host.contexts++;
    return awake();
}
int lf_emu_PrimaryCtxRelease(lf_cu_dev d)
{
    (void)d;
    lf_emu_host.contexts--;
    return 0;
}
int lf_emu_CtxSetCurrent(lf_cu_context c)
{
    current = c;
    return 0;
}
int lf_emu_MemGetInfo(size_t *unused, size_t *total)
{
    const int rc = lf_emu_enter();
    if (rc)
        return rc;
    *total = lf_emu_host.limit;
    *unused = lf_emu_host.limit - lf_emu_host.used;
    return 0;
}

/* ---- memory ---- */

bool lf_emu_inside(const void *p, size_t bytes, bool host)
{
    const uintptr_t at = (uintptr_t)p;
    for (const struct block *b = blocks; b; b = b->next)
        if (b->host == host && at >= (uintptr_t)b->p && at - (uintptr_t)b->p + bytes <= b->bytes)
            return true;
    return false;
}

bool lf_emu_block_around(const void *p, const char **from, const char **to)
{
    for (const struct block *b = blocks; b; b = b->next)
        if ((const char *)p >= b->p && (const char *)p < b->p + b->bytes) {
            *from = b->p;
            *to = b->p + b->bytes;
            return true;
        }
    return false;
}

enum { NAN_FILE = 512 << 10, FROM_MAP = 1 << 20, ALIGN = 256 };

#ifndef __SANITIZE_ADDRESS__
/* Of large blocks, such as rings for copies, most is never touched. So that they cost nothing they
 * are mapped from one file of NaN over and over, of which a page is copied when it is written.
 * AddressSanitizer watches over the ends of blocks of malloc alone. */
static int nan_file(void)
{
    static int fd = -1;
    unsigned char part[8 << 10];
    if (fd >= 0)
        return fd;
    fd = memfd_create("nan", MFD_CLOEXEC);
    memset(part, 0xff, sizeof part);
    for (size_t at = 0; fd >= 0 && at < NAN_FILE; at += sizeof part)
        if (write(fd, part, sizeof part) != (ssize_t)sizeof part) {
            close(fd);
            fd = -1;
        }
    return fd;
}

/* No page begins where the block does, as a block is no more aligned than hardware promises. */
static void *map_block(size_t bytes, size_t *mapped)
{
    const int fd = nan_file();
    const size_t n = bytes + ALIGN;
    char *p = fd >= 0 ? mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                      : MAP_FAILED;
    if (p == MAP_FAILED)
        return NULL;
    for (size_t at = 0; at < n; at += NAN_FILE)
        if (mmap(p + at, n - at < NAN_FILE ? n - at : NAN_FILE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
            munmap(p, n);
            return NULL;
        }
    *mapped = n;
    return p + ALIGN;
}
#endif

static void *new_block(size_t bytes, size_t *mapped)
{
    void *m = NULL;
    *mapped = 0;
#ifndef __SANITIZE_ADDRESS__
    if (bytes >= FROM_MAP)
        return map_block(bytes, mapped);
#endif
    if (posix_memalign(&m, ALIGN, bytes))
        return NULL;
    return memset(m, 0xff, bytes);
}

static void free_block(struct block *b)
{
    if (b->mapped) {
        munmap(b->p - ALIGN, b->mapped);
    } else {
        memset(b->p, 0xff, b->bytes);
        free(b->p);
    }
    free(b);
}

static int allocate(void **p, size_t bytes, bool host)
{
    struct lf_emu_host *h = &lf_emu_host;
    int rc = lf_emu_enter();
    if (rc || (rc = lf_emu_not_captured()))
        return rc;
    if (!bytes)
        return LF_CU_INVALID_VALUE;
    h->stats.allocations++;
    if (lf_emu_fails("alloc", "") || (!host && bytes > h->limit - h->used))
        return LF_CU_OUT_OF_MEMORY;
    struct block *b = calloc(1, sizeof *b);
    size_t mapped = 0;
    void *m = b ? new_block(bytes, &mapped) : NULL;
    if (!m) {
        free(b);
        return LF_CU_OUT_OF_MEMORY;
    }
    *b = (struct block){blocks, m, bytes, mapped, host};
    blocks = b;
    if (!host)
        h->used += bytes;
    *p = m;
    return 0;
}

static int release(void *p, bool host)
{
    const int rc = lf_emu_not_captured();
    if (rc)
        return rc;
    for (struct block **b = &blocks; *b; b = &(*b)->next)
        if ((*b)->p == p && (*b)->host == host) {
            struct block *old = *b;
            *b = old->next;
            if (!host)
                lf_emu_host.used -= old->bytes;
            free_block(old);
            return 0;
        }
    return LF_CU_INVALID_VALUE;
}

int lf_emu_MemAlloc(lf_cu_ptr *p, size_t bytes)
{
    void *m;
    const int rc = allocate(&m, bytes, false);
    if (!rc)
        *p = (lf_cu_ptr)(uintptr_t)m;
    return rc;
}
int lf_emu_MemAllocManaged(lf_cu_ptr *p, size_t bytes, unsigned flags)
{
    return flags == LF_CU_MEM_ATTACH_GLOBAL ? lf_emu_MemAlloc(p, bytes) : LF_CU_INVALID_VALUE;
}
int lf_emu_MemFree(lf_cu_ptr p)
{
    return release((void *)(uintptr_t)p, false);
}
int lf_emu_MemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(p, bytes, true);
}
int lf_emu_MemFreeHost(void *p)
{
    return release(p, true);
}

int lf_emu_leaks(char *text, size_t cap)
{
    const struct lf_emu_host *h = &lf_emu_host;
    int device = 0, pinned = 0, streams = 0, events = 0;
    for (const struct block *b = blocks; b; b = b->next)
        *(b->host ? &pinned : &device) += 1;
    for (int i = 0; i < LF_EMU_STREAMS; i++)
        streams += h->stream[i] != NULL;
    for (int i = 0; i < LF_EMU_EVENTS; i++)
        events += h->event[i] && !h->event[i]->dead;
    snprintf(text, cap,
             "%d device and %d pinned allocations, %d streams, %d events, %d graphs, %d executable "
             "graphs, %d modules, "
             "%d contexts",
             device, pinned, streams, events, h->graphs, h->execs, h->modules, h->contexts);
    return device + pinned + streams + events + h->graphs + h->execs + h->modules + h->contexts;
}

/* ---- modules ---- */

int lf_emu_ModuleLoadData(lf_cu_module *m, const void *image)
{
    int rc = lf_emu_enter();
    if (rc || (rc = lf_emu_not_captured()) || !image)
        return rc ? rc : LF_CU_INVALID_VALUE;
    memcpy(m, &image, sizeof *m);
    lf_emu_host.modules++;
    return 0;
}
int lf_emu_ModuleUnload(lf_cu_module m)
{
    lf_emu_host.modules -= m != NULL;
    return m ? 0 : LF_CU_INVALID_VALUE;
}
int lf_emu_ModuleGetFunction(lf_cu_function *f, lf_cu_module m, const char *name)
{
    const int rc =
        lf_emu_not_captured(); /* with lazy loading this is when its code goes to the device */
    if (rc || !m)
        return rc ? rc : LF_CU_INVALID_VALUE;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return *f = &functions[i], 0;
    return LF_CU_NOT_FOUND;
}
int lf_emu_FuncSetAttribute(lf_cu_function f, int attribute, int value)
{
    const int rc = lf_emu_not_captured();
    if (rc || attribute != LF_CU_FUNC_MAX_DYNAMIC_SMEM || value < 0 || value > SMEM_OPTIN)
        return rc ? rc : LF_CU_INVALID_VALUE;
    f->smem = (unsigned)value;
    return 0;
}
int lf_emu_FuncGetAttribute(int *value, int attribute, lf_cu_function f)
{
    (void)f;
    *value = 0;
    return attribute >= 0 ? 0 : LF_CU_INVALID_VALUE;
}

int lf_emu_GetErrorName(int result, const char **name)
{
    static const struct {
        int result;
        const char *name;
    } names[] = {{LF_CU_SUCCESS, "CUDA_SUCCESS"},
                 {LF_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {LF_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {LF_CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                 {LF_CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
                 {LF_CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
                 {LF_CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                 {LF_CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                 {LF_CU_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
                 {LF_CU_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
                 {LF_CU_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
                 {LF_CU_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"}};
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == result)
            *name = names[i].name;
    return *name ? 0 : LF_CU_INVALID_VALUE;
}
int lf_emu_GetErrorString(int result, const char **text)
{
    return lf_emu_GetErrorName(result, text);
}

const struct lf_cu_image *lf_emu_images(size_t *n)
{
#define IMAGE(name) {#name, #name},
    static const struct lf_cu_image images[] = {LF_CU_FILES(IMAGE)};
    *n = sizeof images / sizeof *images;
    return images;
}

void lf_emu_driver(struct lf_cu *out)
{
#define MEMBER(member, name, args) .member = lf_emu_##member,
    *out = (struct lf_cu){LF_CU_LIST(MEMBER).n_images = 0};
    out->images = lf_emu_images(&out->n_images);
}
