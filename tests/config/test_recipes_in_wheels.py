"""Recipes come with an installed package, where it looks for them."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

import nfm
from nfm.config.recipes import recipe_names, recipes_folder

ROOT = Path(__file__).parents[2]


def test_a_wheel_has_the_recipes_where_they_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_the_sources = recipe_names()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    monkeypatch.setattr(nfm, "__file__", str(tmp_path / "nfm" / "__init__.py"))
    assert not recipe_names()
    for source, place in wheel["force-include"].items():
        shutil.copytree(ROOT / source, tmp_path / place)
    assert recipes_folder() == tmp_path / "nfm" / "recipes"
    assert list(recipe_names()) == list(beside_the_sources)
