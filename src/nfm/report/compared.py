"""Sources -> text: the tables of all that may be compared, each with its paired tests and blind spots."""

from __future__ import annotations

from collections.abc import Sequence

from nfm.plots.comparison import Comparison, compare
from nfm.plots.differences import differences
from nfm.plots.table import show_column, show_comparison
from nfm.report.pairs import SURE, Pairing, choose_baseline, pair
from nfm.report.sources import Source
from nfm.results import Row

COMMENT = {"text": "", "markdown": "- ", "latex": "% "}


def compare_sources(
    sources: Sequence[Source], *, style: str = "text", baseline: str | None = None, width: int | None = None
) -> str:
    """Return one table for each protocol, data set and set of examples, with its paired tests."""
    found = sorted(compare([row for source in sources for row in source.rows]), key=by_protocol)
    if baseline is not None:
        choose_baseline([source.label for source in sources], baseline)  # refuse a name that is nowhere
    return "\n\n".join(_compared(one, sources, style, baseline, width) for one in found)


def by_protocol(comparison: Comparison) -> bool:
    """Tell whether a comparison comes after those under the default protocol."""
    return bool(comparison.about["protocol"] != "pixel")


def _compared(
    comparison: Comparison, sources: Sequence[Source], style: str, asked: str | None, width: int | None
) -> str:
    parts = [show_comparison(comparison, style=style, width=width)]
    chosen = choose_baseline(comparison.schemes, asked if asked in comparison.schemes else None)
    pairing = pair(comparison, sources, chosen)
    if pairing.cells:
        parts.append(differences(comparison, pairing.cells, chosen, style=style, width=width))
        if style in COMMENT:
            told = verdicts(comparison, pairing)
            parts.append("\n".join(f"{COMMENT[style]}{line}" for line in told))
    return "\n\n".join(parts)


def verdicts(comparison: Comparison, pairing: Pairing) -> list[str]:
    """Return a line a scheme: in how many columns it is surely above and below the baseline, and where below."""
    return [
        _verdict(scheme, [row for row in pairing.cells if row["scheme"] == scheme], pairing)
        for scheme in comparison.schemes
        if any(row["scheme"] == scheme for row in pairing.cells)
    ]


def _verdict(scheme: str, rows: Sequence[Row], pairing: Pairing) -> str:
    sure = [row["difference"] for row in rows if row["p_holm"] < SURE]
    above, below = sum(value > 0 for value in sure), sum(value < 0 for value in sure)
    spots = pairing.blind_spots(scheme)
    told = f"; blind spots: {', '.join(map(show_spot, spots))}" if spots else "; no blind spot"
    return f"{scheme} against {pairing.baseline}: above in {above} and below in {below} of {len(rows)} columns{told}"


def show_spot(row: Row) -> str:
    """Return a blind spot as ``fog (all levels) -2.1``."""
    name = row["perturbation"] if row["level"] is None else show_column((row["perturbation"], row["level"]))
    whole = " (all levels)" if row["level"] is None else ""
    return f"{name}{whole} {100 * row['difference']:+.1f}"
