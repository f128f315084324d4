/* SPDX-License-Identifier: Apache-2.0
 *
 * See units.h.
 */
#include "config.h"

#include "flow/record/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"

static const lf_unit units[] = {
    {"loss", "Loss", "nats", "nats", LF_BETTER_LOW, NULL},
    {"valid_loss", "Validation loss", "nats", "nats", LF_BETTER_LOW, NULL},
    {"ln_vocab", "ln of the vocabulary", "nats: without any model", "nats", LF_BETTER_NONE, NULL},
    {"accuracy", "Accuracy", "share of 1", "", LF_BETTER_HIGH, "1: all are right"},
    {"valid_accuracy", "Validation accuracy", "share of 1", "", LF_BETTER_HIGH, "1: all are right"},
    {"nsp_loss", "Loss of pairs of texts", "nats a pair", "nats", LF_BETTER_LOW, "0.69: a coin"},
    {"valid_nsp_loss", "Validation loss of pairs of texts", "nats a pair", "nats", LF_BETTER_LOW,
     "0.69: a coin"},
    {"nsp_accuracy", "Accuracy of pairs of texts", "share of 1", "", LF_BETTER_HIGH, "0.5: a coin"},
    {"valid_nsp_accuracy", "Validation accuracy of pairs of texts", "share of 1", "",
     LF_BETTER_HIGH, "0.5: a coin"},
    {"tokens_per_s", "Throughput", "tokens a second", "1/s", LF_BETTER_HIGH, NULL},
    {"pictures_per_s", "Throughput", "pictures a second", "1/s", LF_BETTER_HIGH, NULL},
    {"grad_norm", "Gradient norm", "before clipping", "", LF_BETTER_NONE, NULL},
    {"critic_grad_norm", "Gradient norm of the critic", "before clipping", "", LF_BETTER_NONE,
     NULL},
    {"lr", "Learning rate", "", "", LF_BETTER_NONE, NULL},
    {"model_flops_causal", "Model FLOP/s", "causal attention counted", "FLOP/s", LF_BETTER_HIGH,
     NULL},
    {"model_flops_full", "Model FLOP/s", "full attention counted", "FLOP/s", LF_BETTER_HIGH, NULL},
    {"mfu", "Share of the peak", "share of 1", "", LF_BETTER_HIGH, NULL},
    {"gpu_util", "GPU in use", "share of time", "", LF_BETTER_HIGH, NULL},
    {"rss", "Resident memory", "bytes", "B", LF_BETTER_NONE, NULL},
    {"step_s", "Time of a step", "seconds", "s", LF_BETTER_LOW, NULL},
    {"data_s", "Time for data in a step", "seconds", "s", LF_BETTER_LOW, NULL},
    {"comm_exposed_s", "Time of a step for messages that nothing hides", "seconds", "s",
     LF_BETTER_LOW, NULL},
    {"router_aux", "Load-balancing loss of the routers", "before its weight", "", LF_BETTER_LOW,
     NULL},
    {"router_entropy", "Entropy of the routers", "nats a token", "nats", LF_BETTER_NONE, NULL},
    {"router_load", "Load of the busiest expert", "times the mean", "", LF_BETTER_LOW,
     "1: all experts have as many"},
    {"router_dropped", "Choices that experts drop", "share of 1", "", LF_BETTER_LOW, NULL},
    {"save_s", "Time of a save", "seconds", "s", LF_BETTER_LOW, NULL},
    {"saved", "Step of the last checkpoint", "step", "", LF_BETTER_NONE, NULL},
    {"samples", "Sequences seen", "sequences", "", LF_BETTER_NONE, NULL},
    {"tokens", "Tokens", "tokens", "", LF_BETTER_NONE, NULL},
    {"pictures", "Pictures", "pictures", "", LF_BETTER_NONE, NULL},
    {"bytes", "Bytes of text", "bytes", "", LF_BETTER_NONE, NULL},
    {"docs", "Documents", "documents", "", LF_BETTER_NONE, NULL},
    {"batch", "Batch", "sequences", "", LF_BETTER_NONE, NULL},
    {"reward", "Reward", "", "", LF_BETTER_HIGH, NULL},
    {"valid_reward", "Validation reward", "", "", LF_BETTER_HIGH, NULL},
    {"valid_margin", "Validation margin", "chosen minus rejected", "", LF_BETTER_HIGH, NULL},
    {"score", "Score", "", "", LF_BETTER_HIGH, NULL},
    {"entropy", "Entropy of the policy", "nats a token", "nats", LF_BETTER_NONE, NULL},
    {"planned_memory", "Planned memory", "bytes", "B", LF_BETTER_NONE, NULL},
    {"gpu_memory", "GPU memory", "bytes", "B", LF_BETTER_NONE, NULL},
    {"gpu_power", "Power of the GPU", "watts", "W", LF_BETTER_NONE, NULL},
    {"completion_length", "Length of completions", "tokens", "", LF_BETTER_NONE, NULL},
    {"margin", "Margin", "chosen minus rejected", "", LF_BETTER_HIGH, "0: no preference"},
    {"kl", "KL to the reference", "nats", "nats", LF_BETTER_NONE, NULL},
    {"approx_kl", "KL to the policy of the round", "nats", "nats", LF_BETTER_NONE, NULL},
    {"objective_kl", "KL in the objective", "nats", "nats", LF_BETTER_NONE, NULL},
    {"nll", "Loss of the chosen answers", "nats", "nats", LF_BETTER_LOW, NULL},
    {"time", "Time", "seconds", "s", LF_BETTER_NONE, NULL},
    {"bits_per_byte", "Bits a byte", "bits", "", LF_BETTER_LOW, "8: bytes without any model"},
    {"byte_perplexity", "Perplexity of a byte", "", "", LF_BETTER_LOW, "256: without any model"},
    {"word_perplexity", "Perplexity of a word", "", "", LF_BETTER_LOW, NULL},
    {"token_perplexity", "Perplexity of a token", "", "", LF_BETTER_LOW,
     "the size of the vocabulary: without any model"},
    {"token_loss", "Loss of a token", "nats", "nats", LF_BETTER_LOW,
     "ln of the vocabulary: without any model"},
    {"acc", "Accuracy", "share of 1", "", LF_BETTER_HIGH, "1 by the number of choices: chance"},
    {"acc_norm", "Accuracy by length", "share of 1", "", LF_BETTER_HIGH,
     "1 by the number of choices: chance"},
    {"exact_match", "Exact answers", "share of 1", "", LF_BETTER_HIGH, "1: all are right"},
    {"sample_tokens", "Length of samples", "tokens", "", LF_BETTER_NONE, NULL},
    {"sample_ended", "Samples that ended", "share of 1", "", LF_BETTER_NONE, NULL},
    {"sample_logprob", "Log-probability of samples", "nats a token", "nats", LF_BETTER_NONE, NULL},
};

