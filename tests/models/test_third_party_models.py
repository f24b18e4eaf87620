"""Networks of others: by factory for real, timm and torchvision through stand-ins of their interface."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from nfm.errors import EnvironmentProblem, UsageError
from nfm.models import build, replace_head

FACTORIES = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, in_channels=3, units=8):
        super().__init__()
        self.layer1 = nn.Conv2d(in_channels, units, 3)
        self.layer2 = nn.Conv2d(units, units, 3)
        self.layer3 = nn.Conv2d(units, units, 3)
        self.fc = nn.Linear(units, num_classes)

    def forward(self, x):
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))

def plain(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))

def with_size(*, num_classes, image_size, in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * image_size**2, num_classes))

def ours(num_classes):
    from nfm.models import build
    return build("small_conv", num_classes=num_classes)

def no_network(num_classes):
    return num_classes

def without_classes():
    return nn.Identity()

constant = 3
"""

TIMM = """
import torchvision
from torch import nn

def create_model(name, num_classes, in_chans, **options):
    if name != "known":
        raise RuntimeError(f"Unknown model ({name})")
    if options:
        raise TypeError("unexpected keyword argument")
    net = nn.Sequential()
    net.blocks = nn.Sequential(*(nn.Conv2d(in_chans, in_chans, 1) for _ in range(4)))
    net.pool = nn.Flatten()
    net.head = nn.Linear(in_chans * 64, num_classes)
    return net
"""

TORCHVISION_MODELS = """
from torch import nn

def get_model(name, weights=None, num_classes=1000):
    if name != "known":
        raise ValueError(f"Unknown model {name}")
    net = nn.Sequential()
    net.flatten = nn.Flatten()
    net.classifier = nn.Sequential(nn.Linear(192, 4), nn.Linear(4, num_classes))
    if weights:
        nn.init.ones_(net.classifier[0].weight)
    return net
"""

# What a torchvision without its compiled part does while it is imported.
BROKEN_TORCHVISION = """
import torch
import torchvision.extension

assert not torchvision.extension.loaded

@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    return dets
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder on the import path; what was imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(sys.modules)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


@pytest.fixture
def factories(packages: Path) -> str:
    (packages / "nfm_test_factories.py").write_text(FACTORIES)
    return "module:nfm_test_factories"


@pytest.fixture
def zoo(packages: Path) -> Path:
    (packages / "timm.py").write_text(TIMM)
    (packages / "torchvision").mkdir()
    (packages / "torchvision" / "__init__.py").write_text("")
    (packages / "torchvision" / "models.py").write_text(TORCHVISION_MODELS)
    return packages


def test_a_factory_gives_a_normalised_network_with_its_stages_as_sites(factories: str, images) -> None:
    model = build(f"{factories}:Net", num_classes=4, in_channels=1, mean=(0.5,), std=(0.25,), units=6)
    x = images(2, 1, 8, 8)
    assert next(iter(model.named_children()))[0] == "normalise"
    assert model.default_sites == ("input", "net.layer1", "net.layer2", "net.layer3")
    assert model.net.layer1.out_channels == 6
    torch.testing.assert_close(model(x), model.net((x - 0.5) / 0.25))
    assert not torch.allclose(model(x), model.net(x))


def test_factories_are_drawn_from_the_seed_alone(factories: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        return build(f"{factories}:Net", num_classes=4, seed=seed).net.fc.weight

    before = torch.get_rng_state()
    first = weights(3)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(5)
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


def test_size_and_channels_are_handed_over_where_they_are_named(factories: str, images) -> None:
    assert build(f"{factories}:plain", num_classes=4).net[1].in_features == 192
    model = build(f"{factories}:with_size", num_classes=4, in_channels=1, image_size=6)
    assert model(images(2, 1, 6, 6)).shape == (2, 4)


def test_a_layout_without_known_stages_has_no_default_sites(factories: str) -> None:
    assert build(f"{factories}:plain", num_classes=4).default_sites == ()


def test_a_network_of_ours_keeps_its_own_sites(factories: str) -> None:
    model = build(f"{factories}:ours", num_classes=4)
    assert model.default_sites == ("input", "net.stage1", "net.stage2")


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("Nett", {}, ["no factory 'Nett'", "did you mean 'Net'"]),
        ("constant", {}, ["no factory 'constant'"]),
        ("Net", {"unit": 3}, ["unexpected keyword argument 'unit'", "num_classes, in_channels, units"]),
        ("without_classes", {}, ["it takes: nothing", "num_classes"]),
        ("no_network", {}, ["expected a factory of torch.nn.Module", "int"]),
    ],
)
def test_bad_factories_are_refused(factories: str, path: str, options: dict, words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        build(f"{factories}:{path}", num_classes=4, **options)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize("name", ["module:nowhere_at_all:make", "module:math", "module::make"])
def test_bad_paths_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"nowhere_at_all|expected module:PACKAGE\.MODULE:FACTORY"):
        build(name, num_classes=2)


def test_timm_names_reach_timm(zoo: Path, images) -> None:
    model = build("timm:known", num_classes=5)
    assert model.default_sites == ("input", "net.blocks.0", "net.blocks.1", "net.blocks.2")
    assert model(images(2, 3, 8, 8)).shape == (2, 5)
    with pytest.raises(UsageError, match=r"timm:other: Unknown model"):
        build("timm:other", num_classes=5)
    with pytest.raises(UsageError, match=r"timm:known: unexpected keyword"):
        build("timm:known", num_classes=5, wings=2)


def test_torchvision_names_reach_torchvision(zoo: Path) -> None:
    fresh = build("torchvision:known", num_classes=5)
    assert fresh.net.classifier[1].out_features == 5
    with pytest.raises(UsageError, match=r"torchvision:other: Unknown model"):
        build("torchvision:other", num_classes=5)
    with pytest.raises(UsageError, match=r"3 channels, got in_channels=1"):
        build("torchvision:known", num_classes=5, in_channels=1)


def test_published_torchvision_weights_keep_their_body_and_get_a_new_head(zoo: Path) -> None:
    tuned, other = (
        build("torchvision:known", num_classes=5, weights="DEFAULT", seed=seed) for seed in (0, 1)
    )
    assert tuned.net.classifier[0].weight.eq(1).all()
    assert tuned.net.classifier[1].out_features == 5
    assert not torch.equal(tuned.net.classifier[1].weight, other.net.classifier[1].weight)


@pytest.mark.parametrize("failure", ["raise ImportError('gone')", "raise RuntimeError('broken build')"])
@pytest.mark.parametrize(("package", "name"), [("torchvision", "torchvision:known"), ("timm", "timm:known")])
def test_a_missing_or_broken_library_says_how_to_install_it(
    zoo: Path, package: str, name: str, failure: str
) -> None:
    broken = zoo / "torchvision" / "__init__.py" if package == "torchvision" else zoo / "timm.py"
    broken.write_text(failure)
    with pytest.raises(EnvironmentProblem, match=rf"{name} needs {package}.*noisy-feature-mixup\[zoo\]"):
        build(name, num_classes=5)


TRY = """
try:
    import torchvision
