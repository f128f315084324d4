/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables of stages that only exist in tests, so that the flow is tested without the engine.
 */
#ifndef LF_TESTS_FLOW_FAKE_H
#define LF_TESTS_FLOW_FAKE_H

#include "engine/base/opt.h"

extern const lf_opt_table lf_fake_work, lf_fake_join;
extern const lf_opt_table *const lf_fake_tables[];

#endif
