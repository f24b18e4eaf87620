"""The page: loads nothing, runs nothing of others, and tells every number without a script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pages import PAYLOADS, Page

from measured import make_run, measure
from nfm.errors import UsageError
from nfm.plots.comparison import compare
from nfm.report.markup import TAGS, Markup, embed, escape, tag
from nfm.report.page import make_page
from nfm.report.sources import Source, read_sources

FRAME = {"html", "head", "meta", "title", "style", "body", "main", "script"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    where = tmp_path_factory.mktemp("runs")
    make_run(where / "a", scheme="erm")
    make_run(where / "b", scheme="nfm", blur=0.3)
    measure(where / "b" / "evaluation-authors", scheme="nfm", blur=0.3, protocol="authors")
    return read_sources([where / "a", where / "b"])


@pytest.fixture(scope="module")
def text(sources: list[Source]) -> str:
    return make_page(sources)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_only_our_tags_and_all_sections(page: Page, text: str) -> None:
    assert {name for name, _ in page.tags} <= TAGS | FRAME
    heads = page.inside["h3"]
    for title in (
        "Accuracy",
        "Robustness curves",
        "Corruptions",
        "Calibration",
        "What the networks saw",
        "Training",
    ):
        assert title in heads
    assert page.inside["h2"] == [
        "patterns, 60 examples, protocol pixel",
        "patterns, 60 examples, protocol authors",
    ]
    assert page.comments == []
    assert text.startswith("<!DOCTYPE html>")


def test_nothing_is_loaded(page: Page, text: str) -> None:
    assert not re.search(r"https?://|@import|url\(|//example", text)
    for name in ("src", "href", "action", "srcset", "poster", "data", "background"):
        for value in page.values(name):
            assert value.startswith(("data:image/png;base64,", "#"))
    assert not any(name.startswith("on") or name == "style" for _, name, _ in page.attributes)
    assert {
        tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "embed", "base", "form")
    } == set()


def test_the_policy_allows_this_style_and_this_script_alone(page: Page, text: str) -> None:
    policy = dict(part.split(" ", 1) for part in page.values("content")[0].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["img-src"] == "data:"
    for kind, element in (("script-src", "script"), ("style-src", "style")):
        content = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert policy[kind] == f"'sha256-{digest}'"
    assert [names for name, names in page.tags if name == "meta"][1] == (
        "http-equiv",
        "content",
    )  # before any style


def test_tables_tell_every_accuracy_without_a_script(page: Page, sources: list[Source]) -> None:
    cells = page.inside["td"]
    for comparison in compare([row for source in sources for row in source.rows]):
        for estimate in comparison.cells.values():
            assert f"{100 * estimate.mean:.1f}" in cells
            assert f"{100 * estimate.lo:.1f}–{100 * estimate.hi:.1f}" in cells


def test_the_rows_are_in_the_page(page: Page, sources: list[Source], text: str) -> None:
    block = re.search(r'<script type="application/json" id="rows">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    assert json.loads(block[1]) == json.loads(json.dumps([row for source in sources for row in source.rows]))


def test_the_same_sources_give_the_same_bytes(sources: list[Source], text: str) -> None:
    assert make_page(sources) == text


def test_curves_and_strips_are_there(page: Page) -> None:
    tips = page.values("data-tip")
    assert any(re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", tip) for tip in tips)
    assert {"σ=0.1", "γ=0.04", "brightness", "epoch 1", "PGD-7 l∞ ε=1/255"} <= set(page.values("data-at"))
    assert {"cat", "dog", "owl"} <= set(page.inside["small"])
    assert sum(value.startswith("data:image/png") for value in page.values("src")) >= 3 * 4
    assert page.values("aria-pressed") == ["true", "true"]


def hostile(source: Source, payload: str) -> Source:
    """Return a source with the payload in every field that holds a text."""
    rows = [
        row | {"data": payload, "network": payload, "flags": [payload], "train_seed": payload, "ids": payload,
               "settings": {"source": payload}, "perturbation": payload if row["level"] == 0.3 else row["perturbation"],
               payload: payload}
        for row in source.report.rows
    ]  # fmt: skip
    keys = {
        (row["perturbation"], row["level"]): old
        for row, old in zip(rows, source.report.outcomes, strict=True)
    }
    outcomes = {key: source.report.outcomes[old] for key, old in keys.items()}
    report = replace(
        source.report, identity={"model": payload, payload: payload}, rows=rows, outcomes=outcomes
    )
    return replace(
        source, report=report, label=f"{source.label} {payload}", about={"classes": [payload] * 3},
        run={"recipe": {payload: [payload, {"config": payload}]}}, made_by={"commit": payload, "nfm": payload},
    )  # fmt: skip


@pytest.fixture(scope="module")
def harmless(sources: list[Source]) -> list[tuple[str, tuple[str, ...]]]:
    return Page(make_page([hostile(source, "plain") for source in sources[:1]], title="plain")).tags


def test_there_are_forty_payloads() -> None:
    assert len(set(PAYLOADS)) >= 40


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_hostile_text_changes_no_element(sources: list[Source], harmless: Any, payload: str) -> None:
    text = make_page([hostile(source, payload) for source in sources[:1]], title=payload)
    text.encode()  # lone surrogates are gone
    found = Page(text)
    assert found.tags == harmless
    assert found.comments == []
    assert not any(name.startswith("on") for _, name, _ in found.attributes)
    shown = re.sub("[\x00\ud800\u202e\u2066]", "\ufffd", payload)
    assert "".join(found.inside["h1"]) == shown  # told as it is, not dropped


def test_a_hostile_folder_is_inert(sources: list[Source], tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    make_run(folder, scheme="erm")
    found = Page(make_page(read_sources([folder])))
    assert {name for name, _ in found.tags} <= TAGS | FRAME
    assert any("<img src=x onerror=alert(1)>" in told for told in found.inside["td"])
    assert len([1 for name, _ in found.tags if name == "img"]) == found.text.count("<img ")


def test_the_parser_would_see_an_unescaped_text() -> None:
    raw = Page(f"<html><p>{Markup('<b onclick=alert(1)>x</b>')}</p></html>")
    assert ("b", ("onclick",)) in raw.tags


def test_the_boundary() -> None:
    assert escape('<&">\x00\u202e') == "&lt;&amp;&quot;&gt;\ufffd\ufffd"
    assert tag("p", "<b>", Markup("<b></b>"), None, [1, "&"]) == "<p>&lt;b&gt;<b></b>1&amp;</p>"
    assert json.loads(embed("</script><!--&\u2028")) == "</script><!--&\u2028"
    assert not re.search("[<>&\u2028]", embed("</script><!--&\u2028"))
    for name in ("script", "iframe", "style", "b onclick"):
        with pytest.raises(ValueError, match="a page has no"):
            tag(name)
    for attributes in ({"href": "https://example.org"}, {"src": "x.png"}, {"href": "javascript:alert(1)"}):
        with pytest.raises(ValueError, match="loads nothing"):
            tag("a", **attributes)


def test_an_unknown_baseline_is_refused(sources: list[Source]) -> None:
    with pytest.raises(UsageError, match="did you mean 'nfm'"):
        make_page(sources, baseline="nmf")


def test_rows_alone_make_a_page(sources: list[Source]) -> None:
    bare = [
        replace(one, report=replace(one.report, outcomes={}), run={}, about={}, epochs=()) for one in sources
    ]
    bare = [replace(one, path=Path("nowhere")) for one in bare]
    found = Page(make_page(bare))
    assert "Robustness curves" in found.inside["h3"]
    assert not {"Calibration", "What the networks saw", "Training"} & set(found.inside["h3"])
