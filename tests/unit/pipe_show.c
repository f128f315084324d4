/* SPDX-License-Identifier: Apache-2.0
 *
 * show.h: the drawing and the JSON of a schedule.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/pipe/show.h"
#include "tests/tap/tap.h"
#include "tests/unit/pipe_util.h"

static void drawn(const struct lf_pipe *p, int columns, const char *want, const char *name)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_pipe_draw(&b, p, columns);
    tap_str(b.data, want, name);
    lf_buf_fini(&b);
}

static void drawings(void)
{
    struct lf_pipe p = pipe_made(LF_PIPE_1F1B, 2, 1, 3);
    drawn(&p, 100, "rank 0  F0 F1 Z0 F2 Z1 Z2\nrank 1  F0 Z0 F1 Z1 F2 Z2\n", "two ranks");
    lf_pipe_fini(&p);
    p = pipe_sending(LF_PIPE_INTERLEAVED, 2, 2, 2, (struct lf_pipe_message_opts){0});
    drawn(&p, 100,
          "rank 0  F0.0 F1.0 F0.2 F1.2 Z0.2 Z1.2 Z0.0 Z1.0\n"
          "rank 1  F0.1 F1.1 F0.3 Z0.3 F1.3 Z1.3 Z0.1 Z1.1\n",
          "with chunks, and without the messages");
    lf_pipe_fini(&p);
    p = pipe_sending(LF_PIPE_ZB_V, 2, 2, 1, (struct lf_pipe_message_opts){0});
    drawn(&p, 100,
          "rank 0  F0.0 F0.3 B0.3 W0.3 B0.0 W0.0\n"
          "rank 1  F0.1 F0.2 B0.2 W0.2 B0.1 W0.1\n",
          "forth and back");
    lf_pipe_fini(&p);
    p = pipe_made(LF_PIPE_ZB_H1, 1, 1, 6);
    drawn(&p, 61, "rank 0  F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5\n",
          "a line that just fits");
    drawn(&p, 60, "rank 0  F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 ...\n",
          "one that does not");
    drawn(&p, 0, "rank 0  F0 B0 W0 F1 B1 W1 F2 B2 W2 ...\n", "no line is below 40 columns");
    lf_pipe_fini(&p);
}

/* No line of any size is longer than it may be. */
static void widths(void)
{
    int wide = 0, cut = 0, lines = 0;
    for (int columns = 40; columns <= 100; columns += 3)
        for (int m = 1; m < 40; m += 4) {
            lf_buf b;
            struct lf_pipe p = pipe_made(LF_PIPE_INTERLEAVED, 12, 2, m);
            lf_buf_init(&b);
            lf_pipe_draw(&b, &p, columns);
            for (char *line = b.data, *end; (end = strchr(line, '\n')); line = end + 1) {
                wide += end - line > columns;
                cut += strncmp(end - 4, " ...", 4) == 0;
                lines++;
            }
            lf_buf_fini(&b);
            lf_pipe_fini(&p);
        }
    tap_i64(wide, 0, "no line is too long");
    tap_ok(lines == 21 * 10 * 12 && cut > lines / 2 && cut < lines, "%d of %d are cut", cut, lines);
}

static json_t *dumped(const struct lf_pipe *p, const struct lf_pipe_walk_opts *o)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pipe_timing t = pipe_timed(p, *o);
    json_t *v = NULL;
    if (lf_pipe_json(&v, p, &t, &err) < 0)
        tap_bail("%s", err.text);
    lf_pipe_timing_fini(&t);
    return v;
}

