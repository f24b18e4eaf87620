"""What tells a measurement from another: a number of what a model makes of a few examples, a hash of the pixels."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from nfm.data.examples import Examples, ExampleSet
from nfm.evaluate.checks import TOLERANCE, Classifier, predict
from nfm.randomness import fold, torch_generator

SAMPLE = 128  # images that tell those of a set that is decoded on demand
CHUNK = 1024  # examples hashed at once


def summarise_output(model: Classifier, x: Tensor) -> float | None:
    """Return one number that tells the logits on `x`; None where they cannot be repeated or are not finite.

    It is told by what the forward pass does, not by the state alone, and changes with the rounding of kernels as
    little as the logits do: a random projection of them, kept away from 0.
    """
    first, second = (predict(model, x).double().cpu() for _ in range(2))
    if not torch.isfinite(first).all() or not (second - first).abs().max() <= TOLERANCE * first.abs().max():
        return None
    weights = torch.randn(first.shape, generator=torch_generator(fold("output")), dtype=torch.float64)
    return float(4 * first.abs().mean() + (first * weights).sum() / first.numel() ** 0.5)


def hash_pixels(examples: ExampleSet) -> str:
    """Return a hash of the images, whatever their order: of all in memory, of a keyed sample of others."""
    order = examples.ids.argsort()
    if not isinstance(examples, Examples):
        drawn = torch.randperm(len(order), generator=torch_generator(fold("pixels", len(order))))
        order = order[drawn[:SAMPLE]]
    digest = hashlib.sha256(str(examples.shape).encode())
    for indices in order.split(CHUNK):
        images = examples.fetch(indices)
        digest.update(str(images.dtype).encode())
        digest.update(images.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
