/* SPDX-License-Identifier: Apache-2.0
 *
 * work: counts to `steps`, a checkpoint at each; fails, stops, hangs or dies where it is told to.
 * join: reads results.
 */
#include "config.h"

#include "stages/opts.h"
#include "tests/flow/fake.h"

#define ID LF_OPT_IDENTITY
#define OP LF_OPT_OPERATIONAL

static const lf_opt work_rows[] = {
    LF_COMMON_OPTS,
    {"input", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT, NULL, 0, 0, NULL, NULL,
     "files to read"},
    {"steps", LF_OPT_COUNT, ID, 0, "5", 1, 1e9, NULL, "steps", "how far to count"},
    {"factor", LF_OPT_FLOAT, ID, 0, "1.5", 0, 10, NULL, NULL, "a number that changes the result"},
    {"mode", LF_OPT_ENUM, LF_OPT_NUMERIC, 0, "fast", 0, 0, "fast|invariant", NULL,
     "a numeric mode"},
    {"model", LF_OPT_STR, ID, 0, NULL, 0, 0, NULL, NULL, "model description"},
    {"note", LF_OPT_STR, OP, 0, NULL, 0, 0, NULL, NULL, "a text"},
    {"step_time", LF_OPT_INT, OP, 0, "5", 0, 100000, NULL, "ms", "how long a step takes"},
    {"hold", LF_OPT_STR, OP, 0, NULL, 0, 0, NULL, NULL,
     "while this file is there no further step is made"},
    {"hold_at", LF_OPT_INT, OP, 0, "1", 0, 1000000, NULL, "steps",
     "but so many of this start before"},
    {"save_time", LF_OPT_INT, OP, 0, "0", 0, 100000, NULL, "ms",
     "how long saving takes after a stop request"},
    {"fail_at", LF_OPT_INT, OP, 0, "0", 0, 1000000, NULL, "step",
     "step at which to fail, 0 = never"},
    {"fail_how", LF_OPT_ENUM, OP, 0, "exit", 0, 0,
     "exit|abort|disk|utf8|nan|usage|deaf|latin|oom|node|words|said|rank", NULL, "how"},
    {"needs_bytes", LF_OPT_BYTES, OP, 0, "1M", 0, 0, NULL, "bytes",
     "what --plan says about memory"},
    {"needs_gpu_bytes", LF_OPT_BYTES, OP, 0, "0", 0, 0, NULL, "bytes",
     "what --plan says about memory of a GPU"},
    {"device", LF_OPT_ENUM, LF_OPT_NUMERIC, 0, "auto", 0, 0, "auto|cpu|cuda", NULL,
     "--plan with cpu: no memory of a GPU"},
    {"needs_disk", LF_OPT_BYTES, OP, 0, "1M", 0, 0, NULL, "bytes", "what --plan says about disk"},
    {"big_bytes", LF_OPT_BYTES, OP, 0, "0", 0, 0, NULL, "bytes",
     "size of a second file of the result, all zeros"},
    {"every", LF_OPT_DURATION, OP, 0, "1h", 0, 0, NULL, "seconds", "a time"},
};

static const lf_opt join_rows[] = {
    LF_COMMON_OPTS,
    {"parts", LF_OPT_PATH, ID, LF_OPT_REPEAT | LF_OPT_INPUT | LF_OPT_REQUIRED, NULL, 0, 0, NULL,
     NULL, "results to join"},
};

static const char *const work_outputs[] = {"result", "extra", NULL};
static const char *const join_outputs[] = {"joined", NULL};

static const lf_opt_carry work_carry[] = {{"ck-*", false}, {NULL, false}};

const lf_opt_table lf_fake_work = {.stage = "work",
                                   .spec_version = 1,
                                   .summary = "count",
                                   .opts = work_rows,
                                   .n_opts = sizeof work_rows / sizeof work_rows[0],
                                   .outputs = work_outputs,
                                   .carry = work_carry};
const lf_opt_table lf_fake_join = {.stage = "join",
                                   .spec_version = 1,
                                   .summary = "join",
                                   .opts = join_rows,
                                   .n_opts = sizeof join_rows / sizeof join_rows[0],
                                   .outputs = join_outputs};
const lf_opt_table *const lf_fake_tables[] = {&lf_fake_work, &lf_fake_join, NULL};
