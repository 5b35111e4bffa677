"""The page of results says what the rows say, and is made from those that are committed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from generated import (  # noqa: E402
    claims_best,
    claims_fastap,
    claims_h2q,
    claims_new_sets,
    claims_talr,
    evidence,
    results,
)
from generated.claims import CANNOT, MISSED, NO, NONE, REACHED, YES, Finding  # noqa: E402
from generated.evidence import Evidence, Place, short  # noqa: E402


def row(name, value, seed=0, bits=None, quantizer="none", **more):
    machine = {"cpu": "a processor", "cores": 2, "gpu": None, "python": "3", "torch": "2"}
    figures = {"mAP": value, "mAP@5000 broken": value, "mAP@5000 retrieved": value}
    return {
        "name": name, "value": value, "seed": seed, "bits": bits, "quantizer": quantizer,
        "vary": {}, "paper_value": None, "worst": value - 0.1, "best": value + 0.1,
        "figures": figures, "differs": "the network", "method": name.split("/")[-1],
        "commit": "0123456789abcdef-dirty", "date": "2026-01-02T03:04:05Z", "machine": machine,
        "shortened": False, **more,
    }  # fmt: skip


def setting_one(ours, rival=0.7, seeds=(0, 1, 2)):
    """Rows of TALR-AP, alpha fixed, at two lengths, and of its rivals."""
    found = []
    for seed in seeds:
        for bits in (12, 24):
            at = {"seed": seed, "bits": bits}
            found.append(row("talr/table1-s1/talr-ap-simple-fixed", ours + seed / 100, **at))
            for name in ("dpsh", "dtsh", "mihash", "hashnet"):
                found.append(row(f"talr/table1-s1/{name}", rival + seed / 90, **at))
    return found


def test_the_page_is_that_of_the_committed_rows():
    committed = (DOCS / "results.md").read_text("utf-8")
    rows = evidence.load()
    made = results.page(rows, results.pictures(rows))
    assert committed == made, "python docs/generated/results.py"


def test_without_rows_every_claim_says_so():
    found = {claim.title: claim.find(Evidence([])) for claim in results.CLAIMS}
    for title, finding in found.items():
        wanted = {NONE, CANNOT} | ({YES} if title.startswith("Fitting takes") else set())
        assert finding.verdict in wanted, title
    assert sum(f.verdict == CANNOT for f in found.values()) == 3
    assert "no rows yet" in results.page(Evidence([]), ())


def test_ahead_everywhere_is_reproduced_and_behind_once_is_not():
    claim = claims_talr.CLAIMS[0]
    good = claim.find(Evidence(setting_one(0.8)))
    assert good.verdict == YES
    assert "Ahead in 8 of 8 comparisons, clearly in 8." in good.sentence
    assert "| TALR-AP, simple, alpha fixed | .810 ± .010 | .810 ± .010 |" in good.table
    rows = setting_one(0.8)
    rows += [row("talr/table1-s1/mihash", 0.9 + s, seed=s, bits=24) for s in (0, 1, 2)]
    bad = claim.find(Evidence(rows))
    assert bad.verdict == NO and "Ahead in 7 of 8" in bad.sentence
    assert "to table1-s1/mihash at 24 bits." in bad.sentence


def test_gaps_are_taken_seed_by_seed():
    a = [row("a/b/x", v, seed=s) for s, v in enumerate((0.5, 0.7, 0.9))]
    b = [row("a/b/y", v, seed=s) for s, v in enumerate((0.4, 0.61, 0.79, 0.1))]
    gap = Evidence(a + b).gap(Place("a/b/x"), Place("a/b/y"))
    assert gap.seeds == 3 and gap.mean == pytest.approx(0.1) and gap.clear
    assert gap.deviation == pytest.approx(0.01)
    assert Evidence(a).gap(Place("a/b/x"), Place("a/b/y")) is None


def test_shortened_rows_do_not_count():
    rows = [row("a/b/x", 0.5, shortened=True)]
    assert Evidence(rows).rows == [] and Evidence(rows).mean(Place("a/b/x")) is None


def test_a_recipe_of_one_quantizer_is_found_without_its_name():
    found = Evidence([row("t/x", 0.5, quantizer="itq"), row("t/y", 0.7, quantizer="h2q"),
                      row("t/y", 0.6)])  # fmt: skip
    assert found.mean(Place("t/x")) == 0.5 and found.mean(Place("t/y")) == 0.6
    assert found.mean(Place("t/y", "h2q")) == 0.7


def test_growing_is_judged_form_by_form():
    rows = []
    for form, gain in (("simple", 0.1), ("exact", -0.1)):
        rows.append(row(f"talr/table1-s1/talr-ap-{form}-fixed", 0.7, bits=12))
        rows.append(row(f"talr/table1-s1/talr-ap-{form}-grow", 0.7 + gain, bits=12))
    found = claims_talr.growing(Evidence(rows))
    assert found.verdict == NO and "Ahead in 1 of 2" in found.sentence
    assert "| setting 1, exact | 12: -.100 |" in found.table
    assert claims_talr.growing(Evidence(rows[:2])).verdict == YES


def test_ranges_of_ties_must_overlap_and_shrink():
    rows = setting_one(0.72)
    assert claims_talr.tie_ranges(Evidence(rows)).verdict == NO  # as wide at 24 bits as at 12
    narrow = [r | {"worst": r["value"] - 0.05} if r["bits"] == 24 else r for r in rows]
    found = claims_talr.tie_ranges(Evidence(narrow))
    assert found.verdict == YES and "20 of 20 pairs" in found.sentence
    assert ".200, .150" in found.sentence


def rotated(gains, loss="cel"):
    at = f"h2q/table1/{loss}"
    return [row(at, 0.8, bits=16)] + [
        row(at, 0.8 + gain, bits=16, quantizer=name) for name, gain in gains.items()
    ]


def test_h2q_and_itq_are_held_against_no_rotation():
    rows = rotated({"h2q": 0.02, "itq": -0.01}) + rotated({"h2q": 0.01, "itq": 0.01}, "dch")
    assert claims_h2q.CLAIMS[0].find(Evidence(rows)).verdict == YES
    found = claims_h2q.itq(claims_h2q.T1)(Evidence(rows))
    assert found.verdict == YES and "lowers the figure in 1 of 2" in found.sentence
    up = rotated({"h2q": 0.02, "itq": 0.01})
    assert claims_h2q.itq(claims_h2q.T1)(Evidence(up)).verdict == NO
    down = rotated({"h2q": -0.02})
    assert claims_h2q.CLAIMS[1].find(Evidence(down)).verdict == NO


def test_penalties_hurt_somewhere_or_the_claim_falls():
    rows = rotated({"h2q": 0.02})
    rows += [row("h2q/table2/cel-penalty", 0.79, bits=16), row("h2q/table2/cel-hswd", 0.7, bits=16)]
    assert claims_h2q.hurts(Evidence(rows)).verdict == YES
    assert claims_h2q.consistently(claims_h2q.table2("penalty"))(Evidence(rows)).verdict == YES
    better = [
        r | {"figures": {"mAP@5000 broken": 0.9}} if "penalty" in r["name"] else r for r in rows
    ]
    assert claims_h2q.hurts(Evidence(better)).verdict == NO
    assert claims_h2q.consistently(claims_h2q.table2("penalty"))(Evidence(better)).verdict == NO


def curve(kind, values, option, data="omniglot"):
    return [
        row(f"fastap/{data}/{kind}", value + s / 1000, seed=s, vary={option: at})
        for at, value in values.items()
        for s in (0, 1)
    ]


def test_ten_bins_are_best_unless_another_is_ahead():
    good = curve("bins", {2: 0.7, 10: 0.8, 50: 0.79}, "options.bins")
    assert claims_fastap.bins(Evidence(good)).verdict == YES
    bad = claims_fastap.bins(Evidence(good + curve("bins", {20: 0.9}, "options.bins")))
    assert bad.verdict == NO and "20 bins on omniglot (+.100)" in bad.sentence


def test_larger_batches_must_rise():
    good = curve("batch", {16: 0.6, 64: 0.7, 256: 0.8}, "batch_size")
    assert claims_fastap.batches(Evidence(good)).verdict == YES
    bad = curve("batch", {16: 0.6, 64: 0.8, 256: 0.7}, "batch_size", "clinc150")
    found = claims_fastap.batches(Evidence(good + bad))
    assert found.verdict == NO and found.table.index("batch_size 16") < found.table.index("256")


def test_goals_are_met_by_the_best_mean():
    rows = [row("best/s1/a", 0.95, bits=12), row("best/s1/a", 0.89, bits=24)]
    goal = claims_best.CLAIMS[0].find
    assert goal(Evidence(rows)).verdict == MISSED
    rows.append(row("best/s1/b", 0.91, bits=24, quantizer="supervised"))
    found = goal(Evidence(rows))
    assert found.verdict == REACHED and "24 bits: .910 (b, supervised)" in found.sentence


def test_our_best_must_be_clearly_ahead():
    rows = []
    for seed in (0, 1, 2):
        for q, value in (("none", 0.7), ("h2q", 0.72), ("supervised", 0.75)):
            rows += [
                row("h2q/table1/cel", value + seed / 1000, seed=seed, bits=bits, quantizer=q)
                for bits in (16, 32)
            ]
    apart = [
        r | {"figures": {"mAP": r["value"] - r["seed"] ** 2 / 9000}}
        if r["quantizer"] != "supervised"
        else r
        for r in rows
    ]
    near = [
        r | {"figures": {"mAP": 0.7 + r["seed"] / 9}} if r["quantizer"] == "h2q" else r
        for r in rows
    ]
    assert claims_best.same_backbone(Evidence(near)).verdict == MISSED
    assert claims_best.same_backbone(Evidence(apart)).verdict == REACHED


def test_ours_fine_tuned_is_held_against_all_that_are_fine_tuned():
    claim = next(c for c in claims_best.CLAIMS if c.title.endswith("backbone, fine-tuned"))
    ours, theirs = "best/same/mirror-twice", "h2q/tuned/fastap"
    at = [{"seed": s, "bits": b} for b in (32, 16) for s in (1, 2)]
    rows = [row(ours, 0.9 + a["seed"] / 1000, quantizer="supervised", **a) for a in at]
    assert claim.find(Evidence(rows)).verdict == NONE  # nobody to be ahead of
    rivals = [row(theirs, 0.8 + a["seed"] / 900, quantizer="h2q", **a) for a in at]
    assert claim.find(Evidence(rows + rivals[:2])).verdict == MISSED  # at one of two lengths
    rows += rivals
    found = claim.find(Evidence(rows))
    assert (
        found.verdict == REACHED and "| FastAP + h2q | .802 ± .001 | .802 ± .001 |" in found.table
    )
    fallen = [row("h2q/tuned/dch", 0.79 if a["seed"] == 1 else 0.3, **a) for a in at]
    far = claim.find(Evidence(rows + fallen))  # one who falls at a seed is far, but not clearly
    assert far.verdict == MISSED and "Ahead in 4 of 4 comparisons, clearly in 2." in far.sentence
    assert "Ahead, not clearly: h2q/tuned/dch and none at 16 bits (+.357" in far.sentence
    once = [row("h2q/tuned/dch", 1.0 if a["seed"] == 1 else 0.2, **a) for a in at]
    ahead = claim.find(Evidence(rows + once))
    assert ahead.verdict == MISSED
    close = [row("h2q/tuned/dch", 0.9009 + a["seed"] / 10000, **a) for a in at]
    assert claim.find(Evidence(rows + close)).verdict == MISSED  # ahead, but not clearly
    level = row("h2q/tuned-penalty/dch", 0.9, seed=1, bits=32)
    found = claim.find(Evidence([*rows, level]))  # ahead, but of one seed nobody knows how clearly
    assert found.verdict == MISSED and "| DCH with its penalty |  | .900 |" in found.table


def test_teaching_is_shown_beside_learning_from_labels_only():
    alone = [row("h2q/tuned/hashnet", 0.8, seed=s, bits=16) for s in (1, 2)]
    assert claims_best.teaching(Evidence(alone)).verdict == NONE
    more = [
        row("best/same/twice-hashnet", 0.9, seed=s, bits=16, quantizer="supervised") for s in (1, 2)
    ]
    found = claims_best.teaching(Evidence(alone + more)).table
    assert "| HashNet, labelled images only, its signs | .800 ± .000 |  |" in found
    assert "| HashNet, taught twice, our rotation | .900 ± .000 |  |" in found
    assert "HyP2" not in found and "taught by five" not in found


def test_an_ingredient_brings_what_lies_between_two_rows():
    before, after = "best/ingredients/frozen-resnet50", "best/s1/resnet50-talr"
    rows = [row(before, 0.8, seed=s, bits=32) for s in (1, 2)]
    assert claims_best.ingredients(Evidence(rows)).verdict == NONE
    rows += [row(after, 0.9 + s / 100, seed=s, bits=32) for s in (0, 1)]
    found = claims_best.ingredients(Evidence(rows))
    assert found.verdict == ""
    assert "ResNet-50, at 160 x 160, 40 epochs | .800 | .910 | +.110 | 1 |" in found.table
    assert "\nMeasured so far. " in results.page(Evidence(rows), ())


def test_the_page_names_commands_machines_and_commits():
    rows = setting_one(0.8)
    page = results.page(Evidence(rows), ())
    assert "**reproduced** so far" in page and "rows are missing" in page
    assert "`rankbits reproduce talr/table1-s1`: 30 of" in page
    assert "a processor, 2 cores, Python 3, torch 2 (commit `0123456789ab-dirty`)" in page
    assert "the network." in page


def test_the_first_sentence_is_said_in_short():
    said = "Ahead in 3 of 4, least gap +.002. To whom is another matter."
    assert results.short(Finding(YES, said)) == "Ahead in 3 of 4, least gap +.002"
    assert results.short(Finding(CANNOT, said)) == ""  # a reason, which belongs to its section
    assert results.short(Finding(YES, "a word " * 30)) == ""  # too long for a table
    rows = setting_one(0.8)
    assert "| **reproduced** so far | Ahead in 8 of 8 comparisons, clearly in 8 |" in results.page(
        Evidence(rows), ()
    )


def test_times_by_length_are_those_of_the_benchmark():
    found = claims_h2q.times(Evidence([]))
    rows = evidence.read(claims_h2q.BENCHMARKS / "speed_h2q_lengths.jsonl")
    assert found.verdict == YES and len(rows) == 24
    slowest = max(r["median"] for r in rows if "solver" in r["name"])
    assert f"at most {slowest:.0f} s" in found.sentence
    assert len(found.table.splitlines()) == 2 + len(rows) // 4


def test_numbers_are_spelled_as_the_papers_do():
    assert [short(v) for v in (0.8, -0.012, 1.0, 0.0)] == [".800", "-.012", "1.000", ".000"]


def test_birds_reach_their_goal_only_by_several_seeds():
    goal = claims_new_sets.beat_best(claims_new_sets.FROZEN)
    seeds = {0: 0.50, 1: 0.52, 2: 0.49}
    ours = [row("fastap/cub-frozen/fastap-40-bins", v, seed=s) for s, v in seeds.items()]
    theirs = [row("fastap/cub-frozen/margin", v - 0.02, seed=s) for s, v in seeds.items()]
    theirs += [row("fastap/cub-frozen/triplet", v - 0.01, seed=s) for s, v in seeds.items()]
    theirs[-1]["value"] += 0.002
    found = goal(Evidence(ours + theirs))
    assert found.verdict == REACHED
    assert "In R@1 +.009 from triplet margin, the best of the others; deviation .001" in (
        found.sentence
    )
    assert found.table.count("\n") == 5
    once = goal(Evidence([r for r in ours + theirs if r["seed"] == 0]))
    assert once.verdict == MISSED and "one seed, which says nothing" in once.sentence
