"""The two protocols against slow loops, and the units in which levels are told."""

import math

import pytest
import torch
from torch import nn

from nfm.errors import ShapeError, UsageError
from nfm.evaluate import Authors, Normalisation, Pixel, SaltAndPepper, Speckle, WhiteNoise
from nfm.evaluate.protocols import AUTHORS_MEAN, AUTHORS_STD, choose_protocol, find_normalisation
from nfm.randomness import torch_generator

X = torch.rand(40, 3, 32, 32, generator=torch_generator(0))
IDS = torch.arange(40)


class WithNormalise(nn.Module):
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.normalise = nn.Module()
        self.normalise.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.normalise.register_buffer("std", torch.tensor(std).view(-1, 1, 1))


def test_pixel_is_the_perturbation_itself() -> None:
    assert torch.equal(Pixel().perturb(X, IDS, WhiteNoise(), 0.1, seed=0), WhiteNoise()(X, IDS, 0.1, seed=0))


def test_authors_white_noise_is_standard_after_normalisation() -> None:
    changed = Authors().perturb(X, IDS, WhiteNoise(), 0.3, seed=0)
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (AUTHORS_MEAN, AUTHORS_STD))
    noise = (changed - mean) / std - (X - mean) / std
    assert noise.std((0, 2, 3)).tolist() == pytest.approx([0.3] * 3, rel=0.02)
    assert changed.min() < 0  # not clipped
    assert changed.max() > 1


def test_authors_salt_and_pepper_touches_channel_0_only() -> None:
    g = 0.1
    changed = Authors().perturb(X, IDS, SaltAndPepper(), g, seed=0)
    assert torch.equal(changed[:, 1:], X[:, 1:])
    count = math.ceil(g / 2 * 1024)
    for before, after in zip(X[:, 0], changed[:, 0], strict=True):
        touched = before != after
        low, high = (after == before.min()).sum(), (after == before.max()).sum()
        assert count <= high <= count + 1  # the second draw overwrites the first; one pixel was there before
        assert count * 0.7 < low <= count + 1
        assert 2 * count * 0.85 < touched.sum() <= 2 * count
        assert set(after[touched].tolist()) == {float(before.min()), float(before.max())}


def test_authors_draws_overlap_as_two_independent_draws_do() -> None:
    changed = Authors().perturb(X, IDS, SaltAndPepper(), 0.5, seed=0)
    touched = (changed[:, 0] != X[:, 0]).double().mean()
    assert float(touched) == pytest.approx(1 - 0.75**2, abs=0.01)  # 0.4375, not 0.5


@pytest.mark.parametrize("noise", [WhiteNoise(), SaltAndPepper()])
def test_authors_is_keyed_by_example_and_level_0_is_the_identity(noise: WhiteNoise | SaltAndPepper) -> None:
    whole = Authors().perturb(X, IDS, noise, 0.2, seed=0)
    parts = [Authors().perturb(X[i : i + 7], IDS[i : i + 7], noise, 0.2, seed=0) for i in range(0, 40, 7)]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(Authors().perturb(X, IDS, noise, 0.2, seed=1), whole)
    assert torch.equal(Authors().perturb(X, IDS, noise, 0, seed=0), X)


def test_levels_are_told_in_both_units() -> None:
    pixel, normalised = Authors().units(WhiteNoise(), 0.1)
    assert (round(pixel, 3), normalised) == (0.020, 0.1)
    pixel, normalised = Pixel(Normalisation((0.5,), (0.25,))).units(WhiteNoise(), 0.1)
    assert (pixel, normalised) == (0.1, 0.4)
    assert Pixel().units(WhiteNoise(), 0.1) == (0.1, None)
    assert Pixel().units(SaltAndPepper(), 0.1) == Authors().units(SaltAndPepper(), 0.1) == (0.1, 0.1)


def test_flags() -> None:
    assert Pixel().flags(WhiteNoise()) == []
    assert Authors().flags(WhiteNoise()) == ["protocol authors", "noise not clipped"]
    assert Authors().flags(SaltAndPepper()) == ["protocol authors"]


def test_authors_after_a_foreign_normalisation_has_another_name_and_a_flag() -> None:
    foreign = choose_protocol("authors", WithNormalise((0.1,), (0.3,)))
    assert foreign.name == "authors(std=0.3)"
    assert Authors().name == "authors"
    assert "noise added after the model's own normalisation, not the authors'" in foreign.flags(WhiteNoise())
    assert foreign.flags(SaltAndPepper()) == ["protocol authors"]  # no deviation scales it
    grey = X[:, :1]
    noise = foreign.perturb(grey, IDS, WhiteNoise(), 0.5, seed=0) - grey
    assert float(noise.std()) == pytest.approx(0.5 * 0.3, rel=0.02)


def test_authors_refuses_what_it_does_not_define() -> None:
    with pytest.raises(UsageError, match="use protocol 'pixel'"):
        Authors().perturb(X, IDS, Speckle(), 0.1, seed=0)
    with pytest.raises(UsageError, match="use protocol 'pixel'"):
        Authors().perturb(X, IDS, SaltAndPepper(per="value"), 0.1, seed=0)
    with pytest.raises(ShapeError, match="3 channels"):
        Authors().perturb(X[:, :1], IDS, WhiteNoise(), 0.1, seed=0)


def test_protocols_by_name() -> None:
    model = WithNormalise((0.1,), (0.3,))
    found = find_normalisation(model)
    assert found is not None
    assert found.agrees(Normalisation((0.1,), (0.3,)))
    assert not found.agrees(Normalisation((0.1, 0.1), (0.3, 0.3)))
    assert choose_protocol("pixel", model) == Pixel(found)
    assert choose_protocol("pixel", abs) == Pixel(None)
    assert choose_protocol("authors", WithNormalise(AUTHORS_MEAN, AUTHORS_STD)) == Authors()
    assert choose_protocol("authors", abs) == Authors()
    with pytest.raises(UsageError, match="did you mean 'authors'"):
        choose_protocol("author", model)
