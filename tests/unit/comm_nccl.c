/* SPDX-License-Identifier: Apache-2.0
 *
 * The NCCL transport without a GPU: libraries that are not there, lack a call or fail are errors
 * with a name; with a stand-in for both (fake_nccl.c) the calls are those of NCCL's interface.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/comm.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;
static lf_boot *boot;

static lf_comm *make(void)
{
    const struct lf_comm_opts o = {.transport = "nccl", .device = 3};
    return lf_comm_create_with(boot, &o, &err);
}

static void refuses(const char *library, const char *fail, int rc, const char *text,
                    const char *name)
{
    setenv("LF_NCCL_LIB", library, 1);
    setenv("LF_CUDART_LIB", library, 1);
    setenv("FAKE_NCCL_FAIL", fail, 1);
    lf_comm *c = make();
    tap_ok(c == NULL, "%s: no communicator", name);
    lf_comm_destroy(c);
    tap_rc(err.rc, rc, &err, text, name);
    setenv("FAKE_NCCL_FAIL", "", 1);
}

/* Calls that do not wait: queued, asked for, waited for; a group begins them together. */
static void test_requests(lf_comm *c, char *calls)
{
    float x[8] = {1, 2, 3};
    const size_t bytes[] = {4};
    bool done = true;
    lf_comm_req q[2] = {{0}};
    const struct lf_comm_call sum = {
        .what = LF_COMM_ALL_REDUCE, .out = x, .n = 3, .type = LF_COMM_F32};
    const struct lf_comm_call swap = {
        .what = LF_COMM_ALL_TO_ALL, .out = x + 4, .in = x, .counts = bytes, .from = bytes};
    calls[0] = '\0';
    tap_rc(lf_comm_start(c, &sum, &q[0], &err), 0, &err, NULL, "a sum begins");
    setenv("FAKE_NCCL_FAIL", "StreamQuery", 1);
    tap_ok(lf_comm_test(&q[0], &done, &err) == 0 && !done, "the stream is not there yet");
    setenv("FAKE_NCCL_FAIL", "", 1);
    tap_ok(lf_comm_test(&q[0], &done, &err) == 0 && done && !q[0].flight, "now it is");
    tap_str(calls, "AllReduce(3,7,0) StreamQuery StreamQuery CommGetAsyncError ",
            "nothing waits for the stream");
    calls[0] = '\0';
    tap_rc(lf_comm_group_begin(c, &err), 0, &err, NULL, "a group begins");
    tap_ok(lf_comm_start(c, &swap, &q[0], &err) == 0 && lf_comm_start(c, &sum, &q[1], &err) == 0,
           "with two calls: %s", err.text);
    tap_rc(lf_comm_barrier(c, &err), LF_EINVAL, &err, "a group", "nothing waits inside");
    tap_rc(lf_comm_wait(&q[0], &err), LF_EINVAL, &err, "before its group has ended",
           "not for its calls either");
    tap_rc(lf_comm_group_end(c, &err), 0, &err, NULL, "the group ends");
    tap_rc(lf_comm_wait_all(q, 2, &err), 0, &err, NULL, "then both are waited for");
    tap_str(calls,
            "Send(4,0,0,grouped) Recv(4,0,0,grouped) GroupEnd AllReduce(3,7,0,grouped) GroupEnd "
            "CommGetAsyncError StreamQuery CommGetAsyncError StreamQuery CommGetAsyncError ",
            "begun together");
    tap_rc(lf_comm_group_end(c, &err), LF_EINVAL, &err, "was not begun", "one end too many");
}

/* On a stream of somebody else's: queued there, not waited for, not destroyed; the ranks below
 * stay. */
