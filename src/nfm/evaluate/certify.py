"""Certified l2 robustness of any classifier by Gaussian smoothing at its input (Cohen, Rosenfeld & Kolter 2019).

The smoothed classifier tells the class that the base classifier tells most often of pixels + sigma * normal. If that
class has a probability above p > 1/2, no change of the pixels shorter than sigma * Phi^-1(p) makes it tell another:
nothing is assumed of the base classifier. The noise is not clipped, or it would be no Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfm.core.binomial import check_alpha, lower_bound
from nfm.data.examples import ExampleSet
from nfm.errors import NumericalError, ShapeError, UsageError
from nfm.evaluate.certificates import Certification, CertificationFolder
from nfm.evaluate.checks import Classifier, measuring, predict
from nfm.evaluate.journal import OUTPUT
from nfm.evaluate.perturbation import check_pixels
from nfm.evaluate.protocols import Pixel, find_normalisation
from nfm.evaluate.subject import Subject
from nfm.randomness import check_seed, fold, numpy_generator
from nfm.results import Row

Progress = Callable[[str, int, int], None]  # what is done; draws done and in all
UNIT = "l2 of pixels in [0, 1]"


@dataclass(frozen=True)
class Smoothing:
    """How an example is certified: the paper's sigma, n0, n and alpha.

    `n0` draws choose the class, `n` others estimate its probability; a certificate is wrong with probability
    `alpha` at most, example by example.
    """

    sigma: float
    n: int = 10_000
    n0: int = 100
    alpha: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise UsageError(f"sigma: expected a deviation above 0, in pixels of [0, 1], got {self.sigma!r}")
        check_alpha(self.alpha)
        for name in ("n", "n0"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}: expected a number of draws from 1 up, got {value!r}")
        if self.alpha ** (1 / self.n) <= 0.5:
            least = math.floor(math.log(self.alpha) / math.log(0.5)) + 1
            raise UsageError(
                f"n: expected at least {least} draws: with n={self.n} nothing is certified at alpha={self.alpha:g}, "
                "even if all draws agree"
            )

    def noisy(self, x: Tensor, name: int, seed: int, purpose: str, n: int, batch: int) -> Iterator[Tensor]:
        """Yield `n` noisy copies of one example `x` in batches; batches of any size hold the same draws."""
        generator = numpy_generator(fold(seed, "certify", purpose, repr(self.sigma), name))
        for start in range(0, n, batch):
            drawn = generator.standard_normal((min(batch, n - start), *x.shape), dtype=np.float32)
            yield torch.from_numpy(drawn).to(x.device).mul_(self.sigma).add_(x)


@dataclass(frozen=True)
class Certificate:
    """What is certified of one example: no class and no radius where it abstains."""

    predicted: int | None
    radius: float | None  # l2, in pixels of [0, 1]
    chosen: int  # the class that n0 draws chose
    hits: int  # how many of n draws agree
    p_lower: float  # its probability is above, with confidence 1 - alpha


def count_classes(model: Classifier, batches: Iterator[Tensor]) -> Tensor:
    """Return how often `model` tells each class: int64 (K,), on the CPU."""
    counts: Tensor | int = 0
    for x in batches:
        logits = predict(model, x)
        if logits.shape[1] < 2:
            raise ShapeError(
                "expected logits of two classes or more, got one output, of which every class is the same; let a "
                "binary model with the output f return torch.cat([-f, f], 1)"
            )
        if not torch.isfinite(logits).all():
            raise NumericalError(
                "the model's logits are not finite under noise; look at its weights, or at sigma"
            )
        counts = counts + torch.bincount(logits.argmax(1), minlength=logits.shape[1]).cpu()
    assert isinstance(counts, Tensor)
    return counts


def certify_one(
    model: Classifier, x: Tensor, name: int, how: Smoothing, *, seed: int = 0, batch_size: int = 250
) -> Certificate:
    """Certify one example `x` (C, H, W) or (d,) of the id `name`: Cohen et al.'s CERTIFY."""
    selection = count_classes(model, how.noisy(x, name, seed, "select", how.n0, batch_size))
    chosen = int(selection.argmax())
    estimate = count_classes(model, how.noisy(x, name, seed, "estimate", how.n, batch_size))
    hits = int(estimate[chosen])
    p_lower = lower_bound(hits, how.n, alpha=how.alpha)
    if p_lower <= 0.5:
        return Certificate(None, None, chosen, hits, p_lower)
    return Certificate(chosen, how.sigma * NormalDist().inv_cdf(p_lower), chosen, hits, p_lower)


