"""The map from a site to the outputs: right for any network, and refused where a derivative means nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from smooth import examples, smooth_net
from torch import Tensor, nn

from comparing import assert_close, hooks_in
from nets import ConvNet, Mlp, ResidualNet, batch, build
from nfm.core.noise import Noise
from nfm.errors import NFMError, NumericalError, ShapeError, SiteError, UsageError
from nfm.models import build as build_model
from nfm.theory import adversarial_bound, expansion
from nfm.theory.derivatives import site_map
from nfm.theory.soundness import check_sound


@pytest.mark.parametrize(("make", "site"), [(Mlp, "first"), (ResidualNet, "blocks.1"), (Mlp, "input")])
def test_the_jacobian_is_that_of_each_example_alone(make: Any, site: str) -> None:
    net, (x, _) = build(make).double(), batch(5, 4, dtype=torch.float64)
    places = site_map(net, x, site=site)
    jacobian = places.jacobian()
    for row in range(5):
        alone = site_map(net, x[row : row + 1], site=site)
        slow = torch.autograd.functional.jacobian(alone, alone.features)[0, :, 0]
        assert_close([jacobian[row]], [slow], relative=1e-12)
    v, w = (torch.randn(5, n, generator=torch.Generator().manual_seed(n)).double() for n in (places.size, 3))
    assert_close([places.push(v)], [torch.einsum("nkd,nd->nk", jacobian, v)], relative=1e-12)
    assert_close([places.pull(w)], [torch.einsum("nkd,nk->nd", jacobian, w)], relative=1e-12)
    with pytest.raises(AssertionError):
        assert_close([places.push(v.flip(0))], [torch.einsum("nkd,nd->nk", jacobian, v)], relative=1e-2)


def test_the_curvature_is_the_second_difference() -> None:
    net, (x, _) = smooth_net(), examples(4)
    places = site_map(net, x, site="1")
    v, w = examples(4, 5, seed=3)[0], examples(4, 3, seed=4)[0]
    step = 1e-3
    ahead, behind = (places(places.features + sign * step * v) for sign in (1, -1))
    second = (w * (ahead + behind - 2 * places.outputs)).sum(1) / step**2
    assert_close([places.curvature(w, v)], [second], relative=1e-4)
    with pytest.raises(AssertionError):
        assert_close([places.curvature(w.flip(0), v)], [second], relative=1e-2)


def test_batch_norm_is_in_evaluation_mode_and_comes_back() -> None:
    net, (x, _) = build(ConvNet), batch(4, 3, 6, 6)
    net.first[1].eval()
    hooks = hooks_in(net)
    places = check_sound(site_map(net, x, site="first"))
    assert (net.training, net.first[1].training, net.second[1].training) == (True, False, True)
    assert hooks_in(net) == hooks
    assert_close([places.outputs], [net.eval()(x).detach()], relative=1e-5)
    assert_close([places(places.features)], [places.outputs], relative=1e-5)


def test_parts_are_the_whole() -> None:
    net, (x, _) = build(Mlp).double(), batch(7, 4, dtype=torch.float64)
    places = site_map(net, x, site="stem")
    assert_close(
        [torch.cat([part.jacobian() for part in places.chunks(3)])], [places.jacobian()], relative=1e-12
    )


class InPlace(nn.Module):
    """Changes the features of its site in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act, self.head = nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.stem(x)))


def test_features_changed_in_place_stay_what_they_were() -> None:
    net, (x, _) = build(InPlace), batch(4, 4)
    places = check_sound(site_map(net, x, site="stem"))
    assert_close([places.features], [net.stem(x).detach()], relative=1e-6)
    assert bool((places.features < 0).any())
    assert_close(
        [places.jacobian()], [(places.features > 0)[:, None] * net.head.weight.detach()], relative=1e-6
    )


@pytest.mark.parametrize("name", ["vit_lite_7_4", "preact_resnet18", "small_conv", "mlp"])
def test_the_networks_of_the_house(name: str) -> None:
    options = {"width": 0.25} if name == "preact_resnet18" else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = build_model(name, num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, **options)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(3, 3, 32, 32, generator=generator), torch.tensor([1, 2, 3])
    found = expansion(net, x, y, site=net.default_sites[1], noise=Noise(0.1, 0.1), probes=2, draws=2)
    assert found.terms.r2_total > 0
    assert (found.terms.r3_total.value == 0) == (name != "vit_lite_7_4")  # attention is not piecewise linear


class Lambda(nn.Module):
    """A linear layer behind a stem, then any function of features and outputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.stem, self.side, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        self.side(x)
        return self.function(self.head, self.stem(x))


class Liar(torch.autograd.Function):
    """Doubles its input and says that it does not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.clone()


