"""hf:NAME, a data set of the Hugging Face hub, through the optional package `datasets`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from nfm.data.arrays import view_of
from nfm.data.encoded import EncodedImages
from nfm.data.examples import DataSet, ExampleSet, empty_like
from nfm.data.folder import MEAN, STD
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError, EnvironmentProblem

IMAGES, LABELS = ("image", "img"), ("label", "fine_label", "labels")


@dataclass(frozen=True, eq=False)
class HubBlobs:
    """Encoded images in a column of a hub table; each cell has its bytes, or the path of a file."""

    table: Any
    column: str
    where: str

    def read(self, place: int) -> bytes:
        cell = self.table[place][self.column]
        if cell.get("bytes") is not None:
            return bytes(cell["bytes"])
        with open(cell["path"], "rb") as file:
            return file.read()

    def name(self, place: int) -> str:
        return f"{self.where}, row {place}"


def load_hub(request: Request) -> DataSet:
    """Return a hub data set with an image and a label column; without download, from the hub's cache."""
    name = request.argument
    hub = _package()
    try:
        tables = hub.load_dataset(
            name, download_config=hub.DownloadConfig(local_files_only=not request.download)
        )
    except Exception as error:  # the hub's client raises many kinds
        raise DataError(
            f"hf:{name}: could not be loaded ({type(error).__name__}: {error}); "
            f"check the name, or allow the download (download=True, --download)"
        ) from error
    tested = next((part for part in ("test", "validation") if part in tables), None)
    if "train" not in tables or tested is None:
        raise DataError(
            f"hf:{name}: expected the parts train and test or validation, got {', '.join(tables)}"
        )
    train, labels = _examples(hub, tables["train"], f"hf:{name} train")
    held = tested == "test" and "validation" in tables
    validation = (
        _examples(hub, tables["validation"], f"hf:{name} validation")[0] if held else empty_like(train)
    )
    return DataSet(
        name=f"hf:{name}",
        train=train,
        validation=validation,
        test=_examples(hub, tables[tested], f"hf:{name} {tested}")[0],
        classes=labels,
        mean=MEAN,
        std=STD,
        source={"hub": name, "fingerprint": getattr(tables["train"], "_fingerprint", None)},
    )


def _package() -> Any:
    try:
        import datasets
    except (ImportError, RuntimeError) as error:
        raise EnvironmentProblem(
            f"a data set of the Hugging Face hub needs the package datasets, which does not import "
            f"({type(error).__name__}: {error}); install it: pip install datasets"
        ) from error
    return datasets


def _examples(hub: Any, table: Any, where: str) -> tuple[ExampleSet, tuple[str, ...]]:
    image, label = (_column(table, names, where) for names in (IMAGES, LABELS))
    blobs = HubBlobs(table.cast_column(image, hub.Image(decode=False)), image, where)
    labels = torch.tensor(table[label], dtype=torch.int64)
    size, resize = view_of(blobs.read(0), blobs.name(0))
    count = torch.arange(len(labels))
    names = getattr(table.features[label], "names", None) or range(int(labels.max()) + 1)
    return EncodedImages(blobs, count, labels, count, size, resize), tuple(str(name) for name in names)


def _column(table: Any, names: tuple[str, ...], where: str) -> str:
    for name in names:
        if name in table.column_names:
            return name
    raise DataError(f"{where}: expected a column {' or '.join(names)}, got {', '.join(table.column_names)}")


def _where(places: tuple[Path, ...]) -> str | None:
    return "the Hugging Face hub" if find_spec("datasets") else None


DATA.add(
    "hf",
    Source(build=load_hub, where=_where, size="any", classes=None, argument="NAME"),
)
