"""What the compiler is given on other devices than the CPU: one kernel for mix and noise, the same law and gradient.

No such device is needed: the graph is captured on the device "meta", and the kernels are those that the compiler
makes of the same function for the CPU. What it makes of it for a GPU was not seen.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nfm
from nfm.core import traced
from nfm.core.draw import Choice

NOISES = [
    nfm.Noise(0.4, 0.2),
    nfm.Noise.authors(1.0, 0.5),
    nfm.Noise(0.4, 0.2, "rademacher", "uniform", sparsity=0.3),
    nfm.Noise(0.4, 0.2, granularity="channel"),
    nfm.Noise(0.4, relative=True),
]


def choice(noise: nfm.Noise, *, alpha: float = 1.0, per_sample: bool = False) -> Choice:
    return Choice(
        "input", key=3, step=0, alpha=alpha, beta=alpha, per_sample=per_sample, dominant=False, noise=noise
    ).ready()


def apply(made: Choice, x: Tensor, seed: int = 0) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return traced.mix_noise(
            x, *made.arguments.tensors, made.noise, per_sample=made.per_sample, dominant=False, stream=0
        )


def values(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("per_sample", [False, True])
def test_without_noise_it_is_the_operator(per_sample: bool, dtype: torch.dtype) -> None:
    made, x = choice(nfm.Noise(), per_sample=per_sample), values(16, 3, 5, dtype=dtype)
    out = apply(made, x)
    assert out.dtype == dtype
    assert torch.allclose(out, made.apply(x), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    assert not torch.allclose(out, x, rtol=0.1)
    assert made.uses == 2


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_the_noise_has_the_strength_of_its_settings(noise: nfm.Noise) -> None:
    made, x = choice(noise, alpha=0.0), 3 + values(64, 64, 8, 8)
    own, other = ((apply(made, x, seed) - x) for seed in (0, 1))
    expected = made.apply(x) - x
    assert not torch.equal(own, other)
    for power in (1, 2):
        rows = expected.pow(power).mean((1, 2, 3))
        error = rows.std() * (2 / len(rows)) ** 0.5
        assert abs(own.pow(power).mean() - rows.mean()) < 5 * error
    assert (own == 0).float().mean() == pytest.approx(noise.sparsity, abs=0.01)
    assert (own / x)[:, :, 0, 0].std() > 0


@pytest.mark.parametrize("noise", NOISES[:4], ids=repr)
def test_the_gradient_is_that_of_the_map(noise: nfm.Noise) -> None:
    made, x = choice(noise, per_sample=True), values(8, 4, 6, dtype=torch.float64).requires_grad_()
    (grad,) = torch.autograd.grad(apply(made, x).cos().sum(), x)
    step = 1e-6 * values(8, 4, 6, dtype=torch.float64).flip(0)
    moved, before = ((apply(made, x.detach() + each).cos().sum()) for each in (step, -step))
    assert float((grad * step).sum()) == pytest.approx(float(moved - before) / 2, rel=1e-5)
    assert float((grad.roll(1, 0) * step).sum()) != pytest.approx(float(moved - before) / 2, rel=1e-2)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_other_devices_get_the_equation_and_the_cpu_the_operator(device: str) -> None:
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph.code)
        return graph.forward

    made = choice(nfm.Noise(0.4, 0.2))
    out = torch.compile(made.apply, backend=backend, fullgraph=True)(torch.ones(8, 4, device=device))
    assert out.device.type == device
    assert len(graphs) == 1
    assert ("nfm.pairs" in graphs[0], "randn" in graphs[0]) == ((device == "meta"),) * 2
    assert ("nfm.mix_noise" in graphs[0]) == (device == "cpu")


def kernels_of(function: Callable[..., Tensor], *given: Tensor) -> list[str]:
    """Return the names of the kernels that the compiler makes of `function`; they tell what was fused."""
    from torch._inductor.utils import run_and_get_code

    _, sources = run_and_get_code(torch.compile(function, fullgraph=True), *given)
    return re.findall(r"^(cpp_fused\w*) =", sources[0], re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own, in its compiler
def test_mix_and_noise_are_one_kernel() -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler here: the compiler's kernels were not seen")
    made = choice(nfm.Noise(0.4, 0.2))

    def whole(x: Tensor, numbers: Tensor, key: Tensor) -> Tensor:
        return traced.mix_noise(x, numbers, key, made.noise, per_sample=False, dominant=False, stream=0)

    def opaque(x: Tensor, numbers: Tensor, key: Tensor) -> Tensor:
        return made.apply(x.sin())

    given = values(64, 32, 8, 8), *made.arguments.tensors
    (kernel,) = kernels_of(whole, *given)
    assert all(part in kernel for part in ("index", "mul", "add", "randn"))
    assert not any("randn" in name or "index" in name for name in kernels_of(opaque, *given))
