/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches into graphs: inputs, what an objective sees of a micro-batch, and passes over a
 * whole split. */
#include <stdio.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/sys.h"
#include "engine/train/loop_priv.h"
#include "engine/train/neftune.h"
#include "engine/train/pipe.h"
#include "engine/train/texts.h"

void lf_train_own(lf_trainer *t)
{
    t->mine = (struct lf_own_rows){.layout = lf_pstore_layout_of(t->m.ps),
                                   .comm = t->comms.context,
                                   .all = t->m.rows,
                                   .own = t->m.own_rows,
                                   .n_docs = t->m.n_docs,
                                   .causal = t->mc.mask != LF_MASK_BOTH};
}

static int write_rows(const lf_trainer *t, const struct lf_train_inputs *in, const char *name,
                      const void *all, size_t each, lf_err *err)
{
    const struct lf_row_value v = {t->m.ex, in->chain, in->slot, name, each};
    return lf_own_rows_write(&t->mine, &v, all, err);
}

/* What heads of mtp_layers read and predict: rows further on. */
static int write_mtp(lf_trainer *t, const struct lf_train_inputs *in, const lf_loader_batch *b,
                     lf_err *err)
{
    char name[32];
    int rc = 0;
    for (int64_t k = 1; k <= lf_decoder_mtp(t->m.dec) && rc == 0; k++) {
        lf_decoder_ahead(b->tokens, b->cu_seqlens, t->m.n_docs, t->m.rows, k, 0, t->mtp_buf);
        snprintf(name, sizeof name, "mtp.%lld.tokens", (long long)k);
        rc = write_rows(t, in, name, t->mtp_buf, sizeof(int32_t), err);
        lf_decoder_ahead(b->targets, b->cu_seqlens, t->m.n_docs, t->m.rows, k, -1, t->mtp_buf);
        snprintf(name, sizeof name, "mtp.%lld.targets", (long long)k);
        if (rc == 0)
            rc = write_rows(t, in, name, t->mtp_buf, sizeof(int32_t), err);
    }
    return rc;
}

/* Of each pair of texts its class, at the first row. */
static int write_nsp(lf_trainer *t, const struct lf_train_inputs *in, const lf_loader_batch *b,
                     lf_err *err)
{
    for (int64_t r = 0; r < t->m.rows; r++)
        t->nsp_buf[r] = LF_NSP_NONE;
    for (int32_t s = 0; s < b->n_segs; s++)
        t->nsp_buf[b->cu_seqlens[s]] = b->seg_nsp[s];
    return write_rows(t, in, "nsp.targets", t->nsp_buf, sizeof(int32_t), err);
}

int64_t lf_train_separator(const lf_trainer *t)
{
    const lf_objective *o = t->c->objective;
    return t->c->nsp                            ? t->c->nsp->separator
           : o && o->whole_texts && !o->several ? o->separator
                                                : -1;
}

/* Of training alone. */
static int write_noise(lf_trainer *t, const struct lf_train_inputs *in, const lf_loader_batch *b,
                       lf_err *err)
{
    const struct lf_neftune n = {.alpha = t->c->neftune_alpha,
                                 .rows = t->m.rows,
                                 .width = t->mc.hidden,
                                 .cu_seqlens = b->cu_seqlens,
                                 .n_docs = t->m.n_docs,
                                 .sample_ids = b->sample_ids,
                                 .row_tokens = b->T,
                                 .seed = t->c->seed,
                                 .threads = t->c->threads};
    lf_neftune_fill(t->noise_buf, &n);
    return write_rows(t, in, "noise", t->noise_buf, (size_t)t->mc.hidden * sizeof(float), err);
}

/* What the encoder of an encoder-decoder reads. */
static int write_source(const lf_trainer *t, const struct lf_train_inputs *in,
                        const lf_loader_batch *b, lf_err *err)
{
    lf_exec *ex = t->m.ex;
    const size_t i32 = sizeof(int32_t), rows = (size_t)b->B * (size_t)b->S;
    int rc = in->part->first ? lf_exec_write(ex, in->chain, in->slot, "source_tokens",
                                             b->source_tokens, rows * i32, err)
                             : 0;
    if (rc == 0 && in->part->first)
        rc = lf_exec_write(ex, in->chain, in->slot, "source_positions", b->source_positions,
                           rows * i32, err);
    if (rc == 0)
        rc = lf_exec_write(ex, in->chain, in->slot, "source_cu_seqlens", b->source_cu_seqlens,
                           ((size_t)t->m.n_docs + 1) * i32, err);
    if (rc != 0 || !t->source_samples_buf || !in->train)
        return rc;
    for (size_t r = 0; r < rows; r++)
        t->source_samples_buf[r] = b->sample_ids[r / (size_t)b->S];
    rc = lf_exec_write(ex, in->chain, in->slot, "source_samples", t->source_samples_buf,
                       rows * sizeof(int64_t), err);
    return rc != 0 ? rc
                   : lf_exec_write(ex, in->chain, in->slot, "source_offsets", t->source_offsets_buf,
                                   rows * i32, err);
}

