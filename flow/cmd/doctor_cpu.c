/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the processor of this machine and the kernels that run on it. Those belong to stages, so
 * lf-pretrain --version tells their name, in the line "runs here: NAME".
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/err.h"
#include "engine/base/machine.h"
#include "flow/cmd/doctor.h"
#include "flow/run/freeze.h"

/* The name behind "runs here: " in answer, which is cut there; NULL: there is none. */
static const char *kernels_in(char *answer)
{
    static const char line[] = "\nruns here: ";
    char *at = strstr(answer, line);
    if (at == NULL)
        return NULL;
    at += strlen(line);
    at[strcspn(at, "\n")] = '\0';
    return *at != '\0' ? at : NULL;
}

void lf_doctor_cpu(lf_doctor *d)
{
    char answer[LF_DOCTOR_ANSWER], model[256], why[64] = "", *exe = NULL;
    const char *limit = getenv("LF_ISA");
    lf_err e = LF_ERR_INIT;
    if (lf_exe_find(&exe, "lf-pretrain", &e) < 0)
        return; /* the check of executables has said so */
    const char *kernels = lf_doctor_ask(answer, exe, "--version") ? kernels_in(answer) : NULL;
    if (limit != NULL && *limit != '\0')
        snprintf(why, sizeof why, ", limited by LF_ISA = %s", limit);
    if (kernels == NULL)
        lf_doctor_add(d, "warn", "processor", "try it by hand",
                      "%s --version does not name its kernels", exe);
    else if (strcmp(kernels, "plain") == 0 && why[0] == '\0')
        lf_doctor_add(d, "warn", "processor",
                      "it computes, slowly; a build for all processors (configure without "
                      "--enable-native) may have faster kernels",
                      "%s; no kernels of this build but plain C run on it",
                      lf_cpu_model(model, sizeof model));
    else
        lf_doctor_add(d, "ok", "processor", NULL, "%s; kernels %s%s",
                      lf_cpu_model(model, sizeof model), kernels, why);
    free(exe);
}
