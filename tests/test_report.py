"""The report room: tests of significance, evidence on disk, grouping, drawings and the page."""

from __future__ import annotations

import io
import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits._files import write_arrays
from rankbits.cli import main
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.papers import protocols
from rankbits.report import (
    Entry,
    compare,
    compare_paired,
    correct_by_holm,
    group_entries,
    measure_codes,
    read_entry,
)
from rankbits.report.png import colour_correlations, encode_png
from rankbits.report.samples import shrink
from rankbits.report.svg import Series, choose_ticks, plot
from rankbits.types import Evidence, Figure, evidence

ROWS = np.random.default_rng(0)
X, LABELS = ROWS.normal(size=(160, 12)), np.arange(160) % 4
X[:, :4] += 1.5 * np.eye(4)[LABELS]
QUERIES, DATABASE = slice(40), slice(40, 160)


def saved(folder, values=X, labels=LABELS):
    """A folder with codes of queries and database."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("queries", QUERIES), ("database", DATABASE)):
        rb.pack(values[rows] - 0.3).save(folder / f"{name}.npz", labels=labels[rows])
    return str(folder)


def an_entry(name="a", value=0.5, **more):
    figures = {"mAP": Figure("mAP", value, value - 0.1, value + 0.1, "AP")}
    bits = more.pop("bits", 8)
    return Entry(name, name, rb.Report(figures, "By hand.", 3, 9, bits), **more)


# significance


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_the_exact_test_is_enumeration(gaps):
    found = compare_paired(gaps, np.zeros(len(gaps)))
    sums = [
        abs(sum(s * g for s, g in zip(signs, gaps, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(gaps))
    ]
    assert found.exact and found.p == pytest.approx(np.mean(np.array(sums) >= abs(sum(gaps))))
    assert found.queries == len(gaps) and found.low <= found.mean + 1e-12
    assert found.high >= found.mean - 1e-12


def test_drawn_swaps_agree_with_the_normal_limit_and_are_never_zero():
    gaps = np.random.default_rng(3).normal(0.1, 1, 400)
    found = compare_paired(gaps, np.zeros(400))
    z = gaps.sum() / np.sqrt((gaps**2).sum())
    limit = 2 * (1 - 0.5 * (1 + np.vectorize(__import__("math").erf)(abs(z) / 2**0.5)))
    assert not found.exact and found.p == pytest.approx(limit, abs=0.02)
    assert found == compare_paired(gaps, np.zeros(400))  # from a seed
    sure = compare_paired(np.ones(50), np.zeros(50))
    assert sure.p == 1 / 10_001 and (sure.low, sure.high) == (1, 1)
    half = gaps.std() / 20
    assert found.low == pytest.approx(gaps.mean() - 1.96 * half, abs=0.02)
    assert found.high == pytest.approx(gaps.mean() + 1.96 * half, abs=0.02)


def test_undefined_queries_leave_the_test_and_order_turns_the_sign():
    first, second = [0.5, np.nan, 0.25, 1.0], [0.25, 0.5, np.nan, 0.5]
    one, other = compare_paired(first, second), compare_paired(second, first)
    assert one.queries == 2 and one.mean == 0.375 == -other.mean and one.p == other.p == 0.5
    assert compare_paired([1.0, 1.0], [1.0, 1.0]).p == 1


def test_refusals_of_a_difference():
    for pair, sentence in [
        (([1.0], [1.0, 2.0]), "of the same queries; got (1,) and (2,)."),
        (([[1.0]], [[1.0]]), "must be (Q,)"),
        (([], []), "must not be empty"),
        (([np.nan], [1.0]), "must not be empty"),
        (([np.inf], [1.0]), "must be finite"),
    ]:
        with pytest.raises(rb.Refusal, match=re.escape(sentence)):
            compare_paired(*pair)


@given(st.lists(st.floats(0.0001, 1), max_size=8))
def test_holm_never_lowers_keeps_order_and_ends_at_one(values):
    found = correct_by_holm(values)
    assert all(v <= f <= 1 for v, f in zip(values, found, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(found)[order]) >= 0).all() if values else found == []
    if values:
        assert min(found) == pytest.approx(min(1, len(values) * min(values)))


# evidence and reports on disk


@pytest.mark.parametrize("labels", [LABELS, np.eye(4, dtype=bool)[LABELS]], ids=["one", "several"])
@pytest.mark.parametrize("alone", [False, True])
def test_evidence_comes_back_as_it_went(tmp_path, labels, alone):
    codes = rb.pack(X)
    sides = (codes, codes) if alone else (codes[QUERIES], codes[DATABASE])
    marks = (labels, labels) if alone else (labels[QUERIES], labels[DATABASE])
    values = np.random.default_rng(1).random(len(sides[0]))
    values[3] = np.nan
    kept = Evidence({"mAP": values}, sides, marks, marks, "count", alone)
    if labels.ndim == 2:
        kept = Evidence({"mAP": values}, sides, marks, None, "count", alone)
    kept.save(tmp_path / "judged.npz")
    again = Evidence.load(tmp_path / "judged.npz")
    assert again.codes == sides and again.relevance == "count" and again.exclude_self == alone
    np.testing.assert_array_equal(again.per_query["mAP"], values)
    for ours, theirs in zip(again.labels, marks, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_evidence_past_the_limit_keeps_the_figures_only(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "MOST_BYTES", 100)
    codes = rb.pack(X)
    Evidence({"mAP": np.ones(160)}, (codes, codes), (LABELS, LABELS)).save(tmp_path / "j.npz")
    again = Evidence.load(tmp_path / "j.npz")
    assert again.codes is None and again.labels is None and len(again.per_query["mAP"]) == 160
    assert measure_codes(again) is None


def test_damaged_evidence_is_refused(tmp_path):
    path = tmp_path / "judged.npz"
    codes = rb.pack(X)
    Evidence({"mAP": np.ones(160)}, (codes, codes), (LABELS, LABELS)).save(path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(rb.Refusal, match="judged"):
            Evidence.load(path)
    for facts in ({}, {"exclude_self": "0"}, {"exclude_self": "0", "relevance": "al"}):
        write_arrays(path, "judged", facts, {"figure.mAP": np.ones(3)})
        with pytest.raises(rb.Refusal, match="damaged or not the evidence of a judged run"):
            Evidence.load(path)
    with pytest.raises(rb.Refusal, match="all of one length"):
        Evidence({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(rb.Refusal, match="one row for each of the codes"):
        Evidence({}, (codes, codes), (LABELS[:5], LABELS))


def test_a_report_is_read_back_and_other_json_is_refused():
    report = rb.evaluate(rb.pack(X[:5]), rb.pack(X), LABELS[:5], LABELS + 9, k=3)
    again = rb.Report.from_json(report.to_json())
    assert np.isnan(again["mAP"]) and again.to_json() == report.to_json()
    for text in ("", "[]", "{}", '{"figures": 3}', "[" * 100_000, '{"figures": {"a": {}}}'):
        with pytest.raises(rb.Refusal, match="the text is not a report in JSON"):
            rb.Report.from_json(text)


# what is seen in codes


def test_what_is_seen_is_what_plain_counting_finds():
    codes = rb.pack(X)
    seen = measure_codes(
        Evidence({}, (codes[QUERIES], codes[DATABASE]), (LABELS[:40], LABELS[40:]))
    )
    distances = rb.hamming(codes[QUERIES], codes[DATABASE])
    same = LABELS[:40, None] == LABELS[None, 40:]
    for shown, pairs in ((seen.neighbours, distances[same]), (seen.others, distances[~same])):
        np.testing.assert_allclose(shown, np.bincount(pairs, minlength=13) / len(pairs))
    ranking = rb.rank(distances, same)
    for at, precision, recall in zip(seen.cutoffs, seen.precision, seen.recall, strict=True):
        assert precision == pytest.approx(rb.precision_at(ranking, int(at)).mean())
        assert recall == pytest.approx(rb.recall_at(ranking, int(at)).mean())
    signs = codes[DATABASE].signs().astype(float)
    np.testing.assert_allclose(seen.correlation, np.corrcoef(signs.T), atol=1e-5)
    np.testing.assert_allclose(seen.ones, (signs > 0).mean(axis=0), atol=1e-6)


def test_a_bit_that_never_changes_correlates_with_nothing():
    values = X.copy()
    values[:, 0] = 1
    codes = rb.pack(values)
    seen = measure_codes(Evidence({}, (codes[:2], codes), (LABELS[:2], LABELS)))
    assert seen.ones[0] == 1 and (seen.correlation[0] == 0).all()
    assert measure_codes(Evidence({}, (codes[:2], codes), (LABELS[:2], LABELS + 9))) is None


# groups


def test_seeds_are_grouped_with_mean_and_deviation():
    runs = [
        an_entry(f"run-seed{i}", v, settings={"loss": "cel", "seed": i, "out": f"o{i}"})
        for i, v in enumerate((0.4, 0.5, 0.9))
    ]
    other = an_entry("other", 0.1, settings={"loss": "dch", "seed": 0})
    groups = group_entries([runs[0], other, *runs[1:], an_entry("other")])
    assert [(g.name, len(g.entries)) for g in groups] == [
        ("run", 3), ("other", 1), ("other (2)", 1)
    ]  # fmt: skip
    figure = groups[0].figure("mAP")
    assert figure.value == pytest.approx(0.6) and figure.worst == pytest.approx(0.5)
    assert groups[0].deviation("mAP") == pytest.approx(np.std([0.4, 0.5, 0.9], ddof=1))
    assert groups[1].deviation("mAP") is None and groups[0].figure("NDCG") is None
    found = compare([*runs, other], measure=False)
    assert "0.6000 ± 0.2646" in str(found) and "± is the sample deviation" in found.to_markdown()
    assert any("not tested: its figures of each query" in w for w in found.missing)


def test_one_name_is_one_method_and_must_have_one_length(tmp_path):
    a, b = saved(tmp_path / "a"), saved(tmp_path / "b", X + 0.2)
    found = compare([f"m={a}", f"m={b}", a], measure=False)
    assert [len(g.entries) for g in found.groups] == [2, 1] and len(found.differences) == 1
    with pytest.raises(rb.Refusal, match=r"'m' names codes of .* bits; give each its own NAME="):
        group_entries([an_entry("m", named=True), an_entry("m", named=True, bits=4)])


def test_other_queries_are_not_compared(tmp_path):
    a, b = saved(tmp_path / "a"), saved(tmp_path / "b", X[::-1], LABELS[::-1])
    found = compare([a, b], measure=False)
    assert (
        found.differences == () and "a and b answered different queries" in found.missing[0]
    ) or ("b and a answered different queries" in found.missing[0])


# a judged run leaves enough behind


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one judged training on a protocol of small images, and the protocol."""
    images, labels = digits()
    order = np.arange(400)
    large = np.kron(images[:400], np.ones((1, 2, 2), np.uint8))[..., None] * np.uint8(15)
    examples = Examples(large, labels[:400], class_names=[f"d{i}" for i in range(10)])
    own = Protocol("small", examples, order[100:], order[:100], order[100:], metric="precision@10")
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(protocols.SETTINGS, "small", None)
        patch.setattr(protocols, "protocol", lambda *_: own)
        patch.setenv("RANKBITS_DATA", str(folder / "data"))
        for seed in ("0", "1"):
            words = "train --data small --bits 12 --epochs 2 --workers 0 --judge --no-tensorboard"
            words += f" --seed {seed} -o {folder / f'hash-seed{seed}'}"
            assert main(words.split()) == 0
        yield folder


