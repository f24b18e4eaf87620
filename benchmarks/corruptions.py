"""What a generated corruption costs on a batch, against the same one image at a time with SciPy and Pillow.

The reference is the slow oracle of the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.side_by_side import Ratio, by_turns
from nfm.evaluate.corruptions import CONSTANTS, CORRUPTIONS, corrupt
from nfm.evaluate.corruptions.frost import draw_windows

sys.path.append(str(Path(__file__).parents[1] / "tests" / "evaluate"))
from slow_corruptions import SLOW, FreshDraws

COUNT, SIDE, SEVERITY = 250, 32, 3  # 250: the batch of nfm.evaluate
ROUNDS = 5
BATCHES = 4  # of ours in a turn, one after the other, as in a test pass


def _photographs(count: int, side: int) -> Tensor:
    """Return images with the spectrum of photographs (amplitude 1/f): uint8 (count, 3, side, side)."""
    white = np.random.default_rng(0).standard_normal((count, 3, side, side))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side))
    frequency[0, 0] = 0.5 / side
    smooth = np.fft.ifft2(np.fft.fft2(white) / frequency).real
    return torch.from_numpy(np.clip(128 + 60 * smooth / smooth.std(), 0, 255).astype(np.uint8))


def _batches(family: str, images: Tensor, ids: Tensor) -> Callable[[], object]:
    return lambda: [corrupt(images, ids, family, SEVERITY) for _ in range(BATCHES)]


def _one_by_one(family: str, images: Tensor) -> Callable[[], object]:
    pictures = images.permute(0, 2, 3, 1).contiguous().numpy()
    options = {"windows": draw_windows(2 * SIDE).numpy()} if family == "frost" else {}
    make = partial(SLOW[family], **options)
    numbers = CONSTANTS["cifar"][family][SEVERITY - 1]

    def run() -> None:
        draws = FreshDraws(0)
        for picture in pictures:
            make(picture, draws, *numbers)

    return run


def measure() -> Iterator[Ratio]:
    """Yield one ratio a family, severity 3, 250 images of 32x32, and the geometric mean of all."""
    images, ids = _photographs(COUNT, SIDE), torch.arange(COUNT)
    times = []
    for family in CORRUPTIONS:
        works = (_batches(family, images, ids), _one_by_one(family, images))
        (ours, theirs), left_out = by_turns(works, rounds=ROUNDS)
        times.append([[seconds / BATCHES for seconds in ours], theirs])
        pairs = list(zip(*times[-1], strict=True))
        yield Ratio.of(f"{family} on a batch / image by image", pairs, left_out=left_out)
    means = np.exp(np.log(times).mean(axis=0))  # of ours and theirs, in each round
    yield Ratio.of(
        f"corruptions, geometric mean of {len(times)} families", list(zip(*means.tolist(), strict=True))
    )
