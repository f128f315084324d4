/* SPDX-License-Identifier: Apache-2.0
 *
 * How much processor time a container or a batch system lets a process have, whatever processors it
 * may run on.
 */
#ifndef LF_BASE_QUOTA_H
#define LF_BASE_QUOTA_H

/* The processors that the CPU quotas of the control groups of this process and of those above are
 * worth, rounded up; 0: there is no quota that can be read. root stands before /proc and /sys: "",
 * or a folder of a test. */
int lf_cpu_quota(const char *root);

#endif
