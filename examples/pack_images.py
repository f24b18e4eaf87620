"""Pack images of a data set into one file that recipes read as `npz:FILE`: the first of each class, by name.

    python examples/pack_images.py imagefolder:imagenette2-320 data/imagenette224_1500.npz 224 --limit 100 50

Without arguments it packs a folder that it makes up, and reads the file again.
"""

import argparse
import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import nfm.data

parser = argparse.ArgumentParser(description="Pack images of a data set into one file.")
parser.add_argument("data", nargs="?", help="imagefolder:FOLDER (FOLDER/train/CLASS/*) or tiny-imagenet")
parser.add_argument("out", nargs="?", type=Path, help="the file to write, .npz")
parser.add_argument("side", nargs="?", type=int, default=32, help="pixels (default: 32)")
parser.add_argument("--limit", nargs=2, type=int, metavar=("TRAIN", "TEST"), help="images of a class")
parser.add_argument("--classes", nargs="+", default=[], metavar="CLASS", help="no others (default: all)")


def encoded(content, side):
    """Return the middle of an image, `side` pixels wide and high, as a JPEG; one that is so stays as it is."""
    with Image.open(file := io.BytesIO(content)) as image:
        if image.format != "JPEG" or image.size != (side, side):
            ImageOps.fit(image.convert("RGB"), (side, side)).save(file := io.BytesIO(), "JPEG", quality=90)
    return np.frombuffer(file.getvalue(), np.uint8)


def pack(data, classes, asked):
    """Write one file with the images of `classes`."""
    images, rows, limit = [], [], asked.limit or (None, None)
    for part, examples, most in zip(("train", "val"), (data.train, data.test), limit, strict=True):
        for label, name in enumerate(classes):
            places = examples.places[examples.labels == data.classes.index(name)][:most].tolist()
            images += [encoded(examples.blobs.read(place), asked.side) for place in places]
            rows += [(label, part)] * len(places)
    offset, (y, split) = np.cumsum([0, *map(len, images)]), zip(*rows, strict=True)
    np.savez(asked.out, jpeg=np.concatenate(images), offset=offset, y=y, split=split, classes=classes)


with tempfile.TemporaryDirectory() as scratch:
    asked = parser.parse_args()
    if asked.data is None:
        for place in ("train/dark", "train/light", "val/dark", "val/light"):
            Path(scratch, place).mkdir(parents=True)
            Image.new("L", (48, 32), 40 if "dark" in place else 210).save(Path(scratch, place, "0.png"))
        asked.data, asked.out = f"imagefolder:{scratch}", Path(scratch, "images.npz")
    elif asked.out is None:
        parser.error("expected the file to write after the data set, got none")
    data = nfm.data.load(asked.data, validation=0)
    if unknown := sorted(set(asked.classes) - set(data.classes)):
        parser.error(f"{asked.data} has no class {unknown[0]!r}; it has: {', '.join(data.classes)}")
    pack(data, [name for name in data.classes if name in (asked.classes or data.classes)], asked)
    packed = nfm.data.load(f"npz:{asked.out}", validation=0)
    print(f"{asked.out.name}: {len(packed.train)} to train on, {len(packed.test)} to test, {packed.classes}")
