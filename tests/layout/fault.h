/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults: a run of the rig without a fault must have one rank's numbers, and with it the
 * checks that its row names must find it. fault_test.c has the data axis, tensor_fault_test.c the
 * tensor axis, pipe_fault_test.c the pipeline axis, context_fault_test.c the context axis,
 * expert_fault_test.c the expert axis; each plants in functions of the engine, which the linker
 * puts in place of the real ones.
 *
 * Ranks that have different layers and nothing else have one rank's bits of the first loss and
 * gradients, but for the gradient of a tied embedding.
 */
#ifndef LF_TESTS_LAYOUT_FAULT_H
#define LF_TESTS_LAYOUT_FAULT_H

#include "tests/layout/rig.h"

struct fault {
    const char *name;
    struct rig_layout l;
    const char *keys; /* of the model, NULL: the usual one */
    bool stacks;      /* an encoder-decoder */
    bool adapted;     /* with an adapter for q and o, and dropout before it */
    bool dora;        /* with one that has magnitudes, for qkv as a whole and o */
    bool late;
    int what; /* number of what fault_plant plants; 0: nothing */
    struct local_plant call;
    bool infinite, resumed;
    unsigned by;      /* bits of rig_check that find it; RIG_SAW_RUN: the run fails */
    const char *says; /* what it says then */
};

#define SUM_F32(fault, nth)                                                                        \
    {                                                                                              \
        fault, 1, LF_COMM_ALL_REDUCE, LF_COMM_F32, nth, false                                      \
    }
#define SUM_F64(fault, nth)                                                                        \
    {                                                                                              \
        fault, 1, LF_COMM_ALL_REDUCE, LF_COMM_F64, nth, false                                      \
    }
#define SCATTER(fault, nth)                                                                        \
    {                                                                                              \
        fault, 1, LF_COMM_REDUCE_SCATTER, LF_COMM_F32, nth, false                                  \
    }
#define GATHER(fault, nth)                                                                         \
    {                                                                                              \
        fault, 1, LF_COMM_ALL_GATHER, LF_COMM_F32, nth, false                                      \
    }
#define APART (RIG_SAW_APART | RIG_SAW_REPLICAS)

/* Of the program: what is planted in the run that follows. */
void fault_plant(const struct fault *f, bool planted);
/* Two points: the row without its fault, and with it. number: another one for each row. */
void fault_test(const struct fault *f, int number);

#endif
