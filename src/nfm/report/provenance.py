"""Where the numbers come from: the runs, their settings, the versions behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nfm.report.markup import Markup, tag
from nfm.report.sources import Source

VERSIONS = ("nfm", "commit", "python", "torch", "numpy", "threads", "machine")


def provenance(sources: Sequence[Source]) -> Markup:
    """Return a line an evaluation, and the settings of each run to unfold."""
    heads = ("scheme", "seed", "from", "network", "data", "protocol", "n", "examples", "weights", "made by")
    lines = [tag("tr", [tag("td", value) for value in _line(source)]) for source in sources]
    table = tag("table", tag("thead", tag("tr", [tag("th", head) for head in heads])), tag("tbody", lines))
    return tag(
        "div", tag("div", table, class_="scroll plain"), [_settings(source) for source in _runs(sources)]
    )


def _line(source: Source) -> list[str]:
    row, identity = source.report.rows[0], source.report.identity
    known = (row.get("network"), row.get("data"), row.get("protocol"), row.get("n"))
    hashes = (row.get("ids"), identity.get("model"))
    seed = "" if source.train_seed is None else source.train_seed
    cells = [source.label, seed, source.path, *known, *hashes, _versions(source.made_by)]
    return ["–" if value is None else str(value) for value in cells]


def _versions(made_by: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {made_by[name]}" for name in VERSIONS if made_by.get(name) is not None)


def _runs(sources: Sequence[Source]) -> list[Source]:
    """Return one source of each run."""
    return list({source.home.resolve(): source for source in reversed(sources) if source.run}.values())[::-1]


def _settings(source: Source) -> Markup:
    text = json.dumps(source.run.get("recipe") or source.run, indent=1, sort_keys=True)
    return tag("details", tag("summary", f"settings of {source.label}, {source.home.name}"), tag("pre", text))
