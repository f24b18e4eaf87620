"""Mix and noise as one opaque operator, `nfm::mix_noise(x, numbers, key, ...)`.

Partner, weights and noise are derived from the key *inside* the operator. So a draw needs no shape, the
compiler sees one node, nothing but a few numbers is kept for the backward pass (which draws the
multiplicative noise again), and a recomputed forward repeats the first one to the bit.

The additive noise does not depend on x, and the relative level is held constant, so the map is affine in
x: its gradient is the transposed linear part, which is an operator too, and so is the gradient of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nfm.core.affine_operator import register_affine
from nfm.core.mixing import Pairing, mix, mix_transposed
from nfm.core.noise import draw_values, noise_shape, perturb
from nfm.core.receipts import RECEIPTS
from nfm.core.weights import sample_weights
from nfm.errors import ShapeError
from nfm.randomness import fold, torch_generator

# numbers: float64 [weight, alpha, beta, add, mult]; key: int64 [pairing key, noise key, serial]
_SETTINGS = (
    "bool per_sample, bool dominant, str add_law, str mult_law, "
    "str granularity, float sparsity, bool relative, int stream"
)
_HALF = (torch.float16, torch.bfloat16)


def pairing_of(key: int, size: int, numbers: Tensor, *, per_sample: bool, dominant: bool) -> Pairing:
    """Return the partners and weights of a batch of `size`, as the operator draws them."""
    weight, alpha, beta, _, _ = numbers.tolist()
    if alpha == 0:  # nothing is mixed: nothing is drawn
        return Pairing(torch.arange(size), torch.tensor(1.0, dtype=torch.float64))
    partner = torch.randperm(size, generator=torch_generator(fold(key, "partner")))
    if not per_sample:
        return Pairing(partner, torch.tensor(weight, dtype=torch.float64))
    return Pairing(
        partner, torch.from_numpy(sample_weights(alpha, beta, size, fold(key, "weight"), dominant=dominant))
    )


def noise_of(
    x: Tensor, numbers: Tensor, key: int, *, add_law: str, mult_law: str, granularity: str, sparsity: float
) -> Iterator[Tensor | None]:
    """Yield the additive and the multiplicative noise for `x`, levels included, None at level 0."""
    _, _, _, *levels = numbers.tolist()
    shape = noise_shape(tuple(x.shape), granularity)
    touched = None
    if sparsity and any(levels):
        touched = draw_values("uniform", shape, fold(key, "sparsity"), x.device).add_(1) >= 2 * sparsity
    for name, law, level in (("add", add_law, levels[0]), ("mult", mult_law, levels[1])):
        if not level:
            yield None
            continue
        values = draw_values(law, shape, fold(key, name), x.device).mul_(level)
        yield values if touched is None else values.mul_(touched)


def _unpack(key: Tensor, stream: int) -> tuple[int, int, int]:
    pairing_key, noise_key, serial = key.tolist()
    return pairing_key, fold(noise_key, stream), serial


def _same_layout(values: Tensor, like: Tensor) -> Tensor:
    """Return `values` in the dtype and memory format of `like`, never `like` itself."""
    return torch.empty_like(like).copy_(values)


def _forward(
    x: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, dominant: bool, add_law: str, mult_law: str,
    granularity: str, sparsity: float, relative: bool, stream: int,
) -> Tensor:  # fmt: skip
    pairing_key, noise_key, serial = _unpack(key, stream)
    if stream == 0:
        RECEIPTS.stamp(serial, x.shape)
    pairing = pairing_of(pairing_key, len(x), numbers, per_sample=per_sample, dominant=dominant)
    add, mult = noise_of(
        x, numbers, noise_key, add_law=add_law, mult_law=mult_law, granularity=granularity, sparsity=sparsity
    )
    h = x.float() if x.dtype in _HALF else x
    if relative and add is not None:
        add.mul_(h.std(correction=0).to(add.dtype))
    return _same_layout(perturb(mix(h, pairing), add=add, mult=mult), x)


def _transposed(
    g: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, dominant: bool, add_law: str, mult_law: str,
    granularity: str, sparsity: float, relative: bool, stream: int,
) -> Tensor:  # fmt: skip
    pairing_key, noise_key, _ = _unpack(key, stream)
    pairing = pairing_of(pairing_key, len(g), numbers, per_sample=per_sample, dominant=dominant)
    _, mult = noise_of(
        g, linear_part(numbers), noise_key,
        add_law=add_law, mult_law=mult_law, granularity=granularity, sparsity=sparsity,
    )  # fmt: skip
    h = g.float() if g.dtype in _HALF else g
    return _same_layout(mix_transposed(perturb(h, add=None, mult=mult), pairing), g)


def linear_part(numbers: Tensor) -> Tensor:
    """Return the numbers of the same draw without the additive noise."""
    return numbers * numbers.new_tensor([1, 1, 1, 0, 1])


mix_noise_op, mix_noise_transposed_op = register_affine(
    "mix_noise", _forward, _transposed, settings=_SETTINGS, linear_part=linear_part
)


def check_feature(x: Any, where: str) -> Tensor:
    """Return `x` if it can be mixed: a plain floating-point tensor."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"expected a tensor at {where}, got {type(x).__name__}")
    if not x.is_floating_point() or x.is_quantized or x.layout != torch.strided:
        raise ShapeError(
            f"expected a dense floating-point tensor at {where}, got {x.dtype}, {x.layout}; "
            "whole numbers cannot be mixed: choose a later site, such as the embedding"
        )
    return x
