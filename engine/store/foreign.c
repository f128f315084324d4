/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of foreign.h. */
#include "engine/store/foreign.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "engine/base/io.h"

static const struct foreign {
    const char *mark; /* the name of a file, as fnmatch has it */
    const char *what, *way;
} table[] = {
    {"common.pt", "a distributed checkpoint of Megatron Core (torch_dist or zarr)",
     "load it with Megatron-LM's training script and --ckpt-convert-format torch "
     "--ckpt-convert-save NEW, and convert NEW"},
    {"*.distcp", "a distributed checkpoint of PyTorch (DCP)",
     "python3 -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR pytorch_model.bin "
     "makes one file of it, which is read beside the model's config.json where it holds the model "
     "alone"},
    {"layer_*-model_*-model_states.pt", "a checkpoint of a pipeline of DeepSpeed",
     "export it to the form of Hugging Face with the program that trained it (GPT-NeoX: "
     "tools/ckpts/convert_neox_to_hf.py)"},
    {"*mp_rank_*_model_states.pt", "a checkpoint of DeepSpeed",
     "its zero_to_fp32.py makes one set of weights of it, which is read beside the model's "
     "config.json"},
    {"*zero_pp_rank_*", "a checkpoint of DeepSpeed (ZeRO)",
     "its zero_to_fp32.py makes one set of weights of it, which is read beside the model's "
     "config.json"},
};
enum { FORMS = sizeof table / sizeof table[0] };

/* The first form that a name of the list belongs to, and that name. */
static const struct foreign *find(struct dirent **list, int n, const char **name)
{
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; i < n; i++)
            if (fnmatch(table[f].mark, list[i]->d_name, FNM_PERIOD) == 0) {
                *name = list[i]->d_name;
                return &table[f];
            }
    return NULL;
}

/* depth: levels of directories below this one that are looked into. */
static int look(const char *dir, int depth, lf_err *err)
{
    struct dirent **list = NULL;
    const char *name;
    int rc = 0;
    const int n = scandir(dir, &list, NULL, alphasort);
    const struct foreign *f = find(list, n, &name);
    if (f)
        rc = lf_fail(err, LF_ENOTSUP, "%s/%s: %s, which is not read: %s", dir, name, f->what,
                     f->way);
    for (int i = 0; i < n; i++) {
        char *path = rc == 0 && depth > 0 && list[i]->d_name[0] != '.'
                         ? lf_path_join(dir, list[i]->d_name, NULL)
                         : NULL;
        if (path)
            rc = look(path, depth - 1, err);
        free(path);
        free(list[i]);
    }
    free(list);
    return rc;
}

int lf_foreign_refuse(const char *dir, lf_err *err)
{
    return look(dir, 1, err);
}
