/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run says: one metrics record per step, log lines now and then. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/busy.h"
#include "engine/base/sys.h"
#include "engine/train/laid.h"
#include "engine/train/loop_priv.h"
#include "engine/train/peak.h"

void lf_train_log(const lf_trainer *t, int level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    lf_run_vlog(&t->run, level, fmt, ap);
    va_end(ap);
}

/* Appends ,"key":value; a value that is not finite is left out, JSON has no word for it. */
static size_t add_real(char *buf, size_t cap, size_t at, const char *key, double x)
{
    if (!isfinite(x) || at >= cap)
        return at;
    int n = snprintf(buf + at, cap - at, ",\"%s\":%.17g", key, x);
    return n < 0 ? at : at + (size_t)n;
}

static size_t add_valid_means(char *buf, size_t cap, size_t at, const lf_trainer *t,
                              const struct lf_train_step *st)
{
    const lf_objective *o = t->c->objective;
    for (size_t i = 1; o && i < o->n_metrics && isfinite(st->valid_loss); i++)
        at = add_real(buf, cap, at, o->valid_metrics[i], st->valid_means[i]);
    return at;
}

static size_t add_means(char *buf, size_t cap, size_t at, const lf_trainer *t,
                        const struct lf_train_step *st)
{
    const lf_objective *o = t->c->objective;
    for (size_t i = 1; o && i < o->n_metrics; i++)
        at = add_real(buf, cap, at, o->metrics[i], st->means[i]);
    return add_valid_means(buf, cap, at, t, st);
}

void lf_train_router_step(const lf_trainer *t, struct lf_train_step *st,
                          const struct lf_train_sums *sums)
{
    const double seen = (double)sums->router_seen;
    if (sums->router_seen < 1)
        return;
    st->router_aux = sums->router_aux / seen * (double)lf_model_moe_layers(&t->mc);
    st->router_entropy = sums->router_entropy / seen;
    st->router_load = sums->router_load / seen;
    st->router_dropped = sums->router_dropped / seen;
}

/* Of each named validation set: loss, its exponential, share of tokens that are the most likely
 * one. */
static size_t add_sets(char *buf, size_t cap, size_t at, const lf_trainer *t,
                       const struct lf_train_step *st)
{
    for (size_t k = 0; t->vsets && k < t->n_valid_dirs && isfinite(st->valid_loss); k++) {
        char key[64];
        snprintf(key, sizeof(key), "valid_loss_%s", t->vnames[k]);
        at = add_real(buf, cap, at, key, st->set_loss[k]);
        snprintf(key, sizeof(key), "valid_ppl_%s", t->vnames[k]);
        at = add_real(buf, cap, at, key, exp(st->set_loss[k]));
        snprintf(key, sizeof(key), "valid_accuracy_%s", t->vnames[k]);
        at = add_real(buf, cap, at, key, st->set_accuracy[k]);
    }
    return at;
}

/* Model FLOPs utilisation at so many tokens a second: the FLOPs that a training step of what is
 * trained here needs (engine/model/flops.h, causal), by the peak of all ranks. What is computed
 * again (recompute) does not count, padding does. */
static double mfu_of(const lf_trainer *t, double tokens_per_s)
{
    return tokens_per_s * t->flops_causal / t->peak;
}

static size_t add_mfu(char *buf, size_t cap, size_t at, const lf_trainer *t, double tokens_per_s)
{
    return t->peak > 0 ? add_real(buf, cap, at, "mfu", mfu_of(t, tokens_per_s)) : at;
}

/* What the GPU of rank 0 says of itself, now and then. */
static size_t add_gpu(char *buf, size_t cap, size_t at, const lf_trainer *t)
{
    struct lf_gpu_use u;
    if (!lf_nvml_sample(t->nvml, &u))
        return at;
    at = add_real(buf, cap, at, "gpu_util", u.util);
    at = add_real(buf, cap, at, "gpu_memory", u.memory);
    return add_real(buf, cap, at, "gpu_power", u.power_w);
}

/* How much was trained in how long. What an encoder computes does not follow from tokens, so of
 * pictures no FLOPs are told. */
static size_t add_speed(char *buf, size_t cap, size_t at, const lf_trainer *t,
                        const struct lf_train_step *st)
{
    const double busy = st->seconds > 0 ? st->seconds : 1e-9,
                 rate = (double)(st->samples * t->c->seq_length) / busy;
    if (lf_train_pictures(t->c))
        return add_real(buf, cap, at, "pictures_per_s", (double)st->trained / busy);
    at = add_real(buf, cap, at, "tokens_per_s", rate);
    at = add_real(buf, cap, at, "model_flops_causal", rate * t->flops_causal);
    at = add_real(buf, cap, at, "model_flops_full", rate * t->flops_full);
    return add_mfu(buf, cap, at, t, rate);
}