static void small(void)
{
    const struct lf_pipe_cost cost[1] = {{.f_s = 1, .z_s = 2, .slot_bytes = 64}};
    struct lf_pipe p = pipe_made(LF_PIPE_GPIPE, 1, 1, 1);
    json_t *v = dumped(&p, &(struct lf_pipe_walk_opts){.cost = cost});
    char *text = lf_json_dump(v, NULL);
    tap_str(text,
            "{\"chunks\":1,\"end_s\":3.0,\"group\":0,\"idle_share\":0.0,\"lists\":[{\"busy_s\":3.0,"
            "\"chunks\":[{\"receive_buffers\":[0,0],\"send_buffers\":[0,0],\"slots\":1,\"stage\":0}"
            "],\"idle_s\":0.0,\"items\":[{\"begin_s\":0.0,\"chunk\":0,\"end_s\":1.0,\"micro_batch\""
            ":0,\"op\":\"F\",\"slot\":0},{\"begin_s\":1.0,\"chunk\":0,\"end_s\":3.0,\"micro_batch\""
            ":0,\"op\":\"Z\",\"slot\":0}],\"peak_bytes\":64,\"peak_deferred\":0,"
            "\"peak_micro_batches\":1.0,\"rank\":0}],\"messages\":false,\"micro_batches\":1,"
            "\"ranks\":1,\"schedule\":\"gpipe\"}",
            "the smallest schedule");
    free(text);
    json_decref(v);
    lf_pipe_fini(&p);
}

static void large(void)
{
    struct lf_pipe p = pipe_sending(LF_PIPE_INTERLEAVED, 2, 2, 5, (struct lf_pipe_message_opts){0});
    json_t *v = dumped(&p, &(struct lf_pipe_walk_opts){.message_s = 0.5});
    json_t *list = json_array_get(json_object_get(v, "lists"), 1);
    const json_t *items = json_object_get(list, "items");
    int seen[LF_PIPE_OPS] = {0}, wrong = 0;
    static const char *const ops[LF_PIPE_OPS] = {"F",    "B",       "W",         "Z",
                                                 "send", "receive", "wait_send", "wait_receive"};
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *o = json_array_get(items, i);
        const struct lf_pipe_item *it = &p.list[1].item[i];
        const char *op = json_string_value(json_object_get(o, "op"));
        wrong += !op || strcmp(op, ops[it->op]) != 0;
        wrong += json_integer_value(json_object_get(o, "chunk")) != it->chunk ||
                 json_integer_value(json_object_get(o, "micro_batch")) != it->micro;
        wrong += (json_object_get(o, "slot") != NULL) != (it->slot >= 0) ||
                 (json_object_get(o, "peer") != NULL) != (it->peer >= 0) ||
                 (json_object_get(o, "direction") != NULL) != (it->op > LF_PIPE_Z);
        seen[it->op]++;
    }
    tap_i64((int)json_array_size(items), p.list[1].n, "all items are there");
    tap_i64(wrong, 0, "with their members");
    tap_ok(seen[LF_PIPE_F] == 10 && seen[LF_PIPE_Z] == 10 && seen[LF_PIPE_SEND] == 15,
           "passes and messages");
    const json_t *first = json_array_get(items, 0);
    tap_str(json_string_value(json_object_get(first, "op")), "receive", "the first receives");
    tap_str(json_string_value(json_object_get(first, "direction")), "activation", "an activation");
    tap_ok(json_integer_value(json_object_get(first, "peer")) == 0 &&
               json_integer_value(json_object_get(first, "tag")) == 0 &&
               json_integer_value(json_object_get(first, "receive_buffer")) == 0 &&
               !json_object_get(first, "send_buffer"),
           "from rank 0 into buffer 0");
    const json_t *chunk = json_array_get(json_object_get(list, "chunks"), 0);
    tap_i64(json_integer_value(json_object_get(chunk, "stage")), 1, "a chunk has a pipeline stage");
    tap_i64(json_integer_value(json_array_get(json_object_get(chunk, "receive_buffers"), 1)), 3,
            "and buffers for each direction");
    tap_i64(json_integer_value(json_array_get(json_object_get(chunk, "send_buffers"), 0)), 2,
            "of sends too");
    tap_f64(json_real_value(json_object_get(list, "peak_micro_batches")), (3 + 1) / 2.0, 1e-12,
            "the peak is in micro-batches of the whole rank");
    tap_i64(json_integer_value(json_object_get(v, "group")), 3, "the group");
    tap_ok(json_is_true(json_object_get(v, "messages")), "lists with messages say so");
    tap_ok(json_real_value(json_object_get(v, "idle_share")) > 0, "the idle share");
    json_decref(v);
    lf_pipe_fini(&p);
}

int main(void)
{
    TAP(6, drawings());
    TAP(2, widths());
    TAP(1, small());
    TAP(13, large());
    return tap_done();
}