def predict_smoothed(
    model: Classifier, x: Tensor, ids: Tensor, how: Smoothing, *, seed: int = 0, batch_size: int = 250
) -> list[int | None]:
    """Return the smoothed class of each example of `x` (B, ...), None where it abstains: their PREDICT.

    It is wrong with probability alpha at most: the two likeliest classes are as likely as each other otherwise
    (a two-sided binomial test, here by the Clopper-Pearson bound that is equivalent to it).
    """
    check_pixels(x, ids)
    if batch_size < 1:
        raise UsageError(f"batch_size: expected a whole number from 1 up, got {batch_size!r}")
    told: list[int | None] = []
    with measuring(model):
        for one, name in zip(x, ids.tolist(), strict=True):
            counts = count_classes(model, how.noisy(one, name, seed, "predict", how.n, batch_size))
            first, second = (int(count) for count in counts.topk(2).values)
            sure = lower_bound(first, first + second, alpha=how.alpha / 2) > 0.5
            told.append(int(counts.argmax()) if sure else None)
    return told


def certify(
    model: Classifier,
    examples: ExampleSet,
    how: Smoothing,
    *,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 250,
    classes: int | None = None,
    tags: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    force: bool = False,
    progress: Progress | None = None,
    save_to: Path | str | None = None,
    overwrite: bool = False,
) -> Certification:
    """Return one row an example of how far `model`, smoothed, is certified; `limit` takes a keyed sample of them.

    `model` is any callable from pixels to logits, refused and flagged as `evaluate` does. With `save_to` every
    row is written at once, and examples found there are not certified again: a larger `limit` adds to them;
    `overwrite` clears them first, once nothing else is to be refused.
    """
    subject = Subject(model, examples, Pixel(find_normalisation(model)), check_seed(seed), batch_size)
    order = choose_order(examples.ids, limit, subject.seed)
    with measuring(model):
        problems = _problems(subject, classes)
        if problems and not force:
            raise UsageError(f"refused: {', '.join(problems)}; force=True certifies it all the same, flagged")
        certification = Certification(_identity(subject, how), [])
        folder = CertificationFolder(Path(save_to)) if save_to is not None else None
        if folder and overwrite:
            folder.clear()
        held = {row["id"]: row for row in folder.open(certification.identity)} if folder else {}
        about = _about(subject, certification.identity, [*problems, *flags]) | dict(tags or {})
        missing = [place for place in order.tolist() if int(examples.ids[place]) not in held]
        for done, place in enumerate(missing, start=1):
            row = _certify(subject, how, place) | about
            held[row["id"]] = row
            if folder:
                folder.journal.add(row)
            if progress is not None:
                draws = how.n + how.n0
                progress(f"sigma {how.sigma:g}", draws * done, draws * len(missing))
        certification.rows.extend(held[int(name)] for name in examples.ids[order])
    return certification


def _certify(subject: Subject, how: Smoothing, place: int) -> Row:
    batch = subject.batch(torch.tensor([place]))
    check_pixels(batch.x, batch.ids)
    name, label = int(batch.ids[0]), int(batch.y[0])
    found = certify_one(
        subject.model, batch.x[0], name, how, seed=subject.seed, batch_size=subject.batch_size
    )
    return make_row(found, name, label)


def choose_order(ids: Tensor, limit: int | None, seed: int) -> Tensor:
    """Return the places of `limit` examples (all of them by default) in a keyed order: fewer are a part of more."""
    if limit is not None and limit < 1:
        raise UsageError(f"limit: expected a number of examples from 1 up, got {limit!r}")
    keys = torch.tensor([fold(seed, "certified examples", int(name)) for name in ids])
    return keys.argsort(stable=True)[:limit]


def make_row(found: Certificate, name: int, label: int) -> Row:
    """Return the row of one example; `correct` is of the smoothed prediction, and false where it abstains."""
    return {
        "kind": "certificate", "id": name, "label": label, "abstained": found.predicted is None,
        "correct": found.predicted == label, "unit": UNIT, **asdict(found),
    }  # fmt: skip


def _problems(subject: Subject, classes: int | None) -> list[str]:
    """Return what makes a certificate of this model meaningless; an argmax may be of probabilities."""
    found = subject.problems(classes)
    return [problem for problem in found if problem != "softmax output"]


def _identity(subject: Subject, how: Smoothing) -> Row:
    """Return what must agree for a certified example to be used again; the limit need not."""
    whole = subject.identity()
    kept = ("model", OUTPUT, "ids", "pixels", "seed")
    return {key: whole[key] for key in kept} | asdict(how)


def _about(subject: Subject, identity: Row, flags: list[str]) -> Row:
    """Return what every row tells beside its example."""
    protocol = subject.protocol
    scale = protocol.normalisation.scale if isinstance(protocol, Pixel) and protocol.normalisation else None
    normalised = identity["sigma"] / scale if scale else None
    return identity | {"sigma_normalised": normalised, "flags": flags}
