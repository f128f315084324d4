/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the frozen encoder of a model once over every picture of shards and writes what it says as
 * the artifact `features` (engine/store/features.h). One file belongs to the pictures of one file
 * of shards, in their order, each once; so a run that was killed goes on behind its last whole
 * files, and several ranks each make files of their own. The pictures of neighbouring small files
 * go through the encoder together. With numeric = LF_INVARIANT no bit depends
 * on max_patches, threads or ranks, and training with the features has the bits of training with
 * the encoder.
 */
#ifndef LF_TRAIN_ENCODE_H
#define LF_TRAIN_ENCODE_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/graph/plan.h"

struct lf_encode_opts {
    const char *checkpoint;
    bool averages;           /* its averages in place of the weights (ckpt.h, lf_ckpt_averages) */
    const char *const *data; /* [n_data] `shards` artifacts */
    size_t n_data;
    const char *out; /* directory of the artifact */
    const char *const
        *from; /* [n_from] where earlier starts wrote it, oldest first; out included */
    size_t n_from;
    int64_t max_patches, max_tiles; /* of what goes through the encoder at once; 0: a sixteenth */
    enum lf_dtype compute;
    enum lf_numeric numeric;
    enum lf_device device;
    int threads;
    bool (*stop)(void);                          /* asked for between two passes */
    void (*log)(int level, const char *text);    /* rank 0 */
    void (*progress)(double done, double total); /* pictures of this rank */
};

/* Makes the artifact. comm NULL: alone. LF_EINTR: stopped; whole files stay for the next start.
 * LF_EINVAL: the model sees nothing, the shards have no pictures or one that is larger than
 * max_patches, or they were prepared for another model. */
int lf_encode_run(const struct lf_encode_opts *o, lf_comm *comm, lf_err *err);
/* What a rank would take, as lf_plan_json says it, the pictures included; and disk_bytes, the files
 * of all ranks. Where there are no shards yet, notes says that both follow from them. LF_ENOENT:
 * there is no checkpoint yet. */
int lf_encode_plan(json_t **out, const struct lf_encode_opts *o, lf_err *err);

#endif
