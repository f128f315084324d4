/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule as JSON.
 */
#include "engine/base/json.h"
#include "engine/pipe/pipe_priv.h"
#include "engine/pipe/show.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A number that the item does not have is left out. */
static int set_number(json_t *o, const char *key, int value, lf_err *err)
{
    const struct lf_json_member m = {key, json_integer(value)};
    if (value < 0) {
        json_decref(m.value);
        return 0;
    }
    return lf_json_set(o, &m, 1, "an item of a pipeline schedule", err);
}

/* Appends the value, which is taken over. */
static int append(json_t *array, json_t *value, lf_err *err)
{
    if (!value || json_array_append_new(array, value) != 0)
        return lf_fail(err, LF_ENOMEM, "out of memory for a pipeline schedule as JSON");
    return 0;
}

static int add_item(json_t *items, const struct lf_pipe_item *it, const struct lf_pipe_span *span,
                    lf_err *err)
{
    static const char *const ops[LF_PIPE_OPS] = {"F",    "B",       "W",         "Z",
                                                 "send", "receive", "wait_send", "wait_receive"};
    static const char *const dirs[LF_PIPE_DIRS] = {"activation", "gradient"};
    json_t *o =
        json_pack("{s:s,s:i,s:i,s:f,s:f}", "op", ops[it->op], "chunk", (int)it->chunk,
                  "micro_batch", (int)it->micro, "begin_s", span->begin_s, "end_s", span->end_s);
    int rc = append(items, o, err);
    if (rc == 0 && !lf_pipe_computes(it)) {
        const struct lf_json_member m = {"direction", json_string(dirs[it->dir])};
        rc = lf_json_set(o, &m, 1, "an item of a pipeline schedule", err);
    }
    if (rc == 0)
        rc = set_number(o, "slot", it->slot, err);
    if (rc == 0)
        rc = set_number(o, "peer", it->peer, err);
    if (rc == 0)
        rc = set_number(o, "tag", it->tag, err);
    if (rc == 0)
        rc = set_number(o, "receive_buffer", it->recv_buffer, err);
    return rc == 0 ? set_number(o, "send_buffer", it->send_buffer, err) : rc;
}

static int add_chunks(json_t *chunks, const struct lf_pipe *p, int rank, lf_err *err)
{
    int rc = 0;
    for (int c = 0; rc == 0 && c < p->spec.chunks; c++) {
        const int i = lf_pipe_at(&p->spec, rank, c);
        rc = append(chunks,
                    json_pack("{s:i,s:i,s:[i,i],s:[i,i]}", "stage",
                              lf_pipe_stage(&p->spec, rank, c), "slots", p->slots[i],
                              "receive_buffers", p->recv_buffers[LF_PIPE_ACTIVATION][i],
                              p->recv_buffers[LF_PIPE_GRADIENT][i], "send_buffers",
                              p->send_buffers[LF_PIPE_ACTIVATION][i],
                              p->send_buffers[LF_PIPE_GRADIENT][i]),
                    err);
    }
    return rc;
}

static int add_list(json_t *lists, const struct lf_pipe *p, const struct lf_pipe_timing *t,
                    int rank, lf_err *err)
{
    const struct lf_pipe_load *load = &t->load[rank];
    json_t *chunks = json_array(), *items = json_array();
    const struct lf_json_member m[] = {
        {"rank", json_integer(rank)},
        {"busy_s", json_real(load->busy_s)},
        {"idle_s", json_real(load->idle_s)},
        {"peak_micro_batches", json_real((double)load->peak_live / p->spec.chunks)},
        {"peak_deferred", json_integer(load->peak_deferred)},
        {"peak_bytes", json_integer(load->peak_bytes)},
        {"chunks", chunks},
        {"items", items},
    };
    json_t *o = json_object();
    int rc = lf_json_set(o, m, COUNT(m), "a list of a pipeline schedule", err);
    if (rc == 0)
        rc = add_chunks(chunks, p, rank, err);
    for (int i = 0; rc == 0 && i < p->list[rank].n; i++)
        rc = add_item(items, &p->list[rank].item[i], &t->span[rank][i], err);
    if (rc == 0)
        return append(lists, o, err);
    json_decref(o);
    return rc;
}

int lf_pipe_json(json_t **out, const struct lf_pipe *p, const struct lf_pipe_timing *t, lf_err *err)
{
    json_t *lists = json_array(), *o = json_object();
    const struct lf_json_member m[] = {
        {"schedule", json_string(lf_pipe_kind_name(p->spec.kind))},
        {"ranks", json_integer(p->spec.ranks)},
        {"chunks", json_integer(p->spec.chunks)},
        {"micro_batches", json_integer(p->spec.micro_batches)},
        {"group", json_integer(p->spec.group)},
        {"messages", json_boolean(p->messages)},
        {"end_s", json_real(t->end_s)},
        {"idle_share", json_real(t->idle_share)},
        {"lists", lists},
    };
    int rc = lf_json_set(o, m, COUNT(m), "a pipeline schedule", err);
    for (int r = 0; rc == 0 && r < p->spec.ranks; r++)
        rc = add_list(lists, p, t, r, err);
    if (rc == 0)
        *out = o;
    else
        json_decref(o);
    return rc;
}
