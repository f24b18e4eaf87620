"""What preparing batches costs, against a Dataset of single images with a DataLoader of 2 workers.

The reference crops, flips and normalises as torchvision's transforms do, one PIL image at a time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.networks import BATCH, Work, pixels
from benchmarks.side_by_side import Ratio, compare
from nfm.data.augment import CropFlip, RandomResizedCrop
from nfm.data.batches import Batches
from nfm.data.encoded import EncodedImages, PackedBlobs
from nfm.data.examples import ExampleSet

SMALL, LARGE, WORKERS = 10_000, 1_024, 2
MEAN, STD = torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.25)


def _to_tensor(picture: Any) -> Tensor:
    image = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()
    return image.float().div(255).sub(MEAN).div(STD)


class SmallPictures(Dataset[tuple[Tensor, int]]):
    """Images of 32x32 in memory: pad 4, crop, flip."""

    def __init__(self, images: Tensor) -> None:
        self.arrays = images.permute(0, 2, 3, 1).contiguous().numpy()

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image, ImageOps

        picture = ImageOps.expand(Image.fromarray(self.arrays[index]), 4)
        left, top = (int(torch.randint(0, 9, ())) for _ in range(2))
        picture = picture.crop((left, top, left + 32, top + 32))
        if torch.rand(()) < 0.5:
            picture = ImageOps.mirror(picture)
        return _to_tensor(picture), 0


class LargePictures(Dataset[tuple[Tensor, int]]):
    """JPEG files: decode, cut a random part, scale it to 224x224, flip."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image, ImageOps

        picture: Any = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        side = int(min(picture.size) * (0.3 + 0.7 * float(torch.rand(()))))
        left, top = (int(torch.randint(0, size - side + 1, ())) for size in picture.size)
        picture = picture.resize((224, 224), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
        if torch.rand(()) < 0.5:
            picture = ImageOps.mirror(picture)
        return _to_tensor(picture), 0


def _photographs(count: int) -> list[bytes]:
    """Return JPEG files of 400x300 pixels with the detail of photographs."""
    from PIL import Image

    files = []
    for number in range(count):
        coarse = np.random.default_rng(number).integers(0, 256, (38, 50, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((400, 300), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def _packed(files: list[bytes]) -> ExampleSet:
    offset = np.cumsum([0, *map(len, files)])
    blobs = PackedBlobs(np.frombuffer(b"".join(files), np.uint8), offset, "benchmark")
    count = torch.arange(len(files))
    return EncodedImages(blobs, count, count % 10, count, size=224, resize=256)


def _ours(examples: ExampleSet, augment: Any, workers: int) -> Work:
    batches = Batches(examples, batch_size=BATCH, augment=augment, workers=workers)

    def run() -> None:
        for batch in batches.epoch(0):
            (batch.x - MEAN).div_(STD)

    return run


def _theirs(pictures: Dataset[Any]) -> Work:
    def run() -> None:
        for _ in DataLoader(pictures, batch_size=BATCH, shuffle=True, num_workers=WORKERS):
            pass

    return run


def measure() -> Iterator[Ratio]:
    """Yield the ratios, an epoch each."""
    small = pixels(SMALL)
    yield compare(
        f"batches of 32x32 / an image at a time, 2 workers, {SMALL:,} images",
        _ours(small, CropFlip(), 0), _theirs(SmallPictures(small.images)), rounds=7,
    )  # fmt: skip
    files = _photographs(LARGE)
    yield compare(
        f"batches of 224x224 from JPEG / an image at a time, 2 workers, {LARGE:,} images",
        _ours(_packed(files), RandomResizedCrop(), WORKERS), _theirs(LargePictures(files)), rounds=3,
    )  # fmt: skip
