"""Rows of features -> the images that activations like best: one line a scheme, one place a unit."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import INK, new_figure
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def feature_images(rows: Sequence[Row], *, title: str) -> Figure:
    """Return a figure of rows with scheme, place and png (base64)."""
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    if not schemes:
        raise UsageError("expected rows of features, got none")
    places = sorted({row["place"] for row in rows})
    figure = new_figure(width=1.7 * len(places), height=0.5 + 1.9 * len(schemes))
    grid = figure.subplots(len(schemes), len(places), squeeze=False)
    from matplotlib.image import imread

    for line, scheme in zip(grid, schemes, strict=True):
        for axes, place in zip(line, places, strict=True):
            axes.set_axis_off()
            found = [row for row in rows if (row["scheme"], row["place"]) == (scheme, place)]
            if found:
                axes.imshow(imread(io.BytesIO(base64.b64decode(found[0]["png"])), format="png"))
        line[0].set_title(scheme, fontsize=9, color=INK, loc="left")
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure
