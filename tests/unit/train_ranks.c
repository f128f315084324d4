/* SPDX-License-Identifier: Apache-2.0
 *
 * What other ranks sent about their settings is looked at before it is believed: a communicator of
 * three ranks whose other two say what stands in a list.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/comm/comm_priv.h"
#include "engine/train/run.h"
#include "tests/tap/tap.h"

/* ---- ranks that say what they are told to ---- */

static struct {
    const char *blob[3]; /* of rank k; rank 0's is what it really gathers */
    int64_t len[3];      /* what rank k announces */
    int gathers;
    const char *text; /* of rank 0, for a broadcast: announced as `n`, sent without a NUL */
    int64_t n;
    int broadcasts;
} say;

static void gather(char *to, const size_t *bytes)
{
    if (say.gathers++ == 0) {
        memcpy(to + sizeof *say.len, say.len + 1, 2 * sizeof *say.len);
        return;
    }
    to += bytes[0];
    for (int k = 1; k < 3; to += bytes[k++])
        if (bytes[k])
            memcpy(to, say.blob[k], bytes[k]);
}

static void broadcast(void *data, size_t bytes)
{
    if (say.broadcasts++ == 0) {
        memcpy(data, &say.n, bytes);
        return;
    }
    memset(data, '}', bytes);
    memcpy(data, say.text, (size_t)say.n);
}

/* Sums stay as they are. */
static int start(lf_comm *c, struct lf_comm_flight *f, lf_err *err)
{
    (void)c, (void)err;
    if (f->call.what == LF_COMM_ALL_GATHER)
        gather(f->call.out, f->call.counts);
    else if (f->call.what == LF_COMM_BROADCAST)
        broadcast(f->call.out, f->call.n);
    f->done = true;
    return 0;
}

static const struct lf_comm_ops ops = {.start = start};

static lf_run run_of(lf_comm *c, int rank)
{
    *c = (lf_comm){.ops = &ops, .rank = rank, .size = 3, .host = c};
    return (lf_run){.comm = c, .rank = rank, .ranks = 3};
}

/* ---- are all ranks the same? ---- */

#define TEXT "{\"fingerprint\":{\"isa\":\"avx2\"},\"seed\":7}"

static int same(const char *one, int64_t n_one, const char *two, int64_t n_two, lf_err *err)
{
    lf_comm c;
    lf_run r = run_of(&c, 0);
    memset(&say, 0, sizeof say);
    say.blob[1] = one;
    say.len[1] = n_one;
    say.blob[2] = two;
    say.len[2] = n_two;
    *err = (lf_err)LF_ERR_INIT;
    return lf_run_same(
        &r, json_pack("{s:{s:s, s:i}, s:i}", "fingerprint", "isa", "avx2", "threads", 3, "seed", 7),
        err);
}

static void test_same(void)
{
    const int64_t n = sizeof TEXT - 1;
    lf_err err;
    tap_rc(same(TEXT, n, TEXT, n, &err), 0, &err, NULL, "three that are the same");
    tap_rc(same("{\"fingerprint\":{\"isa\":\"avx2\"},\"seed\":8}", n, TEXT, n, &err), LF_EINVAL,
           &err, "rank 1 () does not run the same as rank 0 (): seed was 7, is 8", "another seed");
    tap_rc(same("", 0, TEXT, n, &err), LF_EINVAL, &err, "what rank 1 sent are no settings",
           "a rank that sends nothing, behind which stands what the next sent");
    tap_rc(same(TEXT, 9, TEXT + 9, n - 9, &err), LF_EINVAL, &err,
           "what rank 1 sent are no settings", "two that send a half each");
    tap_rc(same(TEXT, n, TEXT, n - 1, &err), LF_EINVAL, &err, "what rank 2 sent are no settings",
           "one that sends less");
    tap_rc(same(TEXT, n, TEXT "\0x", n + 2, &err), LF_EINVAL, &err, "what rank 2 sent",
           "one that sends more behind a NUL");
    tap_rc(same(TEXT, n, TEXT, -1, &err), LF_ECOMM, &err, "rank 2 announces a blob of -1 bytes",
           "a length that there is not");
}

/* ---- what rank 0 shares ---- */

static void test_share(void)
{
    lf_comm c;
    lf_run r = run_of(&c, 1);
    lf_err err = LF_ERR_INIT;
    json_t *o = NULL;
    memset(&say, 0, sizeof say);
    say.text = TEXT;
    say.n = sizeof TEXT - 1;
    tap_rc(lf_run_share_json(&r, &o, &err), 0, &err, NULL, "an object without a NUL behind it");
    tap_i64(json_integer_value(json_object_get(o, "seed")), 7, "is read as long as it is");
    json_decref(o);
    o = NULL;
    memset(&say, 0, sizeof say);
    say.text = TEXT;
    say.n = 9;
    tap_rc(lf_run_share_json(&r, &o, &err), LF_EFORMAT, &err, NULL, "a part of one is refused");
    tap_ok(!o, "and gives nothing");
}

int main(void)
{
    test_same();
    test_share();
    return tap_done();
}
