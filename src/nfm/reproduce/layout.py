"""Claims as tables in the paper's layout: the published number above ours, known errors marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nfm.plots.table import show_column
from nfm.registry import Registry
from nfm.reproduce.statistics import ENOUGH
from nfm.results import Row

WRONG = "†"  # beside a published number that is known to be wrong
TABLES: Registry[Callable[[Row], str]] = Registry("kind of table")


def show_table(table: Row) -> str:
    """Return one table of a claim as Markdown."""
    return TABLES[table["kind"]](table)


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as a Markdown table."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show_number(number: Row | None, *, best: bool = False) -> str:
    """Return a mean in %, with its deviation over seeds or the interval of one model.

    >>> show_number({"mean": 0.912, "std": 0.004, "seeds": 3, "n": 100})
    '91.2 ± 0.4'
    """
    if number is None:
        return "–"
    mean = f"{100 * number['mean']:.1f}"
    mean = f"**{mean}**" if best else mean
    if "std" in number:
        return f"{mean} ± {100 * number['std']:.1f}"
    return f"{mean} [{100 * number['lo']:.1f}, {100 * number['hi']:.1f}]" if "lo" in number else mean


def best_of(numbers: Sequence[Row | None]) -> float | None:
    """Return the highest mean, None where it is of too few seeds to be called the best."""
    best = max((number for number in numbers if number), key=lambda number: number["mean"], default=None)
    return None if best is None or best["seeds"] < ENOUGH else float(best["mean"])


@TABLES.register("cells")
def cells_table(table: Row) -> str:
    """Return accuracies in %: of each scheme a line as published, if it was, and a line of ours."""
    columns = range(len(table["columns"]))
    best = [best_of([line["accuracy"][place] for line in table["lines"]]) for place in columns]
    body, footnotes = [], []
    for line in table["lines"]:
        label = line["label"]
        if "published" in line:
            body.append([label, "paper", *published_cells(line)])
            footnotes += [
                f"{label}, {_place(where, table)}: {reason}" for where, reason in line["errors"].items()
            ]
            label = ""
        if any(line["accuracy"]):
            body.append([label, f"ours, n={_seeds(line)}", *_show_all(line["accuracy"], best)])
    head = ["scheme", "", *(show_column((name, level)) for name, level in table["columns"])]
    parts = [
        f"Accuracy in %: {table['data']}, {table['n']:,} test images, protocol {table['protocol']}.",
        "",
        grid(head, body),
    ]
    parts += ["", *(f"{WRONG} {note}." for note in footnotes)] if footnotes else []
    return "\n".join([*parts, *_calibration(table)])


def own_accuracies(table: Row) -> str:
    """Return our accuracies in % alone, a line a scheme, from a table of cells."""
    lines = [line for line in table["lines"] if any(line["accuracy"])]
    best = [best_of(column) for column in zip(*(line["accuracy"] for line in lines), strict=True)]
    body = [
        [
            line["label"],
            str(_seeds(line)),
            *_show_all(line["accuracy"], best),
        ]
        for line in lines
    ]
    return grid(["scheme", "n", *(show_column((name, level)) for name, level in table["columns"])], body)


def _show_all(numbers: Sequence[Row | None], best: Sequence[float | None]) -> list[str]:
    """Return the numbers of a line, those that are the best of their column marked."""
    pairs = zip(numbers, best, strict=True)
    return [show_number(number, best=number is not None and number["mean"] == top) for number, top in pairs]


def _seeds(line: Row) -> int:
    """Return the seeds of a line, the fewest of its cells."""
    return min(number["seeds"] for number in line["accuracy"] if number)


def published_cells(line: Row) -> list[str]:
    """Return the published numbers; those known to be wrong carry a mark."""
    wrong = line["errors"]
    return [
        f"{number:.1f}{WRONG if 'row' in wrong or str(place) in wrong else ''}"
        for place, number in enumerate(line["published"])
    ]


def _place(where: str, table: Row) -> str:
    if where == "row":
        return "the whole row"
    name, level = table["columns"][int(where)]
    return show_column((name, level))


def _calibration(table: Row) -> list[str]:
    """Return the calibration errors of the same cells as a second table."""
    lines = [line for line in table["lines"] if any(line.get("ece", ()))]
    body = [[line["label"], *map(show_number, line["ece"])] for line in lines]
    if not body:
        return []
    head = ["scheme", *(show_column((name, level)) for name, level in table["columns"])]
    return ["", "Expected calibration error in % (15 bins), the same cells:", "", grid(head, body)]


@TABLES.register("families")
def families_table(table: Row) -> str:
    """Return accuracies in % by corruption, one column a scheme; blind spots beneath."""
    lines = table["lines"]
    head = ["corruption", *(line["label"] for line in lines)]
    body = []
    for name in table["columns"]:
        numbers = [line["accuracy"].get(name) for line in lines]
        best = best_of(numbers)
        body.append([name, *(show_number(n, best=bool(n) and n["mean"] == best) for n in numbers)])
    spots = [f"- {line['label']}: {', '.join(line['worse'])}" for line in lines if line["worse"]]
    told = (
        [
            f"Blind spots (worse than {table['baseline']} by more than the sum of both standard deviations, of at "
            f"least {ENOUGH} seeds each):",
            "",
            *spots,
        ]
        if spots
        else []
    )
    first = (
        f"Accuracy in %: {table['data']}, {table['n']:,} test images, mean over five severities; "
        f"corruptions {', '.join(table['sources'])}."
    )
    return "\n".join([first, "", grid(head, body), "", *told]).rstrip()
