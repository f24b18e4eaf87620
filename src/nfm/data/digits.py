"""scikit-learn's handwritten digits: 1,797 grey images of 8x8, always at hand."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nfm.data.examples import DataSet, Examples, channel_statistics, in_memory
from nfm.data.source import DATA, Request, Source
from nfm.data.splits import split
from nfm.errors import need
from nfm.randomness import fold

TEST, TRAIN = 600, 1000
TEST_KEY = fold("digits", "test")  # the test part is the same for every seed


def digits(request: Request) -> DataSet:
    """Return digits: 1,000 for training and 197 for validation (by `seed`), and a fixed 600 for the test."""
    seed, examples = request.seed, read_digits()
    rest, test = split(examples, TEST / len(examples), key=TEST_KEY)
    train, validation = split(rest, 1 - TRAIN / len(rest), key=fold(seed, "digits", "validation"))
    mean, std = channel_statistics(examples.images)
    return DataSet(
        name="digits",
        train=train,
        validation=validation,
        test=test,
        classes=tuple("0123456789"),
        mean=mean,
        std=std,
        source={"package": "scikit-learn", "function": "load_digits", "seed": seed},
    )


def read_digits() -> Examples:
    """Return all digits as uint8 (1797,1,8,8), the levels 0..16 spread over 0..255."""
    table = _table()
    levels = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8)
    return in_memory(levels.reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64))


def _table() -> NDArray[np.float64]:
    """Return 64 levels and the class of each digit.

    From the file in the package, where it is: scikit-learn takes seconds to import, and the file a blink to read.
    """
    file = _installed() / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def _installed() -> Path:
    """Return the folder of scikit-learn, which is not imported."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        missing = ModuleNotFoundError("No module named 'sklearn'")
        raise need("scikit-learn", "data", "the data set 'digits'", missing)
    return Path(found.submodule_search_locations[0])


def _where(places: tuple[Path, ...]) -> str | None:
    return "scikit-learn" if find_spec("sklearn") else None


DATA.add(
    "digits",
    Source(build=digits, where=_where, size="1000 + 600 of 1x8x8", classes=10),
)
