"""Run by torchrun in two processes: train by schemes with DistributedDataParallel, and write down what happened."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import nfm
from nets import batch, build
from nfm.method.schemes import SCHEMES
from nfm.train.ranks import joined

STEPS = 4


class Net(nn.Module):
    """Without batch norm, whose running statistics each rank has for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh())
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).mean((2, 3)))


def gathered(values: Tensor) -> list[Tensor]:
    found = [torch.empty_like(values) for _ in range(2)]
    dist.all_gather(found, values)
    return found


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def train(name: str) -> dict[str, list]:
    net = build(Net)
    scheme = nfm.scheme(name, seed=1, **(SCHEMES[name].tested or {} if name in SCHEMES else {}))
    model = DistributedDataParallel(net)  # find_unused_parameters is False
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows: dict[str, list] = {"partner": [], "equal": [], "average": [], "loss": []}
    for step in range(STEPS):
        x, y = batch(6, 3, 8, 8, seed=0)  # the same on both ranks, so that only the draws can differ
        twin = copy.deepcopy(net)
        scheme(twin, x.sigmoid(), y, step=step).loss.backward()
        own = flat([parameter.grad for parameter in twin.parameters()])
        optimizer.zero_grad()
        outcome = scheme(model, x.sigmoid(), y, step=step)
        outcome.loss.backward()
        synchronised = flat([parameter.grad for parameter in net.parameters()])
        optimizer.step()
        first, second = gathered(flat(list(net.parameters())))
        expected = sum(gathered(own)) / 2
        rows["partner"].append(outcome.draw.partner.tolist())
        rows["loss"].append(float(outcome.loss.detach()))
        rows["equal"].append(torch.equal(first, second))
        rows["average"].append(float((synchronised - expected).abs().max() / expected.abs().max()))
    return rows


def main() -> None:
    torch.set_num_threads(1)
    with joined("cpu") as ranks:
        rows = {name: train(name) for name in sys.argv[2:]}
        Path(sys.argv[1], f"rank{ranks.rank}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