static size_t add_valid_nsp(char *buf, size_t cap, size_t at, const struct lf_train_step *st)
{
    at = add_real(buf, cap, at, "valid_nsp_loss", st->valid_nsp_loss);
    return add_real(buf, cap, at, "valid_nsp_accuracy", st->valid_nsp_accuracy);
}

/* Of pairs of texts; the loss is in that of the step. */
static size_t add_nsp(char *buf, size_t cap, size_t at, const struct lf_train_step *st)
{
    at = add_real(buf, cap, at, "nsp_loss", st->more_loss[0]);
    at = add_real(buf, cap, at, "nsp_accuracy", st->more_accuracy[0]);
    return add_valid_nsp(buf, cap, at, st);
}

/* Of each head of mtp_layers that is trained: its loss, and how often its most likely token was the
 * right one, which is what speculative decoding would accept. */
static size_t add_mtp(char *buf, size_t cap, size_t at, const struct lf_train_step *st)
{
    for (int k = 0; k < LF_MORE_HEADS; k++) {
        char key[32];
        snprintf(key, sizeof(key), "mtp%d_loss", k + 1);
        at = add_real(buf, cap, at, key, st->more_loss[k]);
        snprintf(key, sizeof(key), "mtp%d_accuracy", k + 1);
        at = add_real(buf, cap, at, key, st->more_accuracy[k]);
    }
    return at;
}

/* snprintf and not jansson: nothing is allocated in a step. */
static int write_record(lf_trainer *t, const struct lf_train_step *st, lf_err *err)
{
    char b[4096];
    int n = snprintf(b, sizeof(b), "{\"step\":%lld,\"samples\":%lld,\"%s\":%lld,\"batch\":%lld",
                     (long long)t->s.step, (long long)t->s.samples,
                     lf_train_pictures(t->c) ? "pictures" : "tokens", (long long)t->s.tokens,
                     (long long)st->batch);
    size_t at = n < 0 ? 0 : (size_t)n;
    at = add_real(b, sizeof(b), at, "loss", st->loss);
    at = add_real(b, sizeof(b), at, "valid_loss", st->valid_loss);
    if (!t->c->objective) {
        at = add_real(b, sizeof(b), at, "accuracy", st->accuracy);
        at = add_real(b, sizeof(b), at, "valid_accuracy", st->valid_accuracy);
        at = add_real(b, sizeof(b), at, "entropy", st->entropy);
        at = add_real(b, sizeof(b), at, "valid_entropy", st->valid_entropy);
        at = add_sets(b, sizeof(b), at, t, st);
    }
    at = add_means(b, sizeof(b), at, t, st);
    for (size_t i = 0; st->visited && i < t->c->guest->n_metrics; i++)
        at = add_real(b, sizeof(b), at, t->c->guest->metrics[i], st->guest[i]);
    at = add_real(b, sizeof(b), at, "grad_norm", st->grad_norm);
    at = add_real(b, sizeof(b), at, "lr", st->lr);
    if (t->c->scaler.dynamic) {
        at = add_real(b, sizeof(b), at, "loss_scale", st->loss_scale);
        at = add_real(b, sizeof(b), at, "overflows", (double)t->s.scaler.overflows);
    }
    if (t->c->z_loss > 0)
        at = add_real(b, sizeof(b), at, "z_loss", st->z);
    at = t->c->nsp ? add_nsp(b, sizeof(b), at, st) : add_mtp(b, sizeof(b), at, st);
    if (t->mc.experts > 0) {
        at = add_real(b, sizeof(b), at, "router_aux", st->router_aux);
        at = add_real(b, sizeof(b), at, "router_entropy", st->router_entropy);
        at = add_real(b, sizeof(b), at, "router_load", st->router_load);
    }
    if (t->mc.capacity_factor > 0)
        at = add_real(b, sizeof(b), at, "router_dropped", st->router_dropped);
    if (t->s.step == 1 && !t->c->objective)
        at = add_real(b, sizeof(b), at, "ln_vocab", log((double)t->mc.vocab));
    at = add_speed(b, sizeof(b), at, t, st);
    if (t->run.saved_step > 0) {
        /* For whoever must end this process in time: which step is safe, and what it takes to make
         * one so. */
        at = add_real(b, sizeof(b), at, "saved", (double)t->run.saved_step);
        at = add_real(b, sizeof(b), at, "save_s", t->run.save_s);
    }
    at = add_real(b, sizeof(b), at, "step_s", st->seconds);
    at = add_real(b, sizeof(b), at, "data_s", st->data_seconds);
    if (t->run.ranks > 1 && t->m.back->ops->host_visible)
        at = add_real(b, sizeof(b), at, "comm_exposed_s", st->waited);
    at = add_gpu(b, sizeof(b), at, t);
    at = add_real(b, sizeof(b), at, "rss", (double)lf_rss_bytes());
    if (!t->rss_told) /* once a start is enough */
        at = add_real(b, sizeof(b), at, "planned_memory", t->planned);
    at = add_real(b, sizeof(b), at, "t", lf_wall_s());
    if (at + 2 > sizeof(b))
        return lf_fail(err, LF_EINVAL, "a metrics record is longer than %zu bytes", sizeof(b));
    b[at++] = '}';
    return lf_run_record(&t->run, b, at, err);
}

