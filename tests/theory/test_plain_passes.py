"""Fused operations have no forward derivatives: networks made of them are measured by the plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from comparing import assert_close
from nets import ConvNet, batch, build
from nfm.core.noise import Noise
from nfm.errors import SiteError
from nfm.theory import adversarial_bound, derivatives, expansion, feature_norms, site_map
from nfm.theory.plain_passes import plain_passes


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.body = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x.view(len(x), 4, 4))).mean(1))


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(6, 3)
        self.body = nn.LSTM(8, 6, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x.view(len(x), 4, 4)))[0][:, -1])


NETWORKS = [Transformer, Recurrence]


def settings() -> list[bool]:
    backends = torch.backends
    return [backends.mha.get_fastpath_enabled(), backends.mkldnn.enabled, backends.cudnn.enabled]


@pytest.mark.parametrize("make", NETWORKS)
def test_both_derivatives_are_those_of_finite_differences(make: type[nn.Module]) -> None:
    net, (x, _) = build(make).double(), batch(3, 16, dtype=torch.float64)
    places = site_map(net, x, site="stem")
    v, w = (torch.randn(n, generator=torch.Generator().manual_seed(0)).double() for n in (places.size, 9))
    v, w, step = v.view(4, 8).expand(3, 4, 8), w.view(3, 3), 1e-3
    ahead, behind = (places(places.features + sign * step * v) for sign in (1, -1))
    assert_close([places.outputs], [net.eval()(x).detach()], relative=1e-9)
    assert_close([places.push(v)], [(ahead - behind) / (2 * step)], relative=1e-4)
    second = (w * (ahead + behind - 2 * places.outputs)).sum(1) / step**2
    assert_close([places.curvature(w, v)], [second], relative=1e-3)
    with pytest.raises(AssertionError):
        assert_close([places.curvature(w.flip(0), v)], [second], relative=1e-1)


@pytest.mark.parametrize("make", NETWORKS)
def test_they_are_measured_in_single_precision(make: type[nn.Module]) -> None:
    """The fused operations are those of float32."""
    net, (x, y) = build(make), batch(5, 16)
    before = settings()
    found = expansion(net, x, y, site="stem", noise=Noise(0.1, 0.1), eps=0.1, probes=2, draws=4)
    exact = expansion(
        net.double(), x.double(), y, site="stem", noise=Noise(0.1, 0.1), eps=0.1, probes=2, draws=4
    )
    assert found.terms.r2_total == pytest.approx(exact.terms.r2_total, rel=1e-3)
    assert found.terms.r3_total.value == pytest.approx(exact.terms.r3_total.value, rel=1e-2)
    assert found.terms.r3_total.value != 0
    net.float()
    assert adversarial_bound(net, x, y, sites=("stem", "input"), noise=Noise(0.1)).centred > 0
    assert bool((feature_norms(net, x, site="body") > 0).all())
    assert settings() == before


@pytest.mark.parametrize("make", NETWORKS)
def test_without_them_there_is_no_derivative(make: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def as_it_is(model: nn.Module) -> Iterator[None]:
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        yield
        for module, mode in modes:
            module.training = mode

    monkeypatch.setattr(derivatives, "plain_passes", as_it_is)
    net, (x, y) = build(make), batch(5, 16)
    with pytest.raises(SiteError, match="cannot be differentiated"):
        expansion(net, x, y, site="stem", noise=Noise(0.1, 0.1), probes=2, draws=2)


def test_everything_is_put_back_and_convolutions_keep_theirs() -> None:
    before = settings()
    assert all(before)
    with plain_passes(build(ConvNet)):
        assert settings() == [False, True, True]

    def fail() -> None:
        with plain_passes(build(Recurrence)):
            assert settings() == [False, False, False]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert settings() == before
