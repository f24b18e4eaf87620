"""Examples kept as encoded images (JPEG, PNG ...), decoded when a batch needs them."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.data.augment import RandomResizedCrop
from nfm.data.examples import Augment, Examples
from nfm.errors import DataError, need

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # each becomes RGB without loss of range
MAX_PIXELS = 89_478_485  # a quarter of a gigabyte as RGB: Pillow's own line for a decompression bomb


class Blobs(Protocol):
    """Encoded images by number, and a name for each that a message can show."""

    def read(self, place: int) -> bytes: ...

    def name(self, place: int) -> str: ...


@dataclass(frozen=True)
class FileBlobs:
    """Encoded images in files of their own."""

    paths: tuple[str, ...]

    def read(self, place: int) -> bytes:
        with open(self.paths[place], "rb") as file:
            return file.read()

    def name(self, place: int) -> str:
        return self.paths[place]


@dataclass(frozen=True, eq=False)
class PackedBlobs:
    """Encoded images joined in one array; number i is content[offset[i]:offset[i+1]]."""

    content: NDArray[np.uint8]
    offset: NDArray[np.int64]
    where: str

    def read(self, place: int) -> bytes:
        return self.content[self.offset[place] : self.offset[place + 1]].tobytes()

    def name(self, place: int) -> str:
        return f"{self.where}, image {place}"


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Examples that are decoded on demand to uint8 (n,3,size,size).

    places: int64 (n,), the number of each example in `blobs`. resize: the length its shorter side is scaled
    to before the middle size x size is cut out; None: images have that size already, others are refused.
    """

    blobs: Blobs
    places: Tensor
    labels: Tensor
    ids: Tensor
    size: int
    resize: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.places)

    def subset(self, indices: Tensor) -> EncodedImages:
        """Return the examples at `indices`, in that order."""
        return replace(self, places=self.places[indices], labels=self.labels[indices], ids=self.ids[indices])

    def relabel(self, labels: Tensor) -> EncodedImages:
        """Return the same examples with other labels."""
        return replace(self, labels=labels)

    def fetch(self, indices: Tensor, *, augment: Augment | None = None, key: int = 0) -> Tensor:
        """Return the images at `indices`; RandomResizedCrop cuts from the whole image, not from the view."""
        places, ids = self.places[indices].tolist(), self.ids[indices]
        if isinstance(augment, RandomResizedCrop):
            return self._random_views(places, augment, augment.draws(ids, key=key))
        images = torch.empty((len(places), *self.shape), dtype=torch.uint8)
        for target, place in zip(images, places, strict=True):
            target.copy_(pixels(self._view(place)))
        return images if augment is None else augment(images, ids, key=key)

    def decoded(self) -> Examples:
        """Return all examples decoded, in memory."""
        return Examples(self.fetch(torch.arange(len(self))), self.labels, self.ids)

    def _random_views(self, places: list[int], crop: RandomResizedCrop, draws: NDArray[np.float64]) -> Tensor:
        images = torch.empty((len(places), 3, crop.size, crop.size), dtype=torch.uint8)
        for target, place, draw in zip(images, places, draws, strict=True):
            image = open_image(self.blobs.read(place), self.blobs.name(place))
            target.copy_(crop.cut(pixels(image), draw))
        return images

    def _view(self, place: int) -> Image:
        """Return the evaluation view, the same each time."""
        name = self.blobs.name(place)
        image = open_image(self.blobs.read(place), name)
        if self.resize is not None:
            return middle(shorter_side(image, self.resize), self.size)
        if image.size != (self.size, self.size):
            raise DataError(f"{name}: expected an image of {self.size}x{self.size}, got {image.size}")
        return image


BILINEAR = 2  # PIL.Image.Resampling.BILINEAR, which averages over the area when it scales down


def open_image(content: bytes, name: str) -> Image:
    """Return a decoded RGB image; grey, palette and CMYK are converted, transparency is dropped."""
    try:
        from PIL import Image
    except (ImportError, RuntimeError) as error:
        raise need("pillow", "data", "a folder of images", error) from error
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise DataError(f"{name}: expected at most {MAX_PIXELS} pixels, got {image.width}x{image.height}")
        if image.mode not in MODES:
            raise DataError(
                f"{name}: expected 8-bit grey or colour, got mode {image.mode!r}; convert it first"
            )
        return image.convert("RGB")
    except DataError:
        raise
    except Exception as error:  # Pillow's plugins raise many kinds on damaged files, its bomb check two more
        raise DataError(f"{name}: not a whole image ({type(error).__name__}: {error})") from error


def shorter_side(image: Image, length: int) -> Image:
    """Return the image scaled so that its shorter side has `length` pixels."""
    width, height = image.size
    short = min(width, height)
    return image.resize((width * length // short, height * length // short), BILINEAR)


def middle(image: Image, size: int) -> Image:
    """Return the size x size middle of an image."""
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def pixels(image: Image) -> Tensor:
    """Return uint8 (3,H,W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def bad_images(examples: EncodedImages) -> dict[int, str]:
    """Return what is wrong with each example that does not decode, by its index."""
    found = {}
    for index in range(len(examples)):
        try:
            examples.fetch(torch.tensor([index]))
        except (DataError, OSError) as error:
            found[index] = str(error)
    return found