def test_judged_runs_become_a_page_with_everything(runs, tmp_path, capsys):
    path = tmp_path / "page.html"
    words = [str(runs / "hash-seed0"), str(runs / "hash-seed1"), "-o", str(path)]
    assert main(["report", *words]) == 0
    told = capsys.readouterr().out
    assert re.search(r"hash +0\.\d{4} ± 0\.\d{4} .* 2 +2", told) and f"-> {path}" in told
    text = path.read_text()
    for heading in (
        "range of its ties", "Precision and recall", "How far neighbours", "What the bits carry",
        "How they learned", "Sample queries", "What it costs", "Every figure",
    ):  # fmt: skip
        assert heading in text, heading
    assert "label d" in text and text.count("data:image/png") >= 4 * 11
    entry = read_entry(runs / "hash-seed0")
    assert set(entry.evidence.per_query) == {"mAP", "precision@10"} and entry.seconds > 0
    codes = entry.evidence.codes
    again = rb.evaluate(*codes, *entry.evidence.labels)
    assert again["mAP"] == pytest.approx(entry.report["mAP"], abs=1e-9)
    assert entry.evidence.rows[0].tolist() == list(range(100))
    assert (runs / "hash-seed0" / "judged.npz").stat().st_size < 20_000


def test_a_run_of_other_queries_or_damaged_is_refused(runs, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("run.json", "log.jsonl", "report.json", "judged.npz"):
        (folder / name).write_bytes((runs / "hash-seed0" / name).read_bytes())
    (folder / "log.jsonl").write_text('[1]\n{"step": "x", "loss": 1}\n{"step": 3}\nnull\ntorn')
    found = compare([str(folder)], measure=False, many=0)
    assert "How they learned" not in found.to_html() and found.costs[0].seconds is None
    Evidence({"mAP": np.ones(7)}).save(folder / "judged.npz")
    with pytest.raises(rb.Refusal, match="must have the queries of"):
        read_entry(folder)
    (folder / "judged.npz").unlink()
    found = compare([str(folder)], measure=False)
    assert "Curves, distances and bits need the codes" in " ".join(found.missing)
    (folder / "run.json").write_text('{"config": 3, "inputs": [], "class_names": []}')
    with pytest.raises(rb.Refusal, match="damaged or not a run"):
        read_entry(folder)


# the page


class Balanced(HTMLParser):
    """Every tag is closed in order; whatever could reach out is noted."""

    VOID = frozenset({"meta", "img", "line", "rect", "circle", "polyline", "polygon"})

    def __init__(self):
        super().__init__()
        self.open, self.outside = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.outside += [v for n, v in attrs if n in ("src", "href") and not v.startswith("data:")]
        self.outside += [tag] if tag in ("script", "link", "iframe", "object") else []

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_reaches_nowhere_and_escapes(tmp_path):
    hostile = '<script>alert("1")</script>&'
    found = compare(
        [f"{hostile}={saved(tmp_path / 'a')}", saved(tmp_path / "b", X[:, ::-1] + 0.1)],
        measure=False,
    )
    page = found.to_html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and parser.outside == []
    assert "<script" not in page and "url(" not in page and "@import" not in page
    assert "&lt;script&gt;" in page and "nan" not in page.lower().replace("ordinance", "")
    assert page == found.to_html()
    assert "| <script>" in found.to_markdown()


def test_many_methods_are_compared_with_the_best_only(tmp_path):
    names = [f"m{i}={saved(tmp_path / str(i), X + i / 10)}" for i in range(8)]
    found = compare(names, measure=False)
    best = max(found.groups, key=lambda g: g.figure("mAP").value).name
    assert len(found.differences) == 7 and {c.first for c in found.differences} == {best}
    assert found.to_html().count('class="heat"') == 8


def test_what_cannot_be_compared_is_refused(tmp_path, capsys):
    folder, plain = saved(tmp_path / "a"), tmp_path / "plain.npz"
    rb.pack(X).save(plain)
    (tmp_path / "empty").mkdir()
    report = tmp_path / "r.json"
    report.write_text("{}")
    for words, sentence in [
        ((), "Give what to compare"),
        (("nowhere",), "nowhere does not exist."),
        ((str(plain),), "must be a run's folder, a report (.json) or two files of codes"),
        ((f"{plain},{plain}",), "plain.npz holds no labels"),
        ((str(tmp_path / "empty"),), "must hold report.json"),
        ((str(report),), "is not a report in JSON"),
        ((folder, "-o", "page.pdf"), "page.pdf must end in .html or .md."),
        ((folder, "--figure", "mAP@9"), "has no figure 'mAP@9' (did you mean 'mAP'?)."),
        ((folder, "--query-images", "x.npz"), "Give both --query-images and --database-images"),
        ((folder, "--query-images", str(plain), "--database-images", str(plain)), "'images'"),
        ((folder, "--k", "ten"), "k must be a whole number; got 'ten'."),
        ((folder, "-o", str(tmp_path / "no" / "p.html")), "does not exist."),
    ]:
        assert main(["report", *words]) == 1, words
        assert sentence in capsys.readouterr().err, words


def test_reports_alone_make_a_page(tmp_path, capsys):
    folder = saved(tmp_path / "a")
    pair = f"{folder}/queries.npz", f"{folder}/database.npz"
    assert main(["evaluate", *pair, "--json"]) == 0
    (tmp_path / "mine.json").write_text(capsys.readouterr().out)
    out = tmp_path / "r.md"
    assert (
        main(["report", str(tmp_path / "mine.json"), f"two={','.join(pair)}", "-o", str(out)]) == 0
    )
    text = out.read_text()
    lines = [line.split("|") for line in text.splitlines() if line.startswith(("| mine", "| two"))]
    assert lines[0][2:6] == lines[1][2:6]  # judged then and judged now agree
    assert "not known" in text and "Differences to mine are not tested" in text


def test_images_that_do_not_fit_are_refused(tmp_path):
    folder = saved(tmp_path / "a")
    images = tmp_path / "i.npz"
    np.savez(images, images=np.zeros((40, 8, 8), np.uint8))
    with pytest.raises(rb.Refusal, match="database images must have one row for each"):
        compare([folder], images=(images, images), measure=False)
    np.savez(images, images=np.zeros((40, 8, 8)))
    with pytest.raises(rb.Refusal, match="must be uint8"):
        compare([folder], images=(images, images), measure=False)


def test_image_files_are_shown_small_and_an_unreadable_one_is_said(tmp_path):
    from PIL import Image

    folder, pair = saved(tmp_path / "a"), []
    for name, count in (("q", 40), ("d", 120)):
        lines = ["path,label"]
        for i in range(count):
            Image.new("RGB", (90, 60), (i, 2 * i, 7)).save(tmp_path / f"{name}{i}.png")
            lines.append(f"{name}{i}.png,{i % 4}")
        pair.append(tmp_path / f"{name}.csv")
        pair[-1].write_text("\n".join(lines))
    found = compare([folder], images=(pair[0], pair[1]), many=2, measure=False)
    assert len(found.samples) == 2 and found.to_html().count("data:image/png") == 2 * 11 + 1
    aps = [s.rows[0].value for s in found.samples]
    assert aps == sorted(aps) and aps[0] < found.headline[0].value < aps[1]
    for path in tmp_path.glob("d*.png"):
        path.write_bytes(b"no image")
    found = compare([folder], images=(pair[0], pair[1]), many=2, measure=False)
    assert found.samples == () and "Sample queries are left out: " in found.missing[-1]


def test_samples_leave_the_query_itself_out_and_know_several_labels(tmp_path):
    codes, several = rb.pack(X), np.eye(4, dtype=bool)[LABELS] | np.eye(4, dtype=bool)[0]
    report = rb.evaluate(codes, codes, several, several, exclude_self=True, k=10)
    kept = Evidence(report.per_query, (codes, codes), (several, several), None, "any", True)
    images = tmp_path / "i.npz"
    np.savez(images, images=np.random.default_rng(0).integers(0, 256, (160, 4, 4), np.uint8))
    entry = Entry("self", "", report, kept, class_names=("red", "green", "blue"))
    found = compare([entry], images=(images, images), many=1, measure=False)
    sample = found.samples[0]
    assert len(sample.rows[0].nearest) == 10 and "red" in sample.label
    assert sample.image not in {n.image for n in sample.rows[0].nearest}
    assert all(n.relevant for n in sample.rows[0].nearest)  # all share the first label


def test_data_that_is_gone_or_has_no_images_is_said(tmp_path):
    codes = rb.pack(X)
    report = rb.evaluate(codes[QUERIES], codes[DATABASE], LABELS[QUERIES], LABELS[DATABASE], k=10)
    kept = Evidence(
        report.per_query, (codes[QUERIES], codes[DATABASE]), (LABELS[QUERIES], LABELS[DATABASE]),
        (np.arange(40), np.arange(40, 160)),
    )  # fmt: skip
    gone = Entry("run", "", report, kept, settings={"data": "nowhere", "bits": 12})
    word = compare([gone], measure=False, find_protocol=protocols.find_protocol).missing[-1]
    assert "the data of run cannot be read (nowhere is neither a file or folder" in word
    np.savez(tmp_path / "x.npz", features=X, labels=LABELS)
    features = Entry("run", "", report, kept, settings={"data": str(tmp_path / "x.npz")})
    words = compare([features], measure=False, find_protocol=protocols.find_protocol).missing
    assert "features, not images" in words[-1]
    assert "no images were given" in compare([features], measure=False).missing[-1]


def test_rankings_of_different_kinds_are_told_apart(tmp_path, capsys):
    codes = saved(tmp_path / "codes")
    floats = rb.evaluate(X[QUERIES], X[DATABASE], LABELS[QUERIES], LABELS[DATABASE], k=10)
    (tmp_path / "floats.json").write_text(floats.to_json())
    nothing = rb.evaluate(rb.pack(X[:3]), rb.pack(X), LABELS[:3], LABELS + 9, k=10)
    (tmp_path / "nothing.json").write_text(nothing.to_json())
    words = [codes, str(tmp_path / "floats.json"), str(tmp_path / "nothing.json")]
    assert main(["report", *words, "-o", str(tmp_path / "p.html")]) == 0
    told = capsys.readouterr().out
    assert "Not all were ranked in the same way. codes, nothing: Ranked by Hamming" in told
    assert "floats: Ranked by the cosine distance" in told
    assert "judged on different queries or databases" in told and "undefined" in told
    page = (tmp_path / "p.html").read_text()
    assert "Not all were ranked in the same way." in page and "floats</span>" in page


# drawings


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(3, 8))
def test_ticks_are_few_rising_and_inside(low, length, most):
    high = low + length
    found = choose_ticks(low, high, most)
    assert len(found) <= most
    assert all(a < b for a, b in itertools.pairwise(found))
    slack = 1e-6 * max(abs(low), abs(high), length)
    assert all(low - slack <= t <= high + slack for t in found)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(-1e4, 1e4)), min_size=1, max_size=20))
