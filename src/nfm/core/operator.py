"""Mix and noise as one opaque operator, `nfm::mix_noise(x, numbers, key, ...)`.

Partner, weights and noise are derived from the key *inside* the operator. So a draw needs no shape, the
compiler sees one node, nothing but a few numbers is kept for the backward pass (which draws the
multiplicative noise again), and a recomputed forward repeats the first one to the bit.

The additive noise does not depend on x, and the relative level is held constant, so the map is affine in
x: its gradient is the transposed linear part, which is an operator too, and so is the gradient of that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nfm.core.mixing import Pairing, mix, mix_transposed
from nfm.core.noise import draw_values, noise_shape, perturb
from nfm.core.weights import sample_weights
from nfm.errors import ShapeError
from nfm.randomness import fold, torch_generator

# numbers: float64 [weight, alpha, beta, add, mult]; key: int64 [pairing key, noise key, serial]
_SETTINGS = (
    "bool per_sample, bool dominant, str add_law, str mult_law, "
    "str granularity, float sparsity, bool relative, int stream"
)
_HALF = (torch.float16, torch.bfloat16)


class Receipts:
    """How often the operator ran for each serial number; what a draw is worth if it met no forward pass."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def open(self, serial: int) -> None:
        with self._lock:
            self._counts[serial] = 0

    def close(self, serial: int) -> None:
        with self._lock:
            self._counts.pop(serial, None)

    def count(self, serial: int) -> int:
        return self._counts.get(serial, 0)

    def stamp(self, serial: int) -> None:
        with self._lock:
            if serial in self._counts:
                self._counts[serial] += 1


RECEIPTS = Receipts()


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
        RECEIPTS.stamp(serial)
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


mix_noise_op = torch.library.custom_op(
    "nfm::mix_noise", _forward, mutates_args=(),
    schema=f"(Tensor x, Tensor numbers, Tensor key, {_SETTINGS}) -> Tensor",
)  # fmt: skip
mix_noise_transposed_op = torch.library.custom_op(
    "nfm::mix_noise_transposed", _transposed, mutates_args=(),
    schema=f"(Tensor g, Tensor numbers, Tensor key, {_SETTINGS}) -> Tensor",
)  # fmt: skip


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, numbers, key, *ctx.settings = inputs
    ctx.save_for_backward(numbers, key)


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    numbers, key = ctx.saved_tensors
    return mix_noise_transposed_op(g, numbers, key, *ctx.settings), *[None] * (2 + len(ctx.settings))


def _backward_transposed(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    numbers, key = ctx.saved_tensors
    pairing_key, noise_key, _ = key.unbind()
    unstamped = torch.stack([pairing_key, noise_key, torch.full_like(pairing_key, -1)])
    return mix_noise_op(g, linear_part(numbers), unstamped, *ctx.settings), *[None] * (2 + len(ctx.settings))


for _operator, _gradient in ((mix_noise_op, _backward), (mix_noise_transposed_op, _backward_transposed)):
    _operator.register_fake(_like_first)
    _operator.register_autograd(_gradient, setup_context=_keep)


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
