"""Mix and noise as one opaque operator, `nfm::mix_noise(x, numbers, key, ...)`.

Partner, weights and noise are derived from the key *inside* the operator. So a draw needs no shape, the
compiler sees one node, nothing but a few numbers is kept for the backward pass (which draws the
multiplicative noise again), and a recomputed forward repeats the first one to the bit.

The additive noise does not depend on x, and the relative level is held constant, so the map is affine in
x: its gradient is the transposed linear part, which is an operator too, and so is the gradient of that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nfm.core import blockwise, compiled, kept, whole
from nfm.core.affine_operator import register_affine
from nfm.core.arguments import Arguments, Numbers
from nfm.core.kernel import kernel_in_use
from nfm.core.lasting import remembered
from nfm.core.mixing import Pairing, mix, mix_transposed
from nfm.core.noise import perturb
from nfm.core.noise_plan import NoisePlan, silent_plan
from nfm.core.onlookers import in_a_mode
from nfm.core.pages import fresh_like
from nfm.core.streams import (
    draw_source,
    drawn_at_once,
    factors_of,
    noises_of,
    whole_factors_of,
    whole_noises_of,
)
from nfm.core.weights import sample_weights
from nfm.errors import ShapeError
from nfm.randomness import fold, passing_torch_generator

# numbers: float64 [weight, alpha, beta, add, mult]; key: int64 [pairing key, noise key, serial]
_SETTINGS = (
    "bool per_sample, bool dominant, str add_law, str mult_law, "
    "str granularity, float sparsity, bool relative, int stream"
)


MANY = 4096  # examples: the pairings of a bigger batch are not remembered for long
REMEMBERED = 64  # pairings of smaller ones: four methods draw 16 steps ahead


@remembered(4)
def unmixed(size: int) -> Pairing:
    """Return the pairing of a batch of `size` in which every example stays as it is."""
    return Pairing(torch.arange(size, device="cpu"), 1.0)


def drawn_pairing(
    key: int, size: int, weight: float, alpha: float, beta: float, *, per_sample: bool, dominant: bool
) -> Pairing:
    """Return the partners and weights of a batch of `size`.

    They are remembered: a step asks three times, in the operator, in its gradient and for the loss.
    """
    draw = _pairing_of_few if size <= MANY else _pairing_of_many
    return draw(key, size, weight, alpha, beta, per_sample, dominant)


def pairing_of(arguments: Arguments, size: int, *, per_sample: bool, dominant: bool) -> Pairing:
    """Return the partners and weights that the arguments mean for a batch of `size`."""
    drawn = arguments.drawn
    if drawn is not None and drawn.size == size and not in_a_mode():
        return drawn
    return drawn_pairing(
        arguments.keys.pairing, size, *arguments.numbers[:3], per_sample=per_sample, dominant=dominant
    )


def _pairing(
    key: int, size: int, weight: float, alpha: float, beta: float, per_sample: bool, dominant: bool
) -> Pairing:
    if alpha == 0:  # nothing is mixed: nothing is drawn
        return unmixed(size)
    partner = torch.randperm(size, generator=passing_torch_generator(fold(key, "partner")), device="cpu")
    if not per_sample:
        return Pairing(partner, weight)
    return Pairing(
        partner, torch.from_numpy(sample_weights(alpha, beta, size, fold(key, "weight"), dominant=dominant))
    )


_pairing_of_few, _pairing_of_many = remembered(REMEMBERED)(_pairing), remembered(4)(_pairing)


def plan_of(
    numbers: Numbers, key: int, *, add_law: str, mult_law: str, granularity: str, sparsity: float
) -> NoisePlan:
    """Return the noises of `key` at the levels of `numbers`, not drawn yet."""
    return NoisePlan.of(
        key, numbers[3:], add_law=add_law, mult_law=mult_law, granularity=granularity, sparsity=sparsity
    )


def noise_of(
    x: Tensor, numbers: Numbers, key: int, *, add_law: str, mult_law: str, granularity: str, sparsity: float
) -> tuple[Tensor | None, Tensor | None]:
    """Return the additive and the multiplicative noise for `x`, levels included, None at level 0."""
    return _drawn(
        x,
        plan_of(numbers, key, add_law=add_law, mult_law=mult_law, granularity=granularity, sparsity=sparsity),
    )


def _drawn(x: Tensor, plan: NoisePlan) -> tuple[Tensor | None, Tensor | None]:
    shape = plan.shape(tuple(x.shape))
    return plan.draw(lambda source: draw_source(source, shape, x.device))


def mix_noise(x: Tensor, pairing: Pairing, plan: NoisePlan) -> Tensor:
    """Return `x` mixed and perturbed, as the equations say it: for other devices, and the oracle of the fast ways."""
    add, mult = _drawn(x, plan)
    return _same_layout(perturb(mix(wide(x), pairing), add=add, mult=mult), x)


def mix_noise_transposed(g: Tensor, pairing: Pairing, plan: NoisePlan) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output of `mix_noise`."""
    _, mult = _drawn(g, plan.linear_part())
    return _same_layout(mix_transposed(perturb(wide(g), add=None, mult=mult), pairing), g)


