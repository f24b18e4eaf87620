"""Tiny networks with named stages, and batches, all with keyed values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


def build(make: Callable[[], Net], seed: int = 0) -> Net:
    """Return `make()` with weights of `seed`, leaving the global generator where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def batch(size: int, *shape: int, classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32):
    """Return keyed examples [size, *shape] and labels [size]."""
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(size, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, classes, (size,), generator=generator)


def block(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh())


class Mlp(nn.Module):
    """stem, first, second, head; `call` runs a block and may checkpoint it."""

    sites = ("input", "stem", "first", "second")

    def __init__(self, width: int = 8, call: Callable[[nn.Module, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(4, width), block(width), block(width)
        self.head = nn.Linear(width, 3)
        self.call = call or (lambda module, h: module(h))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for module in (self.first, self.second):
            h = self.call(module, h)
        return self.head(h)


class ConvNet(nn.Module):
    """Two convolutional stages with batch normalisation."""

    sites = ("input", "first", "second")

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x)).mean((2, 3)))


class Residual(nn.Module):
    """x + inner(x): what stands in the branch does not carry everything."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.inner(x))


class ResidualNet(nn.Module):
    """stem, a chain of residual blocks, head."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.Sequential(*[Residual() for _ in range(blocks)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class RootResidualNet(nn.Module):
    """A residual at root level: the chain of blocks stands in its branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.first, self.second = block(8), block(8)
        self.after = block(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.second(self.first(h))
        return self.head(self.after(h))


class Pair(NamedTuple):
    feature: Tensor
    extra: Tensor


@dataclasses.dataclass
class Record:
    feature: Tensor
    extra: Tensor
    note: str = "kept"


STRUCTURES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda h, extra: (h, extra),
    "list": lambda h, extra: [h, extra],
    "dict": lambda h, extra: {"feature": h, "extra": extra},
    "namedtuple": Pair,
    "dataclass": Record,
}


def first_part(structure: Any) -> Tensor:
    """Return the feature of any of STRUCTURES."""
    if isinstance(structure, dict):
        return structure["feature"]
    return structure.feature if isinstance(structure, Record) else structure[0]


class Structured(nn.Module):
    """Returns its feature inside a structure, beside another tensor of the batch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(4, 8), kind

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.linear(x))
        return STRUCTURES[self.kind](h, h.sum(1, keepdim=True))


class StructuredNet(nn.Module):
    """A network whose encoder returns a structure."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.encoder, self.head = Structured(kind), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(first_part(self.encoder(x)))


class TwoInputs(nn.Module):
    """Takes two floating-point tensors and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 8), nn.Linear(2, 8), nn.Linear(8, 3)

    def forward(self, image: Tensor, depth: Tensor, mask: Tensor | None = None) -> Tensor:
        h = torch.tanh(self.left(image) + self.right(depth))
        return self.head(h if mask is None else h * mask[:, None])


class Tokens(nn.Module):
    """An embedding, a transformer encoder, a head: whole numbers come in."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens), src_key_padding_mask=padding).mean(1))


class Recurrent(nn.Module):
    """A recurrent network; time-first if asked."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, *, time_first: bool = False) -> None:
        super().__init__()
        self.rnn = kind(4, 8, batch_first=not time_first)
        self.head, self.time_first = nn.Linear(8, 3), time_first

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x.transpose(0, 1) if self.time_first else x)
        return self.head(states[-1] if self.time_first else states[:, -1])


def run_by_hand(net: Mlp, x: Tensor, draw: Any) -> Tensor:
    """Return the output of `net` with `draw` applied at its site, without any hook."""
    h, mixed = x, draw.choice.again()
    for name, stage in (("input", nn.Identity()), *((name, getattr(net, name)) for name in Mlp.sites[1:])):
        h = stage(h)
        if name == draw.site:
            h = mixed.apply(h)
    return net.head(h)