def test_nothing_is_drawn_outside_and_no_labels_overlap(points):
    text = plot([Series("a", sorted(points))], x_label="x", y_label="y", label="l")
    for px, py in re.findall(
        r"(-?[\d.]+),(-?[\d.]+)", " ".join(re.findall(r'points="(.*?)"', text))
    ):
        assert 0 <= float(px) <= 400 and 0 <= float(py) <= 270
    below = re.findall(r'<text x="([\d.]+)" y="249" text-anchor="middle">(.*?)</text>', text)
    ends = [(float(x) - 3.4 * len(t), float(x) + 3.4 * len(t)) for x, t in below]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ends))
    assert not ends or (ends[0][0] >= 0 and ends[-1][1] <= 400.5)


@pytest.mark.parametrize("shape", [(5, 3), (4, 6, 1), (7, 2, 3), (3, 3, 4)])
def test_a_png_is_what_other_readers_see(shape):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    seen = np.asarray(Image.open(io.BytesIO(encode_png(pixels))))
    np.testing.assert_array_equal(seen, pixels.squeeze(2) if shape[-1] == 1 else pixels)
    with pytest.raises(rb.Refusal, match="Pixels must be uint8"):
        encode_png(pixels.astype(float))


def test_large_pictures_are_made_small():
    assert shrink(np.zeros((512, 400, 3), np.uint8)).shape == (51, 40, 3)
    assert colour_correlations(np.eye(300)).shape == (100, 100, 4)
    assert json.dumps(choose_ticks(0, 0)) == "[0.0]"
