/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated cuDNN: descriptors, offers, plans. Of three offers for a graph the first does not
 * repeat its bits and says so, the second wants more memory than there is, the third is as it
 * should be.
 */
#include "tests/cuda/emu/cudnn.h"

#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emu/run.h"
#include "tests/cuda/emu/state.h"

enum {
    BAD = 2000,
    NOT_FINISHED = 2004,
    NOT_SUPPORTED = 3000,
    FAILED = 5000,
    OFFERS = 3,
    VERSION = 91900,
    HANDLE = 7
};

static struct lf_emu_dnn_mood mood;
static struct lf_emu_dnn_counts counts;
static int handles[1] = {HANDLE};

struct lf_emu_dnn_counts lf_emu_dnn_mood(const struct lf_emu_dnn_mood *m)
{
    if (m)
        mood = *m;
    return counts;
}

/* Whether this call is the one that fails. */
static bool fails(void)
{
    counts.calls++;
    return mood.fail_call > 0 && --mood.fail_call == 0;
}

/* Which attributes a descriptor has: type and number of elements, must it be set, what it refers
 * to. */
struct rule {
    int desc, name, type;
    int64_t least, most;
    bool needed;
    int refers;
};
#define MANY 64
static const struct rule rules[] = {
    {LF_DNN_TENSOR, LF_DNN_TENSOR_ALIGN, LF_DNN_T_INT64, 1, 1, true, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_TYPE, LF_DNN_T_DATA_TYPE, 1, 1, true, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_DIMS, LF_DNN_T_INT64, 4, 4, true, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_STRIDES, LF_DNN_T_INT64, 4, 4, true, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_ID, LF_DNN_T_INT64, 1, 1, true, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_VIRTUAL, LF_DNN_T_BOOL, 1, 1, false, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_BY_VALUE, LF_DNN_T_BOOL, 1, 1, false, 0},
    {LF_DNN_TENSOR, LF_DNN_TENSOR_RAGGED, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_POINTWISE, LF_DNN_POINTWISE_MODE, LF_DNN_T_POINTWISE, 1, 1, true, 0},
    {LF_DNN_POINTWISE, LF_DNN_POINTWISE_PREC, LF_DNN_T_DATA_TYPE, 1, 1, true, 0},
    {LF_DNN_POINTWISE, LF_DNN_POINTWISE_AXIS, LF_DNN_T_INT64, 1, 1, false, 0},
    {LF_DNN_OP_POINTWISE, LF_DNN_OPP_DESC, LF_DNN_T_DESC, 1, 1, true, LF_DNN_POINTWISE},
    {LF_DNN_OP_POINTWISE, LF_DNN_OPP_X, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_POINTWISE, LF_DNN_OPP_B, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_OP_POINTWISE, LF_DNN_OPP_T, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_OP_POINTWISE, LF_DNN_OPP_Y, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_MATMUL, LF_DNN_MATMUL_PREC, LF_DNN_T_DATA_TYPE, 1, 1, true, 0},
    {LF_DNN_MATMUL, LF_DNN_MATMUL_PADDING, LF_DNN_T_DOUBLE, 1, 1, false, 0},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_DESC, LF_DNN_T_DESC, 1, 1, true, LF_DNN_MATMUL},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_A, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_B, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_C, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_M, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_N, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_OP_MATMUL, LF_DNN_OPM_K, LF_DNN_T_DESC, 1, 1, false, LF_DNN_TENSOR},
    {LF_DNN_REDUCTION, LF_DNN_REDUCTION_MODE, LF_DNN_T_REDUCTION, 1, 1, true, 0},
    {LF_DNN_REDUCTION, LF_DNN_REDUCTION_PREC, LF_DNN_T_DATA_TYPE, 1, 1, true, 0},
    {LF_DNN_OP_REDUCTION, LF_DNN_OPR_DESC, LF_DNN_T_DESC, 1, 1, true, LF_DNN_REDUCTION},
    {LF_DNN_OP_REDUCTION, LF_DNN_OPR_X, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_REDUCTION, LF_DNN_OPR_Y, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_RESHAPE, LF_DNN_RESHAPE_X, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_OP_RESHAPE, LF_DNN_RESHAPE_Y, LF_DNN_T_DESC, 1, 1, true, LF_DNN_TENSOR},
    {LF_DNN_GRAPH, LF_DNN_GRAPH_HANDLE, LF_DNN_T_HANDLE, 1, 1, true, 0},
    {LF_DNN_GRAPH, LF_DNN_GRAPH_OPS, LF_DNN_T_DESC, 1, MANY, true, -1},
    {LF_DNN_HEURISTIC, LF_DNN_HEURISTIC_MODE, LF_DNN_T_HEURISTIC, 1, 1, true, 0},
    {LF_DNN_HEURISTIC, LF_DNN_HEURISTIC_GRAPH, LF_DNN_T_DESC, 1, 1, true, LF_DNN_GRAPH},
    {LF_DNN_PLAN, LF_DNN_PLAN_HANDLE, LF_DNN_T_HANDLE, 1, 1, true, 0},
    {LF_DNN_PLAN, LF_DNN_PLAN_CONFIG, LF_DNN_T_DESC, 1, 1, true, LF_DNN_CONFIG},
    {LF_DNN_PACK, LF_DNN_PACK_IDS, LF_DNN_T_INT64, 1, LF_EMU_DNN_IDS, true, 0},
    {LF_DNN_PACK, LF_DNN_PACK_POINTERS, LF_DNN_T_POINTER, 1, LF_EMU_DNN_IDS, true, 0},
    {LF_DNN_PACK, LF_DNN_PACK_WORKSPACE, LF_DNN_T_POINTER, 1, 1, true, 0},
};
enum { RULES = sizeof rules / sizeof *rules };

