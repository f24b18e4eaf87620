"""The supplement's figure of the NFM loss beside its second-order approximation, while a network trains."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from nfm.config.build import build_method
from nfm.core.noise import Noise
from nfm.reproduce.measuring import MEASURES, Trained
from nfm.reproduce.statistics import DIGITS
from nfm.reproduce.study import Line, Measure
from nfm.reproduce.summaries import SUMMARIES
from nfm.results import Row
from nfm.theory.taylor import taylor

EPOCHS, EVERY = 100, 5


@MEASURES.register("taylor")
def measure_taylor(trained: Trained, measure: Measure) -> list[Row]:
    """Return rows of the losses by epoch; the measure trains a network of its own, of two layers."""
    method = build_method(trained.config.method, seed=trained.config.train.seed)
    noise, alpha = getattr(method, "noise", Noise()), getattr(method, "alpha", 1.0)
    return taylor(epochs=EPOCHS, every=EVERY, noise=noise, alpha=alpha, seed=trained.config.train.seed)


@SUMMARIES.register("taylor")
def summarise_taylor(lines: Sequence[Line], rows: Sequence[Row]) -> Row:
    """Return how far the approximation is from the loss, relative to it, over epochs and seeds."""
    shown = [line.arm for line in lines if any(row["arm"] == line.arm.name for row in rows)]
    return {"kind": "taylor", "lines": [_summary(arm.name, arm.title, rows) for arm in shown]}


def _summary(name: str, label: str, rows: Sequence[Row]) -> Row:
    told: Row = {
        "arm": name,
        "label": label,
        "seeds": len({r["train_seed"] for r in rows if r["arm"] == name}),
    }
    for part in ("train", "test"):
        own = [row for row in rows if row["arm"] == name and row["part"] == part]
        last = max(row["epoch"] for row in own)
        end = [row for row in own if row["epoch"] == last]
        gaps = [abs(row["approximation"] - row["nfm_loss"]) / row["nfm_loss"] for row in own]
        told[part] = {
            "standard": round(fmean(row["standard"] for row in end), DIGITS),
            "nfm_loss": round(fmean(row["nfm_loss"] for row in end), DIGITS),
            "approximation": round(fmean(row["approximation"] for row in end), DIGITS),
            "mean_gap": round(fmean(gaps), DIGITS), "largest_gap": round(max(gaps), DIGITS),
        }  # fmt: skip
    return told
