"""Sources -> one self-contained page: nothing is loaded, every text is escaped, tables need no script."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from nfm.plots.comparison import Comparison, compare
from nfm.report.calibration import ENOUGH, calibration_table, error_curves, reliability_panels
from nfm.report.chart import legend
from nfm.report.compared import by_protocol
from nfm.report.curves import corruption_bars, robustness_curves
from nfm.report.derived import epochs, members
from nfm.report.history import training_curves
from nfm.report.markup import Content, Markup, embed, escape, join, tag
from nfm.report.pairs import choose_baseline, pair
from nfm.report.provenance import provenance
from nfm.report.sources import Source
from nfm.report.strips import strips
from nfm.report.summary import summary, warnings


def make_page(
    sources: Sequence[Source], *, title: str = "Robustness report", baseline: str | None = None
) -> str:
    """Return the page of all that was measured."""
    rows = [row for source in sources for row in source.rows]
    found = sorted(compare(rows), key=by_protocol)
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    if baseline is not None:
        choose_baseline(schemes, baseline)  # refuse a name that is nowhere
    parts = [_comparison(one, place, sources, schemes, baseline) for place, one in enumerate(found)]
    history = training_curves(epochs(sources), schemes)
    body = [
        tag("header", tag("h1", title), tag("p", _told(found, schemes)), _contents(found), legend(schemes)),
        parts,
        _section("Training", "Each line is the mean over the seeds of a scheme.", history),
        _section("Where the numbers come from", None, provenance(sources)),
    ]
    return _filled(title, join(body), embed(rows))


def _told(found: Sequence[Comparison], schemes: Sequence[str]) -> str:
    count = f"{len(schemes)} scheme{'s' if len(schemes) > 1 else ''}: {', '.join(schemes)}. "
    apart = (
        "What was measured in another way stands apart and is not to be ranked together. "
        if len(found) > 1
        else ""
    )
    return count + apart


def _contents(found: Sequence[Comparison]) -> Markup | None:
    """Return links to the comparisons, where there are several."""
    links = [tag("li", tag("a", one.title, href=f"#comparison-{place}")) for place, one in enumerate(found)]
    return tag("nav", tag("ul", links)) if len(found) > 1 else None


def _comparison(
    comparison: Comparison, place: int, sources: Sequence[Source], schemes: Sequence[str], asked: str | None
) -> Markup:
    """Return everything about models that were measured on the same examples in the same way."""
    within = members(comparison, sources)
    rows = [row for source in within for row in source.rows]
    chosen = choose_baseline(comparison.schemes, asked if asked in comparison.schemes else None)
    pairing = pair(comparison, within, chosen)
    sections = [
        warnings(comparison, pairing),
        _section("Accuracy", None, summary(comparison, pairing, rows, schemes)),
        _section("Robustness curves", CURVES, robustness_curves(comparison, schemes)),
        _section("Corruptions", CORRUPTED, corruption_bars(comparison, schemes)),
        _section("Calibration", RELIABLE, reliability_panels(comparison, within, schemes)),
        _section("Calibration error under perturbation", ERRORS, error_curves(comparison, rows, schemes)),
        _folded("all measures of calibration", calibration_table(comparison, rows, schemes)),
        _section("What the networks saw", SEEN, strips(comparison, within, schemes)),
    ]
    told = PROTOCOLS[str(comparison.about["protocol"]).partition("(")[0]]
    head = [tag("h2", comparison.title), tag("p", told, class_="hint")]
    return tag("section", head, sections, class_="comparison", id=f"comparison-{place}")


PROTOCOLS = defaultdict(
    str,
    pixel="Noise is added to pixels in [0, 1], and what leaves [0, 1] is clipped.",
    authors="As the code behind the paper does it: noise is added after normalisation and is not clipped, salt and "
    "pepper hits the first channel alone. Its levels are not those of the protocol pixel.",
)
CURVES = "Bands are 95% intervals of one model, or one standard deviation over seeds."
CORRUPTED = "Whiskers are the mean ends of the intervals of the bars' cells."
RELIABLE = (
    "On the dotted line a network is right as often as it says; below it, it is overconfident. "
    f"Larger marks stand for more examples; bins of fewer than {ENOUGH} are left out."
)
ERRORS = (
    "Expected calibration error, 15 bins, all examples at once. Dashed: after the temperature that fits the clean "
    "validation part of the run."
)
SEEN = "The class is in the corner; beneath it, what each scheme takes the image for (its first seed)."


def _section(title: str, hint: str | None, content: Markup | None) -> Markup | None:
    if content is None:
        return None
    return tag("section", tag("h3", title), tag("p", hint, class_="hint") if hint else None, content)


def _folded(title: str, content: Markup | None) -> Markup | None:
    return None if content is None else tag("details", tag("summary", title), content)


def _filled(title: str, body: Content, data: str) -> str:
    """Return the page's skeleton with everything in its place, and a policy that allows this style and script alone."""
    style, script = (_read(f"page.{kind}") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_read("page.html")).substitute(
        title=escape(title), policy=policy, style=style, script=script, body=join(body), data=data
    )


def _read(name: str) -> str:
    return files("nfm.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Return what a Content-Security-Policy calls an inline style or script that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