static size_t element(int type)
{
    switch (type) {
    case LF_DNN_T_BOOL:
        return sizeof(bool);
    case LF_DNN_T_INT64:
    case LF_DNN_T_DOUBLE:
        return 8;
    case LF_DNN_T_HANDLE:
    case LF_DNN_T_POINTER:
    case LF_DNN_T_DESC:
        return sizeof(void *);
    default:
        return sizeof(int);
    }
}

/* ---- attributes ---- */

const struct lf_emu_attribute *lf_emu_dnn_find(const struct lf_emu_desc *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->a[i].name == name)
            return &d->a[i];
    return NULL;
}

struct lf_emu_desc *lf_emu_dnn_ref(const struct lf_emu_desc *d, int name)
{
    const struct lf_emu_attribute *a = lf_emu_dnn_find(d, name);
    return a ? *(struct lf_emu_desc **)a->value : NULL;
}

int lf_emu_dnn_enum(const struct lf_emu_desc *d, int name)
{
    const struct lf_emu_attribute *a = lf_emu_dnn_find(d, name);
    return a ? *(const int *)a->value : -1;
}

int64_t lf_emu_dnn_int(const struct lf_emu_desc *d, int name)
{
    const struct lf_emu_attribute *a = lf_emu_dnn_find(d, name);
    return a ? *(const int64_t *)a->value : -1;
}

static int create_desc(int type, void **out)
{
    if (fails())
        return FAILED;
    struct lf_emu_desc *d = calloc(1, sizeof *d);
    if (!d)
        return FAILED;
    d->type = type;
    *out = d;
    return 0;
}

static int destroy_desc(void *p)
{
    struct lf_emu_desc *d = p;
    for (int i = 0; d && i < d->n; i++)
        free(d->a[i].value);
    free(d);
    return d ? 0 : BAD;
}

/* Everything referred to is finished and of the kind that belongs there. */
static int references(const struct rule *r, int64_t n, const void *value)
{
    struct lf_emu_desc *const *of = value;
    for (int64_t i = 0; r->type == LF_DNN_T_DESC && i < n; i++) {
        if (!of[i] || !of[i]->finished)
            return NOT_FINISHED;
        const bool op = of[i]->type == LF_DNN_OP_POINTWISE || of[i]->type == LF_DNN_OP_MATMUL ||
                        of[i]->type == LF_DNN_OP_REDUCTION || of[i]->type == LF_DNN_OP_RESHAPE;
        if (r->refers == -1 ? !op : of[i]->type != r->refers)
            return BAD;
    }
    if (r->type == LF_DNN_T_HANDLE && *(void *const *)value != handles)
        return BAD;
    return 0;
}

