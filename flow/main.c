/* SPDX-License-Identifier: Apache-2.0
 *
 * The loong-flow program: the flow library with the option tables of the real stages.
 */
#include "config.h"

#include "flow/cmd/cmd.h"
#include "stages/opts.h"

int main(int argc, char **argv)
{
    return lf_flow_main(argc, argv, lf_all_opts);
}
