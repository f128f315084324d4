/* SPDX-License-Identifier: Apache-2.0
 *
 * env.h: settings under their old names are refused with the new one; other variables are not ours.
 */
#include <stdlib.h>

#include "engine/base/env.h"
#include "tests/tap/tap.h"

int main(void)
{
    lf_err err = LF_ERR_INIT;
    setenv("LOONG_MOUNTAIN", "1", 1); /* somebody else's */
    setenv("LF_COMM", "tcp", 1);
    tap_rc(lf_env_check(&err), 0, &err, NULL, "names of today, and names of others");
    setenv("LOONG_COMM", "", 1); /* set to nothing is set */
    tap_rc(lf_env_check(&err), LF_EINVAL, &err, "sets LOONG_COMM, which is now called LF_COMM",
           "a name of before");
    unsetenv("LOONG_COMM");
    setenv("LOONG_SITE_CONFIG", "/etc/site.ini", 1);
    tap_rc(lf_env_check(&err), LF_EINVAL, &err, "now called LF_SITE_CONFIG", "another one");
    return tap_done();
}