static int set(void *p, int name, int type, int64_t n, const void *value)
{
    struct lf_emu_desc *d = p;
    const struct rule *r = rules;
    while (r < rules + RULES && (r->desc != d->type || r->name != name))
        r++;
    if (fails())
        return FAILED;
    if (r == rules + RULES || d->finished || type != r->type || n < r->least || n > r->most ||
        !value || lf_emu_dnn_find(d, name) || d->n == LF_EMU_DNN_ATTRIBUTES)
        return BAD;
    const int rc = references(r, n, value);
    if (rc)
        return rc;
    void *copy = malloc((size_t)n * element(type));
    if (!copy)
        return FAILED;
    memcpy(copy, value, (size_t)n * element(type));
    d->a[d->n++] = (struct lf_emu_attribute){name, type, n, copy};
    return 0;
}

static int sound_tensor(const struct lf_emu_desc *d)
{
    const int64_t *dim = lf_emu_dnn_find(d, LF_DNN_TENSOR_DIMS)->value,
                  *stride = lf_emu_dnn_find(d, LF_DNN_TENSOR_STRIDES)->value;
    for (int i = 0; i < 4; i++)
        if (dim[i] < 1 || stride[i] < 1)
            return BAD;
    return 0;
}

static int finalize(void *p)
{
    struct lf_emu_desc *d = p;
    if (fails())
        return FAILED;
    if (!d || d->finished)
        return BAD;
    for (const struct rule *r = rules; r < rules + RULES; r++)
        if (r->desc == d->type && r->needed && !lf_emu_dnn_find(d, r->name))
            return BAD;
    if (d->type == LF_DNN_TENSOR && sound_tensor(d))
        return BAD;
    if (d->type == LF_DNN_GRAPH && !lf_emu_dnn_sound(d))
        return NOT_SUPPORTED;
    if (d->type == LF_DNN_PLAN) {
        if (mood.no_plan || lf_emu_not_captured()) /* it loads kernels */
            return NOT_SUPPORTED;
        d->choice = lf_emu_dnn_ref(d, LF_DNN_PLAN_CONFIG)->choice;
        counts.plans++;
    }
    d->finished = true;
    return 0;
}

/* ---- offers ---- */

static int offers(const struct lf_emu_desc *h, int64_t most, int64_t *n,
                  struct lf_emu_desc **config)
{
    counts.asked++;
    *n = 0;
    if (mood.no_engine)
        return 0;
    for (; *n < OFFERS && *n < most; ++*n) {
        struct lf_emu_desc *c = config[*n], *graph = lf_emu_dnn_ref(h, LF_DNN_HEURISTIC_GRAPH);
        if (!c || c->type != LF_DNN_CONFIG || c->finished)
            return BAD;
        void *copy = malloc(sizeof graph);
        if (!copy)
            return FAILED;
        memcpy(copy, &graph, sizeof graph);
        c->a[c->n++] = (struct lf_emu_attribute){LF_DNN_HEURISTIC_GRAPH, LF_DNN_T_DESC, 1, copy};
        c->choice = (int)*n;
        c->finished = true;
    }
    return 0;
}

static int get(void *p, int name, int type, int64_t most, int64_t *n, void *value)
{
    struct lf_emu_desc *d = p;
    if (!d || !d->finished || most < 1)
        return BAD;
    if (d->type == LF_DNN_HEURISTIC && name == LF_DNN_HEURISTIC_RESULTS && type == LF_DNN_T_DESC)
        return offers(d, most, n, value);
    *n = 1;
    if (d->type == LF_DNN_CONFIG && name == LF_DNN_CONFIG_ENGINE && type == LF_DNN_T_DESC) {
        struct lf_emu_desc *e = *(struct lf_emu_desc **)value;
        if (!e || e->type != LF_DNN_ENGINE || e->finished)
            return BAD;
        e->choice = d->choice;
        e->finished = true;
        return 0;
    }
    if (d->type == LF_DNN_ENGINE && name == LF_DNN_ENGINE_NOTE && type == LF_DNN_T_NOTE &&
        most >= 2) {
        ((int *)value)[0] = 0;
        ((int *)value)[1] = LF_DNN_NONDETERMINISTIC;
        *n = d->choice == 0 ? 2 : 1;
        return 0;
    }
    if (d->type == LF_DNN_PLAN && name == LF_DNN_PLAN_WORKSPACE && type == LF_DNN_T_INT64) {
        *(int64_t *)value = d->choice == 1 ? (int64_t)1 << 50 : 1024;
        return 0;
    }
    return BAD;
}