int lf_train_find_texts(lf_trainer *t, const lf_loader_batch *b, lf_err *err)
{
    return t->texts_cu ? lf_texts_split(b, t->c->objective->separator, t->m.n_docs, t->texts_cu,
                                        t->texts_place, err)
                       : 0;
}

int lf_train_write_inputs(lf_trainer *t, const struct lf_train_inputs *in, const lf_loader_batch *b,
                          lf_err *err)
{
    const int chain = in->chain, slot = in->slot;
    const size_t i32 = sizeof(int32_t);
    lf_exec *ex = t->m.ex;
    lf_loader_batch texts = *b;
    int rc = lf_train_find_texts(t, b, err);
    if (t->texts_cu) {
        texts.cu_seqlens = t->texts_cu;
        texts.positions = t->texts_place;
        b = &texts;
    }
    if (rc == 0)
        rc = lf_own_rows_find(&t->mine, b->cu_seqlens, err);
    if (rc == 0)
        rc = write_rows(t, in, "positions", b->positions, i32, err);
    if (rc == 0 && in->part->first && !in->sight)
        rc = write_rows(t, in, "tokens", b->tokens, i32, err);
    if (rc == 0 && in->sight)
        rc = lf_train_write_sight(t, in, err);
    if (rc == 0 && in->part->last)
        rc = write_rows(t, in, "targets", b->targets, i32, err);
    if (rc == 0)
        rc = lf_exec_write(ex, chain, slot, "cu_seqlens", b->cu_seqlens,
                           ((size_t)t->m.n_docs + 1) * i32, err);
    if (rc == 0 && b->S && lf_decoder_reads_source(&t->mc, in->part))
        rc = write_source(t, in, b, err);
    if (rc == 0)
        rc = lf_own_rows_write_blocks(&t->mine, ex, chain, slot, err);
    const struct lf_decoder_docs docs = {.slot = slot,
                                         .cu_seqlens = b->cu_seqlens,
                                         .n = t->m.n_docs,
                                         .rows = t->m.rows,
                                         .own = t->mine.row,
                                         .own_rows = t->m.own_rows,
                                         .pictures = in->sight != NULL,
                                         .types = t->types_buf,
                                         .inner = !in->part->first};
    if (t->types_buf)
        lf_decoder_second(b->tokens, b->cu_seqlens, t->m.n_docs, lf_train_separator(t),
                          t->types_buf);
    if (rc == 0)
        rc = lf_decoder_write_turns(t->m.dec, ex, chain, &docs, err);
    if (rc == 0)
        rc = lf_decoder_write_prefixes(t->m.dec, ex, chain, &docs, b->targets, t->prefix_buf, err);
    if (rc == 0 && in->part->first && t->noise_buf && in->train)
        rc = write_noise(t, in, b, err);
    if (rc == 0 && in->part->last && t->mtp_buf && in->train)
        rc = write_mtp(t, in, b, err);
    if (rc == 0 && in->part->last && t->nsp_buf)
        rc = write_nsp(t, in, b, err);
    if (rc != 0 || !t->samples_buf || !in->train)
        return rc;
    for (int64_t r = 0; r < t->m.rows; r++)
        t->samples_buf[r] = b->sample_ids[r / b->T];
    rc = write_rows(t, in, "samples", t->samples_buf, sizeof(int64_t), err);
    if (rc == 0)
        rc = write_rows(t, in, "offsets", t->offsets_buf, i32, err);
    return rc == 0 && in->sight && in->part->first && t->m.media.drops
               ? lf_sight_write_samples(in->sight, ex, chain, slot, err)
               : rc;
}

int lf_train_together(const lf_trainer *t, int rc, lf_err *err)
{
    return t->comms.column ? lf_comm_agree_ok(t->comms.column, rc, err) : rc;
}

