"""What all studies say, in a few sentences: the paper's claim held against our numbers, and each study's questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nfm.plots.table import show_column
from nfm.reproduce.families import GROUPS
from nfm.reproduce.own_tables import near_bayes
from nfm.reproduce.statistics import ENOUGH
from nfm.reproduce.verdicts import answer, counts
from nfm.results import Row

GROUP = next(iter(GROUPS))  # of corruptions: the standard ones
CLAIM = "The paper's claim: NFM beats every other scheme under noise, at no loss of clean accuracy."


def in_short(claims: Iterable[Row]) -> list[str]:
    """Return the claim and a list in Markdown, of each study that answers something, with its answers beneath."""
    told = []
    for claim in claims:
        for scale, made in claim["scales"].items():
            if found := list(answers(made["tables"])):
                told += [f"- {claim['title']} (`{claim['id']}`, {scale} scale):"]
                told += [f"  - {sentence}" for sentence in found]
    return [f"{CLAIM}\n", *told] if told else []


def answers(tables: list[Row]) -> Iterator[str]:
    """Yield what the tables of one study at one scale say, a sentence each."""
    for table in tables:
        if table["kind"] == "verdicts":
            yield from _claim_held(table)
        elif table["kind"] == "toy":
            yield near_bayes(table)
        elif table["kind"] == "families":
            yield from _blind_spots(table)
    yield from _questions([table for table in tables if table["kind"] == "answers"])


def _claim_held(table: Row) -> Iterator[str]:
    """Yield of each champion whether the claim holds; of too few seeds nothing is said."""
    against_best, against_first = table["lines"][::2], table["lines"][1::2]  # as `verdict_table` makes them
    for best, first in zip(against_best, against_first, strict=True):
        noisy = [
            (column, cell)
            for column, cell in zip(table["columns"], best["columns"], strict=True)
            if column[0] != "clean"
        ]
        ahead, behind, judged = counts([cell for _, cell in noisy])
        clean = first["columns"][0]
        if judged < len(noisy) or clean is None:
            continue
        lost = clean["clear"] and clean["difference"] < 0
        unjudged = _unjudged(cell for _, cell in noisy)
        best_of_all = ahead == judged and not lost and not unjudged
        holds = "holds" if best_of_all else "does not hold" if behind or lost else "is not shown"
        others = [
            f"{show_column(column)} ({cell['rival']})"
            for column, cell in noisy
            if cell["clear"] and cell["difference"] < 0
        ]
        yield (
            f"{best['label']}, protocol {_protocol(table)}: the claim {holds}. It is clearly ahead of the best other "
            f"scheme in {ahead} of {judged} noisy columns and clearly behind in {behind}"
            f"{': ' * bool(others)}{', '.join(others)}; clean, {100 * clean['difference']:+.1f} points against "
            f"{first['against']}{'' if clean['clear'] else ', which is not clear'}.{unjudged}"
        )


def _unjudged(cells: Iterable[Row]) -> str:
    """Tell who is higher in noisy columns, of too few seeds for a verdict."""
    found = Counter(label for cell in cells for label in cell.get("unjudged", ()))
    return _few([f"{label} in {columns}" for label, columns in found.items()])


def _few(higher: list[str]) -> str:
    return f" Higher, of fewer than {ENOUGH} seeds: {'; '.join(higher)}." if higher else ""


def _blind_spots(table: Row) -> Iterator[str]:
    """Yield who is best over the standard corruptions, and where schemes are clearly worse than the first arm."""
    means = {line["label"]: line["accuracy"][GROUP] for line in table["lines"] if GROUP in line["accuracy"]}
    judged = {label: number["mean"] for label, number in means.items() if number["seeds"] >= ENOUGH}
    baseline = table["baseline"]
    if baseline not in judged or len(judged) < 2:
        return
    best = max(judged, key=judged.__getitem__)
    higher = [
        f"{label}, {100 * number['mean']:.1f}%"
        for label, number in means.items()
        if label not in judged and number["mean"] > judged[best]
    ]
    worse = [f"{line['label']} ({', '.join(line['worse'])})" for line in table["lines"] if line["worse"]]
    yield (
        f"Corruptions, mean over the {GROUP}: highest {best}, {100 * judged[best]:.1f}%; {baseline} "
        f"{100 * judged[baseline]:.1f}%.{_few(higher)} Clearly worse than {baseline}, by family: "
        f"{'; '.join(worse) or 'none'}."
    )


def _questions(tables: list[Row]) -> Iterator[str]:
    """Yield each question once, with its answers and the protocols that they are of."""
    asked: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for table in tables:
        for line in table["lines"]:
            found = asked.setdefault((line["asks"], line["label"], line["against"]), {})
            found.setdefault(answer(line["columns"]), []).append(_protocol(table))
    for (asks, label, against), found in asked.items():
        told = [f"protocol {' and '.join(protocols)}, {words}" for words, protocols in found.items()]
        yield f"{asks} *{label}* against *{against}*: {'; '.join(told)}."


def _protocol(table: Row) -> str:
    """Return the protocol in the key of a measure."""
    return str(table["measure"].split("/")[1])
