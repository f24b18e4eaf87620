"""Mix and noise for the compiler to fuse: on other devices than the CPU, under ``torch.compile``.

Partners and weights are those of the key, from a small operator; the rest is the equation in plain tensor
operations, which the compiler makes one kernel of. The noise follows the same laws, from the compiler's own generator:
other bits, seeded by the device's global generator, and the compiler decides what it keeps for the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.core.arguments import Arguments
from nfm.core.noise import Noise
from nfm.core.operator import pairing_of, wide


def _pairs(
    numbers: Tensor, key: Tensor, shape: list[int], per_sample: bool, dominant: bool, stream: int
) -> tuple[Tensor, Tensor]:
    arguments = Arguments.of_tensors(numbers, key)
    if stream == 0:
        arguments.receipt.stamp(shape)
    pairing = pairing_of(arguments, shape[0], per_sample=per_sample, dominant=dominant)
    return pairing.partner.clone(), pairing.weight.to(torch.float32).expand(shape[0]).clone()


_pairs_op = torch.library.custom_op(
    "nfm::pairs", _pairs, mutates_args=(),
    schema="(Tensor numbers, Tensor key, SymInt[] shape, bool per_sample, bool dominant, int stream) "
    "-> (Tensor, Tensor)",
)  # fmt: skip


@_pairs_op.register_fake
def _(numbers: Tensor, key: Tensor, shape: list[int], *_: object) -> tuple[Tensor, Tensor]:
    return key.new_empty(shape[0]), numbers.new_empty(shape[0], dtype=torch.float32)


def mix_noise(
    x: Tensor, numbers: Tensor, key: Tensor, noise: Noise, *, per_sample: bool, dominant: bool, stream: int
) -> Tensor:
    """Return `x` mixed and perturbed, differentiable by the compiler."""
    partner, own = _pairs_op(numbers, key, list(x.shape), per_sample, dominant, stream)
    h, own = wide(x), own.to(x.device).reshape(-1, *[1] * (x.ndim - 1))
    mixed = own * h + (1 - own) * h[partner.to(x.device)]
    return perturb(mixed, numbers.to(x.device, torch.float32), noise, deviation_of=h).to(x.dtype)


def perturb(h: Tensor, numbers: Tensor, noise: Noise, *, deviation_of: Tensor) -> Tensor:
    """Return (1 + mult) * h + add, the levels from `numbers`; a noise that is silent by its settings is not drawn."""
    _, _, _, add, mult = numbers.unbind()
    kept = {"element": h.ndim, "channel": 2, "sample": 1}[noise.granularity]
    shape = [size if axis < kept else 1 for axis, size in enumerate(h.shape)]
    touched = _uniform(shape, h) + 1 >= 2 * noise.sparsity if noise.sparsity else 1
    if noise.mult:
        h = h * (1 + mult * _DRAWS[noise.mult_law](shape, h) * touched)
    if noise.add:
        scale = deviation_of.detach().std(correction=0) if noise.relative else 1
        h = h + add * _DRAWS[noise.add_law](shape, h) * touched * scale
    return h


def _gaussian(shape: list[int], like: Tensor) -> Tensor:
    return torch.randn(shape, device=like.device, dtype=torch.float32)


def _uniform(shape: list[int], like: Tensor) -> Tensor:
    return 2 * torch.rand(shape, device=like.device, dtype=torch.float32) - 1


def _rademacher(shape: list[int], like: Tensor) -> Tensor:
    return torch.where(_uniform(shape, like) < 0, -1.0, 1.0)


_DRAWS = {"gaussian": _gaussian, "uniform": _uniform, "rademacher": _rademacher}
