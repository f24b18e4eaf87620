"""Rows -> a table in the paper's layout: scheme | clean | white noise | salt and pepper | the rest."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

from nfm.errors import UsageError, did_you_mean
from nfm.plots.comparison import CLEAN, Column, Comparison, Estimate, compare
from nfm.plots.names import is_attack, name_of
from nfm.results import Row

SYMBOLS = {"white_noise": "σ", "salt_and_pepper": "γ"}  # the paper's letters
LATEX = {"white_noise": r"$\sigma$", "salt_and_pepper": r"$\gamma$"}
ROUNDING = 1e-6  # rows of studies keep six digits after the point: 1/255 is 0.003922 there


def table(rows: Iterable[Row], *, style: str = "text", spread: bool = True, width: int | None = None) -> str:
    """Return `rows` as text, markdown, latex or csv, accuracies in %.

    Rows of another protocol, data set, set of examples or noise seed get a table of their own. With `spread`,
    one seed is shown with its Wilson interval, several as mean ± standard deviation. A text that is wider than
    `width` letters goes on below with the next columns.
    """
    return "\n\n".join(show_comparison(one, style=style, spread=spread, width=width) for one in compare(rows))


def show_comparison(
    comparison: Comparison, *, style: str = "text", spread: bool = True, width: int | None = None
) -> str:
    """Return one table."""
    if style not in STYLES:
        raise UsageError(f"unknown style {style!r}; known: {', '.join(STYLES)}{did_you_mean(style, STYLES)}")
    if style == "text":
        return _text(comparison, spread, width)
    return STYLES[style](comparison, spread)


def order(comparison: Comparison) -> list[Column]:
    """Return the columns in the paper's order, levels rising."""
    names = ["clean", *SYMBOLS, *comparison.perturbations()]
    return sorted(comparison.columns, key=lambda column: (names.index(column[0]), column[1]))


def show(estimate: Estimate | None, *, spread: bool) -> str:
    """Return an accuracy in %, as ``90.7 [89.1, 92.1]`` or ``90.7 ± 0.4``."""
    mean, band = _parts(estimate)
    return f"{mean} {band}".rstrip() if spread else mean


def _parts(estimate: Estimate | None) -> tuple[str, str]:
    """Return an accuracy in % and its band, which is never ± for one seed."""
    if estimate is None:
        return "–", ""
    if estimate.std is None:
        return f"{100 * estimate.mean:.1f}", f"[{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]"
    return f"{100 * estimate.mean:.1f}", f"± {100 * estimate.std:.1f}"


def show_column(column: Column) -> str:
    """Return the head of a column.

    >>> show_column(("white_noise", 0.1)), show_column(("pgd7", 8 / 255)), show_column(("pgd7(norm=l2)", 0.5))
    ('σ=0.1', 'PGD-7 l∞ ε=8/255', 'PGD-7 l2 ε=0.5')
    """
    if column == CLEAN:
        return "clean"
    name, level = column
    symbol = f"{name_of(name)} ε" if is_attack(name) else SYMBOLS.get(name, name)
    return f"{symbol}={show_level(level)}"


def show_level(level: float) -> str:
    """Return a level as people write it: ``0.1``, and ``8/255`` for what is a whole number of 255ths.

    >>> show_level(0.2), show_level(8 / 255), show_level(0.003922)
    ('0.2', '8/255', '1/255')
    """
    short, steps = f"{level:g}", round(level * 255)
    return f"{steps}/255" if steps and len(short) > 5 and abs(steps / 255 - level) < ROUNDING else short


def _lines(comparison: Comparison, spread: bool) -> list[list[str]]:
    columns = order(comparison)
    body = [
        [scheme, *(show(comparison.cells.get((scheme, column)), spread=spread) for column in columns)]
        for scheme in comparison.schemes
    ]
    return [["scheme", *map(show_column, columns)], *body]


