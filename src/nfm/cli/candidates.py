"""What ``nfm evaluate`` measures: from a run, a checkpoint, a file of weights or a published name to a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from nfm.cli.published import published
from nfm.config.build import build_model, facts_of
from nfm.config.initial import read_weights, unwrapped
from nfm.config.runs import load_run
from nfm.config.schema import Facts, ModelConfig
from nfm.data import DataSet, ExampleSet, load
from nfm.errors import CheckpointError, UsageError
from nfm.models.task import Task
from nfm.models.weights import IMAGENET_MEAN, IMAGENET_STD, load_cifar_resnet
from nfm.train.folder import CHECKPOINTS, IDENTITY
from nfm.train.state import load_weights

NORMALISATIONS = ("data", "authors", "imagenet", "none")
PUBLISHED = ("timm", "torchvision")


@dataclass(frozen=True)
class Request:
    """What was asked for; `model`, `options` and `normalisation` are for a file that does not tell them."""

    source: str
    data: str | None = None
    data_root: str | None = None
    model: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    normalisation: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A network, the data to measure it on, and what tables and folders call it.

    `held_out` are examples the network never saw: only of a run is it known that there are some.
    """

    model: nn.Module
    data: DataSet
    scheme: str
    network: str
    home: Path  # evaluations go beneath it
    suffix: str = ""  # tells evaluations beneath one home apart
    train_seed: int | None = None
    held_out: ExampleSet | None = None
    flags: tuple[str, ...] = ()


def find_candidate(request: Request) -> Candidate:
    """Return what `request` names, loaded."""
    path = Path(request.source)
    if request.source.partition(":")[0] in PUBLISHED:
        return _published(request)
    if path.is_dir():
        return _of_run(request, path)
    if path.parent.name == CHECKPOINTS and (path.parent.parent / IDENTITY).exists():
        return _of_run(request, path.parent.parent, checkpoint=path)
    if not path.exists():
        raise CheckpointError(
            f"{request.source}: no such run or file; expected the folder of a run, a checkpoint, a file of weights, "
            f"or {', '.join(f'{prefix}:NAME' for prefix in PUBLISHED)}"
        )
    return _of_file(request, path)


def _of_run(request: Request, folder: Path, checkpoint: Path | None = None) -> Candidate:
    run = load_run(folder)
    if checkpoint is not None:
        load_weights(run.model, read_weights(checkpoint), str(checkpoint))
    recipe = run.config.data
    data = load(
        request.data or recipe.name, root=request.data_root or recipe.root or None, seed=recipe.seed,
        validation=recipe.validation,
    )  # fmt: skip
    own = [checkpoint.stem] if checkpoint else []
    other = [_plain(data.name)] if request.data and request.data != recipe.name else []
    return Candidate(
        run.model, data, run.config.method.scheme, run.config.model.name, folder, "-".join([*own, *other]),
        run.config.train.seed, data.validation if len(data.validation) else None, _foreign(data, run.facts),
    )  # fmt: skip


def _foreign(data: DataSet, facts: Facts) -> tuple[str, ...]:
    """Return what makes `data` other data than a network was trained for."""
    differ = {"other classes": data.classes != facts.classes, "other image size": data.shape != facts.shape}
    return tuple(f"{what} than it was trained for" for what, seen in differ.items() if seen)


def _of_file(request: Request, path: Path) -> Candidate:
    """Return the network of a file of weights, which must be told unless the file is a known published one."""
    name = _plain(path.name.partition(".")[0])
    home = Path("runs") / name
    if request.model is None:
        try:
            model = load_cifar_resnet(path)
        except CheckpointError as error:
            raise UsageError(
                f"{path}: expected --model NAME, the network these weights are of (nfm list models): the file "
                f"does not tell it, and is none of the published CIFAR-10 ResNets ({error})"
            ) from None
        data = load(request.data or "cifar10", root=request.data_root, validation=0)
        return Candidate(model, data, name, "cifar_resnet", home, _plain(data.name))
    if request.data is None:
        raise UsageError(f"{path}: expected --data NAME to measure on: a file of weights does not tell it")
    data = load(request.data, root=request.data_root, validation=0)
    return Candidate(_with_weights(request, path, data), data, name, request.model, home, _plain(data.name))


def _with_weights(request: Request, path: Path, data: DataSet) -> nn.Module:
    """Return `request.model` with all its weights from `path`; its normalisation from there or from the request."""
    known = request.normalisation or "data"
    facts = facts_of(data)
    if known == "imagenet":
        facts = Facts(facts.shape, facts.classes, IMAGENET_MEAN, IMAGENET_STD)
    chosen: Any = "data" if known == "imagenet" else known
    model = build_model(ModelConfig(str(request.model), request.options, chosen), facts, seed=0)
    own = model.state_dict()
    weights = unwrapped(read_weights(path), own)
    constants = [name for name in own if name.startswith("normalise.") and name not in weights]
    if constants and request.normalisation is None:
        raise UsageError(
            f"{path}: expected --normalisation {'|'.join(NORMALISATIONS)}: the file does not tell how its "
            "network's input is normalised, and a wrong guess would be measured as a weak network"
        )
    load_weights(model, weights | {name: own[name] for name in constants}, str(path))
    return model.eval()


def _published(request: Request) -> Candidate:
    if request.data is None:
        raise UsageError(f"{request.source}: expected --data NAME to measure on, such as folder:PATH")
    data = load(request.data, root=request.data_root, validation=0)
    channels, *size = data.shape
    model = published(request.source, Task(data.num_classes, channels, size[-1] if size else None))
    home = Path("runs") / _plain(request.source)
    return Candidate(model, data, request.source, request.source, home, _plain(data.name))


def _plain(text: str) -> str:
    """Return `text` as a part of a file name."""
    return (
        "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text).strip(".") or "_"
    )
