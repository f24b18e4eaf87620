"""Every perturbation keeps the contract; each has its own law."""

import math

import pytest
import torch

from nfm.errors import ShapeError, UsageError
from nfm.evaluate.noise import (
    PERTURBATIONS,
    Blur,
    Occlusion,
    SaltAndPepper,
    Shot,
    Speckle,
    UniformNoise,
    WhiteNoise,
)
from nfm.evaluate.perturbation import Perturbation
from nfm.randomness import torch_generator

LEVELS = {
    "white_noise": 0.3,
    "salt_and_pepper": 0.3,
    "speckle": 0.5,
    "shot": 0.2,
    "uniform_noise": 0.3,
    "occlusion": 0.2,
    "blur": 1.0,
}
NOISES = [name for name in PERTURBATIONS if name != "clean"]
VECTORS = [name for name in NOISES if name not in ("occlusion", "blur")]
GREY = torch.full((200, 3, 20, 20), 0.5)
IDS = torch.arange(200)


def images(count: int = 12) -> torch.Tensor:
    return torch.rand(count, 3, 9, 7, generator=torch_generator(1))


def build(name: str) -> Perturbation:
    return PERTURBATIONS[name]()


def test_every_perturbation_has_a_test_level() -> None:
    assert set(LEVELS) == set(NOISES)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_level_0_is_the_identity(name: str) -> None:
    x = images()
    same = build(name)(x, torch.arange(12), 0, seed=0)
    assert torch.equal(same, x)
    assert same.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("name", NOISES)
def test_the_input_is_untouched_and_the_output_clipped(name: str) -> None:
    x = images()
    before = x.clone()
    changed = build(name)(x, torch.arange(12), LEVELS[name], seed=0)
    assert torch.equal(x, before)
    assert not torch.equal(changed, x)
    assert changed.shape == x.shape
    assert changed.dtype == torch.float32
    assert changed.min() >= 0
    assert changed.max() <= 1


@pytest.mark.parametrize("name", NOISES)
def test_batch_size_and_order_change_no_bit(name: str) -> None:
    x, ids = images(), torch.arange(100, 112)
    noise, level = build(name), LEVELS[name]
    whole = noise(x, ids, level, seed=3)
    order = torch.randperm(12, generator=torch_generator(2))
    assert torch.equal(noise(x[order], ids[order], level, seed=3), whole[order])
    for size in (1, 5, 7):
        parts = [noise(x[i : i + size], ids[i : i + size], level, seed=3) for i in range(0, 12, size)]
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("name", [name for name in NOISES if name != "blur"])
def test_seed_level_and_id_each_change_the_draw(name: str) -> None:
    x = GREY[:4] * 0.8
    noise, level = build(name), LEVELS[name]
    first = noise(x, IDS[:4], level, seed=0)
    assert not torch.equal(noise(x, IDS[:4], level, seed=1), first)
    assert not torch.equal(noise(x, IDS[4:8], level, seed=0), first)
    assert not torch.equal(first[0], first[1])
    near = noise(x, IDS[:4], level * 1.000001, seed=0)
    assert name == "occlusion" or (near - first).abs().mean() > 0.01


