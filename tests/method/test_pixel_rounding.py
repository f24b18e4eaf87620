"""Pixels outside [0, 1] by a rounding error are taken for those at the border, in every scheme of pixels."""

from __future__ import annotations

import pytest
import torch

import nfm
from comparing import assert_different, assert_same
from nets import ConvNet, batch, build
from nfm.errors import ShapeError
from nfm.method.pixels import check_pixels


def images(beyond: float) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = batch(6, 3, 8, 8)
    x = x.sigmoid()
    x[:, 0, 0, 0], x[:, 0, 0, 1] = -beyond, 1 + beyond
    return x, y


@pytest.mark.parametrize("text", ["augmix", "noisymix", "puzzlemix", "adversarial"])
def test_rounding_is_clamped(text: str) -> None:
    settings = {"sites": ConvNet.sites} if text == "noisymix" else {}
    made = nfm.scheme(text, **settings)
    exact, rounded, other = (
        made(build(ConvNet), *images(beyond), step=0).loss for beyond in (0.0, 5e-6, -0.1)
    )
    assert_same([rounded], [exact])
    assert_different([other], [exact])
    with pytest.raises(ShapeError, match=r"got values from -2e-05 to 1\.00002"):
        made.check(build(ConvNet), images(2e-5)[0])


def test_pixels_are_not_copied_without_need() -> None:
    x, _ = images(0.0)
    assert check_pixels(x, "test") is x
    x[0, 0, 0, 0] = float("nan")
    with pytest.raises(ShapeError, match="got values from nan to nan"):
        check_pixels(x, "test")
