"""Upper bounds of the l2 norms of single layers, each one rigorous (up to rounding, for which ROUNDING is added)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nfm.errors import UsageError
from nfm.models.network import Normalise

ROUNDING = 1 + 1e-6  # over the error of a singular value decomposition in float64

# The greatest slope of each activation; GELU's at x = sqrt(2), SiLU's at x = 2.3994, Hardswish's at x = 3.
SLOPES: dict[type[nn.Module], float] = {
    nn.ReLU: 1.0, nn.ReLU6: 1.0, nn.Tanh: 1.0, nn.Softplus: 1.0, nn.Identity: 1.0, nn.Dropout: 1.0,
    nn.Dropout2d: 1.0, nn.Flatten: 1.0, nn.Sigmoid: 0.25, nn.GELU: 1.1290, nn.SiLU: 1.0999, nn.Hardswish: 1.5,
}  # fmt: skip


def linear_norm(weight: Tensor) -> float:
    """Return the greatest singular value of a matrix."""
    return ROUNDING * float(torch.linalg.matrix_norm(weight.double(), 2))


def convolution_norm(layer: nn.Conv2d, weight: Tensor, height: int, width: int) -> float:
    """Return a bound of the norm of a zero-padded convolution of images [C, height, width].

    Padded with zeros, it is a part of the circular convolution on a torus of (height + reach, width + reach),
    whose norm is the greatest over all frequencies; strides leave out rows of it, which makes it no greater.
    """
    if layer.padding_mode != "zeros":
        raise UsageError(
            f"no rigorous norm of a convolution with padding_mode={layer.padding_mode!r}, only 'zeros'"
        )
    kernel = _dilated(weight.double(), layer.dilation)
    sides = [side + reach - 1 for side, reach in zip((height, width), kernel.shape[2:], strict=True)]
    spectrum = torch.fft.rfft2(kernel, s=sides)  # [out, in / groups, frequencies]
    groups = spectrum.flatten(2).unflatten(0, (layer.groups, -1)).permute(0, 3, 1, 2)
    wide = groups if groups.shape[2] <= groups.shape[3] else groups.mT
    squares = torch.linalg.eigvalsh(wide @ wide.mH)  # of the smaller side: several times faster than its SVD
    return ROUNDING * math.sqrt(float(squares.max()))


def _dilated(kernel: Tensor, dilation: tuple[int, ...]) -> Tensor:
    """Return the kernel with zeros between its entries."""
    rows, columns = dilation
    if (rows, columns) == (1, 1):
        return kernel
    out, inputs, height, width = kernel.shape
    spread = kernel.new_zeros(out, inputs, (height - 1) * rows + 1, (width - 1) * columns + 1)
    spread[:, :, ::rows, ::columns] = kernel
    return spread


def folded_scale(norm: nn.Module) -> Tensor:
    """Return the factor of each channel that batch norm is in evaluation mode."""
    if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) or norm.running_var is None:
        raise UsageError("no rigorous norm of batch norm without running statistics")
    deviation = (norm.running_var.double() + norm.eps).sqrt()
    return 1 / deviation if norm.weight is None else norm.weight.detach().double() / deviation


def activation_slope(layer: nn.Module) -> float | None:
    """Return the greatest slope of an activation, or None for any other layer."""
    if isinstance(layer, nn.LeakyReLU):
        return max(1.0, abs(layer.negative_slope))
    if isinstance(layer, nn.PReLU):
        return max(1.0, float(layer.weight.detach().abs().max()))
    if isinstance(layer, nn.ELU):
        return max(1.0, layer.alpha)
    return SLOPES.get(type(layer))


def layer_norm(layer: nn.Module, shape: tuple[int, ...], result: Tensor) -> float:
    """Return the norm of a layer without weights on features of `shape` [n, ...], or refuse it by name."""
    slope = activation_slope(layer)
    if slope is not None:
        return slope
    if isinstance(layer, Normalise):
        return 1.0 if layer.std is None else float(1 / layer.std.double().min())
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return mean_norm(shape, tuple(result.shape))
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        return pooling_norm(layer)
    raise UsageError(
        f"no rigorous Lipschitz bound: the layer {type(layer).__name__} has none known to this package; "
        "the empirical one remains"
    )


def mean_norm(shape: tuple[int, ...], result: tuple[int, ...]) -> float:
    """Return the norm of averaging `shape` to `result` in equal groups: 1 / sqrt(group)."""
    pooled = (
        zip(shape, result, strict=True)
        if len(shape) == len(result)
        else [(math.prod(shape), math.prod(result))]
    )
    if any(side % kept for side, kept in pooled):
        raise UsageError(
            f"no rigorous norm of an average of {tuple(shape)} to {tuple(result)}: groups overlap"
        )
    return math.sqrt(math.prod(result) / math.prod(shape))


def pooling_norm(layer: nn.MaxPool2d | nn.AvgPool2d) -> float:
    """Return a bound of the norm of pooling: a value enters at most ceil(kernel / stride) windows a side.

    An average of m values shrinks the norm by sqrt(m); a maximum does not.
    """
    kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
    if isinstance(layer, nn.MaxPool2d):
        windows = kernel if _pair(layer.dilation) != (1, 1) else _windows(kernel, stride)
        return math.sqrt(math.prod(windows))
    if (
        layer.ceil_mode
        or layer.divisor_override
        or (_pair(layer.padding) != (0, 0) and not layer.count_include_pad)
    ):
        raise UsageError("no rigorous norm of average pooling whose windows differ in size")
    return math.sqrt(math.prod(_windows(kernel, stride)) / math.prod(kernel))


def _windows(kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, int]:
    return math.ceil(kernel[0] / stride[0]), math.ceil(kernel[1] / stride[1])


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
