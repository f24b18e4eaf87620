"""Inputs: one tensor, several, a mapping; what is not named is passed through."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import nfm
from comparing import assert_same
from nets import Mlp, Tokens, TwoInputs, batch, build
from nfm.errors import AttachError, ShapeError, SiteError


def arguments() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    image, y = batch(6, 4)
    depth, _ = batch(6, 2, seed=1)
    return image, depth, torch.tensor([1.0, 0, 1, 1, 0, 1]).bool(), y


class Seen:
    """Keeps what the network's first layers really got."""

    def __init__(self, net: TwoInputs) -> None:
        for name in ("left", "right"):
            getattr(net, name).register_forward_pre_hook(
                lambda m, args, name=name: setattr(self, name, args[0])
            )


@pytest.mark.parametrize("form", ["tuple", "list", "dict", "dict in another order"])
def test_several_inputs_share_partners_and_weight_and_have_noise_of_their_own(form: str) -> None:
    net, (image, depth, mask, y) = build(TwoInputs), arguments()
    x = {
        "tuple": (image, depth, mask),
        "list": [image, depth, mask],
        "dict": {"image": image, "depth": depth, "mask": mask},
        "dict in another order": {"depth": depth, "mask": mask, "image": image},
    }[form]
    seen = Seen(net)
    outcome = nfm.NoisyFeatureMixup(sites="input", inputs=["image", "depth"], seed=3)(net, x, y)
    again = outcome.draw.choice.again()
    assert_same([seen.left, seen.right], [again.apply(image, 0), again.apply(depth, 1)])
    noise = [again.apply(torch.zeros(6, 4), stream) for stream in (0, 1)]
    assert not torch.equal(*noise)


def test_what_is_not_named_is_passed_through() -> None:
    net, (image, depth, mask, y) = build(TwoInputs), arguments()
    seen = Seen(net)
    outcome = nfm.NoisyFeatureMixup(sites="input", inputs="depth", seed=3)(net, (image, depth, mask), y)
    assert torch.equal(seen.left, image)
    assert torch.equal(seen.right, outcome.draw.choice.again().apply(depth))


def test_a_site_may_name_its_input() -> None:
    net, (image, depth, mask, y) = build(TwoInputs), arguments()
    seen = Seen(net)
    outcome = nfm.NoisyFeatureMixup(sites="input:image")(net, (image, depth, mask), y)
    assert torch.equal(seen.left, outcome.draw.choice.again().apply(image))
    assert torch.equal(seen.right, depth)


def test_the_only_floating_point_input_needs_no_name() -> None:
    class Masked(Mlp):
        def forward(self, x: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
            return super().forward(x * scale) * mask[:, None]

    net, (x, y) = build(Masked), batch(6, 4)
    mask = torch.ones(6, dtype=torch.int64)
    outcome = nfm.NoisyFeatureMixup(sites="input")(net, {"x": x, "mask": mask, "scale": 2.0}, y)
    mixed = outcome.draw.choice.again().apply(x)
    assert torch.equal(outcome.output, net(mixed, mask, 2.0))


def test_several_unnamed_tensors_are_refused_with_their_names() -> None:
    net, (image, depth, mask, y) = TwoInputs(), arguments()
    with pytest.raises(SiteError, match=r"image: torch\.float32 .*inputs=\('image', 'depth',\)"):
        nfm.NoisyFeatureMixup(sites="input")(net, (image, depth, mask), y)


@pytest.mark.parametrize("name", ["mask", "imag"])
def test_inputs_that_cannot_be_mixed_are_refused(name: str) -> None:
    net, (image, depth, mask, y) = TwoInputs(), arguments()
    with pytest.raises(
        SiteError, match=f"expected a floating-point input '{name}' of TwoInputs.*image, depth"
    ):
        nfm.NoisyFeatureMixup(sites="input", inputs=[name])(net, (image, depth, mask), y)


def test_tokens_are_refused_with_a_hint() -> None:
    net, tokens, y = Tokens(), torch.zeros(3, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(SiteError, match=r"expected one floating-point tensor.*use later sites"):
        nfm.NoisyFeatureMixup(sites="input")(net, tokens, y)
    with pytest.raises(SiteError, match="use later sites"):
        nfm.NoisyFeatureMixup(sites="input").check(net, tokens)


def test_whole_number_features_are_refused_with_a_hint() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.round().long()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rounded, self.embedding, self.head = Rounded(), nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embedding(self.rounded(x).clamp(0, 8)))

    net, (x, y) = Net(), batch(4)
    for call in (
        lambda: nfm.NoisyFeatureMixup(sites="rounded").check(net, x),
        lambda: nfm.NoisyFeatureMixup(sites="rounded")(net, x, y),
    ):
        with pytest.raises(ShapeError, match=r"site 'rounded'.*torch.int64.*choose a later site"):
            call()


def test_two_methods_with_other_inputs_do_not_meet_on_one_network() -> None:
    net, (image, depth, mask, y) = build(TwoInputs), arguments()
    other = nfm.NoisyFeatureMixup(sites="input", inputs="depth")
    mixer = nfm.attach(net, "nfm", sites=["input"], inputs="image")
    with pytest.raises(AttachError, match="'input' is in use with the inputs"):
        other(net, (image, depth, mask), y)
    mixer.detach()
    other(net, (image, depth, mask), y)


@pytest.mark.parametrize("x", [torch.zeros(0, 4), (torch.zeros(0, 4),), {"x": torch.zeros(0, 4)}])
def test_an_empty_batch_is_refused(x) -> None:
    net, y = Mlp(), torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ShapeError, match="expected a batch of at least 1"):
        nfm.preset("nfm", sites=Mlp.sites)(net, x, y)
    with nfm.attach(net, "nfm", sites=Mlp.sites), pytest.raises(ShapeError, match="at least 1"):
        net(torch.zeros(0, 4))


@pytest.mark.parametrize("x", [(), {}, "text", None, torch.tensor(1.0)])
def test_no_tensor_at_all_is_refused(x) -> None:
    with pytest.raises(ShapeError, match="got no tensor"):
        nfm.preset("nfm", sites=Mlp.sites)(Mlp(), x, torch.zeros(1))
