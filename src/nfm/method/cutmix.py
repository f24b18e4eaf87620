"""CutMix: instead of a mixture of two examples, one with a box of the other (Yun et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn

from nfm.core.box import boxes_of, check_image, drawn_boxes, one_centre, run_paste_box
from nfm.core.draw import Choice, Draw
from nfm.core.mixing import Pairing
from nfm.core.noise import Noise
from nfm.errors import AttachError, SiteError
from nfm.method.dry_run import Plan
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.method.sites import INPUT


class BoxChoice(Choice):
    """A choice that pastes a box. Its weight is known once the size of the feature is: after the forward pass."""

    by_shape = True

    @classmethod
    def prepare(
        cls, key: int, numbers: tuple[float, float, float], pairing: Pairing, shape: tuple[int, ...]
    ) -> None:
        """Draw the box, or where its middle is."""
        if len(shape) != 4:
            one_centre(key)
            return
        pairing, _ = drawn_boxes(key, shape, *numbers, per_sample=False)
        super().prepare(key, numbers, pairing, shape)

    def apply(self, x: Tensor, stream: int = 0) -> Tensor:
        """Return `x` with a box of its partners."""
        check_image(x)
        return run_paste_box(x, self.arguments, self.per_sample, stream)

    def draw(self, size: int) -> Draw:
        """Return what this choice meant for the batch of `size` that it met."""
        if not self.shape:
            raise AttachError("the weight of a box is known after its forward pass; run the network first")
        pairing, _ = boxes_of(self.arguments, (size, *self.shape[1:]), per_sample=self.per_sample)
        return Draw(site=self.site, step=self.step, pairing=pairing, choice=self)


class CutMix(NoisyFeatureMixup):
    """Train on examples with a box of another one, labels weighted by the area that was really pasted.

    `alpha`, `beta`: the law of the share of the image that stays, before the border cuts the box; Beta(1, 1) in
    the paper, Section 3.1. `weights="sample"` gives each example a box of its own. `sites` other than the input
    cut boxes from feature maps [n, channels, height, width]. It attaches as the class it comes from does.
    """

    kind = BoxChoice

    def __init__(
        self,
        sites: Sequence[str] | str = INPUT,
        alpha: float = 1.0,  # Yun et al. 2019, Section 3.1
        beta: float | None = None,
        weights: Literal["batch", "sample"] = "batch",
        *,
        inputs: Sequence[str] | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(sites, alpha, beta, Noise(), weights, inputs=inputs, seed=seed)

    def __repr__(self) -> str:
        shapes = f"alpha={self.alpha:g}" + (f", beta={self.beta:g}" if self.beta != self.alpha else "")
        inputs = f"inputs: {', '.join(self.inputs)}; " if self.inputs else ""
        sites = ", ".join(self.sites or ())
        return f"CutMix(sites: {sites}; {inputs}{shapes}; one box a {self.weights}; seed={self.seed})"

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Dry-run `model` on `x` and return the plan of its sites; refuse one without rows and columns."""
        plan = super().check(model, x)
        for row in plan.rows:
            if len(row.shape) != 4:
                raise SiteError(
                    f"expected images or feature maps [n, channels, height, width] at site {row.site!r} to cut "
                    f"boxes from, got shape {row.shape}; choose an earlier site"
                )
        return plan
