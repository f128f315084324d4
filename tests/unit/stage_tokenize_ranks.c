/* SPDX-License-Identifier: Apache-2.0
 *
 * What another rank of lf-tokenize sent is looked at before it is written: the messages of rank 1
 * stand in a list, and lf_tokenize_ranks_take reads them in the place of a communicator. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "stages/tokenize_priv.h"
#include "tests/tap/tap.h"

/* As in tokenize_ranks.c. */
struct message_head {
    int64_t kind, rc;
    uint64_t index, first, n, n_ids, n_mask, n_rest, n_pics, n_pic_bytes, replaced;
    char text[sizeof(((lf_err *)0)->text)];
};

static struct {
    struct message_head head;
    tok_doc docs[2];
    uint32_t ids[8];
    char mask[8], rest[8], bytes[8];
    lf_shard_picture pics[2];
    int at, replies;
    int64_t reply;
} sent;
static int sunk;

int __wrap_lf_comm_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err);
int __wrap_lf_comm_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err);

int __wrap_lf_comm_recv(lf_comm *c, void *data, size_t bytes, int from, int tag, lf_err *err)
{
    const void *const parts[] = {&sent.head, sent.docs, sent.ids,  sent.mask,
                                 sent.rest,  sent.pics, sent.bytes};
    const size_t most[] = {sizeof sent.head, sizeof sent.docs, sizeof sent.ids,  sizeof sent.mask,
                           sizeof sent.rest, sizeof sent.pics, sizeof sent.bytes};
    const int tags[] = {1, 3, 4, 5, 6, 7, 8}; /* 2 is the reply's */
    (void)c;
    while (sent.at < 7 && tags[sent.at] != tag) /* not every batch has every part */
        sent.at++;
    if (sent.at >= 7 || bytes > most[sent.at])
        return lf_fail(err, LF_ECOMM, "rank %d has no more to say", from);
    memcpy(data, parts[sent.at++], bytes);
    return 0;
}

int __wrap_lf_comm_send(lf_comm *c, const void *data, size_t bytes, int to, int tag, lf_err *err)
{
    (void)c;
    (void)to;
    (void)tag;
    (void)err;
    memcpy(&sent.reply, data, bytes);
    sent.replies++;
    return 0;
}

static int count(void *ctx, tok_batch *b, lf_err *err)
{
    (void)ctx;
    (void)b;
    (void)err;
    sunk++;
    return 0;
}

/* Two documents of three and five tokens, masks and other columns of two and three bytes. */
static void good(void)
{
    memset(&sent, 0, sizeof sent);
    sent.head = (struct message_head){
        .kind = 1, .index = 1, .first = 2, .n = 2, .n_ids = 8, .n_mask = 8, .n_rest = 5};
    sent.docs[0] = (tok_doc){.n_ids = 3, .n_first = 2, .rest_len = 2, .masked = true};
    sent.docs[1] = (tok_doc){.n_ids = 5, .n_first = 5, .rest_len = 3, .n_pics = 2};
    sent.head.n_pics = sizeof sent.pics;
    sent.head.n_pic_bytes = 7;
    sent.pics[0].n = 3;
    sent.pics[1].n = 4;
}

static int take(bool *over, lf_err *err)
{
    lf_comm comm = {.rank = 0, .size = 2};
    tok_batch b = {.index = 1, .first = 2, .n = 2};
    tok_ranks k = {0};
    *err = (lf_err)LF_ERR_INIT;
    sunk = 0;
    if (lf_tokenize_ranks_open(&k, &comm, err) < 0)
        tap_bail("out of memory");
    k.sink = count;
    int rc = lf_tokenize_ranks_take(&k, &b, err);
    *over = k.over[1];
    lf_tokenize_ranks_close(&k);
    free(b.docs);
    free(b.ids.v);
    lf_buf_fini(&b.mask);
    lf_buf_fini(&b.rest);
    lf_buf_fini(&b.pics);
    lf_buf_fini(&b.pic_bytes);
    return rc;
}

static void refused(int rc_wanted, const char *says, const char *name)
{
    bool over;
    lf_err err;
    int rc = take(&over, &err);
    tap_rc(rc, rc_wanted, &err, says, name);
    tap_ok(sunk == 0 && sent.replies == 1, "nothing is written, and rank 1 has its answer");
}

static void lengths(void)
{
    good();
    sent.docs[0].n_ids = 4;
    refused(LF_EFORMAT, "document 1", "documents with more tokens than were sent");
    good();
    sent.docs[1].n_ids = 4;
    sent.docs[1].n_first = 4;
    refused(LF_EFORMAT, "its documents have 7", "with fewer");
    good();
    sent.docs[0].n_ids = SIZE_MAX - 4;
    refused(LF_EFORMAT, "document 0", "with so many that their sum is right");
    good();
    sent.docs[0].n_first = 4;
    refused(LF_EFORMAT, "document 0", "a first document that is longer than both");
    good();
    sent.docs[1].rest_len = 4;
    refused(LF_EFORMAT, "document 1", "other columns beyond what was sent");
    good();
    sent.head.n_mask = 7;
    refused(LF_EFORMAT, "loss mask of 7", "a loss mask of another length");
    good();
    sent.head.n_mask = 0;
    refused(LF_EFORMAT, "document 0", "a masked document without a mask");
    good();
    sent.docs[1].split = N_SPLITS;
    refused(LF_EFORMAT, "document 1", "a split that there is not");
    good();
    sent.docs[1].fate = LF_ROW_FATES;
    refused(LF_EFORMAT, "document 1", "a fate that there is not");
    good();
    sent.docs[1].n_pics = 3;
    refused(LF_EFORMAT, "document 1", "more pictures than were sent");
    good();
    sent.docs[1].n_pics = 1;
    refused(LF_EFORMAT, "pictures that are not", "fewer pictures");
    good();
    sent.pics[1].n = 5;
    refused(LF_EFORMAT, "pictures that are not", "pictures with more bytes than were sent");
    good();
    sent.pics[0].n = SIZE_MAX - 3;
    refused(LF_EFORMAT, "pictures that are not", "with so many that their sum is right");
}

int main(void)
{
    bool over;
    lf_err err;
    good();
    int rc = take(&over, &err);
    tap_rc(rc, 0, &err, NULL, "a batch");
    tap_ok(sunk == 1 && sent.reply == 1 && !over, "is written, and rank 1 was told to go on");
    TAP(26, lengths());
    good();
    sent.head.index = 3;
    TAP(2, refused(LF_ECOMM, "another text", "another batch"));
    good();
    sent.head.n_ids = sent.head.n_mask = SIZE_MAX / 2;
    rc = take(&over, &err);
    tap_rc(rc, LF_ENOMEM, &err, NULL, "a batch that there is no memory for");
    tap_ok(over && sent.replies == 1 && sent.reply == 2, "and rank 1 is told to stop");
    return tap_done();
}
