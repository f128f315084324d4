/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics by name.
 */
#include "config.h"

#include "flow/run/known.h"

#include <stddef.h>
#include <string.h>

#include "engine/base/str.h"

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
     {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_s", "mfu", NULL}},
    {"sft",
     true,
     {"loss", "valid_loss", false},
     {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_s", "mfu", NULL}},
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

/* Those of a validation split, valid_X, have the unit of X. */
const char *lf_metric_unit(const char *key)
{
    static const char *const units[][2] = {
        {"loss", "nats"},        {"entropy", "nats"},      {"nll", "nats"},
        {"kl", "nats"},          {"approx_kl", "nats"},    {"ln_vocab", "nats"},
        {"gpu_power", "W"},      {"gpu_memory", "B"},      {"rss", "B"},
        {"tokens_per_s", "1/s"}, {"objective_kl", "nats"},
    };
    if (lf_str_has_prefix(key, "valid_"))
        key += strlen("valid_");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(units[i][0], key) == 0)
            return units[i][1];
    if (lf_str_has_prefix(key, "model_flops"))
        return "FLOP/s";
    if (lf_str_has_suffix(key, "_per_s"))
        return "1/s";
    return lf_str_has_suffix(key, "_s") || strcmp(key, "time") == 0 ? "s" : "";
}
