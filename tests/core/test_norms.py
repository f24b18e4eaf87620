"""The steepest direction is that of the gradient, however small or great the gradient is."""

from __future__ import annotations

import pytest
import torch

from nfm.core.norms import L2


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-13, 1e-3, 1.0, 1e15, 1e30], ids=str)
def test_the_length_of_a_gradient_does_not_count(scale: float) -> None:
    gradient = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = gradient / gradient.flatten(1).norm(dim=1).view(3, 1, 1, 1)
    found = L2().steepest((gradient * scale).float())
    near = 1e-3 if scale < 1e-38 else 1e-5  # numbers as small as that have few digits
    assert torch.allclose(found.double(), expected, atol=near)
    assert not torch.allclose(found.double(), -expected, atol=near)


def test_each_example_is_brought_to_length_one_for_itself() -> None:
    gradient = torch.stack([torch.zeros(5), torch.full((5,), 1e-30), torch.full((5,), 3.0)])
    lengths = L2().size(L2().steepest(gradient))
    assert torch.allclose(lengths, torch.tensor([0.0, 1.0, 1.0]))


def test_an_ordinary_gradient_keeps_its_bits() -> None:
    gradient = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    assert torch.equal(L2().steepest(gradient), gradient / gradient.norm(dim=1, keepdim=True))
    assert not torch.equal(L2().steepest(gradient), gradient)
