/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention through cuDNN: the library, plans by shape, running one. A plan is made when a shape is
 * first run, which is outside of captures (engine/graph/exec_capture.c); what it needs of device
 * memory is in the workspace that was planned. Which shapes go to the library is known from the
 * shape alone (attn_cudnn_graph.c), and so is what it answers; its own kernels may not start at any
 * address, but a plan's tensors are aligned.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attn_args.h"
#include "kernels/cuda/attn_cudnn.h"
#include "kernels/cuda/attn_ragged.h"
#include "kernels/cuda/attn_source.h"

_Static_assert((int)LF_RAGGED_MOST == (int)LF_DNN_ROLES, "one offset for each tensor");
enum { FIRST_ENTRIES = 8, ALIGN = 16, ROWS_PER_BLOCK = LF_RAGGED_THREADS / 32 };

struct entry {
    struct lf_dnn_shape shape;
    size_t most; /* workspace that the plan was to keep to */
    struct lf_dnn_plan p;
};

struct lf_cudnn {
    struct lf_dnn lib;
    void *handle;
    enum lf_attn_wish wish;
    struct entry **entry; /* each by itself: captures hold plans */
    size_t n, cap;
    char name[40];
};

/* ---- the library ---- */

static const char *find(struct lf_dnn *lib)
{
    void *f;
#define FIND(name, args)                                                                           \
    if (!(f = dlsym(lib->library, "cudnn" #name)))                                                 \
        return "cudnn" #name;                                                                      \
    memcpy(&lib->name, &f, sizeof f);
    LF_DNN_LIST(FIND)
#undef FIND
    if (!(f = dlsym(lib->library, "cudnnGetVersion")))
        return "cudnnGetVersion";
    memcpy(&lib->GetVersion, &f, sizeof f);
    return NULL;
}

bool lf_cudnn_load(struct lf_dnn *out, char *why, size_t cap)
{
    const char *named = getenv("LF_CUDNN"), *file = named && named[0] ? named : "libcudnn.so.9",
               *missing;
    *out = (struct lf_dnn){.library = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
    if (!out->library) {
        const char *said = dlerror();
        snprintf(why, cap, "cuDNN: %s", said ? said : file);
        return false;
    }
    if ((missing = find(out))) {
        snprintf(why, cap, "cuDNN: %s has no %s", file, missing);
        dlclose(out->library);
        return false;
    }
    return true;
}

void lf_cudnn_close(struct lf_cu_device *d)
{
    struct lf_cudnn *c = d->cudnn;
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        lf_dnn_plan_free(&c->lib, &c->entry[i]->p);
        free(c->entry[i]);
    }
    if (c->handle)
        c->lib.Destroy(c->handle);
    free(c->entry);
    free(c);
    d->cudnn = NULL;
}

int lf_cudnn_use(struct lf_cu_device *d, const struct lf_dnn *lib, char *why, size_t cap)
{
    lf_cudnn_close(d);
    if (!lib)
        return LF_K_OK;
    struct lf_cudnn *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(why, cap, "cuDNN: out of memory");
        return LF_K_EDEVICE;
    }
    const size_t version = lib->GetVersion();
    int rc = 0;
    c->lib = *lib;
    c->wish = lf_attn_wish();
    if (version < LF_DNN_OLDEST || version >= LF_DNN_TOO_NEW) {
        snprintf(why, cap, "cuDNN: version %zu; one from %d on and before %d is needed", version,
                 LF_DNN_OLDEST, LF_DNN_TOO_NEW);
        rc = LF_K_EDEVICE;
    } else if ((rc = c->lib.Create(&c->handle))) {
        snprintf(why, cap, "cuDNN %zu does not start (status %d)", version, rc);
        c->handle = NULL;
        rc = LF_K_EDEVICE;
    }
    d->cudnn = c;
    if (rc != 0) {
        lf_cudnn_close(d);
        return rc;
    }
    snprintf(c->name, sizeof c->name, "%s %zu",
             c->wish == LF_ATTN_CUDNN_FORWARD ? "cudnn-forward" : "cudnn", version);
    return LF_K_OK;
}

int lf_cudnn_open(struct lf_cu_device *d, char *why, size_t cap)
{
    struct lf_dnn lib;
    if (!lf_cudnn_load(&lib, why, cap))
        return LF_K_EDEVICE;
    const int rc = lf_cudnn_use(d, &lib, why, cap);
    if (rc != 0)
        dlclose(lib.library);
    return rc;
}

const char *lf_cudnn_name(const struct lf_cu_device *d)
{
    return d->cudnn ? d->cudnn->name : NULL;
}

/* ---- plans ---- */

static struct entry *plan_for(struct lf_cudnn *c, const struct lf_dnn_shape *s, size_t most)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->entry[i]->most == most && memcmp(&c->entry[i]->shape, s, sizeof *s) == 0)
            return c->entry[i];
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : FIRST_ENTRIES;
        struct entry **more = realloc(c->entry, cap * sizeof *more);
        if (!more)
            return NULL;
        c->entry = more;
        c->cap = cap;
    }
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->shape = *s;
    e->most = most;
    lf_dnn_plan_make(&c->lib, c->handle, NULL, s, most, &e->p);
    c->entry[c->n++] = e;
    return e;
}

