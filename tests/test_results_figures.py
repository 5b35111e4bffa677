"""The figures of the page of results show what the rows say, and stand alone."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from generated import evidence, figures, results  # noqa: E402
from generated.drawing import Dot, Panel, dots, lines  # noqa: E402
from generated.evidence import Evidence  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    return results.pictures(evidence.load())


def texts(svg):
    """Where each text stands, and what it says."""
    return [(float(t.get("x")), t.text) for t in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_pictures_are_those_of_the_committed_rows(drawn):
    there = {p.name: p.read_text("utf-8") for p in (DOCS / "pictures").glob("results-*.svg")}
    assert there == drawn, "python docs/generated/results.py"


def test_every_picture_stands_below_its_claim_and_says_what_it_shows(drawn):
    page = (DOCS / "results.md").read_text("utf-8")
    titles = {claim.title for claim in results.CLAIMS}
    for figure in figures.FIGURES:
        name = results.picture(figure.name)
        assert figure.claim in titles and name in drawn
        section = page.split(f"\n### {figure.claim}\n")[1].split("\n##")[0]
        assert f"![{figure.shows}](pictures/{name})" in section
        assert ET.fromstring(drawn[name]).get("aria-label") == figure.shows


def test_without_rows_there_are_no_pictures():
    assert results.pictures(Evidence([])) == {}


def test_a_dot_stands_where_its_value_is_by_the_axis():
    """Measured in the drawing itself: the numbers below the axis are the ruler."""
    panel = Panel("16 bits", {"a": [Dot("one", 0.25), Dot("two", 0.75)], "b": [Dot("one", 0.5)]})
    svg = dots([panel], "dots", "AP_T")
    ruler = [(x, float(t)) for x, t in texts(svg) if re.fullmatch(r"[\d.]+", t)]
    (x0, v0), (x1, v1) = ruler[0], ruler[-1]
    circles = list(ET.fromstring(svg).iter(f"{SVG}circle"))[1:]  # the first is the legend's
    for circle, value in zip(circles, (0.25, 0.75), strict=True):
        read = v0 + (float(circle.get("cx")) - x0) / (x1 - x0) * (v1 - v0)
        assert read == pytest.approx(value, abs=0.002)
    heights = {float(c.get("cy")) for c in circles}
    square = list(ET.fromstring(svg).iter(f"{SVG}rect"))[-1]  # after the ground and the legend's
    assert len(heights) == 2 and float(square.get("y")) + 3.5 not in heights  # nothing is hidden


def test_bars_and_the_line_at_nothing():
    panel = Panel("", {"a": [Dot("one", -1.0, -2.0, 0.5)]})
    with_zero, without = (dots([panel], "", "points", zero=z) for z in (True, False))
    assert with_zero.count("<line") == without.count("<line") + 1
    bar = next(e for e in ET.fromstring(without).iter(f"{SVG}line") if e.get("opacity"))
    circle = next(ET.fromstring(without).iter(f"{SVG}circle"))
    assert float(bar.get("x1")) < float(circle.get("cx")) < float(bar.get("x2"))


def test_lines_rise_with_their_values_and_level_ones_are_drawn():
    up = lines([Panel("s", lines={"a": [(2, 0.5), (8, 0.7)]})], "up", "bins", "R@1")
    points = next(ET.fromstring(up).iter(f"{SVG}polyline")).get("points").split()
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in points)
    assert x0 < x1 and y0 > y1
    level = lines([Panel("s", lines={"a": [(2, 0.5)]})], "one", "bins", "R@1")
    assert "nan" not in level and level.count("<circle") == 1


def test_whole_numbers_are_drawn_as_they_are():
    drawn = lines([Panel("s", lines={"a": [(0, 0.1), (8, 0.2), (12, 0.3)]})], "", "d", "s", 8)
    points = next(ET.fromstring(drawn).iter(f"{SVG}polyline")).get("points").split()
    x0, x1, x2 = (float(p.split(",")[0]) for p in points)
    assert (x1 - x0) / (x2 - x0) == pytest.approx(8 / 12, abs=1e-3)
    assert {"0", "8"} <= {t for _, t in texts(drawn)} and "12" not in {t for _, t in texts(drawn)}


def test_nothing_is_written_outside(drawn):
    for svg in drawn.values():
        root = ET.fromstring(svg)
        _, _, wide, tall = map(float, root.get("viewBox").split())
        for text in root.iter(f"{SVG}text"):
            x, y, length = float(text.get("x")), float(text.get("y")), 7.0 * len(text.text)
            start = x - length * {"end": 1.0, "middle": 0.5}.get(text.get("text-anchor"), 0.0)
            assert start >= -1 and start + length <= wide + 1 and 0 < y <= tall, text.text


def test_names_are_escaped():
    svg = dots([Panel("<b>", {"a": [Dot("x & y", 1.0)]})], 'a "label"', "AP_T")
    assert {"<b>", "x & y"} <= {t for _, t in texts(svg)}
