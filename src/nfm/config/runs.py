"""A finished run as a source: what it was made from, and its network with its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nfm.config.build import build_model, facts_of
from nfm.config.initial import read_weights
from nfm.config.read import build_table
from nfm.config.schema import Config, Facts
from nfm.data.examples import DataSet
from nfm.errors import CheckpointError
from nfm.train.folder import RECIPE, read_identity
from nfm.train.state import load_weights


@dataclass(frozen=True)
class Run:
    """A trained network, the recipe it was made by, and what it knows of its data."""

    model: nn.Module
    config: Config
    facts: Facts


def to_recipe(config: Config, data: DataSet) -> dict[str, Any]:
    """Return what a run keeps so that `load_run` needs nothing else."""
    return {"config": dataclasses.asdict(config), "facts": dataclasses.asdict(facts_of(data))}


def load_run(path: Path) -> Run:
    """Return the run in the folder `path` with its best weights, in evaluation mode."""
    recipe = read_identity(path).get(RECIPE) or {}
    if set(recipe) != {"config", "facts"}:
        raise CheckpointError(f"{path}: expected a run of `nfm train`, got one without its recipe")
    errors: list[str] = []
    config = build_table(Config, _without_nothing(recipe["config"]), "", errors)
    facts = build_table(Facts, recipe["facts"], "facts", errors)
    if config is None or facts is None:
        raise CheckpointError(f"{path}: its recipe does not read: {'; '.join(errors)}")
    again = dataclasses.replace(config.model, init_from="", freeze=())
    model = build_model(again, facts, seed=config.train.seed)
    load_weights(model, read_weights(path), str(path))
    return Run(model.eval(), config, facts)


def _without_nothing(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables without None, which means left out."""
    return {
        key: _without_nothing(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
