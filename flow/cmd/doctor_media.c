/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the decoders of pictures. The command links none, so it asks lf-tokenize --decoders,
 * which prints a line for each format: name, version or "no", and a word, with tabs between.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/err.h"
#include "flow/cmd/doctor.h"
#include "flow/run/freeze.h"

static const struct {
    const char *word, *verdict, *text, *advice;
} verdicts[] = {
    {"same", "ok", "reads pictures with the pixels of the reference", NULL},
    {"absent", "ok", "not built in: such pictures are refused",
     "to read them, install its library and run configure again (./autogen.sh --packages)"},
    {"differs", "warn", "the library rounds otherwise: pixels differ from those of the reference",
     "prepare pictures on one machine alone, or install the library of a supported release"},
    {"fails", "fail", "the library refuses a correct picture", "install the library anew"},
};

/* One line "format TAB version TAB word". */
static bool tell(lf_doctor *d, char *line)
{
    char *rest = line, *format = strsep(&rest, "\t"), *version = strsep(&rest, "\t");
    for (size_t i = 0; rest != NULL && i < sizeof verdicts / sizeof verdicts[0]; i++)
        if (strcmp(rest, verdicts[i].word) == 0) {
            lf_doctor_add(d, verdicts[i].verdict, "pictures", verdicts[i].advice, "%s (%s) %s",
                          format, version, verdicts[i].text);
            return true;
        }
    return false;
}

void lf_doctor_media(lf_doctor *d)
{
    char answer[LF_DOCTOR_ANSWER], *exe = NULL, *rest = answer, *line;
    lf_err e = LF_ERR_INIT;
    if (lf_exe_find(&exe, "lf-tokenize", &e) < 0)
        return; /* the check of executables has said so */
    bool good = lf_doctor_ask(answer, exe, "--decoders");
    while (good && (line = strsep(&rest, "\n")) != NULL && line[0] != 0)
        good = tell(d, line);
    if (!good)
        lf_doctor_add(d, "warn", "pictures", "try it by hand", "%s --decoders gives no answer",
                      exe);
    free(exe);
}