/* What was measured at a step that an earlier start has told. */
int lf_train_report_end(lf_trainer *t, const struct lf_train_step *st, lf_err *err)
{
    char b[4096];
    if (!lf_run_wants_record(&t->run))
        return 0;
    int n = snprintf(b, sizeof(b), "{\"step\":%lld", (long long)t->s.step);
    size_t at = n < 0 ? 0 : (size_t)n;
    at = add_real(b, sizeof(b), at, "valid_loss", st->valid_loss);
    if (!t->c->objective) {
        at = add_real(b, sizeof(b), at, "valid_accuracy", st->valid_accuracy);
        at = add_real(b, sizeof(b), at, "valid_entropy", st->valid_entropy);
        at = add_sets(b, sizeof(b), at, t, st);
        at = add_valid_nsp(b, sizeof(b), at, st);
    } else {
        at = add_valid_means(b, sizeof(b), at, t, st);
    }
    for (size_t i = 0; st->visited && i < t->c->guest->n_metrics; i++)
        at = add_real(b, sizeof(b), at, t->c->guest->metrics[i], st->guest[i]);
    if (at + 2 > sizeof(b))
        return lf_fail(err, LF_EINVAL, "a metrics record is longer than %zu bytes", sizeof(b));
    b[at++] = '}';
    return lf_run_record(&t->run, b, at, err);
}

static void shown_means(char *buf, size_t cap, const lf_trainer *t, const struct lf_train_step *st)
{
    const lf_objective *o = t->c->objective;
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 1; o && i < o->n_shown && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, " %s %.4g", o->metrics[i], st->means[i]);
}

static void tell_busy(lf_trainer *t)
{
    char text[256];
    if (lf_busy_look(text, sizeof(text)))
        lf_train_log(t, 2, "%s", text);
}

static const char *speed_text(char *buf, size_t cap, const lf_trainer *t,
                              const struct lf_train_step *st, double rate)
{
    char tok[32], flops[32], share[32] = "";
    if (lf_train_pictures(t->c)) {
        snprintf(buf, cap, "pictures/s %s",
                 lf_fmt_count(tok, sizeof(tok), (double)st->trained / fmax(st->seconds, 1e-9)));
        return buf;
    }
    if (t->peak > 0)
        snprintf(share, sizeof(share), " mfu %.1f %%", 100 * mfu_of(t, rate));
    snprintf(buf, cap, "tok/s %s flop/s %s%s", lf_fmt_count(tok, sizeof(tok), rate),
             lf_fmt_count(flops, sizeof(flops), rate * t->flops_causal), share);
    return buf;
}

static void log_line(lf_trainer *t, const struct lf_train_step *st)
{
    double now = lf_now_s(), dt = now - t->t_log;
    double rate = dt > 0 ? (double)(t->s.samples - t->samples_log) * t->c->seq_length / dt : 0;
    double left =
        rate > 0 ? (double)(t->total_samples - t->s.samples) * t->c->seq_length / rate : 0;
    char speed[112], time[32], valid[48] = "", means[400];
    if (isfinite(st->valid_loss))
        snprintf(valid, sizeof(valid), " valid %.4f", st->valid_loss);
    shown_means(means, sizeof(means), t, st);
    lf_train_log(t, 2, "step %lld/%lld loss %.4f%s%s grad %.3f lr %.3g %s left %s",
                 (long long)t->s.step, (long long)t->total_steps, st->loss, valid, means,
                 st->grad_norm, st->lr, speed_text(speed, sizeof(speed), t, st, rate),
                 lf_fmt_duration(time, sizeof(time), left));
    t->t_log = now;
    t->samples_log = t->s.samples;
    tell_busy(t);
}

