"""AugMix's views against a loop over examples and chains with Pillow, and its divergence against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nfm
from comparing import assert_close, assert_different, assert_same, flat, gradients
from nets import ConvNet, build
from nfm.method import pixels
from nfm.method.chains import OPERATIONS, Chains
from nfm.method.consistency import jensen_shannon

NAMES = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)


def images(size: int, side: int = 8, seed: int = 0) -> Tensor:
    """Return smooth images of whole grey levels: without edges, where interpolations differ most."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(size, 3, 4, 4, generator=generator)
    fine = F.interpolate(coarse, (side, side), mode="bilinear", align_corners=False)
    return (fine * 255).round() / 255


def labels(size: int) -> Tensor:
    return torch.arange(size) % 3


def view_by_hand(
    image: Tensor, chains: Chains, key: int, example: int, size: int, view: int, views: int
) -> Tensor:
    """Return one view of one image: its chains one after another, then the two mixtures (Section 3, algorithm 1)."""
    plan = chains.plan(size, views, key)
    mixed = torch.zeros_like(image)
    for chain in range(chains.width):
        copy = image[None]
        for place in range(plan.operation.shape[-1]):
            where = (example, view, chain, place)
            if plan.operation[where] < 0:
                break
            kind = OPERATIONS[plan.operation[where]]
            strength = float(kind.strength(plan.level[where], image.shape[2]))
            strength *= plan.sign[where] if kind.signed else 1
            copy = kind.apply(copy, torch.tensor([strength], dtype=torch.float32))
        mixed = mixed + float(plan.chains[example, view, chain]) * copy[0]
    own = float(plan.image[example, view])
    return own * image + (1 - own) * mixed


def test_views_equal_the_loop_over_examples_and_chains() -> None:
    x, chains = images(5), Chains()
    found = chains.views(x, 2, key=7)
    for view in range(2):
        expected = torch.stack([view_by_hand(x[i], chains, 7, i, len(x), view, 2) for i in range(len(x))])
        assert_close([found[view]], [expected], relative=1e-6)
    assert_different([found[0]], [found[1]])


def test_an_examples_views_do_not_depend_on_the_others() -> None:
    x, chains = images(5), Chains()
    whole, part = chains.views(x, 2, key=7), chains.views(x[:3], 2, key=7)
    assert_same([view[:3] for view in whole], part)
    assert_different(chains.views(x, 2, key=8), whole)


@pytest.mark.parametrize("jsd", [12.0, 0.5])
def test_a_step_equals_three_batches_in_one(jsd: float) -> None:
    net, twin, (x, y) = build(ConvNet), build(ConvNet), (images(5), labels(5))
    method = nfm.scheme("augmix", jsd=jsd, seed=3)
    outcome = method(net, x, y, step=4)
    views = method.chains.views(x, 2, method.key(4, "augmix"))
    together = twin(torch.cat([x, *views]))
    p = torch.softmax(together, 1).view(3, 5, -1)
    mean = p.mean(0)
    divergence = sum((each * (each / mean).log()).sum() for each in p) / 3 / 5
    loss = F.cross_entropy(together[:5], y) + jsd * divergence
    assert_close([outcome.loss, outcome.output], [loss, together[:5]], relative=1e-5)
    assert_close([flat(gradients(outcome.loss, net))], [flat(gradients(loss, twin))], relative=1e-4)


def test_without_consistency_one_view_is_trained_on() -> None:
    net, twin, (x, y) = build(ConvNet), build(ConvNet), (images(5), labels(5))
    method = nfm.scheme("augmix", jsd=0, seed=3)
    outcome = method(net, x, y, step=4)
    (view,) = method.chains.views(x, 1, method.key(4, "augmix"))
    assert_same([outcome.output, outcome.loss], [twin(view), F.cross_entropy(twin(view), y)])


