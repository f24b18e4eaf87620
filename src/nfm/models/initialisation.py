"""Keyed initialisation: each parameter is drawn from the seed and its own name, whatever was drawn before."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn import init
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from nfm.errors import UsageError
from nfm.randomness import check_seed, fold, torch_generator

Law = Callable[[nn.Module, str, Tensor, Generator], None]
"""Fill a parameter in place: (its module, its name there, a float32 CPU tensor, its generator)."""

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm)


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter of `model` anew from `seed`, and forget running statistics.

    The law is the model's `initial_law`, or `convolutional_law`. No global generator is read or moved.
    """
    law: Law = getattr(model, "initial_law", convolutional_law)
    for path, module in model.named_modules():
        initialise_module(module, path, seed=seed, law=law)


@torch.no_grad()
def initialise_module(module: nn.Module, path: str, *, seed: int, law: Law) -> None:
    """Draw the module's own parameters (not its children's) by `law`."""
    for name, parameter in module.named_parameters(recurse=False):
        generator = torch_generator(fold(check_seed(seed), "initialise", f"{path}.{name}"))
        # Drawn contiguous, float32, on the CPU: the same numbers on any device, dtype and memory format.
        drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        law(module, name, drawn, generator)
        parameter.copy_(drawn)
    if isinstance(module, _NormBase):
        module.reset_running_stats()


def convolutional_law(module: nn.Module, name: str, drawn: Tensor, generator: Generator) -> None:
    """Convolutions: He normal over fan-out (arXiv:1502.01852); linear layers: PyTorch's uniform law."""
    if isinstance(module, NORMS):
        drawn.fill_(1.0 if name == "weight" else 0.0)
    elif isinstance(module, _ConvNd) and name == "weight":
        init.kaiming_normal_(drawn, mode="fan_out", nonlinearity="relu", generator=generator)
    elif isinstance(module, _ConvNd):
        drawn.zero_()
    elif isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(module.in_features)
        drawn.uniform_(-bound, bound, generator=generator)
    else:
        raise UsageError(
            f"no initial law for {name!r} of {type(module).__name__}; give the network an `initial_law`"
        )


def plain_law(module: nn.Module, name: str, drawn: Tensor, generator: Generator) -> None:
    """Convolutions without bias: PyTorch's own uniform law; the rest as above.

    Before batch norm only the direction of a weight matters, and its length slows its turning: He's weights
    are sqrt(6) times longer (equal widths), and so learn less in a short schedule.
    """
    if isinstance(module, _ConvNd) and name == "weight":
        bound = 1 / math.sqrt(drawn[0].numel())
        drawn.uniform_(-bound, bound, generator=generator)
    else:
        convolutional_law(module, name, drawn, generator)


def transformer_law(module: nn.Module, name: str, drawn: Tensor, generator: Generator) -> None:
    """Linear layers and positions: truncated normal; biases and the class token: zero; the rest as above.

    The deviations .02 and .2 (positions) are those of Compact Transformers (arXiv:2104.05704, its code).
    """
    if isinstance(module, nn.Linear) and name == "weight":
        init.trunc_normal_(drawn, std=0.02, generator=generator)
    elif name == "positions":
        init.trunc_normal_(drawn, std=0.2, generator=generator)
    elif isinstance(module, nn.Linear) or name == "class_token":
        drawn.zero_()
    else:
        convolutional_law(module, name, drawn, generator)
