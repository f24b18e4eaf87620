"""Pack a folder of images, FOLDER/{train,val}/CLASS/*, into one file that recipes read as `npz:FILE`.

    python examples/pack_images.py imagenette2-320 data/imagenette224_1500.npz 224

Without arguments it packs a folder that it makes up, and reads the file again.
"""

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import nfm.data


def encoded(path, side):
    """Return the middle of an image, `side` pixels wide and high, as a JPEG."""
    with Image.open(path) as image:
        square = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    square.save(file, "JPEG", quality=90)
    return np.frombuffer(file.getvalue(), np.uint8)


def pack(folder, out, side):
    """Write one file with all images of `folder`."""
    classes = sorted(path.name for path in (folder / "train").iterdir())
    paths = [path for part in ("train", "val") for path in sorted((folder / part).glob("*/*"))]
    images = [encoded(path, side) for path in paths]
    np.savez(
        out,
        jpeg=np.concatenate(images),
        offset=np.cumsum([0, *map(len, images)]),
        y=np.array([classes.index(path.parent.name) for path in paths]),
        split=np.array([path.parents[1].name for path in paths]),
        classes=np.array(classes),
    )


def made_up(folder):
    """Make a folder of two classes, two images each in either part."""
    for part in ("train", "val"):
        for name, grey in (("dark", 40), ("light", 210)):
            (folder / part / name).mkdir(parents=True)
            for number in range(2):
                Image.new("L", (48, 32), grey + number).save(folder / part / name / f"{number}.png")


with tempfile.TemporaryDirectory() as scratch:
    if len(sys.argv) == 4:
        folder, out, side = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    else:
        folder, out, side = Path(scratch, "images"), Path(scratch, "images.npz"), 32
        made_up(folder)
    pack(folder, out, side)
    data = nfm.data.load(f"npz:{out}")
    print(f"{out.name}: {len(data.train)} images to train on, {len(data.test)} to test, {data.classes}")