int lf_train_next_step(const lf_trainer *t, lf_loader *l, lf_loader_step *ls, lf_err *err)
{
    const int rc = lf_loader_begin_step(l, ls, err);
    const int all = lf_train_together(t, rc < 0 ? rc : 0, err);
    return all != 0 ? all : rc;
}

int lf_train_view_inputs(const struct lf_train_view *v, int chain, bool targets, lf_err *err)
{
    const struct lf_decoder_chunk part = {.first = true, .last = targets};
    const struct lf_train_inputs in = {
        .chain = chain, .slot = v->slot, .part = &part, .train = v->train};
    return lf_train_write_inputs(v->trainer, &in, v->batch, err);
}

/* Those of an objective that has a graph of its own. */
static int own_inputs(lf_trainer *t, const lf_loader *l, bool train, const lf_loader_batch *b,
                      lf_err *err)
{
    const int chain = train ? t->m.train : t->m.valid;
    struct lf_train_view v = lf_train_view_of(t, chain, b, l == t->vdata, 0);
    v.data = l;
    return t->c->objective->inputs(t->c->objective->user, &v, err);
}

int lf_train_next_batch(lf_trainer *t, lf_loader *l, bool train, const lf_loader_batch **b,
                        double *data_s, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    const double t0 = lf_now_s();
    const struct lf_profile_mark mark = lf_profile_begin(t->c->profile);
    int rc = lf_loader_next(l, b, err);
    lf_profile_end(t->c->profile, LF_LANE_DATA, "next micro-batch", mark);
    if (rc == 0 && t->sight)
        rc = lf_train_see(t->sight, l, *b, err);
    if (rc == 0 && o && o->inputs)
        rc = own_inputs(t, l, train, *b, err);
    if (data_s)
        *data_s += lf_now_s() - t0;
    if (rc == 0 && !(o && o->inputs)) {
        const struct lf_train_chunk *h = t->m.cut.chunk;
        const struct lf_train_inputs in = {train ? h->train : h->valid, 0, &h->part, t->sight,
                                           train};
        rc = lf_train_write_inputs(t, &in, *b, err);
    }
    return lf_train_together(t, rc, err);
}

/* ---- forwards alone ---- */

static int forward(lf_trainer *t, struct lf_train_forwards *f, lf_err *err)
{
    const int chain = f->train ? t->m.train : t->m.valid;
    const lf_loader_batch *b;
    int rc = lf_train_next_batch(t, f->data, f->train, &b, NULL, err);
    if (rc != 0)
        return rc;
    rc = lf_exec_run(t->m.ex, chain, LF_FWD, 0, LF_FIRST, err);
    lf_train_expect_run(t, chain, false);
    f->ran = rc != 0 ? INT64_MAX : f->ran + 1;
    if (rc != 0)
        lf_train_pass_failed(t, err);
    if (rc == 0 && f->each) {
        struct lf_train_view v = lf_train_view_of(t, chain, b, f->valid_split, 0);
        v.data = f->data;
        rc = lf_train_together(t, f->each(f->user, &v, err), err);
    }
    return rc;
}

int lf_train_ready(const lf_trainer *t, int rc, lf_err *err)
{
    rc = lf_train_together(t, rc, err);
    return t->pipe && t->comms.experts ? lf_comm_agree_ok(t->comms.data, rc, err) : rc;
}

int lf_train_forwards(lf_trainer *t, struct lf_train_forwards *f, int64_t n, lf_err *err)
{
    int rc = 0;
    if (t->pipe)
        return lf_train_pipe_forwards(t, f, n, err);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        const int more = lf_train_next_step(t, f->data, &f->ls, err);
        if (more != 1)
            return more;
        f->steps++;
        for (f->taken = 0; f->taken < f->ls.n_micro && rc == 0; f->taken++)
            rc = forward(t, f, err);
    }
    return rc;
}

int lf_train_ask(void *asked, const struct lf_train_view *v, lf_err *err)
{
    const struct lf_train_asked *a = asked;
    return a->survey ? a->o->survey(a->o->user, v, a->sums->obj, err)
                     : a->o->after_forward(a->o->user, v, a->sums->obj, a->sums->top, err);
}

