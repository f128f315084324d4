/* SPDX-License-Identifier: Apache-2.0
 *
 * What count.sh runs to see that TAP notices wrong numbers of points: planted CASE.
 */
#include <string.h>

#include "tests/tap/tap.h"

static void makes(int n)
{
    for (int i = 0; i < n; i++)
        tap_ok(true, "point");
}

static void stops(bool early)
{
    makes(2);
    if (early)
        return;
    makes(1);
}

static void nested(bool early)
{
    makes(1);
    TAP(3, stops(early));
    makes(1);
}

static void deeper(int n)
{
    if (n > 0)
        TAP(n, deeper(n - 1));
    makes(1);
}

static int leaves(void)
{
    tap_ok(true, "point");
    return tap_done();
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (!strcmp(what, "good")) {
        TAP(3, stops(false));
        TAP(5, nested(false));
        TAP(2 + 2, makes(2); tap_skip(2, "reason"));
        TAP(0, makes(0));
        TAP_MIN(2, makes(2));
        TAP_MIN(2, makes(4));
    } else if (!strcmp(what, "early")) {
        TAP(3, stops(true));
        TAP(3, stops(false));
    } else if (!strcmp(what, "many")) {
        TAP(3, makes(4));
    } else if (!strcmp(what, "nested")) {
        TAP(4, nested(true)); /* itself as many as it states */
    } else if (!strcmp(what, "least")) {
        TAP_MIN(3, makes(2));
    } else if (!strcmp(what, "left")) {
        TAP(1, return leaves());
    } else if (!strcmp(what, "deep")) {
        TAP(100, deeper(100));
    } else if (strcmp(what, "none") != 0) {
        tap_bail("planted CASE");
    }
    return tap_done();
}
