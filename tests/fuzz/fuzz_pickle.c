/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the pickle interpreter alone (in a zip file the CRC would stop every mutation).
 * Every value that is made is looked at, once for each way that leads to it, up to a bound.
 */
#include "engine/store/torch_pickle.h"

#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

const char *const fuzz_corpus = "pickle";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i;
    (void)buf;
    (void)cap;
    return 0;
}

static size_t left;

/* The sum of what is there, so that the reads are not left out. */
static uint64_t look(const lf_pv *v, int depth)
{
    uint64_t sum = (uint64_t)v->type;
    if (depth == 0 || left == 0)
        return sum;
    left--;
    switch (v->type) {
    case LF_PV_STR:
    case LF_PV_BYTES:
        for (uint32_t i = 0; i < v->n; i++)
            sum += (unsigned char)v->u.text[i];
        break;
    case LF_PV_LIST:
    case LF_PV_TUPLE:
    case LF_PV_OTHER:
        for (uint32_t i = 0; i < v->n; i++)
            sum += look(v->u.items[i], depth - 1);
        break;
    case LF_PV_DICT:
        for (uint32_t i = 0; i < 2 * v->n; i++)
            sum += look(v->u.items[i], depth - 1);
        break;
    case LF_PV_TENSOR:
        for (int k = 0; k < v->u.tensor->ndim; k++)
            sum += (uint64_t)v->u.tensor->shape[k] + (uint64_t)v->u.tensor->stride[k];
        sum += (uint64_t)v->u.tensor->storage->elems;
        break;
    case LF_PV_MARK:
        abort(); /* must not get out of the stack */
    default:
        break;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    lf_err err = LF_ERR_INIT;
    lf_pickle *p = NULL;
    size_t used = 0;
    fuzz_check_error(lf_pickle_load(&p, data, size, &used, "fuzz", &err), &err);
    if (p && (used == 0 || used > size))
        abort();
    left = 10000;
    if (p)
        sink += look(lf_pickle_root(p), 20);
    if (p && lf_pv_get(lf_pickle_root(p), "w"))
        sink++;
    for (size_t i = 0; p && i < lf_pickle_n_storages(p); i++)
        sink += look(lf_pickle_storage(p, i)->key, 1);
    lf_pickle_destroy(p);
    return 0;
}
