"""check(): proves that each site fires once and carries the batch, and leaves the network as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import nfm
from comparing import assert_global_generators_untouched, assert_same, hooks_in
from nets import ConvNet, Mlp, Recurrent, ResidualNet, Tokens, TwoInputs, batch, build
from nfm.errors import SiteError


def check(model: nn.Module, x, *sites: str, **settings):
    return nfm.NoisyFeatureMixup(sites=sites or None, **settings).check(model, x)


def test_the_plan_tells_shapes_and_parameters() -> None:
    net, (x, _) = build(Mlp), batch(5, 4)
    rows = {row.site: row for row in check(net, x, *Mlp.sites).rows}
    total = sum(parameter.numel() for parameter in net.parameters())
    stem = 4 * 8 + 8
    assert rows["input"].shape == (5, 4)
    assert (rows["input"].parameters_before, rows["input"].parameters_after) == (0, total)
    assert rows["stem"].shape == (5, 8)
    assert (rows["stem"].parameters_before, rows["stem"].parameters_after) == (stem, total - stem)
    assert rows["second"].parameters_after == 8 * 3 + 3
    assert not any(row.bypassed for row in rows.values())


def test_the_plan_prints() -> None:
    net, (x, _) = build(Mlp), batch(5, 4)
    lines = str(check(net, x, "input", "first")).splitlines()
    assert lines[0] == "Mlp: one of 2 sites a step"
    assert lines[1].split() == ["site", "module", "shape", "parameters", "before", "after"]
    assert lines[2].split() == ["input", "-", "5x4", "0", "211"]
    assert lines[3].split() == ["first", "Sequential", "5x8", "112", "99"]


def test_a_site_inside_a_residual_branch_is_told() -> None:
    net, (x, _) = build(ResidualNet), batch(5, 4)
    plan = check(net, x, "input", "blocks.0", "blocks.0.inner", "blocks.1.act")
    assert [row.bypassed for row in plan.rows] == [False, False, True, True]
    assert str(plan).count("a path leads around it") == 2


def test_a_bypass_is_told_for_tokens_too() -> None:
    net, tokens = build(Tokens), torch.arange(15).reshape(3, 5) % 11
    plan = check(net, tokens, "embedding", "encoder.layers.0", "encoder.layers.1.self_attn:0")
    assert [row.bypassed for row in plan.rows] == [False, False, True]


def test_nothing_is_changed_by_a_dry_run() -> None:
    net, (x, _) = build(ConvNet), batch(5, 3, 6, 6)
    net.second.eval()
    foreign = net.first.register_forward_hook(lambda *_: None)
    modes = [module.training for module in net.modules()]
    before = [tensor.clone() for tensor in net.state_dict().values()]
    x.requires_grad_()
    with assert_global_generators_untouched():
        check(net, x, *ConvNet.sites)
    assert_same(list(net.state_dict().values()), before)
    assert [module.training for module in net.modules()] == modes
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())
    assert x.grad is None
    assert hooks_in(net) == 1
    foreign.remove()
    net(x)  # the control: a training forward pass does change the buffers
    with pytest.raises(AssertionError):
        assert_same(list(net.state_dict().values()), before)


def test_an_attached_network_can_be_checked_and_takes_no_step() -> None:
    net, (x, _) = build(Mlp), batch(5, 4)
    with nfm.attach(net, "nfm", sites=Mlp.sites) as mixer:
        installed = hooks_in(net)
        assert len(mixer.method.check(net, x).rows) == 4
        assert hooks_in(net) == installed
        assert mixer.method.step == 0


def test_frozen_parameters_stay_frozen() -> None:
    net, (x, _) = build(Mlp), batch(5, 4)
    net.stem.requires_grad_(False)
    check(net, x, *Mlp.sites)
    assert [p.requires_grad for p in net.parameters()] == [False] * 2 + [True] * 6


def test_a_failing_network_leaves_no_hook_and_its_modes() -> None:
    class Failing(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError("inside")

    net, (x, _) = Failing(), batch(5, 4)
    with pytest.raises(ValueError, match="inside"):
        check(net, x, *Mlp.sites)
    assert hooks_in(net) == 0
    assert net.training


class Shared(nn.Module):
    """Uses one module twice and another never."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.unused, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.shared(torch.tanh(self.shared(x))))


