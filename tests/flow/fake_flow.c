/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-flow with the option tables of the test stages.
 */
#include "config.h"

#include "flow/cmd/cmd.h"
#include "tests/flow/fake.h"

int main(int argc, char **argv)
{
    return lf_flow_main(argc, argv, lf_fake_tables);
}
