"""Recipes: all errors at once, by key; the nearest name; overrides; and every recipe there is builds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nfm.config.build import build_augment, build_data, build_method, build_model, facts_of
from nfm.config.read import parse_value, read_config
from nfm.config.recipes import find_recipe, head_of, recipe_names, recipes_folder
from nfm.config.schema import Config, Facts
from nfm.data import DATA
from nfm.errors import ConfigError, UsageError
from nfm.method.schemes import SCHEMES
from nfm.models import MODELS
from nfm.train.optim import OPTIMIZERS
from nfm.train.schedule import SHAPES

RECIPE = """
[data]
name = "digits"
subset = 100

[model]
name = "mlp"
options = { units = 32 }
freeze = ["hidden1.*"]

[method]
scheme = "nfm"
noise = { add = 0.5 }

[optimizer]
name = "adamw"
lr = 1e-3
betas = [0.8, 0.9]
rates = { "head*" = 0.5 }

[schedule]
name = "step"
milestones = [2, 3]
warmup = 1

[train]
epochs = 4
ema = 0.9
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def refused(overrides: list[str], path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as told:
        read_config(path, overrides)
    return str(told.value)


def test_a_recipe_is_read(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, RECIPE))
    assert config.data.subset == 100
    assert config.model.options == {"units": 32}
    assert config.model.freeze == ("hidden1.*",)
    assert config.method.noise == {"add": 0.5}
    assert config.optimizer.betas == (0.8, 0.9)
    assert config.optimizer.rates == {"head*": 0.5}
    assert config.schedule.milestones == (2, 3)
    assert config.schedule.warmup == 1.0
    assert isinstance(config.schedule.warmup, float)
    assert config.train.epochs == 4


def test_nothing_means_the_defaults() -> None:
    assert read_config(None) == Config()


WRONG = """
[data]
name = "cifar"
subzet = 3
[train]
epochs = "many"
[optimizer]
lr = true
[trian]
a = 1
"""


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    told = refused(["method.scheme=nfmm", "model.name=resnet", "nonsense"], write(tmp_path, WRONG))
    assert told.startswith("7 errors:\n")
    for words in (
        "--set: expected key=value", "unknown key 'data.subzet'", "(did you mean 'subset'?)",
        "train.epochs: expected a whole number, got 'many'", "optimizer.lr: expected a number, got True",
        "unknown key 'trian'", "(did you mean 'train'?)", "method: ", "'nfmm'", "model: ", "'resnet'",
    ):  # fmt: skip
        assert words in told


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("data.nmae=x", "unknown key 'data.nmae'; known here: name, root,"),
        ("epochs=3", "unknown key 'epochs'; known here: data, model, method,"),
        ("train=3", "train: expected a table, got 3"),
        ("train.epochs=1.5", "train.epochs: expected a whole number, got 1.5"),
        ("train.epochs=true", "train.epochs: expected a whole number, got True"),
        ("train.seed=-1", "train: seed: expected a whole number from 0"),
        ("train.seed=4294967296", "train: seed: expected a whole number from 0"),
        ("train.seed=abc", "train.seed: expected a whole number, got 'abc'"),
        ("train.compile=1", "train.compile: expected true or false, got 1"),
        ("train.precision=half", "train.precision: expected one of float32, bfloat16, float16, got 'half'"),
        ("data.name=3", "data.name: expected a text, got 3"),
        ("data.augment=flip", "data.augment: expected one of none, crop_flip"),
        ("model.freeze=3", "model.freeze: expected a list, got 3"),
        ("model.freeze=[3]", "model.freeze[0]: expected a text, got 3"),
        ("model.options=3", "model.options: expected a table, got 3"),
        ("optimizer.betas=[0.9]", "optimizer: optimizer.betas: expected two numbers"),
        ("optimizer.lr=nan", "optimizer: optimizer.lr: expected a finite number"),
        ("optimizer.lr=inf", "optimizer: optimizer.lr: expected a finite number"),
        ("optimizer.name=lion", "unknown optimizer 'lion'; known: sgd, adamw, adam"),
        ("schedule.milestones=[5, 2]", "schedule: schedule.milestones: expected rising epochs"),
        ("method.scheme=cutmixx", "(did you mean 'cutmix'?)"),
        ("data.name=cifra10", "(did you mean 'cifar10'?)"),
        ("model.name=tim:resnet18", "(did you mean 'timm'?)"),
        ("=3", "--set: expected key=value"),
        ("train.epochs", "--set: expected key=value"),
        ("train.epochs.more=3", "train.epochs: expected a whole number, got {'more': 3}"),
    ],
)  # fmt: skip
def test_an_error_says_its_key_what_was_expected_and_what_came(override: str, told: str) -> None:
    assert told in refused([override])


