/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a stage as plan shows it: see laid.h.
 */
#include "config.h"

#include "flow/cmd/laid.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/cmd/table.h"
#include "flow/plan/laid.h"

/* What a rank sends in a step along one axis. */
static void print_sent(const char *who, const lf_real *bytes, const lf_int *messages,
                       const char *what)
{
    char b[32];
    if (messages->v > 0)
        printf("      %s %s a step in %lld %s%s\n", who, lf_fmt_bytes(b, sizeof b, bytes->v),
               (long long)messages->v, what, messages->v == 1 ? "" : "s");
}

/* "      pipeline rank 0: layers 0-1, planned memory 12.5 MiB", and passes of a micro-batch where
 * they were measured. */
static void print_rank(size_t rank, const struct lf_cost_rank *r)
{
    char b[32];
    printf("      pipeline rank %zu: layers ", rank);
    for (size_t i = 0; i < r->layers.n; i++)
        lf_say("%s%s", i > 0 ? " and " : "", r->layers.v[i]);
    printf(", planned memory %s", lf_fmt_bytes(b, sizeof b, r->total.v));
    if (r->forward_s.given)
        printf(", F %.3g ms, B %.3g ms, W %.3g ms", 1e3 * r->forward_s.v,
               1e3 * r->backward_input_s.v, 1e3 * r->backward_weight_s.v);
    printf("\n");
}

static void print_drawing(const char *text)
{
    for (const char *line = text; *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        lf_say("      %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void print_pipeline(const struct lf_cost_pipeline *p)
{
    char b[48] = "";
    if (p->step_s.given)
        snprintf(b, sizeof b, ", of %.3g s as measured", p->step_s.v);
    for (size_t i = 0; i < p->ranks.n; i++)
        print_rank(i, &p->ranks.v[i]);
    if (p->schedule != NULL && p->idle_share.given)
        lf_say("      schedule %s: ranks are idle for %.1f %% of a step%s\n", p->schedule,
               100 * p->idle_share.v, b);
    if (p->tied_bytes.given)
        printf(
            "      a tied embedding sends %s of gradients a step to the first rank, and their sum "
            "back\n",
            lf_fmt_bytes(b, sizeof b, (double)p->tied_bytes.v));
    if (p->drawing != NULL)
        print_drawing(p->drawing);
}

void lf_laid_print(const lf_cost *plan)
{
    const struct lf_cost_comm *comm = &plan->comm;
    char b[80];
    if (plan->ranks.v <= 1 || !comm->given)
        return;
    if (!lf_laid_out(plan)) {
        printf("      %lld ranks: each sends %s a step in %lld collectives\n",
               (long long)plan->ranks.v, lf_fmt_bytes(b, sizeof b, comm->bytes_per_step.v),
               (long long)comm->messages_per_step.v);
        return;
    }
    printf("      %lld ranks: %s%s\n", (long long)plan->ranks.v,
           lf_laid_words(b, sizeof b, plan, " x "), plan->axes.sequence.v ? ", rows divided" : "");
    print_sent("along data each sends", &comm->bytes_per_step, &comm->messages_per_step,
               "collective");
    print_sent("along tensor each sends", &comm->tensor_bytes_per_step,
               &comm->tensor_messages_per_step, "collective");
    print_sent("along context a rank sends at most", &comm->context_bytes_per_step,
               &comm->context_messages_per_step, "collective");
    print_sent("to experts each sends, evenly chosen,", &comm->expert_bytes_per_step,
               &comm->expert_messages_per_step, "collective");
    print_sent("along pipeline a rank sends at most", &comm->pipeline_bytes_per_step,
               &comm->pipeline_messages_per_step, "message");
    if (plan->pipeline.given)
        print_pipeline(&plan->pipeline);
}