/* Addresses by id. */
struct call {
    const struct lf_dnn_shape *s;
    void *at[LF_DNN_IDS];
    const int32_t *cu;
    char *work;
    size_t work_bytes;
    float scale, one, none, window;
};

static bool aligned(const struct call *c)
{
    for (int i = LF_DNN_ID_Q; i <= LF_DNN_ROLES; i++)
        if ((uintptr_t)c->at[i] % ALIGN)
            return false;
    return (uintptr_t)c->work % ALIGN == 0;
}

/* Our part of the workspace: offsets, delta, lengths; the scalars. */
static void lay_out(struct call *c, float scale)
{
    const struct lf_dnn_shape *s = c->s;
    const int roles = s->backward ? LF_DNN_ROLES : LF_DNN_ID_LSE;
    int64_t *offset = (void *)c->work;
    for (int i = 1; i <= roles; i++, offset += lf_ragged_pitch(s->docs))
        c->at[LF_DNN_ID_OFF + i] = offset;
    float *delta = (void *)offset;
    c->at[LF_DNN_ID_DELTA] = s->backward ? delta : NULL;
    c->at[LF_DNN_ID_LEN_Q] = c->at[LF_DNN_ID_LEN_KV] =
        delta + (s->backward ? (s->heads * s->rows + 3) / 4 * 4 : 0);
    c->scale = scale;
    c->one = 1;
    c->none = -INFINITY;
    c->window = (float)s->window;
    c->at[LF_DNN_ID_SCALE] = &c->scale;
    c->at[LF_DNN_ID_ONE] = &c->one;
    c->at[LF_DNN_ID_NONE_PADDED] = c->at[LF_DNN_ID_NONE_LATER] = c->at[LF_DNN_ID_NONE_EARLIER] =
        &c->none;
    c->at[LF_DNN_ID_WINDOW] = &c->window;
}

static int tell_documents(lf_queue *q, const struct call *c,
                          const struct lf_cu_attn_ragged *results)
{
    const struct lf_dnn_shape *s = c->s;
    struct lf_cu_attn_ragged a = *results;
    a.rows = s->rows;
    a.docs = s->docs;
    a.longest = s->longest;
    a.heads = s->heads;
    a.pitch = lf_ragged_pitch(s->docs);
    a.cu = c->cu;
    a.len = c->at[LF_DNN_ID_LEN_Q];
    a.offset = (void *)c->work;
    a.n = s->backward ? LF_DNN_ROLES : LF_DNN_ID_LSE;
    memcpy(a.ld, s->ld + LF_DNN_ID_Q, sizeof a.ld);
    return lf_cu_launch(q, LF_CU_FN_attn_ragged,
                        (struct lf_cu_dim){.x = lf_cu_blocks(s->rows, ROWS_PER_BLOCK)},
                        (struct lf_cu_dim){.x = LF_RAGGED_THREADS}, 0, &a);
}