except RuntimeError as error:
    assert "operator torchvision::nms does not exist" in str(error)  # broken as the real one is
else:
    raise SystemExit("the stand-in is not broken")
"""

ASK = """
import nfm.models
print(nfm.models.build("timm:known", num_classes=3).net.head.out_features)
print(nfm.models.build("torchvision:known", num_classes=4).net.classifier[1].out_features)
"""


@pytest.mark.parametrize("script", [ASK, TRY + ASK], ids=["fresh", "failed before"])
def test_a_torchvision_without_operators_is_imported_all_the_same(zoo: Path, script: str) -> None:
    """In a process of its own: operators are declared for the life of a process."""
    (zoo / "torchvision" / "__init__.py").write_text(BROKEN_TORCHVISION)
    (zoo / "torchvision" / "extension.py").write_text("loaded = False")
    code = f"import sys; sys.path.insert(0, {str(zoo)!r})\n{script}"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["3", "4"]


def test_importing_our_models_imports_no_third_party() -> None:
    script = "import sys, nfm.models; print({'timm', 'torchvision', 'torch._dynamo'} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "set()"


def build_with_timm(name: str, **options: object) -> nn.Module:
    try:
        return build(f"timm:{name}", **options).net
    except EnvironmentProblem as error:
        pytest.skip(str(error))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.slow
def test_vit_lite_is_as_large_as_timms() -> None:
    form = {"img_size": 32, "patch_size": 4, "embed_dim": 256, "depth": 7, "num_heads": 4, "mlp_ratio": 2}
    theirs = build_with_timm("vit_tiny_patch16_224", num_classes=10, qkv_bias=False, **form)
    assert count(theirs) == count(build("vit_lite_7_4", num_classes=10))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stem", "form"),
    [
        ("preact_resnet18", 64, {}),
        *(
            (f"wrn28_{k}", 16, {"layers": [4] * 3, "channels": (16 * k, 32 * k, 64 * k), "stem_chs": 16})
            for k in (2, 4, 10)
        ),
    ],
)
def test_preactivation_networks_are_as_large_as_timms(name: str, stem: int, form: dict) -> None:
    theirs = build_with_timm("resnetv2_18", num_classes=10, **form)
    theirs.stem = nn.Conv2d(3, stem, 3, padding=1, bias=False)  # timm has no stem for 32 px
    assert count(theirs) == count(build(name, num_classes=10))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_networks_for_224_px_are_as_large_as_timms_and_take_a_new_head(name: str) -> None:
    theirs = build_with_timm(name, num_classes=1000)
    assert count(theirs) == count(build(name, num_classes=1000))
    assert replace_head(theirs, 7) == "fc"
