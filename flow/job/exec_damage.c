/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage that failed over an input which another stage made: is that result still what its
 * manifest says? One that is not is marked, so that nobody adopts it and the next resume makes it
 * again. The reader's word is not enough: what it named, or everything it read where it named
 * nothing, is hashed here.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"

/* LF_EFORMAT: the manifest is not the one that was committed, or a file is not what it says. */
static int verify(const struct lf_used *in, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX], manifest[PATH_MAX];
    const char *path = in->path, *want = in->sha256;
    lf_artifact a = {0};
    lf_buf text;
    lf_buf_init(&text);
    int rc = lf_path_set(manifest, err, "%s/%s", path, LF_ARTIFACT_MANIFEST);
    if (rc == 0)
        rc = lf_io_read_file(manifest, LF_ARTIFACT_MAX_MANIFEST, &text, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, text.data, text.len, err);
    if (rc == 0) {
        lf_hash_hex(hex, digest);
        if (want != NULL && strcmp(hex, want) != 0)
            rc = lf_fail(err, LF_EFORMAT, "%s is not the one that was committed", manifest);
    }
    if (rc == 0)
        rc = lf_artifact_load(&a, path, NULL, err);
    if (rc == 0)
        rc = lf_artifact_check_hashes(&a, path, 0, err);
    lf_artifact_fini(&a);
    lf_buf_fini(&text);
    return rc;
}

/* RUN/<stage>/<attempt>.<epoch>/damaged.json of the producer; one that is there says enough. */
static int mark(const lf_exec *x, const struct lf_used *in, const char *why, lf_err *err)
{
    char dir[PATH_MAX];
    const struct lf_damaged d = {.output = in->output,
                                 .reason = why,
                                 .t = lf_wall_s(),
                                 .run = x->run.id,
                                 .stage = x->args.stage};
    int rc = lf_path_set(dir, err, "%s/runs/%s/%s/%d.%d", x->run.data, in->run, in->stage,
                         in->attempt, in->epoch);
    if (rc == 0)
        rc = lf_damaged_publish(dir, &d, err);
    return rc == LF_EEXIST ? 0 : rc;
}

/* Is it what it should be? 1: no, and it is marked now. */
static int look(lf_exec *x, const struct lf_used *in, lf_end_class *c)
{
    lf_err e = LF_ERR_INIT, why = LF_ERR_INIT;
    char was[sizeof c->reason];
    if (verify(in, &why) != LF_EFORMAT)
        return 0;
    lf_text_clean(why.text);
    if (mark(x, in, why.text, &e) < 0) {
        lf_log(1, "the damaged result of stage %s was not marked: %s", in->stage, e.text);
        return 0;
    }
    memcpy(was, c->reason, sizeof was);
    snprintf(c->reason, sizeof c->reason,
             "the result of stage %s is damaged and is made again: %.180s; %.120s", in->stage,
             why.text, was);
    lf_text_clean(c->reason);
    c->cls = "bad_input";
    return 1;
}

/* Results that the words of the failure name, or the others. How many are damaged. */
static int look_at(lf_exec *x, lf_end_class *c, const char *words, bool named)
{
    int n = 0;
    for (size_t i = 0; i < x->n_inputs; i++) {
        const struct lf_used *in = &x->inputs[i];
        if (in->stage != NULL && (strstr(words, in->path) != NULL) == named)
            n += look(x, in, c);
    }
    return n;
}

void lf_exec_suspect(lf_exec *x, lf_end_class *c)
{
    static const char *const may_come_of_it[] = {"bad_input", "config", "crash", "diverged",
                                                 "unknown"};
    bool may = false;
    char words[sizeof c->reason];
    for (size_t i = 0; i < sizeof may_come_of_it / sizeof may_come_of_it[0]; i++)
        may = may || (strcmp(c->state, "failed") == 0 && strcmp(c->cls, may_come_of_it[i]) == 0);
    if (!may)
        return;
    memcpy(words, c->reason, sizeof words);
    const bool input = strcmp(c->cls, "bad_input") == 0;
    if (look_at(x, c, words, true) == 0 && input)
        look_at(x, c, words, false);
}
