"""The margin: rigorous bounds below an attack, always; the printed score twice too large."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from smooth import examples, smooth_net
from torch import Tensor, nn

from nets import ConvNet, ResidualNet, RootResidualNet, batch, build
from nfm.errors import SiteError, UsageError
from nfm.models import build as build_model
from nfm.theory.derivatives import input_map, site_map
from nfm.theory.jacobian_norms import feature_norms, output_norms
from nfm.theory.lipschitz import lipschitz
from nfm.theory.margin import margins, score
from nfm.theory.operator_norms import convolution_norm, linear_norm


class Opposite(nn.Module):
    """f = (x, -x)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0], [-1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_the_margin_of_two_opposite_outputs() -> None:
    """At x = 1 the margin of (x, -x) is 1: the right bound says 1, the printed one 2."""
    found = margins(Opposite().double(), torch.ones(1, 1).double(), torch.tensor([0]))
    assert float(found.attack) == pytest.approx(1, rel=1e-5)
    assert float(found.rigorous) == pytest.approx(1, rel=1e-5)
    assert float(found.printed) == pytest.approx(2, rel=1e-5)


def fitted(net: nn.Module, x: Tensor, y: Tensor, steps: int = 60) -> nn.Module:
    """Return the network after a few steps of training, so that most examples are classified right."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.eval()


CASES = {
    "smooth": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), (4,), ("input", "1")),
    "relu": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), (4,), ("input", "1")),
    "residual": (ResidualNet, (4,), ("input", "blocks.1")),
    "bypassed": (RootResidualNet, (4,), ("first",)),
    "batch norm": (ConvNet, (3, 5, 5), ("input", "first")),
}


@pytest.mark.parametrize("name", CASES)
def test_rigorous_bounds_stay_below_the_margin_on_200_examples(name: str) -> None:
    make, shape, sites = CASES[name]
    x, _ = batch(200, *shape, dtype=torch.float64)
    y = (x.flatten(1)[:, :3] * torch.tensor([1.0, 2.0, 0.5])).argmax(1)
    net = fitted(build(make).double(), x, y)
    for site in sites:
        found = margins(net, x, y, site=site, steps=30)
        right = found.score > 0
        assert int(right.sum()) > 100
        assert bool((found.rigorous <= found.attack * (1 + 1e-9)).all())
        assert bool((found.rigorous[right] > 0).all())
        assert float((found.rigorous * found.bounds.whole / found.score)[right].max()) == pytest.approx(
            1, rel=1e-3
        )
        assert bool(((100 * found.rigorous)[right] > found.attack[right]).any())  # the bound can fail


def test_a_network_of_the_house() -> None:
    net = build_model("preact_resnet18", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, width=0.0625)
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    y = net.eval()(x).argmax(1)
    found = margins(net, x, y, site="stage1", steps=10)
    assert bool((found.rigorous <= found.attack).all())
    assert found.bounds.whole == pytest.approx(found.bounds.before * found.bounds.after, rel=1e-6)
    assert lipschitz(net, x, site="normalise").before == pytest.approx(4)


@pytest.mark.parametrize(
    "options",
    [{"padding": 1}, {"padding": 0, "stride": 2}, {"padding": 2, "dilation": 2}, {"padding": 1, "groups": 2}],
)
def test_the_norm_of_a_convolution_bounds_that_of_its_matrix(options: dict[str, int]) -> None:
    layer = build(lambda: nn.Conv2d(4, 6, 3, bias=False, **options)).double()
    with torch.no_grad():
        matrix = layer(torch.eye(4 * 49).double().view(-1, 4, 7, 7)).flatten(1)
        slow = linear_norm(matrix.T)
        bound = convolution_norm(layer, layer.weight, 7, 7)
    assert slow <= bound <= 2 * slow
    assert bound / 2 < slow  # half of it would be no bound
    flat = float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2))
    assert flat != pytest.approx(bound, rel=1e-3)  # that of the kernel as a matrix is another number


def test_batch_norm_is_folded() -> None:
    """conv then norm is one convolution: tighter than the product of both norms."""
    net = build(ConvNet).double().eval()
    with torch.no_grad():
        net.first[1].weight.copy_(torch.tensor([3.0, 0.1, 0.2, 0.1]))
    x, _ = batch(2, 3, 5, 5, dtype=torch.float64)
    before = lipschitz(net, x, site="first").before
    apart = 3 / math.sqrt(1 + 1e-5) * convolution_norm(net.first[0], net.first[0].weight.detach(), 5, 5)
    assert before < 0.99 * apart
    folded = net.first[0].weight.detach() * (net.first[1].weight / math.sqrt(1 + 1e-5)).detach().view(
        -1, 1, 1, 1
    )
    assert before == pytest.approx(convolution_norm(net.first[0], folded, 5, 5))


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(3, stride=2, padding=1), nn.AvgPool2d(2), nn.AvgPool2d(3, stride=1, padding=1), nn.SiLU(),
        nn.AdaptiveAvgPool2d(2), nn.Hardswish(), nn.GELU(), nn.ELU(), nn.LeakyReLU(0.1), nn.Sigmoid(),
    ],
    ids=str,
)  # fmt: skip
def test_layers_never_stretch_more_than_their_norm(layer: nn.Module) -> None:
    net = nn.Sequential(layer, nn.Flatten())
    generator = torch.Generator().manual_seed(0)
    bound = lipschitz(net, torch.zeros(1, 2, 8, 8).double()).whole
    stretch = 0.0
    for scale in (1e-3, 0.1, 1.0):
        a = 3 * torch.randn(500, 2, 8, 8, generator=generator).double()
        b = a + scale * torch.randn(500, 2, 8, 8, generator=generator).double()
        stretch = max(stretch, float(((net(a) - net(b)).norm(dim=1) / (a - b).flatten(1).norm(dim=1)).max()))
    assert stretch <= bound
    assert bound <= 12 * stretch


def test_jacobian_norms_by_singular_values() -> None:
    net, (x, _) = smooth_net(), examples(5)
    places = site_map(net, x, site="1")
    slow = torch.linalg.matrix_norm(places.jacobian(), 2)
    assert torch.allclose(output_norms(places), slow)
    before = torch.stack([
        torch.linalg.matrix_norm(torch.autograd.functional.jacobian(net[:2], row), 2) for row in x
    ])  # fmt: skip
    found = feature_norms(net, x, site="1", iterations=200)
    assert torch.allclose(found, before, rtol=1e-3)
    assert bool((found <= before * (1 + 1e-9)).all())
    assert not torch.allclose(found.flip(0), before, rtol=1e-3)


def test_the_score() -> None:
    outputs, y = torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 5.0]]), torch.tensor([0, 1])
    assert score(outputs, y).tolist() == pytest.approx([2 / math.sqrt(2), -4 / math.sqrt(2)])
    assert score(outputs, y, form="printed").tolist() == pytest.approx([2 * math.sqrt(2), -4 * math.sqrt(2)])
    single = torch.tensor([[1.5], [-1.0]])
    double = torch.cat([-single / 2, single / 2], 1)
    assert torch.allclose(score(single, torch.tensor([1, 1])), score(double, torch.tensor([1, 1])))
    with pytest.raises(
        UsageError, match=r"form: expected right or printed, got 'rigth' \(did you mean 'right'"
    ):
        score(outputs, y, form="rigth")


def test_one_output_and_the_misclassified() -> None:
    net = nn.Sequential(nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[3.0, 4.0]]))
        net[0].bias.zero_()
    found = margins(net, torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(), torch.tensor([1, 0]))
    assert found.rigorous.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)
    assert found.attack.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)


class Squares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * x)


class Twice(nn.Module):
    def __init__(self, join) -> None:
        super().__init__()
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x)


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (lambda x: x + x, 2),
        (lambda x: torch.add(x, other=x), 2),
        (lambda x: torch.cat([x, x], 1), math.sqrt(2)),
        (lambda x: x.view(x.shape[0], -1) / 4, 0.25),
        (lambda x: F.dropout(x, training=False), 1),
        (lambda x: x.mean(1, keepdim=True), 0.5),
        (lambda x: x + x[:, :1], 1 + 2),  # one value goes to four places: sqrt(4)
        (lambda x: x[:, :1] * torch.ones(4), 2),
    ],
)
def test_a_feature_that_is_taken_twice_counts_twice(join, expected: float) -> None:
    assert lipschitz(Twice(join), torch.zeros(2, 4)).whole == pytest.approx(expected)


def test_what_has_no_bound_is_refused() -> None:
    x, _ = batch(4, 4)
    with pytest.raises(UsageError, match="product or quotient of two features; the empirical one remains"):
        lipschitz(build(Squares), x)
    with pytest.raises(UsageError, match="the layer LayerNorm has none known"):
        lipschitz(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), x)
    with pytest.raises(UsageError, match="the operation 'dropout' is not known"):  # on in evaluation mode too
        lipschitz(Twice(lambda x: F.dropout(x, 0.5)), x)
    with pytest.raises(UsageError, match="the operation 'getitem' is not known"):  # takes a value twice
        lipschitz(Twice(lambda x: x[:, [0, 0]]), x)
    with pytest.raises(UsageError, match="no module 'nowhere' is called"):
        lipschitz(nn.Sequential(nn.Linear(4, 3)), x, site="nowhere")
    with pytest.raises(UsageError, match="without running statistics"):
        lipschitz(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)), x)
    assert len(input_map(build(Squares), x)) == 4


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Linear(128, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.stem(x.view(-1, 1, 4, 4))).relu().flatten(1))


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.head = nn.Linear(4, 8), nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x.view(-1, 4, 4)))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.body = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x.view(-1, 4, 4))).mean(1))


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.fft.rfft(x).abs())


class Branching(nn.Module):
    """Cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x if x.sum() > 0 else -x)


