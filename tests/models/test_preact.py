"""Pre-activation networks against a plain functional reference, and their parameter counts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.models import Task, build
from nfm.models.wide import WideResNet

COUNTS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
State = dict[str, Tensor]


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def norm_relu(state: State, key: str, x: Tensor) -> Tensor:
    moments = state[f"{key}.running_mean"], state[f"{key}.running_var"]
    return F.relu(F.batch_norm(x, *moments, state[f"{key}.weight"], state[f"{key}.bias"]))


def reference_block(
    state: State, key: str, x: Tensor, *, stride: int, bottleneck: bool, authors: bool
) -> Tensor:
    """Write one block out as the articles draw it."""
    first = norm_relu(state, f"{key}.norm1", x)
    if f"{key}.shortcut.weight" in state:
        shortcut = F.conv2d(first, state[f"{key}.shortcut.weight"], stride=stride)
    else:
        shortcut = first if authors else x
    if bottleneck:
        h = F.conv2d(first, state[f"{key}.conv1.weight"])
        h = F.conv2d(
            norm_relu(state, f"{key}.norm2", h), state[f"{key}.conv2.weight"], stride=stride, padding=1
        )
        h = F.conv2d(norm_relu(state, f"{key}.norm3", h), state[f"{key}.conv3.weight"])
    else:
        h = F.conv2d(first, state[f"{key}.conv1.weight"], stride=stride, padding=1)
        h = F.conv2d(norm_relu(state, f"{key}.norm2", h), state[f"{key}.conv2.weight"], padding=1)
    return h + shortcut


def reference(state: State, x: Tensor, counts, *, bottleneck: bool = False, authors: bool = False) -> Tensor:
    h = F.conv2d(x, state["stem.weight"], padding=1)
    for stage, blocks in enumerate(counts, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            key = f"stage{stage}.{block}"
            h = reference_block(state, key, h, stride=stride, bottleneck=bottleneck, authors=authors)
    h = h if authors else norm_relu(state, "final.0", h)
    return F.linear(F.adaptive_avg_pool2d(h, 1).flatten(1), state["head.weight"], state["head.bias"])


@pytest.mark.parametrize("authors", [False, True])
@pytest.mark.parametrize("depth", [18, 34, 50])
def test_forward_equals_the_reference(depth: int, authors: bool, scramble, images) -> None:
    model = scramble(build(f"preact_resnet{depth}", num_classes=10, width=0.25, authors_form=authors))
    x, state = images(2, 3, 16, 16), model.state_dict()
    with torch.no_grad():
        output = model(x)
        expected = reference(state, x, COUNTS[depth], bottleneck=depth == 50, authors=authors)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


def test_the_two_forms_differ_by_shortcut_and_by_final_norm(scramble, images) -> None:
    """Negative control: the reference of one form does not describe the other."""
    model = scramble(build("preact_resnet18", num_classes=10, width=0.25, authors_form=True))
    x, state = images(2, 3, 16, 16), model.state_dict()
    with torch.no_grad():
        output = model(x)
        model.stage1[1].shortcut_from_norm = False
        assert not torch.allclose(model(x), output, rtol=1e-3)
    assert "final.0.weight" not in state
    assert "final.0.weight" in build("preact_resnet18", num_classes=10, width=0.25).state_dict()


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("preact_resnet18", {}, 11_172_170),  # 11.1722M: timm's resnetv2_18 with a 3x3 stem
        ("preact_resnet18", {"authors_form": True}, 11_172_170 - 2 * 512),  # without the final norm
        ("wrn28_2", {}, 1_467_610),  # 1.468M, timm's equivalent
        ("wrn28_4", {}, 5_849_050),  # 5.849M, timm's equivalent
        ("wrn28_10", {}, 36_479_194),  # 36.479M, timm's equivalent; "36.5M" in arXiv:1605.07146
    ],
)
def test_parameter_counts(name: str, options: dict, expected: int) -> None:
    assert count(build(name, num_classes=10, **options)) == expected


@pytest.mark.parametrize(
    ("width", "channels"), [(0.25, [16, 16, 32, 64, 128]), (2, [128, 128, 256, 512, 1024])]
)
def test_width_multiplies_every_channel_count(width: float, channels: list[int]) -> None:
    model = build("preact_resnet18", num_classes=10, width=width)
    stages = [getattr(model, f"stage{number}")[-1].conv2.out_channels for number in range(1, 5)]
    assert [model.stem.out_channels, *stages] == channels
    assert model.head.in_features == channels[-1]


@pytest.mark.parametrize("depth", [16, 22])
def test_wide_networks_equal_the_reference(depth: int, scramble, images) -> None:
    model = scramble(WideResNet(depth, 2, Task(num_classes=100)))
    x, blocks = images(2, 3, 16, 16), (depth - 4) // 6
    with torch.no_grad():
        torch.testing.assert_close(
            model(x), reference(model.state_dict(), x, [blocks] * 3), rtol=1e-4, atol=1e-4
        )
    assert model.head.out_features == 100


def test_a_wide_depth_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"6 n \+ 4.*got 30"):
        WideResNet(30, 2, Task(num_classes=10))


def test_wide_dropout_acts_between_the_convolutions_and_only_in_training(images) -> None:
    model = build("wrn40_2", num_classes=10, dropout=0.3)
    block, x = model.stage2[0], images(4, 32, 8, 8)
    seen: list[Tensor] = []
    block.conv2.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    first = F.relu(block.norm1(x))
    before = F.relu(block.norm2(block.conv1(first)))
    block(x)
    kept = seen[0] != 0
    torch.testing.assert_close(seen[0][kept], (before / 0.7)[kept])
    share = 1 - (kept & (before > 0)).sum().item() / (before > 0).sum().item()
    assert abs(share - 0.3) < 0.05  # 4096 positive values or so: a standard error below .01
    block.eval()(x)
    assert torch.equal(block(x), block(x))
