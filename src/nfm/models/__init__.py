"""Networks: plain modules with named stages, normalisation first, and nothing of the method in them."""

from nfm.models import cifar_resnet, mlp, preact, resnet, small_conv, vit, wide  # noqa: F401  (they register)
from nfm.models.building import build
from nfm.models.catalogue import MODELS, known_options
from nfm.models.description import Stage, describe, format_description
from nfm.models.head import find_head, replace_head
from nfm.models.initialisation import initialise
from nfm.models.network import Network, Normalise
from nfm.models.task import Task
from nfm.models.weights import load_cifar_resnet

__all__ = [
    "MODELS",
    "Network",
    "Normalise",
    "Stage",
    "Task",
    "build",
    "describe",
    "find_head",
    "format_description",
    "initialise",
    "known_options",
    "load_cifar_resnet",
    "replace_head",
]