static void test_on_gpus(char *calls)
{
    int stream = 0;
    float x[4] = {1};
    lf_comm *host = lf_comm_create(boot, &err);
    lf_comm *c =
        host ? lf_comm_on_gpus(host, &(struct lf_comm_gpus){.device = 1, .stream = &stream}, &err)
             : NULL;
    tap_ok(c != NULL, "beside a communicator for host memory: %s", err.text);
    if (!c)
        return;
    calls[0] = '\0';
    tap_rc(lf_comm_all_reduce(c, x, 4, LF_COMM_F32, LF_COMM_SUM, &err), 0, &err, NULL,
           "all_reduce");
    tap_rc(lf_comm_broadcast(c, x, 16, 0, &err), 0, &err, NULL, "broadcast");
    lf_comm_on_gpus_destroy(c);
    tap_str(calls,
            "AllReduce(4,7,0) CommGetAsyncError Broadcast(16,0,0) CommGetAsyncError CommDestroy ",
            "no stream made, waited for or destroyed");
    tap_rc(lf_comm_barrier(host, &err), 0, &err, NULL, "host memory still works");
    lf_comm_destroy(host);
}

/* From 2.18 on a part shares what the whole has, and a communicator may be told how many blocks it
 * may take. */
static void test_parts(char *calls, const char *version, const char *whole, const char *want)
{
    int stream = 0;
    setenv("FAKE_NCCL_VERSION", version, 1);
    lf_comm *host = lf_comm_create(boot, &err),
            *some = host ? lf_comm_split(host, 0, 0, &err) : NULL;
    struct lf_comm_gpus o = {.device = 1, .stream = &stream, .parts = true};
    calls[0] = '\0';
    lf_comm *c = some ? lf_comm_on_gpus(host, &o, &err) : NULL,
            *part = c ? lf_comm_on_gpus_part(c, some, &err) : NULL;
    tap_ok(part != NULL, "NCCL %s: a part: %s", version, err.text);
    lf_comm_on_gpus_destroy(part);
    setenv("FAKE_NCCL_FAIL", whole, 1);
    part = lf_comm_on_gpus_part(c, some, &err);
    tap_rc(part ? 0 : err.rc, LF_ECOMM, &err, "unhandled cuda error", "one that fails");
    setenv("FAKE_NCCL_FAIL", "", 1);
    lf_comm_on_gpus_destroy(c);
    o = (struct lf_comm_gpus){.device = 1, .stream = &stream, .blocks = 4};
    c = lf_comm_on_gpus(host, &o, &err);
    lf_comm_on_gpus_destroy(c);
    tap_str(calls, want, "the calls");
    lf_comm_destroy(some);
    lf_comm_destroy(host);
    unsetenv("FAKE_NCCL_VERSION");
}

