"""A window of each image of a batch, at a place of its own, mirrored or not: the work of a random crop and flip."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nfm.core import compiled
from nfm.core.kernel import kernel_in_use
from nfm.errors import ShapeError


def cut_windows(images: Tensor, corners: Tensor, size: tuple[int, int], mirrored: Tensor) -> Tensor:
    """Return windows [n,C,*size] of images [n,C,H,W], upper left at corners [n,2]; what lies over the border is 0."""
    count = len(images)
    if corners.shape != (count, 2) or mirrored.shape != (count,):
        raise ShapeError(
            f"expected as many examples as images, {count}, got {len(corners)} and {len(mirrored)}"
        )
    images = images.contiguous()
    if images.is_cpu and images.dtype == torch.uint8 and kernel_in_use() == "c":
        return compiled.cut_windows(images, corners.long().contiguous(), size, mirrored.bool().contiguous())
    return cut_readably(images, corners, size, mirrored)


def cut_readably(images: Tensor, corners: Tensor, size: tuple[int, int], mirrored: Tensor) -> Tensor:
    """Do it image by image: for other dtypes, and the oracle of the compiled kernel."""
    out = np.zeros((*images.shape[:2], *size), images.numpy().dtype)
    first = (-corners).clamp(min=0)
    last = torch.minimum(torch.tensor(size), torch.tensor(images.shape[2:]) - corners).maximum(first)
    edges = torch.cat([first, last, first + corners, last + corners], dim=1).tolist()
    for target, image, (top, left, bottom, right, *inside), mirror in zip(
        out, images.numpy(), edges, mirrored.tolist(), strict=True
    ):
        first_row, first_column, last_row, last_column = inside
        window = target[:, :, ::-1] if mirror else target
        window[:, top:bottom, left:right] = image[:, first_row:last_row, first_column:last_column]
    return torch.from_numpy(out)