struct lf_train_view lf_train_view_of(lf_trainer *t, int chain, const lf_loader_batch *b,
                                      bool valid_split, double inv_units)
{
    return (struct lf_train_view){.ex = t->m.ex,
                                  .chain = chain,
                                  .rows = t->m.rows,
                                  .trainer = t,
                                  .batch = b,
                                  .data = valid_split ? t->vdata : t->data,
                                  .train = chain == t->m.train,
                                  .valid_split = valid_split,
                                  .inv_units = inv_units};
}

/* ---- passes over a split ---- */

size_t lf_train_n_sources(const lf_trainer *t, bool valid)
{
    return valid ? t->n_valid_dirs : t->c->n_sources;
}

const char *lf_train_source_dir(const lf_trainer *t, size_t source, bool valid)
{
    return valid ? t->valid_dirs[source] : t->c->sources[source].dir;
}

const lf_shardset *lf_train_source_set(const lf_trainer *t, size_t source, bool valid)
{
    return lf_loader_set(valid ? t->vdata : t->data, source);
}

static int open_pass(lf_loader **out, const lf_trainer *t, const struct lf_train_over *o,
                     lf_err *err)
{
    const lf_loader_source src = {lf_train_source_dir(t, o->source, o->valid), 1};
    lf_loader_config lc = lf_train_valid_config(t->c, &t->mc, 1);
    lc.features = t->features;
    lc.split = o->valid ? "valid" : "train";
    lc.sources = &src;
    lc.dp_rank = t->who.data;
    lc.dp_size = t->who.data_ranks;
    lc.vocab_size = t->mc.vocab;
    return lf_loader_open(out, &lc, err);
}

/* Every rank goes through the same number of steps and pauses, also one that has failed: it meets
 * the others at their next pause. */
static int visit(lf_trainer *t, lf_loader *l, const struct lf_train_over *o, int64_t steps,
                 lf_err *err)
{
    const int64_t every = !o->between ? steps : o->every > 0 ? o->every : 1;
    struct lf_train_forwards f = {
        .data = l, .valid_split = o->valid, .each = o->visit, .user = o->user};
    int64_t n = 0;
    int rc = 0;
    do {
        const int64_t more = every < steps - n ? every : steps - n;
        f.ran = 0;
        if (rc == 0)
            rc = lf_train_forwards(t, &f, more, err);
        n += more;
        rc = lf_train_stand_by(t, t->m.valid, &f.ran, more, rc, err);
        if (!o->between)
            continue;
        rc = lf_train_agree(t, rc, err);
        if (rc == 0)
            rc = lf_train_agree(t, o->between(o->user, lf_loader_cursor(l), err), err);
        if (rc != 0)
            break;
    } while (n < steps);
    return rc;
}

int lf_train_over(lf_trainer *t, const struct lf_train_over *o, lf_err *err)
{
    const struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1, .seed = t->c->seed};
    const int64_t unit = (int64_t)t->c->micro_batch * t->who.data_ranks;
    lf_loader *l = NULL;
    lf_run_phase(&t->run, "a pass over the data");
    int rc = open_pass(&l, t, o, err);
    if (rc == 0 && o->from > 0 && o->from < lf_loader_samples(l))
        rc = lf_loader_seek(l, o->from / unit * unit, err);
    if (rc == 0)
        rc = lf_exec_record_write(t->m.ex, &rec, err);
    rc = lf_train_agree(t, rc, err);
    if (rc == 0 && o->from < lf_loader_samples(l))
        rc = visit(t, l, o, lf_train_rounds(t, lf_loader_samples(l) - o->from / unit * unit), err);
    lf_loader_close(l);
    return lf_train_agree(t, rc, err);
}

/* ---- what else prepare may ask ---- */

const char *lf_train_init_id(const lf_trainer *t)
{
    return t->init_id;
}

json_t *lf_train_numbers(const lf_trainer *t)
{
    return t->run.fingerprint;
}

const char *lf_train_out(const lf_trainer *t)
{
    return t->c->out;
}

int lf_train_add_up(const lf_trainer *t, double *v, size_t n, lf_err *err)
{
    lf_train_count_packs(t, v, n);
    return t->run.ranks > 1 ? lf_comm_all_reduce(t->run.comm, v, n, LF_COMM_F64, LF_COMM_SUM, err)
                            : 0;
}

int lf_train_share(const lf_trainer *t, void *data, size_t bytes, lf_err *err)
{
    return t->run.ranks > 1 ? lf_comm_broadcast(t->run.comm, data, bytes, 0, err) : 0;
}

bool lf_train_asked_to_stop(const lf_trainer *t)
{
    return lf_run_asked_to_stop(&t->run);
}
