/* SPDX-License-Identifier: Apache-2.0
 *
 * What a path holds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/convert/priv.h"

const char *lf_convert_form_name(enum lf_convert_form f)
{
    static const char *const names[] = {"unknown",
                                        "Hugging Face model",
                                        "checkpoint",
                                        "shards",
                                        "tokenizer artifact",
                                        "Megatron checkpoint",
                                        "Megatron .bin/.idx",
                                        "PEFT adapter"};
    return names[f];
}

static bool holds(const char *dir, const char *name)
{
    char *p = lf_path_join(dir, name, NULL);
    bool yes = p && lf_io_exists(p);
    free(p);
    return yes;
}

static enum lf_convert_form form_of_kind(const char *kind)
{
    return strcmp(kind, "checkpoint") == 0  ? LF_FORM_CHECKPOINT
           : strcmp(kind, "shards") == 0    ? LF_FORM_SHARDS
           : strcmp(kind, "tokenizer") == 0 ? LF_FORM_TOKENIZER
           : strcmp(kind, "peft") == 0      ? LF_FORM_PEFT
                                            : LF_FORM_UNKNOWN;
}

int lf_convert_form_of(enum lf_convert_form *out, const char *path, lf_err *err)
{
    struct stat st;
    lf_artifact a = {0};
    *out = LF_FORM_UNKNOWN;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "%s", path);
    if (!S_ISDIR(st.st_mode)) {
        if (lf_str_has_suffix(path, ".idx") || lf_str_has_suffix(path, ".bin"))
            *out = LF_FORM_IDX;
        return 0;
    }
    lf_err why = LF_ERR_INIT;
    int rc = lf_artifact_load(&a, path, NULL, &why);
    if (rc != 0 && rc != LF_ENOENT && !holds(path, LF_HF_CONFIG))
        return lf_fail(err, rc, "%s", why.text);
    if (rc == 0 && strcmp(a.kind, "model") != 0)
        *out = form_of_kind(a.kind);
    else if (holds(path, LF_HF_CONFIG))
        *out = LF_FORM_HF;
    else if (holds(path, "adapter_config.json"))
        *out = LF_FORM_PEFT;
    else if (holds(path, "latest_checkpointed_iteration.txt") || holds(path, "mp_rank_00") ||
             holds(path, "mp_rank_00_000"))
        *out = LF_FORM_MEGATRON;
    lf_artifact_fini(&a);
    return 0;
}
