"""Every flag of ``nfm train`` is a key of a recipe, and changes it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest

import nfm.cli.training as training
from nfm.cli import main
from nfm.cli.train_verb import FLAGS, SWITCHES, add_arguments
from nfm.config.read import read_config
from nfm.config.schema import Config

VALUES: dict[str, tuple[str, Any]] = {  # flag -> what is given, what the recipe then says
    "data": ("circles", "circles"),
    "data-root": ("/some/folder", "/some/folder"),
    "subset": ("100", 100),
    "label-noise": ("0.25", 0.25),
    "imbalance": ("10", 10.0),
    "augment": ("crop_flip", "crop_flip"),
    "model": ("mlp", "mlp"),
    "init-from": ("runs/x", "runs/x"),
    "freeze": ("stage1.*", ("stage1.*",)),
    "scheme": ("mixup", "mixup"),
    "epochs": ("7", 7),
    "batch-size": ("17", 17),
    "accumulate": ("3", 3),
    "seed": ("11", 11),
    "ema": ("0.99", 0.99),
    "clip": ("2", 2.0),
    "label-smoothing": ("0.1", 0.1),
    "precision": ("bfloat16", "bfloat16"),
    "workers": ("2", 2),
    "lr": ("0.3", 0.3),
    "optimizer": ("adamw", "adamw"),
    "schedule": ("one_cycle", "one_cycle"),
}


def leaf(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, training.Options]]:
    """Return what the verb would train, without training."""
    seen: list[tuple[Config, training.Options]] = []
    monkeypatch.setattr(training, "train_run", lambda config, options: seen.append((config, options)))
    return seen


def test_every_flag_has_a_value_to_test_it_with() -> None:
    assert set(VALUES) == set(FLAGS)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_changes_its_key_alone(flag: str, asked: list[Any]) -> None:
    given, expected = VALUES[flag]
    base = [] if flag in ("data", "model") else ["--data", "digits"]
    assert main(["train", *base, f"--{flag}", given]) == 0
    config, _ = asked[-1]
    key = FLAGS[flag][0]
    assert leaf(config, key) == expected != leaf(Config(), key)
    table, _, name = key.partition(".")
    changed = dataclasses.replace(getattr(config, table), **{name: leaf(Config(), key)})
    assert dataclasses.replace(config, **{table: changed}) == Config()


@pytest.mark.parametrize("flag", SWITCHES)
def test_a_switch_turns_its_key_on(flag: str, asked: list[Any]) -> None:
    assert main(["train", "--data", "digits", f"--{flag}"]) == 0
    assert main(["train", "--data", "digits"]) == 0
    key = SWITCHES[flag][0]
    assert [leaf(config, key) for config, _ in asked] == [True, False]


def test_no_two_flags_share_a_key() -> None:
    keys = [key for key, _ in (FLAGS | SWITCHES).values()]
    assert len(set(keys)) == len(keys)


def test_flags_win_over_the_recipe_and_set_wins_over_flags(tmp_path: Path, asked: list[Any]) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[train]\nepochs = 3\nseed = 5\nclip = 1.0\n")
    assert main(["train", str(recipe), "--epochs", "4", "--seed", "6", "--set", "train.seed=7"]) == 0
    config, _ = asked[-1]
    assert (config.train.epochs, config.train.seed, config.train.clip) == (4, 7, 1.0)
    assert main(["train", "digits/nfm", "--set", "train.seed=8", "--set", "method.noise.add=0.5"]) == 0
    config, _ = asked[-1]
    assert (config.train.seed, config.method.noise["add"]) == (8, 0.5)


def test_what_is_done_beside_training(asked: list[Any]) -> None:
    assert main(["train", "--data", "digits"]) == 0
    assert asked[-1][1] == training.Options(out=None)
    assert main([
        "train", "--data", "digits", "--out", "runs/x", "--resume", "auto", "--device", "cpu", "--dry-run",
        "--tensorboard", "--csv",
    ]) == 0  # fmt: skip
    assert asked[-1][1] == training.Options(
        out=Path("runs/x"), resume=True, device="cpu", dry_run=True, tensorboard=True, csv=True
    )
    assert main(["train", "--data", "digits", "--overwrite"]) == 0
    assert asked[-1][1].overwrite


def test_help_names_the_key_of_every_flag() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    told = " ".join(parser.format_help().split())
    for flag, (key, _) in (FLAGS | SWITCHES).items():
        assert f"--{flag}" in told
        assert f"[{key}]" in told


@pytest.mark.parametrize(
    ("data", "model", "scheme", "expected"),
    [
        ("digits", "mlp", "nfm", "runs/digits-mlp-nfm-seed0"),
        ("npz:../up/x.npz", "timm:resnet18", "nfm", "runs/npz_.._up_x.npz-timm_resnet18-nfm-seed0"),
        ("digits", "mlp", "nfm + label_smoothing", "runs/digits-mlp-nfm+label_smoothing-seed0"),
    ],
)
def test_a_run_without_a_folder_gets_one_below_runs(
    data: str, model: str, scheme: str, expected: str
) -> None:
    config = read_config(None, [f"data.name={data}", f"model.name={model}", f"method.scheme={scheme}"])
    assert training.default_out(config) == Path(expected)
