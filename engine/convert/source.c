/* SPDX-License-Identifier: Apache-2.0
 *
 * A Hugging Face directory: its config.json, its tensors, its other files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/named_templates.h"
#include "engine/convert/families.h"
#include "engine/convert/priv.h"
#include "engine/store/foreign.h"
#include "engine/store/megatron_ckpt.h"
#include "engine/store/safetensors.h"
#include "engine/store/torch_file.h"

int lf_hf_read_text(const char *dir, const char *name, size_t max, lf_buf *out, lf_err *err)
{
    struct stat st;
    int fd = lf_st_open_file(dir, name, err), rc = fd < 0 ? fd : 0;
    char *text = NULL;
    lf_buf_clear(out);
    if (rc == 0 && fstat(fd, &st) < 0)
        rc = lf_fail_errno(err, "%s/%s", dir, name);
    if (rc == 0 && (uint64_t)st.st_size > max)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s/%s has %lld bytes, more than the %zu that such a file may have", dir, name,
                     (long long)st.st_size, max);
    if (rc == 0 && !(text = lf_malloc((size_t)st.st_size + 1, 1, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_pread_all(fd, text, (size_t)st.st_size, 0, name, err);
    if (rc == 0) {
        lf_buf_add(out, text, (size_t)st.st_size);
        rc = lf_buf_check(out, err);
    }
    free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* JSON has no infinite numbers. Python writes them as bare words, and transformers 5 as objects,
 * {"__float__": "Infinity"}, which these words become. */
static int spell_infinite(lf_buf *out, const char *text, size_t n)
{
    static const char word[] = "Infinity";
    bool quoted = false;
    for (const char *p = text, *end = p + n; p < end; p++) {
        if (*p == '"')
            quoted = !quoted;
        if (quoted && *p == '\\' && p + 1 < end)
            lf_buf_add(out, p++, 1);
        if (!quoted && (size_t)(end - p) >= strlen(word) && !strncmp(p, word, strlen(word))) {
            const bool minus = out->len > 0 && out->data[out->len - 1] == '-';
            out->len -= minus;
            lf_buf_addf(out, "{\"__float__\": \"%s%s\"}", minus ? "-" : "", word);
            p += strlen(word) - 1;
            continue;
        }
        lf_buf_add(out, p, 1);
    }
    return lf_buf_check(out, NULL);
}

json_t *lf_hf_parse_json(const char *text, size_t n, const char *what, lf_err *err)
{
    lf_buf spelled;
    lf_buf_init(&spelled);
    json_t *o = NULL;
    if (spell_infinite(&spelled, text, n) != 0)
        lf_fail(err, LF_ENOMEM, "%s: out of memory", what);
    else
        o = lf_json_load_text(spelled.data, spelled.len, what, err);
    lf_buf_fini(&spelled);
    return o;
}

json_t *lf_hf_read_json(const char *dir, const char *name, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    char *path = lf_path_join(dir, name, err);
    json_t *o = NULL;
    if (path && lf_hf_read_text(dir, name, LF_HF_MAX_JSON, &text, err) == 0)
        o = lf_hf_parse_json(text.data, text.len, path, err);
    if (o && !json_is_object(o)) {
        lf_fail(err, LF_EFORMAT, "%s is no JSON object", path);
        json_decref(o);
        o = NULL;
    }
    free(path);
    lf_buf_fini(&text);
    return o;
}

int lf_hf_open_tensors(lf_st **out, const char *dir, lf_err *err)
{
    static const char *const names[] = {LF_SAFETENSORS_FILE, LF_SAFETENSORS_INDEX, LF_TORCH_FILE,
                                        LF_TORCH_INDEX};
    for (size_t i = 2; i < 4; i++) { /* PyTorch's own files, where there are no safetensors */
        char *own = lf_path_join(dir, names[i], err), *a = lf_path_join(dir, names[0], err),
             *b = lf_path_join(dir, names[1], err);
        bool torch = own && a && b && lf_io_exists(own) && !lf_io_exists(a) && !lf_io_exists(b);
        free(own);
        free(a);
        free(b);
        if (torch)
            return lf_torch_open(out, dir, err);
    }
    return lf_st_open(out, dir, err);
}

/* ---- a token that only the tokenizer names ---- */

/* In added_tokens.json, in added_tokens_decoder of tokenizer_config.json, or in added_tokens of
 * tokenizer.json; -1: it is not there. */
