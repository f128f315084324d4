# SPDX-License-Identifier: Apache-2.0
"""Expected values of training with the load-balancing loss: transformers' Mixtral of ../families/mixtral in f64, loss = mean NLL +
coefficient * load_balancing_loss_func over all layers of the batch. Writes aux.safetensors beside this file:

    nll, aux f64 [1]; grad.<name> f32 for every tensor. __metadata__: coefficient (of the loss), rows

    python3 make_aux.py
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
FAMILY = HERE.parent / "families" / "mixtral"
COEFFICIENT = 0.5  # so that the term shows in every router's gradient


def main():
    torch.set_num_threads(1)
    config = transformers.MixtralConfig(**json.loads((FAMILY / "config.json").read_text()))
    config.output_router_logits = True
    config.router_aux_loss_coef = COEFFICIENT
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(FAMILY, config=config, torch_dtype=torch.float64).double()
    ids = load_file(FAMILY / "expected.safetensors")["input_ids"]
    model.train()
    out = model(input_ids=ids, output_router_logits=True)
    logp = torch.log_softmax(out.logits[:, :-1].double(), -1)
    nll = -logp.gather(-1, ids[:, 1:, None]).mean()
    (nll + COEFFICIENT * out.aux_loss).backward()
    tensors = {"nll": nll.detach().reshape(1), "aux": out.aux_loss.detach().double().reshape(1)}
    tensors |= {"grad." + n: p.grad.float().contiguous() for n, p in model.named_parameters()}
    save_file(tensors, HERE / "aux.safetensors",
              metadata={"coefficient": str(COEFFICIENT), "source": "transformers " + transformers.__version__})
    print("nll", float(nll), "aux", float(out.aux_loss), {n: tuple(t.shape) for n, t in tensors.items()})


main()
