"""Run by torchrun in two processes: train with DistributedDataParallel and write down what each rank did."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import nfm
from nets import Mlp, batch, build
from nfm.train.ranks import joined

STEPS = 10


def gathered(values: Tensor) -> list[Tensor]:
    """Return the values of both ranks."""
    found = [torch.empty_like(values) for _ in range(2)]
    dist.all_gather(found, values)
    return found


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def local_gradients(state: dict[str, Tensor], x: Tensor, y: Tensor, step: int) -> Tensor:
    """Return this rank's own gradients of `step`, without DDP."""
    net = Mlp()
    net.load_state_dict(state)
    nfm.preset("nfm", sites=Mlp.sites, seed=1)(net, x, y, step=step).loss.backward()
    return flat([parameter.grad for parameter in net.parameters()])


def train(form: str) -> dict[str, list]:
    call = functools.partial(checkpoint, use_reentrant=False) if form == "checkpointed" else None
    net = build(lambda: Mlp(call=call))
    method = nfm.preset("nfm", sites=Mlp.sites, seed=1)
    mixer = None if form == "functional" else nfm.attach(net, method)
    model: nn.Module = DistributedDataParallel(net)  # find_unused_parameters is False
    if form == "compiled":
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    rows: dict[str, list] = {"site": [], "weight": [], "noise": [], "equal": [], "average": []}
    for step in range(STEPS):
        x, y = batch(6, 4, seed=100 * dist.get_rank() + step)
        own = local_gradients(net.state_dict(), x, y, step)
        optimizer.zero_grad()
        outcome = mixer.outcome(model(x), y) if mixer else method(model, x, y)
        outcome.loss.backward()
        synchronised = flat([parameter.grad for parameter in net.parameters()])
        optimizer.step()
        first, second = gathered(flat(list(net.parameters())))
        expected = sum(gathered(own)) / 2
        noise = outcome.draw.choice.again().apply(torch.zeros(6, 3))
        rows["site"].append(outcome.draw.site)
        rows["weight"].append(float(outcome.draw.weight))
        rows["noise"].append(noise[0].tolist())
        rows["equal"].append(torch.equal(first, second))
        rows["average"].append(float((synchronised - expected).abs().max() / expected.abs().max()))
    if mixer:
        mixer.detach()
    return rows


def main() -> None:
    torch.set_num_threads(1)
    with joined("cpu") as ranks:
        rows = {form: train(form) for form in sys.argv[2:]}
        Path(sys.argv[1], f"rank{ranks.rank}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
