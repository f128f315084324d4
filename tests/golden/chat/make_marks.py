#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make marks.json: ids and assistant_masks of transformers for templates with {% generation %} in unusual places.

A development tool (needs transformers, tokenizers). "lower": the tokenizer has the normalizer Lowercase besides, so that
the tokens do not spell the text. Not asked for is what transformers does with a block that ends in the first token of all
(it marks everything) or with a character of several tokens (it marks the first of these only).
"""
import json
import os

from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
GEN, END = "{% generation %}", "{% endgeneration %}"
TEMPLATES = {
    "bare": "<s>{% for m in messages %}{% if m.role == 'assistant' %}" + GEN + "{{ m.content }}" + END + "{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "words": "{% for m in messages %}{% if m.role == 'assistant' %}Assistant:" + GEN + " {{ m.content }}" + END + "\n{% else %}User: {{ m.content }}\n{% endif %}{% endfor %}",
    "newline": "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}" + GEN + "{{ m.content }}\n" + END + "\n{% else %}{{ m.content }}\n{% endif %}{% endfor %}",
    "two": "{% for m in messages %}{% if m.role == 'assistant' %}" + GEN + "{{ m.reasoning_content }}" + END + "|" + GEN + "{{ m.content }}" + END
           + "</s>{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
    "last": "{% for m in messages %}{% if m.role == 'assistant' and loop.last %}" + GEN + "{{ m.content }}</s>" + END + "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
    "all": "<s>" + GEN + "{% for m in messages %}{{ m.content }}</s>{% endfor %}" + END,
    "users": "<s>{% for m in messages %}" + GEN + "{{ m.content }}" + END + "</s>{% endfor %}",
}


def user(text):
    return {"role": "user", "content": text}


def says(text, thought=""):
    return {"role": "assistant", "content": text, "reasoning_content": thought}


CONVERSATIONS = {
    "plain": [user("What is the capital of France?"), says("Paris is the capital.", "France"), user("And of Germany?"), says("Berlin", "Germany")],
    "seams": [user("the hel"), says("lo world the"), user("re is"), says("n't any ")],
    "lines": [user("a\n"), says("\n\nb"), user("\nc\n\n"), says("d\n")],
    "empty": [user("a"), says(""), user("b"), says("c", "d")],
    "capitals": [user("HELLO"), says("THE World"), user("Is IT"), says("NOT the ONE")],
    "code": [user("loop"), says("for (int i = 0; i < 3; i++)\n\tputs();"), user("  x  "), says("  y  z")],
    "other": [user("\u4eba\u751f!"), says("\u800c\u81ea\u7531 a"), user("\u00e9."), says("\u00df\u00e9 ok")],
}


def main():
    cases = []
    for lower in (False, True):
        t = Tokenizer.from_file(os.path.join(HERE, "tokenizer.json"))
        if lower:
            t.normalizer = normalizers.Lowercase()
        tok = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="</s>")
        for name, template in TEMPLATES.items():
            for conv, messages in CONVERSATIONS.items():
                out = tok.apply_chat_template(messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
                cases.append({"template": name, "conversation": conv, "lower": lower, "ids": out["input_ids"],
                              "mask": "".join(map(str, out["assistant_masks"]))})
    with open(os.path.join(HERE, "marks.json"), "w") as f:
        json.dump({"templates": TEMPLATES, "conversations": {k: {"messages": v} for k, v in CONVERSATIONS.items()}, "cases": cases}, f, separators=(",", ":"))
        f.write("\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
