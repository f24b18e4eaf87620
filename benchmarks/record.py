"""Thresholds, rows and the table of the docs: what becomes of a measured ratio."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.side_by_side import Ratio
from nfm.results import Row, read_rows, write_between

HERE = Path(__file__).parent
ROWS = HERE / "rows.jsonl"
DOCS = HERE.parent / "docs"
PAGES = {"performance.md": None, "schemes/index.md": "schemes"}  # and the part it shows; None: all
OK, UNDECIDED, ABOVE = "ok", "not told apart", "ABOVE"
FAR = 1.1  # times its limit: no ratio so high is allowed, whatever chance may do
BEGIN, END = "<!-- table: python -m benchmarks --docs -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Thresholds:
    """The largest ratio allowed, by name; a ratio without one is only reported."""

    at_most: dict[str, float]

    @classmethod
    def read(cls) -> Thresholds:
        """Read thresholds.json."""
        return cls(json.loads((HERE / "thresholds.json").read_text(encoding="utf-8")))

    def judge(self, ratio: Ratio) -> str | None:
        """Tell whether the ratio is allowed, or not told apart from what is, never far above; None without a limit."""
        limit = self.at_most.get(ratio.name)
        if limit is None:
            return None
        if ratio.median <= limit:
            return OK
        return UNDECIDED if ratio.floor <= limit and ratio.median <= FAR * limit else ABOVE

    def verdict(self, ratio: Ratio) -> str:
        """Return the judgement as words, with the limit."""
        word = self.judge(ratio)
        if word is None:
            return "(reported)"
        limit = self.at_most[ratio.name]
        if word == UNDECIDED:
            return f"{UNDECIDED} from at most {limit:g}: may be {ratio.floor:.3f}"
        return f"{word}: at most {limit:g}"


def to_row(ratio: Ratio, thresholds: Thresholds) -> Row:
    """Return the row of a ratio."""
    return vars(ratio) | {"kind": "benchmark", "at_most": thresholds.at_most.get(ratio.name)}


def write_tables() -> None:
    """Put the last measurement of every ratio into the pages of the docs."""
    rows = last_rows()
    for name, part in PAGES.items():
        shown = table([row for row in rows if part in (None, row["part"])])
        write_between(DOCS / name, BEGIN, END, shown)


def last_rows() -> list[Row]:
    """Return the rows of the last run of each part."""
    rows = list(read_rows(ROWS))
    began = {row["part"]: row["began"] for row in rows}  # appended in the order of time
    return [row for row in rows if row["began"] == began[row["part"]]]


def table(rows: list[Row]) -> str:
    """Return rows as a table: the ratio and its quartiles, what is allowed now, and the best of either side.

    Above what is allowed, it tells where the 95% interval of the median begins, or that the limit is missed.
    """
    thresholds = Thresholds.read()
    lines = [
        "| what / against what | ratio | quartiles | at most | n | ours | reference |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = Ratio(**{name: row[name] for name in Ratio.__dataclass_fields__ if name in row})
        best = [f"{side:.3g} {ratio.unit}" for side in (ratio.ours, ratio.reference)]
        spread = f"{ratio.low:.3f} to {ratio.high:.3f}"
        cells = [ratio.name, f"{ratio.median:.3f}", spread, _allowed(ratio, thresholds), ratio.count, *best]
        lines.append(f"| {' | '.join(cells)} |")
    versions = sorted({f"torch {row['torch']}, {row['threads']} threads, {row['machine']}" for row in rows})
    return "\n".join(
        [*lines, "", f"Measured with {'; '.join(versions)}.{_whole_run(rows)}{_neighbours(rows)}"]
    )


def _allowed(ratio: Ratio, thresholds: Thresholds) -> str:
    word = thresholds.judge(ratio)
    if word is None:
        return ""
    told = {OK: "", UNDECIDED: f" (from {ratio.floor:.3f})", ABOVE: " (missed)"}
    return f"{thresholds.at_most[ratio.name]:g}{told[word]}"


def _whole_run(rows: list[Row]) -> str:
    """Tell how long a run took, where all rows are of one that tells it."""
    ends = {row["part"]: row.get("run_seconds") for row in rows}  # the last of each part
    if None in ends.values() or len({row["run"] for row in rows}) > 1:
        return ""
    return f" The run took {max(ends.values()) / 60:.1f} minutes."


def _neighbours(rows: list[Row]) -> str:
    """Tell what other machines took of the processors' time while the busiest part was measured, where it is known."""
    taken = {row["part"]: row["stolen"] for row in rows if row.get("stolen") is not None}
    if not taken:
        return ""
    most = max(taken, key=taken.__getitem__)
    return f" Other machines took up to {taken[most]:.0%} of the processors' time (`{most}`)."
