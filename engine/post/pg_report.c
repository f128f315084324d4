/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run says: statistics of rounds, one metrics record per mini-batch, log lines per round.
 * Names are those of TRL, verl and NeMo-RL where they agree; counts are over real tokens only
 * (TRL's approxkl is over padding too). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/sys.h"
#include "engine/post/pg_priv.h"

/* ---- statistics ---- */

static double std_of(double sum, double squares, double n)
{
    return n > 1 ? sqrt(fmax(0, squares - sum * sum / n) / (n - 1)) : 0;
}

static void lengths(struct lf_pg_round_stats *st, const lf_rollout *r)
{
    double ended = 0;
    st->len_min = st->prompt_min = INFINITY;
    for (size_t i = 0; i < r->n; i++) {
        double len = (double)(r->first[i + 1] - r->first[i]);
        st->prompt_len += (double)r->prompt_len[i] / (double)r->n;
        st->prompt_min = fmin(st->prompt_min, (double)r->prompt_len[i]);
        st->prompt_max = fmax(st->prompt_max, (double)r->prompt_len[i]);
        st->len += len / (double)r->n;
        st->len_min = fmin(st->len_min, len);
        st->len_max = fmax(st->len_max, len);
        ended += r->ended[i];
        st->ended_len += r->ended[i] ? len : 0;
    }
    st->ended = ended / (double)r->n;
    st->ended_len = ended > 0 ? st->ended_len / ended : (double)NAN;
}

static void scores(struct lf_pg_round_stats *st, const lf_rollout *r)
{
    double sum = 0, squares = 0, n = (double)r->n, flat = 0;
    st->reward_min = st->score_min = INFINITY;
    st->reward_max = st->score_max = -INFINITY;
    for (size_t i = 0; i < r->n; i++) {
        sum += r->score[i];
        squares += r->score[i] * r->score[i];
        st->score_min = fmin(st->score_min, r->score[i]);
        st->score_max = fmax(st->score_max, r->score[i]);
        st->reward += r->reward[i] / n;
        st->reward_min = fmin(st->reward_min, r->reward[i]);
        st->reward_max = fmax(st->reward_max, r->reward[i]);
    }
    for (size_t g = 0; g < r->n; g += r->group)
        flat += lf_group_flat(r->score + g, r->group);
    st->flat = r->group > 1 ? flat * (double)r->group / n : 0;
    st->score = sum / n;
    st->score_std = std_of(sum, squares, n);
    for (size_t k = 0; k < r->n_sources && k < 64; k++) {
        sum = squares = 0;
        for (size_t i = 0; i < r->n; i++) {
            double x = r->source[i * r->n_sources + k];
            sum += x;
            squares += x * x;
        }
        st->source[k] = sum / n;
        st->source_std[k] = std_of(sum, squares, n);
    }
}

/* KL of a sequence is the sum over its tokens of k1 of the generator's log-probabilities; the mean
 * of that is TRL's objective/kl. */
static int tokens(struct lf_pg_round_stats *st, const lf_pg *p, lf_err *err)
{
    const lf_rollout *r = &p->r;
    const size_t n = (size_t)r->first[r->n];
    st->adv_min = st->ret_min = st->value_min = INFINITY;
    st->adv_max = st->ret_max = st->value_max = -INFINITY;
    for (size_t t = 0; t < n; t++) {
        st->adv += r->adv[t] / (double)n;
        st->adv_abs += fabs(r->adv[t]) / (double)n;
        st->adv_min = fmin(st->adv_min, r->adv[t]);
        st->adv_max = fmax(st->adv_max, r->adv[t]);
        st->ret += r->ret[t] / (double)n;
        st->ret_min = fmin(st->ret_min, r->ret[t]);
        st->ret_max = fmax(st->ret_max, r->ret[t]);
        st->value_min = r->value ? fmin(st->value_min, (double)r->value[t]) : 0;
        st->value_max = r->value ? fmax(st->value_max, (double)r->value[t]) : 0;
        st->kl += r->ref ? (double)r->logprob[t] - (double)r->ref[t] : 0;
        st->value += r->value ? (double)r->value[t] / (double)n : 0;
    }
    st->kl /= (double)r->n;
    st->explained = NAN;
    if (!r->value)
        return 0;
    double *v = lf_calloc(n + 1, sizeof *v, err);
    if (!v)
        return LF_ENOMEM;
    struct lf_seqs s = lf_rollout_seqs(r);
    for (size_t t = 0; t < n; t++)
        v[t] = (double)r->value[t];
    st->explained = lf_explained_variance(&s, r->ret, v);
    free(v);
    return 0;
}

int lf_pg_round_statistics(lf_pg *p, lf_err *err)
{
    struct lf_pg_round_stats st = {0};
    lengths(&st, &p->r);
    scores(&st, &p->r);
    int rc = tokens(&st, p, err);
    if (rc == 0)
        p->st = st;
    return rc;
}

/* ---- metrics ---- */

/* ,"key":value; what is not finite is left out. */
static void add(lf_buf *b, const char *key, double x)
{
    if (isfinite(x))
        lf_buf_addf(b, ",\"%s\":%.17g", key, x);
}

static void add_round(lf_buf *b, const lf_pg *p)
{
    const struct lf_pg_round_stats *s = &p->st;
    add(b, "score", s->score);
    add(b, "score_std", s->score_std);
    add(b, "score_min", s->score_min);
    add(b, "score_max", s->score_max);
    add(b, "reward", s->reward);
    add(b, "reward_min", s->reward_min);
    add(b, "reward_max", s->reward_max);
    add(b, "frac_reward_zero_std", s->flat);
    add(b, "groups_dropped", (double)p->r.dropped);
    add(b, "prompt_length", s->prompt_len);
    add(b, "prompt_length_min", s->prompt_min);
    add(b, "prompt_length_max", s->prompt_max);
    add(b, "completion_length", s->len);
    add(b, "completion_length_min", s->len_min);
    add(b, "completion_length_max", s->len_max);
    add(b, "terminated_length", s->ended_len);
    add(b, "eos", s->ended * (double)p->r.n);
    add(b, "clipped_ratio", 1 - s->ended);
    add(b, "advantage", s->adv);
    add(b, "advantage_abs", s->adv_abs);
    add(b, "advantage_min", s->adv_min);
    add(b, "advantage_max", s->adv_max);
    if (p->want_ref) {
        add(b, "objective_kl", s->kl);
        add(b, "non_score_reward", p->c->kl_in_reward ? -p->s.beta * s->kl : 0);
        add(b, "rlhf_reward", s->reward - (p->c->kl_in_reward ? p->s.beta * s->kl : 0));
        add(b, "kl_coef", p->s.beta);
    }
    if (p->want_critic) {
        add(b, "value", s->value);
        add(b, "value_min", s->value_min);
        add(b, "value_max", s->value_max);
        add(b, "return", s->ret);
        add(b, "return_min", s->ret_min);
        add(b, "return_max", s->ret_max);
        add(b, "explained_variance", s->explained);
    }
    const char *name = p->sources;
    for (size_t k = 0; k < p->n_sources && k < 64; k++) {
        int n = (int)strcspn(name, ",");
        if (isfinite(s->source[k]))
            lf_buf_addf(b, ",\"reward_%.*s\":%.17g,\"reward_%.*s_std\":%.17g", n, name,
                        s->source[k], n, name, s->source_std[k]);
        name += n + (name[n] == ',');
    }
}

static void add_policy(lf_buf *b, const lf_pg *p, const struct lf_pg_update *u)
{
    const struct lf_pg_sums *s = &u->pg;
    const double n = (double)s->tokens;
    if (s->tokens < 1)
        return;
    add(b, "loss", s->loss);
    add(b, "policy_loss", s->pg);
    if (p->ptx)
        add(b, "ptx_loss", u->ptx);
    add(b, "entropy", s->entropy / n);
    if (p->want_ref && !p->c->kl_in_reward)
        add(b, "kl", s->kl / n);
    add(b, "approx_kl", s->approx_kl / n);
    add(b, "ratio_mean", s->ratio / n);
    add(b, "ratio_var", fmax(0, s->ratio_sq / n - s->ratio / n * (s->ratio / n)));
    add(b, "ratio_min", s->ratio_min);
    add(b, "ratio_max", s->ratio_max);
    add(b, "clip_low", s->clip_low / n);
    add(b, "clip_high", s->clip_high / n);
    add(b, "clip_frac", (s->clip_low + s->clip_high) / n);
    add(b, "clip_dual", s->clip_dual / n);
    if (u->first) { /* the weights are those that generated: generator against training graph */
        add(b, "mismatch_max", s->diff_max);
        add(b, "mismatch_mean", s->diff / n);
        add(b, "token_mult_prob_error", s->mult / n);
        add(b, "gen_kl_error", s->gen_kl / n);
        add(b, "js_divergence", s->js / n);
    }
    add(b, "grad_norm", u->grad_norm);
    add(b, "lr", u->lr);
    if (p->c->scaler.dynamic && u->scale > 0) {
        add(b, "loss_scale", u->scale);
        add(b, "overflows", (double)p->s.actor_scale.overflows);
    }
}

static void add_critic(lf_buf *b, const lf_pg *p, const struct lf_pg_update *u)
{
    const double n = (double)u->value.tokens;
    if (!p->want_critic || u->value.tokens < 1)
        return;
    add(b, "value_loss", u->value.loss);
    add(b, "value_clip_frac", u->value.clipped / n);
    add(b, "critic_grad_norm", u->critic_grad_norm);
    add(b, "critic_lr", u->critic_lr);
    if (p->c->scaler.dynamic) {
        add(b, "critic_loss_scale", u->critic_scale);
        add(b, "critic_overflows", (double)p->s.critic_scale.overflows);
    }
}

static void add_samples(lf_buf *b, const lf_pg *p, const struct lf_pg_update *u)
{
    const struct lf_train_guest *g = p->c->guest ? lf_samples_guest(p->c->guest) : NULL;
    for (size_t i = 0; u->visited && i < g->n_metrics; i++)
        add(b, g->metrics[i], u->guest[i]);
}

static void add_times(lf_buf *b, const lf_pg *p, const struct lf_pg_update *u)
{
    add(b, "gen_s", p->gen_s);
    if (p->generator) {
        add(b, "rollout_move_s", p->move_s);
        add(b, "rollout_bytes", p->moved);
    }
    add(b, "score_s", p->score_s);
    add(b, "train_s", p->train_s);
    add(b, "step_s", u->seconds);
    if (u->flops > 0 && u->seconds > 0) {
        add(b, "model_flops_causal", u->flops / u->seconds);
        if (p->peak > 0)
            add(b, "mfu", u->flops / u->seconds / p->peak);
    }
    if (p->gen_s > 0 && p->gen_tokens > 0)
        add(b, "gen_tokens_per_s", (double)p->gen_tokens / p->gen_s);
    if (p->command) {
        const struct lf_cmd_counts *n = &p->asked;
        add(b, "command_restarts", (double)n->restarts);
        add(b, "command_fallbacks", (double)n->fallbacks);
        for (int f = 0; f < LF_CMD_FAULTS; f++)
            lf_buf_addf(b, ",\"command_%s\":%lld", lf_cmd_fault_name((enum lf_cmd_fault)f),
                        (long long)n->fault[f]);
    }
    if (p->run.saved_step > 0) {
        add(b, "saved", (double)p->run.saved_step);
        add(b, "save_s", p->run.save_s);
    }
    struct lf_gpu_use g;
    if (lf_nvml_sample(p->nvml, &g)) {
        add(b, "gpu_util", g.util);
        add(b, "gpu_memory", g.memory);
        add(b, "gpu_power", g.power_w);
    }
    add(b, "rss", (double)lf_rss_bytes());
    if (p->planned > 0) /* once a start is enough */
        add(b, "planned_memory", p->planned);
    add(b, "t", lf_wall_s());
}

/* Of a divided vocabulary training sums the parts of each rank, generation the whole row. */
#define JOINED 1e-4

int lf_pg_report(lf_pg *p, const struct lf_pg_update *u, lf_err *err)
{
    lf_buf b;
    const struct lf_pg_sums *s = &u->pg;
    if (u->first && s->tokens > 0) {
        const double most = p->who.tensor_ranks > 1 ? JOINED : 0;
        const bool exact = p->c->fast || (!(s->diff_max > most) && !(s->ratio_max > 1 + most) &&
                                          !(s->ratio_min < 1 - most));
        lf_run_log(&p->run,
                   p->c->fast              ? 2
                   : exact || p->c->replay ? 3
                                           : 1,
                   "generator and training graph: largest difference of log-probabilities %.3g, "
                   "ratio %.9g to %.9g%s",
                   s->diff_max, s->ratio_min, s->ratio_max,
                   exact      ? ""
                   : most > 0 ? ": they should differ by rounding alone"
                              : ": they should be the same bits");
    }
    if (!lf_run_wants_record(&p->run))
        return 0;
    lf_buf_init(&b);
    lf_buf_addf(&b,
                "{\"step\":%lld,\"round\":%lld,\"samples\":%lld,\"episodes\":%lld,\"tokens\":%lld",
                (long long)p->s.updates, (long long)p->r.step, (long long)p->s.episodes,
                (long long)p->s.episodes, (long long)p->s.tokens);
    add_round(&b, p);
    add_policy(&b, p, u);
    add_critic(&b, p, u);
    add_samples(&b, p, u);
    add_times(&b, p, u);
    p->planned = 0;
    lf_buf_addc(&b, '}');
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_run_record(&p->run, b.data, b.len, err);
    lf_buf_fini(&b);
    return rc;
}

void lf_pg_report_round(const lf_pg *p, const struct lf_pg_update *u)
{
    const struct lf_pg_round_stats *s = &p->st;
    const struct lf_pg_sums *g = &u->pg;
    double n = g->tokens > 0 ? (double)g->tokens : 1;
    char kl[64] = "", critic[96] = "", times[128] = "";
    if (p->want_ref)
        snprintf(kl, sizeof kl, " kl %.4f beta %.4g", s->kl, p->s.beta);
    if (p->want_critic)
        snprintf(critic, sizeof critic, " value loss %.4f explained %.3f", u->value.loss,
                 s->explained);
    if (p->gen_s > 0 && p->gen_tokens > 0)
        snprintf(times, sizeof times, " gen %.1f s (%.0f tok/s) train %.1f s", p->gen_s,
                 (double)p->gen_tokens / p->gen_s, p->train_s);
    lf_run_log(&p->run, 2,
               "round %lld/%lld reward %.4f score %.4f +- %.3f length %.1f ended %.0f %% flat %.0f "
               "%%%s%s entropy %.3f clip %.3f grad %.3f%s",
               (long long)p->s.round, (long long)p->early.total, s->reward, s->score, s->score_std,
               s->len, 100 * s->ended, 100 * s->flat, kl, critic, g->entropy / n,
               (g->clip_low + g->clip_high) / n, u->grad_norm, times);
}

/* A few completions with what they were given, for people. */
int lf_pg_show(const lf_pg *p, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->r.n && (int64_t)i < p->c->show_samples && rc == 0; i++) {
        lf_buf b, v;
        lf_buf_init(&b);
        lf_buf_init(&v);
        rc = lf_pg_text(p, &p->r, i, &b, err);
        lf_buf_add_json(&v, b.data, b.len < 400 ? b.len : 400);
        if (rc == 0 && !(rc = lf_buf_check(&v, err))) {
            char tag[40];
            lf_run_log(&p->run, 2, "  reward %.3f %s", p->r.reward[i], v.data);
            snprintf(tag, sizeof tag, "samples/%zu", i + 1);
            lf_copies_text(p->run.copies, p->s.updates + 1, tag, b.data, b.len);
        }
        lf_buf_fini(&b);
        lf_buf_fini(&v);
    }
    return rc;
}
