"""hf:NAME, with a stand-in for the package `datasets`."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from nfm.data import load
from nfm.errors import DataError, EnvironmentProblem


def png(level: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (12, 12), (level, level, level)).save(stream, "PNG")
    return stream.getvalue()


class Table:
    """The part of a hub table that is used: columns by name, rows by number."""

    def __init__(self, count: int, image: str = "img", label: str = "label") -> None:
        self.rows = [{image: {"bytes": png(10 * row), "path": None}, label: row % 2} for row in range(count)]
        self.column_names = [image, label]
        self.features = {label: SimpleNamespace(names=["no", "yes"])}
        self._fingerprint = "abc"

    def __getitem__(self, key: int | str) -> Any:
        return [row[key] for row in self.rows] if isinstance(key, str) else self.rows[key]

    def cast_column(self, name: str, kind: Any) -> "Table":
        assert kind.decode is False
        return self


def install(monkeypatch: pytest.MonkeyPatch, tables: Any) -> list[Any]:
    asked: list[Any] = []

    def load_dataset(name: str, download_config: Any) -> Any:
        asked.append((name, download_config.local_files_only))
        if isinstance(tables, Exception):
            raise tables
        return tables

    fake = SimpleNamespace(
        load_dataset=load_dataset,
        DownloadConfig=lambda local_files_only: SimpleNamespace(local_files_only=local_files_only),
        Image=lambda decode: SimpleNamespace(decode=decode),
    )
    monkeypatch.setitem(sys.modules, "datasets", fake)  # type: ignore[arg-type]
    return asked


def test_a_hub_set_is_read_lazily_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, {"train": Table(20), "test": Table(6)})
    data = load("hf:me/mine", validation=0)
    assert asked == [("me/mine", True)]
    assert [len(data.train), len(data.test)] == [20, 6]
    assert data.classes == ("no", "yes")
    assert data.train.fetch(torch.tensor([3]))[0, 0, 0, 0] == 30
    load("hf:me/mine", download=True)
    assert asked[1] == ("me/mine", False)


def test_a_validation_part_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"train": Table(20), "test": Table(6), "validation": Table(4, "image", "labels")})
    data = load("hf:x")
    assert [len(data.train), len(data.validation), len(data.test)] == [20, 4, 6]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"train": Table(4)}, "expected the parts train and test"),
        (
            {"train": Table(4, image="text"), "test": Table(4)},
            "expected a column image or img, got text, label",
        ),
        ({"train": Table(4, label="coarse"), "test": Table(4)}, "expected a column label"),
        (ConnectionError("offline"), "could not be loaded"),
    ],
)
def test_other_sets_are_refused(monkeypatch: pytest.MonkeyPatch, tables: Any, message: str) -> None:
    install(monkeypatch, tables)
    with pytest.raises(DataError, match=message):
        load("hf:x")


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(EnvironmentProblem, match="pip install datasets"):
        load("hf:x")
