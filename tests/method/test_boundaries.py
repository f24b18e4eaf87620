"""find_sites: block boundaries that everything passes through, never inside a residual branch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import nfm
from nets import ConvNet, Mlp, Recurrent, ResidualNet, RootResidualNet, Tokens, batch, block, build
from nfm.models import MODELS, known_options
from nfm.models import build as build_model


def assert_no_bypass(model: nn.Module, x) -> None:
    """Every proposed site passes the dry run, and no path leads around it."""
    plan = nfm.NoisyFeatureMixup(sites=nfm.find_sites(model)).check(model, x)
    assert plan.rows
    assert [row.site for row in plan.rows if row.bypassed] == []


@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        (Mlp, (4,), ["input", "first"]),
        (ConvNet, (3, 6, 6), ["input", "first"]),
        (ResidualNet, (4,), ["input", "blocks.0", "blocks.1"]),
        (Recurrent, (7, 4), ["input"]),
    ],
)
def test_known_networks(make, shape: tuple[int, ...], expected: list[str]) -> None:
    net = build(make)
    assert nfm.find_sites(net)[: len(expected)] == expected
    if make is not Recurrent:
        assert_no_bypass(net, batch(4, *shape)[0])


def test_a_plain_sequence_is_cut_after_its_activations() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))
    assert nfm.find_sites(net) == ["input", "1", "3"]
    assert_no_bypass(net, batch(4, 4)[0])


def test_a_sequence_without_activations_is_cut_between_its_layers() -> None:
    assert nfm.find_sites(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3))) == [
        "input",
        "0",
        "1",
    ]


def test_never_inside_a_residual_branch_at_root_level() -> None:
    net = build(RootResidualNet)
    sites = nfm.find_sites(net)
    assert not {"first", "second"} & set(sites)
    assert_no_bypass(net, batch(4, 4)[0])
    inside = nfm.NoisyFeatureMixup(sites=["first"]).check(net, batch(4, 4)[0])
    assert inside.rows[0].bypassed, "the control: the branch would have been told"


def test_tokens_are_no_input_site() -> None:
    net = build(Tokens)
    assert nfm.find_sites(net) == ["encoder.layers.0", "encoder.layers.1"]
    assert_no_bypass(net, torch.arange(15).reshape(3, 5) % 11)


def test_a_transformer_encoder_alone() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    assert nfm.find_sites(net) == ["input", "layers.0", "layers.1"]
    assert_no_bypass(net, batch(4, 5, 8)[0])


class MaskedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x + self.inner(x) if mask is None else x + self.inner(x) * mask


class RequiredMask(nn.Module):
    """Every block takes the mask, so the mask leads around every block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([MaskedBlock() for _ in range(3)])
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for one in self.blocks:
            x = one(x, mask)
        return self.head(x)


class OptionalMask(RequiredMask):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask)


@pytest.mark.parametrize("make", [RequiredMask, OptionalMask])
def test_masks_are_no_way_around(make: type[nn.Module]) -> None:
    assert nfm.find_sites(make()) == ["input", "blocks.0", "blocks.1"]


def test_two_real_inputs_that_meet_late_are_cut_after_they_met() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = block(4), block(4)
            self.joined, self.more, self.head = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(self.more(self.joined(self.left(a) + self.right(b))))

    assert not {"left", "right"} & set(nfm.find_sites(Siamese()))


def test_untraceable_networks_get_their_chain() -> None:
    class Branching(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    assert nfm.find_sites(Branching()) == ["input", "first"]


NARROW = {"width": 0.125, "units": 16}  # find_sites does not look at widths


HUGE = ("wrn28_10", "preact_resnet50", "resnet50", "wrn28_4")
OURS = [pytest.param(name, marks=[pytest.mark.slow] if name in HUGE else []) for name in MODELS]


@pytest.mark.parametrize("name", OURS)
def test_our_own_networks(name: str) -> None:
    """What is found has no way around it, and so have the sites that each family declares."""
    options = {key: value for key, value in NARROW.items() if key in known_options(name)}
    net, (x, _) = build_model(name, num_classes=3, image_size=32, **options), batch(2, 3, 32, 32)
    for sites in (nfm.find_sites(net), net.default_sites):
        plan = nfm.NoisyFeatureMixup(sites=sites).check(net, x)
        assert len(plan.rows) >= 2
        assert [row.site for row in plan.rows if row.bypassed] == []
