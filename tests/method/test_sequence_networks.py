"""Inside transformers and recurrent networks of torch itself."""

from __future__ import annotations

import pytest
import torch
from by_hook import assert_works_inside, step_by_hook
from torch import nn

import nfm
from comparing import assert_different, gradients
from nets import Mlp, Recurrent, Tokens, batch, build


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 11, (6, 5), generator=generator), torch.arange(6) % 3


def test_a_transformer_encoder_over_tokens() -> None:
    net, (x, y) = build(Tokens), tokens()
    assert_works_inside(net, x, y, sites=["embedding", *nfm.find_sites(net)])


def test_a_transformer_encoder_with_a_padding_mask() -> None:
    net, (x, y) = build(Tokens), tokens()
    padding = torch.zeros(6, 5, dtype=torch.bool)
    padding[::2, 3:] = True
    assert_works_inside(net, {"tokens": x, "padding": padding}, y, sites=nfm.find_sites(net))


def test_a_transformer_encoder_over_features() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.encoder(x)[:, 0])

    net, (x, y) = build(Net), batch(6, 5, 8)
    assert nfm.find_sites(net) == ["input", "encoder.layers.0", "encoder.layers.1"]
    assert_works_inside(net, x, y, sites=nfm.find_sites(net))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_networks(kind: type[nn.RNNBase]) -> None:
    net, (x, y) = build(lambda: Recurrent(kind)), batch(6, 7, 4)
    assert_works_inside(net, x, y, sites=["input", "rnn:0"])


def test_dropout_and_mixing_do_not_disturb_each_other() -> None:
    """Dropout reads the global generator, ours does not: the same masks with and without mixing."""
    net, (x, y) = build(lambda: Tokens(dropout=0.3)), tokens()
    found = []
    for form in ("functional", "hook"):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            outcome = nfm.NoisyFeatureMixup(sites="encoder.layers.0", seed=2)(net, x, y, step=0)
            if form == "hook":
                torch.default_generator.manual_seed(1)
                loss = step_by_hook(net, x, y, outcome.draw, nn.functional.cross_entropy)
            else:
                loss = outcome.loss
            found.append(gradients(loss, net))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_another_draw_would_show() -> None:
    """The control of the comparisons with a hook written by hand."""
    net, (x, y) = build(Mlp), batch(6, 4)
    outcome = nfm.NoisyFeatureMixup(sites="first", seed=2)(net, x, y)
    other = nfm.NoisyFeatureMixup(sites="first", seed=3)(net, x, y)
    by_hand = step_by_hook(net, x, y, other.draw, nn.functional.cross_entropy)
    assert_different(gradients(outcome.loss, net), gradients(by_hand, net))
