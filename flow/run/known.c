/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics by name.
 */
#include "config.h"

#include "flow/run/known.h"

#include <stddef.h>
#include <string.h>

/* The first row is that of kinds that have none of their own. */
static const struct {
    const char *kind;
    bool trains;
    lf_metric_main main;
    const char *first[14];
} kinds[] = {
    {"",
     false,
     {"loss", "valid_loss", false},
     {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_s", NULL}},
    {"pretrain",
     true,
     {"loss", "valid_loss", false},
     {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_s", "pictures_per_s", "mfu",
      "comm_exposed_s", "router_dropped", NULL}},
    {"sft",
     true,
     {"loss", "valid_loss", false},
     {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_s", "mfu", "comm_exposed_s",
      "router_dropped", NULL}},
    {"rm",
     true,
     {"accuracy", "valid_accuracy", true},
     {"loss", "valid_loss", "accuracy", "valid_accuracy", "margin", "lr", "grad_norm", NULL}},
    {"dpo",
     true,
     {"accuracy", "valid_accuracy", true},
     {"loss", "valid_loss", "accuracy", "valid_accuracy", "margin", "kl", "lr", "grad_norm", NULL}},
    {"ppo",
     true,
     {"reward", "valid_reward", true},
     {"reward", "objective_kl", "kl", "approx_kl", "entropy", "completion_length", "lr",
      "grad_norm", "score", "clip_frac", "value_loss", NULL}},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static size_t find(const char *kind)
{
    for (size_t i = 1; kind != NULL && i < N_KINDS; i++)
        if (strcmp(kinds[i].kind, kind) == 0)
            return i;
    return 0;
}

const lf_metric_main *lf_metric_main_of(const char *kind)
{
    return &kinds[find(kind)].main;
}

bool lf_metric_trains(const char *kind)
{
    return kinds[find(kind)].trains;
}

const char *const *lf_metric_first(const char *kind)
{
    return kinds[find(kind)].first;
}
