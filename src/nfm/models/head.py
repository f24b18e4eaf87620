"""Give a trained network a new head for other classes."""

from __future__ import annotations

from torch import nn
from torch.nn.utils import skip_init

from nfm.errors import UsageError
from nfm.models.initialisation import convolutional_law, initialise_module
from nfm.models.task import check_count

HEADS = ("head", "heads", "head_dist", "fc", "classifier")
"""What networks call their last layer, or the small module that ends in it."""


def find_head(model: nn.Module) -> str:
    """Return the dotted name of the one linear layer that gives the classes.

    >>> find_head(nn.ModuleDict({"conv1": nn.Conv2d(3, 8, 3), "fc": nn.Linear(8, 10)}))
    'fc'
    """
    found = _linear_heads(model, "") or _linear_heads(getattr(model, "net", None), "net.")
    if len(found) != 1:
        raise UsageError(
            f"expected one of {', '.join(HEADS)} to end in the linear layer of the classes; "
            f"{type(model).__name__} has {' and '.join(found) or 'none'}"
        )
    return found[0]


def _linear_heads(body: nn.Module | None, prefix: str) -> list[str]:
    if body is None:
        return []
    ends = {name: _last_linear(child) for name, child in body.named_children() if name in HEADS}
    return [f"{prefix}{name}{end}" for name, end in ends.items() if end is not None]


def _last_linear(child: nn.Module) -> str | None:
    """Return where in `child` its last linear layer is: "" for itself, None for nowhere."""
    places = [
        f".{name}" if name else "" for name, module in child.named_modules() if isinstance(module, nn.Linear)
    ]
    return places[-1] if places else None


def replace_head(model: nn.Module, num_classes: int, *, seed: int = 0) -> str:
    """Put a fresh linear layer for `num_classes` in the place of the head; return its dotted name.

    It is drawn from `seed` and its name by the model's initial law, on the old head's device and dtype.
    """
    name = find_head(model)
    old = model.get_submodule(name)
    new = skip_init(
        nn.Linear,
        old.in_features,
        check_count("num_classes", num_classes),
        bias=old.bias is not None,
        device=old.weight.device,
        dtype=old.weight.dtype,
    )
    initialise_module(new, name, seed=seed, law=getattr(model, "initial_law", convolutional_law))
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, new.train(old.training))
    return name
