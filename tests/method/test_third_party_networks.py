"""Inside networks of timm, torchvision and Hugging Face, built without weights. Skipped where not installed."""

from __future__ import annotations

import importlib
from contextlib import suppress
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from by_hook import assert_works_inside
from torch import Tensor, nn

import nfm
from nets import batch, build
from nfm.errors import EnvironmentProblem
from nfm.models.torchvision_compat import import_torchvision

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # theirs, when they are imported
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TIMM = {
    "resnet18": ({}, 32),
    "vit_tiny_patch16_224": ({"img_size": 32, "patch_size": 8, "depth": 4, "embed_dim": 24}, 32),
    "convnext_atto": ({}, 64),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (1, 1, 2, 1), "num_heads": (1, 2, 4, 8)}, 64,
    ),
    "mixer_s32_224": ({"img_size": 64}, 64),
}  # fmt: skip


def import_or_skip(name: str) -> ModuleType:
    """Import a package; a torchvision whose compiled part does not load is repaired first, where there is one."""
    with suppress(EnvironmentProblem):
        import_torchvision("a test")
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} does not import here, its networks were not tried: {error}")


@pytest.mark.parametrize("name", list(TIMM))
def test_timm(name: str) -> None:
    timm = import_or_skip("timm")
    options, size = TIMM[name]
    net = build(lambda: timm.create_model(name, num_classes=3, drop_path_rate=0.0, **options))
    x, y = batch(4, 3, size, size)
    sites = nfm.find_sites(net)
    assert sites[0] == "input"
    assert len(sites) >= 3
    assert_works_inside(net, x, y, sites=sites)


def test_torchvision_resnet() -> None:
    import_or_skip("torchvision")
    from torchvision.models import resnet18

    net, (x, y) = build(lambda: resnet18(weights=None, num_classes=3)), batch(4, 3, 32, 32)
    assert nfm.find_sites(net) == ["input", "layer1", "layer2", "layer3"]
    assert list(nfm.NoisyFeatureMixup(sites=["input", "layer[1-3]"]).sites_of(net)) == nfm.find_sites(net)
    assert_works_inside(net, x, y, sites=nfm.find_sites(net))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def text() -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 30, (6, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}, torch.arange(6) % 3


def test_a_text_classifier() -> None:
    import_or_skip("transformers")
    net, (x, y) = build(bert), text()
    sites = nfm.find_sites(net)
    assert sites == ["bert.encoder.layer.0", "bert.encoder.layer.1"]
    sites = ["bert.embeddings", *sites]
    assert_works_inside(net, x, y, sites=sites, criterion=lambda output, y: F.cross_entropy(output.logits, y))


def test_a_text_classifiers_whole_output() -> None:
    """The output object itself may be handed to the loss."""
    import_or_skip("transformers")
    net, (x, y) = build(bert), text()
    with nfm.attach(net, "nfm", sites=["bert.encoder.layer.*"]) as mixer:
        output = net(**x)
        whole = mixer.loss(output, y, lambda output, y: F.cross_entropy(output.logits, y))
        assert torch.isclose(whole, mixer.loss(output.logits, y), rtol=1e-6)
        whole.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