def _text(comparison: Comparison, spread: bool, width: int | None = None) -> str:
    """Return aligned lines for a terminal; a band stands under its number, to keep the table narrow."""
    head, *body = _lines(comparison, spread=False)
    columns = order(comparison)
    bands = [
        ["", *(_parts(comparison.cells.get((scheme, column)))[1] for column in columns)]
        for scheme in comparison.schemes
    ]
    if spread:
        body = [line for pair in zip(body, bands, strict=True) for line in pair]
    notes = [f"note: {note}" for note in comparison.notes]
    return "\n".join([f"accuracy in %: {comparison.title}", "", align([head, *body], width=width), *notes])


def align(lines: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return lines of cells, the first of them the heads, as columns; those that do not fit go on below."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    blocks: list[list[int]] = [[]]
    for place in range(1, len(widths)):
        taken = widths[0] + sum(2 + widths[other] for other in (*blocks[-1], place))
        if width is not None and blocks[-1] and taken > width:
            blocks.append([])
        blocks[-1].append(place)
    return "\n\n".join(_block(lines, widths, [0, *places]) for places in blocks)


def _block(lines: Sequence[Sequence[str]], widths: Sequence[int], places: Sequence[int]) -> str:
    head, *body = ["  ".join(line[place].ljust(widths[place]) for place in places).rstrip() for line in lines]
    return "\n".join([head, "  ".join("─" * widths[place] for place in places), *body])


def _markdown(comparison: Comparison, spread: bool) -> str:
    lines = [[cell.replace("|", "\\|") for cell in line] for line in _lines(comparison, spread)]
    rule = "|---|" + "---:|" * (len(lines[0]) - 1)
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    notes = [f"- {note}" for note in comparison.notes]
    parts = [f"Accuracy in %: {comparison.title}", "", head, rule, *body, "", *notes]
    return "\n".join(parts).rstrip()


def _latex(comparison: Comparison, spread: bool) -> str:
    """Return a booktabs tabular with one heading a perturbation, as in the paper."""
    columns = order(comparison)
    names = list(dict.fromkeys(name for name, _ in columns))
    counts = [sum(name == other for other, _ in columns) for name in names]
    layout = "l" + "".join(" |" + " c" * count for count in counts)
    titles = ["Clean" if name == "clean" else LATEX.get(name, _escape(name_of(name))) for name in names]
    groups = [
        rf"\multicolumn{{{count}}}{{c}}{{{title} (\%)}}" for title, count in zip(titles, counts, strict=True)
    ]
    levels = ["" if column == CLEAN else f"${show_level(column[1])}$" for column in columns]
    body = [
        [_escape(line[0]), *(cell.replace(" ± ", r" $\pm$ ").replace("–", "--") for cell in line[1:])]
        for line in _lines(comparison, spread)[1:]
    ]
    rows = [" & ".join(cells) + r" \\" for cells in (["Scheme", *groups], ["", *levels], *body)]
    notes = [f"% {note}" for note in (f"accuracy in %: {comparison.title}", *comparison.notes)]
    inside = [r"\toprule", *rows[:2], r"\midrule", *rows[2:], r"\bottomrule"]
    return "\n".join([*notes, rf"\begin{{tabular}}{{{layout}}}", *inside, r"\end{tabular}"])


def _csv(comparison: Comparison, spread: bool) -> str:
    """Return one line a cell with all digits, whatever `spread`: a spreadsheet rounds by itself."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*comparison.about, "scheme", "perturbation", "level", "accuracy", "lo", "hi", "std", "seeds"]
    )
    for scheme in comparison.schemes:
        for column in order(comparison):
            cell = comparison.cells.get((scheme, column))
            if cell is not None:
                numbers = (cell.mean, cell.lo, cell.hi, cell.std, cell.seeds)
                writer.writerow([*comparison.about.values(), scheme, *column, *numbers])
    return out.getvalue().rstrip("\n")


def _escape(text: str) -> str:
    """Return `text` with the characters that LaTeX reads as commands made plain."""
    plain = {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "∞": r"$\infty$",
    }  # fmt: skip
    return "".join(plain.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)


STYLES: dict[str, Callable[[Comparison, bool], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
}
