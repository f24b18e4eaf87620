"""Small images on which rounding shows: flat areas, full colours, ties of channels, gradients, texture."""

from __future__ import annotations

import numpy as np
import torch
from slow_corruptions import Array
from torch import Tensor

from nfm.evaluate.keyed import Stream


def synthetic(count: int, height: int, width: int) -> Tensor:
    """Return uint8 (count, 3, height, width), each image different."""
    row, column, channel = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    images = []
    for number in range(count):
        wave = 127.5 + 100 * np.sin((row * (1 + number) + column * 2 + channel * 3) / 5)
        grain = (row * 37 + column * 61 + channel * 17 + number * 11) ** 2 % 97 - 48
        image = np.clip(wave + grain, 0, 255).astype(np.uint8)
        image[: height // 4, : width // 2] = 255
        image[: height // 4, width // 2 :] = (0, 40 * number % 256, 255)
        image[height // 4 : height // 3] = 128
        image[-height // 5 :, : width // 3] = (200, 200, 10)
        image[-height // 5 :, -width // 4 :] = 0
        images.append(image)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()


def to_pictures(images: Tensor) -> Array:
    """Return (B, 3, H, W) as (B, H, W, 3)."""
    return images.permute(0, 2, 3, 1).contiguous().numpy()


class Replayed:
    """The random numbers that a stream gives one example."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream = Stream(stream.keys[number : number + 1])

    def uniform(self, shape: tuple[int, ...], purpose: int = 0) -> Array:
        return self.stream.uniform(shape, purpose=purpose)[0].double().numpy()

    def normal(self, shape: tuple[int, ...], purpose: int = 0) -> Array:
        return self.stream.normal(shape, purpose=purpose)[0].double().numpy()
