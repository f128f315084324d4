/* SPDX-License-Identifier: Apache-2.0
 *
 * What another rank sent is looked at before it is believed: lf_pg_unpack with every length cut,
 * and with indices and lengths that no rank has. */
#include <string.h>

#include "engine/post/pg_priv.h"
#include "tests/tap/tap.h"

#define GROUP 2
#define MOST  4

struct message {
    char bytes[256];
    size_t n;
};

/* A sequence as pack() of pg_ranks.c writes it, tokens 100, 101 .. and log-probabilities -1, -2 ..
 */
static void add(struct message *m, uint64_t index, uint64_t n, uint64_t said)
{
    const uint64_t head[3] = {index, said, 1};
    memcpy(m->bytes + m->n, head, sizeof head);
    m->n += sizeof head;
    for (uint64_t i = 0; i < n; i++, m->n += 4)
        memcpy(m->bytes + m->n, &(int32_t){100 + (int32_t)i}, 4);
    for (uint64_t i = 0; i < n; i++, m->n += 4)
        memcpy(m->bytes + m->n, &(float){-1.f - (float)i}, 4);
}

/* What rank 1 of two sent for sequences [2, 8), from memory of exactly that length. */
static int unpack(lf_pg_part *part, const struct message *m, size_t bytes, lf_err *err)
{
    const struct lf_pg_config c = {.samples = GROUP, .max_tokens = MOST};
    const lf_pg p = {.c = &c, .at = {{.who = {.data = 0, .data_ranks = 2, .tensor_ranks = 1}}}};
    char *copy = lf_malloc(bytes + 1, 1, err);
    if (!copy)
        tap_bail("out of memory");
    char *end = copy + 1; /* the last byte sent is the last of the block */
    memcpy(end, m->bytes, bytes);
    *part = (lf_pg_part){.n_sources = 1};
    *err = (lf_err)LF_ERR_INIT;
    int rc = lf_pg_unpack(&p, part, 2, 8, &(struct lf_pg_message){1, end, bytes}, err);
    free(copy);
    return rc;
}

static void refuse(const struct message *m, size_t bytes, const char *want, const char *name)
{
    lf_pg_part part;
    lf_err err;
    tap_rc(unpack(&part, m, bytes, &err), LF_EFORMAT, &err, want, name);
    lf_pg_part_close(&part);
}

static void good(void)
{
    struct message m = {.n = 0};
    lf_pg_part part;
    lf_err err;
    add(&m, 2, 3, 3);
    add(&m, 7, MOST, MOST);
    tap_rc(unpack(&part, &m, m.n, &err), 0, &err, NULL, "two sequences");
    const struct lf_pg_part_seq *a = lf_pg_part_at(&part, 2), *b = lf_pg_part_at(&part, 7);
    tap_ok(a && a->n == 3 && a->tokens[2] == 102 && a->logprob[2] < -2.5f && a->ended,
           "the first is what was sent");
    tap_ok(b && b->n == MOST && b->tokens[3] == 103 && !lf_pg_part_at(&part, 3),
           "so is the second, and no other is there");
    lf_pg_part_close(&part);
}

static void bad(void)
{
    struct message m = {.n = 0};
    lf_pg_part part;
    lf_err err;
    add(&m, 3, 2, 2);
    int taken = 0;
    for (size_t n = 1; n < m.n; n++) {
        taken += unpack(&part, &m, n, &err) != LF_EFORMAT;
        lf_pg_part_close(&part);
    }
    tap_ok(taken == 0, "cut anywhere it is refused (%d of %zu taken)", taken, m.n - 1);
    refuse(&m, 30, "max_tokens", "a length beyond what was sent");
    for (int i = 0; i < 3; i++) {
        static const uint64_t lengths[] = {MOST + 1, 1ull << 61, UINT64_MAX};
        m.n = 0;
        add(&m, 3, 2, lengths[i]);
        refuse(&m, m.n, "max_tokens", "a length that no sequence has");
    }
    for (int i = 0; i < 4; i++) {
        static const uint64_t indices[] = {1, 4, 8,
                                           1ull << 40}; /* before; rank 0's; behind; far behind */
        m.n = 0;
        add(&m, indices[i], 2, 2);
        refuse(&m, m.n, "not one of its own", "a sequence that is not this rank's");
    }
}

int main(void)
{
    TAP(3, good());
    TAP(9, bad());
    return tap_done();
}
