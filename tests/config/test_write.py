"""A recipe that is written reads as the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfm.config.read import read_config
from nfm.config.recipes import head_of, recipe_names
from nfm.config.schema import Config, MethodConfig, ModelConfig
from nfm.config.write import write_config
from nfm.errors import UsageError
from nfm.train.optim import Optimizer
from nfm.train.settings import Settings

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def written_and_read(config: Config, folder: Path) -> Config:
    file = folder / "recipe.toml"
    file.write_text(write_config(config), encoding="utf-8", newline="")
    return read_config(file)


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_survives(recipe: str, tmp_path: Path) -> None:
    config = read_config(recipe_names()[recipe])
    assert written_and_read(config, tmp_path) == config
    assert written_and_read(config, tmp_path) != read_config(recipe_names()[recipe], ["train.seed=77"])


def test_tables_lists_and_quoted_keys_survive(tmp_path: Path) -> None:
    config = Config(
        model=ModelConfig(
            options={"width": 0.5, "names": ["a", "b"], "deep": {"er": True}}, freeze=("stem.*",)
        ),
        method=MethodConfig(scheme="nfm + label_smoothing", sites=("input",), noise={"add": 1e-7}),
        optimizer=Optimizer(rates={"stage1.*": 0.1}, betas=(0.8, 0.99)),
        train=Settings(epochs=3, deterministic=True),
    )
    assert written_and_read(config, tmp_path) == config


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_any_options_survive(options: dict[str, object]) -> None:
    import tomllib

    config = Config(model=ModelConfig(options=options))
    assert tomllib.loads(write_config(config))["model"].get("options", {}) == options


def test_the_head_is_a_comment(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(write_config(Config(), "found\ncommand: nfm train"))
    assert head_of(file) == "found\ncommand: nfm train"
    assert read_config(file) == Config()


def test_what_toml_cannot_say_is_refused() -> None:
    with pytest.raises(UsageError, match="expected what TOML can say, got <object"):
        write_config(Config(model=ModelConfig(options={"thing": object()})))
