"""He-2015 networks: the padded shortcut against loops, the whole against functional references."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.models import build
from nfm.models.cifar_resnet import PadShortcut

State = dict[str, Tensor]


def norm(state: State, key: str, x: Tensor) -> Tensor:
    moments = state[f"{key}.running_mean"], state[f"{key}.running_var"]
    return F.batch_norm(x, *moments, state[f"{key}.weight"], state[f"{key}.bias"])


def padded_by_loops(x: Tensor, channels: int) -> Tensor:
    """Every second pixel; the old channels in the middle of the new ones (option A)."""
    batch, old, height, width = x.shape
    out = torch.zeros(batch, channels, (height + 1) // 2, (width + 1) // 2)
    for b in range(batch):
        for c in range(old):
            for i in range(0, height, 2):
                for j in range(0, width, 2):
                    out[b, c + (channels - old) // 2, i // 2, j // 2] = x[b, c, i, j]
    return out


@pytest.mark.parametrize("size", [4, 5])
def test_the_padded_shortcut_equals_explicit_loops(size: int, images) -> None:
    x = images(2, 4, size, size)
    assert torch.equal(PadShortcut(4, 2)(x), padded_by_loops(x, 8))
    assert not torch.equal(PadShortcut(4, 2)(x.flip(3)), padded_by_loops(x.flip(2), 8))


def cifar_reference(state: State, x: Tensor, blocks: int) -> Tensor:
    h = F.relu(norm(state, "stem.1", F.conv2d(x, state["stem.0.weight"], padding=1)))
    for stage in (1, 2, 3):
        for block in range(blocks):
            key, stride = f"stage{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            shortcut = padded_by_loops(h, 2 * h.shape[1]) if stride == 2 else h
            r = F.conv2d(h, state[f"{key}.conv1.weight"], stride=stride, padding=1)
            r = F.conv2d(F.relu(norm(state, f"{key}.norm1", r)), state[f"{key}.conv2.weight"], padding=1)
            h = F.relu(norm(state, f"{key}.norm2", r) + shortcut)
    return F.linear(h.mean(dim=(2, 3)), state["head.weight"], state["head.bias"])


@pytest.mark.parametrize("depth", [20, 32])
def test_cifar_networks_equal_the_reference(depth: int, scramble, images) -> None:
    model = scramble(build(f"cifar_resnet{depth}", num_classes=10))
    x, blocks = images(2, 3, 8, 8), (depth - 2) // 6
    with torch.no_grad():
        output, expected = model(x), cifar_reference(model.state_dict(), x, blocks)
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
        model.stage2[0].shortcut = PadShortcut(0, 2)  # negative control: break one shortcut
        model.stage2[0].shortcut.after = 16
        assert not torch.allclose(model(x), expected, rtol=1e-3)


def imagenet_reference(state: State, x: Tensor, counts: tuple[int, ...], *, bottleneck: bool) -> Tensor:
    """The article's network, with the stride of a bottleneck on its 3x3."""
    h = F.relu(norm(state, "stem.1", F.conv2d(x, state["stem.0.weight"], stride=2, padding=3)))
    h = F.max_pool2d(h, 3, stride=2, padding=1)
    for stage, blocks in enumerate(counts, start=1):
        for block in range(blocks):
            key, stride = f"stage{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            shortcut = h
            if f"{key}.shortcut.0.weight" in state:
                projected = F.conv2d(h, state[f"{key}.shortcut.0.weight"], stride=stride)
                shortcut = norm(state, f"{key}.shortcut.1", projected)
            steps = [(1, 0), (stride, 1), (1, 0)] if bottleneck else [(stride, 1), (1, 1)]
            for number, (step, padding) in enumerate(steps, start=1):
                h = F.conv2d(h, state[f"{key}.conv{number}.weight"], stride=step, padding=padding)
                h = norm(state, f"{key}.norm{number}", h)
                h = F.relu(h if number < len(steps) else h + shortcut)
    return F.linear(h.mean(dim=(2, 3)), state["head.weight"], state["head.bias"])


@pytest.mark.parametrize(("depth", "counts"), [(18, (2, 2, 2, 2)), (50, (3, 4, 6, 3))])
def test_networks_for_224_px_equal_the_reference(depth: int, counts: tuple[int, ...], images) -> None:
    model = build(f"resnet{depth}", num_classes=10, image_size=224).eval()
    x = images(2, 3, 64, 64)
    with torch.no_grad():
        output = model(x)
        state = model.state_dict()
        expected = imagenet_reference(state, x, counts, bottleneck=depth == 50)
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
        model.stage2[0].shortcut[0].weight.zero_()
        assert not torch.allclose(model(x), expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        ("resnet50", 1000, 25_557_032),  # 25.557M: timm and torchvision
        ("resnet18", 1000, 11_689_512),  # 11.690M: torchvision's documentation
        ("cifar_resnet20", 10, 269_722),  # .27M, arXiv:1512.03385 table 6
        ("cifar_resnet32", 10, 464_154),  # .46M, ibid.
        ("cifar_resnet44", 10, 658_586),  # .66M, ibid.
        ("cifar_resnet56", 10, 853_018),  # .85M, ibid.
    ],
)
def test_parameter_counts(name: str, classes: int, expected: int) -> None:
    assert sum(p.numel() for p in build(name, num_classes=classes).parameters()) == expected


def test_224_px_become_7(images) -> None:
    model = build("resnet18", num_classes=10, image_size=224).eval()
    shapes: list[tuple[int, ...]] = []
    model.stage4.register_forward_hook(lambda _m, _i, h: shapes.append(tuple(h.shape)))
    with torch.no_grad():
        model(images(1, 3, 224, 224))
    assert shapes == [(1, 512, 7, 7)]
