"""The page in a real browser: what it looks like, what the pointer and the keys do, and that nothing else runs."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from measured import make_run
from nfm.report.page import make_page
from nfm.report.sources import read_sources

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars "
    "--host-resolver-rules=MAP,*,~NOTFOUND --virtual-time-budget=2000"
)
DARK = "--blink-settings=preferredColorScheme=0"
SCHEMES = ("erm", "<img src=x onerror=document.title='run'>")


@pytest.fixture(scope="module")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium here; Debian: apt-get install chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs")
    make_run(where / "a", scheme=SCHEMES[0])
    make_run(where / "b", scheme=SCHEMES[1], blur=0.3)
    page = where / "report.html"
    page.write_text(make_page(read_sources([where / "a", where / "b"])), encoding="utf-8")
    return page


def browse(chromium: str, page: Path, profile: Path, *flags: str) -> str:
    command = [chromium, *FLAGS.split(), f"--user-data-dir={profile}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def picture(chromium: str, page: Path, tmp_path: Path, width: int, *flags: str) -> np.ndarray:
    shot = tmp_path / "shot.png"
    browse(
        chromium, page, tmp_path / "profile", f"--window-size={width},1200", f"--screenshot={shot}", *flags
    )
    with Image.open(shot) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def driven(page: Path, tmp_path: Path, script: str) -> Path:
    """Return a copy without the policy, in which `script` runs last and leaves its findings in the title."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    copy = tmp_path / "driven.html"
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return copy


def title_of(dom: str) -> str:
    found = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.parametrize("width", [1280, 390])
def test_light_and_dark_at_both_widths(chromium: str, page: Path, tmp_path: Path, width: int) -> None:
    light = picture(chromium, page, tmp_path, width)
    dark = picture(chromium, page, tmp_path, width, DARK)
    assert light[2, 2].min() > 240
    assert dark[2, 2].max() < 50
    for image in (light, dark):
        paper = image[2, 2]
        painted = (np.abs(image - paper).sum(2) > 60).mean()
        assert 0.02 < painted < 0.6
        colours = np.abs(image - image.mean(2, keepdims=True)).max(2) > 60
        assert colours.sum() > 500  # lines in colour, not grey on grey


def test_nothing_is_wider_than_a_phone(chromium: str, page: Path, tmp_path: Path) -> None:
    script = """
      const frame = document.createElement("iframe");
      frame.style.width = "360px"; frame.style.height = "800px";
      frame.srcdoc = document.documentElement.outerHTML.replace(/<script>[^]*?<\\/script>/g, "");
      frame.onload = () => {
        const inside = frame.contentDocument.documentElement;
        document.title = `${inside.clientWidth} ${inside.scrollWidth}`;
      };
      document.body.append(frame);
    """
    dom = browse(chromium, driven(page, tmp_path, script), tmp_path / "profile", "--dump-dom")
    client, scroll = map(int, title_of(dom).split())
    assert client <= 360
    assert scroll <= client


def test_the_policy_stops_a_foreign_script_and_lets_ours_run(
    chromium: str, page: Path, tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    foreign = tmp_path / "foreign.html"
    foreign.write_text(
        text.replace("</body>", "<script>document.title='run'</script></body>"), encoding="utf-8"
    )
    dom = browse(chromium, foreign, tmp_path / "profile", "--dump-dom")
    assert title_of(dom) == "Robustness report"
    open_page = driven(page, tmp_path, "document.title='run'")
    dom = browse(chromium, open_page, tmp_path / "profile", "--dump-dom")
    assert title_of(dom) == "run"  # without the policy it does run: the test can see it


def test_a_hostile_name_is_only_text(chromium: str, page: Path, tmp_path: Path) -> None:
    dom = browse(chromium, page, tmp_path / "profile", "--dump-dom")
    assert title_of(dom) == "Robustness report"
    assert not re.search(r"<img src=.x", dom)
    script = "document.title = document.querySelectorAll('button span')[1].textContent"
    dom = browse(chromium, driven(page, tmp_path, script), tmp_path / "profile", "--dump-dom")
    assert title_of(dom) == SCHEMES[1]


def test_a_key_hides_a_scheme_and_shows_it_again(chromium: str, page: Path, tmp_path: Path) -> None:
    script = """
      const shown = (part) => getComputedStyle(part).display !== "none";
      const parts = (scheme) => [...document.querySelectorAll(`.series[data-scheme="${scheme}"]`)];
      const seen = () => [0, 1].map((scheme) => parts(scheme).filter(shown).length);
      const key = document.querySelector('button[data-scheme="0"]');
      const told = [seen()];
      for (let turn = 0; turn < 2; turn++) { key.click(); told.push(seen(), key.getAttribute("aria-pressed")); }
      document.title = JSON.stringify(told);
    """
    dom = browse(chromium, driven(page, tmp_path, script), tmp_path / "profile", "--dump-dom")
    before, hidden, off, after, on = json.loads(title_of(dom))
    assert min(before) > 4
    assert hidden == [0, before[1]]
    assert after == before
    assert (off, on) == ("false", "true")


def test_the_pointer_shows_the_values_of_every_scheme(chromium: str, page: Path, tmp_path: Path) -> None:
    script = """
      const chart = document.querySelector("svg[data-along='x']");
      chart.scrollIntoView();
      const dot = chart.querySelector('[data-at="σ=0.2"]').getBoundingClientRect();
      const where = {clientX: dot.x + 3, clientY: dot.y + 20, bubbles: true};
      const tip = document.getElementById("tip");
      const told = [tip.hidden];
      chart.dispatchEvent(new PointerEvent("pointermove", where));
      told.push(tip.hidden, tip.innerText, tip.getElementsByTagName("img").length);
      const box = tip.getBoundingClientRect();
      told.push(box.right <= innerWidth && box.bottom <= innerHeight);
      chart.dispatchEvent(new PointerEvent("pointerleave", where));
      told.push(tip.hidden);
      document.title = JSON.stringify(told);
    """
    dom = browse(chromium, driven(page, tmp_path, script), tmp_path / "profile", "--dump-dom")
    before, during, text, images, inside, after = json.loads(title_of(dom))
    assert (before, during, after) == (True, False, True)
    head, first, second = text.splitlines()
    assert head == "σ=0.2"
    assert re.fullmatch(r"erm: [\d.]+ \[[\d.]+, [\d.]+\]", first)
    assert second.startswith(f"{SCHEMES[1]}: ")
    assert images == 0
    assert inside


def test_it_prints(chromium: str, page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(chromium, page, tmp_path / "profile", f"--print-to-pdf={paper}")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(content) > 20_000