static int execute(lf_queue *q, const struct lf_cudnn *d, const struct entry *e, struct call *c)
{
    const struct lf_dnn *lib = &d->lib;
    int64_t id[LF_DNN_IDS], n = 0;
    void *at[LF_DNN_IDS], *pack = NULL, *work = c->work + lf_dnn_own_bytes(c->s);
    for (int i = 1; i < LF_DNN_IDS; i++)
        if (e->p.used[i]) {
            id[n] = i;
            at[n++] = c->at[i];
        }
    int rc = lib->SetStream(d->handle, q->stream);
    if (rc == 0)
        rc = lib->BackendCreateDescriptor(LF_DNN_PACK, &pack);
    if (rc == 0)
        rc = lib->BackendSetAttribute(pack, LF_DNN_PACK_IDS, LF_DNN_T_INT64, n, id);
    if (rc == 0)
        rc = lib->BackendSetAttribute(pack, LF_DNN_PACK_POINTERS, LF_DNN_T_POINTER, n, at);
    if (rc == 0)
        rc = lib->BackendSetAttribute(pack, LF_DNN_PACK_WORKSPACE, LF_DNN_T_POINTER, 1, &work);
    if (rc == 0)
        rc = lib->BackendFinalize(pack);
    if (rc == 0)
        rc = lib->BackendExecute(d->handle, e->p.plan, pack);
    if (pack)
        lib->BackendDestroyDescriptor(pack);
    return rc != 0 ? lf_cu_result(q, LF_CU_INVALID_VALUE, "cudnnBackendExecute")
                   : LF_K_OK; /* its statuses are not the driver's */
}

static int run(lf_queue *q, struct call *c, float scale, const struct lf_cu_attn_ragged *results,
               bool *done)
{
    struct lf_cudnn *d = q->dev->cudnn;
    const size_t own = lf_dnn_own_bytes(c->s);
    if (!c->work || c->work_bytes < own || !aligned(c))
        return LF_K_OK;
    struct entry *e = plan_for(d, c->s, c->work_bytes - own);
    if (!e || !e->p.plan)
        return LF_K_OK;
    *done = true;
    lay_out(c, scale);
    const int rc = tell_documents(q, c, results);
    return rc != 0 ? rc : execute(q, d, e, c);
}

/* ---- the two kernels ---- */

static bool asked(enum lf_attn_wish wish, bool backward)
{
    return wish == LF_ATTN_CUDNN || (wish == LF_ATTN_CUDNN_FORWARD && !backward);
}

size_t lf_cudnn_attn_fwd_work(const struct lf_k_attn_fwd *a)
{
    struct lf_dnn_shape s;
    return asked(lf_attn_wish(), false) && lf_cudnn_fits_fwd(a, &s)
               ? lf_dnn_own_bytes(&s) + lf_dnn_plan_bytes(&s)
               : 0;
}

size_t lf_cudnn_attn_bwd_work(const struct lf_k_attn_bwd *a)
{
    struct lf_dnn_shape s;
    return asked(lf_attn_wish(), true) && lf_cudnn_fits_bwd(a, &s)
               ? lf_dnn_own_bytes(&s) + lf_dnn_plan_bytes(&s)
               : 0;
}

int lf_cudnn_attn_fwd(lf_queue *q, const struct lf_k_attn_fwd *a, bool *done)
{
    struct lf_dnn_shape s;
    *done = false;
    if (!q->dev->cudnn || !asked(q->dev->cudnn->wish, false) || !lf_cudnn_fits_fwd(a, &s))
        return LF_K_OK;
    const struct lf_cu_attn_ragged results = {.result = {a->o},
                                              .result_ld = {a->ldo},
                                              .cols = {a->heads * a->d},
                                              .lse = a->lse,
                                              .x_type = a->x_type};
    struct call c = {.s = &s, .cu = a->cu_seqlens, .work = a->work, .work_bytes = a->work_bytes};
    const void *in[] = {a->q, a->k, a->v, a->o, a->lse};
    memcpy(c.at + LF_DNN_ID_Q, in, sizeof in);
    return run(q, &c, a->scale, &results, done);
}

int lf_cudnn_attn_bwd(lf_queue *q, const struct lf_k_attn_bwd *a, bool *done)
{
    struct lf_dnn_shape s;
    *done = false;
    if (!q->dev->cudnn || !asked(q->dev->cudnn->wish, true) || !lf_cudnn_fits_bwd(a, &s))
        return LF_K_OK;
    const struct lf_cu_attn_ragged results = {
        .result = {a->dq, a->dk, a->dv},
        .result_ld = {a->lddq, a->lddk, a->lddv},
        .cols = {a->heads * a->d, a->groups * a->d, a->groups * a->d},
        .x_type = a->x_type};
    struct call c = {.s = &s, .cu = a->cu_seqlens, .work = a->work, .work_bytes = a->work_bytes};
    const void *in[] = {a->q, a->k, a->v, a->o, a->lse, a->d_o, a->dq, a->dk, a->dv};
    memcpy(c.at + LF_DNN_ID_Q, in, sizeof in);
    return run(q, &c, a->scale, &results, done);
}
