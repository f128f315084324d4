/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of other tools.
 */
#include "engine/base/synonym.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"

/* Several rows may have the same word: the first whose own name is allowed counts. */
static const lf_synonym words[] = {
    /* learning rate and optimizer */
    {"learning_rate", "lr", NULL},
    {"max_lr", "lr", NULL},
    {"actor_learning_rate", "lr", NULL},
    {"min_learning_rate", "min_lr", NULL},
    {"lr_scheduler_type", "schedule", NULL},
    {"lr_scheduler", "schedule", NULL},
    {"lr_decay_style", "schedule", NULL},
    {"lr_decay_iters", "steps", "the schedule ends with the run"},
    {"warmup_steps", "warmup", NULL},
    {"warmup_steps", "warmup_rounds", "in rounds"},
    {"num_warmup_steps", "warmup", NULL},
    {"warmup_iters", "warmup", NULL},
    {"lr_warmup_iters", "warmup", NULL},
    {"warmup_ratio", "warmup", "in steps: warmup_ratio x steps"},
    {"lr_wsd_decay_iters", "decay", NULL},
    {"adam_beta1", "beta1", NULL},
    {"adam_beta2", "beta2", NULL},
    {"adam_epsilon", "eps", NULL},
    {"adam_eps", "eps", NULL},
    {"wd", "weight_decay", NULL},
    {"max_grad_norm", "clip", NULL},
    {"clip_grad", "clip", NULL},
    {"grad_clip", "clip", NULL},
    {"gradient_clipping", "clip", NULL},
    {"ema_decay", "ema", NULL},
    {"model_ema", "ema", "the decay of the average, such as 0.9999"},
    {"model_ema_decay", "ema", NULL},
    {"use_ema", "ema", "the decay of the average, such as 0.9999"},
    {"optim", NULL, "the optimizer is always AdamW; see moments and masters"},
    {"optimizer", NULL, "the optimizer is always AdamW; see moments and masters"},
    /* length and batch */
    {"max_steps", "steps", NULL},
    {"max_steps", "rounds", "a round generates round_prompts x samples texts and trains on them"},
    {"train_iters", "steps", NULL},
    {"max_iters", "steps", NULL},
    {"num_steps", "steps", NULL},
    {"total_steps", "steps", NULL},
    {"max_tokens", "tokens", NULL},
    {"num_train_epochs", "epochs", NULL},
    {"num_epochs", "epochs", NULL},
    {"n_epochs", "epochs", NULL},
    {"per_device_train_batch_size", "micro_batch", NULL},
    {"per_device_train_batch_size", "micro_tokens", "in tokens"},
    {"micro_batch_size", "micro_batch", NULL},
    {"micro_batch_size", "micro_tokens", "in tokens"},
    {"batch_size", "batch", "sequences of an optimizer step; micro_batch are computed at once"},
    {"batch_size", "minibatch", "texts of an optimizer step"},
    {"batch_size", "slots", NULL},
    {"per_device_eval_batch_size", "slots", NULL},
    {"global_batch_size", "batch", NULL},
    {"train_batch_size", "batch", NULL},
    {"gradient_accumulation_steps", "batch",
     "batch = micro_batch x gradient_accumulation_steps x ranks"},
    {"gradient_accumulation_steps", "minibatch",
     "minibatch = texts of an optimizer step, on all ranks"},
    {"max_seq_length", "seq_length", NULL},
    {"max_seq_len", "seq_length", NULL},
    {"seq_len", "seq_length", NULL},
    {"block_size", "seq_length", NULL},
    {"context_length", "seq_length", NULL},
    {"cutoff_len", "seq_length", NULL},
    {"max_length", "seq_length", NULL},
    {"random_seed", "seed", NULL},
    /* numbers */
    {"bf16", "precision", "bf16 = true is precision = bf16"},
    {"fp16", "precision", "fp16 = true is precision = fp16"},
    {"fp8", "precision", "fp8 = true is precision = fp8"},
    {"dtype", "precision", NULL},
    {"torch_dtype", "precision", NULL},
    {"mixed_precision", "precision", NULL},
    {"gradient_checkpointing", "recompute", "a word and not true or false"},
    {"recompute_granularity", "recompute", NULL},
    {"activation_checkpointing", "recompute", "a word and not true or false"},
    {"loss_scaling", "loss_scale", NULL},
    {"use_cpu_offload", "optimizer_offload", "a share, such as 1"},
    {"optimizer_cpu_offload", "optimizer_offload", "a share, such as 1"},
    {"adam_8bit", "moments", "moments = bf16 is what there is"},
    {"use_flash_attention", NULL, "attention never makes the whole matrix here"},
    {"flash_attn", NULL, "attention never makes the whole matrix here"},
    {"compile", NULL, "nothing is compiled while a stage runs"},
    {"torch_compile", NULL, "nothing is compiled while a stage runs"},
    /* saving, validation, logs */
    {"save_steps", "save_interval", NULL},
    {"checkpoint_interval", "save_interval", NULL},
    {"save_total_limit", "keep", NULL},
    {"keep_last_n_checkpoints", "keep", NULL},
    {"eval_steps", "valid_interval", NULL},
    {"eval_interval", "valid_interval", NULL},
    {"val_interval", "valid_interval", NULL},
    {"val_check_interval", "valid_interval", NULL},
    {"eval_iters", "valid_tokens", "in tokens"},
    {"logging_steps", "log_interval", NULL},
    {"log_every_n_steps", "log_interval", NULL},
    {"early_stopping_patience", "patience", NULL},
    {"metric_for_best_model", "best_metric", NULL},
    {"load_best_model_at_end", "best_metric", "then ${stage:NAME.best} is the best model"},
    {"report_to", "tensorboard", "a directory"},
    {"logging_dir", "tensorboard", NULL},
    {"tensorboard_dir", "tensorboard", NULL},
    {"wandb_project", "metrics_jsonl", "a file of JSON lines, which other tools read"},
    {"resume_from_checkpoint", NULL,
     "`loong-flow resume` continues a run; init_from begins with other weights"},
    {"output_dir", "data_dir", "for all stages; each has a directory of its own below it"},
    {"output_dir", NULL, "each stage has a directory of its own below data_dir of [pipeline]"},
    {"overwrite_output_dir", NULL, "`loong-flow run --new` makes a new run"},
    /* models and data */
    {"model_name_or_path", "init_from", "a checkpoint; kind = convert makes one of Hugging Face's"},
    {"model_name_or_path", "checkpoint", "kind = convert makes one of Hugging Face's"},
    {"pretrained_model", "init_from", NULL},
    {"load", "init_from", NULL},
    {"dataset", "data", "shards that kind = tokenize makes"},
    {"dataset", "inputs", "files"},
    {"dataset_name", "data", "shards that kind = tokenize makes"},
    {"data_path", "data", "shards that kind = tokenize makes"},
    {"train_file", "data", "shards that kind = tokenize makes"},
    {"train_file", "inputs", NULL},
    {"input", "inputs", NULL},
    {"dataset_text_field", "text_field", NULL},
    {"val_size", "valid_fraction", NULL},
    {"train_on_inputs", "mask", NULL},
    {"tokenizer_path", "tokenizer", NULL},
    {"tokenizer_name", "tokenizer", NULL},
    {"chat_template_name", "chat_name", NULL},
    /* adapters */
    {"r", "lora_rank", NULL},
    {"lora_r", "lora_rank", NULL},
    {"lora_target_modules", "lora_targets", NULL},
    {"target_modules", "lora_targets", NULL},
    {"use_dora", "lora_dora", NULL},
    {"use_rslora", "lora_scaling", "use_rslora = true is lora_scaling = root"},
    {"load_in_4bit", NULL, "weights are not quantized here"},
    {"load_in_8bit", NULL, "weights are not quantized here"},
    {"neftune_noise_alpha", "neftune_alpha", NULL},
    /* preferences and reinforcement learning */
    {"loss_type", "loss", NULL},
    {"ref_model", "reference", NULL},
    {"ref_model", "ref_from", NULL},
    {"desirable_weight", "weight_good", NULL},
    {"undesirable_weight", "weight_bad", NULL},
    {"num_generations", "samples", NULL},
    {"num_iterations", "round_epochs", NULL},
    {"num_ppo_epochs", "round_epochs", NULL},
    {"ppo_epochs", "round_epochs", NULL},
    {"num_mini_batches", "minibatch", "texts of an optimizer step, not how many steps"},
    {"beta", "kl_coef", NULL},
    {"init_kl_coef", "kl_coef", NULL},
    {"kl_penalty", "kl_coef", NULL},
    {"epsilon", "clip_low", "and clip_high"},
    {"epsilon_high", "clip_high", NULL},
    {"cliprange", "clip_low", "and clip_high"},
    {"cliprange_value", "value_clip", NULL},
    {"lam", "lambda", NULL},
    {"max_prompt_length", "max_prompt", NULL},
    {"max_completion_length", "max_tokens", NULL},
    {"response_length", "max_tokens", NULL},
    /* generating and measuring */
    {"max_new_tokens", "max_tokens", NULL},
    {"max_gen_toks", "max_tokens", NULL},
    {"min_new_tokens", "min_tokens", NULL},
    {"num_return_sequences", "samples", NULL},
    {"do_sample", "temperature", "do_sample = false is temperature = 0"},
    {"num_beams", "beams", NULL},
    {"max_model_len", "max_context", NULL},
    {"max_num_seqs", "slots", NULL},
    {"num_fewshot", "prefix", "a text that stands before each request"},
    {"tasks", "multiple_choice", "or last_word, generate, text: which files are measured how"},
    /* models */
    {"hidden_size", "hidden", NULL},
    {"n_embd", "hidden", NULL},
    {"d_model", "hidden", NULL},
    {"num_hidden_layers", "layers", NULL},
    {"num_layers", "layers", NULL},
    {"n_layer", "layers", NULL},
    {"num_attention_heads", "heads", NULL},
    {"n_head", "heads", NULL},
    {"num_heads", "heads", NULL},
    {"num_key_value_heads", "kv_heads", NULL},
    {"num_query_groups", "kv_heads", NULL},
    {"intermediate_size", "ffn", NULL},
    {"ffn_hidden_size", "ffn", NULL},
    {"vocab_size", "vocab", NULL},
    {"max_position_embeddings", "max_positions", NULL},
    {"n_positions", "max_positions", NULL},
    {"tie_word_embeddings", "tied_head", NULL},
    {"rms_norm_eps", "norm_eps", NULL},
    {"hidden_act", "activation", NULL},
    {"num_local_experts", "experts", NULL},
    {"layer_types", "layer_mixers", "a pattern of letters: wf* is a window in every other layer"},
    {"window_pattern", "layer_mixers",
     "a pattern of letters: wf* is a window in every other layer"},
    {"max_window_layers", "layer_mixers",
     "a pattern of letters: f*2,w* is a window from layer 2 on"},
    {"window_layers", "layer_mixers", "a pattern of letters: wfw,f* is a window in layers 0 and 2"},
    {"dense_layers", "layer_mlps", "a pattern of letters: d*2,m* is experts from layer 2 on"},
    {"first_k_dense_replace", "layer_mlps",
     "a pattern of letters: d,m* is experts from layer 1 on"},
    {"moe_period", "layer_mlps", "a pattern of letters: dm* is experts in every other layer"},
    {"mlp_layers", "layer_mlps", "a pattern of letters: dmd,m* is a plain MLP in layers 0 and 2"},
    {"num_experts", "experts", NULL},
    {"num_experts_per_tok", "experts_per_token", NULL},
    {"moe_expert_capacity_factor", "capacity_factor", NULL},
    {"initializer_range", "init_std", NULL},
    {"dropout", "embed_dropout", "and attn_dropout, mlp_dropout"},
    /* where it runs */
    {"nproc_per_node", "ranks", NULL},
    {"ntasks_per_node", "ranks", NULL},
    {"num_processes", "ranks", "of a node"},
    {"nnodes", "nodes", NULL},
    {"cpus_per_task", "cpus", NULL},
    {"gres", "gpus", "[TYPE:]N of a node"},
    {"gpus_per_node", "gpus", NULL},
    {"num_gpus", "gpus", NULL},
    {"mem", "memory", NULL},
    {"time", "time_limit", NULL},
    {"walltime", "time_limit", NULL},
    {"num_workers", "threads", NULL},
    {"dataloader_num_workers", "threads", NULL},
    {"num_proc", "threads", NULL},
    {"tensor_model_parallel_size", NULL, "tensor = N of a [layout NAME]"},
    {"pipeline_model_parallel_size", NULL, "pipeline = N of a [layout NAME]"},
    {"tensor_parallel_size", NULL, "tensor = N of a [layout NAME]"},
    {"deepspeed", NULL, "zero = 1, 2 or 3 of a [layout NAME]; see optimizer_offload too"},
    {"fsdp", NULL, "zero = 3 of a [layout NAME]; see optimizer_offload too"},
    /* kinds of stages */
    {"train", "pretrain", NULL},
    {"training", "pretrain", NULL},
    {"finetune", "sft", NULL},
    {"instruct", "sft", NULL},
    {"lora", "sft", "with lora_rank"},
    {"reward", "rm", NULL},
    {"reward_model", "rm", NULL},
    {"grpo", "ppo", "with algorithm = grpo"},
    {"rloo", "ppo", "with algorithm = rloo"},
    {"orpo", "dpo", "with loss = orpo"},
    {"simpo", "dpo", "with loss = simpo"},
    {"kto", "dpo", "with loss = kto"},
    {"inference", "generate", NULL},
    {"sample", "generate", NULL},
    {"evaluate", "eval", NULL},
    {"export", "convert", "with to = hf"},
    {"import", "convert", NULL},
};