static int64_t token_of(json_t *o, const char *word)
{
    json_t *v = json_object_get(o, word), *list = json_object_get(o, "added_tokens"), *one;
    const char *id;
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    size_t i;
    json_object_foreach(json_object_get(o, "added_tokens_decoder"), id, one)
    {
        const char *text = json_string_value(json_object_get(one, "content"));
        if (text && strcmp(text, word) == 0 && lf_parse_i64(&n, id, NULL))
            n = -1;
    }
    json_array_foreach(list, i, one)
    {
        const char *text = json_string_value(json_object_get(one, "content"));
        if (text && strcmp(text, word) == 0)
            n = json_integer_value(json_object_get(one, "id"));
    }
    return n;
}

static int add_token(json_t *config, const struct lf_hf_sight *s, const char *dir, lf_err *err)
{
    static const char *const files[] = {"added_tokens.json", "tokenizer_config.json",
                                        "tokenizer.json"};
    int64_t n = -1;
    for (size_t i = 0; i < sizeof files / sizeof *files && n < 0; i++) {
        lf_err why = LF_ERR_INIT;
        json_t *o = lf_hf_read_json(dir, files[i], &why);
        n = token_of(o, s->token_word);
        json_decref(o);
    }
    if (n < 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: no file of a tokenizer has %s, which stands where pictures go: put "
                       "added_tokens.json, tokenizer_config.json or tokenizer.json of this model "
                       "beside its config.json",
                       dir, s->token_word);
    return json_object_set_new(config, s->token_key, json_integer(n))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* ---- a model ---- */

/* config.json of the decoder in place of that of the whole, as JSON and as text. */
static int take_text(json_t **config, lf_buf *text, const char *path, lf_err *err)
{
    json_t *part = lf_hf_text_part(*config, path, err);
    char *s = part ? json_dumps(part, JSON_INDENT(2)) : NULL;
    json_decref(*config);
    *config = part;
    if (!part)
        return err->rc;
    lf_buf_clear(text);
    lf_buf_addf(text, "%s\n", s ? s : "");
    free(s);
    return s ? lf_buf_check(text, err) : lf_fail(err, LF_ENOMEM, "out of memory");
}

static int read_config(struct lf_hf_model *m, const char *dir, int parts, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    json_t *o = NULL;
    char *path = lf_path_join(dir, LF_HF_CONFIG, err);
    int rc = path ? lf_hf_read_text(dir, LF_HF_CONFIG, LF_HF_MAX_JSON, &text, err) : LF_ENOMEM;
    if (rc == 0 && !(o = lf_hf_parse_json(text.data, text.len, path, err)))
        rc = LF_EFORMAT;
    if (rc == 0 && !json_is_object(o))
        rc = lf_fail(err, LF_EFORMAT, "%s is no JSON object", path);
    if (rc == 0 && parts == LF_PARTS_TEXT)
        rc = take_text(&o, &text, path, err);
    if (rc == 0 && !(m->family = lf_hf_family_of(o, path, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && lf_hf_lacks_token(m->family, o))
        rc = add_token(o, m->family->sight, dir, err);
    if (rc == 0)
        rc = lf_hf_config_read(&m->config, m->family, o, path, err);
    if (rc == 0)
        rc = lf_hf_quant_read(&m->quant, o, path, err);
    if (rc == 0 && !(m->config_text = lf_buf_steal(&text, err)))
        rc = LF_ENOMEM;
    json_decref(o);
    free(path);
    lf_buf_fini(&text);
    return rc;
}

/* A checkpoint of Megatron-LM: its training arguments are its description. */
static int open_megatron(struct lf_hf_model *m, const char *dir, lf_err *err)
{
    json_t *args = NULL;
    m->family = &lf_hf_megatron;
    int rc = lf_megatron_ckpt_open(&m->st, &args, dir, NULL, err);
    if (rc == 0)
        rc = lf_hf_config_read(&m->config, m->family, args, dir, err);
    json_decref(args);
    return rc;
}

/* Says in o that the model has no heads of multi-token prediction, by the keys of all families. */
static int without_heads(json_t *o)
{
    static const char *const counts[] = {"num_nextn_predict_layers", "num_mtp_layers",
                                         "num_mtp_modules"};
    int bad = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !bad; i++)
        if (json_object_get(o, counts[i]))
            bad = json_object_set_new(o, counts[i], json_integer(0));
    if (json_object_get(o, "use_mtp"))
        bad = bad || json_object_set_new(o, "use_mtp", json_false());
    return bad;
}

static int set_text(struct lf_hf_model *m, json_t *o, lf_err *err)
{
    char *text = json_dumps(o, JSON_INDENT(2));
    if (!text)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    free(m->config_text);
    m->config_text = text;
    return 0;
}

int lf_hf_forget_quant(struct lf_hf_model *m, lf_err *err)
{
    if (!m->config_text || (m->quant.rows == 0 && !m->quant.mxfp4))
        return 0;
    json_t *o = lf_hf_parse_json(m->config_text, strlen(m->config_text), LF_HF_CONFIG, err);
    if (!o)
        return LF_EFORMAT;
    json_object_del(o, LF_HF_QUANT);
    const int rc = set_text(m, o, err);
    json_decref(o);
    return rc;
}

/* The checkpoint keeps config.json for an export, which has no 4-bit floats, and lacks what was
 * left out. */
static int keep_text(struct lf_hf_model *m, bool forgotten, lf_err *err)
{
    int64_t left = forgotten;
    for (size_t i = 0; i < m->map.n_items; i++)
        left += m->map.items[i].left;
    if (m->quant.mxfp4 && lf_hf_forget_quant(m, err))
        return LF_EFORMAT;
    if (!m->config_text || left == 0)
        return 0;
    json_t *o = lf_hf_parse_json(m->config_text, strlen(m->config_text), LF_HF_CONFIG, err);
    if (!o)
        return LF_EFORMAT;
    const int rc =
        without_heads(o) ? lf_fail(err, LF_ENOMEM, "out of memory") : set_text(m, o, err);
    json_decref(o);
    return rc;
}

int lf_hf_unquantise(lf_st *s, const struct lf_hf_quant *q, lf_err *err)
{
    if (q->mxfp4)
        return lf_st_unpack_mxfp4(s, LF_HF_MX_BLOCKS, LF_HF_MX_SCALES, err);
    return q->rows ? lf_st_scale_blocks(s, LF_HF_SCALE_AFTER, q->rows, q->cols, err) : 0;
}

static int keep_text_tensors(struct lf_hf_model *m, lf_err *err)
{
    lf_buf left;
    lf_buf_init(&left);
    int rc = lf_hf_text_tensors(m->st, &left, err);
    if (rc == 0 && left.len && !(m->left_out = lf_buf_steal(&left, err)))
        rc = LF_ENOMEM;
    lf_buf_fini(&left);
    return rc;
}

static int open_hf(struct lf_hf_model *m, const char *dir, int parts, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int rc = read_config(m, dir, parts, err);
    if (rc != 0)
        return rc;
    rc = lf_hf_open_tensors(&m->st, dir, &why);
    if (rc == 0 && parts == LF_PARTS_TEXT && (rc = keep_text_tensors(m, err)) < 0)
        return lf_err_prefix(err, "%s", dir);
    if (rc == 0 && (rc = lf_hf_unquantise(m->st, &m->quant, err)) < 0)
        return lf_err_prefix(err, "%s", dir);
    if (rc == 0)
        return 0;
    if (rc == LF_ENOENT && lf_foreign_refuse(dir, err)) /* the weights are there in another form */
        return LF_ENOTSUP;
    return lf_fail(err, rc, "%s", why.text);
}

/* Are there tensors whose name has the one that a row of {M} or {H} gives the first head? */
static bool has_head(const struct lf_hf_model *m, const struct lf_map_row *row)
{
    const char *p = m->family->prefix, *from = row->outside, *mark = strchr(from, '{');
    char part[128];
    from += p && lf_str_has_prefix(from, p) ? strlen(p) : 0;
    const long long first = mark[1] == 'H' ? (long long)m->config.layers : 0;
    snprintf(part, sizeof part, "%.*s%lld%s", (int)(mark - from), from, first, mark + 3);
    for (size_t i = 0; i < lf_st_n_entries(m->st); i++)
        if (lf_str_has_suffix(lf_st_entry_at(m->st, i)->name, part))
            return true;
    return false;
}

/* transformers drops heads of multi-token prediction, and leaves their number in config.json.
 * Returns whether the file has none of those that it tells of. */
static bool forget_heads(struct lf_hf_model *m)
{
    const bool told = m->config.mtp_layers > 0;
    if (m->family->unsaid_head && !told && m->config_text &&
        !strstr(m->config_text, "\"num_nextn_predict_layers\""))
        m->config.mtp_layers = 1;
    for (const struct lf_map_row *r = m->family->rows; r && r->outside && m->config.mtp_layers; r++)
        if (lf_map_of_head(r) && r->kind == LF_MAP_COPY && !strstr(r->outside, "{P}") &&
            has_head(m, r))
            return false;
    m->config.mtp_layers = 0;
    m->config.mtp_join = LF_MTP_EMBED_HIDDEN;
    m->config.mtp_mlp = LF_MTP_MLP_LAST;
    m->config.mtp_norm = LF_MTP_NORM_OWN;
    return told;
}

/* Have both the same bytes? They have the same shape and type. */
static int same_bytes(bool *same, const lf_st *st, const lf_st_entry *a, const lf_st_entry *b,
                      lf_err *err)
{
    enum { PIECE = 1 << 20 };
    const int64_t size = (int64_t)lf_st_dtype_bytes(a->dtype), step = PIECE / size;
    char *x = lf_malloc(PIECE, 1, err), *y = x ? lf_malloc(PIECE, 1, err) : NULL;
    int rc = y ? 0 : LF_ENOMEM;
    *same = true;
    for (int64_t i = 0; i < a->elems && rc == 0 && *same; i += step) {
        const int64_t n = a->elems - i < step ? a->elems - i : step;
        rc = lf_st_read(st, a, i, n, x, err);
        rc = rc != 0 ? rc : lf_st_read(st, b, i, n, y, err);
        *same = rc == 0 && memcmp(x, y, (size_t)(n * size)) == 0;
    }
    free(x);
    free(y);
    return rc;
}

int lf_hf_settle_tie(lf_model_config *c, const struct lf_hf_family *f, const lf_st *st, lf_err *err)
{
    const lf_st_entry *head = lf_st_find(st, "lm_head.weight"),
                      *shared = lf_st_find(st, "shared.weight");
    bool same = true;
    int rc = 0;
    if (!f->tie_by_tensors)
        return 0;
    if (head && shared)
        same = head->dtype == shared->dtype && head->ndim == shared->ndim &&
               head->elems == shared->elems;
    if (head && shared && same)
        rc = same_bytes(&same, st, head, shared, err);
    c->tied_head = same;
    return rc;
}

int lf_hf_model_open(struct lf_hf_model *m, const char *dir, int parts, lf_err *err)
{
    enum lf_convert_form form = LF_FORM_UNKNOWN;
    bool forgotten = false;
    *m = (struct lf_hf_model){0};
    int rc = lf_convert_form_of(&form, dir, err);
    if (rc == 0)
        rc = form == LF_FORM_MEGATRON ? open_megatron(m, dir, err) : open_hf(m, dir, parts, err);
    if (rc == 0)
        forgotten = forget_heads(m);
    if (rc == 0)
        rc = lf_hf_settle_tie(&m->config, m->family, m->st, err);
    if (rc == 0)
        rc = lf_hf_form(&m->form, m->family, &m->config, m->st, NULL, err);
    if (rc == 0)
        rc = lf_map_build(&m->map, &m->form, &m->config, err);
    if (rc == 0 && (rc = lf_map_bind(&m->map, m->st, &m->form, m->family->canon, err)) < 0)
        lf_err_prefix(err, "%s", dir);
    if (rc == 0)
        rc = keep_text(m, forgotten, err);
    if (rc != 0)
        lf_hf_model_fini(m);
    return rc;
}

void lf_hf_model_fini(struct lf_hf_model *m)
{
    lf_map_fini(&m->map);
    lf_st_close(m->st);
    free(m->config_text);
    free(m->left_out);
    *m = (struct lf_hf_model){0};
}

int64_t lf_convert_hf_bytes(const char *dir, int parts)
{
    lf_buf left;
    lf_st *s = NULL;
    int64_t n = 0;
    struct lf_hf_quant quant = {0};
    json_t *o = lf_hf_read_json(dir, LF_HF_CONFIG, NULL);
    const json_t *whole_quant = json_object_get(o, LF_HF_QUANT);
    const bool inner = parts == LF_PARTS_TEXT && (!whole_quant || json_is_null(whole_quant));
    const bool known = lf_hf_quant_read(&quant, inner ? lf_hf_text_object(o) : o, dir, NULL) == 0;
    json_decref(o);
    if (!known || lf_hf_open_tensors(&s, dir, NULL))
        return 0;
    lf_buf_init(&left);
    const bool whole = parts == LF_PARTS_TEXT && lf_hf_text_tensors(s, &left, NULL);
    lf_buf_fini(&left);
    if (whole || lf_hf_unquantise(s, &quant, NULL)) {
        lf_st_close(s);
        return 0;
    }
    for (size_t i = 0; i < lf_st_n_entries(s); i++)
        n += lf_st_entry_at(s, i)->bytes;
    lf_st_close(s);
    return n;
}

/* ---- types ---- */

enum lf_h5_type lf_hf_h5_type(enum lf_st_dtype t)
{
    return t == LF_ST_BF16 ? LF_H5_BF16 : t == LF_ST_F32 ? LF_H5_F32 : 0;
}

enum lf_st_dtype lf_hf_st_type(enum lf_h5_type t)
{
    return t == LF_H5_BF16  ? LF_ST_BF16
           : t == LF_H5_F32 ? LF_ST_F32
           : t == LF_H5_F64 ? LF_ST_F64
                            : 0;
}

enum lf_st_dtype lf_convert_target(int dtype, enum lf_st_dtype source)
{
    static const enum lf_st_dtype by[] = {0, LF_ST_F32, LF_ST_BF16, LF_ST_F16};
    return dtype == LF_CONVERT_KEEP ? source : by[dtype];
}

const char *lf_hf_torch_name(enum lf_st_dtype t)
{
    return t == LF_ST_BF16 ? "bfloat16" : t == LF_ST_F16 ? "float16" : "float32";
}

/* ---- tokenizer files ---- */

static const char *const tokenizer_files[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.json",
    "chat_template.jinja", "*.tiktoken", "ice_text.model", "spiece.model", LF_HF_GENERATION,
    /* of pictures */
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "*.py",
    NULL};

static bool is_tokenizer_file(const char *name)
{
    for (const char *const *p = tokenizer_files; *p; p++)
        if (fnmatch(*p, name, FNM_PERIOD) == 0)
            return true;
    return false;
}

static int copy_file(const char *from, const char *to, const char *name, lf_artifact *a,
                     lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    char *path = lf_path_join(to, name, err);
    int rc = path ? lf_hf_read_text(from, name, LF_HF_MAX_FILE, &text, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_write_file(path, text.data, text.len, LF_ARTIFACT_MODE, err);
    if (rc == 0 && a)
        rc = lf_artifact_add_hashed(a, to, name, err);
    free(path);
    lf_buf_fini(&text);
    return rc;
}

static int cmp_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int by_name(const struct dirent *e)
{
    return is_tokenizer_file(e->d_name);
}

/* Several chat templates as one file. */
static int write_templates(const char *to, const lf_buf *config, lf_artifact *a, lf_err *err)
{
    char *path = lf_path_join(to, LF_TEMPLATE_CONFIG, err);
    int rc =
        path ? lf_io_write_file(path, config->data, config->len, LF_ARTIFACT_MODE, err) : LF_ENOMEM;
    if (rc == 0 && a)
        rc = lf_artifact_add_hashed(a, to, LF_TEMPLATE_CONFIG, err);
    free(path);
    return rc;
}

int lf_hf_copy_files(const char *from, const char *to, const char *but, lf_artifact *a, size_t *n,
                     lf_err *err)
{
    struct dirent **list = NULL;
    lf_buf config;
    bool several = false;
    int count = scandir(from, &list, by_name, cmp_name);
    if (count < 0)
        return lf_fail_errno(err, "cannot look into %s", from);
    lf_buf_init(&config);
    int rc = lf_named_templates(&config, from, &several, err);
    for (int i = 0; i < count; i++) {
        const char *name = list[i]->d_name;
        const bool made = several && (strcmp(name, LF_TEMPLATE_CONFIG) == 0 ||
                                      strcmp(name, LF_TEMPLATE_FILE) == 0);
        if (rc == 0 && !made && (!but || strcmp(name, but) != 0))
            rc = copy_file(from, to, name, a, err);
        free(list[i]);
    }
    free(list);
    if (rc == 0 && several)
        rc = write_templates(to, &config, a, err);
    lf_buf_fini(&config);
    if (rc == 0)
        *n = (size_t)count;
    return rc;
}

bool lf_hf_has_tokenizer(const lf_artifact *a)
{
    bool has = lf_artifact_find(a, "tokenizer.json") || lf_artifact_find(a, "vocab.json");
    for (size_t i = 0; i < a->n_files; i++)
        has = has || lf_str_has_suffix(a->files[i].path, ".tiktoken") ||
              lf_str_has_suffix(a->files[i].path, ".model");
    return has;
}

/* ---- the artifact of a tokenizer ---- */

/* Special tokens as a file has them, those that `meta` does not have yet. One id or a list are
 * ends. */
static int add_tokens(json_t *meta, json_t *ends, json_t *o)
{
    static const char *const single[] = {"bos_token_id", "pad_token_id"};
    json_t *v = json_object_get(o, "eos_token_id");
    bool first = json_array_size(ends) == 0;
    int bad = first && json_is_integer(v) ? json_array_append(ends, v) : 0;
    for (size_t k = 0; first && k < json_array_size(v); k++)
        if (json_is_integer(json_array_get(v, k)))
            bad = bad || json_array_append(ends, json_array_get(v, k));
    for (size_t k = 0; k < sizeof single / sizeof single[0]; k++) {
        json_t *id = json_object_get(o, single[k]);
        if (json_is_integer(id) && !json_object_get(meta, single[k]))
            bad = bad || json_object_set(meta, single[k], id);
    }
    return bad;
}

/* What goes with no file of a tokenizer otherwise, and every export needs: generation_config.json
 * has the last word. */
static int keep_tokens(json_t *meta, const char *dir, lf_err *err)
{
    static const char *const files[] = {LF_HF_GENERATION, LF_HF_CONFIG};
    json_t *ends = json_array();
    int rc = ends ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        lf_err why = LF_ERR_INIT;
        json_t *o = lf_hf_read_json(dir, files[i], &why);
        if (!o && why.rc != LF_ENOENT)
            rc = lf_fail(err, why.rc, "%s", why.text);
        else if (add_tokens(meta, ends, o) || add_tokens(meta, ends, lf_hf_text_object(o)))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
        json_decref(o);
    }
    if (rc == 0 && json_object_set(meta, "eos_token_ids", ends))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(ends);
    return rc;
}

#define UNFINISHED ".lf-convert-unfinished"

static int is_empty(const char *dir, bool *empty, lf_err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    *empty = true;
    if (!d)
        return errno == ENOENT ? 0 : lf_fail_errno(err, "cannot look into %s", dir);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            *empty = false;
    closedir(d);
    return 0;
}

int lf_hf_begin_dir(const char *dir, lf_err *err)
{
    char *manifest = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err),
         *mark = lf_path_join(dir, UNFINISHED, err);
    bool empty = true;
    int rc = manifest && mark ? is_empty(dir, &empty, err) : LF_ENOMEM;
    if (rc == 0 && lf_io_exists(manifest))
        rc = lf_fail(err, LF_EEXIST, "%s is complete already", dir);
    if (rc == 0 && !empty && !lf_io_exists(mark))
        rc = lf_fail(err, LF_EEXIST,
                     "%s holds files that lf-convert has not written; name another directory", dir);
    if (rc == 0 && !empty)
        rc = lf_io_remove_tree(dir, err);
    if (rc == 0)
        rc = lf_io_mkdirs(dir, 0750, err);
    if (rc == 0)
        rc = lf_io_write_file(mark, "", 0, LF_ARTIFACT_MODE, err);
    free(manifest);
    free(mark);
    return rc;
}

int lf_hf_finish_dir(lf_artifact *a, const char *dir, lf_err *err)
{
    char *mark = lf_path_join(dir, UNFINISHED, err);
    int rc = mark ? lf_artifact_publish(a, dir, err) : LF_ENOMEM;
    if (rc == 0 && unlink(mark) < 0 && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot remove %s", mark);
    free(mark);
    return rc;
}

int lf_convert_tokenizer(const char *from, const char *out, bool *has_tokenizer, lf_err *err)
{
    lf_artifact a = {0};
    size_t n = 0;
    int rc = lf_artifact_init(&a, "tokenizer", err);
    if (rc == 0)
        rc = lf_hf_begin_dir(out, err);
    if (rc == 0)
        rc = lf_hf_copy_files(from, out, NULL, &a, &n, err);
    if (rc == 0)
        rc = keep_tokens(a.meta, from, err);
    if (rc == 0 && json_object_set_new(a.meta, "trained", json_false()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_hf_finish_dir(&a, out, err);
    if (rc == 0)
        *has_tokenizer = lf_hf_has_tokenizer(&a);
    lf_artifact_fini(&a);
    return rc;
}
