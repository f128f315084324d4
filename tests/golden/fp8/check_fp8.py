# SPDX-License-Identifier: Apache-2.0
"""What lf-convert writes with quantize = fp8, read by transformers:

    check_fp8.py LF_CONVERT [DIR]

A small Llama goes in and out as 8-bit floats in blocks. transformers must accept the quantization_config, its modules for 8-bit floats
must have the tensors of the file by name, type and shape, and what it loads where there is no GPU, in bf16, must be each code times the
scale of its block. A development tool like make_fp8.py.
"""
import os
import subprocess
import sys
import tempfile

import torch
import transformers as tf
from safetensors.torch import load_file
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.quantizers.auto import AutoQuantizationConfig


def main(convert, top):
    tf.logging.set_verbosity_error()
    torch.manual_seed(3)
    config = tf.LlamaConfig(vocab_size=200, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    made, ckpt, out = (os.path.join(top, x) for x in ("made", "ckpt", "out"))
    tf.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(made)
    for args in (["--from", made, "--out", ckpt, "--verify", "none"],
                 ["--from", os.path.join(ckpt, "checkpoint"), "--out", out, "--to", "hf", "--quantize", "fp8"]):
        subprocess.run([convert] + args, check=True, stdout=subprocess.DEVNULL)
    folder = os.path.join(out, "model")
    file = load_file(os.path.join(folder, "model.safetensors"))
    c = tf.AutoConfig.from_pretrained(folder)
    q = AutoQuantizationConfig.from_dict(dict(c.quantization_config))
    with torch.device("meta"):
        model = tf.LlamaForCausalLM(config).to(torch.bfloat16)
    replace_with_fp8_linear(model, q.modules_to_not_convert, q, pre_quantized=True)
    wanted = {n: (t.dtype, tuple(t.shape)) for n, t in model.state_dict().items()}
    written = {n: (t.dtype, tuple(t.shape)) for n, t in file.items()}
    assert wanted == written, sorted(set(wanted.items()) ^ set(written.items()))
    loaded, info = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    plain, codes = load_file(os.path.join(made, "model.safetensors")), 0
    for name, t in loaded.state_dict().items():
        if name + "_scale_inv" not in file:
            assert torch.equal(t, plain[name]), name
            continue
        scale = file[name + "_scale_inv"].repeat_interleave(128, 0).repeat_interleave(128, 1)
        assert torch.equal(t, (file[name].float() * scale).to(torch.bfloat16)), name
        assert ((t.float() - plain[name].float()).abs() <= 448 * scale / 16).all(), name
        codes += 1
    print("transformers %s: %d matrices of 8-bit floats are as it expects and reads them" % (tf.__version__, codes))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as d:
            main(sys.argv[1], d)
