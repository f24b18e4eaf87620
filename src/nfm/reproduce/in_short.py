"""What all studies say, in a few sentences: the paper's claim held against our numbers, and each study's questions."""

from __future__ import annotations

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
        holds = (
            "holds" if ahead == judged and not lost else "does not hold" if behind or lost else "is not shown"
        )
        others = [
            f"{show_column(column)} ({cell['rival']})"
            for column, cell in noisy
            if cell["clear"] and cell["difference"] < 0
        ]
        yield (
            f"{best['label']}, protocol {_protocol(table)}: the claim {holds}. It is clearly ahead of the best other "
            f"scheme in {ahead} of {judged} noisy columns and clearly behind in {behind}"
            f"{': ' * bool(others)}{', '.join(others)}; clean, {100 * clean['difference']:+.1f} points against "
            f"{first['against']}{'' if clean['clear'] else ', which is not clear'}."
        )


def _blind_spots(table: Row) -> Iterator[str]:
    """Yield who is best over the standard corruptions, and where schemes are clearly worse than the first arm."""
    means = {
        line["label"]: line["accuracy"][GROUP]["mean"]
        for line in table["lines"]
        if GROUP in line["accuracy"] and line["accuracy"][GROUP]["seeds"] >= ENOUGH
    }
    baseline = table["baseline"]
    if baseline not in means or len(means) < 2:
        return
    best = max(means, key=means.__getitem__)
    worse = [f"{line['label']} ({', '.join(line['worse'])})" for line in table["lines"] if line["worse"]]
    yield (
        f"Corruptions, mean over the {GROUP}: highest {best}, {100 * means[best]:.1f}%; {baseline} "
        f"{100 * means[baseline]:.1f}%. Clearly worse than {baseline}, by family: {'; '.join(worse) or 'none'}."
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