def test_a_value_is_no_table(tmp_path: Path) -> None:
    path = write(tmp_path, "[train]\nepochs = 3\n")
    assert "'epochs' is a value, not a table" in refused(["train.epochs.more=3"], path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[train]\nepochs = 1\nepochs = 2\n", "expected TOML"),
        ("[train]\nepochs = 1\n[train]\nseed = 2\n", "expected TOML"),
        ("train: {epochs: 3}\n", "expected TOML"),
        ("!!python/object/apply:os.system ['true']\n", "expected TOML"),
        ("a = " + "[" * 5000, "expected TOML"),
    ],
)
def test_what_is_no_plain_toml_is_refused(tmp_path: Path, content: str, told: str) -> None:
    assert told in refused([], write(tmp_path, content))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refused([], tmp_path / "none.toml")
    assert "Is a directory" in refused([], tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"[data]\nname = '\xe9'\n")
    assert "expected TOML" in refused([], tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("0.5", 0.5), ("1e-3", 1e-3), ("true", True), ("cifar10", "cifar10"), ('"3"', "3"), ("", ""),
        ("[1, 2]", [1, 2]), ("{a = 1}", {"a": 1}), ("a b", "a b"), ("../x", "../x"), ("1\nx = 2", "1\nx = 2"),
        ("inf", float("inf")),
    ],
)  # fmt: skip
def test_values_are_toml_or_text(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_overrides_win_in_order_and_reach_deep(tmp_path: Path) -> None:
    config = read_config(
        write(tmp_path, RECIPE),
        [
            "train.epochs=7",
            "train.epochs=8",
            "method.noise.mult=0.25",
            "model.options.depth=3",
            'optimizer.rates."a.b*"=2',
        ],
    )
    assert config.train.epochs == 8
    assert config.method.noise == {"add": 0.5, "mult": 0.25}
    assert config.model.options == {"units": 32, "depth": 3}
    assert config.optimizer.rates == {"head*": 0.5, "a.b*": 2}


REGISTERED = [
    *(("data.name", name) for name in DATA),
    *(("model.name", name) for name in MODELS),
    *(("method.scheme", name) for name in SCHEMES),
    *(("optimizer.name", name) for name in OPTIMIZERS),
    *(("schedule.name", name) for name in SHAPES),
]


@pytest.mark.parametrize(("key", "name"), REGISTERED)
def test_every_registered_name_is_taken(key: str, name: str) -> None:
    config: Any = read_config(None, [f"{key}={name}"])
    table, _, field = key.partition(".")
    assert getattr(getattr(config, table), field) == name
    assert name in refused([f"{key}={name}x"])  # the control: one letter more is not


@pytest.mark.parametrize("option", ["units=3.5", "unist=3"])
def test_options_of_a_network_are_checked(option: str) -> None:
    config = read_config(None, ["model.name=mlp", f"model.options.{option}"])
    with pytest.raises(UsageError, match="model 'mlp'"):
        build_model(config.model, facts_of(build_data(config.data)), seed=0)


def test_unknown_noise_is_refused_with_the_nearest() -> None:
    config = read_config(None, ["method.noise.ad=0.5"])
    with pytest.raises(ConfigError, match=r"method.noise.ad'.*did you mean 'add'"):
        build_method(config.method, seed=0)


TEN = tuple("0123456789")
FACTS = {  # data that is not at hand is stood in for
    "digits": Facts((1, 8, 8), TEN, (0.3,), (0.4,)),
    "cifar10": Facts((3, 32, 32), TEN, (0.5,) * 3, (0.2,) * 3),
    "cifar100": Facts((3, 32, 32), tuple(map(str, range(100))), (0.5,) * 3, (0.2,) * 3),
    "circles": Facts((2,), ("0", "1"), (0.0,) * 2, (1.0,) * 2),
    "moons": Facts((2,), ("0", "1"), (0.0,) * 2, (1.0,) * 2),
}
LARGE = Facts((3, 224, 224), tuple(map(str, range(1000))), (0.5,) * 3, (0.2,) * 3)


class TestRecipesThereAre:
    def test_there_are_some_and_none_is_missed(self) -> None:
        studies = recipes_folder() / "paper"
        found = [path for path in recipes_folder().rglob("*.toml") if path.parent != studies]
        assert len(found) >= 4
        assert sorted(recipe_names().values()) == sorted(found)

    @pytest.mark.parametrize("name", recipe_names())
    def test_it_builds(self, name: str) -> None:
        config = read_config(find_recipe(name))
        facts = FACTS.get(config.data.name.partition(":")[0], LARGE)
        model = build_model(config.model, facts, seed=config.train.seed)
        method = build_method(config.method, seed=config.train.seed)
        build_augment(config.data)
        config.optimizer.build(model)
        assert repr(method)
        assert head_of(find_recipe(name))  # source, command, hardware, time, expected number

    def test_unknown_ones_are_refused_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'digits/nfm'"):
            find_recipe("digits/nmf")
        with pytest.raises(UsageError, match="no recipe"):
            find_recipe("x" * 5000 + ".toml")


def test_the_schema_has_a_default_for_everything() -> None:
    for field in dataclasses.fields(Config):
        assert field.default_factory is not dataclasses.MISSING
