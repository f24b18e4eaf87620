"""Data sets: find, verify, split, batch."""

from nfm.data.augment import Chain, CropFlip, RandomResizedCrop
from nfm.data.autoaugment import AutoAugment
from nfm.data.batches import Batch, Batches
from nfm.data.catalog import available, load
from nfm.data.check import check_examples
from nfm.data.cifar_c import Corrupted, corrupted
from nfm.data.encoded import EncodedImages, bad_images
from nfm.data.examples import Augment, DataSet, Examples, ExampleSet, to_unit
from nfm.data.source import DATA, Request, Source

__all__ = [
    "DATA",
    "Augment",
    "AutoAugment",
    "Batch",
    "Batches",
    "Chain",
    "Corrupted",
    "CropFlip",
    "DataSet",
    "EncodedImages",
    "ExampleSet",
    "Examples",
    "RandomResizedCrop",
    "Request",
    "Source",
    "available",
    "bad_images",
    "check_examples",
    "corrupted",
    "load",
    "to_unit",
]
