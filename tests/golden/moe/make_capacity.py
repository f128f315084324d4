# SPDX-License-Identifier: Apache-2.0
"""Expected values of training with a capacity of experts: transformers' Mixtral of ../families/mixtral in f64, where an expert takes the
first ceil(capacity_factor * rows * k / experts) of its pairs in the order of the rows of the batch (rows, then slots), as the routers of
GShard and Switch Transformer do; weights of the others are zero. The loss is that of make_aux.py, whose balance counts what is dropped, too.
Writes capacity.safetensors beside this file:

    nll, aux f64 [1]; grad.<name> f32 for every tensor. __metadata__: coefficient (of the loss), capacity_factor, dropped (share of pairs)

    python3 make_capacity.py
"""
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
FAMILY = HERE.parent / "families" / "mixtral"
COEFFICIENT = 0.5
FACTOR = 0.8  # 9.6 of 12 rows, so that rounding up shows
dropped = []


def keep(ids, experts):
    """1 for the pairs that their experts take."""
    rows, k = ids.shape
    most, seen, kept = math.ceil(FACTOR * rows * k / experts), [0] * experts, torch.zeros(rows, k, dtype=torch.float64)
    for r in range(rows):
        for j in range(k):
            e = int(ids[r, j])
            kept[r, j] = seen[e] < most
            seen[e] += 1
    return kept


def main():
    torch.set_num_threads(1)
    config = transformers.MixtralConfig(**json.loads((FAMILY / "config.json").read_text()))
    config.output_router_logits = True
    config.router_aux_loss_coef = COEFFICIENT
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(FAMILY, config=config, torch_dtype=torch.float64).double()

    def drop(_, __, out):
        kept = keep(out[2], config.num_local_experts)
        dropped.append(1 - float(kept.mean()))
        return out[0], out[1] * kept, out[2]

    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(drop)
    ids = load_file(FAMILY / "expected.safetensors")["input_ids"]
    model.train()
    out = model(input_ids=ids, output_router_logits=True)
    logp = torch.log_softmax(out.logits[:, :-1].double(), -1)
    nll = -logp.gather(-1, ids[:, 1:, None]).mean()
    (nll + COEFFICIENT * out.aux_loss).backward()
    share = sum(dropped) / len(dropped)
    tensors = {"nll": nll.detach().reshape(1), "aux": out.aux_loss.detach().double().reshape(1)}
    tensors |= {"grad." + n: p.grad.float().contiguous() for n, p in model.named_parameters()}
    save_file(tensors, HERE / "capacity.safetensors",
              metadata={"coefficient": str(COEFFICIENT), "capacity_factor": str(FACTOR), "dropped": repr(share),
                        "source": "transformers " + transformers.__version__})
    print("nll", float(nll), "aux", float(out.aux_loss), "dropped", dropped)


main()
