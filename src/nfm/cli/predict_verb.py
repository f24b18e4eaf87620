"""``nfm predict RUN IMAGES...``: classes and probabilities."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from nfm.errors import DataError, UsageError, need

if TYPE_CHECKING:
    from torch import Tensor

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("run", type=Path, help="the folder of a run")
    options.add_argument("images", type=Path, nargs="+", help="image files, or folders of them")
    options.add_argument("--top", type=int, default=3, help="how many classes to print (default 3)")
    options.add_argument("--json", action="store_true", help="one JSON object a line")


def run(given: argparse.Namespace) -> None:
    """Print the likeliest classes of each image."""
    import torch

    from nfm.config.runs import load_run

    if given.top < 1:
        raise UsageError(f"--top: expected at least 1, got {given.top}")
    files = [file for path in given.images for file in _files(path)]
    trained = load_run(given.run)
    for file in files:
        with torch.inference_mode():
            probabilities = trained.model(read_image(file, trained.facts.shape)[None]).softmax(1)[0]
        top = probabilities.topk(min(given.top, len(probabilities)))
        found = [
            (trained.facts.classes[i], p)
            for p, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        if given.json:
            print(
                json.dumps(
                    {"image": str(file), "classes": [{"class": c, "probability": p} for c, p in found]}
                )
            )
        else:
            print(f"{file}  " + "  ".join(f"{name} {100 * p:.1f}%" for name, p in found))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS)
        if not found:
            raise DataError(f"{path}: expected images ({', '.join(ENDINGS)}), found none")
        return found
    if not path.exists():
        raise DataError(f"no image {path}")
    return [path]


def read_image(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Return an image as float32 (C, H, W) in [0, 1], of the channels and size a network was trained on."""
    import numpy as np
    import torch

    try:
        from PIL import Image, UnidentifiedImageError
    except (ImportError, RuntimeError) as error:
        raise need("pillow", "data", "reading images", error) from error
    if len(shape) != 3:
        raise UsageError(f"expected a network for images, this one takes vectors of {shape[0]} features")
    channels, height, width = shape
    try:
        with Image.open(path) as image:
            pixels = image.convert("L" if channels == 1 else "RGB").resize(
                (width, height), Image.Resampling.BILINEAR
            )
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: expected an image, got {error}") from None
    array = np.asarray(pixels, dtype=np.float32).reshape(height, width, channels) / 255
    return torch.from_numpy(array.transpose(2, 0, 1).copy())
