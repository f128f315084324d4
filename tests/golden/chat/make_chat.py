#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tokenizer.json and chat.json: conversations as transformers' apply_chat_template makes ids of them, and which of
these are the assistant's.

A development tool (needs transformers, tokenizers); nothing at build, run or `make check` time needs it.

The templates are those of ../jinja/templates. A case has {"family", "conversation", "last"} and either
  "text", "ids"     rendered without generation prompt, tokenized in one piece with add_special_tokens=False
  "prompt"          ids of the turns before the last assistant turn with generation prompt (absent: there is none)
  "mask"            "0011..": computed below from prefixes, by string and list comparison alone, or
  "fault"           "non_prefix" or "no_target" instead of it
  "marked"          assistant_masks of transformers, for templates with {% generation %}
or "error": true, where the template raises.
"""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATES = os.path.join(HERE, "..", "jinja", "templates")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

# family: template, special tokens named in tokenizer_config.json, variables
FAMILIES = {
    "qwen2.5": ("chatml", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, {}),
    "qwen3": ("thinking", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, {}),
    "qwen3-quiet": ("thinking", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, {"enable_thinking": False}),
    "llama3": ("llama3", {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, {}),
    "gemma": ("gemma", {"bos_token": "<bos>", "eos_token": "<end_of_turn>", "pad_token": "<pad>"}, {}),
    "mistral": ("mistral", {"bos_token": "<s>", "eos_token": "</s>"}, {}),
    "phi3": ("phi3", {"bos_token": "<s>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}, {}),
    "deepseek": ("deepseek", {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}, {}),
    "harmony": ("harmony", {"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"},
                {"reasoning_effort": "high"}),
    "alpaca": ("alpaca", {"eos_token": "</s>", "pad_token": "</s>"}, {}),
}
SPECIALS = ["<pad>", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
            "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>",
            "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>", "<｜tool▁outputs▁end｜>", "<|startoftext|>", "<|start|>", "<|channel|>", "<|message|>",
            "<|call|>", "<|return|>", "<|constrain|>"]

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "How the \"weather\" will be",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Which city"},
                                                    "days": {"type": "integer"}}, "required": ["city"]}}}]
CALL = [{"type": "function", "id": "abc123def", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}]


def user(text):
    return {"role": "user", "content": text}


def says(text, **more):
    return {"role": "assistant", "content": text, **more}


CONVERSATIONS = {
    "one": {"messages": [user("What is the capital of France?"), says("Paris.")]},
    "system": {"messages": [{"role": "system", "content": "Answer in one word."}, user("2 + 2?"), says("4")]},
    "long": {"messages": [{"role": "system", "content": "Be kind.\n\nAnd brief."}, user("Hello!"), says("Hello. What can I do?"),
                          user("Count to three."), says("1, 2, 3"), user("And back?\n"), says("3, 2, 1")]},
    "no_system": {"messages": [user("a"), says("b"), user("c"), says("d")]},
    "unicode": {"messages": [user("Übersetze: 世界 🌍\u200d!"), says("Die Welt 🙂 — «so» naïve"), user("ﬁ \u00a0 \t?"), says("Ω≈ç√ 한국어")]},
    "empty": {"messages": [user(""), says("")]},
    "spaces": {"messages": [user("  leading and trailing  \n"), says(" kept?  ")]},
    "code": {"messages": [user("Write a loop."), says("```c\nfor (int i = 0; i < 3; i++)\n\tputs(\"{{ i }}\");\n```\n")]},
    "special": {"messages": [user("What does <|im_end|> or </s> mean?"), says("It ends a turn.")]},
    "open": {"messages": [user("a"), says("b"), user("and now?")]},
    "question": {"messages": [user("alone")]},
    "tools": {"messages": [user("Weather in Köln?"), says("", tool_calls=CALL), {"role": "tool", "content": "{\"t\": 12}", "name": "weather", "tool_call_id": "abc123def"},
                           says("12 degrees.")], "tools": TOOLS},
    "unused_tools": {"messages": [user("Hi"), says("Hi!")], "tools": TOOLS},
    "thinks": {"messages": [user("3 * 4?"), says("12", reasoning_content="3 * 4 is 12."), user("* 2?"), says("24", reasoning_content="12 * 2")]},
    "thinks_last": {"messages": [user("3 * 4?"), says("<think>\nThat is easy.\n</think>\n\n12")]},
    "nulls": {"messages": [{"role": "user", "content": "q", "name": None}, says("a", tool_calls=None, reasoning_content=None)]},
    "two_users": {"messages": [user("a"), user("b"), says("c")]},
    "greeting": {"messages": [says("Welcome!"), user("Thanks"), says("Well then")]},
    "not_all": {"messages": [user("a"), says("not this", train=False), user("b"), says("this")]},
}


def train_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=720, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    texts = [m["content"] for c in CONVERSATIONS.values() for m in c["messages"]] * 3
    texts += [open(os.path.join(TEMPLATES, t + ".jinja"), encoding="utf-8").read() for t, _, _ in FAMILIES.values()]
    tok.train_from_iterator(texts, trainer)
    tok.save(os.path.join(HERE, "tokenizer.json"), pretty=False)


def is_answer(m):
    return m["role"] == "assistant"


def render(tok, template, messages, tools, variables, prompt):
    if not messages:  # transformers refuses it; the definition wants what stands in front of a first answer
        from transformers.utils.chat_template_utils import render_jinja_template
        return render_jinja_template([[]], tools=tools, chat_template=template, add_generation_prompt=prompt,
                                     **tok.special_tokens_map, **variables)[0][0]
    return tok.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False, add_generation_prompt=prompt,
                                   **variables)


def ids_of(tok, text):
    return tok(text, add_special_tokens=False)["input_ids"]


def prefix_mask(tok, template, messages, tools, variables, last_only):
    whole = render(tok, template, messages, tools, variables, False)
    ids = ids_of(tok, whole)
    mask = [0] * len(ids)
    answers = [i for i, m in enumerate(messages) if is_answer(m)]
    some = False
    for i in answers:
        if messages[i].get("train") is False or (last_only and i != answers[-1]):
            continue
        before = render(tok, template, messages[:i], tools, variables, True)
        after = render(tok, template, messages[:i + 1], tools, variables, False)
        eos = tok.special_tokens_map.get("eos_token", "")
        if not whole.startswith(after) and eos and after.endswith(eos):
            after = after[:-len(eos)]
        a, b = ids_of(tok, before), ids_of(tok, after)
        if not (whole.startswith(before) and whole.startswith(after) and ids[:len(a)] == a and ids[:len(b)] == b and len(a) <= len(b)):
            return "non_prefix", None
        mask[len(a):len(b)] = [1] * (len(b) - len(a))
        some = some or len(b) > len(a)
    if not some:
        return "no_target", None
    mask[0] = 0
    return None, "".join(map(str, mask))


def make(tok, template, family, name, conversation, variables, last):
    messages, tools = conversation["messages"], conversation.get("tools")
    case = {"family": family, "conversation": name, "last": last}
    try:
        case["text"] = render(tok, template, messages, tools, variables, False)
        case["ids"] = ids_of(tok, case["text"])
        same = tok.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=True, return_dict=True, **variables)["input_ids"]
        assert same == case["ids"]
        answers = [i for i, m in enumerate(messages) if is_answer(m)]
        fault, mask = prefix_mask(tok, template, messages, tools, variables, last)
        case["fault" if fault else "mask"] = fault or mask
        if "{% generation %}" in template and not last:
            marked = tok.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True, **variables)["assistant_masks"]
            case["marked"] = "".join(map(str, marked))
        if answers and answers[-1] > 0:
            case["prompt"] = ids_of(tok, render(tok, template, messages[:answers[-1]], tools, variables, True))
    except Exception as e:  # whatever Python says, the template failed
        print(family, name, type(e).__name__, str(e)[:100])
        return {"family": family, "conversation": name, "last": last, "error": True}
    return case


def main():
    train_tokenizer()
    out = {"families": {}, "conversations": CONVERSATIONS, "cases": []}
    for family, (template_name, tokens, variables) in FAMILIES.items():
        template = open(os.path.join(TEMPLATES, template_name + ".jinja"), encoding="utf-8").read()
        tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, "tokenizer.json"), **tokens)
        if "strftime_now" in template:
            template = template.replace("strftime_now(\"%Y-%m-%d\")", "'2023-11-14'")
        out["families"][family] = {"template": template_name, "tokens": tokens, "vars": variables}
        for name, conversation in CONVERSATIONS.items():
            for last in (False, True):
                out["cases"].append(make(tok, template, family, name, conversation, variables, last))
    with open(os.path.join(HERE, "chat.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    print(len(out["cases"]), "cases", sum("mask" in c for c in out["cases"]), "masks")


main()
