/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile tells where the time goes. It collects the time of every node that an executor with
 * this profile (lf_exec_opts.profile) runs, and of the phases that callers mark (steps, data,
 * checkpoints). At the end it is written as a table, a JSON object, and a trace in Chrome's trace
 * event format, which Perfetto and chrome://tracing open.
 *
 *     lf_profile *p = lf_profile_create(err);
 *     ... executors with .profile = p, destroyed or not ...
 *     struct lf_profile_mark m = lf_profile_begin(p);    NULL p: nothing happens, anywhere
 *     one_step();
 *     lf_profile_end(p, LF_LANE_STEP, "step", m);
 *     json_t *j = lf_profile_json(p, err);
 *
 * Roofline. A node of F floating-point operations that moves B bytes (every operand once) takes at
 * least max(F / peak, B / bandwidth) seconds. Its share is this bound divided by its time. Peak and
 * bandwidth are measured on the backend when the first executor is attached. A share above 1 is
 * possible where operands were still in a cache. (Williams, Waterman, Patterson, Roofline, CACM
 * 52(4), 2009.)
 *
 * Cost: an executor without a profile tests one pointer per segment. With a profile, calls are not
 * captured in device graphs, and the executor waits at the end of each segment; so phases take
 * longer, but nodes do not. A step allocates nothing. One thread uses a profile.
 */
#ifndef LF_GRAPH_PROFILE_H
#define LF_GRAPH_PROFILE_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

typedef struct lf_profile lf_profile;

/* Threads of the trace. */
enum lf_profile_lane {
    LF_LANE_STEP,
    LF_LANE_SEGMENT,
    LF_LANE_NODE,
    LF_LANE_DATA,
    LF_LANE_SAVE,
    LF_LANE_COMM,
    LF_LANE_COUNT
};

lf_profile *lf_profile_create(lf_err *err);
void lf_profile_destroy(lf_profile *p);

/* Has any node run? */
bool lf_profile_ran(const lf_profile *p);

/* Phases. name must live as long as p. Phases of one (lane, name) add up; there are at most 32
 * different ones. */
struct lf_profile_mark {
    double t0, kernels; /* t0: lf_now_s; kernels: seconds in nodes until then */
};
struct lf_profile_mark lf_profile_begin(const lf_profile *p);
void lf_profile_end(lf_profile *p, enum lf_profile_lane lane, const char *name,
                    struct lf_profile_mark m);
/* Adds a phase that another thread measured: `seconds` seconds from t0 (lf_now_s) on. */
void lf_profile_span(lf_profile *p, enum lf_profile_lane lane, const char *name, double t0,
                     double seconds);

/* {"lf_profile":1, "device":{..}, "roofline":{"f32_flops","bf16_flops","bytes_per_s"},
 *  "seconds":{"wall","segments","kernels"}, "flops", "bytes",
 *  "phases":[{"lane","name","count","seconds","longest","kernel_seconds"}],
 *  "segments":[{"graph","segment","runs","seconds","kernel_seconds","flops","bytes"}],
 *  "ops":[{"op","again","calls","seconds","flops","bytes","share"}],
 *  "layers":[{"graph","layer",...}],
 *  "trace":{"nodes","nodes_dropped","phases_dropped"}}
 * The caller owns it. again: repeated by recomputation. layer -1: outside of layers. kernel_seconds
 * are those of nodes alone, so kernels <= segments <= wall, and kernel_seconds of a phase <= its
 * seconds. */
json_t *lf_profile_json(const lf_profile *p, lf_err *err);
/* Writes the same for people: a line per op and per layer, slowest first. */
int lf_profile_text(const lf_profile *p, lf_buf *out, lf_err *err);
/* Writes {"traceEvents":[..]} with the last 65,536 nodes and as many phases. process is the number
 * of this process in the trace. */
int lf_profile_trace(const lf_profile *p, int process, lf_buf *out, lf_err *err);

#endif
