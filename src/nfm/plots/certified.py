"""Rows of certified accuracy -> a table and curves against the radius, one line a scheme and sigma."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, PALETTE, new_figure, quieten
from nfm.plots.table import align
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = tuple[Sequence[Row], Row, Sequence[str]]  # a curve, its summary, its flags
ALIKE = ("data", "unit", "alpha", "draws")  # what lines must share to stand in one picture


def certified_curves(rows: Iterable[Row], *, title: str | None = None) -> Figure:
    """Return a figure of certified accuracy (%) against the radius, with Wilson's interval as a band.

    A line ends at the largest radius that is certified of an example. Rows of different data, unit or alpha are
    refused.
    """
    lines = _lines(rows)
    figure = new_figure(width=5.6, height=4.2)
    axes = figure.subplots()
    for place, (name, points) in enumerate(lines.items()):
        colour = PALETTE[place % len(PALETTE)]
        x = [row["radius"] for row in points]
        low, high, share = ([100 * row[key] for row in points] for key in ("lo", "hi", "accuracy"))
        axes.fill_between(x, low, high, step="post", color=colour, alpha=0.18, linewidth=0)
        axes.step(x, share, where="post", color=colour, linewidth=1.8, label=name)
    first = next(iter(lines.values()))[0]
    axes.set_xlabel(f"radius ({first['unit']})", color=INK)
    axes.set_ylabel("certified accuracy (%)", color=INK)
    axes.set_ylim(bottom=0)
    quieten(axes)
    axes.set_title(
        f"band: 95% interval of the {_counts(lines)} examples", fontsize=8.5, color=FAINT, loc="left"
    )
    figure.suptitle(
        title or f"Certified by smoothing: {_about(first)}", fontsize=11, color=INK, x=0.01, ha="left"
    )
    figure.legend(loc="outside lower center", ncols=min(len(lines), 3), frameon=False)
    return figure


def _lines(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each line by its name, radii rising."""
    rows = sorted(rows, key=lambda row: row["radius"])
    if not rows:
        raise UsageError("expected rows of certified accuracy, got none")
    for key in ALIKE:
        values = {str(row.get(key)) for row in rows}
        if len(values) > 1:
            raise UsageError(f"expected rows of one {key}, got {', '.join(sorted(values))}; draw them apart")
    names = _names(rows)
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(f"{names[_key(row)]}, σ={row['sigma']:g}", []).append(row)
    return dict(sorted(lines.items()))


def _key(row: Row) -> tuple[str, str]:
    """Return the scheme of a row and the hash of its network, which tells two of one scheme apart."""
    seed = row.get("train_seed")
    scheme = str(row.get("scheme", "model"))
    return (f"{scheme} (seed {seed})" if seed else scheme), str(row.get("model", ""))


def _names(rows: Iterable[Row]) -> dict[tuple[str, str], str]:
    """Return what each network is called: its scheme, with the hash where two share it."""
    keys = {_key(row) for row in rows}
    shared = Counter(name for name, _ in keys)
    return {(name, model): f"{name} {model[:8]}" if shared[name] > 1 else name for name, model in keys}


def _about(row: Row) -> str:
    return f"{row.get('data', 'data')}, α={row['alpha']:g}"


def _counts(lines: dict[str, list[Row]]) -> str:
    return " / ".join(str(count) for count in sorted({points[0]["n"] for points in lines.values()}))


def certified_table(lines: Sequence[Line]) -> str:
    """Return the lines as text, certified accuracy in % at each radius, with every flag."""
    head = ["scheme", "σ", "n", *(f"r>{row['radius']:g}" for row in lines[0][0]), "abstained", "mean radius"]
    names = _names(curve[0] for curve, _, _ in lines)
    body = [
        [
            names[_key(curve[0])], f"{curve[0]['sigma']:g}", str(curve[0]["n"]),
            *(f"{100 * row['accuracy']:.1f} [{100 * row['lo']:.1f}, {100 * row['hi']:.1f}]" for row in curve),
            f"{100 * summary['abstained']:.1f}", f"{summary['mean_radius']:.3g}",
        ]
        for curve, summary, _ in lines
    ]  # fmt: skip
    first = lines[0][0][0]
    notes = dict.fromkeys(f"note: {flag}" for _, _, flags in lines for flag in flags)
    title = f"certified accuracy in %: {_about(first)} an example, {first['draws']} draws, radius in {first['unit']}"
    return "\n".join([title, "", align([head, *body]), *notes])