/* The total is that of --plan; the parts have the same names there. */
static void log_memory(lf_trainer *t, const struct lf_plan_bytes *b)
{
    const struct lf_plan_memory mem = lf_train_planned(t->c, &t->m, &t->who);
    const struct {
        const char *name;
        double bytes;
    } parts[] = {{"weights", (double)b->params},
                 {"gradients", (double)b->grads},
                 {"moments", (double)b->optimizer},
                 {"activations", (double)(b->saved + b->transient)},
                 {"workspace", (double)b->workspace},
                 {"inputs", (double)b->inputs},
                 {"cache", (double)b->state},
                 {"communicators", lf_train_gpu_comm_bytes(t->c, &t->m, &t->who)},
                 {"host", mem.host}};
    char text[400], size[32], moved[80] = "";
    size_t at = 0;
    const size_t n = sizeof parts / sizeof parts[0] - (mem.device > 0); /* host is another memory */
    for (size_t i = 0; i < n && at < sizeof text; i++)
        if (i == 0 || parts[i].bytes > 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s", i ? ", " : "",
                                   parts[i].name, lf_fmt_bytes(size, sizeof size, parts[i].bytes));
    t->planned = mem.total;
    if (b->offloaded > 0)
        snprintf(moved, sizeof moved, ", %s of it offloaded masters and moments",
                 lf_fmt_bytes(size, sizeof size, (double)b->offloaded));
    lf_fmt_bytes(size, sizeof size, mem.total);
    if (mem.device > 0)
        lf_train_log(t, 2, "planned memory %s%s", size, moved);
    lf_train_log(t, 2, "planned %smemory %s: %s", mem.device > 0 ? "GPU " : "",
                 lf_fmt_bytes(size, sizeof size, mem.device > 0 ? mem.device : mem.total), text);
}

/* Which ranks share the batch, the layers and the matrices. */
static void log_layout(lf_trainer *t)
{
    lf_buf line;
    lf_buf_init(&line);
    lf_laid_line(&line, &t->c->axes, &t->who, &t->m.cut);
    if (line.len > 0 && lf_buf_check(&line, NULL) == 0)
        lf_train_log(t, 2, "%s", line.data);
    lf_buf_fini(&line);
}

/* What was measured of each pipeline rank, and what the schedule makes of it. */
static void log_costs(const lf_trainer *t)
{
    const struct lf_train_cut *k = &t->m.cut;
    const int micro = k->spec.micro_batches;
    struct lf_pipe_timing timing = {0};
    double step_s;
    if (!t->c->costs || lf_train_cost_walk(&timing, &step_s, t->c->costs, k, micro, NULL) != 0)
        return;
    for (int r = 0; r < k->spec.ranks; r++) {
        const struct lf_train_cost c = lf_train_cost_rank(t->c->costs, k, r);
        lf_train_log(
            t, 2,
            "pipeline rank %d: F %.4g ms, B %.4g ms, W %.4g ms of a micro-batch, optimizer "
            "%.4g ms",
            r, 1e3 * c.f_s, 1e3 * c.b_s, 1e3 * c.w_s, 1e3 * c.update_s);
    }
    lf_train_log(t, 2, "pipeline: a step of %d micro-batches takes %.6f s by the schedule, %s",
                 micro, step_s,
                 t->c->costs->layers ? "as measured when the run began" : "as measured");
    lf_pipe_timing_fini(&timing);
}