class OneWay(torch.autograd.Function):
    """Knows no derivative at all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x


REFUSED = {
    "unused": ("side", lambda head, h: head(h), SiteError, "does not reach the outputs"),
    "detached": ("stem", lambda head, h: head(h.detach()), SiteError, "autograd is broken"),
    "no_grad": ("stem", lambda head, h: head((h.detach() * 2).tanh() + 0 * h), SiteError, "autograd is broken"),
    "a lie": ("stem", lambda head, h: head(Liar.apply(h)), SiteError, "autograd is broken"),
    "one way": ("stem", lambda head, h: head(OneWay.apply(h)), SiteError, "cannot be differentiated"),
    "rounded": ("stem", lambda head, h: head(h + (h.round() - h).detach()), SiteError, "autograd is broken"),
    "images": ("stem", lambda head, h: head(h)[:, :, None, None], ShapeError, r"outputs \[5, K\]"),
    "one sum": ("stem", lambda head, h: head(h).sum(), ShapeError, r"outputs \[5, K\]"),
    "classes": ("stem", lambda head, h: head(h).argmax(1), ShapeError, "expected floating-point outputs"),
    "two tensors": ("stem", lambda head, h: (head(h), h), ShapeError, "part called logits"),
    "nan": ("stem", lambda head, h: head(h) / 0 * 0, NumericalError, "expected finite outputs"),
    "infinite slope": ("stem", lambda head, h: head((h * 0).abs().sqrt() + h), NumericalError, "finite derivatives"),
    "batch statistics": ("stem", lambda head, h: head(h - h.mean(0)), SiteError, "depend on the others"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    site, function, error, message = REFUSED[name]
    net, (x, y) = build(lambda: Lambda(function)), batch(5, 4)
    with pytest.raises(error, match=message) as caught:
        expansion(net, x, y, site=site, noise=Noise(0.1), probes=2, draws=2)
    assert isinstance(caught.value, NFMError)


def test_what_is_sound_is_not_refused() -> None:
    for function in (lambda head, h: head(h.relu()), lambda head, h: {"logits": head(h), "features": h}):
        net, (x, y) = build(lambda function=function: Lambda(function)), batch(5, 4)
        assert expansion(net, x, y, site="stem", noise=Noise(0.1), probes=2, draws=2).terms.r2_total > 0


def test_other_refusals() -> None:
    net, (x, y) = build(Mlp), batch(5, 4)
    with pytest.raises(SiteError, match=r"no site 'frist' in Mlp.*did you mean 'first'"):
        site_map(net, x, site="frist")
    with pytest.raises(SiteError, match="expected one site"):
        site_map(net, x, site="*")
    with pytest.raises(NumericalError, match="expected finite features at site 'stem'"):
        site_map(net, x * torch.nan, site="stem")
    with pytest.raises(ShapeError, match="expected classes from 0 to 2"):
        expansion(net, x, y + 7, site="stem", noise=Noise(0.1))
    with pytest.raises(ShapeError, match="expected 5 integer class indices"):
        expansion(net, x, y[:3], site="stem", noise=Noise(0.1))


@pytest.mark.parametrize("noise", [None, 0.4, (0.4, 0.2)])
def test_what_is_no_noise_is_refused(noise: Any) -> None:
    net, (x, y) = build(Mlp), batch(5, 4)
    with pytest.raises(UsageError, match=r"noise: expected nfm.Noise\(add, mult\), got"):
        expansion(net, x, y, site="stem", noise=noise)
    with pytest.raises(UsageError, match=r"noise: expected nfm.Noise\(add, mult\), got"):
        adversarial_bound(net, x, y, sites=("stem",), noise=noise)
    assert expansion(net, x, y, site="stem", noise=Noise(), probes=2, draws=2).terms.add == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: (255 * x).byte(),
            r"failed on inputs of torch.uint8 \(5, 4\).*parameters are of torch.float32",
        ),
        (Tensor.double, r"inputs of torch.float64 \(5, 4\).*parameters are of torch.float32"),
        (lambda x: x[:, :3], r"inputs of torch.float32 \(5, 3\).*cannot be multiplied"),
    ],
)
def test_inputs_that_the_network_does_not_take(change: Any, message: str) -> None:
    net, (x, y) = build(Mlp), batch(5, 4)
    with pytest.raises(ShapeError, match=message):
        expansion(net, change(x), y, site="stem", noise=Noise(0.1), probes=2, draws=2)
    assert len(site_map(net, x, site="stem")) == 5


def test_single_precision_on_a_network_of_double() -> None:
    net, (x, y) = build(Mlp).double(), batch(5, 4)
    with pytest.raises(
        ShapeError, match=r"inputs of torch.float32 \(5, 4\).*parameters are of torch.float64"
    ):
        expansion(net, x, y, site="stem", noise=Noise(0.1), probes=2, draws=2)
    assert expansion(net, x.double(), y, site="stem", noise=Noise(0.1), probes=2, draws=2).terms.r2_total > 0


def test_labels_in_floating_point_are_those_of_one_output_alone() -> None:
    net, (x, y) = build(Mlp), batch(5, 4)
    with pytest.raises(ShapeError, match=r"expected 5 integer class indices, got torch.float32"):
        expansion(net, x, y.float(), site="stem", noise=Noise(0.1))
    single, settings = (
        build(lambda: nn.Sequential(nn.Linear(4, 1))),
        {"noise": Noise(0.1), "probes": 2, "draws": 2},
    )
    found = [expansion(single, x, label, site="input", **settings) for label in (y % 2, (y % 2).float())]
    assert found[0] == found[1]
    with pytest.raises(ShapeError, match="expected 5 labels 0 and 1"):
        expansion(single, x, (y % 2) + 0.5, site="input", **settings)
