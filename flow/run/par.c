/* SPDX-License-Identifier: Apache-2.0
 *
 * A few threads over an index.
 */
#include "config.h"

#include "flow/run/par.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREADS  8
#define WORTH_IT 16 /* fewer are done one after the other, in order */

struct work {
    size_t n;
    int (*fn)(void *user, size_t i, lf_err *err);
    void *user;
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t mutex; /* of the two below */
    size_t first;
    lf_err err;
};

static void *loop(void *arg)
{
    struct work *w = arg;
    for (size_t i = atomic_fetch_add(&w->next, 1); i < w->n && !atomic_load(&w->failed);
         i = atomic_fetch_add(&w->next, 1)) {
        lf_err e = LF_ERR_INIT;
        if (w->fn(w->user, i, &e) >= 0)
            continue;
        atomic_store(&w->failed, true);
        pthread_mutex_lock(&w->mutex);
        if (i < w->first) {
            w->first = i;
            w->err = e;
        }
        pthread_mutex_unlock(&w->mutex);
    }
    return NULL;
}

int lf_par_each(size_t n, int (*fn)(void *user, size_t i, lf_err *err), void *user, lf_err *err)
{
    struct work w = {.n = n, .fn = fn, .user = user, .first = n, .err = LF_ERR_INIT};
    pthread_t threads[THREADS];
    size_t started = 0;
    pthread_mutex_init(&w.mutex, NULL);
    while (n >= WORTH_IT && started < THREADS &&
           pthread_create(&threads[started], NULL, loop, &w) == 0)
        started++;
    loop(&w); /* this thread works too, alone where there are no others to be had */
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&w.mutex);
    return w.first == n ? 0 : lf_fail(err, w.err.rc != 0 ? w.err.rc : LF_EIO, "%s", w.err.text);
}