UNBOUNDED = {
    "group norm": (Grouped, "stem", "the layer GroupNorm has none known"),
    "lstm": (Recurrence, "stem", "the layer LSTM has none known"),
    "transformer": (Transformer, "stem", "the layer TransformerEncoderLayer has none known"),
    "inside a layer": (Transformer, "body.linear1", "no module 'body.linear1' is called"),
    "fft": (Spectrum, "input", "the operation 'fft_rfft' is not known"),
    "branches": (Branching, "input", "cannot be traced"),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_without_a_rigorous_bound_the_others_remain(name: str) -> None:
    make, site, why = UNBOUNDED[name]
    x, _ = batch(6, 16, dtype=torch.float64)
    net = build(make).double()
    y = net.eval()(x).argmax(1)
    found = margins(net, x, y, site=site)
    assert found.rigorous is None
    assert found.printed is None
    assert found.bounds is None
    assert why in found.why
    assert found.why in str(found)
    places = site_map(net, x, site=site)
    norm = output_norms(places).max() * feature_norms(net, x, site=site).max()
    assert torch.allclose(found.empirical, score(places.outputs, y) / norm)
    wrong = (y + 1) % 3
    assert bool((found.attack > 0).all())
    assert not margins(net, x, wrong, site=site).attack.any()


def test_with_a_rigorous_bound_there_is_no_excuse() -> None:
    x, y = examples(4)
    found = margins(smooth_net(), x, y)
    assert found.why == ""
    assert "rigorous" in str(found)
    with pytest.raises(SiteError, match="no site 'nowhere'"):  # a mistake is no missing bound
        margins(smooth_net(), x, y, site="nowhere")
