"""The two noises of the paper: (1 + mult * xi_mult) * h + add * xi_add (Section 3, step 4)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from torch import Tensor

from nfm.core.laws import LAWS
from nfm.core.weights import sample_beta
from nfm.errors import UsageError, did_you_mean
from nfm.randomness import fold, passing_generator

SCALE_SHAPES = (2.0, 5.0)  # the authors' level * Beta(2, 5), a draw a batch (docs/differences.md, row 1)

LawName = Literal["gaussian", "uniform", "rademacher"]
ScaleName = Literal["fixed", "beta", "uniform"]
Granularity = Literal["element", "channel", "sample"]


@dataclass(frozen=True)
class ScaleLaw:
    """A law of the factor that multiplies a level, drawn once a batch, and its root mean square."""

    sample: Callable[[int], float]
    rms: float


def _beta_rms(a: float, b: float) -> float:
    return math.sqrt(a * (a + 1) / ((a + b) * (a + b + 1)))


SCALE_LAWS: dict[str, ScaleLaw] = {
    "fixed": ScaleLaw(lambda key: 1.0, 1.0),
    "beta": ScaleLaw(lambda key: float(sample_beta(*SCALE_SHAPES, 1, key)[0]), _beta_rms(*SCALE_SHAPES)),
    "uniform": ScaleLaw(lambda key: float(passing_generator(key).random()), 1 / math.sqrt(3)),
}


@dataclass(frozen=True, repr=False)
class Noise:
    """Levels and laws of the additive and the multiplicative noise.

    `add` and `mult` are levels (sigma in the paper), 0 or greater; a level of 0 draws nothing. Each noise
    has a law of its values and a scale law of its level. A multiplicative level above 1 is allowed, with a
    warning: it often turns the sign of a feature. `sparsity` is the share of elements left
    untouched; `granularity` says what shares one value (``channel``: dim 1 of the feature); `relative`
    multiplies the additive level by the feature's standard deviation over the batch.

    >>> Noise(0.4, 0.2)
    Noise(add=0.4, mult=0.2; rms 0.4, 0.2)
    >>> Noise.authors(0.4, 0.2)
    Noise(add=0.4 beta-scaled, mult=0.2 uniform beta-scaled; rms 0.131, 0.0378)
    """

    add: float = 0.0
    mult: float = 0.0
    add_law: LawName = "gaussian"
    mult_law: LawName = "gaussian"
    add_scale: ScaleName = "fixed"
    mult_scale: ScaleName = "fixed"
    sparsity: float = field(default=0.0, kw_only=True)
    granularity: Granularity = field(default="element", kw_only=True)
    relative: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("add", "mult"):
            level = getattr(self, name)
            if isinstance(level, bool) or not isinstance(level, int | float) or not 0 <= level < math.inf:
                raise UsageError(f"noise.{name}: expected a finite level, 0 or greater, got {level!r}")
        if self.mult > 1:
            warnings.warn(
                f"noise.mult: a level above 1 (got {self.mult:g}) often turns the sign of a feature",
                stacklevel=3,
            )
        if not isinstance(self.relative, bool):
            raise UsageError(f"noise.relative: expected True or False, got {self.relative!r}")
        if not isinstance(self.sparsity, int | float) or not 0 <= self.sparsity < 1:
            raise UsageError(
                f"noise.sparsity: expected the share left untouched, from 0 to below 1, got {self.sparsity!r}"
            )
        for name, allowed in (
            ("add_law", LAWS), ("mult_law", LAWS), ("add_scale", SCALE_LAWS), ("mult_scale", SCALE_LAWS),
            ("granularity", get_args(Granularity)),
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in allowed:
                raise UsageError(
                    f"noise.{name}: expected one of {', '.join(allowed)}, got {value!r}"
                    f"{did_you_mean(str(value), allowed)}"
                )

    @classmethod
    def paper(cls, add: float = 0.0, mult: float = 0.0) -> Noise:
        """Return the paper's equation: both Gaussian, at a fixed level."""
        return cls(add, mult)

    @classmethod
    def authors(cls, add: float = 0.0, mult: float = 0.0) -> Noise:
        """Return the authors' code, behind the published numbers: about a third of the strength.

        Additive standard normal, multiplicative uniform on [-1, 1], each level times one Beta(2, 5) draw
        a batch (docs/differences.md, rows 1 and 2).
        """
        return cls(add, mult, mult_law="uniform", add_scale="beta", mult_scale="beta")

    @property
    def silent(self) -> bool:
        """Tell whether both levels are 0."""
        return self.add == 0 and self.mult == 0

    def rms(self) -> tuple[float, float]:
        """Return the effective root mean square of the additive and of the multiplicative noise."""
        spread = math.sqrt(1 - self.sparsity)
        return (
            self.add * LAWS[self.add_law].rms * SCALE_LAWS[self.add_scale].rms * spread,
            self.mult * LAWS[self.mult_law].rms * SCALE_LAWS[self.mult_scale].rms * spread,
        )

    def scaled_levels(self, key: int) -> tuple[float, float]:
        """Return the levels of one batch: each times its own draw of its scale law."""
        return (
            self.add * SCALE_LAWS[self.add_scale].sample(fold(key, "add scale")) if self.add else 0.0,
            self.mult * SCALE_LAWS[self.mult_scale].sample(fold(key, "mult scale")) if self.mult else 0.0,
        )

    def __repr__(self) -> str:
        def told(name: str) -> str:
            law, scale = getattr(self, f"{name}_law"), getattr(self, f"{name}_scale")
            words = [f"{name}={getattr(self, name):g}"]
            words += [law] if law != "gaussian" else []
            words += [f"{scale}-scaled"] if scale != "fixed" else []
            return " ".join(words)

        settings = [told("add"), told("mult")]
        settings += [f"sparsity={self.sparsity:g}"] if self.sparsity else []
        settings += [f"granularity={self.granularity}"] if self.granularity != "element" else []
        settings += ["relative"] if self.relative else []
        return f"Noise({', '.join(settings)}; rms {', '.join(f'{rms:.3g}' for rms in self.rms())})"


def perturb(h: Tensor, *, add: Tensor | None, mult: Tensor | None) -> Tensor:
    """Return (1 + mult) * h + add; the noise values carry their levels, None stands for no noise."""
    noisy = h if mult is None else h * (1 + mult)
    return noisy if add is None else noisy + add
