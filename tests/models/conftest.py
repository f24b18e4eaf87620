"""What the tests of the networks share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def scramble(generator: torch.Generator) -> Callable[[nn.Module], nn.Module]:
    """Give every parameter and running statistic a value that matters, and switch to evaluation."""

    @torch.no_grad()
    def apply(model: nn.Module) -> nn.Module:
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and not name.startswith("normalise"):
                noise = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(noise.abs() + 0.5 if "var" in name else tensor + 0.1 * noise)
        return model.eval()

    return apply


@pytest.fixture
def images(generator: torch.Generator) -> Callable[..., Tensor]:
    return lambda *shape: torch.rand(*shape, generator=generator)
