/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that looks like NCCL and the CUDA runtime to engine/comm/nccl.c: for one rank, strict
 * about its arguments, with failures on demand (FAKE_NCCL_FAIL names the call). Calls are written
 * down for the test (fake_calls).
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char internal[128];
} id_t_;

char fake_calls[4096];
static int depth;

static int note(const char *name, const char *text)
{
    const char *fail = getenv("FAKE_NCCL_FAIL");
    size_t n = strlen(fake_calls);
    snprintf(fake_calls + n, sizeof fake_calls - n, "%s%s ", name, text);
    return fail && strcmp(fail, name) == 0;
}

static int note_n(const char *name, size_t count, int type, int x)
{
    char text[64];
    snprintf(text, sizeof text, "(%zu,%d,%d%s)", count, type, x, depth ? ",grouped" : "");
    return note(name, text);
}

/* ncclConfig_t of 2.18. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

int ncclGetVersion(int *version)
{
    const char *s = getenv("FAKE_NCCL_VERSION");
    *version = s && *s ? atoi(s) : 21800;
    return 0;
}
int ncclGetUniqueId(id_t_ *id)
{
    memset(id, 7, sizeof *id);
    return note("GetUniqueId", "");
}
int ncclCommInitRank(void **c, int n, id_t_ id, int rank)
{
    if (n != 1 || rank != 0 || id.internal[127] != 7)
        return 4;
    *c = malloc(1);
    if (!note("CommInitRank", ""))
        return 0;
    free(*c);
    *c = NULL;
    return 1;
}
static int set(int v)
{
    return v == INT_MIN ? -1 : v;
}
int ncclCommInitRankConfig(void **c, int n, id_t_ id, int rank, const struct config *o)
{
    char text[64];
    if (n != 1 || rank != 0 || id.internal[127] != 7 || o->size != sizeof *o ||
        o->magic != 0xcafebeef || o->version != 21800 || o->net_name ||
        set(o->blocking) + set(o->cga_cluster_size) + set(o->min_ctas) != -3)
        return 4;
    *c = malloc(1);
    snprintf(text, sizeof text, "(share %d, blocks %d)", set(o->split_share), set(o->max_ctas));
    return note("CommInitRankConfig", text);
}
int ncclCommSplit(void *c, int color, int key, void **part, const struct config *o)
{
    char text[64];
    if (!c || o)
        return 4;
    snprintf(text, sizeof text, "(%d,%d)", color, key);
    const int failed = note("CommSplit", text) ? 1 : 0;
    *part = failed ? NULL : malloc(1);
    return failed;
}
int ncclCommDestroy(void *c)
{
    free(c);
    return note("CommDestroy", "");
}
int ncclCommAbort(void *c)
{
    return ncclCommDestroy(c);
}
int ncclCommGetAsyncError(void *c, int *e)
{
    *e = note("CommGetAsyncError", "") ? 3 : 0;
    return c ? 0 : 4;
}
const char *ncclGetErrorString(int e)
{
    return e == 1 ? "unhandled cuda error" : e == 3 ? "internal error" : "invalid argument";
}
int ncclAllReduce(const void *s, void *r, size_t n, int t, int op, void *c, void *st)
{
    return c && st && s == r ? note_n("AllReduce", n, t, op) : 4;
}
int ncclReduceScatter(const void *s, void *r, size_t n, int t, int op, void *c, void *st)
{
    memmove(r, s, n * 4);
    return c && st && op == 0 ? note_n("ReduceScatter", n, t, op) : 4;
}
int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st)
{
    return c && st && s == r ? note_n("AllGather", n, t, 0) : 4;
}
int ncclReduce(const void *s, void *r, size_t n, int t, int op, int root, void *c, void *st)
{
    memcpy(r, s, n * 4);
    return c && st && op == 0 ? note_n("Reduce", n, t, root) : 4;
}
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st)
{
    return c && st && s == r ? note_n("Broadcast", n, t, root) : 4;
}
int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st)
{
    return s && c && st ? note_n("Send", n, t, peer) : 4;
}
int ncclRecv(void *r, size_t n, int t, int peer, void *c, void *st)
{
    return r && c && st ? note_n("Recv", n, t, peer) : 4;
}
int ncclGroupStart(void)
{
    depth++;
    return 0;
}
int ncclGroupEnd(void)
{
    depth--;
    return note("GroupEnd", "");
}
int cudaSetDevice(int d)
{
    char text[16];
    snprintf(text, sizeof text, "(%d)", d);
    return note("SetDevice", text) ? 35 : 0;
}
int cudaStreamCreateWithFlags(void **s, unsigned flags)
{
    *s = malloc(1);
    return flags == 1 ? note("StreamCreate", "") : 1;
}
int cudaStreamSynchronize(void *s)
{
    return s ? note("StreamSynchronize", "") : 1;
}
int cudaStreamQuery(void *s)
{
    return s ? note("StreamQuery", "") ? 600 : 0 : 1;
}
int cudaStreamDestroy(void *s)
{
    free(s);
    return note("StreamDestroy", "");
}
const char *cudaGetErrorString(int e)
{
    return e == 35 ? "CUDA driver version is insufficient" : "invalid value";
}
