"""Our networks give what timm's give with the same weights (slow: skipped with a message without timm)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nfm.errors import EnvironmentProblem
from nfm.models import build, initialise

pytestmark = pytest.mark.slow

VIT = {
    "img_size": 32,
    "patch_size": 4,
    "embed_dim": 256,
    "depth": 7,
    "num_heads": 4,
    "mlp_ratio": 2,
    "qkv_bias": False,
}
VIT_NAMES = {
    "embed.class_token": "cls_token", "embed.positions": "pos_embed", "embed.project": "patch_embed.proj",
    "attention.qkv": "attn.qkv", "attention.project": "attn.proj", "mlp.0": "mlp.fc1", "mlp.2": "mlp.fc2",
}  # fmt: skip


def theirs_of(name: str, **options: object) -> nn.Module:
    try:
        return build(f"timm:{name}", num_classes=10, **options).net.eval()
    except EnvironmentProblem as error:
        pytest.skip(str(error))


def ours_of(name: str, **options: object) -> nn.Module:
    """Return our network with every number drawn, the running statistics included."""
    model = build(name, num_classes=10, **options).eval()
    initialise(model, 3)
    generator = torch.Generator().manual_seed(5)
    for value in model.state_dict().values():
        if value.is_floating_point() and value.ndim == 1:  # norms and biases: else all are 0 or 1
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return model


def copy_in_order(ours: nn.Module, theirs: nn.Module) -> None:
    """Give `theirs` our numbers; both name the same layers in the same order."""
    targets = theirs.state_dict()
    sources = list(ours.state_dict().values())
    assert len(sources) == len(targets)
    theirs.load_state_dict(
        {name: v.reshape(t.shape) for (name, t), v in zip(targets.items(), sources, strict=True)}
    )


def outputs(ours: nn.Module, theirs: nn.Module, size: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return ours(x), theirs(x)


def assert_close(ours: nn.Module, theirs: nn.Module, size: int) -> None:
    a, b = outputs(ours, theirs, size)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_networks_for_224_px(name: str) -> None:
    ours, theirs = ours_of(name, image_size=64), theirs_of(name)
    copy_in_order(ours, theirs)
    assert_close(ours, theirs, 64)
    with pytest.raises(AssertionError):
        assert_close(ours_of(name, image_size=64), theirs_of(name), 64)  # other weights, other outputs


@pytest.mark.parametrize(
    ("name", "stem", "form"),
    [
        ("preact_resnet18", 64, {}),
        ("wrn28_2", 16, {"layers": [4] * 3, "channels": (32, 64, 128), "stem_chs": 16}),
    ],
)
def test_preactivation_networks(name: str, stem: int, form: dict[str, object]) -> None:
    ours, theirs = ours_of(name), theirs_of("resnetv2_18", **form)
    theirs.stem = nn.Conv2d(3, stem, 3, padding=1, bias=False)  # timm has no stem for 32 px
    copy_in_order(ours, theirs)
    assert_close(ours, theirs, 32)


def test_the_authors_form_is_another_network() -> None:
    ours, theirs = ours_of("preact_resnet18"), ours_of("preact_resnet18", authors_form=True)
    with pytest.raises(AssertionError):
        assert_close(ours, theirs, 32)


def test_vit_lite() -> None:
    ours, theirs = ours_of("vit_lite_7_4"), theirs_of("vit_tiny_patch16_224", **VIT)
    renamed = {}
    for name, value in ours.state_dict().items():
        for old, new in VIT_NAMES.items():
            name = name.replace(old, new)
        renamed[name] = value
    theirs.load_state_dict(renamed)
    assert_close(ours, theirs, 32)
