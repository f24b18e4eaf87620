"""What a table says: the method's schemes against all others, and a study's questions, one arm against another."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nfm.plots.table import show_column
from nfm.reproduce.layout import TABLES, grid
from nfm.reproduce.statistics import DIGITS, ENOUGH, deviation
from nfm.reproduce.study import Question
from nfm.results import Row


def verdict_table(table: Row, champions: Collection[str]) -> Row:
    """Return how far the lines of `champions` are ahead of others, column by column, from a table of cells."""
    lines = [line for line in table["lines"] if any(line["accuracy"])]
    others = [line for line in lines if line["arm"] not in champions]
    told = [
        {"label": line["label"], "against": name, "columns": _differences(line, rivals)}
        for line in lines
        if line["arm"] in champions
        for name, rivals in (("the best of all others", others), (others[0]["label"], others[:1]))
    ] if others else []  # fmt: skip
    return {
        "kind": "verdicts", "measure": table["measure"], "columns": table["columns"], "others": len(others),
        "lines": told,
    }  # fmt: skip


def _differences(line: Row, rivals: Sequence[Row]) -> list[Row | None]:
    return [
        _difference(own, [(rival["label"], rival["accuracy"][place]) for rival in rivals])
        for place, own in enumerate(line["accuracy"])
    ]


def _difference(own: Row | None, rivals: Sequence[tuple[str, Row | None]]) -> Row | None:
    """Return the difference to the highest of `rivals`, and whether it is more than the sum of both deviations.

    The highest of those with seeds enough, if there are such; the others that are higher are told as `unjudged`.
    """
    there = [(label, number) for label, number in rivals if number is not None]
    if own is None or not there:
        return None
    judged = [rival for rival in there if rival[1]["seeds"] >= ENOUGH] or there
    label, best = max(judged, key=lambda rival: rival[1]["mean"])
    difference, seeds = own["mean"] - best["mean"], min(own["seeds"], best["seeds"])
    return {
        "difference": round(difference, DIGITS),
        "rival": label,
        "clear": seeds >= ENOUGH and abs(difference) > deviation(own) + deviation(best),
        "seeds": seeds,
        "unjudged": [rival[0] for rival in there if rival not in judged and rival[1]["mean"] > own["mean"]],
    }


def answers_table(table: Row, questions: Sequence[Question]) -> Row:
    """Return the answers of a table of cells to the questions of whose arms it has numbers."""
    lines = {line["arm"]: line for line in table["lines"] if any(line["accuracy"])}
    told = [
        {
            "asks": question.asks, "label": lines[question.arm]["label"], "against": lines[question.against]["label"],
            "columns": _differences(lines[question.arm], [lines[question.against]]),
        }
        for question in questions
        if question.arm in lines and question.against in lines
    ]  # fmt: skip
    return {"kind": "answers", "measure": table["measure"], "columns": table["columns"], "lines": told}


@TABLES.register("answers")
def show_answers(table: Row) -> str:
    """Return each question with its differences in points, and how many of them are clear."""
    if not table["lines"]:
        return "The rows that answer the questions of this study are not there yet."
    names = [[f"{line['asks']} {line['label']} – {line['against']}"] for line in table["lines"]]
    return _show_differences("Questions, answered in points", table, ["question"], names)


def answer(columns: Sequence[Row | None]) -> str:
    """Return in words what the clear differences of a line say together, of the first arm against the second."""
    ahead, behind, judged = counts(columns)
    if not judged:
        return "not answered by so few seeds"
    if not ahead + behind:
        return "no clear difference"
    if ahead and behind:
        return f"ahead in {ahead} and behind in {behind} of {judged}, a trade"
    return f"{'ahead' if ahead else 'behind'} wherever the difference is clear ({ahead + behind} of {judged})"


def counts(columns: Sequence[Row | None]) -> tuple[int, int, int]:
    """Return in how many columns an arm is clearly ahead, in how many behind, and how many have seeds enough."""
    judged = [cell for cell in columns if cell is not None and cell["seeds"] >= ENOUGH]
    clear = [cell["difference"] > 0 for cell in judged if cell["clear"]]
    return sum(clear), len(clear) - sum(clear), len(judged)


def _show_differences(about: str, table: Row, heads: list[str], names: Sequence[list[str]]) -> str:
    """Return a table of differences; `names` are the first cells of each line, `heads` what stands above them."""
    head = [*heads, *(show_column((name, level)) for name, level in table["columns"]), "so"]
    body = [
        [*first, *(_show(cell, line["against"]) for cell in line["columns"]), _in_words(line["columns"])]
        for first, line in zip(names, table["lines"], strict=True)
    ]
    return "\n".join([f"{about}; {_bold(table)}", "", grid(head, body)])


def _bold(table: Row) -> str:
    """Tell what is in bold, and what few seeds cannot tell."""
    cells = [cell for line in table["lines"] for cell in line["columns"] if cell is not None]
    told = (
        "bold: by more than the sum of both standard deviations, each that over seeds or that of the test images, "
        "whichever is greater."
    )
    if any(cell["seeds"] < ENOUGH for cell in cells):
        told += f" Of fewer than {ENOUGH} seeds no difference is called clear."
    return told


def _in_words(columns: Sequence[Row | None]) -> str:
    """Count the clear differences among those that were measured with seeds enough."""
    ahead, behind, judged = counts(columns)
    told = f"clearly ahead in {ahead}, behind in {behind}, of {judged}"
    few = sum(cell is not None for cell in columns) - judged
    return told if not few else f"too few seeds in {few}" if not judged else f"{told}; too few seeds in {few}"


@TABLES.register("verdicts")
def verdicts_table(table: Row) -> str:
    """Return differences in points, those that are more than the sum of both deviations in bold."""
    if not table["lines"]:
        return "The rows of the method, or those to hold it against, are not there yet."
    names = [[line["label"], line["against"]] for line in table["lines"]]
    others = "1 other" if table["others"] == 1 else f"{table['others']} others"
    return _show_differences(
        f"Ahead (+) or behind (-) in points, {others}", table, ["scheme", "against"], names
    )


def _show(cell: Row | None, against: str) -> str:
    if cell is None:
        return "–"
    points = f"{100 * cell['difference']:+.1f}"
    points = f"**{points}**" if cell["clear"] else points
    return points if cell["rival"] == against else f"{points} ({cell['rival']})"