/* ---- executing ---- */

/* Every address that the graph needs, and no others; scalars are read now. */
static int address(struct lf_emu_dnn_job *j)
{
    struct lf_emu_desc *t[LF_EMU_DNN_TENSORS];
    const int n = lf_emu_dnn_tensors(j->graph, t);
    int64_t needed = 0;
    for (int i = 0; i < n; i++) {
        int64_t k = 0;
        if (lf_emu_dnn_find(t[i], LF_DNN_TENSOR_VIRTUAL))
            continue;
        needed++;
        while (k < j->n && j->id[k] != lf_emu_dnn_int(t[i], LF_DNN_TENSOR_ID))
            k++;
        if (k == j->n || !j->at[k])
            return BAD;
        if (lf_emu_dnn_find(t[i], LF_DNN_TENSOR_BY_VALUE))
            j->scalar[k] = *(const float *)j->at[k];
        else if ((uintptr_t)j->at[k] % (uintptr_t)lf_emu_dnn_int(t[i], LF_DNN_TENSOR_ALIGN))
            return BAD;
    }
    return needed == j->n ? 0 : BAD;
}

static lf_cu_stream stream;

static int execute(void *handle, void *p, void *q)
{
    const struct lf_emu_desc *plan = p, *pack = q;
    if (mood.no_run)
        return FAILED;
    if (handle != handles || !plan || plan->type != LF_DNN_PLAN || !plan->finished || !pack ||
        pack->type != LF_DNN_PACK || !pack->finished || !stream || plan->choice == 1)
        return BAD;
    const struct lf_emu_attribute *id = lf_emu_dnn_find(pack, LF_DNN_PACK_IDS),
                                  *at = lf_emu_dnn_find(pack, LF_DNN_PACK_POINTERS);
    struct lf_emu_dnn_job *j = calloc(1, sizeof *j);
    if (!j)
        return FAILED;
    j->graph = lf_emu_dnn_ref(lf_emu_dnn_ref(plan, LF_DNN_PLAN_CONFIG), LF_DNN_HEURISTIC_GRAPH);
    j->n = id->n;
    j->spoil = plan->choice == 0;
    memcpy(j->id, id->value, (size_t)id->n * sizeof *j->id);
    memcpy(j->at, at->value, (size_t)at->n * sizeof *j->at);
    if (id->n != at->n || address(j)) {
        free(j);
        return BAD;
    }
    counts.runs++;
    return lf_emu_host_call(stream, lf_emu_dnn_run, j, sizeof *j) ? FAILED : 0;
}

static int create(void **handle)
{
    *handle = handles;
    return mood.no_start ? FAILED : 0;
}
static int destroy(void *handle)
{
    return handle == handles ? 0 : BAD;
}
static int set_stream(void *handle, lf_cu_stream s)
{
    stream = s;
    return handle == handles ? 0 : BAD;
}
static size_t version(void)
{
    return mood.version ? mood.version : VERSION;
}

void lf_emu_cudnn(struct lf_dnn *out)
{
    *out = (struct lf_dnn){.Create = create,
                           .Destroy = destroy,
                           .SetStream = set_stream,
                           .BackendCreateDescriptor = create_desc,
                           .BackendDestroyDescriptor = destroy_desc,
                           .BackendSetAttribute = set,
                           .BackendGetAttribute = get,
                           .BackendFinalize = finalize,
                           .BackendExecute = execute,
                           .GetVersion = version};
}

/* Under the library's names too: LF_CUDNN=tests/libcuemu.so gives them to whole stages. */
#define NAMED(name, f)                                                                             \
    extern __typeof__(f) cudnn##name __attribute__((alias(#f), visibility("default")));
NAMED(Create, create)
NAMED(Destroy, destroy)
NAMED(SetStream, set_stream)
NAMED(BackendCreateDescriptor, create_desc)
NAMED(BackendDestroyDescriptor, destroy_desc)
NAMED(BackendSetAttribute, set)
NAMED(BackendGetAttribute, get)
NAMED(BackendFinalize, finalize)
NAMED(BackendExecute, execute)
NAMED(GetVersion, version)
