/* SPDX-License-Identifier: Apache-2.0
 *
 * The request belongs to the process, as its fence and its stop requests do (fence.c, sys.c).
 */
#include "engine/base/ending.h"

#include <jansson.h>
#include <stdlib.h>

#include "engine/base/fence.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

#define LOOK_EVERY_S 1.0
#define MAX_BYTES    ((size_t)1 << 16)

static int64_t stop_step = INT64_MAX;
static struct {
    char *path;
    double next_look;
    enum lf_ending found;
} ending;

int lf_ending_install(const char *path, lf_err *err)
{
    char *copy = NULL;
    if (path && path[0] && !(copy = lf_strdup(path, err)))
        return LF_ENOMEM;
    free(ending.path);
    ending.path = copy;
    ending.next_look = 0;
    ending.found = LF_ENDING_NO;
    return 0;
}

/* A file that cannot be read is a request all the same: somebody made it. */
enum lf_ending lf_ending_read(const char *path)
{
    if (!lf_fence_there(path))
        return LF_ENDING_NO;
    json_t *o = lf_json_load_file(path, MAX_BYTES, NULL);
    const bool decay = json_is_true(json_object_get(o, "decay"));
    json_decref(o);
    return decay ? LF_ENDING_DECAY : LF_ENDING_NOW;
}

enum lf_ending lf_ending_requested(void)
{
    if (!ending.path || ending.found == LF_ENDING_NOW) /* nothing is more than that */
        return ending.found;
    const double now = lf_now_s();
    if (now < ending.next_look)
        return ending.found;
    ending.next_look = now + LOOK_EVERY_S;
    const enum lf_ending is = lf_ending_read(ending.path);
    ending.found = is > ending.found ? is : ending.found;
    return ending.found;
}

int lf_stop_step_install(const char *text, lf_err *err)
{
    int64_t step = INT64_MAX;
    if (text && text[0] && (lf_parse_i64(&step, text, NULL) < 0 || step < 1))
        return lf_fail(err, LF_EINVAL, LF_STOP_STEP_ENV " = %s: no step", text);
    stop_step = step;
    return 0;
}

int64_t lf_stop_step(void)
{
    return stop_step;
}