void lf_train_report_begin(lf_trainer *t)
{
    char a[32], b[32];
    const double reads =
        (double)t->total_samples * (lf_train_pictures(t->c) ? 1 : t->c->seq_length);
    struct lf_plan_bytes pb;
    t->session0 = t->t_log = t->run.last_save = lf_now_s();
    t->active0 = t->s.active_s;
    t->here0 = t->s.step;
    t->samples_log = t->s.samples;
    if (lf_plan_bytes(t->m.plan, &pb))
        return;
    if (!lf_train_pictures(t->c)) {
        const struct lf_train_flops f = lf_train_flops_of(&t->mc, lf_train_all(&t->m));
        t->flops_causal = lf_train_flops_per_token(&f, &t->mc, t->c->seq_length, true);
        t->flops_full = lf_train_flops_per_token(&f, &t->mc, t->c->seq_length, false);
    }
    lf_train_log(t, 2, "%s parameters, %lld steps, %s %s",
                 lf_fmt_count(a, sizeof(a), (double)lf_pstore_elements(lf_train_all(&t->m))),
                 (long long)t->total_steps, lf_fmt_count(b, sizeof(b), reads),
                 lf_train_pictures(t->c) ? "documents" : "tokens");
    log_layout(t);
    log_costs(t);
    log_memory(t, &pb);
    if (t->c->mfu && !lf_train_pictures(t->c))
        t->peak = lf_train_peak(&t->run, t->m.back, t->c->compute);
    tell_busy(t); /* the first span begins */
    if (lf_train_first_rank(t))
        t->nvml = lf_nvml_open(t->m.back, t->c->gpu_interval_s);
}

double lf_train_uniform(const lf_trainer *t)
{
    return log((double)t->mc.vocab) + (t->c->nsp ? log(2) : 0);
}

/* The first step of a run at random weights: is the loss that of a uniform guess? */
void lf_train_report_first(lf_trainer *t, const struct lf_train_step *st)
{
    double uniform = lf_train_uniform(t);
    /* Logits of N(0, hidden std^2) cost half their variance more than a uniform guess. */
    double more = 0.5 * (double)t->mc.hidden * t->mc.init_std * t->mc.init_std;
    bool odd = st->loss < uniform - 0.5 || st->loss > uniform + 2 * more + 0.5;
    lf_train_log(t, odd && !t->c->init_from ? 1 : 2,

                 "loss of the first step %.4f, ln(vocab)%s %.4f%s", st->loss,
                 t->c->nsp ? " + ln(2)" : "", uniform,
                 t->c->init_from ? " (weights given)"
                 : odd           ? ": not what random weights give; is the data or the model right?"
                                 : "");
}

static void report_memory(lf_trainer *t)
{
    t->rss_told = true;
    int64_t now = lf_rss_bytes();
    if (now < 0)
        return;
    char is[32], planned[32];
    lf_train_log(t, 2, "resident memory %s after the first step; planned memory %s",
                 lf_fmt_bytes(is, sizeof is, (double)now),
                 lf_fmt_bytes(planned, sizeof planned, t->planned));
}

void lf_train_report_held(const lf_trainer *t)
{
    const double all = lf_now_s() - t->session0;
    if (t->saves > 0 && all > 0)
        lf_train_log(t, 2, "%lld checkpoints held training up for %.2f s of %.1f s (%.2f %%)",
                     (long long)t->saves, t->held_s, all, 100 * t->held_s / all);
}

int lf_train_report_peak(lf_trainer *t, lf_err *err)
{
    const double peak = (double)lf_rss_peak_bytes(),
                 reserved = (double)lf_plan_target(t->m.plan)->reserved;
    /* of all ranks: the most, the most and the least beside the plan */
    double v[] = {peak, peak - (t->planned - reserved), t->planned - reserved - peak};
    char most[32], up[32], low[32], kept[32];
    int rc =
        t->run.ranks > 1 ? lf_comm_all_reduce(t->run.comm, v, 3, LF_COMM_F64, LF_COMM_MAX, err) : 0;
    if (rc != 0 || peak < 0)
        return rc;
    lf_fmt_bytes(most, sizeof most, v[0]);
    lf_fmt_bytes(up, sizeof up, v[1] > 0 ? v[1] : 0);
    lf_fmt_bytes(low, sizeof low, v[2] < 0 ? -v[2] : 0);
    lf_fmt_bytes(kept, sizeof kept, reserved);
    if (t->run.ranks > 1)
        lf_train_log(t, 2,
                     "peak memory of a rank %s: beside the plan %s to %s, which reserves %s for "
                     "libraries",
                     most, low, up, kept);
    else
        lf_train_log(t, 2, "peak memory %s: beside the plan %s, which reserves %s for libraries",
                     most, up, kept);
    return 0;
}

int lf_train_report(lf_trainer *t, const struct lf_train_step *st, lf_err *err)
{
    int rc = lf_run_wants_record(&t->run) ? write_record(t, st, err) : 0;
    if (!t->rss_told)
        report_memory(t);
    if (t->s.step % t->c->log_interval == 0 || t->s.step == t->total_steps ||
        isfinite(st->valid_loss))
        log_line(t, st);
    return rc;
}
