"""Data sets: find, verify, split, batch."""

from nfm.data.augment import CropFlip
from nfm.data.batches import Batch, Batches
from nfm.data.catalog import available, load
from nfm.data.check import check_examples
from nfm.data.examples import Augment, DataSet, Examples, ExampleSet, to_unit
from nfm.data.source import DATA, Request, Source

__all__ = [
    "DATA",
    "Augment",
    "Batch",
    "Batches",
    "CropFlip",
    "DataSet",
    "ExampleSet",
    "Examples",
    "Request",
    "Source",
    "available",
    "check_examples",
    "load",
    "to_unit",
]
