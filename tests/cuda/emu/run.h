/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's host side: running a grid, and a driver table with emulated GPUs behind it.
 *
 * The driver is an adversary. Calls on streams wait in queues and run as late as the API allows:
 * when somebody synchronizes, asks an event twice, or frees. So a host buffer that is written again
 * before its copy ended, a missing event wait, a result read without waiting show as wrong values.
 * LF_EMU_ORDER says what else runs at such a moment: 0 nothing that was not asked for, 1 every
 * other stream first, n > 1 a random part of random streams, also at every other call. Arguments of
 * kernels are copied at the launch. In a captured graph only the recorded dependencies order nodes.
 * Calls that the driver forbids during a capture give its error and spoil the capture, and so do
 * calls with which it may load code (looking a function up, asking cuBLASLt for an algorithm, a
 * plan of cuDNN). A thread without a context is refused. Device memory is NaN when it is handed out
 * and again when it is freed.
 *
 * LF_EMU_MEMORY=bytes      memory of a GPU; more is out of memory
 * LF_EMU_FAIL=what:n[:name]   the n-th (from 1) launch (of `name`) is refused: launch; breaks the
 *                             device when it runs:
 *                          async; the n-th allocation fails: alloc; the n-th copy is refused: copy
 * LF_EMU_REPORT=FILE       the counts below as one line of JSON, when the process ends
 */
#ifndef LF_KERNELS_CUDA_EMU_RUN_H
#define LF_KERNELS_CUDA_EMU_RUN_H

#include "kernels/cuda/driver.h"
#include "tests/cuda/emu/emu.h"

/* Runs `entry` for every thread of the grid. A misuse (barrier not met by all, too many threads)
 * ends the process with a message that names the kernel and the block. */
void lf_emu_run(const char *name, void (*entry)(const void *args), const void *args,
                struct lf_emu_uint3 grid, struct lf_emu_uint3 block, size_t smem);

/* A driver whose GPUs are emulated (compute capability 9.0). */
void lf_emu_driver(struct lf_cu *out);
/* Its GPU code. lf_cu_load asks a driver library for this, so LF_CUDA_DRIVER=tests/libcuemu.so
 * runs whole stages. */
const struct lf_cu_image *lf_emu_images(size_t *n);

/* For libraries that queue work of their own (nccl.c). Runs what is queued on a stream now, and
 * what that waits for; it is no wait of the host. Queues a function of the host; user is from
 * malloc and freed after it. bytes of it are copied where the call is captured; 0: it must not
 * be. */
int lf_emu_run_queue(lf_cu_stream s);
int lf_emu_host_call(lf_cu_stream s, void (*call)(void *user), void *user, size_t bytes);
/* The same for a call that waits for other processes: nothing runs it early that need not while
 * ready says no. While it waits it calls lf_emu_go_on, which lets all streams go on that can, as
 * streams of a GPU do, and says whether anything ran. quietly: without kernels and copies. NULL: of
 * all streams. soon: it runs at the latest when another stream is told to wait for it, for the host
 * may wait for other processes next, which a GPU does not wait for. */
int lf_emu_host_call_when(lf_cu_stream s, bool (*ready)(void *user), void (*call)(void *user),
                          void *user, bool soon);
bool lf_emu_go_on(lf_cu_stream s, bool quietly);

/* What was called since the start or lf_emu_reset. */
struct lf_emu_stats {
    long launches; /* kernels asked for by the host, captured ones too */
    long graph_launches, graph_nodes, captures;
    long executed; /* kernels that ran */
    /* copies between host and device; of these from or to memory that is not pinned */
    long copies, pageable;
    long waits; /* calls in which the host waits: synchronize a stream or an event */
    /* of these, at whose end nothing was queued on any stream: the GPU then waits for the host */
    long idle;
    long allocations;
};
const struct lf_emu_stats *lf_emu_stats(void);
/* Reads the environment again, forgets counts and failures; queued work and memory stay. */
void lf_emu_reset(void);
/* Number of things nobody gave back (allocations, streams, events, graphs, modules, contexts); text
 * says which. */
int lf_emu_leaks(char *text, size_t cap);

#endif
