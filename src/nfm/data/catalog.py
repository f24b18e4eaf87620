"""`load` turns a name into a checked DataSet; `available` tells which names have their files here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nfm.data import (  # noqa: F401 - each adds its sources to DATA
    arrays,
    cifar,
    cifar_c,
    digits,
    folder,
    hub,
    idx,
    imagenet,
    svhn,
    toy,
)  # fmt: skip
from nfm.data.check import check_examples
from nfm.data.examples import DataSet, empty_like
from nfm.data.places import search_path
from nfm.data.source import DATA, Request, Source
from nfm.data.splits import balanced_subset, imbalanced, noisy_labels, split
from nfm.errors import UsageError
from nfm.randomness import check_seed, fold
from nfm.results import Row

VALIDATION = 0.1  # of the training part, where a source has no validation part of its own


def load(
    name: str,
    *,
    root: Path | str | None = None,
    validation: float | None = None,
    seed: int = 0,
    subset: int | None = None,
    label_noise: float = 0.0,
    imbalance: float = 1.0,
    download: bool = False,
) -> DataSet:
    """Return the data set `name`, checked, in three parts.

    root: a folder to search first; validation: the fraction of the training part held out, stratified, by
    `seed` (None: the source's own validation part, or a tenth; 0: none; the test part is never touched).
    Then, on the training part alone, in this order: subset (a class-balanced number of examples), imbalance
    (most over least frequent class), label_noise (the probability of another label).

    >>> len(load("circles").train), len(load("circles:1000").test)
    (300, 400)
    """
    source, argument = parse(name)
    seed = check_seed(seed)
    data = source.build(Request(argument, search_path(root), seed, download))
    _check(data, name)
    data = _hold_out(data, validation, seed)
    train = data.train
    if subset is not None:
        train = balanced_subset(train, subset, key=fold(seed, "subset"))
    if imbalance != 1:
        train = imbalanced(train, imbalance, data.num_classes, key=fold(seed, "imbalance"))
    if label_noise != 0:
        train = noisy_labels(train, label_noise, data.num_classes, key=fold(seed, "label noise"))
    return replace(data, train=train)


def parse(name: str) -> tuple[Source, str]:
    """Return the source of `name` or `name:ARGUMENT`, and the argument."""
    key, _, argument = name.partition(":")
    source = DATA[key]
    if argument and not source.argument:
        raise UsageError(f"data set {key!r} takes nothing after a colon, got {name!r}")
    if source.needs_argument and not argument:
        raise UsageError(f"expected {key}:{source.argument}, got {name!r}")
    return source, argument


def _check(data: DataSet, name: str) -> None:
    for part, examples in (("train", data.train), ("validation", data.validation), ("test", data.test)):
        if part != "validation" or len(examples):
            check_examples(examples, data.num_classes, where=f"{name} {part}")


def _hold_out(data: DataSet, fraction: float | None, seed: int) -> DataSet:
    if fraction is None and len(data.validation):
        return data
    if fraction == 0:
        return replace(data, validation=empty_like(data.train))
    fraction = VALIDATION if fraction is None else fraction
    train, held = split(data.train, fraction, key=fold(seed, "validation"))
    return replace(data, train=train, validation=held)


def available(root: Path | str | None = None) -> list[Row]:
    """Return a row for each data set, those at hand first: name, present, size, classes, where."""
    places = search_path(root)
    rows = []
    for key in DATA:
        source = DATA[key]
        where = source.where(places)
        shown = f"{key}:{source.argument}" if source.needs_argument else key
        row = {"name": shown, "present": where is not None, "size": source.size, "classes": source.classes}
        rows.append({**row, "where": where})
    return sorted(rows, key=lambda row: (not row["present"], row["name"]))