@pytest.mark.parametrize(("site", "times"), [("shared", 2), ("unused", 0)])
def test_a_site_must_fire_exactly_once(site: str, times: int) -> None:
    net, (x, y) = Shared(), batch(5, 4)
    message = f"expected site '{site}' to fire exactly once a forward pass.*it fired {times} times"
    with pytest.raises(SiteError, match=message):
        check(net, x, site)
    with pytest.raises(SiteError, match=message):
        nfm.NoisyFeatureMixup(sites=site)(net, x, y)
    with nfm.attach(net, "nfm", sites=[site]), pytest.raises(SiteError, match=message):
        net(x)


class Flattened(nn.Module):
    """Folds batch and time together, as token-wise networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.flat(x.flatten(0, 1))
        return self.head(h.unflatten(0, x.shape[:2]).mean(1))


def test_a_site_whose_rows_are_no_examples_is_refused_with_both_sizes() -> None:
    net, (x, y) = Flattened(), batch(5, 2, 4)
    message = r"site 'flat' does not carry the batch: expected 5 in dim 0, got shape \(10, 4\)"
    with pytest.raises(SiteError, match=message):
        check(net, x, "flat")
    with pytest.raises(SiteError, match=message):
        nfm.NoisyFeatureMixup(sites="flat")(net, x, y)


@pytest.mark.parametrize("length", [5, 7])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_time_first_features_are_refused(kind: type[nn.RNNBase], length: int) -> None:
    """Also where time and batch have the same length, which no shape can tell."""
    net, (x, _) = build(lambda: Recurrent(kind, time_first=True)), batch(5, length, 4)
    with pytest.raises(SiteError, match="site 'rnn:0' does not carry the batch"):
        check(net, x, "rnn:0")
    assert check(net, x, "input").rows[0].shape == (5, length, 4)


def test_time_first_inputs_are_refused() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][-1])

    for length in (5, 7):
        with pytest.raises(SiteError, match="the output of TimeFirst does not carry the batch"):
            check(build(TimeFirst), batch(length, 5, 4)[0], "input")


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_batch_first_recurrent_networks_pass(kind: type[nn.RNNBase]) -> None:
    net, (x, _) = build(lambda: Recurrent(kind)), batch(5, 7, 4)
    assert check(net, x, "input", "rnn:0").rows[1].shape == (5, 7, 8)


def test_several_inputs_are_one_site() -> None:
    net, x = build(TwoInputs), (batch(5, 4)[0], batch(5, 2)[0], torch.ones(5).bool())
    plan = check(net, x, "input", "left", inputs=["image", "depth"])
    assert [row.shape for row in plan.rows] == [(5, 4), (5, 8)]
    assert [row.bypassed for row in plan.rows] == [False, True]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_pass(dtype: torch.dtype) -> None:
    net, (x, _) = build(Mlp).to(dtype), batch(5, 4, dtype=dtype)
    assert len(check(net, x, *Mlp.sites).rows) == 4


def test_infinite_features_are_refused() -> None:
    net, (x, _) = build(Mlp), batch(5, 4)
    x[2] = torch.nan
    with pytest.raises(ValueError, match="expected finite features at site 'input'"):
        check(net, x, *Mlp.sites)


def test_an_unknown_site_is_refused_before_anything_runs() -> None:
    class Untouchable(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("was run")

    with pytest.raises(SiteError, match="did you mean 'second'"):
        check(Untouchable(), batch(5, 4)[0], "secnd")
