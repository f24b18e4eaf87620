"""Sites: by the names of the network's own modules, globs, parts of structures; bad ones refused by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_close, assert_same, gradients
from nets import STRUCTURES, Mlp, StructuredNet, batch, build, first_part
from nfm.core.structure import tensors_in
from nfm.errors import SiteError, UsageError
from nfm.method.sites import resolve


def names(model: nn.Module, *sites: str) -> list[str]:
    return list(resolve(model, sites))


def test_names_and_globs() -> None:
    net = Mlp()
    assert names(net, "input", "first") == ["input", "first"]
    assert names(net, "s*") == ["stem", "second"]
    assert names(net, "first.*") == ["first.0", "first.1"]
    assert names(net, "*.1") == ["first.1", "second.1"]
    assert names(net, "[fs]*", "first") == ["stem", "first", "second"]


def test_a_star_stays_within_one_level() -> None:
    assert "first.0" not in names(Mlp(), "*")


def test_no_name_means_the_networks_default() -> None:
    net = Mlp()
    assert list(resolve(net, None)) == nfm.find_sites(net)
    net.default_sites = ("stem",)
    assert list(resolve(net, None)) == ["stem"]


@pytest.mark.parametrize(("wrong", "nearest"), [("frist", "first"), ("secnd", "second"), ("inptu", "input")])
def test_an_unknown_site_is_refused_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(
        SiteError, match=rf"no site '{wrong}' in Mlp; it has: input, stem.*did you mean '{nearest}'"
    ):
        names(Mlp(), wrong)


@pytest.mark.parametrize("sites", [[], (), "", [""], [3], 3])
def test_no_site_at_all_is_refused(sites) -> None:
    with pytest.raises(UsageError):
        nfm.NoisyFeatureMixup(sites=sites).sites_of(Mlp())


def test_a_network_with_nothing_to_mix_is_refused() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.embedding(tokens).mean(1)

    with pytest.raises(
        SiteError, match="expected at least one site in Words, got none; it has: input, embedding"
    ):
        nfm.NoisyFeatureMixup().sites_of(Words())


PARTS = {"tuple": "0", "list": "0", "dict": "feature", "namedtuple": "0", "dataclass": "feature"}


@pytest.mark.parametrize("kind", list(STRUCTURES))
def test_one_named_tensor_of_a_structure_is_mixed(kind: str) -> None:
    net, (x, y) = build(lambda: StructuredNet(kind)), batch(6, 4)
    outcome = nfm.NoisyFeatureMixup(sites=f"encoder:{PARTS[kind]}", seed=1)(net, x, y)
    output = net.head(outcome.draw.choice.again().apply(first_part(net.encoder(x))))
    assert torch.equal(outcome.output, output)
    assert not torch.equal(outcome.output, net(x))
    weight, partner = float(outcome.draw.weight), outcome.draw.partner
    loss = weight * F.cross_entropy(output, y) + (1 - weight) * F.cross_entropy(output, y[partner])
    assert_close(gradients(outcome.loss, net), gradients(loss, net), relative=1e-6)


@pytest.mark.parametrize("kind", list(STRUCTURES))
def test_the_rest_of_a_structure_and_its_class_are_kept(kind: str) -> None:
    net, (x, _) = build(lambda: StructuredNet(kind)), batch(6, 4)
    seen = []
    with nfm.attach(net, "nfm", sites=[f"encoder:{PARTS[kind]}"]):
        net.encoder.register_forward_hook(lambda module, args, output: seen.append(output))
        net(x)
    plain = net.encoder(x)
    assert type(seen[0]) is type(plain)
    assert not torch.equal(first_part(seen[0]), first_part(plain))
    extras = [tensor for structure in (seen[0], plain) for tensor in list(tensors_in(structure))[1:]]
    assert torch.equal(*extras)
    assert kind != "dataclass" or seen[0].note == "kept"


@pytest.mark.parametrize("kind", list(STRUCTURES))
def test_a_structure_with_two_tensors_and_no_named_part_is_refused(kind: str) -> None:
    net, (x, y) = StructuredNet(kind), batch(6, 4)
    with pytest.raises(
        SiteError, match=r"expected one tensor from site 'encoder'.*name the part to mix: encoder:"
    ):
        nfm.NoisyFeatureMixup(sites="encoder")(net, x, y)


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    net, (x, _) = StructuredNet("dict"), batch(6, 4)
    with pytest.raises(
        SiteError, match=r"no part 'featur' at site 'encoder'; its output .* has: feature, extra"
    ):
        nfm.NoisyFeatureMixup(sites="encoder:featur").check(net, x)
    with pytest.raises(SiteError, match=r"no part 'x' at site 'first'; its output .* has: no parts"):
        nfm.NoisyFeatureMixup(sites="first:x").check(Mlp(), x)


def test_the_only_tensor_of_a_structure_needs_no_name() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 8)

        def forward(self, x: Tensor) -> dict[str, object]:
            return {"h": self.linear(x), "count": torch.tensor(3), "name": "x"}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Single(), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(x)["h"])

    net, (x, y) = build(Net), batch(6, 4)
    outcome = nfm.NoisyFeatureMixup(sites="encoder")(net, x, y)
    mixed = outcome.draw.choice.again().apply(net.encoder.linear(x))
    assert_same([outcome.output], [net.head(mixed)])