static const lf_unit *find(const char *key)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(units[i].key, key) == 0)
            return &units[i];
    return NULL;
}

/* Of a key that no row has: its end says the unit. */
static lf_unit unknown(const char *key)
{
    lf_unit u = {.key = key, .title = key, .unit = "", .symbol = ""};
    if (lf_str_has_suffix(key, "_per_s")) {
        u.unit = "a second";
        u.symbol = "1/s";
    } else if (lf_str_has_suffix(key, "_s")) {
        u.unit = "seconds";
        u.symbol = "s";
    }
    return u;
}

lf_unit lf_unit_of(const char *key)
{
    const char *dot = strrchr(key, '.'), *metric = dot != NULL ? dot + 1 : key;
    const lf_unit *u = find(key);
    if (u == NULL)
        u = find(metric);
    if (u != NULL)
        return *u;
    if (!lf_str_has_prefix(metric, "valid_"))
        return unknown(key);
    lf_unit of = lf_unit_of(metric + strlen("valid_"));
    of.key = of.title = key;
    return of;
}

const char *lf_better_word(enum lf_better b)
{
    return b == LF_BETTER_LOW ? "lower" : b == LF_BETTER_HIGH ? "higher" : "";
}

const char *lf_loss_unit(const char *kind)
{
    return strcmp(kind, "pretrain") == 0 || strcmp(kind, "sft") == 0 ? "nats a token" : "nats";
}

const char *lf_fmt_value(char *buf, size_t cap, double v)
{
    static const char suffix[] = " kMGTPE";
    double a = fabs(v);
    int k = 0;
    if (!isfinite(v)) {
        snprintf(buf, cap, "%s", isnan(v) ? "NaN" : v > 0 ? "infinite" : "-infinite");
        return buf;
    }
    if (a < 10000) {
        snprintf(buf, cap, a != 0 && a < 1e-3 ? "%.3g" : a < 10 ? "%.4g" : "%.5g", v);
        return buf;
    }
    while (a >= 1000 && k < 6) {
        a /= 1000;
        k++;
    }
    snprintf(buf, cap, "%.4g%c", v < 0 ? -a : a, suffix[k]);
    return buf;
}