def wide(x: Tensor) -> Tensor:
    """Return `x` in the dtype in which it is added up."""
    return x.float() if x.dtype in blockwise.HALF else x


def _same_layout(values: Tensor, like: Tensor) -> Tensor:
    """Return `values` in the dtype and memory format of `like`, never `like` itself."""
    return torch.empty_like(like).copy_(values)


def deviation(x: Tensor) -> float:
    """Return the standard deviation over all elements; rows first, so that threads do not change its bits."""
    rows = wide(x) if x.ndim > 1 else wide(x)[None]
    variance, mean = torch.var_mean(rows, dim=tuple(range(1, rows.ndim)), correction=0)
    return float((variance.double().mean() + mean.double().var(correction=0)).sqrt())


def _plan(
    arguments: Arguments, stream: int, add_law: str, mult_law: str, granularity: str, sparsity: float
) -> NoisePlan:
    """Return the noises that the operator's arguments mean."""
    if not any(arguments.numbers[3:]):
        return silent_plan(granularity)
    return plan_of(
        arguments.numbers, fold(arguments.keys.noise, stream),
        add_law=add_law, mult_law=mult_law, granularity=granularity, sparsity=sparsity,
    )  # fmt: skip


def _forward(
    x: Tensor, arguments: Arguments, per_sample: bool, dominant: bool, add_law: str, mult_law: str,
    granularity: str, sparsity: float, relative: bool, stream: int,
) -> Tensor:  # fmt: skip
    if stream == 0:
        arguments.receipt.stamp(x.shape)
    pairing = pairing_of(arguments, x.shape[0], per_sample=per_sample, dominant=dominant)
    plan = _plan(arguments, stream, add_law, mult_law, granularity, sparsity)
    if relative and plan.add is not None:
        plan = replace(plan, scale=deviation(x))
    if not x.is_cpu:
        return mix_noise(x, pairing, plan)
    if kernel_in_use() == "c" and compiled.carries(x, plan):
        return compiled.mix_noise(x, pairing, plan)
    shape = tuple(x.shape)
    try:
        if drawn_at_once(plan, shape):
            return whole.mix_noise(wide(x), pairing, *whole_noises_of(plan, shape)).to(x.dtype)
        return blockwise.mix_noise(x, pairing, noises_of(plan, shape))
    except BaseException:
        kept.forget()
        raise


def _transposed(
    g: Tensor, arguments: Arguments, per_sample: bool, dominant: bool, add_law: str, mult_law: str,
    granularity: str, sparsity: float, relative: bool, stream: int,
) -> Tensor:  # fmt: skip
    pairing = pairing_of(arguments, g.shape[0], per_sample=per_sample, dominant=dominant)
    plan = _plan(arguments, stream, add_law, mult_law, granularity, sparsity)
    if not g.is_cpu:
        return mix_noise_transposed(g, pairing, plan)
    if 0 in g.stride():  # behind a sum or a mean, one number stands for many elements
        g = fresh_like(g).copy_(g)
    if kernel_in_use() == "c" and compiled.carries(g, plan):
        return compiled.mix_noise_transposed(g, pairing, plan)
    shape = tuple(g.shape)
    if drawn_at_once(plan, shape):
        with whole_factors_of(plan, shape) as factor:
            return whole.mix_noise_transposed(wide(g), pairing, factor).to(g.dtype)
    with factors_of(plan, shape) as factors:
        return blockwise.mix_noise_transposed(g, pairing, factors)


def linear_part(numbers: Tensor) -> Tensor:
    """Return the numbers of the same draw without the additive noise."""
    return numbers * numbers.new_tensor([1, 1, 1, 0, 1])


mix_noise_op, mix_noise_transposed_op, run_mix_noise = register_affine(
    "mix_noise", _forward, _transposed, settings=_SETTINGS, linear_part=linear_part
)


def check_feature(x: Any, site: str) -> Tensor:
    """Return `x` if it can be mixed at `site`: a plain floating-point tensor."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"expected a tensor at site {site!r}, got {type(x).__name__}")
    if not x.is_floating_point() or x.is_quantized or x.layout != torch.strided:
        raise ShapeError(
            f"expected a dense floating-point tensor at site {site!r}, got {x.dtype}, {x.layout}; "
            "whole numbers cannot be mixed: choose a later site, such as the embedding"
        )
    return x