static void test_calls(const char *library)
{
    setenv("LF_NCCL_LIB", library, 1);
    setenv("LF_CUDART_LIB", library, 1);
    void *h = dlopen(library, RTLD_NOW);
    char *calls = h ? dlsym(h, "fake_calls") : NULL;
    lf_comm *c = make();
    tap_ok(c && calls && strcmp(c->ops->name, "nccl") == 0, "joined: %s", err.text);
    if (!c || !calls)
        return;
    tap_str(calls, "SetDevice(3) StreamCreate GetUniqueId CommInitRank ",
            "device, stream, id, communicator");
    float x[8] = {1, 2, 3};
    const size_t counts[] = {3};
    calls[0] = '\0';
    tap_rc(lf_comm_all_reduce(c, x, 3, LF_COMM_BF16, LF_COMM_SUM, &err), 0, &err, NULL,
           "all_reduce of bf16");
    tap_rc(lf_comm_all_reduce(c, x, 2, LF_COMM_I64, LF_COMM_MAX, &err), 0, &err, NULL,
           "all_reduce of i64");
    tap_rc(lf_comm_all_reduce(c, x, 0, LF_COMM_F32, LF_COMM_SUM, &err), 0, &err, NULL,
           "of nothing");
    tap_str(calls,
            "AllReduce(3,9,0) StreamSynchronize CommGetAsyncError AllReduce(2,4,2) "
            "StreamSynchronize CommGetAsyncError ",
            "types, operations, waited for");
    calls[0] = '\0';
    tap_rc(lf_comm_reduce_scatter(c, x + 3, x, counts, LF_COMM_F32, NULL, &err), 0, &err, NULL,
           "reduce_scatter");
    tap_rc(lf_comm_all_gather(c, x, counts, &err), 0, &err, NULL, "all_gather");
    tap_rc(lf_comm_broadcast(c, x, 5, 0, &err), 0, &err, NULL, "broadcast");
    tap_str(calls,
            "ReduceScatter(3,7,0) StreamSynchronize CommGetAsyncError AllGather(3,0,0) "
            "StreamSynchronize CommGetAsyncError Broadcast(5,0,0) StreamSynchronize "
            "CommGetAsyncError ",
            "chunks of one length in one call");
    tap_rc(lf_comm_reduce_scatter(c, x + 3, x, counts, LF_COMM_F32, x, &err), LF_ENOTSUP, &err,
           "begins with a seed", "a sum whose order is not NCCL's");
    setenv("FAKE_NCCL_FAIL", "CommGetAsyncError", 1);
    tap_rc(lf_comm_all_reduce(c, x, 3, LF_COMM_F32, LF_COMM_SUM, &err), LF_ECOMM, &err,
           "internal error", "a failure on the way is noticed");
    setenv("FAKE_NCCL_FAIL", "", 1);
    int64_t v = 5;
    tap_ok(lf_comm_agree_max(c, &v, &err) == 0 && v == 5, "small agreements stay in host memory");
    test_requests(c, calls);
    calls[0] = '\0';
    lf_comm_destroy(c);
    tap_str(calls, "CommDestroy StreamDestroy ", "everything is given back");
    test_on_gpus(calls);
    test_parts(calls, "22907", "CommSplit",
               "SetDevice(1) GetUniqueId CommInitRankConfig(share 1, blocks -1) CommSplit(0,0) "
               "CommDestroy CommSplit(0,0) CommDestroy SetDevice(1) GetUniqueId "
               "CommInitRankConfig(share -1, blocks 4) CommDestroy ");
    test_parts(calls, "21705", "CommInitRank",
               "SetDevice(1) GetUniqueId CommInitRank SetDevice(1) GetUniqueId CommInitRank "
               "CommDestroy SetDevice(1) GetUniqueId CommInitRank CommDestroy SetDevice(1) "
               "GetUniqueId CommInitRank CommDestroy ");
    dlclose(h);
}

int main(void)
{
    char library[4096];
    const char *build = getenv("LF_BUILDDIR");
    snprintf(library, sizeof library, "%s/tests/unit/fake_nccl.so", build ? build : ".");
    boot = lf_boot_create(&err);
    if (!boot)
        tap_bail("%s", err.text);
    TAP(2, refuses("/nowhere/libnccl.so", "", LF_ENOTSUP, "/nowhere/libnccl.so",
                   "a library that is not there"));
    TAP(2, refuses("libm.so.6", "", LF_ENOTSUP, "ncclGetUniqueId",
                   "a library that is something else"));
    TAP(2, refuses(library, "CommInitRank", LF_ECOMM, "device 3: unhandled cuda error",
                   "no GPU for NCCL"));
    TAP(2, refuses(library, "SetDevice", LF_EDEVICE, "driver version is insufficient",
                   "no GPU for CUDA"));
    TAP(37, test_calls(library));
    unsetenv("LF_NCCL_LIB");
    unsetenv("LF_CUDART_LIB");
    lf_comm *c = make(); /* the real ones, where they are: they work or they say why not */
    tap_ok(c != NULL || err.rc == LF_ENOTSUP || err.rc == LF_EDEVICE || err.rc == LF_ECOMM,
           "real libraries: %s", err.text);
    lf_comm_destroy(c);
    lf_boot_destroy(boot);
    return tap_done();
}
