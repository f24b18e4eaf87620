"""What a model must be before its numbers mean something. Each check returns a problem or None."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nfm.errors import DataError, NFMError, ShapeError

Classifier = Callable[[Tensor], Tensor]

PASSES = 5  # of the probe (AutoAttack's own number, Croce & Hein 2020)
TOLERANCE = 1e-4  # of the largest logit
ROUNDING = 1e-2  # of the largest logit: kernels round differently at other batch sizes


@contextmanager
def measuring(model: Any) -> Iterator[None]:
    """Hold `model` in eval mode; every submodule gets its own mode back."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    if modules:
        model.eval()
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def ask(model: Classifier, x: Tensor) -> Tensor:
    """Return the logits of pixels `x` as float32; the model gets a copy, for it may write to it, in its own dtype."""
    logits = model(x.to(_dtype(model), copy=True))
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ShapeError(f"expected logits of shape ({len(x)}, classes) from the model, got {shape}")
    return logits.float()


def predict(model: Classifier, x: Tensor) -> Tensor:
    """Return the logits of pixels `x` as float32, without a graph."""
    with torch.inference_mode():
        return ask(model, x)


def judge(logits: Tensor, labels: Tensor) -> Tensor:
    """Return which examples are classified right, bool (B,): logits that are not finite never are."""
    return (logits.argmax(1) == labels) & logits.isfinite().all(1)


def find_problems(model: Classifier, x: Tensor, labels: Tensor, *, classes: int | None) -> list[str]:
    """Return what makes a measurement of `model` meaningless, seen on the small batch `x`."""
    runs = [_first(model, x), *(predict(model, x) for _ in range(PASSES - 1))]
    width = runs[0].shape[1]
    check_labels(labels, width, classes)
    if not all(torch.isfinite(run).all() for run in runs):
        return ["NaN logits"]
    changed = any((run.argmax(1) != runs[0].argmax(1)).any() for run in runs)
    found = {
        "stochastic model": changed or max(_gap(run, runs[0]) for run in runs) > TOLERANCE,
        "output depends on the batch": _depends_on_batch(model, x, runs[0]),
        "softmax output": _is_distribution(runs[0]),
    }
    return [problem for problem, seen in found.items() if seen]


def check_labels(labels: Tensor, width: int, classes: int | None) -> None:
    """Refuse labels that the model's output has no place for."""
    if classes is not None and width != classes:
        raise ShapeError(f"expected a model with {classes} outputs, one a class, got {width}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= width:
        raise DataError(f"expected labels from 0 to {width - 1}, the model's outputs, got {low} to {high}")


def hash_model(model: Classifier, x: Tensor) -> str:
    """Return a hash of the parameters; of the logits on `x` where the model is no nn.Module."""
    digest = hashlib.sha256()
    if isinstance(model, nn.Module):
        for name, value in model.state_dict().items():
            if isinstance(value, Tensor):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]
    digest.update(predict(model, x).cpu().numpy().tobytes())
    return "probe-" + digest.hexdigest()[:16]


def _dtype(model: Classifier) -> torch.dtype:
    """Return the dtype of the first parameter that is a real number; float32 where there is none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((value.dtype for value in parameters if value.is_floating_point()), torch.float32)


def _first(model: Classifier, x: Tensor) -> Tensor:
    """Return the logits of the first batch that the model meets."""
    try:
        return predict(model, x)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, NFMError | torch.OutOfMemoryError):
            raise
        raise ShapeError(
            f"expected a model that takes pixels of shape {tuple(x.shape)}, got {type(error).__name__}: {error}"
        ) from error


def _depends_on_batch(model: Classifier, x: Tensor, logits: Tensor) -> bool:
    """Tell whether the first example alone gets other logits, or none, than among the others."""
    try:
        alone = predict(model, x[:1])
    except (RuntimeError, ValueError):  # a batch norm without running statistics takes no single example
        return True
    return not _gap(alone, logits[:1]) <= ROUNDING


def _gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference as a share of the largest logit."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-12))


def _is_distribution(output: Tensor) -> bool:
    return bool((output >= 0).all()) and bool((output.sum(1) - 1).abs().max() < 1e-4)
