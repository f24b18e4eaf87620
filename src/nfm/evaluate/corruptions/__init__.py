"""The corruptions of CIFAR-10-C and ImageNet-C, generated for any images with the published constants."""

from nfm.data.cifar_c_files import AUTHORS, CORRUPTIONS, EXTRA, SEVERITIES, STANDARD
from nfm.evaluate.corruptions.constants import CONSTANTS
from nfm.evaluate.corruptions.corruption import Corruption, corrupt
from nfm.evaluate.corruptions.families import DETERMINISTIC, FAMILIES
from nfm.evaluate.corruptions.write import write_cifar_c

__all__ = [
    "AUTHORS",
    "CONSTANTS",
    "CORRUPTIONS",
    "DETERMINISTIC",
    "EXTRA",
    "FAMILIES",
    "SEVERITIES",
    "STANDARD",
    "Corruption",
    "corrupt",
    "write_cifar_c",
]