@pytest.mark.parametrize("name", NOISES)
def test_the_global_generator_is_not_moved(name: str) -> None:
    before = torch.get_rng_state()
    build(name)(images(), torch.arange(12), LEVELS[name], seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_perturbed_too(name: str) -> None:
    x = torch.rand(5, 11, generator=torch_generator(1))
    assert build(name)(x, torch.arange(5), LEVELS[name], seed=0).shape == (5, 11)


@pytest.mark.parametrize("name", ["occlusion", "blur"])
def test_vectors_have_no_neighbours(name: str) -> None:
    with pytest.raises(ShapeError, match="expected images"):
        build(name)(torch.rand(5, 11), torch.arange(5), LEVELS[name], seed=0)


@pytest.mark.parametrize(
    ("noise", "deviation"),
    [
        (WhiteNoise(), 0.05),
        (Speckle(), 0.05 * 0.5),
        (Shot(), 0.05 * math.sqrt(0.5)),
        (UniformNoise(), 0.05 / math.sqrt(3)),
    ],
)
def test_mean_and_deviation_at_a_level_that_does_not_clip(noise: Perturbation, deviation: float) -> None:
    change = (noise(GREY, IDS, 0.05, seed=0) - GREY).double()
    assert abs(float(change.mean())) < 5 * deviation / math.sqrt(change.numel())
    assert float(change.std()) == pytest.approx(deviation, rel=0.01)


def test_shot_counts_photons() -> None:
    counts = Shot()(GREY, IDS, 0.1, seed=0) * 100
    assert torch.allclose(counts, counts.round(), atol=1e-4)


@pytest.mark.parametrize("level", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("per", ["pixel", "value"])
def test_salt_and_pepper_shares(per: str, level: float) -> None:
    changed = SaltAndPepper(per=per)(GREY, IDS, level, seed=0)  # type: ignore[arg-type]
    draws = 200 * 20 * 20 * (1 if per == "pixel" else 3)
    for value in (0.0, 1.0):
        share = float((changed == value).double().mean())
        assert abs(share - level / 2) <= 5 * math.sqrt(level / 2 / draws)


def test_salt_and_pepper_sets_whole_pixels_unless_told() -> None:
    hit = SaltAndPepper()(GREY, IDS, 0.2, seed=0) != 0.5
    assert torch.equal(hit.any(1), hit.all(1))
    hit = SaltAndPepper(per="value")(GREY, IDS, 0.2, seed=0) != 0.5
    assert not torch.equal(hit.any(1), hit.all(1))


@pytest.mark.parametrize("level", [0.04, 0.25, 1.0])
def test_occlusion_covers_one_square_of_its_area(level: float) -> None:
    covered = Occlusion(fill=0.0)(GREY, IDS, level, seed=0) == 0
    assert torch.equal(covered.sum((1, 2, 3)), torch.full((200,), round(3 * level * 400)))
    for axis in (2, 3):  # every row and every column is reached by some example
        assert covered.movedim(axis, 0).flatten(1).any(1).all()


def test_blur_keeps_a_constant_and_spreads_a_point() -> None:
    assert torch.allclose(Blur()(GREY[:1], IDS[:1], 2.0, seed=0), GREY[:1], atol=1e-6)
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1
    spread = Blur()(point, IDS[:1], 1.5, seed=0)[0, 0]
    place = torch.arange(21) - 10.0
    assert float(spread.sum()) == pytest.approx(1, abs=1e-5)
    assert float((spread.sum(0) * place**2).sum()) == pytest.approx(1.5**2, rel=0.01)


def test_labels_name_the_options() -> None:
    assert SaltAndPepper().label == "salt_and_pepper"
    assert SaltAndPepper(per="value").label == "salt_and_pepper(per=value)"


def test_bad_input_is_refused() -> None:
    x, ids = images(), torch.arange(12)
    with pytest.raises(UsageError, match=r"pixels in \[0, 1\].*from -1"):
        WhiteNoise()(x - 1.5, ids, 0.1, seed=0)
    with pytest.raises(UsageError, match=r"pixels in \[0, 1\]"):
        WhiteNoise()(x * float("nan"), ids, 0.1, seed=0)
    with pytest.raises(ShapeError, match="float32"):
        WhiteNoise()(x.double(), ids, 0.1, seed=0)
    with pytest.raises(ShapeError, match="ids"):
        WhiteNoise()(x, ids[:3], 0.1, seed=0)
    with pytest.raises(UsageError, match="seed"):
        WhiteNoise()(x, ids, 0.1, seed=-1)
    with pytest.raises(UsageError, match="per="):
        SaltAndPepper(per="row")  # type: ignore[arg-type]
    for noise, level in (
        (WhiteNoise(), -0.1),
        (WhiteNoise(), math.nan),
        (WhiteNoise(), math.inf),
        (SaltAndPepper(), 1.5),
    ):
        with pytest.raises(UsageError, match="expected a level"):
            noise(x, ids, level, seed=0)
    with pytest.raises(UsageError, match="did you mean 'speckle'"):
        PERTURBATIONS["specle"]
    with pytest.raises(UsageError, match="level 0"):
        build("clean")(x, ids, 0.1, seed=0)