class TestDivergence:
    """Closed forms of the Jensen-Shannon divergence."""

    def test_equal_predictions_do_not_diverge(self) -> None:
        logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
        assert abs(float(jensen_shannon(logits, logits, logits))) < 1e-6
        assert float(jensen_shannon(logits, logits, -logits)) > 1e-2

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_sure_and_different_predictions_diverge_by_the_log_of_their_number(self, count: int) -> None:
        sure = [200 * F.one_hot(torch.tensor([k, k]), 5).float() for k in range(count)]
        assert float(jensen_shannon(*sure)) == pytest.approx(math.log(count), rel=1e-6)

    def test_two_against_one(self) -> None:
        """M = (2/3, 1/3): log 3 - 2/3 log 2."""
        one, other = (200 * F.one_hot(torch.tensor([k]), 2).float() for k in (0, 1))
        assert float(jensen_shannon(one, one, other)) == pytest.approx(
            math.log(3) - 2 / 3 * math.log(2), rel=1e-6
        )

    def test_it_is_symmetric_bounded_and_the_mean_over_examples(self) -> None:
        generator = torch.Generator().manual_seed(1)
        a, b, c = (5 * torch.randn(6, 4, generator=generator) for _ in range(3))
        whole = jensen_shannon(a, b, c)
        assert float(whole) == pytest.approx(float(jensen_shannon(c, a, b)), rel=1e-6)
        assert 0 < float(whole) < math.log(3)
        single = [float(jensen_shannon(a[i : i + 1], b[i : i + 1], c[i : i + 1])) for i in range(6)]
        assert float(whole) == pytest.approx(np.mean(single), rel=1e-6)

    def test_its_gradient(self) -> None:
        generator = torch.Generator().manual_seed(1)
        logits = [torch.randn(3, 4, generator=generator).double().requires_grad_() for _ in range(3)]
        assert torch.autograd.gradcheck(jensen_shannon, logits)


class TestPixels:
    """Each operation against Pillow, as far as both mean the same."""

    def pillow(self, x: Tensor, name: str, strength: float) -> Tensor:
        image_module = pytest.importorskip("PIL.Image")
        operations = pytest.importorskip("PIL.ImageOps")
        image = image_module.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy())
        bilinear = image_module.Resampling.BILINEAR
        matrices = {
            "shear_x": (1, strength, 0, 0, 1, 0), "shear_y": (1, 0, 0, strength, 1, 0),
            "translate_x": (1, 0, strength, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, strength),
        }  # fmt: skip
        if name in matrices:
            done = image.transform(
                image.size, image_module.Transform.AFFINE, matrices[name], resample=bilinear
            )
        else:
            done = {
                "autocontrast": lambda: operations.autocontrast(image),
                "equalize": lambda: operations.equalize(image),
                "posterize": lambda: operations.posterize(image, int(strength)),
                "solarize": lambda: operations.solarize(image, int(strength)),
                "rotate": lambda: image.rotate(strength, resample=bilinear),
            }[name]()
        return torch.from_numpy(np.array(done)).permute(2, 0, 1).float() / 255

    @pytest.mark.parametrize(
        ("name", "strength", "inner", "error"),
        [
            ("autocontrast", 0, 0, 1), ("equalize", 0, 0, 2), ("posterize", 3, 0, 0), ("posterize", 4, 0, 0),
            ("solarize", 180, 0, 0), ("solarize", 256, 0, 0), ("rotate", 9, 6, 1), ("rotate", -9, 6, 1),
            ("shear_x", 0.09, 6, 1), ("shear_y", -0.09, 6, 1), ("translate_x", 3, 0, 0), ("translate_y", -2, 0, 0),
        ],
    )  # fmt: skip
    def test_it_equals_pillow(self, name: str, strength: float, inner: int, error: int) -> None:
        """Within `error` grey levels, `inner` pixels from the border, where Pillow does not blend with black."""
        side = 128 if name == "equalize" else 32  # Pillow divides whole numbers, and is rough on few pixels
        x = images(2, side=side)
        done = getattr(pixels, name)(x, torch.full((2,), float(strength)))
        for ours, image in zip(done, x, strict=True):
            difference = (ours - self.pillow(image, name, strength)).abs() * 255
            kept = difference[:, inner : side - inner, inner : side - inner]
            assert float(kept.max()) <= error + 0.51

    @pytest.mark.parametrize(("name", "strength"), [("rotate", 9), ("shear_x", 0.09), ("translate_y", 2)])
    def test_a_wrong_sign_would_be_seen(self, name: str, strength: float) -> None:
        x = images(1, side=32)
        ours = getattr(pixels, name)(x, torch.tensor([-float(strength)]))[0]
        difference = (ours - self.pillow(x[0], name, strength)).abs() * 255
        assert float(difference[:, 6:26, 6:26].max()) > 5

    @pytest.mark.parametrize("name", NAMES)
    def test_images_stay_in_range_and_the_given_ones_as_they_were(self, name: str) -> None:
        x = images(3)
        before = x.clone()
        done = getattr(pixels, name)(x, torch.tensor([0.0, 1.0, 3.0]))
        assert_same([x], [before])
        assert done.shape == x.shape
        assert 0 <= float(done.min()) <= float(done.max()) <= 1

    def test_flat_images_stay_flat(self) -> None:
        x = torch.full((2, 3, 4, 4), 0.3)
        for operation in (pixels.autocontrast, pixels.equalize):
            assert_same([operation(x, torch.zeros(2))], [x])