static const char *const values[][2] = {
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"float32", "f32"},
    {"fp32", "f32"},
    {"float", "f32"},
    {"gpu", "cuda"},
    {"cuda:0", "cuda"},
    {"warmup_stable_decay", "wsd"},
    {"cosine_with_min_lr", "cosine"},
    {"constant_with_warmup", "constant"},
};

/* ---- looking up ---- */

static bool same_word(const char *a, const char *b)
{
    for (; *a != '\0' && (*a == '-' ? '_' : *a) == *b; a++)
        b++;
    return *a == '\0' && *b == '\0';
}

const lf_synonym *lf_synonym_find(const char *word, const char *const *names, size_t n)
{
    const lf_synonym *without = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!same_word(word, words[i].theirs))
            continue;
        if (words[i].ours == NULL)
            without = without != NULL ? without : &words[i];
        for (size_t k = 0; words[i].ours != NULL && k < n; k++)
            if (strcmp(names[k], words[i].ours) == 0)
                return &words[i];
    }
    return without;
}

const lf_synonym *lf_synonym_at(size_t i)
{
    return i < sizeof words / sizeof words[0] ? &words[i] : NULL;
}

static bool is_choice(const char *word, const char *choices)
{
    size_t n = strlen(word);
    for (const char *p = choices; p != NULL; p = strchr(p, '|'), p = p != NULL ? p + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    return false;
}

const char *lf_synonym_value(const char *value, const char *choices)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (strcmp(value, values[i][0]) == 0 && is_choice(values[i][1], choices))
            return values[i][1];
    return NULL;
}

void lf_synonym_hint(char *buf, size_t cap, const char *word, const char *const *names, size_t n)
{
    const lf_synonym *s = lf_synonym_find(word, names, n);
    const char *near = s == NULL ? lf_nearest(word, names, n) : NULL;
    buf[0] = '\0';
    if (near != NULL)
        snprintf(buf, cap, "; did you mean \"%s\"?", near);
    else if (s != NULL && s->ours == NULL)
        snprintf(buf, cap, "; %s", s->how);
    else if (s != NULL)
        snprintf(buf, cap, "; here it is \"%s\"%s%s%s", s->ours, s->how != NULL ? " (" : "",
                 s->how != NULL ? s->how : "", s->how != NULL ? ")" : "");
}
