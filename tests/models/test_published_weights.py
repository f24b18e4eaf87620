"""The published CIFAR-10 ResNets: our networks under their weights, on the real test images."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nfm.errors import CheckpointError
from nfm.models import build, load_cifar_resnet

# Errors on the 10,000 test images: 91.73, 92.63, 93.10 and 93.39 % are right.
PUBLISHED = {
    "resnet20-12fca82f.th": 827,
    "resnet32-d509ac18.th": 737,
    "resnet44-014dd654.th": 690,
    "resnet56-4bfd9763.th": 661,
}
RENAMED = {"stem.0": "conv1", "stem.1": "bn1", "head": "linear"}


def published_state(model: nn.Module) -> dict[str, Tensor]:
    """Write `model` as the published files are written: other names, no batch counters."""
    state = {}
    for key, value in model.state_dict().items():
        module, _, leaf = key.rpartition(".")
        theirs = RENAMED.get(module, module.replace("stage", "layer").replace("norm", "bn"))
        if not key.startswith("normalise") and leaf != "num_batches_tracked":
            state[f"module.{theirs}.{leaf}"] = value
    return state


@pytest.mark.parametrize("depth", [20, 44])
def test_a_file_under_published_names_gives_the_same_network(depth: int, scramble, images, tmp_path) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
    model = scramble(build(f"cifar_resnet{depth}", num_classes=10, mean=mean, std=std))
    torch.save({"state_dict": published_state(model), "best_prec1": 90.0}, tmp_path / "weights.th")
    loaded = load_cifar_resnet(tmp_path / "weights.th").eval()
    x = images(2, 3, 32, 32)
    assert torch.equal(loaded(x), model(x))
    fresh = build(f"cifar_resnet{depth}", num_classes=10, mean=mean, std=std).eval()
    assert not torch.allclose(fresh(x), model(x))


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.th"
    state = published_state(build("cifar_resnet20", num_classes=10))
    del state["module.layer2.1.conv1.weight"]
    cases = {
        "state_dict": [1, 2],
        "stage2.1.conv1.weight": {"state_dict": state},
        "cifar_resnet2": {"state_dict": {"a": torch.ones(1)}},
    }
    for words, content in cases.items():
        torch.save(content, path)
        with pytest.raises(CheckpointError, match=words):
            load_cifar_resnet(path)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(CheckpointError, match=r"expected a file of PyTorch weights"):
        load_cifar_resnet(path)
    with pytest.raises(CheckpointError, match=r"nowhere\.th"):
        load_cifar_resnet(tmp_path / "nowhere.th")


@pytest.fixture(scope="module")
def cifar10_test(real_data: Path) -> tuple[Tensor, Tensor]:
    sys.path.insert(0, str(real_data))
    try:
        packed = importlib.import_module("unpack").load(str(real_data / "cifar10.npz"))
    finally:
        sys.path.remove(str(real_data))
    pixels = torch.from_numpy(packed["x_test"].copy()).permute(0, 3, 1, 2).float() / 255
    return pixels, torch.from_numpy(packed["y_test"]).long()


def errors(model: nn.Module, x: Tensor, y: Tensor) -> int:
    with torch.inference_mode():
        return sum(
            int((model(a).argmax(1) != b).sum()) for a, b in zip(x.split(500), y.split(500), strict=True)
        )


@pytest.mark.slow
@pytest.mark.parametrize("file", PUBLISHED)
def test_published_accuracy(file: str, real_data: Path, cifar10_test: tuple[Tensor, Tensor]) -> None:
    model = load_cifar_resnet(real_data / "weights" / file).eval()
    x, y = cifar10_test
    # Two logits may tie up to rounding: one image of 10,000 may go either way on another machine.
    assert abs(errors(model, x, y) - PUBLISHED[file]) <= 1
    model.normalise = nn.Identity()
    assert errors(model, x[:500], y[:500]) > 100  # negative control: without its normalisation it is lost
